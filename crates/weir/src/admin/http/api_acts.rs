//! Orders from the dashboard: what each would do, and doing it. Its deeds are those of the console and PCP (`admin::acts`).
//!
//! Only users of `admin_users` may give them, and each is in the log.

use super::api_error::ApiError;
use super::dashboard::{ApiQuery, Dashboard, RecoveryOrder, answer, read_json};
use super::dashboard_access::AdminUser;
use crate::admin::acts::node_acts::{self, NodeActError};
use crate::admin::acts::{self, PoolHand};
use crate::admin::group_sight::GroupSight;
use crate::control;
use crate::control::group_acts::{ActsOfMembers, ActsReport, GroupAct, MEMBER_LIMIT};
use crate::counted;
use crate::log::Level;
use crate::runtime::shared::SharedState;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use weir_config::failover_settings::FailoverMode;
use weir_session::fault::{ErrorReport, sqlstate};
use weir_wire::pcp_protocol::{DrainMode, PromotionKind};

/// Members answer, and connections come back, on threads that have no bell for requests: an order looks at them, for `MEMBER_LIMIT` at most.
const LOOK_PERIOD: Duration = Duration::from_millis(50);

/// How the nodes stand, as far as an act's effect hangs on it.
#[derive(Clone, Copy, Debug)]
struct ActFacts {
    primary: Option<u16>,
    mode: FailoverMode,
}

impl ActFacts {
    fn now(shared: &SharedState) -> ActFacts {
        let view = shared.cluster.view.load();
        let primary = view.primary.and_then(|at| view.nodes.get(at)).map(|node| node.id);
        ActFacts { primary, mode: shared.config.load().failover.mode() }
    }
}

/// An order of a person who looks at the dashboard.
#[derive(Clone, Debug, PartialEq, Eq)]
enum DashboardAct {
    Attach(i32),
    Detach(i32),
    Promote(i32),
    SwitchOver(i32),
    Recover(i32),
    Restart(i32),
    Reload,
    /// A database, or all.
    Pause(Option<String>),
    Resume(Option<String>),
    KillClient(u32),
    CancelClient(u32),
}

impl DashboardAct {
    /// `number` and `text` give the values of a request.
    fn read(
        act: &str,
        number: impl Fn(&str) -> Result<u32, ApiError>,
        text: impl Fn(&str) -> Option<String>,
    ) -> Result<DashboardAct, ApiError> {
        let node = || number("node").map(|node| i32::try_from(node).unwrap_or(i32::MAX));
        Ok(match act {
            "attach" => DashboardAct::Attach(node()?),
            "detach" => DashboardAct::Detach(node()?),
            "promote" => DashboardAct::Promote(node()?),
            "switchover" => DashboardAct::SwitchOver(node()?),
            "recover" => DashboardAct::Recover(node()?),
            "restart" => DashboardAct::Restart(node()?),
            "reload" => DashboardAct::Reload,
            "pause" => DashboardAct::Pause(text("database")),
            "resume" => DashboardAct::Resume(text("database")),
            "kill_client" => DashboardAct::KillClient(number("client")?),
            "cancel_client" => DashboardAct::CancelClient(number("client")?),
            _ => return Err(ApiError::bad_request(format!("there is no act \"{}\"", act.escape_debug()))),
        })
    }

