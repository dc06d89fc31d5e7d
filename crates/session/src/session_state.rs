//! The state of a session and of its server connection: notes what statements may leave, asks the server after their transaction,
//! and brings server connections to the session's state. Decisions are `session_state::state_question`'s.

pub mod connection_defaults;
pub(crate) mod hidden_state;
mod long_texts;
pub(crate) mod pins;

use crate::conn::Conn;
use crate::context::Context;
use crate::doubt::loss_choices::LossChoices;
use crate::fault::ErrorReport;
use crate::metrics::WorkerCounter;
use crate::replies::ExpectedReply;
use crate::session::{FAILED, IDLE, Session, SessionServer};
use crate::session_state::by_sql::{BySql, ConnDependency, RestoreQuery, SqlPreparedStatement};
use crate::session_state::client_settings::SettingValues;
use crate::session_state::held_state::{HeldState, SettingCommand};
pub use crate::session_state::hidden_state::note_analysed;
use crate::session_state::hidden_state::{assumed, by_execute, hidden, left_by_values, name_made_up, note_prepared};
pub(crate) use crate::session_state::hidden_state::{knows, left_unseen, may_have_left};
pub use crate::session_state::listen::{deliver, deliver_now, holds_ready, is_holding, prepare, takes, unlistened};
use crate::session_state::state_question::{AnswerCost, SOURCES_MAX, StateAnswer, StatementCount, settings_after, told_by};
use crate::statements::{PreparedStatement, Statement, StatementTrait};
use crate::unit::{ReadyStatus, SessionConcern, StatementMessage};
use crate::upstream::UpstreamState;
use crate::upstream::left::{ConnCleanup, LeftoverState, PendingStateQuestion, StartupRestore, UnprovenState};
use crate::upstream::prepared_changes::{LongUnnamed, StatementHold};
pub use long_texts::{note_long_bound, note_long_parse, pass_on};
use pins::show_pin;
pub use pins::{note_unfinished, show_unfinished};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_catalog::HiddenUses;
use weir_catalog::functions::FunctionVerdict;
use weir_sql::facts::{ResetTarget, StateKind, StateKinds, TransactionVerb};
use weir_sql::own;
use weir_wire::frame::{HEADER_BYTES, MessageHeader, split_cstr};
use weir_wire::gather::BoundExceeded;
use weir_wire::write;

pub struct SessionState;

impl SessionConcern for SessionState {
    #[inline]
    fn sent(s: &mut Session, w: &Context, header: MessageHeader, unit: StatementMessage<'_>) {
        if !matches!(unit, StatementMessage::Execute)
            && let Some(upstream) = s.upstream_mut()
        {
            (upstream.left.unproven, upstream.left.ending) = (None, StateKinds::NONE);
        }
        match unit {
            StatementMessage::Query(statement) => note_query(s, w, statement, header),
            StatementMessage::Bind { prepared, statement } => note_bind(s, w, prepared, statement, header),
            StatementMessage::BindUnknown(_) => note_bound_by_sql(s),
            StatementMessage::Execute => note_execute(s),
            StatementMessage::Call(_) => note_call(s, header),
            StatementMessage::Parse(prepared) => note_analysed(s, prepared),
            StatementMessage::Garbled => {}
        }
    }

    #[inline]
    fn ready(s: &mut Session, w: &Context, ended: ReadyStatus) {
        if let Some(upstream) = s.upstream_mut() {
            upstream.left.done();
        }
        if ended.status() != IDLE {
            return;
        }
        if s.state.effects.redefines {
            s.tell_change(w);
        }
        if std::mem::take(&mut s.state.effects.renews) {
            // Changes of defaults are rare, so the server connections of all users are renewed.
            s.host.renew_conns(None);
        }
    }

    fn lost(s: &mut Session, w: &Context) {
        if s.state.effects.redefines {
            // The transaction may have been committed.
            s.tell_change(w);
        }
    }
}

