//! The open transaction's number and COMMIT, used by `doubt::transaction_number`.

use crate::loss::{ExpectedTransaction, PossibleCommit, TransactionCommands};
use crate::task::Us;
use weir_failover::commit_outcome::TransactionNumber;
use weir_sql::facts::{StatementVerb, TransactionEnd, TransactionVerb};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XidState {
    /// As far as is known, the transaction has not written.
    #[default]
    No,
    /// A statement that may have written was sent.
    Due,
    Waits {
        at: Us,
    },
    /// `asked_us`: the last question for it, which the COMMIT may repeat.
    Known {
        number: TransactionNumber,
        at: Us,
        asked_us: Us,
    },
    /// Another transaction may have begun since.
    Spoiled,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransactionContent {
    /// No statement, or not examined.
    #[default]
    None,
    /// Reads with a snapshot that cannot be refused at the end: the COMMIT's outcome does not matter.
    OnlyReads,
    More,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EffectiveUser {
    #[default]
    AsBegun,
    Unknown,
}

impl EffectiveUser {
    /// `leaves`: the statement may leave session state.
    pub fn after(self, verb: StatementVerb, leaves: bool) -> EffectiveUser {
        match verb {
            StatementVerb::Select | StatementVerb::Insert | StatementVerb::Update | StatementVerb::Delete if !leaves => self,
            // `SET LOCAL ROLE` leaves no state, but is among these.
            StatementVerb::Select
            | StatementVerb::Insert
            | StatementVerb::Update
            | StatementVerb::Delete
            | StatementVerb::Definition
            | StatementVerb::Other => EffectiveUser::Unknown,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitTracking {
    pub asked: XidState,
    pub deeds: TransactionContent,
    pub user: EffectiveUser,
    /// True if the last message is this transaction's plain COMMIT.
    pub is_committing: bool,
}

impl CommitTracking {
    /// Notes a transaction command or unknown statement before it is sent. `before`: unanswered commands.
    pub fn control(&mut self, transaction: TransactionVerb, before: TransactionCommands) {
        let may_follow = before.commits == PossibleCommit::No && before.behind != ExpectedTransaction::Closed;
        match transaction {
            TransactionVerb::End(TransactionEnd::Commit) if may_follow => self.is_committing = true,
            TransactionVerb::Within => {}
            TransactionVerb::Begin(_) if self.asked == XidState::No && may_follow => {}
            // A transaction follows another without an answer in between.
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
