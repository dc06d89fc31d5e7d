//! A session as its worker sees it.

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

/// Times of a session; see `timing`.
pub struct SessionClock {
    pub busy_since: Cell<Option<Us>>,
    /// Start of a wait for a server without a running statement: for a Parse, or Weir's own query.
    pub asked_since: Cell<Option<Us>>,
    pub transaction_since: Cell<Option<Us>>,
    /// Server limits on a transaction not yet known to a server.
    pub held: Cell<HeldLimits>,
    pub idle_ms: Cell<Option<u64>>,
    pub ready_at: Cell<Us>,
    /// See `Session::unfinished`.
    pub unfinished: Cell<(UnfinishedInput, Us)>,
    /// Wait for a server connection, in microseconds.
    pub(crate) waited_us: Cell<u64>,
    pub rule: Cell<RoutingRule>,
    /// Node that counts a read as under way.
    pub flight: Cell<Option<u16>>,
    /// If slow statements are logged.
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

/// State of a statement over its time limit.
#[derive(Debug, Default)]
pub enum OverdueStatement {
    #[default]
    No,
    /// The client gets this error in place of the server's.
    Cancelling(Box<ErrorReport>),
    /// The server is not ready yet.
    Told,
    /// Never cancelled: a server that waits for a standby would report a commit that no standby has.
    Commits,
    /// The primary is queried whether it waits for a standby.
    Asking(PossibleCommit),
    /// No wait, or the primary does not say.
    Asked(PossibleCommit),
    /// Waits for a standby: not limited by Weir.
    Never,
}

pub struct SessionHandle {
    pub status: Arc<SessionStatus>,
    pub task: Cell<TaskId>,
    pub conn: RefCell<Option<Arc<ConnStatus>>>,
    /// While a cancel request is on its way, the connection must not pass to another client.
    pub cancels: Cell<u32>,
    /// True while Weir's own query runs: a cancel request must not hit it.
    pub is_ours: Cell<bool>,
    /// A cancel request came meanwhile.
    pub cancel_waits: Cell<bool>,
    /// The statement that waits for a server connection is cancelled. Taken by whoever ends the wait.
    pub wait_cancelled: Cell<bool>,
    pub active_at: Cell<Us>,
    pub clock: SessionClock,
    pub overdue: RefCell<OverdueStatement>,
    pub final_error: RefCell<Option<Box<ErrorReport>>>,
}

impl SessionHandle {
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
