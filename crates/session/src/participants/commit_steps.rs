//! The statements of a transaction on several shards: its COMMIT, and those that it cannot have.

use crate::context::Context;
use crate::fault::{ErrorReport, sqlstate};
use crate::flow::MessageFlow;
use crate::participants::savepoint_steps;
use crate::participants::shard_parts::CommitPhase;
use crate::session::{FAILED, MessageFate, Session};
use crate::sharding::shard_target::{ENGINE, ShardTarget};
use crate::sharding::spread_write::SpreadChange;
use crate::statements::{Statement, StatementTrait};
use crate::{checkout, concern, lazy_begin, participants, sharding};
use weir_sql::facts::{TransactionEnd, TransactionVerb};

/// Returns what comes before a statement of a transaction on several shards, if anything.
#[cold]
pub fn before(s: &mut Session, w: &Context, statement: &Statement) -> Option<Result<MessageFlow, ErrorReport>> {
    let phase = s.participants.as_ref()?.phase;
    match statement.transaction {
        TransactionVerb::End(_) | TransactionVerb::Chain(_) if !s.replies().is_settled() => {
            // A server skips it behind an error.
            checkout::leave_reader(s, w);
            Some(Ok(MessageFlow::Hold))
        }
        TransactionVerb::End(TransactionEnd::Rollback) => {
            participants::roll_back(s);
            None
        }
        // Each of them rolls a failed transaction back.
        TransactionVerb::End(_) | TransactionVerb::Chain(_) if s.transaction() == FAILED => {
            participants::roll_back(s);
            None
        }
        // It may end the transaction, or take it back to a savepoint, on the server connection in use.
        TransactionVerb::Many if s.transaction() == FAILED => {
            let text = "several statements in one text cannot run in a transaction that is on several shards and has failed";
            Some(Err(ErrorReport::error(sqlstate::FEATURE_NOT_SUPPORTED, text).hint("Send each of them by itself.")))
        }
        TransactionVerb::End(TransactionEnd::Commit) => match phase {
            CommitPhase::Open => Some(Ok(begin_commit(s))),
            CommitPhase::RollsBackTo(_) | CommitPhase::Prepares | CommitPhase::Ends(..) => Some(Ok(MessageFlow::Hold)),
            CommitPhase::Prepared(_) => None,
        },
        _ => match statement.savepoint().and_then(|command| savepoint_steps::before(s, w, command)) {
            Some(flow) => Some(Ok(flow)),
            None => refusal(s, statement).map(Err),
        },
    }
}

fn begin_commit(s: &mut Session) -> MessageFlow {
    if !s.has_server() {
        // The statement that would have begun on another shard is gone.
        let shard = s.participants.as_ref().and_then(|participants| participants.oldest()).unwrap_or(0);
        participants::unpark(s, shard);
        return checkout::again(s);
    }
    if s.sharding.here() != 0 && s.participants.as_ref().is_some_and(|participants| participants.has(0)) {
        participants::park(s);
        participants::unpark(s, 0);
    }
    if let Some(participants) = &mut s.participants {
        participants.phase = CommitPhase::Prepares;
        participants.changes.iter_mut().for_each(SpreadChange::commit_begins);
    }
    checkout::again(s)
}

fn refusal(s: &mut Session, statement: &Statement) -> Option<ErrorReport> {
    if s.transaction() == FAILED {
        return None;
    }
    let first = s.participants.as_ref()?.first;
    let shard = if s.sharding.target() == ShardTarget::Any { s.sharding.here() } else { s.sharding.target().number() };
    if shard == ENGINE && s.sharding.gathered.is_some() && !s.sharding.is_tied() {
        return None;
    }
    if shard == ENGINE && s.sharding.gathered.is_none() {
        return Some(sharding::cannot_span(s));
    }
    if s.sharding.has_write() {
        // A statement that all shards carry out was looked at before.
        return None;
    }
    let why = if statement.carried.is_some() && s.sharding.is_tied() {
        s.sharding.untie();
        "it has too many savepoints and settings, or the command is in a named portal"
    } else if s.sharding.is_tied() {
        // After a rollback to a savepoint the transaction goes on.
        s.sharding.untie();
        "it may leave something on one server that the others lack"
    } else if statement.has(StatementTrait::AsksTime) && shard != first {
        "it asks for the time of the transaction, which began on another server"
    } else {
        return None;
    };
    let text = format!("the statement cannot run in a transaction that is on several shards: {why}");
    Some(ErrorReport::error(sqlstate::FEATURE_NOT_SUPPORTED, text).hint("Run it in a transaction of its own."))
}

/// Parts could not be rolled back to a savepoint: the transaction is lost, and its client hears why.
pub fn cannot_roll_back(s: &mut Session, w: &Context, fault: ErrorReport) {
    end_all(s, w);
    lazy_begin::fail_lost(s, w);
    s.intake.owe(fault);
    s.wake();
}

fn end_all(s: &mut Session, w: &Context) {
    participants::abandon(s);
    if let Some((conn, _)) = s.lose(w, MessageFate::Undone) {
        s.host.close(conn);
        concern::lost(s, w);
    }
}

/// The COMMIT could not be prepared: its transaction is over, and its client hears why.
pub fn cannot_commit(s: &mut Session, w: &Context, fault: ErrorReport) {
    end_all(s, w);
    s.lazy_begin.end();
    s.intake.owe(fault);
    s.wake();
}
