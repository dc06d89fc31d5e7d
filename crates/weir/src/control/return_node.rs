//! Brings a server back as a standby by its agent, deed by deed as `failover::rejoin` decides.

use crate::control::agent_client::{Agent, AgentError};
use crate::control::control_conn::Conn;
use crate::control::control_context::{Control, Subject};
use crate::log::Level;
use crate::runtime::pool::server_conn::OpenError;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;
use weir_agent::{
    BaseBackup, Checkpoint, Data, DatabaseName, Deed, FailureKind, Follow, Host, LogKeeper, Progress, Rewind, ServerStatus,
    SlotName, Source, Status, StopMode, TextError, UserName, Word, WordValue,
};
use weir_config::{Config, NodeConfig};
use weir_failover::operations::Way;
use weir_failover::rejoin::{self, Files, Seen, Server, SoFar};
use weir_failover::{Ballot, Mark, NodeId};

/// Time for a stop in order; then the server is stopped as by a crash.
const STOP_MS: u32 = 30_000;
/// Time for a start. A standby that must apply much log goes on starting beyond it, and is waited for by the looks.
const START_MS: u32 = 300_000;
/// Time for a question.
const STATUS_LIMIT: Duration = Duration::from_secs(15);
/// As servers show it.
const NAME: &str = "weir_return";
/// Error of a slot that is there already.
const ALREADY_THERE: &str = "42710";
/// Deeds of one return: each of them once or twice, and looks between.
const STEPS_MAX: usize = 16;

/// Which node is to follow which.
#[derive(Clone, Copy, Debug)]
pub struct Return {
    pub node: NodeId,
    pub primary: NodeId,
    pub way: Way,
    /// The attempt by which the node was replaced, if a Weir decided that.
    pub ballot: Option<Ballot>,
}

