//! Server connections at rest, and the waiters for them. Executes `session::checkout::pool_grant`.
//!
//! Pools are shared by all workers: a pool cut into one piece per core would be a worse product. A server connection stays in the event loop
//! of the worker that used it last and is preferred there; another worker may take it, at the price of two system calls.
//!
//! Invariant: `open` counts the server connections of a pool that exist or are permitted to be opened. A server connection or permit is always in one
//! place: at rest, with a session, or in a waiter's cell.

pub mod conn_opening;
mod login_outcomes;
pub mod longest_wait;
pub mod look_places;
pub mod recent_logins;
mod refused_logins;
pub mod reset;
mod room;
pub mod server_conn;
pub mod server_login;

use room::SharedPoolLimit;

use crate::runtime::mail::ControlOrder;
use crate::runtime::pause_state::PauseState;
use crate::runtime::pool::recent_logins::RecentLogins;
use crate::runtime::pool::server_conn::{ConnStatus, OpenError, ServerConn};
use crate::runtime::shared::{WorkerId, WorkerMessage};
use crate::runtime::worker::Worker;
use foldhash::HashMap;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_config::Config;
use weir_config::limits::{self, UserLimits};
use weir_session::checkout::pool_grant::{
    ConnFit, LoginBackoff, LoginRefusal, PoolCounts, PoolGrant, grant, is_surplus, missing,
};
use weir_session::flow::HoldReason;
use weir_session::metrics::{NODES_MAX, WorkerCounter};

use weir_io::reactor::{TaskId, parked};

/// Purpose of a pool's server connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PoolPurpose {
    /// Statements of clients, which share them.
    Statements,
    /// Each is one physical replication client's to its end: never at rest.
    PhysicalReplication,
    /// A logical replication connection, which has a database.
    LogicalReplication,
    /// One for each worker, over which it hears of notifications.
    Listening,
    /// One for a moment, over which a server tells what a client that logs in is greeted with, while clients have all of the pool.
    Greeting,
}

/// Owner of the server connections in a pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PoolKey {
    /// `backend_hostname` number.
    pub(crate) node: u16,
    pub(crate) user: Arc<str>,
    pub(crate) database: Arc<str>,
    /// The clients' name of the database. Those of another name have pools of their own: their limits and `connect_query` differ.
    pub(crate) client_database: Arc<str>,
    pub(crate) purpose: PoolPurpose,
}

impl PoolKey {
    /// Conns that clients do not share count in no pool's size: the server itself has a limit on those of physical replication clients, and those of
    /// logical ones have as many places beside the others. Those over which workers listen are ours, and no database's or user's.
    fn limits(&self, config: &Config) -> UserLimits {
        let limits = limits::of(config, &self.user, &self.client_database);
        let unshared = UserLimits { pool_size: u32::MAX, pool_min: 0, reserve: 0, ..limits };
        match self.purpose {
            PoolPurpose::Statements => limits,
            PoolPurpose::PhysicalReplication => unshared,
            PoolPurpose::LogicalReplication => UserLimits { pool_size: limits.pool_size, ..unshared },
            PoolPurpose::Listening => UserLimits { conns_per_database: 0, conns_per_user: 0, ..unshared },
            // One login after the other.
            PoolPurpose::Greeting => UserLimits { pool_size: 1, conns_per_database: 0, conns_per_user: 0, ..unshared },
        }
    }
}

/// The server connections of one user and database on one node.
pub struct ConnPool {
    pub(crate) key: PoolKey,
    /// Limits that it shares with the other pools of its database on this node, and with those of its user.
    of_database: Arc<SharedPoolLimit>,
    of_user: Arc<SharedPoolLimit>,
    /// Its number in the queues of starved pools, and in how many of them it stands.
    number: u64,
    starving: AtomicU32,
    inner: Mutex<PoolState>,
}

/// Boxed, since a server connection moves between sessions, waiters and rest as one pointer.
type Idle = Vec<ServerConn>;

