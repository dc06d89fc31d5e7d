//! Habits of programs, on purpose or by accident, that a pooler gets wrong.

use super::{Moves, check, check_messages, check_with};
use crate::support::wire;

#[test]
fn made_up_parameters_are_kept_like_others() {
    check(
        Moves::Yes,
        &[
            "select current_setting('myapp.tenant', true)",
            "set myapp.tenant = '6'",
            "begin",
            "set local myapp.tenant = '7'",
            "select current_setting('myapp.tenant')",
            "commit",
            "select current_setting('myapp.tenant')",
            "select set_config('myapp.tenant', '8', true)",
            "show myapp.tenant",
            "begin",
            "select set_config('myapp.tenant', '9', false)",
            "rollback",
            "show myapp.tenant",
            "reset myapp.tenant",
            "show myapp.tenant",
            "set \"My App\".\"A b\" = 'c'",
            "set myapp.deep.name = 'd'",
            "select current_setting('myapp.deep.name')",
            "reset myapp.deep.name",
            "select current_setting('myapp.deep.name')",
            "set myapp.list = 'a', 'b'",
            "show myapp.list",
            "reset all",
            "show myapp.list",
            "show myapp.tenant",
        ],
    );
}

#[test]
fn settings_follow_savepoints_and_caught_errors() {
    check(
        Moves::Yes,
        &[
            "set work_mem = '5MB'",
            "begin",
            "set local work_mem = '6MB'",
            "savepoint a",
            "set local work_mem = '7MB'",
            "savepoint b",
            "set work_mem = '8MB'",
            "rollback to a",
            "show work_mem",
            "select set_config('work_mem', '9MB', true)",
            "release a",
            "show work_mem",
            "commit",
            "show work_mem",
            "begin",
            "savepoint a",
            "set work_mem = '10MB'",
            "select 1/0",
            "rollback to a",
            "set work_mem = '11MB'",
            "set local work_mem = '12MB'",
            "commit",
            "show work_mem",
            "begin",
            "set local work_mem = '13MB'",
            "set work_mem = '14MB'",
            "set local timezone = 'Asia/Tokyo'",
            "commit and chain",
            "select current_setting('work_mem'), current_setting('timezone')",
            "rollback and chain",
            "set work_mem = '15MB'",
            "rollback",
            "show work_mem",
            "do $$ begin begin set work_mem = '16MB'; raise division_by_zero; exception when others then null; end; end $$",
            "show work_mem",
            "do $$ begin set local work_mem = '17MB'; end $$",
            "show work_mem",
            "do $$ begin set work_mem = '18MB'; commit; set work_mem = '19MB'; rollback; end $$",
            "show work_mem",
        ],
    );
}

#[test]
fn functions_and_procedures_set_what_their_definition_says() {
    check(
        Moves::Yes,
        &[
            "create function other.inside() returns text language sql set work_mem = '23MB' as $$ select current_setting('work_mem') $$",
            "select other.inside()",
            "show work_mem",
            "create function other.lasting() returns void language plpgsql set work_mem = '23MB' as \
             $$ begin set work_mem = '24MB'; set timezone = 'Asia/Tokyo'; end $$",
            "select other.lasting()",
            "select current_setting('work_mem'), current_setting('timezone')",
            "create procedure other.proceeds() language plpgsql as \
             $$ begin perform set_config('app.user', 'one', false); commit; perform set_config('app.user', 'two', false); rollback; end $$",
            "call other.proceeds()",
            "select current_setting('app.user')",
            "with s as (select set_config('app.user', 'by with', false)) select * from s",
            "select current_setting('app.user')",
            "update items set b = set_config('app.user', 'by update', false) where a = 1",
            "select current_setting('app.user')",
            "explain (analyze, costs off, timing off, summary off) select set_config('app.user', 'by explain', false)",
            "select current_setting('app.user')",
            "create table other.made as select set_config('app.user', 'by create', false)",
            "select current_setting('app.user')",
            "update pg_settings set setting = '26MB' where name = 'work_mem'",
            "show work_mem",
            "alter function other.inside() set work_mem = '25MB'",
            "select other.inside()",
            "alter system set work_mem = 'much'",
        ],
    );
}

