//! Links at rest, and who waits for one. Executes `policy::pool`.
//!
//! Pools are shared by all workers: a pool cut into one piece per core would be a worse product. A link stays in the event loop
//! of the worker that used it last and is preferred there; another worker may take it, at the price of two system calls.
//!
//! Invariant: `open` counts the links of a pool that exist or are permitted to be opened. A link or permit is always in one
//! place: at rest, with a session, or in a waiter's cell.

use crate::gates::Gates;
use crate::link::{Link, LinkCard};
use crate::metrics::Metric;
use crate::shared::{Message, WorkerId};
use crate::worker::Worker;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;
use weir_policy::pool::{Counts, Grant, grant};

use crate::metrics::NODES_MAX;
use crate::reactor::{TaskId, parked};

/// Whose links a pool holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PoolKey {
    /// `backend_hostname` number.
    pub node: u16,
    pub user: Arc<str>,
    pub database: Arc<str>,
}

/// The links of one user and database on one node.
pub struct Pool {
    pub key: PoolKey,
    inner: Mutex<Inner>,
}

/// Boxed, since a link moves between sessions, waiters and rest as one pointer.
type Idle = Vec<Box<Link>>;

#[derive(Default)]
struct Inner {
    idle: Idle,
    open: u32,
    waiters: VecDeque<Waiter>,
    /// An administrator wants no links here: they are closed as they come back, and nobody gets one.
    paused: bool,
    cards: HashMap<u64, Arc<LinkCard>>,
}

struct Waiter {
    worker: WorkerId,
    task: TaskId,
    since: Instant,
    cell: Arc<Cell>,
}

/// Where a waiter finds what it was given.
#[derive(Default)]
struct Cell {
    given: Mutex<Given>,
}

#[derive(Default)]
enum Given {
    #[default]
    Nothing,
    Link(Box<Link>),
    /// The right to open one.
    Permit,
    /// Nobody waits here any more.
    Left,
}

/// What a session is given.
pub enum Lease {
    Link(Box<Link>),
    /// Open one; on failure call `release_permit`.
    Permit,
}

/// Why a session got nothing.
#[derive(Debug)]
pub enum Refusal {
    TimedOut {
        waited_ms: u64,
        limit: Limit,
    },
    /// The condition the caller gave came true.
    GaveUp,
}

/// What was exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    PoolSize(u32),
    Node(u32),
    Paused,
}

/// All pools, and how many links each node has.
pub struct Pools {
    pools: Mutex<HashMap<PoolKey, Arc<Pool>>>,
    nodes: Vec<NodeBudget>,
}

#[derive(Default)]
struct NodeBudget {
    open: AtomicU32,
    /// Pools with waiters that only lack the node's permission.
    starved: Mutex<VecDeque<Arc<Pool>>>,
    starved_count: AtomicU32,
}

impl Default for Pools {
    fn default() -> Pools {
        Pools { pools: Mutex::default(), nodes: (0..NODES_MAX).map(|_| NodeBudget::default()).collect() }
    }
}

impl Pools {
    /// The pool of a key, made if there is none. The gates are looked at under the lock, so that a pool made while its database is
    /// being paused is paused too.
    pub fn get(&self, key: PoolKey, gates: &Gates) -> Arc<Pool> {
        let mut pools = self.pools.lock();
        let make = || {
            let inner = Inner { paused: gates.is_paused(&key.database), ..Inner::default() };
            Arc::new(Pool { key: key.clone(), inner: Mutex::new(inner) })
        };
        pools.entry(key.clone()).or_insert_with(make).clone()
    }

    /// The pools of one database, or all.
    pub fn of_database(&self, database: Option<&str>) -> Vec<Arc<Pool>> {
        let mut pools = self.all();
        pools.retain(|pool| database.is_none_or(|database| *pool.key.database == *database));
        pools
    }

    /// All pools, by node, database and user.
    pub fn all(&self) -> Vec<Arc<Pool>> {
        let mut all: Vec<_> = self.pools.lock().values().cloned().collect();
        all.sort_by(|a, b| (a.key.node, &a.key.database, &a.key.user).cmp(&(b.key.node, &b.key.database, &b.key.user)));
        all
    }

    fn budget(&self, node: u16) -> &NodeBudget {
        &self.nodes[usize::from(node) % NODES_MAX]
    }

    /// Links of a node that exist or are being opened.
    pub fn node_open(&self, node: u16) -> u32 {
        self.budget(node).open.load(Ordering::Relaxed)
    }

