//! Brings a server back as a standby by its agent. Decisions: `failover::rejoin`.

use crate::control::agent_client::{AgentEndpoint, AgentError};
use crate::control::control_conn::ControlConn;
use crate::control::control_context::{ControlContext, WakeSubject};
use crate::log::Level;
use crate::runtime::pool::server_conn::OpenError;
use crate::runtime::recoveries::RecoveryWork;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;
use weir_agent::{
    AgentStatus, BackupCheckpoint, BaseBackup, ConninfoKeyword, DataDirectoryState, DatabaseName, Host, LogKeeper, OrderAction,
    OrderFailureKind, OrderKind, OrderProgress, RewindAction, ServerStatus, ServerStopMode, SlotName, SourceServer,
    StandbyUpstream, TextError, UserName, WordValue,
};
use weir_config::{Config, NodeConfig};
use weir_failover::operations::RejoinWay;
use weir_failover::rejoin::{self, RejoinFacts, RewindFitness, ServerRunState, SoFar};
use weir_failover::{Ballot, Mark, NodeId};

/// Time for a fast stop, before an immediate one.
const STOP_MS: u32 = 30_000;
/// A standby with much log to apply may take longer; later looks find it.
const START_MS: u32 = 300_000;
const STATUS_LIMIT: Duration = Duration::from_secs(15);
const NAME: &str = "weir_return";
/// SQLSTATE of an existing slot.
const ALREADY_THERE: &str = "42710";
const STEPS_MAX: usize = 16;

#[derive(Clone, Copy, Debug)]
pub struct NodeReturn {
    pub node: NodeId,
    pub primary: NodeId,
    pub way: RejoinWay,
    pub ballot: Option<Ballot>,
}

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

pub fn agent_of(c: &ControlContext, config: &Config, node: NodeId) -> Option<AgentEndpoint> {
    let folder = c.shared.files.config_path.as_deref().and_then(Path::parent).unwrap_or(Path::new("."));
    AgentEndpoint::of(config, c.shared.files.tls.load().agent.as_ref(), folder, node)
}

/// Cancel safe: the step under way goes on.
pub async fn bring_back(c: &ControlContext, config: &Config, order: NodeReturn, deadline: Instant) -> Result<(), ReturnError> {
    let NodeReturn { node, mut way, ballot, .. } = order;
    let agent = agent_of(c, config, node).ok_or(ReturnError::NoAgent(node))?;
    let mut deeds = RejoinParameters::new(config, order)?;
    let mut so_far = SoFar::Nothing;
    for _ in 0..STEPS_MAX {
        let status = agent.status(deadline.min(Instant::now() + STATUS_LIMIT)).await?;
        let next = rejoin::deed(&seen(&status), so_far, way, ballot);
        if ballot.is_some() && !is_primary(c, order.primary) {
            return Err(ReturnError::Outrun);
        }
        // Before the files are replaced: those of the primary may name its own slot.
        if matches!(next, rejoin::RejoinStep::Rewind | rejoin::RejoinStep::Copy)
            && deeds.follow.slot.is_none()
            && let Some((slot, log_keeper)) = slot(c, config, &status, order.primary, deadline).await?
        {
            (deeds.follow.slot, deeds.log_keeper) = (Some(slot), log_keeper);
        }
        let (deed, then) = match next {
            rejoin::RejoinStep::Rest => return Ok(()),
            rejoin::RejoinStep::Leave(why) => return Err(ReturnError::Left(why)),
            rejoin::RejoinStep::Stop => {
                stop(c, &agent, &status, node, deadline).await?;
                continue;
            }
            rejoin::RejoinStep::Rewind => (deeds.rewind(deadline), SoFar::Restored),
            rejoin::RejoinStep::Copy => (deeds.copy(deadline), SoFar::Restored),
            rejoin::RejoinStep::Follow => (OrderAction::Follow(deeds.follow.clone()), SoFar::Pointed),
            rejoin::RejoinStep::Start => (OrderAction::Start { limit_ms: START_MS }, SoFar::Started),
        };
        match (do_it(c, &agent, node, &deed, deadline).await, next) {
            (Ok(()), _) => so_far = then,
            (Err(AgentError::Failed { failure, .. }), rejoin::RejoinStep::Rewind)
                if matches!(failure.kind, OrderFailureKind::CannotRewind | OrderFailureKind::HalfRewound) =>
            {
                say(c, Level::Log, node, &format!("it cannot be rewound, and is copied: {}", failure.text));
                way = RejoinWay::Copy;
            }
            // Later looks find the node.
            (Err(AgentError::Failed { failure, .. }), rejoin::RejoinStep::Start) if failure.kind == OrderFailureKind::Late => {
                so_far = then
            }
            (Err(error), _) => return Err(error.into()),
        }
    }
    Err(ReturnError::Left("it does not come to an end"))
}

