//! Server messages: passed on, inspected, or eaten as answers to Weir's own queries.

use crate::context::Context;
use crate::doubt::transaction_number;
use crate::fault::ErrorReport;
use crate::from_client::misplaced;
use crate::handle::SessionClock;
use crate::host::RoleCheckReason;
use crate::loss::TransactionCommands;
use crate::prepared::result_shape;
use crate::prepared::reuse::{self, ReuseReplyFate};
use crate::read_retry::standby_errors::is_of_recovery;
use crate::replies::{DroppedReplies, FailedMessage, RemainingMessages, ReplyTreatment, RequestOrigin, TagOwner};
use crate::session::{ClientPresence, FAILED, IDLE, LazyBegin, MessageSkip, Session, SessionServer, SubstituteFault, WITHIN};
use crate::session_state::state_question::{ROW_LOOK_BYTES_MAX, ServerErrorFields};
use crate::sharding::write_steps::{self, ReturnedMessage};
use crate::sharding::{batch_steps, copy_steps, engine_snapshots, reference_steps, savepoints};
use crate::statement_statistics::answer_tally::TurnEnd;
use crate::statement_statistics::statement_rows::rows_of_tag;
use crate::stats::StatCounter;
use crate::unit::ReadyStatus;
use crate::upstream::left::{ConnCleanup, StartupRestore};
use crate::upstream::prepared_changes::{OwnStatements, StatementHold};
use crate::upstream::{ClientKnowledge, FlushOrigin, PendingInvalidations, UpstreamState};
use crate::{
    causal, concern, extended, lazy_begin, participants, query_cache, read_retry, session_state, statement_statistics, teardown,
    timing,
};
use std::collections::VecDeque;
use weir_wire::back::{ReceivedReport, read_report};
use weir_wire::frame::{HEADER_BYTES, MessageHeader, back};
use weir_wire::gather::BoundExceeded;

/// `DISCARD ALL` and `DEALLOCATE ALL`, with NUL.
const SESSION_TAG_BYTES: [u32; 2] = [12, 15];

const READY_BYTES: u32 = 1;

/// Longer messages pass unread.
const LOOK_BYTES_MAX: usize = 16 << 10;

#[inline]
pub fn heard(s: &mut Session, w: &Context, bytes: usize) {
    s.account.stats.add(StatCounter::Sent, bytes as u64);
    if let ClientPresence::LeftUntil(_) = s.intake.presence() {
        s.intake.leave();
    }
    causal::heard(s, w);
}

/// An error ends the session.
#[inline]
pub fn take(s: &mut Session, w: &Context) -> Result<(), ErrorReport> {
    if w.shared.lease.is_needed() && !is_surely_in_time(s, w) && is_too_late(s, w) {
        return teardown::conn_lost(s, w, "its answer came after the lease of this proxy in its group");
    }
    loop {
        pass_answers(s, w);
        let header = match s.down.peek(&w.buffers) {
            Ok(Some(header)) => header,
            Ok(None) => return Ok(()),
            Err(error) => return teardown::conn_lost(s, w, &error.to_string()),
        };
        if s.sharding.has_write() && reference_steps::breaks_off(s, w) {
            return Ok(());
        }
        let waits =
            (s.participants.is_some() && participants::holds_back(s)) || (s.sharding.has_write() && write_steps::holds_back(s));
        let waits = waits || (s.sharding.has_batch() && batch_steps::holds_back(s));
        if waits || read_retry::holds_back(s, w) || !on_server(s, w, header)? {
            return Ok(());
        }
    }
}

#[inline]
fn is_surely_in_time(s: &Session, w: &Context) -> bool {
    s.server.as_ref().is_some_and(|server| w.is_surely_within_lease(server.conn.status.address.node))
}

/// True for an answer of a primary that may have been replaced before it came: nobody may hear of a success.
#[cold]
fn is_too_late(s: &Session, w: &Context) -> bool {
    let Some(SessionServer { conn, upstream }) = &s.server else { return false };
    !upstream.is_on_standby() && !s.down.unseen().is_empty() && w.is_past_lease(conn.status.address.node)
}

