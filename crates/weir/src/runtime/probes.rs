//! Results of asking nodes for their roles: `SHOW pool_health_check_stats`.

use crate::log::utc;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// Columns after those that name the node.
pub const COLUMNS: [&str; 14] = [
    "total_count",
    "success_count",
    "fail_count",
    "skip_count",
    "retry_count",
    "average_retry_count",
    "max_retry_count",
    "max_duration",
    "min_duration",
    "average_duration",
    "last_health_check",
    "last_successful_health_check",
    "last_skip_health_check",
    "last_failed_health_check",
];

/// Counts by node number, written by one task.
#[derive(Debug, Default)]
pub struct ProbeStats(Mutex<BTreeMap<u16, ProbeCounts>>);

/// Counts of a node, which is never skipped or retried.
#[derive(Clone, Copy, Debug, Default)]
struct ProbeCounts {
    good: u64,
    bad: u64,
    longest: Duration,
    shortest: Duration,
    sum: Duration,
    /// In seconds since 1970; 0: never.
    last_good_s: u64,
    last_bad_s: u64,
}

impl ProbeStats {
    pub fn note(&self, node: u16, has_answered: bool, took: Duration, now_s: u64) {
        let mut probes = self.0.lock();
        let counts = probes.entry(node).or_default();
        let is_first = counts.good + counts.bad == 0;
        (counts.good, counts.bad) = (counts.good + u64::from(has_answered), counts.bad + u64::from(!has_answered));
        counts.longest = counts.longest.max(took);
        counts.shortest = if is_first { took } else { counts.shortest.min(took) };
        counts.sum += took;
        *(if has_answered { &mut counts.last_good_s } else { &mut counts.last_bad_s }) = now_s;
    }

    pub fn answers(&self, node: u16) -> u64 {
        self.0.lock().get(&node).map_or(0, |counts| counts.good)
    }

    /// Values of `COLUMNS`; durations in milliseconds.
    pub fn row(&self, node: u16) -> [String; COLUMNS.len()] {
        let counts = self.0.lock().get(&node).copied().unwrap_or_default();
        let total = counts.good + counts.bad;
        let average_ms = counts.sum.as_secs_f64() * 1000.0 / total.max(1) as f64;
        let time = |seconds: u64| if seconds == 0 { String::new() } else { utc(seconds) };
        let none = || "0".to_string();
        [
            total.to_string(),
            counts.good.to_string(),
            counts.bad.to_string(),
            none(),
            none(),
            "0.000000".to_string(),
            none(),
            counts.longest.as_millis().to_string(),
            counts.shortest.as_millis().to_string(),
            format!("{average_ms:.6}"),
            time(counts.last_good_s.max(counts.last_bad_s)),
            time(counts.last_good_s),
            String::new(),
            time(counts.last_bad_s),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_counted_by_node_with_their_times() {
        let probes = ProbeStats::default();
        probes.note(1, true, Duration::from_millis(10), 60);
        probes.note(1, false, Duration::from_millis(40), 120);
        probes.note(2, true, Duration::ZERO, 60);
        let (one, late) = ("1970-01-01 00:01:00", "1970-01-01 00:02:00");
        let expected = ["2", "1", "1", "0", "0", "0.000000", "0", "40", "10", "25.000000", late, one, "", late];
        assert_eq!(probes.row(1), expected);
        assert_eq!(probes.row(2)[0], "1");
        assert_eq!((probes.row(3)[0].as_str(), probes.row(3)[10].as_str()), ("0", ""));
    }
}