/// Why a server is not back.
#[derive(Debug, thiserror::Error)]
pub enum ReturnError {
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error("node {0} has no agent")]
    NoAgent(NodeId),
    #[error("its agent cannot be told where the primary is: {0}")]
    Text(#[from] TextError),
    #[error("{0}")]
    Left(&'static str),
    #[error("its replication slot \"{}\" cannot be made on node {primary}: {cause}", slot.as_str())]
    Slot { primary: NodeId, slot: SlotName, cause: OpenError },
    #[error("another node became the primary meanwhile")]
    Outrun,
}

/// The agent of a node.
pub fn agent_of(c: &Control, config: &Config, node: NodeId) -> Option<Agent> {
    let folder = c.shared.files.config_path.as_deref().and_then(Path::parent).unwrap_or(Path::new("."));
    Agent::of(config, c.shared.files.tls.load().agent.as_ref(), folder, node)
}

/// See the module. Cancel safe: a deed that was begun goes on.
pub async fn bring_back(c: &Control, config: &Config, order: Return, deadline: Instant) -> Result<(), ReturnError> {
    let Return { node, mut way, ballot, .. } = order;
    let agent = agent_of(c, config, node).ok_or(ReturnError::NoAgent(node))?;
    let mut deeds = Deeds::new(config, order)?;
    let mut so_far = SoFar::Nothing;
    for _ in 0..STEPS_MAX {
        let status = agent.status(deadline.min(Instant::now() + STATUS_LIMIT)).await?;
        let next = rejoin::deed(&seen(&status), so_far, way, ballot);
        if ballot.is_some() && !is_primary(c, order.primary) {
            return Err(ReturnError::Outrun);
        }
        // Later its files may be those of its primary, which name that one's own slot.
        if matches!(next, rejoin::Deed::Rewind | rejoin::Deed::Copy)
            && deeds.follow.slot.is_none()
            && let Some((slot, log_keeper)) = slot(c, config, &status, order.primary, deadline).await?
        {
            (deeds.follow.slot, deeds.log_keeper) = (Some(slot), log_keeper);
        }
        let (deed, then) = match next {
            rejoin::Deed::Rest => return Ok(()),
            rejoin::Deed::Leave(why) => return Err(ReturnError::Left(why)),
            rejoin::Deed::Stop => {
                stop(c, &agent, &status, node, deadline).await?;
                continue;
            }
            rejoin::Deed::Rewind => (deeds.rewind(deadline), SoFar::Restored),
            rejoin::Deed::Copy => (deeds.copy(deadline), SoFar::Restored),
            rejoin::Deed::Follow => (Deed::Follow(deeds.follow.clone()), SoFar::Pointed),
            rejoin::Deed::Start => (Deed::Start { limit_ms: START_MS }, SoFar::Started),
        };
        match (do_it(c, &agent, node, &deed, deadline).await, next) {
            (Ok(()), _) => so_far = then,
            (Err(AgentError::Failed { failure, .. }), rejoin::Deed::Rewind)
                if matches!(failure.kind, FailureKind::CannotRewind | FailureKind::HalfRewound) =>
            {
                say(c, Level::Log, node, &format!("it cannot be rewound, and is copied: {}", failure.text));
                way = Way::Copy;
            }
            // It has much log to apply: the looks tell when it takes connections.
            (Err(AgentError::Failed { failure, .. }), rejoin::Deed::Start) if failure.kind == FailureKind::Late => so_far = then,
            (Err(error), _) => return Err(error.into()),
        }
    }
    Err(ReturnError::Left("it does not come to an end"))
}

fn is_primary(c: &Control, node: NodeId) -> bool {
    let view = c.view.borrow();
    view.primary.and_then(|at| view.nodes.get(at)).is_some_and(|known| known.id == node)
}

/// Stops the server that was seen, in order if it does so in time.
async fn stop(c: &Control, agent: &Agent, status: &Status, node: NodeId, deadline: Instant) -> Result<(), AgentError> {
    let started_at = match status.server {
        ServerStatus::Running(postmaster) => Some(postmaster.started_at),
        ServerStatus::Stopped => None,
    };
    let by = |mode| Deed::Stop { mode, limit_ms: STOP_MS, started_at };
    match do_it(c, agent, node, &by(StopMode::Fast), deadline).await {
        Err(AgentError::Failed { failure, .. }) if failure.kind == FailureKind::Late => {
            do_it(c, agent, node, &by(StopMode::Immediate), deadline).await
        }
        outcome => outcome,
    }
}

async fn do_it(c: &Control, agent: &Agent, node: NodeId, deed: &Deed, deadline: Instant) -> Result<(), AgentError> {
    let begun = Instant::now();
    let (name, mut told) = (weir_agent::Kind::of(deed).name(), 0);
    let mut heed = |Progress { done_bytes, total_bytes }: Progress| {
        let tenth = (done_bytes * 10).checked_div(total_bytes).unwrap_or(0);
        if tenth > told {
            told = tenth;
            say(c, Level::Log, node, &format!("{name}: {} of {} MB", done_bytes >> 20, total_bytes >> 20));
        }
    };
    c.ring(&Subject::Agents);
    let outcome = agent.order(deed, deadline, &mut heed).await;
    c.ring(&Subject::Agents);
    outcome?;
    say(c, Level::Log, node, &format!("{name} by its agent: done after {} ms", begun.elapsed().as_millis()));
    Ok(())
}

fn say(c: &Control, level: Level, node: NodeId, text: &str) {
    c.shared.log.say(level, format_args!("node {node}: {text}"));
}

fn seen(status: &Status) -> Seen {
    Seen {
        server: match (status.server, status.has_standby_signal) {
            (ServerStatus::Stopped, _) => Server::Stopped,
            (ServerStatus::Running(_), true) => Server::Standby,
            (ServerStatus::Running(_), false) => Server::Primary,
        },
        files: match (status.data, status.control) {
            (Data::Whole, Some(control)) if control.can_rewind => Files::CanBeRewound,
            _ => Files::MustBeCopied,
        },
        mark: status.mark.as_ref().and_then(|mark| Mark::parse(mark.as_str())).unwrap_or_default(),
    }
}

/// The deeds that name the primary.
struct Deeds {
    source: Source,
    follow: Follow,
    log_keeper: LogKeeper,
}

impl Deeds {
    fn new(config: &Config, Return { node, primary, .. }: Return) -> Result<Deeds, ReturnError> {
        let of = |id: NodeId| config.nodes.iter().find(|known| known.id == id).ok_or(ReturnError::NoAgent(id));
        let (own, primary): (&NodeConfig, &NodeConfig) = (of(node)?, of(primary)?);
        let (user, database) = config.agent_user(primary);
        let user = UserName::new(&user)?;
        let (host, port) = (Host::new(&primary.hostname)?, primary.port);
        let name = Some(&own.application_name).filter(|name| !name.is_empty());
        let name = name.map(|name| WordValue::new(name)).transpose()?;
        let words = name.into_iter().map(|name| (Word::APPLICATION_NAME, name)).collect();
        let source = Source { host: host.clone(), port, user: user.clone(), dbname: DatabaseName::new(&database)? };
        Ok(Deeds { source, follow: Follow { host, port, user, slot: None, words }, log_keeper: LogKeeper::Copy })
    }

    fn rewind(&self, deadline: Instant) -> Deed {
        Deed::Rewind(Rewind { source: self.source.clone(), limit_ms: left_ms(deadline) })
    }

    fn copy(&self, deadline: Instant) -> Deed {
        Deed::BaseBackup(BaseBackup {
            source: self.source.clone(),
            log_keeper: self.log_keeper,
            checkpoint: Checkpoint::Fast,
            limit_ms: left_ms(deadline),
        })
    }
}

/// How a node is to follow its primary. The slot for it is made there. Cancel safe: a slot may be left.
pub async fn follow(
    c: &Control,
    config: &Config,
    order: Return,
    status: &Status,
    deadline: Instant,
) -> Result<Follow, ReturnError> {
    let slot = slot(c, config, status, order.primary, deadline).await?;
    Ok(Follow { slot: slot.map(|(slot, _)| slot), ..Deeds::new(config, order)?.follow })
}

/// The slot that the server is set to use, made on its primary. Cancel safe: it may be left there.
async fn slot(
    c: &Control,
    config: &Config,
    status: &Status,
    primary: NodeId,
    deadline: Instant,
) -> Result<Option<(SlotName, LogKeeper)>, ReturnError> {
    let Some(slot) = status.slot.clone() else { return Ok(None) };
    let made = make_slot(c, config, primary, &slot, deadline.min(Instant::now() + STATUS_LIMIT)).await;
    let log_keeper = made.map_err(|cause| ReturnError::Slot { primary, slot: slot.clone(), cause })?;
    Ok(Some((slot, log_keeper)))
}

/// Makes a slot, drops it if it is of no use, and looks whether it keeps log. Source: PostgreSQL manual, `pg_replication_slots`: "unreserved" may
/// still be caught up with.
fn slot_texts(name: &str) -> [String; 3] {
    let of_it = format!("FROM pg_catalog.pg_replication_slots WHERE slot_name OPERATOR(pg_catalog.=) '{name}'");
    [
        format!("SELECT pg_catalog.pg_create_physical_replication_slot('{name}', true)"),
        format!(
            "SELECT pg_catalog.pg_drop_replication_slot(slot_name) {of_it} AND slot_type OPERATOR(pg_catalog.=) 'physical' \
             AND NOT active AND (restart_lsn IS NULL OR wal_status OPERATOR(pg_catalog.=) 'lost')"
        ),
        format!("SELECT wal_status {of_it} AND wal_status OPERATOR(pg_catalog.=) ANY ('{{reserved,extended}}')"),
    ]
}

/// For the list of Weir's own texts.
pub fn own_texts() -> Vec<String> {
    slot_texts("slot").into()
}

/// Makes a slot for a standby that keeps log from now on, if there is none. One that is there and has no position yet, or has lost log, is of no use to
/// anybody, and is made anew. Gives the keeper of the log that is written during a copy. Cancel safe: it may be made, or be gone.
pub async fn make_slot(
    c: &Control,
    config: &Config,
    primary: NodeId,
    slot: &SlotName,
    deadline: Instant,
) -> Result<LogKeeper, OpenError> {
    let mut conn = Conn::open(&c.shared, config, primary, &[("application_name", NAME)], deadline).await?;
    let [make, drop, look] = slot_texts(slot.as_str());
    let made = conn.query(&make).await;
    if !matches!(&made, Err(OpenError::Refused { sqlstate, .. }) if sqlstate == ALREADY_THERE) {
        return made.map(|_| LogKeeper::Standby);
    }
    if !conn.query(&drop).await?.is_empty() {
        return conn.query(&make).await.map(|_| LogKeeper::Standby);
    }
    let held = conn.query(&look).await?;
    Ok(if held.is_empty() { LogKeeper::Copy } else { LogKeeper::Standby })
}

fn left_ms(deadline: Instant) -> u32 {
    u32::try_from(deadline.saturating_duration_since(Instant::now()).as_millis()).unwrap_or(u32::MAX)
}
