//! The primary dies, and with it or about that time something happens to the leader. Either standby acknowledges every commit, so that nothing
//! that was acknowledged may be missing.

use super::host_group::{LEASE, check_nothing_is_missing};
use super::*;
use weir_demo::NetworkCut;

fn epoch_after(group: &HostGroup, host: usize) -> bool {
    group.weirs[host].log().contains("in epoch 2")
}

fn wait_new_primary(group: &HostGroup, hosts: &[usize]) {
    for host in hosts {
        wait_until("writes to go to the new primary", || epoch_after(group, *host) && group.weirs[*host].writes());
    }
}

#[test]
fn a_primary_that_dies_is_replaced_for_all_hosts() {
    let Some(network) = host_network(3, 1) else { return };
    let cluster = servers_for(&network, 2, &[ANY]);
    let group = HostGroup::start(&network, &cluster, "");
    let loads: Vec<Load> = (0..3).map(|host| group.load_at(host)).chain([group.load_at_address()]).collect();
    let fault = Instant::now();
    cluster.primary().kill9().unwrap();
    wait_new_primary(&group, &[0, 1, 2]);
    loads.iter().for_each(|load| load.wait_acknowledged(50));
    let history = group.check("primary killed", fault);
    assert_eq!(history.holders.len(), 1, "the address stays: {:?}", history.holders);
    check_nothing_is_missing("primary killed", &cluster, loads);
}

/// Kills the primary, and the leader as soon as `is_reached` says so of its log and of the servers; it comes back when both are replaced.
fn both_die(name: &str, is_reached: impl Fn(&str, &Owned) -> bool) {
    let Some(network) = host_network(3, 1) else { return };
    let cluster = servers_for(&network, 2, &[ANY]);
    let mut group = HostGroup::start(&network, &cluster, "");
    let (leader, others) = (group.leader(), group.others());
    let loads: Vec<Load> = others.iter().map(|host| group.load_at(*host)).chain([group.load_at_address()]).collect();
    let fault = Instant::now();
    cluster.primary().kill9().unwrap();
    wait_until(name, || is_reached(&group.weirs[leader].log(), &cluster));
    group.weirs[leader].kill();
    eprintln!("{name}: {} ms after the death of the primary", fault.elapsed().as_millis());
    group.wait_another(leader);
    wait_new_primary(&group, &others);
    loads.iter().for_each(|load| load.wait_acknowledged(50));
    group.weirs[leader].start_again();
    group.wait_whole();
    group.check(name, fault);
    check_nothing_is_missing(name, &cluster, loads);
}

#[test]
fn a_primary_and_a_leader_that_die_at_once_are_both_replaced() {
    both_die("primary and leader killed", |_, _| true);
}

#[test]
fn a_leader_that_dies_at_a_step_of_a_failover_is_followed_by_one_that_ends_it() {
    both_die("leader killed when writes were closed", |log, _| log.contains("writes are closed after epoch 1"));
    let is_asked = |server: &Server| server.log().contains("received promote request");
    both_die("leader killed when a standby was asked", |_, cluster| cluster.standbys().iter().any(is_asked));
    both_die("leader killed when the new primary was accepted", |log, _| log.contains("is the primary after node 0"));
}

/// Stops the leader some time before or after the death of the primary, for longer than the lease.
fn leader_stands_still(name: &str, stop_first: bool, between: Duration) {
    let Some(network) = host_network(3, 1) else { return };
    let cluster = servers_for(&network, 2, &[ANY]);
    let group = HostGroup::start(&network, &cluster, "");
    let (leader, others) = (group.leader(), group.others());
    let loads: Vec<Load> = (0..3).map(|host| group.load_at(host)).chain([group.load_at_address()]).collect();
    let fault = Instant::now();
    let (stop, kill) = (|| group.weirs[leader].signal(Signal::STOP), || cluster.primary().kill9().unwrap());
    if stop_first {
        stop();
        let_pass(between);
        kill();
    } else {
        kill();
        let_pass(between);
        stop();
    }
    wait_until("another host to have the address", || matches!(group.watch.holders()[..], [holder] if holder != leader));
    wait_new_primary(&group, &others);
    let_pass(LEASE);
    group.weirs[leader].signal(Signal::CONT);
    wait_new_primary(&group, &[leader]);
    group.wait_whole();
    loads.iter().for_each(|load| load.wait_acknowledged(50));
    group.check(name, fault);
    check_nothing_is_missing(name, &cluster, loads);
}

#[test]
fn a_leader_that_stands_still_just_before_the_primary_dies_comes_back_as_a_follower() {
    leader_stands_still("stopped 20 ms before the primary died", true, Duration::from_millis(20));
}

#[test]
fn a_leader_that_stands_still_a_lease_before_the_primary_dies_comes_back_as_a_follower() {
    leader_stands_still("stopped 1.5 s before the primary died", true, Duration::from_millis(1500));
}

#[test]
fn a_leader_that_stands_still_at_once_after_the_primary_died_comes_back_as_a_follower() {
    leader_stands_still("stopped 5 ms after the primary died", false, Duration::from_millis(5));
}

#[test]
fn a_leader_that_stands_still_while_it_replaces_the_primary_comes_back_as_a_follower() {
    for between in [80, 160] {
        let name = format!("stopped {between} ms after the primary died");
        leader_stands_still(&name, false, Duration::from_millis(between));
    }
}

#[test]
fn a_leader_that_is_cut_off_with_the_primary_is_followed_and_gets_no_write() {
    let Some(network) = host_network(3, 1) else { return };
    let cluster = servers_for(&network, 2, &[ANY]);
    let group = HostGroup::start(&network, &cluster, "");
    let (leader, others) = (group.leader(), group.others());
    // The leader reaches the old primary and its clients, and no peer.
    let loads: Vec<Load> = (0..3).map(|host| group.load_at(host)).collect();
    let fault = Instant::now();
    network.cut(leader, NetworkCut::FromHosts).unwrap();
    group.wait_another(leader);
    cluster.primary().kill9().unwrap();
    wait_new_primary(&group, &others);
    assert!(!group.weirs[leader].writes(), "a host without a lease takes no write");
    network.mend().unwrap();
    wait_new_primary(&group, &[leader]);
    loads.iter().for_each(|load| load.wait_acknowledged(50));
    group.check("leader without peers, primary killed", fault);
    check_nothing_is_missing("leader without peers, primary killed", &cluster, loads);
}

#[test]
fn a_host_that_loses_sight_of_the_primary_begins_no_failover() {
    let Some(network) = host_network(3, 1) else { return };
    let cluster = servers_for(&network, 2, &[ANY]);
    let group = HostGroup::start(&network, &cluster, "");
    let leader = group.leader();
    let follower = group.others()[1];
    let loads = vec![group.load_at(group.others()[0])];
    let fault = Instant::now();
    network.cut(follower, NetworkCut::FromOutside).unwrap();
    check_never("the address moves", Duration::from_secs(5), || group.watch.holders() != [leader]);
    network.mend().unwrap();
    group.wait_whole();
    // The others see the primary: the leader hands over.
    network.cut(leader, NetworkCut::FromOutside).unwrap();
    group.wait_another(leader);
    network.mend().unwrap();
    group.wait_whole();
    loads.iter().for_each(|load| load.wait_acknowledged(50));
    group.check("one host without sight of the primary", fault);
    for weir in &group.weirs {
        assert!(!weir.log().contains("is the primary after"), "a failover began");
    }
    let noted = loads[0].noted();
    assert!(noted.errors.is_empty(), "{:?}", noted.errors);
    check_nothing_is_missing("one host without sight of the primary", &cluster, loads);
}
