//! THE hot path: moves what a client says to a server and what the server says back.
//!
//! One task per session looks at both sockets; a full socket stops reading on the other side, so that a session never holds more
//! than its two lanes. In the steady state a statement costs two reads, two writes and no allocation (`tests/no_alloc.rs`).

mod from_server;
mod owed;

use crate::client::flow::{Flow, Need};
use crate::client::session::{Change, IDLE, Presence, Refusal, Server, Session, Skip};
use crate::client::session_state;
use crate::client::statements::{self, Statement};
use crate::client::upstream::Gate;
use crate::client::upstream::changes::Claim;
use crate::monitor::fault::{Fault, Severity, garbled, sqlstate};
use crate::monitor::log::{Level, Who};
use crate::monitor::metrics::Metric;
use crate::monitor::statement_log;
use crate::monitor::stats::Stat;
use crate::process::worker::Worker;
use crate::traffic::answer;
use crate::traffic::checkout;
use crate::traffic::classify;
use crate::traffic::extended;
use crate::traffic::plan::{self, Planned};
use crate::traffic::query_cache;
use crate::traffic::read_retry;
use crate::traffic::signals;
use crate::traffic::teardown;
use crate::traffic::timing;
use crate::traffic::unit::Unit;
use from_server::{pump_server, show_doing};
use std::rc::Rc;
use weir_io::reactor::parked;
use weir_io::socket::Got;
use weir_policy::replies::Expect;
use weir_wire::frame::{Header, front};
use weir_wire::write;

/// Why a session ends.
pub enum End {
    /// The client left.
    Client,
    /// The client is told why.
    Fault(Fault),
}

/// Rounds of moving before other sessions get their turn.
const ROUNDS_MAX: u32 = 16;

/// Serves one client until it leaves. Runs as the session's own task. Not cancel safe: it owns the server connection.
pub async fn serve(mut s: Box<Session>, w: Rc<Worker>) {
    s.client.set_task(w.reactor.current_task());
    s.entry.task.set(w.reactor.current_task());
    let end = loop {
        // Also before the first step: a login may have waited.
        if let Some(farewell) = s.entry.farewell.borrow_mut().take() {
            break End::Fault(farewell);
        }
        match step_on(&mut s, &w) {
            Step::Park => parked().await,
            Step::Yield => {
                w.reactor.wake(w.reactor.current_task());
                parked().await;
            }
            // Boxed: the room a wait takes is not held by sessions that do not wait.
            Step::Need(need) => match Box::pin(checkout::wait(&mut s, &w, need)).await {
                Ok(()) => continue,
                // The wait was cancelled: only the statement that waited fails.
                Err(fault) if fault.severity == Severity::Error => match fail_next(&mut s, &w, &fault) {
                    Ok(()) => continue,
                    Err(fault) => break End::Fault(fault),
                },
                Err(fault) => break End::Fault(fault),
            },
            Step::End(end) => break end,
        }
    };
    if let End::Fault(fault) = &end {
        let who =
            Who { user: &s.pools.client_user, database: &s.pools.client_database, session: s.entry.card.pid, ..Who::default() };
        w.shared.log.write(Level::Log, &who, format_args!("session ends: {fault}"));
        // In the middle of a server's message there is nothing a client could read; it sees the connection close.
        if !s.down.is_mid_message() {
            s.say_error(&w, fault);
        }
        let _ = s.down.drain(&s.client, &w.reactor);
    }
    teardown::let_go(&mut s, &w);
    if matches!(end, End::Fault(_)) {
        Box::pin(teardown::tell_all(&mut s, &w)).await;
    }
    teardown::dismiss(*s, &w);
}

/// Fails the message that is next, which no server has seen.
fn fail_next(s: &mut Session, w: &Worker, fault: &Fault) -> Result<(), Fault> {
    let header = s.up.peek(&w.buffers).map_err(|e| Fault::fatal(sqlstate::PROTOCOL_VIOLATION, e.to_string()))?;
    let Some(header) = header else { return Ok(()) };
    s.up.eat(header);
    query_cache::refused(s, w);
    s.say_error(w, fault);
    if matches!(header.tag, front::QUERY | front::FUNCTION_CALL) {
        s.say_ready(w);
    } else {
        s.intake.skip = Skip::ToSync;
    }
    Ok(())
}

