//! One PostgreSQL server: its process, its files, questions to it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, WaitOptions, waitpid};

use crate::port::ReservedPort;
use crate::process::{Launch, kill_tree, postmaster_of, remove_shared_memory_of, signal_child, signal_tree};
use crate::programs::Programs;
use crate::sql::{Row, Sql};
use crate::wait::wait_until;

/// A start takes 0.1 s; crash recovery on a busy machine can take many times that.
const START_LIMIT: Duration = Duration::from_secs(60);
/// A fast shutdown takes 0.1 s unless a checkpoint has much to write.
const STOP_LIMIT: Duration = Duration::from_secs(30);
const COLLECT_LIMIT: Duration = Duration::from_secs(10);
/// Lines of the log shown when a server does not start.
const LOG_LINES: usize = 15;

/// How a server is asked to stop. Source: PostgreSQL manual, "Shutting Down the Server".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Lets clients finish; with a client that stays, this runs into the limit.
    Smart,
    /// Ends clients, then stops in order.
    Fast,
    /// Stops without order; the next start recovers.
    Immediate,
}

/// One server of a cluster. All methods take `&self`: tests stop one server while they hold others.
#[derive(Debug)]
pub struct Server {
    pub(crate) name: String,
    pub(crate) data: PathBuf,
    pub(crate) sockets: PathBuf,
    pub(crate) port: ReservedPort,
    pub(crate) programs: Programs,
    pub(crate) launch: Launch,
    pub(crate) process: Mutex<Option<Child>>,
}

impl Server {
    /// `primary`, `standby1`, `standby2`, ...; also its `cluster_name` and, for a standby, its `application_name`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The port, on 127.0.0.1 and of the unix socket.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The folder of the unix socket.
    pub fn socket_dir(&self) -> &Path {
        &self.sockets
    }

    /// The data folder.
    pub fn data_dir(&self) -> &Path {
        &self.data
    }

