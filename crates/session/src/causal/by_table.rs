//! Changes by anybody to the relations that a read shows: `causal_reads = tables`. The changes are `table_changes`', which sessions note as they write.

use crate::causal::seen_positions::ChangeToShow;
use crate::context::Context;
use crate::routing::classify;
use crate::session::Session;
use crate::statements::Statement;
use std::rc::Rc;
use weir_cache::{Slot, TableVersions};

/// Tables of a read that are looked at one by one; with more, all of the database count.
const TABLES_MAX: usize = 64;

/// Reads whose answers have one snapshot, or come as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotExtent {
    /// A statement.
    One,
    /// Statements of which not all are known yet: the rest of a pipeline, or of a transaction with one snapshot.
    Open,
}

/// The last change of anything that a statement's answer may show.
#[inline]
pub fn to_show(s: &mut Session, w: &Context, statement: &Statement, extent: SnapshotExtent) -> ChangeToShow {
    let changes = &w.shared.changes;
    changes.track(|| w.shared.positions.next_round());
    w.follow(&s.account.known);
    let versions = &changes.versions;
    let newest = versions.newest();
    if newest <= w.shared.positions.shown_by_all() {
        // No need to look for what the statement shows: this costs no wait.
        return ChangeToShow { round: newest, slot: None };
    }
    let slots = if extent == SnapshotExtent::One { slots_shown(s, w, statement) } else { None };
    last_change(versions, s.account.known.slot(versions), slots.as_deref())
}

/// The last change of these slots; `None`: of anything in the database, whose slot is `database`.
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

/// The slots of tables, and those that stand for any.
pub(super) fn slots_of(versions: &TableVersions, database: &str, tables: &[u32]) -> Rc<[Slot]> {
    let shared = [versions.of_all(), versions.of_database(database)];
    shared.into_iter().chain(tables.iter().map(|oid| versions.of_table(database, *oid))).collect()
}

/// The slots of all that a statement's answer may show. `None`: any relation of its database.
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