#[inline]
fn note_query(s: &mut Session, w: &Context, statement: &Statement, header: MessageHeader) {
    let may_be_misread = statement.has(StatementTrait::Moves) && s.may_be_misread();
    note_moves(s, statement.has(StatementTrait::Moves));
    if statement.has(StatementTrait::Barrier) {
        s.raise_barrier();
    }
    if is_harmless(s, statement) {
        return;
    }
    // Only the server can tell if a reset ends the state that keeps the server connection.
    let has_foreign = s.has_found(StateKind::ForeignSetting);
    let is_alone = s.transaction() == IDLE && s.replies().is_only_ours() && !s.state.by_mode && !has_foreign;
    if let (Some(plain), true) = (&statement.settings.plain, is_alone) {
        if let Some(upstream) = s.upstream_mut() {
            upstream.resetting.plain = Some(plain.clone());
            upstream.resetting.under_way.clone_from(&statement.settings.resets);
            // Its own answer tells its effect, if nothing follows.
            upstream.raise_barrier();
        }
        return;
    }
    let (unseen, assumed) = (left_unseen(s, statement), assumed(s, statement));
    let has_redefined = s.state.effects.redefines;
    let shown = judged(s, w, statement);
    let assumed = assumed.filter(|_| !shown.has(StateKind::Unknown));
    let may_change = unseen.and(shown);
    let by_execute = before_note(s, statement, may_change);
    // A text too long to be parsed passes in parts.
    let body = s.up.whole_if_here(header);
    let text = body.and_then(split_cstr).map_or(&[][..], |(text, _)| text);
    let Some(SessionServer { upstream, .. }) = &mut s.server else { return };
    let is_passing = body.is_none() && !s.state.by_mode;
    if is_passing && may_be_misread {
        // Its strings may end elsewhere than they seem to.
        upstream.left.stuck.add(StateKind::Unread);
    } else if is_passing {
        let here = s.up.unseen().get(HEADER_BYTES..).unwrap_or_default();
        upstream.left.passes(header.body_bytes as usize, here);
        s.state.effects.by_long_text = !has_redefined;
    }
    let is_first = is_first(upstream, statement, may_change);
    upstream.left.assuming(assumed, |left| note(&s.state, left, statement, may_change, by_execute, (text, &[]), is_first));
    note_unseen(&s.state, &mut upstream.left, statement);
    upstream.resetting.under_way.clone_from(&statement.settings.resets);
}

#[inline]
fn note_bind(s: &mut Session, w: &Context, prepared: &PreparedStatement, statement: &Statement, header: MessageHeader) {
    note_moves(s, statement.has(StatementTrait::Moves));
    if let Some(upstream) = s.upstream_mut() {
        upstream.is_command_bound |= prepared.statement.has(StatementTrait::Barrier);
    }
    let by_values = left_by_values(s, prepared);
    if by_values.is_empty() && is_harmless(s, statement) {
        return;
    }
    let text = prepared.text();
    let (unseen, assumed) = (left_unseen(s, statement), assumed(s, statement));
    let shown = judged(s, w, statement).and(by_values);
    let assumed = assumed.filter(|_| !shown.has(StateKind::Unknown));
    let may_change = unseen.and(shown);
    let by_execute = before_note(s, statement, may_change);
    let here = s.up.unseen();
    let values = &here[..here.len().min(header.frame_bytes())];
    let Some(SessionServer { upstream, .. }) = &mut s.server else { return };
    let is_first = is_first(upstream, statement, may_change);
    upstream.left.assuming(assumed, |left| note(&s.state, left, statement, may_change, by_execute, (text, values), is_first));
    note_unseen(&s.state, &mut upstream.left, statement);
    if statement.settings.resets.is_some() {
        upstream.resetting.bound.clone_from(&statement.settings.resets);
    }
}

#[inline]
fn note_execute(s: &mut Session) {
    if let Some(upstream) = s.upstream_mut().filter(|upstream| upstream.is_command_bound) {
        upstream.raise_barrier();
        upstream.resetting.under_way = upstream.resetting.bound.take();
    }
}

fn note_call(s: &mut Session, header: MessageHeader) {
    name_made_up(s);
    let Some(SessionServer { upstream, .. }) = &mut s.server else { return };
    let left = &mut upstream.left;
    left.temporaries.may_have_changed();
    left.moves_ahead = true;
    if s.state.by_mode {
        return;
    }
    let here = s.up.unseen();
    let body = &here[..here.len().min(header.frame_bytes())];
    let unknown = StateKinds::of(StateKind::Unknown);
    left.note(unknown, &[], &[], &[]);
    weir_wire::call::arguments(body.get(HEADER_BYTES..).unwrap_or_default())
        .for_each(|argument| left.note(unknown, &[], &[], argument));
}

#[inline]
fn note_moves(s: &mut Session, moves: bool) {
    if let Some(upstream) = s.upstream_mut() {
        upstream.left.moves_ahead |= moves;
    }
}

#[inline]
fn is_harmless(s: &Session, statement: &Statement) -> bool {
    let makes_temporary = statement.has(StatementTrait::Makes) && s.may_make_temporary();
    statement.has(StatementTrait::LeavesNothing)
        && !makes_temporary
        && statement.state.frees.common(s.may_have()).is_empty()
        && !statement.objects.touches.meets(hidden(s))
}

/// True if an error can only be this statement's, or of messages that it needs: no ReadyForQuery is due before it.
fn is_first(upstream: &UpstreamState, statement: &Statement, may_change: StateKinds) -> bool {
    let leaves = may_change.and(statement.state.frees).common(StateKinds::UNTOLD.with(StateKind::Unread));
    !leaves.is_empty() && upstream.replies.owed().readies == 0
}

