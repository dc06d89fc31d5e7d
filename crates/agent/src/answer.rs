//! Answers of an agent.

use crate::request::{OrderAction, OrderId};
use crate::text::{SlotName, WordValue};
use std::fmt;

/// An order gets any number of `Progress` and then one of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentAnswer {
    Status(Box<AgentStatus>),
    Progress(OrderProgress),
    /// Done now or before.
    Done,
    Failed(OrderFailure),
    /// Another order is under way.
    Busy(JobView),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentStatus {
    pub server: ServerStatus,
    pub data: DataDirectoryState,
    /// `None`: no readable control file.
    pub control: Option<ControlFile>,
    /// True if the server is, or will start as, a standby.
    pub has_standby_signal: bool,
    /// Weir's mark in `primary_conninfo`.
    pub mark: Option<WordValue>,
    /// `primary_slot_name` of a stopped server with whole data.
    pub slot: Option<SlotName>,
    pub job: Option<JobView>,
    pub last: Option<FinishedOrder>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerStatus {
    Stopped,
    Running(Postmaster),
}

/// A running server by its `postmaster.pid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Postmaster {
    pub pid: u32,
    /// Seconds since 1970.
    pub started_at: u64,
    pub port: u16,
    pub step: PostmasterState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostmasterState {
    Starting,
    Stopping,
    /// Accepts connections, also as a standby.
    Ready,
    /// A standby without connections (`hot_standby` is off).
    Standby,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataDirectoryState {
    Whole,
    /// A rewind was interrupted. The server is not started before a copy.
    HalfRewound,
    Absent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlFile {
    pub system_identifier: u64,
    pub state: ClusterState,
    pub major: u16,
    /// Timeline of the latest checkpoint.
    pub timeline: u32,
    /// Position of the latest checkpoint; after a clean stop the last record.
    pub checkpoint: u64,
    pub redo: u64,
    /// Position to which a standby must replay.
    pub recovery_end: u64,
    pub recovery_timeline: u32,
    /// True with `wal_log_hints` or checksums, which a rewind needs.
    pub can_rewind: bool,
}

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

/// Progress of an order; zeros if unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderProgress {
    pub done_bytes: u64,
    pub total_bytes: u64,
}

/// Kept until the next order is done or the agent ends.
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderFailure {
    pub kind: OrderFailureKind,
    /// Log text: printable, one line, at most `FAILURE_BYTES_MAX`.
    pub text: String,
}

pub const FAILURE_BYTES_MAX: usize = 2000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderFailureKind {
    Running,
    /// `Stop`: another server than the one meant runs.
    OtherServer,
    /// Time limit exceeded. A begun stop or start may still complete.
    Late,
    /// Source unreachable or refuses. Nothing changed.
    Source,
    /// Source of another cluster or major version. Nothing changed.
    OtherCluster,
    /// A copy is possible.
    CannotRewind,
    /// Tablespaces, links or a mount point prevent a copy. Nothing changed.
    Layout,
    /// An interrupted rewind: needs a copy.
    HalfRewound,
    Other,
}

impl OrderFailure {
    pub fn new(kind: OrderFailureKind, text: impl AsRef<str>) -> OrderFailure {
        let clean = |c: char| if c.is_control() { ' ' } else { c };
        let mut text: String = text.as_ref().trim().chars().map(clean).collect();
        let end = text.floor_char_boundary(FAILURE_BYTES_MAX);
        text.truncate(end);
        OrderFailure { kind, text }
    }
}
