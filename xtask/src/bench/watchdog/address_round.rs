//! A fault of the leader, and who has the address from then on.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::Signal;
use serde_json::{Value, json};
use weir_demo::{AddressHistory, NetworkCut};

use super::group_event::LeaderFault;
use super::group_hosts::{GroupHosts, WatchdogSystem};

/// Hosts of a group.
pub const HOSTS: usize = 3;
/// How long a fault lasts: nobody who takes the address at all takes longer.
const FAULT: Duration = Duration::from_secs(20);
/// After it ended.
const AFTER: Duration = Duration::from_secs(5);
/// Time in which the processors of a group at rest are watched, after its start has settled.
const REST: Duration = Duration::from_secs(20);
const SETTLE: Duration = Duration::from_secs(3);

/// Milliseconds until another host answered at the address (`null`: never), without an answer, without a host, and with several.
pub fn play(fault: LeaderFault, system: WatchdogSystem, program: &Path) -> Result<Value> {
    let group = GroupHosts::start(system, program, HOSTS, 0, &[])?;
    thread::sleep(SETTLE);
    let leader = group.leader()?;
    let begun = Instant::now();
    match fault {
        LeaderFault::Killed => group.signal(leader, Signal::KILL)?,
        LeaderFault::Stopped => group.signal(leader, Signal::STOP)?,
        LeaderFault::Isolated => group.network.cut(leader, NetworkCut::Apart)?,
        LeaderFault::Deaf => group.network.cut(leader, NetworkCut::Deaf)?,
        LeaderFault::Graceful => group.stop(leader)?,
    }
    thread::sleep(FAULT);
    match fault {
        LeaderFault::Stopped => group.signal(leader, Signal::CONT)?,
        LeaderFault::Isolated | LeaderFault::Deaf => group.network.mend()?,
        LeaderFault::Killed | LeaderFault::Graceful => {}
    }
    thread::sleep(AFTER);
    let history = group.watch.as_ref().context("a group is watched")?.history().since(begun);
    Ok(json!({
        "answers_elsewhere_ms": answers_elsewhere(&history, leader, begun).map(ms),
        "without_answer_ms": ms(history.longest_silence(begun)),
        "without_host_ms": ms(history.longest_without()),
        "several_hosts_ms": ms(history.with_several()),
    }))
}

/// Seconds of a processor that each host took in a second at rest, in millionths.
pub fn rest(system: WatchdogSystem, program: &Path) -> Result<Value> {
    let group = GroupHosts::start(system, program, HOSTS, 0, &[])?;
    thread::sleep(SETTLE);
    let leader = group.leader()?;
    // The asking at the address is work of the leader's, and not what is measured here.
    let mut group = group;
    group.watch = None;
    let (before, begun) = (group.cpu_seconds()?, Instant::now());
    thread::sleep(REST);
    let (after, took) = (group.cpu_seconds()?, begun.elapsed().as_secs_f64());
    let shares: Vec<u64> = before.iter().zip(&after).map(|(before, after)| millionths((after - before) / took)).collect();
    let followers: Vec<u64> = shares.iter().enumerate().filter(|(host, _)| *host != leader).map(|(_, share)| *share).collect();
    Ok(json!({ "leader_cpu": shares[leader], "follower_cpu": followers.iter().max() }))
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a share of a few processors
fn millionths(share: f64) -> u64 {
    (share * 1e6) as u64
}

/// The first answer since another host has it.
fn answers_elsewhere(history: &AddressHistory, leader: usize, begun: Instant) -> Option<Duration> {
    let taken = history.holders.iter().find(|holders| holders.hosts.iter().any(|host| *host != leader))?;
    let answer = history.answers.iter().find(|at| **at >= taken.at)?;
    Some(*answer - begun)
}

pub fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
