//! Changes of spread tables that each shard carries out, and the reasons against others.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use weir_shard::{
    DefinitionEffect, KeyKind, KeyOrder, PartitionBound, PartitionMap, RelationKind, ShardedTable, spread_definition,
};
use weir_sql::definition_terms::definition_terms;

fn table() -> Arc<ShardedTable> {
    let bound = |at| PartitionBound::of_text(KeyKind::Int4, &format!("FOR VALUES WITH (modulus 2, remainder {at})")).unwrap();
    Arc::new(ShardedTable {
        key: "id".to_owned(),
        kind: KeyKind::Int4,
        order: KeyOrder::Known,
        modifier: -1,
        map: PartitionMap::new(KeyKind::Int4, KeyOrder::Known, &[bound(0), bound(1)]).unwrap(),
        shards: vec![0, 1],
        columns: ["id", "x"].map(str::to_owned).to_vec(),
        draws_keys: false,
        colocation: 0,
    })
}

/// `shards`, `indexes`, `engine`, or the reason. `t` is sharded by `id`, `ref` is a reference table, `v` a view.
fn told(text: &str) -> String {
    let t = table();
    let terms = definition_terms(text).unwrap();
    let found = spread_definition(
        &terms,
        |name| match name.name.as_str() {
            "t" => RelationKind::Sharded(&t),
            "ref" => RelationKind::Reference,
            "v" => RelationKind::Unknown,
            _ => RelationKind::Single,
        },
        |kind| kind.name != "mood",
    );
    match found {
        Ok(DefinitionEffect::OnShardsOnly) => "shards".to_owned(),
        Ok(DefinitionEffect::ChangesIndexes) => "indexes".to_owned(),
        Ok(DefinitionEffect::ChangesRights) => "rights".to_owned(),
        Ok(DefinitionEffect::ChangesEngine) => "engine".to_owned(),
        Err(why) => why.to_owned(),
    }
}

#[test]
fn a_change_is_carried_out_unless_no_shard_could_keep_what_it_says() {
    for (text, expected) in [
        ("truncate t, ref", "shards"),
        ("create index i on t (x)", "indexes"),
        ("create unique index i on t (x, id)", "indexes"),
        ("create unique index i on ref (name)", "indexes"),
        ("alter table t add y int", "engine"),
        ("alter table ref drop name", "engine"),
        ("alter table t rename x to y", "engine"),
        ("alter table t alter x set not null", "engine"),
        ("alter table t alter x set default 3, add check (x > 0), drop constraint c", "shards"),
        ("grant select (x) on t, ref to someone", "rights"),
        ("revoke all on t from public", "rights"),
        ("grant select on t, plain to someone", "a table of shard 0 only"),
        ("comment on column t.id is 'the key'", "shards"),
        ("truncate t, plain", "a table of shard 0 only"),
        ("truncate t, v", "a view"),
        ("create unique index i on t (x)", "holds the shard key"),
        ("create unique index i on t (abs(id))", "holds the shard key"),
        ("alter table t drop id", "the shard key"),
        ("alter table t rename id to y", "the shard key"),
        ("alter table t add y mood", "plain ones"),
        ("alter table t drop constraint weir_shard_key", "belongs to Weir"),
        ("alter table t add constraint weir_shard_key check (true)", "belongs to Weir"),
        ("truncate t cascade", "shards"),
        ("drop table t, ref cascade", "engine"),
        ("drop table t, plain", "a table of shard 0 only"),
        ("truncate t restart identity", "shards"),
        ("alter table t drop x cascade", "engine"),
    ] {
        assert!(told(text).contains(expected), "{text}: {}", told(text));
    }
}
