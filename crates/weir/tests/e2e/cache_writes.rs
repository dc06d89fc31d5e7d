//! Results that a write makes stale, when the meaning of the write is not certain.

use super::cache::{is_hit, warm};
use super::cancel::cancel;
use crate::support::ground::wait_for_catalog;
use crate::support::{Ground, Proxy, Raw, wait_until, wire};
use std::time::Duration;

/// With global causal reads an answer of a server is as new as one from memory must be.
const ON: &str = "memory_cache_enabled = on\ncausal_reads = global";

/// Equal names in three schemas. The functions `f` write where they are, `moves` changes the path of its transaction or
/// session.
const SCHEMAS: &str = "
    create schema a; create schema b; create schema ROLE; create role ROLE;
    create table a.t (a int); create table b.t (a int); create table ROLE.t (a int);
    create function a.f(x int) returns int language sql immutable as 'select x';
    create function b.f(x int) returns int language sql as 'insert into b.t values (x) returning a';
    create function a.moves(stays boolean) returns text language sql stable as $$ select set_config('search_path', 'b', not stays) $$;
    create function a.moves_on() returns void language plpgsql as $$ begin set local search_path = b; end $$;
    grant all on schema ROLE to ROLE; grant all on ROLE.t to ROLE";

/// How a text comes to Weir.
#[derive(Clone, Copy, Debug)]
enum By {
    /// One Query, and all of its answer.
    Query(&'static str),
    /// Queries that are all sent before any is answered.
    Ahead(&'static [&'static str]),
    /// All in one go by the extended protocol, with one Sync.
    Pipeline(&'static [&'static str]),
}

use By::{Ahead, Pipeline, Query};

/// Stories of a session with the path `a` that end in a write to `b.t`.
const MOVES: &[&[By]] = &[
    &[Query("begin"), Query("set local search_path = b"), Query("insert into t values (1)"), Query("commit")],
    &[Query("begin"), Query("set search_path = b"), Query("insert into t values (1)"), Query("commit")],
    &[Query("begin"), Query("select set_config('search_path', 'b', true)"), Query("insert into t values (1)"), Query("commit")],
    &[Query("begin"), Query("select set_config('search_path', 'b', false)"), Query("insert into t values (1)"), Query("commit")],
    &[Query("begin; set local schema 'b'"), Query("insert into t values (1)"), Query("commit")],
    &[Query("begin"), Query("set local search_path = b"), Query("select f(1)"), Query("commit")],
    &[Query("begin"), Query("delete from t"), Query("select moves(false)"), Query("insert into t values (1)"), Query("commit")],
    &[Query("begin"), Query("select a.moves_on()"), Query("insert into t values (1)"), Query("commit")],
    &[
        Query("begin"),
        Query("set local search_path = b"),
        Query("savepoint x"),
        Query("set local search_path = a"),
        Query("rollback to x"),
        Query("insert into t values (1)"),
        Query("commit"),
    ],
    &[
        Query("set search_path = b"),
        Query("begin"),
        Query("set search_path = a"),
        Query("savepoint x"),
        Query("rollback to x"),
        Query("commit"),
        Ahead(&["begin", "set search_path = b", "rollback"]),
        Ahead(&["set search_path = b", "insert into t values (1)"]),
    ],
    &[Query("set search_path = b; insert into t values (1)")],
    &[Query("select moves(true); insert into t values (1)")],
    &[Query("select set_config('search_path', 'b', true); insert into t values (1)")],
    &[Query("set search_path = b"), Query("insert into t values (1)")],
    &[Query("select moves(true)"), Query("insert into t values (1)")],
    &[Ahead(&["set search_path = b", "insert into t values (1)"])],
    &[Query("set search_path = c"), Ahead(&["set search_path = b", "select f(1)"])],
    &[Query("begin"), Ahead(&["set local search_path = b", "insert into t values (1)", "commit"])],
    &[Pipeline(&["set search_path = b", "insert into t values (1)"])],
    &[Pipeline(&["select set_config('search_path', 'b', true)", "select f(1)"])],
    &[Query("set search_path = b"), Query("set work_mem = '1MB'"), Query("insert into t values (1)")],
];

