//! Stores that fail in other ways than by being gone.

use super::cache::{is_hit, warm};
use super::signals::refuses_new_clients;
use super::stores::{BOTH, Kind, Store, run_soon};
use crate::support::proxy::show;
use crate::support::{Ground, Proxy, Raw, wait_until, wire};
use rustix::process::Signal;

/// Waits until the log has said something.
pub(super) fn wait_said(proxy: &Proxy, text: &str) {
    wait_until(&format!("the log to say \"{text}\""), || proxy.log().contains(text));
}

#[test]
fn a_store_that_takes_no_writes_costs_misses_and_that_is_said_once() {
    let Some(store) = Store::start(Kind::Redis) else { return };
    let ground = Ground::new();
    ground.prepare("create table t as select 1 as a");
    let read = "select count(*) from t";
    let mut count = 1;
    // No room; a replica without a master, which answers with its own data.
    for (spoil, mend, words) in [
        ("CONFIG SET maxmemory 1\r\n", "CONFIG SET maxmemory 0\r\n", "maxmemory-policy allkeys-lru"),
        ("REPLICAOF 127.0.0.1 1\r\n", "REPLICAOF NO ONE\r\n", "It is a replica"),
    ] {
        let proxy = ground.primary_proxy(&store.own_conf());
        let (mut reader, mut writer) = (ground.client(&proxy), ground.client(&proxy));
        assert_eq!(warm(&proxy, &mut reader, read)[0][0], count.to_string());
        store.say(spoil);
        for _ in 0..3 {
            run_soon(&mut writer, "insert into t values (1)");
            count += 1;
            assert_eq!(reader.value(read), count.to_string(), "what lies there is of before");
        }
        wait_until("the log to say so", || {
            assert_eq!(reader.value(read), count.to_string());
            proxy.log().contains(words)
        });
        (0..10).for_each(|_| assert_eq!(reader.value(read), count.to_string()));
        assert_eq!(proxy.log().matches(words).count(), 1, "{}", proxy.log());
        store.say(mend);
        assert_eq!(warm(&proxy, &mut reader, read)[0][0], count.to_string());
    }
}

#[test]
fn answers_a_full_store_does_not_take_are_missed_and_said_so_once() {
    let Some(store) = Store::start_with(Kind::Memcached, &["-M", "-m", "2", "-I", "1m"]) else { return };
    let ground = Ground::new();
    ground.prepare("create table t as select 1 as a");
    let proxy = ground.primary_proxy(&store.own_conf());
    let mut client = ground.client(&proxy);
    warm(&proxy, &mut client, "select count(*) from t");
    wait_until("it to be full", || {
        (0..20).for_each(|at| drop(client.rows(&format!("select repeat('x', 200000), {at}, count(*) from t"))));
        proxy.log().contains("takes no answers to keep")
    });
    for count in 2..=4 {
        run_soon(&mut client, "insert into t values (1)");
        assert_eq!(client.value("select count(*) from t"), count.to_string());
    }
    assert_eq!(proxy.log().matches("takes no answers to keep").count(), 1, "{}", proxy.log());
}

#[test]
fn who_writes_while_weir_stops_waits_for_no_store_that_is_gone() {
    for kind in BOTH {
        let Some(mut store) = Store::start(kind) else { return };
        let ground = Ground::new();
        ground.prepare("create table t as select 1 as a");
        let mut proxy = ground.primary_proxy(&format!("{}worker_threads = 2\n", store.own_conf()));
        // One for each worker.
        let (mut first, mut second) = (ground.client(&proxy), ground.client(&proxy));
        warm(&proxy, &mut second, "select count(*) from t");
        proxy.signal(Signal::TERM);
        wait_until("new clients to be refused", || refuses_new_clients(&proxy));
        first.send(&wire::terminate());
        drop(first);
        store.kill();
        for _ in 0..3 {
            run_soon(&mut second, "insert into t values (1)");
        }
        second.send(&wire::terminate());
        drop(second);
        assert!(proxy.wait_end().success());
    }
}

