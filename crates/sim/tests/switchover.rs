//! Primaries are moved on purpose, among all other faults and without any.

mod support;

use support::{check_unbroken, play};
use weir_failover::SafetyRule;
use weir_sim::{Options, run_planned};

const SEEDS: u64 = 2_500;

#[test]
fn no_switchover_breaks_a_promise() {
    let outcomes = play(0, SEEDS, |seed| run_planned(seed, Options::default()));
    check_unbroken(&outcomes, "cargo run -p weir-sim -- --planned");
    let switchovers: usize = outcomes.iter().map(|outcome| outcome.switchovers).sum();
    let ended: usize = outcomes.iter().map(|outcome| outcome.ended).sum();
    assert!(switchovers > SEEDS as usize, "{switchovers} switchovers");
    // Others than the Weir that is asked see its promises at their next look, and it waits for them.
    let calm: Vec<_> = outcomes.iter().filter(|outcome| outcome.is_calm).collect();
    let with_failures = calm.iter().filter(|outcome| outcome.given_up > 0).count();
    assert!(with_failures * 200 < calm.len(), "writes failed in {with_failures} of {} runs without other faults", calm.len());
    assert!(ended > 100, "{ended} servers that hung, or did not come to an end with their stop, were ended");
}

/// Rules of switchovers, and seeds within which each is missed.
const FOUND_WITHIN: [(SafetyRule, u64); 3] =
    [(SafetyRule::Drain, 300), (SafetyRule::StopFirst, 600), (SafetyRule::WholeLog, 2_500)];

#[test]
fn every_rule_of_a_switchover_is_needed() {
    const STEP: u64 = 100;
    for (rule, within) in FOUND_WITHIN {
        let options = Options { without: Some(rule), ..Options::default() };
        let is_found = (0..within).step_by(STEP as usize).any(|from| {
            play(from, from + STEP, |seed| run_planned(seed, options)).iter().any(|outcome| !outcome.broken.is_empty())
        });
        assert!(is_found, "nothing breaks without {rule:?} in {within} seeds");
    }
}
