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
    /// Links to this node over all pools.
    pub node_open: u32,
    /// `num_init_children * max_pool`.
    pub node_open_max: u32,
    /// Links at rest to this node in other pools.
    pub node_idle_elsewhere: u32,
}

/// The answer to a session that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    Take,
    Open,
    /// Close a link at rest of another pool on this node, then open.
    OpenInPlaceOfAnother,
    Wait,
}

/// Longest waiter first: whoever finds others waiting waits behind them.
pub fn grant(counts: Counts) -> Grant {
    if counts.waiting > 0 {
        Grant::Wait
    } else if counts.idle > 0 {
        Grant::Take
    } else if counts.open >= counts.open_max {
        Grant::Wait
    } else if counts.node_open < counts.node_open_max {
        Grant::Open
    } else if counts.node_idle_elsewhere > 0 {
        Grant::OpenInPlaceOfAnother
    } else {
        Grant::Wait
    }
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
        let free = Counts { open_max: 2, node_open_max: 4, ..Counts::default() };
        for (counts, expected) in [
            (free, Grant::Open),
            (Counts { idle: 1, open: 1, ..free }, Grant::Take),
            (Counts { idle: 1, open: 1, waiting: 1, ..free }, Grant::Wait),
            (Counts { open: 2, ..free }, Grant::Wait),
            (Counts { open: 1, node_open: 4, ..free }, Grant::Wait),
            (Counts { open: 1, node_open: 4, node_idle_elsewhere: 1, ..free }, Grant::OpenInPlaceOfAnother),
        ] {
            assert_eq!(grant(counts), expected, "{counts:?}");
        }
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
