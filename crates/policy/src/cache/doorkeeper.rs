//! Whether a store in the network is asked for an answer.
//!
//! To ask a store and to give it what a server said costs two exchanges. Of questions that never come twice nothing comes back, so where most
//! are of that kind the first asking goes to the server alone, and the second finds a store that is asked. Where another Weir has stored
//! them, or a server takes long for them, first askings are worth their exchanges. A store that takes twice as long as the server it spares is
//! not worth asking even for what it has. All of that is measured, never set.

/// Keys that are remembered: 256 KB.
const SEEN_MAX: usize = 1 << 16;

/// Of those that need not ask, one of so many does, so that it is noticed when that pays again.
const SAMPLE: u32 = 32;

/// But no sooner than so many milliseconds after the last: of many questions a second that is enough to notice it within the next.
const SAMPLE_MS: u64 = 10;

/// A store may take so many times as long as the server it spares: its answer costs less even then, and leaves the server to others.
const PATIENCE: u64 = 2;

/// What an answer from the store is taken to save, in microseconds, until more is known.
const HOPE_US: u64 = 1_000_000;

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
    /// It goes to the server.
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
    /// What a server took, or takes, for answers that the store gives instead.
    saved_us: u64,
    until_sample: u32,
    /// When the next may be, in milliseconds.
    sample_ms: u64,
    lessons: u32,
}

impl Default for Doorkeeper {
    fn default() -> Doorkeeper {
        Doorkeeper {
            seen: vec![0; SEEN_MAX].into(),
            share: ALL,
            asked_us: 0,
            took_us: 0,
            saved_us: HOPE_US,
            until_sample: SAMPLE,
            sample_ms: 0,
            lessons: LESSONS,
        }
    }
}

/// An average moved towards a value.
fn moved(average: u64, value: u64) -> u64 {
    if value >= average { average + (value - average).div_ceil(PACE) } else { average - (average - value).div_ceil(PACE) }
}

impl Doorkeeper {
    /// Decides over a key by its hash, at a time in milliseconds, and remembers it.
    pub fn judge(&mut self, key: u64, now_ms: u64) -> Entry {
        let (place, mark) = (key as usize % SEEN_MAX, (key >> 32) as u32 | 1);
        let entry = if std::mem::replace(&mut self.seen[place], mark) == mark { Entry::Known } else { Entry::First };
        let pays = match entry {
            Entry::Known => self.saved_us.saturating_mul(PATIENCE) >= self.asked_us,
            Entry::First | Entry::Away => {
                let is_lesson = self.lessons > 0;
                self.lessons = self.lessons.saturating_sub(1);
                is_lesson || self.first_pays()
            }
        };
        if pays || self.is_sample(now_ms) { entry } else { Entry::Away }
    }

    fn is_sample(&mut self, now_ms: u64) -> bool {
        self.until_sample = self.until_sample.saturating_sub(1);
        let is_due = self.until_sample == 0 && now_ms >= self.sample_ms;
        if is_due {
            (self.until_sample, self.sample_ms) = (SAMPLE, now_ms.saturating_add(SAMPLE_MS));
        }
        is_due
    }

    /// Whether first askings save servers more time than they cost.
    fn first_pays(&self) -> bool {
        self.share.saturating_mul(self.took_us) >= (EXCHANGES * ALL).saturating_mul(self.asked_us)
    }

    /// What an asking found: something for which a server took so many microseconds, or nothing.
    pub fn found(&mut self, entry: Entry, took_us: Option<u64>) {
        match entry {
            Entry::First => self.share = moved(self.share, if took_us.is_some() { ALL } else { 0 }),
            // Misses do not count: what was lost is stored again only by those that ask. Servers may be slower now than they were.
            Entry::Known => {
                if let Some(us) = took_us {
                    self.saved_us = moved(self.saved_us, us.max(self.took_us));
                }
            }
            Entry::Away => {}
        }
    }

    /// How long the store took, in microseconds.
    pub fn asked(&mut self, us: u64) {
        self.asked_us = moved(self.asked_us, us);
    }

