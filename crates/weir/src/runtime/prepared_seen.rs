//! Prepared parts of transactions on several shards, as the control thread saw them last: `SHOW pool_prepared`.

use parking_lot::Mutex;
use std::time::SystemTime;
use weir_failover::prepared_name::PreparedName;

/// A part on a shard above 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedSight {
    /// The shard's node.
    pub node: u16,
    pub database: String,
    pub name: PreparedName,
    pub prepared_at: SystemTime,
    /// Why the part stays; empty while its session, or Weir, ends it.
    pub problem: String,
}

#[derive(Default)]
pub struct PreparedSeen(Mutex<Vec<PreparedSight>>);

impl PreparedSeen {
    /// Replaces all by those of a new look.
    pub fn publish(&self, seen: Vec<PreparedSight>) {
        *self.0.lock() = seen;
    }

    pub fn all(&self) -> Vec<PreparedSight> {
        self.0.lock().clone()
    }
}
