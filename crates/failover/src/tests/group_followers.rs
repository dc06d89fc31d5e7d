//! A Weir in a group: a follower orders nothing and takes over what it is told; a new leader goes on with what the group stored and it saw.

use super::*;

fn follower() -> Play {
    Play::new(|rules| (rules.mode, rules.group) = (FailoverMode::Follow, GroupRole::Follows))
}

fn dead() -> [ProbeResult; 3] {
    [gone(LookFailure::Refused), seen(standby(100, 10)), seen(standby(95, 10))]
}

#[test]
fn a_follower_sees_a_dead_primary_and_orders_nothing() {
    let mut play = follower();
    for _ in 0..6 {
        play.after(1000, dead());
    }
    let orders = |line: &&String| ["cut off", "pledge", "promote", "repoint", "stuck"].iter().any(|word| line.starts_with(word));
    assert_eq!(play.said.iter().filter(orders).count(), 0, "{:?}", play.said);
    assert_eq!((play.state.primary(), play.state.attempt.is_some()), (Some(0), false));
}

#[test]
fn a_follower_has_the_primary_and_the_nodes_in_use_that_it_is_told() {
    let mut play = follower();
    let ballot = Ballot { term: 3, weir: 77 };
    let epoch = Epoch { ballot, node: 1, replaced: Some(0) };
    let told = DurableState {
        weir: 77,
        term: 3,
        epoch: Some(epoch),
        detached: [2].into(),
        down: [0].into(),
        ..play.state.durable.clone()
    };
    play.tell(FailoverEvent::Told { durable: Box::new(told.clone()) });
    let standing = |play: &Play, node: NodeId| play.state.nodes.get(&node).map(|node| node.standing);
    assert_eq!(play.state.epoch(), Some(epoch));
    assert_eq!(standing(&play, 2), Some(NodeStanding::Detached));
    assert!(matches!(standing(&play, 0), Some(NodeStanding::Down { why: NodeDownReason::StatusFile, .. })));
    let told = DurableState { detached: BTreeSet::new(), down: BTreeSet::new(), ..told };
    play.tell(FailoverEvent::Told { durable: Box::new(told) });
    assert_eq!([0, 2].map(|node| standing(&play, node)), [Some(NodeStanding::Waiting); 2]);
}

#[test]
fn a_new_leader_gives_up_the_primary_that_it_saw_dead_as_a_follower() {
    let mut play = follower();
    for _ in 0..6 {
        play.after(1000, dead());
    }
    let stored = DurableState { weir: 77, ..play.state.durable.clone() };
    (play.rules.mode, play.rules.group) = (FailoverMode::Builtin, GroupRole::Leads);
    play.state = play.state.begun_anew(&play.rules, stored, play.now);
    play.said.clear();
    play.tell(FailoverEvent::Timer);
    assert!(play.said.iter().any(|line| line.starts_with("cut off 1")), "without another look: {:?}", play.said);
    assert_eq!(play.state.durable.down, [0].into(), "and all of the group leave it out of use");
    assert!(play.state.stops_writes());
}

#[test]
fn a_new_leader_asks_the_standbys_before_it_lets_writes_through() {
    let names = Some("ANY 1 (n0, n1, n2)".to_owned());
    let facts = || ServerFacts { sync_names: names.clone(), ..primary(100) };
    let mut play = follower();
    play.after(1000, [seen(facts()), seen(standby(100, 10)), seen(standby(100, 10))]);
    assert!(matches!(play.state.gate, WriteTarget::Open { .. }), "it follows the group");
    let stored = DurableState { weir: 77, ..play.state.durable.clone() };
    (play.rules.mode, play.rules.group) = (FailoverMode::Builtin, GroupRole::Leads);
    play.now += 5_000;
    play.state = play.state.begun_anew(&play.rules, stored, play.now);
    play.said.clear();
    play.tell(FailoverEvent::Timer);
    let is_released = |play: &Play| play.said.contains(&"release 0".to_owned());
    assert!(!is_released(&play), "both may have voted since it looked: {:?}", play.said);
    play.now += 10;
    play.probed(1, seen(standby(100, 10)));
    play.probed(2, seen(standby(100, 10)));
    assert!(is_released(&play), "{:?}", play.said);
}

#[test]
fn a_leader_stores_the_nodes_out_of_use_until_they_are_attached() {
    let mut play = Play::new(|rules| rules.group = GroupRole::Leads);
    for _ in 0..6 {
        play.after(1000, [seen(primary(100)), seen(standby(100, 10)), gone(LookFailure::Refused)]);
    }
    assert_eq!(play.state.durable.down, [2].into());
    let again = FailoverState::new(&play.rules, Some(play.state.durable.clone()), 9, &BTreeSet::new());
    assert!(again.is_out(&play.rules, 2), "a new leader finds it so");
    play.after(1000, [seen(primary(100)), seen(standby(100, 10)), seen(standby(100, 10))]);
    play.tell(FailoverEvent::Operator { ticket: 1, request: OperatorRequest::Attach(2) });
    assert_eq!(play.state.durable.down, BTreeSet::new());
}

