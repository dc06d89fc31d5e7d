//! Routing by the database's catalog, and the read retry below it.

use crate::support::ground::{self, wait_for_catalog};
use crate::support::proxy::Backend;
use crate::support::{Ground, Proxy, Raw, wait_until, wire};
use std::collections::BTreeSet;

/// Before version 14 there are no functions whose body is parsed when they are made.
fn is_older_than_14(ground: &Ground) -> bool {
    ground.direct().value("show server_version_num").parse::<u32>().unwrap() < 140_000
}

/// Makes the objects of the table's statements; returns its lines as statement and expectation.
fn prepare_table(ground: &Ground) -> Vec<(&'static str, &'static str)> {
    let is_old = is_older_than_14(ground);
    let objects = include_str!("routes/objects.sql").lines().filter(|line| !is_old || !line.contains(" begin atomic "));
    ground.prepare(&objects.collect::<Vec<_>>().join("\n"));
    let lines = include_str!("routes/table.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let known = lines.filter(|line| !is_old || !line.contains("knows_sequence"));
    known.map(|line| line.split_once(" ==> ").expect("a line is `statement ==> where rule`")).collect()
}

/// Where the table's statements go, as `SHOW route` tells.
#[test]
fn every_statement_of_the_table_goes_where_it_says() {
    let ground = Ground::new();
    let table = prepare_table(&ground);
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    let mut wrong = Vec::new();
    let mut count = 0;
    for (text, expected) in table {
        let row = &client.rows(&format!("show route for '{}'", text.replace('\'', "''")))[0];
        let said = format!("{} {}", row[0], row[2]);
        if said != expected {
            wrong.push(format!("{text} ==> {said}"));
        }
        count += 1;
    }
    assert!(count >= 250, "{count} lines");
    assert!(wrong.is_empty(), "{} lines are, as it is:\n{}", wrong.len(), wrong.join("\n"));
    ground.prepare("drop foreign data wrapper w cascade");
}

/// Statements the table sends to a reader run there.
#[test]
fn what_is_said_to_only_read_is_refused_by_no_standby() {
    let ground = Ground::new();
    let table = prepare_table(&ground);
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    for (text, _) in table.into_iter().filter(|(_, expected)| *expected == "reader read") {
        if !text.starts_with("copy") {
            let _ = client.try_rows(text).unwrap_or_else(|failure| panic!("{text}: {failure:?}"));
        }
    }
    ground.prepare("drop foreign data wrapper w cascade");
}

fn rule(client: &mut Raw, text: &str) -> String {
    client.rows(&format!("show route for '{}'", text.replace('\'', "''")))[0][2].clone()
}

/// Statements of a rule, as `SHOW pool_rules` counts them.
fn counted(client: &mut Raw, rule: &str) -> u64 {
    let rows = client.rows("show pool_rules");
    let row = rows.iter().find(|row| row[1] == rule).unwrap_or_else(|| panic!("{rule} is not shown"));
    row[2].parse().unwrap()
}

#[test]
fn show_route_and_the_counters_name_why_reads_of_a_session_are_on_the_primary() {
    const READ: &str = "select setting from items_of_rules";
    let ground = Ground::new();
    ground.prepare("create table items_of_rules (setting text)");
    // A configuration, the session's first statement, the rule of a read then, and its count: a session that keeps its server connection is not routed.
    let cases = [
        ("pool_mode = 'session'", "select 1", "session_pooling", 1),
        ("", "set default_transaction_isolation = 'serializable'", "serializable_by_default", 1),
        ("", "set standard_conforming_strings = off", "texts_read_otherwise", 0),
        ("", "set client_encoding = 'SJIS'", "texts_read_otherwise", 0),
        ("disable_load_balance_on_write = 'always'", "insert into items_of_rules values ('a')", "wrote_in_session", 1),
        ("disable_load_balance_on_write = 'always'", "select 1", "read", 0),
    ];
    for (config, first, expected, count) in cases {
        let proxy = ground.proxy(config);
        let mut client = ground.client(&proxy);
        client.query(first);
        let row = &client.rows(&format!("show route for '{READ}'"))[0];
        let side = if expected == "read" { "reader" } else { "primary" };
        assert_eq!((row[0].as_str(), row[2].as_str()), (side, expected), "{config} {first}");
        client.query(READ);
        assert_eq!(counted(&mut client, expected), count, "{config} {first}");
    }
}

fn check_is_on_standby(ground: &Ground, client: &mut Raw, text: &str) {
    let port = client.value(text);
    assert!(ground.standby_ports().contains(&port), "{text} went to {port}");
}

#[test]
fn an_operator_in_place_of_a_standard_one_counts_where_nothing_else_is_named() {
    let ground = Ground::new();
    ground.prepare(
        "create table t (a int); create schema odd;
         create function odd.plus(int, int) returns int language sql as 'insert into public.t values ($1) returning a';
         create operator odd.+ (function = odd.plus, leftarg = int, rightarg = int)",
    );
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    assert_eq!(rule(&mut client, "select 1 + 2"), "read");
    client.run("set search_path = odd, public, pg_catalog");
    assert_eq!(rule(&mut client, "select 1 + 2"), "operator");
    assert_eq!(client.value("select 1 + 2"), "1");
    assert_eq!(client.extended("select 5 + 2", &[]).unwrap(), "5");
    assert_eq!(client.value("select count(*) from t"), "2");
    assert_eq!(proxy.metric("reads_repeated_total"), 0, "no standby was asked");
}

/// Defect 4 of Pgpool-II: it never forgets its first look at a function.
#[test]
fn a_definition_through_weir_counts_for_the_next_statement() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let (mut one, mut other) = (ground.client(&proxy), ground.client(&proxy));
    assert_eq!(rule(&mut other, "select f()"), "function");
    one.run("create sequence s");
    one.run("create function f() returns int language sql stable as 'select inet_server_port()'");
    assert_ne!(rule(&mut other, "select f()"), "read", "not before the catalog is read again");
    wait_for_catalog(&mut other, &ground.database);
    ground.cluster.wait_caught_up().unwrap();
    check_is_on_standby(&ground, &mut other, "select f()");
    one.run("create or replace function f() returns int language sql volatile as 'select nextval(''s'')::int'");
    assert_eq!(other.value("select f()"), "1", "the first statement after it");
    assert_eq!(other.extended("select f()", &[]).unwrap(), "2");
    wait_for_catalog(&mut other, &ground.database);
    assert_eq!(rule(&mut other, "select f()"), "function");
    assert_eq!(other.value("select f()"), "3");
}