/// Passes answers that need no inspection: most of the traffic.
#[inline]
fn pass_answers(s: &mut Session, w: &Context) {
    if s.down.is_mid_message() || query_cache::is_watching(s) || read_retry::may_hold_back(s) || s.sharding.is_watching() {
        return;
    }
    let Some(SessionServer { upstream, .. }) = &mut s.server else { return };
    if !upstream.brought.described.is_empty() || upstream.left.asking.is_some() || upstream.txn.numbered.is_committing {
        return;
    }
    let UpstreamState { replies, writes, tally, .. } = &mut **upstream;
    let passes = |body_bytes| needs_no_look(writes, body_bytes);
    // Two ways, so that without statistics nothing is carried along for them.
    let bytes = if tally.is_idle() {
        replies.pass_run(s.down.unseen(), passes, |_, _| ())
    } else {
        pass_counted(upstream, s.down.unseen(), w, &s.handle.clock)
    };
    if bytes > 0 {
        s.down.pass_whole(bytes, &w.buffers);
    }
}

/// True for a command tag of such a length that passes unread.
#[inline]
fn needs_no_look(writes: &PendingInvalidations, body_bytes: u32) -> bool {
    !SESSION_TAG_BYTES.contains(&body_bytes) && !query_cache::may_acknowledge(writes, body_bytes)
}

/// Consumes answers of a statement that is counted. Returns their bytes.
fn pass_counted(upstream: &mut UpstreamState, unseen: &[u8], w: &Context, clock: &SessionClock) -> usize {
    let UpstreamState { replies, writes, tally, role, .. } = upstream;
    let passes = |body_bytes| needs_no_look(writes, body_bytes);
    let (mut counted, role) = (0, *role);
    let ended = |whose, upto: &[u8]| {
        tally.note_rows(rows_of_tag(upto));
        if whose == TagOwner::Execute && tally.is_queue() {
            tally.note_bytes(upto.len() - counted);
            counted = upto.len();
            statement_statistics::count_first(tally, w, clock, role);
        }
    };
    let bytes = replies.pass_run(unseen, passes, ended);
    tally.note_bytes(bytes - counted);
    bytes
}

#[inline]
fn must_look(upstream: &UpstreamState, header: MessageHeader) -> bool {
    match header.tag {
        back::READY => true,
        back::ERROR | back::PARAMETER_STATUS => header.frame_bytes() <= LOOK_BYTES_MAX,
        back::PARAMETER_DESCRIPTION | back::ROW_DESCRIPTION => {
            !upstream.brought.described.is_empty() && header.frame_bytes() <= LOOK_BYTES_MAX
        }
        back::COMMAND_COMPLETE | back::NOTIFICATION | back::NOTICE => header.frame_bytes() <= LOOK_BYTES_MAX,
        back::DATA_ROW => upstream.left.asking.is_some() && header.frame_bytes() <= ROW_LOOK_BYTES_MAX,
        _ => false,
    }
}

/// False: more of the message must arrive, or the server connection is gone.
#[inline(always)]
fn on_server(s: &mut Session, w: &Context, header: MessageHeader) -> Result<bool, ErrorReport> {
    let Some(upstream) = s.upstream() else { return Ok(false) };
    let owes_known_parse = upstream.replies.owes_known_parse();
    let looks = must_look(upstream, header);
    if header.tag == back::READY && header.body_bytes != READY_BYTES {
        return garbled(s, w, header);
    }
    if (looks && !s.down.has_whole(header.frame_bytes())) || !query_cache::watch(s, w, header) {
        return Ok(false);
    }
    if owes_known_parse {
        match reuse::on_reply(s, w, header) {
            ReuseReplyFate::Goes => {}
            ReuseReplyFate::Eaten => return Ok(true),
            ReuseReplyFate::Refused => {
                on_kept_refused(s, w, header);
                return Ok(true);
            }
            ReuseReplyFate::More => return Ok(false),
        }
    }
    if engine_snapshots::is_of_query(s, header) {
        s.down.eat(header);
        return Ok(true);
    }
    if s.sharding.has_write() {
        match write_steps::on_returned(s, header) {
            ReturnedMessage::Other => {}
            ReturnedMessage::Kept => return Ok(true),
            ReturnedMessage::More => return Ok(false),
        }
        match header.tag {
            back::COPY_IN if header.frame_bytes() > LOOK_BYTES_MAX => return garbled(s, w, header),
            back::COPY_IN => return Ok(copy_steps::on_copy_in(s, header)),
            back::READY => write_steps::before_ready(s),
            _ => {}
        }
    }
    if header.tag == back::READY && s.sharding.has_batch() {
        batch_steps::before_ready(s);
    }
    let first = if looks { s.down.unseen().get(HEADER_BYTES).copied().unwrap_or(0) } else { 0 };
    let Some(upstream) = s.upstream_mut() else { return Ok(false) };
    let gathered = match upstream.replies.on_server(header.tag, first) {
        ReplyTreatment::Pass => on_pass(s, w, header, looks),
        ReplyTreatment::PassEnd => on_pass(s, w, header, looks).map(|()| statement_statistics::executed(s, w)),
        ReplyTreatment::Eat => on_eaten(s, w, header, looks),
        ReplyTreatment::Row => on_row(s, header, looks),
        reply => return on_reply(s, w, header, looks, reply),
    };
    match gathered {
        Ok(()) => Ok(true),
        Err(cause) => flooded(s, w, cause),
    }
}

