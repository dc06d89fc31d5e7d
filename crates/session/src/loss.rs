//! The outcome of the statements under way on a lost server connection, as far as anybody but the server can know.
//!
//! In: the transaction as the client knows it, and the messages sent and not answered. Out: the words to the client. No IO:
//! `weir::teardown` obeys.
//!
//! The rule behind all: a statement that may have been committed is never said to have failed, and is never sent again.

pub mod loss_words;
pub mod owed_error;

use weir_sql::facts::{Ending, Transaction};

/// Possible commits by the commands under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Commits {
    #[default]
    No,
    May,
}

/// The transaction behind the commands under way, if the server carries out all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Behind {
    /// None of them begins or ends one.
    #[default]
    AsBefore,
    Open,
    Closed,
}

/// The commands under way that begin and end transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    pub commits: Commits,
    pub behind: Behind,
}

/// Other work under way when a command on transactions is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// Nothing of the client's: all that was sent is answered.
    Nothing,
    Something,
}

impl Control {
    /// The same behind a statement that begins or ends a transaction, or may. `is_within`: one was open when the server was last ready.
    #[must_use]
    pub fn sent(self, transaction: Transaction, before: Before, is_within: bool) -> Control {
        let base = if before == Before::Nothing { Control::default() } else { self };
        let is_open = base.is_open(is_within);
        // A statement under way outside of a transaction commits itself.
        let commits = if before == Before::Something && !is_open { Commits::May } else { base.commits };
        match transaction {
            Transaction::None | Transaction::Within => base,
            Transaction::Begin(_) | Transaction::Chain(Ending::Rollback) => Control { commits, behind: Behind::Open },
            Transaction::End(Ending::Rollback) => Control { commits, behind: Behind::Closed },
            Transaction::End(Ending::Commit | Ending::Prepare) => Control { commits: Commits::May, behind: Behind::Closed },
            Transaction::Prepared => Control { commits: Commits::May, behind: base.behind },
            // One of several statements that fails leaves a transaction failed that was begun among them.
            Transaction::Chain(Ending::Commit | Ending::Prepare) | Transaction::Many => {
                Control { commits: Commits::May, behind: Behind::Open }
            }
        }
    }

    /// The same behind a statement of which nothing is known.
    #[must_use]
    pub fn sent_unknown(self) -> Control {
        Control { commits: Commits::May, behind: self.behind }
    }

