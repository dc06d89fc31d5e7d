//! Defaults of the nodes' connections, and the differences already logged.

use foldhash::HashMap;
use parking_lot::Mutex;
use std::sync::Arc;
use weir_session::session_state::server_defaults::{DefaultDifference, ServerDefaults};

/// Defaults of the connection opened or asked last, by node.
#[derive(Default)]
pub struct OfNodes {
    last: Mutex<HashMap<u16, NodeDefaults>>,
}

struct NodeDefaults {
    defaults: Arc<ServerDefaults>,
    told: Vec<DefaultDifference>,
}

impl OfNodes {
    /// Returns the nodes whose differences from the primary are not logged yet.
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
