//! Requests to an agent.

use crate::text::{ConninfoKeyword, DatabaseName, Host, SlotName, UserName, WordValue};

pub const WORDS_MAX: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentRequest {
    /// Answered at once, even during a job.
    Status,
    Order(AgentOrder),
}

/// A random number. Its repetition asks for the same order's outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OrderId(pub u64);

/// One order is done at a time, and survives the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentOrder {
    pub id: OrderId,
    pub deed: OrderAction,
}

/// Actions; one already done is no error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderAction {
    /// Waits for the server's process to end. `started_at`: only the server started then (as in `Postmaster`), else
    /// `OtherServer`.
    Stop { mode: ServerStopMode, limit_ms: u32, started_at: Option<u64> },
    /// Starts the server and waits until it accepts connections, also as a standby.
    Start { limit_ms: u32 },
    /// Restarts the standby started then (as in `Stop`): one order, so that a dead client leaves none stopped. Stops immediately
    /// after half of the time. A server started since is not stopped.
    Restart { limit_ms: u32, started_at: u64 },
    /// Makes the stopped server a standby: `standby.signal`, `primary_conninfo`, `primary_slot_name`. Removes Weir's fence.
    Follow(StandbyUpstream),
    /// Rewinds to where its history left the source's.
    Rewind(RewindAction),
    /// Replaces the files by a copy.
    BaseBackup(BaseBackup),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerStopMode {
    /// Ends sessions, writes a checkpoint, sends all WAL to standbys.
    Fast,
    /// As a crash: the server recovers when it starts.
    Immediate,
}

/// WAL source of a standby.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandbyUpstream {
    pub host: Host,
    pub port: u16,
    pub user: UserName,
    /// `None`: removes the slot setting.
    pub slot: Option<SlotName>,
    /// Other words of `primary_conninfo`, such as Weir's mark. Present words not named stay.
    pub words: Vec<(ConninfoKeyword, WordValue)>,
}

/// A server to read from. The password, if any, is in the passfile of the agent's user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceServer {
    pub host: Host,
    pub port: u16,
    pub user: UserName,
    pub dbname: DatabaseName,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RewindAction {
    pub source: SourceServer,
    pub limit_ms: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseBackup {
    pub source: SourceServer,
    pub log_keeper: LogKeeper,
    pub checkpoint: BackupCheckpoint,
    pub limit_ms: u32,
}

/// The slot that keeps WAL on the source during a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogKeeper {
    /// The slot of the later standby, which holds WAL since before the copy.
    Standby,
    /// A temporary slot of the copy.
    Copy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupCheckpoint {
    Fast,
    /// Spread as the source is configured.
    Spread,
}
