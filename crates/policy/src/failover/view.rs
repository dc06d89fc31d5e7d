//! The state of failover as operators see it: a snapshot that other threads read.

use super::ballot::NodeId;
use super::event::{Failure, Ms};
use super::forecast::forecast;
use super::health::Stats;
use super::node::Standing;
use super::record::Record;
use super::rules::Rules;
use super::state::State;

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
    pub stats: Stats,
}

impl FailoverView {
    pub fn of(state: &State, rules: &Rules, now: Ms) -> FailoverView {
        let node = |(id, node): (&NodeId, &super::Node)| NodeFailover {
            id: *id,
            standing: node.standing,
            failure: node.failure,
            stats: node.health.stats.clone(),
        };
        let last = state.records.last().filter(|record| Some(record.new) == state.primary());
        FailoverView {
            nodes: state.nodes.iter().map(node).collect(),
            primary: state.primary(),
            primary_since: last.map(|record| record.at),
            forecast: forecast(state, rules).describe(now),
            held: match state.gate {
                super::Gate::Open { .. } => None,
                super::Gate::Held(why, _) => Some(why.describe()),
            },
            records: state.records.clone(),
        }
    }

    pub fn node(&self, id: NodeId) -> Option<&NodeFailover> {
        self.nodes.iter().find(|node| node.id == id)
    }
}
