//! Cases, and two sessions with transactions over all orders of their steps: nobody is answered what PostgreSQL would not answer him.

use super::*;
use crate::cache::{Deps, Outcome, Slot, Versions};
use crate::transaction::HeldLimits;
use std::collections::HashSet;

const LIMITS: HeldLimits = HeldLimits { idle_ms: 0, whole_ms: 0 };
const PLAIN: Defaults = Defaults { isolation: Isolation::ReadCommitted, read_only: false, limits: LIMITS };

fn manner(isolation: Isolation) -> Manner {
    Manner { begin: Begin { isolation, ..Begin::default() }, defaults: PLAIN }
}

#[test]
fn memory_is_asked_where_each_statement_has_a_snapshot_of_its_own() {
    use Isolation as I;
    for (begin, default, expected) in [
        (I::Unset, I::ReadCommitted, true),
        (I::Unset, I::ReadUncommitted, true),
        (I::Unset, I::RepeatableRead, false),
        (I::Unset, I::Serializable, false),
        (I::Unset, I::Unset, false),
        (I::ReadCommitted, I::Serializable, true),
        (I::ReadUncommitted, I::Unset, true),
        (I::RepeatableRead, I::ReadCommitted, false),
        (I::Serializable, I::ReadCommitted, false),
    ] {
        let manner = Manner { defaults: Defaults { isolation: default, ..PLAIN }, ..manner(begin) };
        let held = Stand::Held { manner, sees_on: true };
        assert_eq!(held.may_ask(), expected, "{begin:?} {default:?} before a server knows");
        let runs = Stand::Runs(Block::begins(&manner, Ground::Primary));
        assert_eq!(runs.may_ask(), expected, "{begin:?} {default:?} on the primary");
        assert!(!Stand::Runs(Block::begins(&manner, Ground::Standby)).may_ask(), "{begin:?} {default:?} on a standby");
    }
    assert!(Stand::Outside.may_ask() && !Stand::Other.may_ask() && !Stand::Runs(Block::default()).may_ask());
}

#[test]
fn a_transaction_that_only_reads_does_not_go_back_in_time() {
    let ask = |read_only, read_write, by_default, sees_on| {
        let begin = Begin { read_only, read_write, ..Begin::default() };
        let manner = Manner { begin, defaults: Defaults { read_only: by_default, ..PLAIN } };
        Stand::Held { manner, sees_on }.may_ask()
    };
    assert!(ask(true, false, false, true) && !ask(true, false, false, false), "it may begin on a standby that is behind");
    assert!(!ask(false, false, true, false) && ask(false, true, true, false) && ask(false, false, false, false));
}

#[test]
fn what_does_more_than_read_ends_it_and_a_server_that_counts_silence_hears_all() {
    let block = Block::begins(&manner(Isolation::Unset), Ground::Primary);
    assert_eq!(block.after(Deed::Reads), Block::Reads);
    assert_eq!(block.after(Deed::Acts).after(Deed::Reads), Block::Unknown);
    let limits = HeldLimits { idle_ms: 5000, whole_ms: 0 };
    let watched = Manner { defaults: Defaults { limits, ..PLAIN }, ..manner(Isolation::Unset) };
    assert_eq!(Block::begins(&watched, Ground::Primary), Block::Unknown, "idle_in_transaction_session_timeout");
    assert!(Stand::Held { manner: watched, sees_on: true }.may_ask(), "we count it ourselves");
}

/// A rule left out, to see that the search would find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    /// Who has one snapshot for all neither asks nor keeps.
    Isolation,
    /// Nor does who has written.
    Deeds,
    /// Who has not asked does not keep either.
    KeepAsAsked,
    /// What was written is raised before it is committed.
    Raise,
}

const TABLE: [Slot; 1] = [1];
const STEPS_MAX: u8 = 4;

