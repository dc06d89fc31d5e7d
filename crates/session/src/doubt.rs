//! A COMMIT whose answer was lost with its server connection: its client waits until the primary has said what became of it, or cannot be asked
//! (`commit_outcome`). `outcome` has asked for the transaction's number, `weir::traffic::ask_outcome` asks the primary.

pub mod commit_in_doubt;
pub mod loss_choices;
pub mod transaction_number;

use crate::context::Context;
use crate::doubt::commit_in_doubt::Doubt;
use crate::fault::{Fault, sqlstate};
use crate::loss::{Outcome, Then};
use crate::metrics::Metric;
use crate::replies::Owed;
use crate::rerun::kept_transaction::Told;
use crate::session::{Entered, Server, Session, WITHIN};
use crate::status::Doing;
use crate::upstream::Heard;
use crate::upstream::numbered::{Asked, Deeds, Numbered};
use crate::{causal, rerun};
use std::collections::VecDeque;
use weir_failover::commit_outcome::Verdict;

/// The server connection is lost, and the outcome of what was under way is not known: the COMMIT of a transaction that has a number, or has only read,
/// if it is nothing else.
#[cold]
pub fn doubt(s: &mut Session, outcome: Outcome, unknown: &Fault) -> Option<Box<Doubt>> {
    if outcome != Outcome::Unknown(Then::Outside) || s.down.is_mid_message() {
        return None;
    }
    let Server { upstream, .. } = s.server.as_mut()?;
    let number = match upstream.txn.numbered {
        Numbered { asked: Asked::Known { number, at }, is_committing: true, .. } => Some((number, at)),
        Numbered { asked: Asked::No, deeds: Deeds::OnlyReads, is_committing: true, .. } if upstream.txn.status == WITHIN => None,
        Numbered { .. } => return None,
    };
    let owed = upstream.replies.owed();
    if owed.unsynced || owed.skipping || owed.readies == 0 {
        return None;
    }
    // State that the transaction may have left with the server is not the session's any more.
    let has_left = !upstream.left.due.is_empty() || upstream.left.asking.is_some();
    let answer = if has_left { None } else { upstream.replies.answer_of_one("COMMIT") };
    if number.is_none() && answer.is_none() {
        return None;
    }
    let journal = std::mem::take(&mut upstream.journal);
    Some(Box::new(Doubt { number, answer, owed, unknown: unknown.clone(), journal }))
}

/// The session has lost its server connection, and its client waits. Nothing hangs on the COMMIT of a transaction that has only read: it is answered.
pub fn wait(s: &mut Session, w: &Context, doubt: Box<Doubt>) {
    let has_read_only = doubt.number.is_none();
    s.intake.doubt = Some(doubt);
    if has_read_only {
        return settle(s, w, Verdict::Committed);
    }
    s.handle.status.set_doing(Doing::WaitingForConnection);
    s.wake();
}

/// The outcome is proved, or nothing is. Says the client's answer.
pub fn settle(s: &mut Session, w: &Context, verdict: Verdict) {
    let Some(doubt) = s.intake.doubt.take() else { return };
    if verdict != Verdict::RolledBack {
        rerun::forget(s);
    }
    let Doubt { answer, owed, unknown, mut journal, .. } = *doubt;
    match (verdict, answer) {
        (Verdict::Committed, Some(answer)) => {
            w.count(Metric::OutcomesCommitted);
            let round = w.shared.positions.next_round();
            causal::heard_from_memory(s, w, round);
            s.down.extra(&w.buffers).extend_from_slice(&answer);
            s.say_ready(w);
            s.show_doing();
            return;
        }
        (Verdict::Committed, None) => {
            w.count(Metric::OutcomesCommitted);
            undo(s, &mut journal);
            let text =
                "the transaction was committed, and its other answers, or the state that it left, were lost with the connection";
            let fault = Fault::error(sqlstate::TRANSACTION_RESOLUTION_UNKNOWN, text).hint("Do not run it again.");
            tell(s, w, owed, &fault);
        }
        (Verdict::RolledBack, _) => {
            w.count(Metric::OutcomesRolledBack);
            undo(s, &mut journal);
            let text = "the connection to the server was lost, and with it the transaction: nothing of it was committed";
            let fault =
                Fault::error(sqlstate::SERIALIZATION_FAILURE, text).detail(unknown.detail).hint("Run the transaction again.");
            // It has given the transaction's number.
            let told = Told { then: Then::Outside, owed, fault, heard: Heard::Something };
            let Some(told) = rerun::begin(s, w, told) else { return };
            w.count(Metric::TransactionsLost);
            tell(s, w, owed, &told.fault);
        }
        (Verdict::Unknown | Verdict::NotYet | Verdict::Untold, _) => {
            w.count(Metric::OutcomesUnknown);
            undo(s, &mut journal);
            tell(s, w, owed, &unknown);
        }
    }
    s.show_doing();
}

fn undo(s: &mut Session, journal: &mut VecDeque<Entered>) {
    while let Some(entered) = journal.pop_back() {
        s.statements.take_back(journal, journal.len(), entered.change, false);
    }
}

fn tell(s: &mut Session, w: &Context, owed: Owed, fault: &Fault) {
    for _ in 0..owed.readies {
        s.say_error(w, fault);
        s.say_ready(w);
    }
    s.intake.stop_skipping();
}
