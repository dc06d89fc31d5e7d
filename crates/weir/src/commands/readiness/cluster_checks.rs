//! Findings about all nodes together.

use super::{ClusterAnswers, FindingLevel, FindingList, ReadinessFinding, ServerRole, by_builtin};
use std::collections::BTreeSet;
use weir_failover::{FailoverMode, FailoverRules, NodeId, OtherPromoters, parse_sync_names};
use weir_session::session_state::server_defaults::DefaultDifference;

pub(super) fn look(rules: &FailoverRules, cluster: &ClusterAnswers, found: &mut Vec<ReadinessFinding>) {
    let mut notes = FindingList { node: None, found };
    mode(rules, &mut notes);
    folder(rules, cluster, &mut notes);
    primaries(cluster, &mut notes);
    identity(cluster, &mut notes);
    candidates(rules, cluster, &mut notes);
    synchronous(rules, cluster, &mut notes);
    defaults(cluster, found);
}

/// Without a failover.
pub(super) fn look_plain(rules: &FailoverRules, cluster: &ClusterAnswers, found: &mut Vec<ReadinessFinding>) {
    folder(rules, cluster, &mut FindingList { node: None, found });
}

fn mode(rules: &FailoverRules, notes: &mut FindingList<'_>) {
    match rules.mode {
        FailoverMode::Builtin => {}
        FailoverMode::Command if rules.commands.failover.is_empty() => {
            notes.add(FindingLevel::Error, "failover_mode is command, and failover_command is empty", "set failover_command");
        }
        FailoverMode::Command => {}
        FailoverMode::Follow | FailoverMode::Off => {
            let text = "failover_mode leaves it to others to promote a standby";
            notes.add(FindingLevel::Warning, text, "set failover_mode = builtin, if nobody else does");
        }
    }
    if rules.nodes.iter().all(|node| node.health.period_ms == 0)
        && matches!(rules.mode, FailoverMode::Builtin | FailoverMode::Command)
    {
        let text = "health_check_period is 0: a primary that says nothing is noticed late";
        notes.add(FindingLevel::Warning, text, "set health_check_period = 1");
    }
    if rules.nodes.len() < 2 {
        notes.add(
            FindingLevel::Error,
            "there is one node: nothing can be promoted",
            "add a standby: backend_hostname1, backend_port1",
        );
    } else if rules.nodes.len() == 2 && rules.mode == FailoverMode::Builtin && rules.company == OtherPromoters::Possible {
        let text = "there is one standby: a primary that says nothing is not replaced, only one that refuses connections";
        notes.add(FindingLevel::Warning, text, "set failover_alone = on, if no other Weir promotes these servers");
    }
}

fn folder(rules: &FailoverRules, cluster: &ClusterAnswers, notes: &mut FindingList<'_>) {
    let Some(why) = &cluster.folder else { return };
    let level = if matches!(rules.mode, FailoverMode::Builtin | FailoverMode::Command) {
        FindingLevel::Error
    } else {
        FindingLevel::Warning
    };
    notes.add(level, format!("work_dir cannot be written: {why}"), "make the folder, and give it to the user that Weir runs as");
}

fn primaries(cluster: &ClusterAnswers, notes: &mut FindingList<'_>) {
    let is_primary = |server: &super::ServerAnswers| matches!(server.role, ServerRole::Primary { .. });
    let primaries: Vec<String> =
        cluster.servers().filter(|(_, server)| is_primary(server)).map(|(id, _)| id.to_string()).collect();
    match primaries.as_slice() {
        [_] => {}
        [] => notes.add(FindingLevel::Error, "no node is a primary", "start the primary, or promote a standby"),
        several => {
            let text = format!("several nodes are primaries: {}", several.join(", "));
            notes.add(FindingLevel::Error, text, "make all but one of them copies of that one (pg_rewind, pg_basebackup -R)");
        }
    }
}

fn identity(cluster: &ClusterAnswers, notes: &mut FindingList<'_>) {
    let systems: BTreeSet<u64> = cluster.servers().filter_map(|(_, server)| server.system).collect();
    if systems.len() > 1 {
        let of = |(id, server): (NodeId, &super::ServerAnswers)| Some(format!("node {id}: {}", server.system?));
        let all: Vec<String> = cluster.servers().filter_map(of).collect();
        let text = format!("the nodes are servers of different clusters (system identifier {})", all.join(", "));
        notes.add(FindingLevel::Error, text, "look at backend_hostname and backend_port, or make the copies anew");
    }
}

fn candidates(rules: &FailoverRules, cluster: &ClusterAnswers, notes: &mut FindingList<'_>) {
    let Some((primary, _, _)) = cluster.primary() else { return };
    let mut standbys = rules.nodes.iter().filter(|node| node.id != primary).peekable();
    if standbys.peek().is_some() && standbys.all(|node| node.priority == 0) && rules.mode != FailoverMode::Follow {
        let text = "backend_promote_priority is 0 for all standbys: none of them is ever promoted";
        notes.add(FindingLevel::Error, text, "give one of them a priority above 0");
    }
}

fn defaults(cluster: &ClusterAnswers, found: &mut Vec<ReadinessFinding>) {
    let Some((primary, of_primary, _)) = cluster.primary() else { return };
    for (id, server) in cluster.servers().filter(|(id, _)| *id != primary) {
        let one = |difference: &DefaultDifference| {
            let DefaultDifference { name, here, there } = difference;
            format!("{name} = '{here}' and not '{there}'")
        };
        let all: Vec<String> = server.defaults.differences(&of_primary.defaults).iter().map(one).collect();
        if !all.is_empty() {
            let text = format!("sessions begin with other settings than on node {primary}, the primary: {}", all.join(", "));
            FindingList { node: Some(id), found }.add(
                FindingLevel::Warning,
                text,
                "make the configurations of the servers alike",
            );
        }
    }
}

fn synchronous(rules: &FailoverRules, cluster: &ClusterAnswers, notes: &mut FindingList<'_>) {
    let Some((primary, server, _)) = cluster.primary() else { return };
    let names = &server.settings.sync_names;
    let rule = match parse_sync_names(names) {
        Ok(Some(rule)) => rule,
        Ok(None) => return,
        Err(why) => {
            let text = format!("synchronous_standby_names = {names} cannot be read: {why}");
            return notes.add(by_builtin(rules), text, "write names as in ANY 1 (name1, name2)");
        }
    };
    let who = rule.acknowledgers(&rules.names(), primary);
    if who.acks > who.nodes.len() + who.strangers {
        let text = format!("synchronous_standby_names = {names} wants {} standbys, and names {}", who.acks, who.nodes.len());
        notes.add(FindingLevel::Error, text, "name as many standbys as must acknowledge, or more");
    } else if who.acks >= who.nodes.len() + who.strangers && who.acks > 0 {
        let text = format!("synchronous_standby_names = {names} wants all of its standbys: with one lost, commits wait");
        notes.add(FindingLevel::Warning, text, "name one more, or want one less: ANY 1 (name1, name2)");
    }
    let everybody: BTreeSet<NodeId> = rules.ids().filter(|id| *id != primary).collect();
    if !who.are_covered_by(&everybody) {
        let text = format!(
            "synchronous_standby_names = {names} names standbys that are no nodes here: they cannot be asked for what they acknowledged"
        );
        notes.add(by_builtin(rules), text, "set backend_application_name of each node to its name in that list");
    }
}