fn is_primary(c: &ControlContext, node: NodeId) -> bool {
    let view = c.view.borrow();
    view.primary.and_then(|at| view.nodes.get(at)).is_some_and(|known| known.id == node)
}

/// Stops the observed server fast, else immediately.
async fn stop(
    c: &ControlContext,
    agent: &AgentEndpoint,
    status: &AgentStatus,
    node: NodeId,
    deadline: Instant,
) -> Result<(), AgentError> {
    let started_at = match status.server {
        ServerStatus::Running(postmaster) => Some(postmaster.started_at),
        ServerStatus::Stopped => None,
    };
    let by = |mode| OrderAction::Stop { mode, limit_ms: STOP_MS, started_at };
    match do_it(c, agent, node, &by(ServerStopMode::Fast), deadline).await {
        Err(AgentError::Failed { failure, .. }) if failure.kind == OrderFailureKind::Late => {
            do_it(c, agent, node, &by(ServerStopMode::Immediate), deadline).await
        }
        outcome => outcome,
    }
}

async fn do_it(
    c: &ControlContext,
    agent: &AgentEndpoint,
    node: NodeId,
    deed: &OrderAction,
    deadline: Instant,
) -> Result<(), AgentError> {
    let begun = Instant::now();
    let kind = OrderKind::of(deed);
    let (name, mut told) = (kind.name(), 0);
    let shown = c.shared.cluster.recoveries.begin(node, RecoveryWork::Agent(kind));
    let mut heed = |progress: OrderProgress| {
        shown.note(progress);
        let OrderProgress { done_bytes, total_bytes } = progress;
        let tenth = (done_bytes * 10).checked_div(total_bytes).unwrap_or(0);
        if tenth > told {
            told = tenth;
            say(c, Level::Log, node, &format!("{name}: {} of {} MB", done_bytes >> 20, total_bytes >> 20));
        }
    };
    c.ring(&WakeSubject::Agents);
    let outcome = agent.order(deed, deadline, &mut heed).await;
    c.ring(&WakeSubject::Agents);
    outcome?;
    say(c, Level::Log, node, &format!("{name} by its agent: done after {} ms", begun.elapsed().as_millis()));
    Ok(())
}

fn say(c: &ControlContext, level: Level, node: NodeId, text: &str) {
    c.shared.log.say(level, format_args!("node {node}: {text}"));
}

fn seen(status: &AgentStatus) -> RejoinFacts {
    RejoinFacts {
        server: match (status.server, status.has_standby_signal) {
            (ServerStatus::Stopped, _) => ServerRunState::Stopped,
            (ServerStatus::Running(_), true) => ServerRunState::Standby,
            (ServerStatus::Running(_), false) => ServerRunState::Primary,
        },
        files: match (status.data, status.control) {
            (DataDirectoryState::Whole, Some(control)) if control.can_rewind => RewindFitness::CanBeRewound,
            _ => RewindFitness::MustBeCopied,
        },
        mark: status.mark.as_ref().and_then(|mark| Mark::parse(mark.as_str())).unwrap_or_default(),
    }
}

