//! A worker's side of the result stores, memcached or Redis. Weirs do not coordinate through a store, and trust its bytes only as far as
//! these prove themselves (`StoredResult`). `store_conn` moves the bytes, with a task per host.
//!
//! A key is at one host (`HashRing`). A host that is gone, slow or full costs misses.

mod fetching;
mod lanes;
mod proving;

pub use lanes::StoreLane;
pub use weir_session::query_cache::result_store::Digest;
use weir_session::query_cache::result_store::{PendingAnswer, ResultStore, StoreFetch};

use foldhash::fast::RandomState;
use std::cell::{Cell, RefCell, RefMut};
use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_cache::{HashRing, LookupPolicy, SeenQueries, ShardMap, StoredResult};
use weir_config::hosts::{StoreHost, hosts};
use weir_config::{CacheConfig, MemqcacheMethod, StoreConfig};
use weir_io::reactor::{NO_TASK, TaskId};
use weir_wire::store_protocol::{StoreDialect, StoreReply, StoreReplyKind, StoreRequest, is_moved, is_moving};

/// Longest value read. Answers near it are not stored.
pub const VALUE_BYTES_MAX: usize = 8 << 20;

/// Time of a request not written yet.
const UNSENT_MS: u64 = u64::MAX;

/// Questions under way at a host, beyond which it is too slow to be asked.
const UNDER_WAY_MAX: usize = 20_000;

/// Unsent bytes beyond which no result is added: the host is slower than its writers.
const UNSENT_BYTES_MAX: usize = 16 << 20;

enum ReplyPurpose {
    CachedResults(Vec<Rc<StoreFetch>>),
    Put,
    Hello,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreReplyResult {
    Fine,
    Missed(String),
    Moved,
    /// The host is of no use, in its own words.
    Refused(String),
}

/// A request under way; replies come in order.
pub struct SentStoreRequest {
    pub(crate) expect: StoreReplyKind,
    /// Time of writing; `UNSENT_MS` until then.
    pub(crate) at_ms: u64,
    purpose: ReplyPurpose,
}

#[derive(Debug)]
pub struct StoreKnowledge {
    /// Random number of this run of Weir.
    instance: u64,
    seen: Arc<SeenQueries>,
    hasher: RandomState,
    /// Hosts logged as out of reach, a bit for each.
    logged: AtomicU64,
    /// Hosts logged as taking no answers.
    full: AtomicU64,
}

impl StoreKnowledge {
    pub fn new() -> Arc<StoreKnowledge> {
        let instance = u64::from_le_bytes(crate::random());
        let (logged, full) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(StoreKnowledge { instance, seen: Arc::default(), hasher: RandomState::default(), logged, full })
    }

    /// True if a host's loss or return is still to be logged; marks it as logged.
    pub fn is_news(&self, host: usize, is_up: bool) -> bool {
        let bit = 1 << (host % u64::BITS as usize);
        if is_up && self.logged.load(Ordering::Relaxed) & bit == 0 {
            return false;
        }
        let before =
            if is_up { self.logged.fetch_and(!bit, Ordering::SeqCst) } else { self.logged.fetch_or(bit, Ordering::SeqCst) };
        let is_news = (before & bit != 0) == is_up;
        if is_news && is_up {
            self.full.fetch_and(!bit, Ordering::SeqCst);
        }
        is_news
    }

