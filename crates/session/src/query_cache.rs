//! A session's use of the query cache. `weir_cache` decides; the results are in `cached_results`.
//!
//! Only with nothing under way, so that the session's own writes are settled. In transactions only while no server knows of them. Without
//! a cache the cost is one look at a pointer.

pub mod cache_side;
pub mod cached_results;
mod fresh;
pub mod log_progress;
pub mod result_store;
mod stored;
mod writes;

use crate::context::Context;
use crate::flow::MessageFlow;
use crate::lazy_begin::{self, transaction_place};
use crate::metrics::WorkerCounter;
use crate::pipeline::batch::PipelineBatch;
use crate::pipeline::{self, FollowingMessages};
use crate::prepared::{self, StatementShape};
use crate::query_cache::cache_side::{AnswerCapture, CacheKeyPrefix, TimedStoreFetch};
use crate::query_cache::cached_results::{CachedResult, CachedResults, Key, TextCacheFacts, WHO_BYTES};
use crate::routing::classify;
use crate::session::{ClientStatement, FAILED, IDLE, LazyBegin, Session, SessionServer};
use crate::session_state::client_settings::{EncodingEffect, shapes_answers};
use crate::statement_statistics::CachedStatement;
use crate::statements::{ParseNaming, PreparedStatement, Statement};
use crate::unit::{ReadyStatus, SessionConcern, StatementMessage};
use crate::upstream::{PendingInvalidations, UpstreamState};
use crate::{causal, statement_log, statement_statistics};
use sha2::{Digest, Sha256};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use stored::StoreLookupResult;
use weir_cache::{CachePermission, ResultDependencies, Slot, bind_holds_a_moment, says_a_moment};
use weir_config::PoolMode;
use weir_sql::facts::BeginOptions;
use weir_wire::frame::{MessageHeader, back};
use writes::{look_at_write, moves, note_known, note_rest, note_write, settle};

pub const SETTING: &str = "weir.query_cache";

/// Longest wait for another session's answer, whose client may read slowly.
const FLIGHT_WAIT: Duration = Duration::from_millis(200);

/// Most tables of a cached answer: each is checked at every use.
const TABLES_MAX: usize = 64;

/// True if a statement that needs databases for itself must wait until their logs are not followed any more.
#[inline]
pub fn must_let_go(s: &mut Session, w: &Context, statement: &Statement) -> bool {
    !statement.vacates.is_empty() && fresh::must_let_go(s, w, &statement.vacates)
}

/// Answers a Query from memory, waits for an answer requested by another session, or prepares to store the answer. `None`: the Query goes
/// its usual way.
#[inline]
pub fn on_query(s: &mut Session, w: &Context, statement: &Statement, header: MessageHeader) -> Option<MessageFlow> {
    w.shared.cached_results.as_ref()?;
    let caching = statement.caching.as_deref()?;
    // A retried question keeps its capture.
    let before = s.cache.capture.take();
    if caching.text.reads == CachePermission::Never || caching.is_indifferent(classify::place_of(s, w)) || !may_ask(s, w) {
        return None;
    }
    ask(s, w, statement, caching, before, header)
}

/// As `on_query` for a complete batch `[Parse] Bind [Describe] Execute [Sync]`.
#[inline]
pub fn on_batch(s: &mut Session, w: &Context) -> Option<MessageFlow> {
    // Nothing changes within a batch whose answer is expected.
    if w.shared.cached_results.is_none() || !s.replies().is_settled() {
        return None;
    }
    let before = s.cache.capture.take();
    if may_ask(s, w) { ask_batch(s, w, before) } else { None }
}

