//! Room under limits that several pools share. `longest_wait` decides.
//!
//! A pool waits in the queue of the limit that it lacks: of its node, of its database on that node, or of its user there. At its turn a
//! pool that lacks another limit moves to that queue, so that it blocks no others.
//!
//! A look at a queue locks its pools one by one. So a holder of a pool's lock must not take the lock of a queue.

use super::{ConnLimits, ConnPool, PoolKey, PoolPurpose, PoolRegistry, ReachedLimit, WaiterGrant, WaiterSlot};
use crate::runtime::pool::longest_wait::{CompetingPool, LongestWaitQueue, QueueLook, ROOM_PATIENCE_MS, makes_room};
use crate::runtime::pool::look_places::left_by_looks;
use crate::runtime::pool::server_conn::ServerConn;
use crate::runtime::worker::Worker;
use foldhash::HashMap;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use weir_config::limits::UserLimits;
use weir_session::metrics::NODES_MAX;

const ROOM_PATIENCE: Duration = Duration::from_millis(ROOM_PATIENCE_MS);

/// Server connections of a node, or of one database or user on a node.
#[derive(Default)]
pub(super) struct SharedPoolLimit {
    open: AtomicU32,
    /// Connections of a node that look at catalogs, each in the place of a client's.
    looks: AtomicU32,
    /// Pools with waiters that lack only a permission.
    starved: Mutex<LongestWaitQueue<Instant, Arc<ConnPool>>>,
    /// Length of `starved`.
    starved_count: AtomicU32,
}

impl SharedPoolLimit {
    pub(super) fn open(&self) -> u32 {
        self.open.load(Ordering::Relaxed)
    }
}

/// Returns the limits of a new pool's database and user, shared with other pools on the node.
pub(super) fn budgets_of(key: &PoolKey, pools: &HashMap<PoolKey, Arc<ConnPool>>) -> [Arc<SharedPoolLimit>; 2] {
    let is_apart = |purpose| matches!(purpose, PoolPurpose::Listening | PoolPurpose::Greeting);
    if is_apart(key.purpose) {
        return Default::default();
    }
    let counts = |pool: &&Arc<ConnPool>| pool.key.node == key.node && !is_apart(pool.key.purpose);
    let others = || pools.values().filter(counts);
    let of_database = others().find(|pool| pool.key.client_database == key.client_database).map(|pool| pool.of_database.clone());
    let of_user = others().find(|pool| pool.key.user == key.user).map(|pool| pool.of_user.clone());
    [of_database.unwrap_or_default(), of_user.unwrap_or_default()]
}

impl ConnPool {
    /// Lets waiters have a permission, or closes an idle server connection elsewhere. Returns the limit in the way.
    pub(super) fn make_room(&self, w: &Worker, ceilings: ConnLimits) -> Option<ReachedLimit> {
        let pools = &w.shared.pools;
        let (limits, is_of_use) = {
            let mut inner = self.inner.lock();
            inner.looked_for_room_at = Some(w.now());
            (inner.limits, !inner.paused && inner.open < inner.limits.pool_size && !inner.is_held(w))
        };
        let lacking = pools.lacking(self, &limits, ceilings);
        let limit = lacking.as_ref().filter(|_| is_of_use);
        match limit {
            // Its permission goes to the pool that has waited longest.
            Some(limit) => pools.take_idle_elsewhere(self, limit, w.now()).into_iter().for_each(|conn| w.close_conn(conn)),
            None => pools.feed_starved(w, self),
        }
        lacking
    }

    /// True if closing a server connection of `other` can make room under this limit.
    fn shares(&self, limit: &ReachedLimit, other: &ConnPool) -> bool {
        match limit {
            ReachedLimit::Database(_) => Arc::ptr_eq(&self.of_database, &other.of_database),
            ReachedLimit::User(_) => Arc::ptr_eq(&self.of_user, &other.of_user),
            ReachedLimit::Node(_) => self.key.node == other.key.node,
            ReachedLimit::All(_) => true,
            ReachedLimit::Refused(..) | ReachedLimit::PoolSize(_) | ReachedLimit::Paused => false,
        }
    }

