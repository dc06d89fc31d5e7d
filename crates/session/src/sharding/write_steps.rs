//! An UPDATE or DELETE that each shard of its table carries out by itself, or an INSERT that each carries out for its own rows.
//!
//! The servers get it one behind the other, each within the transaction that the session has there (`participants`). Weir sends it to all but the last
//! one while the client's message waits, and adds up the rows that they tell. The client's own message goes to the last one, and the command tag of its
//! answer is changed to tell of all rows. An error of one server is the error of the statement. Rows of RETURNING are kept until the last server has
//! answered.
//!
//! Outside of a transaction block the transaction is Weir's: it begins before the first server gets the statement, and the end of the last answer waits
//! for the commit (`SessionStep::Participants`).

use crate::checkout;
use crate::context::Context;
use crate::fault::{ErrorReport, sqlstate};
use crate::flow::MessageFlow;
use crate::handle::OverdueStatement;
use crate::loss::{LossOutcome, TransactionAfterLoss, loss_words};
use crate::replies::{ExpectedReply, RowSubject};
use crate::session::{IDLE, MessageFate, Session, SessionServer, SubstituteFault, WITHIN};
use crate::sharding::batch_opening;
use crate::sharding::copy_steps;
use crate::sharding::returned_rows::message_of;
use crate::sharding::savepoints;
use crate::sharding::shard_target::{BatchStep, ShardAim, ShardTarget};
pub use crate::sharding::spread_refusal::cannot_spread;
use crate::sharding::spread_write::{PartMessages, SpreadParts, SpreadWrite, TransactionOwner, WriteEnd, WriteStep};
use crate::statement_statistics::statement_rows::rows_of_tag;
use crate::statements::{Statement, StatementTrait};
use crate::{concern, failing_parse, participants, sharding, timing};
use weir_config::PoolMode;
use weir_sql::facts::StatementVerb;
use weir_wire::back::read_report;
use weir_wire::frame::{HEADER_BYTES, MessageHeader, back, front, read_header};
use weir_wire::write;

/// Where `participants::spans_shards` is false.
pub const NOT_SPANNED: &str = "transactions go on to other shards once weir shard engine has run";

const BEGIN: &[u8] = b"BEGIN";

/// The session's default is not known for a moment behind another definition, and does not matter here.
const BEGIN_DEFINITION: &[u8] = b"BEGIN ISOLATION LEVEL READ COMMITTED";

/// Most bytes of the messages behind a command tag, up to the end of its answer.
const END_BYTES_MAX: usize = 16 << 10;

/// The tag of all servers. `last`: of the last one, with its zero byte.
fn tag_of_all(last: &[u8], rows_before: u64) -> String {
    let tag = String::from_utf8_lossy(last.strip_suffix(b"\0").unwrap_or(last)).into_owned();
    let rows = rows_before.saturating_add(rows_of_tag(last));
    match tag.rsplit_once(' ') {
        // An INSERT has a zero before it.
        Some((verb, number)) if number.bytes().all(|digit| digit.is_ascii_digit()) => format!("{verb} {rows}"),
        Some(_) | None => tag,
    }
}

