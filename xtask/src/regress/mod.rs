//! `cargo xtask regress`: PostgreSQL's own regression suite, once on a direct connection and then through Weir.
//!
//! Every statement of the suite must get the same answer both times. A difference is a bug of Weir's, or stands with its reason
//! in
//! `differences.txt`; a reason that is not needed any more fails too. In transaction mode other clients keep taking the server
//! connection that was used last, so that the suite's session really moves.

mod differences;
mod noise;
mod sharded;
mod sources;
mod stage;
mod translator;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use weir_demo::Programs;

use crate::at_once::at_once;
use crate::cargo::build_proxy;
use differences::{Entry, Hunk};
use sharded::{Placing, Wishes};
use sources::Suite;
use stage::{Results, Way};

/// How Weir pools while the suite runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum PoolMode {
    Session,
    Transaction,
}

/// How the suite's statements are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Protocol {
    /// As `psql` does.
    Simple,
    /// As drivers do.
    Extended,
}

/// Modes that run without other wishes. Session state is found in the same way in both protocols when nothing moves.
const USUAL: [(PoolMode, Protocol); 3] = [
    (PoolMode::Session, Protocol::Simple),
    (PoolMode::Transaction, Protocol::Simple),
    (PoolMode::Transaction, Protocol::Extended),
];

impl Protocol {
    fn name(self) -> &'static str {
        match self {
            Protocol::Simple => "simple",
            Protocol::Extended => "extended",
        }
    }
}

impl PoolMode {
    fn name(self) -> &'static str {
        match self {
            PoolMode::Session => "session",
            PoolMode::Transaction => "transaction",
        }
    }
}

/// Choice of modes and tests.
#[derive(Debug, Default, clap::Args)]
pub struct Arguments {
    /// Only in this mode; without it in both
    #[arg(long)]
    pool_mode: Option<PoolMode>,
    /// Only in this protocol; without it in both
    #[arg(long)]
    protocol: Option<Protocol>,
    /// Only these tests (comma separated), after those that make what all tests use; all of a module's if one is of a module, as in
    /// plpgsql/plpgsql_cache
    #[arg(long, value_delimiter = ',')]
    tests: Vec<String>,
    /// On a database whose tables are spread over three shards, statement by statement beside one server
    #[arg(long, conflicts_with_all = ["pool_mode", "protocol", "tests"])]
    sharded: bool,
    /// With --sharded: how tables are spread; without it both ways
    #[arg(long, requires = "sharded")]
    placing: Option<Placing>,
    /// With --sharded: only these scripts (comma separated)
    #[arg(long, value_delimiter = ',', requires = "sharded")]
    files: Vec<String>,
    /// With --sharded: a folder with the suite's folders `sql` and `data`, for servers whose suite Debian does not have
    #[arg(long, requires = "sharded")]
    suite: Option<PathBuf>,
    /// With --sharded: minutes of a run; scripts behind are left out, and named
    #[arg(long, default_value_t = 30, requires = "sharded")]
    minutes: u64,
    /// With --sharded: stages at a time, each with four servers and Weir
    #[arg(long, default_value_t = 3, requires = "sharded")]
    stages: usize,
}

/// Result of one mode.
#[derive(Debug)]
pub struct Outcome {
    pub name: String,
    /// Tests whose answers were equal, or differed as explained.
    pub passed: u32,
    pub failed: u32,
}

/// Runs and compares. Error: something differs that is not explained, or could not be run.
pub fn run(arguments: &Arguments) -> Result<()> {
    if arguments.sharded {
        let suite = arguments.suite.as_ref().map_or_else(prepare, |folder| sources::of_folder(&Programs::find()?, folder))?;
        return run_sharded(&suite, arguments);
    }
    let suite = prepare()?;
    let outcomes = compare(&suite, arguments)?;
    if outcomes.iter().any(|outcome| outcome.failed > 0) {
        bail!("answers through Weir differ from those of a direct connection");
    }
    Ok(())
}

fn run_sharded(suite: &Suite, arguments: &Arguments) -> Result<()> {
    let program = build_proxy()?;
    let placings = arguments.placing.map_or_else(|| vec![Placing::Key, Placing::Node], |placing| vec![placing]);
    let Arguments { files, minutes, stages, .. } = arguments;
    let wishes = |placing| Wishes { placing, scripts: files, minutes: *minutes, stages: *stages };
    let outcomes = placings.into_iter().map(|placing| sharded::run(suite, &program, wishes(placing)));
    // All run, whatever becomes of one.
    outcomes.collect::<Vec<_>>().into_iter().collect()
}

/// Fetches and builds the suite. Error: this machine cannot.
pub fn prepare() -> Result<Suite> {
    sources::fetch(&Programs::find()?)
}

