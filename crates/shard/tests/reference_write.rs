//! Writes to reference tables that keep all copies equal, and the reasons against the others.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use weir_shard::{ReferenceTable, RelationKind, copies_stay_equal};
use weir_sql::key_terms;

/// `equal`, or the name of the reason. `ref` and `other` are reference tables; the columns `at` and `no` have defaults of each server. `watched` has a
/// trigger, `v` is a view, all others lie on shard 0.
fn told(text: &str) -> String {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let columns = names(&["id", "name", "at", "no"]);
    let table = ReferenceTable { columns: columns.clone(), unsteady_defaults: names(&["at", "no"]), obstacle: None };
    let plain = ReferenceTable { columns: names(&["id", "name"]), ..ReferenceTable::default() };
    let watched = ReferenceTable { obstacle: Some("it has a trigger".to_owned()), ..plain.clone() };
    let terms = key_terms(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    let found = copies_stay_equal(
        &terms,
        |name| match name.name.as_str() {
            "ref" | "other" | "watched" | "new" => RelationKind::Reference,
            "v" => RelationKind::Unknown,
            _ => RelationKind::Single,
        },
        |name| match name.name.as_str() {
            "ref" => Some(&table),
            "other" => Some(&plain),
            "watched" => Some(&watched),
            _ => None,
        },
    );
    found.map_or_else(|refusal| refusal.name().to_owned(), |()| "equal".to_owned())
}

/// A line is `statement -> equal`, or the reason.
fn check(lines: &str) {
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (text, expected) = line.rsplit_once(" -> ").unwrap();
        assert_eq!(told(text), expected, "{text}");
    }
}

#[test]
fn texts_with_one_outcome_keep_the_copies_equal() {
    check(
        "insert into other values (1, 'a'), (2, upper($1)) -> equal
         insert into other (name, id) values ('a', 1) returning id, name -> equal
         insert into other values (1, 'a') on conflict (id) do update set name = excluded.name -> equal
         insert into other values (1, 'a'), (1, 'b') on conflict do nothing -> equal
         insert into other default values -> equal
         insert into other (id) values (default) -> equal
         insert into other select id, name from ref where id > 3 order by id -> equal
         insert into other select id, name from other -> equal
         insert into other select i, 'name' from generate_series(1, 9) i -> equal
         insert into other select 1, lower('A') -> equal
         insert into other select id + 100, name || '!' from other -> equal
         insert into other (values (1, 'a'), (2, 'b') order by 1 limit 1) -> equal
         insert into other select 1, 'a' union select 2, 'b' -> equal
         insert into ref values (1, 'a', '2020-01-01', 3) -> equal
         insert into ref (no, at, id) select id, '2020-01-01', id from other -> equal
         update ref set name = 'x', at = $1 where id in (select id from other) -> equal
         update ref set name = (select name from other where other.id = ref.id) -> equal
         update other set name = default -> equal
         delete from ref -> equal
         delete from ref using other where other.id = ref.no returning * -> equal
         with o as (select id from other) delete from ref where id in (select id from o) -> equal",
    );
}

#[test]
fn texts_that_a_server_might_carry_out_otherwise_are_refused() {
    check(
        "select * from ref -> not_one_write
         with d as (delete from ref returning id) select * from d -> not_one_write
         with d as (delete from ref) delete from other -> not_one_write
         explain delete from ref -> explained
         insert into ref values (1, 'a') -> default
         insert into ref values (1, 'a', default, 3) -> default
         insert into ref (id, at) values (1, '2020-01-01') -> default
         insert into ref default values -> default
         insert into ref select 1, 'a', '2020-01-01', 2 -> default
         insert into ref (id, no, at) values (1, 2, '2020-01-01'), (1, 2, default) -> default
         insert into ref values (1, 'a', '2020-01-01', 3) on conflict (id) do update set at = default -> default
         update ref set at = default -> default
         update ref set (name, no) = ('a', default) -> default
         insert into other overriding user value values (1, 'a') -> overridden
         update ref set name = other.name from other where other.id = ref.id -> joined_update
         update ref set name = n from (values (1, 'a'), (1, 'b')) v (id, n) where v.id = ref.id -> joined_update
         update ref set name = (select max(name) from other) -> computed_query
         update ref set name = 'x' where id in (select id from ref limit 1) -> computed_query
         insert into ref (id, at, no) select id, '2020-01-01', 1 from ref limit 1 -> computed_query
         insert into other select count(*), 'all' from other -> computed_query
         insert into other select id + max(id), 'all' from other group by id -> computed_query
         insert into other select distinct id, name from other -> computed_query
         insert into other select id, name from ref union select id, name from other -> computed_query
         insert into other select id, name from ref on conflict do nothing -> conflict_of_query
         insert into other select i, 'a' from generate_series(1, 9) i on conflict do nothing -> conflict_of_query
         insert into other values (1, now()::text) -> transaction_time
         delete from ref where ctid = '(0,1)' -> system_columns
         delete from ref where id in (select id from other for update) -> locks_rows
         delete from ref where id in (select id from plain) -> reads_others
         delete from ref where id in (select id from v) -> reads_others
         delete from watched -> obstacle
         delete from new -> unknown_table",
    );
}
