//! The extended protocol: prepared statements follow their session to any server connection.
//!
//! On servers a statement has Weir's name, one per distinct text, shared by clients. Bind and Describe prepare it where missing.

use crate::checkout::{self, hold, refusal};
use crate::context::Context;
use crate::failing_parse::{self, NO_STATEMENT};
use crate::fault::{ErrorReport, garbled, sqlstate};
use crate::flow::MessageFlow;
use crate::local::LocalStatement;
use crate::metrics::WorkerCounter;
use crate::plan::{self, MessagePlan};
use crate::prepared::reuse::{self, UnnamedParse};
use crate::prepared::{NAME_PREFIX, PrepareStep, StatementId, StatementShape, key, push_name, result_shape};
use crate::replies::ExpectedReply;
use crate::session::{
    ClientStatement, LocalPortal, MessageSkip, MisreadExtent, PreparedChange, Session, SessionServer, SubstituteFault,
};
use crate::sharding::{batch_steps, engine_snapshots, savepoints, write_steps};
use crate::statements::{self, ParseNaming, PreparedStatement, Statement, StatementTrait};
use crate::stats::StatCounter;
use crate::unit::StatementMessage;
use crate::upstream::prepared_changes::{DescribeTarget, LongUnnamed, OwnStatements, ServerName};
use crate::{own_answers, query_cache, session_state, sharding, signals, timing};
use std::rc::Rc;
use std::sync::Arc;
use weir_sql::facts::{StateKind, StateKinds};
use weir_wire::back::ReceivedReport;
use weir_wire::frame::{HEADER_BYTES, MessageHeader, back, front, read_header, split_cstr};
use weir_wire::gather::BoundExceeded;
use weir_wire::write;

const NAMES_BYTES_MIN: usize = 16 << 10;

pub fn on_parse(s: &mut Session, w: &Context, header: MessageHeader) -> Result<MessageFlow, ErrorReport> {
    let limit = w.peek_config().routing.statement_analysis_bytes_max;
    if header.body_bytes as usize > limit {
        return on_long_parse(s, w, header);
    }
    if !s.up.has_whole(header.frame_bytes()) {
        return Ok(MessageFlow::More);
    }
    let body = body_here(s.up.unseen(), header);
    let Some((name, tail)) = split_cstr(body).filter(|(_, tail)| tail.contains(&0)) else {
        return refuse(s, w, header, ErrorReport::garbled(garbled::NO_END_OF_STRING));
    };
    let (is_named, key) = (!name.is_empty(), key(name));
    if is_named && s.is_in_doubt(key) {
        return Ok(MessageFlow::Hold);
    }
    let is_taken = is_named && (s.statements.named.contains_key(key) || s.state.by_sql.has(key) || has_long(s, key));
    let (naming, name): (_, Option<Box<[u8]>>) = (ParseNaming::of(name), is_named.then(|| key.into()));
    let mut statements = w.statements.borrow_mut();
    // Analyses shared with others need known settings.
    let prepared = if s.is_own() { statements.fresh_parse(tail) } else { statements.of_parse(tail, s.state.meaning, naming) };
    drop(statements);
    let Some(prepared) = prepared else {
        return refuse(s, w, header, ErrorReport::garbled(garbled::NO_END_OF_STRING));
    };
    let prepared = match s.misread(&prepared.statement) {
        MisreadExtent::No => prepared,
        MisreadExtent::Names => w.statements.borrow_mut().parse_of_other_names(&prepared.tail).unwrap_or(prepared),
        MisreadExtent::Whole => return on_long_parse(s, w, header),
    };
    if is_taken {
        return parse_taken(s, w, header, &prepared);
    }
    if is_named && let Err(exceeded) = s.statements.check_room(prepared.tail.len()) {
        return refuse(s, w, header, too_many(&exceeded));
    }
    if let Some(fault) = refusal(s, &prepared.statement) {
        return refuse(s, w, header, fault);
    }
    if own_answers::is_in_doubt(s, &prepared.statement) {
        return Ok(MessageFlow::Hold);
    }
    if ours(s, w, &prepared).is_some() {
        return Ok(parse_local(s, w, header, name, prepared));
    }
    if w.is_sharded() {
        match sharding::aim_parse(s, w, name.as_deref().unwrap_or_default(), &prepared) {
            None | Some(MessagePlan::Ready) => {}
            Some(MessagePlan::Later(flow)) => return Ok(flow),
            Some(MessagePlan::Refused(fault)) => return refuse(s, w, header, fault),
        }
    }
    if let Some(flow) = checkout::try_now(s, w, &prepared.statement) {
        return Ok(flow);
    }
    if w.is_sharded() {
        match sharding::before(s, w) {
            None | Some(MessagePlan::Ready) => {}
            Some(MessagePlan::Later(flow)) => return Ok(flow),
            Some(MessagePlan::Refused(fault)) => return refuse(s, w, header, fault),
        }
    }
    match name {
        None => match reuse::choose(s, w, &prepared, header) {
            UnnamedParse::Pass => parse_unnamed(s, w, header, prepared),
            UnnamedParse::Number => parse_numbered(s, w, header, prepared),
            UnnamedParse::Known => parse_known(s, w, header, prepared),
        },
        Some(name) => parse_named(s, w, header, name, prepared),
    }
    Ok(MessageFlow::Next)
}

