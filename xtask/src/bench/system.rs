//! The systems under test: how each is configured, started and ended.
//!
//! All run as an ordinary user on ports of their own, before the same PostgreSQL, with their logs as quiet as they get.

use std::fs::{self, File};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use weir_demo::{ReservedPort, Sql};

use super::client::Client;
use super::conf;
use super::proc;
use super::redis;
use super::secrets::Secrets;
use super::workload::{Door, Kind, Mode, Stage, Workload};
use crate::process::{self, Account};

/// A system answers its first client within this time, under valgrind too.
const START_LIMIT: Duration = Duration::from_secs(30);
/// After this a system is killed.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// First version of PgBouncer that renames prepared statements in transaction mode.
const BOUNCER_WITH_PREPARED: (u32, u32) = (1, 21);

/// Clients for each of which a system may have a process, or a connection of the server's.
const PROCESSES_MAX: u32 = 1_000;

/// The program between the client and PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum System {
    /// Nothing.
    Direct,
    /// This project.
    Weir,
    /// PgBouncer, built by `scripts/build-pgbouncer.sh`, else the one that is installed.
    Bouncer,
    /// Debian's Pgpool-II.
    Pgpool,
    /// A program that only copies bytes: `bin/relay.rs`.
    Relay,
    /// A program that gives one answer to everything: `bin/answers.rs`.
    Answers,
    /// Debian's Redis, asked by its own benchmark for as many bytes.
    Redis,
}

/// All systems in the order of the tables.
pub const SYSTEMS: [System; 7] =
    [System::Direct, System::Weir, System::Bouncer, System::Pgpool, System::Relay, System::Answers, System::Redis];

impl System {
    /// The word for `--systems`, tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            System::Direct => "direct",
            System::Weir => "weir",
            System::Bouncer => "pgbouncer",
            System::Pgpool => "pgpool",
            System::Relay => "relay",
            System::Answers => "answers",
            System::Redis => "redis",
        }
    }

    /// Why this system cannot do this workload at all.
    pub fn unfit_for(self, workload: &Workload) -> Option<&'static str> {
        let has_only_hits = match self {
            System::Answers => !matches!(workload.kind, Kind::Hits | Kind::Rush),
            System::Redis => workload.kind != Kind::Hits,
            _ => false,
        };
        if has_only_hits || (matches!(self, System::Answers | System::Redis) && workload.stage != Stage::Cached) {
            return Some("has only hits");
        }
        match (self, workload.door) {
            (_, Door::Open) | (System::Weir | System::Bouncer, _) => {}
            (System::Pgpool, Door::Tls) => {}
            (System::Direct, _) => return Some("the server here asks nobody for a proof and has no certificate"),
            (System::Relay | System::Answers | System::Redis, _) => return Some("only copies bytes"),
            (System::Pgpool, Door::Scram) => return Some("needs the password in clear text or encrypted, not only its verifier"),
        }
        match (self, workload.stage) {
            (System::Weir, _)
            | (_, Stage::One | Stage::Busy)
            | (System::Bouncer, Stage::Epoll | Stage::BusyEpoll)
            | (System::Bouncer, Stage::Shared)
            | (System::Pgpool, Stage::Spread | Stage::Cached | Stage::Shelved) => {}
            (System::Answers | System::Redis, _) => {}
            (_, Stage::Shared) => return Some("has no limit over several databases"),
            (_, Stage::Epoll | Stage::BusyEpoll) => return Some("a setting of Weir's is what is measured"),
            (System::Pgpool, _) => return Some("a setting of Weir's is what is measured"),
            (System::Direct | System::Bouncer | System::Relay, Stage::Cached | Stage::Hoard | Stage::Shelved) => {
                return Some("has no cache");
            }
            (System::Direct | System::Bouncer | System::Relay, _) => return Some("knows one server"),
        }
        match (self, workload.kind) {
            (System::Weir, _) => None,
            (_, Kind::FirstSight) => Some("the code of Weir is what is measured"),
            (_, Kind::Catalog) => Some("reads no catalogs as a whole"),
            (_, Kind::Invalidate { .. }) => Some("what is measured is that ours does not grow"),
            (System::Direct, Kind::Idle { .. }) => Some("no proxy; an idle client is a whole server process"),
            (System::Relay, Kind::Idle { .. }) => Some("opens a server connection for each client"),
            (System::Pgpool, Kind::Idle { .. }) if workload.clients > PROCESSES_MAX => Some("needs a process for each client"),
            (System::Pgpool, Kind::Select(_)) if workload.clients >= PROCESSES_MAX => {
                Some("its processes for so many clients would be in the way of all other runs")
            }
            (System::Direct | System::Relay, Kind::Select(_)) if workload.clients >= PROCESSES_MAX => {
                Some("takes a server connection for each client")
            }
            _ => None,
        }
    }

    /// Ends it at once but in order, so that it can clean up (and valgrind can report).
    fn stop_signal(self) -> Signal {
        match self {
            System::Weir | System::Pgpool => Signal::INT,
            System::Direct | System::Bouncer | System::Relay | System::Answers | System::Redis => Signal::TERM,
        }
    }
}

