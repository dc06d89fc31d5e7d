//! What all workers of a Weir share of the stores: errands from other threads, and what Weirs tell each other past a store that one of them
//! cannot reach. The primary is the place where they meet (`fence`): whoever writes can reach it.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use weir_policy::cache::{Member, Orphans, PAST, Slot};

/// The worker that runs what no worker in particular has to.
pub const FIRST_WORKER: u8 = 0;

/// Workers there may be: the numbers above are other members'.
const WORKERS_MAX: usize = PAST as usize;

/// Hosts, each a bit.
const HOSTS: usize = 64;

/// For so long after a look at the primary answers may be given from the store.
pub const LEASE_MS: u64 = 1000;

/// For so long after a lock was known to be ours a writer may rely on it: a session on the primary may end unheard, and its locks with it.
pub const LEAVE_MS: u64 = 1000;

/// What one of two may be late by with what the other relies upon.
pub const MARGIN_MS: u64 = 300;

/// A lock on the primary, by which a Weir says that it commits without a host's knowing: the process that has it, and the host's number.
pub type Lock = (u32, u32);

/// For so long after the locks were looked at anew, or one of them was gone, nothing is given out: whoever had it may rely on it still.
const LINGER_MS: u64 = LEAVE_MS + MARGIN_MS;

/// A writer that no store and no primary can be told of waits this long at most.
pub const GIVE_UP_MS: u64 = 10_000;

/// What a thread wants a worker to tell the store.
pub enum Errand {
    /// These have changed unseen. All of that is over: nothing that changes them is under way.
    Change(Vec<Slot>),
    /// A Weir is gone, or may be, that had something to tell: all this may have changed unseen, and may change again (`Common::has_orphans`).
    Lost(Vec<Slot>),
    /// The end of a write that this worker had raised, and that may have been carried out.
    Settle(Vec<Slot>),
}

/// What a look at the primary's locks has shown.
#[derive(Debug, Default)]
pub struct Looked {
    /// Hosts of which some Weir says that it commits without their knowing.
    pub untold: u64,
    /// The locks that say so, and those that say that the store was told all since.
    pub locks: Vec<Lock>,
    pub told: Vec<Lock>,
    /// Processes in a transaction, if that was asked.
    pub running: Option<Vec<u32>>,
    /// When the primary was asked, and when its answer was here.
    pub asked_ms: u64,
    pub heard_ms: u64,
}

/// See the module.
pub struct Common {
    /// Tells this Weir's workers from those of others.
    id: u32,
    errands: Mutex<Vec<(u8, Errand)>>,
    /// Changes the store does not know of yet. Until then nothing is given out.
    pub changes: AtomicU64,
    /// By worker: hosts out of reach that should know of its writers.
    wishes: Box<[AtomicU64]>,
    /// Since when there is a wish that is not granted, by host; 0: there is none.
    wished_since_ms: Box<[AtomicU64]>,
    /// Hosts at which all other Weirs have stopped to rely on what they find, and until when that is sure.
    granted: AtomicU64,
    granted_until_ms: AtomicU64,
    /// Hosts of which some Weir has said on the primary that it commits without their knowing.
    untold: AtomicU64,
    /// The locks that say so.
    locks: Mutex<Vec<Lock>>,
    /// What a Weir that is gone may have left running.
    orphans: Mutex<Orphans>,
    /// From then until then nobody can commit so without our having heard of it.
    clear_from_ms: AtomicU64,
    clear_until_ms: AtomicU64,
    /// Another number whenever some of that may have been missed.
    era: AtomicU64,
    /// Hosts that do not know all yet that the primary's log told.
    unfollowed: AtomicU64,
    /// The task that takes there what the log tells (`books`).
    pub books: AtomicU32,
    /// Hosts the log knows to be out of reach.
    logged: AtomicU64,
    /// Hosts the log knows to take no answers.
    full: AtomicU64,
    /// Whether the primary is looked at: what the log was told.
    is_looked: AtomicBool,
    pub workers: AtomicU8,
}

