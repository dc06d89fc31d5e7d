//! Rights that are taken away on the servers while connections of pools live: new clients hear of it within `auth_cache_time`.

use crate::support::ground::{Owned, cluster, cluster_with};
use crate::support::time::check_within;
use crate::support::{Failure, Proxy, Raw, wait_until};
use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};
use weir_demo::{Options, Server};

const CACHE: &str = "auth_cache_time = 1\n";
const CACHE_TIME: Duration = Duration::from_secs(1);
const PID: &str = "select pg_backend_pid()";
const WHERE: &str = "select inet_server_port()";

fn try_client(proxy: &Proxy) -> Result<Raw, Failure> {
    Raw::tcp(proxy.port()).log_in("app", "shop", &[])
}

fn client(proxy: &Proxy) -> Raw {
    try_client(proxy).unwrap_or_else(|failure| panic!("cannot log in: {failure:?}"))
}

fn prepare(cluster: &Owned) {
    for text in ["create role app login", "create database shop"] {
        cluster.primary().query(text).unwrap();
    }
    cluster.wait_caught_up().unwrap();
}

/// Puts a line before the server's own rules, or takes it away, and waits until it counts for new connections.
fn reject(server: &Server, line: Option<&str>) {
    let path = server.data_dir().join("pg_hba.conf");
    let text = fs::read_to_string(&path).unwrap();
    let own: String = text.lines().filter(|line| !line.ends_with(" reject")).map(|line| format!("{line}\n")).collect();
    fs::write(&path, format!("{}\n{own}", line.unwrap_or_default())).unwrap();
    server.reload().unwrap();
    let is_in = || Raw::tcp(server.port()).log_in("app", "shop", &[]).is_ok();
    wait_until("the rules to count", || is_in() == line.is_none());
}

/// Waits until a new client is refused.
fn wait_refused(proxy: &Proxy) -> Failure {
    let mut refused = None;
    wait_until("a new client to be refused", || {
        refused = try_client(proxy).err();
        refused.is_some()
    });
    refused.unwrap()
}

/// One way to take a right away.
struct Way {
    name: &'static str,
    sqlstate: &'static str,
    take: fn(&Server),
    give: fn(&Server),
}

fn run(server: &Server, text: &str) {
    server.query(text).unwrap();
}

const WAYS: [Way; 6] = [
    Way {
        name: "REVOKE CONNECT",
        sqlstate: "42501",
        take: |server| run(server, "revoke connect on database shop from public"),
        give: |server| run(server, "grant connect on database shop to public"),
    },
    Way {
        name: "ALLOW_CONNECTIONS",
        sqlstate: "55000",
        take: |server| run(server, "alter database shop allow_connections false"),
        give: |server| run(server, "alter database shop allow_connections true"),
    },
    Way {
        name: "CONNECTION LIMIT of the database",
        sqlstate: "53300",
        take: |server| run(server, "alter database shop connection limit 0"),
        give: |server| run(server, "alter database shop connection limit -1"),
    },
    Way {
        name: "CONNECTION LIMIT of the role",
        sqlstate: "53300",
        take: |server| run(server, "alter role app connection limit 0"),
        give: |server| run(server, "alter role app connection limit -1"),
    },
    Way {
        name: "NOLOGIN",
        sqlstate: "28000",
        take: |server| run(server, "alter role app nologin"),
        give: |server| run(server, "alter role app login"),
    },
    Way {
        name: "pg_hba.conf",
        sqlstate: "28000",
        take: |server| reject(server, Some("host all app all reject")),
        give: |server| reject(server, None),
    },
];

#[test]
fn a_right_that_is_withdrawn_keeps_new_clients_out_within_the_time_and_ends_no_transaction() {
    let cluster = cluster(0);
    prepare(&cluster);
    let server = cluster.primary();
    let proxy = Proxy::start(&cluster, CACHE);
    for Way { name, sqlstate, take, give } in WAYS {
        let (mut working, mut idle) = (client(&proxy), client(&proxy));
        working.run("begin");
        let pid = working.value(PID);
        assert_ne!(idle.value(PID), pid, "{name}: there is one at rest");
        let withdrawn_at = Instant::now();
        take(server);
        let failure = wait_refused(&proxy);
        check_within(name, withdrawn_at, CACHE_TIME);
        assert_eq!((failure.severity.as_str(), failure.sqlstate.as_str()), ("FATAL", sqlstate), "{name}: {failure:?}");
        // None gets in by a greeting that is remembered, nor by a connection of before.
        for _ in 0..20 {
            assert_eq!(try_client(&proxy).map(drop).unwrap_err().sqlstate, sqlstate, "{name}");
        }
        assert_eq!(working.value(PID), pid, "{name}: its transaction goes on");
        working.run("commit");
        // Its connection was the last one. A client that needs another one is told as anybody who opens one.
        let others = "select count(*) from pg_stat_activity where usename = 'app' and application_name <> 'weir_catalog'";
        wait_until("connections of before to be closed", || server.value(others).unwrap() == "0");
        if sqlstate != "53300" {
            assert_eq!(idle.error("select 1").sqlstate, sqlstate, "{name}");
        }
        give(server);
        assert_eq!(client(&proxy).value("select 1"), "1", "{name}: let in again at once");
    }
}

