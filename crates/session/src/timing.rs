//! Times of a session's statements and transactions, for counters, limits and SHOW.
//!
//! Taken from the event loop's rounds (`Reactor::now`), so that no statement reads the clock.

use crate::context::Context;
use crate::fault::{ErrorReport, sqlstate};
use crate::handle::{OverdueStatement, SessionHandle};
use crate::histogram::{TimeBucket, add};
use crate::lazy_begin::transaction_place::{self, HeldLimits, HeldTooLong};
use crate::session::{IDLE, Session};
use crate::statement_log;
use crate::statement_statistics;
use crate::stats::StatCounter;
use crate::status::SessionActivity;
use crate::task::Us;
use crate::unit::{ReadyStatus, SessionConcern, StatementMessage};
use std::sync::atomic::Ordering;
use std::time::Instant;
use weir_sql::facts::StatementVerb;
use weir_wire::frame::MessageHeader;

pub struct StatementTiming;

impl SessionConcern for StatementTiming {
    #[inline]
    fn sent(s: &mut Session, w: &Context, _: MessageHeader, unit: StatementMessage<'_>) {
        match unit {
            StatementMessage::Query(statement) | StatementMessage::Call(statement) => began(s, w, statement.verb),
            StatementMessage::Execute => {
                let verb = s.statements.bound.as_ref().map_or(StatementVerb::Other, |bound| bound.statement.verb);
                began(s, w, verb);
            }
            StatementMessage::Garbled => asked(s, w),
            StatementMessage::Parse(_) | StatementMessage::Bind { .. } | StatementMessage::BindUnknown(_) => {}
        }
        statement_statistics::sent(s, w, unit);
    }

    #[inline]
    fn ready(s: &mut Session, w: &Context, ended: ReadyStatus) {
        match ended {
            ReadyStatus::ForClient(_) => over(s, w, s.status()),
            ReadyStatus::BySync(_) if s.handle.clock.busy_since.get().is_some() => {
                over(s, w, s.status());
                asked(s, w);
            }
            ReadyStatus::BySync(_) => {}
        }
    }

    fn lost(s: &mut Session, w: &Context) {
        landed(s, w);
        s.handle.clock.busy_since.set(None);
        s.handle.clock.asked_since.set(None);
        if !s.lazy_begin.is_open() {
            s.handle.clock.transaction_since.set(None);
        }
        *s.handle.overdue.borrow_mut() = OverdueStatement::No;
    }
}

/// Returns the server's error when a deferred transaction exceeds a server limit. Call before the client's bytes count as a sign of life.
pub fn held_too_long(handle: &SessionHandle, now: Us) -> Option<ErrorReport> {
    let clock = &handle.clock;
    let limits = clock.held.get();
    if limits == HeldLimits::default() || clock.busy_since.get().or(clock.asked_since.get()).is_some() {
        return None;
    }
    let whole_ms = now.saturating_sub(clock.transaction_since.get()?) / 1000;
    let idle_ms = now.saturating_sub(handle.active_at.get().max(clock.ready_at.get())) / 1000;
    Some(match transaction_place::held_too_long(limits, whole_ms, idle_ms)? {
        HeldTooLong::Idle => {
            ErrorReport::fatal(sqlstate::IDLE_IN_TRANSACTION_TIMEOUT, "terminating connection due to idle-in-transaction timeout")
        }
        HeldTooLong::Whole => {
            ErrorReport::fatal(sqlstate::TRANSACTION_TIMEOUT, "terminating connection due to transaction timeout")
        }
    })
}

#[inline]
fn began(s: &mut Session, w: &Context, verb: StatementVerb) {
    let now = w.now_us();
    let clock = &s.handle.clock;
    if clock.busy_since.get().is_none() {
        clock.busy_since.set(Some(now));
        s.handle.status.set_doing(SessionActivity::Executing);
    }
    if clock.transaction_since.get().is_none() {
        clock.transaction_since.set(Some(now));
    }
    let status = &s.handle.status;
    add(&status.statements, 1);
    status.active_ms.store(w.now_ms(), Ordering::Relaxed);
    status.prepared.store(s.statements.named.count() as u32, Ordering::Relaxed);
    s.account.stats.add(StatCounter::Statements, 1);
    if let Some(conn) = s.conn() {
        let node = conn.status.address.node;
        w.counters().count_statement(node, verb);
        if clock.rule.get().is_of_read() && clock.flight.get().is_none() {
            clock.flight.set(Some(node));
            w.loads.begin(node);
        }
        conn.status.last.began_ms.store(w.now_ms(), Ordering::Relaxed);
        conn.status.prepared.store(conn.known.len() as u32, Ordering::Relaxed);
    }
}

