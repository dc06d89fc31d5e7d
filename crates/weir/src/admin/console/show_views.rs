//! The console's SHOW commands: one row of `VIEWS` each. Columns and their types are those of PgBouncer 1.25, in its order;
//! those whose names begin with `pool_` are Weir's.

use super::table::ResultTable;
use crate::admin::acts;
use crate::admin::console::language::{ConsoleCommand, settings, shown};
use crate::admin::listing::{
    AnyListing, ColumnHead, ListAsker, ListCell, ListColumn, ListSnapshot, Listing, int, listing, long, numeric, open,
};
use crate::admin::views::pgpool::{self, NodeRow};
use crate::admin::views::{POOL_AGENTS, POOL_FAILOVER, POOL_RECOVERY, POOL_STATEMENTS, POOL_WATCHDOG};
use crate::log::utc;
use crate::runtime::pool::ConnPool;
use crate::runtime::pool::server_conn::{ConnStatus, ServerConn};
use crate::runtime::shared::{SharedState, seconds};
use crate::runtime::worker::Worker;
use crate::server::connection_list::{ConnectionGroup, conns, groups};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use weir_config::params::ParamContext;
use weir_config::visibility::Viewer;
use weir_config::{self as config, PoolMode, limits};
use weir_session::session::Session;
use weir_session::stats::{StatCounter, StatPeriod, StatTotals};
use weir_session::status::{SessionActivity, SessionStatus};

/// The lists, by their names after SHOW. Whoever gets in sees the lists of statistics.
pub const VIEWS: &[(&str, &dyn AnyListing)] = &[
    ("active_sockets", &ACTIVE_SOCKETS),
    ("clients", &CLIENTS),
    ("config", &CONFIG),
    ("databases", &DATABASES),
    ("dns_hosts", &DNS_HOSTS),
    ("dns_zones", &DNS_ZONES),
    ("lists", &LISTS),
    ("mem", &MEMORY),
    ("peer_pools", &PEER_POOLS),
    ("peers", &PEERS),
    ("pool_agents", &POOL_AGENTS),
    ("pool_failover", &POOL_FAILOVER),
    ("pool_nodes", &POOL_NODES),
    ("pool_recovery", &POOL_RECOVERY),
    ("pool_statements", &POOL_STATEMENTS),
    ("pool_watchdog", &POOL_WATCHDOG),
    ("pools", &POOLS),
    ("servers", &SERVERS),
    ("sockets", &SOCKETS),
    ("state", &STATE),
    ("stats", &STATS),
    ("stats_averages", &STATS_AVERAGES),
    ("stats_totals", &STATS_TOTALS),
    ("totals", &TOTALS),
    ("users", &USERS),
    ("version", &VERSION),
];

/// Server settings that drivers ask for, spelled as in PgBouncer.
const FAKES: [(&str, &str); 6] = [
    ("client_encoding", "UTF-8"),
    ("default_transaction_isolation", "read committed"),
    ("standard_conforming_strings", "on"),
    ("datestyle", "ISO"),
    ("timezone", "GMT"),
    ("extra_float_digits", "2"),
];

fn list_of(name: &str) -> Option<&'static dyn AnyListing> {
    VIEWS.iter().find(|(known, _)| *known == name).map(|(_, list)| *list)
}

/// `None`: no answer with columns.
pub fn columns_of(command: &ConsoleCommand) -> Option<Vec<ColumnHead>> {
    let ConsoleCommand::Show(name) = command else { return None };
    list_of(name).map(|list| list.heads()).or_else(|| fake(name).map(|(name, _)| vec![fake_column(name).head()]))
}

/// The answer to SHOW, as far as the viewer may see it; `None`: there is no such list.
pub fn table_of(w: &Worker, name: &str, viewer: &Viewer) -> Option<ResultTable> {
    if let Some(list) = list_of(name) {
        let asker = ListAsker { spare_buffers: w.reactor.buffers.kept(), ..ListAsker::default() };
        let rows = list.rows(&ListSnapshot::new(&w.shared, viewer, asker));
        return Some(ResultTable { columns: list.heads(), rows });
    }
    let (name, value) = fake(name)?;
    Some(ResultTable { columns: vec![fake_column(name).head()], rows: vec![vec![value.into()]] })
}

