//! Promises of servers to undecided attempts.

use super::ballot::{Ballot, BallotPurpose, Epoch, NodeId};
use crate::failover_state::FailoverState;

/// Returns the newest promise of a voter; others decide nothing.
pub(super) fn newer_promise(state: &FailoverState) -> Option<Ballot> {
    let epoch = state.epoch()?;
    unsettled(state, &epoch, |id| Some(id) != epoch.replaced, |_| false)
}

/// Returns the newest promise of any node but the primary: a node without a vote may lack its primary.
pub(super) fn newer_promise_of_any(state: &FailoverState) -> Option<Ballot> {
    unsettled(state, &state.epoch()?, |_| true, |_| false)
}

/// True if the attempt replaces no primary, or is an ineffective one of this Weir.
pub(super) fn is_void(state: &FailoverState, ballot: Ballot) -> bool {
    ballot.purpose() == BallotPurpose::Tend || state.promises.void.contains(&ballot)
}

pub(super) fn are_void(state: &FailoverState) -> bool {
    let is_void = |ballot| is_void(state, ballot);
    state.epoch().is_some_and(|epoch| unsettled(state, &epoch, |_| true, is_void).is_none())
}

pub(super) fn unsettled(
    state: &FailoverState,
    epoch: &Epoch,
    counts: impl Fn(NodeId) -> bool,
    is_void: impl Fn(Ballot) -> bool,
) -> Option<Ballot> {
    let others = state.nodes.iter().filter(|(id, _)| **id != epoch.node && counts(**id));
    let marks = others.filter_map(|(_, node)| Some(node.seen.as_ref()?.facts.mark));
    marks.filter(|mark| !mark.is_settled(epoch)).map(|mark| mark.promised).filter(|ballot| !is_void(*ballot)).max()
}
