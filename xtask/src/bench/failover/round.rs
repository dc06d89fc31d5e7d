//! One round: load, fault, recovery, count, repair.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use weir_demo::{Cluster, Crew, Load, Mode, Noted, Server, wait_until};

use super::returned::{self, RETURN_LIMIT, Returned};
use super::row::{Commit, Fault, Row, Spared, Victim};
use super::system::Running;
use super::told::{Counters, Told};

/// Clients of a round.
const CREW: Crew = Crew {
    writers: 0,
    transactions: super::CLIENTS - super::IDLE,
    readers: super::READERS,
    idle: super::IDLE,
    pause: Duration::from_millis(5),
    first: 0,
};
/// Clients where agents bring servers back. All stands on one machine: clients that take all of it would measure how little they leave
/// to a rewind.
const CREW_OF_RETURNS: Crew =
    Crew { writers: 0, transactions: 10, readers: 5, idle: 20, pause: Duration::from_millis(20), first: 0 };
/// Writes that are acknowledged before the fault.
pub const WARM_WRITES: usize = 500;
/// The longest wait for writes to go on.
const OVER_LIMIT: Duration = Duration::from_secs(60);
/// Acknowledgements after which writes count as going on.
pub const GOING_ON: usize = 200;
/// The load after that, in which late failures come.
const CALM: Duration = Duration::from_secs(1);
/// The load after a standby's fault: longer than its discovery takes.
const STANDBY_TIME: Duration = Duration::from_secs(6);
const LOOK_PAUSE: Duration = Duration::from_millis(20);
const FOLLOW_LIMIT: Duration = Duration::from_secs(15);
/// Lines of Weir's log that are told.
const TOLD: [&str; 5] = ["is the primary after", "writes wait", "is given up", "by its agent: done", "is copied"];
/// Failed reads of a round that are told.
const FAILED_SHOWN: usize = 3;
const DAY_MS: u64 = 86_400_000;

/// The numbers of a round.
#[derive(Debug, Default)]
pub struct Round {
    pub gap: Duration,
    pub noted: Noted,
    /// Acknowledged writes that the new primary lacks, and those of them that the proxy did not report.
    pub missing: usize,
    pub unreported: usize,
    pub goes_on: bool,
    /// Where clients are spared something.
    pub told: Option<Told>,
    /// Where there are agents.
    pub returned: Option<Returned>,
}

impl Round {
    /// For the kept file.
    pub fn json(&self) -> Value {
        let mut failed: BTreeMap<&str, usize> = BTreeMap::new();
        for (sqlstate, _) in &self.noted.errors {
            *failed.entry(sqlstate).or_default() += 1;
        }
        let mut json = json!({
            "gap_ms": ms(self.gap),
            "goes_on": self.goes_on,
            "disconnected": self.noted.disconnected,
            "sessions_lost": self.noted.lost,
            "failed": failed,
            "acknowledged": self.noted.acknowledged.len(),
            "missing": self.missing,
            "unreported": self.unreported,
            "reads": self.noted.reads,
            "failed_reads": self.noted.failed_reads.len(),
            "slowest_read_ms": ms(self.noted.slowest_read),
        });
        if let Some(told) = &self.told {
            json["told"] = told.json();
        }
        if let Some(returned) = &self.returned {
            returned.add_to(&mut json);
        }
        json
    }
}

