//! Words of a Weir on decisions that it finds on servers: no failover that it did not see, and none that was not.

use super::*;

/// The first server is replaced by the second one; both keep the vote.
fn vote(term: u64, node: NodeId, parent: Epoch) -> Vote {
    let ballot = Ballot { term, weir: 3 };
    Vote { ballot, epoch: Epoch { ballot, node, replaced: Some(parent.node) }, parent }
}

/// A server after that failover, on its second timeline.
fn after(vote: Vote, recovery: RecoveryState) -> ServerFacts {
    let history = TimelineHistory { system: 7, timeline: 2, switches: vec![(1, 100)], ..TimelineHistory::default() };
    let mark = Mark { promised: vote.ballot, vote: Some(vote) };
    ServerFacts { history, mark, ..server(120, recovery) }
}

fn follows(node: NodeId) -> RecoveryState {
    RecoveryState::Standby { upstream: Some(node), stream: WalReceiverState::On { silent_ms: 5 } }
}

/// A Weir that is started before servers, which it looks at in this order.
fn begun(mode: FailoverMode, order: &[NodeId], found: &[ServerFacts]) -> Play {
    let mut rules = rules(3);
    rules.mode = mode;
    let state = FailoverState::new(&rules, None, 9, &BTreeSet::new());
    let mut play = Play { state, rules, now: 1000, said: Vec::new(), disk: Done::Yes };
    play.tell(FailoverEvent::Timer);
    for round in 0..3 {
        for node in order {
            play.now += 10 + round;
            play.probed(*node, seen(found[usize::from(*node)].clone()));
        }
    }
    play
}

const ORDERS: [[NodeId; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

#[test]
fn a_failover_of_before_the_start_is_not_told_as_one_of_now() {
    let first = vote(1, 1, Epoch::found(0));
    let second = vote(3, 2, first.epoch);
    let one = [after(first, follows(1)), after(first, RecoveryState::Primary), after(first, follows(1))];
    let two = [after(second, follows(2)), after(second, follows(2)), after(second, RecoveryState::Primary)];
    for mode in [FailoverMode::Follow, FailoverMode::Off, FailoverMode::Command, FailoverMode::Builtin] {
        for (found, primary) in [(&one, 1), (&two, 2)] {
            for order in ORDERS {
                let mut play = begun(mode, &order, found);
                let changes: Vec<(Option<NodeId>, NodeId)> =
                    play.state.records.iter().map(|record| (record.old, record.new)).collect();
                assert_eq!(changes, [(None, primary)], "{mode:?} {order:?}: {:?}", play.said);
                play.said.retain(|line| !line.starts_with("hold") && !line.starts_with("done"));
                play.check(&format!("{mode:?} {order:?}"), &[&format!("release {primary}")]);
            }
        }
    }
}

/// As by a user without REPLICATION: timelines are known, and where they were left is not.
fn assumed(facts: &ServerFacts) -> ServerFacts {
    let timeline = Some(facts.history.timeline);
    ServerFacts { history: TimelineHistory::assume(Some(7), timeline, None, 0), ..facts.clone() }
}

#[test]
fn a_history_that_may_be_read_later_is_no_other_log() {
    let first = vote(1, 1, Epoch::found(0));
    let found = [after(first, follows(1)), after(first, RecoveryState::Primary), after(first, follows(1))];
    let mut play = begun(FailoverMode::Follow, &[0, 1, 2], &found.each_ref().map(assumed));
    assert_eq!(play.state.history().unwrap().source, HistorySource::Assumed);
    play.said.clear();
    play.after(1000, found.map(seen));
    assert_eq!(play.state.history().unwrap().source, HistorySource::Read);
    play.check("the right was granted meanwhile", &[]);
}

#[test]
fn of_a_log_that_was_left_nobody_knows_where_no_loss_is_told() {
    let mut play = Play::new(|rules| rules.mode = FailoverMode::Follow);
    let guess = TimelineHistory::assume(Some(7), Some(2), play.state.history(), 90);
    let new = || ServerFacts { history: guess.clone(), ..primary(130) };
    for passed in [1000, 500] {
        play.after(passed, [gone(LookFailure::Refused), seen(new()), seen(standby(95, 10))]);
    }
    let told = play.said.iter().find(|line| line.starts_with("done"));
    assert_eq!(told.map(String::as_str), Some("done 1 Unknown"));
}

#[test]
fn a_vote_of_an_earlier_time_makes_nobody_the_primary_where_others_promote() {
    let first = vote(1, 1, Epoch::found(0));
    let newer = TimelineHistory { system: 7, timeline: 3, switches: vec![(1, 100), (2, 150)], ..TimelineHistory::default() };
    let ours = ServerFacts { history: newer, ..primary(200) };
    // The voted one comes back as a primary, on its old timeline.
    let back = after(first, RecoveryState::Primary);
    let found = [seen(ours.clone()), gone(LookFailure::Refused), gone(LookFailure::Refused)];
    let mut play = Play::new(|rules| rules.mode = FailoverMode::Follow);
    play.state = FailoverState::new(&play.rules, None, 9, &BTreeSet::new());
    play.tell(FailoverEvent::Timer);
    play.looks(found);
    play.check("the one that answers", &["hold Unconfirmed Go", "done 0 Nothing", "release 0"]);
    play.after(1000, [seen(ours.clone()), seen(back.clone()), gone(LookFailure::Refused)]);
    play.check("it does not descend from ours", &[]);
    let mut both = begun(FailoverMode::Follow, &[1, 0, 2], &[ours, back.clone(), ServerFacts { position: 1, ..standby(1, 5) }]);
    assert_eq!(both.state.decider(&both.rules), WriteDecider::Gate);
    both.said.retain(|line| line.starts_with("release"));
    both.check("at the start, a standby follows the one that others promoted", &["release 0"]);
}

#[test]
fn what_is_shown_as_waiting_waits() {
    let mut rules = rules(2);
    rules.mode = FailoverMode::Follow;
    let state = FailoverState::new(&rules, None, 9, &BTreeSet::new());
    let mut play = Play { state, rules, now: 0, said: Vec::new(), disk: Done::Yes };
    play.probed(0, seen(primary(100)));
    play.probed(1, seen(primary(100)));
    let held = FailoverView::of(&play.state, &play.rules, 0).held;
    assert_eq!(held, Some("several nodes call themselves primary"));
}

#[test]
fn a_follower_in_a_group_whose_leader_promotes_leaves_the_successor_to_it() {
    let by_hand = ServerFacts { mark: Mark::default(), ..after(vote(1, 1, Epoch::found(0)), RecoveryState::Primary) };
    for (successors, accepted) in [(SuccessorFinder::Leader, Some(0)), (SuccessorFinder::Sight, Some(1))] {
        let mut play = Play::new(|rules| (rules.mode, rules.successors) = (FailoverMode::Follow, successors));
        for passed in [1000, 500] {
            play.after(passed, [gone(LookFailure::Refused), seen(by_hand.clone()), seen(standby(95, 10))]);
        }
        assert_eq!(play.state.primary(), accepted, "{successors:?}: {:?}", play.said);
    }
}
