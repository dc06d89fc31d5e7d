//! Writes past Weir invalidate results, by the primary's log.

use super::cache::{hits, is_hit, warm};
use super::history::{REGISTERS, Story, history, register};
use crate::support::ground::{Owned, cluster_with, wait_for_catalog};
use crate::support::proxy::show;
use crate::support::time::check_within;
use crate::support::{Proxy, Raw, wait_until};
use weir_demo::{Options, Server, WalLevel};

/// Reads from memory must show all that the primary had at that time.
pub(super) const ON: &str =
    "memory_cache_enabled = on\nmemqcache_invalidation = wal\nmemqcache_freshness = primary\nmemqcache_lag_max = 1min";

pub(super) fn logical(standbys: usize) -> Owned {
    cluster_with(Options { standbys, wal_level: WalLevel::Logical, ..Options::default() })
}

pub(super) fn direct(server: &Server) -> Raw {
    Raw::tcp(server.port()).log_in("postgres", "postgres", &[]).unwrap_or_else(|failure| panic!("cannot log in: {failure:?}"))
}

pub(super) fn client(proxy: &Proxy) -> Raw {
    let mut client = proxy.console();
    wait_for_catalog(&mut client, "postgres");
    client
}

pub(super) fn slots(server: &Server) -> String {
    server.value("select count(*) from pg_replication_slots").unwrap()
}

pub(super) const OBJECTS: &[&str] = &[
    "create table t (a int primary key, b text)",
    "insert into t values (1, 'one'), (2, 'two')",
    "create table \"Odd. \"\"name\" (a int)",
    "create table parent (a int) partition by list (a)",
    "create table part partition of parent for values in (1, 2, 3)",
    "create table base (a int)",
    "create table child () inherits (base)",
    "create table owner (a int primary key)",
    "create table owned (a int references owner on delete cascade, b int primary key)",
    "insert into owner values (1), (2)",
    "insert into owned values (1, 10), (2, 20)",
    "create table watched (a int)",
    "create table noted (a int)",
    "create function note() returns trigger language plpgsql as 'begin insert into noted values (new.a); return new; end'",
    "create trigger n after insert on watched for each row execute function note()",
    "create table wide as select 1 as a, repeat('x', 100000) as b",
    "create view v as select a from t",
];

/// Reads from memory, each with writes that change its result.
pub(super) const WRITES: &[(&str, &[&str])] = &[
    ("select count(*) from t", &["insert into t values (3, 'three')"]),
    ("select b from t where a = 1", &["update t set b = 'uno' where a = 1"]),
    ("select count(*) from t", &["delete from t where a = 3"]),
    ("select count(*) from v", &["insert into t values (6, 'six')"]),
    (
        "select count(*) from t",
        &["begin", "insert into t values (4, 'four')", "savepoint s", "delete from t where a = 6", "rollback to s", "commit"],
    ),
    ("select count(*) from t", &["copy t from program 'echo 7,seven' (format csv)"]),
    ("select count(*) from t", &["do 'begin insert into t values (8, null); end'"]),
    ("select count(*) from \"Odd. \"\"name\"", &["insert into \"Odd. \"\"name\" values (1)"]),
    ("select count(*) from parent", &["insert into part values (1)"]),
    ("select count(*) from part", &["insert into parent values (2)"]),
    ("select count(*) from base", &["insert into child values (1)"]),
    ("select count(*) from owned", &["delete from owner where a = 1"]),
    ("select count(*) from noted", &["insert into watched values (1)"]),
    ("select length(b) from wide", &["update wide set b = b || b"]),
    ("select count(*) from owned", &["truncate owner cascade"]),
    ("select count(*) from parent", &["truncate parent"]),
    ("select count(*) from t", &["truncate t, base"]),
];

fn check_writes(cluster: &Owned, more: &str) -> Proxy {
    let proxy = Proxy::start(cluster, &format!("{ON}\n{more}"));
    let (mut reader, mut writer) = (client(&proxy), direct(cluster.primary()));
    for (read, write) in WRITES {
        let before = warm(&proxy, &mut reader, read);
        assert_eq!(before, writer.rows(read), "{read}");
        write.iter().for_each(|text| writer.run(text));
        let (after, expected) = (reader.rows(read), writer.rows(read));
        assert_eq!(after, expected, "{read} after {write:?}");
        assert_ne!(before, expected, "{write:?} does not change {read}");
    }
    proxy
}

