//! The protocol: versions of tables, writers under way, and the conditions for storing and serving a result.
//!
//! A table has a *slot* with a number: how many writers are about to commit, and how many have. A writer raises its slots
//! before its commit is sent, and settles them when the server has told how it went. A result notes the numbers of its tables
//! before its question is sent. It is true as long as they are the same: nobody has committed since, or is about to. A rollback
//! leaves the numbers as they were. So an invalidation costs as much as the write has tables, with any number of results.
//!
//! A standby shows the past. A slot remembers the round (see `causal`) whose position covers the table's last change. A result
//! from a standby is stored only if that standby had replayed it.
//!
//! Several tables may share a slot: then more results become stale than must.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of a slot.
pub type Slot = u32;

/// Bits of a stamp that count writers about to commit; the rest counts changes.
const WRITER_BITS: u32 = 24;
const ONE_CHANGE: u64 = 1 << WRITER_BITS;

/// The first round covers all writes before the start.
pub const FIRST_ROUND: u64 = 1;

/// How a transaction ended that had raised slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriterOutcome {
    /// It may have changed something; this round covers it.
    Committed {
        round: u64,
    },
    RolledBack,
}

/// Slots an answer hangs on, with their stamps at the time its question was sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResultDependencies(Box<[(Slot, u64)]>);

impl ResultDependencies {
    /// Slots and their stamps, as a store kept them.
    pub fn of_pairs(pairs: Vec<(Slot, u64)>) -> ResultDependencies {
        ResultDependencies(pairs.into())
    }

    pub fn pairs(&self) -> &[(Slot, u64)] {
        &self.0
    }

    /// Memory they take.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}

#[derive(Debug)]
struct SlotVersion {
    stamp: AtomicU64,
    /// The round that covers its last change, seen or not: of results.
    round: AtomicU64,
    /// The round that covers its last change that somebody was told of, for reads on standbys; 0: there was none.
    told: AtomicU64,
}

/// All slots of a proxy. The first is for objects that all databases share.
#[derive(Debug)]
pub struct TableVersions {
    places: Box<[SlotVersion]>,
    /// Slots below are for more than one table.
    wide: Slot,
    /// The round that covers the last change of any table of a database, by the database's slot.
    last: Box<[AtomicU64]>,
    /// The round that covers the last change of all that somebody was told of.
    newest: AtomicU64,
}

/// The slot all answers hang on.
const SHARED: Slot = 0;

/// One slot of so many is for more than one table.
const WIDE_PART: usize = 64;

/// A number that no table has, for the whole database.
const DATABASE: u32 = 0;

impl TableVersions {
    /// `count` slots, two at least.
    pub fn new(count: usize) -> TableVersions {
        let place = || SlotVersion { stamp: AtomicU64::new(0), round: AtomicU64::new(FIRST_ROUND), told: AtomicU64::new(0) };
        let wide = (count / WIDE_PART).max(1) as Slot;
        let last = (0..wide).map(|_| AtomicU64::new(0)).collect();
        TableVersions { places: (0..count.max(2)).map(|_| place()).collect(), wide, last, newest: AtomicU64::new(0) }
    }

    /// The slot of all that a database holds, which all answers from it hang on.
    pub fn of_database(&self, database: &str) -> Slot {
        self.wide(database)
    }

    fn wide(&self, database: &str) -> Slot {
        // With one wide slot it is that of all databases.
        let others = u64::from(self.wide) - 1;
        if others == 0 { SHARED } else { 1 + (hash(database, DATABASE) % others) as Slot }
    }

    /// The slot of a table.
    pub fn of_table(&self, database: &str, oid: u32) -> Slot {
        let others = self.places.len() as u64 - u64::from(self.wide);
        self.wide + (hash(database, oid) % others) as Slot
    }

    /// The slot of the objects that all databases share.
    pub fn of_all(&self) -> Slot {
        SHARED
    }

    #[inline]
    fn place(&self, slot: Slot) -> &SlotVersion {
        &self.places[slot as usize % self.places.len()]
    }

    /// A question is about to be sent: the slots its result will hang on, with their stamps. `None`: one of them is about to
    /// change, so that the result is not to be stored.
    pub fn begin(&self, slots: &[Slot]) -> Option<ResultDependencies> {
        let stamped = slots.iter().map(|slot| {
            let stamp = self.place(*slot).stamp.load(Ordering::SeqCst);
            stamp.is_multiple_of(ONE_CHANGE).then_some((*slot, stamp))
        });
        stamped.collect::<Option<Box<[_]>>>().map(ResultDependencies)
    }

