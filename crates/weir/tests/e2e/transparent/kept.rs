//! State that cannot move: it stays until the session or its client ends it.

use super::{CONF, Moves, check};
use crate::support::{Ground, wait_until};

#[test]
fn objects_that_are_temporary_without_saying_so_stay() {
    check(
        Moves::Yes,
        &[
            "set search_path = pg_temp, public",
            "create table unseen (a int)",
            "insert into unseen values (1)",
            "select * from unseen",
            "drop table unseen",
            "select 3 as a into unseen",
            "select * from unseen",
            "drop table unseen",
            "reset search_path",
            "select 1",
            "begin",
            "set local search_path = pg_temp",
            "create table unseen (a int)",
            "commit",
            "select count(*) from pg_temp.unseen",
            "drop table pg_temp.unseen",
            "select 1",
            "create foreign data wrapper wrapper; create server far foreign data wrapper wrapper",
            "create foreign table pg_temp.unseen (a int) server far",
            "select 1",
            "comment on foreign table pg_temp.unseen is 'here'",
            "drop foreign data wrapper wrapper cascade",
            "create conversion pg_temp.unseen for 'LATIN1' to 'UTF8' from iso8859_1_to_utf8",
            "comment on conversion pg_temp.unseen is 'here'",
            "drop conversion pg_temp.unseen",
            "create operator family pg_temp.unseen using btree",
            "comment on operator family pg_temp.unseen using btree is 'here'",
            "drop operator family pg_temp.unseen using btree",
            "select 1",
            "select 2",
        ],
    );
}

#[test]
fn sequence_values_belong_to_a_session_that_keeps_its_connection() {
    check(
        Moves::Pinned,
        &[
            "select lastval()",
            "select currval('other.numbers')",
            "select nextval('other.numbers')",
            "select currval('other.numbers'), lastval()",
            "insert into other.counted (a) values (1)",
            "select lastval(), currval('other.counted_id_seq')",
            "select setval('other.numbers', 70)",
            "select currval('other.numbers')",
            "begin",
            "select nextval('other.numbers')",
            "rollback",
            "select lastval()",
            "discard sequences",
            "select lastval()",
            "discard all",
            "select lastval()",
            "select 1",
            "insert into other.counted (a) values (2); select lastval()",
            "select lastval()",
            "insert into other.counted (a) values (currval('other.counted_id_seq')) returning a",
            "discard all",
            "select 1",
            "select 2",
        ],
    );
}

#[test]
fn an_advisory_lock_is_held_as_long_as_the_session_wants() {
    check(
        Moves::Yes,
        &[
            "select pg_advisory_lock(7)",
            "select pg_advisory_lock(7)",
            "select pg_advisory_unlock(7)",
            "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()",
            "select pg_advisory_unlock(7)",
            "select pg_advisory_unlock(7)",
            "select 1",
            "select 2",
            "select lock_unseen(8)",
            "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()",
            "select unlock_unseen(8)",
            "select 1",
            "begin",
            "select pg_advisory_lock(9)",
            "rollback",
            "select pg_advisory_unlock_all()",
            "begin",
            "select pg_advisory_xact_lock(9)",
            "commit",
            "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()",
        ],
    );
    let ground = Ground::new();
    let proxy = ground.primary_proxy(CONF);
    let mut client = ground.client(&proxy);
    client.run("select pg_advisory_lock(10)");
    drop(client);
    let mut direct = ground.direct();
    wait_until("the lock to go with its session", || direct.value("select pg_try_advisory_lock(10)") == "t");
}

#[test]
fn a_temporary_table_stays_until_it_is_dropped() {
    check(
        Moves::Yes,
        &[
            "create temp table mine (a int)",
            "insert into mine values (1), (2)",
            "select * from mine order by a",
            "drop table mine",
            "select * from mine",
            "select 1",
            "begin",
            "create temp table mine (a int) on commit drop",
            "insert into mine values (3)",
            "select * from mine",
            "commit",
            "select * from mine",
            "begin",
            "create temp table mine (a int)",
            "rollback",
            "select * from mine",
            "select table_unseen()",
            "select count(*) from mine",
            "discard temp",
            "select count(*) from mine",
            "select 1 as a into temp mine",
            "select a from mine",
            "discard all",
            "select a from mine",
        ],
    );
}

#[test]
fn a_cursor_with_hold_stays_until_it_is_closed() {
    check(
        Moves::Yes,
        &[
            "begin; declare c cursor with hold for select generate_series(1, 5)",
            "fetch 2 from c",
            "commit",
            "fetch 2 from c",
            "select 1",
            "fetch 2 from c",
            "close c",
            "fetch 2 from c",
            "declare d cursor with hold for select generate_series(1, 5)",
            "fetch 1 from d",
            "close all",
            "fetch 1 from d",
            "begin",
            "declare e cursor with hold for select 1",
            "rollback",
            "fetch 1 from e",
        ],
    );
}

#[test]
fn listening_ends_with_unlisten() {
    check(
        Moves::Yes,
        &[
            "listen news",
            "select pg_listening_channels()",
            "notify news, 'it''s \"so\", \\ ä'",
            "select pg_notify('news', '')",
            "listen \"Other News\"",
            "unlisten news",
            "select pg_listening_channels()",
            "notify \"Other News\", 'two'",
            "unlisten *",
            "select pg_listening_channels()",
            "notify news, 'nobody hears it'",
            "begin",
            "listen news",
            "rollback",
            "notify news, 'nobody hears it'",
        ],
    );
}

#[test]
fn discard_all_frees_everything() {
    check(
        Moves::Yes,
        &[
            "set work_mem = '13MB'",
            "prepare p as select 1",
            "create temp table mine (a int)",
            "listen news",
            "discard all",
            "show work_mem",
            "execute p",
            "select * from mine",
            "select pg_listening_channels()",
            "begin",
            "discard all",
            "rollback",
            "select 1",
        ],
    );
}
