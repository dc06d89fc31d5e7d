//! The group in the form of Pgpool-II's answer to `pcp_watchdog_info`: one JSON text, this host first.
//!
//! Source: Pgpool-II, `get_node_list_json` in watchdog.c; texts of hosts that are not known are what 4.3.5 answers.

use crate::admin::group_sight::{GroupSight, HostSight};
use serde_json::{Value, json};
use std::net::IpAddr;
use weir_config::WatchdogSettings;

/// Pgpool-II's text for a host that it has not heard, or that there is not.
const NOT_SET: &str = "Not_Set";
/// The quorum's state without a leader.
const NO_LEADER: &str = "Not Set";
/// An unknown host has this number.
const NO_HOST: i32 = -1;

/// Answers about one host by its `pgpool_node_id`; about all if that is negative. `machine`: the name of this host's machine.
pub fn of(settings: &WatchdogSettings, sight: &GroupSight, asked: i32, machine: &str) -> String {
    let configured = || sight.hosts.iter().filter(|host| host.place.is_some());
    let others = || configured().filter(|host| !host.is_own);
    let members = others().filter(|host| host.membership.number() == 0).count();
    let leader = sight.leader();
    let all = || configured().filter(|host| host.is_own).chain(others());
    let node = |host| node(settings, host, machine);
    let nodes: Vec<Value> = match u8::try_from(asked) {
        Err(_) if asked < 0 => all().map(node).collect(),
        Ok(number) if all().any(|host| host.number == number) => all().filter(|host| host.number == number).map(node).collect(),
        Ok(_) | Err(_) => vec![unknown_node()],
    };
    // Pgpool-II escalates with the lead, also without a virtual address.
    json!({
        "RemoteNodeCount": others().count(),
        "MemberRemoteNodeCount": members,
        "NodesRequireForQuorum": sight.votes_needed,
        "QuorumStatus": sight.quorum.number(),
        "AliveNodeCount": if leader.is_some() { sight.standbys() } else { 0 },
        "Escalated": i32::from(sight.leads),
        "LeaderNodeName": leader.map_or_else(|| NO_LEADER.to_owned(), |host| name(host, machine)),
        "LeaderHostName": leader.and_then(|host| host.place.as_ref()).map_or(NO_LEADER, |place| &place.hostname),
        "NodeCount": nodes.len(),
        "WatchdogNodes": nodes,
    })
    .to_string()
}

/// The machine of another host goes by the host's name: hosts do not tell theirs.
fn name(host: &HostSight, machine: &str) -> String {
    let Some(place) = host.place.as_ref().filter(|_| host.is_own || host.heard_ms_ago.is_some()) else {
        return NOT_SET.to_owned();
    };
    let machine = if host.is_own { machine } else { &place.hostname };
    format!("{}:{} Linux {machine}", place.hostname, place.pgpool_port)
}

fn node(settings: &WatchdogSettings, host: &HostSight, machine: &str) -> Value {
    let place = host.place.as_ref();
    let addresses: Vec<String> = settings.addresses.iter().map(IpAddr::to_string).collect();
    json!({
        "ID": host.number,
        "State": host.state.number(),
        "Membership": host.membership.number(),
        "MembershipString": host.membership.word(),
        "NodeName": name(host, machine),
        "HostName": place.map_or(NOT_SET, |place| &place.hostname),
        "StateName": host.state.word(),
        "DelegateIP": if addresses.is_empty() { NOT_SET.to_owned() } else { addresses.join(",") },
        "WdPort": place.map_or(0, |place| place.port),
        "PgpoolPort": place.map_or(0, |place| place.pgpool_port),
        "Priority": host.priority.unwrap_or(0),
        // Wanted by clients after 4.7.
        "LifecheckStarted": i32::from(host.is_own || host.heard_ms_ago.is_some()),
    })
}

fn unknown_node() -> Value {
    json!({
        "ID": NO_HOST,
        "State": NO_HOST,
        "Membership": NO_HOST,
        "MembershipString": NOT_SET,
        "NodeName": NOT_SET,
        "HostName": NOT_SET,
        "StateName": NOT_SET,
        "DelegateIP": NOT_SET,
        "WdPort": 0,
        "PgpoolPort": 0,
        "Priority": 0,
        "LifecheckStarted": 0,
    })
}
