//! Begins statements that several shards carry out, each by itself (`write_steps`).

use crate::context::Context;
use crate::routing::classify;
use crate::session::{FAILED, IDLE, LazyBegin, Session};
use crate::session_state::client_settings::EncodingEffect;
use crate::sharding;
use crate::sharding::bound_values::BoundValues;
use crate::sharding::copy_parts::CopyParts;
use crate::sharding::copy_plan::CopyPlan;
use crate::sharding::insert_parts::{InsertPart, InsertParts, insert_parts};
use crate::sharding::kept_plan::{CopyWork, EveryCopy};
use crate::sharding::look_lacks::lack_of_span;
use crate::sharding::messages_ahead::{DESCRIBED_ANYWHERE, RowsAsked, bound_ahead};
use crate::sharding::plan_wish::PlanWish;
use crate::sharding::returned_rows::{ReturnedRows, RowOrder};
use crate::sharding::shard_target::{ShardAim, ShardTarget};
use crate::sharding::spread_write::{ChangedPart, PartAnswers, PartMessages, SpreadChange, SpreadParts, WriteEnd};
use crate::sharding::text_plan::{NameCertainty, PlanFacts};
use crate::sharding::unaimed::{TextPlace, Unaimed, query_message, too_long};
use crate::sharding::{reference_steps, spread_refusal, write_steps};
use crate::statements::{PreparedStatement, Statement, StatementTrait};
use weir_cache::{bind_holds_a_moment, says_a_moment};
use weir_catalog::{StatementNames, builtin};
use weir_config::CrossShardReads;
use weir_shard::{AllShards, DefinitionEffect, ShardRefusal};
use weir_wire::frame::front;
use weir_wire::write;

/// A statement of the extended protocol that each shard carries out: it must be all up to the Sync. `name`: of its Parse, if that is looked at.
#[cold]
pub(super) fn all_ahead(
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
pub(super) fn copies_ahead(
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

/// Begins an INSERT of a Query message whose rows belong to several shards, each of which gets its own ones.
#[cold]
pub(super) fn insert_on_all(
    s: &mut Session,
    w: &Context,
    statement: &Statement,
    refusal: ShardRefusal,
) -> Result<ShardAim, Unaimed> {
    let place = TextPlace::Message;
    let all = parts_of_insert(s, place, None, refusal).map_err(|why| write_steps::cannot_spread(&why))?;
    let messages = all.parts.iter().map(|part| query_message(part.text.as_bytes()).into()).collect();
    insert_parts_on_all(s, w, (statement, &all, WriteEnd::OfClient), messages, place)
}

/// Begins an INSERT by parameters in the same way. `name`: of its Parse, if that is looked at.
#[cold]
pub(super) fn insert_ahead(
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
pub(super) fn to_all(
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
    let asks_time = says_time(s, place, values) || all.asks_time;
    begin_on_all(s, w, (statement, &all.shards, asks_time), (place, end), parts)
}

/// Begins a COPY of a Query message. Rows of one shard go there as they are.
#[cold]
pub(super) fn copy_to_all(s: &mut Session, w: &Context, (statement, plan): (&Statement, &CopyPlan)) -> Result<ShardAim, Unaimed> {
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

/// Begins a write to a reference table, or a change of spread tables.
#[cold]
pub(super) fn to_every_copy(
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
    let functions = statement.objects.all_names().map(StatementNames::functions).unwrap_or_default();
    if let Some(function) = functions.iter().find(|function| builtin::differs_by_server(&function.name)) {
        return Err(write_steps::cannot_spread(&format!("{}() answers otherwise on each shard", function.name)).into());
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