#[test]
fn a_host_that_is_dead_from_the_start_costs_its_own_answers_only() {
    let (Some(one), Some(mut other)) = (Store::start(Kind::Memcached), Store::start(Kind::Memcached)) else { return };
    other.kill();
    let ground = Ground::new();
    // The host of an answer is chosen by its key: some of so many are on each.
    let tables: Vec<String> = (0..32).map(|at| format!("t{at}")).collect();
    tables.iter().for_each(|table| ground.prepare(&format!("create table {table} as select 1 as a")));
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", one.port.number(), other.port.number());
    let proxy = ground.primary_proxy(&format!("{}memqcache_memcached_host = '{hosts}'\n", one.own_conf()));
    let mut client = ground.client(&proxy);
    let count = |table: &str| format!("select count(*) from {table}");
    let some_hit = |client: &mut Raw| tables.iter().any(|table| is_hit(&proxy, client, &count(table)));
    wait_until("answers of the host that lives", || some_hit(&mut client));
    tables.iter().for_each(|table| run_soon(&mut client, &format!("insert into {table} values (1)")));
    tables.iter().for_each(|table| assert_eq!(client.value(&count(table)), "2", "{table}"));
    wait_until("answers of the host that lives", || some_hit(&mut client));
    wait_said(&proxy, "does not serve as a store of answers");
}

/// Waits until a client of this proxy waits for a connection.
fn wait_for_waiter(proxy: &Proxy) {
    let waits = || show(&mut proxy.console(), "pool_processes", "status").iter().any(|status| status == "Wait for connection");
    wait_until("a client to wait for a connection", waits);
}

#[test]
fn a_store_is_asked_once_by_a_client_that_then_waits_for_a_connection() {
    let Some(store) = Store::start(Kind::Redis) else { return };
    let ground = Ground::new();
    ground.prepare("create table t as select 1 as a");
    let proxy = ground.primary_proxy(&format!("{}pool_size = 1\n", store.own_conf()));
    let (mut client, mut holder) = (ground.client(&proxy), ground.client(&proxy));
    let read = "select count(*) from t";
    warm(&proxy, &mut client, read);
    store.flush();
    let asked = proxy.metric("cache_stores_asked_total");
    holder.run("begin; update t set a = a");
    client.send(&wire::query(read));
    wait_for_waiter(&proxy);
    holder.run("commit");
    assert_eq!(client.until_ready()[1].row(), [Some("1".to_string())]);
    assert_eq!(proxy.metric("cache_stores_asked_total"), asked + 1, "asked again with the connection at hand");
}

#[test]
fn what_is_defined_past_weir_is_seen_through_a_store_too() {
    for kind in BOTH {
        let Some(store) = Store::start(kind) else { return };
        let ground = Ground::new();
        ground.prepare("create table t as select 1 as a");
        ground.prepare("create view v as select a from t");
        let mut direct = ground.direct();
        let read = "select a from v";
        let near = ground.primary_proxy(&store.own_conf());
        let mut reader = ground.client(&near);
        assert_eq!(warm(&near, &mut reader, read)[0][0], "1");
        direct.run("create or replace view v as select a + 1 as a from t");
        // A read may have come from the server alone: the store's answer counts.
        wait_until("the view to be seen as it is", || warm(&near, &mut reader, read)[0][0] == "2");
    }
}

#[test]
fn a_store_that_answers_at_once_is_kept_however_short_the_timeout() {
    let Some(store) = Store::start(Kind::Memcached) else { return };
    let ground = Ground::new();
    ground.prepare("create table t as select 1 as a");
    // Shorter than the time between two looks at timers.
    let proxy = ground.primary_proxy(&format!("{}memqcache_timeout = 25\n", store.own_conf()));
    let mut client = ground.client(&proxy);
    warm(&proxy, &mut client, "select count(*) from t");
    let lost = proxy.metric("cache_stores_lost_total");
    for _ in 0..100 {
        client.run("insert into t values (1)");
        warm(&proxy, &mut client, "select count(*) from t");
    }
    assert_eq!(proxy.metric("cache_stores_lost_total"), lost, "{}", proxy.log());
}
