//! Statements without a name that come again (`unnamed_statements`): the server parses them once in a while, and every answer is PostgreSQL's.

use crate::support::proxy::column_names;
use crate::support::raw::Message;
use crate::support::{Ground, Raw, wait_until, wire};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

const FIXTURE: &str = "drop table if exists t cascade; drop schema if exists s1 cascade; create schema s1; \
     create table t (a int, b int, c text); insert into t select i, i * 2, 'c' || i from generate_series(1, 20) i; drop view if exists v; \
     create view v as select a, b from t";

/// A message without the parts that differ between two tables made alike.
fn shown(message: &Message) -> String {
    let body = match message.tag {
        b'E' => format!("{} {} {:?}", message.failure().sqlstate, message.failure().message, message.failure().hint),
        b'T' => column_names(&message.body).join(","),
        b'D' => format!("{:?}", message.row()),
        _ => message.body.escape_ascii().to_string(),
    };
    format!("{} {body}", message.tag as char)
}

/// The exchanges by which drivers send a statement without a name.
#[derive(Clone, Copy, Debug)]
enum Driver {
    /// All in one exchange: libpq's PQexecParams, node-postgres, pgbench.
    AtOnce,
    /// All in one exchange, without a question for the columns.
    Undescribed,
    /// First a description, then the values: lib/pq, pgx.
    Described,
    /// One Parse, several Binds.
    Batch,
}

const DRIVERS: [Driver; 4] = [Driver::AtOnce, Driver::Undescribed, Driver::Described, Driver::Batch];

impl Driver {
    fn exchanges(self, text: &str, values: &[&str]) -> Vec<Vec<u8>> {
        let (parse, bind, sync) = (wire::parse("", text), wire::bind("", "", values), wire::sync());
        let (of_portal, execute) = (wire::describe(b'P', ""), wire::execute("", 0));
        match self {
            Driver::AtOnce => vec![[parse, bind, of_portal, execute, sync].concat()],
            Driver::Undescribed => vec![[parse, bind, execute, sync].concat()],
            Driver::Described => {
                vec![[parse, wire::describe(b'S', ""), sync.clone()].concat(), [bind, execute, sync].concat()]
            }
            Driver::Batch => vec![[parse, bind.clone(), execute.clone(), bind, execute, sync].concat()],
        }
    }

    fn run(self, client: &mut Raw, text: &str, values: &[&str]) -> Vec<String> {
        let mut said = Vec::new();
        for bytes in self.exchanges(text, values) {
            client.send(&bytes);
            said.extend(client.until_ready().iter().map(shown));
        }
        said
    }
}

/// Statements, some of which fail, and changes of what they name.
const STATEMENTS: [(&str, &[&str]); 14] = [
    ("select * from t where a = $1::int", &["3"]),
    ("select * from t where a = $1::int", &["x"]),
    ("select * from t where a = $1::int", &[]),
    ("select * from t", &[]),
    ("select b, c from v natural join t where a = $1::int", &["3"]),
    ("select 1 / (a - 3) from t where a = $1", &["3"]),
    ("select 1 / 0", &[]),
    ("insert into t values ($1, $2, 'new') returning *", &["100", "1"]),
    ("update t set b = b + 1 where a = $1 returning b", &["4"]),
    ("delete from t where a = $1::int", &["5"]),
    ("select nosuch from t where a = $1", &["1"]),
    ("values ($1::int)", &["7"]),
    ("begin", &[]),
    ("set timezone = 'UTC'", &[]),
];

const CHANGES: [&str; 9] = [
    "alter table t add d int default 4",
    "drop view v; alter table t alter b type bigint; create view v as select a, b from t",
    "alter table t rename b to bb",
    "alter table t drop c cascade",
    "drop table t cascade",
    "drop view v; alter table t alter a type text using 'n' || a; create view v as select a, b from t",
    "create or replace view v as select a, b, c from t",
    "create table s1.t (a int, e date); insert into s1.t values (3, '2024-02-03')",
    "analyze t",
];

/// The answers to a statement that a client sends again and again, with a change past it in between.
fn play(ground: &Ground, client: &mut Raw, driver: Driver, (text, values): (&str, &[&str]), change: &str) -> Vec<Vec<String>> {
    ground.direct().run(FIXTURE);
    let mut said: Vec<Vec<String>> = Vec::new();
    for round in 0..6 {
        if round == 4 {
            ground.direct().run(change);
        }
        said.push(driver.run(client, text, values));
        if text == "begin" {
            client.run("commit");
        }
    }
    said
}

