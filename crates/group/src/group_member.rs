//! A member: what it knows, what it may do and for how long.
//!
//! 1. A version that a read confirmed gives a member what it says, until `wd_lease` after the question was sent, by its own clock, unless it hears of
//!    a newer version before that says otherwise.
//! 2. A right that was given is first taken, by a version that gives it to nobody. It is given again only after all who had it obey that version, or
//!    `wd_lease` + 5 % after the giver saw it decided.
//!
//! Proof, with the lease L and clocks whose paces differ by less than 5 %: a read sent at t and confirmed for v shows that nothing newer than v was
//! decided before t. So whoever acts on v until t + L acts, if something newer is decided at c, until less than c + L. The giver knows at k ≥ c that
//! it is decided and waits until k + L + 5 %. Nobody has it any more.

use std::collections::{BTreeMap, VecDeque};

use crate::group_event::{
    EngineKind, GroupAction, GroupMessage, GroupRequest, GroupSettings, MemberIntent, MemberRights, NodeSights, RightsTaken,
    ServerMark,
};
use crate::group_rule::GroupRule;
use crate::group_state::{GroupId, GroupLead, GroupState, StateVersion, VersionNumber};
use crate::membership::{GroupMs, HostNumber, MEMBERS_MAX, MemberDuty, MemberId, MemberRow, MemberSet};
use crate::operator_acts::{AskedAct, TakenActs};
use crate::register::{GroupRegister, RegisterEvent};
use crate::stored_vote::StoredVote;

/// Requests that wait.
pub(crate) const REQUESTS_MAX: usize = 32;

#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerSight {
    pub(crate) heard_at: GroupMs,
    pub(crate) obeyed: VersionNumber,
    pub(crate) intent: MemberIntent,
    pub(crate) sights: NodeSights,
}

/// Something taken, since it is known to be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TakenSince {
    at: GroupMs,
    number: VersionNumber,
}

/// Waits before something is given again. Each begins with the first decided version seen that takes it: also after a restart.
#[derive(Clone, Debug, Default)]
pub(crate) struct TakenWaits {
    lead: Option<(u64, TakenSince)>,
    writes: Option<(u64, TakenSince)>,
    leaving: Option<(MemberSet, TakenSince)>,
    lost: BTreeMap<MemberId, TakenSince>,
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
    /// State and end of the last lease.
    granted: Option<(GroupMs, StateVersion)>,
    ordered: MemberRights,
    pub(crate) obeyed: VersionNumber,
    obeying: Option<VersionNumber>,
    /// Newest term, and when its leader was last known to have confirmed a read.
    pub(crate) led: (u64, GroupMs),
    /// The link to the leader was closed then.
    pub(crate) closed_at: Option<GroupMs>,
    pub(crate) peers: BTreeMap<MemberId, PeerSight>,
    waits: TakenWaits,
    is_fresh: bool,
    pub(crate) lost_since: BTreeMap<MemberId, GroupMs>,
    pub(crate) intent: MemberIntent,
    pub(crate) sights: NodeSights,
    pub(crate) parameters: Option<u64>,
    pub(crate) requests: VecDeque<(u64, GroupRequest)>,
    /// Ticket and number of the change under way that answers it.
    pub(crate) asked: Option<(u64, u64)>,
    pub(crate) is_changing: bool,
    pub(crate) stopped_epoch: Option<(u64, u64)>,
    pub(crate) read_at: GroupMs,
    pub(crate) retry_at: GroupMs,
    pub(crate) dice: u32,
    pub(crate) begun_at: GroupMs,
    /// Hosts without a group: their rows, when they were heard, and whether they know this member.
    pub(crate) strangers: BTreeMap<u8, (MemberRow, GroupMs)>,
    /// Hosts that greet and are no members of this group, and when: a leader admits them.
    pub(crate) outsiders: BTreeMap<HostNumber, (MemberRow, GroupMs)>,
    pub(crate) met: BTreeMap<u8, MemberId>,
    pub(crate) founder_text: String,
    pub(crate) mark: ServerMark,
    /// An old look does not count: a group may have formed since, and lost a disk.
    pub(crate) mark_at: GroupMs,
    /// Begin and end of the time in which an engine outside showed no state.
    pub(crate) empty: Option<(GroupMs, GroupMs)>,
    pub(crate) is_mute: bool,
    /// No other life of this member has the same.
    pub(crate) life: u64,
    pub(crate) act_number: u64,
    pub(crate) asked_acts: Vec<AskedAct>,
    pub(crate) taken_acts: BTreeMap<MemberId, TakenActs>,
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
            granted: None,
            ordered: MemberRights::default(),
            obeyed: VersionNumber::default(),
            obeying: None,
            led: (term, now),
            closed_at: None,
            peers: BTreeMap::new(),
            waits: TakenWaits::default(),
            is_fresh: true,
            lost_since: BTreeMap::new(),
            intent: MemberIntent::Serves,
            sights: NodeSights::default(),
            parameters: None,
            requests: VecDeque::new(),
            asked: None,
            is_changing: false,
            stopped_epoch: None,
            read_at: now,
            retry_at: now,
            dice: 0,
            begun_at: now,
            strangers: BTreeMap::new(),
            outsiders: BTreeMap::new(),
            met: BTreeMap::new(),
            founder_text: String::new(),
            mark: ServerMark::Unseen,
            mark_at: now,
            empty: None,
            is_mute: false,
            life: first_number,
            act_number: first_number,
            asked_acts: Vec::new(),
            taken_acts: BTreeMap::new(),
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

