//! Durations in doubling buckets. A single writer thread: no lock, no allocation.

use std::sync::atomic::{AtomicU64, Ordering};

/// Up to 2^5 µs, then doubling up to 2^26 µs (67 s), and longer.
pub const BUCKETS: usize = 23;

const FIRST_POWER: u32 = 5;

#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistogramCounts {
    pub buckets: [u64; BUCKETS],
    pub sum_us: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { buckets: [const { AtomicU64::new(0) }; BUCKETS], sum_us: AtomicU64::new(0) }
    }
}

impl Histogram {
    #[inline]
    pub fn note(&self, us: u64) {
        self.note_in(TimeBucket::of(us), us);
    }

    /// Notes a time in its bucket, which several histograms may have in common.
    #[inline]
    pub fn note_in(&self, bucket: TimeBucket, us: u64) {
        add(&self.buckets[bucket.0], 1);
        add(&self.sum_us, us);
    }

    pub fn clear(&self) {
        self.buckets.iter().chain([&self.sum_us]).for_each(|value| value.store(0, Ordering::Relaxed));
    }

    pub fn counted(&self) -> HistogramCounts {
        let mut counted = HistogramCounts { sum_us: self.sum_us.load(Ordering::Relaxed), ..HistogramCounts::default() };
        for (value, bucket) in counted.buckets.iter_mut().zip(&self.buckets) {
            *value = bucket.load(Ordering::Relaxed);
        }
        counted
    }
}

impl HistogramCounts {
    pub fn add(&mut self, other: &HistogramCounts) {
        for (value, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *value += more;
        }
        self.sum_us += other.sum_us;
    }

    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns a time that so many of 100 do not exceed: the limit of a bucket. `None`: there are no times, or it is in the last bucket.
    pub fn percentile_us(&self, percent: u64) -> Option<u64> {
        let mut left = (self.count().saturating_mul(percent)).div_ceil(100);
        if left == 0 {
            return None;
        }
        let found = self.buckets.iter().position(|count| {
            let is_here = *count >= left;
            left = left.saturating_sub(*count);
            is_here
        });
        found.and_then(limit_us)
    }
}

/// `None` for the last bucket.
pub fn limit_us(bucket: usize) -> Option<u64> {
    (bucket + 1 < BUCKETS).then(|| 1 << (FIRST_POWER + bucket as u32))
}

/// Index of a time's bucket.
#[derive(Clone, Copy, Debug)]
pub struct TimeBucket(usize);

impl TimeBucket {
    #[inline]
    pub fn of(us: u64) -> TimeBucket {
        // The highest bit of (us - 1) gives the power of two not below us; lower bits make all times of the first bucket alike.
        const FIRST: u64 = (1 << FIRST_POWER) - 1;
        let bit = (us.saturating_sub(1) | FIRST).ilog2();
        TimeBucket((bit as usize + 1 - FIRST_POWER as usize).min(BUCKETS - 1))
    }
}

/// Adds without a locked instruction: a single thread writes.
#[inline]
pub fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_lies_in_the_first_bucket_whose_limit_is_not_below_it() {
        for us in [0, 1, 31, 32, 33, 64, 65, 1_000, 67_108_864, 67_108_865, u64::MAX] {
            let TimeBucket(at) = TimeBucket::of(us);
            assert!(limit_us(at).is_none_or(|limit| us <= limit), "{us} in {at}");
            assert!(at == 0 || limit_us(at - 1).is_some_and(|limit| us > limit), "{us} not in {}", at - 1);
        }
    }

    #[test]
    fn counts_and_sums_add_up() {
        let (a, b) = (Histogram::default(), Histogram::default());
        [10, 100, 1_000_000].iter().for_each(|us| a.note(*us));
        b.note(1 << 40);
        let mut counted = a.counted();
        counted.add(&b.counted());
        assert_eq!((counted.count(), counted.sum_us, counted.buckets[BUCKETS - 1]), (4, 1_000_110 + (1 << 40), 1));
    }
}
