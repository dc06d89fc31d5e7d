//! Changes of tables for the query cache and `causal_reads = tables`. Decisions are in `weir_cache`.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_cache::{Slot, TableVersions, WriterOutcome};

/// 256 KB. Tables that share a slot invalidate each other's results and wait for each other's changes.
const SLOTS: usize = 16 << 10;

/// Most slots with their own count of late reads.
const COUNTED_MAX: usize = 1024;

#[derive(Debug)]
pub struct TableChanges {
    pub versions: Arc<TableVersions>,
    doubts: Mutex<Vec<UnsettledWriter>>,
    /// True if changes are noted for reads on standbys. Never reset.
    is_tracking: AtomicBool,
    /// True if changes before the tracking are covered. Set after `is_tracking`.
    is_complete: AtomicBool,
    late: Mutex<HashMap<Counted, LateReads>>,
}

/// A database and a slot; `None`: any slot of the database.
type Counted = (Arc<str>, Option<Slot>);

/// A writer whose server process may still commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsettledWriter {
    database: Arc<str>,
    pub node: u16,
    pub pid: u32,
    slots: Vec<Slot>,
}

/// Reads not answered at once because a standby lacked a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LateReads {
    pub waits: u64,
    pub wait_us: u64,
    pub to_primary: u64,
}

impl Default for TableChanges {
    fn default() -> TableChanges {
        TableChanges::with_slots(SLOTS, false)
    }
}

impl TableChanges {
    pub fn new(tracks: bool) -> TableChanges {
        TableChanges::with_slots(SLOTS, tracks)
    }

    pub(crate) fn with_slots(count: usize, tracks: bool) -> TableChanges {
        TableChanges {
            versions: Arc::new(TableVersions::new(count)),
            doubts: Mutex::default(),
            is_tracking: AtomicBool::new(tracks),
            is_complete: AtomicBool::new(tracks),
            late: Mutex::default(),
        }
    }

    #[inline]
    pub fn are_tracked(&self) -> bool {
        self.is_tracking.load(Ordering::SeqCst)
    }

    /// Notes changes from now on. `next_round` covers changes acknowledged before; a session with a statement under way notes its end
    /// itself.
    #[inline]
    pub fn track(&self, next_round: impl Fn() -> u64) {
        if !self.is_complete.load(Ordering::SeqCst) {
            self.begin(next_round);
        }
    }

    #[cold]
    fn begin(&self, next_round: impl Fn() -> u64) {
        // The order matters: no reader may continue before earlier changes are covered.
        self.is_tracking.store(true, Ordering::SeqCst);
        self.note_all_told(next_round());
        self.is_complete.store(true, Ordering::SeqCst);
    }

    /// Notes unexamined changes, covered by `round`, before a client hears of them.
    pub fn note_all_told(&self, round: u64) {
        self.versions.note_told(&[self.versions.of_all()], round);
    }

    /// Notes changes before a client hears of them. `database`: slot of the database.
    pub fn note_told(&self, database: Slot, slots: &[Slot], round: u64) {
        self.versions.note_last(database, round);
        self.versions.note_told(slots, round);
    }

    /// Makes all results stale after changes that Weir cannot see.
    pub fn doubt_all(&self, round: u64) {
        self.versions.change(&[self.versions.of_all()], round);
    }

    pub fn doubt_database(&self, database: &str, round: u64) {
        self.versions.change(&[self.versions.of_database(database)], round);
    }

    pub fn doubts(&self, database: &str) -> Vec<UnsettledWriter> {
        self.doubts.lock().iter().filter(|doubt| *doubt.database == *database).cloned().collect()
    }

    pub fn dispel(&self, doubt: &UnsettledWriter, round: u64) {
        let mut doubts = self.doubts.lock();
        if let Some(at) = doubts.iter().position(|known| known == doubt) {
            doubts.swap_remove(at);
            self.versions.settle_unseen(&doubt.slots, round);
        }
    }

    /// `slot` `None`: any table of the database.
    #[cold]
    pub fn note_late(&self, database: &Arc<str>, slot: Option<Slot>, add: impl Fn(&mut LateReads)) {
        let mut late = self.late.lock();
        let key = (database.clone(), slot);
        if late.len() < COUNTED_MAX || late.contains_key(&key) {
            add(late.entry(key).or_default());
        } else {
            add(late.entry(("".into(), None)).or_default());
        }
    }

    /// Returns the late reads of a database, by slot. Empty name: reads counted together.
    pub fn late(&self, database: &str) -> Vec<(Option<Slot>, LateReads)> {
        let late = self.late.lock();
        late.iter().filter(|((name, _), _)| **name == *database).map(|((_, slot), reads)| (*slot, *reads)).collect()
    }
}

/// Slots raised by a writing session. A drop without `settle` leaves an `UnsettledWriter`.
pub struct RaisedSlots {
    changes: Arc<TableChanges>,
    slots: Vec<Slot>,
    at: UnsettledWriter,
}

impl RaisedSlots {
    pub fn none(changes: Arc<TableChanges>, database: Arc<str>, node: u16, pid: u32) -> RaisedSlots {
        RaisedSlots { changes, slots: Vec::new(), at: UnsettledWriter { database, node, pid, slots: Vec::new() } }
    }

