//! Pgpool-II's lists, the same for SHOW and PCP.

use crate::admin::listing::{ListCell, ListColumn, ListSnapshot, Listing, listing, open, own, time};
use crate::runtime::pool::ConnPool;
use crate::runtime::pool::server_conn::ConnStatus;
use crate::runtime::probes::ProbeCounts;
use crate::runtime::shared::{SharedState, seconds};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};
use weir_config as config;
use weir_config::visibility::Viewer;
use weir_failover::cluster::{ClusterView, NodeHealth, NodeView, ReplicationRole};
use weir_failover::{APART_WORDS, HealthCheckStats, NodeFailover, NodeStanding};
use weir_session::flow::HoldReason;
use weir_session::metrics::{VERBS, WorkerCounters};
use weir_session::status::{SessionActivity, SessionStatus};
use weir_sql::facts::StatementVerb;
use weir_wire::pcp_protocol::{NodeInfo, NodeRole, NodeStatus, StandbyDelay};

/// A node: what the lists of nodes and PCP tell of it.
pub struct NodeRow {
    pub(crate) id: u16,
    pub(crate) info: NodeInfo,
    /// Always in bytes.
    pub(crate) delay_bytes: StandbyDelay,
    /// Why it is down.
    pub(crate) cause: Option<String>,
    is_favourite: bool,
    /// In the order of `VERBS`.
    statements: [u64; VERBS.len()],
    panics: u64,
    fatals: u64,
    errors: u64,
    checks: CheckCounts,
}

/// Looks at a node. Times are in seconds since 1970.
#[derive(Debug, Default, PartialEq)]
struct CheckCounts {
    total: u64,
    good: u64,
    bad: u64,
    skipped: u64,
    retries: u64,
    retries_max: u64,
    longest_ms: u64,
    shortest_ms: u64,
    sum_ms: f64,
    last_s: Option<u64>,
    last_good_s: Option<u64>,
    last_skip_s: Option<u64>,
    last_bad_s: Option<u64>,
}

/// The first columns of lists by node.
const PLACE: &[ListColumn<NodeRow>] = &[
    open("node_id", |node| node.id.into()),
    open("hostname", |node| (&node.info.hostname).into()),
    open("port", |node| node.info.port.into()),
    open("status", |node| status_for_client(node.info.status).into()),
    open("role", |node| node.info.role.name().into()),
];

/// Pgpool-II's columns of `SHOW pool_nodes`.
pub const NODE_COLUMNS: &[ListColumn<NodeRow>] = &[
    open("node_id", |node| node.id.into()),
    open("hostname", |node| (&node.info.hostname).into()),
    open("port", |node| node.info.port.into()),
    open("status", |node| status_for_client(node.info.status).into()),
    open("pg_status", |node| (&node.info.pg_status).into()),
    open("lb_weight", |node| node.info.weight.into()),
    open("role", |node| node.info.role.name().into()),
    open("pg_role", |node| (&node.info.pg_role).into()),
    open("select_cnt", |node| node.sent(StatementVerb::Select)),
    open("load_balance_node", |node| node.is_favourite.into()),
    open("replication_delay", |node| node.info.delay.to_string().into()),
    open("replication_state", |node| (&node.info.replication_state).into()),
    open("replication_sync_state", |node| (&node.info.replication_sync_state).into()),
    open("last_status_change", |node| time(node.info.changed_at_s)),
];

pub const POOL_NODES: Listing<NodeRow> = listing(nodes).columns(&[NODE_COLUMNS]);

pub const POOL_BACKEND_STATS: Listing<NodeRow> = listing(nodes).columns(&[
    PLACE,
    &[
        open("select_cnt", |node| node.sent(StatementVerb::Select)),
        open("insert_cnt", |node| node.sent(StatementVerb::Insert)),
        open("update_cnt", |node| node.sent(StatementVerb::Update)),
        open("delete_cnt", |node| node.sent(StatementVerb::Delete)),
        open("ddl_cnt", |node| node.sent(StatementVerb::Definition)),
        open("other_cnt", |node| node.sent(StatementVerb::Other)),
        open("panic_cnt", |node| node.panics.into()),
        open("fatal_cnt", |node| node.fatals.into()),
        open("error_cnt", |node| node.errors.into()),
    ],
]);