    fn word(&self) -> &'static str {
        match self {
            DashboardAct::Attach(_) => "attach",
            DashboardAct::Detach(_) => "detach",
            DashboardAct::Promote(_) => "promote",
            DashboardAct::SwitchOver(_) => "switchover",
            DashboardAct::Recover(_) => "recover",
            DashboardAct::Restart(_) => "restart",
            DashboardAct::Reload => "reload",
            DashboardAct::Pause(_) => "pause",
            DashboardAct::Resume(_) => "resume",
            DashboardAct::KillClient(_) => "kill_client",
            DashboardAct::CancelClient(_) => "cancel_client",
        }
    }

    /// For the log.
    fn text(&self) -> String {
        let word = self.word();
        match self {
            DashboardAct::Attach(node)
            | DashboardAct::Detach(node)
            | DashboardAct::Promote(node)
            | DashboardAct::SwitchOver(node)
            | DashboardAct::Recover(node)
            | DashboardAct::Restart(node) => format!("{word} node {node}"),
            DashboardAct::Reload | DashboardAct::Pause(None) | DashboardAct::Resume(None) => word.to_owned(),
            DashboardAct::Pause(Some(database)) | DashboardAct::Resume(Some(database)) => {
                format!("{word} database \"{}\"", database.escape_debug())
            }
            DashboardAct::KillClient(client) | DashboardAct::CancelClient(client) => format!("{word} {client}"),
        }
    }

    /// The effect, for the person who is about to order it.
    fn does(&self, facts: ActFacts) -> String {
        match self {
            DashboardAct::Attach(node) => format!("Takes node {node} into use: it gets its share of statements once it answers."),
            DashboardAct::Detach(node) => {
                let then = match (facts.primary.map(i32::from) == Some(*node), facts.mode) {
                    (false, _) => "",
                    (true, FailoverMode::Command) => " It is the primary: failover_command is run.",
                    (true, FailoverMode::Builtin | FailoverMode::Follow | FailoverMode::Off) => {
                        " It is the primary: writes wait until it is attached again, or another node is the primary."
                    }
                };
                format!("Takes node {node} out of use; its sessions go on elsewhere, open transactions on it are lost.{then}")
            }
            DashboardAct::Promote(node) => match facts.mode {
                FailoverMode::Builtin => {
                    format!(
                        "Promotes node {node}, which then takes writes. A primary that works is stopped or detached before that."
                    )
                }
                FailoverMode::Command | FailoverMode::Follow | FailoverMode::Off => format!(
                    "Names node {node} as the primary that takes writes. Its server must be one already: failover_mode leaves promotion to others."
                ),
            },
            DashboardAct::SwitchOver(node) => {
                format!("Moves the primary to node {node}: transactions end first, then writes wait until it has taken over.")
            }
            DashboardAct::Recover(node) => {
                format!("Makes the server of node {node} anew from the primary; what is on it is lost.")
            }
            DashboardAct::Restart(node) => {
                format!("Has the server of node {node} started anew; its sessions go on elsewhere meanwhile.")
            }
            DashboardAct::Reload => "Reads the configuration and password files again; a wrong file changes nothing.".into(),
            DashboardAct::Pause(None) => "Pauses all databases: transactions end, then all clients wait.".into(),
            DashboardAct::Pause(Some(database)) => {
                format!("Pauses database \"{database}\": transactions end, then its clients wait.")
            }
            DashboardAct::Resume(None) => "Ends all pauses: clients that wait go on.".into(),
            DashboardAct::Resume(Some(database)) => format!("Ends the pause of database \"{database}\": its clients go on."),
            DashboardAct::KillClient(client) => {
                format!("Ends the connection of client {client}; its transaction is rolled back.")
            }
            DashboardAct::CancelClient(client) => {
                format!(
                    "Cancels the statement that client {client} runs: it fails with SQLSTATE 57014, and so does its transaction. The client stays connected."
                )
            }
        }
    }

    /// Whom the act is for, where several Weirs are one group.
    fn scope(&self, group: &GroupSight) -> Option<String> {
        match self {
            DashboardAct::Attach(_)
            | DashboardAct::Detach(_)
            | DashboardAct::Promote(_)
            | DashboardAct::SwitchOver(_)
            | DashboardAct::Restart(_) => Some(match group.leader() {
                Some(leader) if leader.is_own => "This host leads the group: it counts for all members.".into(),
                Some(leader) => {
                    format!("Host {} ({}) leads the group and does it, for all members.", leader.number, leader.name())
                }
                None => "The group has no leader now, and nobody else may do it.".into(),
            }),
            DashboardAct::Recover(_) => Some("It counts for all members of the group.".into()),
            DashboardAct::Pause(_) | DashboardAct::Resume(_) => Some("All members of the group do so.".into()),
            DashboardAct::Reload => Some("Other members of the group do not read theirs.".into()),
            DashboardAct::KillClient(_) | DashboardAct::CancelClient(_) => None,
        }
    }

    /// Clients that would notice.
    fn clients(&self, shared: &SharedState) -> usize {
        let used = |node: i32| control::failover::open(shared, |of| i32::from(of) == node);
        let of_database = |name: &str| shared.session_statuses.all().iter().filter(|status| *status.database == *name).count();
        let all = || shared.clients.connected.load(Ordering::Relaxed) as usize;
        match self {
            DashboardAct::Attach(_) | DashboardAct::Reload | DashboardAct::Recover(_) => 0,
            DashboardAct::Detach(node) | DashboardAct::Restart(node) => used(*node),
            DashboardAct::Promote(_) | DashboardAct::SwitchOver(_) => {
                let view = shared.cluster.view.load();
                view.primary.and_then(|at| view.nodes.get(at)).map_or(0, |node| used(i32::from(node.id)))
            }
            DashboardAct::Pause(None) | DashboardAct::Resume(None) => all(),
            DashboardAct::Pause(Some(database)) | DashboardAct::Resume(Some(database)) => of_database(database),
            DashboardAct::KillClient(client) => usize::from(shared.session_statuses.get(*client).is_some()),
            DashboardAct::CancelClient(client) => {
                usize::from(shared.session_statuses.get(*client).is_some_and(|status| acts::runs(&status)))
            }
        }
    }
}

