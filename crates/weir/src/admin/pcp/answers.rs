//! Requests that only read.

use super::watchdog_json;
use crate::admin::group_sight::GroupSight;
use crate::admin::listing::{AnyListing, ListAsker, ListSnapshot};
use crate::admin::views::POOL_WATCHDOG;
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
        PcpRequest::WatchdogInfo(number) => PcpQuery::WatchdogInfo(number),
        PcpRequest::WatchdogStatus => PcpQuery::WatchdogStatus,
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
        | PcpRequest::WatchdogChange(..)
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
    WatchdogInfo(i32),
    WatchdogStatus,
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
            PcpQuery::WatchdogInfo(number) => watchdog_info(shared, number),
            PcpQuery::WatchdogStatus => watchdog_status(&of),
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

fn no_watchdog() -> PcpReport {
    error("PCP: informing watchdog info failed").detail("watchdog is not enabled")
}

fn watchdog_info(shared: &SharedState, number: i32) -> Outcome {
    let (config, sight) = (shared.config.load(), GroupSight::now(shared));
    let (Some(settings), Some(sight)) = (&config.watchdog, sight) else { return Err(no_watchdog()) };
    let machine = rustix::system::uname();
    let text = watchdog_json::of(settings, &sight, number, &machine.nodename().to_string_lossy());
    Ok(vec![PcpReply::of(b'w', PcpReplyCode::Done, [text])])
}

/// The rows of `SHOW pool_watchdog` after one of the columns' names.
fn watchdog_status(of: &ListSnapshot<'_>) -> Outcome {
    let rows = POOL_WATCHDOG.rows(of);
    if rows.is_empty() {
        return Err(no_watchdog());
    }
    let names = POOL_WATCHDOG.heads().iter().map(|head| head.name.to_owned()).collect();
    let texts = rows.iter().map(|row| row.iter().map(ToString::to_string).collect());
    Ok(list(b'y', PcpReplyCode::Row, std::iter::once(names).chain(texts).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::group_sight::tests::{shared, view};
    use serde_json::Value;
    use weir_group::GroupMs;

    fn shared_with(own: u8, until: GroupMs) -> SharedState {
        let mut view = view(own);
        view.rights.until = until;
        view.peers[0].heard_at = Some(weir_io::clock::boot_now_ms());
        view.peers[1].heard_at = None;
        shared(view)
    }

    fn info(shared: &SharedState, number: i32) -> Value {
        let replies = PcpQuery::WatchdogInfo(number).at(shared).unwrap();
        let [PcpReply::Words { tag: b'w', code: PcpReplyCode::Done, .. }] = replies.as_slice() else { panic!("{replies:?}") };
        let texts = replies[0].strings();
        assert_eq!(texts.len(), 1);
        serde_json::from_str(&texts[0]).unwrap()
    }

    /// Names of a field's values over the hosts, the one that is asked first.
    fn of_hosts(info: &Value, name: &str) -> Vec<String> {
        info["WatchdogNodes"].as_array().unwrap().iter().map(|node| node[name].to_string()).collect()
    }

    #[test]
    fn a_group_is_told_as_pgpool_tells_it() {
        let shared = shared_with(1, GroupMs::MAX);
        let all = info(&shared, -1);
        for (name, expected) in [
            ("RemoteNodeCount", "2"),
            ("MemberRemoteNodeCount", "2"),
            ("NodesRequireForQuorum", "2"),
            ("QuorumStatus", "1"),
            ("AliveNodeCount", "1"),
            ("Escalated", "0"),
            ("LeaderNodeName", "\"w0:9990 Linux w0\""),
            ("LeaderHostName", "\"w0\""),
            ("NodeCount", "3"),
        ] {
            assert_eq!(all[name].to_string(), expected, "{name}");
        }
        let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let own_name = format!("\"w1:9991 Linux {machine}\"");
        for (name, expected) in [
            ("ID", ["1", "0", "2"]),
            ("State", ["7", "4", "0"]),
            ("StateName", ["\"STANDBY\"", "\"LEADER\"", "\"DEAD\""]),
            ("Membership", ["0", "0", "0"]),
            ("MembershipString", ["\"MEMBER\""; 3]),
            ("NodeName", [&own_name, "\"w0:9990 Linux w0\"", "\"Not_Set\""]),
            ("HostName", ["\"w1\"", "\"w0\"", "\"w2\""]),
            ("DelegateIP", ["\"10.0.0.9\""; 3]),
            ("WdPort", ["9001", "9000", "9002"]),
            ("PgpoolPort", ["9991", "9990", "9992"]),
            ("Priority", ["1", "1", "1"]),
        ] {
            assert_eq!(of_hosts(&all, name), expected, "{name}");
        }
        assert_eq!(of_hosts(&info(&shared, 0), "StateName"), ["\"LEADER\""], "0 is a host's number, not the one that is asked");
        assert_eq!(of_hosts(&info(&shared, 2), "StateName"), ["\"DEAD\""]);
        for unknown in [3, 127, 400] {
            let none = info(&shared, unknown);
            assert_eq!(
                (none["NodeCount"].to_string().as_str(), of_hosts(&none, "State")),
                ("1", vec!["-1".to_owned()]),
                "{unknown}"
            );
        }
    }

    #[test]
    fn the_leader_holds_the_address_as_long_as_its_lease() {
        let leads = info(&shared_with(0, GroupMs::MAX), -1);
        assert_eq!((leads["Escalated"].as_i64(), leads["QuorumStatus"].as_i64()), (Some(1), Some(1)));
        let former = info(&shared_with(0, 0), -1);
        assert_eq!((former["Escalated"].as_i64(), former["QuorumStatus"].as_i64()), (Some(0), Some(-1)));
        assert_eq!((former["AliveNodeCount"].as_i64(), former["LeaderNodeName"].as_str()), (Some(0), Some("Not Set")));
        assert_eq!(of_hosts(&former, "StateName")[0], "\"NETWORK ISOLATION\"");
    }

    #[test]
    fn the_status_is_the_list_with_its_names() {
        let replies = PcpQuery::WatchdogStatus.at(&shared_with(0, GroupMs::MAX)).unwrap();
        let rows: Vec<Vec<String>> = replies.iter().map(PcpReply::strings).collect();
        assert_eq!((rows.len(), rows[0].as_slice()), (6, ["4".to_owned()].as_slice()), "a count, names, three hosts, the end");
        assert_eq!(rows[1][..2], ["host_id", "hostname"]);
        assert!(rows[2..5].iter().all(|row| row.len() == rows[1].len()), "{rows:?}");
        assert_eq!(rows[2][4], "LEADER");
    }

    #[test]
    fn without_a_watchdog_the_answer_is_pgpools() {
        let shared = crate::admin::listing::tests::shared();
        for query in [PcpQuery::WatchdogInfo(-1), PcpQuery::WatchdogStatus] {
            let fault = query.at(&shared).unwrap_err();
            let texts = ["ERROR", "PCP: informing watchdog info failed", "watchdog is not enabled"];
            assert_eq!([fault.severity, fault.message, fault.detail], texts.map(str::to_owned));
        }
    }
}