/// A program that can be started, or why not.
pub type Program = Result<PathBuf, String>;

/// The programs of all systems.
pub struct Programs {
    /// The release binary.
    pub weir: Program,
    /// PgBouncer: built by `scripts/build-pgbouncer.sh`, else Debian's, or one in PATH.
    pub bouncer: Program,
    /// Its version, to know its features.
    pub bouncer_version: Option<(u32, u32)>,
    /// Debian's, or one in PATH.
    pub pgpool: Program,
    /// Built beside this program.
    pub relay: Program,
    /// Built beside this program.
    pub answers: Program,
    /// Debian's, or one in PATH.
    pub redis: Program,
    /// An example of Weir's crate: how long a text takes that was never seen.
    pub first_sight: Program,
}

/// Starts systems.
pub struct Launcher {
    /// Where their files go; each start makes a folder in it.
    pub folder: PathBuf,
    /// Account that runs them.
    pub account: Account,
    /// PostgreSQL's port.
    pub server_port: u16,
    /// The ports of a primary and its standbys, the primary first; none if no workload needs them.
    pub spread_ports: Vec<u16>,
    /// Most clients at the same time, idle ones not counted.
    pub clients_max: u32,
    /// Server connections a pooler may open in transaction mode.
    pub pool_size: u32,
    /// Programs to start.
    pub programs: Programs,
    /// For clients that do not come in through the open door.
    pub secrets: Secrets,
}

impl Launcher {
    /// The servers of a stage, the primary first.
    fn server_ports(&self, stage: Stage) -> Vec<u16> {
        if stage.has_one_server() { vec![self.server_port] } else { self.spread_ports.clone() }
    }

    /// Starts a system for this workload, behind the words of `wrapper` (valgrind, or nothing), and waits until it answers.
    pub fn start(&self, system: System, workload: &Workload, wrapper: &[String]) -> Result<Running> {
        let server_ports = self.server_ports(workload.stage);
        let server_port = server_ports.first().copied().context("the servers of this workload were not started")?;
        if system == System::Direct {
            let (port, log) = (server_port, PathBuf::new());
            let (child, store, reserved) = (None, None, vec![]);
            return Ok(Running { system, port, server_port, child, store, log, session_mode: false, reserved });
        }
        let reserved = vec![ReservedPort::any()?, ReservedPort::any()?, ReservedPort::any()?];
        let ports = [reserved[0].number(), reserved[1].number(), reserved[2].number()];
        let port = ports[0];
        let folder = self.folder.join(format!("{}-{port}", system.name()));
        fs::create_dir(&folder)?;
        let words = self.command_line(system, workload, &folder, ports)?;
        for entry in fs::read_dir(&folder)? {
            self.account.own(&entry?.path())?;
        }
        self.account.own(&folder)?;
        let store = (workload.stage == Stage::Shelved).then(|| self.start_memcached(ports[2])).transpose()?;
        let log = folder.join("log");
        let words: Vec<String> = wrapper.iter().cloned().chain(words).collect();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir(&folder).stdin(Stdio::null());
        command.stdout(File::create(&log)?).stderr(File::options().append(true).open(&log)?);
        self.account.apply(&mut command);
        let child = command.spawn().with_context(|| format!("cannot run {}", words[0]))?;
        let session_mode = system == System::Bouncer && self.bouncer_lacks_prepared();
        let mut running = Running { system, port, server_port, child: Some(child), store, log, session_mode, reserved };
        running.wait_ready()?;
        running.wait_for_servers(server_ports.len())?;
        Ok(running)
    }