/// What a session is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Doing {
    #[default]
    Nothing,
    /// Its question is about to be sent; what the answer will hang on.
    Asks(Option<u64>),
    /// It was answered.
    Told(Option<u64>, u8),
    /// It has raised, and the commit is to follow.
    Commits,
    Committed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Within {
    #[default]
    No,
    /// Begun with the isolation level of one snapshot, or not.
    Held {
        is_one: bool,
    },
    Runs {
        is_one: bool,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Session {
    within: Within,
    block: Block,
    /// The snapshot of a transaction that has but one.
    snapshot: Option<u8>,
    /// What it has read in this transaction, if that has but one snapshot.
    read: Option<u8>,
    /// What it has written and not committed.
    own: Option<u8>,
    doing: Doing,
    steps: u8,
    is_wrong: bool,
}

/// One table of one number; copied for every step tried.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct World {
    stamps: Vec<(u64, u64)>,
    committed: u8,
    written: u8,
    kept: Option<(u64, u8)>,
    sessions: [Session; 2],
}

impl World {
    fn with<T>(&mut self, act: impl FnOnce(&Versions) -> T) -> T {
        let versions = Versions::of(&self.stamps);
        let result = act(&versions);
        self.stamps = versions.look();
        result
    }

    fn next(&self, without: Without) -> Vec<World> {
        (0..2).flat_map(|at| self.step(at, without)).collect()
    }

    /// All that a session may do now.
    fn step(&self, at: usize, without: Without) -> Vec<World> {
        let one = |act: &dyn Fn(&mut World)| {
            let mut world = self.clone();
            act(&mut world);
            world
        };
        let session = &self.sessions[at];
        match session.doing {
            Doing::Asks(deps) => return vec![one(&|world| world.answer(at, deps))],
            Doing::Told(deps, value) => return vec![one(&|world| world.keep(at, deps, value, without))],
            Doing::Commits => {
                return vec![one(&|world| {
                    world.committed = world.sessions[at].own.unwrap_or(world.committed);
                    world.sessions[at].doing = Doing::Committed;
                })];
            }
            Doing::Committed => return vec![one(&|world| world.end(at, true, without))],
            Doing::Nothing if session.steps == STEPS_MAX => return Vec::new(),
            Doing::Nothing => {}
        }
        let mut next = vec![one(&|world| world.read(at, without))];
        if session.within == Within::No {
            next.extend([false, true].map(|is_one| one(&|world| world.sessions[at].within = Within::Held { is_one })));
        }
        // A row that another has written waits for its end.
        if self.sessions[1 - at].own.is_none()
            && session.snapshot.is_none_or(|seen| seen == self.committed || session.own.is_some())
        {
            next.push(one(&|world| world.write(at, without)));
        }
        if session.within != Within::No {
            next.push(one(&|world| world.end(at, false, without)));
            next.push(one(&|world| world.commit(at, without)));
        }
        next.iter_mut().for_each(|world| world.sessions[at].steps += 1);
        next
    }

    fn stand(&self, at: usize, without: Without) -> bool {
        let session = &self.sessions[at];
        let stand = match session.within {
            Within::No => Stand::Outside,
            Within::Held { is_one } => Stand::Held { manner: manner(level(is_one, without)), sees_on: true },
            Within::Runs { .. } => Stand::Runs(session.block),
        };
        stand.may_ask()
    }

    /// Begins on the primary, if it has not.
    fn begin(&mut self, at: usize, without: Without) {
        let session = &mut self.sessions[at];
        if let Within::Held { is_one } = session.within {
            session.within = Within::Runs { is_one };
            session.block = Block::begins(&manner(level(is_one, without)), Ground::Primary);
        }
    }

    fn read(&mut self, at: usize, without: Without) {
        let may_ask = self.stand(at, without);
        if let Some((stamp, value)) = self.kept.filter(|_| may_ask)
            && self.with(|versions| versions.is_true(&Deps::of(&[(TABLE[0], stamp)])))
        {
            return self.told(at, value);
        }
        let asks = may_ask || without == Without::KeepAsAsked;
        let deps = if asks { self.with(|versions| versions.begin(&TABLE).map(|deps| deps.slots()[0].1)) } else { None };
        self.begin(at, without);
        self.sessions[at].doing = Doing::Asks(deps);
    }

    /// What PostgreSQL shows a session now.
    fn shown(&mut self, at: usize) -> u8 {
        let committed = self.committed;
        let session = &mut self.sessions[at];
        if matches!(session.within, Within::Runs { is_one: true }) {
            session.snapshot.get_or_insert(committed);
        }
        session.own.or(session.snapshot).unwrap_or(committed)
    }

    fn answer(&mut self, at: usize, deps: Option<u64>) {
        let value = self.shown(at);
        self.sessions[at].doing = Doing::Told(deps, value);
        self.note_read(at, value);
    }

    /// A session that has one snapshot must read the same again, until it writes.
    fn note_read(&mut self, at: usize, value: u8) {
        let session = &mut self.sessions[at];
        if matches!(session.within, Within::Held { is_one: true } | Within::Runs { is_one: true }) && session.own.is_none() {
            session.is_wrong |= session.read.is_some_and(|before| before != value);
            session.read = Some(value);
        }
    }

    /// It is answered from memory.
    fn told(&mut self, at: usize, value: u8) {
        let session = &self.sessions[at];
        let meant = session.own.or(session.snapshot).unwrap_or(self.committed);
        self.sessions[at].is_wrong |= value != meant;
        self.note_read(at, value);
    }

    fn keep(&mut self, at: usize, deps: Option<u64>, value: u8, without: Without) {
        let may_keep = self.stand(at, without) || without == Without::KeepAsAsked;
        if let Some(stamp) = deps.filter(|_| may_keep) {
            self.kept = Some((stamp, value));
        }
        self.sessions[at].doing = Doing::Nothing;
    }

    fn write(&mut self, at: usize, without: Without) {
        self.begin(at, without);
        self.written += 1;
        let committed = self.committed;
        let session = &mut self.sessions[at];
        if matches!(session.within, Within::Runs { is_one: true }) {
            session.snapshot.get_or_insert(committed);
        }
        session.own = Some(self.written);
        match session.within {
            Within::No => self.commit(at, without),
            Within::Held { .. } | Within::Runs { .. } if without == Without::Deeds => {}
            Within::Held { .. } | Within::Runs { .. } => session.block = session.block.after(Deed::Acts),
        }
    }

    fn commit(&mut self, at: usize, without: Without) {
        if self.sessions[at].own.is_none() {
            return self.end(at, false, without);
        }
        if without != Without::Raise {
            self.with(|versions| versions.raise(&TABLE));
        }
        self.sessions[at].doing = Doing::Commits;
    }

    fn end(&mut self, at: usize, has_committed: bool, without: Without) {
        if has_committed && without != Without::Raise {
            self.with(|versions| versions.settle(&TABLE, Outcome::Committed { round: 1 }));
        }
        if has_committed && without == Without::Raise {
            self.with(|versions| versions.change(&TABLE, 1));
        }
        let Session { steps, is_wrong, .. } = self.sessions[at];
        self.sessions[at] = Session { steps, is_wrong, ..Session::default() };
    }
}

fn level(is_one: bool, without: Without) -> Isolation {
    if is_one && without != Without::Isolation { Isolation::RepeatableRead } else { Isolation::ReadCommitted }
}

/// Walks over all worlds there may be. Gives how many there are, and a wrong one.
fn explore(without: Without) -> (usize, Option<World>) {
    let mut seen = HashSet::new();
    let mut open = vec![World { stamps: vec![(0, 1); 2], ..World::default() }];
    while let Some(world) = open.pop() {
        if !seen.insert(world.clone()) {
            continue;
        }
        if world.sessions.iter().any(|session| session.is_wrong) {
            return (seen.len(), Some(world));
        }
        open.extend(world.next(without));
    }
    (seen.len(), None)
}

#[test]
fn no_order_of_transactions_shows_anybody_what_postgresql_would_not() {
    let (count, wrong) = explore(Without::Nothing);
    assert!(count > 10_000, "{count} worlds");
    assert_eq!(wrong, None);
}

#[test]
fn every_rule_of_transactions_is_needed() {
    for without in [Without::Isolation, Without::Deeds, Without::KeepAsAsked, Without::Raise] {
        assert!(explore(without).1.is_some(), "nothing goes wrong without {without:?}");
    }
}
