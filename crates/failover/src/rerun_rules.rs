//! Limits and conditions of reruns of transactions.

const AGAIN_MAX: u32 = 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransactionLosses {
    count: u32,
    /// The message group that its server was at, if known.
    at: Option<u32>,
}

impl TransactionLosses {
    /// Counts one more loss; `None`: no rerun. A message group that two servers in a row did not survive is not sent to a third. `at`: the
    /// unanswered group; `None`: no sign that the server received any.
    #[must_use]
    pub fn with(self, at: Option<u32>) -> Option<TransactionLosses> {
        let is_same = at.is_some() && at == self.at;
        let is_over = is_same || self.count >= AGAIN_MAX;
        (!is_over).then(|| TransactionLosses { count: self.count + 1, at: at.or(self.at) })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RerunMatch {
    /// Fewer bytes, and more may come.
    Short,
    Same,
    /// Different answers: the transaction has failed.
    Other,
}

/// Compares `answered` bytes with `shown` ones. `has_ended`: no more will come.
pub fn came_out(shown: u64, answered: u64, has_ended: bool, is_equal: impl FnOnce() -> bool) -> RerunMatch {
    match answered < shown {
        true if has_ended => RerunMatch::Other,
        true => RerunMatch::Short,
        false if is_equal() => RerunMatch::Same,
        false => RerunMatch::Other,
    }
}

/// Statements without an effect outside of their transaction, beside reads and writes of rows. Left out: `COPY` (outside data), `CALL`,
/// `DO` and `EXECUTE` (unknown code), and all DDL.
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

const WORD_BYTES_MAX: usize = 9;

/// True for a text that begins with a word of `HARMLESS`, without a comment before it.
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
    fn what_two_servers_in_a_row_did_not_survive_is_not_sent_to_a_third() {
        let after = |at: &[Option<u32>]| at.iter().try_fold(TransactionLosses::default(), |losses, at| losses.with(*at));
        for (at, expected) in [
            (&[Some(2)][..], true),
            (&[Some(2), Some(2)], false),
            (&[Some(2), Some(1)], true),
            (&[Some(2), Some(3), Some(4)], true),
            (&[None, None, None], true),
            (&[Some(2), None, Some(2)], false),
        ] {
            assert_eq!(after(at).is_some(), expected, "{at:?}");
        }
        assert!(after(&vec![None; AGAIN_MAX as usize]).is_some());
        assert!(after(&vec![None; AGAIN_MAX as usize + 1]).is_none());
    }

    #[test]
    fn a_transaction_goes_on_once_all_that_was_shown_came_again() {
        for (shown, answered, has_ended, is_equal, expected) in [
            (9, 8, false, true, RerunMatch::Short),
            (9, 8, true, true, RerunMatch::Other),
            (9, 9, false, true, RerunMatch::Same),
            (9, 9, true, true, RerunMatch::Same),
            (9, 9, false, false, RerunMatch::Other),
            (0, 0, false, true, RerunMatch::Same),
        ] {
            assert_eq!(came_out(shown, answered, has_ended, || is_equal), expected, "{answered} of {shown} {has_ended}");
        }
    }

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
