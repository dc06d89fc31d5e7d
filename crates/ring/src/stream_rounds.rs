//! Longer rounds while a thread does little else than pass a stream on.
//!
//! A server sends the rows of a large result 8 kB at a time. A wake-up for each piece costs more than moving it, so a round
//! waits a moment for more. The longer the stream has lasted, the longer the wait: a result with no end in sight can wait.

use crate::token::{RingOperation, SocketToken};

/// Bytes that arrive at once where a stream flows; a smaller arrival is a question or an answer, which waits for nobody.
const BYTES_MIN: i32 = 4096;

/// Rounds before the first wait: a result of a few pages is none the later for it.
const ROUNDS_MIN: u32 = 8;

/// A round in which more came without waiting needs no wait: the thread wakes up seldom enough, for others want the processor, too.
const BYTES_ENOUGH: i32 = 16 << 10;

/// One of so many rounds does not wait, to see how much would come.
const LOOK_EVERY: u32 = 32;

/// Each round of the stream adds a step to the wait of the next, up to a limit.
const STEP_US: u32 = 2;
const WAIT_MAX_US: u32 = 100;

/// How many rounds in a row have brought nothing but parts of streams.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamPacing {
    rounds: u32,
    /// Little came in the last round that did not wait.
    wakes_often: bool,
}

impl StreamPacing {
    /// Notes what a round has brought, as the ring tells it.
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

    /// Microseconds the next round waits for more; `None`: it ends with the first thing that happens.
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
