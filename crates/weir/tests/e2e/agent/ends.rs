//! Primaries that are lost, with agents beside the servers, before a Weir that may not be alone: the agent tells a death from a cut network.

use super::returns::before;
use super::stand::{Agent, servers, wait_streams};
use crate::failover::load::Load;
use crate::support::ground::Owned;
use crate::support::time::check_never;
use crate::support::{Proxy, wait_until};
use std::time::Duration;
use weir_demo::Server;

fn primary_of(cluster: &Owned, not: &Server) -> Option<u16> {
    let others = cluster.servers().iter().filter(|server| server.port() != not.port());
    let mut found = others.filter(|server| server.value("select pg_is_in_recovery()").is_ok_and(|answer| answer == "f"));
    found.next().map(Server::port)
}

fn stand() -> Option<(Owned, Vec<Agent>, Proxy)> {
    let cluster = servers(2)?;
    let agents: Vec<Agent> = cluster.servers().iter().map(Agent::beside).collect();
    let proxy = before(&cluster, &agents.iter().collect::<Vec<_>>(), "auto_failback = on\nauto_failback_interval = 0");
    Some((cluster, agents, proxy))
}

/// The primary is replaced, nothing is missing but what was told, and the old one comes back.
fn check_replaced(cluster: &Owned, proxy: &Proxy, load: Load, line: &str) {
    let old = cluster.primary();
    wait_until("a new primary", || primary_of(cluster, old).is_some());
    let new = cluster.servers().iter().find(|server| Some(server.port()) == primary_of(cluster, old)).unwrap();
    assert!(proxy.log().contains(line), "{}", proxy.log());
    load.wait_acknowledged(50);
    wait_streams(old, new);
    let outcome = load.end();
    eprintln!("{line}: {} ms without writes", outcome.gap().as_millis());
    assert!(outcome.missing_on(new).is_empty() || proxy.log().contains("lost: at most"), "{}", proxy.log());
    assert_eq!(outcome.lost, 0);
}

#[test]
fn a_primary_that_hangs_is_ended_before_another_is_promoted() {
    let Some((cluster, _agents, proxy)) = stand() else { return };
    let load = Load::begin(&proxy, 4);
    cluster.primary().freeze();
    check_replaced(
        &cluster,
        &proxy,
        load,
        "node 0: its server ran and did not answer: it hangs, or its port is cut; its agent has ended it",
    );
}

#[test]
fn a_primary_that_was_killed_is_known_to_have_ended() {
    let Some((cluster, _agents, proxy)) = stand() else { return };
    let load = Load::begin(&proxy, 4);
    cluster.primary().kill9().unwrap();
    check_replaced(&cluster, &proxy, load, "node 0: its server had ended, says its agent");
}

#[test]
fn a_primary_that_is_silent_with_its_agent_is_waited_for() {
    let Some((cluster, mut agents, proxy)) = stand() else { return };
    let load = Load::begin(&proxy, 4);
    agents[0].kill();
    cluster.primary().freeze();
    wait_until("the reason", || proxy.log().contains("question to its agent failed"));
    let promoted = || primary_of(&cluster, cluster.primary()).is_some();
    check_never("another server is promoted", Duration::from_secs(8), promoted);
    assert!(!proxy.log().contains("cut-off"), "no standby lost its primary: {}", proxy.log());
    cluster.primary().thaw();
    load.wait_acknowledged(50);
    let outcome = load.end();
    assert_eq!((outcome.missing_on(cluster.primary()).len(), outcome.lost), (0, 0));
}