    /// True if a transaction is open behind them; `is_within`: one was open when the server was last ready.
    #[must_use]
    pub fn is_open(self, is_within: bool) -> bool {
        match self.behind {
            Behind::AsBefore => is_within,
            Behind::Open => true,
            Behind::Closed => false,
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
pub struct Lost {
    /// A transaction was open when the server was last ready.
    pub is_within: bool,
    pub control: Control,
    pub under_way: UnderWay,
    /// Nothing that was sent can have written.
    pub only_reads: bool,
}

/// The transaction of a client that was told of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// There is none.
    Outside,
    /// It has failed, and waits for its end.
    Failed,
}

/// The outcome for the statements under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing was under way.
    Unharmed,
    /// A ROLLBACK was under way, and nothing else: it has happened, one way or the other.
    Ended,
    /// Nothing was committed.
    RolledBack(Then),
    /// Only the server knows.
    Unknown(Then),
}

/// Judges a loss.
pub fn judge(lost: &Lost) -> Outcome {
    let Lost { is_within, control, under_way, only_reads } = *lost;
    if under_way == UnderWay::Nothing {
        return if is_within { Outcome::RolledBack(Then::Failed) } else { Outcome::Unharmed };
    }
    let is_rollback = control == Control { commits: Commits::No, behind: Behind::Closed };
    if is_rollback && under_way == UnderWay::OneQuery {
        return Outcome::Ended;
    }
    let then = if control.is_open(is_within) { Then::Failed } else { Then::Outside };
    // Statements behind a ROLLBACK may be outside of transactions.
    let commits_itself = !control.is_open(is_within) && !only_reads;
    if control.commits == Commits::May || commits_itself { Outcome::Unknown(then) } else { Outcome::RolledBack(then) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_sql::facts::Begin;

    const BEGIN: Transaction = Transaction::Begin(Begin {
        starts: false,
        access: weir_sql::facts::AccessMode::Unset,
        isolation: weir_sql::facts::Isolation::Unset,
        deferrable: false,
    });
    const COMMIT: Transaction = Transaction::End(Ending::Commit);
    const ROLLBACK: Transaction = Transaction::End(Ending::Rollback);
    const PLAIN: Transaction = Transaction::None;

    /// The outcome for statements sent one behind the other, none of them answered.
    fn outcome(is_within: bool, sent: &[Transaction]) -> Outcome {
        let mut control = Control::default();
        for (at, transaction) in sent.iter().enumerate() {
            let before = if at == 0 { Before::Nothing } else { Before::Something };
            if *transaction != PLAIN {
                control = control.sent(*transaction, before, is_within);
            }
        }
        let under_way = match sent.len() {
            0 => UnderWay::Nothing,
            1 => UnderWay::OneQuery,
            _ => UnderWay::Something,
        };
        judge(&Lost { is_within, control, under_way, only_reads: false })
    }

    #[test]
    fn what_may_have_been_committed_is_never_said_to_have_failed() {
        use Outcome::{Ended, RolledBack, Unharmed, Unknown};
        let chain = Transaction::Chain;
        for (is_within, sent, expected) in [
            (false, &[][..], Unharmed),
            (true, &[], RolledBack(Then::Failed)),
            (false, &[PLAIN], Unknown(Then::Outside)),
            (true, &[PLAIN], RolledBack(Then::Failed)),
            (true, &[PLAIN, Transaction::Within], RolledBack(Then::Failed)),
            (true, &[COMMIT], Unknown(Then::Outside)),
            (true, &[PLAIN, COMMIT], Unknown(Then::Outside)),
            (true, &[Transaction::End(Ending::Prepare)], Unknown(Then::Outside)),
            (true, &[chain(Ending::Commit)], Unknown(Then::Failed)),
            (true, &[chain(Ending::Rollback)], RolledBack(Then::Failed)),
            (true, &[ROLLBACK], Ended),
            (false, &[ROLLBACK], Ended),
            (true, &[PLAIN, ROLLBACK], Unknown(Then::Outside)),
            (true, &[ROLLBACK, PLAIN], Unknown(Then::Outside)),
            (false, &[BEGIN], RolledBack(Then::Failed)),
            (false, &[BEGIN, PLAIN], RolledBack(Then::Failed)),
            (false, &[PLAIN, BEGIN, PLAIN], Unknown(Then::Failed)),
            (false, &[BEGIN, PLAIN, COMMIT], Unknown(Then::Outside)),
            (false, &[BEGIN, PLAIN, COMMIT, BEGIN], Unknown(Then::Failed)),
            (true, &[ROLLBACK, PLAIN, BEGIN], Unknown(Then::Failed)),
            // It is not known any more that nothing stands between the two.
            (true, &[ROLLBACK, BEGIN, PLAIN], Unknown(Then::Failed)),
            (false, &[Transaction::Many], Unknown(Then::Failed)),
            (false, &[Transaction::Prepared], Unknown(Then::Outside)),
        ] {
            assert_eq!(outcome(is_within, sent), expected, "within: {is_within}, sent: {sent:?}");
        }
    }

    #[test]
    fn reads_outside_of_transactions_commit_nothing() {
        let lost = |control, only_reads| judge(&Lost { is_within: false, control, under_way: UnderWay::Something, only_reads });
        assert_eq!(lost(Control::default(), true), Outcome::RolledBack(Then::Outside));
        assert_eq!(lost(Control::default(), false), Outcome::Unknown(Then::Outside));
        assert_eq!(lost(Control::default().sent_unknown(), true), Outcome::Unknown(Then::Outside));
    }

    #[test]
    fn what_is_answered_counts_no_more() {
        let committed = Control::default().sent(COMMIT, Before::Nothing, true);
        let begun = committed.sent(BEGIN, Before::Nothing, false);
        assert_eq!(begun, Control { commits: Commits::No, behind: Behind::Open });
    }
}
