//! Answers that lie in memcached or Redis, for several Weirs before the same servers.
//!
//! Without `memcached` and `redis-server` (Debian: packages of these names) these tests say so and do nothing.

use super::cache::{OBJECTS, REGISTERS, WRITES, history, hits, is_hit, warm};
use crate::support::faults::{Fault, Network, Toward};
use crate::support::ground::{cluster, wait_for_catalog};
use crate::support::proxy::Folder;
use crate::support::raw::{first_value, tags};
use crate::support::{Ground, Proxy, Raw, wait_until, wire};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_demo::ReservedPort;

/// Longest time a write may take when its store is gone: all others have to be told, once.
const WRITE_LIMIT: Duration = Duration::from_secs(8);

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Memcached,
    Redis,
}

pub(super) const BOTH: [Kind; 2] = [Kind::Memcached, Kind::Redis];

/// A store of a test's own.
pub(super) struct Store {
    kind: Kind,
    process: Child,
    pub(super) port: ReservedPort,
    folder: Folder,
    /// Of its command line; `PORT` stands for the port.
    more: Vec<String>,
}

impl Store {
    /// `None` where there is no such program.
    pub(super) fn start(kind: Kind) -> Option<Store> {
        Store::start_with(kind, &[])
    }

    pub(super) fn start_with(kind: Kind, more: &[&str]) -> Option<Store> {
        let (folder, port) = (Folder::new(), ReservedPort::any().unwrap());
        let more: Vec<String> = more.iter().map(|word| (*word).to_string()).collect();
        let Some(process) = Store::spawn(kind, &port, &folder, &more) else {
            eprintln!("left out: there is no {} (Debian: apt-get install memcached redis-server)", kind.program());
            return None;
        };
        Some(Store { kind, process, port, folder, more })
    }

    fn spawn(kind: Kind, port: &ReservedPort, folder: &Folder, more: &[String]) -> Option<Child> {
        let number = port.number().to_string();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", kind.program()]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        match kind {
            Kind::Memcached => command.args(["-l", "127.0.0.1", "-p", &number, "-u", "nobody", "-m", "64", "-U", "0"]),
            Kind::Redis => command
                .args(["--port", &number, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"])
                .arg(&folder.0),
        };
        command.args(more.iter().map(|word| word.replace("PORT", &number)));
        if !["/usr/bin", "/usr/local/bin"].iter().any(|folder| std::path::Path::new(folder).join(kind.program()).exists()) {
            return None;
        }
        let process = command.spawn().unwrap();
        wait_until("the store to listen", || TcpStream::connect(("127.0.0.1", port.number())).is_ok());
        Some(process)
    }

    pub(super) fn conf(&self, port: u16) -> String {
        let (name, own) = (self.kind.method(), self.port.number());
        // Tests share servers, where Weirs of one namespace meet.
        format!(
            "memory_cache_enabled = on\ncausal_reads = global\nmemqcache_method = {name}\nmemqcache_namespace = 'test_{own}'\n\
             memqcache_{name}_host = '127.0.0.1'\nmemqcache_{name}_port = {port}\n"
        )
    }

    /// Weir with its answers here.
    pub(super) fn own_conf(&self) -> String {
        self.conf(self.port.number())
    }

    pub(super) fn say(&self, text: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port.number())).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let (mut answer, mut piece) = (String::new(), [0; 4096]);
        while !["END\r\n", "OK\r\n"].iter().any(|end| answer.ends_with(end)) {
            let read = stream.read(&mut piece).unwrap();
            assert!(read > 0, "the store hung up");
            answer.push_str(&String::from_utf8_lossy(&piece[..read]));
        }
        answer
    }

    /// What Redis says to a command, as it says it.
    pub(super) fn bulk(&self, command: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port.number())).unwrap();
        stream.write_all(format!("{command}\r\nPING\r\n").as_bytes()).unwrap();
        let (mut answer, mut piece) = (String::new(), [0; 4096]);
        while !answer.ends_with("+PONG\r\n") {
            let read = stream.read(&mut piece).unwrap();
            assert!(read > 0, "the store hung up");
            answer.push_str(&String::from_utf8_lossy(&piece[..read]));
        }
        answer
    }

    /// A section of what Redis tells of itself.
    pub(super) fn section(&self, name: &str) -> String {
        self.bulk(&format!("INFO {name}"))
    }

    /// The first line of what Redis says.
    pub(super) fn line(&self, command: &str) -> String {
        let answer = self.bulk(command);
        let mut lines = answer.lines();
        let first = lines.next().unwrap_or_default();
        let line = if first.starts_with('$') { lines.next().unwrap_or_default() } else { &first[1..] };
        line.to_string()
    }

    /// Has it forget everything.
    pub(super) fn flush(&self) {
        let answer = match self.kind {
            Kind::Memcached => self.say("flush_all\r\n"),
            Kind::Redis => self.say("FLUSHALL\r\n"),
        };
        assert!(answer.contains("OK"), "{answer}");
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    pub(super) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub(super) fn start_again(&mut self) {
        self.process = Store::spawn(self.kind, &self.port, &self.folder, &self.more).unwrap();
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Kind {
    fn program(self) -> &'static str {
        match self {
            Kind::Memcached => "memcached",
            Kind::Redis => "redis-server",
        }
    }

    fn method(self) -> &'static str {
        match self {
            Kind::Memcached => "memcached",
            Kind::Redis => "redis",
        }
    }
}

