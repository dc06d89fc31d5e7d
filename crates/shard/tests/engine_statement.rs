//! Statements that the engine carries out, and the reasons against the others.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use weir_shard::{EngineRefusal, KeyKind, KeyOrder, PartitionBound, PartitionMap, RelationKind, ShardedTable, engine_takes};
use weir_sql::facts::QualifiedName;
use weir_sql::key_terms;
use weir_sql::key_terms::{KeyTerms, TermProperty};

fn table(columns: &[&str]) -> Arc<ShardedTable> {
    let bound = PartitionBound::of_text(KeyKind::Int4, "FOR VALUES WITH (modulus 1, remainder 0)").unwrap();
    Arc::new(ShardedTable {
        key: columns[0].to_owned(),
        kind: KeyKind::Int4,
        order: KeyOrder::Known,
        modifier: -1,
        map: PartitionMap::new(KeyKind::Int4, KeyOrder::Known, &[bound]).unwrap(),
        shards: vec![0],
        columns: columns.iter().map(|name| (*name).to_owned()).collect(),
        draws_keys: false,
        colocation: 0,
    })
}

/// `t` and `u` are sharded, `ref` is a reference table, `v` is a view, and all others lie on shard 0.
fn takes(terms: &KeyTerms) -> Result<(), EngineRefusal> {
    let (t, u) = (table(&["id", "x", "name"]), table(&["id", "t_id", "u"]));
    engine_takes(terms, |name| match name.name.as_str() {
        "t" => RelationKind::Sharded(&t),
        "u" => RelationKind::Sharded(&u),
        "ref" => RelationKind::Reference,
        "v" => RelationKind::Unknown,
        _ => RelationKind::Single,
    })
}

/// A line is `statement -> reason`; `taken` for none.
fn check(lines: &str) {
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (text, expected) = line.rsplit_once(" -> ").unwrap();
        let told = match key_terms(text) {
            Ok(terms) => takes(&terms).map_or_else(EngineRefusal::name, |()| "taken"),
            Err(error) => panic!("{text}: {error:?}"),
        };
        assert_eq!(told, expected, "{text}");
    }
}

#[test]
fn the_engine_takes_queries_of_sharded_and_reference_tables() {
    check(
        "select * from t -> taken
         declare c cursor for select * from t -> taken
         table t -> taken
         select from t -> taken
         select * from t * -> taken
         select count(*), sum(x) from t join ref on ref.id = t.x group by name having count(*) > 1 order by 1 limit 3 -> taken
         select x from t order by x fetch first 3 rows with ties -> taken
         with c as (select id from t) select * from c join u on u.t_id = c.id -> taken
         with recursive c as (select id from t union all select c.id + 1 from c join u on u.id = c.id) table c -> taken
         select (select max(u.id) from u where u.t_id = t.id) from t, lateral (select 1 from ref) z -> taken
         select id from t union select id from u except (select id from ref order by id limit 1) -> taken
         select 1 where exists (select from t) -> taken
         values ((select count(*) from t)), (2) -> taken
         select * from generate_series(1, (select count(*) from t)) g -> taken
         select rank() over (partition by x order by id) from t window w as (order by id) -> taken
         select grouping(x), x from t group by rollup (x) -> taken
         explain select * from t -> taken
         explain (analyze, verbose) select * from t -> taken
         select name collate \"C\", x is distinct from 1, current_user, current_timestamp from t -> taken
         select * from t natural join u -> taken
         copy t to stdout -> taken
         copy t (x, id) to stdout csv header -> taken
         copy (select x from t join ref using (id) order by 1) to stdout binary -> taken
         select * from t where x in (select id from ref) and (id, x) = (1, 2) -> taken",
    );
}

#[test]
fn the_engine_does_not_write_and_holds_nothing() {
    check(
        "insert into t values (1) -> not_one_query
         update t set x = 1 -> not_one_query
         delete from t -> not_one_query
         merge into t using u on true when matched then delete -> not_one_query
         copy t from stdin -> not_one_query
         copy t to '/tmp/t' -> not_one_query
         copy (delete from t returning id) to stdout -> not_one_query
         copy (with d as (delete from t returning id) select * from d) to stdout -> writes
         copy t (id, ctid) to stdout -> system_columns
         truncate t -> not_one_query
         prepare p as select * from t -> not_one_query
         explain analyze update t set x = 1 -> not_one_query
         explain create table w as select * from t -> not_one_query
         select * into w from t -> not_one_query
         create table w as select * from t -> not_one_query
         create view w as select * from t -> not_one_query
         declare c cursor with hold for select * from t -> cursor
         explain declare c cursor for select * from t -> cursor
         with d as (delete from t returning *) select * from d -> writes
         select * from u where id in (with d as (insert into t values (1) returning id) select id from d) -> writes
         with m as (merge into t using u on true when matched then delete returning *) select * from m -> not_one_query
         select * from t for update -> locks_rows
         select * from (select * from t for share) s -> locks_rows
         (select id from t) union all (select id from u for key share) -> locks_rows",
    );
}

