//! Servers that were promoted beside the primary.
//!
//! Two servers that are promoted from one log begin the same timeline, and may do so at the same position. pg_rewind compares the numbers of
//! the timelines, finds nothing to do, and a standby made that way goes on in the wrong log without an error (`main` of pg_rewind.c; `StartReplication`
//! of walsender.c compares numbers and positions, too). So such a server is kept in [`DurableState::apart`]: its log counts as another one whatever
//! it says, and only a copy of all files brings it back.
//!
//! A server gets there if it was told to promote itself and another one won ([`DurableState::told`], stored before the order, since whoever
//! decides next may know nothing else of it), if it had the timeline already that a standby begins which never received it
//! ([`DurableState::ahead`], stored before the order, too: a promotion that another Weir goes on with does not show it any more), or if it is seen as a primary of the accepted timeline, or as a standby that took such a log from it.

use std::collections::BTreeMap;

use super::action::{FailoverAction, FailoverReport};
use super::ballot::NodeId;
use super::durable::DurableState;
use super::event::ServerFacts;
use super::operations::FailoverAttempt;
use super::rules::{FailoverMode, FailoverRules, GroupRole, SafetyRule};
use crate::failover_state::FailoverState;
use crate::node_state::{NodeStanding, NodeState};

/// Why such a server is out of use.
pub const APART_WORDS: &str =
    "it was promoted beside the primary, or may have been: only a copy of all files of the primary brings it back, not pg_rewind";

/// Takes in that a node won: others that were told to promote themselves may have done so, or still do. They are given up, too.
///
/// `timeline`: the winner's; `None`: it is not known. `alike`: nodes on a timeline of that number.
pub(super) fn decided(durable: &mut DurableState, winner: NodeId, timeline: Option<u32>, alike: &[NodeId]) {
    let (mut told, ahead) = (std::mem::take(&mut durable.told), std::mem::take(&mut durable.ahead));
    let was_told = told.remove(&winner);
    durable.given_up.extend(&told);
    durable.apart.append(&mut told);
    // They had the winner's number before it was promoted.
    let is_earlier = |(id, had): &(NodeId, u32)| was_told && *id != winner && timeline.is_none_or(|timeline| *had >= timeline);
    durable.apart.extend(ahead.into_iter().filter(is_earlier).map(|(id, _)| id));
    if durable.apart.remove(&winner) {
        // An operator forced it: now those are apart from it.
        durable.apart.extend(alike);
    }
}

/// Nodes whose last facts name the same timeline as a primary that was found.
pub(super) fn alike(state: &FailoverState, found: Option<&ServerFacts>, winner: NodeId) -> Vec<NodeId> {
    let Some(timeline) = found.map(|facts| facts.history.timeline) else { return Vec::new() };
    let is_alike = |node: &NodeState| node.seen.as_ref().is_some_and(|seen| seen.facts.history.timeline == timeline);
    state.nodes.iter().filter(|(id, node)| **id != winner && is_alike(node)).map(|(id, _)| *id).collect()
}

/// Nodes on a later timeline than one that is to promote itself, which never received it and may begin one of its number: the accepted primary's, or one
/// of before.
pub(super) fn ahead(state: &FailoverState, attempt: &FailoverAttempt, chosen: NodeId) -> BTreeMap<NodeId, u32> {
    let timelines = || attempt.facts().map(|(id, facts)| (id, facts.history.timeline));
    let Some((_, last)) = timelines().find(|(id, _)| *id == chosen) else { return BTreeMap::new() };
    let old = state.history().map(|history| (attempt.parent.node, history.timeline));
    timelines().chain(old).filter(|(_, timeline)| *timeline > last).collect()
}

/// Finds servers that were promoted by others than this Weir's orders, while the primary works.
pub(super) fn find(state: &mut FailoverState, rules: &FailoverRules, out: &mut Vec<FailoverAction>) {
    let promotes = matches!(rules.mode, FailoverMode::Builtin | FailoverMode::Command) && rules.group != GroupRole::Follows;
    let Some(epoch) = state.epoch().filter(|_| promotes && rules.keeps(SafetyRule::CopyApart)) else { return };
    let Some(timeline) = state.history().map(|history| history.timeline) else { return };
    if state.attempt.is_some() || state.facts(epoch.node).is_none_or(|facts| !state.is_on_line(facts)) {
        return;
    }
    // Each one that is found may have a standby: a chain is no longer than the nodes.
    for _ in 0..state.nodes.len() {
        let is_apart = |facts: &ServerFacts| {
            let has_number = facts.history.timeline == timeline;
            let is_primary = facts.is_primary() && facts.mark.is_settled(&epoch);
            has_number && (is_primary || facts.upstream().is_some_and(|upstream| state.durable.apart.contains(&upstream)))
        };
        let is_new = |(id, node): &(&NodeId, &NodeState)| {
            **id != epoch.node && !state.durable.apart.contains(id) && node.facts().is_some_and(is_apart)
        };
        let Some(id) = state.nodes.iter().find(is_new).map(|(id, _)| *id) else { return };
        state.change(|durable| durable.apart.insert(id));
        out.push(FailoverAction::Report(FailoverReport::PromotedApart { node: id }));
    }
}

/// The word for an operator who attaches such a server.
pub(super) fn refusal(state: &FailoverState, id: NodeId) -> Option<String> {
    state.durable.apart.contains(&id).then(|| {
        format!(
            "node {id} was promoted beside the primary, and pg_rewind cannot tell their logs apart: copy it anew by pcp_recovery_node; \
             if you have copied it by pg_basebackup, detach it, then attach it"
        )
    })
}

/// An operator who copied such a server by hand says so by detaching it. A recovery that fails detaches, too, and says nothing.
pub(super) fn vouched(state: &mut FailoverState, id: NodeId) {
    if state.nodes.get(&id).is_some_and(|node| node.standing != NodeStanding::Recovering) {
        copied(state, id);
    }
}

/// Takes in that all files of a server were copied from the primary.
pub(super) fn copied(state: &mut FailoverState, id: NodeId) {
    state.change(|durable| durable.apart.remove(&id));
}