#[test]
fn transactions_have_their_modes_and_warnings() {
    check(
        Moves::Yes,
        &[
            "commit",
            "rollback",
            "set local work_mem = '5MB'",
            "set transaction isolation level serializable",
            "savepoint s",
            "release s",
            "begin isolation level serializable read only deferrable",
            "begin",
            "select current_setting('transaction_isolation'), current_setting('transaction_read_only')",
            "insert into items values (9, 'no')",
            "end",
            "set default_transaction_read_only = on",
            "insert into items values (9, 'no')",
            "begin read write",
            "insert into items values (9, 'yes')",
            "abort",
            "show default_transaction_read_only",
            "set session characteristics as transaction read write, isolation level serializable",
            "begin",
            "show transaction_isolation",
            "set transaction isolation level read committed",
            "show transaction_isolation",
            "set transaction snapshot 'nothing'",
            "rollback",
            "show default_transaction_isolation",
            "reset all",
            "start transaction read only",
            "set transaction read write",
            "show transaction_read_only",
            "select 1/0",
            "select 1",
            "commit",
            "select 1; begin; select 2",
            "select 3; commit; select 4",
            "begin; insert into items values (10, 'gone'); select 1/0; commit",
            "select count(*) from items",
            "rollback",
            "select count(*) from items",
            "begin; select 1; commit; begin; select 2",
            "commit",
        ],
    );
}

#[test]
fn two_phase_commit_is_finished_on_any_connection() {
    check(
        Moves::Yes,
        &[
            "begin",
            "insert into items values (3, 'prepared')",
            "set work_mem = '5MB'",
            "prepare transaction 'weir_habits'",
            "show work_mem",
            "select count(*) from items",
            "select gid from pg_prepared_xacts where gid = 'weir_habits'",
            "commit prepared 'weir_habits'",
            "select count(*) from items",
            "begin",
            "select pg_advisory_xact_lock(12)",
            "prepare transaction 'weir_habits'",
            "select pg_try_advisory_lock(12)",
            "rollback prepared 'weir_habits'",
            "select pg_try_advisory_lock(12)",
            "select pg_advisory_unlock(12)",
            "prepare transaction 'outside'",
            "rollback prepared 'nothing'",
            "select 1",
            "select 2",
        ],
    );
}

#[test]
fn notifications_of_transactions_that_fail_are_never_heard() {
    check(
        Moves::Yes,
        &[
            "listen news",
            "begin",
            "notify news, 'rolled back'",
            "rollback",
            "begin",
            "notify news, 'before'",
            "savepoint s",
            "notify news, 'undone'",
            "rollback to s",
            "notify news, 'after'",
            "notify news, 'after'",
            "commit",
            "begin",
            "unlisten news",
            "notify news, 'to itself'",
            "rollback",
            "notify news, 'still heard'",
            "begin",
            "listen other",
            "savepoint s",
            "unlisten *",
            "rollback to s",
            "commit",
            "select pg_listening_channels() order by 1",
            "notify other; notify news, 'x'; select 1/0",
            "select pg_notify('other', repeat('x', 7999))",
            "select pg_notify('other', repeat('x', 8000))",
            "select pg_notify('', 'x')",
            "unlisten *",
            "select pg_listening_channels()",
            "select 1",
        ],
    );
}

#[test]
fn an_encoding_of_its_own_is_kept() {
    check(
        Moves::Pinned,
        &[
            "set client_encoding = 'LATIN1'",
            "select chr(228)",
            "select length(chr(228)), chr(8364)",
            "show client_encoding",
            "begin",
            "set local client_encoding = 'UTF8'",
            "select chr(228)",
            "rollback",
            "select chr(228)",
            "set names 'UTF8'",
            "select chr(8364)",
            "set names 'no such'",
            "reset client_encoding",
            "show client_encoding",
        ],
    );
    check_with(
        &[("client_encoding", "LATIN1")],
        Moves::Pinned,
        &[
            "select chr(228)",
            "set client_encoding to utf8",
            "select chr(228)",
            "discard all",
            "select chr(228)",
            "show client_encoding",
        ],
    );
}