/// Durations are in milliseconds.
pub const POOL_HEALTH_CHECK_STATS: Listing<NodeRow> = listing(nodes).columns(&[
    PLACE,
    &[
        open("last_status_change", |node| time(node.info.changed_at_s)),
        open("total_count", |node| node.checks.total.into()),
        open("success_count", |node| node.checks.good.into()),
        open("fail_count", |node| node.checks.bad.into()),
        open("skip_count", |node| node.checks.skipped.into()),
        open("retry_count", |node| node.checks.retries.into()),
        open("average_retry_count", |node| node.checks.average(node.checks.retries as f64)),
        open("max_retry_count", |node| node.checks.retries_max.into()),
        open("max_duration", |node| node.checks.longest_ms.into()),
        open("min_duration", |node| node.checks.shortest_ms.into()),
        open("average_duration", |node| node.checks.average(node.checks.sum_ms)),
        open("last_health_check", |node| time(node.checks.last_s)),
        open("last_successful_health_check", |node| time(node.checks.last_good_s)),
        open("last_skip_health_check", |node| time(node.checks.last_skip_s)),
        open("last_failed_health_check", |node| time(node.checks.last_bad_s)),
    ],
]);

impl NodeRow {
    fn sent(&self, verb: StatementVerb) -> ListCell {
        self.statements[verb as usize].into()
    }
}

impl CheckCounts {
    /// Counts of failover, which decides about nodes.
    fn of_failover(shared: &SharedState, stats: &HealthCheckStats) -> CheckCounts {
        let time = |at: Option<u64>| at.map(|at| at_s(shared, at));
        CheckCounts {
            total: stats.total,
            good: stats.success,
            bad: stats.fail,
            skipped: stats.skip,
            retries: stats.retry,
            retries_max: stats.retry_max,
            longest_ms: stats.duration_max_ms,
            shortest_ms: stats.duration_min_ms.unwrap_or(0),
            sum_ms: stats.duration_sum_ms as f64,
            last_s: time(stats.last_at),
            last_good_s: time(stats.last_success_at),
            last_skip_s: time(stats.last_skip_at),
            last_bad_s: time(stats.last_fail_at),
        }
    }

    /// Questions for roles: a node is never skipped, and asked once a round, so that nothing is tried again.
    fn of_probes(counts: &ProbeCounts) -> CheckCounts {
        let time = |seconds: u64| (seconds != 0).then_some(seconds);
        CheckCounts {
            total: counts.good + counts.bad,
            good: counts.good,
            bad: counts.bad,
            longest_ms: counts.longest.as_millis() as u64,
            shortest_ms: counts.shortest.as_millis() as u64,
            sum_ms: counts.sum.as_secs_f64() * 1000.0,
            last_s: time(counts.last_good_s.max(counts.last_bad_s)),
            last_good_s: time(counts.last_good_s),
            last_bad_s: time(counts.last_bad_s),
            ..CheckCounts::default()
        }
    }

    fn average(&self, sum: f64) -> ListCell {
        (sum / self.total.max(1) as f64).into()
    }
}

/// Delays are times if the operator's threshold is one, as in Pgpool-II.
pub fn nodes(of: &ListSnapshot<'_>) -> Vec<NodeRow> {
    let shared = of.shared;
    let (failover, view) = (shared.cluster.failover.load(), shared.cluster.view.load());
    let node = |(at, node): (usize, &NodeView)| {
        let known = failover.node(node.id);
        let [panics, fatals, errors] = sums(shared, |counters| counters.severities(node.id));
        NodeRow {
            id: node.id,
            info: node_info(of, &view, at, known),
            delay_bytes: StandbyDelay::Bytes(node.lag_bytes.unwrap_or(0)),
            cause: known.filter(|known| known.is_apart).map(|_| APART_WORDS.into()).or_else(|| node.cause.clone()),
            is_favourite: of.asker.favourite == Some(at),
            statements: sums(shared, |counters| counters.statements(node.id)),
            panics,
            fatals,
            errors,
            checks: match known {
                Some(known) => CheckCounts::of_failover(shared, &known.stats),
                None => CheckCounts::of_probes(&shared.cluster.probes.counts(node.id)),
            },
        }
    };
    view.nodes.iter().enumerate().map(node).collect()
}

