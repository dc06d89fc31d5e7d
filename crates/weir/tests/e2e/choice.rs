//! The node of a read: lists of preferences, hints, a session's own word, load, lag, zones.

use crate::support::faults::{Fault, Network, Toward};
use crate::support::ground::{Owned, cluster, wait_for_catalog};
use crate::support::proxy::{Backend, show};
use crate::support::raw::tags;
use crate::support::{Ground, Proxy, Raw, wait_until, wire};
use std::collections::BTreeMap;
use std::time::Duration;

/// The port of the server that answers: a read like any other.
const WHERE: &str = "select inet_server_port()";

/// Reads that a test makes to see that all go to one node.
const SOME: usize = 12;

/// Ports of the nodes by number: primary, then standbys.
fn ports(ground: &Ground) -> Vec<String> {
    let mut ports = vec![ground.primary_port()];
    ports.extend(ground.standby_ports());
    ports
}

/// Where so many reads go, by port.
fn counts(client: &mut Raw, reads: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..reads {
        *counts.entry(client.value(WHERE)).or_default() += 1;
    }
    counts
}

fn check_all_go_to(client: &mut Raw, port: &str) {
    assert_eq!(counts(client, SOME), BTreeMap::from([(port.to_string(), SOME)]));
}

fn rule(client: &mut Raw, text: &str) -> (String, String) {
    let row = client.rows(&format!("show route for '{}'", text.replace('\'', "''"))).remove(0);
    (row[1].clone(), row[2].clone())
}

/// How often a rule has chosen a node.
fn uses(client: &mut Raw, rule: &str) -> u64 {
    let rows = client.rows("show pool_rules");
    let row = rows.iter().find(|row| row[1] == rule).unwrap_or_else(|| panic!("no rule {rule}"));
    row[2].parse().unwrap()
}

#[test]
fn reads_go_where_the_lists_prefer_them() {
    let ground = Ground::new();
    let ports = ports(&ground);
    let database = &ground.database;
    let more = format!(
        "app_name_redirect_preference_list = 'report.*:2,batch:primary,nowhere:standby(0)'\n\
         database_redirect_preference_list = '{database}:1'\nuser_redirect_preference_list = 'postgres:primary'"
    );
    let proxy = ground.proxy(&more);
    let named = |name: &str| ground.client_with(&proxy, &[("application_name", name)]);
    check_all_go_to(&mut named("Reports of the day"), &ports[2]);
    check_all_go_to(&mut named("batch"), &ports[0]);
    check_all_go_to(&mut named("nowhere"), &ports[0]);
    check_all_go_to(&mut named("unreported"), &ports[1]);
    let mut client = ground.client(&proxy);
    check_all_go_to(&mut client, &ports[1]);
    assert_eq!(rule(&mut client, WHERE), ("1".into(), "read_redirected".into()));
    assert_eq!(client.extended(WHERE, &[]).unwrap(), ports[1]);
    client.run("create table t (a int)");
    assert_eq!(client.value("insert into t values (1) returning inet_server_port()"), ports[0], "a write is no read");
    wait_for_catalog(&mut client, database);
    // The name of the moment counts.
    client.run("set application_name = 'report'");
    check_all_go_to(&mut client, &ports[2]);
    client.run("begin; set local application_name = 'batch'; commit");
    check_all_go_to(&mut client, &ports[2]);
    client.run("reset application_name");
    check_all_go_to(&mut client, &ports[1]);
    assert!(uses(&mut client, "read_redirected") >= 5 * SOME as u64);
    let mut elsewhere = proxy.console();
    check_all_go_to(&mut elsewhere, &ports[0]);
}

#[test]
fn a_ratio_is_the_part_of_the_reads_that_a_list_takes() {
    let ground = Ground::new();
    let ports = ports(&ground);
    let proxy = ground.proxy("causal_reads = off\nuser_redirect_preference_list = 'postgres:1(0.75)'");
    let counted = counts(&mut ground.client(&proxy), 400);
    // 300 are expected, with a deviation of 8.7: six of them are never seen by chance.
    assert!((248..=352).contains(&counted[&ports[1]]), "{counted:?}");
    assert_eq!(counted[&ports[1]] + counted[&ports[2]], 400, "the rest goes to the others with weight: {counted:?}");
}

