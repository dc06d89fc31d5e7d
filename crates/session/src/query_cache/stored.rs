//! Answers that lie in a store: asked for while the client's message waits, given out if they prove themselves.

use super::{Context, Key, Session, TimedStoreFetch, fresh};
use crate::causal;
use crate::metrics::WorkerCounter;
use crate::query_cache::cached_results::{CacheFill, CachedResults};
use crate::query_cache::result_store::{PendingAnswer, ResultStore, digest_of};
use std::rc::Rc;
use weir_cache::{ResultDependencies, ResultValidity, Slot, StoredResult};

/// The result of asking the store.
pub(super) enum StoreLookupResult {
    /// It is on its way: the message waits.
    Wait,
    /// The bytes to send, and the round that shows what they show.
    Hit { bytes: Vec<u8>, round: u64 },
    /// It has no answer; one that is asked for now hangs on this.
    Miss(ResultDependencies),
    /// Nothing is stored either: the store was not asked, or something is about to change.
    Off,
}

/// The key under which an answer is kept. Where Weirs share the store it begins with what this one knows of definitions and rights: an answer
/// of before a change is not found by who has seen the change.
pub(super) fn full(s: &Session, w: &Context, key: Key) -> Key {
    match &w.store {
        Some(stores) if stores.is_shared() => [&s.account.known.print().to_le_bytes(), &*key].concat().into(),
        Some(_) | None => key,
    }
}

/// Asks the store for the answer to a key, or looks at what it said.
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
    // A session that has a server connection by now has asked before: others would have it meanwhile, and the session would ask for ever.
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
    // In this order: the covered position was raised before an answer is looked at.
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

/// The slots that an answer asked for now depends on. In this order: the publisher of another catalog changes the database's slot after it.
fn miss(s: &Session, answers: &CachedResults, slots: &[Slot]) -> StoreLookupResult {
    let deps = answers.versions.begin(slots).filter(|_| s.account.known.edition() == s.reads.place.edition());
    deps.map_or(StoreLookupResult::Off, StoreLookupResult::Miss)
}

/// The store's answer, if it belongs to this key and PostgreSQL would give the same now.
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

/// An answer of a server's that may be kept.
pub(super) struct CacheableResult<'a> {
    pub(super) key: Key,
    pub(super) deps: ResultDependencies,
    pub(super) bytes: &'a [u8],
    /// It begins after the answer has come.
    pub(super) round: u64,
    pub(super) took_us: u64,
    /// The sessions that wait for it: taken where it is not stored yet.
    pub(super) flight: &'a mut Option<CacheFill>,
}

/// Has it stored, where Weirs share the store as soon as the log proves it. True: it is on its way.
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
