//! `causal_reads = tables`: changes by any session to the relations that a read shows, noted in `table_changes`.

use crate::causal::seen_positions::ChangeToShow;
use crate::context::Context;
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

/// Returns the last change that a statement's answer may show.
#[inline]
pub fn to_show(s: &mut Session, w: &Context, statement: &Statement, extent: SnapshotExtent) -> ChangeToShow {
    let changes = &w.shared.changes;
    changes.track(|| w.shared.positions.next_round());
    w.follow(&s.account.known);
    let versions = &changes.versions;
    let newest = versions.newest();
    if newest <= w.shared.positions.shown_by_all() {
        // All standbys show every change: a lookup would save no wait.
        return ChangeToShow { round: newest, slot: None };
    }
    let slots = if extent == SnapshotExtent::One { slots_shown(s, w, statement) } else { None };
    last_change(versions, s.account.known.slot(versions), slots.as_deref())
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
#[inline]
fn slots_shown(s: &mut Session, w: &Context, statement: &Statement) -> Option<Rc<[Slot]>> {
    let caching = statement.caching.as_deref()?;
    let place = classify::place_of(s, w);
    if place == 0 {
        return None;
    }
    if let Some(known) = caching.shows.at(place) {
        return known;
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
