//! The primary dies while clients write through each Weir; either standby acknowledges every commit.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Signal;
use serde_json::{Value, json};
use weir_demo::{Crew, Load, wait_until};

use super::address_round::{HOSTS, ms};
use super::group_event::WriteCompany;
use super::group_hosts::{GroupHosts, WatchdogSystem};

const ANY: (&str, &str) = ("synchronous_standby_names", "ANY 1 (primary, standby1, standby2)");
/// Between two writes of a client.
const PACE: Duration = Duration::from_millis(5);
/// Before the fault, and after it, at each Weir.
const WRITES: usize = 300;
/// Until the lost follower is marked.
const LOST_LIMIT: Duration = Duration::from_secs(30);
/// Longer than the lease that a marked host may still have.
const LOST_FOR: Duration = Duration::from_secs(3);

/// Milliseconds without an acknowledged write at those Weirs that live: the longest and the shortest of them.
pub fn play(company: WriteCompany, program: &Path) -> Result<Value> {
    let hosts = if company == WriteCompany::Single { 1 } else { HOSTS };
    let group = GroupHosts::start(WatchdogSystem::Weir, program, hosts, 2, &[ANY])?;
    let leader = if hosts == 1 { 0 } else { group.leader()? };
    let follower = (leader + 1) % hosts;
    let victim = match company {
        WriteCompany::Single | WriteCompany::Three => None,
        WriteCompany::TwoOfThree | WriteCompany::WithFollower => Some(follower),
        WriteCompany::WithLeader => Some(leader),
    };
    let living: Vec<usize> = (0..hosts).filter(|host| Some(*host) != victim).collect();
    for host in 0..hosts {
        wait_until("writes to be taken", LOST_LIMIT, || Ok(takes_writes(&group, host)))?;
    }
    if company == WriteCompany::TwoOfThree {
        group.signal(follower, Signal::KILL)?;
        wait_until("the lost host to be marked", LOST_LIMIT, || Ok(group.last_words().contains("is lost: it was silent")))?;
        thread::sleep(LOST_FOR);
    }
    let crew =
        |host: usize| Crew { writers: 4, pause: PACE, first: 10_000_000 * i64::try_from(host).unwrap_or(0), ..Crew::default() };
    let loads = living.iter().map(|host| Load::begin_at(&group.place(*host), crew(*host))).collect::<Result<Vec<Load>>>()?;
    loads.iter().try_for_each(|load| load.wait_acknowledged(WRITES))?;
    group.cluster.primary().kill9()?;
    if let Some(victim) = victim.filter(|_| company != WriteCompany::TwoOfThree) {
        group.signal(victim, Signal::KILL)?;
    }
    loads.iter().try_for_each(|load| load.wait_acknowledged(WRITES)).with_context(|| group.last_words())?;
    let new = group.cluster.servers().iter().find(|server| server.in_recovery().is_ok_and(|recovers| !recovers));
    let new = new.context("one server takes writes")?;
    let (mut gaps, mut missing, mut acknowledged) = (Vec::new(), 0, 0);
    for load in loads {
        let noted = load.end();
        gaps.push(ms(noted.gap()));
        missing += noted.missing_on(new)?.len();
        acknowledged += noted.acknowledged.len();
    }
    Ok(json!({
        "without_writes_ms": gaps.iter().max(),
        "without_writes_least_ms": gaps.iter().min(),
        "missing": missing,
        "acknowledged": acknowledged,
    }))
}

fn takes_writes(group: &GroupHosts, host: usize) -> bool {
    let place = group.place(host);
    let asked = weir_demo::Sql::connect_tcp_within(&place.host, place.port, "postgres", "postgres", Duration::from_secs(5));
    asked.is_ok_and(|mut sql| sql.query("insert into readable values (7)").is_ok())
}
