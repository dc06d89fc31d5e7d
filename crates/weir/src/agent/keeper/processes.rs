//! Processes that work in a folder: a server's do so in its data directory, and so does none of anybody else's.
//!
//! A pid file outlives a server that was killed, and its number may be another process's by then. Orphans of a killed server still have its
//! memory and files.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time between two looks at whether something has ended.
pub const LOOK_PERIOD: Duration = Duration::from_millis(10);

/// The processes of these names that work in the folder. One that has ended, collected or not, is none.
fn of(folder: &Path, is_named: impl Fn(&str) -> bool) -> Vec<Pid> {
    let Ok(own) = fs::metadata(folder) else { return Vec::new() };
    let works_there = |entry: fs::DirEntry| {
        let pid = Pid::from_raw(entry.file_name().to_str()?.parse().ok()?)?;
        let there = fs::metadata(entry.path().join("cwd")).ok()?;
        let name = fs::read_to_string(entry.path().join("comm")).ok()?;
        ((there.dev(), there.ino()) == (own.dev(), own.ino()) && is_named(name.trim_end())).then_some(pid)
    };
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(works_there).collect()
}

/// The processes of the server of a data directory.
pub fn of_server(data: &Path) -> Vec<Pid> {
    of(data, |name| matches!(name, "postgres" | "postmaster"))
}

/// Programs that an agent of this folder has begun.
pub fn of_agent(work: &Path) -> Vec<Pid> {
    of(work, |name| name.starts_with("pg_") || name == "psql")
}

/// True for a server's process that has ended and that nobody has collected.
pub fn is_uncollected(pid: u32) -> bool {
    // The name stands in parentheses and may hold any character; the state is behind it.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let Some((before, behind)) = stat.rsplit_once(')') else { return false };
    (before.ends_with("(postgres") || before.ends_with("(postmaster")) && behind.trim_start().starts_with('Z')
}

/// Sends a signal to each; one that has ended gets none.
pub fn signal(pids: &[Pid], signal: Signal) {
    for pid in pids {
        let _ = kill_process(*pid, signal);
    }
}

/// Waits until there is none left; false: the time is over.
pub fn wait_gone(until: Instant, look: impl Fn() -> Vec<Pid>) -> bool {
    wait_gone_unless(until, || false, look)
}

/// The same; false also once `is_over`.
pub fn wait_gone_unless(until: Instant, is_over: impl Fn() -> bool, look: impl Fn() -> Vec<Pid>) -> bool {
    loop {
        if look().is_empty() {
            return true;
        }
        if Instant::now() >= until || is_over() {
            return false;
        }
        std::thread::sleep(LOOK_PERIOD);
    }
}
