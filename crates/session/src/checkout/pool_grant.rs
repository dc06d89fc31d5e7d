//! Decides on a request for a server connection: take, open, or wait. A pool holds the connections of one user and database on one
//! node.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    pub idle: u32,
    /// At rest, in use or being opened.
    pub open: u32,
    pub waiting: u32,
    pub open_max: u32,
    pub paused: bool,
    /// True while the server refuses logins ([`LoginBackoff::may_ask`]).
    pub held: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolGrant {
    Take,
    /// If the node and all pools together have room.
    Open,
    Wait,
}

/// Worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConnFit {
    /// Needs a check first: rested too long, or doubted.
    Unasked,
    /// Another session drew from sequences on it a moment ago.
    Any,
    /// Needs the session's settings or statements.
    Free,
    Alike,
    /// The session drew on it last.
    Own,
}

/// Sessions that wait go first.
pub fn grant(counts: PoolCounts) -> PoolGrant {
    if counts.paused || counts.waiting > 0 {
        PoolGrant::Wait
    } else if counts.idle > 0 {
        PoolGrant::Take
    } else if counts.open < counts.open_max && !counts.held {
        PoolGrant::Open
    } else {
        PoolGrant::Wait
    }
}

/// Each further refusal doubles the pause.
const HOLD_FIRST_MS: u64 = 50;
/// Bounds the time until a recovered server is noticed.
const HOLD_MAX_MS: u64 = 1000;
/// Time without a refusal after which a full server counts as having room.
const FULL_MEMORY_MS: u64 = 5000;
/// Time after which a pending login blocks no other: its server may hang.
const ASK_MAX_MS: u64 = 5000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginRefusal {
    /// Open connections work on.
    Full,
    Down,
}

/// Backoff of a pool whose server refuses logins: one session at a time tries, at growing intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginBackoff {
    pub why: LoginRefusal,
    times: u32,
    refused_ms: u64,
    until_ms: u64,
    asked_ms: Option<u64>,
}

impl LoginBackoff {
    pub fn refused(before: Option<LoginBackoff>, why: LoginRefusal, now_ms: u64) -> LoginBackoff {
        let times = before.map_or(0, |before| before.times);
        let pause_ms = HOLD_MAX_MS.min(HOLD_FIRST_MS << times.min(16));
        LoginBackoff { why, times: times + 1, refused_ms: now_ms, until_ms: now_ms + pause_ms, asked_ms: None }
    }

    /// Ends the backoff, unless the server was full: then sessions log in one by one for a while.
    pub fn accepted(self, now_ms: u64) -> Option<LoginBackoff> {
        let remembers = self.why == LoginRefusal::Full && now_ms < self.refused_ms + FULL_MEMORY_MS;
        remembers.then_some(LoginBackoff { times: 0, until_ms: now_ms + HOLD_FIRST_MS, asked_ms: None, ..self })
    }

    pub fn may_ask(&self, now_ms: u64) -> bool {
        !self.asks(now_ms) && now_ms >= self.until_ms
    }

    pub fn ask(&mut self, now_ms: u64) {
        self.asked_ms = Some(now_ms);
    }

    pub fn asked(&mut self) {
        self.asked_ms = None;
    }

    fn asks(&self, now_ms: u64) -> bool {
        self.asked_ms.is_some_and(|asked_ms| now_ms < asked_ms + ASK_MAX_MS)
    }

    pub fn is_over(&self, now_ms: u64) -> bool {
        self.times == 0 && now_ms >= self.refused_ms + FULL_MEMORY_MS
    }

    /// Returns a waiter's next look. A waiter that may log in already lacks something else, and is woken for that.
    pub fn look_again_ms(&self, now_ms: u64) -> u64 {
        if self.until_ms > now_ms && !self.asks(now_ms) { self.until_ms } else { now_ms + HOLD_MAX_MS }
    }
}

/// True if a returned connection is one too many: the pool was made smaller, or a reserve is no longer needed.
pub fn is_surplus(counts: PoolCounts) -> bool {
    counts.waiting == 0 && counts.open > counts.open_max
}

