//! The cache protocol: when a result may be stored and served.
//!
//! A table has a *slot* with a stamp: writers about to commit, and commits. A writer raises its slots before its commit
//! is sent and settles them after the answer; a rollback restores the stamps. A result notes the stamps before its
//! question and is true while they are unchanged. So an invalidation costs as much as the write has tables.
//!
//! A slot remembers the round (see `causal`) that covers its last change: a standby's result is stored only if that
//! standby had replayed it. Tables may share a slot; then more results become stale.

use std::sync::atomic::{AtomicU64, Ordering};

pub type Slot = u32;

/// Bits of a stamp that count writers; the rest counts changes.
const WRITER_BITS: u32 = 24;
const ONE_CHANGE: u64 = 1 << WRITER_BITS;

/// First round, which covers all writes before the start.
pub const FIRST_ROUND: u64 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriterOutcome {
    /// Something may have changed; `round` covers it.
    Committed {
        round: u64,
    },
    RolledBack,
}

/// Slots that a result depends on, with their stamps before its question.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResultDependencies(Box<[(Slot, u64)]>);

impl ResultDependencies {
    pub fn of_pairs(pairs: Vec<(Slot, u64)>) -> ResultDependencies {
        ResultDependencies(pairs.into())
    }

    pub fn pairs(&self) -> &[(Slot, u64)] {
        &self.0
    }

    pub fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}

#[derive(Debug)]
struct SlotVersion {
    stamp: AtomicU64,
    /// Round that covers the last change; for results.
    round: AtomicU64,
    /// Round that covers the last change reported to a client, for reads on standbys; 0: none.
    told: AtomicU64,
}

/// The first slot is for objects that all databases share.
#[derive(Debug)]
pub struct TableVersions {
    places: Box<[SlotVersion]>,
    /// Slots below are for more than one table.
    wide: Slot,
    /// Rounds that cover the last change of each database, by its slot.
    last: Box<[AtomicU64]>,
    /// Round that covers the last change reported to any client.
    newest: AtomicU64,
}

/// Slot that all results depend on.
const SHARED: Slot = 0;

/// One slot of so many is for more than one table.
const WIDE_PART: usize = 64;

/// Stands for the whole database: no table has this OID.
const DATABASE: u32 = 0;

impl TableVersions {
    pub fn new(count: usize) -> TableVersions {
        let place = || SlotVersion { stamp: AtomicU64::new(0), round: AtomicU64::new(FIRST_ROUND), told: AtomicU64::new(0) };
        let wide = (count / WIDE_PART).max(1) as Slot;
        let last = (0..wide).map(|_| AtomicU64::new(0)).collect();
        TableVersions { places: (0..count.max(2)).map(|_| place()).collect(), wide, last, newest: AtomicU64::new(0) }
    }

    /// All results of a database depend on its slot.
    pub fn of_database(&self, database: &str) -> Slot {
        self.wide(database)
    }

    fn wide(&self, database: &str) -> Slot {
        // With one wide slot it is that of all databases.
        let others = u64::from(self.wide) - 1;
        if others == 0 { SHARED } else { 1 + (hash(database, DATABASE) % others) as Slot }
    }

    pub fn of_table(&self, database: &str, oid: u32) -> Slot {
        let others = self.places.len() as u64 - u64::from(self.wide);
        self.wide + (hash(database, oid) % others) as Slot
    }

    pub fn of_all(&self) -> Slot {
        SHARED
    }

    #[inline]
    fn place(&self, slot: Slot) -> &SlotVersion {
        &self.places[slot as usize % self.places.len()]
    }

    /// Call before the question is sent. `None`: a slot is about to change; do not store.
    pub fn begin(&self, slots: &[Slot]) -> Option<ResultDependencies> {
        let stamped = slots.iter().map(|slot| {
            let stamp = self.place(*slot).stamp.load(Ordering::SeqCst);
            stamp.is_multiple_of(ONE_CHANGE).then_some((*slot, stamp))
        });
        stamped.collect::<Option<Box<[_]>>>().map(ResultDependencies)
    }

    #[inline]
    pub fn is_true(&self, deps: &ResultDependencies) -> bool {
        deps.0.iter().all(|(slot, stamp)| self.place(*slot).stamp.load(Ordering::SeqCst) == *stamp)
    }

    /// Returns the round that a standby must cover before its result is stored. Call after `begin`.
    pub fn round_needed(&self, deps: &ResultDependencies) -> u64 {
        let rounds = deps.0.iter().map(|(slot, _)| self.round_of(*slot));
        rounds.max().unwrap_or(FIRST_ROUND)
    }

    /// Returns the round that covers the slot's last change. Call after `begin`.
    #[inline]
    pub fn round_of(&self, slot: Slot) -> u64 {
        self.place(slot).round.load(Ordering::SeqCst)
    }

