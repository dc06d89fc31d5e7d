//! Asks a node for the facts that decide about failover.

use crate::control::control_conn::ControlConn;
use crate::control::failover::node_logins::{HistoryKey, LoginKind, NodeAccess};
use crate::runtime::pool::server_conn::{OpenError, Rows};
use crate::runtime::pool::server_login::protocol;
use tokio::time::Instant;
use weir_failover::conninfo::Conninfo;
use weir_failover::{
    Lsn, NodeId, ReceivedWal, RecoveryState, ServerFacts, StreamingFollower, TimelineHistory, WalReceiverState, parse_lsn,
};

/// Facts, of which some are NULL except for members of `pg_monitor`. A hidden receiver is `-`. The timeline of a standby that
/// does not stream needs a replication connection: no SQL function has it.
const FACTS: &str = "SELECT r, pg_catalog.pg_last_wal_receive_lsn(), \
    CASE WHEN r THEN pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_flush_lsn() END, \
    CASE WHEN r THEN (SELECT pg_catalog.lpad(pg_catalog.to_hex(received_tli), 8, '0') FROM pg_catalog.pg_stat_wal_receiver) \
    ELSE pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8) END, \
    CASE WHEN r THEN (SELECT CASE WHEN status IS NULL THEN '-' WHEN status OPERATOR(pg_catalog.=) 'streaming' THEN \
    pg_catalog.round(1000 OPERATOR(pg_catalog.*) (EXTRACT(epoch FROM pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) \
    last_msg_receipt_time))::pg_catalog.numeric)::pg_catalog.text END FROM pg_catalog.pg_stat_wal_receiver) END, \
    (pg_catalog.pg_control_system()).system_identifier, \
    pg_catalog.round(1000000 OPERATOR(pg_catalog.*) EXTRACT(epoch FROM pg_catalog.pg_postmaster_start_time())::pg_catalog.numeric), \
    CASE WHEN pg_catalog.pg_has_role('pg_read_all_settings', 'MEMBER') \
    THEN pg_catalog.current_setting('primary_conninfo', true) END, \
    pg_catalog.current_setting('default_transaction_read_only'), \
    pg_catalog.current_setting('synchronous_standby_names'), \
    pg_catalog.has_function_privilege('pg_catalog.pg_ls_waldir()', 'EXECUTE') \
    FROM (SELECT pg_catalog.pg_is_in_recovery() AS r OFFSET 0) AS x";

/// A text of its own: PostgreSQL refuses a text with a function that the role may not call, even if unreached.
const NEWEST_FILE: &str = "SELECT pg_catalog.max(pg_catalog.substr(name, 1, 8)) FROM pg_catalog.pg_ls_waldir(), \
    LATERAL (SELECT pg_catalog.pg_last_wal_replay_lsn() OPERATOR(pg_catalog.-) '0/1'::pg_catalog.pg_lsn OFFSET 0) AS p (at) \
    WHERE pg_catalog.length(name) OPERATOR(pg_catalog.=) 24 AND pg_catalog.substr(name, 9) OPERATOR(pg_catalog.=) \
    pg_catalog.upper(pg_catalog.concat(pg_catalog.lpad(pg_catalog.to_hex(pg_catalog.div(at, 4294967296)::pg_catalog.int8), 8, '0'), \
    pg_catalog.lpad(pg_catalog.to_hex(pg_catalog.div(pg_catalog.mod(at, 4294967296), \
    pg_catalog.pg_size_bytes(pg_catalog.current_setting('wal_segment_size'))::pg_catalog.numeric)::pg_catalog.int8), 8, '0')))";

const FOLLOWERS: &str = "SELECT application_name, state, flush_lsn FROM pg_catalog.pg_stat_replication \
    WHERE state IS NULL OR state OPERATOR(pg_catalog.<>) 'startup'";

const IDENTIFY: &str = "IDENTIFY_SYSTEM";

fn timeline_history(timeline: u32) -> String {
    format!("TIMELINE_HISTORY {timeline}")
}

