//! The waits of a commit on several shards: parts are prepared, and end as the server decides that commits first.
//! `weir_session::participants` says when.

use crate::log::Level;
use crate::runtime::joined::all_of;
use crate::runtime::lease;
use crate::runtime::pool::conn_opening;
use crate::runtime::pool::server_conn::shard_gates::GateSide;
use crate::runtime::pool::server_conn::{OpenError, Rows, ServerConn};
use crate::runtime::pool::{CheckoutPatience, CheckoutWait};
use crate::runtime::worker::Worker;
use crate::server::shard_gate::GatePass;
use crate::traffic::served::ServedSession;
use std::rc::Rc;
use std::time::{Duration, Instant};
use weir_config::CrossShardReads;
use weir_failover::commit_outcome::{LogLineage, TransactionNumber};
use weir_failover::prepared_name::PreparedName;
use weir_io::reactor::parked;
use weir_session::conn::Conn;
use weir_session::fault::{ErrorReport, sqlstate};
use weir_session::metrics::WorkerCounter;
use weir_session::participants::shard_parts::{CommitPhase, PreparedEnd};
use weir_session::participants::{self, commit_steps};
use weir_session::sharding::{batch_steps, write_steps};

/// Longest wait for one answer. Meanwhile connections to other shards, and their locks, are held: a server that hangs must not keep them for long.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Longest wait for a server that is lost between the two commits. Afterwards whoever finds the prepared part commits it.
const INSIST_LIMIT: Duration = Duration::from_secs(10);

const PERIOD: Duration = Duration::from_millis(100);

/// SQLSTATE of a name that is not prepared: somebody has ended it. Source: `LockGXact` in twophase.c.
const NOT_PREPARED: &str = "42704";

const COMMIT: &str = "COMMIT";

const ROLLBACK: &str = "ROLLBACK";

/// The number of the open transaction on the server that decides.
const NUMBER: &str = "SELECT pg_catalog.txid_current(), (pg_catalog.pg_control_system()).system_identifier, \
    pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8), \
    pg_catalog.floor(1000 OPERATOR(pg_catalog.*) pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()))::pg_catalog.int8";

/// Does what the session's commit waits for. An error ends the session. Not cancel safe.
pub async fn go_on(served: &mut ServedSession) -> Result<(), ErrorReport> {
    let outcome = step_on(served).await;
    // Between the steps the COMMIT is with the server that decides.
    if !matches!(participants::phase(&served.s), CommitPhase::Prepared(_)) {
        served.sockets.host.gate.take();
    }
    outcome
}

/// Not cancel safe.
async fn step_on(served: &mut ServedSession) -> Result<(), ErrorReport> {
    if participants::commits_own(&served.s) {
        return commit_own(served).await;
    }
    match participants::phase(&served.s) {
        CommitPhase::Prepares => {
            match prepare_all(served).await {
                Ok((decides, conns)) => participants::prepared(&mut served.s, decides, conns),
                Err(fault) => commit_steps::cannot_commit(&mut served.s, &served.w, fault),
            }
            Ok(())
        }
        CommitPhase::RollsBackTo(savepoint) => {
            if let Err(fault) = roll_back_to(served, savepoint).await {
                commit_steps::cannot_roll_back(&mut served.s, &served.w, fault);
            }
            Ok(())
        }
        CommitPhase::Ends(decides, end) => {
            end_all(served, decides, end).await;
            participants::ended(&mut served.s);
            served.pump().take_held()
        }
        CommitPhase::Open | CommitPhase::Prepared(_) => Ok(()),
    }
}

/// Commits a transaction that Weir itself has begun: of one statement that each shard has carried out, or of the statements up to a Sync. An error ends the session. Not cancel safe.
async fn commit_own(served: &mut ServedSession) -> Result<(), ErrorReport> {
    let decides = match prepare_all(served).await {
        Ok((decides, conns)) => {
            participants::prepared(&mut served.s, decides, conns);
            decides
        }
        Err(fault) => {
            write_steps::commit_broke(&mut served.s, &served.w, &fault);
            return Ok(());
        }
    };
    let end = match decide(served).await {
        Ok(()) => {
            write_steps::committed(&mut served.s);
            PreparedEnd::Commit
        }
        Err(CommitFailure::RolledBack(fault)) => {
            if !batch_steps::tell_failure(&mut served.s, &served.w, &fault) {
                write_steps::not_committed(&mut served.s, fault);
            }
            PreparedEnd::RollBack
        }
        Err(CommitFailure::Unknown(fault)) => {
            write_steps::commit_broke(&mut served.s, &served.w, &fault);
            return Ok(());
        }
    };
    end_all(served, decides, end).await;
    participants::ended(&mut served.s);
    served.pump().take_held()
}

