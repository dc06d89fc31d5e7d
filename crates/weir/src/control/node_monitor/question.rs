//! Queries to a node.

use crate::auth::challenges::ServerScramFacts;
use crate::control::control_conn::ControlConn;
use crate::runtime::pool::server_conn::{OpenError, ServerAddress};
use crate::runtime::pool::server_login::{protocol, refused};
use weir_failover::looks::{ReplicationStatRow, RoleAnswer};
use weir_session::causal::standbys::{Life, end_of_record, read_position};
use weir_wire::back::read_columns;
use weir_wire::frame::back;

/// A primary's timeline is read from a WAL file name; a standby's is the one it streams.
const ROLE_QUERY: &str = "SELECT r, \
    CASE WHEN r THEN pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_lsn() END, \
    CASE WHEN r THEN (SELECT pg_catalog.lpad(pg_catalog.to_hex(received_tli), 8, '0') FROM pg_catalog.pg_stat_wal_receiver) \
    ELSE pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8) END \
    FROM (SELECT pg_catalog.pg_is_in_recovery() AS r OFFSET 0) AS x";

const REPLICATION_QUERY: &str = "SELECT application_name, state, sync_state, \
    (EXTRACT(epoch FROM replay_lag) OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8 FROM pg_catalog.pg_stat_replication";

/// Asked once per connection.
const WHO_QUERY: &str = "SELECT (pg_catalog.pg_control_system()).system_identifier, \
    pg_catalog.pg_size_bytes(pg_catalog.current_setting('wal_segment_size'))";

/// The base of challenges to users without a verifier. Asked once per connection.
const CHALLENGES_QUERY: &str = "SELECT (pg_catalog.pg_control_system()).system_identifier, \
    pg_catalog.current_setting('scram_iterations', true)";

/// Asked with each look: a reload changes the settings of new sessions, most of which are not reported.
const CONFIGURED_QUERY: &str =
    "SELECT (EXTRACT(epoch FROM pg_catalog.pg_conf_load_time()) OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8";

/// If the snapshot is unchanged no transaction has ended since the last round, no session can have seen more, and the earlier
/// position still covers it. The insert position alone may follow records of no transaction (vacuum, page pruning), which reach
/// disk and standbys only with the next commit or after seconds.
///
/// The flushed position bounds what standbys may show before the primary's snapshot does.
///
/// Waiting commits are listed only if `synchronous_standby_names` is set, since listing all connections costs more than the rest.
/// One without a number is `?`.
///
/// The timeline is `-` if the user may not see it.
const PREPARE: &str = "PREPARE weir_position AS SELECT r, \
    CASE WHEN r THEN pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_insert_lsn() END, \
    CASE WHEN r THEN (SELECT COALESCE(received_tli::pg_catalog.text, '-') FROM pg_catalog.pg_stat_wal_receiver) \
    ELSE pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8) END, \
    CASE WHEN r THEN '' ELSE pg_catalog.txid_current_snapshot()::pg_catalog.text END, \
    CASE WHEN r THEN NULL ELSE pg_catalog.pg_current_wal_flush_lsn() END, \
    CASE WHEN r OR pg_catalog.current_setting('synchronous_standby_names') OPERATOR(pg_catalog.=) '' THEN NULL ELSE \
    (SELECT COALESCE(pg_catalog.string_agg(COALESCE(backend_xid::pg_catalog.text, '?'), ','), '') \
    FROM pg_catalog.pg_stat_get_activity(NULL::pg_catalog.int4) WHERE wait_event OPERATOR(pg_catalog.=) 'SyncRep') END \
    FROM (SELECT pg_catalog.pg_is_in_recovery() AS r OFFSET 0) AS x";

const ASK: &str = "EXECUTE weir_position";

/// Asks for the role and, on a primary, for its streaming standbys. Not cancel safe.
pub async fn role(conn: &mut ControlConn) -> Result<RoleAnswer, OpenError> {
    let rows = conn.query(ROLE_QUERY).await?;
    let mut said = RoleAnswer::default();
    if let Some([Some(in_recovery), position, timeline]) = rows.first().map(Vec::as_slice) {
        said.in_recovery = in_recovery == "t";
        said.position = position.as_deref().and_then(|text| read_position(text.as_bytes()));
        said.timeline = timeline.as_deref().and_then(|text| u32::from_str_radix(text, 16).ok());
    }
    if !said.in_recovery {
        for row in conn.query(REPLICATION_QUERY).await? {
            if let [name, state, sync, lag] = row.as_slice() {
                let text = |value: &Option<String>| value.clone().unwrap_or_default();
                said.streaming.push(ReplicationStatRow {
                    application_name: text(name),
                    state: text(state),
                    sync_state: text(sync),
                    replay_lag_us: lag.as_deref().and_then(|us| us.parse().ok()),
                });
            }
        }
    }
    Ok(said)
}