pub fn fake(name: &str) -> Option<(&'static str, &'static str)> {
    FAKES.iter().copied().find(|(known, _)| *known == name)
}

fn fake_column(name: &'static str) -> ListColumn<&'static str> {
    open(name, |value| (*value).into())
}

pub fn names() -> String {
    let mut names: Vec<String> = VIEWS.iter().map(|(name, _)| name.to_ascii_uppercase()).collect();
    names.push("HELP".into());
    names.join("|")
}

/// The list that is asked for when no server is up, and nobody else can log in. Beside Pgpool-II's columns, why a node is down.
const POOL_NODES: Listing<NodeRow> =
    listing(pgpool::nodes).columns(&[pgpool::NODE_COLUMNS, &[open("cause", |node| node.cause.as_ref().into())]]);

const VERSION: Listing<()> = listing(|_| vec![()]).columns(&[&[open("version", |()| version().into())]]);

/// Programs look for the name of PgBouncer's console at the begin.
fn version() -> String {
    format!("PgBouncer 1.25.0 console of Weir {}", crate::VERSION)
}

/// Columns of PgBouncer's without an equal in Weir.
const DNS_HOSTS: Listing<()> = nothing(&[&[open("hostname", none), long("ttl", none), open("addrs", none)]]);
const DNS_ZONES: Listing<()> = nothing(&[&[open("zonename", none), long("serial", none), int("count", none)]]);
const PEERS: Listing<()> = nothing(&[&[int("peer_id", none), open("host", none), int("port", none), int("pool_size", none)]]);
#[rustfmt::skip] // a list of names reads better in lines
const PEER_POOLS: Listing<()> = nothing(&[&[
    int("peer_id", none), int("cl_active_cancel_req", none), int("cl_waiting_cancel_req", none), int("sv_active_cancel", none),
    int("sv_login", none),
]]);

const fn nothing(columns: &'static [&'static [ListColumn<()>]]) -> Listing<()> {
    listing(|_| Vec::new()).columns(columns)
}

fn none<R>(_: &R) -> ListCell {
    ListCell::Null
}

/// Counts of PgBouncer's without an equal in Weir.
fn zero<R>(_: &R) -> ListCell {
    0_u64.into()
}

fn empty<R>(_: &R) -> ListCell {
    ListCell::Empty
}

/// NULL for what is not there.
fn or_null(value: Option<impl Into<ListCell>>) -> ListCell {
    value.map_or(ListCell::Null, Into::into)
}

/// A time in seconds since 1970.
fn stamp(at_s: u64) -> ListCell {
    format!("{} UTC", utc(at_s)).into()
}

/// A time in milliseconds since the start, in seconds since 1970; `otherwise` when it never came.
fn at_s(shared: &SharedState, at_ms: u64, otherwise: u64) -> u64 {
    if at_ms == 0 { otherwise } else { pgpool::at_s(shared, at_ms) }
}

fn address(serial: u64) -> String {
    format!("{serial:#x}")
}

/// The side of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ConnectionSide {
    Client,
    Server,
}

/// A client's connection, or one to a server.
struct ConnectionRow {
    side: ConnectionSide,
    user: Arc<str>,
    database: Arc<str>,
    state: &'static str,
    host: String,
    port: u16,
    local_host: String,
    local_port: u16,
    connected_at_s: u64,
    requested_at_s: u64,
    waits: Duration,
    is_doomed: bool,
    serial: u64,
    /// The connection on the other side.
    partner: Option<u64>,
    server_pid: u32,
    application: Option<Arc<str>>,
    prepared: u32,
    id: u64,
}