#[test]
fn no_write_past_weir_leaves_an_answer_behind_that_is_not_true() {
    let cluster = logical(0);
    OBJECTS.iter().for_each(|text| drop(cluster.primary().query(text).unwrap()));
    let mut proxy = check_writes(&cluster, "");
    let mut reader = client(&proxy);
    assert_eq!(show(&mut reader, "pool_cache_wal", "plugin"), ["test_decoding"]);
    assert_eq!(show(&mut reader, "pool_cache_wal", "state"), ["following"]);
    assert_eq!(slots(cluster.primary()), "1");
    proxy.signal(rustix::process::Signal::TERM);
    drop(reader);
    proxy.wait_end();
    wait_until("the slot to go", || slots(cluster.primary()) == "0");
}

#[test]
fn a_session_that_reads_on_the_primary_has_answers_from_memory_soon_after_its_own_writes() {
    const WRITES: usize = 10;
    const READS: usize = 100;
    /// Least hits among the reads behind most writes: on a busy machine the stream may come late for some.
    const HITS_MIN: u64 = 90;
    let cluster = logical(0);
    cluster.primary().query("create table t (a int)").unwrap();
    let proxy = Proxy::start(&cluster, "memory_cache_enabled = on\nmemqcache_invalidation = wal\ncausal_wait = 2s");
    let mut session = client(&proxy);
    let read = "select count(*) from t";
    warm(&proxy, &mut session, read);
    let mut found = Vec::new();
    for count in 1..=WRITES {
        let before = hits(&proxy);
        session.run("insert into t values (1)");
        for _ in 0..READS {
            assert_eq!(session.value(read), count.to_string());
        }
        found.push(hits(&proxy) - before);
    }
    found.sort_unstable();
    assert!(found[WRITES / 2] >= HITS_MIN, "{found:?} of {READS} reads each behind own writes came from memory");
}

#[test]
fn a_publication_tells_the_same() {
    let cluster = logical(0);
    OBJECTS.iter().for_each(|text| drop(cluster.primary().query(text).unwrap()));
    let publication = "memqcache_publication = 'all_of_it'";
    {
        let proxy = Proxy::start(&cluster, &format!("{ON}\n{publication}"));
        let mut reader = client(&proxy);
        let read = "select count(*) from v";
        for (made, said) in [
            ("create publication other", "there is no publication \"all_of_it\" in it; a superuser must run CREATE PUBLICATION"),
            ("create publication all_of_it for table t", "must be FOR ALL TABLES"),
            (
                "drop publication all_of_it; create publication all_of_it for all tables with (publish_via_partition_root = true)",
                "publish_via_partition_root = false",
            ),
        ] {
            cluster.primary().query(made).unwrap();
            wait_until("the log to say so", || {
                assert!(!is_hit(&proxy, &mut reader, read));
                show(&mut reader, "pool_cache_wal", "error").iter().any(|error| error.contains(said))
            });
            assert!(proxy.log().contains(said));
        }
    }
    cluster.primary().query("drop publication all_of_it; create publication all_of_it for all tables").unwrap();
    // PostgreSQL then demands this of tables that are written.
    for table in ["\"Odd. \"\"name\"", "parent", "part", "base", "child", "owned", "watched", "noted", "wide"] {
        cluster.primary().query(&format!("alter table {table} replica identity full")).unwrap();
    }
    let proxy = check_writes(&cluster, publication);
    assert_eq!(show(&mut client(&proxy), "pool_cache_wal", "plugin"), ["pgoutput"]);
}

