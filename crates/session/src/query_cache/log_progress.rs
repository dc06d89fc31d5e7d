//! How far a database's log was taken in. Written by `wal_follower` and `node_monitor` on the control thread, read by all. `weir_cache`
//! decides.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weir_cache::{
    CoveredRound, FollowError, LogFollower, LogFollowerState, PositionRound, ResultDependencies, ResultProof, ResultProofState,
    Slot, TableVersions, WalHistory,
};

const NOT_BEHIND: u64 = u64::MAX;

#[derive(Debug)]
pub struct WalProgress {
    round: AtomicU64,
    asked_ms: AtomicU64,
    /// When the oldest uncovered round was asked for.
    behind_since_ms: AtomicU64,
    /// The last told commit is not shown by a round yet.
    has_news: AtomicBool,
    /// A task follows the database.
    watched: AtomicBool,
    /// The task must leave the database.
    unwanted: AtomicBool,
    machine: Mutex<Option<FollowerState>>,
    pub report: Mutex<WalProgressReport>,
}

#[derive(Clone, Debug, Default)]
pub struct WalProgressReport {
    pub node: Option<u16>,
    pub slot: String,
    pub plugin: &'static str,
    pub step: &'static str,
    pub commits: u64,
    pub breaks: u64,
    pub error: Option<String>,
}

#[derive(Debug)]
struct FollowerState {
    follower: LogFollower,
    versions: Arc<TableVersions>,
    next: u64,
}

impl Drop for FollowerState {
    fn drop(&mut self) {
        self.follower.end(self.next, &self.versions);
    }
}

impl Default for WalProgress {
    fn default() -> WalProgress {
        WalProgress {
            round: AtomicU64::new(0),
            asked_ms: AtomicU64::new(0),
            behind_since_ms: AtomicU64::new(NOT_BEHIND),
            has_news: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            unwanted: AtomicBool::new(false),
            machine: Mutex::default(),
            report: Mutex::default(),
        }
    }
}

impl WalProgress {
    /// Stores nothing until the log is followed. True: the caller must start a follower.
    pub fn want(&self, database: Slot, versions: &Arc<TableVersions>) -> bool {
        if self.watched.load(Ordering::SeqCst) {
            return false;
        }
        let mut machine = self.machine.lock();
        machine.get_or_insert_with(|| FollowerState {
            follower: LogFollower::new(database, versions),
            versions: versions.clone(),
            next: 1,
        });
        !self.watched.swap(true, Ordering::SeqCst)
    }

    pub fn is_watched(&self) -> bool {
        self.watched.load(Ordering::SeqCst)
    }

    pub fn leave(&self) {
        self.unwanted.store(true, Ordering::SeqCst);
    }

    pub fn is_unwanted(&self) -> bool {
        self.unwanted.load(Ordering::SeqCst)
    }

    /// Notes that the follower has ended.
    pub fn close(&self, next: u64) {
        self.lose(next);
        self.unwanted.store(false, Ordering::SeqCst);
        self.watched.store(false, Ordering::SeqCst);
    }

    /// Call before the versions are read: a change is raised before it counts as covered.
    #[inline]
    pub fn covered(&self) -> CoveredRound {
        CoveredRound { round: self.round.load(Ordering::SeqCst), asked_ms: self.asked_ms.load(Ordering::SeqCst) }
    }

    /// True if the log is followed and lags less than `wait_ms`.
    pub fn is_hopeful(&self, now_ms: u64, wait_ms: u64) -> bool {
        let since = self.behind_since_ms.load(Ordering::Relaxed);
        let is_late = since != NOT_BEHIND && now_ms.saturating_sub(since) >= wait_ms;
        self.round.load(Ordering::SeqCst) > 0 && !is_late
    }

    /// Notes a stream of all commits after `position`.
    pub fn start(&self, history: WalHistory, position: u64, next: u64) {
        self.act(|machine| machine.follower.start(history, position, next));
    }

    pub fn begin(&self, xid: u32) -> Result<(), FollowError> {
        self.act(|machine| machine.follower.begin(xid)).unwrap_or(Ok(()))
    }

    pub fn change(&self, slot: Slot) -> Result<(), FollowError> {
        self.act(|machine| machine.follower.change(slot)).unwrap_or(Ok(()))
    }

    pub fn commit(&self, end: u64) -> Result<(), FollowError> {
        let done = self.act(|machine| {
            let done = machine.follower.commit(end, &machine.versions);
            self.has_news.store(machine.follower.pending() > 0, Ordering::Relaxed);
            done
        });
        done.unwrap_or(Ok(()))
    }

