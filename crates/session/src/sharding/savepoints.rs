//! Savepoints of transactions that may be on several shards, and settings for their time (`SET LOCAL`).
//!
//! Before the transaction has begun on a server Weir answers for them. Then each goes to the server connection in use, as the client sends it, and
//! counts once the server has answered with its tag. Another connection learns of it before its next statement (`catch_up`). A `ROLLBACK TO`
//! goes at once to all connections on which something ran since (`participants::savepoint_steps`): it gives locks back.

use crate::context::Context;
use crate::fault::{ErrorReport, sqlstate};
use crate::replies::ExpectedReply;
use crate::session::{LazyBegin, Session};
use crate::session_state;
use crate::sharding::savepoint_stack::{SavepointStack, tag};
use crate::statements::Statement;
use crate::stats::StatCounter;
use crate::unit::StatementMessage;
use weir_sql::facts::{SavepointCommand, SavepointVerb, TransactionVerb};
use weir_sql::own;
use weir_wire::frame::{HEADER_BYTES, MessageHeader};

/// True if a statement about a savepoint ties its transaction to its server connection. `None`: it is none, and no setting.
pub fn ties(s: &Session, unit: StatementMessage<'_>) -> Option<bool> {
    let statement = match unit {
        StatementMessage::Query(statement) | StatementMessage::Bind { statement, .. } => statement,
        _ => return None,
    };
    statement.carried.as_ref()?;
    let is_in_named_portal = matches!(unit, StatementMessage::Bind { .. }) && s.up.unseen().get(HEADER_BYTES) != Some(&0);
    Some(is_in_named_portal || !has_room(s))
}

fn has_room(s: &Session) -> bool {
    s.sharding.savepoints.as_ref().is_none_or(|savepoints| !savepoints.is_full())
}

/// True if Weir answers: no server has the transaction.
pub fn answers(s: &Session, w: &Context) -> bool {
    w.is_sharded() && s.lazy_begin.is_open() && s.participants.is_none() && has_room(s)
}

/// Carries a command out in a transaction that no server has. Returns its tag.
pub fn answer(s: &mut Session, w: &Context, command: &SavepointCommand) -> Result<&'static str, ErrorReport> {
    let has_failed = matches!(s.lazy_begin, LazyBegin::Failed(_));
    if has_failed && command.verb != SavepointVerb::RollBackTo {
        return Err(ErrorReport::in_failed_transaction());
    }
    if !s.sharding.savepoints.get_or_insert_default().apply(command) {
        let text = format!("savepoint \"{}\" does not exist", command.name);
        return Err(ErrorReport::error(sqlstate::UNKNOWN_SAVEPOINT, text));
    }
    if has_failed {
        s.lazy_begin.go_on();
    }
    s.account.stats.add(StatCounter::Statements, 1);
    s.handle.clock.ready_at.set(w.now_us());
    Ok(tag(command.verb))
}

/// Gives the savepoints of the transaction to a server connection on which it begins.
pub fn bring(s: &mut Session, w: &Context) {
    if s.sharding.savepoints.is_some() {
        catch_up(s, w, SavepointStack::default());
    }
}

/// Brings a server connection that was parked to the client's savepoints. `had`: its own.
#[cold]
pub fn catch_up(s: &mut Session, w: &Context, mut had: SavepointStack) {
    let savepoints = s.sharding.savepoints.get_or_insert_default();
    let text = had.catch_up(&savepoints.stack);
    savepoints.stack = had;
    if let Some(text) = text {
        own::check(&text);
        session_state::send_clients(s, w, &text, ExpectedReply::BeginOurs);
    }
}

/// The savepoints of the server connection that is parked now.
pub fn leave(s: &mut Session) -> SavepointStack {
    s.sharding.savepoints.as_ref().map(|savepoints| savepoints.stack.clone()).unwrap_or_default()
}

/// Notes a statement that is sent.
#[inline]
pub fn note_statement(s: &mut Session, statement: &Statement) {
    if let Some(savepoints) = &mut s.sharding.savepoints
        && statement.transaction == TransactionVerb::None
    {
        savepoints.note_work();
    }
}

/// Notes Weir's own message of a statement.
pub fn note_part(s: &mut Session) {
    s.sharding.savepoints.iter_mut().for_each(|savepoints| savepoints.note_work());
}

/// Notes a Query that is sent. Later ones wait for the answer of a command.
#[inline]
pub fn note_query(s: &mut Session, statement: &Statement) {
    s.sharding.savepoints.iter_mut().for_each(|savepoints| savepoints.bound = None);
    if let Some(command) = &statement.carried {
        s.sharding.savepoints.get_or_insert_default().note_sent(command.clone());
        s.raise_barrier();
    }
}

/// Notes a Bind that is sent.
#[inline]
pub fn note_bind(s: &mut Session, statement: &Statement, is_unnamed: bool) {
    if !is_unnamed {
        return;
    }
    match &statement.carried {
        Some(command) => s.sharding.savepoints.get_or_insert_default().bound = Some(command.clone()),
        None => s.sharding.savepoints.iter_mut().for_each(|savepoints| savepoints.bound = None),
    }
}

/// True if the unnamed portal has a command.
#[inline]
pub fn waits_for_execute(s: &Session) -> bool {
    s.sharding.savepoints.as_ref().is_some_and(|savepoints| savepoints.bound.is_some())
}

/// Notes an Execute of the unnamed portal that is sent.
#[inline]
pub fn note_execute(s: &mut Session) {
    s.sharding.savepoints.iter_mut().for_each(|savepoints| savepoints.note_executed());
}

/// Notes a Sync that is sent. Later messages wait for the answers of commands.
#[inline]
pub fn note_sync(s: &mut Session) {
    if awaits_tag(s) {
        s.raise_barrier();
    }
}

/// True if the tag of a command is due.
#[inline]
pub fn awaits_tag(s: &Session) -> bool {
    s.sharding.savepoints.as_ref().is_some_and(|savepoints| savepoints.awaits_tag())
}

/// A server tells that a command was carried out.
#[cold]
pub fn on_tag(s: &mut Session, header: MessageHeader) {
    let Some(body) = s.down.whole(header) else { return };
    if let Some(savepoints) = &mut s.sharding.savepoints {
        savepoints.done(body.strip_suffix(b"\0").unwrap_or(body));
    }
}

/// All that was sent is answered. `is_over`: there is no transaction any more.
#[inline]
pub fn on_ready(s: &mut Session, is_over: bool) {
    if s.sharding.savepoints.is_none() {
        return;
    }
    if is_over && matches!(s.lazy_begin, LazyBegin::No) {
        s.sharding.savepoints = None;
    } else if s.replies().is_only_ours() {
        // Commands without a tag were not carried out.
        s.sharding.savepoints.iter_mut().for_each(|savepoints| savepoints.all_answered());
    }
}
