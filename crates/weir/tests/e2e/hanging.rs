//! Peers that hang: servers in every state of the protocol, clients that never say enough or never read.

use crate::support::faults::{Fault, Network, Toward};
use crate::support::proxy::{Backend, show};
use crate::support::raw::tags;
use crate::support::time::{check_took, check_within};
use crate::support::{Ground, Proxy, Raw, wait_until, wire};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A server made of a script: after so many messages of its login it says no more, and keeps the connection.
struct Mute {
    port: u16,
    callers: Arc<AtomicUsize>,
}

/// A server's messages from the first byte on, one answer after the other.
fn login_script() -> Vec<Vec<u8>> {
    let status = wire::texts(&["server_version", "15.0"]);
    vec![
        wire::message(b'R', &[0, 0, 0, 0]),
        wire::message(b'S', &status),
        wire::message(b'K', &[0, 0, 0, 1, 0, 0, 0, 2]),
        wire::message(b'Z', b"I"),
    ]
}

impl Mute {
    /// Answers the first bytes of a client with this, and says no more.
    fn after(said: Vec<u8>) -> Mute {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let callers = Arc::new(AtomicUsize::new(0));
        let count = callers.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                count.fetch_add(1, Ordering::SeqCst);
                let said = said.clone();
                thread::spawn(move || be_mute(stream, &said));
            }
        });
        Mute { port, callers }
    }
}

fn be_mute(mut stream: TcpStream, said: &[u8]) {
    let mut piece = [0; 4096];
    if !matches!(stream.read(&mut piece), Ok(1..)) || stream.write_all(said).is_err() {
        return;
    }
    // Until the other side gives up.
    while matches!(stream.read(&mut piece), Ok(1..)) {}
    let _ = stream.shutdown(Shutdown::Both);
}

/// The states of a login in which a server can stop, in the middle of a message's header and body among them.
fn states() -> Vec<(&'static str, Vec<u8>)> {
    let script = login_script();
    let until = |count: usize| script[..count].concat();
    vec![
        ("before it says anything", Vec::new()),
        ("in a header", b"R\0".to_vec()),
        ("in a message", b"R\0\0\0\x08\0\0".to_vec()),
        ("in SCRAM", wire::message(b'R', &[&[0, 0, 0, 10][..], b"SCRAM-SHA-256\0\0"].concat())),
        ("after it let us in", until(1)),
        ("among its parameters", until(2)),
        ("before ReadyForQuery", until(3)),
    ]
}

#[test]
fn a_server_that_stops_anywhere_in_a_login_holds_a_read_no_longer_than_connect_timeout() {
    let ground = Ground::new();
    for (state, said) in states().into_iter().step_by(2) {
        let mute = Mute::after(said);
        let backends = [Backend::tcp(ground.cluster.primary().port(), 1), Backend::tcp(mute.port, 1)];
        let more = "connect_timeout = 500\nsr_check_period = 1\nauth_user = ''";
        let proxy = Proxy::spawn(&backends, more);
        let begun = Instant::now();
        let mut client = ground.client(&proxy);
        for number in 0..5 {
            assert_eq!(client.value(&format!("select {number}")), number.to_string(), "{state}");
        }
        // One round of `connect_timeout` to find out, and one for a login that had begun.
        check_within(&format!("five reads, the server stopped {state}"), begun, Duration::from_millis(1_000));
        wait_until("it to be asked and given up", || {
            mute.callers.load(Ordering::SeqCst) > 1 && proxy.nodes("status") == ["up", "down"]
        });
    }
}

/// Half of `connect_timeout` is enough where the primary answers at once: its answer does not wait for that of the one that hangs.
#[test]
fn a_server_that_hangs_does_not_delay_the_finding_of_the_others() {
    let ground = Ground::new();
    let mute = Mute::after(Vec::new());
    let backends = [Backend::tcp(mute.port, 1), Backend::tcp(ground.cluster.primary().port(), 1)];
    let proxy = Proxy::spawn(&backends, "connect_timeout = 20000\nsr_check_period = 1");
    let begun = Instant::now();
    ground.client(&proxy).run("create table found ()");
    check_within("the primary to be found", begun, Duration::ZERO);
    assert!(mute.callers.load(Ordering::SeqCst) > 0);
}