fn ask_batch(s: &mut Session, w: &Context, before: Option<Box<AnswerCapture>>) -> Option<MessageFlow> {
    let answers = w.shared.cached_results.as_ref()?;
    let (prepared, told, is_synced) = {
        let batch = PipelineBatch::read(s.up.unseen())?;
        let (prepared, told) = prepared_for(s, w, &batch)?;
        (prepared, told, batch.is_synced)
    };
    if !is_synced && shares_snapshot(s, w) {
        // Statements before one Sync may share a snapshot.
        return None;
    }
    let caching = prepared.statement.caching.as_deref()?;
    if caching.text.reads == CachePermission::Never {
        return None;
    }
    let place = classify::place_of(s, w);
    let slots = slots_read(s, w, answers, caching, place)?;
    let who = who(s)?;
    let mut key = w.scratch.borrow_mut();
    key.clear();
    key.extend_from_slice(&who);
    let batch = PipelineBatch::read(s.up.unseen())?;
    batch.write_key(&prepared.tail, told, &mut key);
    match find(s, w, answers, &key) {
        MemoryLookupResult::Answer(answer) => {
            drop(key);
            give_batch(s, w, prepared, &answer.bytes, answer.round);
            return Some(MessageFlow::Next);
        }
        MemoryLookupResult::Unproven => return Some(MessageFlow::Hold),
        MemoryLookupResult::Nothing => {}
    }
    let batch = PipelineBatch::read(s.up.unseen())?;
    if !batch.is_synced {
        // Without a Sync no ReadyForQuery tells where the next answer begins.
        return None;
    }
    let says = says_a_moment(&prepared.tail) || bind_holds_a_moment(batch.values);
    if says && caching.text.reads != CachePermission::Forced {
        return None;
    }
    if reads_in_bytes(s, &key[WHO_BYTES..]) {
        return None;
    }
    let key: Key = key.as_slice().into();
    match seek(s, w, answers, before, key, &slots) {
        MemoryMissOutcome::Found(bytes, round) => {
            give_batch(s, w, prepared, &bytes, round);
            Some(MessageFlow::Next)
        }
        MemoryMissOutcome::Flow(flow) => flow,
    }
}

/// True if a read of a pipeline may share its snapshot, or a needed implicit transaction, with the messages after it.
fn shares_snapshot(s: &mut Session, w: &Context) -> bool {
    let reads_committed = transaction_place::may_ask_memory(BeginOptions::default(), classify::defaults(s, w), true);
    !reads_committed || (!s.lazy_begin.is_open() && s.transaction() == IDLE && pipeline::look(s, w) != FollowingMessages::Reads)
}

/// Commands that may commit before ReadyForQuery; clients may act on the tag. Procedural code commits anywhere.
const TAGS_OF_COMMITS: [&[u8]; 4] = [b"COMMIT\0", b"COMMIT PREPARED\0", b"CALL\0", b"DO\0"];

#[inline]
pub fn may_acknowledge(writes: &PendingInvalidations, body_bytes: u32) -> bool {
    let has_writes = !writes.is_empty() || !writes.is_tracked;
    has_writes && TAGS_OF_COMMITS.iter().any(|tag| tag.len() == body_bytes as usize)
}

/// Acknowledges writes before the client sees a commit's tag.
#[inline]
pub fn on_tag(s: &mut Session, w: &Context, header: MessageHeader) {
    if !s.upstream().is_some_and(|upstream| may_acknowledge(&upstream.writes, header.body_bytes)) {
        return;
    }
    if s.down.whole(header).is_some_and(|said| TAGS_OF_COMMITS.contains(&said)) {
        writes::acknowledge(s, w);
    }
}

enum MemoryMissOutcome {
    /// `u64`: the round that covers what they show.
    Found(Vec<u8>, u64),
    Flow(Option<MessageFlow>),
}

/// Asks the store, if any, then prepares for a server's answer.
fn seek(
    s: &mut Session,
    w: &Context,
    answers: &Arc<CachedResults>,
    before: Option<Box<AnswerCapture>>,
    key: Key,
    slots: &[Slot],
) -> MemoryMissOutcome {
    let key = stored::full(s, w, key);
    let before = before.filter(|before| before.key == key);
    let deps = match (&w.store, &before) {
        // In this order: after publishing another catalog its publisher changes the database's slot.
        (None, _) => answers.versions.begin(slots).filter(|_| s.account.known.edition() == s.reads.place.edition()),
        // The store was already asked for this message.
        (Some(_), Some(before)) => Some(before.deps.clone()),
        (Some(stores), None) => match stored::look(s, w, answers, stores, &key, slots) {
            StoreLookupResult::Wait => return MemoryMissOutcome::Flow(Some(MessageFlow::Hold)),
            StoreLookupResult::Hit { bytes, round } => return MemoryMissOutcome::Found(bytes, round),
            StoreLookupResult::Miss(deps) => Some(deps),
            StoreLookupResult::Off => return MemoryMissOutcome::Flow(None),
        },
    };
    MemoryMissOutcome::Flow(prepare(s, w, answers, before, key, deps))
}

