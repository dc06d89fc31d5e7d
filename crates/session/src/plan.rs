//! The stages of a message that runs something, from top to bottom.
//!
//! 1. classify: `classify`, `read_preference`, `lazy_begin` and `read_retry` say what kind of server the statement needs;
//! 2. choose: `session::routing` names the node;
//! 3. check out: the session keeps its server connection, takes one at rest, or waits for one (`checkout`);
//! 4. bring: the server connection gets the session's settings and statements (`session_state`), and a deferred BEGIN goes in front;
//! 5. refuse: a statement that cannot run where its transaction is;
//! 6. note: every concern hears of the message (`concern::sent`);
//! 7. send: the caller passes the client's bytes on, and notes the reply that is due.
//!
//! Before the stages a statement may be answered without a server: by Weir itself (`answer`) or from the query cache (`query_cache`).

use crate::causal::held_read::{self, HeldReadOutcome};
use crate::context::Context;
use crate::fault::ErrorReport;
use crate::flow::MessageFlow;
use crate::session::Session;
use crate::statements::Statement;
use crate::unit::StatementMessage;
use crate::{checkout, concern, query_cache, sequences};
use weir_wire::frame::MessageHeader;

/// Why a statement cannot run where it would.
type Refusal = fn(&mut Session, &Context, &Statement) -> Option<ErrorReport>;

/// The plan for a message.
pub enum MessagePlan {
    /// A server connection is there on which it may run.
    Ready,
    /// Something comes first; it is planned again then, from the top.
    Later(MessageFlow),
    Refused(ErrorReport),
}

/// Stages 1 to 5 of a message that runs this statement. An error ends the session.
#[inline]
pub fn plan(s: &mut Session, w: &Context, unit: StatementMessage<'_>) -> Result<MessagePlan, ErrorReport> {
    let (statement, refusal): (&Statement, Refusal) = match unit {
        StatementMessage::Query(statement) | StatementMessage::Bind { statement, .. } => (statement, checkout::misplaced),
        // The server may know a read by that name: in a transaction on a standby it says itself what it does not do.
        StatementMessage::BindUnknown(statement) | StatementMessage::Call(statement) => (statement, sequences::refusal_of),
        // They go where the Bind went, or define something only.
        StatementMessage::Parse(_) | StatementMessage::Execute | StatementMessage::Garbled => return Ok(MessagePlan::Ready),
    };
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
    Ok(refusal(s, w, statement).map_or(MessagePlan::Ready, MessagePlan::Refused))
}

/// Stage 6, of a message that is about to be sent.
#[inline]
pub fn note(s: &mut Session, w: &Context, header: MessageHeader, unit: StatementMessage<'_>) {
    concern::sent(s, w, header, unit);
}
