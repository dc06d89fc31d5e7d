//! Answers from memory within transactions. Whether there are any is `policy::cache::Block`'s to say.

use super::{Answers, Session, Worker, slots_touched};
use crate::client::session::{Begun, IDLE, WITHIN};
use crate::client::statements::Statement;
use crate::traffic::batch::Batch;
use crate::traffic::begun;
use crate::traffic::judging;
use weir_policy::cache::{Block, Deed, Ground, Manner, Stand};
use weir_sql::facts::Isolation;

/// Where the session stands before its next statement.
#[inline]
pub(super) fn stand(s: &mut Session, w: &Worker) -> Stand {
    match (&s.begun, s.transaction) {
        (Begun::No, IDLE) => Stand::Outside,
        (Begun::No, WITHIN) => Stand::Runs(s.cached.block),
        (Begun::Held(begin) | Begun::Reading(begin), _) => {
            let begin = begun::options_of(begin);
            let manner = Manner { begin, defaults: judging::defaults(s, w) };
            Stand::Held { manner, sees_on: s.causal.sees_on(w) }
        }
        (Begun::No | Begun::Failed(_) | Begun::Sent(_), _) => Stand::Other,
    }
}

/// Whether each statement of a transaction that nobody has begun has a snapshot of its own.
pub(super) fn reads_committed(s: &mut Session, w: &Worker) -> bool {
    matches!(judging::defaults(s, w).isolation, Isolation::ReadCommitted | Isolation::ReadUncommitted)
}

/// The transaction that waits is about to begin on the session's link.
pub fn begins(s: &mut Session, w: &Worker) {
    if w.shared.answers.is_none() {
        return;
    }
    let ground = if s.net.is_on_reader { Ground::Standby } else { Ground::Primary };
    s.cached.block = match &s.begun {
        Begun::Held(begin) | Begun::Reading(begin) => {
            let begin = begun::options_of(begin);
            Block::begins(&Manner { begin, defaults: judging::defaults(s, w) }, ground)
        }
        Begun::No | Begun::Failed(_) | Begun::Sent(_) => Block::Unknown,
    };
}

/// A statement is about to be sent.
#[inline]
pub(super) fn goes_on(s: &mut Session, w: &Worker, answers: &Answers, statement: &Statement) {
    if s.cached.block != Block::Unknown {
        let only_reads = s.transaction == WITHIN && only_reads(s, w, answers, statement);
        s.cached.block = s.cached.block.after(if only_reads { Deed::Reads } else { Deed::Acts });
    }
}

/// The same of a Bind. A portal that may be asked for later is the server's to answer for, and so is all in between.
#[inline]
pub(super) fn goes_on_bound(s: &mut Session, w: &Worker, answers: &Answers, statement: &Statement) {
    if s.cached.block != Block::Unknown {
        if Batch::read(s.up.unseen()).is_none_or(|batch| !batch.is_synced) {
            s.cached.block = s.cached.block.after(Deed::Acts);
        }
        goes_on(s, w, answers, statement);
    }
}

fn only_reads(s: &mut Session, w: &Worker, answers: &Answers, statement: &Statement) -> bool {
    let leaves_nothing = statement.leaves.is_empty() && statement.may_change.is_empty() && statement.functions.is_empty();
    statement.caching.as_deref().is_some_and(|caching| caching.text.only_reads)
        && leaves_nothing
        && !statement.locks
        && slots_touched(s, w, answers, statement).is_empty()
}

/// Whether an answer may be kept that ended with this status of the server's transaction.
pub(super) fn may_keep(s: &Session, status: u8) -> bool {
    match status {
        IDLE => true,
        WITHIN => Stand::Runs(s.cached.block).may_ask(),
        _ => false,
    }
}