pub fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Plays one round, adds its numbers to `rounds`, and mends the servers after it.
pub fn play(
    row: &Row,
    (fault, victim): (Fault, Victim),
    cluster: &Cluster,
    proxy: &mut Running,
    rounds: &mut Vec<Value>,
) -> Result<()> {
    let primary = cluster.writable()?;
    primary.query("truncate written")?;
    if row.commit == Commit::Any {
        // Standbys that count as acknowledging must be there.
        cluster.wait_streaming(super::SERVERS - 1)?;
    }
    let server = match victim {
        Victim::Primary => primary,
        Victim::Standby => last_standby(cluster, primary)?,
    };
    let said_before = proxy.log().len();
    let counted_before = counters(row, proxy)?;
    let load = Load::begin(proxy.port(), if row.has_agents() { CREW_OF_RETURNS } else { CREW })?;
    load.wait_acknowledged(WARM_WRITES)?;
    let begun = Instant::now();
    meet(fault, server)?;
    // The return is seen while writes are waited for: it may come first.
    let (new, returned_after) = thread::scope(|scope| {
        let watch = row.has_agents().then(|| scope.spawn(|| returned::wait(cluster, server, begun)));
        let new = match victim {
            Victim::Primary => wait_over(cluster, server, &load),
            Victim::Standby => {
                thread::sleep(STANDBY_TIME);
                Some(primary)
            }
        };
        (new, watch.and_then(|watch| watch.join().ok().flatten()))
    });
    let ended = Instant::now();
    let noted = load.end();
    let lacked = new.map(|new| noted.missing_on(new)).transpose()?.unwrap_or_default();
    let log = proxy.log();
    let log = log.get(said_before..).unwrap_or_default();
    let reported = reported_since(log);
    let unreported = lacked.iter().filter(|(_, at)| reported.is_none_or(|since| *at < since)).count();
    let told = match (counted_before, counters(row, proxy)?, new) {
        (Some(before), Some(after), Some(new)) => Some(Told::of(&noted, after.since(before), new, unreported)?),
        _ => None,
    };
    let returned = row.has_agents().then(|| returned_in(log, returned_after, new)).transpose()?;
    show(&noted, log);
    let (gap, missing, goes_on) = (gap(&noted, begun, ended), lacked.len(), new.is_some());
    rounds.push(Round { gap, missing, unreported, goes_on, told, returned, noted }.json());
    let Some(new) = new else { bail!("writes did not go on within {} s:\n{}", OVER_LIMIT.as_secs(), proxy.last_words()) };
    if row.has_agents() {
        cluster.wait_streaming(super::SERVERS - 1)?
    } else {
        mend((fault, victim), cluster, server, new)?
    }
    proxy.use_all_again()
}

fn last_standby<'c>(cluster: &'c Cluster, primary: &Server) -> Result<&'c Server> {
    cluster.servers().iter().rev().find(|server| server.port() != primary.port()).context("no standby")
}

fn meet(fault: Fault, server: &Server) -> Result<()> {
    match fault {
        Fault::Killed => server.kill9(),
        Fault::Stopped => server.stop(Mode::Fast),
        Fault::Hung => {
            server.freeze();
            Ok(())
        }
    }
}

fn returned_in(log: &str, after: Option<Duration>, new: Option<&Server>) -> Result<Returned> {
    let by = if after.is_some() { returned::deed_in(log) } else { "nothing" };
    let database_bytes = new.map(returned::database_bytes).transpose()?.unwrap_or_default();
    Ok(Returned { after: after.or(Some(RETURN_LIMIT)), by, database_bytes })
}

/// Failures that explain the numbers, and the log's lines about the primary.
pub fn show(noted: &Noted, log: &str) {
    for (sqlstate, message) in noted.failed_reads.iter().take(FAILED_SHOWN) {
        eprintln!("  a read failed: {sqlstate} {message}");
    }
    let is_odd = |sqlstate: &str| !matches!(sqlstate, "40001" | "08007");
    for (sqlstate, message) in noted.errors.iter().filter(|(sqlstate, _)| is_odd(sqlstate)).take(FAILED_SHOWN) {
        eprintln!("  a write failed: {sqlstate} {message}");
    }
    let is_told = |line: &&str| TOLD.iter().any(|words| line.contains(words));
    for line in log.lines().filter(is_told) {
        eprintln!("  {line}");
    }
}

fn counters(row: &Row, proxy: &Running) -> Result<Option<Counters>> {
    if row.spared == Spared::Nothing { Ok(None) } else { Counters::read(proxy.port()).map(Some) }
}

