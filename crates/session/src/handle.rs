//! A session as its worker sees it: for cancel requests, limits on time, and the end.

use crate::conn::ConnStatus;
use crate::fault::ErrorReport;
use crate::lazy_begin::transaction_place::HeldLimits;
use crate::loss::PossibleCommit;
use crate::status::SessionStatus;
use crate::task::{TaskId, Us};
use crate::time_limits::UnfinishedInput;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use weir_catalog::rule::RoutingRule;

/// Since when a session does what it does; see `timing`.
pub struct SessionClock {
    /// Begin of the statement that runs.
    pub busy_since: Cell<Option<Us>>,
    /// Since when the client waits for a server's answer without a statement that runs: to a Parse, or to something of ours ahead of
    /// its message.
    pub asked_since: Cell<Option<Us>>,
    /// Begin of the transaction that is open.
    pub transaction_since: Cell<Option<Us>>,
    /// The server's own limits on that, as long as no server knows of it.
    pub held: Cell<HeldLimits>,
    /// The session's own limit on its idleness, in milliseconds.
    pub idle_ms: Cell<Option<u64>>,
    /// End of the last statement.
    pub ready_at: Cell<Us>,
    /// The message or series that the client has left unfinished, and since when: see `Session::unfinished`.
    pub unfinished: Cell<(UnfinishedInput, Us)>,
    /// Wait for a server connection before the statement that runs, in microseconds.
    pub(crate) waited_us: Cell<u64>,
    /// The rule that chose the node of the server connection in use.
    pub rule: Cell<RoutingRule>,
    /// The node at which a read of its is counted as under way.
    pub flight: Cell<Option<u16>>,
    /// Text of the statement that runs, if slow ones are logged.
    pub(crate) text: RefCell<String>,
}

impl SessionClock {
    pub fn new(now: Us) -> SessionClock {
        SessionClock {
            busy_since: Cell::new(None),
            asked_since: Cell::new(None),
            transaction_since: Cell::new(None),
            held: Cell::default(),
            idle_ms: Cell::new(None),
            ready_at: Cell::new(now),
            unfinished: Cell::new((UnfinishedInput::Nothing, now)),
            waited_us: Cell::new(0),
            rule: Cell::new(RoutingRule::Read),
            flight: Cell::new(None),
            text: RefCell::default(),
        }
    }
}

/// The end of a statement that took too long.
#[derive(Debug, Default)]
pub enum OverdueStatement {
    #[default]
    No,
    /// The server was asked to cancel it; its client is told this instead of what the server says then.
    Cancelling(Box<ErrorReport>),
    /// The client was told; the server is not ready for the next one yet.
    Told,
    /// It may commit a transaction: it is never cancelled, since it may wait for a standby, and the server would then say that it is committed
    /// when no standby has it.
    Commits,
    /// It took too long, and the primary is asked whether it waits for a standby.
    Asking(PossibleCommit),
    /// It does not, or the primary does not say.
    Asked(PossibleCommit),
    /// It does: no limit of ours ends it.
    Never,
}

/// See the module.
pub struct SessionHandle {
    pub status: Arc<SessionStatus>,
    pub task: Cell<TaskId>,
    /// The server connection in use now.
    pub conn: RefCell<Option<Arc<ConnStatus>>>,
    /// Cancel requests on their way to the server: the server connection must not go to another client meanwhile.
    pub cancels: Cell<u32>,
    /// A query of the proxy's own runs on the server connection: a cancel request must not hit it.
    pub is_ours: Cell<bool>,
    /// A cancel request came meanwhile.
    pub cancel_waits: Cell<bool>,
    /// The wait for a server connection was cancelled.
    pub wait_cancelled: Cell<bool>,
    /// Last time the client sent something.
    pub active_at: Cell<Us>,
    pub clock: SessionClock,
    /// The limit on the time of the statement that runs.
    pub overdue: RefCell<OverdueStatement>,
    /// The session is to end, with this word to its client.
    pub final_error: RefCell<Option<Box<ErrorReport>>>,
}

impl SessionHandle {
    /// Of a session that has just been let in; `task`: the one that serves it.
    pub fn new(status: Arc<SessionStatus>, task: TaskId, now: Us) -> SessionHandle {
        SessionHandle {
            status,
            task: Cell::new(task),
            conn: RefCell::default(),
            cancels: Cell::new(0),
            is_ours: Cell::new(false),
            cancel_waits: Cell::new(false),
            wait_cancelled: Cell::new(false),
            active_at: Cell::new(now),
            clock: SessionClock::new(now),
            overdue: RefCell::default(),
            final_error: RefCell::default(),
        }
    }
}
