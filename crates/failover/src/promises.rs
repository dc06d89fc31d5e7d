//! Promises of servers to undecided attempts.

use super::ballot::{Ballot, BallotPurpose, Epoch, Mark, NodeId, Vote};
use super::rules::{FailoverRules, QuorumSize};
use crate::failover_state::FailoverState;

/// Returns the newest promise of a voter; others decide nothing.
pub(super) fn newer_promise(state: &FailoverState) -> Option<Ballot> {
    let epoch = state.epoch()?;
    unsettled_marks(state, &epoch, |id| Some(id) != epoch.replaced).map(|mark| mark.promised).max()
}

/// Returns the newest promise of any node but the primary: a node without a vote may lack its primary.
pub(super) fn newer_promise_of_any(state: &FailoverState) -> Option<Ballot> {
    unsettled_marks(state, &state.epoch()?, |_| true).map(|mark| mark.promised).max()
}

/// True if the attempt replaces no primary, or is an ineffective one of this Weir.
pub(super) fn is_void(state: &FailoverState, ballot: Ballot) -> bool {
    ballot.purpose() == BallotPurpose::Tend || state.promises.void.contains(&ballot)
}

pub(super) fn are_void(state: &FailoverState, rules: &FailoverRules) -> bool {
    let is_void = |ballot| is_void(state, ballot);
    state.epoch().is_some_and(|epoch| unsettled(state, rules, &epoch, |_| true, is_void).is_none())
}

/// Returns the newest ballot by which another primary may be decided. A void promise hides the one that it took the place of, but no vote for another
/// primary: that one may be decided already.
pub(super) fn unsettled(
    state: &FailoverState,
    rules: &FailoverRules,
    epoch: &Epoch,
    counts: impl Fn(NodeId) -> bool,
    is_void: impl Fn(Ballot) -> bool,
) -> Option<Ballot> {
    let (quorum, weir) = (state.quorum(rules), state.durable.weir);
    let replaces = |vote: &Vote| vote.epoch.node != epoch.node && may_decide(vote, epoch, quorum, weir);
    let ballots = unsettled_marks(state, epoch, counts).flat_map(|mark| {
        let promised = Some(mark.promised).filter(|ballot| !is_void(*ballot));
        promised.max(mark.vote.filter(replaces).map(|vote| vote.ballot))
    });
    ballots.max()
}

fn unsettled_marks(state: &FailoverState, epoch: &Epoch, counts: impl Fn(NodeId) -> bool) -> impl Iterator<Item = Mark> {
    let others = state.nodes.iter().filter(move |(id, _)| **id != epoch.node && counts(**id));
    let marks = others.filter_map(|(_, node)| Some(node.seen.as_ref()?.facts.mark));
    marks.filter(move |mark| !mark.is_settled(epoch))
}

/// True if this vote may have decided on the successor of `last`. Where one node is enough Weir's own file decides, and its vote that it did not store
/// decided nothing.
pub(super) fn may_decide(vote: &Vote, last: &Epoch, quorum: QuorumSize, weir: u32) -> bool {
    let is_next = vote.parent.ballot == last.ballot && vote.epoch.ballot > last.ballot;
    is_next && !(quorum == QuorumSize::One && vote.ballot.weir == weir)
}
