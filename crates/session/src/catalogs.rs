//! The catalogs of the databases in use, shared by all threads. A session that changes a database says so here, and
//! `catalog_watch` reads it anew.
//!
//! A catalog is known by its edition, a number never given twice. Edition 0 means that nothing is known, or that something has
//! changed since: statements with names go to the primary then. So a statement pays one look at a number, and never waits.

use crate::follow::Follow;
use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;
use weir_catalog::{Catalog, Hidden};

/// Number of a database's catalog.
pub type Edition = u64;

/// Nothing is known.
pub const UNKNOWN: Edition = 0;

/// After so many times that a connection had to forget the draws of others, Weir assumes that nobody asks for draws.
const LESSONS: u32 = 1000;

/// A task that waits: its worker and its number there.
pub type Waiter = (u8, u32);

/// One database, and Weir's knowledge of it.
pub struct Database {
    pub name: Arc<str>,
    /// When a client first named it.
    pub named_at: Instant,
    first_try: FirstTry,
    edition: AtomicU64,
    current: ArcSwapOption<Catalog>,
    /// Ways that may leave something which no text shows: by the catalog, and more while it is not known or out of date.
    hidden: AtomicU8,
    recalls: Recalls,
    /// Moves whenever something may have changed.
    changes: AtomicU64,
    usage: Usage,
    pub report: Mutex<Report>,
    /// How far its log was taken in.
    pub follow: Follow,
    marks: Marks,
}

/// The first try to read a database.
struct FirstTry {
    /// Nobody has tried yet.
    is_due: AtomicBool,
    /// Sessions that wait until somebody has.
    waiting: Mutex<Vec<Waiter>>,
}

/// Questions for draws from sequences in a database.
struct Recalls {
    /// Some session has asked for its draws, or prepared a text that does.
    were_seen: AtomicBool,
    /// How often connections are still to forget until one such session has come.
    lessons: AtomicU32,
}

/// Users of a database.
#[derive(Default)]
struct Usage {
    /// Sessions that use it.
    sessions: AtomicU32,
    /// A task looks after it.
    is_watched: AtomicBool,
    /// Somebody wants the database without connections.
    is_wanted_empty: AtomicBool,
    /// User of the last login: the server is asked as him.
    last_user: Mutex<Option<Arc<str>>>,
}

/// A database's marks, as they were last seen.
#[derive(Default)]
struct Marks {
    values: [Mutex<String>; 4],
    /// One number of all of them; 0: none was seen.
    print: AtomicU64,
}

/// A value that is another one when something has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Definitions, as far as the catalog has them.
    Definitions,
    /// Other things that results hang on: columns, rights, roles.
    Rights,
    /// Defaults of sessions.
    Defaults,
    /// The database itself: another one may have its name.
    Identity,
}

/// Facts about it for operators.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Times it was read as a whole, and for how long the last time.
    pub reads: u64,
    pub read_ms: u64,
    /// Time that the last look for changes took.
    pub look_ms: u64,
    /// The user who reads it.
    pub read_as: String,
    /// The user of Weir's own looks who may not, and the number of the reading of passwords at that time.
    pub refused: Option<(String, u64)>,
    /// Why it could not be read the last time.
    pub error: Option<String>,
}

fn print_of(mark: Mark, value: &str) -> u64 {
    foldhash::quality::FixedState::with_seed(mark as u64).hash_one(value)
}

impl Database {
    fn new(name: &Arc<str>, now: Instant) -> Database {
        Database {
            name: name.clone(),
            named_at: now,
            first_try: FirstTry { is_due: AtomicBool::new(true), waiting: Mutex::default() },
            edition: AtomicU64::new(UNKNOWN),
            current: ArcSwapOption::empty(),
            hidden: AtomicU8::new(Hidden::ASSUMED.and(Hidden::SEQUENCES).bits()),
            recalls: Recalls { were_seen: AtomicBool::new(false), lessons: AtomicU32::new(LESSONS) },
            changes: AtomicU64::new(0),
            usage: Usage::default(),
            report: Mutex::default(),
            follow: Follow::default(),
            marks: Marks::default(),
        }
    }

    /// The edition that is known now; `UNKNOWN` if nothing may be relied upon.
    #[inline]
    pub fn edition(&self) -> Edition {
        self.edition.load(Ordering::Acquire)
    }

    /// The catalog last read, current or not.
    pub fn catalog(&self) -> Option<Arc<Catalog>> {
        self.current.load_full()
    }

    /// Ways that may leave something which no text shows, as far as is known.
    #[inline]
    pub fn hidden(&self) -> Hidden {
        Hidden::of_bits(self.hidden.load(Ordering::Acquire))
    }

    /// True if something may ask for draws from sequences (`currval`, `lastval`), as far as is known or nobody can know yet.
    #[inline]
    pub fn recalls(&self) -> bool {
        let has_asked = self.recalls.were_seen.load(Ordering::Relaxed) || self.hidden().meets(Hidden::RECALLS);
        has_asked || self.recalls.lessons.load(Ordering::Relaxed) > 0
    }