#[test]
fn a_primary_that_stops_in_a_login_gives_a_clear_error_in_time() {
    // Without a password of the user Weir asks him for the proof that the server wants.
    for (state, said) in states().into_iter().filter(|(state, _)| *state != "in SCRAM") {
        let mute = Mute::after(said);
        let more = "connect_timeout = 300\npool_wait_timeout = 1\nauthentication_timeout = 20";
        let proxy = Proxy::spawn(&[Backend::tcp(mute.port, 1)], more);
        let begun = Instant::now();
        let failure = Raw::tcp(proxy.port()).log_in("postgres", "postgres", &[]).unwrap_err();
        assert!(["57P03", "08001", "08006", "53300"].contains(&failure.sqlstate.as_str()), "{state}: {failure:?}");
        check_within(&format!("an error, the primary stopped {state}"), begun, Duration::from_millis(1_300));
    }
}

/// As with a direct connection, a statement waits for a server that hangs, unless `query_timeout` says how long; others go on.
#[test]
fn a_server_that_hangs_in_a_statement_is_bounded_by_query_timeout() {
    let ground = Ground::new();
    let standby = &ground.cluster.standbys()[0];
    let network = Network::to(standby.port());
    let backends = [Backend::tcp(ground.cluster.primary().port(), 0), Backend::tcp(network.port(), 1)];
    // Long before the standby is given up, after which its reads run elsewhere.
    let proxy = Proxy::spawn(&backends, "query_timeout = 1s\nconnect_timeout = 30s\nsr_check_period = 3600");
    proxy.wait_for_nodes(2);
    let mut other = ground.client(&proxy);
    other.run("begin; select 1");
    // Within a row nothing can be said any more: the connection ends.
    for (bytes, sqlstate) in [(3, Some("57014")), (5_000, None)] {
        // After the last round's cut the standby may be taken for down, and the primary would answer.
        proxy.wait_for_nodes(2);
        let mut client = ground.client(&proxy);
        wait_until("reads to go to the standby", || client.value("select inet_server_port()") == standby.port().to_string());
        network.set(Toward::Client, Fault::StopAfter(bytes));
        client.send(&wire::query("select repeat('x', 100) from generate_series(1, 1000)"));
        let begun = Instant::now();
        let said = client.until_end();
        check_within(&format!("the end after {bytes} bytes"), begun, Duration::from_secs(1) + OBEY_LIMIT);
        assert!(!said.iter().any(|m| m.tag == b'C'), "a result that was cut looks whole");
        let last = said.iter().find(|m| m.tag == b'E').map(|m| m.failure().sqlstate);
        assert_eq!(last.as_deref(), sqlstate, "after {bytes} bytes: {said:?}");
        assert_eq!(other.value("select 2"), "2");
        network.set(Toward::Client, Fault::None);
        network.cut();
    }
}

#[test]
fn logins_of_a_byte_a_second_end_in_time_and_others_get_in() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("authentication_timeout = 2");
    let packet = wire::startup(wire::V3_0, &[("user", "postgres"), ("database", &ground.database)]);
    let mut slow: Vec<Raw> = (0..50).map(|_| Raw::tcp(proxy.port())).collect();
    let begun = Instant::now();
    for byte in &packet[..4] {
        for client in &mut slow {
            // A client that was sent away already is not a fault.
            let _ = client.try_send(&[*byte]);
        }
        assert_eq!(ground.client(&proxy).value("select 1"), "1");
    }
    for client in &mut slow {
        client.bytes_to_end();
    }
    check_within("fifty slow logins to end", begun, Duration::from_secs(2));
    let mut console = proxy.console();
    wait_until("nobody to be left", || show(&mut console, "pool_processes", "pool_pid").len() == 1);
}

