//! Statements that each shard carries out by itself, and the reasons against the others.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use weir_shard::{AllShardsRefusal, KeyKind, KeyOrder, PartitionBound, PartitionMap, RelationKind, ShardedTable, all_shards};
use weir_sql::key_terms;

fn table(shards: &[u16], columns: &[&str]) -> Arc<ShardedTable> {
    let parts = shards.len();
    let bounds: Vec<PartitionBound> = (0..parts)
        .map(|at| {
            let text = format!("FOR VALUES WITH (modulus {parts}, remainder {at})");
            PartitionBound::of_text(KeyKind::Int4, &text).unwrap()
        })
        .collect();
    Arc::new(ShardedTable {
        key: columns[0].to_owned(),
        kind: KeyKind::Int4,
        order: KeyOrder::Known,
        modifier: -1,
        map: PartitionMap::new(KeyKind::Int4, KeyOrder::Known, &bounds).unwrap(),
        shards: shards.to_vec(),
        columns: columns.iter().map(|name| (*name).to_owned()).collect(),
        draws_keys: false,
        colocation: 0,
    })
}

/// Shards in the order of the visits, or the name of the reason. `t`, `u` are on three shards, `far` is on shards 2 and 1, `one` on shard 1; `ref` is a
/// reference table, `v` a view, all others lie on shard 0.
fn told(text: &str) -> String {
    let t = table(&[0, 1, 2, 0], &["id", "x", "name"]);
    let far = ShardedTable { colocation: 1, ..(*table(&[2, 1], &["id", "x"])).clone() };
    let (far, one) = (Arc::new(far), table(&[1], &["id", "x"]));
    let terms = key_terms(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    let found = all_shards(&terms, |name| match name.name.as_str() {
        "t" | "u" => RelationKind::Sharded(&t),
        "far" => RelationKind::Sharded(&far),
        "one" => RelationKind::Sharded(&one),
        "ref" => RelationKind::Reference,
        "v" => RelationKind::Unknown,
        _ => RelationKind::Single,
    });
    match found {
        Ok(found) => {
            let shards: Vec<String> = found.shards.iter().map(u16::to_string).collect();
            format!("{}{}", shards.join(" "), if found.has_queries { " with queries" } else { "" })
        }
        Err(refusal) => AllShardsRefusal::name(refusal).to_owned(),
    }
}

/// A line is `statement -> shards`, or the reason.
fn check(lines: &str) {
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (text, expected) = line.rsplit_once(" -> ").unwrap();
        assert_eq!(told(text), expected, "{text}");
    }
}

#[test]
fn each_shard_carries_out_what_its_rows_and_reference_tables_decide() {
    check(
        "update t set x = x + 1 -> 1 2 0
         delete from t -> 1 2 0
         update t set x = 1 returning id -> 1 2 0
         delete from far where x > 3 -> 1 2
         update t set x = random() where id in (1, 2) or name like 'a%' -> 1 2 0
         update t as a set x = r.x from ref r where r.id = a.x -> 1 2 0 with queries
         delete from t using ref where ref.id = t.x -> 1 2 0 with queries
         update t set x = (select x from ref where ref.id = t.x) where name in (select name from ref) -> 1 2 0 with queries
         delete from t where exists (select 1 from ref where ref.id = t.x) -> 1 2 0 with queries
         with r as (select id, x from ref) update t set x = r.x from r where r.id = t.x -> 1 2 0 with queries
         update t set x = v.x from (values (1, 2), (3, 4)) v (old, x) where v.old = t.x -> 1 2 0 with queries
         update t set x = n from unnest(array[1, 2]) n where n = t.x -> 1 2 0 with queries",
    );
}

