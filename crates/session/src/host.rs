//! The ports of a session to the program.
//!
//! [`ProgramServices`] serves all sessions and threads, [`WorkerServices`] one session.

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleCheckReason {
    ConnectionLost,
    LoginFailed,
    /// As by a standby, or during shutdown.
    StatementRefused,
    /// No suitable node is up.
    NodeAwaited,
    /// A node contradicts its role in the view.
    RoleContradicted,
    Reconfigured,
    Stopping,
    /// Another node takes writes, or one is out of use.
    Governed,
    /// A failover check waits for its login; an answer over an open connection shows that the server lives.
    LoginLate,
}

/// Source: Pgpool-II `-m` modes, PostgreSQL's signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum ProxyShutdown {
    No,
    /// Connected clients may finish.
    Smart,
    /// Clients are told and disconnected.
    Fast,
    Immediate,
}

impl ProxyShutdown {
    pub fn words(self) -> &'static str {
        match self {
            ProxyShutdown::No => "no shutdown request",
            ProxyShutdown::Smart => "received smart shutdown request: clients may finish, and no new ones are let in",
            ProxyShutdown::Fast => "received fast shutdown request: clients are disconnected",
            ProxyShutdown::Immediate => "received immediate shutdown request",
        }
    }
}

/// Fields of `log_line_prefix`.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogOrigin<'a> {
    pub user: &'a str,
    pub database: &'a str,
    pub application: &'a str,
    pub client: &'a str,
    pub session: u32,
}

/// Extra value of a log line, in JSON only.
#[derive(Clone, Copy, Debug)]
pub enum LogField<'a> {
    Text(&'a str),
    Number(f64),
}

pub struct AnswerTable {
    pub columns: Vec<Cow<'static, str>>,
    pub rows: Vec<Vec<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionSignal {
    Terminate,
    Cancel,
}

/// Program services for the sessions of all threads. No call blocks.
pub trait ProgramServices: Send + Sync {
    fn log(&self, level: Level, who: &LogOrigin<'_>, text: Arguments<'_>, fields: &[(&str, LogField<'_>)]);

    /// Has the nodes' roles queried.
    fn look(&self, why: RoleCheckReason);

    /// The connection ended unexpectedly.
    fn conn_died(&self, node: u16, how: ServerConnEnd);

    /// Has the nodes' WAL positions queried.
    fn sample(&self);

    /// After a possible change, or to end the watch.
    fn look_at(&self, database: &Arc<KnownDatabase>);

    fn follow(&self, database: &Arc<KnownDatabase>);

    fn stop_mode(&self) -> ProxyShutdown;

    fn has_clients_of(&self, database: &str) -> bool;

    fn signal(&self, worker: WorkerId, pid: u32, signal: SessionSignal);
}

/// Worker services for one session. No call blocks.
pub trait WorkerServices {
    /// Takes the server connection at rest that fits best.
    fn take_idle(&self, node: u16, best: ConnFit, fit: &dyn Fn(&Conn) -> ConnFit) -> Option<Box<Conn>>;

    fn give_back(&self, conn: Box<Conn>);

    /// Cleans by `reset_query_list`, then gives back.
    fn reset(&self, conn: Box<Conn>);

    fn close(&self, conn: Box<Conn>);

    /// Puts the session's server connection aside: another one takes its place.
    fn park(&self, conn: &Conn);

    /// Makes a parked server connection the session's again.
    fn unpark(&self, conn: &Conn);

    /// Rolls back the transaction of a parked server connection, then gives it back.
    fn roll_back_parked(&self, conn: Box<Conn>);

    fn close_parked(&self, conn: Box<Conn>);

    /// Returns the bytes handed to the server connection so far; `None` if unknown.
    fn given(&self) -> Option<u64>;

    /// Returns how many of them were sent, once no more can be; `None` before.
    fn taken(&self) -> Option<u64>;

    fn forward_cancel(&self);

    fn wake(&self, waiter: Waiter);

    /// Has the session's task run once more before it waits.
    fn run_again(&self);

    fn wake_at(&self, at: Instant);

    fn wake_stores(&self);

    /// Closes, after use, connections with outdated defaults: to a database, or all.
    fn renew_conns(&self, database: Option<&str>);

    fn role_renamed(&self, user: &str);

    /// For a statement that needs these databases without other connections.
    fn vacate(&self, databases: &[String]);

    /// Shared per user and database.
    fn hub(&self) -> Rc<NotificationHub>;

    fn columns(&self, view: usize) -> Vec<Cow<'static, str>>;

    /// True if a SHOW command can be answered. If false, the task runs again later.
    fn is_fresh(&self, view: usize) -> bool;

    /// True if the user's rights are known. If false, the task runs again later.
    fn knows_viewer(&self) -> bool;

    /// Returns what the user may see, for one answer; while unknown, what every user may see.
    fn viewer(&self) -> Viewer;

    fn table(&self, view: usize, favourite: Option<NodeIndex>) -> AnswerTable;
}