/// Returns defaults without the right. Not cancel safe.
pub async fn challenges(conn: &mut ControlConn) -> Result<ServerScramFacts, OpenError> {
    let rows = match conn.query(CHALLENGES_QUERY).await {
        Ok(rows) => rows,
        Err(OpenError::Refused { .. }) => return Ok(ServerScramFacts::default()),
        Err(error) => return Err(error),
    };
    let text = |at: usize| rows.first()?.get(at)?.as_deref();
    let number = |text: &str| text.parse().ok();
    Ok(ServerScramFacts { identifier: text(0).and_then(number), iterations: text(1).and_then(|text| text.parse().ok()) })
}

/// The time in µs since 1970; `None` without the right. Not cancel safe.
pub async fn configured_at(conn: &mut ControlConn) -> Result<Option<u64>, OpenError> {
    match conn.query(CONFIGURED_QUERY).await {
        Ok(rows) => Ok(rows.into_iter().flatten().flatten().next().and_then(|text| text.parse().ok())),
        Err(OpenError::Refused { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerWalFacts {
    system: u64,
    segment_bytes: u64,
}

/// Not cancel safe.
pub async fn prepare(conn: &mut ControlConn) -> Result<ServerWalFacts, OpenError> {
    let rows = conn.query(WHO_QUERY).await?;
    let number = |at: usize| rows.first()?.get(at)?.as_deref()?.parse::<u64>().ok();
    let (Some(system), Some(segment_bytes)) = (number(0), number(1)) else {
        return Err(protocol(&conn.address, "no answer to who it is"));
    };
    conn.query(PREPARE).await?;
    Ok(ServerWalFacts { system, segment_bytes })
}

/// The positions that a node reported in one life.
pub struct ReportedPositions {
    life: Life,
    ready: ServerWalFacts,
    /// The primary's last snapshot, and a position that covers it.
    snapshot: Vec<u8>,
    covering: u64,
    /// `None`: `synchronous_standby_names` is empty.
    waiting: Option<Vec<Option<u32>>>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct PositionAnswer<'a> {
    pub(super) life: Life,
    pub(super) system: u64,
    pub(super) in_recovery: bool,
    pub(super) position: Option<u64>,
    pub(super) flushed: Option<u64>,
    pub(super) timeline: ReportedTimeline,
    pub(super) snapshot: &'a [u8],
    pub(super) waiting: Option<&'a [Option<u32>]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportedTimeline {
    Of(u32),
    None,
    Hidden,
}

impl ReportedTimeline {
    pub fn known(self) -> Option<u32> {
        match self {
            ReportedTimeline::Of(timeline) => Some(timeline),
            ReportedTimeline::None | ReportedTimeline::Hidden => None,
        }
    }
}

impl ReportedPositions {
    pub fn new(life: Life, ready: ServerWalFacts) -> ReportedPositions {
        ReportedPositions { life, ready, snapshot: Vec::new(), covering: 0, waiting: None }
    }

    /// Not cancel safe.
    pub async fn ask(&mut self, conn: &mut ControlConn) -> Result<PositionAnswer<'_>, OpenError> {
        conn.ask(ASK).await?;
        let (mut row, mut error) = (None, None);
        loop {
            let (tag, body) = conn.next().await?;
            match tag {
                back::DATA_ROW => row = Some(body),
                back::ERROR => error = Some(refused(&conn.address, &body)),
                back::READY => break,
                _ => {}
            }
        }
        match error {
            Some(error) => Err(error),
            None => self.take(row.as_deref().unwrap_or_default(), &conn.address),
        }
    }

    fn take(&mut self, row: &[u8], address: &ServerAddress) -> Result<PositionAnswer<'_>, OpenError> {
        let PositionRow { in_recovery, mut position, flushed, timeline, snapshot, waiting } =
            read_said(row).ok_or_else(|| protocol(address, "no position in its answer"))?;
        self.waiting = waiting.map(|list| read_waiting(list, self.waiting.take()));
        if !in_recovery && let Some(position) = &mut position {
            if self.covering == 0 || snapshot != self.snapshot {
                self.snapshot.clear();
                self.snapshot.extend_from_slice(snapshot);
                self.covering = end_of_record(*position, self.ready.segment_bytes);
            }
            *position = self.covering;
        }
        let (life, system) = (self.life, self.ready.system);
        let (snapshot, waiting) = (self.snapshot.as_slice(), self.waiting.as_deref());
        Ok(PositionAnswer { life, system, in_recovery, position, flushed, timeline, snapshot, waiting })
    }
}

fn read_waiting(list: &[u8], before: Option<Vec<Option<u32>>>) -> Vec<Option<u32>> {
    let mut waiting = before.unwrap_or_default();
    waiting.clear();
    let numbers = list.split(|byte| *byte == b',').filter(|number| !number.is_empty());
    waiting.extend(numbers.map(|number| std::str::from_utf8(number).ok().and_then(|number| number.parse().ok())));
    waiting
}

struct PositionRow<'a> {
    in_recovery: bool,
    position: Option<u64>,
    flushed: Option<u64>,
    timeline: ReportedTimeline,
    snapshot: &'a [u8],
    waiting: Option<&'a [u8]>,
}

fn read_said(row: &[u8]) -> Option<PositionRow<'_>> {
    let [in_recovery, position, timeline, snapshot, flushed, waiting] = read_columns(row)?;
    let in_recovery = in_recovery? == b"t";
    let timeline = match timeline {
        None => ReportedTimeline::None,
        Some(b"-") => ReportedTimeline::Hidden,
        Some(text) => {
            // WAL file names are hexadecimal.
            let radix = if in_recovery { 10 } else { 16 };
            ReportedTimeline::Of(u32::from_str_radix(std::str::from_utf8(text).ok()?, radix).ok()?)
        }
    };
    let (position, flushed) = (position.and_then(read_position), flushed.and_then(read_position));
    Some(PositionRow { in_recovery, position, flushed, timeline, snapshot: snapshot.unwrap_or_default(), waiting })
}