/// Returns a batch's statement and the client's description of it, unless a server would report an error.
fn prepared_for(s: &Session, w: &Context, batch: &PipelineBatch<'_>) -> Option<(Rc<PreparedStatement>, StatementShape)> {
    let (prepared, told) = match batch.parse {
        // Only a server can describe a named statement to a client.
        Some(tail) if batch.name.is_empty() && tail.len() <= w.peek_config().routing.statement_analysis_bytes_max => {
            (w.statements.borrow_mut().of_parse(tail, s.state.meaning, ParseNaming::Unnamed)?, StatementShape::UNKNOWN)
        }
        Some(_) => return None,
        // An answer must have the shape that the client was told.
        None => {
            let own = if batch.name.is_empty() {
                s.statements.unnamed()?
            } else {
                s.statements.named.get(prepared::key(batch.name))?
            };
            (own.told != StatementShape::UNKNOWN && own.told != StatementShape::VAST).then(|| (own.prepared.clone(), own.told))?
        }
    };
    let is_known = !classify::checks_values(s, &prepared);
    (prepared.statement.local.is_none() && is_known).then_some((prepared, told))
}

fn give_batch(s: &mut Session, w: &Context, prepared: Rc<PreparedStatement>, bytes: &[u8], round: u64) {
    let Some(batch) = PipelineBatch::read(s.up.unseen()) else { return };
    let (headers, count, has_parse, is_synced) = (batch.headers, batch.count, batch.parse.is_some(), batch.is_synced);
    s.cache.waits_now().into_iter().for_each(|waits| waits.until = None);
    s.lazy_begin.read();
    causal::heard_from_memory(s, w, round);
    w.count(WorkerCounter::CacheHits);
    statement_log::answered_by_cache(s, w, Some(&prepared));
    let counted = if has_parse { CachedStatement::PreparedNow(&prepared) } else { CachedStatement::Prepared(&prepared) };
    statement_statistics::answered_by_cache(s, w, counted, bytes);
    s.statements.close_portal();
    if has_parse {
        s.statements.replace_unnamed(ClientStatement::without_name(prepared));
        s.say_bare(w, back::PARSE_COMPLETE);
    }
    s.say_bare(w, back::BIND_COMPLETE);
    s.down.extra(&w.buffers).extend_from_slice(bytes);
    if is_synced {
        s.reads.forget_series();
        s.say_ready(w);
    }
    for (at, header) in headers[..count].iter().enumerate() {
        if at > 0 {
            statement_log::passed(s, w, *header);
        }
        s.up.eat(*header);
    }
}

#[inline]
fn may_ask(s: &mut Session, w: &Context) -> bool {
    s.replies().is_settled()
        && s.may_speak()
        && !s.is_unsure()
        && s.pin().is_none()
        && s.account.limits.get().mode != PoolMode::Session
        && !s.reads_otherwise()
        && may_ask_here(s, w)
        && w.may_remember()
}

/// True if the session is outside of transactions, or in one unknown to servers and without a snapshot of its own.
#[inline]
fn may_ask_here(s: &mut Session, w: &Context) -> bool {
    match (&s.lazy_begin, s.transaction()) {
        (LazyBegin::No, IDLE) => true,
        (LazyBegin::Deferred(begin) | LazyBegin::Reading(begin), _) => {
            let begin = lazy_begin::options_of(begin);
            transaction_place::may_ask_memory(begin, classify::defaults(s, w), s.reads.causal.sees_on(w))
        }
        (LazyBegin::No | LazyBegin::Failed(_) | LazyBegin::Sent(_), _) => false,
    }
}

