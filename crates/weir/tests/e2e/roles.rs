//! Servers that are promoted, killed, restarted and frozen. Each test has servers of its own.

use crate::support::ground::{self, Owned, cluster};
use crate::support::proxy::Backend;
use crate::support::{Proxy, Raw, wait_until, wire};
use std::time::{Duration, Instant};
use weir_demo::{Mode, Server};

const WHERE: &str = "select inet_server_port()";

fn client(proxy: &Proxy) -> Raw {
    let mut client = proxy.console();
    ground::wait_for_catalog(&mut client, "postgres");
    client
}

fn try_client(proxy: &Proxy) -> Option<Raw> {
    Raw::tcp(proxy.port()).log_in("postgres", "postgres", &[]).ok()
}

/// True if a new client can write, and which server took it.
fn writes_to(proxy: &Proxy, server: &Server) -> bool {
    let text = "insert into t values (1) returning inet_server_port()";
    try_client(proxy).and_then(|mut client| client.try_value(text).ok()) == Some(server.port().to_string())
}

fn reads_reach(proxy: &Proxy, server: &Server) -> bool {
    let Some(mut client) = try_client(proxy) else { return false };
    (0..20).any(|_| client.try_value(WHERE).ok() == Some(server.port().to_string()))
}

fn with_table(standbys: usize) -> Owned {
    let cluster = cluster(standbys);
    cluster.primary().query("create table t (a int)").unwrap();
    cluster.wait_caught_up().unwrap();
    cluster
}

#[test]
fn a_promotion_is_followed() {
    let cluster = with_table(2);
    let proxy = Proxy::start(&cluster, "");
    let mut old = client(&proxy);
    old.run("insert into t values (0)");
    let [first, second] = cluster.standbys() else { panic!("two standbys") };
    cluster.primary().stop(Mode::Fast).unwrap();
    first.promote().unwrap();
    second.follow(first).unwrap();
    wait_until("writes to go to the new primary", || writes_to(&proxy, first));
    // A client that was there before goes on as well.
    wait_until("the old client to write", || old.try_value("insert into t values (2) returning inet_server_port()").is_ok());
    wait_until("reads to go to the other standby", || reads_reach(&proxy, second));
    assert_eq!(proxy.nodes("role"), ["standby", "primary", "standby"]);
    assert_eq!(proxy.nodes("status"), ["down", "up", "up"]);
    // The old primary comes back as a standby.
    cluster.primary().clone_from(first).unwrap();
    wait_until("the old primary to be seen as a standby", || proxy.nodes("status") == ["up", "up", "up"]);
    assert_eq!(proxy.nodes("pg_role"), ["standby", "primary", "standby"]);
}

#[test]
fn a_promotion_while_the_old_primary_still_answers_is_followed_when_it_is_gone() {
    let cluster = with_table(1);
    let proxy = Proxy::start(&cluster, "");
    cluster.standbys()[0].promote().unwrap();
    wait_until("both to be seen as primary", || proxy.nodes("pg_role") == ["primary", "primary"]);
    assert!(writes_to(&proxy, cluster.primary()), "the one we had is kept, not one at random");
    assert_eq!(proxy.nodes("role").iter().filter(|role| *role == "primary").count(), 1);
    cluster.primary().stop(Mode::Fast).unwrap();
    wait_until("writes to go to the other", || writes_to(&proxy, &cluster.standbys()[0]));
}

#[test]
fn a_standby_that_is_killed_costs_at_most_the_reads_it_was_answering() {
    let cluster = with_table(2);
    let proxy = Proxy::start(&cluster, "");
    let mut clients: Vec<Raw> = (0..4).map(|_| client(&proxy)).collect();
    clients.iter_mut().for_each(|client| client.run(WHERE));
    cluster.standbys()[0].kill9().unwrap();
    for client in &mut clients {
        for _ in 0..20 {
            client.value("select 1");
        }
        client.run("insert into t values (1)");
    }
    wait_until("the standby to be seen as down", || proxy.nodes("status") == ["up", "down", "up"]);
    cluster.standbys()[0].start().unwrap();
    wait_until("reads to go there again", || reads_reach(&proxy, &cluster.standbys()[0]));
}

