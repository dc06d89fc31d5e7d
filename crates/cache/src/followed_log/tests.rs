//! Explores all orders of steps by writers past Weir, their log, its stream, rounds, a standby and askers. A result that is
//! served shows all that was visible when the last covered round was asked for. With any one rule switched off, some order
//! serves a stale one.

use super::super::versions::{ResultDependencies, TableVersions};
use super::*;
use std::collections::HashSet;

/// A rule left out, to see that the search would find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    /// Tables that a commit changed stay raised until a snapshot shows the commit.
    Visible,
    /// A new stream waits for the transactions that run.
    Runners,
    /// ... as a round says that was asked for after its begin.
    RoundAfterStart,
    /// While there is no stream, nothing is kept.
    Away,
    /// A commit counts as taken in only when its tables are raised.
    RaiseBeforeCover,
    /// A standby must cover the round that showed the commit.
    RoundOfSnapshot,
}

const HISTORY: WalHistory = WalHistory { node: 0, system: 1, timeline: 1 };
const DATABASE: Slot = 1;
/// Tables that each writer changes.
const WRITERS: [&[Slot]; 2] = [&[2], &[2, 3]];
/// Tables that each asker reads; true if it reads them on the standby.
const ASKERS: [(&[Slot], bool); 2] = [(&[2], false), (&[3], true)];
const ROUNDS_MAX: usize = 3;

/// Progress of a writer past Weir.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Stage {
    #[default]
    None,
    Running,
    /// Its commit stands in the log.
    Logged,
    /// Others see it.
    Visible,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Asker {
    step: u8,
    deps: Vec<(Slot, u64)>,
    /// Writers whose commits it has seen.
    seen: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    places: Vec<(u64, u64)>,
    follower: LogFollower,
    stages: [Stage; 2],
    /// Writers in the order of their commits in the log.
    log: Vec<usize>,
    /// Commits the stream has told, if there is one.
    told: Option<usize>,
    breaks: u8,
    replayed: usize,
    /// Commits that were visible when each round was asked for; an earlier round promises less.
    visible_then: Vec<Vec<usize>>,
    /// The primary's answer to each round: position and snapshot.
    answered: Vec<(u64, TxidSnapshot)>,
    /// Answers that have arrived.
    arrived: usize,
    /// The one that asks; those before and after it have no part in this world, since they do nothing to it.
    asker: usize,
    asking: Asker,
}

impl World {
    fn begin(asker: usize, without: Without) -> World {
        let versions = TableVersions::new(4);
        let follower = LogFollower::new(DATABASE, &versions);
        if without == Without::Away {
            versions.settle(&[DATABASE], WriterOutcome::RolledBack);
        }
        World {
            places: versions.look(),
            follower,
            stages: Default::default(),
            log: Vec::new(),
            told: None,
            breaks: 0,
            replayed: 0,
            visible_then: Vec::new(),
            answered: Vec::new(),
            arrived: 0,
            asker,
            asking: Asker::default(),
        }
    }

    /// Does something with the follower and the versions of this world.
    fn with(&mut self, act: impl FnOnce(&mut LogFollower, &TableVersions)) {
        let versions = TableVersions::of(&self.places);
        act(&mut self.follower, &versions);
        self.places = versions.look();
    }

    /// The covered round, as the code sees it that serves results.
    fn covered(&self, without: Without) -> CoveredRound {
        if without == Without::Away { self.follower.covered } else { self.follower.covered() }
    }

    fn visible(&self) -> Vec<usize> {
        (0..WRITERS.len()).filter(|at| self.stages[*at] == Stage::Visible).collect()
    }

    /// Transactions have the numbers 10 and 11.
    fn snapshot(&self) -> TxidSnapshot {
        let runs = |at: &usize| matches!(self.stages[*at], Stage::Running | Stage::Logged);
        let running: Vec<u64> = (0..WRITERS.len()).filter(runs).map(|at| 10 + at as u64).collect();
        let next = (0..WRITERS.len()).filter(|at| self.stages[*at] != Stage::None).map(|at| 11 + at as u64).max().unwrap_or(10);
        TxidSnapshot { below: running.first().copied().unwrap_or(next), next, running }
    }

    fn next(&self, without: Without) -> Vec<World> {
        let mut next = Vec::new();
        for at in 0..WRITERS.len() {
            next.extend(self.write(at));
        }
        next.extend(self.ask());
        next.extend(self.stream(without));
        next.extend(self.round(without));
        if ASKERS[self.asker].1 && self.replayed < self.log.len() {
            next.push(World { replayed: self.replayed + 1, ..self.clone() });
        }
        next
    }

