//! The parts of a transaction on several shards.

use crate::conn::Conn;
use crate::statements::Statement;
use crate::upstream::UpstreamState;
use std::rc::Rc;
use weir_failover::commit_outcome::TransactionNumber;

pub struct Participants {
    /// Connections to the shards that the session does not use now.
    parked: Vec<(Box<Conn>, Box<UpstreamState>)>,
    /// Connections over which parts were prepared. Connections move between their owners as boxes.
    #[expect(clippy::vec_box, reason = "unboxed and boxed again, each would be copied twice")]
    prepared: Vec<Box<Conn>>,
    /// The shard where the transaction began, whose server tells its time.
    pub(crate) first: u16,
    pub(crate) begin: Rc<Statement>,
    pub(crate) phase: CommitPhase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitPhase {
    Open,
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

impl Participants {
    pub fn new(first: u16, begin: Rc<Statement>) -> Participants {
        Participants { parked: Vec::new(), prepared: Vec::new(), first, begin, phase: CommitPhase::Open }
    }

    pub fn park(&mut self, conn: Box<Conn>, upstream: Box<UpstreamState>) {
        self.parked.push((conn, upstream));
    }

    pub fn has(&self, shard: u16) -> bool {
        self.parked.iter().any(|(conn, _)| conn.status.address.shard == shard)
    }

    /// The shard that was parked first.
    pub fn oldest(&self) -> Option<u16> {
        self.parked.first().map(|(conn, _)| conn.status.address.shard)
    }

    pub fn unpark(&mut self, shard: u16) -> Option<(Box<Conn>, Box<UpstreamState>)> {
        let at = self.parked.iter().position(|(conn, _)| conn.status.address.shard == shard)?;
        Some(self.parked.remove(at))
    }

    /// The connections whose transactions are open.
    pub fn take_parked(&mut self) -> Vec<Box<Conn>> {
        std::mem::take(&mut self.parked).into_iter().map(|(conn, _)| conn).collect()
    }

    /// The connections over which parts were prepared.
    pub fn take_prepared(&mut self) -> Vec<Box<Conn>> {
        std::mem::take(&mut self.prepared)
    }

    pub fn note_prepared(&mut self, decides: TransactionNumber, conns: Vec<Box<Conn>>) {
        (self.phase, self.prepared) = (CommitPhase::Prepared(decides), conns);
    }
}
