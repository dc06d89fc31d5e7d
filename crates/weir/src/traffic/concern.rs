//! The one list of a session's concerns, and the order in which they hear of things. See `unit`.

use crate::client::session_state::SessionState;
use crate::client::session::Session;
use crate::monitor::statement_log::StatementLog;
use crate::process::worker::Worker;
use crate::traffic::lazy_begin::DeferredBegin;
use crate::traffic::query_cache::QueryCache;
use crate::traffic::read_retry::ReadRetry;
use crate::traffic::sequences::Sequences;
use crate::traffic::timing::Timing;
use crate::traffic::unit::{Concern, Ended, Unit};
use std::rc::Rc;
use weir_wire::frame::Header;

/// A message is about to be sent over the session's server connection.
#[inline]
pub fn sent(s: &mut Session, w: &Rc<Worker>, header: Header, unit: Unit<'_>) {
    QueryCache::sent(s, w, header, unit);
    Timing::sent(s, w, header, unit);
    StatementLog::sent(s, w, header, unit);
    DeferredBegin::sent(s, w, header, unit);
    Sequences::sent(s, w, header, unit);
    SessionState::sent(s, w, header, unit);
    ReadRetry::sent(s, w, header, unit);
}

/// The server is ready for the next statement. Session state comes before the cache: from when writes are settled results are stored again,
/// which must not be those of connections that began otherwise.
#[inline]
pub fn ready(s: &mut Session, w: &Rc<Worker>, ended: Ended) {
    Timing::ready(s, w, ended);
    StatementLog::ready(s, w, ended);
    ReadRetry::ready(s, w, ended);
    DeferredBegin::ready(s, w, ended);
    Sequences::ready(s, w, ended);
    SessionState::ready(s, w, ended);
    QueryCache::ready(s, w, ended);
}

/// The server connection is gone. A transaction that was on its way has failed before others ask whether there is one.
#[cold]
pub fn lost(s: &mut Session, w: &Rc<Worker>) {
    DeferredBegin::lost(s, w);
    SessionState::lost(s, w);
    Timing::lost(s, w);
    StatementLog::lost(s, w);
    Sequences::lost(s, w);
    ReadRetry::lost(s, w);
    QueryCache::lost(s, w);
}