    fn write(&self, at: usize) -> Option<World> {
        // They begin in the order of their numbers.
        if self.stages[at] == Stage::None && self.stages[..at].contains(&Stage::None) {
            return None;
        }
        let mut world = self.clone();
        world.stages[at] = match self.stages[at] {
            Stage::None => Stage::Running,
            Stage::Running => {
                world.log.push(at);
                Stage::Logged
            }
            Stage::Logged => Stage::Visible,
            Stage::Visible => return None,
        };
        Some(world)
    }

    /// The stream begins, goes on, says where it is, or ends.
    fn stream(&self, without: Without) -> Vec<World> {
        let mut next = Vec::new();
        let Some(told) = self.told else {
            // A server waits until all transactions have ended whose begin it did not see.
            if !self.stages.contains(&Stage::Running) && self.breaks < 2 {
                let mut world = self.clone();
                world.told = Some(self.log.len());
                let (position, round) = (self.log.len() as u64, self.answered.len() as u64 + 1);
                let round = if without == Without::RoundAfterStart { 0 } else { round };
                world.with(|follower, versions| {
                    follower.start(HISTORY, position, round);
                    if without == Without::Runners {
                        follower.standing = LogFollowerState::Following(HISTORY);
                        versions.settle(&[DATABASE], WriterOutcome::Committed { round });
                    }
                });
                next.push(world);
            }
            return next;
        };
        if let Some(writer) = self.log.get(told) {
            let mut world = self.clone();
            world.told = Some(told + 1);
            world.with(|follower, versions| {
                if without == Without::RaiseBeforeCover {
                    follower.reach(told as u64 + 1);
                    return;
                }
                follower.begin(10 + *writer as u32).unwrap();
                WRITERS[*writer].iter().for_each(|slot| follower.change(*slot).unwrap());
                follower.commit(told as u64 + 1, versions).unwrap();
                if without == Without::Visible
                    && let Some(told) = follower.pending.pop()
                {
                    versions.settle(&told.slots, WriterOutcome::Committed { round: self.answered.len() as u64 + 1 });
                }
            });
            next.push(world);
        }
        if self.breaks == 0 {
            let mut world = World { told: None, breaks: 1, ..self.clone() };
            let round = self.answered.len() as u64 + 1;
            world.with(|follower, versions| {
                follower.lose(round, versions);
                if without == Without::Away && matches!(self.follower.standing, LogFollowerState::Following(_)) {
                    versions.settle(&[DATABASE], WriterOutcome::RolledBack);
                }
            });
            next.push(world);
        }
        next
    }

    /// The primary answers a round, its answer arrives.
    fn round(&self, without: Without) -> Option<World> {
        let mut world = self.clone();
        if self.arrived < self.answered.len() {
            let (position, snapshot) = self.answered[self.arrived].clone();
            world.arrived += 1;
            let number = world.arrived as u64;
            let round = PositionRound { number, history: HISTORY, position, snapshot, asked_ms: 0 };
            let was_starting = matches!(self.follower.standing, LogFollowerState::Starting { .. });
            world.with(|follower, versions| {
                let before: Vec<DecodedTransaction> = follower.pending.clone();
                follower.round(&round, versions);
                if without == Without::RoundOfSnapshot {
                    // As if nobody had said which round shows it.
                    for told in before.iter().filter(|told| !follower.pending.contains(told)) {
                        told.slots.iter().for_each(|slot| versions.forget_round(*slot));
                    }
                }
                let follows = matches!(follower.standing, LogFollowerState::Following(_));
                if without == Without::Away && was_starting && follows {
                    // It came down at the begin.
                    versions.raise(&[DATABASE]);
                }
            });
        } else if self.answered.len() < ROUNDS_MAX {
            // While no transaction has ended, the position before still covers all that anybody saw.
            let snapshot = self.snapshot();
            let before = self.answered.last().filter(|(_, before)| *before == snapshot).map(|(position, _)| *position);
            world.answered.push((before.unwrap_or(self.log.len() as u64), snapshot));
            world.visible_then.push(self.visible());
        } else {
            return None;
        }
        Some(world)
    }

    /// An asker notes stamps and sends; a server answers; the answer is stored.
    fn ask(&self) -> Option<World> {
        let ((slots, on_standby), mut world) = (ASKERS[self.asker], self.clone());
        world.asking.step += 1;
        match self.asking.step {
            0 => {
                let all: Vec<Slot> = [DATABASE].iter().chain(slots).copied().collect();
                let covered = (0..self.arrived).filter(|round| self.answered[*round].0 <= self.replayed as u64).max();
                let covered = covered.map_or(0, |round| round as u64 + 1);
                let versions = TableVersions::of(&self.places);
                let deps = versions.begin(&all)?;
                let (needed, deps) = (versions.round_needed(&deps), deps.slots());
                if on_standby && covered < needed {
                    return None;
                }
                world.asking.deps = deps;
            }
            1 if on_standby => world.asking.seen = self.log[..self.replayed].to_vec(),
            1 => world.asking.seen = self.visible(),
            _ => return None,
        }
        Some(world)
    }

