//! A COMMIT in doubt. `doubt` works with it.

use crate::fault::ErrorReport;
use crate::replies::OwedReplies;
use crate::task::Us;
use crate::upstream::prepared_changes::JournalEntry;
use std::collections::VecDeque;
use weir_failover::commit_outcome::TransactionNumber;

/// A COMMIT whose answer was lost. Its client waits for one.
pub struct CommitInDoubt {
    /// The transaction's number, and when it was asked for: older connections have been there when the number was. `None`: it has only read.
    pub number: Option<(TransactionNumber, Us)>,
    /// The answer to the COMMIT, as far as it is due, without its ReadyForQuery. `None`: other answers are lost.
    pub answer: Option<Vec<u8>>,
    pub owed: OwedReplies,
    /// Said if nothing is proved.
    pub unknown: ErrorReport,
    /// Prepared statements that are not there if the client hears of an error.
    pub journal: VecDeque<JournalEntry>,
}
