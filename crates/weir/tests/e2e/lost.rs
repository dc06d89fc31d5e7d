//! Server connections lost under transactions: harmless statements run again, and no statement that may have taken effect is
//! told to have failed.

use crate::support::faults::{Fault, Network, Toward};
use crate::support::ground::{LIMIT, cluster_with};
use crate::support::proxy::{Backend, show};
use crate::support::raw::Message;
use crate::support::{Ground, Proxy, Raw, wait_until, wire};
use rustix::process::Signal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use weir_demo::{Crew, Load, Mode, Options, Server};

/// A server behind a network that can be broken.
pub(super) struct Stage {
    pub(super) ground: Ground,
    pub(super) network: Network,
    pub(super) proxy: Proxy,
    /// The server behind the network is this one of the cluster.
    server: usize,
}

impl Stage {
    /// The primary alone.
    fn primary() -> Stage {
        Stage::primary_with("")
    }

    pub(super) fn primary_with(more: &str) -> Stage {
        let ground = Ground::new();
        ground.prepare("create table t (a int)");
        let network = Network::to(ground.cluster.primary().port());
        let proxy = Proxy::spawn(&[Backend::tcp(network.port(), 1)], &format!("worker_threads = 1\n{more}"));
        proxy.wait_for_nodes(1);
        Stage { ground, network, proxy, server: 0 }
    }

    /// The primary, and a standby that takes all reads.
    fn standby() -> Stage {
        Stage::standby_with("")
    }

    fn standby_with(more: &str) -> Stage {
        let ground = Ground::new();
        ground.prepare("create table t (a int)");
        let server = &ground.cluster.standbys()[0];
        let network = Network::to(server.port());
        let backends = [Backend::tcp(ground.cluster.primary().port(), 0), Backend::tcp(network.port(), 1)];
        let proxy = Proxy::spawn(&backends, &format!("worker_threads = 1\ncausal_reads = off\n{more}"));
        proxy.wait_for_nodes(2);
        Stage { ground, network, proxy, server: 1 }
    }

    pub(super) fn client(&self) -> Raw {
        self.ground.client(&self.proxy)
    }

    fn server(&self) -> &Server {
        &self.ground.cluster.servers()[self.server]
    }

    /// Ends the server's processes that serve this test. Weir does not hear of it before the network goes on, and nothing it says arrives.
    fn end_unheard(&self) {
        self.network.set(Toward::Server, Fault::BlackHole);
        self.network.stall_present(&[Toward::Client]);
        let database = &self.ground.database;
        let kill = format!("select pg_terminate_backend(pid) from pg_stat_activity where datname = '{database}'");
        wait_until("the server's processes to end", || self.server().query(&kill).unwrap().is_empty());
    }

    /// Waits until a statement is on its way, then lets the server's answer reach Weir. The console was opened before: a login may ask the server.
    fn go_on(&self, console: &mut Raw) {
        wait_until("the statement to be sent", || {
            show(console, "pool_processes", "status").iter().any(|status| status == "Execute command")
        });
        self.network.go_on();
        self.network.set(Toward::Server, Fault::None);
    }

    /// A transaction's first write is made, and its server lost before anything of it is heard. The server's answers must be
    /// stalled.
    pub(super) fn lose_a_write(&self, client: &mut Raw) {
        client.run("begin");
        client.send(&wire::query("insert into t values (1)"));
        let mut direct = self.ground.direct();
        let text = "select count(*) from pg_stat_activity \
            where datname = current_database() and state = 'idle in transaction' and query like 'insert%'";
        wait_until("the write to be made", || direct.value(text) == "1");
        self.network.cut();
        assert_eq!(seen(&client.until_ready()), ["ERROR 40001", "ZE"]);
    }
}

/// Tags, with errors and statuses spelled out.
pub(super) fn seen(messages: &[Message]) -> Vec<String> {
    let one = |message: &Message| match message.tag {
        b'E' => format!("{} {}", message.failure().severity, message.failure().sqlstate),
        b'Z' => format!("Z{}", char::from(message.body[0])),
        b'C' => message.text(),
        tag => char::from(tag).to_string(),
    };
    messages.iter().map(one).collect()
}

