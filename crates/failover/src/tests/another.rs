//! Another cluster at the address of a node.

use super::*;
use crate::NodeStanding;
use crate::action::NodeDownReason;

/// A primary of another cluster, started later.
fn foreign() -> ServerFacts {
    let history = TimelineHistory { system: 8, timeline: 1, ..TimelineHistory::default() };
    ServerFacts { history, started_at: 9, ..primary(5) }
}

fn foreign_standby() -> ServerFacts {
    ServerFacts { history: foreign().history, started_at: 9, ..standby(5, 10) }
}

/// One node that was the primary of a cluster, and is down.
fn alone(mode: FailoverMode) -> Play {
    let rules = FailoverRules { mode, company: OtherPromoters::Alone, ..rules(1) };
    let state = FailoverState::new(&rules, None, 9, &BTreeSet::new());
    let mut play = Play { state, rules, now: 0, said: Vec::new(), disk: Done::Yes };
    play.tell(FailoverEvent::Timer);
    play.probed(0, seen(primary(100)));
    assert!(matches!(play.state.gate, WriteTarget::Open { node: 0, .. }), "{mode:?}");
    for _ in 0..3 {
        play.now += 1000;
        play.probed(0, gone(LookFailure::Refused));
    }
    play.said.clear();
    play
}

fn look(play: &mut Play, found: ProbeResult) {
    play.now += 1000;
    play.probed(0, found);
}

const MODES: [FailoverMode; 4] = [FailoverMode::Builtin, FailoverMode::Follow, FailoverMode::Off, FailoverMode::Command];

#[test]
fn another_cluster_gets_nothing_and_is_told_of_once_also_by_a_node_that_was_down() {
    for mode in MODES {
        let mut play = alone(mode);
        for _ in 0..5 {
            look(&mut play, seen(foreign()));
        }
        assert!(matches!(play.state.gate, WriteTarget::Held(WriteHoldReason::Foreign, _)), "{mode:?}: {:?}", play.state.gate);
        assert!(matches!(play.state.nodes[&0].standing, NodeStanding::Down { why: NodeDownReason::Foreign, .. }), "{mode:?}");
        assert_eq!(play.said.iter().filter(|line| *line == "foreign 0").count(), 1, "{mode:?}: {:?}", play.said);
        assert!(!play.said.iter().any(|line| line.starts_with("release")), "{mode:?}: {:?}", play.said);
    }
}

#[test]
fn an_operator_who_names_it_has_it_accepted() {
    for mode in MODES {
        let mut play = alone(mode);
        look(&mut play, seen(foreign()));
        play.said.clear();
        play.tell(FailoverEvent::Operator { ticket: 1, request: OperatorRequest::Promote(0) });
        look(&mut play, seen(foreign()));
        assert!(play.said.contains(&"begun 0".to_owned()), "{mode:?}: {:?}", play.said);
        assert!(play.said.contains(&"reply Ok(())".to_owned()), "{mode:?}: {:?}", play.said);
        assert!(matches!(play.state.gate, WriteTarget::Open { node: 0, .. }), "{mode:?}: {:?}", play.state.gate);
        play.said.clear();
        look(&mut play, seen(foreign()));
        play.check("nothing more is said", &[]);
    }
}

#[test]
fn the_server_of_before_goes_on_by_itself_when_it_is_back() {
    for mode in MODES {
        let mut play = alone(mode);
        look(&mut play, seen(foreign()));
        for _ in 0..2 {
            look(&mut play, seen(ServerFacts { started_at: 10, ..primary(120) }));
        }
        assert!(matches!(play.state.gate, WriteTarget::Open { node: 0, .. }), "{mode:?}: {:?}", play.state.gate);
    }
}