/// PostgreSQL checks the text before the name.
#[cold]
fn parse_taken(
    s: &mut Session,
    w: &Context,
    header: MessageHeader,
    prepared: &Rc<PreparedStatement>,
) -> Result<MessageFlow, ErrorReport> {
    let name = split_cstr(body_here(s.up.unseen(), header)).map_or(&b""[..], |(name, _)| name);
    let fault = already_exists(name);
    if ours(s, w, prepared).is_none() {
        if let Some(flow) = checkout::try_now(s, w, &prepared.statement) {
            return Ok(flow);
        }
        prepare_on_server(s, w, prepared);
        expect_brought(s, prepared.id);
    }
    refuse(s, w, header, fault)
}

fn already_exists(name: &[u8]) -> ErrorReport {
    let text = format!("prepared statement \"{}\" already exists", String::from_utf8_lossy(name));
    ErrorReport::error(sqlstate::DUPLICATE_STATEMENT, text)
}

fn parse_unnamed(s: &mut Session, w: &Context, header: MessageHeader, prepared: Rc<PreparedStatement>) {
    plan::note(s, w, header, StatementMessage::Parse(&prepared));
    prepared.was_sent.set(true);
    if let Some(conn) = s.conn_mut() {
        conn.unnamed = Some((prepared.id, StatementShape::UNKNOWN));
    }
    replace_unnamed(s, ClientStatement::without_name(prepared), None);
    s.expect_more(ExpectedReply::Parse);
    s.up.pass(header, &w.buffers);
}

fn replace_unnamed(s: &mut Session, own: ClientStatement, made: Option<StatementId>) {
    s.statements.is_sent_next = false;
    let before = s.statements.replace_unnamed(own);
    s.enter(PreparedChange::Unnamed { before, made });
}

/// Sends an unnamed Parse under the number of its text, to spare later ones.
fn parse_numbered(s: &mut Session, w: &Context, header: MessageHeader, prepared: Rc<PreparedStatement>) {
    plan::note(s, w, header, StatementMessage::Parse(&prepared));
    s.up.eat(header);
    prepare_on_server(s, w, &prepared);
    reuse::analysed(s, w, prepared.id);
    let made = Some(prepared.id);
    replace_unnamed(s, ClientStatement::new(prepared), made);
    s.expect_more(ExpectedReply::Parse);
}

/// Spares an unnamed Parse whose text the server connection has.
fn parse_known(s: &mut Session, w: &Context, header: MessageHeader, prepared: Rc<PreparedStatement>) {
    plan::note(s, w, header, StatementMessage::Parse(&prepared));
    w.count(WorkerCounter::ParsesSpared);
    s.up.eat(header);
    replace_unnamed(s, ClientStatement::new(prepared), None);
    s.expect_more(ExpectedReply::ParseKnown);
}

/// Always sends a client's named Parse, for the server's current answer. The Close before it allows for a statement left on the
/// server.
fn parse_named(s: &mut Session, w: &Context, header: MessageHeader, name: Box<[u8]>, prepared: Rc<PreparedStatement>) {
    s.account.stats.add(StatCounter::ClientParses, 1);
    plan::note(s, w, header, StatementMessage::Parse(&prepared));
    let id = prepared.id;
    let before = s.statements.named.insert(name.clone(), ClientStatement::new(prepared.clone()));
    s.up.eat(header);
    prepare_on_server(s, w, &prepared);
    let is_described = result_shape::is_described_next(s, &name);
    s.enter(PreparedChange::Named { name: name.clone(), before, made: Some(id) });
    s.expect_more(ExpectedReply::Parse);
    if !is_described {
        result_shape::ask(s, w, &prepared, DescribeTarget::Name(name));
    }
}

fn expect_brought(s: &mut Session, id: StatementId) {
    let segment = s.statements.segment;
    if let Some(upstream) = s.upstream_mut() {
        upstream.brought.parses.push_back((segment, id));
        upstream.replies.push(ExpectedReply::ParseOurs);
    }
}

/// Writes Close and Parse, and Close of evicted statements. The caller notes the Parse.
fn prepare_on_server(s: &mut Session, w: &Context, prepared: &PreparedStatement) {
    let Some(SessionServer { conn, upstream }) = &mut s.server else { return };
    s.account.stats.add(StatCounter::ServerParses, 1);
    let max = w.peek_config().pool.prepared_max as usize;
    let need = conn.known.touch(prepared.id, max);
    let extra = s.up.extra(&w.buffers);
    if let PrepareStep::Parse { evict: Some(evict) } = need
        && evict != prepared.id
    {
        write_close(extra, evict);
        upstream.replies.push(ExpectedReply::CloseOurs);
    }
    for surplus in conn.known.shed(prepared.id, max) {
        write_close(extra, *surplus);
        upstream.replies.push(ExpectedReply::CloseOurs);
    }
    write_close(extra, prepared.id);
    upstream.replies.push(ExpectedReply::CloseOurs);
    write_parse(extra, prepared.id, &prepared.tail);
}

fn write_parse(out: &mut Vec<u8>, id: StatementId, tail: &[u8]) {
    write::message(out, front::PARSE, |out| {
        push_name(out, id);
        out.push(0);
        out.extend_from_slice(tail);
    });
}

