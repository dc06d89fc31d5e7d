//! Standbys that lost their stream while the primary lives.

use super::{ANY, BUILTIN, STREAMING, before, servers};
use crate::support::wait_until;
use rustix::process::{Pid, Signal, kill_process};

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
    kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), Signal::KILL).unwrap();
    wait_until("a write to be acknowledged", || {
        let mut client = proxy.console();
        client.try_rows("insert into written values (2)").is_ok()
    });
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
