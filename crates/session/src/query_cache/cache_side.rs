//! A session's side of the cache of answers. `traffic::query_cache` works with it.

use crate::query_cache::cached_results::{CacheFill, Key, WHO_BYTES};
use crate::query_cache::result_store::StoreFetch;
use crate::session_state::client_settings::SettingValues;
use crate::session_state::server_defaults::ServerDefaults;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use weir_cache::ResultDependencies;

/// A session's part of the keys of answers; none: it goes without the cache.
pub(crate) struct CacheKeyPrefix {
    /// The parts of the hash.
    pub(crate) settings: Arc<SettingValues>,
    pub(crate) base: Arc<ServerDefaults>,
    pub(crate) hash: Option<[u8; WHO_BYTES]>,
}

/// A session's side of it.
#[derive(Default)]
pub struct SessionCacheState {
    /// User and settings, as a key begins with them, and the settings it was made for. None: the session goes without.
    pub(crate) who: Option<Box<CacheKeyPrefix>>,
    /// The meaning of names without a schema may have changed since the session's settings were certain.
    pub(crate) is_adrift: bool,
    pub(crate) capture: Option<Box<AnswerCapture>>,
    /// The waits of its statement; most statements have none.
    waits: Option<Box<CacheWaitState>>,
    /// When a statement went to a server without the store's being asked.
    pub(crate) spared_at: Option<Instant>,
}

/// The things that a statement waits for before it may be answered, or goes to a server.
#[derive(Default)]
pub struct CacheWaitState {
    /// For another's answer, until then at most.
    pub(crate) until: Option<Instant>,
    /// Until an answer is known to be fresh.
    pub(crate) fresh: Option<FreshnessWait>,
    /// The question to the store.
    pub(crate) fetch: Option<TimedStoreFetch>,
    /// The lookup_policy has let the statement in, which waits until an answer of the store's would be fresh.
    pub(crate) is_let_in: bool,
}

impl SessionCacheState {
    /// The waits of the statement, of which there is one more.
    pub(crate) fn waits(&mut self) -> &mut CacheWaitState {
        self.waits.get_or_insert_default()
    }

    /// The same, if it has any.
    #[inline]
    pub(crate) fn waits_now(&mut self) -> Option<&mut CacheWaitState> {
        self.waits.as_deref_mut()
    }

    /// Its statement waits for another's answer, until then at most.
    #[inline]
    pub(crate) fn waits_until(&self) -> Option<Instant> {
        self.waits.as_ref().and_then(|waits| waits.until)
    }

    /// Its statement waits until an answer is known to be fresh.
    #[inline]
    pub(crate) fn wait(&self) -> Option<FreshnessWait> {
        self.waits.as_ref().and_then(|waits| waits.fresh)
    }

    /// It waits for that no more.
    #[inline]
    pub(crate) fn end_wait(&mut self) {
        self.waits_now().into_iter().for_each(|waits| waits.fresh = None);
    }

    /// It waits for nothing more.
    #[inline]
    pub(crate) fn forget_waits(&mut self) {
        self.waits = None;
    }
}

/// A read of the store under way, or over.
pub struct TimedStoreFetch {
    pub(crate) fetch: Rc<StoreFetch>,
    pub(crate) since: Instant,
}

/// An answer on its way that is to be stored.
pub struct AnswerCapture {
    pub(crate) key: Key,
    pub(crate) deps: ResultDependencies,
    pub(crate) flight: Option<CacheFill>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) bytes_max: usize,
    /// Its question is on its way to a server.
    pub(crate) since: Option<Instant>,
    pub(crate) is_whole: bool,
}

/// A statement's wait for the log to be taken in.
#[derive(Clone, Copy, Debug)]
pub struct FreshnessWait {
    /// The round that must be covered.
    pub(crate) round: u64,
    pub(crate) until: Instant,
}