#[test]
fn a_session_throws_once_whether_a_list_takes_it_unless_every_statement_is_balanced() {
    let ground = Ground::new();
    let proxy = ground.proxy("statement_level_load_balance = off\nuser_redirect_preference_list = 'postgres:0(0.5)'");
    let mut on_primary = 0;
    for _ in 0..24 {
        let mut client = ground.client(&proxy);
        let port = client.value(WHERE);
        check_all_go_to(&mut client, &port);
        on_primary += usize::from(port == ground.primary_port());
    }
    assert!((1..24).contains(&on_primary), "{on_primary} of 24 sessions read on the primary, which has no weight");
}

#[test]
fn lists_count_from_a_reload_on_and_a_node_that_is_down_is_preferred_by_nobody() {
    let ground = Ground::new();
    let ports = ports(&ground);
    let proxy = ground.proxy("statement_level_load_balance = off");
    let mut client = ground.client(&proxy);
    client.run(WHERE);
    for node in [1, 2] {
        proxy.add_conf(&format!("user_redirect_preference_list = 'postgres:{node}'"));
        proxy.reload();
        wait_until("the list to count", || client.value(WHERE) == ports[node]);
        check_all_go_to(&mut client, &ports[node]);
    }
    // Nobody listens at the port of node 3.
    let gone = weir_demo::ReservedPort::any().unwrap();
    let backends: Vec<Backend> = ground.cluster.servers().iter().map(|server| Backend::tcp(server.port(), 1)).collect();
    let backends: Vec<Backend> = backends.into_iter().chain([Backend::tcp(gone.number(), 1)]).collect();
    let proxy = Proxy::spawn(&backends, "user_redirect_preference_list = 'postgres:3'");
    proxy.wait_for_nodes(3);
    let mut client = ground.client(&proxy);
    assert!(ports.contains(&client.value(WHERE)));
    assert_eq!(rule(&mut client, WHERE).0, "0,1,2");
}

#[test]
fn a_hint_says_where_its_read_goes() {
    let ground = Ground::new();
    let ports = ports(&ground);
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    client.run("create table t (a int)");
    ground.cluster.wait_caught_up().unwrap();
    wait_for_catalog(&mut client, &ground.database);
    for _ in 0..SOME {
        for (hint, port) in [
            ("/*NO LOAD BALANCE*/", &ports[0]),
            ("/* weir: primary */", &ports[0]),
            ("/* weir: node=1 */", &ports[1]),
            ("/*weir:node=2*/", &ports[2]),
            ("-- weir: node=0\n", &ports[0]),
        ] {
            assert_eq!(client.value(&format!("{hint} {WHERE}")), *port, "{hint}");
            assert_eq!(client.extended(&format!("{hint} {WHERE}"), &[]).unwrap(), *port, "{hint}");
        }
        let port = client.value(&format!("/* weir: standby */ {WHERE}"));
        assert!(ports[1..].contains(&port), "{port}");
    }
    // A statement that may write goes to the primary whatever its hint asks for.
    let write = "insert into t values (1) returning inet_server_port()";
    assert_eq!(client.value(&format!("/* weir: node=1 */ {write}")), ports[0]);
    assert_eq!(client.value("/* weir: standby */ select inet_server_port() from t for update"), ports[0]);
    client.run("/* weir: node=2 */ begin read only");
    check_all_go_to(&mut client, &ports[2]);
    client.run("commit");
    // A hint in front of the first statement says where the transaction runs.
    client.run("begin isolation level repeatable read, read only");
    assert_eq!(client.value(&format!("/* weir: node=1 */ {WHERE}")), ports[1]);
    check_all_go_to(&mut client, &ports[1]);
    client.run("commit");
    for begin in ["/*NO LOAD BALANCE*/ begin read only", "/* a comment */ begin read only"] {
        client.run(begin);
        check_all_go_to(&mut client, &ports[0]);
        client.run("commit");
    }
    assert!(uses(&mut client, "read_hinted") >= SOME as u64 * 4);
    assert!(uses(&mut client, "hint") >= SOME as u64 * 2);
}

