//! The part of one Weir in a group of several.
//!
//! The group is one Weir: its leader decides as a Weir alone does, and stores in the group's state. The others look at the servers as where
//! others promote, and are told what was decided. Writes of all follow the group's epoch, which this crate does not know.

use super::action::{FailoverAction, NodeDownReason};
use super::ballot::NodeId;
use super::durable::DurableState;
use super::event::{Ms, SightCount};
use super::health::RECHECK_MS;
use super::rules::{DeathConsensus, FailoverRules, GroupRole};
use super::{accept, duty};
use crate::failover_state::FailoverState;
use crate::node_state::NodeStanding;
use std::collections::{BTreeMap, BTreeSet};

/// Time in which the others look at a node that this Weir misses, and tell: they hear of it at once, and look after [`RECHECK_MS`].
const OTHERS_LOOK_MS: Ms = 1_000;

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
    duty::write_status(state, rules, out);
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

/// Takes in what others see. A node that somebody misses is looked at soon.
pub(super) fn sighted(state: &mut FailoverState, of_others: &BTreeMap<NodeId, SightCount>, now: Ms) {
    for (id, node) in &mut state.nodes {
        let before = state.sights.get(id).copied().unwrap_or_default();
        if of_others.get(id).is_some_and(|count| count.dead > before.dead) && node.failure.is_none() {
            node.look_soon(now, RECHECK_MS);
        }
    }
    state.sights.clone_from(of_others);
}

/// True if most members that look at this node, itself included, get no answer from it. The primary is the leader's affair.
pub(super) fn agree_on_death(state: &FailoverState, rules: &FailoverRules, id: NodeId) -> bool {
    let SightCount { alive, dead } = state.sights.get(&id).copied().unwrap_or_default();
    let is_asked = match rules.group {
        GroupRole::None => false,
        GroupRole::Leads => true,
        GroupRole::Follows => state.primary() != Some(id),
    };
    rules.consensus == DeathConsensus::Own || !is_asked || 2 * (dead + 1) > alive + dead + 1
}

/// True if this Weir misses the primary, and another one does not: it must not lead. Not before the others had time to look: of a primary that has just
/// died they tell what they saw before.
pub fn alone_misses_primary(state: &FailoverState, now: Ms) -> bool {
    let Some(primary) = state.primary() else { return false };
    let dead_since = state.nodes.get(&primary).and_then(|node| node.dead).map(|(since, _)| since);
    let is_missed = dead_since.is_some_and(|since| now >= since + OTHERS_LOOK_MS);
    is_missed && state.sights.get(&primary).is_some_and(|count| count.alive > count.dead)
}

/// Of a leader: the nodes that all of the group leave out of use.
pub(super) fn note_down(state: &mut FailoverState, rules: &FailoverRules) {
    if rules.group != GroupRole::Leads {
        return;
    }
    let is_down = |(_, node): &(&NodeId, &crate::node_state::NodeState)| matches!(node.standing, NodeStanding::Down { .. });
    if state.nodes.iter().filter(is_down).map(|(id, _)| id).eq(&state.durable.down) {
        return;
    }
    let down: BTreeSet<NodeId> = state.nodes.iter().filter(is_down).map(|(id, _)| *id).collect();
    state.change(|durable| durable.down = down);
}
