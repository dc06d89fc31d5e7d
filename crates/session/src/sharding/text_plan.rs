//! The plan of a text: is it about sharded tables, and how is its shard found? Found once for each meaning of its names.

use crate::sharding::copy_plan::copy_plan;
use crate::sharding::kept_plan::{EngineFit, NoEngine, NoSpread, TextPlan, TextRefusal};
pub use crate::sharding::plan_facts::{NameCertainty, PlanFacts};
use crate::sharding::reference_plan::{every_copy, every_definition};
use crate::statements::{Statement, StatementTrait};
use weir_catalog::{StatementNames, UsedNames, builtin};
use weir_shard::{
    AllShards, EngineReadiness, EngineRefusal, RelationKind, ShardPlan, ShardRefusal, ShardedRelation, all_shards, engine_takes,
    plan,
};
use weir_sql::defined_names::defined_names;
use weir_sql::definition_terms::{DefinitionTerms, definition_terms, index_terms};
use weir_sql::facts::{QualifiedName, StateKind, StatementVerb, TransactionEnd, TransactionVerb};
use weir_sql::key_terms;
use weir_sql::key_terms::{KeyTerms, NoTerms, StatementKind, TermProperty};
use weir_sql::literal::LiteralGaps;

/// `text`: the statement's own.
pub fn plan_of(statement: &Statement, text: &[u8], facts: &PlanFacts<'_>) -> TextPlan {
    if facts.tables.is_empty() {
        return TextPlan::Cluster;
    }
    refusal_of(statement, text, facts).map_or_else(|| place_of(statement, text, facts), TextPlan::Refused)
}

/// Texts that cannot be looked into, and code that may read tables which one server has in part only.
fn refusal_of(statement: &Statement, text: &[u8], facts: &PlanFacts<'_>) -> Option<TextRefusal> {
    if is_opaque(statement, text) && facts.is_touched(&String::from_utf8_lossy(text)) {
        let words = std::str::from_utf8(text).ok().and_then(weir_sql::syntax_error);
        return Some(words.map_or(TextRefusal::Unread, TextRefusal::Syntax));
    }
    if statement.has(StatementTrait::Executes) && facts.prepared.texts().any(|text| facts.is_touched(text)) {
        return Some(TextRefusal::Execute);
    }
    let nothing = StatementNames::default();
    let names = statement.objects.all_names().unwrap_or(&nothing);
    for name in names.relations() {
        if facts.is_unsettled(name) {
            return Some(TextRefusal::UnknownName(name.clone()));
        }
        match facts.relation(name) {
            Some((whole, ShardedRelation::Reader)) => return Some(TextRefusal::Reader(whole)),
            Some((whole, ShardedRelation::Unusable(why))) => return Some(TextRefusal::Unusable(whole, why.clone())),
            Some((_, ShardedRelation::Sharded(_) | ShardedRelation::Reference)) | None => {}
        }
    }
    // PostgreSQL's own ones that run a text, such as query_to_xml, hold it in a value.
    let may_read = |function: &&QualifiedName| facts.tables.is_read_by(&function.name) || builtin::runs_text(&function.name);
    if let Some(function) = names.functions().iter().find(may_read) {
        return Some(TextRefusal::Function(function.name.clone()));
    }
    let whole = |name: &QualifiedName| facts.catalog.with_schema(name, facts.path).unwrap_or_else(|| name.clone());
    let written = || statement.objects.written.iter().map(whole);
    if let Some(view) = written().find(|name| facts.tables.writes_reference(name)) {
        return Some(TextRefusal::ReferenceView(view));
    }
    if facts.tables.fires_any() {
        return written().find(|table| facts.tables.fires(table)).map(TextRefusal::Trigger);
    }
    None
}

/// True if the parser does not read all that the text runs: the body of a DO block is a string to it.
fn is_opaque(statement: &Statement, text: &[u8]) -> bool {
    let is_unread = statement.has(StatementTrait::Unread) || statement.state.leaves.has(StateKind::Unread);
    is_unread || runs_code(statement, text)
}

/// True if the plan holds for all texts of one skeleton in all sessions: it depends on no string's content, as the options of COPY, and on nothing that a session has prepared.
pub fn may_be_kept(statement: &Statement, text: &[u8]) -> bool {
    !is_opaque(statement, text) && !statement.has(StatementTrait::Executes) && !statement.has(StatementTrait::CopiesIn)
}

