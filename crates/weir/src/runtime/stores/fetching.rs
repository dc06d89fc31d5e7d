//! Fetches results. Waking a host is the main cost, so requests that come while one is under way go together after its reply; they wait
//! `memqcache_timeout` at most.

use super::{Digest, ReplyPurpose, StoreEndpoint, StoreLane, UNDER_WAY_MAX, WorkerStores};
use std::cell::RefCell;
use std::rc::Rc;
use weir_io::reactor::TaskId;
use weir_session::query_cache::result_store::{StoreFetch, StoreFetchState, digest_of};
use weir_wire::store_protocol::{StoreReplyKind, StoreRequest};

const TOGETHER_MAX: usize = 64;

/// Bytes of answers per question: a worker takes in a reply as a whole.
const REPLY_BYTES_MAX: usize = 32 << 20;

pub(crate) fn together_max(answer_bytes_max: usize) -> usize {
    (REPLY_BYTES_MAX / answer_bytes_max.max(1)).clamp(1, TOGETHER_MAX)
}

impl WorkerStores {
    /// `None`: the host is out of reach or overloaded.
    pub(crate) fn begin_fetch(&self, key: &[u8], task: TaskId, now_ms: u64) -> Option<Rc<StoreFetch>> {
        self.now_ms.set(now_ms);
        let digest = digest_of(key);
        let shelf = &self.shelves[self.home_of(&digest)];
        if !shelf.can_take() {
            return None;
        }
        let fetch =
            Rc::new(StoreFetch { key: key.into(), at_ms: now_ms, digest, task, state: RefCell::new(StoreFetchState::Waits) });
        shelf.wanted.borrow_mut().push_back(fetch.clone());
        self.woken.borrow_mut().push(shelf.task.get());
        Some(fetch)
    }

    pub(crate) fn home_of(&self, digest: &Digest) -> usize {
        if self.shelves.len() == 1 { 0 } else { self.ring.host_of(&self.answer_key(digest)) }
    }

    /// Asks for the wanted keys of a host, unless a question is under way. In a cluster each key goes to its own node.
    pub fn ask_for_wanted(&self, at: usize) {
        let shelf = &self.shelves[at];
        if shelf.is_cluster() {
            for read in shelf.wanted.take() {
                self.get(at, vec![read]);
            }
            return;
        }
        if shelf.is_asked.get() || shelf.wanted.borrow().is_empty() {
            return;
        }
        let reads: Vec<Rc<StoreFetch>> = {
            let mut wanted = shelf.wanted.borrow_mut();
            let count = wanted.len().min(self.together_max);
            wanted.drain(..count).collect()
        };
        shelf.is_asked.set(true);
        self.get(at, reads);
    }

    fn get(&self, at: usize, reads: Vec<Rc<StoreFetch>>) {
        let keys: Vec<Vec<u8>> = reads.iter().map(|read| self.answer_key(&read.digest)).collect();
        let Some(lane) = keys.first().map(|key| self.shelves[at].lane_of(key)) else { return };
        self.say(at, lane, StoreRequest::Get(&keys), StoreReplyKind::Values(keys.clone()), ReplyPurpose::CachedResults(reads));
    }

    pub(crate) fn answered(&self, at: usize, reads: Vec<Rc<StoreFetch>>, values: Vec<Option<Vec<u8>>>) {
        for (read, value) in reads.iter().zip(values) {
            self.end(read, StoreFetchState::Answered(value));
        }
        self.shelves[at].is_asked.set(false);
    }

    pub(crate) fn unanswered(&self, at: usize, reads: &[Rc<StoreFetch>]) {
        reads.iter().for_each(|read| self.end(read, StoreFetchState::Failed));
        self.shelves[at].is_asked.set(false);
    }

    pub(crate) fn give_up_wanted(&self, at: usize) {
        let wanted: Vec<Rc<StoreFetch>> = self.shelves[at].wanted.take().into();
        self.unanswered(at, &wanted);
    }

    /// Ends reads not asked for in time: the host is slow.
    pub fn expire_wanted(&self, at: usize) {
        let is_late = |read: &mut Rc<StoreFetch>| self.now_ms.get() > read.at_ms + self.timeout_ms;
        while let Some(read) = self.shelves[at].wanted.borrow_mut().pop_front_if(is_late) {
            self.end(&read, StoreFetchState::Failed);
        }
    }

    fn end(&self, fetch: &StoreFetch, state: StoreFetchState) {
        *fetch.state.borrow_mut() = state;
        self.woken.borrow_mut().push(fetch.task);
    }
}

impl StoreEndpoint {
    pub(crate) fn can_take(&self) -> bool {
        let is_busy = |lane: &StoreLane| lane.sent.borrow().len() >= UNDER_WAY_MAX;
        self.is_up.get() && self.wanted.borrow().len() < UNDER_WAY_MAX && !self.lanes.borrow().iter().any(is_busy)
    }
}