#[test]
fn a_commit_that_stands_in_the_log_before_it_is_visible_leaves_no_old_answer() {
    let cluster = logical(0);
    let primary = cluster.primary();
    primary.query("create table t as select 0 as v").unwrap();
    let proxy = Proxy::start(&cluster, ON);
    let mut reader = client(&proxy);
    let read = "select v from t";
    for value in 1..=3 {
        assert_eq!(warm(&proxy, &mut reader, read)[0][0], (value - 1).to_string());
        // The commit waits for a standby that is not there, while its change is told already.
        primary.query("alter system set synchronous_standby_names = 'nobody'").unwrap();
        primary.reload().unwrap();
        wait_until("the server to wait for standbys", || primary.value("show synchronous_standby_names").unwrap() == "nobody");
        let mut writer = direct(primary);
        // The checkpointer decides if commits wait: it takes the names in before it makes the checkpoint.
        primary.query("checkpoint").unwrap();
        let waiting = std::thread::spawn(move || writer.run(&format!("update t set v = {value}")));
        wait_until("its change to be told", || show(&mut reader, "pool_cache_wal", "pending") == ["1"]);
        for _ in 0..20 {
            assert_eq!(reader.value(read), (value - 1).to_string(), "others do not see it yet");
            assert!(!is_hit(&proxy, &mut reader, read), "an answer of before was stored after the change had been applied");
        }
        primary.query("alter system reset synchronous_standby_names").unwrap();
        primary.reload().unwrap();
        waiting.join().unwrap();
        assert_eq!(reader.value(read), value.to_string());
    }
    assert_eq!(warm(&proxy, &mut reader, read)[0][0], "3");
}

#[test]
fn without_a_stream_nothing_is_answered_from_memory_and_it_comes_again() {
    let cluster = logical(0);
    let primary = cluster.primary();
    primary.query("create table t as select 0 as v").unwrap();
    let proxy = Proxy::start(&cluster, ON);
    let (mut reader, mut writer) = (client(&proxy), direct(primary));
    let read = "select v from t";
    warm(&proxy, &mut reader, read);
    for value in 1..=3 {
        writer.run("select pg_terminate_backend(pid) from pg_stat_replication where application_name = 'weir_cache'");
        writer.run(&format!("update t set v = {value}"));
        assert_eq!(reader.value(read), value.to_string());
        assert_eq!(warm(&proxy, &mut reader, read)[0][0], value.to_string());
        let breaks: u64 = show(&mut reader, "pool_cache_wal", "breaks")[0].parse().unwrap();
        assert!(breaks >= value, "{breaks}");
    }
    assert!(proxy.log().contains("is not followed, so that nothing of it is answered from memory"), "{}", proxy.log());
    wait_until("the log to say that it goes on", || proxy.log().contains("the log of database \"postgres\" is followed again"));
    // A transaction that runs at that time holds the begin of the stream up, and no answer is given meanwhile.
    writer.run("begin; update t set v = 9");
    writer.run("select pg_terminate_backend(pid) from pg_stat_replication where application_name = 'weir_cache'");
    wait_until("it to wait for the transaction", || {
        show(&mut reader, "pool_cache_wal", "state") == ["waiting for the transactions that run on the primary"]
    });
    for _ in 0..5 {
        assert!(!is_hit(&proxy, &mut reader, read));
    }
    writer.run("commit");
    assert_eq!(warm(&proxy, &mut reader, read)[0][0], "9");
}

#[test]
fn without_the_means_nothing_is_kept_and_the_log_says_what_to_do() {
    let cluster = crate::support::ground::cluster(0);
    let primary = cluster.primary();
    primary.query("create table t as select 0 as v").unwrap();
    primary.query("create role plain login").unwrap();
    let check = |more: &str, said: &str| {
        let proxy = Proxy::start(&cluster, &format!("{ON}\n{more}"));
        let mut reader = client(&proxy);
        wait_until("the reason to be known", || {
            assert!(!is_hit(&proxy, &mut reader, "select v from t"));
            show(&mut reader, "pool_cache_wal", "error").iter().any(|error| error.contains(said))
        });
        assert!(proxy.log().contains(said), "{}", proxy.log());
    };
    check("", "it must be logical (ALTER SYSTEM SET wal_level = logical");
    check("sr_check_user = 'plain'", "user \"plain\" (sr_check_user) needs the attribute REPLICATION");
}

/// The stream would acknowledge commits that no standby has.
#[test]
fn where_all_who_stream_acknowledge_commits_nothing_is_followed() {
    let cluster = logical(0);
    let primary = cluster.primary();
    primary.query("create table t as select 0 as v").unwrap();
    primary.query("alter system set synchronous_standby_names = 'FIRST 1 (standby1, *)'").unwrap();
    primary.query("select pg_reload_conf()").unwrap();
    let proxy = Proxy::start(&cluster, ON);
    let mut reader = client(&proxy);
    wait_until("the reason to be known", || {
        assert!(!is_hit(&proxy, &mut reader, "select v from t"));
        let said = "synchronous_standby_names of node 0 names all who stream";
        show(&mut reader, "pool_cache_wal", "error").iter().any(|error| error.contains(said))
    });
    assert_eq!(primary.value("select count(*) from pg_stat_replication where state = 'streaming'").unwrap(), "0");
}

