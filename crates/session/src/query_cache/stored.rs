//! Answers in a network store, served if proven.

use super::{Context, Key, Session, TimedStoreFetch, fresh};
use crate::causal;
use crate::metrics::WorkerCounter;
use crate::query_cache::cached_results::{CacheFill, CachedResults};
use crate::query_cache::result_store::{PendingAnswer, ResultStore, digest_of};
use std::rc::Rc;
use weir_cache::{ResultDependencies, ResultValidity, Slot, StoredResult};

pub(super) enum StoreLookupResult {
    /// Under way: the message waits.
    Wait,
    /// The bytes, and the round that covers what they show.
    Hit { bytes: Vec<u8>, round: u64 },
    /// With the dependencies of an answer asked for now.
    Miss(ResultDependencies),
    /// No answer, and none may be stored.
    Off,
}

/// Returns the full key. In a shared store it begins with this Weir's knowledge of definitions and rights: after a change, earlier
/// answers are not found.
pub(super) fn full(s: &Session, w: &Context, key: Key) -> Key {
    match &w.store {
        Some(stores) if stores.is_shared() => [&s.account.known.print().to_le_bytes(), &*key].concat().into(),
        Some(_) | None => key,
    }
}

/// Requests the answer of a key, or takes the store's reply.
pub(super) fn look(
    s: &mut Session,
    w: &Context,
    answers: &CachedResults,
    stores: &Rc<dyn ResultStore>,
    key: &[u8],
    slots: &[Slot],
) -> StoreLookupResult {
    let fetched = s.cache.waits_now().and_then(|waits| waits.fetch.take());
    let Some(fetched) = fetched.filter(|fetched| fetched.fetch.is_for(key)) else {
        return ask(s, w, stores, key);
    };
    if !fetched.fetch.is_over() {
        s.cache.waits().fetch = Some(fetched);
        return StoreLookupResult::Wait;
    }
    let Some(answer) = fetched.fetch.found() else { return StoreLookupResult::Off };
    let took = w.now().saturating_duration_since(fetched.since);
    stores.lookup_policy().store_took(took.as_micros() as u64);
    match answer.and_then(|answer| proven(s, w, answers, &**stores, key, slots, answer)) {
        Some(hit) => hit,
        None => miss(s, answers, slots),
    }
}

fn ask(s: &mut Session, w: &Context, stores: &Rc<dyn ResultStore>, key: &[u8]) -> StoreLookupResult {
    // A session with a server connection has asked before, and would go on for ever.
    if s.has_server() {
        return StoreLookupResult::Off;
    }
    let was_let_in = s.cache.waits_now().is_some_and(|waits| std::mem::take(&mut waits.is_let_in));
    let is_let_in = was_let_in || stores.lookup_policy().asks(stores.hash_of(key));
    if !is_let_in {
        w.count(WorkerCounter::CacheStoresSpared);
        s.cache.spared_at = Some(w.now());
        return StoreLookupResult::Off;
    }
    w.follow(&s.account.known);
    // Before the lookup: the covered position was raised before.
    if !fresh::is_fresh(s, w) {
        if fresh::must_wait(s, w) {
            s.cache.waits().is_let_in = true;
            return StoreLookupResult::Wait;
        }
        s.cache.end_wait();
        return StoreLookupResult::Off;
    }
    s.cache.end_wait();
    let Some(fetch) = stores.fetch(key, s.handle.task.get(), w.now_ms()) else { return StoreLookupResult::Off };
    w.count(WorkerCounter::CacheStoresAsked);
    s.host.wake_stores();
    s.cache.waits().fetch = Some(TimedStoreFetch { fetch, since: w.now() });
    StoreLookupResult::Wait
}

/// In this order: after another catalog its publisher changes the database's slot.
fn miss(s: &Session, answers: &CachedResults, slots: &[Slot]) -> StoreLookupResult {
    let deps = answers.versions.begin(slots).filter(|_| s.account.known.edition() == s.reads.place.edition());
    deps.map_or(StoreLookupResult::Off, StoreLookupResult::Miss)
}

/// Returns the answer if PostgreSQL would give the same now.
fn proven(
    s: &Session,
    w: &Context,
    answers: &CachedResults,
    stores: &dyn ResultStore,
    key: &[u8],
    slots: &[Slot],
    mut answer: Vec<u8>,
) -> Option<StoreLookupResult> {
    let kept = StoredResult::read(&answer).filter(|kept| kept.key == key)?;
    let round = match &kept.why {
        ResultValidity::Words { deps, round } => (answers.versions.begin(slots)? == *deps).then_some(*round),
        ResultValidity::Position { slots: own, proof } if own == slots => {
            s.account.known.follow.admits(w.primary_node(), slots, proof)
        }
        ResultValidity::Position { .. } => None,
    }?;
    stores.lookup_policy().server_took(kept.took_us);
    let head_bytes = answer.len() - kept.bytes.len();
    answer.drain(..head_bytes);
    Some(StoreLookupResult::Hit { bytes: answer, round })
}

pub(super) struct CacheableResult<'a> {
    pub(super) key: Key,
    pub(super) deps: ResultDependencies,
    pub(super) bytes: &'a [u8],
    /// Begins after the answer.
    pub(super) round: u64,
    pub(super) took_us: u64,
    /// Taken if the answer is not stored yet.
    pub(super) flight: &'a mut Option<CacheFill>,
}

/// Stores a result, in a shared store once the log proves it. True: it is on its way.
pub(super) fn keep(s: &Session, w: &Context, stores: &dyn ResultStore, result: CacheableResult<'_>) -> bool {
    let CacheableResult { key, deps, bytes, round, took_us, flight } = result;
    stores.lookup_policy().server_took(took_us);
    let digest = digest_of(&key);
    let is_on_its_way = if stores.is_shared() {
        let (database, at_ms, flight) = (s.account.known.clone(), w.now_ms(), flight.take());
        stores.await_proof(PendingAnswer { digest, key, bytes: bytes.into(), took_us, deps, database, round, at_ms, flight });
        causal::want(w, round);
        false
    } else {
        stores.put(&digest, &StoredResult { took_us, why: ResultValidity::Words { deps, round }, key: &key, bytes })
    };
    s.host.wake_stores();
    is_on_its_way
}
