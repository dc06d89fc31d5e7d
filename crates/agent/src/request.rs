//! The requests of Weir to an agent.

use crate::text::{ConninfoKeyword, DatabaseName, Host, SlotName, UserName, WordValue};

/// Most words beside the place of the primary.
pub const WORDS_MAX: usize = 8;

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentRequest {
    /// Answered at once, also while a job is under way.
    Status,
    Order(AgentOrder),
}

/// Number of an order, chosen by dice. The same number again asks for the outcome of the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OrderId(pub u64);

/// Something to be done. One is done at a time; it goes on if the connection is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentOrder {
    pub id: OrderId,
    pub deed: OrderAction,
}

/// The deeds. One that is done already is no error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderAction {
    /// Ends the server and waits until its process is gone. `started_at`: only the server that began then (seconds since 1970, as in
    /// `Postmaster`); another one is left alone, and the failure is `OtherServer`.
    Stop { mode: ServerStopMode, limit_ms: u32, started_at: Option<u64> },
    /// Starts the server and waits until it takes connections, as a standby too.
    Start { limit_ms: u32 },
    /// Stops the standby that began then (as in `Stop`) and starts it: one order, so that nobody who dies leaves it stopped. It is stopped as by a crash
    /// if it takes half of the time to stop in order. One that was started since is not stopped.
    Restart { limit_ms: u32, started_at: u64 },
    /// Makes the stopped server a standby: `standby.signal`, `primary_conninfo`, `primary_slot_name`. Weir's fence is taken away.
    Follow(StandbyUpstream),
    /// Brings the stopped server back to where its history left that of the source.
    Rewind(RewindAction),
    /// Replaces the files of the stopped server by a copy of the source's.
    BaseBackup(BaseBackup),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerStopMode {
    /// Sessions end, a checkpoint is written, and all log is sent to the standbys.
    Fast,
    /// As a crash: the server recovers when it starts.
    Immediate,
}

/// Where a standby gets its log from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandbyUpstream {
    pub host: Host,
    pub port: u16,
    pub user: UserName,
    /// `None`: the slot that is set stays away, too.
    pub slot: Option<SlotName>,
    /// Other words of `primary_conninfo`, such as `application_name` and Weir's mark. Words that are there already and not named here stay. So
    /// does a mark.
    pub words: Vec<(ConninfoKeyword, WordValue)>,
}

/// A server that is read from. Its password, if it needs one, is in the passfile of the agent's user.
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

/// The slot that keeps the log on the source that is written during a copy. The agent needs no name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogKeeper {
    /// The one that the server uses as a standby afterwards. It holds log since before the copy began.
    Standby,
    /// One of the copy's own, which ends with it.
    Copy,
}

/// The checkpoint with which a copy begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupCheckpoint {
    /// At once.
    Fast,
    /// Spread over the time that the source has set.
    Spread,
}
