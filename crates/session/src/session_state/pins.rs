//! Shows operators why a session keeps its server connection.

use crate::context::Context;
use crate::flow::HoldReason;
use crate::handle::SessionHandle;
use crate::host::{Level, LogOrigin};
use crate::metrics::WorkerCounter;
use crate::session::Session;
use crate::time_limits::UnfinishedInput;
use std::sync::atomic::Ordering;
use weir_sql::facts::StateKind;

/// Shows the present pin, and counts a new one.
pub(crate) fn show_pin(s: &Session, w: &Context) {
    let kept = s.pin();
    let Some(conn) = s.conn() else { return };
    let was_kept = conn.status.set_pin(kept, w.now_ms());
    let (false, Some(kept)) = (was_kept, kept) else { return };
    if kept == HoldReason::State(StateKind::Listen) && s.state.listening.is_some() {
        // Kept only until the channels have moved.
        return;
    }
    count(&s.handle, w, kept);
}

fn count(handle: &SessionHandle, w: &Context, kept: HoldReason) {
    w.count(WorkerCounter::SessionsPinned);
    let bit = 1 << kept.code();
    if kept != HoldReason::Mode && w.shared.told.pins.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
        let status = &handle.status;
        let who = LogOrigin { user: &status.user, database: &status.database, session: status.pid, ..LogOrigin::default() };
        let reason = HoldReason::reason(kept.code());
        let text = format_args!(
            "a client keeps its server connection as long as this exists: {reason}. SHOW pool_pools lists such connections; \
             pool_size must have room for them. This is said once for each kind"
        );
        w.log(Level::Warning, &who, text);
    }
}

/// Notes what the client has left unfinished; the session's task then waits.
#[inline]
pub fn note_unfinished(s: &Session, w: &Context) {
    let unfinished = s.unfinished();
    if unfinished != s.handle.clock.unfinished.get().0 {
        change(s, w, unfinished);
    }
}

#[cold]
fn change(s: &Session, w: &Context, unfinished: UnfinishedInput) {
    let before = s.handle.clock.unfinished.replace((unfinished, w.now_us())).0;
    let Some(conn) = s.conn() else { return };
    // Another reason may have come since.
    let is_shown = reason(before).is_some_and(|kept| conn.status.keeping.code.load(Ordering::Relaxed) == kept.code());
    if is_shown {
        conn.status.set_pin(None, w.now_ms());
    }
}

fn reason(unfinished: UnfinishedInput) -> Option<HoldReason> {
    match unfinished {
        UnfinishedInput::Nothing => None,
        UnfinishedInput::Message => Some(HoldReason::Message),
        UnfinishedInput::Series | UnfinishedInput::Unasked => Some(HoldReason::Series),
    }
}

/// Shows that unfinished input keeps the server connection, unless another reason is shown.
pub fn show_unfinished(handle: &SessionHandle, w: &Context) {
    let Some(kept) = reason(handle.clock.unfinished.get().0) else { return };
    let conn = handle.conn.borrow();
    let Some(conn) = conn.as_ref().filter(|conn| conn.keeping.code.load(Ordering::Relaxed) == 0) else { return };
    conn.set_pin(Some(kept), w.now_ms());
    count(handle, w, kept);
}
