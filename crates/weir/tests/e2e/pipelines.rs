//! Messages sent without waiting for replies.

use crate::support::raw::{Message, tags};
use crate::support::{Ground, Raw, wait_until, wire};
use std::time::Duration;

fn values(messages: &[Message]) -> Vec<String> {
    messages.iter().filter(|m| m.tag == b'D').map(|m| m.row()[0].clone().unwrap_or_default()).collect()
}

/// Sends the same to the proxy and to a server, which must answer with the same messages.
fn check_same(client: &mut Raw, direct: &mut Raw, bytes: &[u8]) -> Vec<Message> {
    client.send(bytes);
    direct.send(bytes);
    let (through, own) = (client.until_ready(), direct.until_ready());
    assert_eq!(tags(&through), tags(&own), "{through:?}");
    let errors = |messages: &[Message]| -> Vec<_> { messages.iter().filter(|m| m.tag == b'E').map(Message::failure).collect() };
    assert_eq!(errors(&through), errors(&own));
    assert_eq!(values(&through), values(&own));
    assert_eq!(through.last().unwrap().body, own.last().unwrap().body, "the transaction's status");
    through
}

#[test]
fn a_hundred_statements_with_one_sync_are_answered_in_order() {
    let ground = Ground::new();
    for proxy in [ground.proxy(""), ground.primary_proxy("pool_size = 1")] {
        let mut client = ground.client(&proxy);
        for _ in 0..3 {
            let bytes: Vec<u8> = (0..100).flat_map(|n| wire::unnamed("select $1::int", &[&n.to_string()])).collect();
            client.send(&[bytes, wire::sync()].concat());
            let messages = client.until_ready();
            assert_eq!(tags(&messages), "12DC".repeat(100) + "Z");
            assert_eq!(values(&messages), (0..100).map(|n| n.to_string()).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_thousand_syncs_in_one_write_are_answered_in_order() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    let one = |n: u32| [wire::unnamed("select $1::int", &[&n.to_string()]), wire::sync()].concat();
    client.send(&(0..1000).flat_map(one).collect::<Vec<u8>>());
    for number in 0..1000 {
        let messages = client.until_ready();
        assert_eq!(tags(&messages), "12DCZ");
        assert_eq!(values(&messages), [number.to_string()]);
    }
}

#[test]
fn more_statements_than_any_window_holds_do_not_get_stuck() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.primary_proxy("pool_size = 1");
    let mut client = ground.client(&proxy);
    let count = 5000;
    let bytes: Vec<u8> = (0..count).flat_map(|n| wire::unnamed("insert into t values ($1::int)", &[&n.to_string()])).collect();
    client.send(&[bytes, wire::sync()].concat());
    assert_eq!(client.tags(), "12C".repeat(count) + "Z");
    assert_eq!(client.value("select count(*) from t"), count.to_string());
}

#[test]
fn simple_queries_sent_without_waiting_are_answered_in_order() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    let version = client.value("show pool_version");
    // Each with its answer: on a standby, on the primary, by Weir itself, a lock on the primary, and an error of a standby.
    let question = |n: u32| match n % 5 {
        0 => (format!("select {n}"), Ok(n.to_string())),
        1 => (format!("insert into t values ({n}) returning a"), Ok(n.to_string())),
        2 => ("show pool_version".to_string(), Ok(version.clone())),
        3 => (format!("select a from (values ({n})) v(a) for update"), Ok(n.to_string())),
        _ => (format!("select {n} / 0"), Err("22012".to_string())),
    };
    let questions: Vec<(String, Result<String, String>)> = (0..200).map(question).collect();
    client.send(&questions.iter().flat_map(|(text, _)| wire::query(text)).collect::<Vec<u8>>());
    for (text, expected) in questions {
        let messages = client.until_ready();
        let answer = match messages.iter().find(|message| message.tag == b'E') {
            Some(error) => Err(error.failure().sqlstate),
            None => Ok(values(&messages).concat()),
        };
        assert_eq!(answer, expected, "{text}: {messages:?}");
    }
}

#[test]
fn an_error_in_the_middle_drops_the_rest_up_to_sync() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    let mut direct = ground.direct();
    let pipeline = |at: usize, wrong: &[u8]| -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in 0..10 {
            if number == at {
                bytes.extend(wrong);
            }
            bytes.extend(wire::unnamed("insert into t values ($1::int)", &["1"]));
        }
        bytes.extend(wire::sync());
        bytes
    };
    let wrongs = [
        wire::unnamed("select 1/0", &[]),
        wire::unnamed("selec", &[]),
        wire::unnamed("select $1::int", &["x"]),
        wire::bind("", "nothing", &[]),
        wire::execute("nothing", 0),
        wire::describe(b'S', "nothing"),
        wire::describe(b'P', "nothing"),
        wire::unnamed("select * from nothing", &[]),
        wire::unnamed("select 1; select 2", &[]),
    ];
    for wrong in &wrongs {
        for at in [0, 5, 9] {
            check_same(&mut client, &mut direct, &pipeline(at, wrong));
            assert_eq!(client.value("select count(*) from t"), "0", "nothing of a failed pipeline stays");
        }
    }
    check_same(&mut client, &mut direct, &wire::query("select 1"));
}