#[test]
fn a_hint_names_a_standby_that_takes_no_other_reads() {
    let ground = Ground::new();
    let ports = ports(&ground);
    let proxy = ground.proxy("backend_weight0 = 1\nbackend_weight1 = 0\nbackend_weight2 = 0");
    let mut client = ground.client(&proxy);
    check_all_go_to(&mut client, &ports[0]);
    client.run("create table t (a int)");
    ground.cluster.wait_caught_up().unwrap();
    wait_for_catalog(&mut client, &ground.database);
    // The node must be known to show all that the session has seen of the primary.
    let hinted = format!("/* weir: node=1 */ {WHERE}");
    wait_until("the standby to answer", || client.value(&hinted) == ports[1]);
    check_all_go_to(&mut client, &ports[0]);
}

#[test]
fn a_hint_that_cannot_be_followed_costs_nothing() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    let standbys = ground.standby_ports();
    let absent = format!("/* weir: node=9 */ {WHERE}");
    assert!(standbys.contains(&client.value(&absent)), "there is no such node");
    assert_eq!(rule(&mut client, &absent), ("1,2".into(), "read".into()));
    assert_eq!(rule(&mut client, "/* weir: nod=1 */ select 1"), ("0".into(), "comment".into()), "a slip is a comment");
    let facts = client.rows("show route for '/* weir: nod=1 */ select 1'")[0][3].clone();
    assert!(facts.contains("hint unknown"), "{facts}");
}

#[test]
fn a_comment_in_front_keeps_a_read_on_the_primary_unless_comments_are_allowed() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    let commented = format!("/* a comment */ {WHERE} -- and another");
    let standbys = ground.standby_ports();
    for _ in 0..3 {
        assert_eq!(client.value(&commented), ground.primary_port());
        assert_eq!(client.value(&format!("-- x\n{WHERE}")), ground.primary_port());
        assert!(standbys.contains(&client.value(&format!("{WHERE} /* behind */"))));
    }
    assert_eq!(rule(&mut client, &commented).1, "comment");
    client.run("PGPOOL SET allow_sql_comments TO on");
    assert!(standbys.contains(&client.value(&commented)));
    assert_eq!(client.value("PGPOOL SHOW allow_sql_comments"), "on");
    let mut other = ground.client(&proxy);
    assert_eq!(other.value(&commented), ground.primary_port(), "another session has not set it");
    client.run("PGPOOL RESET allow_sql_comments");
    assert_eq!(client.value(&commented), ground.primary_port());
    let proxy = ground.proxy("allow_sql_comments = on");
    let mut client = ground.client(&proxy);
    assert!(standbys.contains(&client.value(&commented)));
    assert_eq!(client.value(&format!("/*NO LOAD BALANCE*/ {WHERE}")), ground.primary_port(), "a hint counts all the same");
}

#[test]
fn a_session_says_where_its_reads_go() {
    let ground = Ground::new();
    let ports = ports(&ground);
    let proxy = ground.proxy("user_redirect_preference_list = 'postgres:2'");
    let mut client = ground.client(&proxy);
    check_all_go_to(&mut client, &ports[2]);
    for (change, port) in [
        ("set weir.route = 'node=1'", &ports[1]),
        ("set weir.route to 'primary'", &ports[0]),
        ("set weir.route = ''", &ports[2]),
        ("select set_config('weir.route', 'node=1', false)", &ports[1]),
        ("reset weir.route", &ports[2]),
        ("PGPOOL SET weir.route = 'node=1'", &ports[1]),
        ("pgpool set weir.route to primary", &ports[0]),
        ("PGPOOL RESET weir.route", &ports[2]),
        ("begin; set weir.route = 'node=1'; rollback", &ports[2]),
        ("set weir.route = 'no such place'", &ports[2]),
        ("discard all", &ports[2]),
    ] {
        client.run(change);
        // The server is asked for the settings of a function, and may answer one more statement meanwhile.
        client.run("select 1");
        check_all_go_to(&mut client, port);
    }
    client.run("PGPOOL SET weir.route = 'node=1'");
    assert_eq!(client.value("show weir.route"), "node=1", "servers know it too");
    assert_eq!(rule(&mut client, WHERE), ("1".into(), "read_by_setting".into()));
    assert_eq!(client.value(&format!("/* weir: node=2 */ {WHERE}")), ports[2], "a hint goes before it");
    let mut other = ground.client_with(&proxy, &[("options", "-c weir.route=primary")]);
    check_all_go_to(&mut other, &ports[0]);
    let mut direct = ground.direct();
    direct.run("set weir.route = 'node=1'");
    assert_eq!(direct.value("show weir.route"), "node=1", "to PostgreSQL it is a setting like any other");
}

