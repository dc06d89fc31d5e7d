//! Two members and a store that loses what it likes, over all orders of their steps: no answer is given out that the primary did not give
//! when it was asked for. With any one rule switched off there is an order in which one is.

use super::super::stamp::{FOLLOWER, PAST, settled};
use super::super::versions::Deps;
use super::*;
use std::collections::{HashSet, VecDeque};

/// A rule left out, to see that the search would find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Without {
    Nothing,
    /// A writer's marks are in the store before his commit is sent.
    MarksBeforeCommit,
    /// Who finds marks trusts nothing.
    LookForMarks,
    /// A commit gives another base.
    NewBase,
    /// Stamps are taken before the question is sent.
    StampsBeforeQuestion,
    /// A stamp that was made anew is young until all members have looked for their marks.
    YoungUntilLooked,
    /// A base that is new here needs a standby that covers all that was before.
    StandbyCovers,
    /// Who cannot reach the store waits until the others have stopped to answer from it.
    OthersStop,
    /// Before the others may go on, the store is told what it was not.
    ToldBeforeOthers,
    /// Where whoever was cut off went without having told it, everything has changed.
    ChangeWhenLost,
    /// Who heard of that while he asked does not give what he found before.
    SameEra,
    /// A swap is for what was looked at.
    SwapIfSame,
    /// From a host that the follower of the log cannot reach nothing is given out.
    NothingWhileAway,
    /// Nor until it has been told what it was not.
    NothingWhileOwed,
    /// What the log tells counts as taken in when the store knows.
    KnownBeforeCovered,
    /// Of the second write it knows when an append has ended that was sent for it.
    OwnNumber,
    /// What is marked as past is so.
    OverBeforeMarked,
}

/// What happens in a search.
#[derive(Clone, Copy)]
struct Bounds {
    /// Which slots each writer writes; the number is the member's.
    writers: [&'static [Slot]; 2],
    losses: u8,
    /// How often the second member is cut off from the store.
    cuts: u8,
    standby: bool,
    rollbacks: bool,
    /// How often the first member takes the second's mark for one that was left behind, though it lives.
    burials: u8,
    /// Whether the second member may be gone while it is cut off.
    dies: bool,
    /// Whether the second member's writer asks for marks once more, and gives up waiting for them.
    gives_up: bool,
    /// The second member is the first one's follower of the log: its writers ask nobody whether they may commit.
    follows: bool,
    /// It tells of a second write, perhaps before the store has answered to the first.
    twice: bool,
    /// The second member tells of what has changed before: that counts when the store knows.
    is_past: bool,
}

/// What the asker, of the first member, reads.
const READ: [Slot; 2] = [1, 2];
/// Late enough for marks to have stood there too long.
const NOW: u64 = DEAD_MS;
/// After all that is young has grown old.
const LATER: u64 = NOW + YOUNG_MS;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    store: [Option<Stamp>; 2],
    members: [Holds; 2],
    /// What is on its way to the store from each.
    sent: [VecDeque<Order>; 2],
    /// What each has looked at and means to swap.
    seen_stamp: [[Option<Stamp>; 2]; 2],
    writers: [u8; 2],
    rolled_back: [bool; 2],
    commits: Vec<Vec<Slot>>,
    replayed: usize,
    /// Bases that the first member knows, and the commits a standby must show for them.
    known: [(u64, usize); 2],
    asker: Asker,
    giver: Giver,
    losses: u8,
    cuts: u8,
    burials: u8,
    is_cut: bool,
    /// The second member has said that it commits untold; the first has heard of it.
    is_locked: bool,
    is_heard: bool,
    lost: Lost,
    /// The host lacks, or lacked, something that the log has told.
    lags: bool,
    /// So many writes that the log has told count as taken in.
    covered: u64,
}

/// A lock that went before the store was told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Lost {
    #[default]
    No,
    /// The first member has not seen that yet.
    Unseen,
    /// It has the store know that everything has changed.
    Telling,
    /// It has: once is enough to explore.
    Told,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Asker {
    step: u8,
    found: Vec<Option<Stamp>>,
    deps: Option<Deps>,
    needed: usize,
    seen: usize,
    may_store: bool,
}

/// Who asks for the stored answer: what it found so far, and how many commits there were when it began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Giver {
    found: Vec<Option<Stamp>>,
    begun_at: usize,
    is_wrong: bool,
}

fn at(slot: Slot) -> usize {
    slot as usize - 1
}