struct PoolState {
    idle: Idle,
    open: u32,
    waiters: VecDeque<PoolWaiter>,
    /// When it was given a place under a limit of many pools last.
    given_room_at: Option<Instant>,
    /// When one of its waiters looked last whether other pools can make room.
    looked_for_room_at: Option<Instant>,
    /// Waiters for one certain server connection, by its number.
    wanted: Vec<(u64, PoolWaiter)>,
    /// An administrator wants no server connections here: they are closed as they come back, and nobody gets one.
    paused: bool,
    /// Times that all server connections were to be closed.
    renewals: u64,
    limits: UserLimits,
    /// The server refuses logins, for this reason in its words.
    backoff: Option<(LoginBackoff, Arc<str>)>,
    /// The outcomes of logins, as far as they tell of the user's right to be there.
    vouching: RecentLogins,
    /// Tasks that wait for such a login of another one.
    askers: Vec<(WorkerId, TaskId)>,
    statuses: HashMap<u64, Arc<ConnStatus>>,
}

struct PoolWaiter {
    worker: WorkerId,
    task: TaskId,
    since: Instant,
    cell: Arc<WaiterSlot>,
}

/// Place where a waiter finds its server connection or permit.
#[derive(Default)]
struct WaiterSlot {
    given: Mutex<WaiterGrant>,
}

#[derive(Default)]
enum WaiterGrant {
    #[default]
    Nothing,
    ServerConn(ServerConn),
    /// The right to open one.
    Permit,
    /// The server's refusal of another's login, which holds for this one too.
    Told(Box<OpenError>),
    /// Nobody waits here any more.
    Left,
}

/// The pool's answer to a session.
pub enum PoolLease {
    ServerConn(ServerConn),
    /// Open one; on failure call `release_permit`.
    Permit,
}

/// Why a session got nothing.
#[derive(Debug)]
pub enum CheckoutRefusal {
    TimedOut {
        waited_ms: u64,
        limit: ReachedLimit,
    },
    /// The server lets nobody in now, and the caller does not wait for that.
    Refused(LoginRefusal, Arc<str>),
    /// The server refused the login of another who waited here, for good.
    Told(Box<OpenError>),
    /// The condition the caller gave came true.
    GaveUp,
}

/// Behaviour of a session where a server refuses logins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckoutPatience {
    /// Waits until one gets in, or a server connection comes free.
    Waits,
    /// Is told: it has another node to go to, or a client of its own to tell.
    ToldAtOnce,
    /// As `ToldAtOnce`, and is told as well that all connections are in use; not before the server has answered a first login.
    NeverQueues,
}

/// A wait for a server connection.
#[derive(Clone, Copy, Debug)]
pub struct CheckoutWait {
    /// Since when: `pool_wait_timeout` counts from here.
    pub(crate) since: Instant,
    pub(crate) patience: CheckoutPatience,
}

/// The limit that was reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReachedLimit {
    /// The server's own room, or it was down; in its words.
    Refused(LoginRefusal, Arc<str>),
    PoolSize(u32),
    /// Conns of one database, or one user, to one node.
    Database(u32),
    User(u32),
    Node(u32),
    All(u32),
    Paused,
}

/// All pools, and how many server connections each node has.
pub struct PoolRegistry {
    pools: Mutex<HashMap<PoolKey, Arc<ConnPool>>>,
    nodes: Vec<Arc<SharedPoolLimit>>,
    /// Conns of all nodes that exist or are permitted to be opened.
    open: AtomicU32,
    /// Connections of all nodes over which Weir looks at catalogs.
    looks: AtomicU32,
    /// Entries of all queues of pools that lack a permission.
    starved: AtomicU32,
    /// Number of the next pool.
    next_number: AtomicU64,
}

/// Limits of server connections over all pools.
#[derive(Clone, Copy)]
struct ConnLimits {
    node: u32,
    all: u32,
}

impl ConnLimits {
    fn of(config: &Config) -> ConnLimits {
        let all = if config.limits.conns == 0 { u32::MAX } else { config.limits.conns };
        ConnLimits { node: config.conns_per_node_max(), all }
    }

    /// True if server connections of one node can stand in the way of another's.
    fn joins_nodes(self) -> bool {
        self.all != u32::MAX
    }
}

impl Default for PoolRegistry {
    fn default() -> PoolRegistry {
        let nodes = (0..NODES_MAX).map(|_| Arc::default()).collect();
        PoolRegistry {
            pools: Mutex::default(),
            nodes,
            open: AtomicU32::new(0),
            looks: AtomicU32::new(0),
            starved: AtomicU32::new(0),
            next_number: AtomicU64::new(0),
        }
    }
}

