//! Findings about one node.

use super::{
    BUILTIN_VERSION, ClientLoginUse, ClockOffset, ClusterAnswers, FailedLogin, FindingLevel, FindingList, LoginFailure,
    NodeAnswers, OnOffSetting, ReadinessFinding, RequiredPrivilege, ServerAnswers, ServerRole, ServerSettings, StreamingStatus,
    by_builtin, surplus,
};
use weir_failover::conninfo::Conninfo;
use weir_failover::{FailoverMode, FailoverRules, NodeId, parse_sync_names};

/// Weir's own connections: roles, health, positions, defaults, four for catalogs, one to spare.
const OWN_CONNS: u32 = 9;

const CLOCK_MS_MAX: u64 = 2_000;

pub(super) fn look(
    rules: &FailoverRules,
    cluster: &ClusterAnswers,
    asked: &NodeAnswers,
    user: &str,
    found: &mut Vec<ReadinessFinding>,
) {
    let mut notes = FindingList { node: Some(asked.id), found };
    let server = match &asked.server {
        Ok(server) => server,
        Err(why) => return refused(why, asked.user_parameter, &mut notes),
    };
    if let Err(why) = &asked.checker {
        refused(why, "sr_check_user", &mut notes);
    }
    version(rules, server, &mut notes);
    rights(rules, server, (asked.user_parameter, user), &mut notes);
    surplus::look(rules, server.version, asked, &mut notes);
    if let (Err(why), false) = (&asked.replication, server.missing.contains(&RequiredPrivilege::Replication)) {
        let text = format!("a connection for replication is refused: {}", why.text());
        notes.add(by_builtin(rules), text, format!("let {} in by pg_hba.conf, from this machine too", asked.user_parameter));
    }
    settings(rules, cluster, asked.id, server, &mut notes);
    connections(cluster, &server.settings, &mut notes);
    clock(server.clock, &mut notes);
    if let ServerRole::Standby { conninfo, receiver } = &server.role {
        timeline(cluster, server, &mut notes);
        streaming(*receiver, &mut notes);
        if let Some(text) = conninfo {
            upstream(rules, cluster, asked.id, text, &server.settings.cluster_name, &mut notes);
        }
    }
}

/// Without a failover clients must reach the server, no more.
pub(super) fn look_plain(rules: &FailoverRules, asked: &NodeAnswers, found: &mut Vec<ReadinessFinding>) {
    let mut notes = FindingList { node: Some(asked.id), found };
    match (&asked.checker, &asked.server) {
        (Err(why @ (LoginFailure::Unreachable(_) | LoginFailure::Encryption(_))), _) => refused(why, "sr_check_user", &mut notes),
        (Err(why), _) => {
            let text = format!("no login as sr_check_user, so that catalogs are read as clients' users: {}", why.text());
            notes.add(
                FindingLevel::Warning,
                text,
                "set sr_check_user and sr_check_password, if clients' users may not read them",
            );
        }
        (Ok(()), Ok(server)) => surplus::look(rules, server.version, asked, &mut notes),
        (Ok(()), Err(_)) => {}
    }
}

pub(super) fn logins(asked: &NodeAnswers, found: &mut Vec<ReadinessFinding>) {
    let mut notes = FindingList { node: Some(asked.id), found };
    for FailedLogin { needed, user, database, why } in &asked.failed_logins {
        // Reported once, not for each login.
        if matches!(why, LoginFailure::Unreachable(_) | LoginFailure::Encryption(_)) {
            continue;
        }
        let (who, consequence) = match needed {
            ClientLoginUse::LookUp => ("auth_user", "users that have no line in pool_passwd are refused"),
            ClientLoginUse::Forced => ("the user of an entry of database_file,", "its clients are refused"),
        };
        let text = format!("no login as {who} \"{user}\" to database \"{database}\", and {consequence}: {}", why.text());
        let advice = match why {
            LoginFailure::Identity(_) => "look at its password (pool_passwd, database_file) and the server's pg_hba.conf",
            LoginFailure::Unreachable(_) | LoginFailure::Encryption(_) | LoginFailure::Other(_) => {
                "look at the name of the database, and the server's log"
            }
        };
        notes.add(FindingLevel::Error, text, advice);
    }
}

impl LoginFailure {
    fn text(&self) -> &str {
        match self {
            LoginFailure::Unreachable(text)
            | LoginFailure::Encryption(text)
            | LoginFailure::Identity(text)
            | LoginFailure::Other(text) => text,
        }
    }
}

