//! Primaries that are moved on purpose, with agents beside real servers and under a load that notes every answer.

mod undo;
mod walk;

use crate::agent::stand::{Agent, SECRET, servers, start};
use crate::failover::load::{Load, Outcome};
use crate::support::ground::Owned;
use crate::support::proxy::{pcp, pcp_command, show};
use crate::support::{Proxy, Raw, wait_until, wire};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use weir_demo::{Crew, Mode, ReservedPort, Server};

/// Weir promotes, looks every second, and shows the events of a switchover in its log.
const BUILTIN: &str = "failover_mode = builtin\nhealth_check_period = 1\nhealth_check_timeout = 1\nhealth_check_max_retries = 1\n\
    health_check_retry_delay = 1\nfailover_on_backend_shutdown = on\nfailover_lag_max = -1\nauto_failback = on\nauto_failback_interval = 0\nlog_min_messages = debug2\n\
    backend_application_name0 = 'primary'\nbackend_application_name1 = 'standby1'\nbackend_application_name2 = 'standby2'\n";
const START: &str = "select pg_postmaster_start_time()";
const WHERE: &str = "select inet_server_port()";
/// Switchovers one after the other; `WEIR_SWITCHOVERS` wants another number of them.
const SWITCHOVERS: usize = 8;
/// The longest pause for writes that is allowed. A machine that builds something else is slow.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Servers, an agent beside each, and a Weir before them.
pub struct Stand {
    pub proxy: Proxy,
    agents: Vec<Agent>,
    cluster: Owned,
    secret: SecretFile,
}

/// The file of the secret as Weir reads it.
struct SecretFile(PathBuf);

impl Drop for SecretFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Stand {
    /// `None`: this machine lacks a program, and the test is left out.
    pub fn new(more: &str) -> Option<Stand> {
        Stand::with(Agent::beside, more)
    }

    /// Operators stop and start the servers.
    fn without_agents(more: &str) -> Option<Stand> {
        Stand::with(|_| None, more)
    }

    fn with<A: Into<Option<Agent>>>(agent: impl Fn(&Server) -> A, more: &str) -> Option<Stand> {
        Some(Stand::of(servers(2)?, agent, more))
    }

    fn of<A: Into<Option<Agent>>>(cluster: Owned, agent: impl Fn(&Server) -> A, more: &str) -> Stand {
        cluster.primary().query("create table readable (a int); insert into readable values (1)").unwrap();
        cluster.wait_caught_up().unwrap();
        let agents: Vec<Agent> = cluster.servers().iter().filter_map(|server| agent(server).into()).collect();
        let number = cluster.primary().port();
        let secret = std::env::temp_dir().join(format!("weir-switchover-{}-{number}", std::process::id()));
        std::fs::write(&secret, format!("{SECRET}\n")).unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        let mut stand = Stand { proxy: Proxy::start(&cluster, ""), agents, cluster, secret: SecretFile(secret) };
        stand.proxy = stand.another(more);
        stand
    }

    /// One more Weir before the same servers.
    fn another(&self, more: &str) -> Proxy {
        self.another_with(more, &[])
    }

    /// With files of these names and texts beside its configuration.
    pub fn another_with(&self, more: &str, files: &[(&str, &str)]) -> Proxy {
        let agent = |(at, agent): (usize, &Agent)| format!("backend_agent{at} = '127.0.0.1:{}'\n", agent.port.number());
        let agents: String = self.agents.iter().enumerate().map(agent).collect();
        let conf = format!("{BUILTIN}backend_weight0 = 0\n{agents}agent_secret_file = '{}'\n{more}", self.secret.0.display());
        let servers: Vec<&Server> = self.cluster.servers().iter().collect();
        let proxy = Proxy::with_files(&servers, &conf, files, &[]);
        wait_until("the driver to let writes through", || proxy.log().contains("writes go to node"));
        wait_until("all nodes to be seen", || proxy.nodes("status") == ["up", "up", "up"]);
        proxy
    }

    /// Has Weir serve PCP, too, on the port that is given.
    fn serve_pcp(&mut self, more: &str) -> ReservedPort {
        let port = ReservedPort::any().unwrap();
        let more = format!("pcp_listen_addresses = '127.0.0.1'\npcp_port = {}\npcp_socket_dir = ''\n{more}", port.number());
        self.proxy = self.another_with(&more, &[("pcp.conf", "admin:21232f297a57a5a743894a0e4a801fc3\n")]);
        self.proxy.write_file("pcppass", "*:*:admin:admin\n");
        port
    }

    fn passfile(&self) -> PathBuf {
        self.proxy.folder().join("pcppass")
    }

    pub fn server(&self, node: usize) -> &Server {
        &self.cluster.servers()[node]
    }

