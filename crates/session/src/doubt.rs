//! A COMMIT whose answer was lost with its server connection: the client waits for the outcome, queried from the primary by the xid
//! of `transaction_number`, as far as possible (`commit_outcome`).

pub mod commit_in_doubt;
pub mod loss_choices;
pub mod server_lives;
pub mod transaction_number;

use crate::context::Context;
use crate::doubt::commit_in_doubt::CommitInDoubt;
use crate::fault::{ErrorReport, sqlstate};
use crate::loss::{LossOutcome, TransactionAfterLoss};
use crate::metrics::WorkerCounter;
use crate::replies::OwedReplies;
use crate::rerun::kept_transaction::RerunFailure;
use crate::session::{JournalEntry, Session, SessionServer, WITHIN};
use crate::status::SessionActivity;
use crate::upstream::ClientKnowledge;
use crate::upstream::numbered::{CommitTracking, TransactionContent, XidState};
use crate::{causal, rerun};
use std::collections::VecDeque;
use weir_failover::commit_outcome::CommitOutcome;

/// Returns the COMMIT in doubt: a sole COMMIT, with a known xid or after reads only.
#[cold]
pub fn doubt(s: &mut Session, outcome: LossOutcome, unknown: &ErrorReport) -> Option<Box<CommitInDoubt>> {
    if outcome != LossOutcome::Unknown(TransactionAfterLoss::Outside) || s.down.is_mid_message() {
        return None;
    }
    let SessionServer { upstream, .. } = s.server.as_mut()?;
    let number = match upstream.txn.numbered {
        CommitTracking { asked: XidState::Known { number, at, .. }, is_committing: true, .. } => Some((number, at)),
        CommitTracking { asked: XidState::No, deeds: TransactionContent::OnlyReads, is_committing: true, .. }
            if upstream.txn.status == WITHIN =>
        {
            None
        }
        CommitTracking { .. } => return None,
    };
    let owed = upstream.replies.owed();
    if owed.unsynced || owed.skipping || owed.readies == 0 {
        return None;
    }
    // State left on the server is lost to the session.
    let has_left = !upstream.left.due.is_empty() || upstream.left.asking.is_some();
    let answer = if has_left { None } else { upstream.replies.answer_of_one("COMMIT") };
    if number.is_none() && answer.is_none() {
        return None;
    }
    let journal = std::mem::take(&mut upstream.journal);
    Some(Box::new(CommitInDoubt { number, answer, owed, unknown: unknown.clone(), journal }))
}

/// Lets the client wait. After reads only nothing depends on the COMMIT: it is answered at once.
pub fn wait(s: &mut Session, w: &Context, doubt: Box<CommitInDoubt>) {
    let has_read_only = doubt.number.is_none();
    s.intake.doubt = Some(doubt);
    if has_read_only {
        return settle(s, w, CommitOutcome::Committed);
    }
    s.handle.status.set_doing(SessionActivity::WaitingForConnection);
    s.wake();
}

pub fn settle(s: &mut Session, w: &Context, verdict: CommitOutcome) {
    let Some(doubt) = s.intake.doubt.take() else { return };
    if verdict != CommitOutcome::RolledBack {
        rerun::forget(s);
    }
    let CommitInDoubt { answer, owed, unknown, mut journal, .. } = *doubt;
    match (verdict, answer) {
        (CommitOutcome::Committed, Some(answer)) => {
            w.count(WorkerCounter::OutcomesCommitted);
            let round = w.shared.positions.next_round();
            causal::heard_from_memory(s, w, round);
            s.down.extra(&w.buffers).extend_from_slice(&answer);
            s.say_ready(w);
            s.show_doing();
            return;
        }
        (CommitOutcome::Committed, None) => {
            w.count(WorkerCounter::OutcomesCommitted);
            undo(s, &mut journal);
            let text =
                "the transaction was committed, and its other answers, or the state that it left, were lost with the connection";
            let fault = ErrorReport::error(sqlstate::TRANSACTION_RESOLUTION_UNKNOWN, text).hint("Do not run it again.");
            tell(s, w, owed, &fault);
        }
        (CommitOutcome::RolledBack, _) => {
            w.count(WorkerCounter::OutcomesRolledBack);
            undo(s, &mut journal);
            let text = "the connection to the server was lost, and with it the transaction: nothing of it was committed";
            let fault = ErrorReport::error(sqlstate::SERIALIZATION_FAILURE, text)
                .detail(unknown.detail)
                .hint("Run the transaction again.");
            // A transaction with an xid has been answered before.
            let told = RerunFailure { then: TransactionAfterLoss::Outside, owed, fault, heard: ClientKnowledge::Something };
            let Some(told) = rerun::begin(s, w, told) else { return };
            w.count(WorkerCounter::TransactionsLost);
            tell(s, w, owed, &told.fault);
        }
        (CommitOutcome::Unknown | CommitOutcome::NotYet | CommitOutcome::Untold, _) => {
            w.count(WorkerCounter::OutcomesUnknown);
            undo(s, &mut journal);
            tell(s, w, owed, &unknown);
        }
    }
    s.show_doing();
}

fn undo(s: &mut Session, journal: &mut VecDeque<JournalEntry>) {
    while let Some(entered) = journal.pop_back() {
        s.statements.take_back(journal, journal.len(), entered.change, false);
    }
}

fn tell(s: &mut Session, w: &Context, owed: OwedReplies, fault: &ErrorReport) {
    for _ in 0..owed.readies {
        s.say_error(w, fault);
        s.say_ready(w);
    }
    s.intake.stop_skipping();
}
