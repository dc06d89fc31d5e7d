//! Orders of operators about nodes, each to its end. On the control thread, over what all threads see.

use super::PoolHand;
use crate::control::{self, upgrade_walk};
use crate::runtime::mail::{ControlOrder, RequestOrigin};
use crate::runtime::shared::SharedState;
use std::time::{Duration, Instant};
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::time::timeout;
use weir_config::failover_settings::FailoverMode;
use weir_failover::OperatorRequest;
use weir_failover::rolling_restart::RestartObstacle;
use weir_io::clock::boot_now_ms;
use weir_wire::pcp_protocol::{DrainMode, PromotionKind};

/// Limit of a change of nodes. A begun change goes on.
const OPERATION_LIMIT: Duration = Duration::from_secs(300);
/// Above the steps' own limits: an operator has half an hour for a server without an agent.
const RESTART_LIMIT: Duration = Duration::from_secs(3600);
const DRAIN_LIMIT: Duration = Duration::from_secs(90);
/// Time for a node to answer.
const ATTACH_LIMIT: Duration = Duration::from_secs(5);
/// Time for a standby to receive missing log.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(5);
const ASK_PERIOD: Duration = Duration::from_millis(200);
/// Wait for an attached node's role, or for nodes of a new configuration; both are in use in any case.
const SETTLE_LIMIT: Duration = Duration::from_secs(5);
const LOOK_PERIOD: Duration = Duration::from_millis(20);

/// Why an order about a node was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum NodeActError {
    /// By whoever decides about nodes, or does it.
    #[error("{0}")]
    Refused(String),
    #[error("the proxy is stopping")]
    Stopping,
    #[error("it is not done after {} s and may still be; SHOW pool_nodes tells", .limit.as_secs())]
    Late { limit: Duration },
    #[error("node id {0} is not valid")]
    NoNode(i32),
    #[error("all databases are paused already")]
    AllPaused,
    #[error("transactions did not end in {} s", .limit.as_secs())]
    StillOpen { limit: Duration },
    #[error("node {node} lacks {bytes} bytes of the primary's log after {} s", .limit.as_secs())]
    LacksLog { node: u16, bytes: u64, limit: Duration },
    #[error("node {node} is no primary {} s after the old one was detached", .limit.as_secs())]
    NotPromoted { node: u16, limit: Duration },
    #[error("failover_command failed, and node {old} is attached again; the log tells more")]
    CommandFailed { old: u16 },
    #[error("{}", format!("{}. {}", .0, .0.hint()).trim_end())]
    Obstacle(RestartObstacle),
    /// The server of a node that is to be made anew.
    #[error("its server must be stopped first")]
    ServerRuns(u16),
}

/// An order to the control thread about a node.
pub struct NodeOrder(oneshot::Receiver<Result<(), String>>);

impl NodeOrder {
    pub fn begin(shared: &SharedState, request: OperatorRequest) -> NodeOrder {
        NodeOrder(shared.control.operate(request, RequestOrigin::Here))
    }

    /// The outcome, once there is one.
    pub fn outcome(&mut self) -> Option<Result<(), NodeActError>> {
        match self.0.try_recv() {
            Ok(answer) => Some(answer.map_err(NodeActError::Refused)),
            Err(TryRecvError::Closed) => Some(Err(NodeActError::Stopping)),
            Err(TryRecvError::Empty) => None,
        }
    }
}

/// Has whoever decides about nodes do something. Cancel safe, but what was begun goes on; so with all that follows.
pub async fn operate(shared: &SharedState, request: OperatorRequest) -> Result<(), NodeActError> {
    operate_within(shared, OPERATION_LIMIT, request).await
}

async fn operate_within(shared: &SharedState, limit: Duration, request: OperatorRequest) -> Result<(), NodeActError> {
    match timeout(limit, NodeOrder::begin(shared, request).0).await {
        Ok(Ok(answer)) => answer.map_err(NodeActError::Refused),
        Ok(Err(_)) => Err(NodeActError::Stopping),
        Err(_) => Err(NodeActError::Late { limit }),
    }
}

/// A configuration that was just read is taken in first.
pub async fn node_of(shared: &SharedState, number: i32) -> Result<u16, NodeActError> {
    let knows_all = || {
        let (config, view) = (shared.config.load(), shared.cluster.view.load());
        config.nodes.iter().map(|node| node.id).eq(view.nodes.iter().map(|node| node.id))
    };
    wait_until(SETTLE_LIMIT, knows_all).await;
    let view = shared.cluster.view.load();
    let known = view.nodes.iter().find(|node| i32::from(node.id) == number);
    known.map(|node| node.id).ok_or(NodeActError::NoNode(number))
}

