//! Opens and closes the gate between commits on several shards and reads of several shards (`runtime::pool::server_conn::shard_gates`).
//!
//! A part of a commit whose session is lost stays prepared, and its gate is open: the server has ended the lock with the connection. Under the lock of
//! reads no commit of a living session has prepared parts. So a phase of reads may look for them on all shards, and wait until there are none.
//!
//! Two sequences say when that is needed. A phase of commits raises the first one when it has the lock, and the second one before it gives the lock
//! back, unless one of its parts may be left. Under the lock of reads their difference is the number of phases that have left parts, or whose connection was
//! lost. While it is the one of the last look that found nothing, over a connection that has lasted since, no look is needed.

use crate::auth::own_login::{self, OwnUse};
use crate::runtime::pool::server_conn::shard_gates::{GateConn, GatePhase, GateSide, PhaseState};
use crate::runtime::pool::server_conn::{MessageConn, OpenError, Rows, ServerAddress, ServerLogin};
use crate::runtime::worker::Worker;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_failover::prepared_name;
use weir_io::reactor::parked;
use weir_session::fault::{ErrorReport, sqlstate};
use weir_session::metrics::WorkerCounter;
use weir_wire::write::literal;

/// Longest wait for the gate.
const GATE_LIMIT: Duration = Duration::from_secs(10);

const ROLLBACK: &str = "ROLLBACK";

const PAUSE: Duration = Duration::from_millis(50);

/// A connection that has rested for so long is closed.
const REST_LIMIT: Duration = Duration::from_secs(60);

/// True if the gate is there, and nobody else could have made it: the asker may be a superuser.
const OWNED: &str = "SELECT pg_catalog.count(*) OPERATOR(pg_catalog.=) 5 FROM pg_catalog.pg_class AS c \
    JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace \
    JOIN pg_catalog.pg_roles AS o ON o.oid OPERATOR(pg_catalog.=) c.relowner \
    WHERE n.nspname OPERATOR(pg_catalog.=) 'weir_shard' AND c.relname OPERATOR(pg_catalog.=) ANY ('{gate,prepared,shards,commits_begun,commits_ended}'::pg_catalog.name[]) \
    AND (o.rolsuper OR o.rolname OPERATOR(pg_catalog.=) current_user)";

/// Detail of an error of a shard that is away.
pub const SHARDS: &str = "With cross_shard_reads = snapshot all shards are asked before a statement that reads several.";

/// Has the engine open its transaction on each shard: `postgres_fdw` asks the server for an estimate, and the question takes the snapshot there.
pub const LOOK: &str = "EXPLAIN (COSTS FALSE) SELECT FROM weir_shard.shards";

/// Said by a phase of commits under its lock, before it gives the lock back.
const ENDED: &str = "SELECT pg_catalog.nextval('weir_shard.commits_ended'::pg_catalog.regclass); ROLLBACK";

/// Class of SQLSTATEs of lost connections: of the engine to a shard.
pub const CONNECTION_CLASS: &str = "08";

/// SQLSTATE of a table that is not there.
const NO_TABLE: &str = "42P01";

/// A use of the gate. Its drop lets go.
pub struct GatePass {
    w: Rc<Worker>,
    phase: Rc<GatePhase>,
    /// True while parts of the user's commit may be prepared.
    has_parts: Cell<bool>,
}

impl Drop for GatePass {
    fn drop(&mut self) {
        if self.has_parts.get() {
            self.phase.has_left_parts.set(true);
        }
        if self.w.shard_gates.leave(&self.phase)
            && let Some(conn) = self.phase.conn.borrow_mut().take()
        {
            if let PhaseState::Held { since } = *self.phase.state.borrow() {
                let seconds = self.w.shard_gates.add_held(self.w.now().saturating_duration_since(since));
                self.w.counters().count_by(WorkerCounter::ShardGateSeconds, seconds);
            }
            self.w.reactor.spawn(release(self.w.clone(), self.phase.clone(), conn));
        }
    }
}

impl GatePass {
    /// Asks for the gate. `database`: of the clients.
    pub fn ask(w: &Rc<Worker>, database: &Arc<str>, side: GateSide) -> GatePass {
        let (phase, is_new) = w.shard_gates.join(database, side, w.now());
        if is_new {
            w.reactor.spawn(begin(w.clone(), phase.clone()));
        }
        GatePass { w: w.clone(), phase, has_parts: Cell::new(false) }
    }

