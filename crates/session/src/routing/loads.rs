//! How nodes answer the reads of one worker, and their shares of the next ones. No lock: each worker has its own. Decisions are
//! `session::routing::pick`'s.

use crate::metrics::NODES_MAX;
use crate::routing::pick::{NodeLoad, shares};
use std::cell::{Cell, Ref, RefCell};
use weir_failover::cluster::ClusterView;

/// Time after which the shares are worked out anew.
const PERIOD_MS: u64 = 4;
/// They were never worked out, or for another view.
const NEVER: u64 = u64::MAX;

/// See the module.
pub struct NodeLoads {
    by_node: RefCell<Vec<NodeLoad>>,
    shares: RefCell<Vec<f64>>,
    /// When they were worked out.
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

    /// A read is on its way to a node.
    #[inline]
    pub fn begin(&self, node: u16) {
        self.change(node, |load| load.in_flight += 1);
    }

    /// A node has answered a read.
    #[inline]
    pub fn note(&self, node: u16, us: u64) {
        self.change(node, |load| load.note(us));
    }

    /// A read is no longer on its way, with any result.
    #[inline]
    pub fn end(&self, node: u16) {
        self.change(node, |load| load.in_flight = load.in_flight.saturating_sub(1));
    }

    /// The nodes' shares, by place in the view.
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

    /// There is another view.
    pub fn refresh(&self) {
        self.at_ms.set(NEVER);
    }
}