/// Rolls the parts that ran something since a savepoint back to it. Not cancel safe.
async fn roll_back_to(served: &mut ServedSession, savepoint: u32) -> Result<(), ErrorReport> {
    let (w, host) = (served.w.clone(), served.sockets.host.clone());
    let (mut parts, mut failure) = (Vec::new(), None);
    for mut part in participants::take_parts(&mut served.s) {
        if let Some(text) = part.rollback_text(savepoint).filter(|_| failure.is_none()) {
            let address = part.conn.status.address.clone();
            let Some(conn) = host.parked(part.conn) else {
                failure =
                    Some(ErrorReport::error(sqlstate::SERIALIZATION_FAILURE, "the transaction has lost a server connection"));
                continue;
            };
            let (conn, said) = ask(&w, conn, &text).await;
            part.conn = host.park_whole(conn);
            part.rolled_back(savepoint);
            let detail = format!(
                "The transaction could not be rolled back to its savepoint on {address}, and was rolled back everywhere."
            );
            failure = said.err().map(|error| fault_of(&error, &detail));
        }
        parts.push(part);
    }
    participants::put_parts(&mut served.s, parts);
    failure.map_or(Ok(()), Err)
}

enum CommitFailure {
    RolledBack(ErrorReport),
    /// The server was lost, or is not to be believed any more.
    Unknown(ErrorReport),
}

/// Sends Weir's own COMMIT to the server that decides. Not cancel safe.
async fn decide(served: &mut ServedSession) -> Result<(), CommitFailure> {
    let lost = || CommitFailure::Unknown(unknown("the transaction has lost its server connection"));
    let (conn, upstream) = participants::lend(&mut served.s).ok_or_else(lost)?;
    let conn = served.sockets.host.whole(conn).ok_or_else(lost)?;
    let (mut conn, said) = ask(&served.w, conn, COMMIT).await;
    let mut outcome = said.map(drop).map_err(|error| match error {
        OpenError::Refused { .. } => CommitFailure::RolledBack(error.fault()),
        _ => CommitFailure::Unknown(unknown(&error.to_string())),
    });
    if let Err(CommitFailure::RolledBack(_)) = outcome {
        // A server that ends says so in the same way, and nobody knows what became of the commit then.
        let (back, said) = ask(&served.w, conn, ROLLBACK).await;
        conn = back;
        outcome = said.map_err(|error| CommitFailure::Unknown(unknown(&error.to_string()))).and(outcome);
    }
    let conn = served.sockets.host.take(conn);
    participants::put_back(&mut served.s, conn, upstream);
    outcome
}

fn unknown(cause: &str) -> ErrorReport {
    let text = "the server connection was lost before the server said whether the statement took effect";
    ErrorReport::error(sqlstate::TRANSACTION_RESOLUTION_UNKNOWN, text)
        .detail(cause)
        .hint("The statement may or may not have taken effect: look before it runs again.")
}

/// Not cancel safe.
async fn prepare_all(served: &mut ServedSession) -> Result<(TransactionNumber, Vec<Box<Conn>>), ErrorReport> {
    let gate = ask_gate(served);
    let decides = match participants::known_number(&served.s) {
        Some(number) => number,
        None => ask_number(served).await?,
    };
    // Before any part is prepared: a read that holds the gate takes each prepared part for one whose session is lost.
    if let Some(gate) = &gate {
        gate.held().await?;
        gate.note_parts(true);
    }
    let (w, host) = (served.w.clone(), served.sockets.host.clone());
    let waiting: Vec<ServerConn> =
        participants::take_parked(&mut served.s).into_iter().filter_map(|conn| host.parked(conn)).collect();
    let (mut prepared, mut failure, mut leaves_parts) = (Vec::new(), None, false);
    for said in all_of(waiting.into_iter().map(|conn| prepare_one(&w, conn, decides))).await {
        match said {
            PrepareOutcome::Prepared(conn) => prepared.push(conn),
            PrepareOutcome::Failed { fault, may_be_prepared } => {
                leaves_parts |= may_be_prepared;
                failure.get_or_insert(fault);
            }
        }
    }
    if failure.is_none() && gate.as_ref().is_some_and(|gate| !gate.is_held()) {
        failure = Some(lost_gate());
    }
    let Some(fault) = failure else {
        *host.gate.borrow_mut() = gate;
        w.count(WorkerCounter::ShardCommits);
        return Ok((decides, prepared.into_iter().map(|conn| host.park_whole(conn)).collect()));
    };
    let ended = all_of(prepared.into_iter().map(|conn| end_one(&w, conn, decides, PreparedEnd::RollBack))).await;
    leaves_parts |= ended.contains(&false);
    if let Some(gate) = gate {
        gate.note_parts(leaves_parts);
    }
    Err(fault)
}