#[test]
fn no_write_through_one_weir_leaves_an_answer_to_the_other_that_is_not_true() {
    for kind in BOTH {
        let Some(store) = Store::start(kind) else { return };
        let ground = Ground::new();
        ground.prepare(OBJECTS);
        let (one, other) = (ground.primary_proxy(&store.own_conf()), ground.primary_proxy(&store.own_conf()));
        let (mut reader, mut writer, mut direct) = (ground.client(&one), ground.client(&other), ground.direct());
        // What was never asked for is young for a while: all at once.
        WRITES.iter().for_each(|(read, _)| drop(reader.rows(read)));
        for (read, write) in WRITES {
            let before = warm(&one, &mut reader, read);
            assert_eq!(before, direct.rows(read), "{read}");
            writer.run(write);
            let (after, expected) = (reader.rows(read), direct.rows(read));
            assert_eq!(after, expected, "{read} after {write}");
            assert_ne!(before, expected, "{write} does not change {read}");
            assert_eq!(writer.rows(read), expected, "the writer itself: {read} after {write}");
        }
        let text = "select count(*) from other";
        let expected = warm(&one, &mut reader, text);
        assert_eq!(warm(&other, &mut writer, text), expected);
        writer.extended("insert into other values ($1)", &["8"]).unwrap();
        assert_eq!(reader.rows(text), direct.rows(text));
    }
}

/// Runs the history of `cache` over two Weirs, while something happens to the store again and again. Gives what was wrong, and hits.
pub(super) fn two_weirs<S: Send>(store: &mut S, conf: &str, mut trouble: impl FnMut(&mut S) + Send) -> (Vec<String>, u64) {
    let cluster = cluster(1);
    for at in 0..REGISTERS {
        cluster.primary().query(&format!("create table r{at} as select 0 as v")).unwrap();
    }
    cluster.wait_caught_up().unwrap();
    // No Weir knows what another has told its clients: only the primary shows it all.
    let primary = [cluster.primary()];
    let (one, other) = (Proxy::before(&primary, conf), Proxy::before(&primary, conf));
    for proxy in [&one, &other] {
        let mut client = proxy.console();
        wait_for_catalog(&mut client, "postgres");
        (0..REGISTERS).for_each(|at| drop(warm(proxy, &mut client, &format!("select v from r{at}"))));
    }
    let before = AtomicU64::new(0);
    let (is_over, has_begun) = (AtomicBool::new(false), AtomicBool::new(false));
    let wrong = std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_until("the history to begin", || has_begun.load(Ordering::SeqCst));
            while !is_over.load(Ordering::SeqCst) {
                trouble(store);
            }
        });
        // What was defined a moment ago is young for a while, about as long as all that follows takes.
        let settle = || {
            let names = (0..REGISTERS).map(|at| format!("r{at}")).chain(["o".into(), "l".into()]);
            let texts: Vec<String> = names.map(|name| format!("select v from {name}")).collect();
            for proxy in [&one, &other] {
                let mut client = proxy.console();
                texts.iter().for_each(|text| drop(warm(proxy, &mut client, text)));
            }
            before.store(hits(&one) + hits(&other), Ordering::SeqCst);
            has_begun.store(true, Ordering::SeqCst);
        };
        let wrong = history(&[&one, &other], &cluster.standbys()[0], &settle);
        is_over.store(true, Ordering::SeqCst);
        wrong
    });
    (wrong, hits(&one) + hits(&other) - before.into_inner())
}

