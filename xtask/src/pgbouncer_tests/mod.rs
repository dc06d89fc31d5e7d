//! `cargo xtask pgbouncer-tests`: PgBouncer's own tests, with Weir in its place.
//!
//! A program under PgBouncer's name translates its configuration by `weir import` and becomes Weir. Nothing else is changed but names (`names.py`): texts
//! of errors may be Weir's, the log is not searched for PgBouncer's words, and what Weir reads from files is set there. Where root runs
//! them they have a network of their own, in which those that drop connections run, too. The source is fetched by Debian's package client when it is needed,
//! and never a part of this repository.

mod network;
mod results;
mod stage;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};

use crate::debian::{self, Package};
use crate::reasons;
use results::{Report, Test};
use stage::Stage;

const PGBOUNCER: Package = Package { name: "pgbouncer", task: "pgbouncer-tests", mark: "test/ssl" };
const REASONS_NAME: &str = "reasons.txt";
/// Tests that fail, each with its reason.
const REASONS: &str = include_str!("reasons.txt");

/// Choice of tests.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Only tests whose name has one of these words (comma separated), as in test_auth or test_ssl.py::test_client_ssl
    #[arg(long, value_delimiter = ',')]
    tests: Vec<String>,
    /// Debian's suite whose tests are taken. The list of reasons is for trixie's, 1.24
    #[arg(long, default_value = "trixie")]
    suite: String,
    /// Tests that run at the same time, each with a server of its own. Many look at times, and fail where too many run
    #[arg(long, default_value_t = 2)]
    jobs: u32,
    /// Runs PgBouncer itself in place of Weir, built from the source of Debian's trixie
    #[arg(long)]
    pub peer: bool,
}

/// The program under test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    Weir(PathBuf),
    PgBouncer(PathBuf),
}

/// Runs the tests and prints a table of them. `target` is cargo's folder. Error: one failed without a known reason, or passed with one, or they
/// cannot run here.
pub fn run(arguments: &Arguments, target: &Path, program: Program) -> Result<()> {
    let source = debian::fetch(&PGBOUNCER, target, &arguments.suite)?;
    let place = target.join(PGBOUNCER.task);
    let site = stage::fetch_packages(&place)?;
    let kept = place.join("results");
    fs::create_dir_all(&kept)?;
    let stage = Stage::prepare(&source, program, &site)?;
    let names: Vec<String> = stage.names()?;
    let is_wanted =
        |name: &&String| arguments.tests.is_empty() || arguments.tests.iter().any(|word| name.contains(word.as_str()));
    let chosen: Vec<&str> = names.iter().filter(is_wanted).map(String::as_str).collect();
    ensure!(!chosen.is_empty(), "no test of this release has such a name");
    println!("pgbouncer-tests: {} tests; their output goes to {}", chosen.len(), kept.display());
    // All by default: a name on the command line for each would be long.
    let asked: &[&str] = if arguments.tests.is_empty() { &[] } else { &chosen };
    let tests: Vec<Test> = stage.play(asked, arguments.jobs, &kept)?;
    let entries = if arguments.peer { Vec::new() } else { reasons::read_table(REASONS_NAME, REASONS)? };
    let report = Report::make(&chosen, tests, &entries, arguments.tests.is_empty());
    fs::write(kept.join("table.txt"), report.to_string())?;
    println!("{report}");
    println!("pgbouncer-tests: PgBouncer {}: {}", source.release, report.sum());
    if !arguments.peer && !report.complaints.is_empty() {
        bail!("{}", report.complaints.join("\n"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_reasons_can_be_read() {
        assert!(!reasons::read_table(REASONS_NAME, REASONS).unwrap().is_empty());
    }
}
