//! Server connections at rest, and the waiters for them. Executes `session::checkout::pool_grant`.
//!
//! All workers share the pools. A server connection stays in the event loop of its last worker and is preferred there; another
//! worker takes it for two system calls.
//!
//! Invariant: `open` counts a pool's server connections and permits. Each of them is in one place: at rest, with a session, or in
//! a waiter's cell.

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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PoolPurpose {
    /// Shared by clients.
    Statements,
    /// As `Statements`, to the engine's database (`parallel_mode`).
    Engine,
    /// Owned by one physical replication client to its end: never at rest.
    PhysicalReplication,
    /// Logical replication, which has a database.
    LogicalReplication,
    /// One per worker, for notifications.
    Listening,
    /// A short connection for the greeting of a client, while clients have all of the pool.
    Greeting,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PoolKey {
    /// `backend_hostname` number.
    pub(crate) node: u16,
    pub(crate) user: Arc<str>,
    pub(crate) database: Arc<str>,
    /// The clients' name of the database, whose limits and `connect_query` may differ.
    pub(crate) client_database: Arc<str>,
    pub(crate) purpose: PoolPurpose,
}

impl PoolKey {
    /// Unshared connections do not count in `pool_size`: the server limits physical replication, and logical replication has as
    /// many places of its own. Connections for notifications count for no database or user.
    fn limits(&self, config: &Config) -> UserLimits {
        let limits = limits::of(config, &self.user, &self.client_database);
        let unshared = UserLimits { pool_size: u32::MAX, pool_min: 0, reserve: 0, ..limits };
        match self.purpose {
            PoolPurpose::Statements => limits,
            PoolPurpose::Engine => UserLimits { pool_min: 0, ..limits },
            PoolPurpose::PhysicalReplication => unshared,
            PoolPurpose::LogicalReplication => UserLimits { pool_size: limits.pool_size, ..unshared },
            PoolPurpose::Listening => UserLimits { conns_per_database: 0, conns_per_user: 0, ..unshared },
            // One login after the other.
            PoolPurpose::Greeting => UserLimits { pool_size: 1, conns_per_database: 0, conns_per_user: 0, ..unshared },
        }
    }
}

pub struct ConnPool {
    pub(crate) key: PoolKey,
    /// Limits shared with other pools of the database on this node, and of the user.
    of_database: Arc<SharedPoolLimit>,
    of_user: Arc<SharedPoolLimit>,
    /// The number in queues of starved pools, and the count of entries there.
    number: u64,
    starving: AtomicU32,
    inner: Mutex<PoolState>,
}

/// Boxed entries: a server connection moves as one pointer.
type Idle = Vec<ServerConn>;

struct PoolState {
    idle: Idle,
    open: u32,
    waiters: VecDeque<PoolWaiter>,
    given_room_at: Option<Instant>,
    looked_for_room_at: Option<Instant>,
    /// Waiters for one server connection, by its serial.
    wanted: Vec<(u64, PoolWaiter)>,
    /// Paused by an administrator: returned server connections are closed, and none are given.
    paused: bool,
    /// How often all server connections were to be closed.
    renewals: u64,
    limits: UserLimits,
    /// Set while the server refuses logins, with its words.
    backoff: Option<(LoginBackoff, Arc<str>)>,
    vouching: RecentLogins,
    askers: Vec<(WorkerId, TaskId)>,
    statuses: HashMap<u64, Arc<ConnStatus>>,
}

struct PoolWaiter {
    worker: WorkerId,
    task: TaskId,
    since: Instant,
    cell: Arc<WaiterSlot>,
}

#[derive(Default)]
struct WaiterSlot {
    given: Mutex<WaiterGrant>,
}

#[derive(Default)]
enum WaiterGrant {
    #[default]
    Nothing,
    ServerConn(ServerConn),
    Permit,
    /// The server's refusal of another session's login, valid here too.
    Told(Box<OpenError>),
    Left,
}

pub enum PoolLease {
    ServerConn(ServerConn),
    /// Open one; on failure call `release_permit`.
    Permit,
}

#[derive(Debug)]
pub enum CheckoutRefusal {
    TimedOut {
        waited_ms: u64,
        limit: ReachedLimit,
    },
    /// The server refuses logins now, and the caller does not wait.
    Refused(LoginRefusal, Arc<str>),
    /// The server refused another waiter's login for good.
    Told(Box<OpenError>),
    GaveUp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckoutPatience {
    Waits,
    /// Fails: the caller has another node, or a client to tell.
    ToldAtOnce,
    /// As `ToldAtOnce`, also when all are in use, but not before the answer to a first login.
    NeverQueues,
}

#[derive(Clone, Copy, Debug)]
pub struct CheckoutWait {
    /// Start of `pool_wait_timeout`.
    pub(crate) since: Instant,
    pub(crate) patience: CheckoutPatience,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReachedLimit {
    /// The server is full or down, in its words.
    Refused(LoginRefusal, Arc<str>),
    PoolSize(u32),
    /// Per node.
    Database(u32),
    User(u32),
    Node(u32),
    All(u32),
    Paused,
}

pub struct PoolRegistry {
    pools: Mutex<HashMap<PoolKey, Arc<ConnPool>>>,
    nodes: Vec<Arc<SharedPoolLimit>>,
    open: AtomicU32,
    looks: AtomicU32,
    starved: AtomicU32,
    next_number: AtomicU64,
}

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
    /// `gates` is read under the lock, so that a new pool of a database being paused is paused too.
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

    pub fn reconfigure(&self, config: &Config) {
        for pool in self.all() {
            pool.inner.lock().limits = pool.key.limits(config);
        }
    }

    pub fn feed_all(&self, w: &Worker) {
        self.all().iter().for_each(|pool| pool.feed(w));
    }

    pub fn open(&self) -> u32 {
        self.open.load(Ordering::Relaxed)
    }

    /// The pools of one database by its client name, or all.
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

    pub fn of_user(&self, user: &str) -> Vec<Arc<ConnPool>> {
        self.pools.lock().values().filter(|pool| *pool.key.user == *user).cloned().collect()
    }

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

    /// Connections and permits on a node.
    pub fn node_open(&self, node: u16) -> u32 {
        self.budget(node).open()
    }
}

impl ConnPool {
    /// Oldest first.
    pub fn statuses(&self) -> Vec<Arc<ConnStatus>> {
        let mut statuses: Vec<_> = self.inner.lock().statuses.values().cloned().collect();
        statuses.sort_by_key(|status| status.serial);
        statuses
    }

    pub fn is_shared(&self) -> bool {
        matches!(self.key.purpose, PoolPurpose::Statements | PoolPurpose::Engine)
    }

    pub fn renewals(&self) -> u64 {
        self.inner.lock().renewals
    }

    /// Adds a server connection begun at `renewals`; doomed if another renewal came since.
    pub fn add_status(&self, w: &Worker, status: Arc<ConnStatus>, renewals: u64) {
        let mut inner = self.inner.lock();
        status.doomed.store(inner.renewals != renewals, Ordering::Relaxed);
        if inner.statuses.is_empty() {
            // Wakes sessions that waited for a first answer only.
            inner.waiters.iter().for_each(|waiter| waiter.wake(w));
        }
        inner.statuses.insert(status.serial, status);
    }

    /// Removes a rejected server connection; its permit is the caller's.
    pub fn remove_status(&self, serial: u64) {
        self.inner.lock().statuses.remove(&serial);
    }

    pub fn is_empty(&self) -> bool {
        self.inner.lock().is_empty()
    }

    /// Returns the counts of idle and all server connections, and of waiters.
    pub fn counts(&self) -> (usize, u32, usize) {
        let inner = self.inner.lock();
        (inner.idle.len(), inner.open, inner.waiters.len())
    }

    /// Leases a server connection or a permit, or queues.
    ///
    /// Not cancel safe: a dropped wait may hold a server connection. `give_up` is checked at each wake.
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
            // Another node may have become the right one.
            w.wake_at_new_view();
            parked().await;
        }
    }

    /// True if all connections are unanswered logins: the first answer may be for all.
    fn logs_in_first(&self) -> bool {
        let inner = self.inner.lock();
        inner.open > 0 && inner.statuses.is_empty()
    }

    /// True if only other clients delay a waiter.
    pub fn is_in_use(&self) -> bool {
        let inner = self.inner.lock();
        !inner.paused && inner.backoff.is_none()
    }

    /// The limit that delays a waiter now; `limit`: at the start of the wait.
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

    fn use_reserve(self: &Arc<ConnPool>, w: &Worker, cell: &Arc<WaiterSlot>) -> bool {
        let ceilings = ConnLimits::of(&w.peek_config());
        let mut inner = self.inner.lock();
        let place = inner.waiters.iter().position(|waiter| Arc::ptr_eq(&waiter.cell, cell));
        // The waiter was given something just now.
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

    /// Takes a permit for `pool_min`, without a client.
    pub fn permit_warm(&self, w: &Worker) -> bool {
        let ceilings = ConnLimits::of(&w.peek_config());
        let mut inner = self.inner.lock();
        let limits = inner.limits;
        if inner.paused
            || inner.is_held(w)
            // The next client finds out if the user is admitted again.
            || inner.vouching.is_refused()
            || missing(inner.open, limits.pool_min, limits.pool_size) == 0
            || w.shared.pools.permit(self, &limits, ceilings).is_err()
        {
            return false;
        }
        inner.grant_permit(w.now_ms());
        true
    }

    /// Takes this worker's best fitting server connection at rest, of equal ones the last used; `best` is the best fit possible.
    /// None while others wait, or if the server last admitted the user too long before this client came.
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

    /// Takes any server connection at rest, unless others wait.
    pub fn take_any(&self, w: &Worker) -> Option<ServerConn> {
        let mut inner = self.inner.lock();
        if inner.waiters.is_empty() && !inner.paused { take_near(&mut inner.idle, w) } else { None }
    }

    /// Leases one server connection by its serial, as soon as its session returns it, in the order of waiting. `None`: gone, or
    /// not in time.
    ///
    /// Not cancel safe: a dropped wait may hold the server connection. `give_up` is checked at each wake.
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
        // Only the limits of all pools are left: another pool's idle connection makes room, also one freed since the count. The
        // first waiter looks for those behind it.
        let (is_first, limits) = (inner.waiters.len() == 1, inner.limits);
        drop(inner);
        pools.starve(w, self, ceilings);
        let lacking = if is_first { self.make_room(w, ceilings) } else { pools.lacking(self, &limits, ceilings) };
        Err((cell, lacking.unwrap_or(ReachedLimit::Node(ceilings.node))))
    }

    /// Leaves the queue; a concurrent grant goes to the next waiter.
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

    /// Returns a clean server connection: to the longest waiter of this pool or a starved one; else to rest.
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

    /// Passes a lost connection's place to the longest waiter, here or at the node.
    pub fn release_permit(self: &Arc<ConnPool>, w: &Worker) {
        let pools = &w.shared.pools;
        // A greeting's place is beyond the limits.
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
                    // The first waiter may ask the server again.
                    first.wake(w);
                }
            }
            waiter
        };
        match waiter {
            Some(waiter) => self.hand(w, waiter, WaiterGrant::Permit),
            None => {
                pools.starve(w, self, ConnLimits::of(&w.peek_config()));
                pools.feed_starved(w, self);
            }
        }
    }

    pub fn forget(self: &Arc<ConnPool>, w: &Worker, serial: u64) {
        self.lose(w, serial);
        self.release_permit(w);
    }

    /// As `forget`, but the permit stays the caller's.
    pub fn lose(self: &Arc<ConnPool>, w: &Worker, serial: u64) {
        let in_vain: Vec<_> = {
            let mut inner = self.inner.lock();
            let gone = inner.statuses.remove(&serial);
            if gone.is_some_and(|status| status.given_up.load(Ordering::Relaxed)) {
                w.shared.control.send(ControlOrder::Parted);
            }
            inner.wanted.extract_if(.., |(wanted, _)| *wanted == serial).collect()
        };
        in_vain.into_iter().for_each(|(_, waiter)| self.hand(w, waiter, WaiterGrant::Left));
    }

    /// Removes an unused server connection, whose permit returns as that of a failed login.
    pub fn disown(&self, serial: u64) {
        self.inner.lock().statuses.remove(&serial);
    }

    /// Closes server connections at rest now, the others on return. Sessions wait.
    pub fn pause(self: &Arc<ConnPool>, w: &Worker) {
        self.inner.lock().paused = true;
        self.retire(|_, _| true).into_iter().for_each(|conn| w.close_conn(conn));
    }

    pub fn resume(self: &Arc<ConnPool>, w: &Worker) {
        self.inner.lock().paused = false;
        self.feed(w);
    }

    fn feed(self: &Arc<ConnPool>, w: &Worker) {
        w.shared.pools.starve(w, self, ConnLimits::of(&w.peek_config()));
        w.shared.pools.feed_starved(w, self);
    }

    /// Closes all shared server connections: at rest now, the others on return.
    pub fn renew(self: &Arc<ConnPool>, w: &Worker) {
        self.doom().into_iter().for_each(|conn| w.close_conn(conn));
    }

    /// As `renew`, but the caller closes those at rest.
    pub fn doom(&self) -> Idle {
        if !self.is_shared() {
            return Idle::default();
        }
        let mut inner = self.inner.lock();
        inner.renewals += 1;
        inner.statuses.values().for_each(|status| status.doomed.store(true, Ordering::Relaxed));
        std::mem::take(&mut inner.idle)
    }

    pub fn has_doomed(&self) -> bool {
        self.inner.lock().statuses.values().any(|status| status.doomed.load(Ordering::Relaxed))
    }

    pub fn waits_since(&self) -> Option<Instant> {
        self.inner.lock().waiters.front().map(|waiter| waiter.since)
    }

    /// Takes the server connections at rest that `retire` selects, given the surplus over `pool_min`.
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

    /// The next waiter: one for this very connection, unless another has waited longer for any.
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

    fn is_held(&self, w: &Worker) -> bool {
        self.backoff.as_ref().is_some_and(|(backoff, _)| !backoff.may_ask(w.now_ms()))
    }

    fn may_ask_again(&self, w: &Worker) -> bool {
        self.backoff.is_some() && !self.is_held(w)
    }

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

    /// Forgets empty pools of a user and database, so that invented names leave nothing behind.
    pub fn forget_unused(&self, user: &str, database: &str) {
        self.pools.lock().retain(|key, pool| &*key.user != user || &*key.client_database != database || !pool.is_empty());
    }

    pub fn forget_unheld(&self) {
        self.pools.lock().retain(|_, pool| Arc::strong_count(pool) > 1 || !pool.is_empty());
    }
}

/// Prefers this worker's last used server connection, whose server's caches are warm; another worker's with fresh draws come
/// last.
fn take_near(idle: &mut Idle, w: &Worker) -> Option<ServerConn> {
    let own = idle.iter().rposition(|conn| conn.transport.home == w.id);
    match own.or_else(|| idle.iter().rposition(|conn| !conn.has_fresh_draws(w.now_us()))) {
        Some(at) => Some(idle.remove(at)),
        None => idle.pop(),
    }
}