pub(super) fn a_moment() {
    std::thread::park_timeout(Duration::from_millis(700));
}

#[test]
fn no_history_of_two_weirs_shows_a_value_that_no_server_would_have_shown() {
    for kind in BOTH {
        let Some(mut store) = Store::start(kind) else { return };
        let conf = store.own_conf();
        let (wrong, hits) = two_weirs(&mut store, &conf, |_| a_moment());
        assert!(wrong.is_empty(), "{} of them, the first: {}", wrong.len(), wrong[0]);
        assert!(hits > 0);
        // Those Weirs were killed, and may have left marks.
        store.flush();
        let (wrong, _) = two_weirs(&mut store, &format!("{conf}memqcache_auto_cache_invalidation = off"), |_| a_moment());
        assert!(!wrong.is_empty(), "without invalidation nothing is found wrong: this test finds nothing");
    }
}

#[test]
fn a_store_that_forgets_hangs_or_is_started_again_makes_nothing_wrong() {
    for kind in BOTH {
        let Some(mut store) = Store::start(kind) else { return };
        let (mut turn, conf) = (0, store.own_conf());
        let (wrong, hits) = two_weirs(&mut store, &conf, |store| {
            a_moment();
            turn += 1;
            match turn % 3 {
                0 => {
                    store.kill();
                    store.start_again();
                }
                1 => store.flush(),
                _ => {
                    store.signal(Signal::STOP);
                    a_moment();
                    store.signal(Signal::CONT);
                }
            }
        });
        assert!(wrong.is_empty(), "{} of them, the first: {}", wrong.len(), wrong[0]);
        assert!(hits < u64::MAX);
    }
}

#[test]
fn a_standby_that_lags_behind_another_weirs_write_gives_no_answer_that_stays() {
    let Some(store) = Store::start(Kind::Memcached) else { return };
    let cluster = cluster(1);
    cluster.primary().query("create table t (a int)").unwrap();
    cluster.wait_caught_up().unwrap();
    let conf = format!("{}causal_reads = off", store.own_conf());
    let (near, far) = (Proxy::start(&cluster, &conf), Proxy::start(&cluster, &conf));
    let (mut reader, mut writer) = (near.console(), far.console());
    wait_for_catalog(&mut reader, "postgres");
    wait_for_catalog(&mut writer, "postgres");
    let read = "select count(*) from t";
    warm(&near, &mut reader, read);
    for count in 1..=3 {
        cluster.standbys()[0].pause_replay().unwrap();
        writer.run("insert into t values (1)");
        for _ in 0..5 {
            assert_eq!(reader.value(read), (count - 1).to_string(), "from the standby");
            assert!(!is_hit(&near, &mut reader, read));
        }
        cluster.standbys()[0].resume_replay().unwrap();
        wait_until("the standby to go on", || reader.value(read) == count.to_string());
        assert_eq!(warm(&near, &mut reader, read)[0][0], count.to_string());
        // A look at the locks that comes late on a busy machine is a miss.
        assert_eq!(warm(&far, &mut writer, read)[0][0], count.to_string());
    }
}

/// Runs a statement within the time a write may take without a store.
pub(super) fn run_soon(client: &mut Raw, text: &str) {
    let begun = Instant::now();
    client.run(text);
    let took = begun.elapsed();
    assert!(took < WRITE_LIMIT, "{text} took {took:?}");
}

#[test]
fn a_store_that_is_gone_or_hangs_is_missed_and_said_so_once() {
    for kind in BOTH {
        let Some(mut store) = Store::start(kind) else { return };
        let ground = Ground::new();
        ground.prepare("create table t as select 1 as a");
        let proxy = ground.proxy(&store.own_conf());
        let mut client = ground.client(&proxy);
        let read = "select count(*) from t";
        warm(&proxy, &mut client, read);
        store.kill();
        run_soon(&mut client, "insert into t values (2)");
        assert_eq!(client.value(read), "2");
        run_soon(&mut client, "insert into t values (3)");
        let said = format!("127.0.0.1:{} does not serve as a store of answers", store.port.number());
        wait_until("the log to say so", || proxy.log().contains(&said));
        store.start_again();
        assert_eq!(warm(&proxy, &mut client, read)[0][0], "3");
        assert_eq!(proxy.log().matches(&said).count(), 1, "{}", proxy.log());
        store.signal(Signal::STOP);
        run_soon(&mut client, "insert into t values (4)");
        assert_eq!(client.value(read), "4");
        store.signal(Signal::CONT);
        assert_eq!(warm(&proxy, &mut client, read)[0][0], "4");
    }
}

