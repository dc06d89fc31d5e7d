//! Session state and changes that a text which the parser refuses may cause on a server that accepts it.
//!
//! Nearly always it is a mistake that PostgreSQL refuses as well, and then nothing has run. But the server may be older
//! or newer than this parser and know an option that is not known here. So the first word of each statement is asked
//! whether such a statement can leave anything at all; a plain mistake in a `SELECT` costs the pooler nothing.

use crate::facts::{Changes, StateKind, StateKinds};
use crate::skeleton::skeleton;

/// The commands that can leave something on the session. Since PostgreSQL 8.3 there has been no new one.
const LEAVING: [&str; 12] =
    ["call", "create", "declare", "discard", "do", "execute", "listen", "load", "lock", "prepare", "reset", "set"];

/// The commands that may change objects that all databases share.
const SHARED: [&str; 7] = ["alter", "commit", "create", "drop", "grant", "reassign", "revoke"];

/// Changes by such a text if a server understands it.
pub(crate) fn changes(text: &[u8]) -> Changes {
    if begins_with_any(text, &SHARED) { Changes::Cluster } else { Changes::Database }
}

/// `Unread` when some statement of the text begins with a command that can leave session state.
///
/// The text is cut at every `;`, also at those within strings: a statement too many is looked at, none too few. But a
/// text that has a skeleton is one query whatever its strings hold, and texts of one skeleton must have equal facts.
pub(crate) fn keeps(text: &[u8]) -> StateKinds {
    if begins_with_any(text, &LEAVING) { StateKinds::of(StateKind::Unread) } else { StateKinds::NONE }
}

fn begins_with_any(text: &[u8], commands: &[&str]) -> bool {
    if skeleton(text, &mut Vec::new()) {
        return false;
    }
    let is_one = |word: &[u8]| commands.iter().any(|known| word.eq_ignore_ascii_case(known.as_bytes()));
    text.split(|&byte| byte == b';').map(first_word).any(is_one)
}

/// The first word after blanks, comments and opening parentheses; empty when there is none.
fn first_word(mut text: &[u8]) -> &[u8] {
    loop {
        let blanks = text.iter().take_while(|b| b.is_ascii_whitespace() || matches!(**b, 0x0B | b'(')).count();
        text = &text[blanks..];
        if text.starts_with(b"--") {
            text = after_line(text);
        } else if text.starts_with(b"/*") {
            text = after_comment(text);
        } else {
            let letters = text.iter().take_while(|b| b.is_ascii_alphabetic()).count();
            return &text[..letters];
        }
    }
}

fn after_line(text: &[u8]) -> &[u8] {
    let line = text.iter().position(|&b| b == b'\n' || b == b'\r').unwrap_or(text.len());
    &text[line..]
}

/// The text behind the comment that `text` begins with; comments nest.
fn after_comment(text: &[u8]) -> &[u8] {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        match &text[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return &text[at..];
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_keeps(text: &str, unknown: bool) {
        assert_eq!(!keeps(text.as_bytes()).is_empty(), unknown, "{text}");
    }

    #[test]
    fn only_a_statement_that_can_leave_something_costs_the_pooler() {
        check_keeps("selct 1", false);
        check_keeps("select 1 from", false);
        check_keeps("", false);
        check_keeps("/* set /* */ x */ select", false);
        check_keeps("/* unclosed set", false);
        check_keeps("create temp table x (a int) new option", true);
        check_keeps("  -- a note\n\t(/* x */ SET a b c", true);
        check_keeps("select 1; set a b c", true);
        check_keeps("settle the bill", false);
        check_keeps("select from where a = '; set x'", false);
    }
}