fn place_of(statement: &Statement, text: &[u8], facts: &PlanFacts<'_>) -> TextPlan {
    if says_index(statement, text)
        && let Some(plan) = index_plan(text, facts)
    {
        return plan;
    }
    let names = statement.objects.all_names();
    let is_sharded = |name: &QualifiedName| facts.relation(name).is_some();
    let concerns_sharded = names.is_some_and(|names| names.relations().iter().any(is_sharded));
    if !concerns_sharded {
        return if is_free(statement, facts) { TextPlan::Anywhere } else { TextPlan::Cluster };
    }
    if statement.has(StatementTrait::Many) {
        return TextPlan::Refused(TextRefusal::Many);
    }
    if let Some(names) = names
        && only_refers(statement, text, (names, facts))
    {
        return TextPlan::Cluster;
    }
    if let Some(bound) = names.and_then(|names| facts.catalog.bound_to_server(names, facts.path)) {
        return TextPlan::Refused(TextRefusal::BoundToServer(bound.clone()));
    }
    let Ok(text) = std::str::from_utf8(text) else { return TextPlan::Refused(TextRefusal::Unread) };
    let terms = match key_terms(text) {
        Ok(terms) => terms,
        Err(NoTerms::NotOneStatement) => return TextPlan::Refused(TextRefusal::Many),
        Err(NoTerms::Unparsed | NoTerms::TooLarge) => return TextPlan::Refused(TextRefusal::Unread),
    };
    if statement.has(StatementTrait::CopiesIn) && names_sharded(&terms, facts) {
        return match copy_plan(text, |name| facts.kind(name)) {
            Ok(plan) => TextPlan::CopyRows(Box::new(plan)),
            Err(why) => TextPlan::Refused(TextRefusal::Copy(why)),
        };
    }
    if terms.properties.has(TermProperty::CopiesTable) && names_sharded(&terms, facts) {
        return TextPlan::CopyTable(engine_fit(names, &terms, facts));
    }
    match plan(&terms, |name| facts.kind(name)) {
        Ok(ShardPlan::Elsewhere) => TextPlan::Cluster,
        Ok(ShardPlan::AnyShard) if !terms.properties.has(TermProperty::CopiesTable) => {
            TextPlan::AnyShard(engine_fit(names, &terms, facts))
        }
        Ok(ShardPlan::AnyShard) => TextPlan::Anywhere,
        Ok(ShardPlan::OneShard(one)) => {
            let literals = LiteralGaps::of(text.as_bytes(), one.literals());
            TextPlan::OneShard { plan: ShardPlan::OneShard(one), literals, engine: engine_fit(names, &terms, facts) }
        }
        Err(refusal @ (ShardRefusal::KeyNotFixed | ShardRefusal::InsertFromQuery)) if is_change(&terms) => {
            match all_fit(names, &terms, facts) {
                Ok(shards) => TextPlan::AllShards(shards),
                Err(why) => TextPlan::Refused(TextRefusal::Spread(refusal, why)),
            }
        }
        Err(refusal) if matches!(terms.kind, StatementKind::Definition | StatementKind::Truncate) => {
            match definition_terms(text).map(|terms| every_definition(names, &terms, facts)) {
                Some(Ok(every)) => TextPlan::EveryCopy(every),
                Some(Err(why)) => TextPlan::Refused(TextRefusal::Definition(why)),
                None => TextPlan::Refused(TextRefusal::Plan(refusal, NoEngine::Refused(EngineRefusal::NotOneQuery))),
            }
        }
        Err(ShardRefusal::WritesReference) => match every_copy(names, &terms, facts) {
            Ok(every) => TextPlan::EveryCopy(every),
            Err(why) => TextPlan::Refused(TextRefusal::Copies(why)),
        },
        Err(refusal) => match engine_fit(names, &terms, facts) {
            Ok(fit) => TextPlan::Engine(fit),
            Err(why) => TextPlan::Refused(TextRefusal::Plan(refusal, why)),
        },
    }
}

