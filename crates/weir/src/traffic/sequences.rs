//! `currval` and `lastval` through shared server connections.
//!
//! A server process remembers what it drew from sequences, and nothing can move that. Most sessions never ask for it again, so drawing
//! alone keeps nobody's link. A session that asks gets the link it drew on last, as long as nobody has drawn on it since, or an error:
//! never another client's value. The first that asks teaches its pool: from then on a session that may draw keeps its link.
//!
//! What a text shows counts: a function that asks on its own is not seen, but then it mostly draws itself.

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

/// Notes that the statement about to be sent may draw.
#[inline]
pub fn note(s: &mut Session, statement: &Statement) {
    if let (true, Some(link)) = (statement.draws, &mut s.link) {
        link.drawn += 1;
        s.state.drawn = Some(Drawn { serial: link.card.serial, count: link.drawn });
    }
}

/// The link a statement must have because its session's values are there.
#[inline]
pub fn wanted(s: &Session, statement: &Statement) -> Option<u64> {
    if statement.recalls { s.state.drawn.map(|drawn| drawn.serial) } else { None }
}

/// Sees to it, before a statement is sent, that it cannot meet what others drew, and that what it draws stays.
#[inline]
pub fn prepare(s: &mut Session, w: &Worker, statement: &Statement) {
    if (statement.recalls || statement.draws) && !s.state.by_mode && !s.state.stuck.has(Keeps::Sequence) {
        prepare_link(s, w, statement);
    }
}

fn prepare_link(s: &mut Session, w: &Worker, statement: &Statement) {
    let Some(link) = &s.link else { return };
    let on_primary = w.view().primary.is_some_and(|at| w.view().nodes[at].id == link.card.address.node);
    if !on_primary {
        // A standby gives out no values, and state there would keep the session from the primary.
        return;
    }
    let is_asked = &link.pool.is_asked_for_sequences;
    if !statement.recalls && !is_asked.load(Ordering::Relaxed) {
        return;
    }
    is_asked.store(true, Ordering::Relaxed);
    let is_here = s.state.drawn.is_some_and(|drawn| is_last(drawn, link));
    let is_elsewhere = s.state.drawn.is_some() && !is_here;
    // What was drawn elsewhere is lost: who asks for it is refused; who draws anew goes on.
    if is_elsewhere && !statement.draws {
        return;
    }
    if !is_here && s.replies.is_settled() && s.transaction != FAILED && !s.up.is_mid_message() {
        inventory::send(s, w, "DISCARD SEQUENCES", Expect::PrepareOurs);
    }
    if is_here || statement.draws {
        inventory::keep(s, w, Some(Keeps::Sequence));
    }
}

/// Why a statement that asks for values cannot be answered: the link they are on is gone, or somebody else has drawn on it.
pub fn refusal(s: &Session, statement: &Statement) -> Option<Fault> {
    let link = s.link.as_ref().filter(|_| statement.recalls && !s.state.by_mode && !s.state.stuck.has(Keeps::Sequence))?;
    // With a draw in the same text it may be that one that is asked for, and else the server knows nothing any more.
    let is_lost = !statement.draws && s.state.drawn.is_some_and(|drawn| !is_last(drawn, link));
    is_lost.then(|| {
        let text = "the sequence values of this session are lost: its server connection was used by another client since";
        Fault::error(sqlstate::NOT_IN_STATE, text).hint(
            "From now on a session of this user and database keeps its server connection once it draws from a sequence. \
             INSERT ... RETURNING, or currval in the same transaction, needs no such connection.",
        )
    })
}
