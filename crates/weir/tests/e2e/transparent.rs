//! In transaction pooling a session sees no difference from a direct connection, while others take the server connections it used
//! last; and they see nothing of it.
//!
//! Each story is played on a direct connection and through Weir, statement by statement, and every message must be the same. Between
//! two statements a neighbour takes the connection that was used last and looks around on it.

use crate::support::proxy::column_names;
use crate::support::raw::{Message, tags};
use crate::support::{Ground, Proxy, Raw, wait_until, wire};

/// One thread, so that the connection used last is surely the one given next.
const CONF: &str = "worker_threads = 1\npool_size = 3\npool_wait_timeout = 10";

/// What a neighbour looks at: a row of what a session can leave behind.
const LOOK: &str = "select current_setting('work_mem'), current_setting('search_path'), current_setting('timezone'), \
    current_setting('datestyle'), current_setting('statement_timeout'), current_setting('enable_sort'), current_user, session_user, \
    coalesce(current_setting('app.user', true), ''), (select count(*) from pg_prepared_statements where from_sql), \
    (select count(*) from pg_listening_channels()), to_regclass('pg_temp.mine') is null, \
    (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()), \
    (select count(*) from pg_cursors where is_holdable)";

/// Two other clients, one of which holds a connection in a transaction.
struct Neighbours {
    clients: [Raw; 2],
    turn: usize,
    clean: Vec<Vec<String>>,
}

impl Neighbours {
    fn new(ground: &Ground, proxy: &Proxy) -> Neighbours {
        let mut clients = [ground.client(proxy), ground.client(proxy)];
        clients[0].run("begin");
        let clean = clients[0].rows(LOOK);
        Neighbours { clients, turn: 1, clean }
    }

    /// Takes the connection used last, looks around, and lets the other one go.
    fn shuffle(&mut self, after: &str) {
        let (turn, other) = (self.turn, 1 - self.turn);
        self.clients[turn].run("begin");
        assert_eq!(self.clients[turn].rows(LOOK), self.clean, "a neighbour sees what was left by: {after}");
        self.clients[other].run("commit");
        self.turn = other;
    }
}

/// How statements are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    Simple,
    Extended,
}

/// Whether a session is expected to be on more than one connection in the course of its story.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moves {
    Yes,
    /// Something keeps it.
    No,
}

fn say(client: &mut Raw, protocol: Protocol, text: &str) -> Vec<String> {
    let is_simple = protocol == Protocol::Simple || text.contains(';');
    client.send(&match is_simple {
        true => wire::query(text),
        false => [wire::parse("", text), wire::bind("", "", &[]), wire::describe(b'P', ""), wire::execute("", 0), wire::sync()]
            .concat(),
    });
    let mut messages: Vec<String> = client.until_ready().iter().map(shown).collect();
    let version = client.parameters.iter().find(|(name, _)| name == "server_version").map_or("", |(_, version)| version);
    if version.starts_with("13.") {
        // That one reports every change as it is made, later ones and Weir what has changed in the end, which is compared at the end.
        messages.retain(|message| !message.starts_with("S "));
    }
    // In which order parameters are reported that changed together is a server's own affair.
    for reports in messages.chunk_by_mut(|one, next| one.starts_with("S ") && next.starts_with("S ")) {
        reports.sort();
    }
    messages
}

/// A message without what differs between two servers' processes.
fn shown(message: &Message) -> String {
    let body = match message.tag {
        b'E' | b'N' => {
            let is_place = |field: &&[u8]| matches!(field.first(), Some(b'F' | b'L' | b'R') | None);
            let fields: Vec<&[u8]> = message.body.split(|byte| *byte == 0).filter(|field| !is_place(field)).collect();
            fields.join(&b'|')
        }
        b'T' => column_names(&message.body).join(",").into_bytes(),
        b'A' => message.body[4..].to_vec(),
        _ => message.body.clone(),
    };
    format!("{} {}", message.tag as char, body.escape_ascii())
}