#[test]
fn pgpool_set_refuses_what_is_not_for_one_session() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let mut client = ground.client(&proxy);
    for (text, sqlstate) in [
        ("PGPOOL SET pool_size = 3", "55P02"),
        ("PGPOOL SET no_such_parameter = 3", "42704"),
        ("PGPOOL SET log_statement = perhaps", "22023"),
        ("PGPOOL SET client_idle_limit = -1", "22023"),
        ("PGPOOL SET client_min_messages = debug1", "0A000"),
        ("PGPOOL SET weir.route = 'node'", "22023"),
        ("PGPOOL SET weir.causal_reads = 'sometimes'", "22023"),
        ("PGPOOL SET weir.other = 'x'", "42704"),
        ("PGPOOL RESET pool_size", "55P02"),
        ("PGPOOL SET log_statement", "0A000"),
    ] {
        assert_eq!(client.error(text).sqlstate, sqlstate, "{text}");
        assert_eq!(client.extended(text, &[]).unwrap_err().sqlstate, sqlstate, "{text}");
    }
    for (text, tag) in [
        ("PGPOOL SET notice_per_node_statement = on", "SET"),
        ("PGPOOL SET notice_per_node_statement TO DEFAULT", "SET"),
        ("PGPOOL RESET ALL", "RESET"),
    ] {
        assert_eq!(client.query(text)[0].text(), tag);
        client.send(&[wire::parse("", text), wire::bind("", "", &[]), wire::describe(b'P', "")].concat());
        client.send(&[wire::execute("", 0), wire::sync()].concat());
        assert_eq!(client.tags(), "12nCZ", "{text}");
    }
    client.run("PGPOOL SET notice_per_node_statement = on");
    assert_eq!(client.query("select 1")[0].failure().message, "DB node id: 0 statement: select 1");
    client.run("PGPOOL RESET ALL");
    assert_eq!(client.query("select 1")[0].tag, b'T');
    client.run("PGPOOL SET weir.route = 'standby'");
    assert_eq!(client.value("PGPOOL SHOW weir.route"), "standby");
    client.run("PGPOOL RESET ALL");
    assert_eq!(client.value("PGPOOL SHOW weir.route"), "");
}

#[test]
fn a_session_sets_for_itself_what_pgpool_lets_it_set() {
    let ground = Ground::new();
    ground.prepare("create unlogged table u as select 1 as a");
    let proxy = ground.proxy("");
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    let read = "select a from u";
    let unlogged = ("0".to_string(), "unlogged_table".to_string());
    assert_eq!(rule(&mut client, read), unlogged);
    client.run("PGPOOL SET check_unlogged_table = off");
    assert_eq!(rule(&mut client, read).1, "read");
    assert_eq!(rule(&mut other, read), unlogged, "another session has not set it");
    assert_eq!(client.value(read), "1", "what a standby refuses runs again");
    assert_eq!(other.value(read), "1");
    client.run("PGPOOL SET check_unlogged_table TO DEFAULT");
    assert_eq!(rule(&mut client, read).0, "0");
    client.run("PGPOOL SET client_idle_limit = 1000");
    assert_eq!(client.value("PGPOOL SHOW client_idle_limit"), "1000s");
    let all = client.rows("PGPOOL SHOW ALL");
    assert!(all.iter().any(|row| row[0] == "client_idle_limit" && row[1] == "1000s"), "{all:?}");
    assert_ne!(other.value("PGPOOL SHOW client_idle_limit"), "1000s");
    client.run("PGPOOL SET client_idle_limit = 1");
    let told = client.until_end();
    assert_eq!(told[0].failure().sqlstate, "57P05");
    assert_eq!(other.value("select 1"), "1", "another session may idle");
}

