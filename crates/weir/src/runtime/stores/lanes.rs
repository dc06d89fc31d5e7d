//! Connections to one host: one, or for Redis Cluster one to each master. Together they count as one host.

use super::{SentStoreRequest, StoreEndpoint, UNSENT_MS, WorkerStores};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use weir_cache::ShardMap;

#[derive(Default)]
pub struct StoreLane {
    pub(crate) out: RefCell<Vec<u8>>,
    /// Bytes that the socket has not taken.
    written_bytes: Cell<usize>,
    pub(crate) sent: RefCell<VecDeque<SentStoreRequest>>,
}

impl StoreLane {
    /// Sets the time of requests sent now.
    pub fn stamp(&self, now_ms: u64) {
        let mut sent = self.sent.borrow_mut();
        sent.iter_mut().rev().take_while(|sent| sent.at_ms == UNSENT_MS).for_each(|sent| sent.at_ms = now_ms);
    }

    pub fn note_written(&self, bytes: usize) {
        self.written_bytes.set(bytes);
    }

    pub fn unsent_bytes(&self) -> usize {
        self.out.borrow().len() + self.written_bytes.get()
    }
}

impl StoreEndpoint {
    pub fn lanes(&self) -> Rc<[StoreLane]> {
        self.lanes.borrow().clone()
    }

    /// Index of the connection for a key.
    pub fn lane_of(&self, key: &[u8]) -> usize {
        self.shards.borrow().as_ref().map_or(0, |shards| shards.master_of(key))
    }

    /// True if keys are at several masters.
    pub fn is_cluster(&self) -> bool {
        self.shards.borrow().is_some()
    }
}

impl WorkerStores {
    /// Begins new connections with the greeting. `shards`: masters of a cluster, in order.
    pub fn begin(&self, at: usize, shards: Option<ShardMap>) {
        let shelf = &self.shelves[at];
        let count = shards.as_ref().map_or(1, |shards| shards.masters.len());
        *shelf.lanes.borrow_mut() = (0..count).map(|_| StoreLane::default()).collect();
        *shelf.shards.borrow_mut() = shards;
        self.greet(at);
    }
}
