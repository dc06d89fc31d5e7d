//! The right of this process to write, where several proxies work as one group.
//!
//! Without a group nothing here is ever over. Times are microseconds of CLOCK_BOOTTIME.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The group's thread writes, workers read.
#[derive(Debug, Default)]
pub struct WriteLease {
    is_needed: AtomicBool,
    until_us: AtomicU64,
    /// The node's number and one; 0: no node.
    place: AtomicU32,
    /// Epoch of the place. Read by the group's thread only.
    epoch: AtomicU64,
}

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
        let (epoch, place) = writes.map_or((0, 0), |(epoch, node)| (epoch, u32::from(node) + 1));
        if (self.epoch.load(Ordering::Relaxed), self.place.load(Ordering::Relaxed)) != (epoch, place) {
            // Nobody sees the former right with the new end.
            self.until_us.store(0, Ordering::SeqCst);
            self.epoch.store(epoch, Ordering::Relaxed);
            self.place.store(place, Ordering::SeqCst);
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
        if self.place.load(Ordering::SeqCst) == u32::from(node) + 1 { until_us } else { 0 }
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
