//! Servers that come back by their agents, as a Weir before them orders it.

use super::stand::{Agent, SECRET, fast, servers, servers_that_keep, wait_streams};
use crate::failover::load::Load;
use crate::support::ground::{LIMIT, Owned};
use crate::support::proxy::{pcp, show};
use crate::support::time::happens_within;
use crate::support::{Proxy, Raw, wait_until};
use rustix::process::{Pid, Signal};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use weir_demo::{Mode, ReservedPort, Server, Sql, signal_process};

const BUILTIN: &str = "failover_mode = builtin\nhealth_check_period = 1\nhealth_check_timeout = 1\nhealth_check_max_retries = 1\n\
    health_check_retry_delay = 1\nfailover_on_backend_shutdown = on\nfailover_lag_max = -1\nagent_secret_file = 'agent_secret'\n";

pub fn before(cluster: &Owned, agents: &[&Agent], more: &str) -> Proxy {
    let mut conf = format!("{BUILTIN}{more}\n");
    for (at, (server, agent)) in cluster.servers().iter().zip(agents).enumerate() {
        let (name, port) = (server.name(), agent.port.number());
        conf += &format!("backend_application_name{at} = '{name}'\nbackend_agent{at} = '127.0.0.1:{port}'\n");
    }
    let servers: Vec<&Server> = cluster.servers().iter().collect();
    // Without that file PCP is not served.
    let pcp = if more.contains("pcp_port") { "pcp.conf" } else { "no_pcp.conf" };
    let files = [("agent_secret", SECRET), (pcp, "admin:21232f297a57a5a743894a0e4a801fc3\n")];
    let proxy = Proxy::with_files(&servers, &conf, &files, &[]);
    wait_until("the driver to let writes through", || proxy.log().contains("writes go to node 0"));
    proxy
}

pub fn new_primary<'c>(cluster: &'c Owned, old: &Server) -> &'c Server {
    let mut found = None;
    wait_until("a new primary", || {
        let others = cluster.servers().iter().filter(|server| server.port() != old.port());
        found = others.into_iter().find(|server| server.value("select pg_is_in_recovery()").is_ok_and(|answer| answer == "f"));
        found.is_some()
    });
    found.unwrap()
}

fn wait_up(proxy: &Proxy, nodes: usize) {
    wait_until("all nodes to be in use", || proxy.nodes("status") == vec!["up"; nodes]);
}

#[test]
fn an_old_primary_that_was_killed_under_load_comes_back_without_a_hand() {
    let Some(cluster) = servers(2) else { return };
    let agents: Vec<Agent> = cluster.servers().iter().map(Agent::beside).collect();
    // On a busy machine standbys are taken for dead, too, and no agent brings those back.
    let proxy = before(&cluster, &agents.iter().collect::<Vec<_>>(), "auto_failback = on\nauto_failback_interval = 0");
    let load = Load::begin(&proxy, 4);
    let old = cluster.primary();
    old.kill9().unwrap();
    let killed = Instant::now();
    let new = new_primary(&cluster, old);
    load.wait_acknowledged(100);
    wait_streams(old, new);
    eprintln!("kill -9 under load: it streams again after {} ms", killed.elapsed().as_millis());
    wait_up(&proxy, 3);
    load.wait_acknowledged(100);
    let outcome = load.end();
    assert!(outcome.missing_on(new).is_empty() || proxy.log().contains("lost: at most"));
    let count = || new.value("select count(*) from written").unwrap();
    wait_until("the old primary to have all", || old.value("select count(*) from written").unwrap() == count());
    assert_eq!(old.value("select pg_is_in_recovery()").unwrap(), "t");
    assert!(proxy.log().contains("was started as a standby of node"));
}

#[test]
fn one_that_hangs_is_stopped_by_its_agent_and_comes_back() {
    let Some(cluster) = servers(1) else { return };
    let agents: Vec<Agent> = cluster.servers().iter().map(Agent::beside).collect();
    let proxy = before(&cluster, &agents.iter().collect::<Vec<_>>(), "failover_alone = on");
    let old = cluster.primary();
    old.stop(Mode::Immediate).unwrap();
    let new = new_primary(&cluster, old);
    wait_streams(old, new);
    wait_up(&proxy, 2);
    // The other way round.
    new.freeze();
    assert_eq!(new_primary(&cluster, new).port(), old.port());
    wait_streams(new, old);
    wait_up(&proxy, 2);
}

