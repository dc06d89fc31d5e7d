//! Load of the nodes by one worker's reads, and their shares of the next reads. No lock: each worker has its own.

use crate::metrics::NODES_MAX;
use crate::routing::pick::{NodeLoad, shares};
use std::cell::{Cell, Ref, RefCell};
use weir_failover::cluster::ClusterView;

/// Age at which the shares are worked out again.
const PERIOD_MS: u64 = 4;
/// Mark of shares never worked out, or for another view.
const NEVER: u64 = u64::MAX;

pub struct NodeLoads {
    by_node: RefCell<Vec<NodeLoad>>,
    shares: RefCell<Vec<f64>>,
    at_ms: Cell<u64>,
}

impl Default for NodeLoads {
    fn default() -> NodeLoads {
        NodeLoads {
            by_node: RefCell::new(vec![NodeLoad::default(); NODES_MAX]),
            shares: RefCell::default(),
            at_ms: Cell::new(NEVER),
        }
    }
}

impl NodeLoads {
    fn change(&self, node: u16, change: impl Fn(&mut NodeLoad)) {
        if let Some(load) = self.by_node.borrow_mut().get_mut(usize::from(node)) {
            change(load);
        }
    }

    #[inline]
    pub fn begin(&self, node: u16) {
        self.change(node, |load| load.in_flight += 1);
    }

    #[inline]
    pub fn note(&self, node: u16, us: u64) {
        self.change(node, |load| load.note(us));
    }

    #[inline]
    pub fn end(&self, node: u16) {
        self.change(node, |load| load.in_flight = load.in_flight.saturating_sub(1));
    }

    #[inline]
    pub fn shares(&self, view: &ClusterView, now_ms: u64) -> Ref<'_, Vec<f64>> {
        let at_ms = self.at_ms.get();
        if at_ms == NEVER || now_ms >= at_ms + PERIOD_MS {
            self.work_out(view, now_ms);
        }
        self.shares.borrow()
    }

    fn work_out(&self, view: &ClusterView, now_ms: u64) {
        let by_node = self.by_node.borrow();
        let load = |at: usize| by_node.get(usize::from(view.nodes[at].id)).copied().unwrap_or_default();
        shares(view, load, &mut self.shares.borrow_mut());
        self.at_ms.set(now_ms);
    }

    pub fn refresh(&self) {
        self.at_ms.set(NEVER);
    }
}
