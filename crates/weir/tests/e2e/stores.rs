//! Answers that lie in memcached or Redis, of one Weir: see `stores_wal` for several.
//!
//! Without `memcached` and `redis-server` (Debian: packages of these names) these tests say so and do nothing.

use super::cache::{OBJECTS, REGISTERS, WRITES, history, hits, is_hit, warm};
use crate::support::faults::{Network, Toward};
use crate::support::ground::{cluster, wait_for_catalog};
use crate::support::proxy::Folder;
use crate::support::raw::first_value;
use crate::support::{Ground, Proxy, Raw, wait_until, wire};
use rustix::process::{Pid, Signal};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_demo::{ReservedPort, signal_process};

/// Longest time a statement may take when its store is gone: `memqcache_timeout`, on a busy machine.
const LIMIT: Duration = Duration::from_secs(4);

/// Answers from the store between two troubles of a history.
const HITS_BETWEEN: u64 = 20;

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
    /// Options of its command line; `PORT` stands for the port.
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
            crate::support::leave_out(&format!(
                "there is no {} (Debian: apt-get install memcached redis-server)",
                kind.program()
            ));
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

    /// Redis' reply to a command, in its own form.
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

    /// A section of Redis' INFO.
    pub(super) fn section(&self, name: &str) -> String {
        self.bulk(&format!("INFO {name}"))
    }

    /// The first line of Redis' answer.
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
        signal_process(Pid::from_child(&self.process), signal).unwrap();
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
fn no_write_through_weir_leaves_an_answer_in_its_store_that_is_not_true() {
    for kind in BOTH {
        let Some(store) = Store::start(kind) else { return };
        let ground = Ground::new();
        ground.prepare(OBJECTS);
        let proxy = ground.primary_proxy(&store.own_conf());
        let (mut reader, mut writer, mut direct) = (ground.client(&proxy), ground.client(&proxy), ground.direct());
        for (read, write) in WRITES {
            let before = warm(&proxy, &mut reader, read);
            assert_eq!(before, direct.rows(read), "{read}");
            writer.run(write);
            let (after, expected) = (reader.rows(read), direct.rows(read));
            assert_eq!(after, expected, "{read} after {write}");
            assert_ne!(before, expected, "{write} does not change {read}");
            assert_eq!(writer.rows(read), expected, "the writer itself: {read} after {write}");
        }
        let text = "select count(*) from other";
        warm(&proxy, &mut reader, text);
        writer.extended("insert into other values ($1)", &["8"]).unwrap();
        assert_eq!(reader.rows(text), direct.rows(text));
    }
}

#[test]
fn a_store_is_of_one_start_of_one_weir_where_the_log_is_not_followed() {
    for kind in BOTH {
        let Some(store) = Store::start(kind) else { return };
        let ground = Ground::new();
        ground.prepare("create table t as select 1 as a");
        let conf = format!("{}worker_threads = 1\n", store.own_conf());
        let read = "select count(*) from t";
        for count in 1..=2 {
            let (one, other) = (ground.primary_proxy(&conf), ground.primary_proxy(&conf));
            let (mut first, mut second) = (ground.client(&one), ground.client(&other));
            assert_eq!(warm(&one, &mut first, read)[0][0], count.to_string(), "after the write of a Weir before");
            wait_for_catalog(&mut second, &ground.database);
            // The second sight asks the store, in which only others' answers lie.
            (0..2).for_each(|_| assert!(!is_hit(&other, &mut second, read), "an answer of another Weir's"));
            wait_until("the second to ask", || {
                second.rows(read);
                other.metric("cache_stores_asked_total") > 0
            });
            warm(&other, &mut second, read);
            assert_eq!(one.log().matches("this Weir's alone").count(), 1, "{}", one.log());
            if count == 1 {
                first.run("insert into t values (2)");
            }
        }
    }
}

/// Two Weirs or one while a history goes on.
pub(super) struct Watch<'w> {
    proxies: &'w [&'w Proxy],
    is_over: &'w AtomicBool,
}

impl Watch<'_> {
    /// Waits until something is so, or the history is over.
    fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        wait_until(what, || self.is_over.load(Ordering::SeqCst) || is_so());
    }

    /// Waits until there were some more answers from the store, or the history is over.
    pub(super) fn until_hits(&self) {
        let count = || self.proxies.iter().map(|proxy| hits(proxy)).sum::<u64>();
        let before = count();
        self.until("more answers from the store", || count() >= before + HITS_BETWEEN);
    }

    /// How often a Weir has noticed that the store is gone.
    fn lost(&self) -> u64 {
        self.proxies.iter().map(|proxy| proxy.metric("cache_stores_lost_total")).sum()
    }
}

