//! The state that a member would put in the place of a decided one.
//!
//! Order of a leader's duties: end a change of members, say that writes stopped, mark lost members, serve requests, hand over, follow the setting for
//! halves, remove and admit members.

use crate::group_event::{GroupAction, GroupAnswer, GroupRequest, MemberIntent, MemberVoice, ShutdownFate};
use crate::group_member::GroupMember;
use crate::group_rule::GroupRule;
use crate::group_state::{FAILOVER_TEXT_BYTES_MAX, GroupLead, GroupState, GroupWrites, StateVersion, VersionNumber};
use crate::membership::{GroupMembers, GroupMs, MemberId, MemberRow, MemberSet};

/// The end of a request.
enum RequestVerdict {
    Change(Box<GroupState>),
    Answer(GroupAnswer),
    /// Later: another change of members is under way.
    Later,
}

impl GroupMember {
    /// The next state, if this member is to propose one now.
    pub(crate) fn next_state(&mut self, now: GroupMs, out: &mut Vec<GroupAction>) -> Option<GroupState> {
        let StateVersion { number, state } = self.known.clone()?;
        if !state.members.has(self.id) || self.is_changing || self.voice != MemberVoice::Speaks || now < self.retry_at {
            return None;
        }
        let unsure_joint = self.settings.without == Some(GroupRule::JointKnownDecided) && !self.is_decided;
        if unsure_joint && state.members.next.is_some() && self.leads_any(&state) {
            return Some(ended(&state));
        }
        if !self.is_decided {
            return None;
        }
        let leads = self.leads(now);
        if !leads {
            return self.claim(&state, now);
        }
        if state.members.next.is_some() && self.is_leaving_over(now) {
            return Some(ended(&state));
        }
        let stopped = state.writes.closed().filter(|_| self.are_writes_over(&state, now)).map(|epoch| (epoch, state.term));
        if let Some((epoch, _)) = stopped.filter(|_| self.stopped_epoch != stopped) {
            self.stopped_epoch = stopped;
            out.push(GroupAction::WritesStopped { epoch });
        }
        if let Some(lost) = self.other_lost_members(&state, number, now) {
            return Some(GroupState { lost, ..(*state).clone() });
        }
        self.serve(&state, now, out)
            .or_else(|| self.hand_over(&state, now))
            .or_else(|| self.follow_half_votes(&state))
            .or_else(|| self.remove(&state, now))
            .or_else(|| self.admit(&state, now))
    }

    fn leads_any(&self, state: &GroupState) -> bool {
        self.rights().leads.is_some() || state.led_by(self.id)
    }

    /// Completes a lead taken for this member, or takes one whose holder is silent.
    fn claim(&self, state: &GroupState, now: GroupMs) -> Option<GroupState> {
        let from = match state.lead {
            GroupLead::Taken { from, to } if to == self.id => {
                let is_over = self.is_lead_over(from, now) && state.lets(to);
                return is_over.then(|| GroupState { lead: GroupLead::Held(to), ..state.clone() });
            }
            GroupLead::Held(from) => Some(from),
            GroupLead::Taken { from, .. } => from,
        };
        let fit = self.intent == MemberIntent::Serves;
        let row = state.members.row(self.id).filter(|row| row.may_lead() && fit && state.members.lasting().contains(&row.id))?;
        let is_led = now <= self.leader.led_at() + self.silence_ms();
        if is_led && self.leader.closed_at().is_none() {
            return None;
        }
        let rank = self.rank(state, row, now);
        let spread_ms = rank * self.lease_ms() / 20 + u64::from(self.dice) % (self.lease_ms() / 20);
        let is_closed = self.leader.closed_at().is_some_and(|at| now > at + self.lease_ms() / 3 + spread_ms);
        if !is_closed && now <= self.leader.led_at() + self.silence_ms() + spread_ms {
            return None;
        }
        let mut next = GroupState { lead: GroupLead::Taken { from, to: self.id }, term: state.term + 1, ..state.clone() };
        // The former leader, and whoever it should have gone to, have no rights until they are heard.
        let former = match state.lead {
            GroupLead::Held(id) | GroupLead::Taken { to: id, .. } => id,
        };
        next.lost.insert(former);
        next.lost.extend(from);
        next.lost.retain(|id| *id != self.id && state.members.has(*id));
        next.decide(&format!("lead claimed by host {}, host {} was silent", self.id.host, former.host));
        Some(next)
    }

