//! Everything that may change an answer, tried against answers from memory.

use super::cache::{is_hit, warm};
use crate::support::raw::Message;
use crate::support::{Ground, Proxy, Raw, wait_until, wire};

/// With global causal reads an answer of a server is as new as one from memory must be.
const ON: &str = "memory_cache_enabled = on\ncausal_reads = global";

const OBJECTS: &str = "
    create table t (a int primary key, b text); insert into t values (1, 'one'), (2, 'two');
    create table big (a int, b int) partition by range (a);
    create table low partition of big for values from (0) to (10) partition by list (b);
    create table low_one partition of low for values in (1); create table low_two partition of low for values in (2);
    create table aside (a int, b int); insert into aside values (11, 1);
    create table top (a int); create table mid () inherits (top); create table bottom () inherits (mid);
    create table owner (a int primary key); create table owned (a int references owner on delete set null on update cascade);
    insert into owner values (1), (2), (3); insert into owned values (1), (2), (3);
    create view v as select a, b from t; create view vv as select count(*) as n from v;
    create materialized view m as select count(*) as n from t;
    create table ruled (a int); create table ruled_to (a int);
    create rule r as on update to ruled do instead insert into ruled_to values (new.a); insert into ruled values (1);
    create table watched (a int); create table log (a text);
    create function note() returns trigger language plpgsql as 'begin insert into log values (tg_op); return null; end';
    create trigger n after insert or truncate on watched for each statement execute function note();
    create view target as select a from watched;
    create function into_target() returns trigger language plpgsql as 'begin insert into log values (new.a::text); return new; end';
    create trigger i instead of insert on target for each row execute function into_target();
    create domain small as int check (value < 10); create table of_domain (a small); insert into of_domain values (1);
    create type mood as enum ('sad', 'happy'); create table moods (a mood); insert into moods values ('sad'), ('happy');
    create function twice(a int) returns int language sql immutable as 'select a * 2';
    create function label(a int) returns text language sql immutable as 'select ''old''';
    create view labels as select label(a) as l from t;
    create table generated (a int, b int generated always as (a * 2) stored); insert into generated (a) values (1);
    create sequence s; create table drawn (a int default nextval('s'), b int);
    create schema other; create table other.t (a int, b text); insert into other.t values (9, 'nine');
    create table sorted (a text); insert into sorted values ('a'), ('B');
    create table guarded (a int); insert into guarded values (1), (2);
    create type pair as (x int, y int); create table pairs (p pair); insert into pairs values ((1, 2));
    create table tracked (a int); create function fire() returns event_trigger language plpgsql as 'begin insert into log values (tg_tag); end';
";