/// Takes a node into use.
pub async fn attach(shared: &SharedState, number: i32) -> Result<(), NodeActError> {
    let node = node_of(shared, number).await?;
    attach_as(shared, OperatorRequest::Attach(node), ATTACH_LIMIT).await
}

/// Detaches or attaches a node by a request of its own. A script may have started its server just now: a look comes before the refusal.
pub async fn attach_as(shared: &SharedState, request: OperatorRequest, limit: Duration) -> Result<(), NodeActError> {
    let (limit, node) = (Instant::now() + limit, request.node());
    while let Err(refusal) = operate(shared, request).await {
        if Instant::now() >= limit {
            return Err(refusal);
        }
        tokio::time::sleep(ASK_PERIOD).await;
    }
    // A client that hears of the success must find the node in use, after one more look at its role.
    let is_up = || {
        let view = shared.cluster.view.load();
        view.nodes.iter().position(|known| known.id == node).is_some_and(|at| view.is_up(at))
    };
    wait_until(SETTLE_LIMIT, is_up).await;
    Ok(())
}

/// Takes a node out of use.
pub async fn detach(shared: &SharedState, number: i32, when: DrainMode) -> Result<(), NodeActError> {
    let request = OperatorRequest::Detach(node_of(shared, number).await?);
    at(shared, when, operate(shared, request)).await
}

/// Names a primary, or moves the primary there.
pub async fn promote(shared: &SharedState, number: i32, when: DrainMode, aim: PromotionKind) -> Result<(), NodeActError> {
    let node = node_of(shared, number).await?;
    at(shared, when, promote_now(shared, node, aim)).await
}

/// Has the server of a standby started anew.
pub async fn restart(shared: &SharedState, number: i32) -> Result<(), NodeActError> {
    let request = OperatorRequest::Restart(node_of(shared, number).await?);
    operate_within(shared, RESTART_LIMIT, request).await
}

/// Has all servers started anew; gives what is to be told of it. Dropped between two steps or within one, it orders no more of them, and the step under
/// way comes to its end.
pub async fn walk(shared: &SharedState) -> Result<Option<String>, NodeActError> {
    let walk = upgrade_walk::plan(shared);
    for step in &walk.steps {
        operate_within(shared, RESTART_LIMIT, *step).await?;
    }
    walk.end().map_err(NodeActError::Obstacle)
}

pub async fn wait_until(limit: Duration, is_so: impl Fn() -> bool) -> bool {
    let until = Instant::now() + limit;
    while !is_so() {
        if Instant::now() >= until {
            return false;
        }
        tokio::time::sleep(LOOK_PERIOD).await;
    }
    true
}

/// If the promotion fails, the old primary gets the writes back.
async fn promote_now(shared: &SharedState, node: u16, aim: PromotionKind) -> Result<(), NodeActError> {
    let view = shared.cluster.view.load_full();
    let primary = view.primary.and_then(|at| view.nodes.get(at)).map(|node| node.id);
    let wish = OperatorRequest::Promote(node);
    let mode = shared.config.load().failover.mode();
    match (aim, primary) {
        (PromotionKind::Switchover, Some(primary)) if mode == FailoverMode::Command => {
            let paused = if primary == node { None } else { quieten(shared, primary, node).await? };
            operate(shared, OperatorRequest::SwitchOver(node)).await?;
            // From here on only writes wait.
            drop(paused);
            wait_primary(shared, primary, node).await
        }
        (PromotionKind::Switchover, Some(primary)) if mode == FailoverMode::Builtin && has_agent(shared, primary) => {
            operate(shared, OperatorRequest::SwitchOver(node)).await
        }
        (PromotionKind::Switchover, Some(primary)) if primary != node => {
            operate(shared, OperatorRequest::Detach(primary)).await?;
            let outcome = operate(shared, wish).await;
            if outcome.is_err() {
                operate(shared, OperatorRequest::Attach(primary)).await?;
            }
            outcome
        }
        (PromotionKind::Switchover | PromotionKind::Name, _) => operate(shared, wish).await,
    }
}

