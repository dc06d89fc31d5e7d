//! The state of a statement that each shard of its table carries out by itself, or its rows of. `write_steps` carries it out.

use crate::catalogs::KnownDatabase;
use crate::fault::{ErrorReport, sqlstate};
use crate::sharding::copy_parts::CopyParts;
use crate::sharding::known_sharding::ChangeCount;
use crate::sharding::returned_rows::ReturnedRows;
use std::sync::Arc;

/// Whose the transaction is in which a statement is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionOwner {
    Client,
    /// Weir's own, for this statement.
    Weir,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteStep {
    /// The next server gets Weir's message once the session has it.
    Due,
    Sent,
    /// The statement failed there.
    Failed(ErrorReport),
    /// The client's rows are awaited.
    Takes,
    /// All others are done: the client's message goes to the last server.
    Last,
    /// All servers are done, and the transaction is Weir's: its commit is under way.
    Commits,
    Committed,
    /// The commit failed, and all is rolled back.
    NotCommitted(ErrorReport),
    /// All servers are done, and their answers are not one: the client's transaction must fail.
    Spoiled(ErrorReport),
}

/// The message that ends a statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteEnd {
    /// Its Query, or the client's Sync: nothing else comes before.
    #[default]
    OfClient,
    /// Its Execute: other statements come before the client's Sync.
    OfExecute,
    /// Weir's own Sync behind that Execute, which was sent.
    OfOwnSync,
}

/// The answers of the servers to a statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartAnswers {
    /// Each tells its own rows, and the client hears of all of them.
    #[default]
    Sum,
    /// All change the same rows, each on its own copy. `None`: none has told their number yet.
    Equal(Option<u64>),
}

pub struct SpreadWrite {
    shards: Box<[u16]>,
    /// The one of `shards` whose turn it is.
    at: usize,
    /// Changed by those before.
    pub rows: u64,
    /// Told by the one whose turn it is.
    pub told: u64,
    pub owner: TransactionOwner,
    pub step: WriteStep,
    pub answers: PartAnswers,
    pub end: WriteEnd,
    /// There for a statement that leaves something in doubt.
    pub changes: Option<SpreadChange>,
    pub parts: SpreadParts,
    /// True if the client's message is Weir's copy, which goes on with the statement.
    pub is_again: bool,
    /// True if the statement begins its transaction: nobody has asked for its time.
    pub begins: bool,
}

/// The messages for the servers of a statement, and the answers that they may give.
#[derive(Debug)]
pub struct SpreadParts {
    pub messages: PartMessages,
    /// Rows of an INSERT for each server; empty for other statements.
    pub sent: Box<[u64]>,
    /// With RETURNING, if the rows are those of several servers.
    pub returned: Option<ReturnedRows>,
}

/// Part of spread tables that is in doubt behind a change, until a look: the columns and rights of the engine's tables, or the indexes of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangedPart {
    Columns,
    /// Rights alone: a role that may change none can say GRANT, too, and in a transaction block nobody sees the change before the COMMIT.
    Rights,
    Indexes,
}

/// A statement that changes spread tables is under way, until it is dropped.
pub struct SpreadChange {
    known: Arc<KnownDatabase>,
    part: ChangedPart,
    /// Others count it.
    is_counted: bool,
}

impl SpreadChange {
    /// `owner`: of the transaction.
    pub fn begin(known: Arc<KnownDatabase>, part: ChangedPart, owner: TransactionOwner) -> SpreadChange {
        let mut change = SpreadChange { known, part, is_counted: false };
        if part != ChangedPart::Rights || owner == TransactionOwner::Weir {
            change.commit_begins();
        }
        change
    }

    pub fn commit_begins(&mut self) {
        if !std::mem::replace(&mut self.is_counted, true) {
            self.count().change_begins();
        }
    }

    pub fn part(&self) -> ChangedPart {
        self.part
    }

    fn count(&self) -> &ChangeCount {
        match self.part {
            ChangedPart::Columns | ChangedPart::Rights => &self.known.sharding.columns,
            ChangedPart::Indexes => &self.known.sharding.indexes,
        }
    }
}

impl Drop for SpreadChange {
    fn drop(&mut self) {
        if self.is_counted {
            self.count().change_ends();
        }
    }
}

