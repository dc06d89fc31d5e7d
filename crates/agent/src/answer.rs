//! The answers of an agent.

use crate::request::{OrderAction, OrderId};
use crate::text::{SlotName, WordValue};
use std::fmt;

/// One answer. An order is answered by any number of `OrderProgress` and then one of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentAnswer {
    Status(Box<AgentStatus>),
    /// The order goes on.
    Progress(OrderProgress),
    /// The order is done, or was before.
    Done,
    /// The order is not done.
    Failed(OrderFailure),
    /// Another order is under way; this one was not begun.
    Busy(JobView),
}

/// The server, its data and the agent's job at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentStatus {
    pub server: ServerStatus,
    pub data: DataDirectoryState,
    /// `None`: there is no control file, or it cannot be read.
    pub control: Option<ControlFile>,
    /// The server is, or will be when it starts, a standby.
    pub has_standby_signal: bool,
    /// Weir's mark in `primary_conninfo`, as the file has it.
    pub mark: Option<WordValue>,
    /// `primary_slot_name` of a server at rest whose data is whole, whichever of its files sets it.
    pub slot: Option<SlotName>,
    pub job: Option<JobView>,
    pub last: Option<FinishedOrder>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerStatus {
    Stopped,
    Running(Postmaster),
}

/// A server that runs, as its `postmaster.pid` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Postmaster {
    pub pid: u32,
    /// Seconds since 1970.
    pub started_at: u64,
    pub port: u16,
    pub step: PostmasterState,
}

/// How far a server that runs has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostmasterState {
    Starting,
    Stopping,
    /// It takes connections, also as a standby.
    Ready,
    /// It is a standby that takes none (`hot_standby` is off).
    Standby,
    /// The file says something else.
    Unknown,
}

impl PostmasterState {
    pub fn name(self) -> &'static str {
        match self {
            PostmasterState::Starting => "starting",
            PostmasterState::Stopping => "stopping",
            PostmasterState::Ready | PostmasterState::Standby => "takes connections",
            PostmasterState::Unknown => "runs",
        }
    }
}

/// If the files of a server are all of one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataDirectoryState {
    Whole,
    /// A rewind was cut short. The server is not started until a copy was made.
    HalfRewound,
    /// There are none.
    Absent,
}

/// Words of the control file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlFile {
    pub system_identifier: u64,
    pub state: ClusterState,
    /// Major version of PostgreSQL.
    pub major: u16,
    /// Of the latest checkpoint.
    pub timeline: u32,
    /// Where the latest checkpoint is; after a clean stop it is the last record.
    pub checkpoint: u64,
    pub redo: u64,
    /// Of a standby: how far the log must be applied.
    pub recovery_end: u64,
    pub recovery_timeline: u32,
    /// `wal_log_hints` or checksums: without either nothing can be rewound.
    pub can_rewind: bool,
}

/// `Database cluster state` of the control file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterState {
    Starting,
    ShutDown,
    ShutDownInRecovery,
    ShuttingDown,
    CrashRecovery,
    ArchiveRecovery,
    InProduction,
    Unknown,
}

impl ClusterState {
    pub(crate) const ALL: [ClusterState; 8] = [
        ClusterState::Starting,
        ClusterState::ShutDown,
        ClusterState::ShutDownInRecovery,
        ClusterState::ShuttingDown,
        ClusterState::CrashRecovery,
        ClusterState::ArchiveRecovery,
        ClusterState::InProduction,
        ClusterState::Unknown,
    ];

    /// As `pg_controldata` names it.
    pub fn name(self) -> &'static str {
        match self {
            ClusterState::Starting => "starting up",
            ClusterState::ShutDown => "shut down",
            ClusterState::ShutDownInRecovery => "shut down in recovery",
            ClusterState::ShuttingDown => "shutting down",
            ClusterState::CrashRecovery => "in crash recovery",
            ClusterState::ArchiveRecovery => "in archive recovery",
            ClusterState::InProduction => "in production",
            ClusterState::Unknown => "unknown",
        }
    }

    pub(crate) fn of_name(name: &str) -> ClusterState {
        ClusterState::ALL.into_iter().find(|state| state.name() == name).unwrap_or(ClusterState::Unknown)
    }
}

/// Kinds of deeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderKind {
    Stop,
    Start,
    Restart,
    Follow,
    Rewind,
    BaseBackup,
}

impl OrderKind {
    pub fn of(deed: &OrderAction) -> OrderKind {
        match deed {
            OrderAction::Stop { .. } => OrderKind::Stop,
            OrderAction::Start { .. } => OrderKind::Start,
            OrderAction::Restart { .. } => OrderKind::Restart,
            OrderAction::Follow(_) => OrderKind::Follow,
            OrderAction::Rewind(_) => OrderKind::Rewind,
            OrderAction::BaseBackup(_) => OrderKind::BaseBackup,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            OrderKind::Stop => "stop",
            OrderKind::Start => "start",
            OrderKind::Restart => "restart",
            OrderKind::Follow => "follow",
            OrderKind::Rewind => "rewind",
            OrderKind::BaseBackup => "base backup",
        }
    }
}

/// An order under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobView {
    pub id: OrderId,
    pub kind: OrderKind,
    pub since_ms: u64,
    pub progress: OrderProgress,
}

impl fmt::Display for JobView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OrderProgress { done_bytes, total_bytes } = self.progress;
        write!(f, "{} for {} s", self.kind.name(), self.since_ms / 1000)?;
        if total_bytes > 0 { write!(f, ", {} of {} MB", done_bytes >> 20, total_bytes >> 20) } else { Ok(()) }
    }
}

/// How much of an order is done; zeros where nobody can say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderProgress {
    pub done_bytes: u64,
    pub total_bytes: u64,
}

/// The order before: kept until the next one is done, or the agent ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedOrder {
    pub id: OrderId,
    pub kind: OrderKind,
    pub outcome: Outcome,
}

impl fmt::Display for FinishedOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            Ok(()) => write!(f, "{}: done", self.kind.name()),
            Err(failure) => write!(f, "{}: failed: {}", self.kind.name(), failure.text),
        }
    }
}

pub type Outcome = Result<(), OrderFailure>;

/// Why an order is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderFailure {
    pub kind: OrderFailureKind,
    /// For the log: printable, one line, at most `FAILURE_BYTES_MAX`.
    pub text: String,
}

/// Longest text of a failure.
pub const FAILURE_BYTES_MAX: usize = 2000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderFailureKind {
    /// The server runs, and must not for this order.
    Running,
    /// `Stop`: another server runs than the one that was meant.
    OtherServer,
    /// The limit has passed. A stop or start that was begun may still come to its end.
    Late,
    /// The source does not answer, or does not let the agent in. Nothing was changed.
    Source,
    /// The source is of another cluster or major version. Nothing was changed.
    OtherCluster,
    /// This server cannot be rewound to that source; a copy can be made.
    CannotRewind,
    /// The layout of the files allows no copy (tablespaces, links, a mount point). Nothing was changed.
    Layout,
    /// The files are not whole: a rewind was cut short, a copy must be made.
    HalfRewound,
    /// The operating system or a program failed.
    Other,
}

impl OrderFailure {
    /// A failure whose text is made fit for a log.
    pub fn new(kind: OrderFailureKind, text: impl AsRef<str>) -> OrderFailure {
        let clean = |c: char| if c.is_control() { ' ' } else { c };
        let mut text: String = text.as_ref().trim().chars().map(clean).collect();
        let end = text.floor_char_boundary(FAILURE_BYTES_MAX);
        text.truncate(end);
        OrderFailure { kind, text }
    }
}
