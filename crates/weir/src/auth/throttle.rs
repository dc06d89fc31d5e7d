//! Limits on wrong proofs, counted by origin, and by origin and user.
//!
//! In: the visitor, the time. Out: judge the proof, wait, or refuse. No IO. A proof takes a place on arrival, so connections
//! opened beforehand gain nothing. The verdict gives the place back or makes it a failure, which costs an interval. A visitor
//! more than a burst of intervals ahead of the clock waits, one proof after the other: parallel connections are no faster. The
//! count by origin slows attackers who try many users; the count by user keeps a wrong password from locking out others on its
//! host. Unknown users count too.
//!
//! Invariant: in any time of `n` seconds at most `burst` + 60 + `n` wrong proofs of one user from one place are judged.

use std::collections::HashMap;

/// Price of a user's failure, beyond the burst.
const USER_INTERVAL_MS: u64 = 1_000;
const ADDRESS_INTERVAL_MS: u64 = 100;
/// Burst of an origin, in bursts of one user.
const ADDRESS_FACTOR: u64 = 10;
/// Longest wait of a judged proof. Every try is paid for, so shorter waits speed up no guessing in the long run.
const WAIT_MS_MAX: u64 = 5_000;
/// A longer wait is refused. Far above `WAIT_MS_MAX`: a program that retries a wrong password over a few connections pays less
/// than time forgives, so the right one still gets in.
const QUEUE_MS_MAX: u64 = 60_000;
/// Failures count no longer than this beyond the burst.
const DEBT_MS_MAX: u64 = 600_000;
/// Failures kept; beyond that the least important are dropped.
const COUNTS_MAX: usize = 20_000;

