//! One event in, actions out.

use crate::group_event::{
    GroupAction, GroupAnswer, GroupEvent, GroupMessage, GroupRequest, GroupSettings, MemberIntent, MemberVoice, MessagePart,
    RemovalSettings,
};
use crate::group_member::GroupMember;
use crate::group_state::{FAILOVER_TEXT_BYTES_MAX, GroupState, StateVersion, VersionNumber};
use crate::last_questions::QuestionBounds;
use crate::membership::{GroupMs, MEMBERS_MAX, MemberId};
use crate::register::{RegisterEvent, RegisterMessage, RegisterOutput};

/// Time of an attempt before the next one, beside the dice.
const RETRY_MS: GroupMs = 60;

/// Deterministic. Actions are to be obeyed in order.
pub fn group_step(member: &mut GroupMember, event: GroupEvent, now: GroupMs) -> Vec<GroupAction> {
    let mut out = Vec::new();
    let mut register = Vec::new();
    match event {
        GroupEvent::Tick { dice } => member.tick(dice, now, &mut register, &mut out),
        GroupEvent::Message(message) => member.receive(*message, now, &mut register, &mut out),
        GroupEvent::Written { number } => member.register.written(number, &mut register),
        GroupEvent::WriteFailed => member.voice = MemberVoice::Mute,
        GroupEvent::Obeyed { number } => {
            member.given.obey(number);
            // The leader waits for it.
            member.tell_all(now, &mut out);
        }
        GroupEvent::LinkClosed { member: peer } => {
            let leader = member.known.as_ref().is_some_and(|known| known.state.led_by(peer));
            if leader {
                member.leader.link_closed(now);
            }
        }
        GroupEvent::Intent(intent) => member.intent = intent,
        GroupEvent::Sights(sights) => {
            member.sights = sights;
            member.tell_all(now, &mut out);
        }
        GroupEvent::Removals(removals) => {
            let RemovalSettings { no_show_ms, lost_removal_ms, shutdowns } = removals;
            member.settings = GroupSettings { no_show_ms, lost_removal_ms, shutdowns, ..member.settings.clone() };
        }
        GroupEvent::Parameters(digest) => member.parameters = Some(digest),
        GroupEvent::Founding { text, mark } => {
            if text.len() <= FAILOVER_TEXT_BYTES_MAX {
                member.founding.set_text(text);
            }
            member.founding.set_mark(mark, now);
        }
        GroupEvent::Request { ticket, request } => member.request(ticket, request, now, &mut out),
        GroupEvent::Form { ticket, order } => member.order_forming(ticket, order, now, &mut register, &mut out),
        GroupEvent::Engine(event) => register.push(RegisterOutput::Event(event)),
        GroupEvent::Act { ticket, to, text, limit_ms } => member.ask_act((ticket, to, text), limit_ms, now, &mut out),
        GroupEvent::ActDropped { ticket } => member.drop_act(ticket),
        GroupEvent::Acted { from, number, answer } => member.acted(from, number, answer, now, &mut out),
    }
    member.obey_register(register, now, &mut out);
    member.propose(now, &mut out);
    member.order(now, &mut out);
    member.refuse_requests(now, &mut out);
    out
}

impl GroupMember {
    fn tick(&mut self, dice: u32, now: GroupMs, register: &mut Vec<RegisterOutput>, out: &mut Vec<GroupAction>) {
        self.dice = dice;
        self.pass_acts(now, out);
        if self.voice == MemberVoice::Replaced {
            return;
        }
        if !self.is_outside() && self.voice == MemberVoice::Speaks {
            self.register.tick(now, dice, register);
        }
        if now < self.read_at {
            return;
        }
        self.read_at = now + self.read_pause_ms(now);
        if self.is_outside() {
            out.push(GroupAction::ReadEngine);
            self.tell_all(now, out);
            self.create(now, out);
            self.greet(now, out);
        } else {
            self.answered.note(self.id, now);
            self.register.read(now, register);
            self.form(now, register, out);
        }
    }

