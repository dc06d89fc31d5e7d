//! Client messages: answered, held, or sent to a server.
//!
//! A held message stays in the buffer and is processed again from the start.

use crate::context::Context;
use crate::fault::{ErrorReport, garbled, sqlstate};
use crate::flow::MessageFlow;
use crate::loss::owed_error;
use crate::metrics::WorkerCounter;
use crate::plan::{self, MessagePlan};
use crate::replies::ExpectedReply;
use crate::routing::classify;
use crate::session::{IDLE, MessageSkip, MisreadExtent, PreparedChange, Session, SessionServer, SubstituteFault};
use crate::sharding::{batch_steps, copy_steps, engine_snapshots, savepoints, write_steps};
use crate::statements::{self, Statement};
use crate::status::SessionActivity;
use crate::unit::StatementMessage;
use crate::upstream::FlushOrigin;
use crate::upstream::prepared_changes::{LongUnnamed, StatementHold};
use crate::{checkout, extended, own_answers, query_cache, read_retry, rerun, session_state, signals, statement_log};
use std::rc::Rc;
use weir_wire::frame::{MessageHeader, front};
use weir_wire::write;

/// Delivers notifications from the hub, if the client may get them now.
#[inline]
pub fn notify(s: &mut Session, w: &Context) -> Result<bool, ErrorReport> {
    if s.state.listening.as_ref().is_none_or(|subscription| subscription.inbox.is_empty()) {
        return Ok(false);
    }
    let was_holding = session_state::is_holding(s);
    let said = session_state::deliver(s, w)?;
    if was_holding && !session_state::is_holding(s) {
        s.show_doing();
    }
    Ok(said)
}

#[inline]
pub fn on_client(s: &mut Session, w: &Context, header: MessageHeader) -> Result<MessageFlow, ErrorReport> {
    if rerun::is_on(s) || s.intake.replay.is_some() { on_kept(s, w, header) } else { decide_on(s, w, header) }
}

#[cold]
fn on_kept(s: &mut Session, w: &Context, header: MessageHeader) -> Result<MessageFlow, ErrorReport> {
    let mark = match rerun::keep(s, w, header) {
        Ok(mark) => mark,
        Err(flow) => return Ok(flow),
    };
    let flow = decide_on(s, w, header);
    rerun::kept(s, header, &mark, &flow);
    flow
}

fn decide_on(s: &mut Session, w: &Context, header: MessageHeader) -> Result<MessageFlow, ErrorReport> {
    if (s.intake.skip() != MessageSkip::No || s.replies().is_skipping()) && is_skippable(header.tag) {
        if s.intake.skip() != MessageSkip::Owes {
            query_cache::skipped(s);
            statement_log::passed(s, w, header);
            s.up.eat(header);
            return Ok(MessageFlow::Next);
        }
        if let Some(flow) = owed_error::tell(s, w, header)? {
            return Ok(flow);
        }
    }
    let is_copy = matches!(header.tag, front::COPY_DATA | front::COPY_DONE | front::COPY_FAIL);
    s.intake.in_copy_message = is_copy;
    if s.replies().is_copying_in() && !is_copy && !matches!(header.tag, front::FLUSH | front::SYNC | front::TERMINATE) {
        return Err(misplaced(s, w, header.tag));
    }
    // Within a copy Weir can send no message of its own.
    if !(is_copy && s.replies().is_copying_in()) && must_hold(s) {
        return Ok(checkout::hold(s, w));
    }
    if w.shared.session_statuses.suspension.is_on() && is_suspended(s, header.tag) {
        return Ok(MessageFlow::Hold);
    }
    statement_log::came(s, w, header);
    let mark = read_retry::is_there(s, w).then(|| read_retry::keep(s, header));
    let flow = decide(s, w, header);
    let is_done = matches!(flow, Ok(MessageFlow::Next));
    if let Some(mark) = mark {
        read_retry::kept(s, header, &mark, is_done);
    }
    s.intake.is_message_logged &= !is_done;
    flow
}