const CONNECTIONS: &[ListColumn<ConnectionRow>] = &[
    open("type", |row| if row.side == ConnectionSide::Client { "C" } else { "S" }.into()),
    open("user", |row| (&row.user).into()),
    open("database", |row| (&row.database).into()),
    open("replication", |_| "none".into()),
    open("state", |row| row.state.into()),
    open("addr", |row| (&row.host).into()),
    int("port", |row| row.port.into()),
    open("local_addr", |row| (&row.local_host).into()),
    int("local_port", |row| row.local_port.into()),
    open("connect_time", |row| stamp(row.connected_at_s)),
    open("request_time", |row| stamp(row.requested_at_s)),
    int("wait", |row| row.waits.as_secs().into()),
    int("wait_us", |row| row.waits.subsec_micros().into()),
    int("close_needed", |row| row.is_doomed.into()),
    open("ptr", |row| address(row.serial).into()),
    open("link", |row| row.partner.map(address).into()),
    int("remote_pid", |row| row.server_pid.into()),
    open("tls", empty),
    open("application_name", |row| row.application.as_ref().into()),
    int("prepared_statements", |row| row.prepared.into()),
    int("id", |row| row.id.into()),
];

/// PgBouncer's buffer positions, always 0 here.
#[rustfmt::skip]
const POSITIONS: &[ListColumn<ConnectionRow>] = &[
    int("recv_pos", zero), int("pkt_pos", zero), int("pkt_remain", zero), int("send_pos", zero), int("send_remain", zero),
    int("pkt_avail", zero), int("send_avail", zero),
];

const CLIENTS: Listing<ConnectionRow> = listing(clients).columns(&[CONNECTIONS]);

const SERVERS: Listing<ConnectionRow> = listing(servers).columns(&[CONNECTIONS]);

const SOCKETS: Listing<ConnectionRow> = listing(|of| sockets(of).map(named).collect()).columns(&[CONNECTIONS, POSITIONS]);

const ACTIVE_SOCKETS: Listing<ConnectionRow> =
    listing(|of| sockets(of).filter(|row| row.state != "idle").map(named).collect()).columns(&[CONNECTIONS, POSITIONS]);

fn clients(of: &ListSnapshot<'_>) -> Vec<ConnectionRow> {
    let by_session: BTreeMap<u32, u64> = conns(of.shared)
        .iter()
        .map(|(_, status)| (status.session.load(Ordering::Relaxed), status.serial))
        .filter(|(pid, _)| *pid > 0)
        .collect();
    let row = |status: Arc<SessionStatus>| client_row(of, &status, by_session.get(&status.pid).copied());
    of.shared.session_statuses.all().into_iter().map(row).collect()
}

fn client_row(of: &ListSnapshot<'_>, status: &SessionStatus, conn: Option<u64>) -> ConnectionRow {
    let waiting_since = Duration::from_millis(status.waiting_ms.load(Ordering::Relaxed));
    let (state, waits) = match (status.doing(), conn) {
        (SessionActivity::WaitingForConnection, _) => ("waiting", of.shared.begun.elapsed().saturating_sub(waiting_since)),
        (_, Some(_)) => ("active", Duration::ZERO),
        (SessionActivity::Idle | SessionActivity::IdleInTransaction | SessionActivity::Executing, None) => {
            ("idle", Duration::ZERO)
        }
    };
    let (is_local, port) = (status.client_port() == 0, of.config.port);
    ConnectionRow {
        side: ConnectionSide::Client,
        user: status.user.clone(),
        database: status.database.clone(),
        state,
        host: if is_local { "unix".into() } else { status.client_host() },
        port: if is_local { port } else { status.client_port() },
        local_host: if is_local { "unix".into() } else { status.local_host() },
        local_port: port,
        connected_at_s: status.connected_at_s(),
        requested_at_s: at_s(of.shared, status.active_ms.load(Ordering::Relaxed), status.connected_at_s()),
        waits,
        is_doomed: false,
        serial: u64::from(status.pid),
        partner: conn,
        server_pid: 0,
        application: Some(status.application.clone()),
        prepared: status.prepared.load(Ordering::Relaxed),
        id: u64::from(status.pid),
    }
}

fn servers(of: &ListSnapshot<'_>) -> Vec<ConnectionRow> {
    conns(of.shared).iter().map(|(pool, status)| server_row(of.shared, pool, status)).collect()
}