    /// Moves the primary. Error: the text that the operator reads.
    fn move_to(&self, node: usize) -> Result<(), String> {
        ask(self.proxy.folder(), self.proxy.port(), node)
    }

    fn primary(&self) -> usize {
        self.proxy.nodes("role").iter().position(|role| role == "primary").expect("a primary")
    }

    /// The promises after anything: one primary, and no acknowledged write is missing there.
    pub fn check(&self, name: &str, outcome: &Outcome) -> usize {
        let is_primary = |server: &&Server| server.value("select pg_is_in_recovery()").is_ok_and(|is| is == "f");
        wait_until("one primary", || self.cluster.servers().iter().filter(is_primary).count() == 1);
        let new = self.cluster.servers().iter().find(is_primary).unwrap();
        let at = self.cluster.servers().iter().position(|server| server.port() == new.port()).unwrap();
        eprintln!(
            "{name}: {} acknowledged, longest pause {} ms, {} sessions lost, errors {:?}",
            outcome.acknowledged.len(),
            outcome.gap().as_millis(),
            outcome.lost,
            outcome.errors
        );
        assert_eq!(outcome.missing_on(new), [], "{name}");
        assert_eq!(self.proxy.console().value(&format!("begin; {WHERE}")), new.port().to_string(), "{name}");
        at
    }

    fn wait_streaming(&self, primary: usize, standbys: usize) {
        let text = "select count(*) from pg_stat_replication where state = 'streaming'";
        wait_until("standbys to stream", || self.server(primary).value(text).is_ok_and(|count| count == standbys.to_string()));
    }
}

/// Writers, transactions and readers.
pub fn crew() -> Crew {
    Crew { writers: 2, transactions: 2, readers: 2, ..Crew::default() }
}

pub fn check_none_failed(outcome: &Outcome) {
    assert_eq!((outcome.errors.as_slice(), outcome.failed_reads.as_slice(), outcome.lost), ([].as_slice(), [].as_slice(), 0));
}

fn ask(folder: &Path, port: u16, node: usize) -> Result<(), String> {
    let outcome = admin(folder, port).try_rows(&format!("switchover {node}"));
    outcome.map(drop).map_err(|failure| format!("{} {}", failure.message, failure.detail))
}

fn admin(folder: &Path, port: u16) -> Raw {
    Raw::unix(folder, port).log_in("pgbouncer", "pgbouncer", &[]).unwrap_or_else(|failure| panic!("no console: {failure:?}"))
}

/// Asks on another thread.
fn ask_aside(proxy: &Proxy, node: usize) -> JoinHandle<Result<(), String>> {
    let (folder, port) = (proxy.folder().to_path_buf(), proxy.port());
    thread::spawn(move || ask(&folder, port, node))
}

/// Waits for a step of a switchover that is under way.
fn wait_step(proxy: &Proxy, step: &str) {
    wait_until(step, || proxy.log().contains(&format!("failover: {step}")));
}

/// Asks for a switchover on another thread and does something at a step of it. Gives the answer.
fn meanwhile(stand: &mut Stand, to: usize, step: &str, act: impl FnOnce(&mut Stand)) -> Result<(), String> {
    let asked = ask_aside(&stand.proxy, to);
    // A refused switchover comes to no step.
    wait_until(step, || asked.is_finished() || stand.proxy.log().contains(&format!("failover: {step}")));
    act(stand);
    asked.join().unwrap()
}

#[test]
fn switchovers_back_and_forth_fail_no_statement() {
    let Some(stand) = Stand::new("") else { return };
    let load = Load::with(&stand.proxy, crew());
    let mut idle: Vec<Raw> = (0..20).map(|_| stand.proxy.console()).collect();
    idle.iter_mut().for_each(|client| client.run("set application_name = 'kept'"));
    let wanted = std::env::var("WEIR_SWITCHOVERS").ok().and_then(|text| text.parse().ok());
    let mut took = Vec::new();
    for made in 0..wanted.unwrap_or(SWITCHOVERS) {
        let to = [1, 0, 2, 0][made % 4];
        let asked = Instant::now();
        stand.move_to(to).unwrap_or_else(|why| panic!("switchover {made}: {why}\n{}", stand.proxy.log()));
        took.push(asked.elapsed());
        assert_eq!(stand.primary(), to);
        wait_until("all to be in use", || stand.proxy.nodes("status") == ["up", "up", "up"]);
        stand.wait_streaming(to, 2);
        load.wait_acknowledged(20);
    }
    let outcome = load.end();
    let made = took.len();
    took.sort_unstable();
    let (median, longest) = (took[took.len() / 2].as_millis(), took.last().unwrap().as_millis());
    eprintln!("{made} switchovers; until the old primary follows: {median} ms (median), {longest} ms (longest)");
    eprintln!("pauses in ms: {:?}", outcome.gaps(made).iter().map(Duration::as_millis).collect::<Vec<_>>());
    for client in &mut idle {
        assert_eq!(client.value("show application_name"), "kept");
    }
    stand.check("back and forth", &outcome);
    check_none_failed(&outcome);
    assert!(made >= 2 && outcome.gap() <= PAUSE_MAX, "{made} switchovers, {:?}", outcome.gap());
    assert!(stand.proxy.log().contains("lost: nothing that was acknowledged"));
}

