//! Is a text a write to a reference table, or a change of spread tables, that all shards carry out alike?

use crate::sharding::kept_plan::{CopyWork, EveryCopy, NoCopies};
use crate::sharding::plan_facts::PlanFacts;
use weir_catalog::{StatementNames, UsedNames, builtin};
use weir_shard::{copies_stay_equal, in_order, spread_definition};
use weir_sql::definition_terms::{DefinitionAction, DefinitionTerms};
use weir_sql::facts::QualifiedName;
use weir_sql::key_terms::{KeyTerms, TermProperty};

/// The shards of a write that leaves all copies equal, or why there are none.
pub fn every_copy(names: Option<&StatementNames>, terms: &KeyTerms, facts: &PlanFacts<'_>) -> Result<EveryCopy, NoCopies> {
    let table = |name: &_| facts.relation(name).and_then(|(whole, _)| facts.tables.reference(&whole));
    copies_stay_equal(terms, |name| facts.kind(name), table).map_err(NoCopies::Refused)?;
    let nothing = StatementNames::default();
    let names = names.unwrap_or(&nothing);
    let used = UsedNames { operators: &terms.operators, collations: &terms.collations };
    if let Some(function) = names.functions().iter().find(|function| builtin::is_free_of_server(&function.name)) {
        return Err(NoCopies::Chance(function.name.clone()));
    }
    if let Some(stranger) = facts.catalog.engine_stranger(names, used, facts.path) {
        return Err(NoCopies::Stranger(stranger.clone()));
    }
    let work = if terms.properties.has(TermProperty::Returning) { CopyWork::WriteWithRows } else { CopyWork::Write };
    Ok(EveryCopy { shards: in_order(facts.tables.shards()).into(), work })
}

/// The shards of a change of spread tables, all of which carry it out, or why they do not.
pub fn every_definition(
    names: Option<&StatementNames>,
    terms: &DefinitionTerms,
    facts: &PlanFacts<'_>,
) -> Result<EveryCopy, String> {
    let is_plain_type =
        |kind: &QualifiedName| matches!(kind.schema.as_str(), "" | "pg_catalog") && builtin::is_plain_type(&kind.name);
    if terms.actions.contains(&DefinitionAction::TruncateCascade) && facts.tables.fires_any() {
        return Err("CASCADE may reach tables whose triggers read sharded tables: name the tables".to_owned());
    }
    let effect = spread_definition(terms, |name| facts.kind(name), is_plain_type)?;
    let nothing = StatementNames::default();
    let used = UsedNames { operators: &[], collations: &[] };
    match facts.catalog.engine_stranger(names.unwrap_or(&nothing), used, facts.path) {
        Some(stranger) => Err(format!("\"{}\" may be another one on each shard, or answer otherwise there", stranger.name)),
        None => Ok(EveryCopy { shards: in_order(facts.tables.shards()).into(), work: CopyWork::Definition(effect) }),
    }
}