#[test]
fn startup_options_are_written_in_all_ways() {
    let options = "-c statement_timeout=55s --work-mem=12MB -c myapp.name=a\\ b\\\\c -cdatestyle=German,DMY --search_path=other";
    let parameters = [
        ("options", options),
        ("extra_float_digits", "2"),
        ("IntervalStyle", "iso_8601"),
        ("myapp.tenant", "9"),
        ("bytea_output", "escape"),
    ];
    check_with(
        &parameters,
        Moves::Yes,
        &[
            "select current_setting('statement_timeout'), current_setting('work_mem'), current_setting('myapp.name')",
            "select current_setting('datestyle'), current_setting('search_path'), current_setting('extra_float_digits')",
            "select interval '1 day 2 hours', '\\x41ff'::bytea, current_setting('myapp.tenant')",
            "set myapp.tenant = '10'",
            "set myapp.name = ''",
            "reset myapp.tenant",
            "reset myapp.name",
            "select current_setting('myapp.tenant'), current_setting('myapp.name')",
            "set statement_timeout = 0; set bytea_output = hex",
            "discard all",
            "select current_setting('statement_timeout'), current_setting('bytea_output'), current_setting('search_path')",
            "select 1 as a",
        ],
    );
}

#[test]
fn each_kind_of_discard_lets_go_of_its_own_only() {
    check(
        Moves::Yes,
        &[
            "set work_mem = '5MB'",
            "prepare p as select 5",
            "create temp table mine (a int)",
            "discard plans",
            "execute p",
            "discard temp",
            "select * from mine",
            "execute p",
            "discard sequences",
            "show work_mem",
            "execute p",
            "deallocate prepare all",
            "execute p",
            "show work_mem",
            "begin; discard plans; discard temp; discard sequences; commit",
            "discard all; select 1",
            "show work_mem",
            "discard all",
            "show work_mem",
        ],
    );
}

#[test]
fn temporary_things_of_every_kind_stay() {
    check(
        Moves::Yes,
        &[
            "create temp view mine as select 1 as a",
            "select * from mine",
            "drop view mine",
            "create temp sequence mine",
            "select nextval('mine')",
            "drop sequence mine",
            "create function pg_temp.mine() returns int language sql as 'select 8'",
            "select pg_temp.mine()",
            "drop function pg_temp.mine()",
            "create type pg_temp.mine as enum ('a')",
            "select 'a'::pg_temp.mine",
            "drop type pg_temp.mine",
            "create temp table mine (a int) on commit delete rows",
            "insert into mine values (1)",
            "select count(*) from mine",
            "create temp table if not exists mine (a int)",
            "alter table mine rename to yours",
            "select count(*) from yours",
            "drop table yours",
            "begin; create temp table mine (a int) on commit drop; insert into mine values (1); select * from mine; commit",
            "select * from mine",
            "create temp table mine as table items; select count(*) from mine; drop table mine",
            "select 1",
            "select 2",
        ],
    );
}

#[test]
fn large_objects_live_in_their_transaction() {
    check(
        Moves::Yes,
        &[
            "select lo_create(474747)",
            "begin",
            "select lo_open(474747, 393216)",
            "select lowrite(0, 'large')",
            "select lo_lseek(0, 0, 0), loread(0, 3)",
            "savepoint s",
            "select lo_open(474747, 262144)",
            "rollback to s",
            "select loread(1, 3)",
            "rollback to s",
            "select lo_close(0)",
            "commit",
            "select loread(0, 3)",
            "select lo_get(474747)",
            "select lo_unlink(474747)",
            "select lo_get(474747)",
        ],
    );
}