fn decide(s: &mut Session, w: &Context, header: MessageHeader) -> Result<MessageFlow, ErrorReport> {
    match header.tag {
        front::QUERY | front::FUNCTION_CALL if s.sharding.has_batch() => Ok(refuse_in_batch(s, w, header)),
        front::QUERY => on_query(s, w, header),
        front::PARSE => query_cache::on_batch(s, w).map_or_else(|| extended::on_parse(s, w, header), Ok),
        front::BIND => query_cache::on_batch(s, w).map_or_else(|| extended::on_bind(s, w, header), Ok),
        front::DESCRIBE => check_name(w, header).and_then(|()| extended::on_describe(s, w, header)),
        front::EXECUTE => extended::check_small(header).and_then(|()| extended::on_execute(s, w, header)),
        front::CLOSE => check_name(w, header).and_then(|()| extended::on_close(s, w, header)),
        front::FLUSH if header.body_bytes > 0 => on_garbled_flush(s, w, header),
        front::FLUSH => {
            if let Some(upstream) = s.upstream_mut().filter(|upstream| upstream.flushed == FlushOrigin::No) {
                upstream.flushed = FlushOrigin::ByClient;
            }
            Ok(pass_if_connected(s, w, header))
        }
        front::SYNC if header.body_bytes > 0 => on_garbled_sync(s, w, header),
        front::SYNC => Ok(on_sync(s, w, header)),
        front::COPY_DATA if copy_steps::takes_rows(s) => Ok(copy_steps::on_data(s, w, header)),
        front::COPY_DONE | front::COPY_FAIL if copy_steps::takes_rows(s) => Ok(copy_steps::on_end(s, w, header)),
        front::COPY_DATA => {
            note_copied_ahead(s);
            let flow = pass_if_connected(s, w, header);
            if s.has_server() && !statement_log::logs_messages(s, w) {
                s.up.pass_run(front::COPY_DATA, &w.buffers);
            }
            Ok(flow)
        }
        front::COPY_DONE | front::COPY_FAIL => {
            if let Some(upstream) = s.upstream_mut() {
                upstream.is_copied_ahead = false;
                upstream.replies.push(ExpectedReply::CopyEnd);
            }
            Ok(pass_if_connected(s, w, header))
        }
        front::FUNCTION_CALL => on_function_call(s, w, header),
        front::TERMINATE => {
            s.up.eat(header);
            s.up.drop_unseen();
            s.intake.leave();
            Ok(MessageFlow::Next)
        }
        other => Err(ErrorReport::fatal(sqlstate::PROTOCOL_VIOLATION, format!("invalid frontend message type {other}"))),
    }
}

/// Messages that a server skips up to a Sync after an error.
fn is_skippable(tag: u8) -> bool {
    matches!(
        tag,
        front::QUERY
            | front::PARSE
            | front::BIND
            | front::DESCRIBE
            | front::EXECUTE
            | front::CLOSE
            | front::FLUSH
            | front::FUNCTION_CALL
            | front::COPY_DATA
            | front::COPY_DONE
            | front::COPY_FAIL
    )
}

/// Ends the session for a foreign message within a copy. Source: `CopyGetData` in copyfromparse.c. PostgreSQL up to 13 ignores it.
#[cold]
pub(crate) fn misplaced(s: &mut Session, w: &Context, tag: u8) -> ErrorReport {
    if !s.down.is_mid_message() {
        let text = format!("unexpected message type 0x{tag:02X} during COPY from stdin");
        s.say_error(w, &ErrorReport::error(sqlstate::PROTOCOL_VIOLATION, text));
    }
    ErrorReport::fatal(sqlstate::PROTOCOL_VIOLATION, "terminating connection because protocol synchronization was lost")
}

/// Allows names as long as in a Parse, since Weir renames them. Messages passed unchanged must be small.
#[inline]
fn check_name(w: &Context, header: MessageHeader) -> Result<(), ErrorReport> {
    // Kind byte and final zero.
    let is_held = header.body_bytes as usize <= extended::names_bytes_max(w) + 2;
    if is_held { Ok(()) } else { extended::check_small(header) }
}

/// True if messages wait: for a session-wide command, replies, or a cancel request, whose signal may come more than once and hit
/// the next statement. `PQcancel` too waits until the server closes.
fn must_hold(s: &mut Session) -> bool {
    let Some(SessionServer { upstream, .. }) = &mut s.server else {
        return session_state::is_holding(s) || s.intake.doubt.is_some();
    };
    if upstream.lets_barrier_fall() {
        (upstream.is_command_bound, upstream.brought.claim) = (false, StatementHold::No);
    }
    let is_cancelling = s.handle.cancels.get() > 0 && upstream.replies.is_empty();
    let is_ending = upstream.final_error.is_some();
    upstream.holds_messages() || is_cancelling || is_ending || session_state::is_holding(s)
}

/// True if a message begins an exchange; during a suspension others go on. A session that executes without a reply due is retried
/// by Weir.
#[cold]
fn is_suspended(s: &Session, tag: u8) -> bool {
    let replies = s.replies();
    let is_between = !replies.is_unsynced() && !replies.is_skipping() && !replies.is_copying_in();
    tag != front::TERMINATE && is_between && (!replies.is_empty() || s.handle.status.doing() != SessionActivity::Executing)
}

