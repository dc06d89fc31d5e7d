//! Plays two Weirs over one forgetful store that also returns old values, in random order. Writers past both commit. Each
//! Weir's follower takes in the log, hears of rounds and loses its stream, sometimes for another timeline. Askers fill the
//! store and are served. A result that is served shows all that its Weir's last covered round saw, and nothing behind the round
//! that is told with it. With any one rule left out, some run serves a wrong result.

use super::super::versions::WriterOutcome;
use super::*;
use crate::followed_log::{PositionRound, TxidSnapshot};

/// A rule left out, to see that the search would find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    /// A change behind the proof is a reason not to serve.
    Floor,
    /// Changes before a follower's begin are not known to it.
    Begin,
    /// A change that is raised and not settled is a reason not to serve.
    Quiet,
    /// A round is asked for after the answer has come, and the log was taken in up to there.
    Wait,
    /// The words are the same when it is proven.
    Words,
    /// Positions compare within one timeline only.
    Timeline,
    /// A change whose round is not answered has no floor.
    Unanswered,
    /// The Weir that serves has taken in the log up to the proof.
    Reach,
}

const DATABASE: Slot = 0;
const TABLE: Slot = 2;
const OTHER: Slot = 3;
const SYSTEM: u64 = 1;
const RUNS: u64 = 2_000;
const STEPS: usize = 800;

/// A commit in the log.
#[derive(Clone, Copy)]
struct Commit {
    number: usize,
    table: Slot,
    /// Through this Weir; others: past both.
    weir: Option<usize>,
    is_visible: bool,
}

/// The rows of the table that a client sees: the numbers of their commits.
type Rows = Vec<usize>;

#[derive(Clone)]
struct Stored {
    proof: ResultProof,
    rows: Rows,
}

struct Filling {
    deps: ResultDependencies,
    /// The server's answer, and the round that begins after it.
    answer: Option<(Rows, u64)>,
}

struct Weir {
    versions: TableVersions,
    follower: LogFollower,
    /// Commits its stream has told; none: there is no stream.
    told: Option<usize>,
    rounds: u64,
    /// Rows that were visible when each round was asked for, and the end of the log then.
    saw: Vec<(Rows, u64)>,
    filling: Option<Filling>,
    /// The number of a commit through it that is not answered yet.
    writer: Option<usize>,
}

struct World {
    without: Without,
    dice: u64,
    timeline: u32,
    log: Vec<Commit>,
    commits: usize,
    weirs: [Weir; 2],
    store: Vec<Stored>,
    served: usize,
}

impl Weir {
    fn new() -> Weir {
        let versions = TableVersions::new(4);
        let follower = LogFollower::new(DATABASE, &versions);
        Weir { versions, follower, told: None, rounds: 0, saw: Vec::new(), filling: None, writer: None }
    }

    fn lose(&mut self) {
        self.told = None;
        self.follower.lose(self.rounds + 1, &self.versions);
    }
}