/// Reads, each with statements that change its result, each by itself.
const CASES: &[(&str, &[&str])] = &[
    ("select count(*) from big", &["insert into low_one values (1, 1)"]),
    ("select count(*) from low_two", &["insert into big values (2, 2)"]),
    ("select count(*) from low", &["insert into low_two values (3, 2)"]),
    ("select count(*) from low_one", &["update big set b = 2 where b = 1"]),
    ("select count(*) from big", &["alter table big attach partition aside for values from (10) to (20)"]),
    ("select count(*) from big", &["insert into aside values (12, 5)"]),
    ("select count(*) from aside", &["delete from big where a = 12"]),
    ("select count(*) from low_two", &["truncate low"]),
    ("select count(*) from big", &["drop table aside"]),
    ("select count(*) from top", &["insert into bottom values (1)"]),
    ("select count(*) from bottom", &["update mid set a = 2", "delete from top where a = 2"]),
    ("select count(*) from top", &["insert into mid values (5)"]),
    ("select count(*) from only top", &["insert into top values (6)"]),
    ("select count(*) from top", &["alter table mid no inherit top"]),
    ("select count(a) from owned", &["delete from owner where a = 1"]),
    ("select sum(a) from owned", &["update owner set a = 20 where a = 2"]),
    ("select count(*) from owned", &["truncate owner cascade"]),
    ("select n from vv", &["insert into v values (3, 'three')"]),
    ("select n from vv", &["create or replace view v as select a, b from t where a > 1"]),
    ("select n from m", &["refresh materialized view m"]),
    ("select count(*) from ruled_to", &["update ruled set a = 2"]),
    ("select count(*) from log", &["insert into watched values (1)"]),
    ("select count(*) from log", &["truncate watched"]),
    ("select count(*) from log", &["insert into target values (1)"]),
    ("select count(*) from log", &["copy watched from program 'echo 5'"]),
    ("select a from of_domain", &["alter domain small drop constraint small_check", "update of_domain set a = 11"]),
    ("select max(a) from moods", &["alter type mood add value 'glad' after 'happy'", "insert into moods values ('glad')"]),
    ("select a from moods order by a limit 1", &["alter type mood rename value 'sad' to 'blue'"]),
    (
        "select label(1), a from t where a = 1",
        &["create or replace function label(a int) returns text language sql immutable as 'select ''new'''"],
    ),
    (
        "select l from labels limit 1",
        &["create or replace function label(a int) returns text language sql immutable as 'select ''newer'''"],
    ),
    ("select b from generated", &["update generated set a = 4"]),
    ("select count(*), max(a) from drawn", &["insert into drawn (b) select 1 from generate_series(1, 2)"]),
    (
        "select b from t where a = 2",
        &["alter table t rename to t_old", "alter table other.t set schema public", "update t set b = 'far', a = 2"],
    ),
    (
        "select b from t where a = 2",
        &[
            "drop table t cascade",
            "alter table t_old rename to t",
            "insert into t values (7, 'seven')",
            "update t set b = 'back' where a = 2",
        ],
    ),
    (
        "select * from t order by a",
        &[
            "drop materialized view m",
            "drop view v, vv, labels cascade",
            "alter table t alter b type varchar(2) using left(b, 2)",
        ],
    ),
    ("select * from t order by a", &["alter table t rename b to c"]),
    ("select * from t order by a", &["alter table t drop c"]),
    (
        "select a from t order by a",
        &[
            "merge into t using (values (1), (50)) s (a) on t.a = s.a when matched then delete when not matched then insert values (s.a)",
        ],
    ),
    ("select a from sorted order by a", &["alter table sorted alter a type int using length(a)"]),
    ("select (p).x from pairs", &["alter type pair drop attribute y cascade", "update pairs set p = row(5)"]),
    (
        "select count(*) from guarded",
        &["with w as (delete from guarded where a = 1 returning *) insert into log select a::text from w"],
    ),
    ("select count(*) from log", &["with w as (delete from guarded returning *) insert into log select a::text from w"]),
    ("select count(*) from tracked", &["do $$ begin execute 'insert into tracked values (1)'; end $$"]),
    ("select count(*) from tracked", &["prepare p as insert into tracked values ($1)", "execute p (1)"]),
    ("select count(*) from tracked", &["explain analyze execute p (2)"]),
    ("select count(*) from tracked", &["insert into tracked select 4"]),
    (
        "select count(*) from tracked",
        &[
            "begin",
            "declare c cursor for select a from tracked for update",
            "fetch c",
            "delete from tracked where current of c",
            "commit",
        ],
    ),
    (
        "select count(*) from log",
        &[
            "create event trigger ev on ddl_command_end execute function fire()",
            "create table fired (a int)",
            "drop event trigger ev",
        ],
    ),
    ("select count(*) from tracked", &["table tracked", "insert into tracked table tracked"]),
    (
        "select count(*) from tracked",
        &[
            "begin",
            "insert into tracked values (1)",
            "savepoint a",
            "delete from tracked",
            "rollback to a",
            "release a",
            "commit and chain",
            "insert into tracked values (1)",
            "commit",
        ],
    ),
    (
        "select count(*) from tracked",
        &[
            "select count(*) into tracked_too from tracked",
            "drop table tracked",
            "alter table tracked_too rename to tracked",
            "insert into tracked values (7)",
        ],
    ),
];

/// An answer to its last byte, column names and errors included.
fn told(client: &mut Raw, text: &str) -> Vec<Message> {
    client.query(text)
}

fn check(proxy: &Proxy, cases: &[(&str, &[&str])], reader: &mut Raw, writer: &mut Raw, direct: &mut Raw) {
    for (read, writes) in cases {
        warm(proxy, reader, read);
        let before = told(reader, read);
        assert_eq!(before, told(direct, read), "{read}");
        for write in *writes {
            writer.run(write);
            assert_eq!(told(reader, read), told(direct, read), "{read} after {write}");
        }
        assert_ne!(before, told(reader, read), "{writes:?} does not change {read}");
    }
}

#[test]
fn whatever_changes_an_answer_is_seen() {
    let ground = Ground::new();
    ground.prepare(OBJECTS);
    let proxy = ground.proxy(ON);
    let (mut reader, mut writer, mut direct) = (ground.client(&proxy), ground.client(&proxy), ground.direct());
    check(&proxy, CASES, &mut reader, &mut writer, &mut direct);
}

