//! Networks that fail between Weir and a server, and between a client and Weir.

use crate::support::faults::{Fault, Network, Toward};
use crate::support::proxy::Backend;
use crate::support::raw::tags;
use crate::support::time::check_within;
use crate::support::{Ground, Proxy, Raw, wait_until, wire};
use std::net::TcpListener;
use std::time::{Duration, Instant};

/// Weir before the primary alone, with a network of ours in between.
fn behind(ground: &Ground, more: &str) -> (Network, Proxy) {
    let network = Network::to(ground.cluster.primary().port());
    let proxy = Proxy::spawn(&[Backend::tcp(network.port(), 1)], more);
    proxy.wait_for_nodes(1);
    (network, proxy)
}

#[test]
fn a_connection_that_was_forgotten_while_it_rested_is_found_by_a_question_and_another_one_is_taken() {
    let ground = Ground::new();
    let (network, proxy) = behind(&ground, "server_check_query = 'SELECT 1'\nserver_check_delay = 0\nconnect_timeout = 5s");
    let mut client = ground.client(&proxy);
    let first = client.value("select pg_backend_pid()");
    assert_eq!(client.value("select pg_backend_pid()"), first, "one that answers is used");
    let asked = proxy.metric("server_connections_checked_total");
    assert!(asked > 0);
    network.stall_present(&[Toward::Server, Toward::Client]);
    assert_ne!(client.value("select pg_backend_pid()"), first);
    assert!(proxy.log().contains("closed, since server_check_query failed"), "{}", proxy.log());
}

#[test]
fn a_server_is_asked_only_where_it_is_to_be_and_after_a_rest() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("server_check_delay = 0");
    let mut client = ground.client(&proxy);
    client.run("select 1");
    assert_eq!(proxy.metric("server_connections_checked_total"), 0, "no query is set");
    proxy.add_conf("server_check_query = 'select 1/0'\nserver_check_delay = 1h");
    proxy.reload();
    // A reload has connections opened anew.
    let second = client.value("select pg_backend_pid()");
    assert_eq!(client.value("select pg_backend_pid()"), second);
    assert_eq!(proxy.metric("server_connections_checked_total"), 0, "it has not rested for so long");
    proxy.add_conf("server_check_delay = 0");
    proxy.reload();
    let closed = "closed, since server_check_query failed: ";
    wait_until("a connection with an error to be closed", || {
        client.run("select 1");
        proxy.log().contains(closed)
    });
    assert!(proxy.log().contains("division by zero"), "{}", proxy.log());
}

#[test]
fn a_server_cut_off_in_the_middle_of_a_result_never_looks_like_the_end_of_it() {
    let ground = Ground::new();
    let (network, proxy) = behind(&ground, "pool_size = 2");
    for bytes in [0, 1, 100, 4095, 50_000, 1_000_001] {
        let mut client = ground.client(&proxy);
        let mut witness = ground.client(&proxy);
        client.run("select 1");
        network.set(Toward::Client, Fault::CutAfter(bytes));
        let _ = client.try_send(&wire::query("select repeat('x', 100) from generate_series(1, 20000)"));
        let messages = read_to_ready_or_end(&mut client);
        network.set(Toward::Client, Fault::None);
        assert!(!messages.iter().any(|m| m.tag == b'C'), "cut after {bytes} bytes, but the result looks whole");
        let failure = messages.iter().find(|m| m.tag == b'E').map(|m| m.failure().sqlstate);
        // Within a row nothing can be said; then the connection is closed.
        assert!(failure.as_deref().is_none_or(|code| ["08007", "40001"].contains(&code)), "{failure:?}");
        wait_until("others to go on", || witness.try_value("select 2").as_deref() == Ok("2"));
        assert_eq!(ground.client(&proxy).value("select 3"), "3");
    }
}

fn read_to_ready_or_end(client: &mut Raw) -> Vec<crate::support::raw::Message> {
    let mut messages = Vec::new();
    while let Ok(Some(message)) = client.try_read() {
        let is_last = message.tag == b'Z';
        messages.push(message);
        if is_last {
            break;
        }
    }
    messages
}

#[test]
fn a_session_that_had_nothing_on_the_lost_connection_goes_on() {
    let ground = Ground::new();
    let (network, proxy) = behind(&ground, "");
    let mut client = ground.client(&proxy);
    client.send(&[wire::parse("s", "select $1::int"), wire::sync()].concat());
    client.tags();
    for _ in 0..5 {
        client.send(&wire::query("select pg_sleep(50)"));
        let asleep = "select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'";
        wait_until("the query to run", || ground.direct().value(asleep) != "0");
        network.cut();
        let messages = client.until_ready();
        assert_eq!(tags(&messages), "EZ");
        assert_eq!(messages[0].failure().sqlstate, "08007");
        ground
            .cluster
            .primary()
            .query(&format!(
                "select pg_terminate_backend(pid) from pg_stat_activity where datname = '{}' and wait_event = 'PgSleep'",
                ground.database
            ))
            .unwrap();
        client.send(&[wire::run("s", &["7"]), wire::sync()].concat());
        assert_eq!(client.tags(), "2DCZ", "its prepared statements are still its own");
    }
}