    /// An answer is stored and true.
    fn gives(&self) -> bool {
        let (step, deps) = (self.asking.step, self.asking.deps.clone());
        step == 2 && TableVersions::of(&self.places).is_true(&ResultDependencies::of(&deps))
    }

    /// True if it lacks rows that were visible when the last covered round was asked for, and would be served all the same.
    fn is_wrong(&self, without: Without) -> bool {
        let covered = self.covered(without);
        let visible = (covered.round as usize).checked_sub(1).and_then(|at| self.visible_then.get(at));
        let concerns = |writer: &usize| WRITERS[*writer].iter().any(|slot| ASKERS[self.asker].0.contains(slot));
        let lacks = |writer: &usize| concerns(writer) && !self.asking.seen.contains(writer);
        visible.is_some_and(|visible| visible.iter().any(lacks)) && self.gives()
    }
}

/// Walks over all worlds there may be with each asker. Gives how many there are, how many give something out, and a wrong one.
fn explore(without: Without) -> (usize, usize, Option<World>) {
    let (mut count, mut giving) = (0, 0);
    for asker in 0..ASKERS.len() {
        let mut seen = HashSet::new();
        let mut open = vec![World::begin(asker, without)];
        while let Some(world) = open.pop() {
            if !seen.insert(world.clone()) {
                continue;
            }
            if world.is_wrong(without) {
                return (count + seen.len(), giving, Some(world));
            }
            let gives = world.gives();
            giving += usize::from(world.covered(without).round > 0 && gives);
            // A stale result stays stale in all later steps.
            if world.asking.step == 2 && !gives {
                continue;
            }
            open.extend(world.next(without));
        }
        count += seen.len();
    }
    (count, giving, None)
}

#[test]
fn no_order_of_steps_gives_out_an_answer_that_lacks_what_was_visible() {
    let (count, giving, wrong) = explore(Without::Nothing);
    assert_eq!(wrong, None);
    assert!(count > 10_000 && giving > 1_000, "{count} worlds, {giving} of which give something out");
}

#[test]
fn every_rule_is_needed() {
    for without in [
        Without::Visible,
        Without::Runners,
        Without::RoundAfterStart,
        Without::Away,
        Without::RaiseBeforeCover,
        Without::RoundOfSnapshot,
    ] {
        assert!(explore(without).2.is_some(), "nothing goes wrong without {without:?}");
    }
}

#[test]
fn snapshots_say_who_is_over_across_the_end_of_the_numbers() {
    let snapshot = TxidSnapshot::parse("10:14:10,12").unwrap();
    assert_eq!([9, 10, 11, 12, 13, 14].map(|xid| snapshot.shows(xid)), [true, false, true, false, true, false]);
    let snapshot = TxidSnapshot::parse("4294967290:4294967300:4294967295").unwrap();
    assert!(snapshot.shows(u32::MAX - 1) && !snapshot.shows(u32::MAX) && snapshot.shows(3) && !snapshot.shows(4));
    assert!(TxidSnapshot::parse("3:5:").unwrap().shows(4));
    let snapshot = TxidSnapshot::parse("5000000000:5000000000:").unwrap();
    let half_the_circle_ahead = (5_000_000_000_u64 + (1 << 31)) as u32;
    assert!(!snapshot.shows(half_the_circle_ahead), "a number of which nothing is known is not over");
    assert!(snapshot.shows(half_the_circle_ahead.wrapping_add(1)));
    for odd in ["", "1", "1:2", "a:b:", "1:2:x", "1:2:3:4"] {
        assert_eq!(TxidSnapshot::parse(odd), None, "{odd}");
    }
}

#[test]
fn what_is_out_of_order_or_too_much_is_an_error() {
    let versions = TableVersions::new(100);
    let mut follower = LogFollower::new(DATABASE, &versions);
    follower.start(HISTORY, 1, 1);
    assert_eq!(follower.change(2), Err(FollowError::Order));
    assert_eq!(follower.commit(2, &versions), Err(FollowError::Order));
    follower.begin(1).unwrap();
    assert_eq!(follower.begin(2), Err(FollowError::Order));
    for slot in 2..90 {
        follower.change(slot).unwrap();
    }
    follower.commit(2, &versions).unwrap();
    assert_eq!(follower.pending[0].slots, [DATABASE], "many tables are the whole database");
    for xid in 0..PENDING_MAX as u32 - 1 {
        follower.begin(xid).unwrap();
        follower.change(2).unwrap();
        follower.commit(3, &versions).unwrap();
    }
    follower.begin(1).unwrap();
    follower.change(2).unwrap();
    assert_eq!(follower.commit(3, &versions), Err(FollowError::Pending));
    follower.lose(9, &versions);
    assert_eq!((versions.history(DATABASE).1, versions.history(2).1), (1, 0), "the database stands for all of them");
    follower.end(9, &versions);
    assert_eq!(versions.history(DATABASE).1, 0);
}

