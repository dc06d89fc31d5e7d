//! Statements prepared by SQL and by the protocol.

use super::{Moves, check, check_messages};
use crate::support::wire;

#[test]
fn statements_prepared_by_sql_live_with_their_session() {
    check(
        Moves::Yes,
        &[
            "prepare plus(int) as select $1 + 1",
            "execute plus(1)",
            "prepare plus as select 3",
            "execute plus(2)",
            "prepare \"Of Items\" as select b from items where a = $1",
            "execute \"Of Items\"(2)",
            "select name, statement, parameter_types from pg_prepared_statements where from_sql order by name",
            "begin",
            "execute plus(5)",
            "prepare within as select 7",
            "rollback",
            "execute within",
            "deallocate plus",
            "execute plus(1)",
            "prepare one as select 1; prepare two as select 2",
            "execute one; execute two",
            "prepare ended as select 8;",
            "select statement from pg_prepared_statements where name = 'ended'",
            "explain (costs off) execute two",
            "create table other.made as execute one",
            "select count(*) from other.made",
            "set timezone = 'UTC'",
            "prepare at as select '2024-01-01 12:00'::timestamptz",
            "set timezone = 'Asia/Tokyo'",
            "execute at",
            "prepare sets as select set_config('work_mem', '21MB', false)",
            "show work_mem",
            "execute sets",
            "show work_mem",
            "reset work_mem",
            "begin",
            "prepare now as select set_config('work_mem', '22MB', false)",
            "execute now",
            "commit",
            "show work_mem",
            "prepare at_once as select set_config('app.user', 'joe', false); execute at_once",
            "select current_setting('app.user')",
            "deallocate all",
            "execute one",
            "prepare wrong as select nosuch",
            "prepare plus(int) as select $1 + 2",
            "execute plus(1)",
            "discard all",
            "execute plus(1)",
        ],
    );
}

/// Elsewhere they could not be made any more, and the client would lose them.
#[test]
fn statements_prepared_by_sql_outlive_their_objects() {
    check(
        Moves::Yes,
        &[
            "create temp table mine as select 1 as a",
            "prepare p as select * from mine",
            "drop table mine",
            "execute p",
            "create temp table mine as select 2 as a",
            "execute p",
            "drop table mine",
            "deallocate p",
            "select 1",
            "create role weir_goes",
            "set role weir_goes",
            "prepare p as select current_user",
            "reset role",
            "select 1",
            "drop role weir_goes",
            "execute p",
            "deallocate all",
            "select 1",
            "select 2",
        ],
    );
}

#[test]
fn named_statements_of_the_protocol_live_with_their_session() {
    let sync = wire::sync();
    let rounds = [
        [wire::parse("s", "select b from items where a = $1"), sync.clone()].concat(),
        [wire::run("s", &["1"]), sync.clone()].concat(),
        [wire::describe(b'S', "s"), sync.clone()].concat(),
        [wire::parse("s", "select 2"), sync.clone()].concat(),
        wire::query("set timezone = 'Asia/Tokyo'"),
        [wire::run("s", &["2"]), sync.clone()].concat(),
        [wire::parse("t", "select '2024-01-01 12:00'::timestamptz"), sync.clone()].concat(),
        [wire::run("t", &[]), sync.clone()].concat(),
        [wire::close(b'S', "s"), sync.clone()].concat(),
        [wire::run("s", &["2"]), sync.clone()].concat(),
        wire::query("prepare both as select 9"),
        [wire::parse("both", "select 1"), sync.clone()].concat(),
        [wire::describe(b'S', "both"), wire::run("both", &[]), sync.clone()].concat(),
        [wire::close(b'S', "both"), sync.clone()].concat(),
        wire::query("execute both"),
    ];
    check_messages(&rounds, &[1; 15]);
}