/// Returns the state that the functions called may change. Missing sources are asked for next time.
fn judged(s: &mut Session, w: &Context, statement: &Statement) -> StateKinds {
    let hidden = hidden(s);
    let made = if statement.has(StatementTrait::Makes) && s.may_make_temporary() {
        StateKinds::of(StateKind::Temporary)
    } else {
        StateKinds::NONE
    };
    let effects = &mut s.state.effects;
    effects.renews |= statement.has(StatementTrait::AltersDefaults);
    effects.redefines |= statement.has(StatementTrait::Redefines);
    effects.redefines_code |= statement.has(StatementTrait::RedefinesCode);
    if !statement.vacates.is_empty() {
        s.host.vacate(&statement.vacates);
    }
    effects.unseats.extend_from_slice(&statement.unseats);
    let Some(SessionServer { upstream, .. }) = &mut s.server else { return statement.state.may_change.and(made) };
    judged_by_text(&mut upstream.left, w, &s.account.database, statement, hidden).and(made)
}

fn judged_by_text(
    left: &mut LeftoverState,
    w: &Context,
    database: &Arc<str>,
    statement: &Statement,
    hidden: HiddenUses,
) -> StateKinds {
    if statement.has(StatementTrait::Defines) {
        w.shared.catalogs.definitions.fetch_add(1, Ordering::Relaxed);
    }
    // Procedural code counts as unknown whatever it calls.
    if statement.state.functions.is_empty() || statement.state.leaves.has(StateKind::Unknown) {
        return statement.state.may_change;
    }
    let edition = w.shared.catalogs.definitions.load(Ordering::Relaxed);
    let mut books = w.functions.borrow_mut();
    match books.of(database, w.now_ms(), edition).judge_all(&statement.state.functions) {
        FunctionVerdict::Harmless if !hidden.meets(HiddenUses::READS) => statement.state.leaves,
        FunctionVerdict::Writes if !hidden.meets(HiddenUses::ALL) => statement.state.leaves,
        FunctionVerdict::Harmless | FunctionVerdict::Writes | FunctionVerdict::LeavesState => statement.state.may_change,
        FunctionVerdict::Unknown(missing) => {
            let room = SOURCES_MAX.saturating_sub(left.due.sources.len());
            left.due.sources.extend(missing.into_iter().take(room));
            statement.state.may_change
        }
    }
}

const UNSEEN: StateKinds = StateKinds::of(StateKind::Unknown).with(StateKind::Unread);

/// Returns what an `EXECUTE` may leave unseen. Must run before `note`.
fn before_note(s: &mut Session, statement: &Statement, may_change: StateKinds) -> StateKinds {
    let by_execute = if statement.has(StatementTrait::Executes) { by_execute(s) } else { StateKinds::NONE };
    if !may_change.and(by_execute).common(UNSEEN).is_empty() {
        name_made_up(s);
    }
    by_execute
}

fn note(
    state: &HeldState,
    left: &mut LeftoverState,
    statement: &Statement,
    may_change: StateKinds,
    by_execute: StateKinds,
    (text, values): (&[u8], &[u8]),
    is_first: bool,
) {
    if statement.has(StatementTrait::Executes) {
        // A statement prepared by this text may run before the session knows of it.
        note_executed(state, left, statement.state.later.and(by_execute), text);
    }
    let ends = statement.state.frees.common(StateKinds::UNTOLD).common(left.stuck);
    left.ending = if is_first { ends } else { StateKinds::NONE };
    let leaves = may_change.and(statement.state.frees.without(StateKinds::UNTOLD).common(left.may_have()));
    // DISCARD ALL is told by its own answer.
    if !leaves.is_empty() && !state.by_mode {
        let (before, is_unread) = (left.stuck, left.due.is_empty() && leaves.has(StateKind::Unread));
        left.note(leaves, &statement.state.functions, text, values);
        let kinds = left.stuck.without(before);
        if is_first && (is_unread || !kinds.is_empty()) {
            let statements = if statement.has(StatementTrait::Many) { StatementCount::Several } else { StatementCount::One };
            left.unproven = Some(UnprovenState { kinds, is_unread, statements });
        }
    }
    if statement.transaction == TransactionVerb::Many {
        left.due.add_rollback();
    }
}

fn note_bound_by_sql(s: &mut Session) {
    let by_execute = by_execute(s);
    name_made_up(s);
    let Some(SessionServer { upstream, .. }) = &mut s.server else { return };
    upstream.left.temporaries.may_have_changed();
    upstream.left.moves_ahead = true;
    note_executed(&s.state, &mut upstream.left, by_execute, &[]);
    if !s.state.by_mode {
        upstream.left.binds_long();
    }
}

/// Notes that temporary relations, or how texts are read, may have changed. Must run after all else is noted.
fn note_unseen(state: &HeldState, left: &mut LeftoverState, statement: &Statement) {
    const SETS: StateKinds = UNSEEN.with(StateKind::Setting).with(StateKind::Library);
    let may_set = left.due.kinds.and(if state.by_mode { statement.state.may_change } else { StateKinds::NONE });
    // In session mode no question is asked.
    left.moves_ahead |= !may_set.common(SETS).is_empty()
        || (state.by_mode && (statement.has(StatementTrait::Executes) || statement.has(StatementTrait::Writes)));
    let has_some = left.found.has(StateKind::Temporary) || left.temporaries.may_be();
    // With a `search_path` to pg_temp, a definition is temporary although its text does not say so.
    let by_path = state.makes_temporary || left.may_make_temporary() || state.by_mode;
    let by_function = !left.due.kinds.common(UNSEEN).is_empty()
        || (has_some && !statement.state.functions.is_empty())
        || (state.by_mode && (statement.has(StatementTrait::Executes) || !statement.state.may_change.common(UNSEEN).is_empty()));
    let by_text = statement.has(StatementTrait::MakesBrief) || statement.state.leaves.has(StateKind::Temporary);
    if by_text || by_function || (statement.has(StatementTrait::Redefines) && (by_path || has_some)) {
        left.temporaries.may_have_changed();
    }
}

