//! All threads' knowledge of WAL positions: the rounds in which the primary is asked, and those that each standby covers.
//!
//! Written by `node_monitor`, read by every read that is routed. Decisions are `session::causal::standbys`'s.

use crate::causal::standbys::{
    Life, PrimaryChange, PrimaryContinuity, ReplayLag, RoundCoverage, SeenRounds, StandbyProgress, is_hopeful,
};
use crate::causal::waiting::{ALL_ROUNDS, PrimaryVisibility};
use crate::metrics::NODES_MAX;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use weir_config::CausalReads;

/// `behind_since` of a standby that has replayed all that is known of.
const NOT_BEHIND: u64 = 0;
/// `behind_since` of a standby of which nothing is known.
const UNKNOWN: u64 = u64::MAX;

/// A worker and a task of it that waits.
type Waiter = (u8, u32);

/// One server's place.
#[derive(Debug)]
struct NodeCoverage {
    life: AtomicU64,
    covers: AtomicU64,
    covers_standbys: AtomicU64,
    /// Milliseconds since the start of the proxy, plus 1.
    behind_since: AtomicU64,
    /// When the last question that was answered in this life was sent, in microseconds since the start of the proxy.
    asked_us: AtomicU64,
}

/// Switches that are remembered: a session that slept through more is told of the last ones.
const SWITCHES_MAX: usize = 8;

/// The primaries that there were.
#[derive(Debug, Default)]
struct PrimaryHistory {
    primary: Option<u16>,
    last: VecDeque<PrimaryChange>,
    /// The log that nodes covered as standbys when they were first seen as primaries.
    promoted: BTreeMap<u16, (Life, RoundCoverage)>,
    /// The next primary, if it has all that its predecessor had: that one was stopped for it.
    whole: Option<u16>,
}

/// See the module.
#[derive(Debug)]
pub struct ClusterPositions {
    rounds: PrimaryRounds,
    waiters: Mutex<Vec<Waiter>>,
    waiting: AtomicU32,
    /// Moves when something has become known.
    published: AtomicU64,
    /// A round that all standbys showed a moment ago: a hint.
    shown_by_all: AtomicU64,
    /// A server connection of this age needs a question that was sent later.
    verify_us: AtomicU64,
    places: Vec<NodeCoverage>,
    switches: Mutex<PrimaryHistory>,
    /// The primary shows all that standbys had said before this round; while nothing is known of it, all.
    primary_shows: AtomicU64,
    /// As of a standby.
    primary_behind_since: AtomicU64,
    told: GlobalReadRounds,
    /// Somebody wants a node by its name, which may be a standby without weight.
    is_wished: AtomicBool,
    /// A database's log is taken in, which needs the primary's position.
    is_followed: AtomicBool,
}

/// The rounds in which the primary is asked.
#[derive(Debug)]
struct PrimaryRounds {
    /// The last one that was begun.
    last: AtomicU64,
    /// The last one that the primary has answered.
    answered: AtomicU64,
    /// The one that somebody needs.
    wanted: AtomicU64,
    /// The one that is wanted is wanted at once.
    is_urgent: AtomicBool,
    /// The node monitor sets no timer: it must be woken.
    is_asleep: AtomicBool,
}

/// Rounds that cover all that any session was told.
#[derive(Debug, Default)]
struct GlobalReadRounds {
    /// Somebody reads with `causal_reads = global`, so that all answers are noted.
    is_global: AtomicBool,
    by_primary: AtomicU64,
    by_standbys: AtomicU64,
}

impl Default for ClusterPositions {
    fn default() -> ClusterPositions {
        ClusterPositions::of_nodes(NODES_MAX)
    }
}