impl PoolRegistry {
    /// The pool of a key, made if there is none. The gates are looked at under the lock, so that a pool made while its database is
    /// being paused is paused too.
    pub fn get(&self, key: PoolKey, gates: &PauseState, config: &Config) -> Arc<ConnPool> {
        let mut pools = self.pools.lock();
        if let Some(pool) = pools.get(&key) {
            return pool.clone();
        }
        let inner = PoolState {
            idle: Vec::new(),
            open: 0,
            waiters: VecDeque::new(),
            given_room_at: None,
            looked_for_room_at: None,
            wanted: Vec::new(),
            paused: gates.is_paused(&key.client_database),
            renewals: 0,
            limits: key.limits(config),
            backoff: None,
            vouching: RecentLogins::default(),
            askers: Vec::new(),
            statuses: HashMap::default(),
        };
        let [of_database, of_user] = room::budgets_of(&key, &pools);
        let pool = Arc::new(ConnPool {
            key: key.clone(),
            of_database,
            of_user,
            number: self.next_number.fetch_add(1, Ordering::Relaxed),
            starving: AtomicU32::new(0),
            inner: Mutex::new(inner),
        });
        pools.insert(key, pool.clone());
        pool
    }

    /// Takes the limits of another configuration.
    pub fn reconfigure(&self, config: &Config) {
        for pool in self.all() {
            pool.inner.lock().limits = pool.key.limits(config);
        }
    }

    /// Lets waiters have all that other limits allow now.
    pub fn feed_all(&self, w: &Worker) {
        self.all().iter().for_each(|pool| pool.feed(w));
    }

    /// Conns of all nodes.
    pub fn open(&self) -> u32 {
        self.open.load(Ordering::Relaxed)
    }

    /// The pools of one database as clients call it, or all.
    pub fn of_client_database(&self, database: Option<&str>) -> Vec<Arc<ConnPool>> {
        let mut pools = self.all();
        pools.retain(|pool| database.is_none_or(|database| *pool.key.client_database == *database));
        pools
    }

    /// The pools of one database of the servers, or all.
    pub fn of_database(&self, database: Option<&str>) -> Vec<Arc<ConnPool>> {
        let mut pools = self.all();
        pools.retain(|pool| database.is_none_or(|database| *pool.key.database == *database));
        pools
    }

    /// The pools of one user.
    pub fn of_user(&self, user: &str) -> Vec<Arc<ConnPool>> {
        self.pools.lock().values().filter(|pool| *pool.key.user == *user).cloned().collect()
    }

    /// Users who have pools, each once.
    pub fn users(&self) -> BTreeSet<Arc<str>> {
        self.pools.lock().keys().map(|key| key.user.clone()).collect()
    }

    /// All pools, by node, database and user.
    pub fn all(&self) -> Vec<Arc<ConnPool>> {
        let mut all: Vec<_> = self.pools.lock().values().cloned().collect();
        let place = |pool: &Arc<ConnPool>| {
            let key = &pool.key;
            (key.node, key.client_database.clone(), key.user.clone(), key.purpose)
        };
        all.sort_by_cached_key(place);
        all
    }

    /// Conns of a node that exist or are being opened.
    pub fn node_open(&self, node: u16) -> u32 {
        self.budget(node).open()
    }
}

impl ConnPool {
    /// Status of each of its server connections, oldest first.
    pub fn statuses(&self) -> Vec<Arc<ConnStatus>> {
        let mut statuses: Vec<_> = self.inner.lock().statuses.values().cloned().collect();
        statuses.sort_by_key(|status| status.serial);
        statuses
    }

    /// True if its server connections come back from their clients.
    pub fn is_shared(&self) -> bool {
        self.key.purpose == PoolPurpose::Statements
    }

    /// How often all its server connections were to be closed.
    pub fn renewals(&self) -> u64 {
        self.inner.lock().renewals
    }

    /// Takes in a server connection that was begun after so many renewals: if there was another one since, it is closed after its first use.
    pub fn add_status(&self, w: &Worker, status: Arc<ConnStatus>, renewals: u64) {
        let mut inner = self.inner.lock();
        status.doomed.store(inner.renewals != renewals, Ordering::Relaxed);
        if inner.statuses.is_empty() {
            // Sessions that waited for the first answer only go on.
            inner.waiters.iter().for_each(|waiter| waiter.wake(w));
        }
        inner.statuses.insert(status.serial, status);
    }

    /// A server connection that was just taken in is not to be used after all; its permit is the caller's.
    pub fn remove_status(&self, serial: u64) {
        self.inner.lock().statuses.remove(&serial);
    }

