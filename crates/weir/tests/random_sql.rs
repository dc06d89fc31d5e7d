//! Random SQL through Weir, with a primary and two standbys, and direct on a primary. No client sees an error that the primary
//! would not give, no write is lost or done twice, and all answers agree.
//!
//! Ours (`grammar`) is about what decides where a statement goes: functions that write, and say so or not, overloads, views on views, WITH that
//! writes, locks, COPY, temporary and unlogged tables, sequences, rules, policies, operators, search_path, definitions, transactions. Steps
//! are played one after the other, so that every answer is determined: under `causal_reads = session` as long as sessions look at their own
//! tables only, under `global` whatever they look at. `shards` is about SELECTs over several shards. `sqlsmith` (of that name, if it is installed) is about everything else; of
//! its statements only errors are compared.
//!
//! `WEIR_ROUNDS`: scripts for each kind (a bounded number without it); `WEIR_SEED`: the first seed, or `fresh` for one that was never tried.
//! Without it the scripts are the same in every run, so that a failure is news.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "differential/dice.rs"]
mod dice;
#[path = "random_sql/grammar.rs"]
mod grammar;
#[path = "random_sql/play.rs"]
mod play;
#[path = "random_sql/script.rs"]
mod script;
#[path = "random_sql/shards.rs"]
mod shards;
#[path = "random_sql/sqlsmith.rs"]
mod sqlsmith;
#[path = "random_sql/stage.rs"]
mod stage;
#[allow(dead_code, unused_imports, reason = "shared with the end-to-end tests, which use all of it")]
mod support;

use dice::Dice;
use script::{Kind, Step};
use stage::Stage;
use std::time::UNIX_EPOCH;

/// Scripts of each kind when nothing else is asked for.
const ROUNDS: u64 = 6;
/// Seed of the scripts that every run plays.
const FIXED_SEED: u64 = 20_261_122;
/// Steps of one script.
const STEPS: usize = 80;
/// Failures told before a run gives up.
const FAILURES_MAX: usize = 5;
/// Smaller scripts tried for one failure.
const CUTS_MAX: u32 = 60;
// A pool has one connection more than there are sessions: each may keep one for good, and the session that asks about the
// catalog logs in.

/// So many of a hundred steps must have been answered by a standby, or nothing is proven.
const ON_STANDBYS_PERCENT_MIN: u64 = 10;

#[test]
fn sessions_that_look_at_their_own() {
    let kind = Kind { sessions: 2, reads_others: false, steps: STEPS };
    check(kind, "causal_reads = session\npool_size = 3\n");
}

#[test]
fn sessions_that_look_at_each_other() {
    let kind = Kind { sessions: 3, reads_others: true, steps: STEPS };
    check(kind, "causal_reads = global\npool_size = 4\n");
}

#[test]
fn sessions_whose_transactions_spread_until_they_write() {
    let kind = Kind { sessions: 2, reads_others: false, steps: STEPS };
    check(
        kind,
        "causal_reads = session\ndisable_load_balance_on_write = transaction\nstatement_level_load_balance = off\npool_size = 3\n",
    );
}

fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {text}")))
}

/// The first seed.
fn first_seed() -> u64 {
    let is_fresh = std::env::var("WEIR_SEED").is_ok_and(|seed| seed == "fresh");
    let fresh = UNIX_EPOCH.elapsed().map_or(0, |time| time.as_micros() as u64);
    if is_fresh { fresh } else { number_of("WEIR_SEED").unwrap_or(FIXED_SEED) }
}

fn check(kind: Kind, settings: &str) {
    let rounds = number_of("WEIR_ROUNDS").unwrap_or(ROUNDS);
    let first = first_seed();
    let stage = Stage::new(kind, settings);
    let mut failures = 0;
    for seed in first..first + rounds {
        let steps = script::make(&mut Dice::new(seed), kind);
        if let Some(difference) = stage.difference(&steps) {
            eprintln!("{kind:?}, seed {seed}, as it was met first: {difference}");
            let (steps, difference) = make_small(&stage, steps, difference);
            eprintln!("made smaller: {difference}\n{}", script::print(&steps));
            failures += 1;
        }
        if failures >= FAILURES_MAX {
            break;
        }
    }
    assert_eq!(failures, 0, "differences, see above; WEIR_SEED repeats one");
    let (on_standbys, steps) = (stage.on_standbys(), rounds * kind.steps as u64);
    eprintln!("{kind:?}: {on_standbys} of {steps} steps were answered by standbys");
    assert!(
        on_standbys * 100 >= steps * ON_STANDBYS_PERCENT_MIN,
        "only {on_standbys} of {steps} steps were answered by standbys"
    );
}

/// Drops steps as long as some difference remains.
fn make_small(stage: &Stage, steps: Vec<Step>, difference: String) -> (Vec<Step>, String) {
    let mut smallest = (steps, difference);
    let mut left = CUTS_MAX;
    'again: loop {
        for candidate in script::smaller(&smallest.0) {
            if left == 0 {
                return smallest;
            }
            left -= 1;
            if let Some(difference) = stage.difference(&candidate) {
                smallest = (candidate, difference);
                continue 'again;
            }
        }
        return smallest;
    }
}
