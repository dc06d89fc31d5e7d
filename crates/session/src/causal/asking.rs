//! Times of queries for WAL positions: to the primary in rounds while statements run, to a standby until it has replayed the
//! primary's position.

use weir_failover::cluster::ReplicationRole;

/// Shortest gap while sessions wait.
const GAP_MIN_US: u64 = 500;
/// Longest gap, in periods, for a standby that does not advance.
const GAP_PERIODS_MAX: u64 = 16;
const RETRY_US: u64 = 1_000_000;
/// Time without statements after which no timers are set.
const AWAKE_US: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PositionQueryStep {
    Nothing,
    Ask,
    At(u64),
    /// Set no timer, unless demand comes at this moment.
    Sleep,
}

#[derive(Clone, Copy, Debug)]
pub enum PositionDemand {
    Primary {
        is_needed: bool,
    },
    /// `is_behind`: the standby lacks WAL, or must prove its life.
    Standby {
        is_behind: bool,
    },
}

#[derive(Clone, Copy, Debug, Default)]
pub struct PositionQueryTimes {
    asked_us: Option<u64>,
    gap_us: u64,
    /// Time of the last demand.
    busy_us: u64,
    retry_us: Option<u64>,
}

impl PositionQueryTimes {
    pub fn new(now_us: u64) -> PositionQueryTimes {
        PositionQueryTimes { busy_us: now_us, ..PositionQueryTimes::default() }
    }

    /// `is_hurried`: a session waits.
    pub fn duty(&mut self, want: PositionDemand, is_hurried: bool, period_us: u64, now_us: u64) -> PositionQueryStep {
        if let Some(retry_us) = self.retry_us.filter(|at| *at > now_us) {
            return PositionQueryStep::At(retry_us);
        }
        let gap_us = if is_hurried { self.gap_us.min(GAP_MIN_US) } else { self.gap_us };
        let due_us = self.asked_us.map_or(now_us, |at| at + gap_us);
        let (PositionDemand::Primary { is_needed: is_wanted } | PositionDemand::Standby { is_behind: is_wanted }) = want;
        if is_wanted {
            self.busy_us = now_us;
            return if due_us <= now_us { PositionQueryStep::Ask } else { PositionQueryStep::At(due_us) };
        }
        match want {
            // The primary's next answer wakes it.
            PositionDemand::Standby { .. } => PositionQueryStep::Nothing,
            PositionDemand::Primary { .. } if now_us >= self.busy_us + AWAKE_US => PositionQueryStep::Sleep,
            PositionDemand::Primary { .. } => PositionQueryStep::At(now_us + period_us),
        }
    }

    pub fn asked(&mut self, now_us: u64) {
        self.asked_us = Some(now_us);
    }

    pub fn primary_said(&mut self, period_us: u64) {
        self.gap_us = period_us;
    }

    /// `is_done`: all known WAL is replayed; `advances`: more than before.
    pub fn standby_said(&mut self, is_done: bool, advances: bool, period_us: u64) {
        self.gap_us = match (is_done, advances) {
            (true, _) => 0,
            (false, true) => GAP_MIN_US,
            (false, false) => (self.gap_us * 2).clamp(GAP_MIN_US, (period_us * GAP_PERIODS_MAX).max(GAP_MIN_US)),
        };
    }

    /// Notes a failed query, or an answer that contradicts the node's role.
    pub fn failed(&mut self, now_us: u64) {
        self.retry_us = Some(now_us + RETRY_US);
    }

    /// Cancels the delay of earlier failures.
    pub fn is_up(&mut self) {
        self.retry_us = None;
    }
}

/// `None` while the node is down, or claims to be primary beside the real one.
pub fn role(view: &weir_failover::cluster::ClusterView, at: usize) -> Option<ReplicationRole> {
    use weir_failover::cluster::NodeHealth;
    match view.nodes.get(at)?.health {
        NodeHealth::Up(ReplicationRole::Standby) => Some(ReplicationRole::Standby),
        NodeHealth::Up(ReplicationRole::Primary) => (view.primary == Some(at)).then_some(ReplicationRole::Primary),
        NodeHealth::Down => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: u64 = 10_000;
    const NEEDED: PositionDemand = PositionDemand::Primary { is_needed: true };
    const IDLE: PositionDemand = PositionDemand::Primary { is_needed: false };
    const BEHIND: PositionDemand = PositionDemand::Standby { is_behind: true };

    #[test]
    fn the_primary_is_asked_once_a_period_and_at_once_if_somebody_waits() {
        let mut asking = PositionQueryTimes::new(0);
        assert_eq!(asking.duty(NEEDED, false, PERIOD, 5), PositionQueryStep::Ask);
        asking.asked(5);
        asking.primary_said(PERIOD);
        assert_eq!(asking.duty(NEEDED, false, PERIOD, 7), PositionQueryStep::At(10_005));
        assert_eq!(asking.duty(NEEDED, true, PERIOD, 7), PositionQueryStep::At(505));
        assert_eq!(asking.duty(NEEDED, true, PERIOD, 505), PositionQueryStep::Ask);
    }

    #[test]
    fn after_a_second_without_a_wish_no_timer_is_set() {
        let mut asking = PositionQueryTimes::new(0);
        assert_eq!(asking.duty(IDLE, false, PERIOD, 999_999), PositionQueryStep::At(1_009_999));
        assert_eq!(asking.duty(IDLE, false, PERIOD, 1_000_000), PositionQueryStep::Sleep);
        assert_eq!(asking.duty(NEEDED, false, PERIOD, 1_000_001), PositionQueryStep::Ask);
        assert_eq!(asking.duty(IDLE, false, PERIOD, 1_000_002), PositionQueryStep::At(1_010_002), "it is awake again");
    }

    #[test]
    fn a_standby_that_does_not_advance_is_asked_more_and_more_rarely() {
        let mut asking = PositionQueryTimes::new(0);
        let mut now = 0;
        let mut gaps = Vec::new();
        for _ in 0..12 {
            asking.asked(now);
            asking.standby_said(false, false, PERIOD);
            let PositionQueryStep::At(next) = asking.duty(BEHIND, false, PERIOD, now) else { panic!() };
            gaps.push(next - now);
            now = next;
        }
        assert_eq!(gaps[..4], [500, 1000, 2000, 4000]);
        assert_eq!(gaps.last(), Some(&160_000));
        asking.asked(now);
        asking.standby_said(false, true, PERIOD);
        assert_eq!(asking.duty(BEHIND, false, PERIOD, now), PositionQueryStep::At(now + 500));
        asking.standby_said(true, true, PERIOD);
        assert_eq!(asking.duty(PositionDemand::Standby { is_behind: false }, true, PERIOD, now), PositionQueryStep::Nothing);
    }

    #[test]
    fn after_a_failure_it_is_left_alone_for_a_second_unless_it_comes_up_again() {
        let mut asking = PositionQueryTimes::new(0);
        asking.failed(100);
        assert_eq!(asking.duty(NEEDED, true, PERIOD, 200), PositionQueryStep::At(1_000_100));
        asking.is_up();
        assert_eq!(asking.duty(NEEDED, true, PERIOD, 200), PositionQueryStep::Ask);
    }
}
