//! `SHOW pool_agents`: the agents beside servers, as they were last asked.

use crate::admin::listing::{ListCell, ListSnapshot, Listing, listing, open, own, time};
use crate::runtime::agents_seen::AgentSighting;
use weir_agent::{AgentStatus, DataDirectoryState, ServerStatus};

/// A node, and its agent if it has one.
pub struct AgentRow {
    node: u16,
    /// Host and port of the agent.
    place: Option<(String, u16)>,
    contact: &'static str,
    status: Option<Box<AgentStatus>>,
    /// Why there is no status.
    error: Option<String>,
    asked_at_s: Option<u64>,
}

/// Address and work of an agent are hidden from database users.
pub const POOL_AGENTS: Listing<AgentRow> = listing(agent_rows).columns(&[&[
    open("node_id", |row| row.node.into()),
    own("hostname", |row| row.place.as_ref().map(|(host, _)| host).into()),
    own("port", |row| row.place.as_ref().map(|(_, port)| *port).into()),
    own("status", |row| row.contact.into()),
    own("server", |row| row.told(|status| server(status).into())),
    own("role", |row| row.told(|status| if status.has_standby_signal { "standby" } else { "primary" }.into())),
    own("control_state", |row| row.told(|status| status.control.map(|control| control.state.name()).into())),
    own("system_identifier", |row| row.told(|status| status.control.map(|control| control.system_identifier).into())),
    own("timeline", |row| row.told(|status| status.control.map(|control| control.timeline).into())),
    own("doing", |row| row.told(|status| status.job.map(|job| job.to_string()).into())),
    own("last_order", |row| row.told(|status| status.last.as_ref().map(ToString::to_string).into())),
    own("error", |row| row.error.as_ref().into()),
    own("last_asked", |row| time(row.asked_at_s)),
]]);

impl AgentRow {
    fn told(&self, of: fn(&AgentStatus) -> ListCell) -> ListCell {
        self.status.as_deref().map_or(ListCell::Empty, of)
    }
}

/// Nobody is asked: the control thread did.
fn agent_rows(of: &ListSnapshot<'_>) -> Vec<AgentRow> {
    let agents = &of.shared.cluster.agents;
    of.config.nodes.iter().map(|node| agent_row(node.id, node.agent(), agents.answer(node.id))).collect()
}

fn agent_row(node: u16, place: Option<(String, u16)>, answer: Option<AgentSighting>) -> AgentRow {
    let contact = match (&place, &answer) {
        (None, _) => "none",
        (Some(_), None) => "not asked yet",
        (Some(_), Some(answer)) => answer.contact.name(),
    };
    let asked_at_s = answer.as_ref().map(|answer| answer.asked_at_s);
    let (status, error) = match answer.map(|answer| answer.outcome) {
        None => (None, None),
        Some(Ok(status)) => (Some(status), None),
        Some(Err(error)) => (None, Some(error)),
    };
    AgentRow { node, place, contact, status, error, asked_at_s }
}

fn server(status: &AgentStatus) -> &'static str {
    match (status.server, status.data) {
        (ServerStatus::Running(server), _) => server.step.name(),
        (ServerStatus::Stopped, DataDirectoryState::Whole) => "stopped",
        (ServerStatus::Stopped, DataDirectoryState::HalfRewound) => "stopped, its files are half rewound",
        (ServerStatus::Stopped, DataDirectoryState::Absent) => "stopped, it has no data",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::agents_seen::{AgentContact, AgentsSeen};
    use weir_agent::{
        ClusterState, ControlFile, FinishedOrder, JobView, OrderFailure, OrderFailureKind, OrderId, OrderKind, OrderProgress,
    };

    fn row(seen: &AgentsSeen, node: u16, place: Option<(&str, u16)>) -> Vec<String> {
        let place = place.map(|(host, port)| (host.to_string(), port));
        POOL_AGENTS.texts(&agent_row(node, place, seen.answer(node)))
    }

    #[test]
    fn an_agent_is_shown_as_it_last_answered() {
        let (seen, place) = (AgentsSeen::default(), Some(("db1", 9797)));
        assert_eq!(row(&seen, 0, None)[..4], ["0", "", "", "none"]);
        assert_eq!(row(&seen, 1, place)[..4], ["1", "db1", "9797", "not asked yet"]);
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
        assert_eq!(row(&seen, 1, place), expected);
        assert_eq!(seen.note(1, answer(AgentContact::WrongSecret, Err("why".into()))), Some(AgentContact::Connected));
        let last = row(&seen, 1, place);
        assert_eq!((last[3].as_str(), last[4].as_str(), last[11].as_str()), ("wrong secret", "", "why"));
        seen.keep(&[0]);
        assert_eq!(row(&seen, 1, place)[3], "not asked yet");
    }
}