    /// True if it has no server connection, and nobody waits for one.
    pub fn is_empty(&self) -> bool {
        self.inner.lock().is_empty()
    }

    /// Conns at rest, server connections in all, sessions waiting.
    pub fn counts(&self) -> (usize, u32, usize) {
        let inner = self.inner.lock();
        (inner.idle.len(), inner.open, inner.waiters.len())
    }

    /// A server connection or a permit at once, or a place in the queue.
    ///
    /// Not cancel safe: a dropped wait may hold a server connection. `give_up` is looked at whenever the task is woken.
    pub async fn lease(
        self: &Arc<ConnPool>,
        w: &Worker,
        wait: CheckoutWait,
        give_up: impl Fn() -> bool,
    ) -> Result<PoolLease, CheckoutRefusal> {
        let ceilings = ConnLimits::of(&w.peek_config());
        let first = self.try_lease(w, ceilings);
        let (cell, limit) = match first {
            Ok(lease) => return Ok(lease),
            Err(waiting) => waiting,
        };
        let is_in_vain = || wait.patience == CheckoutPatience::NeverQueues && self.is_in_use() && !self.logs_in_first();
        if !is_in_vain() {
            w.count(WorkerCounter::Waits);
        }
        let since = wait.since;
        let limits = self.limits();
        let after = |ms: u64| since + Duration::from_millis(ms);
        let by = |ms: u64| (ms > 0).then(|| after(ms));
        let (conn_by, primary_by) = (by(limits.waits.conn_ms), by(limits.waits.primary_ms));
        let reserve_at = (limits.reserve > 0).then(|| after(limits.reserve_after_ms));
        loop {
            match std::mem::take(&mut *cell.given.lock()) {
                WaiterGrant::ServerConn(conn) => return Ok(PoolLease::ServerConn(conn)),
                WaiterGrant::Permit => return Ok(PoolLease::Permit),
                WaiterGrant::Told(error) => return Err(CheckoutRefusal::Told(error)),
                WaiterGrant::Nothing | WaiterGrant::Left => {}
            }
            if is_in_vain() {
                self.leave(w, &cell);
                return Err(CheckoutRefusal::Refused(LoginRefusal::Full, "all connections are in use".into()));
            }
            // A wait for a server that is down is one for its successor.
            let deadline = if self.is_down() { primary_by } else { conn_by };
            let timed_out = deadline.is_some_and(|at| w.now() >= at);
            if timed_out || give_up() {
                self.leave(w, &cell);
                if !timed_out {
                    return Err(CheckoutRefusal::GaveUp);
                }
                w.count(WorkerCounter::WaitTimeouts);
                let limit = self.limit_now(limit);
                return Err(CheckoutRefusal::TimedOut { waited_ms: since.elapsed().as_millis() as u64, limit });
            }
            if wait.patience != CheckoutPatience::Waits
                && let Some((why, words)) = self.turns_away(w)
            {
                self.leave(w, &cell);
                return Err(CheckoutRefusal::Refused(why, words));
            }
            if self.ask_again(w, &cell) {
                return Ok(PoolLease::Permit);
            }
            let now = w.now();
            if let Some(ms) = self.looks_again_in_ms(w) {
                w.reactor.wake_at(now + Duration::from_millis(ms));
            }
            if reserve_at.is_some_and(|at| now >= at) && self.use_reserve(w, &cell) {
                return Ok(PoolLease::Permit);
            }
            if self.looks_for_room_at(w, &cell).is_some_and(|at| now >= at) {
                self.make_room(w, ConnLimits::of(&w.peek_config()));
            }
            let room_at = self.looks_for_room_at(w, &cell);
            for at in [deadline, reserve_at.filter(|at| *at > now), room_at].into_iter().flatten() {
                w.reactor.wake_at(at);
            }
            // Another node may have become the one to ask.
            w.wake_at_new_view();
            parked().await;
        }
    }

    /// True if all its connections are logins that the server has not answered yet: the first answer may be for all.
    fn logs_in_first(&self) -> bool {
        let inner = self.inner.lock();
        inner.open > 0 && inner.statuses.is_empty()
    }

    /// True if who waits here waits for clients: nobody has paused the pool, and its server lets everybody in.
    pub fn is_in_use(&self) -> bool {
        let inner = self.inner.lock();
        !inner.paused && inner.backoff.is_none()
    }