/// Stories of a session with the startup's path `b`, so that a reset leads there.
const RESETS: &[&[By]] = &[
    &[
        Query("set search_path = a"),
        Query("begin"),
        Query("reset search_path"),
        Query("insert into t values (1)"),
        Query("commit"),
    ],
    &[Query("set search_path = a"), Ahead(&["reset all", "insert into t values (1)"])],
    &[Query("set search_path = a"), Ahead(&["discard all", "insert into t values (1)"])],
];

fn say(writer: &mut Raw, by: By, role: &str) {
    match by {
        Query(text) => {
            writer.query(&text.replace("ROLE", role));
        }
        Ahead(texts) => {
            let bytes: Vec<u8> = texts.iter().flat_map(|text| wire::query(text)).collect();
            writer.send(&bytes);
            texts.iter().for_each(|_| drop(writer.until_ready()));
        }
        Pipeline(texts) => {
            let bytes: Vec<u8> = texts.iter().flat_map(|text| wire::unnamed(text, &[])).chain(wire::sync()).collect();
            writer.send(&bytes);
            writer.until_ready();
        }
    }
}

/// Has a session play each story and checks that a reader of `table` sees the last write.
fn check(ground: (&Ground, &Proxy, &str), path: &str, table: &str, role: &str, stories: &[&[By]]) {
    let (ground, proxy, user) = ground;
    let (mut reader, mut direct) = (ground.client(proxy), ground.direct());
    let read = format!("select count(*) from {table}");
    let mut wrong = Vec::new();
    for story in stories {
        let mut writer = Raw::tcp(proxy.port()).log_in(user, &ground.database, &[("search_path", path)]).unwrap();
        let (last, before_it) = story.split_last().unwrap();
        // From here on Weir has looked at the names.
        writer.query("select count(*) from t");
        warm(proxy, &mut reader, &read);
        let mut has_warmed = reader.rows(&read);
        for by in before_it {
            say(&mut writer, *by, role);
        }
        if !matches!(last, Query("commit")) {
            has_warmed = warm(proxy, &mut reader, &read);
        }
        say(&mut writer, *last, role);
        let (after, expected) = (reader.rows(&read), direct.rows(&read));
        assert_ne!(has_warmed, expected, "{story:?} writes nothing");
        if after != expected {
            wrong.push(story);
        }
    }
    assert!(wrong.is_empty(), "not seen by a reader of {table} (written by {user}): {wrong:#?}");
}

#[test]
fn a_write_is_known_whatever_has_moved_its_names() {
    let ground = Ground::new();
    let role = format!("mover_{}", ground.database);
    ground.prepare(&SCHEMAS.replace("ROLE", &role));
    // A user who keeps his connection is never asked for his settings.
    let keeper = format!("keeper_{}", ground.database);
    ground.prepare(&format!("create role {keeper} superuser login"));
    let proxy = ground.proxy(&format!("{ON}\nlimit_override_list = 'user={keeper}: pool_mode=session'"));
    for user in ["postgres", &keeper] {
        let ground = (&ground, &proxy, user);
        check(ground, "a", "b.t", &role, MOVES);
        check(ground, "b", "b.t", &role, RESETS);
        let roles: &[&[By]] = &[
            &[Query("begin"), Query("set local role ROLE"), Query("insert into t values (1)"), Query("commit")],
            &[Query("begin"), Query("set local session authorization ROLE"), Query("insert into t values (1)"), Query("commit")],
            &[Query("set role ROLE; insert into t values (1)")],
            &[
                Query("begin"),
                Query("select set_config('role', 'ROLE', true)"),
                Query("insert into t values (1)"),
                Query("commit"),
            ],
        ];
        check(ground, "\"$user\", a", &format!("{role}.t"), &role, roles);
    }
    ground.prepare(&format!("drop schema {role} cascade; drop owned by {role}; drop role {role}, {keeper}"));
}

