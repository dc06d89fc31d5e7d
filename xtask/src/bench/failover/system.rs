//! Weir and Pgpool-II before the same servers, as their operators would run them for failover.

use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use weir_demo::{Cluster, ReservedPort, Sql, wait_until};

use super::agents::{Agent, SECRET_FILE};
use super::row::Row;
use crate::process::{self, Account};

const READY_LIMIT: Duration = Duration::from_secs(60);
/// Lines of the log that are shown when something is wrong.
const LINES_SHOWN: usize = 40;
/// The longest wait for the answer to a switchover.
const MOVE_LIMIT: Duration = Duration::from_secs(180);
const PCP_USER: &str = "admin";
const PCP_PASSWORD: &str = "admin";
/// MD5 of the password.
const PCP_DIGEST: &str = "21232f297a57a5a743894a0e4a801fc3";
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// Pgpool-II has a process for each client: those of the load, and some that log in again.
const CHILDREN: usize = super::CLIENTS + super::READERS + 40;
/// Checks of both: every second, a second each, one retry after a second.
const CHECKS: &str = "health_check_period = 1\nhealth_check_timeout = 1\nhealth_check_max_retries = 1\nhealth_check_retry_delay = 1\n\
    health_check_user = 'postgres'\nsr_check_user = 'postgres'\nfailover_on_backend_shutdown = on\nstatement_level_load_balance = on\n";

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum System {
    Weir,
    Pgpool,
}

impl System {
    /// In tables and files.
    pub fn name(self) -> &'static str {
        match self {
            System::Weir => "Weir",
            System::Pgpool => "Pgpool-II",
        }
    }
}

/// A proxy that runs. Dropping it ends it.
pub struct Running {
    pub system: System,
    program: PathBuf,
    account: Account,
    folder: PathBuf,
    port: ReservedPort,
    /// Pgpool-II wants one more; Weir is told by it to move the primary.
    pcp: ReservedPort,
    child: Option<Child>,
    /// Ended after the proxy.
    agents: Vec<Agent>,
}

impl Running {
    /// Starts it before all servers, and waits until it knows them.
    pub fn start(system: System, program: &Path, account: Account, cluster: &Cluster, row: &Row) -> Result<Self> {
        let folder = cluster.dir().join("proxy");
        fs::create_dir(&folder)?;
        account.own(&folder)?;
        let (port, pcp) = (ReservedPort::any()?, ReservedPort::any()?);
        let agents = if row.has_agents() { Agent::beside_all(program, account, cluster, &folder)? } else { Vec::new() };
        let mut running = Self { system, program: program.to_owned(), account, folder, port, pcp, child: None, agents };
        running.write_files(cluster, row)?;
        running.spawn()?;
        Ok(running)
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        fs::read(self.folder.join("log")).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Gets it to use all servers again after they were mended. Weir does that by itself; Pgpool-II starts anew without its memory.
    pub fn use_all_again(&mut self) -> Result<()> {
        if self.system == System::Pgpool {
            self.stop()?;
            self.spawn()?;
        }
        self.wait_all_used()
    }

    /// Has Weir move the primary, and waits for its answer. Error: its words.
    pub fn move_primary(&self, node: usize) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.args(["pcp", "promote-node", "-s", "-h", "127.0.0.1", "-U", PCP_USER, "-w"]);
        command.args(["-p", &self.pcp.number().to_string(), "-n", &node.to_string()]);
        command.env("PCPPASSFILE", self.folder.join("pcppass"));
        let output = process::run(&mut command, MOVE_LIMIT)?;
        ensure!(output.status.success(), "{}", output.stderr.trim());
        Ok(())
    }

