//! Starts and ends server processes so that none outlives us.
//!
//! Three ways to end: dropped (we signal and wait), interrupted in a terminal (a server has its own process group, so
//! it does not see Ctrl-C before we do), killed (the kernel sends the parent death signal, set through `setpriv`
//! because doing it here would take unsafe code; where there is no such `setpriv`, this last way leaves servers).

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::programs::RunAs;
use crate::wait::wait_until;

/// How long killed processes may take to vanish. They cannot refuse; only a busy machine delays them.
const KILL_LIMIT: Duration = Duration::from_secs(120);
/// How long stopped processes may take to stand still, with the same reason.
const STOP_LIMIT: Duration = KILL_LIMIT;
/// Sent to a server when we die. Not INT: a fast shutdown can wait for a receiver that is gone or frozen, an
/// immediate one ends within 5 s, and the data survives it.
const DEATH_SIGNAL: &str = "QUIT";

/// The start of server processes: their user, and true if the kernel ends them when we die.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Launch {
    pub(crate) run_as: RunAs,
    guard: Guard,
}

#[derive(Debug, Clone, Copy)]
enum Guard {
    Setpriv,
    Nothing,
}

impl Launch {
    pub(crate) fn new() -> Result<Launch> {
        let mut probe = Command::new("setpriv");
        probe.args(["--pdeathsig", DEATH_SIGNAL, "true"]).stdout(Stdio::null()).stderr(Stdio::null());
        let guard = match probe.status() {
            Ok(status) if status.success() => Guard::Setpriv,
            _ => Guard::Nothing,
        };
        Ok(Launch { run_as: RunAs::choose()?, guard })
    }

    /// Starts a postmaster on `data`; its output is appended to `log`.
    pub(crate) fn postgres(self, bin: &Path, data: &Path, log: &Path) -> Result<Child> {
        self.guarded(self.run_as, &bin.join("postgres"), &["-D".as_ref(), data.as_os_str()], data, log)
    }

    /// Starts a program as our own user; its output is appended to `log`.
    pub(crate) fn companion(self, program: &Path, arguments: &[&OsStr], log: &Path) -> Result<Child> {
        self.guarded(RunAs::Ourselves, program, arguments, log.parent().unwrap_or(Path::new("/")), log)
    }

    fn guarded(self, run_as: RunAs, program: &Path, arguments: &[&OsStr], folder: &Path, log: &Path) -> Result<Child> {
        let mut command = match self.guard {
            Guard::Setpriv => {
                let mut command = run_as.command(Path::new("setpriv"), folder);
                command.args(["--pdeathsig", DEATH_SIGNAL]).arg(program);
                command
            }
            Guard::Nothing => run_as.command(program, folder),
        };
        let log = File::options().append(true).create(true).open(log)?;
        command.args(arguments).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        spawn_from_lasting_thread(command).with_context(|| format!("cannot start {}", program.display()))
    }
}

type Order = (Command, Sender<io::Result<Child>>);

/// Starts `command` from a thread that lives as long as this process.
///
/// The parent death signal is sent when the starting *thread* ends (prctl(2), PR_SET_PDEATHSIG). A cluster started
/// by one test thread and used by others would die with the first test.
fn spawn_from_lasting_thread(command: Command) -> Result<Child> {
    static ORDERS: OnceLock<Sender<Order>> = OnceLock::new();
    let orders = ORDERS.get_or_init(|| {
        let (sender, orders) = channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in orders {
                // An orderer that has gone away drops its end; the child it will never see is ended here.
                if let Err(unseen) = answer.send(command.spawn())
                    && let Ok(mut child) = unseen.0
                {
                    let _ = child.kill();
                    let _ = child.wait();
                }
            }
        });
        sender
    });
    let (sender, answer) = channel();
    orders.send((command, sender)).ok().context("the thread that starts processes has ended")?;
    Ok(answer.recv().context("the thread that starts processes has ended")??)
}

/// Sends `signal` to a process. After SIGSTOP it waits until no thread runs: the signal wakes one of them, which then stops the others.
///
/// Error: the process has ended, or a thread still runs after 120 s.
pub fn signal_process(process: Pid, signal: Signal) -> Result<()> {
    kill_process(process, signal)?;
    if signal == Signal::STOP { wait_stopped(process) } else { Ok(()) }
}

/// Waits until all threads of a process stand still, or have ended.
fn wait_stopped(process: Pid) -> Result<()> {
    let threads = format!("/proc/{}/task", process.as_raw_pid());
    wait_until("all threads to stand still", STOP_LIMIT, || {
        let threads = fs::read_dir(&threads).into_iter().flatten().flatten();
        let mut states = threads.filter_map(|thread| read_entry(&thread.path())).map(|entry| entry.state);
        Ok(!states.any(|state| matches!(state, 'R' | 'S' | 'D')))
    })
}

/// Sends `signal` to a child. Error: it has ended already.
pub(crate) fn signal_child(child: &Child, signal: Signal) -> Result<()> {
    signal_process(Pid::from_child(child), signal)
}

/// Sends `signal` to a process and everything it started. Processes that end meanwhile are no error.
pub(crate) fn signal_tree(root: Pid, signal: Signal) -> Result<()> {
    let all = tree(root);
    for pid in &all {
        let _ = kill_process(*pid, signal);
    }
    if signal == Signal::STOP { all.into_iter().try_for_each(wait_stopped) } else { Ok(()) }
}

