//! Answers in a store that several Weirs share: the primary's log says which are true.

use super::cache::{hits, is_hit, warm};
use super::cache_wal::{OBJECTS, ON, WRITES, client, direct, logical, slots};
use super::history::{REGISTERS, Story, history, register};
use super::stores::{BOTH, Kind, Store, run_soon};
use crate::support::faults::Network;
use crate::support::proxy::show;
use crate::support::{Proxy, Raw, wait_until};
use rustix::process::Signal;
use std::sync::Mutex;

/// Answers lie in this store, and show all that the primary had when they were asked for.
fn on(store: &Store) -> String {
    over(store, store.port.number())
}

/// Configuration of a Weir that uses the store by another port.
fn over(store: &Store, port: u16) -> String {
    format!("{}{ON}\n", store.conf(port))
}

fn state(client: &mut Raw) -> String {
    show(client, "pool_cache_wal", "state").concat()
}

#[test]
fn no_write_past_all_weirs_leaves_an_answer_in_a_store_that_is_not_true() {
    for kind in BOTH {
        let Some(store) = Store::start(kind) else { return };
        let cluster = logical(0);
        OBJECTS.iter().for_each(|text| drop(cluster.primary().query(text).unwrap()));
        let (one, other) = (Proxy::start(&cluster, &on(&store)), Proxy::start(&cluster, &on(&store)));
        let (mut reader, mut second, mut writer) = (client(&one), client(&other), direct(cluster.primary()));
        for (read, write) in WRITES {
            let before = warm(&one, &mut reader, read);
            assert_eq!((&before, warm(&other, &mut second, read)), (&writer.rows(read), before.clone()), "{read}");
            write.iter().for_each(|text| writer.run(text));
            let expected = writer.rows(read);
            assert_ne!(before, expected, "{write:?} does not change {read}");
            assert_eq!(reader.rows(read), expected, "{read} after {write:?}");
            assert_eq!(second.rows(read), expected, "the other: {read} after {write:?}");
        }
        assert_eq!(slots(cluster.primary()), "2");
    }
}

#[test]
fn a_commit_that_waits_for_a_standby_leaves_no_old_answer_in_a_store() {
    for kind in BOTH {
        let Some(store) = Store::start(kind) else { return };
        let cluster = logical(0);
        let primary = cluster.primary();
        primary.query("create table t as select 0 as v").unwrap();
        let (one, other) = (Proxy::start(&cluster, &on(&store)), Proxy::start(&cluster, &on(&store)));
        let (mut reader, mut second) = (client(&one), client(&other));
        let read = "select v from t";
        assert_eq!(
            (warm(&one, &mut reader, read), warm(&other, &mut second, read)),
            (vec![vec!["0".into()]], vec![vec!["0".into()]])
        );
        primary.query("alter system set synchronous_standby_names = 'nobody'").unwrap();
        primary.reload().unwrap();
        wait_until("the server to wait for standbys", || primary.value("show synchronous_standby_names").unwrap() == "nobody");
        let mut writer = direct(primary);
        // The checkpointer decides if commits wait: it takes the names in before it makes the checkpoint.
        primary.query("checkpoint").unwrap();
        let waiting = std::thread::spawn(move || writer.run("update t set v = 1"));
        wait_until("its change to be told", || {
            [&mut reader, &mut second].into_iter().all(|client| show(client, "pool_cache_wal", "pending") == ["1"])
        });
        for _ in 0..20 {
            assert_eq!((reader.value(read), second.value(read)), ("0".into(), "0".into()), "others do not see it yet");
            assert!(!is_hit(&one, &mut reader, read) && !is_hit(&other, &mut second, read), "an answer of before was stored");
        }
        primary.query("alter system reset synchronous_standby_names").unwrap();
        primary.reload().unwrap();
        waiting.join().unwrap();
        assert_eq!((reader.value(read), second.value(read)), ("1".into(), "1".into()));
        assert_eq!(warm(&one, &mut reader, read)[0][0], "1");
    }
}

