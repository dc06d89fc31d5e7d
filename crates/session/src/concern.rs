//! A session's concerns, in the order in which they are notified. See `unit`.

use crate::context::Context;
use crate::lazy_begin::DeferredBegin;
use crate::query_cache::QueryCache;
use crate::read_retry::ReadRetry;
use crate::rerun::repeatable::RerunConcern;
use crate::sequences::SequenceTracking;
use crate::session::{IDLE, Session};
use crate::session_state::SessionState;
use crate::sharding::savepoints;
use crate::statement_log::StatementLog;
use crate::timing::StatementTiming;
use crate::unit::{ReadyStatus, SessionConcern, StatementMessage};
use weir_wire::frame::MessageHeader;

#[inline]
pub fn sent(s: &mut Session, w: &Context, header: MessageHeader, unit: StatementMessage<'_>) {
    // Rerun first: it needs the transaction state before the message.
    RerunConcern::sent(s, w, header, unit);
    QueryCache::sent(s, w, header, unit);
    StatementTiming::sent(s, w, header, unit);
    StatementLog::sent(s, w, header, unit);
    DeferredBegin::sent(s, w, header, unit);
    SequenceTracking::sent(s, w, header, unit);
    SessionState::sent(s, w, header, unit);
    ReadRetry::sent(s, w, header, unit);
}

/// Session state comes before the cache: once writes are settled results are stored again, which must not come from connections
/// with other defaults.
#[inline]
pub fn ready(s: &mut Session, w: &Context, ended: ReadyStatus) {
    s.sharding.note_ready(ended.status() == IDLE);
    if matches!(ended, ReadyStatus::BySync(_)) {
        s.sharding.note_synced();
    }
    savepoints::on_ready(s, ended.status() == IDLE);
    StatementTiming::ready(s, w, ended);
    StatementLog::ready(s, w, ended);
    ReadRetry::ready(s, w, ended);
    DeferredBegin::ready(s, w, ended);
    SequenceTracking::ready(s, w, ended);
    SessionState::ready(s, w, ended);
    QueryCache::ready(s, w, ended);
    RerunConcern::ready(s, w, ended);
}

/// The deferred BEGIN comes first: its transaction must have failed before others ask for its state.
#[cold]
pub fn lost(s: &mut Session, w: &Context) {
    DeferredBegin::lost(s, w);
    SessionState::lost(s, w);
    StatementTiming::lost(s, w);
    StatementLog::lost(s, w);
    SequenceTracking::lost(s, w);
    ReadRetry::lost(s, w);
    QueryCache::lost(s, w);
    RerunConcern::lost(s, w);
}