fn write_close(out: &mut Vec<u8>, id: StatementId) {
    write::message(out, front::CLOSE, |out| {
        out.push(b'S');
        push_name(out, id);
        out.push(0);
    });
}

/// Sends a Parse that is too long, or read differently by the server, to the primary under the client's own name. The session keeps
/// the connection while the statement may be needed.
fn on_long_parse(s: &mut Session, w: &Context, header: MessageHeader) -> Result<MessageFlow, ErrorReport> {
    let body_here = body_here(s.up.unseen(), header);
    let Some((name, _)) = split_cstr(body_here) else {
        return without_names(s, w, header, body_here.len());
    };
    if s.statements.named.contains_key(key(name)) || name.starts_with(NAME_PREFIX) {
        let fault = already_exists(name);
        return refuse(s, w, header, fault);
    }
    let is_unnamed = name.is_empty();
    if w.is_sharded()
        && let Some(fault) = sharding::refusal_of_long(s)
    {
        return refuse(s, w, header, fault);
    }
    if let Some(flow) = checkout::try_now(s, w, &statements::unknown()) {
        return Ok(flow);
    }
    session_state::note_long_parse(s, header);
    if is_unnamed {
        let before = s.statements.take_unnamed();
        s.enter(PreparedChange::Unnamed { before, made: None });
        s.statements.note_long_unnamed(LongUnnamed::OnServer);
        if let Some(conn) = s.conn_mut() {
            conn.unnamed = None;
        }
    } else {
        s.enter(PreparedChange::Nothing);
    }
    s.expect_more(ExpectedReply::Parse);
    s.up.pass(header, &w.buffers);
    Ok(MessageFlow::Next)
}

/// Fails a message; the server is made to fail too, and with it the transaction.
pub fn refuse(s: &mut Session, w: &Context, header: MessageHeader, fault: ErrorReport) -> Result<MessageFlow, ErrorReport> {
    refuse_behind(s, w, header, None, fault)
}

fn refuse_behind(
    s: &mut Session,
    w: &Context,
    header: MessageHeader,
    parameters: Option<Rc<[u8]>>,
    fault: ErrorReport,
) -> Result<MessageFlow, ErrorReport> {
    s.up.eat(header);
    query_cache::refused(s, w);
    if s.has_server() {
        failing_parse::send(s, w, SubstituteFault { parameters, fault });
    } else {
        result_shape::tell_parameters(s, w, parameters);
        s.say_error(w, &fault);
        s.intake.skip_to_sync();
    }
    Ok(MessageFlow::Next)
}

fn parse_local(
    s: &mut Session,
    w: &Context,
    header: MessageHeader,
    name: Option<Box<[u8]>>,
    prepared: Rc<PreparedStatement>,
) -> MessageFlow {
    if !s.may_speak() {
        return hold(s, w);
    }
    match name {
        Some(name) => {
            s.statements.named.insert(name, ClientStatement::new(prepared));
        }
        None => s.statements.keep_unnamed(ClientStatement::without_name(prepared)),
    }
    s.up.eat(header);
    s.say_bare(w, back::PARSE_COMPLETE);
    MessageFlow::Next
}

