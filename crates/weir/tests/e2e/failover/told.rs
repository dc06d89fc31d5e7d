//! Lines of the log and rows of SHOW are about what is: a Weir that is started after a failover, before servers that keep its votes.

use super::{BUILTIN, before, servers};
use crate::support::{Proxy, wait_until};

const STARTS: usize = 4;

/// As getting-started makes it: it may look, and lacks REPLICATION.
const MONITOR: &str = "create role monitor login; grant pg_monitor to monitor";

fn check(proxy: &Proxy, mode: &str) {
    wait_until("writes to go to the new primary", || proxy.log().contains("writes go to node 1"));
    proxy.console().run("insert into written values (1)");
    wait_until("roles to be known", || proxy.nodes("role") == ["standby", "primary"]);
    let (log, rows) = (proxy.log(), proxy.console().rows("show pool_failover"));
    let lies = [
        "primary node is 0",
        "node 0 is the primary",
        "set new primary",
        "is the primary after",
        "failover done",
        "writes go to node 0",
        "the primary is gone",
        "the primary does not answer as such",
        "no primary was found",
    ];
    for lie in lies {
        assert!(!log.contains(lie), "{mode}: {lie}: {log}");
    }
    assert!(log.contains("find_primary_node: primary node is 1"), "{mode}: {log}");
    assert!(rows.iter().all(|row| row[0] != "failover"), "{mode}: {rows:?}");
    assert!(!rows[0][4].contains("writes wait"), "{mode}: {rows:?}");
}

#[test]
fn a_failover_of_before_the_start_is_not_told_as_one_of_now() {
    let cluster = servers(1, &[]);
    cluster.primary().query(MONITOR).unwrap();
    cluster.wait_caught_up().unwrap();
    let (old, new) = (cluster.primary(), &cluster.standbys()[0]);
    let proxy = before(&cluster, &format!("{BUILTIN}failover_alone = on\n"));
    old.kill9().unwrap();
    wait_until("a failover", || proxy.log().contains("is the primary after node 0"));
    old.clone_from(new).unwrap();
    wait_until("the old one to be used, and to have the vote", || {
        proxy.nodes("status") == ["up", "up"] && old.value("show primary_conninfo").is_ok_and(|text| text.contains("weir/"))
    });
    drop(proxy);
    for start in 0..STARTS {
        let few = "sr_check_user = 'monitor'\nhealth_check_user = 'monitor'\nhealth_check_period = 1\n";
        let period = if start % 2 == 0 { "" } else { "sr_check_period = 1\n" };
        let proxy = Proxy::start(&cluster, &format!("{few}{period}"));
        check(&proxy, "follow");
    }
    let proxy = Proxy::start(&cluster, &format!("{BUILTIN}failover_alone = on\n"));
    check(&proxy, "builtin");
}
