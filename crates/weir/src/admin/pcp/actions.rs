//! Requests that change something. A reply of success means success.

use crate::admin::acts::node_acts::{self, NodeActError};
use crate::admin::acts::{self, online_recovery};
use crate::control::control_context::ControlContext;
use crate::runtime::shared;
use std::rc::Rc;
use weir_wire::pcp_protocol::{self, PcpReply, PcpReport, PcpRequest, PcpSeverity};

pub enum ActionResult {
    Replies(Vec<PcpReply>),
    Stop(Vec<PcpReply>, shared::ProxyShutdown),
}

/// Cancel safe, but a begun change goes on.
pub async fn perform(c: &Rc<ControlContext>, request: &PcpRequest) -> Result<ActionResult, PcpReport> {
    let (shared, done) = (&c.shared, vec![PcpReply::done(request.reply_tag())]);
    match *request {
        PcpRequest::Attach(node) => node_acts::attach(shared, node).await.map_err(worded("attaching a node failed"))?,
        PcpRequest::Detach(node, when) => {
            node_acts::detach(shared, node, when).await.map_err(worded("detaching a node failed"))?;
        }
        PcpRequest::Promote(node, when, aim) => {
            node_acts::promote(shared, node, when, aim).await.map_err(worded("could not process promote request"))?;
        }
        PcpRequest::Recover(node) => {
            online_recovery::recover(c, node).await.map_err(worded("process recovery request failed"))?;
        }
        PcpRequest::Restart(node) => node_acts::restart(shared, node).await.map_err(worded("restarting a node failed"))?,
        PcpRequest::UpgradeWalk => {
            let note = node_acts::walk(shared).await.map_err(worded("upgrade walk failed"))?;
            return Ok(ActionResult::Replies(noted(note, done)));
        }
        PcpRequest::Stop(mode, _) => return Ok(ActionResult::Stop(done, stop_mode(mode))),
        PcpRequest::Reload(_) => return Ok(ActionResult::Replies(noted(reload(c).await?, done))),
        PcpRequest::RotateLog(_) => shared.log.rotate().map_err(|why| fault("rotating the log failed", why))?,
        PcpRequest::InvalidateQueryCache => {
            acts::clear_cache(shared).map_err(|error| fault("invalidating the query cache failed", error.to_string()))?;
        }
        PcpRequest::Salt
        | PcpRequest::Login { .. }
        | PcpRequest::NodeCount
        | PcpRequest::NodeInfo(_)
        | PcpRequest::HealthCheckStats(_)
        | PcpRequest::ProcessCount
        | PcpRequest::ProcessInfo(_)
        | PcpRequest::WatchdogInfo(_)
        | PcpRequest::WatchdogStatus
        | PcpRequest::PoolStatus
        | PcpRequest::Set { .. }
        | PcpRequest::StopRecovery
        | PcpRequest::End => return Err(fault("invalid PCP request", "it asks for nothing to be changed")),
    }
    Ok(ActionResult::Replies(done))
}

fn fault(message: &str, detail: impl Into<String>) -> PcpReport {
    PcpReport::new(PcpSeverity::Error, message).detail(detail)
}

/// The answer to a request that this kept from being carried out.
fn worded(failed: &str) -> impl FnOnce(NodeActError) -> PcpReport {
    move |error| match error {
        NodeActError::ServerRuns(node) => fault(&format!("node recovery failed, node id: {node} is alive"), error.to_string()),
        NodeActError::Refused(_)
        | NodeActError::Stopping
        | NodeActError::Late { .. }
        | NodeActError::NoNode(_)
        | NodeActError::AllPaused
        | NodeActError::StillOpen { .. }
        | NodeActError::LacksLog { .. }
        | NodeActError::NotPromoted { .. }
        | NodeActError::CommandFailed { .. }
        | NodeActError::Obstacle(_) => fault(failed, error.to_string()),
    }
}

/// Success, and what is to be told with it.
fn noted(note: Option<String>, done: Vec<PcpReply>) -> Vec<PcpReply> {
    note.map(|text| PcpReply::Notice(PcpReport::new(PcpSeverity::Notice, text))).into_iter().chain(done).collect()
}

fn stop_mode(mode: pcp_protocol::PcpShutdownMode) -> shared::ProxyShutdown {
    match mode {
        pcp_protocol::PcpShutdownMode::Smart => shared::ProxyShutdown::Smart,
        pcp_protocol::PcpShutdownMode::Fast => shared::ProxyShutdown::Fast,
        pcp_protocol::PcpShutdownMode::Immediate => shared::ProxyShutdown::Immediate,
    }
}

/// On another thread.
async fn reload(c: &ControlContext) -> Result<Option<String>, PcpReport> {
    let shared = c.shared.clone();
    let reloaded = tokio::task::spawn_blocking(move || acts::reload(&shared)).await;
    let outcome = reloaded.unwrap_or_else(|_| Err("a fault in the proxy".into()));
    outcome.map_err(|why| fault("process reload config request failed", why))
}
