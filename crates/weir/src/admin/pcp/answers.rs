//! Requests that only read.

use crate::admin::listing::{ListAsker, ListSnapshot};
use crate::admin::views::pgpool::{self, POOL_HEALTH_CHECK_STATS, POOL_POOLS, POOL_STATUS};
use crate::control::control_context::ControlContext;
use crate::runtime::shared::SharedState;
use std::rc::Rc;
use weir_config::visibility::Viewer;
use weir_wire::pcp_protocol::{PcpReply, PcpReplyCode, PcpReport, PcpRequest, PcpSeverity};

type Outcome = Result<Vec<PcpReply>, PcpReport>;

/// `None`: another kind of request. Lists are made on another thread: with many connections they would delay the nodes' looks. Cancel safe.
pub async fn of(c: &Rc<ControlContext>, request: &PcpRequest) -> Option<Outcome> {
    let look = match *request {
        PcpRequest::NodeCount => PcpQuery::NodeCount,
        PcpRequest::NodeInfo(number) => PcpQuery::NodeInfo(number),
        PcpRequest::HealthCheckStats(number) => PcpQuery::HealthCheckStats(number),
        PcpRequest::ProcessCount => PcpQuery::ProcessCount,
        PcpRequest::ProcessInfo(number) => PcpQuery::ProcessInfo(number),
        PcpRequest::PoolStatus => PcpQuery::PoolStatus,
        PcpRequest::WatchdogInfo(_) => {
            return Some(Err(error("informing watchdog info failed").detail("watchdog is not enabled")));
        }
        // Weir sends no message below any level.
        PcpRequest::Set { ref name, ref value } => return Some(set(name, value)),
        // Pgpool-II sends no reply.
        PcpRequest::StopRecovery => return Some(Ok(Vec::new())),
        PcpRequest::Salt
        | PcpRequest::Login { .. }
        | PcpRequest::Attach(_)
        | PcpRequest::Detach(..)
        | PcpRequest::Promote(..)
        | PcpRequest::Recover(_)
        | PcpRequest::Restart(_)
        | PcpRequest::UpgradeWalk
        | PcpRequest::Stop(..)
        | PcpRequest::Reload(_)
        | PcpRequest::RotateLog(_)
        | PcpRequest::InvalidateQueryCache
        | PcpRequest::End => return None,
    };
    let shared = c.shared.clone();
    let looked = tokio::task::spawn_blocking(move || look.at(&shared)).await;
    // The panic hook has logged it.
    Some(looked.unwrap_or_else(|_| Err(error("the answer could not be made"))))
}

/// Levels of `client_min_messages`. Source: Pgpool-II, `process_set_configuration_parameter`.
const LEVELS: [&str; 11] =
    ["debug5", "debug4", "debug3", "debug2", "debug1", "log", "commerror", "info", "notice", "warning", "error"];

fn set(name: &[u8], value: &[u8]) -> Outcome {
    let failed = |detail: String| Err(error("set configuration parameter failed").detail(detail));
    let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
    if !name.eq_ignore_ascii_case("client_min_messages") {
        return failed(format!("invalid parameter \"{name}\""));
    }
    if !LEVELS.iter().any(|level| level.eq_ignore_ascii_case(&value)) {
        return failed(format!("invalid value \"{value}\" for parameter \"{name}\""));
    }
    Ok(vec![PcpReply::done(b'a')])
}

fn error(text: &str) -> PcpReport {
    PcpReport::new(PcpSeverity::Error, text)
}

#[derive(Clone, Copy)]
enum PcpQuery {
    NodeCount,
    NodeInfo(i32),
    HealthCheckStats(i32),
    ProcessCount,
    ProcessInfo(i32),
    PoolStatus,
}

