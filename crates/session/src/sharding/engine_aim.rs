//! Aims reads of several shards at the engine.

use crate::checkout;
use crate::context::Context;
use crate::fault::ErrorReport;
use crate::flow::MessageFlow;
use crate::lazy_begin::PortalsAhead;
use crate::plan::MessagePlan;
use crate::prepared::key;
use crate::session::{FAILED, IDLE, LazyBegin, Session};
use crate::session_state::client_settings::EncodingEffect;
use crate::sharding::copy_table::copy_of_query;
use crate::sharding::definitions;
use crate::sharding::gathered_statement::GatheredStatement;
use crate::sharding::kept_plan::{EngineFit, NoEngine};
use crate::sharding::known_sharding::{EngineLack, EngineStanding};
use crate::sharding::messages_ahead::{DESCRIBED_ANYWHERE, RowsAsked, bound_ahead};
use crate::sharding::plan_wish::PlanWish;
use crate::sharding::refusal_words;
use crate::sharding::shard_target::{ENGINE, ShardAim, ShardTarget, TransactionPart};
use crate::sharding::spread_write::ChangedPart;
use crate::sharding::statement_plan::with_facts;
use crate::sharding::unaimed::{LOOKED_AT_BYTES_MAX, TextPlace, Unaimed, query_message, unknown};
use crate::sharding::{engine_settings, engine_snapshots, engine_standing, gathered_read, reference_steps};
use crate::statements::{Statement, StatementTrait};
use crate::{lazy_begin, participants, sharding};
use weir_catalog::StatementNames;
use weir_shard::ShardRefusal;
use weir_sql::facts::{QualifiedName, StatementVerb};
use weir_wire::frame::{HEADER_BYTES, front, read_header, split_cstr};

/// Lets go of a connection to the engine, for which the statement then waits without one. A statement that keeps it cannot wait.
#[cold]
pub(super) fn leave_engine(s: &mut Session, w: &Context, lack: EngineLack) -> Option<MessagePlan> {
    checkout::leave_reader(s, w);
    if !s.has_server() {
        s.sharding.set(of_engine(lazy_begin::is_of_one_snapshot(s)));
        None
    } else if s.replies().is_settled() {
        Some(MessagePlan::Refused(engine_standing::not_ready(s, lack)))
    } else {
        Some(MessagePlan::Later(MessageFlow::Hold))
    }
}

/// Aims at the engine as a part of the transaction, with what the program needs to copy the rows that the statement may read.
#[cold]
pub(super) fn gather(s: &mut Session, w: &Context, parse: &[u8]) -> Result<ShardAim, Unaimed> {
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

/// `begins`: the session's block begins in the engine. Any other read there is outside of the session's transaction.
fn of_engine(begins: bool) -> ShardAim {
    let part = if begins { TransactionPart::Within } else { TransactionPart::Outside };
    ShardAim { target: ShardTarget::Engine, part }
}

/// True if the session's block begins in the engine with this read: all its statements have one snapshot, or what it reads outlives it.
#[cold]
fn begins_block(s: &Session, fit: EngineFit) -> Result<bool, Unaimed> {
    if lazy_begin::is_of_one_snapshot(s) {
        return Ok(true);
    }
    if !lazy_begin::takes_snapshots(s) {
        return Ok(false);
    }
    match lazy_begin::portals_ahead(s) {
        PortalsAhead::Unknown(bytes) if bytes <= LOOKED_AT_BYTES_MAX => Err(Unaimed::MoreBytes(bytes)),
        PortalsAhead::Unknown(_) | PortalsAhead::Some => Ok(true),
        PortalsAhead::None => Ok(fit.declares),
    }
}

/// A read in the block that is open on the engine. One under READ COMMITTED is there for a cursor or a portal.
#[cold]
fn in_engine_block(s: &Session) -> Result<ShardAim, Unaimed> {
    if gathered_read::is_open(s) || !s.sharding.has_engine_part() || lazy_begin::has_one_snapshot(s) {
        return Ok(ShardTarget::Engine.into());
    }
    let why = "it is not about the block's cursor or portal, and under READ COMMITTED it would need a snapshot of its own";
    Err(sharding::cannot_leave_engine(why).into())
}

/// A read of reference tables in the block that is open on the engine.
#[cold]
pub(super) fn within_engine(
    s: &Session,
    place: TextPlace<'_>,
    engine: &Result<EngineFit, NoEngine>,
) -> Result<ShardAim, Unaimed> {
    match (engine, unfit_for_engine(s, place)) {
        (Err(why), _) => Err(sharding::cannot_leave_engine(&refusal_words::of_engine(why)).into()),
        (Ok(_), Some(report)) => Err(report.into()),
        (Ok(_), None) => in_engine_block(s),
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
pub(super) fn part_of(
    s: &Session,
    statement: &Statement,
    fit: EngineFit,
    texts: (TextPlace<'_>, Option<&[u8]>),
) -> TransactionPart {
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
pub(super) fn asks_time(
    s: &Session,
    statement: &Statement,
    fit: EngineFit,
    (place, values): (TextPlace<'_>, Option<&[u8]>),
) -> bool {
    statement.has(StatementTrait::AsksTime) || fit.needs_transaction_time(place.text(s).unwrap_or_default(), values)
}

/// Writes a COPY of a sharded table anew as that of a query, which then is looked at.
#[cold]
pub(super) fn copy_table(s: &mut Session, w: &Context, engine: &Result<EngineFit, NoEngine>) -> Result<ShardAim, Unaimed> {
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

/// The engine has no transaction with the session's statements elsewhere, and reads each shard in one snapshot.
#[cold]
pub(super) fn to_engine(
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
        return in_engine_block(s);
    }
    if fit.declares && s.status() == IDLE {
        return Err(sharding::cannot_declare().into());
    }
    if gathered_read::is_needed(s) {
        return Err(to_gather(s, statement, fit, texts));
    }
    // The snapshots that the engine has of the shards are those of the whole block.
    let begins = begins_block(s, fit)?;
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
        EngineStanding::Ready | EngineStanding::Waits(_) | EngineStanding::Unready => Ok(of_engine(begins)),
    }
}

/// True if two names differ in their schemas alone: the copy of one table would stand for the other.
fn names_alike(statement: &Statement) -> bool {
    let relations = statement.objects.all_names().map(StatementNames::relations).unwrap_or_default();
    let is_alike = |(at, one): (usize, &QualifiedName)| {
        relations[..at].iter().any(|other| other.name == one.name && other.schema != one.schema)
    };
    relations.iter().enumerate().any(is_alike)
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
    } else if names_alike(statement) {
        "it names two tables of one name in two schemas"
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