impl Common {
    pub fn new() -> Arc<Common> {
        let words = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect::<Box<[AtomicU64]>>();
        Arc::new(Common {
            id: u32::from_le_bytes(crate::random()),
            errands: Mutex::default(),
            changes: AtomicU64::new(0),
            wishes: words(WORKERS_MAX),
            wished_since_ms: words(HOSTS),
            granted: AtomicU64::new(0),
            granted_until_ms: AtomicU64::new(0),
            untold: AtomicU64::new(0),
            locks: Mutex::default(),
            orphans: Mutex::default(),
            clear_from_ms: AtomicU64::new(0),
            clear_until_ms: AtomicU64::new(0),
            era: AtomicU64::new(1),
            unfollowed: AtomicU64::new(0),
            books: AtomicU32::new(crate::io::reactor::NO_TASK),
            logged: AtomicU64::new(0),
            full: AtomicU64::new(0),
            is_looked: AtomicBool::new(true),
            workers: AtomicU8::new(0),
        })
    }

    /// A worker's number among those of all Weirs.
    pub fn member(&self, worker: u8) -> Member {
        (self.id << 8) | u32::from(worker)
    }

    /// Has a worker tell the store something.
    pub fn tell(&self, worker: u8, errand: Errand) {
        if matches!(errand, Errand::Change(_) | Errand::Lost(_)) {
            self.changes.fetch_add(1, Ordering::SeqCst);
        }
        self.errands.lock().push((worker, errand));
    }

    /// What a worker is to tell.
    pub fn take(&self, worker: u8) -> Vec<Errand> {
        let mut errands = self.errands.lock();
        errands.extract_if(.., |(of, _)| *of == worker).map(|(_, errand)| errand).collect()
    }

    /// Notes whether a worker has writers of whom a host out of reach should know.
    pub fn wish(&self, worker: u8, host: usize, is_wished: bool) {
        let bit = 1 << (host % HOSTS);
        let (word, since_ms) = (&self.wishes[usize::from(worker)], &self.wished_since_ms[host % HOSTS]);
        if is_wished {
            word.fetch_or(bit, Ordering::SeqCst);
            return;
        }
        // As good as always, at each raise.
        if word.load(Ordering::SeqCst) & bit == 0 && since_ms.load(Ordering::SeqCst) == 0 {
            return;
        }
        word.fetch_and(!bit, Ordering::SeqCst);
        // The next wish is another one.
        if self.wishes.iter().all(|word| word.load(Ordering::SeqCst) & bit == 0) {
            since_ms.store(0, Ordering::SeqCst);
        }
    }

    /// Hosts that some worker wishes the others to be told of.
    pub fn wishes(&self, now_ms: u64) -> u64 {
        let wishes = self.wishes.iter().fold(0, |all, word| all | word.load(Ordering::SeqCst));
        let waiting = wishes & !self.granted(now_ms);
        for (host, since) in self.wished_since_ms.iter().enumerate() {
            match waiting & (1 << host) {
                0 => since.store(0, Ordering::SeqCst),
                _ => drop(since.compare_exchange(0, now_ms.max(1), Ordering::SeqCst, Ordering::SeqCst)),
            }
        }
        wishes
    }

    /// Whether a writer may commit though the host knows nothing of it.
    pub fn is_granted(&self, host: usize, now_ms: u64) -> bool {
        let since = self.wished_since_ms[host % HOSTS].load(Ordering::SeqCst);
        self.granted(now_ms) & (1 << (host % HOSTS)) != 0 || (since > 0 && now_ms >= since + GIVE_UP_MS)
    }

    fn granted(&self, now_ms: u64) -> u64 {
        if now_ms < self.granted_until_ms.load(Ordering::SeqCst) { self.granted.load(Ordering::SeqCst) } else { 0 }
    }

    /// What the primary's locks said when it was asked at that time: hosts whose stamps all others have stopped to rely on.
    pub fn grant(&self, granted: u64, asked_ms: u64) {
        self.granted.store(granted, Ordering::SeqCst);
        self.granted_until_ms.store(asked_ms + LEAVE_MS, Ordering::SeqCst);
    }