#[test]
fn a_session_with_state_ends_when_its_connection_is_lost_and_one_in_a_transaction_does_not() {
    let ground = Ground::new();
    let (network, proxy) = behind(&ground, "");
    let mut client = ground.client(&proxy);
    client.run("begin; select 1");
    network.cut();
    assert_eq!(client.error("select 2").sqlstate, "40001");
    assert_eq!(client.error("select 2").sqlstate, "25P02");
    client.run("rollback");
    for (state, kind) in [("select pg_advisory_lock(1)", "advisory lock"), ("create temp table mine (a int)", "temporary object")]
    {
        let mut client = ground.client(&proxy);
        client.run(state);
        network.cut();
        let messages = client.until_end();
        let failure = messages.iter().find(|m| m.tag == b'E').expect("it is told why").failure();
        assert_eq!((failure.severity.as_str(), failure.sqlstate.as_str()), ("FATAL", "57P01"), "{state}");
        assert!(failure.message.contains(kind), "{failure:?}");
        wait_until("the proxy to go on", || ground.client(&proxy).try_value("select 1").is_ok());
    }
}

#[test]
fn a_transaction_that_no_server_had_begun_fails_with_the_connection_and_its_session_goes_on() {
    let ground = Ground::new();
    let (network, proxy) = behind(&ground, "");
    let mut client = ground.client(&proxy);
    client.run("select 1");
    client.run("begin");
    network.set(Toward::Client, Fault::EndAfter(3));
    let messages = client.query("select 2");
    assert_eq!(messages[0].failure().sqlstate, "40001", "{messages:?}");
    assert_eq!(messages.last().unwrap().body, b"E", "the transaction has failed");
    network.set(Toward::Client, Fault::None);
    wait_until("the proxy to go on", || ground.client(&proxy).try_value("select 1").is_ok());
    assert_eq!(client.error("select 3").sqlstate, "25P02");
    assert_eq!(client.query("commit")[0].text(), "ROLLBACK");
    assert_eq!(client.value("select 4"), "4");
}

#[test]
fn an_idle_connection_that_is_cut_or_closed_is_never_given_to_a_client() {
    let ground = Ground::new();
    let (network, proxy) = behind(&ground, "pool_size = 1\nsr_check_period = 0");
    let mut client = ground.client(&proxy);
    for round in 0..20 {
        assert_eq!(client.value("select 1"), "1");
        let before = ground.server_connections();
        wait_until("both ends to see the cut", || {
            network.cut();
            network.connections() == 0 && !ground.server_connections().contains(&before[0])
        });
        assert_eq!(client.try_value("select 2").as_deref(), Ok("2"), "round {round}");
    }
}

#[test]
fn a_server_that_half_closes_is_left() {
    let ground = Ground::new();
    let (network, proxy) = behind(&ground, "");
    let mut client = ground.client(&proxy);
    client.run("select 1");
    network.set(Toward::Client, Fault::EndAfter(30));
    let _ = client.try_send(&wire::query("select repeat('x', 1000)"));
    let messages = read_to_ready_or_end(&mut client);
    assert!(!messages.iter().any(|m| m.tag == b'C'), "{messages:?}");
    network.set(Toward::Client, Fault::None);
    wait_until("the proxy to go on", || ground.client(&proxy).try_value("select 1").is_ok());
}

#[test]
fn a_slow_and_trickling_network_changes_no_answer() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    // Byte by byte, a busy machine takes seconds for a login, and minutes for the catalog, which is read before.
    let (network, proxy) = behind(&ground, "connect_timeout = 60s\nsr_check_period = 3600");
    let mut first = ground.client(&proxy);
    // Others need a connection of their own.
    first.run("begin; select 1");
    for fault in [Fault::ByteByByte, Fault::Delay(Duration::from_millis(5))] {
        network.set_both(fault);
        let mut client = Raw::tcp(proxy.port()).log_in("postgres", &ground.database, &[("work_mem", "9MB")]).unwrap();
        assert_eq!(client.rows("select i, repeat('x', i) from generate_series(1, 50) i").len(), 50);
        assert_eq!(client.extended("select $1::text", &["some text"]).unwrap(), "some text");
        client.send(&[wire::query("copy t from stdin"), wire::copy_data(b"1\n2\n"), wire::copy_done()].concat());
        assert_eq!(client.tags(), "GCZ");
        assert_eq!(client.error("select 1/0").sqlstate, "22012");
        client.send(&[wire::unnamed("select 1/0", &[]), wire::unnamed("select 1", &[]), wire::sync()].concat());
        assert_eq!(client.tags(), "1EZ");
        assert_eq!(client.value("show work_mem"), "9MB");
    }
}