/// Notes what statements prepared by SQL may leave, any of which may run. Their texts hold the settings that they make.
fn note_executed(state: &HeldState, left: &mut LeftoverState, later: StateKinds, text: &[u8]) {
    // `sequences` handles draws.
    let leaves = state.by_sql.later().and(later).without(StateKinds::of(StateKind::Sequence));
    // A statement still unknown to the session may do anything.
    let leaves = if left.young.is_some() { leaves.and(StateKinds::of(StateKind::Unknown)) } else { leaves };
    if leaves.is_empty() || state.by_mode {
        return;
    }
    left.due.any_setting = true;
    state.by_sql.texts().for_each(|text| left.due.add_custom_names(text.as_bytes()));
    if let Some(young) = &left.young {
        left.due.names.extend(young.names.iter().cloned());
    }
    left.note(leaves, &[], text, &[]);
}

/// Asks for the state that the session may have left, or gives the server connection up.
#[inline]
pub fn settle(s: &mut Session, w: &Context) {
    if !s.has_server() || !s.is_at_rest() || s.handle.cancels.get() > 0 {
        return;
    }
    let Some(SessionServer { conn, upstream }) = &mut s.server else { return };
    if upstream.brought.claim != StatementHold::No {
        return;
    }
    if !upstream.left.due.reported.is_empty() {
        upstream.left.due.weigh_reports(|name| conn.reported(name));
    }
    upstream.left.ask_again(w.now());
    if !upstream.left.due.is_empty() {
        return ask(s, w);
    }
    if s.state.listening.is_some() && listen::advance(s, w) {
        return;
    }
    if s.has_found(StateKind::Prepare) {
        free_of_role(s);
    }
    if let Some(SessionServer { upstream, .. }) = &mut s.server
        && !upstream.left.long.is_empty()
    {
        let was_there = s.statements.long_unnamed() == LongUnnamed::OnServer;
        if !upstream.left.long.rests(was_there) && was_there {
            s.statements.note_long_unnamed(LongUnnamed::Gone);
        }
    }
    if s.pin().is_some() {
        show_pin(s, w);
        ask_for_temporaries(s, w);
        return;
    }
    let parting = parting(s, w);
    let Some(conn) = s.release(w) else { return };
    part(s, conn, parting);
}

/// Frees statements prepared under a role once the session has none.
#[cold]
fn free_of_role(s: &mut Session) {
    if s.state.settings.has_role() || !s.state.by_sql.is_bound_to_role() {
        return;
    }
    let free = Arc::new(s.state.by_sql.without_role());
    s.state.by_sql = free.clone();
    if let Some(SessionServer { conn, upstream }) = &mut s.server {
        if !free.is_bound() {
            upstream.left.found = upstream.left.found.without(StateKinds::of(StateKind::Prepare));
        }
        conn.by_sql = free;
    }
}

pub fn part(s: &Session, conn: Box<Conn>, parting: ConnCleanup) {
    match parting {
        ConnCleanup::AsItIs => s.host.give_back(conn),
        ConnCleanup::Cleaned => s.host.reset(conn),
        ConnCleanup::Closed => s.host.close(conn),
    }
}

/// Asks for the temporary relations of a session that stays pinned.
fn ask_for_temporaries(s: &mut Session, w: &Context) {
    let Some(SessionServer { upstream, .. }) = &mut s.server else { return };
    if upstream.left.temporaries.is_due() && !s.state.by_mode {
        upstream.left.due.kinds.add(StateKind::Temporary);
        ask(s, w);
    }
}

pub fn parting_for_good(s: &Session, w: &Context) -> ConnCleanup {
    let has_some = s.pin().is_some() || s.is_unsure();
    parting(s, w).max(if has_some { ConnCleanup::Cleaned } else { ConnCleanup::AsItIs })
}

/// Returns the fate of a server connection that no known state keeps.
#[inline]
fn parting(s: &Session, w: &Context) -> ConnCleanup {
    if s.conn().is_some_and(|conn| conn.settings.are_worn()) {
        w.count(WorkerCounter::ConnsWorn);
        return ConnCleanup::Closed;
    }
    let by_state = s.upstream().map_or(ConnCleanup::AsItIs, |upstream| upstream.left.parting());
    if s.account.limits.get().on_release.resets_always { by_state.max(ConnCleanup::Cleaned) } else { by_state }
}

