//! The state of failover as operators see it: a snapshot that other threads read.

use super::ballot::NodeId;
use super::choose::AttemptRefusal;
use super::event::{LookFailure, Ms};
use super::forecast::forecast;
use super::health::HealthCheckStats;
use super::history::Lsn;
use super::record::FailoverRecord;
use super::rules::{FailoverMode, FailoverRules};
use crate::failover_state::{FailoverState, WriteDecider, WriteTarget};
use crate::node_state::{LookSchedule, NodeStanding};

/// Time from the loss of the primary, or from the start, in which another primary is likely to come soon.
const FLUX_MS: Ms = 15_000;
/// Longest time that somebody who wants to see the nodes waits until they are settled. Most failovers take less.
const SETTLED_WITHIN_MS: Ms = 1_000;

/// Why writes wait while nothing tells which of several primaries is meant.
const SEVERAL: &str = "several nodes call themselves primary";

/// See the module. Times are those of the state's clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FailoverView {
    /// In order of their numbers.
    pub nodes: Vec<NodeFailover>,
    /// The accepted primary; it may be one that takes no writes now.
    pub primary: Option<NodeId>,
    /// Since when it is the primary, by the history; `None`: nothing is known of that.
    pub primary_since: Option<Ms>,
    /// The effect of the primary's death now, as a sentence.
    pub forecast: String,
    /// The node that an operator named, or that a command is to make the primary.
    pub named: Option<NodeId>,
    /// Why the gate is shut. Writes go all the same as long as roles tell where.
    pub held: Option<&'static str>,
    /// Weir is about to have another primary, or to find the first one, until then at the latest.
    flux_until: Option<Ms>,
    /// Changes of the primary, the oldest first.
    pub records: Vec<FailoverRecord>,
}

/// One node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeFailover {
    pub id: NodeId,
    pub standing: NodeStanding,
    /// Why the last look failed; `None`: it did not.
    pub failure: Option<LookFailure>,
    /// Begin of the last look that has ended.
    pub looked_at: Option<Ms>,
    /// A look is under way, and the one before it was answered.
    pub is_in_doubt: bool,
    /// The end of its log in that look; `None`: it did not answer.
    pub position: Option<Lsn>,
    pub stats: HealthCheckStats,
}

impl FailoverView {
    pub fn of(state: &FailoverState, rules: &FailoverRules, now: Ms) -> FailoverView {
        let node = |(id, node): (&NodeId, &super::NodeState)| NodeFailover {
            id: *id,
            standing: node.standing,
            failure: node.failure,
            looked_at: node.looked_at,
            position: node.facts().map(|facts| facts.position),
            is_in_doubt: node.failure.is_none() && matches!(node.look, LookSchedule::UnderWay { .. }),
            stats: node.health.stats.clone(),
        };
        let last = state.records.last().filter(|record| Some(record.new) == state.primary());
        FailoverView {
            nodes: state.nodes.iter().map(node).collect(),
            primary: state.primary(),
            primary_since: last.map(|record| record.at),
            forecast: forecast(state, rules).describe(now),
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

    /// True if the nodes may be shown to somebody who asks since then. No look is begun for him: the end of a server that ends its connections is
    /// known by Weir's own one. So what he did before he asked is shown, and he causes no work on servers.
    pub fn is_settled(&self, since: Ms, now: Ms) -> bool {
        let is_unknown = |node: &NodeFailover| node.is_in_use() && node.is_in_doubt;
        now >= since + SETTLED_WITHIN_MS || !(self.is_in_flux(now) || self.nodes.iter().any(is_unknown))
    }

    /// True if another primary, or the first one, is about to come.
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

    /// True if the last look found nobody.
    pub fn is_silent(&self) -> bool {
        self.failure.is_some_and(LookFailure::is_death)
    }
}

/// See the field. Nobody knows how long others take to promote a node, if they do, and without a node that answers there is nothing to wait for.
fn flux_until(state: &FailoverState, rules: &FailoverRules) -> Option<Ms> {
    let promotes = matches!(rules.mode, FailoverMode::Builtin | FailoverMode::Command);
    let is_stuck = state.stuck.is_some_and(|why| why != AttemptRefusal::NotByWeir);
    let is_lost = state.line.lost_at.is_some() || matches!(state.gate, WriteTarget::Held(..));
    let may_succeed =
        |(id, node): (&NodeId, &super::NodeState)| Some(*id) != state.primary() && node.is_in_use() && node.failure.is_none();
    let has_other = state.nodes.iter().any(may_succeed);
    (promotes && !is_stuck && is_lost && has_other).then(|| state.line.lost_at.unwrap_or(0) + FLUX_MS)
}