    /// Notes that parts of the user's commit may be prepared from now on, or that all have ended. A user that leaves before that makes reads look for
    /// parts.
    pub fn note_parts(&self, may_be_prepared: bool) {
        self.has_parts.set(may_be_prepared);
    }

    /// Waits until the gate is held. Cancel safe.
    pub async fn held(&self) -> Result<(), ErrorReport> {
        loop {
            match &*self.phase.state.borrow() {
                PhaseState::Held { .. } => return Ok(()),
                PhaseState::Failed(fault) => return Err(fault.clone()),
                PhaseState::Asked => self.phase.waiting.borrow_mut().push(self.w.reactor.current_task()),
            }
            parked().await;
        }
    }

    /// True if the server still holds the lock, as far as is known.
    pub fn is_held(&self) -> bool {
        self.phase.conn.borrow().as_ref().is_some_and(|conn| is_usable(&self.w, conn))
    }
}

fn is_usable(w: &Worker, conn: &GateConn) -> bool {
    let view = w.view();
    let is_primary = view.primary.and_then(|at| view.nodes.get(at)).is_some_and(|primary| primary.id == conn.address.node);
    is_primary && conn.generation == w.shared.access.generation() && !conn.talk.is_readable()
}

/// The task that takes the lock for a phase.
async fn begin(w: Rc<Worker>, phase: Rc<GatePhase>) {
    let taken = take(&w, &phase).await;
    let state = match taken {
        Ok(conn) => {
            *phase.conn.borrow_mut() = Some(conn);
            w.count(WorkerCounter::ShardGates);
            PhaseState::Held { since: w.now() }
        }
        Err(fault) => PhaseState::Failed(fault),
    };
    *phase.state.borrow_mut() = state;
    phase.waiting.borrow_mut().drain(..).for_each(|task| w.reactor.wake(task));
    // All may have left meanwhile.
    let is_unused = phase.users.get() == 0;
    let left = is_unused.then(|| phase.conn.borrow_mut().take()).flatten();
    if let Some(conn) = left {
        release(w, phase.clone(), conn).await;
    }
}

/// Not cancel safe.
async fn take(w: &Rc<Worker>, phase: &Rc<GatePhase>) -> Result<GateConn, ErrorReport> {
    let deadline = w.now() + GATE_LIMIT;
    loop {
        let mut conn = conn_of(w, phase, deadline).await.map_err(|error| fault_of(&error, &phase.database))?;
        let why = match lock(w, &mut conn, phase).await {
            Ok(None) => return Ok(conn),
            Ok(Some(why)) => why,
            Err(error) => {
                // Its end may take long, and nobody need wait for it.
                w.reactor.spawn(give_back(w.clone(), phase.clone(), conn, ROLLBACK));
                return Err(fault_of(&error, &phase.database));
            }
        };
        give_back(w.clone(), phase.clone(), conn, ROLLBACK).await;
        if w.now() >= deadline {
            return Err(late(phase.side, &why));
        }
        w.reactor.sleep(PAUSE).await;
    }
}

/// Returns why the gate must be asked for again, if it must. Not cancel safe.
async fn lock(w: &Rc<Worker>, conn: &mut GateConn, phase: &GatePhase) -> Result<Option<String>, OpenError> {
    conn.talk.renew(w, w.now() + GATE_LIMIT);
    let said = match conn.talk.query_by_name(w, &conn.address, lock_of(phase.side)).await {
        Ok(rows) => number_of(&rows),
        Err(error) if error.is_lock_timeout() => {
            return Ok(Some("one is still under way".to_owned()));
        }
        Err(error) => return Err(error),
    };
    if phase.side == GateSide::Commits || said.is_some() && said == conn.unended {
        return Ok(None);
    }
    let why = look_for_parts(w, conn, phase).await?;
    conn.unended = said.filter(|_| why.is_none());
    Ok(why)
}