#[test]
fn what_a_server_only_knows_of_its_own_tables_is_refused() {
    check(
        "select * from t tablesample system (10) -> samples
         select ctid from t -> system_columns
         select t.tableoid::int from t -> system_columns
         select 't'::regclass from t -> object_numbers
         select x::pg_catalog.regtype from t -> object_numbers
         select * from t, json_to_record('{}') as j (a regclass) -> object_numbers
         select * from t, json_table('[1]', '$[*]' columns (a regclass path '$')) -> object_numbers
         select * from only t -> only_parent
         select 1 from ref where exists (select from only (t)) -> only_parent
         with c as (select id from t) select * from c, only u -> only_parent
         select current_catalog from t -> of_database
         select id from t where name = current_schema -> of_database
         select * from shop.public.t -> of_database
         select shop.public.t.id from t -> of_database",
    );
}

#[test]
fn every_relation_counts_wherever_it_stands() {
    check(
        "select * from t, h -> single_relation
         select * from t where x = (select max(a) from h) -> single_relation
         select * from t order by (select a from h) -> single_relation
         select * from t limit (select a from h) -> single_relation
         select * from t left join lateral (select a from h) z on true -> single_relation
         select count(*) filter (where exists (select from h)) from t -> single_relation
         select sum(x) over (order by (select a from h)) from t -> single_relation
         select case when x = 1 then (select a from h) end from t -> single_relation
         select array(select a from h), t.id from t -> single_relation
         select * from t, generate_series(1, (select a from h)) -> single_relation
         select * from t where row(x, 1) in (select a, a from h) -> single_relation
         select coalesce((select a from h), x) from t group by cube ((select a from h)) -> single_relation
         with c as (with d as (select a from h) table d) select * from t, c -> single_relation
         with h as (select 1 a) select * from t, h -> taken
         select * from t, (with h as (select 1 a) select 2) z, h -> single_relation
         with h as (select a from h) select * from t, h -> single_relation
         with recursive h as (select 1 a union all select a + 1 from h) select * from t, h -> taken
         select id from t union select a from h -> single_relation
         values ((select id from t)), ((select a from h)) -> single_relation
         select * from t, v -> unknown_relation
         select * from t, information_schema.tables -> single_relation
         select * from t, pg_class -> single_relation
         select * from ref -> taken
         select 1 -> nothing_sharded",
    );
}

#[test]
fn a_whole_row_is_no_column_of_a_result() {
    check(
        "select t from t -> whole_row
         select a from t a -> whole_row
         select public.t from public.t -> whole_row
         select (select t from ref) from t -> whole_row
         select id from t union all select ref from ref -> whole_row
         with c as (select t as one from t) select * from c -> whole_row
         select x, (select u.id from u where t) from t -> taken
         select (select (select t) from u) from t -> whole_row
         select * from t, lateral (select t from u) z -> whole_row
         select ref from (select ref.a as ref from ref, t) z -> taken
         with c as (select id as ref from ref) select ref from c, t -> taken
         select u from u -> taken
         select u from u as u (a, b, c) -> whole_row
         select t.* from t -> taken
         select t.x from t -> taken
         select count(t), row_to_json(t) from t -> taken
         select id from t where t is not null -> taken
         select s from (select id from t) s -> taken",
    );
}

#[test]
fn a_text_tells_its_operators_and_collations_and_if_it_asks_for_the_time() {
    let names = |names: &[QualifiedName]| names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    for (text, operators, collations, asks) in [
        ("select a + 1, -b from t where c ~ 'x' order by a using >", "+ - > ~", "", false),
        ("select 1 operator(s.@) 2 where a not in (1)", "<> s.@", "", false),
        ("select from t where a between 1 and 2", "< <= > >=", "", false),
        ("select from t join u using (id)", "=", "", false),
        ("select from t where a in (select 1) or b like any (array['x'])", "= ~~", "", false),
        ("select case a when 1 then 2 end, nullif(a, b), a is distinct from b", "=", "", false),
        ("select a collate \"C\", b collate s.x from t order by c collate \"de_DE\"", "", "C de_DE s.x", false),
        ("select now()", "", "", true),
        ("select age(a), 1 from t", "", "", true),
        ("select 1 from t where a = current_date", "=", "", true),
        ("select localtimestamp", "", "", true),
        ("select a::timestamp from t", "", "", true),
        ("select 'x'::date, $1::timestamptz, a::text, b::int[], clock_timestamp(), statement_timestamp()", "", "", false),
        ("select * from json_to_record('{}') as j (a date)", "", "", true),
        ("select json_populate_record(t, '{}') from t", "", "", true),
        ("select current_user, a::numeric(3, 1) from t", "", "", false),
    ] {
        let terms = key_terms(text).unwrap();
        let told = (names(&terms.operators), names(&terms.collations), terms.properties.has(TermProperty::TransactionTime));
        assert_eq!(told, (operators.to_owned(), collations.to_owned(), asks), "{text}");
    }
}