impl World {
    fn begin(Bounds { standby, follows, is_past, .. }: Bounds) -> World {
        let second = if follows {
            FOLLOWER.into()
        } else if is_past {
            PAST.into()
        } else {
            1
        };
        let quiet = |base| Some(Stamp::made(base, 9, false).without(|_| true));
        World {
            store: [quiet(1), quiet(2)],
            members: [Holds::new(0), Holds::new(second)],
            sent: Default::default(),
            seen_stamp: Default::default(),
            writers: [0; 2],
            rolled_back: [false; 2],
            // What was written before the start may be missing on the standby.
            commits: if standby { vec![READ.to_vec()] } else { Vec::new() },
            replayed: 0,
            known: [(0, 0); 2],
            asker: Asker::default(),
            giver: Giver::default(),
            losses: 0,
            cuts: 0,
            burials: 0,
            is_cut: false,
            is_locked: false,
            is_heard: false,
            lost: Lost::No,
            lags: false,
            covered: 0,
        }
    }

    /// A base that stands nowhere: the least, so that worlds that differ in nothing but the names of bases are one.
    fn fresh(&self) -> u64 {
        let ordered = |order: &Order| match order {
            Order::Make(_, stamp) | Order::Swap(_, stamp) => Some(stamp.base),
            Order::Append(..) | Order::Look(_) => None,
        };
        let found = self.store.iter().chain(self.seen_stamp.iter().flatten()).chain(&self.asker.found).chain(&self.giver.found);
        let mut used: Vec<u64> = found.flatten().map(|stamp| stamp.base).collect();
        used.extend(self.sent.iter().flatten().filter_map(ordered));
        used.extend(self.known.iter().map(|(base, _)| *base));
        used.extend(self.asker.deps.iter().flat_map(|deps| deps.pairs().iter().map(|(_, base)| *base)));
        (1..).find(|base| !used.contains(base)).unwrap_or(u64::MAX)
    }

    fn send(&mut self, member: usize, orders: impl IntoIterator<Item = Order>) {
        self.sent[member].extend(orders);
    }

    fn next(&self, bounds: Bounds, without: Without) -> Vec<World> {
        let mut next: Vec<World> = Vec::new();
        for member in 0..2 {
            next.extend(self.write(member, false, bounds, without));
            next.extend(self.write(member, true, bounds, without));
            next.extend(self.deliver(member, without));
            next.extend(READ.into_iter().filter_map(|slot| self.ripen(member, slot, bounds, without)));
            next.extend(READ.into_iter().filter_map(|slot| self.check(member, slot)));
        }
        if self.burials < bounds.burials {
            next.extend(READ.into_iter().filter_map(|slot| self.bury(slot, 0)));
            next.extend(READ.into_iter().filter_map(|slot| self.bury(slot, NOW - GROWN_MS)));
        }
        next.extend(self.ask(bounds, without));
        next.extend(self.give(bounds, without));
        if bounds.standby && self.replayed < self.commits.len() {
            next.push(World { replayed: self.replayed + 1, ..self.clone() });
        }
        if self.losses < bounds.losses {
            // What is read and never written loses nothing that counts.
            for slot in bounds.writers.concat().into_iter().map(at) {
                let mut world = World { losses: self.losses + 1, ..self.clone() };
                world.store[slot] = None;
                next.push(world);
            }
        }
        next.extend(self.cut(bounds, without));
        next.iter_mut().for_each(|world| world.note(bounds, without));
        next
    }

    /// What is noted after each step.
    fn note(&mut self, bounds: Bounds, without: Without) {
        let owes = self.members[1].owes(self.is_cut);
        if bounds.follows {
            let is_away = self.is_cut && without != Without::NothingWhileAway;
            self.lags = is_away || (self.lags && owes && without != Without::NothingWhileOwed);
            let raised = u64::from(self.writers[1] > 0) + u64::from(self.writers[1] > 3);
            while self.covered < raised {
                let number = if without == Without::OwnNumber { 1 } else { self.covered + 1 };
                let is_known = bounds.writers[1].iter().all(|slot| self.members[1].is_told_of(*slot, number));
                if !is_known && !self.is_cut && without != Without::KnownBeforeCovered {
                    break;
                }
                self.covered += 1;
            }
        }
    }