#[test]
fn a_definition_counts_once_its_transaction_is_over() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.proxy("");
    let (mut one, mut other) = (ground.client(&proxy), ground.client(&proxy));
    one.run("begin");
    one.run("alter table t set unlogged");
    assert_eq!(rule(&mut other, "select a from t"), "read", "nobody sees it yet");
    one.run("commit");
    assert_ne!(rule(&mut other, "select a from t"), "read");
    other.run("select a from t");
    wait_for_catalog(&mut other, &ground.database);
    assert_eq!(rule(&mut other, "select a from t"), "unlogged_table");
}

#[test]
fn a_definition_past_weir_is_noticed() {
    let ground = Ground::new();
    ground.prepare("create table t (a int); create function f() returns int language sql stable as 'select 1'");
    let proxy = ground.proxy("");
    let (mut client, mut asker) = (ground.client(&proxy), ground.client(&proxy));
    let mut reads = || -> u64 {
        let rows = asker.rows("show pool_catalogs");
        rows.iter().find(|row| row[0] == ground.database).unwrap()[5].parse().unwrap()
    };
    let mut check = |definition: &str, text: &str, expected: &str| {
        ground.prepare(definition);
        wait_until(definition, || rule(&mut client, text) == expected);
    };
    check("alter function f() volatile", "select f()", "function");
    check("create or replace function f() returns int language sql immutable as 'select 2'", "select f()", "read");
    check(
        "create view v as select nextval('s') from (select 1) x, t".replace("nextval('s')", "1").as_str(),
        "select * from v",
        "read",
    );
    check(
        "create sequence s; create or replace view v as select nextval('s')::int as \"?column?\"",
        "select * from v",
        "writing_view",
    );
    check("alter table t set unlogged", "select a from t", "unlogged_table");
    check("drop table t cascade", "select a from t", "unknown_relation");
    check("create operator ## (leftarg = int, rightarg = int, function = int4pl)", "select 1 ## 2", "read");
    // Last, since it shows that all of before is known: an operator that is not yet known changes no answer.
    check("do 'begin create table t2 (a int); end'", "select a from t2", "read");
    let before = reads();
    // Rows do not make Weir read it again, nor do changes of storage only.
    ground.prepare("insert into t2 values (1); truncate t2; analyze t2; create temp table x (a int)");
    ground.prepare("vacuum full t2");
    check("create table t3 (a int)", "select a from t3", "read");
    assert!(reads() <= before + 1, "once for the last table, and not for what came before it");
}

