//! Longer rounds while a thread mostly forwards a stream.
//!
//! A server sends large results in pieces of 8 kB. A wake-up costs more than moving one, so a round waits for more, longer as
//! the stream lasts.

use crate::token::{RingOperation, SocketToken};

/// Smaller arrivals are requests or answers, which must not wait.
const BYTES_MIN: i32 = 4096;

/// Small results are not delayed.
const ROUNDS_MIN: u32 = 8;

/// Bytes per round without need to wait, as wake-ups are rare.
const BYTES_ENOUGH: i32 = 16 << 10;

/// Every so many rounds one does not wait, to measure.
const LOOK_EVERY: u32 = 32;

const STEP_US: u32 = 2;
const WAIT_MAX_US: u32 = 100;

/// Rounds in a row with stream data only.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamPacing {
    rounds: u32,
    /// True if the last round without wait brought little.
    wakes_often: bool,
}

impl StreamPacing {
    pub fn note(&mut self, completions: &[(u64, i32, u32)]) {
        let did_wait = self.wait_us().is_some();
        let mut bytes = 0;
        for &(user_data, result, _) in completions {
            match SocketToken::split(user_data) {
                Some((_, RingOperation::Receive)) if result >= BYTES_MIN => bytes += result,
                Some((_, RingOperation::Send)) => {}
                _ => return self.rounds = 0,
            }
        }
        if bytes > 0 {
            self.rounds = self.rounds.wrapping_add(1).max(1);
            if !did_wait {
                self.wakes_often = bytes <= BYTES_ENOUGH;
            }
        }
    }

    /// Returns the next round's wait for more; `None`: until the first event.
    pub fn wait_us(self) -> Option<u32> {
        let waits = self.wakes_often && self.rounds >= ROUNDS_MIN && !self.rounds.is_multiple_of(LOOK_EVERY);
        waits.then(|| self.rounds.saturating_mul(STEP_US).min(WAIT_MAX_US))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(op: RingOperation, result: i32) -> (u64, i32, u32) {
        (SocketToken::once(1).with(op), result, 0)
    }

    #[test]
    fn a_stream_makes_rounds_longer_until_something_else_happens() {
        let mut streaming = StreamPacing::default();
        let part = [of(RingOperation::Send, 8192), of(RingOperation::Receive, 8192)];
        (1..ROUNDS_MIN).for_each(|_| streaming.note(&part));
        assert_eq!(streaming.wait_us(), None, "a short one");
        streaming.note(&part);
        assert_eq!(streaming.wait_us(), Some(ROUNDS_MIN * STEP_US));
        streaming.note(&[of(RingOperation::Send, 8192)]);
        streaming.note(&[]);
        assert_eq!(streaming.wait_us(), Some(ROUNDS_MIN * STEP_US), "what was sent tells nothing");
        (0..LOOK_EVERY * 4 + 1).for_each(|_| streaming.note(&part));
        assert_eq!(streaming.wait_us(), Some(WAIT_MAX_US));
        for other in [
            of(RingOperation::Receive, 50),
            of(RingOperation::Receive, 0),
            of(RingOperation::Alarm, 0),
            of(RingOperation::Accept, 7),
            (0, 0, 0),
        ] {
            let mut streaming = streaming;
            streaming.note(&[part[1], other]);
            assert_eq!(streaming.wait_us(), None, "{other:?}");
        }
    }

    #[test]
    fn a_stream_that_comes_in_large_parts_is_not_waited_for() {
        let mut streaming = StreamPacing::default();
        let rounds = |streaming: &mut StreamPacing, bytes| {
            let waits = |_: &u32| {
                streaming.note(&[of(RingOperation::Receive, bytes)]);
                streaming.wait_us().is_some()
            };
            (0..LOOK_EVERY).filter(waits).count() as u32
        };
        assert_eq!(rounds(&mut streaming, 8192), LOOK_EVERY - ROUNDS_MIN);
        assert_eq!(rounds(&mut streaming, 65_536), 0, "the round that did not wait brought much");
        assert_eq!(rounds(&mut streaming, 8192), LOOK_EVERY - 1);
    }
}