struct RejoinParameters {
    source: SourceServer,
    follow: StandbyUpstream,
    log_keeper: LogKeeper,
}

impl RejoinParameters {
    fn new(config: &Config, NodeReturn { node, primary, .. }: NodeReturn) -> Result<RejoinParameters, ReturnError> {
        let of = |id: NodeId| config.nodes.iter().find(|known| known.id == id).ok_or(ReturnError::NoAgent(id));
        let (own, primary): (&NodeConfig, &NodeConfig) = (of(node)?, of(primary)?);
        let (user, database) = config.agent_user(primary);
        let user = UserName::new(&user)?;
        let (host, port) = (Host::new(&primary.hostname)?, primary.port);
        let name = Some(&own.application_name).filter(|name| !name.is_empty());
        let name = name.map(|name| WordValue::new(name)).transpose()?;
        let words = name.into_iter().map(|name| (ConninfoKeyword::APPLICATION_NAME, name)).collect();
        let source = SourceServer { host: host.clone(), port, user: user.clone(), dbname: DatabaseName::new(&database)? };
        Ok(RejoinParameters {
            source,
            follow: StandbyUpstream { host, port, user, slot: None, words },
            log_keeper: LogKeeper::Copy,
        })
    }

    fn rewind(&self, deadline: Instant) -> OrderAction {
        OrderAction::Rewind(RewindAction { source: self.source.clone(), limit_ms: left_ms(deadline) })
    }

    fn copy(&self, deadline: Instant) -> OrderAction {
        OrderAction::BaseBackup(BaseBackup {
            source: self.source.clone(),
            log_keeper: self.log_keeper,
            checkpoint: BackupCheckpoint::Fast,
            limit_ms: left_ms(deadline),
        })
    }
}

/// Makes the slot on the primary, and returns the node's upstream. Cancel safe: a slot may be left.
pub async fn follow(
    c: &ControlContext,
    config: &Config,
    order: NodeReturn,
    status: &AgentStatus,
    deadline: Instant,
) -> Result<StandbyUpstream, ReturnError> {
    let slot = slot(c, config, status, order.primary, deadline).await?;
    Ok(StandbyUpstream { slot: slot.map(|(slot, _)| slot), ..RejoinParameters::new(config, order)?.follow })
}

/// Makes the server's configured slot on its primary. Cancel safe: a slot may be left.
async fn slot(
    c: &ControlContext,
    config: &Config,
    status: &AgentStatus,
    primary: NodeId,
    deadline: Instant,
) -> Result<Option<(SlotName, LogKeeper)>, ReturnError> {
    let Some(slot) = status.slot.clone() else { return Ok(None) };
    let made = make_slot(c, config, primary, &slot, deadline.min(Instant::now() + STATUS_LIMIT)).await;
    let log_keeper = made.map_err(|cause| ReturnError::Slot { primary, slot: slot.clone(), cause })?;
    Ok(Some((slot, log_keeper)))
}

/// Makes a slot; drops a useless one; checks if it keeps log. PostgreSQL manual, `pg_replication_slots`: "unreserved" may still
/// be caught up with.
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

pub fn own_texts() -> Vec<String> {
    slot_texts("slot").into()
}

/// Makes a slot that keeps log from now on. An inactive slot without a position, or with lost log, is replaced. Returns what
/// keeps the log written during a copy. Cancel safe: the slot may be made, or dropped.
pub async fn make_slot(
    c: &ControlContext,
    config: &Config,
    primary: NodeId,
    slot: &SlotName,
    deadline: Instant,
) -> Result<LogKeeper, OpenError> {
    let mut conn = ControlConn::open(&c.shared, config, primary, &[("application_name", NAME)], deadline).await?;
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
