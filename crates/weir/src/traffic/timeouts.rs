//! Ends statements, transactions and sessions that take longer than they may. `policy::overtime` decides; this obeys.

use crate::client::inquiry;
use crate::process::shared::Stop;
use crate::process::worker::{Entry, Worker};
use crate::server::pool::server_conn::ConnStatus;
use std::rc::Rc;
use std::time::{Duration, Instant};
use weir_policy::loss::Commits;
use weir_policy::timeouts::{Overtime, Spent, look_period_ms, overtime};
use weir_policy::transaction::{HeldTooLong, held_too_long};
use weir_session::fault::{Fault, sqlstate};
use weir_session::handle::Overdue;
use weir_session::metrics::Metric;
use weir_session::status::Doing;
use weir_session::task::Us;

/// Time a server gets to carry out a cancel request; then the session ends with the statement.
const CANCEL_LIMIT: Duration = Duration::from_secs(10);

/// Time a server gets to say whether a statement waits for a standby.
const ASK_LIMIT: Duration = Duration::from_secs(2);

/// Looks at all sessions of a worker, for its life.
pub async fn watch(w: Rc<Worker>) {
    while w.shared.stop_mode() <= Stop::Smart {
        let period_ms = look_period_ms(&w.peek_config());
        w.reactor.sleep(Duration::from_millis(period_ms)).await;
        let entries: Vec<Rc<Entry>> = w.entries.borrow().values().cloned().collect();
        for entry in entries {
            look_at(&w, &entry);
        }
    }
}

fn look_at(w: &Rc<Worker>, entry: &Rc<Entry>) {
    let Some(pools) = &entry.pools else { return };
    if matches!(*entry.overdue.borrow(), Overdue::Never | Overdue::Asking(_)) {
        return;
    }
    let spent = spent(entry, w.now_us());
    let is_idle = spent.statement.is_none() && !spent.waits;
    match spent.transaction.filter(|_| is_idle).and_then(|ms| held_too_long(entry.clock.held.get(), ms, spent.quiet)) {
        None => {}
        // In the server's words.
        Some(HeldTooLong::Idle) => {
            let text = "terminating connection due to idle-in-transaction timeout";
            return dismiss(w, entry, Fault::fatal(sqlstate::IDLE_IN_TRANSACTION_TIMEOUT, text));
        }
        Some(HeldTooLong::Whole) => {
            let text = "terminating connection due to transaction timeout";
            return dismiss(w, entry, Fault::fatal(sqlstate::TRANSACTION_TIMEOUT, text));
        }
    }
    let mut limits = pools.limits.get();
    limits.idle_ms = entry.clock.idle_ms.get().unwrap_or(limits.idle_ms);
    let overtime = overtime(&limits, &spent);
    if overtime.is_some() && ask_first(w, entry) {
        return;
    }
    match overtime {
        None => {}
        Some(Overtime::Statement { limit_ms }) => cancel(w, entry, limit_ms, spent.statement.unwrap_or(0)),
        Some(Overtime::Transaction { limit_ms }) => {
            let text = format!("terminating connection due to transaction timeout: transaction_timeout = {limit_ms} ms");
            dismiss(w, entry, Fault::fatal(sqlstate::TRANSACTION_TIMEOUT, text));
        }
        Some(Overtime::IdleInTransaction { limit_ms }) => {
            let text =
                format!("terminating connection due to idle-in-transaction timeout: idle_transaction_timeout = {limit_ms} ms");
            dismiss(w, entry, Fault::fatal(sqlstate::IDLE_IN_TRANSACTION_TIMEOUT, text));
        }
        Some(Overtime::Idle { limit_ms }) => {
            let text = format!("terminating connection due to client_idle_limit = {limit_ms} ms");
            dismiss(w, entry, Fault::fatal(sqlstate::IDLE_TIMEOUT, text));
        }
    }
}

