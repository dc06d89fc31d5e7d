//! Aims the session at the shard of its next statement, before a server connection is chosen.

use crate::checkout;
use crate::context::Context;
use crate::fault::{ErrorReport, sqlstate};
use crate::flow::MessageFlow;
use crate::participants::savepoint_steps;
use crate::plan::MessagePlan;
use crate::prepared::key;
use crate::routing::classify;
use crate::session::{FAILED, IDLE, LazyBegin, Session, WITHIN};
use crate::session_state::client_settings::EncodingEffect;
use crate::sharding::bound_values::BoundValues;
use crate::sharding::copy_parts::CopyParts;
use crate::sharding::copy_plan::CopyPlan;
use crate::sharding::copy_table::copy_of_query;
use crate::sharding::definitions;
use crate::sharding::gathered_statement::GatheredStatement;
use crate::sharding::insert_parts::{InsertPart, InsertParts, insert_parts};
use crate::sharding::kept_plan::{CopyWork, EngineFit, EveryCopy, NoEngine, TextPlan, TextRefusal};
use crate::sharding::known_sharding::{EngineLack, EngineStanding};
use crate::sharding::look_wait;
use crate::sharding::plan_wish::PlanWish;
use crate::sharding::refusal_words;
use crate::sharding::returned_rows::{ReturnedRows, RowOrder};
use crate::sharding::shard_target::{BoundStatements, ENGINE, ShardAim, ShardTarget, TransactionPart};
use crate::sharding::spread_write::{ChangedPart, PartAnswers, PartMessages, SpreadChange, SpreadParts, WriteEnd};
use crate::sharding::text_plan::{NameCertainty, PlanFacts, may_be_kept, plan_of, says_index};
use crate::sharding::unread_readers::UnreadCode;
use crate::sharding::{
    engine_settings, engine_snapshots, engine_standing, gathered_read, reference_steps, savepoints, spread_refusal,
    unread_readers, write_steps,
};
use crate::statements::{DrawRecall, PreparedStatement, Statement, StatementTrait};
use crate::unit::StatementMessage;
use crate::{lazy_begin, participants, sharding};
use std::rc::Rc;
use weir_cache::{bind_holds_a_moment, says_a_moment};
use weir_catalog::FIRST_USER_OID;
use weir_config::CrossShardReads;
use weir_shard::{AllShards, BoundValue, DefinitionEffect, ShardPlan, ShardRefusal, ValueFormat};
use weir_sql::facts::{StatementVerb, TransactionEnd, TransactionVerb};
use weir_sql::literal::LiteralGaps;
use weir_wire::frame::{HEADER_BYTES, front, read_header, split_cstr};
use weir_wire::write;

/// Longest message whose values are looked at, and longest pipeline in which a Bind is looked for, in bytes.
const LOOKED_AT_BYTES_MAX: usize = 1 << 20;

/// Why a statement is not aimed.
enum Unaimed {
    /// More of the message must arrive.
    More,
    /// Answers come first.
    Hold,
    Refused(Box<ErrorReport>),
    /// An INSERT by parameters, whose rows belong to several shards.
    ManyShards(ShardRefusal),
    /// Another message stands in the place of the client's.
    Rewritten,
    /// The engine is not ready for now, and the session has a connection to it.
    EngineLacks(EngineLack),
    /// A read of several shards in a transaction that has begun. The text is a Parse behind its name.
    Gathers(Box<[u8]>),
    /// The next look at the database tells what the statement depends on.
    AwaitsLook(EngineLack),
}

impl From<ErrorReport> for Unaimed {
    fn from(report: ErrorReport) -> Unaimed {
        Unaimed::Refused(Box::new(report))
    }
}

/// Sets the session's target. `Some`: the message is not sent now.
pub fn aim(s: &mut Session, w: &Context, unit: StatementMessage<'_>) -> Option<MessagePlan> {
    if engine_snapshots::are_wanted(s) || savepoint_steps::awaits_state(s, w) {
        return Some(MessagePlan::Later(MessageFlow::Hold));
    }
    gathered_read::leave_if_over(s, w);
    let ties = match unit {
        StatementMessage::Query(statement) | StatementMessage::Bind { statement, .. }
            if s.participants.is_some() && savepoint_steps::takes_server(s, w, statement) =>
        {
            return Some(MessagePlan::Later(MessageFlow::Hold));
        }
        StatementMessage::Query(statement) | StatementMessage::Bind { statement, .. } => match ties(s, w, unit, statement) {
            Ok(ties) => ties,
            Err(later) => return set(s, w, Err(later)),
        },
        StatementMessage::BindUnknown(_) | StatementMessage::Call(_) => true,
        StatementMessage::Parse(_) | StatementMessage::Execute | StatementMessage::Garbled => return None,
    };
    if s.sharding.has_write()
        && let Some(again) = set_again(s, w)
    {
        return again;
    }
    if let StatementMessage::Query(statement) | StatementMessage::Bind { statement, .. } = unit
        && let Some(flow) = before_begin(s, w, statement)
    {
        return Some(MessagePlan::Later(flow));
    }
    let is_first = s.status() == IDLE && s.sharding.bound() == BoundStatements::Nothing;
    let was_tied = s.sharding.note_tie(is_first, ties);
    let target = match unit {
        StatementMessage::Query(statement) | StatementMessage::Bind { statement, .. }
            if engine_snapshots::has_failed_block(s) && matches!(statement.transaction, TransactionVerb::Chain(_)) =>
        {
            Err(sharding::cannot_chain().into())
        }
        _ if engine_snapshots::has_failed_block(s) => Ok(ShardTarget::Engine.into()),
        StatementMessage::Query(statement) => of_query(s, w, statement),
        StatementMessage::Bind { prepared, statement } => of_bind(s, w, prepared, statement),
        // No text is known. One prepared by SQL stands on shard 0, else the session's own connection has it.
        StatementMessage::BindUnknown(_) if !s.state.by_sql.is_empty() => Ok(ShardTarget::Cluster.into()),
        StatementMessage::BindUnknown(_) => Ok(ShardTarget::Any.into()),
        StatementMessage::Call(_) => of_call(s),
        StatementMessage::Parse(_) | StatementMessage::Execute | StatementMessage::Garbled => return None,
    };
    let target = match unit {
        StatementMessage::Query(statement) | StatementMessage::Bind { statement, .. } => {
            target.map(|aim| in_block(s, statement, aim))
        }
        _ => target,
    };
    let later = set(s, w, target);
    if ties && !was_tied && matches!(later, Some(MessagePlan::Refused(_))) {
        // After a rollback to a savepoint the transaction goes on.
        s.sharding.untie();
    }
    later
}

/// True if a statement ties its transaction to its server connection.
fn ties(s: &mut Session, w: &Context, unit: StatementMessage<'_>, statement: &Statement) -> Result<bool, Unaimed> {
    if ties_batch(s, unit) {
        return Ok(true);
    }
    let is_tie = savepoints::ties(s, unit).unwrap_or_else(|| participants::is_tie(statement));
    Ok(is_tie && !is_movable(s, w, unit)?)
}

/// True if a definition leaves its transaction free to go on to other shards: all of them carry it out, or it is about tables of shard 0.
#[cold]
fn is_movable(s: &mut Session, w: &Context, unit: StatementMessage<'_>) -> Result<bool, Unaimed> {
    let (place, statement) = match unit {
        StatementMessage::Query(statement) => (TextPlace::Message, statement),
        StatementMessage::Bind { prepared, statement } => (TextPlace::Parse(prepared), statement),
        _ => return Ok(false),
    };
    if !definitions::may_be_movable(s, statement) || place.text(s).is_none() {
        return Ok(false);
    }
    match text_plan(s, w, statement, place) {
        Ok(plan) => Ok(match &*plan {
            TextPlan::EveryCopy(_) => true,
            TextPlan::Cluster => definitions::is_about_others(s, statement, place.text(s).unwrap_or_default()),
            _ => false,
        }),
        Err(Unaimed::Refused(_)) => Ok(false),
        Err(later) => Err(later),
    }
}