/// Drops a Sync within a copy. A server ignores it while it reads data, but answers it if the copy has failed: later answers would
/// be taken for those of other messages, or reach another client.
fn on_sync(s: &mut Session, w: &Context, header: MessageHeader) -> MessageFlow {
    if s.replies().is_copying_in() || copy_steps::takes_rows(s) {
        s.up.eat(header);
        return MessageFlow::Next;
    }
    if s.upstream().is_some_and(|upstream| upstream.is_copied_ahead && !upstream.replies.is_empty()) {
        // A copy may be running.
        return checkout::hold(s, w);
    }
    if let Some(upstream) = s.upstream_mut() {
        upstream.is_copied_ahead = false;
    }
    extended::on_sync(s, w, header)
}

/// A server answers with an error and ReadyForQuery; within a copy it ignores the content.
#[cold]
fn on_garbled_sync(s: &mut Session, w: &Context, header: MessageHeader) -> Result<MessageFlow, ErrorReport> {
    extended::check_small(header)?;
    Ok(if s.up.has_whole(header.frame_bytes()) { on_sync(s, w, header) } else { MessageFlow::More })
}

/// Within a copy a server ignores the content.
#[cold]
fn on_garbled_flush(s: &mut Session, w: &Context, header: MessageHeader) -> Result<MessageFlow, ErrorReport> {
    let Some(_) = s.up.whole(header) else { return extended::check_small(header).map(|()| MessageFlow::More) };
    if s.replies().is_copying_in() {
        s.up.eat(header);
        return Ok(MessageFlow::Next);
    }
    if s.has_server() && !s.replies().is_empty() {
        // A copy may be running.
        return Ok(checkout::hold(s, w));
    }
    extended::refuse(s, w, header, ErrorReport::garbled(garbled::MORE_THAN_MEANT))
}

#[inline]
fn note_copied_ahead(s: &mut Session) {
    if let Some(upstream) = s.upstream_mut() {
        upstream.is_copied_ahead |= !upstream.replies.is_copying_in() && !upstream.replies.is_empty();
    }
}

/// Passes a message, or drops it without a server connection: CopyData after a failed copy, a Flush at rest.
fn pass_if_connected(s: &mut Session, w: &Context, header: MessageHeader) -> MessageFlow {
    if s.has_server() {
        s.up.pass(header, &w.buffers);
    } else {
        s.up.eat(header);
    }
    MessageFlow::Next
}

fn on_query(s: &mut Session, w: &Context, header: MessageHeader) -> Result<MessageFlow, ErrorReport> {
    let limit = w.peek_config().routing.statement_analysis_bytes_max;
    let mut statement = if header.body_bytes as usize > limit {
        Rc::new(statements::unknown())
    } else {
        let Some(body) = s.up.whole(header) else { return Ok(MessageFlow::More) };
        match weir_wire::frame::split_cstr(body) {
            Some((text, [])) => w.statements.borrow_mut().of_text(text),
            // A server refuses more than one string: nothing may be noted.
            Some(_) => return Ok(refuse_garbled(s, w, header, garbled::MORE_THAN_MEANT)),
            None => return Ok(refuse_garbled(s, w, header, garbled::NO_END_OF_STRING)),
        }
    };
    match s.misread(&statement) {
        MisreadExtent::No => {}
        MisreadExtent::Names => statement = Rc::new(other_names(s, w, header)),
        MisreadExtent::Whole => statement = Rc::new(statements::unknown()),
    }
    send_query(s, w, header, statement)
}

#[cold]
fn other_names(s: &mut Session, w: &Context, header: MessageHeader) -> Statement {
    let text = s.up.whole(header).and_then(weir_wire::frame::split_cstr).map_or(&b""[..], |(text, _)| text);
    w.statements.borrow().of_other_names(text)
}