/// True for a definition of tables, views and the like on shard 0 which reads reference tables or refers to them, and changes none.
#[cold]
fn only_refers(statement: &Statement, text: &[u8], (names, facts): (&StatementNames, &PlanFacts<'_>)) -> bool {
    if !statement.has(StatementTrait::Redefines) && statement.verb != StatementVerb::Definition {
        return false;
    }
    let Some(defined) = std::str::from_utf8(text).ok().and_then(defined_names) else { return false };
    let is_single = |name: &QualifiedName| matches!(facts.kind(name), RelationKind::Single) && !facts.is_unsettled(name);
    let is_whole = |name: &QualifiedName| matches!(facts.kind(name), RelationKind::Single | RelationKind::Reference);
    defined.relations.iter().all(is_single) && names.relations().iter().all(is_whole)
}

/// True if a text may change, drop or comment an index by its name.
pub fn says_index(statement: &Statement, text: &[u8]) -> bool {
    let says = |what: &[u8]| text.windows(what.len()).any(|word| word.eq_ignore_ascii_case(what));
    statement.verb == StatementVerb::Definition
        && (statement.has(StatementTrait::Redefines) || says(b"comment"))
        && says(b"index")
}

/// The plan of a text that changes or drops indexes of spread tables by their names. `None`: it does not.
#[cold]
fn index_plan(text: &[u8], facts: &PlanFacts<'_>) -> Option<TextPlan> {
    let terms = index_terms(std::str::from_utf8(text).ok()?)?;
    if !terms.tables.iter().any(|index| facts.tables.may_have_index(index)) {
        return None;
    }
    let table = |index: &QualifiedName| facts.tables.table_of_index(&facts.index(index)?).cloned();
    let tables: Option<Vec<QualifiedName>> = terms.tables.iter().map(table).collect();
    let planned = match tables {
        // By another path a name without a schema might mean another index on shard 0.
        None => Err("name each index with its schema, and none of shard 0 only".to_owned()),
        Some(tables) => every_definition(None, &DefinitionTerms { tables, ..terms }, facts),
    };
    Some(planned.map_or_else(|why| TextPlan::Refused(TextRefusal::Definition(why)), TextPlan::EveryCopy))
}

fn names_sharded(terms: &KeyTerms, facts: &PlanFacts<'_>) -> bool {
    terms.relations.iter().any(|name| matches!(facts.kind(name), RelationKind::Sharded(_)))
}

fn is_change(terms: &KeyTerms) -> bool {
    matches!(terms.kind, StatementKind::Update | StatementKind::Delete | StatementKind::Insert)
}

/// The shards of a statement that each of them carries out by itself. Users' functions that are volatile are refused before.
fn all_fit(names: Option<&StatementNames>, terms: &KeyTerms, facts: &PlanFacts<'_>) -> Result<AllShards, NoSpread> {
    let mut all = all_shards(terms, |name| facts.kind(name)).map_err(NoSpread::Refused)?;
    let functions = names.map(StatementNames::functions).unwrap_or_default();
    // A call may be a cast of a text, which may say a moment.
    const CASTS: [&str; 5] = ["date", "time", "timestamp", "timestamptz", "timetz"];
    all.asks_time |= functions.iter().any(|function| CASTS.contains(&function.name.as_str()));
    match functions.iter().find(|function| all.has_queries && builtin::is_free_of_server(&function.name)) {
        Some(function) => Err(NoSpread::Chance(function.name.clone())),
        None => Ok(all),
    }
}

/// Does the engine answer the text, at once or after a wait? Its readiness is asked last: where it lacks, the text would be answered.
fn engine_fit(names: Option<&StatementNames>, terms: &KeyTerms, facts: &PlanFacts<'_>) -> Result<EngineFit, NoEngine> {
    engine_takes(terms, |name| facts.kind(name)).map_err(NoEngine::Refused)?;
    let nothing = StatementNames::default();
    let names = names.unwrap_or(&nothing);
    let used = UsedNames { operators: &terms.operators, collations: &terms.collations };
    if let Some(stranger) = facts.catalog.engine_stranger(names, used, facts.path) {
        return Err(NoEngine::Stranger(stranger.clone()));
    }
    let unfit = |(whole, _): (QualifiedName, _)| {
        let reason = facts.tables.unfit_reason(&whole)?.to_owned();
        Some(NoEngine::Unfit(whole, reason))
    };
    if let Some(unfit) = terms.relations.iter().filter_map(|name| facts.relation(name)).find_map(unfit) {
        return Err(unfit);
    }
    match facts.tables.engine() {
        EngineReadiness::Ready { .. } | EngineReadiness::Follows(_) => {
            let has = |property| terms.properties.has(property);
            Ok(EngineFit { asks_time: has(TermProperty::TransactionTime), declares: has(TermProperty::Cursor) })
        }
        EngineReadiness::DefinesOnly => Err(NoEngine::DefinesOnly),
        EngineReadiness::Behind(why) => Err(NoEngine::Behind(why.clone())),
    }
}

/// True if a statement may run on any server: it controls the transaction or the session, or reads nothing of the database.
fn is_free(statement: &Statement, facts: &PlanFacts<'_>) -> bool {
    match statement.transaction {
        // A prepared transaction is ended where it was prepared, and nobody would know where.
        TransactionVerb::Prepared | TransactionVerb::Many => return false,
        TransactionVerb::End(TransactionEnd::Prepare) => return false,
        TransactionVerb::Begin(_) | TransactionVerb::End(_) | TransactionVerb::Chain(_) | TransactionVerb::Within => return true,
        TransactionVerb::None => {}
    }
    if statement.has(StatementTrait::OfSession) {
        return true;
    }
    const BOUND: [StatementTrait; 4] =
        [StatementTrait::Locks, StatementTrait::Executes, StatementTrait::Writes, StatementTrait::Notifies];
    let is_bound = BOUND.into_iter().any(|one| statement.has(one)) || !statement.state.leaves.is_empty();
    !is_bound
        && statement
            .objects
            .all_names()
            .is_none_or(|names| names.relations().is_empty() && facts.catalog.bound_to_server(names, facts.path).is_none())
}

/// True for `DO`, whose code is a string.
fn runs_code(statement: &Statement, text: &[u8]) -> bool {
    let is_between = |byte: &u8| !(byte.is_ascii_alphanumeric() || *byte == b'_' || !byte.is_ascii());
    statement.verb == StatementVerb::Other && text.split(is_between).any(|word| word.eq_ignore_ascii_case(b"do"))
}
