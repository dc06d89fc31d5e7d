//! A member: what it knows, what it may do and for how long.
//!
//! 1. A version that a read confirmed gives a member what it says, until `wd_lease` after the question was sent, by its own clock, unless it hears of
//!    a newer version before that says otherwise.
//! 2. A right that was given is first taken, by a version that gives it to nobody. It is given again only after all who had it obey that version, or
//!    `wd_lease` + 5 % after the giver saw it decided.
//!
//! The wait for writes ends a lease and 5 % after a member's last question where all who accepted told of that: see `last_questions`.
//!
//! Proof, with the lease L and clocks whose paces differ by less than 5 %: a read sent at t and confirmed for v shows that nothing newer than v was
//! decided before t. So whoever acts on v until t + L acts, if something newer is decided at c, until less than c + L. The giver knows at k ≥ c that
//! it is decided and waits until k + L + 5 %. Nobody has it any more.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::given_rights::GivenRights;
use crate::group_event::{
    EngineKind, GroupAction, GroupMessage, GroupSettings, MemberIntent, MemberRights, MemberVoice, NodeSights,
};
use crate::group_rule::GroupRule;
use crate::group_state::{GroupId, GroupLead, GroupState, StateVersion, VersionNumber};
use crate::hosts_met::{FoundingFacts, HostsMet};
use crate::last_questions::{AnsweredQuestions, QuestionBounds};
use crate::leader_sight::LeaderSight;
use crate::membership::{GroupMs, MEMBERS_MAX, MemberDuty, MemberId, MemberRow, MemberSet};
use crate::operator_acts::PassedActs;
use crate::register::{GroupRegister, RegisterEvent};
use crate::request_queue::RequestQueue;
use crate::stored_vote::StoredVote;
use crate::taken_waits::{TakenSince, TakenWaits};

/// Between two greetings at most. A host counts as heard for a second.
const GREETING_MS: GroupMs = 250;

#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerSight {
    pub(crate) heard_at: GroupMs,
    pub(crate) obeyed: VersionNumber,
    pub(crate) intent: MemberIntent,
    pub(crate) sights: NodeSights,
}

#[derive(Clone, Debug)]
pub struct GroupMember {
    pub(crate) settings: GroupSettings,
    pub(crate) id: MemberId,
    pub(crate) register: GroupRegister,
    /// Newest version heard of, decided or not, and when it was heard of first.
    pub(crate) known: Option<StateVersion>,
    heard_at: GroupMs,
    pub(crate) is_decided: bool,
    pub(crate) given: GivenRights,
    pub(crate) leader: LeaderSight,
    pub(crate) answered: AnsweredQuestions,
    /// Of the change under way.
    pub(crate) bounds: QuestionBounds,
    pub(crate) peers: BTreeMap<MemberId, PeerSight>,
    pub(crate) waits: TakenWaits,
    pub(crate) intent: MemberIntent,
    pub(crate) sights: NodeSights,
    pub(crate) parameters: Option<u64>,
    pub(crate) requests: RequestQueue,
    pub(crate) is_changing: bool,
    pub(crate) stopped_epoch: Option<(u64, u64)>,
    pub(crate) read_at: GroupMs,
    pub(crate) retry_at: GroupMs,
    pub(crate) dice: u32,
    pub(crate) hosts_met: HostsMet,
    pub(crate) founding: FoundingFacts,
    pub(crate) voice: MemberVoice,
    pub(crate) acts: PassedActs,
}

impl GroupMember {
    /// `first_number`: larger than all numbers of earlier lives, as a random one of 62 bits is in practice.
    pub fn new(settings: GroupSettings, stored: StoredVote, first_number: u64, now: GroupMs) -> GroupMember {
        let register = GroupRegister::new(stored, first_number, now, settings.without);
        // Another engine numbers its versions in another way.
        let known = register.known().cloned().filter(|_| settings.engine == EngineKind::Builtin);
        let term = known.as_ref().map_or(0, |known| known.state.term);
        GroupMember {
            id: register.member(),
            register,
            known,
            heard_at: now,
            is_decided: false,
            given: GivenRights::default(),
            leader: LeaderSight::new(term, now),
            answered: AnsweredQuestions::new(now),
            bounds: QuestionBounds::default(),
            peers: BTreeMap::new(),
            waits: TakenWaits::new(),
            intent: MemberIntent::Serves,
            sights: NodeSights::default(),
            parameters: None,
            requests: RequestQueue::default(),
            is_changing: false,
            stopped_epoch: None,
            read_at: now,
            retry_at: now,
            dice: 0,
            hosts_met: HostsMet::default(),
            founding: FoundingFacts::new(now),
            voice: MemberVoice::Speaks,
            acts: PassedActs::new(first_number),
            settings,
        }
    }

