//! The view of each proxy of a group, while others are stopped and killed.

use super::grouped::Group;
use super::*;
use crate::support::proxy::show;

/// Waits until a proxy, asked over this connection, shows the hosts in these states.
fn wait_states(client: &mut Raw, expected: &[&str]) {
    wait_until(&format!("the hosts to be {expected:?}"), || show(client, "pool_watchdog", "state") == expected);
}

#[test]
fn each_proxy_shows_the_hosts_of_its_group_as_it_knows_them() {
    let cluster = servers(1, &[]);
    let mut group = Group::start(&cluster, "");
    let mut clients: Vec<Raw> = group.proxies.iter().map(Proxy::console).collect();
    for (host, client) in clients.iter_mut().enumerate() {
        wait_states(client, &["LEADER", "STANDBY", "STANDBY"]);
        let asked = ["0", "1", "2"].map(|number| (number == host.to_string()).to_string());
        assert_eq!(show(client, "pool_watchdog", "is_asked"), asked);
        assert_eq!(show(client, "pool_watchdog", "votes"), ["yes"; 3]);
        assert_eq!(show(client, "pool_watchdog", "write_node"), ["0"; 3]);
        let left_ms: u64 = show(client, "pool_watchdog", "lease_left_ms")[host].parse().expect("a lease");
        assert!((1..=2000).contains(&left_ms), "{left_ms}");
    }
    group.proxies[2].signal(Signal::INT);
    group.proxies[2].wait_end();
    wait_states(&mut clients[0], &["LEADER", "STANDBY", "SHUTDOWN"]);
    wait_states(&mut clients[1], &["LEADER", "STANDBY", "SHUTDOWN"]);
    group.proxies[0].signal(Signal::KILL);
    group.proxies[0].wait_end();
    wait_states(&mut clients[1], &["LOST", "NETWORK ISOLATION", "SHUTDOWN"]);
    assert_eq!(show(&mut clients[1], "pool_watchdog", "lease_left_ms")[1], "0");
    group.proxies[2].crash_and_start();
    // Each of the two may be the first to claim the lead.
    let mut leader = 0;
    wait_until("one of two hosts to lead", || {
        let states = show(&mut clients[1], "pool_watchdog", "state");
        leader = states.iter().position(|state| state == "LEADER").unwrap_or_default();
        states == ["LOST", "LEADER", "STANDBY"] || states == ["LOST", "STANDBY", "LEADER"]
    });
    let claimed = format!("lead claimed by host {leader}");
    let reasons = show(&mut group.proxies[leader].console(), "pool_failover", "reason");
    assert!(reasons.iter().any(|reason| reason.contains(&claimed)), "{reasons:?}");
}

#[test]
fn parameters_that_differ_between_hosts_are_named_until_they_are_alike() {
    let cluster = servers(1, &[]);
    let group = Group::start(&cluster, "");
    let differs = |host: usize| show(&mut group.proxies[host].console(), "pool_watchdog", "differs");
    assert_eq!(differs(1), ["", "", ""]);
    let said = |host: usize, text: &str| group.proxies[host].log().matches(text).count();
    assert!((0..3).all(|host| said(host, "has other values") == 0), "nothing differs at the begin");
    let right = group.proxies[1].conf();
    group.proxies[1].add_conf("failover_wait = 7s\npool_mode = session\nhealth_check_password = 'hunter2'\npool_size = 3");
    group.proxies[1].reload();
    for host in [0, 2] {
        wait_until("the others to see it", || differs(host) == ["", "failover_wait, pool_mode", ""]);
    }
    wait_until("the host itself to see it", || differs(1) == ["failover_wait, pool_mode", "", "failover_wait, pool_mode"]);
    assert_eq!(said(0, "host 1 has other values than this host for failover_wait, pool_mode: "), 1);
    std::fs::write(group.proxies[1].conf_path(), right).unwrap();
    group.proxies[1].reload();
    for host in 0..3 {
        wait_until("all to be alike again", || differs(host) == ["", "", ""]);
    }
    assert_eq!(said(0, "WARNING:  watchdog: host 1 has other values"), said(0, "has other values"));
    assert_eq!((said(0, "has other values"), said(0, "host 1 has the parameters alike again")), (1, 1));
    assert!((0..3).all(|host| said(host, "hunter2") == 0));
}
