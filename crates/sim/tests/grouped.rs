//! Weirs that are members of one group, before servers that fail.

mod support;

use std::ops::Range;

use support::{check_unbroken, play};
use weir_group::GroupRule;
use weir_sim::{Broken, GroupPart, Options, Outcome, run_grouped};

/// `WEIR_GROUP_SEEDS` asks for more.
fn seeds() -> u64 {
    std::env::var("WEIR_GROUP_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(10_000)
}

#[test]
fn no_failover_of_a_group_breaks_a_promise() {
    let count = seeds();
    let outcomes = play(0, count, |seed| run_grouped(seed, Options::default()));
    check_unbroken(&outcomes, "cargo run -p weir-sim -- --grouped");
    // The runs are about something.
    let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    let (failovers, acknowledged) = (sum(|of| of.failovers as u64), sum(|of| of.acknowledged as u64));
    assert!(failovers > count && acknowledged > 1_000 * count, "{failovers} failovers, {acknowledged} acknowledged writes");
    assert!(sum(|of| of.switchovers as u64) > count / 100, "some primaries are moved on purpose");
    let takeovers = sum(|of| of.takeovers as u64);
    assert!(takeovers > count / 10, "{takeovers} processes took over");
    let (disks_lost, removals) = (sum(|of| of.disks_lost as u64), sum(|of| of.removals as u64));
    assert!(disks_lost > count / 50 && removals > count / 50, "{disks_lost} disks lost, {removals} hosts to be removed");
    let beside = sum(|of| of.disks_lost_beside as u64);
    assert!(beside > count / 100, "{beside} disks lost beside another process of their host");
    // Nothing else removes hosts in these runs.
    let left: u64 = outcomes.iter().filter(|of| of.shutdowns > 0).map(|of| of.members_left as u64).sum();
    let shutdowns = sum(|of| of.shutdowns as u64);
    assert!(shutdowns > count / 10 && left > count / 40, "{shutdowns} Weirs were stopped, {left} left their groups");
    // A quarter of the groups keeps its state in etcd.
    let over_etcd = outcomes.iter().filter(|outcome| outcome.etcd_changes > 0).count() as u64;
    let etcd_changes = sum(|of| of.etcd_changes);
    assert!(over_etcd > count / 5 && etcd_changes > 10 * over_etcd, "{over_etcd} groups over etcd made {etcd_changes} changes");
    let (terms, too_late) = (sum(|of| of.terms), sum(|of| of.too_late as u64));
    assert!(terms > count && too_late > count / 20, "{terms} changes of the leader, {too_late} answers after a lease");
}

/// `member_scripts.rs` misses it.
const BY_SCRIPT: GroupPart = GroupPart::NewIncarnation;

/// Parts that a run leaves out, and seeds among which each is missed.
const MISSED: [(GroupPart, Range<u64>); 17] = [
    (GroupPart::CloseFirst, 0..10),
    (GroupPart::WaitStopped, 0..70),
    (GroupPart::LeaseAtSuccess, 10..70),
    (GroupPart::LeaseAtOrder, 490..498),
    (GroupPart::OrdersEnd, 292..300),
    (GroupPart::ServerMarks, 150..156),
    (GroupPart::FormersObeyFirst, 36..42),
    (GroupPart::FormersOutlived, 1414..1420),
    (GroupPart::AddressWithinLease, 0..10),
    (GroupPart::AddressGoneFirst, 118..126),
    (GroupPart::EtcdCompares, 0..10),
    (GroupPart::EtcdFreshReads, 140..146),
    (GroupPart::Rule(GroupRule::WaitForWrites), 0..30),
    (GroupPart::Rule(GroupRule::WaitForLost), 74..80),
    (GroupPart::Rule(GroupRule::ObeyFirst), 10..50),
    (GroupPart::Rule(GroupRule::LeaseFromQuestion), 195..210),
    (GroupPart::Rule(GroupRule::WaitForLead), 0..10),
];

/// True if leaving this part out breaks such a promise: of the address only two hosts that have it, of changes in etcd only a decision that is lost.
fn is_of(part: GroupPart, broken: &Broken) -> bool {
    match part {
        GroupPart::AddressWithinLease | GroupPart::AddressGoneFirst => matches!(broken, Broken::TwoAddresses { .. }),
        GroupPart::EtcdCompares => matches!(broken, Broken::DecidedTwice { .. }),
        _ => true,
    }
}

#[test]
fn every_part_of_failover_in_a_group_is_needed() {
    for (part, seeds) in MISSED {
        let options = Options { group_without: Some(part), ..Options::default() };
        let outcomes = play(seeds.start, seeds.end, |seed| run_grouped(seed, options));
        let is_found = outcomes.iter().any(|outcome| outcome.broken.iter().any(|broken| is_of(part, broken)));
        assert!(is_found, "nothing breaks without {part:?} in seeds {seeds:?}");
    }
    assert!(GroupPart::BINDING.iter().all(|part| *part == BY_SCRIPT || MISSED.iter().any(|(of, _)| of == part)));
}

#[test]
fn a_seed_of_a_group_is_a_run() {
    let options = Options { traces: true, ..Options::default() };
    let (first, second) = (run_grouped(1234, options), run_grouped(1234, options));
    assert_eq!(first.trace, second.trace);
    assert!(first.events > 1_000 && !first.trace.is_empty());
}
