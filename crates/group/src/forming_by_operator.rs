//! Groups that an operator orders: where hosts are missing, a server bears the mark of a group, or most members are lost for good.
//!
//! By force a member makes a group of itself, with what it knows of its former one. It becomes another member, so that nobody of the former group
//! counts it, and it counts nobody. Whoever led or wrote there has the time of a lease to end, as ever. Members of the former group that are heard
//! are told, and do no more: the operator vouched that they are dead, and two groups must not last.

use std::sync::Arc;

use crate::forming_order::{FormingOrder, FormingRefusal};
use crate::group_event::{GroupAction, MemberVoice, MessagePart};
use crate::group_member::GroupMember;
use crate::group_state::{FORMER_GROUPS_MAX, GroupId, GroupLead, GroupState, GroupWrites, StateVersion, VersionNumber};
use crate::membership::{GroupMembers, GroupMs, MemberDuty, MemberId, MemberSet};
use crate::register::RegisterOutput;
use crate::stored_vote::StoredVote;

/// Beyond all terms and epochs that the former group may have given since: no group changes its leader a billion times.
const FORCED_LEAP: u64 = 1 << 30;
/// An order to form lasts so long: hosts that were just started are heard by then.
const ORDERED_MS: GroupMs = 10_000;

impl GroupMember {
    pub(crate) fn order_forming(
        &mut self,
        ticket: u64,
        order: FormingOrder,
        now: GroupMs,
        register: &mut Vec<RegisterOutput>,
        out: &mut Vec<GroupAction>,
    ) {
        let answer = match order {
            FormingOrder::Majority => self.may_form(now).map(|()| self.founding.order(now + ORDERED_MS)),
            FormingOrder::Alone { incarnation, first_number } => {
                self.may_form_alone(now).map(|state| self.form_alone(&state, (incarnation, first_number), now, register))
            }
        };
        out.push(GroupAction::Formed { ticket, answer });
    }

    fn may_form(&self, now: GroupMs) -> Result<(), FormingRefusal> {
        self.may_found()?;
        if self.known.is_some() || self.group().is_some() {
            let (heard, of) = self.heard_members(now);
            return Err(if self.works(now) {
                FormingRefusal::Works { heard, of }
            } else {
                FormingRefusal::NeedsForce { heard, of }
            });
        }
        let rows = self.free_rows(now);
        let (heard, of) = (rows.len(), self.settings.hosts.len());
        if 2 * heard <= of {
            return Err(FormingRefusal::TooFew { heard, of });
        }
        let lowest = rows.iter().filter(|row| row.duty == MemberDuty::Serves).map(|row| row.id.host).min();
        lowest.filter(|host| *host != self.id.host).map_or(Ok(()), |host| Err(FormingRefusal::NotLowest(host)))
    }

    /// The newest state of the former group that this member knows, decided or not.
    fn may_form_alone(&self, now: GroupMs) -> Result<Arc<GroupState>, FormingRefusal> {
        if self.is_outside() {
            return Err(FormingRefusal::Outside);
        }
        self.may_found()?;
        let state = self.known.as_ref().map(|known| known.state.clone()).ok_or(FormingRefusal::NoState)?;
        if self.works(now) {
            let (heard, of) = self.heard_members(now);
            return Err(FormingRefusal::Works { heard, of });
        }
        let hears_ms = 2 * state.lease_ms;
        if now < self.founding.begun_at() + hears_ms { Err(FormingRefusal::TooEarly(hears_ms)) } else { Ok(state) }
    }

    fn may_found(&self) -> Result<(), FormingRefusal> {
        if !self.row().may_lead() {
            return Err(FormingRefusal::NeverLeads);
        }
        if self.voice == MemberVoice::Speaks { Ok(()) } else { Err(FormingRefusal::NoVote) }
    }

    fn heard(&self, now: GroupMs) -> MemberSet {
        let members = self.known.as_ref().map(|known| known.state.members.all()).unwrap_or_default();
        members.into_iter().filter(|id| !self.is_silent(*id, now)).collect()
    }

    fn heard_members(&self, now: GroupMs) -> (usize, usize) {
        (self.heard(now).len(), self.known.as_ref().map_or(0, |known| known.state.members.all().len()))
    }

    /// True if a majority answers, or did within a lease.
    fn works(&self, now: GroupMs) -> bool {
        let is_quorum = self.known.as_ref().is_some_and(|known| known.state.members.is_quorum(&self.heard(now)));
        is_quorum || now < self.rights().until
    }

    fn form_alone(
        &mut self,
        former: &GroupState,
        (incarnation, first_number): (u32, u64),
        now: GroupMs,
        register: &mut Vec<RegisterOutput>,
    ) {
        let is_new = incarnation != self.id.incarnation;
        let id = MemberId { host: self.id.host, incarnation: if is_new { incarnation } else { incarnation.wrapping_add(1) } };
        let (GroupLead::Held(led_by) | GroupLead::Taken { to: led_by, .. }) = former.lead;
        let epoch = former.writes.open().map(|(epoch, _)| epoch).or(former.writes.closed()).unwrap_or_default();
        let mut groups = former.former.clone();
        groups.push(former.group);
        groups.drain(..groups.len().saturating_sub(FORMER_GROUPS_MAX));
        let mut new = GroupMember::new(self.settings.clone(), StoredVote::new(id), first_number, now);
        let mut state = GroupState {
            group: id,
            change: former.change + 1,
            members: GroupMembers::of(vec![new.row()], self.settings.half_votes),
            lost: MemberSet::new(),
            // Whoever led obeys nobody here: the lead is given after the wait.
            lead: GroupLead::Taken { from: Some(led_by), to: id },
            term: former.term + FORCED_LEAP,
            writes: GroupWrites::Closed { epoch: epoch + FORCED_LEAP },
            former: groups,
            ..former.clone()
        };
        state.decide(&format!("group formed by force of host {} alone", id.host));
        (new.intent, new.sights, new.dice) = (self.intent, self.sights, self.dice);
        new.founding = self.founding.begun_anew(now);
        new.acts = self.acts.begun_anew(first_number);
        new.given.obey_anew(&self.given);
        let version = StateVersion { number: VersionNumber { counter: 1, by: id }, state: Arc::new(state) };
        new.register.found_alone(version, register);
        *self = new;
    }

    /// Answers members of a group that this one was formed in place of.
    pub(crate) fn tell_replaced(&self, group: GroupId, from: MemberId, now: GroupMs, out: &mut Vec<GroupAction>) -> bool {
        let is_former = self.known.as_ref().is_some_and(|known| known.state.former.contains(&group));
        if is_former && self.group() != Some(group) {
            self.send_to(from.host, Some(from), MessagePart::Replaced { group }, now, out);
        }
        is_former
    }

    /// Takes in that another group was formed by force in place of this member's.
    pub(crate) fn hear_replaced(&mut self, group: GroupId, by: MemberId, out: &mut Vec<GroupAction>) {
        if self.group() == Some(group) && by.host != self.id.host {
            self.voice = MemberVoice::Replaced;
            self.given.end();
            out.push(GroupAction::Replaced { by: by.host });
        }
    }
}
