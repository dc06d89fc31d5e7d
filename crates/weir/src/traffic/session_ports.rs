//! Ports of a session: its task, and its way to server connections.

use crate::admin::listing::{ListAsker, ListSnapshot};
use crate::admin::views::{self, VIEWS};
use crate::runtime::lease;
use crate::runtime::pool::conn_opening;
use crate::runtime::pool::server_conn::{ServerConn, ServerTransport};
use crate::runtime::worker::{PoolSet, Worker};
use crate::server::shard_gate::GatePass;
use crate::server::{inquiry, store_conn};
use crate::traffic::{empty_database, shard_commit};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};
use weir_config::visibility::Viewer;
use weir_failover::cluster::NodeIndex;
use weir_session::checkout::pool_grant::ConnFit;
use weir_session::conn::Conn;
use weir_session::handle::SessionHandle;
use weir_session::host::{AnswerTable, Waiter, WorkerServices};
use weir_session::session_state::listen::listen_hub::NotificationHub;

const FRESH_PERIOD: Duration = Duration::from_millis(20);

/// Rights of the session's user, for the answer to be given.
enum ViewerLookup {
    Asked,
    Known(Viewer),
}

pub struct SessionHost {
    pub(super) w: Rc<Worker>,
    handle: Rc<SessionHandle>,
    /// Milliseconds since the start of the proxy.
    pub(super) came_ms: u64,
    pub(super) pools: Rc<PoolSet>,
    pub(super) transport: RefCell<Option<Box<ServerTransport>>>,
    /// Held while a commit on several shards may be seen in part.
    pub(super) gate: RefCell<Option<GatePass>>,
    /// Begin of a SHOW's wait, in milliseconds since the start of the proxy.
    wants_nodes_since: Cell<Option<u64>>,
    /// Filled in by a task of its own, if a server must be asked.
    sight: RefCell<Option<Rc<RefCell<ViewerLookup>>>>,
}

impl SessionHost {
    pub fn new(w: Rc<Worker>, handle: Rc<SessionHandle>, pools: Rc<PoolSet>) -> Rc<SessionHost> {
        let came_ms = w.now_ms();
        Rc::new(SessionHost {
            w,
            handle,
            came_ms,
            pools,
            transport: RefCell::default(),
            wants_nodes_since: Cell::default(),
            gate: RefCell::default(),
            sight: RefCell::default(),
        })
    }

    pub fn take(&self, conn: ServerConn) -> Box<Conn> {
        let ServerConn { conn, transport } = conn;
        transport.socket.set_task(self.handle.task.get());
        *self.transport.borrow_mut() = Some(transport);
        conn
    }

    /// A server connection that was put aside, with its socket.
    pub fn parked(&self, conn: Box<Conn>) -> Option<ServerConn> {
        let transport = self.w.parked.borrow_mut().remove(&conn.status.serial)?;
        Some(ServerConn { conn, transport })
    }

    pub fn park_whole(&self, conn: ServerConn) -> Box<Conn> {
        let ServerConn { conn, transport } = conn;
        self.w.parked.borrow_mut().insert(conn.status.serial, transport);
        conn
    }

    pub fn whole(&self, conn: Box<Conn>) -> Option<ServerConn> {
        let transport = self.transport.borrow_mut().take()?;
        Some(ServerConn { conn, transport })
    }
}

impl WorkerServices for SessionHost {
    fn take_idle(&self, node: u16, best: ConnFit, fit: &dyn Fn(&Conn) -> ConnFit) -> Option<Box<Conn>> {
        let pool = self.pools.of_node(&self.w, node);
        let conn = pool.take_idle(&self.w, self.came_ms, best, |conn| fit(&conn.conn))?;
        lease::fit_near(&self.w, conn).map(|conn| self.take(conn))
    }

    fn give_back(&self, conn: Box<Conn>) {
        if let Some(conn) = self.whole(conn) {
            let pool = conn.transport.pool.clone();
            pool.give_back(&self.w, conn);
        }
    }

    fn reset(&self, conn: Box<Conn>) {
        if let Some(conn) = self.whole(conn) {
            self.w.reactor.spawn(conn_opening::reset(self.w.clone(), conn));
        }
    }

    fn close(&self, conn: Box<Conn>) {
        if let Some(conn) = self.whole(conn) {
            self.w.close_conn(conn);
        }
    }

