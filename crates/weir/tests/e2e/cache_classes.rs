//! Functions that a read runs without naming them: those of operator classes, and those that make values of a type.

use super::cache::{is_hit, warm};
use crate::support::ground::wait_for_catalog;
use crate::support::time::check_never;
use crate::support::{Ground, Proxy};
use std::time::Duration;

/// With global causal reads an answer of a server is as new as one from memory must be.
const ON: &str = "memory_cache_enabled = on\ncausal_reads = global";

/// A type that is sorted and hashed by functions which write, outside of `search_path`; its operators are fine.
const CLASSES: &str = "
    create schema ops; create table goal (a int); create table plain (a int); insert into plain values (1), (2);
    create type version as (major int, minor int); create domain release as version;
    create function ops.lt(a version, b version) returns boolean language sql immutable as 'select a.major < b.major';
    create function ops.le(a version, b version) returns boolean language sql immutable as 'select a.major <= b.major';
    create function ops.eq(a version, b version) returns boolean language sql immutable as 'select a.major = b.major';
    create function ops.ge(a version, b version) returns boolean language sql immutable as 'select a.major >= b.major';
    create function ops.gt(a version, b version) returns boolean language sql immutable as 'select a.major > b.major';
    create operator ops.< (leftarg = version, rightarg = version, function = ops.lt, commutator = operator(ops.>));
    create operator ops.<= (leftarg = version, rightarg = version, function = ops.le, commutator = operator(ops.>=));
    create operator ops.= (leftarg = version, rightarg = version, function = ops.eq, commutator = operator(ops.=), merges, hashes);
    create operator ops.>= (leftarg = version, rightarg = version, function = ops.ge, commutator = operator(ops.<=));
    create operator ops.> (leftarg = version, rightarg = version, function = ops.gt, commutator = operator(ops.<));
    create function ops.compared(a version, b version) returns int language plpgsql volatile as
        'begin insert into public.goal values (a.major); return a.major - b.major; end';
    create function ops.hashed(a version) returns int language plpgsql volatile as
        'begin insert into public.goal values (a.major); return a.major; end';
    create operator class ops.sorted default for type version using btree as operator 1 ops.<, operator 2 ops.<=, operator 3 ops.=,
        operator 4 ops.>=, operator 5 ops.>, function 1 ops.compared(version, version);
    create operator class ops.hashed default for type version using hash as operator 1 ops.=, function 1 ops.hashed(version);
    create table versions (v version, n int); insert into versions values ('(1,2)', 1), ('(2,3)', 2), ('(1,5)', 3);
    create table lists (l version[]); insert into lists values ('{\"(1,2)\"}'), ('{\"(2,3)\"}');
    create table releases (r release); insert into releases values ('(1,2)'), ('(2,3)');
    create table indexed (v version, n int); create index on indexed (v); insert into indexed values ('(1,2)', 1);
    create view first_ones as select v from versions order by v limit 1;
    create function version_of(a int) returns version language plpgsql immutable as 'begin return row(a, a)::version; end';
    create table by_index (a int); create index on by_index (version_of(a)); insert into by_index values (1);
    create view of_numbers as select version_of(a) as v from plain order by 1;
    create view of_constants as select (c.v).major as a from (select distinct v from (values ('(1,2)'::version), ('(2,3)'::version)) as c (v)) as c, plain";

/// Runs each write, all of which must change the read's result, and checks that no old result is shown.
fn check_writes(ground: &Ground, proxies: &[&Proxy], read: &str, writes: &[&str]) {
    for proxy in proxies {
        let (mut reader, mut writer, mut direct) = (ground.client(proxy), ground.client(proxy), ground.direct());
        wait_for_catalog(&mut writer, &ground.database);
        for write in writes {
            let before = direct.rows(read);
            (0..3).for_each(|_| assert!(!is_hit(proxy, &mut reader, read), "{write}"));
            writer.run(write);
            assert_eq!(reader.rows(read), direct.rows(read), "{write}");
            assert_ne!(before, direct.rows(read), "{write} writes nothing");
        }
    }
}