/// Statements sent before the answer have their own due.
#[cold]
fn ask(s: &mut Session, w: &Context) {
    let Some(SessionServer { conn, upstream }) = &mut s.server else { return };
    let mut ask = std::mem::take(&mut upstream.left.due);
    let because = std::mem::take(&mut upstream.left.because);
    if s.state.by_mode {
        return;
    }
    ask.add_own(&s.state.settings);
    w.count(WorkerCounter::Inventories);
    if told_by(&ask).has(StateKind::Temporary) {
        upstream.left.temporaries.asked();
    }
    let certain = conn.known.certain();
    // The next statement must not run before startup values are restored, nor use a deallocated statement.
    if (ask.is_about_all() && !s.state.startup.is_empty()) || (told_by(&ask).has(StateKind::Prepare) && certain > 0) {
        upstream.raise_barrier();
    }
    let cost = if s.state.settings.may_compile() || s.state.defaults.base.may_compile() {
        AnswerCost::Compiled
    } else {
        AnswerCost::Plain
    };
    let question = ask.question(cost);
    let knows_temporaries = !upstream.left.temporaries.is_due();
    upstream.left.asking =
        Some(Box::new(PendingStateQuestion { ask, because, certain, knows_temporaries, ..PendingStateQuestion::default() }));
    send(s, w, &question, ExpectedReply::StateOurs);
}

/// Writes a query of ours. It runs under the client's settings, so all its names have a schema.
pub fn send(s: &mut Session, w: &Context, sql: &str, expect: ExpectedReply) {
    own::check(sql);
    send_clients(s, w, sql, expect);
}

/// Writes a client's own text, unchecked.
pub fn send_clients(s: &mut Session, w: &Context, sql: &str, expect: ExpectedReply) {
    write::query(s.up.extra(&w.buffers), sql);
    s.expect(expect);
    s.handle.is_ours.set(true);
    if let Some(conn) = s.conn_mut() {
        conn.unnamed = None;
    }
}

/// `body` is `None` when too long. Error: the answer does not end.
pub fn on_row(s: &mut Session, header: MessageHeader, body: Option<&[u8]>) -> Result<(), BoundExceeded> {
    let Some(SessionServer { conn, upstream }) = &mut s.server else { return Ok(()) };
    let Some(asking) = &mut upstream.left.asking else { return Ok(()) };
    let is_utf8 = conn.tells_utf8();
    let reads = |cells: &Vec<Option<&[u8]>>| {
        is_utf8 || cells.first() == Some(&Some(b"f")) || cells.iter().flatten().all(|cell| cell.is_ascii())
    };
    match body.and_then(weir_wire::back::read_row).filter(reads) {
        Some(cells) => asking.answer.row(&cells),
        None => asking.answer.unread(header.frame_bytes()),
    }
}

/// Handles the refusal of a question, or of a statement prepared by SQL that is brought. `header`: of the whole error.
pub fn on_refused(s: &mut Session, header: MessageHeader) {
    let Some(SessionServer { upstream, .. }) = &mut s.server else { return };
    if upstream.replies.is_bringing_statement() {
        upstream.left.must_part(ConnCleanup::Cleaned);
        if let (Some(Some(entry)), Some(body)) = (upstream.brought.by_sql.front(), s.down.whole(header)) {
            let fault = ErrorReport::of_report(&weir_wire::back::read_report(body));
            upstream.brought.refused.push((entry.clone(), fault));
        }
        return;
    }
    match &mut upstream.left.asking {
        Some(asking) => asking.answer.is_torn = true,
        None => {
            upstream.left.must_part(ConnCleanup::Cleaned);
            // The refused message may have been a mark.
            if let Some(subscription) = &s.state.listening {
                subscription.inbox.lose();
            }
        }
    }
}

pub fn on_answer(s: &mut Session, w: &Context) {
    let Some(asking) = s.upstream_mut().and_then(|upstream| upstream.left.asking.take()) else { return };
    let PendingStateQuestion { ask, answer, certain, knows_temporaries, .. } = *asking;
    if !ask.sources.is_empty() && !answer.is_torn {
        let edition = w.shared.catalogs.definitions.load(Ordering::Relaxed);
        let mut books = w.functions.borrow_mut();
        let functions = books.of(&s.account.database, w.now_ms(), edition);
        functions.learn(ask.sources.iter(), &answer.sources);
    }
    let told = told_by(&ask);
    let had_foreign = note_found(s, told, &answer);
    let statements_are_whole = !told.has(StateKind::Prepare) || take_statements(s, w, answer.prepared.clone(), knows_temporaries);
    let Some(SessionServer { conn, upstream }) = &mut s.server else { return };
    let left = &mut upstream.left;
    if told.has(StateKind::Prepare) && !answer.is_torn {
        conn.known.counted(answer.by_protocol, certain);
    }
    if told.has(StateKind::Prepare) && !answer.is_torn && !left.due.kinds.has(StateKind::Prepare) {
        left.young = None;
    }
    if answer.is_torn || !statements_are_whole {
        left.found.add(StateKind::Unknown);
        left.due.add_unanswered(ask);
        s.host.wake_at(left.unanswered(w.now()));
        if had_foreign {
            left.found.add(StateKind::ForeignSetting);
        }
    } else {
        if left.found.has(StateKind::Unknown) {
            // An earlier answer was torn when this question was under way already.
            left.due.kinds.add(StateKind::Unknown);
        } else {
            left.again = None;
        }
        if told.has(StateKind::Setting) {
            let outcome = settings_after(&ask, &answer, &s.state.settings, &s.state.startup, &s.account.user);
            if outcome.has_new_foreign || (had_foreign && !answer.foreign.is_empty()) {
                left.found.add(StateKind::ForeignSetting);
            }
            conn.settings.set(w.shared.intern_settings(outcome.of_conn).0);
            if ask.any_setting || ask.is_about_all() {
                connection_defaults::look(conn, w);
            }
            set_settings(s, w, outcome.of_session);
        }
    }
    if told.has(StateKind::Listen) && !answer.is_torn {
        listen::on_answer(s, w, answer.channels);
    }
    show_pin(s, w);
    bring_back(s, w);
}

