//! Pgpool-II's lists, the same for SHOW and PCP.

use super::{RoleRow, Rows};
use crate::log::utc;
use crate::runtime::pool::ConnPool;
use crate::runtime::pool::server_conn::ConnStatus;
use crate::runtime::shared::{SharedState, seconds};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};
use weir_config as config;
use weir_config::visibility::Viewer;
use weir_failover::cluster::{ClusterView, NodeHealth, NodeIndex, NodeView, ReplicationRole};
use weir_failover::{HealthCheckStats, NodeFailover, NodeStanding};
use weir_session::flow::HoldReason;
use weir_session::metrics::WorkerCounters;
use weir_session::status::{SessionActivity, SessionStatus};
use weir_wire::pcp_protocol::{NodeInfo, NodeRole, NodeStatus, StandbyDelay};

pub struct NodeSummary {
    pub(crate) id: u16,
    pub(crate) info: NodeInfo,
    /// Always in bytes.
    pub(crate) delay_bytes: StandbyDelay,
}

/// Delays are times if the operator's threshold is one, as in Pgpool-II.
pub fn nodes(shared: &SharedState) -> Vec<NodeSummary> {
    let config = shared.config.load();
    let is_by_time = config.check.delay_ms_max > 0;
    let failover = shared.cluster.failover.load();
    let view = shared.cluster.view.load();
    let node = |(at, node): (usize, &NodeView)| {
        let (replication_state, replication_sync_state) = node.replication.clone().unwrap_or_default();
        let (bytes, micros) = (node.lag_bytes.unwrap_or(0), node.lag_us.unwrap_or(0));
        let is_silent = node.health == NodeHealth::Down || failover.node(node.id).is_some_and(NodeFailover::is_silent);
        let (status, changed_at_s) = standing(shared, node, is_silent);
        let info = NodeInfo {
            hostname: node.hostname.clone(),
            port: node.port,
            status,
            pg_status: if is_silent { "down" } else { "up" }.into(),
            weight: node.weight,
            role: if is_silent { NodeRole::Standby } else { role(&view, at) },
            pg_role: if is_silent || config.check.period_ms == 0 { "unknown" } else { pg_role(node) }.into(),
            delay: if is_by_time { StandbyDelay::Micros(micros) } else { StandbyDelay::Bytes(bytes) },
            replication_state,
            replication_sync_state,
            changed_at_s,
        };
        NodeSummary { id: node.id, info, delay_bytes: StandbyDelay::Bytes(bytes) }
    };
    view.nodes.iter().enumerate().map(node).collect()
}

