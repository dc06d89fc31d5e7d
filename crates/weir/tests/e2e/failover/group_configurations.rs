//! Groups as users run them: under a load that counts, hosts and the primary fail, and each answer shows what was acknowledged before.

use super::grouped::{Group, writes};
use super::*;
use crate::support::certs::Authority;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use weir_demo::Sql;

/// Longest wait of a client for an answer: its host may stand still.
const ANSWER_LIMIT: Duration = Duration::from_secs(15);
/// Between two deeds of a client.
const PACE: Duration = Duration::from_millis(10);
/// Longer than a lease.
const STANDSTILL: Duration = Duration::from_secs(4);

/// A client that adds one to a number of its own, and reads it twice after each time.
struct Counting {
    port: u16,
    database: String,
    number: usize,
    sum: i64,
    /// Attempts whose outcome it has not heard: each may still take effect, also after the client has given its session up.
    unheard: i64,
}

/// Clients of all hosts, and what was wrong.
struct CountingCrew {
    ends: Arc<AtomicBool>,
    wrong: Arc<Mutex<Vec<String>>>,
    clients: Vec<(usize, Arc<AtomicUsize>, JoinHandle<Counting>)>,
}

impl Counting {
    /// One more; what was acknowledged is a bound for what is read. An error: the session is given up.
    fn go_on(&mut self, sql: &mut Sql, wrong: &mut Vec<String>) -> anyhow::Result<()> {
        let (number, before) = (self.number, self.sum);
        self.unheard += 1;
        let rows = sql.query(&format!("update counted set sum = sum + 1 where number = {number} returning sum"))?;
        self.unheard -= 1;
        let written: i64 = rows[0][0].as_ref().expect("a number").parse()?;
        if !self.takes(written, before + 1) {
            wrong.push(format!("client {number} added one to {} after {before} was acknowledged", written - 1));
        }
        for _ in 0..2 {
            let rows = sql.query(&format!("select sum from counted where number = {number}"))?;
            let read: i64 = rows[0][0].as_ref().expect("a number").parse()?;
            let acknowledged = self.sum;
            if !self.takes(read, acknowledged) {
                wrong.push(format!("client {number} reads {read}, and {acknowledged} was acknowledged to it"));
            }
        }
        Ok(())
    }

    /// Takes a number that is told for what is acknowledged. False: it is less, or more than attempts without an answer can have added.
    fn takes(&mut self, told: i64, expected: i64) -> bool {
        let more = told - expected;
        let is_possible = (0..=self.unheard).contains(&more);
        (self.sum, self.unheard) = (told, if is_possible { self.unheard - more } else { self.unheard });
        is_possible
    }

    fn run(mut self, ends: &AtomicBool, done: &AtomicUsize, wrong: &Mutex<Vec<String>>) -> Counting {
        let mut session: Option<Sql> = None;
        while !ends.load(Ordering::SeqCst) {
            let open = || Sql::connect_tcp_within("127.0.0.1", self.port, "postgres", &self.database, ANSWER_LIMIT);
            let Ok(mut sql) = session.take().map_or_else(open, Ok) else {
                let_pass(PACE);
                continue;
            };
            let mut found = Vec::new();
            if self.go_on(&mut sql, &mut found).is_ok() {
                done.fetch_add(1, Ordering::SeqCst);
                session = Some(sql);
            }
            wrong.lock().unwrap_or_else(PoisonError::into_inner).extend(found);
            let_pass(PACE);
        }
        self
    }
}

impl CountingCrew {
    /// So many clients at each host, each in one of the databases.
    fn begin(group: &Group, databases: &[String], each: usize) -> CountingCrew {
        let (ends, wrong) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let begin = |number: usize| {
            let host = number / each;
            let database = databases[number % databases.len()].clone();
            let client = Counting { port: group.proxies[host].port(), database, number, sum: 0, unheard: 0 };
            let done = Arc::new(AtomicUsize::new(0));
            let (ends, own, wrong) = (ends.clone(), done.clone(), wrong.clone());
            (host, done, thread::spawn(move || client.run(&ends, &own, &wrong)))
        };
        let clients = (0..3 * each).map(begin).collect();
        CountingCrew { ends, wrong, clients }
    }

    /// Waits until each client of these hosts has added and read some times more.
    fn wait_all(&self, hosts: &[usize], what: &str) {
        const MORE: usize = 5;
        let of_hosts = || self.clients.iter().filter(|(host, _, _)| hosts.contains(host));
        let before: Vec<usize> = of_hosts().map(|(_, done, _)| done.load(Ordering::SeqCst)).collect();
        wait_until(&format!("all clients to go on {what}"), || {
            of_hosts().zip(&before).all(|((_, done, _), before)| done.load(Ordering::SeqCst) >= before + MORE)
        });
    }