    /// Takes a link at rest out of another pool of this node, to make room.
    fn take_idle_elsewhere(&self, pool: &Pool) -> Option<Box<Link>> {
        let others: Vec<_> = {
            let pools = self.pools.lock();
            pools.values().filter(|p| p.key.node == pool.key.node && p.key != pool.key).cloned().collect()
        };
        for other in others {
            let mut inner = other.inner.lock();
            if !inner.idle.is_empty() {
                return Some(inner.idle.remove(0));
            }
        }
        None
    }
}

impl Pool {
    /// Cards of its links, oldest first.
    pub fn cards(&self) -> Vec<Arc<LinkCard>> {
        let mut cards: Vec<_> = self.inner.lock().cards.values().cloned().collect();
        cards.sort_by_key(|card| card.serial);
        cards
    }

    pub fn add_card(&self, card: Arc<LinkCard>) {
        self.inner.lock().cards.insert(card.serial, card);
    }

    /// Links at rest, links in all, sessions waiting.
    pub fn census(&self) -> (usize, u32, usize) {
        let inner = self.inner.lock();
        (inner.idle.len(), inner.open, inner.waiters.len())
    }

    /// A link or a permit at once, or a place in the queue.
    ///
    /// Not cancel safe: a dropped wait may hold a link. `give_up` is looked at whenever the task is woken.
    pub async fn lease(self: &Arc<Pool>, w: &Worker, give_up: impl Fn() -> bool) -> Result<Lease, Refusal> {
        let config = w.config();
        let node_max = config.pool.node_connections_max();
        let first = self.try_lease(w, config.pool.size, node_max);
        let (cell, limit) = match first {
            Ok(lease) => return Ok(lease),
            Err(waiting) => waiting,
        };
        w.count(Metric::Waits);
        let since = w.reactor.now();
        let wait_ms = config.pool.wait_timeout_ms;
        let deadline = (wait_ms > 0).then(|| since + std::time::Duration::from_millis(wait_ms));
        loop {
            match std::mem::take(&mut *cell.given.lock()) {
                Given::Link(link) => return Ok(Lease::Link(link)),
                Given::Permit => return Ok(Lease::Permit),
                Given::Nothing | Given::Left => {}
            }
            let timed_out = deadline.is_some_and(|at| w.reactor.now() >= at);
            if timed_out || give_up() {
                self.leave(w, &cell);
                if !timed_out {
                    return Err(Refusal::GaveUp);
                }
                w.count(Metric::WaitTimeouts);
                let limit = if self.inner.lock().paused { Limit::Paused } else { limit };
                return Err(Refusal::TimedOut { waited_ms: since.elapsed().as_millis() as u64, limit });
            }
            if let Some(at) = deadline {
                w.reactor.wake_at(at);
            }
            parked().await;
        }
    }

    /// A link of this worker at rest, if there is one and nobody waits for it: the one used last that `fits`, else the one used last.
    #[inline]
    pub fn take_idle(&self, w: &Worker, fits: impl Fn(&Link) -> bool) -> Option<Box<Link>> {
        let mut inner = self.inner.lock();
        if !inner.waiters.is_empty() || inner.paused {
            return None;
        }
        let fitting = inner.idle.iter().rposition(|link| link.home == w.id && fits(link));
        let at = fitting.or_else(|| inner.idle.iter().rposition(|link| link.home == w.id))?;
        Some(inner.idle.remove(at))
    }

    fn try_lease(self: &Arc<Pool>, w: &Worker, open_max: u32, node_max: u32) -> Result<Lease, (Arc<Cell>, Limit)> {
        let pools = &w.shared.pools;
        let budget = pools.budget(self.key.node);
        let mut inner = self.inner.lock();
        let counts = Counts {
            idle: inner.idle.len() as u32,
            open: inner.open,
            waiting: inner.waiters.len() as u32,
            open_max,
            node_open: budget.open.load(Ordering::Relaxed),
            node_open_max: node_max,
            // Looked for below, without this pool's lock.
            node_idle_elsewhere: 0,
        };
        let granted = if inner.paused { Grant::Wait } else { grant(counts) };
        match granted {
            Grant::Take => {
                if let Some(link) = take_near(&mut inner.idle, w.id) {
                    return Ok(Lease::Link(link));
                }
            }
            Grant::Open | Grant::OpenInPlaceOfAnother => {
                inner.open += 1;
                budget.open.fetch_add(1, Ordering::Relaxed);
                return Ok(Lease::Permit);
            }
            Grant::Wait => {}
        }
        let cell = Arc::new(Cell::default());
        let task = w.reactor.current_task();
        inner.waiters.push_back(Waiter { worker: w.id, task, since: w.reactor.now(), cell: cell.clone() });
        if inner.paused {
            return Err((cell, Limit::Paused));
        }
        if inner.open >= open_max {
            return Err((cell, Limit::PoolSize(open_max)));
        }
        // Only the node's limit stands in the way: another pool's link at rest makes room. What was freed between the look at the
        // counts and this place in the queue is found here too.
        drop(inner);
        budget.starved.lock().push_back(self.clone());
        budget.starved_count.fetch_add(1, Ordering::Relaxed);
        if budget.open.load(Ordering::Relaxed) >= node_max
            && let Some(link) = pools.take_idle_elsewhere(self)
        {
            w.close_link(link);
        }
        pools.feed_starved(w, self.key.node);
        Err((cell, Limit::Node(node_max)))
    }