#[test]
fn each_answer_is_postgresqls_whatever_changes_meanwhile() {
    let ground = Ground::new();
    let of = |words: &str| ground.primary_proxy(&format!("worker_threads = 1\npool_size = 2\nunnamed_statements = {words}"));
    let (reuses, plans) = (of("reuse"), of("reuse_plans"));
    for driver in DRIVERS {
        for statement in STATEMENTS {
            for change in CHANGES {
                let expected = play(&ground, &mut ground.direct(), driver, statement, change);
                let proxies: &[_] = if matches!(driver, Driver::AtOnce) { &[&reuses, &plans] } else { &[&reuses] };
                for proxy in proxies {
                    let through = play(&ground, &mut ground.client(proxy), driver, statement, change);
                    assert_eq!(through, expected, "{driver:?}, {statement:?}, {change}");
                }
            }
        }
    }
    for proxy in [&reuses, &plans] {
        assert!(proxy.metric("parses_spared_total") > 100, "nothing was spared");
        assert!(proxy.metric("parses_renewed_total") > 10, "nothing was out of date");
    }
}

#[test]
fn a_text_is_parsed_once_for_five_sets_of_values() {
    let ground = Ground::new();
    ground.direct().run(FIXTURE);
    // Mode, and how many of 1,000 Parses are sent, at least and at most.
    for (words, fewest, most) in [("pass", 1000, 1000), ("reuse", 200, 420), ("reuse_plans", 1, 220)] {
        let proxy = ground.primary_proxy(&format!("worker_threads = 1\npool_size = 1\nunnamed_statements = {words}"));
        let mut client = ground.client(&proxy);
        let before = proxy.metric("parses_spared_total");
        for value in 0..1000 {
            let said = Driver::AtOnce.run(&mut client, "select b from t where a = $1", &[&format!("{}", value % 20 + 1)]);
            assert_eq!(said[3], format!("D {:?}", [Some(format!("{}", (value % 20 + 1) * 2))]), "{words}");
        }
        let sent = 1000 - (proxy.metric("parses_spared_total") - before);
        assert!((fewest..=most).contains(&sent), "{words}: {sent} of 1,000 Parses were sent");
        // A plan for all values is the server's choice in one mode only.
        let generic =
            client.value("select coalesce(sum(generic_plans), 0) from pg_prepared_statements where statement like 'select b %'");
        assert_eq!(generic.parse::<u32>().unwrap() > 0, words == "reuse_plans", "{words}: {generic} plans for all values");
    }
}

#[test]
fn texts_without_a_name_drive_out_no_statement_with_one() {
    const MAX: usize = 5;
    let ground = Ground::new();
    let proxy = ground.primary_proxy(&format!("worker_threads = 1\npool_size = 1\nprepared_statements_max = {MAX}"));
    let (mut named, mut other) = (ground.client(&proxy), ground.client(&proxy));
    named.send(&[wire::parse("a", "select 1"), wire::parse("b", "select 2"), wire::sync()].concat());
    named.until_ready();
    let spared = proxy.metric("parses_spared_total");
    for _ in 0..4 {
        for number in 0..20 {
            assert_eq!(other.extended(&format!("select {number}"), &[]).unwrap(), number.to_string());
        }
    }
    assert!(proxy.metric("parses_spared_total") > spared, "the room is used");
    let added = proxy.metric("parses_added_total");
    for name in ["a", "b"] {
        named.send(&[wire::run(name, &[]), wire::sync()].concat());
        assert_eq!(named.tags(), "2DCZ");
    }
    assert_eq!(proxy.metric("parses_added_total"), added, "both are on the server still");
    let count = named.value("select count(*) from pg_prepared_statements");
    assert!(count.parse::<usize>().unwrap() <= MAX, "{count}");
}

#[test]
fn a_new_object_that_takes_a_name_is_seen() {
    let ground = Ground::new();
    ground.direct().run(FIXTURE);
    let proxy = ground.primary_proxy("worker_threads = 2\npool_size = 2");
    let mut client = ground.client(&proxy);
    let mut other = ground.client(&proxy);
    let count = |client: &mut Raw| client.extended("select count(*) from t", &[]).unwrap();
    client.run("set search_path = s1, public");
    for _ in 0..10 {
        assert_eq!(count(&mut client), "20");
    }
    // Through this Weir it counts at once.
    other.run("create table s1.t (a int)");
    assert_eq!(count(&mut client), "0");
    other.run("drop table s1.t");
    (0..10).for_each(|_| assert_eq!(count(&mut client), "20"));
    // Past it, within a second.
    ground.direct().run("create table s1.t (a int)");
    wait_until("the new table is read", || count(&mut client) == "0");
}