/// Defect 5 of Pgpool-II: `set_config` changes the path on one server only.
#[test]
fn names_are_looked_up_in_the_sessions_path() {
    let ground = Ground::new();
    ground.prepare(
        "create table t as select 1 as a, 1 as port; create schema s2; create unlogged table s2.t as select 2 as a;
         create schema s3; create table s3.t as select 3 as a",
    );
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    for (change, expected, value) in [
        ("select set_config('search_path', 's2', false)", "unlogged_table", "2"),
        ("set search_path = s3, s2", "read", "3"),
        ("set search_path to nowhere, \"s2\"", "unlogged_table", "2"),
        ("reset search_path", "read", "1"),
        ("begin; set local search_path = s2; commit", "read", "1"),
        ("begin; set search_path = s2; rollback", "read", "1"),
        ("do $$ begin perform set_config('search_path', 's2', false); end $$", "unlogged_table", "2"),
        ("discard all", "read", "1"),
    ] {
        client.run(change);
        // The server is asked about a session whose settings are in doubt first.
        assert_eq!(client.value("select a from t"), value, "{change}");
        assert_eq!(rule(&mut client, "select a from t"), expected, "{change}");
    }
    let mut client = ground.client_with(&proxy, &[("options", "-c search_path=s2")]);
    assert_eq!(rule(&mut client, "select a from t"), "unlogged_table");
    let database = &ground.database;
    ground.prepare(&format!("alter database {database} set search_path = s2"));
    let mut client = ground.client(&proxy);
    wait_until("the default to be known", || rule(&mut client, "select a from t") == "unlogged_table");
    ground.prepare(&format!("alter database {database} reset search_path"));
}

#[test]
fn lists_of_functions_hold_also_after_a_reload() {
    let ground = Ground::new();
    ground
        .prepare("create function f() returns int language sql as 'select inet_server_port()'; create view v as select f() as f");
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    assert_eq!([rule(&mut client, "select f()"), rule(&mut client, "select * from v")], ["function", "writing_view"]);
    let text = std::fs::read_to_string(proxy.conf_path()).unwrap();
    std::fs::write(proxy.conf_path(), format!("{text}\nread_only_function_list = 'f'\n")).unwrap();
    proxy.reload();
    wait_until("the list to hold", || rule(&mut client, "select f()") == "read");
    assert_eq!(rule(&mut client, "select * from v"), "read");
    check_is_on_standby(&ground, &mut client, "select f from v");
}

/// A function that says it only reads, and does not: only the server knows.
const LIAR: &str = "create sequence s; create table t (a int); insert into t values (1), (2);
    create function liar() returns int language sql stable as 'select pg_catalog.nextval(''s'')::int'";

#[test]
fn a_read_that_a_standby_refuses_runs_on_the_primary_unseen() {
    let ground = Ground::new();
    ground.prepare(LIAR);
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    client.send(&wire::query("select liar()"));
    assert_eq!(client.tags(), "TDCZ", "one answer");
    assert_eq!(proxy.metric("reads_repeated_total"), 1);
    assert_eq!(rule(&mut client, "select liar()"), "standby_refused", "it is remembered");
    assert_eq!(client.value("select liar()"), "2");
    assert_eq!(proxy.metric("reads_repeated_total"), 1);
    assert_eq!(client.extended("select liar() + 0", &[]).unwrap(), "3");
    assert_eq!(client.extended("select liar() + $1::int", &["10"]).unwrap(), "14");
    assert_eq!(proxy.metric("reads_repeated_total"), 3);
    client.send(&wire::query("copy (select liar()) to stdout"));
    assert_eq!(client.tags(), "HdcCZ");
    assert_eq!(proxy.metric("reads_repeated_total"), 4);
    let port = client.value("select inet_server_port()");
    assert!(ground.standby_ports().contains(&port), "other reads stay on standbys");
}

#[test]
fn an_error_after_the_first_row_is_the_clients() {
    let ground = Ground::new();
    ground.prepare(LIAR);
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    let failure = client.error("select 1; select liar()");
    assert_eq!(failure.sqlstate, "25006");
    assert_eq!(proxy.metric("reads_repeated_total"), 0);
    let failure = client.error("select 1 / (a - 1) from t");
    assert_eq!(failure.sqlstate, "22012", "an error that any server gives is told at once");
    assert_eq!(proxy.metric("reads_repeated_total"), 0);
    assert_eq!(client.value("select 1"), "1");
}

