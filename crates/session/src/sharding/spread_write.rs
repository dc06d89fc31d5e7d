//! The state of an UPDATE or DELETE that each shard of its table carries out by itself. `write_steps` carries it out.

use crate::fault::ErrorReport;
use crate::sharding::copy_parts::CopyParts;

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
    pub messages: PartMessages,
    /// True if the client's message is Weir's copy, which goes on with the statement.
    pub is_again: bool,
}

/// Messages of a statement for the servers of its shards.
#[derive(Debug)]
pub enum PartMessages {
    /// For all servers but the last one, which gets the client's own.
    Same(Box<[u8]>),
    /// For each server, the last one included.
    Own(Box<[Box<[u8]>]>),
    /// Rows that the client sends behind its statement.
    Copy(Box<CopyParts>),
}

impl SpreadWrite {
    pub fn new(shards: &[u16], owner: TransactionOwner, messages: PartMessages) -> SpreadWrite {
        let step = if shards.len() > 1 { WriteStep::Due } else { WriteStep::Last };
        let is_again = matches!(messages, PartMessages::Copy(_));
        SpreadWrite { shards: shards.into(), at: 0, rows: 0, told: 0, owner, step, messages, is_again }
    }

    /// For the server whose turn it is, other than the last one.
    pub fn message(&self) -> &[u8] {
        match &self.messages {
            PartMessages::Same(message) => message,
            PartMessages::Own(messages) => messages.get(self.at).map_or(&[], |message| message),
            PartMessages::Copy(copy) => copy.message(),
        }
    }

    /// The message for the last server, in place of the client's.
    pub fn last_message(&self) -> Option<&[u8]> {
        match &self.messages {
            PartMessages::Same(_) => None,
            PartMessages::Own(messages) => messages.last().map(|message| &**message),
            PartMessages::Copy(copy) => Some(copy.message()),
        }
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
        self.rows = self.rows.saturating_add(std::mem::take(&mut self.told));
        let next = match &mut self.messages {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_may_have_a_message_of_its_own() {
        let own = [&b"one"[..], b"two"].map(Box::from);
        let mut write = SpreadWrite::new(&[1, 0], TransactionOwner::Weir, PartMessages::Own(Box::new(own)));
        assert_eq!((write.message(), write.last_message()), (&b"one"[..], Some(&b"two"[..])));
        write.step = WriteStep::Sent;
        write.done();
        assert_eq!((write.message(), &write.step), (&b"two"[..], &WriteStep::Last));
    }

    #[test]
    fn servers_have_their_turns_and_the_last_one_gets_the_clients_message() {
        let mut write = SpreadWrite::new(&[1, 2, 0], TransactionOwner::Client, PartMessages::Same(Box::default()));
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
