//! `cargo xtask bench`: the measuring stick.
//!
//! Rounds of all workloads on all systems before the same PostgreSQL. Within a round the systems take turns in a shuffled
//! order, so that other work of the machine meets all of them. Ratios are taken within a round.
//!
//! Map: `workload`, `system`, `metric`, `goals`, `file` are tables · `plan` chooses · `server` PostgreSQL · `programs` finds and builds ·
//! `conf` their files · `schedule` the order, `run` one run · `pgbench`, `client`, `rush`, `catalog`, `kept`, `redis` make the load · `proc`,
//! `counters` measure the proxy · `stats`, `results`, `report` do the sums · `archive` reads the kept files, `figure` says what is drawn of
//! them, `draw` draws, `pages` writes the tables of the documents · `failover`, `shards`, `spread` (over `spread_stage`), `tpch` and `watchdog` are measurements of their own.

mod archive;
mod catalog;
mod client;
mod conf;
mod counters;
mod draw;
pub mod failover;
mod figure;
mod file;
mod goals;
mod kept;
mod metric;
mod pages;
mod pgbench;
mod plan;
mod proc;
mod programs;
mod redis;
mod report;
mod result_file;
mod results;
mod run;
mod run_amount;
mod rush;
mod schedule;
mod secrets;
mod server;
mod shards;
pub mod spread;
pub mod spread_stage;
mod stats;
mod system;
mod tenants;
pub mod tpch;
pub mod watchdog;
mod workload;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use weir_demo::Cluster;
use weir_progress::{ProgressLine, ProgressWish, WorkAmount};

use self::counters::Instructions;
use self::plan::Part;
pub use self::programs::build_peers;
use self::programs::version;
use self::report::{About, Report};
use self::result_file::ResultFile;
use self::schedule::Schedule;
use self::secrets::Secrets;
use self::shards::node_group::{NodeGroup, OwnGroups};
use self::system::{Launcher, System};
use self::workload::Workload;
use crate::process::Account;

/// Files for 10,000 clients on one of their ends (each process holds one), and some more.
const OPEN_FILES: u64 = 12_000;
/// Clients that every limit of open files has room for.
const CLIENTS_OF_ANY_LIMIT: u32 = 500;

/// Choice of workloads and times.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(subcommand)]
    other: Option<OtherBench>,
    /// Few rounds, few workloads
    #[arg(long)]
    quick: bool,
    /// Only these workloads (comma separated; the beginning of a name takes all that begin with it)
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only these systems: direct, weir, pgbouncer, pgpool, relay, answers, redis
    #[arg(long, value_delimiter = ',')]
    systems: Vec<String>,
    /// Rounds (default 5; with --keep 9, for the cache 5)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Seconds of one run (default 3; with --keep 1)
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: Option<u32>,
    /// Measure what bench/results keeps, write its files (all, or some: --keep=cache,clients), the figures and the tables of the documents
    #[arg(long, value_delimiter = ',', num_args = 0..=3, require_equals = true, default_missing_values = ["table", "cache", "clients"])]
    #[arg(conflicts_with_all = ["quick", "only", "systems"])]
    keep: Vec<ResultFile>,
    /// Measure nothing: draw the figures and write the tables again from bench/results
    #[arg(long)]
    draw: bool,
    /// Use this binary of Weir instead of building one
    #[arg(long, value_name = "PATH")]
    weir: Option<PathBuf>,
    /// Server connections of the poolers
    #[arg(long, default_value_t = 20)]
    pool_size: u32,
    /// pgbench's scale
    #[arg(long, default_value_t = 10)]
    scale: u32,
    /// Hold the primary and each standby to hundredths of a core by control groups, as if each had a machine of its own; needs root
    #[arg(long, value_name = "HUNDREDTHS", conflicts_with = "keep", value_parser = clap::value_parser!(u32).range(5..=100))]
    hold: Option<u32>,
    /// Decides the order within the rounds
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Leave out system calls and instructions
    #[arg(long)]
    no_counters: bool,
    /// Show no progress on the terminal
    #[arg(short = 'q', long)]
    quiet: bool,
}

/// A measurement of its own.
#[derive(Debug, clap::Subcommand)]
enum OtherBench {
    /// Measure reads of tables over one to nine servers, each held by control groups to a share of the machine; needs root
    Shards(shards::Arguments),
}

/// Runs the benchmark and prints its report.
pub fn run(arguments: &Arguments) -> Result<()> {
    if let Some(OtherBench::Shards(arguments)) = &arguments.other {
        return shards::run(arguments, crate::root());
    }
    if arguments.draw {
        return pages::write(crate::root());
    }
    let parts = plan::parts(arguments)?;
    let mut bench = Bench::start(arguments, &parts)?;
    for part in &parts {
        bench.measure(part)?;
    }
    if arguments.keep.is_empty() { Ok(()) } else { pages::write(crate::root()) }
}

/// Everything that stands while parts are measured.
struct Bench<'a> {
    arguments: &'a Arguments,
    launcher: Launcher,
    cluster: Cluster,
    /// A primary and two standbys. Held, because its drop ends them.
    #[allow(dead_code)]
    spread: Option<Cluster>,
    /// Of the servers of `spread`. Held, because its drop removes them, once the servers have ended.
    #[allow(dead_code)]
    groups: Vec<NodeGroup>,
    instructions: Instructions,
    /// When everything stood.
    begin: Instant,
    /// Note about the limit of open files.
    limit_note: Option<String>,
    /// The last to be dropped: the others' files are in it.
    #[allow(dead_code)]
    folder: Folder,
}

