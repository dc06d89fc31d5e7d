//! The task of one node: asks for its role when due, and for its WAL position when needed, over one connection. A silent node
//! delays no other.
//!
//! The primary is asked in rounds while statements run, a standby until it has replayed what the primary had. Decisions:
//! `session::causal::asking`.

use super::question::{self, ReportedPositions, ReportedTimeline, ServerWalFacts};
use crate::auth::challenges::ServerScramFacts;
use crate::auth::own_login::OwnUse;
use crate::control::control_conn::ControlConn;
use crate::control::control_context::{ControlContext, TaskBell, WakeSubject};
use crate::control::fine_timer::FineTimer;
use crate::control::node_monitor::monitor_desk::{MonitorBoard, PositionAnswerEffect};
use crate::log::Level;
use crate::runtime::mail::RoleCheckReason;
use crate::runtime::pool::server_conn::{OpenError, ServerAddress, ServerLogin};
use crate::runtime::shared::{ProxyShutdown, seconds};
use std::convert::Infallible;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};
use weir_failover::LookFailure::{Late, ShuttingDown};
use weir_failover::cluster::ReplicationRole;
use weir_failover::looks::{LookFailureKind, RoleAnswer, RoleLookFailure};
use weir_failover::{FailoverEvent, ServerConnEnd};
use weir_session::causal::asking::{PositionDemand, PositionQueryStep, PositionQueryTimes};
use weir_session::metrics::WorkerCounter;

/// Time for an answer about a position, connecting included.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);
/// A server this late with its position may hang.
const DOUBT: Duration = Duration::from_millis(300);

/// Time for an answer about the role, connecting included, if `connect_timeout` is 0.
const LOOK_TIMEOUT: Duration = Duration::from_secs(10);

struct MonitorConn {
    conn: ControlConn,
    ready: Option<ServerWalFacts>,
}

struct NodeMonitor {
    desk: Rc<MonitorBoard>,
    at: usize,
    address: ServerAddress,
    born: Instant,
    line: Option<MonitorConn>,
    followed: Option<ReportedPositions>,
    asking: PositionQueryTimes,
    was_up: bool,
    has_complained: bool,
    configured_at: Option<u64>,
}

enum MonitorStep {
    Look(Instant),
    Ask(ReplicationRole),
    /// Waits for an event, or for this many microseconds.
    Wait(Option<u64>),
}

/// Runs until the proxy stops. Cancel safe.
pub async fn attend(desk: Rc<MonitorBoard>, at: usize) {
    let (bell, alarm) = (desk.c.bell(WakeSubject::Positions), FineTimer::new());
    let mut node = NodeMonitor::new(desk.clone(), at);
    while desk.c.shared.stop_mode() < ProxyShutdown::Fast {
        match node.next() {
            MonitorStep::Look(since) => node.look(since).await,
            MonitorStep::Ask(role) => node.ask(role, &bell).await,
            MonitorStep::Wait(us) => tokio::select! {
                () = bell.rung() => {}
                () = pause(&alarm, us.map(Duration::from_micros)) => {}
                last_word = ended(&mut node.line) => node.line_ended(last_word.as_ref()),
            },
        }
    }
    desk.lose(at);
}

/// Waits for the end of the connection; without one, for ever. Cancel safe.
async fn ended(line: &mut Option<MonitorConn>) -> Option<OpenError> {
    match line {
        Some(line) => line.conn.ended().await,
        None => std::future::pending().await,
    }
}

/// Waits at least this long, even without a timer; `None`: for ever. Cancel safe.
async fn pause(alarm: &io::Result<FineTimer>, wait: Option<Duration>) {
    let Some(wait) = wait else { return std::future::pending().await };
    let is_over = match alarm {
        Ok(alarm) => alarm.after(wait).await.is_ok(),
        Err(_) => false,
    };
    if !is_over {
        tokio::time::sleep(wait).await;
    }
}