/// The longest time without an acknowledgement after the fault; a last one that does not end counts to the end of the load.
pub fn gap(noted: &Noted, begun: Instant, ended: Instant) -> Duration {
    let mut times: Vec<Instant> = noted.acknowledged.iter().map(|(_, at)| *at).filter(|at| *at > begun && *at < ended).collect();
    times.extend([begun, ended]);
    times.sort_unstable();
    times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
}

/// Waits until another server takes writes and clients hear of it. Gives that server.
fn wait_over<'c>(cluster: &'c Cluster, victim: &Server, load: &Load) -> Option<&'c Server> {
    let end = Instant::now() + OVER_LIMIT;
    let mut new: Option<(&Server, usize)> = None;
    while Instant::now() < end {
        match new {
            Some((server, before)) if load.acknowledged() >= before + GOING_ON => {
                thread::sleep(CALM);
                return Some(server);
            }
            Some(_) => {}
            None => {
                let is_new =
                    |server: &&Server| server.port() != victim.port() && server.in_recovery().is_ok_and(|recovers| !recovers);
                new = cluster.servers().iter().find(is_new).map(|server| (server, load.acknowledged()));
            }
        }
        thread::sleep(LOOK_PAUSE);
    }
    None
}

/// Makes a primary and standbys of all servers again.
fn mend((fault, victim): (Fault, Victim), cluster: &Cluster, server: &Server, new: &Server) -> Result<()> {
    match (victim, fault) {
        (Victim::Standby, Fault::Hung) => server.thaw(),
        (Victim::Standby, _) => server.start()?,
        (Victim::Primary, _) => {
            server.kill9()?;
            server.clone_from(new)?;
        }
    }
    for standby in cluster.servers().iter().filter(|server| server.port() != new.port()) {
        if wait_until("a standby to stream", FOLLOW_LIMIT, || returned::streams(standby, new)).is_err() {
            eprintln!("  server {} does not follow: it is made a copy", standby.name());
            standby.clone_from(new)?;
        }
    }
    cluster.wait_streaming(super::SERVERS - 1)
}

/// Since when writes may be lost, by the log of Weir; `None` if nothing was reported.
fn reported_since(log: &str) -> Option<Instant> {
    let line = log.lines().rev().find(|line| line.contains("is the primary after"))?;
    let (since_day_ms, wall) = (reported_of(line)?, SystemTime::now().duration_since(UNIX_EPOCH).ok()?);
    let day_ms = ms(wall) % DAY_MS;
    Instant::now().checked_sub(Duration::from_millis((day_ms + DAY_MS - since_day_ms) % DAY_MS))
}

/// The time of the day, in ms, after which acknowledged writes may be lost. `2026-11-25 11:34:31.333: ... in the 4640 ms before; ...`
fn reported_of(line: &str) -> Option<u64> {
    let time = line.split_whitespace().nth(1)?.trim_end_matches(':');
    let (clock, millis) = time.split_once('.')?;
    let mut seconds = 0;
    for part in clock.split(':') {
        seconds = seconds * 60 + part.parse::<u64>().ok()?;
    }
    let (_, rest) = line.split_once("acknowledged in the ")?;
    let before: u64 = rest.split_whitespace().next()?.parse().ok()?;
    Some((seconds * 1000 + millis.parse::<u64>().ok()? + DAY_MS - before) % DAY_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_a_loss_is_read_from_the_log() {
        let line = "2026-11-25 00:00:01.500: [x] pid 1: WARNING:  node 0 is the primary after node 1 (x); lost: at most what was acknowledged in the 500 ms before; at least 0 bytes of log";
        assert_eq!(reported_of(line), Some(1000));
        assert_eq!(reported_of(&line.replace("500 ms", "2000 ms")), Some(DAY_MS - 500));
        assert_eq!(reported_of("2026-11-25 00:00:01.500: lost: nothing that was acknowledged"), None);
    }
}