/// A setting, and a read that it answers otherwise.
const SETTINGS: &[(&str, &str)] = &[
    ("set datestyle = 'German'", "select d from f"),
    ("set datestyle = 'SQL, DMY'", "select d::text || z from f"),
    ("set intervalstyle = 'iso_8601'", "select i from f"),
    ("set timezone = 'Asia/Tokyo'", "select z from f"),
    ("set timezone = 'Asia/Tokyo'", "select date_trunc('day', z) from f"),
    ("set timezone = 'Asia/Tokyo'", "select extract(hour from z) from f"),
    ("set extra_float_digits = -5", "select x from f"),
    ("set bytea_output = 'escape'", "select b from f"),
    ("set xmlbinary = 'hex'", "select xmlelement(name a, b) from f"),
    ("set lc_monetary = 'C.UTF-8'; set datestyle = 'German'", "select m, d from f"),
    ("set client_encoding = 'LATIN1'", "select u from f"),
    ("set standard_conforming_strings = off", r"select a from f where 'a\\b' = t"),
    ("set array_nulls = off", "select ('{null}'::text || t)::text from f"),
    ("set quote_all_identifiers = on", "select quote_ident(u), a from f"),
    ("set transform_null_equals = on", "select count(*) from f where n = null"),
    ("set default_text_search_config = 'english'", "select to_tsvector(w) from f"),
    ("set search_path = other", "select * from f"),
    ("set search_path = public, other", "select * from only_other"),
    ("set session characteristics as transaction isolation level serializable", "select a from f"),
    ("set role reader_", "select a from f"),
    ("set session authorization reader_", "select a from f"),
    ("set row_security = off", "select a from secret"),
];

#[test]
fn no_setting_is_answered_for_by_another() {
    let ground = Ground::new();
    let role = format!("reader_{}", ground.database);
    ground.prepare(&format!(
        "create table f as select 1 as a, date '2020-02-01' as d, interval '1 day 2 h' as i, timestamptz '2020-01-01 22:00+00' as z,
             1.1::float8 / 3 as x, '\\x4100'::bytea as b, 12.5::money as m, 'ä' as u, 'a\\b' as t, null::int as n, 'running dogs' as w;
         create schema other; create table other.f as select 'other' as a; create table other.only_other as select 1 as a;
         create table secret (a int); insert into secret values (1); create role {role} login; grant usage on schema public to {role};
         grant select on secret to {role}; alter table secret enable row level security; create policy p on secret using (a > 1)"
    ));
    let proxy = ground.proxy(ON);
    for (change, read) in SETTINGS {
        let change = change.replace("reader_", &role);
        let (mut plain, mut other, mut direct) = (ground.client(&proxy), ground.client(&proxy), ground.direct());
        for _ in 0..3 {
            assert_eq!(told(&mut plain, read), told(&mut direct, read), "{read}");
        }
        other.run(&change);
        direct.run(&change);
        for _ in 0..3 {
            assert_eq!(told(&mut other, read), told(&mut direct, read), "{read} after {change}");
        }
        other.run("reset all; reset role; reset session authorization");
        direct.run("reset all; reset role; reset session authorization");
        assert_eq!(told(&mut other, read), told(&mut direct, read), "{read} after a reset of {change}");
        // Set for the transaction only.
        other.run(&format!("begin; {}", change.replace("set ", "set local ").replace("local session characteristics as ", "")));
        direct.run(&format!("begin; {}", change.replace("set ", "set local ").replace("local session characteristics as ", "")));
        assert_eq!(told(&mut other, read), told(&mut direct, read), "{read} in a transaction with {change}");
        other.run("rollback");
        assert_eq!(told(&mut other, read), told(&mut plain, read), "{read} after it");
    }
    // Defaults of new sessions.
    let mut admin = ground.client(&proxy);
    let read = "select d from f";
    warm(&proxy, &mut admin, read);
    for (text, back) in [
        (
            format!("alter database {} set datestyle = 'German'", ground.database),
            format!("alter database {} reset datestyle", ground.database),
        ),
        (
            format!("alter role postgres in database {} set search_path = other", ground.database),
            format!("alter role postgres in database {} reset search_path", ground.database),
        ),
    ] {
        let read = if text.contains("search_path") { "select * from f" } else { read };
        told(&mut admin, read);
        admin.run(&text);
        let (mut fresh, mut direct) = (ground.client(&proxy), ground.direct());
        for _ in 0..3 {
            assert_eq!(told(&mut fresh, read), told(&mut direct, read), "{read} after {text}");
        }
        admin.run(&back);
        let (mut fresh, mut direct) = (ground.client(&proxy), ground.direct());
        for _ in 0..3 {
            assert_eq!(told(&mut fresh, read), told(&mut direct, read), "{read} after {back}");
        }
    }
    admin.run(&format!("drop owned by {role}; drop role {role}"));
}

