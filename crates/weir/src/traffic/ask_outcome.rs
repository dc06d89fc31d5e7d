//! Asks the primary for the outcome of a COMMIT whose answer was lost. `failover::commit_outcome` judges the answers.

use crate::log::Level;
use crate::runtime::lease;
use crate::runtime::pool::conn_opening;
use crate::runtime::pool::server_conn::{OpenError, Rows, ServerConn};
use crate::runtime::pool::{CheckoutPatience, CheckoutWait};
use crate::runtime::worker::Worker;
use crate::traffic::served::{ServedSession, SessionSockets};
use std::rc::Rc;
use std::time::{Duration, Instant};
use weir_failover::commit_outcome::{CommitOutcome, LogLineage, TransactionNumber, XidStatus, XidStatusAnswer, judge};
use weir_io::reactor::parked;
use weir_session::doubt::settle;
use weir_session::task::Us;

const PERIOD: Duration = Duration::from_millis(50);

const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Longest wait for the transaction numbers of a promotion by another Weir. A new primary is looked at at once, and has them by then.
const UNTOLD_LIMIT: Duration = Duration::from_secs(1);

/// SQLSTATE of a number not given out yet. Source: `pg_xact_status` in xid8funcs.c.
const FUTURE: &str = "22023";

/// Has a synchronous standby acknowledge all earlier commits.
const REPLICATE: &str = "SELECT pg_catalog.pg_logical_emit_message(true, 'weir', '')";

/// Not cancel safe: a server connection may be on its way.
pub async fn find(served: &mut ServedSession) {
    let Some(doubt) = &served.s.intake.doubt else { return };
    let Some((number, asked_at)) = doubt.number else { return };
    served.s.handle.wait_cancelled.set(false);
    let verdict = ask(served, &number, asked_at).await;
    served.s.handle.wait_cancelled.set(false);
    settle(&mut served.s, &served.w, verdict);
}

/// Not cancel safe.
async fn ask(served: &ServedSession, number: &TransactionNumber, asked_at: Us) -> CommitOutcome {
    let ServedSession { s, sockets: SessionSockets { client, host }, w } = served;
    let since = w.now();
    let limit_ms = s.account.limits.get().waits.primary_ms;
    let deadline = (limit_ms > 0).then(|| since + Duration::from_millis(limit_ms));
    let lost_ms = number.lost_ms(w.now_us().saturating_sub(asked_at) / 1000);
    let was_gone = client.is_hung_up();
    let ends = || {
        let is_over = deadline.is_some_and(|at| w.now() >= at);
        let is_left = !was_gone && client.is_hung_up();
        is_over || is_left || s.handle.wait_cancelled.get() || s.handle.final_error.borrow().is_some()
    };
    let mut untold_until = None;
    while !ends() {
        let (primary, generation) = (w.view().primary_id(), w.view().generation);
        if let Some(node) = primary {
            let pool = host.pools.of_node(w, node);
            let moved = || w.view().primary_id() != Some(node);
            let wait = CheckoutWait { since: w.now(), patience: CheckoutPatience::ToldAtOnce };
            if let Ok(Ok(conn)) = lease::lease_conn(w, &pool, node, &[], wait, || ends() || moved()).await {
                let said = ask_over(w, conn, number, (asked_at, lost_ms)).await;
                // In a group another primary may count by now, which knows nothing of what this server committed.
                let is_too_late = w.shared.lease.is_needed() && w.is_past_lease(node);
                let verdict = if is_too_late { CommitOutcome::NotYet } else { said };
                match verdict {
                    CommitOutcome::NotYet => {}
                    CommitOutcome::Untold if w.now() < *untold_until.get_or_insert(w.now() + UNTOLD_LIMIT) => {}
                    CommitOutcome::Untold => return CommitOutcome::Unknown,
                    CommitOutcome::Committed => {
                        // The commit may be later than the loss of its connection. Reads after the client's answer must show it.
                        w.shared.changes.note_all_told(w.shared.positions.next_round());
                        return verdict;
                    }
                    CommitOutcome::RolledBack | CommitOutcome::Unknown => return verdict,
                }
            }
        }
        pause(w, generation, deadline).await;
    }
    CommitOutcome::Unknown
}

/// Cancel safe.
async fn pause(w: &Worker, generation: u64, deadline: Option<Instant>) {
    let until = w.now() + PERIOD;
    let until = deadline.map_or(until, |deadline| deadline.min(until));
    while w.view().generation == generation && w.now() < until {
        w.wake_at_new_view();
        w.reactor.wake_at(until);
        parked().await;
    }
}

