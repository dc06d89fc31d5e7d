//! Servers that are shards, and Weir before them, on one machine.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Result, ensure};
use weir_demo::{Cluster, Options, ReservedPort, Server, Sql, wait_until};

const READY_LIMIT: Duration = Duration::from_secs(60);
/// Reads the shards for the engine.
pub const ENGINE_USER: &str = "weir_engine";

/// Weir, until it is dropped.
pub struct RunningWeir {
    child: Child,
    port: ReservedPort,
}

impl RunningWeir {
    /// `folder`: for its files. `more`: lines of its configuration beside addresses and folders.
    pub fn start(program: &Path, folder: &Path, more: &str) -> Result<RunningWeir> {
        fs::create_dir_all(folder)?;
        let port = ReservedPort::any()?;
        let conf = folder.join("pgpool.conf");
        let (shown, number) = (folder.display(), port.number());
        let text = format!(
            "listen_addresses = '127.0.0.1'\nport = {number}\nunix_socket_directories = '{shown}'\npid_file_name = '{shown}/weir.pid'\n\
             work_dir = '{shown}'\nsr_check_user = 'postgres'\n{more}"
        );
        fs::write(&conf, text)?;
        let log = File::create(folder.join("weir.log"))?;
        let mut command = Command::new(program);
        command.arg("-f").arg(&conf).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(RunningWeir { child: command.spawn()?, port })
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until a query has an answer.
    pub fn wait_ready(&self, probe: &str) -> Result<()> {
        wait_until("Weir to answer", READY_LIMIT, || {
            let client = Sql::connect_tcp("127.0.0.1", self.port(), "postgres", "postgres");
            Ok(client.is_ok_and(|mut client| client.query(probe).is_ok()))
        })
    }
}

impl Drop for RunningWeir {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub struct SpreadStage {
    weir: RunningWeir,
    shards: Vec<Cluster>,
    program: PathBuf,
}

/// A server as the shards are.
pub fn server(settings: &[(&str, &str)]) -> Result<Cluster> {
    let own = [("max_prepared_transactions", "100")];
    let extra_conf = settings.iter().chain(&own).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Cluster::start(Options { extra_conf, ..Options::default() })
}

impl SpreadStage {
    pub fn start(program: &Path, count: usize, settings: &[(&str, &str)]) -> Result<SpreadStage> {
        SpreadStage::start_with(program, count, settings, "")
    }

    /// `more`: lines of Weir's configuration beside those of the servers.
    pub fn start_with(program: &Path, count: usize, settings: &[(&str, &str)], more: &str) -> Result<SpreadStage> {
        let shards = (0..count).map(|_| server(settings)).collect::<Result<Vec<_>>>()?;
        for shard in &shards {
            shard.primary().query(&format!("create role {ENGINE_USER} login"))?;
        }
        let weir = RunningWeir::start(program, &shards[0].dir().join("weir"), &(backends(&shards) + more))?;
        Ok(SpreadStage { weir, shards, program: program.to_owned() })
    }

    /// One more before the same servers.
    pub fn other_weir(&self, name: &str, more: &str) -> Result<RunningWeir> {
        RunningWeir::start(&self.program, &self.folder().join(name), &(backends(&self.shards) + more))
    }

    pub fn folder(&self) -> &Path {
        self.shards[0].dir()
    }

    pub fn port(&self) -> u16 {
        self.weir.port()
    }

    pub fn weir(&self) -> &RunningWeir {
        &self.weir
    }

    pub fn shards(&self) -> impl Iterator<Item = &Server> {
        self.shards.iter().map(Cluster::primary)
    }

    /// Runs `weir shard`.
    pub fn command(&self, arguments: &[&str]) -> Result<()> {
        let conf = self.folder().join("weir").join("pgpool.conf");
        let output = Command::new(&self.program).arg("shard").args(arguments).arg("-f").arg(conf).output()?;
        ensure!(
            output.status.success(),
            "weir shard {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(())
    }

    /// Makes the engine ready, and waits until it answers.
    pub fn make_ready(&self, probe: &str) -> Result<()> {
        self.command(&["engine", "postgres", "--user", ENGINE_USER])?;
        self.weir.wait_ready(probe)
    }
}

fn backends(shards: &[Cluster]) -> String {
    let mut text = "parallel_mode = on\n".to_owned();
    for (shard, cluster) in shards.iter().enumerate() {
        let port = cluster.primary().port();
        let _ =
            write!(text, "backend_hostname{shard} = '127.0.0.1'\nbackend_port{shard} = {port}\nbackend_shard{shard} = {shard}\n");
    }
    text
}
