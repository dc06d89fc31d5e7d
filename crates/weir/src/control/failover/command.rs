//! Runs an operator's command in a shell; its output goes to the log.

use crate::control::control_context::ControlContext;
use crate::log::Level;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command as Shell, ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncBufReadExt, BufReader, Interest};
use tokio::net::unix::pipe;
use weir_failover::{Done, FailoverCommandKind};

/// Time for the rest of the output: a process left running may keep the pipe open for ever.
const WORDS_LIMIT: Duration = Duration::from_millis(200);
const LINE_BYTES_MAX: usize = 8 << 10;

/// Runs the command, and kills its process group after `limit`. Cancel safe: the process group is killed.
pub async fn run(c: &ControlContext, kind: FailoverCommandKind, line: &str, limit: Duration) -> Done {
    // Pgpool's words, for which scripts look.
    c.shared.log.say(Level::Log, format_args!("execute command: {line}"));
    match tokio::time::timeout(limit, run_through(c, kind, line)).await {
        Ok(Ok(status)) if status.success() => Done::Yes,
        Ok(Ok(status)) => {
            c.shared.log.say(Level::Warning, format_args!("{} failed: {status}", name(kind)));
            Done::No
        }
        Ok(Err(cause)) => {
            c.shared.log.say(Level::Error, format_args!("{} could not be run: {cause}", name(kind)));
            Done::No
        }
        Err(_) => {
            c.shared.log.say(Level::Error, format_args!("{} was killed after {} s", name(kind), limit.as_secs()));
            Done::No
        }
    }
}

fn name(kind: FailoverCommandKind) -> &'static str {
    match kind {
        FailoverCommandKind::Failover => "failover_command",
        FailoverCommandKind::Failback => "failback_command",
        FailoverCommandKind::FollowPrimary => "follow_primary_command",
    }
}

/// Kills the process group on drop unless waited for.
struct ProcessGroupGuard(Option<Child>);

impl Drop for ProcessGroupGuard {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
            let _ = child.wait();
        }
    }
}

async fn run_through(c: &ControlContext, kind: FailoverCommandKind, line: &str) -> io::Result<ExitStatus> {
    let mut shell = Shell::new("/bin/sh");
    shell.args(["-c", line]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut group = ProcessGroupGuard(Some(shell.spawn()?));
    let child = group.0.as_mut().ok_or(io::ErrorKind::NotFound)?;
    let ended = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    #[expect(
        deprecated,
        reason = "its successor is unsafe, for descriptors that somebody else may close; this one is ours alone"
    )]
    let ended = AsyncFd::with_interest(ended, Interest::READABLE)?;
    let (out, err) = (child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from));
    let words = async { tokio::join!(say_lines(c, kind, out), say_lines(c, kind, err)) };
    tokio::pin!(words);
    let mut is_silent = false;
    loop {
        tokio::select! {
            _ = &mut words, if !is_silent => is_silent = true,
            ready = ended.readable() => {
                ready?.retain_ready();
                break;
            }
        }
    }
    if !is_silent {
        let _ = tokio::time::timeout(WORDS_LIMIT, words).await;
    }
    let status = child.wait()?;
    group.0 = None;
    Ok(status)
}

async fn say_lines(c: &ControlContext, kind: FailoverCommandKind, output: Option<OwnedFd>) {
    let Some(output) = output.and_then(|fd| pipe::Receiver::from_owned_fd(fd).ok()) else { return };
    let mut reader = BufReader::new(output);
    let mut line = Vec::new();
    loop {
        let Ok(piece) = reader.fill_buf().await else { return };
        let is_over = piece.is_empty();
        let end = piece.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(piece.len(), |at| at + 1);
        line.extend_from_slice(&piece[..taken]);
        reader.consume(taken);
        if !line.is_empty() && (end.is_some() || is_over || line.len() >= LINE_BYTES_MAX) {
            let text = String::from_utf8_lossy(&line);
            c.shared.log.say(Level::Log, format_args!("{}: {}", name(kind), text.trim_end()));
            line.clear();
        }
        if is_over {
            return;
        }
    }
}
