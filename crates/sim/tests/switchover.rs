//! Primaries are moved on purpose, among all other faults and without any.

use weir_policy::failover::Rule;
use weir_sim::{Options, Outcome, run_planned};

const SEEDS: u64 = 2_500;
/// Threads that share the seeds.
const THREADS: u64 = 2;

fn play(from: u64, to: u64, options: Options) -> Vec<Outcome> {
    let part = |thread: u64| (from + thread..to).step_by(THREADS as usize).map(|seed| run_planned(seed, options)).collect();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || -> Vec<Outcome> { part(thread) })).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a run does not panic")).collect()
    })
}

#[test]
fn no_switchover_breaks_a_promise() {
    let outcomes = play(0, SEEDS, Options::default());
    let broken: Vec<String> = outcomes
        .iter()
        .filter(|outcome| !outcome.broken.is_empty())
        .map(|outcome| format!("cargo run -p weir-sim -- --planned --seed {}: {:?}", outcome.seed, outcome.broken))
        .collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    let switchovers: usize = outcomes.iter().map(|outcome| outcome.switchovers).sum();
    assert!(switchovers > SEEDS as usize, "{switchovers} switchovers");
}

/// Rules of switchovers, and seeds within which each is missed.
const FOUND_WITHIN: [(Rule, u64); 3] = [(Rule::Drain, 300), (Rule::StopFirst, 600), (Rule::WholeLog, 2_500)];

#[test]
fn every_rule_of_a_switchover_is_needed() {
    const STEP: u64 = 100;
    for (rule, within) in FOUND_WITHIN {
        let options = Options { without: Some(rule), ..Options::default() };
        let is_found = (0..within)
            .step_by(STEP as usize)
            .any(|from| play(from, from + STEP, options).iter().any(|outcome| !outcome.broken.is_empty()));
        assert!(is_found, "nothing breaks without {rule:?} in {within} seeds");
    }
}
