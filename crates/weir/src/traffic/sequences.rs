//! `currval` and `lastval` through shared server connections.
//!
//! A server process remembers what it drew from sequences, and nothing can move that. Most sessions never ask for it again, so drawing
//! alone keeps nobody's link. A session that asks gets the link it drew on last, as long as it alone has drawn on it, or an error: never
//! another client's value.
//!
//! Who asks teaches, in two steps. Where values are asked for within the transaction that drew them, or may be by a function or a prepared
//! text, links forget what others drew before a session draws on them: one more query of ours when the drawer changes. Where they are
//! asked for later, a session that may draw keeps its link. The first thousand times links forget in any case: who asks at all has
//! mostly done so by then, and is not refused for being the first.
//!
//! What a text shows counts, and what is in the catalog: a function that asks without drawing itself finds its session's values or none.

use crate::client::inventory;
use crate::client::session::{FAILED, Session};
use crate::client::state::Drawn;
use crate::client::statements::Statement;
use crate::monitor::fault::{Fault, sqlstate};
use crate::process::worker::Worker;
use crate::server::link::Link;
use std::sync::atomic::Ordering;
use weir_policy::replies::Expect;
use weir_sql::facts::Keeps;

/// Whether nobody has drawn on this link since.
fn is_last(drawn: Drawn, link: &Link) -> bool {
    drawn.serial == link.card.serial && drawn.count == link.drawn
}

/// Whether all that the link's server process remembers is this session's.
fn is_own(drawn: Drawn, link: &Link) -> bool {
    drawn.is_alone && is_last(drawn, link)
}

/// Notes that the statement about to be sent may draw.
#[inline]
pub fn note(s: &mut Session, statement: &Statement) {
    if let (true, Some(link)) = (statement.draws, &mut s.link) {
        let is_alone = match s.state.drawn {
            Some(drawn) if is_last(drawn, link) => drawn.is_alone,
            Some(_) | None => false,
        };
        let is_alone = is_alone || link.drawn == link.forgotten;
        link.drawn += 1;
        s.state.drawn = Some(Drawn { serial: link.card.serial, count: link.drawn, is_alone, is_held: true });
    }
}

/// Whether a statement asks for what was drawn before, also by executing what was prepared.
#[inline]
fn recalls(s: &Session, statement: &Statement) -> bool {
    statement.recalls || (statement.executes && s.state.by_sql.later().has(Keeps::Sequence))
}

/// The link a statement must have because its session's values are there.
#[inline]
pub fn wanted(s: &Session, statement: &Statement) -> Option<u64> {
    if recalls(s, statement) { s.state.drawn.map(|drawn| drawn.serial) } else { None }
}

/// Sees to it, before a statement is sent, that it cannot meet what others drew, and that what it draws stays.
#[inline]
pub fn prepare(s: &mut Session, w: &Worker, statement: &Statement) {
    if s.state.by_mode {
        return;
    }
    if statement.later.has(Keeps::Sequence) {
        // What is prepared now asks later: what is drawn until then shall be its session's.
        s.pools.known.note_recalls();
    }
    if recalls(s, statement) {
        prepare_recall(s, w, statement.draws);
    } else if statement.draws {
        prepare_draw(s, w);
    }
}

/// A standby gives out no values, and state there would keep the session from the primary.
fn is_on_primary(w: &Worker, link: &Link) -> bool {
    w.view().primary.is_some_and(|at| w.view().nodes[at].id == link.card.address.node)
}

fn prepare_draw(s: &mut Session, w: &Worker) {
    let Some(link) = &s.link else { return };
    let is_asked_later = link.pool.is_asked_for_sequences.load(Ordering::Relaxed);
    if !(is_asked_later || s.pools.known.recalls()) || !is_on_primary(w, link) {
        return;
    }
    if !s.state.drawn.is_some_and(|drawn| is_own(drawn, link)) {
        forget(s, w, false);
    }
    if is_asked_later && !s.state.stuck.has(Keeps::Sequence) {
        inventory::keep(s, w, Some(Keeps::Sequence));
    }
}

