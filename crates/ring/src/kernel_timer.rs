//! Timers that stay in the kernel over many rounds: one per wait costs more than the rest of it, mostly in virtual machines.

use crate::token::{RingOperation, SocketToken};
use io_uring::types::Timespec;
use io_uring::{opcode, squeue};
use std::time::Instant;

/// Several are needed only for ever earlier times.
const ALARMS_MAX: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundWait {
    Not,
    Until(Instant),
    Ever,
}

#[derive(Debug, Default)]
pub struct KernelAlarms {
    /// Alarms in the kernel, the earliest last.
    set: Vec<Instant>,
    /// Read by the kernel on submission.
    time: Box<Timespec>,
}

#[derive(Debug)]
pub enum AlarmStep {
    /// A present alarm is early enough.
    Nothing,
    /// Submit before the next `need`.
    Alarm(squeue::Entry),
    /// Too many alarms: this wait has its own timer.
    OwnTimer(Timespec),
}

impl KernelAlarms {
    pub fn need(&mut self, until: Instant, now: impl Fn() -> Instant) -> AlarmStep {
        if self.set.last().is_some_and(|&earliest| earliest <= until) {
            return AlarmStep::Nothing;
        }
        let left = until.saturating_duration_since(now());
        let time = Timespec::new().sec(left.as_secs()).nsec(left.subsec_nanos());
        if self.set.len() >= ALARMS_MAX {
            return AlarmStep::OwnTimer(time);
        }
        *self.time = time;
        self.set.push(until);
        AlarmStep::Alarm(
            opcode::Timeout::new(&raw const *self.time).build().user_data(SocketToken::once(0).with(RingOperation::Alarm)),
        )
    }

    pub fn went_off(&mut self) {
        self.set.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn an_alarm_is_set_only_when_none_wakes_early_enough() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut alarms = KernelAlarms::default();
        let mut need = |until| alarms.need(at(until), || start);
        assert!(matches!(need(100), AlarmStep::Alarm(_)));
        assert!(matches!(need(100), AlarmStep::Nothing));
        assert!(matches!(need(200), AlarmStep::Nothing));
        assert!(matches!(need(50), AlarmStep::Alarm(_)));
        assert!(matches!(need(60), AlarmStep::Nothing));
        alarms.went_off();
        assert!(matches!(alarms.need(at(60), || start), AlarmStep::Alarm(_)), "the next is at 100");
    }

    #[test]
    fn alarms_are_bounded_in_number() {
        let start = Instant::now();
        let mut alarms = KernelAlarms::default();
        for left in (1..=ALARMS_MAX as u64).rev() {
            assert!(matches!(alarms.need(start + Duration::from_secs(left + 1), || start), AlarmStep::Alarm(_)));
        }
        match alarms.need(start + Duration::from_millis(1500), || start) {
            AlarmStep::OwnTimer(time) => {
                assert_eq!(format!("{time:?}"), format!("{:?}", Timespec::new().sec(1).nsec(500_000_000)))
            }
            other => panic!("{other:?}"),
        }
    }
}