/// What stories are told about.
const FIXTURE: &str = "drop table if exists items; create table items (a int primary key, b text);
    insert into items values (1, 'one'), (2, 'two');
    drop schema if exists other cascade; create schema other; create table other.items (x text);
    insert into other.items values ('other'); create sequence other.numbers; create table other.counted (id serial, a int);
    create or replace function remember(name text) returns void language plpgsql as
    $$ begin perform set_config('app.user', name, false); set statement_timeout = '77s'; end $$;
    create or replace function lock_unseen(key int) returns void language plpgsql as $$ begin perform pg_advisory_lock(key); end $$;
    create or replace function unlock_unseen(key int) returns bool language plpgsql as
    $$ begin return pg_advisory_unlock(key); end $$;
    create or replace function table_unseen() returns void language plpgsql as $$ begin create temp table mine (a int); end $$";

/// Plays a story in both protocols with these startup parameters: first on a direct connection, then through the proxy.
fn check_with(parameters: &[(&str, &str)], moves: Moves, story: &[&str]) {
    let ground = Ground::new();
    for protocol in [Protocol::Simple, Protocol::Extended] {
        ground.prepare(FIXTURE);
        let mut direct = Raw::tcp(ground.cluster.primary().port()).log_in("postgres", &ground.database, parameters).unwrap();
        let expected: Vec<_> = story.iter().map(|text| say(&mut direct, protocol, text)).collect();
        let mut expected_parameters = direct.parameters.clone();
        leave(&ground, direct);
        ground.prepare(FIXTURE);
        let proxy = ground.primary_proxy(CONF);
        let mut neighbours = Neighbours::new(&ground, &proxy);
        let mut through = ground.client_with(&proxy, parameters);
        let mut pids = Vec::new();
        for (text, expected) in story.iter().zip(expected) {
            neighbours.shuffle(text);
            assert_eq!(say(&mut through, protocol, text), expected, "{protocol:?}: {text}");
            if expected.last().is_some_and(|ready| ready == "Z I") {
                pids.push(through.value("select pg_backend_pid()"));
            }
        }
        pids.sort();
        pids.dedup();
        assert!(moves == Moves::No || pids.len() > 1, "{protocol:?}: the session was on one connection only");
        let mut parameters = through.parameters.clone();
        expected_parameters.sort();
        parameters.sort();
        assert_eq!(parameters, expected_parameters, "{protocol:?}: what the client was told of parameters");
        drop(through);
        neighbours.shuffle("its end");
        neighbours.shuffle("its end");
    }
}

/// Ends a direct connection and waits until its server process is gone, with all it held.
fn leave(ground: &Ground, mut direct: Raw) {
    let pid = direct.value("select pg_backend_pid()");
    drop(direct);
    let gone = format!("select count(*) from pg_stat_activity where pid = {pid}");
    wait_until("a direct connection to end", || ground.direct().value(&gone) == "0");
}

fn check(moves: Moves, story: &[&str]) {
    check_with(&[], moves, story);
}

#[test]
fn a_set_is_seen_by_its_own_session_and_by_no_other() {
    check(
        Moves::Yes,
        &[
            "set work_mem = '13MB'",
            "show work_mem",
            "set work_mem to 5000",
            "show work_mem",
            "set enable_sort = off",
            "select current_setting('work_mem'), current_setting('enable_sort')",
            "set work_mem = 'much'",
            "show work_mem",
            "set timezone = 'Asia/Tokyo'",
            "select '2024-01-01 12:00+00'::timestamptz",
            "set time zone -5",
            "show timezone",
            "set datestyle = 'German'",
            "show datestyle",
            "set datestyle = 'ISO'",
            "show datestyle",
            "set work_mem = default",
            "show work_mem",
            "reset enable_sort",
            "show enable_sort",
            "set session characteristics as transaction isolation level repeatable read",
            "show transaction_isolation",
            "set statement_timeout = 0; set work_mem = '3MB'",
            "show work_mem",
            "reset all",
            "show work_mem",
            "show timezone",
            "show transaction_isolation",
        ],
    );
}