    /// True once per told commit without a round.
    #[inline]
    pub fn take_news(&self) -> bool {
        self.has_news.load(Ordering::Relaxed) && self.has_news.swap(false, Ordering::Relaxed)
    }

    pub fn reach(&self, position: u64) {
        self.act(|machine| machine.follower.reach(position));
    }

    /// True: another round is needed.
    pub fn round(&self, round: &PositionRound) -> bool {
        let is_needed = self.act(|machine| {
            machine.next = round.number + 1;
            machine.follower.round(round, &machine.versions)
        });
        is_needed.unwrap_or(false)
    }

    pub fn redefine(&self) {
        self.act(|machine| machine.follower.redefine(&machine.versions));
    }

    /// Stops serving results by earlier proofs.
    pub fn forget(&self, next: u64) {
        self.act(|machine| machine.follower.forget(next));
    }

    /// `next`: the next round.
    pub fn lose(&self, next: u64) {
        self.act(|machine| machine.follower.lose(next, &machine.versions));
    }

    /// State, position, and told transactions perhaps invisible yet.
    pub fn standing(&self) -> Option<(LogFollowerState, u64, usize)> {
        let machine = self.machine.lock();
        machine
            .as_ref()
            .map(|FollowerState { follower, .. }| (follower.standing().clone(), follower.position(), follower.pending()))
    }

    /// `None`: never wanted.
    fn act<T>(&self, act: impl FnOnce(&mut FollowerState) -> T) -> Option<T> {
        let mut machine = self.machine.lock();
        let machine = machine.as_mut()?;
        let result = act(machine);
        let covered = machine.follower.covered();
        let since = machine.follower.behind_since_ms();
        self.behind_since_ms.store(since.unwrap_or(NOT_BEHIND), Ordering::Relaxed);
        self.asked_ms.store(covered.asked_ms, Ordering::SeqCst);
        self.round.store(covered.round, Ordering::SeqCst);
        Some(result)
    }

    /// Returns the proof of a result that came before the round. Void if the followed node is not the primary.
    pub fn prove(&self, primary: Option<u16>, deps: &ResultDependencies, round: u64) -> ResultProofState {
        let machine = self.machine.lock();
        match machine.as_ref().filter(|machine| follows(&machine.follower, primary)) {
            Some(FollowerState { follower, versions, .. }) => follower.prove(versions, deps, round),
            None => ResultProofState::Void,
        }
    }

    /// Returns the round that covers all the result shows, if its proof makes it true now.
    pub fn admits(&self, primary: Option<u16>, slots: &[Slot], proof: &ResultProof) -> Option<u64> {
        let mut machine = self.machine.lock();
        let FollowerState { follower, versions, .. } = machine.as_mut().filter(|machine| follows(&machine.follower, primary))?;
        follower.admits(versions, slots, proof)
    }
}

fn follows(follower: &LogFollower, primary: Option<u16>) -> bool {
    matches!(follower.standing(), LogFollowerState::Following(history) if Some(history.node) == primary)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_cache::TxidSnapshot;

    #[test]
    fn one_session_alone_is_told_of_news() {
        let follow = WalProgress::default();
        assert!(!follow.take_news());
        follow.has_news.store(true, Ordering::Relaxed);
        assert_eq!([follow.take_news(), follow.take_news()], [true, false]);
    }

    #[test]
    fn one_that_is_forgotten_and_made_anew_keeps_nothing_out_for_ever() {
        let versions = Arc::new(TableVersions::new(10));
        let slot = versions.of_database("d");
        for _ in 0..2 {
            let follow = WalProgress::default();
            assert_eq!(follow.standing(), None, "nobody has wanted it yet");
            assert!(follow.want(slot, &versions) && !follow.want(slot, &versions));
            assert!(versions.begin(&[slot]).is_none(), "nothing is known yet");
            let history = WalHistory { node: 0, system: 1, timeline: 1 };
            follow.start(history, 10, 1);
            let snapshot = TxidSnapshot::parse("5:5:").unwrap();
            let round = PositionRound { number: 1, history, position: 20, snapshot, asked_ms: 7 };
            assert!(!follow.round(&round));
            assert!(versions.begin(&[slot]).is_some());
            assert_eq!((follow.covered().round, follow.is_hopeful(10, 5), follow.is_hopeful(12, 5)), (0, false, false));
            follow.reach(20);
            assert_eq!((follow.covered(), follow.is_hopeful(100, 5)), (CoveredRound { round: 1, asked_ms: 7 }, true));
            assert_eq!(follow.standing(), Some((LogFollowerState::Following(history), 20, 0)));
            follow.close(2);
            assert_eq!((follow.covered().round, versions.begin(&[slot])), (0, None));
            drop(follow);
            assert!(versions.begin(&[slot]).is_some());
        }
    }
}