#[test]
fn a_condition_without_a_column_is_no_part_of_a_join() {
    check(
        "select t.id from t left join ref on ref.id = t.x where not exists (select from u) order by 1 limit 4 -> gate
         select t.id from t, ref where $1 = 1 -> gate
         select t.id from t join ref on ref.id = t.x and now() > '2024-01-01' -> gate
         select t.id from t join ref on ref.id = t.x where 3 = (select max(id) from u) -> gate
         select t.id from t join (select id from u where $1) z using (id) -> gate
         select t.id from t where $1 and exists (select from u left join ref on ref.id = u.u) -> gate
         select x from t left join u using (id) group by x having random() > 0.5 -> gate
         select t.id from t left join u using (id) where not (t.x = 1 or $1 = 1) -> gate
         select t.id from t left join u using (id) where t.x = 1 or $1 = 1 -> taken
         select t.id from t left join u using (id) where t.x = 1 and $1 = 1 or t.x = 2 and $1 = 1 -> gate
         select t.id from t left join u using (id) where (t.x = 1 and $1 = 1) = true -> gate
         select t.id from t left join u using (id) where case when t.x = null then true else $1 end -> gate
         select t.id from t left join u using (id) where case when t.x = 1 then true else false end -> taken
         select t.id from t left join u using (id) where coalesce(t.x = null, $1) -> gate
         select t.id from t left join u using (id) where exists (select from ref where ref.id = t.id) -> taken
         select t.id from t left join u using (id) where exists (select from ref t where t.id = 1) -> gate
         select t.id from t left join u using (id) where exists (select from ref where id = x) -> gate
         select t.id from t left join u using (id) where t.x in (select id from ref) -> taken
         select t.id from t left join u using (id) where $1 in (select id from ref) -> gate
         select t.id from t, lateral (select u.id from u left join ref on ref.id = u.u where t.x = 1 limit 2) z -> gate
         select t.id from t, lateral (select u.id from u left join ref on ref.id = u.u where x = 1 limit 2) z -> gate
         select t.id from t, lateral (select u.id from u left join ref on ref.id = u.u where u.u = t.x limit 2) z -> taken
         select t.id, z.u from t, lateral (select u from u where t_id = t.id order by u desc limit 2) z -> taken
         select t.id from t where x = (select min(u.u) from u, ref where u.id = ref.id and name = 'a') -> taken
         select x, count(*) from t join u using (id) group by x having count(*) > 1 and count(1) > 2 and max(x) < 9 -> taken
         select t.id from t join u on true where true and 1 = 1 and not false -> taken
         select t.id from t, u where false or null::boolean -> taken
         select t.id from t where $1 = 1 and now() > '2024-01-01' and not exists (select from u) -> taken",
    );
}

#[test]
fn a_column_of_a_join_that_is_a_value_is_no_column() {
    check(
        "select * from (select $1 as k, id from t) s left join ref using (id) where s.k = 3 -> gate
         select * from (select 5 as k, id from t) s left join ref using (id) where k = $1 -> gate
         select * from (select id, exists (select from u) from t) s (id, k) left join ref using (id) where k -> gate
         select * from (select a.* from (select $1 as k, id from t) a) s left join ref using (id) where k = 3 -> gate
         select * from (select a.k as z, id from (select $1 as k, id from t) a) s left join ref using (id) where z = 3 -> gate
         with c (n) as (values ($1)) select * from c, t where n = 3 -> gate
         select * from (values (1)) v, t where column1 = $1 -> gate
         select * from (values (1), (2)) v (n), t where v.n = $1 -> taken
         select t.id from abs(1) n, t where n = $1 -> gate
         select t.id from abs(1) as n (m), t where n.m = $1 -> gate
         select t.id from t, abs(t.x) n where n = $1 -> taken
         select t.id from generate_series(1, 3) n, t where n = $1 -> taken
         select t.id from t, jsonb_array_elements('[1]') n where n = $1 -> taken
         select * from (select now(), id from t) s left join ref using (id) where s.now > '2024-01-01' -> gate
         select * from (select $1 as k, id from t) s left join ref using (id) where s.id = 3 -> taken
         select * from t left join ref using (id) where t.x in (select 5 from u) and exists (select 1 from u where u.id = t.id) -> taken",
    );
}