#[test]
fn a_read_that_runs_on_a_standby_which_is_killed_runs_again_on_another_server() {
    let cluster = with_table(1);
    let proxy = Proxy::start(&cluster, "");
    let mut client = client(&proxy);
    client.send(&wire::query("select 7 from pg_sleep(3)"));
    let text = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'";
    wait_until("the read to run", || cluster.standbys()[0].value(text).unwrap() == "1");
    cluster.standbys()[0].kill9().unwrap();
    assert_eq!(client.tags(), "TDCZ");
    assert_eq!(proxy.metric("reads_repeated_total"), 1);
    assert_eq!(client.value(WHERE), cluster.primary().port().to_string(), "with no standby left, the primary answers reads");
}

#[test]
fn when_all_standbys_are_down_the_primary_answers_reads() {
    let cluster = with_table(2);
    let proxy = Proxy::start(&cluster, "");
    let mut client = client(&proxy);
    cluster.standbys().iter().for_each(|standby| standby.stop(Mode::Fast).unwrap());
    wait_until("reads to go to the primary", || client.try_value(WHERE).ok() == Some(cluster.primary().port().to_string()));
    for _ in 0..20 {
        assert_eq!(client.value(WHERE), cluster.primary().port().to_string());
    }
}

#[test]
fn when_the_primary_is_killed_clients_are_told_and_all_is_well_after_its_restart() {
    let cluster = with_table(1);
    let proxy = Proxy::start(&cluster, "");
    let mut busy = client(&proxy);
    let mut inside = client(&proxy);
    let mut idle = client(&proxy);
    inside.run("begin; insert into t values (1)");
    idle.run("insert into t values (2)");
    let standby = cluster.standbys()[0].port().to_string();
    // A standby that is not known to have replayed a session's write does not serve it.
    wait_until("the write to be known on the standby", || idle.value(WHERE) == standby);
    busy.send(&wire::query("insert into t select 3 from pg_sleep(50)"));
    let text = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'";
    wait_until("the query to run", || cluster.primary().value(text).unwrap() == "1");
    cluster.primary().kill9().unwrap();
    let failure = busy.until_ready()[0].failure();
    assert_eq!(failure.sqlstate, "08007", "{failure:?}");
    let failure = inside.error("insert into t values (1)");
    assert_eq!((failure.severity.as_str(), failure.sqlstate.as_str()), ("ERROR", "40001"), "{failure:?}");
    inside.run("rollback");
    for _ in 0..10 {
        assert_eq!(idle.value(WHERE), cluster.standbys()[0].port().to_string(), "reads go on");
    }
    cluster.primary().start().unwrap();
    // A write that comes now waits for the primary to be seen, and needs no second try.
    idle.run("insert into t values (4)");
    busy.run("insert into t values (5)");
    assert_eq!(client(&proxy).value("begin; select string_agg(a::text, ',' order by a) from t"), "2,4,5");
}

#[test]
fn a_write_waits_for_a_primary_and_gives_up_with_a_reason() {
    let cluster = with_table(1);
    let proxy = Proxy::start(&cluster, "failover_wait = 2");
    let mut client = client(&proxy);
    client.run(WHERE);
    cluster.primary().stop(Mode::Immediate).unwrap();
    wait_until("the primary to be seen as down", || proxy.nodes("status") == ["down", "up"]);
    let started = Instant::now();
    let failure = client.error("insert into t values (1)");
    assert_eq!(failure.sqlstate, "57P03", "{failure:?}");
    assert!(failure.message.contains("primary") && failure.message.contains("failover_wait"), "{failure:?}");
    assert!(started.elapsed() >= Duration::from_secs(2));
}

#[test]
fn a_restart_of_all_servers_is_survived_by_idle_clients() {
    let cluster = with_table(1);
    let proxy = Proxy::start(&cluster, "");
    let mut clients: Vec<Raw> = (0..5).map(|_| client(&proxy)).collect();
    clients.iter_mut().for_each(|client| client.run("insert into t values (1)"));
    for server in cluster.servers() {
        server.stop(Mode::Fast).unwrap();
    }
    for server in cluster.servers() {
        server.start().unwrap();
    }
    for client in &mut clients {
        client.run("insert into t values (1)");
        client.run(WHERE);
    }
}