#[test]
fn statements_after_the_sync_of_a_failed_pipeline_run() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    let fail = [wire::unnamed("selec", &[]), wire::unnamed("select 1", &[]), wire::sync()].concat();
    let good = [wire::unnamed("select 2", &[]), wire::sync()].concat();
    client.send(&[fail.as_slice(), &good, &fail, &fail, &good].concat());
    let answers: Vec<String> = (0..5).map(|_| client.tags()).collect();
    assert_eq!(answers, ["EZ", "12DCZ", "EZ", "EZ", "12DCZ"]);
}

#[test]
fn flush_brings_replies_before_sync() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    client.send(&[wire::unnamed("select 5", &[]), wire::flush()].concat());
    let messages: Vec<Message> = (0..4).map(|_| client.read()).collect();
    assert_eq!((tags(&messages).as_str(), values(&messages)), ("12DC", vec!["5".to_string()]));
    client.send(&[wire::parse("s", "select 6"), wire::describe(b'S', "s"), wire::flush()].concat());
    let messages: Vec<Message> = (0..3).map(|_| client.read()).collect();
    assert_eq!(tags(&messages), "1tT");
    client.send(&[wire::run("s", &[]), wire::flush()].concat());
    assert_eq!(values(&(0..3).map(|_| client.read()).collect::<Vec<_>>()), ["6"]);
    // An error is told at once; all else waits for the Sync.
    client.send(&[wire::unnamed("selec", &[]), wire::flush()].concat());
    assert_eq!(client.read().failure().sqlstate, "42601");
    client.send(&[wire::unnamed("select 7", &[]), wire::flush()].concat());
    assert!(client.is_silent_for(Duration::from_millis(100)));
    client.send(&wire::sync());
    assert_eq!(client.tags(), "Z");
    client.send(&wire::flush());
    assert_eq!(client.value("select 8"), "8", "a Flush at rest means nothing");
}

