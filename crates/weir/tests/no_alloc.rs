//! A statement that was seen before, for which a server connection is at rest, costs the proxy no allocation.
//!
//! The proxy runs in this process, so that its allocations can be counted; those of all threads are, and the client here makes none.
//! One test only: signals belong to the process, and so does the counter.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use rustix::process::{Signal, getpid, kill_process};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;
use weir::process::supervisor;
use weir::runtime::operator_files::OperatorFiles;
use weir_demo::{Cluster, Options, ReservedPort, wait_until};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Statements in a row that must cost nothing. The proxy works for itself about twice a second, and a row must find room between:
/// on a slow machine a statement takes half a millisecond.
const STATEMENTS: usize = 200;
/// Rows that must cost nothing. A statement that allocates once in a hundred times leaves hardly one.
const CLEAN_ROWS: usize = 5;
/// Rows until then. The proxy's start (its catalog, its first look at the servers) may take the first of them.
const ROWS_MAX: usize = 500;
/// Statements before the first row: buffers and tables grow to their size.
const WARM_UP: usize = 200;
const SHARDED: &str = "parallel_mode = on\n";
/// An exchange that takes longer fails the test.
const READ_LIMIT: Duration = Duration::from_secs(30);

#[test]
fn a_seen_statement_costs_no_allocation() {
    let cluster = Cluster::start(Options { standbys: 1, ..Options::default() }).unwrap();
    cluster.primary().query("create table t (a int primary key, b int); insert into t values (1, 0)").unwrap();
    cluster.wait_caught_up().unwrap();
    let mut bad = Vec::new();
    // The last one has the table sharded, which it stays.
    for extra in ["", "memory_cache_enabled = on\n", SHARDED] {
        let measured = measure_with(&cluster, extra);
        bad.extend(measured.into_iter().filter(|(_, fewest)| *fewest > 0).map(|(name, fewest)| (extra, name, fewest)));
    }
    assert!(bad.is_empty(), "allocations in {STATEMENTS} statements, in the best {CLEAN_ROWS} of {ROWS_MAX} rows: {bad:?}");
}

/// Runs the proxy in this process as long as the measuring takes.
fn measure_with(cluster: &Cluster, extra: &str) -> Vec<(String, usize)> {
    let port = ReservedPort::any().unwrap();
    let file = cluster.dir().join("pgpool.conf");
    std::fs::write(&file, configuration(cluster, port.number()) + extra).unwrap();
    let is_sharded = extra == SHARDED;
    if is_sharded {
        shard_table(cluster, &file);
    }
    let files = OperatorFiles { config: Some(file), ..OperatorFiles::default() };
    let config = files.read().config.expect("the configuration is right");
    let (tell, ready) = channel();
    let proxy = thread::Builder::new().name("proxy".into());
    let proxy = proxy
        .spawn(move || supervisor::run(&files, config, supervisor::StartedBy::Foreground, |_| tell.send(()).unwrap()))
        .unwrap();
    ready.recv().unwrap();
    let measured = thread::spawn(move || measure_all(port.number(), is_sharded)).join();
    kill_process(getpid(), Signal::INT).unwrap();
    proxy.join().unwrap().unwrap();
    measured.unwrap()
}

/// The table lies on one shard, whose place the key's value says.
fn shard_table(cluster: &Cluster, file: &Path) {
    cluster.primary().query("truncate t").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let status = command.args(["shard", "table", "postgres", "public.t", "--key", "a", "--hash", "2", "-f"]).arg(file).status();
    assert!(status.unwrap().success());
    cluster.primary().query("insert into t values (1, 0)").unwrap();
}

/// Questions to the servers are as rare as may be: their cost is no statement's.
fn configuration(cluster: &Cluster, port: u16) -> String {
    let folder = cluster.dir().display();
    let mut text = format!(
        "listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = '{folder}'\npid_file_name = '{folder}/weir.pid'\n\
         sr_check_user = 'postgres'\nsr_check_period = 0\ncausal_sample_period = 10s\nworker_threads = 1\nstatement_level_load_balance = on\n\
         statement_statistics_max = 100\n"
    );
    for (at, server) in cluster.servers().iter().enumerate() {
        let (port, weight) = (server.port(), u8::from(at > 0));
        let _ = write!(text, "backend_hostname{at} = '127.0.0.1'\nbackend_port{at} = {port}\nbackend_weight{at} = {weight}\n");
    }
    text
}