    /// Call before a writer may commit.
    pub fn raise(&self, slots: &[Slot]) {
        for slot in slots {
            self.place(*slot).stamp.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Call once for every `raise`, with the same slots.
    pub fn settle(&self, slots: &[Slot], outcome: WriterOutcome) {
        match outcome {
            WriterOutcome::Committed { round } => {
                self.note_told(slots, round);
                self.settle_unseen(slots, round);
            }
            WriterOutcome::RolledBack => {
                for slot in slots {
                    self.place(*slot).stamp.fetch_sub(1, Ordering::SeqCst);
                }
            }
        }
    }

    /// Notes a change, covered by `round`, of a table of the database with this slot.
    pub fn note_last(&self, database: Slot, round: u64) {
        if let Some(last) = self.last.get(database as usize) {
            lift(last, round);
        }
    }

    /// Returns the round that covers all settled changes of the database with this slot; 0: none.
    pub fn last_of(&self, database: Slot) -> u64 {
        let last = self.last.get(database as usize).map_or(0, |last| last.load(Ordering::SeqCst));
        last.max(self.round_to_show(&[SHARED, database]))
    }

    /// Returns the round that covers all changes of these slots reported to clients; 0: none.
    #[inline]
    pub fn round_to_show(&self, slots: &[Slot]) -> u64 {
        slots.iter().map(|slot| self.place(*slot).told.load(Ordering::SeqCst)).max().unwrap_or(0)
    }

    /// Returns the round that covers all changes reported to clients; 0: none.
    #[inline]
    pub fn newest(&self) -> u64 {
        self.newest.load(Ordering::SeqCst)
    }

    /// Call before a client is told of changes that `round` covers.
    pub fn note_told(&self, slots: &[Slot], round: u64) {
        for slot in slots {
            lift(&self.place(*slot).told, round);
        }
        lift(&self.newest, round);
    }

    /// Makes earlier results stale after a possible change that no client was told of.
    pub fn change(&self, slots: &[Slot], round: u64) {
        self.raise(slots);
        self.settle_unseen(slots, round);
    }

    /// Settles slots of lost writers as changed; no client was told.
    pub fn settle_unseen(&self, slots: &[Slot], round: u64) {
        for slot in slots {
            let place = self.place(*slot);
            // First: a reader of the new stamp must find the round.
            place.round.fetch_max(round, Ordering::SeqCst);
            place.stamp.fetch_add(ONE_CHANGE - 1, Ordering::SeqCst);
        }
    }

    /// Returns the numbers of changes and of pending writers.
    pub fn history(&self, slot: Slot) -> (u64, u64) {
        let stamp = self.place(slot).stamp.load(Ordering::SeqCst);
        (stamp / ONE_CHANGE, stamp % ONE_CHANGE)
    }
}

/// Load first: many writes share a round.
#[inline]
fn lift(noted: &AtomicU64, round: u64) {
    if noted.load(Ordering::SeqCst) < round {
        noted.fetch_max(round, Ordering::SeqCst);
    }
}

/// Never change FNV-1a: Weirs of all versions that share a store must agree.
fn hash(database: &str, number: u32) -> u64 {
    fnv(database.as_bytes().iter().copied().chain(number.to_le_bytes()))
}

/// FNV-1a with a final mix: its upper bits depend little on the last byte.
pub(super) fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    const STIR: u64 = 0xff51_afd7_ed55_8ccd;
    let hash = bytes.fold(BASIS, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    let hash = (hash ^ (hash >> 33)).wrapping_mul(STIR);
    hash ^ (hash >> 33)
}

/// Copies for tests that walk all states.
#[cfg(test)]
impl TableVersions {
    pub(super) fn of(places: &[(u64, u64)]) -> TableVersions {
        let versions = TableVersions::new(places.len());
        for (place, (stamp, round)) in versions.places.iter().zip(places) {
            place.stamp.store(*stamp, Ordering::SeqCst);
            place.round.store(*round, Ordering::SeqCst);
        }
        versions
    }

    pub(super) fn look(&self) -> Vec<(u64, u64)> {
        self.places.iter().map(|place| (place.stamp.load(Ordering::SeqCst), place.round.load(Ordering::SeqCst))).collect()
    }

    pub(super) fn forget_round(&self, slot: Slot) {
        self.place(slot).round.store(FIRST_ROUND, Ordering::SeqCst);
    }
}

#[cfg(test)]
impl ResultDependencies {
    pub(super) fn of(slots: &[(Slot, u64)]) -> ResultDependencies {
        ResultDependencies(slots.into())
    }

    pub(super) fn slots(&self) -> Vec<(Slot, u64)> {
        self.0.to_vec()
    }
}

#[cfg(test)]
mod tests;