fn ask(
    s: &mut Session,
    w: &Context,
    statement: &Statement,
    caching: &TextCacheFacts,
    before: Option<Box<AnswerCapture>>,
    header: MessageHeader,
) -> Option<MessageFlow> {
    let answers = w.shared.cached_results.as_ref()?;
    let place = classify::place_of(s, w);
    // Most uncached texts end here.
    let slots = slots_read(s, w, answers, caching, place)?;
    let who = who(s)?;
    let key = {
        let body = s.up.whole(header)?;
        let mut key = w.scratch.borrow_mut();
        key.clear();
        key.extend_from_slice(&who);
        key.push(header.tag);
        key.extend_from_slice(body);
        key
    };
    match find(s, w, answers, &key) {
        MemoryLookupResult::Answer(answer) => {
            drop(key);
            return Some(give(s, w, statement, header, &answer.bytes, answer.round));
        }
        MemoryLookupResult::Unproven => return Some(MessageFlow::Hold),
        MemoryLookupResult::Nothing => {}
    }
    if caching.text.reads != CachePermission::Forced && says_a_moment(&key[WHO_BYTES..]) {
        return None;
    }
    if reads_in_bytes(s, &key[WHO_BYTES..]) {
        return None;
    }
    let key: Key = key.as_slice().into();
    match seek(s, w, answers, before, key, &slots) {
        MemoryMissOutcome::Found(bytes, round) => Some(give(s, w, statement, header, &bytes, round)),
        MemoryMissOutcome::Flow(flow) => flow,
    }
}

/// True if the server may read names in the message by another encoding. Such answers are not stored.
fn reads_in_bytes(s: &Session, message: &[u8]) -> bool {
    !message.is_ascii() && s.recoding() != EncodingEffect::None
}

fn give(s: &mut Session, w: &Context, statement: &Statement, header: MessageHeader, bytes: &[u8], round: u64) -> MessageFlow {
    s.cache.waits_now().into_iter().for_each(|waits| waits.until = None);
    // Counts as a read for the rest of its transaction.
    s.lazy_begin.read();
    causal::heard_from_memory(s, w, round);
    w.count(WorkerCounter::CacheHits);
    statement_log::answered_by_cache(s, w, None);
    statement_statistics::answered_by_cache(s, w, CachedStatement::Query(statement), bytes);
    s.statements.drop_unnamed();
    s.down.extra(&w.buffers).extend_from_slice(bytes);
    s.say_ready(w);
    s.up.eat(header);
    MessageFlow::Next
}

enum MemoryLookupResult {
    Answer(Arc<CachedResult>),
    /// An answer not yet known to be fresh: the statement waits a little.
    Unproven,
    Nothing,
}

#[inline]
fn find(s: &mut Session, w: &Context, answers: &CachedResults, key: &[u8]) -> MemoryLookupResult {
    if w.store.is_some() {
        return MemoryLookupResult::Nothing;
    }
    // Before the lookup: the covered position was raised before.
    let is_fresh = fresh::is_fresh(s, w);
    match answers.get(key, w.now_ms()) {
        // A session with a server connection has already waited.
        Some(_) if !is_fresh && !s.has_server() && fresh::must_wait(s, w) => return MemoryLookupResult::Unproven,
        Some(answer) if is_fresh => {
            s.cache.end_wait();
            return MemoryLookupResult::Answer(answer);
        }
        Some(_) | None => {}
    }
    s.cache.end_wait();
    MemoryLookupResult::Nothing
}