    /// A writer's marks are asked for; he commits or rolls back; what he did is settled.
    fn write(&self, at: usize, rolls_back: bool, bounds: Bounds, without: Without) -> Option<World> {
        let (slots, mut world) = (bounds.writers[at], self.clone());
        if slots.is_empty() || (rolls_back && (self.writers[at] != 1 || !bounds.rollbacks)) {
            return None;
        }
        world.writers[at] += 1;
        let is_over = at == 1 && bounds.is_past && without != Without::OverBeforeMarked;
        let is_second = at == 1 && bounds.twice && self.writers[at] >= 3;
        match if is_second { self.writers[at] - 3 } else { self.writers[at] } {
            0 => {
                if is_over {
                    world.commits.push(slots.to_vec());
                }
                let number = 1 + u64::from(is_second);
                let orders: Vec<Order> = slots.iter().filter_map(|slot| world.members[at].raise_as(*slot, number)).collect();
                if !(at == 1 && self.is_cut) {
                    world.send(at, orders);
                }
            }
            1 => {
                let is_raised = slots.iter().all(|slot| self.members[at].is_raised(*slot));
                let is_granted = at == 1 && self.is_cut && self.is_locked && (self.is_heard || without == Without::OthersStop);
                let asks = without != Without::MarksBeforeCommit && !(at == 1 && bounds.follows);
                if asks && !is_raised && !is_granted {
                    return None;
                }
                world.rolled_back[at] = rolls_back;
                if !rolls_back && !is_over {
                    world.commits.push(slots.to_vec());
                }
            }
            2 => {
                let is_changed = !self.rolled_back[at] && without != Without::NewBase;
                let orders: Vec<Order> = slots.iter().filter_map(|slot| world.members[at].settle(*slot, is_changed)).collect();
                if !(at == 1 && self.is_cut) {
                    world.send(at, orders);
                } else {
                    world.members[at].lose();
                }
            }
            3 if at == 1 && bounds.gives_up => {
                let orders: Vec<Order> = slots.iter().filter_map(|slot| world.members[at].raise(*slot)).collect();
                world.send(at, orders);
            }
            4 => {
                let orders: Vec<Order> = slots.iter().filter_map(|slot| world.members[at].settle(*slot, false)).collect();
                world.send(at, orders);
            }
            _ => return None,
        }
        Some(world)
    }

    /// The store does the next order of a member, who hears of it.
    fn deliver(&self, member: usize, without: Without) -> Option<World> {
        let mut world = self.clone();
        let order = world.sent[member].pop_front()?;
        let fresh = world.fresh();
        let next = match order {
            Order::Append(slot, mark, number) => {
                let stamp = &mut world.store[at(slot)];
                let is_done = stamp.is_some();
                *stamp = stamp.take().map(|stamp| stamp.with(mark));
                world.members[member].appended(slot, number, is_done, NOW, fresh)
            }
            Order::Make(slot, stamp) => {
                let is_done = world.store[at(slot)].is_none();
                if is_done {
                    world.store[at(slot)] = Some(stamp.clone());
                }
                world.members[member].made(slot, &stamp, is_done, NOW)
            }
            Order::Look(slot) => {
                let found = world.store[at(slot)].clone();
                world.seen_stamp[member][at(slot)] = found.clone();
                let is_old = world.members[member].holds.get(&slot).is_some_and(|hold| hold.young_until_ms == Some(NOW));
                let now_ms = if is_old { LATER } else { NOW };
                world.members[member].looked(slot, found.map_or(Found::Nothing, Found::Stamp), now_ms, fresh)
            }
            Order::Swap(slot, stamp) => {
                let seen = world.seen_stamp[member][at(slot)].clone();
                let is_done = world.store[at(slot)] == seen || without == Without::SwapIfSame;
                if is_done {
                    world.store[at(slot)] = Some(stamp);
                }
                world.members[member].swapped(slot, is_done, NOW)
            }
        };
        world.send(member, next);
        Some(world)
    }

    /// The stamps this member has made are old enough: by then each member with writers has found its marks there, or put them there again,
    /// or is cut off and has the others' ear. One that tells of what is past may have died: nobody puts its marks there again.
    fn ripen(&self, member: usize, slot: Slot, bounds: Bounds, without: Without) -> Option<World> {
        let hold = self.members[member].holds.get(&slot)?;
        if hold.young_until_ms.is_none_or(|until| until == NOW) || (member == 1 && self.is_cut) {
            return None;
        }
        let has_mark = |other: usize| {
            let mark = self.members[other].mark(Kind::Writer);
            let is_under = matches!(self.writers[other], 1 | 2) || (bounds.twice && matches!(self.writers[other], 4 | 5));
            let is_there = self.store[at(slot)].as_ref().is_none_or(|stamp| stamp.has(mark));
            !is_under
                || is_there
                || !self.members[other].holds.contains_key(&slot)
                || (other == 1 && (bounds.is_past || (self.is_cut && (self.is_heard || self.lags))))
        };
        if without != Without::YoungUntilLooked && !(has_mark(0) && has_mark(1)) {
            return None;
        }
        let mut world = self.clone();
        world.members[member].holds.get_mut(&slot)?.young_until_ms = Some(NOW);
        let orders: Vec<Order> = world.members[member].due(NOW);
        world.send(member, orders);
        Some(world)
    }