/// A BEGIN waits while the server is asked for what the statement before it left there. Otherwise the transaction would be that server's, whatever its
/// first statement is about.
#[inline]
fn before_begin(s: &mut Session, w: &Context, statement: &Statement) -> Option<MessageFlow> {
    let begins = matches!(statement.transaction, TransactionVerb::Begin(_)) && s.transaction() == IDLE && s.is_unsure();
    if begins { leave_before_begin(s, w) } else { None }
}

#[cold]
fn leave_before_begin(s: &mut Session, w: &Context) -> Option<MessageFlow> {
    if s.sharding.bound() != BoundStatements::Nothing || s.pin().is_some() {
        return None;
    }
    checkout::leave_reader(s, w);
    match s.has_server() {
        false => Some(checkout::again(s)),
        true => (!s.replies().is_empty()).then_some(MessageFlow::Hold),
    }
}

/// A statement that controls the transaction or the session stays in the block that is open on the engine. Others that are about no table may mean
/// something else there: its database and functions are others. A transaction that a COMMIT begins at once would not have the snapshots.
#[inline]
fn in_block(s: &Session, statement: &Statement, aim: ShardAim) -> ShardAim {
    let is_control = || match statement.transaction {
        TransactionVerb::Chain(_) => false,
        TransactionVerb::None => statement.has(StatementTrait::OfSession),
        _ => true,
    };
    if aim.target == ShardTarget::Any && engine_snapshots::is_in_block(s) && is_control() {
        ShardTarget::Engine.into()
    } else if statement.recalls == DrawRecall::Shown && aim.target == ShardTarget::Cluster && asks_draws_alone(s, statement) {
        ShardTarget::Any.into()
    } else {
        aim
    }
}

/// True for a question about sequences in a transaction, whose server has drawn last, or nobody knows (`sequences`).
#[cold]
fn asks_draws_alone(s: &Session, statement: &Statement) -> bool {
    let names_relations = statement.objects.all_names().is_some_and(|names| !names.relations().is_empty());
    s.transaction() == WITHIN
        && s.has_server()
        && s.sharding.here() != ENGINE
        && !names_relations
        && !statement.has(StatementTrait::Writes)
}

/// True if a message ties the transaction of those up to its Sync, which is no block of the client's, to its server connection: a named portal stays
/// there, and so do savepoints.
fn ties_batch(s: &Session, unit: StatementMessage<'_>) -> bool {
    if s.status() != IDLE && !s.sharding.has_batch() {
        return false;
    }
    match unit {
        StatementMessage::Bind { statement, .. } => statement.carried.is_some() || s.up.unseen().get(HEADER_BYTES) != Some(&0),
        _ => false,
    }
}

/// Returns what comes before a statement on the server connection that the session has for it, if anything.
pub fn before(s: &mut Session, w: &Context) -> Option<MessagePlan> {
    if s.sharding.is_elsewhere() {
        return Some(MessagePlan::Refused(write_steps::cannot_go_on(s)));
    }
    if s.sharding.is_write_due() {
        return Some(MessagePlan::Later(write_steps::send_part(s, w)));
    }
    if s.sharding.lacks_snapshots() { engine_snapshots::before(s, w).map(MessagePlan::Later) } else { None }
}

/// Aims at the shard of the Bind that follows a Parse, which must come to the same server.
pub fn aim_parse(s: &mut Session, w: &Context, name: &[u8], prepared: &PreparedStatement) -> Option<MessagePlan> {
    if engine_snapshots::are_wanted(s) || savepoint_steps::awaits_state(s, w) {
        return Some(MessagePlan::Later(MessageFlow::Hold));
    }
    gathered_read::leave_if_over(s, w);
    if s.participants.is_some() && savepoint_steps::takes_server(s, w, &prepared.statement) {
        return Some(MessagePlan::Later(MessageFlow::Hold));
    }
    if s.sharding.has_write()
        && let Some(again) = set_again(s, w)
    {
        return again;
    }
    if let Some(flow) = before_begin(s, w, &prepared.statement) {
        return Some(MessagePlan::Later(flow));
    }
    let target = match engine_snapshots::has_failed_block(s) {
        true => Ok(ShardTarget::Engine.into()),
        false => of_parse(s, w, name, prepared).map(|aim| in_block(s, &prepared.statement, aim)),
    };
    set(s, w, target)
}

/// Aims a message of a statement that several servers carry out, and that some of them have. `None`: it is none.
#[cold]
fn set_again(s: &mut Session, w: &Context) -> Option<Option<MessagePlan>> {
    let aim = write_steps::aim_again(s)?;
    Some(set(s, w, aim.map_err(Unaimed::from)))
}

fn set(s: &mut Session, w: &Context, aim: Result<ShardAim, Unaimed>) -> Option<MessagePlan> {
    match aim {
        Ok(aim) => match lack_beyond(s, w, aim.target) {
            Some(lack) => Some(look_wait::begin(s, w, lack)),
            None => {
                s.sharding.set(aim);
                None
            }
        },
        Err(Unaimed::More) => Some(MessagePlan::Later(MessageFlow::More)),
        Err(Unaimed::Hold) => Some(MessagePlan::Later(MessageFlow::Hold)),
        Err(Unaimed::Rewritten) => Some(MessagePlan::Later(MessageFlow::Next)),
        Err(Unaimed::Refused(report)) => Some(refused(s, *report)),
        Err(Unaimed::ManyShards(refusal)) => Some(refused(s, write_steps::cannot_spread(&refusal.to_string()))),
        Err(Unaimed::EngineLacks(lack)) => leave_engine(s, w, lack),
        Err(Unaimed::Gathers(parse)) => {
            let aim = gather(s, w, &parse);
            set(s, w, aim)
        }
        Err(Unaimed::AwaitsLook(lack)) => Some(look_wait::begin(s, w, lack)),
    }
}

#[cold]
fn refused(s: &mut Session, report: ErrorReport) -> MessagePlan {
    s.sharding.look_wait = None;
    MessagePlan::Refused(report)
}

/// Why a statement for another shard than that of its transaction, or of its batch, waits.
#[inline]
fn lack_beyond(s: &Session, w: &Context, target: ShardTarget) -> Option<EngineLack> {
    let is_beyond = s.has_server()
        && !matches!(target, ShardTarget::Any | ShardTarget::Engine)
        && target.number() != s.sharding.here()
        && (s.transaction() == WITHIN || s.sharding.has_executed());
    if is_beyond { lack_of_span(s, w) } else { None }
}

fn refuse_by_position(s: &Session, w: &Context, plan: &TextPlan) -> Result<(), Unaimed> {
    if !plan.is_by_position() {
        return Ok(());
    }
    if definitions::has_changed(s, ChangedPart::Columns) {
        return Err(definitions::columns_changed().into());
    }
    lack_of_columns(s, w).map_or(Ok(()), |lack| Err(Unaimed::AwaitsLook(lack)))
}

/// Why a row whose key stands by the order of the columns has no known shard for now: these are changing.
#[cold]
fn lack_of_columns(s: &Session, w: &Context) -> Option<EngineLack> {
    match s.account.known.sharding.engine_on(w.view().primary_id()) {
        EngineStanding::Waits(lack @ (EngineLack::ColumnsChange | EngineLack::Follows)) => Some(lack),
        EngineStanding::Waits(_) | EngineStanding::Ready | EngineStanding::Unready => None,
    }
}

/// Why a text is perhaps refused for now only: a relation of its names was just made or dropped.
#[cold]
fn lack_of_tables(s: &Session, w: &Context, refusal: &TextRefusal) -> Option<EngineLack> {
    match refusal {
        TextRefusal::UnknownName(_) if engine_standing::awaits_catalog(s) => return Some(EngineLack::CatalogUnread),
        TextRefusal::UnknownName(_) | TextRefusal::Plan(ShardRefusal::Definition, _) => {}
        _ => return None,
    }
    let is_own = definitions::has_changed(s, ChangedPart::Columns);
    if is_own { None } else { lack_of_columns(s, w) }
}

