//! One node as Weir knows it: if it is in use, and the findings of the last looks.

use super::action::NodeDownReason;
use super::ballot::NodeId;
use super::event::{LookFailure, Ms, ServerFacts};
use super::health::LookHistory;
use super::operations::RejoinProgress;

/// If a node is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeStanding {
    /// In use; no client has come since it was attached.
    Waiting,
    Up,
    Down {
        why: NodeDownReason,
        since: Ms,
    },
    /// This Weir does not reach it, and its standbys do.
    Quarantined {
        since: Ms,
    },
    /// By the operator.
    Detached,
    /// A copy of the primary is being made on it.
    Recovering,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeState {
    pub standing: NodeStanding,
    pub health: LookHistory,
    /// The last answer: when the look began, when it was answered, and the facts.
    pub seen: Option<TimedFacts>,
    /// Why the last look failed; `None` if it did not.
    pub failure: Option<LookFailure>,
    /// When the last look that was answered or failed began.
    pub looked_at: Option<Ms>,
    pub look: LookSchedule,
    /// No fence, vote or the like is tried before this.
    pub busy_until: Ms,
    /// When `started_at` changed last.
    pub incarnation_at: Ms,
    /// Since when its health says that it is dead, and why.
    pub dead: Option<(Ms, LookFailure)>,
    /// Its last order to look for the primary.
    pub woken: Option<WakeOrder>,
    /// A reload gave it another address, and no primary was accepted there since.
    pub renamed: bool,
    /// The cluster of its server, if that is another one and was told of.
    pub told_foreign: Option<u64>,
    /// The dead node that it follows, as last reported.
    pub orphan_of: Option<NodeId>,
    /// The start of its server of which was told that it streams and waits for an operator.
    pub told_unused: Option<u64>,
    /// How far its agent has brought it back.
    pub rejoin: RejoinProgress,
}

/// An order to a standby to look for its primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WakeOrder {
    /// When the primary was back.
    pub over_at: Ms,
    pub again_at: Ms,
}

/// The server that a look found at a node's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtAddress {
    /// The server of before, as far as is known.
    Same,
    /// It was started anew, or the address leads to another one.
    AnotherStart,
    AnotherCluster,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TimedFacts {
    pub begun_at: Ms,
    pub answered_at: Ms,
    pub facts: ServerFacts,
}

/// The next look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LookSchedule {
    Due {
        at: Ms,
    },
    /// `again`: another one is due when it is answered.
    UnderWay {
        begun_at: Ms,
        again: bool,
    },
}

impl NodeState {
    pub fn new(standing: NodeStanding) -> NodeState {
        NodeState {
            standing,
            health: LookHistory::default(),
            seen: None,
            failure: None,
            looked_at: None,
            look: LookSchedule::Due { at: 0 },
            busy_until: 0,
            incarnation_at: 0,
            dead: None,
            renamed: false,
            told_foreign: None,
            woken: None,
            orphan_of: None,
            told_unused: None,
            rejoin: RejoinProgress::default(),
        }
    }

    /// The facts of the last look, if it was answered.
    pub fn facts(&self) -> Option<&ServerFacts> {
        self.seen.as_ref().map(|seen| &seen.facts).filter(|_| self.failure.is_none())
    }

    /// Compares facts of the server at the node's address with those of the last look.
    pub fn compare(&self, facts: &ServerFacts) -> AtAddress {
        match self.seen.as_ref().map(|seen| &seen.facts) {
            Some(before) if before.history.system != facts.history.system => AtAddress::AnotherCluster,
            Some(before) if before.started_at != facts.started_at => AtAddress::AnotherStart,
            Some(_) | None => AtAddress::Same,
        }
    }

    pub fn is_in_use(&self) -> bool {
        match self.standing {
            NodeStanding::Waiting | NodeStanding::Up => true,
            NodeStanding::Down { .. } | NodeStanding::Quarantined { .. } | NodeStanding::Detached | NodeStanding::Recovering => {
                false
            }
        }
    }

    /// Has it looked at at this time.
    pub fn look_by(&mut self, at: Ms) {
        match &mut self.look {
            LookSchedule::Due { at: due } => *due = at.min(*due),
            LookSchedule::UnderWay { .. } => {}
        }
    }

    /// Has it looked at now, but not sooner than so long after the last look.
    pub fn look_soon(&mut self, now: Ms, apart_ms: Ms) {
        self.look_by(self.looked_at.map_or(now, |last| now.max(last + apart_ms)));
    }

    /// Has it looked at now; a look under way is not enough.
    pub fn look_anew(&mut self, now: Ms) {
        match &mut self.look {
            LookSchedule::Due { at } => *at = now.min(*at),
            LookSchedule::UnderWay { begun_at, again } => *again = *again || *begun_at < now,
        }
    }

    /// True if a look that began at `from` or later has ended.
    pub fn was_looked_at_since(&self, from: Ms) -> bool {
        self.looked_at.is_some_and(|at| at >= from)
    }
}
