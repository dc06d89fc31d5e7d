//! `causal_reads = tables`: changes by any session to the relations that a read shows, noted in `table_changes`.

use crate::causal::seen_positions::ChangeToShow;
use crate::context::Context;
use crate::query_cache::cached_results::TextCacheFacts;
use crate::routing::classify;
use crate::session::Session;
use crate::statements::Statement;
use std::rc::Rc;
use weir_cache::{Slot, TableVersions};

/// Tables checked one by one; with more, any change in the database counts.
const TABLES_MAX: usize = 64;

/// Reads whose answers share a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotExtent {
    One,
    /// Not all statements are known yet: a pipeline, or a transaction with one snapshot.
    Open,
}

/// Returns the round that covers all changes by anybody; 0: none.
#[inline]
pub fn newest(s: &Session, w: &Context) -> u64 {
    let changes = &w.shared.changes;
    changes.track(|| w.shared.positions.next_round());
    w.follow(&s.account.known);
    changes.versions.newest()
}

/// Returns the last change that a statement's answer may show. `newest`: the round of any.
#[inline]
pub fn to_show(s: &mut Session, w: &Context, statement: &Statement, extent: SnapshotExtent, newest: u64) -> ChangeToShow {
    if newest <= w.shared.positions.shown_by_all() {
        // All standbys show every change: a lookup would save no wait.
        return ChangeToShow { round: newest, slot: None };
    }
    last_shown(s, w, statement, extent)
}

/// Apart, so that the usual read pays for no call.
#[inline(never)]
fn last_shown(s: &mut Session, w: &Context, statement: &Statement, extent: SnapshotExtent) -> ChangeToShow {
    let versions = &w.shared.changes.versions;
    let database = s.account.known.slot(versions);
    match statement.caching.as_deref() {
        Some(caching) if extent == SnapshotExtent::One => {
            let place = classify::place_of(s, w);
            let known = caching.shows.look(place, |slots| last_change(versions, database, slots.as_deref()));
            known.unwrap_or_else(|| last_change(versions, database, slots_shown(s, w, caching, place).as_deref()))
        }
        Some(_) | None => last_change(versions, database, None),
    }
}

/// `None`: of anything in the database.
#[inline]
pub(super) fn last_change(versions: &TableVersions, database: Slot, slots: Option<&[Slot]>) -> ChangeToShow {
    let Some(slots) = slots else {
        return ChangeToShow { round: versions.last_of(database), slot: None };
    };
    let mut last = ChangeToShow::default();
    for slot in slots {
        let round = versions.round_to_show(&[*slot]);
        if round > last.round {
            last = ChangeToShow { round, slot: Some(*slot) };
        }
    }
    last
}

/// Returns the slots of tables, plus those for changes of unknown extent.
pub(super) fn slots_of(versions: &TableVersions, database: &str, tables: &[u32]) -> Rc<[Slot]> {
    let shared = [versions.of_all(), versions.of_database(database)];
    shared.into_iter().chain(tables.iter().map(|oid| versions.of_table(database, *oid))).collect()
}

/// Returns the slots a statement may show; `None`: any relation of its database.
#[cold]
fn slots_shown(s: &Session, w: &Context, caching: &TextCacheFacts, place: u64) -> Option<Rc<[Slot]>> {
    if place == 0 {
        return None;
    }
    let catalog = s.account.known.catalog()?;
    let tables = caching.text.tables_shown(&catalog, &classify::path_in(s, &catalog));
    let slots = tables
        .filter(|tables| tables.len() <= TABLES_MAX)
        .map(|tables| slots_of(&w.shared.changes.versions, &s.account.database, &tables));
    if s.account.known.edition() == s.reads.place.edition() {
        caching.shows.note(place, slots.clone());
    }
    slots
}