    /// Leaves the queue; what was given in the same moment goes to the next.
    fn leave(self: &Arc<Pool>, w: &Worker, cell: &Arc<Cell>) {
        self.inner.lock().waiters.retain(|waiter| !Arc::ptr_eq(&waiter.cell, cell));
        match std::mem::replace(&mut *cell.given.lock(), Given::Left) {
            Given::Link(link) => self.give_back(w, link),
            Given::Permit => self.release_permit(w),
            Given::Nothing | Given::Left => {}
        }
    }

    /// Returns a clean link: to the longest waiter, of this pool or of one that only lacks the node's permission; else to rest.
    pub fn give_back(self: &Arc<Pool>, w: &Worker, link: Box<Link>) {
        let budget = w.shared.pools.budget(self.key.node);
        if budget.starved_count.load(Ordering::Relaxed) > 0 && self.yields_to_starved(budget) {
            return w.close_link(link);
        }
        if !link.is_of_these_passwords(w) || link.card.doomed.load(Ordering::Relaxed) {
            return w.close_link(link);
        }
        link.at_rest(w.reactor.now());
        let waiter = {
            let mut inner = self.inner.lock();
            if inner.paused {
                drop(inner);
                return w.close_link(link);
            }
            match inner.waiters.pop_front() {
                Some(waiter) => waiter,
                None => {
                    inner.idle.push(link);
                    return;
                }
            }
        };
        self.hand(w, waiter, Given::Link(link));
    }

    /// Whether a pool that lacks the node's permission has waited longer than anyone here.
    fn yields_to_starved(&self, budget: &NodeBudget) -> bool {
        let Some((pool, starved_since)) = budget.front_starved() else { return false };
        if pool.key == self.key {
            return false;
        }
        let ours = self.inner.lock().waiters.front().map(|waiter| waiter.since);
        ours.is_none_or(|ours| starved_since < ours)
    }

    fn hand(self: &Arc<Pool>, w: &Worker, waiter: Waiter, given: Given) {
        {
            let mut cell = waiter.cell.given.lock();
            if matches!(*cell, Given::Left) {
                drop(cell);
                return match given {
                    Given::Link(link) => self.give_back(w, link),
                    Given::Permit => self.release_permit(w),
                    Given::Nothing | Given::Left => {}
                };
            }
            *cell = given;
        }
        if waiter.worker == w.id {
            w.reactor.wake(waiter.task);
        } else {
            w.shared.mailboxes[usize::from(waiter.worker)].send(Message::Wake(waiter.task));
        }
    }

    /// A link is gone, or could not be opened: its place goes to whoever waited longest, here or at the node.
    pub fn release_permit(self: &Arc<Pool>, w: &Worker) {
        let budget = w.shared.pools.budget(self.key.node);
        let yields = budget.starved_count.load(Ordering::Relaxed) > 0 && self.yields_to_starved(budget);
        let waiter = {
            let mut inner = self.inner.lock();
            let waiter = if yields || inner.paused { None } else { inner.waiters.pop_front() };
            if waiter.is_none() {
                inner.open -= 1;
                budget.open.fetch_sub(1, Ordering::Relaxed);
                if !inner.waiters.is_empty() && !inner.paused {
                    // Those who wait here now lack the node's permission, too.
                    budget.starved.lock().push_back(self.clone());
                    budget.starved_count.fetch_add(1, Ordering::Relaxed);
                }
            }
            waiter
        };
        match waiter {
            Some(waiter) => self.hand(w, waiter, Given::Permit),
            None => w.shared.pools.feed_starved(w, self.key.node),
        }
    }

    /// A link of this pool was closed.
    pub fn forget(self: &Arc<Pool>, w: &Worker, serial: u64) {
        self.inner.lock().cards.remove(&serial);
        self.release_permit(w);
    }

