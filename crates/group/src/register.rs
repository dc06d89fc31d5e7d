//! One value on a majority of the members. Each change is a round of Paxos that makes the new value from the value found (CASPaxos).
//!
//! No leader, log, snapshot or election, and no clock but for giving up. Safe under loss, delay, copies, restarts with the disk, and changes of the
//! members. Read: a question to all members, confirmed once a quorum showed the newest version known; it touches no disk. A member that missed a
//! version is sent it again; one that promised more to somebody who stopped is healed by proposing the same state under a new number.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::group_rule::GroupRule;
use crate::group_state::{GroupId, GroupState, StateVersion, VersionNumber};
use crate::membership::{GroupMs, MemberId, MemberSet};
use crate::stored_vote::StoredVote;

/// Time after which a change without an end is given up. It may still happen.
const GIVE_UP_MS: GroupMs = 400;
/// Reads that are remembered: eight seconds of them.
const ROUNDS_MAX: usize = 32;
/// Answers that wait for the disk; more are dropped like messages that are lost.
const WAITING_MAX: usize = 64;
/// Time without a confirmed read after which the newest version is proposed anew: nobody may know if it was decided.
const UNSURE_MS: GroupMs = 750;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RegisterMessage {
    Prepare {
        attempt: u64,
        number: VersionNumber,
    },
    Promise {
        attempt: u64,
        accepted: Option<StateVersion>,
    },
    /// `attempt` 0: a version that the member missed, sent again.
    Cast {
        attempt: u64,
        version: StateVersion,
    },
    Accepted {
        attempt: u64,
    },
    Refused {
        attempt: u64,
        promised: VersionNumber,
    },
    Ask {
        round: u64,
        known: VersionNumber,
    },
    /// `newer`: the version itself, where the asker's is older.
    Show {
        round: u64,
        number: VersionNumber,
        newer: Option<StateVersion>,
    },
}

