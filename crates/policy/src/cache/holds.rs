//! What one member owes a store: marks for its writers, new bases after their commits, and none of it twice.
//!
//! A writer's marks stand in the store before its commit is sent (`raise`, then `is_raised`), and go after it (`settle`). A slot has one mark
//! for all writers of the member: the second costs nothing while the first is under way. After the last one the stamp is looked at and
//! swapped for one without the mark, with another base if anything was changed; a swap that somebody came ahead of is tried again.
//!
//! A store may lose a stamp while writers' marks are on it. Whoever makes it anew leaves a mark of his own on it for `YOUNG_MS`, and each
//! member looks every `CHECK_MS` whether the marks of its writers are still there: so they are there again before the new one is trusted.
//!
//! A member that died leaves its marks. Whoever reads stamps sees them (`sighted`): what has stood there for `DEAD_MS` is taken for lost, and
//! the stamp is made anew. If that member lives, its mark is there again before the new stamp is trusted, as after any loss. A mark of one that
//! had just made the stamp says nothing of writers, and goes after `GROWN_MS`: the stamp is made anew, but keeps the marks of writers. The same
//! for the mark of one that follows the primary's log, on which nobody else relies, and of one that tells of what has changed for good:
//! nothing is to come of that but another base.
//!
//! What could not be said while the store was out of reach is said first of all when it is back (`resume`); until then it is owed (`owes`).

use super::stamp::{Kind, Mark, Member, Stamp, is_brief};
use super::versions::Slot;
use std::collections::{BTreeMap, BTreeSet};

/// For so long a stamp that was made anew is not trusted. Well above the time in which members look for their marks, or, when they
/// cannot, in which all others have stopped to answer from the store.
pub const YOUNG_MS: u64 = 6000;

/// Time between two looks at whether a writer's mark is still there.
pub const CHECK_MS: u64 = 1000;

/// A mark of somebody else that stood there at every look for so long is taken for one that a dead member has left. A statement or a
/// commit that was sent before that death is over by then: a server carries it out whether or not its client lives.
pub const DEAD_MS: u64 = 3_600_000;

/// The same for the mark of a member that had made the stamp anew, which takes it away after `YOUNG_MS` if it lives, and for one that follows
/// the primary's log, which puts it there again, or tells of what is past.
pub const GROWN_MS: u64 = 20_000;

/// What the store is to be told or asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Append the mark of a writer; answered by `appended`. With the number of the last write that it is for.
    Append(Slot, Mark, u64),
    /// Put this where nothing is; answered by `made`.
    Make(Slot, Stamp),
    /// Tell what stands there; answered by `looked`.
    Look(Slot),
    /// Put this in place of what was looked at; answered by `swapped`.
    Swap(Slot, Stamp),
}

impl Order {
    /// Whose stamp it is about.
    pub fn slot(&self) -> Slot {
        match self {
            Order::Append(slot, ..) | Order::Make(slot, _) | Order::Look(slot) | Order::Swap(slot, _) => *slot,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum State {
    /// The store has, or may have, no mark of ours.
    #[default]
    Untold,
    /// It is on its way.
    Asking,
    /// It has one, as it has told.
    Raised,
}

/// What a look may still bring about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Look {
    #[default]
    None,
    /// Under way, or a swap after it; whether that one rebases.
    Under { rebases: bool },
    /// The same, and another one is needed after it.
    Again { rebases: bool },
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Hold {
    writers: u32,
    /// They have, or may have, changed something; the store does not know.
    is_changed: bool,
    state: State,
    look: Look,
    /// The number of the last write, and the greatest one of which the store was told. Zeros where nobody counts.
    raised_as: u64,
    told_as: u64,
    /// We made the stamp: our mark goes then.
    young_until_ms: Option<u64>,
    looked_ms: u64,
    /// The swap under way makes the stamp anew.
    is_anew: bool,
}

impl Hold {
    fn is_young(&self, now_ms: u64) -> bool {
        self.young_until_ms.is_some_and(|until| now_ms < until)
    }

    fn is_told(&self) -> bool {
        match self.writers {
            0 => !self.is_changed && !self.rebases(),
            _ => self.state == State::Raised,
        }
    }

    fn rebases(&self) -> bool {
        matches!(self.look, Look::Under { rebases: true } | Look::Again { rebases: true })
    }
}

/// What was found at a look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    Nothing,
    /// Something nobody of us wrote.
    Rubbish,
    Stamp(Stamp),
}

/// Members whose marks were on a stamp at every look since then.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Sighting {
    members: Vec<Member>,
    since_ms: u64,
}

impl Sighting {
    /// Whether a stamp bears a mark that stood there too long.
    fn is_dead(&self, stamp: &Stamp, now_ms: u64) -> bool {
        now_ms >= self.since_ms + DEAD_MS && stamp.members().any(|member| self.members.contains(&member))
    }

