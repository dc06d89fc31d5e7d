//! A client never goes back in time, whichever server answers.

use crate::support::ground::{LIMIT, Owned, cluster, wait_for_catalog};
use crate::support::proxy::Backend;
use crate::support::{Ground, Proxy, Raw, wait_until, wire};
use rustix::process::{Pid, Signal};
use std::time::Instant;
use weir_demo::{Mode, Server, signal_process};

/// The port of the server that answers, and its count of rows.
const LOOK: &str = "select inet_server_port(), (select count(*) from t)";

/// Servers of a test's own, which it may pause.
fn with_table(standbys: usize) -> Owned {
    let cluster = cluster(standbys);
    cluster.primary().query("create table t (a int)").unwrap();
    cluster.wait_caught_up().unwrap();
    cluster
}

/// A client, once reads go where they may.
fn console(proxy: &Proxy) -> Raw {
    let mut client = proxy.console();
    wait_for_catalog(&mut client, "postgres");
    client
}

/// A client that has seen something of the primary's, and reads from this standby since.
fn reader_of(proxy: &Proxy, standby: &Server) -> Raw {
    let mut client = console(proxy);
    client.run("select txid_current_if_assigned()");
    wait_until("the standby to be known to keep up", || look(&mut client).0 == standby.port().to_string());
    client
}

/// Port and count.
fn look(client: &mut Raw) -> (String, String) {
    let rows = client.rows(LOOK);
    (rows[0][0].clone(), rows[0][1].clone())
}

#[test]
fn a_client_reads_what_it_wrote_while_standbys_do_not_replay() {
    let cluster = with_table(2);
    cluster.standbys().iter().for_each(|standby| standby.pause_replay().unwrap());
    let proxy = Proxy::start(&cluster, "causal_wait = 20ms");
    let mut client = console(&proxy);
    for count in 1..=20 {
        client.run("insert into t values (1)");
        assert_eq!(look(&mut client), (cluster.primary().port().to_string(), count.to_string()));
    }
    assert!(proxy.metric("reads_not_replayed_total") >= 20);
    let mut other = proxy.console();
    assert_eq!(other.value("select count(*) from t"), "20", "it was acknowledged to somebody");
    let mut other = proxy.console();
    other.run("PGPOOL SET weir.causal_reads TO session");
    assert_eq!(other.value("select count(*) from t"), "0", "who has seen nothing may read from any standby");
    cluster.standbys()[1].resume_replay().unwrap();
    let port = cluster.standbys()[1].port().to_string();
    wait_until("reads to go to the standby that goes on", || look(&mut client) == (port.clone(), "20".into()));
    for _ in 0..20 {
        assert_eq!(look(&mut client).1, "20");
    }
}

#[test]
fn with_causal_reads_off_a_client_may_not_find_what_it_wrote() {
    let cluster = with_table(1);
    cluster.standbys()[0].pause_replay().unwrap();
    let proxy = Proxy::start(&cluster, "causal_reads = off\ncausal_wait = 20ms");
    let mut client = console(&proxy);
    client.run("insert into t values (1)");
    assert_eq!(look(&mut client), (cluster.standbys()[0].port().to_string(), "0".into()));
    client.run("set weir.causal_reads = 'session'");
    assert_eq!(look(&mut client), (cluster.primary().port().to_string(), "1".into()), "what came before counts as well");
    client.run("reset weir.causal_reads");
    assert_eq!(look(&mut client).1, "0");
    client.run("PGPOOL SET weir.causal_reads TO session");
    assert_eq!(look(&mut client), (cluster.primary().port().to_string(), "1".into()));
    client.run("PGPOOL RESET weir.causal_reads");
    assert_eq!(look(&mut client).1, "0");
}

#[test]
fn a_read_after_a_write_goes_to_a_standby_that_keeps_up() {
    let cluster = with_table(1);
    let proxy = Proxy::start(&cluster, "");
    let mut client = reader_of(&proxy, &cluster.standbys()[0]);
    let port = cluster.standbys()[0].port().to_string();
    let before = proxy.metric("reads_not_replayed_total");
    for count in 1..=50 {
        client.run("insert into t values (1)");
        assert_eq!(look(&mut client), (port.clone(), count.to_string()));
    }
    assert_eq!(proxy.metric("reads_not_replayed_total"), before);
}

