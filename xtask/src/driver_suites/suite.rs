//! The suites: their commands, and the verdicts in their output.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::sources::{self, Fetched};
use super::stage::Stage;
use crate::process;

/// A whole suite takes two minutes on two cores that have nothing else to do.
const RUN_LIMIT: Duration = Duration::from_secs(30 * 60);
/// For one part of pgx's: less than the whole, so that a test that hangs costs its part only.
const GO_LIMIT: &str = "10m";
/// Beginning of the lines of `run_unittest.py`.
const MARK: &str = "@verdict ";

/// A suite's verdict on one of its tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Pass,
    Fail,
    /// The test looked where it is and did not try.
    Skip,
}

/// By the names of the tests. Tests that never ended are missing.
pub type Verdicts = BTreeMap<String, Verdict>;

/// One driver's own tests.
pub struct Suite {
    pub name: &'static str,
    kind: Kind,
    /// The part that is run when there is little time.
    pub quick: &'static str,
}

enum Kind {
    Asyncpg,
    Pgx,
}

/// All suites that are run.
pub const SUITES: &[Suite] = &[
    Suite { name: "asyncpg", kind: Kind::Asyncpg, quick: "test_prepare" },
    Suite { name: "pgx", kind: Kind::Pgx, quick: "pgxpool" },
];

/// Suites that are not, and why.
pub const LEFT_OUT: [(&str, &str); 1] =
    [("psycopg", "the archives of psycopg 3 and psycopg_pool in the package index come without their tests")];

impl Suite {
    /// Fetches missing packages. Error: the language is not installed, or there is no network.
    pub fn fetch(&self) -> Result<Fetched> {
        match self.kind {
            Kind::Asyncpg => sources::fetch_asyncpg(),
            Kind::Pgx => sources::fetch_pgx(),
        }
    }

    /// True if a test is of a part. asyncpg: `test_pool.TestPool.test_pool_01`; pgx: `pgxpool/TestConnect`.
    pub fn is_in_part(&self, test: &str, part: &str) -> bool {
        let of_test = match self.kind {
            Kind::Asyncpg => test.split_once('.'),
            Kind::Pgx => test.rsplit_once('/'),
        };
        of_test.is_some_and(|(of_test, _)| of_test == part)
    }

    /// Runs some parts. Their output is kept in `log`.
    pub fn run(&self, fetched: &Fetched, stage: &Stage, parts: &[String], log: &Path) -> Result<Verdicts> {
        let mut command = fetched.command(stage);
        match self.kind {
            Kind::Asyncpg => command.args(parts.iter().map(|part| format!("tests.{part}"))),
            Kind::Pgx => go_test(&mut command).args(parts.iter().map(|part| folder_of(part))),
        };
        self.read(command, log)
    }

    /// Runs one test alone.
    pub fn run_one(&self, fetched: &Fetched, stage: &Stage, test: &str, log: &Path) -> Result<Verdicts> {
        let mut command = fetched.command(stage);
        match self.kind {
            Kind::Asyncpg => command.arg(format!("tests.{test}")),
            Kind::Pgx => {
                let (part, name) = test.rsplit_once('/').context("a test of pgx has its package before it")?;
                go_test(&mut command).arg(format!("-run=^{name}$")).arg(folder_of(part))
            }
        };
        self.read(command, log)
    }

    /// A suite fails if a test does; only the verdicts count here.
    fn read(&self, mut command: Command, log: &Path) -> Result<Verdicts> {
        let output = process::run(&mut command, RUN_LIMIT)?;
        fs::write(log, format!("{}\n{}\n{}\n", output.stdout, output.stderr, output.status))?;
        Ok(match self.kind {
            Kind::Asyncpg => verdicts_of_unittest(&output.stdout),
            Kind::Pgx => verdicts_of_go(&output.stdout),
        })
    }
}

/// Packages one after the other, since they use one database.
fn go_test(command: &mut Command) -> &mut Command {
    command.args(["test", "-json", "-count=1", "-p=1", "-vet=off"]).arg(format!("-timeout={GO_LIMIT}"))
}

/// The package of the module's own folder is called like the module.
fn folder_of(part: &str) -> String {
    if part == sources::PGX_ROOT { ".".to_owned() } else { format!("./{part}") }
}

fn verdicts_of_unittest(text: &str) -> Verdicts {
    let mut verdicts = Verdicts::new();
    for line in text.lines().filter_map(|line| line.strip_prefix(MARK)) {
        let Some((verdict, test)) = line.split_once(' ') else { continue };
        let test = test.strip_prefix("tests.").unwrap_or(test).to_owned();
        let verdict = match verdict {
            "pass" => Verdict::Pass,
            "skip" => Verdict::Skip,
            _ => Verdict::Fail,
        };
        // A test of which a part failed fails, with any later verdict.
        let seen = verdicts.entry(test).or_insert(verdict);
        if verdict == Verdict::Fail {
            *seen = verdict;
        }
    }
    verdicts
}

/// Reads the output of `go test -json`: an object a line. Parts of a test (`TestA/b`) count with it.
fn verdicts_of_go(text: &str) -> Verdicts {
    let mut verdicts = Verdicts::new();
    for event in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let verdict = match event["Action"].as_str() {
            Some("pass") => Verdict::Pass,
            Some("fail") => Verdict::Fail,
            Some("skip") => Verdict::Skip,
            _ => continue,
        };
        let (Some(package), Some(test)) = (event["Package"].as_str(), event["Test"].as_str()) else { continue };
        if !test.contains('/') {
            let part = package.split_once("/v5/").map_or(sources::PGX_ROOT, |(_, part)| part);
            verdicts.insert(format!("{part}/{test}"), verdict);
        }
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_read_from_what_suites_print() {
        let seen = verdicts_of_unittest("x\n@verdict pass tests.a.B.c\n@verdict skip tests.a.B.d\n@verdict fail tests.a.B.e\n");
        let seen: Vec<_> = seen.iter().map(|(test, verdict)| (test.as_str(), *verdict)).collect();
        assert_eq!(seen, [("a.B.c", Verdict::Pass), ("a.B.d", Verdict::Skip), ("a.B.e", Verdict::Fail)]);
        let seen = verdicts_of_go(
            r#"{"Action":"run","Package":"github.com/jackc/pgx/v5","Test":"TestA"}
            {"Action":"fail","Package":"github.com/jackc/pgx/v5","Test":"TestA/b"}
            {"Action":"pass","Package":"github.com/jackc/pgx/v5","Test":"TestA"}
            {"Action":"fail","Package":"github.com/jackc/pgx/v5/pgconn/ctxwatch","Test":"TestB"}
            {"Action":"fail","Package":"github.com/jackc/pgx/v5/pgconn"}"#,
        );
        let seen: Vec<_> = seen.iter().map(|(test, verdict)| (test.as_str(), *verdict)).collect();
        assert_eq!(seen, [("pgconn/ctxwatch/TestB", Verdict::Fail), ("pgx/TestA", Verdict::Pass)]);
    }

    #[test]
    fn a_test_is_of_one_part() {
        let [asyncpg, pgx] = SUITES else { panic!("two suites") };
        assert!(asyncpg.is_in_part("test_pool.TestPool.test_1", "test_pool"));
        assert!(pgx.is_in_part("pgx/TestA", "pgx") && pgx.is_in_part("pgconn/ctxwatch/TestB", "pgconn/ctxwatch"));
        assert!(!pgx.is_in_part("pgconn/ctxwatch/TestB", "pgconn"));
    }
}