    /// Creates the group's first state in an engine outside.
    fn create(&mut self, now: GroupMs, out: &mut Vec<GroupAction>) {
        if let Some(new) = self.found_outside(now) {
            self.is_changing = true;
            out.push(GroupAction::CreateEngine { new: Box::new(new) });
        }
    }

    /// Proposes a group while there is none, and repeats a proposal that is not decided.
    fn form(&mut self, now: GroupMs, register: &mut Vec<RegisterOutput>, out: &mut Vec<GroupAction>) {
        if let Some(version) = self.found(now) {
            self.register.propose(version, register);
        }
        self.greet(now, out);
        let Some(stored) = self.register.stored().accepted.clone() else { return };
        let is_mine = stored.number == VersionNumber { counter: 0, by: self.id } && !self.is_decided;
        if is_mine {
            for id in stored.state.members.voters.iter().filter(|id| **id != self.id) {
                self.send_to(id.host, Some(*id), MessagePart::Propose(stored.clone()), now, out);
            }
        }
    }

    /// Greets all hosts while there is no group.
    fn greet(&self, now: GroupMs, out: &mut Vec<GroupAction>) {
        // Also a host that is no member, so that it is heard when it shall become one.
        let is_outsider = self.is_free() || self.known.as_ref().is_none_or(|known| !known.state.members.has(self.id));
        if is_outsider {
            let hosts: Vec<u8> = self.settings.hosts.iter().copied().filter(|host| *host != self.settings.host).collect();
            for host in hosts {
                let to = self.hosts_met.incarnation(host);
                self.send_to(host, to, MessagePart::Hello { row: self.row() }, now, out);
            }
        }
    }

    /// Sends the fields beside messages alone: with an engine outside, and where they are news.
    fn tell_all(&self, now: GroupMs, out: &mut Vec<GroupAction>) {
        let Some(known) = &self.known else { return };
        for to in known.state.members.all().into_iter().filter(|to| *to != self.id) {
            self.send_to(to.host, Some(to), MessagePart::News, now, out);
        }
    }

    pub(crate) fn send_to(&self, host: u8, to: Option<MemberId>, part: MessagePart, now: GroupMs, out: &mut Vec<GroupAction>) {
        let is_greeting = matches!(part, MessagePart::Hello { .. });
        let message = GroupMessage {
            group: self.group().filter(|_| !(is_greeting && self.is_free())),
            from: self.id,
            to,
            led: (self.leader.term(), now.saturating_sub(self.leader.led_at())),
            obeyed: self.told_obeyed(),
            intent: self.intent,
            sights: self.sights,
            parameters: self.parameters,
            answered: self.answered_beside(&part, now),
            part,
        };
        out.push(GroupAction::Send { host, message: Box::new(message) });
    }

    fn receive(&mut self, message: GroupMessage, now: GroupMs, register: &mut Vec<RegisterOutput>, out: &mut Vec<GroupAction>) {
        let is_for_other = message.to.is_some_and(|to| to != self.id);
        if message.from == self.id || self.voice != MemberVoice::Speaks {
            return;
        }
        if message.group.is_some_and(|group| self.tell_replaced(group, message.from, now, out)) {
            return;
        }
        if let MessagePart::Replaced { group } = message.part {
            if message.to == Some(self.id) {
                self.hear_replaced(group, message.from, out);
            }
            return;
        }
        if let MessagePart::Hello { row } = message.part {
            self.meet(&message, row, now);
            if self.known.is_some() && (message.group.is_none() || message.group == self.group()) {
                self.hear_peer(&message, VersionNumber::default(), now);
                self.meet_outsider(&message, row, now);
            }
            // A host without a group learns that there is one, and an unknown incarnation gets its name.
            let is_unknown = message.group.is_none() || message.to != Some(self.id);
            if is_unknown && !self.is_free() {
                self.send_to(message.from.host, Some(message.from), MessagePart::Hello { row: self.row() }, now, out);
            }
            return;
        }
        let Some(group) = message.group.filter(|_| !is_for_other && message.to.is_some()) else { return };
        if self.is_outside() {
            if self.group() == Some(group) {
                self.hear_peer(&message, message.obeyed, now);
                self.hear_act(message.from, message.part, now, out);
            }
            return;
        }
        if !is_sound(&message.part, group) || !self.joins(&message.part, group) {
            return;
        }
        self.hear_peer(&message, message.obeyed, now);
        self.note_question(&message, now);
        match message.part {
            MessagePart::Propose(version) => self.register.propose(version, register),
            MessagePart::Register(part) => self.register.take(message.from, part, register),
            part @ (MessagePart::Act(_) | MessagePart::ActLife { .. } | MessagePart::Acted { .. }) => {
                self.hear_act(message.from, part, now, out);
            }
            MessagePart::News | MessagePart::Hello { .. } | MessagePart::Replaced { .. } => {}
        }
    }