/// Statements that need the implicit transaction of their pipeline, or may not run in one, behind a read: with standbys, and
/// from memory.
#[test]
fn what_stands_behind_a_read_in_a_pipeline_runs_in_the_same_transaction() {
    let ground = Ground::new();
    ground.prepare("create table t as select 1 as a; create procedure p() language plpgsql as 'begin commit; end'");
    let texts = [
        "lock table t in share mode",
        "declare c cursor for select 1",
        "set local work_mem = '1MB'",
        "set transaction isolation level repeatable read",
        "savepoint one",
        "vacuum t",
        "create index concurrently i on t (a)",
        "call p()",
        "insert into t values (2)",
    ];
    let read = "select a from t where a = 1";
    for conf in ["", "memory_cache_enabled = on"] {
        let proxy = ground.proxy(&format!("backend_weight0 = 0\n{conf}"));
        let mut client = ground.client(&proxy);
        let mut direct = ground.direct();
        for _ in 0..3 {
            client.send(&[wire::unnamed(read, &[]), wire::sync()].concat());
            client.until_ready();
        }
        for text in texts {
            let behind =
                [wire::unnamed(read, &[]), wire::unnamed(text, &[]), wire::unnamed("select 3", &[]), wire::sync()].concat();
            check_same(&mut client, &mut direct, &behind);
            // The rest comes later, and in pieces.
            let (first, last) = behind.split_at(wire::unnamed(read, &[]).len() + 3);
            client.send(first);
            assert!(client.is_silent_for(Duration::from_millis(20)));
            direct.send(first);
            check_same(&mut client, &mut direct, last);
            for prepared in
                [wire::query("rollback"), wire::query("drop index if exists i"), wire::query("delete from t where a = 2")]
            {
                client.send(&prepared);
                direct.send(&prepared);
                client.until_ready();
                direct.until_ready();
            }
        }
    }
}

#[test]
fn a_portal_read_in_pieces_is_still_there_behind_a_write() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.proxy("backend_weight0 = 0");
    let (mut client, mut direct) = (ground.client(&proxy), ground.direct());
    let open = [wire::parse("", "select generate_series(1, 5)"), wire::bind("p", "", &[]), wire::execute("p", 2)].concat();
    for connection in [&mut client, &mut direct] {
        connection.send(&[open.clone(), wire::flush()].concat());
        let messages: Vec<Message> = (0..5).map(|_| connection.read()).collect();
        assert_eq!((tags(&messages).as_str(), values(&messages)), ("12DDs", vec!["1".to_string(), "2".to_string()]));
    }
    let rest = [wire::unnamed("insert into t values (1)", &[]), wire::execute("p", 2), wire::sync()].concat();
    check_same(&mut client, &mut direct, &rest);
}

#[test]
fn a_query_behind_a_pipeline_without_a_sync_goes_on_where_it_may_write() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.proxy("backend_weight0 = 0");
    let (mut client, mut direct) = (ground.client(&proxy), ground.direct());
    let (first, then) = (wire::unnamed("select 1", &[]), wire::query("select 2"));
    for comes_together in [true, false] {
        if comes_together {
            check_same(&mut client, &mut direct, &[first.clone(), then.clone()].concat());
        } else {
            for connection in [&mut client, &mut direct] {
                connection.send(&first);
                assert!(connection.is_silent_for(Duration::from_millis(20)));
            }
            check_same(&mut client, &mut direct, &then);
        }
        check_same(&mut client, &mut direct, &wire::query("insert into t values (1)"));
        check_same(&mut client, &mut direct, &wire::query("rollback"));
    }
    check_same(&mut client, &mut direct, &wire::query("select count(*) from t"));
}

#[test]
fn pipelines_that_only_read_are_spread() {
    let ground = Ground::new();
    ground.prepare("create table t as select 1 as a");
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    client.send(&[wire::parse("s", "select a from t"), wire::describe(b'S', "s"), wire::sync()].concat());
    client.until_ready();
    let one = wire::unnamed("select a from t where a = $1::int", &["1"]);
    let shapes = [
        one.clone(),
        wire::run("s", &[]),
        [one.clone(), wire::run("s", &[]), one.clone()].concat(),
        [wire::parse("", "select a from t"), wire::bind("p", "", &[]), wire::execute("p", 1), wire::execute("p", 1)].concat(),
    ];
    for shape in shapes {
        let before = proxy.metric("reads_spread_total");
        for _ in 0..20 {
            client.send(&[shape.clone(), wire::sync()].concat());
            client.until_ready();
        }
        assert!(proxy.metric("reads_spread_total") >= before + 20, "{}", shape.escape_ascii());
    }
    // Prepared first, with a Flush, as some drivers do.
    let before = proxy.metric("reads_spread_total");
    for _ in 0..20 {
        client.send(&[wire::parse("", "select a + 1 from t"), wire::describe(b'S', ""), wire::flush()].concat());
        assert_eq!((0..3).map(|_| client.read().tag as char).collect::<String>(), "1tT");
        client.send(&[wire::bind("", "", &[]), wire::execute("", 0), wire::sync()].concat());
        assert_eq!(client.tags(), "2DCZ");
    }
    assert!(proxy.metric("reads_spread_total") >= before + 20);
}