fn server_row(shared: &SharedState, pool: &ConnPool, status: &ConnStatus) -> ConnectionRow {
    let pid = status.session.load(Ordering::Relaxed);
    let session = shared.session_statuses.get(pid);
    let opened_at_s = seconds(status.opened_at);
    ConnectionRow {
        side: ConnectionSide::Server,
        user: pool.key.user.clone(),
        database: pool.key.client_database.clone(),
        state: if pid > 0 { "active" } else { "idle" },
        host: status.address.hostname.clone(),
        port: status.address.port,
        local_host: String::new(),
        local_port: 0,
        connected_at_s: opened_at_s,
        requested_at_s: at_s(shared, status.last.began_ms.load(Ordering::Relaxed), opened_at_s),
        waits: Duration::ZERO,
        is_doomed: status.doomed.load(Ordering::Relaxed),
        serial: status.serial,
        partner: session.as_ref().map(|_| u64::from(pid)),
        server_pid: status.pid,
        application: session.map(|session| session.application.clone()),
        prepared: status.prepared.load(Ordering::Relaxed),
        // Worker and number in 31 bits: unique until a worker has opened 2^24 server connections.
        id: ((status.serial >> 48) << 24) | (status.serial & 0xff_ffff),
    }
}

/// Clients and servers in one list.
fn sockets(of: &ListSnapshot<'_>) -> impl Iterator<Item = ConnectionRow> {
    clients(of).into_iter().chain(servers(of))
}

/// The state with the side it is of. A client that only lacks a server connection counts among the active ones there.
fn named(row: ConnectionRow) -> ConnectionRow {
    let state = match (row.side, row.state) {
        (ConnectionSide::Client, "waiting") => "cl_waiting",
        (ConnectionSide::Client, _) => "cl_active",
        (ConnectionSide::Server, "idle") => "sv_idle",
        (ConnectionSide::Server, _) => "sv_active",
    };
    ConnectionRow { state, ..row }
}

/// A user and database.
struct GroupRow {
    database: Arc<str>,
    user: Arc<str>,
    group: ConnectionGroup,
    mode: PoolMode,
}

const POOLS: Listing<GroupRow> =
    listing(|of| groups(of.shared).into_iter().map(|(whose, group)| group_row(of, whose, group)).collect()).columns(&[&[
        open("database", |row| (&row.database).into()),
        open("user", |row| (&row.user).into()),
        int("cl_active", |row| row.group.clients.into()),
        int("cl_waiting", |row| row.group.waiting.into()),
        int("cl_active_cancel_req", zero),
        int("cl_waiting_cancel_req", zero),
        int("sv_active", |row| (row.group.conns.active + row.group.conns.kept).into()),
        int("sv_active_cancel", zero),
        int("sv_being_canceled", zero),
        int("sv_idle", |row| row.group.conns.idle.into()),
        int("sv_used", zero),
        int("sv_tested", |row| row.group.conns.cleaning.into()),
        int("sv_login", |row| row.group.conns.opening.into()),
        int("maxwait", |row| row.group.waits.as_secs().into()),
        int("maxwait_us", |row| row.group.waits.subsec_micros().into()),
        open("pool_mode", |row| mode(row.mode).into()),
        open("load_balance_hosts", none),
    ]]);

fn group_row(of: &ListSnapshot<'_>, (database, user): (Arc<str>, Arc<str>), group: ConnectionGroup) -> GroupRow {
    let is_console = *database == *of.config.admin.database;
    let mode = if is_console { PoolMode::Statement } else { limits::of(&of.config, &user, &database).mode };
    GroupRow { database, user, group, mode }
}

fn mode(mode: PoolMode) -> &'static str {
    match mode {
        PoolMode::Transaction => "transaction",
        PoolMode::Session => "session",
        PoolMode::Statement => "statement",
    }
}

/// A database that is used, closed or listed, or the console.
struct DatabaseRow {
    name: Arc<str>,
    host: Option<String>,
    port: u16,
    database: String,
    user: Option<String>,
    limits: limits::UserLimits,
    /// If it is not that of all.
    mode: Option<PoolMode>,
    open: u32,
    clients: usize,
    is_paused: bool,
    is_disabled: bool,
}