    /// A memcached of its own for a system.
    fn start_memcached(&self, port: u16) -> Result<Child> {
        let mut command = Command::new("memcached");
        command.args(["-l", "127.0.0.1", "-p", &port.to_string(), "-U", "0", "-m", "1024", "-c", "4096"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.account.apply(&mut command);
        let child = command.spawn().context("cannot run memcached (Debian's package memcached)")?;
        weir_demo::wait_until("memcached to answer", START_LIMIT, || Ok(TcpStream::connect(("127.0.0.1", port)).is_ok()))?;
        Ok(child)
    }

    /// True if prepared statements need PgBouncer's session mode.
    pub fn bouncer_lacks_prepared(&self) -> bool {
        self.programs.bouncer_version.is_none_or(|version| version < BOUNCER_WITH_PREPARED)
    }

    /// Writes the files a system needs and says how to start it.
    fn command_line(&self, system: System, workload: &Workload, folder: &Path, ports: [u16; 3]) -> Result<Vec<String>> {
        let door = workload.door;
        let settings = conf::Settings {
            folder: folder.display().to_string(),
            port: ports[0],
            second_port: ports[1],
            third_port: ports[2],
            server_ports: self.server_ports(workload.stage),
            stage: workload.stage,
            clients_max: match workload.kind {
                Kind::Idle { .. } => workload.clients,
                _ => self.clients_max,
            },
            pool_size: self.pool_size,
            bouncer_renames: !self.bouncer_lacks_prepared(),
            door,
        };
        let write = |name: &str, text: String| -> Result<String> {
            let path = folder.join(name);
            fs::write(&path, text)?;
            Ok(path.display().to_string())
        };
        write("server.crt", self.secrets.certificate.clone())?;
        fs::set_permissions(write("server.key", self.secrets.key.clone())?, fs::Permissions::from_mode(0o600))?;
        let program = |program: &Program| match program {
            Ok(path) => Ok(path.display().to_string()),
            Err(reason) => bail!("{reason}"),
        };
        let address = |port: u16| format!("127.0.0.1:{port}");
        Ok(match system {
            System::Direct => bail!("nothing to start"),
            System::Relay => vec![program(&self.programs.relay)?, address(ports[0]), address(self.server_port)],
            System::Answers => vec![program(&self.programs.answers)?, address(ports[0])],
            System::Redis => {
                let port = ports[0].to_string();
                let words = ["--bind", "127.0.0.1", "--port", &port, "--save", "", "--appendonly", "no"].map(str::to_owned);
                [program(&self.programs.redis)?].into_iter().chain(words).collect()
            }
            System::Weir => {
                if door == Door::Scram {
                    write("pool_passwd", format!("postgres:{}\n", self.secrets.verifier))?;
                }
                vec![program(&self.programs.weir)?, "-f".into(), write("pgpool.conf", conf::weir(&settings))?]
            }
            System::Bouncer => {
                let secret = if door == Door::Scram { &*self.secrets.verifier } else { "" };
                write("users.txt", format!("\"postgres\" \"{secret}\"\n"))?;
                let ini = write("pgbouncer.ini", conf::bouncer(&settings))?;
                vec![program(&self.programs.bouncer)?, "-q".into(), ini]
            }
            System::Pgpool => {
                let main = write("pgpool.conf", conf::pgpool(&settings))?;
                let hba = write("pool_hba.conf", String::new())?;
                let pcp = write("pcp.conf", String::new())?;
                vec![program(&self.programs.pgpool)?, "-n".into(), "-f".into(), main, "-a".into(), hba, "-F".into(), pcp]
            }
        })
    }
}

/// A system that answers. Dropping it ends it.
pub struct Running {
    system: System,
    /// Where it listens.
    pub port: u16,
    /// Where the primary behind it listens.
    pub server_port: u16,
    child: Option<Child>,
    /// Where it keeps answers.
    store: Option<Child>,
    /// File with its output.
    log: PathBuf,
    session_mode: bool,
    /// Held so that nobody else is given the ports.
    #[allow(dead_code)] // only its drop matters
    reserved: Vec<ReservedPort>,
}

impl Running {
    /// The proxy's first process; `None` for no proxy.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// The system that runs.
    pub fn system(&self) -> System {
        self.system
    }

    /// The database a workload connects to: PgBouncer has one more, in session mode.
    pub fn database(&self, workload: &Workload) -> &'static str {
        match workload.kind {
            Kind::Select(Mode::Prepared) if self.session_mode => conf::SESSION_DATABASE,
            _ => "postgres",
        }
    }

    fn wait_ready(&mut self) -> Result<()> {
        let end = Instant::now() + START_LIMIT;
        loop {
            let knocked = match self.system {
                System::Redis => redis::knock(self.port),
                _ => Client::knock(self.port, &mut [0; 4096]),
            };
            let Err(error) = knocked else { return Ok(()) };
            let ended = self.child.as_mut().map(Child::try_wait).transpose()?.flatten();
            if ended.is_some() || Instant::now() > end {
                let last = self.last_words().unwrap_or_else(|| "it said nothing".to_owned());
                let how = ended.map_or_else(|| format!("no login: {error:#}"), |status| status.to_string());
                bail!("{} does not start ({how}): {last}", self.system.name());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A proxy knows all its servers only after it has asked them.
    fn wait_for_servers(&self, count: usize) -> Result<()> {
        if count == 1 {
            return Ok(());
        }
        weir_demo::wait_until("the proxy to find its servers", START_LIMIT, || {
            let rows = Sql::connect_tcp("127.0.0.1", self.port, "postgres", "postgres")?.query("SHOW pool_nodes")?;
            // Status is the fourth column, the role found by asking the eighth.
            let is_known = |row: &weir_demo::Row| row.get(3).is_some_and(|status| status.as_deref() == Some("up"));
            Ok(rows.iter().filter(|row| is_known(row)).count() == count)
        })
    }

    /// Where and why it panicked, else the last line it printed.
    pub fn last_words(&self) -> Option<String> {
        let text = fs::read_to_string(&self.log).ok()?;
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        match lines.iter().position(|line| line.contains(" panicked at ")) {
            // The reason is on the line after the place.
            Some(at) => Some(lines[at..].iter().take(2).copied().collect::<Vec<_>>().join(" ")),
            None => lines.last().map(|&line| line.to_owned()),
        }
    }

    /// Ends it and waits.
    pub fn stop(&mut self) -> Result<()> {
        if let Some(mut store) = self.store.take() {
            process::stop(&mut store, Signal::TERM, STOP_LIMIT)?;
        }
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let family = proc::tree(child.id());
        let ended = process::stop(&mut child, self.system.stop_signal(), STOP_LIMIT)?;
        if ended == process::Ended::Killed {
            // Pgpool's children do not notice that their parent was killed.
            for pid in family.into_iter().filter(|&pid| pid != child.id()) {
                // An error means that it ended by itself meanwhile.
                let _ = process::send(pid, Signal::KILL);
            }
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("cannot end {}: {error:#}", self.system.name());
        }
    }
}
