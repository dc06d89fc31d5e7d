//! The parts of a transaction on several shards.

use crate::conn::Conn;
use crate::sharding::savepoint_stack::SavepointStack;
use crate::sharding::spread_write::{ChangedPart, SpreadChange};
use crate::statements::Statement;
use crate::upstream::UpstreamState;
use std::rc::Rc;
use weir_failover::commit_outcome::TransactionNumber;

pub struct Participants {
    /// Connections to the shards that the session does not use now.
    parked: Vec<ParkedPart>,
    /// Connections over which parts were prepared. Connections move between their owners as boxes.
    #[expect(clippy::vec_box, reason = "unboxed and boxed again, each would be copied twice")]
    prepared: Vec<Box<Conn>>,
    /// The shard where the transaction began, whose server tells its time.
    pub(crate) first: u16,
    pub(crate) begin: Rc<Statement>,
    pub(crate) phase: CommitPhase,
    /// Definitions of spread tables: in doubt for others until the transaction has ended.
    pub(crate) changes: Vec<SpreadChange>,
}

/// A connection to a shard that the session does not use now.
pub struct ParkedPart {
    pub conn: Box<Conn>,
    pub(crate) upstream: Box<UpstreamState>,
    /// As they were when the session parted from it.
    pub(crate) savepoints: SavepointStack,
}

/// A part without its connection, which is lent.
pub struct LentPart {
    upstream: Box<UpstreamState>,
    savepoints: SavepointStack,
}

impl LentPart {
    /// Takes the connection back.
    pub fn with(self, conn: Box<Conn>) -> ParkedPart {
        ParkedPart { conn, upstream: self.upstream, savepoints: self.savepoints }
    }
}

impl ParkedPart {
    /// Lends the connection, whose transaction stays as it is.
    pub fn lend(self) -> (Box<Conn>, LentPart) {
        (self.conn, LentPart { upstream: self.upstream, savepoints: self.savepoints })
    }

    /// The text that rolls the part back to the savepoint of this number. `None`: nothing ran there since.
    pub fn rollback_text(&self, savepoint: u32) -> Option<String> {
        self.savepoints.rollback_text(savepoint).filter(|_| self.savepoints.worked_since(savepoint))
    }

    pub fn rolled_back(&mut self, savepoint: u32) {
        self.savepoints.rolled_back(savepoint);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitPhase {
    Open,
    /// The client's `ROLLBACK TO` waits until the parked parts are rolled back to the savepoint of this number.
    RollsBackTo(u32),
    /// The client's COMMIT waits until the parked parts are prepared.
    Prepares,
    Prepared(TransactionNumber),
    /// The answer of the server that decides waits until the prepared parts have ended.
    Ends(TransactionNumber, PreparedEnd),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreparedEnd {
    Commit,
    RollBack,
}

impl CommitPhase {
    /// True if the program has something to do.
    pub fn is_doing(self) -> bool {
        match self {
            CommitPhase::Open | CommitPhase::Prepared(_) => false,
            CommitPhase::RollsBackTo(_) | CommitPhase::Prepares | CommitPhase::Ends(..) => true,
        }
    }
}

impl Participants {
    pub fn new(first: u16, begin: Rc<Statement>) -> Participants {
        Participants { parked: Vec::new(), prepared: Vec::new(), first, begin, phase: CommitPhase::Open, changes: Vec::new() }
    }

    pub fn park(&mut self, part: ParkedPart) {
        self.parked.push(part);
    }

    pub fn has(&self, shard: u16) -> bool {
        self.parked.iter().any(|part| part.conn.status.address.shard == shard)
    }

    /// True if the transaction has changed this part of spread tables.
    pub fn has_changed(&self, part: ChangedPart) -> bool {
        self.changes.iter().any(|change| change.part() == part)
    }

    /// True if statements ran on parked connections since the savepoint of this number.
    pub fn worked_since(&self, savepoint: u32) -> bool {
        self.parked.iter().any(|part| part.savepoints.worked_since(savepoint))
    }

    pub fn take_parts(&mut self) -> Vec<ParkedPart> {
        std::mem::take(&mut self.parked)
    }

    pub fn put_parts(&mut self, parts: Vec<ParkedPart>) {
        (self.parked, self.phase) = (parts, CommitPhase::Open);
    }

    /// The shards of the parked connections.
    pub fn shards(&self) -> Vec<u16> {
        self.parked.iter().map(|part| part.conn.status.address.shard).collect()
    }

    /// The shard that was parked first.
    pub fn oldest(&self) -> Option<u16> {
        self.parked.first().map(|part| part.conn.status.address.shard)
    }

    /// The shard that was parked last.
    pub fn newest(&self) -> Option<u16> {
        self.parked.last().map(|part| part.conn.status.address.shard)
    }

    /// True if no other connection than the session's own has a part.
    pub fn is_alone(&self) -> bool {
        self.parked.is_empty() && self.prepared.is_empty()
    }

    pub fn unpark(&mut self, shard: u16) -> Option<ParkedPart> {
        let at = self.parked.iter().position(|part| part.conn.status.address.shard == shard)?;
        Some(self.parked.remove(at))
    }

    /// The connections whose transactions are open.
    pub fn take_parked(&mut self) -> Vec<Box<Conn>> {
        std::mem::take(&mut self.parked).into_iter().map(|part| part.conn).collect()
    }

    /// The connections over which parts were prepared.
    pub fn take_prepared(&mut self) -> Vec<Box<Conn>> {
        std::mem::take(&mut self.prepared)
    }

    pub fn note_prepared(&mut self, decides: TransactionNumber, conns: Vec<Box<Conn>>) {
        (self.phase, self.prepared) = (CommitPhase::Prepared(decides), conns);
    }
}