#[test]
fn the_search_path_is_the_sessions_own() {
    check(
        Moves::Yes,
        &[
            "set search_path = other, public",
            "select * from items",
            "show search_path",
            "set search_path = \"Other One\", \"$user\", public",
            "show search_path",
            "select count(*) from items",
            "set search_path to 'other'",
            "select * from items",
            "reset search_path",
            "select * from items order by a",
        ],
    );
}

#[test]
fn a_set_in_a_transaction_ends_as_the_transaction_does() {
    check(
        Moves::Yes,
        &[
            "select 1",
            "select 2",
            "set work_mem = '5MB'",
            "begin",
            "set work_mem = '6MB'",
            "show work_mem",
            "rollback",
            "show work_mem",
            "begin",
            "set work_mem = '7MB'",
            "savepoint s",
            "set work_mem = '8MB'",
            "set timezone = 'Asia/Tokyo'",
            "rollback to s",
            "show work_mem",
            "show timezone",
            "commit",
            "show work_mem",
            "begin",
            "set local work_mem = '9MB'",
            "set local timezone = 'Asia/Tokyo'",
            "show work_mem",
            "commit",
            "show work_mem",
            "show timezone",
            "begin",
            "set work_mem = '10MB'",
            "set timezone = 'Asia/Tokyo'",
            "select 1/0",
            "commit",
            "show work_mem",
            "show timezone",
            "begin; set work_mem = '11MB'; commit",
            "show work_mem",
            "set work_mem = '12MB'; select 1/0",
            "show work_mem",
            "begin",
            "reset work_mem",
            "show work_mem",
            "rollback",
            "show work_mem",
        ],
    );
}

#[test]
fn set_config_counts_like_set() {
    check(
        Moves::Yes,
        &[
            "select set_config('work_mem', '13MB', false)",
            "show work_mem",
            "select set_config('work_mem', '14MB', true)",
            "show work_mem",
            "select set_config('app.user', 'joe''s', false)",
            "select current_setting('app.user')",
            "set app.user = 'o\\ne'",
            "select current_setting('app.user')",
            "begin",
            "select set_config('app.user', 'gone', false)",
            "rollback",
            "select current_setting('app.user')",
            "reset app.user",
            "select current_setting('app.user')",
        ],
    );
}

#[test]
fn what_functions_and_procedural_code_set_is_the_sessions_too() {
    check(
        Moves::Yes,
        &[
            "select remember('joe')",
            "select current_setting('app.user'), current_setting('statement_timeout')",
            "begin",
            "select remember('sue')",
            "rollback",
            "select current_setting('app.user'), current_setting('statement_timeout')",
            "do $$ begin set work_mem = '15MB'; perform set_config('app.user', 'ann', false); end $$",
            "select current_setting('app.user'), current_setting('work_mem')",
            "do $$ begin reset work_mem; end $$",
            "show work_mem",
        ],
    );
}

#[test]
fn a_role_is_the_sessions_own() {
    check(
        Moves::Yes,
        &[
            "set role pg_monitor",
            "select current_user, session_user",
            "set work_mem = '5MB'",
            "select current_user, current_setting('work_mem')",
            "reset role",
            "select current_user, session_user",
            "begin",
            "set role pg_monitor",
            "rollback",
            "select current_user",
            "set session authorization pg_monitor",
            "select current_user, session_user",
            "set role none",
            "reset session authorization",
            "select current_user, session_user",
            "begin",
            "set local role pg_monitor",
            "select current_user",
            "commit",
            "select current_user",
        ],
    );
}

