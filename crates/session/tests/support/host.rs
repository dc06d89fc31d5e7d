//! A session's port: hands out connections at rest, and writes down what it is asked to do.

use super::log::{Action, Out};
use super::world::{Pool, name_of};
use std::borrow::Cow;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;
use weir_config::visibility::Viewer;
use weir_failover::cluster::NodeIndex;
use weir_session::checkout::pool_grant::ConnFit;
use weir_session::conn::Conn;
use weir_session::context::Context;
use weir_session::host::{AnswerTable, Waiter, WorkerServices};
use weir_session::session_state::listen::listen_hub::NotificationHub;

pub struct TestHost {
    pub name: char,
    pub pool: Rc<Pool>,
    pub again: Rc<Cell<bool>>,
    pub w: Rc<Context>,
    /// Bytes that were sent to servers.
    pub sent: Rc<Cell<u64>>,
}

impl TestHost {
    fn act(&self, what: Action) {
        self.pool.act(self.name, what);
    }

    fn other(&self, what: impl Into<String>) {
        self.act(Action::Other(what.into()));
    }
}

impl WorkerServices for TestHost {
    fn take_idle(&self, node: u16, best: ConnFit, fit: &dyn Fn(&Conn) -> ConnFit) -> Option<Box<Conn>> {
        let mut idle = self.pool.idle.borrow_mut();
        let idle = idle.get_mut(&node)?;
        let wanted = [ConnFit::Own, ConnFit::Alike, ConnFit::Free, ConnFit::Any].into_iter().filter(|wanted| *wanted <= best);
        let at = { wanted }.find_map(|wanted| idle.iter().rposition(|conn| fit(conn) >= wanted))?;
        let conn = idle.remove(at);
        self.act(Action::Took(name_of(&conn)));
        Some(conn)
    }

    fn give_back(&self, conn: Box<Conn>) {
        self.act(Action::GaveBack(name_of(&conn)));
        conn.rests(self.w.now_us());
        self.pool.put(conn);
    }

    fn reset(&self, conn: Box<Conn>) {
        self.act(Action::Reset(name_of(&conn)));
        self.pool.resets.borrow_mut().push(conn);
    }

    fn close(&self, conn: Box<Conn>) {
        self.act(Action::Closed(name_of(&conn)));
    }

    fn park(&self, conn: &Conn) {
        self.other(format!("parks {}", name_of(conn)));
    }

    fn unpark(&self, conn: &Conn) {
        self.other(format!("takes up {}", name_of(conn)));
    }

    fn roll_back_parked(&self, conn: Box<Conn>) {
        self.other(format!("rolls back {}", name_of(&conn)));
    }

    fn close_parked(&self, conn: Box<Conn>) {
        self.other(format!("closes {}", name_of(&conn)));
    }

    fn given(&self) -> Option<u64> {
        Some(self.sent.get())
    }

    fn taken(&self) -> Option<u64> {
        Some(self.sent.get())
    }

    fn forward_cancel(&self) {
        self.other("sends a cancel request on");
    }

    fn wake(&self, (_, task): Waiter) {
        self.pool.wake(task);
    }

    fn run_again(&self) {
        self.again.set(true);
    }

    fn wake_at(&self, at: Instant) {
        self.other(format!("wants to be woken in {:?}", at.saturating_duration_since(self.w.now())));
    }

    fn wake_stores(&self) {
        self.other("wakes the stores");
    }

    fn renew_conns(&self, database: Option<&str>) {
        self.other(format!("has connections renewed: {}", database.unwrap_or("all")));
    }

    fn role_renamed(&self, user: &str) {
        self.other(format!("says that a role was renamed: {user}"));
    }

    fn vacate(&self, databases: &[String]) {
        self.other(format!("makes room for a command on {}", databases.join(", ")));
    }

    fn hub(&self) -> Rc<NotificationHub> {
        self.pool.hub.clone()
    }

    fn columns(&self, _: usize) -> Vec<Cow<'static, str>> {
        vec![Cow::Borrowed("item"), Cow::Borrowed("value")]
    }

    fn is_fresh(&self, _: usize) -> bool {
        true
    }

    fn knows_viewer(&self) -> bool {
        true
    }

    fn viewer(&self) -> Viewer {
        Viewer::operator()
    }

    fn table(&self, _: usize, favourite: Option<NodeIndex>) -> AnswerTable {
        let favourite = favourite.map_or_else(|| "none".to_owned(), |at| at.to_string());
        AnswerTable {
            columns: vec![Cow::Borrowed("item"), Cow::Borrowed("value")],
            rows: vec![vec!["favourite".into(), favourite]],
        }
    }
}

/// Bytes went out.
pub fn send(pool: &Pool, out: Out) {
    pool.log.add(out);
}