    /// How long a server took, in microseconds; also for what the store was not asked for.
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
            let entry = keeper.judge(key(*number), *number);
            if entry != Entry::Away {
                let is_hit = number % 100 < hits;
                keeper.found(entry, is_hit.then_some(took_us));
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
    fn of_many_askings_at_a_time_few_ask() {
        let mut keeper = Doorkeeper::default();
        askings(&mut keeper, 0..1000, 0, 200);
        let asks = |number: &u64| keeper.judge(key(*number), number / 1000) != Entry::Away;
        let asked = (1_000_000..2_000_000).filter(asks).count();
        assert_eq!(asked, 100, "a million of them in a second");
    }

    #[test]
    fn the_second_asking_asks() {
        let mut keeper = Doorkeeper::default();
        askings(&mut keeper, 0..1000, 0, 200);
        assert_eq!(keeper.judge(key(5000), 5000), Entry::Away);
        assert_eq!(keeper.judge(key(5000), 5000), Entry::Known);
        assert_eq!(keeper.judge(key(5000), 5000), Entry::Known);
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

    /// Askings of one known key for an answer that takes a server so long, from a store that takes so long; those that asked.
    fn known(keeper: &mut Doorkeeper, took_us: u64, asked_us: u64, times: u32) -> usize {
        let mut asked = 0;
        for _ in 0..times {
            let entry = keeper.judge(key(7), keeper.sample_ms);
            if entry != Entry::Away {
                asked += 1;
                keeper.asked(asked_us);
                keeper.found(entry, Some(took_us));
            } else {
                keeper.took(took_us);
            }
        }
        asked
    }

    #[test]
    fn a_store_that_is_slower_than_the_server_is_spared_until_it_is_not() {
        let mut keeper = Doorkeeper::default();
        assert_eq!(known(&mut keeper, 200, 80, 2000), 2000, "it is the faster one");
        assert_eq!(known(&mut keeper, 200, 390, 2000), 2000, "it spares the server");
        known(&mut keeper, 200, 400_000, 500);
        let asked = known(&mut keeper, 200, 400_000, 3200);
        assert!((95..=105).contains(&asked), "{asked} of 3200");
        known(&mut keeper, 200, 80, 32 * 1000);
        assert_eq!(known(&mut keeper, 200, 80, 100), 100, "it is the faster one again");
    }

    #[test]
    fn servers_that_become_slow_while_the_store_is_spared_are_noticed() {
        let mut keeper = Doorkeeper::default();
        known(&mut keeper, 200, 400_000, 2000);
        // The store's answers bear the times of before.
        for now_ms in 0..32 * 1000 {
            match keeper.judge(key(7), now_ms) {
                Entry::Away => keeper.took(1_000_000),
                entry => {
                    keeper.asked(400_000);
                    keeper.found(entry, Some(200));
                }
            }
        }
        assert_eq!(keeper.judge(key(7), u64::MAX), Entry::Known);
        assert_eq!(keeper.judge(key(7), u64::MAX), Entry::Known);
    }

    #[test]
    fn a_store_that_has_lost_all_is_asked_and_filled_again() {
        let mut keeper = Doorkeeper::default();
        let mut stored = std::collections::BTreeSet::new();
        let mut asked = 0;
        for number in 0..60_000_u64 {
            if number == 30_000 {
                stored.clear();
                asked = 0;
            }
            let key = key(number.wrapping_mul(2_654_435_761) % 5000);
            let entry = keeper.judge(key, number);
            if entry == Entry::Away {
                keeper.took(200);
                continue;
            }
            asked += 1;
            keeper.asked(80);
            let has = !stored.insert(key);
            keeper.found(entry, has.then_some(200));
            if !has {
                keeper.took(200);
            }
        }
        assert!(asked > 25_000, "{asked} of 30000");
    }

    #[test]
    fn times_at_their_ends_are_no_trouble() {
        let mut keeper = Doorkeeper::default();
        for us in [u64::MAX, 0, u64::MAX] {
            keeper.asked(us);
            keeper.took(us);
            keeper.found(Entry::First, (us == 0).then_some(us));
            keeper.found(Entry::Known, Some(us));
            keeper.judge(us, us);
            keeper.judge(us, us);
        }
    }
}
