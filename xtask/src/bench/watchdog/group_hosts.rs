//! Hosts with a proxy each, as operators would run them for one virtual address.

use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use weir_demo::{AddressWatch, Auth, Cluster, HostNetwork, LoadPlace, Options, Programs, wait_until};

use crate::bench::proc;

/// Of all hosts, for clients and peers.
pub const PORT: u16 = 9999;
const PEER_PORT: u16 = 9000;
const PCP_PORT: u16 = 9898;
const BEAT_PORT: u16 = 9694;
/// Pgpool-II has the address and looks at its peers 13 to 18 s after its start.
const READY_LIMIT: Duration = Duration::from_secs(120);
/// Answers at the address that show that it is well.
const ANSWERS: usize = 20;
/// Lines of a log that are shown when something is wrong.
const LINES_SHOWN: usize = 15;
/// The longest wait of a client for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// The version of the servers, if it is installed.
const MAJOR: u32 = 15;
/// Checks every second, a second each, one retry after a second.
const CHECKS: &str = "health_check_period = 1\nhealth_check_timeout = 1\nhealth_check_max_retries = 1\nhealth_check_retry_delay = 1\n\
    health_check_user = 'postgres'\nsr_check_user = 'postgres'\nsr_check_period = 1\nfailover_on_backend_shutdown = on\n";

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum WatchdogSystem {
    Weir,
    Pgpool,
}

impl WatchdogSystem {
    /// In tables and files.
    pub fn name(self) -> &'static str {
        match self {
            WatchdogSystem::Weir => "Weir",
            WatchdogSystem::Pgpool => "Pgpool-II",
        }
    }
}

/// Proxies on all hosts of a network, before servers outside. Dropping it ends all.
pub struct GroupHosts {
    pub watch: Option<AddressWatch>,
    processes: Vec<Child>,
    folders: Vec<PathBuf>,
    system: WatchdogSystem,
    program: PathBuf,
    pub cluster: Cluster,
    pub network: HostNetwork,
}

impl GroupHosts {
    /// Makes hosts and servers, starts a proxy on each host, and waits until they are whole. A single host has no group.
    pub fn start(system: WatchdogSystem, program: &Path, hosts: usize, standbys: usize, conf: &[(&str, &str)]) -> Result<Self> {
        let network = HostNetwork::make(hosts, 1)?;
        let cluster = servers(&network, standbys, conf)?;
        let mut group = Self {
            watch: None,
            processes: Vec::new(),
            folders: Vec::new(),
            system,
            program: program.to_owned(),
            cluster,
            network,
        };
        for host in 0..hosts {
            let folder = group.cluster.dir().join(format!("host{host}"));
            fs::create_dir(&folder)?;
            group.write_files(host, &folder)?;
            group.folders.push(folder);
        }
        for host in 0..hosts {
            group.processes.push(group.spawn(host)?);
        }
        if hosts > 1 {
            group.watch = Some(AddressWatch::begin(&group.network, PORT)?);
        }
        group.wait_whole().with_context(|| group.last_words())?;
        Ok(group)
    }

    fn wait_whole(&self) -> Result<()> {
        if self.system == WatchdogSystem::Pgpool {
            wait_until("peers to be watched", READY_LIMIT, || Ok((0..self.folders.len()).all(|host| self.watches(host))))?;
        }
        if let Some(watch) = &self.watch {
            wait_until("one host to have the address", READY_LIMIT, || Ok(watch.holders().len() == 1))?;
            let begun = Instant::now();
            wait_until("answers at the address", READY_LIMIT, || Ok(watch.history().since(begun).answers.len() >= ANSWERS))?;
        }
        Ok(())
    }

    fn watches(&self, host: usize) -> bool {
        fs::read_to_string(self.folders[host].join("log")).is_ok_and(|log| log.contains("lifecheck started"))
    }

    /// The host that has the address.
    pub fn leader(&self) -> Result<usize> {
        let holders = self.watch.as_ref().context("a group has an address")?.holders();
        ensure!(holders.len() == 1, "one host has the address, not {holders:?}");
        Ok(holders[0])
    }

    /// All processes of a host's proxy.
    pub fn signal(&self, host: usize, signal: Signal) -> Result<()> {
        for pid in proc::tree(self.processes[host].id()) {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("a process")?;
            // A process that has just ended needs none.
            let _ = kill_process(pid, signal);
        }
        Ok(())
    }

    /// Stops the proxy as its operator would, with clients disconnected.
    pub fn stop(&self, host: usize) -> Result<()> {
        kill_process(Pid::from_child(&self.processes[host]), Signal::INT).context("the proxy runs")
    }

    /// Seconds of the processor since the start, of each host.
    pub fn cpu_seconds(&self) -> Result<Vec<f64>> {
        self.processes.iter().map(|process| proc::cpu_seconds(process.id())).collect()
    }

    pub fn place(&self, host: usize) -> LoadPlace {
        LoadPlace { host: self.network.address(host, 0).to_string(), port: PORT, answer_limit: ANSWER_LIMIT }
    }