/// Cancel safe: the connection is closed.
pub async fn look(reach: &NodeAccess, node: NodeId, deadline: Instant) -> Result<ServerFacts, OpenError> {
    let mut conn = reach.open(node, LoginKind::Statements, deadline).await?;
    over(reach, node, &mut conn, deadline).await
}

/// `look` over an open connection. Not cancel safe.
pub async fn over(reach: &NodeAccess, node: NodeId, conn: &mut ControlConn, deadline: Instant) -> Result<ServerFacts, OpenError> {
    let rows = conn.query(FACTS).await?;
    let Some(said) = NodeAnswer::read(&rows) else { return Err(protocol(&conn.address, "no facts in its answer")) };
    let mut facts = said.facts(reach, node);
    if !said.in_recovery {
        facts.followers = conn.query(FOLLOWERS).await?.iter().filter_map(|row| follower(reach, row)).collect();
    }
    if let (ReceivedWal::Less { newest_file }, true) = (&mut facts.received, said.may_see_files) {
        let rows = conn.query(NEWEST_FILE).await?;
        *newest_file = rows.first().and_then(|row| timeline_of(row.first()?));
    }
    let (history, position) = history(reach, node, &said, deadline).await?;
    facts.history = history;
    facts.position = facts.position.max(position);
    Ok(facts)
}

struct NodeAnswer {
    in_recovery: bool,
    received: Option<Lsn>,
    /// Replayed on a standby, flushed on a primary.
    end: Option<Lsn>,
    timeline: Option<u32>,
    stream: WalReceiverState,
    system: Option<u64>,
    started_at: u64,
    conninfo: Option<Conninfo>,
    is_read_only: bool,
    sync_names: String,
    may_see_files: bool,
}

fn timeline_of(hex: &Option<String>) -> Option<u32> {
    hex.as_deref().and_then(|text| u32::from_str_radix(text, 16).ok())
}

impl NodeAnswer {
    fn read(rows: &Rows) -> Option<NodeAnswer> {
        let row = rows.first()?;
        let [Some(recovery), received, end, timeline, silent, system, started, conninfo, read_only, sync, may_see_files] =
            row.as_slice()
        else {
            return None;
        };
        let lsn = |text: &Option<String>| text.as_deref().and_then(parse_lsn);
        Some(NodeAnswer {
            in_recovery: recovery == "t",
            received: lsn(received),
            end: lsn(end),
            timeline: timeline_of(timeline),
            stream: match silent.as_deref() {
                None => WalReceiverState::Off,
                Some(text) => {
                    WalReceiverState::On { silent_ms: text.parse::<i64>().map_or(u64::MAX, |ms| ms.max(0).unsigned_abs()) }
                }
            },
            system: system.as_deref().and_then(|text| text.parse().ok()),
            started_at: started.as_deref()?.parse().ok()?,
            conninfo: conninfo.as_deref().and_then(Conninfo::parse),
            is_read_only: read_only.as_deref() == Some("on"),
            sync_names: sync.clone().unwrap_or_default(),
            may_see_files: may_see_files.as_deref() == Some("t"),
        })
    }

    fn facts(&self, reach: &NodeAccess, node: NodeId) -> ServerFacts {
        let place = self.conninfo.as_ref().and_then(Conninfo::place);
        let upstream = place.filter(|_| self.in_recovery).and_then(|place| reach.upstream(node, place));
        ServerFacts {
            recovery: if self.in_recovery {
                RecoveryState::Standby { upstream, stream: self.stream }
            } else {
                RecoveryState::Primary
            },
            position: self.received.filter(|_| self.in_recovery).max(self.end).unwrap_or(0),
            replayed: self.end.filter(|_| self.in_recovery).unwrap_or(0),
            received: match (self.in_recovery, self.received < self.end) {
                (true, true) if self.received.is_some() => ReceivedWal::Less { newest_file: None },
                _ => ReceivedWal::All,
            },
            started_at: self.started_at,
            mark: self.conninfo.as_ref().map(Conninfo::mark).unwrap_or_default(),
            numbers: self.conninfo.as_ref().and_then(Conninfo::numbers),
            is_read_only: self.is_read_only,
            sync_names: (!self.in_recovery).then(|| self.sync_names.clone()),
            ..ServerFacts::default()
        }
    }
}