#[test]
fn reads_and_writes_mixed_in_one_pipeline_are_answered_in_order() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    for round in 0..5 {
        let mut bytes = Vec::new();
        for number in 0..20 {
            let number = number.to_string();
            bytes.extend(wire::unnamed("select $1::int", &[&number]));
            bytes.extend(wire::unnamed("insert into t values ($1::int) returning a", &[&number]));
            bytes.extend(wire::unnamed("select count(*) from t where a >= $1::int - $1::int", &[&number]));
        }
        client.send(&[bytes, wire::sync()].concat());
        let messages = client.until_ready();
        assert_eq!(tags(&messages), "12DC".repeat(60) + "Z");
        let found = values(&messages);
        for number in 0..20 {
            let total = round * 20 + number + 1;
            let expected = [number.to_string(), number.to_string(), total.to_string()];
            assert_eq!(found[number * 3..number * 3 + 3], expected, "a read in a pipeline sees the writes before it");
        }
    }
}

#[test]
fn writes_then_reads_with_their_own_syncs_are_answered_in_order() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    let mut bytes = Vec::new();
    for number in 0..50 {
        bytes.extend([wire::unnamed("insert into t values ($1::int)", &[&number.to_string()]), wire::sync()].concat());
        bytes.extend([wire::unnamed("select $1::int", &[&number.to_string()]), wire::sync()].concat());
    }
    client.send(&bytes);
    for number in 0..50 {
        assert_eq!(client.tags(), "12CZ");
        assert_eq!(values(&client.until_ready()), [number.to_string()]);
    }
}

#[test]
fn a_transaction_in_a_pipeline_runs_as_one() {
    let ground = Ground::new();
    ground.prepare("create table t (a int)");
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    let mut direct = ground.direct();
    let bytes = |last: &str| {
        let texts = ["begin", "insert into t values (1)", "select count(*) from t", last, "select 5"];
        let one = |text: &&str| wire::unnamed(text, &[]);
        [texts.iter().flat_map(one).collect::<Vec<u8>>(), wire::sync()].concat()
    };
    check_same(&mut client, &mut direct, &bytes("rollback"));
    check_same(&mut client, &mut direct, &bytes("select 1/0"));
    check_same(&mut client, &mut direct, &wire::query("rollback"));
    assert_eq!(client.value("select count(*) from t"), "0");
}

#[test]
fn a_portal_is_read_in_pieces() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    let mut direct = ground.direct();
    let series = "select generate_series(1, 10)";
    let pieces = [wire::execute("", 4), wire::execute("", 4), wire::execute("", 4)].concat();
    check_same(&mut client, &mut direct, &[wire::parse("", series), wire::bind("", "", &[]), pieces, wire::sync()].concat());
    // A portal lives to the end of its transaction, over several Syncs.
    check_same(&mut client, &mut direct, &wire::query("begin"));
    let open = [wire::parse("s", series), wire::bind("p", "s", &[]), wire::describe(b'P', "p"), wire::sync()].concat();
    check_same(&mut client, &mut direct, &open);
    for _ in 0..4 {
        check_same(&mut client, &mut direct, &[wire::execute("p", 3), wire::sync()].concat());
    }
    check_same(&mut client, &mut direct, &[wire::close(b'P', "p"), wire::execute("p", 1), wire::sync()].concat());
    check_same(&mut client, &mut direct, &wire::query("commit"));
    // Without a transaction it ends with the Sync.
    check_same(&mut client, &mut direct, &[wire::bind("q", "s", &[]), wire::execute("q", 3), wire::sync()].concat());
    check_same(&mut client, &mut direct, &[wire::execute("q", 3), wire::sync()].concat());
}

