//! The stages of a message that runs something:
//!
//! 1. classify: the kind of server needed (`classify`, `read_preference`, `lazy_begin`, `read_retry`);
//! 2. choose: the node (`routing`);
//! 3. check out: the session keeps its server connection, takes one at rest, or waits (`checkout`);
//! 4. bring: the server connection gets settings and statements (`session_state`), then a deferred BEGIN;
//! 5. refuse: a statement that cannot run where its transaction is;
//! 6. note: every concern sees the message (`concern::sent`);
//! 7. send: the caller forwards the bytes and notes the expected reply.
//!
//! Before, Weir itself (`own_answers`) or `query_cache` may answer.

use crate::causal::held_read::{self, HeldReadOutcome};
use crate::context::Context;
use crate::fault::ErrorReport;
use crate::flow::MessageFlow;
use crate::participants::commit_steps;
use crate::session::Session;
use crate::statements::Statement;
use crate::unit::StatementMessage;
use crate::{checkout, concern, query_cache, sequences, sharding};
use weir_wire::frame::MessageHeader;

/// Returns why a statement cannot run on the server of its transaction.
type Refusal = fn(&mut Session, &Context, &Statement) -> Option<ErrorReport>;

pub enum MessagePlan {
    Ready,
    /// Another step comes first, then stage 1 again.
    Later(MessageFlow),
    Refused(ErrorReport),
}

/// Runs stages 1 to 5. An error ends the session.
#[inline]
pub fn plan(s: &mut Session, w: &Context, unit: StatementMessage<'_>) -> Result<MessagePlan, ErrorReport> {
    let (statement, refusal): (&Statement, Refusal) = match unit {
        StatementMessage::Query(statement) | StatementMessage::Bind { statement, .. } => (statement, checkout::misplaced),
        // A server that knows such a read reports itself what it cannot do.
        StatementMessage::BindUnknown(statement) | StatementMessage::Call(statement) => (statement, sequences::refusal_of),
        // Parse only defines; Execute goes where its Bind went.
        StatementMessage::Parse(_) | StatementMessage::Execute | StatementMessage::Garbled => return Ok(MessagePlan::Ready),
    };
    if w.is_sharded()
        && let Some(later) = sharding::aim(s, w, unit)
    {
        return Ok(later);
    }
    if s.participants.is_some()
        && let Some(first) = commit_steps::before(s, w, statement)
    {
        return Ok(first.map_or_else(MessagePlan::Refused, MessagePlan::Later));
    }
    if query_cache::must_let_go(s, w, statement) {
        return Ok(MessagePlan::Later(MessageFlow::Hold));
    }
    match held_read::judge(s, w, statement) {
        HeldReadOutcome::Shown => {}
        HeldReadOutcome::Waits => return Ok(MessagePlan::Later(MessageFlow::Hold)),
        HeldReadOutcome::Late => return Ok(MessagePlan::Refused(held_read::cannot_stay(s))),
    }
    if let Some(flow) = checkout::try_now(s, w, statement) {
        return Ok(MessagePlan::Later(flow));
    }
    if w.is_sharded()
        && let Some(before) = sharding::before(s, w)
    {
        return Ok(before);
    }
    Ok(refusal(s, w, statement).map_or(MessagePlan::Ready, MessagePlan::Refused))
}

/// Runs stage 6 for a message about to be sent.
#[inline]
pub fn note(s: &mut Session, w: &Context, header: MessageHeader, unit: StatementMessage<'_>) {
    concern::sent(s, w, header, unit);
}
