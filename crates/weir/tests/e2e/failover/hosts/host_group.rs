//! A group of proxies, each on a host of its own.

use super::*;
use crate::support::proxy::{Folder, check_last_words, configuration, wait_for_log_thread};
use crate::support::time::SLACK;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};
use std::sync::Arc;
use weir_demo::{AddressHistory, AddressWatch, Auth, HostNetwork, LoadPlace, Sql, signal_process};

/// Of all hosts, for clients and peers.
const PORT: u16 = 9999;
const PEER_PORT: u16 = 9000;
/// The default one.
pub const LEASE: Duration = Duration::from_secs(2);
/// Longest wait of a client for an answer: its host may be gone.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Longest wait of a test's own question.
const QUESTION_LIMIT: Duration = Duration::from_secs(3);

/// `None`, with the reason told: the test is left out.
pub fn host_network(hosts: usize, paths: usize) -> Option<Arc<HostNetwork>> {
    if let Some(lacks) = HostNetwork::lacks() {
        leave_out(&lacks);
        return None;
    }
    Some(Arc::new(HostNetwork::make(hosts, paths).unwrap()))
}

/// Servers outside of the hosts, which reach them.
pub fn servers_for(network: &HostNetwork, standbys: usize, conf: &[(&str, &str)]) -> Owned {
    let listen = format!("127.0.0.1,{}", network.outside(0));
    let conf = [&[("listen_addresses", listen.as_str())], conf].concat();
    let extra_conf = conf.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let rule = |database: &str| format!("host {database} all {} trust", HostNetwork::all_addresses());
    let auth = Auth { hba_lines: vec![rule("all"), rule("replication")], ..Auth::default() };
    let cluster = cluster_with(Options { standbys, extra_conf, auth, ..Options::default() });
    cluster.primary().query(weir_demo::SCHEMA).unwrap();
    cluster.primary().query("create table probed (a int)").unwrap();
    cluster.wait_caught_up().unwrap();
    cluster
}

/// A proxy on a host.
pub struct HostWeir {
    network: Arc<HostNetwork>,
    host: usize,
    folder: Folder,
    /// The first words of its command line: those of a command, or none.
    command: &'static [&'static str],
    process: Child,
    /// Processes that others took over from, and that keep their sessions.
    former: Vec<Child>,
}