#[test]
fn a_slow_standby_gets_less() {
    let ground = Ground::new();
    let [slow, fast] = ground.cluster.standbys() else { panic!("two standbys") };
    let network = Network::to(slow.port());
    network.set(Toward::Client, Fault::Delay(Duration::from_millis(20)));
    let backends =
        [Backend::tcp(ground.cluster.primary().port(), 0), Backend::tcp(network.port(), 1), Backend::tcp(fast.port(), 1)];
    let proxy = Proxy::spawn(&backends, "causal_reads = off");
    proxy.wait_for_nodes(3);
    let mut client = ground.client(&proxy);
    let mut of_slow = || counts(&mut client, 100).get(&slow.port().to_string()).copied().unwrap_or(0);
    // About 11 are expected; with equal shares it would be 50, with a deviation of 5: as few as 25 are never seen by chance. A busy machine may
    // make the other slow, too, for a while.
    wait_until("the slow standby to get less", || of_slow() < 25);
    network.set(Toward::Client, Fault::None);
    wait_until("it to have its share again, now that it is fast", || of_slow() >= 40);
}

#[test]
fn reads_stay_in_the_zone_while_it_has_a_node_that_may_answer() {
    let ground = Ground::new();
    let ports = ports(&ground);
    let zones = "backend_zone0 = 'east'\nbackend_zone1 = 'east'\nbackend_zone2 = 'west'\ncausal_reads = off\n";
    for (zone, port) in [("east", 1), ("west", 2)] {
        let proxy = ground.proxy(&format!("{zones}zone = '{zone}'"));
        check_all_go_to(&mut ground.client(&proxy), &ports[port]);
    }
    for zone in ["north", ""] {
        let proxy = ground.proxy(&format!("{zones}zone = '{zone}'"));
        let counted = counts(&mut ground.client(&proxy), 40);
        assert_eq!(counted.len(), 2, "zone '{zone}' has no node: {counted:?}");
    }
}

/// Servers of which the first standby does not replay, and has something to replay.
fn lagging(standbys: usize) -> Owned {
    let cluster = cluster(standbys);
    cluster.primary().query("create table t (a int)").unwrap();
    cluster.wait_caught_up().unwrap();
    cluster.standbys()[0].pause_replay().unwrap();
    cluster.primary().query("insert into t select generate_series(1, 1000)").unwrap();
    cluster
}

fn check_lag(more: &str, standbys: usize, goes_to: usize, shown: impl Fn(&str) -> bool, said: &str) {
    let cluster = lagging(standbys);
    let weights = "backend_weight0 = 0\nbackend_weight1 = 1\nbackend_weight2 = 0";
    let proxy = Proxy::start(&cluster, &format!("causal_reads = off\n{weights}\n{more}"));
    let mut client = proxy.console();
    wait_for_catalog(&mut client, "postgres");
    if standbys > 1 {
        // It lags least, and takes reads.
        proxy.add_conf("backend_weight2 = 0.000001");
        proxy.reload();
    }
    let port = cluster.servers()[goes_to].port().to_string();
    // The first look after a reload has nothing to compare with, and forgets the lag for a moment.
    wait_until("the lag to be known", || (0..SOME).all(|_| client.value(WHERE) == port));
    check_all_go_to(&mut client, &port);
    assert!(uses(&mut client, "read_delayed") >= SOME as u64);
    let delay = show(&mut client, "pool_nodes", "replication_delay")[1].clone();
    assert!(shown(&delay), "{delay}");
    assert!(proxy.log().contains(said), "{}", proxy.log());
    cluster.standbys()[0].resume_replay().unwrap();
    let port = cluster.standbys()[0].port().to_string();
    wait_until("the standby to be read from again", || client.value(WHERE) == port);
}

