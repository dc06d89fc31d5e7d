//! The last answers of the agents: `SHOW pool_agents`.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use weir_agent::AgentStatus;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentContact {
    Connected,
    Unreachable,
    WrongSecret,
    Failed,
}

impl AgentContact {
    pub fn name(self) -> &'static str {
        match self {
            AgentContact::Connected => "connected",
            AgentContact::Unreachable => "unreachable",
            AgentContact::WrongSecret => "wrong secret",
            AgentContact::Failed => "failed",
        }
    }
}

#[derive(Clone, Debug)]
pub struct AgentSighting {
    pub contact: AgentContact,
    pub outcome: Result<Box<AgentStatus>, String>,
    /// In seconds since 1970.
    pub asked_at_s: u64,
}

/// Answers by node number.
#[derive(Debug, Default)]
pub struct AgentsSeen(Mutex<BTreeMap<u16, AgentSighting>>);

impl AgentsSeen {
    /// Returns the previous contact.
    pub fn note(&self, node: u16, answer: AgentSighting) -> Option<AgentContact> {
        self.0.lock().insert(node, answer).map(|before| before.contact)
    }

    /// `None`: no agent, or not asked yet.
    pub fn contact(&self, node: u16) -> Option<AgentContact> {
        self.0.lock().get(&node).map(|answer| answer.contact)
    }

    pub fn keep(&self, nodes: &[u16]) {
        self.0.lock().retain(|node, _| nodes.contains(node));
    }

    /// The last answer of a node's agent.
    pub fn answer(&self, node: u16) -> Option<AgentSighting> {
        self.0.lock().get(&node).cloned()
    }
}