/// What a session's task does next.
enum Step {
    /// Nothing can be moved until something arrives.
    Park,
    /// There is more to move, but others come first.
    Yield,
    /// The next message needs a server connection that is not at hand.
    Need(Need),
    End(End),
}

/// Moves what can be moved in both directions.
fn step_on(s: &mut Session, w: &Rc<Worker>) -> Step {
    for _ in 0..ROUNDS_MAX {
        if let Err(fault) = notify(s, w) {
            return Step::End(End::Fault(fault));
        }
        let had_server = s.has_server();
        let from_client = match pump_client(s, w) {
            Ok(Pumped::Moved) => true,
            Ok(Pumped::Nothing) => false,
            Ok(Pumped::Need(need)) => return Step::Need(need),
            Ok(Pumped::Left) => return Step::End(End::Client),
            Err(fault) => return Step::End(End::Fault(fault)),
        };
        // A server connection that broke while something was sent over it may have left messages of the client's to be sent again. No event tells of them.
        let is_lost = had_server && !s.has_server();
        match pump_server(s, w) {
            Ok(from_server) if (from_client || from_server || is_lost) && has_more(s, from_server || is_lost) => {}
            Ok(_) => match notify(s, w) {
                Ok(true) => {}
                Ok(false) => return Step::Park,
                Err(fault) => return Step::End(End::Fault(fault)),
            },
            Err(fault) => return Step::End(End::Fault(fault)),
        }
    }
    Step::Yield
}

/// Tells the client of notifications that came apart from its server connection, if there are any and it may hear of them now.
#[inline]
fn notify(s: &mut Session, w: &Worker) -> Result<bool, Fault> {
    if s.state.listening.as_ref().is_none_or(|subscription| subscription.inbox.is_empty()) {
        return Ok(false);
    }
    let was_holding = session_state::is_holding(s);
    let said = session_state::deliver(s, w)?;
    if was_holding && !session_state::is_holding(s) {
        show_doing(s);
    }
    Ok(said)
}

/// True if another round can move something: bytes have arrived since, or what waited for replies may go on.
fn has_more(s: &Session, from_server: bool) -> bool {
    if s.down.has_pending() {
        return false;
    }
    let server_spoke = s.conn().is_some_and(|conn| conn.socket.is_readable());
    let client_spoke = !s.intake.presence.has_left() && s.client.is_readable();
    server_spoke || (!s.up.has_pending() && (client_spoke || s.intake.presence.has_left() || (from_server && s.up.has_unseen())))
}

/// What became of the client's bytes.
enum Pumped {
    Moved,
    Nothing,
    Need(Need),
    /// The client is gone or said goodbye.
    Left,
}

/// Moves all the client has sent as far as it can go.
fn pump_client(s: &mut Session, w: &Rc<Worker>) -> Result<Pumped, Fault> {
    if s.is_quiet() {
        settle(s, w)?;
        return Ok(Pumped::Nothing);
    }
    // A client that does not read is not listened to either, as PostgreSQL does: nothing we say can pile up.
    if s.down.has_pending() && !drain_down(s, w)? {
        return Ok(Pumped::Nothing);
    }
    if !drain_up(s, w)? {
        return Ok(Pumped::Nothing);
    }
    let mut progressed = fill_up(s, w);
    if !s.intake.presence.has_left() && !progressed && !s.up.has_unseen() {
        settle(s, w)?;
        return Ok(Pumped::Nothing);
    }
    let (mut need, mut held) = (None, false);
    loop {
        // Only answers of our own wait here: one at a time, so that asking without reading piles nothing up.
        if s.down.has_pending() && !drain_down(s, w)? {
            held = true;
            break;
        }
        let header = s.up.peek(&w.buffers);
        let header = header.map_err(|e| Fault::fatal(sqlstate::PROTOCOL_VIOLATION, e.to_string()))?;
        let Some(header) = header else { break };
        match on_client(s, w, header)? {
            Flow::Next => progressed = true,
            Flow::More => break,
            Flow::Hold => {
                if s.is_gate_shut() {
                    // What it waits for is ours, but it is the client that waits.
                    timing::asked(s, w);
                }
                held = true;
                break;
            }
            Flow::Need(wanted) => {
                need = Some(wanted);
                break;
            }
        }
    }
    s.up.rest_if_empty(&w.buffers);
    let is_sent = drain_up(s, w)?;
    drain_down(s, w)?;
    // What a client sent before it left is carried out, and answered, since it may only have ended its own sending; a message it
    // never finished is not.
    let unfinished = usize::from(s.up.is_mid_message() && !s.intake.in_copy_message);
    let waits = (held && !s.replies().is_copying_in()) || s.replies().will_answer(unfinished) || session_state::is_holding(s);
    // What is held must reach the server, whoever hears of it.
    let may_end = s.replies().is_only_ours() || (is_sent && !held);
    let waits = waits && !(s.intake.presence.has_left() && may_end && teardown::is_in_vain(s, w));
    if s.intake.presence.has_left()
        && is_sent
        && !waits
        && need.is_none()
        && !s.down.has_pending()
        && s.client.is_sent(&w.reactor)
    {
        return Ok(Pumped::Left);
    }
    settle(s, w)?;
    Ok(match need {
        Some(need) => Pumped::Need(need),
        None if progressed => Pumped::Moved,
        None => Pumped::Nothing,
    })
}

