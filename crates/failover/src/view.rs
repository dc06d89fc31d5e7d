//! Failover as operators see it: a snapshot that other threads read.

use super::ballot::NodeId;
use super::choose::AttemptRefusal;
use super::event::{LookFailure, Ms};
use super::forecast::{FailoverProspect, forecast};
use super::health::HealthCheckStats;
use super::history::Lsn;
use super::record::FailoverRecord;
use super::rules::{FailoverMode, FailoverRules};
use crate::failover_state::{FailoverState, WriteDecider, WriteTarget};
use crate::node_state::{LookSchedule, NodeStanding};

/// Time after a loss or the start in which a primary is likely to come.
const FLUX_MS: Ms = 15_000;
/// Longest wait of a viewer for settled nodes; most failovers take less.
const SETTLED_WITHIN_MS: Ms = 1_000;

const SEVERAL: &str = "several nodes call themselves primary";

/// Times are those of the state's clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FailoverView {
    pub nodes: Vec<NodeFailover>,
    /// Also one that takes no writes now.
    pub primary: Option<NodeId>,
    /// `None`: unknown.
    pub primary_since: Option<Ms>,
    pub forecast: String,
    pub prospect: FailoverProspect,
    /// Named by an operator, or the goal of a command.
    pub named: Option<NodeId>,
    /// Why the gate is shut. Writes go all the same while roles tell where.
    pub held: Option<&'static str>,
    /// Latest time for another primary, or the first one, to come.
    flux_until: Option<Ms>,
    pub records: Vec<FailoverRecord>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct NodeFailover {
    pub id: NodeId,
    pub standing: NodeStanding,
    pub failure: Option<LookFailure>,
    /// Promoted beside the primary.
    pub is_apart: bool,
    pub looked_at: Option<Ms>,
    /// True while a look is under way after an answered one.
    pub is_in_doubt: bool,
    /// The end of the log; `None`: no answer.
    pub position: Option<Lsn>,
    pub stats: HealthCheckStats,
}

impl FailoverView {
    pub fn of(state: &FailoverState, rules: &FailoverRules, now: Ms) -> FailoverView {
        let node = |(id, node): (&NodeId, &super::NodeState)| NodeFailover {
            id: *id,
            standing: node.standing,
            failure: node.failure,
            is_apart: state.is_apart(*id),
            looked_at: node.looked_at,
            position: node.facts().map(|facts| facts.position),
            is_in_doubt: node.failure.is_none() && matches!(node.look, LookSchedule::UnderWay { .. }),
            stats: node.health.stats.clone(),
        };
        let forecast = forecast(state, rules);
        let last = state.records.last().filter(|record| Some(record.new) == state.primary());
        FailoverView {
            nodes: state.nodes.iter().map(node).collect(),
            primary: state.primary(),
            primary_since: last.map(|record| record.at),
            forecast: forecast.describe(now),
            prospect: forecast.prospect(),
            named: state.planned.named,
            held: match state.gate {
                WriteTarget::Open { .. } => None,
                WriteTarget::Held(..) if state.decider(rules) == WriteDecider::Nothing => Some(SEVERAL),
                WriteTarget::Held(why, _) => Some(why.describe()),
            },
            flux_until: flux_until(state, rules),
            records: state.records.clone(),
        }
    }

    /// True if a viewer who asks since then may see the nodes. No look is begun for a viewer, who thus loads no server: Weir's own look,
    /// due when a server ends its connections, suffices.
    pub fn is_settled(&self, since: Ms, now: Ms) -> bool {
        let is_unknown = |node: &NodeFailover| node.is_in_use() && node.is_in_doubt;
        now >= since + SETTLED_WITHIN_MS || !(self.is_in_flux(now) || self.nodes.iter().any(is_unknown))
    }

    pub fn is_in_flux(&self, now: Ms) -> bool {
        self.flux_until.is_some_and(|until| now < until)
    }

    pub fn node(&self, id: NodeId) -> Option<&NodeFailover> {
        self.nodes.iter().find(|node| node.id == id)
    }
}

impl NodeFailover {
    fn is_in_use(&self) -> bool {
        matches!(self.standing, NodeStanding::Waiting | NodeStanding::Up)
    }

    pub fn is_silent(&self) -> bool {
        self.failure.is_some_and(LookFailure::is_death)
    }
}

/// Other promoters' times are unknown, and without a node that answers there is nothing to wait for.
fn flux_until(state: &FailoverState, rules: &FailoverRules) -> Option<Ms> {
    let promotes = matches!(rules.mode, FailoverMode::Builtin | FailoverMode::Command);
    let is_stuck = state.stuck.is_some_and(|why| why != AttemptRefusal::NotByWeir);
    let is_lost = state.line.lost_at.is_some() || matches!(state.gate, WriteTarget::Held(..));
    let may_succeed =
        |(id, node): (&NodeId, &super::NodeState)| Some(*id) != state.primary() && node.is_in_use() && node.failure.is_none();
    let has_other = state.nodes.iter().any(may_succeed);
    (promotes && !is_stuck && is_lost && has_other).then(|| state.line.lost_at.unwrap_or(0) + FLUX_MS)
}