/// Notes that the client waits for the server, with a statement or without.
#[inline]
pub fn asked(s: &Session, w: &Context) {
    let clock = &s.handle.clock;
    if clock.busy_since.get().is_none() && clock.asked_since.get().is_none() {
        clock.asked_since.set(Some(w.now_us()));
    }
}

/// Notes the server's ReadyForQuery.
#[inline]
fn over(s: &mut Session, w: &Context, status: u8) {
    let now = w.now_us();
    // The client does not wait for Weir's own question.
    let has_more = !s.replies().is_only_ours();
    let clock = &s.handle.clock;
    let is_marked = !matches!(*s.handle.overdue.borrow(), OverdueStatement::No);
    // A COMMIT may follow the statement that ended.
    if is_marked && !(has_more && matches!(*s.handle.overdue.borrow(), OverdueStatement::Commits)) {
        *s.handle.overdue.borrow_mut() = OverdueStatement::No;
    }
    clock.ready_at.set(now);
    clock.asked_since.set(None);
    let Some(since) = clock.busy_since.replace(has_more.then_some(now)) else {
        // Only a Parse or a failed Bind: no statement ran.
        if status == IDLE && !has_more {
            clock.transaction_since.set(None);
        }
        return;
    };
    let stats = &s.account.stats;
    let us = now.saturating_sub(since);
    stats.add(StatCounter::StatementUs, us);
    let bucket = TimeBucket::of(us);
    stats.statements.note_in(bucket, us);
    statement_log::ended(s, w, us);
    if has_more {
        statement_statistics::one_answered(&mut s.server, w, clock, since);
    } else {
        statement_statistics::all_answered(&mut s.server, w, clock, us, bucket);
    }
    if let Some(conn) = s.conn() {
        w.counters().note_time(conn.status.address.node, bucket, us);
    }
    if let Some(node) = clock.flight.get() {
        w.loads.note(node, us);
        if !has_more {
            landed(s, w);
        }
    }
    if status == IDLE
        && let Some(began) = clock.transaction_since.replace(has_more.then_some(now))
    {
        stats.add(StatCounter::Transactions, 1);
        stats.add(StatCounter::TransactionUs, if began == since { us } else { now.saturating_sub(began) });
    }
}

/// Notes that no read of the session is under way.
fn landed(s: &Session, w: &Context) {
    if let Some(node) = s.handle.clock.flight.take() {
        w.loads.end(node);
    }
}

/// Returns the error in place of "statement cancelled" if a time limit was the cause.
pub fn overdue(entry: &SessionHandle, sqlstate: &[u8]) -> Option<ErrorReport> {
    if sqlstate != crate::fault::sqlstate::QUERY_CANCELED.as_bytes() {
        return None;
    }
    let mut overdue = entry.overdue.borrow_mut();
    if !matches!(*overdue, OverdueStatement::Cancelling(_)) {
        return None;
    }
    match std::mem::replace(&mut *overdue, OverdueStatement::Told) {
        OverdueStatement::Cancelling(fault) => Some(*fault),
        OverdueStatement::No
        | OverdueStatement::Told
        | OverdueStatement::Commits
        | OverdueStatement::Asking(_)
        | OverdueStatement::Asked(_)
        | OverdueStatement::Never => None,
    }
}

/// Notes the end of a wait for a server connection, whatever its result.
pub fn waited(s: &Session, w: &Context, since: Instant) {
    let us = w.now().saturating_duration_since(since).as_micros() as u64;
    s.account.stats.add(StatCounter::WaitUs, us);
    s.account.stats.waits.note(us);
    s.handle.clock.waited_us.set(us);
}
