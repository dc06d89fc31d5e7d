//! The catalog's knowledge for the query cache: results that may be cached, and changes that make them stale.

use super::cache::{is_hit, warm};
use crate::support::ground::cluster;
use crate::support::{Ground, Proxy, Raw, wait_until, wire};

/// With global causal reads an answer of a server is as new as one from memory must be.
const ON: &str = "memory_cache_enabled = on\ncausal_reads = global";

/// Reads, each with a superuser's change past Weir that is not in the result's tables, and the change back.
const PAST_WEIR: &[(&str, &str, &str)] = &[
    ("select * from t", "alter table t rename b to c", "alter table t rename c to b"),
    ("select * from t", "alter table t alter d type text", "alter table t alter d type int using d::int"),
    ("select * from v", "alter view v rename b to c", "alter view v rename c to b"),
    ("select * from t", "alter table t drop d", ""),
    ("select m from moods", "alter type mood rename value 'sad' to 'blue'", "alter type mood rename value 'blue' to 'sad'"),
    ("select 'sad'::mood, a from t", "alter type mood rename to humor", "alter type humor rename to mood"),
    ("select * from t", "revoke select on t from ROLE", "grant select on t to ROLE"),
    ("select a from u", "revoke select (a) on u from ROLE", "grant select (a) on u to ROLE"),
    ("select * from of_group", "revoke ROLE_group from ROLE", "grant ROLE_group to ROLE"),
    ("select * from of_group", "alter role ROLE noinherit; revoke ROLE_group from ROLE; grant ROLE_group to ROLE", ""),
    ("select * from v", "alter view v owner to ROLE_group", "alter view v owner to postgres"),
    ("select a from hidden", "alter role ROLE nosuperuser", ""),
];

/// A session of the user who asks.
fn reader(ground: &Ground, proxy: &Proxy, role: &str) -> Raw {
    Raw::tcp(proxy.port()).log_in(role, &ground.database, &[]).unwrap_or_else(|failure| panic!("cannot log in: {failure:?}"))
}

/// The rows, or the error's code, with the names of the columns.
fn told(client: &mut Raw, text: &str) -> Vec<String> {
    client.query(text).iter().filter(|message| matches!(message.tag, b'T' | b'D' | b'E')).map(|message| message.text()).collect()
}

#[test]
fn what_is_changed_past_weir_is_noticed_where_no_table_tells_of_it() {
    let ground = Ground::new();
    let role = format!("past_{}", ground.database);
    ground.prepare(&format!(
        "grant usage on schema public to public; create role {role} login; create role {role}_group; grant {role}_group to {role};
         create type mood as enum ('sad', 'glad'); create table moods (m mood); insert into moods values ('sad');
         create table t (a int, b text, d int); insert into t values (1, 'one', 2); create view v as select a, b from t;
         create table u (a int, b int); insert into u values (1, 2); grant select (a) on u to {role};
         create table of_group (a int); grant select on of_group to {role}_group; create table hidden (a int);
         grant select on t, v, moods to {role}"
    ));
    let proxy = ground.proxy(ON);
    let mut admin = ground.direct();
    for (read, change, back) in PAST_WEIR {
        if read.contains("hidden") {
            admin.run(&format!("alter role {role} superuser"));
        }
        let mut reader = reader(&ground, &proxy, &role);
        warm(&proxy, &mut reader, read);
        let before = told(&mut reader, read);
        change.replace("ROLE", &role).split("; ").for_each(|text| admin.run(text));
        wait_until(&format!("{change} to be noticed by {read}"), || told(&mut reader, read) != before);
        if !back.is_empty() {
            admin.run(&back.replace("ROLE", &role));
            wait_until(&format!("{back} to be noticed by {read}"), || told(&mut reader, read) == before);
        }
    }
    admin.run(&format!("drop owned by {role}, {role}_group; drop role {role}, {role}_group"));
}