enum PrepareOutcome {
    Prepared(ServerConn),
    /// `may_be_prepared`: its server has prepared the part, perhaps, and its answer is lost.
    Failed {
        fault: ErrorReport,
        may_be_prepared: bool,
    },
}

/// A connection whose part is not prepared is closed: its server rolls back. Not cancel safe.
async fn prepare_one(w: &Worker, conn: ServerConn, decides: TransactionNumber) -> PrepareOutcome {
    let address = conn.status.address.clone();
    let text = format!("PREPARE TRANSACTION '{}'", PreparedName { shard: address.shard, decides });
    let (conn, said) = ask(w, conn, &text).await;
    match said {
        Ok(_) => PrepareOutcome::Prepared(conn),
        Err(error) => {
            w.close_conn(conn);
            let detail = format!("The transaction could not be prepared on {address}, and was rolled back everywhere.");
            let may_be_prepared = !matches!(error, OpenError::Refused { .. });
            PrepareOutcome::Failed { fault: fault_of(&error, &detail), may_be_prepared }
        }
    }
}

/// The gate for a commit, where reads of several shards must not see it in part.
fn ask_gate(served: &ServedSession) -> Option<GatePass> {
    let is_wanted = served.w.peek_config().sharding.reads == CrossShardReads::Snapshot;
    is_wanted.then(|| GatePass::ask(&served.w, &served.s.account.known.name, GateSide::Commits))
}

#[cold]
fn lost_gate() -> ErrorReport {
    let text =
        "the transaction was rolled back on all shards: the lock that keeps reads of several shards out was lost meanwhile";
    ErrorReport::error(sqlstate::SERIALIZATION_FAILURE, text).hint("Run the transaction again.")
}

fn fault_of(error: &OpenError, detail: &str) -> ErrorReport {
    let fault = match error {
        OpenError::Refused { .. } => error.fault(),
        _ => ErrorReport::error(sqlstate::SERIALIZATION_FAILURE, error.to_string()).hint("Run the transaction again."),
    };
    fault.detail(detail)
}

/// Asks over the session's own connection, at rest within its transaction. Not cancel safe.
async fn ask_number(served: &mut ServedSession) -> Result<TransactionNumber, ErrorReport> {
    let lost = || ErrorReport::error(sqlstate::SERIALIZATION_FAILURE, "the transaction has lost its server connection");
    let (conn, upstream) = participants::lend(&mut served.s).ok_or_else(lost)?;
    let conn = served.sockets.host.whole(conn).ok_or_else(lost)?;
    let node = conn.status.address.node;
    let (conn, said) = ask(&served.w, conn, NUMBER).await;
    let conn = served.sockets.host.take(conn);
    participants::put_back(&mut served.s, conn, upstream);
    let rows = said.map_err(|error| fault_of(&error, "The server that decides does not tell the number of its transaction."))?;
    read_number(&rows, node)
        .ok_or_else(|| ErrorReport::error(sqlstate::CANNOT_CONNECT, format!("node {node} tells no number of its transaction")))
}

fn read_number(rows: &Rows, node: u16) -> Option<TransactionNumber> {
    let [xid, system, timeline, said_ms] = rows.first()?.as_slice() else { return None };
    let line =
        LogLineage { system: system.as_deref()?.parse().ok()?, timeline: u32::from_str_radix(timeline.as_deref()?, 16).ok()? };
    Some(TransactionNumber { xid: xid.as_deref()?.parse().ok()?, node, line, said_ms: said_ms.as_deref()?.parse().ok()? })
}

