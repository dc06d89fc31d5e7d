//! Findings as tables: a healthy cluster with one thing changed, and the words that follow.

use super::*;
use weir_failover::NodeRules;

/// Nodes called n0, n1 …, in builtin mode, with no other Weir.
fn rules(nodes: NodeId) -> FailoverRules {
    FailoverRules::plain((0..nodes).map(NodeRules::plain).collect())
}

/// Three servers that are fit: node 0 is the primary, and both standbys acknowledge.
fn healthy() -> ClusterAnswers {
    let settings = || ServerSettings {
        hot_standby: OnOffSetting::On,
        rewinds: OnOffSetting::On,
        alters: OnOffSetting::On,
        senders_max: 10,
        slots_max: 10,
        conns_max: 100,
        conns_reserved: 3,
        ..ServerSettings::default()
    };
    let server = |role| ServerAnswers {
        version: 150_004,
        system: Some(7),
        timeline: Some(1),
        role,
        settings: settings(),
        ..ServerAnswers::default()
    };
    let follower = |name: &str| ReplicationRow { application_name: name.into(), is_streaming: true };
    let mut primary = server(ServerRole::Primary { followers: vec![follower("n1"), follower("n2")] });
    primary.settings.sync_names = "ANY 1 (n1, n2)".into();
    let standby = |id: NodeId| {
        let conninfo = Some(format!("host=host0 port=5432 application_name=n{id}"));
        server(ServerRole::Standby { conninfo, receiver: StreamingStatus::Streams })
    };
    let asked = |(id, server)| NodeAnswers {
        id,
        user_parameter: "health_check_user",
        server: Ok(server),
        checker: Ok(()),
        replication: Ok(()),
        own_users: Vec::new(),
        failed_logins: Vec::new(),
    };
    let nodes = [(0, primary), (1, standby(1)), (2, standby(2))].map(asked).into();
    ClusterAnswers { nodes, conns: ConnsMax { number: 64, parameters: "num_init_children * max_pool" }, folder: None }
}

fn found(rules: &FailoverRules, cluster: &ClusterAnswers) -> Vec<String> {
    let line = |finding: &ReadinessFinding| {
        let node = finding.node.map_or_else(|| "all".to_owned(), |id| id.to_string());
        format!("{node} {:?}: {}", finding.level, finding.text)
    };
    findings(rules, cluster, "weir").iter().map(line).collect()
}

fn server(cluster: &mut ClusterAnswers, id: usize) -> &mut ServerAnswers {
    cluster.nodes[id].server.as_mut().expect("it answers")
}

fn conninfo(cluster: &mut ClusterAnswers, id: usize, text: &str) {
    server(cluster, id).role = ServerRole::Standby { conninfo: Some(text.into()), receiver: StreamingStatus::Streams };
}

/// Changes one thing, and compares the findings by their beginnings.
fn check(name: &str, change: impl FnOnce(&mut FailoverRules, &mut ClusterAnswers), expected: &[&str]) {
    let (mut rules, mut cluster) = (rules(3), healthy());
    change(&mut rules, &mut cluster);
    let found = found(&rules, &cluster);
    let is_it = found.len() == expected.len() && found.iter().zip(expected).all(|(found, begin)| found.starts_with(begin));
    assert!(is_it, "{name}: {found:#?}, expected {expected:#?}");
}

#[test]
fn nothing_is_wrong_with_servers_that_are_fit() {
    check("healthy", |_, _| (), &[]);
}

#[test]
fn a_server_whose_sessions_begin_otherwise_is_named() {
    let defaults = |node: u16, zone: &str| {
        let row = |cells: [&str; 5]| cells.map(|cell| Some(cell.to_owned())).to_vec();
        let rows = [row(["c", "", "5", "", ""]), row(["d", "timezone", zone, "GMT", "configuration file"])];
        ServerDefaults::of(node, &rows, std::iter::empty()).unwrap()
    };
    let set = |cluster: &mut ClusterAnswers, zones: [&str; 3]| {
        zones.iter().enumerate().for_each(|(id, zone)| server(cluster, id).defaults = defaults(id as u16, zone));
    };
    let text = "1 Warning: sessions begin with other settings than on node 0, the primary: timezone = 'Asia/Tokyo' and not 'UTC'";
    check("one that differs", |_, cluster| set(cluster, ["UTC", "Asia/Tokyo", "UTC"]), &[text]);
    check("all alike", |_, cluster| set(cluster, ["UTC"; 3]), &[]);
}

