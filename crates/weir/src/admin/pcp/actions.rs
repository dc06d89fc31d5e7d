//! Requests that change something. A reply of success means success.

use crate::admin::pcp::online_recovery;
use crate::control::control_context::ControlContext;
use crate::control::{self, upgrade_walk};
use crate::runtime::shared::{self, WorkerMessage};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::time::timeout;
use weir_config::failover_settings::FailoverMode;
use weir_failover::rolling_restart::RestartObstacle;
use weir_failover::{self, FailoverEvent};
use weir_wire::pcp_protocol::{self, DrainMode, PcpReply, PcpReport, PcpRequest, PcpSeverity, PromotionKind};

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

pub enum ActionResult {
    Replies(Vec<PcpReply>),
    Stop(Vec<PcpReply>, shared::ProxyShutdown),
}

/// Cancel safe, but a begun change goes on.
pub async fn perform(c: &Rc<ControlContext>, request: &PcpRequest) -> Result<ActionResult, PcpReport> {
    let done = vec![PcpReply::done(request.reply_tag())];
    match *request {
        PcpRequest::Attach(node) => {
            let failed = "attaching a node failed";
            let node = id(c, failed, node).await?;
            attach(c, failed, weir_failover::OperatorRequest::Attach(node), ATTACH_LIMIT).await?;
        }
        PcpRequest::Detach(node, when) => {
            let failed = "detaching a node failed";
            let wish = weir_failover::OperatorRequest::Detach(id(c, failed, node).await?);
            at(c, failed, when, operate(c, failed, wish)).await?;
        }
        PcpRequest::Promote(node, when, aim) => {
            let failed = "could not process promote request";
            let node = id(c, failed, node).await?;
            at(c, failed, when, promote(c, failed, node, aim)).await?;
        }
        PcpRequest::Recover(node) => {
            let node = id(c, "process recovery request failed", node).await?;
            online_recovery::recover(c, node).await?;
        }
        PcpRequest::Restart(node) => {
            let failed = "restarting a node failed";
            let wish = weir_failover::OperatorRequest::Restart(id(c, failed, node).await?);
            operate_within(c, failed, RESTART_LIMIT, wish).await?;
        }
        PcpRequest::UpgradeWalk => return walk(c).await.map(ActionResult::Replies),
        PcpRequest::Stop(mode, _) => return Ok(ActionResult::Stop(done, stop_mode(mode))),
        PcpRequest::Reload(_) => return reload(c).await.map(ActionResult::Replies),
        PcpRequest::RotateLog(_) => c.shared.log.rotate().map_err(|why| fault("rotating the log failed", why))?,
        PcpRequest::InvalidateQueryCache => {
            let answers = c.shared.cached_results.as_ref();
            let answers = answers.ok_or_else(|| fault("invalidating the query cache failed", "query cache is not enabled"))?;
            answers.clear(c.shared.positions.next_round());
        }
        PcpRequest::Salt
        | PcpRequest::Login { .. }
        | PcpRequest::NodeCount
        | PcpRequest::NodeInfo(_)
        | PcpRequest::HealthCheckStats(_)
        | PcpRequest::ProcessCount
        | PcpRequest::ProcessInfo(_)
        | PcpRequest::WatchdogInfo(_)
        | PcpRequest::PoolStatus
        | PcpRequest::Set { .. }
        | PcpRequest::StopRecovery
        | PcpRequest::End => return Err(fault("invalid PCP request", "it asks for nothing to be changed")),
    }
    Ok(ActionResult::Replies(done))
}

pub(super) fn fault(message: &str, detail: impl Into<String>) -> PcpReport {
    PcpReport::new(PcpSeverity::Error, message).detail(detail)
}

/// Waits until a new configuration is taken in.
async fn id(c: &ControlContext, failed: &str, number: i32) -> Result<u16, PcpReport> {
    let knows_all = || {
        let (config, view) = (c.shared.config.load(), c.shared.cluster.view.load());
        config.nodes.iter().map(|node| node.id).eq(view.nodes.iter().map(|node| node.id))
    };
    wait_until(SETTLE_LIMIT, knows_all).await;
    let view = c.shared.cluster.view.load();
    let known = view.nodes.iter().find(|node| i32::from(node.id) == number);
    known.map(|node| node.id).ok_or_else(|| fault(failed, format!("node id {number} is not valid")))
}

fn stop_mode(mode: pcp_protocol::PcpShutdownMode) -> shared::ProxyShutdown {
    match mode {
        pcp_protocol::PcpShutdownMode::Smart => shared::ProxyShutdown::Smart,
        pcp_protocol::PcpShutdownMode::Fast => shared::ProxyShutdown::Fast,
        pcp_protocol::PcpShutdownMode::Immediate => shared::ProxyShutdown::Immediate,
    }
}