    fn spawn(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.folder.join("log"))?;
        let file = |name: &str| self.folder.join(name);
        let mut command = Command::new(&self.program);
        match self.system {
            System::Weir => command.arg("-f").arg(file("pgpool.conf")),
            // `-D` forgets which nodes were lost.
            System::Pgpool => {
                command.args(["-n", "-D", "-f"]).arg(file("pgpool.conf")).arg("-a").arg(file("hba")).arg("-F").arg(file("pcp"))
            }
        };
        // The times in the log are compared with ours.
        command.env("TZ", "UTC").stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        command.process_group(0);
        self.account.apply(&mut command);
        self.child = Some(command.spawn().with_context(|| format!("cannot run {}", self.program.display()))?);
        self.wait_all_used()
    }

    fn wait_all_used(&mut self) -> Result<()> {
        let (name, port) = (self.system.name(), self.port());
        wait_until(&format!("{name} to use all servers"), READY_LIMIT, || {
            let ended = self.child.as_mut().map(Child::try_wait).transpose()?.flatten();
            ensure!(ended.is_none(), "{name} has ended:\n{}", self.last_words());
            let Ok(mut sql) = Sql::connect_tcp_within("127.0.0.1", port, "postgres", "postgres", READY_LIMIT) else {
                return Ok(false);
            };
            let Ok(rows) = sql.query("show pool_nodes") else { return Ok(false) };
            let is_used =
                |row: &weir_demo::Row| row.get(3).is_some_and(|status| matches!(status.as_deref(), Some("up" | "waiting")));
            let takes_writes = sql.query("create table if not exists probe (); insert into probe default values").is_ok();
            Ok(takes_writes && rows.iter().filter(|row| is_used(row)).count() == super::SERVERS)
        })
        .with_context(|| self.last_words())
    }

    /// The end of its log.
    pub fn last_words(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n")
    }

    fn stop(&mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let stopped = process::stop(&mut child, Signal::INT, STOP_LIMIT);
        // Pgpool-II's children do not notice that their parent is gone. An empty group needs no signal.
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        stopped.map(drop)
    }

    fn write_files(&self, cluster: &Cluster, row: &Row) -> Result<()> {
        let shown = self.folder.display();
        let mut conf = format!(
            "listen_addresses = '127.0.0.1'\nport = {}\nunix_socket_directories = '{shown}'\npid_file_name = '{shown}/pid'\n{CHECKS}",
            self.port()
        );
        for (at, server) in cluster.servers().iter().enumerate() {
            write!(
                conf,
                "backend_hostname{at} = '127.0.0.1'\nbackend_port{at} = {}\nbackend_weight{at} = 1\n\
                 backend_application_name{at} = '{}'\nbackend_data_directory{at} = '{}'\nbackend_flag{at} = 'ALLOW_TO_FAILOVER'\n",
                server.port(),
                server.name(),
                server.data_dir().display()
            )?;
        }
        for (at, agent) in self.agents.iter().enumerate() {
            writeln!(conf, "backend_agent{at} = '127.0.0.1:{}'", agent.port())?;
        }
        match self.system {
            System::Weir => write!(
                conf,
                "failover_mode = builtin\nfailover_alone = on\nfailover_lag_max = -1\nwork_dir = '{shown}'\nnum_init_children = {CHILDREN}\n\
                 auto_failback = on\nauto_failback_interval = 1\n{}{}",
                row.spared.conf(),
                if row.has_agents() { self.agents_conf() } else { String::new() }
            )?,
            System::Pgpool => {
                let script = self.folder.join("promote.sh");
                fs::write(&script, promotion(cluster))?;
                fs::set_permissions(&script, Permissions::from_mode(0o755))?;
                write!(
                    conf,
                    "backend_clustering_mode = 'streaming_replication'\nfailover_command = 'sh {} %d %P %R %r'\n\
                     pcp_listen_addresses = '127.0.0.1'\npcp_port = {}\nsocket_dir = '{shown}'\npcp_socket_dir = '{shown}'\n\
                     num_init_children = {CHILDREN}\nmax_pool = 1\nload_balance_mode = on\nenable_pool_hba = off\npool_passwd = ''\n\
                     sr_check_database = 'postgres'\nhealth_check_password = 'none'\nsr_check_password = 'none'\nlogging_collector = off\nlogdir = '{shown}'\n",
                    script.display(),
                    self.pcp.number()
                )?;
            }
        }
        for (name, text) in [("pgpool.conf", conf.as_str()), ("hba", ""), ("pcp", "")] {
            fs::write(self.folder.join(name), text)?;
        }
        if row.has_agents() {
            fs::write(self.folder.join("pcp.conf"), format!("{PCP_USER}:{PCP_DIGEST}\n"))?;
            let passfile = self.folder.join("pcppass");
            fs::write(&passfile, format!("*:*:{PCP_USER}:{PCP_PASSWORD}\n"))?;
            fs::set_permissions(&passfile, Permissions::from_mode(0o600))?;
        }
        Ok(())
    }

    fn agents_conf(&self) -> String {
        let number = self.pcp.number();
        format!(
            "agent_secret_file = '{SECRET_FILE}'\npcp_listen_addresses = '127.0.0.1'\npcp_port = {number}\npcp_socket_dir = ''\n"
        )
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("cannot end {}: {error:#}", self.system.name());
        }
    }
}

/// Pgpool-II's command: the cheapest that keeps its servers in use. It promotes, and has the other standby follow by a reload; a
/// `follow_primary_command` would detach that one, end the sessions with it, and attach it again.
fn promotion(cluster: &Cluster) -> String {
    let pg_ctl = cluster.primary().programs().bin().join("pg_ctl").display().to_string();
    let folders: Vec<String> = cluster.servers().iter().map(|server| server.data_dir().display().to_string()).collect();
    format!(
        "[ \"$1\" = \"$2\" ] || exit 0\n{pg_ctl} -D \"$3\" -w promote\nfor data in {}; do\n  \
         [ \"$data\" != \"$3\" ] && [ -f \"$data/standby.signal\" ] || continue\n  \
         echo \"primary_conninfo = 'host=127.0.0.1 port=$4 user=postgres application_name=$(basename \"$data\")'\" >> \"$data/postgresql.auto.conf\"\n  \
         {pg_ctl} -D \"$data\" reload\ndone\n",
        folders.join(" ")
    )
}
