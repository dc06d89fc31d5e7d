//! How often someone may be wrong: failed logins are counted by address, and by user and address.
//!
//! In: the visitor, the time. Out: go on, wait, or go away. No IO.
//! Each failure costs an interval of time. A visitor more than a burst of intervals ahead of the clock waits, one connection
//! after the other, so that connections in parallel are no faster than one. Why both counts: the first slows down an attacker
//! who tries many users. The second keeps a program with a wrong password from shutting out the others on its host. Users count
//! by the name they gave, whether it exists or not. A login that succeeds costs nothing.

use std::collections::HashMap;

/// One failure of one user at one address, once the burst is used up.
const USER_INTERVAL_MS: u64 = 1_000;
/// One failure at one address.
const ADDRESS_INTERVAL_MS: u64 = 100;
/// How many times as many failures an address has as one of its users.
const ADDRESS_FACTOR: u64 = 10;
/// Longest wait of a visitor that may try. Every try is paid for, so that shorter waits make guessing no faster in the long
/// run.
const WAIT_MS_MAX: u64 = 5_000;
/// A client that would wait longer than this for its turn is sent away. Far above `WAIT_MS_MAX`: a program that goes on trying
/// a wrong password over a few connections pays less than time forgives. So the right password of the same user on the same
/// host gets in.
const QUEUE_MS_MAX: u64 = 60_000;
/// Failures do not count for longer than this beyond the burst.
const DEBT_MS_MAX: u64 = 600_000;
/// Counts kept. When there are more, those that matter least are dropped.
const COUNTS_MAX: usize = 20_000;

/// Client that wants to log in: the address, and a hash of the user's name. For IPv6 the first 64 bits, since one host has all
/// the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visitor {
    /// Address.
    pub address: u128,
    /// Hash of the user's name.
    pub user: u64,
}

/// Answer to a visitor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// Go on.
    Now,
    /// Go on after this time; the place was paid for and is given back when the login succeeds.
    After {
        /// Time to wait.
        wait_ms: u64,
    },
    /// Too much was tried already.
    Refused {
        /// Time after which it is worth trying again.
        wait_ms: u64,
    },
}

/// The user's share of an address, or all of it.
type Key = (u128, Option<u64>);

/// Failures that were counted: by key, the time up to which they are paid for.
#[derive(Debug, Default)]
pub struct Throttle {
    paid_until_ms: HashMap<Key, u64>,
}

impl Throttle {
    /// Asks before a login's proof is looked at. `burst` failures are free; 0: all are.
    pub fn ask(&mut self, visitor: Visitor, burst: u32, now_ms: u64) -> Pass {
        if burst == 0 || self.paid_until_ms.is_empty() {
            return Pass::Now;
        }
        let wait_ms = prices(visitor, burst)
            .map(|(key, _, burst_ms)| {
                let paid_until = self.paid_until_ms.get(&key).copied().unwrap_or(0);
                paid_until.saturating_sub(now_ms).saturating_sub(burst_ms)
            })
            .into_iter()
            .max()
            .unwrap_or(0);
        match wait_ms {
            0 => Pass::Now,
            _ if wait_ms > QUEUE_MS_MAX => Pass::Refused { wait_ms: wait_ms - QUEUE_MS_MAX },
            _ => {
                self.pay(visitor, burst, now_ms);
                Pass::After { wait_ms: wait_ms.min(WAIT_MS_MAX) }
            }
        }
    }

    /// A login failed that was told to go on like this.
    pub fn failed(&mut self, visitor: Visitor, pass: Pass, burst: u32, now_ms: u64) {
        match pass {
            Pass::Now if burst > 0 => self.pay(visitor, burst, now_ms),
            Pass::Now | Pass::After { .. } | Pass::Refused { .. } => {}
        }
    }

    /// A login succeeded, or ended without a proof.
    pub fn passed(&mut self, visitor: Visitor, pass: Pass, burst: u32) {
        if let Pass::After { .. } = pass {
            for (key, interval_ms, _) in prices(visitor, burst) {
                if let Some(paid_until) = self.paid_until_ms.get_mut(&key) {
                    *paid_until = paid_until.saturating_sub(interval_ms);
                }
            }
        }
    }

    fn pay(&mut self, visitor: Visitor, burst: u32, now_ms: u64) {
        if self.paid_until_ms.len() >= COUNTS_MAX {
            self.make_room(now_ms);
        }
        for (key, interval_ms, burst_ms) in prices(visitor, burst) {
            let paid_until = self.paid_until_ms.entry(key).or_insert(0);
            *paid_until = ((*paid_until).max(now_ms) + interval_ms).min(now_ms + burst_ms + DEBT_MS_MAX);
        }
    }

    /// Drops the counts that are paid for; if that is not enough, the half that is paid for soonest.
    fn make_room(&mut self, now_ms: u64) {
        self.paid_until_ms.retain(|_, paid_until| *paid_until > now_ms);
        if self.paid_until_ms.len() >= COUNTS_MAX {
            let mut times: Vec<u64> = self.paid_until_ms.values().copied().collect();
            let middle = times.len() / 2;
            let (_, median, _) = times.select_nth_unstable(middle);
            let median = *median;
            self.paid_until_ms.retain(|_, paid_until| *paid_until > median);
        }
    }
}

