//! Answers that lie in a store: asked for while the client's message waits, given out if they prove themselves.

use super::{Context, Fetched, Key, Session, fresh};
use crate::causal;
use crate::metrics::Metric;
use crate::query_cache::cached_results::{CachedResults, Fill};
use crate::query_cache::result_store::{Pending, Store, digest_of};
use std::rc::Rc;
use weir_cache::{Deps, Kept, Slot, Why};

/// The result of asking the store.
pub(super) enum Look {
    /// It is on its way: the message waits.
    Wait,
    /// The bytes to send, and the round that shows what they show.
    Hit { bytes: Vec<u8>, round: u64 },
    /// It has no answer; one that is asked for now hangs on this.
    Miss(Deps),
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
    stores: &Rc<dyn Store>,
    key: &[u8],
    slots: &[Slot],
) -> Look {
    let fetched = s.cache.waits_now().and_then(|waits| waits.fetch.take());
    let Some(fetched) = fetched.filter(|fetched| fetched.fetch.is_for(key)) else {
        return ask(s, w, stores, key);
    };
    if !fetched.fetch.is_over() {
        s.cache.waits().fetch = Some(fetched);
        return Look::Wait;
    }
    let Some(answer) = fetched.fetch.found() else { return Look::Off };
    let took = w.now().saturating_duration_since(fetched.since);
    stores.lookup_policy().store_took(took.as_micros() as u64);
    match answer.and_then(|answer| proven(s, w, answers, &**stores, key, slots, answer)) {
        Some(hit) => hit,
        None => miss(s, answers, slots),
    }
}

fn ask(s: &mut Session, w: &Context, stores: &Rc<dyn Store>, key: &[u8]) -> Look {
    // A session that has a server connection by now has asked before: others would have it meanwhile, and the session would ask for ever.
    if s.has_server() {
        return Look::Off;
    }
    let was_let_in = s.cache.waits_now().is_some_and(|waits| std::mem::take(&mut waits.is_let_in));
    let is_let_in = was_let_in || stores.lookup_policy().asks(stores.hash_of(key));
    if !is_let_in {
        w.count(Metric::CacheStoresSpared);
        s.cache.spared_at = Some(w.now());
        return Look::Off;
    }
    w.follow(&s.account.known);
    // In this order: the covered position was raised before an answer is looked at.
    if !fresh::is_fresh(s, w) {
        if fresh::must_wait(s, w) {
            s.cache.waits().is_let_in = true;
            return Look::Wait;
        }
        s.cache.end_wait();
        return Look::Off;
    }
    s.cache.end_wait();
    let Some(fetch) = stores.fetch(key, s.handle.task.get(), w.now_ms()) else { return Look::Off };
    w.count(Metric::CacheStoresAsked);
    s.host.wake_stores();
    s.cache.waits().fetch = Some(Fetched { fetch, since: w.now() });
    Look::Wait
}

/// The slots that an answer asked for now depends on. In this order: the publisher of another catalog changes the database's slot after it.
fn miss(s: &Session, answers: &CachedResults, slots: &[Slot]) -> Look {
    let deps = answers.versions.begin(slots).filter(|_| s.account.known.edition() == s.reads.place.edition());
    deps.map_or(Look::Off, Look::Miss)
}

/// The store's answer, if it belongs to this key and PostgreSQL would give the same now.
fn proven(
    s: &Session,
    w: &Context,
    answers: &CachedResults,
    stores: &dyn Store,
    key: &[u8],
    slots: &[Slot],
    mut answer: Vec<u8>,
) -> Option<Look> {
    let kept = Kept::read(&answer).filter(|kept| kept.key == key)?;
    let round = match &kept.why {
        Why::Words { deps, round } => (answers.versions.begin(slots)? == *deps).then_some(*round),
        Why::Position { slots: own, proof } if own == slots => s.account.known.follow.admits(w.primary_node(), slots, proof),
        Why::Position { .. } => None,
    }?;
    stores.lookup_policy().server_took(kept.took_us);
    let head_bytes = answer.len() - kept.bytes.len();
    answer.drain(..head_bytes);
    Some(Look::Hit { bytes: answer, round })
}

/// An answer of a server's that may be kept.
pub(super) struct Result<'a> {
    pub(super) key: Key,
    pub(super) deps: Deps,
    pub(super) bytes: &'a [u8],
    /// It begins after the answer has come.
    pub(super) round: u64,
    pub(super) took_us: u64,
    /// The sessions that wait for it: taken where it is not stored yet.
    pub(super) flight: &'a mut Option<Fill>,
}

/// Has it stored, where Weirs share the store as soon as the log proves it. True: it is on its way.
pub(super) fn keep(s: &Session, w: &Context, stores: &dyn Store, result: Result<'_>) -> bool {
    let Result { key, deps, bytes, round, took_us, flight } = result;
    stores.lookup_policy().server_took(took_us);
    let digest = digest_of(&key);
    let is_on_its_way = if stores.is_shared() {
        let (database, at_ms, flight) = (s.account.known.clone(), w.now_ms(), flight.take());
        stores.await_proof(Pending { digest, key, bytes: bytes.into(), took_us, deps, database, round, at_ms, flight });
        causal::want(w, round);
        false
    } else {
        stores.put(&digest, &Kept { took_us, why: Why::Words { deps, round }, key: &key, bytes })
    };
    s.host.wake_stores();
    is_on_its_way
}
