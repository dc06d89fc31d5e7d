//! The world of sessions: configuration, cluster, catalog, time, and server connections at rest.

use super::catalog::catalog;
use super::log::{Action, Log};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Arguments;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};
use weir_cache::{LogFollowerState, PositionRound, TxidSnapshot, WalHistory};
use weir_config::{Config, SslMode};
use weir_failover::ServerConnEnd;
use weir_failover::cluster::{ClusterView, RoleProbeResult};
use weir_io::buffers::BufferPool;
use weir_io::clock::RoundClock;
use weir_session::account::Account;
use weir_session::catalogs::KnownDatabase;
use weir_session::causal::standbys::{ReplayLag, RoundCoverage, StandbyProgress};
use weir_session::conn::{
    Conn, ConnBreaker, ConnHold, ConnStatus, ConnTerms, LastStatement, ServerAddress, ServerLine, TextInterpretation,
};
use weir_session::context::{Context, ContextParts, SharedContext};
use weir_session::host::{Level, LogField, LogOrigin, ProgramServices, ProxyShutdown, RoleCheckReason, SessionSignal};
use weir_session::prepared::ServerStatements;
use weir_session::reports::ReportedParameters;
use weir_session::sequences::drawn_values::DrawCount;
use weir_session::session_state::conn_settings::ConnSettings;
use weir_session::session_state::listen::listen_hub::NotificationHub;
use weir_session::sharding::shard_target::ENGINE;
use weir_session::task::WorkerId;
use weir_shard::{EngineReadiness, KeyColumn, PartitionRow, PartitionRowKind, ShardTables};
use weir_sql::facts::QualifiedName;
use weir_wire::startup_packet::ProtocolVersion;

/// The primary takes no reads, so that the node of a read does not hang on dice.
const CONFIG: &str = "
    backend_hostname0 = 'a'
    backend_port0 = 1
    backend_weight0 = 0
    causal_reads = off
    log_min_messages = log
";

/// Parameters that servers report when a connection begins.
const REPORTED: &[(&str, &str)] = &[
    ("application_name", ""),
    ("client_encoding", "UTF8"),
    ("DateStyle", "ISO, MDY"),
    ("default_transaction_read_only", "off"),
    ("integer_datetimes", "on"),
    ("IntervalStyle", "postgres"),
    ("is_superuser", "off"),
    ("server_encoding", "UTF8"),
    ("server_version", "15.4"),
    ("session_authorization", "joe"),
    ("standard_conforming_strings", "on"),
    ("TimeZone", "UTC"),
];

/// The program around sessions: it writes down what it is asked to do.
pub struct Recorder {
    pub log: Log,
    pub stop: AtomicU8,
    pub has_clients: AtomicBool,
}