/// Looks at a server connection that may be at rest now, and sends what it is asked then: nothing else would, if the client says no more.
fn settle(s: &mut Session, w: &Rc<Worker>) -> Result<(), Fault> {
    session_state::settle(s, w);
    drain_up(s, w).map(drop)
}

/// Reads from the client. True when something came.
fn fill_up(s: &mut Session, w: &Worker) -> bool {
    if s.intake.presence.has_left() {
        return false;
    }
    match s.up.fill(&s.client, &w.reactor) {
        Ok(Got::Bytes(bytes)) => {
            s.pools.stats.add(Stat::Received, bytes as u64);
            s.entry.active_at.set(w.reactor.now());
            true
        }
        Ok(Got::Nothing) => false,
        Ok(Got::End) | Err(_) => {
            s.intake.presence = Presence::Left;
            false
        }
    }
}

fn drain_up(s: &mut Session, w: &Rc<Worker>) -> Result<bool, Fault> {
    if !s.up.has_pending() {
        return Ok(true);
    }
    let sent = match &s.server {
        Some(server) => s.up.drain(&server.conn.socket, &w.reactor),
        None => return Err(Fault::fatal(sqlstate::CONNECTION_FAILURE, "no server connection for what was to be sent")),
    };
    match sent {
        Ok(all) => Ok(all),
        // What the server said before it went is read first; the end of file follows.
        Err(_) => {
            s.up.forget_pending(&w.buffers);
            pump_server(s, w)?;
            if s.has_server() {
                teardown::conn_lost(s, w, "the connection broke")?;
            }
            Ok(true)
        }
    }
}

fn drain_down(s: &mut Session, w: &Worker) -> Result<bool, Fault> {
    let sent = s.down.drain(&s.client, &w.reactor);
    sent.map_err(|cause| Fault::fatal(sqlstate::CONNECTION_FAILURE, format!("could not send to the client: {cause}")))
}

/// Decides on one message of the client.
fn on_client(s: &mut Session, w: &Rc<Worker>, header: Header) -> Result<Flow, Fault> {
    if (s.intake.skip != Skip::No || s.replies().is_skipping()) && is_skippable(header.tag) {
        if s.intake.skip != Skip::Owes {
            // It may have waited.
            query_cache::skipped(s);
            statement_log::passed(s, w, header);
            s.up.eat(header);
            return Ok(Flow::Next);
        }
        if let Some(flow) = owed::tell(s, w, header)? {
            return Ok(flow);
        }
    }
    let is_copy = matches!(header.tag, front::COPY_DATA | front::COPY_DONE | front::COPY_FAIL);
    s.intake.in_copy_message = is_copy;
    if s.replies().is_copying_in() && !is_copy && !matches!(header.tag, front::FLUSH | front::SYNC | front::TERMINATE) {
        return Err(misplaced(s, w, header.tag));
    }
    // Outside of a copy such messages wait like others: in the middle of one nothing of ours could be sent.
    if !(is_copy && s.replies().is_copying_in()) && must_hold(s) {
        return Ok(checkout::hold(s, w));
    }
    statement_log::came(s, w, header);
    let mark = read_retry::is_there(s, w).then(|| read_retry::keep(s, header));
    let flow = decide(s, w, header);
    let is_done = flow == Ok(Flow::Next);
    if let Some(mark) = mark {
        read_retry::kept(s, header, &mark, is_done);
    }
    s.intake.is_message_logged &= !is_done;
    flow
}