#[test]
fn a_commit_that_waits_for_a_standby_is_not_forgotten_on_another() {
    for mode in ["session", "global"] {
        let cluster = with_table(2);
        let [first, second] = cluster.standbys() else { panic!("two standbys") };
        let primary = cluster.primary();
        let proxy = Proxy::start(&cluster, &format!("causal_reads = {mode}\ncausal_wait = 20ms"));
        drop(reader_of(&proxy, first));
        second.pause_replay().unwrap();
        primary.query("alter system set synchronous_standby_names = 'nobody'").unwrap();
        primary.reload().unwrap();
        wait_until("commits to wait", || primary.value("show synchronous_standby_names").unwrap() == "nobody");
        let mut writer = Raw::tcp(primary.port()).log_in("postgres", "postgres", &[]).unwrap();
        // The checkpointer decides if commits wait: it takes the names in before it makes the checkpoint.
        primary.query("checkpoint").unwrap();
        writer.send(&wire::query("insert into t values (1)"));
        wait_until("one standby to show it", || first.value("select count(*) from t").unwrap() == "1");
        let mut client = console(&proxy);
        const COUNT: &str = "select count(*) from t";
        for _ in 0..20 {
            let rounds = proxy.metric("position_rounds_total");
            assert_eq!(client.value(&format!("/* weir: node=1 */ {COUNT}")), "1", "{mode}");
            // With `global` the next read asks.
            if mode == "session" {
                wait_until("the primary to say where it is", || proxy.metric("position_rounds_total") > rounds);
            }
            assert_eq!(client.value(&format!("/* weir: node=2 */ {COUNT}")), "1", "{mode}: back in time");
        }
        primary.query("alter system reset synchronous_standby_names").unwrap();
        primary.reload().unwrap();
    }
}

/// A standby that commits must wait for is cut off; another one shows them.
#[test]
fn a_commit_that_waits_for_a_standby_is_not_forgotten_on_the_primary() {
    for mode in ["session", "global"] {
        let cluster = with_table(2);
        let [first, second] = cluster.standbys() else { panic!("two standbys") };
        let primary = cluster.primary();
        let names = |value: &str| {
            primary.query(&format!("alter system set synchronous_standby_names = '{value}'")).unwrap();
            primary.reload().unwrap();
            wait_until("the names to be known", || primary.value("show synchronous_standby_names").unwrap() == value);
        };
        // The checkpointer decides if commits wait: it takes the names in before it makes the checkpoint.
        primary.query("checkpoint").unwrap();
        names(&format!("\"{}\"", second.name()));
        let backends = [(primary, 8), (first, 1), (second, 1)].map(|(server, weight)| Backend::tcp(server.port(), weight));
        let lines = format!("statement_level_load_balance = on\ncausal_reads = {mode}\ncausal_wait = 20ms");
        let proxy = Proxy::spawn(&backends, &lines);
        proxy.wait_accepting();
        proxy.wait_for_nodes(3);
        let mut client = console(&proxy);
        const COUNT: &str = "select count(*) from t";
        let on_first = format!("/* weir: node=1 */ {COUNT}");
        wait_until("reads on all nodes", || {
            client.run(COUNT);
            proxy.nodes("select_cnt").iter().all(|count| count != "0")
        });
        let receiver = second.value("select pid from pg_stat_wal_receiver").unwrap();
        let receiver = Pid::from_raw(receiver.parse().unwrap()).unwrap();
        signal_process(receiver, Signal::STOP).unwrap();
        let mut writer = Raw::tcp(primary.port()).log_in("postgres", "postgres", &[]).unwrap();
        writer.send(&wire::query("insert into t values (1)"));
        wait_until("a standby to show it", || first.value(COUNT).unwrap() == "1");
        assert_eq!(primary.value(COUNT).unwrap(), "0", "the commit waits");
        let reads_of_primary = || proxy.nodes("select_cnt")[0].parse::<u64>().unwrap();
        wait_until("the session to read it", || client.value(&on_first) == "1");
        for _ in 0..100 {
            assert_eq!(client.value(COUNT), "1", "{mode}: back in time");
        }
        assert_eq!(client.value(&format!("/* weir: primary */ {COUNT}")), "0", "{mode}: who wants the primary gets it");
        signal_process(receiver, Signal::CONT).unwrap();
        writer.until_ready();
        let before = reads_of_primary();
        wait_until("the primary to get reads again", || {
            assert_eq!(client.value(COUNT), "1", "{mode}");
            reads_of_primary() > before
        });
    }
}

#[test]
fn what_a_standby_showed_others_must_show_too() {
    let cluster = with_table(2);
    let [first, second] = cluster.standbys() else { panic!("two standbys") };
    second.pause_replay().unwrap();
    cluster.primary().query("insert into t values (1)").unwrap();
    wait_until("one standby to replay", || first.value("select count(*) from t").unwrap() == "1");
    let proxy = Proxy::start(&cluster, "causal_wait = 20ms");
    // A session that begins with the standby behind may go on to the other, never back.
    let mut went_on = 0;
    for _ in 0..20 {
        let mut client = console(&proxy);
        let mut before = look(&mut client).1;
        for _ in 0..20 {
            let now = look(&mut client).1;
            assert!(before <= now, "{before} then {now}");
            went_on += u32::from(before < now);
            before = now;
        }
    }
    assert!(went_on <= 20);
}

#[test]
fn under_global_what_one_client_was_told_all_others_see() {
    let cluster = with_table(2);
    cluster.standbys()[0].pause_replay().unwrap();
    let proxy = Proxy::start(&cluster, "causal_reads = global\ncausal_wait = 20ms");
    let (mut writer, mut reader) = (proxy.console(), proxy.console());
    for count in 1..=30 {
        writer.run("insert into t values (1)");
        assert_eq!(look(&mut reader).1, count.to_string());
    }
}

