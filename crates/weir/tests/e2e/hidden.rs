//! Statements that hide their effect, or the node they need: through Weir with standbys they answer like one server.

use crate::support::raw::Message;
use crate::support::{Ground, Raw, wire};
use crate::transactions::{How, bytes_of, said, seen};

const OBJECTS: &str = "
    create table t (a int, b text); insert into t values (1, 'one'), (2, 'two');
    create table log (n int); create sequence s; create unlogged table u as select 1 as a;
    create function writes() returns int language sql volatile as 'insert into log values (1) returning n';
    create function lies() returns int language plpgsql stable as
        $$ begin perform nextval('s'); return 1; end $$;
    create function lies_in_a_table() returns int language plpgsql immutable as
        $$ begin execute 'insert into log values (2)'; return 2; end $$;
    create function by_default(a int default writes()) returns int language sql immutable as 'select $1';
    create function of_row(t) returns int language sql volatile as 'insert into log values (3) returning n';
    create function checked(a int) returns bool language plpgsql volatile as
        $$ begin insert into log values (4); return true; end $$;
    create domain checked_int as int check (checked(value));
    create table part (a int) partition by list (a);
    create table part_1 partition of part for values in (1); create table part_2 partition of part for values in (2);
    insert into part values (1), (2);
    create view deep as select writes() as a;
    create view by_row as select x.of_row as a from t x;
    create table ruled (a int); create rule r as on insert to ruled do also insert into log values (5);
    create schema other; create table other.t (a int); insert into other.t values (99);
    create function other.lower(text) returns text language sql volatile as $$ insert into log values (6); select 'mine' $$;
    create function twice(a int) returns int language sql stable as 'select a * 2';
    create function twice(a text) returns int language sql volatile as 'insert into log values (7) returning n';
    create table guarded (a int); insert into guarded values (1); alter table guarded enable row level security;
    alter table guarded force row level security; create policy p on guarded using (checked(a));";

