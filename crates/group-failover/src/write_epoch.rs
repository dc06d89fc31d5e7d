//! The ways to a closed and to an open epoch of writes, step by step.

use weir_failover::{Done, NodeId};
use weir_group::{GroupDecision, GroupRequest, GroupWrites};

use crate::member_sight::MemberSight;

/// The end of a `CloseWrites` that was decided: `Done::Yes` once nobody writes any more, as long as this member leads. `None`: not yet.
pub fn writes_closing(sight: MemberSight) -> Option<Done> {
    if !sight.leads() {
        return Some(Done::No);
    }
    let closed = sight.version.and_then(|version| version.state.writes.closed());
    (closed.is_some() && sight.stopped_epoch == closed).then_some(Done::Yes)
}

/// The end of a `CloseWrites` that was asked for in this epoch, and decided. `Done::No` also if writes were opened again since, for an order that came
/// later: nobody saw them closed, and whoever relies on it asks again.
pub fn asked_closing(sight: MemberSight, epoch: u64) -> Option<Done> {
    let is_reopened =
        matches!(sight.version.map(|version| version.state.writes), Some(GroupWrites::Open { epoch: open, .. }) if open > epoch);
    if is_reopened { Some(Done::No) } else { writes_closing(sight) }
}

/// The next request of a leader that opens writes to this node, instead of to any other. `None`: news of the group are waited for, for as long as failover
/// wants writes there. Writes that are open already may be closed by a change that was asked for before.
pub fn writes_opening(sight: MemberSight, node: NodeId) -> Option<GroupRequest> {
    let state = sight.version.map(|version| &version.state).filter(|_| sight.leads())?;
    match state.writes {
        GroupWrites::Open { node: open, .. } if open == node => None,
        GroupWrites::Open { .. } => Some(GroupRequest::CloseWrites { text: None }),
        GroupWrites::Closed { epoch } if sight.stopped_epoch == Some(epoch) => {
            let words = format!("node {node} takes writes, in epoch {}", epoch + 1);
            let decision = Some(GroupDecision { term: state.term, text: words });
            Some(GroupRequest::OpenWrites { epoch: epoch + 1, node, decision })
        }
        GroupWrites::Closed { .. } => None,
    }
}