#[test]
fn a_weir_that_does_not_follow_gives_nothing_out() {
    let Some(store) = Store::start(Kind::Memcached) else { return };
    let cluster = logical(0);
    let primary = cluster.primary();
    primary.query("create table t as select 0 as v").unwrap();
    let lame = format!("{}memqcache_publication = 'nobodys'\n", on(&store));
    let (well, lame) = (Proxy::start(&cluster, &on(&store)), Proxy::start(&cluster, &lame));
    let (mut reader, mut other, mut writer) = (client(&well), client(&lame), direct(primary));
    let read = "select v from t";
    for value in 1..=3 {
        warm(&well, &mut reader, read);
        writer.run(&format!("update t set v = {value}"));
        assert_eq!((other.value(read), reader.value(read)), (value.to_string(), value.to_string()));
        assert!(!is_hit(&lame, &mut other, read));
    }
    // A transaction that runs for long keeps one that comes now from following, and none that follows.
    let mut long = direct(primary);
    long.run("begin; create table long (a int)");
    let late = Proxy::start(&cluster, &on(&store));
    let mut third = client(&late);
    wait_until("the third to wait", || {
        assert!(!is_hit(&late, &mut third, read), "it does not know what changed before it follows");
        state(&mut third).contains("waiting for the transactions")
    });
    writer.run("update t set v = 10");
    assert_eq!(warm(&well, &mut reader, read)[0][0], "10");
    long.run("commit");
    assert_eq!(warm(&late, &mut third, read)[0][0], "10");
    writer.run("update t set v = 11");
    assert_eq!((third.value(read), reader.value(read)), ("11".into(), "11".into()));
}

#[test]
fn what_the_log_told_a_weir_that_could_not_reach_the_store_it_does_not_give_out_afterwards() {
    for kind in BOTH {
        let Some(store) = Store::start(kind) else { return };
        let cluster = logical(0);
        let primary = cluster.primary();
        primary.query("create table t as select 0 as v").unwrap();
        let network = Network::to(store.port.number());
        // Nobody else is there who would tell the store.
        let far = Proxy::start(&cluster, &over(&store, network.port()));
        let (mut reader, mut writer) = (client(&far), direct(primary));
        let read = "select v from t";
        for value in 1..=3 {
            warm(&far, &mut reader, read);
            network.stall_all();
            writer.run(&format!("update t set v = {value}"));
            assert_eq!(reader.value(read), value.to_string(), "while the store cannot be reached");
            network.cut();
            network.go_on();
            assert_eq!(warm(&far, &mut reader, read)[0][0], value.to_string(), "when it is back");
        }
    }
}

#[test]
fn what_one_weir_kept_another_gives_out_and_one_that_comes_later_does_not() {
    for kind in BOTH {
        let Some(store) = Store::start(kind) else { return };
        let cluster = logical(0);
        let primary = cluster.primary();
        primary.query("create table t as select 0 as v").unwrap();
        primary.query("create view w as select v from t").unwrap();
        let conf = format!("{}worker_threads = 1\n", on(&store));
        let (one, other) = (Proxy::start(&cluster, &conf), Proxy::start(&cluster, &conf));
        let (mut reader, mut second) = (client(&one), client(&other));
        let read = "select v from w";
        warm(&other, &mut second, "select v + 1 from t");
        warm(&one, &mut reader, read);
        let stored = other.metric("cache_stored_total");
        assert_eq!(warm(&other, &mut second, read)[0][0], "0");
        assert_eq!(other.metric("cache_stored_total"), stored, "it was the other's");
        // The results in the store are older than this Weir's stream.
        primary.query("create or replace view w as select v + 5 as v from t").unwrap();
        let late = Proxy::start(&cluster, &conf);
        let mut third = client(&late);
        (0..10).for_each(|_| assert_eq!(third.value(read), "5"));
        assert_eq!(warm(&late, &mut third, read)[0][0], "5");
    }
}

