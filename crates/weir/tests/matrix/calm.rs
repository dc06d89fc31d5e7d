//! Checks when nothing happens to the servers, beside those of the clients themselves.

use crate::load::{CLIENTS, READ};
use crate::stage::Stage;
use crate::support::time::let_pass;
use crate::table::Causal;
use std::fs;
use std::thread;
use std::time::Duration;

/// Reads of each client while shares are measured.
const READS_EACH: usize = 300;
/// Sessions while shares are measured that each keep to one node.
const SESSIONS: usize = 240;
/// Allowed difference of a share from its weight's, in percent: over four standard deviations of that many reads.
const SHARE_OFF_BY_MAX: f64 = 3.0;
/// Allowed difference for that many sessions.
const SESSIONS_OFF_BY_MAX: f64 = 13.0;
/// A server that other programs starve answers late, and gets less than its weight by intention: such a measurement is taken again.
/// Shares that are wrong by more than chance are never right in one of so many.
const SHARES_MEASURED_TIMES_MAX: usize = 12;
/// The limit of the other measurements, which a starved machine makes wrong more rarely.
const MEASURED_TIMES_MAX: usize = 3;
/// Writes, and reads behind each, while hits are counted.
const WRITES: usize = 5;
const READS_BEHIND: usize = 40;
/// Hits of a hundred reads that there must be.
const HITS_PERCENT_MIN: usize = 75;
/// How long an idle proxy is looked at.
const IDLE: Duration = Duration::from_secs(2);
/// Processor time it may take then, in hundredths of a second.
const IDLE_TICKS_MAX: u64 = 10;

/// The nodes' shares of the reads are their weights'.
pub fn weights(stage: &Stage<'_>) -> Vec<String> {
    if stage.row.keeps_results() {
        return Vec::new();
    }
    [false, true].into_iter().flat_map(|writes| shares_off_each_time(stage, writes)).collect()
}

/// Complaints of the last measurement, unless one had none.
fn shares_off_each_time(stage: &Stage<'_>, writes: bool) -> Vec<String> {
    let mut off = Vec::new();
    for _ in 0..SHARES_MEASURED_TIMES_MAX {
        off = shares_off(stage, writes);
        if off.is_empty() {
            break;
        }
        println!("{}: measured again: {}", stage.row, off.join("; "));
    }
    off
}

/// The shares that are not their weights', with one write in ten or without any.
fn shares_off(stage: &Stage<'_>, writes: bool) -> Vec<String> {
    let per_statement = stage.row.is_on("level");
    let before = stage.reads_by_node();
    if per_statement {
        read_at_once(stage, writes);
    } else {
        read_in_many_sessions(stage, writes);
    }
    let off_by_max = if per_statement { SHARE_OFF_BY_MAX } else { SESSIONS_OFF_BY_MAX };
    let counts: Vec<u64> = stage.reads_by_node().iter().zip(before).map(|(after, before)| after - before).collect();
    // All sessions read what the others write: a standby that has not replayed it in time leaves reads to the primary.
    let first = usize::from(writes && stage.row.causal() == Causal::Tables);
    let shown = || counts.iter().zip(stage.row.weights()).enumerate().skip(first);
    let (reads, total) = shown().fold((0.0, 0), |(reads, total), (_, (count, weight))| (reads + *count as f64, total + weight));
    let mut off = Vec::new();
    for (node, (count, weight)) in shown().filter(|_| total > 0) {
        let (share, wanted) = (100.0 * *count as f64 / reads, 100.0 * f64::from(weight) / f64::from(total));
        if (share - wanted).abs() > off_by_max {
            let how = if writes { "with one write in ten" } else { "only read" };
            off.push(format!("{how}, node {node} has {share:.1} % of the reads, not {wanted:.1} % ({counts:?})"));
        }
    }
    off
}

