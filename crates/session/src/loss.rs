//! The outcome of the statements under way on a lost server connection, as far as anybody but the server can know.
//!
//! In: the transaction as the client knows it, and the messages sent and not answered. Out: the words to the client. No IO:
//! `weir::teardown` obeys.
//!
//! The rule behind all: a statement that may have been committed is never said to have failed, and is never sent again.

pub mod loss_words;
pub mod owed_error;

use weir_sql::facts::{TransactionEnd, TransactionVerb};

/// Possible commits by the commands under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PossibleCommit {
    #[default]
    No,
    May,
}

/// The transaction behind the commands under way, if the server carries out all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpectedTransaction {
    /// None of them begins or ends one.
    #[default]
    AsBefore,
    Open,
    Closed,
}

/// The commands under way that begin and end transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransactionCommands {
    pub commits: PossibleCommit,
    pub behind: ExpectedTransaction,
}

/// Other work under way when a command on transactions is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriorWork {
    /// Nothing of the client's: all that was sent is answered.
    Nothing,
    Something,
}

impl TransactionCommands {
    /// The same behind a statement that begins or ends a transaction, or may. `is_within`: one was open when the server was last ready.
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
            // One of several statements that fails leaves a transaction failed that was begun among them.
            TransactionVerb::Chain(TransactionEnd::Commit | TransactionEnd::Prepare) | TransactionVerb::Many => {
                TransactionCommands { commits: PossibleCommit::May, behind: ExpectedTransaction::Open }
            }
        }
    }

    /// The same behind a statement of which nothing is known.
    #[must_use]
    pub fn sent_unknown(self) -> TransactionCommands {
        TransactionCommands { commits: PossibleCommit::May, behind: self.behind }
    }

    /// True if a transaction is open behind them; `is_within`: one was open when the server was last ready.
    #[must_use]
    pub fn is_open(self, is_within: bool) -> bool {
        match self.behind {
            ExpectedTransaction::AsBefore => is_within,
            ExpectedTransaction::Open => true,
            ExpectedTransaction::Closed => false,
        }
    }
}

/// The messages of the client's that were not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnderWay {
    Nothing,
    /// One simple query.
    OneQuery,
    Something,
}

/// A connection that is lost.
#[derive(Clone, Copy, Debug)]
pub struct LostConn {
    /// A transaction was open when the server was last ready.
    pub is_within: bool,
    pub control: TransactionCommands,
    pub under_way: UnderWay,
    /// Nothing that was sent can have written.
    pub only_reads: bool,
}

/// The transaction of a client that was told of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionAfterLoss {
    /// There is none.
    Outside,
    /// It has failed, and waits for its end.
    Failed,
}

/// The outcome for the statements under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossOutcome {
    /// Nothing was under way.
    Unharmed,
    /// A ROLLBACK was under way, and nothing else: it has happened, one way or the other.
    Ended,
    /// Nothing was committed.
    RolledBack(TransactionAfterLoss),
    /// Only the server knows.
    Unknown(TransactionAfterLoss),
}

/// Judges a loss.
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
    // Statements behind a ROLLBACK may be outside of transactions.
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