/// Price of a failure, and the free amount, by key.
fn prices(visitor: Visitor, burst: u32) -> [(Key, u64, u64); 2] {
    let burst = u64::from(burst);
    let of_user = ((visitor.address, Some(visitor.user)), USER_INTERVAL_MS, burst * USER_INTERVAL_MS);
    [of_user, ((visitor.address, None), ADDRESS_INTERVAL_MS, burst * ADDRESS_FACTOR * ADDRESS_INTERVAL_MS)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(throttle: &mut Throttle, visitor: Visitor, times: usize, now_ms: u64) -> Pass {
        for _ in 0..times {
            let pass = throttle.ask(visitor, 3, now_ms);
            throttle.failed(visitor, pass, 3, now_ms);
        }
        throttle.ask(visitor, 3, now_ms)
    }

    const JOE: Visitor = Visitor { address: 1, user: 1 };
    const ANN: Visitor = Visitor { address: 1, user: 2 };
    const ELSEWHERE: Visitor = Visitor { address: 2, user: 1 };

    #[test]
    fn a_few_failures_are_free_and_more_take_a_second_each() {
        let mut throttle = Throttle::default();
        assert_eq!(fail(&mut throttle, JOE, 3, 1000), Pass::Now);
        assert_eq!(fail(&mut throttle, JOE, 1, 1000), Pass::After { wait_ms: 1000 });
        assert_eq!(throttle.ask(JOE, 3, 1000), Pass::After { wait_ms: 2000 }, "those who wait do so one after the other");
        assert_eq!(throttle.ask(ANN, 3, 1000), Pass::Now, "another user of the address is not touched");
        assert_eq!(throttle.ask(ELSEWHERE, 3, 1000), Pass::Now, "nor is the user elsewhere");
        assert_eq!(throttle.ask(JOE, 3, 8000), Pass::Now, "time heals");
    }

    #[test]
    fn a_login_that_succeeds_gives_its_place_back() {
        let mut throttle = Throttle::default();
        let pass = fail(&mut throttle, JOE, 4, 0);
        throttle.passed(JOE, pass, 3);
        assert_eq!(throttle.ask(JOE, 3, 0), pass);
        throttle.failed(JOE, pass, 3, 0);
        assert_eq!(throttle.ask(JOE, 3, 0), Pass::After { wait_ms: 2000 }, "one that waited and failed has paid already");
    }

    #[test]
    fn who_would_wait_too_long_is_sent_away_but_not_for_ever() {
        let mut throttle = Throttle::default();
        for _ in 0..100_000 {
            throttle.failed(JOE, Pass::Now, 3, 5);
        }
        let Pass::Refused { wait_ms } = throttle.ask(JOE, 3, 5) else { panic!() };
        assert_eq!(wait_ms, DEBT_MS_MAX - QUEUE_MS_MAX);
        assert_eq!(throttle.ask(JOE, 3, 5 + DEBT_MS_MAX + 3_000), Pass::Now);
    }

    #[test]
    fn programs_that_go_on_with_a_wrong_password_leave_the_right_one_a_turn() {
        let mut throttle = Throttle::default();
        // Four connections, each tries again as soon as it has its answer, for an hour.
        let mut free_at_ms = [0_u64; 4];
        for now_ms in (0..3_600_000).step_by(100) {
            for free_at in &mut free_at_ms {
                if *free_at > now_ms {
                    continue;
                }
                let pass = throttle.ask(JOE, 3, now_ms);
                let (Pass::Now | Pass::After { .. }) = pass else { panic!("a wrong one is sent away after {now_ms} ms") };
                let wait_ms = if let Pass::After { wait_ms } = pass { wait_ms } else { 0 };
                throttle.failed(JOE, pass, 3, now_ms);
                *free_at = now_ms + wait_ms.max(20);
            }
            if now_ms % 60_000 == 0 {
                let right = throttle.ask(JOE, 3, now_ms);
                assert!(matches!(right, Pass::Now | Pass::After { wait_ms: ..=WAIT_MS_MAX }), "{right:?} after {now_ms} ms");
                throttle.passed(JOE, right, 3);
            }
        }
    }

    #[test]
    fn an_address_that_tries_many_users_is_slowed_down_as_well() {
        let mut throttle = Throttle::default();
        for user in 0..30 {
            assert_eq!(throttle.ask(Visitor { address: 9, user }, 3, 0), Pass::Now);
            throttle.failed(Visitor { address: 9, user }, Pass::Now, 3, 0);
        }
        assert_eq!(fail(&mut throttle, Visitor { address: 9, user: 77 }, 1, 0), Pass::After { wait_ms: 100 });
    }

    #[test]
    fn the_table_has_an_end_and_keeps_the_worst() {
        let mut throttle = Throttle::default();
        for _ in 0..500 {
            throttle.failed(JOE, Pass::Now, 3, 0);
        }
        for address in 10..200_000 {
            throttle.failed(Visitor { address, user: 0 }, Pass::Now, 3, 0);
            assert!(throttle.paid_until_ms.len() <= COUNTS_MAX + 2);
        }
        assert!(matches!(throttle.ask(JOE, 3, 0), Pass::Refused { .. }));
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let mut throttle = Throttle::default();
        for _ in 0..1000 {
            assert_eq!(throttle.ask(JOE, 0, 0), Pass::Now);
            throttle.failed(JOE, Pass::Now, 0, 0);
        }
        assert!(throttle.paid_until_ms.is_empty());
    }
}
