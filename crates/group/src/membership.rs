//! Members of a group, and which of them are enough to decide.

use std::collections::BTreeSet;

/// Milliseconds of the caller's clock; in the product CLOCK_BOOTTIME, which goes on while a machine sleeps.
pub type GroupMs = u64;
/// As in `hostname0`.
pub type HostNumber = u8;

/// Most members of a group, leaving and joining ones included; bounds all that peers may send.
pub const MEMBERS_MAX: usize = 32;

/// A host with one state file. A host that lost its file is another member: what it promised is forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId {
    pub host: HostNumber,
    /// Random, made with the state file.
    pub incarnation: u32,
}

pub type MemberSet = BTreeSet<MemberId>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemberDuty {
    Serves,
    /// Votes and keeps the state; never leads, never writes.
    Witness,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemberRow {
    pub id: MemberId,
    /// `wd_priority`; 0 never leads.
    pub priority: u8,
    pub duty: MemberDuty,
}

impl MemberRow {
    pub fn may_lead(&self) -> bool {
        self.priority > 0 && self.duty == MemberDuty::Serves
    }
}

/// `enable_consensus_with_half_votes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HalfVotes {
    TooFew,
    /// Half of an even number is enough with the lowest member in it. Two halves never both hold the lowest.
    LowestCasts,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupMembers {
    /// Sorted by member; holds all of `voters` and `next`.
    pub rows: Vec<MemberRow>,
    pub voters: MemberSet,
    /// Voters after the change under way: until it ends, majorities of both are needed.
    pub next: Option<MemberSet>,
    pub half_votes: HalfVotes,
}

impl GroupMembers {
    pub fn of(mut rows: Vec<MemberRow>, half_votes: HalfVotes) -> GroupMembers {
        rows.sort_by_key(|row| row.id);
        rows.dedup_by_key(|row| row.id);
        let voters = rows.iter().map(|row| row.id).collect();
        GroupMembers { rows, voters, next: None, half_votes }
    }

    pub fn row(&self, id: MemberId) -> Option<&MemberRow> {
        self.rows.iter().find(|row| row.id == id)
    }

    pub fn has(&self, id: MemberId) -> bool {
        self.voters.contains(&id) || self.next.as_ref().is_some_and(|next| next.contains(&id))
    }

    pub fn all(&self) -> MemberSet {
        self.each().collect()
    }

    /// All members. During a change those who stay come twice.
    pub fn each(&self) -> impl Iterator<Item = MemberId> {
        self.voters.iter().chain(self.next.iter().flatten()).copied()
    }

    /// Members that stay; only they may lead and write.
    pub fn lasting(&self) -> &MemberSet {
        self.next.as_ref().unwrap_or(&self.voters)
    }

    pub fn leaving(&self) -> MemberSet {
        self.voters.difference(self.lasting()).copied().collect()
    }

    /// The voter with whom half of an even number is enough.
    pub fn casting(&self) -> Option<MemberId> {
        let casts = self.half_votes == HalfVotes::LowestCasts && self.voters.len().is_multiple_of(2);
        self.voters.first().copied().filter(|_| casts)
    }

    pub fn is_quorum(&self, have: &MemberSet) -> bool {
        self.is_enough(&self.voters, have) && self.next.as_ref().is_none_or(|next| self.is_enough(next, have))
    }

    /// True if `have` decides for `voters` alone.
    pub fn is_enough(&self, voters: &MemberSet, have: &MemberSet) -> bool {
        let got = voters.iter().filter(|id| have.contains(id)).count();
        let casts = match self.half_votes {
            HalfVotes::TooFew => false,
            HalfVotes::LowestCasts => 2 * got == voters.len() && voters.first().is_some_and(|lowest| have.contains(lowest)),
        };
        2 * got > voters.len() || casts
    }

    /// A change to `rows` that begins: both majorities decide from the version on that holds it.
    pub fn joined_by(&self, rows: &[MemberRow]) -> GroupMembers {
        let next: MemberSet = rows.iter().map(|row| row.id).collect();
        let leaving = self.rows.iter().filter(|row| !next.contains(&row.id));
        let mut all: Vec<MemberRow> = rows.iter().chain(leaving).copied().collect();
        all.sort_by_key(|row| row.id);
        all.dedup_by_key(|row| row.id);
        GroupMembers { rows: all, next: Some(next), voters: self.voters.clone(), half_votes: self.half_votes }
    }

    /// The change under way, ended.
    pub fn ended(&self) -> GroupMembers {
        let voters = self.lasting().clone();
        let rows = self.rows.iter().filter(|row| voters.contains(&row.id)).copied().collect();
        GroupMembers { rows, voters, next: None, half_votes: self.half_votes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(hosts: impl IntoIterator<Item = u8>) -> Vec<MemberRow> {
        let row = |host| MemberRow { id: MemberId { host, incarnation: 1 }, priority: 1, duty: MemberDuty::Serves };
        hosts.into_iter().map(row).collect()
    }

    fn subsets(members: &GroupMembers) -> Vec<MemberSet> {
        let all: Vec<MemberId> = members.all().into_iter().collect();
        let chosen = |bits: u32| all.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1).map(|(_, id)| *id).collect();
        (0..1u32 << all.len()).map(chosen).collect()
    }

    #[test]
    fn two_quorums_always_share_a_member() {
        for half_votes in [HalfVotes::TooFew, HalfVotes::LowestCasts] {
            for count in 1..=5 {
                let old = GroupMembers::of(rows(0..count), half_votes);
                for next in 1..=5 {
                    let joint = old.joined_by(&rows(2..2 + next));
                    let quorums: Vec<MemberSet> = subsets(&joint).into_iter().filter(|set| joint.is_quorum(set)).collect();
                    for (before, after) in [(&old, &joint), (&joint, &joint), (&joint, &joint.ended())] {
                        let others = subsets(&joint);
                        for other in others.iter().filter(|set| after.is_quorum(set) && before.is_quorum(set)) {
                            assert!(quorums.iter().all(|one| !one.is_disjoint(other)), "{count} {next} {half_votes:?}");
                        }
                    }
                }
            }
        }
    }

    /// So the rule may change at once, without a joint version.
    #[test]
    fn a_quorum_of_one_rule_for_halves_shares_a_member_with_each_of_the_other() {
        for count in 1..=6 {
            let [strict, casting] =
                [HalfVotes::TooFew, HalfVotes::LowestCasts].map(|half_votes| GroupMembers::of(rows(0..count), half_votes));
            let quorums = |members: &GroupMembers| -> Vec<MemberSet> {
                subsets(members).into_iter().filter(|set| members.is_quorum(set)).collect()
            };
            for one in quorums(&strict) {
                assert!(quorums(&casting).iter().all(|other| !one.is_disjoint(other)), "{count} {one:?}");
            }
        }
    }

    #[test]
    fn half_of_the_votes_is_enough_with_the_lowest_member_only() {
        let set = |hosts: &[u8]| -> MemberSet { rows(hosts.iter().copied()).iter().map(|row| row.id).collect() };
        let casting = GroupMembers::of(rows(0..4), HalfVotes::LowestCasts);
        assert!(casting.is_quorum(&set(&[0, 3])) && !casting.is_quorum(&set(&[1, 2])) && casting.is_quorum(&set(&[1, 2, 3])));
        assert!(!GroupMembers::of(rows(0..4), HalfVotes::TooFew).is_quorum(&set(&[0, 3])));
        assert!(!GroupMembers::of(rows(0..5), HalfVotes::LowestCasts).is_quorum(&set(&[0, 3])), "an odd number has no half");
    }
}
