//! Peers that hang: servers in every state of the protocol, clients that never say enough or never read.

use crate::support::faults::{Fault, Network, Toward};
use crate::support::proxy::{Backend, show};
use crate::support::raw::tags;
use crate::support::{Ground, Proxy, Raw, wait_until, wire};
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

/// What a server says from the first byte on, one answer after the other.
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
    /// Says this to whoever has said something, and no more.
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
        assert!(begun.elapsed() < Duration::from_secs(20), "{state}: {:?}", begun.elapsed());
        wait_until("it to be asked and given up", || {
            mute.callers.load(Ordering::SeqCst) > 1 && proxy.nodes("status") == ["up", "down"]
        });
    }
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
        assert!(begun.elapsed() < Duration::from_secs(15), "{state}: {:?}", begun.elapsed());
    }
}

/// As with a direct connection, a statement waits for a server that hangs, unless `query_timeout` says how long; others go on.
#[test]
fn a_server_that_hangs_in_a_statement_is_bounded_by_query_timeout() {
    let ground = Ground::new();
    let standby = &ground.cluster.standbys()[0];
    let network = Network::to(standby.port());
    let backends = [Backend::tcp(ground.cluster.primary().port(), 0), Backend::tcp(network.port(), 1)];
    let proxy = Proxy::spawn(&backends, "query_timeout = 1s\nconnect_timeout = 1000\nsr_check_period = 3600");
    proxy.wait_for_nodes(2);
    let mut other = ground.client(&proxy);
    other.run("begin; select 1");
    for bytes in [3, 5_000] {
        // After the last round's cut the standby may be taken for down, and the primary would answer.
        proxy.wait_for_nodes(2);
        let mut client = ground.client(&proxy);
        client.run("select 1");
        network.set(Toward::Client, Fault::StopAfter(bytes));
        client.send(&wire::query("select repeat('x', 100) from generate_series(1, 1000)"));
        let begun = Instant::now();
        let said = client.until_end();
        assert!(begun.elapsed() < Duration::from_secs(40), "after {bytes} bytes: {:?}", begun.elapsed());
        assert!(!said.iter().any(|m| m.tag == b'C'), "a result that was cut looks whole");
        let last = said.iter().find(|m| m.tag == b'E').map(|m| m.failure().sqlstate);
        assert!(last.is_none() || last.as_deref() == Some("57014") || last.as_deref() == Some("08006"), "{last:?}");
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
            // One that was sent away already is not a fault.
            let _ = client.try_send(&[*byte]);
        }
        assert_eq!(ground.client(&proxy).value("select 1"), "1");
    }
    for client in &mut slow {
        client.bytes_to_end();
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    let mut console = proxy.console();
    wait_until("nobody to be left", || show(&mut console, "pool_processes", "pool_pid").len() == 1);
}

/// Connections that say nothing wait with a bound on their number and their memory.
#[test]
fn thousands_that_never_log_in_cost_little_and_keep_nobody_out() {
    const COUNT: u64 = 3_000;
    const EACH_KB_MAX: u64 = 12;
    let ground = Ground::new();
    let proxy = ground.primary_proxy("authentication_timeout = 60\nmax_client_connections = 10000");
    assert_eq!(ground.client(&proxy).value("select 1"), "1");
    let before_kb = proxy.rss_kb();
    let mut silent = Vec::new();
    for _ in 0..COUNT {
        let mut client = Raw::tcp(proxy.port());
        // Part of a packet, so that it is let in at once.
        client.send(&[0, 0]);
        silent.push(client);
    }
    let accepted = || proxy.metric("clients_accepted_total");
    wait_until("all to be let in", || accepted() >= COUNT);
    assert_eq!(ground.client(&proxy).value("select 2"), "2");
    let each_kb = proxy.rss_kb().saturating_sub(before_kb) / COUNT;
    assert!(each_kb <= EACH_KB_MAX, "{each_kb} kB each");
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