#[test]
fn pipelined_reads_are_caught_by_the_net_too() {
    let ground = Ground::new();
    ground.prepare(LIAR);
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    let one = |name: &str, text: &str| {
        [wire::parse(name, text), wire::bind("", name, &[]), wire::describe(b'P', ""), wire::execute("", 0)].concat()
    };
    // A pipeline that begins with the refused read, then a named statement, and later segments of its own.
    client.send(
        &[one("a", "select liar()"), one("b", "select a from t"), wire::sync(), one("c", "select 7"), wire::sync()].concat(),
    );
    assert_eq!(client.tags(), "12TDC12TDDCZ");
    assert_eq!(client.tags(), "12TDCZ");
    assert_eq!(proxy.metric("reads_repeated_total"), 1);
    // The named statements are there.
    client.send(&[wire::bind("", "a", &[]), wire::execute("", 0), wire::sync()].concat());
    assert_eq!(client.tags(), "2DCZ");
    client.send(&[wire::parse("a", "select 1"), wire::sync()].concat());
    assert_eq!(client.tags(), "EZ", "the name is taken");
    // Queries sent without waiting.
    client.send(&[wire::query("select liar() * 1"), wire::query("select a from t where a = 1"), wire::query("selec")].concat());
    assert_eq!([client.tags(), client.tags(), client.tags()], ["TDCZ", "TDCZ", "EZ"]);
}

/// After an error the server passes a Query over until a Sync comes: nobody waits for its end.
#[test]
fn a_query_behind_messages_without_a_sync_has_no_net_and_hangs_nobody() {
    let ground = Ground::new();
    ground.prepare(LIAR);
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    for _ in 0..3 {
        client.send(&[wire::parse("", "select no_such_column from t"), wire::query("select 1")].concat());
        assert_eq!(client.read().failure().sqlstate, "42703");
        client.send(&wire::sync());
        assert_eq!(client.tags(), "Z");
        client.send(&[wire::copy_fail("x"), wire::sync(), wire::query("rollback"), wire::query("select 'end'")].concat());
        assert_eq!([client.tags(), client.tags(), client.tags()], ["Z", "CZ", "TDCZ"]);
    }
    assert_eq!(client.value("select liar()"), "1");
}

#[test]
fn a_flush_and_a_message_too_long_to_be_kept_get_their_answers_at_once() {
    let ground = Ground::new();
    ground.prepare(LIAR);
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    client.send(&[wire::parse("", "select a from t where a = 1"), wire::describe(b'S', ""), wire::flush()].concat());
    let tags: String = (0..3).map(|_| char::from(client.read().tag)).collect();
    assert_eq!(tags, "1tT");
    client.send(&[wire::bind("", "", &[]), wire::execute("", 0), wire::sync()].concat());
    assert_eq!(client.tags(), "2DCZ");
    let long = format!("select liar() /* {} */", "x".repeat(20_000));
    assert_eq!(client.error(&long).sqlstate, "25006", "beyond the bound there is no net");
    assert_eq!(client.value("select 1"), "1");
}

#[test]
fn a_transaction_on_a_standby_is_not_torn_apart() {
    let ground = Ground::new();
    ground.prepare(LIAR);
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    let begin = "begin isolation level repeatable read read only";
    client.run(begin);
    client.run("select count(*) from t");
    assert_eq!(client.error("select liar()").sqlstate, "25006");
    client.run("rollback");
    let texts = [begin, "select count(*) from t", "select liar()", "rollback"];
    client.send(&texts.map(wire::query).concat());
    assert_eq!(texts.map(|_| client.tags()), ["CZ", "TDCZ", "TEZ", "CZ"]);
    assert_eq!(proxy.metric("reads_repeated_total"), 0);
}

