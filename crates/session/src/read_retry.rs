//! Retry of reads refused by a standby or lost with it, unseen by the client.
//!
//! While a standby runs reads, the client's messages are kept, up to a bound, in groups that end with a Query or Sync. Of each group's
//! answer the beginning is checked first; servers write it in one piece, so this costs no wait. After an error that the primary might not
//! give, the messages are put back, their effects undone, and go to the primary. Once the client has seen something, errors are its own.
//!
//! With several nodes writes are kept too: they are sent again if no byte of them left, or if the server refused the only statement for
//! not being the primary any more.

pub mod kept_messages;
pub mod standby_errors;

use crate::conn::Conn;
use crate::context::Context;
use crate::host::{Level, LogOrigin, ProxyShutdown, RoleCheckReason};
use crate::metrics::WorkerCounter;
use crate::prepared::reuse;
use crate::read_retry::kept_messages::{AGAIN_MAX, KeptMessages, KeptStatements, MessageGroup, RetryState, StandbyRefusal};
use crate::read_retry::standby_errors::{
    PrimaryStanding, RefusalRemedy, RefusedWrite, StandbyErrorMeaning, is_by_standby, judge, remedy,
};
use crate::reports::ReportedRole;
use crate::routing::{RouteClass, RouteSide, classify};
use crate::session::{IDLE, LazyBegin, MessageFate, Session};
use crate::statements::{Statement, StatementTrait};
use crate::unit::{ReadyStatus, SessionConcern, StatementMessage};
use crate::upstream::FlushOrigin;
use crate::upstream::left::ConnCleanup;
use std::num::NonZero;
use weir_catalog::rule::RoutingRule;
use weir_failover::ServerConnEnd;
use weir_failover::cluster::ClusterView;
use weir_failover::looks::is_primary_by_configuration;
use weir_sql::facts::StatementVerb;
use weir_wire::back::ReceivedReport;
use weir_wire::frame::{HEADER_BYTES, MessageHeader, back, front, read_header};

/// Longer reads are not retried.
const KEPT_BYTES_MAX: usize = 16 << 10;

const LOOK_BYTES_MAX: usize = 16 << 10;

pub struct ReadRetryMark {
    bytes: usize,
    is_kept: bool,
    /// True if nothing of the client's is under way.
    is_first: bool,
}

/// True if messages must be kept for a retry.
#[inline]
pub fn is_there(s: &Session, w: &Context) -> bool {
    w.has_readers() || w.peek_config().nodes.len() > 1 || s.lazy_begin.is_open() || s.has_begun_ahead()
}

/// Keeps the next message: a standby may get it, or a BEGIN before it.
#[inline]
pub fn keep(s: &mut Session, header: MessageHeader) -> ReadRetryMark {
    let is_outside = s.transaction() == IDLE || s.has_begun_ahead();
    let is_first = !s.has_server() || (is_outside && s.retry.state == RetryState::Idle && s.replies().is_only_ours());
    let mut mark = ReadRetryMark { bytes: s.retry.kept.len(), is_kept: false, is_first };
    let may_go = is_outside && s.retry.state != RetryState::Spoiled && (is_first || is_wanted(s));
    if may_go
        && mark.bytes + header.frame_bytes() <= KEPT_BYTES_MAX
        && let Some(message) = s.up.unseen().get(..header.frame_bytes())
    {
        s.retry.kept.extend_from_slice(message);
        mark.is_kept = true;
    }
    mark
}

#[inline]
pub fn kept(s: &mut Session, header: MessageHeader, mark: &ReadRetryMark, is_done: bool) {
    let is_under_way = is_done && !s.replies().is_empty();
    if is_under_way && mark.is_first && mark.is_kept && !s.only_reads() {
        s.retry.unsent_from = s.host.given().and_then(|given| NonZero::new(given + 1));
    }
    if !is_under_way || !is_wanted(s) {
        // The message comes again, goes to the primary, or was answered without a server.
        s.retry.kept.truncate(mark.bytes);
        return;
    }
    if !mark.is_kept || !belongs(&s.retry, header.tag) {
        s.retry.clear();
        s.retry.state = RetryState::Spoiled;
        return;
    }
    s.retry.state = RetryState::Keeping;
    if s.retry.groups.back().is_none_or(|group| group.is_whole) {
        s.retry.groups.push_back(MessageGroup::default());
    }
    if let Some(group) = s.retry.groups.back_mut() {
        group.bytes += header.frame_bytes();
        group.is_whole = matches!(header.tag, front::QUERY | front::SYNC);
        group.is_flushed |= header.tag == front::FLUSH;
    }
}