fn spent(entry: &Entry, now: Us) -> Spent {
    let ms = |since: Us| now.saturating_sub(since) / 1000;
    let clock = &entry.clock;
    Spent {
        statement: clock.busy_since.get().or(clock.asked_since.get()).map(ms),
        transaction: clock.transaction_since.get().map(ms),
        quiet: ms(entry.active_at.get().max(clock.ready_at.get())),
        waits: entry.status.doing() == Doing::WaitingForConnection,
    }
}

/// A statement on the primary took too long: before anything is done about it the server is asked whether it waits for a standby. True: it is
/// asked. A cancel request would end that wait, and the server would say that the statement is done when no standby has it.
fn ask_first(w: &Rc<Worker>, entry: &Rc<Entry>) -> bool {
    let Some(conn) = entry.conn.borrow().clone() else { return false };
    let since = entry.clock.busy_since.get();
    let commits = match *entry.overdue.borrow() {
        Overdue::No => Commits::No,
        Overdue::Commits => Commits::May,
        Overdue::Cancelling(_) | Overdue::Told | Overdue::Asking(_) | Overdue::Asked(_) | Overdue::Never => return false,
    };
    if since.is_none() || !w.is_primary(conn.address.node) {
        return false;
    }
    *entry.overdue.borrow_mut() = Overdue::Asking(commits);
    let (w, entry) = (w.clone(), entry.clone());
    w.clone().reactor.spawn(async move {
        let waits = waits_for_standby(&w, &conn).await;
        // Another statement may run by now.
        if entry.clock.busy_since.get() == since && matches!(*entry.overdue.borrow(), Overdue::Asking(_)) {
            *entry.overdue.borrow_mut() = if waits { Overdue::Never } else { Overdue::Asked(commits) };
            look_at(&w, &entry);
        }
    });
    true
}

/// True if a server process is known to wait for a synchronous standby. A process that Weir may not look at counts as one that does not wait.
async fn waits_for_standby(w: &Worker, conn: &ConnStatus) -> bool {
    let deadline = Instant::now() + ASK_LIMIT;
    let Ok(mut talk) = inquiry::talk_to(w, &conn.address, deadline).await else { return false };
    let question = format!("SELECT wait_event FROM pg_catalog.pg_stat_get_activity({})", conn.pid);
    let rows = talk.query(w, &conn.address, &question).await.unwrap_or_default();
    talk.socket.close(&w.reactor);
    rows.first().and_then(|row| row.first()).is_some_and(|event| event.as_deref() == Some("SyncRep"))
}

/// Cancels the statement that runs; its client is told why, and goes on. A server that does not obey loses the session.
fn cancel(w: &Rc<Worker>, entry: &Rc<Entry>, limit_ms: u64, spent_ms: u64) {
    let text = format!("canceling statement due to query_timeout = {limit_ms} ms");
    if spent_ms >= limit_ms + CANCEL_LIMIT.as_millis() as u64 {
        let fault = Fault::fatal(sqlstate::QUERY_CANCELED, format!("{text}; the server did not obey"));
        return dismiss(w, entry, fault);
    }
    if !matches!(*entry.overdue.borrow(), Overdue::No | Overdue::Asked(Commits::No)) {
        return;
    }
    if entry.conn.borrow().is_none() {
        return;
    }
    w.count(Metric::Overtimes);
    *entry.overdue.borrow_mut() = Overdue::Cancelling(Fault::error(sqlstate::QUERY_CANCELED, text));
    w.forward_cancel(&entry.handle);
}

/// Ends a session. Cancels the statement that runs for it: the server would not notice the end of the connection before that is done.
fn dismiss(w: &Rc<Worker>, entry: &Rc<Entry>, fault: Fault) {
    if entry.final_error.borrow().is_some() {
        return;
    }
    w.count(Metric::Overtimes);
    let is_asked = entry.clock.busy_since.get().or(entry.clock.asked_since.get()).is_some();
    let commits = matches!(*entry.overdue.borrow(), Overdue::Commits | Overdue::Asked(Commits::May));
    if is_asked && !commits && entry.conn.borrow().is_some() {
        w.forward_cancel(&entry.handle);
    }
    *entry.final_error.borrow_mut() = Some(fault);
    w.reactor.wake(entry.task.get());
}