/// A table that has not been replayed yet is not there for a standby, and must be for a client.
#[test]
fn what_a_standby_has_not_replayed_is_read_on_the_primary() {
    let cluster = crate::support::ground::cluster(1);
    // Else the session's own write would keep it off the standby.
    let proxy = Proxy::start(&cluster, "causal_reads = off");
    let mut client = proxy.console();
    client.run("create table old (a int)");
    cluster.wait_caught_up().unwrap();
    wait_for_catalog(&mut client, "postgres");
    cluster.standbys()[0].query("select pg_wal_replay_pause()").unwrap();
    // Before version 14 nothing is replayed any more once this is asked for.
    let is_paused = match client.parameter("server_version").is_some_and(|version| version.starts_with("13.")) {
        true => "select case when pg_is_wal_replay_paused() then 'paused' end",
        false => "select pg_get_wal_replay_pause_state()",
    };
    wait_until("replay to pause", || cluster.standbys()[0].value(is_paused).unwrap() == "paused");
    client.run("create table fresh as select 5 as a; alter table old add b int default 6; insert into old values (1, 7)");
    client.run("create function newest() returns int language sql stable as 'select 8'");
    wait_for_catalog(&mut client, "postgres");
    assert_eq!(client.value("select a from fresh"), "5");
    assert_eq!(proxy.metric("reads_repeated_total"), 1);
    assert_eq!(client.extended("select a from fresh where a > 1", &[]).unwrap(), "5");
    assert_eq!(proxy.metric("reads_repeated_total"), 2);
    assert_eq!(client.value("select newest()"), "8");
    assert_eq!(proxy.metric("reads_repeated_total"), 3);
    assert_eq!(client.error("select no_such_column from fresh").sqlstate, "42703", "the primary says what is wrong");
    cluster.standbys()[0].query("select pg_wal_replay_resume()").unwrap();
    cluster.wait_caught_up().unwrap();
    let repeated = proxy.metric("reads_repeated_total");
    assert_eq!(client.value("select a from fresh"), "5");
    assert_eq!(proxy.metric("reads_repeated_total"), repeated, "and now a standby answers");
}

/// Texts too long to be parsed are those of bulk loads first of all. Were each a definition, nobody's reads would go to standbys beside one.
#[test]
fn rows_that_a_long_text_writes_leave_the_catalog_as_it_is() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.proxy("");
    let (mut writer, mut reader) = (ground.client(&proxy), ground.client(&proxy));
    wait_for_catalog(&mut reader, &ground.database);
    let padding = "x".repeat(300_000);
    const READ: &str = "select count(*) from t";
    for round in 0..20 {
        for text in [
            format!("insert into t select 1 /*{padding}*/"),
            format!("begin; update t set a = 2 where '{padding}; create' = ''; commit"),
            format!("select length('{padding}') from t"),
        ] {
            writer.run(&text);
            assert_eq!(rule(&mut reader, READ), "read", "{round}");
        }
    }
    // A look may be over before the next statement comes.
    let is_noticed = (0..20).any(|number| {
        writer.run(&format!("create table more_{number} () /*{padding}*/"));
        rule(&mut reader, READ) != "read"
    });
    assert!(is_noticed, "a definition is one, however long its text");
}

/// A database for each tenant: looks at catalogs must not fill the server, nor may databases go unread.
#[test]
fn a_database_for_each_tenant_does_not_fill_the_server_with_looks_at_catalogs() {
    let grounds: Vec<Ground> = (0..12).map(|_| Ground::new()).collect();
    let proxy = grounds[0].primary_proxy("max_server_connections_per_node = 16");
    let mut clients: Vec<Raw> = grounds.iter().map(|ground| ground.client(&proxy)).collect();
    let names: Vec<_> = grounds.iter().map(|ground| format!("'{}'", ground.database)).collect();
    let mut direct = grounds[0].direct();
    let text = format!(
        "select coalesce(string_agg(pid::text, ',') filter (where application_name = 'weir_catalog' and state = 'active'), ''), \
         count(*) filter (where application_name = 'weir_catalog'), count(*) \
         from pg_stat_activity where datname in ({}) and application_name <> 'direct' and pid <> pg_backend_pid()",
        names.join(", ")
    );
    let (mut most, mut before, mut are_seen) = ((0, 0), BTreeSet::new(), false);
    // A connection that ends is seen for a while, and the server reads one entry after another: what two answers show was at work at the same time.
    let mut look = || {
        let row = direct.rows(&text).remove(0);
        let now: BTreeSet<u32> = row[0].split(',').filter_map(|pid| pid.parse().ok()).collect();
        are_seen |= row[1] != "0";
        most = (most.0.max(now.intersection(&before).count()), most.1.max(row[2].parse::<usize>().unwrap()));
        before = now;
    };
    let mut console = proxy.console();
    // The fifth column is the times that a catalog was read.
    let mut reads = |ground: &Ground| -> u64 {
        let rows = console.rows("show pool_catalogs");
        rows.iter().find(|row| row[0] == ground.database && row[1] == "current").map_or(0, |row| row[5].parse().unwrap())
    };
    wait_until("all catalogs to be read", || {
        look();
        grounds.iter().all(|ground| reads(ground) > 0)
    });
    let before = reads(&grounds[11]);
    grounds[11].prepare("create table made_past (a int)");
    wait_until("the turn of a database where something was defined past Weir", || {
        look();
        reads(&grounds[11]) > before
    });
    for client in &mut clients {
        assert_eq!(client.value("select 1"), "1");
        look();
    }
    assert!(are_seen, "the question does not find those who look");
    assert!(most.0 <= 2, "{} connections looked at catalogs", most.0);
    assert!(most.1 <= 16, "{} server connections", most.1);
}

