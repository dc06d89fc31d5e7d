//! The ports of a session: its questions and its orders to the program around it.
//!
//! [`ProgramServices`] is for all sessions and threads. [`WorkerServices`] is one session's: its task, and its way to server connections.

use crate::catalogs::KnownDatabase;
use crate::checkout::pool_grant::ConnFit;
use crate::conn::Conn;
use crate::session_state::listen::listen_hub::NotificationHub;
use std::borrow::Cow;
use std::fmt::Arguments;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
pub use weir_config::LogLevel as Level;
use weir_config::visibility::Viewer;
use weir_failover::ServerConnEnd;
use weir_failover::cluster::NodeIndex;

pub use crate::task::{NO_TASK, TaskId, Waiter, WorkerId};

/// A reason to ask the nodes for their roles before the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleCheckReason {
    /// A server connection broke.
    ConnectionLost,
    /// A login at a server failed.
    LoginFailed,
    /// A server refused a statement as a standby does, or as one that shuts down.
    StatementRefused,
    /// Somebody waits for a node, and none that would do is up.
    NodeAwaited,
    /// A node says that it is not what it counts as.
    RoleContradicted,
    /// The configuration is another one.
    Reconfigured,
    /// The proxy begins to stop.
    Stopping,
    /// Another node takes writes, or one is out of use.
    Governed,
    /// A look at a server for a failover waits for its login: an answer over a connection that is open tells if the server lives.
    LoginLate,
}

/// How the proxy ends. Source: Pgpool-II `-m` modes, PostgreSQL's signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum ProxyShutdown {
    No,
    /// No new clients; those connected may finish.
    Smart,
    /// Clients are told and disconnected.
    Fast,
    /// At once.
    Immediate,
}

impl ProxyShutdown {
    /// For the log, in PostgreSQL's words.
    pub fn words(self) -> &'static str {
        match self {
            ProxyShutdown::No => "no shutdown request",
            ProxyShutdown::Smart => "received smart shutdown request: clients may finish, and no new ones are let in",
            ProxyShutdown::Fast => "received fast shutdown request: clients are disconnected",
            ProxyShutdown::Immediate => "received immediate shutdown request",
        }
    }
}

/// The cause of a line in the log: fields of `log_line_prefix`.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogOrigin<'a> {
    pub user: &'a str,
    pub database: &'a str,
    pub application: &'a str,
    pub client: &'a str,
    pub session: u32,
}

/// A value of a line's own, beside its text: in JSON only.
#[derive(Clone, Copy, Debug)]
pub enum LogField<'a> {
    Text(&'a str),
    Number(f64),
}

/// Columns and rows of an answer.
pub struct AnswerTable {
    pub columns: Vec<Cow<'static, str>>,
    pub rows: Vec<Vec<String>>,
}

/// A signal to another session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionSignal {
    Terminate,
    Cancel,
}

/// All that sessions of all threads have the program do. Nothing in here waits.
pub trait ProgramServices: Send + Sync {
    fn log(&self, level: Level, who: &LogOrigin<'_>, text: Arguments<'_>, fields: &[(&str, LogField<'_>)]);

    /// Has the nodes asked for their roles.
    fn look(&self, why: RoleCheckReason);

    /// A connection of a session to a server ended without being asked to.
    fn conn_died(&self, node: u16, how: ServerConnEnd);

    /// Has the nodes asked for their positions in the log.
    fn sample(&self);

    /// Has the catalog of a database looked at again: something of it may have changed, or it is to be left.
    fn look_at(&self, database: &Arc<KnownDatabase>);

    /// Has the log of a database taken in from now on.
    fn follow(&self, database: &Arc<KnownDatabase>);

    fn stop_mode(&self) -> ProxyShutdown;

    /// True if clients of ours are connected to a database.
    fn has_clients_of(&self, database: &str) -> bool;

    /// Ends the session with this process id, or cancels what it runs, on the worker that serves it.
    fn signal(&self, worker: WorkerId, pid: u32, signal: SessionSignal);
}

/// The services that a session asks of its worker. Nothing in here waits.
pub trait WorkerServices {
    /// A server connection to a node that is at rest and fits best. It is the session's from now on.
    fn take_idle(&self, node: u16, best: ConnFit, fit: &dyn Fn(&Conn) -> ConnFit) -> Option<Box<Conn>>;

    /// Gives back a server connection at rest.
    fn give_back(&self, conn: Box<Conn>);

    /// Cleans a server connection by `reset_query_list`, and gives it back then.
    fn reset(&self, conn: Box<Conn>);

    /// Closes a server connection.
    fn close(&self, conn: Box<Conn>);

    /// Bytes handed over to be sent over the server connection so far. `None`: nobody can say.
    fn given(&self) -> Option<u64>;

    /// Those of them that left, once no more of them can. `None`: some may.
    fn taken(&self) -> Option<u64>;

    /// Sends a cancel request of the client on to the server.
    fn forward_cancel(&self);

    fn wake(&self, waiter: Waiter);

    /// Has the session's task run once more before it waits.
    fn run_again(&self);

    /// Has the session's task run again by then.
    fn wake_at(&self, at: Instant);

    /// Wakes the tasks that move bytes to and from the stores of the network.
    fn wake_stores(&self);

    /// Has server connections closed, each after its use, that began with defaults that hold no more: those to a database, or all.
    fn renew_conns(&self, database: Option<&str>);

    /// A role was renamed or dropped, or may have been.
    fn role_renamed(&self, user: &str);

    /// Makes room for a statement that wants these databases for itself.
    fn vacate(&self, databases: &[String]);

    /// The hub of sessions that listen with the same user and database.
    fn hub(&self) -> Rc<NotificationHub>;

    /// The columns of a SHOW command, by its number.
    fn columns(&self, view: usize) -> Vec<Cow<'static, str>>;

    /// True if a SHOW command can be answered. If not, the session's task runs again when it may be.
    fn is_fresh(&self, view: usize) -> bool;

    /// True if it is known what the session's user may see. If not, the session's task runs again when it is.
    fn knows_viewer(&self) -> bool;

    /// The rights of the session's user to see values, for one answer; every user's as long as nobody knows.
    fn viewer(&self) -> Viewer;

    /// The answer to a SHOW command.
    fn table(&self, view: usize, favourite: Option<NodeIndex>) -> AnswerTable;
}
