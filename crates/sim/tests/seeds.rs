//! Thousands of seeds break nothing, and without any one safety rule some seed breaks something.

mod support;

use std::ops::Range;

use support::{check_unbroken, play};
use weir_failover::SafetyRule;
use weir_sim::{Broken, Options, Outcome, Proof, Told, run, run_grouped, run_returning};

const SEEDS: u64 = 10_000;

#[test]
fn no_seed_breaks_a_promise() {
    let outcomes = play(0, SEEDS, |seed| run(seed, Options::default()));
    check_unbroken(&outcomes, "cargo run -p weir-sim --");
    // The runs are about something.
    let sum = |of: fn(&Outcome) -> usize| outcomes.iter().map(of).sum::<usize>();
    let (failovers, acknowledged) = (sum(|outcome| outcome.failovers), sum(|outcome| outcome.acknowledged));
    assert!(failovers > 4_000 && acknowledged > 5_000_000, "{failovers} failovers, {acknowledged} acknowledged writes");
    assert!(sum(|outcome| outcome.announced_lost) > 1_000, "asynchronous runs lose something, and say so");
    assert!(sum(|outcome| outcome.ended) > 100, "primaries that hang are ended by their agents");
    let told = |of: fn(&Told) -> usize| outcomes.iter().map(|outcome| of(&outcome.told)).sum::<usize>();
    let (committed, rolled_back) = (told(|told| told.committed), told(|told| told.rolled_back));
    assert!(committed > 1_000 && rolled_back > 1_000, "COMMITs in doubt: {committed} were committed, {rolled_back} rolled back");
    let (again, refused) = (told(|told| told.again), told(|told| told.refused));
    assert!(again > 1_000 && refused > 1_000, "{again} transactions ran again, {refused} could not");
}

#[test]
fn a_seed_is_a_run() {
    let options = Options { traces: true, ..Options::default() };
    for seed in [3, 1234, 987_654_321] {
        let (first, second) = (run(seed, options), run(seed, options));
        assert_eq!(first.trace, second.trace, "seed {seed}");
        assert!(first.events > 1_000 && !first.trace.is_empty());
    }
}

/// Rules, and seeds within which each is missed. `scripts.rs` finds those that dice miss rarely.
const BY_SCRIPTS: [SafetyRule; 2] = [SafetyRule::StoreFirst, SafetyRule::SecondLook];
/// Rules of `switchover.rs`.
const OF_SWITCHOVERS: [SafetyRule; 3] = [SafetyRule::Drain, SafetyRule::StopFirst, SafetyRule::WholeLog];
/// That of `returning.rs`.
const OF_RETURNS: SafetyRule = SafetyRule::DecidedReturn;
const FOUND_WITHIN: [(SafetyRule, u64); 15] = [
    (SafetyRule::MostWal, 300),
    (SafetyRule::CutOff, 1_500),
    (SafetyRule::ReadQuorum, 1_500),
    (SafetyRule::OnePrimary, 300),
    (SafetyRule::Majority, 4_000),
    (SafetyRule::Evidence, 3_000),
    (SafetyRule::CarryFirst, 1_500),
    (SafetyRule::EndTransactions, 3_000),
    (SafetyRule::ProvenDead, 1_500),
    (SafetyRule::Confirm, 3_000),
    (SafetyRule::SeenPromise, 3_000),
    (SafetyRule::Quarantine, 300),
    (SafetyRule::Unfence, 300),
    (SafetyRule::TellLoss, 300),
    (SafetyRule::CopyApart, 3_000),
];

#[test]
fn every_rule_is_needed() {
    const STEP: u64 = 100;
    for (rule, within) in FOUND_WITHIN {
        let options = Options { without: Some(rule), ..Options::default() };
        let is_found = (0..within)
            .step_by(STEP as usize)
            .any(|from| play(from, from + STEP, |seed| run(seed, options)).iter().any(|outcome| !outcome.broken.is_empty()));
        assert!(is_found, "nothing breaks without {rule:?} in {within} seeds");
    }
    let has_row = |rule: &SafetyRule| {
        BY_SCRIPTS.contains(rule) || OF_SWITCHOVERS.contains(rule) || FOUND_WITHIN.iter().any(|(of, _)| of == rule)
    };
    assert!(SafetyRule::ALL.iter().all(|rule| has_row(rule) || *rule == OF_RETURNS));
}

type Play = fn(u64, Options) -> Outcome;

/// Parts of the proofs of a COMMIT's outcome and of a transaction that runs again, and seeds among which each is missed.
const UNPROVED: [(Proof, Play, Range<u64>); 10] = [
    (Proof::Reached, run, 0..150),
    (Proof::Fresh, run, 1_000..1_100),
    (Proof::SeenPromotion, run, 900..1_000),
    (Proof::RunOn, run, 0..150),
    (Proof::LaterCheckpoint, run, 0..1_500),
    (Proof::Replicated, run, 3_950..4_050),
    (Proof::InProgress, run, 1_300..1_400),
    (Proof::AllBefore, run_returning, 1_400..1_500),
    (Proof::Answered, run_grouped, 10_370..10_380),
    (Proof::SameAnswers, run, 0..50),
];

/// Two promotions in a row between a loss and its question: no seed of some 50,000 meets them. `commit_outcome` has a test of its own.
const TOO_RARE: Proof = Proof::NextLine;

#[test]
fn every_part_of_a_proof_is_needed() {
    for (proof, run, seeds) in UNPROVED {
        let options = Options { unproved: Some(proof), ..Options::default() };
        let is_false =
            |broken: &Broken| matches!(broken, Broken::FalseOutcome { .. } | Broken::Lost { .. } | Broken::OtherShown { .. });
        let outcomes = play(seeds.start, seeds.end, |seed| run(seed, options));
        let is_found = outcomes.iter().any(|outcome| outcome.broken.iter().any(is_false));
        assert!(is_found, "nothing breaks without {proof:?} in seeds {seeds:?}");
    }
    assert!(Proof::ALL.iter().all(|proof| *proof == TOO_RARE || UNPROVED.iter().any(|(of, ..)| of == proof)));
}
