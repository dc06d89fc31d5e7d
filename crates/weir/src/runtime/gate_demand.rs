//! How many phases of the gate between commits on several shards and reads of several shards wait for its lock, in all workers of the process.

use std::sync::atomic::{AtomicU32, Ordering};

/// By side: commits, reads.
#[derive(Debug, Default)]
pub struct GateDemand([AtomicU32; 2]);

impl GateDemand {
    pub fn begin(&self, side: usize) {
        self.0[side].fetch_add(1, Ordering::Relaxed);
    }

    pub fn end(&self, side: usize) {
        self.0[side].fetch_sub(1, Ordering::Relaxed);
    }

    pub fn waits(&self, side: usize) -> bool {
        self.0[side].load(Ordering::Relaxed) > 0
    }
}
