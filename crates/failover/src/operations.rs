//! The data of all that goes on: attempts, switchovers, restarts, returns of servers and questions to agents. `attempt`, `switchover`, `restart`,
//! `rejoin` and `inquiry` change them.

use std::collections::{BTreeMap, BTreeSet};

use super::ballot::{Ballot, BallotPurpose, Epoch, NodeId, Vote};
use super::choose::AttemptRefusal;
use super::event::{Done, Facts, LookFailure, Ms};
use super::history::Lsn;
use super::record::{CommitLoss, FailoverCause, FailoverDurations};
use super::rules::{FailoverRules, QuorumSize};

/// An attempt: see `attempt`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Attempt {
    pub aim: Aim,
    pub ballot: Ballot,
    pub parent: Epoch,
    pub(super) quorum: QuorumSize,
    pub phase: Phase,
    pub(super) pledges: BTreeMap<NodeId, PledgeAnswer>,
    pub(super) begun_at: Ms,
    pub(super) parts: FailoverDurations,
    pub(super) loss: CommitLoss,
    pub(super) why: FailoverCause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Aim {
    /// The primary is gone.
    Replace,
    /// The operator wants this node, whatever is lost and however few agree.
    Force { node: NodeId, ticket: u64 },
    /// The operator wants this node, which is to hold all that the primary has: that one is stopped. `started_at`: only this start of it.
    Succeed { node: NodeId, started_at: Option<u64> },
    /// An attempt was left undone while the primary lives.
    Settle,
    /// Promises to an attempt of ours without an effect are left, while the primary lives.
    ClearPromises,
    /// The node that was replaced follows and shall vote again.
    RestoreVote,
}

impl Aim {
    pub(super) fn purpose(self) -> BallotPurpose {
        match self {
            Aim::Succeed { .. } => BallotPurpose::Switchover,
            Aim::ClearPromises | Aim::RestoreVote => BallotPurpose::Tend,
            Aim::Replace | Aim::Force { .. } | Aim::Settle => BallotPurpose::Failover,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The term is not on disk yet.
    Storing,
    Pledging {
        until: Ms,
    },
    /// The old primary is looked at once more.
    Proving {
        from: Ms,
        until: Ms,
    },
    /// It does not answer, and its agent is to end it, which proves that it runs no more.
    Ending {
        /// Why the last look failed.
        failure: LookFailure,
        until: Ms,
    },
    /// The chosen standby is to stream: its receiver starts anew when it pledges. Writes go on.
    Streaming {
        from: Ms,
        until: Ms,
    },
    /// Other Weirs see the promises, begin nothing more on the primary, and let what runs end. Writes go on here.
    Yielding {
        until: Ms,
        /// When the transactions of all Weirs are to have ended.
        drained_by: Ms,
    },
    /// Nothing begins on the primary; transactions that run end.
    Draining {
        until: Ms,
    },
    /// The old primary is being stopped.
    Stopping {
        until: Ms,
    },
    /// It is stopped; all pledge again, and standbys are cut off from it.
    Parting {
        until: Ms,
    },
    /// Its files are looked at: where its log ends.
    Inspecting {
        until: Ms,
    },
    /// The chosen standby holds all of the log, and is to replay it beyond this place.
    Replaying {
        last: Lsn,
        until: Ms,
    },
    Promoting {
        node: NodeId,
        until: Ms,
    },
    Waiting {
        node: NodeId,
        until: Ms,
    },
    Voting {
        vote: Vote,
        found: Option<Box<Facts>>,
        votes: BTreeSet<NodeId>,
        asked: AskedVoters,
        until: Ms,
    },
}

/// The nodes that were asked for a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AskedVoters {
    /// The new primary. No standby follows it, so nothing written to it past Weir is acknowledged, before it has its own vote.
    Itself,
    All,
}

/// How a node answered the pledge.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum PledgeAnswer {
    Open,
    Given(Box<Facts>),
    No,
}