    /// Whether it was made by one that should have taken it for grown long ago, or bears a mark that stands for no write under
    /// way: of one that may have died with all who rely on it, or for a change that another base tells as well.
    fn is_orphan(&self, stamp: &Stamp, now_ms: u64) -> bool {
        let has = |member: &Member, kind| stamp.has(Mark { member: *member, kind });
        let is_theirs = |member: &Member| has(member, Kind::Young) || (is_brief(*member) && has(member, Kind::Writer));
        now_ms >= self.since_ms + GROWN_MS && self.members.iter().any(is_theirs)
    }
}

/// What a store was not told while it was out of reach, and has not heard since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debts {
    /// Of what others rely on: writes through us, and changes that are past.
    pub of_ours: bool,
    /// Of those the primary's log tells of.
    pub of_others: bool,
}

impl Debts {
    /// Notes all in any case: asking while the store is out of reach is what makes them owed.
    pub fn note(ours: &mut Holds, past: &mut Holds, others: &mut Holds, is_away: bool) -> Debts {
        Debts { of_ours: ours.owes(is_away) | past.owes(is_away), of_others: others.owes(is_away) }
    }

    pub fn is_any(self) -> bool {
        self.of_ours || self.of_others
    }
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holds {
    member: Member,
    holds: BTreeMap<Slot, Hold>,
    /// What the store did not know while it was out of reach, and has not heard since.
    owed: BTreeSet<Slot>,
    /// Of stamps that had marks of others when they were last read.
    sightings: BTreeMap<Slot, Sighting>,
}

impl Holds {
    pub fn new(member: Member) -> Holds {
        Holds { member, holds: BTreeMap::new(), owed: BTreeSet::new(), sightings: BTreeMap::new() }
    }

    fn mark(&self, kind: Kind) -> Mark {
        Mark { member: self.member, kind }
    }

    /// A writer is about to commit. It may when `is_raised` says so.
    pub fn raise(&mut self, slot: Slot) -> Option<Order> {
        self.raise_as(slot, 0)
    }

    /// The same of a write that `is_told_of` is asked of by its number, which must be greater than those before.
    pub fn raise_as(&mut self, slot: Slot, number: u64) -> Option<Order> {
        let mark = self.mark(Kind::Writer);
        let hold = self.holds.entry(slot).or_default();
        hold.writers += 1;
        hold.raised_as = number;
        match hold.state {
            State::Raised => {
                hold.told_as = number;
                None
            }
            State::Asking => None,
            State::Untold => {
                hold.state = State::Asking;
                Some(Order::Append(slot, mark, number))
            }
        }
    }

    /// Whether the store knows of this slot's writers.
    pub fn is_raised(&self, slot: Slot) -> bool {
        self.holds.get(&slot).is_some_and(|hold| hold.state == State::Raised)
    }

    /// Whether nobody trusts what stood there when this slot was raised for this write, whatever has become of that since. A slot that is
    /// written all the time has an append under way whenever one looks: one that has ended since is enough.
    pub fn is_told_of(&self, slot: Slot, number: u64) -> bool {
        self.holds.get(&slot).is_none_or(|hold| hold.told_as >= number || hold.is_told())
    }