const DATABASES: Listing<DatabaseRow> = listing(databases).columns(&[&[
    open("name", |row| (&row.name).into()),
    open("host", |row| or_null(row.host.as_ref())),
    int("port", |row| row.port.into()),
    open("database", |row| (&row.database).into()),
    open("force_user", |row| or_null(row.user.as_ref())),
    int("pool_size", |row| row.limits.pool_size.into()),
    int("min_pool_size", |row| row.limits.pool_min.into()),
    int("reserve_pool_size", |row| row.limits.reserve.into()),
    int("server_lifetime", |row| (row.limits.on_release.conn_life_ms / 1000).into()),
    open("pool_mode", |row| or_null(row.mode.map(mode))),
    open("load_balance_hosts", none),
    int("max_connections", |row| row.limits.conns_per_database.into()),
    int("current_connections", |row| row.open.into()),
    int("max_client_connections", |row| row.limits.clients.per_database.into()),
    int("current_client_connections", |row| row.clients.into()),
    int("paused", |row| row.is_paused.into()),
    int("disabled", |row| row.is_disabled.into()),
]]);

fn databases(of: &ListSnapshot<'_>) -> Vec<DatabaseRow> {
    let statuses = of.shared.session_statuses.all();
    let row = |name: Arc<str>| {
        let clients = statuses.iter().filter(|status| status.database == name).count();
        database_row(of, name, clients)
    };
    acts::databases(of.shared).into_iter().map(row).collect()
}

fn database_row(of: &ListSnapshot<'_>, name: Arc<str>, clients: usize) -> DatabaseRow {
    let (config, closed) = (&of.config, &of.shared.pause_state);
    let view = of.shared.cluster.view.load();
    let is_console = *name == *config.admin.database;
    let node = view.primary.and_then(|at| view.nodes.get(at)).or(view.nodes.first()).filter(|_| !is_console);
    let (gate, entry) = (closed.own(&name), config.databases.get(&name).filter(|_| !is_console));
    // As for a user nobody has overridden anything for.
    let limits = limits::of(config, "", &name);
    DatabaseRow {
        host: node.map(|node| node.hostname.clone()),
        port: node.map_or(config.port, |node| node.port),
        database: entry.map_or(&*name, |entry| entry.database(&name)).to_string(),
        user: match entry.and_then(|entry| entry.user.as_deref()) {
            Some(user) => Some(user.to_string()),
            None => is_console.then(|| config.admin.database.clone()),
        },
        mode: if is_console { Some(PoolMode::Statement) } else { Some(limits.mode).filter(|mode| *mode != config.pool.mode) },
        limits,
        open: of.shared.pools.of_client_database(Some(&name)).iter().map(|pool| pool.counts().1).sum(),
        clients,
        is_paused: gate.paused || (closed.is_all_paused() && !is_console),
        is_disabled: gate.disabled,
        name,
    }
}

/// A user who is there, or has limits of its own.
struct UserRow {
    name: Arc<str>,
    limits: limits::UserLimits,
    /// Settings that differ from those of all.
    pool_size: Option<u32>,
    reserve: Option<u32>,
    mode: Option<PoolMode>,
    open: u32,
    clients: usize,
}

const USERS: Listing<UserRow> = listing(users).columns(&[&[
    open("name", |row| (&row.name).into()),
    open("pool_size", |row| row.pool_size.into()),
    open("reserve_pool_size", |row| row.reserve.into()),
    open("pool_mode", |row| or_null(row.mode.map(mode))),
    int("max_user_connections", |row| row.limits.conns_per_user.into()),
    int("current_connections", |row| row.open.into()),
    int("max_user_client_connections", |row| row.limits.clients.per_user.into()),
    int("current_client_connections", |row| row.clients.into()),
]]);