pub fn on_bind(s: &mut Session, w: &Context, header: MessageHeader) -> Result<MessageFlow, ErrorReport> {
    let body_here = body_here(s.up.unseen(), header);
    let heads = split_cstr(body_here).and_then(|(portal, rest)| split_cstr(rest).map(|(name, _)| (portal, name)));
    let Some((portal, name)) = heads else {
        return without_names(s, w, header, body_here.len());
    };
    let (portal_bytes, name_bytes, key) = (portal.len(), name.len(), key(name));
    if s.is_in_doubt(key) {
        return Ok(MessageFlow::Hold);
    }
    let own = if name.is_empty() { s.statements.unnamed() } else { s.statements.named.get(key) };
    let Some((prepared, server_name, told)) = own.map(ClientStatement::used) else {
        if is_on_conn_only(s, name) {
            let is_unnamed = name.is_empty();
            let flow = pass_unknown(s, w, header, ExpectedReply::Bind)?;
            if is_unnamed && flow == MessageFlow::Next {
                session_state::note_long_bound(s);
            }
            return Ok(flow);
        }
        let fault = no_such_statement(s, w, name);
        return refuse(s, w, header, fault);
    };
    if s.sharding.has_batch()
        && let Some(fault) = batch_steps::refusal(&prepared.statement)
    {
        return refuse(s, w, header, fault);
    }
    if own_answers::is_in_doubt(s, &prepared.statement) {
        return Ok(MessageFlow::Hold);
    }
    if ours(s, w, &prepared).is_some_and(|local| !is_command(local) || runs_at_once(s, header)) {
        return bind_local(s, w, header, prepared);
    }
    let unknown = match s.misread(&prepared.statement) {
        MisreadExtent::No => None,
        MisreadExtent::Names => {
            let text = prepared.text();
            Some(Rc::new(w.statements.borrow().of_other_names(text)))
        }
        MisreadExtent::Whole => Some(Rc::new(statements::unknown())),
    };
    let statement: &Statement = unknown.as_ref().unwrap_or(&prepared.statement);
    match plan::plan(s, w, StatementMessage::Bind { prepared: &prepared, statement })? {
        MessagePlan::Ready => {}
        MessagePlan::Later(flow) => return Ok(flow),
        MessagePlan::Refused(fault) => return refuse(s, w, header, fault),
    }
    if portal_bytes == 0 {
        s.statements.close_portal();
    }
    if prepared.statement.has(StatementTrait::Signals) && !s.up.has_whole(header.frame_bytes()) {
        return Ok(MessageFlow::More);
    }
    let (hit, prepared) = signals::of_bind(s, w, prepared, header);
    let prepared = match bring(s, w, prepared, told, server_name, None) {
        StatementPresence::Here(prepared) => prepared,
        StatementPresence::Soon => return Ok(hold(s, w)),
        StatementPresence::Changed => return refuse(s, w, header, result_shape::changed()),
        StatementPresence::Behind => return Ok(checkout::again(s)),
    };
    let called = hit.as_ref().map(|hit| hit.send(w));
    let statement = unknown.as_ref().or(called).unwrap_or(&prepared.statement);
    if s.sharding.has_write() && write_steps::has_own_bind(s) {
        bind_part(s, w, header, (&prepared, statement));
        return Ok(MessageFlow::Next);
    }
    note_bound(s, w, &prepared, statement, header);
    if w.is_sharded() {
        savepoints::note_bind(s, statement, portal_bytes == 0);
    }
    if server_name == ServerName::None {
        s.up.pass(header, &w.buffers);
        describe_part(s, w);
        return Ok(MessageFlow::Next);
    }
    reuse::bound(s, &prepared);
    s.account.stats.add(StatCounter::Binds, 1);
    let head_bytes = HEADER_BYTES + portal_bytes + 1 + name_bytes + 1;
    s.up.pass_with_head(header, head_bytes, &w.buffers, |head, out| {
        rename_bind(head, portal_bytes, header.frame_bytes() - head_bytes, prepared.id, out);
    });
    describe_part(s, w);
    Ok(MessageFlow::Next)
}

#[inline]
fn describe_part(s: &mut Session, w: &Context) {
    if s.sharding.has_write() {
        write_steps::describe_last(s, w);
    }
}

/// Binds the last shard's rows of an INSERT in place of all rows.
#[cold]
fn bind_part(s: &mut Session, w: &Context, header: MessageHeader, (prepared, statement): (&Rc<PreparedStatement>, &Statement)) {
    expect_brought(s, prepared.id);
    note_bound(s, w, prepared, statement, header);
    write_steps::bind_last(s, w, header);
    write_steps::describe_last(s, w);
    s.account.stats.add(StatCounter::Binds, 1);
}

#[cold]
fn without_names(s: &mut Session, w: &Context, header: MessageHeader, here: usize) -> Result<MessageFlow, ErrorReport> {
    if here >= header.body_bytes as usize {
        return refuse(s, w, header, ErrorReport::garbled(garbled::NO_END_OF_STRING));
    }
    let limit = names_bytes_max(w);
    if here >= limit {
        return refuse(s, w, header, too_long("names", limit));
    }
    // Doubled, so that long names are not scanned over and over.
    let bytes = (2 * here).clamp(256, limit);
    s.up.has_whole((HEADER_BYTES + bytes).min(header.frame_bytes()));
    Ok(MessageFlow::More)
}

/// Source: `PQ_SMALL_MESSAGE_LIMIT` in PostgreSQL's libpq.h.
const SMALL_BYTES_MAX: u32 = 10_000;

/// Bounds memory for announced names.
#[inline]
pub(crate) fn check_small(header: MessageHeader) -> Result<(), ErrorReport> {
    if header.body_bytes > SMALL_BYTES_MAX {
        let text = format!("invalid length of message type \"{}\": {}", header.tag.escape_ascii(), header.body_bytes);
        return Err(ErrorReport::fatal(sqlstate::PROTOCOL_VIOLATION, text));
    }
    Ok(())
}

/// A server takes longer names, and keeps `prepared::key` of them.
pub(crate) fn names_bytes_max(w: &Context) -> usize {
    w.peek_config().routing.statement_analysis_bytes_max.max(NAMES_BYTES_MIN)
}

#[cold]
fn too_many(exceeded: &BoundExceeded) -> ErrorReport {
    ErrorReport::error(sqlstate::PROGRAM_LIMIT_EXCEEDED, exceeded.to_string())
        .hint("Close prepared statements that are not needed any more.")
}

fn too_long(what: &str, limit: usize) -> ErrorReport {
    ErrorReport::error(sqlstate::PROGRAM_LIMIT_EXCEEDED, format!("{what} of a message take more than {limit} bytes"))
}

fn note_bound(s: &mut Session, w: &Context, prepared: &Rc<PreparedStatement>, statement: &Statement, header: MessageHeader) {
    plan::note(s, w, header, StatementMessage::Bind { prepared, statement });
    s.statements.bound = Some(prepared.clone());
    s.sharding.note_bound(statement.has(StatementTrait::OfSession));
    s.expect_more(ExpectedReply::Bind);
}