    /// A member looks whether its mark is there. Of interest when it is not.
    fn check(&self, member: usize, slot: Slot) -> Option<World> {
        let mark = self.members[member].mark(Kind::Writer);
        let is_there = self.store[at(slot)].as_ref().is_some_and(|stamp| stamp.has(mark));
        if !self.members[member].is_raised(slot) || is_there || (member == 1 && self.is_cut) {
            return None;
        }
        let mut world = self.clone();
        let order = look(slot, world.members[member].holds.get_mut(&slot)?);
        order.as_ref()?;
        world.send(member, order);
        Some(world)
    }

    /// The first member has seen the other's mark for too long: for any, or for one that says that it is young.
    fn bury(&self, slot: Slot, since_ms: u64) -> Option<World> {
        let other = self.members[1].member;
        let stamp = self.store[at(slot)].as_ref().filter(|stamp| stamp.members().any(|member| member == other))?;
        let mut world = World { burials: self.burials + 1, ..self.clone() };
        world.members[0].sightings.insert(slot, Sighting { members: vec![other], since_ms });
        let order = world.members[0].sighted(slot, stamp, NOW);
        world.send(0, order);
        Some(world)
    }

    /// The asker takes its stamps one by one, asks a server, and stores the answer.
    fn ask(&self, bounds: Bounds, without: Without) -> Option<World> {
        if self.asker.step < 2 && self.lags {
            return None;
        }
        let mut world = self.clone();
        world.asker.step += 1;
        match self.asker.step {
            step @ (0 | 1) => {
                let slot = READ[usize::from(step)];
                let found = self.store[at(slot)].clone();
                if found.is_none() {
                    let fresh = world.fresh();
                    let order = world.members[0].missed(slot, NOW, fresh);
                    order.as_ref()?;
                    world.send(0, order);
                    world.asker = Asker::default();
                    return Some(world);
                }
                world.asker.found.push(found);
                if step == 1 {
                    world.note_deps(without);
                }
            }
            2 => {
                world.asker.seen = if bounds.standby { self.replayed } else { self.commits.len() };
                world.asker.may_store =
                    !bounds.standby || self.replayed >= self.asker.needed || without == Without::StandbyCovers;
            }
            3 => {
                if without == Without::StampsBeforeQuestion {
                    world.asker.found = self.store.to_vec();
                    world.note_deps(without);
                }
                world.asker.may_store &= world.asker.deps.is_some();
            }
            _ => return None,
        }
        Some(world)
    }

    /// What the asker's answer hangs on.
    fn note_deps(&mut self, without: Without) {
        self.asker.deps = deps_of(&self.asker.found, without);
        self.asker.needed = 0;
        for (slot, base) in self.asker.deps.iter().flat_map(|deps| deps.pairs().to_vec()) {
            let known = &mut self.known[at(slot)];
            if known.0 != base {
                *known = (base, self.commits.len());
            }
            self.asker.needed = self.asker.needed.max(known.1);
        }
    }

    /// Somebody of the first member asks for the stored answer: one stamp after the other, too.
    fn give(&self, bounds: Bounds, without: Without) -> Option<World> {
        if self.asker.step < 4 || !self.asker.may_store || (self.is_heard && without != Without::SameEra) {
            return None;
        }
        let mut world = self.clone();
        let step = self.giver.found.len();
        let committed = u64::from(self.writers[1] > 1) + u64::from(self.writers[1] > 4);
        let is_behind = step == 0 && committed > self.covered;
        if bounds.follows && (self.lags || is_behind) {
            return None;
        }
        if step == 0 {
            // Of what is over nobody may have heard before it was found out.
            let is_untold = bounds.is_past && self.writers[1] == 1;
            world.giver.begun_at = if is_untold { 0 } else { self.commits.len() };
        }
        world.giver.found.push(self.store[step].clone());
        if step == 1 {
            let is_given = !self.is_heard && deps_of(&world.giver.found, without) == self.asker.deps;
            let reads = |tables: &Vec<Slot>| tables.iter().any(|table| READ.contains(table));
            let begun_at = world.giver.begun_at;
            let is_wrong = is_given && self.asker.seen < begun_at && self.commits[self.asker.seen..begun_at].iter().any(reads);
            world.giver = Giver { is_wrong, ..Giver::default() };
        }
        Some(world)
    }