#[test]
fn a_stream_that_stands_still_makes_servers_answer() {
    let cluster = logical(0);
    let primary = cluster.primary();
    primary.query("create table t as select 0 as v").unwrap();
    let proxy = Proxy::start(&cluster, &format!("{ON}\ncausal_wait = 50ms"));
    let mut reader = client(&proxy);
    let read = "select v from t";
    let mut writer = direct(primary);
    warm(&proxy, &mut reader, read);
    let walsender = "select pid from pg_stat_replication where application_name = 'weir_cache'";
    let pid = primary.value(walsender).unwrap();
    let process = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    weir_demo::signal_process(process, rustix::process::Signal::STOP).unwrap();
    for value in 1..=5 {
        writer.run(&format!("update t set v = {value}"));
        assert_eq!(reader.value(read), value.to_string());
        assert!(!is_hit(&proxy, &mut reader, read), "nobody knows whether it is still true");
    }
    weir_demo::signal_process(process, rustix::process::Signal::CONT).unwrap();
    assert_eq!(warm(&proxy, &mut reader, read)[0][0], "5");
    let behind = proxy.metric("cache_behind_total");
    assert!(behind > 0);
}

#[test]
fn a_new_primary_is_followed_from_its_begin_on() {
    let cluster = logical(1);
    cluster.primary().query("create table t as select 0 as v").unwrap();
    cluster.wait_caught_up().unwrap();
    let proxy = Proxy::start(&cluster, ON);
    let mut reader = client(&proxy);
    let read = "select v from t";
    warm(&proxy, &mut reader, read);
    cluster.primary().stop(weir_demo::Mode::Immediate).unwrap();
    let standby = &cluster.standbys()[0];
    standby.promote().unwrap();
    let mut writer = direct(standby);
    for value in 1..=5 {
        writer.run(&format!("update t set v = {value}"));
        wait_until("the proxy to have found the primary", || {
            reader.try_rows(read).is_ok_and(|rows| rows[0][0] == Some(value.to_string()))
        });
        assert_eq!(warm(&proxy, &mut reader, read)[0][0], value.to_string());
    }
    assert_eq!(show(&mut reader, "pool_cache_wal", "node_id"), ["1"]);
}

#[test]
fn a_database_that_is_followed_can_be_dropped() {
    let cluster = logical(0);
    cluster.primary().query("create database d").unwrap();
    let proxy = Proxy::start(&cluster, ON);
    let mut admin = client(&proxy);
    let follow = || {
        let mut reader = Raw::tcp(proxy.port()).log_in("postgres", "d", &[]).unwrap();
        reader.run("create table t as select 1 as a");
        wait_for_catalog(&mut reader, "d");
        warm(&proxy, &mut reader, "select a from t");
    };
    follow();
    admin.run("drop database d");
    assert_eq!(slots(cluster.primary()), "0");
    admin.run("create database d");
    follow();
    admin.extended("drop database d", &[]).unwrap();
    assert_eq!(slots(cluster.primary()), "0");
}

#[test]
fn one_whose_stream_waits_for_a_long_transaction_can_be_dropped() {
    let cluster = logical(0);
    cluster.primary().query("create database d").unwrap();
    let proxy = Proxy::start(&cluster, ON);
    let mut admin = client(&proxy);
    let mut long = direct(cluster.primary());
    long.run("begin; create table long (a int)");
    let mut reader = Raw::tcp(proxy.port()).log_in("postgres", "d", &[]).unwrap();
    reader.run("create table t as select 1 as a");
    wait_for_catalog(&mut reader, "d");
    wait_until("the stream to wait for it", || {
        assert!(!is_hit(&proxy, &mut reader, "select a from t"));
        show(&mut admin, "pool_cache_wal", "state").iter().any(|state| state.contains("waiting for the transactions that run"))
    });
    drop(reader);
    admin.run("drop database d");
    let senders = "select count(*) from pg_stat_activity where application_name = 'weir_cache'";
    assert_eq!(cluster.primary().value(senders).unwrap(), "0");
    long.run("commit");
}

