//! `cargo xtask driver-suites`: the test suites that drivers bring themselves, once on a direct connection and then through Weir.
//!
//! A test that passes on a direct connection must pass through Weir. A test that does not is a bug of Weir's, or stands with its reason in
//! `differences.txt`; a reason that is not needed any more fails too. Tests that fail or skip themselves on the direct connection say
//! nothing about Weir and are not compared.

mod sources;
mod stage;
mod suite;

use std::fs;

use anyhow::{Result, bail, ensure};

use crate::cargo::build_proxy;
use crate::reasons::{self, Entry};
use stage::{Stage, Way};
use suite::{SUITES, Suite, Verdict, Verdicts};

const TABLE_NAME: &str = "differences.txt";
const TABLE: &str = include_str!("differences.txt");
/// A test that fails through Weir alone is run again this often before it counts: it may only have been starved.
const AGAIN: u32 = 2;

/// Choice of suites and tests.
#[derive(Debug, Default, clap::Args)]
pub struct Arguments {
    /// Only these suites (comma separated): asyncpg, pgx
    #[arg(long, value_delimiter = ',')]
    suites: Vec<String>,
    /// Only these parts of them (comma separated): modules of asyncpg's tests, as in test_pool; packages of pgx, as in pgxpool
    #[arg(long, value_delimiter = ',')]
    parts: Vec<String>,
    /// Only one part of each, which takes less than a minute
    #[arg(long, conflicts_with = "parts")]
    quick: bool,
}

/// Result of one suite.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    /// Tests that passed both ways.
    passed: u32,
    /// Tests that passed direct and fail through Weir, for a listed reason.
    explained: u32,
    /// Lines to print, one for each thing that is wrong.
    complaints: Vec<String>,
}

/// Runs and compares. Error: something differs that is not listed, is listed and does not differ, or could not be run.
pub fn run(arguments: &Arguments) -> Result<()> {
    for name in &arguments.suites {
        ensure!(SUITES.iter().any(|suite| suite.name == name), "there is no suite {name}");
    }
    build_proxy()?;
    let entries = reasons::read_table(TABLE_NAME, TABLE)?;
    let (mut is_good, mut has_run) = (true, false);
    for suite in SUITES {
        if !arguments.suites.is_empty() && !arguments.suites.iter().any(|name| name == suite.name) {
            continue;
        }
        match suite.fetch() {
            Ok(fetched) => {
                let parts = wanted_parts(suite, arguments, fetched.parts()?);
                if parts.is_empty() {
                    continue;
                }
                let outcome = compare(suite, &fetched, &parts, &entries)?;
                outcome.complaints.iter().for_each(|line| println!("driver-suites: {}: {line}", suite.name));
                let Outcome { passed, explained, complaints } = outcome;
                let wrong = complaints.len();
                println!("driver-suites: {}: {passed} passed, {explained} differ as listed, {wrong} complaints", suite.name);
                is_good &= wrong == 0;
                has_run = true;
            }
            Err(why) => println!("driver-suites: left out: {}: {why:#}", suite.name),
        }
    }
    for (name, why) in suite::LEFT_OUT {
        println!("driver-suites: left out: {name}: {why}");
    }
    ensure!(has_run || arguments.parts.is_empty(), "no suite has a part named {}", arguments.parts.join(" or "));
    if !is_good {
        bail!("tests of drivers that pass on a direct connection do not pass through Weir, or the list of those is wrong");
    }
    Ok(())
}

fn wanted_parts(suite: &Suite, arguments: &Arguments, all: Vec<String>) -> Vec<String> {
    let is_wanted = |part: &String| match (arguments.quick, arguments.parts.is_empty()) {
        (true, _) => part == suite.quick,
        (false, true) => true,
        (false, false) => arguments.parts.contains(part),
    };
    all.into_iter().filter(is_wanted).collect()
}

/// Runs the parts direct and through Weir, each before a server of its own, and tests that differ once more.
fn compare(suite: &Suite, fetched: &sources::Fetched, parts: &[String], entries: &[Entry]) -> Result<Outcome> {
    let results = crate::target_folder()?.join("driver-suites/results").join(suite.name);
    let _ = fs::remove_dir_all(&results);
    fs::create_dir_all(&results)?;
    let direct = Stage::start(&Way::Direct, fetched)?;
    let of_direct = suite.run(fetched, &direct, parts, &results.join("direct.log"))?;
    drop(direct);
    ensure!(!of_direct.is_empty(), "{} ran no test: see {}", suite.name, results.join("direct.log").display());
    let program = crate::target_folder()?.join("debug/weir");
    let weir = Stage::start(&Way::Weir(program), fetched)?;
    let mut through = suite.run(fetched, &weir, parts, &results.join("weir.log"))?;
    let unlisted = |test: &&String| !entries.iter().any(|entry| entry.is_of(suite.name, test));
    let differing: Vec<String> = differing(&of_direct, &through).filter(unlisted).cloned().collect();
    for test in differing {
        for turn in 1..=AGAIN {
            let log = results.join(format!("weir-again-{}-{turn}.log", test.replace('/', "-")));
            if suite.run_one(fetched, &weir, &test, &log)?.get(&test) == Some(&Verdict::Pass) {
                println!("driver-suites: {}: {test} failed once and passed when it was run alone", suite.name);
                through.insert(test, Verdict::Pass);
                break;
            }
        }
    }
    weir.end(&results)?;
    println!("driver-suites: {}: what the tests said is in {}", suite.name, results.display());
    let is_run = |test: &str| parts.iter().any(|part| suite.is_in_part(test, part));
    Ok(judge(suite.name, &of_direct, &through, entries, is_run))
}