/// Statements of a client in order; a line is one story.
const STORIES: &[&[&str]] = &[
    &["select lies()", "select lies()", "select last_value from s"],
    &["select lies_in_a_table()", "select lies_in_a_table()", "select count(*) from log"],
    &["begin", "select lies_in_a_table()", "select count(*) from log", "rollback", "select count(*) from log"],
    &["begin read only", "select lies_in_a_table()", "rollback"],
    &["begin isolation level repeatable read read only", "select count(*) from t", "select lies()", "rollback"],
    &["select by_default()", "select count(*) from log"],
    &["select x.of_row from t x", "select count(*) from log"],
    &["select (t).of_row from t", "select count(*) from log"],
    &["select a from by_row", "select count(*) from log"],
    &["select 1::checked_int", "select count(*) from log"],
    &["select cast('1' as checked_int)", "select count(*) from log"],
    &["select a from deep", "select count(*) from log"],
    &["select * from guarded", "select count(*) from log"],
    &["select twice(2)", "select twice('x'::text)", "select count(*) from log"],
    &["explain (costs off) insert into t values (3, 'x')", "select count(*) from t"],
    &["explain (analyze, costs off, timing off, summary off) insert into t values (3, 'x')", "select count(*) from t"],
    &["explain (analyze, costs off, timing off, summary off) select writes()", "select count(*) from log"],
    &["explain (analyze, costs off, timing off, summary off) execute nothing"],
    &["select * into made from t", "select count(*) from made", "drop table made", "select count(*) from made"],
    &[
        "create table made as select 1 as a",
        "select a from made",
        "alter table made rename a to b",
        "select b from made",
        "drop table made",
    ],
    &["with w as (insert into t values (4, 'w') returning a) select a from w", "select count(*) from t"],
    &["with w as (delete from t where a > 2 returning a) select count(*) from w", "select count(*) from t"],
    &["insert into ruled values (1)", "select count(*) from log"],
    &[
        "set search_path = other, public",
        "select a from t",
        "select lower('X')",
        "reset search_path",
        "select lower('X')",
        "select count(*) from log",
    ],
    &["set search_path = other, pg_catalog, public", "select lower('X')", "select count(*) from log", "reset search_path"],
    &[
        "select set_config('search_path', 'other, public', false)",
        "select a from t",
        "reset search_path",
        "select count(*) from t",
    ],
    &["create temp table t (a int)", "select count(*) from t", "drop table pg_temp.t", "select count(*) from t"],
    &["create temp view v as select count(*) as n from t", "select n from v", "drop view v"],
    &[
        "select count(*) from part",
        "insert into part_1 values (1)",
        "select count(*) from part",
        "select count(*) from only part",
    ],
    &[
        "alter table part detach partition part_1",
        "select count(*) from part",
        "alter table part attach partition part_1 for values in (1)",
        "select count(*) from part",
    ],
    &[
        "declare c cursor with hold for select a from t order by a",
        "fetch 1 from c",
        "select count(*) from t",
        "fetch 1 from c",
        "close c",
    ],
    &[
        "begin",
        "declare c cursor for select a from t order by a",
        "fetch 1 from c",
        "select count(*) from t",
        "move 1 in c",
        "commit",
    ],
    &[
        "begin",
        "select count(*) from t",
        "savepoint a",
        "insert into t values (5, 'x')",
        "select count(*) from t",
        "rollback to a",
        "select count(*) from t",
        "select nosuch",
        "rollback to a",
        "release a",
        "commit",
    ],
    &[
        "prepare p as select count(*) from t",
        "execute p",
        "insert into t values (6, 'x')",
        "execute p",
        "deallocate p",
        "execute p",
    ],
    &[
        "prepare p (int) as insert into t values ($1, 'p') returning a",
        "execute p (7)",
        "execute p (8)",
        "select count(*) from t",
        "deallocate p",
    ],
    &["prepare p as select lies()", "execute p", "deallocate p"],
    &[
        "copy (select a from t order by a) to stdout",
        "copy (insert into log values (9) returning n) to stdout",
        "copy (select writes()) to stdout",
        "select count(*) from log",
    ],
    &["select a from u", "select count(*) from t, u", "begin read only", "select a from u", "commit"],
    &["select 1; select 1/0; insert into log values (10)", "select count(*) from log"],
    &[
        "select count(*) from t; insert into log values (11); select count(*) from log",
        "insert into log values (12); select 1/0",
        "select count(*) from log",
    ],
    &["select 1; begin; insert into log values (13)", "select count(*) from log", "rollback", "select count(*) from log"],
    &["begin; insert into log values (14); commit; select 1/0", "select count(*) from log"],
    &["do $$ begin insert into log values (15); end $$", "select count(*) from log"],
    &[
        "create function later() returns int language sql stable as 'select 1'",
        "select later()",
        "create or replace function later() returns int language sql volatile as 'insert into log values (16) returning n'",
        "select later()",
        "select count(*) from log",
        "drop function later()",
        "select later()",
    ],
    &[
        "create operator @@@ (leftarg = int, rightarg = int, function = int4pl)",
        "select 1 @@@ 2",
        "drop operator @@@ (int, int)",
        "select 1 @@@ 2",
    ],
    &["select nextval('s') > 0", "select currval('s') > 0", "select lastval() > 0"],
    &["select a from t for update", "select a from t where a = 1 for share"],
    &["lock table t", "select pg_is_in_recovery()", "show transaction_read_only"],
    &["select pg_advisory_lock(5)", "select pg_advisory_unlock(5)", "select pg_advisory_unlock(5)"],
    &["set role pg_monitor", "select current_user", "reset role", "select current_user"],
    &[
        "set default_transaction_read_only = on",
        "insert into t values (1, 'x')",
        "select count(*) from t",
        "reset default_transaction_read_only",
    ],
    &["set transaction_read_only = on", "select count(*) from t", "insert into t values (10, 'ten')", "select count(*) from t"],
    &["set statement_timeout = '5s'", "select count(*) from t", "show statement_timeout", "reset statement_timeout"],
    &[
        "values (writes())",
        "table t",
        "select count(*) from log",
        "select * from (values (1), (2)) v where writes() is not null",
        "select count(*) from log",
    ],
    &["select count(*) from t where a = any (array(select a from part)) and exists (select from u)"],
    &["merge into t using (values (1)) v (x) on a = x when matched then update set b = 'merged'", "select b from t where a = 1"],
    &["truncate log", "select count(*) from log", "vacuum log", "analyze t", "select count(*) from log"],
    &["drop table other.t", "set search_path = other, public", "select count(*) from t", "reset search_path"],
    &[
        "alter table t add c int default 7",
        "select * from t order by a limit 1",
        "alter table t drop c",
        "select * from t order by a limit 1",
    ],
];