/// Connections that say nothing wait with a bound on their number and their memory, and not for ever.
#[test]
fn ten_thousand_that_never_log_in_cost_little_and_keep_nobody_out() {
    const EACH_KB_MAX: u64 = 12;
    let limits = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits }).unwrap();
    // Each is a descriptor here and one in the proxy; other tests need some too.
    let count = limits.maximum.map_or(10_000, |maximum| maximum.saturating_sub(2_000).min(10_000));
    let ground = Ground::new();
    let more = format!("authentication_timeout = 40\nmax_client_connections = {}", count + 100);
    let proxy = ground.primary_proxy(&more);
    assert_eq!(ground.client(&proxy).value("select 1"), "1");
    let before_kb = proxy.rss_kb();
    let accepted = || proxy.metric("clients_accepted_total");
    let (begun, before) = (Instant::now(), accepted());
    let mut silent = Vec::new();
    for number in 0..count {
        let mut client = Raw::tcp(proxy.port());
        // Part of a packet, so that it is let in at once.
        client.send(&[0, 0]);
        silent.push(client);
        if number % 1_000 == 0 {
            assert_eq!(ground.client(&proxy).value("select 2"), "2", "after {number}");
        }
    }
    wait_until("all to be let in", || accepted() >= before + count);
    let each_kb = proxy.rss_kb().saturating_sub(before_kb) / count;
    assert!(each_kb <= EACH_KB_MAX, "{each_kb} kB each");
    assert_eq!(ground.client(&proxy).value("select 3"), "3");
    for client in &mut silent {
        client.bytes_to_end();
    }
    // They were let in over some time, and are sent away one after the other.
    check_took("ten thousand to be sent away", begun, Duration::from_secs(100));
    assert_eq!(ground.client(&proxy).value("select 4"), "4");
}

/// The result stays in the server and in the buffers of the system; `query_timeout` frees the server connection.
#[test]
fn a_client_that_never_reads_its_result_costs_no_memory_and_loses_its_connection_in_time() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1\nquery_timeout = 1s\npool_wait_timeout = 60");
    let mut greedy = Raw::tcp_with_receive_buffer(proxy.port(), 4096).log_in("postgres", &ground.database, &[]).unwrap();
    greedy.run("select 1");
    let before_kb = proxy.rss_kb();
    greedy.send(&wire::query("select repeat('x', 1000) from generate_series(1, 1000000)"));
    let mut other = ground.client(&proxy);
    let growth_kb = proxy.rss_kb().saturating_sub(before_kb);
    assert!(growth_kb < 8_000, "{growth_kb} kB");
    // It gets the only connection once the one that does not read has lost it.
    assert_eq!(tags(&other.query("select 2")), "TDCZ");
}

/// The primary behind a network that can stall; a client of another database shows that nobody else is disturbed.
struct Stage {
    ground: Ground,
    network: Network,
    proxy: Proxy,
}

/// A server that does not obey a cancel request either has 10 s for it, before the session ends.
const OBEY_LIMIT: Duration = Duration::from_secs(10);

impl Stage {
    fn new(more: &str) -> Stage {
        let ground = Ground::new();
        ground.prepare("create table t (a int)");
        let network = Network::to(ground.cluster.primary().port());
        let more = format!("query_timeout = 1s\nconnect_timeout = 3000\npool_wait_timeout = 5\nworker_threads = 1\n{more}");
        let proxy = Proxy::spawn(&[Backend::tcp(network.port(), 1)], &more);
        proxy.wait_for_nodes(1);
        Stage { ground, network, proxy }
    }

    fn client(&self) -> Raw {
        self.ground.client(&self.proxy)
    }

    /// A user who was not there before has no server connection that hangs.
    fn check_others(&self, what: &str) {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("anyone_{}", NEXT.fetch_add(1, Ordering::SeqCst));
        self.ground.cluster.primary().query(&format!("create role {name} login")).unwrap();
        let begun = Instant::now();
        let mut other = Raw::tcp(self.proxy.port()).log_in(&name, "postgres", &[]).unwrap();
        assert_eq!(other.value("select 1"), "1", "{what}");
        check_within(&format!("another client {what}"), begun, Duration::ZERO);
    }