    /// The ends of all logs.
    pub fn last_words(&self) -> String {
        let end = |(host, folder): (usize, &PathBuf)| {
            let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().filter(|line| !line.contains("DEBUG")).collect();
            format!("host {host}:\n{}", lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n"))
        };
        self.folders.iter().enumerate().map(end).collect::<Vec<_>>().join("\n")
    }

    fn spawn(&self, host: usize) -> Result<Child> {
        let folder = &self.folders[host];
        let log = File::options().create(true).append(true).open(folder.join("log"))?;
        let mut command = self.network.command(host, &self.program);
        match self.system {
            WatchdogSystem::Weir => command.arg("-f").arg(folder.join("pgpool.conf")),
            // In the foreground, and without its memory of nodes.
            WatchdogSystem::Pgpool => {
                command.args(["-n", "-D", "-f"]).arg(folder.join("pgpool.conf"));
                command.arg("-a").arg(folder.join("hba")).arg("-F").arg(folder.join("pcp"))
            }
        };
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        command.spawn().with_context(|| format!("cannot run {}", self.program.display()))
    }

    fn write_files(&self, host: usize, folder: &Path) -> Result<()> {
        let shown = folder.display();
        let mut conf =
            format!("listen_addresses = '*'\nport = {PORT}\npid_file_name = '{shown}/pid'\nwork_dir = '{shown}'\n{CHECKS}");
        for (at, server) in self.cluster.servers().iter().enumerate() {
            write!(
                conf,
                "backend_hostname{at} = '{}'\nbackend_port{at} = {}\nbackend_weight{at} = 1\nbackend_application_name{at} = '{}'\n",
                self.network.outside(0),
                server.port(),
                server.name()
            )?;
        }
        if self.network.hosts() > 1 {
            self.write_group(&mut conf)?;
        }
        match self.system {
            WatchdogSystem::Weir => write!(
                conf,
                "failover_mode = builtin\nfailover_alone = on\nfailover_lag_max = -1\nfailover_wait = 30s\nunix_socket_directories = '{shown}'\n\
                 wd_state_dir = '{shown}'\n"
            )?,
            WatchdogSystem::Pgpool => write!(
                conf,
                "backend_clustering_mode = 'raw'\npcp_port = {PCP_PORT}\nsocket_dir = '{shown}'\npcp_socket_dir = '{shown}'\n\
                 wd_ipc_socket_dir = '{shown}'\nenable_pool_hba = off\npool_passwd = ''\nlogging_collector = off\nlogdir = '{shown}'\n\
                 health_check_period = 0\nif_cmd_path = '/usr/sbin'\nif_up_cmd = 'ip addr add $_IP_$/24 dev eth0'\n\
                 if_down_cmd = 'ip addr del $_IP_$/24 dev eth0'\narping_path = '/usr/bin'\narping_cmd = 'arping -U $_IP_$ -w 1 -I eth0'\n\
                 wd_lifecheck_method = 'heartbeat'\n"
            )?,
        }
        for (name, text) in [("pgpool.conf", conf.as_str()), ("pgpool_node_id", &host.to_string()), ("hba", ""), ("pcp", "")] {
            fs::write(folder.join(name), text)?;
            fs::set_permissions(folder.join(name), Permissions::from_mode(0o600))?;
        }
        Ok(())
    }

    fn write_group(&self, conf: &mut String) -> Result<()> {
        let virtual_address = self.network.virtual_address();
        // The older name of the address, which both know.
        write!(
            conf,
            "use_watchdog = on\nwd_authkey = 'secret of the group'\ndelegate_IP = '{virtual_address}'\nwd_interval = 1\n\
             wd_heartbeat_keepalive = 1\nwd_heartbeat_deadtime = 3\n"
        )?;
        for host in 0..self.network.hosts() {
            let address = self.network.address(host, 0);
            write!(
                conf,
                "hostname{host} = '{address}'\nwd_port{host} = {PEER_PORT}\npgpool_port{host} = {PORT}\n\
                 heartbeat_hostname{host} = '{address}'\nheartbeat_port{host} = {BEAT_PORT}\nheartbeat_device{host} = ''\n"
            )?;
        }
        Ok(())
    }
}

impl Drop for GroupHosts {
    fn drop(&mut self) {
        self.watch = None;
        for process in &mut self.processes {
            let pids = proc::tree(process.id());
            let all = pids.iter().filter_map(|pid| Pid::from_raw(i32::try_from(*pid).ok()?));
            for pid in all.collect::<Vec<_>>() {
                let _ = kill_process(pid, Signal::KILL);
            }
            // Children whose parent was killed before. An empty group needs no signal.
            let _ = kill_process_group(Pid::from_child(process), Signal::KILL);
            let _ = process.wait();
        }
    }
}

/// Servers outside of the hosts, which reach them.
fn servers(network: &HostNetwork, standbys: usize, conf: &[(&str, &str)]) -> Result<Cluster> {
    let listen = format!("127.0.0.1,{}", network.outside(0));
    let conf = [&[("listen_addresses", listen.as_str()), ("max_connections", "400")], conf].concat();
    let extra_conf = conf.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let rule = |database: &str| format!("host {database} all {} trust", HostNetwork::all_addresses());
    let auth = Auth { hba_lines: vec![rule("all"), rule("replication")], ..Auth::default() };
    let programs = Programs::of_major(MAJOR).ok();
    let cluster = Cluster::start(Options { standbys, programs, extra_conf, auth, ..Options::default() })?;
    cluster.primary().query(weir_demo::SCHEMA)?;
    cluster.wait_caught_up()?;
    Ok(cluster)
}