/// True: the server connection had a setting that the session may not make itself.
fn note_found(s: &mut Session, told: StateKinds, answer: &StateAnswer) -> bool {
    let Some(SessionServer { upstream, .. }) = &mut s.server else { return false };
    let left = &mut upstream.left;
    let had_foreign = left.found.has(StateKind::ForeignSetting);
    left.found = left.found.without(told).and(answer.found);
    if told.has(StateKind::Temporary) {
        left.temporaries.told((!answer.is_torn).then(|| answer.temporary.clone()));
    }
    had_foreign
}

/// Restores startup values reset by a function. The client has heard of the reset and must hear the old values again.
fn bring_back(s: &mut Session, w: &Context) {
    let lacks = |conn: &Conn| !Arc::ptr_eq(&conn.settings, &s.state.settings);
    if !s.conn().is_some_and(lacks) || !s.replies().is_settled() || s.up.is_mid_message() {
        return;
    }
    bring_settings(s, w);
    if let Some(upstream) = s.upstream_mut() {
        // No statement waits: the server connection may go after the answer.
        upstream.brought.claim = StatementHold::No;
        upstream.resetting.telling = StartupRestore::Silent;
    }
}

/// Sets a parameter of Weir's own. A rollback does not take it back.
pub fn set_own(s: &mut Session, w: &Context, name: &str, value: Option<&str>) {
    let settings = match value {
        Some(value) => s.state.settings.with(name, value),
        None => s.state.settings.after(&ResetTarget::Name(name.to_owned()), &s.state.startup),
    };
    set_settings(s, w, settings);
}

fn set_settings(s: &mut Session, w: &Context, settings: SettingValues) {
    if settings == *s.state.settings {
        return;
    }
    s.state.meaning = w.shared.intern_settings(settings.meaning()).1;
    s.state.makes_temporary = settings.makes_temporary();
    s.reads.causal.set(&w.shared, &settings);
    s.state.reading = settings.reading();
    s.state.choice = LossChoices::of(&settings);
    s.state.settings = w.shared.intern_settings(settings).0;
}

/// False: a listed statement cannot be prepared elsewhere. `knows_temporaries`: the temporary relations of that moment are
/// listed.
fn take_statements(s: &mut Session, w: &Context, listed: Vec<(String, String)>, knows_temporaries: bool) -> bool {
    let mut statements = w.statements.borrow_mut();
    let mut cut = Vec::with_capacity(listed.len());
    for (name, text) in listed {
        let Some(own) = weir_sql::prepare_named(&text, &name) else { return false };
        cut.push((name, own.to_owned()));
    }
    let settings = s.state.settings.clone();
    // Elsewhere the relation may be gone, and the client would lose the statement.
    let temporaries = s.upstream().map(|upstream| &upstream.left).filter(|left| left.found.has(StateKind::Temporary));
    let make = |name: String, text: String| {
        let bound = match temporaries {
            Some(left) if !knows_temporaries || left.temporaries.may_be_in(&text) => ConnDependency::ToTemporary,
            Some(_) | None if settings.has_role() => ConnDependency::ToRole,
            Some(_) | None => ConnDependency::Free,
        };
        let later = statements.of_text(text.as_bytes()).state.later;
        let query = weir_sql::prepared_query(&text).map(Box::from);
        SqlPreparedStatement { name, text, settings: settings.clone(), query, later, bound }
    };
    let listed = s.state.by_sql.of_list(cut.into_iter(), make);
    let on_conn = s.conn().map(|conn| conn.by_sql.clone()).unwrap_or_default();
    let now = listed.clone().and_absent(&s.state.by_sql, &on_conn);
    if now != *s.state.by_sql {
        s.state.by_sql = if now.is_empty() { w.shared.no_statements.clone() } else { Arc::new(now) };
    }
    if let Some(SessionServer { conn, upstream }) = &mut s.server {
        if s.state.by_sql.is_bound() {
            upstream.left.found.add(StateKind::Prepare);
        }
        conn.by_sql = if listed == *s.state.by_sql { s.state.by_sql.clone() } else { Arc::new(listed) };
    }
    true
}

