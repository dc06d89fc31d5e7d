//! Effects of triggers, functions and prepared statements that the text does not show, and odd ways to set and reset.

use super::{Moves, check, check_with};

/// Something that sets parameters for the session when it is run, in any way.
const STAGE: &str = "create function other.sets() returns trigger language plpgsql as \
    $$ begin perform set_config('app.user', 'by trigger', false); set work_mem = '31MB'; return new; end $$; \
    create table other.watched (a int); create trigger t before insert on other.watched for each row execute function other.sets()";

const LOOK: &str = "select current_setting('app.user', true), current_setting('work_mem')";

#[test]
fn settings_by_triggers_follow_the_session() {
    check(
        Moves::Yes,
        &[
            STAGE,
            "set app.user = ''",
            "insert into other.watched values (1)",
            LOOK,
            "set work_mem = '5MB'; set app.user = 'mine'",
            LOOK,
            "begin",
            "insert into other.watched values (2)",
            "rollback",
            LOOK,
            "begin",
            "savepoint s",
            "insert into other.watched values (3)",
            LOOK,
            "rollback to s",
            LOOK,
            "insert into other.watched values (4)",
            "reset work_mem",
            "commit",
            LOOK,
            "set app.user = 'mine'",
            "create function other.writes(a int) returns int language sql as 'insert into other.watched values (a) returning a'",
            "select other.writes(5)",
            LOOK,
            "reset all",
            "select other.writes(6), 1/0",
            LOOK,
            "prepare p (int) as insert into other.watched values ($1)",
            "execute p (7)",
            LOOK,
            "reset all",
            "do $$ begin insert into other.watched values (8); raise division_by_zero; exception when others then null; end $$",
            LOOK,
            "create table other.copied as select * from other.watched",
            "discard all",
            LOOK,
            "create rule r as on delete to other.copied do also insert into other.watched values (9)",
            "delete from other.copied where a = 8",
            LOOK,
        ],
    );
}

#[test]
fn deferred_triggers_set_at_the_end_of_the_transaction() {
    check(
        Moves::Yes,
        &[
            STAGE,
            "set app.user = ''",
            "create constraint trigger late after update on other.watched deferrable initially deferred \
             for each row execute function other.sets()",
            "insert into other.watched values (1)",
            "reset all",
            "begin",
            "update other.watched set a = 2",
            LOOK,
            "set work_mem = '5MB'",
            "commit",
            LOOK,
            "reset all",
            "begin",
            "update other.watched set a = 3",
            "set constraints all immediate",
            LOOK,
            "rollback",
            LOOK,
        ],
    );
}

#[test]
fn roles_and_session_users_belong_to_the_session_in_every_order() {
    const WHO: &str = "select current_user, session_user, current_setting('role'), current_setting('is_superuser'), \
        current_setting('work_mem')";
    check(
        Moves::Yes,
        &[
            "set role pg_monitor",
            "set work_mem = '5MB'",
            WHO,
            "begin; reset role; set local role pg_read_all_data; select current_user; rollback",
            WHO,
            "set session authorization pg_monitor",
            WHO,
            "set role pg_read_all_settings",
            WHO,
            "reset session authorization",
            WHO,
            "set role none; set session authorization pg_monitor; set role none",
            WHO,
            "discard all",
            WHO,
            "begin",
            "set session authorization pg_monitor",
            "savepoint s",
            "reset session authorization",
            "set role pg_read_all_data",
            "rollback to s",
            WHO,
            "commit",
            WHO,
            "reset all",
            WHO,
            "do $$ begin set session authorization default; set role pg_monitor; end $$",
            WHO,
            "do $$ begin perform set_config('role', 'none', false); end $$",
            WHO,
            "select set_config('role', 'pg_monitor', true)",
            WHO,
            "select set_config('session_authorization', 'pg_monitor', false)",
            WHO,
            "set role to default",
            "set session authorization default",
            WHO,
        ],
    );
}