    pub(crate) fn lease_ms(&self) -> GroupMs {
        self.known.as_ref().map_or(self.settings.lease_ms, |known| known.state.lease_ms)
    }

    /// Silence after which a member counts as lost, and a leader as gone.
    pub(crate) fn silence_ms(&self) -> GroupMs {
        self.lease_ms() / 2
    }

    pub(crate) fn period_ms(&self) -> GroupMs {
        self.lease_ms() / 8
    }

    /// A new version is asked for at each tick for the time of two reads: what it opens waits for a read that shows it.
    pub(crate) fn read_pause_ms(&self, now: GroupMs) -> GroupMs {
        let granted = self.granted.as_ref().map(|(_, granted)| granted.number);
        let is_new = self.known.as_ref().is_some_and(|known| granted != Some(known.number));
        if is_new && now < self.heard_at + 2 * self.period_ms() { 0 } else { self.period_ms() }
    }

    pub(crate) fn is_silent(&self, id: MemberId, now: GroupMs) -> bool {
        id != self.id && self.peers.get(&id).is_none_or(|peer| now > peer.heard_at + self.silence_ms())
    }

    pub(crate) fn has_obeyed(&self, id: MemberId, number: VersionNumber) -> bool {
        if id == self.id {
            return self.obeyed >= number;
        }
        self.peers.get(&id).is_some_and(|peer| peer.obeyed >= number)
    }