    /// Nothing is known of the locks any more.
    pub fn revoke(&self) {
        self.granted.store(0, Ordering::SeqCst);
        self.granted_until_ms.store(0, Ordering::SeqCst);
    }

    /// What the primary told of the others' locks when it was asked: hosts, and who has them. `told`: those who have told the store all.
    ///
    /// A Weir whose lock goes without that may have died, and what it committed may never be told: everything in the store counts as
    /// changed then (`of_all`, the slot all answers hang on), and is marked as about to change until what it left running is over. The same if
    /// one may have locked, committed and died between two looks.
    pub fn hear(&self, heard: Looked, of_all: Slot) {
        let Looked { untold, locks, told, running, asked_ms, heard_ms } = heard;
        let known_until_ms = self.clear_until_ms.load(Ordering::SeqCst);
        let (is_first, has_lapsed) = (known_until_ms == 0, asked_ms >= known_until_ms);
        let before = std::mem::replace(&mut *self.locks.lock(), locks.clone());
        let is_lost = before.iter().any(|lock| !locks.contains(lock) && !told.contains(lock));
        let is_missed = !is_first && heard_ms >= known_until_ms + MARGIN_MS;
        let untold_before = self.untold.load(Ordering::SeqCst);
        if has_lapsed || is_lost || is_missed || untold_before & !untold != 0 {
            self.clear_from_ms.store(asked_ms + LINGER_MS, Ordering::SeqCst);
        }
        {
            let mut orphans = self.orphans.lock();
            running.iter().for_each(|running| orphans.saw(running, asked_ms));
            if is_lost || is_missed {
                orphans.lost(heard_ms + LINGER_MS);
            }
        }
        // In this order: what is told waits for those.
        if is_lost || is_missed {
            self.tell(FIRST_WORKER, Errand::Lost(vec![of_all]));
        }
        if has_lapsed || is_missed || untold_before != untold {
            self.untold.store(untold, Ordering::SeqCst);
            self.era.fetch_add(1, Ordering::SeqCst);
        }
        self.clear_until_ms.store(asked_ms + LEASE_MS, Ordering::SeqCst);
    }

    /// Whether a look at the primary is to ask which of its processes are in a transaction.
    pub fn asks_what_runs(&self, now_ms: u64) -> bool {
        self.orphans.lock().must_ask(now_ms)
    }

    /// Whether something may be running that a Weir left which is gone.
    pub fn has_orphans(&self) -> bool {
        self.orphans.lock().is_any()
    }

    /// The processes that may be doing that.
    pub fn orphans(&self) -> Vec<u32> {
        self.orphans.lock().processes().to_vec()
    }

    /// The present era, if what these hosts say may be relied upon.
    pub fn era(&self, hosts: u64, now_ms: u64) -> Option<u64> {
        let era = self.era.load(Ordering::SeqCst);
        let is_sure = now_ms < self.clear_until_ms.load(Ordering::SeqCst) && now_ms >= self.clear_from_ms.load(Ordering::SeqCst);
        let unsafe_hosts = self.untold.load(Ordering::SeqCst) | self.unfollowed.load(Ordering::SeqCst);
        let is_clear = is_sure && unsafe_hosts & hosts == 0;
        (is_clear && self.changes.load(Ordering::SeqCst) == 0).then_some(era)
    }

    /// Notes whether a host lacks something that the primary's log told.
    pub fn lag(&self, host: usize, lags: bool) {
        let bit = 1 << (host % HOSTS);
        match lags {
            true => self.unfollowed.fetch_or(bit, Ordering::SeqCst),
            false if self.unfollowed.load(Ordering::Relaxed) & bit != 0 => self.unfollowed.fetch_and(!bit, Ordering::SeqCst),
            false => 0,
        };
    }

    /// Whether the log knows a host to be out of reach.
    pub fn is_logged(&self, host: usize) -> bool {
        self.logged.load(Ordering::Relaxed) & (1 << (host % HOSTS)) != 0
    }