/// Not cancel safe.
async fn end_all(served: &mut ServedSession, decides: TransactionNumber, end: PreparedEnd) {
    let prepared = participants::take_prepared(&mut served.s);
    let (served, host) = (&*served, served.sockets.host.clone());
    let ended = all_of(prepared.into_iter().map(|conn| end_part(served, conn, decides, end))).await;
    if let Some(gate) = host.gate.borrow().as_ref() {
        gate.note_parts(ended.contains(&false));
    }
}

/// Returns true if the part has ended; one that has not is logged. Not cancel safe.
async fn end_part(served: &ServedSession, conn: Box<Conn>, decides: TransactionNumber, end: PreparedEnd) -> bool {
    let address = conn.status.address.clone();
    let is_ended = match served.sockets.host.parked(conn) {
        Some(conn) => end_one(&served.w, conn, decides, end).await,
        None => false,
    };
    let is_ended = is_ended || (end == PreparedEnd::Commit && insist(served, address.node, address.shard, decides).await);
    if !is_ended {
        let name = PreparedName { shard: address.shard, decides };
        let text = format_args!("the prepared transaction {name} on {address} could not be ended; it is tried again");
        served.w.shared.log.say(Level::Warning, text);
    }
    is_ended
}

/// True if the part has ended. Not cancel safe.
async fn end_one(w: &Rc<Worker>, conn: ServerConn, decides: TransactionNumber, end: PreparedEnd) -> bool {
    let text = text_of(PreparedName { shard: conn.status.address.shard, decides }, end);
    let (conn, said) = ask(w, conn, &text).await;
    match said {
        Ok(_) => give_back(w, conn),
        Err(OpenError::Refused { sqlstate, .. }) if sqlstate == NOT_PREPARED => give_back(w, conn),
        Err(_) => {
            w.close_conn(conn);
            return false;
        }
    }
    true
}

fn text_of(name: PreparedName, end: PreparedEnd) -> String {
    match end {
        PreparedEnd::Commit => format!("COMMIT PREPARED '{name}'"),
        PreparedEnd::RollBack => format!("ROLLBACK PREPARED '{name}'"),
    }
}

/// Tries again over new connections: the transaction is committed, and its client waits. Not cancel safe.
async fn insist(served: &ServedSession, node: u16, shard: u16, decides: TransactionNumber) -> bool {
    let (w, deadline) = (&served.w, served.w.now() + INSIST_LIMIT);
    debug_assert_ne!(shard, 0, "shard 0 decides where it takes part");
    let pool = served.sockets.host.pools.of_node(w, node);
    while w.now() < deadline {
        let wait = CheckoutWait { since: w.now(), patience: CheckoutPatience::ToldAtOnce };
        if let Ok(Ok(conn)) = lease::lease_conn(w, &pool, node, &[], wait, || w.now() >= deadline).await
            && end_one(w, conn, decides, PreparedEnd::Commit).await
        {
            return true;
        }
        let until = w.now() + PERIOD;
        while w.now() < until {
            w.reactor.wake_at(until);
            parked().await;
        }
    }
    false
}

/// Ends a transaction over a connection whose session has rolled it back elsewhere. Runs as its own task.
pub async fn roll_back(w: Rc<Worker>, conn: ServerConn) {
    let (conn, said) = ask(&w, conn, ROLLBACK).await;
    match said {
        Ok(_) => give_back(&w, conn),
        Err(_) => w.close_conn(conn),
    }
}

/// Not cancel safe.
async fn ask(w: &Worker, conn: ServerConn, text: &str) -> (ServerConn, Result<Rows, OpenError>) {
    conn_opening::ask(w, conn, text, Instant::now() + ANSWER_LIMIT).await
}

fn give_back(w: &Rc<Worker>, conn: ServerConn) {
    let pool = conn.transport.pool.clone();
    pool.give_back(w, conn);
}

pub fn own_texts() -> Vec<String> {
    let line = LogLineage { system: 1, timeline: 1 };
    let decides = TransactionNumber { xid: std::num::NonZeroU64::MIN, node: 0, line, said_ms: 1 };
    let name = PreparedName { shard: 1, decides };
    vec![
        NUMBER.to_owned(),
        format!("PREPARE TRANSACTION '{name}'"),
        text_of(name, PreparedEnd::Commit),
        text_of(name, PreparedEnd::RollBack),
        COMMIT.to_owned(),
        ROLLBACK.to_owned(),
    ]
}
