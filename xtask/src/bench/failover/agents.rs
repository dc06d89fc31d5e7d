//! `weir agent` beside each server.

use std::fs::{self, File, Permissions};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{getpid, set_child_subreaper};
use weir_demo::{Cluster, ReservedPort, Server, wait_until};

use crate::process::Account;

const SECRET: &str = "0123456789-of-the-benchmark\n";
/// Name of the file with the secret; Weir reads the same one.
pub const SECRET_FILE: &str = "agent_secret";
const LISTEN_LIMIT: Duration = Duration::from_secs(20);
/// Programs that an agent runs beside the programs of the server.
const PROGRAMS: [&str; 3] = ["psql", "pg_rewind", "pg_basebackup"];

/// Dropping it ends it. A server that it has started goes with its cluster.
pub struct Agent {
    port: ReservedPort,
    process: Child,
}

impl Agent {
    /// One beside each server, their secret and logs in `folder`.
    pub fn beside_all(weir: &Path, account: Account, cluster: &Cluster, folder: &Path) -> Result<Vec<Agent>> {
        // Servers that agents start are collected here when they are killed, as by the init process that a container may lack.
        set_child_subreaper(Some(getpid()))?;
        let secret = folder.join(SECRET_FILE);
        fs::write(&secret, SECRET)?;
        fs::set_permissions(&secret, Permissions::from_mode(0o600))?;
        account.own(&secret)?;
        cluster.servers().iter().map(|server| Agent::beside(weir, account, server, folder)).collect()
    }

    fn beside(weir: &Path, account: Account, server: &Server, folder: &Path) -> Result<Agent> {
        let bin = server.programs().bin();
        for name in PROGRAMS {
            ensure!(bin.join(name).is_file(), "{} has no {name}", bin.display());
        }
        let port = ReservedPort::any()?;
        let log = File::create(folder.join(format!("agent-{}.log", server.name())))?;
        // Should this program be killed, its agents end as well.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(weir).args(["agent", "-D"]).arg(server.data_dir());
        command.arg("--bin-dir").arg(bin).args(["--listen", &format!("127.0.0.1:{}", port.number())]);
        command.arg("--secret-file").arg(folder.join(SECRET_FILE)).env("HOME", "/nonexistent");
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        account.apply(&mut command);
        let process = command.spawn().context("cannot run setpriv")?;
        let mut agent = Agent { port, process };
        wait_until("an agent to listen", LISTEN_LIMIT, || {
            ensure!(agent.process.try_wait()?.is_none(), "the agent of {} has ended", server.name());
            Ok(TcpStream::connect(("127.0.0.1", agent.port.number())).is_ok())
        })?;
        Ok(agent)
    }

    pub fn port(&self) -> u16 {
        self.port.number()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // A process that has ended needs no signal.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