#[test]
fn reads_leave_a_standby_that_lacks_too_much() {
    let is_bytes = |shown: &str| shown.parse::<u64>().unwrap() > 1000;
    check_lag("delay_threshold = 1000", 1, 0, is_bytes, "Replication of node: 1 is behind ");
}

#[test]
fn reads_leave_a_standby_that_lags_for_too_long() {
    // In bytes it would be far from the threshold, which does not count then.
    let more = "delay_threshold = 1GB\ndelay_threshold_by_time = 100";
    let is_time = |shown: &str| shown.contains(" second");
    check_lag(more, 1, 0, is_time, " second(s) from the primary server (node: 0)");
}

#[test]
fn reads_prefer_the_standby_that_lags_least() {
    let is_bytes = |shown: &str| shown.parse::<u64>().is_ok();
    check_lag("delay_threshold = 1000\nprefer_lower_delay_standby = on", 2, 2, is_bytes, " bytes from the primary server");
}

#[test]
fn a_standby_that_lags_less_than_the_threshold_is_read_from() {
    let cluster = lagging(1);
    let proxy = Proxy::start(&cluster, "causal_reads = off\ndelay_threshold = 1GB\nlog_standby_delay = always");
    let mut client = proxy.console();
    wait_for_catalog(&mut client, "postgres");
    wait_until("the lag to be known", || proxy.log().contains("Replication of node: 1 is behind "));
    check_all_go_to(&mut client, &cluster.standbys()[0].port().to_string());
    assert_eq!(uses(&mut client, "read_delayed"), 0);
}

#[test]
fn pool_backend_stats_counts_statements_and_errors_by_node() {
    let ground = Ground::new();
    let proxy = ground.proxy("backend_weight1 = 1\nbackend_weight2 = 0");
    let mut client = ground.client(&proxy);
    let columns = [
        "node_id",
        "hostname",
        "port",
        "status",
        "role",
        "select_cnt",
        "insert_cnt",
        "update_cnt",
        "delete_cnt",
        "ddl_cnt",
        "other_cnt",
        "panic_cnt",
        "fatal_cnt",
        "error_cnt",
    ];
    client.run("create table t (a int)");
    for text in ["insert into t values (1)", "update t set a = 2", "/* x */ delete from t", "analyze t", "values (1)", "begin"] {
        client.run(text);
    }
    client.run("select a from t; insert into t values (3)");
    client.run("commit");
    client.error("select 1/0 from t for update");
    client.send(&[wire::unnamed("insert into t values ($1::int)", &["5"]), wire::sync()].concat());
    client.until_ready();
    for _ in 0..3 {
        client.run(WHERE);
    }
    let rows = client.rows("show pool_backend_stats");
    assert_eq!(rows.len(), 3);
    let of =
        |node: usize, column: &str| -> String { rows[node][columns.iter().position(|known| *known == column).unwrap()].clone() };
    assert_eq!([of(0, "role"), of(1, "role"), of(1, "status")], ["primary", "standby", "up"]);
    let counted = |node: usize| ["insert_cnt", "update_cnt", "delete_cnt", "ddl_cnt", "error_cnt"].map(|column| of(node, column));
    assert_eq!(counted(0), ["2", "1", "1", "1", "1"]);
    assert_eq!(counted(1), ["0", "0", "0", "0", "0"]);
    // The BEGIN, which Weir answers and brings along with the statement after it, is none by itself.
    assert_eq!([of(0, "other_cnt"), of(2, "select_cnt"), of(0, "panic_cnt"), of(0, "fatal_cnt")], ["3", "0", "0", "0"]);
    let selects: u64 = of(0, "select_cnt").parse::<u64>().unwrap() + of(1, "select_cnt").parse::<u64>().unwrap();
    assert_eq!(selects, 6, "{rows:?}");
    assert_eq!(show(&mut client, "pool_nodes", "select_cnt"), [of(0, "select_cnt"), of(1, "select_cnt"), of(2, "select_cnt")]);
}

