//! Asks all agents for `SHOW pool_agents` and `SHOW pool_recovery`, and logs lost ones. Decides nothing.

use crate::control::agent_client::{AgentEndpoint, AgentError};
use crate::control::control_context::{ControlContext, WakeSubject};
use crate::control::return_node::agent_of;
use crate::log::Level;
use crate::runtime::agent_line::SealedStreamError;
use crate::runtime::agents_seen::{AgentContact, AgentSighting};
use crate::runtime::shared::{ProxyShutdown, seconds};
use std::rc::Rc;
use std::time::{Duration, SystemTime};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use weir_agent::seal::SealError;
use weir_config::Config;

/// Each query costs the agent a program that reads one small file.
const PERIOD: Duration = Duration::from_secs(5);
/// Period while progress is shown.
const PERIOD_AT_WORK: Duration = Duration::from_secs(1);
/// A silent agent delays the others by no more.
const LIMIT: Duration = Duration::from_secs(5);

/// Runs until the proxy stops. Cancel safe.
pub async fn watch(c: Rc<ControlContext>) {
    let bell = c.bell(WakeSubject::Agents);
    while c.shared.stop_mode() < ProxyShutdown::Fast {
        let config = c.shared.config.load_full();
        let is_one_at_work = ask_all(&c, &config).await;
        let period = if is_one_at_work { PERIOD_AT_WORK } else { PERIOD };
        let _ = timeout(period, bell.rung()).await;
    }
}

/// True if one has an order under way.
async fn ask_all(c: &Rc<ControlContext>, config: &Config) -> bool {
    let agents: Vec<(u16, AgentEndpoint)> =
        config.nodes.iter().filter_map(|node| Some((node.id, agent_of(c, config, node.id)?))).collect();
    let nodes: Vec<u16> = agents.iter().map(|(node, _)| *node).collect();
    c.shared.cluster.agents.keep(&nodes);
    c.shared.cluster.recoveries.keep(&nodes);
    let mut questions = JoinSet::new();
    for (node, agent) in agents {
        let c = c.clone();
        questions.spawn_local(async move { note(&c, node, &agent).await });
    }
    let mut is_one_at_work = false;
    while let Some(is_at_work) = questions.join_next().await {
        is_one_at_work |= is_at_work.unwrap_or(false);
    }
    is_one_at_work
}

/// True if the agent has an order under way.
async fn note(c: &ControlContext, node: u16, agent: &AgentEndpoint) -> bool {
    let answer = agent.status(Instant::now() + LIMIT).await;
    let is_at_work = answer.as_ref().is_ok_and(|status| status.job.is_some());
    if let Ok(status) = &answer {
        let now = (std::time::Instant::now(), SystemTime::now());
        c.shared.cluster.recoveries.note_job(node, status.job.as_ref(), now);
    }
    let contact = answer.as_ref().map_or_else(contact, |_| AgentContact::Connected);
    let outcome = answer.map(Box::new).map_err(|error| error.to_string());
    let error = outcome.as_ref().err().cloned();
    let before = c.shared.cluster.agents.note(node, AgentSighting { contact, outcome, asked_at_s: seconds(SystemTime::now()) });
    match (before, error) {
        (Some(before), _) if before == contact => {}
        (_, Some(error)) => c.shared.log.say(Level::Warning, format_args!("node {node}: {error}")),
        (Some(_), None) => c.shared.log.say(Level::Log, format_args!("node {node}: its agent answers again")),
        (None, None) => {}
    }
    is_at_work
}

fn contact(error: &AgentError) -> AgentContact {
    match error {
        AgentError::Line { cause: SealedStreamError::Seal(SealError::Secret), .. } => AgentContact::WrongSecret,
        AgentError::Line { cause: SealedStreamError::Io(_), .. } | AgentError::Late { .. } => AgentContact::Unreachable,
        AgentError::Line { cause: SealedStreamError::Seal(_) | SealedStreamError::Malformed(_), .. }
        | AgentError::Setup { .. }
        | AgentError::Failed { .. } => AgentContact::Failed,
    }
}