    /// The limit that stands in a waiter's way now; `limit` did when the wait began.
    fn limit_now(&self, limit: ReachedLimit) -> ReachedLimit {
        let inner = self.inner.lock();
        match &inner.backoff {
            _ if inner.paused => ReachedLimit::Paused,
            Some((backoff, words)) => ReachedLimit::Refused(backoff.why, words.clone()),
            None => limit,
        }
    }

    pub fn limits(&self) -> UserLimits {
        self.inner.lock().limits
    }

    /// Keeps the queue with a permission out of the reserve, if there is one left.
    fn use_reserve(self: &Arc<ConnPool>, w: &Worker, cell: &Arc<WaiterSlot>) -> bool {
        let ceilings = ConnLimits::of(&w.peek_config());
        let mut inner = self.inner.lock();
        let place = inner.waiters.iter().position(|waiter| Arc::ptr_eq(&waiter.cell, cell));
        // Without a place something was given in this moment.
        let Some(place) = place else { return false };
        let max = inner.limits.pool_size.saturating_add(inner.limits.reserve);
        if inner.paused || inner.is_held(w) || inner.open >= max || w.shared.pools.permit(self, &inner.limits, ceilings).is_err()
        {
            return false;
        }
        inner.waiters.remove(place);
        inner.grant_permit(w.now_ms());
        w.count(WorkerCounter::ReserveUses);
        true
    }

    /// The permission to open a server connection that nobody asked for, so that there are as many as are to be kept.
    pub fn permit_warm(&self, w: &Worker) -> bool {
        let ceilings = ConnLimits::of(&w.peek_config());
        let mut inner = self.inner.lock();
        let limits = inner.limits;
        if inner.paused
            || inner.is_held(w)
            // The next client finds out whether the user may be there again.
            || inner.vouching.is_refused()
            || missing(inner.open, limits.pool_min, limits.pool_size) == 0
            || w.shared.pools.permit(self, &limits, ceilings).is_err()
        {
            return false;
        }
        inner.grant_permit(w.now_ms());
        true
    }

    /// A server connection of this worker at rest, if there is one and nobody waits for it: of those that fit best the one used last. `best`: none fits
    /// better. None for a client that came after the server's word for its user had grown old.
    #[inline]
    pub fn take_idle(&self, w: &Worker, came_ms: u64, best: ConnFit, fit: impl Fn(&ServerConn) -> ConnFit) -> Option<ServerConn> {
        let mut inner = self.inner.lock();
        if !inner.waiters.is_empty() || inner.paused || !inner.vouching.covers(came_ms, login_outcomes::lifetime_ms(w)) {
            return None;
        }
        let wanted = [ConnFit::Own, ConnFit::Alike, ConnFit::Free, ConnFit::Any].into_iter().filter(|wanted| *wanted <= best);
        let mut found =
            wanted.filter_map(|wanted| inner.idle.iter().rposition(|conn| conn.transport.home == w.id && fit(conn) >= wanted));
        let at = found.next()?;
        Some(inner.idle.remove(at))
    }

    /// Any server connection at rest, of whatever worker, if nobody waits for it.
    pub fn take_any(&self, w: &Worker) -> Option<ServerConn> {
        let mut inner = self.inner.lock();
        if inner.waiters.is_empty() && !inner.paused { take_near(&mut inner.idle, w) } else { None }
    }

    /// One certain server connection, by its number: at rest, or as soon as its session is done with it. Others who have waited
    /// less long come later. `None`: it cannot be had, or not by then.
    ///
    /// Not cancel safe: a dropped wait may hold the server connection. `give_up` is looked at whenever the task is woken.
    pub async fn lease_certain(
        self: &Arc<ConnPool>,
        w: &Worker,
        serial: u64,
        deadline: Instant,
        give_up: impl Fn() -> bool,
    ) -> Option<ServerConn> {
        let cell = Arc::new(WaiterSlot::default());
        {
            let mut inner = self.inner.lock();
            match inner.idle.iter().position(|conn| conn.status.serial == serial) {
                Some(at) if !inner.paused => return Some(inner.idle.remove(at)),
                None if inner.statuses.contains_key(&serial) => {}
                Some(_) | None => return None,
            }
            let waiter = PoolWaiter { worker: w.id, task: w.reactor.current_task(), since: w.now(), cell: cell.clone() };
            inner.wanted.push((serial, waiter));
        }
        loop {
            match std::mem::take(&mut *cell.given.lock()) {
                WaiterGrant::ServerConn(conn) => return Some(conn),
                WaiterGrant::Left => return None,
                WaiterGrant::Nothing | WaiterGrant::Permit | WaiterGrant::Told(_) => {}
            }
            if w.now() >= deadline || give_up() {
                self.leave(w, &cell);
                return None;
            }
            w.reactor.wake_at(deadline);
            parked().await;
        }
    }

