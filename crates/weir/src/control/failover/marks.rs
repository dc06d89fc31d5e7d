//! Mutual exclusion of Weirs at a server, by advisory locks.
//!
//! Any session can take a lock with a known number. So each Weir locks a random number, then lists the other holders of the
//! class. If none is a Weir it has the exclusion; else it unlocks and tries again. Two Weirs at once see each other, since both
//! lock before they look.

use crate::control::control_conn::ControlConn;
use crate::control::failover::node_logins::NodeAccess;
use crate::runtime::pool::server_conn::{OpenError, Rows};
use std::time::Duration;
use tokio::time::Instant;
use weir_failover::{HolderRank, MarkHolder, MarkHolders, MarkOwnership, NodeId};

/// "Weir" in ASCII.
const CLASS: i32 = 1_466_263_922;
const AGAIN: Duration = Duration::from_millis(5);
/// Random addition to `AGAIN`, so that two Weirs do not collide for ever.
const CHANCE_MS_MAX: u8 = 15;
const NAMED_MAX: usize = 5;
/// After so long a holder is a former leader of the group that stands still: only the leader gives orders.
const FORMER_LEADER_LIMIT: Duration = Duration::from_secs(1);

const ALTER_VERSION: u32 = 150_000;
const VERSION: &str = "SELECT pg_catalog.current_setting('server_version_num')";

/// Columns about session `a`: visible, role, address, is a Weir's. The role is that of the login, despite `SET ROLE`. A role that
/// may change the memory of Weirs counts as a Weir's, so that none changes it outside the exclusion.
fn session(version: u32) -> String {
    let may = |what: &str| format!("pg_catalog.{what}'::pg_catalog.text)");
    let promotes = may("has_function_privilege(a.usesysid, 'pg_catalog.pg_promote(boolean,integer)'::pg_catalog.text, 'EXECUTE");
    let remembers = match version {
        ALTER_VERSION.. => may("has_parameter_privilege(a.usesysid, 'primary_conninfo'::pg_catalog.text, 'ALTER SYSTEM"),
        _ => "false".to_owned(),
    };
    let is_own = "a.usesysid OPERATOR(pg_catalog.=) \
        (SELECT r.oid FROM pg_catalog.pg_roles AS r WHERE r.rolname OPERATOR(pg_catalog.=) SESSION_USER)";
    format!("a.pid IS NOT NULL, a.usename, pg_catalog.host(a.client_addr), {is_own} OR {promotes} OR {remembers}")
}

fn lock_holders(version: u32) -> String {
    format!(
        "SELECT l.pid, {} FROM pg_catalog.pg_locks AS l \
         LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid OPERATOR(pg_catalog.=) l.pid \
         WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.classid OPERATOR(pg_catalog.=) '{CLASS}'::pg_catalog.oid AND l.granted \
         AND l.objsubid OPERATOR(pg_catalog.=) '2'::pg_catalog.int2 \
         AND (l.pid IS NULL OR l.pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid())",
        session(version)
    )
}

fn name_holders(version: u32, (prefix, own): (&str, &str)) -> String {
    format!(
        "SELECT a.pid, {} FROM pg_catalog.pg_stat_activity AS a WHERE pg_catalog.starts_with(a.application_name, '{prefix}') \
         AND a.application_name OPERATOR(pg_catalog.<>) '{own}'",
        session(version)
    )
}

fn lock(number: i32) -> String {
    format!("SELECT pg_catalog.pg_try_advisory_lock({CLASS}, {number})")
}

fn unlock(number: i32) -> String {
    format!("SELECT pg_catalog.pg_advisory_unlock({CLASS}, {number})")
}

/// Ends a session. The pid may have been reused: only a holder that is no Weir's is ended.
fn end(holders: &str, pid: i32) -> String {
    format!(
        "SELECT pg_catalog.pg_terminate_backend(h.pid) FROM ({holders}) AS h (pid, seen, name, address, is_weir) \
         WHERE h.pid OPERATOR(pg_catalog.=) '{pid}'::pg_catalog.int4 AND h.seen AND NOT h.is_weir"
    )
}

/// Ends the sessions of other Weirs that hold locks.
fn end_weirs(holders: &str) -> String {
    format!(
        "SELECT pg_catalog.pg_terminate_backend(h.pid) FROM ({holders}) AS h (pid, seen, name, address, is_weir) \
         WHERE h.seen AND h.is_weir"
    )
}

pub fn own_texts() -> Vec<String> {
    let by_version = [130_000, 180_000].into_iter().flat_map(|version| {
        let holders = lock_holders(version);
        [end(&holders, 1), end_weirs(&holders), holders, name_holders(version, ("weir_writes_", "weir_writes_1"))]
    });
    [VERSION.to_owned(), lock(1), unlock(1)].into_iter().chain(by_version).collect()
}

async fn version(conn: &mut ControlConn) -> Result<u32, OpenError> {
    let rows = conn.query(VERSION).await?;
    // The form for the oldest version runs on every version.
    Ok(rows.first().and_then(|row| row.first()?.as_deref()?.parse().ok()).unwrap_or(0))
}