fn decide(s: &mut Session, w: &Rc<Worker>, header: Header) -> Result<Flow, Fault> {
    match header.tag {
        front::QUERY => on_query(s, w, header),
        front::PARSE => query_cache::on_batch(s, w).map_or_else(|| extended::on_parse(s, w, header), Ok),
        front::BIND => query_cache::on_batch(s, w).map_or_else(|| extended::on_bind(s, w, header), Ok),
        front::DESCRIBE => check_small(header).and_then(|()| extended::on_describe(s, w, header)),
        front::EXECUTE => check_small(header).and_then(|()| extended::on_execute(s, w, header)),
        front::CLOSE => check_small(header).and_then(|()| extended::on_close(s, w, header)),
        front::FLUSH if header.body_bytes > 0 => on_garbled_flush(s, w, header),
        front::FLUSH => Ok(pass_if_linked(s, w, header)),
        front::SYNC if header.body_bytes > 0 => on_garbled_sync(s, w, header),
        front::SYNC => Ok(on_sync(s, w, header)),
        front::COPY_DATA => {
            note_copied_ahead(s);
            let flow = pass_if_linked(s, w, header);
            if s.has_server() {
                s.up.pass_run(front::COPY_DATA, &w.buffers);
            }
            Ok(flow)
        }
        front::COPY_DONE | front::COPY_FAIL => {
            if let Some(upstream) = s.upstream_mut() {
                upstream.is_copied_ahead = false;
                upstream.replies.push(Expect::CopyEnd);
            }
            Ok(pass_if_linked(s, w, header))
        }
        front::FUNCTION_CALL => on_function_call(s, w, header),
        front::TERMINATE => {
            s.up.eat(header);
            s.up.drop_unseen();
            s.intake.presence = Presence::Left;
            Ok(Flow::Next)
        }
        other => Err(Fault::fatal(sqlstate::PROTOCOL_VIOLATION, format!("invalid frontend message type {other}"))),
    }
}

/// Messages that a server skips after an error, up to a Sync. Others end the session, then as ever.
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

/// A message in a copy that is no part of it: the session ends, in a server's words. Source: `CopyGetData` in copyfromparse.c. Up to version
/// 13 a server forgets the message and goes on.
#[cold]
fn misplaced(s: &mut Session, w: &Worker, tag: u8) -> Fault {
    if !s.down.is_mid_message() {
        let text = format!("unexpected message type 0x{tag:02X} during COPY from stdin");
        s.say_error(w, &Fault::error(sqlstate::PROTOCOL_VIOLATION, text));
    }
    Fault::fatal(sqlstate::PROTOCOL_VIOLATION, "terminating connection because protocol synchronization was lost")
}

/// Longest message that can only hold a name. Source: `PQ_SMALL_MESSAGE_LIMIT` in PostgreSQL's libpq.h.
const SMALL_BYTES_MAX: u32 = 10_000;

/// A client that announces a gigabyte for a name must not have us make room for it.
#[inline]
fn check_small(header: Header) -> Result<(), Fault> {
    if header.body_bytes > SMALL_BYTES_MAX {
        let text = format!("invalid length of message type \"{}\": {}", header.tag.escape_ascii(), header.body_bytes);
        return Err(Fault::fatal(sqlstate::PROTOCOL_VIOLATION, text));
    }
    Ok(())
}

