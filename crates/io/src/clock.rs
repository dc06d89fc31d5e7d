//! The time of an event loop's round, computed once for many reads.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Milliseconds of CLOCK_BOOTTIME, which goes on while the machine sleeps: the clock of leases.
pub fn boot_now_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    (now.tv_sec as u64).saturating_mul(1000) + now.tv_nsec as u64 / 1_000_000
}

fn boot_now_us() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    (now.tv_sec as u64).saturating_mul(1_000_000) + now.tv_nsec as u64 / 1000
}

/// Longest time between two readings of clocks that count as one moment.
const ONE_MOMENT_US: u64 = 20;
const PAIRS_MAX: usize = 100;
/// Difference that only a sleep makes.
const OFF_MAX: Duration = Duration::from_millis(50);

/// Both clocks at one moment. A thread that was stopped in between tries again.
fn one_moment() -> (u64, Instant) {
    let mut pair = (boot_now_us(), Instant::now());
    for _ in 0..PAIRS_MAX {
        if boot_now_us().saturating_sub(pair.0) <= ONE_MOMENT_US {
            break;
        }
        pair = (boot_now_us(), Instant::now());
    }
    pair
}

/// Counts on CLOCK_BOOTTIME, the clock of leases; its moments are those of the monotonic clock, which stands still while the machine sleeps.
#[derive(Debug)]
pub struct RoundClock {
    origin: Cell<Instant>,
    /// `origin` on CLOCK_BOOTTIME.
    boot_origin_us: u64,
    us: Cell<u64>,
    /// Something was read since the last tick: with epoll, and over TLS. The reads of a ring are there before the tick.
    is_outread: Cell<bool>,
}

impl RoundClock {
    pub fn new(origin: Instant) -> RoundClock {
        let (boot_us, now) = one_moment();
        let boot_origin_us = boot_us.saturating_sub(now.saturating_duration_since(origin).as_micros() as u64);
        let clock = RoundClock { origin: Cell::new(origin), boot_origin_us, us: Cell::default(), is_outread: Cell::default() };
        clock.tick();
        clock
    }

    #[inline]
    pub fn tick(&self) {
        self.us.set(boot_now_us().saturating_sub(self.boot_origin_us));
        self.is_outread.set(false);
    }

    #[inline]
    pub fn note_read(&self) {
        self.is_outread.set(true);
    }

    /// Once a second: after a sleep of the machine, moments are again those of the monotonic clock.
    pub fn align(&self) {
        let (boot_us, now) = one_moment();
        let us = boot_us.saturating_sub(self.boot_origin_us);
        let is_off = self.at(us).saturating_duration_since(now).max(now.saturating_duration_since(self.at(us))) > OFF_MAX;
        if is_off {
            self.origin.set(now.checked_sub(Duration::from_micros(us)).unwrap_or(now));
        }
    }

    /// Microseconds of CLOCK_BOOTTIME, not before the reads of this round.
    #[inline]
    pub fn boot_us_after_reads(&self) -> u64 {
        if self.is_outread.get() {
            self.tick();
        }
        self.us.get() + self.boot_origin_us
    }

    /// As [`RoundClock::boot_us_after_reads`], if that needs no reading of the clock.
    #[inline]
    pub fn boot_us_if_after_reads(&self) -> Option<u64> {
        (!self.is_outread.get()).then(|| self.us.get() + self.boot_origin_us)
    }

    /// Sets the time, for simulations.
    pub fn set(&self, at: Instant) {
        self.us.set(self.us_at(at));
    }

    #[inline]
    pub fn now_us(&self) -> u64 {
        self.us.get()
    }

    #[inline]
    pub fn now(&self) -> Instant {
        self.at(self.us.get())
    }

    #[inline]
    pub fn at(&self, us: u64) -> Instant {
        self.origin.get() + Duration::from_micros(us)
    }

    /// Returns µs since the origin, rounded up so that waits are long enough.
    pub fn us_at(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.origin.get()).as_nanos().div_ceil(1000) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_agrees_with_instants() {
        let origin = Instant::now() - Duration::from_secs(5);
        let clock = RoundClock::new(origin);
        let before = Instant::now();
        clock.tick();
        let after = Instant::now();
        let slack = Duration::from_micros(ONE_MOMENT_US + 2);
        assert!(clock.now() + slack >= before && clock.now() <= after + slack);
        assert_eq!(clock.at(clock.now_us()), clock.now());
        assert!(clock.now_us() >= 5_000_000);
    }

    #[test]
    fn after_a_sleep_of_the_machine_moments_are_aligned_and_counts_go_on() {
        let clock = RoundClock::new(Instant::now());
        // As if it had slept for an hour: the count is ahead of the monotonic clock.
        clock.origin.set(clock.origin.get() - Duration::from_secs(3600));
        let before = clock.now_us();
        clock.align();
        clock.tick();
        let off = Instant::now().saturating_duration_since(clock.now());
        assert!(off < OFF_MAX && clock.now() <= Instant::now() + OFF_MAX, "{off:?}");
        assert!(clock.now_us() >= before && clock.now_us() < before + 60_000_000);
        let boot_us = clock.boot_us_after_reads();
        assert!(boot_us.abs_diff(boot_now_us()) < 60_000_000);
        clock.note_read();
        assert!(clock.boot_us_after_reads() >= boot_us);
    }

    #[test]
    fn moments_are_rounded_up_and_none_is_before_the_origin() {
        let origin = Instant::now();
        let clock = RoundClock::new(origin);
        assert_eq!(clock.us_at(origin + Duration::from_nanos(1001)), 2);
        assert_eq!(clock.us_at(origin + Duration::from_micros(7)), 7);
        assert_eq!(clock.us_at(origin - Duration::from_secs(1)), 0);
        clock.set(origin + Duration::from_millis(3));
        assert_eq!((clock.now_us(), clock.now()), (3000, origin + Duration::from_millis(3)));
    }
}