/// Says what an act would do, and to how many clients.
pub async fn forecast(State(dashboard): State<Arc<Dashboard>>, _: AdminUser, query: ApiQuery) -> Result<Response, ApiError> {
    let number =
        |name: &str| query.must(name)?.parse::<u32>().map_err(|_| ApiError::bad_request(format!("\"{name}\" must be a number")));
    let act = DashboardAct::read(query.must("act")?, number, |name| query.get(name).map(str::to_owned))?;
    let shared = &dashboard.shared;
    let group = GroupSight::now(shared);
    let scope = group.as_ref().and_then(|group| act.scope(group));
    let does = std::iter::once(act.does(ActFacts::now(shared))).chain(scope).collect::<Vec<_>>().join(" ");
    Ok(answer(&json!({ "act": act.word(), "does": does, "clients": act.clients(shared), "in_group": group.is_some() })))
}

/// Carries out an act, to its end. Cancel safe, but what was begun goes on.
pub async fn act(State(dashboard): State<Arc<Dashboard>>, AdminUser(user): AdminUser, body: Body) -> Result<Response, ApiError> {
    let asked = read_json(body).await?;
    let number = |name: &str| {
        let value = asked.get(name).and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok());
        value.ok_or_else(|| ApiError::bad_request(format!("\"{name}\" must be a number")))
    };
    let text = |name: &str| asked.get(name).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned);
    let act = DashboardAct::read(&text("act").unwrap_or_default(), number, text)?;
    let log = &dashboard.shared.log;
    log.say(Level::Log, format_args!("dashboard: {} by user \"{}\" from {}", act.text(), user.name, user.address));
    match perform(&dashboard, &act).await {
        Ok(notices) => Ok(answer(&json!({ "done": true, "notices": notices }))),
        Err(error) => {
            log.say(Level::Log, format_args!("dashboard: {} is not done: {}", act.text(), error.message));
            Err(error)
        }
    }
}

async fn perform(dashboard: &Arc<Dashboard>, act: &DashboardAct) -> Result<Vec<String>, ApiError> {
    let shared = &dashboard.shared;
    match act {
        DashboardAct::Attach(node) => node_acts::attach(shared, *node).await.map_err(refused)?,
        DashboardAct::Detach(node) => node_acts::detach(shared, *node, DrainMode::Now).await.map_err(refused)?,
        DashboardAct::Promote(node) => {
            node_acts::promote(shared, *node, DrainMode::Now, PromotionKind::Name).await.map_err(refused)?;
        }
        DashboardAct::SwitchOver(node) => {
            node_acts::promote(shared, *node, DrainMode::Now, PromotionKind::Switchover).await.map_err(refused)?;
        }
        DashboardAct::Restart(node) => node_acts::restart(shared, *node).await.map_err(refused)?,
        DashboardAct::Recover(node) => recover(dashboard, *node).await?,
        DashboardAct::Reload => return reload(dashboard).await,
        DashboardAct::Pause(database) => return pause(shared, database.as_deref()).await,
        DashboardAct::Resume(database) => return resume(shared, database.as_deref()).await,
        DashboardAct::KillClient(client) => acts::kill_client(shared, *client).map_err(ErrorReport::from)?,
        DashboardAct::CancelClient(client) => acts::cancel_client(shared, *client).map_err(ErrorReport::from)?,
    }
    Ok(Vec::new())
}

fn refused(error: NodeActError) -> ApiError {
    ApiError::conflict(sqlstate::NOT_IN_STATE, error.to_string()).hint("The pages about nodes and failover tell their state.")
}

/// By the task of the control thread that may.
async fn recover(dashboard: &Dashboard, node: i32) -> Result<(), ApiError> {
    let (told, outcome) = oneshot::channel();
    if dashboard.recoveries.try_send(RecoveryOrder { node, told }).is_err() {
        return Err(ApiError::busy("other recoveries wait already", 60));
    }
    match outcome.await {
        Ok(outcome) => outcome.map_err(|why| ApiError::conflict(sqlstate::NOT_IN_STATE, why)),
        Err(_) => Err(ApiError::fault()),
    }
}