/// State of a database's catalog, and how often it was read as a whole.
fn state_of(console: &mut Raw, database: &str) -> (String, u64) {
    let rows = console.rows("show pool_catalogs");
    let row = rows.iter().find(|row| row[0] == database).map(|row| (row[1].clone(), row[5].parse().unwrap()));
    row.unwrap_or_default()
}

/// The answer to the only statement of a session, as of a `psql -c`: nobody waits until the catalog is known.
fn only_answer(proxy: &Proxy, database: &str, text: &str) -> String {
    let client = Raw::tcp(proxy.port()).log_in("postgres", database, &[]);
    client.unwrap_or_else(|failure| panic!("cannot log in: {failure:?}")).value(text)
}

#[test]
fn sessions_of_one_statement_with_gaps_between_them_read_on_standbys() {
    let ground = Ground::new();
    let define = |volatility: &str| {
        let body = "'select current_setting(''port'')'";
        ground.prepare(&format!("create or replace function place() returns text language sql {volatility} as {body}"));
    };
    define("stable");
    let proxy = ground.proxy("");
    let mut console = proxy.console();
    let mut answer = || {
        let place = only_answer(&proxy, &ground.database, "select place()");
        wait_until("the database to be left alone", || state_of(&mut console, &ground.database).0 == "kept");
        place
    };
    // A session waits for the catalog for a second at most, which a busy machine may exceed: the next one has the same chance.
    for _ in 0..2 {
        wait_until("a standby to answer", || ground.standby_ports().contains(&answer()));
    }
    // Between two sessions, and past Weir.
    define("volatile");
    assert_eq!(answer(), ground.primary_port());
}

#[test]
fn a_database_whose_catalog_is_kept_can_be_dropped_past_weir_and_the_next_of_its_name_is_read_anew() {
    let ground = Ground::new();
    let server = ground.cluster.primary();
    let name = format!("{}_kept", ground.database);
    let create = |definition: &str| {
        server.query(&format!("create database {name}")).unwrap();
        server.connect("postgres", &name).unwrap().query(definition).unwrap();
        ground.cluster.wait_caught_up().unwrap();
    };
    let proxy = ground.proxy("server_idle_timeout = 1");
    let mut console = proxy.console();
    create("create table t as select 1 as a");
    assert_eq!(only_answer(&proxy, &name, "select a from t"), "1");
    wait_until("the database to be left alone", || state_of(&mut console, &name).0 == "kept");
    wait_until("the server connections of clients to be closed", || {
        let text = format!("select from pg_stat_activity where datname = '{name}' and application_name <> 'weir_catalog'");
        server.query(&text).unwrap().is_empty()
    });
    server.query(&format!("drop database {name}")).unwrap();
    create(
        "create table x (a int); create function f() returns int language sql as 'insert into x values (2) returning a'; create view t as select f() as a",
    );
    assert_eq!(only_answer(&proxy, &name, "select a from t"), "2");
    let rows = server.connect("postgres", &name).unwrap().query("select a from x").unwrap();
    assert_eq!(rows.len(), 1, "it ran on the primary, once");
    // Other tests make roles and databases on these servers, and may have it read more often.
    wait_until("the catalog to be read again", || state_of(&mut console, &name).1 >= 2);
    wait_until("the database to be left alone", || state_of(&mut console, &name).0 == "kept");
    wait_until("the second one to be dropped", || server.query(&format!("drop database {name}")).is_ok());
}

#[test]
fn a_session_in_the_template_database_can_make_a_database_of_it() {
    // No other test may be kept from making databases meanwhile.
    let cluster = ground::cluster(0);
    let proxy = Proxy::spawn(&[Backend::tcp(cluster.primary().port(), 1)], "");
    let mut client = Raw::tcp(proxy.port()).log_in("postgres", "template1", &[]).unwrap();
    let mut console = proxy.console();
    wait_until("its catalog to be read", || state_of(&mut console, "template1").1 >= 1);
    client.run("create database copied");
    client.run("drop database copied");
}