/// Begins the statement, with the message for all servers but the last one. `Ok(false)`: answers come first. `asks_time`: the answer may hang on the
/// transaction's time.
#[cold]
pub fn begin(
    s: &mut Session,
    w: &Context,
    (statement, shards, asks_time): (&Statement, &[u16], bool),
    end: WriteEnd,
    parts: impl FnOnce(&Session) -> SpreadParts,
) -> Result<bool, ErrorReport> {
    // In a transaction of Weir's for several statements the client's Sync ends more than this one.
    let end = if s.sharding.has_batch() { WriteEnd::OfExecute } else { end };
    if let Some(why) = refusal(s, w, (statement, asks_time), end) {
        return Err(cannot_spread(why));
    }
    if s.sharding.has_executed() && s.transaction() == IDLE && !batch_opening::may_leave(s, w) {
        if !batch_opening::must_wait(s) {
            batch_opening::open(s, w);
        }
        return Ok(false);
    }
    if !s.replies().is_settled() || (s.has_server() && s.transaction() == IDLE) {
        checkout::leave_reader(s, w);
    }
    if !s.replies().is_settled() {
        return Ok(false);
    }
    let owner = match (s.status(), end) {
        (IDLE, WriteEnd::OfClient) => TransactionOwner::Weir,
        _ => TransactionOwner::Client,
    };
    let begins = !s.has_server() && s.participants.is_none();
    if s.status() == IDLE {
        if s.has_server() {
            return Err(cannot_spread("its session holds a server connection (SHOW pool_sessions)"));
        }
        let begin = if is_definition(statement) { BEGIN_DEFINITION } else { BEGIN };
        let begin = w.statements.borrow_mut().of_text(begin);
        s.lazy_begin.defer(begin);
        s.sharding.begin();
        if end != WriteEnd::OfClient {
            s.sharding.open_batch();
        }
    }
    s.intake.replay.iter_mut().for_each(|record| record.spoil());
    let parts = parts(s);
    let mut write = SpreadWrite::new(shards, owner, parts);
    (write.end, write.begins) = (end, begins);
    s.sharding.write = Some(Box::new(write));
    Ok(true)
}

fn refusal(s: &mut Session, w: &Context, (statement, asks_time): (&Statement, bool), end: WriteEnd) -> Option<&'static str> {
    if !participants::spans_shards(&w.peek_config(), &s.account.known) {
        return Some(NOT_SPANNED);
    }
    if is_definition(statement) {
        if s.sharding.has_executed() || end != WriteEnd::OfClient {
            return Some("definitions are changed by one statement up to a Sync");
        }
    } else if participants::is_tie(statement) {
        return Some("it may leave something on one server that the others lack");
    }
    if asks_time {
        return Some("it may ask for the time of the transaction, which each server tells by itself");
    }
    if s.account.limits.get().mode == PoolMode::Session {
        return Some("pool_mode is session");
    }
    // Weir's own transaction for a definition says its isolation.
    let is_own = is_definition(statement) && s.status() == IDLE;
    let spans = if is_own { s.pin().is_none() && s.state.listening.is_none() } else { participants::may_span(s, w) };
    let goes_on =
        |s: &mut Session| participants::may_go_on(s, w) || batch_opening::may_leave(s, w) || batch_opening::may_open(s, w);
    if s.sharding.has_executed() && !goes_on(s) {
        return Some(
            "another statement was executed before it, without a Sync between them, and may have left something on one server",
        );
    }
    (!spans).then_some(
        "its transaction is not READ COMMITTED, or has used cursors, SET or the like, or its session listens or holds state",
    )
}

/// True for the only statements other than DML and COPY that come here. Their effects are all prepared with their transaction.
pub(crate) fn is_definition(statement: &Statement) -> bool {
    matches!(statement.verb, StatementVerb::Definition | StatementVerb::Other) && !statement.has(StatementTrait::CopiesIn)
}

/// Where the next message of a statement under way goes. `None`: there is none. Error: a server has refused it.
#[cold]
pub fn aim_again(s: &mut Session) -> Option<Result<ShardAim, ErrorReport>> {
    let write = s.sharding.write.as_mut()?;
    if let WriteStep::Failed(fault) = &write.step {
        let fault = fault.clone();
        abandon(s);
        return Some(Err(fault));
    }
    if write.step == WriteStep::Takes {
        abandon(s);
        return Some(Err(copy_steps::misplaced()));
    }
    Some(Ok(ShardTarget::of(write.shard()).into()))
}

