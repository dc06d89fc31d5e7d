//! Orders of a switchover to the agents beside servers. An order that is cut short may be done: the next look tells.

use crate::control::agent_client::{AgentEndpoint, AgentError};
use crate::control::failover::node_logins::NodeAccess;
use crate::control::return_node::{self, NodeReturn, ReturnError};
use std::time::Duration;
use tokio::time::Instant;
use weir_agent::{ClusterState, OrderAction, OrderFailureKind, ServerStatus};
use weir_failover::operations::RejoinWay;
use weir_failover::{Ballot, LookFailure, Lsn, Mark, NodeId, PrimaryStopMode, ServerStopResult};

/// A server notes the time of its start twice: for its file when it begins, and for its function when it takes connections. On a busy machine it
/// takes its time between.
const STARTS_S: u64 = 60;
/// A time at which no server was started.
const NEVER_S: u64 = 0;
/// Of the time of an order, this much is left for its answer to arrive.
const ANSWER: Duration = Duration::from_millis(200);

/// Why an agent did not do something, as far as anybody knows.
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

/// Stops a server, if it is the one that was started then (microseconds since 1970). Not cancel safe: it may be stopped.
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
        // Processes of a server that was killed may still answer clients. One that somebody starts meanwhile is not meant.
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
        // One that does not end within it is killed, which takes a moment.
        PrimaryStopMode::Crash => (weir_agent::ServerStopMode::Immediate, left_ms(deadline) / 2),
    };
    agent.order(&OrderAction::Stop { mode, limit_ms, started_at: own.or(Some(NEVER_S)) }, deadline, &mut |_| {}).await?;
    Ok(end)
}

/// Sees if an agent answers. Cancel safe.
pub async fn ask(reach: &NodeAccess, node: NodeId, deadline: Instant) -> Result<(), OrderError> {
    agent(reach, node)?.status(deadline).await?;
    Ok(())
}

/// Starts a standby anew, if it is the one that was started then (microseconds since 1970). The agent goes on alone. Not cancel safe: it may be done.
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
        // It has much log to apply.
        Err(AgentError::Failed { failure, .. }) if failure.kind == OrderFailureKind::Late => Ok(()),
        outcome => Ok(outcome?),
    }
}

/// True if the time in the server's file may be of the start that its function tells of.
fn is_it(own_s: u64, started_at: u64) -> bool {
    (own_s..=own_s + STARTS_S).contains(&(started_at / 1_000_000))
}

/// Where the last record of a server begins that was stopped cleanly. Cancel safe.
pub async fn inspect(reach: &NodeAccess, node: NodeId, deadline: Instant) -> Result<Lsn, OrderError> {
    let status = agent(reach, node)?.status(deadline).await?;
    match (status.server, status.control) {
        (ServerStatus::Stopped, Some(control)) if control.state == ClusterState::ShutDown => Ok(control.checkpoint),
        (ServerStatus::Stopped | ServerStatus::Running(_), _) => Err(OrderError::NotClean),
    }
}

/// Starts a server. Not cancel safe: it may be started.
pub async fn start(reach: &NodeAccess, node: NodeId, deadline: Instant) -> Result<(), OrderError> {
    Ok(agent(reach, node)?.order(&OrderAction::Start { limit_ms: left_ms(deadline) }, deadline, &mut |_| {}).await?)
}

/// Makes a stopped server a standby of another one, unless it has promised more than this ballot. Not cancel safe: it may be one.
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