/// A server that ended before it saw the BEGIN has done nothing.
#[test]
fn a_server_that_went_down_before_it_began_a_transaction_is_not_noticed() {
    for stage in [Stage::primary(), Stage::standby()] {
        let mut console = stage.proxy.console();
        for (begin, first, expected) in [
            ("begin", "select count(*) from t", vec!["T", "D", "SELECT 1", "ZT"]),
            ("begin", "insert into t values (1)", vec!["INSERT 0 1", "ZT"]),
            ("begin isolation level repeatable read read only", "select count(*) from t", vec!["T", "D", "SELECT 1", "ZT"]),
        ] {
            if stage.server == 1 && first.starts_with("insert") {
                continue;
            }
            let mut client = stage.client();
            client.run("select 1");
            stage.end_unheard();
            assert_eq!(seen(&client.query(begin)), ["BEGIN", "ZT"]);
            client.send(&wire::query(first));
            stage.go_on(&mut console);
            assert_eq!(seen(&client.until_ready()), expected, "{begin} {first}");
            assert_eq!(seen(&client.query("rollback")), ["ROLLBACK", "ZI"]);
            // The transaction in one pipeline.
            stage.end_unheard();
            client.send(
                &[wire::unnamed(begin, &[]), wire::unnamed(first, &[]), wire::unnamed("commit", &[]), wire::sync()].concat(),
            );
            stage.go_on(&mut console);
            let told = seen(&client.until_ready());
            assert_eq!(told.last().unwrap(), "ZI", "{begin} {first}: {told:?}");
            assert_eq!(told.iter().filter(|word| word.starts_with("COMMIT")).count(), 1, "{begin} {first}: {told:?}");
        }
        let written = if stage.server == 0 { "1" } else { "0" };
        assert_eq!(stage.ground.direct().value("select count(*) from t"), written, "each write happened once");
    }
}

#[test]
fn a_standby_that_goes_down_in_the_first_statement_of_a_transaction_is_not_noticed() {
    let stage = Stage::standby();
    let mut client = stage.client();
    client.run("select 1");
    client.run("begin isolation level repeatable read read only");
    stage.network.stall_present(&[Toward::Client]);
    client.send(&wire::query("select count(*) from t"));
    let mut console = stage.proxy.console();
    wait_until("the statement to be sent", || {
        show(&mut console, "pool_processes", "status").iter().any(|status| status == "Execute command")
    });
    stage.network.cut();
    assert_eq!(seen(&client.until_ready()), ["T", "D", "SELECT 1", "ZT"]);
    let port = client.value("select inet_server_port()");
    assert_eq!(client.value("select inet_server_port()"), port, "its transaction goes on on one server");
    assert_eq!(client.value("show transaction_isolation"), "repeatable read");
    client.run("commit");
}

/// Weir finds out by sending the second read, of which no event tells any more: it must not wait for one.
#[test]
fn a_read_sent_over_a_connection_that_has_just_broken_is_answered_elsewhere() {
    for io in ["epoll", "auto"] {
        let stage = Stage::standby_with(&format!("io_method = {io}"));
        let mut client = stage.client();
        for turn in 0..5 {
            wait_until("reads on the standby", || {
                // Connections of Weir's own come and go there, so that their number tells nothing.
                client.run("select count(*) from t");
                client.value("select inet_server_port()") == stage.server().port().to_string()
            });
            stage.network.stall_present(&[Toward::Client]);
            client.send(&wire::query("select count(*) from t"));
            let mut console = stage.proxy.console();
            wait_until("the statement to be sent", || {
                show(&mut console, "pool_processes", "status").iter().any(|status| status == "Execute command")
            });
            stage.proxy.signal(Signal::STOP);
            wait_until("the connection to be reset", || {
                // A probe's connection may be made just now.
                stage.network.cut();
                stage.network.connections() == 0
            });
            client.send(&wire::query("select count(*) + 1 from t"));
            stage.network.go_on();
            stage.proxy.signal(Signal::CONT);
            assert_eq!(seen(&client.until_ready()), ["T", "D", "SELECT 1", "ZI"], "{io} {turn}");
            assert_eq!(seen(&client.until_ready()), ["T", "D", "SELECT 1", "ZI"], "{io} {turn}");
        }
    }
}