fn users(of: &ListSnapshot<'_>) -> Vec<UserRow> {
    let (statuses, pools, config) = (of.shared.session_statuses.all(), of.shared.pools.all(), &of.config);
    let limited = config.limits.overrides.iter().filter_map(|entry| entry.user()).map(Arc::from);
    let there = statuses.iter().map(|status| status.user.clone()).chain(pools.iter().map(|pool| pool.key.user.clone()));
    let names: BTreeSet<Arc<str>> = there.chain(limited).collect();
    let row = |name: Arc<str>| {
        let limits = limits::of(config, &name, "");
        UserRow {
            pool_size: Some(limits.pool_size).filter(|size| *size != config.pool.size),
            reserve: Some(limits.reserve).filter(|reserve| *reserve != config.limits.reserve),
            mode: Some(limits.mode).filter(|mode| *mode != config.pool.mode),
            limits,
            open: pools.iter().filter(|pool| pool.key.user == name).map(|pool| pool.counts().1).sum(),
            clients: statuses.iter().filter(|status| status.user == name).count(),
            name,
        }
    };
    names.into_iter().map(row).collect()
}

/// Kind of the numbers that a list with one of each shows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StatAggregate {
    Totals,
    Averages,
}

/// The numbers of a database.
struct StatRow {
    database: Arc<str>,
    totals: StatTotals,
    period: Arc<StatPeriod>,
    aggregate: StatAggregate,
}

const STATS: Listing<StatRow> = listing(|of| stats(of, StatAggregate::Totals)).columns(&[&[
    open("database", |row| (&row.database).into()),
    numeric("total_server_assignment_count", |row| row.total(StatCounter::Assignments)),
    numeric("total_xact_count", |row| row.total(StatCounter::Transactions)),
    numeric("total_query_count", |row| row.total(StatCounter::Statements)),
    numeric("total_received", |row| row.total(StatCounter::Received)),
    numeric("total_sent", |row| row.total(StatCounter::Sent)),
    numeric("total_xact_time", |row| row.total(StatCounter::TransactionUs)),
    numeric("total_query_time", |row| row.total(StatCounter::StatementUs)),
    numeric("total_wait_time", |row| row.total(StatCounter::WaitUs)),
    numeric("total_client_parse_count", |row| row.total(StatCounter::ClientParses)),
    numeric("total_server_parse_count", |row| row.total(StatCounter::ServerParses)),
    numeric("total_bind_count", |row| row.total(StatCounter::Binds)),
    numeric("avg_server_assignment_count", |row| row.average(StatCounter::Assignments)),
    numeric("avg_xact_count", |row| row.average(StatCounter::Transactions)),
    numeric("avg_query_count", |row| row.average(StatCounter::Statements)),
    numeric("avg_recv", |row| row.average(StatCounter::Received)),
    numeric("avg_sent", |row| row.average(StatCounter::Sent)),
    numeric("avg_xact_time", |row| row.average(StatCounter::TransactionUs)),
    numeric("avg_query_time", |row| row.average(StatCounter::StatementUs)),
    numeric("avg_wait_time", |row| row.average(StatCounter::WaitUs)),
    numeric("avg_client_parse_count", |row| row.average(StatCounter::ClientParses)),
    numeric("avg_server_parse_count", |row| row.average(StatCounter::ServerParses)),
    numeric("avg_bind_count", |row| row.average(StatCounter::Binds)),
]]);

const STATS_PART: &[&[ListColumn<StatRow>]] = &[&[
    open("database", |row| (&row.database).into()),
    numeric("server_assignment_count", |row| row.part(StatCounter::Assignments)),
    numeric("xact_count", |row| row.part(StatCounter::Transactions)),
    numeric("query_count", |row| row.part(StatCounter::Statements)),
    numeric("bytes_received", |row| row.part(StatCounter::Received)),
    numeric("bytes_sent", |row| row.part(StatCounter::Sent)),
    numeric("xact_time", |row| row.part(StatCounter::TransactionUs)),
    numeric("query_time", |row| row.part(StatCounter::StatementUs)),
    numeric("wait_time", |row| row.part(StatCounter::WaitUs)),
    numeric("client_parse_count", |row| row.part(StatCounter::ClientParses)),
    numeric("server_parse_count", |row| row.part(StatCounter::ServerParses)),
    numeric("bind_count", |row| row.part(StatCounter::Binds)),
]];

const STATS_TOTALS: Listing<StatRow> = listing(|of| stats(of, StatAggregate::Totals)).columns(STATS_PART);