pub(super) async fn operate(c: &ControlContext, failed: &str, request: weir_failover::OperatorRequest) -> Result<(), PcpReport> {
    operate_within(c, failed, OPERATION_LIMIT, request).await
}

async fn operate_within(
    c: &ControlContext,
    failed: &str,
    limit: Duration,
    request: weir_failover::OperatorRequest,
) -> Result<(), PcpReport> {
    match timeout(limit, c.shared.control.operate(request)).await {
        Ok(Ok(answer)) => answer.map_err(|why| fault(failed, why)),
        Ok(Err(_)) => Err(fault(failed, "the proxy is stopping")),
        Err(_) => {
            let text = format!("it is not done after {} s and may still be; SHOW pool_nodes tells", limit.as_secs());
            Err(fault(failed, text))
        }
    }
}

/// A drop orders no further step; the current one goes on.
async fn walk(c: &ControlContext) -> Result<Vec<PcpReply>, PcpReport> {
    let (failed, walk) = ("upgrade walk failed", upgrade_walk::plan(&c.shared));
    for step in &walk.steps {
        operate_within(c, failed, RESTART_LIMIT, *step).await?;
    }
    let refused = |obstacle: RestartObstacle| fault(failed, format!("{obstacle}. {}", obstacle.hint()).trim_end());
    let notice = walk.end().map_err(refused)?;
    let notice = notice.map(|text| PcpReply::Notice(PcpReport::new(PcpSeverity::Notice, text)));
    Ok(notice.into_iter().chain([PcpReply::done(PcpRequest::UpgradeWalk.reply_tag())]).collect())
}

/// A script may have just started the server, so a refusal is retried until `limit`.
pub(super) async fn attach(
    c: &ControlContext,
    failed: &str,
    request: weir_failover::OperatorRequest,
    limit: Duration,
) -> Result<(), PcpReport> {
    let (limit, node) = (Instant::now() + limit, request.node());
    while let Err(refusal) = operate(c, failed, request).await {
        if Instant::now() >= limit {
            return Err(refusal);
        }
        tokio::time::sleep(ASK_PERIOD).await;
    }
    // A client that hears of the success must find the node in use, after one more look at its role.
    let is_up = || {
        let view = c.shared.cluster.view.load();
        view.nodes.iter().position(|known| known.id == node).is_some_and(|at| view.is_up(at))
    };
    wait_until(SETTLE_LIMIT, is_up).await;
    Ok(())
}

pub(super) async fn wait_until(limit: Duration, is_so: impl Fn() -> bool) -> bool {
    let until = Instant::now() + limit;
    while !is_so() {
        if Instant::now() >= until {
            return false;
        }
        tokio::time::sleep(LOOK_PERIOD).await;
    }
    true
}

/// Names a primary, or first takes the working one out of use, which gets the writes back if the promotion fails.
async fn promote(c: &ControlContext, failed: &str, node: u16, aim: PromotionKind) -> Result<(), PcpReport> {
    let view = c.shared.cluster.view.load_full();
    let primary = view.primary.and_then(|at| view.nodes.get(at)).map(|node| node.id);
    let wish = weir_failover::OperatorRequest::Promote(node);
    let mode = c.shared.config.load().failover.mode();
    match (aim, primary) {
        (PromotionKind::Switchover, Some(primary)) if mode == FailoverMode::Command => {
            let paused = if primary == node { None } else { quieten(c, failed, primary, node).await? };
            operate(c, failed, weir_failover::OperatorRequest::SwitchOver(node)).await?;
            // From here on only writes wait.
            drop(paused);
            wait_primary(c, failed, primary, node).await
        }
        (PromotionKind::Switchover, Some(primary)) if mode == FailoverMode::Builtin && has_agent(c, primary) => {
            operate(c, failed, weir_failover::OperatorRequest::SwitchOver(node)).await
        }
        (PromotionKind::Switchover, Some(primary)) if primary != node => {
            operate(c, failed, weir_failover::OperatorRequest::Detach(primary)).await?;
            let outcome = operate(c, failed, wish).await;
            if outcome.is_err() {
                operate(c, failed, weir_failover::OperatorRequest::Attach(primary)).await?;
            }
            outcome
        }
        (PromotionKind::Switchover | PromotionKind::Name, _) => operate(c, failed, wish).await,
    }
}