#[test]
fn an_agent_that_dies_meanwhile_only_delays_it() {
    let Some(cluster) = servers(1) else { return };
    let mut agents: Vec<Agent> = cluster.servers().iter().map(Agent::beside).collect();
    let proxy = before(&cluster, &agents.iter().collect::<Vec<_>>(), "failover_alone = on");
    let old = cluster.primary();
    old.kill9().unwrap();
    let new = new_primary(&cluster, old);
    for _ in 0..4 {
        let begun = |agent: &Agent| agent.log().matches("begins").count();
        let before = begun(&agents[0]);
        let is_back = || new.value("select count(*) from pg_stat_replication").is_ok_and(|count| count == "1");
        if !happens_within(Duration::from_secs(20), || begun(&agents[0]) > before || is_back()) || is_back() {
            break;
        }
        agents[0].crash_and_start();
    }
    wait_streams(old, new);
    wait_up(&proxy, 2);
}

#[test]
fn a_server_that_is_set_to_use_a_slot_gets_it_on_its_new_primary() {
    let Some(cluster) = servers(1) else { return };
    let agents: Vec<Agent> = cluster.servers().iter().map(Agent::beside).collect();
    let proxy = before(&cluster, &agents.iter().collect::<Vec<_>>(), "failover_alone = on");
    let old = cluster.primary();
    // As an operator does who wants one for every server, whatever it is now: the setting is of no effect on a primary.
    let conf = old.data_dir().join("postgresql.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    std::fs::write(&conf, format!("{text}\nprimary_slot_name = 'of_the_first'\n")).unwrap();
    old.kill9().unwrap();
    let new = new_primary(&cluster, old);
    let uses = |primary: &Server, name: &str| {
        let text = format!("select active from pg_replication_slots where slot_name = '{name}'");
        wait_until("the slot to be in use", || primary.value(&text).is_ok_and(|active| active == "t"));
    };
    uses(new, "of_the_first");
    wait_streams(old, new);
    wait_up(&proxy, 2);
    // The other way round, and by a copy: without its log a server cannot be rewound.
    new.query("alter system set primary_slot_name = 'of_the_second'").unwrap();
    new.kill9().unwrap();
    let wal = std::fs::read_dir(new.data_dir().join("pg_wal")).unwrap().map(|entry| entry.unwrap().path());
    wal.filter(|path| path.is_file()).for_each(|path| std::fs::remove_file(path).unwrap());
    assert_eq!(new_primary(&cluster, new).port(), old.port());
    uses(old, "of_the_second");
    wait_streams(new, old);
    wait_up(&proxy, 2);
    assert!(proxy.log().contains("it cannot be rewound, and is copied"), "{}", proxy.log());
}

#[test]
fn agent_rejoin_off_leaves_it_to_the_operator() {
    let Some(cluster) = servers(1) else { return };
    let agents: Vec<Agent> = cluster.servers().iter().map(Agent::beside).collect();
    let proxy = before(&cluster, &agents.iter().collect::<Vec<_>>(), "failover_alone = on\nagent_rejoin = off");
    let old = cluster.primary();
    old.kill9().unwrap();
    new_primary(&cluster, old);
    // That it runs no more was asked for before another was promoted.
    let is_return = |line: &str| line.contains("begins") && !line.contains("stop, ordered by");
    let does = happens_within(Duration::from_secs(4), || agents[0].log().lines().any(is_return));
    assert!(!does, "{}", agents[0].log());
    drop(proxy);
}

#[test]
fn a_node_is_made_anew_by_its_agent_without_scripts() {
    let Some(cluster) = servers(1) else { return };
    let agents: Vec<Agent> = cluster.servers().iter().map(Agent::beside).collect();
    let (proxy, port) = before_with_pcp(&cluster, &agents);
    let (primary, standby) = (cluster.primary(), &cluster.standbys()[0]);
    let recover = || recover(&proxy, &port);
    let (done, words) = recover();
    assert!(!done && words.contains("is alive"), "{words}");
    standby.stop(Mode::Fast).unwrap();
    std::fs::remove_dir_all(standby.data_dir().join("base")).unwrap();
    primary.query("insert into written values (7)").unwrap();
    let (done, words) = recover();
    assert!(done, "{words}\n{}", proxy.log());
    wait_streams(standby, primary);
    assert_eq!(standby.value("select number from written").unwrap(), "7");
    wait_up(&proxy, 2);
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).arg("agent-status").arg("-f").arg(proxy.conf_path()).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && shown.contains("node 0: primary on port") && shown.contains("node 1: standby on"),
        "{shown}"
    );
}

/// Rounds of the log while a copy is held.
const ROUNDS: usize = 3;
/// Copies that are made until one was held: each is under way for a moment only, which a busy machine may let pass unseen.
const COPIES_MAX: usize = 10;

