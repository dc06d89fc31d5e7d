//! Facts about the primary: where its log ended, who acknowledges, and if it was looked at since.

use super::*;

#[test]
fn of_the_primarys_positions_the_latest_are_kept_and_their_number_is_bounded() {
    let mut play = Play::new(|_| ());
    let many = 10_000;
    (1..=many).for_each(|at| play.state.sample(at, 100 + at));
    let samples = play.state.samples();
    assert!((10..100).contains(&samples.len()), "{}", samples.len());
    assert!(samples.is_sorted() && samples.last() == Some(&(many, 100 + many)));
}

#[test]
fn an_earlier_rule_of_synchronous_standbys_counts_until_the_new_one_has_acknowledged() {
    let with = |names: &str, position| seen(ServerFacts { sync_names: Some(names.into()), ..primary(position) });
    let mut play = Play::new(|_| ());
    let mut before = |names: &str, position| {
        play.now += 1000;
        play.probed(0, with(names, position));
        play.state.durable.sync_names_before.clone()
    };
    assert_eq!(before("n1", 100), None);
    assert_eq!(before("n2", 110).as_deref(), Some("n1"));
    assert_eq!(before("n2", 120).as_deref(), Some("n1"), "no standby has flushed anything");
    assert_eq!(before("", 130), None, "nobody acknowledges from now on");
}

#[test]
fn behind_a_broken_connection_the_primary_is_looked_at_anew_where_others_may_have_replaced_it() {
    for (company, link, expected) in [
        (OtherPromoters::Possible, 0, 500),
        (OtherPromoters::Possible, 1, 0),
        (OtherPromoters::Alone, 0, 0),
        (OtherPromoters::Alone, 1, 0),
    ] {
        let mut play = Play::new(|rules| rules.company = company);
        play.after(0, [seen(primary(100)), seen(standby(100, 5)), seen(standby(100, 5))]);
        let since = play.state.line.check_from;
        play.now += 500;
        play.tell(FailoverEvent::ConnDied { node: link, how: ServerConnEnd::Broken });
        assert_eq!(play.state.line.check_from - since, expected, "{company:?} {link}");
    }
}

#[test]
fn before_the_first_looks_nobody_tells_how_the_primary_is_known() {
    let rules = rules(3);
    let mut state = FailoverState::new(&rules, None, 9, &BTreeSet::new());
    let told = |state: &FailoverState| forecast(state, &rules).outlook;
    assert_eq!(told(&state), FailoverOutlook::NoPrimary(forecast::NoPrimaryReason::Looks));
    for node in 0..3 {
        let found = ProbeResult::Failed(LookFailure::Refused);
        step(&mut state, &rules, &FailoverEvent::Probed { node, begun_at: 0, found }, 0);
        let is_last = node == 2;
        let expected = if is_last { forecast::NoPrimaryReason::Answers } else { forecast::NoPrimaryReason::Looks };
        assert_eq!(told(&state), FailoverOutlook::NoPrimary(expected), "{node}");
    }
}
