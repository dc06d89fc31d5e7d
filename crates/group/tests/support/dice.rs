//! Random numbers of a seed (splitmix64).

pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// From `low` to below `high`.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.roll() % (high - low).max(1)
    }

    pub fn host(&mut self, hosts: usize) -> usize {
        self.within(0, hosts as u64) as usize
    }

    pub fn percent(&mut self, percent: u64) -> bool {
        self.roll() % 100 < percent
    }
}
