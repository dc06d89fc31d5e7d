//! Answers as text, in the form of Pgpool-II's clients.

use crate::log::utc;
use serde_json::Value;
use weir_wire::pcp_protocol::{NodeInfo, PcpReply, PcpReplyCode, PcpRequest};

#[derive(Clone, Copy)]
pub struct OutputShape {
    /// True for a line per value.
    pub(super) is_verbose: bool,
    /// True to show processes without clients.
    pub(super) shows_all: bool,
}

const NODE: [&str; 12] = [
    "Hostname",
    "Port",
    "Status",
    "Weight",
    "Status Name",
    "Backend Status Name",
    "Role",
    "Backend Role",
    "Replication Delay",
    "Replication State",
    "Replication Sync State",
    "Last Status Change",
];

const HEALTH: [&str; 20] = [
    "Node Id",
    "Host Name",
    "Port",
    "Status",
    "Role",
    "Last Status Change",
    "Total Count",
    "Success Count",
    "Fail Count",
    "Skip Count",
    "Retry Count",
    "Average Retry Count",
    "Max Retry Count",
    "Max Health Check Duration",
    "Minimum Health Check Duration",
    "Average Health Check Duration",
    "Last Health Check",
    "Last Successful Health Check",
    "Last Skip Health Check",
    "Last Failed Health Check",
];

/// Titles, and indexes in the answer. Releases before 4.5 lack the last four, those before 4.7 three.
const PROCESS: [(&str, usize); 20] = [
    ("Database", 5),
    ("Username", 6),
    ("Start time", 1),
    ("Client connection count", 2),
    ("Major", 11),
    ("Minor", 12),
    ("Backend connection time", 7),
    ("Client connection time", 8),
    ("Client idle duration", 10),
    ("Client disconnection time", 9),
    ("Pool Counter", 13),
    ("Backend PID", 14),
    ("Connected", 15),
    ("PID", 0),
    ("Backend ID", 4),
    ("Status", 16),
    ("Load balance node", 17),
    ("Client host", 18),
    ("Client port", 19),
    ("Statement", 20),
];

const DATABASE: usize = 5;

pub fn text(name: &str, request: &PcpRequest, replies: &[PcpReply], shape: OutputShape) -> Result<String, String> {
    let last = replies.last().map(PcpReply::strings).unwrap_or_default();
    let text = match request {
        PcpRequest::NodeCount => node_count(last.first(), shape),
        PcpRequest::NodeInfo(_) => {
            let nodes: Option<Vec<NodeInfo>> = rows(replies, PcpReplyCode::Node).iter().map(|row| NodeInfo::read(row)).collect();
            nodes.map(|nodes| nodes.iter().map(|node| node_info(node, shape)).collect())
        }
        PcpRequest::HealthCheckStats(_) => {
            (last.len() == HEALTH.len()).then(|| values(HEALTH.into_iter().zip(last.iter().map(String::as_str)), shape))
        }
        PcpRequest::ProcessCount => Some(process_count(last.get(1..).unwrap_or_default(), shape)),
        PcpRequest::ProcessInfo(_) => Some(processes(&rows(replies, PcpReplyCode::Process), shape)),
        PcpRequest::PoolStatus => pool_status(&rows(replies, PcpReplyCode::Parameter), shape),
        PcpRequest::WatchdogInfo(_) => last.first().and_then(|json| watchdog(json, shape)),
        PcpRequest::WatchdogStatus => watchdog_status(&rows(replies, PcpReplyCode::Row), shape),
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
        | PcpRequest::Set { .. }
        | PcpRequest::StopRecovery
        | PcpRequest::End => Some(format!("{name} -- Command Successful\n")),
    };
    text.ok_or_else(|| format!("ERROR: the answer is not understood: {replies:?}"))
}

fn rows(replies: &[PcpReply], kind: PcpReplyCode) -> Vec<Vec<String>> {
    let is_row = |reply: &&PcpReply| matches!(reply, PcpReply::Words { code, .. } if *code == kind);
    replies.iter().filter(is_row).map(PcpReply::strings).collect()
}

fn values<'a>(values: impl Iterator<Item = (&'a str, &'a str)> + Clone, shape: OutputShape) -> String {
    if !shape.is_verbose {
        let all: Vec<&str> = values.map(|(_, value)| value).collect();
        return all.join(" ") + "\n";
    }
    let width = values.clone().map(|(title, _)| title.len()).max().unwrap_or(0);
    values.map(|(title, value)| format!("{title:width$} : {value}\n")).collect::<String>() + "\n"
}