/// Returns the status and since when. A node that answers is in use where no failover mode decides.
fn standing(shared: &SharedState, node: &NodeView, is_silent: bool) -> (NodeStatus, u64) {
    let failover = shared.cluster.failover.load();
    let since_s = |at_ms: u64| at_s(shared, at_ms);
    match failover.node(node.id).map(|node| node.standing) {
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
fn status_for_client(status: NodeStatus) -> String {
    if status == NodeStatus::Waiting { NodeStatus::Up } else { status }.name().to_string()
}

/// Converts milliseconds since the start of the proxy to seconds since 1970.
fn at_s(shared: &SharedState, at_ms: u64) -> u64 {
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

pub fn node_rows(shared: &SharedState, favourite: Option<NodeIndex>) -> Rows {
    let row = |(at, NodeSummary { id, info, .. }): (usize, NodeSummary)| {
        vec![
            id.to_string(),
            info.hostname,
            info.port.to_string(),
            status_for_client(info.status),
            info.pg_status,
            format!("{:.6}", info.weight),
            info.role.name().to_string(),
            info.pg_role,
            sums(shared, |counters| counters.statements(id))[0].to_string(),
            (favourite == Some(at)).to_string(),
            info.delay.to_string(),
            info.replication_state,
            info.replication_sync_state,
            utc(info.changed_at_s),
        ]
    };
    nodes(shared).into_iter().enumerate().map(row).collect()
}

fn sums<const N: usize>(shared: &SharedState, of: impl Fn(&WorkerCounters) -> [u64; N]) -> [u64; N] {
    let add = |sums: [u64; N], more: [u64; N]| std::array::from_fn(|at| sums[at] + more[at]);
    shared.counters.iter().map(of).fold([0; N], add)
}

fn place(NodeSummary { id, info, .. }: &NodeSummary) -> Vec<String> {
    vec![
        id.to_string(),
        info.hostname.clone(),
        info.port.to_string(),
        status_for_client(info.status),
        info.role.name().to_string(),
    ]
}

pub fn health_check_rows(shared: &SharedState) -> Rows {
    let failover = shared.cluster.failover.load();
    let row = |node: NodeSummary| {
        let mut row = place(&node);
        row.push(utc(node.info.changed_at_s));
        match failover.node(node.id) {
            Some(known) => row.extend(stats(shared, &known.stats)),
            None => row.extend(shared.cluster.probes.row(node.id)),
        }
        row
    };
    nodes(shared).into_iter().map(row).collect()
}

/// Columns behind `last_status_change`; durations in milliseconds.
fn stats(shared: &SharedState, stats: &HealthCheckStats) -> Vec<String> {
    let average = |sum: u64| format!("{:.6}", sum as f64 / stats.total.max(1) as f64);
    let time = |at: Option<u64>| at.map(|at| utc(at_s(shared, at))).unwrap_or_default();
    vec![
        stats.total.to_string(),
        stats.success.to_string(),
        stats.fail.to_string(),
        stats.skip.to_string(),
        stats.retry.to_string(),
        average(stats.retry),
        stats.retry_max.to_string(),
        stats.duration_max_ms.to_string(),
        stats.duration_min_ms.unwrap_or(0).to_string(),
        average(stats.duration_sum_ms),
        time(stats.last_at),
        time(stats.last_success_at),
        time(stats.last_skip_at),
        time(stats.last_fail_at),
    ]
}

pub fn backend_rows(shared: &SharedState) -> Rows {
    let row = |node: NodeSummary| {
        let statements = sums(shared, |counters| counters.statements(node.id)).map(|count| count.to_string());
        let errors = sums(shared, |counters| counters.severities(node.id)).map(|count| count.to_string());
        place(&node).into_iter().chain(statements).chain(errors).collect()
    };
    nodes(shared).into_iter().map(row).collect()
}

/// Server connections. Pgpool-II's process is the session that uses one, or the proxy itself.
pub fn pool_rows(shared: &SharedState) -> Vec<RoleRow> {
    let are_last = shared.last_look.note(shared.begun.elapsed().as_millis() as u64);
    let mut rows = Vec::new();
    for pool in shared.pools.all() {
        for status in pool.statuses() {
            if !are_last {
                status.last.text.lock().clear();
            }
            let statement = status.last.text.lock().clone();
            rows.push(RoleRow { owner: pool.key.user.clone(), cells: pool_row(shared, &pool, &status, statement) });
        }
    }
    rows
}

fn pool_row(shared: &SharedState, pool: &ConnPool, status: &ConnStatus, statement: String) -> Vec<String> {
    let session = shared.session_statuses.get(status.session.load(Ordering::Relaxed));
    let kept = status.keeping.code.load(Ordering::Relaxed);
    let kept_s = seconds(SystemTime::now()).saturating_sub(at_s(shared, status.keeping.since_ms.load(Ordering::Relaxed)));
    let doing = session.as_ref().map_or(SessionActivity::Idle, |s| s.doing()).name();
    let favourite = session.as_ref().map_or(u32::MAX, |s| s.favourite.load(Ordering::Relaxed));
    // Begin of the former client's last statement.
    let used_ms = status.last.began_ms.load(Ordering::Relaxed);
    let left = if session.is_none() && used_ms > 0 { utc(at_s(shared, used_ms)) } else { String::new() };
    let of_session = |value: fn(&SessionStatus) -> String| session.as_ref().map(|s| value(s)).unwrap_or_default();
    vec![
        session.as_ref().map_or_else(std::process::id, |s| s.pid).to_string(),
        utc(seconds(shared.life.started_at)),
        status.uses.load(Ordering::Relaxed).to_string(),
        status.serial.to_string(),
        pool.key.node.to_string(),
        pool.key.database.to_string(),
        pool.key.user.to_string(),
        utc(seconds(status.opened_at)),
        session.as_ref().map_or_else(|| left.clone(), |s| utc(s.connected_at_s())),
        left,
        session.as_ref().map_or(0, |s| idle_s(shared, s)).to_string(),
        status.terms.protocol.major().to_string(),
        status.terms.protocol.minor().to_string(),
        status.uses.load(Ordering::Relaxed).to_string(),
        status.pid.to_string(),
        u8::from(session.is_some()).to_string(),
        if kept > 0 { format!("{doing} (kept: {}) for {kept_s} s", HoldReason::reason(kept)) } else { doing.to_string() },
        u8::from(favourite == u32::from(pool.key.node)).to_string(),
        of_session(|s| s.client_host()),
        of_session(|s| if s.client_port() == 0 { String::new() } else { s.client_port().to_string() }),
        statement,
    ]
}

/// Columns of a process without a server connection.
pub fn idle_row(shared: &SharedState, pid: u32) -> Vec<String> {
    let started = utc(seconds(shared.life.started_at));
    let waits = SessionActivity::WaitingForConnection.name();
    let row =
        [&pid.to_string(), &started, "0", "0", "0", "", "", "", "", "", "0", "0", "0", "0", "0", "0", waits, "0", "", "", ""];
    row.map(str::to_string).to_vec()
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

pub fn process_rows(shared: &SharedState) -> Vec<RoleRow> {
    let row = |status: Arc<SessionStatus>| {
        let cells = vec![
            status.pid.to_string(),
            utc(seconds(shared.life.started_at)),
            "1".to_string(),
            status.database.to_string(),
            status.user.to_string(),
            utc(status.connected_at_s()),
            status.statements.load(Ordering::Relaxed).to_string(),
            status.doing().name().to_string(),
        ];
        RoleRow { owner: status.server_user.clone(), cells }
    };
    shared.session_statuses.all().into_iter().map(row).collect()
}

/// Parameters, with each node's status behind its data directory as in Pgpool-II.
pub fn status_rows(shared: &SharedState, viewer: &Viewer) -> Rows {
    let nodes = nodes(shared);
    let mut rows = Rows::new();
    for s in config::show_all(&shared.config.load(), &Viewer::operator()) {
        let number = s.name.strip_prefix("backend_data_directory").and_then(|number| number.parse::<u16>().ok());
        if viewer.sees(s.seen_by, None) {
            rows.push(vec![s.name, s.value, s.description.to_string()]);
        }
        if let Some(node) = number.and_then(|number| nodes.iter().find(|node| node.id == number)) {
            let (name, value) = (format!("backend_status{}", node.id), status_for_client(node.info.status));
            rows.push(vec![name, value, "If the node is in use now. No parameter.".to_string()]);
        }
    }
    rows
}