    pub fn id(&self) -> MemberId {
        self.id
    }

    pub fn known(&self) -> Option<&StateVersion> {
        self.known.as_ref()
    }

    pub fn register(&self) -> &GroupRegister {
        &self.register
    }

    /// Row of this member in a group that it founds or that admits it.
    pub fn row(&self) -> MemberRow {
        MemberRow { id: self.id, priority: self.settings.priority, duty: self.settings.duty }
    }

    /// Of its group, or of the one that it would found.
    pub fn lease_ms(&self) -> GroupMs {
        self.known.as_ref().map_or(self.settings.lease_ms, |known| known.state.lease_ms)
    }

    /// Silence after which a member counts as lost, and a leader as gone.
    pub(crate) fn silence_ms(&self) -> GroupMs {
        self.lease_ms() / 2
    }

    pub(crate) fn period_ms(&self) -> GroupMs {
        self.lease_ms() / 8
    }

    /// True if a version is newer than the last read: what it opens counts once a read shows it.
    pub(crate) fn is_unread(&self) -> bool {
        self.known.is_some() && self.read_at <= self.heard_at
    }

    /// True for the time of two reads, if no read has shown the newest version: what it opens waits for that.
    pub(crate) fn is_new(&self, now: GroupMs) -> bool {
        let is_ungranted = self.known.as_ref().is_some_and(|known| !self.given.is_granted(known.number));
        is_ungranted && now < self.heard_at + 2 * self.period_ms()
    }

    /// A new version is asked for at each tick.
    pub(crate) fn read_pause_ms(&self, now: GroupMs) -> GroupMs {
        let is_member = self.known.as_ref().is_some_and(|known| known.state.members.has(self.id));
        let pause_ms = if is_member { self.period_ms() } else { self.period_ms().min(GREETING_MS) };
        if self.is_new(now) { 0 } else { pause_ms }
    }

    pub(crate) fn is_silent(&self, id: MemberId, now: GroupMs) -> bool {
        id != self.id && self.peers.get(&id).is_none_or(|peer| now > peer.heard_at + self.silence_ms())
    }

    /// Newest version that others may rely on to be obeyed here: one on disk, so that a next life of this member, which knows no more than that, takes
    /// nothing back from an older one. An engine outside shows no older one again.
    pub(crate) fn told_obeyed(&self) -> VersionNumber {
        let on_disk = self.register.stored().accepted.as_ref().map(|version| version.number).unwrap_or_default();
        if self.is_outside() { self.given.obeyed() } else { self.given.obeyed().min(on_disk) }
    }

    pub(crate) fn has_obeyed(&self, id: MemberId, number: VersionNumber) -> bool {
        if id == self.id {
            return self.given.obeyed() >= number;
        }
        self.peers.get(&id).is_some_and(|peer| peer.obeyed >= number)
    }

    /// Rights by the last confirmed read, less what a newer version says otherwise.
    pub(crate) fn rights(&self) -> MemberRights {
        let Some(known) = &self.known else { return MemberRights::default() };
        let Some((until, granted)) = self.given.granted() else { return self.inherited_rights(&known.state) };
        let late = self.settings.without == Some(GroupRule::ObeyFirst);
        let known = if late { granted } else { known };
        if Arc::ptr_eq(&granted.state, &known.state) {
            return self.granted_rights(*until, &known.state);
        }
        let row = known.state.members.row(self.id);
        let leads = granted.state.led_by(self.id) && known.state.led_by(self.id) && granted.state.term == known.state.term;
        let given = if self.settings.without == Some(GroupRule::ConfirmedOpening) { known } else { granted };
        let open = given.state.open_for(self.id).filter(|open| known.state.open_for(self.id) == Some(*open));
        let serves = row.is_some_and(|row| row.duty == MemberDuty::Serves);
        MemberRights { until: *until, leads: (leads && serves).then_some(granted.state.term), writes: open.filter(|_| serves) }
    }

    /// Of a state that was confirmed, and is the newest.
    fn granted_rights(&self, until: GroupMs, state: &GroupState) -> MemberRights {
        let serves = state.lets(self.id) && state.members.row(self.id).is_some_and(|row| row.duty == MemberDuty::Serves);
        let leads = serves && state.lead == GroupLead::Held(self.id);
        MemberRights { until, leads: leads.then_some(state.term), writes: state.writes.open().filter(|_| serves) }
    }

