//! The state of failover as operators see it: a snapshot that other threads read.

use super::ballot::NodeId;
use super::choose::Refusal;
use super::event::{Failure, Ms};
use super::forecast::forecast;
use super::health::Stats;
use super::node::Standing;
use super::record::Record;
use super::rules::{Mode, Rules};
use super::state::{Gate, State};

/// Time from the loss of the primary, or from the start, in which another primary is likely to come soon.
const FLUX_MS: Ms = 15_000;
/// Longest time that somebody who wants to see the nodes waits for the answers of those that are silent.
const SILENT_MS: Ms = 2_000;

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
    /// Why writes wait, if they do.
    pub held: Option<&'static str>,
    /// Weir is about to have another primary, or to find the first one, until then at the latest.
    flux_until: Option<Ms>,
    /// Changes of the primary, the oldest first.
    pub records: Vec<Record>,
}

/// One node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeFailover {
    pub id: NodeId,
    pub standing: Standing,
    /// Why the last look failed; `None`: it did not.
    pub failure: Option<Failure>,
    /// Begin of the last look that has ended.
    pub looked_at: Option<Ms>,
    pub stats: Stats,
}

impl FailoverView {
    pub fn of(state: &State, rules: &Rules, now: Ms) -> FailoverView {
        let node = |(id, node): (&NodeId, &super::Node)| NodeFailover {
            id: *id,
            standing: node.standing,
            failure: node.failure,
            looked_at: node.looked_at,
            stats: node.health.stats.clone(),
        };
        let last = state.records.last().filter(|record| Some(record.new) == state.primary());
        FailoverView {
            nodes: state.nodes.iter().map(node).collect(),
            primary: state.primary(),
            primary_since: last.map(|record| record.at),
            forecast: forecast(state, rules).describe(now),
            held: match state.gate {
                Gate::Open { .. } => None,
                Gate::Held(why, _) => Some(why.describe()),
            },
            flux_until: flux_until(state, rules),
            records: state.records.clone(),
        }
    }

    /// The next thing to do for somebody who wants to see the nodes as they are, and asks since then.
    pub fn freshness(&self, since: Ms, now: Ms) -> Freshness {
        let is_due = |node: &NodeFailover| node.is_in_use() && node.looked_at.is_none_or(|at| at < since);
        if now < since + SILENT_MS && self.nodes.iter().any(is_due) {
            return Freshness::Look;
        }
        if self.flux_until.is_some_and(|until| now < until) { Freshness::Wait } else { Freshness::Shown }
    }

    pub fn node(&self, id: NodeId) -> Option<&NodeFailover> {
        self.nodes.iter().find(|node| node.id == id)
    }
}

/// See [`FailoverView::freshness`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// The nodes are to be looked at.
    Look,
    /// They were, and the primary is about to change.
    Wait,
    /// The view may be shown.
    Shown,
}

impl NodeFailover {
    fn is_in_use(&self) -> bool {
        matches!(self.standing, Standing::Waiting | Standing::Up)
    }

    /// True if the last look found nobody.
    pub fn is_silent(&self) -> bool {
        self.failure.is_some_and(Failure::is_death)
    }
}

/// See the field. Nobody knows how long others take to promote a node, if they do, and without a node that answers there is nothing to wait for.
fn flux_until(state: &State, rules: &Rules) -> Option<Ms> {
    let promotes = matches!(rules.mode, Mode::Builtin | Mode::Command);
    let is_stuck = state.stuck.is_some_and(|why| why != Refusal::NotByWeir);
    let is_lost = state.line.lost_at.is_some() || matches!(state.gate, Gate::Held(..));
    let may_succeed =
        |(id, node): (&NodeId, &super::Node)| Some(*id) != state.primary() && node.is_in_use() && node.failure.is_none();
    let has_other = state.nodes.iter().any(may_succeed);
    (promotes && !is_stuck && is_lost && has_other).then(|| state.line.lost_at.unwrap_or(0) + FLUX_MS)
}
