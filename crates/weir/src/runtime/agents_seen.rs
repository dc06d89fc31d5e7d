//! The agents beside the servers, as they were last asked: `SHOW pool_agents`.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use weir_agent::AgentStatus;

/// If an agent answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentContact {
    Connected,
    Unreachable,
    WrongSecret,
    /// Something else keeps Weir from asking it; the error tells.
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

/// One answer, or the lack of it.
#[derive(Clone, Debug)]
pub struct AgentSighting {
    pub contact: AgentContact,
    /// `Err`: why there is no status.
    pub outcome: Result<Box<AgentStatus>, String>,
    /// In seconds since 1970.
    pub asked_at_s: u64,
}

/// By the node's number. Written by one task, every few seconds.
#[derive(Debug, Default)]
pub struct AgentsSeen(Mutex<BTreeMap<u16, AgentSighting>>);

impl AgentsSeen {
    /// Notes an answer. Gives the contact before.
    pub fn note(&self, node: u16, answer: AgentSighting) -> Option<AgentContact> {
        self.0.lock().insert(node, answer).map(|before| before.contact)
    }

    /// If the agent of a node answers; `None`: it has none, or was not asked yet.
    pub fn contact(&self, node: u16) -> Option<AgentContact> {
        self.0.lock().get(&node).map(|answer| answer.contact)
    }

    /// Forgets the agents of all other nodes.
    pub fn keep(&self, nodes: &[u16]) {
        self.0.lock().retain(|node, _| nodes.contains(node));
    }

    /// The last answer of a node's agent.
    pub fn answer(&self, node: u16) -> Option<AgentSighting> {
        self.0.lock().get(&node).cloned()
    }
}
