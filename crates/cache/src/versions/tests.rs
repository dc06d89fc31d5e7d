//! Explores all orders of steps by writers, askers, a standby and rounds of positions: no result is served that the primary
//! would not give. With any one rule switched off, some order serves one.

use super::*;
use std::collections::HashSet;

/// A rule left out, to see that the search would find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Without {
    Nothing,
    /// Writers say so only after their commit.
    RaiseBeforeCommit,
    /// An asker does not look for writers under way, at its question or at its answer.
    LookForWriters,
    /// Stamps are taken before the question is sent, not when its answer is stored.
    StampsBeforeQuestion,
    /// A standby's answer is stored only if it covers the last change.
    StandbyCovers,
    /// Writes before the start must be covered, too.
    FirstRound,
    /// A commit says by which round it is covered.
    RoundOfCommit,
    /// Settled only when the server has told how it went.
    SettleAfterCommit,
}

const TABLES: [Slot; 2] = [1, 2];

/// Tables that each writer changes.
const WRITERS: [&[Slot]; 2] = [&[1], &[1, 2]];
/// Tables that each asker reads; true if it reads them on the standby.
const ASKERS: [(&[Slot], bool); 2] = [(&[1, 2], false), (&[0, 2], true)];
const ROUNDS_MAX: usize = 2;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Asker {
    step: u8,
    /// Slots that its result will hang on, with their stamps.
    deps: Option<Vec<(Slot, u64)>>,
    may_store: bool,
    /// Commits it has seen.
    seen: usize,
}

/// All there is; copied for every step tried.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct World {
    stamps: Vec<(u64, u64)>,
    writers: [u8; 2],
    rolled_back: [bool; 2],
    askers: [Asker; 2],
    /// Tables of each commit, in order.
    commits: Vec<Vec<Slot>>,
    replayed: usize,
    /// Commits that each round's position covers.
    rounds: Vec<usize>,
}

impl World {
    fn begin() -> World {
        // Something was written before the start, which the standby has not replayed.
        World { stamps: vec![(0, FIRST_ROUND); 3], commits: vec![TABLES.to_vec()], ..World::default() }
    }

    /// Does something with the versions of this world.
    fn with<T>(&mut self, act: impl FnOnce(&TableVersions) -> T) -> T {
        let versions = TableVersions::new(self.stamps.len());
        for (place, (stamp, round)) in versions.places.iter().zip(&self.stamps) {
            place.stamp.store(*stamp, Ordering::SeqCst);
            place.round.store(*round, Ordering::SeqCst);
        }
        let result = act(&versions);
        let read = |place: &SlotVersion| (place.stamp.load(Ordering::SeqCst), place.round.load(Ordering::SeqCst));
        self.stamps = versions.places.iter().map(read).collect();
        result
    }

    /// The last round whose position the standby has replayed.
    fn covered(&self) -> u64 {
        self.rounds.iter().rposition(|position| *position <= self.replayed).map_or(0, |at| at as u64 + 1)
    }

    /// Every world one step further.
    fn next(&self, without: Without) -> Vec<World> {
        let mut next = Vec::new();
        for at in 0..WRITERS.len() {
            next.extend(self.write(at, true, without));
            next.extend(self.write(at, false, without));
        }
        for at in 0..ASKERS.len() {
            next.extend(self.ask(at, without));
        }
        if self.replayed < self.commits.len() {
            next.push(World { replayed: self.replayed + 1, ..self.clone() });
        }
        if self.rounds.len() < ROUNDS_MAX {
            let mut world = self.clone();
            world.rounds.push(self.commits.len());
            next.push(world);
        }
        next
    }

    /// A writer raises, the server commits or rolls back, the writer hears of it.
    fn write(&self, at: usize, commits: bool, without: Without) -> Option<World> {
        let (slots, mut world) = (WRITERS[at], self.clone());
        world.writers[at] += 1;
        let round = self.rounds.len() as u64 + 1;
        let round = if without == Without::RoundOfCommit { FIRST_ROUND } else { round };
        let committed = WriterOutcome::Committed { round };
        match (self.writers[at], without) {
            (0, Without::RaiseBeforeCommit) if commits => {}
            (0, Without::SettleAfterCommit) if commits => world.with(|versions| versions.change(slots, round)),
            (0, _) if commits => world.with(|versions| versions.raise(slots)),
            (1, _) if commits => world.commits.push(slots.to_vec()),
            (1, Without::Nothing) => world.rolled_back[at] = true,
            (2, Without::SettleAfterCommit) if commits => {}
            (2, Without::RaiseBeforeCommit) if commits => world.with(|versions| versions.change(slots, round)),
            (2, _) if commits && self.rolled_back[at] => world.with(|versions| versions.settle(slots, WriterOutcome::RolledBack)),
            (2, _) if commits => world.with(|versions| versions.settle(slots, committed)),
            _ => return None,
        }
        Some(world)
    }

