//! SQL orders to servers. Each may be repeated, and interrupted at any point.
//!
//! A change of the memory of Weirs (`primary_conninfo`) needs the exclusion of `marks`, which ends with the connection. The
//! memory is read from the file: the setting in force may lack another session's change.
//!
//! Rights beside `pg_monitor`: `docs/failover.md`.

use super::{marks, presence};
use crate::control::control_conn::ControlConn;
use crate::control::failover::agent_orders::OrderError;
use crate::control::failover::node_facts;
use crate::control::failover::node_logins::{LoginKind, NodeAccess, failure};
use crate::control::return_node;
use crate::log::Level;
use crate::runtime::pool::server_conn::OpenError;
use std::time::Duration;
use tokio::time::Instant;
use weir_agent::SlotName;
use weir_failover::commit_outcome::PromotedStandby;
use weir_failover::conninfo::Conninfo;
use weir_failover::{
    Ballot, Done, LookFailure, Mark, MarkOwnership, NodeId, PledgeReply, PromotionNumbers, ServerFacts, Vote, VoteAnswer,
};

const PERIOD: Duration = Duration::from_millis(10);
/// Replay that makes no progress for this long has reached the end of the log.
const STILL: Duration = Duration::from_millis(100);

const MEMORY: &str = "SELECT pg_catalog.pg_is_in_recovery(), (SELECT setting FROM pg_catalog.pg_file_settings \
    WHERE name OPERATOR(pg_catalog.=) 'primary_conninfo' ORDER BY seqno DESC LIMIT 1)";
const RELOAD: &str = "SELECT pg_catalog.pg_reload_conf()";
const NOW: &str = "SELECT pg_catalog.clock_timestamp()";
const IN_RECOVERY: &str = "SELECT pg_catalog.pg_is_in_recovery()";
const CHECKPOINT: &str = "CHECKPOINT";
const UNFENCE: &str = "ALTER SYSTEM RESET default_transaction_read_only";
const REPLAYED: &str = "SELECT pg_catalog.pg_last_wal_replay_lsn(), COALESCE(pg_catalog.pg_last_wal_receive_lsn() \
    OPERATOR(pg_catalog.>=) pg_catalog.pg_last_wal_replay_lsn(), false)";
/// A role may have the right to this form only.
const PROMOTE: &str = "SELECT pg_catalog.pg_promote(false, 60)";
const LAST_REPLAYED: &str = "SELECT pg_catalog.floor(1000 OPERATOR(pg_catalog.*) \
    pg_catalog.date_part('epoch', pg_catalog.pg_last_xact_replay_timestamp()))::pg_catalog.int8";
const NUMBERS: &str = "SELECT pg_catalog.txid_snapshot_xmax(pg_catalog.txid_current_snapshot()), \
    pg_catalog.round(1000000 OPERATOR(pg_catalog.*) EXTRACT(epoch FROM pg_catalog.pg_postmaster_start_time())::pg_catalog.numeric)";
/// A switch does nothing at the start of a file, and a record may be longer than a file.
const SWITCH: &str = "SELECT pg_catalog.pg_logical_emit_message(false, 'weir', ''), pg_catalog.pg_switch_wal() FROM pg_catalog.pg_settings \
    WHERE name OPERATOR(pg_catalog.=) 'wal_segment_size' AND \
    pg_catalog.div(pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_last_wal_receive_lsn(), '0/0'), setting::pg_catalog.numeric) \
    OPERATOR(pg_catalog.>) \
    pg_catalog.div(pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_insert_lsn(), '0/0'), setting::pg_catalog.numeric)";
const END_SESSIONS: &str = "SELECT pg_catalog.count(pg_catalog.pg_terminate_backend(pid)) FROM pg_catalog.pg_stat_activity \
    LEFT JOIN pg_catalog.pg_roles AS r ON r.oid OPERATOR(pg_catalog.=) usesysid \
    WHERE backend_type OPERATOR(pg_catalog.=) 'client backend' AND pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid() \
    AND (r.rolsuper IS NOT TRUE OR (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname OPERATOR(pg_catalog.=) CURRENT_USER))";

fn alter(name: &str, value: &str) -> String {
    format!("ALTER SYSTEM SET {name} TO {}", quoted(value))
}

fn setting(name: &str) -> String {
    format!("SELECT pg_catalog.current_setting('{name}')")
}

fn receivers(since: &str) -> String {
    format!(
        "SELECT (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_wal_receiver) OPERATOR(pg_catalog.+) \
         (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_activity WHERE backend_type OPERATOR(pg_catalog.=) 'walreceiver' \
         AND backend_start OPERATOR(pg_catalog.<) {}::pg_catalog.timestamptz)",
        quoted(since)
    )
}

