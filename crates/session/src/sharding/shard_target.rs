//! Where a session's next statement belongs, and where its server connection leads.

use crate::sharding::gathered_statement::GatheredStatement;
use crate::sharding::known_sharding::EngineLack;
use crate::sharding::savepoint_stack::Savepoints;
use crate::sharding::spread_write::{SpreadWrite, WriteStep};
use weir_catalog::rule::RoutingRule;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShardTarget {
    /// The statement names nothing of the database: any server will do.
    #[default]
    Any,
    /// Shard 0.
    Cluster,
    Shard(u16),
    /// The engine, which reads rows of several shards.
    Engine,
}

/// Stands for the engine among the numbers of shards.
pub const ENGINE: u16 = u16::MAX;

/// Stands for no server: the end of a look at the database is awaited (`look_wait`).
pub const LOOK: u16 = u16::MAX - 1;

impl ShardTarget {
    pub const fn of(shard: u16) -> ShardTarget {
        if shard == 0 { ShardTarget::Cluster } else { ShardTarget::Shard(shard) }
    }

    /// The shard, or `ENGINE`, whose server is needed where the session has none.
    pub const fn number(self) -> u16 {
        match self {
            ShardTarget::Any | ShardTarget::Cluster => 0,
            ShardTarget::Shard(shard) => shard,
            ShardTarget::Engine => ENGINE,
        }
    }

    /// The rule of a statement that goes to `number`, where that is not 0.
    pub const fn rule(self) -> RoutingRule {
        match self {
            ShardTarget::Engine => RoutingRule::Engine,
            ShardTarget::Any | ShardTarget::Cluster | ShardTarget::Shard(_) => RoutingRule::OneShard,
        }
    }
}

/// How a statement in a transaction that has not begun on a server runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TransactionPart {
    /// It may begin the transaction.
    #[default]
    Within,
    /// It only reads, and may begin the transaction.
    Reads,
    /// It only reads, under a snapshot of its own: the transaction begins with another one.
    Outside,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardAim {
    pub target: ShardTarget,
    pub part: TransactionPart,
}

impl From<ShardTarget> for ShardAim {
    fn from(target: ShardTarget) -> ShardAim {
        ShardAim { target, part: TransactionPart::Within }
    }
}

/// Snapshots of all shards for a statement of the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShardSnapshots {
    #[default]
    None,
    /// The program takes them before the statement is sent.
    Wanted,
    /// The engine's implicit transaction has them, for one statement.
    Taken,
    /// The engine's transaction block has them, until it ends.
    OfBlock,
    /// The engine has the rows of its next statement, some of them by the session's own transaction on their shards.
    Gathered,
}

/// A transaction of Weir's own for the statements up to a client's Sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BatchStep {
    #[default]
    None,
    Open,
    /// All statements are answered: the commit is under way.
    Commits,
    /// Committed, or rolled back with its error told. The end of the client's messages is not told yet.
    Ended,
}

/// Statements that were bound behind the last Sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum BoundStatements {
    #[default]
    Nothing,
    /// They only read, each under a snapshot of its own.
    Reads,
    /// Also those about the session alone, such as SET.
    Session,
    Any,
}

/// A wait of the session's next statement for a look. It is small, as each session has room for one.
#[derive(Clone, Copy, Debug)]
pub struct LookWait {
    pub lack: EngineLack,
    /// The last 8 bits of Weir's clock in seconds.
    pub since_s: u8,
}

#[derive(Default)]
pub struct SessionSharding {
    /// Of the next statement.
    aim: ShardAim,
    /// Shard of the session's server connection, if it has one, or `ENGINE`.
    here: u16,
    /// True if something was executed behind the last Sync.
    has_executed: bool,
    bound: BoundStatements,
    /// True if the open transaction may have left something on its server connection that another one lacks.
    is_tied: bool,
    /// True if the open transaction has a statement in the engine.
    has_engine_part: bool,
    snapshots: ShardSnapshots,
    /// A statement that all shards of its table carry out, until its client has the end of the answer.
    pub(crate) write: Option<Box<SpreadWrite>>,
    /// Statements of several shards up to a Sync.
    pub(crate) batch: BatchStep,
    /// Of the open transaction.
    pub(crate) savepoints: Option<Box<Savepoints>>,
    /// A read of several shards within the open transaction, until it is answered.
    pub(crate) gathered: Option<Box<GatheredStatement>>,
    /// The next statement waits for a look.
    pub(crate) look_wait: Option<LookWait>,
}

impl SessionSharding {
    /// Where the next statement belongs.
    #[inline]
    pub fn target(&self) -> ShardTarget {
        self.aim.target
    }

    pub fn here(&self) -> u16 {
        self.here
    }

    /// The rule of a statement that goes to its target, where that is another server than the cluster's.
    #[inline]
    pub fn rule(&self) -> RoutingRule {
        if self.write.is_some() { RoutingRule::AllShards } else { self.aim.target.rule() }
    }

    #[inline]
    pub fn has_write(&self) -> bool {
        self.write.is_some()
    }

    /// True if answers of servers are looked at.
    #[inline]
    pub fn is_watching(&self) -> bool {
        self.write.is_some() || self.savepoints.as_ref().is_some_and(|savepoints| savepoints.awaits_tag())
    }

    /// True if the session's server connection is to get Weir's message of such a statement.
    #[inline]
    pub fn is_write_due(&self) -> bool {
        self.write.as_ref().is_some_and(|write| write.is_due())
    }