#[test]
fn startup_parameters_are_there_and_come_again_after_a_reset() {
    let parameters = [
        ("application_name", "my app"),
        ("options", "-c work_mem=17MB -c app.user=startup -c timezone=Asia/Tokyo"),
        ("search_path", "other,public"),
    ];
    check_with(
        &parameters,
        Moves::Yes,
        &[
            "select * from items",
            "select current_setting('work_mem'), current_setting('app.user'), current_setting('application_name')",
            "set work_mem = '18MB'",
            "set timezone = 'UTC'",
            "show work_mem",
            "reset work_mem",
            "show work_mem",
            "reset timezone",
            "show timezone",
            "set timezone = 'UTC'; set application_name = 'other'",
            "reset all",
            "select current_setting('work_mem'), current_setting('timezone'), current_setting('application_name')",
            "begin",
            "set work_mem = '19MB'",
            "reset work_mem",
            "show work_mem",
            "set application_name = 'within'",
            "rollback",
            "show work_mem",
            "set work_mem = '20MB'",
            "begin",
            "reset all",
            "show work_mem",
            "rollback",
            "show work_mem",
            "reset all; select 1",
            "show work_mem",
            "set search_path = public",
            "set application_name = 'third'",
            "discard all",
            "select current_setting('work_mem'), current_setting('timezone'), current_setting('application_name')",
            "select * from items",
            "set search_path to default",
        ],
    );
}