/// True if messages wait: for a command on the whole session to end, for replies to come in, or for a cancel request to be over. A
/// server sends the signal for it more than once, so that the next statement could be hit; who asks a server itself waits as well
/// (`PQcancel` returns when the server has closed the connection).
fn must_hold(s: &mut Session) -> bool {
    let Some(Server { upstream, .. }) = &mut s.server else { return session_state::is_holding(s) };
    let before = upstream.gate;
    upstream.gate = before.after(&upstream.replies);
    if before == Gate::Barrier && upstream.gate == Gate::Open {
        (upstream.is_command_bound, upstream.brought.claim) = (false, Claim::No);
    }
    let is_cancelling = s.entry.cancels.get() > 0 && upstream.replies.is_empty();
    // To a server that has said that it goes nothing more is sent.
    let is_ending = upstream.final_error.is_some();
    upstream.gate.is_shut(&upstream.replies) || is_cancelling || is_ending || session_state::is_holding(s)
}

/// A server that reads a copy's data ignores a Sync, but answers one if the copy has failed by then, which only it knows. So none gets there
/// in the middle of a copy's data: an answer that we did not count on would be taken for another one, and the rest for another client's.
fn on_sync(s: &mut Session, w: &Worker, header: Header) -> Flow {
    if s.replies().is_copying_in() {
        s.up.eat(header);
        return Flow::Next;
    }
    if s.upstream().is_some_and(|upstream| upstream.is_copied_ahead && !upstream.replies.is_empty()) {
        // Whether there is a copy is not known yet.
        return checkout::hold(s, w);
    }
    if let Some(upstream) = s.upstream_mut() {
        upstream.is_copied_ahead = false;
    }
    extended::on_sync(s, w, header)
}

/// A server answers it by an error and a ReadyForQuery; within a copy it does not look at what a Sync holds.
#[cold]
fn on_garbled_sync(s: &mut Session, w: &Worker, header: Header) -> Result<Flow, Fault> {
    check_small(header)?;
    Ok(if s.up.has_whole(header.frame_bytes()) { on_sync(s, w, header) } else { Flow::More })
}

/// Within a copy a server does not look at what a Flush holds; elsewhere that is an error.
#[cold]
fn on_garbled_flush(s: &mut Session, w: &Worker, header: Header) -> Result<Flow, Fault> {
    let Some(_) = s.up.whole(header) else { return check_small(header).map(|()| Flow::More) };
    if s.replies().is_copying_in() {
        s.up.eat(header);
        return Ok(Flow::Next);
    }
    if s.has_server() && !s.replies().is_empty() {
        // Whether there is a copy is not known yet.
        return Ok(checkout::hold(s, w));
    }
    extended::refuse(s, w, header, Fault::garbled(garbled::MORE_THAN_MEANT))
}

/// CopyData comes before the server has said whether it reads any.
#[inline]
fn note_copied_ahead(s: &mut Session) {
    if let Some(upstream) = s.upstream_mut() {
        upstream.is_copied_ahead |= !upstream.replies.is_copying_in() && !upstream.replies.is_empty();
    }
}

/// Messages that mean nothing without a server connection: CopyData that came after the copy had failed, a Flush at rest.
fn pass_if_linked(s: &mut Session, w: &Worker, header: Header) -> Flow {
    if s.has_server() {
        s.up.pass(header, &w.buffers);
    } else {
        s.up.eat(header);
    }
    Flow::Next
}

fn on_query(s: &mut Session, w: &Rc<Worker>, header: Header) -> Result<Flow, Fault> {
    let limit = w.peek_config().routing.statement_analysis_bytes_max;
    let mut statement = if header.body_bytes as usize > limit {
        Rc::new(statements::unknown())
    } else {
        let Some(body) = s.up.whole(header) else { return Ok(Flow::More) };
        match weir_wire::frame::split_cstr(body) {
            Some((text, [])) => w.statements.borrow_mut().of_text(text),
            // A server answers more than one string by an error, and does not do what we would note of the statement.
            Some(_) => return Ok(refuse_garbled(s, w, header, garbled::MORE_THAN_MEANT)),
            None => return Ok(refuse_garbled(s, w, header, garbled::NO_END_OF_STRING)),
        }
    };
    if s.is_misread(&statement) {
        statement = Rc::new(statements::unknown());
    }
    send_query(s, w, header, statement)
}

