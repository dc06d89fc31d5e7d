//! Aims the session at the shard of its next statement, before a server connection is chosen.

use crate::checkout;
use crate::context::Context;
use crate::fault::{ErrorReport, sqlstate};
use crate::flow::MessageFlow;
use crate::participants::savepoint_steps;
use crate::plan::MessagePlan;
use crate::prepared::key;
use crate::session::{FAILED, IDLE, Session, WITHIN};
use crate::session_state::client_settings::EncodingEffect;
use crate::sharding::all_shards_aim::{all_ahead, copies_ahead, copy_to_all, insert_ahead, insert_on_all, to_all, to_every_copy};
use crate::sharding::bound_values::BoundValues;
use crate::sharding::definitions;
use crate::sharding::engine_aim::{copy_table, gather, leave_engine, part_of, to_engine, within_engine};
use crate::sharding::kept_plan::{EngineFit, NoEngine, TextPlan};
use crate::sharding::known_sharding::EngineLack;
use crate::sharding::look_lacks::{lack_of_span, refuse_by_position};
use crate::sharding::look_wait;
use crate::sharding::messages_ahead::{BindAhead, bind_behind};
use crate::sharding::plan_wish::PlanWish;
use crate::sharding::refusal_words;
use crate::sharding::shard_target::{BoundStatements, ENGINE, ShardAim, ShardTarget, TransactionPart};
use crate::sharding::spread_write::WriteEnd;
use crate::sharding::statement_plan::text_plan;
use crate::sharding::unaimed::{LOOKED_AT_BYTES_MAX, TextPlace, Unaimed, too_long};
use crate::sharding::{engine_snapshots, gathered_read, savepoints, write_steps};
use crate::statements::{DrawRecall, PreparedStatement, Statement, StatementTrait};
use crate::unit::StatementMessage;
use crate::{lazy_begin, participants, sharding};
use weir_catalog::FIRST_USER_OID;
use weir_shard::{BoundValue, ShardPlan, ShardRefusal, ValueFormat};
use weir_sql::facts::{StatementVerb, TransactionEnd, TransactionVerb};
use weir_sql::literal::LiteralGaps;
use weir_wire::frame::{HEADER_BYTES, read_header};

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

/// A statement that controls the transaction, its cursors or the session stays in the block that is open on the engine. Others that are about no table may mean
/// something else there: its database and functions are others. A transaction that a COMMIT begins at once would not have the snapshots.
#[inline]
fn in_block(s: &Session, statement: &Statement, aim: ShardAim) -> ShardAim {
    let is_control = || match statement.transaction {
        TransactionVerb::Chain(_) => false,
        TransactionVerb::None => statement.has(StatementTrait::OfSession) || statement.has(StatementTrait::Fetches),
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
        Err(Unaimed::MoreBytes(bytes)) => {
            s.up.has_whole(bytes);
            Some(MessagePlan::Later(MessageFlow::More))
        }
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
        BindAhead::None => match (engine_of_parse(s, &plan), engine_snapshots::is_in_block(s)) {
            (Some(fit), is_there) if is_there || lazy_begin::is_of_one_snapshot(s) => {
                to_engine(s, w, &prepared.statement, fit, (place, None))
            }
            // Its description is the same everywhere, and a transaction that has not begun may be of another shard.
            _ => Ok(ShardAim { target: ShardTarget::Any, part: TransactionPart::Outside }),
        },
        BindAhead::More(bytes) if bytes <= LOOKED_AT_BYTES_MAX => {
            s.up.has_whole(bytes);
            Err(Unaimed::More)
        }
        BindAhead::More(_) => Err(too_long().into()),
    }
}

/// A Parse by itself goes to the engine where its statement must: the first one of a transaction of one snapshot, and all in the block that is open there.
#[cold]
fn engine_of_parse(s: &Session, plan: &TextPlan) -> Option<EngineFit> {
    match plan {
        TextPlan::Engine(fit) => Some(*fit),
        TextPlan::OneShard { engine, .. } if engine_snapshots::is_in_block(s) => engine.as_ref().ok().copied(),
        _ => None,
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
    if let ShardPlan::OneShard(one) = plan
        && let Some(shards) = one.any_of()
    {
        return Ok(ShardTarget::of(drawing_shard(s, w, shards)));
    }
    plan.shard(literal, parameter).map(ShardTarget::of)
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
