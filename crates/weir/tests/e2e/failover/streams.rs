//! Standbys that lost their stream while the primary lives.

use super::load::Load;
use super::{ANY, BUILTIN, STREAMING, before, servers};
use crate::support::time::check_never;
use crate::support::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use std::time::{Duration, Instant};

/// Longer than the test: nothing but Weir ends the wait.
const WAIT: (&str, &str) = ("wal_retrieve_retry_interval", "10min");

fn conninfo(port: u16) -> String {
    format!("port={port}")
}

/// A killed backend has PostgreSQL end all others, and recover. Standbys then wait `wal_retrieve_retry_interval`, and with them all commits.
#[test]
fn writes_go_on_after_a_crash_restart_though_standbys_wait_long_to_look_for_their_primary() {
    let cluster = servers(2, &[ANY]);
    // Not before they stream: a standby that finds its primary busy at first would wait as long.
    for standby in cluster.standbys() {
        standby.query(&format!("alter system set {} = '{}'", WAIT.0, WAIT.1)).unwrap();
        standby.reload().unwrap();
    }
    let proxy = before(&cluster, BUILTIN);
    let mut client = proxy.console();
    client.run("insert into written values (1)");
    let pid = cluster.primary().value("select pid from pg_stat_activity where backend_type = 'walwriter'").unwrap();
    let begun = Instant::now();
    kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), Signal::KILL).unwrap();
    wait_until("the server to notice", || cluster.primary().log().contains("all server processes terminated; reinitializing"));
    wait_until("a write to be acknowledged", || {
        let mut client = proxy.console();
        client.try_rows("insert into written values (2)").is_ok()
    });
    eprintln!("crash restart: {} ms until a write was acknowledged", begun.elapsed().as_millis());
    assert!(!proxy.log().contains("failover done"), "{}", proxy.log());
}

#[test]
fn a_standby_whose_upstream_has_died_is_pointed_at_the_primary() {
    let cluster = servers(2, &[]);
    let (primary, [relay, last]) = (cluster.primary(), cluster.standbys()) else { panic!("two standbys") };
    last.follow(relay).unwrap();
    wait_until("the cascade", || relay.value(STREAMING).unwrap() == "1" && primary.value(STREAMING).unwrap() == "1");
    let proxy = before(&cluster, BUILTIN);
    wait_until("all to be looked at", || proxy.nodes("status") == ["up", "up", "up"]);
    relay.kill9().unwrap();
    wait_until("the last one to stream from the primary", || {
        let shown = primary.value("select string_agg(application_name, ',') from pg_stat_replication where state = 'streaming'");
        shown.is_ok_and(|shown| shown == last.name())
    });
    let shown = last.value("show primary_conninfo").unwrap();
    assert!(shown.contains(&conninfo(primary.port())), "{shown}");
    let log = proxy.log();
    assert!(log.contains("node 2 receives nothing, since node 1, which it follows, is dead"), "{log}");
    assert!(log.contains("node 2: it was pointed at node 0, the primary"), "{log}");
}

/// Another session holds the lock under which Weir changes the last standby, so that it stays where it is while the primary writes on.
#[test]
fn a_standby_without_an_upstream_is_not_promoted_with_seconds_of_commits_missing() {
    let cluster = servers(2, &[]);
    let (primary, [relay, last]) = (cluster.primary(), cluster.standbys()) else { panic!("two standbys") };
    last.follow(relay).unwrap();
    wait_until("the cascade", || relay.value(STREAMING).unwrap() == "1" && primary.value(STREAMING).unwrap() == "1");
    let proxy = before(&cluster, &format!("{BUILTIN}failover_alone = on\nfailover_lag_time_max = 1\n"));
    wait_until("all to be looked at", || proxy.nodes("status") == ["up", "up", "up"]);
    let load = Load::begin(&proxy, 2);
    let mut holder = last.connect("postgres", "postgres").unwrap();
    holder.query("select pg_advisory_lock(1466263922, 1835102827)").unwrap();
    relay.kill9().unwrap();
    wait_until("it to be named", || proxy.log().contains("node 2 receives nothing, since node 1, which it follows, is dead"));
    // Five milliseconds between two of a writer: some seconds.
    load.wait_acknowledged(1200);
    primary.kill9().unwrap();
    drop(holder);
    wait_until("the refusal", || {
        let log = proxy.log();
        log.contains("there is no failover: node 2 is the best and lacks all of the last")
            && log.contains("above failover_lag_time_max")
    });
    check_never("it is promoted", Duration::from_secs(4), || !last.in_recovery().unwrap());
    // The operator may want it all the same.
    proxy.add_conf("failover_lag_time_max = 0");
    proxy.reload();
    wait_until("it to be promoted", || !last.in_recovery().unwrap());
    load.wait_acknowledged(10);
    let outcome = load.end();
    let (missing, of) = (outcome.missing_on(last).len(), outcome.acknowledged.len());
    eprintln!("an orphan: {missing} of {of} acknowledged writes missing once it was promoted by the operator's word");
    assert!(missing > 0, "it lacked nothing: the refusal was for another reason");
    assert!(proxy.log().contains("lost: at most"), "{}", proxy.log());
}
