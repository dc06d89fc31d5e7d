//! Statistics of statements by text, user and database (`SHOW pool_statements`).
//!
//! A statement that was seen before finds its row without a hash: the shared facts of its text remember it. Its time is that of
//! `timing`; its rows and bytes are those that pass while it is the first under way.

pub mod answer_tally;
pub mod row_ticket;
pub mod statement_rows;

use crate::account::Account;
use crate::context::Context;
use crate::handle::SessionClock;
use crate::histogram::TimeBucket;
use crate::metrics::WorkerCounter;
use crate::replies::DroppedReplies;
use crate::session::{Session, SessionServer};
use crate::statement_statistics::answer_tally::{AnswerTally, CompleteAnswer, TurnEnd};
use crate::statement_statistics::row_ticket::RowTicket;
use crate::statement_statistics::statement_rows::{StatementRun, StatementSource, rows_of_tag};
use crate::statements::{PreparedStatement, Statement, StatementTrait};
use crate::task::Us;
use crate::unit::StatementMessage;
use crate::upstream::{TakenFor, UpstreamState};
use weir_catalog::rule::RoutingRule;
use weir_wire::frame::{HEADER_BYTES, MessageHeader, split_cstr};

/// Notes a statement that is about to be sent; the message is still the first in the client's lane.
#[inline]
pub fn sent(s: &mut Session, w: &Context, unit: StatementMessage<'_>) {
    if w.seen.is_off() {
        return;
    }
    let ticket = match unit {
        StatementMessage::Query(statement) => match w.seen.known(&s.account, statement) {
            Some(ticket) => ticket,
            None => seat_query(s, w, statement),
        },
        StatementMessage::Execute => match &s.statements.bound {
            Some(prepared) => ticket_of(w, &s.account, prepared),
            None => seat(w, &s.account, &crate::statements::unknown(), StatementSource::OnServer),
        },
        StatementMessage::Call(statement) => seat(w, &s.account, statement, StatementSource::FunctionCall),
        StatementMessage::Parse(prepared) => return count_parse(w, &s.account, prepared),
        StatementMessage::Bind { .. } | StatementMessage::BindUnknown(_) | StatementMessage::Garbled => return,
    };
    let Some(upstream) = s.upstream_mut() else { return };
    if upstream.tally.is_idle() {
        upstream.tally.begin(ticket);
    } else {
        begin_behind(s, w, ticket);
    }
}

#[cold]
fn begin_behind(s: &mut Session, w: &Context, ticket: RowTicket) {
    let Some(SessionServer { upstream, .. }) = &mut s.server else { return };
    if !upstream.replies.has_run_due() {
        count_first(&mut upstream.tally, w, &s.handle.clock, upstream.role);
    }
    upstream.tally.begin(ticket);
}

#[cold]
fn seat_query(s: &Session, w: &Context, statement: &Statement) -> RowTicket {
    let body = s.up.unseen().get(HEADER_BYTES..).unwrap_or_default();
    let text = split_cstr(body).map_or(&[][..], |(text, _)| text);
    seat(w, &s.account, statement, StatementSource::Text(run_by(s, w, statement, text).unwrap_or(text)))
}

/// Returns the text of a statement that an `EXECUTE` runs: see `classify::stands_for`.
fn run_by<'a>(s: &'a Session, w: &Context, statement: &Statement, text: &[u8]) -> Option<&'a [u8]> {
    if statement.has(StatementTrait::Unread) {
        return None;
    }
    let sent = w.statements.borrow_mut().of_text(text);
    let name = sent.runs.as_deref().filter(|_| !std::ptr::eq(&*sent, statement))?;
    s.state.by_sql.query_of(name).map(str::as_bytes)
}

#[inline]
fn ticket_of(w: &Context, account: &Account, prepared: &PreparedStatement) -> RowTicket {
    match w.seen.known(account, &prepared.statement) {
        Some(ticket) => ticket,
        None => seat_prepared(w, account, prepared),
    }
}

#[cold]
fn seat_prepared(w: &Context, account: &Account, prepared: &PreparedStatement) -> RowTicket {
    let text = prepared.text();
    seat(w, account, &prepared.statement, StatementSource::Text(text))
}

#[cold]
fn seat(w: &Context, account: &Account, statement: &Statement, source: StatementSource<'_>) -> RowTicket {
    let (ticket, made_room) = w.seen.seat(account, statement, source);
    w.count_if(made_room, WorkerCounter::StatementsForgotten);
    ticket
}

#[inline]
fn count_parse(w: &Context, account: &Account, prepared: &PreparedStatement) {
    if let Some(row) = w.seen.row(ticket_of(w, account, prepared)) {
        row.count_parse();
    }
}