    /// The second member is cut off from the store, says so, is heard, comes back.
    fn cut(&self, bounds: Bounds, without: Without) -> Vec<World> {
        let mut next = Vec::new();
        let is_told = !self.members[1].clone().owes(self.is_cut);
        if !self.is_cut && self.cuts < bounds.cuts {
            let mut world = World { is_cut: true, cuts: self.cuts + 1, ..self.clone() };
            world.sent[1].clear();
            world.members[1].lose();
            next.push(world);
        }
        if self.is_cut {
            let mut world = World { is_cut: false, ..self.clone() };
            let orders = world.members[1].resume(NOW);
            world.send(1, orders);
            next.push(world);
            if !self.is_locked && !is_told && !bounds.follows {
                next.push(World { is_locked: true, ..self.clone() });
            }
        }
        let may_go_on = is_told || without == Without::ToldBeforeOthers;
        if self.is_locked && !self.is_cut && may_go_on {
            next.push(World { is_locked: false, ..self.clone() });
        }
        if self.is_locked && !is_told && self.lost == Lost::No && bounds.dies {
            next.push(World { is_locked: false, lost: Lost::Unseen, ..self.clone() });
        }
        next.extend(self.look(without));
        next
    }

    /// The first member looks at the primary's locks.
    fn look(&self, without: Without) -> Option<World> {
        let giver = if without == Without::SameEra { self.giver.clone() } else { Giver::default() };
        match self.lost {
            Lost::Unseen if self.is_heard && without != Without::ChangeWhenLost => {
                let mut world = World { lost: Lost::Telling, giver, ..self.clone() };
                let order = world.members[0].raise(READ[0]);
                world.send(0, order);
                Some(world)
            }
            Lost::Telling if self.members[0].is_raised(READ[0]) => {
                let mut world = World { lost: Lost::Told, is_heard: self.is_locked, giver, ..self.clone() };
                let order = world.members[0].settle(READ[0], true);
                world.send(0, order);
                Some(world)
            }
            Lost::Telling => None,
            _ if self.is_heard != self.is_locked => Some(World { is_heard: self.is_locked, giver, ..self.clone() }),
            _ => None,
        }
    }
}

impl World {
    /// Whether a mark stands in the store that its member knows nothing of any more, so that it would stand there for an hour.
    fn has_left_a_mark(&self) -> bool {
        let is_left = |(slot, member): (Slot, usize)| {
            let mark = self.members[member].mark(Kind::Writer);
            let is_forgotten = !self.members[member].holds.contains_key(&slot) && self.sent[member].is_empty();
            is_forgotten && self.store[at(slot)].as_ref().is_some_and(|stamp| stamp.has(mark))
        };
        READ.into_iter().flat_map(|slot| [(slot, 0), (slot, 1)]).any(is_left)
    }
}

fn deps_of(found: &[Option<Stamp>], without: Without) -> Option<Deps> {
    if without == Without::LookForMarks {
        let bases = READ.iter().zip(found).map(|(slot, stamp)| stamp.as_ref().map(|stamp| (*slot, stamp.base)));
        return bases.collect::<Option<Vec<_>>>().map(Deps::of_pairs);
    }
    settled(&READ, found)
}

/// Walks over all worlds there may be. Gives how many there are, and a wrong one, or one in which a mark was left behind.
fn explore(bounds: Bounds, without: Without) -> (usize, Option<World>) {
    let mut seen = HashSet::new();
    let mut open = vec![World::begin(bounds)];
    while let Some(world) = open.pop() {
        if world.giver.is_wrong || (without == Without::Nothing && world.has_left_a_mark()) {
            return (seen.len(), Some(world));
        }
        if !seen.insert(world.clone()) {
            continue;
        }
        open.extend(world.next(bounds, without));
    }
    (seen.len(), None)
}

const BOTH: [&[Slot]; 2] = [&[1], &[1, 2]];

const ONE: Bounds = Bounds {
    writers: [&[], &[1]],
    losses: 0,
    cuts: 0,
    standby: false,
    rollbacks: false,
    burials: 0,
    dies: false,
    gives_up: false,
    follows: false,
    twice: false,
    is_past: false,
};
const LOSSES: Bounds = Bounds { losses: 1, ..ONE };
const WRITERS: Bounds = Bounds { writers: BOTH, rollbacks: true, ..ONE };
const CUTS: Bounds = Bounds { cuts: 1, ..ONE };
const DEATHS: Bounds = Bounds { dies: true, ..CUTS };
const STANDBY: Bounds = Bounds { losses: 1, standby: true, ..ONE };
const BURIALS: Bounds = Bounds { rollbacks: true, burials: 1, ..ONE };
const ORPHANS: Bounds = Bounds { losses: 1, burials: 1, ..ONE };
const GIVEN_UP: Bounds = Bounds { gives_up: true, losses: 1, ..ONE };
/// What the log tells: past a host that loses stamps and is out of reach, and beside a writer through the Weir.
const FOLLOWED: Bounds = Bounds { follows: true, losses: 1, cuts: 1, ..ONE };
const BESIDE: Bounds = Bounds { follows: true, writers: BOTH, ..ONE };
const FOLLOWED_TWICE: Bounds = Bounds { twice: true, losses: 0, ..FOLLOWED };
const FOLLOWED_TWICE_LOST: Bounds = Bounds { twice: true, cuts: 0, ..FOLLOWED };
const FOLLOWER_BURIED: Bounds = Bounds { follows: true, losses: 1, burials: 1, ..ONE };
/// What has changed for good: past a host that is out of reach, and with a mark that goes soon.
const PAST_CUT: Bounds = Bounds { is_past: true, cuts: 1, ..ONE };
const PAST_BURIED: Bounds = Bounds { is_past: true, losses: 1, burials: 1, ..ONE };

