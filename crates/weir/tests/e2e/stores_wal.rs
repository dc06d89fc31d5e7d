//! Writes past all Weirs make answers in a store untrue, by the primary's log.

use super::cache::{hits, is_hit, warm};
use super::cache_wal::{OBJECTS, ON, WRITES, client, direct, logical, slots};
use super::history::{REGISTERS, Story, history, register};
use super::stores::{BOTH, Kind, Store, a_moment};
use crate::support::faults::Network;
use crate::support::proxy::show;
use crate::support::{Proxy, Raw, wait_until};
use rustix::process::Signal;
use std::sync::Mutex;

/// Answers lie in this store, and show all that the primary had when they were asked for.
fn on(store: &Store) -> String {
    over(store, store.port.number())
}

/// The same by way of another port.
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
        // What was never asked for is young for a while: all at once.
        WRITES.iter().for_each(|(read, _)| drop((reader.rows(read), second.rows(read))));
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
fn a_weir_that_does_not_follow_gives_nothing_out_and_is_in_nobodys_way() {
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
        assert!(!is_hit(&late, &mut third, read));
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
fn who_cannot_reach_the_store_and_writes_nothing_is_in_nobodys_way() {
    let Some(store) = Store::start(Kind::Redis) else { return };
    let cluster = logical(0);
    let primary = cluster.primary();
    primary.query("create table t as select 0 as v").unwrap();
    let network = Network::to(store.port.number());
    let (near, far) = (Proxy::start(&cluster, &on(&store)), Proxy::start(&cluster, &over(&store, network.port())));
    let (mut reader, mut other, mut writer) = (client(&near), client(&far), direct(primary));
    let read = "select v from t";
    assert_eq!(warm(&near, &mut reader, read), warm(&far, &mut other, read));
    network.stall_all();
    for value in 1..=5 {
        writer.run(&format!("update t set v = {value}"));
        assert_eq!(other.value(read), value.to_string());
        assert_eq!(warm(&near, &mut reader, read)[0][0], value.to_string(), "the other gives answers out all the while");
    }
    network.go_on();
}

#[test]
fn no_history_with_writers_past_two_weirs_shows_a_value_the_primary_would_not_have_shown() {
    // What is set, and whether the log is followed.
    let all = ("", true);
    let log_alone = ("memqcache_auto_cache_invalidation = off\n", true);
    let without = ("memqcache_invalidation = proxy\n", false);
    for (kind, runs) in [(Kind::Memcached, &[all, without][..]), (Kind::Redis, &[log_alone])] {
        let Some(store) = Store::start(kind) else { return };
        let store = Mutex::new(store);
        let cluster = logical(0);
        let primary = cluster.primary();
        (0..REGISTERS).for_each(|at| drop(primary.query(&register(at)).unwrap()));
        let kill = "select pg_terminate_backend(pid) from pg_stat_replication where application_name = 'weir_cache'";
        let run = |more: &str, is_followed: bool| {
            // The Weirs of before were killed, and may have left marks; the store ended with the thread that had started it.
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
                7 => {
                    let store = store.lock().unwrap();
                    store.signal(Signal::STOP);
                    a_moment();
                    store.signal(Signal::CONT);
                }
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
