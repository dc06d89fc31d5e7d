//! All orders of few faults: after the primary was killed, two more at every two moments of the failover. A moment is an order that a Weir obeys.

use weir_failover::{OtherPromoters, SafetyRule};
use weir_sim::{Options, Outcome, Plan, Scripted, run_script};

/// Orders of one failover, with room for a second attempt.
const MOMENTS: u64 = 16;
const SETUPS: [(usize, &str, OtherPromoters); 3] =
    [(1, "", OtherPromoters::Alone), (2, "", OtherPromoters::Possible), (2, "ANY 1 (n0, n1, n2)", OtherPromoters::Possible)];

type Script = Vec<(u64, Scripted)>;

fn scripts() -> impl Iterator<Item = Script> {
    let one = || (1..=MOMENTS).flat_map(|at| Scripted::ALL.map(|fault| (at, fault)));
    one().flat_map(move |first| {
        one().filter(move |second| second.0 >= first.0 && *second != first).map(move |second| vec![first, second])
    })
}

fn first_broken(
    setups: &[(usize, &'static str, OtherPromoters)],
    without: Option<SafetyRule>,
) -> (usize, Option<(Script, Outcome)>) {
    let mut count = 0;
    for &(weirs, sync_names, company) in setups {
        for script in scripts() {
            let plan = Plan::scripted(weirs, sync_names, company, script.clone(), without);
            let outcome = run_script(plan, Options { without, ..Options::default() });
            count += 1;
            if !outcome.broken.is_empty() {
                return (count, Some((script, outcome)));
            }
        }
    }
    (count, None)
}

#[test]
fn no_order_of_few_faults_breaks_a_promise() {
    for setup in SETUPS {
        let (count, broken) = first_broken(&[setup], None);
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
        let (count, broken) = first_broken(&[setup], Some(rule));
        assert!(broken.is_some(), "nothing breaks without {rule:?} in {count} orders");
    }
}
