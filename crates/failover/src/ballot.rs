//! Votes of servers, by which several Weirs agree on one primary without knowing each other.
//!
//! A standby keeps its [`Mark`] with its primary's address, so that it outlives Weirs and restarts; Weirs access it under an advisory
//! lock. A primary is *decided* once a majority of voters have its vote. The voters are all nodes but the epoch's primary and the
//! replaced one. This is Paxos with one instance per primary: pledges of a majority show the votes that may have decided; the newest must
//! be followed.

use std::collections::BTreeSet;

/// As in `backend_hostname0`.
pub type NodeId = u16;

/// Unique among all Weirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ballot {
    pub term: u64,
    /// Random number of the Weir.
    pub weir: u32,
}

/// Encoded in the term: odd for failover, 2 modulo 4 for switchover, 0 modulo 4 for `Tend`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BallotPurpose {
    /// Also for settling an attempt.
    Failover,
    /// The primary works until stopped.
    Switchover,
    /// The primary stays writable: a node votes again, or promises are taken back.
    Tend,
}

impl Ballot {
    /// `seen`: highest term seen. A switchover is ahead of a failover with the same `seen`, so that a Weir which sees the stopped primary
    /// before the promises is refused.
    pub fn after(seen: u64, purpose: BallotPurpose, weir: u32) -> Ballot {
        let odd = (seen + 1) | 1;
        let term = match purpose {
            BallotPurpose::Failover => odd,
            BallotPurpose::Switchover => odd + 1 + 2 * u64::from((odd + 1).is_multiple_of(4)),
            BallotPurpose::Tend => (seen / 4 + 1) * 4,
        };
        Ballot { term, weir }
    }

    pub fn purpose(self) -> BallotPurpose {
        match self.term % 4 {
            0 => BallotPurpose::Tend,
            2 => BallotPurpose::Switchover,
            _ => BallotPurpose::Failover,
        }
    }
}

/// A decided primary, named by the ballot of its first proposal, also if repeated under others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Epoch {
    pub ballot: Ballot,
    pub node: NodeId,
    /// The primary given up for this one; it has no vote since.
    pub replaced: Option<NodeId>,
}

/// A vote for a primary as successor of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vote {
    /// Only votes under the same ballot count together.
    pub ballot: Ballot,
    pub epoch: Epoch,
    /// The previous decision, by which a Weir learns that it missed some.
    pub parent: Epoch,
}

/// Data that a server keeps for the Weirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mark {
    /// Smaller attempts may change nothing here.
    pub promised: Ballot,
    pub vote: Option<Vote>,
}

impl Epoch {
    pub fn found(node: NodeId) -> Epoch {
        Epoch { ballot: Ballot::default(), node, replaced: None }
    }

    pub fn voters(&self, nodes: impl IntoIterator<Item = NodeId>) -> BTreeSet<NodeId> {
        nodes.into_iter().filter(|id| *id != self.node && Some(*id) != self.replaced).collect()
    }
}

/// Votes needed. Without voters no decision is possible.
pub fn majority(voters: usize) -> usize {
    voters / 2 + 1
}

/// Voters to be heard to know each decision: one of them is in every majority.
pub fn hearing(voters: usize) -> usize {
    if voters == 0 { 0 } else { voters - majority(voters) + 1 }
}

impl Mark {
    /// Refuses older attempts (`None`). An equal number is the same attempt, repeated.
    pub fn pledge(self, ballot: Ballot) -> Option<Mark> {
        (ballot >= self.promised).then_some(Mark { promised: ballot, ..self })
    }

    /// `None`: a newer attempt was promised.
    pub fn cast(self, vote: Vote) -> Option<Mark> {
        (vote.ballot >= self.promised).then_some(Mark { promised: vote.ballot, vote: Some(vote) })
    }

    /// True if no attempt here could replace `epoch`.
    pub fn is_settled(&self, epoch: &Epoch) -> bool {
        self.promised <= epoch.ballot || self.vote.is_some_and(|vote| vote.epoch == *epoch && vote.ballot == self.promised)
    }

