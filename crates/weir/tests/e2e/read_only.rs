//! Transactions that only read: their clients never see a refusal that only a standby gives.

use crate::support::{Ground, Raw, wire};

/// The port of the server that answers: a read like any other.
const WHERE: &str = "select inet_server_port()";

/// Statements that a transaction which only reads may run on the primary and on no standby, each with its value.
const PRIMARYS: &[(&str, &str)] = &[
    ("select count(*) from u", "1"),
    ("select txid_current() > 0", "t"),
    ("select pg_current_xact_id() is not null", "t"),
    ("select secretly()", "1"),
    ("select last_value from s", "1"),
    ("select pg_notify('a', 'b')::text", ""),
    ("lock table t in share mode; select 1", "1"),
];

fn ground() -> Ground {
    let ground = Ground::new();
    ground.prepare(
        "create table t (a int); insert into t values (1); create unlogged table u as select 1 as a; create sequence s;
         create function secretly() returns bigint language plpgsql stable as
         $$ declare n bigint; begin execute 'select count(*) from ' || 'u' into n; return n; end $$",
    );
    ground
}

fn check_runs(client: &mut Raw, begin: &str, before: usize) {
    for (text, value) in PRIMARYS {
        client.run(begin);
        for _ in 0..before {
            client.run("select count(*) from t");
        }
        assert_eq!(client.value(text), *value, "{begin}, {before} reads before it: {text}");
        assert_eq!(client.value("show transaction_read_only"), "on");
        assert_eq!(client.value("select count(*) from t"), "1");
        assert_eq!(client.query("commit")[0].text(), "COMMIT", "{text}");
    }
}

#[test]
fn what_a_standby_refuses_a_transaction_that_only_reads_runs_on_the_primary() {
    let ground = ground();
    let proxy = ground.proxy("");
    let mut client = ground.client(&proxy);
    for begin in ["begin read only", "start transaction isolation level repeatable read, read only"] {
        check_runs(&mut client, begin, 0);
    }
    for before in [1, 2] {
        check_runs(&mut client, "begin read only", before);
    }
    client.run("set default_transaction_read_only = on");
    check_runs(&mut client, "begin", 1);
    for text in ["insert into t values (1)", "select nextval('s')", "select a from t for update"] {
        client.run("begin");
        client.run(WHERE);
        assert_eq!(client.error(text).sqlstate, "25006", "{text}");
        client.run("rollback");
    }
}

/// A transaction that cannot move with its snapshot fails with a serialization failure, after which its clients try again.
#[test]
fn a_transaction_of_one_snapshot_that_needs_the_primary_runs_there_the_second_time() {
    let ground = ground();
    let proxy = ground.proxy("");
    for (text, value) in [&PRIMARYS[..3], &[("select pg_advisory_xact_lock(1)::text", "")]].concat() {
        for first in ["select count(*) from t", "select now() is not null"] {
            let mut client = ground.client(&proxy);
            client.run("begin isolation level repeatable read read only");
            client.run(first);
            let failure = client.error(text);
            assert_eq!((failure.severity.as_str(), failure.sqlstate.as_str()), ("ERROR", "40001"), "{text}: {failure:?}");
            assert_eq!(client.error("select 1").sqlstate, "25P02");
            client.run("rollback");
            client.run("begin isolation level repeatable read read only");
            client.run(first);
            assert_eq!(client.value(text), value, "{text}");
            client.run("commit");
            let port = client.value(WHERE);
            assert!(ground.standby_ports().contains(&port), "outside of such transactions it reads on standbys");
        }
    }
}

#[test]
fn reads_of_a_transaction_that_only_reads_hold_no_connection_between_them() {
    let ground = ground();
    let proxy = ground.proxy("pool_size = 1");
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    client.run("begin read only");
    for _ in 0..3 {
        let port = client.value(WHERE);
        assert!(ground.standby_ports().contains(&port), "{port}");
        let port = other.value(WHERE);
        assert!(ground.standby_ports().contains(&port), "{port}");
    }
    client.send(&[wire::unnamed("select count(*) from t", &[]), wire::sync()].concat());
    assert_eq!(client.until_ready().last().unwrap().body, b"T");
    client.run("commit");
}
