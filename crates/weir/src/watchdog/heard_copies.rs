//! Copies of a host's messages, which come over each path: the first one is passed on, so that a question is answered once.

use foldhash::fast::RandomState;
use std::collections::VecDeque;
use std::hash::BuildHasher;
use std::time::Duration;
use tokio::time::Instant;

/// The longest that a copy counts as one. Less than the shortest time in which silence means something: a message that is said again is news.
pub const COPY_LIMIT: Duration = Duration::from_millis(100);
/// Messages that are remembered; copies of others are passed on, which does no harm.
const HEARD_MAX: usize = 64;

#[derive(Default)]
pub struct HeardCopies {
    hasher: RandomState,
    heard: VecDeque<(u64, Instant)>,
}

impl HeardCopies {
    /// True if the bytes were not heard lately; they count as heard then.
    pub fn is_first(&mut self, message: &[u8], now: Instant) -> bool {
        while self.heard.front().is_some_and(|(_, at)| now.saturating_duration_since(*at) >= COPY_LIMIT) {
            self.heard.pop_front();
        }
        let hash = self.hasher.hash_one(message);
        let is_first = self.heard.iter().all(|(other, _)| *other != hash);
        if is_first && self.heard.len() < HEARD_MAX {
            self.heard.push_back((hash, now));
        }
        is_first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_passed_on_once_until_it_may_be_said_again() {
        let (mut copies, now) = (HeardCopies::default(), Instant::now());
        assert!(copies.is_first(b"ask 1", now) && copies.is_first(b"ask 2", now));
        assert!(!copies.is_first(b"ask 1", now) && !copies.is_first(b"ask 2", now + COPY_LIMIT / 2));
        assert!(copies.is_first(b"ask 1", now + COPY_LIMIT), "said again");
        let all = 2 * HEARD_MAX as u64;
        let first = (0..all).filter(|at| copies.is_first(&at.to_le_bytes(), now + 2 * COPY_LIMIT)).count();
        assert_eq!((first as u64, copies.heard.len()), (all, HEARD_MAX), "a flood grows nothing");
    }
}