const WRITERS: &str = "
    create table t (a int); insert into t values (1); create table goal (a int);
    create function f(a int) returns int language sql volatile as 'insert into goal values (a) returning a';
    create function ff(a int) returns int language plpgsql volatile as 'begin perform f(a); return a; end';
    create function rows_of(a int) returns setof int language sql volatile as 'insert into goal values (a) returning a';
    create function together(a int, b int) returns int language sql volatile as 'insert into goal values (a + b) returning a';
    create operator +@+ (leftarg = int, rightarg = int, function = together);
    create aggregate summed(int) (sfunc = together, stype = int, initcond = '0');
    create function is_fine(a int) returns boolean language sql volatile as 'insert into goal values (a); select true';
    create table limited (a int check (is_fine(a)));
    create view writing as select f(a) as a from t; create view behind as select a from writing;
    create table defaulted (a int default f(7), b int);
    create table late (a int); create function at_commit() returns trigger language plpgsql as 'begin insert into goal values (1); return null; end';
    create constraint trigger l after insert on late deferrable initially deferred for each row execute function at_commit();
    create procedure p(a int) language plpgsql as 'begin insert into goal values (a); commit; insert into goal values (a); end';
    create table filtered (a int); create function in_where(a int) returns int language sql volatile as 'insert into goal values (a) returning a';
";

/// Ways to write without saying so.
const UNSAID: &[&[&str]] = &[
    &["select ff(1)"],
    &["select 1 from t order by f(1)"],
    &["select a from t where f(a) > 0"],
    &["select x.a from t, lateral rows_of(t.a) as x (a)"],
    &["values (f(1))"],
    &["select a +@+ 1 from t"],
    &["select summed(a) from t"],
    &["insert into limited values (1)"],
    &["select a from behind"],
    &["table writing"],
    &["insert into defaulted (b) values (1)"],
    &["begin", "insert into late values (1)", "commit"],
    &["begin", "insert into late values (1)", "set constraints all immediate", "commit"],
    &["call p(f(1))"],
    &["create temp table made as select f(3)"],
    &["select f(4) into temp made_too"],
    &["copy (select f(1)) to stdout"],
    &["copy (insert into goal values (1) returning a) to stdout"],
    &["copy filtered from program 'echo 1' where in_where(a) > 0"],
    &["begin", "declare c cursor for select f(1) from t", "fetch c", "commit"],
    &["begin", "declare c cursor with hold for select f(1) from t", "commit", "close c"],
    &["prepare w as select f($1)", "execute w (1)", "execute w (f(2))", "deallocate w"],
    &["explain analyze select f(1)"],
    &["do $$ begin perform f(1); end $$"],
    &["select case when a > 0 then f(a) end, coalesce(null, f(1)), array(select f(2)) from t"],
    &["with w as materialized (select f(1)) select 1 from w"],
    &["select count(*) filter (where f(a) > 0) from t"],
    &["select sum(a) over (order by f(a)) from t"],
    &["select a from t group by a having f(a) > 0"],
    &["select a from t limit f(1)"],
    &["select 1 from t for update", "update t set a = f(a)"],
    &["insert into t select f(1) returning f(2)"],
    &["delete from t where a = f(-5)"],
    &[
        "begin",
        "prepare transaction 'GOAL'",
        "begin",
        "insert into goal values (1)",
        "prepare transaction 'GOAL2'",
        "commit prepared 'GOAL2'",
        "rollback prepared 'GOAL'",
    ],
];

