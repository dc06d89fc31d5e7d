//! Acts of operators between members: each is asked of one member, and done by the leader or by a member that is named. Their texts are not judged here.
//!
//! No act begins twice. The receiver remembers the acts of each asker by number, and begins only an act that names its life: the asker hears of it by its first
//! try. The asker repeats an act until it is answered, and asks another leader only if it named no life yet, or the one before says that it began nothing.

use crate::group_event::{GroupAction, MemberVoice, MessagePart};
use crate::group_member::GroupMember;
use crate::group_state::GroupLead;
use crate::membership::{GroupMs, MemberId};
use crate::operator_acts::{ACT_BYTES_MAX, ActAnswer, ActDoer, AskedAct, OperatorAct, SentAct};

/// Acts of one member that wait for their answers.
const ASKED_ACTS_MAX: usize = 32;
const REPEAT_MS: GroupMs = 300;
/// Leases in which a leader must be found: a claim takes less than two.
const LEADERLESS_LEASES: GroupMs = 3;

impl GroupMember {
    /// An operator asks for an act here.
    pub(crate) fn ask_act(
        &mut self,
        (ticket, to, text): (u64, Option<MemberId>, String),
        limit_ms: GroupMs,
        now: GroupMs,
        out: &mut Vec<GroupAction>,
    ) {
        let refusal = if text.len() > ACT_BYTES_MAX {
            Some(ActAnswer::Refused(format!("an act of {} bytes, limit is {ACT_BYTES_MAX}", text.len())))
        } else if self.acts.asked_count() >= ASKED_ACTS_MAX {
            Some(ActAnswer::Refused(format!("{ASKED_ACTS_MAX} acts wait already")))
        } else {
            (self.voice != MemberVoice::Speaks).then_some(ActAnswer::NotLeader)
        };
        if let Some(answer) = refusal {
            out.push(GroupAction::Acted { ticket, answer });
            return;
        }
        let until = now.saturating_add(limit_ms);
        self.acts.ask(AskedAct { ticket, to, text, asked_at: now, until, next_at: now, sent: None });
        self.pass_acts(now, out);
    }

    /// Sends acts that wait, repeats those without an answer, and ends those that get none any more.
    pub(crate) fn pass_acts(&mut self, now: GroupMs, out: &mut Vec<GroupAction>) {
        let mut sends = Vec::new();
        for mut asked in self.acts.take_asked() {
            match self.pass_act(&mut asked, now, &mut sends) {
                Some(answer) => out.push(GroupAction::Acted { ticket: asked.ticket, answer }),
                None => self.acts.ask(asked),
            }
        }
        for (to, act) in sends {
            if to == self.id {
                self.take_act(to, act, now, out);
            } else {
                self.send_to(to.host, Some(to), MessagePart::Act(act), now, out);
            }
        }
    }

    fn pass_act(&mut self, asked: &mut AskedAct, now: GroupMs, sends: &mut Vec<(MemberId, OperatorAct)>) -> Option<ActAnswer> {
        let receiver = self.receiver_of(asked);
        if let Some(sent) = &mut asked.sent {
            let is_there = receiver == Some((sent.to, sent.term)) && !self.is_silent(sent.to, now);
            let gone_since = *sent.gone_since.get_or_insert(now);
            if is_there {
                sent.gone_since = None;
            }
            let is_gone = now >= gone_since + self.lease_ms();
            match sent.life {
                Some(_) if now >= asked.until || is_gone => return Some(ActAnswer::Unknown),
                None if !is_there => asked.sent = None,
                Some(_) | None => {}
            }
        }
        if asked.sent.is_none_or(|sent| sent.life.is_none()) {
            let leaderless_ms = LEADERLESS_LEASES * self.lease_ms();
            if now >= asked.until.min(asked.asked_at + leaderless_ms) {
                return Some(ActAnswer::NotLeader);
            }
        }
        if now < asked.next_at {
            return None;
        }
        if let (None, Some((to, term))) = (&asked.sent, receiver) {
            let number = self.acts.next_number();
            let life = (to == self.id).then_some(self.acts.life());
            asked.sent = Some(SentAct { number, to, term, life, gone_since: None });
        }
        let SentAct { number, to, life, .. } = asked.sent?;
        asked.next_at = now + REPEAT_MS;
        let doer = if asked.to.is_none() { ActDoer::Leader } else { ActDoer::Receiver };
        sends.push((to, OperatorAct { number, doer, life, text: asked.text.clone() }));
        None
    }

