//! The right of this process to write, where several proxies work as one group.
//!
//! Without a group nothing here is ever over. Times are microseconds of CLOCK_BOOTTIME.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The group's thread writes, workers read.
#[derive(Debug, Default)]
pub struct WriteLease {
    is_needed: AtomicBool,
    until_us: AtomicU64,
    /// Epoch, and the node's number and one in the lower bits; 0: no node.
    writes: AtomicU64,
}

const NODE_BITS: u32 = 17;

impl WriteLease {
    /// From here on no success of a write is passed on without a lease.
    pub fn need(&self) {
        self.is_needed.store(true, Ordering::SeqCst);
    }

    #[inline]
    pub fn is_needed(&self) -> bool {
        self.is_needed.load(Ordering::Relaxed)
    }

    /// `writes`: epoch and node.
    pub fn grant(&self, until_us: u64, writes: Option<(u64, u16)>) {
        let writes = writes.map_or(0, |(epoch, node)| epoch << NODE_BITS | (u64::from(node) + 1));
        if self.writes.load(Ordering::Relaxed) != writes {
            // Nobody sees the former right with the new end.
            self.until_us.store(0, Ordering::SeqCst);
            self.writes.store(writes, Ordering::SeqCst);
        }
        self.until_us.store(until_us, Ordering::SeqCst);
    }

    /// End of what the group lets this process rely on; 0 without a lease.
    #[inline]
    pub fn any_until_us(&self) -> u64 {
        self.until_us.load(Ordering::SeqCst)
    }

    /// End of the right to write to this node; 0 without one.
    #[inline]
    pub fn until_us(&self, node: u16) -> u64 {
        let until_us = self.until_us.load(Ordering::SeqCst);
        let writes = self.writes.load(Ordering::SeqCst);
        if writes & ((1 << NODE_BITS) - 1) == u64::from(node) + 1 { until_us } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_for_one_node() {
        let lease = WriteLease::default();
        assert!(!lease.is_needed() && lease.until_us(0) == 0);
        lease.grant(700, Some((3, 0)));
        assert_eq!((lease.until_us(0), lease.until_us(1)), (700, 0));
        lease.grant(900, Some((4, u16::MAX)));
        assert_eq!((lease.until_us(0), lease.until_us(u16::MAX)), (0, 900));
        lease.grant(950, None);
        assert_eq!((lease.until_us(0), lease.until_us(u16::MAX)), (0, 0));
    }
}