    fn try_lease(self: &Arc<ConnPool>, w: &Worker, ceilings: ConnLimits) -> Result<PoolLease, (Arc<WaiterSlot>, ReachedLimit)> {
        let pools = &w.shared.pools;
        let mut inner = self.inner.lock();
        match grant(inner.counts(w)) {
            PoolGrant::Take => {
                if let Some(conn) = take_near(&mut inner.idle, w) {
                    return Ok(PoolLease::ServerConn(conn));
                }
            }
            PoolGrant::Open if pools.permit(self, &inner.limits, ceilings).is_ok() => {
                inner.grant_permit(w.now_ms());
                return Ok(PoolLease::Permit);
            }
            PoolGrant::Open | PoolGrant::Wait => {}
        }
        let cell = Arc::new(WaiterSlot::default());
        let task = w.reactor.current_task();
        inner.waiters.push_back(PoolWaiter { worker: w.id, task, since: w.now(), cell: cell.clone() });
        if inner.paused {
            return Err((cell, ReachedLimit::Paused));
        }
        if inner.open >= inner.limits.pool_size || inner.is_held(w) {
            return Err((cell, ReachedLimit::PoolSize(inner.limits.pool_size)));
        }
        // Only the limits of all pools stand in the way: another pool's server connection at rest makes room. Connections that
        // were freed between the look at the counts and this place in the queue are found here too.
        // The first waiter looks for those behind it.
        let (is_first, limits) = (inner.waiters.len() == 1, inner.limits);
        drop(inner);
        pools.starve(w, self, ceilings);
        let lacking = if is_first { self.make_room(w, ceilings) } else { pools.lacking(self, &limits, ceilings) };
        Err((cell, lacking.unwrap_or(ReachedLimit::Node(ceilings.node))))
    }

    /// Leaves the queue; a grant of the same moment goes to the next waiter.
    fn leave(self: &Arc<ConnPool>, w: &Worker, cell: &Arc<WaiterSlot>) {
        {
            let mut inner = self.inner.lock();
            inner.waiters.retain(|waiter| !Arc::ptr_eq(&waiter.cell, cell));
            inner.wanted.retain(|(_, waiter)| !Arc::ptr_eq(&waiter.cell, cell));
        }
        match std::mem::replace(&mut *cell.given.lock(), WaiterGrant::Left) {
            WaiterGrant::ServerConn(conn) => self.give_back(w, conn),
            WaiterGrant::Permit => self.release_permit(w),
            WaiterGrant::Nothing | WaiterGrant::Told(_) | WaiterGrant::Left => {}
        }
        self.wake_starved(w);
    }

    /// Returns a clean server connection: to the longest waiter, of this pool or of one that only lacks a permission; else to rest.
    pub fn give_back(self: &Arc<ConnPool>, w: &Worker, conn: ServerConn) {
        if self.key.purpose == PoolPurpose::Greeting || self.yields_to_starved(w) {
            return w.close_conn(conn);
        }
        if !conn.is_of_these_passwords(w) || conn.status.doomed.load(Ordering::Relaxed) {
            return w.close_conn(conn);
        }
        conn.at_rest(w.now_us());
        let waiter = {
            let mut inner = self.inner.lock();
            if inner.paused || is_surplus(inner.counts(w)) {
                drop(inner);
                return w.close_conn(conn);
            }
            match inner.next_for(conn.status.serial) {
                Some(waiter) => waiter,
                None => {
                    inner.idle.push(conn);
                    return;
                }
            }
        };
        self.hand(w, waiter, WaiterGrant::ServerConn(conn));
    }

