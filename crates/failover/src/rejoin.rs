//! The return of a replaced primary: its agent makes it a standby of the new one.
//!
//! A server that has promised a newer attempt is left alone: it may be the primary of a decision that this Weir missed.

use super::action::{FailoverAction, FailoverReport};
use super::ballot::{Ballot, Mark, NodeId, Vote};
use super::event::{Done, Ms, RecoveryState, WalReceiverState};
use super::history::WalRelation;
use super::operations::{RejoinFallback, RejoinProgress, RejoinWay};
use super::rules::{FailoverMode, FailoverRules, RejoinInitiator, SafetyRule};
use super::{promises, promoted_apart};
use crate::failover_state::{FailoverState, WriteTarget};
use crate::node_state::{NodeStanding, NodeState};

/// A copy of a large server takes hours.
const LIMIT_MS: Ms = 24 * 3_600_000;
const STREAM_MS: Ms = 60_000;
/// Each copy loads the new primary's disk and network.
const COPIES_MAX: u32 = 2;
const PAUSE_MS: Ms = 5_000;
const PAUSE_MS_MAX: Ms = 300_000;

/// Orders one return at a time.
pub(super) fn work(state: &mut FailoverState, rules: &FailoverRules, now: Ms, out: &mut Vec<FailoverAction>) {
    let (Some(epoch), Some(vote)) = (state.epoch(), state.durable.vote) else { return };
    settle(state);
    let is_decided = matches!(state.gate, WriteTarget::Open { node, .. } if node == epoch.node) && state.is_stored();
    let is_quiet = state.attempt.is_none() && promises::newer_promise(state).is_none();
    let is_fine = state.facts(epoch.node).is_some_and(|facts| state.is_on_line(facts));
    let is_one_under_way = state.nodes.values().any(|node| matches!(node.rejoin, RejoinProgress::UnderWay { .. }));
    let counts = is_decided && is_quiet && is_fine || !rules.keeps(SafetyRule::DecidedReturn);
    if rules.mode != FailoverMode::Builtin || !counts || is_one_under_way {
        return;
    }
    let Some((id, PendingRejoin { way, failures, copies })) =
        rules.ids().find_map(|id| Some((id, due(state, rules, &vote, id, now)?)))
    else {
        return;
    };
    let Some(node) = state.nodes.get_mut(&id) else { return };
    let has_stalled = matches!(node.rejoin, RejoinProgress::Brought { .. });
    if has_stalled && copies > COPIES_MAX {
        node.rejoin = RejoinProgress::Vain { ballot: vote.ballot };
        return out.push(FailoverAction::Report(FailoverReport::DoesNotStream { node: id, then: RejoinFallback::Nothing }));
    }
    if has_stalled {
        out.push(FailoverAction::Report(FailoverReport::DoesNotStream { node: id, then: RejoinFallback::Copy }));
    }
    node.rejoin = RejoinProgress::UnderWay { way, failures, copies };
    out.push(FailoverAction::Rejoin { node: id, primary: epoch.node, ballot: vote.ballot, way, limit_ms: LIMIT_MS });
}

/// `copies`: in a row.
struct PendingRejoin {
    way: RejoinWay,
    failures: u32,
    copies: u32,
}

fn due(state: &FailoverState, rules: &FailoverRules, vote: &Vote, id: NodeId, now: Ms) -> Option<PendingRejoin> {
    let node = state.nodes.get(&id)?;
    // A switchover brings its old primary back itself.
    if state.planned.switchover.as_ref().is_some_and(|of| of.from == id) {
        return None;
    }
    let is_ours = id != vote.epoch.node && rules.node(id)?.returns == RejoinInitiator::ByAgent;
    if !is_ours || matches!(node.standing, NodeStanding::Detached | NodeStanding::Recovering) {
        return None;
    }
    let is_given_up = state.durable.given_up.contains(&id);
    let is_apart = state.durable.apart.contains(&id);
    // pg_rewind would find nothing to do.
    let mildest = if is_apart { RejoinWay::Copy } else { RejoinWay::Rewind };
    let has_stalled = matches!(node.rejoin, RejoinProgress::Brought { at, .. } if now >= at + STREAM_MS);
    // A begun copy may have stopped the server.
    let is_half_done = matches!(node.rejoin, RejoinProgress::Failed { way: RejoinWay::Copy, .. }) && !streams(node);
    let (is_lost, first) = match (node.facts(), node.failure) {
        (Some(facts), _) if facts.mark.promised > vote.ballot => (false, RejoinWay::Rewind),
        (Some(facts), _) if facts.is_primary() => (is_given_up, mildest),
        (Some(facts), _) => {
            (has_stalled || is_half_done || state.relation(id, facts) == Some(WalRelation::Diverged), RejoinWay::Copy)
        }
        (None, Some(failure)) => (failure.is_death() && (is_given_up || has_stalled || is_half_done), mildest),
        (None, None) => (false, RejoinWay::Rewind),
    };
    let due = match node.rejoin {
        RejoinProgress::No => PendingRejoin { way: first, failures: 0, copies: 0 },
        RejoinProgress::Vain { ballot } if ballot != vote.ballot => PendingRejoin { way: first, failures: 0, copies: 0 },
        RejoinProgress::Failed { way, failures, copies, again_at } if now >= again_at => {
            PendingRejoin { way: if is_apart { RejoinWay::Copy } else { way }, failures, copies }
        }
        RejoinProgress::Brought { copies, .. } if has_stalled => {
            PendingRejoin { way: RejoinWay::Copy, failures: 0, copies: copies + 1 }
        }
        RejoinProgress::UnderWay { .. }
        | RejoinProgress::Failed { .. }
        | RejoinProgress::Brought { .. }
        | RejoinProgress::Vain { .. } => return None,
    };
    is_lost.then_some(due)
}