fn refused(why: &LoginFailure, parameter: &str, notes: &mut FindingList<'_>) {
    let advice = match why {
        LoginFailure::Unreachable(_) => {
            "start the server, or look at backend_hostname, backend_port, listen_addresses, hot_standby and firewalls".to_owned()
        }
        LoginFailure::Encryption(_) => {
            "look at backend_sslmode, and compare the server's certificate (ssl_cert_file) with the authorities in backend_sslrootcert or ssl_ca_cert".to_owned()
        }
        LoginFailure::Identity(_) => format!("look at {parameter}, its password and the server's pg_hba.conf"),
        LoginFailure::Other(_) => "look at the server's log".to_owned(),
    };
    notes.add(FindingLevel::Error, format!("no login as {parameter}: {}", why.text()), advice);
}

fn version(rules: &FailoverRules, server: &ServerAnswers, notes: &mut FindingList<'_>) {
    if server.version < BUILTIN_VERSION && rules.mode == FailoverMode::Builtin {
        let text = format!("its version is {}: failover_mode = builtin needs 13", server.version / 10_000);
        notes.add(FindingLevel::Error, text, "upgrade it, or use failover_mode = command");
    }
}

/// `whose`: the user's parameter and name.
fn rights(rules: &FailoverRules, server: &ServerAnswers, whose: (&str, &str), notes: &mut FindingList<'_>) {
    let (parameter, user) = whose;
    for right in &server.missing {
        // Other users' state is of use in any mode.
        let is_needed = rules.mode == FailoverMode::Builtin || *right == RequiredPrivilege::Monitor;
        if is_needed {
            let text = format!("{parameter} lacks {}", right.name());
            notes.add(by_builtin(rules), text, right.grant(server.version, user));
        }
    }
}

fn settings(rules: &FailoverRules, cluster: &ClusterAnswers, id: NodeId, server: &ServerAnswers, notes: &mut FindingList<'_>) {
    let ServerSettings { hot_standby, rewinds, alters, senders_max, slots_max, slots, slot_name: _, apply_delay_ms, .. } =
        &server.settings;
    if *alters == OnOffSetting::Off && rules.mode == FailoverMode::Builtin {
        notes.add(
            FindingLevel::Error,
            "allow_alter_system is off: standbys cannot be pointed at a new primary",
            "set allow_alter_system = on",
        );
    }
    for name in &server.fixed {
        let text = format!("{name} is set by the server's command line: ALTER SYSTEM has no effect on it");
        notes.add(by_builtin(rules), text, format!("start the server without it, and set {name} in postgresql.conf"));
    }
    if *hot_standby == OnOffSetting::Off {
        let text = "hot_standby is off: as a standby it could not be asked";
        notes.add(FindingLevel::Warning, text, "set hot_standby = on");
    }
    if *rewinds == OnOffSetting::Off {
        let text = "wal_log_hints and data checksums are off: pg_rewind cannot make an old primary a standby";
        notes.add(FindingLevel::Warning, text, "set wal_log_hints = on, or use pg_basebackup");
    }
    if *apply_delay_ms > 0 {
        let text =
            format!("recovery_min_apply_delay is {apply_delay_ms} ms: its reads are old, and a promotion replays the rest first");
        notes.add(FindingLevel::Warning, text, "set it to 0, or backend_promote_priority of this node to 0");
    }
    let is_candidate = rules.node(id).is_some_and(|node| node.priority > 0);
    let others = cluster.nodes.len().saturating_sub(1) as u32;
    if is_candidate && *senders_max < others {
        let text = format!("max_wal_senders is {senders_max}: as the primary it could not serve {others} standbys");
        notes.add(by_builtin(rules), text, format!("set max_wal_senders to {} or more", others + 2));
    }
    // A standby keeps its slot's name; the slot is made on the new primary.
    let needed = cluster.servers().filter(|(other, server)| *other != id && !server.settings.slot_name.is_empty()).count() as u32;
    let has_own = matches!(server.role, ServerRole::Primary { .. });
    let wanted = if has_own { needed.max(*slots) } else { needed + slots };
    if is_candidate && needed > 0 && *slots_max < wanted {
        let text =
            format!("max_replication_slots is {slots_max}, with {slots} in use: as the primary it needs {needed} for standbys");
        notes.add(by_builtin(rules), text, format!("set max_replication_slots to {} or more", wanted + 2));
    }
}

/// Clients get no reserved connections, and Weir needs some.
fn connections(cluster: &ClusterAnswers, settings: &ServerSettings, notes: &mut FindingList<'_>) {
    let (ServerSettings { conns_max, conns_reserved, .. }, wanted) = (settings, &cluster.conns);
    let usable = conns_max.saturating_sub(*conns_reserved);
    let needed = wanted.number.saturating_add(OWN_CONNS);
    if *conns_max > 0 && needed > usable {
        let text = format!(
            "max_connections is {conns_max}, {conns_reserved} of them reserved, and Weir opens up to {} for clients ({}) and {OWN_CONNS} of its own",
            wanted.number, wanted.parameters
        );
        let advice = format!("set max_connections to {} or more, or lower {}", needed + conns_reserved, wanted.parameters);
        notes.add(FindingLevel::Warning, text, advice);
    }
}

