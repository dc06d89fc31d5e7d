//! Histories of clients that write through all hosts while the primary dies, and hosts about that time: where a standby acknowledges each commit nothing
//! acknowledged is missing, and elsewhere nothing beyond the loss that the group reports.

use super::host_group::check_nothing_is_missing;
use super::*;
use crate::etcd::etcd_servers::EtcdServers;
use std::time::SystemTime;
use weir_demo::{Acknowledged, NetworkCut};

/// Something that happens to a host as the primary dies.
#[derive(Clone, Copy, Debug)]
enum HostFault {
    None,
    LeaderKilled,
    LeaderStopped,
    LeaderCut(NetworkCut),
    FollowerCut(NetworkCut),
}

/// Writes while nothing goes to the standbys.
const UNSENT: usize = 40;
/// Age in the words of a loss is rounded down.
const ROUNDING: Duration = Duration::from_millis(5);
const DAY_MS: u64 = 86_400_000;

/// Processes that send the log of a server.
struct LogSenders(Vec<Pid>);

impl LogSenders {
    /// From then on the server keeps its log to itself.
    fn stop(server: &Server) -> LogSenders {
        let rows = server.query("select pid from pg_stat_replication").unwrap();
        let pids = rows.into_iter().flatten().flatten().map(|pid| Pid::from_raw(pid.parse().unwrap()).unwrap());
        let senders = LogSenders(pids.collect());
        senders.0.iter().for_each(|pid| kill_process(*pid, Signal::STOP).unwrap());
        senders
    }
}

impl Drop for LogSenders {
    /// The server is gone: nobody else ends those that stand still.
    fn drop(&mut self) {
        for pid in &self.0 {
            let _ = kill_process(*pid, Signal::KILL);
        }
    }
}

struct HistoryScene {
    network: std::sync::Arc<weir_demo::HostNetwork>,
    cluster: Owned,
    group: HostGroup,
    _etcd: Option<EtcdServers>,
}

/// Engine of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Engine {
    Builtin,
    Etcd,
}

impl HistoryScene {
    /// `None`: the test is left out.
    fn start(conf: &[(&str, &str)], engine: Engine) -> Option<HistoryScene> {
        let network = host_network(3, 1)?;
        let mut lines = "log_line_prefix = '%m: '\n".to_owned();
        let mut etcd = None;
        if engine == Engine::Etcd {
            let servers = EtcdServers::start_at(&network.outside(0).to_string(), 3)?;
            lines += &format!("wd_engine = etcd\nwd_etcd_endpoints = '{}'\n", servers.outside_urls().join(","));
            etcd = Some(servers);
        }
        let cluster = servers_for(&network, 2, conf);
        let group = HostGroup::start(&network, &cluster, &lines);
        Some(HistoryScene { network, cluster, group, _etcd: etcd })
    }

    fn loads(&self) -> Vec<Load> {
        (0..3).map(|host| self.group.load_at(host)).chain([self.group.load_at_address()]).collect()
    }

    /// The primary dies with its senders, and this happens to a host. All ends well.
    fn strike(&mut self, fault: HostFault, senders: LogSenders) {
        let (leader, follower) = (self.group.leader(), self.group.others()[0]);
        match fault {
            HostFault::None => {}
            HostFault::LeaderKilled => self.group.weirs[leader].kill(),
            HostFault::LeaderStopped => self.group.weirs[leader].signal(Signal::STOP),
            HostFault::LeaderCut(cut) => self.network.cut(leader, cut).unwrap(),
            HostFault::FollowerCut(cut) => self.network.cut(follower, cut).unwrap(),
        }
        self.cluster.primary().kill9().unwrap();
        drop(senders);
        let away = match fault {
            HostFault::None => None,
            HostFault::LeaderKilled | HostFault::LeaderStopped | HostFault::LeaderCut(_) => Some(leader),
            HostFault::FollowerCut(_) => Some(follower),
        };
        for host in (0..3).filter(|host| Some(*host) != away) {
            let weir = &self.group.weirs[host];
            wait_until("writes to go to the new primary", || weir.log().contains("in epoch 2") && weir.writes());
        }
        match fault {
            HostFault::None => {}
            HostFault::LeaderKilled => self.group.weirs[leader].start_again(),
            HostFault::LeaderStopped => self.group.weirs[leader].signal(Signal::CONT),
            HostFault::LeaderCut(_) | HostFault::FollowerCut(_) => self.network.mend().unwrap(),
        }
        self.group.wait_whole();
    }

    /// Losses of the failover that hosts report in their logs, and show.
    fn reports(&self) -> Vec<ReportedLoss> {
        let mut reports = Vec::new();
        for weir in &self.group.weirs {
            let log = weir.log();
            let shown = weir.ask("show pool_failover").unwrap();
            for line in log.lines().filter(|line| line.contains("is the primary after node 0")) {
                let (_, loss) = line.split_once("lost: ").unwrap();
                // The age is told of the moment, the rest is of the failover.
                let lasting = loss.split_once("; ").map_or(loss, |(_, bytes)| bytes);
                assert!(shown.iter().flatten().flatten().any(|text| text.ends_with(lasting)), "{loss}: {shown:?}");
                reports.extend(ReportedLoss::of(line));
            }
        }
        reports
    }
}

/// A loss, as a host words it.
#[derive(Debug)]
enum ReportedLoss {
    Nothing,
    /// Writes acknowledged since then.
    Since(Instant),
    Unknown,
}