#[test]
fn what_a_reload_of_the_servers_configuration_changes_is_noticed() {
    let cluster = cluster(0);
    let primary = cluster.primary();
    primary.query("create table t as select date '2026-02-01' as d, 1::float8 / 3 as f").unwrap();
    let proxy = Proxy::start(&cluster, ON);
    let mut reader = Raw::tcp(proxy.port()).log_in("postgres", "postgres", &[]).unwrap();
    let said = |reader: &mut Raw| reader.rows("select d, f from t")[0].join(" ");
    for (change, wanted) in [
        ("datestyle = 'German'", "01.02.2026 0.3333333333333333"),
        ("extra_float_digits = -3", "01.02.2026 0.333333333333"),
        ("datestyle = 'ISO'", "2026-02-01 0.333333333333"),
    ] {
        warm(&proxy, &mut reader, "select d, f from t");
        primary.query(&format!("alter system set {change}")).unwrap();
        primary.reload().unwrap();
        wait_until(&format!("{change} to count"), || said(&mut reader) == wanted);
    }
}

#[test]
fn a_partition_that_is_being_detached_is_gone_before_it_is_detached() {
    let ground = Ground::new();
    if ground.direct().value("show server_version_num").parse::<u32>().unwrap() < 140_000 {
        return;
    }
    ground.prepare(
        "create table parent (a int) partition by list (a); create table part partition of parent for values in (1);
         create table other partition of parent for values in (2); insert into parent values (1), (2);
         alter table part add check (a is not null and a = 1)",
    );
    // With that check none is added, by which it would be seen.
    let proxy = ground.proxy(ON);
    let (mut reader, mut holder, mut owner) = (ground.client(&proxy), ground.direct(), ground.direct());
    let read = "select count(*) from parent";
    warm(&proxy, &mut reader, read);
    holder.run("begin");
    holder.run(read);
    owner.send(&wire::query("alter table parent detach partition part concurrently"));
    wait_until("the partition to be passed over", || reader.value(read) == "1");
    assert_eq!(ground.direct().value("select count(*) from pg_inherits where inhdetachpending"), "1", "it is not done");
    holder.run("commit");
    assert_eq!(owner.tags(), "CZ");
}

#[test]
fn a_database_that_is_dropped_past_weir_is_not_answered_for() {
    let ground = Ground::new();
    let name = format!("{}_dropped", ground.database);
    let primary = ground.cluster.primary();
    primary.query(&format!("create database {name}")).unwrap();
    let mut sql = primary.connect("postgres", &name).unwrap();
    sql.query("create table t (a int); insert into t values (1)").unwrap();
    drop(sql);
    ground.cluster.wait_caught_up().unwrap();
    let proxy = ground.proxy(ON);
    let mut reader = Raw::tcp(proxy.port()).log_in("postgres", &name, &[]).unwrap();
    warm(&proxy, &mut reader, "select a from t");
    primary.query(&format!("drop database {name} with (force)")).unwrap();
    wait_until("the database to be gone", || reader.try_rows("select a from t").is_err());
}

#[test]
fn numbers_that_show_a_name_are_not_kept() {
    let ground = Ground::new();
    ground.prepare(
        "create table t (a int); insert into t values (1); create index named on t (a); create domain table_name as regclass;
         create table by_class (r regclass, n int); insert into by_class values ('named', 1);
         create table by_role (r regrole, n int); insert into by_role values ('postgres', 1);
         create table by_domain (r table_name); insert into by_domain values ('named');
         create table by_array (r regclass[]); insert into by_array values ('{named}');
         create view v as select r from by_class;
         create type holder as (r regclass, n int); create function the_index() returns regclass language sql immutable as 'select ''named''::regclass';
         create view shown as select 'named'::regclass as r from t; create view as_text as select 'named'::regclass::text as r from t;
         create view in_concat as select concat('named'::regclass, a) as r from t; create view in_array as select concat('{named}'::regclass[]) as r from t;
         create view in_row as select concat('(named,1)'::holder) as r from t; create view by_function as select concat(the_index()) as r from t;
         create view by_number as select concat(a::oid::regclass) as r from t; create view as_role as select concat((a + 9)::oid::regrole) as r from t;
         create view of_type as select concat('int'::regtype) as r from t; create table by_type (r regtype); insert into by_type values ('int')",
    );
    let proxy = ground.proxy(ON);
    let (mut reader, mut admin) = (ground.client(&proxy), ground.direct());
    for kept in ["select a from t", "select r from by_type", "select r from of_type"] {
        warm(&proxy, &mut reader, kept);
    }
    let reads = ["by_class", "by_role", "by_domain", "by_array", "v", "shown", "as_text", "in_concat", "in_array", "in_row"]
        .into_iter()
        .chain(["by_function", "by_number", "as_role"])
        .map(|table| format!("select r from {table}"))
        .chain(
            ["the_index()", "concat(the_index())", "concat(pg_partition_root('named'))"]
                .map(|call| format!("select {call}, a from t")),
        );
    for read in &reads.collect::<Vec<_>>() {
        assert!((0..4).all(|_| !is_hit(&proxy, &mut reader, read)), "{read}");
    }
    admin.run("alter index named rename to renamed");
    ground.cluster.wait_caught_up().unwrap();
    assert_eq!(reader.value("select r from v"), "renamed");
    assert_eq!(reader.value("select r from as_text"), "renamed");
}

