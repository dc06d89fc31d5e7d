//! Switchovers back and forth, under one load that goes on over all of them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use weir_demo::{Cluster, Crew, Load, Noted, wait_until};

use super::returned::{self, RETURN_LIMIT, Returned};
use super::round::{self, GOING_ON, Round, WARM_WRITES};
use super::system::Running;

/// Without a pause between their deeds: there is always a statement under way.
const CREW: Crew = Crew { writers: 2, transactions: 2, readers: 2, idle: 20, pause: Duration::ZERO };
/// The nodes that become the primary, in turn: back and forth, and not always the same two.
const TURNS: [usize; 4] = [1, 0, 2, 0];

/// The notes of the load up to the end of a switchover, and how many of their acknowledged writes were missing then.
struct SoFar {
    noted: Noted,
    missing: usize,
}

/// Moves the primary until there are so many rounds.
pub fn play(cluster: &Cluster, proxy: &mut Running, rounds: usize, done: &mut Vec<Value>) -> Result<()> {
    let load = Load::begin(proxy.port(), CREW)?;
    load.wait_acknowledged(WARM_WRITES)?;
    let mut before = SoFar { noted: load.noted(), missing: 0 };
    let first = done.len();
    while done.len() < rounds {
        let node = TURNS[(done.len() - first) % TURNS.len()];
        let (round, so_far) = move_to(node, cluster, proxy, &load, &before)?;
        let round = round.json();
        eprintln!("switchover {} to node {node}: {round}", done.len() + 1);
        done.push(round);
        before = so_far;
    }
    // The idle ones are asked at the end.
    let late = load.end().since(&before.noted);
    round::show(&late, "");
    if let Some(last) = done.last_mut() {
        last["disconnected"] = json!(last["disconnected"].as_u64().unwrap_or_default() + late.disconnected as u64);
        last["sessions_lost"] = json!(last["sessions_lost"].as_u64().unwrap_or_default() + late.lost as u64);
    }
    Ok(())
}

/// One switchover.
fn move_to(node: usize, cluster: &Cluster, proxy: &mut Running, load: &Load, before: &SoFar) -> Result<(Round, SoFar)> {
    let (old, said_before) = (cluster.writable()?, proxy.log().len());
    let begun = Instant::now();
    let answer = proxy.move_primary(node);
    let new = cluster.servers().get(node).context("no such node")?;
    let (by, after) = match &answer {
        Ok(()) => {
            wait_until("the old primary to stream", RETURN_LIMIT, || returned::streams(old, new))?;
            ("start", begun.elapsed())
        }
        Err(_) => ("refused", begun.elapsed()),
    };
    proxy.use_all_again()?;
    cluster.wait_streaming(super::SERVERS - 1)?;
    load.wait_acknowledged(GOING_ON)?;
    let (ended, all) = (Instant::now(), load.noted());
    // All that was ever acknowledged is asked for: a later switchover may lose what an earlier one has kept.
    let missing_all = all.missing_on(cluster.writable()?)?.len();
    let missing = missing_all.saturating_sub(before.missing);
    let noted = all.clone().since(&before.noted);
    if let Err(why) = answer {
        eprintln!("  refused: {why:#}");
    }
    let log = proxy.log();
    round::show(&noted, log.get(said_before..).unwrap_or_default());
    let gap = round::gap(&noted, begun, ended);
    let returned = Some(Returned { after, by, database_bytes: returned::database_bytes(new)? });
    // Nothing may be lost, so that no report excuses it.
    let round = Round { gap, noted, missing, unreported: missing, goes_on: true, told: None, returned };
    Ok((round, SoFar { noted: all, missing: missing_all }))
}