impl ProgramServices for Recorder {
    fn log(&self, level: Level, who: &LogOrigin<'_>, text: Arguments<'_>, _: &[(&str, LogField<'_>)]) {
        if level != Level::Debug1 {
            let who = if who.user.is_empty() { String::new() } else { format!("{}@{} ", who.user, who.database) };
            self.log.other(None, format!("logs {level:?}: {who}{text}"));
        }
    }

    fn look(&self, why: RoleCheckReason) {
        self.log.other(None, format!("has the nodes looked at: {why:?}"));
    }

    fn conn_died(&self, node: u16, how: ServerConnEnd) {
        self.log.other(None, format!("tells that node {node} ended a connection: {how:?}"));
    }

    fn sample(&self) {
        self.log.other(None, "has positions asked for".into());
    }

    fn look_at(&self, database: &Arc<KnownDatabase>) {
        self.log.other(None, format!("has the catalog of {} read", database.name));
    }

    fn follow(&self, database: &Arc<KnownDatabase>) {
        self.log.other(None, format!("has the log of {} followed", database.name));
    }

    fn stop_mode(&self) -> ProxyShutdown {
        match self.stop.load(Ordering::Relaxed) {
            0 => ProxyShutdown::No,
            1 => ProxyShutdown::Smart,
            2 => ProxyShutdown::Fast,
            _ => ProxyShutdown::Immediate,
        }
    }

    fn has_clients_of(&self, _: &str) -> bool {
        self.has_clients.load(Ordering::Relaxed)
    }

    fn signal(&self, worker: WorkerId, pid: u32, signal: SessionSignal) {
        self.log.other(None, format!("signals session {pid} of worker {worker}: {signal:?}"));
    }
}

#[derive(Debug)]
struct NoBreaker;

impl ConnBreaker for NoBreaker {
    fn shut(&self) {}
}

/// Server connections that no session has, and what hosts share.
#[allow(clippy::vec_box, reason = "a session takes a connection in its box")]
pub struct Pool {
    pub idle: RefCell<BTreeMap<u16, Vec<Box<Conn>>>>,
    /// Connections that are being cleaned.
    pub resets: RefCell<Vec<Box<Conn>>>,
    /// Connections that may still be opened, by node; as many as are wanted if it is not there.
    pub room: RefCell<BTreeMap<u16, usize>>,
    /// Nodes that let nobody in.
    pub refusing: RefCell<Vec<u16>>,
    pub hub: Rc<NotificationHub>,
    /// By task: it runs once more.
    pub again: RefCell<Vec<Rc<Cell<bool>>>>,
    pub log: Log,
    /// How servers read texts on connections that are opened from now on.
    pub begins: Cell<TextInterpretation>,
    serials: Cell<u64>,
}

/// See the module.
pub struct World {
    pub w: Rc<Context>,
    pub program: Arc<Recorder>,
    pub pool: Rc<Pool>,
    pub account: Rc<Account>,
    pub log: Log,
    pub clock: Rc<RoundClock>,
    pub config: Arc<Config>,
}

/// The name that texts call a connection by.
pub fn name_of(conn: &Conn) -> String {
    let status = &conn.status;
    match place_of(conn) {
        ENGINE => format!("engine#{}", status.serial),
        node => format!("node{node}#{}", status.serial),
    }
}

/// The node of a connection, or `ENGINE`.
fn place_of(conn: &Conn) -> u16 {
    let address = &conn.status.address;
    if address.shard == ENGINE { ENGINE } else { address.node }
}

/// Views of SHOW: one.
pub fn view_of(name: &str) -> Option<usize> {
    (name == "pool_test").then_some(0)
}

impl World {
    /// `lines` are added to the configuration; `standbys` to the primary.
    pub fn new(lines: &str, standbys: u16, buffer_bytes: usize) -> World {
        World::of(Arc::new(config(lines, standbys)), standbys, buffer_bytes)
    }

    pub fn of(config: Arc<Config>, standbys: u16, buffer_bytes: usize) -> World {
        let log = Log::default();
        let begun = Instant::now();
        let clock = Rc::new(RoundClock::new(begun));
        clock.set(begun + Duration::from_secs(100));
        let stop = AtomicU8::new(0);
        let program = Arc::new(Recorder { log: log.clone(), stop, has_clients: AtomicBool::new(true) });
        let mut view = ClusterView::new(&config, None, 0);
        for at in 0..view.nodes.len() {
            view.step(at, &RoleProbeResult::Answered { in_recovery: at > 0, lag_bytes: None }, 0);
        }
        let w = Rc::new(Context::new(ContextParts {
            id: 0,
            shared: Arc::new(SharedContext::new(&config, 2, begun, 0)),
            program: program.clone(),
            buffers: Rc::new(BufferPool::new(buffer_bytes)),
            store: None,
            config: config.clone(),
            view: Arc::new(view),
            clock: clock.clone(),
            seed: 7,
            view_of,
        }));
        let account = account(&w, &config, clock.now());
        let names = (account.user.clone(), account.client_database.clone(), account.database.clone());
        let pool = Rc::new(Pool {
            idle: RefCell::default(),
            resets: RefCell::default(),
            room: RefCell::default(),
            refusing: RefCell::default(),
            hub: Rc::new(NotificationHub::new(names, [0; 8])),
            again: RefCell::default(),
            log: log.clone(),
            begins: Cell::default(),
            serials: Cell::new(0),
        });
        let world = World { w, program, pool, account: Rc::new(account), log, clock, config };
        world.publish_catalog();
        world.w.shared.positions.note_primary(0, world.w.view().primary_since);
        world.begin_lives(standbys);
        world.replay(&(1..=standbys).collect::<Vec<_>>());
        world
    }

    /// Makes the knowledge of the database true again.
    pub fn publish_catalog(&self) {
        let known = &self.account.known;
        let edition = self.w.shared.catalogs.next_edition();
        known.publish(edition, Some(catalog(&self.config)), known.changes());
        if self.config.sharding.is_on {
            let defined = known.sharding.readers_before_look();
            known.sharding.publish(sharded_tables());
            known.sharding.note_readers_read(defined);
        }
        known.tried();
    }

    fn begin_lives(&self, standbys: u16) {
        for node in 1..=standbys {
            self.w.shared.positions.begin_life(node);
            self.w.shared.positions.answered(node, 1_000_000_000_000);
        }
    }

    /// The primary is asked for its position, and these standbys have replayed all up to it.
    pub fn replay(&self, standbys: &[u16]) {
        let positions = &self.w.shared.positions;
        let round = positions.begin_round();
        positions.answer_round(round);
        for node in standbys {
            let mark = StandbyProgress { covers: RoundCoverage { primary: round, standbys: round }, lag: ReplayLag::Nothing };
            positions.publish(*node, mark, self.w.now_ms());
        }
        positions.take_waiters(|(_, task)| self.pool.wake(task));
    }

    /// The primary is asked for its position, and its log is taken in up to it.
    pub fn take_in_log(&self) {
        let (positions, follow) = (&self.w.shared.positions, &self.account.known.follow);
        let history = WalHistory { node: 0, system: 1, timeline: 1 };
        let number = positions.begin_round();
        positions.answer_round(number);
        if !matches!(follow.standing(), Some((LogFollowerState::Following(_), ..))) {
            follow.start(history, 0, number);
        }
        let snapshot = TxidSnapshot::parse("5:5:").expect("a snapshot in a server's words");
        follow.round(&PositionRound { number, history, position: number, snapshot, asked_ms: self.w.now_ms() });
        follow.reach(number);
        positions.take_waiters(|(_, task)| self.pool.wake(task));
    }

    /// A probe of a node found this.
    pub fn probe(&self, node: usize, probe: &RoleProbeResult) {
        let mut view = (**self.w.view()).clone();
        view.step(node, probe, 1);
        self.w.set_view(Arc::new(view));
    }

    pub fn pass(&self, time: Duration) {
        self.clock.set(self.clock.now() + time);
    }

    /// A server connection is there at rest.
    pub fn rest(&self, node: u16) {
        if let Some(conn) = self.pool.open(&self.w, node) {
            self.pool.put(conn);
        }
    }

    /// Connections that were to be cleaned are clean, and at rest.
    pub fn finish_resets(&self) {
        for mut conn in self.pool.resets.take() {
            conn.settings.set(self.w.no_settings());
            conn.by_sql = self.w.shared.no_statements.clone();
            conn.known = ServerStatements::default();
            conn.unnamed = None;
            conn.draws = conn.draws.forget();
            conn.reported = reported();
            self.pool.put(conn);
        }
    }
}

impl Pool {
    pub fn put(&self, conn: Box<Conn>) {
        self.idle.borrow_mut().entry(place_of(&conn)).or_default().push(conn);
    }

    /// Opens a connection, if there is room.
    pub fn open(&self, w: &Context, node: u16) -> Option<Box<Conn>> {
        if let Some(room) = self.room.borrow_mut().get_mut(&node) {
            *room = room.checked_sub(1)?;
        }
        self.serials.set(self.serials.get() + 1);
        let mut conn = Box::new(conn(w, node, self.serials.get()));
        (conn.begins, conn.reads) = (self.begins.get(), self.begins.get());
        Some(conn)
    }

    pub fn wake(&self, task: u32) {
        if let Some(again) = self.again.borrow().get(task as usize) {
            again.set(true);
        }
    }

    pub fn act(&self, client: char, what: Action) {
        self.log.act(Some(client), what);
    }
}

pub fn config(lines: &str, standbys: u16) -> Config {
    let mut text = CONFIG.to_owned();
    for node in 1..=standbys {
        text.push_str(&format!("backend_hostname{node} = 'a'\nbackend_port{node} = {}\nbackend_weight{node} = 1\n", node + 1));
    }
    text.push_str(lines);
    let read = weir_config::read(Path::new("test"), &mut |_| Ok(text.clone().into_bytes()));
    read.config.unwrap_or_else(|| panic!("{:?}", read.problems))
}

/// The rows of `a` and `b` lie on shards 0 and 1, by the hash of `id`; `u` is on all. The engine is ready.
fn sharded_tables() -> ShardTables {
    let named = |name: &str| QualifiedName { schema: "public".into(), name: name.into() };
    let half = |name: &str, shard: u16| PartitionRow {
        table: named(name),
        kind: PartitionRowKind::Partition {
            key: Some(KeyColumn { name: "id".into(), type_oid: 23, modifier: -1, is_deterministic: true, is_c: true }),
            columns: vec!["id".into(), "n".into()],
            bound: format!("FOR VALUES WITH (modulus 2, remainder {shard})"),
            shard: Some(shard),
        },
        database: "db".into(),
    };
    let reference = PartitionRow { table: named("u"), kind: PartitionRowKind::Reference, database: "db".into() };
    let rows = [half("a", 0), half("a", 1), half("b", 0), half("b", 1), reference];
    ShardTables::of_rows("db", &rows, Vec::new(), &[0, 1]).with_engine(EngineReadiness::Ready { node: 0 })
}

fn account(w: &Context, config: &Config, now: Instant) -> Account {
    let (user, database): (Arc<str>, Arc<str>) = ("joe".into(), "db".into());
    Account {
        client_user: user.clone(),
        client_database: database.clone(),
        user: user.clone(),
        database: database.clone(),
        connect_query: Arc::default(),
        stats: Arc::default(),
        limits: Cell::new(weir_config::limits::of(config, &user, &database)),
        known: w.shared.catalogs.database(&database, now),
        number: Cell::default(),
    }
}

fn reported() -> ReportedParameters {
    let mut reports = ReportedParameters::default();
    for (name, value) in REPORTED {
        reports.note(&[name.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat()).expect("they are few");
    }
    reports
}

fn conn(w: &Context, node: u16, serial: u64) -> Conn {
    let (node, shard) = if node == ENGINE { (0, ENGINE) } else { (node, w.peek_config().sharding.shard_of(node)) };
    let address =
        ServerAddress { node, shard, hostname: "a".into(), port: node + 1, connect_timeout_ms: 1000, ssl_mode: SslMode::Auto };
    let status = ConnStatus {
        serial,
        address,
        pid: 1000 + serial as u32,
        key: Box::from([1, 2, 3, 4]),
        opened_at: SystemTime::UNIX_EPOCH,
        generation: w.view().generation,
        session: AtomicU32::new(0),
        uses: AtomicU64::new(0),
        keeping: ConnHold::default(),
        doomed: AtomicBool::new(false),
        last: LastStatement::default(),
        prepared: AtomicU32::new(0),
        terms: ConnTerms { version: "15.4".into(), protocol: ProtocolVersion::V3_0, is_encrypted: false },
        given_up: AtomicBool::new(false),
        breaker: Box::new(NoBreaker),
    };
    Conn {
        known: ServerStatements::default(),
        unnamed: None,
        settings: ConnSettings::new(w.no_settings()),
        defaults: w.shared.unknown_defaults(),
        reloads: 0,
        by_sql: w.shared.no_statements.clone(),
        draws: DrawCount { serial, count: 0, forgotten: 0 },
        reported: reported(),
        begins: TextInterpretation::default(),
        reads: TextInterpretation::default(),
        opened_us: w.now().saturating_duration_since(w.shared.begun).as_micros() as u64,
        life: Cell::new(0),
        rested_at: Cell::new(w.now_us()),
        line: ServerLine::default(),
        status: Arc::new(status),
    }
}
