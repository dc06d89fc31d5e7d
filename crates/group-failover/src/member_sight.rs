//! A member's knowledge of its group, as failover needs it.

use weir_failover::{
    DeathConsensus, DurableState, FailoverMode, FailoverRules, FailoverState, GroupRole, NodeId, NodeState, OtherPromoters,
    SuccessorFinder,
};
use weir_group::{GroupMs, GroupWrites, MemberRights, ServerMark, StateVersion};

/// Numbers of groups have this bit, those of single Weirs do not: marks on servers tell which of them decided.
const GROUP_BIT: u32 = 1 << 31;

pub fn is_number_of_group(weir: u32) -> bool {
    weir & GROUP_BIT != 0
}

pub fn number_of_single(random: u32) -> u32 {
    random & !GROUP_BIT
}

#[derive(Clone, Copy, Debug)]
pub struct MemberSight<'a> {
    /// Of the clock of the rights.
    pub now: GroupMs,
    /// Newest decided version known.
    pub version: Option<&'a StateVersion>,
    pub rights: MemberRights,
    /// Closed epoch in which nobody writes any more, while this member leads.
    pub stopped_epoch: Option<u64>,
}

impl MemberSight<'_> {
    pub fn has_lease(&self) -> bool {
        self.now < self.rights.until
    }

    pub fn leads(&self) -> bool {
        self.has_lease() && self.rights.leads.is_some()
    }

    pub fn role(&self) -> GroupRole {
        if self.leads() { GroupRole::Leads } else { GroupRole::Follows }
    }

    /// Epoch of writes, open or closed.
    pub fn writes_epoch(&self) -> u64 {
        self.version.map_or(0, |version| match version.state.writes {
            GroupWrites::Open { epoch, .. } | GroupWrites::Closed { epoch } => epoch,
        })
    }

    /// True while the epoch is open for this node, and the lease valid.
    pub fn may_write_to(&self, node: NodeId) -> bool {
        self.has_lease() && self.rights.writes.is_some_and(|(_, open)| open == node)
    }

    /// State stored by the group, under the group's number: one for all members, so that a new leader knows what a former one began. `None`: nothing
    /// yet.
    pub fn durable(&self) -> Option<DurableState> {
        let state = &self.version?.state;
        let durable = DurableState::parse(&state.failover)?;
        // In a group that was formed by force the lead's term is beyond all that the former one may have given, for failover, too.
        let term = durable.term.max(state.term);
        Some(DurableState { weir: state.group.incarnation | GROUP_BIT, term, ..durable })
    }
}

/// Rules of a member: the group is one Weir, and only its leader decides.
pub fn rules_in_group(rules: FailoverRules, group: GroupRole, consensus: DeathConsensus) -> FailoverRules {
    let follows = group == GroupRole::Follows && rules.mode != FailoverMode::Off;
    let promotes = matches!(rules.mode, FailoverMode::Builtin | FailoverMode::Command);
    let successors = if follows && promotes { SuccessorFinder::Leader } else { rules.successors };
    let mode = if follows { FailoverMode::Follow } else { rules.mode };
    FailoverRules { group, company: OtherPromoters::Alone, consensus, mode, successors, ..rules }
}

/// Sight of a group's mark on the servers, for a founder.
pub fn server_mark(state: &FailoverState) -> ServerMark {
    let is_marked = |node: &NodeState| {
        let mark = node.facts()?.mark;
        let voted = mark.vote.map(|vote| vote.ballot.weir);
        Some([Some(mark.promised.weir), voted].into_iter().flatten().any(is_number_of_group))
    };
    let marks: Vec<Option<bool>> = state.nodes.values().map(is_marked).collect();
    if marks.contains(&Some(true)) {
        ServerMark::Marked
    } else if marks.iter().all(Option::is_some) {
        ServerMark::Unmarked
    } else {
        ServerMark::Unseen
    }
}
