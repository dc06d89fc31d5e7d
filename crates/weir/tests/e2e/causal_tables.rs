//! `causal_reads = tables`: a read on a connection shows what was acknowledged on any other before, to the relations that it reads.

use super::cache::{OBJECTS, WRITES};
use super::cache_wal;
use crate::support::ground::{Owned, cluster, wait_for_catalog};
use crate::support::proxy::show;
use crate::support::{Proxy, Raw, wait_until, wire};

/// The port of the server that answers.
const PORT: &str = "select inet_server_port()";

/// Two standbys that have all there is, and replay no more until they are told to.
fn paused(objects: &[&str]) -> Owned {
    let cluster = cluster(2);
    objects.iter().for_each(|text| drop(cluster.primary().query(text).unwrap()));
    cluster.primary().query("create table quiet as select 1 as a").unwrap();
    cluster.wait_caught_up().unwrap();
    cluster.standbys().iter().for_each(|standby| standby.pause_replay().unwrap());
    cluster
}

/// A client that has seen nothing yet, once reads go where they may.
fn fresh(proxy: &Proxy) -> Raw {
    let mut client = proxy.console();
    wait_for_catalog(&mut client, "postgres");
    client
}

/// The port of the server where a client that has seen nothing reads a table.
fn port_of(proxy: &Proxy, from: &str) -> String {
    fresh(proxy).value(&format!("{PORT} from {from} limit 1"))
}

fn wait_for_standbys(cluster: &Owned, proxy: &Proxy) {
    let primary = cluster.primary().port().to_string();
    wait_until("reads to go to a standby", || port_of(proxy, "quiet") != primary);
}

/// How a reader asks.
#[derive(Clone, Copy, Debug)]
enum Way {
    Simple,
    Extended,
    /// Two statements up to one Sync, of which the second is meant.
    Pipeline,
    /// Behind another statement of one message.
    Many,
    /// In a transaction with one snapshot that began with something else.
    Snapshot,
    /// In a transaction that only reads.
    ReadOnly,
}

fn read_by(way: Way, client: &mut Raw, text: &str) -> String {
    match way {
        Way::Simple => client.value(text),
        Way::Extended => client.extended(text, &[]).unwrap(),
        Way::Pipeline => {
            client.send(&[wire::unnamed("select a from quiet", &[]), wire::unnamed(text, &[]), wire::sync()].concat());
            let said = client.until_ready();
            // The first one has one row.
            let row = said.iter().filter(|message| message.tag == b'D').nth(1).unwrap_or_else(|| panic!("{said:?}"));
            row.row()[0].clone().unwrap()
        }
        Way::Many => client.rows(&format!("select a from quiet; {text}"))[1][0].clone(),
        Way::Snapshot | Way::ReadOnly => {
            client.run(match way {
                Way::Snapshot => "begin isolation level repeatable read read only",
                _ => "begin read only",
            });
            client.value("select a from quiet");
            let value = client.value(text);
            client.run("commit");
            value
        }
    }
}

const WAYS: [Way; 6] = [Way::Simple, Way::Extended, Way::Pipeline, Way::Many, Way::Snapshot, Way::ReadOnly];

#[test]
fn each_kind_of_write_is_shown_to_whoever_reads_next_while_no_standby_replays() {
    for more in ["", "memory_cache_enabled = on"] {
        let cluster = paused(&[OBJECTS]);
        let proxy = Proxy::start(&cluster, &format!("causal_wait = 1ms\npool_size = 4\nworker_threads = 2\n{more}"));
        let mut direct = Raw::tcp(cluster.primary().port()).log_in("postgres", "postgres", &[]).unwrap();
        wait_for_standbys(&cluster, &proxy);
        for (read, write) in WRITES {
            fresh(&proxy).run(write);
            let expected = direct.rows(read);
            for way in WAYS {
                assert_eq!(read_by(way, &mut fresh(&proxy), read), expected[0][0], "{read} after {write}, {way:?}, {more}");
            }
        }
    }
}

#[test]
fn writes_by_several_messages_are_shown_and_other_tables_stay_where_they_are() {
    let cluster = paused(cache_wal::OBJECTS);
    let proxy = Proxy::start(&cluster, "causal_wait = 1ms\nworker_threads = 2");
    let mut direct = Raw::tcp(cluster.primary().port()).log_in("postgres", "postgres", &[]).unwrap();
    wait_for_standbys(&cluster, &proxy);
    let mut quiet_elsewhere = 0;
    for (read, writes) in cache_wal::WRITES {
        let mut writer = fresh(&proxy);
        writes.iter().for_each(|text| writer.run(text));
        for way in WAYS {
            assert_eq!(read_by(way, &mut fresh(&proxy), read), direct.value(read), "{read} after {writes:?}, {way:?}");
        }
        // A DO may have written anything.
        let is_told = !writes.iter().any(|text| text.starts_with("do "));
        let is_on_primary = port_of(&proxy, "quiet") == cluster.primary().port().to_string();
        quiet_elsewhere += usize::from(!is_on_primary);
        assert!(!is_on_primary || !is_told || quiet_elsewhere >= 6, "{writes:?} concerns no reader of another table");
    }
    assert!(quiet_elsewhere >= 6);
}

