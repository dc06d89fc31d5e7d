//! Results cached for all sessions. `weir_cache` decides.
//!
//! A result is served only while its tables are as when its question was sent, so a write costs by its tables, not by results. Stale
//! results go when room is needed. `memqcache_total_size` bounds the memory, with keys, slots and an allowance for the table.

use crate::task::Waiter;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_cache::{
    CacheAdmission, CachePermission, CacheTextFacts, PossibleTransactionEnd, ResultCost, ResultDependencies, Slot, TableVersions,
};
use weir_config::CacheConfig;

const OVERHEAD_BYTES: usize = 256;
/// Shards against contention.
const BOARDS: usize = 64;
/// Stores between checks of memory use, which take all locks.
const PUTS_PER_LOOK: u64 = 64;
/// Initial capacity in answers.
const ANSWERS_FEW: usize = 1024;

/// Waiters by hash of the key.
type Board = Mutex<HashMap<u64, Vec<Waiter>, RandomState>>;

/// 32 bytes for asker and settings, then kind and text.
pub type Key = Box<[u8]>;

pub const WHO_BYTES: usize = 32;

pub fn text_of(key: &[u8]) -> &[u8] {
    let text = key.get(WHO_BYTES + 1..).unwrap_or_default();
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

#[derive(Debug)]
pub struct CachedResult {
    /// RowDescription, DataRows, CommandComplete.
    pub bytes: Box<[u8]>,
    /// Versions of its tables.
    pub deps: ResultDependencies,
    pub database: Arc<str>,
    pub user: Arc<str>,
    /// A round begun after all shown was visible: the receiver must not see less later.
    pub(crate) round: u64,
    /// Milliseconds since the start of the proxy.
    pub made_ms: u64,
    pub took_us: u64,
    pub hits: AtomicU64,
}

impl CachedResult {
    fn size_bytes(&self, key: &[u8]) -> u64 {
        (key.len() + self.bytes.len() + self.deps.bytes() + OVERHEAD_BYTES) as u64
    }
}

#[derive(Clone, Debug)]
struct AnswerWeighter {
    /// Least weight of an answer: limits their number.
    least: u64,
}

impl Weighter<Key, Arc<CachedResult>> for AnswerWeighter {
    fn weight(&self, key: &Key, answer: &Arc<CachedResult>) -> u64 {
        answer.size_bytes(key).max(self.least)
    }
}

pub struct CachedResults {
    pub versions: Arc<TableVersions>,
    kept: Cache<Key, Arc<CachedResult>, AnswerWeighter, RandomState>,
    admission: CacheAdmission,
    puts: AtomicU64,
    used: AtomicU64,
    hasher: RandomState,
    boards: Box<[Board]>,
    /// Writes past Weir invalidate results, too.
    pub(crate) follows_wal: bool,
    pub total_bytes: usize,
    pub(crate) answer_bytes_max: usize,
    expire_ms: u64,
    /// Results are in the network store, not here.
    is_in_store: bool,
}

impl CachedResults {
    pub fn new(config: &CacheConfig, versions: Arc<TableVersions>) -> Option<Arc<CachedResults>> {
        if !config.enabled || (config.is_in_memory() && (config.total_bytes == 0 || config.answers_max == 0)) {
            return None;
        }
        // With a store nothing is kept here.
        let least = (config.total_bytes as u64).div_ceil(u64::from(config.answers_max.max(1))).max(1);
        let hasher = RandomState::default();
        let kept =
            Cache::with(ANSWERS_FEW, config.total_bytes as u64, AnswerWeighter { least }, hasher.clone(), Default::default());
        Some(Arc::new(CachedResults {
            versions,
            kept,
            admission: CacheAdmission::default(),
            puts: AtomicU64::new(0),
            used: AtomicU64::new(0),
            hasher,
            boards: (0..BOARDS).map(|_| Mutex::default()).collect(),
            follows_wal: config.follows_wal,
            total_bytes: config.total_bytes,
            answer_bytes_max: config.answer_bytes_max,
            expire_ms: config.expire_ms,
            is_in_store: config.store().is_some(),
        }))
    }

    #[inline]
    pub fn get(&self, key: &[u8], now_ms: u64) -> Option<Arc<CachedResult>> {
        let answer = self.kept.get(key)?;
        let is_young = self.expire_ms == 0 || now_ms.saturating_sub(answer.made_ms) < self.expire_ms;
        if is_young && self.versions.is_true(&answer.deps) {
            answer.hits.store(answer.hits.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return Some(answer);
        }
        None
    }

    /// Stores a result if it is worth its room; true if so.
    pub fn put(&self, key: Key, answer: CachedResult) -> bool {
        if self.puts.fetch_add(1, Ordering::Relaxed).is_multiple_of(PUTS_PER_LOOK) {
            self.used.store(self.kept.weight(), Ordering::Relaxed);
        }
        let price = ResultCost { took_us: answer.took_us, bytes: answer.size_bytes(&key) };
        let used = self.used.load(Ordering::Relaxed);
        // A stale result proves repetition.
        let is_worth_it = self.admission.admits(self.hasher.hash_one(&*key), price, used, self.total_bytes as u64)
            || self.kept.peek(&*key).is_some();
        if is_worth_it {
            self.kept.insert(key, Arc::new(answer));
        }
        is_worth_it
    }

    /// Forgets all answers, also those under way. `round` begins after now.
    pub fn clear(&self, round: u64) {
        // First, so that earlier questions are not stored, nor stored results served.
        self.versions.change(&[self.versions.of_all()], round);
        self.kept.clear();
    }

    /// Forgets results of user, database and text; false: none. With a store all are forgotten, as its keys are unknown.
    pub fn remove(&self, user: &str, database: &str, text: &[u8], round: u64) -> bool {
        if self.is_in_store {
            self.clear(round);
            return true;
        }
        let is_it =
            |key: &Key, answer: &CachedResult| &*answer.user == user && &*answer.database == database && text_of(key) == text;
        let keys: Vec<Key> = self.kept.iter().filter(|(key, answer)| is_it(key, answer)).map(|(key, _)| key).collect();
        keys.iter().for_each(|key| drop(self.kept.remove(&**key)));
        !keys.is_empty()
    }

    pub fn size(&self) -> (usize, u64) {
        (self.kept.len(), self.kept.weight())
    }

    /// Returns all results, stale ones included.
    pub fn all(&self) -> Vec<(Key, Arc<CachedResult>)> {
        self.kept.iter().collect()
    }

    /// Claims a question about to be sent. `None`: another session is asking, and its answer will wake `waiter`.
    pub fn coalesce(self: &Arc<CachedResults>, key: &[u8], waiter: Waiter) -> Option<CacheFill> {
        let hash = self.hasher.hash_one(key);
        let mut flights = self.board_of(hash).lock();
        if let Some(waiters) = flights.get_mut(&hash) {
            if !waiters.contains(&waiter) {
                waiters.push(waiter);
            }
            return None;
        }
        flights.insert(hash, Vec::new());
        Some(CacheFill { answers: self.clone(), hash, is_over: false })
    }

    pub fn is_awaited(&self, key: &[u8], waiter: Waiter) -> bool {
        let hash = self.hasher.hash_one(key);
        self.board_of(hash).lock().get(&hash).is_some_and(|waiters| waiters.contains(&waiter))
    }

    fn board_of(&self, hash: u64) -> &Board {
        &self.boards[hash as usize % BOARDS]
    }
}

/// A question under way. Dropped: its waiters look again.
pub struct CacheFill {
    answers: Arc<CachedResults>,
    hash: u64,
    is_over: bool,
}

impl CacheFill {
    pub fn finish(mut self, mut wake: impl FnMut(Waiter)) {
        self.end().into_iter().for_each(&mut wake);
    }

    fn end(&mut self) -> Vec<Waiter> {
        // Another question may have the place by now.
        if std::mem::replace(&mut self.is_over, true) {
            return Vec::new();
        }
        self.answers.board_of(self.hash).lock().remove(&self.hash).unwrap_or_default()
    }
}

impl Drop for CacheFill {
    /// Waiters look again later by themselves.
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Places count from 1.
const ANYWHERE: u64 = u64::MAX;

/// Cache facts of a text by place (see `classify`): whether its result may be cached, and the tables that it may change.
#[derive(Debug)]
pub struct TextCacheFacts {
    pub(crate) text: CacheTextFacts,
    pub(crate) reads: PlaceMemo<Option<Rc<[Slot]>>>,
    pub(crate) touches: PlaceMemo<Rc<[Slot]>>,
    /// Slots of all its answer may show; none: the whole database.
    pub(crate) shows: PlaceMemo<Option<Rc<[Slot]>>>,
    /// Place where the text is neither cached nor changes anything.
    indifferent: Cell<u64>,
    /// Last effect found.
    effect: Cell<KnownEffect>,
    /// True for one statement that does not change what names mean.
    is_plain: bool,
    /// Place where the text writes although nothing shows it.
    unseen_write: Cell<u64>,
}

/// Changes by a text that leave nothing else to note, without a query cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownEffect {
    Unknown,
    /// None, whatever names mean.
    Nothing,
    /// As `Nothing`, and may end a transaction.
    End,
    NothingAt(u64),
    /// One slot, and no end of a transaction.
    SlotAt(u64, Slot),
    /// Slots are in `touches`.
    TablesAt(u64),
}

impl TextCacheFacts {
    pub fn new(text: CacheTextFacts, is_plain: bool) -> TextCacheFacts {
        TextCacheFacts {
            text,
            reads: PlaceMemo::default(),
            touches: PlaceMemo::default(),
            shows: PlaceMemo::default(),
            indifferent: Cell::new(0),
            effect: Cell::new(KnownEffect::Unknown),
            is_plain,
            unseen_write: Cell::new(0),
        }
    }

    /// Remembered, since an empty `Rc` allocates too.
    pub fn nothing_touched(&self) -> Rc<[Slot]> {
        self.touches.at(ANYWHERE).unwrap_or_else(|| {
            let nothing: Rc<[Slot]> = Rc::default();
            self.touches.note(ANYWHERE, nothing.clone());
            nothing
        })
    }

    /// A standby refused the text as a write: its tables are unknown.
    pub fn note_unseen_write(&self, place: u64) {
        self.indifferent.set(0);
        self.effect.set(KnownEffect::Unknown);
        self.unseen_write.set(place);
    }

    #[inline]
    pub fn writes_unseen(&self, place: u64) -> bool {
        place != 0 && self.unseen_write.get() == place
    }

    pub fn has_written_unseen(&self) -> bool {
        self.unseen_write.get() != 0
    }

    #[inline]
    pub fn is_indifferent(&self, place: u64) -> bool {
        place != 0 && self.indifferent.get() == place
    }

    /// With a cache.
    pub fn note_indifference(&self, place: u64) {
        let is_kept = || self.text.reads != CachePermission::Never && !matches!(self.reads.at(place), Some(None));
        let changes = || !self.touches.at(place).is_some_and(|slots| slots.is_empty());
        if self.text.end == PossibleTransactionEnd::None && !is_kept() && !changes() {
            self.indifferent.set(place);
        }
    }

    #[inline]
    pub fn effect_at(&self, place: u64) -> KnownEffect {
        match self.effect.get() {
            known @ (KnownEffect::Nothing | KnownEffect::End) => known,
            known @ (KnownEffect::NothingAt(at) | KnownEffect::SlotAt(at, _) | KnownEffect::TablesAt(at)) if at == place => known,
            KnownEffect::NothingAt(_) | KnownEffect::SlotAt(..) | KnownEffect::TablesAt(_) | KnownEffect::Unknown => {
                self.find_effect(place)
            }
        }
    }

    #[inline(never)]
    fn find_effect(&self, place: u64) -> KnownEffect {
        if !self.is_plain || self.has_written_unseen() {
            return KnownEffect::Unknown;
        }
        let ends = self.text.end != PossibleTransactionEnd::None;
        let at_place = |slots: &Rc<[Slot]>| match **slots {
            [] if ends => KnownEffect::Unknown,
            [] => KnownEffect::NothingAt(place),
            [slot] if !ends => KnownEffect::SlotAt(place, slot),
            _ => KnownEffect::TablesAt(place),
        };
        let effect = match self.text.is_idle {
            true if ends => KnownEffect::End,
            true => KnownEffect::Nothing,
            false => self.touches.look(place, at_place).unwrap_or(KnownEffect::Unknown),
        };
        self.effect.set(effect);
        effect
    }
}

/// Findings for the last few places.
#[derive(Debug)]
pub struct PlaceMemo<T>(RefCell<[Option<(u64, T)>; MEMO_MAX]>);

const MEMO_MAX: usize = 4;

impl<T> Default for PlaceMemo<T> {
    fn default() -> PlaceMemo<T> {
        PlaceMemo(RefCell::new([const { None }; MEMO_MAX]))
    }
}

impl<T: Clone> PlaceMemo<T> {
    pub fn at(&self, place: u64) -> Option<T> {
        self.look(place, T::clone)
    }

    /// As `at`, without a copy. `look` must not use the memo.
    #[inline]
    pub fn look<R>(&self, place: u64, look: impl FnOnce(&T) -> R) -> Option<R> {
        self.0.borrow().iter().flatten().find(|(known, _)| *known == place).map(|(_, found)| look(found))
    }

    pub fn note(&self, place: u64, found: T) {
        let mut known = self.0.borrow_mut();
        known.rotate_right(1);
        known[0] = Some((place, found));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table_changes::{RaisedSlots, TableChanges};

    fn answers(total_bytes: usize, answers_max: u32) -> Arc<CachedResults> {
        let config = CacheConfig { enabled: true, total_bytes, answers_max, ..CacheConfig::default() };
        CachedResults::new(&config, TableChanges::default().versions).unwrap()
    }

    fn answer(answers: &CachedResults, bytes: usize) -> CachedResult {
        let deps = answers.versions.begin(&[answers.versions.of_table("d", 1)]).unwrap();
        let bytes = vec![0; bytes].into();
        CachedResult {
            bytes,
            deps,
            database: "d".into(),
            user: "u".into(),
            round: 1,
            made_ms: 0,
            took_us: 0,
            hits: AtomicU64::new(0),
        }
    }

    #[test]
    fn the_latest_places_are_remembered_and_the_oldest_forgotten() {
        let memo = PlaceMemo::default();
        assert_eq!(memo.at(1), None);
        (1..=5).for_each(|place| memo.note(place, place * 10));
        assert_eq!([1, 2, 5].map(|place| memo.at(place)), [None, Some(20), Some(50)]);
        memo.note(5, 51);
        assert_eq!((memo.at(5), memo.at(2)), (Some(51), None));
        assert_eq!((memo.look(5, |found| found + 1), memo.look(2, |found| found + 1)), (Some(52), None));
    }

    #[test]
    fn the_effect_of_a_text_is_known_at_its_place_or_whatever_names_mean() {
        use KnownEffect::{End, Nothing, NothingAt, SlotAt, TablesAt, Unknown};
        const PLAIN: bool = true;
        for (sql, is_plain, touched, at_7, at_8) in [
            ("select a from t", PLAIN, Some(&[][..]), NothingAt(7), Unknown),
            ("insert into t values (1)", PLAIN, Some(&[5][..]), SlotAt(7, 5), Unknown),
            ("insert into t values (1)", PLAIN, Some(&[5, 6][..]), TablesAt(7), Unknown),
            ("insert into t values (1)", PLAIN, None, Unknown, Unknown),
            ("insert into t values (1)", !PLAIN, Some(&[5][..]), Unknown, Unknown),
            ("begin", PLAIN, None, Nothing, Nothing),
            ("set search_path = a", !PLAIN, None, Unknown, Unknown),
            ("commit", PLAIN, None, End, End),
            ("rollback", PLAIN, None, End, End),
        ] {
            let facts =
                TextCacheFacts::new(CacheTextFacts::of(&weir_sql::facts(sql.as_bytes()), sql, &CacheConfig::default()), is_plain);
            if let Some(slots) = touched {
                facts.touches.note(7, slots.into());
            }
            for _ in 0..2 {
                assert_eq!((facts.effect_at(7), facts.effect_at(8)), (at_7, at_8), "{sql}");
            }
            facts.note_unseen_write(8);
            assert_eq!((facts.effect_at(7), facts.effect_at(8)), (Unknown, Unknown), "{sql}: a standby refused it as a write");
        }
    }

    #[test]
    fn who_waits_is_known_until_the_answer_comes() {
        let answers = answers(1 << 20, 50);
        let (key, waiter) = (b"key".as_slice(), (1, 7));
        let flight = answers.coalesce(key, (0, 3)).unwrap();
        assert!(!answers.is_awaited(key, waiter));
        assert!(answers.coalesce(key, waiter).is_none());
        assert!(answers.is_awaited(key, waiter) && !answers.is_awaited(b"other", waiter));
        let mut woken = Vec::new();
        flight.finish(|waiter| woken.push(waiter));
        assert_eq!(woken, [waiter]);
        // Another's flight is not the one that was waited for.
        let _next = answers.coalesce(key, (0, 3)).unwrap();
        assert!(!answers.is_awaited(key, waiter));
    }

    #[test]
    fn memory_and_number_are_bounded() {
        let by_bytes = answers(1 << 20, 1_000_000);
        for at in 0..10_000_u32 {
            by_bytes.put(at.to_le_bytes().into(), answer(&by_bytes, 1000));
        }
        let (count, weight) = by_bytes.size();
        assert!(weight <= 1 << 20 && count > 100, "{count} answers, {weight} bytes");
        let by_number = answers(1 << 20, 50);
        for at in 0..1000_u32 {
            by_number.put(at.to_le_bytes().into(), answer(&by_number, 10));
        }
        assert!((1..=50).contains(&by_number.size().0));
    }

    #[test]
    fn what_an_answer_hangs_on_counts_as_memory_too() {
        let answers = answers(1 << 20, 1_000_000);
        let slots: Vec<Slot> = (0..62).map(|oid| answers.versions.of_table("d", oid)).collect();
        for at in 0..10_000_u32 {
            let deps = answers.versions.begin(&slots).unwrap();
            answers.put(at.to_le_bytes().into(), CachedResult { deps, ..answer(&answers, 10) });
        }
        let (count, weight) = answers.size();
        let least_bytes = count * size_of::<(Slot, u64)>() * slots.len();
        assert!(count > 100 && least_bytes < 1 << 20 && weight as usize > least_bytes, "{count} answers, {weight} bytes");
    }

    #[test]
    fn a_full_memory_takes_what_is_worth_its_room() {
        let answers = answers(1 << 20, 1_000_000);
        let dear = |at: u32| answers.put(at.to_le_bytes().into(), CachedResult { took_us: 50_000, ..answer(&answers, 1000) });
        assert!((0..5000).all(dear));
        let cheap = || answers.put((*b"cheap").into(), CachedResult { took_us: 10, ..answer(&answers, 20_000) });
        assert_eq!((cheap(), cheap()), (false, true), "it is asked for twice");
        assert!(cheap(), "it was kept before");
    }

    #[test]
    fn one_asks_and_the_others_wait() {
        let answers = answers(1 << 20, 100);
        let first = answers.coalesce(b"k", (0, 1)).unwrap();
        assert!(
            answers.coalesce(b"k", (0, 2)).is_none()
                && answers.coalesce(b"k", (1, 2)).is_none()
                && answers.coalesce(b"k", (0, 2)).is_none()
        );
        assert!(answers.coalesce(b"other", (0, 2)).is_some());
        let mut woken = Vec::new();
        first.finish(|waiter| woken.push(waiter));
        assert_eq!(woken, [(0, 2), (1, 2)]);
        drop(answers.coalesce(b"k", (0, 1)).unwrap());
        assert!(answers.coalesce(b"k", (0, 1)).is_some(), "one that was given up is over, too");
    }

    #[test]
    fn a_write_whose_end_nobody_heard_of_keeps_its_tables_out() {
        let changes = Arc::new(TableChanges::default());
        let config = CacheConfig { enabled: true, total_bytes: 1 << 20, answers_max: 100, ..CacheConfig::default() };
        let answers = CachedResults::new(&config, changes.versions.clone()).unwrap();
        let table = answers.versions.of_table("d", 1);
        answers.put((*b"k").into(), answer(&answers, 10));
        let mut raised = RaisedSlots::none(changes.clone(), "d".into(), 0, 7);
        raised.add(&[table]);
        drop(raised);
        assert!(answers.get(b"k", 0).is_none() && answers.versions.begin(&[table]).is_none());
        changes.dispel(&changes.doubts("d")[0], 3);
        assert!(answers.get(b"k", 0).is_none(), "it may have been carried out");
        assert!(answers.versions.begin(&[table]).is_some());
    }

    #[test]
    fn an_answer_grows_old() {
        let config =
            CacheConfig { enabled: true, total_bytes: 1 << 20, answers_max: 10, expire_ms: 100, ..CacheConfig::default() };
        let answers = CachedResults::new(&config, TableChanges::default().versions).unwrap();
        answers.put((*b"k").into(), answer(&answers, 10));
        assert!(answers.get(b"k", 99).is_some() && answers.get(b"k", 100).is_none());
    }
}