/// Pauses sessions until transactions have ended and the standby has all log, so that the switchover loses nothing. The guard ends the
/// pause.
async fn quieten<'c>(shared: &'c SharedState, primary: u16, node: u16) -> Result<Option<PauseGuard<'c>>, NodeActError> {
    let paused = (!shared.pause_state.is_all_paused()).then(|| PauseGuard::new(shared));
    let limit_ms = shared.config.load().recovery.agents.transaction_limit_ms;
    // Remaining transactions end with the primary. Reads on standbys go on.
    wait_until(Duration::from_millis(limit_ms), || !is_busy(shared, |of| of == primary)).await;
    catch_up(shared, primary, node).await?;
    Ok(paused)
}

/// A primary that does not answer is not waited for.
async fn catch_up(shared: &SharedState, primary: u16, node: u16) -> Result<(), NodeActError> {
    let asked_ms = shared.begun.elapsed().as_millis() as u64;
    let position = |id: u16| {
        let view = shared.cluster.failover.load();
        view.node(id).filter(|node| node.looked_at >= Some(asked_ms)).and_then(|node| node.position)
    };
    let limit = Instant::now() + CATCH_UP_LIMIT;
    let mut end = None;
    loop {
        end = end.or_else(|| position(primary));
        let lack = end.map(|end| end.saturating_sub(position(node).unwrap_or(0)));
        match lack {
            Some(0) => return Ok(()),
            None if Instant::now() >= limit => return Ok(()),
            Some(bytes) if Instant::now() >= limit => {
                return Err(NodeActError::LacksLog { node, bytes, limit: CATCH_UP_LIMIT });
            }
            Some(_) | None => {}
        }
        shared.control.send(ControlOrder::Doubt);
        tokio::time::sleep(ASK_PERIOD).await;
    }
}

fn has_agent(shared: &SharedState, node: u16) -> bool {
    shared.config.load().nodes.iter().any(|known| known.id == node && known.agent().is_some())
}

/// If the operator's command fails, the old primary gets the writes back.
async fn wait_primary(shared: &SharedState, old: u16, node: u16) -> Result<(), NodeActError> {
    let is_primary = || {
        let view = shared.cluster.view.load();
        view.primary.and_then(|at| view.nodes.get(at)).is_some_and(|primary| primary.id == node)
    };
    // The name that is to be promoted is the leader's secret.
    let follows = shared.group.get().is_some_and(|seat| !seat.view().leads(boot_now_ms()));
    let is_named = || follows || shared.cluster.failover.load().named == Some(node);
    wait_until(SETTLE_LIMIT, || is_named() || is_primary()).await;
    wait_until(OPERATION_LIMIT, || is_primary() || !is_named()).await;
    match (wait_until(SETTLE_LIMIT, is_primary).await, is_named()) {
        (true, _) => Ok(()),
        (false, true) => Err(NodeActError::NotPromoted { node, limit: OPERATION_LIMIT }),
        (false, false) => Err(NodeActError::CommandFailed { old }),
    }
}

/// Works now, or after all transactions have ended.
///
/// Pgpool-II waits for all clients to leave; here clients hold no server connection between transactions.
async fn at(
    shared: &SharedState,
    when: DrainMode,
    work: impl Future<Output = Result<(), NodeActError>>,
) -> Result<(), NodeActError> {
    if when == DrainMode::Now {
        return work.await;
    }
    if shared.pause_state.is_all_paused() {
        return Err(NodeActError::AllPaused);
    }
    let paused = PauseGuard::new(shared);
    if !wait_until(DRAIN_LIMIT, || !is_busy(shared, |_| true)).await {
        return Err(NodeActError::StillOpen { limit: DRAIN_LIMIT });
    }
    let outcome = work.await;
    drop(paused);
    outcome
}

fn is_busy(shared: &SharedState, is_meant: impl Fn(u16) -> bool) -> bool {
    !shared.pause_state.is_all_paused() || control::failover::open(shared, is_meant) > 0
}

/// All databases are paused until drop.
struct PauseGuard<'a>(&'a SharedState);

impl PauseGuard<'_> {
    fn new(shared: &SharedState) -> PauseGuard<'_> {
        PoolHand::Mail.pause(shared, None);
        PauseGuard(shared)
    }
}

impl Drop for PauseGuard<'_> {
    fn drop(&mut self) {
        PoolHand::Mail.resume(self.0, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_may_come_from_any_thread() {
        fn check_send(_: impl Send) {}
        let _all: fn(&SharedState) = |shared| {
            check_send(attach(shared, 0));
            check_send(detach(shared, 0, DrainMode::Gracefully));
            check_send(promote(shared, 0, DrainMode::Now, PromotionKind::Switchover));
            check_send(restart(shared, 0));
            check_send(walk(shared));
        };
    }
}