fn node_count(count: Option<&String>, shape: OutputShape) -> Option<String> {
    let count = count?;
    Some(if shape.is_verbose { format!("Node Count\n____________\n {count}\n") } else { format!("{count}\n") })
}

fn node_info(node: &NodeInfo, shape: OutputShape) -> String {
    let or_none = |text: &str| if text.is_empty() { "none".to_string() } else { text.to_string() };
    let all = [
        node.hostname.clone(),
        node.port.to_string(),
        node.status.number().to_string(),
        format!("{:.6}", node.weight),
        node.status.name().to_string(),
        node.pg_status.clone(),
        node.role.name().to_string(),
        node.pg_role.clone(),
        node.delay.to_string(),
        or_none(&node.replication_state),
        or_none(&node.replication_sync_state),
        utc(node.changed_at_s),
    ];
    values(NODE.into_iter().zip(all.iter().map(String::as_str)), shape)
}

fn process_count(pids: &[String], shape: OutputShape) -> String {
    if !shape.is_verbose {
        return pids.iter().map(|pid| format!("{pid} ")).collect::<String>() + "\n";
    }
    let lines: String = pids.iter().enumerate().map(|(at, pid)| format!("{at} \t | \t {pid}\n")).collect();
    format!("No \t | \t PID\n_____________________\n{lines}\nTotal Processes:{}\n", pids.len())
}

fn processes(rows: &[Vec<String>], shape: OutputShape) -> String {
    let has_client = |row: &&Vec<String>| shape.shows_all || row.get(DATABASE).is_some_and(|database| !database.is_empty());
    let all: String = rows
        .iter()
        .filter(has_client)
        .map(|row| {
            let known = PROCESS.iter().filter_map(|(title, at)| row.get(*at).map(|value| (*title, value.as_str())));
            values(known, shape)
        })
        .collect();
    if all.is_empty() { "No process information available\n\n".to_string() } else { all }
}

fn pool_status(rows: &[Vec<String>], shape: OutputShape) -> Option<String> {
    let mut text = String::new();
    for (at, row) in rows.iter().enumerate() {
        let [name, value, description] = row.as_slice() else { return None };
        text += &if shape.is_verbose {
            format!("Name [{at:3}]:\t{name}\nValue:      \t{value}\nDescription:\t{description}\n\n")
        } else {
            format!("name : {name}\nvalue: {value}\ndesc : {description}\n\n")
        };
    }
    Some(text)
}

fn watchdog(json: &str, shape: OutputShape) -> Option<String> {
    let cluster: Value = serde_json::from_str(json).ok()?;
    let (number, word) = (|name: &str| cluster[name].as_i64().unwrap_or(0), |name: &str| string(&cluster[name]));
    let vip = if number("Escalated") != 0 { "YES" } else { "NO" };
    let nodes = cluster["WatchdogNodes"].as_array()?;
    if !shape.is_verbose {
        let first = format!(
            "{} {} {vip} {} {}\n\n",
            number("RemoteNodeCount") + 1,
            number("MemberRemoteNodeCount") + 1,
            word("LeaderNodeName"),
            word("LeaderHostName")
        );
        return Some(first + &nodes.iter().map(watchdog_line).collect::<String>());
    }
    let quorum = match number("QuorumStatus") {
        0 => "QUORUM IS ON THE EDGE",
        1 => "QUORUM EXIST",
        -1 => "QUORUM ABSENT",
        -2 => "NO LEADER NODE",
        _ => "UNKNOWN",
    };
    let count = |name: &str| number(name).to_string();
    let all = [
        ("Total Nodes", (number("RemoteNodeCount") + 1).to_string()),
        ("Remote Nodes", count("RemoteNodeCount")),
        ("Member Remote Nodes", count("MemberRemoteNodeCount")),
        ("Alive Remote Nodes", count("AliveNodeCount")),
        ("Nodes required for quorum", count("NodesRequireForQuorum")),
        ("Quorum state", quorum.to_string()),
        ("Local node escalation", vip.to_string()),
        ("Leader Node Name", word("LeaderNodeName")),
        ("Leader Host Name", word("LeaderHostName")),
    ];
    let head: String = all.iter().map(|(title, value)| format!("{title:25}: {value}\n")).collect();
    let nodes: String = nodes.iter().map(|node| watchdog_node(node, shape)).collect();
    Some(format!("Watchdog Cluster Information \n{head}\nWatchdog Node Information \n{nodes}"))
}