impl<'a> Bench<'a> {
    fn start(arguments: &'a Arguments, parts: &[Part]) -> Result<Self> {
        let workloads: Vec<&Workload> = parts.iter().flat_map(|part| part.workloads.iter().copied()).collect();
        let is_taken = |system: &System| parts.iter().any(|part| part.systems.contains(system));
        let systems: Vec<System> = system::SYSTEMS.into_iter().filter(is_taken).collect();
        let limit_note = raise_open_files(&workloads)?;
        let account = Account::find()?;
        let folder = Folder::make(account)?;
        if !arguments.keep.is_empty() {
            programs::build_peers()?;
        }
        let programs = programs::prepare(&systems, &workloads, arguments.weir.as_deref(), &folder.0, account);
        if !arguments.keep.is_empty() {
            check_peers(&programs)?;
        }
        let cluster = server::start(arguments.scale)?;
        let is_spread = workloads.iter().any(|workload| !workload.stage.has_one_server());
        let spread = is_spread.then(|| server::start_spread(arguments.scale)).transpose()?;
        let groups = match (&spread, arguments.hold) {
            (Some(cluster), Some(core_percent)) => hold(cluster, core_percent)?,
            _ => Vec::new(),
        };
        let launcher = Launcher {
            folder: folder.0.clone(),
            account,
            server_port: cluster.primary().port(),
            spread_ports: spread.iter().flat_map(|cluster| cluster.servers()).map(|server| server.port()).collect(),
            clients_max: 1,
            pool_size: arguments.pool_size,
            programs,
            secrets: Secrets::make(&cluster)?,
        };
        let instructions = if arguments.no_counters { Instructions::Nothing } else { Instructions::find() };
        Ok(Self { arguments, launcher, cluster, spread, groups, instructions, begin: Instant::now(), limit_note, folder })
    }

    fn measure(&mut self, part: &Part) -> Result<()> {
        self.launcher.clients_max = part.clients_max();
        let mut about = describe(self.arguments, &self.launcher, &self.cluster, self.instructions, part);
        about.notes.extend(self.limit_note.clone());
        let line = ProgressLine::new(ProgressWish::of_quiet(self.arguments.quiet));
        let mut schedule = Schedule::new(&self.launcher, part, self.arguments.seed, &line);
        line.begin("measuring", WorkAmount::Count { total: part.runs(), unit: "runs" });
        for round in 1..=part.rounds {
            let name = part.file.map_or("report", ResultFile::name);
            let so_far = self.begin.elapsed().as_secs();
            line.aside(|| eprintln!("{name}: round {round} of {} after {so_far} s, load {}", part.rounds, proc::load_average()));
            schedule.round(round);
        }
        line.rest();
        if !self.arguments.no_counters {
            eprintln!("counting system calls and instructions");
            let counted = (part.workloads.len() * part.systems.len()) as u64;
            line.begin("counting", WorkAmount::Count { total: counted, unit: "runs" });
            schedule.count(self.instructions);
            line.rest();
        }
        about.facts.push(("load at the end", proc::load_average()));
        let results = schedule.finish();
        let report = Report { about: &about, workloads: &part.workloads, systems: &part.systems, results: &results };
        println!("{}", report.text());
        if let Some(file) = part.file {
            report.keep(&crate::root().join(archive::FOLDER).join(file.name()))?;
        }
        Ok(())
    }
}

/// Holds each server of a cluster to a share of a core.
fn hold(cluster: &Cluster, core_percent: u32) -> Result<Vec<NodeGroup>> {
    let own = OwnGroups::of_processor(core_percent)?;
    let held = cluster.servers().iter().enumerate().map(|(at, server)| {
        let group = NodeGroup::make(&own, &at.to_string())?;
        group.take(server.pid().context("a server is gone")?)?;
        Ok(group)
    });
    held.collect()
}

/// A kept result without one of its peers would be drawn without it.
fn check_peers(programs: &system::Programs) -> Result<()> {
    let all = [&programs.weir, &programs.bouncer, &programs.pgpool, &programs.relay, &programs.answers, &programs.redis];
    let missing = all.into_iter().filter_map(|program| program.as_ref().err().filter(|reason| *reason != programs::UNASKED));
    let missing: Vec<&str> = missing.map(String::as_str).collect();
    ensure!(missing.is_empty(), "kept results need all systems: {}", missing.join("; "));
    Ok(())
}

/// Raises the limit of open files for this process and those it starts; returns a note if that was not possible.
fn raise_open_files(workloads: &[&Workload]) -> Result<Option<String>> {
    if workloads.iter().all(|workload| workload.clients <= CLIENTS_OF_ANY_LIMIT) {
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

fn describe(arguments: &Arguments, launcher: &Launcher, cluster: &Cluster, instructions: Instructions, part: &Part) -> About {
    let of = |program: &system::Program| match program {
        Ok(path) => version(path),
        Err(reason) => format!("could not measure: {reason}"),
    };
    let server = cluster.primary().value("SHOW server_version").unwrap_or_else(|error| error.to_string());
    let facts = vec![
        ("date", crate::date::today()),
        ("machine", machine()),
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
        ("rounds", format!("{} of {} s, order shuffled with seed {}", part.rounds, part.seconds, arguments.seed)),
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

/// Cores, processor, kernel.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{cores} cores, {}, Linux {}", processor(), kernel.trim())
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
