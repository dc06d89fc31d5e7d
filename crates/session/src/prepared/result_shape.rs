//! Clients' descriptions of prepared statements, compared with those of servers.
//!
//! A server refuses a statement whose table has changed since its Parse. A server connection without the statement would analyse it
//! again, and the client would read rows by an outdated description. So Weir's Describe follows each Parse of a named statement. A server
//! connection whose statement may differ from the client's description is asked first; a changed statement is refused in PostgreSQL's
//! words.

use crate::context::Context;
use crate::fault::{ErrorReport, sqlstate};
use crate::prepared::{StatementId, StatementShape, key, push_name};
use crate::replies::ExpectedReply;
use crate::session::{IDLE, PendingDescription, Session, SessionServer};
use crate::statements::PreparedStatement;
use crate::timing;
use crate::upstream::FlushOrigin;
use crate::upstream::prepared_changes::{AwaitedDescription, DescribeTarget, StatementHold};
use std::rc::Rc;
use weir_wire::frame::{HEADER_BYTES, MessageHeader, back, front, split_cstr};
use weir_wire::write;

pub fn changed() -> ErrorReport {
    // Drivers prepare again by the routine (pgjdbc, asyncpg). Source: plancache.c.
    ErrorReport::error(sqlstate::FEATURE_NOT_SUPPORTED, "cached plan must not change result type")
        .routine("RevalidateCachedQuery")
}

/// True if the next message is the client's own Describe of this statement, so that Weir's is not needed.
pub fn is_described_next(s: &Session, own: &[u8]) -> bool {
    let next = s.up.unseen();
    let body = next.get(HEADER_BYTES..).and_then(|body| body.split_first());
    let is_describe = next.first() == Some(&front::DESCRIBE);
    is_describe && body.is_some_and(|(kind, rest)| *kind == b'S' && split_cstr(rest).is_some_and(|(name, _)| key(name) == own))
}

/// Expects the client's own Describe; its first description counts. `whose`: the statement without one.
pub fn expect(s: &mut Session, prepared: Rc<PreparedStatement>, told: StatementShape, whose: DescribeTarget) {
    if told != StatementShape::UNKNOWN {
        return s.expect_more(ExpectedReply::Describe);
    }
    await_description(s, ExpectedReply::DescribeTold, prepared, whose);
}

/// Writes Weir's Describe after a Parse.
pub fn ask(s: &mut Session, w: &Context, prepared: &Rc<PreparedStatement>, whose: DescribeTarget) {
    let id = prepared.id;
    write::message(s.up.extra(&w.buffers), front::DESCRIBE, |out| {
        out.push(b'S');
        if whose != DescribeTarget::Unnamed {
            push_name(out, id);
        }
        out.push(0);
    });
    await_description(s, ExpectedReply::DescribeOurs, prepared.clone(), whose);
}

fn await_description(s: &mut Session, expect: ExpectedReply, prepared: Rc<PreparedStatement>, whose: DescribeTarget) {
    let Some(upstream) = s.upstream_mut() else { return };
    upstream.replies.push(expect);
    upstream.flushed = FlushOrigin::No;
    if !upstream.replies.is_skipping() {
        upstream.brought.described.push_back(PendingDescription::new(prepared, whose));
    }
}

/// Makes the next message wait for the answer to Weir's Describe. A lone Describe gets a Sync, so that its error harms nothing else; in a
/// transaction, where an error is the client's, a Flush follows during the wait. `parameters`: the client's description of them, if the
/// message is a Describe.
pub fn wait(s: &mut Session, w: &Context, id: StatementId, is_alone: bool, parameters: Option<Rc<[u8]>>) {
    if is_alone && s.transaction() == IDLE {
        write::bare(s.up.extra(&w.buffers), front::SYNC);
        s.expect(ExpectedReply::SyncOurs);
    }
    if let Some(upstream) = s.upstream_mut() {
        upstream.brought.asked = Some(AwaitedDescription { id, parameters });
        upstream.brought.claim = StatementHold::Describing;
        upstream.flushed = FlushOrigin::No;
        upstream.raise_barrier();
    }
    timing::asked(s, w);
}

/// `is_here`: whole and short enough to be read.
pub fn on_description(s: &mut Session, header: MessageHeader, is_here: bool) {
    let body = if is_here { s.down.whole(header) } else { None };
    let Some(SessionServer { conn, upstream }) = &mut s.server else { return };
    let Some(described) = upstream.brought.described.front_mut() else { return };
    match header.tag {
        back::PARAMETER_DESCRIPTION => {
            described.shape = body.map_or(StatementShape::VAST, StatementShape::of_parameters);
            described.parameters = body.map(|body| described.prepared.parameters.share(body));
            return;
        }
        back::ROW_DESCRIPTION => described.shape = body.map_or(StatementShape::VAST, |body| described.shape.with_columns(body)),
        _ => {}
    }
    let Some(PendingDescription { prepared, whose, shape, parameters }) = upstream.brought.described.pop_front() else { return };
    match (&whose, &mut conn.unnamed) {
        (DescribeTarget::Unnamed, Some((id, known))) if *id == prepared.id => *known = shape,
        _ => conn.known.describe(prepared.id, shape),
    }
    // After an error a Close has not happened.
    let closed = upstream.journal.iter_mut().filter_map(|entered| entered.change.before());
    for own in s.statements.of_mut(&whose).chain(closed) {
        if own.told == StatementShape::UNKNOWN && Rc::ptr_eq(&own.prepared, &prepared) {
            own.told = shape;
            own.parameters.clone_from(&parameters);
        }
    }
}

/// Repeats known parameters: a server sends them before it fails to describe the rest. Source: `exec_describe_statement_message` in
/// postgres.c.
pub fn tell_parameters(s: &mut Session, w: &Context, parameters: Option<Rc<[u8]>>) {
    if let Some(body) = parameters {
        let out = s.down.extra(&w.buffers);
        write::message(out, back::PARAMETER_DESCRIPTION, |out| out.extend_from_slice(&body));
    }
}