#[test]
fn cursors_and_locks_end_with_their_transaction() {
    check(
        Moves::Yes,
        &[
            "begin",
            "declare c scroll cursor for select generate_series(1, 5)",
            "fetch 2 from c",
            "savepoint s",
            "move last in c",
            "declare d cursor for select 1",
            "rollback to s",
            "fetch prior from c",
            "fetch 1 from d",
            "rollback to s",
            "commit",
            "fetch 1 from c",
            "declare c cursor for select 1",
            "begin",
            "lock table items in access exclusive mode",
            "select pg_try_advisory_xact_lock(1), pg_try_advisory_lock_shared(2)",
            "savepoint s",
            "select pg_advisory_lock(3)",
            "rollback to s",
            "rollback",
            "select count(*) from pg_locks where locktype in ('advisory', 'relation') and pid = pg_backend_pid() and granted \
             and mode <> 'AccessShareLock'",
            "select pg_advisory_unlock_shared(2), pg_advisory_unlock(3)",
            "select pg_advisory_unlock_shared(2), pg_advisory_unlock(3)",
            "select 1",
            "select 2",
        ],
    );
}

#[test]
fn a_server_shows_a_session_its_own_name_and_settings() {
    check_with(
        &[("application_name", "shown"), ("TimeZone", "Asia/Tokyo")],
        Moves::Yes,
        &[
            "select application_name, usename, state from pg_stat_activity where pid = pg_backend_pid()",
            "set application_name = 'Änderung'",
            "select application_name from pg_stat_activity where pid = pg_backend_pid()",
            "set session authorization default; set application_name = 'x'",
            "show application_name",
            "reset all; set application_name = 'y'; set session myapp.name = 'z'",
            "show application_name",
            "show timezone",
            "set application_name = 'lost'; reset application_name; set timezone = 'Asia/Seoul'",
            "show application_name",
            "show timezone",
            "reset timezone; select set_config('timezone', 'UTC', false); reset application_name",
            "show timezone",
            "select session_user, current_user, user, current_schemas(true), current_database() = current_catalog",
            "show is_superuser",
            "set role pg_monitor; show is_superuser",
            "reset role",
            "show is_superuser",
            "set session authorization pg_monitor",
            "show is_superuser",
            "set session authorization default",
            "show session_authorization",
            "show role",
            "select count(*) > 0 from pg_stat_ssl where pid = pg_backend_pid() and ssl",
        ],
    );
}

/// libpq's functions for large objects are such calls, and any other function can be called so, too.
#[test]
fn functions_called_by_the_protocol_leave_what_statements_leave() {
    const SET_CONFIG: u32 = 2078;
    const LOCK: u32 = 2880;
    const UNLOCK: u32 = 2885;
    let rounds = [
        wire::function_call(SET_CONFIG, &["work_mem", "13MB", "f"]),
        wire::query("show work_mem"),
        wire::query("begin"),
        wire::function_call(SET_CONFIG, &["work_mem", "14MB", "f"]),
        wire::query("rollback"),
        wire::query("show work_mem"),
        wire::function_call(SET_CONFIG, &["app.user", "called", "f"]),
        wire::query("select current_setting('app.user')"),
        wire::function_call(SET_CONFIG, &["app.user", &"long ".repeat(10), "f"]),
        wire::function_call(SET_CONFIG, &["app.a_name_of_the_length_of_a_digit_or_a_letter_in_ascii", "x", "f"]),
        wire::query("select current_setting('app.a_name_of_the_length_of_a_digit_or_a_letter_in_ascii')"),
        wire::query("begin; select 1/0"),
        wire::function_call(SET_CONFIG, &["work_mem", "15MB", "f"]),
        wire::query("rollback"),
        wire::query("select pg_advisory_lock(1 << 32 | 5)"),
        wire::query("select pg_advisory_unlock(1 << 32 | 5)"),
        wire::function_call(LOCK, &["x"]),
        wire::function_call(UNLOCK, &[]),
        wire::query("select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"),
    ];
    check_messages(&rounds, &[1; 19]);
}

#[test]
fn deallocate_ends_statements_of_the_protocol() {
    let sync = wire::sync();
    let prepare = |name: &str| [wire::parse(name, "select b from items where a = $1"), sync.clone()].concat();
    let run = |name: &str| [wire::run(name, &["1"]), sync.clone()].concat();
    let rounds = [
        prepare("s"),
        run("s"),
        wire::query("deallocate s"),
        run("s"),
        prepare("s"),
        prepare("t"),
        wire::query("deallocate all"),
        run("s"),
        run("t"),
        prepare("s"),
        wire::query("begin"),
        wire::query("deallocate s"),
        wire::query("rollback"),
        run("s"),
        prepare("s"),
        wire::query("discard all"),
        run("s"),
        prepare("s"),
        prepare("s"),
        wire::query("begin; select 1/0"),
        prepare("u"),
        wire::query("rollback"),
        run("u"),
        [wire::unnamed("deallocate s", &[]), sync.clone()].concat(),
        run("s"),
    ];
    check_messages(&rounds, &[1; 25]);
}

