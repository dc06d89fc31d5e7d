//! Weir as built from this workspace, before a cluster, for the tasks that compare it with a direct connection.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use weir_demo::{Cluster, ReservedPort, Sql, wait_until};

use crate::process;

const READY_LIMIT: Duration = Duration::from_secs(30);
const STOP_LIMIT: Duration = Duration::from_secs(10);

/// A running Weir. Dropping it kills it.
pub struct Proxy {
    child: Child,
    port: ReservedPort,
    folder: PathBuf,
}

impl Proxy {
    /// Starts `program` before the cluster's primary, with the defaults and the lines `more`; returns when it lets clients in.
    pub fn start(program: &Path, cluster: &Cluster, more: &str) -> Result<Proxy> {
        let port = ReservedPort::any()?;
        let folder = cluster.dir().join("weir");
        fs::create_dir(&folder)?;
        let shown = folder.display();
        let text = format!(
            "listen_addresses = '127.0.0.1'\nport = {}\nunix_socket_directories = '{shown}'\npid_file_name = '{shown}/weir.pid'\nwork_dir = '{shown}'\n\
             backend_hostname0 = '127.0.0.1'\nbackend_port0 = {}\nsr_check_user = 'postgres'\n{more}",
            port.number(),
            cluster.primary().port(),
        );
        let conf = folder.join("pgpool.conf");
        fs::write(&conf, text)?;
        let log = folder.join("log");
        let mut command = Command::new(program);
        command.arg("-f").arg(&conf).stdin(Stdio::null());
        command.stdout(File::create(&log)?).stderr(File::options().append(true).open(&log)?);
        let child = command.spawn().with_context(|| format!("cannot run {}", program.display()))?;
        let mut proxy = Proxy { child, port, folder };
        wait_until("Weir to let clients in", READY_LIMIT, || {
            ensure!(proxy.child.try_wait()?.is_none(), "Weir does not start:\n{}", fs::read_to_string(&log)?);
            Ok(Sql::connect_tcp("127.0.0.1", proxy.port(), "postgres", "postgres")
                .is_ok_and(|mut sql| sql.query("select 1").is_ok()))
        })?;
        Ok(proxy)
    }

    /// Where it listens, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Where its Unix socket is.
    pub fn socket_dir(&self) -> &Path {
        &self.folder
    }

    /// Ends it and keeps its log in `folder`. Error: it had ended before, or panicked.
    pub fn end(mut self, folder: &Path) -> Result<()> {
        let ended = self.child.try_wait()?;
        process::stop(&mut self.child, Signal::INT, STOP_LIMIT)?;
        fs::create_dir_all(folder)?;
        let log = String::from_utf8_lossy(&fs::read(self.folder.join("log"))?).into_owned();
        fs::write(folder.join("weir.log"), &log)?;
        if let Some(status) = ended {
            bail!("Weir ended during the run: {status}");
        }
        ensure!(!log.contains("panicked at"), "Weir panicked, see {}", folder.join("weir.log").display());
        Ok(())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // After `end` it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