#[test]
fn a_user_with_more_rights_than_weir_needs_is_named_once() {
    use surplus::WeirUserPurpose;
    let user = |errand, name: &str| OwnUser { errand, name: name.into(), surplus: vec!["SUPERUSER".into()] };
    let all = || {
        vec![
            user(WeirUserPurpose::Failover, "root"),
            user(WeirUserPurpose::Looks, "root"),
            user(WeirUserPurpose::Logins, "asker"),
        ]
    };
    let text = "has more rights than Weir needs: SUPERUSER";
    let named = [format!("1 Warning: health_check_user \"root\" {text}"), format!("1 Warning: auth_user \"asker\" {text}")];
    check("15", |_, cluster| cluster.nodes[1].own_users = all(), &[&named[0], &named[1]]);
    let old = |_: &mut FailoverRules, cluster: &mut ClusterAnswers| {
        server(cluster, 1).version = 140_000;
        cluster.nodes[1].own_users = all();
    };
    check("14, where the failover needs a superuser", old, &[&named[1]]);
}

#[test]
fn servers_that_cannot_be_asked_are_named() {
    let identity = || Err(LoginFailure::Identity("password authentication failed".into()));
    check(
        "no server",
        |_, c| c.nodes[2].server = Err(LoginFailure::Unreachable("refused".into())),
        &["2 Error: no login as health_check_user: refused"],
    );
    check("a wrong password", |_, c| c.nodes[1].server = identity(), &["1 Error: no login as health_check_user: password"]);
    check(
        "the other user's",
        |_, c| c.nodes[1].checker = identity().map(|_: ServerAnswers| ()),
        &["1 Error: no login as sr_check_user"],
    );
    check(
        "replication",
        |_, c| c.nodes[1].replication = Err(LoginFailure::Identity("no pg_hba.conf entry".into())),
        &["1 Error: a connection for replication is refused: no pg_hba.conf entry"],
    );
    check(
        "no primary",
        |_, c| c.nodes[0].server = Err(LoginFailure::Unreachable("refused".into())),
        &["all Error: no node is a primary", "0 Error: no login as health_check_user"],
    );
}

#[test]
fn missing_rights_are_named_with_the_command_that_gives_them() {
    for right in RequiredPrivilege::ALL {
        check(
            right.name(),
            |_, c| server(c, 1).missing = vec![right],
            &[&format!("1 Error: health_check_user lacks {}", right.name())],
        );
    }
    assert_eq!(RequiredPrivilege::Monitor.grant(160_000, "weir"), "GRANT pg_monitor TO weir");
    assert_eq!(RequiredPrivilege::AlterConninfo.grant(140_000, "weir"), "before PostgreSQL 15: ALTER ROLE weir SUPERUSER");
    check(
        "where others promote",
        |r, c| (r.mode, server(c, 1).missing) = (FailoverMode::Follow, vec![RequiredPrivilege::Promote]),
        &["all Warning: failover_mode leaves it to others"],
    );
}

#[test]
fn servers_that_are_no_copies_of_the_primary_are_named() {
    check("another cluster", |_, c| server(c, 2).system = Some(8), &["all Error: the nodes are servers of different clusters"]);
    check("another timeline", |_, c| server(c, 2).timeline = Some(2), &["2 Error: it is on timeline 2, and the primary on 1"]);
    check("two primaries", |_, c| server(c, 2).role = ServerRole::default(), &["all Error: several nodes are primaries: 0, 2"]);
    check(
        "no stream",
        |_, c| {
            let conninfo = Some("host=host0 application_name=n2".into());
            server(c, 2).role = ServerRole::Standby { conninfo, receiver: StreamingStatus::None };
        },
        &["2 Error: the standby does not stream"],
    );
    check("an old server", |_, c| server(c, 1).version = 120_009, &["1 Error: its version is 12"]);
}

#[test]
fn a_primary_conninfo_that_cannot_be_used_is_named() {
    check("a URI", |_, c| conninfo(c, 1, "postgresql://host0/"), &["1 Error: primary_conninfo is a URI"]);
    check(
        "a host of no node, by a name that the primary knows",
        |_, c| conninfo(c, 1, "host=elsewhere port=1 application_name=n1"),
        &["1 Warning: primary_conninfo leads to elsewhere:1"],
    );
    check(
        "and by one that it does not",
        |_, c| conninfo(c, 1, "host=elsewhere port=1 application_name=other"),
        &[
            "1 Error: backend_application_name1 is n1, and the standby's application_name is other",
            "1 Error: primary_conninfo leads to elsewhere:1",
            "1 Warning: other is not in synchronous_standby_names",
        ],
    );
    check(
        "a name of its own without synchronous standbys",
        |_, c| {
            server(c, 0).settings.sync_names.clear();
            conninfo(c, 1, "host=host0 port=5432");
        },
        &["1 Warning: backend_application_name1 is n1, and the standby's application_name is walreceiver"],
    );
    check(
        "the command line",
        |_, c| server(c, 1).fixed = vec!["primary_conninfo".into()],
        &["1 Error: primary_conninfo is set by the server's command line"],
    );
}