/// Kills a postmaster and all its children at once, and waits until the children are gone.
///
/// The postmaster is stopped first: else it could start one more child between our look and the kill.
/// Waiting matters: PostgreSQL refuses to start again while one process still has the old shared memory.
pub(crate) fn kill_tree(root: Pid) -> Result<()> {
    // A process that has ended is killed in vain.
    let _ = signal_process(root, Signal::STOP);
    let victims = tree(root);
    for pid in &victims {
        let _ = kill_process(*pid, Signal::KILL);
    }
    wait_until("killed processes to vanish", KILL_LIMIT, || Ok(!victims.iter().any(|pid| is_alive(*pid))))
}

/// The postmaster that runs on `data`, if there is one, of any starter.
pub(crate) fn postmaster_of(data: &Path) -> Option<Pid> {
    let text = fs::read_to_string(data.join("postmaster.pid")).ok()?;
    let pid = Pid::from_raw(text.lines().next()?.trim().parse().ok()?)?;
    // The file outlives a killed postmaster, and the number may then be another process's. A postmaster works in
    // its data folder, other processes do not.
    let folder = fs::read_link(format!("/proc/{}/cwd", pid.as_raw_pid())).ok()?;
    (folder == data.canonicalize().ok()?).then_some(pid)
}

/// Removes the System V segment that a killed postmaster on `data` left behind; nothing else would before reboot.
pub(crate) fn remove_shared_memory_of(data: &Path) {
    let Ok(text) = fs::read_to_string(data.join("postmaster.pid")) else { return };
    // Line 7 is "key id" (src/include/utils/pidfile.h, LOCK_FILE_LINE_SHMEM_KEY).
    let Some(id) = text.lines().nth(6).and_then(|line| line.split_whitespace().nth(1)) else { return };
    let _ = Command::new("ipcrm").args(["-m", id]).stdout(Stdio::null()).stderr(Stdio::null()).status();
}

/// A process and its descendants, the root first.
fn tree(root: Pid) -> Vec<Pid> {
    let mut found = vec![root];
    let mut seen = BTreeSet::from([root.as_raw_pid()]);
    let mut rest = processes();
    loop {
        let (children, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|entry| seen.contains(&entry.parent));
        if children.is_empty() {
            return found;
        }
        seen.extend(children.iter().map(|entry| entry.pid));
        found.extend(children.iter().filter(|entry| entry.pid != root.as_raw_pid()).filter_map(|c| Pid::from_raw(c.pid)));
        rest = others;
    }
}

struct Entry {
    pid: i32,
    parent: i32,
    state: char,
}

fn processes() -> Vec<Entry> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| read_entry(&entry.path())).collect()
}

/// Reads the folder of a process or thread in /proc.
fn read_entry(folder: &Path) -> Option<Entry> {
    let pid = folder.file_name()?.to_str()?.parse().ok()?;
    let text = fs::read_to_string(folder.join("stat")).ok()?;
    // "pid (name) state parent ...": the name may hold anything, so the fields count from the last parenthesis.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    Some(Entry { pid, state: fields.next()?.chars().next()?, parent: fields.next()?.parse().ok()? })
}

/// A zombie counts as gone: it holds nothing, and in a container without an init process it stays forever.
fn is_alive(pid: Pid) -> bool {
    entry_of(pid).is_some_and(|entry| entry.state != 'Z')
}

fn entry_of(pid: Pid) -> Option<Entry> {
    read_entry(&Path::new("/proc").join(pid.as_raw_pid().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_tree_takes_its_children_along() {
        let mut child = Command::new("sh").args(["-c", "sleep 1000 & sleep 1000 & wait"]).spawn().unwrap();
        let root = Pid::from_child(&child);
        wait_until("two children", KILL_LIMIT, || Ok(tree(root).len() == 3)).unwrap();
        let all = tree(root);
        kill_tree(root).unwrap();
        child.wait().unwrap();
        assert!(all.into_iter().all(|pid| !is_alive(pid)));
    }

    #[test]
    fn whatever_is_stopped_stands_still() {
        let mut child = Command::new("sh").args(["-c", "yes > /dev/null & yes > /dev/null & wait"]).spawn().unwrap();
        let root = Pid::from_child(&child);
        wait_until("two children", KILL_LIMIT, || Ok(tree(root).len() == 3)).unwrap();
        let all = tree(root);
        for _ in 0..5 {
            signal_tree(root, Signal::STOP).unwrap();
            let states: Vec<_> = all.iter().map(|pid| entry_of(*pid).map(|entry| entry.state)).collect();
            assert_eq!(states, [Some('T'); 3]);
            signal_tree(root, Signal::CONT).unwrap();
        }
        kill_tree(root).unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_child_outlives_the_thread_that_asked_for_it() {
        if !matches!(Launch::new().unwrap().guard, Guard::Setpriv) {
            return;
        }
        let thread = thread::spawn(|| {
            let mut command = Command::new("setpriv");
            command.args(["--pdeathsig", "TERM", "sleep", "1000"]);
            let child = spawn_from_lasting_thread(command).unwrap();
            let pid = Pid::from_child(&child);
            let name = format!("/proc/{}/comm", child.id());
            wait_until("setpriv to become sleep", KILL_LIMIT, || Ok(fs::read_to_string(&name)? == "sleep\n")).unwrap();
            // Stopped, it keeps a signal it is sent for us to see.
            signal_process(pid, Signal::STOP).unwrap();
            (child, fs::read_link("/proc/thread-self").unwrap())
        });
        let (mut child, thread) = thread.join().unwrap();
        // Joined is not yet gone: the kernel sends the signal a moment later.
        let thread = Path::new("/proc").join(thread);
        wait_until("the thread to be gone", KILL_LIMIT, || Ok(!thread.exists())).unwrap();
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(status.contains("ShdPnd:\t0000000000000000\n"), "{status}");
    }
}
