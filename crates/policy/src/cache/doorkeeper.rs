//! Whether a store in the network is asked for an answer that this worker has not been asked for lately.
//!
//! To ask a store and to give it what a server said costs two exchanges. Of questions that never come twice nothing comes back, so where most
//! are of that kind the first asking goes to the server alone, and the second finds a store that is asked. Where another Weir has stored
//! them, or a server takes long for them, first askings are worth their exchanges: both is measured, never set.

/// Keys that are remembered: 256 KB.
const SEEN_MAX: usize = 1 << 16;

/// Of those that need not ask, one of so many does, so that it is noticed when they find something again.
const SAMPLE: u32 = 32;

/// First askings that all ask: until then nothing is known, and few questions are no burden.
const LESSONS: u32 = 1000;

/// Each value moves its average by this part of its difference.
const PACE: u64 = 32;

/// All of them, as a share.
const ALL: u64 = 1 << 16;

/// Exchanges that an answer costs which the store does not have: the question, and storing it.
const EXCHANGES: u64 = 2;

/// How a key comes to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// It was asked for lately.
    Known,
    /// It was not, and asks nevertheless: what it finds is to be told (`Doorkeeper::found`).
    First,
    /// It was not, and goes to the server.
    Away,
}

/// See the module. For one worker.
#[derive(Debug)]
pub struct Doorkeeper {
    seen: Box<[u32]>,
    /// Of first askings those that found an answer.
    share: u64,
    /// Time in microseconds of an exchange with the store, and of an answer of a server.
    asked_us: u64,
    took_us: u64,
    until_sample: u32,
    lessons: u32,
}

impl Default for Doorkeeper {
    fn default() -> Doorkeeper {
        Doorkeeper { seen: vec![0; SEEN_MAX].into(), share: ALL, asked_us: 0, took_us: 0, until_sample: SAMPLE, lessons: LESSONS }
    }
}

/// An average moved towards a value.
fn moved(average: u64, value: u64) -> u64 {
    if value >= average { average + (value - average).div_ceil(PACE) } else { average - (average - value).div_ceil(PACE) }
}

impl Doorkeeper {
    /// Decides over a key by its hash, and remembers it.
    pub fn judge(&mut self, key: u64) -> Entry {
        let (place, mark) = (key as usize % SEEN_MAX, (key >> 32) as u32 | 1);
        if std::mem::replace(&mut self.seen[place], mark) == mark {
            return Entry::Known;
        }
        if self.lessons > 0 || self.is_worth_it() {
            self.lessons = self.lessons.saturating_sub(1);
            return Entry::First;
        }
        self.until_sample -= 1;
        if self.until_sample > 0 {
            return Entry::Away;
        }
        self.until_sample = SAMPLE;
        Entry::First
    }

    /// Whether first askings save servers more time than they cost.
    fn is_worth_it(&self) -> bool {
        self.share.saturating_mul(self.took_us) >= (EXCHANGES * ALL).saturating_mul(self.asked_us)
    }

    /// What a first asking found.
    pub fn found(&mut self, is_hit: bool) {
        self.share = moved(self.share, if is_hit { ALL } else { 0 });
    }

    /// How long the store took, in microseconds.
    pub fn asked(&mut self, us: u64) {
        self.asked_us = moved(self.asked_us, us);
    }

    /// How long a server took, in microseconds.
    pub fn took(&mut self, us: u64) {
        self.took_us = moved(self.took_us, us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys as hashes are: all bits differ.
    fn key(number: u64) -> u64 {
        number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29).wrapping_mul(0xBF58_476D_1CE4_E5B9)
    }

    /// Askings of so many new keys, of which a share in percent finds something; those that asked.
    fn askings(keeper: &mut Doorkeeper, keys: std::ops::Range<u64>, hits: u64, took_us: u64) -> usize {
        keys.filter(|number| {
            let entry = keeper.judge(key(*number));
            if entry != Entry::Away {
                let is_hit = number % 100 < hits;
                keeper.found(is_hit);
                keeper.asked(80);
                if !is_hit {
                    keeper.took(took_us);
                }
            }
            entry == Entry::First
        })
        .count()
    }

    #[test]
    fn the_first_askings_of_all_ask() {
        assert_eq!(askings(&mut Doorkeeper::default(), 0..u64::from(LESSONS), 0, 200), LESSONS as usize);
    }

    #[test]
    fn where_nothing_comes_twice_few_ask() {
        let mut keeper = Doorkeeper::default();
        askings(&mut keeper, 0..1000, 0, 200);
        let asked = askings(&mut keeper, 1000..11_000, 0, 200);
        assert!((300..330).contains(&asked), "{asked} of 10000");
    }

    #[test]
    fn the_second_asking_asks() {
        let mut keeper = Doorkeeper::default();
        askings(&mut keeper, 0..1000, 0, 200);
        assert_eq!(keeper.judge(key(5000)), Entry::Away);
        assert_eq!(keeper.judge(key(5000)), Entry::Known);
        assert_eq!(keeper.judge(key(5000)), Entry::Known);
    }

    #[test]
    fn what_takes_a_server_long_asks_for_few_hits() {
        let mut keeper = Doorkeeper::default();
        askings(&mut keeper, 0..5000, 10, 20_000);
        assert_eq!(askings(&mut keeper, 5000..6000, 10, 20_000), 1000);
    }

    #[test]
    fn what_others_begin_to_store_is_noticed() {
        let mut keeper = Doorkeeper::default();
        askings(&mut keeper, 0..1000, 0, 200);
        askings(&mut keeper, 1000..20_000, 100, 200);
        assert!(askings(&mut keeper, 20_000..21_000, 100, 200) > 990);
    }

    #[test]
    fn times_at_their_ends_are_no_trouble() {
        let mut keeper = Doorkeeper::default();
        for us in [u64::MAX, 0, u64::MAX] {
            keeper.asked(us);
            keeper.took(us);
            keeper.found(us == 0);
            keeper.judge(us);
        }
    }
}