fn follower(reach: &NodeAccess, row: &[Option<String>]) -> Option<StreamingFollower> {
    let [name, state, flushed] = row else { return None };
    let name = name.as_deref().unwrap_or_default();
    let known = reach.rules.nodes.iter().find(|node| !name.is_empty() && node.application_name.eq_ignore_ascii_case(name));
    Some(StreamingFollower {
        node: known.map(|node| node.id),
        is_streaming: state.as_deref() == Some("streaming"),
        flushed: flushed.as_deref().and_then(parse_lsn).unwrap_or(0),
    })
}

/// Returns the history, and the end of the log if it was asked for. Without REPLICATION: see `NodeAccess::assume`.
async fn history(
    reach: &NodeAccess,
    node: NodeId,
    said: &NodeAnswer,
    deadline: Instant,
) -> Result<(TimelineHistory, Lsn), OpenError> {
    let key =
        said.system.zip(said.timeline).map(|(system, timeline)| HistoryKey { system, timeline, started_at: said.started_at });
    if let Some(key) = key {
        if key.timeline == 1 {
            return Ok((TimelineHistory { system: key.system, timeline: 1, ..TimelineHistory::default() }, 0));
        }
        if let Some(history) = reach.known_history(node, key) {
            return Ok((history, 0));
        }
    }
    match ask_history(reach, node, said, deadline).await {
        Err(OpenError::Refused { message, sqlstate, .. }) if sqlstate != "57P03" && sqlstate != "57P01" => {
            let why = format!(
                "its history is not known, since the user of the health check needs the attribute REPLICATION: {message}"
            );
            reach.complain(node, &why);
            let assumed = reach.assume(node, said.system, said.timeline).ok_or(OpenError::Gone { node })?;
            Ok((assumed, 0))
        }
        outcome => outcome,
    }
}

/// Cancel safe: the connection is closed.
async fn ask_history(
    reach: &NodeAccess,
    node: NodeId,
    said: &NodeAnswer,
    deadline: Instant,
) -> Result<(TimelineHistory, Lsn), OpenError> {
    let mut conn = reach.open(node, LoginKind::Replication, deadline).await?;
    let rows = conn.query(IDENTIFY).await?;
    let cell = |at: usize| rows.first()?.get(at)?.as_deref();
    let system = cell(0).and_then(|text| text.parse::<u64>().ok());
    let (timeline, end) = (cell(1).and_then(|text| text.parse::<u32>().ok()), cell(2).and_then(parse_lsn));
    let (Some(system), Some(timeline)) = (system, timeline) else {
        return Err(protocol(&conn.address, "no answer to IDENTIFY_SYSTEM"));
    };
    let key = HistoryKey { system, timeline, started_at: said.started_at };
    let history = match reach.known_history(node, key) {
        Some(known) => known,
        None if timeline == 1 => TimelineHistory { system, timeline, ..TimelineHistory::default() },
        None => {
            let rows = conn.query(&timeline_history(timeline)).await?;
            let text = rows.first().and_then(|row| row.get(1)?.as_deref()).unwrap_or_default();
            TimelineHistory::parse(system, timeline, text)
                .ok_or_else(|| protocol(&conn.address, "a history that cannot be read"))?
        }
    };
    reach.keep_history(node, key, &history);
    // A primary reports its written log, which may not be flushed.
    Ok((history, end.filter(|_| said.in_recovery).unwrap_or(0)))
}

pub fn own_texts() -> Vec<String> {
    [FACTS, NEWEST_FILE, FOLLOWERS, IDENTIFY].map(str::to_owned).into_iter().chain([timeline_history(2)]).collect()
}