/// Only the server knows if a transaction was committed whose COMMIT it may have got.
#[test]
fn a_transaction_that_may_be_committed_is_not_known_to_be_and_its_session_goes_on() {
    let simple = [wire::query("begin"), wire::query("insert into t values (1)"), wire::query("commit")].concat();
    let extended = ["begin", "insert into t values (1)", "commit"].map(|text| wire::unnamed(text, &[])).concat();
    let extended = [extended, wire::sync()].concat();
    let segments = ["begin", "insert into t values (1)", "commit"];
    let segments = segments.map(|text| [wire::unnamed(text, &[]), wire::sync()].concat()).concat();
    let one = wire::query("begin; insert into t values (1); commit");
    let stage = Stage::primary();
    // Of several statements in one string a server that refuses one leaves the transaction failed.
    let stories = [
        ("simple", simple, 3, "ZI"),
        ("extended", extended, 1, "ZI"),
        ("segments", segments, 3, "ZI"),
        ("one string", one, 1, "ZE"),
    ];
    for (turn, (what, bytes, readies, last)) in stories.into_iter().enumerate() {
        let mut client = stage.client();
        client.run("select 1");
        stage.network.stall_present(&[Toward::Client]);
        client.send(&bytes);
        let mut direct = stage.ground.direct();
        wait_until("the transaction to be committed", || direct.value("select count(*) from t") == (turn + 1).to_string());
        stage.network.cut();
        let told: Vec<String> = (0..readies).flat_map(|_| seen(&client.until_ready())).collect();
        assert_eq!(told[told.len() - 2..], ["ERROR 08007", last], "{what}: {told:?}");
        assert!(told.iter().all(|word| !word.starts_with("ERROR") || word == "ERROR 08007"), "{what}: {told:?}");
        stage.network.go_on();
        client.run("rollback");
        assert_eq!(client.value("select count(*) from t"), (turn + 1).to_string(), "{what}");
    }
}

#[test]
fn a_transaction_that_cannot_be_committed_has_failed_when_its_server_is_lost() {
    let stage = Stage::primary();
    let mut client = stage.client();
    client.run("select 1");
    stage.network.stall_present(&[Toward::Client]);
    stage.lose_a_write(&mut client);
    assert_eq!(client.error("select 1").sqlstate, "25P02");
    assert_eq!(seen(&client.query("commit")), ["ROLLBACK", "ZI"]);
    assert_eq!(client.value("select count(*) from t"), "0");
}

/// Rounds of a client while standbys come and go: statements, and true if the whole is one snapshot.
const ROUNDS: &[&[&str]] = &[
    &["begin", "select count(*) from t", "select sum(a) from t", "commit"],
    &["begin read only", "select count(*) from t", "select sum(a) from t", "select count(*) from t", "commit"],
    &["begin", "select count(*) from t", "insert into t values (1)", "select count(*) from t", "rollback"],
    &["begin isolation level repeatable read read only", "select count(*) from t", "commit"],
    &["select count(*) from t"],
    &["begin", "select 1 / a from t", "rollback"],
];