#[test]
fn where_what_sorts_may_write_nothing_is_kept() {
    let ground = Ground::new();
    ground.prepare(CLASSES);
    let (proxy, others) = (ground.primary_proxy(ON), ground.proxy(ON));
    check_writes(
        &ground,
        &[&proxy, &others],
        "select count(*) from goal",
        &[
            "select n from versions order by v",
            "select distinct r from releases",
            "select * from first_ones",
            "select version_of(a) from plain order by 1",
            "select * from of_constants",
            "insert into indexed values ('(5,6)', 5)",
        ],
    );
    // It does not keep reads from standbys either: those refuse a function that writes.
    let (mut client, before) = (ground.client(&others), others.metric("reads_spread_total"));
    client.run("select n from versions");
    assert_eq!(others.metric("reads_spread_total"), before + 1);
    ground.prepare("alter function ops.compared(version, version) immutable; alter function ops.hashed(version) immutable");
    warm(&proxy, &mut ground.client(&proxy), "select a from plain order by a");
}

#[test]
fn what_an_order_says_tomorrow_is_not_kept() {
    let ground = Ground::new();
    ground.prepare(CLASSES);
    ground.prepare(
        "create table turned (t boolean); insert into turned values (false);
         create or replace function ops.compared(a version, b version) returns int language plpgsql stable as
            'begin return (a.major - b.major) * (select case when t then -1 else 1 end from public.turned); end';
         create or replace function ops.hashed(a version) returns int language plpgsql immutable as 'begin return a.major; end'",
    );
    let proxy = ground.primary_proxy(ON);
    let (mut reader, mut writer, mut direct) = (ground.client(&proxy), ground.client(&proxy), ground.direct());
    warm(&proxy, &mut reader, "select a from plain");
    for read in [
        "select n from versions order by v, n",
        "select r from releases order by r",
        "select * from first_ones",
        "select version_of(a) from plain order by 1",
        "select v from of_numbers",
    ] {
        for _ in 0..3 {
            reader.rows(read);
        }
        writer.run("update turned set t = not t");
        assert_eq!(reader.query(read), direct.query(read), "{read}");
    }
}

#[test]
fn a_class_over_a_type_of_postgresqls_own_may_run_anywhere() {
    let ground = Ground::new();
    ground.prepare(
        "create table goal (a int); create table t (a int); insert into t values (2), (1); create table plain (b text); insert into plain values ('x')",
    );
    let proxy = ground.proxy(ON);
    let (mut reader, mut admin) = (ground.client(&proxy), ground.client(&proxy));
    warm(&proxy, &mut reader, "select b from plain");
    admin.run(
        "create function compared(a int, b int) returns int language plpgsql volatile as 'begin insert into public.goal values (a); return a - b; end';
         create operator class mine for type int using btree as operator 1 <, operator 2 <=, operator 3 =, operator 4 >=, operator 5 >,
            function 1 compared(int, int);
         create index on t (a mine)",
    );
    wait_for_catalog(&mut admin, &ground.database);
    // Longer than it takes until answers are kept again behind a definition.
    check_never("an answer is kept", Duration::from_secs(4), || is_hit(&proxy, &mut reader, "select b from plain"));
    admin.run("alter function compared(int, int) immutable");
    warm(&proxy, &mut reader, "select b from plain");
    // An operator class that only an index uses, as in pg_trgm.
    admin.run(
        "create function alike(a text, b text) returns boolean language sql stable as 'select lower(a) = lower(b)';
         create operator %% (leftarg = text, rightarg = text, function = alike);
         create operator class by_likeness for type text using gin as operator 1 %%",
    );
    wait_for_catalog(&mut admin, &ground.database);
    warm(&proxy, &mut reader, "select b from plain order by b");
}

