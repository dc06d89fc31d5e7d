//! A member's questions to etcd, as the program's `EtcdEngine` asks them and as its driver takes the answers.

use weir_failover::Ms;
use weir_group::{GroupEvent, GroupState, RegisterEvent};

use crate::engine_talk::EngineQuestion;
use crate::etcd::RevisionCheck;
use crate::kinds::GroupPart;
use crate::member_host::MemberDue;
use crate::world::{Due, World};

/// Parts of the lease for an answer. A change may be made later than that.
const ANSWER_PARTS: Ms = 4;
/// Longest age of a read that is not linearizable.
const STALE_MS: Ms = 3_000;
/// Time in which an etcd that has a leader again obeys what waited.
const CATCHES_UP_MS: Ms = 50;

impl World {
    pub(crate) fn read_engine(&mut self, at: usize) {
        let now = self.now;
        let Some(host) = self.member_host(at) else { return };
        let asked_at = host.clock(now);
        self.ask_engine(at, EngineQuestion::Read { asked_at });
    }

    /// `expect` 0: the first state.
    pub(crate) fn change_engine(&mut self, at: usize, expect: u64, new: Box<GroupState>) {
        let number = self.ask_engine(at, EngineQuestion::Change { expect, new });
        let life = self.weirs[at].life;
        if let Some(host) = self.member_host(at) {
            host.engine.change = Some(number);
        }
        self.later(self.plan.lease_ms / ANSWER_PARTS, Due::Member { weir: at, due: MemberDue::EngineLimit { life, number } });
    }

    fn ask_engine(&mut self, at: usize, question: EngineQuestion) -> u64 {
        let (life, delay, until) = (self.weirs[at].life, self.delay(), self.now + self.plan.lease_ms / ANSWER_PARTS);
        let Some(host) = self.member_host(at) else { return 0 };
        host.engine.asked += 1;
        let number = host.engine.asked;
        self.later(delay, Due::Member { weir: at, due: MemberDue::EngineAsked { life, number, until, question } });
        number
    }

    /// A question is there. An etcd without a leader refuses it, or forgets it, or obeys it when it has one again.
    pub(crate) fn engine_asked(&mut self, at: usize, life: u32, (number, until): (u64, Ms), question: EngineQuestion) {
        if !self.passes(self.end_of(at), self.end_of_etcd()) || self.dice.percent(self.plan.loss / 2) {
            return;
        }
        let silent_ms = self.etcd.silent_until.saturating_sub(self.now);
        if silent_ms == 0 {
            let event = self.engine_obeys(question);
            return self.engine_answers(at, life, (number, until), event);
        }
        match (self.dice.below(3), &question) {
            (0, EngineQuestion::Change { .. }) => {
                self.engine_answers(at, life, (number, until), RegisterEvent::Refused { decided: None });
            }
            (0, EngineQuestion::Read { .. }) | (1, _) => {}
            _ => {
                let delay = silent_ms + self.dice.within(0, CATCHES_UP_MS);
                self.later(delay, Due::Member { weir: at, due: MemberDue::EngineAsked { life, number, until, question } });
            }
        }
    }

    fn engine_obeys(&mut self, question: EngineQuestion) -> RegisterEvent {
        let now = self.now;
        match question {
            EngineQuestion::Read { asked_at } => {
                let is_stale = self.leaves_out(GroupPart::EtcdFreshReads) && self.dice.percent(50);
                let age_ms = if is_stale { self.dice.below(STALE_MS) } else { 0 };
                let version = self.etcd.at(now.saturating_sub(age_ms)).cloned();
                version.map_or(RegisterEvent::Empty, |version| RegisterEvent::Shown { version, asked_at })
            }
            EngineQuestion::Change { expect, new } => {
                let is_left_out = self.leaves_out(GroupPart::EtcdCompares);
                let check = if is_left_out { RevisionCheck::LeftOut } else { RevisionCheck::Compares };
                let others = self.dice.below(3);
                self.etcd.change(expect, *new, check, others, now)
            }
        }
    }

    /// An answer that would come after its time is not waited for.
    fn engine_answers(&mut self, at: usize, life: u32, (number, until): (u64, Ms), event: RegisterEvent) {
        let delay = self.delay();
        if self.now + delay <= until && !self.dice.percent(self.plan.loss / 2) {
            let event = Box::new(event);
            self.later(delay, Due::Member { weir: at, due: MemberDue::EngineAnswers { life, number, event } });
        }
    }

    /// Of a change its first answer counts.
    pub(crate) fn hear_engine(&mut self, at: usize, number: u64, event: RegisterEvent) {
        if !self.passes(self.end_of_etcd(), self.end_of(at)) {
            return;
        }
        let Some(host) = self.member_host(at).filter(|host| number > host.engine.asked_before) else { return };
        let is_read = matches!(event, RegisterEvent::Shown { .. } | RegisterEvent::Empty);
        if is_read || host.engine.change.take_if(|change| *change == number).is_some() {
            self.step_member(at, GroupEvent::Engine(event));
        }
    }

    /// A change without an answer: it may have been made, and the next read tells.
    pub(crate) fn engine_limit(&mut self, at: usize, number: u64) {
        let Some(host) = self.member_host(at).filter(|host| number > host.engine.asked_before) else { return };
        if host.engine.change.take_if(|change| *change == number).is_some() {
            self.step_member(at, GroupEvent::Engine(RegisterEvent::Refused { decided: None }));
        }
    }
}