    /// Number of members that go before this one in a claim.
    fn rank(&self, state: &GroupState, own: &MemberRow, now: GroupMs) -> u64 {
        let is_before = |row: &&MemberRow| {
            row.may_lead()
                && (own.priority, row.id) < (row.priority, own.id)
                && state.lets(row.id)
                && !self.is_silent(row.id, now)
        };
        state.members.rows.iter().filter(is_before).count() as u64
    }

    /// Members that are lost now, where they are others than the state says.
    fn other_lost_members(&self, state: &GroupState, number: VersionNumber, now: GroupMs) -> Option<MemberSet> {
        let is_lost = |id: &MemberId| {
            let was = state.lost.contains(id);
            if was { self.is_silent(*id, now) || !self.has_obeyed(*id, number) } else { self.is_silent(*id, now) }
        };
        let is_other = |id: &MemberId| is_lost(id) != state.lost.contains(id);
        let is_change = state.members.each().any(|id| is_other(&id)) || state.lost.iter().any(|id| !state.members.has(*id));
        is_change.then(|| state.members.each().filter(is_lost).collect())
    }

    /// True if so many of these were heard lately that a change to them ends.
    fn are_there(&self, state: &GroupState, voters: &MemberSet, now: GroupMs) -> bool {
        let is_there = |id: &MemberId| !self.is_silent(*id, now) && !state.lost.contains(id);
        let heard = voters.iter().copied().filter(is_there).collect();
        state.members.is_enough(voters, &heard)
    }

    fn serve(&mut self, state: &GroupState, now: GroupMs, out: &mut Vec<GroupAction>) -> Option<GroupState> {
        while let Some((ticket, request)) = self.requests.first() {
            match self.judge(state, request, now) {
                RequestVerdict::Change(next) => {
                    self.requests.ask(ticket, state.change + 1);
                    return Some(*next);
                }
                RequestVerdict::Answer(answer) => {
                    self.requests.end_first();
                    out.push(GroupAction::Answer { ticket, answer });
                }
                RequestVerdict::Later => return None,
            }
        }
        None
    }

    fn judge(&self, state: &GroupState, request: GroupRequest, now: GroupMs) -> RequestVerdict {
        let mut next = state.clone();
        match request {
            GroupRequest::CloseWrites { text } => match state.writes {
                GroupWrites::Closed { .. } if text.as_ref().is_none_or(|text| state.failover == *text) => {
                    return RequestVerdict::Answer(GroupAnswer::Done);
                }
                GroupWrites::Open { epoch, .. } | GroupWrites::Closed { epoch } => {
                    next.writes = GroupWrites::Closed { epoch };
                    next.failover = text.unwrap_or(next.failover);
                }
            },
            GroupRequest::OpenWrites { epoch, node, decision } => {
                if state.writes == (GroupWrites::Open { epoch, node }) {
                    return RequestVerdict::Answer(GroupAnswer::Done);
                }
                let is_next = state
                    .writes
                    .closed()
                    .is_some_and(|closed| closed < epoch && self.stopped_epoch == Some((closed, state.term)));
                if !is_next {
                    return RequestVerdict::Answer(GroupAnswer::Refused);
                }
                next.writes = GroupWrites::Open { epoch, node };
                if let Some(decision) = decision {
                    next.decide(&decision.text);
                }
            }
            GroupRequest::StoreText { text } => {
                if state.failover == text {
                    return RequestVerdict::Answer(GroupAnswer::Done);
                }
                next.failover = text;
            }
            GroupRequest::ChangeMembers { rows } => {
                let wanted: MemberSet = rows.iter().map(|row| row.id).collect();
                if state.members.next.is_some() {
                    return RequestVerdict::Later;
                }
                if wanted == state.members.voters {
                    return RequestVerdict::Answer(GroupAnswer::Done);
                }
                if rows.iter().all(|row| !row.may_lead()) || !self.are_there(state, &wanted, now) {
                    return RequestVerdict::Answer(GroupAnswer::Refused);
                }
                next.members = state.members.joined_by(&rows);
            }
            GroupRequest::HandOver { to } => {
                let to = to
                    .filter(|to| self.may_follow(state, *to, now))
                    .or_else(|| self.best_other(state, now).filter(|_| to.is_none()));
                let Some(to) = to else { return RequestVerdict::Answer(GroupAnswer::Refused) };
                return RequestVerdict::Change(Box::new(self.handed_over(state, to)));
            }
        }
        let is_too_long = next.failover.len() > FAILOVER_TEXT_BYTES_MAX;
        if is_too_long || next.check().is_err() {
            return RequestVerdict::Answer(GroupAnswer::Refused);
        }
        RequestVerdict::Change(Box::new(next))
    }

