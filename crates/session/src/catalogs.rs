//! The catalogs of the databases in use, shared by all threads. A session that changes a database says so here, and
//! `catalog_watch` reads it anew.
//!
//! A catalog is known by its edition, a number never given twice. Edition 0 means that nothing is known, or that something has
//! changed since: statements with names go to the primary then. So a statement pays one look at a number, and never waits.

use crate::query_cache::log_progress::WalProgress;
use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use weir_cache::{Slot, TableVersions};
use weir_catalog::{Catalog, HiddenUses};
use weir_config::Config;

/// Number of a database's catalog.
pub type Edition = u64;

/// Nothing is known.
pub const UNKNOWN: Edition = 0;

/// After so many times that a connection had to forget the draws of others, Weir assumes that nobody asks for draws.
const LESSONS: u32 = 1000;

/// Time for which a catalog is kept without a watch: jobs come every five minutes, and a catalog takes megabytes.
pub const KEPT_FOR: Duration = Duration::from_secs(360);

/// Catalogs kept without a watch.
pub const KEPT_MAX: usize = 100;

/// Bytes of catalogs kept without a watch, all of them together.
pub const KEPT_BYTES_MAX: usize = 64 << 20;

/// The first sessions of a watch wait for its first look if the look before took no longer: it is likely to be over before they give up.
const QUICK_MS: u64 = 500;

/// A task that waits: its worker and its number there.
pub type Waiter = (u8, u32);

/// One database, and Weir's knowledge of it.
pub struct KnownDatabase {
    pub name: Arc<str>,
    first_try: FirstTry,
    /// Of its changes.
    slot: OnceLock<Slot>,
    edition: AtomicU64,
    current: ArcSwapOption<Catalog>,
    /// Ways that may leave something which no text shows: by the catalog, and more while it is not known or out of date.
    hidden: AtomicU8,
    recalls: DrawQuestions,
    /// Moves whenever something may have changed.
    changes: AtomicU64,
    usage: DatabaseUsage,
    pub report: Mutex<CatalogReport>,
    /// How far its log was taken in.
    pub follow: WalProgress,
    marks: ChangeMarks,
    kept: Mutex<Option<RetainedReading>>,
}

/// A catalog as it was read, with the facts by which a look tells whether it is still true.
#[derive(Clone, Debug)]
pub struct CatalogReading {
    pub edition: Edition,
    pub catalog: Arc<Catalog>,
    /// Memory that the catalog takes, about.
    pub bytes: usize,
    pub fingerprint: String,
    pub config: Arc<Config>,
    pub read_at: Instant,
}

/// The reading of a watch that has ended, for the next one.
struct RetainedReading {
    reading: CatalogReading,
    /// The primary at that time: another one may have definitions of its own under the numbers of those that it lacks.
    primary: Option<u16>,
    since: Instant,
}

/// The first look of a watch.
struct FirstTry {
    /// It is not over yet, and worth a wait.
    is_due: AtomicBool,
    waiting: Mutex<CatalogWaiters>,
}

struct CatalogWaiters {
    /// When the watch began.
    since: Instant,
    /// Sessions that wait for the first look.
    waiters: Vec<Waiter>,
}

/// Questions for draws from sequences in a database.
struct DrawQuestions {
    /// Some session has asked for its draws, or prepared a text that does.
    were_seen: AtomicBool,
    /// How often connections are still to forget until one such session has come.
    lessons: AtomicU32,
}

/// Users of a database.
#[derive(Default)]
struct DatabaseUsage {
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
struct ChangeMarks {
    values: [Mutex<String>; 4],
    /// One number of all of them; 0: none was seen.
    print: AtomicU64,
}

/// A value that is another one when something has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeMark {
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
pub struct CatalogReport {
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

fn print_of(mark: ChangeMark, value: &str) -> u64 {
    foldhash::quality::FixedState::with_seed(mark as u64).hash_one(value)
}

impl KnownDatabase {
    fn new(name: &Arc<str>, now: Instant) -> KnownDatabase {
        KnownDatabase {
            name: name.clone(),
            first_try: FirstTry {
                is_due: AtomicBool::new(true),
                waiting: Mutex::new(CatalogWaiters { since: now, waiters: Vec::new() }),
            },
            slot: OnceLock::new(),
            edition: AtomicU64::new(UNKNOWN),
            current: ArcSwapOption::empty(),
            hidden: AtomicU8::new(HiddenUses::ASSUMED.and(HiddenUses::SEQUENCES).bits()),
            recalls: DrawQuestions { were_seen: AtomicBool::new(false), lessons: AtomicU32::new(LESSONS) },
            changes: AtomicU64::new(0),
            usage: DatabaseUsage::default(),
            report: Mutex::default(),
            follow: WalProgress::default(),
            marks: ChangeMarks::default(),
            kept: Mutex::default(),
        }
    }

