//! Child processes: run with a limit, as an ordinary user, ended by id.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, getuid, kill_process};

/// The interval between two looks at a child that may have ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Account that runs the servers: PostgreSQL and PgBouncer refuse root.
#[derive(Debug, Clone, Copy)]
pub enum Account {
    /// We are an ordinary user already.
    Ourselves,
    /// We are root and run them as this one.
    Other { uid: u32, gid: u32 },
}

impl Account {
    /// `postgres`, else `nobody`, when we are root; ourselves otherwise.
    pub fn find() -> Result<Self> {
        if !getuid().is_root() {
            return Ok(Self::Ourselves);
        }
        let users = std::fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
        let ids_of = |name: &str| {
            let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
            let mut fields = line.split(':').skip(2);
            Some(Self::Other { uid: fields.next()?.parse().ok()?, gid: fields.next()?.parse().ok()? })
        };
        ids_of("postgres").or_else(|| ids_of("nobody")).context("running as root, and no user postgres or nobody")
    }

    /// Makes `command` run as this account.
    pub fn apply(self, command: &mut Command) {
        if let Self::Other { uid, gid } = self {
            command.uid(uid).gid(gid);
        }
    }

    /// Gives a file or folder to this account.
    pub fn own(self, path: &Path) -> Result<()> {
        if let Self::Other { uid, gid } = self {
            std::os::unix::fs::chown(path, Some(uid), Some(gid))
                .with_context(|| format!("cannot give {} to user {uid}", path.display()))?;
        }
        Ok(())
    }
}

/// Output of a command that ended.
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// Runs a command to its end. Error: it cannot start, or is still running after `limit` (it is then killed).
pub fn run(command: &mut Command, limit: Duration) -> Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {name}"))?;
    let stdout = collect(child.stdout.take());
    let stderr = collect(child.stderr.take());
    let Some(status) = wait(&mut child, limit)? else {
        child.kill()?;
        child.wait()?;
        bail!("{name} did not end within {} s", limit.as_secs());
    };
    let join = |reader: std::thread::JoinHandle<String>| reader.join().unwrap_or_default();
    Ok(Output { status, stdout: join(stdout), stderr: join(stderr) })
}

/// Reads a pipe to its end beside the caller, so that a full pipe never stops the child.
fn collect(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // A pipe that breaks gives the bytes before; the exit status tells the rest.
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// `None` when the child still runs after `limit`.
pub fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            return Ok(None);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// How a process that was asked to stop has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// By itself.
    Asked,
    /// It had to be killed.
    Killed,
}

/// Sends a signal, waits, and kills a process that does not end.
pub fn stop(child: &mut Child, signal: Signal, limit: Duration) -> Result<Ended> {
    if child.try_wait()?.is_some() {
        return Ok(Ended::Asked);
    }
    send(child.id(), signal)?;
    if wait(child, limit)?.is_some() {
        return Ok(Ended::Asked);
    }
    child.kill()?;
    child.wait()?;
    Ok(Ended::Killed)
}

/// Sends a signal to one process.
pub fn send(pid: u32, signal: Signal) -> Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("not a process id")?;
    kill_process(pid, signal).with_context(|| format!("cannot signal process {}", pid.as_raw_nonzero()))
}