/// Two Weirs before one store, and table `t`. The far one reaches the store through a network of ours.
struct Split {
    _store: Store,
    ground: Ground,
    network: Network,
    near: Proxy,
    far: Proxy,
}

impl Split {
    fn start(kind: Kind) -> Option<Split> {
        let store = Store::start(kind)?;
        let ground = Ground::new();
        ground.prepare("create table t as select 1 as a");
        let network = Network::to(store.port.number());
        let (near, far) = (ground.primary_proxy(&store.own_conf()), ground.primary_proxy(&store.conf(network.port())));
        Some(Split { _store: store, ground, network, near, far })
    }
}

#[test]
fn what_a_weir_writes_that_is_cut_off_from_the_store_the_others_do_not_give_out() {
    for kind in BOTH {
        let Some(Split { _store, ground, network, near, far }) = Split::start(kind) else { return };
        let (mut reader, mut writer) = (ground.client(&near), ground.client(&far));
        let read = "select count(*) from t";
        warm(&near, &mut reader, read);
        for count in 2..=4 {
            // The names of the host differ, so that each knows the other's lock for one it does not know.
            network.stall_all();
            run_soon(&mut writer, &format!("insert into t values ({count})"));
            assert_eq!(reader.value(read), count.to_string());
            assert!(!is_hit(&near, &mut reader, read), "the other may write any time");
            network.cut();
            network.go_on();
            assert_eq!(warm(&near, &mut reader, read)[0][0], count.to_string());
        }
    }
}

#[test]
fn what_a_weir_wrote_that_dies_cut_off_from_the_store_the_others_do_not_give_out() {
    for kind in BOTH {
        let Some(Split { _store, ground, network, near, far }) = Split::start(kind) else { return };
        let (mut reader, mut writer) = (ground.client(&near), ground.client(&far));
        let read = "select count(*) from t";
        warm(&near, &mut reader, read);
        network.stall_all();
        run_soon(&mut writer, "insert into t values (2)");
        drop((writer, far));
        // Nobody has told the store, nor ever will.
        let end = Instant::now() + Duration::from_secs(5);
        while Instant::now() < end {
            assert_eq!(reader.value(read), "2");
        }
        assert_eq!(warm(&near, &mut reader, read)[0][0], "2");
    }
}

#[test]
fn what_a_weir_that_died_cut_off_from_the_store_has_left_running_is_seen_when_it_is_over() {
    let Some(Split { _store, ground, network, near, far }) = Split::start(Kind::Memcached) else { return };
    let (mut reader, mut writer, mut direct, mut lock) =
        (ground.client(&near), ground.client(&far), ground.direct(), ground.direct());
    let read = "select count(*) from t";
    warm(&near, &mut reader, read);
    lock.run("begin; lock table t in share mode");
    network.stall_all();
    writer.send(&wire::query("insert into t values (2)"));
    let runs = "select count(*) from pg_locks where relation = 't'::regclass and not granted";
    wait_until("the write to wait for the lock", || direct.value(runs) == "1");
    drop((writer, far));
    let (before, end) = (hits(&near), Instant::now() + Duration::from_secs(5));
    while Instant::now() < end {
        assert_eq!(reader.value(read), "1");
    }
    assert_eq!(hits(&near), before, "answers from the store while what nobody will tell of may be committed any time");
    assert!(near.log().contains("another Weir may have been lost"), "{}", near.log());
    lock.run("commit");
    wait_until("the write to be over", || direct.value(read) == "2");
    assert_eq!(reader.value(read), "2");
    assert_eq!(warm(&near, &mut reader, read)[0][0], "2");
}