fn status_of(xid: u64) -> String {
    format!(
        "SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN NULL ELSE pg_catalog.substr(pg_catalog.pg_walfile_name(\
         pg_catalog.pg_current_wal_lsn()), 1, 8) END, (pg_catalog.pg_control_system()).system_identifier, \
         pg_catalog.floor(pg_catalog.date_part('epoch', pg_catalog.pg_postmaster_start_time())), \
         pg_catalog.date_part('epoch', (pg_catalog.pg_control_checkpoint()).checkpoint_time), \
         pg_catalog.current_setting('synchronous_standby_names') OPERATOR(pg_catalog.<>) '', \
         pg_catalog.txid_status({})",
        xid
    )
}

/// Not cancel safe.
async fn ask_over(w: &Rc<Worker>, conn: ServerConn, number: &TransactionNumber, (asked_at, lost_ms): (Us, u64)) -> CommitOutcome {
    let (node, is_of_old) = (conn.status.address.node, conn.opened_us <= asked_at);
    let text = status_of(number.xid.get());
    let (mut conn, said) = conn_opening::ask(w, conn, &text, Instant::now() + ANSWER_LIMIT).await;
    let mut said = said;
    let mut is_future = false;
    if matches!(&said, Err(OpenError::Refused { sqlstate, .. }) if sqlstate == FUTURE) {
        is_future = true;
        let rest = text.replace(&format!("pg_catalog.txid_status({})", number.xid), "NULL");
        (conn, said) = conn_opening::ask(w, conn, &rest, Instant::now() + ANSWER_LIMIT).await;
    }
    let Ok(rows) = said else {
        w.close_conn(conn);
        return CommitOutcome::NotYet;
    };
    let Some((answer, is_synchronous)) = read(&rows, node, is_of_old, is_future) else {
        give_back(w, conn);
        return CommitOutcome::NotYet;
    };
    // The horizon holds only for the node that takes writes now.
    let view = w.view().clone();
    let verdict =
        if view.is_primary(node) { judge(number, lost_ms, &answer, view.horizon.as_ref()) } else { CommitOutcome::NotYet };
    if verdict == CommitOutcome::Unknown {
        let (xid, from, status) = (number.xid, number.node, answer.status);
        let last_ms = view.horizon.and_then(|horizon| horizon.numbers.last_ms).unwrap_or(0);
        let why = format_args!(
            "the outcome of transaction {xid} of node {from} is unknown: {status:?} on node {node}, lost {lost_ms}, last {last_ms}"
        );
        w.shared.log.say(Level::Debug1, why);
    }
    if verdict != CommitOutcome::Committed || !is_synchronous {
        give_back(w, conn);
        return verdict;
    }
    let (conn, replicated) = conn_opening::ask(w, conn, REPLICATE, Instant::now() + ANSWER_LIMIT).await;
    match replicated {
        Ok(_) => {
            give_back(w, conn);
            CommitOutcome::Committed
        }
        Err(_) => {
            w.close_conn(conn);
            CommitOutcome::NotYet
        }
    }
}

fn give_back(w: &Rc<Worker>, conn: ServerConn) {
    let pool = conn.transport.pool.clone();
    pool.give_back(w, conn);
}

/// Returns the answer, and true if commits wait for standbys.
fn read(rows: &Rows, node: u16, is_of_old: bool, is_future: bool) -> Option<(XidStatusAnswer, bool)> {
    let [timeline, system, started, checkpoint, synchronous, status] = rows.first()?.as_slice() else { return None };
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
    let answer = XidStatusAnswer { node, line, in_recovery, status, started_s, checkpoint_s, is_of_old };
    Some((answer, synchronous.as_deref() == Some("t")))
}

pub fn own_texts() -> Vec<String> {
    vec![status_of(1), REPLICATE.to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read() {
        let cells = |cells: [Option<&str>; 6]| vec![cells.map(|cell| cell.map(str::to_owned)).to_vec()];
        let rows = cells([Some("0000000B"), Some("7"), Some("100"), Some("99"), Some("f"), Some("aborted")]);
        let line = LogLineage { system: 7, timeline: 11 };
        let answer = XidStatusAnswer {
            node: 1,
            line,
            in_recovery: false,
            status: XidStatus::Aborted,
            started_s: 100,
            checkpoint_s: 99,
            is_of_old: true,
        };
        assert_eq!(read(&rows, 1, true, false), Some((answer, false)));
        let rows = cells([None, Some("7"), Some("100"), Some("99"), Some("t"), None]);
        let (answer, is_synchronous) = read(&rows, 1, false, true).unwrap();
        assert!(answer.in_recovery && is_synchronous && answer.status == XidStatus::Future);
        assert_eq!(read(&cells([None, None, None, None, None, None]), 1, false, false), None);
    }
}
