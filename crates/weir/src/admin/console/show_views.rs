//! The console's SHOW commands, one row of `VIEWS` each. Columns and types are those of PgBouncer 1.25; `pool_nodes` and `pool_agents` are
//! Weir's.

use super::table::{ResultColumn, ResultTable, ResultValue, Rows, int, long, numeric, text};
use crate::admin::acts;
use crate::admin::console::language::{ConsoleCommand, settings, shown};
use crate::admin::views;
use crate::log::utc;
use crate::runtime::agents_seen;
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
use weir_config::visibility::ValueVisibility::{self, Everyone, Owner};
use weir_config::visibility::Viewer;
use weir_config::{self as config, PoolMode, limits};
use weir_session::session::Session;
use weir_session::stats::{StatCounter, StatTotals};
use weir_session::status::{SessionActivity, SessionStatus};

/// `Owner` is any user of the console; lists, or rows, may be for administrators only.
struct ShowView {
    name: &'static str,
    seen_by: ValueVisibility,
    columns: &'static [ResultColumn],
    rows: fn(&Worker, &Viewer) -> Rows,
}

const VIEWS: &[ShowView] = &[
    ShowView { name: "active_sockets", seen_by: Owner, columns: SOCKETS, rows: |w, _| sockets(w, SocketFilter::AtWork) },
    ShowView { name: "clients", seen_by: Owner, columns: CONNECTIONS, rows: |w, _| clients(w) },
    ShowView {
        name: "config",
        seen_by: Owner,
        columns: &[text("key"), text("value"), text("default"), text("changeable")],
        rows: configuration,
    },
    ShowView { name: "databases", seen_by: Owner, columns: DATABASES, rows: |w, _| databases(w) },
    ShowView {
        name: "dns_hosts",
        seen_by: Owner,
        columns: &[text("hostname"), long("ttl"), text("addrs")],
        rows: |_, _| Rows::new(),
    },
    ShowView {
        name: "dns_zones",
        seen_by: Owner,
        columns: &[text("zonename"), long("serial"), int("count")],
        rows: |_, _| Rows::new(),
    },
    ShowView { name: "lists", seen_by: Owner, columns: &[text("list"), int("items")], rows: |w, _| lists(w) },
    ShowView { name: "mem", seen_by: Owner, columns: MEMORY, rows: |w, _| memory(w) },
    ShowView { name: "peer_pools", seen_by: Owner, columns: PEER_POOLS, rows: |_, _| Rows::new() },
    ShowView {
        name: "peers",
        seen_by: Owner,
        columns: &[int("peer_id"), text("host"), int("port"), int("pool_size")],
        rows: |_, _| Rows::new(),
    },
    ShowView { name: "pool_agents", seen_by: Owner, columns: POOL_AGENTS, rows: |w, _| pool_agents(w) },
    ShowView { name: "pool_nodes", seen_by: Owner, columns: POOL_NODES, rows: |w, _| pool_nodes(w) },
    ShowView { name: "pools", seen_by: Owner, columns: POOLS, rows: |w, _| pools(w) },
    ShowView { name: "servers", seen_by: Owner, columns: CONNECTIONS, rows: |w, _| servers(w) },
    ShowView { name: "sockets", seen_by: Owner, columns: SOCKETS, rows: |w, _| sockets(w, SocketFilter::All) },
    ShowView { name: "state", seen_by: Everyone, columns: &[text("key"), text("value")], rows: |w, _| state(w) },
    ShowView {
        name: "stats",
        seen_by: Owner,
        columns: STATS,
        rows: |w, _| stats(w, &[StatAggregate::Totals, StatAggregate::Averages]),
    },
    ShowView { name: "stats_averages", seen_by: Owner, columns: STATS_PART, rows: |w, _| stats(w, &[StatAggregate::Averages]) },
    ShowView { name: "stats_totals", seen_by: Owner, columns: STATS_PART, rows: |w, _| stats(w, &[StatAggregate::Totals]) },
    ShowView { name: "totals", seen_by: Owner, columns: &[text("name"), numeric("value")], rows: |w, _| totals(w) },
    ShowView { name: "users", seen_by: Owner, columns: USERS, rows: |w, _| users(w) },
    ShowView { name: "version", seen_by: Everyone, columns: &[text("version")], rows: |_, _| vec![vec![version().into()]] },
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

#[rustfmt::skip] // a list of names reads better in lines
const CONNECTIONS: &[ResultColumn] = &[
    text("type"), text("user"), text("database"), text("replication"), text("state"), text("addr"), int("port"),
    text("local_addr"), int("local_port"), text("connect_time"), text("request_time"), int("wait"), int("wait_us"),
    int("close_needed"), text("ptr"), text("link"), int("remote_pid"), text("tls"), text("application_name"),
    int("prepared_statements"), int("id"),
];

/// PgBouncer's buffer positions, always 0 here.
const POSITIONS: [&str; 7] = ["recv_pos", "pkt_pos", "pkt_remain", "send_pos", "send_remain", "pkt_avail", "send_avail"];

const SOCKETS: &[ResultColumn] = &with_positions();

const fn with_positions() -> [ResultColumn; CONNECTIONS.len() + POSITIONS.len()] {
    let mut all = [int(""); CONNECTIONS.len() + POSITIONS.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = if at < CONNECTIONS.len() { CONNECTIONS[at] } else { int(POSITIONS[at - CONNECTIONS.len()]) };
        at += 1;
    }
    all
}

#[rustfmt::skip]
const DATABASES: &[ResultColumn] = &[
    text("name"), text("host"), int("port"), text("database"), text("force_user"), int("pool_size"), int("min_pool_size"),
    int("reserve_pool_size"), int("server_lifetime"), text("pool_mode"), text("load_balance_hosts"), int("max_connections"),
    int("current_connections"), int("max_client_connections"), int("current_client_connections"), int("paused"),
    int("disabled"),
];

const MEMORY: &[ResultColumn] = &[text("name"), int("size"), int("used"), int("free"), long("memtotal")];

const PEER_POOLS: &[ResultColumn] =
    &[int("peer_id"), int("cl_active_cancel_req"), int("cl_waiting_cancel_req"), int("sv_active_cancel"), int("sv_login")];

#[rustfmt::skip]
const POOLS: &[ResultColumn] = &[
    text("database"), text("user"), int("cl_active"), int("cl_waiting"), int("cl_active_cancel_req"),
    int("cl_waiting_cancel_req"), int("sv_active"), int("sv_active_cancel"), int("sv_being_canceled"), int("sv_idle"),
    int("sv_used"), int("sv_tested"), int("sv_login"), int("maxwait"), int("maxwait_us"), text("pool_mode"),
    text("load_balance_hosts"),
];

/// Weir's own list, for when no server is up and no other login works. Adds a cause to Pgpool-II's columns.
#[rustfmt::skip]
const POOL_NODES: &[ResultColumn] = &[
    text("node_id"), text("hostname"), text("port"), text("status"), text("pg_status"), text("lb_weight"), text("role"),
    text("pg_role"), text("select_cnt"), text("load_balance_node"), text("replication_delay"), text("replication_state"),
    text("replication_sync_state"), text("last_status_change"), text("cause"),
];

const POOL_AGENTS: &[ResultColumn] = &{
    let mut columns = [text(""); agents_seen::COLUMNS.len()];
    let mut at = 0;
    while at < columns.len() {
        columns[at] = text(agents_seen::COLUMNS[at]);
        at += 1;
    }
    columns
};

#[rustfmt::skip]
const STATS: &[ResultColumn] = &[
    text("database"), numeric("total_server_assignment_count"), numeric("total_xact_count"), numeric("total_query_count"),
    numeric("total_received"), numeric("total_sent"), numeric("total_xact_time"), numeric("total_query_time"),
    numeric("total_wait_time"), numeric("total_client_parse_count"), numeric("total_server_parse_count"),
    numeric("total_bind_count"), numeric("avg_server_assignment_count"), numeric("avg_xact_count"), numeric("avg_query_count"),
    numeric("avg_recv"), numeric("avg_sent"), numeric("avg_xact_time"), numeric("avg_query_time"), numeric("avg_wait_time"),
    numeric("avg_client_parse_count"), numeric("avg_server_parse_count"), numeric("avg_bind_count"),
];

#[rustfmt::skip]
const STATS_PART: &[ResultColumn] = &[
    text("database"), numeric("server_assignment_count"), numeric("xact_count"), numeric("query_count"),
    numeric("bytes_received"), numeric("bytes_sent"), numeric("xact_time"), numeric("query_time"), numeric("wait_time"),
    numeric("client_parse_count"), numeric("server_parse_count"), numeric("bind_count"),
];

#[rustfmt::skip]
const USERS: &[ResultColumn] = &[
    text("name"), text("pool_size"), text("reserve_pool_size"), text("pool_mode"), int("max_user_connections"),
    int("current_connections"), int("max_user_client_connections"), int("current_client_connections"),
];

/// `None`: no answer with columns.
pub fn columns_of(command: &ConsoleCommand) -> Option<Vec<ResultColumn>> {
    let ConsoleCommand::Show(name) = command else { return None };
    match VIEWS.iter().find(|view| view.name == name) {
        Some(view) => Some(view.columns.to_vec()),
        None => fake(name).map(|(name, _)| vec![text(name)]),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsoleShowError {
    /// 42601.
    Unknown,
    /// 42501.
    Hidden,
}

pub fn table_of(w: &Worker, name: &str, viewer: &Viewer) -> Result<ResultTable, ConsoleShowError> {
    if let Some(view) = VIEWS.iter().find(|view| view.name == name) {
        if !viewer.sees(view.seen_by, None) {
            return Err(ConsoleShowError::Hidden);
        }
        return Ok(ResultTable { columns: view.columns.to_vec(), rows: (view.rows)(w, viewer) });
    }
    let (name, value) = fake(name).ok_or(ConsoleShowError::Unknown)?;
    Ok(ResultTable { columns: vec![text(name)], rows: vec![vec![value.into()]] })
}

pub fn fake(name: &str) -> Option<(&'static str, &'static str)> {
    FAKES.iter().copied().find(|(known, _)| *known == name)
}

fn pool_nodes(w: &Worker) -> Rows {
    let causes: Vec<String> = w.view().nodes.iter().map(|node| node.cause.clone().unwrap_or_default()).collect();
    let told = views::pgpool::node_rows(&w.shared, None).into_iter().zip(causes);
    told.map(|(node, cause)| node.into_iter().chain([cause]).map(ResultValue::from).collect()).collect()
}

fn pool_agents(w: &Worker) -> Rows {
    views::failover_views::pool_agents(&w.shared)
        .into_iter()
        .map(|row| row.into_iter().map(ResultValue::from).collect())
        .collect()
}

pub fn names() -> String {
    let mut names: Vec<String> = VIEWS.iter().map(|view| view.name.to_ascii_uppercase()).collect();
    names.push("HELP".into());
    names.join("|")
}

/// Programs look for the name of PgBouncer's console at the begin.
fn version() -> String {
    format!("PgBouncer 1.25.0 console of Weir {}", crate::VERSION)
}

fn wait(time: Duration) -> [ResultValue; 2] {
    [ResultValue::Number(time.as_secs()), ResultValue::from(time.subsec_micros())]
}

fn since_begin(w: &Worker, at_ms: u64) -> Duration {
    w.shared.begun.elapsed().saturating_sub(Duration::from_millis(at_ms))
}

fn stamp(seconds: u64) -> ResultValue {
    format!("{} UTC", utc(seconds)).into()
}

/// `at_ms`: since the start of the proxy; 0: never, so `otherwise` in seconds since 1970.
fn stamp_of(shared: &SharedState, at_ms: u64, otherwise: u64) -> ResultValue {
    stamp(if at_ms == 0 { otherwise } else { seconds(shared.life.started_at + Duration::from_millis(at_ms)) })
}

fn address(serial: u64) -> String {
    format!("{serial:#x}")
}

fn clients(w: &Worker) -> Rows {
    let port = w.peek_config().port;
    let by_session: BTreeMap<u32, u64> = conns(&w.shared)
        .iter()
        .map(|(_, status)| (status.session.load(Ordering::Relaxed), status.serial))
        .filter(|(pid, _)| *pid > 0)
        .collect();
    let row = |status: Arc<SessionStatus>| {
        let conn = by_session.get(&status.pid);
        let (state, waits) = match (status.doing(), conn) {
            (SessionActivity::WaitingForConnection, _) => ("waiting", since_begin(w, status.waiting_ms.load(Ordering::Relaxed))),
            (_, Some(_)) => ("active", Duration::ZERO),
            (SessionActivity::Idle | SessionActivity::IdleInTransaction | SessionActivity::Executing, None) => {
                ("idle", Duration::ZERO)
            }
        };
        let [wait_s, wait_us] = wait(waits);
        let is_local = status.client_port() == 0;
        let host = if is_local { "unix".to_string() } else { status.client_host() };
        vec![
            "C".into(),
            status.user.to_string().into(),
            status.database.to_string().into(),
            "none".into(),
            state.into(),
            host.into(),
            if is_local { port } else { status.client_port() }.into(),
            if is_local { "unix".into() } else { status.local_host().into() },
            port.into(),
            stamp(status.connected_at_s()),
            stamp_of(&w.shared, status.active_ms.load(Ordering::Relaxed), status.connected_at_s()),
            wait_s,
            wait_us,
            false.into(),
            address(u64::from(status.pid)).into(),
            conn.map(|serial| address(*serial)).unwrap_or_default().into(),
            0u32.into(),
            "".into(),
            status.application.to_string().into(),
            status.prepared.load(Ordering::Relaxed).into(),
            status.pid.into(),
        ]
    };
    w.shared.session_statuses.all().into_iter().map(row).collect()
}

fn servers(w: &Worker) -> Rows {
    let row = |(pool, status): (Arc<ConnPool>, Arc<ConnStatus>)| {
        let pid = status.session.load(Ordering::Relaxed);
        let session = w.shared.session_statuses.get(pid);
        let opened_s = seconds(status.opened_at);
        vec![
            "S".into(),
            pool.key.user.to_string().into(),
            pool.key.client_database.to_string().into(),
            "none".into(),
            if pid > 0 { "active" } else { "idle" }.into(),
            status.address.hostname.clone().into(),
            status.address.port.into(),
            "".into(),
            0u32.into(),
            stamp(opened_s),
            stamp_of(&w.shared, status.last.began_ms.load(Ordering::Relaxed), opened_s),
            0u32.into(),
            0u32.into(),
            status.doomed.load(Ordering::Relaxed).into(),
            address(status.serial).into(),
            session.as_ref().map(|_| address(u64::from(pid))).unwrap_or_default().into(),
            status.pid.into(),
            "".into(),
            session.map(|session| session.application.to_string()).unwrap_or_default().into(),
            status.prepared.load(Ordering::Relaxed).into(),
            // Worker and number in 31 bits: unique until a worker has opened 2^24 server connections.
            (((status.serial >> 48) << 24) | (status.serial & 0xff_ffff)).into(),
        ]
    };
    conns(&w.shared).into_iter().map(row).collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SocketFilter {
    All,
    AtWork,
}

/// Clients and servers in one list, with a prefix to each state.
fn sockets(w: &Worker, which: SocketFilter) -> Rows {
    let place = CONNECTIONS.iter().position(|column| column.name == "state").unwrap_or_default();
    let row = |mut row: Vec<ResultValue>| {
        let (is_client, is_idle) = (row[0] == "C".into(), row[place] == "idle".into());
        // A client that waits for no server connection counts as active there.
        row[place] = match (is_client, is_idle) {
            (true, _) if row[place] == "waiting".into() => "cl_waiting".into(),
            (true, _) => "cl_active".into(),
            (false, true) => "sv_idle".into(),
            (false, false) => "sv_active".into(),
        };
        row.extend(POSITIONS.map(|_| ResultValue::from(0u32)));
        (which == SocketFilter::All || !is_idle).then_some(row)
    };
    clients(w).into_iter().chain(servers(w)).filter_map(row).collect()
}

fn pools(w: &Worker) -> Rows {
    let config = w.config();
    let row = |((database, user), group): ((Arc<str>, Arc<str>), ConnectionGroup)| {
        let [wait_s, wait_us] = wait(group.waits);
        vec![
            database.to_string().into(),
            user.to_string().into(),
            group.clients.into(),
            group.waiting.into(),
            0u32.into(),
            0u32.into(),
            (group.conns.active + group.conns.kept).into(),
            0u32.into(),
            0u32.into(),
            group.conns.idle.into(),
            0u32.into(),
            group.conns.cleaning.into(),
            group.conns.opening.into(),
            wait_s,
            wait_us,
            if *database == *config.admin.database {
                mode(PoolMode::Statement).into()
            } else {
                mode(limits::of(&config, &user, &database).mode).into()
            },
            ResultValue::Null,
        ]
    };
    groups(&w.shared).into_iter().map(row).collect()
}

fn mode(mode: PoolMode) -> &'static str {
    match mode {
        PoolMode::Transaction => "transaction",
        PoolMode::Session => "session",
        PoolMode::Statement => "statement",
    }
}

fn databases(w: &Worker) -> Rows {
    let config = w.config();
    let view = w.view().clone();
    let node = view.primary.and_then(|at| view.nodes.get(at)).or(view.nodes.first());
    let statuses = w.shared.session_statuses.all();
    let row = |name: Arc<str>| {
        let is_console = *name == *config.admin.database;
        let gate = w.shared.pause_state.own(&name);
        let entry = config.databases.get(&name).filter(|_| !is_console);
        let limits = limits::of(&config, "", &name);
        let open: u32 = w.shared.pools.of_client_database(Some(&name)).iter().map(|pool| pool.counts().1).sum();
        let clients = statuses.iter().filter(|status| status.database == name).count();
        vec![
            name.to_string().into(),
            node.filter(|_| !is_console).map_or(ResultValue::Null, |node| node.hostname.clone().into()),
            node.filter(|_| !is_console).map_or(config.port, |node| node.port).into(),
            entry.map_or(&*name, |entry| entry.database(&name)).to_string().into(),
            match entry.and_then(|entry| entry.user.as_deref()) {
                Some(user) => user.into(),
                None if is_console => config.admin.database.clone().into(),
                None => ResultValue::Null,
            },
            limits.pool_size.into(),
            limits.pool_min.into(),
            limits.reserve.into(),
            (limits.on_release.conn_life_ms / 1000).into(),
            match limits.mode {
                _ if is_console => mode(PoolMode::Statement).into(),
                other if other != config.pool.mode => mode(other).into(),
                _ => ResultValue::Null,
            },
            ResultValue::Null,
            limits.conns_per_database.into(),
            open.into(),
            limits.clients.per_database.into(),
            clients.into(),
            (gate.paused || (w.shared.pause_state.is_all_paused() && !is_console)).into(),
            gate.disabled.into(),
        ]
    };
    acts::databases(&w.shared).into_iter().map(row).collect()
}

fn users(w: &Worker) -> Rows {
    let statuses = w.shared.session_statuses.all();
    let pools = w.shared.pools.all();
    let config = w.config();
    let limited = config.limits.overrides.iter().filter_map(|entry| entry.user()).map(Arc::from);
    let there = statuses.iter().map(|status| status.user.clone()).chain(pools.iter().map(|pool| pool.key.user.clone()));
    let names: BTreeSet<Arc<str>> = there.chain(limited).collect();
    let row = |name: Arc<str>| {
        let limits = limits::of(&config, &name, "");
        let changed = |ours: u32, all: u32| if ours == all { ResultValue::from("") } else { ours.to_string().into() };
        let open: u32 = pools.iter().filter(|pool| pool.key.user == name).map(|pool| pool.counts().1).sum();
        vec![
            name.to_string().into(),
            changed(limits.pool_size, config.pool.size),
            changed(limits.reserve, config.limits.reserve),
            if limits.mode == config.pool.mode { ResultValue::Null } else { mode(limits.mode).into() },
            limits.conns_per_user.into(),
            open.into(),
            limits.clients.per_user.into(),
            statuses.iter().filter(|status| status.user == name).count().into(),
        ]
    };
    names.into_iter().map(row).collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StatAggregate {
    Totals,
    Averages,
}

const SHOWN: [(StatCounter, Option<StatCounter>); 11] = [
    (StatCounter::Assignments, None),
    (StatCounter::Transactions, None),
    (StatCounter::Statements, None),
    (StatCounter::Received, None),
    (StatCounter::Sent, None),
    (StatCounter::TransactionUs, Some(StatCounter::Transactions)),
    (StatCounter::StatementUs, Some(StatCounter::Statements)),
    (StatCounter::WaitUs, Some(StatCounter::Assignments)),
    (StatCounter::ClientParses, None),
    (StatCounter::ServerParses, None),
    (StatCounter::Binds, None),
];

fn stats(w: &Worker, parts: &[StatAggregate]) -> Rows {
    let totals = w.shared.stats.by_database();
    let period = w.shared.stats.period();
    let row = |(database, totals): (Arc<str>, StatTotals)| {
        let mut row: Vec<ResultValue> = vec![database.to_string().into()];
        for part in parts {
            row.extend(SHOWN.iter().map(|(stat, of)| {
                ResultValue::Number(match part {
                    StatAggregate::Totals => totals.get(*stat),
                    StatAggregate::Averages => {
                        average(period.grown(&database, *stat), of.map(|of| period.grown(&database, of)), period.length_us)
                    }
                })
            }));
        }
        row
    };
    totals.into_iter().map(row).collect()
}

/// Average time per `count`; without a count, growth per second.
fn average(grown: u64, count: Option<u64>, period_us: u64) -> u64 {
    match count {
        Some(count) => grown.checked_div(count).unwrap_or(0),
        None => (u128::from(grown) * 1_000_000).checked_div(u128::from(period_us)).unwrap_or(0) as u64,
    }
}

fn totals(w: &Worker) -> Rows {
    let mut sums = vec![0; STATS.len() - 1];
    for row in stats(w, &[StatAggregate::Totals, StatAggregate::Averages]) {
        for (sum, value) in sums.iter_mut().zip(row.into_iter().skip(1)) {
            if let ResultValue::Number(number) = value {
                *sum += number;
            }
        }
    }
    STATS[1..].iter().zip(sums).map(|(column, sum)| vec![column.name.into(), ResultValue::Number(sum)]).collect()
}

fn lists(w: &Worker) -> Rows {
    let shared = &w.shared;
    let clients = shared.clients.connected.load(Ordering::Relaxed) as usize;
    let known = shared.session_statuses.all().len();
    let pools = groups(&w.shared);
    let conns: usize = conns(&w.shared).len();
    let rows = [
        ("databases", acts::databases(&w.shared).len()),
        ("users", pools.keys().map(|(_, user)| user).collect::<BTreeSet<_>>().len()),
        ("peers", 0),
        ("pools", pools.len()),
        ("peer_pools", 0),
        ("free_clients", 0),
        ("used_clients", clients),
        ("login_clients", clients.saturating_sub(known)),
        ("free_servers", 0),
        ("used_servers", conns),
        ("dns_names", 0),
        ("dns_zones", 0),
        ("dns_queries", 0),
        ("dns_pending", 0),
    ];
    rows.into_iter().map(|(name, count)| vec![name.into(), count.into()]).collect()
}

/// Of each client, server connection and pool, and of the process.
fn memory(w: &Worker) -> Rows {
    let rows = [
        ("client_cache", size_of::<Session>() + size_of::<SessionStatus>(), w.shared.session_statuses.all().len()),
        ("server_cache", size_of::<ServerConn>() + size_of::<ConnStatus>(), conns(&w.shared).len()),
        ("pool_cache", size_of::<ConnPool>(), w.shared.pools.all().len()),
        ("iobuf_cache", w.peek_config().memory_buffer_bytes, w.reactor.buffers.kept()),
        ("process", resident_bytes(), 1),
    ];
    let row =
        |(name, size, used): (&str, usize, usize)| vec![name.into(), size.into(), used.into(), 0u32.into(), (size * used).into()];
    rows.into_iter().map(row).collect()
}

/// 0 if unknown.
fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<usize>().ok()).unwrap_or(0) * 1024
}

fn state(w: &Worker) -> Rows {
    let paused = w.shared.pause_state.is_all_paused();
    let yes = |truth: bool| ResultValue::from(if truth { "yes" } else { "no" });
    let suspended = w.shared.session_statuses.suspension.is_on();
    let states = [("active", !paused && !suspended), ("paused", paused), ("suspended", suspended)];
    states.into_iter().map(|(name, is_so)| vec![name.into(), yes(is_so)]).collect()
}

/// Parameters in Weir's units, then PgBouncer's equivalent names in PgBouncer's units.
fn configuration(w: &Worker, viewer: &Viewer) -> Rows {
    let config = w.config();
    let mut rows = Rows::new();
    let is_theirs = |name: &str| settings().any(|(theirs, _)| theirs == name);
    let is_shown =
        |setting: &&config::ConfigSetting| setting.param.is_secret() || viewer.sees(setting.param.kind.visibility(), None);
    let settings_shown = || config.settings.iter().filter(is_shown);
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

fn setting_row(name: String, setting: &config::ConfigSetting, value: String, default: String) -> Vec<ResultValue> {
    let param = setting.param;
    let changeable = matches!(param.applies, ParamContext::OnReload | ParamContext::PerSession);
    let default = if param.is_secret() { String::new() } else { default };
    vec![name.into(), value.into(), default.into(), if changeable { "yes" } else { "no" }.into()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_are_per_second_or_per_thing() {
        assert_eq!(average(600, None, 60_000_000), 10);
        assert_eq!(average(600, None, 0), 0);
        assert_eq!(average(600, Some(200), 60_000_000), 3);
        assert_eq!(average(600, Some(0), 60_000_000), 0);
    }

    #[test]
    fn the_lists_of_numbers_have_a_column_for_each() {
        assert_eq!(STATS.len(), 1 + 2 * SHOWN.len());
        assert_eq!(STATS_PART.len(), 1 + SHOWN.len());
    }
}
