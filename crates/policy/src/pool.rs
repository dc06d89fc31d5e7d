//! Who gets a link: hand out, open, make room, or wait. One pool holds the links of one user and database on one node.

/// What is known of a pool when a session asks for a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Links at rest in this pool.
    pub idle: u32,
    /// Links of this pool, at rest, in use or being opened.
    pub open: u32,
    /// Sessions waiting for this pool already.
    pub waiting: u32,
    /// `pool_size`.
    pub open_max: u32,
    /// An administrator paused it.
    pub paused: bool,
}

/// The answer to a session that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    Take,
    /// If the node and all of them together have room for another.
    Open,
    Wait,
}

/// Longest waiter first: whoever finds others waiting waits behind them.
pub fn grant(counts: Counts) -> Grant {
    if counts.paused || counts.waiting > 0 {
        Grant::Wait
    } else if counts.idle > 0 {
        Grant::Take
    } else if counts.open < counts.open_max {
        Grant::Open
    } else {
        Grant::Wait
    }
}

/// Whether a link that comes back is one too many: a reserve nobody needs any more, or a pool made smaller meanwhile.
pub fn is_surplus(counts: Counts) -> bool {
    counts.waiting == 0 && counts.open > counts.open_max
}

/// Links to open so that as many are kept as are wanted.
pub fn missing(open: u32, wanted: u32, open_max: u32) -> u32 {
    wanted.min(open_max).saturating_sub(open)
}

/// Why a link at rest must not be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retire {
    Lifetime,
    Idle,
}

/// Ages in milliseconds; a limit of 0 is none. `jitter` (0 to 255) spreads the ends of links opened together over a tenth of their lifetime.
pub fn retire(age_ms: u64, idle_ms: u64, jitter: u8, lifetime_max_ms: u64, idle_max_ms: u64) -> Option<Retire> {
    let lifetime = lifetime_max_ms - lifetime_max_ms / 10 * u64::from(jitter) / 255;
    if lifetime_max_ms > 0 && age_ms >= lifetime {
        Some(Retire::Lifetime)
    } else if idle_max_ms > 0 && idle_ms >= idle_max_ms {
        Some(Retire::Idle)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_granted_by_what_is_free() {
        let free = Counts { open_max: 2, ..Counts::default() };
        for (counts, expected) in [
            (free, Grant::Open),
            (Counts { idle: 1, open: 1, ..free }, Grant::Take),
            (Counts { idle: 1, open: 1, waiting: 1, ..free }, Grant::Wait),
            (Counts { idle: 1, open: 1, paused: true, ..free }, Grant::Wait),
            (Counts { open: 2, ..free }, Grant::Wait),
        ] {
            assert_eq!(grant(counts), expected, "{counts:?}");
        }
        assert!(is_surplus(Counts { open: 3, ..free }));
        assert!(!is_surplus(Counts { open: 3, waiting: 1, ..free }) && !is_surplus(Counts { open: 2, ..free }));
        assert_eq!([missing(0, 5, 2), missing(1, 2, 9), missing(3, 2, 9)], [2, 1, 0]);
    }

    #[test]
    fn links_retire_by_age_and_rest() {
        assert_eq!(retire(1000, 0, 0, 1000, 0), Some(Retire::Lifetime));
        assert_eq!(retire(900, 0, 255, 1000, 0), Some(Retire::Lifetime));
        assert_eq!(retire(899, 0, 255, 1000, 0), None);
        assert_eq!(retire(10, 500, 0, 0, 500), Some(Retire::Idle));
        assert_eq!(retire(u64::MAX, u64::MAX, 0, 0, 0), None);
    }
}
