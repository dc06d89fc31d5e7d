//! How far the log of a database was taken in, for all threads. Written by the task in `follower` and by `sampler`, on the first worker;
//! read whenever an answer may come from memory. Decisions are `policy::cache`'s.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weir_policy::cache::{Book, Covered, FollowError, Follower, History, Ledger, LedgerEntry, Round, Slot, Standing};

/// `behind_since` of one that has taken in all that is known of.
const NOT_BEHIND: u64 = u64::MAX;

/// One database. See the module.
#[derive(Debug)]
pub struct Follow {
    round: AtomicU64,
    asked_ms: AtomicU64,
    /// When the oldest round was asked for that is not covered.
    behind_since_ms: AtomicU64,
    /// A commit was told that no round has shown yet, and nobody has asked for one in a hurry since.
    has_news: AtomicBool,
    /// A task looks after it.
    watched: AtomicBool,
    /// It is to leave the database alone.
    unwanted: AtomicBool,
    machine: Mutex<Option<Machine>>,
    pub report: Mutex<Report>,
}

/// What operators are shown of it.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub node: Option<u16>,
    pub slot: String,
    pub plugin: &'static str,
    /// What it waits for, if it does not follow.
    pub step: &'static str,
    pub commits: u64,
    /// Times the stream was lost.
    pub breaks: u64,
    pub error: Option<String>,
}

/// The protocol, and what it acts on.
#[derive(Debug)]
struct Machine {
    follower: Follower,
    book: Book,
    /// The round after the last one that arrived.
    next: u64,
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.follower.end(self.next, &mut self.book);
    }
}

