//! The number of the open transaction, and the COMMIT behind it. `outcome` works with them.

use crate::loss::{Behind, Commits, Control};
use crate::task::Us;
use weir_failover::commit_outcome::Number;
use weir_sql::facts::{Ending, Transaction, Verb};

/// The number of the open transaction, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Asked {
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
        number: Number,
        at: Us,
    },
    /// Another transaction may have begun since.
    Spoiled,
}

/// The statements of the open transaction so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Deeds {
    /// None, or nobody looked.
    #[default]
    None,
    /// Reads, as the catalog says, and its snapshot cannot be refused at its end: nothing hangs on its COMMIT.
    OnlyReads,
    More,
}

/// The user whose rights count in the open transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum User {
    /// As it was when the transaction began.
    #[default]
    AsBegun,
    /// Another, perhaps.
    Unknown,
}

impl User {
    /// The user behind a statement. `leaves`: it may leave something on the session.
    pub fn after(self, verb: Verb, leaves: bool) -> User {
        match verb {
            Verb::Select | Verb::Insert | Verb::Update | Verb::Delete if !leaves => self,
            // `SET LOCAL ROLE` leaves nothing behind, and is one of these.
            Verb::Select | Verb::Insert | Verb::Update | Verb::Delete | Verb::Definition | Verb::Other => User::Unknown,
        }
    }
}

/// The question for the number, and the COMMIT behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbered {
    pub asked: Asked,
    pub deeds: Deeds,
    pub user: User,
    /// A plain COMMIT of this transaction is the last that was sent.
    pub is_committing: bool,
}

impl Numbered {
    /// A statement that begins or ends a transaction is about to be sent, or one of which nothing is known. `before`: all that was sent before it
    /// without an answer.
    pub fn control(&mut self, transaction: Transaction, before: Control) {
        let may_follow = before.commits == Commits::No && before.behind != Behind::Closed;
        match transaction {
            Transaction::End(Ending::Commit) if may_follow => self.is_committing = true,
            Transaction::Within => {}
            Transaction::Begin(_) if self.asked == Asked::No && may_follow => {}
            // A transaction behind another one, without an answer in between.
            _ => *self = Numbered { asked: Asked::Spoiled, deeds: Deeds::More, user: User::Unknown, is_committing: false },
        }
    }

    /// All that was sent is answered.
    pub fn answered(&mut self, status: u8) {
        self.is_committing = false;
        if status == b'I' {
            (self.asked, self.deeds, self.user) = (Asked::No, Deeds::None, User::AsBegun);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_that_leave_nothing_keep_the_user_and_all_else_may_change_him() {
        for verb in [Verb::Select, Verb::Insert, Verb::Update, Verb::Delete] {
            assert_eq!([false, true].map(|leaves| User::AsBegun.after(verb, leaves)), [User::AsBegun, User::Unknown], "{verb:?}");
            assert_eq!(User::Unknown.after(verb, false), User::Unknown, "{verb:?}");
        }
        for verb in [Verb::Definition, Verb::Other] {
            assert_eq!(User::AsBegun.after(verb, false), User::Unknown, "{verb:?}");
        }
    }
}
