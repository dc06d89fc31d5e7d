//! `cargo xtask failover`: faults of servers under load, with Weir and with Pgpool-II before clusters that are made the same way.
//!
//! Map: `row` the faults · `system` the proxies · `told` counts clients that were spared something · `round` plays a fault and counts · `page` the kept file and the table of docs/failover.md.

mod page;
mod round;
mod row;
mod system;
mod told;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weir_demo::{Cluster, Options, Programs};

use self::row::{Commit, ROWS, Row, Spared};
use self::system::{Running, System};
use super::programs;
use crate::process::Account;

/// A primary and two standbys.
const SERVERS: usize = 3;
/// Clients whose sessions are counted, and those of them that say nothing until the end.
const CLIENTS: usize = 250;
const IDLE: usize = 200;
/// Clients that read without transactions, beside them.
const READERS: usize = 10;
/// The version of the servers, if it is installed.
const MAJOR: u32 = 15;
/// Rounds that may fail by something else than the proxy before a row is given up.
const BROKEN_MAX: usize = 10;
const ANY: &str = "ANY 1 (primary, standby1, standby2)";

/// Choice of faults and rounds.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only these faults (comma separated): kill, kill-any, stop, hang, standby-kill, standby-hang, outcome, replay
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// Only these proxies
    #[arg(long, value_delimiter = ',')]
    systems: Vec<System>,
    /// Rounds of each fault with Weir
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    kills: u32,
    /// Rounds of each fault with Pgpool-II (default: as many, 5 at most)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    peer_kills: Option<u32>,
    /// Use this binary of Weir instead of building one
    #[arg(long, value_name = "PATH")]
    weir: Option<PathBuf>,
    /// Write bench/results/failover.json and the table of docs/failover.md; what was not measured stays as it is there
    #[arg(long)]
    keep: bool,
    /// Measure nothing: write the table again from the kept file
    #[arg(long)]
    draw: bool,
}

/// Measures and prints the table.
pub fn run(arguments: &Arguments, root: &Path) -> Result<()> {
    if arguments.draw {
        return page::draw(root);
    }
    for name in &arguments.rows {
        ensure!(ROWS.iter().any(|row| row.name == name), "there is no fault {name}");
    }
    let systems = if arguments.systems.is_empty() { &[System::Weir, System::Pgpool] } else { arguments.systems.as_slice() };
    let programs = systems.iter().map(|system| Ok((*system, program_of(*system, arguments)?))).collect::<Result<Vec<_>>>()?;
    let about = about();
    let mut entries = Vec::new();
    for row in ROWS.iter().filter(|row| arguments.rows.is_empty() || arguments.rows.iter().any(|name| name == row.name)) {
        for (system, program) in &programs {
            if *system == System::Pgpool && row.spared != Spared::Nothing {
                continue;
            }
            let rounds = match system {
                System::Weir => arguments.kills,
                System::Pgpool => arguments.peer_kills.unwrap_or(arguments.kills.min(5)),
            };
            entries.push(page::entry(row, *system, &programs::version(program), &measure(row, *system, program, rounds)?));
            // A long run that is cut off has kept what it measured.
            if arguments.keep {
                page::keep(root, &about, &entries)?;
            }
        }
    }
    println!("{}", page::tables(&entries));
    Ok(())
}

fn program_of(system: System, arguments: &Arguments) -> Result<PathBuf> {
    match (system, &arguments.weir) {
        (System::Weir, Some(path)) => path.canonicalize().with_context(|| format!("no program {}", path.display())),
        (System::Weir, None) => programs::build(&["-p", "weir", "--bin", "weir"], "weir"),
        (System::Pgpool, _) => programs::find("pgpool", "pgpool2"),
    }
}

fn about() -> Value {
    json!({ "date": crate::date::today(), "machine": super::machine() })
}

/// All rounds of a fault with a proxy: the servers are mended after each, and made anew where that is not possible.
fn measure(row: &Row, system: System, program: &Path, rounds: u32) -> Result<Vec<Value>> {
    let (mut done, mut broken) = (Vec::new(), 0);
    while done.len() < rounds as usize {
        let (cluster, mut proxy) = stage(row, system, program)?;
        let outcome = loop {
            if done.len() == rounds as usize {
                break Ok(());
            }
            match round::play(row, &cluster, &mut proxy, &mut done) {
                Ok(()) => eprintln!("{} {} {}: {}", row.name, system.name(), done.len(), done[done.len() - 1]),
                Err(error) => break Err(error),
            }
        };
        if let Err(error) = outcome {
            broken += 1;
            eprintln!("  the servers are made anew: {error:#}");
            if broken > BROKEN_MAX {
                eprintln!("{} with {}: given up after {} rounds", row.name, system.name(), done.len());
                break;
            }
        }
    }
    Ok(done)
}

fn stage(row: &Row, system: System, program: &Path) -> Result<(Cluster, Running)> {
    let mut extra_conf: Vec<(String, String)> = vec![("max_connections".into(), "400".into())];
    if row.commit == Commit::Any {
        extra_conf.push(("synchronous_standby_names".into(), ANY.into()));
    }
    let programs = Programs::of_major(MAJOR).ok();
    let cluster = Cluster::start(Options { standbys: SERVERS - 1, programs, extra_conf, ..Options::default() })?;
    cluster.primary().query(weir_demo::SCHEMA)?;
    cluster.wait_caught_up()?;
    let account = Account::find()?;
    // An ordinary user may not enter every folder.
    let own = match system {
        System::Weir => programs::copy(program, cluster.dir(), account)?,
        System::Pgpool => program.to_owned(),
    };
    let proxy = Running::start(system, &own, account, &cluster, row.spared)?;
    Ok((cluster, proxy))
}
