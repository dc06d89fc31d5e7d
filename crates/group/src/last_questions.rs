//! The last questions of members before a change was decided: their leases of before end a lease after them, which is sooner than the giver knows by itself.
//!
//! Proof, with the members unchanged for longer than a lease: a read that was confirmed for an older version had answers of a quorum, of which one member at
//! least accepted the change, too. That one answered before it had the change on disk, and so before it said that it accepted. With its acceptance it
//! says how long ago it answered each member last: the question was not sent later. A member that began in between counts its begin.

use std::collections::BTreeMap;

use crate::membership::{GroupMs, MEMBERS_MAX, MemberId, MemberSet};

/// Answers that a member gave.
#[derive(Clone, Debug)]
pub(crate) struct AnsweredQuestions {
    /// A member that is not noted may have been answered until then.
    since: GroupMs,
    at: BTreeMap<MemberId, GroupMs>,
}

impl AnsweredQuestions {
    pub(crate) fn new(now: GroupMs) -> AnsweredQuestions {
        AnsweredQuestions { since: now, at: BTreeMap::new() }
    }

    /// A question of this member is answered, or is this one's own.
    pub(crate) fn note(&mut self, from: MemberId, now: GroupMs) {
        if self.at.len() >= 2 * MEMBERS_MAX && !self.at.contains_key(&from) {
            self.at.clear();
            self.since = now;
        }
        self.at.insert(from, now);
    }

    /// Time since the last question of each of these.
    pub(crate) fn ages(&self, members: &MemberSet, now: GroupMs) -> Vec<(MemberId, GroupMs)> {
        let age = |id: &MemberId| now.saturating_sub(self.at.get(id).copied().unwrap_or(self.since));
        members.iter().map(|id| (*id, age(id))).collect()
    }
}

/// Latest of the last questions of each member, as those told who accepted a change.
#[derive(Clone, Debug, Default)]
pub(crate) struct QuestionBounds {
    latest: BTreeMap<MemberId, GroupMs>,
    /// A member that accepted told nothing of some other: it is of an earlier release.
    unknown: MemberSet,
}

impl QuestionBounds {
    /// `told`: ages, by a clock that may be slower than this one's by 5 %.
    pub(crate) fn accepted(&mut self, members: &MemberSet, told: &[(MemberId, GroupMs)], now: GroupMs) {
        for id in members {
            let Some((_, age_ms)) = told.iter().find(|(of, _)| of == id) else {
                self.unknown.insert(*id);
                continue;
            };
            let at = now.saturating_sub(age_ms - age_ms / 20);
            let latest = self.latest.entry(*id).or_insert(at);
            *latest = at.max(*latest);
        }
    }

    /// The last question of this member was not sent later.
    pub(crate) fn of(&self, id: MemberId) -> Option<GroupMs> {
        self.latest.get(&id).copied().filter(|_| !self.unknown.contains(&id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(host: u8) -> MemberId {
        MemberId { host, incarnation: 7 }
    }

    #[test]
    fn a_bound_is_the_latest_that_any_acceptor_told() {
        let members: MemberSet = [id(1), id(2)].into();
        let mut answered = AnsweredQuestions::new(1_000);
        answered.note(id(1), 5_000);
        assert_eq!(answered.ages(&members, 5_200), [(id(1), 200), (id(2), 4_200)], "a member that never asked: since the begin");
        let mut bounds = QuestionBounds::default();
        bounds.accepted(&members, &[(id(1), 200), (id(2), 4_200)], 9_000);
        bounds.accepted(&members, &[(id(1), 100), (id(2), 5_000)], 8_960);
        assert_eq!((bounds.of(id(1)), bounds.of(id(2))), (Some(8_865), Some(5_010)), "less 5 %");
        bounds.accepted(&members, &[(id(2), 5_000)], 9_000);
        assert_eq!(bounds.of(id(1)), None, "one that tells nothing");
    }

    #[test]
    fn members_that_are_forgotten_count_as_answered() {
        let mut answered = AnsweredQuestions::new(0);
        let hosts = 0..=(2 * MEMBERS_MAX) as u8;
        hosts.for_each(|host| answered.note(id(host), 100 + u64::from(host)));
        let last = (2 * MEMBERS_MAX) as u64 + 100;
        assert_eq!(answered.ages(&[id(0)].into(), last + 5), [(id(0), 5)]);
    }
}
