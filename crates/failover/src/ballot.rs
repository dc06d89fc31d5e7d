//! Votes of servers: how several Weirs agree on one primary without knowing each other.
//!
//! Every standby keeps a [`Mark`] where it keeps the address of its primary, so it outlives Weirs and restarts. A Weir reads and writes it
//! under an advisory lock of that server. A primary is *decided* once a majority of the voters have its vote; the voters of an epoch are all
//! nodes but its primary and the one that it replaced. This is Paxos with one instance for each primary: a pledge at a majority shows the votes
//! that may have decided, and the newest of them must be followed.

use std::collections::BTreeSet;

/// Number of a node in the configuration, as in `backend_hostname0`.
pub type NodeId = u16;

/// The number of an attempt. Two Weirs never use the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ballot {
    pub term: u64,
    /// Random number of the Weir.
    pub weir: u32,
}

/// The reason for an attempt. Its term tells: those of failovers are odd, those of switchovers have 2 as their rest by 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BallotPurpose {
    /// Also where an attempt is settled.
    Failover,
    /// The primary works until it is stopped.
    Switchover,
    /// The primary stays, and takes writes meanwhile: a node votes again, or promises are taken back.
    Tend,
}

impl Ballot {
    /// The number of a new attempt of a Weir that has seen terms up to `seen`. A switchover is ahead of the failover that a Weir begins which has
    /// seen as much: another Weir may see the stopped primary before it sees the promises, and is refused then, whichever number it has.
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

/// A primary by decision. Its ballot is the one under which it was proposed first, and names it: it stays when the proposal is repeated under
/// others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Epoch {
    pub ballot: Ballot,
    pub node: NodeId,
    /// The primary that was given up for it and has no vote since.
    pub replaced: Option<NodeId>,
}

/// A vote for a primary as successor of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vote {
    /// The attempt that asked for it. Only votes under one ballot are counted together.
    pub ballot: Ballot,
    pub epoch: Epoch,
    /// The decision before. A Weir that knows only older ones learns by it that it slept.
    pub parent: Epoch,
}

/// The memory that a server keeps for the Weirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mark {
    /// No attempt with a smaller number may change anything here.
    pub promised: Ballot,
    pub vote: Option<Vote>,
}

impl Epoch {
    /// A primary that was found, not decided.
    pub fn found(node: NodeId) -> Epoch {
        Epoch { ballot: Ballot::default(), node, replaced: None }
    }

    /// The nodes that vote for its successor.
    pub fn voters(&self, nodes: impl IntoIterator<Item = NodeId>) -> BTreeSet<NodeId> {
        nodes.into_iter().filter(|id| *id != self.node && Some(*id) != self.replaced).collect()
    }
}

/// Votes that decide, of so many voters. No voters decide nothing.
pub fn majority(voters: usize) -> usize {
    voters / 2 + 1
}

/// Voters to be heard of to know what a majority decided: one of them is in every majority.
pub fn hearing(voters: usize) -> usize {
    if voters == 0 { 0 } else { voters - majority(voters) + 1 }
}

impl Mark {
    /// Promises to refuse older attempts. An equal number is the same attempt, repeated. `None`: it is refused.
    pub fn pledge(self, ballot: Ballot) -> Option<Mark> {
        (ballot >= self.promised).then_some(Mark { promised: ballot, ..self })
    }

    /// Votes. `None`: a newer attempt was promised.
    pub fn cast(self, vote: Vote) -> Option<Mark> {
        (vote.ballot >= self.promised).then_some(Mark { promised: vote.ballot, vote: Some(vote) })
    }

    /// True if nothing was begun here that could replace `epoch`.
    pub fn is_settled(&self, epoch: &Epoch) -> bool {
        self.promised <= epoch.ballot || self.vote.is_some_and(|vote| vote.epoch == *epoch && vote.ballot == self.promised)
    }

    /// As a word that can stand in a connection string without quotes.
    pub fn show(&self) -> String {
        let ballot = |ballot: Ballot| format!("{}.{}", ballot.term, ballot.weir);
        let epoch = |epoch: Epoch| {
            let replaced = epoch.replaced.map_or("-".to_string(), |id| id.to_string());
            format!("{}:{}:{replaced}", ballot(epoch.ballot), epoch.node)
        };
        let vote = self.vote.map(|vote| format!("/{}/{}/{}", ballot(vote.ballot), epoch(vote.epoch), epoch(vote.parent)));
        format!("weir/{}{}", ballot(self.promised), vote.unwrap_or_default())
    }

    /// Reads what [`Mark::show`] wrote.
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