/// Requests a look at a slow node, before the next check. Cancel safe.
async fn doubt(desk: &MonitorBoard) -> Infallible {
    tokio::time::sleep(DOUBT).await;
    desk.c.tell(FailoverEvent::Doubted);
    std::future::pending().await
}

/// Waits until a role question is older than `limit`. Cancel safe.
async fn until_look_is_late(desk: &MonitorBoard, at: usize, bell: &TaskBell, limit: Duration) {
    loop {
        match desk.asked_at(at) {
            Some(since) => return tokio::time::sleep_until((since + limit).into()).await,
            None => bell.rung().await,
        }
    }
}

impl NodeMonitor {
    fn new(desk: Rc<MonitorBoard>, at: usize) -> NodeMonitor {
        let node = &desk.config.nodes[at];
        let address = ServerAddress {
            node: node.id,
            shard: 0,
            hostname: node.hostname.clone(),
            port: node.port,
            connect_timeout_ms: node.connect_timeout_ms,
            ssl_mode: node.ssl_mode,
        };
        let born = Instant::now();
        let asking = PositionQueryTimes::new(desk.c.micros(born));
        NodeMonitor {
            desk,
            at,
            address,
            born,
            line: None,
            followed: None,
            asking,
            was_up: false,
            has_complained: false,
            configured_at: None,
        }
    }

    fn next(&mut self) -> MonitorStep {
        if let Some(since) = self.desk.asked_at(self.at) {
            // A restarted task did not have the time of its predecessor.
            return MonitorStep::Look(since.max(self.born));
        }
        let Some(role) = self.desk.role(self.at) else {
            self.was_up = false;
            self.unfollow();
            return MonitorStep::Wait(None);
        };
        let (c, positions) = (&self.desk.c, &self.desk.c.shared.positions);
        let now = Instant::now();
        let now_us = c.micros(now);
        if !std::mem::replace(&mut self.was_up, true) {
            self.asking.is_up();
            positions.expect(self.address.node, c.millis(now));
        }
        let period_us = self.period_us();
        let (known, is_of_use) = (self.desk.round(), self.desk.is_of_use());
        let want = match role {
            // A session that waits for the primary to show what a standby showed wants no later round, yet only a later one
            // tells.
            ReplicationRole::Primary => {
                let is_awaited = positions.is_primary_behind() && positions.has_waiters();
                PositionDemand::Primary { is_needed: is_of_use && (is_awaited || positions.wanted() > known) }
            }
            ReplicationRole::Standby => {
                PositionDemand::Standby { is_behind: self.followed.is_none() || self.desk.is_behind(self.address.node) }
            }
        };
        let is_hurried = positions.has_waiters() || positions.is_urgent();
        match self.asking.duty(want, is_hurried, period_us, now_us) {
            PositionQueryStep::Ask => MonitorStep::Ask(role),
            PositionQueryStep::Nothing => MonitorStep::Wait(None),
            PositionQueryStep::At(us) => MonitorStep::Wait(Some(us.saturating_sub(now_us))),
            PositionQueryStep::Sleep if positions.fall_asleep(known) || !is_of_use => MonitorStep::Wait(None),
            PositionQueryStep::Sleep => MonitorStep::Wait(Some(period_us)),
        }
    }

    fn period_us(&self) -> u64 {
        self.desk.config.routing.causal_period_ms.max(1) * 1000
    }

    fn look_limit(&self) -> Duration {
        match self.address.connect_timeout_ms {
            0 => LOOK_TIMEOUT,
            ms => Duration::from_millis(ms),
        }
    }

    /// Not cancel safe.
    async fn look(&mut self, since: Instant) {
        let said = self.find_role(since).await;
        let (shared, node) = (&self.desk.c.shared, self.address.node);
        shared.cluster.probes.note(node, said.is_ok(), since.elapsed(), seconds(SystemTime::now()));
        let lets_nobody_in = shared.cluster.failover.load().node(node).is_some_and(|node| node.failure == Some(Late));
        match &said {
            Err(error) if error.is_silent() => shared.suspects.suspect(node),
            // Clients wait in vain for a login there.
            Ok(_) if lets_nobody_in => {}
            Ok(_) | Err(_) => shared.suspects.acquit(node),
        }
        self.desk.said(self.at, said.map_err(|error| failure(&error)));
    }

