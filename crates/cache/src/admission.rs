//! Chooses the results that are worth their room in a full cache. A large result that took no time is turned away until
//! asked for again soon.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Keys remembered: 16 KB.
const TURNED_AWAY_MAX: usize = 4096;

/// The cache is full from so many eighths of its memory.
const FULL_EIGHTHS: u64 = 7;

/// Divisor: the part of the average a result must be worth.
const LEAST_PART: u64 = 4;

/// Divisor: pace of the average per result.
const PACE: u64 = 16;

/// Divisor: part of the average lost by each refusal.
const FORGETTING: u64 = 256;

#[derive(Clone, Copy, Debug)]
pub struct ResultCost {
    pub took_us: u64,
    pub bytes: u64,
}

impl ResultCost {
    /// Nanoseconds saved per byte, not 0.
    fn worth(self) -> u64 {
        (self.took_us.max(1).saturating_mul(1000) / self.bytes.max(1)).max(1)
    }
}

/// Admission shared by threads: a race makes a decision less good, not wrong.
#[derive(Debug)]
pub struct CacheAdmission {
    average: AtomicU64,
    turned_away: Box<[AtomicU32]>,
}

impl Default for CacheAdmission {
    fn default() -> CacheAdmission {
        CacheAdmission { average: AtomicU64::new(0), turned_away: (0..TURNED_AWAY_MAX).map(|_| AtomicU32::new(0)).collect() }
    }
}

impl CacheAdmission {
    /// True if a result is to be stored. `key`: hash of its key; `used` and `room`: bytes.
    pub fn admits(&self, key: u64, price: ResultCost, used: u64, room: u64) -> bool {
        let (worth, average) = (price.worth(), self.average.load(Ordering::Relaxed));
        let is_full = used.saturating_mul(8) >= room.saturating_mul(FULL_EIGHTHS);
        if is_full && worth.saturating_mul(LEAST_PART) < average && !self.was_turned_away(key) {
            // Stored results may lose worth with time.
            self.average.store(average - average.div_ceil(FORGETTING), Ordering::Relaxed);
            return false;
        }
        let moved =
            if worth >= average { average + (worth - average).div_ceil(PACE) } else { average - (average - worth) / PACE };
        self.average.store(moved, Ordering::Relaxed);
        true
    }

    /// Toggles the mark of a key; true if it was set.
    fn was_turned_away(&self, key: u64) -> bool {
        let (place, mark) = (key as usize % TURNED_AWAY_MAX, (key >> 32) as u32 | 1);
        let was = self.turned_away[place].load(Ordering::Relaxed) == mark;
        self.turned_away[place].store(if was { 0 } else { mark }, Ordering::Relaxed);
        was
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEAR: ResultCost = ResultCost { took_us: 10_000, bytes: 400 };
    const CHEAP: ResultCost = ResultCost { took_us: 50, bytes: 100_000 };

    #[test]
    fn while_there_is_room_everybody_is_let_in() {
        let admission = CacheAdmission::default();
        for key in 0..100 {
            assert!(admission.admits(key, if key % 2 == 0 { DEAR } else { CHEAP }, 500, 1000));
        }
    }

    #[test]
    fn a_full_cache_takes_what_is_dear_and_what_is_asked_for_again() {
        let admission = CacheAdmission::default();
        (0..100).for_each(|key| assert!(admission.admits(key, DEAR, 0, 1000)));
        let key = 7 << 32 | 7;
        assert!(!admission.admits(key, CHEAP, 900, 1000), "once");
        assert!(admission.admits(key, CHEAP, 900, 1000), "and again");
        assert!(!admission.admits(key, CHEAP, 900, 1000), "that was for one time");
        assert!(admission.admits(8, DEAR, 900, 1000));
    }

    #[test]
    fn the_average_follows_what_is_let_in_and_falls_when_something_is_not() {
        let after = |average: u64, worth: u64, used: u64| {
            let admission = CacheAdmission { average: AtomicU64::new(average), ..CacheAdmission::default() };
            // Nanoseconds for each byte.
            let price = ResultCost { took_us: worth, bytes: 1000 };
            let is_in = admission.admits(9 << 32, price, used, 1000);
            (is_in, admission.average.load(Ordering::Relaxed))
        };
        let (far, near) = (PACE * 100, PACE * 10);
        assert_eq!(after(near, far, 0), (true, near + (far - near) / PACE));
        assert_eq!(after(far, near, 0), (true, far - (far - near) / PACE));
        assert_eq!(after(near, near, 1000), (true, near));
        assert_eq!(after(near, near + 1, 0), (true, near + 1), "a step is never lost");
        let least = FORGETTING * 100;
        assert_eq!(after(least, 1, 1000), (false, least - 100));
    }

    #[test]
    fn any_key_is_turned_away_once_at_first() {
        for high in [0, 1, 2, 3, u64::from(u32::MAX)] {
            let admission = CacheAdmission::default();
            let key = high << 32 | 5;
            assert_eq!([0; 4].map(|_| admission.was_turned_away(key)), [false, true, false, true], "{high}");
        }
    }

    #[test]
    fn where_all_are_cheap_the_cheap_are_let_in() {
        let admission = CacheAdmission::default();
        for key in 0..100 {
            admission.admits(key, CHEAP, 0, 1000);
        }
        assert!(admission.admits(1, CHEAP, 1000, 1000));
        // After the dear ones have gone, too.
        for key in 0..10 {
            admission.admits(key, DEAR, 0, 1000);
        }
        let let_in =
            (0..2000_u64).filter(|key| admission.admits(key.wrapping_mul(0x9E37_79B9_7F4A_7C15), CHEAP, 1000, 1000)).count();
        assert!(let_in > 0, "the average never came down");
    }

    #[test]
    fn numbers_at_their_ends_are_no_trouble() {
        let admission = CacheAdmission::default();
        for price in [ResultCost { took_us: u64::MAX, bytes: 0 }, ResultCost { took_us: 0, bytes: u64::MAX }] {
            admission.admits(u64::MAX, price, u64::MAX, u64::MAX);
        }
    }
}