/// Sends the statement to a server other than the last one.
#[cold]
pub fn send_part(s: &mut Session, w: &Context) -> MessageFlow {
    let (Some(write), Some(SessionServer { conn, upstream })) = (&mut s.sharding.write, &mut s.server) else {
        return MessageFlow::Hold;
    };
    s.up.extra(&w.buffers).extend_from_slice(write.message());
    write.step = WriteStep::Sent;
    conn.unnamed = None;
    upstream.replies.push(ExpectedReply::PartOurs);
    upstream.raise_barrier();
    savepoints::note_part(s);
    timing::asked(s, w);
    MessageFlow::Hold
}

/// A server other than the last one tells its rows.
pub fn note_rows(s: &mut Session, header: MessageHeader) {
    let rows = s.down.whole(header).map_or(0, rows_of_tag);
    let Some(write) = &mut s.sharding.write else { return };
    write.told = rows;
    if let Some(fault) = write.fault(rows) {
        write.step = WriteStep::Failed(fault);
    }
}

/// The fate of a server's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReturnedMessage {
    /// It is none of the rows and descriptions.
    Other,
    Kept,
    /// More of it must arrive.
    More,
}

/// Keeps a row that a server returns. Columns are compared with those of the servers before.
#[cold]
pub fn on_returned(s: &mut Session, header: MessageHeader) -> ReturnedMessage {
    let Some(subject) = s.replies().row_subject().filter(|_| matches!(header.tag, back::DATA_ROW | back::ROW_DESCRIPTION)) else {
        return ReturnedMessage::Other;
    };
    let is_last = s.sharding.write.as_ref().is_some_and(|write| !write.is_ahead());
    let Some((returned, at)) = s.sharding.write.as_mut().and_then(|write| write.returned_now()) else {
        return ReturnedMessage::Other;
    };
    let is_described_apart = subject == RowSubject::Description;
    if !returned.has_room(header) {
        if is_described_apart {
            return ReturnedMessage::Other;
        }
        s.down.eat(header);
        return ReturnedMessage::Kept;
    }
    if !s.down.has_whole(header.frame_bytes()) {
        return ReturnedMessage::More;
    }
    let message = message_of(s.down.unseen(), header);
    if header.tag == back::DATA_ROW {
        returned.add(at, message);
    } else {
        returned.describe(&message[HEADER_BYTES..]);
        if is_described_apart {
            return ReturnedMessage::Other;
        }
        if is_last {
            returned.keep_description(message);
        }
    }
    s.down.eat(header);
    ReturnedMessage::Kept
}

/// A server other than the last one has refused the statement.
pub fn note_failure(s: &mut Session, fault: ErrorReport) {
    s.sharding.write.iter_mut().for_each(|write| write.step = WriteStep::Failed(fault.clone()));
}

/// A server other than the last one is ready again.
pub fn part_ended(s: &mut Session) {
    s.sharding.write.iter_mut().for_each(|write| write.done());
    s.wake();
}

/// Sends the last server its own message in place of the client's. False: the client's own goes there.
pub fn send_last(s: &mut Session, w: &Context, header: MessageHeader) -> bool {
    let Some(write) = &s.sharding.write else { return false };
    let Some(message) = write.last_message() else { return false };
    let message = message.to_vec();
    if matches!(write.parts.messages, PartMessages::Copy(_)) {
        s.expect(ExpectedReply::CopyEnd);
    }
    s.up.eat(header);
    s.up.extra(&w.buffers).extend_from_slice(&message);
    true
}

/// True if the last server gets its own messages in place of the client's Bind.
pub fn has_own_bind(s: &Session) -> bool {
    s.sharding.write.as_ref().is_some_and(|write| write.last_message().is_some())
}

/// Sends the last server its own Parse and Bind in place of the client's Bind. The caller has noted both.
#[cold]
pub fn bind_last(s: &mut Session, w: &Context, header: MessageHeader) {
    send_last(s, w, header);
    // The unnamed statement is the server's part now, and the client's own one comes again when it is used.
    if let Some(conn) = s.conn_mut() {
        conn.unnamed = None;
    }
}