#[test]
fn no_order_of_steps_gives_out_an_answer_that_is_wrong_or_leaves_a_mark() {
    for (name, bounds) in [
        ("losses", LOSSES),
        ("writers", WRITERS),
        ("cuts", CUTS),
        ("deaths", DEATHS),
        ("standby", STANDBY),
        ("burials", BURIALS),
        ("orphans", ORPHANS),
        ("given up", GIVEN_UP),
        ("followed", FOLLOWED),
        ("followed twice", FOLLOWED_TWICE),
        ("followed twice, lost", FOLLOWED_TWICE_LOST),
        ("beside", BESIDE),
        ("follower buried", FOLLOWER_BURIED),
        ("past, cut off", PAST_CUT),
        ("past, buried", PAST_BURIED),
    ] {
        let (count, wrong) = explore(bounds, Without::Nothing);
        assert_eq!(wrong, None, "{name}, {count} worlds");
        assert!(count > 1000, "{name}: {count} worlds");
    }
}

#[test]
fn every_rule_is_needed() {
    for (without, bounds) in [
        (Without::MarksBeforeCommit, WRITERS),
        (Without::LookForMarks, WRITERS),
        (Without::NewBase, WRITERS),
        (Without::StampsBeforeQuestion, WRITERS),
        (Without::SwapIfSame, WRITERS),
        (Without::YoungUntilLooked, LOSSES),
        (Without::YoungUntilLooked, BURIALS),
        (Without::StandbyCovers, STANDBY),
        (Without::OthersStop, CUTS),
        (Without::SameEra, CUTS),
        (Without::ToldBeforeOthers, CUTS),
        (Without::ChangeWhenLost, DEATHS),
        (Without::NothingWhileAway, FOLLOWED),
        (Without::NothingWhileOwed, FOLLOWED),
        (Without::KnownBeforeCovered, FOLLOWED),
        (Without::OwnNumber, FOLLOWED_TWICE),
        (Without::OverBeforeMarked, PAST_BURIED),
        (Without::NewBase, PAST_BURIED),
    ] {
        assert!(explore(bounds, without).1.is_some(), "nothing goes wrong without {without:?}");
    }
}

/// A member with the stamp of slot 1 as it stands in the store, and what it has sent.
struct Bench {
    holds: Holds,
    store: Option<Stamp>,
    seen: Option<Stamp>,
    sent: VecDeque<Order>,
    fresh: u64,
}

impl Bench {
    fn new(store: Option<Stamp>) -> Bench {
        Bench { holds: Holds::new(1), store, seen: None, sent: VecDeque::new(), fresh: 100 }
    }

    /// The store does all that was sent, and what comes of it.
    fn run(&mut self, now_ms: u64) {
        while let Some(order) = self.sent.pop_front() {
            self.answer(order, now_ms);
        }
        self.sent.extend(self.holds.due(now_ms));
    }

    fn answer(&mut self, order: Order, now_ms: u64) {
        self.fresh += 1;
        let next = match order {
            Order::Append(slot, mark, number) => {
                self.store = self.store.take().map(|stamp| stamp.with(mark));
                self.holds.appended(slot, number, self.store.is_some(), now_ms, self.fresh)
            }
            Order::Make(slot, stamp) => {
                let is_done = self.store.is_none();
                self.store.get_or_insert_with(|| stamp.clone());
                self.holds.made(slot, &stamp, is_done, now_ms)
            }
            Order::Look(slot) => {
                self.seen = self.store.clone();
                self.holds.looked(slot, self.seen.clone().map_or(Found::Nothing, Found::Stamp), now_ms, self.fresh)
            }
            Order::Swap(slot, stamp) => {
                let is_done = self.store == self.seen;
                if is_done {
                    self.store = Some(stamp);
                }
                self.holds.swapped(slot, is_done, now_ms)
            }
        };
        self.sent.extend(next);
    }

    /// A write of ours from its begin to its end.
    fn write(&mut self, now_ms: u64) {
        self.sent.extend(self.holds.raise(1));
        self.run(now_ms);
        assert!(self.holds.is_raised(1));
        self.sent.extend(self.holds.settle(1, true));
        self.run(now_ms);
    }

