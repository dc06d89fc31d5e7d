//! Reads `/proc`: processor time, memory and children of a system under test.

use std::fs;

use anyhow::{Context, Result};

/// One line of `/proc/PID/stat`, as far as we need it.
struct Stat {
    parent: u32,
    /// Own time of all threads, in clock ticks.
    ticks: u64,
    /// Time of children that ended and were waited for.
    children_ticks: u64,
}

/// Clock ticks per second in `/proc`: USER_HZ, 100 on every Linux platform PostgreSQL runs on.
const TICKS_PER_SECOND: f64 = 100.0;

fn parse_stat(text: &str) -> Option<Stat> {
    // The second field is the name in brackets and may hold blanks and brackets itself.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Stat {
        parent: u32::try_from(number(1)?).ok()?,
        ticks: number(11)? + number(12)?,
        children_ticks: number(13)? + number(14)?,
    })
}

fn stat_of(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// A process and everything it started that still runs.
pub fn tree(root: u32) -> Vec<u32> {
    let mut parents: Vec<(u32, u32)> = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(pid) = pid
            && let Some(stat) = stat_of(pid)
        {
            parents.push((pid, stat.parent));
        }
    }
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(parents.iter().filter(|(_, p)| *p == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found
}

/// Processor seconds, user and system, of a process and its children, the ended ones too.
pub fn cpu_seconds(root: u32) -> Result<f64> {
    let root_stat = stat_of(root).with_context(|| format!("process {root} is gone"))?;
    let live: f64 = tree(root).into_iter().filter_map(|pid| own_seconds(pid, &stat_of(pid)?)).sum();
    Ok(live + ticks_to_seconds(root_stat.children_ticks))
}

/// Two clocks, both of which may say too little: ticks are rounded down, which hides all of many small processes, and the
/// nanoseconds lack threads that ended.
fn own_seconds(pid: u32, stat: &Stat) -> Option<f64> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let nanos = tasks.filter_map(|task| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    });
    Some(ticks_to_seconds(stat.ticks).max(nanos.sum::<f64>() / 1e9))
}

#[allow(clippy::cast_precision_loss)] // ticks of a benchmark stay far below 2^52
fn ticks_to_seconds(ticks: u64) -> f64 {
    ticks as f64 / TICKS_PER_SECOND
}

/// Bytes of a process and its children: shared memory is divided among them.
pub fn proportional_bytes(root: u32) -> Result<u64> {
    let of = |pid: u32| -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
        line.split_whitespace().next()?.parse().ok()
    };
    of(root).with_context(|| format!("the memory of process {root} cannot be read"))?;
    Ok(tree(root).into_iter().filter_map(of).sum::<u64>() * 1024)
}

/// Resident bytes of a process and its children.
pub fn resident_bytes(root: u32) -> Result<u64> {
    memory_bytes(root, "VmRSS:")
}

/// The most that was ever resident, of each of them.
pub fn peak_bytes(root: u32) -> Result<u64> {
    memory_bytes(root, "VmHWM:")
}

fn memory_bytes(root: u32, field: &str) -> Result<u64> {
    let of = |pid: u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(field))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    of(root).with_context(|| format!("process {root} is gone"))?;
    Ok(tree(root).into_iter().filter_map(of).sum::<u64>() * 1024)
}

/// The three load averages, for the report: a busy machine explains a wide spread.
pub fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_with_brackets_and_blanks_is_skipped() {
        let text = "12 (a) b (c) S 7 12 12 0 -1 4194304 100 0 0 0 250 50 9 1 20 0 1 0 5 0 0";
        let stat = parse_stat(text).expect("a line of /proc");
        assert_eq!((stat.parent, stat.ticks, stat.children_ticks), (7, 300, 10));
    }

    #[test]
    fn our_own_process_can_be_read() {
        let own = std::process::id();
        assert!(resident_bytes(own).expect("own memory") > 0);
        assert!(proportional_bytes(own).is_ok_and(|bytes| bytes > 0));
        assert!(peak_bytes(own).is_ok_and(|peak| peak > 0));
        assert!(tree(own).contains(&own));
        assert!(cpu_seconds(own).is_ok_and(|seconds| seconds > 0.0));
    }
}