fn clock(clock: ClockOffset, notes: &mut FindingList<'_>) {
    let ClockOffset { ahead_ms, within_ms } = clock;
    let apart_ms = ahead_ms.unsigned_abs();
    if apart_ms.saturating_sub(within_ms) > CLOCK_MS_MAX {
        let whither = if ahead_ms > 0 { "ahead of" } else { "behind" };
        let text = format!("its clock is {} ms {whither} this machine's", apart_ms);
        let advice = "have both set by NTP: commit_outcome goes by the servers' clocks, and times in logs cannot be compared";
        notes.add(FindingLevel::Warning, text, advice);
    }
}

fn timeline(cluster: &ClusterAnswers, server: &ServerAnswers, notes: &mut FindingList<'_>) {
    let primary = cluster.primary().and_then(|(_, primary, _)| primary.timeline);
    if let (Some(own), Some(primary)) = (server.timeline, primary)
        && own != primary
    {
        let text = format!("it is on timeline {own}, and the primary on {primary}");
        notes.add(FindingLevel::Error, text, "set recovery_target_timeline = latest, or make the copy anew");
    }
}

fn streaming(receiver: StreamingStatus, notes: &mut FindingList<'_>) {
    match receiver {
        StreamingStatus::Streams => {}
        StreamingStatus::Hidden => {
            // The missing right is reported elsewhere.
        }
        StreamingStatus::None => {
            let advice = "look at its log: primary_conninfo, the password, and the primary's pg_hba.conf for replication";
            notes.add(FindingLevel::Error, "the standby does not stream from any server", advice);
        }
    }
}

fn upstream(
    rules: &FailoverRules,
    cluster: &ClusterAnswers,
    id: NodeId,
    text: &str,
    cluster_name: &str,
    notes: &mut FindingList<'_>,
) {
    let Some(conninfo) = Conninfo::parse(text) else {
        let what = "primary_conninfo is a URI, or cannot be read: Weir cannot change it, so that the node takes no part";
        return notes.add(by_builtin(rules), what, "write it as words and values: host=... port=... user=...");
    };
    let own = conninfo.get("application_name").filter(|name| !name.is_empty());
    let own = own.unwrap_or(if cluster_name.is_empty() { "walreceiver" } else { cluster_name });
    let primary = cluster.primary();
    let sync = primary.map(|(_, server, _)| server.settings.sync_names.as_str()).unwrap_or_default();
    name(rules, id, own, sync, notes);
    let leads_to = conninfo.place().and_then(|(host, port)| rules.node_at(host, port));
    if leads_to.is_none() && conninfo.get("service").is_none() {
        let is_known = primary.is_some_and(|(_, _, followers)| {
            followers.iter().any(|follower| follower.is_streaming && follower.application_name.eq_ignore_ascii_case(own))
        });
        let place = conninfo.place().map_or_else(|| "no host".to_owned(), |(host, port)| format!("{host}:{port}"));
        let level = if is_known { FindingLevel::Warning } else { by_builtin(rules) };
        let what = format!("primary_conninfo leads to {place}, which is no node's backend_hostname and backend_port");
        notes.add(level, what, "servers must reach each other by the names and ports of the nodes");
    }
}

fn name(rules: &FailoverRules, id: NodeId, own: &str, sync: &str, notes: &mut FindingList<'_>) {
    let known = rules.node(id).map(|node| node.application_name.as_str()).unwrap_or_default();
    let rule = parse_sync_names(sync).ok().flatten();
    let level = if rule.is_some() { by_builtin(rules) } else { FindingLevel::Warning };
    if known.is_empty() {
        let text = format!("backend_application_name{id} is not set, and the standby's application_name is {own}");
        notes.add(level, text, format!("set backend_application_name{id} = '{own}'"));
    } else if !known.eq_ignore_ascii_case(own) {
        let text = format!("backend_application_name{id} is {known}, and the standby's application_name is {own}");
        notes.add(level, text, "give both the same name");
    }
    let is_listed = |rule: &weir_failover::SyncRule| rule.names.iter().any(|name| name == "*" || name.eq_ignore_ascii_case(own));
    if rule.is_some_and(|rule| !is_listed(&rule)) {
        let text = format!("{own} is not in synchronous_standby_names: it may lack what others acknowledged");
        notes.add(FindingLevel::Warning, text, "add it, or leave it as a standby that acknowledges nothing");
    }
}