/// For IPv6 the first 64 bits, since one host has all the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProofClient {
    /// Address, or the system user at the other end of a unix socket.
    pub address: u128,
    pub user: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThrottleDecision {
    /// Judge the proof; it holds a place until its verdict.
    Now,
    /// As many proofs as may be wrong are being judged: ask again.
    Crowded,
    /// Judge the proof after this time; it is paid for.
    After {
        wait_ms: u64,
    },
    Refused {
        wait_ms: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProofVerdict {
    Right,
    Wrong,
    None,
}

/// `None`: all users of the origin.
type Key = (u128, Option<u64>);

#[derive(Debug, Default)]
pub struct LoginThrottle {
    /// Time up to which failures are paid for.
    paid_until_ms: HashMap<Key, u64>,
    /// Unpaid proofs being judged.
    judged: HashMap<Key, u64>,
}

impl LoginThrottle {
    /// `burst` failures are free; 0: unlimited. `Now` and `After` must be followed by `settle`.
    pub fn ask(&mut self, visitor: ProofClient, burst: u32, now_ms: u64) -> ThrottleDecision {
        if burst == 0 {
            return ThrottleDecision::Now;
        }
        let prices = prices(visitor, burst);
        let wait_ms = self.wait_ms(visitor, burst, now_ms);
        if wait_ms > QUEUE_MS_MAX {
            return ThrottleDecision::Refused { wait_ms: wait_ms - QUEUE_MS_MAX };
        }
        if wait_ms > 0 {
            self.pay(visitor, burst, now_ms);
            return ThrottleDecision::After { wait_ms: wait_ms.min(WAIT_MS_MAX) };
        }
        let is_crowded = prices.iter().any(|(key, interval_ms, burst_ms)| {
            let judged = self.judged.get(key).copied().unwrap_or(0);
            self.debt_ms(*key, now_ms) + (judged + 1) * interval_ms > *burst_ms
        });
        if is_crowded {
            return ThrottleDecision::Crowded;
        }
        for (key, _, _) in prices {
            *self.judged.entry(key).or_insert(0) += 1;
        }
        ThrottleDecision::Now
    }

    /// Takes a verdict; `burst` as in `ask`.
    pub fn settle(&mut self, visitor: ProofClient, burst: u32, (pass, judgement): (ThrottleDecision, ProofVerdict), now_ms: u64) {
        if burst == 0 {
            return;
        }
        match (pass, judgement) {
            (ThrottleDecision::Now, judgement) => {
                self.leave(visitor, burst);
                if judgement == ProofVerdict::Wrong {
                    self.pay(visitor, burst, now_ms);
                }
            }
            (ThrottleDecision::After { .. }, ProofVerdict::Right | ProofVerdict::None) => self.give_back(visitor, burst),
            (ThrottleDecision::After { .. }, ProofVerdict::Wrong)
            | (ThrottleDecision::Crowded | ThrottleDecision::Refused { .. }, _) => {}
        }
    }

    /// Returns the time until the next failure is free.
    fn wait_ms(&self, visitor: ProofClient, burst: u32, now_ms: u64) -> u64 {
        let waits = prices(visitor, burst)
            .map(|(key, interval_ms, burst_ms)| (self.debt_ms(key, now_ms) + interval_ms).saturating_sub(burst_ms));
        waits.into_iter().max().unwrap_or(0)
    }

    fn debt_ms(&self, key: Key, now_ms: u64) -> u64 {
        self.paid_until_ms.get(&key).copied().unwrap_or(0).saturating_sub(now_ms)
    }

    fn leave(&mut self, visitor: ProofClient, burst: u32) {
        for (key, _, _) in prices(visitor, burst) {
            if let Some(judged) = self.judged.get_mut(&key) {
                *judged -= 1;
                if *judged == 0 {
                    self.judged.remove(&key);
                }
            }
        }
    }

    fn give_back(&mut self, visitor: ProofClient, burst: u32) {
        for (key, interval_ms, _) in prices(visitor, burst) {
            if let Some(paid_until) = self.paid_until_ms.get_mut(&key) {
                *paid_until = paid_until.saturating_sub(interval_ms);
            }
        }
    }

    fn pay(&mut self, visitor: ProofClient, burst: u32, now_ms: u64) {
        if self.paid_until_ms.len() >= COUNTS_MAX {
            self.make_room(now_ms);
        }
        for (key, interval_ms, burst_ms) in prices(visitor, burst) {
            let paid_until = self.paid_until_ms.entry(key).or_insert(0);
            *paid_until = ((*paid_until).max(now_ms) + interval_ms).min(now_ms + burst_ms + DEBT_MS_MAX);
        }
    }

    /// Drops paid counts, else the half that is paid soonest.
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

/// Price of a failure and free amount, by key.
fn prices(visitor: ProofClient, burst: u32) -> [(Key, u64, u64); 2] {
    let burst = u64::from(burst);
    let of_user = ((visitor.address, Some(visitor.user)), USER_INTERVAL_MS, burst * USER_INTERVAL_MS);
    [of_user, ((visitor.address, None), ADDRESS_INTERVAL_MS, burst * ADDRESS_FACTOR * ADDRESS_INTERVAL_MS)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOE: ProofClient = ProofClient { address: 1, user: 1 };
    const ANN: ProofClient = ProofClient { address: 1, user: 2 };
    const ELSEWHERE: ProofClient = ProofClient { address: 2, user: 1 };

    /// One proof after the other, each judged at once. The answer to the last.
    fn prove(
        throttle: &mut LoginThrottle,
        visitor: ProofClient,
        verdict: ProofVerdict,
        times: usize,
        now_ms: u64,
    ) -> ThrottleDecision {
        let mut last = ThrottleDecision::Now;
        for _ in 0..times {
            last = throttle.ask(visitor, 3, now_ms);
            throttle.settle(visitor, 3, (last, verdict), now_ms);
        }
        last
    }

    /// The answer to a proof that is right.
    fn right(throttle: &mut LoginThrottle, visitor: ProofClient, now_ms: u64) -> ThrottleDecision {
        prove(throttle, visitor, ProofVerdict::Right, 1, now_ms)
    }

    #[test]
    fn a_few_failures_are_free_and_more_take_a_second_each() {
        let mut throttle = LoginThrottle::default();
        assert_eq!(prove(&mut throttle, JOE, ProofVerdict::Wrong, 3, 1000), ThrottleDecision::Now);
        assert_eq!(throttle.ask(JOE, 3, 1000), ThrottleDecision::After { wait_ms: 1000 });
        assert_eq!(
            throttle.ask(JOE, 3, 1000),
            ThrottleDecision::After { wait_ms: 2000 },
            "those who wait do so one after the other"
        );
        assert_eq!(right(&mut throttle, ANN, 1000), ThrottleDecision::Now, "another user of the address is not touched");
        assert_eq!(right(&mut throttle, ELSEWHERE, 1000), ThrottleDecision::Now, "nor is the user elsewhere");
        assert_eq!(right(&mut throttle, JOE, 8000), ThrottleDecision::Now, "time heals");
    }

    #[test]
    fn proofs_that_arrive_at_once_are_judged_no_faster_than_one_after_the_other() {
        let mut throttle = LoginThrottle::default();
        let at_once: Vec<ThrottleDecision> = (0..300).map(|_| throttle.ask(JOE, 20, 0)).collect();
        assert_eq!(at_once.iter().filter(|pass| **pass == ThrottleDecision::Now).count(), 20);
        assert!(at_once[20..].iter().all(|pass| *pass == ThrottleDecision::Crowded));
        for pass in &at_once[..20] {
            throttle.settle(JOE, 20, (*pass, ProofVerdict::Wrong), 1);
        }
        let behind: Vec<ThrottleDecision> = (0..280).map(|_| throttle.ask(JOE, 20, 1)).collect();
        assert_eq!(behind[..2], [ThrottleDecision::After { wait_ms: 1000 }, ThrottleDecision::After { wait_ms: 2000 }]);
        assert_eq!(behind.iter().filter(|pass| matches!(pass, ThrottleDecision::After { .. })).count(), 60);
        assert!(behind[60..].iter().all(|pass| matches!(pass, ThrottleDecision::Refused { .. })));
    }

    #[test]
    fn any_number_of_right_proofs_at_once_is_judged_and_leaves_nothing() {
        let mut throttle = LoginThrottle::default();
        let (mut waiting, mut judged) = (500, 0);
        while waiting > 0 {
            let passes: Vec<ThrottleDecision> = (0..waiting).map(|_| throttle.ask(JOE, 20, 0)).collect();
            assert!(passes.iter().all(|pass| matches!(pass, ThrottleDecision::Now | ThrottleDecision::Crowded)), "{passes:?}");
            for pass in passes.iter().filter(|pass| **pass == ThrottleDecision::Now) {
                throttle.settle(JOE, 20, (*pass, ProofVerdict::Right), 0);
                (waiting, judged) = (waiting - 1, judged + 1);
            }
        }
        assert_eq!(judged, 500);
        assert!(throttle.judged.is_empty() && throttle.paid_until_ms.is_empty());
    }

    #[test]
    fn a_right_proof_gives_its_place_back_and_so_does_one_that_nobody_judged() {
        for verdict in [ProofVerdict::Right, ProofVerdict::None] {
            let mut throttle = LoginThrottle::default();
            prove(&mut throttle, JOE, ProofVerdict::Wrong, 4, 0);
            let pass = throttle.ask(JOE, 3, 0);
            assert_eq!(pass, ThrottleDecision::After { wait_ms: 2000 });
            throttle.settle(JOE, 3, (pass, verdict), 0);
            assert_eq!(prove(&mut throttle, JOE, ProofVerdict::Wrong, 1, 0), pass);
            assert_eq!(
                throttle.ask(JOE, 3, 0),
                ThrottleDecision::After { wait_ms: 3000 },
                "a proof that waited and was wrong has paid already"
            );
        }
    }

    #[test]
    fn who_would_wait_too_long_is_sent_away_but_not_for_ever() {
        let mut throttle = LoginThrottle::default();
        for _ in 0..100_000 {
            throttle.pay(JOE, 3, 5);
        }
        let expected = DEBT_MS_MAX + USER_INTERVAL_MS - QUEUE_MS_MAX;
        assert_eq!(throttle.ask(JOE, 3, 5), ThrottleDecision::Refused { wait_ms: expected });
        assert_eq!(throttle.ask(JOE, 3, 5 + DEBT_MS_MAX + 3_000), ThrottleDecision::Now);
    }

    #[test]
    fn programs_that_go_on_with_a_wrong_password_leave_the_right_one_a_turn() {
        let mut throttle = LoginThrottle::default();
        // Four connections, each tries again as soon as it has its answer, for an hour.
        let mut free_at_ms = [0_u64; 4];
        for now_ms in (0..3_600_000).step_by(100) {
            for free_at in &mut free_at_ms {
                if *free_at > now_ms {
                    continue;
                }
                let pass = prove(&mut throttle, JOE, ProofVerdict::Wrong, 1, now_ms);
                let wait_ms = match pass {
                    ThrottleDecision::Now => 0,
                    ThrottleDecision::After { wait_ms } => wait_ms,
                    ThrottleDecision::Crowded | ThrottleDecision::Refused { .. } => {
                        panic!("{pass:?} for a wrong one after {now_ms} ms")
                    }
                };
                *free_at = now_ms + wait_ms.max(20);
            }
            if now_ms % 60_000 == 0 {
                let right = right(&mut throttle, JOE, now_ms);
                assert!(
                    matches!(right, ThrottleDecision::Now | ThrottleDecision::After { wait_ms: ..=WAIT_MS_MAX }),
                    "{right:?} after {now_ms} ms"
                );
            }
        }
    }

    #[test]
    fn an_address_that_tries_many_users_is_slowed_down_as_well() {
        let mut throttle = LoginThrottle::default();
        for user in 0..30 {
            assert_eq!(prove(&mut throttle, ProofClient { address: 9, user }, ProofVerdict::Wrong, 1, 0), ThrottleDecision::Now);
        }
        assert_eq!(throttle.ask(ProofClient { address: 9, user: 77 }, 3, 0), ThrottleDecision::After { wait_ms: 100 });
    }

    #[test]
    fn users_of_an_address_are_crowded_together_only() {
        let mut throttle = LoginThrottle::default();
        let passes: Vec<ThrottleDecision> = (0..40).map(|user| throttle.ask(ProofClient { address: 9, user }, 3, 0)).collect();
        assert_eq!(passes.iter().filter(|pass| **pass == ThrottleDecision::Now).count(), 30);
        assert!(passes[30..].iter().all(|pass| *pass == ThrottleDecision::Crowded));
        assert_eq!(throttle.ask(ELSEWHERE, 3, 0), ThrottleDecision::Now);
    }

    #[test]
    fn the_table_has_an_end_and_keeps_the_worst() {
        let mut throttle = LoginThrottle::default();
        for _ in 0..500 {
            throttle.pay(JOE, 3, 0);
        }
        for address in 10..200_000 {
            prove(&mut throttle, ProofClient { address, user: 0 }, ProofVerdict::Wrong, 1, 0);
            assert!(throttle.paid_until_ms.len() <= COUNTS_MAX + 2);
        }
        assert!(throttle.judged.is_empty());
        assert!(matches!(throttle.ask(JOE, 3, 0), ThrottleDecision::Refused { .. }));
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let mut throttle = LoginThrottle::default();
        for _ in 0..1000 {
            assert_eq!(throttle.ask(JOE, 0, 0), ThrottleDecision::Now);
            throttle.settle(JOE, 0, (ThrottleDecision::Now, ProofVerdict::Wrong), 0);
        }
        assert!(throttle.paid_until_ms.is_empty() && throttle.judged.is_empty());
    }
}