#[test]
fn a_standby_that_rejects_the_user_gets_no_reads_of_new_clients() {
    let cluster = cluster(2);
    prepare(&cluster);
    let proxy = Proxy::start(&cluster, CACHE);
    let (closed, open) = (&cluster.standbys()[0], &cluster.standbys()[1]);
    let ports = |count: usize| -> BTreeSet<u16> { (0..count).map(|_| client(&proxy).value(WHERE).parse().unwrap()).collect() };
    wait_until("reads to be spread", || ports(10) == BTreeSet::from([closed.port(), open.port()]));
    reject(closed, Some("host all app all reject"));
    // A read that the standby does not take goes to the primary.
    // A login that was under way when the rules changed vouches for those who came with it.
    wait_until("reads to go elsewhere", || !ports(40).contains(&closed.port()));
    reject(closed, None);
    wait_until("reads to be spread again", || ports(10).contains(&closed.port()));
}

#[test]
fn new_clients_cost_one_login_in_the_time() {
    let cluster = cluster(0);
    prepare(&cluster);
    let proxy = Proxy::start(&cluster, "auth_cache_time = 1h");
    let pids: BTreeSet<String> = (0..50).map(|_| client(&proxy).value(PID)).collect();
    // A connection may come back a moment after its client has left.
    assert!(pids.len() <= 2, "{pids:?}");
    let proxy = Proxy::start(&cluster, CACHE);
    let begun = Instant::now();
    let mut pids = BTreeSet::new();
    wait_until("logins to be asked for again", || {
        pids.insert(client(&proxy).value(PID));
        begun.elapsed() > 3 * CACHE_TIME
    });
    let most = begun.elapsed().as_secs() as usize + 3;
    assert!((2..=most).contains(&pids.len()), "{} in {:?}", pids.len(), begun.elapsed());
    let rows = proxy.console().rows("show pool_pools");
    assert!(rows.iter().filter(|row| row.contains(&"app".to_string())).count() <= 2, "replaced, not added: {rows:?}");
}

/// Holds all places that a server has for a user, as others do.
fn fill(server: &Server, user: &str) -> Vec<Raw> {
    let mut others = Vec::new();
    while let Ok(other) = Raw::tcp(server.port()).log_in(user, "postgres", &[]) {
        others.push(other);
    }
    others
}

#[test]
fn a_server_without_room_keeps_nobody_out() {
    let places = vec![("max_connections".to_string(), "20".to_string())];
    let cluster = cluster_with(Options { extra_conf: places, ..Options::default() });
    prepare(&cluster);
    let server = cluster.primary();
    server.query("create role other login").unwrap();
    for (limit, filler) in [("6", "app"), ("-1", "other")] {
        server.query(&format!("alter role app connection limit {limit}")).unwrap();
        let proxy = Proxy::start(&cluster, CACHE);
        // One works, one is at rest.
        let (mut working, mut idle) = (client(&proxy), client(&proxy));
        working.run("begin");
        let pid = working.value(PID);
        assert_ne!(idle.value(PID), pid);
        let others = fill(server, filler);
        let begun = Instant::now();
        wait_until("the time to be over several times", || {
            assert_eq!(client(&proxy).value("select 1"), "1", "{limit}");
            begun.elapsed() > 3 * CACHE_TIME
        });
        assert_eq!(working.value(PID), pid);
        // A right that is withdrawn meanwhile is noticed: a login takes the place of a connection at rest.
        server.query("alter role app nologin").unwrap();
        assert_eq!(wait_refused(&proxy).sqlstate, "28000", "{limit}");
        server.query("alter role app login").unwrap();
        drop(others);
        wait_until("it to be let in again", || try_client(&proxy).is_ok());
    }
}

#[test]
fn a_server_that_hangs_keeps_nobody_out_whom_it_let_in_last() {
    let cluster = cluster(0);
    prepare(&cluster);
    let proxy = Proxy::start(&cluster, &format!("{CACHE}sr_check_period = 3600\n"));
    client(&proxy).run("select 1");
    let begun = Instant::now();
    wait_until("the server's word to grow old", || begun.elapsed() > 2 * CACHE_TIME);
    let server = cluster.primary();
    server.freeze();
    let come = try_client(&proxy);
    server.thaw();
    assert_eq!(come.expect("it was let in last").value("select 1"), "1");
}
