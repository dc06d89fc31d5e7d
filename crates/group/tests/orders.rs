//! All orders of few events of the register: members that want different changes, messages in any order, never or twice, crashes.
//!
//! A message that is never delivered is lost, so losses need no event of their own: every state on the way is checked.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use weir_group::{
    GroupLead, GroupMembers, GroupRegister, GroupRule, GroupState, GroupWrites, HalfVotes, MemberDuty, MemberId, MemberRow,
    MemberSet, RegisterEvent, RegisterMessage, RegisterOutput, StateVersion, StoredVote, VersionNumber,
};

fn id(host: u8) -> MemberId {
    MemberId { host, incarnation: 1 }
}

fn genesis(members: u8) -> GroupState {
    let row = |host| MemberRow { id: id(host), priority: 1, duty: MemberDuty::Serves };
    GroupState {
        group: id(0),
        change: 0,
        members: GroupMembers::of((0..members).map(row).collect(), HalfVotes::TooFew),
        lost: MemberSet::new(),
        lead: GroupLead::Taken { from: None, to: id(0) },
        term: 0,
        writes: GroupWrites::Closed { epoch: 0 },
        lease_ms: 2_000,
        failover: String::new(),
        decisions: vec![],
        former: vec![],
    }
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Flight {
    from: MemberId,
    to: MemberId,
    message: RegisterMessage,
}

impl PartialOrd for Flight {
    fn partial_cmp(&self, other: &Flight) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Any order does that is always the same.
impl Ord for Flight {
    fn cmp(&self, other: &Flight) -> std::cmp::Ordering {
        (self.from, self.to, digest(&self.message)).cmp(&(other.from, other.to, digest(&other.message)))
    }
}

fn digest(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Orders {
    members: Vec<GroupRegister>,
    flights: BTreeSet<Flight>,
    writes: Vec<Option<u64>>,
    /// Members that had a version on disk, ever.
    accepted: BTreeMap<VersionNumber, (StateVersion, MemberSet)>,
    crashes: u8,
    copies: u8,
    lives: u64,
}

#[derive(Clone, Copy)]
struct Budget {
    members: u8,
    /// Members that each want a change from the first version.
    changes: u8,
    crashes: u8,
    copies: u8,
    without: Option<GroupRule>,
}

impl Orders {
    fn new(budget: Budget) -> Orders {
        let first = StateVersion { number: VersionNumber { counter: 1, by: id(0) }, state: Arc::new(genesis(budget.members)) };
        let stored =
            |host| StoredVote { member: id(host), group: Some(id(0)), promised: first.number, accepted: Some(first.clone()) };
        let members = (0..budget.members).map(|host| GroupRegister::new(stored(host), 0, 0, budget.without)).collect();
        let writes = vec![None; usize::from(budget.members)];
        let (crashes, copies) = (budget.crashes, budget.copies);
        let accepted = BTreeMap::new();
        let mut orders = Orders { members, flights: BTreeSet::new(), writes, accepted, crashes, copies, lives: 0 };
        for host in 0..budget.changes {
            let new = GroupState { change: 1, term: u64::from(host) + 10, ..genesis(budget.members) };
            let mut out = Vec::new();
            orders.members[usize::from(host)].change(first.number, new, 0, &mut out);
            orders.obey(usize::from(host), out);
        }
        orders
    }

    fn obey(&mut self, at: usize, out: Vec<RegisterOutput>) {
        for output in out {
            match output {
                RegisterOutput::Send { to, message } => {
                    self.flights.insert(Flight { from: id(at as u8), to, message });
                }
                RegisterOutput::Write { number, .. } => self.writes[at] = Some(number),
                RegisterOutput::Event(RegisterEvent::Changed(version)) => {
                    let count = self.accepted.get(&version.number).map_or(0, |(_, who)| who.len());
                    assert!(2 * count > self.members.len(), "a change was told before a majority has it: {:?}", version.number);
                }
                RegisterOutput::Event(
                    RegisterEvent::Heard(_) | RegisterEvent::Shown { .. } | RegisterEvent::Refused { .. } | RegisterEvent::Empty,
                ) => {}
            }
        }
    }

    fn written(&mut self, at: usize) {
        let Some(number) = self.writes[at].take() else { return };
        let mut out = Vec::new();
        self.members[at].written(number, &mut out);
        self.note(at);
        self.obey(at, out);
    }

    fn note(&mut self, at: usize) {
        if let Some(version) = self.members[at].stored().accepted.clone() {
            let entry = self.accepted.entry(version.number).or_insert_with(|| (version.clone(), MemberSet::new()));
            assert_eq!(entry.0.state, version.state, "two states under one number");
            entry.1.insert(id(at as u8));
        }
    }

    /// Decided versions made from the first one: there may be one only, whatever its number.
    fn decided_states(&self) -> BTreeSet<u64> {
        let is_decided = |(_, who): &&(StateVersion, MemberSet)| 2 * who.len() > self.members.len();
        let of_change = |(version, _): &(StateVersion, MemberSet)| (version.state.change == 1).then_some(version.state.term);
        self.accepted.values().filter(is_decided).filter_map(of_change).collect()
    }

    fn nexts(&self, budget: Budget) -> Vec<Orders> {
        let mut nexts = Vec::new();
        for flight in &self.flights {
            let at = usize::from(flight.to.host);
            let mut next = self.clone();
            next.flights.remove(flight);
            let mut out = Vec::new();
            next.members[at].take(flight.from, flight.message.clone(), &mut out);
            next.obey(at, out);
            if next.copies > 0 {
                let mut copy = next.clone();
                copy.copies -= 1;
                copy.flights.insert(flight.clone());
                nexts.push(copy);
            }
            nexts.push(next);
        }
        for at in 0..self.members.len() {
            if self.writes[at].is_some() {
                let mut next = self.clone();
                next.written(at);
                nexts.push(next);
            }
            if self.crashes > 0 {
                let mut next = self.clone();
                next.crashes -= 1;
                next.lives += 1;
                next.writes[at] = None;
                let stored = next.members[at].stored().clone();
                next.members[at] = GroupRegister::new(stored, next.lives << 32, 0, budget.without);
                // The member is at it again, with another change.
                if at < usize::from(budget.changes) {
                    let expect = next.members[at].known().map(|known| known.number).unwrap_or_default();
                    let state = next.members[at].known().map(|known| (*known.state).clone());
                    let new = state.map(|state| GroupState { change: state.change + 1, term: 20 + at as u64, ..state });
                    let mut out = Vec::new();
                    if let Some(new) = new {
                        next.members[at].change(expect, new, 0, &mut out);
                    }
                    next.obey(at, out);
                }
                nexts.push(next);
            }
        }
        nexts
    }
}

/// States met, and those in which two changes of one version were decided.
fn explore(budget: Budget) -> (usize, usize) {
    let first = Orders::new(budget);
    let mut seen = HashSet::from([digest(&first)]);
    let mut open = vec![first];
    let mut bad = 0;
    while let Some(orders) = open.pop() {
        if orders.decided_states().len() > 1 {
            bad += 1;
            if budget.without.is_some() {
                return (seen.len(), bad);
            }
        }
        for next in orders.nexts(budget) {
            if seen.insert(digest(&next)) {
                open.push(next);
            }
        }
    }
    (seen.len(), bad)
}

fn check_orders(budget: Budget, states_min: usize) {
    let begun = std::time::Instant::now();
    let (states, bad) = explore(budget);
    eprintln!("{} members: {states} states, {bad} bad, {:?}", budget.members, begun.elapsed());
    assert_eq!(bad, 0, "two changes of one version were decided");
    assert!(states >= states_min, "only {states} states");
}

#[test]
fn two_members_that_change_at_once_decide_one_of_the_changes_in_all_orders() {
    check_orders(Budget { members: 2, changes: 2, crashes: 1, copies: 1, without: None }, 1_000);
}

#[test]
fn three_members_of_whom_two_change_at_once_decide_one_of_the_changes_in_all_orders() {
    check_orders(Budget { members: 3, changes: 2, crashes: 0, copies: 0, without: None }, 1_000);
}

#[test]
fn three_members_of_whom_one_crashes_and_changes_again_keep_what_was_decided() {
    check_orders(Budget { members: 3, changes: 1, crashes: 1, copies: 0, without: None }, 1_000);
}

#[test]
fn without_its_rules_the_register_decides_twice() {
    for rule in [GroupRule::PromiseBinds, GroupRule::FoundVersionStands] {
        let budget = Budget { members: 3, changes: 2, crashes: 0, copies: 0, without: Some(rule) };
        assert!(explore(budget).1 > 0, "{rule:?} is not needed in these orders");
    }
}