/// A leader that stood still while it stored hears of the outcome when another leads.
#[test]
fn an_outcome_from_before_the_lead_moved_counts_for_no_later_store() {
    for done in [Done::Yes, Done::No] {
        let mut play = Play::new(|rules| rules.group = GroupRole::Leads);
        play.state.change(|durable| durable.term += 1);
        let actions = step(&mut play.state, &play.rules, &FailoverEvent::Timer, play.now);
        let under_way = actions.iter().find_map(|action| match action {
            FailoverAction::Store { number, .. } => Some(*number),
            _ => None,
        });
        let late = FailoverEvent::Stored { number: under_way.expect("a store"), done };
        let stored = play.state.durable.clone();
        (play.rules.mode, play.rules.group) = (FailoverMode::Follow, GroupRole::Follows);
        play.state = play.state.begun_anew(&play.rules, stored.clone(), play.now);
        // The first store of its new part is under way, too.
        step(&mut play.state, &play.rules, &FailoverEvent::Timer, play.now);
        let before = play.state.store.clone();
        play.tell(late);
        assert_eq!(play.state.store, before, "{done:?}");
        play.tell(FailoverEvent::Stored { number: before.sent, done: Done::Yes });
        let epoch = Epoch { ballot: Ballot { term: stored.term + 1, weir: 9 }, node: 1, replaced: Some(0) };
        play.tell(FailoverEvent::Told { durable: Box::new(DurableState { epoch: Some(epoch), ..stored }) });
        play.after(1000, [gone(LookFailure::Refused), seen(primary(100)), seen(standby(100, 10))]);
        assert!(play.state.is_stored(), "{:?}", play.state.store);
        assert!(matches!(play.state.gate, WriteTarget::Open { node: 1, .. }), "{:?}", play.state.gate);
    }
}

#[test]
fn a_follower_leaves_the_forecast_to_the_leader() {
    let mut play = follower();
    play.after(1000, [seen(primary(100)), seen(standby(100, 10)), seen(standby(100, 10))]);
    let text = crate::forecast(&play.state, &play.rules).describe(0);
    assert_eq!(text, "the leader of the group decides: it shows what would be done");
}

#[test]
fn a_leader_replaces_a_primary_once_most_of_its_group_miss_it() {
    let mut play = Play::new(|rules| (rules.group, rules.consensus) = (GroupRole::Leads, DeathConsensus::Majority));
    let sights = |alive, dead| FailoverEvent::Sights { of_others: [(0, SightCount { alive, dead })].into() };
    play.tell(sights(2, 0));
    let missed_at = |play: &Play| play.state.nodes[&0].dead.map(|(since, _)| since);
    while missed_at(&play).is_none() {
        play.after(1000, dead());
    }
    assert!(!alone_misses_primary(&play.state, play.now), "the others have not looked yet");
    for _ in 0..6 {
        play.after(1000, dead());
    }
    let orders = |play: &Play| play.said.iter().filter(|line| line.starts_with("cut off")).count();
    assert_eq!((orders(&play), alone_misses_primary(&play.state, play.now)), (0, true), "{:?}", play.said);
    play.tell(sights(1, 1));
    play.after(1000, dead());
    assert!(orders(&play) > 0 && !alone_misses_primary(&play.state, play.now), "two of three: {:?}", play.said);
}

#[test]
fn a_leader_leaves_a_standby_that_most_others_reach_out_of_its_own_reads_only() {
    let mut play = Play::new(|rules| (rules.group, rules.consensus) = (GroupRole::Leads, DeathConsensus::Majority));
    play.tell(FailoverEvent::Sights { of_others: [(2, SightCount { alive: 2, dead: 0 })].into() });
    for _ in 0..6 {
        play.after(1000, [seen(primary(100)), seen(standby(100, 10)), gone(LookFailure::TimedOut)]);
    }
    assert!(matches!(play.state.nodes.get(&2).map(|node| node.standing), Some(NodeStanding::Quarantined { .. })));
    assert_eq!(play.state.durable.down, BTreeSet::new());
    play.after(1000, [seen(primary(100)), seen(standby(100, 10)), seen(standby(100, 10))]);
    assert_eq!(play.state.nodes.get(&2).map(|node| node.standing), Some(NodeStanding::Waiting));
}

#[test]
fn a_follower_leaves_such_a_standby_out_of_its_own_reads_too_until_most_miss_it() {
    let mut play = follower();
    play.rules.consensus = DeathConsensus::Majority;
    let sights = |alive, dead| FailoverEvent::Sights { of_others: [(2, SightCount { alive, dead })].into() };
    let looks = || [seen(primary(100)), seen(standby(100, 10)), gone(LookFailure::TimedOut)];
    let standing = |play: &Play| play.state.nodes.get(&2).map(|node| node.standing);
    play.tell(sights(2, 0));
    for _ in 0..6 {
        play.after(1000, looks());
    }
    assert!(matches!(standing(&play), Some(NodeStanding::Quarantined { .. })), "{:?}", standing(&play));
    play.tell(sights(1, 1));
    play.after(1000, looks());
    assert!(matches!(standing(&play), Some(NodeStanding::Down { .. })), "two of three: {:?}", standing(&play));
}