fn rename_bind(head: &[u8], portal_bytes: usize, rest_bytes: usize, id: StatementId, out: &mut Vec<u8>) {
    let at = out.len();
    out.push(front::BIND);
    out.extend([0; 4]);
    out.extend_from_slice(&head[HEADER_BYTES..HEADER_BYTES + portal_bytes + 1]);
    push_name(out, id);
    out.push(0);
    let length = (out.len() - at - 1 + rest_bytes) as u32;
    out[at + 1..at + 5].copy_from_slice(&length.to_be_bytes());
}

fn body_here(unseen: &[u8], header: MessageHeader) -> &[u8] {
    let end = unseen.len().min(header.frame_bytes());
    &unseen[HEADER_BYTES.min(end)..end]
}

enum StatementPresence {
    /// Prepared or on its way, perhaps under another number.
    Here(Rc<PreparedStatement>),
    /// The shape must be compared first.
    Soon,
    /// The shape is not what the client was told.
    Changed,
    /// On a standby, which may lag.
    Behind,
}

/// Prepares a statement if the connection lacks it as `told` to the client. `parameters`: told again if a Describe is refused.
fn bring(
    s: &mut Session,
    w: &Context,
    prepared: Rc<PreparedStatement>,
    told: StatementShape,
    server_name: ServerName,
    parameters: Option<Rc<[u8]>>,
) -> StatementPresence {
    let is_unnamed = server_name == ServerName::None;
    let id = prepared.id;
    let is_doubtful = s.is_parse_in_doubt(id);
    let Some(SessionServer { conn, upstream }) = &mut s.server else { return StatementPresence::Here(prepared) };
    let was_asked = upstream.brought.asked.take().is_some_and(|asked| asked.id == id);
    let is_alone = upstream.replies.is_only_ours();
    let is_there = match conn.unnamed {
        Some((unnamed, shape)) if is_unnamed => unnamed == id && told.allows(shape),
        _ => !is_unnamed && conn.known.use_if_known(id, told),
    };
    if is_there && !is_doubtful {
        return StatementPresence::Here(prepared);
    }
    if was_asked {
        let is_behind = s.retry.on_changed(upstream.is_on_standby(), upstream.txn.status);
        return if is_behind { StatementPresence::Behind } else { StatementPresence::Changed };
    }
    let prepared = analysed_now(s, w, prepared);
    if is_unnamed {
        if let Some(conn) = s.conn_mut() {
            conn.unnamed = Some((prepared.id, StatementShape::UNKNOWN));
        }
        write::parse(s.up.extra(&w.buffers), b"", &prepared.tail);
    } else {
        prepare_on_server(s, w, &prepared);
    }
    session_state::note_analysed(s, &prepared);
    w.count(WorkerCounter::ParsesAdded);
    expect_brought(s, prepared.id);
    if !told.can_change() {
        return StatementPresence::Here(prepared);
    }
    result_shape::ask(s, w, &prepared, if is_unnamed { DescribeTarget::Unnamed } else { DescribeTarget::AnyName });
    result_shape::wait(s, w, prepared.id, is_alone, parameters);
    StatementPresence::Soon
}

/// Gives a shared statement another number if it was analysed under settings other than the session's.
fn analysed_now(s: &mut Session, w: &Context, prepared: Rc<PreparedStatement>) -> Rc<PreparedStatement> {
    let Some(meaning) = prepared.meaning else { return prepared };
    let is_own = s.is_own();
    if meaning == s.state.meaning && !is_own {
        return prepared;
    }
    let mut statements = w.statements.borrow_mut();
    let made = if is_own {
        statements.fresh_parse(&prepared.tail)
    } else {
        statements.of_parse(&prepared.tail, s.state.meaning, prepared.naming)
    };
    let Some(made) = made else { return prepared };
    let named = s.statements.all_mut();
    for own in named.filter(|own| Rc::ptr_eq(&own.prepared, &prepared)) {
        own.prepared = made.clone();
    }
    made
}

/// True if an unknown name may be on the session's own connection: prepared by SQL, or too long to keep. Without state of this
/// session it would be another client's.
fn is_on_conn_only(s: &Session, name: &[u8]) -> bool {
    if name.is_empty() {
        return s.statements.long_unnamed() == LongUnnamed::OnServer;
    }
    let may_be = s.state.by_sql.has(key(name)) || s.is_unsure() || !s.stuck().is_empty() || has_long(s, key(name));
    may_be && !name.starts_with(NAME_PREFIX)
}

fn has_long(s: &Session, name: &[u8]) -> bool {
    s.upstream().is_some_and(|upstream| upstream.left.long.has(name))
}

#[cold]
fn no_such_statement(s: &Session, w: &Context, name: &[u8]) -> ErrorReport {
    let text = if name.is_empty() {
        "unnamed prepared statement does not exist".to_string()
    } else {
        format!("prepared statement \"{}\" does not exist", String::from_utf8_lossy(name))
    };
    let fault = ErrorReport::error(sqlstate::UNDEFINED_STATEMENT, text);
    if !name.is_empty() || s.statements.long_unnamed() != LongUnnamed::Gone {
        return fault;
    }
    let limit = w.peek_config().routing.statement_analysis_bytes_max;
    fault.hint(format!(
        "Weir did not analyse its text (statement_analysis_max = {limit} bytes, or the session's encoding), and keeps such a statement \
         up to the Sync behind its first execution. Parse it again, or give it a name."
    ))
}

