//! The shard of a statement, for those who only ask.

use crate::catalogs::KnownDatabase;
use crate::participants;
use crate::session_state::by_sql::BySql;
use crate::sharding::insert_parts::insert_parts;
use crate::sharding::kept_plan::TextPlan;
use crate::sharding::refusal_words;
use crate::sharding::text_plan::{NameCertainty, PlanFacts, plan_of};
use crate::sharding::write_steps;
use crate::statements::Statement;
use weir_catalog::{Catalog, SearchPath};
use weir_config::Config;
use weir_shard::{ShardPlan, ShardRefusal};
use weir_sql::facts::StatementVerb;
use weir_sql::key_terms::KeySource;
use weir_sql::literal::literal_at;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShownShard {
    Shard(u16),
    /// The values of its parameters name the shard.
    ByParameters,
    /// One of several shards, each of which would draw the keys of the new rows.
    Drawn,
    /// The engine, which sees all shards.
    Engine,
    /// Each of these shards.
    All(Vec<u16>),
    /// The words of the error.
    Refused(String),
}

/// `None`: the statement is the cluster's, as if nothing were sharded.
pub fn shown_shard(
    config: &Config,
    known: &KnownDatabase,
    (catalog, path): (&Catalog, &SearchPath),
    prepared: &BySql,
    (statement, text): (&Statement, &str),
) -> Option<ShownShard> {
    let tables = known.sharding.tables()?;
    let facts = PlanFacts { tables: &tables, catalog, path, certainty: NameCertainty::Known, prepared };
    match plan_of(statement, text.as_bytes(), &facts) {
        TextPlan::Anywhere | TextPlan::AnyShard(_) | TextPlan::Cluster => None,
        TextPlan::Refused(refusal) => Some(ShownShard::Refused(refusal_words::report(&refusal).message)),
        TextPlan::Engine(_) | TextPlan::CopyTable(Ok(_)) => Some(ShownShard::Engine),
        TextPlan::CopyTable(Err(why)) => Some(ShownShard::Refused(refusal_words::of_plan(ShardRefusal::Copy, &why).message)),
        TextPlan::AllShards(all) if participants::spans_shards(config, known) => Some(ShownShard::All(all.shards)),
        TextPlan::EveryCopy(every) if participants::spans_shards(config, known) => Some(ShownShard::All(every.shards.to_vec())),
        TextPlan::CopyRows(plan) if participants::spans_shards(config, known) => Some(ShownShard::All(plan.shards.to_vec())),
        TextPlan::AllShards(_) | TextPlan::EveryCopy(_) | TextPlan::CopyRows(_) => {
            Some(ShownShard::Refused(write_steps::cannot_spread(write_steps::NOT_SPANNED).message))
        }
        TextPlan::OneShard { plan: ShardPlan::OneShard(one), .. } if one.any_of().is_some() => Some(ShownShard::Drawn),
        TextPlan::OneShard { plan, .. } if is_by_parameters(&plan) => Some(ShownShard::ByParameters),
        TextPlan::OneShard { plan, engine, .. } => match plan.shard(|ordinal| literal_at(text.as_bytes(), ordinal), |_| None) {
            Ok(0) => None,
            Ok(shard) => Some(ShownShard::Shard(shard)),
            Err(_) if engine.is_ok() => Some(ShownShard::Engine),
            Err(ShardRefusal::KeyOfManyShards) if statement.verb == StatementVerb::Insert => {
                Some(if participants::spans_shards(config, known) {
                    of_insert(text, &facts)
                } else {
                    ShownShard::Refused(write_steps::cannot_spread(write_steps::NOT_SPANNED).message)
                })
            }
            Err(refusal) => Some(ShownShard::Refused(refusal.to_string())),
        },
    }
}

fn of_insert(text: &str, facts: &PlanFacts<'_>) -> ShownShard {
    match insert_parts(text, facts, None) {
        Ok(all) => ShownShard::All(all.parts.iter().map(|part| part.shard).collect()),
        Err(why) => ShownShard::Refused(write_steps::cannot_spread(&why).message),
    }
}

fn is_by_parameters(plan: &ShardPlan) -> bool {
    let ShardPlan::OneShard(one) = plan else { return false };
    one.keys().iter().any(|key| matches!(key.term().source, KeySource::Parameter(_)))
}
