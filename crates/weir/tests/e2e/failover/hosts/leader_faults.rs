//! The leader dies, stands still, is cut off, or is stopped.

use super::host_group::{LEASE, check_nothing_is_missing};
use super::*;
use weir_demo::NetworkCut;

#[test]
fn a_leader_that_is_killed_is_followed_and_comes_back() {
    let Some(network) = host_network(3, 1) else { return };
    let cluster = servers_for(&network, 0, &[]);
    let mut group = HostGroup::start(&network, &cluster, "");
    let leader = group.leader();
    let loads = vec![group.load_at_address(), group.load_at(group.others()[0])];
    let fault = Instant::now();
    group.weirs[leader].kill();
    group.wait_another(leader);
    loads.iter().for_each(|load| load.wait_acknowledged(50));
    group.weirs[leader].start_again();
    group.wait_whole();
    group.check_followed("leader killed", fault);
    check_nothing_is_missing("leader killed", &cluster, loads);
}

#[test]
fn a_leader_that_stands_still_for_longer_than_the_lease_is_followed_and_comes_back() {
    let Some(network) = host_network(3, 1) else { return };
    let cluster = servers_for(&network, 0, &[]);
    let group = HostGroup::start(&network, &cluster, "");
    let leader = group.leader();
    let loads = vec![group.load_at_address(), group.load_at(group.others()[0])];
    let fault = Instant::now();
    group.weirs[leader].signal(Signal::STOP);
    group.wait_another(leader);
    loads.iter().for_each(|load| load.wait_acknowledged(50));
    let_pass(LEASE);
    group.weirs[leader].signal(Signal::CONT);
    group.wait_whole();
    group.check_followed("leader stopped", fault);
    check_nothing_is_missing("leader stopped", &cluster, loads);
}

fn is_followed_when_cut_off(name: &str, cut: NetworkCut) {
    let Some(network) = host_network(3, 1) else { return };
    let cluster = servers_for(&network, 0, &[]);
    let group = HostGroup::start(&network, &cluster, "");
    let leader = group.leader();
    let loads = vec![group.load_at_address(), group.load_at(group.others()[0])];
    let fault = Instant::now();
    network.cut(leader, cut).unwrap();
    group.wait_another(leader);
    loads.iter().for_each(|load| load.wait_acknowledged(50));
    network.mend().unwrap();
    group.wait_whole();
    group.check_followed(name, fault);
    check_nothing_is_missing(name, &cluster, loads);
}

#[test]
fn a_leader_that_is_cut_off_is_followed_and_comes_back() {
    is_followed_when_cut_off("leader isolated", NetworkCut::Apart);
}

#[test]
fn a_leader_that_hears_nothing_is_followed_and_comes_back() {
    is_followed_when_cut_off("leader deaf", NetworkCut::Deaf);
}

#[test]
fn a_leader_whom_nobody_hears_is_followed_and_comes_back() {
    is_followed_when_cut_off("leader mute", NetworkCut::Mute);
}

#[test]
fn a_leader_that_is_cut_off_from_its_peers_only_is_followed_and_comes_back() {
    is_followed_when_cut_off("leader without peers", NetworkCut::FromHosts);
}

#[test]
fn a_leader_that_is_stopped_hands_the_address_over() {
    for signal in [Signal::TERM, Signal::INT] {
        let Some(network) = host_network(3, 1) else { return };
        let cluster = servers_for(&network, 0, &[]);
        let mut group = HostGroup::start(&network, &cluster, "");
        let leader = group.leader();
        let loads = vec![group.load_at(group.others()[0])];
        let fault = Instant::now();
        group.weirs[leader].signal(signal);
        group.wait_another(leader);
        group.weirs[leader].wait_end();
        loads.iter().for_each(|load| load.wait_acknowledged(50));
        group.weirs[leader].start_again();
        group.wait_whole();
        // Without it the others would wait for the end of the lease.
        let handover = format!("lead handed over by host {leader} to host");
        let decided = group.weirs[leader].ask("show pool_failover").unwrap();
        assert!(decided.iter().flatten().flatten().any(|text| text.contains(&handover)), "{decided:?}");
        group.check_followed(&format!("leader {signal:?}"), fault);
        check_nothing_is_missing(&format!("leader {signal:?}"), &cluster, loads);
    }
}
