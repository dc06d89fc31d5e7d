//! Asking for answers. What several sessions want of a host at the same time goes in one question, each stamp once: what a host costs is
//! being woken up, and counting what is asked of it. While a question is under way, those that come wait for its reply and then go together;
//! for `memqcache_timeout` at most.

use super::{Digest, Lane, Purpose, Shelf, Stores, UNDER_WAY_MAX, Whose};
use crate::io::reactor::TaskId;
use sha2::{Digest as _, Sha256};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use weir_policy::cache::{Slot, Stamp};
use weir_wire::store::{Ask, Expect, Value};

/// Answers asked for in one question.
const TOGETHER_MAX: usize = 64;

/// Bytes of answers that are asked for together: a reply is taken in as a whole, by each worker.
const REPLY_BYTES_MAX: usize = 32 << 20;

/// Answers that are asked for together, if none is larger than that.
pub(super) fn together_max(answer_bytes_max: usize) -> usize {
    (REPLY_BYTES_MAX / answer_bytes_max.max(1)).clamp(1, TOGETHER_MAX)
}

/// A read: an answer and the stamps it hangs on, in one exchange with each host.
pub struct Fetch {
    /// What is asked for. In the store it stands under its digest.
    key: Box<[u8]>,
    /// When it was wanted, in milliseconds.
    at_ms: u64,
    pub(super) digest: Digest,
    task: TaskId,
    /// Where the answer is asked for, and where each stamp is.
    home: usize,
    slots: Box<[(Slot, usize)]>,
    left: Cell<usize>,
    has_failed: Cell<bool>,
    answer: RefCell<Option<Vec<u8>>>,
    stamps: RefCell<Vec<Option<Stamp>>>,
    /// What others had to say when it was asked for.
    era: u64,
    hosts: u64,
}

impl Fetch {
    pub fn is_over(&self) -> bool {
        self.left.get() == 0
    }

    /// The answer, and the stamps; `None` if a host could not be asked. To be called once.
    pub fn found(&self) -> Option<Found> {
        (!self.has_failed.get()).then(|| Found { answer: self.answer.take(), stamps: self.stamps.take() })
    }

    pub fn has_failed(&self) -> bool {
        self.has_failed.get()
    }

    /// Whether it is for this key, and its stamps for these slots.
    pub fn is_for(&self, key: &[u8], slots: &[Slot]) -> bool {
        *self.key == *key && self.slots.iter().map(|(slot, _)| slot).eq(slots)
    }

    /// The host at which each stamp is.
    pub fn hosts(&self) -> impl Iterator<Item = usize> {
        self.slots.iter().map(|(_, host)| *host)
    }

    /// How many keys a host is asked for.
    fn keys_at(&self, host: usize) -> usize {
        usize::from(self.home == host) + self.slots.iter().filter(|(_, at)| *at == host).count()
    }

    fn take_stamp(&self, slot: Slot, at: usize, stamp: Option<&Stamp>) {
        let mut stamps = self.stamps.borrow_mut();
        let places = self.slots.iter().zip(stamps.iter_mut());
        places.filter(|((own, host), _)| (*own, *host) == (slot, at)).for_each(|(_, place)| *place = stamp.cloned());
    }
}

/// What a store said: an answer, if it has one, and the stamps of the slots in their order.
pub struct Found {
    pub answer: Option<Vec<u8>>,
    pub stamps: Vec<Option<Stamp>>,
}

/// A question for answers: stamps first, each once, then an answer for each read that wants it.
pub(super) struct Question {
    reads: Vec<Rc<Fetch>>,
    stamps: Vec<Slot>,
}

/// The digest of a key, under which its answer is kept.
pub fn digest_of(key: &[u8]) -> Digest {
    Sha256::digest(key).into()
}

fn stamp_of(value: Option<Value>, lane: &Lane) -> Option<Stamp> {
    value.and_then(|value| Stamp::parse(&lane.untagged(value).bytes))
}

impl Stores {
    /// Asks for an answer and the stamps of its slots. `None`: nothing can be had from the store now.
    pub fn fetch(&self, key: &[u8], slots: &[Slot], task: TaskId, now_ms: u64) -> Option<Rc<Fetch>> {
        self.now_ms.set(now_ms);
        let digest = digest_of(key);
        let home = self.home_of(&digest);
        let place = |slot: &Slot| {
            let hosts = self.hosts_of(*slot);
            (*slot, if hosts.contains(&home) { home } else { hosts.start })
        };
        let slots: Box<[(Slot, usize)]> = slots.iter().map(place).collect();
        let hosts = slots.iter().fold(1 << home, |hosts: u64, (_, at)| hosts | 1 << at);
        let asked = self.shelves.iter().enumerate().filter(|(at, _)| hosts & (1 << at) != 0);
        if !asked.clone().all(|(_, shelf)| shelf.can_take()) {
            return None;
        }
        let fetch = Rc::new(Fetch {
            key: key.into(),
            at_ms: now_ms,
            digest,
            task,
            home,
            stamps: RefCell::new(vec![None; slots.len()]),
            slots,
            left: Cell::new(0),
            has_failed: Cell::new(false),
            answer: RefCell::default(),
            era: self.common.era(hosts, now_ms)?,
            hosts,
        });
        // In a cluster each key is asked for where it lies.
        let parts = |(at, shelf): (usize, &Shelf)| if shelf.is_cluster() { fetch.keys_at(at) } else { 1 };
        fetch.left.set(asked.clone().map(parts).sum());
        for (_, shelf) in asked {
            shelf.wanted.borrow_mut().push_back(fetch.clone());
            self.woken.borrow_mut().push(shelf.task.get());
        }
        Some(fetch)
    }