#[test]
fn a_function_that_reads_shows_what_was_written_to_any_table() {
    let cluster = paused(&[
        "create table t (a int)",
        "create function counted() returns bigint language sql stable as 'select count(*) from t'",
        "create view counting as select counted() as n",
    ]);
    let proxy = Proxy::start(&cluster, "causal_wait = 1ms");
    wait_for_standbys(&cluster, &proxy);
    for count in 1..=3 {
        fresh(&proxy).run("insert into t values (1)");
        for text in ["select counted()", "select n from counting", "select a * 0 + counted() from quiet"] {
            assert_eq!(fresh(&proxy).value(text), count.to_string(), "{text}");
        }
        assert_ne!(port_of(&proxy, "quiet"), cluster.primary().port().to_string());
    }
}

#[test]
fn two_phases_and_pipelines_count_when_they_are_acknowledged() {
    let cluster = cluster(1);
    let primary = cluster.primary();
    primary.query("create table t (a int)").unwrap();
    primary.query("create table quiet as select 1 as a").unwrap();
    cluster.wait_caught_up().unwrap();
    cluster.standbys()[0].pause_replay().unwrap();
    let proxy = Proxy::start(&cluster, "causal_wait = 1ms");
    wait_for_standbys(&cluster, &proxy);
    let count = |proxy: &Proxy| fresh(proxy).value("select count(*) from t");
    let mut writer = fresh(&proxy);
    ["begin", "insert into t values (1)", "prepare transaction 'one'"].iter().for_each(|text| writer.run(text));
    assert_eq!(count(&proxy), "0");
    fresh(&proxy).run("commit prepared 'one'");
    assert_eq!(count(&proxy), "1");
    // The first of two is acknowledged while the second one runs.
    let mut holder = Raw::tcp(primary.port()).log_in("postgres", "postgres", &[]).unwrap();
    ["begin", "lock table quiet"].iter().for_each(|text| holder.run(text));
    let mut writer = fresh(&proxy);
    let second = wire::unnamed("update quiet set a = 2", &[]);
    writer.send(&[wire::unnamed("insert into t values (2)", &[]), wire::sync(), second, wire::sync()].concat());
    writer.until_ready();
    assert_eq!(count(&proxy), "2");
    holder.run("rollback");
    writer.until_ready();
    // A COMMIT that is told before its pipeline is over.
    ["begin", "lock table quiet"].iter().for_each(|text| holder.run(text));
    let mut writer = fresh(&proxy);
    let parts = ["begin", "insert into t values (3)", "commit"].map(|text| wire::unnamed(text, &[]));
    writer.send(&[parts.concat(), wire::flush()].concat());
    while writer.read().body != b"COMMIT\0" {}
    assert_eq!(count(&proxy), "3");
    writer.send(&wire::sync());
    writer.until_ready();
    holder.run("rollback");
}

/// Rows that the primary shows.
fn truth(cluster: &Owned) -> String {
    cluster.primary().value("select count(*) from t").unwrap()
}

#[test]
fn what_commits_between_rollbacks_of_one_pipeline_counts() {
    for more in ["", "memory_cache_enabled = on"] {
        let cluster = paused(&["create table t (a int)"]);
        let proxy = Proxy::start(&cluster, &format!("causal_wait = 1ms\n{more}"));
        wait_for_standbys(&cluster, &proxy);
        const INSERT: &str = "insert into t values (1)";
        let mut commits = 0;
        for texts in [
            &["begin", INSERT, "rollback", INSERT, "rollback"][..],
            &[INSERT, "begin", INSERT, "rollback"],
            &["begin", INSERT, "commit", "begin", INSERT, "rollback"],
            &["begin", "rollback", INSERT, "begin", INSERT, "rollback and chain", INSERT, "commit"],
        ] {
            // Behind each its own Sync, or all before one: then a ROLLBACK also takes back what stands before it without a BEGIN.
            for is_synced in [true, false] {
                let (mut writer, before) = (fresh(&proxy), truth(&cluster));
                let ends = if is_synced { wire::sync() } else { Vec::new() };
                let parts = texts.iter().map(|text| [wire::unnamed(text, &[]), ends.clone()].concat()).collect::<Vec<_>>();
                writer.send(&[parts.concat(), wire::sync()].concat());
                (0..if is_synced { texts.len() + 1 } else { 1 }).for_each(|_| drop(writer.until_ready()));
                let found = fresh(&proxy).value("select count(*) from t");
                assert_eq!(found, truth(&cluster), "{texts:?}, a Sync behind each: {is_synced}, {more}");
                commits += usize::from(found != before);
            }
        }
        assert!(commits >= 6, "{commits} of 8 pipelines have committed something");
    }
}