fn node_info(of: &ListSnapshot<'_>, view: &ClusterView, at: usize, known: Option<&NodeFailover>) -> NodeInfo {
    let (node, check) = (&view.nodes[at], &of.config.check);
    let (replication_state, replication_sync_state) = node.replication.clone().unwrap_or_default();
    let (bytes, micros) = (node.lag_bytes.unwrap_or(0), node.lag_us.unwrap_or(0));
    let is_silent = node.health == NodeHealth::Down || known.is_some_and(NodeFailover::is_silent);
    let (status, changed_at_s) = standing(of.shared, node, known, is_silent);
    NodeInfo {
        hostname: node.hostname.clone(),
        port: node.port,
        status,
        pg_status: if is_silent { "down" } else { "up" }.into(),
        weight: node.weight,
        role: if is_silent { NodeRole::Standby } else { role(view, at) },
        pg_role: if is_silent || check.period_ms == 0 { "unknown" } else { pg_role(node) }.into(),
        delay: if check.delay_ms_max > 0 { StandbyDelay::Micros(micros) } else { StandbyDelay::Bytes(bytes) },
        replication_state,
        replication_sync_state,
        changed_at_s,
    }
}

/// Returns the status and since when. A node that answers is in use where no failover mode decides.
fn standing(shared: &SharedState, node: &NodeView, known: Option<&NodeFailover>, is_silent: bool) -> (NodeStatus, u64) {
    let since_s = |at_ms: u64| at_s(shared, at_ms);
    match known.map(|known| known.standing) {
        // No statements go to a silent node.
        None | Some(NodeStanding::Up | NodeStanding::Waiting) if is_silent => (NodeStatus::Down, node.changed_at_s),
        None | Some(NodeStanding::Up) => (NodeStatus::Up, node.changed_at_s),
        Some(NodeStanding::Waiting) => (NodeStatus::Waiting, node.changed_at_s),
        Some(NodeStanding::Down { since, .. }) => (NodeStatus::Down, since_s(since)),
        Some(NodeStanding::Quarantined { since }) => (NodeStatus::Quarantined, since_s(since)),
        Some(NodeStanding::Detached | NodeStanding::Recovering) => (NodeStatus::Down, node.changed_at_s),
    }
}

/// Shows `Waiting` as up: this client has come.
fn status_for_client(status: NodeStatus) -> &'static str {
    if status == NodeStatus::Waiting { NodeStatus::Up } else { status }.name()
}

/// Converts milliseconds since the start of the proxy to seconds since 1970.
pub fn at_s(shared: &SharedState, at_ms: u64) -> u64 {
    seconds(shared.life.started_at + Duration::from_millis(at_ms))
}

fn role(view: &ClusterView, at: usize) -> NodeRole {
    if view.primary == Some(at) { NodeRole::Primary } else { NodeRole::Standby }
}

fn pg_role(node: &NodeView) -> &'static str {
    match node.health {
        NodeHealth::Up(ReplicationRole::Primary) => "primary",
        NodeHealth::Up(ReplicationRole::Standby) => "standby",
        NodeHealth::Down => "unknown",
    }
}

fn sums<const N: usize>(shared: &SharedState, of: impl Fn(&WorkerCounters) -> [u64; N]) -> [u64; N] {
    let add = |sums: [u64; N], more: [u64; N]| std::array::from_fn(|at| sums[at] + more[at]);
    shared.counters.iter().map(of).fold([0; N], add)
}

/// A server connection. The process of Pgpool-II's columns is here the session that uses one, or the proxy itself.
#[derive(Default)]
pub struct ServerConnRow {
    pub(crate) pid: u32,
    started_at_s: u64,
    uses: u64,
    serial: u64,
    node: u16,
    database: Arc<str>,
    user: Arc<str>,
    opened_at_s: Option<u64>,
    client_came_s: Option<u64>,
    client_left_s: Option<u64>,
    idle_s: u64,
    protocol_major: u32,
    protocol_minor: u32,
    server_pid: u32,
    is_in_use: bool,
    status: String,
    is_favourite: bool,
    client_host: Option<String>,
    client_port: Option<u16>,
    statement: String,
}

