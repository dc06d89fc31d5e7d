//! An error owed to a client whose transaction was lost with nothing under way: the protocol allows none before the client's next
//! message.

use crate::context::Context;
use crate::fault::{ErrorReport, sqlstate};
use crate::flow::MessageFlow;
use crate::session::Session;
use crate::sharding::write_steps;
use crate::{pipeline, query_cache, rerun};
use weir_sql::facts::{TransactionEnd, TransactionVerb};
use weir_wire::frame::{MessageHeader, front};

/// Fails the next message, which no server has seen.
pub fn fail_next(s: &mut Session, w: &Context, fault: &ErrorReport) -> Result<(), ErrorReport> {
    if rerun::is_under_way(s) {
        rerun::refuse(s, w);
        return Ok(());
    }
    let header = s.up.peek(&w.buffers).map_err(|e| ErrorReport::fatal(sqlstate::PROTOCOL_VIOLATION, e.to_string()))?;
    let Some(header) = header else { return Ok(()) };
    s.up.eat(header);
    write_steps::abandon(s);
    s.retry.refused_under = None;
    query_cache::refused(s, w);
    s.say_error(w, fault);
    if matches!(header.tag, front::QUERY | front::FUNCTION_CALL) {
        s.say_ready(w);
    } else {
        s.intake.skip_to_sync();
    }
    Ok(())
}

/// Fails the client's next statement. `None`: it goes on. A failed COMMIT ends its transaction, as on a server.
#[cold]
pub fn tell(s: &mut Session, w: &Context, header: MessageHeader) -> Result<Option<MessageFlow>, ErrorReport> {
    let is_statement =
        matches!(header.tag, front::QUERY | front::FUNCTION_CALL | front::PARSE | front::BIND | front::DESCRIBE | front::EXECUTE);
    if !is_statement {
        return Ok(None);
    }
    if header.body_bytes <= pipeline::END_BYTES_MAX && !s.up.has_whole(header.frame_bytes()) {
        return Ok(Some(MessageFlow::More));
    }
    let transaction = pipeline::transaction_next(s, w);
    s.intake.stop_skipping();
    let Some(fault) = s.intake.owed.take() else { return Ok(None) };
    match transaction {
        TransactionVerb::End(TransactionEnd::Rollback) => return Ok(None),
        TransactionVerb::End(TransactionEnd::Commit | TransactionEnd::Prepare)
        | TransactionVerb::Chain(TransactionEnd::Commit) => s.lazy_begin.end(),
        TransactionVerb::None
        | TransactionVerb::Begin(_)
        | TransactionVerb::Chain(TransactionEnd::Rollback | TransactionEnd::Prepare)
        | TransactionVerb::Within
        | TransactionVerb::Prepared
        | TransactionVerb::Many => {}
    }
    if !s.lazy_begin.is_open() {
        s.handle.clock.transaction_since.set(None);
    }
    fail_next(s, w, &fault)?;
    s.show_doing();
    Ok(Some(MessageFlow::Next))
}