/// True if each group still gets one ReadyForQuery. After an error without Sync the server skips a Query.
fn belongs(net: &KeptMessages, tag: u8) -> bool {
    match tag {
        front::QUERY => net.groups.back().is_none_or(|group| group.is_whole),
        front::PARSE | front::BIND | front::DESCRIBE | front::EXECUTE | front::CLOSE | front::FLUSH | front::SYNC => true,
        _ => false,
    }
}

pub struct ReadRetry;

impl SessionConcern for ReadRetry {
    /// `keep` has kept the message.
    #[inline]
    fn sent(s: &mut Session, _: &Context, _: MessageHeader, unit: StatementMessage<'_>) {
        let is_write = match unit {
            StatementMessage::Query(statement) | StatementMessage::Bind { statement, .. } => is_refused_first(statement),
            StatementMessage::BindUnknown(_) | StatementMessage::Call(_) | StatementMessage::Garbled => false,
            StatementMessage::Parse(_) | StatementMessage::Execute => return,
        };
        s.retry.statements = s.retry.statements.and(is_write);
    }

    #[inline]
    fn ready(s: &mut Session, _: &Context, ended: ReadyStatus) {
        match ended {
            ReadyStatus::ForClient(_) => group_done(s),
            ReadyStatus::BySync(_) => {}
        }
    }

    /// The kept messages went with the connection and are not retried.
    fn lost(s: &mut Session, _: &Context) {
        s.retry.forget_times();
    }
}

/// True if a read-only server refuses the statement before it runs. Source: `ExecCheckXactReadOnly` in execMain.c,
/// `standard_ProcessUtility` in utility.c.
#[inline]
fn is_refused_first(statement: &Statement) -> bool {
    let is_plain = matches!(
        statement.verb,
        StatementVerb::Insert | StatementVerb::Update | StatementVerb::Delete | StatementVerb::Definition
    );
    is_plain && !statement.has(StatementTrait::Many)
}

#[inline]
fn group_done(s: &mut Session) {
    if let Some(upstream) = s.upstream_mut() {
        upstream.txn.began = None;
    }
    let net = &mut s.retry;
    net.forget_times();
    net.is_told = false;
    match net.groups.pop_front() {
        Some(group) if !net.groups.is_empty() => {
            net.kept.drain(..group.bytes);
            return;
        }
        Some(_) => {
            net.kept.clear();
            net.state = RetryState::Idle;
        }
        None => {}
    }
    (net.unsent_from, net.statements) = (None, KeptStatements::None);
}

/// True if `holds_back` may apply.
#[inline]
pub fn may_hold_back(s: &Session) -> bool {
    s.retry.is_unseen()
}

/// True if the server's next message must wait, or is gone.
#[inline]
pub fn holds_back(s: &mut Session, w: &Context) -> bool {
    if !s.retry.is_unseen() || s.replies().is_our_turn() {
        return false;
    }
    if !s.only_reads() {
        return waits_for_primary(s, w);
    }
    (s.is_on_standby() || !is_all_here(s)) && look(s, w) != RetryDecision::Go
}

/// True if the server refused the only statement, a write, for not being the primary: it waits for another one. Answers in pieces go to
/// the client.
fn waits_for_primary(s: &mut Session, w: &Context) -> bool {
    if matches!(s.down.unseen().first(), Some(&(back::PARAMETER_STATUS | back::NOTICE | back::NOTIFICATION))) {
        return false;
    }
    let found = find(s);
    // A server in shutdown says nothing about the statement.
    s.retry.is_told =
        !matches!(found, AnswerStart::Error { at, header } if verdict_of(s, at, header) == StandbyErrorMeaning::Lost);
    let AnswerStart::Error { at, header } = found else { return false };
    let is_alone = s.retry.statements == KeptStatements::OneWrite
        && s.retry.groups.len() == 1
        && s.retry.groups.front().is_some_and(|group| group.is_whole && !group.is_flushed)
        && !s.up.has_pending();
    if !is_alone || !is_movable(s) {
        return false;
    }
    let (view, node) = (w.view(), s.conn().map(|conn| conn.status.address.node));
    let waits = match remedy(&refused_write(s, w, at, header)) {
        RefusalRemedy::None => return false,
        RefusalRemedy::AnotherPrimary => node.is_some_and(|node| view.is_primary(node)),
        RefusalRemedy::AnotherConnection if s.conn().is_some_and(|conn| may_leave(conn, w)) => false,
        RefusalRemedy::AnotherConnection => return false,
    };
    note_error(s, w, at, header);
    w.program.look(RoleCheckReason::StatementRefused);
    if let Some(conn) = again(s, w, None) {
        s.host.close(conn);
    }
    s.retry.refused_under = NonZero::new(view.generation).filter(|_| waits);
    true
}