#[inline(always)]
fn on_reply(
    s: &mut Session,
    w: &Context,
    header: MessageHeader,
    looks: bool,
    reply: ReplyTreatment,
) -> Result<bool, ErrorReport> {
    match reply {
        ReplyTreatment::Pass | ReplyTreatment::PassEnd | ReplyTreatment::Eat | ReplyTreatment::Row => {}
        ReplyTreatment::PassChange => {
            s.upstream_mut().into_iter().for_each(|upstream| drop(upstream.journal.pop_front()));
            s.down.pass(header, &w.buffers);
        }
        ReplyTreatment::Description { is_ours } => {
            result_shape::on_description(s, header, looks || header.tag == back::NO_DATA);
            if is_ours { s.down.eat(header) } else { s.down.pass(header, &w.buffers) }
        }
        ReplyTreatment::Number => {
            if header.frame_bytes() > LOOK_BYTES_MAX {
                return garbled(s, w, header);
            }
            if !s.down.has_whole(header.frame_bytes()) {
                return Ok(false);
            }
            transaction_number::on_row(s, w, header);
            s.down.eat(header);
        }
        ReplyTreatment::NumberRefused => {
            on_number_refused(s, w, header, looks);
        }
        ReplyTreatment::PartTag => {
            write_steps::note_rows(s, header);
            s.down.eat(header);
        }
        ReplyTreatment::PartRefused => on_part_refused(s, w, header, looks),
        ReplyTreatment::OursRefused => {
            if looks {
                session_state::on_refused(s, header);
            } else if let Some(upstream) = s.upstream_mut() {
                upstream.left.must_part(ConnCleanup::Cleaned);
            }
            s.down.eat(header);
        }
        ReplyTreatment::Ready { status, whose } => on_ready(s, w, header, status, whose)?,
        ReplyTreatment::Error(dropped) => on_error(s, w, header, dropped, looks),
        ReplyTreatment::SettingsRefused => {
            return teardown::refused_ahead(s, w, header, looks, "the server refuses this session's settings");
        }
        ReplyTreatment::BeginRefused => {
            return teardown::refused_ahead(s, w, header, looks, "the server refuses to begin the transaction");
        }
        ReplyTreatment::Misplaced { tag } => {
            s.down.pass(header, &w.buffers);
            return Err(misplaced(s, w, tag));
        }
        ReplyTreatment::Unasked => {
            let what = format!("unexpected message \"{}\" from the server", header.tag.escape_ascii());
            teardown::conn_lost(s, w, &what)?;
            return Ok(false);
        }
    }
    Ok(true)
}

#[inline]
fn on_eaten(s: &mut Session, w: &Context, header: MessageHeader, looks: bool) -> Result<(), BoundExceeded> {
    if header.tag == back::PARAMETER_STATUS && looks {
        let waits = on_parameter(s, header)?;
        if !waits && is_of_reload(s, w, header) {
            s.down.pass(header, &w.buffers);
            return Ok(());
        }
    } else if let Some(upstream) = s.upstream_mut().filter(|_| header.tag == back::PARSE_COMPLETE) {
        upstream.brought.parses.pop_front();
    }
    s.down.eat(header);
    Ok(())
}

