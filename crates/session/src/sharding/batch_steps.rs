//! Statements for several shards that a client sends up to one Sync, outside of a transaction block.
//!
//! One server carries them out in one transaction, and commits it at the Sync. Weir does it by a transaction of its own on the servers
//! (`participants`): a BEGIN behind the statements that one server has makes a block of their implicit transaction, just before the first statement
//! for another one. Source: `BeginTransactionBlock` in xact.c. From there on the statements go their ways as in a client's block. Its client knows
//! nothing of the block: the ReadyForQuery that ends the messages waits for the commit (`SessionStep::Participants`), and tells of no transaction.

use crate::checkout;
use crate::context::Context;
use crate::fault::{ErrorReport, sqlstate};
use crate::flow::MessageFlow;
use crate::participants;
use crate::session::{IDLE, LazyBegin, MessageSkip, Session, WITHIN};
use crate::sharding::savepoints;
use crate::sharding::shard_target::BatchStep;
use crate::sharding::spread_write::TransactionOwner;
use crate::sharding::write_steps;
use crate::statements::Statement;
use weir_sql::facts::TransactionVerb;
use weir_wire::frame::{HEADER_BYTES, back, read_header};

/// The answer to Weir's own Sync. An error before the BEGIN has ended the implicit transaction.
pub fn on_own_sync(s: &mut Session, status: u8) {
    if status == IDLE && s.participants.is_none() {
        s.sharding.batch = BatchStep::None;
    }
}

/// Why a statement cannot run in a transaction of Weir's own.
#[cold]
pub fn refusal(statement: &Statement) -> Option<ErrorReport> {
    let is_control = statement.transaction != TransactionVerb::None || statement.carried.is_some();
    is_control.then(|| cannot_follow("a command about the transaction"))
}

/// The error of a message that would end or change the transaction of the messages before it.
#[cold]
pub fn cannot_follow(what: &str) -> ErrorReport {
    let text = format!("{what} came before a Sync, behind statements for several shards");
    ErrorReport::error(sqlstate::FEATURE_NOT_SUPPORTED, text)
        .detail("Messages up to a Sync are one transaction, which Weir commits on several shards at the Sync.")
        .hint("Send a Sync before it.")
}

/// Comes before a client's Sync. `Some`: the Sync waits.
#[cold]
pub fn before_sync(s: &mut Session, w: &Context) -> Option<MessageFlow> {
    if s.has_server() {
        return None;
    }
    let is_whole = s.intake.skip() == MessageSkip::No && !matches!(s.lazy_begin, LazyBegin::Failed(_));
    let oldest = s.participants.as_ref().and_then(|participants| participants.oldest());
    if let Some(shard) = oldest.filter(|_| is_whole)
        && let Some(had) = participants::unpark(s, shard)
    {
        savepoints::catch_up(s, w, had);
        return Some(checkout::again(s));
    }
    if let Some(fault) = s.intake.owed.take() {
        s.intake.stop_skipping();
        s.say_error(w, &fault);
    }
    end_without_server(s);
    None
}

/// Ends a transaction that has failed while the session had no server connection in use.
#[cold]
pub fn end_without_server(s: &mut Session) {
    s.sharding.batch = BatchStep::None;
    participants::roll_back(s);
    s.lazy_begin.end();
    s.handle.clock.transaction_since.set(None);
    s.show_doing();
}

/// Makes later messages wait behind the client's last message of the transaction.
pub fn hold_others(s: &mut Session) {
    if s.sharding.has_batch() {
        s.raise_barrier();
    }
}

/// True if the server's next message waits: it is the end of the client's messages, and the transaction is not committed yet.
#[cold]
pub fn holds_back(s: &mut Session) -> bool {
    match s.sharding.batch {
        BatchStep::Commits => return true,
        BatchStep::Open => {}
        BatchStep::None | BatchStep::Ended => return false,
    }
    if !s.replies().is_clients_end_next() || s.down.is_mid_message() {
        return false;
    }
    let Ok(Some(header)) = read_header(s.down.unseen()) else { return false };
    if header.tag != back::READY {
        return false;
    }
    if !s.down.has_whole(header.frame_bytes()) {
        return true;
    }
    if s.down.unseen().get(HEADER_BYTES) != Some(&WITHIN) {
        return false;
    }
    s.sharding.batch = BatchStep::Commits;
    s.wake();
    true
}

/// The commit has failed, and all is rolled back: the client hears why before the end of its messages. True if it was that of such a transaction.
#[cold]
pub fn tell_failure(s: &mut Session, w: &Context, fault: &ErrorReport) -> bool {
    let is_its = s.sharding.end_batch();
    if is_its {
        s.say_error(w, fault);
    }
    is_its
}

/// Comes before the ReadyForQuery that ends the client's messages: the transaction is not the client's, and is over.
#[cold]
pub fn before_ready(s: &mut Session) {
    if s.replies().is_clients_end_next() {
        s.down.change(HEADER_BYTES, IDLE);
    }
}

/// The client has the end of its messages. A transaction that has failed is rolled back.
#[cold]
pub fn after_ready(s: &mut Session) {
    match std::mem::take(&mut s.sharding.batch) {
        BatchStep::Open | BatchStep::Commits => write_steps::roll_back_own(s),
        BatchStep::None | BatchStep::Ended => {}
    }
}

/// The session's server connection is lost. `Some`: the client's last message was sent, and its answer ends the transaction.
#[cold]
pub fn lost(s: &mut Session) -> Option<TransactionOwner> {
    let is_at_end = s.sharding.has_batch() && s.replies().owed().readies > 0;
    if is_at_end {
        s.sharding.batch = BatchStep::None;
    }
    is_at_end.then_some(TransactionOwner::Weir)
}
