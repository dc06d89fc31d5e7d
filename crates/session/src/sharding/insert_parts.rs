//! An INSERT of rows of several shards, as one text for each shard.

use crate::sharding::text_plan::PlanFacts;
use weir_shard::{InsertedKeys, ShardRefusal, in_order};
use weir_sql::insert_rows::InsertRows;
use weir_sql::key_terms;
use weir_sql::literal::LiteralGaps;

const TOGETHER: &str =
    "ON CONFLICT, RETURNING, comments, dollar quotes and strings with prefixes or backslashes keep its rows together";

/// The rows of an INSERT by shard, in the order of the visits, where literals give all keys. Error: why they stay together.
#[cold]
pub fn insert_parts(text: &str, facts: &PlanFacts<'_>) -> Result<Vec<(u16, String)>, String> {
    let words = |refusal: ShardRefusal| refusal.to_string();
    let terms = key_terms(text).map_err(|_| words(ShardRefusal::KeyOfManyShards))?;
    let keys = InsertedKeys::of(&terms, |name| facts.kind(name)).map_err(words)?;
    let rows = InsertRows::of(text).ok_or(TOGETHER)?;
    let gaps = LiteralGaps::of(text.as_bytes(), keys.literals());
    let reader = gaps.reader(text.as_bytes());
    let shards = keys.shards(|ordinal| reader.get(ordinal), |_| None).map_err(words)?;
    if shards.len() != rows.count() {
        return Err(TOGETHER.to_owned());
    }
    let of_shard = |shard: u16| shards.iter().enumerate().filter(move |(_, of)| **of == shard).map(|(row, _)| row);
    Ok(in_order(&shards).into_iter().map(|shard| (shard, rows.with_rows(text, of_shard(shard)))).collect())
}
