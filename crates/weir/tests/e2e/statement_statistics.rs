//! `SHOW pool_statements`: what was counted of each text, and who sees its text.

use super::cache::warm;
use super::console::admin;
use crate::support::proxy::{Proxy, column_names};
use crate::support::raw::tags;
use crate::support::{Ground, Raw, wait_until, wire};
use std::collections::BTreeMap;

type Row = BTreeMap<String, String>;

/// All rows, by the names of their columns.
fn statements(client: &mut Raw) -> Vec<Row> {
    let names = column_names(&client.query("show pool_statements")[0].body);
    let rows = client.rows("show pool_statements").into_iter();
    rows.map(|row| names.iter().cloned().zip(row).collect()).collect()
}

/// The row of a text of this test's database.
fn row_of(ground: &Ground, client: &mut Raw, text: &str) -> Option<Row> {
    statements(client).into_iter().find(|row| row["statement"] == text && row["database"] == ground.database)
}

/// Checks some columns of a text's row.
fn check(ground: &Ground, client: &mut Raw, text: &str, expected: &[(&str, &str)]) -> Row {
    let row = row_of(ground, client, text).unwrap_or_else(|| panic!("{text} is not shown: {:#?}", statements(client)));
    for (column, value) in expected {
        assert_eq!(row[*column], *value, "{column} of {row:#?}");
    }
    row
}

fn run(client: &mut Raw, bytes: Vec<u8>) -> String {
    client.send(&bytes);
    client.tags()
}

#[test]
fn a_statement_is_counted_in_each_protocol_with_its_rows_and_errors() {
    let ground = Ground::new();
    ground.prepare("create table t (a int); insert into t values (1), (2), (3)");
    let proxy = ground.primary_proxy("worker_threads = 1\nstatement_statistics_max = 1000");
    let mut client = ground.client(&proxy);
    for number in 0..3 {
        client.query(&format!("select a from t where a >= {number}"));
    }
    let text = "select a from t where a >= $1";
    let row = check(&ground, &mut client, text, &[("calls", "3"), ("rows", "8"), ("errors", "0"), ("primary_share", "1.000")]);
    // Three times a description of one column and the tag, and the rows.
    assert_eq!(row["bytes"], (3 * (27 + 14) + 8 * 12).to_string());
    let [total, mean, p99] = ["total_ms", "mean_ms", "p99_ms"].map(|column| row[column].parse::<f64>().unwrap());
    assert!(total > 0.0 && mean > 0.0 && mean <= total && p99 > 0.0, "{row:?}");
    // Unnamed and named, over the extended protocol: the same text with a parameter of its own.
    for _ in 0..3 {
        let one = [wire::parse("", text), wire::bind("", "", &["2"]), wire::execute("", 0), wire::sync()].concat();
        assert_eq!(run(&mut client, one), "12DDCZ");
    }
    run(&mut client, [wire::parse("s", text), wire::sync()].concat());
    for _ in 0..4 {
        assert_eq!(run(&mut client, [wire::bind("", "s", &["3"]), wire::execute("", 0), wire::sync()].concat()), "2DCZ");
    }
    check(&ground, &mut client, text, &[("calls", "10"), ("rows", "18"), ("parses", "4")]);
    // Writes count the rows they change, a text of several statements all of theirs.
    client.run("insert into t values (7), (8)");
    check(&ground, &mut client, "insert into t values ($1), ($2)", &[("calls", "1"), ("rows", "2"), ("rule", "write")]);
    client.query("select 1; select 2 union all select 3");
    check(&ground, &mut client, "select $1; select $2 union all select $3", &[("calls", "1"), ("rows", "3")]);
    client.error("select 1 / 0");
    client.run("select 1 / 1");
    // The server computes it at the Bind.
    assert_eq!(run(&mut client, [wire::unnamed("select 1 / $1::int", &["0"]), wire::sync()].concat()), "1EZ");
    check(&ground, &mut client, "select $1 / $2", &[("calls", "2"), ("errors", "1"), ("last_sqlstate", "22012")]);
    check(&ground, &mut client, "select $2 / $1::int", &[("calls", "1"), ("errors", "1"), ("last_sqlstate", "22012")]);
}