#[test]
fn settings_that_a_new_primary_needs_are_named() {
    check(
        "slots",
        |_, c| (server(c, 2).settings.slot_name, server(c, 1).settings.slots_max) = ("two".into(), 0),
        &["1 Error: max_replication_slots is 0"],
    );
    check(
        "as many slots as it needs",
        |_, c| (server(c, 2).settings.slot_name, server(c, 1).settings.slots_max) = ("two".into(), 1),
        &[],
    );
    check(
        "slots that others use are no slots for standbys",
        |_, c| {
            let one = &mut server(c, 1).settings;
            (one.slots_max, one.slots) = (1, 1);
            server(c, 2).settings.slot_name = "two".into();
        },
        &["1 Error: max_replication_slots is 1, with 1 in use"],
    );
    check("as many senders as it needs", |_, c| server(c, 1).settings.senders_max = 2, &[]);
    check("senders", |_, c| server(c, 1).settings.senders_max = 1, &["1 Error: max_wal_senders is 1"]);
    check("senders of one that is never promoted", |r, c| (r.nodes[1].priority, server(c, 1).settings.senders_max) = (0, 1), &[]);
    check("pg_rewind", |_, c| server(c, 0).settings.rewinds = OnOffSetting::Off, &["0 Warning: wal_log_hints"]);
    check("hot_standby", |_, c| server(c, 0).settings.hot_standby = OnOffSetting::Off, &["0 Warning: hot_standby is off"]);
    check("delay", |_, c| server(c, 2).settings.apply_delay_ms = 5, &["2 Warning: recovery_min_apply_delay is 5 ms"]);
    check("ALTER SYSTEM", |_, c| server(c, 2).settings.alters = OnOffSetting::Off, &["2 Error: allow_alter_system is off"]);
}

#[test]
fn rules_that_nobody_can_meet_are_named() {
    let sync = |names: &'static str| {
        move |_: &mut FailoverRules, c: &mut ClusterAnswers| server(c, 0).settings.sync_names = names.into()
    };
    check("too many", sync("ANY 3 (n1, n2)"), &["all Error: synchronous_standby_names = ANY 3 (n1, n2) wants 3"]);
    check("all", sync("ANY 2 (n1, n2)"), &["all Warning: synchronous_standby_names = ANY 2 (n1, n2) wants all"]);
    check(
        "a stranger",
        sync("ANY 1 (n1, n2, other)"),
        &["all Error: synchronous_standby_names = ANY 1 (n1, n2, other) names standbys that are no nodes"],
    );
    check("not one of them", sync("ANY 1 (n1)"), &["all Warning: ", "2 Warning: n2 is not in synchronous_standby_names"]);
    check(
        "no candidates",
        |r, _| r.nodes.iter_mut().for_each(|node| node.priority = 0),
        &["all Error: backend_promote_priority is 0 for all standbys"],
    );
    check("no folder", |_, c| c.folder = Some("no such folder".into()), &["all Error: work_dir cannot be written"]);
    check(
        "no checks",
        |r, _| r.nodes.iter_mut().for_each(|node| node.health.period_ms = 0),
        &["all Warning: health_check_period is 0"],
    );
}

#[test]
fn connections_that_a_server_has_not_are_named_with_both_parameters() {
    let of = |number, parameters| move |_: &mut FailoverRules, c: &mut ClusterAnswers| c.conns = ConnsMax { number, parameters };
    check("enough", of(88, "num_init_children * max_pool"), &[]);
    let named = |id: u8| {
        format!(
            "{id} Warning: max_connections is 100, 3 of them reserved, and Weir opens up to 128 for clients (num_init_children * max_pool)"
        )
    };
    let all = [0, 1, 2].map(named);
    check("the default", of(128, "num_init_children * max_pool"), &all.each_ref().map(String::as_str));
    check("an old server that does not say", |_, c| server(c, 0).settings.conns_max = 0, &[]);
}