/// The log of the source during copies.
#[derive(Default)]
struct Churn {
    /// Times that a file of it was begun and what nobody keeps was removed, while a copy was under way.
    rounds: usize,
    /// Copies made a slot of their own.
    has_own_slots: bool,
}

impl Churn {
    /// Writes, begins a file of the log, and has those removed that nobody keeps.
    fn round(&mut self, source: &Server) {
        source.query("insert into written values (8)").unwrap();
        source.query("select pg_switch_wal()").unwrap();
        source.query("checkpoint").unwrap();
        self.has_own_slots |= source.value("select count(*) > 0 from pg_replication_slots where temporary").unwrap() == "t";
    }
}

/// The process of a server that sends a copy, held in the middle of it. It goes on in any case.
struct Held(Pid);

impl Held {
    /// `None`: no files are sent at the moment.
    fn of(sql: &mut Sql) -> Option<Held> {
        let text = "select pid from pg_stat_progress_basebackup where phase = 'streaming database files'";
        let pid = sql.query(text).unwrap().into_iter().flatten().next().flatten()?;
        let sender = Pid::from_raw(pid.parse().unwrap())?;
        signal_process(sender, Signal::STOP).is_ok().then_some(Held(sender))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // It may have ended.
        let _ = signal_process(self.0, Signal::CONT);
    }
}

/// Holds a copy for some rounds of the log, and goes on with them until it is told to stop.
fn churn(source: &Server, is_over: &AtomicBool) -> Churn {
    let mut seen = Churn::default();
    let mut sql = source.connect("postgres", "postgres").unwrap();
    while !is_over.load(Ordering::Relaxed) {
        if seen.rounds > 0 {
            seen.round(source);
        } else if let Some(_held) = Held::of(&mut sql) {
            while seen.rounds < ROUNDS {
                seen.round(source);
                seen.rounds += 1;
            }
        }
    }
    seen
}

#[test]
fn a_copy_streams_by_its_slot_though_the_source_removes_its_log_all_the_while() {
    let Some(cluster) = servers_that_keep(1, "0") else { return };
    let agents: Vec<Agent> = cluster.servers().iter().map(Agent::beside).collect();
    let (proxy, port) = before_with_pcp(&cluster, &agents);
    let (primary, standby) = (cluster.primary(), &cluster.standbys()[0]);
    // So that a copy takes a while.
    primary.query("create table bulk as select repeat('x', 1000) from generate_series(1, 60000)").unwrap();
    let make = || primary.query("select pg_create_physical_replication_slot('of_the_standby')").unwrap();
    standby.stop(Mode::Fast).unwrap();
    let conf = standby.data_dir().join("postgresql.conf");
    let text = std::fs::read_to_string(&conf).unwrap();
    std::fs::write(&conf, format!("{text}\nprimary_slot_name = 'of_the_standby'\n")).unwrap();
    // As operators make it: it has no position before somebody streams.
    make();
    let (mut copies, mut held) = (0, 0);
    while held < 2 {
        copies += 1;
        assert!(copies <= COPIES_MAX, "{held} of {COPIES_MAX} copies were held");
        let round = if held == 0 { "a slot without a position" } else { "one that the standby has used" };
        let is_over = AtomicBool::new(false);
        let seen = thread::scope(|scope| {
            let churning = scope.spawn(|| churn(primary, &is_over));
            let (done, words) = recover(&proxy, &port);
            // It goes on until the standby has caught up.
            let text = "select wal_status from pg_replication_slots where slot_name = 'of_the_standby' and active";
            let streams = done && happens_within(LIMIT, || primary.value(text).is_ok_and(|status| status == "reserved"));
            is_over.store(true, Ordering::Relaxed);
            let seen = churning.join().unwrap();
            assert!(streams, "{round}: {words}\n{}", proxy.log());
            seen
        });
        assert!(!seen.has_own_slots, "{round}: the standby's slot is enough");
        let count = || primary.value("select count(*) from written").unwrap();
        wait_until("the standby to have all", || standby.value("select count(*) from written").is_ok_and(|own| own == count()));
        wait_up(&proxy, 2);
        // Its agent has started it.
        agents[1].order(fast()).unwrap();
        wait_until("its slot to be free", || primary.value("select active from pg_replication_slots").unwrap() == "f");
        if seen.rounds >= ROUNDS {
            held += 1;
        } else if held == 0 {
            primary.query("select pg_drop_replication_slot('of_the_standby')").unwrap();
            make();
        }
    }
}