#[test]
fn statements_of_a_pipeline_are_counted_each_with_its_own() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.primary_proxy("worker_threads = 1\nstatement_statistics_max = 1000");
    let mut client = ground.client(&proxy);
    let (one, two) = (wire::unnamed("select $1::int", &["1"]), wire::unnamed("select generate_series(1, $1::int)", &["2"]));
    for _ in 0..5 {
        client.send(&[one.clone(), two.clone(), one.clone(), wire::sync()].concat());
        assert_eq!(client.tags(), "12DC12DDC12DCZ");
    }
    let first = check(&ground, &mut client, "select $1::int", &[("calls", "10"), ("rows", "10")]);
    let second = check(&ground, &mut client, "select generate_series($2, $1::int)", &[("calls", "5"), ("rows", "10")]);
    assert!(first["bytes"].parse::<u64>().unwrap() >= 10 * (12 + 14), "{first:?}");
    assert!(second["bytes"].parse::<u64>().unwrap() >= 5 * (2 * 12 + 14), "{second:?}");
    // With a Sync each, and Queries: all are sent before the first answer.
    let each =
        [one.clone(), wire::sync(), wire::query("select 1, 2"), two.clone(), wire::sync(), wire::query("select 'x' where false")];
    client.send(&each.concat());
    let answers: String = (0..4).map(|_| client.tags()).collect();
    assert_eq!(answers, "12DCZTDCZ12DDCZTCZ");
    check(&ground, &mut client, "select $1, $2", &[("calls", "1"), ("rows", "1")]);
    check(&ground, &mut client, "select $1 where false", &[("calls", "1"), ("rows", "0")]);
    check(&ground, &mut client, "select generate_series($2, $1::int)", &[("calls", "6"), ("rows", "12")]);
    // Statements behind an error do not run.
    let wrong = wire::unnamed("select 1 / $1::int", &["0"]);
    client.send(&[one.clone(), wrong, two.clone(), one.clone(), wire::sync(), two].concat());
    client.send(&wire::sync());
    let answers: String = (0..2).map(|_| client.tags()).collect();
    assert_eq!(answers, "12DC1EZ12DDCZ");
    check(&ground, &mut client, "select $2 / $1::int", &[("calls", "1"), ("errors", "1")]);
    check(&ground, &mut client, "select $1::int", &[("calls", "12"), ("errors", "0")]);
    check(&ground, &mut client, "select generate_series($2, $1::int)", &[("calls", "7"), ("rows", "14")]);
}

#[test]
fn copies_cancelled_statements_and_parts_of_results_are_counted() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.primary_proxy("worker_threads = 1\nstatement_statistics_max = 1000");
    let mut client = ground.client(&proxy);
    client.send(&[wire::query("copy t from stdin"), wire::message(b'd', b"1\n2\n3\n"), wire::message(b'c', b"")].concat());
    assert_eq!(client.tags(), "GCZ");
    check(&ground, &mut client, "copy t from stdin", &[("calls", "1"), ("rows", "3")]);
    client.query("copy t to stdout");
    let out = check(&ground, &mut client, "copy t to stdout", &[("calls", "1"), ("rows", "3")]);
    assert!(out["bytes"].parse::<u64>().unwrap() >= 3 * 7, "{out:?}");
    client.run("set statement_timeout = 20");
    assert_eq!(client.error("select pg_sleep(60)").sqlstate, "57014");
    client.run("reset statement_timeout");
    let slept =
        check(&ground, &mut client, "select pg_sleep($1)", &[("calls", "1"), ("errors", "1"), ("last_sqlstate", "57014")]);
    assert!(slept["mean_ms"].parse::<f64>().unwrap() >= 20.0, "{slept:?}");
    // A portal in two parts is two calls.
    let parts = [wire::parse("", "table t"), wire::bind("", "", &[]), wire::execute("", 2), wire::execute("", 2), wire::sync()];
    assert_eq!(run(&mut client, parts.concat()), "12DDsDCZ");
    check(&ground, &mut client, "table t", &[("calls", "2")]);
}

#[test]
fn reads_on_standbys_and_answers_from_memory_have_their_shares() {
    let ground = Ground::new();
    ground.prepare("create table t (a int); insert into t values (1)");
    let proxy = ground.proxy("worker_threads = 1\nstatement_statistics_max = 1000\nmemory_cache_enabled = on");
    let mut client = ground.client(&proxy);
    let text = "select a from t where a = 1";
    warm(&proxy, &mut client, text);
    for _ in 0..20 {
        client.rows(text);
    }
    let row = row_of(&ground, &mut client, "select a from t where a = $1").unwrap();
    let [calls, cached, standby] = ["calls", "cache_share", "standby_share"].map(|column| row[column].parse::<f64>().unwrap());
    assert!(calls >= 21.0 && cached * calls >= 19.9 && standby > 0.0 && cached + standby > 0.99, "{row:?}");
    assert_eq!(row["rows"], row["calls"], "{row:?}");
    client.run("create function f() returns int language sql volatile as 'select 1'");
    ground.cluster.wait_caught_up().unwrap();
    wait_until("the function to be known", || client.rows("show route for 'select f()'")[0][2] == "function");
    client.run("select f()");
    let row = check(&ground, &mut client, "select f()", &[("rule", "function"), ("primary_share", "1.000")]);
    assert_eq!(row["advice"], "goes to the primary because f() is VOLATILE, or not known to only read");
}

