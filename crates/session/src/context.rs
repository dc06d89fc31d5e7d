//! All that sessions are handed beside their messages: configuration, cluster view, catalogs, positions, tables of a worker, time and dice.

use crate::catalogs::{DatabaseCatalogs, KnownDatabase};
use crate::causal::positions::ClusterPositions;
use crate::conn::{ServerAddress, XidRefusals};
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
use crate::statements::StatementCache;
use crate::status::SessionStatuses;
use crate::table_changes::TableChanges;
use crate::task::{Us, WorkerId};
use crate::upstream::UpstreamState;
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

/// Fewer interned settings than this are never swept for their number.
const SETTINGS_SWEEP_MIN: usize = 1024;

/// Fewer interned defaults than this are never swept. There are some for each node, user and database.
const DEFAULTS_SWEEP_MIN: usize = 256;
/// Settings larger than this are large.
const SETTINGS_LARGE_BYTES: usize = 4 << 10;

/// Bytes of large settings that come between two sweeps of these: about so much is kept that nobody uses.
const SETTINGS_SWEEP_BYTES: usize = 4 << 20;

/// Facts that the sessions of all threads share.
pub struct SharedContext {
    pub positions: ClusterPositions,
    /// Nodes that reads keep away from.
    pub suspects: SuspectNodes,
    /// The query cache, if there is one.
    pub cached_results: Option<Arc<CachedResults>>,
    pub changes: Arc<TableChanges>,
    pub catalogs: DatabaseCatalogs,
    pub session_statuses: SessionStatuses,
    /// One set for each worker, and the last one for the control thread.
    pub counters: Vec<WorkerCounters>,
    /// The start of the proxy, on the clock that never jumps.
    pub begun: Instant,
    /// The set of statements prepared by SQL that has none.
    pub no_statements: Arc<BySql>,
    /// Statements that wait for a primary: while there are any, nodes are asked for their roles over and over.
    pub awaiting_primary: AtomicU32,
    pub last_look: LastLook,
    pub(crate) told: LoggedNotices,
    settings: SharedSettings,
    defaults: InternedDefaults,
    pub stale: ConnStaleness,
}

/// Facts by which connections at rest are not used as they are.
pub struct ConnStaleness {
    pub reloads: ConfigReloads,
    pub moves: MovedAddresses,
}

/// Things that the log says once.
#[derive(Default)]
pub(crate) struct LoggedNotices {
    /// Kinds of state, as `Kept::code`, that keep server connections.
    pub(crate) pins: AtomicU32,
    /// Users who have no outcome of a COMMIT.
    pub(crate) refusals: XidRefusals,
}

/// How often each node was seen to have read its configuration anew. A connection whose defaults were asked for before the last time is asked again
/// before a session gets it.
pub struct ConfigReloads([AtomicU64; NODES_MAX]);

