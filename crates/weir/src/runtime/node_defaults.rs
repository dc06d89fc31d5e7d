//! The defaults of the nodes' connections, and the differences that the log has told of.

use foldhash::HashMap;
use parking_lot::Mutex;
use std::sync::Arc;
use weir_session::session_state::server_defaults::{DefaultDifference, ServerDefaults};

/// The defaults of the connection to each node that was opened or asked last.
#[derive(Default)]
pub struct OfNodes {
    last: Mutex<HashMap<u16, NodeDefaults>>,
}

struct NodeDefaults {
    defaults: Arc<ServerDefaults>,
    /// As the log has said.
    told: Vec<DefaultDifference>,
}

impl OfNodes {
    /// Takes in the defaults of a node. Gives the nodes of whose differences from the primary the log has not told yet.
    pub fn take_in(&self, node: u16, defaults: &Arc<ServerDefaults>, primary: u16) -> Vec<(u16, Vec<DefaultDifference>)> {
        let mut last = self.last.lock();
        let seen = last.entry(node).or_insert_with(|| NodeDefaults { defaults: defaults.clone(), told: Vec::new() });
        seen.defaults = defaults.clone();
        let Some(primarys) = last.get(&primary).map(|seen| seen.defaults.clone()) else { return Vec::new() };
        let mut news = Vec::new();
        for (&other, seen) in last.iter_mut().filter(|(other, _)| **other != primary && (node == primary || **other == node)) {
            let differences = seen.defaults.differences(&primarys);
            if !differences.is_empty() && differences != seen.told {
                news.push((other, differences.clone()));
            }
            seen.told = differences;
        }
        news
    }
}
