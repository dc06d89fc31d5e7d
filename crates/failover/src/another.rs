//! Another cluster at the address of a node: `pg_upgrade`, a restored dump, blue and green servers.
//!
//! The address may be wrong, so it is used only if an operator names the node as the primary; if a reload changes the accepted primary's
//! address and no server of the old cluster answers; or by `backend_flag`.

use super::action::{FailoverAction, FailoverReport, NodeDownReason};
use super::ballot::NodeId;
use super::choose::AttemptRefusal;
use super::durable::DurableState;
use super::event::Ms;
use super::history::WalRelation;
use super::rules::{FailoverMode, FailoverRules, OtherPromoters};
use super::{accept, attempt, duty};
use crate::failover_state::{self, FailoverState, PrimaryLog};
use crate::node_state::{NodeStanding, NodeState};

pub(super) fn note(state: &mut FailoverState, rules: &FailoverRules, id: NodeId, now: Ms, out: &mut Vec<FailoverAction>) {
    let Some(facts) = state.facts(id) else { return };
    let (system, is_primary) = (facts.history.system, facts.is_primary());
    let is_named = rules.always_primary() == Some(id) || is_named_by_reload(state, id);
    if is_primary && is_named {
        return accept(state, rules, id, now, out);
    }
    let may_put_down = !failover_state::is_kept(rules, id);
    let Some(node) = state.nodes.get_mut(&id) else { return };
    let is_new = node.told_foreign != Some(system);
    node.told_foreign = Some(system);
    match node.standing {
        NodeStanding::Waiting | NodeStanding::Up | NodeStanding::Quarantined { .. } if may_put_down => {
            node.standing = NodeStanding::Down { why: NodeDownReason::Foreign, since: now };
            out.push(FailoverAction::Report(FailoverReport::Degenerated { node: id, why: NodeDownReason::Foreign }));
        }
        // Commands ran when the node was lost.
        NodeStanding::Down { why, since } if why != NodeDownReason::Foreign => {
            node.standing = NodeStanding::Down { why: NodeDownReason::Foreign, since }
        }
        NodeStanding::Waiting
        | NodeStanding::Up
        | NodeStanding::Quarantined { .. }
        | NodeStanding::Down { .. }
        | NodeStanding::Detached
        | NodeStanding::Recovering => {}
    }
    if is_new {
        let known = state.history().map_or(0, |history| history.system);
        out.push(FailoverAction::Report(FailoverReport::Foreign { node: id, system, known }));
    }
}

/// Attaches a node whose server is of the accepted cluster again.
pub(super) fn over(state: &mut FailoverState, rules: &FailoverRules, id: NodeId, out: &mut Vec<FailoverAction>) {
    let Some(node) = state.nodes.get_mut(&id) else { return };
    node.told_foreign = None;
    let was_foreign = matches!(node.standing, NodeStanding::Down { why: NodeDownReason::Foreign, .. });
    let Some(facts) = node.facts().cloned().filter(|_| was_foreign) else { return };
    let follows = !facts.is_primary() && matches!(state.relation(id, &facts), Some(WalRelation::Holds(_)));
    if follows || (state.primary() == Some(id) && state.is_on_line(&facts)) {
        duty::attach(state, rules, id, out);
    }
}

/// True if a reload changed the primary's address and no server of the old cluster answers.
fn is_named_by_reload(state: &FailoverState, id: NodeId) -> bool {
    let is_of_before = |node: &NodeState| {
        let relation = node.facts().and_then(|facts| state.told_relation(facts));
        !matches!(relation, None | Some(WalRelation::Foreign))
    };
    let is_renamed = state.nodes.get(&id).is_some_and(|node| node.renamed);
    is_renamed && state.primary() == Some(id) && !state.nodes.values().any(is_of_before)
}

/// True if this node's log is another cluster's, or of a server restored in its place.
pub(super) fn is_at(state: &FailoverState, rules: &FailoverRules, id: NodeId) -> bool {
    let relation = state.facts(id).filter(|facts| facts.is_primary()).and_then(|facts| state.told_relation(facts));
    match relation {
        Some(WalRelation::Foreign) => true,
        Some(WalRelation::Diverged) => {
            state.primary() == Some(id) && (rules.mode != FailoverMode::Builtin || state.nodes.len() == 1)
        }
        Some(WalRelation::Holds(_) | WalRelation::Left(_)) | None => false,
    }
}

/// Begins again with this primary; knowledge of the old cluster is dropped.
pub(super) fn accept(state: &mut FailoverState, rules: &FailoverRules, id: NodeId, now: Ms, out: &mut Vec<FailoverAction>) {
    let Some(facts) = state.facts(id) else { return };
    let system = facts.history.system;
    attempt::end(state, AttemptRefusal::Outrun, now, out);
    state.change(|durable| {
        let DurableState { weir, term, detached, .. } = std::mem::take(durable);
        *durable = DurableState { weir, term, detached, ..DurableState::default() };
        durable.detached.remove(&id);
    });
    state.line = PrimaryLog { check_from: now, ..PrimaryLog::default() };
    (state.promises.since, state.promises.gone_since, state.stuck) = (None, None, None);
    for (other, node) in &mut state.nodes {
        node.renamed = false;
        node.told_foreign = None;
        node.look_anew(now);
        let is_freed = matches!(node.standing, NodeStanding::Down { why: NodeDownReason::Foreign, .. });
        if is_freed || (*other == id && !node.is_in_use()) {
            node.standing = NodeStanding::Waiting;
        }
    }
    out.push(FailoverAction::Report(FailoverReport::Begun { node: id, system }));
    // With other Weirs each finds the primary that standbys follow, as at its first start.
    if rules.mode != FailoverMode::Builtin || rules.company != OtherPromoters::Possible {
        state.planned.named = Some(id);
        accept::find(state, rules, now, out);
    }
}