#[test]
fn a_transaction_that_stays_on_a_standby_shows_what_was_committed_meanwhile() {
    const CACHE: &str = "\nmemory_cache_enabled = on\nworker_threads = 2\npool_size = 4";
    for (mode, more) in [("tables", ""), ("global", ""), ("tables", CACHE), ("global", CACHE)] {
        let cluster = cluster(1);
        cluster.primary().query("create table t (a int); create table quiet as select 1 as a").unwrap();
        cluster.wait_caught_up().unwrap();
        let proxy = Proxy::start(&cluster, &format!("causal_reads = {mode}\ncausal_wait = 20ms{more}"));
        wait_for_standbys(&cluster, &proxy);
        let [standby] = cluster.standbys() else { panic!("one standby") };
        const COUNT: &str = "select count(*) from t";
        // Its first statement needs the transaction, so that all of it stays where that one ran.
        let begun = |begin: &str, first: &str| {
            let mut client = fresh(&proxy);
            wait_until("the transaction to begin on the standby", || {
                client.run("rollback");
                client.run(begin);
                client.run(first);
                client.value(PORT) == standby.port().to_string()
            });
            client
        };
        const NOW: &str = "select now()";
        let (mut renewed, mut late) = (begun("begin read only", NOW), begun("begin read only", NOW));
        let mut fixed = begun("begin isolation level repeatable read, read only", COUNT);
        let mut cursor = begun("begin read only", "declare c cursor for table t");
        let mut writer = fresh(&proxy);
        for rows in 1..=20 {
            writer.run("insert into t values (1)");
            assert_eq!(renewed.value(COUNT), rows.to_string(), "{mode}");
        }
        assert_eq!(renewed.value(PORT), standby.port().to_string());
        standby.pause_replay().unwrap();
        writer.run("insert into t values (1)");
        assert_eq!((fixed.value(COUNT), fixed.value(PORT)), ("0".into(), standby.port().to_string()), "one snapshot");
        assert!(cursor.rows("fetch all from c").is_empty(), "a cursor has the snapshot of its declaration");
        assert_eq!(late.error(COUNT).sqlstate, "40001", "{mode}");
        late.run("rollback");
        ["begin read only", NOW].iter().for_each(|text| late.run(text));
        assert_eq!(late.value(COUNT), "21", "it runs again, and begins on the primary");
    }
}

#[test]
fn reads_that_had_to_wait_are_counted_by_relation() {
    let cluster = paused(&["create table t (a int)"]);
    let proxy = Proxy::start(&cluster, "causal_wait = 1ms");
    wait_for_standbys(&cluster, &proxy);
    fresh(&proxy).run("insert into t values (1)");
    for _ in 0..3 {
        assert_eq!(fresh(&proxy).value("select count(*) from t"), "1");
    }
    let rows = fresh(&proxy).rows("show pool_causal");
    let of_t = rows.iter().find(|row| row[1] == "t").unwrap_or_else(|| panic!("{rows:?}"));
    assert_eq!((&*of_t[0], of_t[5].parse::<u64>().unwrap()), ("public", 3), "{rows:?}");
    assert!(rows.iter().all(|row| row[1] != "quiet"), "{rows:?}");
}

/// Two proxies that follow the log, and read on the standby what does not change.
fn followers(cluster: &Owned, more: &str) -> [Proxy; 2] {
    let on = format!("causal_wait = 1ms\nmemqcache_invalidation = wal\n{more}");
    let proxies = [(); 2].map(|()| Proxy::start(cluster, &on));
    for proxy in &proxies {
        // The first read has the log followed.
        wait_until("the log to be followed", || {
            port_of(proxy, "quiet");
            show(&mut fresh(proxy), "pool_cache_wal", "state") == ["following"]
        });
        wait_until("reads to go to a standby again", || port_of(proxy, "quiet") != cluster.primary().port().to_string());
    }
    proxies
}