#[test]
fn a_temporary_table_of_the_session_is_seen_at_once() {
    let ground = Ground::new();
    ground.direct().run(FIXTURE);
    for more in ["pool_size = 1", "pool_size = 1\npool_mode = session"] {
        let proxy = ground.primary_proxy(&format!("worker_threads = 1\n{more}"));
        let mut client = ground.client(&proxy);
        let count = |client: &mut Raw| client.extended("select count(*) from t", &[]).unwrap();
        (0..10).for_each(|_| assert_eq!(count(&mut client), "20", "{more}"));
        client.run("create temporary table t (a int)");
        (0..3).for_each(|_| assert_eq!(count(&mut client), "0", "{more}"));
        client.run("drop table pg_temp.t");
        (0..3).for_each(|_| assert_eq!(count(&mut client), "20", "{more}"));
        client.run("begin; create temporary table t (a int) on commit drop");
        assert_eq!(count(&mut client), "0", "{more}");
        client.run("commit");
        assert_eq!(count(&mut client), "20", "{more}");
    }
}

#[test]
fn statements_that_code_takes_away_are_parsed_anew() {
    let ground = Ground::new();
    ground.direct().run(FIXTURE);
    ground
        .prepare("create or replace function forget() returns int language plpgsql as $$ begin deallocate all; return 1; end $$");
    let proxy = ground.primary_proxy("worker_threads = 1\npool_size = 1");
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    for round in 0..20 {
        for driver in DRIVERS {
            let said = driver.run(&mut client, "select b from t where a = $1", &["3"]);
            assert!(said.contains(&"D [Some(\"6\")]".to_string()), "round {round}, {driver:?}: {said:?}");
        }
        let text = if round % 2 == 0 { "do $$ begin deallocate all; end $$" } else { "select forget()" };
        other.run(text);
    }
}

/// Exchanges that are sent before the answers to others have come, and exchanges in parts.
#[test]
fn pipelines_and_parts_are_answered_in_order() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("worker_threads = 1\npool_size = 1");
    let text = "select * from t where a = $1::int";
    let one = |value: &str| Driver::AtOnce.exchanges(text, &[value]).concat();
    let play = |client: &mut Raw| {
        ground.direct().run(FIXTURE);
        let mut said: Vec<Vec<String>> = Vec::new();
        let say = |client: &mut Raw, said: &mut Vec<Vec<String>>, bytes: &[u8], readies: usize| {
            client.send(bytes);
            (0..readies).for_each(|_| said.push(client.until_ready().iter().map(shown).collect()));
        };
        for value in ["1", "2", "3"] {
            say(client, &mut said, &one(value), 1);
        }
        ground.direct().run("alter table t add d int default 4");
        say(client, &mut said, &[one("4"), one("5"), one("6")].concat(), 3);
        ground.direct().run("alter table t drop d");
        // The second one follows while the first is under way.
        client.send(&one("7"));
        client.send(&[one("8"), wire::query("select 9")].concat());
        (0..3).for_each(|_| said.push(client.until_ready().iter().map(shown).collect()));
        ground.direct().run("alter table t add e int default 5");
        let bytes = one("10");
        for cut in [1, 5, 40, bytes.len() - 5, bytes.len() - 1] {
            client.send(&bytes[..cut]);
            client.send(&bytes[cut..]);
            said.push(client.until_ready().iter().map(shown).collect());
        }
        said
    };
    assert_eq!(play(&mut ground.client(&proxy)), play(&mut ground.direct()));
}

/// A change between the statements of many clients, while the clients run.
#[test]
fn changes_under_load_reach_no_client_as_errors() {
    let ground = Ground::new();
    ground.direct().run(FIXTURE);
    let proxy = ground.proxy("worker_threads = 2\npool_size = 3\nstatement_level_load_balance = on");
    let (stop, ran) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        let run = |driver: Driver| {
            let mut client = ground.client(&proxy);
            while !stop.load(Ordering::Relaxed) {
                let said = driver.run(&mut client, "select * from t where a = $1::int", &["3"]);
                let is_answered = said.iter().any(|line| line.starts_with("D [Some(\"3\"), Some(\"6\")"));
                // A described statement may change before it is bound: that error is PostgreSQL's own.
                let is_changed = matches!(driver, Driver::Described) && said.iter().any(|line| line.starts_with("E 0A000"));
                assert!(is_answered || is_changed, "{driver:?}: {said:?}");
                ran.fetch_add(1, Ordering::Relaxed);
            }
        };
        let clients: Vec<_> = DRIVERS.into_iter().map(|driver| scope.spawn(move || run(driver))).collect();
        let mut direct = ground.direct();
        for round in 0..40 {
            let before = ran.load(Ordering::Relaxed);
            direct.run(&format!("alter table t add x{round} int default {round}"));
            wait_until("clients read", || ran.load(Ordering::Relaxed) > before + 8);
            direct.run(&format!("alter table t drop x{round}"));
        }
        stop.store(true, Ordering::Relaxed);
        clients.into_iter().for_each(|client| client.join().unwrap());
    });
    assert!(proxy.metric("parses_spared_total") > 0);
}