    /// An asker notes versions and sends; a server answers; the answer is stored.
    fn ask(&self, at: usize, without: Without) -> Option<World> {
        let ((slots, on_standby), mut world) = (ASKERS[at], self.clone());
        world.askers[at].step += 1;
        match self.askers[at].step {
            0 => {
                let covered = self.covered();
                let (deps, needed) = world.with(|versions| note(versions, slots, without));
                let needed = if without == Without::FirstRound && needed == FIRST_ROUND { 0 } else { needed };
                world.askers[at].may_store = !on_standby || covered >= needed || without == Without::StandbyCovers;
                world.askers[at].deps = deps;
            }
            1 => world.askers[at].seen = if on_standby { self.replayed } else { self.commits.len() },
            2 if without == Without::StampsBeforeQuestion => world.askers[at].deps = world.with(|v| note(v, slots, without).0),
            2 => {}
            _ => return None,
        }
        Some(world)
    }

    /// A result that would be served now although the primary would give another one.
    fn wrong(&mut self, without: Without) -> Option<usize> {
        (0..ASKERS.len()).find(|&at| {
            let asker = self.askers[at].clone();
            let is_stored = asker.step == 3 && asker.may_store;
            let Some(deps) = asker.deps.filter(|_| is_stored) else { return false };
            let is_given = self.with(|versions| match without {
                Without::LookForWriters => deps.iter().all(|(slot, stamp)| versions.history(*slot).0 == stamp / ONE_CHANGE),
                _ => versions.is_true(&ResultDependencies(deps.into())),
            });
            let reads = |tables: &Vec<Slot>| tables.iter().any(|table| ASKERS[at].0.contains(table));
            is_given && self.commits[asker.seen..].iter().any(reads)
        })
    }
}

fn note(versions: &TableVersions, slots: &[Slot], without: Without) -> (Option<Vec<(Slot, u64)>>, u64) {
    if without == Without::LookForWriters {
        let deps: Vec<(Slot, u64)> = slots.iter().map(|slot| (*slot, versions.history(*slot).0 * ONE_CHANGE)).collect();
        let needed = versions.round_needed(&ResultDependencies(deps.clone().into()));
        return (Some(deps), needed);
    }
    let Some(deps) = versions.begin(slots) else { return (None, FIRST_ROUND) };
    let needed = versions.round_needed(&deps);
    (Some(deps.0.to_vec()), needed)
}

/// Walks over all worlds there may be. Gives how many there are, and a wrong one.
fn explore(without: Without) -> (usize, Option<World>) {
    let mut seen = HashSet::new();
    let mut open = vec![World::begin()];
    while let Some(mut world) = open.pop() {
        if !seen.insert(world.clone()) {
            continue;
        }
        if world.wrong(without).is_some() {
            return (seen.len(), Some(world));
        }
        open.extend(world.next(without));
    }
    (seen.len(), None)
}

#[test]
fn no_order_of_steps_gives_out_an_answer_that_is_wrong() {
    let (count, wrong) = explore(Without::Nothing);
    assert!(count > 10_000, "{count} worlds");
    assert_eq!(wrong, None);
}

#[test]
fn every_rule_is_needed() {
    for without in [
        Without::RaiseBeforeCommit,
        Without::LookForWriters,
        Without::StampsBeforeQuestion,
        Without::StandbyCovers,
        Without::FirstRound,
        Without::RoundOfCommit,
        Without::SettleAfterCommit,
    ] {
        assert!(explore(without).1.is_some(), "nothing goes wrong without {without:?}");
    }
}

#[test]
fn a_rollback_costs_nothing_and_a_commit_its_own_tables_only() {
    let versions = TableVersions::new(100);
    let (one, other) = (versions.of_table("d", 1), versions.of_table("d", 2));
    let (of_one, of_other) = (versions.begin(&[one]).unwrap(), versions.begin(&[other]).unwrap());
    versions.raise(&[one]);
    assert!(!versions.is_true(&of_one) && versions.is_true(&of_other));
    assert_eq!(versions.begin(&[one]), None);
    versions.settle(&[one], WriterOutcome::RolledBack);
    assert!(versions.is_true(&of_one));
    versions.change(&[one], 7);
    assert!(!versions.is_true(&of_one) && versions.is_true(&of_other));
    assert_eq!(versions.round_needed(&versions.begin(&[one, other]).unwrap()), 7);
    assert_eq!((versions.history(one), versions.history(other)), ((1, 0), (0, 0)));
}

/// Weirs of other versions use the same store.
#[test]
fn slots_of_names_are_the_same_in_every_version() {
    let versions = TableVersions::new(4096);
    let slots = [("db", 16384), ("db", 16385), ("d", 16384)].map(|(database, oid)| versions.of_table(database, oid));
    assert_eq!(slots, [3629, 781, 4079]);
    assert_eq!(["db", "other", "d"].map(|database| versions.of_database(database)), [26, 11, 44]);
    assert_eq!(versions.of_all(), 0);
}

#[test]
fn databases_have_slots_apart_from_tables_and_from_what_all_share() {
    let versions = TableVersions::new(64 * 8);
    let of_databases: HashSet<Slot> = (0..100).map(|at| versions.of_database(&format!("database_{at}"))).collect();
    assert_eq!(of_databases, (1..8).collect(), "with eight wide slots");
    let of_tables: HashSet<Slot> = (0..5000).map(|oid| versions.of_table("d", oid)).collect();
    assert!(of_tables.iter().all(|slot| (8..512).contains(slot)));
    assert!(of_tables.len() > 500, "{} slots for 5000 tables", of_tables.len());
    assert_eq!(TableVersions::new(64).of_database("d"), versions.of_all(), "with one wide slot it is shared");
}