    /// Cancel safe: the connection is closed.
    async fn find_role(&mut self, since: Instant) -> Result<RoleAnswer, OpenError> {
        let limit = self.look_limit();
        if let Some(mut line) = self.take_line() {
            // A connection may be dead without notice: half of the time is for another.
            line.conn.renew((since + limit / 2).into());
            if let Ok(said) = question::role(&mut line.conn).await {
                if self.look_at_configuration(&mut line.conn).await.is_ok() {
                    self.line = Some(line);
                }
                return Ok(said);
            }
        }
        self.unfollow();
        let mut conn = self.open(since + limit).await?;
        let said = question::role(&mut conn).await?;
        self.learn_challenges(question::challenges(&mut conn).await?);
        if self.look_at_configuration(&mut conn).await.is_ok() {
            self.line = Some(MonitorConn { conn, ready: None });
        }
        Ok(said)
    }

    /// Has pooled connections ask for their defaults again after a reload of the server. Not cancel safe.
    async fn look_at_configuration(&mut self, conn: &mut ControlConn) -> Result<(), OpenError> {
        let now = question::configured_at(conn).await?;
        let before = std::mem::replace(&mut self.configured_at, now);
        if before != now && before.is_some() {
            let (reloads, node) = (&self.desk.c.shared.stale.reloads, self.address.node);
            reloads.note(node, reloads.of(node));
        }
        Ok(())
    }

    fn learn_challenges(&self, told: ServerScramFacts) {
        let shared = &self.desk.c.shared;
        if shared.access.challenges.learn(told) && told.identifier.is_none() {
            let text = "sr_check_user may not call pg_control_system(): the SCRAM salts of unknown users are others after each start, which tells \
                        who exists";
            shared.log.say(Level::Warning, format_args!("node {}: {text}", self.address.node));
        }
    }

    /// Takes the kept connection unless its server shuts down and waits for clients to leave, or the node has another address.
    fn take_line(&mut self) -> Option<MonitorConn> {
        let shared = &self.desk.c.shared;
        let failover = shared.cluster.failover.load();
        let is_left = failover.node(self.address.node).is_some_and(|node| node.failure == Some(ShuttingDown));
        let line = self.line.take().filter(|line| !is_left && !line.conn.is_left(shared));
        if line.is_none() {
            self.unfollow();
        }
        line
    }

    /// Cancel safe.
    async fn open(&self, deadline: Instant) -> Result<ControlConn, OpenError> {
        let check = &self.desk.config.check;
        let files = self.desk.c.shared.access.files();
        let (user, secret) = files.checker(check);
        let login = ServerLogin { user, database: &check.database, secret: secret.as_deref(), generation: 0, parameters: &[] };
        ControlConn::log_in(&self.desk.c.shared, &self.address, &login, OwnUse::Questions, deadline.into())
            .await
            .map(|(conn, _)| conn)
    }

    /// Asks for the position. A role question meanwhile waits no longer than for a dead connection. Not cancel safe.
    async fn ask(&mut self, role: ReplicationRole, bell: &TaskBell) {
        let (desk, at, limit) = (self.desk.clone(), self.at, self.look_limit() / 2);
        let outcome = tokio::select! {
            outcome = self.find_position(role) => outcome,
            never = doubt(&desk) => match never {},
            () = until_look_is_late(&desk, at, bell, limit) => {
                Err(OpenError::Broke { address: self.address.clone(), cause: io::ErrorKind::TimedOut.into() })
            }
        };
        match outcome {
            Ok(ReportedTimeline::Hidden) => {
                self.complain("sr_check_user may not see pg_stat_wal_receiver: it needs the rights of pg_monitor");
            }
            Ok(ReportedTimeline::Of(_) | ReportedTimeline::None) => self.has_complained = false,
            Err(error) => {
                self.unfollow();
                self.asking.failed(self.desk.c.micros(Instant::now()));
                self.complain(&error.to_string());
            }
        }
    }

