//! WAL positions as all threads know them: rounds of queries to the primary, and the rounds each standby covers.
//!
//! Written by `node_monitor`, read by every routed read. Decisions are in `causal::standbys`.

use crate::causal::standbys::{
    Life, PrimaryChange, PrimaryContinuity, ReplayLag, RoundCoverage, SeenRounds, StandbyProgress, is_hopeful,
};
use crate::causal::waiting::{ALL_ROUNDS, PrimaryVisibility};
use crate::metrics::NODES_MAX;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use weir_config::CausalReads;

/// `behind_since` once all known WAL is replayed.
const NOT_BEHIND: u64 = 0;
/// `behind_since` without a known position.
const UNKNOWN: u64 = u64::MAX;

type Waiter = (u8, u32);

#[derive(Debug)]
struct NodeCoverage {
    life: AtomicU64,
    covers: AtomicU64,
    covers_standbys: AtomicU64,
    /// Milliseconds since the start of the proxy, plus 1.
    behind_since: AtomicU64,
    /// Sending time of the last query answered in this life, in microseconds since the start of the proxy.
    asked_us: AtomicU64,
}

/// Changes kept; a session idle through more learns of the last ones.
const SWITCHES_MAX: usize = 8;

#[derive(Debug, Default)]
struct PrimaryHistory {
    primary: Option<u16>,
    last: VecDeque<PrimaryChange>,
    /// Coverage of nodes when first seen as primaries.
    promoted: BTreeMap<u16, (Life, RoundCoverage)>,
    /// The next primary if its predecessor was stopped for it, so that it has all WAL.
    whole: Option<u16>,
}

#[derive(Debug)]
pub struct ClusterPositions {
    rounds: PrimaryRounds,
    waiters: Mutex<Vec<Waiter>>,
    waiting: AtomicU32,
    published: AtomicU64,
    /// Hint only.
    shown_by_all: AtomicU64,
    /// A standby must be queried after this time to prove a connection's life.
    verify_us: AtomicU64,
    places: Vec<NodeCoverage>,
    switches: Mutex<PrimaryHistory>,
    /// The primary shows all that standbys had said before this round; `ALL_ROUNDS` while unknown.
    primary_shows: AtomicU64,
    /// As `NodeCoverage::behind_since`.
    primary_behind_since: AtomicU64,
    told: GlobalReadRounds,
    /// True once a read has named a node, perhaps a standby without weight.
    is_wished: AtomicBool,
    /// True if a database's WAL is read, which needs the primary's position.
    is_followed: AtomicBool,
}

#[derive(Debug)]
struct PrimaryRounds {
    last: AtomicU64,
    answered: AtomicU64,
    wanted: AtomicU64,
    is_urgent: AtomicBool,
    /// True if the node monitor set no timer.
    is_asleep: AtomicBool,
}

/// Rounds that cover all that any session was told.
#[derive(Debug, Default)]
struct GlobalReadRounds {
    /// True once a session reads with `causal_reads = global`.
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
                // The first round shows which standbys keep up.
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

    #[inline]
    pub fn round(&self) -> u64 {
        self.rounds.last.load(Ordering::SeqCst)
    }

    /// Returns the round whose position covers all that servers have said by now.
    #[inline]
    pub fn next_round(&self) -> u64 {
        self.round() + 1
    }

