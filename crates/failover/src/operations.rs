//! The data of all that goes on: attempts, switchovers, restarts, returns of servers and questions to agents. `attempt`, `switchover`, `restart`,
//! `rejoin` and `inquiry` change them.

use std::collections::{BTreeMap, BTreeSet};

use super::ballot::{Ballot, BallotPurpose, Epoch, NodeId, Vote};
use super::choose::AttemptRefusal;
use super::event::{Done, LookFailure, Ms, ServerFacts};
use super::history::Lsn;
use super::record::{CommitLoss, FailoverCause, FailoverDurations};
use super::rules::{FailoverRules, QuorumSize};

/// An attempt: see `attempt`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FailoverAttempt {
    pub aim: AttemptAim,
    pub ballot: Ballot,
    pub parent: Epoch,
    pub(super) quorum: QuorumSize,
    pub phase: AttemptPhase,
    pub(super) pledges: BTreeMap<NodeId, PledgeState>,
    pub(super) begun_at: Ms,
    pub(super) parts: FailoverDurations,
    pub(super) loss: CommitLoss,
    pub(super) why: FailoverCause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AttemptAim {
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

impl AttemptAim {
    pub(super) fn purpose(self) -> BallotPurpose {
        match self {
            AttemptAim::Succeed { .. } => BallotPurpose::Switchover,
            AttemptAim::ClearPromises | AttemptAim::RestoreVote => BallotPurpose::Tend,
            AttemptAim::Replace | AttemptAim::Force { .. } | AttemptAim::Settle => BallotPurpose::Failover,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AttemptPhase {
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
        found: Option<Box<ServerFacts>>,
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
pub(super) enum PledgeState {
    Open,
    Given(Box<ServerFacts>),
    No,
}

impl FailoverAttempt {
    pub(super) fn until(&self) -> Ms {
        match self.phase {
            AttemptPhase::Storing => Ms::MAX,
            AttemptPhase::Pledging { until }
            | AttemptPhase::Streaming { until, .. }
            | AttemptPhase::Yielding { until, .. }
            | AttemptPhase::Draining { until }
            | AttemptPhase::Stopping { until }
            | AttemptPhase::Parting { until }
            | AttemptPhase::Inspecting { until }
            | AttemptPhase::Replaying { until, .. }
            | AttemptPhase::Ending { until, .. }
            | AttemptPhase::Proving { until, .. }
            | AttemptPhase::Promoting { until, .. }
            | AttemptPhase::Waiting { until, .. }
            | AttemptPhase::Voting { until, .. } => until,
        }
    }

    /// The old primary, as long as a look at it would only delay the one that counts, which begins after the pledges.
    pub(super) fn node_left_alone(&self) -> Option<NodeId> {
        let is_asking = matches!(self.phase, AttemptPhase::Storing | AttemptPhase::Pledging { .. });
        (is_asking && !self.leaves_writes()).then_some(self.parent.node)
    }

    /// The old primary, while the look at it decides if it stays.
    pub(super) fn proves(&self) -> Option<NodeId> {
        matches!(self.phase, AttemptPhase::Proving { .. }).then_some(self.parent.node)
    }

    /// True if writes go on meanwhile.
    pub(super) fn leaves_writes(&self) -> bool {
        match self.aim {
            AttemptAim::RestoreVote | AttemptAim::ClearPromises => true,
            AttemptAim::Succeed { .. } => {
                matches!(
                    self.phase,
                    AttemptPhase::Storing
                        | AttemptPhase::Pledging { .. }
                        | AttemptPhase::Streaming { .. }
                        | AttemptPhase::Yielding { .. }
                )
            }
            AttemptAim::Replace | AttemptAim::Force { .. } | AttemptAim::Settle => false,
        }
    }

    /// True if this is a switchover whose primary was not told to stop yet.
    pub(super) fn is_before_stop(&self) -> bool {
        matches!(self.aim, AttemptAim::Succeed { .. })
            && (self.leaves_writes() || matches!(self.phase, AttemptPhase::Draining { .. }))
    }

    /// True if nothing comes of it if it ends now for this reason, and writes may go on: nobody was told to promote himself or to vote. One that
    /// another Weir's decision overtook replaces a primary that is none any more.
    pub(super) fn is_void(&self, refusal: AttemptRefusal) -> bool {
        let is_effective =
            matches!(self.phase, AttemptPhase::Promoting { .. } | AttemptPhase::Waiting { .. } | AttemptPhase::Voting { .. });
        let leaves_primary = matches!(self.aim, AttemptAim::Succeed { .. } | AttemptAim::Settle | AttemptAim::ClearPromises);
        (leaves_primary || refusal == AttemptRefusal::Outrun) && !is_effective
    }

    /// The nodes that pledged.
    pub(super) fn given(&self) -> BTreeSet<NodeId> {
        let is_given = |(_, answer): &(&NodeId, &PledgeState)| matches!(answer, PledgeState::Given(_));
        self.pledges.iter().filter(is_given).map(|(id, _)| *id).collect()
    }

    pub(super) fn facts(&self) -> impl Iterator<Item = (NodeId, &ServerFacts)> {
        self.pledges.iter().filter_map(|(id, answer)| match answer {
            PledgeState::Given(facts) => Some((*id, &**facts)),
            PledgeState::Open | PledgeState::No => None,
        })
    }

    pub(super) fn needed(&self, rules: &FailoverRules) -> usize {
        match self.aim {
            AttemptAim::Force { .. } => 1,
            AttemptAim::RestoreVote
            | AttemptAim::Replace
            | AttemptAim::Settle
            | AttemptAim::ClearPromises
            | AttemptAim::Succeed { .. } => rules.needed(self.electors(rules).len(), self.quorum),
        }
    }

    /// Those whose pledges and votes count.
    pub(super) fn electors(&self, rules: &FailoverRules) -> BTreeSet<NodeId> {
        match self.aim {
            // One more than before: they overlap with every majority of before.
            AttemptAim::RestoreVote => Epoch { replaced: None, ..self.parent }.voters(rules.ids()),
            AttemptAim::Replace | AttemptAim::Settle | AttemptAim::ClearPromises | AttemptAim::Succeed { .. } => {
                rules.electors(&self.parent, self.quorum)
            }
            AttemptAim::Force { .. } => rules.ids().collect(),
        }
    }
}

/// Wishes of operators that are not fulfilled yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OperatorPlans {
    /// Named by an operator, and not yet seen as a primary.
    pub named: Option<NodeId>,
    /// When the command failed that was to promote it.
    pub failed_at: Option<Ms>,
    pub switchover: Option<Switchover>,
    pub restart: Option<StandbyRestart>,
}

/// A switchover: see `switchover`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Switchover {
    pub from: NodeId,
    pub to: NodeId,
    pub(super) ticket: u64,
    pub stage: SwitchoverStage,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SwitchoverStage {
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
            SwitchoverStage::Waiting { until, .. }
            | SwitchoverStage::Preparing { until }
            | SwitchoverStage::Returning { until } => *until,
            SwitchoverStage::Taking => Ms::MAX,
            SwitchoverStage::Undoing { start: OldPrimaryStart::DueAt(at), until, .. } => *until.min(at),
            SwitchoverStage::Undoing { until, .. } => *until,
            SwitchoverStage::Following { until, retry_at } | SwitchoverStage::Starting { until, retry_at } => {
                *until.min(retry_at)
            }
        }
    }
}

/// A restart of a standby: see `restart`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StandbyRestart {
    pub node: NodeId,
    pub(super) ticket: u64,
    /// The start of the server before, from `Draining` on.
    pub(super) started_at: u64,
    pub step: RestartStep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RestartStep {
    /// It is in use until it is seen streaming.
    Awaiting { until: Ms },
    /// Statements that run on it end.
    Draining { until: Ms },
    /// The agent is at work.
    Restarting { until: Ms },
    /// It runs again, or somebody is to start it anew.
    Returning { until: Ms },
}

impl StandbyRestart {
    /// When something is due.
    pub(super) fn due(&self) -> Ms {
        match self.step {
            RestartStep::Awaiting { until }
            | RestartStep::Draining { until }
            | RestartStep::Restarting { until }
            | RestartStep::Returning { until } => until,
        }
    }
}

/// A question to the agent of a primary that is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AgentInquiry {
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
pub enum RejoinProgress {
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
pub enum RejoinFallback {
    Copy,
    Nothing,
}