    /// A connection has forgotten the draws of others.
    pub fn note_forgotten(&self) {
        let less = |lessons: u32| lessons.checked_sub(1);
        // There may be none left.
        let _ = self.recalls.lessons.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    pub fn note_recalls(&self) {
        self.recalls.were_seen.store(true, Ordering::Relaxed);
    }

    fn hides(&self, more: Hidden) {
        self.hidden.fetch_or(more.bits(), Ordering::SeqCst);
    }

    /// It could not be read.
    pub fn note_unreadable(&self) {
        if self.current.load().is_none() {
            self.hidden.store(Hidden::ASSUMED.and(Hidden::SEQUENCES).bits(), Ordering::SeqCst);
        }
    }

    /// True if nobody has tried to read it yet; if so, `waiter` is woken when somebody has (see `tried`).
    pub fn is_untried(&self, waiter: Waiter) -> bool {
        if !self.first_try.is_due.load(Ordering::Acquire) {
            return false;
        }
        let mut waiting = self.first_try.waiting.lock();
        // The task that tries to read it looks for waiters after it has noted that it has.
        let is_untried = self.first_try.is_due.load(Ordering::Acquire);
        if is_untried && !waiting.contains(&waiter) {
            waiting.push(waiter);
        }
        is_untried
    }

    /// Somebody has tried to read it. Returns the waiters for that.
    pub fn tried(&self) -> Vec<Waiter> {
        self.first_try.is_due.store(false, Ordering::Release);
        std::mem::take(&mut *self.first_try.waiting.lock())
    }

    /// How often something may have changed, as far as was seen here.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Something may have changed: until it has been read anew nothing is relied upon.
    pub fn note_change(&self) {
        // In this order: `publish` looks at the changes after it has stored its edition.
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.edition.store(UNKNOWN, Ordering::SeqCst);
        self.hides(Hidden::ASSUMED.and(Hidden::SEQUENCES));
    }

    /// Brings the catalog into force that was read after `changes` changes, unless there were more since. True: it is in force.
    pub fn publish(&self, edition: Edition, catalog: Option<Arc<Catalog>>, changes: u64) -> bool {
        if let Some(catalog) = catalog {
            // First of all: a reader of the edition must find its catalog.
            self.current.store(Some(catalog));
        }
        let hidden = self.current.load().as_ref().map_or(Hidden::ASSUMED.and(Hidden::SEQUENCES), |catalog| catalog.hidden());
        self.hidden.store(hidden.bits(), Ordering::SeqCst);
        self.edition.store(edition, Ordering::SeqCst);
        let is_current = self.changes() == changes;
        if !is_current {
            self.edition.store(UNKNOWN, Ordering::SeqCst);
            self.hides(Hidden::ASSUMED.and(Hidden::SEQUENCES));
        }
        is_current
    }

    /// Notes a mark. True: it is another one than when it was seen last.
    pub fn is_another(&self, mark: Mark, value: &str) -> bool {
        let mut known = self.marks.values[mark as usize].lock();
        let is_other = !known.is_empty() && *known != value;
        if *known != value {
            // Weirs before the same servers must find the same.
            let before = if known.is_empty() { 0 } else { print_of(mark, &known) };
            self.marks.print.fetch_xor(before ^ print_of(mark, value), Ordering::SeqCst);
        }
        value.clone_into(&mut known);
        is_other
    }

    /// A number for all marks as they were seen last: the same in each Weir that has seen the same.
    pub fn print(&self) -> u64 {
        self.marks.print.load(Ordering::SeqCst)
    }

    /// Nothing shall be connected to it that serves no session.
    pub fn want_empty(&self) {
        self.usage.is_wanted_empty.store(true, Ordering::SeqCst);
        self.follow.leave();
    }

    pub fn is_wanted_empty(&self) -> bool {
        self.usage.is_wanted_empty.load(Ordering::SeqCst)
    }

    /// Nobody looks after it any more. Its next watch reads all of it, so that nothing of the catalog is of use until then.
    pub fn close(&self) {
        self.usage.is_wanted_empty.store(false, Ordering::SeqCst);
        self.edition.store(UNKNOWN, Ordering::SeqCst);
        self.hides(Hidden::ASSUMED.and(Hidden::SEQUENCES));
        if !self.has_sessions() {
            self.current.store(None);
        }
        self.usage.is_watched.store(false, Ordering::SeqCst);
    }

    /// True if this call began the watch of it.
    pub fn open(&self) -> bool {
        !self.usage.is_watched.swap(true, Ordering::SeqCst)
    }

    /// True if somebody looks after it.
    pub fn is_watched(&self) -> bool {
        self.usage.is_watched.load(Ordering::SeqCst)
    }

    pub fn has_sessions(&self) -> bool {
        self.usage.sessions.load(Ordering::SeqCst) > 0
    }

    /// Whom the server is asked as.
    pub fn user(&self) -> Option<Arc<str>> {
        self.usage.last_user.lock().clone()
    }
}

/// Counts a session among those of its database while it lives.
pub struct Visit(Arc<Database>);

impl Visit {
    pub fn begin(database: &Arc<Database>, user: &Arc<str>) -> Visit {
        *database.usage.last_user.lock() = Some(user.clone());
        database.usage.sessions.fetch_add(1, Ordering::SeqCst);
        Visit(database.clone())
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.0.usage.sessions.fetch_sub(1, Ordering::SeqCst);
    }
}

/// All databases that clients have named.
#[derive(Default)]
pub struct Catalogs {
    databases: Mutex<BTreeMap<Arc<str>, Arc<Database>>>,
    editions: AtomicU64,
}

impl Catalogs {
    pub fn database(&self, name: &Arc<str>, now: Instant) -> Arc<Database> {
        self.databases.lock().entry(name.clone()).or_insert_with(|| Arc::new(Database::new(name, now))).clone()
    }

