//! The sharded tables of a database, as `catalog_watch` read them last.

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_shard::ShardTables;

#[derive(Default)]
pub struct KnownSharding {
    current: ArcSwapOption<ShardTables>,
    /// Raised with each change of `current`; 0 before the first.
    edition: AtomicU64,
    /// Why `current` is unknown or may be old.
    error: Mutex<Option<String>>,
}

impl KnownSharding {
    /// Number of the tables last read; 0 if none are known.
    #[inline]
    pub fn edition(&self) -> u64 {
        self.edition.load(Ordering::Acquire)
    }

    pub fn tables(&self) -> Option<Arc<ShardTables>> {
        self.current.load_full()
    }

    /// True in doubt.
    pub fn may_have_tables(&self) -> bool {
        self.current.load().as_ref().is_none_or(|tables| !tables.is_empty())
    }

    /// True if the tables differ from those known. One thread publishes.
    pub fn publish(&self, tables: ShardTables) -> bool {
        if self.current.load().as_deref() == Some(&tables) {
            return false;
        }
        self.current.store(Some(Arc::new(tables)));
        self.edition.fetch_add(1, Ordering::AcqRel);
        true
    }

    /// True if the error is news.
    pub fn note_error(&self, error: Option<String>) -> bool {
        let mut known = self.error.lock();
        let is_news = *known != error && error.is_some();
        *known = error;
        is_news
    }

    pub fn error(&self) -> Option<String> {
        self.error.lock().clone()
    }

    /// The database is not watched any more: its tables may change unseen.
    pub fn forget(&self) {
        self.current.store(None);
    }
}