    fn inherited_rights(&self, known: &GroupState) -> MemberRights {
        let MemberRights { until, leads, writes } = self.given.inherited();
        let leads = leads.filter(|term| known.led_by(self.id) && known.term == *term);
        MemberRights { until, leads, writes: writes.filter(|open| known.open_for(self.id) == Some(*open)) }
    }

    /// The state that this member leads by, if it does.
    pub fn leads(&self, now: GroupMs) -> bool {
        let rights = self.rights();
        now < rights.until && rights.leads.is_some()
    }

    /// Takes what an engine tells.
    pub(crate) fn note(&mut self, event: RegisterEvent, now: GroupMs, out: &mut Vec<GroupAction>) -> Option<StateVersion> {
        match event {
            RegisterEvent::Heard(version) => self.hear(version, now),
            RegisterEvent::Shown { version, asked_at } => {
                self.hear(version.clone(), now);
                if self.known.as_ref().is_some_and(|known| known.number == version.number) {
                    self.grant(&version, asked_at, now);
                    self.decided(version, now, out);
                }
            }
            RegisterEvent::Changed(version) => {
                self.is_changing = false;
                self.hear(version.clone(), now);
                self.bound_leases(&version, now);
                self.decided(version.clone(), now, out);
                return Some(version);
            }
            RegisterEvent::Refused { decided } => {
                self.is_changing = false;
                self.requests.take_asked();
                if let Some(version) = decided {
                    self.hear(version.clone(), now);
                    self.decided(version, now, out);
                }
            }
            RegisterEvent::Empty => self.founding.note_empty(now),
        }
        None
    }

    pub(crate) fn hear(&mut self, version: StateVersion, now: GroupMs) {
        if self.known.as_ref().is_some_and(|known| !version.follows(known)) {
            return;
        }
        // In a new group nobody led yet: the founder has the time that a leader has.
        let is_first = self.known.as_ref().is_none_or(|known| known.number.counter == 0);
        if version.state.term > self.leader.term() || is_first {
            self.leader = LeaderSight::new(version.state.term, now);
        }
        self.is_decided = false;
        self.founding.note_state();
        self.known = Some(version);
        (self.heard_at, self.read_at) = (now, self.read_at.min(now));
    }

    fn grant(&mut self, version: &StateVersion, asked_at: GroupMs, now: GroupMs) {
        let from_answer = self.settings.without == Some(GroupRule::LeaseFromQuestion);
        let until = if from_answer { now } else { asked_at } + version.state.lease_ms;
        self.given.grant(version, until);
        let leads = match version.state.lead {
            GroupLead::Held(id) | GroupLead::Taken { to: id, .. } => id == self.id && version.state.lets(id),
        };
        if leads {
            self.leader.confirmed(version.state.term, asked_at);
        }
    }

    fn decided(&mut self, version: StateVersion, now: GroupMs, out: &mut Vec<GroupAction>) {
        if self.known.as_ref().is_none_or(|known| known.number != version.number) || self.is_decided {
            return;
        }
        self.is_decided = true;
        let state = &version.state;
        self.waits.decided(&version, now, self.settings.without);
        let silence_ms = state.lease_ms / 2;
        self.peers.retain(|id, peer| state.members.has(*id) || now < peer.heard_at + silence_ms);
        out.push(GroupAction::State(version));
    }

    /// Tells the caller its rights where they changed, and finds out what is obeyed.
    pub(crate) fn order(&mut self, now: GroupMs, out: &mut Vec<GroupAction>) {
        let Some(known) = self.known.as_ref().map(|known| known.number) else { return };
        let rights = self.rights();
        if let Some(obey) = self.given.order(known, rights, now) {
            out.push(GroupAction::Rights { number: known, rights, obey });
        }
        if !self.given.is_obeying() || self.settings.without == Some(GroupRule::ObeyFirst) {
            self.given.note_obeyed(known);
        }
    }

    /// This member made a change, and knows of the last questions before it: by its own answers, and by those of all that accepted.
    fn bound_leases(&mut self, version: &StateVersion, now: GroupMs) {
        let mut bounds = std::mem::take(&mut self.bounds);
        if self.settings.without == Some(GroupRule::AcceptorsTell) {
            bounds = QuestionBounds::default();
        }
        let members = version.state.members.all();
        bounds.accepted(&members, &self.answered.ages(&members, now), now);
        if !self.is_outside() {
            self.waits.bound(version.number, bounds);
        }
    }

