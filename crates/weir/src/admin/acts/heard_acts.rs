//! Does what members of the group pass on: to the leader, or to each of them. `control::group_acts` asks for it.

use super::{ActError, PoolHand, has_conns, node_acts::wait_until, pause, reload, resume};
use crate::control::control_context::ControlContext;
use crate::control::group_acts::{GroupAct, PAUSE_LIMIT};
use crate::log::Level;
use crate::runtime::group_seat::{GroupOrder, GroupSeat, GroupView, HeardAct};
use crate::runtime::mail::RequestOrigin;
use crate::runtime::shared::ProxyShutdown;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_local;
use weir_group::{ActAnswer, ActDoer, GroupAnswer, GroupLead, GroupRequest, HostNumber, MemberRow};
use weir_io::clock::boot_now_ms;

/// Time in which a host that runs is admitted.
const ADMISSION_LIMIT: Duration = Duration::from_secs(10);

/// Serves until the control thread ends. Cancel safe: acts under way end, and their askers hear that no answer came.
pub async fn serve(c: Rc<ControlContext>) {
    let Some(seat) = c.shared.group.get().cloned() else { return };
    loop {
        for act in seat.next_acts().await {
            let (c, seat) = (c.clone(), seat.clone());
            spawn_local(async move { obey(&c, &seat, act).await });
        }
    }
}

async fn obey(c: &Rc<ControlContext>, seat: &Arc<GroupSeat>, heard: HeardAct) {
    let HeardAct { from, number, doer, text } = heard;
    c.shared.log.say(Level::Log, format_args!("watchdog: host {} passes on: {text}", from.host));
    let act = GroupAct::parse(&text);
    let stop = match act {
        Some(GroupAct::Stop(mode)) => Some(mode),
        _ => None,
    };
    let answer = match (doer, act) {
        (_, None) => ActAnswer::Refused("this host does not know how: upgrade it".into()),
        (ActDoer::Leader, Some(act)) if seat.view().leads(boot_now_ms()) => lead(c, seat, act).await,
        (ActDoer::Leader, Some(_)) => ActAnswer::NotLeader,
        (ActDoer::Receiver, Some(act)) => follow(c, act).await,
    };
    if let ActAnswer::Refused(why) = &answer {
        c.shared.log.say(Level::Log, format_args!("watchdog: {text}, passed on by host {}, is refused: {why}", from.host));
    }
    // Before a stop: the group's thread takes orders in turn, and leaves by a later one.
    seat.deliver(GroupOrder::Acted { from, number, answer }).await;
    if let Some(mode) = stop.filter(|_| doer == ActDoer::Receiver) {
        c.shared.begin_stop(mode);
    }
}

fn answer_of(outcome: Result<Option<String>, String>) -> ActAnswer {
    match outcome {
        Ok(note) => ActAnswer::Done(note.unwrap_or_default()),
        Err(why) => ActAnswer::Refused(why),
    }
}

fn refused(why: String) -> ActAnswer {
    ActAnswer::Refused(why)
}

/// Acts of the leader. Cancel safe, but what was begun goes on; so with all that follows.
async fn lead(c: &ControlContext, seat: &GroupSeat, act: GroupAct) -> ActAnswer {
    match act {
        GroupAct::Node(request) => match c.shared.control.operate(request, RequestOrigin::Member).await {
            Ok(outcome) => answer_of(outcome.map(|()| None)),
            Err(_) => ActAnswer::Unknown,
        },
        GroupAct::Lead(host) => hand_over(seat, host).await,
        GroupAct::Add(host) => add(c, seat, host).await,
        GroupAct::Remove(host) => remove(seat, host).await,
        GroupAct::Reload | GroupAct::RotateLog | GroupAct::Stop(_) | GroupAct::Pause(_) | GroupAct::Resume(_) => {
            refused("it is for each member, not for the leader".into())
        }
    }
}

/// Acts of each member.
async fn follow(c: &Rc<ControlContext>, act: GroupAct) -> ActAnswer {
    match act {
        GroupAct::Reload => {
            let shared = c.shared.clone();
            let reloaded = tokio::task::spawn_blocking(move || reload(&shared)).await;
            answer_of(reloaded.unwrap_or_else(|_| Err("a fault in the proxy".into())))
        }
        GroupAct::RotateLog => answer_of(c.shared.log.rotate().map(|()| None)),
        GroupAct::Stop(_) => ActAnswer::Done(String::new()),
        GroupAct::Pause(database) => pause_here(c, database.as_deref()).await,
        GroupAct::Resume(database) => match resume(&c.shared, PoolHand::Mail, database.as_deref()) {
            Ok(()) | Err(ActError::NothingPaused | ActError::NotPaused(_) | ActError::NoDatabase(_)) => {
                ActAnswer::Done(String::new())
            }
            Err(error) => refused(error.to_string()),
        },
        GroupAct::Node(_) | GroupAct::Lead(_) | GroupAct::Add(_) | GroupAct::Remove(_) => {
            refused("it is for the leader, not for each member".into())
        }
    }
}