    /// Rights by the last confirmed read, less what a newer version says otherwise.
    pub(crate) fn rights(&self) -> MemberRights {
        let (Some((until, granted)), Some(known)) = (&self.granted, &self.known) else { return MemberRights::default() };
        let late = self.settings.without == Some(GroupRule::ObeyFirst);
        let known = if late { granted } else { known };
        let row = known.state.members.row(self.id);
        let leads = granted.state.led_by(self.id) && known.state.led_by(self.id) && granted.state.term == known.state.term;
        let given = if self.settings.without == Some(GroupRule::ConfirmedOpening) { known } else { granted };
        let open = given.state.open_for(self.id).filter(|open| known.state.open_for(self.id) == Some(*open));
        let serves = row.is_some_and(|row| row.duty == MemberDuty::Serves);
        MemberRights { until: *until, leads: (leads && serves).then_some(granted.state.term), writes: open.filter(|_| serves) }
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
                self.decided(version.clone(), now, out);
                return Some(version);
            }
            RegisterEvent::Refused { decided } => {
                self.is_changing = false;
                self.asked = None;
                if let Some(version) = decided {
                    self.hear(version.clone(), now);
                    self.decided(version, now, out);
                }
            }
            RegisterEvent::Empty => self.empty = Some((self.empty.map_or(now, |(since, _)| since), now)),
        }
        None
    }

    fn hear(&mut self, version: StateVersion, now: GroupMs) {
        if self.known.as_ref().is_some_and(|known| !version.follows(known)) {
            return;
        }
        // In a new group nobody led yet: the founder has the time that a leader has.
        let is_first = self.known.as_ref().is_none_or(|known| known.number.counter == 0);
        if version.state.term > self.led.0 || is_first {
            self.led = (version.state.term, now);
            self.closed_at = None;
        }
        self.is_decided = false;
        self.empty = None;
        self.known = Some(version);
        (self.heard_at, self.read_at) = (now, self.read_at.min(now));
    }

    fn grant(&mut self, version: &StateVersion, asked_at: GroupMs, now: GroupMs) {
        let from_answer = self.settings.without == Some(GroupRule::LeaseFromQuestion);
        let until = if from_answer { now } else { asked_at } + version.state.lease_ms;
        let longer = self.granted.as_ref().filter(|(_, granted)| granted.number == version.number).map_or(0, |(until, _)| *until);
        self.granted = Some((until.max(longer), version.clone()));
        let leads = match version.state.lead {
            GroupLead::Held(id) | GroupLead::Taken { to: id, .. } => id == self.id && version.state.lets(id),
        };
        if leads {
            self.led = self.led.max((version.state.term, asked_at));
        }
    }

    fn decided(&mut self, version: StateVersion, now: GroupMs, out: &mut Vec<GroupAction>) {
        if self.known.as_ref().is_none_or(|known| known.number != version.number) || self.is_decided {
            return;
        }
        self.is_decided = true;
        let state = &version.state;
        let forgets = self.is_fresh && self.settings.without == Some(GroupRule::RestartedGiverWaits);
        let at = if forgets { now.saturating_sub(state.wait_ms()) } else { now };
        self.is_fresh = false;
        let since = TakenSince { at, number: version.number };
        let taken = matches!(state.lead, GroupLead::Taken { .. }).then_some(state.term);
        begin(&mut self.waits.lead, taken, since);
        begin(&mut self.waits.writes, state.writes.closed(), since);
        let leaving = state.members.next.as_ref().map(|_| state.members.leaving());
        begin(&mut self.waits.leaving, leaving, since);
        self.waits.lost.retain(|id, _| state.lost.contains(id));
        self.lost_since.retain(|id, _| state.lost.contains(id));
        for id in &state.lost {
            self.waits.lost.entry(*id).or_insert(since);
            self.lost_since.entry(*id).or_insert(now);
        }
        let silence_ms = state.lease_ms / 2;
        self.peers.retain(|id, peer| state.members.has(*id) || now < peer.heard_at + silence_ms);
        out.push(GroupAction::State(version));
    }

    /// Tells the caller its rights where they changed, and finds out what is obeyed.
    pub(crate) fn order(&mut self, now: GroupMs, out: &mut Vec<GroupAction>) {
        let Some(known) = self.known.as_ref().map(|known| known.number) else { return };
        let rights = self.rights();
        let was = self.ordered;
        let keeps = (was.leads.is_none() || was.leads == rights.leads) && (was.writes.is_none() || was.writes == rights.writes);
        let takes = now < was.until && !keeps;
        if takes || self.obeying.is_some_and(|obeying| obeying < known) {
            self.obeying = Some(known);
            out.push(GroupAction::Rights { number: known, rights, obey: RightsTaken::Something });
        } else if rights != was {
            let obey = if self.obeying.is_some() { RightsTaken::Something } else { RightsTaken::Nothing };
            out.push(GroupAction::Rights { number: known, rights, obey });
        }
        self.ordered = rights;
        if self.obeying.is_none() || self.settings.without == Some(GroupRule::ObeyFirst) {
            self.obeyed = known;
        }
    }

    pub(crate) fn obey(&mut self, number: VersionNumber) {
        if self.obeying.take_if(|obeying| *obeying == number).is_some() {
            self.obeyed = number;
        }
    }

    /// True if nobody of `who` has any more what was taken then.
    fn is_over(&self, since: TakenSince, who: &MemberSet, now: GroupMs) -> bool {
        let wait_ms = self.known.as_ref().map_or(GroupMs::MAX, |known| known.state.wait_ms());
        now >= since.at.saturating_add(wait_ms) || who.iter().all(|id| self.has_obeyed(*id, since.number))
    }

    pub(crate) fn is_lead_over(&self, from: Option<MemberId>, now: GroupMs) -> bool {
        let who = from.into_iter().collect();
        let is_over = self.waits.lead.as_ref().is_some_and(|(_, since)| self.is_over(*since, &who, now));
        is_over || self.settings.without == Some(GroupRule::WaitForLead)
    }

    pub(crate) fn is_leaving_over(&self, now: GroupMs) -> bool {
        let waits = self.waits.leaving.as_ref();
        let is_over = waits.is_some_and(|(who, since)| self.is_over(*since, who, now));
        is_over || self.settings.without == Some(GroupRule::WaitForLeaving)
    }

    /// True if nobody writes in the closed epoch any more. Members that were lost long enough have nothing left.
    pub(crate) fn are_writes_over(&self, state: &GroupState, now: GroupMs) -> bool {
        let mut who = state.members.all();
        let wait_ms = state.wait_ms();
        let is_waited = |id: &MemberId| {
            let since = self.waits.lost.get(id);
            since.is_some_and(|since| now >= since.at + wait_ms || self.settings.without == Some(GroupRule::WaitForLost))
        };
        who.retain(|id| !(state.lost.contains(id) && is_waited(id)));
        let is_over = self.waits.writes.as_ref().is_some_and(|(_, since)| self.is_over(*since, &who, now));
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
        if (led.0, at) > self.led && led.0 <= self.led.0.max(self.known.as_ref().map_or(0, |known| known.state.term)) {
            self.led = (led.0, at);
            if self.closed_at.is_some_and(|closed| at > closed) {
                self.closed_at = None;
            }
        }
        if self.peers.len() >= 2 * MEMBERS_MAX && !self.peers.contains_key(&from) {
            return;
        }
        let peer = self.peers.entry(from).or_insert(PeerSight { heard_at: now, obeyed, intent, sights });
        peer.obeyed = peer.obeyed.max(obeyed);
        (peer.heard_at, peer.intent, peer.sights) = (now, intent, sights);
    }

    /// Servers as other members see them that were heard lately.
    pub fn sights_of_others(&self, now: GroupMs) -> Vec<NodeSights> {
        let is_member = |id: &MemberId| self.known.as_ref().is_some_and(|known| known.state.lets(*id));
        let heard = self.peers.iter().filter(|(id, _)| is_member(id) && !self.is_silent(**id, now));
        heard.map(|(_, peer)| peer.sights).collect()
    }
}

/// Begins a wait where something else is taken than before.
fn begin<T: PartialEq>(wait: &mut Option<(T, TakenSince)>, taken: Option<T>, since: TakenSince) {
    if wait.as_ref().map(|(what, _)| what) != taken.as_ref() {
        *wait = taken.map(|what| (what, since));
    }
}