fn on_row(s: &mut Session, header: MessageHeader, looks: bool) -> Result<(), BoundExceeded> {
    let body = if looks { s.down.whole(header).map(<[u8]>::to_vec) } else { None };
    session_state::on_row(s, header, body.as_deref())?;
    s.down.eat(header);
    Ok(())
}

#[cold]
fn flooded(s: &mut Session, w: &Context, cause: BoundExceeded) -> Result<bool, ErrorReport> {
    teardown::conn_lost(s, w, &cause.to_string()).map(|()| false)
}

/// Ends a connection that announced an impossible size, without reserving memory.
#[cold]
fn garbled(s: &mut Session, w: &Context, header: MessageHeader) -> Result<bool, ErrorReport> {
    let what = format!("a message \"{}\" of {} bytes from the server", header.tag.escape_ascii(), header.frame_bytes());
    teardown::conn_lost(s, w, &what).map(|()| false)
}

#[cold]
fn on_number_refused(s: &mut Session, w: &Context, header: MessageHeader, looks: bool) {
    let body = looks.then(|| s.down.whole(header).map(<[u8]>::to_vec)).flatten().unwrap_or_default();
    let report = read_report(&body);
    transaction_number::on_refused(s, w, &report);
    let word = is_end(&report).then(|| last_word(&report));
    if let Some(upstream) = s.upstream_mut().filter(|_| word.is_some()) {
        upstream.final_error = word;
    }
    s.down.eat(header);
}

/// The error of a statement on one of several shards is told when the client's message is looked at again.
#[cold]
fn on_part_refused(s: &mut Session, w: &Context, header: MessageHeader, looks: bool) {
    let body = looks.then(|| s.down.whole(header).map(<[u8]>::to_vec)).flatten().unwrap_or_default();
    let report = read_report(&body);
    note_report(w, s.conn().map(|conn| conn.status.address.node), &report);
    s.server.iter_mut().for_each(|server| note_failure(server, &report, ConnCleanup::AsItIs));
    if is_end(&report) {
        s.upstream_mut().into_iter().for_each(|upstream| upstream.final_error = Some(last_word(&report)));
    } else {
        let fault = write_steps::fault_of(s, &body);
        write_steps::note_failure(s, fault);
    }
    s.down.eat(header);
}

#[inline(always)]
fn on_pass(s: &mut Session, w: &Context, header: MessageHeader, looks: bool) -> Result<(), BoundExceeded> {
    if header.tag == back::PARAMETER_STATUS && looks && on_parameter(s, header)? {
        s.down.eat(header);
        return Ok(());
    } else if header.tag == back::COMMAND_COMPLETE && looks {
        on_session_tag(s, w, header);
    } else if header.tag == back::NOTIFICATION && looks && session_state::takes(s, w, header) {
        return Ok(());
    } else if header.tag == back::NOTICE && looks && s.down.whole(header).is_some_and(read_retry::is_farewell) {
        // Only the server connection ends.
        s.down.eat(header);
        return Ok(());
    }
    if header.tag == back::COMMAND_COMPLETE {
        transaction_number::on_tag(s);
        query_cache::on_tag(s, w, header);
        statement_statistics::tagged(s, header);
        if savepoints::awaits_tag(s) && looks {
            savepoints::on_tag(s, header);
        }
        if s.sharding.has_write() && write_steps::tell_tag(s, w, header) {
            return Ok(());
        }
    }
    s.down.pass(header, &w.buffers);
    let mut bytes = header.frame_bytes();
    if header.tag == back::COPY_DATA && !query_cache::is_watching(s) {
        bytes += s.down.unseen().len();
        // CopyData changes no owed replies.
        s.down.pass_run(header.tag, &w.buffers);
        bytes -= s.down.unseen().len();
    }
    s.upstream_mut().into_iter().for_each(|upstream| upstream.tally.note_bytes(bytes));
    Ok(())
}