impl World {
    fn new(without: Without, seed: u64) -> World {
        let weirs = [Weir::new(), Weir::new()];
        World { without, dice: seed, timeline: 1, log: Vec::new(), commits: 0, weirs, store: Vec::new(), served: 0 }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.dice >> 33) as usize % bound.max(1)
    }

    fn history(&self) -> WalHistory {
        WalHistory { node: 0, system: SYSTEM, timeline: self.timeline }
    }

    /// Commits of the table that a query sees now.
    fn visible(&self) -> Rows {
        self.log.iter().filter(|commit| commit.table == TABLE && commit.is_visible).map(|commit| commit.number).collect()
    }

    /// Takes one step. Some: the fault in a result that was served.
    fn step(&mut self) -> Option<String> {
        let at = self.below(2);
        match self.below(13) {
            0 => self.commit(),
            1 | 2 => self.show(),
            3..=5 => self.tell(at),
            6 | 7 => self.ask_round(at),
            8 | 9 => self.fill(at),
            10 | 11 => return self.serve(at),
            _ => self.trouble(at),
        }
        None
    }

    /// Somebody commits past both Weirs, or through one; or a writer through one is told that it is over.
    fn commit(&mut self) {
        let (table, at) = (if self.below(3) > 0 { TABLE } else { OTHER }, self.below(4));
        let mut weir = None;
        if let Some(own) = self.weirs.get_mut(at) {
            if let Some(number) = own.writer {
                // It is answered once others see it.
                if self.log.iter().any(|commit| commit.number == number && commit.is_visible) {
                    own.writer = None;
                    own.versions.settle(&[TABLE], WriterOutcome::Committed { round: own.rounds + 1 });
                }
                return;
            }
            own.versions.raise(&[TABLE]);
            own.writer = Some(self.commits);
            weir = Some(at);
        }
        let table = if weir.is_some() { TABLE } else { table };
        self.log.push(Commit { number: self.commits, table, weir, is_visible: false });
        self.commits += 1;
    }

    /// A commit becomes visible.
    fn show(&mut self) {
        let hidden: Vec<usize> = (0..self.log.len()).filter(|at| !self.log[*at].is_visible).collect();
        if !hidden.is_empty() {
            let at = hidden[self.below(hidden.len())];
            self.log[at].is_visible = true;
        }
    }

    /// A stream goes on, or begins.
    fn tell(&mut self, at: usize) {
        let (history, end) = (self.history(), self.log.len());
        let weir = &mut self.weirs[at];
        match weir.told {
            None => {
                weir.told = Some(end);
                weir.follower.start(history, end as u64, weir.rounds + 1);
            }
            Some(told) if told < end => {
                weir.told = Some(told + 1);
                weir.follower.begin(told as u32).unwrap();
                weir.follower.change(self.log[told].table).unwrap();
                weir.follower.commit(told as u64 + 1, &weir.versions).unwrap();
            }
            Some(_) => {}
        }
    }

    fn ask_round(&mut self, at: usize) {
        let hidden: Vec<String> =
            (0..self.log.len()).filter(|number| !self.log[*number].is_visible).map(|number| number.to_string()).collect();
        let (end, rows) = (self.log.len(), self.visible());
        let below = hidden.first().cloned().unwrap_or_else(|| end.to_string());
        let snapshot = TxidSnapshot::parse(&format!("{below}:{end}:{}", hidden.join(","))).unwrap();
        let (history, position) = (self.history(), end as u64);
        let weir = &mut self.weirs[at];
        weir.rounds += 1;
        weir.saw.push((rows, position));
        let was_starting = matches!(weir.follower.standing(), LogFollowerState::Starting { .. });
        let round = PositionRound { number: weir.rounds, history, position, snapshot, asked_ms: 0 };
        weir.follower.round(&round, &weir.versions);
        if self.without == Without::Begin && was_starting {
            let floors = weir.follower.floors_mut();
            floors.opened = floors.opened.map(|(round, _)| (round, 0));
        }
    }

    /// A session notes the words, is answered, and has the answer stored when it is proven.
    fn fill(&mut self, at: usize) {
        let (rows, without) = (self.visible(), self.without);
        let weir = &mut self.weirs[at];
        match weir.filling.take() {
            None => weir.filling = weir.versions.begin(&[DATABASE, TABLE]).map(|deps| Filling { deps, answer: None }),
            Some(Filling { deps, answer: None }) => {
                // It begins after now.
                weir.filling = Some(Filling { deps, answer: Some((rows, weir.rounds + 1)) });
            }
            Some(Filling { deps, answer: Some((rows, round)) }) => {
                let asked = if without == Without::Wait { 0 } else { round };
                let known = match without {
                    Without::Words => weir.versions.begin(&[DATABASE, TABLE]).unwrap_or_else(|| deps.clone()),
                    _ => deps.clone(),
                };
                match weir.follower.prove(&weir.versions, &known, asked) {
                    ResultProofState::Proven(proof) => self.store.push(Stored { proof, rows }),
                    ResultProofState::Waits => weir.filling = Some(Filling { deps, answer: Some((rows, round)) }),
                    ResultProofState::Void => {}
                }
            }
        }
    }

    /// The store gives anything it ever had, or nothing.
    fn serve(&mut self, at: usize) -> Option<String> {
        if self.store.is_empty() || self.below(4) == 0 {
            return None;
        }
        // The newest as often as all others.
        let number = if self.below(2) == 0 { self.store.len() - 1 } else { self.below(self.store.len()) };
        let Stored { mut proof, rows } = self.store[number].clone();
        let weir = &mut self.weirs[at];
        let covered = weir.follower.covered().round;
        if covered == 0 {
            return None;
        }
        if let (Without::Timeline, LogFollowerState::Following(history)) = (self.without, weir.follower.standing()) {
            proof.timeline = history.timeline;
        }
        let slots = [DATABASE, TABLE];
        if self.without == Without::Reach && proof.position > weir.follower.position() {
            // As if it had been proven for the position that is known here.
            proof.position = weir.follower.position();
        }
        let round = match self.without {
            Without::Floor => weir.follower.admits(&weir.versions, &slots[..1], &proof)?,
            Without::Quiet => {
                let (_, writers) = weir.versions.history(TABLE);
                (0..writers).for_each(|_| weir.versions.settle(&[TABLE], WriterOutcome::RolledBack));
                let round = weir.follower.admits(&weir.versions, &slots, &proof);
                (0..writers).for_each(|_| weir.versions.raise(&[TABLE]));
                round?
            }
            Without::Unanswered if weir.versions.round_of(TABLE) > weir.rounds => {
                weir.follower.admits(&weir.versions, &slots[..1], &proof)?
            }
            _ => weir.follower.admits(&weir.versions, &slots, &proof)?,
        };
        self.served += 1;
        let saw = |round: u64| weir.saw[round as usize - 1].clone();
        let lacks = saw(covered).0.iter().any(|commit| !rows.contains(commit));
        // Any client may have seen rows that were written through this Weir and are visible.
        let is_own = |commit: &&Commit| commit.weir == Some(at) && commit.is_visible;
        let lacks_own = self.log.iter().filter(is_own).any(|commit| !rows.contains(&commit.number));
        let end = saw(round).1 as usize;
        let beyond = rows.iter().any(|number| self.log.iter().take(end).all(|commit| commit.number != *number));
        (lacks || lacks_own || beyond)
            .then(|| format!("{rows:?} at {proof:?}, covered {:?}, shown with {:?}", saw(covered), saw(round)))
    }

    /// A stream is lost; or a standby is promoted that lacks the end of the log, and each Weir goes on with it.
    fn trouble(&mut self, at: usize) {
        match self.below(24) {
            0 => self.weirs[at].lose(),
            1 if self.weirs.iter().all(|weir| weir.writer.is_none()) => self.promote(),
            _ => {
                if !self.store.is_empty() && self.below(8) == 0 {
                    let number = self.below(self.store.len());
                    self.store.remove(number);
                }
            }
        }
    }

    fn promote(&mut self) {
        let kept = self.log.len().saturating_sub(self.below(3));
        self.log.truncate(kept);
        self.log.iter_mut().for_each(|commit| commit.is_visible = true);
        self.timeline += 1;
        for weir in &mut self.weirs {
            weir.lose();
            weir.filling = None;
            weir.versions.change(&[DATABASE], weir.rounds + 1);
        }
    }
}