#[test]
fn our_own_commands_and_statements_mix_in_a_pipeline() {
    let ground = Ground::new();
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    let ours = wire::unnamed("show pool_version", &[]);
    let bytes = [wire::unnamed("select 1", &[]), ours.clone(), wire::unnamed("select 2", &[]), ours, wire::sync()].concat();
    client.send(&bytes);
    let messages = client.until_ready();
    assert_eq!(tags(&messages), "12DC".repeat(4) + "Z");
    let found = values(&messages);
    assert_eq!((found[0].as_str(), found[2].as_str()), ("1", "2"));
    assert!(found[1].contains("Weir") && found[1] == found[3], "{found:?}");
}

#[test]
fn an_idle_pipeline_holds_its_connection_only_until_sync() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1\npool_wait_timeout = 10");
    let mut client = ground.client(&proxy);
    let mut other = ground.client(&proxy);
    client.send(&[wire::unnamed("select 1", &[]), wire::flush()].concat());
    (0..4).for_each(|_| drop(client.read()));
    other.send(&wire::query("select 2"));
    assert!(other.is_silent_for(Duration::from_millis(100)), "the implicit transaction is open");
    client.send(&wire::sync());
    assert_eq!(client.tags(), "Z");
    assert_eq!(values(&other.until_ready()), ["2"]);
    wait_until("the connection to rest", || ground.server_connections().len() == 1);
}

#[test]
fn messages_cut_anywhere_mean_the_same() {
    let ground = Ground::new();
    let proxy = ground.primary_proxy("pool_size = 1");
    let mut client = ground.client(&proxy);
    let bytes = [
        wire::parse("s", "select $1::text"),
        wire::bind("", "s", &["some text"]),
        wire::describe(b'P', ""),
        wire::execute("", 0),
        wire::close(b'S', "s"),
        wire::sync(),
    ]
    .concat();
    for at in 1..bytes.len() {
        client.send(&bytes[..at]);
        // The question to the server in between makes it likely, not certain, that the two pieces arrive apart.
        client.send(&bytes[at..]);
        assert_eq!(client.tags(), "12TDC3Z", "cut at {at}");
    }
    for byte in &bytes {
        client.send(&[*byte]);
    }
    assert_eq!(client.tags(), "12TDC3Z");
}

#[test]
fn a_long_message_behind_a_command_on_the_session_is_answered() {
    let ground = Ground::new();
    for proxy in [ground.proxy(""), ground.primary_proxy("pool_size = 1")] {
        let mut client = ground.client(&proxy);
        for first in ["set work_mem = '1MB'", "reset all", "discard all", "deallocate all", "listen a"] {
            // memory_buffer_size is 32 kB, statement_analysis_max 256 kB.
            for bytes in [30_000, 33_000, 40_000, 70_000, 200_000, 300_000] {
                let text = format!("select 1 /*{}*/", "x".repeat(bytes));
                client.send(&[wire::query(first), wire::query(&text)].concat());
                client.until_ready();
                assert_eq!(client.tags(), "TDCZ", "{first}, {bytes}");
                client.send(&[wire::query(first), wire::unnamed(&text, &[]), wire::sync()].concat());
                client.until_ready();
                assert_eq!(client.tags(), "12DCZ", "{first}, {bytes}");
            }
        }
    }
}
