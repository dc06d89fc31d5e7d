//! The connections to one host: one, or for Redis Cluster one to each master, which together count as one host that is there or not.

use super::{SentStoreRequest, StoreEndpoint, UNSENT_MS, WorkerStores};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use weir_cache::ShardMap;

/// One connection.
#[derive(Default)]
pub struct StoreLane {
    /// To be written.
    pub(crate) out: RefCell<Vec<u8>>,
    /// Bytes on their way that the socket did not take yet.
    written_bytes: Cell<usize>,
    pub(crate) sent: RefCell<VecDeque<SentStoreRequest>>,
}

impl StoreLane {
    /// The requests that wait are on their way from now on.
    pub fn stamp(&self, now_ms: u64) {
        let mut sent = self.sent.borrow_mut();
        sent.iter_mut().rev().take_while(|sent| sent.at_ms == UNSENT_MS).for_each(|sent| sent.at_ms = now_ms);
    }

    /// So many bytes are on their way that the socket has not taken yet.
    pub fn note_written(&self, bytes: usize) {
        self.written_bytes.set(bytes);
    }

    /// Bytes that the socket has still to take.
    pub fn unsent_bytes(&self) -> usize {
        self.out.borrow().len() + self.written_bytes.get()
    }
}

impl StoreEndpoint {
    /// The connections there are now.
    pub fn lanes(&self) -> Rc<[StoreLane]> {
        self.lanes.borrow().clone()
    }

    /// The number of the connection by which a key is reached.
    pub fn lane_of(&self, key: &[u8]) -> usize {
        self.shards.borrow().as_ref().map_or(0, |shards| shards.master_of(key))
    }

    /// True if keys lie at several masters, so that each is asked for alone.
    pub fn is_cluster(&self) -> bool {
        self.shards.borrow().is_some()
    }
}

impl WorkerStores {
    /// New connections are there: the greeting goes first. `shards`: to the masters of a cluster, in order.
    pub fn begin(&self, at: usize, shards: Option<ShardMap>) {
        let shelf = &self.shelves[at];
        let count = shards.as_ref().map_or(1, |shards| shards.masters.len());
        *shelf.lanes.borrow_mut() = (0..count).map(|_| StoreLane::default()).collect();
        *shelf.shards.borrow_mut() = shards;
        self.greet(at);
    }
}