/// Runs the history of `cache`, while something happens to the store again and again. Returns the faults, and the hits.
pub(super) fn one_weir<S: Send>(
    store: &mut S,
    conf: &str,
    mut trouble: impl FnMut(&mut S, &Watch<'_>) + Send,
) -> (Vec<String>, u64) {
    let cluster = cluster(1);
    for at in 0..REGISTERS {
        cluster.primary().query(&format!("create table r{at} as select 0 as v")).unwrap();
    }
    cluster.wait_caught_up().unwrap();
    let proxy = Proxy::start(&cluster, conf);
    wait_for_catalog(&mut proxy.console(), "postgres");
    let (is_over, has_begun, proxies) = (AtomicBool::new(false), AtomicBool::new(false), [&proxy]);
    let watch = Watch { proxies: &proxies, is_over: &is_over };
    let wrong = std::thread::scope(|scope| {
        scope.spawn(|| {
            wait_until("the history to begin", || has_begun.load(Ordering::SeqCst));
            while !is_over.load(Ordering::SeqCst) {
                trouble(store, &watch);
            }
        });
        let wrong = history(&proxies, &cluster.standbys()[0], &|| has_begun.store(true, Ordering::SeqCst));
        is_over.store(true, Ordering::SeqCst);
        wrong
    });
    (wrong, hits(&proxy))
}

#[test]
fn no_history_over_a_store_shows_a_value_that_no_server_would_have_shown() {
    for kind in BOTH {
        let Some(mut store) = Store::start(kind) else { return };
        let conf = store.own_conf();
        let (wrong, hits) = one_weir(&mut store, &conf, |_, watch| watch.until_hits());
        assert!(wrong.is_empty(), "{} of them, the first: {}", wrong.len(), wrong[0]);
        assert!(hits > 0);
        let off = format!("{conf}memqcache_auto_cache_invalidation = off");
        let (wrong, _) = one_weir(&mut store, &off, |_, watch| watch.until_hits());
        assert!(!wrong.is_empty(), "without invalidation nothing is found wrong: this test finds nothing");
    }
}

#[test]
fn a_store_that_forgets_hangs_or_is_started_again_makes_nothing_wrong() {
    for kind in BOTH {
        let Some(mut store) = Store::start(kind) else { return };
        let (mut turn, conf) = (0, format!("{}memqcache_timeout = 100\n", store.own_conf()));
        // On a busy machine a history may be over after one of them.
        while turn < 3 {
            let (wrong, hits) = one_weir(&mut store, &conf, |store, watch| {
                watch.until_hits();
                turn += 1;
                match turn % 3 {
                    0 => {
                        store.kill();
                        store.start_again();
                    }
                    1 => store.flush(),
                    _ => {
                        let before = watch.lost();
                        store.signal(Signal::STOP);
                        watch.until("the store to be missed", || watch.lost() > before);
                        store.signal(Signal::CONT);
                    }
                }
            });
            assert!(wrong.is_empty(), "{} of them, the first: {}", wrong.len(), wrong[0]);
            assert!(hits > 0);
        }
    }
}

#[test]
fn what_was_garbled_cut_off_or_is_of_another_question_is_a_miss() {
    let Some(store) = Store::start(Kind::Redis) else { return };
    let ground = Ground::new();
    let tables: Vec<String> = (0..4).map(|at| format!("t{at}")).collect();
    tables.iter().enumerate().for_each(|(at, table)| ground.prepare(&format!("create table {table} as select {at} as a")));
    let proxy = ground.primary_proxy(&store.own_conf());
    let mut client = ground.client(&proxy);
    let read = |table: &str| format!("select a from {table}");
    for act in [
        // Each key gets another one's value; or one changed letter; or loses its end; or becomes rubbish.
        "local last = redis.call('GET', keys[#keys]) for _, key in ipairs(keys) do local own = redis.call('GET', key) \
         redis.call('SET', key, last) last = own end",
        "for _, key in ipairs(keys) do redis.call('SETRANGE', key, redis.call('STRLEN', key) - 8, 'x') end",
        "for _, key in ipairs(keys) do redis.call('SET', key, redis.call('GETRANGE', key, 0, -9)) end",
        "for _, key in ipairs(keys) do redis.call('SET', key, 'rubbish') end",
    ] {
        tables.iter().for_each(|table| drop(warm(&proxy, &mut client, &read(table))));
        let answer = store.say(&format!("EVAL \"local keys = redis.call('KEYS', '*') {act} return 'OK'\" 0\r\n"));
        assert!(answer.contains("OK"), "{answer}");
        for (at, table) in tables.iter().enumerate() {
            let before = hits(&proxy);
            assert_eq!(client.value(&read(table)), at.to_string(), "{act}");
            assert_eq!(hits(&proxy), before, "{act}");
        }
    }
}

#[test]
fn who_has_answers_forgotten_gets_none_of_before_from_the_store() {
    let Some(store) = Store::start(Kind::Memcached) else { return };
    let ground = Ground::new();
    ground.prepare("create table t as select 1 as a");
    let proxy = ground.primary_proxy(&store.own_conf());
    let mut client = ground.client(&proxy);
    let read = "select count(*) from t";
    warm(&proxy, &mut client, read);
    client.run("PGPOOL SET CACHE DELETE");
    assert!(!is_hit(&proxy, &mut client, read));
    warm(&proxy, &mut client, read);
}

#[test]
fn a_standby_that_lags_behind_a_write_gives_no_answer_that_stays() {
    let Some(store) = Store::start(Kind::Memcached) else { return };
    let cluster = cluster(1);
    cluster.primary().query("create table t (a int)").unwrap();
    cluster.wait_caught_up().unwrap();
    let conf = format!("{}causal_reads = off", store.own_conf());
    let near = Proxy::start(&cluster, &conf);
    let (mut reader, mut writer) = (near.console(), near.console());
    wait_for_catalog(&mut reader, "postgres");
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
    }
}

