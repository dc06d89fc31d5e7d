//! Tells a client of its lost server connection.

use crate::context::Context;
use crate::fault::ErrorReport;
use crate::loss::{LossOutcome, TransactionAfterLoss};
use crate::replies::OwedReplies;
use crate::rerun::kept_transaction::RerunFailure;
use crate::session::Session;
use crate::{concern, lazy_begin};
use weir_wire::write;

/// Reports the loss of a transaction whose rerun failed.
pub fn tell_lost(s: &mut Session, w: &Context, told: RerunFailure) {
    let RerunFailure { then, owed, fault, .. } = told;
    take_outcome(s, w, LossOutcome::RolledBack(then));
    concern::lost(s, w);
    tell(s, w, LossOutcome::RolledBack(then), owed, &fault);
}

pub fn take_outcome(s: &mut Session, w: &Context, outcome: LossOutcome) {
    match outcome {
        LossOutcome::Unharmed => {}
        LossOutcome::RolledBack(TransactionAfterLoss::Failed) | LossOutcome::Unknown(TransactionAfterLoss::Failed) => {
            lazy_begin::fail_lost(s, w)
        }
        LossOutcome::Ended
        | LossOutcome::RolledBack(TransactionAfterLoss::Outside)
        | LossOutcome::Unknown(TransactionAfterLoss::Outside) => s.lazy_begin.end(),
    }
}

/// Gives each statement under way its error. With none, the next statement of the transaction gets it.
pub fn tell(s: &mut Session, w: &Context, outcome: LossOutcome, owed: OwedReplies, fault: &ErrorReport) {
    match outcome {
        LossOutcome::Unharmed => {}
        LossOutcome::Ended => {
            write::command_complete(s.down.extra(&w.buffers), "ROLLBACK");
            s.say_ready(w);
            return;
        }
        LossOutcome::RolledBack(TransactionAfterLoss::Failed) if owed == OwedReplies::default() => s.intake.owe(fault.clone()),
        LossOutcome::RolledBack(_) | LossOutcome::Unknown(_) => {}
    }
    for at in 0..owed.readies {
        if at > 0 && outcome == LossOutcome::RolledBack(TransactionAfterLoss::Failed) {
            s.say_error(w, &ErrorReport::in_failed_transaction());
        } else {
            s.say_error(w, fault);
        }
        s.say_ready(w);
    }
    if owed.unsynced {
        s.say_error(w, fault);
    }
    s.intake.skip_to_sync_if(owed.unsynced || owed.skipping);
}