    fn hand(self: &Arc<ConnPool>, w: &Worker, waiter: PoolWaiter, given: WaiterGrant) {
        {
            let mut cell = waiter.cell.given.lock();
            if matches!(*cell, WaiterGrant::Left) {
                drop(cell);
                return match given {
                    WaiterGrant::ServerConn(conn) => self.give_back(w, conn),
                    WaiterGrant::Permit => self.release_permit(w),
                    WaiterGrant::Nothing | WaiterGrant::Told(_) | WaiterGrant::Left => {}
                };
            }
            *cell = given;
        }
        waiter.wake(w);
        self.wake_starved(w);
    }

    /// A server connection is gone, or could not be opened: its place goes to the longest waiter, here or at the node.
    pub fn release_permit(self: &Arc<ConnPool>, w: &Worker) {
        let pools = &w.shared.pools;
        // A place beyond the limits is nobody else's.
        let leaves_place = self.key.purpose != PoolPurpose::Greeting && self.leaves_place_to_starved(w);
        let waiter = {
            let mut inner = self.inner.lock();
            if let Some((backoff, _)) = &mut inner.backoff {
                backoff.asked();
            }
            let is_kept = !leaves_place
                && !inner.paused
                && inner.backoff.is_none()
                && inner.open <= inner.limits.pool_size.saturating_add(inner.limits.reserve);
            let waiter = if is_kept { inner.waiters.pop_front() } else { None };
            if waiter.is_none() {
                inner.open -= 1;
                pools.unpermit(self);
                if inner.backoff.is_some()
                    && let Some(first) = inner.waiters.front()
                {
                    // It may be the one that asks again.
                    first.wake(w);
                }
            }
            waiter
        };
        match waiter {
            Some(waiter) => self.hand(w, waiter, WaiterGrant::Permit),
            None => {
                // Its waiters lack a permission now, too.
                pools.starve(w, self, ConnLimits::of(&w.peek_config()));
                pools.feed_starved(w, self);
            }
        }
    }

    /// A server connection of this pool was closed.
    pub fn forget(self: &Arc<ConnPool>, w: &Worker, serial: u64) {
        self.lose(w, serial);
        self.release_permit(w);
    }

    /// A server connection of this pool was closed, and its permit is the caller's.
    pub fn lose(self: &Arc<ConnPool>, w: &Worker, serial: u64) {
        let in_vain: Vec<_> = {
            let mut inner = self.inner.lock();
            let gone = inner.statuses.remove(&serial);
            if gone.is_some_and(|status| status.given_up.load(Ordering::Relaxed)) {
                w.shared.control.send(ControlOrder::Parted);
            }
            inner.wanted.extract_if(.., |(wanted, _)| *wanted == serial).collect()
        };
        // It will not come back.
        in_vain.into_iter().for_each(|(_, waiter)| self.hand(w, waiter, WaiterGrant::Left));
    }

    /// A server connection of this pool that nobody gets, and whose permit is given back as that of a login that failed.
    pub fn disown(&self, serial: u64) {
        self.inner.lock().statuses.remove(&serial);
    }

    /// Closes the pool: server connections at rest go now, the others when they come back. Sessions that ask for one wait.
    pub fn pause(self: &Arc<ConnPool>, w: &Worker) {
        self.inner.lock().paused = true;
        self.retire(|_, _| true).into_iter().for_each(|conn| w.close_conn(conn));
    }

    /// Opens the pool again, also for its waiters.
    pub fn resume(self: &Arc<ConnPool>, w: &Worker) {
        self.inner.lock().paused = false;
        self.feed(w);
    }

    /// Opens as many server connections for the waiters as the limits allow.
    fn feed(self: &Arc<ConnPool>, w: &Worker) {
        w.shared.pools.starve(w, self, ConnLimits::of(&w.peek_config()));
        w.shared.pools.feed_starved(w, self);
    }

    /// Has every server connection closed: those at rest now, the others when they come back. Those that never do stay.
    pub fn renew(self: &Arc<ConnPool>, w: &Worker) {
        self.doom().into_iter().for_each(|conn| w.close_conn(conn));
    }

    /// Has every server connection closed when it comes back, and gives those at rest, which the caller closes.
    pub fn doom(&self) -> Idle {
        if !self.is_shared() {
            return Idle::default();
        }
        let mut inner = self.inner.lock();
        inner.renewals += 1;
        inner.statuses.values().for_each(|status| status.doomed.store(true, Ordering::Relaxed));
        std::mem::take(&mut inner.idle)
    }

    /// True if a server connection waits to be closed.
    pub fn has_doomed(&self) -> bool {
        self.inner.lock().statuses.values().any(|status| status.doomed.load(Ordering::Relaxed))
    }