#[test]
fn a_store_that_gives_what_it_had_before_a_write_gives_no_old_answer() {
    let Some(store) = Store::start(Kind::Redis) else { return };
    let cluster = logical(0);
    let primary = cluster.primary();
    primary.query("create table t as select 0 as v").unwrap();
    let (one, other) = (Proxy::start(&cluster, &on(&store)), Proxy::start(&cluster, &on(&store)));
    let (mut reader, mut second, mut writer) = (client(&one), client(&other), direct(primary));
    let (read, namespace) = ("select v from t", format!("test_{}", store.port.number()));
    warm(&one, &mut reader, read);
    warm(&other, &mut second, read);
    let all = |pattern: &str, act: &str| {
        let text = format!("for _, key in ipairs(redis.call('KEYS', '{pattern}')) do {act} end return 'OK'");
        assert!(store.say(&format!("EVAL \"{text}\" 0\r\n")).contains("OK"));
    };
    all(&format!("{namespace}:*"), "redis.call('COPY', key, 'then:' .. key, 'REPLACE')");
    for value in 1..=3 {
        writer.run(&format!("update t set v = {value}"));
        warm(&one, &mut reader, read);
        all("then:*", "redis.call('COPY', key, string.sub(key, 6), 'REPLACE')");
        assert_eq!((reader.value(read), second.value(read)), (value.to_string(), value.to_string()));
    }
    assert_eq!(warm(&other, &mut second, read)[0][0], "3");
}

#[test]
fn what_was_kept_before_a_promotion_is_not_given_out_after_it() {
    let Some(store) = Store::start(Kind::Redis) else { return };
    let cluster = logical(1);
    cluster.primary().query("create table t as select 0 as v").unwrap();
    cluster.wait_caught_up().unwrap();
    let weirs = [Proxy::start(&cluster, &on(&store)), Proxy::start(&cluster, &on(&store))];
    let mut readers = weirs.each_ref().map(client);
    let read = "select v from t";
    weirs.iter().zip(&mut readers).for_each(|(weir, reader)| drop(warm(weir, reader, read)));
    cluster.primary().stop(weir_demo::Mode::Immediate).unwrap();
    let standby = &cluster.standbys()[0];
    standby.promote().unwrap();
    let mut writer = direct(standby);
    writer.run("update t set v = 1");
    for reader in &mut readers {
        wait_until("the proxy to have found the primary", || {
            show(reader, "pool_cache_wal", "node_id") == ["1"] && reader.try_rows(read).is_ok()
        });
        assert_eq!(reader.value(read), "1");
    }
    for value in 2..=5 {
        weirs.iter().zip(&mut readers).for_each(|(weir, reader)| drop(warm(weir, reader, read)));
        writer.run(&format!("update t set v = {value}"));
        readers.iter_mut().for_each(|reader| assert_eq!(reader.value(read), value.to_string()));
    }
}

#[test]
fn writers_do_not_wait_for_a_store_that_hangs() {
    let Some(store) = Store::start(Kind::Redis) else { return };
    let cluster = logical(0);
    cluster.primary().query("create table t as select 0 as v").unwrap();
    let network = Network::to(store.port.number());
    let (near, far) = (Proxy::start(&cluster, &on(&store)), Proxy::start(&cluster, &over(&store, network.port())));
    let (mut reader, mut writer) = (client(&near), client(&far));
    let read = "select v from t";
    warm(&near, &mut reader, read);
    network.stall_all();
    for value in 1..=5 {
        run_soon(&mut writer, &format!("update t set v = {value}"));
        assert_eq!(reader.value(read), value.to_string(), "no Weir told the other, and the log did");
        assert_eq!(warm(&near, &mut reader, read)[0][0], value.to_string());
    }
    network.go_on();
}