/// True if the node's address has moved, or a check is due.
fn may_leave(conn: &Conn, w: &Context) -> bool {
    w.shared.stale.moves.is_left(conn) || w.shared.stale.moves.ask(conn.status.address.node, w.now_us())
}

/// Returns the cleanup after an error. If a standby that counts as the primary refused a write, the connection is closed once the session
/// may leave it.
pub fn parting_after(conn: &Conn, w: &Context, report: &ReceivedReport) -> ConnCleanup {
    let is_by_standby = is_by_standby(report.sqlstate, report.routine, conn.reported.told() == ReportedRole::Standby);
    let is_left = is_by_standby && conn.is_to_primary(&w.view()) && may_leave(conn, w);
    if is_left { ConnCleanup::Closed } else { ConnCleanup::AsItIs }
}

fn verdict_of(s: &Session, at: usize, header: MessageHeader) -> StandbyErrorMeaning {
    let report = weir_wire::back::read_report(&s.down.unseen()[at + HEADER_BYTES..at + header.frame_bytes()]);
    judge(report.severity, report.sqlstate)
}

fn refused_write<'s>(s: &'s Session, w: &Context, at: usize, header: MessageHeader) -> RefusedWrite<'s> {
    let body = &s.down.unseen()[at + HEADER_BYTES..at + header.frame_bytes()];
    let report = weir_wire::back::read_report(body);
    let node = s.conn().map(|conn| conn.status.address.node);
    let standing = match node {
        Some(node) if is_primary_by_configuration(&w.peek_config(), node) => PrimaryStanding::PrimaryByConfiguration,
        Some(node) if w.view().is_primary(node) => PrimaryStanding::Primary,
        Some(_) | None => PrimaryStanding::GivenUp,
    };
    RefusedWrite {
        sqlstate: report.sqlstate,
        routine: report.routine,
        is_within: !report.context.is_empty(),
        is_in_recovery: s.conn().is_some_and(|conn| conn.reported.told() == ReportedRole::Standby),
        standing,
        is_wanted: s.state.settings.pairs().any(|(name, _)| name == "default_transaction_read_only"),
    }
}

/// True if the refusing server would get the statement, with no news of the primary.
#[inline]
pub fn is_refused_there(s: &Session, view: &ClusterView) -> bool {
    s.retry.refused_under.is_some_and(|generation| generation.get() == view.generation)
}

/// True if the primary's answer seems complete; it is passed.
#[inline]
fn is_all_here(s: &mut Session) -> bool {
    s.retry.is_told = s.down.unseen().ends_with(&[back::READY, 0, 0, 0, 5, IDLE]);
    s.retry.is_told
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RetryDecision {
    Go,
    Wait,
    /// Sent again; the answer is dropped.
    Again,
}

fn look(s: &mut Session, w: &Context) -> RetryDecision {
    let look = match find(s) {
        AnswerStart::Error { at, header } => on_error(s, w, at, header),
        AnswerStart::End(bytes) if may_wait(s) && bytes <= LOOK_BYTES_MAX && !s.down.has_whole(bytes) => {
            return RetryDecision::Wait;
        }
        AnswerStart::End(_) | AnswerStart::Answer => RetryDecision::Go,
    };
    if look == RetryDecision::Go {
        s.retry.is_told = true;
        s.down.has_whole(0);
    }
    look
}

/// True if the server will send more without another message.
fn may_wait(s: &Session) -> bool {
    s.upstream().is_none_or(|upstream| upstream.flushed != FlushOrigin::ByUs)
        && s.retry.groups.front().is_some_and(|group| group.is_whole && !group.is_flushed)
}

enum AnswerStart {
    Error {
        at: usize,
        header: MessageHeader,
    },
    /// A message that comes only without an error before it, or that the client must see at once.
    Answer,
    /// Bytes needed to see more.
    End(usize),
}

fn find(s: &Session) -> AnswerStart {
    let bytes = s.down.unseen();
    let mut at = 0;
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        let Ok(Some(header)) = read_header(rest) else { return AnswerStart::End(at + HEADER_BYTES) };
        match header.tag {
            back::ERROR if rest.len() >= header.frame_bytes() => return AnswerStart::Error { at, header },
            back::ERROR => return AnswerStart::End(at + header.frame_bytes()),
            back::NOTICE if rest.len() < header.frame_bytes() => return AnswerStart::End(at + header.frame_bytes()),
            back::NOTICE if is_farewell(&rest[HEADER_BYTES..header.frame_bytes()]) => at += header.frame_bytes(),
            back::PARSE_COMPLETE
            | back::BIND_COMPLETE
            | back::CLOSE_COMPLETE
            | back::ROW_DESCRIPTION
            | back::PARAMETER_DESCRIPTION
            | back::NO_DATA
            | back::COPY_OUT
            | back::PARAMETER_STATUS => at += header.frame_bytes(),
            _ => return AnswerStart::Answer,
        }
    }
}

