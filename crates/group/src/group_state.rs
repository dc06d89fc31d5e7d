//! Value of the register: all that a group has decided, a few kB. Each change makes a new version of all of it.
//!
//! Not in it: sights of single members, WAL positions, the cache.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::group_rule::GroupRule;
use crate::membership::{GroupMembers, GroupMs, MEMBERS_MAX, MemberId, MemberSet};

/// Longest durable text of failover that is kept; real ones have about 2 kB.
pub const FAILOVER_TEXT_BYTES_MAX: usize = 64 * 1024;
/// Last decisions that are kept.
pub const DECISIONS_MAX: usize = 16;
pub const DECISION_BYTES_MAX: usize = 256;
/// Former groups that are remembered.
pub const FORMER_GROUPS_MAX: usize = 8;
/// Bounds of `wd_lease`.
pub const LEASE_MS_MIN: GroupMs = 200;
pub const LEASE_MS_MAX: GroupMs = 60_000;

/// Made by the founder's proposal: its member's number.
pub type GroupId = MemberId;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupLead {
    Held(MemberId),
    /// Taken from a member, for another one that waits until it certainly ended. `from` is `None` in a new group: nobody had it.
    Taken {
        from: Option<MemberId>,
        to: MemberId,
    },
}

/// The right to write, and to which node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupWrites {
    Open { epoch: u64, node: u16 },
    Closed { epoch: u64 },
}

impl GroupWrites {
    pub fn open(self) -> Option<(u64, u16)> {
        match self {
            GroupWrites::Open { epoch, node } => Some((epoch, node)),
            GroupWrites::Closed { .. } => None,
        }
    }

    pub fn closed(self) -> Option<u64> {
        match self {
            GroupWrites::Open { .. } => None,
            GroupWrites::Closed { epoch } => Some(epoch),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupDecision {
    pub term: u64,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupState {
    pub group: GroupId,
    /// One more with each change; a version that is proposed anew keeps it.
    pub change: u64,
    pub members: GroupMembers,
    /// Members that were silent: they have no rights until they are heard and obey.
    pub lost: MemberSet,
    pub lead: GroupLead,
    /// One more each time the lead is taken.
    pub term: u64,
    pub writes: GroupWrites,
    pub lease_ms: GroupMs,
    /// Text of failover; the group does not read it.
    pub failover: String,
    pub decisions: Vec<GroupDecision>,
    /// Groups in whose place this one was formed by force, oldest first.
    pub former: Vec<GroupId>,
}

/// A state that no member of ours makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StateFault {
    #[error("{0} members, limit is {MEMBERS_MAX}")]
    Members(usize),
    #[error("rows and voters name different members")]
    Rows,
    #[error("wd_lease of {0} ms is not between {LEASE_MS_MIN} and {LEASE_MS_MAX}")]
    Lease(GroupMs),
    #[error("failover text of {0} bytes, limit is {FAILOVER_TEXT_BYTES_MAX}")]
    Failover(usize),
    #[error("{0} decisions, limit is {DECISIONS_MAX} of {DECISION_BYTES_MAX} bytes")]
    Decisions(usize),
    #[error("{0} former groups, limit is {FORMER_GROUPS_MAX}")]
    Former(usize),
}

impl GroupState {
    /// To be asked of each state from outside before it is believed.
    pub fn check(&self) -> Result<(), StateFault> {
        let rows = &self.members.rows;
        if rows.len() > MEMBERS_MAX || rows.is_empty() {
            return Err(StateFault::Members(rows.len()));
        }
        let named: MemberSet = rows.iter().map(|row| row.id).collect();
        let is_sorted = rows.is_sorted_by(|one, next| one.id < next.id);
        if !is_sorted || named != self.members.all() || self.members.voters.is_empty() || self.members.lasting().is_empty() {
            return Err(StateFault::Rows);
        }
        if !self.lost.is_subset(&named) {
            return Err(StateFault::Rows);
        }
        if !(LEASE_MS_MIN..=LEASE_MS_MAX).contains(&self.lease_ms) {
            return Err(StateFault::Lease(self.lease_ms));
        }
        if self.failover.len() > FAILOVER_TEXT_BYTES_MAX {
            return Err(StateFault::Failover(self.failover.len()));
        }
        let too_long = self.decisions.iter().any(|decision| decision.text.len() > DECISION_BYTES_MAX);
        if self.decisions.len() > DECISIONS_MAX || too_long {
            return Err(StateFault::Decisions(self.decisions.len()));
        }
        if self.former.len() > FORMER_GROUPS_MAX {
            return Err(StateFault::Former(self.former.len()));
        }
        Ok(())
    }

    /// True if the state leaves this member any rights.
    pub fn lets(&self, id: MemberId) -> bool {
        self.members.lasting().contains(&id) && !self.lost.contains(&id)
    }

    pub fn led_by(&self, id: MemberId) -> bool {
        self.lead == GroupLead::Held(id) && self.lets(id)
    }

    /// Open epoch as far as this member may write in it.
    pub fn open_for(&self, id: MemberId) -> Option<(u64, u16)> {
        self.writes.open().filter(|_| self.lets(id))
    }

    /// Time after which a right is certainly over on clocks whose paces differ by less than 5 %.
    pub fn wait_ms(&self) -> GroupMs {
        self.lease_ms + self.lease_ms / 20
    }

    pub fn decide(&mut self, text: &str) {
        let mut end = text.len().min(DECISION_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.decisions.push(GroupDecision { term: self.term, text: text.get(..end).unwrap_or_default().to_owned() });
        let surplus = self.decisions.len().saturating_sub(DECISIONS_MAX);
        self.decisions.drain(..surplus);
    }
}

/// Orders versions. An engine outside numbers its versions itself and leaves `by` as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VersionNumber {
    /// 0 is a founder's proposal.
    pub counter: u64,
    pub by: MemberId,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateVersion {
    pub number: VersionNumber,
    pub state: Arc<GroupState>,
}

/// Versions with one number are equal, so that the number is enough.
impl Hash for StateVersion {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.number, self.state.change).hash(hasher);
    }
}

impl StateVersion {
    /// Of two proposals of founders, the later heard one: neither is decided for a member that is free to hear both.
    pub fn follows(&self, other: &StateVersion) -> bool {
        let are_proposals = self.number.counter == 0 && other.number.counter == 0;
        if are_proposals { self.number != other.number } else { self.number > other.number }
    }

    /// A founder's proposal needs *all* its members: each promises to one group only, and two majorities of the hosts share a host.
    pub fn is_quorum(&self, have: &MemberSet, without: Option<GroupRule>) -> bool {
        let members = &self.state.members;
        if self.number.counter == 0 {
            return members.voters.is_subset(have);
        }
        if without == Some(GroupRule::BothMajorities) {
            return members.is_enough(&members.voters, have);
        }
        members.is_quorum(have)
    }
}