impl HostWeir {
    fn start(
        network: &Arc<HostNetwork>,
        host: usize,
        backends: &[Backend],
        lines: &str,
        command: &'static [&'static str],
    ) -> HostWeir {
        let folder = Folder::new();
        let at = folder.0.display();
        let own = format!("listen_addresses = '*'\nport = {PORT}\nwd_state_dir = '{at}'\ntakeover_socket = '{at}/way'\n");
        let conf = configuration(&folder.0, PORT, backends, &format!("{lines}{own}"));
        fs::write(folder.0.join("pgpool.conf"), conf).unwrap();
        fs::set_permissions(folder.0.join("pgpool.conf"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(folder.0.join("pgpool_node_id"), host.to_string()).unwrap();
        let process = spawn(network, host, &folder, command);
        HostWeir { network: network.clone(), host, folder, command, process, former: Vec::new() }
    }

    pub fn log(&self) -> String {
        if self.pid_is_running() {
            wait_for_log_thread(self.process.id());
        }
        fs::read(self.folder.0.join("log")).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// False for one that is stopped: it says nothing.
    fn pid_is_running(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| !matches!(rest.trim().chars().next(), Some('T' | 'Z') | None))
    }

    pub fn signal(&self, signal: Signal) {
        signal_process(Pid::from_child(&self.process), signal).unwrap();
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub fn wait_end(&mut self) {
        wait_until("the proxy to end", || !matches!(self.process.try_wait(), Ok(None)));
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// Starts it again, with the files it had.
    pub fn start_again(&mut self) {
        assert!(!self.is_running());
        self.process = spawn(&self.network, self.host, &self.folder, self.command);
    }

    /// Has another process take over, which serves new clients when this returns.
    pub fn take_over(&mut self) {
        let takeovers = |weir: &HostWeir| weir.log().matches("taken over from the running proxy").count();
        let before = takeovers(self);
        let process = spawn(&self.network, self.host, &self.folder, &["--takeover"]);
        self.former.push(std::mem::replace(&mut self.process, process));
        wait_until("the new process to take over, or to end", || !self.is_running() || takeovers(self) > before);
        assert!(self.is_running(), "{}", self.log());
    }

    /// Waits until the processes that others took over from have ended.
    pub fn wait_former(&mut self) {
        let mut former = std::mem::take(&mut self.former);
        wait_until("the old processes to end", || former.iter_mut().all(|old| !matches!(old.try_wait(), Ok(None))));
    }

    /// Where the group's state lies.
    pub fn state_file(&self) -> PathBuf {
        self.folder.0.join(format!("weir_group.{PORT}"))
    }

    pub fn place(&self) -> LoadPlace {
        place(&self.network.address(self.host, 0).to_string())
    }

    /// Answers of a statement through this proxy.
    pub fn ask(&self, text: &str) -> anyhow::Result<Vec<weir_demo::Row>> {
        self.ask_within(QUESTION_LIMIT, text)
    }

    fn ask_within(&self, limit: Duration, text: &str) -> anyhow::Result<Vec<weir_demo::Row>> {
        let LoadPlace { host, port, .. } = self.place();
        Sql::connect_tcp_within(&host, port, "postgres", "postgres", limit)?.query(text)
    }

    pub fn writes(&self) -> bool {
        // Reads of this table would have to show the last of these, whose place in the log nobody knows once the primary may not be asked.
        self.ask("insert into probed values (7)").is_ok()
    }

    pub fn reads(&self) -> anyhow::Result<()> {
        // On a busy machine a new server connection takes some seconds.
        self.ask_within(ANSWER_LIMIT, "select a from readable where a = 1").map(drop)
    }

    /// Hosts that vote, as this one knows.
    pub fn voters(&self) -> usize {
        let Ok(mut client) = Sql::connect_tcp_within(&self.place().host, PORT, "postgres", "postgres", QUESTION_LIMIT) else {
            return 0;
        };
        let rows = client.query("show pool_watchdog").unwrap_or_default();
        rows.iter().filter(|row| row.iter().flatten().any(|value| value == "yes")).count()
    }
}

impl Drop for HostWeir {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- host {}:", self.host);
            for view in ["pool_nodes", "pool_failover", "pool_watchdog"] {
                let rows = self.ask(&format!("show {view}")).map(|rows| rows.into_iter().map(shown).collect::<String>());
                eprintln!("{view}:\n{}", rows.unwrap_or_else(|error| format!("{error:#}\n")));
            }
        }
        // It may have ended already.
        for process in self.former.iter_mut().chain([&mut self.process]) {
            let _ = process.kill();
            let _ = process.wait();
        }
        let log = fs::read_to_string(self.folder.0.join("log")).unwrap_or_default();
        check_last_words(PORT, &log);
    }
}

fn shown(row: weir_demo::Row) -> String {
    let values: Vec<String> = row.into_iter().map(Option::unwrap_or_default).collect();
    format!("{}\n", values.join(" | "))
}

fn spawn(network: &HostNetwork, host: usize, folder: &Folder, arguments: &[&str]) -> Child {
    let log = File::options().create(true).append(true).open(folder.0.join("log")).unwrap();
    let mut command = network.command(host, env!("CARGO_BIN_EXE_weir"));
    command.args(arguments).arg("-f").arg(folder.0.join("pgpool.conf")).stdin(Stdio::null());
    command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
}

fn place(host: &str) -> LoadPlace {
    LoadPlace { host: host.to_owned(), port: PORT, answer_limit: ANSWER_LIMIT }
}

pub struct HostGroup {
    pub weirs: Vec<HostWeir>,
    pub watch: AddressWatch,
    pub network: Arc<HostNetwork>,
}

impl HostGroup {
    /// All hosts of the network. `more`: lines of pgpool.conf.
    pub fn start(network: &Arc<HostNetwork>, cluster: &Owned, more: &str) -> HostGroup {
        let group = HostGroup::begin(network, cluster, more);
        group.wait_whole();
        group
    }

    pub fn begin(network: &Arc<HostNetwork>, cluster: &Owned, more: &str) -> HostGroup {
        let hosts: String = (0..network.hosts()).map(|host| host_lines(network, host)).collect();
        let address = network.virtual_address();
        let group = format!(
            "use_watchdog = on\nwd_authkey = 'secret of the group'\ndelegate_ip = '{address}'\nfailover_wait = 30s\n{hosts}"
        );
        HostGroup::begin_with(network, cluster, &format!("{group}{more}"))
    }

    /// `group`: all lines about the watchdog, and others.
    pub fn begin_with(network: &Arc<HostNetwork>, cluster: &Owned, group: &str) -> HostGroup {
        HostGroup::begin_beside(network, cluster, group, &[]).0
    }

    /// The last hosts run these commands in place of the proxy, one each.
    pub fn begin_beside(
        network: &Arc<HostNetwork>,
        cluster: &Owned,
        group: &str,
        commands: &[&'static [&'static str]],
    ) -> (HostGroup, Vec<HostWeir>) {
        let names: String = NAMES.lines().take(cluster.servers().len()).map(|line| format!("{line}\n")).collect();
        let lines = format!("{BUILTIN}{names}{group}");
        let outside = network.outside(0).to_string();
        let backends: Vec<Backend> =
            cluster.servers().iter().map(|server| Backend { host: outside.clone(), port: server.port(), weight: 1 }).collect();
        let start = |host, command| HostWeir::start(network, host, &backends, &lines, command);
        let proxies = network.hosts() - commands.len();
        let weirs = (0..proxies).map(|host| start(host, &[])).collect();
        let beside = commands.iter().enumerate().map(|(at, command)| start(proxies + at, command)).collect();
        (HostGroup { weirs, watch: AddressWatch::begin(network, PORT).unwrap(), network: network.clone() }, beside)
    }

    /// Waits until one host has the address, clients are answered there, and each host takes writes.
    pub fn wait_whole(&self) {
        let begun = Instant::now();
        wait_until("one host to have the address", || self.watch.holders().len() == 1);
        wait_until("an answer at the address", || self.watch.history().since(begun).answers.len() > 2);
        for weir in &self.weirs {
            wait_until("writes to go through each proxy", || weir.writes());
        }
    }

    /// The host that has the address.
    pub fn leader(&self) -> usize {
        let [leader] = self.watch.holders()[..] else { panic!("one holder, not {:?}", self.watch.holders()) };
        leader
    }

    pub fn others(&self) -> Vec<usize> {
        let leader = self.leader();
        (0..self.weirs.len()).filter(|host| *host != leader).collect()
    }

    /// Waits until another host has the address.
    pub fn wait_another(&self, than: usize) -> usize {
        wait_until("another host to have the address", || matches!(self.watch.holders()[..], [holder] if holder != than));
        self.leader()
    }

    /// Clients that write and read through the address.
    pub fn load_at_address(&self) -> Load {
        load(&place(&self.network.virtual_address().to_string()), 0)
    }

    /// A write through this host.
    pub fn load_at(&self, host: usize) -> Load {
        load(&self.weirs[host].place(), host + 1)
    }

    /// The promises of each fault: one holder of the address and one leader at a time.
    pub fn check(&self, name: &str, fault: Instant) -> AddressHistory {
        let whole = self.watch.history();
        assert!(!whole.had_several(), "{name}: two hosts had the address: {:?}", whole.holders);
        let history = whole.clone().since(fault);
        eprintln!(
            "{name}: {} ms without the address, {} ms without an answer at it, {} ms with two holders, looks at most {} ms apart",
            history.longest_without().as_millis(),
            history.longest_silence(fault).as_millis(),
            whole.with_several().as_millis(),
            whole.longest_pause.as_millis()
        );
        self.check_terms();
        history
    }

    /// `check`, and another host answered at the address soon after the lease was over. A machine that holds the looks up holds that up, too.
    pub fn check_followed(&self, name: &str, fault: Instant) {
        let history = self.check(name, fault);
        let (silence, limit) = (history.longest_silence(fault), LEASE + SLACK + history.longest_pause);
        assert!(silence < limit, "{name}: {silence:?} without an answer, limit is {limit:?}");
    }

    /// No two hosts led in one term.
    fn check_terms(&self) {
        let mut leaders: Vec<(u64, usize)> = Vec::new();
        for (host, weir) in self.weirs.iter().enumerate() {
            let log = weir.log();
            let terms = log.split("I am the cluster leader node. Starting escalation process of term ").skip(1);
            leaders.extend(terms.map(|rest| (rest.lines().next().unwrap().trim().parse().unwrap(), host)));
        }
        leaders.sort_unstable();
        leaders.dedup();
        let twice = leaders.windows(2).find(|pair| pair[0].0 == pair[1].0);
        assert!(twice.is_none(), "two hosts led in one term: {leaders:?}");
        assert!(!leaders.is_empty());
    }
}