#[cold]
fn prepare_recall(s: &mut Session, w: &Worker, draws: bool) {
    let Some(link) = &s.link else { return };
    s.state.knows_no_draws = !is_on_primary(w, link);
    if s.state.knows_no_draws {
        return;
    }
    s.pools.known.note_recalls();
    let is_kept = s.state.stuck.has(Keeps::Sequence);
    let own = s.state.drawn.filter(|drawn| is_own(*drawn, link));
    let is_here = !draws && s.state.drawn.is_some_and(|drawn| drawn.is_held && is_last(drawn, link));
    if !is_here || own.is_none() {
        link.pool.is_asked_for_sequences.store(true, Ordering::Relaxed);
    }
    if is_here {
        // Nothing needs to be kept beyond what keeps the link now. Among others' values its own are not told apart.
        return;
    }
    // What was drawn elsewhere, or among others', is lost: who asks for it is refused; who draws anew goes on.
    if own.is_none() && s.state.drawn.is_some() && !draws {
        return;
    }
    if own.is_none() {
        let has_forgotten = s.state.forgotten == Some((link.card.serial, link.drawn));
        s.state.knows_no_draws = has_forgotten || forget(s, w, true);
    }
    if (own.is_some() || draws) && !is_kept {
        inventory::keep(s, w, Some(Keeps::Sequence));
    }
}

/// Has the server process forget what was drawn, if anything was, and where a query of ours may stand; `always`: also if nothing is known to have
/// been, since a view or an operator draws unseen. True: it does.
fn forget(s: &mut Session, w: &Worker, always: bool) -> bool {
    // Between what brings a statement to the link and its Bind a query of ours would take it away again.
    let may_ask = s.replies.is_only_ours() && s.asked.is_none() && s.transaction != FAILED && !s.up.is_mid_message();
    let Some(link) = s.link.as_mut().filter(|link| may_ask && (always || link.drawn != link.forgotten)) else { return false };
    // Whoever drew here last has lost his values: he shall hear so.
    link.drawn += 1;
    link.forgotten = link.drawn;
    s.state.forgotten = Some((link.card.serial, link.drawn));
    s.pools.known.note_forgotten();
    inventory::send(s, w, "DISCARD SEQUENCES", Expect::PrepareOurs);
    true
}

/// Whether the statement waits until all before it is answered, so that its link can forget what others drew.
#[inline]
pub fn must_settle(s: &Session, w: &Worker, statement: &Statement) -> bool {
    (statement.draws || recalls(s, statement)) && !s.replies.is_only_ours() && !s.state.by_mode && is_to_forget(s, w, statement)
}

#[cold]
fn is_to_forget(s: &Session, w: &Worker, statement: &Statement) -> bool {
    let Some(link) = &s.link else { return false };
    let will_rest = !s.replies.is_unsynced() && !s.replies.is_skipping() && !s.replies.is_copying_in() && s.transaction != FAILED;
    if !will_rest || !is_on_primary(w, link) || s.state.drawn.is_some_and(|drawn| is_own(drawn, link)) {
        return false;
    }
    let is_wanted = link.pool.is_asked_for_sequences.load(Ordering::Relaxed) || s.pools.known.recalls();
    recalls(s, statement) || (is_wanted && link.drawn != link.forgotten)
}

/// Why a statement that asks for values cannot be answered: the link they are on is gone, or others have drawn on it.
pub fn refusal(s: &Session, statement: &Statement) -> Option<Fault> {
    let link = s.link.as_ref().filter(|_| !s.state.by_mode && recalls(s, statement))?;
    let is_own = s.state.drawn.is_some_and(|drawn| is_own(drawn, link));
    // A server process that knows nothing says so itself, and of what the text itself draws.
    let knows_nothing = s.state.knows_no_draws && (statement.draws || s.state.drawn.is_none());
    (!is_own && !knows_nothing).then(|| {
        let text = "the sequence values of this session are lost: its server connection was used by another client";
        Fault::error(sqlstate::NOT_IN_STATE, text).hint(
            "From now on a session of this user and database keeps its server connection once it draws from a sequence. \
             INSERT ... RETURNING, or currval in the same transaction, needs no such connection.",
        )
    })
}
