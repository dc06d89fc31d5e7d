//! Servers that let nobody in for now: full, starting, stopping, gone; and a check of roles that cannot log in.

use crate::support::ground::{cluster, cluster_with};
use crate::support::proxy::{Backend, show};
use crate::support::{Failure, Proxy, Raw, wait_until, wire};
use rustix::process::Signal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_demo::{Mode, Options, Server};

/// An ordinary user: places that a server keeps for superusers are not for it.
const USER: &str = "app";

fn client(proxy: &Proxy) -> Raw {
    Raw::tcp(proxy.port()).log_in(USER, "postgres", &[]).unwrap_or_else(|failure| panic!("cannot log in: {failure:?}"))
}

fn make_user(server: &Server) {
    server.query(&format!("create role {USER} login; grant all on schema public to {USER}")).unwrap();
}

/// Has sixteen or so clients run statements until something else is done. Returns the failures, each with true if its session
/// ended by it.
fn run_through(proxy: &Proxy, count: usize, text: &str, meanwhile: impl FnOnce()) -> Vec<(Failure, bool)> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let work = || {
            let mut client = client(proxy);
            let mut failures = Vec::new();
            while !is_over.load(Ordering::SeqCst) {
                if let Err(failure) = client.try_value(text) {
                    let has_ended = failure.severity != "ERROR";
                    failures.push((failure, has_ended));
                    if has_ended {
                        break;
                    }
                }
            }
            failures
        };
        let clients: Vec<_> = (0..count).map(|_| scope.spawn(work)).collect();
        meanwhile();
        is_over.store(true, Ordering::SeqCst);
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    })
}

#[test]
fn more_clients_than_a_server_has_connections_for_fail_in_nothing() {
    let places = vec![("max_connections".to_string(), "20".to_string())];
    let cluster = cluster_with(Options { extra_conf: places, ..Options::default() });
    make_user(cluster.primary());
    let proxy = Proxy::start(&cluster, "");
    let done = || proxy.metric("statements_simple_total");
    let failures = run_through(&proxy, 30, "select 1", || {
        wait_until("clients to get much done", || done() > 10_000);
    });
    assert_eq!(failures, []);
    assert!(proxy.metric("server_connections_failed_total") > 0, "the server was full");
}

#[test]
fn a_login_that_the_server_refuses_is_not_asked_for_again_by_each_who_waits() {
    let cluster = cluster(0);
    let primary = cluster.primary();
    make_user(primary);
    let proxy = Proxy::start(&cluster, "pool_size = 1");
    let mut inside = client(&proxy);
    inside.run("begin");
    let pid = inside.value("select pg_backend_pid()");
    let mut waiting: Vec<Raw> = (0..4).map(|_| client(&proxy)).collect();
    waiting.iter_mut().for_each(|client| client.send(&wire::query("select 1")));
    let mut console = Raw::unix(proxy.folder(), proxy.port()).log_in("pgbouncer", "pgbouncer", &[]).unwrap();
    wait_until("all to wait", || show(&mut console, "pools", "cl_waiting").contains(&"4".to_string()));
    primary.query(&format!("alter role {USER} nologin")).unwrap();
    let failed = proxy.metric("server_connections_failed_total");
    primary.query(&format!("select pg_terminate_backend({pid})")).unwrap();
    for mut client in waiting {
        let failure = client.until_end()[0].failure();
        assert_eq!(failure.sqlstate, "28000", "{failure:?}");
    }
    assert_eq!(proxy.metric("server_connections_failed_total") - failed, 1);
}

#[test]
fn a_restart_of_the_server_ends_no_session_and_fails_only_what_ran() {
    let cluster = cluster(0);
    make_user(cluster.primary());
    let proxy = Proxy::start(&cluster, "");
    for mode in [Mode::Fast, Mode::Immediate] {
        let failures = run_through(&proxy, 16, "select 1", || {
            let before = proxy.metric("statements_simple_total");
            wait_until("statements to run", || proxy.metric("statements_simple_total") > before + 100);
            cluster.primary().stop(mode).unwrap();
            cluster.primary().start().unwrap();
            // Each client gets something done afterwards, or this ends in its failures.
            let after = client_once(&proxy);
            assert_eq!(after, "1");
        });
        let ended: Vec<_> = failures.iter().filter(|(_, has_ended)| *has_ended).collect();
        assert!(ended.is_empty(), "{mode:?}: sessions ended: {ended:?}");
        let of_the_loss = |failure: &Failure| ["08007", "40001"].contains(&failure.sqlstate.as_str());
        assert!(failures.iter().all(|(failure, _)| of_the_loss(failure)), "{mode:?}: {failures:?}");
        // Server processes end one after the other: the next statement may meet one that ends a moment later.
        assert!(failures.len() <= 2 * 16, "{mode:?}: one statement of each was under way, or two: {failures:?}");
    }
}

fn client_once(proxy: &Proxy) -> String {
    client(proxy).value("select 1")
}

