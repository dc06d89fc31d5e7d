//! The conditions for an attempt to begin, and the nodes that it may promote.

use std::collections::BTreeSet;

use super::ballot::NodeId;
use super::choose::{AttemptRefusal, Bar, Candidate};
use super::event::{Facts, Received};
use super::history::{Relation, TimelineHistory};
use super::rules::{FailoverRules, SafetyRule};
use crate::failover_state::FailoverState;
use crate::node_state::Standing;

/// True if a primary that says nothing may be replaced: nobody else writes to it, or nothing is acknowledged there any more.
pub(super) fn may_be_silent(state: &FailoverState, rules: &FailoverRules, cut_off: &BTreeSet<NodeId>) -> bool {
    rules.is_alone() || state.sync(rules).is_covered_by(cut_off) || !rules.keeps(SafetyRule::ProvenDead)
}

/// True if those that answered their last look are enough for an attempt: else none is begun, since it leaves promises behind.
pub(super) fn could_be_decided(state: &FailoverState, rules: &FailoverRules) -> Result<(), AttemptRefusal> {
    let Some(epoch) = state.epoch() else { return Err(AttemptRefusal::HistoryUnknown) };
    let voters = rules.electors(&epoch, state.quorum(rules));
    let pledged = voters.iter().filter(|id| state.facts(**id).is_some()).count();
    let needed = rules.needed(voters.len(), state.quorum(rules));
    if pledged < needed { Err(AttemptRefusal::TooFewPledged { pledged, needed, of: voters.len() }) } else { Ok(()) }
}

/// The same before anybody was cut off.
pub(super) fn could_be_silent(state: &FailoverState, rules: &FailoverRules) -> bool {
    let others: BTreeSet<NodeId> = rules.ids().filter(|id| Some(*id) != state.primary()).collect();
    may_be_silent(state, rules, &others)
}

/// Those that pledged, as candidates. `Err`: the log to compare with was never seen.
pub(super) fn candidates<'a>(
    state: &FailoverState,
    rules: &FailoverRules,
    facts: impl Iterator<Item = (NodeId, &'a Facts)>,
) -> Result<Vec<Candidate>, AttemptRefusal> {
    let Some(history) = state.history() else { return Err(AttemptRefusal::HistoryUnknown) };
    let candidate = |(node, facts): (NodeId, &Facts)| {
        let position = match facts.history.relation(facts.position, history) {
            // A primary of the accepted timeline or of an older one is one that was given up.
            Relation::Holds(_) if facts.is_primary() => return None,
            Relation::Holds(position) | Relation::Left(position) => position,
            Relation::Diverged | Relation::Foreign => return None,
        };
        let bar = match state.nodes.get(&node)?.standing {
            Standing::Detached | Standing::Recovering => Bar::OutOfUse,
            _ if rules.node(node).is_none_or(|node| node.priority == 0) => Bar::Priority,
            _ if is_torn(facts, history) => Bar::Torn,
            Standing::Waiting | Standing::Up | Standing::Down { .. } | Standing::Quarantined { .. } => Bar::None,
        };
        Some(Candidate { node, position, bar })
    };
    Ok(facts.filter_map(candidate).collect())
}

/// See [`Bar::Torn`]. `history`: the accepted one. Where the files are not known, the standby may have one of the accepted timeline.
fn is_torn(standby: &Facts, history: &TimelineHistory) -> bool {
    match standby.received {
        Received::All => false,
        Received::Less { newest_file } => newest_file.unwrap_or(history.timeline) > standby.history.timeline,
    }
}
