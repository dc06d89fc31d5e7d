//! Errors for statements that are not one shard's.

use crate::fault::{ErrorReport, sqlstate};
use crate::sharding::engine_standing::ENGINE_BEHIND;
use crate::sharding::kept_plan::{NoCopies, NoEngine, NoSpread, TextRefusal};
use crate::sharding::write_steps;
use weir_shard::{EngineRefusal, ShardRefusal};
use weir_sql::facts::QualifiedName;

const WHAT_WORKS: &str = "Statements about rows of one shard are carried out: each sharded table with its key = constant.";

const DEFINITIONS_WORK: &str =
    "TRUNCATE, CREATE INDEX, GRANT, REVOKE, COMMENT and changes of single columns are carried out on all shards.";

const ENGINE_WORKS: &str = "The command weir shard engine lets SELECTs over several shards be carried out.";

/// The error for a statement that neither one shard nor the engine carries out.
pub fn of_plan(refusal: ShardRefusal, why: &NoEngine) -> ErrorReport {
    let report = ErrorReport::error(sqlstate::FEATURE_NOT_SUPPORTED, refusal.to_string());
    match why {
        // The engine was never near, or the reason is told already.
        NoEngine::Refused(EngineRefusal::NotOneQuery | EngineRefusal::Writes) => report.hint(WHAT_WORKS),
        NoEngine::Refused(_) if !is_about_keys(refusal) && refusal != ShardRefusal::Copy => report.hint(WHAT_WORKS),
        NoEngine::Refused(_) | NoEngine::Unfit(..) | NoEngine::Stranger(_) => {
            report.detail(format!("The statement is not carried out over several shards: {}.", of_engine(why))).hint(WHAT_WORKS)
        }
        NoEngine::DefinesOnly => report.hint(ENGINE_WORKS),
        NoEngine::Behind(why) => report.detail(format!("The engine is not ready: {why}")).hint(ENGINE_BEHIND),
    }
}

/// The error for an UPDATE or DELETE that neither one shard nor each of them carries out.
fn of_spread(refusal: ShardRefusal, why: &NoSpread) -> ErrorReport {
    let why = match why {
        NoSpread::Refused(why) => why.to_string(),
        NoSpread::Chance(name) => {
            format!("function \"{name}\" in a text that joins or has subqueries would be called on each shard")
        }
    };
    ErrorReport::error(sqlstate::FEATURE_NOT_SUPPORTED, refusal.to_string())
        .detail(format!("The statement is not carried out on each shard by itself: {why}."))
        .hint(WHAT_WORKS)
}

/// The error for a write to a reference table that might leave copies that differ.
fn of_copies(why: &NoCopies) -> ErrorReport {
    let why = match why {
        NoCopies::Refused(why) => why.to_string(),
        NoCopies::Stranger(name) => format!("{} may be another one on each shard, or answer otherwise there", shown(name)),
        NoCopies::Chance(name) => format!("each server would call function \"{name}\" by itself: give its value"),
    };
    ErrorReport::error(sqlstate::FEATURE_NOT_SUPPORTED, "the copies of the reference table might differ after the statement")
        .detail(format!("Each shard changes its own copy, and {why}."))
}

/// The error of a text that names a spread table and that no server reads.
fn of_syntax(words: &str) -> ErrorReport {
    ErrorReport::error(sqlstate::SYNTAX_ERROR, words)
        .detail("The text may name a spread table, and was read by the grammar of PostgreSQL 18 before it was sent.")
}

/// The error for a change of spread tables that is not carried out on all shards.
fn of_definition(why: &str) -> ErrorReport {
    ErrorReport::error(sqlstate::FEATURE_NOT_SUPPORTED, "the definition of a spread table is not changed by this statement")
        .detail(format!("All shards would have to carry it out alike: {why}."))
        .hint(DEFINITIONS_WORK)
}

/// Why the engine does not carry a statement out.
pub fn of_engine(why: &NoEngine) -> String {
    match why {
        NoEngine::Refused(why) => why.to_string(),
        NoEngine::Unfit(name, reason) => format!("table {} does not fit the engine: {reason}", shown(name)),
        NoEngine::Stranger(name) => format!("{} may be another one in the engine, or answer otherwise there", shown(name)),
        NoEngine::DefinesOnly => "the engine only holds definitions".to_owned(),
        NoEngine::Behind(why) => format!("the engine is not ready: {why}"),
    }
}

/// True if a statement over all shards could be the answer.
fn is_about_keys(refusal: ShardRefusal) -> bool {
    use ShardRefusal as Refusal;
    matches!(
        refusal,
        Refusal::KeyNotFixed
            | Refusal::KeyOfManyShards
            | Refusal::KeyValueUnread
            | Refusal::KeyTypeUnknown
            | Refusal::NotOnShardZero
    )
}

pub fn report(refusal: &TextRefusal) -> ErrorReport {
    let text = match refusal {
        TextRefusal::Plan(refusal, why) => return of_plan(*refusal, why),
        TextRefusal::Definition(why) => return of_definition(why),
        TextRefusal::Copies(why) => return of_copies(why),
        TextRefusal::Spread(refusal, why) => return of_spread(*refusal, why),
        TextRefusal::Copy(why) => return write_steps::cannot_spread(why),
        TextRefusal::Syntax(words) => return of_syntax(words),
        TextRefusal::Unread => "the statement names a sharded table, and its text cannot be looked into".to_owned(),
        TextRefusal::Many => "several statements in one text name a sharded table".to_owned(),
        TextRefusal::Reader(name) => format!("{} reads sharded tables by its definition", shown(name)),
        TextRefusal::Unusable(name, why) => format!("sharded table {} cannot be used: {why}", shown(name)),
        TextRefusal::Function(name) => {
            format!("function \"{name}\" may read sharded tables, or runs texts that may: no server has all of their rows")
        }
        TextRefusal::Trigger(table) => {
            format!("a trigger of table {} calls a function that may read sharded tables", shown(table))
        }
        TextRefusal::ReferenceView(name) => {
            format!("a write to {} may go on to a reference table, of which it would change one copy only", shown(name))
        }
        TextRefusal::BoundToServer(name) => {
            format!("{} may answer otherwise on each shard, and stands in a statement about a sharded table", shown(name))
        }
        TextRefusal::UnknownName(name) => {
            format!(
                "{} may mean a sharded table or another one, by the session's search_path or its temporary tables",
                shown(name)
            )
        }
        TextRefusal::Execute => "a statement prepared by SQL names a sharded table".to_owned(),
    };
    let hint = match refusal {
        TextRefusal::Unusable(..) => "Look at weir shard check.",
        TextRefusal::Execute => "Send the statement itself, or prepare it by the protocol of the driver.",
        TextRefusal::UnknownName(_) => "Name the table with its schema.",
        TextRefusal::ReferenceView(_) => "Write to the reference table itself.",
        _ => WHAT_WORKS,
    };
    ErrorReport::error(sqlstate::FEATURE_NOT_SUPPORTED, text).hint(hint)
}

fn shown(name: &QualifiedName) -> String {
    if name.schema.is_empty() { format!("\"{}\"", name.name) } else { format!("\"{}\".\"{}\"", name.schema, name.name) }
}