    /// Whether there is something the store was not told while it was out of reach: what was told once since then is not owed any more.
    /// While it is out of reach, to be asked after whatever is raised (`Debts`).
    fn owes(&mut self, is_away: bool) -> bool {
        if is_away {
            self.owed.extend(self.holds.iter().filter(|(_, hold)| !hold.is_told()).map(|(slot, _)| *slot));
        } else {
            self.owed.retain(|slot| self.holds.get(slot).is_some_and(|hold| !hold.is_told()));
        }
        !self.owed.is_empty()
    }

    /// Nobody will settle what is raised: it counts as changed.
    pub fn settle_all(&mut self) -> Vec<Order> {
        let raised: Vec<(Slot, u32)> = self.holds.iter().map(|(slot, hold)| (*slot, hold.writers)).collect();
        let each = raised.into_iter().flat_map(|(slot, writers)| (0..writers).map(move |_| slot));
        each.filter_map(|slot| self.settle(slot, true)).collect()
    }

    /// It is known how a write ended, or nothing was sent. Once for every `raise`.
    pub fn settle(&mut self, slot: Slot, is_changed: bool) -> Option<Order> {
        let hold = self.holds.get_mut(&slot)?;
        hold.writers = hold.writers.saturating_sub(1);
        hold.is_changed |= is_changed;
        if hold.writers > 0 {
            return None;
        }
        // The next one marks it again: what we take away now must not be taken for his.
        hold.state = State::Untold;
        look(slot, hold)
    }

    /// The end of an `Append` with this number: whether there was something to append to. Nobody trusts what is not there, either.
    pub fn appended(&mut self, slot: Slot, number: u64, is_done: bool, now_ms: u64, fresh: u64) -> Option<Order> {
        let member = self.member;
        let hold = self.holds.get_mut(&slot)?;
        hold.told_as = hold.told_as.max(number);
        if is_done {
            return raised(slot, hold, now_ms);
        }
        if hold.writers == 0 {
            return look(slot, hold);
        }
        hold.young_until_ms = Some(now_ms + YOUNG_MS);
        Some(Order::Make(slot, Stamp::made(fresh, member, true)))
    }

    /// Nothing stands there, as a reader has found.
    pub fn missed(&mut self, slot: Slot, now_ms: u64, fresh: u64) -> Option<Order> {
        if self.holds.contains_key(&slot) {
            return None;
        }
        let hold = self.holds.entry(slot).or_default();
        hold.young_until_ms = Some(now_ms + YOUNG_MS);
        Some(Order::Make(slot, Stamp::made(fresh, self.member, false)))
    }

    /// A reader has found this there.
    pub fn sighted(&mut self, slot: Slot, stamp: &Stamp, now_ms: u64) -> Option<Order> {
        if stamp.is_quiet() && self.sightings.is_empty() {
            return None;
        }
        let others: Vec<Member> = stamp.members().filter(|member| *member != self.member).collect();
        let known = self.sightings.entry(slot).or_insert_with(|| Sighting { members: others.clone(), since_ms: now_ms });
        if known.is_dead(stamp, now_ms) || known.is_orphan(stamp, now_ms) {
            let hold = self.holds.entry(slot).or_default();
            // One is enough, however many ask.
            return if hold.look == Look::None { look(slot, hold) } else { None };
        }
        known.members.retain(|member| others.contains(member));
        if others.is_empty() {
            self.sightings.remove(&slot);
        } else if known.members.is_empty() {
            *known = Sighting { members: others, since_ms: now_ms };
        }
        None
    }

    /// The end of a `Make`: whether nothing was there.
    pub fn made(&mut self, slot: Slot, stamp: &Stamp, is_done: bool, now_ms: u64) -> Option<Order> {
        let (writer, with_writer) = (self.mark(Kind::Writer), stamp.has(self.mark(Kind::Writer)));
        let hold = self.holds.get_mut(&slot)?;
        if is_done {
            hold.young_until_ms = Some(now_ms + YOUNG_MS);
            return if with_writer { raised(slot, hold, now_ms) } else { None };
        }
        // What stands there may be ours, too, made by another order: then our mark is on it, and stays until its time.
        if with_writer && hold.writers > 0 {
            return Some(Order::Append(slot, writer, hold.raised_as));
        }
        look(slot, hold)
    }