fn send_query(s: &mut Session, w: &Rc<Worker>, header: Header, statement: Rc<Statement>) -> Result<Flow, Fault> {
    if answer::is_in_doubt(s, &statement) {
        return Ok(Flow::Hold);
    }
    if let Some(local) = answer::is_ours(s, &statement) {
        if !s.may_speak() || s.replies().is_unsynced() {
            return Ok(settle_first(s, w));
        }
        // As after any simple query.
        s.statements.drop_unnamed();
        statement_log::answered(s, w);
        answer::simple(s, w, &statement, local);
        s.up.eat(header);
        return Ok(Flow::Next);
    }
    if let Some(fault) = checkout::refusal(s, &statement) {
        return Ok(refuse_query(s, w, header, fault));
    }
    if let Some(flow) = query_cache::on_query(s, w, &statement, header) {
        return Ok(flow);
    }
    let statement = classify::stands_for(s, w, statement);
    let unit = Unit::Query(&statement);
    match plan::plan(s, w, unit)? {
        Planned::Ready => plan::note(s, w, header, unit),
        Planned::Later(flow) => return Ok(flow),
        Planned::Refused(fault) => return Ok(refuse_query(s, w, header, fault)),
    }
    w.count(Metric::StatementsSimple);
    if s.replies().is_settled() {
        s.expect(Expect::Query);
        s.statements.unnamed = None;
    } else {
        // An error of what was sent before may undo that it drops the unnamed statement, or keep it from running at all.
        s.expect(Expect::QueryChange);
        let before = s.statements.unnamed.take();
        s.enter(Change::Unnamed { before });
    }
    s.statements.is_unnamed_on_server = false;
    s.statements.portal = None;
    if let Some(conn) = s.conn_mut() {
        conn.unnamed = None;
    }
    match signals::of_query(s, w, &statement, header) {
        Some((hit, text)) => {
            hit.send(w);
            s.up.eat(header);
            write::query(s.up.extra(&w.buffers), &text);
        }
        None => s.up.pass(header, &w.buffers),
    }
    Ok(Flow::Next)
}

/// A simple query ends the implicit transaction of a pipeline; one that never reaches the server must see to that by a Sync of ours.
fn settle_first(s: &mut Session, w: &Worker) -> Flow {
    if s.replies().is_unsynced() && !s.replies().is_skipping() && s.has_server() {
        s.expect(Expect::SyncOurs);
        weir_wire::write::bare(s.up.extra(&w.buffers), front::SYNC);
        // Nothing may follow it before its answer: an error may still change what the held message means.
        s.shut_gate();
    }
    Flow::Hold
}

/// Fails a query that is none. A server that has something to undo then, what a pipeline did before it without a Sync or a transaction,
/// is sent it as it is: unlike other queries it drops no unnamed statement.
#[cold]
fn refuse_garbled(s: &mut Session, w: &Rc<Worker>, header: Header, text: &str) -> Flow {
    if !s.has_server() || (s.transaction() == IDLE && !s.replies().is_unsynced()) {
        return refuse_query(s, w, header, Fault::garbled(text));
    }
    plan::note(s, w, header, Unit::Garbled);
    s.expect(Expect::Query);
    s.up.pass(header, &w.buffers);
    Flow::Next
}

/// Fails a simple query. In a transaction the server is made to fail, so that the transaction fails too.
fn refuse_query(s: &mut Session, w: &Worker, header: Header, fault: Fault) -> Flow {
    if s.has_server() && s.transaction() != IDLE {
        weir_wire::write::query(s.up.extra(&w.buffers), "refused by the proxy");
        s.expect(Expect::QueryRefused);
        if let Some(Server { conn, upstream }) = &mut s.server {
            upstream.brought.refusals.push_back(Refusal { parameters: None, fault });
            // Any simple query drops the unnamed statement, whatever becomes of it.
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
    Flow::Next
}

/// A function called by its number: nothing is known of it, so it runs on the primary and may have left anything.
fn on_function_call(s: &mut Session, w: &Rc<Worker>, header: Header) -> Result<Flow, Fault> {
    let statement = statements::unknown();
    let unit = Unit::Call(&statement);
    match plan::plan(s, w, unit)? {
        Planned::Ready => plan::note(s, w, header, unit),
        Planned::Later(flow) => return Ok(flow),
        Planned::Refused(fault) => return Ok(refuse_query(s, w, header, fault)),
    }
    s.expect(Expect::FunctionCall);
    s.up.pass(header, &w.buffers);
    Ok(Flow::Next)
}