/// Restores the client's statement name in a server's error.
#[cold]
pub fn in_words_of_client(statements: &OwnStatements, report: &ReceivedReport<'_>) -> Option<ErrorReport> {
    if !report.message.windows(NAME_PREFIX.len()).any(|part| part == NAME_PREFIX) {
        return None;
    }
    let message = String::from_utf8_lossy(report.message);
    let unnamed = statements.unnamed().into_iter().map(|own| (&b""[..], own));
    unnamed.chain(statements.named.iter()).find_map(|(name, own)| {
        let mut ours = Vec::new();
        push_name(&mut ours, own.prepared.id);
        let ours = format!("\"{}\"", String::from_utf8_lossy(&ours));
        let theirs = || message.replacen(&ours, &format!("\"{}\"", String::from_utf8_lossy(name)), 1);
        message.contains(&ours).then(|| ErrorReport { message: theirs(), ..ErrorReport::of_report(report) })
    })
}

/// Sends a message on to the server connection in use, else to the primary.
fn pass_unknown(s: &mut Session, w: &Context, header: MessageHeader, expect: ExpectedReply) -> Result<MessageFlow, ErrorReport> {
    if expect == ExpectedReply::Describe {
        check_small(header)?;
    }
    let waits_for_begin = s.lazy_begin.is_open() && !s.replies().is_unsynced();
    // SQL-level statements may be missing there.
    let lacks = s.conn().is_some_and(|conn| !Arc::ptr_eq(&conn.by_sql, &s.state.by_sql));
    let is_bind = expect == ExpectedReply::Bind;
    if !s.has_server() || waits_for_begin || is_bind || lacks {
        let held = begin_unknown(s, w, header, is_bind)?;
        if let Some(flow) = held {
            return Ok(flow);
        }
    }
    if expect == ExpectedReply::Execute {
        plan::note(s, w, header, StatementMessage::Execute);
    }
    s.expect_more(expect);
    s.up.pass(header, &w.buffers);
    Ok(MessageFlow::Next)
}

#[cold]
fn begin_unknown(s: &mut Session, w: &Context, header: MessageHeader, is_bind: bool) -> Result<Option<MessageFlow>, ErrorReport> {
    let statement = statements::unknown();
    if !is_bind {
        return Ok(checkout::try_now(s, w, &statement));
    }
    let unit = StatementMessage::BindUnknown(&statement);
    match plan::plan(s, w, unit)? {
        MessagePlan::Ready => {
            plan::note(s, w, header, unit);
            s.sharding.note_bound(false);
        }
        MessagePlan::Later(flow) => return Ok(Some(flow)),
        MessagePlan::Refused(fault) => return refuse(s, w, header, fault).map(Some),
    }
    Ok(None)
}

/// Commands with parameters go to a server, which refuses them.
fn ours<'a>(s: &Session, w: &Context, prepared: &'a PreparedStatement) -> Option<&'a LocalStatement> {
    let takes_none = || prepared.types().starts_with(&[0, 0]);
    own_answers::is_ours(s, w, &prepared.statement).filter(|local| !is_command(local) || takes_none())
}

fn is_command(local: &LocalStatement) -> bool {
    matches!(local, LocalStatement::Begin(_) | LocalStatement::End(_) | LocalStatement::Savepoint(_))
}

/// True if a Bind to the unnamed portal without parameters is followed by its Execute: nothing else can use the portal.
fn runs_at_once(s: &Session, header: MessageHeader) -> bool {
    let here = s.up.unseen();
    let bound = split_cstr(body_here(here, header)).filter(|(portal, _)| portal.is_empty());
    if !bound.and_then(|(_, rest)| split_cstr(rest)).is_some_and(|(_, rest)| rest.starts_with(&[0, 0, 0, 0])) {
        return false;
    }
    let mut at = header.frame_bytes();
    loop {
        let rest = here.get(at..).unwrap_or_default();
        let Ok(Some(next)) = read_header(rest) else { return false };
        match (next.tag, body_here(rest, next)) {
            (front::DESCRIBE, b"P\0") => at += next.frame_bytes(),
            (front::EXECUTE, body) => return body.first() == Some(&0),
            _ => return false,
        }
    }
}

fn bind_local(
    s: &mut Session,
    w: &Context,
    header: MessageHeader,
    prepared: Rc<PreparedStatement>,
) -> Result<MessageFlow, ErrorReport> {
    if !s.may_speak() {
        return Ok(hold(s, w));
    }
    let limit = names_bytes_max(w);
    if header.body_bytes as usize > limit {
        return refuse(s, w, header, too_long("values", limit));
    }
    let Some(body) = s.up.whole(header) else { return Ok(MessageFlow::More) };
    let types = prepared.types().first_chunk::<2>();
    let parameters = types.map_or(0, |count| usize::from(u16::from_be_bytes(*count)));
    if let Some(fault) = own_answers::refuses_values(body, parameters) {
        return refuse(s, w, header, fault);
    }
    let formats = match own_answers::result_formats(body) {
        Ok(formats) => formats,
        Err(text) => return refuse(s, w, header, ErrorReport::garbled(text)),
    };
    s.statements.open_portal(LocalPortal { prepared, formats: formats.into(), done: false });
    s.up.eat(header);
    s.say_bare(w, back::BIND_COMPLETE);
    Ok(MessageFlow::Next)
}

