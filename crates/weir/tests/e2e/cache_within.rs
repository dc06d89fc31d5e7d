//! Answers from memory within transactions and pipelines.

use super::cache::{hits, is_hit, warm};
use crate::support::raw::Message;
use crate::support::{Ground, Proxy, wait_until, wire};

/// With global causal reads an answer of a server is as new as one from memory must be.
const ON: &str = "memory_cache_enabled = on\ncausal_reads = global";

const READ: &str = "select count(*) from t";

/// Statements that were sent to servers.
fn sent(proxy: &Proxy) -> u64 {
    proxy.metric("statements_simple_total") + proxy.metric("statements_extended_total")
}

fn status(answer: &[Message]) -> u8 {
    answer.last().unwrap().body[0]
}

#[test]
fn a_transaction_that_is_answered_from_memory_costs_no_server_anything() {
    let ground = Ground::new();
    ground.prepare("create table t as select 1 as a");
    for proxy in [ground.proxy(ON), ground.primary_proxy(ON)] {
        let mut client = ground.client(&proxy);
        warm(&proxy, &mut client, READ);
        wait_until("the extended protocol's answer to be kept", || {
            let before = hits(&proxy);
            client.extended(READ, &[]).unwrap();
            hits(&proxy) > before
        });
        for begin in ["begin", "start transaction isolation level read committed", "begin read only"] {
            let before = (hits(&proxy), sent(&proxy));
            client.run(begin);
            assert_eq!(status(&client.query(READ)), b'T');
            assert_eq!(client.extended(READ, &[]).unwrap(), "1");
            client.run("commit");
            assert_eq!(status(&client.query(READ)), b'I');
            assert_eq!((hits(&proxy), sent(&proxy)), (before.0 + 3, before.1), "{begin}");
        }
        // As drivers send it that begin transactions of their own.
        let before = (hits(&proxy), sent(&proxy));
        client.send(&[wire::unnamed("begin", &[]), wire::unnamed(READ, &[]), wire::sync()].concat());
        let answer = client.until_ready();
        assert_eq!(status(&answer), b'T');
        assert_eq!(String::from_utf8(answer.iter().map(|message| message.tag).collect()).unwrap(), "12C12DCZ");
        client.run("rollback");
        assert_eq!(sent(&proxy), before.1);
    }
}

/// Statements of a transaction that a server must run.
const DEEDS: &[&str] = &[
    "select 1",
    "insert into t values (9)",
    "insert into o values (9)",
    "select a from t for update",
    "savepoint s",
    "set local datestyle = 'German'",
    "create temp table t (a int) on commit drop",
];

#[test]
fn a_transaction_is_answered_from_memory_until_a_server_runs_it() {
    let ground = Ground::new();
    ground.prepare("create table t as select 1 as a; create table o as select 2 as b");
    let proxy = ground.primary_proxy(ON);
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    warm(&proxy, &mut other, READ);
    for deed in DEEDS {
        client.run("begin");
        assert!(is_hit(&proxy, &mut client, READ), "{deed}: it has not begun");
        client.run(deed);
        assert!(!is_hit(&proxy, &mut client, READ), "{deed}");
        // Others must not be told its reads from now on, and it must not be told theirs.
        let own = match *deed {
            "insert into t values (9)" => "2",
            "create temp table t (a int) on commit drop" => "0",
            _ => "1",
        };
        assert_eq!(client.value(READ), own, "{deed}");
        assert_eq!(other.value(READ), "1", "{deed}");
        client.run("rollback");
        client.run("discard all");
        warm(&proxy, &mut client, READ);
    }
    // Reads that a standby answers do not begin it.
    let proxy = ground.proxy(ON);
    let mut client = ground.client(&proxy);
    warm(&proxy, &mut client, READ);
    client.run("begin");
    client.run("select b from o");
    assert!(is_hit(&proxy, &mut client, READ));
    client.run("commit");
}

#[test]
fn the_read_that_a_transaction_begins_with_is_kept() {
    let ground = Ground::new();
    ground.prepare("create table t as select 1 as a; create table o as select 2 as b");
    for proxy in [ground.proxy(ON), ground.primary_proxy(ON)] {
        let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
        warm(&proxy, &mut other, READ);
        // Each text is a new one.
        let mut number = 0;
        let mut texts = || {
            number += 1;
            format!("select a + {number} from t")
        };
        // As drivers do that have no autocommit.
        wait_until("an answer of a transaction to be kept", || {
            let text = texts();
            client.run("begin");
            client.run(&text);
            client.run("commit");
            is_hit(&proxy, &mut other, &text)
        });
        for deed in ["update t set a = 5", "update o set b = 5", "savepoint s"] {
            let text = texts();
            client.run("begin");
            client.run(deed);
            client.run(&text);
            client.run(&text);
            assert!(!is_hit(&proxy, &mut other, &text), "{deed}");
            client.run("rollback");
        }
        for begin in ["begin isolation level repeatable read", "begin isolation level serializable"] {
            let text = texts();
            client.run(begin);
            assert!(!is_hit(&proxy, &mut client, READ), "{begin}");
            client.run(&text);
            assert!(!is_hit(&proxy, &mut client, &text) && !is_hit(&proxy, &mut other, &text), "{begin}");
            client.run("commit");
        }
    }
}

