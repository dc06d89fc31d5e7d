//! `cargo xtask bench`: the measuring stick.
//!
//! Rounds of all workloads on all systems before the same PostgreSQL; within a round the systems take turns in a
//! shuffled order, so that what else the machine does meets all of them, and ratios are taken within a round.
//!
//! Map: `workload`, `system`, `metric`, `goals` are tables · `server` PostgreSQL · `programs` finds and builds · `conf`
//! their files · `run` one run · `pgbench`, `client`, `catalog`, `kept`, `redis` make the load · `proc`, `counters` measure the proxy · `stats`,
//! `results`, `report` do the sums.

mod catalog;
mod client;
mod conf;
mod counters;
mod goals;
mod kept;
mod metric;
mod pgbench;
mod proc;
mod programs;
mod redis;
mod report;
mod results;
mod run;
mod rush;
mod schedule;
mod secrets;
mod server;
mod stats;
mod system;
mod workload;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use self::counters::Instructions;
use self::programs::version;
use self::report::{About, Report};
use self::schedule::Schedule;
use self::secrets::Secrets;
use self::system::{Launcher, SYSTEMS, System};
use self::workload::{Kind, Runs, Stage, WORKLOADS, Workload};
use crate::process::Account;

/// Files for 10,000 clients on one of their ends (each process holds one), and some more.
const OPEN_FILES: u64 = 12_000;
/// `--quick`: enough to see that everything works, not enough to believe a number.
const QUICK_ROUNDS: u32 = 2;
const QUICK_SECONDS: u32 = 1;

/// What to measure, and how long.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Few rounds, few workloads
    #[arg(long)]
    quick: bool,
    /// Only these workloads (comma separated; the beginning of a name takes all that begin with it)
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only these systems: direct, weir, pgbouncer, pgpool, relay, answers, redis
    #[arg(long, value_delimiter = ',')]
    systems: Vec<String>,
    /// Rounds (default 5)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Seconds of one run (default 3)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: Option<u32>,
    /// Write bench/results/<date>.json
    #[arg(long)]
    keep: bool,
    /// Use this binary of Weir instead of building one
    #[arg(long, value_name = "PATH")]
    weir: Option<PathBuf>,
    /// Server connections of the poolers
    #[arg(long, default_value_t = 20)]
    pool_size: u32,
    /// pgbench's scale
    #[arg(long, default_value_t = 10)]
    scale: u32,
    /// Decides the order within the rounds
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Leave out system calls and instructions
    #[arg(long)]
    no_counters: bool,
}

/// Runs the benchmark and prints its report.
pub fn run(arguments: &Arguments) -> Result<()> {
    let workloads = choose_workloads(arguments)?;
    let systems = choose_systems(&arguments.systems)?;
    let files = raise_open_files(&workloads)?;
    let account = Account::find()?;
    let folder = Folder::make(account)?;
    let programs = programs::prepare(&systems, &workloads, arguments.weir.as_deref(), &folder.0, account);
    let cluster = server::start(arguments.scale)?;
    let is_spread =
        workloads.iter().any(|workload| !matches!(workload.stage, Stage::One | Stage::Cached | Stage::Hoard | Stage::Shelved));
    let spread = is_spread.then(|| server::start_spread(arguments.scale)).transpose()?;
    let busy = workloads.iter().filter(|workload| !matches!(workload.kind, Kind::Idle { .. }));
    let launcher = Launcher {
        folder: folder.0.clone(),
        account,
        server_port: cluster.primary().port(),
        spread_ports: spread.iter().flat_map(|cluster| cluster.servers()).map(|server| server.port()).collect(),
        clients_max: busy.map(|workload| workload.clients).max().unwrap_or(1),
        pool_size: arguments.pool_size,
        programs,
        secrets: Secrets::make(&cluster)?,
    };
    let instructions = if arguments.no_counters { Instructions::Nothing } else { Instructions::find() };
    let rounds = arguments.rounds.unwrap_or(if arguments.quick { QUICK_ROUNDS } else { 5 });
    let seconds = arguments.seconds.unwrap_or(if arguments.quick { QUICK_SECONDS } else { 3 });
    let mut about = describe(arguments, &launcher, &cluster, instructions, rounds, seconds);
    about.notes.extend(files);
    let mut schedule = Schedule::new(&launcher, &workloads, &systems, arguments.seed);
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}, load {}", proc::load_average());
        schedule.round(seconds);
    }
    if !arguments.no_counters {
        eprintln!("counting system calls and instructions");
        schedule.count(instructions);
    }
    about.facts.push(("load at the end", proc::load_average()));
    let results = schedule.finish();
    let report = Report { about: &about, workloads: &workloads, systems: &systems, results: &results };
    println!("{}", report.text());
    if arguments.keep {
        println!("kept in {}", report.keep(&crate::root().join("bench/results"))?.display());
    }
    Ok(())
}