    /// The programs it runs.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// The server's log so far, over all its starts.
    pub fn log(&self) -> String {
        fs::read(self.log_path()).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// A connection over the unix socket. Any user but `postgres` must be trusted there.
    pub fn connect(&self, user: &str, database: &str) -> Result<Sql> {
        Sql::connect_unix(&self.sockets, self.port(), user, database)
    }

    /// Runs `text` as `postgres` in the database `postgres`, on a connection of its own.
    pub fn query(&self, text: &str) -> Result<Vec<Row>> {
        self.connect("postgres", "postgres")?.query(text).with_context(|| format!("server {}: {text}", self.name))
    }

    /// Like `query`, for statements that return one value. Error: they return none, or NULL.
    pub fn value(&self, text: &str) -> Result<String> {
        let value = self.query(text)?.into_iter().flatten().next().flatten();
        value.with_context(|| format!("server {}: {text} returned no value", self.name))
    }

    /// Is its postmaster there? It may be starting, stopping or frozen.
    pub fn is_running(&self) -> bool {
        running(&mut self.process()).is_some()
    }

    /// The process id of the postmaster we started, while it is there.
    pub fn pid(&self) -> Option<u32> {
        running(&mut self.process()).map(|child| child.id())
    }

    /// Starts the server and waits until it answers. Error: it runs already, or ended at once, or took over 60 s.
    pub fn start(&self) -> Result<()> {
        self.spawn()?;
        self.wait_ready()
    }

    /// Stops the server and waits for its end. Error: over 30 s; the server was killed then.
    pub fn stop(&self, mode: Mode) -> Result<()> {
        let signal = match mode {
            Mode::Smart => Signal::TERM,
            Mode::Fast => Signal::INT,
            Mode::Immediate => Signal::QUIT,
        };
        let mut process = self.process();
        let Some(child) = running(&mut process) else { return Ok(()) };
        signal_child(child, signal)?;
        let what = format!("server {} to stop", self.name);
        let ended = wait_until(&what, STOP_LIMIT, || Ok(child.try_wait()?.is_some()));
        if ended.is_err() {
            kill(child)?;
        }
        *process = None;
        ended
    }

    /// Kills the postmaster and all its children with SIGKILL, as a crash of the machine would. Also one that somebody else
    /// has started on these data, for example an agent.
    pub fn kill9(&self) -> Result<()> {
        let mut process = self.process();
        if let Some(child) = running(&mut process) {
            kill(child)?;
        }
        *process = None;
        let Some(other) = postmaster_of(&self.data) else { return Ok(()) };
        kill_tree(other)?;
        // Where its starter is gone it is a child of init, or of a subreaper, which may be this process. PostgreSQL takes one that nobody has
        // collected for one that runs. An init that collects nobody is left alone.
        let entry = PathBuf::from(format!("/proc/{}", other.as_raw_pid()));
        let _ = wait_until("the killed postmaster to be collected", COLLECT_LIMIT, || {
            let _ = waitpid(Some(other), WaitOptions::NOHANG);
            Ok(!entry.exists())
        });
        Ok(())
    }

    /// Stops all processes of the server where they are: it accepts connections but never answers. See `thaw`.
    pub fn freeze(&self) {
        self.freeze_postmaster();
        self.signal_all(Signal::STOP);
    }

    /// Stops the postmaster alone: no login is answered, and connections that are open go on. See `thaw`.
    pub fn freeze_postmaster(&self) {
        if let Some(child) = running(&mut self.process()) {
            let _ = signal_child(child, Signal::STOP);
        }
    }

    /// Lets a frozen server go on.
    pub fn thaw(&self) {
        self.signal_all(Signal::CONT);
    }

    /// Makes the server read its configuration files again; it does so soon after, not before this returns.
    pub fn reload(&self) -> Result<()> {
        match running(&mut self.process()) {
            Some(child) => signal_child(child, Signal::HUP),
            None => bail!("server {} does not run", self.name),
        }
    }

    /// Starts the postmaster and does not wait.
    pub(crate) fn spawn(&self) -> Result<()> {
        let mut process = self.process();
        if running(&mut process).is_some() {
            bail!("server {} runs already", self.name);
        }
        *process = Some(self.launch.postgres(self.programs.bin(), &self.data, &self.log_path())?);
        Ok(())
    }

    /// Waits until the server answers a query.
    pub(crate) fn wait_ready(&self) -> Result<()> {
        let what = format!("server {} to answer", self.name);
        let mut refused = None;
        let ready = wait_until(&what, START_LIMIT, || {
            if !self.is_running() {
                bail!("server {} ended while starting", self.name);
            }
            refused = self.query("select 1").err();
            Ok(refused.is_none())
        });
        ready.map_err(|error| {
            let reason = refused.map(|error| format!("{error:#}\n")).unwrap_or_default();
            error.context(format!("{reason}its log ends with:\n{}", self.log_end()))
        })
    }

    /// Asks for a fast shutdown without waiting, so that all servers of a cluster stop at the same time.
    pub(crate) fn begin_stop(&self) {
        if let Some(child) = running(&mut self.process()) {
            // A frozen server hears nothing.
            let _ = signal_tree(Pid::from_child(child), Signal::CONT);
            let _ = signal_child(child, Signal::INT);
        }
    }

    fn signal_all(&self, signal: Signal) {
        if let Some(child) = running(&mut self.process()) {
            // Nothing else than an end goes wrong.
            let _ = signal_tree(Pid::from_child(child), signal);
        }
    }

    fn log_path(&self) -> PathBuf {
        self.sockets.join(format!("{}.log", self.name))
    }

    /// The last lines of its log.
    pub fn log_end(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }

    /// The lock protects one Option; a thread that panicked while holding it cannot have left it half changed.
    fn process(&self) -> MutexGuard<'_, Option<Child>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Server {
    /// Runs while a panic unwinds too; errors have nobody to go to, and the last resort is tried in any case.
    fn drop(&mut self) {
        self.begin_stop();
        let _ = self.stop(Mode::Fast);
        // Somebody, for example a failover script under test, may have started another postmaster on our data.
        if let Some(pid) = postmaster_of(&self.data) {
            let _ = kill_tree(pid);
        }
        remove_shared_memory_of(&self.data);
    }
}

/// The child, while it has not ended. An ended child is reaped and forgotten.
fn running(process: &mut Option<Child>) -> Option<&mut Child> {
    if let Some(child) = process
        && !matches!(child.try_wait(), Ok(None))
    {
        *process = None;
    }
    process.as_mut()
}

fn kill(child: &mut Child) -> Result<()> {
    let killed = kill_tree(Pid::from_child(child));
    child.wait()?;
    killed
}
