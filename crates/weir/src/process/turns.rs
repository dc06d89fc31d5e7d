//! The decision of a worker to yield its turn on a busy processor.
//!
//! A worker that yields when woken finds several statements at its turn, and serves them with one system call; the thread that
//! runs meanwhile was about to wait anyway. Beside programs that compute for milliseconds, however, the worker would wait for
//! each. The kernel's schedstat distinguishes the cases.

use std::time::Duration;

/// Ratio of wait to run time of a starved worker. Measured: at most 2 with servers and applications only (1 to 64 clients), 4 to
/// 9 with two computing programs per processor.
const STARVED: u32 = 4;

/// Less waiting than this between two looks is harmless.
const PATIENCE: Duration = Duration::from_millis(250);

/// Looks until yielding is tried again.
const REST_LOOKS: u32 = 60;

/// A thread's counts since its start. Source: `/proc/<pid>/schedstat`, the kernel's sched-stats.rst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadSchedStats {
    pub ran: Duration,
    /// Time ready without a processor.
    pub waited: Duration,
}

impl ThreadSchedStats {
    pub fn parse(text: &str) -> Option<ThreadSchedStats> {
        let mut fields = text.split_ascii_whitespace().map(|field| field.parse().ok().map(Duration::from_nanos));
        Some(ThreadSchedStats { ran: fields.next()??, waited: fields.next()?? })
    }
}

#[derive(Debug, Default)]
pub struct YieldPolicy {
    last: Option<ThreadSchedStats>,
    /// Remaining looks without yielding.
    resting: u32,
}

impl YieldPolicy {
    /// True to yield until the next look. `wished`: the operator's setting. `now`: the kernel's counts, if any.
    pub fn yields(&mut self, wished: bool, now: Option<ThreadSchedStats>) -> bool {
        let before = std::mem::replace(&mut self.last, now);
        if !wished {
            return false;
        }
        if self.resting > 0 {
            self.resting -= 1;
            return self.resting == 0;
        }
        if let (Some(before), Some(now)) = (before, now)
            && is_starved(now.ran.saturating_sub(before.ran), now.waited.saturating_sub(before.waited))
        {
            self.resting = REST_LOOKS;
        }
        self.resting == 0
    }
}

fn is_starved(ran: Duration, waited: Duration) -> bool {
    waited >= PATIENCE && waited >= ran * STARVED
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(ran_ms: u64, waited_ms: u64) -> Option<ThreadSchedStats> {
        Some(ThreadSchedStats { ran: Duration::from_millis(ran_ms), waited: Duration::from_millis(waited_ms) })
    }

    #[test]
    fn the_kernels_words_are_read() {
        assert_eq!(ThreadSchedStats::parse("2000000 3000000 8\n"), after(2, 3));
        for wrong in ["", "5", "a b c", "5 -1 2"] {
            assert_eq!(ThreadSchedStats::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn it_yields_until_it_is_starved_and_tries_again() {
        // (ran, waited) in milliseconds of one look; true if it yields after it
        let cases = [
            ((0, 0), true),
            ((300, 600), true), // busy, among servers
            ((1, 200), true),   // nothing to do
            ((90, 820), false), // among programs that compute
        ];
        let (mut turns, mut ran, mut waited) = (YieldPolicy::default(), 0, 0);
        assert!(turns.yields(true, after(ran, waited)));
        for (look, expected) in cases {
            (ran, waited) = (ran + look.0, waited + look.1);
            assert_eq!(turns.yields(true, after(ran, waited)), expected, "{look:?}");
        }
        for look in 1..REST_LOOKS {
            assert!(!turns.yields(true, after(ran, waited)), "{look}");
        }
        assert!(turns.yields(true, after(ran, waited)));
        assert!(!turns.yields(true, after(ran + 100, waited + 900)), "still starved");
    }

    #[test]
    fn the_operator_decides_and_a_kernel_that_does_not_count_is_no_reason_not_to() {
        let mut turns = YieldPolicy::default();
        assert!(!turns.yields(false, after(0, 0)));
        assert!(turns.yields(true, None));
        assert!(turns.yields(true, after(10, 9000)), "what was before is not known");
    }
}