/// Sizes that are waited for while a copy goes on.
const SIZES: usize = 3;
/// `pg_basebackup` tells its progress once a second, and the agent and Weir pass it on as often.
const TOLD_WITHIN: Duration = Duration::from_secs(4);

/// The first row of `SHOW pool_recovery`: work, bytes copied, total, rate, time left.
fn shown_recovery(client: &mut Raw) -> Option<[String; 5]> {
    let of = |client: &mut Raw, column| show(client, "pool_recovery", column).into_iter().next();
    let doing = of(client, "doing")?;
    // It may end between two questions.
    let [done, total, rate, left] =
        ["done_bytes", "total_bytes", "bytes_per_second", "seconds_left"].map(|column| of(client, column).unwrap_or_default());
    Some([doing, done, total, rate, left])
}

/// Lets a copy go on by small steps, and notes each size that is shown until `is_over`. Holds nothing any more once it has enough.
fn sizes_shown(source: &Server, client: &mut Raw, is_over: impl Fn() -> bool) -> Vec<[String; 5]> {
    let mut sql = source.connect("postgres", "postgres").unwrap();
    let mut seen: Vec<[String; 5]> = Vec::new();
    while seen.len() < SIZES && !is_over() {
        let Some(_held) = Held::of(&mut sql) else { continue };
        happens_within(TOLD_WITHIN, || {
            let row = shown_recovery(client).filter(|row| row[0] == "base backup" && row[1] != "0" && !row[1].is_empty());
            let row = row.filter(|row| seen.last().is_none_or(|before| before[1] != row[1]));
            seen.extend(row.clone());
            row.is_some()
        });
    }
    seen
}

#[test]
fn show_pool_recovery_tells_growing_bytes_while_a_node_is_made_anew() {
    let Some(cluster) = servers(1) else { return };
    let agents: Vec<Agent> = cluster.servers().iter().map(Agent::beside).collect();
    let (proxy, port) = before_with_pcp(&cluster, &agents);
    let (primary, standby) = (cluster.primary(), &cluster.standbys()[0]);
    // So that a copy takes a while.
    primary.query("create table bulk as select repeat('x', 1000) from generate_series(1, 200000)").unwrap();
    let mut admin = Raw::unix(proxy.folder(), proxy.port()).log_in("pgbouncer", "pgbouncer", &[]).expect("the console");
    assert_eq!(shown_recovery(&mut admin), None);
    standby.stop(Mode::Fast).unwrap();
    for copies in 1.. {
        assert!(copies <= COPIES_MAX, "no copy was held long enough");
        let (seen, (done, words)) = thread::scope(|scope| {
            let recovering = scope.spawn(|| recover(&proxy, &port));
            let seen = sizes_shown(primary, &mut admin, || recovering.is_finished());
            (seen, recovering.join().unwrap())
        });
        assert!(done, "{words}\n{}", proxy.log());
        wait_until("nothing to be under way", || shown_recovery(&mut proxy.console()).is_none());
        if seen.len() >= SIZES {
            let bytes = |row: &[String; 5], at: usize| row[at].parse::<u64>().unwrap_or_else(|_| panic!("{row:?}"));
            let is_growing = seen.windows(2).all(|two| bytes(&two[0], 1) < bytes(&two[1], 1));
            assert!(is_growing && seen.iter().all(|row| bytes(row, 1) < bytes(row, 2)), "{seen:?}");
            let last = &seen[SIZES - 1];
            assert!(bytes(last, 3) > 0 && bytes(last, 4) > 0, "a rate and the time that is left: {last:?}");
            break;
        }
        wait_up(&proxy, 2);
        // Its agent has started it.
        agents[1].order(fast()).unwrap();
    }
    wait_streams(standby, primary);
}

/// Weir, and the port at which it serves PCP.
fn before_with_pcp(cluster: &Owned, agents: &[Agent]) -> (Proxy, ReservedPort) {
    let port = ReservedPort::any().unwrap();
    let more = format!("pcp_listen_addresses = '127.0.0.1'\npcp_port = {}\npcp_socket_dir = ''\n", port.number());
    let proxy = before(cluster, &agents.iter().collect::<Vec<_>>(), &more);
    proxy.write_file("pcppass", &format!("*:*:admin:{PASSWORD}\n"));
    (proxy, port)
}

/// Has node 1 made anew. True if that was done, and what the operator reads.
fn recover(proxy: &Proxy, port: &ReservedPort) -> (bool, String) {
    let output = pcp(port.number(), &proxy.folder().join("pcppass"), &["recovery_node", "-n", "1"]);
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Its digest stands above.
const PASSWORD: &str = "admin";
