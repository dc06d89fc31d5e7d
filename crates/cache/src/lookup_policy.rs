//! Decides if a network store is asked: on the second sight of a question, while it is not slower than the servers, as
//! measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Questions remembered: 1 MB.
const SEEN_MAX: usize = 1 << 18;

/// One question of so many still asks a slow store, to notice recovery.
const SAMPLE: u32 = 32;

/// A store may take this multiple of a server's time: its answers relieve the server.
const PATIENCE: u64 = 2;

/// Divisor: pace of the averages.
const PACE: u64 = 32;

#[derive(Debug)]
pub struct SeenQueries(Box<[AtomicU32]>);

impl Default for SeenQueries {
    fn default() -> SeenQueries {
        SeenQueries((0..SEEN_MAX).map(|_| AtomicU32::new(0)).collect())
    }
}

#[derive(Debug)]
pub struct LookupPolicy {
    seen: Arc<SeenQueries>,
    store_us: u64,
    server_us: Option<u64>,
    until_sample: u32,
}

fn moved(average: u64, value: u64) -> u64 {
    if value >= average { average + (value - average).div_ceil(PACE) } else { average - (average - value).div_ceil(PACE) }
}

impl LookupPolicy {
    pub fn new(seen: Arc<SeenQueries>) -> LookupPolicy {
        LookupPolicy { seen, store_us: 0, server_us: None, until_sample: SAMPLE }
    }

    /// True if the store is asked. Remembers the question by its hash.
    pub fn asks(&mut self, question: u64) -> bool {
        let (place, mark) = (question as usize % SEEN_MAX, (question >> 32) as u32 | 1);
        let is_known = self.seen.0[place].swap(mark, Ordering::Relaxed) == mark;
        is_known && (self.is_fast() || self.is_sample())
    }

    fn is_fast(&self) -> bool {
        self.server_us.is_none_or(|server_us| self.store_us <= server_us.saturating_mul(PATIENCE))
    }

    fn is_sample(&mut self) -> bool {
        self.until_sample -= 1;
        let is_due = self.until_sample == 0;
        if is_due {
            self.until_sample = SAMPLE;
        }
        is_due
    }

    pub fn store_took(&mut self, us: u64) {
        self.store_us = moved(self.store_us, us);
    }

    /// Notes a server's time, also one stored with a result.
    pub fn server_took(&mut self, us: u64) {
        self.server_us = Some(self.server_us.map_or(us, |before| moved(before, us)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_asked_on_its_second_sight() {
        let seen = Arc::new(SeenQueries::default());
        let (mut keeper, mut other) = (LookupPolicy::new(seen.clone()), LookupPolicy::new(seen));
        assert_eq!([keeper.asks(7), other.asks(7), keeper.asks(7)], [false, true, true]);
        assert!(!keeper.asks(7 + (3 << 40)), "another question at its place");
    }

    #[test]
    fn a_store_that_is_slower_than_the_servers_is_asked_now_and_then_until_it_is_not() {
        let mut keeper = LookupPolicy::new(Arc::default());
        keeper.asks(7);
        for _ in 0..1000 {
            keeper.store_took(900);
            keeper.server_took(300);
        }
        let asked = (0..100 * SAMPLE).filter(|_| keeper.asks(7)).count();
        assert_eq!(asked, 100);
        (0..1000).for_each(|_| keeper.store_took(500));
        assert!((0..100).all(|_| keeper.asks(7)));
    }
}
