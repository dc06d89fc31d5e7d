//! Requests that change something. Success is said only of a success.

use crate::admin::pcp::online_recovery;
use crate::control::control_context::Control;
use crate::control::{self, upgrade_walk};
use crate::runtime::shared::{self, WorkerMessage};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::time::timeout;
use weir_config::failover_settings::FailoverMode;
use weir_failover::rolling_restart::RestartObstacle;
use weir_failover::{self, FailoverEvent};
use weir_wire::pcp_protocol::{self, DrainMode, PcpReply, PcpReport, PcpRequest, PcpSeverity, PromotionKind};

/// Longest time for a change of nodes. A change that was begun goes on.
const OPERATION_LIMIT: Duration = Duration::from_secs(300);
/// Longest time for a server to be started anew, or for a step of a walk. Each has limits of its own, the longest of half an hour, in which an operator
/// starts a server that has no agent.
const RESTART_LIMIT: Duration = Duration::from_secs(3600);
/// Time that transactions get to end before a graceful change.
const DRAIN_LIMIT: Duration = Duration::from_secs(90);
/// Time for a node to answer that is to be attached.
const ATTACH_LIMIT: Duration = Duration::from_secs(5);
/// Time for a standby to receive the log that it lacks before a switchover by the command.
const CATCH_UP_LIMIT: Duration = Duration::from_secs(5);
/// Time between two attempts to attach, and between two looks at positions.
const ASK_PERIOD: Duration = Duration::from_millis(200);
/// Time for an attached node to be asked for its role, and for nodes of a new configuration to be known. They are in use in any case.
const SETTLE_LIMIT: Duration = Duration::from_secs(5);
/// Time between two looks at what is waited for.
const LOOK_PERIOD: Duration = Duration::from_millis(20);

/// The result of an action.
pub enum ActionResult {
    Replies(Vec<PcpReply>),
    Stop(Vec<PcpReply>, shared::ProxyShutdown),
}