    fn handed_over(&self, state: &GroupState, to: MemberId) -> GroupState {
        let mut next = GroupState { lead: GroupLead::Taken { from: Some(self.id), to }, term: state.term + 1, ..state.clone() };
        next.decide(&format!("lead handed over by host {} to host {}", self.id.host, to.host));
        next
    }

    fn may_follow(&self, state: &GroupState, id: MemberId, now: GroupMs) -> bool {
        let is_fit = self.peers.get(&id).is_some_and(|peer| peer.intent == MemberIntent::Serves);
        let may_lead = state.members.row(id).is_some_and(|row| row.may_lead());
        id != self.id && may_lead && is_fit && state.lets(id) && !self.is_silent(id, now)
    }

    fn best_other(&self, state: &GroupState, now: GroupMs) -> Option<MemberId> {
        let others = state.members.rows.iter().filter(|row| self.may_follow(state, row.id, now));
        others.max_by_key(|row| (row.priority, std::cmp::Reverse(row.id))).map(|row| row.id)
    }

    /// True while another member may still take the lead over from this one.
    pub fn has_successor(&self, now: GroupMs) -> bool {
        self.known.as_ref().is_some_and(|known| match known.state.lead {
            GroupLead::Held(id) => id == self.id && self.best_other(&known.state, now).is_some(),
            GroupLead::Taken { from, to } => from == Some(self.id) && !self.is_silent(to, now),
        })
    }

    /// A leader that must not lead, or that leaves, gives the lead to the best other member.
    fn hand_over(&self, state: &GroupState, now: GroupMs) -> Option<GroupState> {
        match self.intent {
            MemberIntent::Serves => None,
            MemberIntent::Unfit | MemberIntent::ShutsDown => self.best_other(state, now).map(|to| self.handed_over(state, to)),
        }
    }

    /// The leader's setting counts. Quorums of either rule share a member, so that the change needs no joint version.
    fn follow_half_votes(&self, state: &GroupState) -> Option<GroupState> {
        let half_votes = self.settings.half_votes;
        if state.members.next.is_some() || state.members.half_votes == half_votes {
            return None;
        }
        let members = GroupMembers { half_votes, ..state.members.clone() };
        Some(GroupState { members, ..state.clone() })
    }

    /// Members that were lost for long, or that said they shut down, leave by a change of members. A minority removes nobody: it decides nothing.
    /// The casting vote leaves in any case when its member shuts down, or the others would have no half that is enough.
    fn remove(&self, state: &GroupState, now: GroupMs) -> Option<GroupState> {
        if state.members.next.is_some() {
            return None;
        }
        let is_gone = |id: &MemberId| {
            let since = self.waits.lost_since(*id);
            let is_old = self.settings.lost_removal_ms.is_some_and(|ms| since.is_some_and(|since| now >= since + ms));
            let shuts_down = self.peers.get(id).is_some_and(|peer| peer.intent == MemberIntent::ShutsDown);
            let leaves = self.settings.shutdowns == ShutdownFate::Removed || state.members.casting() == Some(*id);
            *id != self.id && (is_old || (shuts_down && leaves))
        };
        if !state.members.rows.iter().any(|row| is_gone(&row.id)) {
            return None;
        }
        let rows: Vec<MemberRow> = state.members.rows.iter().filter(|row| !is_gone(&row.id)).copied().collect();
        let voters = rows.iter().map(|row| row.id).collect();
        if !self.are_there(state, &voters, now) {
            return None;
        }
        Some(GroupState { members: state.members.joined_by(&rows), ..state.clone() })
    }
}

impl GroupMember {
    /// Configured hosts that greet become members: they come for the first time, lost their files, or were removed.
    fn admit(&self, state: &GroupState, now: GroupMs) -> Option<GroupState> {
        if state.members.next.is_some() {
            return None;
        }
        let rows = self.with_outsiders(state, now)?;
        let voters = rows.iter().map(|row| row.id).collect();
        let next = GroupState { members: state.members.joined_by(&rows), ..state.clone() };
        (self.are_there(state, &voters, now) && next.check().is_ok()).then_some(next)
    }
}

/// The change of members under way, ended.
fn ended(state: &GroupState) -> GroupState {
    let members = state.members.ended();
    let lost = state.lost.iter().copied().filter(|id| members.has(*id)).collect();
    GroupState { members, lost, ..state.clone() }
}