/// Returns the part that is waited for, if there is one. Not cancel safe.
async fn look_for_parts(w: &Worker, conn: &mut GateConn, phase: &GatePhase) -> Result<Option<String>, OpenError> {
    let deadline = w.now() + hold_limit(w);
    let mut look = match conn.look.take() {
        Some(look) => look,
        None => enter(w, &conn.address, &phase.database, deadline).await?,
    };
    look.renew(w, deadline);
    let parts = look.query_by_name(w, &conn.address, &parts_of(&phase.database)).await;
    match parts {
        Err(error @ OpenError::Refused { .. }) => {
            conn.look = Some(look);
            Err(error)
        }
        Err(_) => {
            look.part(w);
            Err(OpenError::Refused {
                address: conn.address.clone(),
                sqlstate: sqlstate::CONNECTION_FAILURE.to_owned(),
                message: no_answer(w),
            })
        }
        Ok(rows) => {
            conn.look = Some(look);
            Ok(lost_part(&rows).map(|name| format!("the part {name} of one has lost its session")))
        }
    }
}

/// Says that a shard hangs.
pub fn no_answer(w: &Worker) -> String {
    format!("not all shards have answered in {} s", hold_limit(w).as_secs())
}

/// Longest time for which a read holds the gate, by the number of shards, which are read one after the other.
pub fn hold_limit(w: &Worker) -> Duration {
    Duration::from_secs(3 + w.peek_config().sharding.nodes.len() as u64)
}

/// The answer is a number. Of commits it is of no use.
fn lock_of(side: GateSide) -> &'static str {
    match side {
        GateSide::Commits => {
            "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL lock_timeout TO '1s'; \
             LOCK TABLE weir_shard.gate IN ROW EXCLUSIVE MODE; \
             SELECT pg_catalog.nextval('weir_shard.commits_begun'::pg_catalog.regclass)"
        }
        GateSide::Reads => {
            "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL lock_timeout TO '1s'; \
             LOCK TABLE weir_shard.gate IN SHARE MODE; \
             SELECT b.last_value OPERATOR(pg_catalog.-) e.last_value FROM weir_shard.commits_begun AS b, weir_shard.commits_ended AS e"
        }
    }
}

fn number_of(rows: &Rows) -> Option<i64> {
    rows.first()?.first()?.as_deref()?.parse().ok()
}

/// Shard 0 decides where it takes part, and has no part prepared.
fn parts_of(database: &str) -> String {
    let mut text = "SELECT p.gid FROM weir_shard.prepared AS p WHERE p.shard OPERATOR(pg_catalog.<>) 0 AND p.database OPERATOR(pg_catalog.=) ".to_owned();
    literal(&mut text, database);
    text += "::pg_catalog.name AND pg_catalog.starts_with(p.gid, ";
    literal(&mut text, prepared_name::BEGIN);
    text += ")";
    text
}

fn lost_part(rows: &Rows) -> Option<prepared_name::PreparedName> {
    rows.iter().flatten().flatten().find_map(|gid| prepared_name::PreparedName::of_text(gid))
}

#[cold]
fn late(side: GateSide, why: &str) -> ErrorReport {
    let text = match side {
        GateSide::Commits => {
            "the transaction on several shards could not be committed: reads of several shards went on for too long"
        }
        GateSide::Reads => "the statement reads several shards, and a commit on several shards did not end in time",
    };
    let fault = ErrorReport::error(sqlstate::SERIALIZATION_FAILURE, text).hint("Run the transaction again.");
    match side {
        GateSide::Commits => fault,
        GateSide::Reads => fault.detail(format!("With cross_shard_reads = snapshot nobody sees a part of such a commit; {why}.")),
    }
}

#[cold]
fn no_gate(address: &ServerAddress, engine: &str) -> OpenError {
    OpenError::Refused {
        address: address.clone(),
        sqlstate: NO_TABLE.to_owned(),
        message: format!("the engine \"{engine}\" has no gate"),
    }
}

#[cold]
fn fault_of(error: &OpenError, database: &str) -> ErrorReport {
    const GATE: &str = "It was asked for the lock between commits on several shards and reads of several shards.";
    let (detail, hint) = match error {
        OpenError::Refused { sqlstate, .. } if sqlstate == NO_TABLE || sqlstate == sqlstate::UNDEFINED_DATABASE => {
            (GATE, format!("The engine has no gate yet: run weir shard engine {database}."))
        }
        OpenError::Refused { sqlstate, .. } if sqlstate == sqlstate::INSUFFICIENT_PRIVILEGE => {
            (GATE, format!("sr_check_user locks the engine's gate: run weir shard engine {database} again."))
        }
        OpenError::Refused { sqlstate, .. } if sqlstate.starts_with(CONNECTION_CLASS) => {
            (SHARDS, "Run the statement again when the shard is back.".to_owned())
        }
        _ => (GATE, "Run the transaction again.".to_owned()),
    };
    error.fault().detail(detail).hint(hint)
}

