//! Acts of operators: what members say of them, and what they remember.

use std::collections::{BTreeMap, VecDeque};

use crate::membership::{GroupMs, MEMBERS_MAX, MemberId};

/// Longest text of an act, and of the answer to it.
pub const ACT_BYTES_MAX: usize = 1024;
/// Acts of one asker that are remembered.
const TAKEN_ACTS_MAX: usize = 64;
/// Askers that are remembered: members, and those that were.
const ASKERS_MAX: usize = 2 * MEMBERS_MAX;
/// Numbers before one that was forgotten, which may have been begun, too. Another life of an asker begins elsewhere.
const FORGOTTEN_RANGE: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ActDoer {
    /// Refused by who does not lead.
    Leader,
    /// The member that the message names, leader or not.
    Receiver,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OperatorAct {
    /// Of the asker's; no other life of it uses the same.
    pub number: u64,
    pub doer: ActDoer,
    /// Of the receiver, if known: else it is told, and nothing begins.
    pub life: Option<u64>,
    /// At most [`ACT_BYTES_MAX`].
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ActAnswer {
    /// With a note, or an empty text.
    Done(String),
    Refused(String),
    /// Begun nowhere: there is no leader, or it is no member any more that was named.
    NotLeader,
    /// No answer came. It may have been done, or be done yet.
    Unknown,
}

#[derive(Clone, Debug)]
pub(crate) struct AskedAct {
    pub(crate) ticket: u64,
    /// `None`: the leader.
    pub(crate) to: Option<MemberId>,
    pub(crate) text: String,
    pub(crate) asked_at: GroupMs,
    pub(crate) until: GroupMs,
    pub(crate) next_at: GroupMs,
    pub(crate) sent: Option<SentAct>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SentAct {
    pub(crate) number: u64,
    pub(crate) to: MemberId,
    pub(crate) term: u64,
    /// From then on it may have begun.
    pub(crate) life: Option<u64>,
    /// Since then the receiver is silent, or does not lead.
    pub(crate) gone_since: Option<GroupMs>,
}

/// Acts of one asker, oldest first; an answer where it ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct TakenActs {
    pub(crate) acts: VecDeque<(u64, Option<ActAnswer>)>,
    /// The largest number that was forgotten, of the asker's last life.
    forgotten: Option<u64>,
}

impl TakenActs {
    /// Makes room. False: all are under way.
    pub(crate) fn has_room(&mut self) -> bool {
        if self.acts.len() >= TAKEN_ACTS_MAX {
            let Some(oldest) = self.acts.iter().position(|(_, answer)| answer.is_some()) else { return false };
            let number = self.acts.remove(oldest).map(|(number, _)| number);
            self.forgotten = number.filter(|number| !self.is_forgotten(*number)).or(self.forgotten);
        }
        true
    }

    pub(crate) fn is_forgotten(&self, number: u64) -> bool {
        self.forgotten.is_some_and(|last| last.wrapping_sub(number) < FORGOTTEN_RANGE)
    }
}

/// Acts that were asked for here, and those that were taken from others.
#[derive(Clone, Debug)]
pub(crate) struct PassedActs {
    /// No other life of this member has the same.
    life: u64,
    number: u64,
    asked: Vec<AskedAct>,
    taken: BTreeMap<MemberId, TakenActs>,
}

impl PassedActs {
    pub(crate) fn new(life: u64) -> PassedActs {
        PassedActs { life, number: life, asked: Vec::new(), taken: BTreeMap::new() }
    }

    /// Of another life of this member. Operators who ask wait on, and hear of a new leader or of none.
    pub(crate) fn begun_anew(&mut self, life: u64) -> PassedActs {
        PassedActs { life, number: self.number, asked: std::mem::take(&mut self.asked), taken: BTreeMap::new() }
    }

    pub(crate) fn life(&self) -> u64 {
        self.life
    }

    /// Of acts that wait for their answers.
    pub(crate) fn asked_count(&self) -> usize {
        self.asked.len()
    }

    pub(crate) fn ask(&mut self, asked: AskedAct) {
        self.asked.push(asked);
    }

    /// All that wait; who goes on waiting is to be asked again.
    pub(crate) fn take_asked(&mut self) -> Vec<AskedAct> {
        std::mem::take(&mut self.asked)
    }

    pub(crate) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    pub(crate) fn drop_asked(&mut self, ticket: u64) {
        self.asked.retain(|asked| asked.ticket != ticket);
    }

    /// The act that was sent to this member under this number.
    pub(crate) fn asked_mut(&mut self, of: MemberId, number: u64) -> Option<&mut AskedAct> {
        let is_meant = |asked: &&mut AskedAct| asked.sent.is_some_and(|sent| sent.number == number && sent.to == of);
        self.asked.iter_mut().find(is_meant)
    }

    /// Acts taken from this asker. An asker that is no member any more is forgotten for it where there are too many.
    pub(crate) fn taken_of(&mut self, from: MemberId, is_member: impl Fn(MemberId) -> bool) -> &mut TakenActs {
        if self.taken.len() >= ASKERS_MAX && !self.taken.contains_key(&from) {
            let former = self.taken.keys().find(|member| !is_member(**member)).copied();
            former.and_then(|former| self.taken.remove(&former));
        }
        self.taken.entry(from).or_default()
    }

    /// An act that was taken has ended.
    pub(crate) fn end_taken(&mut self, from: MemberId, number: u64, answer: ActAnswer) {
        let taken = self.taken.get_mut(&from).and_then(|taken| taken.acts.iter_mut().find(|(of, _)| *of == number));
        if let Some((_, end)) = taken {
            *end = Some(answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acts_that_are_forgotten_are_known_to_be_old_and_those_of_another_life_are_not() {
        let mut taken = TakenActs::default();
        let first = 1 << 40;
        taken.acts.push_back((first, None));
        for number in first + 1..first + 100 {
            assert!(taken.has_room() && !taken.is_forgotten(number));
            taken.acts.push_back((number, Some(ActAnswer::Unknown)));
        }
        assert_eq!((taken.acts.len(), taken.acts[0].0), (TAKEN_ACTS_MAX, first), "what is under way is kept");
        taken.acts[0].1 = Some(ActAnswer::NotLeader);
        assert!(taken.has_room());
        assert!((first..first + 37).all(|number| taken.is_forgotten(number)) && !taken.is_forgotten(first + 37));
        assert!(!taken.is_forgotten(7) && !taken.is_forgotten(1 << 50));
        taken.acts.iter_mut().for_each(|(_, answer)| *answer = None);
        taken.acts.push_back((first + 100, None));
        assert!(!taken.has_room());
    }
}
