//! The step that makes a transaction of Weir's own of the statements since a client's last Sync. `batch_steps` ends it.

use crate::context::Context;
use crate::flow::MessageFlow;
use crate::loss::{PossibleCommit, TransactionCommands};
use crate::participants;
use crate::replies::ExpectedReply;
use crate::session::{IDLE, Session, SessionServer, WITHIN};
use crate::sharding::shard_target::{BoundStatements, ENGINE, ShardTarget};
use crate::timing;
use crate::upstream::TakenFor;
use weir_sql::own;
use weir_wire::frame::front;
use weir_wire::write;

pub const BEGIN: &str = "BEGIN";

/// A Bind behind its names, without values and formats.
const NO_VALUES: [u8; 6] = [0; 6];

/// True if what ran since the last Sync only reads, each statement under a snapshot of its own: its transaction may end without the client's Sync.
#[cold]
pub fn may_leave(s: &mut Session, w: &Context) -> bool {
    let Some(upstream) = s.upstream() else { return false };
    let is_implicit = upstream.txn.status == IDLE && !upstream.replies.is_copying_in();
    // In a block that has not begun on a server, and on a standby, nothing else runs.
    let reads = s.sharding.bound() <= BoundStatements::Reads || s.lazy_begin.is_open() || upstream.is_on_standby();
    is_implicit && reads && !s.sharding.is_tied() && participants::may_span(s, w)
}

/// True if what ran since the last Sync, outside of a block, may become a transaction of Weir's on several servers.
#[cold]
pub fn may_open(s: &mut Session, w: &Context) -> bool {
    let Some(SessionServer { conn, upstream }) = &s.server else { return false };
    let is_implicit = upstream.txn.status == IDLE
        && !s.lazy_begin.is_open()
        && upstream.txn.control == TransactionCommands::default()
        && upstream.txn.portal == PossibleCommit::No
        && !upstream.replies.is_copying_in();
    let is_movable = conn.takes_writes(&w.view()) && s.sharding.here() != ENGINE && s.sharding.target() != ShardTarget::Engine;
    is_implicit && is_movable && s.sharding.has_executed() && !s.sharding.is_tied() && participants::may_span(s, w)
}

/// True if the answer to messages before the last Sync is not there yet: its end would pass for that of the transaction.
#[cold]
pub fn must_wait(s: &Session) -> bool {
    s.replies().owed().readies > 0
}

/// Makes a block of what ran since the last Sync. The client's message waits, and is looked at again.
#[cold]
pub fn open(s: &mut Session, w: &Context) -> MessageFlow {
    own::check(BEGIN);
    let begin = w.statements.borrow_mut().of_text(BEGIN.as_bytes());
    s.intake.replay.iter_mut().for_each(|record| record.spoil());
    let Some(SessionServer { conn, upstream }) = &mut s.server else { return MessageFlow::Hold };
    let out = s.up.extra(&w.buffers);
    write::parse(out, b"", &[BEGIN.as_bytes(), &[0; 3]].concat());
    write::bind_head(out, b"", b"", NO_VALUES.len());
    out.extend(NO_VALUES);
    write::message(out, front::EXECUTE, |out| out.extend([0; 5]));
    write::bare(out, front::SYNC);
    conn.unnamed = None;
    upstream.replies.push(ExpectedReply::BlockOurs);
    upstream.replies.push(ExpectedReply::SyncOurs);
    // A loss from now on leaves nothing of the statements.
    (upstream.txn.begin, upstream.txn.status, upstream.role) = (Some(begin), WITHIN, TakenFor::Primary);
    upstream.raise_barrier();
    s.sharding.begin();
    s.sharding.open_batch();
    timing::asked(s, w);
    MessageFlow::Hold
}