#[test]
fn a_user_who_calls_himself_as_a_weir_does_holds_up_no_switchover() {
    // Longer than anybody waits here.
    let Some(stand) = Stand::new("switchover_transaction_limit = 10min\n") else { return };
    stand.server(0).query("create role mallory login").unwrap();
    let names = [("application_name", "weir_writes_99")];
    let mut session = Raw::tcp(stand.server(0).port()).log_in("mallory", "postgres", &names).unwrap();
    assert_eq!(session.value("show application_name"), names[0].1);
    let asked = ask_aside(&stand.proxy, 1);
    wait_until("the switchover to end", || asked.is_finished());
    assert_eq!(asked.join().unwrap(), Ok(()));
    assert_eq!(stand.primary(), 1);
    let log = stand.proxy.log();
    let line = log.lines().find(|line| line.contains("application_name that begins with weir_writes_")).expect("he is named");
    assert!(line.contains("user \"mallory\", pid "), "{line}");
}

#[test]
fn an_agent_that_dies_at_any_step_leaves_one_primary() {
    let steps = ["Prepared", "Drained", "Pledged", "ServerStopped", "Inspected", "Promoted", "Repointed", "ServerFollows"];
    let Some(mut stand) = Stand::new("failover_alone = on\n") else { return };
    for step in steps {
        // The log of the proxy before has these steps already.
        stand.proxy = stand.another("failover_alone = on\n");
        let (from, to) = (stand.primary(), (stand.primary() + 1) % 3);
        let load = Load::begin(&stand.proxy, 2);
        let answer = meanwhile(&mut stand, to, step, |stand| stand.agents[from].kill());
        load.wait_acknowledged(50);
        let outcome = load.end();
        eprintln!("agent killed at {step}: {answer:?}");
        stand.check(step, &outcome);
        stand.agents[from].crash_and_start();
        recover(&stand);
    }
}

/// Agents bring back what was replaced.
fn recover(stand: &Stand) {
    wait_until("all nodes to be in use", || stand.proxy.nodes("status") == ["up", "up", "up"]);
    stand.wait_streaming(stand.primary(), 2);
}

#[test]
fn a_switchover_whose_standby_dies_is_undone() {
    let Some(mut stand) = Stand::new("failover_alone = on\n") else { return };
    let load = Load::begin(&stand.proxy, 4);
    let answer = meanwhile(&mut stand, 1, "Drained", |stand| stand.server(1).kill9().unwrap());
    load.wait_acknowledged(100);
    let outcome = load.end();
    eprintln!("the standby died: {answer:?}");
    let answer = answer.unwrap_err();
    assert!(answer.contains("node 0 is the primary as before") || answer.contains("is to replace"), "{answer}");
    stand.check("standby dies", &outcome);
    assert_eq!(outcome.lost, 0);
}

#[test]
fn a_transaction_that_never_ends_is_ended_after_its_limit() {
    let Some(stand) = Stand::new("switchover_transaction_limit = 1\n") else { return };
    let mut endless = stand.proxy.console();
    endless.run("begin");
    endless.run("insert into written values (0)");
    let load = Load::begin(&stand.proxy, 2);
    let begun = Instant::now();
    stand.move_to(2).unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(1), "it has its time");
    let failure = endless.try_rows("insert into written values (0)").unwrap_err();
    assert_eq!((failure.severity.as_str(), failure.sqlstate.as_str()), ("ERROR", "40001"));
    endless.run("rollback");
    assert_eq!(endless.value("select count(*) from written where number = 0"), "0");
    load.wait_acknowledged(20);
    let outcome = load.end();
    assert_eq!(stand.check("endless transaction", &outcome), 2);
    assert_eq!((outcome.errors.as_slice(), outcome.lost), ([].as_slice(), 0));
}

#[test]
fn another_proxy_lets_a_move_wait_for_a_transaction() {
    let Some(stand) = Stand::new("") else { return };
    // It looks, and so sees what is under way.
    let other = stand.another("health_check_period = 1\n");
    let load = Load::begin(&other, 2);
    let mut long = stand.proxy.console();
    long.send(&wire::query("begin; insert into written values (0); select pg_sleep(6); commit"));
    let running = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'";
    wait_until("the transaction to run", || stand.server(0).value(running).unwrap() == "1");
    stand.move_to(1).unwrap_or_else(|why| panic!("{why}\n{}", other.log()));
    long.until_ready();
    assert_eq!(long.value("select count(*) from written where number = 0"), "1", "it was committed");
    load.wait_acknowledged(20);
    let outcome = load.end();
    assert_eq!((stand.check("another proxy waits", &outcome), outcome.lost), (1, 0));
    assert!(!other.log().contains("this one settles it"), "{}", other.log());
}