#[test]
fn a_write_that_may_mean_several_tables_leaves_the_others_alone() {
    let ground = Ground::new();
    ground.prepare(
        "create schema a; create schema b; create table a.t (a int); create table b.t (a int); create table b.other (a int);
         create view a.v as select a from a.t",
    );
    let proxy = ground.proxy(ON);
    let (mut reader, mut writer) = (ground.client(&proxy), ground.client_with(&proxy, &[("search_path", "a")]));
    let (read, other) = ("select count(*) from b.t", "select count(*) from b.other");
    for write in ["insert into t values (1)", "insert into v values (1)"] {
        warm(&proxy, &mut reader, read);
        warm(&proxy, &mut reader, other);
        writer.run("begin");
        writer.run("select set_config('app.tenant', '7', true)");
        writer.run(write);
        writer.run("commit");
        assert!(is_hit(&proxy, &mut reader, other), "{write} raised what it cannot mean");
        // Nothing is left of it: a write is known again, as soon as the server has said so.
        wait_until(&format!("{write} to raise no other table"), || {
            warm(&proxy, &mut reader, read);
            writer.run(write);
            is_hit(&proxy, &mut reader, read)
        });
    }
}

#[test]
fn once_a_path_is_known_writes_mean_one_table_again() {
    let ground = Ground::new();
    ground.prepare("create schema a; create schema b; create table a.t (a int); create table b.t (a int)");
    let proxy = ground.proxy(ON);
    let (mut reader, mut writer) = (ground.client(&proxy), ground.client_with(&proxy, &[("search_path", "a")]));
    let read = "select count(*) from a.t";
    writer.run("set search_path = b");
    writer.run("select 1");
    for round in 0..3 {
        warm(&proxy, &mut reader, read);
        for text in ["begin", "insert into t values (1)", "commit"] {
            writer.run(text);
        }
        assert!(is_hit(&proxy, &mut reader, read), "transaction {round} raised another's table");
        writer.extended("insert into t values (1)", &[]).unwrap();
        assert!(is_hit(&proxy, &mut reader, read), "pipeline {round} raised another's table");
    }
}

#[test]
fn a_schema_of_the_path_that_one_may_not_use_is_passed_over() {
    let ground = Ground::new();
    let joe = format!("{}_joe", ground.database);
    ground.prepare(&format!(
        "create role {joe} login; create schema a; create schema b; create table a.t (a int); create table b.t (a int);
         grant usage on schema b to {joe}; grant all on all tables in schema a, b to {joe}"
    ));
    let proxy = ground.primary_proxy(ON);
    let mut owner = ground.client(&proxy);
    let mut joe_s = Raw::tcp(proxy.port()).log_in(&joe, &ground.database, &[("search_path", "a,b")]).unwrap();
    let (free, named) = ("select count(*) from t", "select count(*) from b.t");
    assert_eq!(warm(&proxy, &mut joe_s, free)[0][0], "0");
    owner.run("insert into b.t values (1)");
    assert_eq!(joe_s.value(free), "1", "what he reads is b.t");
    assert_eq!(warm(&proxy, &mut owner, named)[0][0], "1");
    joe_s.run("insert into t values (2)");
    assert_eq!(owner.value(named), "2", "what he writes is b.t");
    drop(joe_s);
    ground.prepare(&format!("drop owned by {joe}"));
}

/// Waits until this many statements in the test's database wait for a lock.
fn wait_for_locked(direct: &mut Raw, count: usize) {
    let text = "select pid from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
    wait_until("statements to wait for a lock", || direct.rows(text).len() == count);
}

#[test]
fn a_connection_with_defaults_of_before_stores_nothing() {
    let ground = Ground::new();
    ground.prepare("create table f as select date '2020-02-01' as d");
    let proxy = ground.primary_proxy(ON);
    let (mut admin, mut old) = (ground.client(&proxy), ground.client(&proxy));
    let read = "select d from f";
    old.run("begin");
    old.run("select 1");
    admin.run(&format!("alter role postgres in database {} set datestyle = 'German'", ground.database));
    wait_for_catalog(&mut admin, &ground.database);
    for _ in 0..3 {
        assert_eq!(old.value(read), "2020-02-01", "its connection began before");
    }
    let (mut fresh, mut direct) = (ground.client(&proxy), ground.direct());
    assert_eq!((fresh.value(read), direct.value(read)), ("01.02.2020".to_owned(), "01.02.2020".to_owned()));
    old.run("commit");
    admin.run(&format!("alter role postgres in database {} reset datestyle", ground.database));
}

