//! The exclusion of Weirs at a server, and who holds marks of theirs there.
//!
//! A lock with a number that everybody knows can be taken by everybody. So each Weir takes one under a number that it has just drawn, and then
//! looks who holds others of Weir's class. It has the server's memory to itself if none of them is a Weir; else it lets go, and tries again. Two that
//! look at the same time see each other, since both have their locks before they look. `failover::Holders` says who is a Weir.

use crate::control::control_conn::ControlConn;
use crate::control::failover::node_logins::NodeAccess;
use crate::runtime::pool::server_conn::{OpenError, Rows};
use std::time::Duration;
use tokio::time::Instant;
use weir_failover::{HolderRank, MarkHolder, MarkHolders, MarkOwnership, NodeId};

/// The class of the locks: "Weir" as letters.
const CLASS: i32 = 1_466_263_922;
/// Least time between two tries.
const AGAIN: Duration = Duration::from_millis(5);
/// The most that chance adds to it, so that two Weirs do not go on meeting.
const CHANCE_MS_MAX: u8 = 15;
/// Strangers that one line of the log names.
const NAMED_MAX: usize = 5;

/// The first version in which others than superusers may be given ALTER SYSTEM.
const ALTER_VERSION: u32 = 150_000;
const VERSION: &str = "SELECT pg_catalog.current_setting('server_version_num')";

/// Columns about the session `a`: whether the server shows it, its role, its address, and whether it is a Weir's. Everybody may see all of it but the
/// address. The role is the one that logged in, which no `SET ROLE` changes. A role that may change the memory of Weirs counts as a Weir's, so that
/// nobody changes it beside the exclusion.
fn session(version: u32) -> String {
    let may = |what: &str| format!("pg_catalog.{what}'::pg_catalog.text)");
    let promotes = may("has_function_privilege(a.usesysid, 'pg_catalog.pg_promote(boolean,integer)'::pg_catalog.text, 'EXECUTE");
    let remembers = match version {
        ALTER_VERSION.. => may("has_parameter_privilege(a.usesysid, 'primary_conninfo'::pg_catalog.text, 'ALTER SYSTEM"),
        // Only superusers do, who may promote.
        _ => "false".to_owned(),
    };
    let is_own = "a.usesysid OPERATOR(pg_catalog.=) \
        (SELECT r.oid FROM pg_catalog.pg_roles AS r WHERE r.rolname OPERATOR(pg_catalog.=) SESSION_USER)";
    format!("a.pid IS NOT NULL, a.usename, pg_catalog.host(a.client_addr), {is_own} OR {promotes} OR {remembers}")
}

/// The other sessions that hold a lock of Weir's class, in whatever database.
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

/// The sessions whose name begins so, but for those of one name.
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

/// Ends a session. The number may be another one's by now: only one that still holds such a lock, and may promote nothing, is ended.
fn end(holders: &str, pid: i32) -> String {
    format!(
        "SELECT pg_catalog.pg_terminate_backend(h.pid) FROM ({holders}) AS h (pid, seen, name, address, is_weir) \
         WHERE h.pid OPERATOR(pg_catalog.=) '{pid}'::pg_catalog.int4 AND h.seen AND NOT h.is_weir"
    )
}

/// For the list of Weir's own texts.
pub fn own_texts() -> Vec<String> {
    let by_version = [130_000, 180_000].into_iter().flat_map(|version| {
        let holders = lock_holders(version);
        [end(&holders, 1), holders, name_holders(version, ("weir_writes_", "weir_writes_1"))]
    });
    [VERSION.to_owned(), lock(1), unlock(1)].into_iter().chain(by_version).collect()
}

async fn version(conn: &mut ControlConn) -> Result<u32, OpenError> {
    let rows = conn.query(VERSION).await?;
    // The oldest form of the question is right for every version, if not for every role.
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

/// Takes the exclusion of this server, which goes with the connection, by this time. Free: it is this Weir's. Not cancel safe: the lock may be had.
pub async fn take(reach: &NodeAccess, node: NodeId, conn: &mut ControlConn, by: Instant) -> Result<MarkOwnership, OpenError> {
    let text = lock_holders(version(conn).await?);
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

/// Names strangers that hold locks of Weir's class, and ends them where the rights allow it. They stand in nobody's way. Not cancel safe.
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
            // The right to end sessions of others, or of this one, is missing.
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

/// Waits until no Weir shows a name with this beginning at a server, other than the own one. Others who show one are named in the log once. Not cancel
/// safe: an answer may be on its way.
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
