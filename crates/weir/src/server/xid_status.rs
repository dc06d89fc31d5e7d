//! The outcome of a transaction, by its number: the question, and its answer for `failover::commit_outcome`.

use crate::runtime::pool::server_conn::Rows;
use std::num::NonZeroU64;
use weir_failover::commit_outcome::{LogLineage, XidStatus, XidStatusAnswer};

/// SQLSTATE of a number not given out yet. Source: `pg_xact_status` in xid8funcs.c.
pub const FUTURE: &str = "22023";

/// `None`: for a number that was not given out yet.
///
/// Without `pg_read_all_stats` a user does not see since when the checkpointer runs; then each later checkpoint may be that of a crash.
pub fn question(xid: Option<NonZeroU64>) -> String {
    let status = xid.map_or_else(|| "NULL".to_owned(), |xid| format!("pg_catalog.txid_status({xid})"));
    format!(
        "SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN NULL ELSE pg_catalog.substr(pg_catalog.pg_walfile_name(\
         pg_catalog.pg_current_wal_lsn()), 1, 8) END, (pg_catalog.pg_control_system()).system_identifier, \
         pg_catalog.floor(pg_catalog.date_part('epoch', pg_catalog.pg_postmaster_start_time())), \
         LEAST(pg_catalog.date_part('epoch', (pg_catalog.pg_control_checkpoint()).checkpoint_time), \
         (SELECT pg_catalog.date_part('epoch', a.backend_start) FROM pg_catalog.pg_stat_get_activity(NULL::pg_catalog.int4) AS a \
         WHERE a.backend_type OPERATOR(pg_catalog.=) 'checkpointer')), \
         pg_catalog.current_setting('synchronous_standby_names') OPERATOR(pg_catalog.<>) '', \
         {status}, (pg_catalog.pg_control_checkpoint()).next_xid"
    )
}

/// Returns the answer, and true if commits wait for standbys.
pub fn read(rows: &Rows, node: u16, is_of_old: bool, is_future: bool) -> Option<(XidStatusAnswer, bool)> {
    let [timeline, system, started, checkpoint, synchronous, status, next_xid] = rows.first()?.as_slice() else { return None };
    let whole = |cell: &Option<String>| cell.as_deref()?.split('.').next()?.parse::<u64>().ok();
    let status = match status.as_deref() {
        _ if is_future => XidStatus::Future,
        Some("committed") => XidStatus::Committed,
        Some("aborted") => XidStatus::Aborted,
        Some("in progress") => XidStatus::InProgress,
        Some(_) | None => XidStatus::Forgotten,
    };
    let timeline_now = timeline.as_deref().and_then(|text| u32::from_str_radix(text, 16).ok());
    let line = LogLineage { system: whole(system)?, timeline: timeline_now.unwrap_or(0) };
    let (started_s, checkpoint_s) = (whole(started)?, whole(checkpoint)?);
    let in_recovery = timeline.is_none();
    let checkpoint_xid = next_xid.as_deref().and_then(read_next_xid)?;
    let answer = XidStatusAnswer { node, line, in_recovery, status, started_s, checkpoint_s, checkpoint_xid, is_of_old };
    Some((answer, synchronous.as_deref() == Some("t")))
}

/// All 64 bits of `epoch:xid`. Source: `pg_control_checkpoint` in pg_controldata.c.
fn read_next_xid(text: &str) -> Option<u64> {
    let (epoch, xid) = text.split_once(':')?;
    Some(u64::from(epoch.parse::<u32>().ok()?) << 32 | u64::from(xid.parse::<u32>().ok()?))
}

pub fn own_texts() -> Vec<String> {
    vec![question(Some(NonZeroU64::MIN)), question(None)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read() {
        let cells = |cells: [Option<&str>; 7]| vec![cells.map(|cell| cell.map(str::to_owned)).to_vec()];
        let rows = cells([Some("0000000B"), Some("7"), Some("100"), Some("99"), Some("f"), Some("aborted"), Some("1:5")]);
        let line = LogLineage { system: 7, timeline: 11 };
        let answer = XidStatusAnswer {
            node: 1,
            line,
            in_recovery: false,
            status: XidStatus::Aborted,
            started_s: 100,
            checkpoint_s: 99,
            checkpoint_xid: (1 << 32) + 5,
            is_of_old: true,
        };
        assert_eq!(read(&rows, 1, true, false), Some((answer, false)));
        let rows = cells([None, Some("7"), Some("100"), Some("99"), Some("t"), None, Some("0:5")]);
        let (answer, is_synchronous) = read(&rows, 1, false, true).unwrap();
        assert!(answer.in_recovery && is_synchronous && answer.status == XidStatus::Future);
        assert_eq!(read(&cells([None, None, None, None, None, None, None]), 1, false, false), None);
    }
}