/// Messages of a statement for the servers of its shards.
#[derive(Debug)]
pub enum PartMessages {
    /// For all servers but the last one, which gets the client's own.
    Same(Box<[u8]>),
    /// For each server, the last one included: it gets its own in place of the client's Query or Bind.
    Own(Box<[Box<[u8]>]>),
    /// Rows that the client sends behind its statement.
    Copy(Box<CopyParts>),
}

impl SpreadWrite {
    pub fn new(shards: &[u16], owner: TransactionOwner, parts: SpreadParts) -> SpreadWrite {
        let step = if shards.len() > 1 { WriteStep::Due } else { WriteStep::Last };
        let is_again = matches!(parts.messages, PartMessages::Copy(_));
        SpreadWrite {
            shards: shards.into(),
            at: 0,
            rows: 0,
            told: 0,
            owner,
            step,
            answers: PartAnswers::default(),
            end: WriteEnd::default(),
            changes: None,
            parts,
            is_again,
            begins: false,
        }
    }

    /// For the server whose turn it is, other than the last one.
    pub fn message(&self) -> &[u8] {
        match &self.parts.messages {
            PartMessages::Same(message) => message,
            PartMessages::Own(messages) => messages.get(self.at).map_or(&[], |message| message),
            PartMessages::Copy(copy) => copy.message(),
        }
    }

    /// The message for the last server, in place of the client's.
    pub fn last_message(&self) -> Option<&[u8]> {
        match &self.parts.messages {
            PartMessages::Same(_) => None,
            PartMessages::Own(messages) => messages.last().map(|message| &**message),
            PartMessages::Copy(copy) => Some(copy.message()),
        }
    }

    /// Rows that the servers return, if the client gets them.
    pub fn returned(&self) -> Option<&ReturnedRows> {
        self.parts.returned.as_ref()
    }

    /// With the number of the server whose turn it is.
    pub fn returned_now(&mut self) -> Option<(&mut ReturnedRows, usize)> {
        let at = self.at;
        self.parts.returned.as_mut().map(|returned| (returned, at))
    }

    /// Why the statement must fail, though the server whose turn it is has carried it out. `told`: its rows.
    pub fn fault(&self, told: u64) -> Option<ErrorReport> {
        if self.parts.sent.get(self.at).is_some_and(|sent| told > *sent) {
            // In one row alone PostgreSQL allows them.
            let text = "set-returning functions are not allowed in VALUES";
            return Some(ErrorReport::error(sqlstate::FEATURE_NOT_SUPPORTED, text));
        }
        let fault = self.parts.returned.as_ref()?.fault()?;
        let text = format!("the statement writes rows of several shards, and its RETURNING cannot be answered: {fault}");
        Some(ErrorReport::error(sqlstate::FEATURE_NOT_SUPPORTED, text))
    }

    /// The shard that tells the time of the transaction, if the statement begins that: the last one, with other tables beside the spread ones.
    pub fn tells_time(&self) -> Option<u16> {
        self.shards.last().copied().filter(|_| self.begins)
    }

    /// The shard whose turn it is.
    pub fn shard(&self) -> u16 {
        self.shards.get(self.at).copied().unwrap_or(0)
    }

    /// A server has carried the statement out.
    pub fn done(&mut self) {
        if self.step != WriteStep::Sent {
            return;
        }
        let told = std::mem::take(&mut self.told);
        match self.answers {
            PartAnswers::Sum => self.rows = self.rows.saturating_add(told),
            PartAnswers::Equal(Some(before)) if before != told => {
                self.step = WriteStep::Failed(copies_differ(told, before));
                return;
            }
            PartAnswers::Equal(_) => self.answers = PartAnswers::Equal(Some(told)),
        }
        let next = match &mut self.parts.messages {
            PartMessages::Copy(copy) => copy.next_place(),
            PartMessages::Same(_) | PartMessages::Own(_) => Some(self.at + 1),
        };
        match next {
            Some(at) => self.turn_to(at, if at + 1 < self.shards.len() { WriteStep::Due } else { WriteStep::Last }),
            None => self.step = WriteStep::Takes,
        }
    }

