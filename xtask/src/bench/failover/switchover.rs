//! Switchovers back and forth, under one load that goes on over all of them.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};
use weir_demo::{Cluster, Crew, Load, Noted, Server};

use super::returned::{self, RETURN_LIMIT, Returned};
use super::round::{self, GOING_ON, Round, WARM_WRITES};
use super::system::Running;

/// Without a pause between their deeds: there is always a statement under way.
const CREW: Crew = Crew { writers: 2, transactions: 2, readers: 2, idle: 20, pause: Duration::ZERO, first: 0 };

/// The notes of the load up to the end of a switchover, and how many of their acknowledged writes were missing then.
struct SoFar {
    noted: Noted,
    missing: usize,
}

/// Moves the primary until there are so many rounds.
pub fn play(cluster: &Cluster, proxy: &mut Running, rounds: usize, done: &mut Vec<Value>) -> Result<()> {
    let load = Load::begin(proxy.port(), CREW)?;
    load.wait_acknowledged(WARM_WRITES)?;
    let mut so_far = SoFar { noted: load.noted(), missing: 0 };
    while done.len() < rounds {
        let old = cluster.writable()?;
        let node = next(cluster.primary().port() == old.port(), done.len());
        let (said_before, begun) = (proxy.log().len(), Instant::now());
        let answer = proxy.move_primary(node);
        let returned = returned(&answer, cluster, old, begun)?;
        // A switchover after which all is not well counts, too.
        let settled = settle(cluster, proxy, &load);
        let round = count(
            cluster,
            &load,
            begun,
            &mut so_far,
            Round { goes_on: settled.is_ok(), returned: Some(returned), ..Round::default() },
        );
        let log = proxy.log();
        round::show(&round.noted, log.get(said_before..).unwrap_or_default());
        done.push(round.json());
        eprintln!("switchover {} to node {node}: {}", done.len(), done[done.len() - 1]);
        settled?;
    }
    // The idle ones are asked at the end.
    let late = load.end().since(&so_far.noted);
    round::show(&late, "");
    if let Some(last) = done.last_mut() {
        for (name, more) in [("disconnected", late.disconnected), ("sessions_lost", late.lost)] {
            last[name] = json!(last[name].as_u64().unwrap_or_default() + more as u64);
        }
    }
    Ok(())
}

/// Back and forth between the first node and one of the others. A switchover that was refused has left the primary where it was.
fn next(is_first_primary: bool, done: usize) -> usize {
    match (is_first_primary, done % 4) {
        (false, _) => 0,
        (true, 0 | 1) => 1,
        (true, _) => 2,
    }
}

fn returned(answer: &Result<()>, cluster: &Cluster, old: &Server, begun: Instant) -> Result<Returned> {
    let (by, after) = match answer {
        Ok(()) => match returned::wait(cluster, old, begun) {
            Some(after) => ("start", Some(after)),
            None => ("nothing", Some(RETURN_LIMIT)),
        },
        Err(why) => {
            eprintln!("  refused: {why:#}");
            ("refused", None)
        }
    };
    Ok(Returned { after, by, database_bytes: returned::database_bytes(cluster.writable()?)? })
}

/// Waits until all servers are in use, and writes go on.
fn settle(cluster: &Cluster, proxy: &mut Running, load: &Load) -> Result<()> {
    proxy.use_all_again()?;
    cluster.wait_streaming(super::SERVERS - 1)?;
    load.wait_acknowledged(GOING_ON)
}

/// Completes a round by what clients noted since the one before.
fn count(cluster: &Cluster, load: &Load, begun: Instant, so_far: &mut SoFar, round: Round) -> Round {
    let (ended, all) = (Instant::now(), load.noted());
    // All that was ever acknowledged is asked for: a later switchover may lose what an earlier one has kept. Without a primary all is missing.
    let there = cluster.writable().and_then(|primary| all.missing_on(primary));
    let missing_all = there.map_or(all.acknowledged.len(), |lacked| lacked.len());
    let missing = missing_all.saturating_sub(so_far.missing);
    let noted = all.clone().since(&so_far.noted);
    *so_far = SoFar { noted: all, missing: missing_all };
    // Nothing may be lost, so that no report excuses it.
    Round { gap: round::gap(&noted, begun, ended), missing, unreported: missing, noted, ..round }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_primary_goes_back_and_forth() {
        let mut primary = 0;
        let turns = [0, 1, 2, 3, 4].map(|done| {
            primary = next(primary == 0, done);
            primary
        });
        assert_eq!(turns, [1, 0, 2, 0, 1]);
        assert_ne!(next(true, 1), 0, "a primary is not asked to make room for itself");
    }
}
