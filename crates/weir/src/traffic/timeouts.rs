//! Ends statements, transactions and sessions that take longer than they may. `policy::overtime` decides; this obeys.

use crate::process::shared::Stop;
use crate::process::worker::{Entry, Worker};
use std::rc::Rc;
use std::time::{Duration, Instant};
use weir_policy::timeouts::{Overtime, Spent, look_period_ms, overtime};
use weir_policy::transaction::{HeldTooLong, held_too_long};
use weir_session::fault::{Fault, sqlstate};
use weir_session::handle::Overdue;
use weir_session::metrics::Metric;
use weir_session::status::Doing;

/// Time a server gets to carry out a cancel request; then the session ends with the statement.
const CANCEL_LIMIT: Duration = Duration::from_secs(10);

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
    let now = w.now();
    let spent = spent(entry, now);
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
    match overtime(&limits, &spent) {
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

fn spent(entry: &Entry, now: Instant) -> Spent {
    let ms = |since: Instant| now.saturating_duration_since(since).as_millis() as u64;
    let clock = &entry.clock;
    Spent {
        statement: clock.busy_since.get().or(clock.asked_since.get()).map(ms),
        transaction: clock.transaction_since.get().map(ms),
        quiet: ms(entry.active_at.get().max(clock.ready_at.get())),
        waits: entry.card.doing() == Doing::WaitingForConnection,
    }
}

/// Cancels the statement that runs; its client is told why, and goes on. A server that does not obey loses the session.
fn cancel(w: &Rc<Worker>, entry: &Rc<Entry>, limit_ms: u64, spent_ms: u64) {
    let text = format!("canceling statement due to query_timeout = {limit_ms} ms");
    if spent_ms >= limit_ms + CANCEL_LIMIT.as_millis() as u64 {
        let fault = Fault::fatal(sqlstate::QUERY_CANCELED, format!("{text}; the server did not obey"));
        return dismiss(w, entry, fault);
    }
    if !matches!(*entry.overdue.borrow(), Overdue::No) {
        return;
    }
    if entry.conn.borrow().is_none() {
        return;
    }
    w.count(Metric::Overtimes);
    *entry.overdue.borrow_mut() = Overdue::Cancelling(Fault::error(sqlstate::QUERY_CANCELED, text));
    w.forward_cancel(&entry.handle);
}

/// Ends a session. What runs for it is cancelled: the server would not notice the end of the connection before it is done.
fn dismiss(w: &Rc<Worker>, entry: &Rc<Entry>, fault: Fault) {
    if entry.farewell.borrow().is_some() {
        return;
    }
    w.count(Metric::Overtimes);
    let is_asked = entry.clock.busy_since.get().or(entry.clock.asked_since.get()).is_some();
    if is_asked && entry.conn.borrow().is_some() {
        w.forward_cancel(&entry.handle);
    }
    *entry.farewell.borrow_mut() = Some(fault);
    w.reactor.wake(entry.task.get());
}