/// Has this session request the answer, or wait for another session that does.
fn prepare(
    s: &mut Session,
    w: &Context,
    answers: &Arc<CachedResults>,
    before: Option<Box<AnswerCapture>>,
    key: Key,
    deps: Option<ResultDependencies>,
) -> Option<MessageFlow> {
    // Before versions are noted.
    w.follow(&s.account.known);
    let flight = match before {
        Some(before) => before.flight,
        _ if s.cache.waits_until().is_some_and(|until| !still_waits(s, w, answers, &key, until)) => None,
        _ if s.cache.waits_until().is_some() => return Some(MessageFlow::Hold),
        _ => match answers.coalesce(&key, s.waiter(w)) {
            None => {
                let until = w.now() + FLIGHT_WAIT;
                s.cache.waits().until = Some(until);
                w.count(WorkerCounter::CacheWaits);
                s.host.wake_at(until);
                return Some(MessageFlow::Hold);
            }
            flight => flight,
        },
    };
    let Some(deps) = deps else {
        fresh::hurry(s, w);
        return None;
    };
    // After the stamps: under another catalog the text may read other tables.
    if s.account.known.edition() != s.reads.place.edition() {
        return None;
    }
    s.cache.capture = Some(Box::new(AnswerCapture {
        key,
        deps,
        flight,
        bytes: w.buffers.take_extra(),
        bytes_max: answers.answer_bytes_max,
        since: None,
        is_whole: false,
    }));
    None
}

/// True if the answer is still on its way to another session. If it was not stored, all waiters ask.
fn still_waits(s: &Session, w: &Context, answers: &CachedResults, key: &[u8], until: Instant) -> bool {
    let goes_on = w.now() < until && answers.is_awaited(key, s.waiter(w));
    if goes_on {
        s.host.wake_at(until);
    }
    goes_on
}

/// Hash of the asker and settings that shape an answer. `None`: no cache.
fn who(s: &mut Session) -> Option<[u8; WHO_BYTES]> {
    if let Some(CacheKeyPrefix { settings, base, hash }) = s.cache.who.as_deref()
        && Arc::ptr_eq(settings, &s.state.settings)
        && Arc::ptr_eq(base, &s.state.defaults.base)
    {
        return *hash;
    }
    let (settings, base) = (s.state.settings.clone(), s.state.defaults.base.clone());
    let is_off =
        settings.get(SETTING).is_some_and(|value| matches!(value.to_ascii_lowercase().as_str(), "off" | "false" | "no" | "0"));
    // Another client's RESET may undo the connect query.
    let is_uncertain = !s.account.connect_query.is_empty();
    let who = (!is_off && !settings.needs_primary() && !is_uncertain).then(|| {
        let mut hash = Sha256::new();
        let mut add = |word: &str| {
            hash.update((word.len() as u64).to_le_bytes());
            hash.update(word.as_bytes());
        };
        add(&s.account.database);
        add(&s.account.user);
        // Unset parameters have the login's value on every server.
        let of_login = base.pairs().filter(|(name, _)| settings.get(name).is_none() && shapes_answers(name));
        let mut shaping: Vec<(&str, &str)> = settings.shaping_answers().chain(of_login).collect();
        shaping.sort_unstable();
        shaping.into_iter().for_each(|(name, value)| {
            add(name);
            add(value);
        });
        hash.finalize().into()
    });
    s.cache.who = Some(Box::new(CacheKeyPrefix { settings, base, hash: who }));
    who
}

fn slots_read(s: &Session, w: &Context, answers: &CachedResults, caching: &TextCacheFacts, place: u64) -> Option<Rc<[Slot]>> {
    if place == 0 {
        return None;
    }
    if let Some(known) = caching.reads.at(place) {
        return known;
    }
    let catalog = s.account.known.catalog()?;
    let never = &w.peek_config().cache.unsafe_tables;
    let tables = caching.text.tables_read(&catalog, &classify::path_in(s, &catalog), never);
    // In a shared store only the log reports others' changes.
    let is_shared = w.store.as_ref().is_some_and(|stores| stores.is_shared());
    let is_told = |tables: &Vec<u32>| {
        let is_silent = (answers.follows_wal && catalog.has_materialised(tables)) || (is_shared && catalog.has_unlogged(tables));
        !is_silent
    };
    let slots = tables.filter(|tables| tables.len() <= TABLES_MAX && is_told(tables)).map(|tables| {
        let versions = &answers.versions;
        let shared = [versions.of_all(), versions.of_database(&s.account.database)];
        shared.into_iter().chain(tables.iter().map(|oid| versions.of_table(&s.account.database, *oid))).collect::<Rc<[Slot]>>()
    });
    if s.account.known.edition() == s.reads.place.edition() {
        caching.reads.note(place, slots.clone());
    }
    slots
}

