//! The data of work under way. Behaviour: `attempt`, `switchover`, `restart`, `rejoin` and `agent_inquiry`.

use std::collections::{BTreeMap, BTreeSet};

use super::ballot::{Ballot, BallotPurpose, Epoch, NodeId, Vote};
use super::choose::AttemptRefusal;
use super::event::{Done, LookFailure, Ms, ServerFacts};
use super::history::Lsn;
use super::record::{CommitLoss, FailoverCause, FailoverDurations};
use super::rules::{FailoverRules, QuorumSize};

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
    Replace,
    /// By an operator, at any loss and without a majority.
    Force {
        node: NodeId,
        ticket: u64,
    },
    /// By an operator, without loss: stops the primary if its start is still `started_at`.
    Succeed {
        node: NodeId,
        started_at: Option<u64>,
    },
    /// An undone attempt while the primary lives.
    Settle,
    /// Promises to an attempt without effect, while the primary lives.
    ClearPromises,
    /// The replaced node follows and shall vote again.
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
    Storing,
    Pledging {
        until: Ms,
    },
    Proving {
        from: Ms,
        until: Ms,
    },
    /// The silent old primary is ended by its agent, which proves its death.
    Ending {
        failure: LookFailure,
        until: Ms,
    },
    /// The chosen standby is to stream: its receiver restarts with the pledge. Writes go on.
    Streaming {
        from: Ms,
        until: Ms,
    },
    /// Other Weirs see the promises, and drain the primary. Writes go on here.
    Yielding {
        until: Ms,
        drained_by: Ms,
    },
    /// Running transactions end; none begins.
    Draining {
        until: Ms,
    },
    Stopping {
        until: Ms,
    },
    /// The primary is stopped; all pledge again, and standbys are cut off from it.
    Parting {
        until: Ms,
    },
    /// The stopped server's files tell the end of its log.
    Inspecting {
        until: Ms,
    },
    /// The chosen standby has all of the log, and is to replay beyond this position.
    Replaying {
        last: Lsn,
        until: Ms,
    },
    /// The chosen standby is stored before it is told to promote itself.
    Noting {
        node: NodeId,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AskedVoters {
    /// The new primary. Until it has its own vote no standby follows it, so no write past Weir is acknowledged.
    Itself,
    All,
}

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
            | AttemptPhase::Noting { until, .. }
            | AttemptPhase::Promoting { until, .. }
            | AttemptPhase::Waiting { until, .. }
            | AttemptPhase::Voting { until, .. } => until,
        }
    }

    /// Returns the old primary while a look at it would only delay the one that counts, after the pledges.
    pub(super) fn node_left_alone(&self) -> Option<NodeId> {
        let is_asking = matches!(self.phase, AttemptPhase::Storing | AttemptPhase::Pledging { .. });
        (is_asking && !self.leaves_writes()).then_some(self.parent.node)
    }

    pub(super) fn proves(&self) -> Option<NodeId> {
        matches!(self.phase, AttemptPhase::Proving { .. }).then_some(self.parent.node)
    }

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

    /// True for a switchover whose primary was not told to stop yet.
    pub(super) fn is_before_stop(&self) -> bool {
        matches!(self.aim, AttemptAim::Succeed { .. })
            && (self.leaves_writes() || matches!(self.phase, AttemptPhase::Draining { .. }))
    }

    /// True if ending now has no effect and writes may go on: no order to promote or vote was given. `Outrun`: the replaced node is no
    /// longer the primary.
    pub(super) fn is_void(&self, refusal: AttemptRefusal) -> bool {
        let is_effective =
            matches!(self.phase, AttemptPhase::Promoting { .. } | AttemptPhase::Waiting { .. } | AttemptPhase::Voting { .. });
        let leaves_primary = matches!(self.aim, AttemptAim::Succeed { .. } | AttemptAim::Settle | AttemptAim::ClearPromises);
        (leaves_primary || refusal == AttemptRefusal::Outrun) && !is_effective
    }

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

    pub(super) fn electors(&self, rules: &FailoverRules) -> BTreeSet<NodeId> {
        match self.aim {
            // One node more: majorities overlap with the former ones.
            AttemptAim::RestoreVote => Epoch { replaced: None, ..self.parent }.voters(rules.ids()),
            AttemptAim::Replace | AttemptAim::Settle | AttemptAim::ClearPromises | AttemptAim::Succeed { .. } => {
                rules.electors(&self.parent, self.quorum)
            }
            AttemptAim::Force { .. } => rules.ids().collect(),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OperatorPlans {
    /// Named by an operator, and not yet seen as a primary.
    pub named: Option<NodeId>,
    /// When the promotion command failed.
    pub failed_at: Option<Ms>,
    pub switchover: Option<Switchover>,
    pub restart: Option<StandbyRestart>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Switchover {
    pub from: NodeId,
    pub to: NodeId,
    pub(super) ticket: u64,
    pub stage: SwitchoverStage,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SwitchoverStage {
    Waiting {
        until: Ms,
        since: Ms,
        /// The standby's log at the first look after `since`, which it must have replayed.
        had: Option<Lsn>,
    },
    /// The primary writes out what its shutdown would.
    Preparing {
        until: Ms,
    },
    Taking,
    /// The old primary takes writes again once it answers to a look after `since`.
    Undoing {
        why: String,
        since: Ms,
        start: OldPrimaryStart,
        /// The stop order, if given and not known to be obeyed.
        stop: Option<StopOrder>,
        until: Ms,
    },
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OldPrimaryStart {
    DueAt(Ms),
    Ending(StopOrder),
    Ordered,
    Done,
}

/// The attempt that stops a server, and the start that was meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StopOrder {
    pub ballot: Ballot,
    pub started_at: Option<u64>,
}

impl Switchover {
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

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StandbyRestart {
    pub node: NodeId,
    pub(super) ticket: u64,
    pub(super) started_at: u64,
    pub step: RestartStep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RestartStep {
    /// In use until seen streaming.
    Awaiting {
        until: Ms,
    },
    Draining {
        until: Ms,
    },
    Restarting {
        until: Ms,
    },
    /// Running again, or waiting for an operator's restart.
    Returning {
        until: Ms,
    },
}

impl StandbyRestart {
    pub(super) fn due(&self) -> Ms {
        match self.step {
            RestartStep::Awaiting { until }
            | RestartStep::Draining { until }
            | RestartStep::Restarting { until }
            | RestartStep::Returning { until } => until,
        }
    }
}

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
    /// Started as a standby; attached once it streams.
    Brought {
        at: Ms,
        copies: u32,
    },
    /// Copied too often without streaming: given up for this decision, but attached once it streams.
    Vain {
        ballot: Ballot,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RejoinWay {
    /// Falls back to a copy where a rewind is impossible.
    Rewind,
    Copy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejoinFallback {
    Copy,
    Nothing,
}
