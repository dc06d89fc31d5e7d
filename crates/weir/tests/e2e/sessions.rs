//! A checker of sessions: clients write registers and read all of them through Weir, while standbys stop and go on replaying at
//! random and one of them is promoted. No client may see a register go back, nor miss its own writes. Under `causal_reads =
//! global` no read may miss a value that any client was told before. With `causal_reads = off` the same checker finds all of
//! this broken.
//!
//! `WEIR_CHECK_SECONDS` makes it run for longer.

use crate::support::ground::{Owned, cluster};
use crate::support::time::{happens_within, let_pass};
use crate::support::{Proxy, Raw, wait_until};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};
use weir_demo::{Mode, Server};

/// Clients; each has a register.
const CLIENTS: usize = 6;
/// Time of one run, if nothing else is said.
const SECONDS: u64 = 6;
/// Longest time in which a checker without a guarantee must find a violation.
const FIND_LIMIT: Duration = Duration::from_secs(60);

/// The guarantee for a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promise {
    /// It shows all that its own session has seen.
    Session,
    /// It shows all that any session was told.
    Global,
}

/// Numbers up to which a register was written, by register.
type Registers = [u32; CLIENTS];

/// State that all threads of a run share.
struct World {
    promise: Promise,
    port: u16,
    /// Numbers that were acknowledged to the writer.
    acknowledged: [AtomicU32; CLIENTS],
    /// Numbers that any session was shown.
    shown: [AtomicU32; CLIENTS],
    /// Ports of the servers that may be primary: two while one is promoted.
    primaries: Mutex<Vec<u16>>,
    is_over: AtomicBool,
    violations: Mutex<Vec<String>>,
    writes: AtomicU64,
    reads_on_standbys: AtomicU64,
    reads_on_primary: AtomicU64,
}

impl World {
    fn new(promise: Promise, proxy: &Proxy, primary: &Server) -> World {
        World {
            promise,
            port: proxy.port(),
            acknowledged: [const { AtomicU32::new(0) }; CLIENTS],
            shown: [const { AtomicU32::new(0) }; CLIENTS],
            primaries: Mutex::new(vec![primary.port()]),
            is_over: AtomicBool::new(false),
            violations: Mutex::default(),
            writes: AtomicU64::new(0),
            reads_on_standbys: AtomicU64::new(0),
            reads_on_primary: AtomicU64::new(0),
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(SeqCst)
    }

    fn found(&self) -> usize {
        self.violations.lock().unwrap().len()
    }

    fn acknowledged(&self) -> Registers {
        std::array::from_fn(|at| self.acknowledged[at].load(SeqCst))
    }

    /// Numbers that a read which begins now must show because others were told them.
    fn told(&self, acknowledged: &Registers) -> Registers {
        match self.promise {
            Promise::Session => [0; CLIENTS],
            Promise::Global => std::array::from_fn(|at| acknowledged[at].max(self.shown[at].load(SeqCst))),
        }
    }

    fn report(&self, what: String) {
        self.violations.lock().unwrap().push(what);
    }
}

/// One client.
struct Client<'a> {
    world: &'a World,
    number: usize,
    conn: Option<Raw>,
    /// Numbers that its session has seen.
    seen: Registers,
    /// The last number it tried to write.
    tried: u32,
    dice: u64,
}