/// Has the last server describe the rows of a portal that it has just bound, whether the client asks for it or not.
#[cold]
pub fn describe_last(s: &mut Session, w: &Context) {
    if s.sharding.write.as_ref().is_none_or(|write| write.returned().is_none()) {
        return;
    }
    write::named(s.up.extra(&w.buffers), front::DESCRIBE, b'P', b"");
    s.upstream_mut().into_iter().for_each(|upstream| upstream.replies.push(ExpectedReply::PartDescribeOurs));
}

/// Makes later messages wait behind the client's last message of the statement.
pub fn hold_others(s: &mut Session) {
    if s.sharding.write.is_some() {
        s.raise_barrier();
    }
}

/// Comes behind the client's Execute. Where other statements follow it, a Sync of Weir's ends the answers of this one.
#[cold]
pub fn after_execute(s: &mut Session, w: &Context) {
    let Some(write) = s.sharding.write.as_mut().filter(|write| write.end == WriteEnd::OfExecute) else { return };
    write.end = WriteEnd::OfOwnSync;
    s.expect(ExpectedReply::SyncOurs);
    write::bare(s.up.extra(&w.buffers), front::SYNC);
    s.raise_barrier();
    timing::asked(s, w);
}

/// The answers of a statement that others follow are all there. If they are not one, the transaction must fail.
#[cold]
pub fn on_own_sync(s: &mut Session, w: &Context) {
    let Some(write) = s.sharding.write.take_if(|write| write.end == WriteEnd::OfOwnSync) else { return };
    if let WriteStep::Spoiled(fault) = write.step {
        failing_parse::send(s, w, SubstituteFault { parameters: None, fault });
    }
}

/// Forgets a statement whose message is refused. A transaction of Weir's own is rolled back.
#[cold]
pub fn abandon(s: &mut Session) {
    s.sharding.look_wait = None;
    let Some(write) = s.sharding.write.take() else { return };
    if write.owner == TransactionOwner::Weir {
        roll_back_own(s);
    }
}

/// Forgets a statement whose server connection is lost.
#[cold]
pub fn lost(s: &mut Session) -> Option<TransactionOwner> {
    s.sharding.write.take().map(|write| write.owner)
}

/// The outcome of a loss for the client, which has no transaction where it is Weir's.
pub fn outcome_for(owner: Option<TransactionOwner>, outcome: LossOutcome) -> LossOutcome {
    match (owner, outcome) {
        (Some(TransactionOwner::Weir), LossOutcome::RolledBack(_)) => LossOutcome::RolledBack(TransactionAfterLoss::Outside),
        (Some(TransactionOwner::Weir), LossOutcome::Unknown(_)) => LossOutcome::Unknown(TransactionAfterLoss::Outside),
        (_, outcome) => outcome,
    }
}

/// Rolls a transaction of Weir's own back on all servers.
pub(crate) fn roll_back_own(s: &mut Session) {
    let is_at_rest = s.replies().is_settled() && !s.up.has_pending();
    if let Some(SessionServer { conn, .. }) = s.server.take() {
        s.host.park(&conn);
        s.note_parted();
        if is_at_rest { s.host.roll_back_parked(conn) } else { s.host.close_parked(conn) }
    }
    participants::roll_back(s);
    s.lazy_begin.end();
    *s.handle.overdue.borrow_mut() = OverdueStatement::No;
    s.show_doing();
}

