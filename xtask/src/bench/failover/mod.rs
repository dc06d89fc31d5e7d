//! `cargo xtask failover`: faults of servers and switchovers under load, with Weir and with Pgpool-II before clusters that are made the same way.
//!
//! Map: `row` the events · `system` the proxies, `agents` those beside servers · `told` counts clients that were spared something ·
//! `round` plays a fault and counts, `switchover` plays switchovers, `returned` sees servers come back · `goals` ·
//! `page` the kept file and the tables of docs/failover.md.

mod agents;
mod goals;
mod page;
mod returned;
mod round;
mod row;
mod switchover;
mod system;
mod told;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use weir_demo::{Cluster, Options, Programs};

pub use self::page::seconds;
use self::row::{Commit, Event, ROWS, ReturnBy, Row};
use self::system::{Running, System};
use super::{programs, server};
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
    /// Only these events (comma separated): kill, kill-any, stop, hang, standby-kill, standby-hang, outcome, replay, switchover,
    /// return, return-copy
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// Only these proxies
    #[arg(long, value_delimiter = ',')]
    systems: Vec<System>,
    /// Rounds of each event with Weir (default: 3 of a fault, 50 switchovers, 5 of return, 1 of return-copy)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    kills: Option<u32>,
    /// Rounds of each event with Pgpool-II (default: as many, 5 at most)
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
        ensure!(ROWS.iter().any(|row| row.name == name), "there is no event {name}");
    }
    let systems = if arguments.systems.is_empty() { &[System::Weir, System::Pgpool] } else { arguments.systems.as_slice() };
    let programs = systems.iter().map(|system| Ok((*system, program_of(*system, arguments)?))).collect::<Result<Vec<_>>>()?;
    let about = about();
    let mut entries = Vec::new();
    for row in ROWS.iter().filter(|row| arguments.rows.is_empty() || arguments.rows.iter().any(|name| name == row.name)) {
        for (system, program) in &programs {
            if *system == System::Pgpool && !row.has_peers() {
                continue;
            }
            let own_rounds = arguments.kills.unwrap_or(row.rounds);
            let rounds = match system {
                System::Weir => own_rounds,
                System::Pgpool => arguments.peer_kills.unwrap_or(own_rounds.min(5)),
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

/// All rounds of an event with a proxy: the servers are mended after each, and made anew where that is not possible.
fn measure(row: &Row, system: System, program: &Path, rounds: u32) -> Result<Vec<Value>> {
    let (mut done, mut broken) = (Vec::new(), 0);
    while done.len() < rounds as usize {
        let (cluster, mut proxy) = stage(row, system, program)?;
        if let Err(error) = play(row, &cluster, &mut proxy, rounds as usize, &mut done) {
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

/// Rounds before one stage, until there are so many. Error: the servers cannot be used any more.
fn play(row: &Row, cluster: &Cluster, proxy: &mut Running, rounds: usize, done: &mut Vec<Value>) -> Result<()> {
    match row.event {
        Event::Switchover => switchover::play(cluster, proxy, rounds, done),
        Event::Fault(fault, victim) => {
            while done.len() < rounds {
                round::play(row, (fault, victim), cluster, proxy, done)?;
                eprintln!("{} {} {}: {}", row.name, proxy.system.name(), done.len(), done[done.len() - 1]);
            }
            Ok(())
        }
    }
}

fn stage(row: &Row, system: System, program: &Path) -> Result<(Cluster, Running)> {
    let mut extra_conf: Vec<(String, String)> = vec![("max_connections".into(), "400".into())];
    if row.commit == Commit::Any {
        extra_conf.push(("synchronous_standby_names".into(), ANY.into()));
    }
    if row.return_by == ReturnBy::Copy {
        extra_conf.push(("wal_log_hints".into(), "off".into()));
    }
    let programs = Programs::of_major(MAJOR).ok();
    let cluster = Cluster::start(Options { standbys: SERVERS - 1, programs, extra_conf, ..Options::default() })?;
    cluster.primary().query(weir_demo::SCHEMA)?;
    if let Some(scale) = row.pgbench_scale() {
        server::fill(cluster.primary(), scale)?;
        // A rewind begins at the last checkpoint before the loss, and the filling is not what is measured.
        cluster.primary().query("checkpoint")?;
    }
    cluster.wait_caught_up()?;
    let account = Account::find()?;
    // An ordinary user may not enter every folder.
    let own = match system {
        System::Weir => programs::copy(program, cluster.dir(), account)?,
        System::Pgpool => program.to_owned(),
    };
    let proxy = Running::start(system, &own, account, &cluster, row)?;
    Ok((cluster, proxy))
}