#[test]
fn a_transaction_of_one_snapshot_goes_on_seeing_it() {
    let ground = Ground::new();
    ground.prepare("create table t as select 1 as a");
    for proxy in [ground.proxy(ON), ground.primary_proxy(ON)] {
        let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
        warm(&proxy, &mut other, READ);
        for begin in ["begin isolation level repeatable read", "begin isolation level serializable read only"] {
            client.run(begin);
            let before = client.value(READ);
            other.run("insert into t values (2)");
            warm(&proxy, &mut other, READ);
            assert_eq!(client.value(READ), before, "{begin}");
            client.run("commit");
            assert_ne!(client.value(READ), before, "{begin}");
        }
    }
}

#[test]
fn an_answer_from_memory_counts_as_a_transactions_first_query() {
    let ground = Ground::new();
    ground.prepare("create table t as select 1 as a");
    for proxy in [ground.proxy(ON), ground.primary_proxy(ON)] {
        let (mut client, mut direct) = (ground.client(&proxy), ground.direct());
        warm(&proxy, &mut client, READ);
        client.run("begin");
        assert!(is_hit(&proxy, &mut client, READ));
        direct.run("begin");
        direct.run(READ);
        let text = "set transaction isolation level serializable";
        let refused = client.try_rows(text).unwrap_err();
        assert_eq!(refused.sqlstate, "25001");
        assert_eq!(refused.sqlstate, direct.try_rows(text).unwrap_err().sqlstate);
        assert_eq!(client.try_rows(READ).unwrap_err().sqlstate, "25P02", "it has failed");
        client.run("rollback");
        // A transaction whose level is set after its BEGIN has one snapshot, as has one of a session with that default.
        client.run("begin");
        client.run("set transaction isolation level repeatable read");
        assert!(!is_hit(&proxy, &mut client, READ));
        client.run("commit");
        client.run("set default_transaction_isolation = 'repeatable read'");
        client.run("begin");
        assert!(!is_hit(&proxy, &mut client, READ));
        client.run("commit");
        client.run("reset default_transaction_isolation");
        // A failure that no server knows of.
        warm(&proxy, &mut client, READ);
        client.run("begin");
        assert!(is_hit(&proxy, &mut client, READ));
        client.extended("select $1::int / 0 from t", &["1"]).unwrap_err();
        assert_eq!(client.try_rows(READ).unwrap_err().sqlstate, "25P02");
        assert_eq!(status(&client.query(READ)), b'E');
        client.run("rollback");
    }
}

/// The rows and command tags of an answer, in order, and how it ends.
fn told(answer: &[Message]) -> String {
    let shown = answer.iter().filter(|message| matches!(message.tag, b'D' | b'C' | b'E' | b'Z'));
    let of = |message: &Message| match message.tag {
        b'D' => message.row()[0].clone().unwrap_or_default(),
        b'E' => "error".into(),
        b'Z' => (message.body[0] as char).to_string(),
        _ => String::from_utf8_lossy(&message.body[..message.body.len() - 1]).into_owned(),
    };
    shown.map(of).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_pipeline_is_answered_from_memory_up_to_what_needs_a_server() {
    let ground = Ground::new();
    ground.prepare("create table t as select 1 as a; create table o as select 2 as b");
    for proxy in [ground.proxy(ON), ground.primary_proxy(ON)] {
        let mut client = ground.client(&proxy);
        let (one, two) = (wire::unnamed("select a from t", &[]), wire::unnamed("select b from o where b > $1", &["0"]));
        for question in [&one, &two] {
            wait_until("each answer to be kept", || {
                let before = hits(&proxy);
                client.send(&[question.as_slice(), &wire::sync()].concat());
                client.until_ready();
                hits(&proxy) > before
            });
        }
        let mut check = |messages: &[&[u8]], expected: &str, wanted: (u64, Option<u64>)| {
            let before = (hits(&proxy), sent(&proxy));
            client.send(&messages.concat());
            assert_eq!(told(&client.until_ready()), expected);
            let counted = (hits(&proxy) - before.0, wanted.1.map(|_| sent(&proxy) - before.1));
            assert_eq!(counted, wanted, "{expected}");
        };
        let (sync, moment) = (wire::sync(), wire::unnamed("select 'moment' where now() is not null", &[]));
        let (write, wrong) = (wire::unnamed("update t set a = a", &[]), wire::unnamed("select 1 / $1::int", &["0"]));
        check(&[&one, &two, &one, &sync], "1 SELECT 1 2 SELECT 1 1 SELECT 1 I", (3, Some(0)));
        check(&[&two, &moment, &two, &sync], "2 SELECT 1 moment SELECT 1 2 SELECT 1 I", (1, Some(2)));
        check(&[&two, &wrong, &two, &sync], "2 SELECT 1 error I", (1, None));
        // A statement that is no read may need the transaction that it shares with those before it.
        check(&[&two, &write, &one, &sync], "2 SELECT 1 UPDATE 1 1 SELECT 1 I", (0, Some(3)));
        let begin = wire::unnamed("begin", &[]);
        let commit = wire::unnamed("commit", &[]);
        check(&[&begin, &two, &two, &commit, &sync], "BEGIN 2 SELECT 1 2 SELECT 1 COMMIT I", (2, Some(0)));
        check(&[&begin, &two, &sync], "BEGIN 2 SELECT 1 T", (1, Some(0)));
        check(&[&wrong, &two, &sync], "error E", (0, None));
        check(&[&two, &sync], "error E", (0, None));
        check(&[&commit, &sync], "ROLLBACK I", (0, None));
        // A result that was not asked for alone is not kept under its name.
        let fresh = wire::unnamed("select a, 'fresh' from t", &[]);
        check(&[&fresh, &fresh, &sync], "1 SELECT 1 1 SELECT 1 I", (0, Some(2)));
        check(&[&fresh, &sync], "1 SELECT 1 I", (0, Some(1)));
    }
}
