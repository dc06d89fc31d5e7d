//! Reads hints in comments before the first word. Later comments do not count: they may come with a value put into the
//! text.

use crate::facts::RoutingHint;

const NO_LOAD_BALANCE: &str = "NO LOAD BALANCE";
const MARK: &str = "weir:";

/// True if a text begins with a comment; and the first hint in its leading comments.
pub(crate) fn of_text(text: &str) -> (bool, RoutingHint) {
    let (mut rest, mut is_commented, mut hint) = (text.trim_ascii_start(), false, RoutingHint::None);
    while let Some((comment, after)) = split_comment(rest) {
        is_commented = true;
        if hint == RoutingHint::None {
            hint = of_comment(comment);
        }
        rest = after.trim_ascii_start();
    }
    (is_commented, hint)
}

/// Splits off the leading comment, without its signs; `None` if there is none, or it has no end.
fn split_comment(text: &str) -> Option<(&str, &str)> {
    if let Some(line) = text.strip_prefix("--") {
        return Some(line.split_once(['\n', '\r']).unwrap_or((line, "")));
    }
    let inner = text.strip_prefix("/*")?;
    let (bytes, mut at, mut depth) = (inner.as_bytes(), 0, 1);
    while let Some(pair) = bytes.get(at..at + 2) {
        match pair {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        if depth == 0 {
            return Some((&inner[..at], &inner[at + 2..]));
        }
        at += 2;
    }
    None
}

fn of_comment(comment: &str) -> RoutingHint {
    let comment = comment.trim();
    if comment.eq_ignore_ascii_case(NO_LOAD_BALANCE) {
        return RoutingHint::Primary;
    }
    let Some((mark, wanted)) = comment.split_at_checked(MARK.len()) else { return RoutingHint::None };
    if mark.eq_ignore_ascii_case(MARK) { RoutingHint::of_word(wanted) } else { RoutingHint::None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_hint_in_front_of_a_text_counts() {
        for (text, expected) in [
            ("select 1", (false, RoutingHint::None)),
            ("/*NO LOAD BALANCE*/ select 1", (true, RoutingHint::Primary)),
            ("  /* no load balance */select 1", (true, RoutingHint::Primary)),
            ("/* weir: primary */ select 1", (true, RoutingHint::Primary)),
            ("/*weir:standby*/ select 1", (true, RoutingHint::Standby)),
            ("-- weir: node=2\nselect 1", (true, RoutingHint::Node(2))),
            ("/* WEIR: Node = 12 */ select 1", (true, RoutingHint::Node(12))),
            ("/* from x.rs:7 */ /* weir: node=1 */ /* weir: primary */ select 1", (true, RoutingHint::Node(1))),
            ("/* a /* nested */ weir: primary */ select 1", (true, RoutingHint::None)),
            ("/* weir: nod=2 */ select 1", (true, RoutingHint::Unknown)),
            ("/* weir: node=70000 */ select 1", (true, RoutingHint::Unknown)),
            ("/* weir: */ select 1", (true, RoutingHint::Unknown)),
            ("select /* weir: primary */ 1", (false, RoutingHint::None)),
            ("select 1 /*NO LOAD BALANCE*/", (false, RoutingHint::None)),
            ("/* no end select 1", (false, RoutingHint::None)),
            ("/*/ select 1", (false, RoutingHint::None)),
            ("-- only a comment", (true, RoutingHint::None)),
            ("", (false, RoutingHint::None)),
            ("/* ä */ select 1", (true, RoutingHint::None)),
        ] {
            assert_eq!(of_text(text), expected, "{text}");
        }
    }
}