fn on_session_tag(s: &mut Session, w: &Context, header: MessageHeader) {
    match s.down.whole(header) {
        Some(b"DISCARD ALL\0") => session_state::discarded(s, w),
        Some(b"DEALLOCATE ALL\0") => s.deallocated(w),
        _ => {}
    }
}

/// True if a report within Weir's own request is for the client: the server has reloaded its configuration.
fn is_of_reload(s: &mut Session, w: &Context, header: MessageHeader) -> bool {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = s.down.whole(header).and_then(weir_wire::back::read_parameter).map(|(name, value)| (text(name), text(value)));
    said.is_some_and(|(name, value)| session_state::connection_defaults::on_own_report(s, w, &name, &value))
}

/// True if the client must not get it now. Error: more than is kept.
fn on_parameter(s: &mut Session, header: MessageHeader) -> Result<bool, BoundExceeded> {
    let Some(body) = s.down.whole(header).map(<[u8]>::to_vec) else { return Ok(false) };
    let name = weir_wire::back::read_parameter(&body).map(|(name, _)| String::from_utf8_lossy(name).into_owned());
    let waits = session_state::on_report(s, &name.unwrap_or_default());
    if let Some(conn) = s.conn_mut() {
        conn.report(&body)?;
    }
    Ok(waits)
}

fn on_ready(s: &mut Session, w: &Context, header: MessageHeader, status: u8, whose: RequestOrigin) -> Result<(), ErrorReport> {
    // Replies ahead of a BEGIN say nothing about the transaction, which the client has already.
    let Some(SessionServer { upstream, .. }) = &mut s.server else { return Ok(()) };
    if whose == RequestOrigin::Begin || !matches!(s.lazy_begin, LazyBegin::Sent(_)) {
        upstream.txn.status = status;
    }
    upstream.flushed = FlushOrigin::No;
    match whose {
        RequestOrigin::Client => upstream.tally.note_turn_end(TurnEnd::Query),
        RequestOrigin::ClientSync => upstream.tally.note_turn_end(TurnEnd::Sync),
        RequestOrigin::ClientChange => {
            upstream.tally.note_turn_end(TurnEnd::Query);
            upstream.journal.pop_front();
        }
        RequestOrigin::Sync
        | RequestOrigin::Settings
        | RequestOrigin::Inventory
        | RequestOrigin::Prepare
        | RequestOrigin::Statement
        | RequestOrigin::Begin
        | RequestOrigin::Number
        | RequestOrigin::Part
        | RequestOrigin::Unlisten => {
            s.down.eat(header);
            on_our_ready(s, w, whose, status);
            return Ok(());
        }
    }
    if s.sharding.has_write() && write_steps::fails_late(s, w) {
        s.down.eat(header);
        return Ok(());
    }
    let Some(SessionServer { upstream, .. }) = &mut s.server else { return Ok(()) };
    upstream.txn.heard = ClientKnowledge::Something;
    if upstream.txn.control != TransactionCommands::default() && upstream.replies.is_only_ours() {
        upstream.txn.all_answered();
    }
    concern::ready(s, w, ReadyStatus::ForClient(status));
    if reuse::goes_again(s, w) {
        s.down.eat(header);
        return Ok(());
    }
    if session_state::restores(s, w, StartupRestore::OwesReady) {
        s.down.eat(header);
        return Ok(());
    }
    session_state::before_ready(s, w);
    if status == IDLE && s.state.listening.is_some() {
        if session_state::holds_ready(s, w) {
            s.down.eat(header);
            return Ok(());
        }
        session_state::deliver_now(s, w)?;
    }
    if s.lazy_begin.is_open() {
        // The transaction goes on, even unknown to the server.
        s.down.change(HEADER_BYTES, s.status());
    }
    s.down.pass(header, &w.buffers);
    s.show_doing();
    if s.sharding.has_write() {
        write_steps::after_ready(s);
    }
    if s.sharding.has_batch() {
        batch_steps::after_ready(s);
    }
    Ok(())
}

