//! `cargo xtask watchdog`: faults of the leader of a group, with Weir and with Pgpool-II on hosts that are network namespaces. Takes root.
//!
//! Map: `group_event` the events · `group_hosts` the hosts with their proxies · `address_round` plays an event and asks all kernels for the
//! address, `write_round` kills a primary under load · `group_table` the kept file and the table.

mod address_round;
mod group_event;
mod group_hosts;
mod group_table;
mod write_round;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use weir_demo::HostNetwork;

use self::group_event::{EVENTS, GroupEvent, GroupEventKind};
use self::group_hosts::WatchdogSystem;
use super::programs;

/// Rounds that may fail by something else than the proxy before an event is given up.
const BROKEN_MAX: usize = 3;

/// Choice of events and rounds.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only these events (comma separated): kill, stop, isolated, deaf, graceful, idle, primary, primary-single, primary-lost,
    /// primary-with-follower, primary-with-leader
    #[arg(long, value_delimiter = ',')]
    events: Vec<String>,
    /// Only these proxies
    #[arg(long, value_delimiter = ',')]
    systems: Vec<WatchdogSystem>,
    /// Rounds of each event with Weir
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Rounds of each event with Pgpool-II
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    peer_rounds: u32,
    /// Use this binary of Weir instead of building one
    #[arg(long, value_name = "PATH")]
    weir: Option<PathBuf>,
    /// Write bench/results/watchdog.json; what was not measured stays as it is there
    #[arg(long)]
    keep: bool,
}

/// Measures and prints the table.
pub fn run(arguments: &Arguments, root: &Path) -> Result<()> {
    if let Some(lacks) = HostNetwork::lacks() {
        bail!("{lacks}");
    }
    for name in &arguments.events {
        ensure!(EVENTS.iter().any(|event| event.name == name), "there is no event {name}");
    }
    let both = [WatchdogSystem::Weir, WatchdogSystem::Pgpool];
    let systems = if arguments.systems.is_empty() { &both[..] } else { &arguments.systems[..] };
    let programs = systems.iter().map(|system| Ok((*system, program_of(*system, arguments)?))).collect::<Result<Vec<_>>>()?;
    let about = json!({ "date": crate::date::today(), "machine": super::machine() });
    let mut entries = Vec::new();
    let is_wanted = |event: &&GroupEvent| arguments.events.is_empty() || arguments.events.iter().any(|name| name == event.name);
    for event in EVENTS.iter().filter(is_wanted) {
        for (system, program) in &programs {
            if *system == WatchdogSystem::Pgpool && !event.has_peers() {
                continue;
            }
            let rounds = if *system == WatchdogSystem::Weir { arguments.rounds } else { arguments.peer_rounds };
            let done = measure(event, *system, program, rounds as usize);
            entries.push(group_table::entry(event, *system, &programs::version(program), &done));
            // A long run that is cut off has kept what it measured.
            if arguments.keep {
                group_table::keep(root, &about, &entries)?;
            }
        }
    }
    println!("{}", group_table::table(&entries));
    Ok(())
}

fn program_of(system: WatchdogSystem, arguments: &Arguments) -> Result<PathBuf> {
    match (system, &arguments.weir) {
        (WatchdogSystem::Weir, Some(path)) => path.canonicalize().with_context(|| format!("no program {}", path.display())),
        (WatchdogSystem::Weir, None) => programs::build(&["-p", "weir", "--bin", "weir"], "weir"),
        (WatchdogSystem::Pgpool, _) => programs::find("pgpool", "pgpool2"),
    }
}

/// All rounds of an event, each on hosts of its own.
fn measure(event: &GroupEvent, system: WatchdogSystem, program: &Path, rounds: usize) -> Vec<Value> {
    let (mut done, mut broken) = (Vec::new(), 0);
    while done.len() < rounds {
        let round = match event.kind {
            GroupEventKind::Leader(fault) => address_round::play(fault, system, program),
            GroupEventKind::Idle => address_round::rest(system, program),
            GroupEventKind::Primary(company) => write_round::play(company, program),
        };
        match round {
            Ok(figures) => {
                eprintln!("{} {}: {figures}", event.name, system.name());
                done.push(figures);
            }
            Err(error) => {
                broken += 1;
                eprintln!("{} {}: a round failed: {error:#}", event.name, system.name());
                if broken > BROKEN_MAX {
                    break;
                }
            }
        }
    }
    done
}