/// Sessions read at the same time, each statement where it likes.
fn read_at_once(stage: &Stage<'_>, writes: bool) {
    thread::scope(|scope| {
        for me in 0..CLIENTS {
            scope.spawn(move || {
                let mut client = stage.client(&[]);
                for at in 0..READS_EACH {
                    if writes && at % 10 == 0 {
                        client.run(&format!("update counter set v = v + 1 where k = {me}"));
                    }
                    client.run(&READ.replace("$1", &me.to_string()));
                }
            });
        }
    });
}

/// Sessions read one after the other, each on the node it was given.
fn read_in_many_sessions(stage: &Stage<'_>, writes: bool) {
    for me in 0..SESSIONS {
        let mut client = stage.client(&[]);
        for at in 0..10 {
            if writes && at == 5 {
                client.run("update counter set v = v + 1 where k = 0");
            }
            client.run(&READ.replace("$1", &(me % CLIENTS).to_string()));
        }
    }
}

/// Behind a session's own write its reads come from memory again.
pub fn hits(stage: &Stage<'_>) -> Vec<String> {
    // Without causal reads a standby may take its time to show the write, and until then its answers are not cached.
    let waits_for_standbys = stage.row.causal() == Causal::Off && stage.row.weights()[1..].iter().any(|weight| *weight > 0);
    if !stage.row.keeps_results() || waits_for_standbys {
        return Vec::new();
    }
    // A machine that other programs starve takes longer to show a write, and reads ask until then: it is measured again.
    let measured: Vec<usize> = (0..MEASURED_TIMES_MAX).map(|_| hits_behind_writes(stage)).collect();
    let is_fine = measured.iter().any(|hits| hits * 100 >= WRITES * READS_BEHIND * HITS_PERCENT_MIN);
    if is_fine {
        Vec::new()
    } else {
        vec![format!("{measured:?} of {} reads behind own writes came from memory", WRITES * READS_BEHIND)]
    }
}

fn hits_behind_writes(stage: &Stage<'_>) -> usize {
    let mut client = stage.client(&[]);
    let before = stage.hits();
    for _ in 0..WRITES {
        client.run("update counter set v = v + 1 where k = 0");
        for _ in 0..READS_BEHIND {
            client.run(&READ.replace("$1", "0"));
        }
    }
    (stage.hits() - before) as usize
}

/// With clients that say nothing the proxy sleeps.
pub fn idle(stage: &Stage<'_>) -> Vec<String> {
    let clients: Vec<_> = (0..CLIENTS).map(|_| stage.client(&[])).collect();
    let measure = |()| {
        let before = ticks(stage);
        let_pass(IDLE);
        ticks(stage) - before
    };
    // A look at a catalog may fall into one of them.
    let mut taken: Vec<u64> = vec![measure(())];
    while taken.last().is_some_and(|last| *last > IDLE_TICKS_MAX) && taken.len() < MEASURED_TIMES_MAX {
        taken.push(measure(()));
    }
    drop(clients);
    let is_fine = taken.last().is_some_and(|last| *last <= IDLE_TICKS_MAX);
    let seconds = IDLE.as_secs();
    if is_fine {
        Vec::new()
    } else {
        vec![format!("{taken:?} hundredths of a second of processor time in {seconds} idle seconds each")]
    }
}

/// Processor time so far. Source: proc(5), fields 14 and 15 of `stat`; the name before them may hold blanks.
fn ticks(stage: &Stage<'_>) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", stage.proxy.pid())).expect("the proxy runs");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("a name in brackets").split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Nothing is complained of that the row's configuration does not explain.
pub fn log(stage: &Stage<'_>) -> Vec<String> {
    let log = stage.proxy.log();
    let is_wrong = |line: &&str| ["WARNING: ", "ERROR: ", "FATAL: ", "PANIC: "].iter().any(|level| line.contains(level));
    // Tests run as whoever runs them.
    let is_explained = |line: &&str| line.contains("the process runs as root");
    log.lines().filter(is_wrong).filter(|line| !is_explained(line)).map(|line| format!("logged: {line}")).collect()
}