#[test]
fn an_address_of_a_reload_is_believed_where_nothing_of_the_cluster_before_answers() {
    for mode in MODES {
        let mut play = alone(mode);
        play.state.readdress(0);
        for _ in 0..2 {
            look(&mut play, seen(foreign()));
        }
        assert!(matches!(play.state.gate, WriteTarget::Open { node: 0, .. }), "{mode:?}: {:?}", play.state.gate);
    }
    // A mistake in one line leaves the standbys of the cluster that counts.
    let mut play = Play::new(|rules| rules.mode = FailoverMode::Follow);
    play.state.readdress(0);
    for _ in 0..3 {
        play.after(1000, [seen(foreign()), seen(standby(100, 10)), seen(standby(100, 10))]);
    }
    assert!(matches!(play.state.gate, WriteTarget::Held(WriteHoldReason::Foreign, _)), "{:?}", play.state.gate);
}

#[test]
fn standbys_of_the_cluster_that_was_named_are_used_again() {
    let mut play = Play::new(|rules| rules.mode = FailoverMode::Follow);
    let all = || [seen(foreign()), seen(foreign_standby()), seen(foreign_standby())];
    play.after(1000, all());
    assert!(play.state.nodes.values().all(|node| !node.is_in_use()), "{:?}", play.state.nodes);
    play.tell(FailoverEvent::Operator { ticket: 1, request: OperatorRequest::Promote(0) });
    play.after(1000, all());
    assert!(play.state.nodes.values().all(NodeState::is_in_use), "{:?}", play.state.nodes);
    assert!(matches!(play.state.gate, WriteTarget::Open { node: 0, .. }), "{:?}", play.state.gate);
}

#[test]
fn with_company_it_is_the_standbys_that_tell_the_primary_of_the_cluster_that_was_named() {
    let follows_1 = RecoveryState::Standby { upstream: Some(1), stream: WalReceiverState::On { silent_ms: 10 } };
    let all = || [seen(foreign()), seen(foreign()), seen(ServerFacts { recovery: follows_1, ..foreign_standby() })];
    let accepted = |mode, company| {
        let mut play = Play::new(|rules| (rules.mode, rules.company) = (mode, company));
        play.after(1000, all());
        play.tell(FailoverEvent::Operator { ticket: 1, request: OperatorRequest::Promote(0) });
        for _ in 0..3 {
            play.after(1000, all());
        }
        play.state.primary()
    };
    assert_eq!(
        accepted(FailoverMode::Follow, OtherPromoters::Possible),
        Some(0),
        "without votes the operator's word is all there is"
    );
    assert_eq!(accepted(FailoverMode::Builtin, OtherPromoters::Alone), Some(0));
    assert_ne!(accepted(FailoverMode::Builtin, OtherPromoters::Possible), Some(0));
}

#[test]
fn a_server_restored_on_another_branch_of_the_log_waits_for_the_operator() {
    let mut play = alone(FailoverMode::Follow);
    let on = |timeline, switches: &[(u32, Lsn)]| {
        let history = TimelineHistory { system: 7, timeline, switches: switches.to_vec(), ..TimelineHistory::default() };
        seen(ServerFacts { history, started_at: u64::from(timeline), ..primary(200) })
    };
    for _ in 0..2 {
        look(&mut play, on(2, &[(1, 100)]));
    }
    assert!(matches!(play.state.gate, WriteTarget::Open { .. }), "it descends: {:?}", play.state.gate);
    for _ in 0..2 {
        look(&mut play, on(3, &[(1, 80)]));
    }
    assert!(matches!(play.state.gate, WriteTarget::Held(WriteHoldReason::Another, _)), "{:?}", play.state.gate);
    play.tell(FailoverEvent::Operator { ticket: 1, request: OperatorRequest::Promote(0) });
    look(&mut play, on(3, &[(1, 80)]));
    assert!(matches!(play.state.gate, WriteTarget::Open { .. }), "{:?}", play.state.gate);
}

#[test]
fn always_primary_is_the_primary_whatever_it_is() {
    let mut play = Play::new(|rules| rules.nodes[0].flag = BackendFlag::AlwaysPrimary);
    for _ in 0..2 {
        play.after(1000, [seen(foreign()), gone(LookFailure::Refused), gone(LookFailure::Refused)]);
    }
    assert!(matches!(play.state.gate, WriteTarget::Open { node: 0, .. }), "{:?}", play.state.gate);
    assert_eq!(play.said.iter().filter(|line| *line == "begun 0").count(), 1, "{:?}", play.said);
}