    /// True if an answer is still one that PostgreSQL would give.
    #[inline]
    pub fn is_true(&self, deps: &ResultDependencies) -> bool {
        deps.0.iter().all(|(slot, stamp)| self.place(*slot).stamp.load(Ordering::SeqCst) == *stamp)
    }

    /// The round that a standby must cover for its answer to be stored. To be asked after `begin`.
    pub fn round_needed(&self, deps: &ResultDependencies) -> u64 {
        let rounds = deps.0.iter().map(|(slot, _)| self.round_of(*slot));
        rounds.max().unwrap_or(FIRST_ROUND)
    }

    /// The round that covers a slot's last change. To be asked after `begin`.
    #[inline]
    pub fn round_of(&self, slot: Slot) -> u64 {
        self.place(slot).round.load(Ordering::SeqCst)
    }

    /// A writer of these is about to commit, or may.
    pub fn raise(&self, slots: &[Slot]) {
        for slot in slots {
            self.place(*slot).stamp.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// It is known how that went. Once for every `raise`, with the same slots.
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

    /// Some table of a database has changed. `database`: its slot; `round` covers the change.
    pub fn note_last(&self, database: Slot, round: u64) {
        if let Some(last) = self.last.get(database as usize) {
            lift(last, round);
        }
    }

    /// The round that a standby must cover to show all changes of a database that are settled; 0: none is. `database`: its slot.
    pub fn last_of(&self, database: Slot) -> u64 {
        let last = self.last.get(database as usize).map_or(0, |last| last.load(Ordering::SeqCst));
        last.max(self.round_to_show(&[SHARED, database]))
    }

    /// The round that a standby must cover to show all changes of these slots that somebody was told of; 0: there are none.
    #[inline]
    pub fn round_to_show(&self, slots: &[Slot]) -> u64 {
        slots.iter().map(|slot| self.place(*slot).told.load(Ordering::SeqCst)).max().unwrap_or(0)
    }

    /// The round that a standby must cover to show all changes that somebody was told of; 0: there are none.
    #[inline]
    pub fn newest(&self) -> u64 {
        self.newest.load(Ordering::SeqCst)
    }

    /// Somebody is about to be told of changes of these, which `round` covers.
    pub fn note_told(&self, slots: &[Slot], round: u64) {
        for slot in slots {
            lift(&self.place(*slot).told, round);
        }
        lift(&self.newest, round);
    }

    /// These may have changed unseen: results of before are stale. Nobody was told of anything.
    pub fn change(&self, slots: &[Slot], round: u64) {
        self.raise(slots);
        self.settle_unseen(slots, round);
    }

    /// Writers of these are gone, and what they did is done: `round` covers it. Nobody was told of it.
    pub fn settle_unseen(&self, slots: &[Slot], round: u64) {
        for slot in slots {
            let place = self.place(*slot);
            // First of all: a reader of the new stamp must find the round as well.
            place.round.fetch_max(round, Ordering::SeqCst);
            place.stamp.fetch_add(ONE_CHANGE - 1, Ordering::SeqCst);
        }
    }

    /// How often a slot's tables have changed, and how many writers are about to change them.
    pub fn history(&self, slot: Slot) -> (u64, u64) {
        let stamp = self.place(slot).stamp.load(Ordering::SeqCst);
        (stamp / ONE_CHANGE, stamp % ONE_CHANGE)
    }
}

/// Many writes share a round: most find it noted.
#[inline]
fn lift(noted: &AtomicU64, round: u64) {
    if noted.load(Ordering::SeqCst) < round {
        noted.fetch_max(round, Ordering::SeqCst);
    }
}

/// All Weirs that share a store must find the same slots, in every version of Weir: it is FNV-1a, and stays.
fn hash(database: &str, number: u32) -> u64 {
    fnv(database.as_bytes().iter().copied().chain(number.to_le_bytes()))
}

/// FNV-1a, stirred: its upper bits alone say little of the last byte.
pub(super) fn fnv(bytes: impl Iterator<Item = u8>) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    const STIR: u64 = 0xff51_afd7_ed55_8ccd;
    let hash = bytes.fold(BASIS, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    let hash = (hash ^ (hash >> 33)).wrapping_mul(STIR);
    hash ^ (hash >> 33)
}

/// Copies for tests that walk over all states.
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
