//! Room under the limits that many pools share: pools that lack only a permission, and whose links are closed for them. Decisions are
//! `policy::pool`'s.

use super::{Ceilings, Given, Limit, Pool, Pools};
use crate::process::worker::Worker;
use crate::server::link::Link;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use weir_policy::pool::makes_room;

impl Pool {
    /// Lets those who wait here for a permission have one, if there is one or another pool's link at rest may be closed. Gives the limit that stood in
    /// the way.
    pub(super) fn make_room(&self, w: &Worker, ceilings: Ceilings) -> Option<Limit> {
        let pools = &w.shared.pools;
        let lacking = pools.lacking(self.key.node, ceilings);
        let is_of_use = {
            let inner = self.inner.lock();
            !inner.paused && inner.open < inner.limits.pool_size && !inner.is_held(w)
        };
        let limit = lacking.as_ref().filter(|_| is_of_use);
        if let Some(link) = limit.and_then(|limit| pools.take_idle_elsewhere(self, limit, w.reactor.now())) {
            w.close_link(link);
        }
        pools.feed_starved(w, self.key.node);
        lacking
    }

    /// Links that it has, and how long its first session has waited.
    fn need(&self, now: Instant) -> (u32, u64) {
        let inner = self.inner.lock();
        let waited = inner.waiters.front().map(|waiter| now.saturating_duration_since(waiter.since));
        (inner.open, waited.map_or(0, |waited| waited.as_millis() as u64))
    }

    /// Whether a pool that lacks only a permission has waited longer than anyone here.
    pub(super) fn yields_to_starved(&self, w: &Worker) -> bool {
        let pools = &w.shared.pools;
        if pools.starved.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let ceilings = Ceilings::of(&w.peek_config());
        let Some((pool, starved_since)) = pools.longest_starved(self.key.node, ceilings) else { return false };
        if pool.key == self.key {
            return false;
        }
        let (ours, open) = {
            let inner = self.inner.lock();
            (inner.waiters.front().map(|waiter| waiter.since), inner.open)
        };
        let (lacks_open, waited_ms) = pool.need(w.reactor.now());
        ours.is_none_or(|ours| starved_since < ours) && makes_room(lacks_open, waited_ms, open, ours.is_none())
    }
}

impl Pools {
    /// The limit that stands in the way of another link to a node, if any does.
    pub(super) fn lacking(&self, node: u16, ceilings: Ceilings) -> Option<Limit> {
        if self.node_open(node) >= ceilings.node {
            return Some(Limit::Node(ceilings.node));
        }
        (self.open() >= ceilings.all).then_some(Limit::All(ceilings.all))
    }

    /// Notes sessions of a pool that wait only for a permission.
    pub(super) fn starve(&self, pool: &Arc<Pool>, count: usize) {
        let budget = self.budget(pool.key.node);
        budget.starved.lock().extend(std::iter::repeat_n(pool, count).cloned());
        budget.starved_count.fetch_add(count as u32, Ordering::Relaxed);
        self.starved.fetch_add(count as u32, Ordering::Relaxed);
    }

    /// Takes a link at rest out of another pool, of this node or of any, to make room: out of the one that has most.
    fn take_idle_elsewhere(&self, pool: &Pool, lacking: &Limit, now: Instant) -> Option<Box<Link>> {
        let (open, waited_ms) = pool.need(now);
        let any_node = matches!(lacking, Limit::All(_));
        let others: Vec<_> = {
            let pools = self.pools.lock();
            pools.values().filter(|p| (any_node || p.key.node == pool.key.node) && p.key != pool.key).cloned().collect()
        };
        let has_idle = |other: &Arc<Pool>| {
            let inner = other.inner.lock();
            (!inner.idle.is_empty() && makes_room(open, waited_ms, inner.open, true)).then_some(inner.open)
        };
        let (_, other) = others.iter().filter_map(|other| Some((has_idle(other)?, other))).max_by_key(|(open, _)| *open)?;
        let mut inner = other.inner.lock();
        (!inner.idle.is_empty()).then(|| inner.idle.remove(0))
    }

    /// The pool of a node that has lacked a permission for longest, and since when its first session waits. Entries of pools where
    /// nobody waits any more are dropped on the way.
    fn front_starved(&self, node: u16) -> Option<(Arc<Pool>, Instant)> {
        loop {
            let pool = self.budget(node).starved.lock().front().cloned()?;
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
        let budget = self.budget(pool.key.node);
        let mut starved = budget.starved.lock();
        if starved.front().is_some_and(|front| Arc::ptr_eq(front, pool)) {
            starved.pop_front();
            budget.starved_count.fetch_sub(1, Ordering::Relaxed);
            self.starved.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Nodes with starved pools whose links stand in the way of one another.
    fn starved_nodes(&self, node: u16, ceilings: Ceilings) -> impl Iterator<Item = u16> {
        let nodes = if ceilings.joins_nodes() { 0..self.nodes.len() as u16 } else { node..node + 1 };
        nodes.filter(|node| self.budget(*node).starved_count.load(Ordering::Relaxed) > 0)
    }

    /// The pool that has lacked a permission for longest, of those that a link to this node could help.
    fn longest_starved(&self, node: u16, ceilings: Ceilings) -> Option<(Arc<Pool>, Instant)> {
        // A link of another node that is closed gives no permission for a node that has all of its own.
        let helps = |other: &u16| *other == node || self.node_open(*other) < ceilings.node;
        let fronts = self.starved_nodes(node, ceilings).filter(helps).filter_map(|node| self.front_starved(node));
        // First of all those who have no link that could come back.
        fronts.min_by_key(|(pool, since)| (pool.inner.lock().open > 0, *since))
    }

    /// Lets starved pools open links, the longest waiting first, as far as the limits allow.
    pub(super) fn feed_starved(&self, w: &Worker, node: u16) {
        if self.starved.load(Ordering::Relaxed) == 0 {
            return;
        }
        let ceilings = Ceilings::of(&w.peek_config());
        while let Some((pool, _)) = self.longest_starved(node, ceilings) {
            if self.feed_one(w, &pool, ceilings) {
                continue;
            }
            // The one that waits longest lacks a permission of its node, perhaps; another node's may be free.
            let others: Vec<u16> = self.starved_nodes(node, ceilings).filter(|node| *node != pool.key.node).collect();
            for node in others {
                while self.front_starved(node).is_some_and(|(pool, _)| self.feed_one(w, &pool, ceilings)) {}
            }
            return;
        }
    }

    /// Lets one session of a starved pool open a link. False: the limits are reached.
    fn feed_one(&self, w: &Worker, pool: &Arc<Pool>, ceilings: Ceilings) -> bool {
        let waiter = {
            let mut inner = pool.inner.lock();
            // At its own limit it is not a permission that it lacks: its own links come back to it.
            if inner.paused || inner.waiters.is_empty() || inner.open >= inner.limits.pool_size || inner.is_held(w) {
                None
            } else {
                if self.permit(pool.key.node, ceilings).is_err() {
                    return false;
                }
                inner.grant_permit(w.now_ms());
                inner.waiters.pop_front()
            }
        };
        self.drop_starved(pool);
        if let Some(waiter) = waiter {
            pool.hand(w, waiter, Given::Permit);
        }
        true
    }
}