#[test]
fn each_kind_of_write_past_weir_or_through_another_counts_when_the_log_tells_of_it() {
    // No log tells of the rows of a materialised view.
    let is_told = |(_, write): &&(&str, &str)| !write.contains("refresh materialized view");
    let of_one: Vec<(&str, Vec<&str>)> = WRITES.iter().filter(is_told).map(|(read, write)| (*read, vec![*write])).collect();
    let of_several: Vec<(&str, Vec<&str>)> = cache_wal::WRITES.iter().map(|(read, writes)| (*read, writes.to_vec())).collect();
    for (objects, kinds, more) in
        [(&[OBJECTS][..], of_one, ""), (cache_wal::OBJECTS, of_several, "memory_cache_enabled = on\nworker_threads = 2")]
    {
        let cluster = cache_wal::logical(1);
        let primary = cluster.primary();
        objects.iter().for_each(|text| drop(primary.query(text).unwrap()));
        primary.query("create table quiet as select 1 as a").unwrap();
        let [one, other] = followers(&cluster, more);
        cluster.wait_caught_up().unwrap();
        cluster.standbys()[0].pause_replay().unwrap();
        let past = || Raw::tcp(primary.port()).log_in("postgres", "postgres", &[]).unwrap();
        let mut direct = past();
        for (at, (read, writes)) in kinds.iter().enumerate() {
            let mut writer = if at % 2 == 0 { fresh(&other) } else { past() };
            writes.iter().for_each(|text| writer.run(text));
            let expected = direct.value(read);
            wait_until("the log to tell of it", || fresh(&one).value(read) == expected);
            for way in WAYS {
                assert_eq!(read_by(way, &mut fresh(&one), read), expected, "{read} after {writes:?}, {way:?}, {more}");
            }
        }
    }
}

#[test]
fn a_write_past_weir_or_through_another_counts_when_the_log_tells_of_it() {
    for more in ["", "memory_cache_enabled = on"] {
        let cluster = cache_wal::logical(1);
        let primary = cluster.primary();
        for text in ["create table t (a int)", "create table past (a int)", "create table quiet as select 1 as a"] {
            primary.query(text).unwrap();
        }
        cluster.wait_caught_up().unwrap();
        cluster.standbys()[0].pause_replay().unwrap();
        let [one, other] = followers(&cluster, more);
        for (table, count) in [("t", 1), ("t", 2), ("past", 1), ("past", 2)] {
            let write = format!("insert into {table} values (1)");
            match table {
                "past" => drop(primary.query(&write).unwrap()),
                _ => fresh(&other).run(&write),
            }
            let read = format!("select count(*) from {table}");
            wait_until("the log to tell of it", || fresh(&one).value(&read) == count.to_string());
            assert_eq!(fresh(&one).value(&read), count.to_string(), "it stays so");
            assert_ne!(port_of(&one, "quiet"), primary.port().to_string(), "no other table is meant");
        }
    }
}

/// A relation's round outlives its primary, and any position of the next one covers it.
#[test]
fn a_commit_that_a_promotion_loses_keeps_no_reader_waiting() {
    let cluster = cluster(2);
    let [first, second] = cluster.standbys() else { panic!("two standbys") };
    cluster.primary().query("create table t (a int); create table quiet as select 1 as a").unwrap();
    cluster.wait_caught_up().unwrap();
    let proxy = Proxy::start(&cluster, "causal_wait = 1ms");
    wait_for_standbys(&cluster, &proxy);
    for standby in cluster.standbys() {
        standby.query("alter system set primary_conninfo = ''").unwrap();
        standby.reload().unwrap();
        let streams = "select count(*) from pg_stat_wal_receiver";
        wait_until("a standby to stream no more", || standby.value(streams).unwrap() == "0");
    }
    const COUNT: &str = "select count(*) from t";
    fresh(&proxy).run("insert into t values (1)");
    assert_eq!(fresh(&proxy).value(COUNT), "1");
    cluster.primary().kill9().unwrap();
    first.promote().unwrap();
    second.follow(first).unwrap();
    let second_port = second.port().to_string();
    wait_until("reads of the table to go to the other standby", || port_of(&proxy, "quiet left join t on true") == second_port);
    assert_eq!(fresh(&proxy).value(COUNT), "0");
    second.pause_replay().unwrap();
    fresh(&proxy).run("insert into t values (2)");
    assert_eq!(fresh(&proxy).value(COUNT), "1");
}

#[test]
fn who_hears_a_notification_reads_what_was_committed_with_it() {
    let cluster = paused(&["create table t (a int)"]);
    let proxy = Proxy::start(&cluster, "causal_wait = 1ms");
    wait_for_standbys(&cluster, &proxy);
    let mut listener = fresh(&proxy);
    listener.run("listen jobs");
    // Nobody tells Weir of these commits but the notification.
    let mut direct = Raw::tcp(cluster.primary().port()).log_in("postgres", "postgres", &[]).unwrap();
    for count in 1..=3 {
        direct.run("begin; insert into t values (1); notify jobs; commit");
        while listener.read().tag != b'A' {}
        assert_eq!(listener.value("select count(*) from t"), count.to_string());
    }
}
