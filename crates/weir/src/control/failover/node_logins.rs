//! Logins to nodes, and what is remembered of a node between looks.

use crate::control::control_conn::ControlConn;
use crate::control::control_context::ControlContext;
use crate::log::Level;
use crate::runtime::pool::server_conn::OpenError;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use tokio::time::Instant;
use weir_config::Config;
use weir_failover::{
    FailoverMode, FailoverRules, FailoverState, LookFailure, Lsn, NodeId, ProbeResult, SignOfLife, TimelineHistory,
};
use weir_io::clock::boot_now_ms;
use weir_session::metrics::WorkerCounters;

const NAME: &str = "weir_failover";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginKind {
    Statements,
    /// Needs the attribute REPLICATION.
    Replication,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryKey {
    pub(super) system: u64,
    pub(super) timeline: u32,
    pub(super) started_at: u64,
}

type Place = (String, u16);

pub struct AnswerBaseline {
    node: NodeId,
    answers: u64,
}

/// Access to the nodes of one configuration.
pub struct NodeAccess {
    pub(super) c: Rc<ControlContext>,
    pub(super) config: Arc<Config>,
    pub(super) rules: Rc<FailoverRules>,
    histories: RefCell<BTreeMap<NodeId, (HistoryKey, TimelineHistory)>>,
    /// The accepted history, and the last seen end of each standby's log.
    accepted: RefCell<(Option<TimelineHistory>, BTreeMap<NodeId, Lsn>)>,
    /// Each standby's reported upstream address, and the node at each address by the primary's followers: servers may use other
    /// names than Weir.
    places: RefCell<BTreeMap<NodeId, Place>>,
    aliases: RefCell<BTreeMap<Place, NodeId>>,
    /// Counts of answers at the end of a failed look.
    heard: RefCell<BTreeMap<NodeId, u64>>,
    complained: RefCell<BTreeSet<NodeId>>,
}

impl NodeAccess {
    pub fn new(c: Rc<ControlContext>, config: Arc<Config>, rules: Rc<FailoverRules>) -> NodeAccess {
        NodeAccess {
            c,
            config,
            rules,
            histories: RefCell::default(),
            accepted: RefCell::default(),
            places: RefCell::default(),
            aliases: RefCell::default(),
            heard: RefCell::default(),
            complained: RefCell::default(),
        }
    }

    /// Connects to a node as the health check user. Cancel safe.
    pub async fn open(&self, node: NodeId, line: LoginKind, deadline: Instant) -> Result<ControlConn, OpenError> {
        let parameters: &[(&str, &str)] = match line {
            LoginKind::Statements => &[("application_name", NAME)],
            LoginKind::Replication => &[("application_name", NAME), ("replication", "database")],
        };
        ControlConn::open(&self.c.shared, &self.config, node, parameters, deadline).await
    }

    /// True if a standby stores its numbers before promotion: another Weir may take over, and clients ask for outcomes.
    pub fn leaves_numbers(&self) -> bool {
        !self.rules.is_alone() && self.config.failover.commit_outcome
    }

    /// Cancel safe.
    pub async fn show_presence(&self, node: NodeId, name: &str, deadline: Instant) -> Result<ControlConn, OpenError> {
        ControlConn::open(&self.c.shared, &self.config, node, &[("application_name", name)], deadline).await
    }

    pub fn place(&self, node: NodeId) -> Option<(&str, u16)> {
        self.rules.node(node).map(|node| (node.address.hostname.as_str(), node.address.port))
    }

    pub fn upstream(&self, standby: NodeId, (host, port): (&str, u16)) -> Option<NodeId> {
        let place = (host.to_string(), port);
        let known = self.rules.node_at(host, port).or_else(|| self.aliases.borrow().get(&place).copied());
        self.places.borrow_mut().insert(standby, place);
        known
    }

    pub fn known_history(&self, node: NodeId, key: HistoryKey) -> Option<TimelineHistory> {
        self.histories.borrow().get(&node).filter(|(known, _)| *known == key).map(|(_, history)| history.clone())
    }

    pub fn keep_history(&self, node: NodeId, key: HistoryKey, history: &TimelineHistory) {
        self.histories.borrow_mut().insert(node, (key, history.clone()));
    }

    /// Assumes a history in place of an unreadable one. `None` where Weir promotes.
    pub fn assume(&self, node: NodeId, system: Option<u64>, timeline: Option<u32>) -> Option<TimelineHistory> {
        if self.rules.mode == FailoverMode::Builtin {
            return None;
        }
        let accepted = self.accepted.borrow();
        let end = accepted.1.get(&node).copied().unwrap_or(0);
        Some(TimelineHistory::assume(system, timeline, accepted.0.as_ref(), end))
    }

    /// True for the leader of a group in this moment.
    pub fn leads_group(&self) -> bool {
        self.c.shared.group.get().is_some_and(|group| group.view().leads(boot_now_ms()))
    }

    pub fn learn(&self, state: &FailoverState) {
        let mut accepted = self.accepted.borrow_mut();
        if accepted.0.as_ref() != state.history() {
            accepted.0 = state.history().cloned();
        }
        for (id, node) in &state.nodes {
            let primary = node.facts().filter(|facts| facts.is_primary());
            for follower in primary.iter().flat_map(|facts| &facts.followers).filter(|follower| follower.is_streaming) {
                let places = self.places.borrow();
                let place = follower.node.and_then(|standby| places.get(&standby));
                if let Some(place) = place.filter(|(host, port)| self.rules.node_at(host, *port).is_none()) {
                    self.aliases.borrow_mut().insert(place.clone(), *id);
                }
            }
            let standby = node.facts().filter(|facts| !facts.is_primary());
            if let Some(facts) = standby {
                accepted.1.insert(*id, facts.position);
            }
        }
    }

    /// Counts ended statements of clients, and role checks over the open connection.
    fn answers(&self, node: NodeId) -> u64 {
        let ended = |counters: &WorkerCounters| counters.times(node).buckets.iter().sum::<u64>();
        let of_clients: u64 = self.c.shared.counters.iter().map(ended).sum();
        of_clients + self.c.shared.cluster.probes.answers(node)
    }

    /// Begins to count answers beside a look. After a failed look the time since then counts, too.
    pub fn listen(&self, node: NodeId) -> AnswerBaseline {
        let heard = self.heard.borrow().get(&node).copied();
        AnswerBaseline { node, answers: heard.unwrap_or_else(|| self.answers(node)) }
    }

    pub fn heard(&self, listened: &AnswerBaseline, found: &ProbeResult) -> SignOfLife {
        let answers = self.answers(listened.node);
        let mut heard = self.heard.borrow_mut();
        match found {
            ProbeResult::Answered(_) => heard.remove(&listened.node),
            ProbeResult::Failed(_) => heard.insert(listened.node, answers),
        };
        if answers == listened.answers { SignOfLife::Silence } else { SignOfLife::Answers }
    }

    pub fn warn(&self, node: NodeId, what: &str) {
        self.c.shared.log.say(Level::Warning, format_args!("node {node}: {what}"));
    }

    pub fn complain(&self, node: NodeId, why: &str) {
        if self.complained.borrow_mut().insert(node) {
            self.warn(node, why);
        }
    }
}

pub fn failure(error: &OpenError) -> LookFailure {
    match error {
        error if error.is_local() => LookFailure::Local,
        OpenError::Connect { cause, address } => match cause.kind() {
            io::ErrorKind::ConnectionRefused => LookFailure::Refused,
            // The socket's path does not exist. A host name without an address tells nothing about the server.
            io::ErrorKind::NotFound if address.hostname.starts_with('/') => LookFailure::Refused,
            io::ErrorKind::TimedOut => LookFailure::TimedOut,
            _ => LookFailure::Unreachable,
        },
        OpenError::Broke { cause, .. } if cause.kind() == io::ErrorKind::TimedOut => LookFailure::TimedOut,
        OpenError::Broke { .. } => LookFailure::Lost,
        OpenError::Refused { sqlstate, message, .. } => LookFailure::of_sqlstate(sqlstate, message),
        OpenError::Secret { .. } => LookFailure::WrongPassword,
        OpenError::Keys { .. } => LookFailure::Local,
        OpenError::Tls { .. }
        | OpenError::Held { .. }
        | OpenError::Gone { .. }
        | OpenError::GivenUp { .. }
        | OpenError::Flooded { .. }
        | OpenError::Protocol { .. } => LookFailure::Refuses,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::pool::server_conn::ServerAddress;
    use crate::runtime::pool::server_conn::SlowAnswerError;
    use weir_config::SslMode;
    use weir_session::fault::sqlstate;

    #[test]
    fn keys_that_come_too_late_say_nothing_of_the_server_nor_of_the_password() {
        let address =
            ServerAddress { node: 0, shard: 0, hostname: "a".into(), port: 1, connect_timeout_ms: 1, ssl_mode: SslMode::Auto };
        for cause in [SlowAnswerError::Full, SlowAnswerError::TimedOut] {
            let error = OpenError::Keys { address: address.clone(), user: "monitor".into(), cause };
            assert_eq!(failure(&error), LookFailure::Local);
            assert_eq!(error.fault().sqlstate, sqlstate::CANNOT_CONNECT, "{error}");
        }
    }
}