impl Attempt {
    pub(super) fn until(&self) -> Ms {
        match self.phase {
            Phase::Storing => Ms::MAX,
            Phase::Pledging { until }
            | Phase::Streaming { until, .. }
            | Phase::Yielding { until, .. }
            | Phase::Draining { until }
            | Phase::Stopping { until }
            | Phase::Parting { until }
            | Phase::Inspecting { until }
            | Phase::Replaying { until, .. }
            | Phase::Ending { until, .. }
            | Phase::Proving { until, .. }
            | Phase::Promoting { until, .. }
            | Phase::Waiting { until, .. }
            | Phase::Voting { until, .. } => until,
        }
    }

    /// The old primary, as long as a look at it would only delay the one that counts, which begins after the pledges.
    pub(super) fn node_left_alone(&self) -> Option<NodeId> {
        let is_asking = matches!(self.phase, Phase::Storing | Phase::Pledging { .. });
        (is_asking && !self.leaves_writes()).then_some(self.parent.node)
    }

    /// The old primary, while the look at it decides if it stays.
    pub(super) fn proves(&self) -> Option<NodeId> {
        matches!(self.phase, Phase::Proving { .. }).then_some(self.parent.node)
    }

    /// True if writes go on meanwhile.
    pub(super) fn leaves_writes(&self) -> bool {
        match self.aim {
            Aim::RestoreVote | Aim::ClearPromises => true,
            Aim::Succeed { .. } => {
                matches!(self.phase, Phase::Storing | Phase::Pledging { .. } | Phase::Streaming { .. } | Phase::Yielding { .. })
            }
            Aim::Replace | Aim::Force { .. } | Aim::Settle => false,
        }
    }

    /// True if this is a switchover whose primary was not told to stop yet.
    pub(super) fn is_before_stop(&self) -> bool {
        matches!(self.aim, Aim::Succeed { .. }) && (self.leaves_writes() || matches!(self.phase, Phase::Draining { .. }))
    }

    /// True if nothing comes of it if it ends now for this reason, and writes may go on: nobody was told to promote himself or to vote. One that
    /// another Weir's decision overtook replaces a primary that is none any more.
    pub(super) fn is_void(&self, refusal: AttemptRefusal) -> bool {
        let is_effective = matches!(self.phase, Phase::Promoting { .. } | Phase::Waiting { .. } | Phase::Voting { .. });
        let leaves_primary = matches!(self.aim, Aim::Succeed { .. } | Aim::Settle | Aim::ClearPromises);
        (leaves_primary || refusal == AttemptRefusal::Outrun) && !is_effective
    }

    /// The nodes that pledged.
    pub(super) fn given(&self) -> BTreeSet<NodeId> {
        let is_given = |(_, answer): &(&NodeId, &PledgeAnswer)| matches!(answer, PledgeAnswer::Given(_));
        self.pledges.iter().filter(is_given).map(|(id, _)| *id).collect()
    }

    pub(super) fn facts(&self) -> impl Iterator<Item = (NodeId, &Facts)> {
        self.pledges.iter().filter_map(|(id, answer)| match answer {
            PledgeAnswer::Given(facts) => Some((*id, &**facts)),
            PledgeAnswer::Open | PledgeAnswer::No => None,
        })
    }

    pub(super) fn needed(&self, rules: &FailoverRules) -> usize {
        match self.aim {
            Aim::Force { .. } => 1,
            Aim::RestoreVote | Aim::Replace | Aim::Settle | Aim::ClearPromises | Aim::Succeed { .. } => {
                rules.needed(self.electors(rules).len(), self.quorum)
            }
        }
    }

    /// Those whose pledges and votes count.
    pub(super) fn electors(&self, rules: &FailoverRules) -> BTreeSet<NodeId> {
        match self.aim {
            // One more than before: they overlap with every majority of before.
            Aim::RestoreVote => Epoch { replaced: None, ..self.parent }.voters(rules.ids()),
            Aim::Replace | Aim::Settle | Aim::ClearPromises | Aim::Succeed { .. } => rules.electors(&self.parent, self.quorum),
            Aim::Force { .. } => rules.ids().collect(),
        }
    }
}

