//! The part of one Weir in a group of several.
//!
//! The group is one Weir: its leader decides as a Weir alone does, and stores in the group's state. The others look at the servers as where
//! others promote, and are told what was decided. Writes of all follow the group's epoch, which this crate does not know.

use super::accept;
use super::action::{FailoverAction, NodeDownReason};
use super::ballot::NodeId;
use super::durable::DurableState;
use super::event::Ms;
use super::rules::{FailoverRules, GroupRole};
use crate::failover_state::FailoverState;
use crate::node_state::NodeStanding;
use std::collections::BTreeSet;

/// Takes over what the leader stored. The leader itself knows it already.
pub(super) fn told(
    state: &mut FailoverState,
    rules: &FailoverRules,
    durable: &DurableState,
    now: Ms,
    out: &mut Vec<FailoverAction>,
) {
    if rules.group != GroupRole::Follows {
        return;
    }
    for (id, node) in &mut state.nodes {
        let was_told =
            matches!(node.standing, NodeStanding::Detached | NodeStanding::Down { why: NodeDownReason::StatusFile, .. });
        if durable.detached.contains(id) {
            node.standing = NodeStanding::Detached;
        } else if durable.down.contains(id) {
            if !was_told || node.standing == NodeStanding::Detached {
                node.standing = NodeStanding::Down { why: NodeDownReason::StatusFile, since: now };
            }
        } else if was_told {
            node.standing = NodeStanding::Waiting;
        }
    }
    let epoch = durable.epoch.filter(|epoch| state.epoch() != Some(*epoch));
    state.change(|own| {
        let (epoch, vote) = (own.epoch, own.vote);
        *own = DurableState { epoch, vote, ..durable.clone() };
    });
    if let Some(epoch) = epoch {
        accept::adopt(state, rules, epoch, durable.vote, now, out);
        state.change(|own| own.history = durable.history.clone().or(own.history.take()));
    }
}

/// Of a leader: the nodes that all of the group leave out of use.
pub(super) fn note_down(state: &mut FailoverState, rules: &FailoverRules) {
    if rules.group != GroupRole::Leads {
        return;
    }
    let is_down = |(_, node): &(&NodeId, &crate::node_state::NodeState)| matches!(node.standing, NodeStanding::Down { .. });
    let down: BTreeSet<NodeId> = state.nodes.iter().filter(is_down).map(|(id, _)| *id).collect();
    state.change(|durable| durable.down = down);
}