    /// Since when the first one waits.
    pub fn waits_since(&self) -> Option<Instant> {
        self.inner.lock().waiters.front().map(|waiter| waiter.since)
    }

    /// Takes the server connections at rest that `retire` says are to go; it is told how many there are beyond those to be kept.
    pub fn retire(&self, mut retire: impl FnMut(&ServerConn, u32) -> bool) -> Vec<ServerConn> {
        let mut inner = self.inner.lock();
        let mut surplus = inner.open.saturating_sub(inner.limits.pool_min);
        let (gone, kept) = std::mem::take(&mut inner.idle).into_iter().partition(|conn| {
            let goes = retire(conn, surplus);
            surplus = surplus.saturating_sub(u32::from(goes));
            goes
        });
        inner.idle = kept;
        gone
    }
}

impl PoolState {
    fn is_empty(&self) -> bool {
        self.open == 0 && self.waiters.is_empty() && self.wanted.is_empty()
    }

    /// The waiter that gets a server connection: one that waits for this very connection, unless others have waited longer for
    /// any.
    fn next_for(&mut self, serial: u64) -> Option<PoolWaiter> {
        let any_since = self.waiters.front().map(|waiter| waiter.since);
        let is_next =
            |(wanted, waiter): &(u64, PoolWaiter)| *wanted == serial && any_since.is_none_or(|since| waiter.since <= since);
        match self.wanted.iter().position(is_next) {
            Some(at) => Some(self.wanted.remove(at).1),
            None => self.waiters.pop_front(),
        }
    }

    fn counts(&self, w: &Worker) -> PoolCounts {
        PoolCounts {
            idle: self.idle.len() as u32,
            open: self.open,
            waiting: self.waiters.len() as u32,
            open_max: self.limits.pool_size,
            paused: self.paused,
            held: self.is_held(w),
        }
    }

    /// True if the server refuses logins, and it is not for this one to ask again.
    fn is_held(&self, w: &Worker) -> bool {
        self.backoff.as_ref().is_some_and(|(backoff, _)| !backoff.may_ask(w.now_ms()))
    }

    fn may_ask_again(&self, w: &Worker) -> bool {
        self.backoff.is_some() && !self.is_held(w)
    }

    /// One more server connection may be opened.
    fn grant_permit(&mut self, now_ms: u64) {
        self.open += 1;
        if let Some((backoff, _)) = &mut self.backoff {
            backoff.ask(now_ms);
        }
    }
}

impl PoolWaiter {
    fn wake(&self, w: &Worker) {
        if self.worker == w.id {
            w.reactor.wake(self.task);
        } else {
            w.shared.mailboxes[usize::from(self.worker)].send(WorkerMessage::Wake(self.task));
        }
    }
}

impl PoolRegistry {
    /// Server connections that stay with their sessions, by the reason in words. `counts` says which pools are looked at.
    pub fn kept(&self, counts: impl Fn(&ConnPool) -> bool) -> BTreeMap<&'static str, usize> {
        let mut reasons = BTreeMap::new();
        for status in self.all().iter().filter(|pool| counts(pool)).flat_map(|pool| pool.statuses()) {
            let code = status.keeping.code.load(Ordering::Relaxed);
            if code > 0 && status.session.load(Ordering::Relaxed) > 0 {
                *reasons.entry(HoldReason::reason(code)).or_default() += 1;
            }
        }
        reasons
    }

    /// Forgets the pools of a user and database that no server let in, so that invented names leave nothing behind.
    pub fn forget_unused(&self, user: &str, database: &str) {
        self.pools.lock().retain(|key, pool| &*key.user != user || &*key.client_database != database || !pool.is_empty());
    }

    /// Forgets pools that only this table holds.
    pub fn forget_unheld(&self) {
        self.pools.lock().retain(|_, pool| Arc::strong_count(pool) > 1 || !pool.is_empty());
    }
}

/// The server connection used last, of this worker if there is one: its server's caches are the warmest. Of others' those with fresh draws come last.
fn take_near(idle: &mut Idle, w: &Worker) -> Option<ServerConn> {
    let own = idle.iter().rposition(|conn| conn.transport.home == w.id);
    match own.or_else(|| idle.iter().rposition(|conn| !conn.has_fresh_draws(w.now_us()))) {
        Some(at) => Some(idle.remove(at)),
        None => idle.pop(),
    }
}