fn on_our_ready(s: &mut Session, w: &Context, whose: RequestOrigin, status: u8) {
    match whose {
        RequestOrigin::Inventory => session_state::on_answer(s, w),
        RequestOrigin::Unlisten => session_state::unlistened(s, w),
        RequestOrigin::Begin => s.lazy_begin.end(),
        RequestOrigin::Number => transaction_number::on_answer(s, w, status),
        RequestOrigin::Part => write_steps::part_ended(s),
        RequestOrigin::Statement => drop(s.upstream_mut().and_then(|upstream| upstream.brought.by_sql.pop_front())),
        RequestOrigin::Sync => on_our_sync(s, w, status),
        RequestOrigin::Client
        | RequestOrigin::ClientSync
        | RequestOrigin::ClientChange
        | RequestOrigin::Settings
        | RequestOrigin::Prepare => {}
    }
    if !s.replies().is_our_turn() {
        s.handle.is_ours.set(false);
        // The statement to cancel runs only now, if any.
        if s.handle.cancel_waits.take() && !s.replies().is_settled() {
            s.host.forward_cancel();
        }
    }
    if whose == RequestOrigin::Settings && session_state::restored(s, w) {
        s.say_ready(w);
        s.show_doing();
    }
}

/// Handles Weir's own Sync like the client's ReadyForQuery, which it does not get.
fn on_our_sync(s: &mut Session, w: &Context, status: u8) {
    s.upstream_mut().into_iter().for_each(|upstream| upstream.tally.note_turn_end(TurnEnd::Sync));
    concern::ready(s, w, ReadyStatus::BySync(status));
    if s.sharding.has_batch() {
        batch_steps::on_own_sync(s, status);
    }
    if s.sharding.has_write() {
        write_steps::on_own_sync(s, w);
    }
    if session_state::restores(s, w, StartupRestore::Silent) {
    } else {
        session_state::before_ready(s, w);
    }
}

fn note_report(w: &Context, node: Option<u16>, report: &ReceivedReport<'_>) {
    w.counters().count_error(report.sqlstate);
    if report.sqlstate == b"25006" {
        // The primary may have changed.
        w.program.look(RoleCheckReason::StatementRefused);
    }
    if let Some(node) = node {
        w.counters().count_severity(node, report.severity);
    }
}

/// Handles an error of a kept statement, hidden from the client.
#[cold]
fn on_kept_refused(s: &mut Session, w: &Context, header: MessageHeader) {
    let body = s.down.whole(header).map(<[u8]>::to_vec).unwrap_or_default();
    let report = read_report(&body);
    note_report(w, s.conn().map(|conn| conn.status.address.node), &report);
    s.server.iter_mut().for_each(|server| note_failure(server, &report, ConnCleanup::AsItIs));
    s.down.eat(header);
}