fn choose_workloads(arguments: &Arguments) -> Result<Vec<&'static Workload>> {
    for word in &arguments.only {
        let names: Vec<&str> = WORKLOADS.iter().map(|workload| workload.name).collect();
        ensure!(names.iter().any(|name| name.starts_with(word)), "no workload {word}; there are {}", names.join(", "));
    }
    let chosen = WORKLOADS.iter().filter(|workload| match arguments.only.as_slice() {
        [] => workload.runs == Runs::Quick || (workload.runs == Runs::Full && !arguments.quick),
        words => words.iter().any(|word| workload.name.starts_with(word)),
    });
    Ok(chosen.collect())
}

fn choose_systems(words: &[String]) -> Result<Vec<System>> {
    for word in words {
        let names = SYSTEMS.map(System::name);
        if !names.contains(&word.as_str()) {
            bail!("no system {word}; there are {}", names.join(", "));
        }
    }
    Ok(SYSTEMS.into_iter().filter(|system| words.is_empty() || words.iter().any(|w| w == system.name())).collect())
}

/// Raises the limit of open files for us and what we start; returns a note if that was not possible.
fn raise_open_files(workloads: &[&Workload]) -> Result<Option<String>> {
    if !workloads.iter().any(|workload| matches!(workload.kind, Kind::Idle { .. })) {
        return Ok(None);
    }
    let limit = getrlimit(Resource::Nofile);
    let maximum = limit.maximum.map_or(OPEN_FILES, |maximum| maximum.max(OPEN_FILES));
    let wish = Rlimit { current: Some(OPEN_FILES), maximum: Some(maximum) };
    if limit.current.is_none_or(|current| current >= OPEN_FILES) || setrlimit(Resource::Nofile, wish).is_ok() {
        return Ok(None);
    }
    let all = Rlimit { current: limit.maximum, maximum: limit.maximum };
    setrlimit(Resource::Nofile, all).context("cannot raise the limit of open files")?;
    Ok(Some(format!("open files are limited to {:?}", limit.maximum)))
}

fn describe(
    arguments: &Arguments,
    launcher: &Launcher,
    cluster: &weir_demo::Cluster,
    instructions: Instructions,
    rounds: u32,
    seconds: u32,
) -> About {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let of = |program: &system::Program| match program {
        Ok(path) => version(path),
        Err(reason) => format!("could not measure: {reason}"),
    };
    let server = cluster.primary().value("SHOW server_version").unwrap_or_else(|error| error.to_string());
    let facts = vec![
        ("date", crate::date::today()),
        ("machine", format!("{cores} cores, {}, Linux {}", processor(), kernel.trim())),
        ("load at the start", proc::load_average()),
        (
            "PostgreSQL",
            format!(
                "{server}, scale {}, fsync off; one primary, or a primary and two standbys where a workload spreads reads",
                arguments.scale
            ),
        ),
        ("weir", of(&launcher.programs.weir)),
        ("pgbouncer", of(&launcher.programs.bouncer)),
        ("pgpool", of(&launcher.programs.pgpool)),
        ("redis", of(&launcher.programs.redis)),
        ("rounds", format!("{rounds} of {seconds} s, order shuffled with seed {}", arguments.seed)),
        ("system calls", if arguments.no_counters { "could not measure: not asked for" } else { "counted by strace" }.to_owned()),
        ("instructions", instructions.describe().to_owned()),
    ];
    let mut notes = vec![
        format!(
            "weir and pgbouncer share {} server connections among all clients; direct, relay and pgpool have one for \
             each client",
            launcher.pool_size
        ),
        "pgbench runs one thread; TCP on 127.0.0.1 everywhere; all log in by trust and in clear text, except where a workload's name says tls or scram".to_owned(),
        "numbers are medians over the rounds (lowest-highest); ratios are taken within a round; system calls and \
         instructions are counted once, after the rounds"
            .to_owned(),
    ];
    if launcher.programs.bouncer.is_ok() && launcher.bouncer_lacks_prepared() {
        notes.push(
            "this pgbouncer has no prepared statements in transaction mode: the prepared workloads use its session \
             mode, with a server connection for each client"
                .to_owned(),
        );
    }
    About { facts, notes }
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or("unknown processor", |(_, name)| name.trim()).to_owned()
}

/// A temporary folder, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn make(account: Account) -> Result<Self> {
        let path: PathBuf = std::env::temp_dir().join(format!("weir-bench-{}", std::process::id()));
        std::fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        account.own(Path::new(&path))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {}: {error}", self.0.display());
        }
    }
}
