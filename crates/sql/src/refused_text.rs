//! Changes by a text that the parser refuses but a server of another version may accept (`json_value('x')` up to 16, `5
//! !` of 13). Such a text may leave anything; a server's syntax error proves that nothing ran.

use crate::body::comment_bytes;
use crate::facts::ChangeScope;
use crate::skeleton::skeleton;

/// Commands that may change objects that all databases share.
const SHARED: [&str; 7] = ["alter", "commit", "create", "drop", "grant", "reassign", "revoke"];

pub(crate) fn changes(text: &[u8]) -> ChangeScope {
    if begins_with_any(text, &SHARED) { ChangeScope::Cluster } else { ChangeScope::Database }
}

fn begins_with_any(text: &[u8], commands: &[&str]) -> bool {
    if skeleton(text, &mut Vec::new()) {
        return false;
    }
    let is_one = |word: &[u8]| commands.iter().any(|known| word.eq_ignore_ascii_case(known.as_bytes()));
    text.split(|&byte| byte == b';').map(first_word).any(is_one)
}

/// First word behind blanks, comments and opening parentheses; may be empty.
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

/// Text behind a leading comment.
fn after_comment(text: &[u8]) -> &[u8] {
    &text[comment_bytes(text)..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_changes(text: &str, expected: ChangeScope) {
        assert_eq!(changes(text.as_bytes()), expected, "{text}");
    }

    #[test]
    fn only_a_command_about_shared_objects_may_change_them() {
        check_changes("selct 1", ChangeScope::Database);
        check_changes("", ChangeScope::Database);
        check_changes("/* drop /* */ x */ select", ChangeScope::Database);
        check_changes("/* unclosed drop", ChangeScope::Database);
        check_changes("create role x new option", ChangeScope::Cluster);
        check_changes("  -- a note\n\t(/* x */ DROP a b c", ChangeScope::Cluster);
        check_changes("select 1; alter a b c", ChangeScope::Cluster);
        check_changes("altered the bill", ChangeScope::Database);
        check_changes("select from where a = '; drop x'", ChangeScope::Database);
    }
}
