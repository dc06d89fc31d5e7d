//! Is a text a write to a reference table that all shards carry out alike?

use crate::sharding::kept_plan::{EveryCopy, NoCopies};
use crate::sharding::plan_facts::PlanFacts;
use weir_catalog::{StatementNames, UsedNames, builtin};
use weir_shard::{copies_stay_equal, in_order};
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
    Ok(EveryCopy { shards: in_order(facts.tables.shards()).into(), returns_rows: terms.properties.has(TermProperty::Returning) })
}
