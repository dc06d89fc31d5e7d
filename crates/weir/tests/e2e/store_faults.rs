//! Stores that fail in other ways than by being gone, and what a writer leaves behind that fails himself.

use super::cache::{hits, is_hit, warm};
use super::cancel::cancel;
use super::lost::seen;
use super::signals::refuses_new_clients;
use super::stores::{BOTH, Kind, Store, a_moment, run_soon};
use crate::support::faults::{Fault, Network};
use crate::support::proxy::show;
use crate::support::{Ground, Proxy, Raw, wait_until, wire};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Waits until the log has said something.
pub(super) fn wait_said(proxy: &Proxy, text: &str) {
    wait_until(&format!("the log to say \"{text}\""), || proxy.log().contains(text));
}

#[test]
fn a_store_that_takes_no_writes_is_missed_and_said_so_once_and_its_answers_are_not_given_out() {
    let Some(store) = Store::start(Kind::Redis) else { return };
    let ground = Ground::new();
    ground.prepare("create table t as select 1 as a");
    let (near, far) = (ground.primary_proxy(&store.own_conf()), ground.primary_proxy(&store.own_conf()));
    let (mut reader, mut writer) = (ground.client(&near), ground.client(&far));
    let read = "select count(*) from t";
    let mut count = 1;
    // No room; a replica of nobody, which answers what it has.
    for (spoil, mend, words) in [
        ("CONFIG SET maxmemory 1\r\n", "CONFIG SET maxmemory 0\r\n", "maxmemory-policy allkeys-lru"),
        ("REPLICAOF 127.0.0.1 1\r\n", "REPLICAOF NO ONE\r\n", "It is a replica"),
    ] {
        assert_eq!(warm(&near, &mut reader, read)[0][0], count.to_string());
        store.say(spoil);
        for _ in 0..3 {
            run_soon(&mut writer, "insert into t values (1)");
            count += 1;
            assert_eq!(reader.value(read), count.to_string(), "its stamp says it is the old one");
        }
        wait_said(&far, words);
        assert_eq!(far.log().matches(words).count(), 1, "{}", far.log());
        store.say(mend);
        assert_eq!(warm(&near, &mut reader, read)[0][0], count.to_string());
        wait_said(&far, "serves as a store of answers again");
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
fn a_memcached_that_cannot_compare_and_swap_is_not_used_and_said_so() {
    let Some(store) = Store::start_with(Kind::Memcached, &["-C"]) else { return };
    let ground = Ground::new();
    ground.prepare("create table t as select 1 as a");
    let proxy = ground.primary_proxy(&store.own_conf());
    let mut client = ground.client(&proxy);
    wait_said(&proxy, "Start memcached without -C");
    for count in 2..=4 {
        run_soon(&mut client, "insert into t values (1)");
        assert_eq!(client.value("select count(*) from t"), count.to_string());
    }
    assert_eq!(hits(&proxy), 0);
}

/// A memcached that takes what it is greeted with, and of all else says that it has nothing and takes nothing. Ends with the test's process.
fn contradicting_store() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let serve = |stream: TcpStream| -> Option<()> {
        let (mut reader, mut stream) = (BufReader::new(stream.try_clone().ok()?), stream);
        let mut line = String::new();
        while reader.read_line(&mut line).ok()? > 0 {
            let words: Vec<&str> = line.split_whitespace().collect();
            let is_greeting = |key: &&&str| key.contains(":t:");
            let reply = match *words.first()? {
                "version" => "VERSION 1\r\n".to_string(),
                "gets" => {
                    let found = words[1..].iter().filter(is_greeting).map(|key| format!("VALUE {key} 0 1 7\r\nx\r\n"));
                    found.chain(["END\r\n".to_string()]).collect()
                }
                _ => {
                    let mut value = vec![0; words.get(4)?.parse::<usize>().ok()? + 2];
                    reader.read_exact(&mut value).ok()?;
                    if is_greeting(&words.get(1)?) { "STORED\r\n" } else { "NOT_STORED\r\n" }.to_string()
                }
            };
            stream.write_all(reply.as_bytes()).ok()?;
            line.clear();
        }
        None
    };
    std::thread::spawn(move || listener.incoming().flatten().for_each(|stream| drop(std::thread::spawn(move || serve(stream)))));
    port
}

#[test]
fn a_store_that_contradicts_itself_is_missed_and_said_so() {
    let ground = Ground::new();
    ground.prepare("create table t as select 1 as a");
    let port = contradicting_store();
    let proxy = ground.primary_proxy(&format!(
        "memory_cache_enabled = on\nmemqcache_method = memcached\nmemqcache_namespace = 'test_{port}'\n\
         memqcache_memcached_host = '127.0.0.1:{port}'\n"
    ));
    let mut client = ground.client(&proxy);
    for count in 2..=4 {
        run_soon(&mut client, "insert into t values (1)");
        assert_eq!(client.value("select count(*) from t"), count.to_string());
    }
    wait_said(&proxy, "it contradicts itself about what it keeps");
    assert_eq!(hits(&proxy), 0);
}

#[test]
fn who_writes_while_weir_stops_waits_for_no_store_that_is_gone() {
    for kind in BOTH {
        let Some(mut store) = Store::start(kind) else { return };
        let ground = Ground::new();
        ground.prepare("create table t as select 1 as a");
        let mut proxy = ground.primary_proxy(&format!("{}worker_threads = 2\n", store.own_conf()));
        // One for each worker. The first worker does for the other what is done once for all.
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
fn a_host_that_is_dead_from_the_start_costs_its_own_tables_only() {
    let (Some(one), Some(mut other)) = (Store::start(Kind::Memcached), Store::start(Kind::Memcached)) else { return };
    other.kill();
    let ground = Ground::new();
    // Of one in four both answer and stamp lie at the host that lives.
    let tables: Vec<String> = (0..40).map(|at| format!("t{at}")).collect();
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
    // Somebody writes it all the time.
    let marks = "for _, key in ipairs(redis.call('KEYS', '*:s:*')) do redis.call('APPEND', key, ',00000007w') end return 'OK'";
    store.say(&format!("EVAL \"{marks}\" 0\r\n"));
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
        // A read may have come from the server alone: what the store gives counts.
        wait_until("the view to be seen as it is", || warm(&near, &mut reader, read)[0][0] == "2");
        drop((reader, near));
        direct.run("create or replace view v as select a + 2 as a from t");
        // It lies in the store from before the next one's first look.
        let far = ground.primary_proxy(&store.own_conf());
        let mut reader = ground.client(&far);
        for _ in 0..10 {
            assert_eq!(reader.value(read), "3");
        }
        assert_eq!(warm(&far, &mut reader, read)[0][0], "3");
        assert!(hits(&far) > 0);
    }
}

#[test]
fn a_write_that_was_cancelled_before_it_was_sent_leaves_no_marks() {
    let Some(store) = Store::start(Kind::Memcached) else { return };
    let ground = Ground::new();
    ground.prepare("create table t as select 1 as a");
    let near = ground.primary_proxy(&store.own_conf());
    let far = ground.primary_proxy(&format!("{}pool_size = 1\nworker_threads = 1\n", store.own_conf()));
    let (mut reader, mut writer, mut holder) = (ground.client(&near), ground.client(&far), ground.client(&far));
    let read = "select count(*) from t";
    warm(&near, &mut reader, read);
    // The store says nothing, so that its marks are waited for, and the connection goes to another meanwhile.
    store.signal(Signal::STOP);
    writer.send(&wire::query("insert into t values (2)"));
    holder.run("begin; select 1");
    store.signal(Signal::CONT);
    wait_for_waiter(&far);
    cancel(&far, writer.pid, &writer.key.clone());
    assert_eq!(writer.until_ready()[0].failure().sqlstate, "57014");
    holder.run("commit");
    // The writer's session is still there.
    assert_eq!(warm(&near, &mut reader, read)[0][0], "1");
    writer.run("insert into t values (2)");
    assert_eq!(reader.value(read), "2");
}

#[test]
fn a_store_that_answers_at_once_is_kept_however_short_the_timeout() {
    let Some(store) = Store::start(Kind::Memcached) else { return };
    let ground = Ground::new();
    ground.prepare("create table t as select 1 as a");
    // Shorter than the time between two looks at what is due.
    let proxy = ground.primary_proxy(&format!("{}memqcache_timeout = 25\n", store.own_conf()));
    let mut client = ground.client(&proxy);
    warm(&proxy, &mut client, "select count(*) from t");
    let lost = proxy.metric("cache_stores_lost_total");
    let (mut written, end) = (0, Instant::now() + Duration::from_secs(4));
    while Instant::now() < end {
        a_moment();
        client.run("insert into t values (1)");
        written += 1;
    }
    assert!(written > 3 && proxy.metric("cache_stores_lost_total") == lost, "{}", proxy.log());
}

#[test]
fn a_weir_that_stops_leaves_no_marks() {
    for (kind, signal) in [(Kind::Memcached, Signal::TERM), (Kind::Redis, Signal::INT)] {
        let Some(store) = Store::start(kind) else { return };
        let ground = Ground::new();
        ground.prepare("create table t as select 1 as a; create table other as select 1 as a");
        let mut one = ground.primary_proxy(&store.own_conf());
        let other = ground.primary_proxy(&store.own_conf());
        let (mut writer, mut reader) = (ground.client(&one), ground.client(&other));
        // A mark for the write and one for a stamp that is young.
        writer.run("insert into t values (2)");
        writer.rows("select count(*) from other");
        if signal == Signal::TERM {
            drop(writer);
        }
        one.signal(signal);
        one.wait_end();
        for (table, count) in [("t", "2"), ("other", "1")] {
            let read = format!("select count(*) from {table}");
            assert_eq!(warm(&other, &mut reader, &read)[0][0], count, "{table}");
        }
    }
}

/// A trigger that is defined while the write waits for its maker's lock; it writes where the statement does not say.
#[test]
fn what_a_write_is_found_to_have_changed_the_store_knows_before_its_client_hears_that_it_is_over() {
    let Some(store) = Store::start(Kind::Memcached) else { return };
    let ground = Ground::new();
    ground.prepare(
        "create table t (a int); create table noted (a int); create function note() returns trigger language plpgsql as \
         $$ begin perform pg_advisory_xact_lock(77); insert into noted values (new.a); return new; end $$",
    );
    let network = Network::to(store.port.number());
    let slow = format!("{}memqcache_timeout = 2s\n", store.conf(network.port()));
    let (near, far) = (ground.primary_proxy(&store.own_conf()), ground.primary_proxy(&slow));
    let (mut reader, mut definer, mut writer) = (ground.client(&near), ground.client(&far), ground.client(&far));
    let (mut holder, mut admin) = (ground.direct(), ground.direct());
    let mut await_lock = |what: &str| {
        let text = format!(
            "select count(*) from pg_locks where not granted and {what} and database = (select oid from pg_database where datname = current_database())"
        );
        wait_until(what, || admin.value(&text) == "1");
    };
    let read = "select count(*) from noted";
    warm(&near, &mut reader, read);
    holder.run("select pg_advisory_lock(77)");
    definer.run("begin");
    definer.run("create trigger n after insert on t for each row execute function note()");
    writer.send(&wire::query("insert into t values (1)"));
    await_lock("relation = 't'::regclass");
    let known = near.metric("catalogs_read_total");
    definer.run("commit");
    await_lock("locktype = 'advisory'");
    wait_until("the other to know of the trigger", || near.metric("catalogs_read_total") > known);
    assert_eq!(warm(&near, &mut reader, read)[0][0], "0");
    network.set_both(Fault::Delay(Duration::from_millis(300)));
    holder.run("select pg_advisory_unlock(77)");
    assert_eq!(seen(&writer.until_ready()), ["INSERT 0 1", "ZI"]);
    assert_eq!(reader.value(read), "1");
    network.set_both(Fault::None);
    assert_eq!(warm(&near, &mut reader, read)[0][0], "1");
}
