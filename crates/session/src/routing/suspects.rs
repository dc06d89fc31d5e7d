//! Nodes that do not answer: reads avoid them.
//!
//! A timed out login marks the node before the check of roles does, so that one session pays for it and not each in turn.

use crate::causal::standbys::NodeSet;
use crate::metrics::NODES_MAX;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_failover::cluster::ClusterView;

/// One mark per node, set by a session that waited in vain, removed by the check of roles.
pub struct SuspectNodes {
    /// True once any mark was set: until then one load is enough.
    has_been: AtomicBool,
    marks: [AtomicBool; NODES_MAX],
}

impl Default for SuspectNodes {
    fn default() -> SuspectNodes {
        SuspectNodes { has_been: AtomicBool::new(false), marks: [const { AtomicBool::new(false) }; NODES_MAX] }
    }
}

impl SuspectNodes {
    fn mark(&self, node: u16) -> &AtomicBool {
        &self.marks[usize::from(node) % NODES_MAX]
    }

    pub fn suspect(&self, node: u16) {
        self.mark(node).store(true, Ordering::Relaxed);
        self.has_been.store(true, Ordering::Relaxed);
    }

    pub fn acquit(&self, node: u16) {
        self.mark(node).store(false, Ordering::Relaxed);
    }

    /// Returns `nodes` (places in the view) without the suspects.
    #[inline]
    pub fn without_suspects(&self, view: &ClusterView, nodes: NodeSet) -> NodeSet {
        if !self.has_been.load(Ordering::Relaxed) {
            return nodes;
        }
        let mut spared = NodeSet::NONE;
        for (at, node) in view.nodes.iter().enumerate() {
            if nodes.has(at) && !self.mark(node.id).load(Ordering::Relaxed) {
                spared.add(at);
            }
        }
        spared
    }
}