#[test]
fn a_clock_that_differs_by_more_than_the_question_took_is_named() {
    let set = |ahead_ms, within_ms| {
        move |_: &mut FailoverRules, c: &mut ClusterAnswers| server(c, 1).clock = ClockOffset { ahead_ms, within_ms }
    };
    check("a slow answer", set(2_500, 1_000), &[]);
    check("ahead", set(2_500, 100), &["1 Warning: its clock is 2500 ms ahead of this machine's"]);
    check("behind", set(-90_000, 100), &["1 Warning: its clock is 90000 ms behind this machine's"]);
}

#[test]
fn a_failed_handshake_is_no_matter_of_firewalls_and_the_user_is_named_by_the_parameter_that_is_set() {
    let mut cluster = healthy();
    cluster.nodes[2].server = Err(LoginFailure::Encryption("the certificate is signed by none of the authorities".into()));
    cluster.nodes[2].user_parameter = "sr_check_user";
    let found = findings(&rules(3), &cluster, "weir");
    assert_eq!(found[0].text, "no login as sr_check_user: the certificate is signed by none of the authorities");
    assert!(found[0].advice.contains("backend_sslrootcert") && !found[0].advice.contains("firewall"), "{}", found[0].advice);
}

#[test]
fn servers_that_nobody_promotes_are_asked_for_logins_only() {
    let plain = |rules: &mut FailoverRules, cluster: &mut ClusterAnswers| {
        (rules.servers, rules.mode) = (ServerRelation::Unrelated, FailoverMode::Off);
        rules.nodes.truncate(1);
        cluster.nodes.truncate(1);
        server(cluster, 0).missing = RequiredPrivilege::ALL.to_vec();
        server(cluster, 0).settings.hot_standby = OnOffSetting::Off;
        cluster.nodes[0].replication = Err(LoginFailure::Identity("no".into()));
    };
    check("raw", plain, &[]);
    let refused = |cluster: &mut ClusterAnswers, why: fn(String) -> LoginFailure| {
        cluster.nodes[0].server = Err(why("no".into()));
        cluster.nodes[0].checker = Err(why("no".into()));
    };
    let text = "0 Warning: no login as sr_check_user, so that catalogs are read as clients' users: no";
    check("no login", |rules, cluster| (plain(rules, cluster), refused(cluster, LoginFailure::Identity)).1, &[text]);
    let text = "0 Error: no login as sr_check_user: no";
    check("nobody there", |rules, cluster| (plain(rules, cluster), refused(cluster, LoginFailure::Unreachable)).1, &[text]);
    let one = |mode| {
        move |rules: &mut FailoverRules, cluster: &mut ClusterAnswers| {
            rules.mode = mode;
            rules.nodes.truncate(1);
            cluster.nodes.truncate(1);
            server(cluster, 0).settings.sync_names = String::new();
        }
    };
    check("one server", one(FailoverMode::Follow), &[]);
    check(
        "one server that shall be replaced",
        one(FailoverMode::Builtin),
        &["all Error: there is one node: nothing can be promoted"],
    );
}

#[test]
fn logins_that_clients_need_are_errors_wherever_they_fail() {
    let failed = |needed, user: &str, why| FailedLogin { needed, user: user.into(), database: "shop".into(), why };
    let no = || LoginFailure::Identity("no".into());
    check(
        "two",
        |_, cluster| {
            cluster.nodes[0].failed_logins = vec![
                failed(ClientLoginUse::LookUp, "asker", no()),
                failed(ClientLoginUse::Forced, "app", LoginFailure::Other("no".into())),
                failed(ClientLoginUse::Forced, "other", LoginFailure::Unreachable("no".into())),
            ];
        },
        &[
            "0 Error: no login as auth_user \"asker\" to database \"shop\", and users that have no line in pool_passwd are refused: no",
            "0 Error: no login as the user of an entry of database_file, \"app\" to database \"shop\", and its clients are refused: no",
        ],
    );
}

#[test]
fn one_standby_is_too_few_for_a_weir_that_may_have_company() {
    use weir_failover::{FailoverMode, OtherPromoters};
    let is_told = |nodes: usize, mode: FailoverMode, company: OtherPromoters| {
        let (mut rules, mut cluster) = (rules(3), healthy());
        rules.nodes.truncate(nodes);
        cluster.nodes.truncate(nodes);
        (rules.mode, rules.company) = (mode, company);
        found(&rules, &cluster).iter().any(|line| line.starts_with("all Warning: there is one standby"))
    };
    assert!(is_told(2, FailoverMode::Builtin, OtherPromoters::Possible));
    assert!(
        !is_told(3, FailoverMode::Builtin, OtherPromoters::Possible) && !is_told(2, FailoverMode::Off, OtherPromoters::Possible)
    );
    assert!(!is_told(2, FailoverMode::Builtin, OtherPromoters::Alone));
}
