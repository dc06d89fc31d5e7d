//! The environment of sessions: configuration, cluster view, catalogs, positions, worker tables, time, dice.

use crate::catalogs::{DatabaseCatalogs, KnownDatabase};
use crate::causal::positions::ClusterPositions;
use crate::conn::{ServerAddress, XidRefusals};
use crate::doubt::server_lives::ServerLives;
use crate::host::{Level, LogOrigin, ProgramServices};
use crate::last_look::LastLook;
use crate::local::ViewOf;
use crate::metrics::{NODES_MAX, WorkerCounter, WorkerCounters};
use crate::moves::MovedAddresses;
use crate::query_cache::cached_results::CachedResults;
use crate::query_cache::result_store::ResultStore;
use crate::routing::loads::NodeLoads;
use crate::routing::pick::EVEN_STEP;
use crate::routing::suspects::SuspectNodes;
use crate::session_state::by_sql::BySql;
use crate::session_state::client_settings::SettingValues;
use crate::session_state::name_scopes::NameScopeNumbers;
use crate::session_state::server_defaults::ServerDefaults;
use crate::statement_statistics::statement_rows::{StatementBoard, WorkerStatements};
use crate::statements::StatementCache;
use crate::status::SessionStatuses;
use crate::table_changes::TableChanges;
use crate::task::{Us, WorkerId};
use crate::upstream::UpstreamState;
use crate::write_lease::WriteLease;
use foldhash::{HashMap, HashSet};
use parking_lot::Mutex;
use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;
use weir_catalog::functions::FunctionCache;
use weir_config::{CausalReads, Config};
use weir_failover::cluster::ClusterView;
use weir_io::buffers::BufferPool;
use weir_io::clock::RoundClock;

/// Least count for a sweep.
const SETTINGS_SWEEP_MIN: usize = 1024;

/// Least count for a sweep; each node, user and database has some.
const DEFAULTS_SWEEP_MIN: usize = 256;
const SETTINGS_LARGE_BYTES: usize = 4 << 10;

/// Bytes of new large settings between two sweeps, about the most kept unused.
const SETTINGS_SWEEP_BYTES: usize = 4 << 20;

pub struct SharedContext {
    pub positions: ClusterPositions,
    /// Nodes that reads avoid.
    pub suspects: SuspectNodes,
    pub cached_results: Option<Arc<CachedResults>>,
    pub changes: Arc<TableChanges>,
    pub catalogs: DatabaseCatalogs,
    pub session_statuses: SessionStatuses,
    /// One per worker, the last for the control thread.
    pub counters: Vec<WorkerCounters>,
    /// One per worker.
    pub statement_boards: Vec<Arc<StatementBoard>>,
    /// On the monotonic clock.
    pub begun: Instant,
    pub no_statements: Arc<BySql>,
    /// Statements that wait for a primary; meanwhile nodes are queried for their roles again and again.
    pub awaiting_primary: AtomicU32,
    pub last_look: LastLook,
    pub(crate) told: LoggedNotices,
    settings: SharedSettings,
    defaults: InternedDefaults,
    pub stale: ConnStaleness,
    /// For `commit_outcome`.
    pub lives: ServerLives,
    pub lease: WriteLease,
}

/// Facts that make server connections at rest unfit as they are.
pub struct ConnStaleness {
    pub reloads: ConfigReloads,
    pub moves: MovedAddresses,
}

/// Logged once.
#[derive(Default)]
pub(crate) struct LoggedNotices {
    /// By `HoldReason::code`.
    pub(crate) pins: AtomicU32,
    /// Users without commit outcomes.
    pub(crate) refusals: XidRefusals,
}

/// Reloads seen per node. A connection with older defaults is queried again before use.
pub struct ConfigReloads([AtomicU64; NODES_MAX]);

