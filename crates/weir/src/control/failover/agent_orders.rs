//! Orders of a switchover to agents. One cut short may be done: the next look tells.

use crate::control::agent_client::{AgentEndpoint, AgentError};
use crate::control::failover::node_logins::NodeAccess;
use crate::control::return_node::{self, NodeReturn, ReturnError};
use std::time::Duration;
use tokio::time::Instant;
use weir_agent::{ClusterState, OrderAction, OrderFailureKind, ServerStatus};
use weir_failover::operations::RejoinWay;
use weir_failover::{Ballot, LookFailure, Lsn, Mark, NodeId, PrimaryStopMode, ServerStopResult};

/// A server notes its start twice: in its file, and up to this later when it takes connections.
const STARTS_S: u64 = 60;
const NEVER_S: u64 = 0;
/// Part of an order's time kept for its answer to arrive.
const ANSWER: Duration = Duration::from_millis(200);

#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error(transparent)]
    Return(#[from] ReturnError),
    #[error("node {0} has no agent")]
    None(NodeId),
    #[error("the server is another one than was meant")]
    OtherServer,
    #[error("the server was not stopped cleanly")]
    NotClean,
    #[error("the server has promised a newer attempt")]
    Promised,
}

impl OrderError {
    pub fn failure(&self) -> LookFailure {
        LookFailure::Refuses
    }
}

fn agent(reach: &NodeAccess, node: NodeId) -> Result<AgentEndpoint, OrderError> {
    return_node::agent_of(&reach.c, &reach.config, node).ok_or(OrderError::None(node))
}

fn left_ms(deadline: Instant) -> u32 {
    let left = deadline.saturating_duration_since(Instant::now()).saturating_sub(ANSWER);
    u32::try_from(left.as_millis()).unwrap_or(u32::MAX).max(1)
}

/// Stops a server if it started at `started_at` (microseconds since 1970). Not cancel safe: the server may be stopped.
pub async fn stop(
    reach: &NodeAccess,
    node: NodeId,
    started_at: Option<u64>,
    mode: PrimaryStopMode,
    deadline: Instant,
) -> Result<ServerStopResult, OrderError> {
    let agent = agent(reach, node)?;
    let (own, end) = match (agent.status(deadline).await?.server, mode) {
        (ServerStatus::Stopped, PrimaryStopMode::Clean) => return Ok(ServerStopResult::Before),
        // Processes of a killed server may still answer clients. A server started meanwhile is not meant.
        (ServerStatus::Stopped, PrimaryStopMode::Crash) => (None, ServerStopResult::Before),
        (ServerStatus::Running(postmaster), _) => (Some(postmaster.started_at), ServerStopResult::Now),
    };
    if let (Some(own), Some(started_at)) = (own, started_at)
        && !is_it(own, started_at)
    {
        return Err(OrderError::OtherServer);
    }
    let (mode, limit_ms) = match mode {
        PrimaryStopMode::Clean => (weir_agent::ServerStopMode::Fast, left_ms(deadline)),
        // Killing a server that takes longer needs a moment.
        PrimaryStopMode::Crash => (weir_agent::ServerStopMode::Immediate, left_ms(deadline) / 2),
    };
    agent.order(&OrderAction::Stop { mode, limit_ms, started_at: own.or(Some(NEVER_S)) }, deadline, &mut |_| {}).await?;
    Ok(end)
}

/// Cancel safe.
pub async fn ask(reach: &NodeAccess, node: NodeId, deadline: Instant) -> Result<(), OrderError> {
    agent(reach, node)?.status(deadline).await?;
    Ok(())
}

/// Restarts a standby if it started at `started_at` (microseconds since 1970). The agent goes on alone. Not cancel safe: the
/// restart may be done.
pub async fn restart(reach: &NodeAccess, node: NodeId, started_at: u64, deadline: Instant) -> Result<(), OrderError> {
    let agent = agent(reach, node)?;
    let limit_ms = left_ms(deadline);
    let deed = match agent.status(deadline).await?.server {
        ServerStatus::Running(known) if is_it(known.started_at, started_at) => {
            OrderAction::Restart { limit_ms, started_at: known.started_at }
        }
        ServerStatus::Running(_) => return Ok(()),
        ServerStatus::Stopped => OrderAction::Start { limit_ms },
    };
    match agent.order(&deed, deadline, &mut |_| {}).await {
        // The server has much WAL to apply.
        Err(AgentError::Failed { failure, .. }) if failure.kind == OrderFailureKind::Late => Ok(()),
        outcome => Ok(outcome?),
    }
}

/// True if both times may be of one start.
fn is_it(own_s: u64, started_at: u64) -> bool {
    (own_s..=own_s + STARTS_S).contains(&(started_at / 1_000_000))
}

/// Returns where the last record of a cleanly stopped server begins. Cancel safe.
pub async fn inspect(reach: &NodeAccess, node: NodeId, deadline: Instant) -> Result<Lsn, OrderError> {
    let status = agent(reach, node)?.status(deadline).await?;
    match (status.server, status.control) {
        (ServerStatus::Stopped, Some(control)) if control.state == ClusterState::ShutDown => Ok(control.checkpoint),
        (ServerStatus::Stopped | ServerStatus::Running(_), _) => Err(OrderError::NotClean),
    }
}

/// Not cancel safe: the server may be started.
pub async fn start(reach: &NodeAccess, node: NodeId, deadline: Instant) -> Result<(), OrderError> {
    Ok(agent(reach, node)?.order(&OrderAction::Start { limit_ms: left_ms(deadline) }, deadline, &mut |_| {}).await?)
}

/// Refuses a server that has promised a newer ballot. Not cancel safe: the server may follow.
pub async fn follow(
    reach: &NodeAccess,
    node: NodeId,
    (primary, ballot): (NodeId, Ballot),
    deadline: Instant,
) -> Result<(), OrderError> {
    let agent = agent(reach, node)?;
    let status = agent.status(deadline).await?;
    let mark = status.mark.as_ref().and_then(|mark| Mark::parse(mark.as_str())).unwrap_or_default();
    if mark.promised > ballot {
        return Err(OrderError::Promised);
    }
    let order = NodeReturn { node, primary, way: RejoinWay::Rewind, ballot: Some(ballot) };
    let deed = OrderAction::Follow(return_node::follow(&reach.c, &reach.config, order, &status, deadline).await?);
    Ok(agent.order(&deed, deadline, &mut |_| {}).await?)
}
