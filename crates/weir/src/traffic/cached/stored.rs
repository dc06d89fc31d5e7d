//! Answers that lie in a store: asked for while the client's message waits, given out if all of it is true.

use super::{Fetched, Session, Worker};
use crate::monitor::metrics::Metric;
use crate::server::shelf;
use crate::server::stores::{Digest, Fetch, Stores};
use sha2::{Digest as _, Sha256};
use std::rc::Rc;
use weir_policy::cache::{Deps, Entry, Kept, Slot, Stamp, settled};
use weir_wire::store::Value;

/// What came of asking the store.
pub(super) enum Look {
    /// It is on its way: the message waits.
    Wait,
    /// The bytes to send.
    Hit(Vec<u8>),
    /// It has no answer; one that is asked for now hangs on this.
    Miss(Deps),
    /// Nothing may be stored either: the store is out of reach, or something is about to change.
    Off,
}

/// The digest of a key.
pub(super) fn digest_of(key: &[u8]) -> Digest {
    Sha256::digest(key).into()
}

/// A digest's first bytes, as good a hash as any.
fn hash_of(digest: &Digest) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|at| digest[at]))
}

/// Asks the store for the answer to a key, or looks at what it said.
pub(super) fn look(s: &mut Session, w: &Worker, stores: &Rc<Stores>, key: &[u8], slots: &[Slot]) -> Look {
    let digest = digest_of(key);
    let fetched = match s.cached.fetch.take().filter(|fetched| fetched.fetch.digest == digest) {
        Some(fetched) => fetched,
        // Who has a link by now has asked before: others would have it meanwhile, and he would ask for ever.
        None if s.link.is_some() => return Look::Off,
        None => {
            let entry = stores.doorkeeper.borrow_mut().judge(hash_of(&digest));
            if entry == Entry::Away {
                w.count(Metric::CacheStoresSpared);
                return Look::Off;
            }
            let Some(fetch) = stores.fetch(digest, slots, w.reactor.current_task(), w.now_ms()) else { return Look::Off };
            w.count(Metric::CacheStoresAsked);
            shelf::wake(w, stores);
            Fetched { fetch, since: w.reactor.now(), entry }
        }
    };
    if !fetched.fetch.is_over() {
        s.cached.fetch = Some(fetched);
        return Look::Wait;
    }
    let looked = judge(s, w, stores, &fetched.fetch, key, slots);
    learn(w, stores, &fetched, &looked);
    shelf::wake(w, stores);
    looked
}

/// Tells the doorkeeper what came of it.
fn learn(w: &Worker, stores: &Stores, fetched: &Fetched, looked: &Look) {
    let mut doorkeeper = stores.doorkeeper.borrow_mut();
    doorkeeper.asked(w.reactor.now().saturating_duration_since(fetched.since).as_micros() as u64);
    if fetched.entry == Entry::First && !matches!(looked, Look::Off) {
        doorkeeper.found(matches!(looked, Look::Hit(_)));
    }
}

fn judge(s: &Session, w: &Worker, stores: &Stores, fetch: &Fetch, key: &[u8], slots: &[Slot]) -> Look {
    let Some((answer, stamps)) = fetch.found().filter(|_| stores.may_give(fetch, w.now_ms())) else { return Look::Off };
    let stamp = |value: &Option<Value>| value.as_ref().and_then(|value| Stamp::parse(&value.bytes));
    let stamps: Vec<Option<Stamp>> = stamps.iter().map(stamp).collect();
    // One that nobody wrote, or that was made at another master, is as good as none.
    slots.iter().zip(&stamps).filter(|(_, stamp)| stamp.is_none()).for_each(|(slot, _)| stores.missed(*slot));
    slots
        .iter()
        .zip(&stamps)
        .for_each(|(slot, stamp)| stamp.iter().for_each(|stamp| stores.sighted(&fetch.digest, *slot, stamp)));
    let Some(deps) = settled(slots, &stamps) else { return Look::Off };
    adopt(s, w, &deps);
    let kept = answer.as_ref().and_then(|value| Kept::read(&value.bytes));
    match kept.filter(|kept| kept.key == key && kept.deps == deps) {
        Some(kept) => Look::Hit(kept.bytes.to_vec()),
        None => Look::Miss(deps),
    }
}

/// Notes changes that other Weirs made: what a standby must show from now on, and that something may be defined otherwise.
fn adopt(s: &Session, w: &Worker, deps: &Deps) {
    let Some(answers) = &w.shared.answers else { return };
    let definitions = [answers.versions.of_all(), answers.versions.of_definitions(&s.pools.database)];
    let mut has_definitions = false;
    let round = w.shared.positions.next_round();
    answers.versions.adopt(deps, round, |slot| has_definitions |= definitions.contains(&slot));
    if has_definitions {
        w.shared.note_change(&s.pools.known);
    }
}