fn measure_all(port: u16, is_sharded: bool) -> Vec<(String, usize)> {
    let mut client = Client::log_in(port);
    if is_sharded {
        client.wait_refused("update t set b = 0");
    }
    let mut other = Client::log_in(port);
    let read = "select b from t where a = 1";
    let write = "update t set b = b + 1 where a = 1";
    let run_read = [bind("s"), execute(), sync()].concat();
    let run_write = [bind("w"), execute(), sync()].concat();
    let by_parameter = "select b from t where a = $1";
    client.exchange(&[parse("s", read), parse("p", by_parameter), parse("w", write), sync()].concat());
    let transaction = [query("begin"), query(write), query("commit")];
    let cases: Vec<(&str, Vec<Vec<u8>>)> = vec![
        ("a read on a standby", vec![query(read)]),
        ("a write on the primary", vec![query(write)]),
        ("reads that differ in their numbers", (0..4).map(|n| query(&format!("select b from t where a = {n}"))).collect()),
        ("a transaction", transaction.to_vec()),
        ("a transaction that only reads", vec![query("begin"), query(read), query("commit")]),
        (
            "a begin, a read and an end in pipelines",
            vec![
                [parse("", "begin"), bind(""), execute(), run_read.clone()].concat(),
                [parse("", "commit"), bind(""), execute(), sync()].concat(),
            ],
        ),
        ("a named read", vec![run_read.clone()]),
        ("a named read by a bound value", vec![[bind_value("p", "1"), execute(), sync()].concat()]),
        ("a named write", vec![run_write]),
        ("an unnamed read", vec![[parse("", read), bind(""), execute(), sync()].concat()]),
        ("an unnamed write", vec![[parse("", write), bind(""), execute(), sync()].concat()]),
        ("a pipeline of ten", vec![[run_read[..run_read.len() - 5].repeat(10), sync()].concat()]),
        ("a failing statement", vec![query("select 1/0")]),
    ];
    let mut measured = Vec::new();
    for (name, messages) in &cases {
        for at in 0..WARM_UP {
            client.exchange(&messages[at % messages.len()]);
            // Another client uses the same connections in between.
            other.exchange(&query(read));
        }
        client.finish(messages);
        measured.push((name.to_string(), fewest(&mut client, messages)));
    }
    measured
}

/// The allocations of the worst of the rows that took the fewest, of which so many must be clean.
fn fewest(client: &mut Client, messages: &[Vec<u8>]) -> usize {
    let mut best = Vec::with_capacity(ROWS_MAX);
    for _ in 0..ROWS_MAX {
        best.push(row(client, messages));
        best.sort_unstable();
        if best.get(CLEAN_ROWS - 1) == Some(&0) {
            break;
        }
    }
    best[CLEAN_ROWS - 1]
}

/// Allocations of all threads while so many statements run.
fn row(client: &mut Client, messages: &[Vec<u8>]) -> usize {
    let before = ALLOCATOR.stats();
    let rounds = STATEMENTS.div_ceil(messages.iter().map(|bytes| statements(bytes)).sum());
    for _ in 0..rounds {
        messages.iter().for_each(|bytes| client.exchange(bytes));
    }
    let after = ALLOCATOR.stats();
    after.allocations + after.reallocations - before.allocations - before.reallocations
}

/// Queries and Executes among messages.
fn statements(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while let Some(&[tag, a, b, c, d]) = bytes.first_chunk::<5>() {
        count += usize::from(matches!(tag, b'Q' | b'E'));
        bytes = &bytes[1 + u32::from_be_bytes([a, b, c, d]) as usize..];
    }
    count
}

/// A client that allocates nothing once it is connected.
struct Client {
    stream: TcpStream,
    buffer: Box<[u8; 1 << 16]>,
}

impl Client {
    fn log_in(port: u16) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(READ_LIMIT)).unwrap();
        let mut client = Client { stream, buffer: Box::new([0; 1 << 16]) };
        let body = b"\0\x03\0\0user\0postgres\0database\0postgres\0\0";
        client.exchange(&[&(body.len() as u32 + 4).to_be_bytes()[..], body].concat());
        client
    }

    /// Runs the rest of a story whose warm-up may have stopped in the middle.
    fn finish(&mut self, messages: &[Vec<u8>]) {
        for message in &messages[WARM_UP % messages.len()..] {
            self.exchange(message);
        }
    }

    /// Waits until the definitions of sharded tables are known: then no shard can carry the statement out.
    fn wait_refused(&mut self, text: &str) {
        let is_refused = || {
            self.exchange(&query(text));
            Ok(self.buffer[0] == b'E' && self.buffer.windows(7).any(|field| field == b"C0A000\0"))
        };
        wait_until("Weir to know the sharded table", READ_LIMIT, is_refused).unwrap();
    }

    /// Sends, and reads to the next ReadyForQuery.
    fn exchange(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
        let (mut filled, mut at) = (0, 0);
        loop {
            filled += match self.stream.read(&mut self.buffer[filled..]).unwrap() {
                0 => panic!("the proxy closed the connection"),
                count => count,
            };
            while let Some(&[tag, a, b, c, d]) = self.buffer[at..filled].first_chunk::<5>() {
                let end = at + 1 + u32::from_be_bytes([a, b, c, d]) as usize;
                if end > filled {
                    break;
                }
                if tag == b'Z' {
                    return;
                }
                at = end;
            }
        }
    }
}

fn message(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    [&[tag], &(body.len() as u32 + 4).to_be_bytes()[..], &body].concat()
}

fn query(text: &str) -> Vec<u8> {
    message(b'Q', &[text.as_bytes(), b"\0"])
}

fn parse(name: &str, text: &str) -> Vec<u8> {
    message(b'P', &[name.as_bytes(), b"\0", text.as_bytes(), b"\0\0\0"])
}

fn bind(name: &str) -> Vec<u8> {
    message(b'B', &[b"\0", name.as_bytes(), b"\0\0\0\0\0\0\0"])
}

fn bind_value(name: &str, value: &str) -> Vec<u8> {
    let length = (value.len() as u32).to_be_bytes();
    message(b'B', &[b"\0", name.as_bytes(), b"\0\0\0\0\x01", &length, value.as_bytes(), b"\0\0"])
}

fn execute() -> Vec<u8> {
    message(b'E', &[b"\0\0\0\0\0"])
}

fn sync() -> Vec<u8> {
    message(b'S', &[])
}
