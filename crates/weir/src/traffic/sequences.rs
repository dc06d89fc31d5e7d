//! `currval` and `lastval` through shared server connections. Decisions are `policy::sequences`'.
//!
//! Most sessions never ask for what they drew, so drawing alone keeps nobody's link.
//!
//! Who asks teaches, in two steps. Where values are asked for within the transaction that drew them, or may be by a function or a prepared
//! text, links forget what others drew before a session draws on them: one more query of ours when the drawer changes. Where they are
//! asked for later, a session that may draw keeps its link. The first thousand times links forget in any case: who asks at all has
//! mostly done so by then, and is not refused for being the first.
//!
//! What a text shows counts, and what is in the catalog: a function that asks without drawing itself finds its session's values or none.

use crate::client::inventory;
use crate::client::session::{FAILED, Session};
use crate::client::statements::Statement;
use crate::monitor::fault::{Fault, sqlstate};
use crate::process::worker::Worker;
use crate::server::link::Link;
use std::sync::atomic::Ordering;
use weir_policy::replies::Expect;
use weir_policy::sequences::{Facts, Plan};
use weir_sql::facts::Keeps;

/// Notes that the statement about to be sent may draw.
#[inline]
pub fn note(s: &mut Session, statement: &Statement) {
    if let (true, Some(link)) = (statement.draws, &mut s.link) {
        let (draws, drawn) = link.draws.draw(s.state.drawn);
        (link.draws, s.state.drawn) = (draws, Some(drawn));
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

/// Before a statement of its session is sent over this link.
fn facts(s: &Session, link: &Link) -> Facts {
    // Between what brings a statement to the link and its Bind a query of ours would take it away again.
    let may_ask = s.replies.is_only_ours() && s.asked.is_none() && s.transaction != FAILED && !s.up.is_mid_message();
    Facts {
        drawn: s.state.drawn,
        tally: link.draws,
        forgotten: s.state.forgotten,
        is_asked_later: link.pool.is_asked_for_sequences.load(Ordering::Relaxed),
        is_asked: s.pools.known.recalls(),
        is_kept: s.state.stuck.has(Keeps::Sequence),
        may_ask,
    }
}

fn prepare_draw(s: &mut Session, w: &Worker) {
    let Some(link) = s.link.as_ref().filter(|link| is_on_primary(w, link)) else { return };
    let plan = facts(s, link).plan_draw();
    carry_out(s, w, plan);
}

#[cold]
fn prepare_recall(s: &mut Session, w: &Worker, draws: bool) {
    let Some(link) = &s.link else { return };
    if !is_on_primary(w, link) {
        s.state.knows_no_draws = true;
        return;
    }
    s.pools.known.note_recalls();
    let plan = facts(s, link).plan_recall(draws);
    s.state.knows_no_draws = plan.knows_no_draws;
    carry_out(s, w, plan);
}

fn carry_out(s: &mut Session, w: &Worker, plan: Plan) {
    let Some(link) = &mut s.link else { return };
    if plan.teaches_later {
        link.pool.is_asked_for_sequences.store(true, Ordering::Relaxed);
    }
    if plan.forgets {
        link.draws = link.draws.forget();
        s.state.forgotten = Some((link.draws.serial, link.draws.count));
        s.pools.known.note_forgotten();
        inventory::send(s, w, "DISCARD SEQUENCES", Expect::PrepareOurs);
    }
    if plan.keeps {
        inventory::keep(s, w, Some(Keeps::Sequence));
    }
}

/// Whether the statement waits until all before it is answered, so that its link can forget what others drew.
#[inline]
pub fn must_settle(s: &Session, w: &Worker, statement: &Statement) -> bool {
    (statement.draws || recalls(s, statement)) && !s.replies.is_only_ours() && !s.state.by_mode && is_to_forget(s, w, statement)
}

#[cold]
fn is_to_forget(s: &Session, w: &Worker, statement: &Statement) -> bool {
    let will_rest = !s.replies.is_unsynced() && !s.replies.is_skipping() && !s.replies.is_copying_in() && s.transaction != FAILED;
    let link = s.link.as_ref().filter(|link| will_rest && is_on_primary(w, link));
    link.is_some_and(|link| facts(s, link).must_settle(recalls(s, statement)))
}

/// Why a statement that asks for values cannot be answered: the link they are on is gone, or others have drawn on it.
pub fn refusal(s: &Session, statement: &Statement) -> Option<Fault> {
    let link = s.link.as_ref().filter(|_| !s.state.by_mode && recalls(s, statement))?;
    let is_refused = !facts(s, link).may_recall(statement.draws, s.state.knows_no_draws);
    is_refused.then(|| {
        let text = "the sequence values of this session are lost: its server connection was used by another client";
        Fault::error(sqlstate::NOT_IN_STATE, text).hint(
            "From now on a session of this user and database keeps its server connection once it draws from a sequence. \
             INSERT ... RETURNING, or currval in the same transaction, needs no such connection.",
        )
    })
}