pub fn on_describe(s: &mut Session, w: &Context, header: MessageHeader) -> Result<MessageFlow, ErrorReport> {
    if !s.up.has_whole(header.frame_bytes()) {
        return Ok(MessageFlow::More);
    }
    let body = body_here(s.up.unseen(), header);
    let (kind, name) = match read_kind(header, body) {
        Ok(read) => read,
        Err(fault) => return refuse(s, w, header, fault),
    };
    if kind == b'P' {
        if name.is_empty() && s.statements.portal().is_some() {
            return Ok(describe_local(s, w, header));
        }
        return pass_unknown(s, w, header, ExpectedReply::Describe);
    }
    let key = key(name);
    if s.is_in_doubt(key) {
        return Ok(MessageFlow::Hold);
    }
    let is_unnamed = name.is_empty();
    let own = if is_unnamed { s.statements.unnamed().cloned() } else { s.statements.named.get(key).cloned() };
    let Some(ClientStatement { prepared, server_name, told, parameters }) = own else {
        if is_on_conn_only(s, name) {
            return pass_unknown(s, w, header, ExpectedReply::Describe);
        }
        let fault = no_such_statement(s, w, name);
        return refuse(s, w, header, fault);
    };
    let whose = match told {
        _ if is_unnamed => DescribeTarget::Unnamed,
        StatementShape::UNKNOWN => DescribeTarget::Name(key.into()),
        _ => DescribeTarget::AnyName,
    };
    if let Some(local) = ours(s, w, &prepared) {
        if !s.may_speak() {
            return Ok(hold(s, w));
        }
        write::no_parameters(s.down.extra(&w.buffers));
        own_answers::describe(s, w, local, &[]);
        s.up.eat(header);
        return Ok(MessageFlow::Next);
    }
    if let Some(flow) = checkout::try_now(s, w, &prepared.statement) {
        return Ok(flow);
    }
    let prepared = match bring(s, w, prepared, told, server_name, parameters.clone()) {
        StatementPresence::Here(prepared) => prepared,
        StatementPresence::Soon => return Ok(hold(s, w)),
        StatementPresence::Changed => return refuse_behind(s, w, header, parameters, result_shape::changed()),
        StatementPresence::Behind => return Ok(checkout::again(s)),
    };
    result_shape::expect(s, prepared.clone(), told, whose);
    if server_name == ServerName::None {
        s.up.pass(header, &w.buffers);
    } else {
        s.up.eat(header);
        write::message(s.up.extra(&w.buffers), front::DESCRIBE, |out| {
            out.push(b'S');
            push_name(out, prepared.id);
            out.push(0);
        });
    }
    Ok(MessageFlow::Next)
}

fn describe_local(s: &mut Session, w: &Context, header: MessageHeader) -> MessageFlow {
    if !s.may_speak() {
        return hold(s, w);
    }
    if let Some(portal) = s.statements.take_portal() {
        if let Some(local) = &portal.prepared.statement.local {
            own_answers::describe(s, w, local, &portal.formats);
        }
        s.statements.open_portal(portal);
    }
    s.up.eat(header);
    MessageFlow::Next
}

/// Returns kind (`S` or `P`) and name, or a server's error, checked in its order.
fn read_kind(header: MessageHeader, body: &[u8]) -> Result<(u8, &[u8]), ErrorReport> {
    let (&kind, rest) = body.split_first().ok_or_else(|| ErrorReport::garbled(garbled::NOTHING))?;
    let (name, rest) = split_cstr(rest).ok_or_else(|| ErrorReport::garbled(garbled::NO_END_OF_STRING))?;
    if !rest.is_empty() {
        return Err(ErrorReport::garbled(garbled::MORE_THAN_MEANT));
    }
    if !matches!(kind, b'S' | b'P') {
        let message = if header.tag == front::CLOSE { "CLOSE" } else { "DESCRIBE" };
        return Err(ErrorReport::garbled(&format!("invalid {message} message subtype {kind}")));
    }
    Ok((kind, name))
}

pub fn on_execute(s: &mut Session, w: &Context, header: MessageHeader) -> Result<MessageFlow, ErrorReport> {
    if s.statements.portal().is_some() {
        let Some(body) = s.up.whole(header) else { return Ok(MessageFlow::More) };
        let Some((name, limit)) = split_cstr(body) else {
            return refuse(s, w, header, ErrorReport::garbled(garbled::NO_END_OF_STRING));
        };
        match (name.is_empty(), limit.len()) {
            (true, 4) => return Ok(execute_local(s, w, header)),
            (true, 0..4) => return refuse(s, w, header, ErrorReport::garbled(garbled::TOO_SHORT)),
            (true, _) => return refuse(s, w, header, ErrorReport::garbled(garbled::MORE_THAN_MEANT)),
            (false, _) => {}
        }
    }
    let has_command = savepoints::waits_for_execute(s);
    if has_command && !s.up.has_whole(header.frame_bytes()) {
        return Ok(MessageFlow::More);
    }
    let runs_command = has_command && body_here(s.up.unseen(), header).first() == Some(&0);
    let flow = pass_unknown(s, w, header, ExpectedReply::Execute);
    if flow == Ok(MessageFlow::Next) {
        if runs_command {
            savepoints::note_execute(s);
        }
        s.sharding.note_executed();
        if s.sharding.has_write() {
            write_steps::after_execute(s, w);
        }
        w.count(WorkerCounter::StatementsExtended);
    }
    flow
}

