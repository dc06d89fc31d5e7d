//! `backend_clustering_mode = raw`: servers that are no copies of each other.

use crate::support::ground::{Owned, cluster};
use crate::support::proxy::Backend;
use crate::support::{Proxy, Raw, wait_until};
use weir_demo::Mode;

const RAW: &str = "backend_clustering_mode = raw\nlog_min_messages = log\n";

/// Two servers with nothing in common.
fn servers() -> [Owned; 2] {
    [cluster(0), cluster(0)]
}

fn proxy(servers: &[Owned; 2], more: &str) -> Proxy {
    let backends: Vec<Backend> = servers.iter().map(|server| Backend::tcp(server.primary().port(), 1)).collect();
    Proxy::spawn(&backends, &format!("{RAW}{more}"))
}

/// The port of the server that a new client gets.
fn answers(proxy: &Proxy) -> Option<u16> {
    let mut client = Raw::tcp(proxy.port()).log_in("postgres", "postgres", &[]).ok()?;
    let answer = client.query("select inet_server_port()");
    answer.iter().find(|message| message.tag == b'D')?.row()[0].as_ref()?.parse().ok()
}

fn check_quiet(proxy: &Proxy) {
    let log = proxy.log();
    for word in ["primary", "a copy of", "failover", "writes wait"] {
        assert!(!log.contains(word), "\"{word}\" is said where servers have no roles:\n{log}");
    }
}

#[test]
fn everything_goes_to_the_first_server_at_each_start() {
    let servers = servers();
    let first = servers[0].primary().port();
    for _ in 0..4 {
        let proxy = proxy(&servers, "");
        wait_until("a server to answer", || answers(&proxy).is_some());
        wait_until("both to be up", || proxy.nodes("status") == ["up", "up"]);
        for _ in 0..10 {
            assert_eq!(answers(&proxy), Some(first), "{}", proxy.log());
        }
        assert_eq!(proxy.nodes("role"), ["primary", "standby"]);
        check_quiet(&proxy);
    }
}

#[test]
fn a_first_server_that_is_late_is_waited_for() {
    let servers = servers();
    let (first, second) = (servers[0].primary(), servers[1].primary().port());
    first.stop(Mode::Fast).unwrap();
    let proxy = proxy(&servers, "health_check_period = 0\nfailover_wait = 1\n");
    wait_until("the second to be up", || {
        proxy.log().contains(&format!("node 1 (127.0.0.1:{second}) is up")) && proxy.log().contains("node 0 (")
    });
    assert_eq!(answers(&proxy), None);
    first.start().unwrap();
    wait_until("the first to serve", || answers(&proxy) == Some(first.port()));
    check_quiet(&proxy);
}

#[test]
fn a_first_server_that_its_health_check_gave_up_comes_back_by_hand() {
    let servers = servers();
    let (first, second) = (servers[0].primary(), servers[1].primary().port());
    let mut proxy = proxy(&servers, "health_check_period = 1\nhealth_check_max_retries = 1\nhealth_check_retry_delay = 1\n");
    wait_until("the first to serve", || answers(&proxy) == Some(first.port()));
    wait_until("both to be up", || proxy.nodes("status") == ["up", "up"]);
    first.kill9().unwrap();
    wait_until("the second to serve", || answers(&proxy) == Some(second));
    assert!(proxy.log().contains("everything goes to node 1"), "{}", proxy.log());
    first.start().unwrap();
    wait_until("the first to be seen", || proxy.nodes("pg_status") == ["up", "up"]);
    assert_eq!(answers(&proxy), Some(second), "rows of the meantime are there");
    proxy.crash_and_start();
    proxy.wait_accepting();
    wait_until("a server to answer", || answers(&proxy).is_some());
    assert_eq!(answers(&proxy), Some(second), "also after a restart: {}", proxy.log());
    assert!(!proxy.log().contains("a copy of"), "{}", proxy.log());
}