    fn hear_act(&mut self, from: MemberId, part: MessagePart, now: GroupMs, out: &mut Vec<GroupAction>) {
        match part {
            MessagePart::Act(act) => self.take_act(from, act, now, out),
            MessagePart::ActLife { number, life } => self.hear_life(from, number, life, now, out),
            MessagePart::Acted { number, answer } => self.hear_acted(from, number, answer, now, out),
            MessagePart::Register(_)
            | MessagePart::Hello { .. }
            | MessagePart::Propose(_)
            | MessagePart::News
            | MessagePart::Replaced { .. } => {}
        }
    }

    /// True if the message is of this member's group, or names a member without one.
    fn joins(&mut self, part: &MessagePart, group: MemberId) -> bool {
        let names_me = match part {
            MessagePart::Propose(version) | MessagePart::Register(RegisterMessage::Cast { version, .. }) => {
                version.state.members.has(self.id)
            }
            MessagePart::Register(RegisterMessage::Prepare { .. }) => true,
            // Of a working group: the member missed the version that admits it.
            MessagePart::Register(RegisterMessage::Ask { known, .. }) => known.counter > 0,
            MessagePart::Register(
                RegisterMessage::Promise { .. }
                | RegisterMessage::Accepted { .. }
                | RegisterMessage::Refused { .. }
                | RegisterMessage::Show { .. },
            )
            | MessagePart::Hello { .. }
            | MessagePart::News
            | MessagePart::Replaced { .. }
            | MessagePart::Act(_)
            | MessagePart::ActLife { .. }
            | MessagePart::Acted { .. } => false,
        };
        match part {
            MessagePart::Propose(version) => {
                let is_majority = 2 * version.state.members.rows.len() > self.settings.hosts.len();
                names_me && is_majority && (self.register.is_free() || self.register.group() == Some(group))
            }
            MessagePart::Register(_)
            | MessagePart::Hello { .. }
            | MessagePart::News
            | MessagePart::Replaced { .. }
            | MessagePart::Act(_)
            | MessagePart::ActLife { .. }
            | MessagePart::Acted { .. } => self.register.group() == Some(group) || (names_me && self.register.bind(group)),
        }
    }

    fn request(&mut self, ticket: u64, request: GroupRequest, now: GroupMs, out: &mut Vec<GroupAction>) {
        let answer = if !self.leads(now) {
            GroupAnswer::NotLeader
        } else if self.requests.push(ticket, request) {
            return;
        } else {
            GroupAnswer::Busy
        };
        out.push(GroupAction::Answer { ticket, answer });
    }

    fn refuse_requests(&mut self, now: GroupMs, out: &mut Vec<GroupAction>) {
        if self.leads(now) {
            return;
        }
        // A leader later says anew that writes stopped: the opening may have been refused here.
        self.stopped_epoch = None;
        let refused = self.requests.end_all().map(|ticket| GroupAction::Answer { ticket, answer: GroupAnswer::NotLeader });
        out.extend(refused);
    }

