//! Conditions for an attempt, and the nodes that it may promote.

use std::collections::BTreeSet;

use super::ballot::NodeId;
use super::choose::{AttemptRefusal, PromotionBar, PromotionCandidate};
use super::event::{ReceivedWal, ServerFacts};
use super::history::{TimelineHistory, WalRelation};
use super::rules::{FailoverRules, SafetyRule};
use crate::failover_state::FailoverState;
use crate::node_state::NodeStanding;

/// True if a silent primary may be replaced: no other Weir writes to it, or its writes can no longer be acknowledged.
pub(super) fn may_be_silent(state: &FailoverState, rules: &FailoverRules, cut_off: &BTreeSet<NodeId>) -> bool {
    rules.is_alone() || state.sync(rules).is_covered_by(cut_off) || !rules.keeps(SafetyRule::ProvenDead)
}

/// A hopeless attempt would only leave promises.
pub(super) fn could_be_decided(state: &FailoverState, rules: &FailoverRules) -> Result<(), AttemptRefusal> {
    let Some(epoch) = state.epoch() else { return Err(AttemptRefusal::HistoryUnknown) };
    let voters = rules.electors(&epoch, state.quorum(rules));
    let pledged = voters.iter().filter(|id| state.facts(**id).is_some()).count();
    let needed = rules.needed(voters.len(), state.quorum(rules));
    if pledged < needed { Err(AttemptRefusal::TooFewPledged { pledged, needed, of: voters.len() }) } else { Ok(()) }
}

/// As if all other nodes were cut off.
pub(super) fn could_be_silent(state: &FailoverState, rules: &FailoverRules) -> bool {
    let others: BTreeSet<NodeId> = rules.ids().filter(|id| Some(*id) != state.primary()).collect();
    may_be_silent(state, rules, &others)
}

/// `Err`: the accepted log was never seen.
pub(super) fn candidates<'a>(
    state: &FailoverState,
    rules: &FailoverRules,
    facts: impl Iterator<Item = (NodeId, &'a ServerFacts)>,
) -> Result<Vec<PromotionCandidate>, AttemptRefusal> {
    let Some(history) = state.history() else { return Err(AttemptRefusal::HistoryUnknown) };
    let candidate = |(node, facts): (NodeId, &ServerFacts)| {
        if state.durable.apart.contains(&node) {
            return None;
        }
        let position = match facts.history.relation(facts.position, history) {
            // A primary on the accepted or an older timeline was given up.
            WalRelation::Holds(_) if facts.is_primary() => return None,
            WalRelation::Holds(position) | WalRelation::Left(position) => position,
            WalRelation::Diverged | WalRelation::Foreign => return None,
        };
        let bar = match state.nodes.get(&node)?.standing {
            NodeStanding::Detached | NodeStanding::Recovering => PromotionBar::OutOfUse,
            _ if rules.node(node).is_none_or(|node| node.priority == 0) => PromotionBar::Priority,
            _ if is_torn(facts, history) => PromotionBar::Torn,
            NodeStanding::Waiting | NodeStanding::Up | NodeStanding::Down { .. } | NodeStanding::Quarantined { .. } => {
                PromotionBar::None
            }
        };
        Some(PromotionCandidate { node, position, bar })
    };
    Ok(facts.filter_map(candidate).collect())
}

/// See [`PromotionBar::Torn`]. With unknown files the standby may have one of the accepted timeline.
fn is_torn(standby: &ServerFacts, history: &TimelineHistory) -> bool {
    match standby.received {
        ReceivedWal::All => false,
        ReceivedWal::Less { newest_file } => newest_file.unwrap_or(history.timeline) > standby.history.timeline,
    }
}