fn differing<'a>(direct: &'a Verdicts, through: &'a Verdicts) -> impl Iterator<Item = &'a String> {
    let passed = direct.iter().filter(|(_, verdict)| **verdict == Verdict::Pass).map(|(test, _)| test);
    passed.filter(|test| through.get(*test) != Some(&Verdict::Pass))
}

/// `is_run`: true if a test is in one of the parts that were run.
fn judge(suite: &str, direct: &Verdicts, through: &Verdicts, entries: &[Entry], is_run: impl Fn(&str) -> bool) -> Outcome {
    let mut outcome = Outcome::default();
    for (test, _) in direct.iter().filter(|(_, verdict)| **verdict == Verdict::Pass) {
        let entry = entries.iter().find(|entry| entry.is_of(suite, test));
        let passes = through.get(test) == Some(&Verdict::Pass);
        match entry {
            None if passes => outcome.passed += 1,
            Some(entry) if passes && entry.is_sometimes => outcome.passed += 1,
            Some(_) if !passes => outcome.explained += 1,
            None => outcome.complaints.push(format!("{test} fails through Weir, and differences.txt does not say why")),
            Some(entry) => {
                outcome.complaints.push(format!("{test} passes: take it out of differences.txt ({})", entry.why));
            }
        }
    }
    for entry in entries.iter().filter(|entry| entry.suite == suite && is_run(&entry.test)) {
        if !direct.contains_key(&entry.test) {
            outcome.complaints.push(format!("{} is in differences.txt, and there is no such test", entry.test));
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_can_be_read() {
        assert!(reasons::read_table(TABLE_NAME, TABLE).is_ok());
    }

    fn verdicts(pairs: &[(&str, Verdict)]) -> Verdicts {
        pairs.iter().map(|(test, verdict)| ((*test).to_owned(), *verdict)).collect()
    }

    fn check_complaints(listed: &str, through: &[(&str, Verdict)], expected: &[&str]) {
        let direct = verdicts(&[("p/same", Verdict::Pass), ("p/skips", Verdict::Skip), ("p/it", Verdict::Pass)]);
        let entries = reasons::read_table(TABLE_NAME, listed).unwrap();
        let outcome = judge("pgx", &direct, &verdicts(through), &entries, |test| test.starts_with("p/"));
        assert_eq!(outcome.complaints.len(), expected.len(), "{outcome:?}");
        for (complaint, part) in outcome.complaints.iter().zip(expected) {
            assert!(complaint.contains(part), "{complaint}");
        }
    }

    #[test]
    fn a_difference_must_be_listed_and_a_listed_one_must_be_there() {
        let fails = [("p/same", Verdict::Pass), ("p/it", Verdict::Fail)];
        let passes = [("p/same", Verdict::Pass), ("p/it", Verdict::Pass)];
        check_complaints("", &passes, &[]);
        check_complaints("", &fails, &["p/it fails through Weir"]);
        check_complaints("[pgx]\nwhy\n- p/it\n", &fails, &[]);
        check_complaints("[pgx]\nwhy\n- p/it\n", &passes, &["p/it passes"]);
        check_complaints("[pgx]\nwhy\n- p/it sometimes\n", &passes, &[]);
        check_complaints("[asyncpg]\nwhy\n- p/it\n", &fails, &["p/it fails through Weir"]);
    }

    #[test]
    fn a_test_that_never_ended_counts_as_failed() {
        check_complaints("", &[("p/same", Verdict::Pass)], &["p/it fails through Weir"]);
    }

    #[test]
    fn a_listed_test_that_does_not_exist_is_complained_of_if_its_part_was_run() {
        let passes = [("p/same", Verdict::Pass), ("p/it", Verdict::Pass)];
        check_complaints("[pgx]\nwhy\n- p/gone\n- other/gone\n", &passes, &["p/gone is in differences.txt"]);
    }
}