/// Pauses sessions until transactions have ended and the standby has all log, so that the switchover loses nothing. The guard ends the
/// pause.
async fn quieten<'c>(c: &'c ControlContext, failed: &str, primary: u16, node: u16) -> Result<Option<PauseGuard<'c>>, PcpReport> {
    let paused = (!c.shared.pause_state.is_all_paused()).then(|| PauseGuard::new(c));
    let limit_ms = c.shared.config.load().recovery.agents.transaction_limit_ms;
    // Remaining transactions end with the primary. Reads on standbys go on.
    wait_until(Duration::from_millis(limit_ms), || !is_busy(c, |of| of == primary)).await;
    catch_up(c, failed, primary, node).await?;
    Ok(paused)
}

/// A primary that does not answer is not waited for.
async fn catch_up(c: &ControlContext, failed: &str, primary: u16, node: u16) -> Result<(), PcpReport> {
    let asked_ms = c.millis(Instant::now());
    let position = |id: u16| {
        let view = c.shared.cluster.failover.load();
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
                let text = format!("node {node} lacks {bytes} bytes of the primary's log after {} s", CATCH_UP_LIMIT.as_secs());
                return Err(fault(failed, text));
            }
            Some(_) | None => {}
        }
        c.tell(FailoverEvent::Doubted);
        tokio::time::sleep(ASK_PERIOD).await;
    }
}

fn has_agent(c: &ControlContext, node: u16) -> bool {
    c.shared.config.load().nodes.iter().any(|known| known.id == node && known.agent().is_some())
}

/// If the operator's command fails, the old primary gets the writes back.
async fn wait_primary(c: &ControlContext, failed: &str, old: u16, node: u16) -> Result<(), PcpReport> {
    let is_primary = || {
        let view = c.shared.cluster.view.load();
        view.primary.and_then(|at| view.nodes.get(at)).is_some_and(|primary| primary.id == node)
    };
    let is_named = || c.shared.cluster.failover.load().named == Some(node);
    wait_until(SETTLE_LIMIT, || is_named() || is_primary()).await;
    wait_until(OPERATION_LIMIT, || is_primary() || !is_named()).await;
    let text = match (wait_until(SETTLE_LIMIT, is_primary).await, is_named()) {
        (true, _) => return Ok(()),
        (false, true) => format!("node {node} is no primary {} s after the old one was detached", OPERATION_LIMIT.as_secs()),
        (false, false) => format!("failover_command failed, and node {old} is attached again; the log tells more"),
    };
    Err(fault(failed, text))
}

/// Works now, or after all transactions have ended.
///
/// Pgpool-II waits for all clients to leave; here clients hold no server connection between transactions.
async fn at(
    c: &ControlContext,
    failed: &str,
    when: DrainMode,
    work: impl Future<Output = Result<(), PcpReport>>,
) -> Result<(), PcpReport> {
    if when == DrainMode::Now {
        return work.await;
    }
    if c.shared.pause_state.is_all_paused() {
        return Err(fault(failed, "all databases are paused already"));
    }
    let paused = PauseGuard::new(c);
    if !wait_until(DRAIN_LIMIT, || !is_busy(c, |_| true)).await {
        return Err(fault(failed, format!("transactions did not end in {} s", DRAIN_LIMIT.as_secs())));
    }
    let outcome = work.await;
    drop(paused);
    outcome
}

fn is_busy(c: &ControlContext, is_meant: impl Fn(u16) -> bool) -> bool {
    !c.shared.pause_state.is_all_paused() || control::failover::open(c, is_meant) > 0
}

/// All databases are paused until drop.
struct PauseGuard<'a>(&'a ControlContext);

impl PauseGuard<'_> {
    fn new(c: &ControlContext) -> PauseGuard<'_> {
        tell_first(c, WorkerMessage::Pause);
        PauseGuard(c)
    }
}

impl Drop for PauseGuard<'_> {
    fn drop(&mut self) {
        tell_first(self.0, WorkerMessage::Resume);
    }
}

/// The first worker has an event loop, which pools need to close connections.
fn tell_first(c: &ControlContext, message: WorkerMessage) {
    if let Some(mailbox) = c.shared.mailboxes.first() {
        mailbox.send(message);
    }
}

/// On another thread.
async fn reload(c: &ControlContext) -> Result<Vec<PcpReply>, PcpReport> {
    let shared = c.shared.clone();
    let reloaded = tokio::task::spawn_blocking(move || shared.reload()).await;
    let outcome = reloaded.unwrap_or_else(|_| Err("a fault in the proxy".into()));
    let left = outcome.map_err(|why| fault("process reload config request failed", why))?;
    let text = || format!("these parameters cannot be changed without a restart: {}", left.join(", "));
    let notice = (!left.is_empty()).then(|| PcpReply::Notice(PcpReport::new(PcpSeverity::Notice, text())));
    Ok(notice.into_iter().chain([PcpReply::done(b'z')]).collect())
}
