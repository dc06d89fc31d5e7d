//! `currval` and `lastval` tell a session what it drew itself, or nothing.

use crate::support::proxy::show;
use crate::support::{Ground, Proxy, Raw, wait_until};

/// One thread, so that the connection used last is surely the one given next.
const CONF: &str = "worker_threads = 1\npool_size = 3";

const NOT_YET: &str = "lastval is not yet defined in this session";

fn stage() -> (Ground, Proxy) {
    let ground = Ground::new();
    ground.prepare("create sequence numbers; create sequence others; create table counted (id serial, a int)");
    let proxy = ground.primary_proxy(CONF);
    (ground, proxy)
}

fn kept(proxy: &Proxy) -> usize {
    show(&mut proxy.console(), "pool_pools", "status").iter().filter(|status| status.contains("sequence value")).count()
}

fn pid(client: &mut Raw) -> String {
    client.value("select pg_backend_pid()")
}

#[test]
fn what_a_session_drew_is_found_again_as_long_as_nobody_drew_on_its_connection() {
    let (ground, proxy) = stage();
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    assert_eq!(client.value("select nextval('numbers')"), "1");
    let its_own = pid(&mut client);
    other.run("begin; select 1");
    assert_eq!(pid(&mut other), its_own, "the other client has its connection");
    let elsewhere = pid(&mut client);
    assert_ne!(elsewhere, its_own);
    other.run("commit");
    assert_eq!(pid(&mut client), its_own);
    // Both are at rest now, the other one was used last.
    other.run("begin; select 1");
    client.run("select 1");
    other.run("commit");
    assert_eq!(client.value("select lastval()"), "1");
    assert_eq!(kept(&proxy), 1);
    assert_eq!(client.extended("select currval('numbers')", &[]).unwrap(), "1");
}

#[test]
fn a_session_waits_for_the_connection_it_drew_on() {
    let (ground, proxy) = stage();
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    client.run("insert into counted (a) values (7)");
    other.run("begin; select 1");
    client.send(&crate::support::wire::query("select currval('counted_id_seq')"));
    wait_until("the client to wait", || {
        show(&mut proxy.console(), "pool_processes", "status").iter().any(|status| status == "Wait for connection")
    });
    other.run("commit");
    let answer = client.until_ready();
    assert!(answer.iter().any(|message| message.tag == b'D' && message.row() == [Some("1".to_string())]), "{answer:?}");
}

#[test]
fn a_value_that_somebody_else_drew_over_is_an_error_and_then_the_pool_has_learned() {
    let (ground, proxy) = stage();
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    client.run("select nextval('numbers')");
    assert_eq!(other.value("select nextval('others')"), "1", "on the same connection");
    let failure = client.error("select lastval()");
    assert!(failure.message.starts_with("the sequence values of this session are lost"), "{failure:?}");
    assert_eq!(failure.sqlstate, "55000");
    assert_eq!(kept(&proxy), 0);
    assert_eq!(client.value("select nextval('numbers')"), "2");
    assert_eq!(other.value("select nextval('others')"), "2");
    assert_eq!(kept(&proxy), 2);
    assert_eq!((client.value("select lastval()"), other.value("select lastval()")), ("2".into(), "2".into()));
    assert_eq!(
        other.error("select currval('numbers')").message,
        "currval of sequence \"numbers\" is not yet defined in this session"
    );
    client.run("discard all");
    assert_eq!(kept(&proxy), 1);
    assert_eq!(client.error("select lastval()").message, NOT_YET);
}

#[test]
fn a_session_that_drew_nothing_sees_nothing_of_others() {
    let (ground, proxy) = stage();
    let (mut client, mut other) = (ground.client(&proxy), ground.client(&proxy));
    other.run("select nextval('others')");
    assert_eq!(client.error("select lastval()").message, NOT_YET);
    assert_eq!(
        client.error("select currval('others')").message,
        "currval of sequence \"others\" is not yet defined in this session"
    );
    other.run("insert into counted (a) values (1)");
    let mut third = ground.client(&proxy);
    third.run("begin; select 1");
    assert_eq!(third.error("select lastval()").message, NOT_YET);
    third.run("rollback");
    assert_eq!(third.value("insert into counted (a) values (2); select lastval()"), "2");
}