#[test]
fn messages_that_are_skipped_or_answered_from_memory_are_logged_too() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("log_client_messages = on\nlog_line_prefix = ''\nmemory_cache_enabled = on");
    let mut client = ground.client(&proxy);
    client.run("create table t as select 1 as a");
    let read =
        [wire::parse("", "select a from t"), wire::bind("", "", &[]), wire::describe(b'P', ""), wire::execute("", 0)].concat();
    let asked = |name: &str| proxy.log().matches(&format!("LOG:  {name} message from frontend.")).count();
    let mut rounds = 0;
    wait_until("an answer from memory", || {
        client.send(&[read.clone(), wire::sync()].concat());
        assert_eq!(tags(&client.until_ready()), "12TDCZ");
        rounds += 1;
        proxy.metric("cache_hits_total") > 0
    });
    for name in ["Parse", "Bind", "Describe", "Execute", "Sync"] {
        assert_eq!(asked(name), rounds, "{name}: {}", proxy.log());
    }
    client.send(&[wire::parse("", "no sql"), wire::bind("", "", &[]), wire::execute("", 0), wire::sync()].concat());
    client.until_ready();
    for name in ["Parse", "Bind", "Execute", "Sync"] {
        assert_eq!(asked(name), rounds + 1, "{name}: {}", proxy.log());
    }
}

#[test]
fn copies_calls_and_cancel_requests_of_clients_are_logged_with_what_they_are_about() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("log_client_messages = on\nlog_line_prefix = ''");
    let mut client = ground.client(&proxy);
    client.run("create table t (a int)");
    for end in [wire::copy_done(), wire::copy_fail("enough")] {
        client.send(&wire::query("copy t from stdin"));
        client.send(&[wire::copy_data(b"1\n"), wire::copy_data(b"2\n"), wire::copy_data(b"3\n"), end].concat());
        client.until_ready();
    }
    let oid: u32 = client.value("select 'int4pl'::regproc::oid").parse().unwrap();
    client.send(&wire::function_call(oid, &["1", "2"]));
    client.until_ready();
    Raw::tcp(proxy.port()).send(&wire::cancel(client.pid, &client.key));
    let said = |line: &str| proxy.log().lines().filter(|known| *known == line).count();
    wait_until("the cancel request", || {
        said(&format!("LOG:  Cancel message from frontend. DETAIL:  process id: {}", client.pid)) == 1
    });
    assert_eq!(said("LOG:  CopyData message from frontend. DETAIL:  count: 3"), 2, "{}", proxy.log());
    for line in [
        "LOG:  CopyDone message from frontend.".to_string(),
        "LOG:  CopyFail message from frontend.".to_string(),
        format!("LOG:  FunctionCall message from frontend. DETAIL:  oid: \"{oid}\""),
    ] {
        assert_eq!(said(&line), 1, "{line}: {}", proxy.log());
    }
}

#[test]
fn messages_of_clients_are_logged_once_each() {
    let ground = Ground::new();
    let proxy = ground.proxy("log_client_messages = on\nlog_line_prefix = ''");
    let mut client = ground.client(&proxy);
    client.run("select 'simple'");
    let one = [wire::parse("s1", "select 'named'"), wire::bind("p1", "s1", &[]), wire::describe(b'S', "s1")].concat();
    client.send(&[one, wire::execute("p1", 0), wire::close(b'P', "p1"), wire::flush(), wire::sync()].concat());
    client.until_ready();
    client.send(&wire::terminate());
    wait_until("the client to be gone", || proxy.log().contains("Terminate message from frontend."));
    let log = proxy.log();
    for line in [
        "LOG:  Query message from frontend. DETAIL:  query: \"select 'simple'\"",
        "LOG:  Parse message from frontend. DETAIL:  statement: \"s1\", query: \"select 'named'\"",
        "LOG:  Bind message from frontend. DETAIL:  portal: \"p1\", statement: \"s1\"",
        "LOG:  Describe message from frontend. DETAIL:  statement: \"s1\"",
        "LOG:  Execute message from frontend. DETAIL:  portal: \"p1\"",
        "LOG:  Close message from frontend. DETAIL:  portal: \"p1\"",
        "LOG:  Flush message from frontend.",
        "LOG:  Sync message from frontend.",
    ] {
        assert_eq!(log.lines().filter(|known| *known == line).count(), 1, "{line}\n{log}");
    }
}