#[test]
fn a_deallocate_of_the_protocol_is_bound_and_executed_as_any_other_statement() {
    let sync = wire::sync();
    let prepare = || wire::query("prepare p as select 1");
    let bound = |values: &[&str]| [wire::parse("", "deallocate p"), wire::bind("", "", values), wire::execute("", 0)].concat();
    let rounds = [
        prepare(),
        [bound(&["1"]), sync.clone()].concat(),
        [wire::parse("d", "deallocate p"), wire::bind("", "d", &["1", "2"]), wire::execute("", 0), sync.clone()].concat(),
        wire::query("execute p"),
        [bound(&[]), wire::execute("", 0), sync.clone()].concat(),
        wire::query("rollback"),
        wire::query("begin"),
        prepare(),
        [bound(&[]), wire::execute("", 0), sync.clone()].concat(),
        wire::query("rollback"),
        [wire::parse("", "show work_mem"), wire::bind("", "", &["1"]), wire::execute("", 0), sync.clone()].concat(),
    ];
    check_messages(&rounds, &[1; 11]);
}

#[test]
fn portals_are_read_in_parts_and_end_with_their_transaction() {
    let sync = wire::sync();
    let series = |portal: &str| [wire::parse("", "select generate_series(1, 5)"), wire::bind(portal, "", &[])].concat();
    let rounds = [
        [series(""), wire::execute("", 2), sync.clone()].concat(),
        [wire::execute("", 2), sync.clone()].concat(),
        wire::query("begin"),
        [series("p"), wire::execute("p", 2), sync.clone()].concat(),
        [wire::execute("p", 2), wire::describe(b'P', "p"), sync.clone()].concat(),
        wire::query("fetch 1 from p"),
        wire::query("select name from pg_cursors"),
        wire::query("savepoint s; select 1/0"),
        [wire::execute("p", 0), sync.clone()].concat(),
        wire::query("rollback to s"),
        [wire::execute("p", 1), wire::close(b'P', "p"), wire::execute("p", 1), sync.clone()].concat(),
        wire::query("commit"),
        [wire::execute("p", 1), sync.clone()].concat(),
        [series("q"), wire::execute("q", 1), wire::execute("q", 1), wire::execute("q", 9), sync.clone()].concat(),
    ];
    check_messages(&rounds, &[1; 14]);
}

#[test]
fn copy_works_in_the_extended_protocol_and_in_pipelines() {
    let sync = wire::sync();
    let data = |text: &str| wire::copy_data(text.as_bytes());
    let rounds = [
        [wire::unnamed("copy items to stdout", &[]), sync.clone()].concat(),
        [wire::unnamed("copy items from stdin", &[]), data("5\tfive\n"), data("6\tsix\n"), wire::copy_done(), sync.clone()]
            .concat(),
        [wire::unnamed("copy items from stdin", &[]), data("7\tseven\n"), wire::copy_fail("no"), sync.clone()].concat(),
        [wire::unnamed("copy items from stdin", &[]), data("x\n"), wire::copy_done(), sync.clone()].concat(),
        [
            wire::query("copy items from stdin; set work_mem = '5MB'; select count(*) from items"),
            data("8\te\n"),
            wire::copy_done(),
        ]
        .concat(),
        wire::query("show work_mem"),
        [wire::query("copy items from stdin"), data("9\tn\n"), sync.clone(), data("10\tt\n"), wire::copy_done()].concat(),
        wire::query("select count(*) from items"),
        wire::query("copy (select set_config('work_mem', '6MB', false)) to stdout"),
        wire::query("show work_mem"),
    ];
    check_messages(&rounds, &[1; 10]);
}