    /// Call before the primary is queried.
    pub fn begin_round(&self) -> u64 {
        self.rounds.is_urgent.store(false, Ordering::SeqCst);
        self.rounds.last.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub fn answer_round(&self, round: u64) {
        self.rounds.answered.store(round, Ordering::Release);
    }

    #[inline]
    pub fn answered_round(&self) -> u64 {
        self.rounds.answered.load(Ordering::Acquire)
    }

    /// Requests a round. True if the node monitor must be woken.
    #[inline]
    pub fn want(&self, round: u64) -> bool {
        if self.rounds.wanted.load(Ordering::Relaxed) >= round {
            return false;
        }
        self.rounds.wanted.fetch_max(round, Ordering::SeqCst);
        self.rounds.is_asleep.load(Ordering::SeqCst) && self.rounds.is_asleep.swap(false, Ordering::SeqCst)
    }

    /// Requests the next round at once. The caller must wake the node monitor.
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

    /// Notes that the node monitor sets no timer. False if demand has come meanwhile.
    pub fn fall_asleep(&self, known: u64) -> bool {
        self.rounds.is_asleep.store(true, Ordering::SeqCst);
        let sleeps = self.wanted() <= known && !self.has_waiters();
        if !sleeps {
            self.rounds.is_asleep.store(false, Ordering::SeqCst);
        }
        sleeps
    }

    /// Returns a standby's life and proven coverage. Loads the life first: the rounds belong to it or a later one.
    #[inline]
    pub fn standing(&self, node: u16) -> (Life, RoundCoverage) {
        let place = self.place(node);
        let life = place.life.load(Ordering::Acquire);
        let (primary, standbys) = (place.covers.load(Ordering::Acquire), place.covers_standbys.load(Ordering::Acquire));
        (life, RoundCoverage { primary, standbys })
    }

    pub fn is_hopeful(&self, node: u16, now_ms: u64, wait_ms: u64) -> bool {
        is_hopeful_since(self.place(node).behind_since.load(Ordering::Relaxed), now_ms, wait_ms)
    }

    /// Stores what the primary shows. True if the round has changed.
    pub fn publish_primary(&self, shows: PrimaryVisibility) -> bool {
        self.primary_behind_since.store(shows.behind_since_ms.map_or(NOT_BEHIND, |since_ms| since_ms + 1), Ordering::Relaxed);
        self.primary_shows.swap(shows.round, Ordering::AcqRel) != shows.round
    }

    #[inline]
    pub fn primary_shows(&self, round: u64) -> bool {
        round == 0 || self.primary_shows.load(Ordering::Acquire) >= round
    }

    /// True if a commit waits that standbys may show already.
    pub fn is_primary_behind(&self) -> bool {
        self.primary_behind_since.load(Ordering::Relaxed) != NOT_BEHIND
    }

    pub fn is_primary_hopeful(&self, now_ms: u64, wait_ms: u64) -> bool {
        is_hopeful_since(self.primary_behind_since.load(Ordering::Relaxed), now_ms, wait_ms)
    }

    /// Returns the life of the server behind a live connection; `None` if not queried since the connection was opened.
    #[inline]
    pub fn life_of(&self, node: u16, opened_us: u64) -> Option<Life> {
        let place = self.place(node);
        let life = place.life.load(Ordering::Acquire);
        let is_proven = opened_us < place.asked_us.load(Ordering::Acquire);
        (life != 0 && is_proven && place.life.load(Ordering::Acquire) == life).then_some(life)
    }

    /// Begins a life with a new monitoring connection.
    pub fn begin_life(&self, node: u16) -> Life {
        self.forget(node);
        self.place(node).life.fetch_add(1, Ordering::AcqRel) + 1
    }

    pub fn end_life(&self, node: u16) {
        self.forget(node);
        self.place(node).behind_since.store(UNKNOWN, Ordering::Relaxed);
    }

    /// Prepares for another monitoring connection. A node with a known position stays worth a wait, so that reads do not all go to
    /// the primary.
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

    /// Records a promoted node's coverage. Call before anything it says as primary is stored; writes may reach it later.
    pub fn note_promoted(&self, node: u16) {
        let standing = self.standing(node);
        self.switches.lock().promoted.insert(node, standing);
    }

    /// Notes that the next primary has all that any session was shown.
    pub fn note_whole(&self, node: u16) {
        self.switches.lock().whole = Some(node);
    }

    /// Notes the primary since this generation of the view. Without an answered round nothing is known of what sessions saw.
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

    /// Judges if all primaries since this generation keep what was seen.
    pub fn keep(&self, seen: &SeenRounds, since: u64) -> PrimaryContinuity {
        let switches = self.switches.lock();
        let lacks = |switch: &PrimaryChange| switch.since > since && switch.keeps(seen) == PrimaryContinuity::NotProven;
        if switches.last.iter().any(lacks) { PrimaryContinuity::NotProven } else { PrimaryContinuity::All }
    }

    pub fn answered(&self, node: u16, asked_us: u64) {
        self.place(node).asked_us.store(asked_us, Ordering::Release);
    }

    pub fn asked_us(&self, node: u16) -> u64 {
        self.place(node).asked_us.load(Ordering::Acquire)
    }

    /// Makes a standby that just came up worth a wait.
    pub fn expect(&self, node: u16, now_ms: u64) {
        self.place(node).behind_since.store(now_ms + 1, Ordering::Relaxed);
    }

    /// Publishes a standby's progress. True if its coverage has changed.
    pub fn publish(&self, node: u16, mark: StandbyProgress, now_ms: u64) -> bool {
        let place = self.place(node);
        let before = place.behind_since.load(Ordering::Relaxed);
        let behind = match mark.lag {
            ReplayLag::Nothing => NOT_BEHIND,
            ReplayLag::Since(since_ms) => since_ms + 1,
            // The standby kept up until now, and will again after the promotion.
            ReplayLag::Unknown if before == NOT_BEHIND => now_ms + 1,
            ReplayLag::Unknown => before,
        };
        place.behind_since.store(behind, Ordering::Relaxed);
        let primary = place.covers.swap(mark.covers.primary, Ordering::AcqRel);
        let standbys = place.covers_standbys.swap(mark.covers.standbys, Ordering::AcqRel);
        (RoundCoverage { primary, standbys }) != mark.covers
    }

    pub fn publish_shown_by_all(&self, round: u64) {
        self.shown_by_all.store(round, Ordering::Relaxed);
    }

    /// Returns a hint: a read that needs this round waits for no standby, but checks all the same.
    #[inline]
    pub fn shown_by_all(&self) -> u64 {
        self.shown_by_all.load(Ordering::Relaxed)
    }

    /// Lists a task to wake when a standby has replayed more, or was queried after `verify_us`.
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

    pub fn verify(&self, verify_us: u64) {
        self.verify_us.fetch_max(verify_us, Ordering::SeqCst);
    }

    pub fn verify_us(&self) -> u64 {
        self.verify_us.load(Ordering::SeqCst)
    }

    pub fn published(&self) -> u64 {
        self.published.load(Ordering::SeqCst)
    }

    /// Wakes the waiters. Each checks again, and enlists again if needed.
    pub fn take_waiters(&self, mut wake: impl FnMut(Waiter)) {
        self.published.fetch_add(1, Ordering::SeqCst);
        if self.has_waiters() {
            let mut waiters = self.waiters.lock();
            waiters.drain(..).for_each(&mut wake);
            self.waiting.store(0, Ordering::SeqCst);
        }
    }

    /// Has standbys without weight queried too. True for the first call: wake the node monitor.
    #[inline]
    pub fn wish(&self) -> bool {
        !self.is_wished.load(Ordering::Relaxed) && !self.is_wished.swap(true, Ordering::Relaxed)
    }

    pub fn is_wished(&self) -> bool {
        self.is_wished.load(Ordering::Relaxed)
    }

    /// Has the primary queried even without standbys.
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

    /// Notes a mode. From the first `global` on all answers are noted; the next round covers earlier ones.
    pub fn obey(&self, mode: CausalReads) {
        if mode == CausalReads::Global && !self.told.is_global.swap(true, Ordering::SeqCst) {
            self.told.by_primary.fetch_max(self.next_round(), Ordering::SeqCst);
        }
    }

    #[inline]
    pub fn tell_primary(&self, next: u64) {
        if self.told.by_primary.load(Ordering::SeqCst) < next {
            self.told.by_primary.fetch_max(next, Ordering::SeqCst);
        }
    }

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

/// Packed word: 40 bits of a round, 16 of a life, 8 of a node's number.
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