/// Forgets a statement prepared by SQL, outside of a transaction. The server connection drops it when it is next brought.
pub fn deallocate(s: &mut Session, w: &Context, name: &str) {
    let now = s.state.by_sql.without(name.as_bytes());
    s.state.by_sql = if now.is_empty() { w.shared.no_statements.clone() } else { Arc::new(now) };
    if let Some(upstream) = s.upstream_mut() {
        upstream.brought.refused.retain(|(entry, _)| entry.name != name);
    }
}

/// As [`deallocate`], for all of them.
pub fn deallocate_all(s: &mut Session, w: &Context) {
    s.state.by_sql = w.shared.no_statements.clone();
    if let Some(upstream) = s.upstream_mut() {
        upstream.brought.refused.clear();
    }
}

pub fn keep(s: &mut Session, w: &Context, kind: Option<StateKind>) {
    match kind {
        Some(kind) => s.upstream_mut().into_iter().for_each(|upstream| upstream.left.stuck.add(kind)),
        None => s.state.by_mode = true,
    }
    show_pin(s, w);
}

/// Brings the session's state in the same write as the statement that follows.
#[inline]
pub fn bring(s: &mut Session, w: &Context) {
    let Some(conn) = s.conn() else { return };
    if !Arc::ptr_eq(&conn.settings, &s.state.settings) {
        bring_settings(s, w);
    }
    let Some(SessionServer { conn, upstream }) = &s.server else { return };
    if upstream.brought.claim != StatementHold::No {
        // Statements are prepared under the session's settings, which the server may still refuse.
        return;
    }
    if !Arc::ptr_eq(&conn.by_sql, &s.state.by_sql) {
        bring_statements(s, w);
    }
}

#[cold]
fn bring_settings(s: &mut Session, w: &Context) {
    let Some(SessionServer { conn, .. }) = &mut s.server else { return };
    let sql = conn.settings.change_to(&s.state.settings);
    // No statement may run as another user or under others' settings: what may be refused is confirmed first.
    let needs_answer = conn.settings.may_be_refused(&s.state.settings);
    conn.settings.set(s.state.settings.clone());
    send_settings(s, w, &sql);
    let Some(upstream) = s.upstream_mut() else { return };
    if needs_answer && !upstream.replies.is_empty() {
        upstream.raise_barrier();
        upstream.brought.claim = StatementHold::Bringing;
    }
}

/// Handles a refusal of the session's settings. True: all are taken back and the session's tried once more, before any of its
/// statements.
pub fn cleans(s: &mut Session, w: &Context, why: &str) -> bool {
    let Some(SessionServer { conn, upstream }) = &mut s.server else { return false };
    let is_bringing = upstream.brought.claim == StatementHold::Bringing && upstream.resetting.telling == StartupRestore::No;
    if !is_bringing || !upstream.replies.is_last() {
        return false;
    }
    w.log_conn(
        &conn.status.address,
        format_args!("all settings are taken back, since those of the next session were refused: {why}"),
    );
    upstream.brought.claim = StatementHold::Cleaning;
    let sql = SettingValues::default().change_to(&s.state.settings);
    send_settings(s, w, &format!("RESET SESSION AUTHORIZATION; SET ROLE NONE; RESET ALL; {sql}"));
    true
}

fn send_settings(s: &mut Session, w: &Context, sql: &str) {
    if !sql.is_empty() {
        w.count(WorkerCounter::SettingsSent);
        send(s, w, sql, ExpectedReply::SettingsOurs);
    }
}

#[cold]
fn bring_statements(s: &mut Session, w: &Context) {
    let Some(wanted) = wanted_statements(s) else { return };
    let Some(SessionServer { conn, .. }) = &mut s.server else { return };
    let had = std::mem::replace(&mut conn.by_sql, wanted.clone());
    for change in had.change_to(&wanted, &s.state.settings) {
        match change {
            RestoreQuery::Settings(sql) => send_settings(s, w, &sql),
            RestoreQuery::Deallocate(sql) => {
                note_brought(s, None);
                send(s, w, &sql, ExpectedReply::StatementOurs);
            }
            RestoreQuery::Prepare(entry) => {
                w.count(WorkerCounter::ParsesAdded);
                send_clients(s, w, &entry.text, ExpectedReply::StatementOurs);
                note_prepared(s, &entry.text);
                note_brought(s, Some(entry));
            }
        }
    }
}

/// Statements prepared by SQL that the server connection should have. `None`: it has them. An EXECUTE goes to the primary of shard 0: other shards and
/// the engine may lack the tables, and only drop those of other sessions.
fn wanted_statements(s: &Session) -> Option<Arc<BySql>> {
    let conn = s.conn()?;
    if s.sharding.here() == 0 {
        return Some(s.state.by_sql.clone());
    }
    let shared = s.state.by_sql.shared_with(&conn.by_sql);
    (shared != *conn.by_sql).then(|| Arc::new(shared))
}

