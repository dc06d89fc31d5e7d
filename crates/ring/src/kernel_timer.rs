//! Timers that stay in the kernel over many rounds. A timer set and taken back with every wait costs more than the rest of the
//! wait. In a virtual machine this is worst, as the timer leaves the machine.

use crate::token::{RingOperation, SocketToken};
use io_uring::types::Timespec;
use io_uring::{opcode, squeue};
use std::time::Instant;

/// Alarms the kernel holds at once. Only times that come ever earlier need more than one.
const ALARMS_MAX: usize = 16;

/// How long a round waits for something to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundWait {
    /// Only takes events that have happened already.
    Not,
    /// At least until something happens or the time has come.
    Until(Instant),
    Ever,
}

/// The alarms of a ring.
#[derive(Debug, Default)]
pub struct KernelAlarms {
    /// Alarms in the kernel; the earliest is the last.
    set: Vec<Instant>,
    /// Where the kernel reads from when the request is submitted.
    time: Box<Timespec>,
}

/// The step that makes a wait end in time.
#[derive(Debug)]
pub enum AlarmStep {
    /// An alarm that is set wakes early enough.
    Nothing,
    /// The request is to be pushed, and submitted before `need` is called again.
    Alarm(squeue::Entry),
    /// There are too many: this wait ends by a timer of its own.
    OwnTimer(Timespec),
}

impl KernelAlarms {
    /// The step that a wait until `until` needs.
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

    /// The earliest one went off.
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