fn load(place: &LoadPlace, number: usize) -> Load {
    let crew = Crew { writers: 2, transactions: 1, readers: 1, first: 10_000_000 * number as i64, ..Crew::default() };
    Load::with_place(place, crew)
}

fn host_lines(network: &HostNetwork, host: usize) -> String {
    let first = network.address(host, 0);
    let mut lines = format!(
        "hostname{host} = '{first}'\nwd_port{host} = {PEER_PORT}\npgpool_port{host} = {PORT}\nheartbeat_port{host} = 9694\n"
    );
    let paths: Vec<String> = (0..network.paths()).map(|path| network.address(host, path).to_string()).collect();
    lines += &format!("heartbeat_hostname{host} = '{}'\n", paths.join(";"));
    lines
}

/// Acknowledged writes are there.
pub fn check_nothing_is_missing(name: &str, cluster: &Owned, loads: Vec<Load>) {
    wait_until("one primary", || primaries(cluster).len() == 1);
    let [primary] = primaries(cluster)[..] else { panic!("one primary") };
    for load in loads {
        let noted = load.end();
        let missing = noted.missing_on(primary);
        let (count, gap) = (noted.acknowledged.len(), noted.gap().as_millis());
        let refused: Vec<&str> = noted.refused.iter().map(|(_, state)| state.as_str()).collect();
        eprintln!("{name}: {count} acknowledged, {gap} ms without writes, refused {refused:?}, {} sessions lost", noted.lost);
        assert!(missing.is_empty(), "{name}: {missing:?}");
    }
}