    /// A word that needs no quotes in a connection string.
    pub fn show(&self) -> String {
        let ballot = |ballot: Ballot| format!("{}.{}", ballot.term, ballot.weir);
        let epoch = |epoch: Epoch| {
            let replaced = epoch.replaced.map_or("-".to_string(), |id| id.to_string());
            format!("{}:{}:{replaced}", ballot(epoch.ballot), epoch.node)
        };
        let vote = self.vote.map(|vote| format!("/{}/{}/{}", ballot(vote.ballot), epoch(vote.epoch), epoch(vote.parent)));
        format!("weir/{}{}", ballot(self.promised), vote.unwrap_or_default())
    }

    pub fn parse(text: &str) -> Option<Mark> {
        let ballot = |text: &str| {
            let (term, weir) = text.split_once('.')?;
            Some(Ballot { term: term.parse().ok()?, weir: weir.parse().ok()? })
        };
        let epoch = |text: &str| {
            let mut parts = text.split(':');
            let (number, node, replaced) = (parts.next()?, parts.next()?, parts.next()?);
            let replaced = if replaced == "-" { None } else { Some(replaced.parse().ok()?) };
            Some(Epoch { ballot: ballot(number)?, node: node.parse().ok()?, replaced })
        };
        let mut parts = text.strip_prefix("weir/")?.split('/');
        let promised = ballot(parts.next()?)?;
        let vote = match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (None, ..) => None,
            (Some(by), Some(of), Some(parent), None) => {
                Some(Vote { ballot: ballot(by)?, epoch: epoch(of)?, parent: epoch(parent)? })
            }
            _ => return None,
        };
        Some(Mark { promised, vote })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_were_heard_always_contain_one_of_a_majority() {
        for voters in 1..=9 {
            assert!(majority(voters) + hearing(voters) > voters && 2 * majority(voters) > voters, "{voters}");
            assert!(majority(voters) + hearing(voters) - 1 <= voters, "{voters}: more than needed");
        }
        assert_eq!(hearing(0), 0);
    }

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        let epoch = |term, node, replaced| Epoch { ballot: Ballot { term, weir: 77 }, node, replaced };
        let vote = Vote { ballot: Ballot { term: 11, weir: 3 }, epoch: epoch(9, 2, Some(0)), parent: epoch(0, 0, None) };
        for mark in [Mark::default(), Mark { promised: Ballot { term: 12, weir: 5 }, vote: Some(vote) }] {
            assert_eq!(Mark::parse(&mark.show()), Some(mark));
        }
        assert_eq!(Mark { promised: Ballot { term: 12, weir: 5 }, vote: Some(vote) }.show(), "weir/12.5/11.3/9.77:2:0/0.77:0:-");
        for wrong in ["", "weir", "weir/1", "weir/1.2/3.4:5", "weir/1.2/3.4:5:-", "weir/1.2/1.2/3.4:5:-/1.2:3:-/x", "walreceiver"]
        {
            assert_eq!(Mark::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_switchover_is_refused_by_no_failover_that_knows_as_much() {
        for seen in 0..9 {
            let all = [BallotPurpose::Failover, BallotPurpose::Switchover, BallotPurpose::Tend];
            let [failover, switchover, tend] = all.map(|purpose| Ballot::after(seen, purpose, 1));
            assert_eq!([failover, switchover, tend].map(Ballot::purpose), all);
            assert!(tend.term > seen, "{seen}");
            let mark = Mark { promised: switchover, vote: None };
            assert!(failover.term > seen && mark.pledge(Ballot { weir: u32::MAX, ..failover }).is_none(), "{seen}");
        }
    }

    #[test]
    fn an_older_attempt_changes_nothing() {
        let of = |term| Ballot { term, weir: 1 };
        let vote =
            |term| Vote { ballot: of(term), epoch: Epoch { ballot: of(1), node: 1, replaced: Some(0) }, parent: Epoch::found(0) };
        let mark = Mark::default().pledge(of(3)).unwrap();
        assert_eq!((mark.pledge(of(2)), mark.cast(vote(2))), (None, None));
        assert_eq!(mark.pledge(of(3)), Some(mark), "repeated");
        let voted = mark.cast(vote(3)).unwrap();
        assert_eq!(voted.pledge(of(4)), Some(Mark { promised: of(4), vote: Some(vote(3)) }), "a pledge keeps the vote");
    }
}