    /// True if the program must commit a transaction of Weir's own.
    pub fn commits_own(&self) -> bool {
        self.batch == BatchStep::Commits || self.write.as_ref().is_some_and(|write| write.step == WriteStep::Commits)
    }

    /// The statements up to the client's next Sync are a transaction of Weir's own.
    pub fn open_batch(&mut self) {
        self.batch = BatchStep::Open;
    }

    /// The commit has ended. True if it was that of such a transaction.
    pub fn end_batch(&mut self) -> bool {
        let is_its = self.batch == BatchStep::Commits;
        if is_its {
            self.batch = BatchStep::Ended;
        }
        is_its
    }

    /// True if the statements since the last Sync are in a transaction of Weir's own.
    #[inline]
    pub fn has_batch(&self) -> bool {
        self.batch != BatchStep::None
    }

    /// The session goes on over another server connection, whose transaction begins anew.
    pub fn write_undone(&mut self) {
        self.write.iter_mut().for_each(|write| write.undone());
    }

    /// True if such a statement has servers before it other than the last one: it counts with that one.
    pub fn is_write_ahead(&self) -> bool {
        self.write.as_ref().is_some_and(|write| write.is_ahead())
    }

    /// True if the session's server connection is none of the next statement's.
    #[inline]
    pub fn is_elsewhere(&self) -> bool {
        match self.aim.target {
            // The engine's database is another one.
            ShardTarget::Any => self.here == ENGINE,
            target => target.number() != self.here,
        }
    }

    pub fn set(&mut self, aim: ShardAim) {
        (self.aim, self.look_wait) = (aim, None);
    }

    /// True if the next statement must not begin the transaction that it is in.
    #[inline]
    pub fn is_outside(&self) -> bool {
        self.aim.part == TransactionPart::Outside
    }

    pub fn arrive(&mut self, shard: u16) {
        self.here = shard;
        self.note_synced();
        self.snapshots = ShardSnapshots::None;
        self.savepoints.iter_mut().for_each(|savepoints| savepoints.arrive());
    }

    /// True if the next statement is the engine's, and its snapshots are not taken yet.
    #[inline]
    pub fn lacks_snapshots(&self) -> bool {
        self.aim.target == ShardTarget::Engine && matches!(self.snapshots, ShardSnapshots::None | ShardSnapshots::Wanted)
    }

    pub fn snapshots(&self) -> ShardSnapshots {
        self.snapshots
    }

    pub fn set_snapshots(&mut self, snapshots: ShardSnapshots) {
        self.snapshots = snapshots;
    }

    #[inline]
    pub fn note_executed(&mut self) {
        self.has_executed = true;
    }

    /// Notes the statement that was aimed: its Bind is sent. `is_of_session`: it is about the session alone.
    #[inline]
    pub fn note_bound(&mut self, is_of_session: bool) {
        let now = match self.aim.part {
            TransactionPart::Within if is_of_session => BoundStatements::Session,
            TransactionPart::Within => BoundStatements::Any,
            TransactionPart::Reads | TransactionPart::Outside => BoundStatements::Reads,
        };
        self.bound = self.bound.max(now);
    }

    /// Statements that were bound behind the last Sync.
    #[inline]
    pub fn bound(&self) -> BoundStatements {
        self.bound
    }

    #[inline]
    pub fn note_synced(&mut self) {
        (self.has_executed, self.bound) = (false, BoundStatements::Nothing);
    }

    #[inline]
    pub fn note_ready(&mut self, is_outside_of_blocks: bool) {
        self.aim = ShardAim::default();
        match self.snapshots {
            ShardSnapshots::OfBlock if !is_outside_of_blocks => {}
            ShardSnapshots::Taken | ShardSnapshots::OfBlock => self.snapshots = ShardSnapshots::None,
            ShardSnapshots::Gathered => (self.snapshots, self.gathered) = (ShardSnapshots::None, None),
            ShardSnapshots::None | ShardSnapshots::Wanted => {}
        }
    }

    /// Notes a statement of the open transaction, or the first of one. True if one before ties the transaction.
    pub fn note_tie(&mut self, is_first: bool, ties: bool) -> bool {
        let was_tied = self.is_tied && !is_first;
        self.is_tied = ties || was_tied;
        was_tied
    }

    /// A transaction begins.
    #[inline]
    pub fn begin(&mut self) {
        (self.is_tied, self.has_engine_part, self.savepoints, self.gathered) = (false, false, None, None);
    }

    /// A statement of the open transaction, or one outside of it, is sent.
    #[inline]
    pub fn note_sent(&mut self) {
        self.has_engine_part |= self.here == ENGINE && !self.is_outside();
    }

    /// True if the open transaction has a statement in the engine.
    pub fn has_engine_part(&self) -> bool {
        self.has_engine_part
    }

    /// The statement that was to tie the transaction is refused.
    pub fn untie(&mut self) {
        self.is_tied = false;
    }

    pub fn is_tied(&self) -> bool {
        self.is_tied
    }

    pub fn has_executed(&self) -> bool {
        self.has_executed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_statements_of_the_engine_stay_on_its_connection() {
        const TARGETS: [ShardTarget; 4] = [ShardTarget::Any, ShardTarget::Cluster, ShardTarget::Shard(2), ShardTarget::Engine];
        for (here, expected) in
            [(0, [false, false, true, true]), (2, [false, true, false, true]), (ENGINE, [true, true, true, false])]
        {
            let mut sharding = SessionSharding::default();
            sharding.arrive(here);
            let elsewhere = TARGETS.map(|target| {
                sharding.set(target.into());
                sharding.is_elsewhere()
            });
            assert_eq!(elsewhere, expected, "{here}");
        }
    }
}