/// Wishes of operators that are not fulfilled yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Planned {
    /// Named by an operator, and not yet seen as a primary.
    pub named: Option<NodeId>,
    /// When the command failed that was to promote it.
    pub failed_at: Option<Ms>,
    pub switchover: Option<Switchover>,
    pub restart: Option<Restart>,
}

/// A switchover: see `switchover`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Switchover {
    pub from: NodeId,
    pub to: NodeId,
    pub(super) ticket: u64,
    pub stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Another attempt is under way, or the standby does not stream yet.
    Waiting {
        until: Ms,
        since: Ms,
        /// The log that the standby had at the first look since then: it must have replayed that.
        had: Option<Lsn>,
    },
    /// The primary writes out what its shutdown would have to.
    Preparing {
        until: Ms,
    },
    /// An attempt is under way.
    Taking,
    /// The old primary takes writes again once it answers to a look of now or later.
    Undoing {
        why: String,
        since: Ms,
        start: OldPrimaryStart,
        /// The order to stop it, if it was given and is not known to be obeyed.
        stop: Option<StopOrder>,
        until: Ms,
    },
    /// The files of the old primary are made those of a standby.
    Following {
        until: Ms,
        retry_at: Ms,
    },
    Starting {
        until: Ms,
        retry_at: Ms,
    },
    Returning {
        until: Ms,
    },
}

/// The order to start the old primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OldPrimaryStart {
    DueAt(Ms),
    /// Its agent is to end it first.
    Ending(StopOrder),
    Ordered,
    Done,
}

/// The attempt that had a server stopped, and the start of the server that was meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StopOrder {
    pub ballot: Ballot,
    pub started_at: Option<u64>,
}

impl Switchover {
    /// When something is due.
    pub(super) fn due(&self) -> Ms {
        match &self.stage {
            Stage::Waiting { until, .. } | Stage::Preparing { until } | Stage::Returning { until } => *until,
            Stage::Taking => Ms::MAX,
            Stage::Undoing { start: OldPrimaryStart::DueAt(at), until, .. } => *until.min(at),
            Stage::Undoing { until, .. } => *until,
            Stage::Following { until, retry_at } | Stage::Starting { until, retry_at } => *until.min(retry_at),
        }
    }
}

/// A restart of a standby: see `restart`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Restart {
    pub node: NodeId,
    pub(super) ticket: u64,
    /// The start of the server before, from `Draining` on.
    pub(super) started_at: u64,
    pub step: Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// It is in use until it is seen streaming.
    Awaiting { until: Ms },
    /// Statements that run on it end.
    Draining { until: Ms },
    /// The agent is at work.
    Restarting { until: Ms },
    /// It runs again, or somebody is to start it anew.
    Returning { until: Ms },
}

impl Restart {
    /// When something is due.
    pub(super) fn due(&self) -> Ms {
        match self.step {
            Step::Awaiting { until } | Step::Draining { until } | Step::Restarting { until } | Step::Returning { until } => until,
        }
    }
}

/// A question to the agent of a primary that is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Inquiry {
    #[default]
    None,
    Asked {
        node: NodeId,
    },
    Heard {
        node: NodeId,
        done: Done,
        at: Ms,
    },
}

/// How far the return of a node has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rejoin {
    #[default]
    No,
    UnderWay {
        way: RejoinWay,
        failures: u32,
        copies: u32,
    },
    Failed {
        way: RejoinWay,
        failures: u32,
        copies: u32,
        again_at: Ms,
    },
    /// It was started as a standby. Once it streams it is attached.
    Brought {
        at: Ms,
        copies: u32,
    },
    /// It does not stream, however often it is copied: nothing more is done after this decision. It is attached all the same once it streams.
    Vain {
        ballot: Ballot,
    },
}

/// How a server gets the files of its primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RejoinWay {
    /// Its own are rewound; where that cannot be, a copy is made.
    Rewind,
    Copy,
}

/// The next deed for a server that was brought back and does not stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    Copy,
    Nothing,
}