    fn need(&self, now: Instant) -> CompetingPool {
        let inner = self.inner.lock();
        let ms_since = |since: Instant| now.saturating_duration_since(since).as_millis() as u64;
        let waited_ms = inner.waiters.front().map(|waiter| ms_since(waiter.since));
        CompetingPool { open: inner.open, waited_ms, given_ms: inner.given_room_at.map_or(u64::MAX, ms_since) }
    }

    /// True if a returning server connection is to be closed for a starved pool.
    pub(super) fn yields_to_starved(&self, w: &Worker) -> bool {
        let Some((pool, _)) = w.shared.pools.longest_near(w, self) else { return false };
        pool.key != self.key && makes_room(pool.need(w.now()), self.need(w.now()))
    }

    /// True if a free place belongs to a starved pool that has waited longer. Either pool would have to open a server connection.
    pub(super) fn leaves_place_to_starved(&self, w: &Worker) -> bool {
        let Some((pool, since)) = w.shared.pools.longest_near(w, self) else { return false };
        pool.key != self.key && self.waits_since().is_none_or(|ours| since < ours)
    }

    /// Returns when a waiter looks for room: only the first one looks, for all.
    pub(super) fn looks_for_room_at(&self, w: &Worker, cell: &Arc<WaiterSlot>) -> Option<Instant> {
        if self.starving.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let inner = self.inner.lock();
        let first = inner.waiters.front().filter(|first| Arc::ptr_eq(&first.cell, cell))?;
        let since = inner.looked_for_room_at.map_or(first.since, |looked_at| looked_at.max(first.since));
        // Clocks of workers differ by a round of their event loops.
        Some((since + ROOM_PATIENCE).min(w.now() + ROOM_PATIENCE))
    }

    pub(super) fn wake_starved(&self, w: &Worker) {
        if self.starving.load(Ordering::Relaxed) > 0 {
            self.inner.lock().waiters.front().into_iter().for_each(|waiter| waiter.wake(w));
        }
    }
}

impl PoolRegistry {
    pub(super) fn budget(&self, node: u16) -> &Arc<SharedPoolLimit> {
        &self.nodes[usize::from(node) % NODES_MAX]
    }

    fn node_max(&self, node: u16, ceilings: ConnLimits) -> u32 {
        left_by_looks(ceilings.node, self.budget(node).looks.load(Ordering::Relaxed))
    }

    /// Counts a connection that looks at a catalog. It waits for no client's place; clients get that many fewer.
    pub fn look_began(&self, node: u16) {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.budget(node).looks.fetch_add(1, Ordering::Relaxed);
    }

    pub fn look_ended(&self, node: u16) {
        self.looks.fetch_sub(1, Ordering::Relaxed);
        self.budget(node).looks.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns counts and limits for a server connection, narrowest first.
    fn bounds<'a>(
        &'a self,
        pool: &'a ConnPool,
        limits: &UserLimits,
        ceilings: ConnLimits,
    ) -> [(&'a AtomicU32, ReachedLimit, u32); 4] {
        let bound = |max: u32| if max == 0 { u32::MAX } else { max };
        // A login waits for no client's place, but its connection counts.
        let is_free = pool.key.purpose == PoolPurpose::Greeting;
        let shared = |max: u32| if is_free { u32::MAX } else { max };
        let (per_database, per_user) = (limits.conns_per_database, limits.conns_per_user);
        [
            (&pool.of_database.open, ReachedLimit::Database(per_database), bound(per_database)),
            (&pool.of_user.open, ReachedLimit::User(per_user), bound(per_user)),
            (&self.budget(pool.key.node).open, ReachedLimit::Node(ceilings.node), shared(self.node_max(pool.key.node, ceilings))),
            (
                &self.open,
                ReachedLimit::All(ceilings.all),
                shared(left_by_looks(ceilings.all, self.looks.load(Ordering::Relaxed))),
            ),
        ]
    }

    /// Takes the permission to open a server connection. Error: the limit reached.
    pub(super) fn permit(&self, pool: &ConnPool, limits: &UserLimits, ceilings: ConnLimits) -> Result<(), ReachedLimit> {
        let bounds = self.bounds(pool, limits, ceilings);
        for (at, (open, limit, max)) in bounds.iter().enumerate() {
            let more = |open: u32| (open < *max).then_some(open + 1);
            if open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
                for (open, ..) in &bounds[..at] {
                    open.fetch_sub(1, Ordering::Relaxed);
                }
                return Err(limit.clone());
            }
        }
        Ok(())
    }

