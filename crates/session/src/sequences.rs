//! `currval` and `lastval` through shared server connections. Decisions are `session::sequences::drawn_values`'.
//!
//! Most sessions never ask for their draws. Once one in a database asks, server connections forget others' draws before a session
//! draws on them, at the cost of a query. Until then they forget the first thousand times, so that the first session that asks is
//! seldom refused.

pub mod drawn_values;

use crate::checkout::pool_grant::ConnFit;
use crate::conn::Conn;
use crate::context::Context;
use crate::fault::{ErrorReport, sqlstate};
use crate::participants;
use crate::replies::ExpectedReply;
use crate::sequences::drawn_values::{DrawConnDemand, DrawFacts, SequenceUse};
use crate::session::{FAILED, Session, SessionServer};
use crate::session_state;
use crate::statements::{DrawRecall, Statement, StatementTrait};
use crate::unit::{ReadyStatus, SessionConcern, StatementMessage};
use crate::upstream::prepared_changes::LongUnnamed;
use weir_catalog::HiddenUses;
use weir_config::{PoolMode, SequenceSessions};
use weir_sql::facts::StateKind;
use weir_wire::frame::MessageHeader;

/// Returns a statement's use of sequences, also through a prepared statement or a view.
#[inline]
fn use_of(s: &Session, statement: &Statement) -> SequenceUse {
    let by_view =
        || statement.objects.touches.meets(HiddenUses::READS) && s.account.known.hidden().meets(HiddenUses::SEQUENCE_VIEWS);
    let by_execute = || statement.has(StatementTrait::Executes) && s.state.by_sql.later().has(StateKind::Sequence);
    SequenceUse::of(statement.has(StatementTrait::Draws) || by_view(), statement.recalls == DrawRecall::Shown || by_execute())
}

pub struct SequenceTracking;

impl SessionConcern for SequenceTracking {
    #[inline]
    fn sent(s: &mut Session, w: &Context, _: MessageHeader, unit: StatementMessage<'_>) {
        match unit {
            StatementMessage::Query(statement)
            | StatementMessage::Bind { statement, .. }
            | StatementMessage::BindUnknown(statement)
            | StatementMessage::Call(statement) => {
                note(s, w, statement);
            }
            StatementMessage::Parse(_) | StatementMessage::Execute | StatementMessage::Garbled => {}
        }
    }

    #[inline]
    fn ready(_: &mut Session, _: &Context, _: ReadyStatus) {}

    /// Keeps `drawn`: a client that asks for the lost values gets an error.
    fn lost(_: &mut Session, _: &Context) {}
}

#[inline]
fn note(s: &mut Session, w: &Context, statement: &Statement) {
    if !use_of(s, statement).draws() {
        return;
    }
    if let Some(SessionServer { conn, .. }) = &mut s.server
        && conn.takes_writes(&w.view())
    {
        let (draws, drawn) = conn.draws.draw(s.state.drawn);
        (conn.draws, s.state.drawn) = (draws, Some(drawn));
    }
}

/// Returns the server connection with the values that a statement asks for.
#[inline]
pub fn wanted(s: &Session, statement: &Statement) -> Option<DrawConnDemand> {
    let drawn = s.state.drawn?;
    let by = use_of(s, statement);
    // In session mode the connection with the values is gone, and the server answers itself.
    (by.recalls() && s.account.limits.get().mode != PoolMode::Session).then_some(DrawConnDemand { drawn, by })
}

#[inline]
pub fn best_fit(s: &Session) -> ConnFit {
    if s.state.drawn.is_some() && s.account.known.recalls() { ConnFit::Own } else { ConnFit::Alike }
}

/// Owner of the values on a server connection at rest.
pub enum DrawOwner {
    None,
    Own,
    Others,
}

#[inline]
pub fn claim(s: &Session, w: &Context, conn: &Conn) -> DrawOwner {
    if conn.draws.is_blank() || !s.account.known.recalls() {
        return DrawOwner::None;
    }
    match s.state.drawn {
        Some(drawn) if drawn.is_own(conn.draws) => DrawOwner::Own,
        _ if conn.has_fresh_draws(w.now_us()) => DrawOwner::Others,
        _ => DrawOwner::None,
    }
}

