//! A read of several shards within a transaction that has begun on some of them, whose own changes it must see.
//!
//! The engine's other connections do not see what the transaction has changed and not committed. So the engine takes part in the transaction for one
//! statement: the program copies the rows that the statement may read, over the transaction's own connections where it has some, into temporary tables
//! of the engine with the tables' names, and the client's own text reads these (`traffic::shard_gather`). The engine's part is rolled back at once, when
//! the answer is with the client.

use crate::context::Context;
use crate::participants;
use crate::session::{Session, SessionServer, WITHIN};
use crate::sharding::gathered_statement::GatheredStatement;
use crate::sharding::savepoints;
use crate::sharding::shard_target::{ENGINE, ShardSnapshots};

/// True if the engine takes part in the session's transaction for a statement.
pub fn is_open(s: &Session) -> bool {
    s.sharding.here() == ENGINE && s.participants.is_some()
}

/// True if the session's transaction has begun on a server, so that its next read of several shards is such a statement.
pub fn is_needed(s: &Session) -> bool {
    s.participants.is_some() || (s.has_server() && s.transaction() == WITHIN)
}

/// False while such a statement waits for its rows: it is looked at anew.
pub fn is_ready(s: &Session) -> bool {
    !is_open(s) || s.sharding.snapshots() == ShardSnapshots::Gathered
}

/// The statement whose rows the program copies now.
pub fn statement(s: &Session) -> Option<&GatheredStatement> {
    s.sharding.gathered.as_deref().filter(|_| is_open(s))
}

/// Goes back to the shard from which such a statement came, once it is answered. The engine's part of a failed transaction stays, with what is told of it.
#[inline]
pub fn leave_if_over(s: &mut Session, w: &Context) {
    if s.sharding.here() == ENGINE {
        leave_engine(s, w);
    }
}

#[cold]
fn leave_engine(s: &mut Session, w: &Context) {
    let is_answered = s.sharding.snapshots() == ShardSnapshots::None
        && s.transaction() == WITHIN
        // A signal that comes late must not meet another session's statement.
        && s.handle.cancels.get() == 0
        && s.replies().is_settled()
        && !s.up.has_pending()
        && !s.up.is_mid_message()
        && !s.down.has_unseen()
        && !s.down.is_mid_message();
    let back = s.participants.as_ref().and_then(|participants| participants.newest());
    let Some(back) = back.filter(|_| is_open(s) && is_answered) else { return };
    let Some(SessionServer { conn, .. }) = s.server.take() else { return };
    s.host.park(&conn);
    s.note_parted();
    s.host.roll_back_parked(conn);
    if let Some(had) = participants::unpark(s, back) {
        savepoints::catch_up(s, w, had);
    }
    if s.participants.as_ref().is_some_and(|participants| participants.is_alone()) {
        s.participants = None;
    }
}