impl ConfigReloads {
    #[inline]
    pub fn of(&self, node: u16) -> u64 {
        self.0.get(usize::from(node)).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// A node has read its configuration anew. `known`: the count under which that was seen; whoever sees the same reload later changes nothing.
    pub fn note(&self, node: u16, known: u64) {
        if let Some(count) = self.0.get(usize::from(node)) {
            let _ = count.compare_exchange(known, known + 1, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// One `ServerDefaults` for all connections that begin with the same.
#[derive(Default)]
struct InternedDefaults {
    known: Mutex<HashSet<Arc<ServerDefaults>>>,
    /// Of a connection whose server was not asked.
    unknown: Arc<ServerDefaults>,
}

/// One `SettingValues` for all sessions that asked for the same.
#[derive(Default)]
struct SharedSettings(Mutex<SettingsTable>);

#[derive(Default)]
struct SettingsTable {
    settings: HashMap<Arc<SettingValues>, u64>,
    /// Number at which those nobody uses are dropped.
    sweep_at: usize,
    /// Bytes of the large ones that came since such a sweep.
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
    /// Drops settings that nobody uses, before others of this size come.
    fn make_room(&mut self, bytes: usize) {
        let is_large = |bytes: usize| bytes > SETTINGS_LARGE_BYTES;
        let bytes = if is_large(bytes) { bytes } else { 0 };
        self.large_bytes += bytes;
        if self.settings.len() >= self.sweep_at.max(SETTINGS_SWEEP_MIN) {
            self.settings.retain(|settings, _| Arc::strong_count(settings) > 1);
            self.sweep_at = self.settings.len() * 2;
            self.large_bytes = bytes;
        } else if self.large_bytes > SETTINGS_SWEEP_BYTES {
            // Only the large ones go: the statements of other sessions hang on the numbers of theirs.
            self.settings.retain(|settings, _| Arc::strong_count(settings) > 1 || !is_large(settings.bytes()));
            self.large_bytes = bytes;
        }
    }
}

impl SharedContext {
    /// `seed`: of the process ids that clients are told.
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
            begun,
            no_statements: Arc::default(),
            awaiting_primary: AtomicU32::new(0),
            last_look: LastLook::default(),
            told: LoggedNotices::default(),
            settings: SharedSettings::default(),
            defaults: InternedDefaults::default(),
            stale: ConnStaleness {
                reloads: ConfigReloads(std::array::from_fn(|_| AtomicU64::new(0))),
                moves: MovedAddresses::default(),
            },
        }
    }

    /// One `ServerDefaults` for all that are the same. Those nobody uses are dropped as new ones come.
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

    /// Those of a connection whose server was not asked.
    pub fn unknown_defaults(&self) -> Arc<ServerDefaults> {
        self.defaults.unknown.clone()
    }

    /// One `SettingValues` for all sessions that asked for the same, and its number, never given twice. Those nobody uses are dropped as
    /// new ones come.
    pub fn intern_settings(&self, settings: SettingValues) -> (Arc<SettingValues>, u64) {
        self.settings.intern(settings)
    }
}

/// The facts and tables of one worker. See the module.
pub struct Context {
    pub id: WorkerId,
    pub shared: Arc<SharedContext>,
    pub(crate) program: Arc<dyn ProgramServices>,
    pub buffers: Rc<BufferPool>,
    pub(crate) statements: RefCell<StatementCache>,
    /// Parts of sessions that server connections come with, at rest.
    #[expect(clippy::vec_box, reason = "a box moves into its session and back as it is")]
    pub(crate) upstreams: RefCell<Vec<Box<UpstreamState>>>,
    /// Verdicts on functions, by database.
    pub(crate) functions: RefCell<FunctionCache>,
    pub(crate) places: RefCell<NameScopeNumbers>,
    /// How nodes answer.
    pub loads: NodeLoads,
    /// The stores of the network in which results are kept, if they are.
    pub(crate) store: Option<Rc<dyn ResultStore>>,
    /// Room in which keys of results are put together.
    pub(crate) scratch: RefCell<Vec<u8>>,
    no_settings: Arc<SettingValues>,
    /// The time of a round of the event loop, which sets it.
    clock: Rc<RoundClock>,
    snapshot: WorkerSnapshot,
    dice: RandomSource,
}

/// Configuration and view as this worker knows them.
struct WorkerSnapshot {
    config: RefCell<Arc<Config>>,
    view: RefCell<Arc<ClusterView>>,
    /// Moves when there is another configuration.
    config_edition: Cell<u64>,
    /// Some node but the primary may take reads.
    has_readers: Cell<bool>,
}

struct RandomSource {
    any: Cell<u64>,
    even: Cell<u32>,
}

/// Parts of a `Context` that the program makes.
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
        Context {
            id,
            program,
            buffers,
            statements: RefCell::new(StatementCache::new(config.clone(), u64::from(id) << 48, view_of)),
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
                config: RefCell::new(config),
                config_edition: Cell::new(0),
            },
            dice: RandomSource { any: Cell::new(seed | 1), even: Cell::new(seed as u32) },
            shared,
        }
    }

