//! The connections to one host: one, or for Redis Cluster one to each master, which together count as one host that is there or not.
//!
//! A map of a cluster counts while every master has confirmed it within `LEASE_MS`, and a new one only `SETTLE` (see `arrival`) after every master
//! of it has told it: by then whoever has an older one knows, or has lost it. For two maps that are each told by all their masters have a
//! master in common, unless all are replaced at once (`CLUSTER FAILOVER TAKEOVER` on each).

use super::{Heard, LEASE_MS, Purpose, Sent, Shelf, Stores, UNSENT_MS, Value};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use weir_policy::cache::Shards;
use weir_wire::store::{Ask, Expect, Told};

/// Time between two questions whether a map still holds.
const CONFIRM_MS: u64 = 250;

/// One connection.
#[derive(Default)]
pub struct Lane {
    /// To be written.
    pub out: RefCell<Vec<u8>>,
    /// What of it is on its way and was not taken by the socket.
    written_bytes: Cell<usize>,
    pub sent: RefCell<VecDeque<Sent>>,
    /// What stamps bear that are made there.
    tag: Vec<u8>,
    /// When it was asked that confirmed the map, and when it was asked last.
    confirmed_ms: Cell<u64>,
    asked_ms: Cell<u64>,
}

impl Lane {
    /// To a master whose stamps bear this; it has just confirmed the map.
    pub fn of_master(tag: Vec<u8>, confirmed_ms: u64) -> Lane {
        Lane { tag, confirmed_ms: Cell::new(confirmed_ms), asked_ms: Cell::new(confirmed_ms), ..Lane::default() }
    }

    /// What is to be written is on its way from now on.
    pub fn stamp(&self, now_ms: u64) {
        let mut sent = self.sent.borrow_mut();
        sent.iter_mut().rev().take_while(|sent| sent.at_ms == UNSENT_MS).for_each(|sent| sent.at_ms = now_ms);
    }

    /// So many bytes are on their way that the socket has not taken yet.
    pub fn note_written(&self, bytes: usize) {
        self.written_bytes.set(bytes);
    }

    /// What waits to be taken by the socket.
    pub fn unsent_bytes(&self) -> usize {
        self.out.borrow().len() + self.written_bytes.get()
    }

    /// A stamp as it lies there.
    pub fn tagged(&self, stamp: &[u8]) -> Vec<u8> {
        [&self.tag, stamp].concat()
    }

    /// What lies there as a stamp; one made elsewhere is none.
    pub fn untagged(&self, value: Value) -> Value {
        let bytes = value.bytes.strip_prefix(self.tag.as_slice()).unwrap_or_default().to_vec();
        Value { bytes, ..value }
    }
}

impl Shelf {
    /// The connections there are now.
    pub fn lanes(&self) -> Rc<[Lane]> {
        self.lanes.borrow().clone()
    }

    /// The number of the connection by which a key is reached.
    pub fn lane_of(&self, key: &[u8]) -> usize {
        self.shards.borrow().as_ref().map_or(0, |shards| shards.master_of(key))
    }

    /// Whether keys lie at several masters, so that each is asked for alone.
    pub fn is_cluster(&self) -> bool {
        self.shards.borrow().is_some()
    }

    /// Whether the map is known to hold.
    pub fn is_sure(&self, now_ms: u64) -> bool {
        !self.is_cluster() || self.lanes.borrow().iter().all(|lane| now_ms < lane.confirmed_ms.get() + LEASE_MS)
    }
}

impl Stores {
    /// New connections are there: the greeting goes first. `shards`: to the masters of a cluster, in order.
    pub fn begin(&self, at: usize, lanes: Vec<Lane>, shards: Option<Shards>) {
        let shelf = &self.shelves[at];
        *shelf.lanes.borrow_mut() = lanes.into();
        *shelf.shards.borrow_mut() = shards;
        self.greet(at);
    }

    /// Asks whether the map still holds, if it is time.
    pub(super) fn confirm(&self, at: usize) {
        let shelf = &self.shelves[at];
        if !shelf.is_cluster() || !shelf.is_up.get() {
            return;
        }
        let now_ms = self.now_ms.get();
        for (number, lane) in shelf.lanes().iter().enumerate() {
            if now_ms >= lane.asked_ms.get() + CONFIRM_MS {
                lane.asked_ms.set(now_ms);
                self.say_to(at, number, Ask::Nodes, Expect::Text, Purpose::Map);
            }
        }
    }

    /// What a master says of the map.
    pub(super) fn confirmed(&self, at: usize, lane: usize, asked_ms: u64, told: &Told) -> Heard {
        let shelf = &self.shelves[at];
        let text = if let Told::Text(text) = told { text.as_str() } else { "" };
        match (Shards::read(text), shelf.shards.borrow().as_ref()) {
            (Err(cause), _) => Heard::Refused(cause),
            (Ok(now), Some(before)) if now.agrees(before) => {
                if let Some(lane) = shelf.lanes.borrow().get(lane) {
                    lane.confirmed_ms.set(asked_ms);
                }
                Heard::Fine
            }
            (Ok(_), _) => Heard::Moved,
        }
    }
}