fn execute_local(s: &mut Session, w: &Context, header: MessageHeader) -> MessageFlow {
    if !s.may_speak() {
        return hold(s, w);
    }
    let local = s.statements.portal().and_then(|portal| portal.prepared.statement.local.as_ref());
    if local.is_some_and(|local| !own_answers::is_fresh(s, w, local)) {
        return MessageFlow::Hold;
    }
    s.up.eat(header);
    if let Some(mut portal) = s.statements.take_portal() {
        if own_answers::execute(s, w, &portal.prepared.statement, portal.done).is_err() {
            s.intake.skip_to_sync();
        }
        portal.done = true;
        s.statements.open_portal(portal);
    }
    MessageFlow::Next
}

pub fn on_close(s: &mut Session, w: &Context, header: MessageHeader) -> Result<MessageFlow, ErrorReport> {
    let Some(body) = s.up.whole(header) else { return Ok(MessageFlow::More) };
    let (kind, name) = match read_kind(header, body) {
        Ok(read) => read,
        Err(fault) => return refuse(s, w, header, fault),
    };
    let name: &[u8] = &Box::<[u8]>::from(key(name));
    if kind == b'S' && s.is_in_doubt(name) {
        return Ok(MessageFlow::Hold);
    }
    let mut passes = kind == b'P';
    if passes {
        check_small(header)?;
    }
    let mut change = PreparedChange::Nothing;
    let is_by_sql = kind == b'S' && !name.is_empty() && !s.statements.named.contains_key(name) && is_on_conn_only(s, name);
    if is_by_sql {
        check_small(header)?;
    }
    if is_by_sql
        && !s.has_server()
        && let Some(flow) = checkout::try_now(s, w, &statements::unknown())
    {
        return Ok(flow);
    }
    if kind == b'S' && name.is_empty() {
        change = PreparedChange::Unnamed { before: s.statements.take_unnamed(), made: None };
        passes = s.statements.long_unnamed() == LongUnnamed::OnServer;
        s.statements.note_long_unnamed(LongUnnamed::Not);
    } else if kind == b'S' {
        let before = s.statements.named.remove(name);
        s.upstream_mut().into_iter().for_each(|upstream| upstream.left.long.close(name));
        passes = is_by_sql;
        if passes {
            note_by_sql(s);
        }
        change = PreparedChange::Named { name: name.into(), before, made: None };
    } else if name.is_empty() {
        s.statements.close_portal();
    }
    if !s.has_server() {
        s.up.eat(header);
        s.say_bare(w, back::CLOSE_COMPLETE);
        return Ok(MessageFlow::Next);
    }
    s.enter(change);
    s.expect_more(ExpectedReply::Close);
    if passes {
        s.up.pass(header, &w.buffers);
    } else {
        // The statement stays for others.
        s.up.eat(header);
        write::named(s.up.extra(&w.buffers), front::CLOSE, b'S', NO_STATEMENT);
    }
    Ok(MessageFlow::Next)
}

fn note_by_sql(s: &mut Session) {
    if let Some(SessionServer { upstream, .. }) = &mut s.server
        && !s.state.by_mode
    {
        upstream.left.note(StateKinds::of(StateKind::Prepare), &[], &[], &[]);
    }
}

pub fn on_sync(s: &mut Session, w: &Context, header: MessageHeader) -> MessageFlow {
    if s.sharding.has_batch()
        && let Some(flow) = batch_steps::before_sync(s, w)
    {
        return flow;
    }
    s.statements.close_portal();
    s.reads.forget_series();
    let is_garbled = header.body_bytes > 0;
    if !s.has_server() {
        if s.intake.skip() == MessageSkip::ToSync {
            s.intake.stop_skipping();
        }
        s.up.eat(header);
        if is_garbled {
            s.say_error(w, &ErrorReport::garbled(garbled::MORE_THAN_MEANT));
        }
        s.say_ready(w);
        return MessageFlow::Next;
    }
    if s.intake.skip() == MessageSkip::ToSync && !s.replies().is_empty() {
        // The answer to Weir's own Sync ends the error.
        return MessageFlow::Hold;
    }
    s.intake.stop_skipping();
    // Startup values are restored before messages after a RESET.
    s.statements.segment = s.statements.segment.wrapping_add(1);
    if let Some(upstream) = s.upstream_mut() {
        if upstream.resetting.under_way.is_some() {
            upstream.raise_barrier();
        }
        upstream.replies.push(if is_garbled { ExpectedReply::SyncGarbled } else { ExpectedReply::Sync });
    }
    reuse::synced(s);
    s.sharding.note_synced();
    write_steps::hold_others(s);
    batch_steps::hold_others(s);
    engine_snapshots::hold_others(s);
    savepoints::note_sync(s);
    timing::asked(s, w);
    s.up.pass(header, &w.buffers);
    MessageFlow::Next
}
