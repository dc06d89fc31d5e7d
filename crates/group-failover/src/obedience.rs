//! The end of what the group takes from a member.

use weir_failover::{FailoverState, NodeId};
use weir_group::{GroupMs, MemberRights, VersionNumber};

use crate::member_sight::MemberSight;

/// The party that must stop writing when the group takes the right to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritingParty {
    /// The control thread says when its workers are done.
    Workers,
    /// A witness.
    Nobody,
}

/// Change of the right to write by a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritesChange {
    /// Also if nobody writes here.
    None,
    Taken,
}

impl WritesChange {
    pub fn of(before: &MemberRights, rights: &MemberRights, party: WritingParty) -> WritesChange {
        let keeps = before.writes.is_none() || before.writes == rights.writes;
        if keeps || party == WritingParty::Nobody { WritesChange::None } else { WritesChange::Taken }
    }
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
    /// A version is told again at each renewal of the lease: what is done stays done, since nobody says so twice. Of another version the address is
    /// done with as long as this member leads, and writes as long as they stay and nothing of former versions is to be done.
    pub fn of(before: Option<ObedienceProgress>, number: VersionNumber, leads: bool, writes: WritesChange) -> ObedienceProgress {
        let are_former_over = before.is_none_or(|before| before.writes);
        let writes = writes == WritesChange::None && are_former_over;
        let new = ObedienceProgress { number, address: leads, writes, is_freeing: false };
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
        let begun = ObedienceProgress::of(None, number(7), false, WritesChange::Taken);
        assert_eq!((begun.address, begun.writes, begun.is_freeing), (false, false, false));
        let written = ObedienceProgress { writes: true, is_freeing: true, ..begun };
        assert_eq!(ObedienceProgress::of(Some(written), number(7), false, WritesChange::None), written);
        let next = ObedienceProgress::of(Some(written), number(8), false, WritesChange::Taken);
        assert_eq!(next, ObedienceProgress { number: number(8), ..begun });
    }

    #[test]
    fn a_member_that_gives_up_the_lead_alone_need_not_stop_writing() {
        let number = |counter| VersionNumber { counter, ..VersionNumber::default() };
        let lead_taken = ObedienceProgress::of(None, number(7), false, WritesChange::None);
        assert_eq!((lead_taken.address, lead_taken.writes), (false, true));
        let writes_taken = ObedienceProgress::of(Some(lead_taken), number(8), false, WritesChange::Taken);
        assert!(!writes_taken.writes);
        assert!(!ObedienceProgress::of(Some(writes_taken), number(9), false, WritesChange::None).writes, "still to be done");
    }

    #[test]
    fn writes_are_taken_from_whom_writes() {
        let rights = |writes| MemberRights { writes, ..MemberRights::default() };
        let of = |before, after, party| WritesChange::of(&rights(before), &rights(after), party);
        assert_eq!(of(Some((3, 1)), None, WritingParty::Workers), WritesChange::Taken);
        assert_eq!(of(Some((3, 1)), Some((4, 2)), WritingParty::Workers), WritesChange::Taken);
        assert_eq!(of(Some((3, 1)), Some((3, 1)), WritingParty::Workers), WritesChange::None);
        assert_eq!(of(None, Some((4, 2)), WritingParty::Workers), WritesChange::None);
        assert_eq!(of(Some((3, 1)), None, WritingParty::Nobody), WritesChange::None);
    }
}