    /// True once, until the host was lost and is back.
    pub fn is_news_that_full(&self, host: usize) -> bool {
        let bit = 1 << (host % u64::BITS as usize);
        self.full.fetch_or(bit, Ordering::SeqCst) & bit == 0
    }
}

pub struct StoreEndpoint {
    pub(crate) host: StoreHost,
    lanes: RefCell<Rc<[StoreLane]>>,
    /// Map of a Redis Cluster.
    shards: RefCell<Option<ShardMap>>,
    pub(crate) task: Cell<TaskId>,
    is_up: Cell<bool>,
    /// Reads not asked for yet.
    wanted: RefCell<VecDeque<Rc<StoreFetch>>>,
    is_asked: Cell<bool>,
}

pub struct WorkerStores {
    pub(crate) shelves: Vec<StoreEndpoint>,
    pub(crate) common: Arc<StoreKnowledge>,
    pub(crate) timeout_ms: u64,
    pub(crate) config: StoreConfig,
    pub(crate) dialect: StoreDialect,
    /// Other Weirs have the same keys: an answer is proven by the primary's log.
    pub(crate) is_shared: bool,
    prefix: String,
    ring: HashRing,
    expire_seconds: u64,
    together_max: usize,
    /// Milliseconds since the start of the proxy, as the host tasks last knew.
    now_ms: Cell<u64>,
    /// Host tasks with something to write, and sessions' tasks whose wait is over.
    woken: RefCell<Vec<TaskId>>,
    lookup_policy: RefCell<LookupPolicy>,
    pending: RefCell<VecDeque<PendingAnswer>>,
    pending_bytes: Cell<usize>,
}

impl WorkerStores {
    /// `None`: answers are kept in Weir's memory, or nowhere.
    pub fn new(config: &CacheConfig, common: &Arc<StoreKnowledge>) -> Option<Rc<WorkerStores>> {
        let store = config.store()?;
        // The configuration is checked.
        let hosts = hosts(&store.hosts, store.port).ok()?;
        let shelf = |host: &StoreHost| StoreEndpoint {
            host: host.clone(),
            lanes: RefCell::new(Rc::new([StoreLane::default()])),
            shards: RefCell::default(),
            task: Cell::new(NO_TASK),
            is_up: Cell::new(false),
            wanted: RefCell::default(),
            is_asked: Cell::new(false),
        };
        let namespace = &config.namespace;
        let prefix =
            if config.follows_wal { format!("{namespace}:a:") } else { format!("{namespace}:{:016x}:", common.instance) };
        Some(Rc::new(WorkerStores {
            shelves: hosts.iter().map(shelf).collect(),
            common: common.clone(),
            timeout_ms: config.timeout_ms,
            config: store.clone(),
            dialect: if config.method == MemqcacheMethod::Redis { StoreDialect::Redis } else { StoreDialect::Memcached },
            is_shared: config.follows_wal,
            prefix,
            ring: HashRing::new(&hosts),
            expire_seconds: config.expire_ms.div_ceil(1000),
            together_max: fetching::together_max(config.answer_bytes_max),
            now_ms: Cell::new(0),
            woken: RefCell::default(),
            lookup_policy: RefCell::new(LookupPolicy::new(common.seen.clone())),
            pending: RefCell::default(),
            pending_bytes: Cell::new(0),
        }))
    }

    fn answer_key(&self, digest: &Digest) -> Vec<u8> {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut key = Vec::with_capacity(self.prefix.len() + 2 * digest.len());
        key.extend_from_slice(self.prefix.as_bytes());
        key.extend(digest.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]));
        key
    }

    pub fn take_woken(&self) -> Vec<TaskId> {
        self.woken.take()
    }

    pub fn set_now(&self, now_ms: u64) {
        self.now_ms.set(now_ms);
    }
}

impl ResultStore for WorkerStores {
    fn is_shared(&self) -> bool {
        self.is_shared
    }

    fn hash_of(&self, key: &[u8]) -> u64 {
        self.common.hasher.hash_one(key)
    }

    fn lookup_policy(&self) -> RefMut<'_, LookupPolicy> {
        self.lookup_policy.borrow_mut()
    }

    fn fetch(&self, key: &[u8], task: TaskId, now_ms: u64) -> Option<Rc<StoreFetch>> {
        self.begin_fetch(key, task, now_ms)
    }

    /// Stores an answer at any later time: it carries its proof. True if it is on its way.
    fn put(&self, digest: &Digest, kept: &StoredResult<'_>) -> bool {
        let (at, key) = (self.home_of(digest), self.answer_key(digest));
        let shelf = &self.shelves[at];
        let lane = shelf.lane_of(&key);
        let has_room = || shelf.lanes()[lane].unsent_bytes() < UNSENT_BYTES_MAX;
        let is_taken = shelf.can_take() && kept.bytes.len() + kept.key.len() < VALUE_BYTES_MAX / 2 && has_room();
        if is_taken {
            let bytes = kept.write();
            let ask = StoreRequest::Set { key: &key, bytes: &bytes, seconds: self.expire_seconds };
            self.say(at, lane, ask, StoreReplyKind::Done, ReplyPurpose::Put);
        }
        is_taken
    }

    fn await_proof(&self, pending: PendingAnswer) {
        self.wait_for_proof(pending);
    }
}

/// Methods of the host tasks.
impl WorkerStores {
    fn greet(&self, at: usize) {
        let StoreConfig { user, password, database, .. } = &self.config;
        for lane in 0..self.shelves[at].lanes().len() {
            let hello = |ask: StoreRequest<'_>| self.say(at, lane, ask, StoreReplyKind::Done, ReplyPurpose::Hello);
            if self.dialect == StoreDialect::Memcached || !password.is_empty() {
                hello(StoreRequest::LogIn { user: user.as_bytes(), password: password.as_bytes() });
            }
            if self.dialect == StoreDialect::Redis && !self.shelves[at].is_cluster() {
                hello(StoreRequest::Select(*database));
            }
        }
        if self.is_greeted(at) {
            self.shelves[at].is_up.set(true);
        }
    }

    fn is_greeted(&self, at: usize) -> bool {
        self.shelves[at].lanes().iter().all(|lane| lane.sent.borrow().is_empty())
    }

