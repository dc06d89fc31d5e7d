//! `cargo xtask pgpool-tests`: Pgpool-II's own regression tests, with Weir under Pgpool-II's names.
//!
//! `pgpool_setup` and `watchdog_setup` of the same release build the clusters and groups, with online recovery through Weir. The source is fetched by Debian's package client
//! when it is needed, and never a part of this repository.

mod cases;
mod stage;

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use crate::debian::{self, Package};
use cases::{Case, Choice, Reason, cases};
use stage::{Stage, Verdict};

const PGPOOL: Package = Package { name: "pgpool2", task: "pgpool-tests", mark: "src/test/regression/tests" };
/// Lines of a failed test's output that are printed.
const TAIL: usize = 30;

/// Choice of tests.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only tests whose name has one of these words (comma separated), also those that nobody expects to pass
    #[arg(long, value_delimiter = ',', conflicts_with = "all")]
    tests: Vec<String>,
    /// All tests; a table at the end has the reason of each one that failed or was not run. Failures with a known reason are no error
    #[arg(long)]
    all: bool,
    /// Debian's suite whose Pgpool-II is taken: trixie has 4.6, bookworm 4.3
    #[arg(long, default_value = "trixie")]
    suite: String,
    /// Longest time of one test, in seconds
    #[arg(long, default_value_t = 300)]
    limit: u64,
}

/// Runs the tests one after the other with this Weir and prints how each ended. `target` is cargo's folder. Error: one failed, or they cannot run here.
pub fn run(arguments: &Arguments, target: &Path, weir: &Path) -> Result<()> {
    let source = debian::fetch(&PGPOOL, target, &arguments.suite)?;
    let choice = match arguments.tests.as_slice() {
        _ if arguments.all => Choice::All,
        [] => Choice::Expected,
        words => Choice::Words(words),
    };
    let chosen: Vec<Case> = cases(&source, choice)?;
    ensure!(!chosen.is_empty(), "no test of this release has such a name");
    let stage = Stage::prepare(&source, weir)?;
    let (mut passed, mut left_out, mut failed, mut table) = (0, 0, Vec::new(), Vec::new());
    for case in &chosen {
        if let (true, Some(Reason::NotRun(why))) = (arguments.all, case.reason) {
            left_out += 1;
            table.push(format!("{:<52} not run  {why}", case.name));
            continue;
        }
        let (verdict, seconds) = stage.play(case, Duration::from_secs(arguments.limit))?;
        println!("pgpool-tests: {}: {verdict} in {seconds} s", case.name);
        match verdict {
            Verdict::Passed => {
                passed += 1;
                table.push(format!("{:<52} passed", case.name));
            }
            Verdict::Failed | Verdict::TimedOut => {
                let output = stage.output(case)?;
                let lines: Vec<&str> = output.lines().collect();
                println!("{}", lines[lines.len().saturating_sub(TAIL)..].join("\n"));
                table.push(format!("{:<52} failed   {}", case.name, case.reason.map_or("NO KNOWN REASON", Reason::text)));
                if !arguments.all || case.reason.is_none() {
                    failed.push(case.name.as_str());
                }
            }
        }
    }
    if arguments.all {
        println!("{}", table.join("\n"));
    }
    let of = chosen.len() - left_out;
    println!("pgpool-tests: Pgpool-II {}: {passed} passed of {of} that were run; {left_out} were not", source.release);
    if !failed.is_empty() {
        bail!("failed: {}; their folders are in {}", failed.join(", "), stage.keep().display());
    }
    Ok(())
}