fn count(w: &Context, ended: CompleteAnswer, role: TakenFor, rule: RoutingRule) {
    let CompleteAnswer { ticket, rows, bytes, us } = ended;
    if let Some(row) = w.seen.row(ticket) {
        row.count(StatementRun { us, bucket: TimeBucket::of(us), rows, bytes, role, rule });
    }
}

/// Counts the statement whose answer is complete, with all earlier ones. It took `us`.
#[inline]
pub fn all_answered(server: &mut Option<SessionServer>, w: &Context, clock: &SessionClock, us: u64, bucket: TimeBucket) {
    if w.seen.is_off() {
        return;
    }
    let Some(SessionServer { upstream, .. }) = server else { return };
    match w.seen.row(upstream.tally.waiting()) {
        Some(row) => {
            let CompleteAnswer { rows, bytes, .. } = upstream.tally.end_all(us);
            row.count(StatementRun { us, bucket, rows, bytes, role: upstream.role, rule: clock.rule.get() });
        }
        None if upstream.tally.is_idle() => {}
        None => count_late(upstream, w, clock, us),
    }
}

/// A statement of a pipeline, or one without a row.
#[cold]
fn count_late(upstream: &mut UpstreamState, w: &Context, clock: &SessionClock, us: u64) {
    let ended = upstream.tally.end_all(us);
    if let Some(ended) = upstream.tally.on_time(ended, w.now_us()) {
        count(w, ended, upstream.role, clock.rule.get());
    }
}

/// Counts a statement that a ReadyForQuery ends while others are under way.
#[cold]
pub fn one_answered(server: &mut Option<SessionServer>, w: &Context, clock: &SessionClock, busy_since: Us) {
    let Some(SessionServer { upstream, .. }) = server else { return };
    let UpstreamState { tally, replies, role, .. } = &mut **upstream;
    // Of executions before a Sync only the last may still have to be counted.
    let is_over = tally.ended_by() == TurnEnd::Query || (!tally.is_queue() && !replies.has_run_due());
    if is_over && let Some(ended) = tally.end_first(busy_since, w.now_us()) {
        count(w, ended, *role, clock.rule.get());
    }
}

/// Counts the first statement under way, whose answer is complete; its ReadyForQuery may come much later.
#[cold]
pub fn count_first(tally: &mut AnswerTally, w: &Context, clock: &SessionClock, role: TakenFor) {
    let now = w.now_us();
    if let Some(ended) = tally.end_first(clock.busy_since.get().unwrap_or(now), now) {
        count(w, ended, role, clock.rule.get());
    }
}

/// Notes the end of an execution, behind its tag.
#[cold]
pub fn executed(s: &mut Session, w: &Context) {
    if let Some(SessionServer { upstream, .. }) = &mut s.server
        && upstream.tally.is_queue()
    {
        count_first(&mut upstream.tally, w, &s.handle.clock, upstream.role);
    }
}

/// Notes a command tag.
#[inline]
pub fn tagged(s: &mut Session, header: MessageHeader) {
    let rows = s.down.whole(header).map_or(0, rows_of_tag);
    s.upstream_mut().into_iter().for_each(|upstream| upstream.tally.note_rows(rows));
}

/// Notes an error of the server's. `is_last`: its connection ends.
#[cold]
pub fn failed(
    upstream: &mut UpstreamState,
    w: &Context,
    clock: &SessionClock,
    dropped: DroppedReplies,
    sqlstate: &[u8],
    is_last: bool,
) {
    let UpstreamState { tally, replies, role, .. } = upstream;
    let is_query = dropped.runs == 0 && replies.is_query_next();
    if dropped.runs == 0 && !is_query {
        return;
    }
    if let Some(row) = w.seen.row(tally.first()) {
        row.count_error(sqlstate);
    }
    // Statements behind it do not run.
    tally.drop_behind((dropped.runs as usize).saturating_sub(1));
    if !is_query || is_last {
        count_first(tally, w, clock, *role);
    }
}

/// Counts a statement answered from memory; `answer`: up to its command tag. `prepared_now`: by a Parse of its own.
pub fn answered_by_cache(s: &Session, w: &Context, statement: CachedStatement<'_>, answer: &[u8]) {
    if w.seen.is_off() {
        return;
    }
    let ticket = match statement {
        CachedStatement::Query(statement) => w.seen.known(&s.account, statement).unwrap_or_else(|| seat_query(s, w, statement)),
        CachedStatement::Prepared(prepared) | CachedStatement::PreparedNow(prepared) => ticket_of(w, &s.account, prepared),
    };
    let Some(row) = w.seen.row(ticket) else { return };
    row.count_hit(rows_of_tag(answer), answer.len() as u64);
    if let CachedStatement::PreparedNow(_) = statement {
        row.count_parse();
    }
}

#[derive(Clone, Copy)]
pub enum CachedStatement<'a> {
    Query(&'a Statement),
    Prepared(&'a PreparedStatement),
    /// With a Parse in the same batch.
    PreparedNow(&'a PreparedStatement),
}
