//! All orders of few faults: after the primary was killed, two more at every two moments of the failover. A moment is an order that a Weir obeys.

#[allow(dead_code, reason = "a script has no command of its own to be told")]
mod support;

use support::play;
use weir_failover::{OtherPromoters, SafetyRule};
use weir_sim::{Options, Outcome, Plan, Scripted, run_script};

/// Orders of one failover, with room for a second attempt.
const MOMENTS: u64 = 16;
const SETUPS: [(usize, &str, OtherPromoters); 3] =
    [(1, "", OtherPromoters::Alone), (2, "", OtherPromoters::Possible), (2, "ANY 1 (n0, n1, n2)", OtherPromoters::Possible)];

type Script = Vec<(u64, Scripted)>;

fn scripts() -> Vec<Script> {
    let one = || (1..=MOMENTS).flat_map(|at| Scripted::ALL.map(|fault| (at, fault)));
    let of = move |first: (u64, Scripted)| {
        one().filter(move |second| second.0 >= first.0 && *second != first).map(move |second| vec![first, second])
    };
    one().flat_map(of).collect()
}

/// Plays all scripts, or those up to one that breaks something; gives how many.
fn first_broken(
    (weirs, sync_names, company): (usize, &str, OtherPromoters),
    without: Option<SafetyRule>,
) -> (usize, Option<(Script, Outcome)>) {
    const STEP: usize = 192;
    let scripts = scripts();
    let play_one = |at: u64| {
        let plan = Plan::scripted(weirs, sync_names, company, scripts[at as usize].clone(), without);
        run_script(plan, Options { without, ..Options::default() }).of_seed(at)
    };
    for from in (0..scripts.len()).step_by(STEP) {
        let outcomes = play(from as u64, (from + STEP).min(scripts.len()) as u64, play_one);
        if let Some(broken) = outcomes.into_iter().filter(|outcome| !outcome.broken.is_empty()).min_by_key(|outcome| outcome.seed)
        {
            return (from + STEP, Some((scripts[broken.seed as usize].clone(), broken)));
        }
    }
    (scripts.len(), None)
}

#[test]
fn no_order_of_few_faults_breaks_a_promise() {
    for setup in SETUPS {
        let (count, broken) = first_broken(setup, None);
        if let Some((script, outcome)) = broken {
            panic!("{setup:?} {script:?}: {:?}", outcome.broken);
        }
        assert!(count > 4_000, "{count} orders");
    }
}

/// Rules that a run with dice misses rarely.
#[test]
fn rules_for_rare_orders_are_needed() {
    for (rule, setup) in [
        (SafetyRule::StoreFirst, SETUPS[0]),
        (SafetyRule::CarryFirst, SETUPS[1]),
        (SafetyRule::Confirm, SETUPS[1]),
        (SafetyRule::SecondLook, SETUPS[1]),
    ] {
        let (count, broken) = first_broken(setup, Some(rule));
        assert!(broken.is_some(), "nothing breaks without {rule:?} in {count} orders");
    }
}