pub struct QueryCache;

impl SessionConcern for QueryCache {
    #[inline]
    fn sent(s: &mut Session, w: &Context, _: MessageHeader, unit: StatementMessage<'_>) {
        match unit {
            StatementMessage::Query(statement)
            | StatementMessage::Bind { statement, .. }
            | StatementMessage::BindUnknown(statement)
            | StatementMessage::Call(statement) => {
                sent(s, w, statement);
            }
            StatementMessage::Garbled => refused(s, w),
            StatementMessage::Parse(_) | StatementMessage::Execute => {}
        }
    }

    #[inline]
    fn ready(s: &mut Session, w: &Context, ended: ReadyStatus) {
        match ended {
            ReadyStatus::ForClient(status) => ready(s, w, status),
            ReadyStatus::BySync(status) => synced(s, w, status),
        }
    }

    fn lost(s: &mut Session, w: &Context) {
        lost(s, w);
    }
}

/// Notes the possible changes of a statement about to be sent, and expects an answer to store.
#[inline]
fn sent(s: &mut Session, w: &Context, statement: &Statement) {
    match &w.shared.cached_results {
        None if !w.shared.changes.are_tracked() || note_known(s, statement) => {}
        None => note_tracked(s, w, statement),
        Some(answers) => note_cached(s, w, statement, answers),
    }
}

/// Notes a statement whose effect was not found before, without a cache.
#[inline(never)]
fn note_tracked(s: &mut Session, w: &Context, statement: &Statement) {
    look_at_write(s, w, statement);
    s.cache.is_adrift |= moves(s, statement);
}

fn note_cached(s: &mut Session, w: &Context, statement: &Statement, answers: &CachedResults) {
    if w.shared.changes.are_tracked() || w.peek_config().cache.follows_writes {
        note_write(s, w, statement);
    }
    s.cache.is_adrift |= moves(s, statement);
    if statement.caching.is_none() {
        give_up(s, w);
    }
    // A late reply of the store is useless.
    s.cache.forget_waits();
    // A capture under way belongs to an earlier statement.
    if s.cache.capture.as_ref().is_some_and(|capture| capture.since.is_none()) {
        expect(s, w, answers);
    }
}

/// Begins the capture as its question is sent. A standby must cover the last changes of its tables.
fn expect(s: &mut Session, w: &Context, answers: &CachedResults) {
    let (Some(SessionServer { conn, .. }), Some(capture)) = (&s.server, &mut s.cache.capture) else { return };
    let needed = answers.versions.round_needed(&capture.deps);
    if conn.is_to_primary(&w.view()) || causal::covers(w, conn, needed) {
        capture.since = Some(w.now());
    } else {
        causal::verify(w, conn);
        give_up(s, w);
        // A new server connection needs a round begun after it was opened.
        causal::want(w, needed.max(w.shared.positions.next_round()));
    }
}

/// False: more of the message must arrive first.
#[inline]
pub fn watch(s: &mut Session, w: &Context, header: MessageHeader) -> bool {
    if s.cache.capture.is_none() || s.replies().is_our_turn() { true } else { copy(s, w, header) }
}

#[inline]
pub fn is_watching(s: &Session) -> bool {
    s.cache.capture.is_some()
}

fn copy(s: &mut Session, w: &Context, header: MessageHeader) -> bool {
    let bytes = header.frame_bytes();
    let Some(capture) = &mut s.cache.capture else { return true };
    match header.tag {
        back::READY | back::PARSE_COMPLETE | back::BIND_COMPLETE | back::CLOSE_COMPLETE => return true,
        back::ROW_DESCRIPTION | back::DATA_ROW | back::COMMAND_COMPLETE => {}
        // Error, notice, COPY: not to be cached.
        _ => {
            give_up(s, w);
            return true;
        }
    }
    if capture.bytes.len() + bytes > capture.bytes_max {
        give_up(s, w);
        return true;
    }
    if !s.down.has_whole(bytes) {
        return false;
    }
    capture.bytes.extend_from_slice(&s.down.unseen()[..bytes]);
    capture.is_whole |= header.tag == back::COMMAND_COMPLETE;
    true
}

