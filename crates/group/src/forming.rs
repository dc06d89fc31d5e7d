//! A new group: the lowest host proposes, the others bind to the first proposal that names them, on disk.
//!
//! A proposal is version 0. The next version needs the promises of *all* its members; each host promises to one group only, on disk and for good,
//! and a majority of the configured hosts is in each proposal: two groups would share a host. A host that promised nothing yet is free: it follows the
//! lowest founder. A host counts as free when it said so to this very incarnation.
//!
//! With an engine outside the founder creates the first version there, only if there is none: of rivals one creates it, and the others read it.

use std::sync::Arc;

use crate::group_event::{GroupMessage, MemberIntent, MemberVoice};
use crate::group_member::GroupMember;
use crate::group_state::{GroupLead, GroupState, GroupWrites, StateVersion, VersionNumber};
use crate::hosts_met::HEARD_MS;
use crate::membership::{GroupMembers, GroupMs, HostNumber, MemberDuty, MemberRow, MemberSet};

impl GroupMember {
    /// Remembers a host without a group.
    pub(crate) fn meet(&mut self, message: &GroupMessage, row: MemberRow, now: GroupMs) {
        let host = message.from.host;
        let is_configured = row.id == message.from && self.settings.hosts.contains(&host);
        if !is_configured || !self.hosts_met.meet(message.from) {
            return;
        }
        let is_free = message.group.is_none() && message.to == Some(self.id);
        if is_free {
            self.hosts_met.add_stranger(row, now);
        } else {
            self.hosts_met.remove_stranger(host);
        }
    }

    /// Remembers a host that a leader may admit: it has no group, or lost its place in this one.
    pub(crate) fn meet_outsider(&mut self, message: &GroupMessage, row: MemberRow, now: GroupMs) {
        let host = message.from.host;
        let is_configured = row.id == message.from && self.settings.hosts.contains(&host);
        let is_ready = message.to == Some(self.id) && message.intent != MemberIntent::ShutsDown;
        if is_configured && is_ready && self.known.as_ref().is_some_and(|known| !known.state.members.has(row.id)) {
            self.hosts_met.add_outsider(row, now);
        } else {
            self.hosts_met.remove_outsider(host);
        }
    }

    /// Rows of the group with the outsiders heard lately, if there are any. A host takes the place of its former incarnation once that is lost.
    pub(crate) fn with_outsiders(&self, state: &GroupState, now: GroupMs) -> Option<Vec<MemberRow>> {
        let has_room = |row: &MemberRow| {
            let mut former = state.members.rows.iter().filter(|had| had.id.host == row.id.host);
            former.all(|had| had.id != row.id && state.lost.contains(&had.id))
        };
        let new: Vec<MemberRow> = self.hosts_met.outsiders(now).filter(has_room).collect();
        let stays = |row: &&MemberRow| !new.iter().any(|other| other.id.host == row.id.host);
        (!new.is_empty()).then(|| state.members.rows.iter().filter(stays).chain(&new).copied().collect())
    }

    /// Rows of this host and of those heard lately that have no group either.
    pub(crate) fn free_rows(&self, now: GroupMs) -> Vec<MemberRow> {
        self.hosts_met.strangers(now).chain([self.row()]).collect()
    }

    /// The first version, if this host is the one to propose it.
    pub(crate) fn found(&self, now: GroupMs) -> Option<StateVersion> {
        if self.group().is_some() || self.known.is_some() || self.settings.duty != MemberDuty::Serves {
            return None;
        }
        let rows = self.free_rows(now);
        let lowest: Option<HostNumber> = rows.iter().filter(|row| row.duty == MemberDuty::Serves).map(|row| row.id.host).min();
        if lowest != Some(self.settings.host) || !self.are_enough(rows.len(), now) {
            return None;
        }
        let state = GroupState {
            group: self.id,
            change: 0,
            members: GroupMembers::of(rows, self.settings.half_votes),
            lost: MemberSet::new(),
            lead: GroupLead::Taken { from: None, to: self.id },
            term: 0,
            writes: GroupWrites::Closed { epoch: 0 },
            lease_ms: self.settings.lease_ms,
            failover: self.founding.text().to_owned(),
            decisions: Vec::new(),
            former: Vec::new(),
        };
        let number = VersionNumber { counter: 0, by: self.id };
        state.check().is_ok().then(|| StateVersion { number, state: Arc::new(state) })
    }

    /// The first state for an engine outside. A state that was deleted there may still give rights, for as long as a right is waited for.
    pub(crate) fn found_outside(&self, now: GroupMs) -> Option<GroupState> {
        let (since, until) = self.founding.empty()?;
        let state = self.found(now)?.state;
        let is_empty = now < until + HEARD_MS && now >= since + state.wait_ms();
        (is_empty && !self.is_changing && self.voice == MemberVoice::Speaks).then(|| (*state).clone())
    }

    /// All configured hosts; after `wd_no_show_node_removal_timeout` a majority, unless a server bears a group's mark: then disks were lost, and it
    /// is for the operator, who orders it.
    fn are_enough(&self, heard: usize, now: GroupMs) -> bool {
        let hosts = self.settings.hosts.len();
        let is_late = self.settings.no_show_ms.is_some_and(|ms| now >= self.founding.begun_at() + ms);
        let is_unmarked = self.founding.are_servers_unmarked(now);
        let is_ordered = self.founding.is_ordered(now);
        heard == hosts || (2 * heard > hosts && (is_ordered || (is_late && is_unmarked)))
    }
}
