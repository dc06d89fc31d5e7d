//! Statements that may run again with their transaction, by the word they begin with. No IO: `session::replay` runs them again.

/// Statements without an effect outside of their transaction, beside reads and writes of rows. Not among them: `COPY`, which reads what the client
/// sends or what others wrote, `CALL`, `DO` and `EXECUTE`, of which nothing is known, and all that defines something.
const HARMLESS: &[&str] = &[
    "abort",
    "begin",
    "close",
    "commit",
    "declare",
    "end",
    "fetch",
    "listen",
    "lock",
    "merge",
    "move",
    "notify",
    "release",
    "rollback",
    "savepoint",
    "set",
    "show",
    "start",
    "truncate",
    "unlisten",
];

/// Longest word of the list.
const WORD_BYTES_MAX: usize = 9;

/// True if a text begins with a word of those. A comment before it is none.
pub fn is_harmless(text: &[u8]) -> bool {
    let text = text.trim_ascii_start();
    let word = text.iter().position(|byte| !byte.is_ascii_alphabetic()).map_or(text, |end| &text[..end]);
    if word.len() > WORD_BYTES_MAX {
        return false;
    }
    HARMLESS.iter().any(|harmless| word.eq_ignore_ascii_case(harmless.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_told_by_their_first_word() {
        for text in ["BEGIN", "  savepoint a", "Fetch 3 from c", "set local a = 1", "commit;", "MERGE INTO t"] {
            assert!(is_harmless(text.as_bytes()), "{text}");
        }
        for text in [
            "",
            "copy t from stdin",
            "call p()",
            "do $$ $$",
            "execute a",
            "/* set */ vacuum",
            "settle",
            "prepare transaction 'a'",
        ] {
            assert!(!is_harmless(text.as_bytes()), "{text}");
        }
        assert!(HARMLESS.iter().all(|word| word.len() <= WORD_BYTES_MAX) && HARMLESS.is_sorted());
    }
}
