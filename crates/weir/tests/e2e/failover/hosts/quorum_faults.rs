//! One of two networks is gone, or too many hosts are.

use super::host_group::{LEASE, check_nothing_is_missing};
use super::*;
use std::fs;
use weir_demo::NetworkCut;

/// Longer than any claim to the lead takes.
const NOTHING_MOVES: Duration = Duration::from_secs(6);

#[test]
fn with_one_of_two_networks_gone_nothing_moves() {
    let Some(network) = host_network(3, 2) else { return };
    let cluster = servers_for(&network, 0, &[]);
    let group = HostGroup::start(&network, &cluster, "");
    let leader = group.leader();
    let loads = vec![group.load_at_address(), group.load_at(group.others()[0])];
    let fault = Instant::now();
    network.cut(leader, NetworkCut::Path(1)).unwrap();
    check_never("the address moves", NOTHING_MOVES, || group.watch.holders() != [leader]);
    network.mend().unwrap();
    // Now the first one, between the hosts only: clients and servers are there.
    network.cut(leader, NetworkCut::FromHostsOn(0)).unwrap();
    check_never("the address moves", NOTHING_MOVES, || group.watch.holders() != [leader]);
    network.mend().unwrap();
    let history = group.check("one of two networks gone", fault);
    assert_eq!(history.holders.len(), 1, "{:?}", history.holders);
    for load in &loads {
        let noted = load.noted();
        assert!(noted.errors.is_empty() && noted.gap() < LEASE, "{:?} {:?}", noted.errors, noted.gap());
    }
    check_nothing_is_missing("one of two networks gone", &cluster, loads);
}

#[test]
fn the_last_of_three_hosts_has_no_address_and_reads_only_until_another_is_back() {
    let Some(network) = host_network(3, 1) else { return };
    let cluster = servers_for(&network, 1, &[]);
    let mut group = HostGroup::start(&network, &cluster, "failover_wait = 2s\n");
    let (leader, others) = (group.leader(), group.others());
    let loads = vec![group.load_at(leader)];
    let fault = Instant::now();
    others.iter().for_each(|host| group.weirs[*host].kill());
    wait_until("nobody to have the address", || group.watch.holders().is_empty());
    wait_until("writes to be refused", || !group.weirs[leader].writes());
    check_never("it takes a write, or has the address", LEASE, || {
        group.weirs[leader].reads().unwrap();
        group.weirs[leader].writes() || !group.watch.holders().is_empty()
    });
    group.weirs[others[0]].start_again();
    wait_until("one host to have the address", || group.watch.holders().len() == 1);
    wait_until("writes to go on", || group.weirs[leader].writes());
    group.weirs[others[1]].start_again();
    group.wait_whole();
    loads.iter().for_each(|load| load.wait_acknowledged(50));
    group.check("two of three lost", fault);
    check_nothing_is_missing("two of three lost", &cluster, loads);
}

#[test]
fn of_two_hosts_with_a_casting_vote_the_lowest_goes_on_alone_and_the_other_never() {
    let Some(network) = host_network(2, 1) else { return };
    let cluster = servers_for(&network, 0, &[]);
    let mut group = HostGroup::start(&network, &cluster, "enable_consensus_with_half_votes = on\nfailover_wait = 2s\n");
    let loads = vec![group.load_at(0)];
    let fault = Instant::now();
    group.weirs[1].kill();
    wait_until("the lowest to have the address", || group.watch.holders() == [0]);
    wait_until("writes to go on", || group.weirs[0].writes());
    group.weirs[1].start_again();
    group.wait_whole();
    // Cut apart, the lowest goes on, too.
    network.cut(1, NetworkCut::FromHosts).unwrap();
    wait_until("the other to have no lease", || !group.weirs[1].writes());
    check_never("the address moves, or the other writes", LEASE * 2, || group.watch.holders() != [0] || group.weirs[1].writes());
    wait_until("the lowest to write", || group.weirs[0].writes());
    network.mend().unwrap();
    group.wait_whole();
    loads.iter().for_each(|load| load.wait_acknowledged(50));
    // The lowest dies: the other may do nothing.
    group.weirs[0].kill();
    wait_until("nobody to have the address", || group.watch.holders().is_empty());
    wait_until("the other to have no lease", || !group.weirs[1].writes());
    check_never("the other takes the address or a write", LEASE * 2, || {
        !group.watch.holders().is_empty() || group.weirs[1].writes()
    });
    group.weirs[0].start_again();
    group.wait_whole();
    group.check("casting vote", fault);
    check_nothing_is_missing("casting vote", &cluster, loads);
}

#[test]
fn a_host_whose_state_is_torn_says_so_and_how_to_go_on() {
    let Some(network) = host_network(3, 1) else { return };
    let cluster = servers_for(&network, 0, &[]);
    let mut group = HostGroup::start(&network, &cluster, "");
    let host = group.others()[0];
    let fault = Instant::now();
    group.weirs[host].kill();
    let file = group.weirs[host].state_file();
    let whole = fs::read(&file).unwrap();
    let mut torn = whole.clone();
    let middle = torn.len() / 2;
    torn[middle] ^= 1;
    for bytes in [&whole[..whole.len() - 1], &torn[..], &[]] {
        fs::write(&file, bytes).unwrap();
        group.weirs[host].start_again();
        wait_until("the state to be refused, with the way out", || {
            let log = group.weirs[host].log();
            let line = log.lines().rev().find(|line| line.contains("weir_group"));
            line.is_some_and(|line| line.contains("delete") || line.contains("remove"))
        });
        let has_ended = |group: &mut HostGroup| !group.weirs[host].is_running();
        if !has_ended(&mut group) {
            group.weirs[host].kill();
        }
    }
    // With the file that it had it is the member that it was.
    fs::write(&file, whole).unwrap();
    group.weirs[host].start_again();
    group.wait_whole();
    group.check("state torn", fault);
}

#[test]
fn a_host_whose_disk_was_emptied_is_admitted_again_and_votes() {
    let Some(network) = host_network(3, 1) else { return };
    let cluster = servers_for(&network, 0, &[]);
    let mut group = HostGroup::start(&network, &cluster, "");
    let fault = Instant::now();
    let loads = vec![group.load_at(group.others()[0])];
    // The leader, then the host that is to be the last one with it.
    let (leader, other) = (group.leader(), group.others()[1]);
    for host in [leader, other] {
        group.weirs[host].kill();
        fs::remove_file(group.weirs[host].state_file()).unwrap();
        group.weirs[host].start_again();
        group.wait_whole();
        wait_until("all to vote", || group.weirs[host].voters() == 3);
    }
    let third = group.others().into_iter().chain([group.leader()]).find(|host| ![leader, other].contains(host)).unwrap();
    loads.iter().for_each(|load| load.wait_acknowledged(50));
    check_nothing_is_missing("disks emptied", &cluster, loads);
    group.weirs[third].kill();
    wait_until("the two to have the address", || matches!(group.watch.holders()[..], [holder] if holder != third));
    for host in [leader, other] {
        wait_until("the two to write", || group.weirs[host].writes());
    }
    group.check("disks emptied", fault);
}