#[test]
fn writes_that_no_text_shows_are_seen() {
    let ground = Ground::new();
    ground.prepare(WRITERS);
    let proxy = ground.proxy(ON);
    let (mut reader, mut writer, mut direct) = (ground.client(&proxy), ground.client(&proxy), ground.direct());
    let read = "select count(*) from goal";
    for texts in UNSAID {
        let before = warm(&proxy, &mut reader, read);
        for text in *texts {
            writer.run(&text.replace("GOAL", &ground.database));
            assert_eq!(reader.rows(read), direct.rows(read), "{text}");
            // Asked again in between: an answer that is kept then must not outlive the commit.
            reader.run(read);
        }
        assert_ne!(before, direct.rows(read), "{texts:?} writes nothing");
    }
    // By the protocol's own function call, and by a portal that is run bit by bit.
    warm(&proxy, &mut reader, read);
    let number: u32 = direct.value("select 'f(int)'::regprocedure::oid").parse().unwrap();
    writer.send(&wire::function_call(number, &["5"]));
    writer.until_ready();
    assert_eq!(reader.rows(read), direct.rows(read));
    warm(&proxy, &mut reader, read);
    writer.run("begin");
    let bound =
        [wire::parse("", "select f(g) from generate_series(1, 3) g"), wire::bind("slow", "", &[]), wire::execute("slow", 1)];
    writer.send(&[bound.concat(), wire::sync()].concat());
    writer.until_ready();
    writer.send(&[wire::execute("slow", 0), wire::sync()].concat());
    writer.until_ready();
    writer.run("commit");
    assert_eq!(reader.rows(read), direct.rows(read));
}

#[test]
fn what_hangs_on_the_transaction_or_the_session_is_not_kept() {
    let ground = Ground::new();
    ground.prepare("create table t as select 1 as a");
    let proxy = ground.primary_proxy(ON);
    let (mut client, mut other, mut direct) = (ground.client(&proxy), ground.client(&proxy), ground.direct());
    warm(&proxy, &mut client, "select a from t");
    for read in [
        "select current_setting('transaction_read_only'), a from t",
        "select current_setting('transaction_isolation'), current_setting('app.own', true), a from t",
        "select setting, a from t, pg_settings where name = 'transaction_read_only'",
        "select exists (select from pg_class where relnamespace = pg_my_temp_schema() and relname = 'made'), a from t",
        "select pg_listening_channels(), a from t",
        "select count(*) from pg_cursors, t",
        "select count(*) from pg_prepared_statements, t",
        "select count(*) from pg_prepared_xacts, t",
        "select count(*) from pg_locks, t where locktype = 'advisory'",
        "select has_table_privilege('t', 'select'), current_user, session_user, current_schema(), a from t",
        "select 't'::regclass, to_regclass('made') is null, a from t",
        "select pg_current_xact_id_if_assigned() is null, a from t",
        "select count(*) from information_schema.tables, t where table_name = 'made'",
        "select obj_description('t'::regclass), a from t",
        "select a, xmin, ctid from t",
        "select a, tableoid::regclass from t",
    ] {
        for _ in 0..3 {
            assert_eq!(told(&mut client, read).len(), told(&mut direct, read).len(), "{read}");
        }
        for client in [&mut other, &mut direct] {
            for text in [
                "begin read only",
                "set local app.own = 'x'",
                "declare c cursor for select 1",
                "prepare p as select 1",
                "select pg_advisory_xact_lock_shared(hashtext(current_database()))",
            ] {
                client.run(text);
            }
        }
        assert_eq!(told(&mut other, read), told(&mut direct, read), "{read}");
        for client in [&mut other, &mut direct] {
            for text in ["commit", "deallocate p", "create temp table made (a int)", "listen here"] {
                client.run(text);
            }
        }
        assert_eq!(told(&mut other, read), told(&mut direct, read), "{read} beside a temporary table");
        [&mut other, &mut direct].into_iter().for_each(|client| client.run("discard all"));
        direct.run("update t set a = a");
        client.run("update t set a = a");
    }
}

#[test]
fn where_casts_may_write_nothing_is_kept() {
    let ground = Ground::new();
    ground.prepare(
        "create table goal (a int); create function is_fine(a int) returns boolean language sql volatile as 'insert into goal values (a); select true'",
    );
    let proxy = ground.proxy(ON);
    let (mut reader, mut writer, mut direct) = (ground.client(&proxy), ground.client(&proxy), ground.direct());
    let read = "select count(*) from goal";
    warm(&proxy, &mut reader, read);
    // Past Weir, so that only the catalog tells of it.
    direct.run("create domain checked as int check (is_fine(value)); create table of_domain (a checked)");
    wait_until("the domain to be known", || (0..3).all(|_| !is_hit(&proxy, &mut reader, read)));
    for write in ["select 5::checked", "insert into of_domain values (1)", "select cast(a as checked) from goal limit 1"] {
        let before = reader.rows(read);
        writer.run(write);
        assert_eq!(reader.rows(read), direct.rows(read), "{write}");
        assert_ne!(before, direct.rows(read), "{write} writes nothing");
    }
    writer.run("drop domain checked cascade");
    warm(&proxy, &mut reader, read);
}