    /// Takes a configuration. True: it is another one than before.
    pub fn set_config(&self, config: Arc<Config>) -> bool {
        let WorkerSnapshot { config: known, config_edition, has_readers, .. } = &self.snapshot;
        if Arc::ptr_eq(&config, &known.borrow()) {
            return false;
        }
        self.statements.borrow_mut().reconfigure(config.clone());
        has_readers.set(config.may_spread());
        *known.borrow_mut() = config;
        config_edition.set(config_edition.get() + 1);
        true
    }

    pub fn set_view(&self, view: Arc<ClusterView>) {
        *self.snapshot.view.borrow_mut() = view;
        self.loads.refresh();
    }

    /// The time of this round of the event loop.
    #[inline]
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    pub fn config(&self) -> Arc<Config> {
        self.snapshot.config.borrow().clone()
    }

    /// Moves when there is another configuration.
    #[inline]
    pub fn config_edition(&self) -> u64 {
        self.snapshot.config_edition.get()
    }

    /// The configuration, for a look that awaits nothing.
    #[inline]
    pub fn peek_config(&self) -> Ref<'_, Arc<Config>> {
        self.snapshot.config.borrow()
    }

    #[inline]
    pub fn view(&self) -> Ref<'_, Arc<ClusterView>> {
        self.snapshot.view.borrow()
    }

    /// True if some node but the primary may take reads: only then catalogs are asked.
    #[inline]
    pub fn has_readers(&self) -> bool {
        self.snapshot.has_readers.get()
    }

    pub fn no_settings(&self) -> Arc<SettingValues> {
        self.no_settings.clone()
    }

    /// No session of this worker uses the database any more.
    pub fn forget_functions(&self, database: &str) {
        self.functions.borrow_mut().forget(database);
    }

    /// A random word: xorshift, good enough to spread reads.
    pub fn dice(&self) -> u32 {
        let mut x = self.dice.any.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.dice.any.set(x);
        (x >> 32) as u32
    }

    /// A word of a sequence that fills its range evenly: shares are near the weights after a few throws.
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

    /// This worker's counters.
    #[inline]
    pub fn counters(&self) -> &WorkerCounters {
        &self.shared.counters[usize::from(self.id)]
    }

    pub fn count_read(&self, node: u16) {
        self.counters().count_read(node);
    }

    /// A time as milliseconds since the start of the proxy, for others to read.
    #[inline]
    pub fn millis(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.shared.begun).as_millis() as u64
    }

    /// The time of this round of the event loop.
    #[inline]
    pub fn now_us(&self) -> Us {
        self.clock.now_us()
    }

    /// The same in milliseconds.
    #[inline]
    pub fn now_ms(&self) -> u64 {
        self.now_us() / 1000
    }

    /// True if the node with this number is the primary, as far as this worker knows.
    #[inline]
    pub fn is_primary(&self, node: u16) -> bool {
        self.view().is_primary(node)
    }

    /// The number of the node that is the primary now.
    pub fn primary_node(&self) -> Option<u16> {
        self.view().primary_id()
    }

    /// Something of a database may have changed: no one relies on the knowledge of it until it has been looked at.
    pub fn note_change(&self, database: &Arc<KnownDatabase>) {
        database.note_change();
        self.program.look_at(database);
    }

    /// Somebody wants to know of writes past us to a database: from now on its log is taken in, if it is to be.
    #[inline]
    pub fn follow(&self, database: &Arc<KnownDatabase>) {
        if self.peek_config().cache.follows_wal && !database.follow.is_watched() {
            self.follow_log(database);
        }
    }

    #[cold]
    fn follow_log(&self, database: &Arc<KnownDatabase>) {
        let versions = &self.shared.changes.versions;
        if database.follow.want(versions.of_database(&database.name), versions) {
            self.shared.positions.follow();
            // The node monitor may sleep with a round wanted that nobody had a use for.
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
