//! `cargo xtask pgpool-tests`: Pgpool-II's own regression tests, with Weir under Pgpool-II's names.
//!
//! `pgpool_setup` of the same release builds the clusters, with online recovery through Weir. The source is fetched by Debian's package client
//! when it is needed, and never a part of this repository.

mod cases;
mod children;
mod sources;
mod stage;

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use cases::{Case, cases};
use stage::{Stage, Verdict};

/// Lines of a failed test's output that are printed.
const TAIL: usize = 30;

/// Choice of tests.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only tests whose name has one of these words (comma separated), also those that nobody expects to pass
    #[arg(long, value_delimiter = ',')]
    tests: Vec<String>,
    /// Debian's suite whose Pgpool-II is taken: trixie has 4.6, bookworm 4.3
    #[arg(long, default_value = "trixie")]
    suite: String,
    /// Longest time of one test, in seconds
    #[arg(long, default_value_t = 300)]
    limit: u64,
}

/// Runs the tests one after the other with this Weir and prints how each ended. `target` is cargo's folder. Error: one failed, or they cannot run here.
pub fn run(arguments: &Arguments, target: &Path, weir: &Path) -> Result<()> {
    let source = sources::fetch(target, &arguments.suite)?;
    let chosen: Vec<Case> = cases(&source, &arguments.tests)?;
    ensure!(!chosen.is_empty(), "no test of this release has such a name");
    let stage = Stage::prepare(&source, weir)?;
    let (mut passed, mut failed) = (0, Vec::new());
    for case in &chosen {
        let (verdict, seconds) = stage.play(case, Duration::from_secs(arguments.limit))?;
        println!("pgpool-tests: {}: {verdict} in {seconds} s", case.name);
        match verdict {
            Verdict::Passed => passed += 1,
            Verdict::Failed | Verdict::TimedOut => {
                let output = stage.output(case)?;
                let lines: Vec<&str> = output.lines().collect();
                println!("{}", lines[lines.len().saturating_sub(TAIL)..].join("\n"));
                failed.push(case.name.as_str());
            }
        }
    }
    println!("pgpool-tests: Pgpool-II {}: {passed} passed, {} failed", source.release, failed.len());
    if !failed.is_empty() {
        bail!("failed: {}; their folders are in {}", failed.join(", "), stage.keep().display());
    }
    Ok(())
}
