//! The end of what the group takes from a member.

use weir_failover::{FailoverState, NodeId};
use weir_group::{GroupMs, VersionNumber};

use crate::member_sight::MemberSight;

/// The party that must stop writing when the group takes the right to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritingParty {
    /// The control thread says when its workers are done.
    Workers,
    /// A witness.
    Nobody,
}

/// A version is obeyed when both are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObedienceProgress {
    pub number: VersionNumber,
    pub address: bool,
    pub writes: bool,
    /// The address is being given up for this version.
    pub is_freeing: bool,
}

impl ObedienceProgress {
    /// A version is told again at each renewal of the lease: what is done stays done, since nobody says so twice.
    pub fn of(before: Option<ObedienceProgress>, number: VersionNumber, leads: bool, party: WritingParty) -> ObedienceProgress {
        let new = ObedienceProgress { number, address: leads, writes: party == WritingParty::Nobody, is_freeing: false };
        before.filter(|before| before.number == number).unwrap_or(new)
    }

    pub fn is_done(&self) -> bool {
        self.address && self.writes
    }

    /// True if workers get what the group gives. Until they are done with writes that were taken, the former lease runs on for open transactions, without
    /// being renewed: nobody gets the writes before.
    pub fn lets_renew(&self) -> bool {
        self.writes
    }
}

/// Writes to end: new work waits already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenWrites {
    pub number: VersionNumber,
    /// Transactions there may end for so long, then connections to it end. `None`: nothing is open.
    pub node: Option<NodeId>,
    pub limit_ms: GroupMs,
}

impl TakenWrites {
    /// Transactions on a node that answers may end until the lease does.
    pub(crate) fn of(number: VersionNumber, sight: MemberSight, state: &FailoverState, served: Option<NodeId>) -> TakenWrites {
        let node = served.filter(|node| sight.rights.writes.is_none_or(|(_, open)| open != *node));
        let answers = node.is_some_and(|node| state.nodes.get(&node).is_some_and(|node| node.facts().is_some()));
        let limit_ms = if answers { sight.rights.until.saturating_sub(sight.now) } else { 0 };
        TakenWrites { number, node, limit_ms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewals_of_a_lease_leave_obedience_as_far_as_it_is() {
        let number = |counter| VersionNumber { counter, ..VersionNumber::default() };
        let begun = ObedienceProgress::of(None, number(7), false, WritingParty::Workers);
        assert_eq!((begun.address, begun.writes, begun.is_freeing), (false, false, false));
        let written = ObedienceProgress { writes: true, is_freeing: true, ..begun };
        assert_eq!(ObedienceProgress::of(Some(written), number(7), false, WritingParty::Workers), written);
        let next = ObedienceProgress::of(Some(written), number(8), false, WritingParty::Workers);
        assert_eq!(next, ObedienceProgress { number: number(8), ..begun });
        assert!(ObedienceProgress::of(None, number(7), true, WritingParty::Nobody).writes);
    }
}
