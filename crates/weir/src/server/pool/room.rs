//! Room under the limits that many pools share: pools that lack only a permission, and pools whose server connections are
//! closed for them. Decisions are in `policy::pool`.
//!
//! A pool waits in the queue of the limit that it lacks: of its node, its database on that node, or its user there. A pool that
//! lacks something else by its turn moves to that queue. So it keeps no pool waiting that lacks only a limit with room.

use super::{Ceilings, Given, Limit, Pool, PoolKey, Pools, Purpose};
use crate::process::worker::Worker;
use crate::server::pool::server_conn::ServerConn;
use foldhash::HashMap;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;
use weir_config::limits::Limits;
use weir_policy::pool::makes_room;
use weir_session::metrics::NODES_MAX;

/// Count that several pools share: the server connections of a node, or those of one database or user on a node.
#[derive(Default)]
pub(super) struct Budget {
    open: AtomicU32,
    /// Pools with waiters that only lack a permission, this one's first of all.
    starved: Mutex<VecDeque<Arc<Pool>>>,
    starved_count: AtomicU32,
}

impl Budget {
    pub(super) fn open(&self) -> u32 {
        self.open.load(Ordering::Relaxed)
    }
}

/// Budgets of a new pool's database and user: those of other pools on the node, or new ones.
pub(super) fn budgets_of(key: &PoolKey, pools: &HashMap<PoolKey, Arc<Pool>>) -> [Arc<Budget>; 2] {
    if key.purpose == Purpose::Listening {
        return Default::default();
    }
    let counts = |pool: &&Arc<Pool>| pool.key.node == key.node && pool.key.purpose != Purpose::Listening;
    let others = || pools.values().filter(counts);
    let of_database = others().find(|pool| pool.key.client_database == key.client_database).map(|pool| pool.of_database.clone());
    let of_user = others().find(|pool| pool.key.user == key.user).map(|pool| pool.of_user.clone());
    [of_database.unwrap_or_default(), of_user.unwrap_or_default()]
}

impl Pool {
    /// Lets waiters here have a permission, if there is one or another pool's server connection at rest may be closed. Returns
    /// the limit that stood in the way.
    pub(super) fn make_room(&self, w: &Worker, ceilings: Ceilings) -> Option<Limit> {
        let pools = &w.shared.pools;
        let (limits, is_of_use) = {
            let inner = self.inner.lock();
            (inner.limits, !inner.paused && inner.open < inner.limits.pool_size && !inner.is_held(w))
        };
        let lacking = pools.lacking(self, &limits, ceilings);
        let limit = lacking.as_ref().filter(|_| is_of_use);
        if let Some(conn) = limit.and_then(|limit| pools.take_idle_elsewhere(self, limit, w.now())) {
            w.close_conn(conn);
        }
        pools.feed_starved(w, self);
        lacking
    }

    /// True if a server connection of the other one that is closed can make room under this limit of ours.
    fn shares(&self, limit: &Limit, other: &Pool) -> bool {
        match limit {
            Limit::Database(_) => Arc::ptr_eq(&self.of_database, &other.of_database),
            Limit::User(_) => Arc::ptr_eq(&self.of_user, &other.of_user),
            Limit::Node(_) => self.key.node == other.key.node,
            Limit::All(_) => true,
            Limit::Refused(..) | Limit::PoolSize(_) | Limit::Paused => false,
        }
    }

    /// Conns that it has, and how long its first session has waited.
    fn need(&self, now: Instant) -> (u32, u64) {
        let inner = self.inner.lock();
        let waited = inner.waiters.front().map(|waiter| now.saturating_duration_since(waiter.since));
        (inner.open, waited.map_or(0, |waited| waited.as_millis() as u64))
    }

    /// True if a pool that lacks only a permission has waited longer than anyone here.
    pub(super) fn yields_to_starved(&self, w: &Worker) -> bool {
        let pools = &w.shared.pools;
        if pools.starved.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let ceilings = Ceilings::of(&w.peek_config());
        let queues = pools.queues_near(self, ceilings);
        let Some((_, pool, starved_since)) = pools.longest_starved(&queues, Some((self, ceilings))) else { return false };
        if pool.key == self.key {
            return false;
        }
        let (ours, open) = {
            let inner = self.inner.lock();
            (inner.waiters.front().map(|waiter| waiter.since), inner.open)
        };
        let (lacks_open, waited_ms) = pool.need(w.now());
        ours.is_none_or(|ours| starved_since < ours) && makes_room(lacks_open, waited_ms, open, ours.is_none())
    }
}

impl Pools {
    pub(super) fn budget(&self, node: u16) -> &Arc<Budget> {
        &self.nodes[usize::from(node) % NODES_MAX]
    }

