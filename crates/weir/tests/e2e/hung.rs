//! Servers that stop where they are (SIGSTOP): they accept, and never answer. Each test has servers of its own.

use crate::support::certs::{Authority, Signed};
use crate::support::ground::{Owned, cluster, cluster_with, wait_for_catalog};
use crate::support::proxy::Backend;
use crate::support::raw::tags;
use crate::support::time::{check_took, check_within};
use crate::support::{Proxy, Raw, wait_until, wire};
use std::time::{Duration, Instant};
use weir_demo::{Options, Server};

const WHERE: &str = "select inet_server_port()";
const SLEEPERS: &str = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'";

/// Time until a server that hangs is given up (`sr_check_period` and `connect_timeout` are a second each), on a machine that is busy.
const GIVEN_UP_MAX: Duration = Duration::from_secs(12);

/// A server that goes on in any case: one that is frozen would hold the end of the test up.
struct Frozen<'a>(&'a Server);

impl<'a> Frozen<'a> {
    fn new(server: &'a Server) -> Frozen<'a> {
        server.freeze();
        Frozen(server)
    }

    /// Its postmaster alone: it answers over connections that are open, and no login.
    fn postmaster(server: &'a Server) -> Frozen<'a> {
        server.freeze_postmaster();
        Frozen(server)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.0.thaw();
    }
}

fn client(proxy: &Proxy) -> Raw {
    let mut client = proxy.console();
    wait_for_catalog(&mut client, "postgres");
    client
}

fn with_tls() -> (Owned, Signed) {
    let signed = Authority::new("hung").server();
    let conf = [("ssl", "on"), ("ssl_cert_file", "weir.crt"), ("ssl_key_file", "weir.key")];
    let cluster = cluster_with(Options {
        standbys: 2,
        extra_conf: conf.map(|(name, value)| (name.to_string(), value.to_string())).into(),
        extra_files: vec![
            ("weir.crt".into(), signed.cert.clone().into_bytes()),
            ("weir.key".into(), signed.key.clone().into_bytes()),
        ],
        ..Options::default()
    });
    cluster.wait_streaming(2).unwrap();
    (cluster, signed)
}

#[test]
fn reads_under_way_on_a_standby_that_hangs_run_again_elsewhere_once_it_is_given_up() {
    let (cluster, signed) = with_tls();
    let files = [("server.crt", signed.cert.as_str()), ("server.key", signed.key.as_str())];
    for io in ["epoll", "auto"] {
        for (tls, ssl) in [
            ("off", "ssl = off"),
            ("on", "ssl = on\nssl_cert = 'server.crt'\nssl_key = 'server.key'\nbackend_sslmode = 'require'"),
        ] {
            for weights in [[1, 1, 1], [0, 1, 1]] {
                let backends: Vec<Backend> =
                    cluster.servers().iter().zip(weights).map(|(server, weight)| Backend::tcp(server.port(), weight)).collect();
                let more = format!("io_method = {io}\n{ssl}\nconnect_timeout = 1000\ncausal_wait = 20ms");
                let proxy = Proxy::spawn_with_files(&backends, &more, &files, &[]);
                proxy.wait_accepting();
                proxy.wait_for_nodes(3);
                check_hang(&format!("io {io}, tls {tls}, weights {weights:?}"), &cluster.standbys()[0], &proxy);
            }
        }
    }
}

fn check_hang(what: &str, standby: &Server, proxy: &Proxy) {
    wait_until("nothing of the check before to run there", || standby.value(SLEEPERS).unwrap() == "0");
    let mut clients: Vec<Raw> = (0..16).map(|_| client(proxy)).collect();
    clients.iter_mut().for_each(|client| client.send(&wire::query("select 7 from pg_sleep(2.5)")));
    wait_until("reads to run on the standby", || standby.value(SLEEPERS).unwrap() != "0");
    let frozen = Frozen::new(standby);
    let begun = Instant::now();
    for client in &mut clients {
        assert_eq!(client.tags(), "TDCZ", "{what}");
    }
    check_took(&format!("reads under way, {what}"), begun, GIVEN_UP_MAX);
    assert!(proxy.metric("reads_repeated_total") > 0, "{what}");
    let begun = Instant::now();
    for _ in 0..10 {
        clients.iter_mut().for_each(|client| client.send(&wire::query("select 8")));
        clients.iter_mut().for_each(|client| assert_eq!(client.tags(), "TDCZ", "{what}"));
    }
    check_within(&format!("later reads, {what}"), begun, Duration::ZERO);
    drop(frozen);
    wait_until("the standby to be up again", || proxy.nodes("status") == ["up", "up", "up"]);
}

#[test]
fn a_transaction_on_a_standby_that_hangs_fails_with_the_loss_of_its_connection() {
    let cluster = cluster(1);
    let proxy = Proxy::start(&cluster, "connect_timeout = 1000");
    let standby = &cluster.standbys()[0];
    let mut client = client(&proxy);
    client.run("begin isolation level repeatable read, read only");
    assert_eq!(client.value(WHERE), standby.port().to_string());
    let _frozen = Frozen::new(standby);
    client.send(&wire::query("select 1"));
    let begun = Instant::now();
    let said = client.until_ready();
    assert_eq!(tags(&said), "EZ");
    let failure = said[0].failure();
    assert_eq!((failure.severity.as_str(), failure.sqlstate.as_str()), ("ERROR", "40001"), "{failure:?}");
    assert!(failure.detail.contains("does not answer"), "{failure:?}");
    assert_eq!(said[1].body, b"E");
    client.run("rollback");
    check_took("the loss of its connection", begun, GIVEN_UP_MAX);
}

/// No other server could do its waiting statements, and it may go on.
#[test]
fn a_transaction_on_the_only_primary_outlives_its_hang() {
    let cluster = cluster(1);
    cluster.primary().query("create table t (a int)").unwrap();
    let proxy = Proxy::start(&cluster, "connect_timeout = 500");
    let mut client = client(&proxy);
    client.run("begin; insert into t values (1)");
    let frozen = Frozen::new(cluster.primary());
    client.send(&wire::query("insert into t values (2)"));
    wait_until("the primary to be seen as down", || proxy.log().contains("is down, was primary"));
    drop(frozen);
    assert_eq!(client.tags(), "CZ");
    client.run("commit");
    assert_eq!(cluster.primary().value("select count(*) from t").unwrap(), "2");
}

#[test]
fn who_waits_for_a_login_of_a_standby_that_hangs_waits_for_all() {
    let cluster = cluster(1);
    let primary = cluster.primary();
    primary.query("create role one login; create role two login").unwrap();
    cluster.wait_caught_up().unwrap();
    // Nobody but the login finds out: the check of roles comes an hour later, unless somebody asks for it.
    let proxy = Proxy::start(&cluster, "connect_timeout = 3000\nsr_check_period = 3600");
    let mut clients: Vec<Raw> =
        ["one", "two"].iter().map(|user| Raw::tcp(proxy.port()).log_in(user, "postgres", &[]).unwrap()).collect();
    wait_for_catalog(&mut clients[0], "postgres");
    let _frozen = Frozen::new(&cluster.standbys()[0]);
    let begun = Instant::now();
    assert_eq!(clients[0].value(WHERE), primary.port().to_string());
    assert!(begun.elapsed() >= Duration::from_secs(2), "the first had to find out: {:?}", begun.elapsed());
    let begun = Instant::now();
    assert_eq!(clients[1].value(WHERE), primary.port().to_string());
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
}

/// It answers each look at its role, and each of those who need a connection of their own would wait for a login.
#[test]
fn one_waits_for_a_login_of_a_standby_whose_postmaster_hangs_and_others_read_elsewhere() {
    let cluster = cluster(1);
    let primary = cluster.primary();
    primary.query("create role one login; create role two login").unwrap();
    cluster.wait_caught_up().unwrap();
    let looks = "health_check_period = 1\nhealth_check_timeout = 1\nhealth_check_user = 'postgres'";
    let proxy = Proxy::start(&cluster, &format!("connect_timeout = 8000\nfailover_mode = builtin\nfailover_alone = on\n{looks}"));
    let mut clients: Vec<Raw> =
        ["one", "two"].iter().map(|user| Raw::tcp(proxy.port()).log_in(user, "postgres", &[]).unwrap()).collect();
    wait_for_catalog(&mut clients[0], "postgres");
    let _frozen = Frozen::postmaster(&cluster.standbys()[0]);
    wait_until("it to be named", || proxy.log().contains("node 1 answers over open connections and no login in time"));
    assert_eq!(clients[0].value(WHERE), primary.port().to_string());
    let asked = || proxy.log().matches("asked for their roles: a login at a server takes long").count();
    let before = asked();
    // The question before the last one is answered.
    wait_until("a look at its role to be answered", || asked() > before + 1);
    let begun = Instant::now();
    assert_eq!(clients[1].value(WHERE), primary.port().to_string());
    check_within("the second one", begun, Duration::ZERO);
    assert_eq!(proxy.nodes("status"), ["up", "up"]);
}