    fn read(&mut self, now_ms: u64) {
        if let Some(stamp) = &self.store {
            self.sent.extend(self.holds.sighted(1, stamp, now_ms));
        }
        self.run(now_ms);
    }
}

#[test]
fn marks_of_the_dead_go_from_a_table_that_is_always_written() {
    let dead = Mark { member: 7, kind: Kind::Writer };
    let mut bench = Bench::new(Some(Stamp::made(5, 7, false).without(|_| true).with(dead)));
    for now_ms in (0..DEAD_MS).step_by(5000) {
        bench.write(now_ms);
        bench.read(now_ms);
        assert!(bench.store.as_ref().is_some_and(|stamp| stamp.has(dead)), "gone after {now_ms} ms");
    }
    bench.write(DEAD_MS);
    bench.read(DEAD_MS);
    let buried = bench.store.clone().unwrap();
    assert!(!buried.has(dead) && buried.has(Mark { member: 1, kind: Kind::Young }), "made anew, {buried:?}");
    bench.read(DEAD_MS + YOUNG_MS);
    bench.run(DEAD_MS + YOUNG_MS);
    assert!(bench.store.as_ref().is_some_and(Stamp::is_quiet), "{:?}", bench.store);
    assert!(bench.holds.holds.is_empty() && bench.holds.sightings.is_empty());
}

#[test]
fn a_stamp_whose_maker_died_young_is_trusted_soon_but_for_its_writers() {
    let mark = |member, kind| Mark { member, kind };
    for writer in [None, Some(mark(7, Kind::Writer))] {
        let made = Stamp::made(5, 7, writer.is_some());
        let mut bench = Bench::new(Some(made.clone()));
        for now_ms in (0..GROWN_MS).step_by(1000) {
            bench.read(now_ms);
            assert_eq!(bench.store, Some(made.clone()), "after {now_ms} ms");
        }
        bench.read(GROWN_MS);
        let young = bench.store.clone().unwrap();
        assert!(young.has(mark(1, Kind::Young)) && !young.has(mark(7, Kind::Young)) && young.base != 5, "{young:?}");
        bench.read(GROWN_MS + YOUNG_MS);
        bench.run(GROWN_MS + YOUNG_MS);
        let grown = bench.store.clone().unwrap();
        assert_eq!(grown.writers(), writer.as_slice());
        assert_eq!(grown.is_quiet(), writer.is_none(), "{grown:?}");
    }
}

#[test]
fn a_member_that_comes_and_goes_is_not_taken_for_dead() {
    let quiet = Stamp::made(5, 7, false).without(|_| true);
    let mut bench = Bench::new(Some(quiet.clone()));
    for now_ms in (0..2 * DEAD_MS).step_by(5000) {
        let marked = now_ms % 10_000 == 0;
        let other = Mark { member: 7, kind: Kind::Writer };
        bench.store = Some(if marked { quiet.clone().with(other) } else { quiet.clone() });
        bench.read(now_ms);
        assert_eq!(bench.store.as_ref().map(|stamp| stamp.base), Some(5), "after {now_ms} ms");
    }
}

#[test]
fn a_stamp_that_one_of_two_orders_made_stays_young_to_its_time() {
    let mut bench = Bench::new(None);
    // Two writers after each other, both ahead of what the store says to the first.
    bench.sent.extend(bench.holds.raise(1));
    bench.sent.extend(bench.holds.settle(1, false));
    bench.sent.extend(bench.holds.raise(1));
    bench.run(0);
    bench.sent.extend(bench.holds.settle(1, true));
    for now_ms in (0..YOUNG_MS).step_by(1000) {
        bench.run(now_ms);
        let young = Mark { member: 1, kind: Kind::Young };
        assert!(bench.store.as_ref().is_some_and(|stamp| stamp.has(young)), "trusted after {now_ms} ms");
    }
    bench.run(YOUNG_MS);
    bench.run(YOUNG_MS);
    assert!(bench.store.as_ref().is_some_and(Stamp::is_quiet), "{:?}", bench.store);
}

#[test]
fn who_leaves_names_the_stamps_that_would_keep_his_marks_but_not_those_of_writers_under_way() {
    let mut bench = Bench::new(None);
    bench.write(0);
    assert!(!bench.holds.is_settling(), "the store knows of the change");
    assert!(bench.store.as_ref().is_some_and(|stamp| !stamp.is_quiet()), "it is young");
    let _ = bench.holds.raise(2);
    assert_eq!(bench.holds.leave(), [1]);
    assert_eq!(bench.holds.leave(), []);
    let order = bench.holds.settle(2, true);
    assert!(order.is_some() && bench.holds.is_settling());
}