/// A table of the columns in which anything stands.
fn watchdog_status(rows: &[Vec<String>], shape: OutputShape) -> Option<String> {
    let (names, hosts) = rows.split_first().filter(|(names, hosts)| hosts.iter().all(|host| host.len() == names.len()))?;
    if shape.is_verbose {
        return Some(
            hosts
                .iter()
                .map(|host| values(names.iter().map(String::as_str).zip(host.iter().map(String::as_str)), shape))
                .collect(),
        );
    }
    let used = (0..names.len()).filter(|at| hosts.iter().any(|host| !host[*at].is_empty()));
    let widths: Vec<(usize, usize)> =
        used.map(|at| (at, rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0))).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = widths.iter().map(|(at, width)| format!("{:width$}", row[*at])).collect();
        cells.join("  ").trim_end().to_owned() + "\n"
    };
    Some(rows.iter().map(line).collect())
}

fn string(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

fn watchdog_line(node: &Value) -> String {
    let names = ["NodeName", "HostName", "PgpoolPort", "WdPort", "State", "StateName", "Membership", "MembershipString"];
    names.map(|name| string(&node[name])).join(" ") + "\n"
}

fn watchdog_node(node: &Value, shape: OutputShape) -> String {
    let all = [
        ("Node Name", "NodeName"),
        ("Host Name", "HostName"),
        ("Delegate IP", "DelegateIP"),
        ("Pgpool port", "PgpoolPort"),
        ("Watchdog port", "WdPort"),
        ("Node priority", "Priority"),
        ("Status", "State"),
        ("Status Name", "StateName"),
        ("Membership Status", "MembershipString"),
    ]
    .map(|(title, name)| (title, string(&node[name])));
    values(all.iter().map(|(title, value)| (*title, value.as_str())), shape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::pcp_protocol::{NodeRole, NodeStatus, PcpLayout, StandbyDelay};

    const BRIEF: OutputShape = OutputShape { is_verbose: false, shows_all: false };
    const LONG: OutputShape = OutputShape { is_verbose: true, shows_all: false };

    fn check(request: &PcpRequest, replies: &[PcpReply], shape: OutputShape, expected: &str) {
        assert_eq!(text("pcp_x", request, replies, shape).unwrap(), expected, "{request:?}");
    }

    fn node() -> NodeInfo {
        NodeInfo {
            hostname: "127.0.0.1".into(),
            port: 21550,
            status: NodeStatus::Up,
            pg_status: "up".into(),
            weight: 1.0,
            role: NodeRole::Primary,
            pg_role: "primary".into(),
            delay: StandbyDelay::Bytes(0),
            replication_state: String::new(),
            replication_sync_state: String::new(),
            changed_at_s: 1_795_596_358,
        }
    }

    #[test]
    fn answers_look_as_pgpools_clients_print_them() {
        check(&PcpRequest::Attach(1), &[PcpReply::done(b'c')], BRIEF, "pcp_x -- Command Successful\n");
        let count = [PcpReply::of(b'l', PcpReplyCode::Done, ["2"])];
        check(&PcpRequest::NodeCount, &count, BRIEF, "2\n");
        check(&PcpRequest::NodeCount, &count, LONG, "Node Count\n____________\n 2\n");
        let pids = [PcpReply::of(b'n', PcpReplyCode::Done, ["2", "22423", "22424"])];
        check(&PcpRequest::ProcessCount, &pids, BRIEF, "22423 22424 \n");
        let long = "No \t | \t PID\n_____________________\n0 \t | \t 22423\n1 \t | \t 22424\n\nTotal Processes:2\n";
        check(&PcpRequest::ProcessCount, &pids, LONG, long);
        for layout in [PcpLayout::V4_3_0, PcpLayout::V4_3, PcpLayout::V4_7] {
            let nodes = [
                PcpReply::of(b'i', PcpReplyCode::Count, ["1"]),
                PcpReply::of(b'i', PcpReplyCode::Node, node().strings(layout)),
                PcpReply::done(b'i'),
            ];
            let line = "127.0.0.1 21550 2 1.000000 up up primary primary 0 none none 2026-11-25 08:45:58\n";
            check(&PcpRequest::NodeInfo(0), &nodes, BRIEF, line);
            let long = text("", &PcpRequest::NodeInfo(0), &nodes, LONG).unwrap();
            assert!(long.starts_with("Hostname               : 127.0.0.1\nPort                   : 21550\n"), "{long}");
            assert!(long.ends_with("\nLast Status Change     : 2026-11-25 08:45:58\n\n"), "{long}");
        }
        let status = [
            PcpReply::binary_count(b'b', 1),
            PcpReply::of(b'b', PcpReplyCode::Parameter, ["port", "1", "x"]),
            PcpReply::done(b'b'),
        ];
        check(&PcpRequest::PoolStatus, &status, BRIEF, "name : port\nvalue: 1\ndesc : x\n\n");
        check(&PcpRequest::PoolStatus, &status, LONG, "Name [  0]:\tport\nValue:      \t1\nDescription:\tx\n\n");
    }

    #[test]
    fn processes_without_a_client_are_shown_when_asked_for() {
        let row = |strings: &[&str]| [PcpReply::of(b'p', PcpReplyCode::Process, strings), PcpReply::done(b'p')];
        let idle = row(&["7", "s", "1", "0", "0", "", "", "", "", "", "0", "0", "0", "0", "0", "0", "Wait for connection"]);
        check(&PcpRequest::ProcessInfo(0), &idle, BRIEF, "No process information available\n\n");
        let all = OutputShape { shows_all: true, ..BRIEF };
        check(&PcpRequest::ProcessInfo(0), &idle, all, "  s 1 0 0   0  0 0 0 7 0 Wait for connection\n");
        let busy = row(&[
            "7", "s", "1", "0", "0", "db", "u", "b", "c", "d", "9", "3", "0", "5", "77", "1", "Idle", "1", "h", "99", "select 1",
        ]);
        check(&PcpRequest::ProcessInfo(0), &busy, BRIEF, "db u s 1 3 0 b c 9 d 5 77 1 7 0 Idle 1 h 99 select 1\n");
    }

    #[test]
    fn a_watchdogs_json_is_read() {
        let json = r#"{"RemoteNodeCount":1,"MemberRemoteNodeCount":1,"NodesRequireForQuorum":2,"QuorumStatus":1,"AliveNodeCount":1,
            "Escalated":1,"LeaderNodeName":"a:9999 Linux a","LeaderHostName":"a","NodeCount":1,"WatchdogNodes":[{"ID":0,"State":4,
            "Membership":0,"MembershipString":"MEMBER","NodeName":"a:9999 Linux a","HostName":"a","StateName":"LEADER",
            "DelegateIP":"10.0.0.1","WdPort":9000,"PgpoolPort":9999,"Priority":1}]}"#;
        let replies = [PcpReply::of(b'w', PcpReplyCode::Done, [json])];
        let brief = "2 2 YES a:9999 Linux a a\n\na:9999 Linux a a 9999 9000 4 LEADER 0 MEMBER\n";
        check(&PcpRequest::WatchdogInfo(-1), &replies, BRIEF, brief);
        let long = text("", &PcpRequest::WatchdogInfo(-1), &replies, LONG).unwrap();
        assert!(long.contains("Quorum state             : QUORUM EXIST\n"), "{long}");
        assert!(long.contains("\nMembership Status : MEMBER\n"), "{long}");
        assert!(text("", &PcpRequest::WatchdogInfo(0), &[PcpReply::of(b'w', PcpReplyCode::Done, ["{"])], BRIEF).is_err());
    }

    #[test]
    fn the_status_of_a_group_is_a_table() {
        let row = |cells: [&str; 4]| PcpReply::of(b'y', PcpReplyCode::Row, cells);
        let [names, one, other] =
            [["host_id", "state", "fault", "term"], ["0", "LEADER", "", "4"], ["1", "LOST", "", "4"]].map(row);
        let replies = [PcpReply::of(b'y', PcpReplyCode::Count, ["3"]), names, one, other, PcpReply::done(b'y')];
        check(&PcpRequest::WatchdogStatus, &replies, BRIEF, "host_id  state   term\n0        LEADER  4\n1        LOST    4\n");
        let long = text("", &PcpRequest::WatchdogStatus, &replies, LONG).unwrap();
        assert!(long.starts_with("host_id : 0\nstate   : LEADER\nfault   : \n"), "{long}");
        let short = [replies[1].clone(), PcpReply::of(b'y', PcpReplyCode::Row, ["0"])];
        assert!(text("", &PcpRequest::WatchdogStatus, &short, BRIEF).is_err());
    }

    #[test]
    fn answers_that_are_none_are_named() {
        let bad = [PcpReply::of(b'i', PcpReplyCode::Node, ["x"]), PcpReply::done(b'i')];
        assert!(text("", &PcpRequest::NodeInfo(0), &bad, BRIEF).unwrap_err().contains("not understood"));
        assert!(text("", &PcpRequest::NodeCount, &[], BRIEF).is_err());
        assert!(text("", &PcpRequest::HealthCheckStats(0), &[PcpReply::of(b'h', PcpReplyCode::Done, ["1"])], BRIEF).is_err());
    }
}
