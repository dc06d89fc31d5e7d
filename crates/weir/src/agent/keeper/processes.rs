//! Processes whose working directory is a given folder; a server's is its data directory.
//!
//! A pid file is no proof: it outlives a killed server, and its number may be reused. Orphans of a killed server still have its memory and
//! files.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

pub const LOOK_PERIOD: Duration = Duration::from_millis(10);

/// Ended processes do not count, collected or not.
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

pub fn of_server(data: &Path) -> Vec<Pid> {
    of(data, |name| matches!(name, "postgres" | "postmaster"))
}

pub fn of_agent(work: &Path) -> Vec<Pid> {
    of(work, |name| name.starts_with("pg_") || name == "psql")
}

/// True for an ended server process that its parent has not collected.
pub fn is_uncollected(pid: u32) -> bool {
    // The name in parentheses may hold any character; the state follows it.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let Some((before, behind)) = stat.rsplit_once(')') else { return false };
    (before.ends_with("(postgres") || before.ends_with("(postmaster")) && behind.trim_start().starts_with('Z')
}

pub fn signal(pids: &[Pid], signal: Signal) {
    for pid in pids {
        let _ = kill_process(*pid, signal);
    }
}

/// False: the time is over.
pub fn wait_gone(until: Instant, look: impl Fn() -> Vec<Pid>) -> bool {
    wait_gone_unless(until, || false, look)
}

/// False also once `is_over`.
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
