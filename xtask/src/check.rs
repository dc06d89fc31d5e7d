//! `cargo xtask check`: everything that needs no server, in one go.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::cargo::{build_proxy, cargo, run_to_end};
use crate::{layers, own_sql, release, site, tidy};

/// The crates whose tests need nothing but themselves.
const PURE: &[&str] = &[
    "weir-wire",
    "weir-sql",
    "weir-config",
    "weir-import",
    "weir-catalog",
    "weir-failover",
    "weir-group",
    "weir-group-failover",
    "weir-cache",
    "weir-session",
    "weir-sim",
    "xtask",
];
/// Where the generated documents are.
const DOCS_FOLDER: &str = "docs";

type Step = (&'static str, fn(&Path) -> Result<()>);

/// Checks that read and compile, and run nothing.
const LOOKS: [Step; 7] = [
    ("format", |_| run_to_end(&mut cargo(&["fmt", "--all", "--check"]))),
    ("layers", layers::run),
    ("tidy", tidy::run),
    ("own-sql", own_sql::run),
    ("pages", site::check),
    ("release", release::check),
    ("clippy", |_| run_to_end(&mut cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]))),
];
const TESTS: [Step; 2] = [
    ("tests of the pure crates", |_| run_to_end(&mut pure_tests())),
    ("unit tests of the proxy", |_| run_to_end(&mut cargo(&["test", "--quiet", "-p", "weir-io", "-p", "weir", "--lib"]))),
];
const DOCUMENTS: Step =
    ("documents", |_| run_to_end(Command::new(build_proxy()?).args(["docs", "--check", DOCS_FOLDER]).current_dir(crate::root())));

/// Runs all steps, also after one that failed, so that one run shows everything there is to mend.
pub fn run(root: &Path) -> Result<()> {
    run_steps(root, LOOKS.iter().chain(&TESTS).chain([&DOCUMENTS]))
}

/// All checks but the tests, for a caller who runs all of them afterwards.
pub fn run_without_tests(root: &Path) -> Result<()> {
    run_steps(root, LOOKS.iter().chain([&DOCUMENTS]))
}

fn run_steps<'a>(root: &Path, steps: impl Iterator<Item = &'a Step>) -> Result<()> {
    let mut failed = Vec::new();
    for (name, step) in steps {
        let begin = Instant::now();
        println!("== {name}");
        if let Err(error) = step(root) {
            println!("{error:#}");
            failed.push(*name);
        }
        println!("== {name}: {:.1} s", begin.elapsed().as_secs_f64());
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(())
}

fn pure_tests() -> Command {
    let mut command = cargo(&["test", "--quiet"]);
    PURE.iter().for_each(|name| {
        command.args(["-p", name]);
    });
    command
}
