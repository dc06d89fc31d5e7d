//! Asks the primary for the outcome of a COMMIT whose answer was lost. `failover::commit_outcome` judges the answers.

use crate::log::Level;
use crate::runtime::lease;
use crate::runtime::pool::conn_opening;
use crate::runtime::pool::server_conn::{OpenError, ServerConn};
use crate::runtime::pool::{CheckoutPatience, CheckoutWait};
use crate::runtime::worker::Worker;
use crate::server::xid_status;
use crate::traffic::served::{ServedSession, SessionSockets};
use std::fmt::Arguments;
use std::rc::Rc;
use std::time::{Duration, Instant};
use weir_failover::commit_outcome::{CommitOutcome, TransactionNumber, judge};
use weir_io::reactor::parked;
use weir_session::doubt::settle;
use weir_session::task::Us;

const PERIOD: Duration = Duration::from_millis(50);

const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Longest wait for the transaction numbers of a promotion by another Weir. A new primary is looked at at once, and has them by then.
const UNTOLD_LIMIT: Duration = Duration::from_secs(1);

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
    // The old primary may be another life's at the answer.
    let alive_ms = w.shared.lives.alive_ms(number, asked_at);
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
                let said = ask_over(w, conn, number, (asked_at, alive_ms)).await;
                // In a group another primary may count by now, which knows nothing of what this server committed.
                let is_too_late = w.shared.lease.is_needed() && w.is_past_lease(node);
                let verdict = if is_too_late { CommitOutcome::NotYet } else { said };
                match verdict {
                    CommitOutcome::NotYet => {}
                    CommitOutcome::Untold if w.now() < *untold_until.get_or_insert(w.now() + UNTOLD_LIMIT) => {}
                    CommitOutcome::Untold => {
                        say_unknown(w, number, format_args!("node {node} tells no numbers of its promotion"));
                        return CommitOutcome::Unknown;
                    }
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
    say_unknown(w, number, format_args!("no server told it in {} ms", w.now().duration_since(since).as_millis()));
    CommitOutcome::Unknown
}

fn say_unknown(w: &Worker, number: &TransactionNumber, why: Arguments<'_>) {
    let TransactionNumber { xid, node, .. } = number;
    w.shared.log.say(Level::Debug1, format_args!("the outcome of transaction {xid} of node {node} is unknown: {why}"));
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

/// Not cancel safe.
async fn ask_over(
    w: &Rc<Worker>,
    conn: ServerConn,
    number: &TransactionNumber,
    (asked_at, alive_ms): (Us, u64),
) -> CommitOutcome {
    let (node, is_of_old) = (conn.status.address.node, conn.opened_us <= asked_at);
    let text = xid_status::question(Some(number.xid));
    let (mut conn, said) = conn_opening::ask(w, conn, &text, Instant::now() + ANSWER_LIMIT).await;
    let mut said = said;
    let mut is_future = false;
    if matches!(&said, Err(OpenError::Refused { sqlstate, .. }) if sqlstate == xid_status::FUTURE) {
        is_future = true;
        let rest = xid_status::question(None);
        (conn, said) = conn_opening::ask(w, conn, &rest, Instant::now() + ANSWER_LIMIT).await;
    }
    let Ok(rows) = said else {
        w.close_conn(conn);
        return CommitOutcome::NotYet;
    };
    let Some((answer, is_synchronous)) = xid_status::read(&rows, node, is_of_old, is_future) else {
        give_back(w, conn);
        return CommitOutcome::NotYet;
    };
    // The horizon holds only for the node that takes writes now.
    let view = w.view().clone();
    let alive_ms = alive_ms.max(w.shared.lives.alive_ms(number, asked_at));
    let verdict =
        if view.is_primary(node) { judge(number, alive_ms, &answer, view.horizon.as_ref()) } else { CommitOutcome::NotYet };
    if verdict == CommitOutcome::Unknown {
        let status = answer.status;
        let last_ms = view.horizon.and_then(|horizon| horizon.numbers.last_ms).unwrap_or(0);
        say_unknown(w, number, format_args!("{status:?} on node {node}, alive {alive_ms}, last {last_ms}"));
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

pub fn own_texts() -> Vec<String> {
    vec![REPLICATE.to_owned()]
}