    /// Ends all; each acknowledged number is on the primary.
    fn end(self, primary: &Server) {
        self.ends.store(true, Ordering::SeqCst);
        let clients: Vec<Counting> = self.clients.into_iter().map(|(_, _, client)| client.join().unwrap()).collect();
        let wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(wrong.is_empty(), "{wrong:#?}");
        for client in clients {
            let mut sql = Sql::connect_tcp("127.0.0.1", primary.port(), "postgres", &client.database).unwrap();
            let rows = sql.query(&format!("select sum from counted where number = {}", client.number)).unwrap();
            let sum: i64 = rows[0][0].as_ref().unwrap().parse().unwrap();
            assert!(sum >= client.sum, "client {}: {sum} on the primary, {} was acknowledged", client.number, client.sum);
        }
    }
}

/// A follower stands still and goes on, the primary dies, then the leader dies.
fn check_configuration(cluster: &Owned, more: &str, databases: &[&str], each: usize) {
    let databases: Vec<String> = databases.iter().map(|name| (*name).to_owned()).collect();
    for database in &databases {
        if database != "postgres" {
            cluster.primary().query(&format!("create database {database}")).unwrap();
        }
        let mut sql = Sql::connect_tcp("127.0.0.1", cluster.primary().port(), "postgres", database).unwrap();
        sql.query("create table counted (number int primary key, sum int8)").unwrap();
        sql.query(&format!("insert into counted select a, 0 from generate_series(0, {}) a", 3 * each)).unwrap();
    }
    cluster.wait_caught_up().unwrap();
    let mut group = Group::start(cluster, more);
    let crew = CountingCrew::begin(&group, &databases, each);
    crew.wait_all(&[0, 1, 2], "at the begin");

    group.proxies[2].signal(Signal::STOP);
    let_pass(STANDSTILL);
    crew.wait_all(&[0, 1], "beside a host that stands still");
    group.proxies[2].signal(Signal::CONT);
    crew.wait_all(&[0, 1, 2], "after a host stood still");

    cluster.primary().kill9().unwrap();
    crew.wait_all(&[0, 1, 2], "after the primary died");
    let [new] = primaries(cluster)[..] else { panic!("one primary") };

    let leaders = group.leaders();
    let [leader] = leaders[..] else { panic!("one leader, not {leaders:?}") };
    let others: Vec<usize> = (0..3).filter(|host| *host != leader).collect();
    group.proxies[leader].signal(Signal::KILL);
    group.proxies[leader].wait_end();
    wait_until("another to lead", || group.leaders().iter().any(|host| *host != leader));
    crew.wait_all(&others, "after the leader died");
    group.proxies[leader].crash_and_start();
    wait_until("the dead one to be back", || writes(&group.proxies[leader]));
    crew.wait_all(&[0, 1, 2], "after the leader came back");
    crew.end(new);
    for (host, proxy) in group.proxies.iter().enumerate() {
        let log = proxy.log();
        assert!(!log.contains("has other values"), "the hosts have one configuration: {log}");
        assert!(!log.contains("panic"), "{log}");
        assert!(log.contains("successfully joined the watchdog cluster as standby node"), "host {host} followed: {log}");
    }
}

#[test]
fn cached_answers_of_a_group_show_what_was_written_before_and_after_a_failover() {
    let cluster = servers(2, &[ANY]);
    check_configuration(&cluster, "memory_cache_enabled = on\ncausal_reads = global\n", &["postgres"], 3);
}

#[test]
fn many_clients_of_a_group_share_two_server_connections() {
    let cluster = servers(2, &[ANY]);
    check_configuration(&cluster, "pool_size = 2\nio_method = epoll\n", &["postgres"], 20);
}

#[test]
fn sessions_of_a_group_that_keep_their_server_connections_go_on_after_faults() {
    let cluster = servers(2, &[ANY]);
    check_configuration(&cluster, "pool_mode = session\ncausal_reads = session\n", &["postgres"], 3);
}

#[test]
fn clients_of_several_databases_go_on_over_tls() {
    let signed = Authority::new("group").server();
    let conf = [ANY, ("ssl", "on"), ("ssl_cert_file", "weir.crt"), ("ssl_key_file", "weir.key")];
    let cluster = cluster_with(Options {
        standbys: 2,
        extra_conf: conf.map(|(name, value)| (name.to_string(), value.to_string())).into(),
        extra_files: vec![("weir.crt".into(), signed.cert.into_bytes()), ("weir.key".into(), signed.key.into_bytes())],
        ..Options::default()
    });
    cluster.primary().query(weir_demo::SCHEMA).unwrap();
    check_configuration(&cluster, "backend_sslmode = require\n", &["postgres", "orders", "people", "bills"], 4);
}
