//! Answers that lie in a store: asked for while the client's message waits, given out if all of it is true.

use super::{Fetched, Session, Worker, fresh};
use crate::monitor::metrics::Metric;
use crate::server::answers::Answers;
use crate::server::shelf;
use crate::server::stores::{Fetch, Found, Stores};
use std::rc::Rc;
use weir_policy::cache::{Deps, Entry, Kept, Slot, settled};

/// What came of asking the store.
pub(super) enum Look {
    /// It is on its way: the message waits.
    Wait,
    /// The bytes to send, for which a server took so long, and the round that shows what they show.
    Hit { bytes: Vec<u8>, took_us: u64, round: u64 },
    /// It has no answer; one that is asked for now hangs on this.
    Miss(Deps),
    /// Nothing may be stored either: the store is out of reach, or something is about to change.
    Off,
}

/// Asks the store for the answer to a key, or looks at what it said.
pub(super) fn look(s: &mut Session, w: &Worker, answers: &Answers, stores: &Rc<Stores>, key: &[u8], slots: &[Slot]) -> Look {
    let fetched = match s.cached.fetch.take().filter(|fetched| fetched.fetch.is_for(key, slots)) {
        Some(fetched) => fetched,
        // Who has a link by now has asked before: others would have it meanwhile, and he would ask for ever.
        None if s.link.is_some() => return Look::Off,
        None => {
            let judge = || (stores.doorkeeper.borrow_mut().judge(stores.hash_of(key), w.now_ms()), w.reactor.now());
            let (entry, since) = s.cached.entry.take().unwrap_or_else(judge);
            if entry == Entry::Away {
                w.count(Metric::CacheStoresSpared);
                s.cached.spared_at = Some(w.reactor.now());
                return Look::Off;
            }
            fresh::follow(s, w, answers);
            // In this order: what counts as taken in was raised before the stamps are read.
            if !fresh::is_fresh(s, w) {
                if fresh::must_wait(s, w) {
                    s.cached.entry = Some((entry, since));
                    return Look::Wait;
                }
                s.cached.wait = None;
                return Look::Off;
            }
            s.cached.wait = None;
            let Some(fetch) = stores.fetch(key, slots, w.reactor.current_task(), w.now_ms()) else { return Look::Off };
            w.count(Metric::CacheStoresAsked);
            shelf::wake(w, stores);
            Fetched { fetch, since, entry }
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
    if !fetched.fetch.has_failed() {
        doorkeeper.asked(w.reactor.now().saturating_duration_since(fetched.since).as_micros() as u64);
    }
    match looked {
        Look::Hit { took_us, .. } => doorkeeper.found(fetched.entry, Some(*took_us)),
        Look::Miss(_) => doorkeeper.found(fetched.entry, None),
        Look::Wait | Look::Off => {}
    }
}

fn judge(s: &Session, w: &Worker, stores: &Stores, fetch: &Fetch, key: &[u8], slots: &[Slot]) -> Look {
    let Some(Found { answer, stamps }) = fetch.found().filter(|_| stores.may_give(fetch, w.now_ms())) else { return Look::Off };
    for (place, (slot, stamp)) in slots.iter().zip(&stamps).enumerate() {
        match stamp {
            Some(stamp) => stores.sighted(fetch, place, stamp),
            // One that nobody wrote, or that was made at another master, is as good as none.
            None => stores.missed(*slot),
        }
    }
    let Some(deps) = settled(slots, &stamps) else { return Look::Off };
    adopt(s, w, fetch, &deps);
    let Some(mut answer) = answer else { return Look::Miss(deps) };
    match Kept::read(&answer).filter(|kept| kept.key == key && kept.deps == deps) {
        Some(kept) => {
            let (took_us, head) = (kept.took_us, answer.len() - kept.bytes.len());
            answer.drain(..head);
            let round = stores.round_of(fetch, &deps, &answer, w.shared.positions.next_round());
            Look::Hit { bytes: answer, took_us, round }
        }
        None => Look::Miss(deps),
    }
}

/// Notes changes that other Weirs made: what a standby must show from now on, and that something may be defined otherwise.
fn adopt(s: &Session, w: &Worker, fetch: &Fetch, deps: &Deps) {
    let Some(answers) = &w.shared.answers else { return };
    let definitions = [answers.versions.of_all(), answers.versions.of_definitions(&s.pools.database)];
    answers.versions.adopt(deps, fetch.hosts(), w.shared.positions.next_round(), |slot| {
        if definitions.contains(&slot) {
            w.shared.note_change(&s.pools.known);
        }
    });
}
