//! Snapshots of all shards, taken before a statement of the engine (`cross_shard_reads = snapshot`).
//!
//! The engine opens a transaction on each shard, whose first statement takes the snapshot, when it first reads the shard. A commit on several shards could
//! come between two of them. So the program has the engine read all shards before the statement, while the gate keeps such commits out. Both are one
//! implicit transaction, and the statement reads by those snapshots. In a block that is open on the engine all statements do: the snapshots are taken
//! once, behind its BEGIN, also with `latest`.

use crate::checkout;
use crate::concern;
use crate::conn::Conn;
use crate::context::Context;
use crate::fault::ErrorReport;
use crate::flow::MessageFlow;
use crate::lazy_begin;
use crate::session::{FAILED, IDLE, MessageFate, Session, SessionServer};
use crate::sharding::gathered_read;
use crate::sharding::shard_target::{ENGINE, ShardSnapshots};
use crate::upstream::UpstreamState;
use weir_config::CrossShardReads;
use weir_wire::frame::{MessageHeader, back, front};
use weir_wire::write;

/// Returns the step before a statement of the engine, if there is one. The session has its server connection.
#[cold]
pub fn before(s: &mut Session, w: &Context) -> Option<MessageFlow> {
    if is_in_block(s) {
        s.intake.replay.iter_mut().for_each(|record| record.spoil());
    }
    let is_gathered = gathered_read::statement(s).is_some();
    // A block keeps its snapshots, and a cursor those of its declaration.
    let is_wanted = || is_gathered || is_in_block(s) || w.peek_config().sharding.reads != CrossShardReads::Latest;
    if s.sharding.here() != ENGINE || !is_wanted() {
        return None;
    }
    if s.transaction() == FAILED {
        return None;
    }
    s.sharding.set_snapshots(ShardSnapshots::Wanted);
    if !is_in_block(s) {
        note_transaction(s, true);
    }
    Some(checkout::again(s))
}

/// True if the session's transaction block is open on the engine.
pub fn is_in_block(s: &Session) -> bool {
    s.sharding.here() == ENGINE && s.transaction() != IDLE
}

/// True if the transaction that is open on the engine has failed: it tells so whatever the statement is, and ends or goes back to a savepoint there.
#[inline]
pub fn has_failed_block(s: &Session) -> bool {
    s.sharding.here() == ENGINE && s.transaction() == FAILED
}

/// An implicit transaction, also one about to begin, keeps the session's connection.
fn note_transaction(s: &mut Session, is_open: bool) {
    if let Some(upstream) = s.upstream_mut() {
        upstream.replies.note_implicit(is_open);
    }
}

/// Sends a Query message whose snapshots are taken as messages of the extended protocol, whose answer has the same rows. A Query within an implicit
/// transaction does not end it from version 17 on, and the next statement fails (XX000). False: the message is another one.
pub fn send_query(s: &mut Session, w: &Context, header: MessageHeader) -> bool {
    if s.sharding.snapshots() != ShardSnapshots::Taken {
        return false;
    }
    let Some(text) = s.up.whole_if_here(header).map(<[u8]>::to_vec) else { return false };
    s.up.eat(header);
    let out = s.up.extra(&w.buffers);
    // The text has its zero byte; no types.
    write::parse(out, b"", &[&text[..], &[0, 0]].concat());
    // No names; no formats, values, or formats of results.
    write::message(out, front::BIND, |out| out.extend([0; 8]));
    write::named(out, front::DESCRIBE, b'P', b"");
    write::message(out, front::EXECUTE, |out| out.extend([0; 5]));
    write::bare(out, front::SYNC);
    true
}

/// Makes later messages wait behind the end of a statement whose snapshots are taken: they are the statement's, and the next one has its own.
pub fn hold_others(s: &mut Session) {
    if matches!(s.sharding.snapshots(), ShardSnapshots::Taken | ShardSnapshots::Gathered) {
        s.raise_barrier();
    }
}

/// True if a message answers a part of a Query that `send_query` has sent, of which its client knows nothing.
pub fn is_of_query(s: &Session, header: MessageHeader) -> bool {
    // A COPY is described as a statement without rows.
    matches!(header.tag, back::PARSE_COMPLETE | back::BIND_COMPLETE | back::NO_DATA)
        && s.sharding.snapshots() == ShardSnapshots::Taken
        && s.replies().is_query_next()
}

/// True if the session's next statement waits for the snapshots.
pub fn are_wanted(s: &Session) -> bool {
    s.sharding.snapshots() == ShardSnapshots::Wanted && s.has_server()
}

/// True if the program must take the snapshots now: what the session has set on the server connection is answered.
pub fn are_due(s: &Session) -> bool {
    are_wanted(s) && s.replies().is_empty() && !s.up.has_pending() && !s.down.has_unseen() && !s.down.is_mid_message()
}

/// The session's own connection, for the program to take the snapshots over; `taken` or `not_taken` follows.
pub fn lend(s: &mut Session) -> Option<(Box<Conn>, Box<UpstreamState>)> {
    if !is_in_block(s) {
        give_up(s);
    }
    s.server.take().map(|SessionServer { conn, upstream }| (conn, upstream))
}

/// The engine has the snapshots, in an implicit transaction or in the block that is open there.
pub fn taken(s: &mut Session, mut conn: Box<Conn>, mut upstream: Box<UpstreamState>) {
    conn.unnamed = None;
    let snapshots = match upstream.txn.status {
        IDLE => ShardSnapshots::Taken,
        _ if s.participants.is_some() => ShardSnapshots::Gathered,
        _ => ShardSnapshots::OfBlock,
    };
    if snapshots == ShardSnapshots::Taken {
        upstream.replies.note_implicit(true);
    }
    s.server = Some(SessionServer { conn, upstream });
    s.sharding.set_snapshots(snapshots);
    s.wake();
}

/// The block that is open on the engine has no snapshots: its statement that waits for them fails, and the block with it.
#[cold]
pub fn fail_block(s: &mut Session, w: &Context, fault: ErrorReport) {
    s.sharding.set_snapshots(ShardSnapshots::None);
    lazy_begin::fail_on_server(s, w);
    s.intake.owe(fault);
    s.wake();
}

/// No snapshots are wanted any more: the statement fails.
pub fn give_up(s: &mut Session) {
    s.sharding.set_snapshots(ShardSnapshots::None);
    note_transaction(s, false);
}

/// The connection is broken, or owes an answer.
pub fn lost(s: &mut Session, w: &Context, conn: Box<Conn>, upstream: Box<UpstreamState>) {
    not_taken(s, conn, upstream);
    let had_block = is_in_block(s);
    if let Some((conn, _)) = s.lose(w, MessageFate::Undone) {
        s.host.close(conn);
        concern::lost(s, w);
    }
    if had_block {
        lazy_begin::fail_lost(s, w);
    }
}

/// The connection is at rest again.
pub fn not_taken(s: &mut Session, mut conn: Box<Conn>, upstream: Box<UpstreamState>) {
    conn.unnamed = None;
    s.server = Some(SessionServer { conn, upstream });
    s.wake();
}
