//! The sharded tables of a database, as `catalog_watch` read them last.

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_shard::{EngineReadiness, ShardTables};

/// Facts that pass by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineLack {
    /// Weir has it follow a change of the database.
    Follows,
    /// Shard 0 has another primary since the last look.
    NotLookedAt,
    /// A statement changes columns or rights of a spread table, or has done so since the last look.
    ColumnsChange,
    /// The catalog is read anew, and with it the isolation of transactions.
    DefaultsUnread,
    /// The catalog is read anew, and with it what statements may leave.
    CatalogUnread,
    /// An index of a spread table was made or renamed since the last look.
    IndexesChange,
    /// A function or trigger that may read sharded tables was defined since the last look.
    ReadersUnread,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineStanding {
    Ready,
    Waits(EngineLack),
    /// It will not be ready by itself, and texts have other plans from now on.
    Unready,
}

/// Changes of one kind by statements that several shards carry out, and how far looks know them.
#[derive(Default)]
pub struct ChangeCount {
    /// Under way, and ended.
    changing: AtomicU64,
    changed: AtomicU64,
    /// The number of changes that had ended when the last look began without one under way.
    looked_at: AtomicU64,
}

impl ChangeCount {
    pub fn change_begins(&self) {
        self.changing.fetch_add(1, Ordering::AcqRel);
    }

    pub fn change_ends(&self) {
        self.changed.fetch_add(1, Ordering::AcqRel);
        self.changing.fetch_sub(1, Ordering::AcqRel);
    }

    /// True if something may differ from what the last look found.
    pub fn is_doubtful(&self) -> bool {
        self.changing.load(Ordering::Acquire) > 0
            || self.changed.load(Ordering::Acquire) != self.looked_at.load(Ordering::Acquire)
    }

    /// For a look that begins: the changes that it will know. `None`: one is under way.
    pub fn changes_before_look(&self) -> Option<u64> {
        let changed = self.changed.load(Ordering::Acquire);
        (self.changing.load(Ordering::Acquire) == 0).then_some(changed)
    }

    /// The look that knows so many changes has published what it found.
    pub fn note_looked(&self, changes: Option<u64>) {
        changes.into_iter().for_each(|changes| self.looked_at.store(changes, Ordering::Release));
    }
}

#[derive(Default)]
pub struct KnownSharding {
    current: ArcSwapOption<ShardTables>,
    /// Raised with each change of `current`; 0 before the first.
    edition: AtomicU64,
    /// Changes of columns.
    pub columns: ChangeCount,
    /// New indexes.
    pub indexes: ChangeCount,
    /// Definitions of functions and triggers that may read sharded tables, and how many of them the last look has read.
    readers_defined: AtomicU64,
    readers_read: AtomicU64,
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

    /// Functions or triggers that may read sharded tables were defined. The database's edition is unknown before.
    pub fn readers_change(&self) {
        self.readers_defined.fetch_add(1, Ordering::AcqRel);
    }

    /// For a look that begins, before it asks for the edition: the definitions that it will know.
    pub fn readers_before_look(&self) -> u64 {
        self.readers_defined.load(Ordering::Acquire)
    }

    /// The look that knows so many definitions has published what it found.
    pub fn note_readers_read(&self, defined: u64) {
        self.readers_read.store(defined, Ordering::Release);
    }

    /// True if `current` may lack functions or triggers.
    #[inline]
    pub fn has_unread_readers(&self) -> bool {
        self.readers_defined.load(Ordering::Acquire) != self.readers_read.load(Ordering::Acquire)
    }

    /// Can the engine be asked on this node, the primary of shard 0?
    pub fn engine_on(&self, primary: Option<u16>) -> EngineStanding {
        let tables = self.current.load();
        match tables.as_ref().map(|tables| tables.engine()) {
            Some(EngineReadiness::DefinesOnly | EngineReadiness::Behind(_)) => EngineStanding::Unready,
            Some(EngineReadiness::Follows(_)) => EngineStanding::Waits(EngineLack::Follows),
            Some(EngineReadiness::Ready { node }) if primary.is_some_and(|primary| primary != *node) => {
                EngineStanding::Waits(EngineLack::NotLookedAt)
            }
            Some(EngineReadiness::Ready { .. }) if self.columns.is_doubtful() => EngineStanding::Waits(EngineLack::ColumnsChange),
            // Without any knowledge of the tables no text is planned.
            Some(EngineReadiness::Ready { .. }) | None => EngineStanding::Ready,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_is_asked_where_it_is_ready_and_waited_for_where_it_will_be() {
        let known = KnownSharding::default();
        let standing = |engine: EngineReadiness, primary: Option<u16>| {
            known.publish(ShardTables::default().with_engine(engine));
            known.engine_on(primary)
        };
        assert_eq!(standing(EngineReadiness::DefinesOnly, Some(0)), EngineStanding::Unready);
        assert_eq!(standing(EngineReadiness::Behind("rights".into()), Some(0)), EngineStanding::Unready);
        assert_eq!(standing(EngineReadiness::Follows("rights".into()), Some(0)), EngineStanding::Waits(EngineLack::Follows));
        let ready = || EngineReadiness::Ready { node: 2 };
        assert_eq!(standing(ready(), Some(0)), EngineStanding::Waits(EngineLack::NotLookedAt));
        assert_eq!((standing(ready(), Some(2)), standing(ready(), None)), (EngineStanding::Ready, EngineStanding::Ready));
        known.columns.change_begins();
        assert_eq!(standing(ready(), Some(2)), EngineStanding::Waits(EngineLack::ColumnsChange));
    }

    #[test]
    fn columns_are_in_doubt_until_a_look_that_began_behind_the_change() {
        let known = ChangeCount::default();
        assert!(!known.is_doubtful());
        let before = known.changes_before_look();
        known.change_begins();
        assert_eq!(known.changes_before_look(), None, "a look meanwhile knows nothing");
        known.note_looked(before);
        assert!(known.is_doubtful());
        known.change_ends();
        known.note_looked(before);
        assert!(known.is_doubtful(), "the look may have read before the change");
        known.note_looked(known.changes_before_look());
        assert!(!known.is_doubtful());
    }
}