/// Builds Weir, runs the suite direct and through it.
pub fn compare(suite: &Suite, arguments: &Arguments) -> Result<Vec<Outcome>> {
    let program = build_proxy()?;
    let entries = differences::read()?;
    let folder = results_folder()?;
    let _ = fs::remove_dir_all(&folder);
    let wanted = wanted(arguments);
    // The runs do not need each other: each has a server of its own.
    let mut runs: Vec<Run> = Vec::new();
    for &(mode, protocol) in &wanted {
        let direct = Run { mode: None, protocol };
        if !runs.contains(&direct) {
            runs.push(direct);
        }
        runs.push(Run { mode: Some(mode), protocol });
    }
    let results = at_once(&runs, |run| run.results(suite, &program, &arguments.tests, &folder));
    let results: Vec<Results> = results.into_iter().collect::<Result<_>>()?;
    let of = |run: Run| runs.iter().zip(&results).find(|(known, _)| **known == run).map(|(_, results)| results);
    let mut outcomes = Vec::new();
    for (mode, protocol) in wanted {
        let pair = of(Run { mode: None, protocol }).zip(of(Run { mode: Some(mode), protocol }));
        let (direct, through) = pair.context("a run is missing")?;
        let outcome = judge(direct, through, &entries, mode, protocol)?;
        let Outcome { name, passed, failed } = &outcome;
        println!("regress: {name}: {passed} passed, {failed} failed; results are in {}", folder.display());
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

/// One run of the suite; without a mode it is the direct one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    mode: Option<PoolMode>,
    protocol: Protocol,
}

impl Run {
    fn results(self, suite: &Suite, program: &Path, tests: &[String], folder: &Path) -> Result<Results> {
        let (way, mode) = match self.mode {
            None => (Way::Direct, "direct"),
            Some(mode) => (Way::Weir { program: program.to_owned(), mode }, mode.name()),
        };
        let protocol = self.protocol.name();
        let results = stage::run(suite, &way, self.protocol, tests, &folder.join(mode).join(protocol))?;
        println!("regress: {mode}, {protocol} protocol: {} tests in {} s", results.tests.len(), results.seconds);
        Ok(results)
    }
}

fn wanted(arguments: &Arguments) -> Vec<(PoolMode, Protocol)> {
    match (arguments.pool_mode, arguments.protocol) {
        (Some(mode), Some(protocol)) => vec![(mode, protocol)],
        (mode, protocol) => {
            let fits = |(m, p): &&(PoolMode, Protocol)| {
                mode.is_none_or(|mode| mode == *m) && protocol.is_none_or(|protocol| protocol == *p)
            };
            USUAL.iter().filter(fits).copied().collect()
        }
    }
}

fn results_folder() -> Result<PathBuf> {
    Ok(crate::target_folder()?.join("regress/results"))
}

/// Compares two runs, test by test.
fn judge(direct: &Results, through: &Results, entries: &[Entry], mode: PoolMode, protocol: Protocol) -> Result<Outcome> {
    let mut outcome = Outcome { name: format!("{} mode, {} protocol", mode.name(), protocol.name()), passed: 0, failed: 0 };
    let mut needed = vec![false; entries.len()];
    for test in &direct.tests {
        let hunks = hunks(&direct.file(test), &through.file(test))?;
        let printed = String::from_utf8_lossy(&fs::read(direct.file(test))?).into_owned();
        let mut explain = |hunk: &Hunk| {
            let explains = |entry: &Entry| entry.test == *test && entry.is_of(mode, protocol) && entry.explains(hunk, &printed);
            let found = entries.iter().position(explains);
            found.map(|at| needed[at] = true).is_some()
        };
        let is_stale = |entry: &&Entry| entry.test == *test && entry.is_of(mode, protocol) && !entry.is_about(&printed);
        for entry in entries.iter().filter(is_stale) {
            outcome.failed += 1;
            println!("regress: {test}: no longer prints what differences.txt speaks of: mend it or take it out ({})", entry.why);
        }
        let unexplained: Vec<&Hunk> = hunks.iter().filter(|hunk| !explain(hunk)).collect();
        if unexplained.is_empty() {
            outcome.passed += 1;
            continue;
        }
        outcome.failed += 1;
        println!("regress: {test}: differs in {} and differences.txt does not say why:", outcome.name);
        for hunk in unexplained {
            println!("@@ line {} of the direct run\n{}", hunk.line, hunk.lines.join("\n"));
        }
    }
    let is_missing = |(entry, needed): &(&Entry, &bool)| {
        !**needed && entry.must_occur() && entry.is_of(mode, protocol) && direct.tests.contains(&entry.test)
    };
    for (entry, _) in entries.iter().zip(&needed).filter(is_missing) {
        outcome.failed += 1;
        println!(
            "regress: {}: no longer differs in {}: take it out of differences.txt ({})",
            entry.test, outcome.name, entry.why
        );
    }
    Ok(outcome)
}

/// Differences of two files, by the system's `diff`, which the suite needs anyway.
fn hunks(one: &Path, other: &Path) -> Result<Vec<Hunk>> {
    if !other.exists() {
        return Ok(vec![Hunk { line: 0, lines: vec!["-(all of it: there is no result)".to_owned()] }]);
    }
    let output = std::process::Command::new("diff").args(["-a", "-U0"]).args([one, other]).output().context("cannot run diff")?;
    ensure!(output.status.code().is_some_and(|code| code < 2), "diff: {}", String::from_utf8_lossy(&output.stderr));
    Ok(differences::read_hunks(&String::from_utf8_lossy(&output.stdout)))
}