    /// Reuses the memory of an emptied list.
    pub fn in_room(self, room: Vec<Slot>) -> RaisedSlots {
        debug_assert!(self.slots.is_empty() && room.is_empty());
        let mut raised = self;
        raised.slots = room;
        raised
    }

    pub fn add(&mut self, slots: &[Slot]) {
        for slot in slots {
            if !self.slots.contains(slot) {
                self.changes.versions.raise(&[*slot]);
                self.slots.push(*slot);
            }
        }
    }

    /// Notes that part of the writes is acknowledged while the rest is under way.
    pub fn note_told(&self, round: u64) {
        let database = self.changes.versions.of_database(&self.at.database);
        self.changes.note_told(database, &self.slots, round);
    }

    /// Settles the write. Returns the emptied list for reuse.
    pub fn settle(mut self, outcome: WriterOutcome) -> Vec<Slot> {
        let mut slots = std::mem::take(&mut self.slots);
        let versions = &self.changes.versions;
        if let (false, WriterOutcome::Committed { round }) = (slots.is_empty(), outcome) {
            versions.note_last(versions.of_database(&self.at.database), round);
        }
        versions.settle(&slots, outcome);
        slots.clear();
        slots
    }
}

impl Drop for RaisedSlots {
    fn drop(&mut self) {
        if !self.slots.is_empty() {
            let slots = std::mem::take(&mut self.slots);
            self.changes.doubts.lock().push(UnsettledWriter { slots, ..self.at.clone() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_whose_end_nobody_heard_of_is_settled_when_its_process_is_gone() {
        let changes = Arc::new(TableChanges::default());
        let table = changes.versions.of_table("d", 1);
        let mut raised = RaisedSlots::none(changes.clone(), "d".into(), 0, 7);
        raised.add(&[table, table]);
        drop(raised);
        assert!(changes.versions.begin(&[table]).is_none());
        let doubts = changes.doubts("d");
        assert_eq!((doubts.len(), doubts[0].pid), (1, 7));
        changes.dispel(&doubts[0], 3);
        changes.dispel(&doubts[0], 3);
        assert!(changes.versions.begin(&[table]).is_some() && changes.doubts("d").is_empty());
        let database = changes.versions.of_database("d");
        assert_eq!(
            (changes.versions.round_to_show(&[table]), changes.versions.last_of(database)),
            (0, 0),
            "nobody was told of it"
        );
    }

    #[test]
    fn a_write_is_needed_by_reads_of_its_table_and_of_whatever_may_be_read() {
        let changes = Arc::new(TableChanges::default());
        let versions = &changes.versions;
        let (written, other, database) = (versions.of_table("d", 1), versions.of_table("d", 2), versions.of_database("d"));
        assert_eq!((versions.round_to_show(&[written]), versions.last_of(database)), (0, 0), "nothing was written");
        let mut raised = RaisedSlots::none(changes.clone(), "d".into(), 0, 7);
        raised.add(&[written]);
        assert_eq!(versions.round_to_show(&[written]), 0, "nobody was told of it");
        changes.note_told(database, &[other], 3);
        assert_eq!((versions.round_to_show(&[other]), versions.last_of(database)), (3, 3));
        raised.note_told(4);
        assert_eq!((versions.round_to_show(&[written]), versions.last_of(database)), (4, 4));
        assert_eq!(raised.settle(WriterOutcome::Committed { round: 5 }).len(), 0);
        assert_eq!([written, other].map(|slot| versions.round_to_show(&[slot])), [5, 3]);
        assert_eq!([database, versions.of_database("e")].map(|database| versions.last_of(database)), [5, 0]);
        let mut raised = RaisedSlots::none(changes.clone(), "d".into(), 0, 7);
        raised.add(&[written]);
        raised.settle(WriterOutcome::RolledBack);
        assert_eq!((versions.round_to_show(&[written]), versions.last_of(database)), (5, 5), "nothing was changed");
    }

    #[test]
    fn earlier_writes_are_covered_once_when_changes_begin_to_be_noted() {
        let changes = TableChanges::default();
        let (table, all) = (changes.versions.of_table("d", 1), changes.versions.of_all());
        assert!(!changes.are_tracked());
        changes.track(|| 7);
        changes.track(|| 9);
        assert!(changes.are_tracked());
        assert_eq!(changes.versions.round_to_show(&[all, table]), 7);
    }

    #[test]
    fn counts_of_late_reads_are_bounded() {
        let changes = TableChanges::default();
        let database: Arc<str> = "d".into();
        for slot in 0..2 * COUNTED_MAX as u32 {
            changes.note_late(&database, Some(slot), |reads| reads.waits += 1);
        }
        assert_eq!((changes.late("d").len(), changes.late("")[0].1.waits), (COUNTED_MAX, COUNTED_MAX as u64));
        changes.note_late(&database, Some(1), |reads| reads.to_primary += 1);
        let reads = changes.late("d").into_iter().find(|(slot, _)| *slot == Some(1)).unwrap().1;
        assert_eq!(reads, LateReads { waits: 1, wait_us: 0, to_primary: 1 });
    }
}