#[test]
fn an_aggregate_over_a_join_is_named_by_the_query_around() {
    check(
        "select count(*) from (select max(t.id), count(*) from t, ref) s -> unused_aggregate
         select t.id from t, (select count(*) from ref a join ref b using (id)) s -> unused_aggregate
         with s as (select count(*) from ref a join ref b using (id)) select 5 from s, t -> unused_aggregate
         with s as (select count(*) n from ref a join ref b using (id)) select s.n from s, t -> taken
         select max from (select max(t.id) from t, ref) s -> taken
         select * from (select max(t.id) from t, ref) s -> taken
         select count(*) from (select max(t.id) m from t, ref) s where m > 3 -> taken
         select s.k from (select max(t.id), lower('A') k from t, ref) s -> unused_aggregate
         select s.b from (select max(t.id), min(t.id) from t, ref) s (a, b) -> taken
         select count(*) from (select s.m from (select max(t.id) m from t, ref) s) z -> unused_aggregate
         select count(*) from (select max(t.id) from t, ref union all select 1) s -> unused_aggregate
         select count(*) from (select max(t.id) from t, ref group by t.x) s -> taken
         select count(*) from (select max(id) from t) s -> taken
         select count(*) from (select t.id, lower(t.name) from t, ref) s -> taken
         select (select max(t.id) from t, ref) from u where u.u = (select count(*) from t, ref) -> taken",
    );
}

#[test]
fn ties_of_an_aggregate_that_is_the_first_row_of_an_order_are_refused() {
    check(
        "select max(x) from t order by 1 fetch first 3 rows with ties -> ties_of_extreme
         select 1 + (select 2 from t having min(x) > 1 order by 1 fetch first row with ties) from u -> ties_of_extreme
         select count(*), bool_and(x > 1) from t order by 1 fetch first row with ties -> ties_of_extreme
         select max(x) from t order by 1 fetch first 3 rows only -> taken
         select id, max(x) from t group by id order by 1 fetch first 3 rows with ties -> taken
         select sum(x) from t order by 1 fetch first 3 rows with ties -> taken",
    );
}

#[test]
fn a_column_of_a_join_has_one_value() {
    check(
        "select t.id from t left join ref on ref.id = t.x where t.id = $1 and t.id = $2 -> gate
         select t.id from t left join ref on ref.id = t.x where t.id = $1 and t.id = $1 -> taken
         select t.id from t left join ref on ref.id = t.x where t.id = $1 and t.x = $2 -> taken
         select t.id from t left join ref on ref.id = t.x where t.x = $1 and ref.id = $2 -> gate
         select t.id from t, u where t.id = u.t_id and t_id = 1 and t.id = (select min(id) from ref) -> gate
         select t.id from t, u where (t.id, t.x) = ($1, 1) and id in (2) -> gate
         select t.id from t, u where t.x = u.u and t.id = $1 and u.id = $2 -> taken
         select t.id from t, u where t.id = 5 and t.id = 6 -> taken
         select t.id from t, u where t.name = date '2024-01-01' and t.name = timestamptz '2024-01-01' -> gate
         select t.id from t, u where t.name = current_date and t.name = '2024-01-01' -> gate
         select t.id from t, lateral (select u.id from u left join ref using (id) where u.u = t.x and u.u = 5 limit 2) z -> gate
         select * from (select id from t where id = $1) s left join ref using (id) where s.id = $2 -> gate
         select * from (select id as a from t where id = $1) s left join ref on ref.id = a where a = $2 -> gate
         select * from (select id, x from t where id = $1) s (a, b) left join ref on ref.id = a where a = $2 -> gate
         select * from (select id, x from t where id = $1) s (a, b) left join ref on ref.id = a where b = $2 -> taken
         with c (a) as (select * from t where id = $1) select * from c left join ref on ref.id = c.a where c.id = $2 -> gate
         with c as (select id a from (select t.id from t where id = now()) z) select * from c left join ref on ref.id = c.a where c.a = $2 -> gate
         select t.id from t where id = $1 and id = $2 -> taken",
    );
}
