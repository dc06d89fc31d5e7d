//! The rolling upgrade, as the console and PCP begin it: all nodes as they are now, for `failover::rolling_restart`.

use crate::runtime::shared::SharedState;
use weir_failover::rolling_restart::{self, RestartMember, RollingRestart};

/// Decides what is to be done. Whoever asked does it, one step after the other, so that the walk ends when that one is gone.
pub fn plan(shared: &SharedState) -> RollingRestart {
    let config = shared.config.load();
    let configured = |id: u16| config.nodes.iter().find(|node| node.id == id);
    let member = |node: &weir_failover::NodeFailover| RestartMember {
        id: node.id,
        standing: node.standing,
        priority: configured(node.id).map_or(0, |node| node.promote_priority),
        has_agent: configured(node.id).is_some_and(|node| node.agent().is_some()),
    };
    let members: Vec<RestartMember> = shared.cluster.failover.load().nodes.iter().map(member).collect();
    rolling_restart::plan(shared.cluster.view.load().primary_id(), &members)
}