#[test]
fn no_literal_is_shown_and_no_text_of_another_role() {
    let ground = Ground::new();
    let other = format!("{}_reader", ground.database);
    ground.prepare(&format!("drop role if exists {other}; create role {other} login"));
    let proxy = ground.primary_proxy("worker_threads = 1\nstatement_statistics_max = 1000");
    let mut client = ground.client(&proxy);
    for text in [
        "select 'secret'",
        "select $$secret$$, e'secret\\'', 'a''secret'",
        "select 1 /* secret */ -- secret",
        "set application_name = 'secret'",
        "do 'begin perform $x$secret$x$; end'",
        "prepare p as select 'secret'",
        "select 'x'; select 'secret'",
    ] {
        client.run(text);
    }
    for text in ["selec 'secret'", "select 'secret", "secret", "alter role x password 'secret'", "select /* secret"] {
        client.error(text);
    }
    client.run("set standard_conforming_strings = off");
    client.run("select 'a\\', secret /*', 1 --*/");
    client.run("reset standard_conforming_strings");
    let shown = format!("{:?}", statements(&mut client));
    assert!(!shown.contains("secret"), "{shown}");
    check(&ground, &mut client, "select $1", &[("calls", "2")]);
    check(&ground, &mut client, "<a text that is not parsed>", &[]);
    let mut stranger = Raw::tcp(proxy.port()).log_in(&other, &ground.database, &[]).unwrap();
    stranger.run("select 'own', 'secret'");
    let rows = statements(&mut stranger);
    let (own, others): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row["username"] == other);
    assert!(own.iter().any(|row| row["statement"] == "select $1, $2"), "{own:?}");
    assert!(!others.is_empty(), "numbers are for everybody");
    for row in others {
        for hidden in ["statement", "statement_id", "advice"] {
            assert_eq!(row[hidden], "<insufficient privilege>", "{row:?}");
        }
    }
}

#[test]
fn the_least_used_texts_make_room_and_a_reset_begins_anew() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("worker_threads = 1\nstatement_statistics_max = 32");
    let mut client = ground.client(&proxy);
    for number in 0..200 {
        client.run(&format!("select 1 as a{number}"));
        client.run("select 2 as often");
    }
    let rows = statements(&mut client);
    assert!(rows.len() <= 32 && rows.len() >= 16, "{}", rows.len());
    check(&ground, &mut client, "select $1 as often", &[("calls", "200")]);
    check(&ground, &mut client, "select $1 as a199", &[("calls", "1")]);
    assert!(proxy.metric("statements_forgotten_total") > 0);
    client.run("select 1 as a0");
    check(&ground, &mut client, "select $1 as a0", &[("calls", "1")]);
    let mut console = admin(&proxy);
    console.query("RESET_STATEMENTS");
    assert!(row_of(&ground, &mut client, "select $1 as often").is_none());
    wait_until("the worker to begin anew", || {
        client.run("select 2 as often");
        row_of(&ground, &mut client, "select $1 as often").is_some()
    });
    let seen = console.rows("SHOW POOL_STATEMENTS");
    assert!(seen.iter().flatten().any(|value| value == "select $1 as often"), "{seen:?}");
}

#[test]
fn without_rows_nothing_is_counted() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("");
    let mut client = ground.client(&proxy);
    client.run("select 1");
    assert_eq!(client.rows("show pool_statements").len(), 0);
}

#[test]
fn the_counts_of_all_workers_add_up() {
    let ground = Ground::new();
    let proxy: Proxy = ground.primary_proxy("worker_threads = 3\nstatement_statistics_max = 1000");
    let mut clients: Vec<Raw> = (0..9).map(|_| ground.client(&proxy)).collect();
    for _ in 0..10 {
        clients.iter_mut().for_each(|client| client.send(&wire::query("select 1 as everywhere")));
        clients.iter_mut().for_each(|client| assert_eq!(tags(&client.until_ready()), "TDCZ"));
    }
    check(&ground, &mut clients[0], "select $1 as everywhere", &[("calls", "90"), ("rows", "90")]);
    let count = statements(&mut clients[0]).iter().filter(|row| row["statement"] == "select $1 as everywhere").count();
    assert_eq!(count, 1, "one row for all");
}