/// True for the warning of an immediate shutdown; a reset follows. Source: `quickdie` in postgres.c.
pub fn is_farewell(body: &[u8]) -> bool {
    let sqlstate = weir_wire::back::read_report(body).sqlstate;
    matches!(sqlstate, b"57P01" | b"57P02" | b"57P03")
}

fn on_error(s: &mut Session, w: &Context, at: usize, header: MessageHeader) -> RetryDecision {
    let body = &s.down.unseen()[at + HEADER_BYTES..at + header.frame_bytes()];
    let report = weir_wire::back::read_report(body);
    // A lagging standby may lack what an EXECUTE needs.
    let is_lacking = report.sqlstate == b"26000" && brought_refused(s, report.message);
    let verdict = if is_lacking { StandbyErrorMeaning::Passing } else { judge(report.severity, report.sqlstate) };
    let is_final = verdict == StandbyErrorMeaning::Stands
        || (verdict != StandbyErrorMeaning::Lost && !s.is_on_standby())
        || reuse::is_of_kept(s, &report);
    if is_final || !may_again(s) {
        return RetryDecision::Go;
    }
    let refused = StandbyRefusal::of(verdict, report.sqlstate);
    let sqlstate = String::from_utf8_lossy(report.sqlstate).into_owned();
    // After ReadyForQuery the connection can be reused; with more under way it is closed.
    let end = at + header.frame_bytes();
    let is_alone = s.retry.groups.len() == 1 && s.retry.groups.front().is_some_and(|group| group.is_whole) && !s.up.has_pending();
    let ready_bytes = HEADER_BYTES + 1;
    if is_alone && verdict != StandbyErrorMeaning::Lost && !s.down.has_whole(end + ready_bytes) {
        return RetryDecision::Wait;
    }
    let rest = s.down.unseen().get(end..).unwrap_or_default();
    let is_ready = rest.len() == ready_bytes && rest[0] == back::READY && rest[HEADER_BYTES] == IDLE;
    let stays =
        is_alone && is_ready && s.upstream().is_some_and(|up| up.left.due.is_empty() && up.left.parting() == ConnCleanup::AsItIs);
    if note_error(s, w, at, header) {
        w.program.look(RoleCheckReason::StatementRefused);
    }
    if let (StandbyErrorMeaning::Lost, Some(conn)) = (verdict, s.conn()) {
        w.program.conn_died(conn.status.address.node, ServerConnEnd::of_sqlstate(Some(&sqlstate)));
    }
    if let Some(conn) = again(s, w, (verdict != StandbyErrorMeaning::Lost).then_some(refused)) {
        if stays {
            s.host.give_back(conn);
        } else {
            s.host.close(conn);
        }
    }
    RetryDecision::Again
}

/// True: the node's role may have changed.
fn note_error(s: &Session, w: &Context, at: usize, header: MessageHeader) -> bool {
    let body = &s.down.unseen()[at + HEADER_BYTES..at + header.frame_bytes()];
    let report = weir_wire::back::read_report(body);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    w.counters().count_error(report.sqlstate);
    if let Some(conn) = s.conn() {
        w.counters().count_severity(conn.status.address.node, report.severity);
    }
    if let Some(conn) = s.conn() {
        let (code, message) = (text(report.sqlstate), text(report.message));
        let line =
            format_args!("server connection to {}: a statement failed and runs again: {code}: {message}", conn.status.address);
        w.log(Level::Debug1, &LogOrigin::default(), line);
    }
    report.sqlstate == b"25006" || judge(report.severity, report.sqlstate) == StandbyErrorMeaning::Lost
}

fn may_again(s: &Session) -> bool {
    s.retry.is_unseen() && (s.only_reads() || is_unsent(s)) && is_movable(s)
}

