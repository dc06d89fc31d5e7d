//! The last answers of the agents: `SHOW pool_agents`.

use crate::log::utc;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use weir_agent::{AgentStatus, DataDirectoryState, ServerStatus};

pub const COLUMNS: [&str; 13] = [
    "node_id",
    "hostname",
    "port",
    "status",
    "server",
    "role",
    "control_state",
    "system_identifier",
    "timeline",
    "doing",
    "last_order",
    "error",
    "last_asked",
];

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

    /// Returns the values of `COLUMNS`. `place`: host and port of the agent, if the node has one.
    pub fn row(&self, node: u16, place: Option<(String, u16)>) -> Vec<String> {
        let place = place.map(|(host, port)| (host, port.to_string()));
        let known = self.0.lock().get(&node).cloned();
        let status = match (&place, &known) {
            (None, _) => "none",
            (Some(_), None) => "not asked yet",
            (Some(_), Some(answer)) => answer.contact.name(),
        };
        let (host, port) = place.unwrap_or_default();
        let asked_at = known.as_ref().map(|answer| utc(answer.asked_at_s)).unwrap_or_default();
        let (told, error) = match known.map(|answer| answer.outcome) {
            None => Default::default(),
            Some(Ok(status)) => (told(&status), String::new()),
            Some(Err(error)) => (Default::default(), error),
        };
        let mut row = vec![node.to_string(), host, port, status.to_string()];
        row.extend(told);
        row.extend([error, asked_at]);
        row
    }
}

fn told(status: &AgentStatus) -> [String; 7] {
    let server = match (status.server, status.data) {
        (ServerStatus::Running(server), _) => server.step.name(),
        (ServerStatus::Stopped, DataDirectoryState::Whole) => "stopped",
        (ServerStatus::Stopped, DataDirectoryState::HalfRewound) => "stopped, its files are half rewound",
        (ServerStatus::Stopped, DataDirectoryState::Absent) => "stopped, it has no data",
    };
    let [state, identifier, timeline] = match status.control {
        Some(control) => [control.state.name().into(), control.system_identifier.to_string(), control.timeline.to_string()],
        None => Default::default(),
    };
    let role = if status.has_standby_signal { "standby" } else { "primary" };
    let job = status.job.map(|job| job.to_string()).unwrap_or_default();
    let last = status.last.as_ref().map(ToString::to_string).unwrap_or_default();
    [server.into(), role.into(), state, identifier, timeline, job, last]
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_agent::{
        ClusterState, ControlFile, FinishedOrder, JobView, OrderFailure, OrderFailureKind, OrderId, OrderKind, OrderProgress,
    };

    fn place() -> Option<(String, u16)> {
        Some(("db1".into(), 9797))
    }

    #[test]
    fn an_agent_is_shown_as_it_last_answered() {
        let seen = AgentsSeen::default();
        assert_eq!(seen.row(0, None)[..4], ["0", "", "", "none"]);
        assert_eq!(seen.row(1, place())[..4], ["1", "db1", "9797", "not asked yet"]);
        let control = ControlFile {
            system_identifier: 7_306_839_521_330_281_498,
            state: ClusterState::ShutDown,
            major: 15,
            timeline: 3,
            checkpoint: 0,
            redo: 0,
            recovery_end: 0,
            recovery_timeline: 0,
            can_rewind: true,
        };
        let failure = OrderFailure::new(OrderFailureKind::Source, "no route");
        let progress = OrderProgress { done_bytes: 34 << 20, total_bytes: 120 << 20 };
        let status = AgentStatus {
            server: ServerStatus::Stopped,
            data: DataDirectoryState::Whole,
            control: Some(control),
            has_standby_signal: false,
            mark: None,
            slot: None,
            job: Some(JobView { id: OrderId(1), kind: OrderKind::BaseBackup, since_ms: 12_345, progress }),
            last: Some(FinishedOrder { id: OrderId(0), kind: OrderKind::Rewind, outcome: Err(failure) }),
        };
        let answer = |contact, outcome| AgentSighting { contact, outcome, asked_at_s: 60 };
        assert_eq!(seen.note(1, answer(AgentContact::Connected, Ok(Box::new(status)))), None);
        let expected = [
            "1",
            "db1",
            "9797",
            "connected",
            "stopped",
            "primary",
            "shut down",
            "7306839521330281498",
            "3",
            "base backup for 12 s, 34 of 120 MB",
            "rewind: failed: no route",
            "",
            "1970-01-01 00:01:00",
        ];
        assert_eq!(seen.row(1, place()), expected);
        assert_eq!(seen.note(1, answer(AgentContact::WrongSecret, Err("why".into()))), Some(AgentContact::Connected));
        let row = seen.row(1, place());
        assert_eq!((row.len(), row[3].as_str(), row[4].as_str(), row[11].as_str()), (COLUMNS.len(), "wrong secret", "", "why"));
        seen.keep(&[0]);
        assert_eq!(seen.row(1, place())[3], "not asked yet");
    }
}