impl Client<'_> {
    fn run(mut self) {
        while !self.world.is_over() {
            match self.throw(10) {
                0 => self.write(),
                1 => self.read_in_transaction(),
                _ => self.read(&self.world.acknowledged(), None),
            }
        }
    }

    /// A number below `sides`. Xorshift.
    fn throw(&mut self, sides: u64) -> u64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.dice % sides
    }

    /// Its connection; one that broke is replaced by a new session, which has seen nothing.
    fn conn(&mut self) -> Option<&mut Raw> {
        if self.conn.is_none() {
            self.seen = [0; CLIENTS];
            self.conn = Raw::try_tcp(self.world.port).and_then(|raw| raw.log_in("postgres", "postgres", &[]).ok());
        }
        self.conn.as_mut()
    }

    fn write(&mut self) {
        let (id, next, kind) = (self.number, self.tried + 1, self.throw(3));
        self.tried = next;
        let text = match kind {
            0 => format!("update registers set v = {next} where id = {id}"),
            1 => format!("select put({id}, {next})"),
            _ => format!("begin; set local synchronous_commit = off; update registers set v = {next} where id = {id}; commit"),
        };
        let Some(conn) = self.conn() else { return };
        match conn.try_rows(&text) {
            Ok(_) => {
                self.world.acknowledged[id].fetch_max(next, SeqCst);
                self.seen[id] = next;
                self.world.writes.fetch_add(1, SeqCst);
            }
            // The number may be written or not; later writes have greater numbers.
            Err(_) => self.conn = None,
        }
    }

    /// Two reads in one transaction on one server. A transaction that may run on a standby cannot move when others are told
    /// more: it shows their values at its begin.
    fn read_in_transaction(&mut self) {
        let is_read_only = self.throw(2) == 0;
        let acknowledged = self.world.acknowledged();
        let told = is_read_only.then(|| self.world.told(&acknowledged));
        let begin = if is_read_only { "begin read only" } else { "begin" };
        if self.conn().is_some_and(|conn| conn.try_rows(begin).is_ok()) {
            self.read(&acknowledged, told);
            self.read(&acknowledged, told);
        }
        if self.conn.as_mut().is_some_and(|conn| conn.try_rows("commit").is_err()) {
            self.conn = None;
        }
    }

    /// Reads all registers. `acknowledged` is not younger than the read; `told`: the values it must show, if those are not the
    /// present ones.
    fn read(&mut self, acknowledged: &Registers, told: Option<Registers>) {
        let told = told.unwrap_or_else(|| self.world.told(&self.world.acknowledged()));
        let Some(conn) = self.conn() else { return };
        let Ok(rows) = conn.try_rows(READ) else {
            self.conn = None;
            return;
        };
        let cells: Vec<String> = rows.into_iter().flatten().flatten().collect();
        let port: u16 = cells[0].parse().unwrap();
        let now: Vec<u32> = cells[1].split(',').map(|v| v.parse().unwrap()).collect();
        let is_primary = self.world.primaries.lock().unwrap().contains(&port);
        let counter = if is_primary { &self.world.reads_on_primary } else { &self.world.reads_on_standbys };
        counter.fetch_add(1, SeqCst);
        for at in 0..CLIENTS {
            let (now, must) = (now[at], self.seen[at].max(told[at]));
            // PostgreSQL itself: a standby shows a commit while the primary has not told anybody of it yet, not even the writer.
            let is_early = is_primary && now >= acknowledged[at];
            if now < must && !is_early {
                let (number, seen, told) = (self.number, self.seen[at], told[at]);
                self.world.report(format!(
                    "client {number} reads {now} in register {at} on port {port}; it has seen {seen}, anybody was told {told}"
                ));
            }
            self.seen[at] = self.seen[at].max(now);
            self.world.shown[at].fetch_max(now, SeqCst);
        }
    }
}

const READ: &str = "select inet_server_port(), string_agg(v::text, ',' order by id) from registers";

/// Pauses and resumes replay at random until the run is over.
fn disturb(world: &World, standbys: &[&Server], seed: u64) -> u32 {
    let mut paused = 0;
    let mut dice = Client { world, number: 0, conn: None, seen: [0; CLIENTS], tried: 0, dice: seed };
    while !world.is_over() {
        let standby = standbys[dice.throw(standbys.len() as u64) as usize];
        let text = if dice.throw(2) == 0 { "select pg_wal_replay_pause()" } else { "select pg_wal_replay_resume()" };
        // A standby that is being promoted refuses.
        paused += u32::from(standby.query(text).is_ok());
        let_pass(Duration::from_millis(dice.throw(60)));
    }
    for standby in standbys {
        let _ = standby.query("select pg_wal_replay_resume()");
    }
    paused
}

fn with_registers() -> Owned {
    let cluster = cluster(2);
    let text = format!(
        "create table registers (id int primary key, v int); insert into registers select i, 0 from generate_series(0, {}) i;
         create function put(i int, n int) returns void language sql volatile as 'update registers set v = n where id = i'",
        CLIENTS - 1
    );
    cluster.primary().query(&text).unwrap();
    cluster.wait_caught_up().unwrap();
    cluster
}

fn seconds() -> u64 {
    std::env::var("WEIR_CHECK_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SECONDS)
}

/// Lets all clients and the disturber run while `story` goes on. Returns how often replay was paused or resumed.
fn play(world: &World, standbys: &[&Server], story: impl FnOnce()) -> u32 {
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let dice = 0x9e37_79b9_7f4a_7c15 ^ (number as u64 + 1);
            let client = Client { world, number, conn: None, seen: [0; CLIENTS], tried: 0, dice };
            scope.spawn(move || client.run());
        }
        let disturber = scope.spawn(|| disturb(world, standbys, 42));
        // A story that fails must not leave the others running.
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(story));
        world.is_over.store(true, SeqCst);
        let paused = disturber.join().unwrap();
        if let Err(panic) = told {
            std::panic::resume_unwind(panic);
        }
        paused
    })
}