pub fn own_texts() -> Vec<String> {
    [ROLE_QUERY, REPLICATION_QUERY, WHO_QUERY, CHALLENGES_QUERY, CONFIGURED_QUERY, PREPARE, ASK].map(str::to_owned).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_config::SslMode;
    use weir_wire::frame::HEADER_BYTES;
    use weir_wire::write;

    fn row(cells: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let cells: Vec<String> = cells.iter().map(ToString::to_string).collect();
        write::data_row(&mut bytes, &cells);
        bytes.split_off(HEADER_BYTES)
    }

    fn followed() -> ReportedPositions {
        ReportedPositions::new(5, ServerWalFacts { system: 7, segment_bytes: 16 << 20 })
    }

    fn address() -> ServerAddress {
        ServerAddress { node: 1, shard: 0, hostname: "h".into(), port: 1, connect_timeout_ms: 0, ssl_mode: SslMode::Auto }
    }

    #[test]
    fn answers_of_a_primary_and_of_a_standby_are_read() {
        let (address, mut primary, mut standby) = (address(), followed(), followed());
        let said = primary.take(&row(&["f", "0/3000030", "0000001A", "7:9:8", "0/3000020", "8,?"]), &address).unwrap();
        let expected = PositionAnswer {
            life: 5,
            system: 7,
            in_recovery: false,
            position: Some(0x300_0030),
            flushed: Some(0x300_0020),
            timeline: ReportedTimeline::Of(26),
            snapshot: b"7:9:8",
            waiting: Some(&[Some(8), None]),
        };
        assert_eq!(said, expected);
        let said = primary.take(&row(&["f", "0/4000030", "0000001A", "7:9:8", "0/3000020", ""]), &address).unwrap();
        assert_eq!(said.position, Some(0x300_0030), "no transaction has ended since");
        let said = standby.take(&row(&["t", "1/0", "12", "", "", ""]), &address).unwrap();
        assert_eq!((said.in_recovery, said.position, said.timeline), (true, Some(1 << 32), ReportedTimeline::Of(12)));
        let said = standby.take(&row(&["t", "1/0", "-", "", "", ""]), &address).unwrap();
        assert_eq!(said.timeline, ReportedTimeline::Hidden);
    }

    #[test]
    fn an_answer_without_a_row_is_an_error() {
        assert!(followed().take(&[], &address()).is_err());
    }
}