    pub fn lose(&self, at: usize) {
        let shelf = &self.shelves[at];
        shelf.is_up.set(false);
        for lane in shelf.lanes().iter() {
            lane.out.borrow_mut().clear();
            for sent in lane.sent.take() {
                if let ReplyPurpose::CachedResults(reads) = sent.purpose {
                    self.unanswered(at, &reads);
                }
            }
        }
        self.give_up_wanted(at);
    }

    pub fn is_up(&self, at: usize) -> bool {
        self.shelves[at].is_up.get()
    }

    /// Takes in the reply to the oldest request.
    pub fn hear(&self, at: usize, sent: SentStoreRequest, told: StoreReply) -> StoreReplyResult {
        let is_cluster = self.shelves[at].is_cluster();
        match (sent.purpose, told) {
            (ReplyPurpose::CachedResults(reads), StoreReply::Values(values)) => self.answered(at, reads, values),
            (purpose, StoreReply::Refused(text)) => {
                if let ReplyPurpose::CachedResults(reads) = &purpose {
                    self.unanswered(at, reads);
                }
                return match purpose {
                    _ if is_cluster && is_moved(&text) => StoreReplyResult::Moved,
                    _ if is_cluster && is_moving(&text) => StoreReplyResult::Fine,
                    ReplyPurpose::Put => StoreReplyResult::Missed(text),
                    ReplyPurpose::CachedResults(_) | ReplyPurpose::Hello => StoreReplyResult::Refused(text),
                };
            }
            // The last of the greetings.
            (ReplyPurpose::Hello, _) if self.is_greeted(at) => self.shelves[at].is_up.set(true),
            (ReplyPurpose::CachedResults(reads), _) => self.unanswered(at, &reads),
            (ReplyPurpose::Put | ReplyPurpose::Hello, _) => {}
        }
        StoreReplyResult::Fine
    }

    fn say(&self, at: usize, lane: usize, ask: StoreRequest<'_>, expect: StoreReplyKind, purpose: ReplyPurpose) {
        let shelf = &self.shelves[at];
        let lanes = shelf.lanes();
        self.dialect.write(ask, &mut lanes[lane].out.borrow_mut());
        lanes[lane].sent.borrow_mut().push_back(SentStoreRequest { expect, at_ms: UNSENT_MS, purpose });
        self.woken.borrow_mut().push(shelf.task.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_cache::{ResultDependencies, ResultValidity};
    use weir_session::query_cache::result_store::digest_of;

    /// With one host, which is there.
    fn stores(answer_bytes_max: usize, follows_wal: bool) -> Rc<WorkerStores> {
        let store = StoreConfig { hosts: "127.0.0.1".into(), port: 11211, ..StoreConfig::default() };
        let config = CacheConfig {
            enabled: true,
            method: MemqcacheMethod::Memcached,
            memcached: store,
            namespace: "shop".into(),
            answer_bytes_max,
            follows_wal,
            ..CacheConfig::default()
        };
        let stores = WorkerStores::new(&config, &StoreKnowledge::new()).unwrap();
        stores.shelves[0].is_up.set(true);
        stores
    }

    #[test]
    fn keys_are_those_of_other_weirs_only_where_the_log_proves_answers() {
        let key = |follows_wal| stores(1000, follows_wal).answer_key(&digest_of(b"key"));
        assert_eq!(key(true), key(true));
        assert_ne!(key(false), key(false));
        assert!([key(true), key(false)].iter().all(|key| key.starts_with(b"shop:")));
    }

    #[test]
    fn a_host_that_takes_its_time_is_given_no_more_answers_than_memory_should_hold() {
        let (stores, bytes) = (stores(1 << 20, false), vec![0; 1 << 20]);
        let put = || {
            let why = ResultValidity::Words { deps: ResultDependencies::of_pairs(vec![(1, 1)]), round: 1 };
            stores.put(&digest_of(b"key"), &StoredResult { took_us: 1, why, key: b"key", bytes: &bytes })
        };
        let count = (0..100).take_while(|_| put()).count();
        assert!(count > 1, "{count} answers");
        let lane = &stores.shelves[0].lanes()[0];
        let unsent = lane.out.borrow().len();
        assert!(unsent < UNSENT_BYTES_MAX + 2 * bytes.len(), "{unsent} bytes");
        // On its way, but not taken by the socket.
        lane.out.borrow_mut().clear();
        lane.note_written(unsent);
        assert!(!put());
        lane.note_written(0);
        assert!(put());
    }

    #[test]
    fn of_large_answers_fewer_are_asked_for_together() {
        for (answer_bytes_max, together) in [(1024, 64), (1 << 20, 32), (1 << 30, 1), (0, 64)] {
            assert_eq!(stores(answer_bytes_max, false).together_max, together, "answers of {answer_bytes_max} bytes");
        }
    }
}
