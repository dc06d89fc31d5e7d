//! Whether a statement within a transaction may be answered from memory, and whether what a server says there may be kept.
//!
//! Under READ COMMITTED each statement has a snapshot of its own, so that a transaction that has only read so far is answered as anybody
//! else is: from memory, as long as no server knows of it or the primary runs it. From the first statement on that may do more than read it
//! is on its own, to its end: what it wrote, locked or set it alone must see, and a savepoint may take it back. Which tables those were
//! is not looked at: transactions that write read little from memory before, and nothing wrong afterwards.
//!
//! With REPEATABLE READ and SERIALIZABLE all statements have the snapshot of the first, and nothing is asked or kept.

use crate::transaction::Defaults;
use weir_sql::facts::{Begin, Isolation};

/// How a transaction began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    pub begin: Begin,
    /// What its session begins transactions with, if they do not say.
    pub defaults: Defaults,
}

impl Manner {
    /// Whether each of its statements has a snapshot of its own. Not if nobody knows.
    fn reads_committed(&self) -> bool {
        let isolation = if self.begin.isolation == Isolation::Unset { self.defaults.isolation } else { self.begin.isolation };
        matches!(isolation, Isolation::ReadUncommitted | Isolation::ReadCommitted)
    }

    fn only_reads(&self) -> bool {
        self.begin.read_only || (self.defaults.read_only && !self.begin.read_write)
    }
}

/// A transaction that a server runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Block {
    /// It may have done something, or nothing is known of it.
    #[default]
    Unknown,
    /// On the primary, under READ COMMITTED, and it has only read.
    Reads,
}

/// What a statement does that is sent in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// It reads, leaves nothing behind and takes no lock that it was not told to, so that nothing after it is answered otherwise.
    Reads,
    /// More, or nobody knows.
    Acts,
}

/// Where a transaction runs that begins on a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    Primary,
    /// It goes on showing what it shows now, however much newer an answer from memory was.
    Standby,
}

impl Block {
    /// A transaction begins on a server. One that the server ends when it hears nothing for a while must not be spoken for.
    pub fn begins(manner: &Manner, ground: Ground) -> Block {
        let is_heard_of = manner.defaults.limits.idle_ms == 0;
        if manner.reads_committed() && ground == Ground::Primary && is_heard_of { Block::Reads } else { Block::Unknown }
    }

    /// A statement is about to be sent in it.
    #[inline]
    pub fn after(self, deed: Deed) -> Block {
        match deed {
            Deed::Reads => self,
            Deed::Acts => Block::Unknown,
        }
    }
}

/// Where a session stands when its next statement comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stand {
    Outside,
    /// In a transaction that no server knows of. `sees_on`: its session's reads go on seeing what it has seen, also on another server.
    Held {
        manner: Manner,
        sees_on: bool,
    },
    Runs(Block),
    /// In one that has failed, or of which something is still under way.
    Other,
}

impl Stand {
    /// Whether its statement may be answered from memory, and what a server says may be kept.
    pub fn may_ask(&self) -> bool {
        match self {
            Stand::Outside => true,
            // One that only reads may begin on a standby with its next statement, and must not go back in time then.
            Stand::Held { manner, sees_on } => manner.reads_committed() && (*sees_on || !manner.only_reads()),
            Stand::Runs(block) => *block == Block::Reads,
            Stand::Other => false,
        }
    }
}

#[cfg(test)]
mod tests;