pub fn missing(open: u32, wanted: u32, open_max: u32) -> u32 {
    wanted.min(open_max).saturating_sub(open)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetireReason {
    Lifetime,
    Idle,
}

/// In milliseconds; limit 0 means none. `jitter` (0 to 255) spreads the ends of connections opened together over a tenth of their
/// lifetime.
pub fn retire(age_ms: u64, idle_ms: u64, jitter: u8, lifetime_max_ms: u64, idle_max_ms: u64) -> Option<RetireReason> {
    let lifetime = lifetime_max_ms - lifetime_max_ms / 10 * u64::from(jitter) / 255;
    if lifetime_max_ms > 0 && age_ms >= lifetime {
        Some(RetireReason::Lifetime)
    } else if idle_max_ms > 0 && idle_ms >= idle_max_ms {
        Some(RetireReason::Idle)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_granted_by_what_is_free() {
        let free = PoolCounts { open_max: 2, ..PoolCounts::default() };
        for (counts, expected) in [
            (free, PoolGrant::Open),
            (PoolCounts { idle: 1, open: 1, ..free }, PoolGrant::Take),
            (PoolCounts { idle: 1, open: 1, waiting: 1, ..free }, PoolGrant::Wait),
            (PoolCounts { idle: 1, open: 1, paused: true, ..free }, PoolGrant::Wait),
            (PoolCounts { open: 2, ..free }, PoolGrant::Wait),
            (PoolCounts { held: true, ..free }, PoolGrant::Wait),
            (PoolCounts { held: true, idle: 1, open: 1, ..free }, PoolGrant::Take),
        ] {
            assert_eq!(grant(counts), expected, "{counts:?}");
        }
        assert!(is_surplus(PoolCounts { open: 3, ..free }));
        assert!(!is_surplus(PoolCounts { open: 3, waiting: 1, ..free }) && !is_surplus(PoolCounts { open: 2, ..free }));
        assert_eq!([missing(0, 5, 2), missing(1, 2, 9), missing(3, 2, 9)], [2, 1, 0]);
    }

    #[test]
    fn a_server_that_refuses_is_asked_by_one_at_a_time_at_growing_distances() {
        let mut backoff = LoginBackoff::refused(None, LoginRefusal::Down, 1000);
        assert!(!backoff.may_ask(1049) && backoff.may_ask(1050));
        backoff.ask(1050);
        assert!(!backoff.may_ask(6049), "one is on its way");
        assert!(backoff.may_ask(6050), "it has hung for long");
        assert_eq!(backoff.look_again_ms(2000), 3000);
        let again = LoginBackoff::refused(Some(backoff), LoginRefusal::Down, 2000);
        assert!(!again.may_ask(2099) && again.may_ask(2100));
        let last = (0..100).fold(again, |backoff, _| LoginBackoff::refused(Some(backoff), LoginRefusal::Down, 2000));
        assert_eq!(last.look_again_ms(2000), 3000, "the pause has an end");
        assert_eq!(last.accepted(2000), None);
    }

    #[test]
    fn a_full_server_lets_in_one_by_one_until_it_has_refused_nobody_for_a_while() {
        let full = LoginBackoff::refused(None, LoginRefusal::Full, 1000);
        let open = full.accepted(1100).expect("it may be full again");
        assert!(!open.may_ask(1149) && open.may_ask(1150));
        assert_eq!(full.accepted(6000), None);
        assert!(!full.is_over(9000), "nobody got in");
        assert!(!open.is_over(5999) && open.is_over(6000));
        assert_eq!(open.look_again_ms(4000), 5000, "who may ask and lacks something else does not look all the time");
        let mut left = full;
        left.ask(1050);
        left.asked();
        assert!(left.may_ask(1050));
    }

    #[test]
    fn links_retire_by_age_and_rest() {
        assert_eq!(retire(1000, 0, 0, 1000, 0), Some(RetireReason::Lifetime));
        assert_eq!(retire(900, 0, 255, 1000, 0), Some(RetireReason::Lifetime));
        assert_eq!(retire(899, 0, 255, 1000, 0), None);
        assert_eq!(retire(10, 500, 0, 0, 500), Some(RetireReason::Idle));
        assert_eq!(retire(u64::MAX, u64::MAX, 0, 0, 0), None);
    }
}
