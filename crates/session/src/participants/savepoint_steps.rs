//! The steps of a `ROLLBACK TO` in a transaction on several shards: the parked participants on which something ran since are rolled back first.

use crate::checkout;
use crate::context::Context;
use crate::flow::MessageFlow;
use crate::lazy_begin;
use crate::loss::ExpectedTransaction;
use crate::participants;
use crate::participants::shard_parts::CommitPhase;
use crate::session::{FAILED, LazyBegin, Session};
use crate::sharding::savepoints::{awaits_tag, catch_up};
use crate::statements::Statement;
use weir_sql::facts::{SavepointCommand, SavepointVerb};

/// True if it is not known yet whether a failed transaction goes on or is over.
#[inline]
pub fn awaits_state(s: &mut Session, w: &Context) -> bool {
    s.transaction() == FAILED && awaits_end_of_failure(s, w)
}

#[cold]
fn awaits_end_of_failure(s: &mut Session, w: &Context) -> bool {
    let ends = s.upstream().is_some_and(|upstream| upstream.txn.control.behind != ExpectedTransaction::AsBefore);
    let waits = (ends || awaits_tag(s)) && !s.replies().is_settled();
    if waits {
        checkout::leave_reader(s, w);
    }
    waits
}

/// The step before a command in a transaction on several shards, if any.
#[cold]
pub fn before(s: &mut Session, w: &Context, command: &SavepointCommand) -> Option<MessageFlow> {
    if command.verb != SavepointVerb::RollBackTo {
        return None;
    }
    if awaits_tag(s) && !s.replies().is_settled() {
        // It is not known yet which savepoints there are.
        checkout::leave_reader(s, w);
        return Some(MessageFlow::Hold);
    }
    let number = s.sharding.savepoints.as_ref()?.stack.number(&command.name)?;
    let participants = s.participants.as_ref()?;
    if participants.phase == CommitPhase::RollsBackTo(number) {
        return Some(MessageFlow::Hold);
    }
    if !participants.worked_since(number) {
        return None;
    }
    if !s.replies().is_settled() {
        // A server skips the command behind an error.
        checkout::leave_reader(s, w);
        return Some(MessageFlow::Hold);
    }
    s.participants.iter_mut().for_each(|participants| participants.phase = CommitPhase::RollsBackTo(number));
    Some(checkout::again(s))
}

/// Takes a server connection back for a command, if the statement that was to begin on one more shard has failed before. True if so: the command waits.
#[cold]
pub fn takes_server(s: &mut Session, w: &Context, statement: &Statement) -> bool {
    if s.has_server() || statement.savepoint().is_none() {
        return false;
    }
    let has_failed = matches!(s.lazy_begin, LazyBegin::Failed(_));
    let Some(shard) = s.participants.as_ref().and_then(|participants| participants.oldest()) else { return false };
    let Some(had) = participants::unpark(s, shard) else { return false };
    catch_up(s, w, had);
    if has_failed {
        lazy_begin::fail_on_server(s, w);
    }
    s.raise_barrier();
    s.wake();
    true
}