    /// The next step, and whose turn it is.
    pub fn turn_to(&mut self, at: usize, step: WriteStep) {
        (self.at, self.step) = (at, step);
    }

    /// The server connection is lost, and nothing of the client's with it: another one gets the message.
    pub fn undone(&mut self) {
        if self.step == WriteStep::Sent {
            (self.step, self.told) = (WriteStep::Due, 0);
            if let Some((returned, at)) = self.returned_now() {
                returned.forget(at);
            }
        }
    }

    pub fn is_due(&self) -> bool {
        self.step == WriteStep::Due
    }

    /// True if the client's answer ends Weir's transaction.
    pub fn is_over(&self) -> bool {
        let is_told = matches!(self.step, WriteStep::Last | WriteStep::Committed | WriteStep::NotCommitted(_));
        self.owner == TransactionOwner::Weir && is_told
    }

    /// True while the statement goes to a server that is not the last one.
    pub fn is_ahead(&self) -> bool {
        matches!(self.step, WriteStep::Due | WriteStep::Sent)
    }
}

/// The error of a write to a reference table for which two shards tell other numbers of rows.
#[cold]
pub fn copies_differ(told: u64, before: u64) -> ErrorReport {
    let text = format!("the copies of a reference table differ: one shard tells {told} rows for the statement, another {before}");
    ErrorReport::error(sqlstate::DATA_CORRUPTED, text).hint("Look at weir shard check.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sharding::returned_rows::RowOrder;

    fn parts(messages: PartMessages) -> SpreadParts {
        SpreadParts { messages, sent: Box::new([2, 3]), returned: Some(ReturnedRows::new(RowOrder::ByShard, 2)) }
    }

    #[test]
    fn a_server_cannot_insert_more_rows_than_it_has() {
        let mut write = SpreadWrite::new(&[1, 0], TransactionOwner::Weir, parts(PartMessages::Same(Box::default())));
        for (at, told, is_fault) in [(0, 2, false), (0, 1, false), (0, 3, true), (1, 3, false), (1, 4, true)] {
            write.at = at;
            assert_eq!(write.fault(told).is_some(), is_fault, "{at} {told}");
        }
    }

    #[test]
    fn each_server_may_have_a_message_of_its_own() {
        let own = [&b"one"[..], b"two"].map(Box::from);
        let mut write = SpreadWrite::new(&[1, 0], TransactionOwner::Weir, parts(PartMessages::Own(Box::new(own))));
        assert_eq!((write.message(), write.last_message()), (&b"one"[..], Some(&b"two"[..])));
        write.step = WriteStep::Sent;
        write.done();
        assert_eq!((write.message(), &write.step), (&b"two"[..], &WriteStep::Last));
    }

    #[test]
    fn copies_that_tell_other_numbers_of_rows_fail_the_statement() {
        for (told, fails) in [([4, 4], false), ([4, 5], true), ([0, 1], true)] {
            let mut write = SpreadWrite::new(&[1, 2, 0], TransactionOwner::Client, parts(PartMessages::Same(Box::default())));
            write.answers = PartAnswers::Equal(None);
            for told in told {
                (write.step, write.told) = (WriteStep::Sent, told);
                write.done();
            }
            assert_eq!((matches!(write.step, WriteStep::Failed(_)), write.rows), (fails, 0), "{told:?}");
        }
    }

    #[test]
    fn servers_have_their_turns_and_the_last_one_gets_the_clients_message() {
        let mut write = SpreadWrite::new(&[1, 2, 0], TransactionOwner::Client, parts(PartMessages::Same(Box::default())));
        for (shard, is_due) in [(1, true), (2, true), (0, false)] {
            assert_eq!((write.shard(), write.is_due()), (shard, is_due));
            if is_due {
                (write.step, write.told) = (WriteStep::Sent, 50);
                write.undone();
                assert!(write.is_due(), "it goes again after a loss");
                (write.step, write.told) = (WriteStep::Sent, 4);
                write.done();
            }
        }
        assert_eq!((&write.step, write.rows), (&WriteStep::Last, 8));
        write.step = WriteStep::Failed(ErrorReport::in_failed_transaction());
        write.done();
        assert!(matches!(write.step, WriteStep::Failed(_)), "a failure stays");
    }
}
