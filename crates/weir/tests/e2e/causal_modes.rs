//! Sessions that change `weir.causal_reads` between statements, under a load of writes, before a standby that is late and one that stops and goes on: a
//! read under `tables` shows every write that was acknowledged before, whatever its session or the writer's had before.

use crate::support::ground::{cluster, wait_for_catalog};
use crate::support::time::{happens_within, let_pass};
use crate::support::{Proxy, Raw, wire};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};
use weir_demo::Server;

/// Reads of each checker that must show something.
const CHECKS: u64 = 250;
const CHECKERS: u32 = 3;
/// Time between two writes of the load, to another table and to the tables that are read.
const LOAD_PERIOD: Duration = Duration::from_millis(5);
/// Longest time of a run.
const RUN_LIMIT: Duration = Duration::from_secs(120);

/// The mode that a session had before.
const MODES: [&str; 6] = [
    "set weir.causal_reads = off",
    "set weir.causal_reads = session",
    "set weir.causal_reads = global",
    "set weir.causal_reads = tables",
    "reset weir.causal_reads",
    "discard all",
];

/// How a read comes under `tables`.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// The mode is set before the write, or behind it.
    SetBefore,
    SetBehind,
    /// It is the server's own.
    Reset,
    /// In front of a transaction that only reads.
    ReadOnly,
    /// In front of one with one snapshot.
    Snapshot,
    /// Both are sent before either is answered.
    Ahead,
    /// By the extended protocol, in one pipeline.
    Pipeline,
    /// A new session that begins with it.
    New,
}

const WAYS: [Way; 8] =
    [Way::SetBefore, Way::SetBehind, Way::Reset, Way::ReadOnly, Way::Snapshot, Way::Ahead, Way::Pipeline, Way::New];
const SET: &str = "set weir.causal_reads = tables";

struct Run {
    port: u16,
    is_over: AtomicBool,
    /// Reads under `off` that lacked something: without them the run shows little.
    stale: AtomicU64,
    violations: Mutex<Vec<String>>,
}

fn client(port: u16, parameters: &[(&str, &str)]) -> Raw {
    Raw::tcp(port).log_in("postgres", "postgres", parameters).unwrap()
}

/// Writes all the time, to a table that nobody reads and to those that are read.
fn load(run: &Run) {
    let mut conn = client(run.port, &[]);
    let mut at = 0;
    while !run.is_over.load(SeqCst) {
        at += 1;
        conn.run("insert into busy values (1)");
        if at % 4 == 0 {
            conn.run(&format!("insert into t{} values (0)", at / 4 % CHECKERS));
        }
        let_pass(LOAD_PERIOD);
    }
}

/// The last row that came before each ReadyForQuery is the answer.
fn last_value(conn: &mut Raw, readies: usize) -> i64 {
    let said: Vec<_> = (0..readies).flat_map(|_| conn.until_ready()).collect();
    let row = said.iter().rfind(|message| message.tag == b'D').unwrap_or_else(|| panic!("{said:?}"));
    row.row()[0].as_deref().unwrap().parse().unwrap()
}

/// Pauses and resumes replay in turns until the run is over.
fn disturb(run: &Run, standby: &Server) {
    while !run.is_over.load(SeqCst) {
        standby.query("select pg_wal_replay_pause()").unwrap();
        let_pass(Duration::from_millis(20));
        standby.query("select pg_wal_replay_resume()").unwrap();
        let_pass(Duration::from_millis(60));
    }
}

/// Reads under `tables`.
fn read_by(way: Way, reader: &mut Raw, read: &str, port: u16) -> i64 {
    match way {
        Way::SetBefore => reader.value(read).parse().unwrap(),
        Way::SetBehind => {
            reader.run(SET);
            reader.value(read).parse().unwrap()
        }
        Way::Reset => {
            reader.run("reset all");
            reader.value(read).parse().unwrap()
        }
        Way::ReadOnly | Way::Snapshot => {
            reader.run(SET);
            reader.run(if matches!(way, Way::ReadOnly) {
                "begin read only"
            } else {
                "begin isolation level repeatable read read only"
            });
            let seen = reader.value(read).parse().unwrap();
            reader.run("commit");
            seen
        }
        Way::Ahead => {
            reader.send(&[wire::query(SET), wire::query(read)].concat());
            last_value(reader, 2)
        }
        Way::Pipeline => {
            reader.send(&[wire::unnamed(SET, &[]), wire::sync(), wire::unnamed(read, &[]), wire::sync()].concat());
            last_value(reader, 2)
        }
        Way::New => {
            *reader = client(port, &[("options", "-c weir.causal_reads=tables")]);
            reader.value(read).parse().unwrap()
        }
    }
}