#[test]
fn connections_with_defaults_of_before_go_when_they_are_changed_past_us() {
    let ground = Ground::new();
    ground.prepare("create table f as select date '2020-02-01' as d");
    let proxy = ground.primary_proxy(ON);
    let (mut client, mut direct, read) = (ground.client(&proxy), ground.direct(), "select d from f");
    warm(&proxy, &mut client, read);
    for (change, expected) in [("set datestyle = 'German'", "01.02.2020"), ("reset datestyle", "2020-02-01")] {
        direct.run(&format!("alter role postgres in database {} {change}", ground.database));
        wait_until("new connections", || ground.client(&proxy).value(read) == expected);
        warm(&proxy, &mut client, read);
        assert_eq!(ground.client(&proxy).value(read), expected);
    }
}

#[test]
fn a_commit_counts_for_what_was_defined_while_its_transaction_waited() {
    let ground = Ground::new();
    ground.prepare(
        "create table p (a int); create table x (a int);
         create function note() returns trigger language plpgsql as 'begin insert into x values (new.a); return new; end'",
    );
    let proxy = ground.primary_proxy(ON);
    let (mut definer, mut writer, mut reader) = (ground.client(&proxy), ground.client(&proxy), ground.client(&proxy));
    let (mut direct, read) = (ground.direct(), "select count(*) from x");
    definer.run("begin");
    definer.run("create trigger n after insert on p for each row execute function note()");
    writer.run("begin");
    writer.send(&wire::query("insert into p values (1)"));
    wait_for_locked(&mut direct, 1);
    definer.run("commit");
    writer.until_ready();
    assert_eq!(warm(&proxy, &mut reader, read), [["0"]]);
    // Its answer is not complete before the sleep is over.
    writer.send(&wire::query("commit; select pg_sleep(3)"));
    wait_until("the commit", || direct.value(read) == "1");
    assert_eq!(reader.value(read), "1");
    writer.until_ready();
}

#[test]
fn nobody_waits_for_a_question_that_was_never_asked() {
    let ground = Ground::new();
    ground.prepare("create table t as select 1 as a; create table other (a int)");
    let proxy = ground.primary_proxy(&format!("{ON}\npool_size = 1"));
    let (mut holder, mut asker, mut next) = (ground.client(&proxy), ground.client(&proxy), ground.client(&proxy));
    let read = "select a from t";
    holder.run("begin");
    holder.run("insert into other values (1)");
    asker.send(&wire::query(read));
    wait_until("the statement that waits to be cancelled", || {
        let (pid, key) = (asker.pid, asker.key.clone());
        cancel(&proxy, pid, &key);
        !asker.is_silent_for(Duration::from_millis(20))
    });
    // All that is left of its answer, the error before it was taken for the sign.
    assert_eq!(asker.tags(), "Z");
    holder.run("commit");
    let before = proxy.metric("cache_waits_total");
    assert_eq!(next.value(read), "1");
    assert_eq!(proxy.metric("cache_waits_total"), before, "somebody is said to have asked");
}

#[test]
fn what_is_on_its_way_is_forgotten_too() {
    let ground = Ground::new();
    ground.prepare("create table t as select 1 as a");
    let proxy = ground.primary_proxy(ON);
    let (mut asker, mut admin, mut direct) = (ground.client(&proxy), ground.client(&proxy), ground.direct());
    let (known, read) = ("select a from t", "select max(a) from t");
    warm(&proxy, &mut admin, known);
    for clears in [false, true] {
        admin.run("update t set a = a");
        direct.run("begin; lock table t");
        asker.send(&wire::query(read));
        wait_for_locked(&mut direct, 1);
        if clears {
            admin.run("pgpool set cache delete");
        }
        direct.run("commit");
        asker.until_ready();
        assert_eq!(is_hit(&proxy, &mut asker, read), !clears);
    }
}

#[test]
fn an_execute_of_a_read_makes_no_answer_untrue_and_one_of_a_write_does() {
    let ground = Ground::new();
    ground.prepare("create table t (a int); create table other (a int); insert into t values (1), (2)");
    let proxy = ground.primary_proxy(ON);
    let mut client = ground.client(&proxy);
    client.run("prepare reads as select count(*) from other");
    client.run("prepare writes as insert into t values (9)");
    warm(&proxy, &mut client, "select count(*) from t");
    client.run("execute reads");
    assert!(is_hit(&proxy, &mut client, "select count(*) from t"));
    client.run("execute writes");
    assert_eq!(client.value("select count(*) from t"), "3");
}
