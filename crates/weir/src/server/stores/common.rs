//! What all workers of a Weir share of the stores: errands from other threads, and what Weirs tell each other past a store that one of them
//! cannot reach. The primary is the place where they meet (`fence`): whoever writes can reach it.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use weir_policy::cache::{Member, Slot};

/// The worker that runs what no worker in particular has to.
pub const FIRST_WORKER: u8 = 0;

/// Workers there may be.
const WORKERS_MAX: usize = 256;

/// Hosts, each a bit.
const HOSTS: usize = 64;

/// For so long after a look at the primary answers may be given from the store.
pub const LEASE_MS: u64 = 1000;

/// A writer that no store and no primary can be told of waits this long at most.
pub const GIVE_UP_MS: u64 = 10_000;

/// What a thread wants a worker to tell the store.
pub enum Errand {
    /// These have changed unseen.
    Change(Vec<Slot>),
    /// The end of a write that this worker had raised, and that may have been carried out.
    Settle(Vec<Slot>),
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
    /// Since when there is a wish, by host; 0: there is none.
    wished_since_ms: Box<[AtomicU64]>,
    /// Hosts at which all other Weirs have stopped to rely on what they find.
    granted: AtomicU64,
    /// Hosts of which some Weir has said on the primary that it commits without their knowing.
    untold: AtomicU64,
    /// Until then nobody can commit so without our having heard of it.
    clear_until_ms: AtomicU64,
    /// Another number whenever some of that may have been missed.
    era: AtomicU64,
    /// Hosts the log knows to be out of reach.
    logged: AtomicU64,
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
            untold: AtomicU64::new(0),
            clear_until_ms: AtomicU64::new(0),
            era: AtomicU64::new(1),
            logged: AtomicU64::new(0),
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
        if matches!(errand, Errand::Change(_)) {
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
        let word = &self.wishes[usize::from(worker)];
        match is_wished {
            true => word.fetch_or(bit, Ordering::SeqCst),
            false if word.load(Ordering::Relaxed) & bit != 0 => word.fetch_and(!bit, Ordering::SeqCst),
            false => 0,
        };
    }

    /// Hosts that some worker wishes the others to be told of.
    pub fn wishes(&self, now_ms: u64) -> u64 {
        let wishes = self.wishes.iter().fold(0, |all, word| all | word.load(Ordering::SeqCst));
        for (host, since) in self.wished_since_ms.iter().enumerate() {
            match wishes & (1 << host) {
                0 => since.store(0, Ordering::SeqCst),
                _ => drop(since.compare_exchange(0, now_ms.max(1), Ordering::SeqCst, Ordering::SeqCst)),
            }
        }
        wishes
    }

    /// Whether a writer may commit though the host knows nothing of it.
    pub fn is_granted(&self, host: usize, now_ms: u64) -> bool {
        let since = self.wished_since_ms[host % HOSTS].load(Ordering::SeqCst);
        self.granted.load(Ordering::SeqCst) & (1 << (host % HOSTS)) != 0 || (since > 0 && now_ms >= since + GIVE_UP_MS)
    }

    /// What the primary's locks say: hosts whose stamps all others have stopped to rely on.
    pub fn grant(&self, granted: u64) {
        self.granted.store(granted, Ordering::SeqCst);
    }

    /// What was heard of others when the primary was asked at that time.
    pub fn hear(&self, untold: u64, asked_ms: u64) {
        let has_lapsed = asked_ms >= self.clear_until_ms.load(Ordering::SeqCst);
        if has_lapsed || self.untold.swap(untold, Ordering::SeqCst) != untold {
            self.untold.store(untold, Ordering::SeqCst);
            self.era.fetch_add(1, Ordering::SeqCst);
        }
        self.clear_until_ms.store(asked_ms + LEASE_MS, Ordering::SeqCst);
    }

    /// The present era, if what these hosts say may be relied upon.
    pub fn era(&self, hosts: u64, now_ms: u64) -> Option<u64> {
        let era = self.era.load(Ordering::SeqCst);
        let is_clear = now_ms < self.clear_until_ms.load(Ordering::SeqCst) && self.untold.load(Ordering::SeqCst) & hosts == 0;
        (is_clear && self.changes.load(Ordering::SeqCst) == 0).then_some(era)
    }

    /// Whether the log has yet to be told that a host is out of reach, or back.
    pub fn is_news(&self, host: usize, is_up: bool) -> bool {
        let bit = 1 << (host % HOSTS);
        let before =
            if is_up { self.logged.fetch_and(!bit, Ordering::SeqCst) } else { self.logged.fetch_or(bit, Ordering::SeqCst) };
        (before & bit != 0) == is_up
    }

    /// The same for the primary.
    pub fn is_news_of_primary(&self, is_looked: bool) -> bool {
        self.is_looked.swap(is_looked, Ordering::SeqCst) != is_looked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_store_says_is_relied_upon_while_nobody_commits_past_it() {
        let common = Common::new();
        assert_eq!(common.era(1, 5), None, "the primary was not asked yet");
        common.hear(0, 10);
        let first = common.era(1, 20);
        assert!(first.is_some() && common.era(1, 10 + LEASE_MS).is_none());
        common.hear(0b10, 30);
        assert!(common.era(0b10, 31).is_none() && common.era(0b1, 31).is_some_and(|era| Some(era) != first));
        common.hear(0, 40);
        let second = common.era(1, 41);
        common.hear(0, 50);
        assert_eq!(common.era(1, 51), second, "nothing has happened");
        common.hear(0, 50 + 2 * LEASE_MS);
        assert_ne!(common.era(1, 51 + 2 * LEASE_MS), second, "something may have happened unheard");
        common.tell(0, Errand::Change(vec![1]));
        assert_eq!(common.era(1, 51 + 2 * LEASE_MS), None);
    }

    #[test]
    fn a_writer_waits_for_the_others_or_gives_up_waiting() {
        let common = Common::new();
        common.wish(3, 1, true);
        assert_eq!((common.wishes(100), common.is_granted(1, 101)), (0b10, false));
        assert!(common.is_granted(1, 100 + GIVE_UP_MS) && !common.is_granted(0, 100 + GIVE_UP_MS));
        common.grant(0b10);
        assert!(common.is_granted(1, 101));
        common.wish(3, 1, false);
        assert_eq!(common.wishes(200), 0);
    }
}