#[test]
fn two_proxies_agree_on_a_primary_that_one_of_them_moved() {
    let Some(stand) = Stand::new("") else { return };
    let other = stand.another("");
    let loads = [Load::begin(&stand.proxy, 2), Load::begin(&other, 2)];
    for to in [1, 2, 0] {
        stand.move_to(to).unwrap();
        loads.iter().for_each(|load| load.wait_acknowledged(50));
        wait_until("the other to follow", || other.console().value(WHERE_WRITTEN) == stand.server(to).port().to_string());
        for proxy in [&stand.proxy, &other] {
            wait_until("all to be in use", || proxy.nodes("status") == ["up", "up", "up"]);
        }
    }
    let [own, others] = loads.map(Load::end);
    stand.check("two proxies, the one that was asked", &own);
    stand.check("two proxies, the other one", &others);
    // The one that was asked waits for the other one's statements.
    assert_eq!((own.errors.as_slice(), others.errors.as_slice(), own.lost, others.lost), ([].as_slice(), [].as_slice(), 0, 0));
}

const WHERE_WRITTEN: &str = "begin; select inet_server_port()";

#[test]
fn a_primary_that_hangs_while_it_is_stopped_takes_no_write_later() {
    let Some(mut stand) = Stand::new("failover_alone = on\n") else { return };
    let load = Load::begin(&stand.proxy, 4);
    let answer = meanwhile(&mut stand, 1, "Drained", |stand| stand.server(0).freeze());
    eprintln!("SIGSTOP: {answer:?}");
    load.wait_acknowledged(50);
    let outcome = load.end();
    stand.server(0).thaw();
    let new = stand.primary();
    assert_eq!(outcome.missing_on(stand.server(new)), []);
    wait_until("the old primary to be stopped, fenced or a standby", || {
        let old = stand.server(0);
        let is_read_only = || old.value("show default_transaction_read_only").is_ok_and(|shown| shown == "on");
        let recovery = old.value("select pg_is_in_recovery()");
        new == 0 || recovery.is_err() || is_read_only() || recovery.is_ok_and(|is| is == "t")
    });
    assert_eq!(outcome.lost, 0);
}

#[test]
fn a_proxy_that_dies_in_a_switchover_leaves_one_primary() {
    for step in ["Drained", "Pledged", "ServerStopped", "Inspected", "Promoted", "Repointed", "ServerFollows"] {
        let Some(mut stand) = Stand::new("failover_alone = on\n") else { return };
        let load = Load::begin(&stand.proxy, 2);
        let asked = ask_aside(&stand.proxy, 1);
        wait_step(&stand.proxy, step);
        stand.proxy.crash_and_start();
        let _ = asked.join();
        load.wait_acknowledged(50);
        let outcome = load.end();
        let new = stand.check(&format!("Weir killed at {step}"), &outcome);
        eprintln!("Weir killed at {step}: node {new} is the primary");
    }
}

#[test]
fn a_graceful_switchover_over_pcp_waits_for_transactions_and_not_for_clients() {
    let Some(mut stand) = Stand::new("") else { return };
    let port = stand.serve_pcp("");
    let mut pinned = stand.proxy.console();
    pinned.run("create temp table own (a int)");
    let mut idle = stand.proxy.console();
    idle.run("set application_name = 'kept'");
    let mut inside = stand.proxy.console();
    inside.run("begin");
    inside.run("insert into written values (-1)");
    let load = Load::with(&stand.proxy, crew());
    let (passfile, number) = (stand.passfile(), port.number());
    let asked = thread::spawn(move || pcp(number, &passfile, &["promote-node", "-g", "-s", "-n", "1"]));
    wait_until("the wait for transactions", || stand.proxy.log().contains("all databases are paused"));
    assert!(!asked.is_finished());
    assert!(!stand.proxy.log().contains("failover: Prepared"), "it has not begun");
    inside.run("commit");
    let output = asked.join().unwrap();
    assert!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stderr), stand.proxy.log());
    assert_eq!(stand.primary(), 1);
    assert_eq!(idle.value("show application_name"), "kept");
    assert_eq!(inside.value("select count(*) from written where number = -1"), "1");
    load.wait_acknowledged(20);
    let outcome = load.end();
    stand.check("graceful, over PCP", &outcome);
    check_none_failed(&outcome);
}