#[test]
fn a_proxy_started_before_its_servers_serves_once_they_are_there() {
    let cluster = with_table(1);
    let ports: Vec<u16> = cluster.servers().iter().map(Server::port).collect();
    for server in cluster.servers() {
        server.stop(Mode::Fast).unwrap();
    }
    let backends = [Backend::tcp(ports[0], 0), Backend::tcp(ports[1], 1)];
    let proxy = Proxy::spawn(&backends, "pool_wait_timeout = 1");
    let failure = Raw::tcp(proxy.port()).log_in("postgres", "postgres", &[]).unwrap_err();
    assert_eq!(failure.sqlstate, "57P03", "{failure:?}");
    assert!(!failure.hint.is_empty(), "{failure:?}");
    for server in cluster.servers() {
        server.start().unwrap();
    }
    wait_until("writes to be taken", || writes_to(&proxy, cluster.primary()));
    wait_until("reads to reach the standby", || reads_reach(&proxy, &cluster.standbys()[0]));
}

#[test]
fn a_frozen_standby_gets_no_reads_once_the_check_has_seen_it() {
    let cluster = with_table(2);
    let proxy = Proxy::start(&cluster, "connect_timeout = 1000");
    cluster.standbys()[0].freeze();
    wait_until("the frozen standby to be seen as down", || proxy.log().contains("is down, was standby"));
    let mut client = client(&proxy);
    for _ in 0..30 {
        assert_eq!(client.value(WHERE), cluster.standbys()[1].port().to_string());
    }
    cluster.standbys()[0].thaw();
    wait_until("reads to go there again", || reads_reach(&proxy, &cluster.standbys()[0]));
}

#[test]
fn a_primary_that_becomes_a_standby_takes_no_writes_any_more() {
    let cluster = with_table(1);
    let proxy = Proxy::start(&cluster, "");
    let [standby] = cluster.standbys() else { panic!("one standby") };
    let mut client = client(&proxy);
    client.run("insert into t values (1)");
    // A switchover: in order, so that the old primary can follow the new one at once.
    cluster.primary().stop(Mode::Fast).unwrap();
    standby.promote().unwrap();
    cluster.primary().follow(standby).unwrap();
    cluster.primary().start().unwrap();
    wait_until("writes to go to the new primary", || writes_to(&proxy, standby));
    wait_until("the old client to write", || client.try_value("insert into t values (2) returning a").is_ok());
    for _ in 0..10 {
        client.run("insert into t values (3)");
    }
    wait_until("the roles to be shown", || proxy.nodes("pg_role") == ["standby", "primary"]);
}

#[test]
fn a_standby_that_does_not_stream_or_has_another_name_is_named_in_the_log() {
    let cluster = with_table(2);
    let [first, second] = cluster.standbys() else { panic!("two standbys") };
    let names =
        format!("backend_application_name1 = '{}'\nbackend_application_name2 = 'of_nobody'\nsr_check_period = 1\n", first.name());
    let proxy = Proxy::start(&cluster, &names);
    let other = format!("node 2 (127.0.0.1:{}) streams under no name of backend_application_name2 = 'of_nobody'", second.port());
    wait_until("the other name to be told", || proxy.log().contains(&other));
    assert!(proxy.log().contains(&format!("the primary has '{}'", second.name())), "{}", proxy.log());
    // The server is asked while it cannot stream; then it can.
    first.query("alter system set primary_conninfo = ''").unwrap();
    first.reload().unwrap();
    let faulty = format!("node 1 (127.0.0.1:{}) is a standby and does not stream from any server", first.port());
    wait_until("the missing stream to be told", || proxy.log().contains(&faulty));
    first.query("alter system reset primary_conninfo").unwrap();
    first.reload().unwrap();
    let well = format!("node 1 (127.0.0.1:{}) streams again", first.port());
    wait_until("its end to be told", || proxy.log().contains(&well));
    assert_eq!((proxy.log().matches(&faulty).count(), proxy.log().matches(&other).count()), (1, 1));
}
