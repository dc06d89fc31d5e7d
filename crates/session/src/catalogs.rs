//! The catalogs of the databases in use, shared by all threads. Sessions note changes here, `catalog_watch` reads catalogs again.
//!
//! An edition is a number never given twice. Edition 0 means unknown or changed since: statements with names go to the primary. A
//! statement pays one atomic load and never waits.

use crate::query_cache::log_progress::WalProgress;
use crate::sharding::known_sharding::KnownSharding;
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

pub type Edition = u64;

pub const UNKNOWN: Edition = 0;

/// Times connections forget other sessions' sequence draws before Weir assumes that no session asks for draws.
const LESSONS: u32 = 1000;

/// Retention without a watch: cron jobs come every five minutes, and a catalog takes megabytes.
pub const KEPT_FOR: Duration = Duration::from_secs(360);

pub const KEPT_MAX: usize = 100;

pub const KEPT_BYTES_MAX: usize = 64 << 20;

/// The first sessions of a watch wait for its first look if the look before took no longer.
const QUICK_MS: u64 = 500;

/// Worker, and its waiting task.
pub type Waiter = (u8, u32);

pub struct KnownDatabase {
    pub name: Arc<str>,
    first_try: FirstTry,
    slot: OnceLock<Slot>,
    edition: AtomicU64,
    current: ArcSwapOption<Catalog>,
    /// `HiddenUses` of the catalog; more while it is unknown or out of date.
    hidden: AtomicU8,
    recalls: DrawQuestions,
    changes: AtomicU64,
    usage: DatabaseUsage,
    pub report: Mutex<CatalogReport>,
    pub follow: WalProgress,
    marks: ChangeMarks,
    pub sharding: KnownSharding,
    kept: Mutex<Option<RetainedReading>>,
}

#[derive(Clone, Debug)]
pub struct CatalogReading {
    pub edition: Edition,
    pub catalog: Arc<Catalog>,
    /// Approximate.
    pub bytes: usize,
    pub fingerprint: String,
    pub config: Arc<Config>,
    pub read_at: Instant,
}

/// The reading of an ended watch, for the next one.
struct RetainedReading {
    reading: CatalogReading,
    /// Another primary may have other definitions under the same numbers.
    primary: Option<u16>,
    since: Instant,
}

struct FirstTry {
    /// True if not over and worth a wait.
    is_due: AtomicBool,
    waiting: Mutex<CatalogWaiters>,
}

struct CatalogWaiters {
    since: Instant,
    waiters: Vec<Waiter>,
}

/// Questions for sequence draws (`currval`, `lastval`).
struct DrawQuestions {
    were_seen: AtomicBool,
    lessons: AtomicU32,
}

#[derive(Default)]
struct DatabaseUsage {
    sessions: AtomicU32,
    is_watched: AtomicBool,
    is_wanted_empty: AtomicBool,
    /// The server is queried as this user.
    last_user: Mutex<Option<Arc<str>>>,
}

