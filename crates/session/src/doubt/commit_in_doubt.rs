//! A COMMIT in doubt; `doubt` works with it.

use crate::fault::ErrorReport;
use crate::replies::OwedReplies;
use crate::task::Us;
use crate::upstream::prepared_changes::JournalEntry;
use std::collections::VecDeque;
use weir_failover::commit_outcome::TransactionNumber;

pub struct CommitInDoubt {
    /// The xid, and when it was queried: older connections existed when it was assigned. `None`: only reads.
    pub number: Option<(TransactionNumber, Us)>,
    /// Answer to the COMMIT without ReadyForQuery. `None`: other answers are lost too.
    pub answer: Option<Vec<u8>>,
    pub owed: OwedReplies,
    pub unknown: ErrorReport,
    /// Prepared statements to take back on an error.
    pub journal: VecDeque<JournalEntry>,
}