    /// The client is told why its statement ended, in time.
    fn check_ended(&self, what: &str, client: &mut Raw, since: Instant) {
        let said = client.until_end();
        let failure = said.iter().rfind(|message| message.tag == b'E').map(|message| message.failure());
        let failure = failure.unwrap_or_else(|| panic!("{what}: no error in {said:?}"));
        assert_eq!(failure.sqlstate, "57014", "{what}: {failure:?}");
        assert!(failure.message.contains("query_timeout") && failure.message.contains("did not obey"), "{what}: {failure:?}");
        check_within(what, since, Duration::from_secs(1) + OBEY_LIMIT);
    }
}

#[test]
fn a_server_that_hangs_in_any_message_of_a_transaction_is_left_in_time() {
    let stage = Stage::new("pool_size = 20");
    let states: Vec<(&str, Vec<u8>)> = vec![
        ("a query", wire::query("select 1")),
        ("a Parse", [wire::parse("x", "select 1"), wire::sync()].concat()),
        ("a Describe", [wire::describe(b'S', "s"), wire::sync()].concat()),
        ("a Bind", [wire::bind("", "s", &[]), wire::sync()].concat()),
        ("an Execute", [wire::run("s", &[]), wire::sync()].concat()),
        ("a Close", [wire::close(b'S', "s"), wire::sync()].concat()),
        ("a Sync", wire::sync()),
        ("a function call", wire::function_call(1, &[])),
        ("the begin of a copy in", wire::query("copy t from stdin")),
        ("a copy out", wire::query("copy t to stdout")),
        ("a commit", wire::query("commit")),
        ("a listen", wire::query("listen somewhere")),
        ("a prepare", wire::query("prepare p as select 1")),
    ];
    let mut clients: Vec<Raw> = states
        .iter()
        .map(|_| {
            let mut client = stage.client();
            client.send(&[wire::parse("s", "select a from t"), wire::sync()].concat());
            assert_eq!(client.tags(), "1Z");
            client.run("begin");
            client.run("lock table t in row share mode");
            client
        })
        .collect();
    let mut copying = stage.client();
    copying.run("begin");
    copying.send(&wire::query("copy t from stdin"));
    assert_eq!(copying.read().tag, b'G');
    stage.network.stall_present(&[Toward::Server, Toward::Client]);
    let since = Instant::now();
    for ((_, bytes), client) in states.iter().zip(&mut clients) {
        client.send(bytes);
    }
    copying.send(&[wire::copy_data(b"1\n"), wire::copy_done()].concat());
    stage.check_others("while many hang");
    for ((state, _), client) in states.iter().zip(&mut clients) {
        stage.check_ended(state, client, since);
    }
    stage.check_ended("the middle of a copy in", &mut copying, since);
    stage.check_others("when they have ended");
    // The servers' processes held their locks until their connections were closed.
    stage.network.go_on();
    assert_eq!(stage.client().value("select count(*) from t"), "0");
}

/// Weir's own messages ahead of a statement count as the statement.
#[test]
fn a_server_that_hangs_while_it_is_brought_to_a_session_is_left_in_time() {
    let stage = Stage::new("pool_size = 1");
    let sets =
        [("settings", "set work_mem = '7MB'"), ("a role", "set role pg_monitor"), ("a statement", "prepare p as select 1")];
    for (what, set) in sets {
        let (mut client, mut last) = (stage.client(), stage.client());
        client.run(set);
        last.run("select 1");
        stage.network.stall_present(&[Toward::Server, Toward::Client]);
        client.send(&wire::query("select 2"));
        let since = Instant::now();
        stage.check_others(what);
        stage.check_ended(what, &mut client, since);
        stage.network.go_on();
        assert_eq!(last.value("select 3"), "3", "{what}: the only connection is free again");
    }
}