impl ConfigReloads {
    #[inline]
    pub fn of(&self, node: u16) -> u64 {
        self.0.get(usize::from(node)).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// `known`: the count before; later observers of the same reload change nothing.
    pub fn note(&self, node: u16, known: u64) {
        if let Some(count) = self.0.get(usize::from(node)) {
            let _ = count.compare_exchange(known, known + 1, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

#[derive(Default)]
struct InternedDefaults {
    known: Mutex<HashSet<Arc<ServerDefaults>>>,
    /// For server connections not queried for defaults.
    unknown: Arc<ServerDefaults>,
}

#[derive(Default)]
struct SharedSettings(Mutex<SettingsTable>);

#[derive(Default)]
struct SettingsTable {
    settings: HashMap<Arc<SettingValues>, u64>,
    sweep_at: usize,
    /// Since the last sweep.
    large_bytes: usize,
    made: u64,
}

impl SharedSettings {
    fn intern(&self, settings: SettingValues) -> (Arc<SettingValues>, u64) {
        let mut known = self.0.lock();
        if let Some((found, number)) = known.settings.get_key_value(&settings) {
            return (found.clone(), *number);
        }
        known.make_room(settings.bytes());
        let settings = Arc::new(settings);
        let number = known.made;
        known.made += 1;
        known.settings.insert(settings.clone(), number);
        (settings, number)
    }
}

impl SettingsTable {
    fn make_room(&mut self, bytes: usize) {
        let is_large = |bytes: usize| bytes > SETTINGS_LARGE_BYTES;
        let bytes = if is_large(bytes) { bytes } else { 0 };
        self.large_bytes += bytes;
        if self.settings.len() >= self.sweep_at.max(SETTINGS_SWEEP_MIN) {
            self.settings.retain(|settings, _| Arc::strong_count(settings) > 1);
            self.sweep_at = self.settings.len() * 2;
            self.large_bytes = bytes;
        } else if self.large_bytes > SETTINGS_SWEEP_BYTES {
            // Small ones stay: other sessions' statements depend on their numbers.
            self.settings.retain(|settings, _| Arc::strong_count(settings) > 1 || !is_large(settings.bytes()));
            self.large_bytes = bytes;
        }
    }
}

impl SharedContext {
    /// `seed`: for the process ids that clients are told.
    pub fn new(config: &Config, threads: usize, begun: Instant, seed: u32) -> SharedContext {
        let positions = ClusterPositions::default();
        positions.obey(config.routing.causal_reads());
        let changes = Arc::new(TableChanges::new(config.may_spread() && config.routing.causal_reads() == CausalReads::Tables));
        SharedContext {
            positions,
            suspects: SuspectNodes::default(),
            cached_results: CachedResults::new(&config.cache, changes.versions.clone()),
            changes,
            catalogs: DatabaseCatalogs::default(),
            session_statuses: SessionStatuses::new(seed),
            counters: (0..threads).map(|_| WorkerCounters::default()).collect(),
            statement_boards: (1..threads).map(|_| Arc::new(StatementBoard::new(config.statement_statistics_max))).collect(),
            begun,
            no_statements: Arc::default(),
            awaiting_primary: AtomicU32::new(0),
            last_look: LastLook::default(),
            told: LoggedNotices::default(),
            settings: SharedSettings::default(),
            defaults: InternedDefaults::default(),
            lives: ServerLives::default(),
            lease: WriteLease::default(),
            stale: ConnStaleness {
                reloads: ConfigReloads(std::array::from_fn(|_| AtomicU64::new(0))),
                moves: MovedAddresses::default(),
            },
        }
    }

    /// Unused defaults are dropped as new ones come.
    pub fn intern_defaults(&self, defaults: ServerDefaults) -> Arc<ServerDefaults> {
        let mut known = self.defaults.known.lock();
        if let Some(found) = known.get(&defaults) {
            return found.clone();
        }
        if known.len() >= DEFAULTS_SWEEP_MIN && known.len().is_power_of_two() {
            known.retain(|defaults| Arc::strong_count(defaults) > 1);
        }
        let defaults = Arc::new(defaults);
        known.insert(defaults.clone());
        defaults
    }

    pub fn unknown_defaults(&self) -> Arc<ServerDefaults> {
        self.defaults.unknown.clone()
    }

    /// Returns the shared copy and its number, never given twice. Unused ones are dropped as new ones come.
    pub fn intern_settings(&self, settings: SettingValues) -> (Arc<SettingValues>, u64) {
        self.settings.intern(settings)
    }
}

pub struct Context {
    pub id: WorkerId,
    pub shared: Arc<SharedContext>,
    pub(crate) program: Arc<dyn ProgramServices>,
    pub buffers: Rc<BufferPool>,
    pub(crate) statements: RefCell<StatementCache>,
    pub seen: WorkerStatements,
    /// Session parts at rest, for reuse.
    #[expect(clippy::vec_box, reason = "a box moves into its session and back as it is")]
    pub(crate) upstreams: RefCell<Vec<Box<UpstreamState>>>,
    pub(crate) functions: RefCell<FunctionCache>,
    pub(crate) places: RefCell<NameScopeNumbers>,
    pub loads: NodeLoads,
    pub(crate) store: Option<Rc<dyn ResultStore>>,
    pub(crate) scratch: RefCell<Vec<u8>>,
    no_settings: Arc<SettingValues>,
    clock: Rc<RoundClock>,
    snapshot: WorkerSnapshot,
    dice: RandomSource,
}

/// As this worker knows them.
struct WorkerSnapshot {
    config: RefCell<Arc<Config>>,
    view: RefCell<Arc<ClusterView>>,
    config_edition: Cell<u64>,
    has_readers: Cell<bool>,
    is_sharded: Cell<bool>,
    causal_reads: Cell<CausalReads>,
    follows_wal: Cell<bool>,
}

struct RandomSource {
    any: Cell<u64>,
    even: Cell<u32>,
}

pub struct ContextParts {
    pub id: WorkerId,
    pub shared: Arc<SharedContext>,
    pub program: Arc<dyn ProgramServices>,
    pub buffers: Rc<BufferPool>,
    pub store: Option<Rc<dyn ResultStore>>,
    pub config: Arc<Config>,
    pub view: Arc<ClusterView>,
    pub clock: Rc<RoundClock>,
    pub seed: u64,
    pub view_of: ViewOf,
}

impl Context {
    pub fn new(parts: ContextParts) -> Context {
        let ContextParts { id, shared, program, buffers, store, config, view, clock, seed, view_of } = parts;
        let board = shared.statement_boards.get(usize::from(id)).cloned();
        Context {
            id,
            program,
            buffers,
            statements: RefCell::new(StatementCache::new(config.clone(), u64::from(id) << 48, view_of)),
            seen: WorkerStatements::new(board.unwrap_or_else(|| Arc::new(StatementBoard::new(0)))),
            upstreams: RefCell::default(),
            functions: RefCell::default(),
            places: RefCell::default(),
            loads: NodeLoads::default(),
            store,
            scratch: RefCell::default(),
            no_settings: shared.intern_settings(SettingValues::default()).0,
            clock,
            snapshot: WorkerSnapshot {
                view: RefCell::new(view),
                has_readers: Cell::new(config.may_spread()),
                is_sharded: Cell::new(config.sharding.is_on),
                causal_reads: Cell::new(config.routing.causal_reads()),
                follows_wal: Cell::new(config.cache.follows_wal),
                config: RefCell::new(config),
                config_edition: Cell::new(0),
            },
            dice: RandomSource { any: Cell::new(seed | 1), even: Cell::new(seed as u32) },
            shared,
        }
    }

    /// False if other proxies of a group may have replaced the primary since: what this process remembers may be of the former one.
    #[inline]
    pub fn may_remember(&self) -> bool {
        let lease = &self.shared.lease;
        !lease.is_needed() || self.clock.boot_us_after_reads() < lease.any_until_us()
    }

    /// True if what arrives in this round from this node comes too late for the right to write to it.
    pub fn is_past_lease(&self, node: u16) -> bool {
        self.clock.boot_us_after_reads() >= self.shared.lease.until_us(node)
    }

    /// True if what arrived from this node surely comes in time. With io_uring it is true for nearly all answers, and no clock is read.
    #[inline]
    pub(crate) fn is_surely_within_lease(&self, node: u16) -> bool {
        self.clock.boot_us_if_after_reads().is_some_and(|us| us < self.shared.lease.until_us(node))
    }

    /// True if the configuration differs.
    pub fn set_config(&self, config: Arc<Config>) -> bool {
        let WorkerSnapshot { config: known, config_edition, has_readers, is_sharded, causal_reads, follows_wal, .. } =
            &self.snapshot;
        if Arc::ptr_eq(&config, &known.borrow()) {
            return false;
        }
        self.statements.borrow_mut().reconfigure(config.clone());
        has_readers.set(config.may_spread());
        is_sharded.set(config.sharding.is_on);
        causal_reads.set(config.routing.causal_reads());
        follows_wal.set(config.cache.follows_wal);
        *known.borrow_mut() = config;
        config_edition.set(config_edition.get() + 1);
        true
    }

    pub fn set_view(&self, view: Arc<ClusterView>) {
        *self.snapshot.view.borrow_mut() = view;
        self.loads.refresh();
    }

    /// Returns the time of this round of the event loop.
    #[inline]
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    pub fn config(&self) -> Arc<Config> {
        self.snapshot.config.borrow().clone()
    }

    #[inline]
    pub fn config_edition(&self) -> u64 {
        self.snapshot.config_edition.get()
    }

    /// Do not hold across an await.
    #[inline]
    pub fn peek_config(&self) -> Ref<'_, Arc<Config>> {
        self.snapshot.config.borrow()
    }

    #[inline]
    pub fn view(&self) -> Ref<'_, Arc<ClusterView>> {
        self.snapshot.view.borrow()
    }

    /// True if a node other than the primary may take reads; catalogs are read only then.
    #[inline]
    pub fn has_readers(&self) -> bool {
        self.snapshot.has_readers.get()
    }

    /// True if tables may lie on several servers (`parallel_mode`).
    #[inline]
    pub fn is_sharded(&self) -> bool {
        self.snapshot.is_sharded.get()
    }

    /// Returns the mode of sessions that choose none.
    #[inline]
    pub fn causal_reads(&self) -> CausalReads {
        self.snapshot.causal_reads.get()
    }

    pub fn no_settings(&self) -> Arc<SettingValues> {
        self.no_settings.clone()
    }

    pub fn forget_functions(&self, database: &str) {
        self.functions.borrow_mut().forget(database);
    }

    /// Xorshift: good enough to spread reads.
    pub fn dice(&self) -> u32 {
        let mut x = self.dice.any.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.dice.any.set(x);
        (x >> 32) as u32
    }

    /// Returns a word of a sequence that fills its range evenly: shares approach the weights after a few throws.
    pub fn even_dice(&self) -> u32 {
        self.dice.even.set(self.dice.even.get().wrapping_add(EVEN_STEP));
        self.dice.even.get()
    }

    #[inline]
    pub fn count(&self, metric: WorkerCounter) {
        self.counters().count(metric);
    }

    pub fn count_if(&self, is_so: bool, metric: WorkerCounter) {
        if is_so {
            self.count(metric);
        }
    }

    #[inline]
    pub fn counters(&self) -> &WorkerCounters {
        &self.shared.counters[usize::from(self.id)]
    }

    pub fn count_read(&self, node: u16) {
        self.counters().count_read(node);
    }

    #[inline]
    pub fn millis(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.shared.begun).as_millis() as u64
    }

    /// Returns the time of this round of the event loop.
    #[inline]
    pub fn now_us(&self) -> Us {
        self.clock.now_us()
    }

    #[inline]
    pub fn now_ms(&self) -> u64 {
        self.now_us() / 1000
    }

    #[inline]
    pub fn is_primary(&self, node: u16) -> bool {
        self.view().is_primary(node)
    }

    pub fn primary_node(&self) -> Option<u16> {
        self.view().primary_id()
    }

    pub fn note_change(&self, database: &Arc<KnownDatabase>) {
        database.note_change();
        self.program.look_at(database);
    }

    /// Has the database's WAL read, if configured, to see writes that bypass Weir.
    #[inline]
    pub fn follow(&self, database: &Arc<KnownDatabase>) {
        if self.snapshot.follows_wal.get() && !database.follow.is_watched() {
            self.follow_log(database);
        }
    }

    #[cold]
    fn follow_log(&self, database: &Arc<KnownDatabase>) {
        let versions = &self.shared.changes.versions;
        if database.follow.want(versions.of_database(&database.name), versions) {
            self.shared.positions.follow();
            // The node monitor may sleep although a round is wanted.
            self.program.sample();
            self.program.follow(database);
        }
    }

    pub fn log(&self, level: Level, who: &LogOrigin<'_>, text: std::fmt::Arguments<'_>) {
        self.program.log(level, who, text, &[]);
    }

    pub fn log_conn(&self, address: &ServerAddress, text: std::fmt::Arguments<'_>) {
        self.log(Level::Log, &LogOrigin::default(), format_args!("server connection to {address}: {text}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_kept(interned: &SharedSettings) -> usize {
        interned.0.lock().settings.keys().map(|settings| settings.bytes()).sum()
    }

    #[test]
    fn large_settings_that_nobody_uses_are_not_kept() {
        let many_names = (0..1500).fold(SettingValues::default(), |all, n| all.with(&format!("app.name_{n}"), "a value"));
        let long = (0..6).fold(SettingValues::default(), |all, n| all.with(&format!("app.name_{n}"), &"x".repeat(100_000)));
        for begun in [long, many_names] {
            let interned = SharedSettings::default();
            let (used, number) = interned.intern(begun.clone());
            for n in 0..400 {
                interned.intern(begun.with("app.other", &n.to_string()));
                let kept = bytes_kept(&interned);
                assert!(kept <= SETTINGS_SWEEP_BYTES + 2 * begun.bytes(), "{kept} bytes are kept after {n}");
            }
            assert_eq!(interned.intern(begun), (used, number), "somebody uses it");
        }
    }

    #[test]
    fn small_settings_keep_their_numbers_while_somebody_sets_large_values() {
        let interned = SharedSettings::default();
        let small = SettingValues::default().with("search_path", "app");
        let (_, number) = interned.intern(small.clone());
        let large = "x".repeat(100_000);
        (0..400).for_each(|n| drop(interned.intern(SettingValues::default().with("app.name", &format!("{large}{n}")))));
        assert_eq!(interned.intern(small).1, number);
    }

    #[test]
    fn many_small_settings_are_bounded_by_their_number() {
        let interned = SharedSettings::default();
        for n in 0..5 * SETTINGS_SWEEP_MIN {
            interned.intern(SettingValues::default().with("app.name", &n.to_string()));
            assert!(interned.0.lock().settings.len() <= SETTINGS_SWEEP_MIN);
        }
    }
}
