//! Medians, percentiles and the order of rounds.

/// The middle, the lowest and the highest of some values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Half of the values are lower.
    pub median: f64,
    /// The lowest value.
    pub min: f64,
    /// The highest value.
    pub max: f64,
}

/// `None` for no values.
pub fn spread(values: &[f64]) -> Option<Spread> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (&min, &max) = (sorted.first()?, sorted.last()?);
    let half = sorted.len() / 2;
    let median = if sorted.len() % 2 == 1 { sorted[half] } else { (sorted[half - 1] + sorted[half]) / 2.0 };
    Some(Spread { median, min, max })
}

/// The value that `percent` of the values do not exceed; `None` for no values. Sorts in place.
pub fn percentile(values: &mut [f64], percent: usize) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() * percent).div_ceil(100).max(1);
    values.get(rank - 1).copied()
}

/// A small seeded generator (xorshift64*): rounds are shuffled the same way for the same seed.
pub struct Dice(u64);

impl Dice {
    /// Any seed will do; 0 is replaced, because the generator would stay at it.
    pub fn new(seed: u64) -> Self {
        Self(seed.max(1))
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(high).map_or(0, |high| high % limit)
    }

    /// Shuffles in place (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last + 1);
            items.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_is_between_the_middle_two() {
        assert_eq!(spread(&[4.0, 1.0, 3.0, 2.0]), Some(Spread { median: 2.5, min: 1.0, max: 4.0 }));
        assert_eq!(spread(&[]), None);
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        let mut values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(percentile(&mut values, 50), Some(100.0));
        assert_eq!(percentile(&mut values, 99), Some(198.0));
        assert_eq!(percentile(&mut [7.0], 99), Some(7.0));
        assert_eq!(percentile(&mut [], 99), None);
    }

    #[test]
    fn the_same_seed_gives_the_same_order() {
        let order = |seed| {
            let mut items: Vec<u32> = (0..20).collect();
            Dice::new(seed).shuffle(&mut items);
            items
        };
        assert_eq!(order(7), order(7));
        assert_ne!(order(7), order(8));
        let mut sorted = order(7);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..20).collect::<Vec<_>>());
    }
}