#[test]
fn a_server_that_hangs_when_it_is_asked_what_a_session_left_holds_its_next_statement_no_longer_than_that_may_take() {
    let stage = Stage::new("pool_size = 2");
    stage.ground.prepare(
        "create function slow() returns int language plpgsql as $$ begin perform pg_sleep(0.5); set work_mem = '9MB'; return 1; end $$",
    );
    for leaves in [true, false] {
        check_question(&stage, leaves);
    }
}

/// A session whose client `leaves` meanwhile must not hold its connection either.
fn check_question(stage: &Stage, leaves: bool) {
    let mut client = stage.client();
    client.send(&wire::query("select slow()"));
    let sleeps = "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and query = 'select slow()'";
    let mut direct = stage.ground.direct();
    wait_until("the function to run", || direct.value(sleeps) != "0");
    stage.network.stall_present(&[Toward::Server]);
    assert_eq!(tags(&client.until_ready()), "TDCZ", "its own answer comes");
    if leaves {
        drop(client);
        let in_use = || show(&mut stage.proxy.console(), "pool_processes", "database").contains(&stage.ground.database);
        wait_until("its connection to be given up", || !in_use());
        return stage.network.go_on();
    }
    client.send(&wire::query("select 2"));
    let since = Instant::now();
    stage.check_others("while a question is not answered");
    stage.check_ended("the question", &mut client, since);
    stage.network.go_on();
}

#[test]
fn a_server_that_hangs_in_its_reset_or_takes_no_cancel_request_holds_nobody_up() {
    let stage = Stage::new("pool_size = 1\npool_wait_timeout = 40");
    let mut messy = stage.client();
    messy.run("create temp table mine (a int)");
    let is_kept = || show(&mut stage.proxy.console(), "pool_pools", "status").iter().any(|status| status.contains("temporary"));
    wait_until("its connection to be kept", is_kept);
    stage.network.stall_present(&[Toward::Server, Toward::Client]);
    drop(messy);
    stage.check_others("in a reset");
    assert_eq!(stage.client().value("select 1"), "1", "the only connection is closed and opened again");
    assert!(stage.proxy.log().contains("closed instead of reset"));
    stage.network.go_on();

    let mut client = stage.client();
    client.send(&wire::query("select pg_sleep(0.7)"));
    let mut direct = stage.ground.direct();
    let sleeps = "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and query = 'select pg_sleep(0.7)'";
    wait_until("it to run", || direct.value(sleeps) == "1");
    stage.network.stall_new();
    Raw::tcp(stage.proxy.port()).send(&wire::cancel(client.pid, &client.key));
    assert_eq!(tags(&client.until_ready()), "TDCZ", "the request does not arrive");
    let since = Instant::now();
    assert_eq!(client.value("select 2"), "2", "and holds the next statement as long as it may arrive");
    check_within("a statement behind a cancel request that hangs", since, Duration::from_secs(3));
    stage.network.go_on();
    wait_until("what was held up to be gone", || Raw::tcp(stage.proxy.port()).log_in("postgres", "postgres", &[]).is_ok());
}

/// The connections over which Weir looks after a server count as little as any: the server is taken for down in time, and comes back.
#[test]
fn a_standby_that_hangs_under_its_health_check_is_left_and_comes_back() {
    let ground = Ground::new();
    let network = Network::to(ground.cluster.standbys()[0].port());
    let backends = [Backend::tcp(ground.cluster.primary().port(), 1), Backend::tcp(network.port(), 1)];
    let proxy = Proxy::spawn(&backends, "sr_check_period = 1\nconnect_timeout = 500\nquery_timeout = 2s");
    proxy.wait_for_nodes(2);
    let mut client = ground.client(&proxy);
    network.stall_all();
    wait_until("it to be taken for down", || proxy.nodes("status") == ["up", "down"]);
    for number in 0..5 {
        assert_eq!(client.value(&format!("select {number}")), number.to_string());
    }
    network.go_on();
    wait_until("it to be up again", || proxy.nodes("status") == ["up", "up"]);
}