pub fn own_texts() -> Vec<String> {
    let fixed =
        [MEMORY, RELOAD, NOW, IN_RECOVERY, CHECKPOINT, UNFENCE, REPLAYED, PROMOTE, LAST_REPLAYED, NUMBERS, SWITCH, END_SESSIONS];
    let made = [alter("primary_conninfo", "host=h"), setting("primary_slot_name"), receivers("2026-01-01 00:00:00+00")];
    fixed.map(str::to_owned).into_iter().chain(made).collect()
}

#[derive(Debug, thiserror::Error)]
pub enum DeedError {
    #[error("{0}")]
    Server(#[from] OpenError),
    #[error(transparent)]
    Agent(#[from] OrderError),
    #[error("node {0}: primary_conninfo cannot be read; it must be words and values, and no URI")]
    Conninfo(NodeId),
}

impl DeedError {
    pub fn failure(&self) -> LookFailure {
        match self {
            DeedError::Server(error) => failure(error),
            DeedError::Agent(error) => error.failure(),
            DeedError::Conninfo(_) => LookFailure::Refuses,
        }
    }
}

struct LockedConn {
    conn: ControlConn,
    conninfo: Conninfo,
    in_recovery: bool,
}

enum MarkLockResult {
    Held(LockedConn),
    Others(Mark),
}

/// Cancel safe: closing the connection releases the exclusion.
async fn lock(reach: &NodeAccess, node: NodeId, deadline: Instant) -> Result<MarkLockResult, DeedError> {
    let mut conn = reach.open(node, LoginKind::Statements, deadline).await?;
    let now = Instant::now();
    let grip = marks::take(reach, node, &mut conn, now + deadline.saturating_duration_since(now) / 2).await?;
    let rows = conn.query(MEMORY).await?;
    let cell = |at: usize| rows.first().and_then(|row| row.get(at)?.as_deref()).unwrap_or_default();
    let conninfo = Conninfo::parse(cell(1)).ok_or(DeedError::Conninfo(node))?;
    if grip == MarkOwnership::Weirs {
        return Ok(MarkLockResult::Others(conninfo.mark()));
    }
    let in_recovery = cell(0) == "t";
    Ok(MarkLockResult::Held(LockedConn { conn, conninfo, in_recovery }))
}

/// Changes a setting, and waits until it is in force. Not cancel safe.
async fn set(conn: &mut ControlConn, name: &str, value: &str) -> Result<(), OpenError> {
    conn.query(&alter(name, value)).await?;
    reload(conn).await?;
    // The postmaster reads a setting before it signals this session's process.
    let text = setting(name);
    while one(conn, &text).await?.as_deref() != Some(value) {
        tokio::time::sleep(PERIOD).await;
    }
    Ok(())
}

async fn reload(conn: &mut ControlConn) -> Result<(), OpenError> {
    conn.query(RELOAD).await.map(drop)
}

/// Not cancel safe.
async fn one(conn: &mut ControlConn, text: &str) -> Result<Option<String>, OpenError> {
    Ok(conn.query(text).await?.into_iter().flatten().next().flatten())
}

fn quoted(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// Has a server promise to refuse older attempts; `cuts` also cuts a standby off from its primary. Not cancel safe.
pub async fn pledge(
    reach: &NodeAccess,
    node: NodeId,
    ballot: Ballot,
    cuts: StreamCutPolicy,
    deadline: Instant,
) -> Result<PledgeReply, DeedError> {
    let mut locked = match lock(reach, node, deadline).await? {
        MarkLockResult::Held(locked) => locked,
        MarkLockResult::Others(mark) => return Ok(PledgeReply::Refused { mark }),
    };
    let mark = locked.conninfo.mark();
    let Some(promised) = mark.pledge(ballot) else { return Ok(PledgeReply::Refused { mark }) };
    let is_cut = locked.in_recovery && cuts == StreamCutPolicy::Yes;
    let before = locked.conninfo.clone();
    let next = if is_cut { before.cut_off() } else { before }.with_mark(promised);
    set(&mut locked.conn, "primary_conninfo", &next.show()).await?;
    if is_cut {
        wait_cut_off(&mut locked.conn).await?;
        wait_replayed(&mut locked.conn).await?;
    }
    let mut facts = node_facts::over(reach, node, &mut locked.conn, deadline).await?;
    facts.mark = promised;
    Ok(PledgeReply::Given { facts })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamCutPolicy {
    Yes,
    No,
}

/// Waits until no receiver with the old setting runs: twice in a row, since one may be just about to start.
async fn wait_cut_off(conn: &mut ControlConn) -> Result<(), OpenError> {
    let since = one(conn, NOW).await?.unwrap_or_default();
    let text = receivers(&since);
    let mut times = 0;
    while times < 2 {
        times = if one(conn, &text).await?.as_deref() == Some("0") { times + 1 } else { 0 };
        tokio::time::sleep(PERIOD).await;
    }
    Ok(())
}

/// Waits until everything received is replayed. Where replay is ahead of what was received since the start, the log on disk may
/// hold more.
async fn wait_replayed(conn: &mut ControlConn) -> Result<(), OpenError> {
    let (mut last, mut since) = (None, Instant::now());
    loop {
        let rows = conn.query(REPLAYED).await?;
        let cell = |at: usize| rows.first().and_then(|row| row.get(at).cloned().flatten());
        let (replayed, is_known) = (cell(0), cell(1).as_deref() == Some("t"));
        if replayed != last {
            (last, since) = (replayed, Instant::now());
        }
        if is_known || since.elapsed() >= STILL {
            return Ok(());
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// Promotes a standby whose newest promise is this attempt. Not cancel safe.
pub async fn promote(reach: &NodeAccess, node: NodeId, ballot: Ballot, deadline: Instant) -> Result<Done, DeedError> {
    let MarkLockResult::Held(mut locked) = lock(reach, node, deadline).await? else { return Ok(Done::No) };
    if locked.conninfo.mark().promised != ballot {
        return Ok(Done::No);
    }
    let promoted = before_promotion(node, &mut locked.conn).await;
    if !locked.in_recovery {
        // Another Weir had it promoted, and left the numbers there.
        let kept = locked.conninfo.numbers().filter(PromotionNumbers::is_ordered);
        reach.c.promoted.set(promoted.zip(kept).map(|(promoted, kept)| promoted.after(kept)));
        return Ok(Done::Yes);
    }
    reach.c.promoted.set(promoted);
    if let Some(numbers) = promoted.and_then(|promoted| promoted.ordered()).filter(|_| reach.leaves_numbers()) {
        set(&mut locked.conn, "primary_conninfo", &locked.conninfo.with_numbers(numbers).show()).await?;
    }
    locked.conn.query(PROMOTE).await?;
    Ok(Done::Yes)
}

/// Reads the transaction numbers that a standby does not assign again once promoted. Not cancel safe.
async fn before_promotion(node: NodeId, conn: &mut ControlConn) -> Option<PromotedStandby> {
    let (reached, started_at) = numbers(conn).await.ok()??;
    let last_ms = one(conn, LAST_REPLAYED).await.ok()?.and_then(|text| text.parse().ok());
    Some(PromotedStandby::Ordered { node, started_at, reached, last_ms })
}

/// Returns the number above all ended transactions, and the server's start in µs. Not cancel safe.
async fn numbers(conn: &mut ControlConn) -> Result<Option<(u64, u64)>, OpenError> {
    let rows = conn.query(NUMBERS).await?;
    let cell = |at: usize| rows.first()?.get(at)?.as_deref()?.parse().ok();
    Ok(cell(0).zip(cell(1)))
}

/// Not cancel safe.
pub async fn wait_writable(reach: &NodeAccess, node: NodeId, deadline: Instant) -> Result<ServerFacts, DeedError> {
    let mut conn = reach.open(node, LoginKind::Statements, deadline).await?;
    while one(&mut conn, IN_RECOVERY).await?.as_deref() != Some("f") {
        tokio::time::sleep(PERIOD).await;
    }
    let fresh = numbers(&mut conn).await?.map(|(fresh, _)| fresh);
    if let Err(error) = leave_files(&mut conn).await {
        let text =
            format!("its log is not moved on to the file that standbys have begun, and one of them may wait for that: {error}");
        reach.complain(node, &text);
    }
    let facts = node_facts::over(reach, node, &mut conn, deadline).await?;
    if let (Some(promoted), Some(fresh)) = (reach.c.promoted.get(), fresh) {
        reach.c.promoted.set(Some(promoted.done(node, &facts, fresh)));
    }
    Ok(facts)
}

/// Moves a new primary on to the WAL file up to which standbys have received. A standby with the start of a record that the new
/// log lacks asks for the next file, which the server refuses while its log is shorter (`StartReplication` in
/// `src/backend/replication/walsender.c`). No commit would write if all wait for these standbys. Not cancel safe.
async fn leave_files(conn: &mut ControlConn) -> Result<(), OpenError> {
    while !conn.query(SWITCH).await?.is_empty() {}
    Ok(())
}

/// Gives a server a vote: a standby follows the vote's node, a new primary keeps its promotion's numbers for other Weirs. Not
/// cancel safe.
pub async fn repoint(reach: &NodeAccess, node: NodeId, vote: Vote, deadline: Instant) -> Result<VoteAnswer, DeedError> {
    let mut locked = match lock(reach, node, deadline).await? {
        MarkLockResult::Held(locked) => locked,
        MarkLockResult::Others(mark) => return Ok(VoteAnswer::Refused { mark }),
    };
    let mark = locked.conninfo.mark();
    let Some(cast) = mark.cast(vote) else { return Ok(VoteAnswer::Refused { mark }) };
    let follows = locked.in_recovery && node != vote.epoch.node;
    let mut next = locked.conninfo.clone();
    if follows {
        let Some((host, port)) = reach.place(vote.epoch.node) else { return Ok(VoteAnswer::Failed(LookFailure::Refuses)) };
        next = next.to(host, port);
        make_slot(reach, &mut locked.conn, vote.epoch.node, deadline).await?;
    }
    let own = if node == vote.epoch.node { reach.c.promoted.get() } else { None };
    next = next.with_mark(cast);
    if let Some(numbers) = own.and_then(|promoted| promoted.numbers(node)) {
        next = next.with_numbers(numbers);
    }
    set(&mut locked.conn, "primary_conninfo", &next.show()).await?;
    Ok(VoteAnswer::Yes)
}

/// Points a standby at the primary unless it has promised a newer attempt. Not cancel safe.
pub async fn point(reach: &NodeAccess, node: NodeId, to: (NodeId, Ballot), deadline: Instant) -> Result<Done, DeedError> {
    let (primary, ballot) = to;
    let MarkLockResult::Held(mut locked) = lock(reach, node, deadline).await? else { return Ok(Done::No) };
    let Some((host, port)) = reach.place(primary) else { return Ok(Done::No) };
    if locked.conninfo.mark().promised > ballot || !locked.in_recovery {
        return Ok(Done::No);
    }
    make_slot(reach, &mut locked.conn, primary, deadline).await?;
    let next = locked.conninfo.clone().to(host, port);
    set(&mut locked.conn, "primary_conninfo", &next.show()).await?;
    reach.c.shared.log.say(Level::Log, format_args!("node {node}: it was pointed at node {primary}, the primary"));
    Ok(Done::Yes)
}

/// Has a standby try its primary again. Not cancel safe.
pub async fn wake(reach: &NodeAccess, node: NodeId, deadline: Instant) -> Result<Done, DeedError> {
    let mut conn = reach.open(node, LoginKind::Statements, deadline).await?;
    reload(&mut conn).await?;
    Ok(Done::Yes)
}

/// Makes a standby's slot on its new primary. Errors are logged only: the next look finds a standby that does not stream.
async fn make_slot(reach: &NodeAccess, standby: &mut ControlConn, primary: NodeId, deadline: Instant) -> Result<(), OpenError> {
    let name = one(standby, &setting("primary_slot_name")).await?.unwrap_or_default();
    if name.is_empty() {
        return Ok(());
    }
    let made = match SlotName::new(&name) {
        Ok(slot) => {
            return_node::make_slot(&reach.c, &reach.config, primary, &slot, deadline).await.map_err(|error| error.to_string())
        }
        Err(error) => Err(error.to_string()),
    };
    if let Err(error) = made {
        reach.complain(primary, &format!("the replication slot \"{name}\" cannot be made: {error}"));
    }
    Ok(())
}

/// Makes a primary read only by default, and ends its sessions. Not cancel safe.
pub async fn fence(reach: &NodeAccess, node: NodeId, ballot: Ballot, deadline: Instant) -> Result<Done, DeedError> {
    let MarkLockResult::Held(mut locked) = lock(reach, node, deadline).await? else { return Ok(Done::No) };
    if locked.conninfo.mark().promised > ballot || locked.in_recovery {
        return Ok(Done::No);
    }
    set(&mut locked.conn, "default_transaction_read_only", "on").await?;
    locked.conn.query(END_SESSIONS).await?;
    Ok(Done::Yes)
}

/// Cancel safe: the connection is closed.
pub async fn wait_yielded(reach: &NodeAccess, node: NodeId, weir: u32, deadline: Instant) -> Result<(), DeedError> {
    let mut conn = reach.open(node, LoginKind::Statements, deadline).await?;
    marks::wait_gone(reach, node, &mut conn, (presence::PREFIX, &presence::name(weir)), PERIOD).await?;
    Ok(())
}

/// Runs a checkpoint, so that a stop has little left to write. Not cancel safe.
pub async fn checkpoint(reach: &NodeAccess, node: NodeId, deadline: Instant) -> Result<(), DeedError> {
    let mut conn = reach.open(node, LoginKind::Statements, deadline).await?;
    conn.query(CHECKPOINT).await?;
    Ok(())
}

/// Undoes `fence`. Not cancel safe.
pub async fn unfence(reach: &NodeAccess, node: NodeId, deadline: Instant) -> Result<Done, DeedError> {
    let MarkLockResult::Held(mut locked) = lock(reach, node, deadline).await? else { return Ok(Done::No) };
    locked.conn.query(UNFENCE).await?;
    reload(&mut locked.conn).await?;
    Ok(Done::Yes)
}