const STATS_AVERAGES: Listing<StatRow> = listing(|of| stats(of, StatAggregate::Averages)).columns(STATS_PART);

/// Times, and the number of the timed things.
const TIMED: [(StatCounter, StatCounter); 3] = [
    (StatCounter::TransactionUs, StatCounter::Transactions),
    (StatCounter::StatementUs, StatCounter::Statements),
    (StatCounter::WaitUs, StatCounter::Assignments),
];

impl StatRow {
    fn total(&self, stat: StatCounter) -> ListCell {
        self.totals.get(stat).into()
    }

    fn average(&self, stat: StatCounter) -> ListCell {
        let grown = |stat| self.period.grown(&self.database, stat);
        let timed = TIMED.iter().find(|(time, _)| *time == stat).map(|(_, of)| grown(*of));
        average(grown(stat), timed, self.period.length_us).into()
    }

    fn part(&self, stat: StatCounter) -> ListCell {
        match self.aggregate {
            StatAggregate::Totals => self.total(stat),
            StatAggregate::Averages => self.average(stat),
        }
    }
}

fn stats(of: &ListSnapshot<'_>, aggregate: StatAggregate) -> Vec<StatRow> {
    let (totals, period) = (of.shared.stats.by_database(), Arc::new(of.shared.stats.period()));
    let row = |(database, totals)| StatRow { database, totals, period: period.clone(), aggregate };
    totals.into_iter().map(row).collect()
}

/// Average time per `count`; without a count, growth per second.
fn average(grown: u64, count: Option<u64>, period_us: u64) -> u64 {
    match count {
        Some(count) => grown.checked_div(count).unwrap_or(0),
        None => (u128::from(grown) * 1_000_000).checked_div(u128::from(period_us)).unwrap_or(0) as u64,
    }
}

/// A number with a name.
struct NamedNumber {
    name: &'static str,
    value: u64,
}

const TOTALS: Listing<NamedNumber> =
    listing(totals).columns(&[&[open("name", |row| row.name.into()), numeric("value", |row| row.value.into())]]);

/// All numbers of `SHOW STATS`, over all databases.
fn totals(of: &ListSnapshot<'_>) -> Vec<NamedNumber> {
    let rows = STATS.rows(of);
    let number = |cell: &ListCell| if let ListCell::Number(number) = cell { *number } else { 0 };
    let sum = |at: usize| rows.iter().map(|row| number(&row[at])).sum();
    STATS.heads().iter().enumerate().skip(1).map(|(at, head)| NamedNumber { name: head.name, value: sum(at) }).collect()
}

const LISTS: Listing<NamedNumber> =
    listing(lists).columns(&[&[open("list", |row| row.name.into()), int("items", |row| row.value.into())]]);

fn lists(of: &ListSnapshot<'_>) -> Vec<NamedNumber> {
    let shared = of.shared;
    let clients = shared.clients.connected.load(Ordering::Relaxed) as usize;
    let known = shared.session_statuses.all().len();
    let pools = groups(shared);
    let rows = [
        ("databases", acts::databases(shared).len()),
        ("users", pools.keys().map(|(_, user)| user).collect::<BTreeSet<_>>().len()),
        ("peers", 0),
        ("pools", pools.len()),
        ("peer_pools", 0),
        ("free_clients", 0),
        ("used_clients", clients),
        ("login_clients", clients.saturating_sub(known)),
        ("free_servers", 0),
        ("used_servers", conns(shared).len()),
        ("dns_names", 0),
        ("dns_zones", 0),
        ("dns_queries", 0),
        ("dns_pending", 0),
    ];
    rows.into_iter().map(|(name, count)| NamedNumber { name, value: count as u64 }).collect()
}

/// Things of one size.
struct MemoryRow {
    name: &'static str,
    size: usize,
    used: usize,
}

const MEMORY: Listing<MemoryRow> = listing(memory).columns(&[&[
    open("name", |row| row.name.into()),
    int("size", |row| row.size.into()),
    int("used", |row| row.used.into()),
    int("free", zero),
    long("memtotal", |row| (row.size * row.used).into()),
]]);