/// Forgets complete returns, and failures of nodes that came back by other means.
fn settle(state: &mut FailoverState) {
    for node in state.nodes.values_mut() {
        let is_back = node.is_in_use() && node.facts().is_some_and(|facts| !facts.is_primary()) && streams(node);
        if is_back
            && matches!(node.rejoin, RejoinProgress::Brought { .. } | RejoinProgress::Failed { .. } | RejoinProgress::Vain { .. })
        {
            node.rejoin = RejoinProgress::No;
        }
    }
}

fn streams(node: &NodeState) -> bool {
    node.facts().is_some_and(|facts| matches!(facts.recovery, RecoveryState::Standby { stream: WalReceiverState::On { .. }, .. }))
}

/// True if the node streams and may be attached without an operator. After a restart of Weir the stored decision tells.
pub(super) fn is_back(state: &FailoverState, rules: &FailoverRules, id: NodeId) -> bool {
    let is_replaced = state.epoch().is_some_and(|epoch| epoch.replaced == Some(id));
    let is_ours = rules.node(id).is_some_and(|node| node.returns == RejoinInitiator::ByAgent);
    let was_brought =
        |node: &NodeState| matches!(node.rejoin, RejoinProgress::Brought { .. } | RejoinProgress::Vain { .. }) || is_replaced;
    is_ours && state.nodes.get(&id).is_some_and(|node| was_brought(node) && streams(node))
}

pub(super) fn rejoined(state: &mut FailoverState, id: NodeId, done: Done, now: Ms) {
    let Some(node) = state.nodes.get_mut(&id) else { return };
    let RejoinProgress::UnderWay { way, failures, copies } = node.rejoin else { return };
    node.rejoin = match done {
        // Found to be promoted apart meanwhile: a rewind brings it nowhere.
        Done::Yes if way == RejoinWay::Rewind && state.durable.apart.contains(&id) => RejoinProgress::No,
        Done::Yes => RejoinProgress::Brought { at: now, copies },
        Done::No => {
            let pause_ms = (PAUSE_MS << failures.min(10)).min(PAUSE_MS_MAX);
            RejoinProgress::Failed { way, failures: failures + 1, copies, again_at: now + pause_ms }
        }
    };
    node.look_anew(now);
    if (done, way) == (Done::Yes, RejoinWay::Copy) && state.durable.apart.contains(&id) {
        // Its last facts are those of the files before.
        node.seen = None;
        promoted_apart::copied(state, id);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RejoinFacts {
    pub server: ServerRunState,
    pub files: RewindFitness,
    pub mark: Mark,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerRunState {
    Stopped,
    Primary,
    Standby,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RewindFitness {
    CanBeRewound,
    MustBeCopied,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SoFar {
    Nothing,
    Restored,
    Pointed,
    Started,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejoinStep {
    Stop,
    Rewind,
    Copy,
    Follow,
    Start,
    Rest,
    /// Something else is at work here.
    Leave(&'static str),
}

/// `ballot`: the attempt that replaced the server; `None` where no Weir decides.
pub fn deed(seen: &RejoinFacts, so_far: SoFar, way: RejoinWay, ballot: Option<Ballot>) -> RejoinStep {
    if ballot.is_some_and(|ballot| seen.mark.promised > ballot) {
        return RejoinStep::Leave("it has promised a newer attempt");
    }
    match (so_far, seen.server) {
        (SoFar::Nothing, ServerRunState::Standby) if way == RejoinWay::Rewind => RejoinStep::Leave("it is a standby already"),
        (SoFar::Nothing, ServerRunState::Primary | ServerRunState::Standby) => RejoinStep::Stop,
        (SoFar::Nothing, ServerRunState::Stopped) => match (way, seen.files) {
            (RejoinWay::Rewind, RewindFitness::CanBeRewound) => RejoinStep::Rewind,
            (RejoinWay::Rewind, RewindFitness::MustBeCopied) | (RejoinWay::Copy, _) => RejoinStep::Copy,
        },
        (SoFar::Restored, ServerRunState::Stopped) => RejoinStep::Follow,
        (SoFar::Pointed, ServerRunState::Stopped) => RejoinStep::Start,
        (SoFar::Pointed | SoFar::Started, ServerRunState::Standby) => RejoinStep::Rest,
        (SoFar::Restored, ServerRunState::Primary | ServerRunState::Standby) | (SoFar::Pointed, ServerRunState::Primary) => {
            RejoinStep::Leave("somebody else has started it")
        }
        (SoFar::Started, ServerRunState::Stopped | ServerRunState::Primary) => {
            RejoinStep::Leave("it runs no longer as it was started")
        }
    }
}

#[cfg(test)]
mod tests;