#[test]
fn what_nobody_will_settle_counts_as_changed() {
    let mut bench = Bench::new(Some(Stamp::made(5, 7, false).without(|_| true)));
    for _ in 0..2 {
        bench.sent.extend(bench.holds.raise(1));
        bench.run(0);
    }
    bench.sent.extend(bench.holds.settle_all());
    bench.run(0);
    let stamp = bench.store.clone().unwrap();
    assert!(stamp.is_quiet() && stamp.base != 5 && !bench.holds.is_settling(), "{stamp:?}");
}

#[test]
fn a_store_that_is_back_is_owed_what_it_missed_and_nothing_that_came_later() {
    let mut bench = Bench::new(Some(Stamp::made(5, 7, false).without(|_| true)));
    bench.sent.extend(bench.holds.raise(1));
    bench.run(0);
    assert!(!bench.holds.owes(false));
    bench.holds.lose();
    assert!(bench.holds.owes(true));
    bench.sent.extend(bench.holds.resume(0));
    assert!(bench.holds.owes(false), "it has not answered");
    bench.run(0);
    assert!(!bench.holds.owes(false));
    let _ = bench.holds.raise(2);
    assert!(!bench.holds.owes(false), "that one waits to be known itself");
}

/// The store answers to each append only when the next one is on its way already.
#[test]
fn a_table_that_is_written_all_the_time_is_told_of_nevertheless() {
    let mut bench = Bench::new(Some(Stamp::made(5, 7, false).without(|_| true)));
    for number in (1..=200).step_by(2) {
        bench.sent.extend(bench.holds.raise_as(1, number));
        while let Some(order) = bench.sent.pop_front() {
            let is_append = matches!(order, Order::Append(..));
            bench.answer(order, 0);
            if is_append {
                break;
            }
        }
        bench.sent.extend(bench.holds.settle(1, true));
        // It is not asked before the next one has come.
        bench.sent.extend(bench.holds.raise_as(1, number + 1));
        bench.sent.extend(bench.holds.settle(1, true));
        assert!(!bench.holds.is_raised(1) && bench.holds.is_told_of(1, number), "write {number}");
    }
    bench.run(0);
    assert!(bench.holds.is_told_of(1, 200) && bench.store.as_ref().is_some_and(Stamp::is_quiet));
}

#[test]
fn what_the_log_told_while_the_store_was_away_is_owed_though_our_own_writers_are_too() {
    let old = Stamp::made(5, 7, false).without(|_| true);
    let (mut ours, mut others) = (Bench::new(Some(old.clone())), Bench::new(Some(old)));
    let mut past = Holds::new(2);
    for bench in [&mut ours, &mut others] {
        bench.holds.lose();
        let _ = bench.holds.raise(1);
    }
    let mut both =
        |ours: &mut Bench, others: &mut Bench, is_away| Debts::note(&mut ours.holds, &mut past, &mut others.holds, is_away);
    assert_eq!(both(&mut ours, &mut others, true), Debts { of_ours: true, of_others: true });
    for bench in [&mut ours, &mut others] {
        bench.sent.extend(bench.holds.resume(0));
    }
    assert_eq!(both(&mut ours, &mut others, false), Debts { of_ours: true, of_others: true }, "neither has been answered");
    ours.run(0);
    assert_eq!(both(&mut ours, &mut others, false), Debts { of_ours: false, of_others: true });
    others.run(0);
    assert!(!both(&mut ours, &mut others, false).is_any());
    let _ = past.raise(1);
    assert_eq!(Debts::note(&mut ours.holds, &mut past, &mut others.holds, true), Debts { of_ours: true, of_others: false });
}

#[test]
fn a_mark_that_stands_for_no_write_under_way_goes_soon_and_that_of_its_weirs_writers_stays() {
    let mark = |member| Mark { member, kind: Kind::Writer };
    for brief in [FOLLOWER, PAST] {
        let (brief, worker) = (mark(0x0700 | u32::from(brief)), mark(0x0700));
        let stamp = Stamp::made(5, 7, false).without(|_| true).with(brief).with(worker);
        let mut bench = Bench::new(Some(stamp.clone()));
        for now_ms in (0..GROWN_MS).step_by(1000) {
            bench.read(now_ms);
            assert_eq!(bench.store, Some(stamp.clone()), "after {now_ms} ms");
        }
        bench.read(GROWN_MS);
        bench.read(GROWN_MS + YOUNG_MS);
        bench.run(GROWN_MS + YOUNG_MS);
        assert_eq!(bench.store.as_ref().map(Stamp::writers).as_deref(), Some(&[worker][..]));
        assert!(bench.store.is_some_and(|stamp| !stamp.has(brief) && stamp.base != 5));
    }
}