impl ReportedLoss {
    fn of(line: &str) -> Option<ReportedLoss> {
        let (_, loss) = line.split_once("lost: ")?;
        if loss.starts_with("nothing") {
            return Some(ReportedLoss::Nothing);
        }
        let Some((_, rest)) = loss.split_once("acknowledged in the ") else { return Some(ReportedLoss::Unknown) };
        let age_ms = rest.split(' ').next()?.parse().ok()?;
        Some(ReportedLoss::Since(time_of(line)? - Duration::from_millis(age_ms)))
    }

    fn covers(&self, (_, at): &Acknowledged) -> bool {
        match self {
            ReportedLoss::Nothing => false,
            ReportedLoss::Since(since) => *at + ROUNDING >= *since,
            ReportedLoss::Unknown => true,
        }
    }
}

/// Time of a line of a log, which begins with `YYYY-MM-DD hh:mm:ss.mmm`.
fn time_of(line: &str) -> Option<Instant> {
    let clock = line.split(' ').nth(1)?.trim_end_matches(':');
    let (seconds, millis) = clock.split_once('.')?;
    let mut parts = seconds.split(':').map(|part| part.parse::<u64>().ok());
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
    let of_day = ((hours * 60 + minutes) * 60 + seconds) * 1_000 + millis.parse::<u64>().ok()?;
    let now_ms = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?.as_millis() as u64;
    Some(Instant::now() - Duration::from_millis((now_ms % DAY_MS + DAY_MS - of_day) % DAY_MS))
}

/// Standbys lack the last writes, since nothing was sent to them.
fn check_asynchronous(engine: Engine, fault: HostFault) {
    let Some(mut scene) = HistoryScene::start(&[], engine) else { return };
    let name = format!("asynchronous, {engine:?}, {fault:?}");
    let (loads, begun) = (scene.loads(), Instant::now());
    let senders = LogSenders::stop(scene.cluster.primary());
    loads.iter().for_each(|load| load.wait_acknowledged(UNSENT));
    scene.strike(fault, senders);
    loads.iter().for_each(|load| load.wait_acknowledged(50));
    scene.group.check(&name, begun);
    wait_until("one primary", || primaries(&scene.cluster).len() == 1);
    let [new] = primaries(&scene.cluster)[..] else { panic!("{name}: one primary") };
    let missing: Vec<Acknowledged> = loads.into_iter().flat_map(|load| load.end().missing_on(new)).collect();
    let reports = scene.reports();
    let first = missing.iter().map(|(_, at)| *at).min();
    for report in &reports {
        if let (ReportedLoss::Since(since), Some(first)) = (report, first) {
            eprintln!(
                "{name}: the first of {} missing writes is {} ms after the reported time",
                missing.len(),
                first.saturating_duration_since(*since).as_millis()
            );
        }
    }
    assert!(missing.len() >= UNSENT, "{name}: {} writes are missing", missing.len());
    assert!(!reports.is_empty(), "{name}: nobody reports a loss");
    for report in &reports {
        let beyond: Vec<&Acknowledged> = missing.iter().filter(|write| !report.covers(write)).collect();
        assert!(beyond.is_empty(), "{name}: {report:?} does not cover {beyond:?}");
    }
}

fn check_synchronous(engine: Engine, fault: HostFault) {
    let Some(mut scene) = HistoryScene::start(&[ANY], engine) else { return };
    let name = format!("ANY 1, {engine:?}, {fault:?}");
    let (loads, begun) = (scene.loads(), Instant::now());
    scene.strike(fault, LogSenders(Vec::new()));
    loads.iter().for_each(|load| load.wait_acknowledged(50));
    scene.group.check(&name, begun);
    check_nothing_is_missing(&name, &scene.cluster, loads);
}

#[test]
fn asynchronous_standbys_lose_nothing_beyond_the_report_when_the_primary_dies() {
    check_asynchronous(Engine::Builtin, HostFault::None);
}

#[test]
fn asynchronous_standbys_lose_nothing_beyond_the_report_when_the_leader_dies_with_the_primary() {
    check_asynchronous(Engine::Builtin, HostFault::LeaderKilled);
    check_asynchronous(Engine::Builtin, HostFault::LeaderStopped);
}

#[test]
fn asynchronous_standbys_lose_nothing_beyond_the_report_when_a_host_is_cut_off_as_the_primary_dies() {
    check_asynchronous(Engine::Builtin, HostFault::LeaderCut(NetworkCut::Apart));
    check_asynchronous(Engine::Builtin, HostFault::LeaderCut(NetworkCut::FromHosts));
    check_asynchronous(Engine::Builtin, HostFault::FollowerCut(NetworkCut::FromHosts));
}

#[test]
fn acknowledged_writes_are_there_when_a_host_is_cut_off_as_the_primary_dies() {
    check_synchronous(Engine::Builtin, HostFault::LeaderCut(NetworkCut::Apart));
    check_synchronous(Engine::Builtin, HostFault::LeaderCut(NetworkCut::Mute));
    check_synchronous(Engine::Builtin, HostFault::FollowerCut(NetworkCut::Apart));
    check_synchronous(Engine::Builtin, HostFault::FollowerCut(NetworkCut::FromHosts));
}

#[test]
fn with_etcd_acknowledged_writes_are_there_when_the_leader_dies_with_the_primary() {
    check_synchronous(Engine::Etcd, HostFault::LeaderKilled);
    check_synchronous(Engine::Etcd, HostFault::LeaderCut(NetworkCut::Apart));
}

#[test]
fn with_etcd_asynchronous_standbys_lose_nothing_beyond_the_report() {
    check_asynchronous(Engine::Etcd, HostFault::None);
    check_asynchronous(Engine::Etcd, HostFault::LeaderKilled);
}
