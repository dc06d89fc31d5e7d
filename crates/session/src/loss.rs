//! The outcome of the statements under way on a lost server connection. `teardown` carries it out.
//!
//! Rule: a statement that may have been committed is never reported as failed, and is never sent again.

pub mod loss_words;
pub mod owed_error;

use weir_sql::facts::{TransactionEnd, TransactionVerb};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PossibleCommit {
    #[default]
    No,
    May,
}

/// The transaction after the commands under way, if all are carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpectedTransaction {
    /// No command begins or ends a transaction.
    #[default]
    AsBefore,
    Open,
    Closed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransactionCommands {
    pub commits: PossibleCommit,
    pub behind: ExpectedTransaction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriorWork {
    /// All that the client sent is answered.
    Nothing,
    Something,
}

impl TransactionCommands {
    /// Adds a sent statement. `is_within`: a transaction was open at the last ReadyForQuery.
    #[must_use]
    pub fn sent(self, transaction: TransactionVerb, before: PriorWork, is_within: bool) -> TransactionCommands {
        let base = if before == PriorWork::Nothing { TransactionCommands::default() } else { self };
        let is_open = base.is_open(is_within);
        // A statement under way outside of a transaction commits itself.
        let commits = if before == PriorWork::Something && !is_open { PossibleCommit::May } else { base.commits };
        match transaction {
            TransactionVerb::None | TransactionVerb::Within => base,
            TransactionVerb::Begin(_) | TransactionVerb::Chain(TransactionEnd::Rollback) => {
                TransactionCommands { commits, behind: ExpectedTransaction::Open }
            }
            TransactionVerb::End(TransactionEnd::Rollback) => {
                TransactionCommands { commits, behind: ExpectedTransaction::Closed }
            }
            TransactionVerb::End(TransactionEnd::Commit | TransactionEnd::Prepare) => {
                TransactionCommands { commits: PossibleCommit::May, behind: ExpectedTransaction::Closed }
            }
            TransactionVerb::Prepared => TransactionCommands { commits: PossibleCommit::May, behind: base.behind },
            // If one of several statements fails, a transaction begun among them stays open.
            TransactionVerb::Chain(TransactionEnd::Commit | TransactionEnd::Prepare) | TransactionVerb::Many => {
                TransactionCommands { commits: PossibleCommit::May, behind: ExpectedTransaction::Open }
            }
        }
    }

    #[must_use]
    pub fn sent_unknown(self) -> TransactionCommands {
        TransactionCommands { commits: PossibleCommit::May, behind: self.behind }
    }

    /// True if a transaction is open after the commands.
    #[must_use]
    pub fn is_open(self, is_within: bool) -> bool {
        match self.behind {
            ExpectedTransaction::AsBefore => is_within,
            ExpectedTransaction::Open => true,
            ExpectedTransaction::Closed => false,
        }
    }
}

/// Messages of the client without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnderWay {
    Nothing,
    /// One simple query.
    OneQuery,
    Something,
}

#[derive(Clone, Copy, Debug)]
pub struct LostConn {
    /// A transaction was open at the last ReadyForQuery.
    pub is_within: bool,
    pub control: TransactionCommands,
    pub under_way: UnderWay,
    /// No sent statement can have written.
    pub only_reads: bool,
}

/// State of a client's transaction after it was told of the loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionAfterLoss {
    Outside,
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossOutcome {
    /// Nothing was under way.
    Unharmed,
    /// Only a ROLLBACK was under way: the transaction is rolled back in any case.
    Ended,
    RolledBack(TransactionAfterLoss),
    /// Only the server knows.
    Unknown(TransactionAfterLoss),
}