/// Ends when no connection is shared any more, or the pause was ended.
async fn pause_here(c: &ControlContext, database: Option<&str>) -> ActAnswer {
    let shared = &c.shared;
    match pause(shared, PoolHand::Mail, database) {
        Ok(()) | Err(ActError::AlreadyPaused) => {}
        // A database that nobody has used here yet has no connections, and is paused when clients come.
        Err(ActError::NoDatabase(_)) => PoolHand::Mail.pause(shared, database),
        Err(error) => return refused(error.to_string()),
    }
    let gates = &shared.pause_state;
    let is_paused = || database.map_or_else(|| gates.is_all_paused(), |name| gates.is_paused(name));
    let is_quiet = || (is_paused() && !has_conns(shared, database)) || shared.stop_mode() != ProxyShutdown::No;
    if wait_until(PAUSE_LIMIT, is_quiet).await {
        ActAnswer::Done(String::new())
    } else {
        refused(format!("connections are in use after {} s", PAUSE_LIMIT.as_secs()))
    }
}

fn row_of(view: &GroupView, host: HostNumber) -> Option<MemberRow> {
    view.version.as_ref()?.state.members.rows.iter().find(|row| row.id.host == host).copied()
}

fn no_member(host: HostNumber) -> ActAnswer {
    refused(format!("host {host} is no member of the group"))
}

/// Begins it: the member that was asked waits for the end.
async fn hand_over(seat: &GroupSeat, host: HostNumber) -> ActAnswer {
    let view = seat.view();
    let Some(row) = row_of(&view, host) else { return no_member(host) };
    if view.leader() == Some(row.id) {
        return ActAnswer::Done(format!("host {host} leads already"));
    }
    if !row.may_lead() {
        return refused(format!("host {host} never leads: it is a witness, or its wd_priority is 0"));
    }
    match seat.request(GroupRequest::HandOver { to: Some(row.id) }).await {
        // A leader that hears of its own change leads no more before that is decided.
        GroupAnswer::Done | GroupAnswer::NotLeader => ActAnswer::Done(String::new()),
        GroupAnswer::Refused => refused(format!("host {host} cannot lead now: it is silent, lost, or says that it is not fit")),
        GroupAnswer::Busy => refused("too much waits already: ask again".into()),
    }
}

/// Hosts that greet are admitted by themselves: waits for it.
async fn add(c: &ControlContext, seat: &GroupSeat, host: HostNumber) -> ActAnswer {
    let config = c.shared.config.load_full();
    let is_configured = config.watchdog.as_ref().is_some_and(|watchdog| watchdog.hosts.iter().any(|known| known.number == host));
    if !is_configured {
        return refused(format!("host {host} is not in the configuration of the leader: set hostname{host} there"));
    }
    let is_member = || {
        let view = seat.view();
        let state = view.version.as_ref().map(|version| version.state.clone());
        state.is_some_and(|state| state.members.next.is_none()) && row_of(&view, host).is_some()
    };
    if wait_until(ADMISSION_LIMIT, is_member).await {
        return ActAnswer::Done(String::new());
    }
    let is_heard = seat.view().peers.iter().any(|peer| peer.host == host && peer.is_linked);
    refused(if is_heard {
        format!("host {host} is heard, and not admitted yet: most of the hosts that would be members must be there")
    } else {
        format!("host {host} is not heard: start it with this group in its configuration, and it is admitted by itself")
    })
}

/// A host that runs would be admitted again at once.
async fn remove(seat: &GroupSeat, host: HostNumber) -> ActAnswer {
    let view = seat.view();
    if row_of(&view, host).is_none() {
        return ActAnswer::Done(format!("host {host} is no member"));
    }
    if host == view.own.host {
        return refused(format!("host {host} leads the group: stop it first"));
    }
    let Some(state) = view.version.as_ref().map(|version| version.state.clone()) else { return no_member(host) };
    let silence_ms = state.lease_ms / 2;
    let is_heard =
        view.peers.iter().any(|peer| peer.host == host && peer.heard_at.is_some_and(|at| boot_now_ms() < at + silence_ms));
    if is_heard {
        return refused(format!("host {host} is heard, and would be admitted again: stop it first"));
    }
    let rows = state.members.rows.iter().filter(|row| row.id.host != host).copied().collect();
    match seat.request(GroupRequest::ChangeMembers { rows }).await {
        GroupAnswer::Done => ActAnswer::Done(String::new()),
        GroupAnswer::Refused => refused("most of the hosts that would be left are silent, or none of them may lead".into()),
        GroupAnswer::NotLeader => refused("this host leads the group no more: ask again".into()),
        GroupAnswer::Busy => refused("too much waits already: ask again".into()),
    }
}

/// Ends when the asked member sees this host lead. Cancel safe.
pub async fn wait_leader(seat: &GroupSeat, host: HostNumber, limit: Duration) -> bool {
    let leads = || {
        let view = seat.view();
        view.version.as_ref().is_some_and(|version| matches!(version.state.lead, GroupLead::Held(id) if id.host == host))
    };
    wait_until(limit, leads).await
}