/// Keeps the statement from seeing others' draws.
#[inline]
pub fn prepare(s: &mut Session, w: &Context, statement: &Statement) {
    let by = use_of(s, statement);
    if by.recalls() || statement.state.later.has(StateKind::Sequence) {
        s.account.known.note_recalls();
    }
    if by == SequenceUse::Nothing || s.state.by_mode {
        return;
    }
    if facts(s, w, statement).is_some_and(|facts| facts.forgets(by)) && may_ask(s) {
        forget(s, w);
    }
    if by.draws() && is_pinned(s) && !s.stuck().has(StateKind::Sequence) {
        session_state::keep(s, w, Some(StateKind::Sequence));
    }
}

pub const FORGET: &str = "DISCARD SEQUENCES";

#[cold]
fn forget(s: &mut Session, w: &Context) {
    let Some(conn) = s.conn_mut() else { return };
    conn.draws = conn.draws.forget();
    s.account.known.note_forgotten();
    session_state::send(s, w, FORGET, ExpectedReply::PrepareOurs);
}

#[inline]
fn is_pinned(s: &Session) -> bool {
    s.account.limits.get().on_release.sequences == SequenceSessions::Pin
}

/// Returns `None` on a standby, which draws no values.
#[inline]
fn facts(s: &Session, w: &Context, statement: &Statement) -> Option<DrawFacts> {
    let conn = s.conn().filter(|conn| conn.takes_writes(&w.view()))?;
    let is_asked = || {
        let may_be_unknown = statement.recalls == DrawRecall::Unread || s.state.effects.redefines;
        may_be_unknown || s.account.known.recalls() || is_pinned(s)
    };
    // A transaction on several shards goes back to connections on which it has drawn itself.
    let is_alone = !participants::has_others(s);
    Some(DrawFacts { drawn: s.state.drawn, tally: conn.draws, is_asked: is_alone && !conn.draws.is_blank() && is_asked() })
}

/// True if a query of ours may go before the statement. Such a query drops the unnamed statement: it must not come between the
/// message that brings this and its Bind, nor where only the server connection has it.
fn may_ask(s: &Session) -> bool {
    s.replies().is_only_ours()
        && s.upstream().is_none_or(|upstream| upstream.brought.asked.is_none())
        && s.statements.long_unnamed() != LongUnnamed::OnServer
        && s.transaction() != FAILED
        && !s.up.is_mid_message()
}

/// True if the statement waits for all earlier answers, so that others' draws can be forgotten first.
#[inline]
pub fn must_settle(s: &Session, w: &Context, statement: &Statement) -> bool {
    if s.replies().is_only_ours() || s.state.by_mode {
        return false;
    }
    let will_rest =
        !s.replies().is_unsynced() && !s.replies().is_skipping() && !s.replies().is_copying_in() && s.transaction() != FAILED;
    will_rest && facts(s, w, statement).is_some_and(|facts| facts.forgets(use_of(s, statement)))
}

/// `refusal` with the signature for `plan`.
pub fn refusal_of(s: &mut Session, w: &Context, statement: &Statement) -> Option<ErrorReport> {
    refusal(s, w, statement)
}

/// Returns the error of a statement that asks for lost values: their server connection is gone, or others have drawn on it.
pub fn refusal(s: &Session, w: &Context, statement: &Statement) -> Option<ErrorReport> {
    let by = use_of(s, statement);
    if !by.recalls() || s.state.by_mode || facts(s, w, statement)?.may_run(by) {
        return None;
    }
    Some(lost())
}

#[cold]
pub fn lost() -> ErrorReport {
    let text = "the sequence values of this session are lost: its server connection was used by another client";
    ErrorReport::error(sqlstate::NOT_IN_STATE, text).hint(
        "INSERT ... RETURNING, or currval in the transaction that draws, always works. With sequence_sessions = pin a session keeps its \
         server connection once it draws from a sequence.",
    )
}