pub fn judge(lost: &LostConn) -> LossOutcome {
    let LostConn { is_within, control, under_way, only_reads } = *lost;
    if under_way == UnderWay::Nothing {
        return if is_within { LossOutcome::RolledBack(TransactionAfterLoss::Failed) } else { LossOutcome::Unharmed };
    }
    let is_rollback = control == TransactionCommands { commits: PossibleCommit::No, behind: ExpectedTransaction::Closed };
    if is_rollback && under_way == UnderWay::OneQuery {
        return LossOutcome::Ended;
    }
    let then = if control.is_open(is_within) { TransactionAfterLoss::Failed } else { TransactionAfterLoss::Outside };
    // Statements after a ROLLBACK may run outside of transactions.
    let commits_itself = !control.is_open(is_within) && !only_reads;
    if control.commits == PossibleCommit::May || commits_itself {
        LossOutcome::Unknown(then)
    } else {
        LossOutcome::RolledBack(then)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_sql::facts::BeginOptions;

    const BEGIN: TransactionVerb = TransactionVerb::Begin(BeginOptions {
        starts: false,
        access: weir_sql::facts::AccessMode::Unset,
        isolation: weir_sql::facts::IsolationLevel::Unset,
        deferrable: false,
    });
    const COMMIT: TransactionVerb = TransactionVerb::End(TransactionEnd::Commit);
    const ROLLBACK: TransactionVerb = TransactionVerb::End(TransactionEnd::Rollback);
    const PLAIN: TransactionVerb = TransactionVerb::None;

    /// The outcome for statements sent one behind the other, none of them answered.
    fn outcome(is_within: bool, sent: &[TransactionVerb]) -> LossOutcome {
        let mut control = TransactionCommands::default();
        for (at, transaction) in sent.iter().enumerate() {
            let before = if at == 0 { PriorWork::Nothing } else { PriorWork::Something };
            if *transaction != PLAIN {
                control = control.sent(*transaction, before, is_within);
            }
        }
        let under_way = match sent.len() {
            0 => UnderWay::Nothing,
            1 => UnderWay::OneQuery,
            _ => UnderWay::Something,
        };
        judge(&LostConn { is_within, control, under_way, only_reads: false })
    }

    #[test]
    fn what_may_have_been_committed_is_never_said_to_have_failed() {
        use LossOutcome::{Ended, RolledBack, Unharmed, Unknown};
        let chain = TransactionVerb::Chain;
        for (is_within, sent, expected) in [
            (false, &[][..], Unharmed),
            (true, &[], RolledBack(TransactionAfterLoss::Failed)),
            (false, &[PLAIN], Unknown(TransactionAfterLoss::Outside)),
            (true, &[PLAIN], RolledBack(TransactionAfterLoss::Failed)),
            (true, &[PLAIN, TransactionVerb::Within], RolledBack(TransactionAfterLoss::Failed)),
            (true, &[COMMIT], Unknown(TransactionAfterLoss::Outside)),
            (true, &[PLAIN, COMMIT], Unknown(TransactionAfterLoss::Outside)),
            (true, &[TransactionVerb::End(TransactionEnd::Prepare)], Unknown(TransactionAfterLoss::Outside)),
            (true, &[chain(TransactionEnd::Commit)], Unknown(TransactionAfterLoss::Failed)),
            (true, &[chain(TransactionEnd::Rollback)], RolledBack(TransactionAfterLoss::Failed)),
            (true, &[ROLLBACK], Ended),
            (false, &[ROLLBACK], Ended),
            (true, &[PLAIN, ROLLBACK], Unknown(TransactionAfterLoss::Outside)),
            (true, &[ROLLBACK, PLAIN], Unknown(TransactionAfterLoss::Outside)),
            (false, &[BEGIN], RolledBack(TransactionAfterLoss::Failed)),
            (false, &[BEGIN, PLAIN], RolledBack(TransactionAfterLoss::Failed)),
            (false, &[PLAIN, BEGIN, PLAIN], Unknown(TransactionAfterLoss::Failed)),
            (false, &[BEGIN, PLAIN, COMMIT], Unknown(TransactionAfterLoss::Outside)),
            (false, &[BEGIN, PLAIN, COMMIT, BEGIN], Unknown(TransactionAfterLoss::Failed)),
            (true, &[ROLLBACK, PLAIN, BEGIN], Unknown(TransactionAfterLoss::Failed)),
            // It is not known any more that nothing stands between the two.
            (true, &[ROLLBACK, BEGIN, PLAIN], Unknown(TransactionAfterLoss::Failed)),
            (false, &[TransactionVerb::Many], Unknown(TransactionAfterLoss::Failed)),
            (false, &[TransactionVerb::Prepared], Unknown(TransactionAfterLoss::Outside)),
        ] {
            assert_eq!(outcome(is_within, sent), expected, "within: {is_within}, sent: {sent:?}");
        }
    }

    #[test]
    fn reads_outside_of_transactions_commit_nothing() {
        let lost =
            |control, only_reads| judge(&LostConn { is_within: false, control, under_way: UnderWay::Something, only_reads });
        assert_eq!(lost(TransactionCommands::default(), true), LossOutcome::RolledBack(TransactionAfterLoss::Outside));
        assert_eq!(lost(TransactionCommands::default(), false), LossOutcome::Unknown(TransactionAfterLoss::Outside));
        assert_eq!(
            lost(TransactionCommands::default().sent_unknown(), true),
            LossOutcome::Unknown(TransactionAfterLoss::Outside)
        );
    }

    #[test]
    fn what_is_answered_counts_no_more() {
        let committed = TransactionCommands::default().sent(COMMIT, PriorWork::Nothing, true);
        let begun = committed.sent(BEGIN, PriorWork::Nothing, false);
        assert_eq!(begun, TransactionCommands { commits: PossibleCommit::No, behind: ExpectedTransaction::Open });
    }
}