#[test]
fn what_the_store_has_said_to_a_statement_that_a_server_answered_is_not_given_to_the_next() {
    let Some(store) = Store::start(Kind::Memcached) else { return };
    let ground = Ground::new();
    ground.prepare("create table t as select 1 as a");
    let network = Network::to(store.port.number());
    let near = ground.primary_proxy(&store.own_conf());
    let far = ground.primary_proxy(&format!("{}memqcache_timeout = 2s\n", store.conf(network.port())));
    let read = "select a from t";
    let mut definer = ground.client(&near);
    definer.run("create table one (a int)");
    wait_for_catalog(&mut definer, &ground.database);
    let mut readers: Vec<Raw> = (0..8).map(|_| ground.client(&far)).collect();
    readers.iter_mut().for_each(|reader| assert_eq!(warm(&far, reader, read)[0][0], "1"));
    // From now on what a worker hears of the store is held up. Of those who ask, some are another worker's.
    network.stall_first(&[Toward::Client]);
    readers.iter_mut().for_each(|reader| reader.send(&wire::query(read)));
    let (mut held, mut free) = (Vec::new(), Vec::new());
    for mut reader in readers {
        let is_held = reader.is_silent_for(Duration::from_millis(50));
        if is_held { &mut held } else { &mut free }.push(reader);
    }
    free.iter_mut().for_each(|reader| drop(reader.until_ready()));
    let (Some(reader), Some(other)) = (held.first_mut(), free.first_mut()) else { panic!("all are one worker's") };
    // What is defined has changed, as the other worker hears, and no catalog can be read.
    let mut lock = ground.direct();
    lock.run("begin; lock table pg_catalog.pg_rewrite");
    definer.run("create table another (a int)");
    wait_until("the other worker to hear of it", || {
        other.rows(read);
        let rows = other.rows("show pool_catalogs");
        rows.iter().any(|row| row[0] == ground.database && row[1] != "current")
    });
    network.go_on();
    assert_eq!(first_value(&reader.until_ready()).unwrap(), "1");
    lock.run("commit");
    warm(&far, other, read);
    reader.run("update t set a = 2");
    assert_eq!(reader.value(read), "2");
}

#[test]
fn a_write_that_waits_and_is_skipped_since_its_parse_has_failed_leaves_no_marks() {
    let Some(Split { _store, ground, network, near, far }) = Split::start(Kind::Memcached) else { return };
    let (mut reader, mut writer) = (ground.client(&near), ground.client(&far));
    let read = "select count(*) from t";
    warm(&near, &mut reader, read);
    writer.run("insert into t values (2)");
    // The server says no long before the store knows.
    network.set(Toward::Client, Fault::Delay(Duration::from_millis(90)));
    let insert = wire::parse("", "insert into t select nothing_of_that_name");
    writer.send(&[insert, wire::bind("", "", &[]), wire::execute("", 0), wire::sync()].concat());
    assert!(tags(&writer.until_ready()).starts_with('E'));
    network.set(Toward::Client, Fault::None);
    // It says nothing more, and stays.
    assert_eq!(warm(&near, &mut reader, read)[0][0], "2");
    drop(writer);
}

#[test]
fn a_write_that_waits_while_invalidation_is_switched_off_leaves_no_marks() {
    let Some(store) = Store::start(Kind::Memcached) else { return };
    let ground = Ground::new();
    ground.prepare("create table t as select 1 as a");
    let network = Network::to(store.port.number());
    let near = ground.primary_proxy(&store.own_conf());
    let far = ground.primary_proxy(&format!("{}memqcache_timeout = 2s\nworker_threads = 1\n", store.conf(network.port())));
    let (mut reader, mut writer, mut other) = (ground.client(&near), ground.client(&far), ground.client(&far));
    let read = "select count(*) from t";
    warm(&near, &mut reader, read);
    network.stall_all();
    writer.send(&wire::query("insert into t values (2)"));
    assert!(writer.is_silent_for(Duration::from_millis(50)), "it waits until the store knows");
    far.add_conf("memqcache_auto_cache_invalidation = off");
    far.reload();
    assert!(tags(&writer.until_ready()).ends_with('Z'));
    network.cut();
    network.go_on();
    // The writer stays, and says nothing more. Who asks on its worker asks after its marks were sent.
    assert_eq!(warm(&far, &mut other, read)[0][0], "1", "nobody was told of the write, as was wished");
    assert_eq!(warm(&near, &mut reader, read)[0][0], "1");
    drop(writer);
}

#[test]
fn stamps_of_a_weir_that_was_killed_right_after_it_had_made_them_are_trusted_soon() {
    let Some(Split { _store: store, ground, network: _network, near, far }) = Split::start(Kind::Memcached) else { return };
    let (mut reader, mut first) = (ground.client(&near), ground.client(&far));
    let read = "select count(*) from t";
    let own = store.port.number();
    wait_until("a stamp that is young", || {
        first.rows(read);
        store.say(&format!("get test_{own}:s:0\r\n")).contains("y\r\n")
    });
    drop((first, far));
    assert_eq!(warm(&near, &mut reader, read)[0][0], "1");
}