async fn reload(dashboard: &Arc<Dashboard>) -> Result<Vec<String>, ApiError> {
    let note = dashboard.job(|own| acts::reload(&own.shared)).await?;
    let note = note.map_err(|why| {
        ApiError::conflict(sqlstate::CONFIGURATION_ERROR, why).hint("Nothing has changed; weir check tells all that is wrong.")
    })?;
    Ok(note.into_iter().collect())
}

/// For all members of the group. The pause stays if connections are used for longer than a person waits.
async fn pause(shared: &SharedState, database: Option<&str>) -> Result<Vec<String>, ApiError> {
    acts::pause(shared, PoolHand::Mail, database).map_err(ErrorReport::from)?;
    let mut others = ActsOfMembers::begin(shared, &GroupAct::Pause(database.map(Into::into)));
    let is_paused = || database.map_or_else(|| shared.pause_state.is_all_paused(), |name| shared.pause_state.is_paused(name));
    let until = Instant::now() + MEMBER_LIMIT;
    loop {
        let are_done = others.are_done();
        if are_done && is_paused() && !acts::has_conns(shared, database) {
            return told("the pause", others.report());
        }
        if Instant::now() >= until {
            let limit = counted(MEMBER_LIMIT.as_secs() as usize, "second");
            let text = format!("connections are still in use after {limit}; the pause goes on, and nothing new begins");
            return Err(ApiError::conflict(sqlstate::NOT_IN_STATE, text).hint("RESUME ends it, or look for long transactions."));
        }
        tokio::time::sleep(LOOK_PERIOD).await;
    }
}

/// For all members of the group, also where this one is not paused.
async fn resume(shared: &SharedState, database: Option<&str>) -> Result<Vec<String>, ApiError> {
    let mut others = ActsOfMembers::begin(shared, &GroupAct::Resume(database.map(Into::into)));
    let own = acts::resume(shared, PoolHand::Mail, database);
    let until = Instant::now() + MEMBER_LIMIT;
    while !others.are_done() && Instant::now() < until {
        tokio::time::sleep(LOOK_PERIOD).await;
    }
    own.map_err(ErrorReport::from)?;
    told("the end of the pause", others.report())
}

fn told(what: &str, report: ActsReport) -> Result<Vec<String>, ApiError> {
    let ActsReport { notes, faults } = report;
    if faults.is_empty() {
        return Ok(notes);
    }
    let text = format!("{what} is done here, and not by all members of the group: {}", faults.join("; "));
    Err(ApiError::conflict(sqlstate::NOT_IN_STATE, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(act: &str, node: Option<u32>, database: Option<&str>) -> Result<DashboardAct, String> {
        let number = |_: &str| node.ok_or_else(|| ApiError::bad_request("no number"));
        DashboardAct::read(act, number, |_| database.map(str::to_owned)).map_err(|error| error.message)
    }

    const FACTS: ActFacts = ActFacts { primary: Some(0), mode: FailoverMode::Builtin };

    #[test]
    fn an_act_says_what_it_does_to_nodes_as_they_stand() {
        let detached = |node: i32, mode| DashboardAct::Detach(node).does(ActFacts { mode, ..FACTS });
        assert!(detached(1, FailoverMode::Builtin).ends_with("transactions on it are lost."));
        assert!(detached(0, FailoverMode::Builtin).contains("writes wait until it is attached again"));
        assert!(detached(0, FailoverMode::Command).contains("failover_command is run"));
        let promoted = |mode| DashboardAct::Promote(1).does(ActFacts { mode, ..FACTS });
        assert!(promoted(FailoverMode::Builtin).starts_with("Promotes node 1"));
        assert!(promoted(FailoverMode::Follow).contains("leaves promotion to others"));
    }

    #[test]
    fn acts_are_read_with_what_they_are_about() {
        for (act, node, database, expected) in [
            ("attach", Some(1), None, DashboardAct::Attach(1)),
            ("switchover", Some(2), None, DashboardAct::SwitchOver(2)),
            ("attach", Some(u32::MAX), None, DashboardAct::Attach(i32::MAX)),
            ("pause", None, None, DashboardAct::Pause(None)),
            ("resume", None, Some("shop"), DashboardAct::Resume(Some("shop".into()))),
            ("kill_client", Some(7), None, DashboardAct::KillClient(7)),
            ("cancel_client", Some(7), None, DashboardAct::CancelClient(7)),
        ] {
            assert_eq!(read(act, node, database).as_ref(), Ok(&expected));
            assert_eq!(expected.word(), act);
            assert!(expected.does(FACTS).ends_with('.') && expected.text().starts_with(act), "{expected:?}");
        }
        assert_eq!(read("detach", None, None), Err("no number".into()));
        assert_eq!(read("shutdown", Some(1), None), Err("there is no act \"shutdown\"".into()));
    }
}