    fn obey_register(&mut self, outputs: Vec<RegisterOutput>, now: GroupMs, out: &mut Vec<GroupAction>) {
        // Messages say what is obeyed after the events beside them.
        let mut sends = Vec::new();
        for output in outputs {
            match output {
                RegisterOutput::Send { to, message } => sends.push((to, message)),
                RegisterOutput::Write { number, vote } => out.push(GroupAction::Write { number, text: vote.show() }),
                RegisterOutput::Event(event) => self.note_event(event, now, out),
            }
        }
        self.order(now, out);
        if self.voice != MemberVoice::Speaks {
            return;
        }
        for (to, message) in sends {
            self.send_to(to.host, Some(to), MessagePart::Register(message), now, out);
        }
    }

    fn note_event(&mut self, event: RegisterEvent, now: GroupMs, out: &mut Vec<GroupAction>) {
        let Some(StateVersion { state, .. }) = self.note(event, now, out) else { return };
        let Some((ticket, change)) = self.requests.take_asked() else { return };
        if change == state.change {
            // Failover waits for several in turn; attempts that fail keep apart.
            self.retry_at = now;
            self.requests.end_first();
            out.push(GroupAction::Answer { ticket, answer: GroupAnswer::Done });
        }
    }

    /// Questions are answered at once, and acceptances may end the leases of others early.
    fn note_question(&mut self, message: &GroupMessage, now: GroupMs) {
        match message.part {
            MessagePart::Register(RegisterMessage::Ask { .. }) => self.answered.note(message.from, now),
            MessagePart::Register(RegisterMessage::Accepted { attempt }) if self.register.is_casting(attempt) => {
                let members = self.known_members();
                let told = message.answered.as_deref().unwrap_or_default();
                self.bounds.accepted(&members, told, now);
            }
            _ => {}
        }
    }

    fn answered_beside(&self, part: &MessagePart, now: GroupMs) -> Option<Vec<(MemberId, GroupMs)>> {
        let accepts = matches!(part, MessagePart::Register(RegisterMessage::Accepted { .. }));
        accepts.then(|| self.answered.ages(&self.known_members(), now))
    }

    fn propose(&mut self, now: GroupMs, out: &mut Vec<GroupAction>) {
        if !self.is_outside() && self.register.is_busy() {
            return;
        }
        let Some(next) = self.next_state(now, out) else { return };
        let Some(expect) = self.known.as_ref().map(|known| known.number) else { return };
        let new = GroupState { change: next.change + 1, ..next };
        self.retry_at = now + RETRY_MS + u64::from(self.dice % 100);
        self.is_changing = true;
        if self.is_outside() {
            out.push(GroupAction::ChangeEngine { expect, new: Box::new(new) });
            return;
        }
        let mut register = Vec::new();
        self.bounds = QuestionBounds::default();
        self.register.change(expect, new, now, &mut register);
        self.is_changing = self.register.is_busy();
        self.obey_register(register, now, out);
    }

    /// Intent of this member, as its peers hear it.
    pub fn intent(&self) -> MemberIntent {
        self.intent
    }
}

/// Bounds of what a peer sent.
fn is_sound(part: &MessagePart, group: MemberId) -> bool {
    let version = match part {
        MessagePart::Propose(version) | MessagePart::Register(RegisterMessage::Cast { version, .. }) => Some(version),
        MessagePart::Register(RegisterMessage::Promise { accepted: newer, .. } | RegisterMessage::Show { newer, .. }) => {
            newer.as_ref()
        }
        MessagePart::Register(
            RegisterMessage::Prepare { .. }
            | RegisterMessage::Accepted { .. }
            | RegisterMessage::Refused { .. }
            | RegisterMessage::Ask { .. },
        )
        | MessagePart::Hello { .. }
        | MessagePart::News
        | MessagePart::Replaced { .. }
        | MessagePart::Act(_)
        | MessagePart::ActLife { .. }
        | MessagePart::Acted { .. } => None,
    };
    version.is_none_or(|version| {
        let state = &version.state;
        state.group == group && state.members.rows.len() <= MEMBERS_MAX && state.check().is_ok()
    })
}