#[test]
fn a_weir_that_was_killed_while_it_told_of_a_change_that_is_past_keeps_no_answers_out_for_long() {
    let Some(Split { _store: store, ground, network, near, far }) = Split::start(Kind::Memcached) else { return };
    let (mut reader, mut admin) = (ground.client(&near), ground.client(&far));
    let read = "select count(*) from t";
    let own = store.port.number();
    let has_marks = || store.say(&format!("get test_{own}:s:0\r\n")).contains(',');
    warm(&far, &mut admin, read);
    warm(&near, &mut reader, read);
    assert!(!has_marks());
    // It never hears that its mark is there, and so does not take it away.
    network.stall_present(&[Toward::Client]);
    admin.send(&wire::query("PGPOOL SET CACHE DELETE"));
    wait_until("the mark of the change", has_marks);
    drop((admin, far));
    assert_eq!(warm(&near, &mut reader, read)[0][0], "1");
}

#[test]
fn answers_are_spread_over_hosts_and_one_that_goes_is_missed() {
    let (Some(one), Some(mut other)) = (Store::start(Kind::Memcached), Store::start(Kind::Memcached)) else { return };
    let ground = Ground::new();
    let tables: Vec<String> = (0..8).map(|at| format!("t{at}")).collect();
    tables.iter().for_each(|table| ground.prepare(&format!("create table {table} as select 1 as a")));
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", one.port.number(), other.port.number());
    let conf = format!("{}memqcache_memcached_host = '{hosts}'\n", one.own_conf());
    let (near, far) = (ground.primary_proxy(&conf), ground.primary_proxy(&conf));
    let (mut reader, mut writer) = (ground.client(&near), ground.client(&far));
    let count = |table: &str| format!("select count(*) from {table}");
    tables.iter().for_each(|table| drop(reader.rows(&count(table))));
    tables.iter().for_each(|table| drop(warm(&near, &mut reader, &count(table))));
    let items = |store: &Store| store.say("stats\r\n");
    assert!([&one, &other].iter().all(|store| !items(store).contains("STAT curr_items 0\r")), "both hold something");
    // Each host has stamps of its own of what all answers hang on: to go from one to the other is no change.
    wait_until("one after the other to be hits", || tables.iter().all(|table| is_hit(&near, &mut reader, &count(table))));
    let write = |writer: &mut Raw, reader: &mut Raw, expected: &str| {
        for table in &tables {
            run_soon(writer, &format!("insert into {table} values (1)"));
            assert_eq!(reader.value(&count(table)), expected, "{table}");
        }
    };
    write(&mut writer, &mut reader, "2");
    other.kill();
    write(&mut writer, &mut reader, "3");
    other.start_again();
    for table in &tables {
        assert_eq!(warm(&near, &mut reader, &count(table))[0][0], "3");
    }
    write(&mut writer, &mut reader, "4");
}

#[test]
fn questions_that_seldom_come_twice_are_looked_for_when_they_do() {
    let Some(store) = Store::start(Kind::Memcached) else { return };
    let ground = Ground::new();
    ground.prepare(OBJECTS);
    let proxy = ground.primary_proxy(&store.own_conf());
    let mut client = ground.client(&proxy);
    warm(&proxy, &mut client, "select count(*) from t");
    let spared = || proxy.metric("cache_stores_spared_total");
    (0..500).for_each(|number| drop(client.rows(&format!("select b from t where a = {number}"))));
    assert_eq!(spared(), 0, "so few questions are no burden");
    (500..3000).for_each(|number| drop(client.rows(&format!("select b from t where a = {number}"))));
    let before = spared();
    assert!(before > 1000, "{before} of 3000 were spared");
    // Once in 32 a new question asks nevertheless: of two in a row one does not.
    (3000..3002).for_each(|number| drop(client.rows(&format!("select b from t where a = {number}"))));
    assert!(spared() > before, "new ones are still spared");
    let text = "select b from t where a = 3001";
    assert_eq!(warm(&proxy, &mut client, text), client.rows(text));
    let spared_before = spared();
    assert!(is_hit(&proxy, &mut client, text) && spared() == spared_before, "asked for again it comes from the store");
}