/// A check that writes, and types that hold it.
const CHECKED: &str = "
    create table goal (a int); create table plain (a int); insert into plain values (5);
    create function is_fine(a int) returns boolean language sql as 'insert into public.goal values (a); select true';
    create domain chk as int check (is_fine(value)); create type pair as (x chk, y int); create type span as range (subtype = chk);
    create domain list as chk[]; create domain dpair as pair;
    create table tchk (x chk, b int); insert into tchk values (5, 1); create table tarr (x chk[]); insert into tarr values ('{5}');
    create table tlist (x list); insert into tlist values ('{5}'); create table tpair (x pair); insert into tpair values ('(5,6)');
    create table tdpair (x dpair); insert into tdpair values ('(5,6)'); create table tspan (x span); insert into tspan values ('[1,5)');
    create function f(a chk) returns int language plpgsql immutable as 'begin return a; end';
    create function g(a int default '7'::chk) returns int language plpgsql immutable as 'begin return a; end';
    create function same(a chk, b chk) returns boolean language plpgsql immutable as 'begin return a = b; end';
    create operator === (leftarg = chk, rightarg = chk, function = same);
    create function added(a chk, b int) returns chk language plpgsql immutable as 'begin return a; end';
    create aggregate total(int) (sfunc = added, stype = chk, initcond = '0');
    create function first_of(anyelement, anyelement) returns anyelement language plpgsql immutable as 'begin return $1; end';
    create view parrs as select x from tarr; create view vchk as select x from tchk; create view vf as select f(a) as a from plain";

#[test]
fn where_a_check_may_write_nothing_is_kept() {
    let ground = Ground::new();
    ground.prepare(CHECKED);
    let read = "select count(*) from goal";
    let (proxy, others) = (ground.primary_proxy(ON), ground.proxy(ON));
    check_writes(
        &ground,
        &[&proxy, &others],
        read,
        &[
            "select 1 from tarr where x = '{5}'",
            "select coalesce(x, '(5,6)') from tdpair",
            "select 1 from tspan where x = '[1,5)'",
            "select f('5')",
            "select g()",
            "select total(a) from plain",
            "select array[x] = '{5}' from tchk",
            "select coalesce(t, '(5,6)') from tchk t",
        ],
    );
    let mut client = ground.client(&others);
    let before = client.rows(read);
    client.extended("select 1 from tarr where x = $1", &["{5}"]).unwrap();
    assert_eq!(client.rows(read), ground.direct().rows(read));
    assert_ne!(before, client.rows(read));
    let forced = format!("/*FORCE QUERY CACHE*/ {read}");
    (0..3).for_each(|_| assert!(!is_hit(&others, &mut client, &forced)));
}

#[test]
fn what_a_bare_value_becomes_tomorrow_is_not_kept() {
    let ground = Ground::new();
    ground.prepare(CHECKED);
    ground.prepare(
        "create table allowed (a int); insert into allowed values (5);
         create or replace function is_fine(a int) returns boolean language sql stable as 'select exists (select from public.allowed b where b.a = $1)'",
    );
    let proxy = ground.primary_proxy(ON);
    let (mut reader, mut writer, mut direct) = (ground.client(&proxy), ground.client(&proxy), ground.direct());
    warm(&proxy, &mut reader, "select a from plain");
    for read in [
        "select 1 from tlist where x = '{5}'",
        "select coalesce(x, '(5,6)') from tdpair",
        "select f('5'), a from plain",
        "select a from vf",
        "select first_of(x, '5') from vchk",
        "select array[x] = '{5}' from tchk",
        "select coalesce(t, '(5,6)') from tchk t",
    ] {
        for _ in 0..3 {
            reader.rows(read);
        }
        writer.run("delete from allowed");
        assert_eq!(reader.query(read), direct.query(read), "{read}");
        writer.run("insert into allowed values (5)");
    }
}