/// Runs them until it is over, each way of sending in turn. A transaction that lives on a standby may lose it between two of its statements, and
/// nothing else may be lost.
fn run_rounds(port: u16, is_over: &AtomicBool) -> u32 {
    let log_in = || Raw::tcp(port).log_in("postgres", "postgres", &[]).unwrap();
    let (mut client, mut count) = (log_in(), 0);
    while !is_over.load(Ordering::SeqCst) {
        for (number, round) in ROUNDS.iter().enumerate() {
            count += 1;
            let is_one = round[0].contains("repeatable");
            let expects_error = number == ROUNDS.len() - 1;
            let pipelined = !is_one && count % 3 == 0;
            if pipelined {
                client
                    .send(&round.iter().flat_map(|text| [wire::unnamed(text, &[]), wire::sync()].concat()).collect::<Vec<u8>>());
            }
            for text in *round {
                if !pipelined {
                    client.send(&if count % 3 == 1 {
                        wire::query(text)
                    } else {
                        [wire::unnamed(text, &[]), wire::sync()].concat()
                    });
                }
                if is_one && *text == "commit" {
                    let is_lost = loop {
                        match client.try_read() {
                            Ok(Some(message)) if message.tag == b'Z' => break false,
                            Ok(Some(message)) if message.tag != b'E' => {}
                            Ok(_) | Err(_) => break true,
                        }
                    };
                    if is_lost {
                        client = log_in();
                    }
                    continue;
                }
                let messages = client.until_ready();
                let failure = messages.iter().find(|message| message.tag == b'E').map(Message::failure);
                let is_expected = expects_error && text.contains('/');
                match failure {
                    Some(failure) => assert!(is_expected && failure.sqlstate == "22012", "{text} in {round:?}: {failure:?}"),
                    None => assert!(!is_expected, "{text}"),
                }
            }
        }
    }
    count
}

#[test]
fn standbys_that_come_and_go_cost_no_statement_that_may_run_elsewhere() {
    let cluster = crate::support::ground::cluster(2);
    cluster.primary().query("create table t (a int)").unwrap();
    cluster.primary().query("insert into t values (0)").unwrap();
    cluster.wait_caught_up().unwrap();
    let proxy = Proxy::start(&cluster, "");
    let is_over = AtomicBool::new(false);
    let started = Instant::now();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(|| run_rounds(proxy.port(), &is_over))).collect();
        let story = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for turn in 0.. {
                let standby = &cluster.standbys()[turn % 2];
                match turn % 3 {
                    0 => standby.stop(Mode::Fast).unwrap(),
                    1 => standby.stop(Mode::Immediate).unwrap(),
                    _ => standby.kill9().unwrap(),
                }
                standby.start().unwrap();
                // Until some had to run again; that hangs on the moment.
                let is_enough = started.elapsed() > Duration::from_secs(6) && proxy.metric("reads_repeated_total") > 0;
                if is_enough || started.elapsed() > LIMIT || clients.iter().any(|client| client.is_finished()) {
                    break;
                }
            }
        }));
        is_over.store(true, Ordering::SeqCst);
        let rounds: u32 = clients.into_iter().map(|client| client.join().unwrap()).sum();
        story.unwrap();
        assert!(rounds > 50, "{rounds} rounds");
    });
    assert!(proxy.metric("reads_repeated_total") > 0, "some had to run again");
}

/// Server connections of a server that is killed end one after the other. A read that moves from one to the next loses several of them, in about one
/// round of two.
#[test]
fn reads_on_a_primary_that_is_killed_run_elsewhere_however_many_connections_they_lose() {
    const ROUNDS: usize = 4;
    let cluster = cluster_with(Options { standbys: 1, ..Options::default() });
    cluster.primary().query(weir_demo::SCHEMA).unwrap();
    cluster.wait_caught_up().unwrap();
    let backends = [Backend::tcp(cluster.primary().port(), 9), Backend::tcp(cluster.standbys()[0].port(), 1)];
    let proxy =
        Proxy::spawn(&backends, "causal_reads = off\nfailover_mode = off\nnum_init_children = 100\nhealth_check_period = 1\n");
    proxy.wait_for_nodes(2);
    for _ in 0..ROUNDS {
        let load = Load::begin(proxy.port(), Crew { readers: 40, ..Crew::default() }).unwrap();
        let more = |count: usize| {
            let before = load.noted().reads;
            wait_until("reads to go on", || load.noted().reads > before + count);
        };
        more(2000);
        cluster.primary().kill9().unwrap();
        more(500);
        let noted = load.end();
        assert_eq!(noted.failed_reads, []);
        cluster.primary().start().unwrap();
        proxy.wait_for_nodes(2);
    }
}