fn on_error(s: &mut Session, w: &Context, header: MessageHeader, dropped: DroppedReplies, looks: bool) {
    let Some(upstream) = s.upstream_mut() else { return };
    if !upstream.replies.has_work_behind_error() {
        upstream.resetting.will_not_happen();
    }
    upstream.left.due.add_rollback();
    let asked = upstream.brought.asked.take();
    let asked_alone = asked.is_some() && dropped.rest == RemainingMessages::Discarded;
    let may_tell = dropped.failed == FailedMessage::Question && upstream.txn.status != FAILED;
    let parameters = asked.and_then(|asked| asked.parameters).filter(|_| may_tell);
    let refused = next_refusal(&mut upstream.brought.refusals, dropped);
    s.undo(dropped);
    let skip_before = s.intake.skip();
    s.intake.skip_to_sync_if(dropped.rest == RemainingMessages::Discarded);
    if let Some(SubstituteFault { parameters, fault }) = refused {
        if let Some(SessionServer { upstream, .. }) = &mut s.server {
            statement_statistics::failed(upstream, w, &s.handle.clock, dropped, fault.sqlstate.as_bytes(), false);
        }
        s.down.eat(header);
        result_shape::tell_parameters(s, w, parameters);
        s.say_error(w, &fault);
        return;
    }
    let node = s.conn().map(|conn| conn.status.address.node);
    let (is_on_standby, status) = (s.is_on_standby(), s.transaction());
    let report = read_report(if looks { s.down.whole(header).unwrap_or_default() } else { &[] });
    note_report(w, node, &report);
    let is_end = is_end(&report);
    if let Some(SessionServer { upstream, .. }) = &mut s.server {
        statement_statistics::failed(upstream, w, &s.handle.clock, dropped, report.sqlstate, is_end);
    }
    let parting = s.server.as_ref().map_or(ConnCleanup::AsItIs, |server| read_retry::parting_after(&server.conn, w, &report));
    s.server.iter_mut().for_each(|server| note_failure(server, &report, parting));
    if asked_alone && s.retry.on_refused_ahead(is_on_standby, report.severity, report.sqlstate) {
        // The server connection goes at its ReadyForQuery.
        if let Some(SessionServer { upstream, .. }) = &mut s.server {
            upstream.brought.claim = StatementHold::No;
        }
        s.intake.restore_skip(skip_before);
        s.down.eat(header);
        return;
    }
    // The client gets the error. A server's end is told only with a statement under way, once the connection is gone.
    if !is_end {
        s.lazy_begin.fail();
    }
    if is_on_standby && status == WITHIN && is_of_recovery(report.sqlstate, report.routine) {
        let fault = lazy_begin::cannot_stay(&mut s.wrote.shuns_standbys, &String::from_utf8_lossy(report.message));
        s.down.eat(header);
        s.say_error(w, &fault);
        return;
    }
    let is_own = report.sqlstate == b"25P02";
    let own = s.server.as_mut().filter(|_| is_own).and_then(|server| server.upstream.txn.refused.take());
    if let Some(fault) = own
        .or_else(|| in_place_of(&report, s.server.as_ref(), &s.statements))
        .or_else(|| timing::overdue(&s.handle, report.sqlstate))
    {
        s.down.eat(header);
        result_shape::tell_parameters(s, w, parameters);
        s.say_error(w, &fault);
        return;
    }
    if !is_end {
        result_shape::tell_parameters(s, w, parameters);
        return s.down.pass(header, &w.buffers);
    }
    let fault = last_word(&report);
    let is_due = skip_before == MessageSkip::No && dropped.rest != RemainingMessages::Served;
    note_final_error(s, fault, asked_alone, is_due);
    if asked_alone {
        s.intake.restore_skip(skip_before);
    }
    s.down.eat(header);
}

fn note_failure(server: &mut SessionServer, report: &ReceivedReport, parting: ConnCleanup) {
    let SessionServer { conn, upstream } = server;
    upstream.left.must_part(parting);
    upstream.left.failed(&ServerErrorFields { sqlstate: report.sqlstate, context: report.context, routine: report.routine });
    match report.sqlstate {
        // "cached plan must not change result type": a new Parse must cure it.
        b"0A000" => conn.known.stale_all(),
        b"26000" => conn.known.doubt_all(),
        _ => {}
    }
}

/// `asked_alone`: only Weir's own query was under way; the waiting message is routed again once the connection is gone. `is_due`:
/// messages without a Sync still wait for their error.
fn note_final_error(s: &mut Session, fault: ErrorReport, asked_alone: bool, is_due: bool) {
    let Some(SessionServer { upstream, .. }) = &mut s.server else { return };
    upstream.final_error = Some(fault);
    if asked_alone {
        upstream.brought.claim = StatementHold::No;
    } else if is_due {
        upstream.replies.unskip();
    }
}

/// Obsolete refusals are dropped.
fn next_refusal(refusals: &mut VecDeque<SubstituteFault>, dropped: DroppedReplies) -> Option<SubstituteFault> {
    let is_due = dropped.failed == FailedMessage::Refused;
    let refused = if is_due { refusals.pop_front() } else { None };
    for _ in u32::from(is_due)..dropped.refused {
        refusals.pop_front();
    }
    refused
}

fn in_place_of(report: &ReceivedReport<'_>, server: Option<&SessionServer>, statements: &OwnStatements) -> Option<ErrorReport> {
    match report.sqlstate {
        // The session has the statement, but this server could not prepare it.
        b"26000" => server?.upstream.brought.why_refused(report.message).cloned(),
        b"08P01" => extended::in_words_of_client(statements, report),
        _ => None,
    }
}

fn is_end(report: &ReceivedReport<'_>) -> bool {
    matches!(report.severity, b"FATAL" | b"PANIC")
}

fn last_word(report: &ReceivedReport<'_>) -> ErrorReport {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ErrorReport::error(&text(report.sqlstate), text(report.message))
}