/// True if no byte under way has left.
fn is_unsent(s: &Session) -> bool {
    s.retry.unsent_from.is_some_and(|from| s.host.taken().is_some_and(|taken| taken < from.get()))
}

/// True if the server connection carries nothing but the kept messages.
fn is_movable(s: &Session) -> bool {
    let is_outside = s.transaction() == IDLE && !matches!(s.lazy_begin, LazyBegin::Sent(_));
    (is_outside || s.has_begun_ahead())
        && s.retry.times < AGAIN_MAX
        && s.handle.cancels.get() == 0
        && !s.handle.cancel_waits.get()
        && !s.up.is_mid_message()
        && !s.down.is_mid_message()
        && s.pin().is_none()
        && s.upstream().is_none_or(|upstream| upstream.left.asking.is_none())
}

fn is_untouched(s: &Session) -> bool {
    s.has_begun_ahead() && s.retry.state == RetryState::Idle && s.retry.groups.is_empty() && is_movable(s)
}

/// True: the messages are sent again, without the connection.
pub fn on_loss(s: &mut Session, w: &Context) -> bool {
    if !may_again(s) && !is_untouched(s) {
        return false;
    }
    if let Some(conn) = again(s, w, None) {
        s.host.close(conn);
    }
    true
}

/// Handles a refusal of a message sent ahead by Weir: no client message has run, so the kept ones are sent again, writes too. After a
/// standby's ERROR they go to the primary, after a FATAL to any fitting node. True: the server connection is gone.
pub fn on_refused_ahead(s: &mut Session, w: &Context, header: MessageHeader, is_lost: bool) -> bool {
    let is_kept = (s.retry.is_unseen() && is_movable(s)) || is_untouched(s);
    if !(is_kept && (is_lost || s.is_on_standby())) || w.program.stop_mode() >= ProxyShutdown::Fast {
        return false;
    }
    note_error(s, w, 0, header);
    w.program.look(RoleCheckReason::StatementRefused);
    if let Some(conn) = again(s, w, (!is_lost).then_some(StandbyRefusal::Passing)) {
        w.count(WorkerCounter::ConnsLost);
        s.host.close(conn);
    }
    true
}

/// Puts back what was under way, and gives up the server connection.
fn again(s: &mut Session, w: &Context, on_primary: Option<StandbyRefusal>) -> Option<Box<Conn>> {
    if !s.retry.groups.is_empty() {
        w.count(if s.retry.unsent_from.is_some() { WorkerCounter::WritesSentAnew } else { WorkerCounter::ReadsRepeated });
    }
    if let Some(before) = s.upstream_mut().and_then(|upstream| upstream.txn.began.take()) {
        s.lazy_begin.restore(before);
        classify::watch(s, w);
    }
    s.sharding.write_undone();
    let was_on_standby = s.is_on_standby();
    let mut kept = std::mem::take(&mut s.retry.kept);
    let lost = s.lose(w, MessageFate::Undone);
    s.intake.stop_skipping();
    s.statements.close_portal();
    s.up.unread(&kept, &w.buffers);
    s.intake.replay.iter_mut().for_each(|record| record.put_back(&kept));
    kept.clear();
    s.retry.kept = kept;
    let opened_us = lost.as_ref().map(|(conn, _)| conn.opened_us).filter(|_| on_primary.is_none());
    s.retry.count(opened_us, w.now_us());
    // The last try goes to the primary.
    let is_last = was_on_standby && s.retry.times >= AGAIN_MAX && w.view().primary.is_some();
    s.retry.again = on_primary.or(is_last.then_some(StandbyRefusal::Passing));
    lost.map(|(conn, _)| conn)
}

/// True if messages over the server connection are kept.
#[inline]
fn is_wanted(s: &Session) -> bool {
    s.retry.unsent_from.is_some() || s.upstream().is_some_and(|upstream| upstream.only_reads() || upstream.txn.began.is_some())
}

fn brought_refused(s: &Session, complaint: &[u8]) -> bool {
    s.upstream().is_some_and(|upstream| upstream.brought.why_refused(complaint).is_some())
}

/// Returns the class of a statement that a standby has just refused.
#[inline]
pub fn class_of(s: &Session, statement: &Statement, class: RouteClass) -> RouteClass {
    match s.retry.again {
        Some(refused) if class.side == RouteSide::Reader => {
            if refused != StandbyRefusal::Passing {
                classify::note_refused(s, statement, refused == StandbyRefusal::Write);
            }
            RouteClass::primary(RoutingRule::StandbyRefused)
        }
        Some(_) | None => class,
    }
}