/// Runs many worlds. Returns how often something was served, and the first fault.
fn search(without: Without) -> (usize, Option<String>) {
    let mut served = 0;
    for seed in 0..RUNS {
        let mut world = World::new(without, seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        for step in 0..STEPS {
            if let Some(wrong) = world.step() {
                return (served, Some(format!("seed {seed}, step {step}: {wrong}")));
            }
        }
        served += world.served;
    }
    (served, None)
}

#[test]
fn nothing_is_served_from_a_shared_store_that_postgresql_would_not_have_said() {
    let (served, wrong) = search(Without::Nothing);
    assert_eq!(wrong, None);
    assert!(served > 4_000, "{served} were served");
}

#[test]
fn every_rule_is_needed() {
    for without in
        [Without::Floor, Without::Begin, Without::Quiet, Without::Wait, Without::Words, Without::Timeline, Without::Unanswered]
    {
        assert!(search(without).1.is_some(), "nothing goes wrong without {without:?}");
    }
}

#[test]
fn a_change_before_the_begin_or_long_ago_has_the_position_of_a_round_that_covers_it() {
    let mut floors = ChangeFloors::default();
    assert_eq!(floors.floor(TABLE, 1), None);
    floors.open(5, 50);
    assert_eq!((floors.floor(TABLE, 5), floors.floor(TABLE, 6)), (Some(50), None));
    floors.note_changes(&[OTHER], 6, 60);
    for round in 6..10_000 {
        floors.note_round(round, 10 * round);
    }
    assert!(floors.rounds.len() <= ROUNDS_MAX);
    assert_eq!((floors.floor(OTHER, 6), floors.floor(TABLE, 5)), (Some(60), Some(50)));
    assert!(floors.floor(TABLE, 7).is_some_and(|floor| floor >= 70));
    assert_eq!((floors.floor(TABLE, 9_999), floors.floor(TABLE, 10_000)), (Some(99_990), None));
}

#[test]
fn of_few_rounds_each_is_remembered_and_of_many_the_later_ones() {
    let mut floors = ChangeFloors::default();
    floors.open(1, 10);
    let rounds = ROUNDS_MAX as u64;
    (2..2 + rounds).for_each(|round| floors.note_round(round, round * 10));
    (2..2 + rounds).for_each(|round| assert_eq!(floors.from(round), Some((round, round * 10))));
    (2 + rounds..2 + 3 * rounds).for_each(|round| floors.note_round(round, round * 10));
    assert!(floors.rounds.len() <= ROUNDS_MAX);
    let last = 1 + 3 * rounds;
    assert_eq!(floors.from(last), Some((last, last * 10)));
    assert!(floors.from(2).is_some_and(|(round, position)| round > 2 && position == round * 10), "a later one stands for it");
}

#[test]
fn what_was_proven_before_a_wish_to_forget_is_not_admitted_though_nothing_was_written_since() {
    let versions = TableVersions::new(4);
    let mut follower = LogFollower::new(DATABASE, &versions);
    let history = WalHistory { node: 0, system: SYSTEM, timeline: 1 };
    let round = |number, position| PositionRound {
        number,
        history,
        position,
        snapshot: TxidSnapshot::parse("9:9:").unwrap(),
        asked_ms: 0,
    };
    follower.start(history, 5, 1);
    follower.round(&round(1, 10), &versions);
    follower.reach(10);
    let proof = |position| ResultProof { system: SYSTEM, timeline: 1, position };
    assert_eq!(follower.admits(&versions, &[DATABASE, TABLE], &proof(10)), Some(1));
    follower.forget(2);
    assert_eq!(follower.admits(&versions, &[DATABASE, TABLE], &proof(10)), None, "the round is not answered");
    follower.round(&round(2, 10), &versions);
    assert_eq!(follower.admits(&versions, &[DATABASE, TABLE], &proof(10)), None);
    follower.round(&round(3, 11), &versions);
    follower.reach(11);
    assert_eq!(
        follower.admits(&versions, &[DATABASE, TABLE], &proof(11)),
        Some(1),
        "of the last change, which was before the begin"
    );
}