/// Not cancel safe.
async fn conn_of(w: &Worker, phase: &GatePhase, deadline: Instant) -> Result<GateConn, OpenError> {
    while let Some(conn) = w.shard_gates.take_at_rest(&phase.database, phase.side) {
        if is_usable(w, &conn) {
            return Ok(conn);
        }
        part(w, conn);
    }
    let primary = w.view().primary.and_then(|at| w.address_of(at));
    let address = primary.ok_or(OpenError::Gone { node: 0 })?;
    let generation = w.shared.access.generation();
    let talk = enter(w, &address, &phase.database, deadline).await?;
    Ok(GateConn { talk, look: None, address, generation, unended: None, rests_since: w.now() })
}

/// Not cancel safe.
async fn enter(w: &Worker, address: &ServerAddress, database: &str, deadline: Instant) -> Result<MessageConn, OpenError> {
    let (check, engine) = {
        let config = w.peek_config();
        (config.check.clone(), config.sharding.engine_of(database))
    };
    let (generation, files) = (w.shared.access.generation(), w.shared.access.files());
    let (user, secret) = files.checker(&check);
    let parameters: Vec<(&str, &str)> =
        own_login::in_packet(OwnUse::Questions).chain([("application_name", "weir_gate")]).collect();
    let login = ServerLogin { user, database: &engine, secret: secret.as_deref(), generation, parameters: &parameters };
    let (mut talk, greeting) = MessageConn::enter(w, address, &login, deadline).await?;
    let words =
        own_login::after_login(OwnUse::Questions, greeting.reported("server_version"), greeting.reported("server_encoding"));
    let entered = async {
        if let Some(words) = words {
            talk.query(w, address, &words).await?;
        }
        talk.query(w, address, OWNED).await
    };
    let trouble = match entered.await {
        Ok(rows) if rows.first().and_then(|row| row.first()?.as_deref()) == Some("t") => return Ok(talk),
        Ok(_) => no_gate(address, &engine),
        Err(error) => error,
    };
    talk.part(w);
    Err(trouble)
}

fn part(w: &Worker, conn: GateConn) {
    conn.look.into_iter().chain([conn.talk]).for_each(|talk| talk.part(w));
}

/// Ends a phase. Not cancel safe.
async fn release(w: Rc<Worker>, phase: Rc<GatePhase>, conn: GateConn) {
    let text = match phase.side {
        GateSide::Commits if !phase.has_left_parts.get() => ENDED,
        GateSide::Commits | GateSide::Reads => ROLLBACK,
    };
    give_back(w, phase, conn, text).await;
}

/// Ends the transaction that holds the lock. Not cancel safe.
async fn give_back(w: Rc<Worker>, phase: Rc<GatePhase>, mut conn: GateConn, text: &'static str) {
    conn.talk.renew(&w, w.now() + GATE_LIMIT);
    if conn.talk.query_by_name(&w, &conn.address, text).await.is_err() {
        return part(&w, conn);
    }
    conn.rests_since = w.now();
    if let Some(other) = w.shard_gates.rest(&phase.database, phase.side, conn) {
        part(&w, other);
    }
    if !w.shard_gates.has_closer.replace(true) {
        w.reactor.spawn(close_rested(w.clone()));
    }
}

async fn close_rested(w: Rc<Worker>) {
    loop {
        w.reactor.sleep(REST_LIMIT).await;
        let before = w.now().checked_sub(REST_LIMIT).unwrap_or_else(Instant::now);
        let (rested, has_more) = w.shard_gates.take_rested(before);
        rested.into_iter().for_each(|conn| part(&w, conn));
        if !has_more {
            break;
        }
    }
    w.shard_gates.has_closer.set(false);
}

pub fn own_texts() -> Vec<String> {
    vec![OWNED.to_owned(), ROLLBACK.to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_parts_of_weir_are_waited_for() {
        let rows = |gid: &str| vec![vec![Some(gid.to_owned())]];
        assert!(lost_part(&rows("weir_1_0_7_1_768_5")).is_some());
        assert!(lost_part(&rows("weir_mine")).is_none() && lost_part(&Vec::new()).is_none());
    }
}