#[test]
fn one_that_lags_for_long_still_covers_what_it_has() {
    let versions = TableVersions::new(4);
    let mut follower = LogFollower::new(DATABASE, &versions);
    follower.start(HISTORY, 0, 1);
    let round = |number: u64| PositionRound {
        number,
        history: HISTORY,
        position: number,
        snapshot: TxidSnapshot::default(),
        asked_ms: number,
    };
    for number in 1..=10_000 {
        follower.round(&round(number), &versions);
        follower.reach(number.saturating_sub(3000));
    }
    assert!(follower.points.len() <= POINTS_MAX);
    let covered = follower.covered().round;
    assert!((3000..=7000).contains(&covered), "{covered}");
    let other = PositionRound { history: WalHistory { timeline: 2, ..HISTORY }, ..round(10_001) };
    assert!(!follower.round(&other, &versions), "of another history nothing follows");
    assert_eq!(follower.covered().round, covered);
}

#[test]
fn of_too_many_points_every_second_of_the_older_half_is_forgotten() {
    let versions = TableVersions::new(4);
    let mut follower = LogFollower::new(DATABASE, &versions);
    follower.start(HISTORY, 0, 1);
    for number in 1..=POINTS_MAX as u64 + 1 {
        let round =
            PositionRound { number, history: HISTORY, position: number, snapshot: TxidSnapshot::default(), asked_ms: number };
        follower.round(&round, &versions);
    }
    let half = POINTS_MAX as u64 / 2;
    let left: Vec<u64> = follower.points.iter().map(|point| point.covered.round).collect();
    assert_eq!(left, (1..=half).step_by(2).chain(half + 1..=2 * half + 1).collect::<Vec<_>>());
}

#[test]
fn a_covered_round_answers_for_itself_and_earlier_ones_while_it_is_young() {
    let covered = CoveredRound { round: 7, asked_ms: 1000 };
    assert!(covered.shows(7, 1500, 500) && covered.shows(6, 1500, 500) && covered.shows(0, 1000, 0));
    assert!(!covered.shows(8, 1000, 500), "a later one");
    assert!(!covered.shows(7, 1501, 500), "too old");
    assert!(!CoveredRound::default().shows(0, 0, 500), "none is covered yet");
}

#[test]
fn after_a_change_of_names_what_is_not_visible_yet_counts_for_the_whole_database() {
    let versions = TableVersions::new(4);
    let mut follower = LogFollower::new(DATABASE, &versions);
    follower.start(HISTORY, 0, 1);
    let raised = || versions.history(DATABASE).1;
    let before = raised();
    follower.begin(10).unwrap();
    follower.change(2).unwrap();
    follower.commit(1, &versions).unwrap();
    follower.begin(11).unwrap();
    follower.change(3).unwrap();
    follower.redefine(&versions);
    assert_eq!(follower.pending[0].slots, [2, DATABASE]);
    assert_eq!(raised(), before + 1);
    follower.change(2).unwrap();
    follower.commit(2, &versions).unwrap();
    assert_eq!(follower.pending[1].slots, [DATABASE], "it was told in part");
    follower.redefine(&versions);
    assert_eq!(raised(), before + 2, "each of them once");
    follower.lose(9, &versions);
    assert_eq!((raised(), versions.history(2).1), (before, 0));
}

#[test]
fn it_is_behind_since_the_oldest_round_that_is_not_covered() {
    let versions = TableVersions::new(4);
    let mut follower = LogFollower::new(DATABASE, &versions);
    follower.start(HISTORY, 0, 1);
    assert_eq!(follower.behind_since_ms(), None);
    for number in 1..=3 {
        let snapshot = TxidSnapshot::parse("5:5:").unwrap();
        follower.round(
            &PositionRound { number, history: HISTORY, position: number * 10, snapshot, asked_ms: number * 100 },
            &versions,
        );
    }
    assert_eq!(follower.behind_since_ms(), Some(100));
    follower.reach(19);
    assert_eq!((follower.behind_since_ms(), follower.covered().round), (Some(200), 1));
    follower.reach(30);
    assert_eq!((follower.behind_since_ms(), follower.covered().round), (None, 3));
}