#[test]
fn rows_of_a_subquery_lie_beside_those_whose_key_is_in_it() {
    check(
        "delete from t where id in (select id from u) -> 1 2 0 with queries
         delete from t where id = any (select u.id from u where x > 3) and x < 7 -> 1 2 0 with queries
         update t set x = 0 where id in (select u.id from u join ref on ref.x = u.x where ref.name = 'a') -> 1 2 0 with queries
         update t as a set x = 0 where a.id in (select id from t where name = 'b') -> 1 2 0 with queries
         delete from t where (id, x) in (select id, x from u) -> 1 2 0 with queries
         delete from t where (x, id) in (select x + 1, id from u) -> 1 2 0 with queries
         delete from t where id in (select id from u where id in (select id from t where x = 1)) -> 1 2 0 with queries
         delete from t using u where u.id = t.id and u.id in (select id from t where x = 1) -> 1 2 0 with queries
         delete from t where exists (select from u where u.id = t.id and u.id in (select id from u where x = 1)) -> 1 2 0 with queries
         delete from t where id in (select id from u order by x) -> 1 2 0 with queries
         delete from t where id in (select s.id from (select id, x from u) s where s.x = 1) -> 1 2 0 with queries
         delete from t where id in (select a.id from u a join u b on a.id = b.id) -> 1 2 0 with queries",
    );
}

#[test]
fn statements_that_a_shard_would_answer_otherwise_than_one_server_are_refused() {
    check(
        "select * from t -> not_update_or_delete
         insert into t values (1) -> not_update_or_delete
         insert into t default values -> not_update_or_delete
         explain update t set x = 1 -> explained
         update t set id = id + 1 -> key_changed
         update t set (x, id) = (1, 2) -> key_changed
         update t set x = u.x from u where u.x = t.id -> other_sharded
         update t set x = u.x from u where u.id = t.id or u.x = 1 -> other_sharded
         update t set x = far.x from far where far.id = t.id -> other_sharded
         update t set x = u.x from t a join u on u.id = a.id where a.x = t.x -> other_sharded
         update t set x = u.x from ref left join u on u.id = ref.id where ref.x = t.x -> other_sharded
         update t set x = c.n from (select id, count(*) n from u group by id) c where c.id = t.id -> other_sharded
         with c as (select id, x from u) update t set x = c.x from c where c.id = t.id -> other_sharded
         delete from t where id in (select id from u limit 3) -> other_sharded
         delete from t where id in (select max(id) from u) -> other_sharded
         delete from t where id in (select id from u union select id from u) -> other_sharded
         delete from t where id in (select id + 1 from u) -> other_sharded
         delete from t where id in (select x from u) -> other_sharded
         delete from t where x in (select id from u) -> other_sharded
         delete from t where id in (select id from far) -> other_sharded
         delete from t where id not in (select id from u) -> other_sharded
         delete from t where not (id in (select id from u)) -> other_sharded
         delete from t where id in (select id from u) or x = 1 -> other_sharded
         delete from t where (id in (select id from u)) is not true -> other_sharded
         delete from t where id <> all (select id from u) -> other_sharded
         delete from t where id > any (select id from u) -> other_sharded
         delete from t where (x, id) in (select id, x from u) -> other_sharded
         delete from t where id in (select id from u for update) -> locks_rows
         delete from t where id in (select id from u where x in (select x from t)) -> other_sharded
         delete from t where id in (select a.id from u a left join u b on a.x = b.x) -> other_sharded
         with c as (select id from u) delete from t where id in (select id from c) -> other_sharded
         delete from t where exists (select from u where u.id = t.id and exists (select from far where far.id = u.id)) -> other_sharded
         update t set x = 1 returning (select count(*) from u where u.id = t.id) -> other_sharded
         delete from t a using t b where a.x < b.x -> other_sharded
         delete from t where x < (select x from t limit 1) -> other_sharded
         update t set x = 1 where x in (select x from far) -> other_sharded
         update t set x = 1 from plain where plain.id = t.x -> single_relation
         delete from t where x in (select x from v) -> unknown_relation
         update t set x = 1 where ctid = '(0,1)' -> system_columns
         update t set name = now()::text -> transaction_time
         delete from t where x in (select id from ref limit 1) -> computed_query
         delete from t where x in (select distinct id from ref) -> computed_query
         delete from t where x in (select id from ref union select x from ref limit 1) -> computed_query
         update t set x = (select count(*) from ref) -> computed_query
         delete from t where x in (select id from ref for update) -> locks_rows
         with d as (delete from t where x = 1) delete from u -> several_writes
         with d as (delete from ref) delete from t -> several_writes
         delete from one -> one_shard_only
         update plain set x = 1 -> single_written
         delete from plain using t where t.id = plain.id -> single_written
         update v set x = 1 -> unknown_relation
         delete from t where current of c -> at_cursor",
    );
}

