//! The words to a client whose server connection is lost, and the state of its transaction behind them.

use crate::context::Context;
use crate::fault::Fault;
use crate::loss::{Outcome, Then};
use crate::replies::Owed;
use crate::rerun::kept_transaction::Told;
use crate::session::Session;
use crate::{concern, lazy_begin};
use weir_wire::write;

/// A transaction was lost some time ago, and its client hears so now.
pub fn tell_lost(s: &mut Session, w: &Context, told: Told) {
    let Told { then, owed, fault, .. } = told;
    take_outcome(s, w, Outcome::RolledBack(then));
    concern::lost(s, w);
    tell(s, w, Outcome::RolledBack(then), owed, &fault);
}

/// Brings the session's transaction to where the loss leaves it.
pub fn take_outcome(s: &mut Session, w: &Context, outcome: Outcome) {
    match outcome {
        Outcome::Unharmed => {}
        Outcome::RolledBack(Then::Failed) | Outcome::Unknown(Then::Failed) => lazy_begin::fail_lost(s, w),
        Outcome::Ended | Outcome::RolledBack(Then::Outside) | Outcome::Unknown(Then::Outside) => s.lazy_begin.end(),
    }
}

/// Each statement that was under way gets its error. A transaction without one is told of its loss with its next statement.
pub fn tell(s: &mut Session, w: &Context, outcome: Outcome, owed: Owed, fault: &Fault) {
    match outcome {
        Outcome::Unharmed => {}
        Outcome::Ended => {
            write::command_complete(s.down.extra(&w.buffers), "ROLLBACK");
            s.say_ready(w);
            return;
        }
        Outcome::RolledBack(Then::Failed) if owed == Owed::default() => s.intake.owe(fault.clone()),
        Outcome::RolledBack(_) | Outcome::Unknown(_) => {}
    }
    for at in 0..owed.readies {
        if at > 0 && outcome == Outcome::RolledBack(Then::Failed) {
            s.say_error(w, &Fault::in_failed_transaction());
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