#[test]
fn prepared_statements_and_cursors_of_functions_and_rollbacks_are_as_they_were() {
    check(
        Moves::Yes,
        &[
            "begin",
            "prepare p as select 1",
            "rollback",
            "execute p",
            "begin; prepare q as select 2; savepoint s; deallocate q; rollback to s; commit",
            "execute q",
            "prepare r as select 3; select 1/0",
            "execute r",
            "do $$ begin execute 'prepare made as select 4'; end $$",
            "execute made",
            "do $$ begin execute 'deallocate all'; end $$",
            "execute made",
            "create function other.holds() returns void language plpgsql as \
             $$ begin execute 'declare h cursor with hold for select generate_series(1, 3)'; end $$",
            "select other.holds()",
            "fetch 2 from h",
            "select name, is_holdable from pg_cursors where name = 'h'",
            "close h",
            "fetch 1 from h",
            "create function other.opens() returns refcursor language plpgsql as \
             $$ declare c refcursor := 'open_one'; begin open c for select 1; return c; end $$",
            "begin; select other.opens()",
            "fetch 1 from open_one",
            "commit",
            "fetch 1 from open_one",
            "prepare s as select current_setting('work_mem')",
            "set work_mem = '6MB'",
            "execute s",
            "begin; set local work_mem = '7MB'",
            "execute s",
            "commit",
            "explain (costs off) execute s",
            "create temp table mine as execute s",
            "select * from mine",
            "drop table mine",
            "deallocate s",
            "execute s",
        ],
    );
}

#[test]
fn locks_and_listening_of_functions_and_rollbacks_are_as_they_were() {
    const LOCKS: &str = "select objid, mode from pg_locks where locktype = 'advisory' and pid = pg_backend_pid() order by 1, 2";
    check(
        Moves::Yes,
        &[
            "begin; select pg_advisory_lock(21), pg_advisory_lock_shared(22), pg_advisory_xact_lock(23)",
            "savepoint s",
            "select pg_advisory_unlock(21)",
            "rollback to s",
            LOCKS,
            "rollback",
            LOCKS,
            "select pg_advisory_unlock_all()",
            LOCKS,
            "do $$ begin perform pg_advisory_lock(24); raise division_by_zero; end $$",
            LOCKS,
            "do $$ begin perform pg_advisory_unlock_all(); end $$",
            "select lock_unseen(25), 1/0",
            LOCKS,
            "select unlock_unseen(25)",
            LOCKS,
            "begin",
            "do $$ begin listen news; end $$",
            "rollback",
            "select pg_listening_channels()",
            "do $$ begin execute 'listen news'; end $$",
            "notify news, 'one'",
            "do $$ begin execute 'unlisten news'; end $$",
            "notify news, 'two'",
            "select pg_listening_channels()",
        ],
    );
}

#[test]
fn settings_set_in_odd_ways_follow_the_session() {
    check_with(
        &[("options", "-c work_mem=9MB -c app.user=start"), ("DateStyle", "German, DMY")],
        Moves::Yes,
        &[
            "select date '2024-02-01', current_setting('app.user')",
            "set datestyle to iso",
            "show datestyle",
            "set datestyle to mdy",
            "select '1/2/2024'::date",
            "reset datestyle",
            "select '1/2/2024'::date",
            "begin; set local datestyle = 'SQL'; select date '2024-02-01'; commit",
            "select date '2024-02-01'",
            "set xml option document; set time zone local; set names default",
            "select current_setting('xmloption'), current_setting('timezone'), current_setting('client_encoding')",
            "set seed to 0.5",
            "select random() = random()",
            "discard all",
            "set transaction_timeout_of_nobody = 1",
            "set app.user to default",
            "show app.user",
            "set local app.user = 'outside'",
            "show app.user",
            "begin; set local app.user = 'inside'; reset app.user; show app.user; commit",
            "show app.user",
            "alter role current_user set work_mem = '12MB'; alter role current_user reset work_mem",
            "show work_mem",
            "set search_path = other; create table unseen_here (a int); reset search_path",
            "select * from unseen_here",
            "select * from other.unseen_here",
            "set session_replication_role = replica",
            "show session_replication_role",
            "reset session_replication_role",
            "set statement_timeout = 500; select pg_sleep(20)",
            "show statement_timeout",
            "reset statement_timeout",
            "set standard_conforming_strings = off",
            "select 'a\\nb'",
            "reset standard_conforming_strings",
            "set backslash_quote = on; set escape_string_warning = off; set quote_all_identifiers = on",
            "select current_setting('backslash_quote'), current_setting('quote_all_identifiers'), quote_ident('a')",
            "reset all",
            "select current_setting('work_mem'), current_setting('app.user'), current_setting('datestyle')",
            "set lc_messages = 'C'; set bytea_output = 'escape'; set intervalstyle = 'iso_8601'; set extra_float_digits = 0",
            "select '\\x00ff'::bytea, interval '1 day', 0.1::float8 + 0.2",
            "discard all",
            "select '\\x00ff'::bytea, interval '1 day', 0.1::float8 + 0.2",
        ],
    );
}