#[test]
fn a_slow_and_trickling_client_is_served_like_any_other() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1");
    let network = Network::to(proxy.port());
    network.set_both(Fault::ByteByByte);
    let mut client = Raw::tcp(network.port()).log_in("postgres", &ground.database, &[]).unwrap();
    let mut other = ground.client(&proxy);
    for _ in 0..3 {
        assert_eq!(client.rows("select repeat('x', 20) from generate_series(1, 20)").len(), 20);
        assert_eq!(client.extended("select $1::text", &["some text"]).unwrap(), "some text");
        client.send(&[wire::parse("s", "select 5"), wire::run("s", &[]), wire::close(b'S', "s"), wire::sync()].concat());
        assert_eq!(client.tags(), "12DC3Z");
        assert_eq!(other.value("select 1"), "1");
    }
}

#[test]
fn a_client_cut_off_in_mid_query_leaves_nothing_behind() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.primary_proxy("pool_size = 1\npool_wait_timeout = 20");
    let network = Network::to(proxy.port());
    for text in ["begin; insert into t values (1); select 1", "select repeat('x', 1000) from generate_series(1, 100000)"] {
        let mut client = Raw::tcp(network.port()).log_in("postgres", &ground.database, &[]).unwrap();
        client.send(&wire::query(text));
        client.read();
        network.cut();
        client.until_end();
        assert_eq!(ground.client(&proxy).value("select count(*) from t"), "0");
    }
}

/// A server that accepts and says nothing, as behind a firewall that drops.
#[test]
fn a_standby_that_never_answers_costs_a_read_no_more_than_the_connect_timeout() {
    let ground = Ground::new();
    let hole = Network::to(ground.cluster.standbys()[0].port());
    let backends = [Backend::tcp(ground.cluster.primary().port(), 0), Backend::tcp(hole.port(), 1)];
    let proxy = Proxy::spawn(&backends, "connect_timeout = 500\nsr_check_period = 3600");
    proxy.wait_for_nodes(2);
    hole.set_both(Fault::BlackHole);
    let mut client = ground.client(&proxy);
    let started = Instant::now();
    assert_eq!(client.value("select 1"), "1");
    check_within("a read whose standby is silent", started, Duration::from_millis(500));
}

#[test]
fn a_primary_whose_packets_are_dropped_gives_an_error_and_comes_back() {
    let ground = Ground::new();
    let (network, proxy) = behind(&ground, "connect_timeout = 500\npool_wait_timeout = 2");
    network.set_both(Fault::BlackHole);
    network.cut();
    let failure = Raw::tcp(proxy.port()).log_in("postgres", &ground.database, &[]).unwrap_err();
    assert!(["08001", "08006", "57P03"].contains(&failure.sqlstate.as_str()), "{failure:?}");
    network.set_both(Fault::None);
    network.cut();
    wait_until("the proxy to go on", || {
        Raw::tcp(proxy.port())
            .log_in("postgres", &ground.database, &[])
            .is_ok_and(|mut client| client.try_value("select 1").is_ok())
    });
}

#[test]
fn a_port_nobody_listens_on_is_no_obstacle_while_another_server_is_up() {
    let ground = Ground::new();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let backends = [Backend::tcp(ground.cluster.primary().port(), 1), Backend::tcp(closed, 1)];
    let proxy = Proxy::spawn(&backends, "");
    let mut client = ground.client(&proxy);
    for number in 0..50 {
        assert_eq!(client.value(&format!("select {number}")), number.to_string());
    }
    wait_until("the node to be shown as down", || proxy.nodes("status") == ["up", "down"]);
}

/// The timers of the proxy's connections to a port, as the system shows them: `02` is keepalive's, with the time left in hundredths.
fn keepalive_timers(proxy: &Proxy, port: u16) -> Vec<u32> {
    let folder = format!("/proc/{}/fd", proxy.pid());
    let conns = std::fs::read_dir(folder).unwrap().filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    let sockets: Vec<String> = conns.map(|conn| conn.display().to_string()).collect();
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let mut timers = Vec::new();
    for line in table.lines().skip(1) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (remote, timer, inode) = (fields[2], fields[5], fields[9]);
        let is_ours = remote.ends_with(&format!(":{port:04X}")) && sockets.contains(&format!("socket:[{inode}]"));
        if let (true, Some(left)) = (is_ours, timer.strip_prefix("02:")) {
            timers.push(u32::from_str_radix(left, 16).unwrap());
        }
    }
    timers
}

#[test]
fn servers_are_asked_whether_they_are_there_as_often_as_configured() {
    let ground = Ground::new();
    let (network, proxy) = behind(&ground, "tcp_keepidle = 20\ntcp_keepintvl = 5\ntcp_keepcnt = 2\ntcp_user_timeout = 30s");
    ground.client(&proxy).run("select 1");
    let timers = keepalive_timers(&proxy, network.port());
    assert!(!timers.is_empty() && timers.iter().all(|left| *left <= 2_000), "{timers:?}");
}
