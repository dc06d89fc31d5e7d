//! The end of all processes that a test leaves behind: servers go on in sessions of their own.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};

/// Time for servers to end at a signal.
const END_LIMIT: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// From now on a process whose parent ends is a child of ours.
pub fn adopt() -> Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Ends all that we have begun, and all that those have. Error: something still runs.
pub fn end_all() -> Result<()> {
    // PostgreSQL removes its shared memory at this one.
    for signal in [Signal::QUIT, Signal::KILL] {
        let until = Instant::now() + END_LIMIT;
        while Instant::now() < until {
            while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
            let left = descendants();
            if left.is_empty() {
                return Ok(());
            }
            for pid in left.into_iter().filter_map(Pid::from_raw) {
                // It may have ended by now.
                let _ = kill_process(pid, signal);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
    bail!("processes of a test still run: {:?}", descendants())
}

/// All processes below us.
fn descendants() -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let parents: BTreeMap<i32, i32> = entries
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            Some((pid, parent(&fs::read_to_string(entry.path().join("stat")).ok()?)?))
        })
        .collect();
    let own = getpid().as_raw_nonzero().get();
    let is_below = |pid: &i32| {
        let mut at = *pid;
        // A chain is as long as there are processes at most.
        for _ in 0..parents.len() {
            match parents.get(&at) {
                Some(parent) if *parent == own => return true,
                Some(parent) => at = *parent,
                None => return false,
            }
        }
        false
    };
    parents.keys().copied().filter(is_below).collect()
}

/// The parent in a line of /proc/PID/stat. The name before it may have blanks and brackets.
fn parent(stat: &str) -> Option<i32> {
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_stands_behind_any_name() {
        assert_eq!(parent("12 (a (b) c) S 7 12 12 0"), Some(7));
    }
}