    /// The end of a `Look`.
    pub fn looked(&mut self, slot: Slot, found: Found, now_ms: u64, fresh: u64) -> Option<Order> {
        let (member, writer, young) = (self.member, self.mark(Kind::Writer), self.mark(Kind::Young));
        let hold = self.holds.get_mut(&slot)?;
        hold.looked_ms = now_ms;
        let has_writers = hold.writers > 0;
        let sighting = self.sightings.get(&slot);
        let is_dead = |stamp: &Stamp| sighting.is_some_and(|sighting| sighting.is_dead(stamp, now_ms));
        let is_orphan = |stamp: &Stamp| sighting.is_some_and(|sighting| sighting.is_orphan(stamp, now_ms));
        hold.is_anew = false;
        let order = match found {
            Found::Nothing if has_writers && hold.state != State::Asking => {
                hold.state = State::Asking;
                hold.young_until_ms = Some(now_ms + YOUNG_MS);
                Some(Order::Make(slot, Stamp::made(fresh, member, true)))
            }
            // What is missing is untrue. An append may still be under way, and find what somebody makes meanwhile: then there is another look.
            Found::Nothing if !has_writers => {
                (hold.is_changed, hold.young_until_ms) = (false, None);
                None
            }
            Found::Nothing => None,
            Found::Rubbish => Some(anew(slot, hold, member, now_ms, fresh, &[])),
            Found::Stamp(stamp) if has_writers && hold.state == State::Raised && !stamp.has(writer) => {
                hold.state = State::Asking;
                Some(Order::Append(slot, writer, hold.raised_as))
            }
            Found::Stamp(stamp) if is_dead(&stamp) => Some(anew(slot, hold, member, now_ms, fresh, &[])),
            Found::Stamp(stamp) if is_orphan(&stamp) => Some(anew(slot, hold, member, now_ms, fresh, &stamp.writers())),
            Found::Stamp(stamp) => swap(slot, hold, stamp, [writer, young], now_ms, fresh),
        };
        match order {
            Some(Order::Swap(..)) => order,
            _ => over(&mut self.holds, slot, now_ms, order),
        }
    }

    /// The end of a `Swap`: whether what was looked at was still there.
    pub fn swapped(&mut self, slot: Slot, is_done: bool, now_ms: u64) -> Option<Order> {
        let hold = self.holds.get_mut(&slot)?;
        if is_done {
            if hold.is_anew {
                // From now on: until now another one stood there, on which whoever looked has found his marks.
                hold.young_until_ms = Some(now_ms + YOUNG_MS);
                self.sightings.remove(&slot);
            }
            return over(&mut self.holds, slot, now_ms, None);
        }
        hold.is_changed |= hold.rebases();
        hold.look = Look::None;
        look(slot, hold)
    }

    /// What is to be looked at by now.
    pub fn due(&mut self, now_ms: u64) -> Vec<Order> {
        let is_due = |hold: &Hold| {
            let is_ripe = hold.young_until_ms.is_some_and(|until| until <= now_ms);
            let is_old = hold.state == State::Raised && now_ms >= hold.looked_ms + CHECK_MS;
            hold.look == Look::None && (is_ripe || is_old)
        };
        self.holds.iter_mut().filter(|(_, hold)| is_due(hold)).filter_map(|(slot, hold)| look(*slot, hold)).collect()
    }

    /// The connection is gone: what was under way may have been done or not.
    pub fn lose(&mut self) {
        for hold in self.holds.values_mut() {
            hold.is_changed |= hold.rebases();
            (hold.state, hold.look) = (State::Untold, Look::None);
        }
    }

    /// The store is back. First of all it gets what it was not told.
    pub fn resume(&mut self, now_ms: u64) -> Vec<Order> {
        let mark = self.mark(Kind::Writer);
        let again = |(slot, hold): (&Slot, &mut Hold)| {
            // It may have been made only now.
            hold.young_until_ms = hold.young_until_ms.map(|_| now_ms + YOUNG_MS);
            if hold.writers > 0 {
                hold.state = State::Asking;
                return Some(Order::Append(*slot, mark, hold.raised_as));
            }
            look(*slot, hold)
        };
        self.holds.iter_mut().filter_map(again).collect()
    }

