//! An error that is owed to a client: its transaction was lost while nothing was under way, and the protocol has no word for that until the
//! client speaks.

use super::fail_next;
use crate::client::flow::Flow;
use crate::client::session::{LazyBegin, Session, Skip};
use crate::monitor::fault::Fault;
use crate::process::worker::Worker;
use crate::traffic::pipeline;
use weir_sql::facts::{Ending, Transaction};
use weir_wire::frame::{Header, front};

/// Fails the client's next statement with what is owed. `None`: the message is one for which that means nothing.
///
/// A COMMIT that fails ends its transaction, as one does that a server refuses. A ROLLBACK does what it is to do.
#[cold]
pub(super) fn tell(s: &mut Session, w: &Worker, header: Header) -> Result<Option<Flow>, Fault> {
    let is_statement =
        matches!(header.tag, front::QUERY | front::FUNCTION_CALL | front::PARSE | front::BIND | front::DESCRIBE | front::EXECUTE);
    if !is_statement {
        return Ok(None);
    }
    if header.body_bytes <= pipeline::END_BYTES_MAX && !s.up.has_whole(header.frame_bytes()) {
        return Ok(Some(Flow::More));
    }
    let transaction = pipeline::transaction_next(s, w);
    s.intake.skip = Skip::No;
    let Some(fault) = s.intake.owed.take() else { return Ok(None) };
    match transaction {
        Transaction::End(Ending::Rollback) => return Ok(None),
        Transaction::End(Ending::Commit | Ending::Prepare) | Transaction::Chain(Ending::Commit) => s.lazy_begin = LazyBegin::No,
        Transaction::None
        | Transaction::Begin(_)
        | Transaction::Chain(Ending::Rollback | Ending::Prepare)
        | Transaction::Within
        | Transaction::Prepared
        | Transaction::Many => {}
    }
    if !s.lazy_begin.is_open() {
        s.entry.clock.transaction_since.set(None);
    }
    fail_next(s, w, &fault)?;
    super::show_doing(s);
    Ok(Some(Flow::Next))
}
