//! Places for proofs of clients and administrators. `auth::throttle` decides.
//!
//! Invariant: a reader of a proof holds a `ProofPermit` before judging it. A permit dropped without a verdict counts as a wrong
//! proof.

use crate::auth::throttle::{LoginThrottle, ProofClient, ProofVerdict, ThrottleDecision};
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time until a `Crowded` proof asks again.
pub const CROWD_PERIOD: Duration = Duration::from_millis(20);

/// Marks a system user: no IPv4 address or IPv6 network has this bit.
const LOCAL: u128 = 1 << 63;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProofOrigin {
    Address(IpAddr),
    /// A unix socket, and the system user at its other end: users of a machine do not lock each other out.
    Local(Option<u32>),
}

pub struct ProofAdmission {
    throttle: Mutex<LoginThrottle>,
    hasher: RandomState,
    born_at: Instant,
}

pub enum ProofTurn {
    /// Judge after this time.
    Judge(ProofPermit, Duration),
    /// Ask again after `CROWD_PERIOD`.
    Crowded,
    /// Refuse; try again after so many seconds.
    Refused(u64),
}

#[must_use]
pub struct ProofPermit {
    counts: Arc<ProofAdmission>,
    visitor: ProofClient,
    burst: u32,
    pass: ThrottleDecision,
    judgement: ProofVerdict,
}

impl ProofAdmission {
    pub fn new() -> Arc<ProofAdmission> {
        Arc::new(ProofAdmission { throttle: Mutex::default(), hasher: RandomState::default(), born_at: Instant::now() })
    }

    /// IPv6 counts by /64 network, since one host has all of its addresses.
    pub fn visitor(&self, place: ProofOrigin, user: &str) -> ProofClient {
        let address = match place {
            ProofOrigin::Address(address) => match address.to_canonical() {
                IpAddr::V4(v4) => u128::from(u32::from(v4)),
                IpAddr::V6(v6) => u128::from(v6) >> 64 << 64,
            },
            ProofOrigin::Local(Some(uid)) => LOCAL | u128::from(uid),
            ProofOrigin::Local(None) => LOCAL | 1 << 62,
        };
        ProofClient { address, user: self.hasher.hash_one(user) }
    }

    /// `burst`: free failures, 0 for unlimited.
    pub fn take(self: &Arc<ProofAdmission>, visitor: ProofClient, burst: u32) -> ProofTurn {
        let pass = self.throttle.lock().ask(visitor, burst, self.age_ms());
        let guess = |pass| ProofPermit { counts: self.clone(), visitor, burst, pass, judgement: ProofVerdict::Wrong };
        match pass {
            ThrottleDecision::Now => ProofTurn::Judge(guess(pass), Duration::ZERO),
            ThrottleDecision::After { wait_ms } => ProofTurn::Judge(guess(pass), Duration::from_millis(wait_ms)),
            ThrottleDecision::Crowded => ProofTurn::Crowded,
            ThrottleDecision::Refused { wait_ms } => ProofTurn::Refused(wait_ms.div_ceil(1000)),
        }
    }

    fn age_ms(&self) -> u64 {
        u64::try_from(self.born_at.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl ProofPermit {
    /// Gives the place back, or counts a failure.
    pub fn settle(mut self, judgement: ProofVerdict) {
        self.judgement = judgement;
    }
}

impl Drop for ProofPermit {
    fn drop(&mut self) {
        let now_ms = self.counts.age_ms();
        self.counts.throttle.lock().settle(self.visitor, self.burst, (self.pass, self.judgement), now_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visitor_is_a_place_or_a_network_of_ipv6_with_a_name() {
        let counts = ProofAdmission::new();
        let visitor = |address: &str, user: &str| counts.visitor(ProofOrigin::Address(address.parse().unwrap()), user);
        assert_eq!(visitor("10.0.0.1", "joe"), visitor("::ffff:10.0.0.1", "joe"));
        assert_ne!(visitor("10.0.0.1", "joe"), visitor("10.0.0.2", "joe"));
        assert_ne!(visitor("10.0.0.1", "joe"), visitor("10.0.0.1", "ann"));
        assert_eq!(visitor("2001:db8::1", "joe"), visitor("2001:db8::ffff:1", "joe"));
        assert_ne!(visitor("2001:db8::1", "joe"), visitor("2001:db8:0:1::1", "joe"));
        let local = |uid: Option<u32>| counts.visitor(ProofOrigin::Local(uid), "joe");
        assert_eq!(local(Some(7)), local(Some(7)));
        let all = [
            local(None),
            local(Some(0)),
            local(Some(7)),
            local(Some(u32::MAX)),
            visitor("0.0.0.7", "joe"),
            visitor("7::", "joe"),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(!all[..at].contains(one), "{one:?} is another place's");
        }
    }

    #[test]
    fn a_guess_that_nobody_settles_was_wrong_and_a_right_one_leaves_nothing() {
        let counts = ProofAdmission::new();
        let joe = counts.visitor(ProofOrigin::Local(None), "joe");
        let judge = |verdict: Option<ProofVerdict>| match counts.take(joe, 2) {
            ProofTurn::Judge(guess, wait) if wait.is_zero() => verdict.map_or((), |verdict| guess.settle(verdict)),
            ProofTurn::Judge(..) | ProofTurn::Crowded | ProofTurn::Refused(_) => panic!("no place"),
        };
        (0..10).for_each(|_| judge(Some(ProofVerdict::Right)));
        (0..10).for_each(|_| judge(Some(ProofVerdict::None)));
        judge(None);
        judge(Some(ProofVerdict::Wrong));
        assert!(matches!(counts.take(joe, 2), ProofTurn::Judge(_, wait) if !wait.is_zero()));
    }

    #[test]
    fn as_many_as_may_be_wrong_are_judged_at_once() {
        let counts = ProofAdmission::new();
        let joe = counts.visitor(ProofOrigin::Local(None), "joe");
        let held: Vec<ProofTurn> = (0..2).map(|_| counts.take(joe, 2)).collect();
        assert!(held.iter().all(|turn| matches!(turn, ProofTurn::Judge(..))));
        assert!(matches!(counts.take(joe, 2), ProofTurn::Crowded));
        for turn in held {
            if let ProofTurn::Judge(guess, _) = turn {
                guess.settle(ProofVerdict::Right);
            }
        }
        assert!(matches!(counts.take(joe, 2), ProofTurn::Judge(_, wait) if wait.is_zero()));
    }
}