    /// The slot of all that it holds.
    #[inline]
    pub fn slot(&self, versions: &TableVersions) -> Slot {
        *self.slot.get_or_init(|| versions.of_database(&self.name))
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
    pub fn hidden(&self) -> HiddenUses {
        HiddenUses::of_bits(self.hidden.load(Ordering::Acquire))
    }

    /// True if something may ask for draws from sequences (`currval`, `lastval`), as far as is known or nobody can know yet.
    #[inline]
    pub fn recalls(&self) -> bool {
        let has_asked = self.recalls.were_seen.load(Ordering::Relaxed) || self.hidden().meets(HiddenUses::RECALLS);
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

    fn hides(&self, more: HiddenUses) {
        self.hidden.fetch_or(more.bits(), Ordering::SeqCst);
    }

    /// It could not be read.
    pub fn note_unreadable(&self) {
        if self.current.load().is_none() {
            self.hidden.store(HiddenUses::ASSUMED.and(HiddenUses::SEQUENCES).bits(), Ordering::SeqCst);
        }
    }

    /// When its watch began, or the database was first named.
    pub fn watched_since(&self) -> Instant {
        self.first_try.waiting.lock().since
    }

    /// True if the first look of its watch is not over; if so, `waiter` is woken when it is (see `tried`).
    pub fn is_untried(&self, waiter: Waiter) -> bool {
        if !self.first_try.is_due.load(Ordering::Acquire) {
            return false;
        }
        let mut waiting = self.first_try.waiting.lock();
        // The task that looks asks for waiters after it has noted that it has looked.
        let is_untried = self.first_try.is_due.load(Ordering::Acquire);
        if is_untried && !waiting.waiters.contains(&waiter) {
            waiting.waiters.push(waiter);
        }
        is_untried
    }

    /// A look is over. Returns the waiters for that.
    pub fn tried(&self) -> Vec<Waiter> {
        self.first_try.is_due.store(false, Ordering::Release);
        std::mem::take(&mut self.first_try.waiting.lock().waiters)
    }

    /// The next watch has its first sessions wait for its first look, unless that is likely to take long or to fail.
    fn arm(&self, has_kept: bool) {
        let is_worth_it = {
            let report = self.report.lock();
            report.error.is_none() && QUICK_MS >= if has_kept { report.look_ms } else { report.read_ms }
        };
        self.first_try.is_due.store(is_worth_it, Ordering::Release);
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
        self.hides(HiddenUses::ASSUMED.and(HiddenUses::SEQUENCES));
    }

    /// Brings the catalog into force that was read after `changes` changes, unless there were more since. True: it is in force.
    pub fn publish(&self, edition: Edition, catalog: Option<Arc<Catalog>>, changes: u64) -> bool {
        if let Some(catalog) = catalog {
            // First of all: a reader of the edition must find its catalog.
            self.current.store(Some(catalog));
        }
        let hidden =
            self.current.load().as_ref().map_or(HiddenUses::ASSUMED.and(HiddenUses::SEQUENCES), |catalog| catalog.hidden());
        self.hidden.store(hidden.bits(), Ordering::SeqCst);
        self.edition.store(edition, Ordering::SeqCst);
        let is_current = self.changes() == changes;
        if !is_current {
            self.edition.store(UNKNOWN, Ordering::SeqCst);
            self.hides(HiddenUses::ASSUMED.and(HiddenUses::SEQUENCES));
        }
        is_current
    }

    /// Notes a mark. True: it is another one than when it was seen last.
    pub fn is_another(&self, mark: ChangeMark, value: &str) -> bool {
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

    /// Nobody looks after it any more. Nothing of the catalog is of use until the next watch, which looks whether `reading` is still true.
    pub fn close(&self, reading: Option<CatalogReading>, primary: Option<u16>, now: Instant) {
        let is_emptied = self.usage.is_wanted_empty.swap(false, Ordering::SeqCst);
        self.edition.store(UNKNOWN, Ordering::SeqCst);
        self.hides(HiddenUses::ASSUMED.and(HiddenUses::SEQUENCES));
        if !self.has_sessions() {
            self.current.store(None);
        }
        // One that somebody wanted empty is dropped.
        let kept = reading.filter(|_| !is_emptied).map(|reading| RetainedReading { reading, primary, since: now });
        self.arm(kept.is_some());
        *self.kept.lock() = kept;
        self.usage.is_watched.store(false, Ordering::SeqCst);
    }

    /// True if this call began the watch of it.
    pub fn open(&self, now: Instant) -> bool {
        if self.is_watched() {
            return false;
        }
        // A session that sees it watched reads the time behind this lock.
        let mut waiting = self.first_try.waiting.lock();
        let begins = !self.usage.is_watched.swap(true, Ordering::SeqCst);
        if begins {
            waiting.since = now;
        }
        begins
    }

    /// The reading of the watch before. It is to be looked at before it is published.
    pub fn take_kept(&self, primary: Option<u16>) -> Option<CatalogReading> {
        let kept = self.kept.lock().take()?;
        (primary.is_some() && kept.primary == primary).then_some(kept.reading)
    }

    /// Bytes of the catalog that is kept for the next watch.
    pub fn kept_bytes(&self) -> Option<usize> {
        self.kept.lock().as_ref().map(|kept| kept.reading.bytes)
    }

    /// Forgets what was kept at that time.
    fn drop_kept(&self, since: Instant) {
        if self.kept.lock().take_if(|kept| kept.since == since).is_some() {
            self.arm(false);
        }
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
pub struct DatabaseSessionGuard(Arc<KnownDatabase>);

impl DatabaseSessionGuard {
    pub fn begin(database: &Arc<KnownDatabase>, user: &Arc<str>) -> DatabaseSessionGuard {
        *database.usage.last_user.lock() = Some(user.clone());
        database.usage.sessions.fetch_add(1, Ordering::SeqCst);
        DatabaseSessionGuard(database.clone())
    }
}

impl Drop for DatabaseSessionGuard {
    fn drop(&mut self) {
        self.0.usage.sessions.fetch_sub(1, Ordering::SeqCst);
    }
}

/// All databases that clients have named.
#[derive(Default)]
pub struct DatabaseCatalogs {
    databases: Mutex<BTreeMap<Arc<str>, Arc<KnownDatabase>>>,
    editions: AtomicU64,
    /// Moves when a statement passed that may define functions.
    pub definitions: AtomicU64,
}

impl DatabaseCatalogs {
    pub fn database(&self, name: &Arc<str>, now: Instant) -> Arc<KnownDatabase> {
        self.databases.lock().entry(name.clone()).or_insert_with(|| Arc::new(KnownDatabase::new(name, now))).clone()
    }

    /// Forgets a database that only the caller holds: a client made it up.
    pub fn forget(&self, database: &Arc<KnownDatabase>) {
        const OWN: usize = 2;
        let mut databases = self.databases.lock();
        if Arc::strong_count(database) <= OWN && !database.is_watched() {
            databases.remove(&database.name);
        }
    }

    /// Forgets the databases that nothing else holds, and returns them.
    pub fn forget_unheld(&self) -> Vec<Arc<KnownDatabase>> {
        let is_unheld = |database: &Arc<KnownDatabase>| Arc::strong_count(database) == 1 && !database.is_watched();
        let mut databases = self.databases.lock();
        let gone: Vec<_> = databases.values().filter(|database| is_unheld(database)).cloned().collect();
        gone.iter().for_each(|database| drop(databases.remove(&database.name)));
        gone
    }

    /// Forgets catalogs without a watch that were kept long enough, and of the others the oldest beyond what is kept.
    pub fn shed(&self, now: Instant) {
        let of = |database: Arc<KnownDatabase>| {
            let found = database.kept.lock().as_ref().map(|kept| (kept.since, kept.reading.bytes));
            found.map(|(since, bytes)| (since, bytes, database))
        };
        let mut kept: Vec<_> = self.all().into_iter().filter_map(of).collect();
        kept.sort_by_key(|(since, ..)| std::cmp::Reverse(*since));
        let (mut count, mut total) = (0, 0_usize);
        for (since, bytes, database) in kept {
            let is_young = now.saturating_duration_since(since) < KEPT_FOR;
            if is_young && count < KEPT_MAX && total.saturating_add(bytes) <= KEPT_BYTES_MAX {
                (count, total) = (count + 1, total + bytes);
            } else {
                database.drop_kept(since);
            }
        }
    }

    pub fn all(&self) -> Vec<Arc<KnownDatabase>> {
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
        let catalogs = DatabaseCatalogs::default();
        let database = catalogs.database(&"d".into(), Instant::now());
        assert_eq!(database.edition(), UNKNOWN);
        let seen = database.changes();
        let edition = catalogs.next_edition();
        assert!(database.publish(edition, Some(Arc::default()), seen));
        assert_eq!(database.edition(), edition);
        database.note_change();
        let changed = HiddenUses::ASSUMED.and(HiddenUses::SEQUENCES);
        assert_eq!((database.edition(), database.hidden()), (UNKNOWN, changed));
        assert!(!database.publish(catalogs.next_edition(), None, seen), "it was read before the change");
        assert_eq!((database.edition(), database.hidden()), (UNKNOWN, changed));
        assert!(database.publish(catalogs.next_edition(), None, database.changes()));
        assert_eq!(database.hidden(), HiddenUses::NONE);
    }

    #[test]
    fn a_mark_is_another_one_if_it_was_seen_before_and_differs() {
        let database = DatabaseCatalogs::default().database(&"d".into(), Instant::now());
        let seen = ["a", "a", "b", "b", "a"].map(|value| database.is_another(ChangeMark::Rights, value));
        assert_eq!(seen, [false, false, true, false, true], "the first one is no change");
        assert!(!database.is_another(ChangeMark::Defaults, "b"), "each mark has its own value");
    }

    #[test]
    fn databases_with_the_same_marks_have_the_same_print_whatever_they_had_before() {
        let print = |marks: &[(ChangeMark, &str)]| {
            let database = DatabaseCatalogs::default().database(&"d".into(), Instant::now());
            for (mark, value) in marks {
                database.is_another(*mark, value);
            }
            database.print()
        };
        let same = print(&[(ChangeMark::Rights, "a"), (ChangeMark::Defaults, "b")]);
        assert_eq!(
            print(&[
                (ChangeMark::Defaults, "b"),
                (ChangeMark::Rights, "x"),
                (ChangeMark::Rights, "a"),
                (ChangeMark::Rights, "a")
            ]),
            same
        );
        for other in
            [&[(ChangeMark::Rights, "a"), (ChangeMark::Defaults, "c")], &[(ChangeMark::Rights, "b"), (ChangeMark::Defaults, "a")]]
        {
            assert_ne!(print(other), same, "{other:?}");
        }
    }

    #[test]
    fn who_waits_for_the_first_reading_is_woken_once() {
        let database = DatabaseCatalogs::default().database(&"d".into(), Instant::now());
        assert!(database.is_untried((0, 1)) && database.is_untried((0, 1)) && database.is_untried((1, 1)));
        assert_eq!(database.tried(), [(0, 1), (1, 1)]);
        assert!(!database.is_untried((0, 2)));
        assert_eq!(database.tried(), []);
    }

    fn reading(edition: Edition, bytes: usize) -> CatalogReading {
        let (fingerprint, config, read_at) = (String::new(), Arc::default(), Instant::now());
        CatalogReading { edition, catalog: Arc::default(), bytes, fingerprint, config, read_at }
    }

    #[test]
    fn the_next_watch_has_the_reading_of_the_last_one_and_its_first_sessions_wait_for_the_look_at_it() {
        let (catalogs, now) = (DatabaseCatalogs::default(), Instant::now());
        let database = catalogs.database(&"d".into(), now);
        assert!(database.open(now));
        database.tried();
        let edition = catalogs.next_edition();
        assert!(database.publish(edition, Some(Arc::default()), 0) && !database.is_untried((0, 1)));
        database.close(Some(reading(edition, 0)), Some(0), now);
        assert_eq!((database.edition(), database.catalog().is_some()), (UNKNOWN, false), "nothing is relied upon meanwhile");
        let later = now + Duration::from_secs(8);
        assert!(database.open(later) && !database.open(later + Duration::from_secs(1)));
        assert_eq!(database.watched_since(), later);
        assert!(database.is_untried((0, 1)));
        assert_eq!(database.take_kept(Some(0)).map(|reading| reading.edition), Some(edition));
        assert!(database.take_kept(Some(0)).is_none(), "it is the watch's now");
    }

    #[test]
    fn a_reading_is_not_kept_for_another_primary_or_in_a_database_that_is_to_be_dropped() {
        let now = Instant::now();
        let keeps = |wanted_empty: bool, primary: Option<u16>| {
            let database = DatabaseCatalogs::default().database(&"d".into(), now);
            assert!(database.open(now));
            if wanted_empty {
                database.want_empty();
            }
            database.close(Some(reading(1, 0)), Some(0), now);
            database.take_kept(primary).is_some()
        };
        assert_eq!([Some(0), Some(1), None].map(|primary| keeps(false, primary)), [true, false, false]);
        assert!(!keeps(true, Some(0)));
    }

    #[test]
    fn nobody_waits_for_a_look_that_is_likely_to_take_long_or_to_fail() {
        let now = Instant::now();
        let waits = |(look_ms, read_ms, error): (u64, u64, Option<&str>), kept: Option<CatalogReading>| {
            let database = DatabaseCatalogs::default().database(&"d".into(), now);
            assert!(database.open(now));
            database.tried();
            *database.report.lock() =
                CatalogReport { look_ms, read_ms, error: error.map(str::to_owned), ..CatalogReport::default() };
            database.close(kept, Some(0), now);
            assert!(database.open(now));
            database.is_untried((0, 1))
        };
        assert!(waits((5, 5000, None), Some(reading(1, 0))), "it is looked at only");
        assert!(!waits((5, 5000, None), None) && waits((5, 50, None), None), "all of it is read");
        assert!(!waits((501, 5000, None), Some(reading(1, 0))));
        assert!(!waits((5, 50, Some("refused")), Some(reading(1, 0))));
    }

    #[test]
    fn catalogs_kept_without_a_watch_are_bounded_in_time_number_and_bytes() {
        let begin = Instant::now();
        // The oldest first, one each second.
        let left = |sizes: &[usize], after: Duration| -> Vec<String> {
            let catalogs = DatabaseCatalogs::default();
            let mut now = begin;
            for (at, bytes) in sizes.iter().enumerate() {
                let database = catalogs.database(&format!("{at:03}").as_str().into(), now);
                assert!(database.open(now));
                database.close(Some(reading(1, *bytes)), Some(0), now);
                now += Duration::from_secs(1);
            }
            catalogs.shed(now + after);
            catalogs.all().iter().filter(|database| database.kept_bytes().is_some()).map(|kept| kept.name.to_string()).collect()
        };
        assert_eq!(left(&[0, 0], Duration::ZERO), ["000", "001"]);
        assert_eq!(left(&[0, 0], KEPT_FOR - Duration::from_secs(1)), [""; 0]);
        assert_eq!(left(&[0, 0], KEPT_FOR - Duration::from_secs(2)), ["001"]);
        let many = left(&[0; KEPT_MAX + 2], Duration::ZERO);
        assert_eq!((many.len(), many[0].as_str()), (KEPT_MAX, "002"));
        let half = KEPT_BYTES_MAX / 2 - 1000;
        assert_eq!(left(&[half, half, half], Duration::ZERO), ["001", "002"]);
        assert_eq!(left(&[half, KEPT_BYTES_MAX + 1, half], Duration::ZERO), ["000", "002"], "one is too large by itself");
    }

    #[test]
    fn nothing_of_a_database_is_kept_that_nobody_uses() {
        let (catalogs, now) = (DatabaseCatalogs::default(), Instant::now());
        let (used, unused) = (catalogs.database(&"used".into(), now), catalogs.database(&"unused".into(), now));
        let visit = DatabaseSessionGuard::begin(&used, &"joe".into());
        for database in [&used, &unused] {
            assert!(database.open(now) && database.publish(catalogs.next_edition(), Some(Arc::default()), 0));
            assert!(catalogs.forget_unheld().is_empty(), "it is looked after");
            database.close(None, None, now);
        }
        assert!(used.catalog().is_some() && unused.catalog().is_none());
        drop((unused, visit));
        assert_eq!(catalogs.forget_unheld().iter().map(|database| &*database.name).collect::<Vec<_>>(), ["unused"]);
        assert_eq!(catalogs.all().len(), 1);
    }

    #[test]
    fn a_database_that_a_client_made_up_is_forgotten() {
        let catalogs = DatabaseCatalogs::default();
        let (one, other) = (catalogs.database(&"one".into(), Instant::now()), catalogs.database(&"other".into(), Instant::now()));
        let visit = DatabaseSessionGuard::begin(&other, &"joe".into());
        assert!(other.has_sessions());
        catalogs.forget(&one);
        catalogs.forget(&other);
        assert_eq!(catalogs.all().len(), 1);
        drop(visit);
        assert!(!other.has_sessions());
    }
}
