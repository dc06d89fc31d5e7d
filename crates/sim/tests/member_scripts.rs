//! Faults of members in orders that dice meet rarely: disks that are lost, and hosts that are removed.

mod support;

use support::{check_unbroken, play};
use weir_group::GroupRule;
use weir_sim::{Broken, GroupPart, MemberScript, Options, Outcome, run_member_script};

const SEEDS: u64 = 200;

fn outcomes(script: MemberScript, without: Option<GroupPart>) -> Vec<Outcome> {
    let options = Options { group_without: without, ..Options::default() };
    play(0, SEEDS, |seed| run_member_script(seed, script, options))
}

/// Runs in which such a promise is broken.
fn count(outcomes: &[Outcome], is_such: impl Fn(&Broken) -> bool) -> usize {
    outcomes.iter().filter(|outcome| outcome.broken.iter().any(&is_such)).count()
}

#[test]
fn no_script_of_members_breaks_a_promise() {
    for script in MemberScript::ALL {
        let outcomes = outcomes(script, None);
        check_unbroken(&outcomes, &format!("cargo run -p weir-sim -- --script {script:?}"));
        let happened: usize = outcomes.iter().map(|outcome| outcome.disks_lost + outcome.removals).sum();
        assert_eq!(happened as u64, SEEDS, "{script:?}: a disk is lost in each run, or a host removed");
    }
}

#[test]
fn a_member_that_lost_its_disk_has_no_vote_under_its_old_name() {
    let found = outcomes(MemberScript::DiskAfterAcceptance, Some(GroupPart::NewIncarnation));
    let twice = count(&found, |broken| matches!(broken, Broken::DecidedTwice { .. }));
    assert!(twice > 100, "{twice} runs");
}

#[test]
fn a_change_of_members_is_decided_by_both_majorities() {
    let found = outcomes(MemberScript::ChangeEndsAlone, Some(GroupPart::Rule(GroupRule::BothMajorities)));
    let twice = count(&found, |broken| matches!(broken, Broken::DecidedTwice { .. }));
    let leaders = count(&found, |broken| matches!(broken, Broken::TwoLeaders { .. }));
    assert!(twice > 10 && leaders > 5, "{twice} and {leaders} runs");
}

#[test]
fn the_lease_of_a_removed_member_is_waited_for() {
    let found = outcomes(MemberScript::WriterRemoved, Some(GroupPart::Rule(GroupRule::WaitForLeaving)));
    let beside = count(&found, |broken| matches!(broken, Broken::PromotedBeside { .. }));
    let late = count(&found, |broken| matches!(broken, Broken::LateSuccess { .. }));
    assert!(beside > 20 && late > 20, "{beside} and {late} runs");
}

/// A lost mark of the former process changes nothing: that one has what the old member was given.
#[test]
fn a_former_process_is_waited_for_when_its_host_is_another_member() {
    let found = outcomes(MemberScript::DiskBesideFormer, Some(GroupPart::Rule(GroupRule::WaitForLeaving)));
    let beside = count(&found, |broken| matches!(broken, Broken::PromotedBeside { .. }));
    assert!(beside > 5, "{beside} runs");
}

/// Nobody can remove a leader but the next one, whose lead begins once the lease of the former one is over: no address is left to wait for.
#[test]
fn the_lead_of_a_removed_member_is_over_before_its_removal() {
    let left_out = outcomes(MemberScript::LeaderRemoved, Some(GroupPart::Rule(GroupRule::WaitForLeaving)));
    check_unbroken(&left_out, "cargo run -p weir-sim -- --group-without Rule(WaitForLeaving) --script LeaderRemoved");
    let found = outcomes(MemberScript::LeaderRemoved, Some(GroupPart::Rule(GroupRule::WaitForLead)));
    let addresses = count(&found, |broken| matches!(broken, Broken::TwoAddresses { .. }));
    assert!(addresses > 20, "{addresses} runs");
}