impl PcpQuery {
    fn at(self, shared: &SharedState) -> Outcome {
        // PCP users are operators.
        let viewer = Viewer::operator();
        let of = ListSnapshot::new(shared, &viewer, ListAsker::default());
        match self {
            PcpQuery::NodeCount => {
                Ok(vec![PcpReply::of(b'l', PcpReplyCode::Done, [shared.cluster.view.load().nodes.len().to_string()])])
            }
            PcpQuery::NodeInfo(number) => node_info(&of, number),
            PcpQuery::HealthCheckStats(number) => health_check_stats(&of, number),
            PcpQuery::ProcessCount => Ok(vec![process_count(shared)]),
            PcpQuery::ProcessInfo(number) => process_info(shared, number),
            PcpQuery::PoolStatus => Ok(pool_status(&of)),
        }
    }
}

fn list(tag: u8, code: PcpReplyCode, rows: Vec<Vec<String>>) -> Vec<PcpReply> {
    let mut replies = vec![PcpReply::of(tag, PcpReplyCode::Count, [rows.len().to_string()])];
    replies.extend(rows.into_iter().map(|row| PcpReply::of(tag, code, row)));
    replies.push(PcpReply::done(tag));
    replies
}

fn node_info(of: &ListSnapshot<'_>, number: i32) -> Outcome {
    let layout = of.config.pcp.layout;
    let mut nodes = pgpool::nodes(of);
    if number != -1 {
        nodes.retain(|node| i32::from(node.id) == number);
        if nodes.is_empty() {
            return Err(error("informing node info failed").detail(format!("invalid node ID : {number}")));
        }
    }
    if !layout.has_delay_by_time() {
        nodes.iter_mut().for_each(|node| node.info.delay = node.delay_bytes);
    }
    Ok(list(b'i', PcpReplyCode::Node, nodes.iter().map(|node| node.info.strings(layout)).collect()))
}

fn health_check_stats(of: &ListSnapshot<'_>, number: i32) -> Outcome {
    let row = pgpool::nodes(of).iter().find(|node| i32::from(node.id) == number).map(|node| POOL_HEALTH_CHECK_STATS.texts(node));
    let unknown = || error("informing health check stats info failed").detail(format!("invalid node ID {number}"));
    row.map(|row| vec![PcpReply::of(b'h', PcpReplyCode::Done, row)]).ok_or_else(unknown)
}

/// The proxy itself, which has the connections at rest, and its sessions.
fn process_count(shared: &SharedState) -> PcpReply {
    let sessions = shared.session_statuses.all();
    let pids: Vec<String> =
        [std::process::id()].into_iter().chain(sessions.iter().map(|status| status.pid)).map(|pid| pid.to_string()).collect();
    PcpReply::of(b'n', PcpReplyCode::Done, [pids.len().to_string()].into_iter().chain(pids))
}

fn process_info(shared: &SharedState, number: i32) -> Outcome {
    let pid = u32::try_from(number).unwrap_or(0);
    let is_known = number == 0 || pid == std::process::id() || shared.session_statuses.get(pid).is_some();
    if !is_known {
        return Err(error("informing process info failed").detail(format!("invalid process ID : {number}")));
    }
    let layout = shared.config.load().pcp.layout;
    let mut rows = pgpool::pools(shared);
    rows.retain(|row| number == 0 || row.pid == pid);
    if rows.is_empty() {
        // Pgpool-II's clients misread an answer without rows.
        rows.push(pgpool::idle_process(shared, if number == 0 { std::process::id() } else { pid }));
    }
    // Releases only append columns.
    let cut = |row| POOL_POOLS.texts(row).into_iter().take(layout.process_strings()).collect();
    Ok(list(b'p', PcpReplyCode::Process, rows.iter().map(cut).collect()))
}

fn pool_status(of: &ListSnapshot<'_>) -> Vec<PcpReply> {
    let rows = pgpool::parameters(of);
    let mut replies = vec![PcpReply::binary_count(b'b', u32::try_from(rows.len()).unwrap_or(u32::MAX))];
    replies.extend(rows.iter().map(|row| PcpReply::of(b'b', PcpReplyCode::Parameter, POOL_STATUS.texts(row))));
    replies.push(PcpReply::done(b'b'));
    replies
}
