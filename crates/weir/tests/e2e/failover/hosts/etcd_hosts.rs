//! Groups whose state lies in etcd, outside of the hosts.

use super::host_group::{LEASE, check_nothing_is_missing};
use super::*;
use crate::etcd::etcd_servers::EtcdServers;
use std::sync::Arc;
use weir_demo::{HostNetwork, NetworkCut};

struct EtcdScene {
    etcd: EtcdServers,
    group: HostGroup,
    cluster: Owned,
    network: Arc<HostNetwork>,
}

/// `None`: the test is left out.
fn scene() -> Option<EtcdScene> {
    let network = host_network(3, 1)?;
    let etcd = EtcdServers::start_at(&network.outside(0).to_string(), 3)?;
    let cluster = servers_for(&network, 0, &[]);
    let lines = format!("wd_engine = etcd\nwd_etcd_endpoints = '{}'\n", etcd.outside_urls().join(","));
    let group = HostGroup::start(&network, &cluster, &lines);
    Some(EtcdScene { etcd, group, cluster, network })
}

impl EtcdScene {
    fn loads(&self) -> Vec<Load> {
        vec![self.group.load_at_address(), self.group.load_at(self.group.others()[0])]
    }

    fn end(self, name: &str, fault: Instant, loads: Vec<Load>) {
        loads.iter().for_each(|load| load.wait_acknowledged(50));
        self.group.wait_whole();
        self.group.check_followed(name, fault);
        check_nothing_is_missing(name, &self.cluster, loads);
    }
}

#[test]
fn with_etcd_a_leader_that_is_killed_is_followed_and_comes_back() {
    let Some(mut scene) = scene() else { return };
    let (leader, loads) = (scene.group.leader(), scene.loads());
    let fault = Instant::now();
    scene.group.weirs[leader].kill();
    scene.group.wait_another(leader);
    scene.group.weirs[leader].start_again();
    scene.end("etcd: leader killed", fault, loads);
}

#[test]
fn with_etcd_a_leader_that_stands_still_is_followed_and_comes_back() {
    let Some(scene) = scene() else { return };
    let (leader, loads) = (scene.group.leader(), scene.loads());
    let fault = Instant::now();
    scene.group.weirs[leader].signal(Signal::STOP);
    scene.group.wait_another(leader);
    let_pass(LEASE);
    scene.group.weirs[leader].signal(Signal::CONT);
    scene.end("etcd: leader stopped", fault, loads);
}

#[test]
fn with_etcd_a_leader_that_is_cut_off_is_followed_and_comes_back() {
    let Some(scene) = scene() else { return };
    let (leader, loads) = (scene.group.leader(), scene.loads());
    let fault = Instant::now();
    scene.network.cut(leader, NetworkCut::Apart).unwrap();
    scene.group.wait_another(leader);
    scene.network.mend().unwrap();
    scene.end("etcd: leader isolated", fault, loads);
}

/// Its peers are not asked for anything; so nothing moves.
#[test]
fn with_etcd_the_death_of_its_leader_moves_nothing_for_long() {
    let Some(mut scene) = scene() else { return };
    let loads = scene.loads();
    let fault = Instant::now();
    let leader = scene.etcd.leader();
    scene.etcd.kill(leader);
    loads.iter().for_each(|load| load.wait_acknowledged(200));
    scene.etcd.begin(leader);
    scene.end("etcd: its leader killed", fault, loads);
}

#[test]
fn with_etcd_a_stop_of_its_leader_moves_nothing_for_long() {
    let Some(scene) = scene() else { return };
    let loads = scene.loads();
    let fault = Instant::now();
    let leader = scene.etcd.leader();
    scene.etcd.signal(leader, Signal::STOP);
    loads.iter().for_each(|load| load.wait_acknowledged(500));
    let_pass(LEASE);
    scene.etcd.signal(leader, Signal::CONT);
    scene.end("etcd: its leader stopped", fault, loads);
}