    /// Whether what was read may be given out: nobody has said meanwhile that he commits without the store's knowing.
    pub fn may_give(&self, fetch: &Fetch, now_ms: u64) -> bool {
        self.common.era(fetch.hosts, now_ms) == Some(fetch.era)
    }

    /// A stamp was read: it may have marks, or be one after such.
    pub fn sighted(&self, fetch: &Fetch, place: usize, stamp: &Stamp) {
        let Some((slot, at)) = fetch.slots.get(place) else { return };
        let order = self.shelves[*at].ours.holds.borrow_mut().sighted(*slot, stamp, self.now_ms.get());
        self.order(*at, Whose::Ours, order);
    }

    /// The host at which an answer lies.
    pub(super) fn home_of(&self, digest: &Digest) -> usize {
        if self.shelves.len() == 1 { 0 } else { self.ring.host_of(&self.answer_key(digest)) }
    }

    /// Puts what is wanted of a host into a question, unless one is under way.
    pub fn ask_for_wanted(&self, at: usize) {
        let shelf = &self.shelves[at];
        if shelf.is_cluster() {
            return self.ask_one_by_one(at);
        }
        if shelf.is_asked.get() || shelf.wanted.borrow().is_empty() {
            return;
        }
        let reads: Vec<Rc<Fetch>> = {
            let mut wanted = shelf.wanted.borrow_mut();
            let count = wanted.len().min(self.together_max);
            wanted.drain(..count).collect()
        };
        let mut stamps: Vec<Slot> = Vec::new();
        for (slot, _) in reads.iter().flat_map(|read| read.slots.iter()).filter(|(_, host)| *host == at) {
            if !stamps.contains(slot) {
                stamps.push(*slot);
            }
        }
        let mut keys: Vec<Vec<u8>> = stamps.iter().map(|slot| self.slot_key(*slot)).collect();
        keys.extend(reads.iter().filter(|read| read.home == at).map(|read| self.answer_key(&read.digest)));
        shelf.is_asked.set(true);
        self.get(at, keys, Purpose::Answers(Question { reads, stamps }));
    }

    fn ask_one_by_one(&self, at: usize) {
        let wanted = self.shelves[at].wanted.take();
        for read in wanted {
            for (slot, _) in read.slots.iter().filter(|(_, host)| *host == at) {
                let question = Question { reads: vec![read.clone()], stamps: vec![*slot] };
                self.get(at, vec![self.slot_key(*slot)], Purpose::Answers(question));
            }
            if read.home == at {
                let key = self.answer_key(&read.digest);
                self.get(at, vec![key], Purpose::Answers(Question { reads: vec![read], stamps: Vec::new() }));
            }
        }
    }

    fn get(&self, at: usize, keys: Vec<Vec<u8>>, purpose: Purpose) {
        let Some(lane) = keys.first().map(|key| self.shelves[at].lane_of(key)) else { return };
        self.dialect.write(Ask::Get(&keys), &mut self.shelves[at].lanes()[lane].out.borrow_mut());
        self.note_sent(at, lane, Expect::Values(keys), purpose);
    }

    /// Looks at a slot's stamp for a hold.
    pub(super) fn look_at(&self, at: usize, key: Vec<u8>, purpose: Purpose) {
        self.get(at, vec![key], purpose);
    }

    /// The reply to a question.
    pub(super) fn answered(&self, at: usize, lane: &Lane, question: Question, values: Vec<Option<Value>>) {
        let Question { reads, stamps } = question;
        let mut values = values.into_iter();
        for (slot, value) in stamps.iter().zip(values.by_ref()) {
            let stamp = stamp_of(value, lane);
            reads.iter().for_each(|read| read.take_stamp(*slot, at, stamp.as_ref()));
        }
        // In a cluster a stamp's question is another one than its answer's.
        let is_whole = !self.shelves[at].is_cluster();
        for read in reads {
            if read.home == at && (is_whole || stamps.is_empty()) {
                *read.answer.borrow_mut() = values.next().flatten().map(|value| value.bytes);
            }
            self.end(&read, !self.is_up(at));
        }
        self.is_free(at);
    }

    /// It will not be answered.
    pub(super) fn unanswered(&self, at: usize, question: &Question) {
        question.reads.iter().for_each(|read| self.end(read, true));
        self.is_free(at);
    }

    /// Nobody is asked any more, nor will be.
    pub(super) fn give_up_wanted(&self, at: usize) {
        self.shelves[at].wanted.take().iter().for_each(|read| self.end(read, true));
        self.is_free(at);
    }

    /// Reads that have waited for too long to be asked for: the host takes its time for others.
    pub(super) fn expire_wanted(&self, at: usize) {
        let is_late = |read: &mut Rc<Fetch>| self.now_ms.get() > read.at_ms + self.timeout_ms;
        while let Some(read) = self.shelves[at].wanted.borrow_mut().pop_front_if(is_late) {
            self.end(&read, true);
        }
    }

    fn is_free(&self, at: usize) {
        self.shelves[at].is_asked.set(false);
    }

    fn end(&self, fetch: &Fetch, has_failed: bool) {
        // One part that fails is enough: the others are not waited for.
        let left = if has_failed { 0 } else { fetch.left.get().saturating_sub(1) };
        fetch.has_failed.set(fetch.has_failed.get() || has_failed);
        fetch.left.set(left);
        if fetch.is_over() {
            self.woken.borrow_mut().push(fetch.task);
        }
    }
}

impl Shelf {
    /// Whether it can be asked for answers, and be given some.
    pub(super) fn can_take(&self) -> bool {
        let is_busy = |lane: &Lane| lane.sent.borrow().len() >= UNDER_WAY_MAX;
        self.is_up.get() && self.wanted.borrow().len() < UNDER_WAY_MAX && !self.lanes.borrow().iter().any(is_busy)
    }
}
