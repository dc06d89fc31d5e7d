//! Scripts of messages (`scripts/*.txt`): the effect of each kind of message on a session, for each of its concerns.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::{Path, PathBuf};
use support::script::check_file;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts")
}

fn check(name: &str) {
    check_file(&folder().join(name).with_extension("txt"));
}

/// Every file has a test below.
const FILES: &[&str] = &[
    "cache",
    "causal",
    "concerns",
    "copy",
    "extended",
    "lease",
    "numbers",
    "outcome",
    "reads",
    "replay",
    "sharding",
    "simple",
    "state",
    "transactions",
];

#[test]
fn every_file_of_scripts_is_played() {
    let entries = std::fs::read_dir(folder()).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned()).collect();
    names.sort();
    assert_eq!(names, FILES);
}

#[test]
fn simple_queries() {
    check("simple");
}

#[test]
fn outcomes_of_commits() {
    check("outcome");
}

#[test]
fn tables_over_several_servers() {
    check("sharding");
}

#[test]
fn transactions_that_run_again() {
    check("replay");
}

#[test]
fn the_extended_protocol() {
    check("extended");
}

#[test]
fn the_write_lease_of_a_group() {
    check("lease");
}

#[test]
fn causal_reads() {
    check("causal");
}

#[test]
fn numbers_and_times() {
    check("numbers");
}

#[test]
fn copies() {
    check("copy");
}

#[test]
fn transactions() {
    check("transactions");
}

#[test]
fn session_state() {
    check("state");
}

#[test]
fn reads_and_lost_connections() {
    check("reads");
}

#[test]
fn the_query_cache() {
    check("cache");
}

#[test]
fn the_other_concerns() {
    check("concerns");
}