    /// Whether the log has yet to be told that a host is out of reach, or back.
    pub fn is_news(&self, host: usize, is_up: bool) -> bool {
        let bit = 1 << (host % HOSTS);
        let before =
            if is_up { self.logged.fetch_and(!bit, Ordering::SeqCst) } else { self.logged.fetch_or(bit, Ordering::SeqCst) };
        let is_news = (before & bit != 0) == is_up;
        if is_news && is_up {
            self.full.fetch_and(!bit, Ordering::SeqCst);
        }
        is_news
    }

    /// Whether the log has yet to be told that a host takes no answers: once, until it was out of reach and is back.
    pub fn is_news_that_full(&self, host: usize) -> bool {
        let bit = 1 << (host % HOSTS);
        self.full.fetch_or(bit, Ordering::SeqCst) & bit == 0
    }

    /// The same for the primary.
    pub fn is_news_of_primary(&self, is_looked: bool) -> bool {
        self.is_looked.swap(is_looked, Ordering::SeqCst) != is_looked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Weir that has these hosts locked, or has told them all.
    fn hear(common: &Common, untold: u64, asked_ms: u64) {
        let (locks, told) = if untold == 0 { (Vec::new(), vec![(7, 1)]) } else { (vec![(7, 1)], Vec::new()) };
        common.hear(Looked { untold, locks, told, asked_ms, heard_ms: asked_ms, running: None }, 0);
    }

    /// A worker has told the store what it was to.
    fn run_errands(common: &Common) -> usize {
        let errands = common.take(FIRST_WORKER).len();
        common.changes.fetch_sub(errands as u64, Ordering::SeqCst);
        errands
    }

    /// Looks at the primary as often as it is done, from one time to another, and finds the same. Gives the era at the end.
    fn look(common: &Common, untold: u64, times: std::ops::RangeInclusive<u64>) -> Option<u64> {
        let end = *times.end();
        times.step_by(200).for_each(|asked_ms| hear(common, untold, asked_ms));
        common.era(1, end + 1)
    }

    #[test]
    fn what_a_store_says_is_relied_upon_while_nobody_commits_past_it() {
        let common = Common::new();
        assert_eq!(common.era(1, 5), None, "the primary was not asked yet");
        assert_eq!(look(&common, 0, 10..=10), None, "somebody may rely on a lock that was there before");
        let first = look(&common, 0, 10..=2010);
        assert!(first.is_some() && common.era(1, 2010 + LEASE_MS).is_none());
        assert_eq!(look(&common, 0b1, 2210..=2210), None);
        assert!(common.era(0b10, 2211).is_some_and(|era| Some(era) != first));
        assert_eq!(look(&common, 0, 2410..=2410), None, "whoever had the lock may rely on it still");
        let second = look(&common, 0, 2610..=4010);
        assert_eq!(look(&common, 0, 4010..=4610), second, "nothing has happened");
        assert_eq!(run_errands(&common), 0, "all was told by whoever had something to tell");
        assert_eq!(look(&common, 0, 5610..=5610), None, "something may have happened unheard");
        run_errands(&common);
        let third = look(&common, 0, 5610..=7010);
        assert!(third.is_some() && third != second);
        common.tell(0, Errand::Change(vec![1]));
        assert_eq!(common.era(1, 7011), None);
    }

    #[test]
    fn a_writer_waits_for_the_others_or_gives_up_waiting() {
        let common = Common::new();
        common.wish(3, 1, true);
        assert_eq!((common.wishes(100), common.is_granted(1, 101)), (0b10, false));
        assert!(common.is_granted(1, 100 + GIVE_UP_MS) && !common.is_granted(0, 100 + GIVE_UP_MS));
        common.grant(0b10, 200);
        assert!(common.is_granted(1, 201));
        common.wish(3, 1, false);
        assert_eq!(common.wishes(200), 0);
    }

    #[test]
    fn a_writer_relies_on_a_lock_no_longer_than_others_wait_for_when_it_is_gone() {
        let common = Common::new();
        common.wish(0, 1, true);
        common.wishes(1);
        common.grant(0b10, 2000);
        assert!(common.is_granted(1, 2000 + LEAVE_MS - 1), "long after the wish, but the lock is there");
        assert!(!common.is_granted(1, 2000 + LEAVE_MS), "the primary has not been heard of since");
        common.grant(0b10, 3 * GIVE_UP_MS);
        common.wishes(3 * GIVE_UP_MS);
        common.revoke();
        assert!(!common.is_granted(1, 3 * GIVE_UP_MS + 1), "the primary's session is gone");
        let other = Common::new();
        look(&other, 0, 0..=2000);
        look(&other, 0b10, 2200..=2800);
        for now_ms in 2800..=2000 + LEAVE_MS + 800 {
            hear(&other, 0, now_ms);
            assert!(other.era(0b10, now_ms).is_none(), "an answer after {now_ms} ms");
        }
    }

    #[test]
    fn giving_up_counts_from_when_a_wish_was_last_granted() {
        let common = Common::new();
        common.wish(0, 1, true);
        let end = 2 * GIVE_UP_MS;
        for now_ms in (0..end).step_by(200) {
            common.grant(0b10, now_ms);
            common.wishes(now_ms);
        }
        common.revoke();
        common.wishes(end);
        assert!(!common.is_granted(1, end + 1) && !common.is_granted(1, end + GIVE_UP_MS - 1));
        assert!(common.is_granted(1, end + GIVE_UP_MS));
        // Nor from a wish that was given up itself, though nobody looked meanwhile.
        common.wish(0, 1, false);
        common.wish(0, 1, true);
        assert!(!common.is_granted(1, end + GIVE_UP_MS));
    }

    #[test]
    fn a_lock_that_goes_before_the_store_was_told_makes_everything_untrue() {
        let locks = vec![(7, 1)];
        let gone = |told: &[Lock], asked_ms| Looked { told: told.to_vec(), asked_ms, heard_ms: asked_ms, ..Looked::default() };
        for (told, changes) in [(locks.as_slice(), 0), (&[], 1), (&[(8, 1)], 1)] {
            let common = Common::new();
            look(&common, 0, 10..=2010);
            common.hear(Looked { untold: 1, locks: locks.clone(), asked_ms: 2210, heard_ms: 2210, ..Looked::default() }, 0);
            common.hear(gone(told, 2410), 0);
            let given = look(&common, 0, 2610..=6010);
            assert_eq!(given.is_some(), changes == 0, "{told:?}");
            assert_eq!(run_errands(&common), changes, "{told:?}");
            assert!(look(&common, 0, 6210..=6210).is_some(), "{told:?}");
        }
    }

    #[test]
    fn what_a_lost_weir_may_have_left_running_is_asked_for_when_it_sends_nothing_more() {
        let common = Common::new();
        look(&common, 0, 10..=2010);
        common.hear(Looked { untold: 1, locks: vec![(7, 1)], asked_ms: 2210, heard_ms: 2210, ..Looked::default() }, 0);
        assert!(!common.has_orphans(), "it lives");
        common.hear(Looked { asked_ms: 2410, heard_ms: 2450, ..Looked::default() }, 0);
        let from_ms = 2450 + LINGER_MS;
        look(&common, 0, 2610..=from_ms - 1);
        assert!(common.has_orphans() && !common.asks_what_runs(from_ms - 1) && common.asks_what_runs(from_ms));
        let saw = |asked_ms, running: &[u32]| Looked {
            asked_ms,
            heard_ms: asked_ms,
            running: Some(running.to_vec()),
            ..Looked::default()
        };
        common.hear(saw(from_ms, &[5]), 0);
        assert_eq!((common.orphans(), common.has_orphans()), (vec![5], true));
        common.hear(saw(from_ms + 200, &[6]), 0);
        assert!(!common.has_orphans() && !common.asks_what_runs(from_ms + 201));
    }

    #[test]
    fn what_may_have_come_and_gone_between_two_looks_makes_everything_untrue() {
        for (asked_ms, heard_ms, changes) in [(2210, 2210, 0), (2910, 3309, 0), (2910, 3310, 1), (3310, 3310, 1)] {
            let common = Common::new();
            look(&common, 0, 10..=2010);
            common.hear(Looked { asked_ms, heard_ms, ..Looked::default() }, 0);
            assert_eq!(run_errands(&common), changes, "asked after {asked_ms} ms, heard after {heard_ms} ms");
        }
    }
}