fn check_that_nothing_goes_back(promise: Promise, more: &str) {
    let cluster = with_registers();
    let proxy = Proxy::start(&cluster, &format!("causal_wait = 20ms\n{more}"));
    let world = World::new(promise, &proxy, cluster.primary());
    let [first, second] = cluster.standbys() else { panic!("two standbys") };
    let half = Duration::from_secs(seconds()) / 2;
    let lasts = |time: Duration| {
        // Violations are told at the end.
        happens_within(time, || world.found() > 0);
    };
    let paused = play(&world, &[first, second], || {
        lasts(half);
        let written = world.writes.load(SeqCst);
        world.primaries.lock().unwrap().push(first.port());
        // In order, so that no acknowledged write is lost: nobody could hide that.
        cluster.primary().stop(Mode::Fast).unwrap();
        wait_until("the standby to take over", || {
            let _ = first.query("select pg_wal_replay_resume()");
            first.query("select pg_promote(true, 20)").is_ok() || !first.in_recovery().unwrap_or(true)
        });
        second.follow(first).unwrap();
        world.primaries.lock().unwrap().retain(|port| *port == first.port());
        wait_until("writes to go on", || world.writes.load(SeqCst) > written + 50);
        let read = world.reads_on_standbys.load(SeqCst);
        let goes_on = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_until("reads on the other standby to go on", || {
                let _ = second.query("select pg_wal_replay_resume()");
                world.reads_on_standbys.load(SeqCst) > read + 50
            });
        }));
        if let Err(panic) = goes_on {
            tell_positions(first, second);
            std::panic::resume_unwind(panic);
        }
        lasts(half);
        // How often a standby that stops and goes on is found ready hangs on the moment.
        let is_enough = || world.writes.load(SeqCst) > 100 && world.reads_on_standbys.load(SeqCst) > 100;
        wait_until("enough to happen", || is_enough() || world.found() > 0);
    });
    let violations = world.violations.lock().unwrap();
    let (standbys, primary) = (world.reads_on_standbys.load(SeqCst), world.reads_on_primary.load(SeqCst));
    let writes = world.writes.load(SeqCst);
    println!("{promise:?}: {writes} writes, {standbys} reads on standbys, {primary} on the primary, {paused} pauses");
    assert!(violations.is_empty(), "{} violations, the first: {:#?}", violations.len(), &violations[..violations.len().min(5)]);
    assert!(paused > 10, "too little happened");
}

/// Both servers' words about their streams, when the one should follow the other and does not.
fn tell_positions(promoted: &Server, follower: &Server) {
    println!("the promoted one: {:?}", promoted.query("select pg_current_wal_lsn(), * from pg_stat_replication"));
    let text = "select pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn(), pg_get_wal_replay_pause_state(), * from pg_stat_wal_receiver";
    println!("the follower: {:?}", follower.query(text));
    for server in [promoted, follower] {
        let log = server.log();
        let lines: Vec<&str> = log.lines().rev().take(40).collect();
        println!("the last lines of {}: {:#?}", server.name(), lines.iter().rev().collect::<Vec<_>>());
    }
}

fn check_that_violations_are_found(promise: Promise, more: &str) {
    let cluster = with_registers();
    let proxy = Proxy::start(&cluster, &format!("causal_wait = 20ms\n{more}"));
    let world = World::new(promise, &proxy, cluster.primary());
    let started = Instant::now();
    let standbys: Vec<&Server> = cluster.standbys().iter().collect();
    play(&world, &standbys, || wait_until("a violation", || world.found() > 0 || started.elapsed() > FIND_LIMIT));
    assert!(world.found() > 0, "nothing found in {FIND_LIMIT:?}: this checker proves nothing");
    println!("{promise:?}, {more}: found in {:?}: {}", started.elapsed(), world.violations.lock().unwrap()[0]);
}

#[test]
fn no_session_sees_time_go_back() {
    check_that_nothing_goes_back(Promise::Session, "");
}

#[test]
fn under_global_all_see_what_anybody_was_told() {
    check_that_nothing_goes_back(Promise::Global, "causal_reads = global");
}

#[test]
fn without_causal_reads_the_checker_finds_what_sessions_lose() {
    check_that_violations_are_found(Promise::Session, "causal_reads = off");
}

#[test]
fn causal_reads_of_sessions_do_not_keep_the_global_promise() {
    check_that_violations_are_found(Promise::Global, "causal_reads = session");
}
