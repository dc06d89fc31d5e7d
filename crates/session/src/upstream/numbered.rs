//! The number of the open transaction, and the COMMIT behind it. `outcome` works with them.

use crate::loss::{ExpectedTransaction, PossibleCommit, TransactionCommands};
use crate::task::Us;
use weir_failover::commit_outcome::TransactionNumber;
use weir_sql::facts::{StatementVerb, TransactionEnd, TransactionVerb};

/// The number of the open transaction, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XidState {
    /// It is not asked for: the transaction has not written, as far as is known.
    #[default]
    No,
    /// It has sent something that may have written.
    Due,
    /// The answer is due.
    Waits {
        at: Us,
    },
    Known {
        number: TransactionNumber,
        at: Us,
    },
    /// Another transaction may have begun since.
    Spoiled,
}

/// The statements of the open transaction so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransactionContent {
    /// None, or nobody looked.
    #[default]
    None,
    /// Reads, as the catalog says, and its snapshot cannot be refused at its end: nothing hangs on its COMMIT.
    OnlyReads,
    More,
}

/// The user whose rights count in the open transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EffectiveUser {
    /// As it was when the transaction began.
    #[default]
    AsBegun,
    /// Another, perhaps.
    Unknown,
}

impl EffectiveUser {
    /// The user behind a statement. `leaves`: it may leave something on the session.
    pub fn after(self, verb: StatementVerb, leaves: bool) -> EffectiveUser {
        match verb {
            StatementVerb::Select | StatementVerb::Insert | StatementVerb::Update | StatementVerb::Delete if !leaves => self,
            // `SET LOCAL ROLE` leaves nothing behind, and is one of these.
            StatementVerb::Select
            | StatementVerb::Insert
            | StatementVerb::Update
            | StatementVerb::Delete
            | StatementVerb::Definition
            | StatementVerb::Other => EffectiveUser::Unknown,
        }
    }
}

/// The question for the number, and the COMMIT behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitTracking {
    pub asked: XidState,
    pub deeds: TransactionContent,
    pub user: EffectiveUser,
    /// A plain COMMIT of this transaction is the last that was sent.
    pub is_committing: bool,
}

impl CommitTracking {
    /// A statement that begins or ends a transaction is about to be sent, or one of which nothing is known. `before`: all that was sent before it
    /// without an answer.
    pub fn control(&mut self, transaction: TransactionVerb, before: TransactionCommands) {
        let may_follow = before.commits == PossibleCommit::No && before.behind != ExpectedTransaction::Closed;
        match transaction {
            TransactionVerb::End(TransactionEnd::Commit) if may_follow => self.is_committing = true,
            TransactionVerb::Within => {}
            TransactionVerb::Begin(_) if self.asked == XidState::No && may_follow => {}
            // A transaction behind another one, without an answer in between.
            _ => {
                *self = CommitTracking {
                    asked: XidState::Spoiled,
                    deeds: TransactionContent::More,
                    user: EffectiveUser::Unknown,
                    is_committing: false,
                }
            }
        }
    }

    /// All that was sent is answered.
    pub fn answered(&mut self, status: u8) {
        self.is_committing = false;
        if status == b'I' {
            (self.asked, self.deeds, self.user) = (XidState::No, TransactionContent::None, EffectiveUser::AsBegun);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_that_leave_nothing_keep_the_user_and_all_else_may_change_him() {
        for verb in [StatementVerb::Select, StatementVerb::Insert, StatementVerb::Update, StatementVerb::Delete] {
            assert_eq!(
                [false, true].map(|leaves| EffectiveUser::AsBegun.after(verb, leaves)),
                [EffectiveUser::AsBegun, EffectiveUser::Unknown],
                "{verb:?}"
            );
            assert_eq!(EffectiveUser::Unknown.after(verb, false), EffectiveUser::Unknown, "{verb:?}");
        }
        for verb in [StatementVerb::Definition, StatementVerb::Other] {
            assert_eq!(EffectiveUser::AsBegun.after(verb, false), EffectiveUser::Unknown, "{verb:?}");
        }
    }
}
