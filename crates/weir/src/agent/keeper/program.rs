//! Runs a program within a limit, and reads its output as it comes.

use super::processes::LOOK_PERIOD;
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Longer lines are split.
const LINE_BYTES_MAX: usize = 1000;
const LINES_MAX: usize = 30;
/// Time for remaining output, which a leftover process may keep open.
const WORDS_LIMIT: Duration = Duration::from_millis(300);

#[derive(Debug, PartialEq, Eq)]
pub enum ProgramEnd {
    Success,
    Failure,
    /// Killed after the limit.
    Killed,
}

pub struct ProgramResult {
    pub end: ProgramEnd,
    pub out: VecDeque<String>,
    pub errors: VecDeque<String>,
}

impl ProgramResult {
    pub fn words(&self) -> String {
        let lines = if self.errors.is_empty() { &self.out } else { &self.errors };
        let last = lines.iter().skip(lines.len().saturating_sub(5));
        last.map(|line| line.trim()).collect::<Vec<_>>().join("; ")
    }
}

#[derive(Clone, Copy)]
enum OutputStream {
    Out,
    Error,
}

/// `heed` sees each line of both outputs. A process group of its own keeps the agent's signals away.
pub fn run(mut command: Command, until: Instant, heed: &mut dyn FnMut(&str)) -> io::Result<ProgramResult> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn()?;
    let (sender, lines) = sync_channel(LINES_MAX);
    let (out, errors) = (child.stdout.take(), child.stderr.take());
    let other = sender.clone();
    std::thread::spawn(move || out.map(|out| read_lines(out, OutputStream::Out, &sender)));
    std::thread::spawn(move || errors.map(|errors| read_lines(errors, OutputStream::Error, &other)));
    let mut ended = ProgramResult { end: ProgramEnd::Failure, out: VecDeque::new(), errors: VecDeque::new() };
    ended.end =
        attend(&mut child, until, &lines, &mut |kind, line| ended_line(&mut ended.out, &mut ended.errors, kind, line, heed))?;
    Ok(ended)
}

fn ended_line(
    out: &mut VecDeque<String>,
    errors: &mut VecDeque<String>,
    kind: OutputStream,
    line: String,
    heed: &mut dyn FnMut(&str),
) {
    heed(&line);
    let kept = match kind {
        OutputStream::Out => out,
        OutputStream::Error => errors,
    };
    if kept.len() >= LINES_MAX {
        kept.pop_front();
    }
    kept.push_back(line);
}

fn attend(
    child: &mut Child,
    until: Instant,
    lines: &Receiver<(OutputStream, String)>,
    take: &mut dyn FnMut(OutputStream, String),
) -> io::Result<ProgramEnd> {
    let mut is_silent = false;
    let status = loop {
        match lines.recv_timeout(LOOK_PERIOD) {
            Ok((kind, line)) => take(kind, line),
            Err(RecvTimeoutError::Disconnected) if !is_silent => is_silent = true,
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(LOOK_PERIOD),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() >= until {
            let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
            // Killed, so no wait.
            child.wait()?;
            return Ok(ProgramEnd::Killed);
        }
    };
    let over = Instant::now() + WORDS_LIMIT;
    while let Ok((kind, line)) = lines.recv_timeout(over.saturating_duration_since(Instant::now())) {
        take(kind, line);
    }
    Ok(if status.success() { ProgramEnd::Success } else { ProgramEnd::Failure })
}

/// A carriage return ends a line too, as in progress output.
fn read_lines(mut from: impl Read, kind: OutputStream, to: &SyncSender<(OutputStream, String)>) {
    let (mut piece, mut line) = ([0; 4096], Vec::new());
    let send = |line: &mut Vec<u8>| {
        let text = String::from_utf8_lossy(line).into_owned();
        line.clear();
        text.trim().is_empty() || to.send((kind, text)).is_ok()
    };
    while let Ok(bytes) = from.read(&mut piece) {
        if bytes == 0 {
            break;
        }
        for byte in &piece[..bytes] {
            let is_end = matches!(byte, b'\n' | b'\r');
            if !is_end {
                line.push(*byte);
            }
            if (is_end || line.len() >= LINE_BYTES_MAX) && !send(&mut line) {
                return;
            }
        }
    }
    send(&mut line);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(text: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", text]);
        command
    }

    #[test]
    fn words_are_read_as_they_come_and_the_end_is_told() {
        let mut heard = Vec::new();
        let until = Instant::now() + Duration::from_secs(60);
        let command = shell("printf 'one\\rtwo\\n'; echo wrong >&2; exit 3");
        let ended = run(command, until, &mut |line| heard.push(line.to_string())).unwrap();
        heard.sort();
        assert_eq!((heard.join(" "), ended.end, ended.out.len()), ("one two wrong".into(), ProgramEnd::Failure, 2));
        let silent = run(shell("exec >&- 2>&-; exit 0"), until, &mut |_| {}).unwrap();
        let words = silent.words();
        assert_eq!((silent.end, words), (ProgramEnd::Success, String::new()));
    }

    #[test]
    fn a_program_and_what_it_began_are_killed_at_the_limit() {
        let until = Instant::now() + Duration::from_millis(50);
        let ended = run(shell("echo x; sleep 1000 & sleep 1000"), until, &mut |_| {}).unwrap();
        assert_eq!((ended.end, ended.out.iter().next().map(String::as_str)), (ProgramEnd::Killed, Some("x")));
    }
}