/// Events of any engine. All decisions need only these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegisterEvent {
    /// A newer version was seen somewhere. It may not be decided.
    Heard(StateVersion),
    /// No newer version than this was decided before the question was sent.
    Shown { version: StateVersion, asked_at: GroupMs },
    /// The change asked for is decided.
    Changed(StateVersion),
    /// The change ended without success, as far as is known; `decided` stood in its place.
    Refused { decided: Option<StateVersion> },
    /// An engine outside has no state.
    Empty,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegisterOutput {
    Send {
        to: MemberId,
        message: RegisterMessage,
    },
    /// Answered by `written`.
    Write {
        number: u64,
        vote: StoredVote,
    },
    Event(RegisterEvent),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum ChangePhase {
    Preparing { promised: MemberSet, newest: Option<StateVersion> },
    Casting { version: StateVersion, accepted: MemberSet, is_new: bool },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ChangeAttempt {
    attempt: u64,
    number: VersionNumber,
    /// Version that `new` was made from; another one found is proposed anew instead. `None`: to heal.
    wish: Option<(VersionNumber, Arc<GroupState>)>,
    phase: ChangePhase,
    asked: MemberSet,
    until: GroupMs,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ReadRound {
    round: u64,
    asked_at: GroupMs,
    same: MemberSet,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct VoteWrite {
    number: u64,
    vote: StoredVote,
    /// Messages that may leave once this is on disk.
    messages: Vec<(MemberId, RegisterMessage)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupRegister {
    /// On disk. Reads show this one only.
    stored: StoredVote,
    /// On disk after the writes under way and to come.
    held: StoredVote,
    writing: Option<VoteWrite>,
    /// Messages for after the next write; it is needed if not empty.
    waiting: Vec<(MemberId, RegisterMessage)>,
    is_unwritten: bool,
    known: Option<StateVersion>,
    /// A member cannot take the known version, since it promised more to somebody who did not go on.
    is_refused: bool,
    heal_at: Option<GroupMs>,
    confirmed_at: GroupMs,
    attempt: Option<ChangeAttempt>,
    rounds: VecDeque<ReadRound>,
    /// Of attempts, rounds and writes. Begins at a number that no earlier life of this member used, so that late answers meet nothing.
    number: u64,
    /// Largest counter met.
    top: u64,
    without: Option<GroupRule>,
}

type RegisterOutputs = Vec<RegisterOutput>;

impl GroupRegister {
    pub fn new(stored: StoredVote, first_number: u64, now: GroupMs, without: Option<GroupRule>) -> GroupRegister {
        GroupRegister {
            top: stored.promised.counter,
            held: stored.clone(),
            known: stored.accepted.clone(),
            stored,
            writing: None,
            waiting: Vec::new(),
            is_unwritten: false,
            is_refused: false,
            heal_at: None,
            confirmed_at: now,
            attempt: None,
            rounds: VecDeque::new(),
            number: first_number,
            without,
        }
    }

    pub fn member(&self) -> MemberId {
        self.held.member
    }

    /// Group that this member is bound to, on disk or soon.
    pub fn group(&self) -> Option<GroupId> {
        self.held.group
    }

    pub fn stored(&self) -> &StoredVote {
        &self.stored
    }

    /// On disk after the writes under way and to come. A write may hold several acceptances: answers to all of them leave after it, so it is as if each
    /// had been written for itself.
    pub fn held(&self) -> &StoredVote {
        &self.held
    }

    pub fn known(&self) -> Option<&StateVersion> {
        self.known.as_ref()
    }

    /// True if acceptances of this attempt count.
    pub fn is_casting(&self, attempt: u64) -> bool {
        let is_cast = |of: &ChangeAttempt| of.attempt == attempt && matches!(of.phase, ChangePhase::Casting { .. });
        self.attempt.as_ref().is_some_and(is_cast)
    }

    pub fn is_busy(&self) -> bool {
        self.attempt.is_some()
    }

    /// True if the known version names this member: only then it asks and changes.
    fn takes_part(&self) -> bool {
        self.known.as_ref().is_some_and(|known| known.state.members.has(self.member()))
    }

    /// True while this member promised nothing: what a founder proposed may still give way.
    pub fn is_free(&self) -> bool {
        self.held.promised.counter == 0
    }

    /// Binds a free member to the group of the first message that asks for its vote.
    pub fn bind(&mut self, group: GroupId) -> bool {
        if self.is_free() && self.held.group != Some(group) {
            self.held = StoredVote { group: Some(group), ..StoredVote::new(self.held.member) };
            self.known = None;
            self.is_unwritten = true;
        }
        self.held.group == Some(group)
    }

    /// Takes a founder's proposal. A free member follows the lowest founder, and a founder's newest incarnation.
    pub fn propose(&mut self, version: StateVersion, out: &mut RegisterOutputs) {
        let by = version.number.by;
        let is_better = self.held.accepted.as_ref().map(|held| held.number.by).is_none_or(|had| by.host < had.host);
        let is_later = self.held.accepted.as_ref().is_some_and(|held| held.number.by.host == by.host && held.number.by != by);
        let is_bound_alike = self.held.accepted.is_none() && self.held.group == Some(version.state.group);
        let takes = is_bound_alike || (self.is_free() && (is_better || is_later));
        if version.number.counter == 0 && takes {
            self.held.group = Some(version.state.group);
            self.held.promised = self.held.promised.max(version.number);
            if self.held.promised.counter == 0 {
                self.held.promised = version.number;
            }
            self.held.accepted = Some(version.clone());
            self.is_unwritten = true;
            self.learn(version, out);
        }
        self.write(out);
    }

    /// Takes the first version of a group of this member alone, which has promised nothing yet. No proposal takes its place.
    pub fn found_alone(&mut self, version: StateVersion, out: &mut RegisterOutputs) {
        self.held.group = Some(version.state.group);
        self.held.promised = version.number;
        self.held.accepted = Some(version.clone());
        self.is_unwritten = true;
        self.learn(version, out);
        self.write(out);
    }

    /// Asks all members for their versions.
    pub fn read(&mut self, now: GroupMs, out: &mut RegisterOutputs) {
        let Some(known) = self.known.clone().filter(|_| self.takes_part()) else { return };
        self.number += 1;
        self.rounds.push_back(ReadRound { round: self.number, asked_at: now, same: MemberSet::new() });
        if self.rounds.len() > ROUNDS_MAX {
            self.rounds.pop_front();
        }
        for to in known.state.members.all().into_iter().filter(|to| *to != self.member()) {
            out.push(RegisterOutput::Send { to, message: RegisterMessage::Ask { round: self.number, known: known.number } });
        }
        self.confirm(out);
    }

    /// Puts `new` in the place of version `expect`, if nothing newer is decided. One change at a time.
    pub fn change(&mut self, expect: VersionNumber, new: GroupState, now: GroupMs, out: &mut RegisterOutputs) {
        self.attempt(Some((expect, Arc::new(new))), now, out);
    }

    fn attempt(&mut self, wish: Option<(VersionNumber, Arc<GroupState>)>, now: GroupMs, out: &mut RegisterOutputs) {
        let asked = self.known.as_ref().map(|known| known.state.members.all()).unwrap_or_default();
        if self.attempt.is_some() || !self.takes_part() {
            return;
        }
        self.number += 1;
        self.top += 1;
        let number = VersionNumber { counter: self.top, by: self.member() };
        let phase = ChangePhase::Preparing { promised: MemberSet::new(), newest: None };
        let attempt = self.number;
        // The own promise is on disk before others hear the number, so that no later life of this member uses it again.
        self.held.promised = number;
        self.is_unwritten = true;
        for to in asked.iter().copied().filter(|to| *to != number.by) {
            self.after_write(to, RegisterMessage::Prepare { attempt, number });
        }
        self.after_write(self.member(), RegisterMessage::Promise { attempt, accepted: self.held.accepted.clone() });
        self.attempt = Some(ChangeAttempt { attempt, number, wish, phase, asked, until: now + GIVE_UP_MS });
        self.write(out);
    }

    pub fn tick(&mut self, now: GroupMs, dice: u32, out: &mut RegisterOutputs) {
        if self.attempt.as_ref().is_some_and(|attempt| now >= attempt.until) {
            self.attempt = None;
            out.push(RegisterOutput::Event(RegisterEvent::Refused { decided: None }));
        }
        let jitter = u64::from(dice % 300);
        if self.is_refused && self.heal_at.is_none() {
            self.heal_at = Some(now + jitter);
        }
        // A founder's proposal is not made sure: it costs promises, and is decided by its own reads.
        let is_proposal = self.known.as_ref().is_none_or(|known| known.number.counter == 0);
        let is_unsure = !is_proposal && now > self.confirmed_at + UNSURE_MS + jitter;
        let is_due = is_unsure || self.heal_at.is_some_and(|at| now >= at);
        if is_due && self.attempt.is_none() {
            self.confirmed_at = now.saturating_sub(UNSURE_MS - 250);
            (self.is_refused, self.heal_at) = (false, None);
            self.attempt(None, now, out);
        }
    }

    /// When a tick may do something, if nothing is under way.
    pub fn quiet_until(&self) -> Option<GroupMs> {
        let is_quiet = self.attempt.is_none() && !self.is_refused && self.heal_at.is_none();
        is_quiet.then_some(self.confirmed_at + UNSURE_MS)
    }

    fn after_write(&mut self, to: MemberId, message: RegisterMessage) {
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push((to, message));
        }
    }

    /// Begins the next write if none is under way; messages that need none leave at once.
    fn write(&mut self, out: &mut RegisterOutputs) {
        if self.without == Some(GroupRule::WriteBeforeAnswer) {
            let own: Vec<_> = self.waiting.iter().filter(|(to, _)| *to == self.held.member).cloned().collect();
            for (to, message) in std::mem::replace(&mut self.waiting, own) {
                if to != self.held.member {
                    out.push(RegisterOutput::Send { to, message });
                }
            }
        }
        let is_needed = self.is_unwritten || !self.waiting.is_empty();
        if self.writing.is_some() || !is_needed {
            return;
        }
        self.number += 1;
        self.is_unwritten = false;
        let messages = std::mem::take(&mut self.waiting);
        self.writing = Some(VoteWrite { number: self.number, vote: self.held.clone(), messages });
        out.push(RegisterOutput::Write { number: self.number, vote: self.held.clone() });
    }

    /// A write is on disk.
    pub fn written(&mut self, number: u64, out: &mut RegisterOutputs) {
        let Some(write) = self.writing.take_if(|write| write.number == number) else { return };
        self.stored = write.vote;
        for (to, message) in write.messages {
            if to == self.member() {
                self.take(to, message, out);
            } else {
                out.push(RegisterOutput::Send { to, message });
            }
        }
        self.write(out);
        self.confirm(out);
    }

    /// A version that the process before this one had heard of.
    pub(crate) fn learn_before(&mut self, version: StateVersion) {
        self.learn(version, &mut RegisterOutputs::new());
    }

    fn learn(&mut self, version: StateVersion, out: &mut RegisterOutputs) {
        if self.known.as_ref().is_some_and(|known| !version.follows(known)) {
            return;
        }
        self.top = self.top.max(version.number.counter);
        (self.is_refused, self.heal_at) = (false, None);
        // Members that have it answer later rounds.
        self.rounds.iter_mut().for_each(|round| round.same.clear());
        self.known = Some(version.clone());
        out.push(RegisterOutput::Event(RegisterEvent::Heard(version)));
    }

    /// Takes a message of a member of this group.
    pub fn take(&mut self, from: MemberId, message: RegisterMessage, out: &mut RegisterOutputs) {
        match message {
            RegisterMessage::Prepare { attempt, number } => {
                self.top = self.top.max(number.counter);
                if number < self.held.promised {
                    self.refuse(from, attempt, out);
                    return;
                }
                self.is_unwritten |= number > self.held.promised;
                self.held.promised = number;
                self.after_write(from, RegisterMessage::Promise { attempt, accepted: self.held.accepted.clone() });
                self.write(out);
            }
            RegisterMessage::Cast { attempt, version } => {
                let is_below = version.number < self.held.promised && self.without != Some(GroupRule::PromiseBinds);
                if is_below {
                    self.refuse(from, attempt, out);
                    return;
                }
                let is_had = self.held.accepted.as_ref().is_some_and(|held| held.number == version.number);
                self.is_unwritten |= !is_had;
                self.held.promised = version.number;
                self.held.accepted = Some(version.clone());
                self.after_write(from, RegisterMessage::Accepted { attempt });
                self.learn(version, out);
                self.write(out);
            }
            RegisterMessage::Ask { round, known } => {
                let number = self.stored.accepted.as_ref().map(|version| version.number).unwrap_or_default();
                let newer = self.stored.accepted.clone().filter(|version| version.number > known);
                out.push(RegisterOutput::Send { to: from, message: RegisterMessage::Show { round, number, newer } });
            }
            RegisterMessage::Promise { attempt, accepted } => {
                if let Some(version) = &accepted {
                    self.learn(version.clone(), out);
                }
                self.promised(from, attempt, accepted, out);
            }
            RegisterMessage::Accepted { attempt } => self.accepted(from, attempt, out),
            RegisterMessage::Refused { attempt, promised } => {
                self.top = self.top.max(promised.counter);
                self.is_refused |= attempt == 0 && self.known.as_ref().is_some_and(|known| promised > known.number);
                if self.attempt.take_if(|of| of.attempt == attempt).is_some() {
                    out.push(RegisterOutput::Event(RegisterEvent::Refused { decided: None }));
                }
            }
            RegisterMessage::Show { round, number, newer } => {
                if let Some(version) = newer {
                    self.learn(version, out);
                }
                self.shown(from, round, number, out);
            }
        }
    }

    fn refuse(&self, to: MemberId, attempt: u64, out: &mut RegisterOutputs) {
        out.push(RegisterOutput::Send { to, message: RegisterMessage::Refused { attempt, promised: self.held.promised } });
    }

    fn promised(&mut self, from: MemberId, attempt: u64, accepted: Option<StateVersion>, out: &mut RegisterOutputs) {
        let (me, without, known) = (self.member(), self.without, self.known.clone());
        let Some(of) = self.attempt.as_mut().filter(|of| of.attempt == attempt) else { return };
        let ChangePhase::Preparing { promised, newest } = &mut of.phase else { return };
        promised.insert(from);
        if without == Some(GroupRule::FoundVersionStands) {
            *newest = known;
        } else if accepted.as_ref().map(|version| version.number) > newest.as_ref().map(|version| version.number) {
            *newest = accepted;
        }
        let number = of.number;
        let Some(base) = newest.clone() else { return };
        if !base.is_quorum(promised, without) {
            // A newer version may have other members.
            let more: Vec<MemberId> = base.state.members.all().difference(&of.asked).copied().collect();
            of.asked.extend(more.iter().copied());
            for to in more {
                out.push(RegisterOutput::Send { to, message: RegisterMessage::Prepare { attempt, number } });
            }
            return;
        }
        let wished =
            of.wish.as_ref().filter(|(expect, _)| *expect == base.number || without == Some(GroupRule::FoundVersionStands));
        let is_new = wished.is_some();
        let state = wished.map_or_else(|| base.state.clone(), |(_, new)| new.clone());
        let version = StateVersion { number, state };
        let mut to = version.state.members.all();
        to.extend(base.state.members.all());
        of.phase = ChangePhase::Casting { version: version.clone(), accepted: MemberSet::new(), is_new };
        for to in to.iter().copied().filter(|to| *to != me) {
            out.push(RegisterOutput::Send { to, message: RegisterMessage::Cast { attempt, version: version.clone() } });
        }
        if number < self.held.promised {
            self.attempt = None;
            out.push(RegisterOutput::Event(RegisterEvent::Refused { decided: None }));
            return;
        }
        self.held.promised = number;
        self.held.accepted = Some(version.clone());
        self.is_unwritten = true;
        self.after_write(me, RegisterMessage::Accepted { attempt });
        self.learn(version, out);
        self.write(out);
    }

    fn accepted(&mut self, from: MemberId, attempt: u64, out: &mut RegisterOutputs) {
        let without = self.without;
        let Some(of) = self.attempt.as_mut().filter(|of| of.attempt == attempt) else { return };
        let ChangePhase::Casting { version, accepted, is_new } = &mut of.phase else { return };
        accepted.insert(from);
        if !version.is_quorum(accepted, without) {
            return;
        }
        let (version, is_new) = (version.clone(), *is_new);
        self.attempt = None;
        out.push(RegisterOutput::Event(if is_new {
            RegisterEvent::Changed(version)
        } else {
            RegisterEvent::Refused { decided: Some(version) }
        }));
    }

    fn shown(&mut self, from: MemberId, round: u64, number: VersionNumber, out: &mut RegisterOutputs) {
        let Some(known) = &self.known else { return };
        if number == known.number || self.without == Some(GroupRule::QuorumShowsVersion) {
            if let Some(of) = self.rounds.iter_mut().find(|of| of.round == round) {
                of.same.insert(from);
                self.confirm(out);
            }
        } else if number < known.number && known.number.counter > 0 {
            let message = RegisterMessage::Cast { attempt: 0, version: known.clone() };
            out.push(RegisterOutput::Send { to: from, message });
        }
    }

    fn confirm(&mut self, out: &mut RegisterOutputs) {
        let Some(known) = &self.known else { return };
        let own = self.stored.accepted.as_ref().filter(|own| own.number == known.number).map(|_| self.stored.member);
        let is_quorum = |round: &ReadRound| match own.filter(|own| !round.same.contains(own)) {
            None => known.is_quorum(&round.same, self.without),
            Some(own) => {
                let mut have = round.same.clone();
                have.insert(own);
                known.is_quorum(&have, self.without)
            }
        };
        let Some(at) = self.rounds.iter().rposition(is_quorum) else { return };
        let Some(asked_at) = self.rounds.drain(..=at).next_back().map(|round| round.asked_at) else { return };
        self.confirmed_at = self.confirmed_at.max(asked_at);
        out.push(RegisterOutput::Event(RegisterEvent::Shown { version: known.clone(), asked_at }));
    }
}
