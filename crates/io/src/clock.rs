//! The time of an event loop's round, computed once for many reads.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Milliseconds of CLOCK_BOOTTIME, which goes on while the machine sleeps: the clock of leases.
pub fn boot_now_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    (now.tv_sec as u64).saturating_mul(1000) + now.tv_nsec as u64 / 1_000_000
}

#[derive(Debug)]
pub struct RoundClock {
    origin: Instant,
    us: Cell<u64>,
}

impl RoundClock {
    pub fn new(origin: Instant) -> RoundClock {
        let clock = RoundClock { origin, us: Cell::default() };
        clock.tick();
        clock
    }

    #[inline]
    pub fn tick(&self) {
        self.us.set(Instant::now().saturating_duration_since(self.origin).as_micros() as u64);
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
        self.origin + Duration::from_micros(us)
    }

    /// Returns µs since the origin, rounded up so that waits are long enough.
    pub fn us_at(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.origin).as_nanos().div_ceil(1000) as u64
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
        assert!(clock.now() + Duration::from_micros(1) >= before && clock.now() <= after);
        assert_eq!(clock.at(clock.now_us()), clock.now());
        assert!(clock.now_us() >= 5_000_000);
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