fn check_stories(more: &str, how: How) {
    let (ground, plain) = (Ground::new(), Ground::new());
    for ground in [&ground, &plain] {
        ground.prepare(OBJECTS);
    }
    let proxy = if more.contains("pool_size") { ground.primary_proxy(more) } else { ground.proxy(more) };
    let (mut client, mut direct) = (ground.client(&proxy), plain.direct());
    let (mut number, mut wrong) = (0, Vec::new());
    for story in STORIES {
        for text in story.iter() {
            // A prepared statement is one.
            if how != How::Simple && text.contains("; ") && !text.contains("$$") {
                continue;
            }
            number += 1;
            let bytes = bytes_of(text, number, how);
            client.send(&bytes);
            direct.send(&bytes);
            let (through, own) = (said(&mut client, how), said(&mut direct, how));
            if seen(&through) != seen(&own) {
                wrong.push(format!("{how:?} {more} {text} in {story:?}:\n  {:?}\n  {:?}", seen(&through), seen(&own)));
            }
        }
        client.run("rollback");
        direct.run("rollback");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_hides_what_it_does_says_the_same_through_weir_in_the_simple_protocol() {
    check_stories("", How::Simple);
    check_stories("causal_reads = global\nmemory_cache_enabled = on", How::Simple);
    check_stories("memory_cache_enabled = on\npool_size = 2", How::Simple);
}

#[test]
fn what_hides_what_it_does_says_the_same_through_weir_in_the_extended_protocol() {
    check_stories("", How::Extended);
    check_stories("", How::Named);
    check_stories("memory_cache_enabled = on", How::Described);
}

/// Messages of one pipeline: a text each; `|` is a Sync, `!` a Flush, and `?` a simple query follows.
const PIPELINES: &[&[&str]] = &[
    &["select count(*) from t", "insert into log values (1)", "select count(*) from log", "|"],
    &["select count(*) from t", "select 1/0", "insert into log values (1)", "|", "select count(*) from log", "|"],
    &["insert into log values (1)", "select 1/0", "|", "select count(*) from log", "|"],
    &[
        "select count(*) from t",
        "insert into log values (1)",
        "select 1/0",
        "select count(*) from log",
        "|",
        "select count(*) from log",
        "|",
    ],
    &[
        "select count(*) from t",
        "|",
        "insert into log values (1)",
        "|",
        "select count(*) from log",
        "|",
        "select 1/0",
        "|",
        "select 1",
        "|",
    ],
    &["select lies()", "select count(*) from t", "|", "select count(*) from t", "|"],
    &["select count(*) from t", "select lies()", "|", "select lies_in_a_table()", "|", "select count(*) from log", "|"],
    &["select count(*) from t", "select lies_in_a_table()", "select count(*) from log", "|"],
    &[
        "begin",
        "select count(*) from t",
        "insert into log values (2)",
        "select 1/0",
        "|",
        "select 1",
        "|",
        "rollback",
        "|",
        "select count(*) from log",
        "|",
    ],
    &[
        "begin",
        "|",
        "select count(*) from t",
        "|",
        "select lies_in_a_table()",
        "|",
        "rollback",
        "|",
        "select count(*) from log",
        "|",
    ],
    &["begin read only", "select count(*) from t", "select lies()", "|", "rollback", "|"],
    &["select count(*) from t", "begin", "insert into log values (3)", "commit", "select count(*) from log", "|"],
    &["select count(*) from t", "?select count(*) from log", "insert into log values (4)", "?select count(*) from log"],
    &["select 1/0", "?select count(*) from log", "insert into log values (4)", "|", "?select count(*) from log"],
    &["select count(*) from t", "create table made (a int)", "select count(*) from made", "drop table made", "|"],
    &[
        "create table made (a int)",
        "|",
        "select count(*) from made",
        "|",
        "drop table made",
        "|",
        "select count(*) from made",
        "|",
    ],
    &["select a from u", "select count(*) from t", "|"],
    &["set work_mem = '5MB'", "show work_mem", "select 1/0", "|", "show work_mem", "|"],
    &["select count(*) from t", "set work_mem = '6MB'", "select count(*) from t", "show work_mem", "|", "reset work_mem", "|"],
    &["select count(*) from t", "savepoint a", "|", "select 1", "|"],
];

fn play(client: &mut Raw, pipeline: &[&str]) -> Vec<Message> {
    let (mut bytes, mut turns) = (Vec::new(), 0);
    for text in pipeline {
        match text.strip_prefix('?') {
            Some(query) => bytes.extend(wire::query(query)),
            None if *text == "|" => bytes.extend(wire::sync()),
            None => bytes.extend(wire::unnamed(text, &[])),
        }
        turns += usize::from(*text == "|" || text.starts_with('?'));
    }
    // A simple query that the server skips gets no answer of its own.
    let skipped = usize::from(pipeline[0] == "select 1/0" && pipeline[1].starts_with('?'));
    client.send(&bytes);
    (0..turns - skipped).flat_map(|_| client.until_ready()).collect()
}

#[test]
fn pipelines_over_several_servers_say_what_one_server_says() {
    for more in ["", "memory_cache_enabled = on"] {
        let (ground, plain) = (Ground::new(), Ground::new());
        for ground in [&ground, &plain] {
            ground.prepare(OBJECTS);
        }
        let proxy = ground.proxy(more);
        let (mut client, mut direct) = (ground.client(&proxy), plain.direct());
        let mut wrong = Vec::new();
        for pipeline in PIPELINES.iter().chain(PIPELINES) {
            let (through, own) = (seen(&play(&mut client, pipeline)), seen(&play(&mut direct, pipeline)));
            if through != own {
                wrong.push(format!("{pipeline:?}:\n  {through:?}\n  {own:?}"));
            }
            client.run("rollback");
            direct.run("rollback");
        }
        assert!(wrong.is_empty(), "{more} {}", wrong.join("\n"));
    }
}

/// A cached result, and a write that changes it without saying so.
#[test]
fn a_write_that_nothing_shows_leaves_no_answer_behind_that_is_not_true() {
    for has_standbys in [true, false] {
        let ground = Ground::new();
        ground.prepare(OBJECTS);
        // Where the check of a domain may write nothing is kept.
        ground.prepare("drop domain checked_int cascade");
        let more = "memory_cache_enabled = on\ncausal_reads = global";
        let proxy = if has_standbys { ground.proxy(more) } else { ground.primary_proxy(more) };
        let mut client = ground.client(&proxy);
        let count = "select count(*) from log";
        for write in ["select by_default()", "select x.of_row from t x", "select (x).of_row from t x", "select a from by_row"] {
            for _ in 0..2 {
                crate::cache::warm(&proxy, &mut client, count);
                client.run(write);
                let own = ground.direct().value(count);
                assert_eq!(client.value(count), own, "{write}, standbys: {has_standbys}");
            }
        }
    }
}
