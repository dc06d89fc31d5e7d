//! Weir against a direct connection: random sequences of messages must bring the same replies, message by message.
//!
//! Each script is played on a database of a server, and through the proxy on another database with the same content, while other
//! clients use the same few server connections. Not compared: numbers of processes and objects, places in the server's source
//! code, names of statements within messages. A failure is printed with its seed and made as small as it will go.
//!
//! `WEIR_DIFF_ROUNDS`: scripts for each way to run the proxy (a bounded number without it); `WEIR_DIFF_SEED`: the first seed, or
//! `fresh` for one that was never tried. Without it the scripts are the same in every run, so that a failure is news.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "differential/connection.rs"]
mod connection;
#[path = "differential/dice.rs"]
mod dice;
#[path = "differential/message.rs"]
mod message;
#[path = "differential/noise.rs"]
mod noise;
#[path = "differential/play.rs"]
mod play;
#[path = "differential/reply.rs"]
mod reply;
#[path = "differential/script.rs"]
mod script;
#[path = "differential/stage.rs"]
mod stage;
#[path = "differential/texts.rs"]
mod texts;

use dice::Dice;
use noise::Noise;
use script::{Limits, Unit};
use stage::{PATIENCE, PATIENCE_SMALLER, Setup, Stage};
use std::time::UNIX_EPOCH;

/// Scripts for each setup when nothing else is asked for: all setups together stay below a minute.
const ROUNDS: u64 = 60;

/// Seed of the scripts that every run plays.
const FIXED_SEED: u64 = 20_240_217;

/// Failures told before a run gives up.
const FAILURES_MAX: usize = 8;

/// Times a smaller script is tried before its failure counts as gone: other clients' actions are not repeated exactly.
const TRIES: u32 = 3;

/// Cuts tried to make a script smaller.
const CUTS_MAX: u32 = 120;

#[test]
fn one_server_and_one_connection() {
    check(Setup { standbys: 0, worker_threads: 1, pool_size: 1, prepared_statements_max: 500, memory_buffer_kb: 32 });
}

#[test]
fn one_server_and_few_connections_on_three_threads() {
    check(Setup { standbys: 0, worker_threads: 3, pool_size: 2, prepared_statements_max: 3, memory_buffer_kb: 4 });
}

#[test]
fn a_standby_answers_reads() {
    check(Setup { standbys: 1, worker_threads: 1, pool_size: 2, prepared_statements_max: 500, memory_buffer_kb: 4 });
}

#[test]
fn a_standby_answers_reads_on_three_threads() {
    check(Setup { standbys: 1, worker_threads: 3, pool_size: 3, prepared_statements_max: 2, memory_buffer_kb: 32 });
}

fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")))
}

/// Plays the scripts of one setup.
fn check(setup: Setup) {
    let rounds = number_of("WEIR_DIFF_ROUNDS").unwrap_or(ROUNDS);
    let fresh = UNIX_EPOCH.elapsed().map_or(0, |time| time.as_micros() as u64);
    let is_fresh = std::env::var("WEIR_DIFF_SEED").is_ok_and(|seed| seed == "fresh");
    let first = if is_fresh { fresh } else { number_of("WEIR_DIFF_SEED").unwrap_or(FIXED_SEED) };
    let mut stage = Stage::new(setup);
    let noise = Noise::start(stage.proxy_port(), 3, first);
    let limits = Limits { with_standby: setup.standbys > 0 };
    let mut failures = Vec::new();
    for seed in first..first + rounds {
        let units = script::make(&mut Dice::new(seed), limits);
        if let Some(difference) = stage.difference(&units, seed) {
            stage.patience = PATIENCE_SMALLER;
            let (small, difference) = make_small(&mut stage, units, seed, difference);
            stage.patience = PATIENCE;
            failures.push(format!("seed {seed}: {difference}\n{}", script::print(&small)));
            eprintln!("{setup:?}\n{}", failures[failures.len() - 1]);
        }
        let complaints = noise.complaints();
        if !complaints.is_empty() {
            failures.push(format!("at seed {seed}, another client: {}", complaints.join("\n")));
            eprintln!("{setup:?}\n{}", failures[failures.len() - 1]);
        }
        if failures.len() >= FAILURES_MAX {
            break;
        }
    }
    drop(noise);
    assert!(failures.is_empty(), "{} differences, see above; WEIR_DIFF_SEED repeats one", failures.len());
}

/// Drops units and messages as long as some difference remains.
fn make_small(stage: &mut Stage, units: Vec<Unit>, seed: u64, difference: String) -> (Vec<Unit>, String) {
    let mut smallest = (units, difference);
    let mut left = CUTS_MAX;
    'again: loop {
        for candidate in script::smaller(&smallest.0) {
            if left == 0 {
                return smallest;
            }
            left -= 1;
            for _ in 0..TRIES {
                if let Some(difference) = stage.difference(&candidate, seed) {
                    smallest = (candidate, difference);
                    continue 'again;
                }
            }
        }
        return smallest;
    }
}