impl Default for Follow {
    fn default() -> Follow {
        Follow {
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

impl Follow {
    /// Nothing of this database is kept from now on until it is followed. True: nobody looks after it yet, and the caller must have it done.
    pub fn want(&self, database: Slot, book: impl FnOnce() -> Book) -> bool {
        if self.watched.load(Ordering::SeqCst) {
            return false;
        }
        let mut machine = self.machine.lock();
        machine.get_or_insert_with(|| {
            let mut book = book();
            Machine { follower: Follower::new(database, &mut book), book, next: 1 }
        });
        !self.watched.swap(true, Ordering::SeqCst)
    }

    pub fn is_watched(&self) -> bool {
        self.watched.load(Ordering::SeqCst)
    }

    /// Who looks after it is to leave the database alone.
    pub fn leave(&self) {
        self.unwanted.store(true, Ordering::SeqCst);
    }

    pub fn is_unwanted(&self) -> bool {
        self.unwanted.load(Ordering::SeqCst)
    }

    /// Nobody looks after it any more.
    pub fn close(&self, next: u64) {
        self.lose(next);
        self.unwanted.store(false, Ordering::SeqCst);
        self.watched.store(false, Ordering::SeqCst);
    }

    /// What is covered now. To be asked before an answer's stamps are looked at: a change is raised before it counts as covered.
    #[inline]
    pub fn covered(&self) -> Covered {
        Covered { round: self.round.load(Ordering::SeqCst), asked_ms: self.asked_ms.load(Ordering::SeqCst) }
    }

    /// Whether a wait for a round is worth it: it follows, and has not lagged for longer than that.
    pub fn is_hopeful(&self, now_ms: u64, wait_ms: u64) -> bool {
        let since = self.behind_since_ms.load(Ordering::Relaxed);
        let is_late = since != NOT_BEHIND && now_ms.saturating_sub(since) >= wait_ms;
        self.round.load(Ordering::SeqCst) > 0 && !is_late
    }

    /// A stream tells all that commits after this position.
    pub fn start(&self, history: History, position: u64, next: u64) {
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
            let done = machine.follower.commit(end, &mut machine.book);
            self.has_news.store(machine.follower.pending() > 0, Ordering::Relaxed);
            done
        });
        done.unwrap_or(Ok(()))
    }

    /// Something is not kept, perhaps since a commit was told that no round has shown. True, once for each: it is worth to ask for a round at once.
    #[inline]
    pub fn take_news(&self) -> bool {
        self.has_news.load(Ordering::Relaxed) && self.has_news.swap(false, Ordering::Relaxed)
    }

    pub fn reach(&self, position: u64) {
        self.act(|machine| machine.follower.reach(position));
    }

    /// The primary has said where it is. True: another round is needed.
    pub fn round(&self, round: &Round) -> bool {
        let is_needed = self.act(|machine| {
            machine.next = round.number + 1;
            machine.follower.round(round, &mut machine.book)
        });
        is_needed.unwrap_or(false)
    }

    pub fn redefine(&self) {
        self.act(|machine| machine.follower.redefine(&mut machine.book));
    }

    /// The stream is gone. `next` is the number of the next round that is begun.
    pub fn lose(&self, next: u64) {
        self.act(|machine| machine.follower.lose(next, &mut machine.book));
    }

    /// What it has told may have been lost on the way to the store. Who takes the stream in sees that it is away, and begins again.
    pub fn fail(&self, next: u64) {
        self.act(|machine| {
            machine.follower.lose(next, &mut machine.book);
            if let Book::Store(ledger) = &mut machine.book {
                *ledger = Ledger::default();
            }
        });
    }

    pub fn is_away(&self) -> bool {
        self.standing().is_none_or(|(standing, ..)| matches!(standing, Standing::Away))
    }

    /// How far it is, up to which position, and how many transactions it has told that may not be visible yet.
    pub fn standing(&self) -> Option<(Standing, u64, usize)> {
        let machine = self.machine.lock();
        machine.as_ref().map(|Machine { follower, .. }| (follower.standing().clone(), follower.position(), follower.pending()))
    }

    /// Does something and tells what follows from it. `None`: nobody has wanted it yet.
    fn act<T>(&self, act: impl FnOnce(&mut Machine) -> T) -> Option<T> {
        let mut machine = self.machine.lock();
        let machine = machine.as_mut()?;
        let result = act(machine);
        let covered = machine.follower.covered();
        let covered = match &mut machine.book {
            Book::Memory(_) => covered,
            Book::Store(ledger) => ledger.cover(covered),
        };
        self.publish(machine, covered);
        Some(result)
    }

    fn publish(&self, machine: &Machine, covered: Covered) {
        let withheld = if let Book::Store(ledger) = &machine.book { ledger.behind_since_ms() } else { None };
        let since = withheld.or(machine.follower.behind_since_ms());
        self.behind_since_ms.store(since.unwrap_or(NOT_BEHIND), Ordering::Relaxed);
        self.asked_ms.store(covered.asked_ms, Ordering::SeqCst);
        self.round.store(covered.round, Ordering::SeqCst);
    }

    /// What the store is to be told, in this order. `number` gives one to each write.
    pub fn take_entries(&self, number: impl FnMut() -> u64) -> Vec<LedgerEntry> {
        match self.machine.lock().as_mut().map(|machine| &mut machine.book) {
            Some(Book::Store(ledger)) => ledger.take(number),
            _ => Vec::new(),
        }
    }

    /// Asks whether the store knows of what it was told, and publishes what is covered by that. True: it knows of all.
    pub fn confirm(&self, is_known: impl FnMut(Slot, u64) -> bool) -> bool {
        let mut machine = self.machine.lock();
        let Some(machine) = machine.as_mut() else { return true };
        let Book::Store(ledger) = &mut machine.book else { return true };
        let (covered, is_done) = (ledger.confirm(is_known), ledger.is_done());
        self.publish(machine, covered);
        is_done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use weir_policy::cache::{Snapshot, Versions};

    #[test]
    fn one_that_is_forgotten_and_made_anew_keeps_nothing_out_for_ever() {
        let versions = Arc::new(Versions::new(10));
        let slot = versions.of_database("d");
        for _ in 0..2 {
            let follow = Follow::default();
            let book = || Book::Memory(versions.clone());
            assert!(follow.want(slot, book) && !follow.want(slot, book));
            assert!(versions.begin(&[slot]).is_none(), "nothing is known yet");
            let history = History { node: 0, system: 1, timeline: 1 };
            follow.start(history, 10, 1);
            let snapshot = Snapshot::parse("5:5:").unwrap();
            let round = Round { number: 1, history, position: 20, snapshot, asked_ms: 7 };
            assert!(!follow.round(&round));
            assert!(versions.begin(&[slot]).is_some());
            assert_eq!((follow.covered().round, follow.is_hopeful(10, 5), follow.is_hopeful(12, 5)), (0, false, false));
            follow.reach(20);
            assert_eq!((follow.covered(), follow.is_hopeful(100, 5)), (Covered { round: 1, asked_ms: 7 }, true));
            follow.close(2);
            assert_eq!((follow.covered().round, versions.begin(&[slot])), (0, None));
            drop(follow);
            assert!(versions.begin(&[slot]).is_some());
        }
    }

    #[test]
    fn what_may_be_lost_on_the_way_to_a_store_is_covered_by_nothing_until_the_stream_begins_anew() {
        let follow = Follow::default();
        follow.want(7, || Book::Store(Ledger::default()));
        let history = History { node: 0, system: 1, timeline: 1 };
        let round = |number| Round { number, history, position: 20, snapshot: Snapshot::parse("5:5:").unwrap(), asked_ms: 7 };
        let mut numbers = 0;
        let mut take = || {
            follow.take_entries(|| {
                numbers += 1;
                numbers
            })
        };
        for begun in 0..2 {
            assert!(follow.is_away());
            follow.start(history, 10, 1);
            follow.reach(20);
            follow.round(&round(1));
            assert!(!follow.is_away());
            assert_eq!(take(), [LedgerEntry::Raise([7].into(), begun + 1), LedgerEntry::Settle([7].into())]);
            assert_eq!((follow.covered().round, follow.confirm(|_, _| true), follow.covered().round), (0, true, 1));
            follow.fail(2);
            assert_eq!((follow.covered().round, take()), (0, Vec::new()));
        }
    }
}