    pub(crate) fn known_members(&self) -> MemberSet {
        self.known.as_ref().map(|known| known.state.members.all()).unwrap_or_default()
    }

    /// True if nobody of `who` has any more what was taken then.
    fn is_over(&self, since: TakenSince, who: &MemberSet, now: GroupMs) -> bool {
        let wait_ms = self.known.as_ref().map_or(GroupMs::MAX, |known| known.state.wait_ms());
        now >= since.at.saturating_add(wait_ms) || who.iter().all(|id| self.has_obeyed(*id, since.number))
    }

    /// True if this member does not write any more since then.
    fn has_stopped(&self, id: MemberId, since: TakenSince, now: GroupMs) -> bool {
        let wait_ms = self.known.as_ref().map_or(GroupMs::MAX, |known| known.state.wait_ms());
        self.has_obeyed(id, since.number) || now >= self.waits.lease_from(id, since, wait_ms).saturating_add(wait_ms)
    }

    /// The next end of a wait, if there is one; else the end of time.
    pub(crate) fn next_wait_end(&self, now: GroupMs) -> GroupMs {
        let wait_ms = self.known.as_ref().map_or(0, |known| known.state.wait_ms());
        self.waits.next_end(&self.known_members(), wait_ms, now)
    }

    pub(crate) fn is_lead_over(&self, from: Option<MemberId>, now: GroupMs) -> bool {
        let who = from.into_iter().collect();
        let is_over = self.waits.lead().is_some_and(|since| self.is_over(since, &who, now));
        is_over || self.settings.without == Some(GroupRule::WaitForLead)
    }

    pub(crate) fn is_leaving_over(&self, now: GroupMs) -> bool {
        let is_over = self.waits.leaving().is_some_and(|(who, since)| self.is_over(since, who, now));
        is_over || self.settings.without == Some(GroupRule::WaitForLeaving)
    }

    /// True if nobody writes in the closed epoch any more. Members that were lost long enough have nothing left.
    pub(crate) fn are_writes_over(&self, state: &GroupState, now: GroupMs) -> bool {
        let mut who = state.members.all();
        let wait_ms = state.wait_ms();
        let is_waited = |id: &MemberId| {
            let since = self.waits.lost(*id);
            since.is_some_and(|since| now >= since.at + wait_ms || self.settings.without == Some(GroupRule::WaitForLost))
        };
        who.retain(|id| !(state.lost.contains(id) && is_waited(id)));
        let has_stopped = |since| who.iter().all(|id| self.has_stopped(*id, since, now));
        let is_over = self.waits.writes().is_some_and(has_stopped);
        is_over || self.settings.without == Some(GroupRule::WaitForWrites)
    }

    pub(crate) fn is_outside(&self) -> bool {
        self.settings.engine == EngineKind::Outside
    }

    /// Group of this member. With an engine outside only a state binds to one, not a promise.
    pub(crate) fn group(&self) -> Option<GroupId> {
        match self.settings.engine {
            EngineKind::Builtin => self.register.group(),
            EngineKind::Outside => self.known.as_ref().map(|known| known.state.group),
        }
    }

    /// True while nothing binds this member to its group.
    pub(crate) fn is_free(&self) -> bool {
        match self.settings.engine {
            EngineKind::Builtin => self.register.is_free(),
            EngineKind::Outside => self.known.is_none(),
        }
    }

    /// Remembers what a peer says beside its messages. A host that is no member obeys nothing.
    pub(crate) fn hear_peer(&mut self, message: &GroupMessage, obeyed: VersionNumber, now: GroupMs) {
        let &GroupMessage { from, led, intent, sights, .. } = message;
        let at = now.saturating_sub(led.1);
        self.leader.heard(led.0, at, self.known.as_ref().map_or(0, |known| known.state.term));
        if self.peers.len() >= 2 * MEMBERS_MAX && !self.peers.contains_key(&from) {
            return;
        }
        let peer = self.peers.entry(from).or_insert(PeerSight { heard_at: now, obeyed, intent, sights });
        peer.obeyed = peer.obeyed.max(obeyed);
        (peer.heard_at, peer.intent, peer.sights) = (now, intent, sights);
    }

    /// Servers as other members see them that were heard lately.
    pub fn sights_of_others(&self, now: GroupMs) -> impl Iterator<Item = NodeSights> {
        let is_member = |id: &MemberId| self.known.as_ref().is_some_and(|known| known.state.lets(*id));
        let heard = self.peers.iter().filter(move |(id, _)| is_member(id) && !self.is_silent(**id, now));
        heard.map(|(_, peer)| peer.sights)
    }
}