fn send_query(s: &mut Session, w: &Context, header: MessageHeader, statement: Rc<Statement>) -> Result<MessageFlow, ErrorReport> {
    if s.sharding.has_write()
        && let Some(flow) = copy_steps::on_query(s, w, header)
    {
        return Ok(flow);
    }
    if own_answers::is_in_doubt(s, &statement) {
        return Ok(MessageFlow::Hold);
    }
    if let Some(local) = own_answers::is_ours(s, w, &statement) {
        if !s.may_speak() || s.replies().is_unsynced() {
            return Ok(settle_first(s, w));
        }
        if !own_answers::is_fresh(s, w, local) {
            return Ok(MessageFlow::Hold);
        }
        s.statements.drop_unnamed();
        statement_log::answered(s, w);
        own_answers::simple(s, w, &statement, local);
        s.up.eat(header);
        return Ok(MessageFlow::Next);
    }
    if let Some(fault) = checkout::refusal(s, &statement) {
        return Ok(refuse_query(s, w, header, fault));
    }
    if let Some(flow) = query_cache::on_query(s, w, &statement, header) {
        return Ok(flow);
    }
    let statement = classify::stands_for(s, w, statement);
    let unit = StatementMessage::Query(&statement);
    match plan::plan(s, w, unit)? {
        MessagePlan::Ready => plan::note(s, w, header, unit),
        MessagePlan::Later(flow) => return Ok(flow),
        MessagePlan::Refused(fault) => return Ok(refuse_query(s, w, header, fault)),
    }
    w.count(WorkerCounter::StatementsSimple);
    if s.replies().is_settled() {
        s.expect(ExpectedReply::Query);
        s.statements.take_unnamed();
    } else {
        // After an earlier error the query may not run, and the unnamed statement stays.
        s.expect(ExpectedReply::QueryChange);
        let before = s.statements.take_unnamed();
        s.enter(PreparedChange::Unnamed { before, made: None });
    }
    s.statements.note_long_unnamed(LongUnnamed::Not);
    s.statements.close_portal();
    if let Some(conn) = s.conn_mut() {
        conn.unnamed = None;
    }
    write_steps::hold_others(s);
    if w.is_sharded() {
        engine_snapshots::hold_others(s);
        savepoints::note_query(s, &statement);
    }
    if w.is_sharded()
        && (engine_snapshots::send_query(s, w, header) || (s.sharding.has_write() && write_steps::send_last(s, w, header)))
    {
        return Ok(MessageFlow::Next);
    }
    match signals::of_query(s, w, &statement, header) {
        Some((hit, text)) => {
            hit.send(w);
            s.up.eat(header);
            weir_sql::own::check(&text);
            write::query(s.up.extra(&w.buffers), &text);
        }
        None => s.up.pass(header, &w.buffers),
    }
    Ok(MessageFlow::Next)
}

/// Ends a pipeline's implicit transaction by a Sync, for a query that never reaches the server.
fn settle_first(s: &mut Session, w: &Context) -> MessageFlow {
    if s.replies().is_unsynced() && !s.replies().is_skipping() && s.has_server() {
        s.expect(ExpectedReply::SyncOurs);
        weir_wire::write::bare(s.up.extra(&w.buffers), front::SYNC);
        // No message may follow before the answer: an error may change its meaning.
        s.raise_barrier();
    }
    MessageFlow::Hold
}

/// Fails a malformed query. A server with work to undo gets it unchanged; it drops no unnamed statement.
#[cold]
fn refuse_garbled(s: &mut Session, w: &Context, header: MessageHeader, text: &str) -> MessageFlow {
    if !s.has_server() || (s.transaction() == IDLE && !s.replies().is_unsynced()) {
        return refuse_query(s, w, header, ErrorReport::garbled(text));
    }
    plan::note(s, w, header, StatementMessage::Garbled);
    s.expect(ExpectedReply::Query);
    s.up.pass(header, &w.buffers);
    MessageFlow::Next
}

/// Within a transaction the server is made to fail too.
fn refuse_query(s: &mut Session, w: &Context, header: MessageHeader, fault: ErrorReport) -> MessageFlow {
    if s.has_server() && s.transaction() != IDLE {
        weir_wire::write::query(s.up.extra(&w.buffers), "refused by the proxy");
        s.expect(ExpectedReply::QueryRefused);
        if let Some(SessionServer { conn, upstream }) = &mut s.server {
            upstream.brought.refusals.push_back(SubstituteFault { parameters: None, fault });
            // Any simple query drops the unnamed statement.
            conn.unnamed = None;
        }
    } else if !s.may_speak() || s.replies().is_unsynced() {
        return settle_first(s, w);
    } else {
        s.say_error(w, &fault);
        s.say_ready(w);
    }
    query_cache::refused(s, w);
    statement_log::answered(s, w);
    s.up.eat(header);
    MessageFlow::Next
}

/// A Query ends the transaction of the messages before it, which are on several shards.
#[cold]
fn refuse_in_batch(s: &mut Session, w: &Context, header: MessageHeader) -> MessageFlow {
    if !s.has_server() {
        batch_steps::end_without_server(s);
    }
    let flow = refuse_query(s, w, header, batch_steps::cannot_follow("a Query"));
    batch_steps::hold_others(s);
    flow
}

fn on_function_call(s: &mut Session, w: &Context, header: MessageHeader) -> Result<MessageFlow, ErrorReport> {
    let statement = statements::unknown();
    let unit = StatementMessage::Call(&statement);
    match plan::plan(s, w, unit)? {
        MessagePlan::Ready => plan::note(s, w, header, unit),
        MessagePlan::Later(flow) => return Ok(flow),
        MessagePlan::Refused(fault) => return Ok(refuse_query(s, w, header, fault)),
    }
    s.expect(ExpectedReply::FunctionCall);
    s.up.pass(header, &w.buffers);
    Ok(MessageFlow::Next)
}
