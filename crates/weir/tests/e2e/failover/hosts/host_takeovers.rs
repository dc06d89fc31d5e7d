//! Processes that take over on each host of a group, the leader with its address among them.

use super::host_group::{LEASE, check_nothing_is_missing};
use super::*;
use crate::etcd::etcd_servers::EtcdServers;

fn check_takeovers(name: &str, group: &mut HostGroup, cluster: &Owned) {
    let leader = group.leader();
    let others = group.others();
    let loads = vec![group.load_at_address(), group.load_at(leader), group.load_at(others[0])];
    let fault = Instant::now();
    for host in [others[0], leader, others[1], leader] {
        group.weirs[host].take_over();
        loads.iter().for_each(|load| load.wait_acknowledged(30));
        wait_until("writes to go through the new process", || group.weirs[host].writes());
    }
    // Long enough for what the old processes had by themselves to be over.
    let_pass(LEASE);
    group.wait_whole();
    let history = group.check(name, fault);
    let lead = if group.leader() == leader { "stayed" } else { "moved" };
    eprintln!("{name}: the lead {lead}");
    assert!(history.longest_without() < Duration::from_secs(5), "{:?}", history.holders);
    let lost: usize = loads.iter().map(|load| load.noted().lost).sum();
    let errors: Vec<String> = loads.iter().map(|load| format!("{:?}", load.noted().errors)).collect();
    assert!(lead == "moved" || lost == 0, "{lost} sessions lost: {errors:?}");
    check_nothing_is_missing(name, cluster, loads);
    for host in [leader, others[0], others[1]] {
        group.weirs[host].wait_former();
    }
}

#[test]
fn takeovers_on_each_host_leave_the_address_with_one_holder() {
    let Some(network) = host_network(3, 1) else { return };
    let cluster = servers_for(&network, 0, &[]);
    let mut group = HostGroup::start(&network, &cluster, "");
    check_takeovers("takeovers", &mut group, &cluster);
}

#[test]
fn with_etcd_takeovers_on_each_host_leave_the_address_with_one_holder() {
    let Some(network) = host_network(3, 1) else { return };
    let Some(etcd) = EtcdServers::start_at(&network.outside(0).to_string(), 3) else { return };
    let cluster = servers_for(&network, 0, &[]);
    let lines = format!("wd_engine = etcd\nwd_etcd_endpoints = '{}'\n", etcd.outside_urls().join(","));
    let mut group = HostGroup::start(&network, &cluster, &lines);
    check_takeovers("etcd: takeovers", &mut group, &cluster);
}

#[test]
fn a_new_process_that_is_killed_right_after_the_takeover_of_the_leader_leaves_the_address_to_another_host() {
    let Some(network) = host_network(3, 1) else { return };
    let cluster = servers_for(&network, 0, &[]);
    let mut group = HostGroup::start(&network, &cluster, "");
    let leader = group.leader();
    let stays = group.load_at(leader);
    let loads = vec![group.load_at(group.others()[0])];
    let fault = Instant::now();
    group.weirs[leader].take_over();
    group.weirs[leader].kill();
    group.wait_another(leader);
    loads.iter().for_each(|load| load.wait_acknowledged(50));
    group.check("new process of the leader killed", fault);
    check_nothing_is_missing("new process of the leader killed", &cluster, [loads, vec![stays]].into_iter().flatten().collect());
}