#[test]
fn a_column_that_becomes_one_of_a_domain_is_kept_no_more_if_its_check_reads() {
    let ground = Ground::new();
    ground.prepare(
        "create table allowed (a int); create table t (a int); insert into t values (1);
         create function is_fine(a int) returns boolean language sql stable as 'select count(*) >= 0 from allowed';
         create domain checked as int check (is_fine(value))",
    );
    let proxy = ground.proxy(ON);
    let (mut reader, mut writer) = (ground.client(&proxy), ground.client(&proxy));
    warm(&proxy, &mut reader, "select a from t");
    writer.run("alter table t alter a type checked");
    warm(&proxy, &mut reader, "select a from allowed");
    assert!((0..4).all(|_| !is_hit(&proxy, &mut reader, "select a from t")));
}

#[test]
fn a_name_with_an_overload_that_is_not_steady_is_not_kept() {
    let ground = Ground::new();
    ground.prepare(
        "create table t (a text, z timestamptz); insert into t values ('1', now()); create table u (a int);
         create function f(int) returns int language sql immutable as 'select $1';
         create function f(text) returns int language sql stable as 'select count(*)::int from u'",
    );
    let proxy = ground.proxy(ON);
    let (mut reader, mut writer) = (ground.client(&proxy), ground.client(&proxy));
    warm(&proxy, &mut reader, "select a, length(a), quote_literal(a) from t");
    for read in ["select f(a) from t", "select age(z) from t"] {
        assert!((0..4).all(|_| !is_hit(&proxy, &mut reader, read)), "{read}");
    }
    writer.run("insert into u values (1)");
    assert_eq!(reader.value("select f(a) from t"), "1");
}

const UNSTEADY: &str = "
    create table t (a int, z timestamptz default now()); insert into t values (1); create table u (a int);
    create function at_default(a int, at timestamptz default now()) returns text language sql immutable as 'select at::text';
    create function of_day(a int, d text default current_date::text) returns text language sql immutable as 'select d';
    create function plain(a int, b int default 1 + 1) returns int language sql immutable as 'select a + b';
    create view by_default as select at_default(a) as d from t; create view by_plain as select plain(a) as d from t;
    create function near(a int, b int) returns boolean language sql stable as 'select exists (select from u where a = b)';
    create operator ~=~ (leftarg = int, rightarg = int, function = near);
    create function same(a int, b int) returns boolean language sql immutable as 'select a = b';
    create operator ~==~ (leftarg = int, rightarg = int, function = same);
    create view by_operator as select a ~=~ 1 as n from t; create view by_any as select a ~=~ any (array[1]) as n from t;
    create view by_steady as select a ~==~ 1 as n from t; create view locked as select xmax, a from t; create view born as select xmin, a from t;
";

#[test]
fn what_hangs_on_more_than_tables_by_defaults_operators_or_system_columns_is_not_kept() {
    let ground = Ground::new();
    ground.prepare(UNSTEADY);
    let proxy = ground.proxy(ON);
    let mut reader = ground.client(&proxy);
    for read in
        ["plain(a) from t", "d from by_plain", "n from by_steady", "a from t where a ~==~ 1", "a from born", "xmin from t"]
    {
        warm(&proxy, &mut reader, &format!("select {read}"));
    }
    for read in [
        "at_default(a) from t",
        "of_day(a) from t",
        "d from by_default",
        "n from by_operator",
        "n from by_any",
        "a from locked",
        "xmax from t",
        "t.cmin from t",
        "(t).ctid from t",
    ] {
        let read = format!("select {read}");
        assert!((0..4).all(|_| !is_hit(&proxy, &mut reader, &read)), "{read}");
    }
}