pub const POOL_POOLS: Listing<ServerConnRow> = listing(|of| pools(of.shared)).about_roles(|conn| &conn.user).columns(&[&[
    open("pool_pid", |conn| conn.pid.into()),
    open("start_time", |conn| time(conn.started_at_s)),
    open("client_connection_count", |conn| conn.uses.into()),
    open("pool_id", |conn| conn.serial.into()),
    open("backend_id", |conn| conn.node.into()),
    open("database", |conn| (&conn.database).into()),
    open("username", |conn| (&conn.user).into()),
    own("backend_connection_time", |conn| time(conn.opened_at_s)),
    own("client_connection_time", |conn| time(conn.client_came_s)),
    own("client_disconnection_time", |conn| time(conn.client_left_s)),
    own("client_idle_duration", |conn| conn.idle_s.into()),
    open("majorversion", |conn| conn.protocol_major.into()),
    open("minorversion", |conn| conn.protocol_minor.into()),
    open("pool_counter", |conn| conn.uses.into()),
    open("pool_backendpid", |conn| conn.server_pid.into()),
    open("pool_connected", |conn| u32::from(conn.is_in_use).into()),
    own("status", |conn| (&conn.status).into()),
    open("load_balance_node", |conn| u32::from(conn.is_favourite).into()),
    own("client_host", |conn| conn.client_host.as_ref().into()),
    own("client_port", |conn| conn.client_port.into()),
    own("statement", |conn| (&conn.statement).into()),
]]);

/// All server connections.
pub fn pools(shared: &SharedState) -> Vec<ServerConnRow> {
    let are_last = shared.last_look.note(shared.begun.elapsed().as_millis() as u64);
    let mut rows = Vec::new();
    for pool in shared.pools.all() {
        for status in pool.statuses() {
            if !are_last {
                status.last.text.lock().clear();
            }
            let statement = status.last.text.lock().clone();
            rows.push(pool_row(shared, &pool, &status, statement));
        }
    }
    rows
}

fn pool_row(shared: &SharedState, pool: &ConnPool, status: &ConnStatus, statement: String) -> ServerConnRow {
    let session = shared.session_statuses.get(status.session.load(Ordering::Relaxed));
    let kept = status.keeping.code.load(Ordering::Relaxed);
    let kept_s = seconds(SystemTime::now()).saturating_sub(at_s(shared, status.keeping.since_ms.load(Ordering::Relaxed)));
    let doing = session.as_ref().map_or(SessionActivity::Idle, |s| s.doing()).name();
    let favourite = session.as_ref().map_or(u32::MAX, |s| s.favourite.load(Ordering::Relaxed));
    // Begin of the former client's last statement.
    let used_ms = status.last.began_ms.load(Ordering::Relaxed);
    let left_s = (session.is_none() && used_ms > 0).then(|| at_s(shared, used_ms));
    ServerConnRow {
        pid: session.as_ref().map_or_else(std::process::id, |s| s.pid),
        started_at_s: seconds(shared.life.started_at),
        uses: status.uses.load(Ordering::Relaxed),
        serial: status.serial,
        node: pool.key.node,
        database: pool.key.database.clone(),
        user: pool.key.user.clone(),
        opened_at_s: Some(seconds(status.opened_at)),
        client_came_s: session.as_ref().map(|s| s.connected_at_s()).or(left_s),
        client_left_s: left_s,
        idle_s: session.as_ref().map_or(0, |s| idle_s(shared, s)),
        protocol_major: status.terms.protocol.major(),
        protocol_minor: status.terms.protocol.minor(),
        server_pid: status.pid,
        is_in_use: session.is_some(),
        status: if kept > 0 { format!("{doing} (kept: {}) for {kept_s} s", HoldReason::reason(kept)) } else { doing.to_string() },
        is_favourite: favourite == u32::from(pool.key.node),
        client_host: session.as_ref().map(|s| s.client_host()),
        client_port: session.as_ref().map(|s| s.client_port()).filter(|port| *port != 0),
        statement,
    }
}