    /// Forgets a database that only the caller holds: a client made it up.
    pub fn forget(&self, database: &Arc<Database>) {
        const OWN: usize = 2;
        let mut databases = self.databases.lock();
        if Arc::strong_count(database) <= OWN && !database.is_watched() {
            databases.remove(&database.name);
        }
    }

    /// Forgets the databases that nothing else holds, and returns them.
    pub fn forget_unheld(&self) -> Vec<Arc<Database>> {
        let is_unheld = |database: &Arc<Database>| Arc::strong_count(database) == 1 && !database.is_watched();
        let mut databases = self.databases.lock();
        let gone: Vec<_> = databases.values().filter(|database| is_unheld(database)).cloned().collect();
        gone.iter().for_each(|database| drop(databases.remove(&database.name)));
        gone
    }

    pub fn all(&self) -> Vec<Arc<Database>> {
        self.databases.lock().values().cloned().collect()
    }

    pub fn next_edition(&self) -> Edition {
        self.editions.fetch_add(1, Ordering::Relaxed) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_before_a_change_is_not_relied_upon() {
        let catalogs = Catalogs::default();
        let database = catalogs.database(&"d".into(), Instant::now());
        assert_eq!(database.edition(), UNKNOWN);
        let seen = database.changes();
        let edition = catalogs.next_edition();
        assert!(database.publish(edition, Some(Arc::default()), seen));
        assert_eq!(database.edition(), edition);
        database.note_change();
        let changed = Hidden::ASSUMED.and(Hidden::SEQUENCES);
        assert_eq!((database.edition(), database.hidden()), (UNKNOWN, changed));
        assert!(!database.publish(catalogs.next_edition(), None, seen), "it was read before the change");
        assert_eq!((database.edition(), database.hidden()), (UNKNOWN, changed));
        assert!(database.publish(catalogs.next_edition(), None, database.changes()));
        assert_eq!(database.hidden(), Hidden::NONE);
    }

    #[test]
    fn who_waits_for_the_first_reading_is_woken_once() {
        let database = Catalogs::default().database(&"d".into(), Instant::now());
        assert!(database.is_untried((0, 1)) && database.is_untried((0, 1)) && database.is_untried((1, 1)));
        assert_eq!(database.tried(), [(0, 1), (1, 1)]);
        assert!(!database.is_untried((0, 2)));
        assert_eq!(database.tried(), []);
    }

    #[test]
    fn nothing_of_a_database_is_kept_that_nobody_uses() {
        let catalogs = Catalogs::default();
        let (used, unused) =
            (catalogs.database(&"used".into(), Instant::now()), catalogs.database(&"unused".into(), Instant::now()));
        let visit = Visit::begin(&used, &"joe".into());
        for database in [&used, &unused] {
            assert!(database.open() && database.publish(catalogs.next_edition(), Some(Arc::default()), 0));
            assert!(catalogs.forget_unheld().is_empty(), "it is looked after");
            database.close();
        }
        assert!(used.catalog().is_some() && unused.catalog().is_none());
        drop((unused, visit));
        assert_eq!(catalogs.forget_unheld().iter().map(|database| &*database.name).collect::<Vec<_>>(), ["unused"]);
        assert_eq!(catalogs.all().len(), 1);
    }

    #[test]
    fn a_database_that_a_client_made_up_is_forgotten() {
        let catalogs = Catalogs::default();
        let (one, other) = (catalogs.database(&"one".into(), Instant::now()), catalogs.database(&"other".into(), Instant::now()));
        let visit = Visit::begin(&other, &"joe".into());
        assert!(other.has_sessions());
        catalogs.forget(&one);
        catalogs.forget(&other);
        assert_eq!(catalogs.all().len(), 1);
        drop(visit);
        assert!(!other.has_sessions());
    }
}
