//! Servers that somebody else promotes: the primary that gets writes, and those that get nothing.

use super::*;

#[test]
fn where_others_promote_a_second_primary_gets_writes_once_the_first_is_gone() {
    for mode in [FailoverMode::Follow, FailoverMode::Off] {
        let mut play = Play::new(|rules| rules.mode = mode);
        play.after(1000, [seen(primary(110)), seen(promoted(95)), seen(standby(95, 10))]);
        play.check("the accepted one answers as a primary", &["false primary 1"]);
        play.after(1000, [gone(LookFailure::Refused), seen(promoted(95)), seen(standby(95, 10))]);
        play.check("one failed look", &[]);
        play.after(500, [gone(LookFailure::Refused), seen(promoted(95)), seen(standby(95, 10))]);
        let stored = "hold Unconfirmed Go";
        let expected = ["hold Gone End", "stuck NotByWeir", stored, "done 1 Unknown", "release 1"];
        play.check("it is gone, and the other descends from it", &expected);
        play.after(1000, [seen(primary(120)), seen(promoted(95)), seen(standby(95, 10))]);
        play.check("it comes back on its old timeline", &["false primary 0"]);
        play.after(1000, [seen(primary(120)), gone(LookFailure::Refused), seen(standby(95, 10))]);
        play.after(500, [seen(primary(120)), gone(LookFailure::Refused), seen(standby(95, 10))]);
        play.check("and gets nothing when the new one is gone", &["hold Gone End", "stuck NotByWeir"]);
    }
}

#[test]
fn where_others_promote_one_that_does_not_descend_from_the_accepted_primary_gets_nothing() {
    let other = |position, history: TimelineHistory| seen(ServerFacts { history, started_at: 2, ..primary(position) });
    for (name, history, told) in [
        (
            "the same timeline, as without a promotion",
            TimelineHistory { system: 7, timeline: 1, ..TimelineHistory::default() },
            &[][..],
        ),
        (
            "another cluster",
            TimelineHistory { system: 8, timeline: 2, switches: vec![(1, 90)], ..TimelineHistory::default() },
            &["foreign 1"],
        ),
    ] {
        let mut play = Play::new(|rules| rules.mode = FailoverMode::Follow);
        play.after(1000, [gone(LookFailure::Refused), other(95, history.clone()), seen(standby(95, 10))]);
        play.after(500, [gone(LookFailure::Refused), other(95, history.clone()), seen(standby(95, 10))]);
        play.check(name, &[told, &["hold Gone End", "stuck NotByWeir"]].concat());
    }
}

#[test]
fn writes_wait_while_nothing_says_which_of_two_primaries_is_meant() {
    let mut rules = rules(2);
    rules.mode = FailoverMode::Follow;
    let state = FailoverState::new(&rules, None, 9, &BTreeSet::new());
    let mut play = Play { state, rules, now: 0, said: Vec::new(), disk: Done::Yes };
    assert_eq!(play.state.decider(&play.rules), WriteDecider::Roles, "nobody was asked yet");
    play.probed(0, seen(primary(100)));
    play.probed(1, seen(primary(100)));
    assert_eq!(play.state.decider(&play.rules), WriteDecider::Nothing);
    play.probed(1, seen(standby(100, 10)));
    assert_eq!(play.state.decider(&play.rules), WriteDecider::Gate);
    play.check("the only one", &["hold Unconfirmed Go", "done 0 Nothing", "release 0"]);
}

#[test]
fn the_search_for_a_primary_ends_in_the_log_and_one_that_comes_later_is_taken() {
    for (search_ms, told) in [(Some(5000), &["none in 5000"][..]), (None, &[])] {
        let mut play = Play::new(|rules| (rules.mode, rules.search_ms) = (FailoverMode::Follow, search_ms));
        play.after(1000, [gone(LookFailure::Refused), seen(standby(90, 10)), seen(standby(95, 10))]);
        play.after(500, [gone(LookFailure::Refused), seen(standby(90, 10)), seen(standby(95, 10))]);
        play.check("it is gone", &["hold Gone End", "stuck NotByWeir"]);
        play.after(4999, [gone(LookFailure::Refused), seen(standby(90, 10)), seen(standby(95, 10))]);
        play.check("the time is not over", &[]);
        play.after(1, [gone(LookFailure::Refused), seen(standby(90, 10)), seen(standby(95, 10))]);
        play.check("it is", told);
        play.after(5000, [gone(LookFailure::Refused), seen(standby(90, 10)), seen(promoted(95))]);
        play.check("somebody promoted a standby", &["hold Unconfirmed Go", "done 2 Unknown", "release 2"]);
    }
}
