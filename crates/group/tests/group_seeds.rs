//! Seeded simulation of groups: crashes, stopped processes, lost disks, bad networks, clocks of different pace.

mod support;

use std::sync::Mutex;
use std::time::Instant;

use support::world::{LeftOut, run, run_dead_member, run_far_member, run_lone_opening};
use weir_group::GroupRule;

/// `WEIR_GROUP_SEEDS` asks for more, `WEIR_GROUP_FROM` for others.
fn seeds() -> (u64, u64) {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    (number("WEIR_GROUP_FROM").unwrap_or(0), number("WEIR_GROUP_SEEDS").unwrap_or(2_000))
}

#[test]
fn faults_never_split_a_group_and_it_is_well_soon_after_them() {
    let begun = Instant::now();
    let (from, count) = seeds();
    let next = Mutex::new(from);
    let bad = Mutex::new(Vec::new());
    let total = Mutex::new([0u64; 11]);
    let work = || loop {
        let seed = {
            let mut next = next.lock().expect("no panic");
            *next += 1;
            *next - 1
        };
        if seed >= from + count {
            return;
        }
        let run = run(seed, LeftOut::Nothing);
        let mut total = total.lock().expect("no panic");
        let of = run.counts;
        for (sum, one) in total.iter_mut().zip([
            of.events,
            of.terms,
            of.epochs,
            of.decided,
            of.member_changes,
            of.wipes,
            of.cleaned,
            of.acts_done,
            of.acts_else,
            run.well_after_ms,
        ]) {
            *sum += one;
        }
        match run.found {
            Some(found) => bad.lock().expect("no panic").push((seed, found)),
            None => total[10] = total[10].max(run.well_after_ms),
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(work);
        }
    });
    let [events, terms, epochs, decided, changes, wipes, cleaned, done, otherwise, well, slowest] =
        *total.lock().expect("no panic");
    eprintln!(
        "{count} seeds, {events} events, {terms} terms, {epochs} epochs, {decided} decided, {changes} changes of members asked, {wipes} disks lost, {cleaned} cleaned, {done} acts done and {otherwise} not; \
         well after {} ms on average, {slowest} ms at most; {:?}",
        well / count.max(1),
        begun.elapsed()
    );
    let bad = bad.lock().expect("no panic");
    for (seed, found) in bad.iter().take(5) {
        eprintln!("seed {seed}: {found}");
    }
    assert!(bad.is_empty(), "{} of {count} seeds", bad.len());
    assert!(done > otherwise, "most acts are done: {done} of {}", done + otherwise);
}

/// First seed at or after `from` that finds a loss of safety; a group that only stands still does not count.
fn first_loss(left_out: LeftOut, from: u64, count: u64) -> Option<(u64, String)> {
    let losses = (from..from + count).filter_map(|seed| Some((seed, run(seed, left_out).found?)));
    losses.into_iter().find(|(_, found)| !found.starts_with("not well"))
}

/// Each rule, the first seed of those that are tried, and how many.
const LOSSES: &[(LeftOut, u64, u64)] = &[
    (LeftOut::Rule(GroupRule::PromiseBinds), 0, 200),
    (LeftOut::Rule(GroupRule::FoundVersionStands), 0, 100),
    (LeftOut::Rule(GroupRule::QuorumShowsVersion), 0, 100),
    (LeftOut::Rule(GroupRule::BothMajorities), 0, 100),
    (LeftOut::Rule(GroupRule::JointKnownDecided), 100, 300),
    (LeftOut::Rule(GroupRule::WriteBeforeAnswer), 0, 100),
    (LeftOut::Rule(GroupRule::LeaseFromQuestion), 600, 400),
    (LeftOut::Rule(GroupRule::WaitForLead), 0, 100),
    (LeftOut::Rule(GroupRule::WaitForWrites), 0, 100),
    (LeftOut::Rule(GroupRule::WaitForLeaving), 350, 400),
    (LeftOut::Rule(GroupRule::WaitForLost), 0, 100),
    (LeftOut::Rule(GroupRule::ObeyFirst), 0, 100),
    (LeftOut::Rule(GroupRule::RestartedGiverWaits), 0, 100),
    (LeftOut::NewIncarnation, 100, 300),
    (LeftOut::ClockPace, 200, 400),
];

#[test]
fn each_rule_left_out_is_found_by_seeds() {
    let missed: Vec<LeftOut> =
        LOSSES.iter().filter(|(left_out, from, count)| first_loss(*left_out, *from, *count).is_none()).map(|row| row.0).collect();
    assert!(missed.is_empty(), "no seed needs {missed:?}");
    let tested = |rule: &&GroupRule| LOSSES.iter().any(|row| row.0 == LeftOut::Rule(**rule));
    let others: Vec<&GroupRule> = GroupRule::ALL.iter().filter(|rule| !tested(rule)).collect();
    assert_eq!(others, [&GroupRule::AcceptorsTell, &GroupRule::ConfirmedOpening], "found by the scripts below");
}

#[test]
fn a_member_that_died_is_waited_for_from_its_last_question_and_not_from_the_closing() {
    let mut waits: Vec<u64> = (0..200).filter_map(|seed| run_dead_member(seed, LeftOut::Nothing)).collect();
    waits.sort_unstable();
    assert!(waits.len() > 5);
    // A lease and 5 %, clocks that differ, a tick; the closing came a tenth of a lease after the death.
    let (median, last) = (waits[waits.len() / 2], waits[waits.len() - 1]);
    assert!(median <= 1_060 && last <= 1_110, "{waits:?}");
}

/// Runs of the script that came to their end, and those with a loss.
fn far_members(left_out: LeftOut) -> (usize, usize) {
    let runs: Vec<_> = (0..200).filter_map(|seed| run_far_member(seed, left_out)).collect();
    (runs.len(), runs.iter().filter(|run| run.found.is_some()).count())
}

#[test]
fn a_lease_is_over_early_only_by_what_all_told_who_accepted_the_change() {
    let (ended, lost) = far_members(LeftOut::Nothing);
    assert!(ended > 5 && lost == 0, "{ended} {lost}");
    let (ended, lost) = far_members(LeftOut::Rule(GroupRule::AcceptorsTell));
    assert!(ended > 5 && lost > 1, "{ended} {lost}");
}

/// Runs of the script that came to their end, and those with a loss.
fn lone_openings(left_out: LeftOut) -> (usize, usize) {
    let runs: Vec<_> = (0..1_500).filter_map(|seed| run_lone_opening(seed, left_out)).collect();
    (runs.len(), runs.iter().filter(|run| run.found.is_some()).count())
}

#[test]
fn an_opening_counts_only_once_a_read_confirmed_it() {
    let (ended, lost) = lone_openings(LeftOut::Nothing);
    assert!(ended > 10 && lost == 0, "{ended} {lost}");
    let (ended, lost) = lone_openings(LeftOut::Rule(GroupRule::ConfirmedOpening));
    assert!(ended > 10 && lost > 0, "{ended} {lost}");
}