/// True if the server's next message waits: it is the end of the last answer, and Weir's transaction is not committed yet.
#[cold]
pub fn holds_back(s: &mut Session) -> bool {
    let Some(write) = &s.sharding.write else { return false };
    match (write.owner, &write.step) {
        (_, WriteStep::Commits) => return true,
        (TransactionOwner::Weir, WriteStep::Last) => {}
        _ => return false,
    }
    if s.replies().is_our_turn() || s.down.is_mid_message() {
        return false;
    }
    let Ok(Some(header)) = read_header(s.down.unseen()) else { return false };
    if header.tag != back::COMMAND_COMPLETE {
        return false;
    }
    match status_behind(s.down.unseen()) {
        StatusBehind::Is(WITHIN) => {
            let told = s.down.whole(header).map_or(0, rows_of_tag);
            let Some(write) = &mut s.sharding.write else { return false };
            if let Some(fault) = write.fault(told) {
                write.step = WriteStep::NotCommitted(fault);
                return false;
            }
            write.step = WriteStep::Commits;
            s.wake();
            true
        }
        StatusBehind::Is(_) => false,
        StatusBehind::More(bytes) if bytes <= END_BYTES_MAX => {
            s.down.has_whole(bytes);
            true
        }
        StatusBehind::More(bytes) => {
            // The client must not hear of a success that is not committed.
            let text = format!("the end of a server's answer takes {bytes} bytes, the limit is {END_BYTES_MAX}");
            not_committed(s, ErrorReport::error(sqlstate::PROGRAM_LIMIT_EXCEEDED, text));
            false
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum StatusBehind {
    Is(u8),
    /// As many bytes are needed to know.
    More(usize),
}

/// The status that the ReadyForQuery behind a command tag tells.
fn status_behind(here: &[u8]) -> StatusBehind {
    let mut at = 0;
    loop {
        let Ok(Some(header)) = read_header(&here[at..]) else { return StatusBehind::More(at + HEADER_BYTES) };
        let end = at + header.frame_bytes();
        if here.len() < end {
            return StatusBehind::More(end);
        }
        if header.tag == back::READY {
            return StatusBehind::Is(here.get(at + HEADER_BYTES).copied().unwrap_or(IDLE));
        }
        at = end;
    }
}

/// Weir's transaction is committed everywhere.
pub fn committed(s: &mut Session) {
    if !s.sharding.end_batch() {
        s.sharding.write.iter_mut().for_each(|write| write.step = WriteStep::Committed);
    }
}

/// Weir's transaction is not committed, and its client hears why.
#[cold]
pub fn not_committed(s: &mut Session, fault: ErrorReport) {
    s.sharding.write.iter_mut().for_each(|write| write.step = WriteStep::NotCommitted(fault.clone()));
}

/// Weir's transaction could not be committed, or its outcome is not known, and its server connections are not used any more.
#[cold]
pub fn commit_broke(s: &mut Session, w: &Context, fault: &ErrorReport) {
    participants::abandon(s);
    (s.sharding.write, s.sharding.batch) = (None, BatchStep::None);
    let lost = s.lose(w, MessageFate::Unknown);
    s.lazy_begin.end();
    let Some((conn, owed)) = lost else { return };
    s.host.close(conn);
    concern::lost(s, w);
    loss_words::tell(s, w, LossOutcome::RolledBack(TransactionAfterLoss::Outside), owed, fault);
    s.show_doing();
    s.wake();
}

/// Tells the client the tag of all servers, or why there is none, in place of the last server's. True if so.
pub fn tell_tag(s: &mut Session, w: &Context, header: MessageHeader) -> bool {
    let Some(write) = &mut s.sharding.write else { return false };
    let rows = write.rows;
    match write.step.clone() {
        WriteStep::Last | WriteStep::Committed => {
            let Some(body) = s.down.whole(header) else { return false };
            if let Some(fault) = write.fault(rows_of_tag(body)) {
                write.step = WriteStep::Spoiled(fault);
                s.down.eat(header);
                return true;
            }
            let tag = tag_of_all(body, rows);
            s.down.eat(header);
            let out = s.down.extra(&w.buffers);
            write.returned().into_iter().for_each(|returned| returned.write(out));
            write::command_complete(out, &tag);
            s.upstream_mut().into_iter().for_each(|upstream| upstream.tally.note_rows(rows));
        }
        WriteStep::NotCommitted(fault) => {
            s.down.eat(header);
            s.say_error(w, &fault);
        }
        WriteStep::Due
        | WriteStep::Sent
        | WriteStep::Failed(_)
        | WriteStep::Takes
        | WriteStep::Commits
        | WriteStep::Spoiled(_) => return false,
    }
    true
}

/// Changes the last server's ReadyForQuery, where the transaction is not the client's: it is over.
pub fn before_ready(s: &mut Session) {
    let is_over = s.sharding.write.as_ref().is_some_and(|write| write.is_over());
    if is_over && !s.replies().is_our_turn() {
        s.down.change(HEADER_BYTES, IDLE);
    }
}

/// Makes the client's transaction fail on the last server in place of its ReadyForQuery, where the answers of the servers are not one. True if so.
#[cold]
pub fn fails_late(s: &mut Session, w: &Context) -> bool {
    let Some(write) = &mut s.sharding.write else { return false };
    let WriteStep::Spoiled(fault) = &write.step else { return false };
    let refusal = SubstituteFault { parameters: None, fault: fault.clone() };
    write.step = WriteStep::Last;
    let Some(SessionServer { conn, upstream }) = &mut s.server else { return false };
    write::query(s.up.extra(&w.buffers), "refused by the proxy");
    upstream.replies.push(ExpectedReply::QueryRefused);
    upstream.brought.refusals.push_back(refusal);
    conn.unnamed = None;
    upstream.raise_barrier();
    timing::asked(s, w);
    true
}

/// The client has the end of the answer. A transaction of Weir's that has failed on the last server is rolled back.
#[cold]
pub fn after_ready(s: &mut Session) {
    let Some(write) = s.sharding.write.take() else { return };
    if let (TransactionOwner::Client, Some(participants)) = (write.owner, &mut s.participants) {
        participants.changes.extend(write.changes);
    }
    // A commit, and one that the server that decides has refused, leaves no participants.
    if write.owner == TransactionOwner::Weir && s.participants.is_some() {
        roll_back_own(s);
    }
}

/// The error of a server in the words of the client's statement.
#[cold]
pub fn fault_of(s: &Session, body: &[u8]) -> ErrorReport {
    let report = read_report(body);
    timing::overdue(&s.handle, report.sqlstate).unwrap_or_else(|| ErrorReport::of_server(body))
}

/// The error of a statement whose transaction cannot go on to the next server.
#[cold]
pub fn cannot_go_on(s: &mut Session) -> ErrorReport {
    let fault = sharding::cannot_span(s);
    abandon(s);
    fault
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_tells_of_the_rows_of_all_servers() {
        for (last, before, expected) in [
            (&b"UPDATE 5\0"[..], 10, "UPDATE 15"),
            (b"INSERT 0 5\0", 10, "INSERT 0 15"),
            (b"DELETE 0\0", 0, "DELETE 0"),
            (b"ALTER TABLE\0", 0, "ALTER TABLE"),
            (b"DELETE 12345\0", 0, "DELETE 12345"),
            (b"UPDATE 1\0", u64::MAX, "UPDATE 18446744073709551615"),
        ] {
            assert_eq!(tag_of_all(last, before), expected);
        }
    }

    #[test]
    fn the_status_stands_at_the_end_of_an_answer() {
        let mut answer = Vec::new();
        write::command_complete(&mut answer, "UPDATE 1");
        let tag_bytes = answer.len();
        write::bare(&mut answer, back::CLOSE_COMPLETE);
        write::ready(&mut answer, b'T');
        assert_eq!(status_behind(&answer), StatusBehind::Is(b'T'));
        for cut in 0..answer.len() {
            let StatusBehind::More(bytes) = status_behind(&answer[..cut]) else { panic!("{cut}") };
            assert!(bytes > cut, "{cut}");
        }
        assert_eq!(status_behind(&answer[..tag_bytes]), StatusBehind::More(tag_bytes + HEADER_BYTES));
    }
}
