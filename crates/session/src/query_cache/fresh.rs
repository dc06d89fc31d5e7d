//! Checks that a cached answer shows the writes past Weir that its asker must see; `memqcache_invalidation = proxy` ignores such writes.
//!
//! Check before looking at the answer: the covered position was raised before.

use crate::catalogs::KnownDatabase;
use crate::causal;
use crate::context::Context;
use crate::metrics::WorkerCounter;
use crate::query_cache::cache_side::FreshnessWait;
use crate::session::Session;
use std::time::Duration;

/// Longest wait for a replication slot to go.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between two looks at it.
const LEAVE_PERIOD: Duration = Duration::from_millis(5);

/// True if the log of the database was taken in as far as the session must see.
#[inline]
pub fn is_fresh(s: &Session, w: &Context) -> bool {
    let cache = &w.peek_config().cache;
    !cache.follows_wal || is_covered(s, w, round_needed(s, w), cache.lag_ms_max)
}

/// The round to cover; a wait keeps its first.
fn round_needed(s: &Session, w: &Context) -> u64 {
    match s.cache.wait() {
        Some(wait) => wait.round,
        None if w.peek_config().cache.is_exact => w.shared.positions.next_round(),
        None => causal::round_to_show(s, w),
    }
}

fn is_covered(s: &Session, w: &Context, round: u64, lag_ms_max: u64) -> bool {
    let covered = s.account.known.follow.covered();
    let age_ms = w.now_ms().saturating_sub(covered.asked_ms);
    if age_ms > lag_ms_max / 2 {
        // Ask again before the round is too old.
        causal::want(w, w.shared.positions.next_round());
    }
    covered.shows(round, w.now_ms(), lag_ms_max)
}

/// True if the statement waits for a fresh answer. Coverage wakes it.
pub fn must_wait(s: &mut Session, w: &Context) -> bool {
    let config = w.peek_config();
    let (wait_ms, is_exact) = (config.routing.causal_wait_ms, config.cache.is_exact);
    let is_over = s.cache.wait().is_some_and(|wait| w.now() >= wait.until);
    let follow = &s.account.known.follow;
    if is_over || wait_ms == 0 || !follow.is_hopeful(w.now_ms(), wait_ms) {
        w.count(WorkerCounter::CacheBehind);
        return false;
    }
    // The need does not grow during the wait. Only a new round proves an age.
    let next = w.shared.positions.next_round();
    let wait = s.cache.wait().unwrap_or_else(|| {
        w.count(WorkerCounter::CacheFollowWaits);
        let round = if is_exact { next } else { causal::round_to_show(s, w) };
        FreshnessWait { round, until: w.now() + Duration::from_millis(wait_ms) }
    });
    s.cache.waits().fresh = Some(wait);
    let positions = &w.shared.positions;
    positions.enlist(s.waiter(w), 0);
    // Enlist first, so that later news wakes.
    if is_covered(s, w, wait.round, config.cache.lag_ms_max) {
        s.wake();
    } else {
        positions.want(wait.round.max(positions.next_round()));
        causal::wake_sampler(w);
    }
    s.host.wake_at(wait.until);
    true
}

/// Asks for a round at once if the log has told a commit that no round has shown: it is most likely visible already, and reads would go
/// to servers until the next round.
pub fn hurry(s: &Session, w: &Context) {
    if s.account.known.follow.take_news() {
        w.shared.positions.hurry();
        causal::wake_sampler(w);
    }
}

/// True if the statement waits until the logs of these databases are not followed. A server refuses to drop a database with a slot.
#[cold]
pub fn must_let_go(s: &mut Session, w: &Context, databases: &[String]) -> bool {
    let is_over = s.cache.wait().is_some_and(|wait| w.now() >= wait.until);
    let is_meant = |known: &KnownDatabase| databases.iter().any(|database| **database == *known.name);
    let mut is_followed = false;
    for known in w.shared.catalogs.all() {
        if !is_meant(&known) || !known.follow.is_watched() {
            continue;
        }
        is_followed = true;
        // A client's departure may be unnoticed yet.
        if !w.program.has_clients_of(&known.name) {
            known.follow.leave();
            w.program.look_at(&known);
        }
    }
    if !is_followed || is_over {
        s.cache.end_wait();
        return false;
    }
    let now = w.now();
    let wait = s.cache.wait().unwrap_or(FreshnessWait { round: 0, until: now + LEAVE_TIMEOUT });
    s.cache.waits().fresh = Some(wait);
    s.host.wake_at(now + LEAVE_PERIOD);
    true
}