impl ClusterPositions {
    /// With places for so many nodes, one at least.
    pub(crate) fn of_nodes(count: usize) -> ClusterPositions {
        let place = || NodeCoverage {
            life: AtomicU64::new(0),
            covers: AtomicU64::new(0),
            covers_standbys: AtomicU64::new(0),
            behind_since: AtomicU64::new(UNKNOWN),
            asked_us: AtomicU64::new(0),
        };
        ClusterPositions {
            rounds: PrimaryRounds {
                last: AtomicU64::new(0),
                answered: AtomicU64::new(0),
                // The first round is for all: it shows the standbys that keep up.
                wanted: AtomicU64::new(1),
                is_urgent: AtomicBool::new(false),
                is_asleep: AtomicBool::new(false),
            },
            waiters: Mutex::default(),
            waiting: AtomicU32::new(0),
            published: AtomicU64::new(0),
            shown_by_all: AtomicU64::new(0),
            verify_us: AtomicU64::new(0),
            places: (0..count).map(|_| place()).collect(),
            switches: Mutex::default(),
            primary_shows: AtomicU64::new(ALL_ROUNDS),
            primary_behind_since: AtomicU64::new(NOT_BEHIND),
            told: GlobalReadRounds::default(),
            is_wished: AtomicBool::new(false),
            is_followed: AtomicBool::new(false),
        }
    }

    fn place(&self, node: u16) -> &NodeCoverage {
        &self.places[usize::from(node) % self.places.len()]
    }

    /// The last round begun.
    #[inline]
    pub fn round(&self) -> u64 {
        self.rounds.last.load(Ordering::SeqCst)
    }

    /// The round whose position covers all that servers have said by now.
    #[inline]
    pub fn next_round(&self) -> u64 {
        self.round() + 1
    }