fn read(rows: &Rows) -> MarkHolders {
    let holder = |row: &Vec<Option<String>>| {
        let [pid, seen, user, address, is_weir] = row.as_slice() else { return None };
        let rank = match (seen.as_deref(), is_weir.as_deref()) {
            (Some("t"), Some("t")) => HolderRank::Weir,
            (Some("t"), _) => HolderRank::Stranger,
            _ => HolderRank::Unseen,
        };
        let pid = pid.as_deref().and_then(|pid| pid.parse().ok());
        Some(MarkHolder { pid, user: user.clone(), address: address.clone(), rank })
    };
    MarkHolders::of(rows.iter().filter_map(holder).collect())
}

/// Takes the exclusion, which ends with the connection. Returns `Free` once taken, else `Weirs` after `by`. Not cancel safe: the
/// lock may be held.
pub async fn take(reach: &NodeAccess, node: NodeId, conn: &mut ControlConn, by: Instant) -> Result<MarkOwnership, OpenError> {
    let text = lock_holders(version(conn).await?);
    let mut patience_until = Instant::now() + FORMER_LEADER_LIMIT;
    loop {
        let number = i32::from_be_bytes(crate::random());
        let got = conn.query(&lock(number)).await?;
        if is_true(&got) {
            let holders = read(&conn.query(&text).await?);
            meet(reach, node, conn, (&text, &holders.strangers)).await?;
            if holders.grip == MarkOwnership::Free {
                return Ok(MarkOwnership::Free);
            }
            conn.query(&unlock(number)).await?;
        }
        if Instant::now() >= patience_until && reach.leads_group() {
            patience_until = Instant::now() + FORMER_LEADER_LIMIT;
            let ended = conn.query(&end_weirs(&text)).await?.len();
            reach.warn(node, &format!("{ended} sessions of a former leader of this group held its lock and are ended"));
        }
        if Instant::now() >= by {
            return Ok(MarkOwnership::Weirs);
        }
        let [chance] = crate::random::<1>();
        tokio::time::sleep(AGAIN + Duration::from_millis(u64::from(chance % CHANCE_MS_MAX))).await;
    }
}

fn is_true(rows: &Rows) -> bool {
    rows.first().and_then(|row| row.first()?.as_deref()) == Some("t")
}

/// Ends and logs foreign holders, which do not count. Not cancel safe.
async fn meet(
    reach: &NodeAccess,
    node: NodeId,
    conn: &mut ControlConn,
    (holders, strangers): (&str, &[MarkHolder]),
) -> Result<(), OpenError> {
    if strangers.is_empty() {
        return Ok(());
    }
    let mut ended = 0;
    for pid in strangers.iter().filter_map(|stranger| stranger.pid) {
        let end = end(holders, pid);
        match conn.query(&end).await {
            Ok(rows) => ended += usize::from(is_true(&rows)),
            // The right to end this session is missing.
            Err(OpenError::Refused { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    let what = format!(
        "sessions that are no Weir's held locks of Weir's class (pg_advisory_lock({CLASS}, ...)), which count for nothing"
    );
    say(reach, node, &format!("{what}; {ended} of {} ended", strangers.len()), strangers);
    Ok(())
}

fn say(reach: &NodeAccess, node: NodeId, what: &str, strangers: &[MarkHolder]) {
    let mut names: Vec<String> = strangers.iter().take(NAMED_MAX).map(MarkHolder::to_string).collect();
    if strangers.len() > NAMED_MAX {
        names.push(format!("and {} more", strangers.len() - NAMED_MAX));
    }
    reach.warn(node, &format!("{what}: {}", names.join("; ")));
}

/// Waits until no other Weir shows a name with this prefix. Foreign sessions with such a name are logged once. Not cancel safe.
pub async fn wait_gone(
    reach: &NodeAccess,
    node: NodeId,
    conn: &mut ControlConn,
    names: (&str, &str),
    period: Duration,
) -> Result<(), OpenError> {
    let text = name_holders(version(conn).await?, names);
    let mut said = false;
    loop {
        let holders = read(&conn.query(&text).await?);
        if !holders.strangers.is_empty() && !std::mem::replace(&mut said, true) {
            let what = format!(
                "sessions that are no Weir's have an application_name that begins with {}, which counts for nothing",
                names.0
            );
            say(reach, node, &what, &holders.strangers);
        }
        if holders.grip == MarkOwnership::Free {
            return Ok(());
        }
        tokio::time::sleep(period).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_is_not_shown_is_neither_a_weir_nor_a_stranger() {
        let row = |cells: [Option<&str>; 5]| cells.map(|cell| cell.map(str::to_owned)).to_vec();
        let rows = vec![
            row([Some("1"), Some("t"), Some("mallory"), Some("10.0.0.1"), Some("f")]),
            row([Some("2"), Some("t"), None, None, None]),
            row([None, Some("f"), None, None, None]),
        ];
        let holders = read(&rows);
        assert_eq!((holders.grip, holders.strangers.len()), (MarkOwnership::Free, 3));
        assert_eq!(holders.strangers[0].to_string(), "user \"mallory\", pid 1, address 10.0.0.1");
        for cells in [[Some("3"), Some("t"), Some("weir"), None, Some("t")], [Some("4"), Some("f"), None, None, None]] {
            assert_eq!(read(&vec![row(cells)]).grip, MarkOwnership::Weirs, "{cells:?}");
        }
    }
}