    /// Whether the store is still to hear what writers have left who are gone.
    pub fn is_settling(&self) -> bool {
        self.holds.values().any(|hold| hold.writers == 0 && (hold.is_changed || hold.look != Look::None))
    }

    /// The member leaves for good: stamps that bear a mark of its own which nobody will take away. They are to be taken away themselves:
    /// whoever loses a stamp loses answers only. Those of writers of whom nobody knows how they ended stay.
    pub fn leave(&mut self) -> Vec<Slot> {
        let left: Vec<Slot> = self.holds.iter().filter(|(_, hold)| hold.writers == 0).map(|(slot, _)| *slot).collect();
        self.holds.retain(|_, hold| hold.writers > 0);
        left
    }
}

/// The store has our mark.
fn raised(slot: Slot, hold: &mut Hold, now_ms: u64) -> Option<Order> {
    hold.looked_ms = now_ms;
    if hold.writers == 0 {
        // Nobody needs it any more.
        return look(slot, hold);
    }
    hold.state = State::Raised;
    hold.told_as = hold.raised_as;
    None
}

fn look(slot: Slot, hold: &mut Hold) -> Option<Order> {
    match hold.look {
        Look::None => {
            hold.look = Look::Under { rebases: false };
            Some(Order::Look(slot))
        }
        Look::Under { rebases } | Look::Again { rebases } => {
            hold.look = Look::Again { rebases };
            None
        }
    }
}

/// What is found counts for nothing: another one in its place, with these of its marks.
fn anew(slot: Slot, hold: &mut Hold, member: Member, now_ms: u64, fresh: u64, marks: &[Mark]) -> Order {
    hold.young_until_ms = Some(now_ms + YOUNG_MS);
    hold.is_anew = true;
    if hold.writers == 0 && hold.is_changed {
        rebase(hold);
    }
    let others = marks.iter().filter(|mark| mark.member != member);
    Order::Swap(slot, others.fold(Stamp::made(fresh, member, hold.writers > 0), |stamp, mark| stamp.with(*mark)))
}

/// What a stamp that was found is to become, if it is not right.
fn swap(slot: Slot, hold: &mut Hold, stamp: Stamp, [writer, young]: [Mark; 2], now_ms: u64, fresh: u64) -> Option<Order> {
    let (has_writers, is_young) = (hold.writers > 0, hold.is_young(now_ms));
    let rebases = !has_writers && hold.is_changed;
    let goes = |mark: Mark| (mark == writer && !has_writers) || (mark == young && !is_young);
    if !is_young {
        hold.young_until_ms = None;
    }
    if !rebases && !stamp.has(writer) && !stamp.has(young) {
        return None;
    }
    let new = stamp.clone().without(goes);
    let new = if rebases { new.rebased(fresh) } else { new };
    if new == stamp {
        return None;
    }
    if rebases {
        rebase(hold);
    }
    Some(Order::Swap(slot, new))
}

/// The swap that is about to be sent says that something was changed.
fn rebase(hold: &mut Hold) {
    hold.is_changed = false;
    hold.look = match hold.look {
        Look::Again { .. } => Look::Again { rebases: true },
        Look::Under { .. } | Look::None => Look::Under { rebases: true },
    };
}

/// A look is over. Another one, if something happened meanwhile; a hold that nobody needs goes.
fn over(holds: &mut BTreeMap<Slot, Hold>, slot: Slot, now_ms: u64, order: Option<Order>) -> Option<Order> {
    let hold = holds.get_mut(&slot)?;
    let is_again = matches!(hold.look, Look::Again { .. });
    hold.look = Look::None;
    if order.is_some() {
        return order;
    }
    if is_again {
        return look(slot, hold);
    }
    if hold.writers == 0 && !hold.is_changed && !hold.is_young(now_ms) && hold.state == State::Untold {
        holds.remove(&slot);
    }
    None
}

#[cfg(test)]
mod tests;
