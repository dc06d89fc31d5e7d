//! SQL text: the parser's facts, which must be equal for texts with one skeleton.

use weir_sql::facts;
use weir_sql::facts::{QueryEffect, QueryFacts, StateKinds};
use weir_sql::skeleton::skeleton;

/// Two sets of literals for the skeleton's placeholders: integer, string, decimal.
const LITERALS: [[&str; 3]; 3] =
    [["0", "''", "0.5"], ["2147483647", "'it''s -- a /* test'", "99999999999"], ["08", "'\u{e9};'", "7.25"]];

/// Any bytes give facts; white space around a text changes none of them, nor do other literals in the same places.
pub fn run(bytes: &[u8]) {
    let said = facts(bytes);
    let padded = [b"\n ".as_slice(), bytes, b"\n"].concat();
    if padded.len() <= weir_sql::TEXT_BYTES_MAX {
        assert_eq!(facts(&padded), said);
    }
    let mut reduced = Vec::new();
    if !skeleton(bytes, &mut reduced) {
        assert_eq!(reduced, bytes);
        return;
    }
    for literals in LITERALS {
        let sibling = fill(&reduced, literals);
        let mut again = Vec::new();
        // Other digits can make numbers that touch something (`4."a"`) end elsewhere: another skeleton, no promise.
        if !skeleton(&sibling, &mut again) || again != reduced {
            continue;
        }
        assert_eq!(without_guess(facts(&sibling)), without_guess(said.clone()), "{}", sibling.escape_ascii());
    }
}

/// The session state of a refused text is guessed from its words, also from those inside strings, and may differ.
fn without_guess(mut facts: QueryFacts) -> QueryFacts {
    if facts.effect == QueryEffect::Refused {
        facts.state.keeps = StateKinds::NONE;
    }
    facts
}

fn fill(reduced: &[u8], literals: [&str; 3]) -> Vec<u8> {
    let mut text = Vec::new();
    for byte in reduced {
        match byte {
            1..=3 => text.extend_from_slice(literals[usize::from(*byte) - 1].as_bytes()),
            _ => text.push(*byte),
        }
    }
    text
}
