//! Lag of a standby as time.
//!
//! No server's clock is read: a standby that has not replayed WAL that the primary had ten seconds ago lags by ten seconds.

use std::collections::VecDeque;
use weir_config::CheckConfig;

/// Beyond it every second position of the older half is dropped: lags become less exact.
const ENTRIES_MAX: usize = 256;

#[derive(Clone, Debug, Default)]
pub struct LagHistory(VecDeque<(u64, u64)>);

impl LagHistory {
    pub fn written(&mut self, now_ms: u64, position: u64) {
        match self.0.back() {
            Some((_, last)) if *last == position => return,
            // Another primary, or one that lost WAL.
            Some((_, last)) if *last > position => self.0.clear(),
            Some(_) | None => {}
        }
        self.0.push_back((now_ms, position));
        if self.0.len() > ENTRIES_MAX {
            let mut at = 0;
            self.0.retain(|_| {
                at += 1;
                at > ENTRIES_MAX / 2 || at % 2 == 0
            });
        }
    }

    /// Returns how long a standby has lacked written WAL, as exact as the primary is asked often. `None`: no primary heard yet.
    pub fn lag_us(&self, now_ms: u64, replayed: u64) -> Option<u64> {
        self.0.back()?;
        let after = self.0.partition_point(|(_, position)| *position <= replayed);
        Some(self.0.get(after).map_or(0, |(since_ms, _)| now_ms.saturating_sub(*since_ms) * 1000))
    }
}

/// True above the operator's threshold. A limit in time overrides the limit in bytes.
pub fn is_too_much(check: &CheckConfig, lag_bytes: Option<u64>, lag_us: Option<u64>) -> bool {
    if check.delay_ms_max > 0 {
        return lag_us.is_some_and(|us| us > check.delay_ms_max.saturating_mul(1000));
    }
    check.delay_bytes_max > 0 && lag_bytes.is_some_and(|bytes| bytes > check.delay_bytes_max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_config::Config;

    #[test]
    fn a_standby_lags_since_the_first_thing_it_lacks_was_written() {
        let mut history = LagHistory::default();
        assert_eq!(history.lag_us(5, 100), None);
        history.written(10, 100);
        history.written(20, 200);
        history.written(30, 200);
        history.written(40, 300);
        let lag = |history: &LagHistory, replayed| history.lag_us(50, replayed);
        assert_eq!([50, 100, 199, 200, 300, 400].map(|at| lag(&history, at)), [40, 30, 30, 10, 0, 0].map(|ms| Some(ms * 1000)));
        history.written(60, 150);
        assert_eq!(history.lag_us(70, 140), Some(10_000), "a new primary begins anew");
    }

    #[test]
    fn a_long_history_is_thinned_out() {
        let mut history = LagHistory::default();
        (1..=100_000).for_each(|n| history.written(n, n * 10));
        assert!(history.0.len() <= ENTRIES_MAX);
        assert_eq!(history.lag_us(100_000, 999_995), Some(0));
        assert!(history.lag_us(100_000, 0).is_some_and(|us| us > 100_000));
    }

    #[test]
    fn the_threshold_by_time_goes_before_that_in_bytes() {
        let mut check = Config::default().check;
        let is = |check: &CheckConfig| is_too_much(check, Some(1000), Some(5_000_001));
        assert!(!is(&check), "none is set");
        check.delay_bytes_max = 999;
        assert!(is(&check));
        check.delay_bytes_max = 1000;
        assert!(!is(&check), "just as much");
        (check.delay_bytes_max, check.delay_ms_max) = (1, 5_001);
        assert!(!is(&check));
        check.delay_ms_max = 5_000;
        assert!(is(&check));
        assert!(!is_too_much(&check, None, None), "nothing is known");
    }
}