fn check(run: &Run, at: u32) {
    let (mut writer, mut readers) = (client(run.port, &[]), [client(run.port, &[]), client(run.port, &[])]);
    let mut dice = 0x9e37_79b9_7f4a_7c15 ^ u64::from(at + 1);
    // A number below `sides`. Xorshift.
    let mut throw = |sides: usize| {
        dice ^= dice << 13;
        dice ^= dice >> 7;
        dice ^= dice << 17;
        (dice % sides as u64) as usize
    };
    let read = format!("select max(a) from t{at}");
    for number in 1..=CHECKS as i64 {
        if run.is_over.load(SeqCst) {
            return;
        }
        let (way, before, of_writer) = (WAYS[throw(WAYS.len())], MODES[throw(MODES.len())], MODES[throw(MODES.len())]);
        let reader = &mut readers[throw(2)];
        reader.run(before);
        for _ in 0..throw(3) {
            let seen: i64 = reader.value(&read).parse().unwrap();
            let lacks = seen < number - 1;
            run.stale.fetch_add(u64::from(lacks && before.ends_with("off")), SeqCst);
        }
        if matches!(way, Way::SetBefore) {
            reader.run(SET);
        }
        writer.run(of_writer);
        match throw(3) {
            0 => writer.run(&format!("insert into t{at} values ({number})")),
            1 => ["begin", &format!("insert into t{at} values ({number})"), "commit"].iter().for_each(|text| writer.run(text)),
            _ => writer.run(&format!("do 'begin insert into t{at} values ({number}); end'")),
        }
        if before.ends_with("off") && throw(2) == 0 {
            // Its answers meanwhile are nobody's promise.
            let seen: i64 = reader.value(&read).parse().unwrap();
            run.stale.fetch_add(u64::from(seen < number), SeqCst);
        }
        let seen = read_by(way, reader, &read, run.port);
        if seen < number {
            let text = format!("{way:?} after {before:?}, its writer after {of_writer:?}: {seen}, and not {number}");
            run.violations.lock().unwrap().push(text);
        }
    }
}

#[test]
fn a_read_by_table_shows_what_was_written_whatever_its_session_had_before() {
    let cluster = cluster(2);
    let primary = cluster.primary();
    primary.query("create table busy (a int)").unwrap();
    for at in 0..CHECKERS {
        primary.query(&format!("create table t{at} as select 0 as a")).unwrap();
    }
    cluster.wait_caught_up().unwrap();
    let [late, halting] = cluster.standbys() else { panic!("two standbys") };
    late.query("alter system set recovery_min_apply_delay = '150ms'").unwrap();
    late.reload().unwrap();
    let proxy = Proxy::start(&cluster, "causal_wait = 4ms\npool_size = 5\nworker_threads = 2");
    wait_for_catalog(&mut client(proxy.port(), &[]), "postgres");
    let run = Run { port: proxy.port(), is_over: AtomicBool::new(false), stale: AtomicU64::new(0), violations: Mutex::default() };
    let started = Instant::now();
    thread::scope(|scope| {
        let (run, checkers) = (
            &run,
            (0..CHECKERS)
                .map(|at| {
                    scope.spawn({
                        let run = &run;
                        move || check(run, at)
                    })
                })
                .collect::<Vec<_>>(),
        );
        scope.spawn(|| load(run));
        scope.spawn(|| disturb(run, halting));
        let ended = happens_within(RUN_LIMIT, || checkers.iter().all(|checker| checker.is_finished()));
        run.is_over.store(true, SeqCst);
        assert!(ended, "not ended after {RUN_LIMIT:?}");
    });
    let (violations, stale) = (run.violations.lock().unwrap(), run.stale.load(SeqCst));
    println!("{:?}, {stale} reads under off lacked something", started.elapsed());
    assert!(
        violations.is_empty(),
        "{} reads lack what was acknowledged: {:#?}",
        violations.len(),
        &violations[..violations.len().min(8)]
    );
    assert!(stale > 0, "no read under off lacked anything: this shows little");
}