    /// Closes the pool: links at rest go now, the others when they come back. Who asks for one waits.
    pub fn pause(self: &Arc<Pool>, w: &Worker) {
        self.inner.lock().paused = true;
        self.retire(|_| true).into_iter().for_each(|link| w.close_link(link));
    }

    /// Opens the pool again, for those who wait too.
    pub fn resume(self: &Arc<Pool>, w: &Worker) {
        let waiting = {
            let mut inner = self.inner.lock();
            inner.paused = false;
            inner.waiters.len()
        };
        // One entry for each, as if all had come just now: as many links are opened at once as the limits allow.
        let budget = w.shared.pools.budget(self.key.node);
        budget.starved.lock().extend(std::iter::repeat_n(self, waiting).cloned());
        budget.starved_count.fetch_add(waiting as u32, Ordering::Relaxed);
        w.shared.pools.feed_starved(w, self.key.node);
    }

    /// Has every link closed: those at rest now, the others when they come back.
    pub fn renew(self: &Arc<Pool>, w: &Worker) {
        let gone = {
            let mut inner = self.inner.lock();
            inner.cards.values().for_each(|card| card.doomed.store(true, Ordering::Relaxed));
            std::mem::take(&mut inner.idle)
        };
        gone.into_iter().for_each(|link| w.close_link(link));
    }

    /// Whether a link waits to be closed.
    pub fn has_doomed(&self) -> bool {
        self.inner.lock().cards.values().any(|card| card.doomed.load(Ordering::Relaxed))
    }

    /// Since when the first one waits.
    pub fn waits_since(&self) -> Option<Instant> {
        self.inner.lock().waiters.front().map(|waiter| waiter.since)
    }

    /// Takes the links at rest that `retire` says are to go.
    pub fn retire(&self, mut retire: impl FnMut(&Link) -> bool) -> Vec<Box<Link>> {
        let mut inner = self.inner.lock();
        let (gone, kept) = std::mem::take(&mut inner.idle).into_iter().partition(|link| retire(link));
        inner.idle = kept;
        gone
    }
}

impl NodeBudget {
    /// The pool that has lacked the node's permission for longest, and since when its first session waits. Entries of pools where
    /// nobody waits any more are dropped on the way.
    fn front_starved(&self) -> Option<(Arc<Pool>, Instant)> {
        loop {
            let pool = self.starved.lock().front().cloned()?;
            let since = {
                let inner = pool.inner.lock();
                inner.waiters.front().filter(|_| !inner.paused).map(|waiter| waiter.since)
            };
            if let Some(since) = since {
                return Some((pool, since));
            }
            self.drop_starved(&pool);
        }
    }

    fn drop_starved(&self, pool: &Arc<Pool>) {
        let mut starved = self.starved.lock();
        if starved.front().is_some_and(|front| Arc::ptr_eq(front, pool)) {
            starved.pop_front();
            self.starved_count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Pools {
    /// Lets starved pools of a node open links, the longest waiting first, as far as the limits allow.
    fn feed_starved(&self, w: &Worker, node: u16) {
        let (size, node_max) = {
            let config = w.peek_config();
            (config.pool.size, config.pool.node_connections_max())
        };
        let budget = self.budget(node);
        while budget.starved_count.load(Ordering::Relaxed) > 0 && budget.open.load(Ordering::Relaxed) < node_max {
            let Some((pool, _)) = budget.front_starved() else { return };
            budget.drop_starved(&pool);
            let waiter = {
                let mut inner = pool.inner.lock();
                // At its own limit it is not the node that it lacks: its own links come back to it.
                if inner.paused || inner.open >= size {
                    continue;
                }
                let Some(waiter) = inner.waiters.pop_front() else { continue };
                inner.open += 1;
                budget.open.fetch_add(1, Ordering::Relaxed);
                waiter
            };
            pool.hand(w, waiter, Given::Permit);
        }
    }

    /// Forgets the pools of a user and database that no server let in, so that invented names leave nothing behind.
    pub fn forget_unused(&self, user: &str, database: &str) {
        self.pools.lock().retain(|key, pool| {
            let inner = pool.inner.lock();
            &*key.user != user || &*key.database != database || inner.open > 0 || !inner.waiters.is_empty()
        });
    }
}

/// The link used last, of this worker if there is one: its server's caches are the warmest.
fn take_near(idle: &mut Idle, worker: WorkerId) -> Option<Box<Link>> {
    match idle.iter().rposition(|link| link.home == worker) {
        Some(at) => Some(idle.remove(at)),
        None => idle.pop(),
    }
}
