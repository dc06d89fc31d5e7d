//! A Parse that fails on every server, in place of a message that Weir refuses.

use crate::context::Context;
use crate::replies::ExpectedReply;
use crate::session::{Session, SessionServer, SubstituteFault};
use crate::upstream::FlushOrigin;
use weir_wire::write;

/// Never exists on a server.
pub const NO_STATEMENT: &[u8] = b"weir_none";

const FAILING_PARSE: &[u8] = b"refused by the proxy\0\0\0";

/// Makes the server fail, whose error is replaced.
pub fn send(s: &mut Session, w: &Context, refusal: SubstituteFault) {
    let Some(SessionServer { upstream, .. }) = &mut s.server else { return };
    // An unnamed Parse would drop the unnamed statement before it fails.
    write::parse(s.up.extra(&w.buffers), NO_STATEMENT, FAILING_PARSE);
    upstream.replies.push(ExpectedReply::Refused);
    upstream.flushed = FlushOrigin::No;
    upstream.brought.refusals.push_back(refusal);
}
