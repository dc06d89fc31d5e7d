//! Requests that change something. A reply of success means success.

use crate::admin::acts::node_acts::{self, NodeActError, wait_until};
use crate::admin::acts::{self, heard_acts, online_recovery};
use crate::control::control_context::ControlContext;
use crate::control::group_acts::{self, ActsOfMembers, ActsReport, GroupAct, MEMBER_LIMIT};
use crate::log::Level;
use crate::runtime::group_seat::GroupSeat;
use crate::runtime::shared;
use std::cell::RefCell;
use std::rc::Rc;
use weir_group::{FormingOrder, HostNumber};
use weir_io::clock::boot_now_ms;
use weir_wire::pcp_protocol::{self, CommandScope, PcpReply, PcpReport, PcpRequest, PcpSeverity, WatchdogChange};

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
        PcpRequest::Stop(mode, scope) => {
            let ActsReport { notes, faults } = at_others(c, scope, &GroupAct::Stop(stop_mode(mode))).await;
            return Ok(ActionResult::Stop(noted([notes, faults].concat(), done), stop_mode(mode)));
        }
        PcpRequest::Reload(scope) => {
            let (own, others) = tokio::join!(reload(c), at_others(c, scope, &GroupAct::Reload));
            let failed = "process reload config request failed";
            return all_done(failed, own, others).map(|notes| ActionResult::Replies(noted(notes, done)));
        }
        PcpRequest::RotateLog(scope) => {
            let others = at_others(c, scope, &GroupAct::RotateLog).await;
            let notes = all_done("rotating the log failed", shared.log.rotate().map(|()| None), others)?;
            return Ok(ActionResult::Replies(noted(notes, done)));
        }
        PcpRequest::WatchdogChange(change, host) => {
            let note = change_group(c, change, host).await.map_err(|why| fault("changing the group failed", why))?;
            return Ok(ActionResult::Replies(noted(note, done)));
        }
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
fn noted(notes: impl IntoIterator<Item = String>, done: Vec<PcpReply>) -> Vec<PcpReply> {
    let notices = notes.into_iter().map(|text| PcpReply::Notice(PcpReport::new(PcpSeverity::Notice, text)));
    notices.chain(done).collect()
}

/// Has the other members of the group do it, too, if they are meant. Cancel safe, but what was begun goes on.
async fn at_others(c: &ControlContext, scope: CommandScope, act: &GroupAct) -> ActsReport {
    match scope {
        CommandScope::Local => ActsReport::default(),
        CommandScope::Cluster => {
            let acts = RefCell::new(ActsOfMembers::begin(&c.shared, act));
            node_acts::wait_until(MEMBER_LIMIT, || acts.borrow_mut().are_done()).await;
            acts.into_inner().report()
        }
    }
}

/// Notes to tell if this host and all others did it.
fn all_done(failed: &str, own: Result<Option<String>, String>, others: ActsReport) -> Result<Vec<String>, PcpReport> {
    let ActsReport { mut notes, mut faults } = others;
    match own {
        Ok(note) => notes.extend(note),
        Err(why) => faults.insert(0, why),
    }
    if faults.is_empty() { Ok(notes) } else { Err(fault(failed, faults.join("; "))) }
}

/// Has the leader change the group; waits until this host sees another leader. Cancel safe, but what was begun goes on.
async fn change_group(c: &ControlContext, change: WatchdogChange, host: i32) -> Result<Option<String>, String> {
    let seat = group_acts::seat(&c.shared)?;
    let host = HostNumber::try_from(host).map_err(|_| format!("{host} is no number of a host"))?;
    let act = match change {
        WatchdogChange::Add => GroupAct::Add(host),
        WatchdogChange::Remove => GroupAct::Remove(host),
        WatchdogChange::Lead => GroupAct::Lead(host),
        WatchdogChange::Form => return form_group(&seat, FormingOrder::Majority).await,
        WatchdogChange::FormByForce => return form_by_force(c, &seat).await,
    };
    let note = group_acts::ask_leader(&seat, &act).await?;
    if change == WatchdogChange::Lead && !heard_acts::wait_leader(&seat, host, MEMBER_LIMIT).await {
        return Err(format!("the lead was taken for host {host}, which does not lead after {} s", MEMBER_LIMIT.as_secs()));
    }
    Ok((!note.is_empty()).then_some(note))
}

/// Waits until this host leads. Cancel safe, but what was begun goes on.
async fn form_group(seat: &GroupSeat, order: FormingOrder) -> Result<Option<String>, String> {
    let formed = seat.form(order).await.ok_or("this host leaves its group, or is too busy: ask again")?;
    formed.map_err(|why| why.to_string())?;
    if wait_until(MEMBER_LIMIT, || seat.view().leads(boot_now_ms())).await {
        return Ok(None);
    }
    Err(format!("this host does not lead after {} s; see weir watchdog status, and ask again", MEMBER_LIMIT.as_secs()))
}

/// Of this host alone. Cancel safe, but what was begun goes on.
async fn form_by_force(c: &ControlContext, seat: &GroupSeat) -> Result<Option<String>, String> {
    let incarnation = u32::from_le_bytes(crate::random());
    let first_number = u64::from_le_bytes(crate::random()) >> 2;
    form_group(seat, FormingOrder::Alone { incarnation, first_number }).await?;
    let file = "weir_group.PORT in wd_state_dir";
    let note = format!(
        "this host leads a group of its own. On each other host, delete {file} before it is started: then it is admitted by itself. \
         Look at the nodes: failovers and detached nodes that only the lost hosts knew of are forgotten"
    );
    c.shared.log.say(Level::Warning, format_args!("watchdog: an operator formed a group by force: {note}"));
    Ok(Some(note))
}

fn stop_mode(mode: pcp_protocol::PcpShutdownMode) -> shared::ProxyShutdown {
    match mode {
        pcp_protocol::PcpShutdownMode::Smart => shared::ProxyShutdown::Smart,
        pcp_protocol::PcpShutdownMode::Fast => shared::ProxyShutdown::Fast,
        pcp_protocol::PcpShutdownMode::Immediate => shared::ProxyShutdown::Immediate,
    }
}

/// On another thread.
async fn reload(c: &ControlContext) -> Result<Option<String>, String> {
    let shared = c.shared.clone();
    let reloaded = tokio::task::spawn_blocking(move || acts::reload(&shared)).await;
    reloaded.unwrap_or_else(|_| Err("a fault in the proxy".into()))
}