    fn park(&self, conn: &Conn) {
        if let Some(transport) = self.transport.borrow_mut().take() {
            self.w.parked.borrow_mut().insert(conn.status.serial, transport);
        }
    }

    fn unpark(&self, conn: &Conn) {
        *self.transport.borrow_mut() = self.w.parked.borrow_mut().remove(&conn.status.serial);
    }

    fn roll_back_parked(&self, conn: Box<Conn>) {
        if let Some(conn) = self.parked(conn) {
            self.w.reactor.spawn(shard_commit::roll_back(self.w.clone(), conn));
        }
    }

    fn close_parked(&self, conn: Box<Conn>) {
        // A part that is prepared keeps reads of several shards out by itself.
        self.gate.take();
        if let Some(conn) = self.parked(conn) {
            self.w.close_conn(conn);
        }
    }

    fn given(&self) -> Option<u64> {
        self.transport.borrow().as_ref().and_then(|transport| transport.socket.given(&self.w.reactor))
    }

    fn taken(&self) -> Option<u64> {
        self.transport.borrow().as_ref().and_then(|transport| transport.socket.taken(&self.w.reactor))
    }

    fn forward_cancel(&self) {
        conn_opening::forward_cancel(&self.w, &self.handle);
    }

    fn wake(&self, waiter: Waiter) {
        self.w.wake_waiter(waiter);
    }

    fn run_again(&self) {
        self.w.reactor.wake(self.handle.task.get());
    }

    fn wake_at(&self, at: Instant) {
        self.w.reactor.wake_at(at);
    }

    fn wake_stores(&self) {
        if let Some(stores) = &self.w.stores {
            store_conn::wake(&self.w, stores);
        }
    }

    fn renew_conns(&self, database: Option<&str>) {
        self.w.renew_conns(database);
    }

    fn role_renamed(&self, user: &str) {
        self.w.role_renamed(user);
    }

    fn vacate(&self, databases: &[String]) {
        empty_database::begin(&self.w, databases);
    }

    fn hub(&self) -> Rc<NotificationHub> {
        self.w.hub(&self.pools)
    }

    fn columns(&self, view: usize) -> Vec<Cow<'static, str>> {
        VIEWS[view].columns().map(Cow::Borrowed).collect()
    }

    fn is_fresh(&self, view: usize) -> bool {
        if VIEWS[view].list.depends_on_viewer() && !self.knows_viewer() {
            return false;
        }
        if !VIEWS[view].is_of_nodes() {
            return true;
        }
        let now = Instant::now();
        let now_ms = now.saturating_duration_since(self.w.shared.begun).as_millis() as u64;
        let since = self.wants_nodes_since.get().unwrap_or(now_ms);
        if self.w.shared.cluster.failover.load().is_settled(since, now_ms) {
            self.wants_nodes_since.set(None);
            return true;
        }
        self.wants_nodes_since.set(Some(since));
        self.w.reactor.wake_at(now + FRESH_PERIOD);
        false
    }

    fn knows_viewer(&self) -> bool {
        if let Some(sight) = &*self.sight.borrow() {
            return matches!(*sight.borrow(), ViewerLookup::Known(_));
        }
        let known = inquiry::viewer::known(&self.w, &self.pools);
        let is_known = known.is_some();
        let sight = Rc::new(RefCell::new(known.map_or(ViewerLookup::Asked, ViewerLookup::Known)));
        *self.sight.borrow_mut() = Some(sight.clone());
        if !is_known {
            let (w, pools, handle) = (self.w.clone(), self.pools.clone(), self.handle.clone());
            self.w.reactor.spawn(async move {
                let viewer = inquiry::viewer::ask(&w, &pools).await;
                *sight.borrow_mut() = ViewerLookup::Known(viewer);
                w.reactor.wake(handle.task.get());
            });
        }
        is_known
    }

    fn viewer(&self) -> Viewer {
        match self.sight.take().map(|sight| sight.replace(ViewerLookup::Asked)) {
            Some(ViewerLookup::Known(viewer)) => viewer,
            Some(ViewerLookup::Asked) | None => Viewer::user(&self.pools.user),
        }
    }

    fn table(&self, view: usize, favourite: Option<NodeIndex>) -> AnswerTable {
        let viewer = self.viewer();
        let asker = ListAsker { database: Some(&self.pools.known), favourite, ..ListAsker::default() };
        views::table_of(&VIEWS[view], &ListSnapshot::new(&self.w.shared, &viewer, asker))
    }
}