/// Carries out a request. Cancel safe, but a change that was begun goes on.
pub async fn perform(c: &Rc<Control>, request: &PcpRequest) -> Result<ActionResult, PcpReport> {
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

/// The number of a node that exists. A configuration that was read just now is taken in first.
async fn id(c: &Control, failed: &str, number: i32) -> Result<u16, PcpReport> {
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

/// Has whoever decides about nodes do something.
pub(super) async fn operate(c: &Control, failed: &str, request: weir_failover::OperatorRequest) -> Result<(), PcpReport> {
    operate_within(c, failed, OPERATION_LIMIT, request).await
}

async fn operate_within(
    c: &Control,
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

/// Has all servers started anew. Dropped between two steps or within one, it orders no more of them, and the step under way comes to its end.
async fn walk(c: &Control) -> Result<Vec<PcpReply>, PcpReport> {
    let (failed, walk) = ("upgrade walk failed", upgrade_walk::plan(&c.shared));
    for step in &walk.steps {
        operate_within(c, failed, RESTART_LIMIT, *step).await?;
    }
    let refused = |obstacle: RestartObstacle| fault(failed, format!("{obstacle}. {}", obstacle.hint()).trim_end());
    let notice = walk.end().map_err(refused)?;
    let notice = notice.map(|text| PcpReply::Notice(PcpReport::new(PcpSeverity::Notice, text)));
    Ok(notice.into_iter().chain([PcpReply::done(PcpRequest::UpgradeWalk.reply_tag())]).collect())
}

/// Takes a node into use. A script may have started its server just now: it is looked at anew before the answer is no.
pub(super) async fn attach(
    c: &Control,
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
    // A client that hears of the success is to find the node in use, which needs one more question for its role.
    let is_up = || {
        let view = c.shared.cluster.view.load();
        view.nodes.iter().position(|known| known.id == node).is_some_and(|at| view.is_up(at))
    };
    wait_until(SETTLE_LIMIT, is_up).await;
    Ok(())
}

/// Waits until something is so, for so long at most. Returns true if it is.
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

/// Names a primary, or first takes the one that works out of use. If the promotion fails then, the old one gets the writes back.
async fn promote(c: &Control, failed: &str, node: u16, aim: PromotionKind) -> Result<(), PcpReport> {
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

/// Lets what runs end before the command promotes a node, and the node get all of the log, so that the switch costs nobody anything. The pause lasts
/// until what it gives is dropped.
async fn quieten<'c>(c: &'c Control, failed: &str, primary: u16, node: u16) -> Result<Option<PauseGuard<'c>>, PcpReport> {
    let paused = (!c.shared.pause_state.is_all_paused()).then(|| PauseGuard::new(c));
    let limit_ms = c.shared.config.load().recovery.agents.transaction_limit_ms;
    // The rest ends with the primary. Reads on standbys go on all the while: nobody waits for their end.
    wait_until(Duration::from_millis(limit_ms), || !is_busy(c, |of| of == primary)).await;
    catch_up(c, failed, primary, node).await?;
    Ok(paused)
}

/// Waits until a standby has all of the log that the primary has now. A primary that does not answer is not waited for.
async fn catch_up(c: &Control, failed: &str, primary: u16, node: u16) -> Result<(), PcpReport> {
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

/// True if somebody can stop and start the server of a node.
fn has_agent(c: &Control, node: u16) -> bool {
    c.shared.config.load().nodes.iter().any(|known| known.id == node && known.agent().is_some())
}

/// Waits until the operator's command has promoted a node, and it gets the writes. If the command fails the old one gets them back.
async fn wait_primary(c: &Control, failed: &str, old: u16, node: u16) -> Result<(), PcpReport> {
    let is_primary = || {
        let view = c.shared.cluster.view.load();
        view.primary.and_then(|at| view.nodes.get(at)).is_some_and(|primary| primary.id == node)
    };
    let is_named = || c.shared.cluster.failover.load().named == Some(node);
    wait_until(SETTLE_LIMIT, || is_named() || is_primary()).await;
    wait_until(OPERATION_LIMIT, || is_primary() || !is_named()).await;
    // What was accepted is seen here a moment later.
    let text = match (wait_until(SETTLE_LIMIT, is_primary).await, is_named()) {
        (true, _) => return Ok(()),
        (false, true) => format!("node {node} is no primary {} s after the old one was detached", OPERATION_LIMIT.as_secs()),
        (false, false) => format!("failover_command failed, and node {old} is attached again; the log tells more"),
    };
    Err(fault(failed, text))
}

/// Does something now, or when all transactions have ended; those that begin meanwhile wait.
///
/// Pgpool-II waits until all clients have left. A client here has no server connection between its transactions, so that it can stay.
async fn at(
    c: &Control,
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

/// True while a session has a transaction or a statement open on such nodes. One that keeps its server connection between them need not leave.
fn is_busy(c: &Control, is_meant: impl Fn(u16) -> bool) -> bool {
    !c.shared.pause_state.is_all_paused() || control::failover::open(c, is_meant) > 0
}

/// All databases are paused while it lives.
struct PauseGuard<'a>(&'a Control);

impl PauseGuard<'_> {
    fn new(c: &Control) -> PauseGuard<'_> {
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
fn tell_first(c: &Control, message: WorkerMessage) {
    if let Some(mailbox) = c.shared.mailboxes.first() {
        mailbox.send(message);
    }
}

/// Reads the files again, on another thread. Parameters that need a restart are told in a notice.
async fn reload(c: &Control) -> Result<Vec<PcpReply>, PcpReport> {
    let shared = c.shared.clone();
    let reloaded = tokio::task::spawn_blocking(move || shared.reload()).await;
    let outcome = reloaded.unwrap_or_else(|_| Err("a fault in the proxy".into()));
    let left = outcome.map_err(|why| fault("process reload config request failed", why))?;
    let text = || format!("these parameters cannot be changed without a restart: {}", left.join(", "));
    let notice = (!left.is_empty()).then(|| PcpReply::Notice(PcpReport::new(PcpSeverity::Notice, text())));
    Ok(notice.into_iter().chain([PcpReply::done(b'z')]).collect())
}