/// Of each client, server connection and pool, and of the process.
fn memory(of: &ListSnapshot<'_>) -> Vec<MemoryRow> {
    let rows = [
        ("client_cache", size_of::<Session>() + size_of::<SessionStatus>(), of.shared.session_statuses.all().len()),
        ("server_cache", size_of::<ServerConn>() + size_of::<ConnStatus>(), conns(of.shared).len()),
        ("pool_cache", size_of::<ConnPool>(), of.shared.pools.all().len()),
        ("iobuf_cache", of.config.memory_buffer_bytes, of.asker.spare_buffers),
        ("process", resident_bytes(), 1),
    ];
    rows.into_iter().map(|(name, size, used)| MemoryRow { name, size, used }).collect()
}

/// 0 if unknown.
fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<usize>().ok()).unwrap_or(0) * 1024
}

/// A state of all databases, and if it is so.
struct StateRow {
    key: &'static str,
    value: &'static str,
}

const STATE: Listing<StateRow> =
    listing(states).columns(&[&[open("key", |row| row.key.into()), open("value", |row| row.value.into())]]);

fn states(of: &ListSnapshot<'_>) -> Vec<StateRow> {
    let paused = of.shared.pause_state.is_all_paused();
    let suspended = of.shared.session_statuses.suspension.is_on();
    let states = [("active", !paused && !suspended), ("paused", paused), ("suspended", suspended)];
    states.into_iter().map(|(key, is_so)| StateRow { key, value: yes(is_so) }).collect()
}

fn yes(truth: bool) -> &'static str {
    if truth { "yes" } else { "no" }
}

/// A parameter under one of its names.
struct SettingRow {
    key: String,
    value: String,
    default: String,
    changeable: &'static str,
}

const CONFIG: Listing<SettingRow> = listing(configuration).about_parameters().columns(&[&[
    open("key", |row| (&row.key).into()),
    open("value", |row| (&row.value).into()),
    open("default", |row| (&row.default).into()),
    open("changeable", |row| row.changeable.into()),
]]);

/// Parameters in Weir's units, then PgBouncer's equivalent names in PgBouncer's units.
fn configuration(of: &ListSnapshot<'_>) -> Vec<SettingRow> {
    let mut rows = Vec::new();
    let is_theirs = |name: &str| settings().any(|(theirs, _)| theirs == name);
    let is_shown =
        |setting: &&config::ConfigSetting| setting.param.is_secret() || of.viewer.sees(setting.param.kind.visibility(), None);
    let settings_shown = || of.config.settings.iter().filter(is_shown);
    for setting in settings_shown().filter(|setting| !setting.param.hidden && !is_theirs(&setting.name())) {
        let default = setting.param.kind.show(setting.param.default);
        rows.push(setting_row(setting.name(), setting, setting.shown(), default));
    }
    for (theirs, ours) in settings() {
        if let Some(setting) = settings_shown().find(|setting| setting.param.name == ours) {
            let param = setting.param;
            let value = if param.is_secret() { setting.shown() } else { shown(param, &setting.raw) };
            rows.push(setting_row(theirs.to_string(), setting, value, shown(param, param.default)));
        }
    }
    rows
}

fn setting_row(key: String, setting: &config::ConfigSetting, value: String, default: String) -> SettingRow {
    let param = setting.param;
    let changeable = yes(matches!(param.applies, ParamContext::OnReload | ParamContext::PerSession));
    let default = if param.is_secret() { String::new() } else { default };
    SettingRow { key, value, default, changeable }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::listing::tests::check_list;

    #[test]
    fn every_list_has_a_cell_for_each_column() {
        VIEWS.iter().for_each(|(name, list)| assert!(check_list(name, *list) < 1000));
    }

    #[test]
    fn averages_are_per_second_or_per_thing() {
        assert_eq!(average(600, None, 60_000_000), 10);
        assert_eq!(average(600, None, 0), 0);
        assert_eq!(average(600, Some(200), 60_000_000), 3);
        assert_eq!(average(600, Some(0), 60_000_000), 0);
    }
}