#[test]
fn rows_of_other_sharded_tables_count_where_their_key_is_that_of_the_changed_row() {
    check(
        "update t set x = u.x from u where u.id = t.id -> 1 2 0 with queries
         update t as a set x = b.x from t as b where a.id = b.id and b.x > 3 -> 1 2 0 with queries
         update t set x = u.x from u join ref on ref.id = u.x where (t.id, t.x) = (u.id, u.x) -> 1 2 0 with queries
         update t set x = b.x from u join t b using (id) where u.id = t.id -> 1 2 0 with queries
         update t set x = b.x from u left join t b on b.id = u.id where u.id = t.id -> 1 2 0 with queries
         update t set x = s.x from (select id, x from u where x > 1) s where s.id = t.id -> 1 2 0 with queries
         delete from t using u, ref where u.id = t.id and ref.id = u.x -> 1 2 0 with queries
         delete from t where exists (select from u where u.id = t.id) -> 1 2 0 with queries
         delete from t where not exists (select from u where u.id = t.id and u.x > t.x) or x = 1 -> 1 2 0 with queries
         update t set x = (select max(x) from u where u.id = t.id) where x < 7 -> 1 2 0 with queries
         update t set x = (select x from u where u.id = t.id order by x limit 1) -> 1 2 0 with queries
         delete from t where x in (select x from u where u.id = t.id union all select x from ref) -> 1 2 0 with queries",
    );
}

#[test]
fn rows_of_a_query_are_inserted_where_the_rows_lie_that_they_come_of() {
    check(
        "insert into u select * from t -> 1 2 0 with queries
         insert into u (x, id) select x + 1, id from t where x > 3 -> 1 2 0 with queries
         insert into t select id, x + 100, name from t on conflict (id) do update set x = 1 returning x -> 1 2 0 with queries
         insert into u (id, x) select t.id, ref.x from t join ref on ref.id = t.x -> 1 2 0 with queries
         insert into u (id, x) select a.id, b.x from t a left join t b on b.id = a.id where a.x = 1 order by 1 -> 1 2 0 with queries
         insert into u select a.* from t a where not exists (select from u where u.id = a.id) -> 1 2 0 with queries
         insert into u (id, x) select id, x from far -> inserted_key
         insert into u (id, x) select x, id from t -> inserted_key
         insert into u (id, x) select id + 0, x from t -> inserted_key
         insert into u (x) select x from t -> inserted_key
         insert into u (id, x) select 7, x from t -> inserted_key
         insert into u (id, x) select id, x from ref -> inserted_key
         insert into u (id, x) select ref.*, t.id from t, ref -> inserted_key
         insert into u (id, x) select t.id, 1 from ref left join t on t.id = ref.id -> inserted_key
         insert into u (id, x) select a.id, b.x from t a, t b where a.x = b.x -> other_sharded
         insert into u (id, x) select id, x from t where x > (select avg(x) from t) -> other_sharded
         insert into u (id, x) select id, x from t union all select id, x from t -> computed_query
         insert into u (id, x) select id, max(x) from t group by id -> computed_query
         insert into u (id, x) select id, x from t limit 3 -> computed_query
         insert into u (id, x) select distinct id, x from t -> computed_query
         insert into u (id, x) select id, x from t on conflict (id) do update set id = 1 -> key_changed
         insert into u (id, x) select t.id, 1 from t join plain on plain.id = t.x -> single_relation
         insert into plain select id, x from t -> single_written
         with c as (select id, x from t) insert into u (id, x) select id, x from c -> inserted_key
         insert into u overriding user value select * from t -> not_update_or_delete",
    );
}
