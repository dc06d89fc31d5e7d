//! Results of asking nodes for their roles: `SHOW pool_health_check_stats`.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// Counts by node number, written by one task.
#[derive(Debug, Default)]
pub struct ProbeStats(Mutex<BTreeMap<u16, ProbeCounts>>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeCounts {
    pub good: u64,
    pub bad: u64,
    pub longest: Duration,
    pub shortest: Duration,
    pub sum: Duration,
    /// In seconds since 1970; 0: never.
    pub last_good_s: u64,
    pub last_bad_s: u64,
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

    pub fn counts(&self, node: u16) -> ProbeCounts {
        self.0.lock().get(&node).copied().unwrap_or_default()
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
        let expected = ProbeCounts {
            good: 1,
            bad: 1,
            longest: Duration::from_millis(40),
            shortest: Duration::from_millis(10),
            sum: Duration::from_millis(50),
            last_good_s: 60,
            last_bad_s: 120,
        };
        assert_eq!(probes.counts(1), expected);
        assert_eq!((probes.counts(2).good, probes.counts(3)), (1, ProbeCounts::default()));
    }
}