    /// Member that is to do it, and its term where it must lead.
    fn receiver_of(&self, asked: &AskedAct) -> Option<(MemberId, u64)> {
        let state = &self.known.as_ref()?.state;
        match (asked.to, state.lead) {
            (Some(to), _) => state.members.has(to).then_some((to, 0)),
            (None, GroupLead::Held(leader)) => state.lets(leader).then_some((leader, state.term)),
            (None, GroupLead::Taken { .. }) => None,
        }
    }

    pub(crate) fn drop_act(&mut self, ticket: u64) {
        self.acts.drop_asked(ticket);
    }

    /// A member asks for an act.
    pub(crate) fn take_act(&mut self, from: MemberId, act: OperatorAct, now: GroupMs, out: &mut Vec<GroupAction>) {
        let Some(state) = self.known.as_ref().map(|known| known.state.clone()).filter(|state| state.lets(from)) else { return };
        let life = self.acts.life();
        if act.life != Some(life) {
            self.send_to(from.host, Some(from), MessagePart::ActLife { number: act.number, life }, now, out);
            return;
        }
        let leads = self.leads(now);
        let taken = self.acts.taken_of(from, |member| state.members.has(member));
        if let Some((_, answer)) = taken.acts.iter().find(|(number, _)| *number == act.number) {
            if let Some(answer) = answer.clone() {
                self.send_acted(from, act.number, answer, now, out);
            }
        } else if taken.is_forgotten(act.number) || !taken.has_room() {
            self.send_acted(from, act.number, ActAnswer::Unknown, now, out);
        } else if act.doer == ActDoer::Leader && !leads {
            taken.acts.push_back((act.number, Some(ActAnswer::NotLeader)));
            self.send_acted(from, act.number, ActAnswer::NotLeader, now, out);
        } else {
            taken.acts.push_back((act.number, None));
            out.push(GroupAction::Act { from, act });
        }
    }

    /// An act that this member was to do has ended.
    pub(crate) fn acted(&mut self, from: MemberId, number: u64, answer: ActAnswer, now: GroupMs, out: &mut Vec<GroupAction>) {
        let answer = shortened(answer);
        self.acts.end_taken(from, number, answer.clone());
        self.send_acted(from, number, answer, now, out);
    }

    /// The receiver names its life: it began nothing in this one.
    pub(crate) fn hear_life(&mut self, from: MemberId, number: u64, life: u64, now: GroupMs, out: &mut Vec<GroupAction>) {
        let Some(asked) = self.acts.asked_mut(from, number) else { return };
        let Some(sent) = asked.sent.as_mut() else { return };
        match sent.life {
            None => {
                (sent.life, asked.next_at) = (Some(life), now);
                self.pass_acts(now, out);
            }
            Some(named) if named == life => {}
            // An earlier life may have begun it.
            Some(_) => {
                let ticket = asked.ticket;
                self.acts.drop_asked(ticket);
                out.push(GroupAction::Acted { ticket, answer: ActAnswer::Unknown });
            }
        }
    }

    fn send_acted(&mut self, to: MemberId, number: u64, answer: ActAnswer, now: GroupMs, out: &mut Vec<GroupAction>) {
        if to == self.id {
            self.hear_acted(to, number, answer, now, out);
        } else {
            self.send_to(to.host, Some(to), MessagePart::Acted { number, answer }, now, out);
        }
    }

    /// The answer to an act that was asked for here.
    pub(crate) fn hear_acted(
        &mut self,
        from: MemberId,
        number: u64,
        answer: ActAnswer,
        now: GroupMs,
        out: &mut Vec<GroupAction>,
    ) {
        let Some(asked) = self.acts.asked_mut(from, number) else { return };
        if answer == ActAnswer::NotLeader {
            (asked.sent, asked.next_at) = (None, now + REPEAT_MS);
            return;
        }
        let ticket = asked.ticket;
        self.acts.drop_asked(ticket);
        out.push(GroupAction::Acted { ticket, answer });
    }
}

fn shortened(answer: ActAnswer) -> ActAnswer {
    let short = |mut text: String| {
        text.truncate(text.floor_char_boundary(ACT_BYTES_MAX));
        text
    };
    match answer {
        ActAnswer::Done(text) => ActAnswer::Done(short(text)),
        ActAnswer::Refused(text) => ActAnswer::Refused(short(text)),
        ActAnswer::NotLeader | ActAnswer::Unknown => answer,
    }
}