/// Why nobody knows for now if the session's transaction may go on to other shards.
#[cold]
fn lack_of_span(s: &Session, w: &Context) -> Option<EngineLack> {
    let may_span = participants::spans_shards(&w.peek_config(), &s.account.known) && s.pin().is_none();
    (may_span && lazy_begin::awaits_defaults(s)).then_some(EngineLack::DefaultsUnread)
}

/// Lets go of a connection to the engine, for which the statement then waits without one. One that stays cannot wait.
#[cold]
fn leave_engine(s: &mut Session, w: &Context, lack: EngineLack) -> Option<MessagePlan> {
    checkout::leave_reader(s, w);
    if !s.has_server() {
        s.sharding.set(of_engine(s));
        None
    } else if s.replies().is_settled() {
        Some(MessagePlan::Refused(engine_standing::not_ready(s, lack)))
    } else {
        Some(MessagePlan::Later(MessageFlow::Hold))
    }
}

/// Aims at the engine as a part of the transaction, with what the program needs to copy the rows that the statement may read.
#[cold]
fn gather(s: &mut Session, w: &Context, parse: &[u8]) -> Result<ShardAim, Unaimed> {
    if s.sharding.has_batch() || !participants::may_span(s, w) {
        return Err(sharding::cannot_read_within().into());
    }
    let first = read_header(s.up.unseen()).ok().flatten().map(|header| header.tag);
    let values = match first {
        Some(front::QUERY) => reference_steps::NO_VALUES.to_vec(),
        _ => {
            let name = match first {
                Some(front::PARSE) => s.up.unseen().get(HEADER_BYTES..).and_then(split_cstr).map_or(&b""[..], |(name, _)| name),
                _ => b"",
            };
            let name = key(name).to_vec();
            match bound_ahead(s, &name, RowsAsked::MustBeAll)? {
                Some((values, _)) => values,
                None => return Ok(DESCRIBED_ANYWHERE),
            }
        }
    };
    s.sharding.gathered = Some(Box::new(GatheredStatement::new(parse, &values)));
    Ok(ShardTarget::Engine.into())
}

/// A block of one snapshot begins in the engine. Any other read there is outside of the session's transaction.
fn of_engine(s: &Session) -> ShardAim {
    let part = if lazy_begin::is_of_one_snapshot(s) { TransactionPart::Within } else { TransactionPart::Outside };
    ShardAim { target: ShardTarget::Engine, part }
}

/// Where a statement's text stands.
#[derive(Clone, Copy)]
enum TextPlace<'p> {
    /// In the message that is looked at.
    Message,
    Parse(&'p PreparedStatement),
}

impl TextPlace<'_> {
    /// `None`: a text that is too long to be analysed is not here as a whole.
    #[inline]
    fn text<'t>(&'t self, s: &'t Session) -> Option<&'t [u8]> {
        match self {
            // A Query that an earlier zero byte ends is refused before.
            TextPlace::Message => s.up.whole_if_here(read_header(s.up.unseen()).ok()??)?.strip_suffix(b"\0"),
            TextPlace::Parse(prepared) => Some(prepared.text()),
        }
    }
}

fn of_query(s: &mut Session, w: &Context, statement: &Statement) -> Result<ShardAim, Unaimed> {
    let place = TextPlace::Message;
    if rolls_back(s, statement) {
        return Ok(ShardTarget::Any.into());
    }
    if place.text(s).is_none() {
        return refusal_of_long(s).map_or(Ok(ShardTarget::Cluster.into()), |fault| Err(fault.into()));
    }
    let plan = text_plan(s, w, statement, place)?;
    refuse_by_position(s, w, &plan)?;
    match &*plan {
        TextPlan::OneShard { plan, literals, engine } => match shard(s, w, (plan, literals), place, None) {
            Err(refusal @ ShardRefusal::KeyOfManyShards) if statement.verb == StatementVerb::Insert => {
                insert_on_all(s, w, statement, refusal)
            }
            found => one_shard(s, w, statement, (found, engine), (place, None)),
        },
        TextPlan::Engine(fit) => to_engine(s, w, statement, *fit, (place, None)),
        TextPlan::AllShards(all) => to_all(s, w, (statement, all), (place, None), WriteEnd::OfClient),
        TextPlan::EveryCopy(every) => to_every_copy(s, w, (statement, every), (place, None), WriteEnd::OfClient),
        TextPlan::CopyRows(plan) => copy_to_all(s, w, (statement, plan)),
        TextPlan::CopyTable(engine) => copy_table(s, w, engine),
        other => of_plan(s, place, other),
    }
}

fn of_bind(s: &mut Session, w: &Context, prepared: &PreparedStatement, statement: &Statement) -> Result<ShardAim, Unaimed> {
    let place = TextPlace::Parse(prepared);
    if rolls_back(s, statement) {
        return Ok(ShardTarget::Any.into());
    }
    let plan = text_plan(s, w, statement, place)?;
    if let TextPlan::AllShards(all) = &*plan {
        return all_ahead(s, w, (statement, all), (place, key(b"")));
    }
    if let TextPlan::EveryCopy(every) = &*plan {
        return copies_ahead(s, w, (statement, every), (place, key(b"")));
    }
    if !matches!(*plan, TextPlan::OneShard { .. } | TextPlan::Engine(_)) {
        return of_plan(s, place, &plan);
    }
    let Ok(Some(header)) = read_header(s.up.unseen()) else { return Err(Unaimed::More) };
    if header.frame_bytes() > LOOKED_AT_BYTES_MAX {
        return Err(too_long().into());
    }
    if !s.up.has_whole(header.frame_bytes()) {
        return Err(Unaimed::More);
    }
    let body = s.up.whole_if_here(header).unwrap_or_default();
    match by_values(s, w, (&plan, statement), (prepared, values_of(body).unwrap_or_default())) {
        Err(Unaimed::ManyShards(refusal)) => insert_ahead(s, w, (statement, refusal), (prepared, key(b""))),
        aimed => aimed,
    }
}

/// True for PREPARE TRANSACTION in a failed transaction, which ends that wherever it is and prepares nothing.
fn rolls_back(s: &Session, statement: &Statement) -> bool {
    statement.transaction == TransactionVerb::End(TransactionEnd::Prepare)
        && s.transaction() == FAILED
        && s.participants.is_none()
}

/// The part of a Bind behind its names.
#[inline]
fn values_of(bind: &[u8]) -> Option<&[u8]> {
    // Names are short: a search by words would cost more.
    let behind_name = |bytes: &'_ [u8]| bytes.iter().position(|byte| *byte == 0).map(|end| end + 1);
    let rest = &bind[behind_name(bind)?..];
    Some(&rest[behind_name(rest)?..])
}

fn by_values(
    s: &Session,
    w: &Context,
    (plan, statement): (&TextPlan, &Statement),
    (prepared, values): (&PreparedStatement, &[u8]),
) -> Result<ShardAim, Unaimed> {
    let place = TextPlace::Parse(prepared);
    refuse_by_position(s, w, plan)?;
    match plan {
        TextPlan::OneShard { plan, literals, engine } => {
            let found = shard(s, w, (plan, literals), place, BoundValues::read(values, prepared.types()).as_ref());
            if let Err(refusal @ ShardRefusal::KeyOfManyShards) = found
                && statement.verb == StatementVerb::Insert
            {
                return Err(Unaimed::ManyShards(refusal));
            }
            one_shard(s, w, statement, (found, engine), (place, Some(values)))
        }
        TextPlan::Engine(fit) => to_engine(s, w, statement, *fit, (place, Some(values))),
        other => of_plan(s, place, other),
    }
}