/// A read of a table that nobody writes to.
const STILL: &str = "select count(*) from still";

/// Has the store hang until a Weir misses it: a session with a question under way notices.
fn hang(store: &Store, proxies: [&Proxy; 2]) {
    let mut clients = proxies.map(Proxy::console);
    proxies.iter().zip(&mut clients).for_each(|(proxy, client)| drop(warm(proxy, client, STILL)));
    let lost = || proxies.iter().map(|proxy| proxy.metric("cache_stores_lost_total")).sum::<u64>();
    let before = lost();
    store.signal(Signal::STOP);
    wait_until("the store to be missed", || {
        clients.iter_mut().for_each(|client| drop(client.rows(STILL)));
        lost() > before
    });
    store.signal(Signal::CONT);
}

#[test]
fn no_history_with_writers_past_two_weirs_shows_a_value_the_primary_would_not_have_shown() {
    // Settings of each case, and true if the log is followed.
    let all = ("", true);
    let log_alone = ("memqcache_auto_cache_invalidation = off\n", true);
    let without = ("memqcache_invalidation = proxy\n", false);
    for (kind, runs) in [(Kind::Memcached, &[all, without][..]), (Kind::Redis, &[log_alone])] {
        let Some(store) = Store::start(kind) else { return };
        let store = Mutex::new(store);
        let cluster = logical(0);
        let primary = cluster.primary();
        (0..REGISTERS).for_each(|at| drop(primary.query(&register(at)).unwrap()));
        primary.query("create table still (a int)").unwrap();
        let kill = "select pg_terminate_backend(pid) from pg_stat_replication where application_name = 'weir_cache'";
        let run = |more: &str, is_followed: bool| {
            // The store ended with the thread that had started it.
            let restart = || {
                let mut store = store.lock().unwrap();
                store.kill();
                store.start_again();
            };
            restart();
            let conf = format!("{}{more}", on(&store.lock().unwrap()));
            let (one, other) = (Proxy::start(&cluster, &conf), Proxy::start(&cluster, &conf));
            let follow = || {
                for proxy in [&one, &other] {
                    wait_until("the log to be followed", || state(&mut proxy.console()) == "following");
                }
            };
            // Streams are cut, the store forgets all, hangs, and is started again.
            let disturb = |value: i64| match value % 12 {
                2 => drop(primary.query(kill).unwrap()),
                5 => store.lock().unwrap().flush(),
                7 => hang(&store.lock().unwrap(), [&one, &other]),
                9 => restart(),
                4 | 11 if is_followed => follow(),
                _ => {}
            };
            let before = Mutex::new(0);
            let settle = || {
                let names = (0..REGISTERS).map(|at| format!("r{at}")).chain(["o".into(), "l".into()]);
                let texts: Vec<String> = names.map(|name| format!("select v from {name}")).collect();
                for proxy in [&one, &other] {
                    let mut client = client(proxy);
                    texts.iter().for_each(|text| drop(warm(proxy, &mut client, text)));
                }
                *before.lock().unwrap() = hits(&one) + hits(&other);
            };
            let wrong = history(&Story {
                writers: [Box::new(|| one.console()), Box::new(|| direct(primary)), Box::new(|| direct(primary))],
                readers: vec![Box::new(|| one.console()), Box::new(|| other.console())],
                settle: Box::new(settle),
                disturb: Box::new(disturb),
            });
            (wrong, hits(&one) + hits(&other) - before.into_inner().unwrap())
        };
        for (more, is_followed) in runs {
            let (wrong, hits) = run(more, *is_followed);
            if *is_followed {
                assert!(wrong.is_empty(), "{} of them, the first: {}", wrong.len(), wrong[0]);
                assert!(hits > 0);
            } else {
                assert!(!wrong.is_empty(), "without the log nothing is found wrong: this test finds nothing");
            }
        }
    }
}