    /// The counts and limits for a server connection of a pool: the narrowest first.
    fn bounds<'a>(&'a self, pool: &'a Pool, limits: &Limits, ceilings: Ceilings) -> [(&'a AtomicU32, Limit, u32); 4] {
        let bound = |max: u32| if max == 0 { u32::MAX } else { max };
        let (per_database, per_user) = (limits.conns_per_database, limits.conns_per_user);
        [
            (&pool.of_database.open, Limit::Database(per_database), bound(per_database)),
            (&pool.of_user.open, Limit::User(per_user), bound(per_user)),
            (&self.budget(pool.key.node).open, Limit::Node(ceilings.node), ceilings.node),
            (&self.open, Limit::All(ceilings.all), ceilings.all),
        ]
    }

    /// Takes the permission to open one more server connection. Error: the limit that is reached.
    pub(super) fn permit(&self, pool: &Pool, limits: &Limits, ceilings: Ceilings) -> Result<(), Limit> {
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

    /// Gives a permission back.
    pub(super) fn unpermit(&self, pool: &Pool) {
        for open in [&pool.of_database.open, &pool.of_user.open, &self.budget(pool.key.node).open, &self.open] {
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The limit that stands in the way of another server connection, if any does.
    fn lacking(&self, pool: &Pool, limits: &Limits, ceilings: Ceilings) -> Option<Limit> {
        let bounds = self.bounds(pool, limits, ceilings);
        bounds.into_iter().find(|(open, _, max)| open.load(Ordering::Relaxed) >= *max).map(|(_, limit, _)| limit)
    }

    /// Where a pool waits that lacks a permission under a limit.
    fn queue_of<'a>(&'a self, pool: &'a Pool, limit: &Limit) -> &'a Arc<Budget> {
        match limit {
            Limit::Database(_) => &pool.of_database,
            Limit::User(_) => &pool.of_user,
            Limit::Node(_) | Limit::All(_) | Limit::Refused(..) | Limit::PoolSize(_) | Limit::Paused => {
                self.budget(pool.key.node)
            }
        }
    }

    /// Notes sessions of a pool that wait only for a permission.
    pub(super) fn starve(&self, pool: &Arc<Pool>, count: usize, ceilings: Ceilings) {
        let limits = pool.limits();
        let lacking = self.lacking(pool, &limits, ceilings);
        let queue = lacking.map_or(self.budget(pool.key.node), |limit| self.queue_of(pool, &limit));
        // One entry for each waiter: those that were served otherwise leave theirs to others of the pool.
        let waiters = pool.inner.lock().waiters.len();
        let entries = pool.starving.load(Ordering::Relaxed) as usize;
        self.enqueue(queue, pool, count.min(waiters.saturating_sub(entries)));
    }

    fn enqueue(&self, queue: &Budget, pool: &Arc<Pool>, count: usize) {
        queue.starved.lock().extend(std::iter::repeat_n(pool, count).cloned());
        pool.starving.fetch_add(count as u32, Ordering::Relaxed);
        queue.starved_count.fetch_add(count as u32, Ordering::Relaxed);
        self.starved.fetch_add(count as u32, Ordering::Relaxed);
    }

    /// Takes a server connection at rest out of another pool under the same limit, to make room: out of the one that has most.
    fn take_idle_elsewhere(&self, pool: &Pool, lacking: &Limit, now: Instant) -> Option<ServerConn> {
        let (open, waited_ms) = pool.need(now);
        let others: Vec<_> = {
            let pools = self.pools.lock();
            pools.values().filter(|p| pool.shares(lacking, p) && p.key != pool.key).cloned().collect()
        };
        let has_idle = |other: &Arc<Pool>| {
            let inner = other.inner.lock();
            (!inner.idle.is_empty() && makes_room(open, waited_ms, inner.open, true)).then_some(inner.open)
        };
        let (_, other) = others.iter().filter_map(|other| Some((has_idle(other)?, other))).max_by_key(|(open, _)| *open)?;
        let mut inner = other.inner.lock();
        (!inner.idle.is_empty()).then(|| inner.idle.remove(0))
    }

    /// The first pool of a queue, and the time since when its first session waits. Pools where nobody waits any more are
    /// dropped on the way. Pools that a server connection of `giver` does not help move to the queue of the limit they lack.
    fn front_starved(&self, queue: &Budget, giver: Option<(&Pool, Ceilings)>) -> Option<(Arc<Pool>, Instant)> {
        loop {
            let pool = queue.starved.lock().front().cloned()?;
            let (since, limits) = {
                let inner = pool.inner.lock();
                (inner.waiters.front().filter(|_| !inner.paused).map(|waiter| waiter.since), inner.limits)
            };
            let Some(since) = since else {
                self.drop_starved(queue, &pool);
                continue;
            };
            let lacks = giver.and_then(|(giver, ceilings)| self.lacks_beyond(giver, &pool, &limits, ceilings));
            let Some(lacks) = lacks else { return Some((pool, since)) };
            if std::ptr::eq(&raw const **self.queue_of(&pool, &lacks), queue) {
                return None;
            }
            self.move_starved(queue, &pool, &lacks);
        }
    }

    /// The limit of its database or user that a starved pool would still reach if a server connection of another pool were
    /// closed for it.
    fn lacks_beyond(&self, giver: &Pool, pool: &Pool, limits: &Limits, ceilings: Ceilings) -> Option<Limit> {
        let [of_database, of_user, ..] = self.bounds(pool, limits, ceilings);
        let is_lacking = |(open, limit, max): &(&AtomicU32, Limit, u32)| {
            // A server connection of one that shares the limit is one less; the maximum of the other may be higher.
            let after = open.load(Ordering::Relaxed).saturating_sub(u32::from(pool.shares(limit, giver)));
            after >= *max
        };
        [of_database, of_user].into_iter().find(is_lacking).map(|(_, limit, _)| limit)
    }

    /// Has the first entry of a queue wait in the one of the limit that it lacks.
    fn move_starved(&self, queue: &Budget, pool: &Arc<Pool>, lacks: &Limit) {
        if self.drop_starved(queue, pool) {
            self.enqueue(self.queue_of(pool, lacks), pool, 1);
        }
    }

    /// False: it was not the first any more.
    fn drop_starved(&self, queue: &Budget, pool: &Arc<Pool>) -> bool {
        let mut starved = queue.starved.lock();
        let is_first = starved.front().is_some_and(|front| Arc::ptr_eq(front, pool));
        if is_first {
            starved.pop_front();
            pool.starving.fetch_sub(1, Ordering::Relaxed);
            queue.starved_count.fetch_sub(1, Ordering::Relaxed);
            self.starved.fetch_sub(1, Ordering::Relaxed);
        }
        is_first
    }

    /// Queues with starved pools that a server connection of this pool could help.
    fn queues_near<'a>(&'a self, pool: &'a Pool, ceilings: Ceilings) -> Vec<&'a Arc<Budget>> {
        let node = pool.key.node;
        let nodes = if ceilings.joins_nodes() { 0..self.nodes.len() as u16 } else { node..node + 1 };
        // A server connection of another node that is closed gives no permission for a node that has all of its own.
        let helps = |other: &u16| *other == node || self.node_open(*other) < ceilings.node;
        let nodes = nodes.filter(helps).map(|node| self.budget(node));
        let queues = nodes.chain([&pool.of_database, &pool.of_user]);
        queues.filter(|queue| queue.starved_count.load(Ordering::Relaxed) > 0).collect()
    }

    /// The pool that has lacked a permission for longest, of those in these queues, and its queue.
    fn longest_starved<'a>(
        &self,
        queues: &[&'a Arc<Budget>],
        giver: Option<(&Pool, Ceilings)>,
    ) -> Option<(&'a Arc<Budget>, Arc<Pool>, Instant)> {
        let front = |queue: &&'a Arc<Budget>| self.front_starved(queue, giver).map(|(pool, since)| (*queue, pool, since));
        // First of all pools without a server connection that could come back.
        queues.iter().filter_map(front).min_by_key(|(_, pool, since)| (pool.inner.lock().open > 0, *since))
    }

    /// Lets starved pools open server connections, the longest waiting first, as far as the limits allow: those near `near`,
    /// which gave something back.
    pub(super) fn feed_starved(&self, w: &Worker, near: &Pool) {
        if self.starved.load(Ordering::Relaxed) == 0 {
            return;
        }
        let ceilings = Ceilings::of(&w.peek_config());
        let mut queues = self.queues_near(near, ceilings);
        while let Some((queue, pool, _)) = self.longest_starved(&queues, None) {
            let Err(limit) = self.feed_one(w, queue, &pool, ceilings) else { continue };
            if Arc::ptr_eq(self.queue_of(&pool, &limit), queue) {
                // All pools in this queue lack this.
                queues.retain(|other| !Arc::ptr_eq(other, queue));
            } else {
                self.move_starved(queue, &pool, &limit);
            }
        }
    }

    /// Lets one session of a starved pool open a server connection. Error: the limit that is reached.
    fn feed_one(&self, w: &Worker, queue: &Budget, pool: &Arc<Pool>, ceilings: Ceilings) -> Result<(), Limit> {
        let waiter = {
            let mut inner = pool.inner.lock();
            // At its own limit it is not a permission that it lacks: its own server connections come back to it.
            if inner.paused || inner.waiters.is_empty() || inner.open >= inner.limits.pool_size || inner.is_held(w) {
                None
            } else {
                self.permit(pool, &inner.limits, ceilings)?;
                inner.grant_permit(w.now_ms());
                inner.waiters.pop_front()
            }
        };
        self.drop_starved(queue, pool);
        if let Some(waiter) = waiter {
            pool.hand(w, waiter, Given::Permit);
        }
        Ok(())
    }
}