fn of_parse(s: &mut Session, w: &Context, name: &[u8], prepared: &PreparedStatement) -> Result<ShardAim, Unaimed> {
    let place = TextPlace::Parse(prepared);
    if rolls_back(s, &prepared.statement) {
        return Ok(ShardTarget::Any.into());
    }
    let plan = text_plan(s, w, &prepared.statement, place)?;
    if let TextPlan::AllShards(all) = &*plan {
        return all_ahead(s, w, (&prepared.statement, all), (place, key(name)));
    }
    if let TextPlan::EveryCopy(every) = &*plan {
        return copies_ahead(s, w, (&prepared.statement, every), (place, key(name)));
    }
    if !matches!(*plan, TextPlan::OneShard { .. } | TextPlan::Engine(_)) {
        return of_plan(s, place, &plan);
    }
    match bind_behind(s.up.unseen(), key(name)) {
        BindAhead::Here(values) => match by_values(s, w, (&plan, &prepared.statement), (prepared, values)) {
            Err(Unaimed::ManyShards(refusal)) => insert_ahead(s, w, (&prepared.statement, refusal), (prepared, key(name))),
            aimed => aimed,
        },
        // Its description is the same everywhere, and a transaction that has not begun may be of another shard.
        BindAhead::None => Ok(ShardAim { target: ShardTarget::Any, part: TransactionPart::Outside }),
        BindAhead::More(bytes) if bytes <= LOOKED_AT_BYTES_MAX => {
            s.up.has_whole(bytes);
            Err(Unaimed::More)
        }
        BindAhead::More(_) => Err(too_long().into()),
    }
}

/// A function of users may read sharded tables, and nothing but its number is known.
#[cold]
fn of_call(s: &Session) -> Result<ShardAim, Unaimed> {
    let number = s.up.unseen().get(HEADER_BYTES..).and_then(|body| body.first_chunk::<4>());
    let is_own = number.is_some_and(|number| u32::from_be_bytes(*number) < FIRST_USER_OID);
    if is_own || !s.account.known.sharding.may_have_tables() {
        return Ok(ShardTarget::Cluster.into());
    }
    let text = "a function called by its number may read sharded tables";
    Err(ErrorReport::error(sqlstate::FEATURE_NOT_SUPPORTED, text).into())
}

/// The error for a text that is too long to be analysed.
#[cold]
pub fn refusal_of_long(s: &Session) -> Option<ErrorReport> {
    s.account.known.sharding.may_have_tables().then(too_long)
}

fn of_plan(s: &Session, place: TextPlace<'_>, plan: &TextPlan) -> Result<ShardAim, Unaimed> {
    match plan {
        TextPlan::AnyShard(engine) if engine_snapshots::is_in_block(s) => within_engine(s, place, engine),
        TextPlan::Anywhere | TextPlan::AnyShard(_) => Ok(ShardTarget::Any.into()),
        TextPlan::Cluster | TextPlan::OneShard { .. } | TextPlan::Engine(_) | TextPlan::AllShards(_) | TextPlan::EveryCopy(_) => {
            Ok(ShardTarget::Cluster.into())
        }
        TextPlan::CopyRows(_) => Err(write_steps::cannot_spread("send COPY as a Query message, by the simple protocol").into()),
        TextPlan::CopyTable(_) => Err(sharding::cannot_copy("send it as a Query message, by the simple protocol").into()),
        TextPlan::Refused(refusal) => Err(refusal_words::report(refusal).into()),
    }
}

/// A read of reference tables in the block that is open on the engine.
#[cold]
fn within_engine(s: &Session, place: TextPlace<'_>, engine: &Result<EngineFit, NoEngine>) -> Result<ShardAim, Unaimed> {
    match (engine, unfit_for_engine(s, place)) {
        (Err(why), _) => Err(sharding::cannot_leave_engine(&refusal_words::of_engine(why)).into()),
        (Ok(_), Some(report)) => Err(report.into()),
        (Ok(_), None) => Ok(ShardTarget::Engine.into()),
    }
}

