//! State of a session for `query_cache`.

use crate::query_cache::cached_results::{CacheFill, Key, WHO_BYTES};
use crate::query_cache::result_store::StoreFetch;
use crate::session_state::client_settings::SettingValues;
use crate::session_state::server_defaults::ServerDefaults;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use weir_cache::ResultDependencies;

/// Session's prefix of cache keys; `hash: None`: no cache.
pub(crate) struct CacheKeyPrefix {
    pub(crate) settings: Arc<SettingValues>,
    pub(crate) base: Arc<ServerDefaults>,
    pub(crate) hash: Option<[u8; WHO_BYTES]>,
}

#[derive(Default)]
pub struct SessionCacheState {
    /// Prefix for the present settings.
    pub(crate) who: Option<Box<CacheKeyPrefix>>,
    /// The meaning of unqualified names may have changed since the settings were last certain.
    pub(crate) is_adrift: bool,
    pub(crate) capture: Option<Box<AnswerCapture>>,
    waits: Option<Box<CacheWaitState>>,
    /// When a statement skipped the store.
    pub(crate) spared_at: Option<Instant>,
}

/// The waits of a statement before it is answered or sent.
#[derive(Default)]
pub struct CacheWaitState {
    pub(crate) until: Option<Instant>,
    pub(crate) fresh: Option<FreshnessWait>,
    pub(crate) fetch: Option<TimedStoreFetch>,
    /// The lookup policy has admitted the statement.
    pub(crate) is_let_in: bool,
}

impl SessionCacheState {
    pub(crate) fn waits(&mut self) -> &mut CacheWaitState {
        self.waits.get_or_insert_default()
    }

    #[inline]
    pub(crate) fn waits_now(&mut self) -> Option<&mut CacheWaitState> {
        self.waits.as_deref_mut()
    }

    #[inline]
    pub(crate) fn waits_until(&self) -> Option<Instant> {
        self.waits.as_ref().and_then(|waits| waits.until)
    }

    #[inline]
    pub(crate) fn wait(&self) -> Option<FreshnessWait> {
        self.waits.as_ref().and_then(|waits| waits.fresh)
    }

    #[inline]
    pub(crate) fn end_wait(&mut self) {
        self.waits_now().into_iter().for_each(|waits| waits.fresh = None);
    }

    #[inline]
    pub(crate) fn forget_waits(&mut self) {
        self.waits = None;
    }
}

pub struct TimedStoreFetch {
    pub(crate) fetch: Rc<StoreFetch>,
    pub(crate) since: Instant,
}

/// An answer under way, to be stored.
pub struct AnswerCapture {
    pub(crate) key: Key,
    pub(crate) deps: ResultDependencies,
    pub(crate) flight: Option<CacheFill>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) bytes_max: usize,
    pub(crate) since: Option<Instant>,
    pub(crate) is_whole: bool,
}

/// A statement's wait for the log to be taken in.
#[derive(Clone, Copy, Debug)]
pub struct FreshnessWait {
    pub(crate) round: u64,
    pub(crate) until: Instant,
}