/// A process without a server connection.
pub fn idle_process(shared: &SharedState, pid: u32) -> ServerConnRow {
    let status = SessionActivity::WaitingForConnection.name().to_string();
    ServerConnRow { pid, started_at_s: seconds(shared.life.started_at), status, ..ServerConnRow::default() }
}

/// Seconds since the begin of the last statement.
fn idle_s(shared: &SharedState, session: &SessionStatus) -> u64 {
    match session.doing() {
        SessionActivity::Idle | SessionActivity::IdleInTransaction => {
            let began_s = at_s(shared, session.active_ms.load(Ordering::Relaxed));
            seconds(SystemTime::now()).saturating_sub(began_s.max(session.connected_at_s()))
        }
        SessionActivity::Executing | SessionActivity::WaitingForConnection => 0,
    }
}

/// A session.
pub struct ProcessRow {
    started_at_s: u64,
    connected_at_s: u64,
    statements: u64,
    session: Arc<SessionStatus>,
}

pub const POOL_PROCESSES: Listing<ProcessRow> =
    listing(|of| of.shared.session_statuses.all().into_iter().map(|session| process_row(of.shared, session)).collect())
        .about_roles(|process| &process.session.server_user)
        .columns(&[&[
            open("pool_pid", |process| process.session.pid.into()),
            open("start_time", |process| time(process.started_at_s)),
            open("client_connection_count", |_| 1_u32.into()),
            open("database", |process| (&process.session.database).into()),
            open("username", |process| (&process.session.user).into()),
            own("backend_connection_time", |process| time(process.connected_at_s)),
            own("pool_counter", |process| process.statements.into()),
            own("status", |process| process.session.doing().name().into()),
        ]]);

fn process_row(shared: &SharedState, session: Arc<SessionStatus>) -> ProcessRow {
    ProcessRow {
        started_at_s: seconds(shared.life.started_at),
        connected_at_s: session.connected_at_s(),
        statements: session.statements.load(Ordering::Relaxed),
        session,
    }
}

/// A parameter, or the status of a node in the place of one.
pub struct ParameterRow {
    name: String,
    value: String,
    description: &'static str,
}

pub const POOL_STATUS: Listing<ParameterRow> = listing(parameters).about_parameters().columns(&[&[
    open("item", |parameter| (&parameter.name).into()),
    open("value", |parameter| (&parameter.value).into()),
    open("description", |parameter| parameter.description.into()),
]]);

/// Parameters that the viewer may see, and like Pgpool-II's the status of each node behind its data directory.
pub fn parameters(of: &ListSnapshot<'_>) -> Vec<ParameterRow> {
    let nodes = nodes(of);
    let mut rows = Vec::new();
    for s in config::show_all(&of.config, &Viewer::operator()) {
        let number = s.name.strip_prefix("backend_data_directory").and_then(|number| number.parse::<u16>().ok());
        if of.viewer.sees(s.seen_by, None) {
            rows.push(ParameterRow { name: s.name, value: s.value, description: s.description });
        }
        if let Some(node) = number.and_then(|number| nodes.iter().find(|node| node.id == number)) {
            rows.push(ParameterRow {
                name: format!("backend_status{}", node.id),
                value: status_for_client(node.info.status).into(),
                description: "If the node is in use now. No parameter.",
            });
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::probes::ProbeStats;

    #[test]
    fn probes_are_shown_with_their_times() {
        let probes = ProbeStats::default();
        probes.note(1, true, Duration::from_millis(10), 60);
        probes.note(1, false, Duration::from_millis(40), 120);
        let counts = CheckCounts::of_probes(&probes.counts(1));
        let expected = CheckCounts {
            total: 2,
            good: 1,
            bad: 1,
            longest_ms: 40,
            shortest_ms: 10,
            sum_ms: 50.0,
            last_s: Some(120),
            last_good_s: Some(60),
            last_bad_s: Some(120),
            ..CheckCounts::default()
        };
        assert_eq!(counts, expected);
        assert_eq!(
            (counts.average(counts.sum_ms).to_string(), counts.average(0.0).to_string()),
            ("25.000000".into(), "0.000000".into())
        );
        assert_eq!(CheckCounts::of_probes(&probes.counts(3)), CheckCounts::default());
    }
}
