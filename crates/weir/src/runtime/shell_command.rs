//! An operator's command in a shell; its output goes to the log.

use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::fmt::Arguments;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command as Shell, ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncBufReadExt, BufReader, Interest};
use tokio::net::unix::pipe;

/// Time for the rest of the output: a process left running may keep the pipe open for ever.
const WORDS_LIMIT: Duration = Duration::from_millis(200);
const LINE_BYTES_MAX: usize = 8 << 10;

/// Runs the command until its shell ends, and gives each line of its output to `say`. Cancel safe: the process group is killed.
pub async fn run(line: &str, say: &impl Fn(Arguments<'_>)) -> io::Result<ExitStatus> {
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
    let words = async { tokio::join!(say_lines(say, out), say_lines(say, err)) };
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

/// Kills the process group on drop unless waited for.
struct ProcessGroupGuard(Option<Child>);

impl Drop for ProcessGroupGuard {
    fn drop(&mut self) {
        let Some(mut child) = self.0.take() else { return };
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        // A process that waits for a disk dies late; the thread that has this event loop must not wait for it.
        if !matches!(child.try_wait(), Ok(Some(_))) {
            let _ = std::thread::Builder::new().name("reaper".into()).spawn(move || child.wait());
        }
    }
}

async fn say_lines(say: &impl Fn(Arguments<'_>), output: Option<OwnedFd>) {
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
            say(format_args!("{}", text.trim_end()));
            line.clear();
        }
        if is_over {
            return;
        }
    }
}
