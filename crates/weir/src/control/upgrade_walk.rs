//! The rolling upgrade for console and PCP.

use crate::runtime::shared::SharedState;
use weir_failover::rolling_restart::{self, RestartMember, RollingRestart};

/// Returns the plan. The requester executes the steps, so that the upgrade ends if it disconnects.
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