#[test]
fn a_reset_within_a_function_takes_back_to_the_startup_parameters_too() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy(CONF);
    let parameters = [("search_path", "other,public"), ("TimeZone", "Asia/Tokyo"), ("application_name", "my app")];
    let mut client = ground.client_with(&proxy, &parameters);
    let mut neighbours = Neighbours::new(&ground, &proxy);
    client.run("set timezone = 'UTC'");
    client.run("do $$ begin reset all; end $$");
    neighbours.shuffle("a reset");
    for (name, value) in parameters {
        assert_eq!(client.value(&format!("select current_setting('{name}')")).replace(' ', ""), value.replace(' ', ""));
    }
    assert_eq!(client.parameter("TimeZone"), Some("Asia/Tokyo"));
    assert_eq!(client.parameter("application_name"), Some("my app"));
}

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
fn statements_prepared_by_sql_outlive_what_they_are_about() {
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
fn what_is_temporary_without_saying_so_stays_too() {
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
fn what_a_session_drew_from_sequences_is_its_own() {
    check(
        Moves::Yes,
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

#[test]
fn many_statements_in_one_message_are_one_transaction() {
    check(
        Moves::Yes,
        &[
            "select 1; select 2; select 3",
            "insert into items values (3, 'three'); select count(*) from items; select 1/0",
            "select count(*) from items",
            "begin; set work_mem = '5MB'; savepoint s; set work_mem = '6MB'; rollback to s; commit; show work_mem",
            "show work_mem",
            "set timezone = 'Asia/Tokyo'; prepare p as select current_setting('timezone'); reset timezone",
            "execute p",
        ],
    );
}

/// Plays messages, each round with so many ReadyForQuerys, on both sides.
fn check_messages(rounds: &[Vec<u8>], readies: &[usize]) {
    let ground = Ground::new();
    let proxy = ground.primary_proxy(CONF);
    let mut neighbours = Neighbours::new(&ground, &proxy);
    let mut played = Vec::new();
    for is_direct in [true, false] {
        ground.prepare(FIXTURE);
        let mut client = if is_direct { ground.direct() } else { ground.client_with(&proxy, &[("application_name", "direct")]) };
        let mut replies = Vec::new();
        for (at, (bytes, readies)) in rounds.iter().zip(readies).enumerate() {
            neighbours.shuffle("a message");
            client.send(bytes);
            for _ in 0..*readies {
                replies.push((at, client.until_ready().iter().map(shown).collect::<Vec<_>>()));
            }
        }
        played.push(replies);
        if is_direct {
            leave(&ground, client);
        }
    }
    assert_eq!(played[1], played[0]);
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

#[test]
fn a_pipeline_with_an_error_in_the_middle_goes_on_after_its_sync() {
    let sync = wire::sync();
    let rounds = [
        [
            wire::unnamed("set work_mem = '5MB'", &[]),
            wire::unnamed("select 1/0", &[]),
            wire::unnamed("set work_mem = '6MB'", &[]),
            sync.clone(),
            wire::unnamed("show work_mem", &[]),
            sync.clone(),
        ]
        .concat(),
        wire::query("show work_mem"),
        [
            wire::unnamed("set work_mem = '7MB'", &[]),
            sync.clone(),
            wire::unnamed("show work_mem", &[]),
            sync.clone(),
            wire::unnamed("reset work_mem", &[]),
            sync.clone(),
            wire::unnamed("show work_mem", &[]),
            sync.clone(),
        ]
        .concat(),
        [wire::query("set work_mem = '8MB'"), wire::query("select 1/0"), wire::query("show work_mem")].concat(),
        wire::query("show work_mem"),
        [wire::query("reset all"), wire::query("show work_mem"), wire::query("set application_name = 'x'")].concat(),
        wire::query("show application_name"),
    ];
    check_messages(&rounds, &[2, 1, 4, 3, 1, 3, 1]);
}

#[test]
fn copy_works_both_ways() {
    let rounds = [
        wire::query("copy items to stdout"),
        [wire::query("copy items from stdin"), wire::copy_data(b"7\tseven\n8\teight\n"), wire::copy_done()].concat(),
        wire::query("delete from items where a > 6"),
        [wire::query("copy items from stdin"), wire::copy_data(b"9\tn"), wire::copy_fail("no")].concat(),
        wire::query("select * from items order by a"),
        [wire::query("copy items from stdin"), wire::copy_data(b"x\tn\n"), wire::copy_done()].concat(),
        wire::query("select * from items order by a"),
    ];
    check_messages(&rounds, &[1; 7]);
}

#[test]
fn a_client_gone_in_the_middle_of_a_result_leaves_nothing() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy(CONF);
    let mut neighbours = Neighbours::new(&ground, &proxy);
    for _ in 0..4 {
        let mut client = ground.client(&proxy);
        client.run("set work_mem = '13MB'");
        client.run("prepare p as select 1");
        client.send(&wire::query("select repeat('x', 10000) from generate_series(1, 10000)"));
        assert_eq!(client.read().tag, b'T');
        drop(client);
        neighbours.shuffle("a client that went away");
    }
}

#[test]
fn a_server_gone_between_statements_takes_nothing_from_the_session() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy(CONF);
    let mut client = ground.client(&proxy);
    client.run("set work_mem = '13MB'");
    client.run("prepare p as select 8");
    for _ in 0..3 {
        let killed = "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() \
                      and pid <> pg_backend_pid()";
        ground.direct().rows(killed);
        wait_until("the connections to be gone", || ground.server_connections().is_empty());
        assert_eq!(client.value("show work_mem"), "13MB");
        assert_eq!(client.value("execute p"), "8");
    }
}

#[test]
fn a_cancel_hits_the_clients_statement_and_not_what_brings_its_settings() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy(CONF);
    let mut neighbours = Neighbours::new(&ground, &proxy);
    let mut client = ground.client(&proxy);
    client.run("set work_mem = '13MB'");
    for _ in 0..5 {
        neighbours.shuffle("a cancel");
        client.send(&wire::query("select pg_sleep(60)"));
        wait_until("the statement to run", || {
            ground.direct().value("select count(*) from pg_stat_activity where query = 'select pg_sleep(60)'") == "1"
        });
        Raw::tcp(proxy.port()).send(&wire::cancel(client.pid, &client.key));
        let failure = client.until_ready().iter().find(|message| message.tag == b'E').map(Message::failure);
        assert_eq!(failure.expect("the statement is cancelled").sqlstate, "57014");
        assert_eq!(client.value("show work_mem"), "13MB");
    }
}

#[test]
fn any_protocol_a_client_asks_for_is_served() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy(CONF);
    for version in [wire::V3_0, wire::V3_2] {
        let mut client = Raw::tcp(proxy.port());
        client.send(&wire::startup(version, &[("user", "postgres"), ("database", &ground.database)]));
        client.finish_login().unwrap();
        client.run("set work_mem = '13MB'");
        assert_eq!(tags(&client.query("show work_mem")), "TDCZ");
        assert_eq!(client.key.len(), if version == wire::V3_2 { 32 } else { 4 });
    }
}