/// Stores the answer and settles writes before the client sees ReadyForQuery.
#[inline]
fn ready(s: &mut Session, w: &Context, status: u8) {
    note_rest(s, status);
    if s.cache.capture.is_some() || s.cache.spared_at.is_some() {
        close(s, w, status);
    }
    if status == IDLE && may_have_written(s, w) {
        settle(s, w);
    }
}

#[inline]
fn may_have_written(s: &Session, w: &Context) -> bool {
    let is_untold = |upstream: &UpstreamState| !upstream.writes.is_tracked && w.shared.changes.are_tracked();
    s.upstream().is_some_and(|upstream| !upstream.writes.is_empty() || is_untold(upstream))
}

/// Stores the answer.
fn close(s: &mut Session, w: &Context, status: u8) {
    if let Some(capture) = s.cache.capture.take() {
        store(s, w, *capture, status);
    }
    if let (Some(since), Some(stores)) = (s.cache.spared_at.take(), &w.store) {
        let took = w.now().saturating_duration_since(since);
        stores.lookup_policy().server_took(took.as_micros() as u64);
    }
}

fn store(s: &Session, w: &Context, capture: AnswerCapture, status: u8) {
    let AnswerCapture { key, deps, mut flight, bytes, since, is_whole, bytes_max: _ } = capture;
    let Some(answers) = &w.shared.cached_results else { return };
    // After `ALTER ROLE ... SET` new sessions have other settings.
    let is_of_before = s.conn().is_some_and(|conn| conn.status.doomed.load(Ordering::SeqCst));
    // Within a transaction only its first read is captured.
    let is_fine = is_whole && status != FAILED && !s.is_unsure() && !is_of_before;
    if let Some(since) = since.filter(|_| is_fine) {
        let took_us = w.now().saturating_duration_since(since).as_micros() as u64;
        let (database, user) = (s.account.database.clone(), s.account.user.clone());
        let (made_ms, hits, round) = (w.now_ms(), AtomicU64::new(0), w.shared.positions.next_round());
        let is_stored = match &w.store {
            None => answers
                .put(key, CachedResult { bytes: bytes.as_slice().into(), deps, database, user, round, made_ms, took_us, hits }),
            Some(stores) => stored::keep(
                s,
                w,
                &**stores,
                stored::CacheableResult { key, deps, bytes: &bytes, round, took_us, flight: &mut flight },
            ),
        };
        if is_stored {
            w.count(WorkerCounter::CacheStored);
        }
    }
    w.buffers.put_extra(bytes);
    if let Some(flight) = flight {
        flight.finish(|waiter| s.host.wake(waiter));
    }
}

/// Ends the capture; each waiting session asks by itself.
fn give_up(s: &mut Session, w: &Context) {
    let Some(capture) = s.cache.capture.take() else { return };
    w.buffers.put_extra(capture.bytes);
    if let Some(flight) = capture.flight {
        flight.finish(|waiter| s.host.wake(waiter));
    }
}

/// Ends capture and waits: the next statement was refused before it was sent.
pub fn refused(s: &mut Session, w: &Context) {
    give_up(s, w);
    skipped(s);
}

#[inline]
pub fn skipped(s: &mut Session) {
    s.cache.forget_waits();
}

/// Settles writes after Weir's Sync ended an implicit transaction.
fn synced(s: &mut Session, w: &Context, status: u8) {
    note_rest(s, status);
    if status == IDLE && may_have_written(s, w) {
        settle(s, w);
    }
}

/// Sent writes may still be carried out (`RaisedSlots` is dropped unsettled).
pub fn lost(s: &mut Session, w: &Context) {
    refused(s, w);
    // A crashed server may have lost unflushed commits.
    w.shared.changes.doubt_all(w.shared.positions.next_round());
}