    /// Cancel safe: the connection is closed.
    async fn find_position(&mut self, role: ReplicationRole) -> Result<ReportedTimeline, OpenError> {
        let c = self.desk.c.clone();
        let deadline = Instant::now() + ASK_TIMEOUT;
        let mut line = match self.take_line() {
            Some(line) => line,
            None => MonitorConn { conn: self.open(deadline).await?, ready: None },
        };
        line.conn.renew(deadline.into());
        let outcome = self.find_position_over(role, &mut line, &c).await;
        // A server that refuses this question can still be asked for its role.
        if matches!(outcome, Ok(_) | Err(OpenError::Refused { .. })) {
            self.line = Some(line);
        }
        outcome
    }

    /// Not cancel safe: the connection is useless then.
    async fn find_position_over(
        &mut self,
        role: ReplicationRole,
        line: &mut MonitorConn,
        c: &ControlContext,
    ) -> Result<ReportedTimeline, OpenError> {
        let period_us = self.period_us();
        let ready = match line.ready {
            Some(ready) => ready,
            None => *line.ready.insert(question::prepare(&mut line.conn).await?),
        };
        let positions = &c.shared.positions;
        let followed = match &mut self.followed {
            Some(followed) => followed,
            None => self.followed.insert(ReportedPositions::new(positions.begin_life(self.address.node), ready)),
        };
        let now = Instant::now();
        self.asking.asked(c.micros(now));
        let round = match role {
            ReplicationRole::Primary => {
                c.count(WorkerCounter::PositionRounds);
                positions.begin_round()
            }
            ReplicationRole::Standby => 0,
        };
        let said = followed.ask(&mut line.conn).await?;
        positions.answered(self.address.node, c.micros(now));
        let timeline = said.timeline;
        match self.desk.take(self.at, role, (round, c.millis(now)), &said) {
            PositionAnswerEffect::Nothing => {}
            PositionAnswerEffect::Primary => self.asking.primary_said(period_us),
            PositionAnswerEffect::Standby { is_done, advances } => self.asking.standby_said(is_done, advances, period_us),
            PositionAnswerEffect::Contradicts => self.asking.failed(c.micros(Instant::now())),
        }
        Ok(timeline)
    }

    fn complain(&mut self, why: &str) {
        if !std::mem::replace(&mut self.has_complained, true) {
            let (node, text) =
                (self.address.node, "its WAL position is not known, so that reads that must show recent writes avoid it");
            self.desk.c.shared.log.say(Level::Warning, format_args!("node {node}: {text}: {why}"));
        }
    }

    /// Reports the end of an idle connection: the only sign of a shutdown of a primary without traffic.
    fn line_ended(&mut self, last_word: Option<&OpenError>) {
        self.line = None;
        self.unfollow();
        let (c, node) = (&self.desk.c, self.address.node);
        let code = match last_word {
            Some(OpenError::Refused { sqlstate, .. }) => Some(sqlstate.as_str()),
            Some(_) | None => None,
        };
        // A healthy server ends idle connections by its limit on idle sessions.
        if code.is_none_or(|code| ServerConnEnd::of_sqlstate(Some(code)) == ServerConnEnd::Terminated) {
            c.tell(FailoverEvent::ConnDied { node, how: ServerConnEnd::of_sqlstate(code) });
            c.request_role_check(RoleCheckReason::ConnectionLost);
        }
    }

    fn unfollow(&mut self) {
        if self.followed.take().is_some() {
            self.desk.lose(self.at);
        }
    }
}

fn failure(error: &OpenError) -> RoleLookFailure {
    let kind = match error {
        error if error.is_local() => LookFailureKind::Local,
        error if error.is_silent() => LookFailureKind::Silent,
        error if error.is_unreachable() => LookFailureKind::Unreachable,
        _ => LookFailureKind::Refused,
    };
    RoleLookFailure { kind, cause: error.without_address() }
}
