//! Times at which a node is asked for its WAL position. The primary is asked in rounds, as long as statements run. A standby is
//! asked until it has replayed the primary's position.
//!
//! In: the wish, the knowledge, the time in microseconds. Out: a duty.

use weir_failover::cluster::ReplicationRole;

/// Shortest time between two questions to a server for which somebody waits.
const GAP_MIN_US: u64 = 500;
/// A standby that does not advance is asked more and more rarely, up to so many periods apart.
const GAP_PERIODS_MAX: u64 = 16;
/// Time between two attempts to reach a server.
const RETRY_US: u64 = 1_000_000;
/// Without a statement for so long no more timers are set.
const AWAKE_US: u64 = 1_000_000;

/// The next thing to do for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PositionQueryStep {
    Nothing,
    /// Ask it now.
    Ask,
    /// Look again at that time.
    At(u64),
    /// Nobody has wanted anything for long: set no timer any more, unless somebody comes just now.
    Sleep,
}

/// The need for a question to a node.
#[derive(Clone, Copy, Debug)]
pub enum PositionDemand {
    /// The primary's next round is needed, or not yet.
    Primary { is_needed: bool },
    /// This standby lacks something, or it must be known that it still is itself.
    Standby { is_behind: bool },
}

/// The questions to one node, by their times.
#[derive(Clone, Copy, Debug, Default)]
pub struct PositionQueryTimes {
    asked_us: Option<u64>,
    /// Time to the next question.
    gap_us: u64,
    /// Last time somebody wanted something.
    busy_us: u64,
    retry_us: Option<u64>,
}

impl PositionQueryTimes {
    pub fn new(now_us: u64) -> PositionQueryTimes {
        PositionQueryTimes { busy_us: now_us, ..PositionQueryTimes::default() }
    }

    /// `is_hurried`: somebody waits.
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
            // It is woken when the primary has answered.
            PositionDemand::Standby { .. } => PositionQueryStep::Nothing,
            PositionDemand::Primary { .. } if now_us >= self.busy_us + AWAKE_US => PositionQueryStep::Sleep,
            PositionDemand::Primary { .. } => PositionQueryStep::At(now_us + period_us),
        }
    }

    /// A question is sent.
    pub fn asked(&mut self, now_us: u64) {
        self.asked_us = Some(now_us);
    }

    /// The primary has answered.
    pub fn primary_said(&mut self, period_us: u64) {
        self.gap_us = period_us;
    }

    /// A standby has. `is_done`: it has replayed all that is known of; `advances`: more than before.
    pub fn standby_said(&mut self, is_done: bool, advances: bool, period_us: u64) {
        self.gap_us = match (is_done, advances) {
            (true, _) => 0,
            (false, true) => GAP_MIN_US,
            (false, false) => (self.gap_us * 2).clamp(GAP_MIN_US, (period_us * GAP_PERIODS_MAX).max(GAP_MIN_US)),
        };
    }

    /// It could not be asked, or contradicts its role.
    pub fn failed(&mut self, now_us: u64) {
        self.retry_us = Some(now_us + RETRY_US);
    }

    /// It has come up: nothing that was before keeps it from being asked.
    pub fn is_up(&mut self) {
        self.retry_us = None;
    }
}

/// The role by which a node is asked for its position: none while it is down, or calls itself primary beside the one that counts.
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
