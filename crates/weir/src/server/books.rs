//! Takes to the stores what the primary's log tells of writes past us, and has it count as covered when they know. A task of the first worker,
//! where answers are kept in a store and `memqcache_invalidation = wal`. Decisions are `policy::cache`'s (`Follower`, `Ledger`).

use crate::io::reactor::parked;
use crate::process::worker::Worker;
use crate::server::catalogs::Database;
use crate::server::stores::Stores;
use crate::server::{follower, shelf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_policy::cache::LedgerEntry;

/// After a fault: what was to be told may be told by half. It counts as changed, and each database is followed from the beginning.
pub fn give_up(w: &Worker, stores: &Stores) {
    stores.unfollow_all();
    let next = w.shared.positions.next_round();
    for database in w.shared.catalogs.all() {
        database.follow.fail(next);
    }
}

/// Until the worker ends: then `Stores::leave` settles what was raised.
pub async fn keep(w: Rc<Worker>, stores: Rc<Stores>) {
    stores.common.books.store(w.reactor.current_task(), Ordering::SeqCst);
    let mut databases: Vec<Arc<Database>> = Vec::new();
    while !stores.is_leaving() {
        take_in(&w, &mut databases);
        stores.set_now(w.now_ms());
        stores.note_lags();
        databases.retain(|database| {
            let is_done = tell(&w, &stores, database);
            if !is_done {
                stores.wait(w.reactor.current_task());
            }
            !is_done || database.follow.is_watched()
        });
        shelf::wake(&w, &stores);
        parked().await;
    }
}

/// One that is forgotten by now may still have something to be told.
fn take_in(w: &Worker, databases: &mut Vec<Arc<Database>>) {
    for database in w.shared.catalogs.all() {
        if database.follow.is_watched() && !databases.iter().any(|known| Arc::ptr_eq(known, &database)) {
            databases.push(database);
        }
    }
}

/// Whether the stores know of all.
fn tell(w: &Worker, stores: &Stores, database: &Database) -> bool {
    // First of all: what is raised and settled next may be on its way for a while.
    let is_done = confirm(w, stores, database);
    let entries = database.follow.take_entries(|| stores.next_write());
    if entries.is_empty() {
        return is_done;
    }
    for entry in entries {
        match entry {
            LedgerEntry::Raise(slots, number) => slots.iter().for_each(|slot| stores.follow(*slot, number)),
            LedgerEntry::Settle(slots) => slots.iter().for_each(|slot| stores.unfollow(*slot)),
        }
    }
    confirm(w, stores, database)
}

fn confirm(w: &Worker, stores: &Stores, database: &Database) -> bool {
    let before = database.follow.covered();
    let is_done = database.follow.confirm(|slot, number| stores.is_followed(slot, number));
    if database.follow.covered() != before {
        follower::wake_waiters(w);
    }
    is_done
}