#[test]
fn what_is_defined_past_weir_and_what_no_stream_tells_leaves_no_old_answers() {
    let cluster = logical(0);
    let primary = cluster.primary();
    primary.query("create table t as select 1 as a").unwrap();
    primary.query("create materialized view m as select count(*) as n from t").unwrap();
    let proxy = Proxy::start(&cluster, ON);
    let (mut reader, mut writer) = (client(&proxy), direct(primary));
    warm(&proxy, &mut reader, "select * from t");
    for _ in 0..5 {
        reader.run("select n from m");
        assert!(!is_hit(&proxy, &mut reader, "select n from m"), "no stream tells of its rows");
    }
    writer.run("alter table t add column b int default 7");
    wait_until("the definition to be noticed", || reader.rows("select * from t") == [["1", "7"]]);
    assert_eq!(warm(&proxy, &mut reader, "select * from t"), [["1", "7"]]);
    writer.run("alter table t rename to u; create table t as select 'other' as a");
    wait_until("the other table to be noticed", || reader.rows("select * from t") == [["other"]]);
    assert_eq!(warm(&proxy, &mut reader, "select * from t"), [["other"]]);
    writer.run("update t set a = 'changed'");
    assert_eq!(reader.rows("select * from t"), [["changed"]]);
}

#[test]
fn a_session_sees_what_it_has_seen_and_nothing_gets_too_old() {
    let cluster = logical(0);
    let primary = cluster.primary();
    primary.query("create table t as select 0 as v").unwrap();
    let on = "memory_cache_enabled = on\nmemqcache_invalidation = wal\ncausal_reads = session";
    let proxy = Proxy::start(&cluster, on);
    let (mut reader, mut writer) = (client(&proxy), direct(primary));
    let read = "select v from t";
    for value in 1..=20 {
        warm(&proxy, &mut reader, read);
        writer.run(&format!("update t set v = {value}"));
        // Not from memory: the session has now seen all earlier writes.
        assert_eq!(reader.value("/*NO QUERY CACHE*/ select v from t"), value.to_string());
        assert_eq!(reader.value(read), value.to_string(), "a session went back in time");
    }
    let mut other = client(&proxy);
    warm(&proxy, &mut other, read);
    writer.run("update t set v = 100");
    let since = std::time::Instant::now();
    wait_until("a session that saw nothing to see it", || other.value(read) == "100");
    check_within("a session that saw nothing", since, std::time::Duration::ZERO);
}

#[test]
fn no_history_with_writers_past_weir_shows_a_value_the_primary_would_not_have_shown() {
    let cluster = logical(0);
    let primary = cluster.primary();
    for at in 0..REGISTERS {
        primary.query(&register(at)).unwrap();
    }
    let check = |more: &str, follows: bool| {
        let proxy = Proxy::start(&cluster, more);
        let before = hits(&proxy);
        let kill = "select pg_terminate_backend(pid) from pg_stat_replication where application_name = 'weir_cache'";
        let is_followed = || show(&mut proxy.console(), "pool_cache_wal", "state") == ["following"];
        let disturb = |value: i64| match value % 10 {
            5 => drop(primary.query(kill).unwrap()),
            9 if follows => wait_until("the log to be followed again", is_followed),
            _ => {}
        };
        let wrong = history(&Story {
            writers: [Box::new(|| proxy.console()), Box::new(|| direct(primary)), Box::new(|| direct(primary))],
            readers: vec![Box::new(|| proxy.console())],
            settle: Box::new(|| drop(warm(&proxy, &mut client(&proxy), "select v from r0"))),
            disturb: Box::new(disturb),
        });
        (wrong, hits(&proxy) - before)
    };
    // The log alone: not even writes through Weir are noted.
    for more in ["", "memqcache_auto_cache_invalidation = off"] {
        let (wrong, hits) = check(&format!("{ON}\n{more}"), true);
        assert!(wrong.is_empty(), "{} of them, the first: {}", wrong.len(), wrong[0]);
        assert!(hits > 0);
    }
    let (wrong, _) = check("memory_cache_enabled = on", false);
    assert!(!wrong.is_empty(), "without the log nothing is found wrong: this test finds nothing");
}