#[test]
fn a_refresh_that_writes_elsewhere_is_seen_there() {
    let ground = Ground::new();
    ground.prepare(
        "create table goal (a int); create table t as select 1 as a;
         create function f(a int) returns int language sql volatile as 'insert into public.goal values (a) returning a';
         create view v as select f(a) as a from t; create materialized view m as select f(a) as a from t;
         create materialized view behind as select a from v",
    );
    let proxy = ground.proxy(ON);
    let (mut reader, mut writer, mut direct) = (ground.client(&proxy), ground.client(&proxy), ground.direct());
    let read = "select count(*) from goal";
    for view in ["m", "behind"] {
        let before = warm(&proxy, &mut reader, read);
        writer.run(&format!("refresh materialized view {view}"));
        assert_eq!(reader.rows(read), direct.rows(read), "{view}");
        assert_ne!(before, direct.rows(read), "{view} writes nothing");
    }
}

#[test]
fn a_function_called_like_a_column_is_one() {
    let ground = Ground::new();
    ground.prepare(
        "create table people (a int, name text); insert into people values (1, 'eve'); create table titles (t text); insert into titles values ('Dr');
         create table calls (a int);
         create function full_name(people) returns text language sql stable as 'select t || $1.name from titles';
         create function initial(people) returns text language sql immutable as 'select left($1.name, 1)';
         create function titled(p anyelement, more text default '') returns text language sql stable as 'select t || more from titles';
         create function called(people) returns int language sql volatile as 'insert into calls values (1) returning a';
         create function name(int) returns text language sql stable as 'select t from titles'",
    );
    let proxy = ground.primary_proxy(ON);
    let (mut reader, mut writer, mut direct) = (ground.client(&proxy), ground.client(&proxy), ground.direct());
    for read in ["select p.name, p.a from people p", "select p.initial from people p"] {
        warm(&proxy, &mut reader, read);
    }
    for read in ["select p.full_name from people p", "select (p).full_name from people p", "select p.titled from people p"] {
        assert!((0..4).all(|_| !is_hit(&proxy, &mut reader, read)), "{read}");
    }
    let read = "select count(*) from calls";
    let before = warm(&proxy, &mut reader, read);
    writer.run("select p.called from people p");
    assert_eq!(reader.rows(read), direct.rows(read));
    assert_ne!(before, direct.rows(read), "the function writes nothing");
}

#[test]
fn what_event_triggers_write_is_seen() {
    let ground = Ground::new();
    ground.prepare(
        "create table log (tag text); create table t (a int primary key); create sequence q; create table other (a int);
         create materialized view m as select count(*) from t;
         create function note() returns event_trigger language plpgsql as 'begin insert into public.log values (tg_tag); end';
         create event trigger noted on ddl_command_end execute function note()",
    );
    let proxy = ground.proxy(ON);
    let (mut reader, mut writer, mut direct) = (ground.client(&proxy), ground.client(&proxy), ground.direct());
    let read = "select count(*) from log";
    for text in [
        "comment on table t is 'x'",
        "create index on t (a)",
        "create statistics s on a, (a + 1) from t",
        "alter sequence q increment 2",
        "refresh materialized view m",
        "create temporary table mine (a int)",
        "select 1; comment on column t.a is 'y'",
    ] {
        let before = warm(&proxy, &mut reader, read);
        writer.run(text);
        let now = direct.rows(read);
        assert_ne!(now, before, "{text} fires no trigger");
        assert_eq!((reader.rows(read), writer.rows(read)), (now.clone(), now), "{text}");
    }
    // Statements about rows only, or about nothing, leave results where they are.
    warm(&proxy, &mut reader, read);
    for text in
        ["insert into other values (1)", "begin; set local work_mem = '5MB'; commit", "set work_mem = '5MB'", "show work_mem"]
    {
        writer.run(text);
        assert!(is_hit(&proxy, &mut reader, read), "{text}");
    }
}
