//! Agents make replaced primaries standbys of the new one, among all other faults.

mod support;

use support::{check_unbroken, play};
use weir_failover::SafetyRule;
use weir_sim::{Options, run_returning};

const SEEDS: u64 = 2_000;

#[test]
fn no_return_of_a_primary_breaks_a_promise() {
    let outcomes = play(0, SEEDS, |seed| run_returning(seed, Options::default()));
    check_unbroken(&outcomes, "cargo run -p weir-sim -- --returning");
    let brought_back: usize = outcomes.iter().map(|outcome| outcome.brought_back).sum();
    assert!(brought_back > SEEDS as usize / 3, "{brought_back} servers were brought back");
}

#[test]
fn a_primary_is_brought_back_only_by_a_decision_that_counts() {
    let options = Options { without: Some(SafetyRule::DecidedReturn), ..Options::default() };
    let outcomes = play(12_440, 12_470, |seed| run_returning(seed, options));
    assert!(outcomes.iter().any(|outcome| !outcome.broken.is_empty()), "nothing breaks without the rule");
}
