//! The tests of the cache find the errors of Pgpool-II's, so that they would find ours.
//!
//! Without `pgpool` (Debian: package `pgpool2`) these tests say so and do nothing.

use super::cache::{OBJECTS, WRITES};
use super::history::{REGISTERS, Story, history, register};
use crate::support::Ground;
use crate::support::ground::cluster;
use crate::support::pgpool::Pgpool;
use std::time::Duration;

/// Time it gets to forget an answer: it tells the writer first.
const SEES_LIMIT: Duration = Duration::from_millis(300);

/// Its cache is in shared memory.
const CACHE: &str = "memory_cache_enabled = on\nmemqcache_method = 'shmem'\nmemqcache_oiddir = 'FOLDER'\n";

#[test]
fn the_cases_of_our_cache_find_what_pgpools_leaves_behind() {
    let ground = Ground::new();
    let Some(pgpool) = Pgpool::start(&[ground.cluster.primary()], CACHE, "") else { return };
    ground.prepare(OBJECTS);
    let (mut reader, mut writer, mut direct) =
        (pgpool.client(&ground.database), pgpool.client(&ground.database), ground.direct());
    let mut stale = Vec::new();
    for (at, (read, write)) in WRITES.iter().enumerate() {
        // Another text each time, so that earlier answers do not count.
        let read = &format!("{read}{}", " ".repeat(at));
        (0..3).for_each(|_| reader.run(read));
        writer.run(write);
        let meant = direct.rows(read);
        if weir_demo::wait_until("it to see the write", SEES_LIMIT, || Ok(reader.rows(read) == meant)).is_err() {
            stale.push(*write);
        }
    }
    for known in [
        "insert into part values (1)",
        "insert into parent values (2)",
        "insert into child values (1)",
        "delete from owner where a = 1",
        "insert into watched values (1)",
        "insert into ruled values (1)",
        "select f(1)",
        "call p(1)",
        "truncate owner cascade",
    ] {
        assert!(stale.contains(&known), "{known}: Pgpool-II is right about it, or these tests do not find it; found: {stale:#?}");
    }
    assert!(!stale.contains(&"delete from t where a = 3"), "what it does see: {stale:#?}");
}

#[test]
fn answers_for_others_settings_are_found() {
    let ground = Ground::new();
    let Some(pgpool) = Pgpool::start(&[ground.cluster.primary()], CACHE, "") else { return };
    ground.prepare(
        "create table t as select date '2020-02-01' as d, 1.1::float8 / 3 as f, '\\x41'::bytea as b; create schema s2;
         create table s2.t as select 'other' as d, 2 as f, 3 as b",
    );
    let mut found = Vec::new();
    for change in
        ["set datestyle = 'German'", "set bytea_output = 'escape'", "set extra_float_digits = 0", "set search_path = s2"]
    {
        let (mut plain, mut other, mut direct) =
            (pgpool.client(&ground.database), pgpool.client(&ground.database), ground.direct());
        let read = &format!("select d, f, b from t -- {change}");
        (0..3).for_each(|_| plain.run(read));
        other.run(change);
        direct.run(change);
        if other.rows(read) != direct.rows(read) {
            found.push(change);
        }
    }
    assert_eq!(found.len(), 4, "{found:?}");
}

#[test]
fn the_checker_of_histories_finds_what_pgpool_shows() {
    let cluster = cluster(0);
    let Some(pgpool) = Pgpool::start(&[cluster.primary()], CACHE, "") else { return };
    (0..REGISTERS).for_each(|at| drop(cluster.primary().query(&register(at)).unwrap()));
    let door = || pgpool.client("postgres");
    let wrong = history(&Story {
        writers: [Box::new(door), Box::new(door), Box::new(door)],
        readers: vec![Box::new(door)],
        settle: Box::new(|| {}),
        disturb: Box::new(|_| {}),
    });
    assert!(!wrong.is_empty(), "this checker finds nothing where it must");
    eprintln!("{} of them, the first: {}", wrong.len(), wrong[0]);
}