/// The way of a statement whose keys its values give. The engine answers one whose values belong to several shards, if it may.
fn one_shard(
    s: &Session,
    w: &Context,
    statement: &Statement,
    (found, engine): (Result<ShardTarget, ShardRefusal>, &Result<EngineFit, NoEngine>),
    texts: (TextPlace<'_>, Option<&[u8]>),
) -> Result<ShardAim, Unaimed> {
    let is_forced = PlanWish::of(&s.state.settings) == PlanWish::Engine || engine_snapshots::is_in_block(s);
    match (found, engine) {
        (Ok(target), Ok(fit)) if !is_forced => Ok(ShardAim { target, part: part_of(s, statement, *fit, texts) }),
        (Ok(target), Err(_)) if !is_forced => Ok(target.into()),
        (_, Ok(fit)) => to_engine(s, w, statement, *fit, texts),
        (Ok(_), Err(why)) if engine_snapshots::is_in_block(s) => {
            Err(sharding::cannot_leave_engine(&refusal_words::of_engine(why)).into())
        }
        (Ok(_), Err(why)) => Err(sharding::against_wish(&refusal_words::of_engine(why)).into()),
        (Err(refusal), Err(why)) => Err(refusal_words::of_plan(refusal, why).into()),
    }
}

/// The error of a statement whose session or types do not fit the engine.
#[cold]
fn unfit_for_engine(s: &Session, place: TextPlace<'_>) -> Option<ErrorReport> {
    let (settings, base) = (&s.state.settings, &s.state.defaults.base);
    let reported = ["DateStyle", "IntervalStyle"].into_iter().filter_map(|name| Some((name, base.reported(name)?)));
    let is_default = |(name, _): &(&str, &str)| settings.get(&name.to_ascii_lowercase()).is_none();
    let all = settings.pairs().chain(base.pairs().chain(reported).filter(is_default));
    if let Some(wanted) = engine_settings::unfit(all) {
        return Some(sharding::cannot_read(wanted));
    }
    let has_user_types = matches!(place, TextPlace::Parse(prepared) if !prepared.user_types.is_empty());
    has_user_types.then(|| sharding::cannot_read("types of parameters must be PostgreSQL's own"))
}

/// A read proven by the engine's rules runs outside of a transaction that has not begun, as on a standby: the next one may be of another shard.
fn part_of(s: &Session, statement: &Statement, fit: EngineFit, texts: (TextPlace<'_>, Option<&[u8]>)) -> TransactionPart {
    let is_deferred = matches!(s.lazy_begin, LazyBegin::Deferred(_) | LazyBegin::Reading(_)) && s.participants.is_none();
    if is_deferred && lazy_begin::tie_of_read(s, asks_time(s, statement, fit, texts)).is_none() {
        TransactionPart::Outside
    } else if statement.has(StatementTrait::AsksTime) {
        TransactionPart::Within
    } else {
        TransactionPart::Reads
    }
}

/// True in doubt.
fn asks_time(s: &Session, statement: &Statement, fit: EngineFit, (place, values): (TextPlace<'_>, Option<&[u8]>)) -> bool {
    statement.has(StatementTrait::AsksTime) || fit.needs_transaction_time(place.text(s).unwrap_or_default(), values)
}

/// A statement of the extended protocol that each shard carries out: it must be all up to the Sync. `name`: of its Parse, if that is looked at.
#[cold]
fn all_ahead(
    s: &mut Session,
    w: &Context,
    (statement, all): (&Statement, &AllShards),
    (place, name): (TextPlace<'_>, &[u8]),
) -> Result<ShardAim, Unaimed> {
    let rows_asked = if all.returns { RowsAsked::MustBeAll } else { RowsAsked::Any };
    match bound_ahead(s, name, rows_asked)? {
        Some((values, end)) => to_all(s, w, (statement, all), (place, Some(&values)), end),
        None => Ok(DESCRIBED_ANYWHERE),
    }
}

/// Begins a write to a reference table, or a change of spread tables, in the same way.
#[cold]
fn copies_ahead(
    s: &mut Session,
    w: &Context,
    (statement, every): (&Statement, &EveryCopy),
    (place, name): (TextPlace<'_>, &[u8]),
) -> Result<ShardAim, Unaimed> {
    let rows_asked = if every.work == CopyWork::WriteWithRows { RowsAsked::MustBeAll } else { RowsAsked::Any };
    match bound_ahead(s, name, rows_asked)? {
        Some((values, end)) => to_every_copy(s, w, (statement, every), (place, Some(&values)), end),
        None => Ok(DESCRIBED_ANYWHERE),
    }
}

/// The description of a statement is the same everywhere, and a transaction that has not begun may be of another shard.
const DESCRIBED_ANYWHERE: ShardAim = ShardAim { target: ShardTarget::Any, part: TransactionPart::Outside };

/// How many rows an Execute may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowsAsked {
    /// There are none to return.
    Any,
    MustBeAll,
}

/// The values of the next execution: a Bind behind its names, and how it ends. `None`: it is not the statement's.
#[cold]
fn bound_ahead(s: &mut Session, name: &[u8], rows: RowsAsked) -> Result<Option<(Vec<u8>, WriteEnd)>, Unaimed> {
    match execution_ahead(s.up.unseen(), name) {
        ExecutionAhead::Here { asked, .. } if asked > 0 && rows == RowsAsked::MustBeAll => Err(must_ask_all().into()),
        ExecutionAhead::Here { values, end, .. } => Ok(Some((values.to_vec(), end))),
        ExecutionAhead::None => Ok(None),
        ExecutionAhead::More(bytes) if bytes <= LOOKED_AT_BYTES_MAX => {
            s.up.has_whole(bytes);
            Err(Unaimed::More)
        }
        ExecutionAhead::More(_) => Err(too_long().into()),
        ExecutionAhead::Otherwise => {
            let why = "it must be bound to the unnamed portal, with its Execute behind the Bind and nothing but Describe and Close between";
            Err(write_steps::cannot_spread(why).into())
        }
    }
}

#[cold]
fn must_ask_all() -> ErrorReport {
    write_steps::cannot_spread("an Execute must ask for all rows of its RETURNING at once")
}

/// Begins an INSERT of a Query message whose rows belong to several shards, each of which gets its own ones.
#[cold]
fn insert_on_all(s: &mut Session, w: &Context, statement: &Statement, refusal: ShardRefusal) -> Result<ShardAim, Unaimed> {
    let place = TextPlace::Message;
    let all = parts_of_insert(s, place, None, refusal).map_err(|why| write_steps::cannot_spread(&why))?;
    let messages = all.parts.iter().map(|part| query_message(part.text.as_bytes()).into()).collect();
    insert_parts_on_all(s, w, (statement, &all, WriteEnd::OfClient), messages, place)
}

/// Begins an INSERT by parameters in the same way. `name`: of its Parse, if that is looked at.
#[cold]
fn insert_ahead(
    s: &mut Session,
    w: &Context,
    (statement, refusal): (&Statement, ShardRefusal),
    (prepared, name): (&PreparedStatement, &[u8]),
) -> Result<ShardAim, Unaimed> {
    let Some((execution, end)) = bound_ahead(s, name, RowsAsked::Any)? else { return Ok(DESCRIBED_ANYWHERE) };
    let place = TextPlace::Parse(prepared);
    let Some(values) = BoundValues::read(&execution, prepared.types()) else {
        return Err(write_steps::cannot_spread(&refusal.to_string()).into());
    };
    let all = parts_of_insert(s, place, Some(&values), refusal).map_err(|why| write_steps::cannot_spread(&why))?;
    if all.returns {
        bound_ahead(s, name, RowsAsked::MustBeAll)?;
    }
    if !all.are_short(execution.len(), usize::from(values.count())) {
        return Err(too_long().into());
    }
    let last = all.parts.len() - 1;
    let message = |(at, part): (usize, &InsertPart)| {
        let mut out = Vec::new();
        part.write_bound(&mut out, &values);
        if at < last {
            write_execution(&mut out, all.returns);
        }
        out.into()
    };
    let messages = all.parts.iter().enumerate().map(message).collect();
    insert_parts_on_all(s, w, (statement, &all, end), messages, place)
}

fn insert_parts_on_all(
    s: &mut Session,
    w: &Context,
    (statement, all, end): (&Statement, &InsertParts, WriteEnd),
    messages: Box<[Box<[u8]>]>,
    place: TextPlace<'_>,
) -> Result<ShardAim, Unaimed> {
    let shards: Vec<u16> = all.parts.iter().map(|part| part.shard).collect();
    let returned = || ReturnedRows::new(RowOrder::OfRows(all.part_of_row.clone()), shards.len());
    let parts = |_: &Session| SpreadParts {
        messages: PartMessages::Own(messages),
        sent: all.parts.iter().map(|part| part.rows).collect(),
        returned: all.returns.then(returned),
    };
    begin_on_all(s, w, (statement, &shards, all.asks_time), (place, end), parts)
}

fn parts_of_insert(
    s: &Session,
    place: TextPlace<'_>,
    values: Option<&BoundValues<'_>>,
    refusal: ShardRefusal,
) -> Result<InsertParts, String> {
    let known = &s.account.known;
    let text = std::str::from_utf8(place.text(s).unwrap_or_default());
    match (text, known.sharding.tables(), known.catalog(), s.recoding()) {
        (Ok(text), Some(tables), Some(catalog), EncodingEffect::None) => {
            let (path, certainty) = (classify::path_in(s, &catalog), NameCertainty::Known);
            let facts = PlanFacts { tables: &tables, catalog: &catalog, path: &path, certainty, prepared: &s.state.by_sql };
            insert_parts(text, &facts, values)
        }
        _ => Err(refusal.to_string()),
    }
}

/// Begins a statement that each shard carries out by itself.
#[cold]
fn to_all(
    s: &mut Session,
    w: &Context,
    (statement, all): (&Statement, &AllShards),
    (place, values): (TextPlace<'_>, Option<&[u8]>),
    end: WriteEnd,
) -> Result<ShardAim, Unaimed> {
    if all.reads_rows && all.shards.len() > 1 && w.peek_config().sharding.reads == CrossShardReads::Snapshot {
        return Err(spread_refusal::reads_one_moment().into());
    }
    let parts = |s: &Session| SpreadParts {
        messages: PartMessages::Same(part_message(s, place, values, all.returns).into()),
        sent: Box::default(),
        returned: all.returns.then(|| ReturnedRows::new(RowOrder::ByShard, all.shards.len())),
    };
    let asks_time = says_time(s, place, values) || statement.has(StatementTrait::AsksTime);
    begin_on_all(s, w, (statement, &all.shards, asks_time), (place, end), parts)
}

/// Begins a COPY of a Query message. Rows of one shard go there as they are.
#[cold]
fn copy_to_all(s: &mut Session, w: &Context, (statement, plan): (&Statement, &CopyPlan)) -> Result<ShardAim, Unaimed> {
    if let [shard] = *plan.shards {
        return Ok(ShardTarget::of(shard).into());
    }
    if s.recoding() != EncodingEffect::None {
        return Err(write_steps::cannot_spread("the client's encoding is none of the server's").into());
    }
    let query = query_message(TextPlace::Message.text(s).unwrap_or_default());
    let parts = |_: &Session| SpreadParts {
        messages: PartMessages::Copy(Box::new(CopyParts::new(plan.clone(), query.into()))),
        sent: Box::default(),
        returned: None,
    };
    // The strings of the text are options.
    let asks_time = false;
    begin_on_all(s, w, (statement, &plan.shards, asks_time), (TextPlace::Message, WriteEnd::OfClient), parts)
}

/// Writes a COPY of a sharded table anew as that of a query, which then is looked at.
#[cold]
fn copy_table(s: &mut Session, w: &Context, engine: &Result<EngineFit, NoEngine>) -> Result<ShardAim, Unaimed> {
    if s.transaction() == FAILED || matches!(s.lazy_begin, LazyBegin::Failed(_)) {
        // Any server gives the error of a failed transaction.
        return Ok(ShardTarget::Any.into());
    }
    if let Err(why) = engine {
        return Err(refusal_words::of_plan(ShardRefusal::Copy, why).into());
    }
    if s.up.has_pending() {
        return Err(Unaimed::Hold);
    }
    let written = with_facts(s, |facts| {
        let text = std::str::from_utf8(TextPlace::Message.text(s).unwrap_or_default()).unwrap_or_default();
        copy_of_query(text, |copy| facts.table_columns(&copy.relation))
    });
    let written = match written {
        Some(Ok(written)) => written,
        Some(Err(obstacle)) => return Err(obstacle.report().into()),
        None => return Err(unknown(s).into()),
    };
    if !written.is_ascii() && s.recoding() != EncodingEffect::None {
        return Err(sharding::cannot_copy("the client's encoding is none of the server's").into());
    }
    let Ok(Some(header)) = read_header(s.up.unseen()) else { return Err(Unaimed::More) };
    s.up.eat(header);
    s.up.unread(&query_message(written.as_bytes()), &w.buffers);
    Err(Unaimed::Rewritten)
}

/// The meaning of names, if it is known.
fn with_facts<T>(s: &Session, look: impl FnOnce(&PlanFacts<'_>) -> T) -> Option<T> {
    let known = &s.account.known;
    let (tables, catalog) = (known.sharding.tables()?, known.catalog()?);
    let path = classify::path_in(s, &catalog);
    let certainty = NameCertainty::Known;
    Some(look(&PlanFacts { tables: &tables, catalog: &catalog, path: &path, certainty, prepared: &s.state.by_sql }))
}

/// Begins a write to a reference table, or a change of spread tables.
#[cold]
fn to_every_copy(
    s: &mut Session,
    w: &Context,
    (statement, every): (&Statement, &EveryCopy),
    (place, values): (TextPlace<'_>, Option<&[u8]>),
    end: WriteEnd,
) -> Result<ShardAim, Unaimed> {
    let parts = |s: &Session| {
        let parse = match place {
            TextPlace::Message => reference_steps::without_parameters(place.text(s).unwrap_or_default()),
            TextPlace::Parse(prepared) => prepared.tail.to_vec(),
        };
        let message = reference_steps::part_messages(&parse, values.unwrap_or(&reference_steps::NO_VALUES));
        // Rows of RETURNING come from the last shard alone.
        SpreadParts { messages: PartMessages::Same(message.into()), sent: Box::default(), returned: None }
    };
    // A column of a type of times counts as a question for the time, too.
    let is_asking = statement.has(StatementTrait::AsksTime) && !matches!(every.work, CopyWork::Definition(_));
    let asks_time = is_asking || says_time(s, place, values);
    let aim = begin_on_all(s, w, (statement, &every.shards, asks_time), (place, end), parts)?;
    if let Some(write) = &mut s.sharding.write {
        write.answers = PartAnswers::Equal(None);
        let part = match every.work {
            CopyWork::Definition(DefinitionEffect::ChangesEngine) => Some(ChangedPart::Columns),
            CopyWork::Definition(DefinitionEffect::ChangesRights) => Some(ChangedPart::Rights),
            CopyWork::Definition(DefinitionEffect::ChangesIndexes) => Some(ChangedPart::Indexes),
            CopyWork::Definition(DefinitionEffect::OnShardsOnly) | CopyWork::Write | CopyWork::WriteWithRows => None,
        };
        let owner = write.owner;
        write.changes = part.map(|part| SpreadChange::begin(s.account.known.clone(), part, owner));
    }
    Ok(aim)
}

/// True if a text of the statement or a value may mean a moment, such as `today`.
fn says_time(s: &Session, place: TextPlace<'_>, values: Option<&[u8]>) -> bool {
    says_a_moment(place.text(s).unwrap_or_default()) || values.is_some_and(bind_holds_a_moment)
}

#[cold]
fn begin_on_all(
    s: &mut Session,
    w: &Context,
    (statement, shards, asks_time): (&Statement, &[u16], bool),
    (place, end): (TextPlace<'_>, WriteEnd),
    parts: impl FnOnce(&Session) -> SpreadParts,
) -> Result<ShardAim, Unaimed> {
    if s.transaction() == FAILED || matches!(s.lazy_begin, LazyBegin::Failed(_)) {
        // Any server gives the error of a failed transaction.
        return Ok(ShardTarget::Any.into());
    }
    if PlanWish::of(&s.state.settings) != PlanWish::Auto {
        return Err(sharding::against_wish("it writes rows of several shards").into());
    }
    if matches!(place, TextPlace::Parse(prepared) if !prepared.user_types.is_empty()) {
        return Err(write_steps::cannot_spread("types of parameters must be PostgreSQL's own").into());
    }
    if !(s.status() == IDLE && write_steps::is_definition(statement))
        && let Some(lack) = lack_of_span(s, w)
    {
        return Err(Unaimed::AwaitsLook(lack));
    }
    if !write_steps::begin(s, w, (statement, shards, asks_time), end, parts)? {
        return Err(Unaimed::Hold);
    }
    write_steps::aim_again(s).unwrap_or_else(|| Ok(ShardTarget::Cluster.into())).map_err(Unaimed::from)
}

fn query_message(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    write::message(&mut out, front::QUERY, |out| write::cstr(out, text));
    out
}

/// The client's statement for a server to which its own message does not go.
fn part_message(s: &Session, place: TextPlace<'_>, values: Option<&[u8]>, returns: bool) -> Vec<u8> {
    match place {
        TextPlace::Message => query_message(place.text(s).unwrap_or_default()),
        TextPlace::Parse(prepared) => {
            let mut out = Vec::new();
            write::parse(&mut out, b"", &prepared.tail);
            let values = values.unwrap_or_default();
            write::bind_head(&mut out, b"", b"", values.len());
            out.extend_from_slice(values);
            write_execution(&mut out, returns);
            out
        }
    }
}

/// Runs the unnamed portal, whose rows are described first if it `returns` any.
fn write_execution(out: &mut Vec<u8>, returns: bool) {
    if returns {
        write::named(out, front::DESCRIBE, b'P', b"");
    }
    write::message(out, front::EXECUTE, |out| out.extend([0; 5]));
    write::bare(out, front::SYNC);
}

/// The engine has no transaction with the session's statements elsewhere, and reads each shard in one snapshot.
#[cold]
fn to_engine(
    s: &Session,
    w: &Context,
    statement: &Statement,
    fit: EngineFit,
    texts: (TextPlace<'_>, Option<&[u8]>),
) -> Result<ShardAim, Unaimed> {
    if s.transaction() == FAILED || matches!(s.lazy_begin, LazyBegin::Failed(_)) {
        // Any server gives the error of a failed transaction.
        return Ok(ShardTarget::Any.into());
    }
    if PlanWish::of(&s.state.settings) == PlanWish::OneShard {
        return Err(sharding::against_wish("it reads rows of several shards").into());
    }
    if let Some(report) = unfit_for_engine(s, texts.0) {
        return Err(report.into());
    }
    if gathered_read::is_open(s) && s.sharding.has_executed() {
        return Err(sharding::cannot_read_again().into());
    }
    if engine_snapshots::is_in_block(s) && gathered_read::is_ready(s) {
        return Ok(ShardTarget::Engine.into());
    }
    if gathered_read::is_needed(s) {
        return Err(to_gather(s, statement, fit, texts));
    }
    // The snapshots that the engine has of the shards are those of the whole block.
    let begins = lazy_begin::is_of_one_snapshot(s);
    if !begins && s.has_server() && s.sharding.here() == ENGINE && s.sharding.has_executed() {
        return Err(sharding::cannot_read_again().into());
    }
    if !begins
        && let Some(rule) = lazy_begin::tie_of_read(s, asks_time(s, statement, fit, texts))
        && !lazy_begin::awaits_defaults(s)
    {
        return Err(sharding::cannot_begin(rule).into());
    }
    match engine_standing::engine_standing(s, w) {
        EngineStanding::Waits(lack) if s.has_server() && s.sharding.here() == ENGINE => Err(Unaimed::EngineLacks(lack)),
        // Without a connection the session waits for one.
        EngineStanding::Ready | EngineStanding::Waits(_) | EngineStanding::Unready => Ok(of_engine(s)),
    }
}

/// The step to a read of several shards in a transaction that has begun, or why there is none.
#[cold]
fn to_gather(s: &Session, statement: &Statement, fit: EngineFit, texts: (TextPlace<'_>, Option<&[u8]>)) -> Unaimed {
    let (place, _) = texts;
    let why = if statement.verb != StatementVerb::Select || statement.has(StatementTrait::CopiesOut) {
        "it is no SELECT"
    } else if asks_time(s, statement, fit, texts) {
        "it asks for the time of the transaction, which the engine does not know"
    } else if s.recoding() != EncodingEffect::None {
        "the client's encoding is none of the server's"
    } else if definitions::has_changed(s, ChangedPart::Columns) {
        "it has changed columns of spread tables, which the engine does not know yet"
    } else {
        let parse = match place {
            TextPlace::Message => reference_steps::without_parameters(place.text(s).unwrap_or_default()),
            TextPlace::Parse(prepared) => prepared.tail.to_vec(),
        };
        return Unaimed::Gathers(parse.into());
    };
    sharding::cannot_gather(why).into()
}

/// The shard of a statement's values. `values`: those of its parameters.
fn shard(
    s: &Session,
    w: &Context,
    (plan, literals): (&ShardPlan, &LiteralGaps),
    place: TextPlace<'_>,
    values: Option<&BoundValues<'_>>,
) -> Result<ShardTarget, ShardRefusal> {
    let reader = literals.reader(place.text(s).unwrap_or_default());
    // A server that stores letters otherwise than the client writes them hashes and compares other bytes.
    let is_plain = s.recoding() == EncodingEffect::None;
    let literal = |ordinal| reader.get(ordinal).filter(|literal| is_plain || literal.is_ascii());
    let parameter = |number| values.and_then(|values| values.get(number)).filter(|value| is_plain || !may_be_recoded(value));
    match plan {
        ShardPlan::OneShard(one) if one.any_of().is_some() => {
            Ok(ShardTarget::of(drawing_shard(s, w, one.any_of().unwrap_or_default())))
        }
        plan => plan.shard(literal, parameter).map(ShardTarget::of),
    }
}

/// The shard of rows whose keys it is to draw: that of the transaction, or any, so that all get their share.
#[cold]
fn drawing_shard(s: &Session, w: &Context, shards: &[u16]) -> u16 {
    let here = s.sharding.here();
    if s.has_server() && shards.contains(&here) {
        return here;
    }
    shards.get(w.dice() as usize % shards.len().max(1)).copied().unwrap_or(0)
}

/// Letters come as they are in both formats; bytes above 127 of a number are none, but are rare.
#[cold]
fn may_be_recoded(value: &BoundValue<'_>) -> bool {
    const NUMBERS: [u32; 11] = [16, 20, 21, 23, 26, 700, 701, 1082, 1114, 1184, 2950];
    let is_number = value.format == ValueFormat::Binary && NUMBERS.contains(&value.type_oid);
    !is_number && value.bytes.is_some_and(|bytes| !bytes.is_ascii())
}

/// The plan of a text, made once for each meaning of its names.
fn text_plan(s: &mut Session, w: &Context, statement: &Statement, place: TextPlace<'_>) -> Result<Rc<TextPlan>, Unaimed> {
    match unread_readers::refusal(s, statement) {
        Some(UnreadCode::OfTransaction(report)) => return Err(report.into()),
        Some(UnreadCode::Awaited) => return Err(Unaimed::AwaitsLook(EngineLack::ReadersUnread)),
        None => {}
    }
    if statement.has(StatementTrait::Redefines) {
        let text = place.text(s).unwrap_or_default().to_vec();
        unread_readers::note(s, &text)?;
    }
    if s.status() != IDLE && statement.has(StatementTrait::Writes) && engine_standing::awaits_catalog(s) {
        // A write that might leave anything would keep its transaction on one shard.
        return Err(Unaimed::AwaitsLook(EngineLack::CatalogUnread));
    }
    if s.upstream().is_some_and(|upstream| !upstream.left.names_are_certain()) {
        return uncertain_plan(s, w, statement, place).map(Rc::new);
    }
    let scope = (classify::place_of(s, w), s.account.known.sharding.edition());
    if let Some(known) = statement.sharding.of(scope) {
        return Ok(known);
    }
    let made = Rc::new(make_plan(s, statement, place, NameCertainty::Known)?);
    if let TextPlan::Refused(refusal) = &*made
        && let Some(lack) = lack_of_tables(s, w, refusal)
    {
        return Err(Unaimed::AwaitsLook(lack));
    }
    // Without a catalog the scope says nothing of what names mean.
    if scope.0 != 0 && place.text(s).is_some_and(|text| may_be_kept(statement, text)) {
        statement.sharding.keep(scope, made.clone());
    }
    Ok(made)
}

/// The plan while the server may know another `search_path` or temporary tables. Where these count, a session outside of a transaction is asked
/// for them first.
#[cold]
fn uncertain_plan(s: &mut Session, w: &Context, statement: &Statement, place: TextPlace<'_>) -> Result<TextPlan, Unaimed> {
    let plan = make_plan(s, statement, place, NameCertainty::Unknown)?;
    // A Sync of Weir's would commit what ran since the client's last one.
    let may_end = s.sharding.bound() != BoundStatements::Any || s.lazy_begin.is_open();
    if matches!(plan, TextPlan::Refused(TextRefusal::UnknownName(_))) && s.transaction() == IDLE && may_end {
        checkout::leave_reader(s, w);
        if !s.replies().is_empty() {
            return Err(Unaimed::Hold);
        }
        if !s.has_server() {
            return make_plan(s, statement, place, NameCertainty::Known);
        }
    }
    Ok(plan)
}

#[cold]
fn make_plan(s: &Session, statement: &Statement, place: TextPlace<'_>, certainty: NameCertainty) -> Result<TextPlan, Unaimed> {
    let text = place.text(s).unwrap_or_default();
    let known = &s.account.known;
    let (Some(tables), Some(catalog)) = (known.sharding.tables(), known.catalog()) else {
        return if names_nothing(statement) && may_be_kept(statement, text) {
            Ok(TextPlan::Anywhere)
        } else {
            Err(unknown(s).into())
        };
    };
    let path = classify::path_in(s, &catalog);
    let facts = PlanFacts { tables: &tables, catalog: &catalog, path: &path, certainty, prepared: &s.state.by_sql };
    let plan = plan_of(statement, text, &facts);
    let hangs_on_indexes = matches!(plan, TextPlan::Cluster | TextPlan::Refused(TextRefusal::Definition(_)));
    if known.sharding.indexes.is_doubtful() && hangs_on_indexes && says_index(statement, text) {
        if definitions::has_changed(s, ChangedPart::Indexes) {
            return Err(definitions::indexes_changed().into());
        }
        return Err(Unaimed::AwaitsLook(EngineLack::IndexesChange));
    }
    Ok(plan)
}

fn names_nothing(statement: &Statement) -> bool {
    statement.objects.all_names().is_none() && statement.state.functions.is_empty() && statement.runs.is_none()
}

#[cold]
fn unknown(s: &Session) -> ErrorReport {
    let database = &s.account.known.name;
    let text = format!(
        "it is not known yet how the tables of database \"{database}\" are spread over shards; the statement was not sent"
    );
    let why = s.account.known.sharding.error().unwrap_or_else(|| "The database was not looked at yet.".to_owned());
    ErrorReport::error(sqlstate::CANNOT_CONNECT_NOW, text).detail(why).hint("Run the statement again.")
}

#[cold]
fn too_long() -> ErrorReport {
    ErrorReport::error(sqlstate::PROGRAM_LIMIT_EXCEEDED, "the message is too long for its shard to be found")
        .detail("With parallel_mode = on the text of each statement is analysed.")
        .hint("Raise statement_analysis_max, or send fewer rows at once.")
}

enum BindAhead<'a> {
    /// The Bind behind its names.
    Here(&'a [u8]),
    /// A Sync or a Flush comes first.
    None,
    /// As many bytes are needed to know.
    More(usize),
}

enum ExecutionAhead<'a> {
    /// The Bind behind its names; its Execute follows. `asked`: rows that the Execute asks for; 0 for all.
    Here { values: &'a [u8], asked: u32, end: WriteEnd },
    /// The statement is not bound before the Sync, or others come before: its Bind is looked at by itself.
    None,
    /// As many bytes are needed to know.
    More(usize),
    /// The messages do something else with it.
    Otherwise,
}

/// Looks for the execution of a statement whose Parse or Bind is the first message. `name`: of the Parse.
fn execution_ahead<'a>(here: &'a [u8], name: &[u8]) -> ExecutionAhead<'a> {
    let (mut at, mut bound, mut run) = (0, None, None);
    loop {
        let rest = &here[at..];
        let header = match read_header(rest) {
            Ok(Some(header)) => header,
            Ok(None) => return ExecutionAhead::More(at + HEADER_BYTES),
            Err(_) => return ExecutionAhead::Otherwise,
        };
        if let (Some(values), Some(asked)) = (bound, run)
            && header.tag != front::CLOSE
        {
            let end = if header.tag == front::SYNC { WriteEnd::OfClient } else { WriteEnd::OfExecute };
            return ExecutionAhead::Here { values, asked, end };
        }
        let bytes = header.frame_bytes();
        let Some(body) = rest.get(HEADER_BYTES..bytes) else { return ExecutionAhead::More(at + bytes) };
        match (header.tag, bound) {
            (front::PARSE, None) if at == 0 => {}
            (front::BIND, None) => match split_cstr(body).and_then(|(portal, rest)| Some((portal, split_cstr(rest)?))) {
                Some((portal, (statement, values))) if at == 0 || key(statement) == name => {
                    if !portal.is_empty() {
                        return ExecutionAhead::Otherwise;
                    }
                    bound = Some(values);
                }
                _ => return ExecutionAhead::None,
            },
            (front::EXECUTE, Some(_)) if body.first() == Some(&0) => {
                let asked = body.get(1..).and_then(|rows| rows.first_chunk::<4>());
                run = Some(asked.map_or(0, |rows| u32::from_be_bytes(*rows)));
            }
            (front::DESCRIBE, _) | (front::CLOSE, _) if bound.is_none() || header.tag == front::DESCRIBE || run.is_some() => {}
            (_, None) => return ExecutionAhead::None,
            (_, Some(_)) => return ExecutionAhead::Otherwise,
        }
        at += bytes;
    }
}

/// Looks for the Bind of the statement that the first message prepares.
fn bind_behind<'a>(here: &'a [u8], name: &[u8]) -> BindAhead<'a> {
    let mut at = 0;
    loop {
        let rest = &here[at..];
        let header = match read_header(rest) {
            Ok(Some(header)) => header,
            Ok(None) => return BindAhead::More(at + HEADER_BYTES),
            Err(_) => return BindAhead::None,
        };
        let bytes = header.frame_bytes();
        let Some(body) = rest.get(HEADER_BYTES..bytes) else { return BindAhead::More(at + bytes) };
        match header.tag {
            front::BIND => {
                let names = split_cstr(body).and_then(|(_, rest)| split_cstr(rest));
                if let Some((_, values)) = names.filter(|(statement, _)| key(statement) == name) {
                    return BindAhead::Here(values);
                }
            }
            front::PARSE | front::DESCRIBE | front::CLOSE | front::EXECUTE => {}
            _ => return BindAhead::None,
        }
        at += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::write::{bare, message};

    fn written(tag: u8, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        message(&mut out, tag, |out| out.extend_from_slice(body));
        out
    }

    fn sync() -> Vec<u8> {
        let mut out = Vec::new();
        bare(&mut out, front::SYNC);
        out
    }

    #[test]
    fn the_execution_of_a_statement_of_several_shards_is_looked_for() {
        let parse = || written(front::PARSE, b"s\0update t set x = $1\0\0\0");
        let bind = |portal: &[u8]| written(front::BIND, &[portal, b"\0s\0values"].concat());
        let execute = |portal: &[u8]| written(front::EXECUTE, &[portal, &[0; 5]].concat());
        let describe = || written(front::DESCRIBE, b"P\0");
        let close = || written(front::CLOSE, b"P\0");
        let flush = || written(front::FLUSH, b"");
        let told = |messages: &[Vec<u8>]| match execution_ahead(&messages.concat(), b"s") {
            ExecutionAhead::Here { values, asked, end } => format!("{} {asked} {end:?}", String::from_utf8_lossy(values)),
            ExecutionAhead::None => "none".to_owned(),
            ExecutionAhead::More(_) => "more".to_owned(),
            ExecutionAhead::Otherwise => "otherwise".to_owned(),
        };
        for (messages, expected) in [
            (vec![parse(), bind(b""), describe(), execute(b""), sync()], "values 0 OfClient"),
            (vec![bind(b""), execute(b""), close(), sync()], "values 0 OfClient"),
            (vec![bind(b""), written(front::EXECUTE, &[0, 0, 0, 0, 1]), sync()], "values 1 OfClient"),
            (vec![bind(b""), execute(b""), flush(), sync()], "values 0 OfExecute"),
            (vec![bind(b""), execute(b""), execute(b""), sync()], "values 0 OfExecute"),
            (vec![bind(b""), execute(b""), bind(b"")], "values 0 OfExecute"),
            (vec![parse(), bind(b""), execute(b""), close(), parse()], "values 0 OfExecute"),
            (vec![parse(), written(front::DESCRIBE, b"Ss\0"), sync()], "none"),
            (vec![parse(), parse(), bind(b""), execute(b""), sync()], "none"),
            (vec![parse(), written(front::BIND, b"\0other\0values"), execute(b"")], "none"),
            (vec![parse(), flush(), bind(b"")], "none"),
            (vec![bind(b""), execute(b"")], "more"),
            (vec![parse(), bind(b"")], "more"),
            (vec![bind(b""), flush(), execute(b"")], "otherwise"),
            (vec![bind(b""), close(), execute(b"")], "otherwise"),
            (vec![bind(b"p"), execute(b"p"), sync()], "otherwise"),
            (vec![bind(b""), execute(b"p"), sync()], "otherwise"),
            (vec![bind(b""), sync()], "otherwise"),
        ] {
            assert_eq!(told(&messages), expected);
        }
    }

    /// `None`: no Bind; a number of bytes that are needed, or the values.
    fn look(messages: &[Vec<u8>], name: &[u8]) -> Option<Result<Vec<u8>, usize>> {
        match bind_behind(&messages.concat(), name) {
            BindAhead::Here(values) => Some(Ok(values.to_vec())),
            BindAhead::More(bytes) => Some(Err(bytes)),
            BindAhead::None => None,
        }
    }

    #[test]
    fn a_parse_finds_the_bind_of_its_statement_up_to_the_sync() {
        let parse = written(front::PARSE, b"s\0select $1\0\0\0");
        let bind = |name: &[u8]| written(front::BIND, &[b"\0", name, b"\0values"].concat());
        let describe = written(front::DESCRIBE, b"Ss\0");
        assert_eq!(look(&[parse.clone(), describe.clone(), bind(b"s"), sync()], b"s"), Some(Ok(b"values".to_vec())));
        assert_eq!(look(&[parse.clone(), bind(b"t"), bind(b"s")], b"s"), Some(Ok(b"values".to_vec())), "another one is before");
        assert_eq!(look(&[parse.clone(), describe.clone(), sync(), bind(b"s")], b"s"), None, "the next pipeline");
        let flush = written(front::FLUSH, b"");
        assert_eq!(look(&[parse.clone(), flush, bind(b"s")], b"s"), None, "the client waits for an answer");
        let here = parse.len();
        assert_eq!(look(std::slice::from_ref(&parse), b"s"), Some(Err(here + HEADER_BYTES)));
        let whole = bind(b"s");
        let cut = whole[..whole.len() - 1].to_vec();
        assert_eq!(look(&[parse, cut], b"s"), Some(Err(here + whole.len())));
    }
}