#[derive(Default)]
struct ChangeMarks {
    values: [Mutex<String>; 4],
    /// 0 if no mark was seen.
    print: AtomicU64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeMark {
    Definitions,
    /// Other things that results depend on: columns, rights, roles.
    Rights,
    Defaults,
    /// Another database may have taken the name.
    Identity,
}

#[derive(Clone, Debug, Default)]
pub struct CatalogReport {
    pub reads: u64,
    pub read_ms: u64,
    pub look_ms: u64,
    pub read_as: String,
    /// User refused for Weir's looks, with the number of the password reading then.
    pub refused: Option<(String, u64)>,
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
            sharding: KnownSharding::default(),
            kept: Mutex::default(),
        }
    }

    #[inline]
    pub fn slot(&self, versions: &TableVersions) -> Slot {
        *self.slot.get_or_init(|| versions.of_database(&self.name))
    }

    /// Returns the edition; `UNKNOWN` if nothing may be relied upon.
    #[inline]
    pub fn edition(&self) -> Edition {
        self.edition.load(Ordering::Acquire)
    }

    /// Returns the catalog last read, current or not.
    pub fn catalog(&self) -> Option<Arc<Catalog>> {
        self.current.load_full()
    }

    #[inline]
    pub fn hidden(&self) -> HiddenUses {
        HiddenUses::of_bits(self.hidden.load(Ordering::Acquire))
    }

    /// True if sequence draws may be asked for, or if that is not known yet.
    #[inline]
    pub fn recalls(&self) -> bool {
        let has_asked = self.recalls.were_seen.load(Ordering::Relaxed) || self.hidden().meets(HiddenUses::RECALLS);
        has_asked || self.recalls.lessons.load(Ordering::Relaxed) > 0
    }

    pub fn note_forgotten(&self) {
        let less = |lessons: u32| lessons.checked_sub(1);
        let _ = self.recalls.lessons.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    pub fn note_recalls(&self) {
        self.recalls.were_seen.store(true, Ordering::Relaxed);
    }

    fn hides(&self, more: HiddenUses) {
        self.hidden.fetch_or(more.bits(), Ordering::SeqCst);
    }

    pub fn note_unreadable(&self) {
        if self.current.load().is_none() {
            self.hidden.store(HiddenUses::ASSUMED.and(HiddenUses::SEQUENCES).bits(), Ordering::SeqCst);
        }
    }

    pub fn watched_since(&self) -> Instant {
        self.first_try.waiting.lock().since
    }

    /// True if the first look is not over; `tried` then wakes `waiter`.
    pub fn is_untried(&self, waiter: Waiter) -> bool {
        if !self.first_try.is_due.load(Ordering::Acquire) {
            return false;
        }
        let mut waiting = self.first_try.waiting.lock();
        // The watch takes the waiters after it has cleared `is_due`.
        let is_untried = self.first_try.is_due.load(Ordering::Acquire);
        if is_untried && !waiting.waiters.contains(&waiter) {
            waiting.waiters.push(waiter);
        }
        is_untried
    }

    /// Has `tried` wake the waiter at the end of a look, whichever it is.
    pub fn await_look(&self, waiter: Waiter) {
        let mut waiting = self.first_try.waiting.lock();
        if !waiting.waiters.contains(&waiter) {
            waiting.waiters.push(waiter);
        }
    }

    /// Ends a look. Returns the waiters.
    pub fn tried(&self) -> Vec<Waiter> {
        self.first_try.is_due.store(false, Ordering::Release);
        std::mem::take(&mut self.first_try.waiting.lock().waiters)
    }

    /// Lets the next watch's first sessions wait for its first look, unless that is likely to be slow or to fail.
    fn arm(&self, has_kept: bool) {
        let is_worth_it = {
            let report = self.report.lock();
            report.error.is_none() && QUICK_MS >= if has_kept { report.look_ms } else { report.read_ms }
        };
        self.first_try.is_due.store(is_worth_it, Ordering::Release);
    }

    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Stops reliance on the catalog until it is read again.
    pub fn note_change(&self) {
        // Order matters: `publish` checks `changes` after it has stored its edition.
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.edition.store(UNKNOWN, Ordering::SeqCst);
        self.hides(HiddenUses::ASSUMED.and(HiddenUses::SEQUENCES));
    }

    /// Publishes the catalog read after `changes` changes. True if no change came since.
    pub fn publish(&self, edition: Edition, catalog: Option<Arc<Catalog>>, changes: u64) -> bool {
        if let Some(catalog) = catalog {
            // Catalog first: a reader of the edition must find its catalog.
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

    /// Stores a mark. True if it differs from the last one.
    pub fn is_another(&self, mark: ChangeMark, value: &str) -> bool {
        let mut known = self.marks.values[mark as usize].lock();
        let is_other = !known.is_empty() && *known != value;
        if *known != value {
            // XOR is independent of the order: Weirs that saw the same marks agree.
            let before = if known.is_empty() { 0 } else { print_of(mark, &known) };
            self.marks.print.fetch_xor(before ^ print_of(mark, value), Ordering::SeqCst);
        }
        value.clone_into(&mut known);
        is_other
    }

    /// Returns the hash of all marks.
    pub fn print(&self) -> u64 {
        self.marks.print.load(Ordering::SeqCst)
    }

    /// Has connections closed that serve no session.
    pub fn want_empty(&self) {
        self.usage.is_wanted_empty.store(true, Ordering::SeqCst);
        self.follow.leave();
    }

    pub fn is_wanted_empty(&self) -> bool {
        self.usage.is_wanted_empty.load(Ordering::SeqCst)
    }

    /// Ends the watch. The next one must check `reading` before use.
    pub fn close(&self, reading: Option<CatalogReading>, primary: Option<u16>, now: Instant) {
        let is_emptied = self.usage.is_wanted_empty.swap(false, Ordering::SeqCst);
        self.edition.store(UNKNOWN, Ordering::SeqCst);
        self.hides(HiddenUses::ASSUMED.and(HiddenUses::SEQUENCES));
        self.sharding.forget();
        if !self.has_sessions() {
            self.current.store(None);
        }
        let kept = reading.filter(|_| !is_emptied).map(|reading| RetainedReading { reading, primary, since: now });
        self.arm(kept.is_some());
        *self.kept.lock() = kept;
        self.usage.is_watched.store(false, Ordering::SeqCst);
    }

    /// True if this call began the watch.
    pub fn open(&self, now: Instant) -> bool {
        if self.is_watched() {
            return false;
        }
        // A session that sees `is_watched` reads `since` behind this lock.
        let mut waiting = self.first_try.waiting.lock();
        let begins = !self.usage.is_watched.swap(true, Ordering::SeqCst);
        if begins {
            waiting.since = now;
        }
        begins
    }

    /// Takes the reading of the watch before, if of this primary. Check it before publishing.
    pub fn take_kept(&self, primary: Option<u16>) -> Option<CatalogReading> {
        let kept = self.kept.lock().take()?;
        (primary.is_some() && kept.primary == primary).then_some(kept.reading)
    }

    pub fn kept_bytes(&self) -> Option<usize> {
        self.kept.lock().as_ref().map(|kept| kept.reading.bytes)
    }

    fn drop_kept(&self, since: Instant) {
        if self.kept.lock().take_if(|kept| kept.since == since).is_some() {
            self.arm(false);
        }
    }

    pub fn is_watched(&self) -> bool {
        self.usage.is_watched.load(Ordering::SeqCst)
    }

    pub fn has_sessions(&self) -> bool {
        self.usage.sessions.load(Ordering::SeqCst) > 0
    }

    pub fn user(&self) -> Option<Arc<str>> {
        self.usage.last_user.lock().clone()
    }
}

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

#[derive(Default)]
pub struct DatabaseCatalogs {
    databases: Mutex<BTreeMap<Arc<str>, Arc<KnownDatabase>>>,
    editions: AtomicU64,
    /// Grows with each statement that may define functions.
    pub definitions: AtomicU64,
}

impl DatabaseCatalogs {
    pub fn database(&self, name: &Arc<str>, now: Instant) -> Arc<KnownDatabase> {
        self.databases.lock().entry(name.clone()).or_insert_with(|| Arc::new(KnownDatabase::new(name, now))).clone()
    }

    /// Forgets a database that only the caller holds: a client invented the name.
    pub fn forget(&self, database: &Arc<KnownDatabase>) {
        const OWN: usize = 2;
        let mut databases = self.databases.lock();
        if Arc::strong_count(database) <= OWN && !database.is_watched() {
            databases.remove(&database.name);
        }
    }

    /// Forgets and returns the databases held by nothing else.
    pub fn forget_unheld(&self) -> Vec<Arc<KnownDatabase>> {
        let is_unheld = |database: &Arc<KnownDatabase>| Arc::strong_count(database) == 1 && !database.is_watched();
        let mut databases = self.databases.lock();
        let gone: Vec<_> = databases.values().filter(|database| is_unheld(database)).cloned().collect();
        gone.iter().for_each(|database| drop(databases.remove(&database.name)));
        gone
    }

    /// Drops kept readings that are too old or, from the oldest on, beyond the limits.
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