#[test]
fn under_global_the_reads_of_all_go_to_one_standby_for_a_time() {
    let cluster = with_table(2);
    let proxy = Proxy::start(&cluster, "causal_reads = global\nworker_threads = 2");
    let mut clients: Vec<Raw> = (0..6).map(|_| proxy.console()).collect();
    let ports = [0, 1].map(|at| cluster.standbys()[at].port().to_string());
    wait_until("both standbys to be read from", || {
        let read: Vec<String> = clients.iter_mut().map(|client| look(client).0).collect();
        read.contains(&ports[0]) || read.contains(&ports[1])
    });
    let (began, mut reads) = (Instant::now(), Vec::new());
    while !ports.iter().all(|port| reads.iter().filter(|read| *read == port).count() > 500) {
        reads.extend(clients.iter_mut().map(|client| look(client).0));
        assert!(began.elapsed() < LIMIT, "one of the standbys answers nearly nothing");
    }
    // With a node for each session or each read, every other read would change it. The bound counts time: a loaded machine reads less in a turn.
    let changes = reads.windows(2).filter(|pair| pair[0] != pair[1]).count() as u128;
    let turns = began.elapsed().as_millis() / 50 + 1;
    assert!(changes <= 3 * turns, "{changes} changes of the node in {turns} turns, {} reads", reads.len());
}

#[test]
fn the_end_of_a_wal_file_keeps_nobody_off_a_standby() {
    let cluster = with_table(1);
    let proxy = Proxy::start(&cluster, "");
    let mut client = reader_of(&proxy, &cluster.standbys()[0]);
    let port = cluster.standbys()[0].port().to_string();
    let before = proxy.metric("reads_not_replayed_total");
    for count in 1..=3 {
        client.run("insert into t values (1)");
        // From here on nothing is written: the insert position stands behind a page's header.
        cluster.primary().query("select pg_switch_wal()").unwrap();
        client.run("select txid_current_if_assigned()");
        assert_eq!(look(&mut client), (port.clone(), count.to_string()));
    }
    assert_eq!(proxy.metric("reads_not_replayed_total"), before);
}

#[test]
fn a_standby_that_starts_anew_must_prove_what_it_has_replayed() {
    let cluster = with_table(1);
    let proxy = Proxy::start(&cluster, "causal_wait = 20ms");
    let mut client = console(&proxy);
    let [standby] = cluster.standbys() else { panic!("one standby") };
    client.run("insert into t values (1)");
    wait_until("the standby to be read from", || look(&mut client) == (standby.port().to_string(), "1".into()));
    // Without its WAL it starts from its last restartpoint, and replays no more.
    standby.pause_replay().unwrap();
    client.run("insert into t values (2)");
    standby.stop(Mode::Immediate).unwrap();
    standby.set_conf("recovery_min_apply_delay", "1h").unwrap();
    standby.start().unwrap();
    for _ in 0..100 {
        assert_eq!(look(&mut client).1, "2");
    }
    wait_until("the standby to be up", || proxy.nodes("status") == ["up", "up"]);
    for _ in 0..100 {
        assert_eq!(look(&mut client).1, "2");
    }
}

#[test]
fn an_unread_standby_costs_no_questions() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let mut client = ground.client(&proxy);
    for _ in 0..50 {
        client.run("select 1");
    }
    assert_eq!(proxy.metric("position_rounds_total"), 0);
}

/// A server that was asked as a standby, and answers when it has been promoted and all know of it.
#[test]
fn an_answer_that_comes_after_its_servers_promotion_stops_no_reads_on_the_other_standby() {
    let cluster = with_table(2);
    let [first, second] = cluster.standbys() else { panic!("two standbys") };
    let proxy = Proxy::start(&cluster, "causal_wait = 20ms");
    let mut client = console(&proxy);
    let asker = "select pid from pg_stat_activity where query = 'EXECUTE weir_position'";
    // The role is asked over this connection, too, so that a query seen once may be another one a moment later.
    let mut asked = None;
    wait_until("the standby to be asked for its position", || {
        client.run("insert into t values (1)");
        look(&mut client);
        asked = first.query(asker).unwrap().first().and_then(|row| row[0].clone());
        asked.is_some()
    });
    let asker = Pid::from_raw(asked.unwrap().parse().unwrap()).unwrap();
    signal_process(asker, Signal::STOP).unwrap();
    let rounds = proxy.metric("position_rounds_total");
    wait_until("the standby to be asked once more", || {
        client.run("insert into t values (1)");
        look(&mut client);
        proxy.metric("position_rounds_total") > rounds + 3
    });
    cluster.primary().stop(Mode::Fast).unwrap();
    first.promote().unwrap();
    second.follow(first).unwrap();
    let name = first.port().to_string();
    wait_until("the promoted server to be known", || {
        let (ports, roles) = (proxy.nodes("port"), proxy.nodes("role"));
        ports.iter().zip(roles).any(|(port, role)| *port == name && role == "primary")
    });
    signal_process(asker, Signal::CONT).unwrap();
    let mut client = console(&proxy);
    client.run("insert into t values (1)");
    wait_until("reads on the other standby to go on", || look(&mut client).0 == second.port().to_string());
}