/// Runs a statement within the time it may take without a store.
pub(super) fn run_soon(client: &mut Raw, text: &str) {
    let begun = Instant::now();
    client.run(text);
    let took = begun.elapsed();
    assert!(took < LIMIT, "{text} took {took:?}");
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

#[test]
fn what_the_store_has_said_to_a_statement_that_a_server_answered_is_not_given_to_the_next() {
    let Some(store) = Store::start(Kind::Memcached) else { return };
    let ground = Ground::new();
    ground.prepare("create table t as select 1 as a");
    let network = Network::to(store.port.number());
    let far = ground.primary_proxy(&format!("{}memqcache_timeout = 2s\n", store.conf(network.port())));
    let read = "select a from t";
    let mut definer = ground.client(&far);
    definer.run("create table one (a int)");
    wait_for_catalog(&mut definer, &ground.database);
    let mut readers: Vec<Raw> = (0..8).map(|_| ground.client(&far)).collect();
    readers.iter_mut().for_each(|reader| assert_eq!(warm(&far, reader, read)[0][0], "1"));
    // From now on the store's answers to a worker are held up. Some of the readers belong to another worker.
    network.stall_first(&[Toward::Client]);
    readers.iter_mut().for_each(|reader| reader.send(&wire::query(read)));
    let (mut held, mut free) = (Vec::new(), Vec::new());
    for mut reader in readers {
        let is_held = reader.is_silent_for(Duration::from_millis(50));
        if is_held { &mut held } else { &mut free }.push(reader);
    }
    free.iter_mut().for_each(|reader| drop(reader.until_ready()));
    let (Some(reader), Some(other)) = (held.first_mut(), free.first_mut()) else { panic!("all are one worker's") };
    // The definitions have changed, as the other worker hears, and no catalog can be read.
    let mut lock = ground.direct();
    lock.run("begin; lock table pg_catalog.pg_policy");
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
fn answers_are_spread_over_hosts_and_one_that_goes_is_missed() {
    let (Some(one), Some(mut other)) = (Store::start(Kind::Memcached), Store::start(Kind::Memcached)) else { return };
    let ground = Ground::new();
    let tables: Vec<String> = (0..8).map(|at| format!("t{at}")).collect();
    tables.iter().for_each(|table| ground.prepare(&format!("create table {table} as select 1 as a")));
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", one.port.number(), other.port.number());
    let conf = format!("{}memqcache_memcached_host = '{hosts}'\n", one.own_conf());
    let near = ground.primary_proxy(&conf);
    let (mut reader, mut writer) = (ground.client(&near), ground.client(&near));
    let count = |table: &str| format!("select count(*) from {table}");
    tables.iter().for_each(|table| drop(warm(&near, &mut reader, &count(table))));
    let items = |store: &Store| store.say("stats\r\n");
    assert!([&one, &other].iter().all(|store| !items(store).contains("STAT curr_items 0\r")), "both hold something");
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
fn a_question_is_looked_for_in_the_store_on_its_second_sight() {
    let Some(store) = Store::start(Kind::Memcached) else { return };
    let ground = Ground::new();
    ground.prepare(OBJECTS);
    let proxy = ground.primary_proxy(&format!("{}worker_threads = 1\n", store.own_conf()));
    let mut client = ground.client(&proxy);
    warm(&proxy, &mut client, "select count(*) from t");
    let counts = || (proxy.metric("cache_stores_spared_total"), proxy.metric("cache_stores_asked_total"));
    let before = counts();
    (0..500).for_each(|number| drop(client.rows(&format!("select b from t where a = {number}"))));
    assert_eq!(counts(), (before.0 + 500, before.1));
    let text = "select b from t where a = 7";
    assert_eq!(warm(&proxy, &mut client, text), client.rows(text));
    assert!(counts().1 > before.1);
}