    /// Begins a round: to be called before the primary is asked.
    pub fn begin_round(&self) -> u64 {
        self.rounds.is_urgent.store(false, Ordering::SeqCst);
        self.rounds.last.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The primary has answered a round.
    pub fn answer_round(&self, round: u64) {
        self.rounds.answered.store(round, Ordering::Release);
    }

    /// The last round that the primary has answered.
    #[inline]
    pub fn answered_round(&self) -> u64 {
        self.rounds.answered.load(Ordering::Acquire)
    }

    /// Somebody needs a round. True: the node monitor must be woken.
    #[inline]
    pub fn want(&self, round: u64) -> bool {
        if self.rounds.wanted.load(Ordering::Relaxed) >= round {
            return false;
        }
        self.rounds.wanted.fetch_max(round, Ordering::SeqCst);
        self.rounds.is_asleep.load(Ordering::SeqCst) && self.rounds.is_asleep.swap(false, Ordering::SeqCst)
    }

    /// Somebody needs the next round, and soon. The node monitor must be woken.
    pub fn hurry(&self) {
        self.rounds.wanted.fetch_max(self.next_round(), Ordering::SeqCst);
        self.rounds.is_urgent.store(true, Ordering::SeqCst);
    }

    pub fn is_urgent(&self) -> bool {
        self.rounds.is_urgent.load(Ordering::SeqCst)
    }

    pub fn wanted(&self) -> u64 {
        self.rounds.wanted.load(Ordering::SeqCst)
    }

    /// The node monitor will not look by itself any more. False: somebody has come meanwhile.
    pub fn fall_asleep(&self, known: u64) -> bool {
        self.rounds.is_asleep.store(true, Ordering::SeqCst);
        let sleeps = self.wanted() <= known && !self.has_waiters();
        if !sleeps {
            self.rounds.is_asleep.store(false, Ordering::SeqCst);
        }
        sleeps
    }

    /// Rounds that this standby covers for certain, in this life of it. Read in this order: the rounds belong to that life or a
    /// later one.
    #[inline]
    pub fn standing(&self, node: u16) -> (Life, RoundCoverage) {
        let place = self.place(node);
        let life = place.life.load(Ordering::Acquire);
        let (primary, standbys) = (place.covers.load(Ordering::Acquire), place.covers_standbys.load(Ordering::Acquire));
        (life, RoundCoverage { primary, standbys })
    }

    /// True if a wait for this standby is worth it.
    pub fn is_hopeful(&self, node: u16, now_ms: u64, wait_ms: u64) -> bool {
        is_hopeful_since(self.place(node).behind_since.load(Ordering::Relaxed), now_ms, wait_ms)
    }

    /// Notes the round by which the primary shows the words of standbys. True: it is another round than before.
    pub fn publish_primary(&self, shows: PrimaryVisibility) -> bool {
        self.primary_behind_since.store(shows.behind_since_ms.map_or(NOT_BEHIND, |since_ms| since_ms + 1), Ordering::Relaxed);
        self.primary_shows.swap(shows.round, Ordering::AcqRel) != shows.round
    }

    /// True if the primary shows all that standbys had said before this round.
    #[inline]
    pub fn primary_shows(&self, round: u64) -> bool {
        round == 0 || self.primary_shows.load(Ordering::Acquire) >= round
    }

    /// True if a commit waits that standbys may show already.
    pub fn is_primary_behind(&self) -> bool {
        self.primary_behind_since.load(Ordering::Relaxed) != NOT_BEHIND
    }

    /// True if a wait is worth it until the primary shows all that standbys said.
    pub fn is_primary_hopeful(&self, now_ms: u64, wait_ms: u64) -> bool {
        is_hopeful_since(self.primary_behind_since.load(Ordering::Relaxed), now_ms, wait_ms)
    }

    /// The life of the server in which a server connection was opened that is not dead. `None`: the server was not asked since.
    #[inline]
    pub fn life_of(&self, node: u16, opened_us: u64) -> Option<Life> {
        let place = self.place(node);
        let life = place.life.load(Ordering::Acquire);
        let is_proven = opened_us < place.asked_us.load(Ordering::Acquire);
        (life != 0 && is_proven && place.life.load(Ordering::Acquire) == life).then_some(life)
    }

    /// A connection to ask over was opened: a new life.
    pub fn begin_life(&self, node: u16) -> Life {
        self.forget(node);
        self.place(node).life.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// It has ended, and all that is known with it.
    pub fn end_life(&self, node: u16) {
        self.forget(node);
        self.place(node).behind_since.store(UNKNOWN, Ordering::Relaxed);
    }

    /// A node will be asked over another connection, by another configuration perhaps. If it could be judged until now, it is worth a wait: reads
    /// go on going to it, and not all to the primary.
    pub fn renew_life(&self, node: u16, now_ms: u64) {
        self.forget(node);
        let place = self.place(node);
        if place.behind_since.load(Ordering::Relaxed) != UNKNOWN {
            place.behind_since.store(now_ms + 1, Ordering::Relaxed);
        }
    }

    fn forget(&self, node: u16) {
        self.place(node).covers.store(0, Ordering::Release);
        self.place(node).covers_standbys.store(0, Ordering::Release);
        self.place(node).asked_us.store(0, Ordering::Release);
    }

    /// A node calls itself primary. To be called before anything of it as one is known; writes may go to it later.
    pub fn note_promoted(&self, node: u16) {
        let standing = self.standing(node);
        self.switches.lock().promoted.insert(node, standing);
    }

    /// A node will be the primary that has all that anybody was shown of the one before.
    pub fn note_whole(&self, node: u16) {
        self.switches.lock().whole = Some(node);
    }

    /// A node is the primary since this generation of the view. Without a round that was ever answered nobody knows what anybody saw.
    pub fn note_primary(&self, node: u16, since: u64) {
        let mut switches = self.switches.lock();
        let is_another = switches.primary.replace(node).is_some_and(|before| before != node);
        let is_whole = is_another && switches.whole.take() == Some(node);
        if !is_another || is_whole || self.answered_round() == 0 {
            return;
        }
        let (life, covers) = switches.promoted.get(&node).copied().unwrap_or_else(|| self.standing(node));
        if switches.last.len() == SWITCHES_MAX {
            switches.last.pop_front();
        }
        switches.last.push_back(PrimaryChange { since, standby: (node, life), covers });
    }

    /// True if all primaries since this generation of the view are known to have what was seen before them.
    pub fn keep(&self, seen: &SeenRounds, since: u64) -> PrimaryContinuity {
        let switches = self.switches.lock();
        let lacks = |switch: &PrimaryChange| switch.since > since && switch.keeps(seen) == PrimaryContinuity::NotProven;
        if switches.last.iter().any(lacks) { PrimaryContinuity::NotProven } else { PrimaryContinuity::All }
    }

    /// A server answered a question that was sent then.
    pub fn answered(&self, node: u16, asked_us: u64) {
        self.place(node).asked_us.store(asked_us, Ordering::Release);
    }

    pub fn asked_us(&self, node: u16) -> u64 {
        self.place(node).asked_us.load(Ordering::Acquire)
    }

    /// A standby will be asked for the first time since it is up: it may be waited for as one that lacks something since now.
    pub fn expect(&self, node: u16, now_ms: u64) {
        self.place(node).behind_since.store(now_ms + 1, Ordering::Relaxed);
    }

    /// Publishes the board's mark of a standby. True: it covers other rounds than before.
    pub fn publish(&self, node: u16, mark: StandbyProgress, now_ms: u64) -> bool {
        let place = self.place(node);
        let before = place.behind_since.load(Ordering::Relaxed);
        let behind = match mark.lag {
            ReplayLag::Nothing => NOT_BEHIND,
            ReplayLag::Since(since_ms) => since_ms + 1,
            // It was fine until now: after a promotion it will be again.
            ReplayLag::Unknown if before == NOT_BEHIND => now_ms + 1,
            ReplayLag::Unknown => before,
        };
        place.behind_since.store(behind, Ordering::Relaxed);
        let primary = place.covers.swap(mark.covers.primary, Ordering::AcqRel);
        let standbys = place.covers_standbys.swap(mark.covers.standbys, Ordering::AcqRel);
        (RoundCoverage { primary, standbys }) != mark.covers
    }

    /// All standbys show what the primary had said before this round.
    pub fn publish_shown_by_all(&self, round: u64) {
        self.shown_by_all.store(round, Ordering::Relaxed);
    }

    /// A round that all standbys showed a moment ago. A read that needs this round waits for none of them, and checks all the same.
    #[inline]
    pub fn shown_by_all(&self) -> u64 {
        self.shown_by_all.load(Ordering::Relaxed)
    }

    /// Notes a task that waits until more is known: until a standby has replayed more, or was asked after a server connection was opened.
    pub fn enlist(&self, waiter: Waiter, verify_us: u64) {
        self.verify_us.fetch_max(verify_us, Ordering::SeqCst);
        let mut waiters = self.waiters.lock();
        if !waiters.contains(&waiter) {
            waiters.push(waiter);
        }
        self.waiting.store(waiters.len() as u32, Ordering::SeqCst);
    }

    pub fn has_waiters(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Standbys are to be asked that were not since then.
    pub fn verify(&self, verify_us: u64) {
        self.verify_us.fetch_max(verify_us, Ordering::SeqCst);
    }

    pub fn verify_us(&self) -> u64 {
        self.verify_us.load(Ordering::SeqCst)
    }

    /// Moves when something has become known.
    pub fn published(&self) -> u64 {
        self.published.load(Ordering::SeqCst)
    }

    /// Something has become known: wakes the waiters. They look again, and come back if it is not enough.
    pub fn take_waiters(&self, mut wake: impl FnMut(Waiter)) {
        self.published.fetch_add(1, Ordering::SeqCst);
        if self.has_waiters() {
            let mut waiters = self.waiters.lock();
            waiters.drain(..).for_each(&mut wake);
            self.waiting.store(0, Ordering::SeqCst);
        }
    }

    /// From the first read that names a node on, standbys without weight are asked too. True: it is the first, and the node
    /// monitor must be woken.
    #[inline]
    pub fn wish(&self) -> bool {
        !self.is_wished.load(Ordering::Relaxed) && !self.is_wished.swap(true, Ordering::Relaxed)
    }

    pub fn is_wished(&self) -> bool {
        self.is_wished.load(Ordering::Relaxed)
    }

    /// From now on the primary is asked also where there are no standbys.
    pub fn follow(&self) {
        self.is_followed.store(true, Ordering::SeqCst);
    }

    pub fn is_followed(&self) -> bool {
        self.is_followed.load(Ordering::SeqCst)
    }

    #[inline]
    pub fn is_global(&self) -> bool {
        self.told.is_global.load(Ordering::Relaxed)
    }

    /// A session has this mode. From the first global one on, all answers are noted; the next round covers the earlier ones.
    pub fn obey(&self, mode: CausalReads) {
        if mode == CausalReads::Global && !self.told.is_global.swap(true, Ordering::SeqCst) {
            self.told.by_primary.fetch_max(self.next_round(), Ordering::SeqCst);
        }
    }

    /// The primary told somebody something.
    #[inline]
    pub fn tell_primary(&self, next: u64) {
        if self.told.by_primary.load(Ordering::SeqCst) < next {
            self.told.by_primary.fetch_max(next, Ordering::SeqCst);
        }
    }

    /// A standby did.
    #[inline]
    pub fn tell_standby(&self, standby: (u16, Life), covers: u64, next: u64) {
        let mut before = self.told.by_standbys.load(Ordering::SeqCst);
        loop {
            let mut seen = unpack(before);
            seen.heard_standby((standby.0, standby.1 & LIFE_MASK), covers, next);
            let after = pack(&seen);
            if after == before {
                return;
            }
            match self.told.by_standbys.compare_exchange_weak(before, after, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return,
                Err(now) => before = now,
            }
        }
    }

    /// Rounds that cover all that any session was told.
    #[inline]
    pub fn told(&self) -> SeenRounds {
        let mut seen = unpack(self.told.by_standbys.load(Ordering::SeqCst));
        seen.primary = self.told.by_primary.load(Ordering::SeqCst);
        let life = self.place(seen.last.0).life.load(Ordering::Acquire);
        seen.last.1 = if seen.last.1 != 0 && life & LIFE_MASK == seen.last.1 { life } else { 0 };
        seen
    }
}

fn is_hopeful_since(behind_since: u64, now_ms: u64, wait_ms: u64) -> bool {
    match behind_since {
        UNKNOWN => false,
        NOT_BEHIND => is_hopeful(None, now_ms, wait_ms),
        since => is_hopeful(Some(since - 1), now_ms, wait_ms),
    }
}

/// A word holds 40 bits of a round, 16 of a life and 8 of a node's number.
const LIFE_MASK: u64 = 0xffff;

fn pack(seen: &SeenRounds) -> u64 {
    (seen.standbys << 24) | ((seen.last.1 & LIFE_MASK) << 8) | u64::from(seen.last.0 & 0xff)
}

fn unpack(word: u64) -> SeenRounds {
    SeenRounds { primary: 0, standbys: word >> 24, last: ((word & 0xff) as u16, (word >> 8) & LIFE_MASK) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(round: u64) -> RoundCoverage {
        RoundCoverage { primary: round, standbys: round }
    }

    fn need(positions: &ClusterPositions, standby: (u16, Life)) -> u64 {
        let need = positions.told().need(standby);
        need.primary.max(need.standbys)
    }

    #[test]
    fn who_wants_a_round_wakes_a_sampler_that_sleeps_once() {
        let positions = ClusterPositions::default();
        assert!(!positions.want(2), "it is awake");
        assert_eq!([positions.begin_round(), positions.begin_round()], [1, 2]);
        assert!(!positions.fall_asleep(1), "somebody wants a round that is not known yet");
        assert!(positions.fall_asleep(2));
        assert!(positions.want(positions.next_round()));
        assert!(!positions.want(3), "it was woken already");
    }

    #[test]
    fn the_first_wish_and_a_hurry_are_told() {
        let positions = ClusterPositions::default();
        assert!(!positions.is_wished() && !positions.is_urgent());
        assert!(positions.wish(), "the first one wakes the monitor");
        assert!(!positions.wish() && positions.is_wished());
        positions.hurry();
        assert!(positions.is_urgent());
        assert_eq!(positions.wanted(), positions.next_round());
    }

    #[test]
    fn a_link_is_of_a_life_if_the_server_was_asked_after_it_was_opened() {
        let positions = ClusterPositions::default();
        assert_eq!(positions.life_of(1, 50), None);
        let life = positions.begin_life(1);
        assert_eq!(positions.life_of(1, 50), None);
        positions.answered(1, 60);
        assert_eq!([positions.life_of(1, 50), positions.life_of(1, 60)], [Some(life), None]);
        positions.publish(1, StandbyProgress { covers: both(7), lag: ReplayLag::Nothing }, 0);
        assert_eq!(positions.standing(1), (life, both(7)));
        positions.end_life(1);
        assert_eq!((positions.standing(1), positions.life_of(1, 50)), ((life, both(0)), None));
        assert_eq!(positions.begin_life(1), life + 1);
    }

    #[test]
    fn a_standby_that_is_asked_over_another_connection_is_waited_for_if_it_was_known() {
        let positions = ClusterPositions::default();
        positions.renew_life(1, 100);
        assert!(!positions.is_hopeful(1, 100, 50), "nothing was ever known of it");
        positions.begin_life(1);
        positions.publish(1, StandbyProgress { covers: both(7), lag: ReplayLag::Nothing }, 0);
        positions.renew_life(1, 100);
        assert_eq!(positions.standing(1).1, both(0), "its words hold for the connection before");
        assert_eq!([149, 150].map(|now_ms| positions.is_hopeful(1, now_ms, 50)), [true, false], "nobody waits for ever");
    }

    #[test]
    fn what_anybody_was_told_is_needed_of_all_but_the_standby_that_said_it() {
        let positions = ClusterPositions::default();
        let (one, two) = ((1, positions.begin_life(1)), (2, positions.begin_life(2)));
        positions.tell_standby(one, 0, 5);
        assert_eq!([need(&positions, one), need(&positions, two)], [0, 5]);
        positions.tell_primary(3);
        assert_eq!([need(&positions, one), need(&positions, two)], [3, 5]);
        positions.tell_standby(two, 4, 6);
        assert_eq!([need(&positions, one), need(&positions, two)], [6, 6]);
        positions.tell_standby(two, 6, 6);
        assert_eq!([need(&positions, one), need(&positions, two)], [6, 3]);
        positions.begin_life(2);
        let two = (2, positions.standing(2).0);
        assert_eq!(need(&positions, two), 6);
    }

    #[test]
    fn who_waits_is_woken_once() {
        let positions = ClusterPositions::default();
        positions.enlist((0, 7), 0);
        positions.enlist((0, 7), 9);
        assert_eq!((positions.has_waiters(), positions.verify_us()), (true, 9));
        let mut woken = Vec::new();
        positions.take_waiters(|waiter| woken.push(waiter));
        assert_eq!((woken, positions.has_waiters(), positions.published()), (vec![(0, 7)], false, 1));
    }

    #[test]
    fn a_standby_is_hopeful_unless_it_has_lagged_for_long() {
        let positions = ClusterPositions::default();
        assert!(!positions.is_hopeful(1, 100, 20), "nothing is known of it");
        positions.publish(1, StandbyProgress { covers: both(1), lag: ReplayLag::Since(0) }, 5);
        assert!(positions.is_hopeful(1, 19, 20) && !positions.is_hopeful(1, 20, 20));
        positions.publish(1, StandbyProgress { covers: both(1), lag: ReplayLag::Nothing }, 5);
        assert!(positions.is_hopeful(1, 1_000_000, 20));
        positions.publish(1, StandbyProgress::default(), 100);
        positions.publish(1, StandbyProgress::default(), 110);
        assert!(positions.is_hopeful(1, 119, 20) && !positions.is_hopeful(1, 120, 20));
        positions.end_life(1);
        assert!(!positions.is_hopeful(1, 120, 20));
        positions.expect(1, 200);
        assert!(positions.is_hopeful(1, 219, 20) && !positions.is_hopeful(1, 220, 20));
    }

    #[test]
    fn a_primary_that_shows_less_than_standbys_is_hopeful_for_the_time_of_a_wait() {
        let positions = ClusterPositions::default();
        assert!(!positions.is_primary_behind() && positions.is_primary_hopeful(1_000_000, 20));
        assert!(positions.publish_primary(PrimaryVisibility { round: 3, behind_since_ms: Some(100) }));
        assert!(positions.is_primary_behind() && positions.primary_shows(3) && !positions.primary_shows(4));
        assert!(positions.is_primary_hopeful(119, 20) && !positions.is_primary_hopeful(120, 20));
        assert!(!positions.publish_primary(PrimaryVisibility { round: 3, behind_since_ms: None }), "the same round");
        assert!(!positions.is_primary_behind());
    }
}