/// Nobody has noticed yet that it is gone.
#[test]
fn who_meets_a_dead_primary_first_waits_for_it_as_all_do() {
    let cluster = cluster(0);
    make_user(cluster.primary());
    let proxy = Proxy::start(&cluster, "sr_check_period = 3600");
    let mut clients: Vec<Raw> = (0..4).map(|_| client(&proxy)).collect();
    clients.iter_mut().for_each(|client| client.run("select 1"));
    cluster.primary().kill9().unwrap();
    clients.iter_mut().for_each(|client| client.send(&wire::query("select 2")));
    clients.iter_mut().for_each(|client| assert!(client.is_silent_for(Duration::from_millis(300))));
    cluster.primary().start().unwrap();
    for client in &mut clients {
        assert_eq!(client.tags(), "TDCZ");
    }
}

#[test]
fn only_failover_wait_ends_the_wait_for_a_server_and_the_session_goes_on() {
    let cluster = cluster(0);
    make_user(cluster.primary());
    let proxy = Proxy::start(&cluster, "failover_wait = 2");
    let mut client = client(&proxy);
    client.run("select 1");
    cluster.primary().kill9().unwrap();
    let begun = Instant::now();
    let failure = client.error("select 2");
    assert_eq!((failure.severity.as_str(), failure.sqlstate.as_str()), ("ERROR", "57P03"), "{failure:?}");
    assert!(failure.message.contains("failover_wait"), "{failure:?}");
    assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
    cluster.primary().start().unwrap();
    wait_until("the session to be served again", || client.try_value("select 3").is_ok());
}

/// A port where nobody listens.
fn dead_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn a_fast_stop_does_not_wait_for_logins_that_wait_for_servers() {
    let backends = [Backend::tcp(dead_port(), 1), Backend::tcp(dead_port(), 1)];
    let mut proxy = Proxy::spawn(&backends, "connect_timeout = 60s\npool_wait_timeout = 120");
    let mut waiting = Raw::tcp(proxy.port());
    waiting.send(&wire::startup(wire::V3_0, &[("user", "postgres"), ("database", "postgres")]));
    assert!(waiting.is_silent_for(Duration::from_millis(500)));
    let begun = Instant::now();
    proxy.signal(Signal::INT);
    let failure = waiting.until_end().iter().find(|message| message.tag == b'E').expect("it is told").failure();
    assert_eq!((failure.severity.as_str(), failure.sqlstate.as_str()), ("FATAL", "57P01"));
    assert!(proxy.wait_end().success());
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}

/// The error of a login where no node can be used, and the time until it comes.
fn told(proxy: &Proxy) -> (Failure, Duration) {
    let begun = Instant::now();
    let failure = Raw::tcp(proxy.port()).log_in("postgres", "postgres", &[]).unwrap_err();
    (failure, begun.elapsed())
}

#[test]
fn a_login_is_told_soon_which_node_is_down_and_why() {
    let ports = [dead_port(), dead_port()];
    let proxy = Proxy::spawn(&ports.map(|port| Backend::tcp(port, 1)), "connect_timeout = 1s\npool_wait_timeout = 120");
    let (failure, time) = told(&proxy);
    assert_eq!((failure.severity.as_str(), failure.sqlstate.as_str()), ("FATAL", "57P03"), "{failure:?}");
    for (node, port) in ports.iter().enumerate() {
        assert!(failure.detail.contains(&format!("node {node} (127.0.0.1:{port})")), "{failure:?}");
    }
    assert!(failure.detail.contains("refused"), "{failure:?}");
    assert!(time < Duration::from_secs(6), "{time:?}");
}

#[test]
fn a_check_of_roles_that_cannot_log_in_is_told_to_who_logs_in_and_shown_by_the_console() {
    let cluster = cluster(1);
    let backends: Vec<Backend> = cluster.servers().iter().map(|server| Backend::tcp(server.port(), 1)).collect();
    let proxy = Proxy::spawn(&backends, "connect_timeout = 1s\nsr_check_user = 'nobody'\npool_wait_timeout = 120");
    let (failure, time) = told(&proxy);
    assert_eq!(failure.sqlstate, "57P03", "{failure:?}");
    assert!(failure.detail.contains("role \"nobody\" does not exist"), "{failure:?}");
    assert!(failure.hint.contains("sr_check_user"), "{failure:?}");
    let mut console = Raw::unix(proxy.folder(), proxy.port()).log_in("pgbouncer", "pgbouncer", &[]).unwrap();
    assert_eq!(show(&mut console, "pool_nodes", "status"), ["down", "down"]);
    for cause in show(&mut console, "pool_nodes", "cause") {
        assert!(cause.contains("role \"nobody\" does not exist"), "{cause}");
    }
    assert_eq!(show(&mut console, "pool_failover", "event")[0], "forecast");
    assert!(time < Duration::from_secs(6), "{time:?}");
}