    pub(super) fn unpermit(&self, pool: &ConnPool) {
        for open in [&pool.of_database.open, &pool.of_user.open, &self.budget(pool.key.node).open, &self.open] {
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(super) fn lacking(&self, pool: &ConnPool, limits: &UserLimits, ceilings: ConnLimits) -> Option<ReachedLimit> {
        let bounds = self.bounds(pool, limits, ceilings);
        bounds.into_iter().find(|(open, _, max)| open.load(Ordering::Relaxed) >= *max).map(|(_, limit, _)| limit)
    }

    fn queue_of<'a>(&'a self, pool: &'a ConnPool, limit: &ReachedLimit) -> &'a Arc<SharedPoolLimit> {
        match limit {
            ReachedLimit::Database(_) => &pool.of_database,
            ReachedLimit::User(_) => &pool.of_user,
            ReachedLimit::Node(_)
            | ReachedLimit::All(_)
            | ReachedLimit::Refused(..)
            | ReachedLimit::PoolSize(_)
            | ReachedLimit::Paused => self.budget(pool.key.node),
        }
    }

    /// Queues a pool whose sessions may wait only for a permission.
    pub(super) fn starve(&self, w: &Worker, pool: &Arc<ConnPool>, ceilings: ConnLimits) {
        let limits = pool.limits();
        let lacking = self.lacking(pool, &limits, ceilings);
        let queue = lacking.map_or(self.budget(pool.key.node), |limit| self.queue_of(pool, &limit));
        if self.enqueue(queue, pool) {
            pool.wake_starved(w);
        }
    }

    /// False: no session waits, or the pool is queued.
    fn enqueue(&self, queue: &SharedPoolLimit, pool: &Arc<ConnPool>) -> bool {
        let Some(since) = pool.waits_since() else { return false };
        let mut starved = queue.starved.lock();
        let is_new = starved.enter(pool.number, since, pool);
        if is_new {
            pool.starving.fetch_add(1, Ordering::Relaxed);
            self.starved.fetch_add(1, Ordering::Relaxed);
            queue.starved_count.store(starved.len() as u32, Ordering::Relaxed);
        }
        is_new
    }

    /// Takes an idle server connection of the pool with most connections under the same limit.
    fn take_idle_elsewhere(&self, pool: &ConnPool, lacking: &ReachedLimit, now: Instant) -> Option<ServerConn> {
        let need = pool.need(now);
        let others: Vec<_> = {
            let pools = self.pools.lock();
            pools.values().filter(|p| pool.shares(lacking, p) && p.key != pool.key).cloned().collect()
        };
        let has_idle = |other: &Arc<ConnPool>| {
            let inner = other.inner.lock();
            let gives = CompetingPool { open: inner.open, waited_ms: None, given_ms: u64::MAX };
            (!inner.idle.is_empty() && makes_room(need, gives)).then_some(inner.open)
        };
        let (_, other) = others.iter().filter_map(|other| Some((has_idle(other)?, other))).max_by_key(|(open, _)| *open)?;
        let mut inner = other.inner.lock();
        (!inner.idle.is_empty()).then(|| inner.idle.remove(0))
    }

    /// Returns the pool of a queue that has waited longest among those that a place would serve. Pools that wait for nothing leave; those
    /// that lack another limit move to its queue.
    fn longest_in(
        &self,
        w: &Worker,
        queue: &Arc<SharedPoolLimit>,
        lacks: impl Fn(&ConnPool, &UserLimits) -> Option<ReachedLimit>,
    ) -> Option<(Arc<ConnPool>, Instant)> {
        let mut moved = Vec::new();
        let found = {
            let mut starved = queue.starved.lock();
            let found = starved.longest(|pool| {
                let (since, limits) = {
                    let inner = pool.inner.lock();
                    // At its `pool_size` a pool waits for its own server connections, not for a permission.
                    let is_served = inner.paused || inner.open >= inner.limits.pool_size || inner.is_held(w);
                    (inner.waiters.front().filter(|_| !is_served).map(|waiter| waiter.since), inner.limits)
                };
                let leaves = || {
                    pool.starving.fetch_sub(1, Ordering::Relaxed);
                    self.starved.fetch_sub(1, Ordering::Relaxed);
                    QueueLook::Nobody
                };
                let Some(since) = since else { return leaves() };
                match lacks(pool, &limits) {
                    None => QueueLook::Waits(since),
                    Some(limit) if !Arc::ptr_eq(self.queue_of(pool, &limit), queue) => {
                        moved.push((pool.clone(), limit));
                        leaves()
                    }
                    // The maximum is the same for all pools.
                    Some(ReachedLimit::Node(_) | ReachedLimit::All(_)) => QueueLook::Closed,
                    Some(_) => QueueLook::Barred,
                }
            });
            queue.starved_count.store(starved.len() as u32, Ordering::Relaxed);
            found
        };
        for (pool, limit) in moved {
            self.enqueue(self.queue_of(&pool, &limit), &pool);
        }
        found.map(|(since, pool)| (pool, since))
    }

    /// Returns the limit of its database or user that a starved pool lacks even after a server connection of `giver` is closed.
    fn lacks_beyond(&self, giver: &ConnPool, pool: &ConnPool, limits: &UserLimits, ceilings: ConnLimits) -> Option<ReachedLimit> {
        let [of_database, of_user, ..] = self.bounds(pool, limits, ceilings);
        let is_lacking = |(open, limit, max): &(&AtomicU32, ReachedLimit, u32)| {
            // A closed connection counts only where `giver` shares the limit.
            let after = open.load(Ordering::Relaxed).saturating_sub(u32::from(pool.shares(limit, giver)));
            after >= *max
        };
        [of_database, of_user].into_iter().find(is_lacking).map(|(_, limit, _)| limit)
    }

    fn queues_near<'a>(&'a self, pool: &'a ConnPool, ceilings: ConnLimits) -> Vec<&'a Arc<SharedPoolLimit>> {
        let node = pool.key.node;
        let nodes = if ceilings.joins_nodes() { 0..self.nodes.len() as u16 } else { node..node + 1 };
        // A closed server connection of another node does not help a node at its own limit.
        let helps = |other: &u16| *other == node || self.node_open(*other) < self.node_max(*other, ceilings);
        let nodes = nodes.filter(helps).map(|node| self.budget(node));
        let queues = nodes.chain([&pool.of_database, &pool.of_user]);
        queues.filter(|queue| queue.starved_count.load(Ordering::Relaxed) > 0).collect()
    }

    /// Returns the pool that has waited longest among those that a closed server connection of `giver` would serve.
    fn longest_near(&self, w: &Worker, giver: &ConnPool) -> Option<(Arc<ConnPool>, Instant)> {
        if self.starved.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let ceilings = ConnLimits::of(&w.peek_config());
        let lacks = |pool: &ConnPool, limits: &UserLimits| self.lacks_beyond(giver, pool, limits, ceilings);
        let queues = self.queues_near(giver, ceilings);
        queues.into_iter().filter_map(|queue| self.longest_in(w, queue, lacks)).min_by_key(|(_, since)| *since)
    }

    /// Lets starved pools open server connections near `near`, which gave something back, longest wait first.
    pub(super) fn feed_starved(&self, w: &Worker, near: &ConnPool) {
        if self.starved.load(Ordering::Relaxed) == 0 {
            return;
        }
        let ceilings = ConnLimits::of(&w.peek_config());
        let lacks = |pool: &ConnPool, limits: &UserLimits| self.lacking(pool, limits, ceilings);
        loop {
            let queues = self.queues_near(near, ceilings);
            let longest = queues.into_iter().filter_map(|queue| self.longest_in(w, queue, lacks)).min_by_key(|(_, since)| *since);
            let Some((pool, _)) = longest else { return };
            self.feed_one(w, &pool, ceilings);
        }
    }

    fn feed_one(&self, w: &Worker, pool: &Arc<ConnPool>, ceilings: ConnLimits) {
        let waiter = {
            let mut inner = pool.inner.lock();
            let is_served = inner.paused || inner.open >= inner.limits.pool_size || inner.is_held(w);
            if is_served || inner.waiters.is_empty() || self.permit(pool, &inner.limits, ceilings).is_err() {
                return;
            }
            inner.given_room_at = Some(w.now());
            inner.grant_permit(w.now_ms());
            inner.waiters.pop_front()
        };
        if let Some(waiter) = waiter {
            pool.hand(w, waiter, WaiterGrant::Permit);
        }
    }
}