fn note_brought(s: &mut Session, entry: Option<Arc<SqlPreparedStatement>>) {
    if let Some(upstream) = s.upstream_mut() {
        upstream.brought.by_sql.push_back(entry);
    }
}

/// After a reset, sets the startup values again: the server knows only its own defaults. True: the client's ReadyForQuery, if due
/// (`telling`), waits.
pub fn restores(s: &mut Session, w: &Context, telling: StartupRestore) -> bool {
    let Some(SessionServer { conn, upstream }) = &mut s.server else { return false };
    // Until then an answer belongs to something sent before the reset.
    if upstream.resetting.under_way.is_none() || !upstream.replies.is_settled() {
        return false;
    }
    let Some(reset) = upstream.resetting.under_way.take() else { return false };
    if upstream.txn.status == FAILED || s.up.is_mid_message() {
        return false;
    }
    let sql = if std::mem::take(&mut upstream.resetting.was_discarded) {
        let had = conn.settings.set(s.state.settings.clone());
        had.change_to(&s.state.settings)
    } else {
        s.state.startup.again(&reset)
    };
    if sql.is_empty() {
        return false;
    }
    upstream.resetting.telling = telling;
    upstream.raise_barrier();
    send_settings(s, w, &sql);
    true
}

/// True: a ReadyForQuery waited for the startup values.
pub fn restored(s: &mut Session, w: &Context) -> bool {
    let Some(upstream) = s.upstream_mut() else { return false };
    let telling = std::mem::take(&mut upstream.resetting.telling);
    if telling != StartupRestore::No {
        before_ready(s, w);
    }
    telling == StartupRestore::OwesReady
}

/// Before a client's ReadyForQuery: applies settings known from a text, and sends reports held back.
#[inline]
pub fn before_ready(s: &mut Session, w: &Context) {
    let Some(SessionServer { upstream, .. }) = &mut s.server else { return };
    if upstream.left.moves_ahead && upstream.replies.is_only_ours() {
        upstream.left.moves_ahead = false;
    }
    if let Some(plain) = upstream.resetting.plain.take() {
        let settings = match &plain {
            SettingCommand::Set { name, value } => s.state.settings.with(name, value),
            SettingCommand::Reset(reset) => s.state.settings.after(reset, &s.state.startup),
        };
        set_settings(s, w, settings);
        if let Some(SessionServer { conn, .. }) = &mut s.server {
            conn.settings.set(s.state.settings.clone());
        }
    }
    if s.upstream().is_some_and(|upstream| !upstream.resetting.untold.is_empty()) {
        tell(s, w);
    }
}

#[cold]
fn tell(s: &mut Session, w: &Context) {
    let Some(SessionServer { conn, upstream }) = &mut s.server else { return };
    let mut untold = std::mem::take(&mut upstream.resetting.untold);
    // In the order of a server up to version 15.
    untold.sort_by_key(|(name, _)| name.to_ascii_lowercase());
    for (name, before) in untold {
        let now = conn.reported(&name);
        if now != before {
            write::parameter_status(s.down.extra(&w.buffers), &name, now);
        }
    }
}

/// True: the report waits until a reset is over.
pub fn on_report(s: &mut Session, name: &str) -> bool {
    let Some(SessionServer { conn, upstream }) = &mut s.server else { return false };
    let resetting = &mut upstream.resetting;
    if resetting.telling != StartupRestore::No || (resetting.under_way.is_some() && upstream.replies.is_last()) {
        if !resetting.untold.iter().any(|(known, _)| known == name) {
            resetting.untold.push((name.to_owned(), conn.reported(name).to_owned()));
        }
        return true;
    }
    let is_plain = matches!(&resetting.plain, Some(SettingCommand::Set { name: set, .. }) if set.eq_ignore_ascii_case(name));
    if !upstream.replies.is_our_turn() && !s.state.by_mode && !is_plain {
        upstream.left.note_report(name, conn.reported(name));
    }
    false
}

/// The server dropped all but the unnamed statement. Source: `DropAllPreparedStatements` in prepare.c.
pub fn discarded(s: &mut Session, w: &Context) {
    s.deallocated(w);
    s.statements.close_portal();
    s.state.discarded(w.shared.no_statements.clone());
    // Made-up settings are empty from now on; an extension's have their defaults.
    let mut after = s.state.settings.after(&ResetTarget::All, &s.state.startup).without_who();
    if s.upstream().is_some_and(|upstream| upstream.left.stuck.has(StateKind::Library)) {
        // A library removes the names made up with its prefix, and a server refuses to set them.
        after = after.without_made_up(&s.state.startup);
    }
    set_settings(s, w, after);
    if let Some(SessionServer { conn, upstream }) = &mut s.server {
        conn.settings.set(w.no_settings());
        upstream.resetting.was_discarded = true;
        upstream.left.discarded();
    }
    show_pin(s, w);
}

pub mod by_sql;
pub mod client_settings;
pub mod conn_settings;
pub mod held_state;
pub mod listen;
pub mod made_up;
pub mod name_scopes;
pub mod server_defaults;
pub mod state_question;
pub mod temporary;
#[cfg(test)]
mod tests;
