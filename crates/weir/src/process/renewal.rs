//! A running proxy is replaced by a process of the program that is installed now: `weir renew`, as the packages do at an upgrade.
//!
//! The running proxy starts the new process itself, so that this one has the user, folders, variables, limits and namespaces that a service manager
//! gave, and stays in its unit. The new process then takes over as any other (`takeover`).

use crate::process::pid_file;
use crate::process::takeover::{self, RENEW, STARTED, WORD_LIMIT};
use crate::runtime::operator_files::{EnvironmentUse, OperatorFiles, ProgramName};
use anyhow::{Context, anyhow, bail, ensure};
use rustix::net::sockopt::socket_peercred;
use rustix::process::Pid;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time for the new process to take over: that of its start, of its place in a group, and of the old one's last accepted clients.
const RENEWAL_LIMIT: Duration = Duration::from_secs(90);

/// Another process tells nothing of its way: the socket shows when it serves, and `RENEWAL_LIMIT` bounds the looks.
const LOOK_PERIOD: Duration = Duration::from_millis(100);

/// Of an answer, which may hold the reason of a refusal.
const ANSWER_BYTES_MAX: u64 = 4096;

/// Variables that a service manager meant for the former process by its number. Source: sd_listen_fds(3), sd_watchdog_enabled(3).
const OF_FORMER_PROCESS: [&str; 4] = ["WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];

/// Starts processes that are to take over from this one. At most one runs at a time.
pub struct SuccessorStarter {
    program: Result<PathBuf, String>,
    arguments: Vec<OsString>,
    started: Option<Child>,
}

impl SuccessorStarter {
    /// Must be made at the start: later the program's file may be another one, and its path is gone with it.
    pub fn new(files: &OperatorFiles) -> SuccessorStarter {
        let program = match files.called {
            ProgramName::Weir => std::env::current_exe().map_err(|cause| format!("the program's own file is unknown: {cause}")),
            ProgramName::Pgpool => Err("it was called pgpool: start a new one by hand with weir --takeover".to_owned()),
        };
        SuccessorStarter { program, arguments: arguments_of(files), started: None }
    }

    /// Error: a refusal for the asker.
    pub fn start(&mut self) -> Result<Pid, String> {
        if let Some(pid) = self.running() {
            return Err(format!("process {} starts already", pid.as_raw_nonzero()));
        }
        let program = self.program.clone()?;
        let mut command = Command::new(&program);
        command.args(&self.arguments).stdin(Stdio::null());
        for variable in OF_FORMER_PROCESS {
            command.env_remove(variable);
        }
        let child = command.spawn().map_err(|cause| format!("cannot start {}: {cause}", program.display()))?;
        let pid = Pid::from_child(&child);
        self.started = Some(child);
        Ok(pid)
    }

    pub fn is_own(&mut self, process: Pid) -> bool {
        self.running() == Some(process)
    }

    /// A started process that has ended is reaped here.
    fn running(&mut self) -> Option<Pid> {
        let child = self.started.as_mut()?;
        matches!(child.try_wait(), Ok(None)).then(|| Pid::from_child(child))
    }
}

/// The command line by which a process with the same files takes over. `-D` is not among it: nodes that are out of use stay so.
fn arguments_of(files: &OperatorFiles) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["--takeover".into()];
    let named = [("-f", &files.config), ("-a", &files.hba), ("-F", &files.pcp), ("-k", &files.key)];
    for (option, path) in named {
        arguments.extend(path.iter().flat_map(|path| [option.into(), path.clone().into_os_string()]));
    }
    for (name, value) in &files.settings {
        arguments.extend(["-c".into(), format!("{name}={value}").into()]);
    }
    if files.environment == EnvironmentUse::Parameters {
        arguments.push("--config-from-environment".into());
    }
    arguments
}

/// Has the proxy at `takeover_socket` replaced. Returns the old process and the new one, which serves new clients. Error: the old one serves as before,
/// or the new one is not seen in `RENEWAL_LIMIT`.
pub fn renew(path: &Path) -> anyhow::Result<(Pid, Pid)> {
    ensure!(
        !path.as_os_str().is_empty(),
        "takeover_socket is not set: without it the running proxy cannot be replaced under its clients"
    );
    let asked = Instant::now();
    let stream =
        UnixStream::connect(path).with_context(|| format!("no running proxy answers at {} (takeover_socket)", path.display()))?;
    let old = socket_peercred(&stream)?.pid;
    stream.set_read_timeout(Some(WORD_LIMIT))?;
    (&stream).write_all(format!("{RENEW}\n").as_bytes())?;
    let mut answer = String::new();
    let read = BufReader::new(stream.take(ANSWER_BYTES_MAX)).read_line(&mut answer);
    read.map_err(|cause| anyhow!("the running proxy did not answer in {} s: {cause}", WORD_LIMIT.as_secs()))?;
    let answer = answer.trim_end();
    let started = answer.strip_prefix(STARTED).and_then(|pid| Pid::from_raw(pid.trim().parse().ok()?));
    let Some(new) = started else {
        let is_older = answer.is_empty();
        bail!(
            "the running proxy refuses: {}",
            if is_older { "it is of a version without weir renew, or its log says why" } else { answer }
        );
    };
    while asked.elapsed() < RENEWAL_LIMIT {
        if takeover::process_at(path) == Some(new) {
            return Ok((old, new));
        }
        ensure!(
            pid_file::lives(new),
            "the new process ({}) has ended, and process {} serves as before: the log says why",
            new.as_raw_nonzero(),
            old.as_raw_nonzero()
        );
        std::thread::sleep(LOOK_PERIOD);
    }
    bail!("process {} has not taken over in {} s: look at the log", new.as_raw_nonzero(), RENEWAL_LIMIT.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &OperatorFiles, expected: &str) {
        let words: Vec<String> = arguments_of(files).iter().map(|word| word.to_string_lossy().into_owned()).collect();
        assert_eq!(words.join(" "), expected);
    }

    #[test]
    fn a_successor_has_the_files_and_settings_of_the_former_process() {
        check(&OperatorFiles::default(), "--takeover");
        let files = OperatorFiles {
            config: Some("/etc/weir/pgpool.conf".into()),
            settings: vec![("port".into(), "6000".into())],
            environment: EnvironmentUse::Parameters,
            hba: Some("hba".into()),
            pcp: Some("pcp".into()),
            key: Some("key".into()),
            ..OperatorFiles::default()
        };
        check(&files, "--takeover -f /etc/weir/pgpool.conf -a hba -F pcp -k key -c port=6000 --config-from-environment");
    }

    #[test]
    fn a_process_called_pgpool_starts_none() {
        let files = OperatorFiles { called: ProgramName::Pgpool, ..OperatorFiles::default() };
        assert!(SuccessorStarter::new(&files).start().unwrap_err().contains("weir --takeover"));
    }
}
