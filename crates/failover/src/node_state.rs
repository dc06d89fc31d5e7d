//! One node as Weir knows it.

use super::action::NodeDownReason;
use super::ballot::NodeId;
use super::event::{LookFailure, Ms, ServerFacts};
use super::health::LookHistory;
use super::operations::RejoinProgress;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeStanding {
    /// In use; no client has come since it was attached.
    Waiting,
    Up,
    Down {
        why: NodeDownReason,
        since: Ms,
    },
    /// Heard by its standbys, but not by this Weir.
    Quarantined {
        since: Ms,
    },
    Detached,
    /// Copied from the primary, or restarted.
    Recovering,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeState {
    pub standing: NodeStanding,
    pub health: LookHistory,
    pub seen: Option<TimedFacts>,
    pub failure: Option<LookFailure>,
    pub looked_at: Option<Ms>,
    pub look: LookSchedule,
    /// Earliest time of the next fence or vote.
    pub busy_until: Ms,
    /// Time of the last change of `started_at`.
    pub incarnation_at: Ms,
    /// Begin and cause of a health verdict of "dead".
    pub dead: Option<(Ms, LookFailure)>,
    pub woken: Option<WakeOrder>,
    /// True from a new address by reload until a primary is accepted there.
    pub renamed: bool,
    /// `system_identifier` of a reported foreign cluster.
    pub told_foreign: Option<u64>,
    /// The dead node that this one follows, as reported.
    pub orphan_of: Option<NodeId>,
    /// `started_at` of a server reported as streaming and waiting for an operator.
    pub told_unused: Option<u64>,
    pub rejoin: RejoinProgress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WakeOrder {
    pub over_at: Ms,
    pub again_at: Ms,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtAddress {
    /// Same as far as facts tell.
    Same,
    /// Restarted, or a different server behind the address.
    AnotherStart,
    AnotherCluster,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TimedFacts {
    pub begun_at: Ms,
    pub answered_at: Ms,
    pub facts: ServerFacts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LookSchedule {
    Due {
        at: Ms,
    },
    /// `again`: another look follows at once.
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

    pub fn facts(&self) -> Option<&ServerFacts> {
        self.seen.as_ref().map(|seen| &seen.facts).filter(|_| self.failure.is_none())
    }

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

    /// Schedules a look, at the latest at `at`.
    pub fn look_by(&mut self, at: Ms) {
        match &mut self.look {
            LookSchedule::Due { at: due } => *due = at.min(*due),
            LookSchedule::UnderWay { .. } => {}
        }
    }

    /// Schedules a look, at least `apart_ms` after the last one.
    pub fn look_soon(&mut self, now: Ms, apart_ms: Ms) {
        self.look_by(self.looked_at.map_or(now, |last| now.max(last + apart_ms)));
    }

    /// Schedules a look that begins now or later.
    pub fn look_anew(&mut self, now: Ms) {
        match &mut self.look {
            LookSchedule::Due { at } => *at = now.min(*at),
            LookSchedule::UnderWay { begun_at, again } => *again = *again || *begun_at < now,
        }
    }

    pub fn was_looked_at_since(&self, from: Ms) -> bool {
        self.looked_at.is_some_and(|at| at >= from)
    }
}
