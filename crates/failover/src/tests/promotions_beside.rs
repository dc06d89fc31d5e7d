//! Servers that were told to promote themselves while another one won, or that others promoted.

use super::*;
use crate::operations::RejoinWay;

const BALLOT: Ballot = Ballot { term: 1, weir: 9 };

/// Nodes 1 and 2 have pledged, and node 2, with the most log, is told to promote itself.
fn ordered(change: impl FnOnce(&mut FailoverRules)) -> Play {
    let mut play = Play::new(|rules| {
        rules.nodes.iter_mut().for_each(|node| node.agent = AgentPresence::None);
        change(rules);
    });
    for passed in [1000, 500] {
        play.after(passed, [gone(LookFailure::Refused), seen(standby(90, 510)), seen(standby(95, 510))]);
    }
    pledge(&mut play, BALLOT, &[(1, 90), (2, 95)]);
    play
}

fn pledge(play: &mut Play, ballot: Ballot, nodes: &[(NodeId, Lsn)]) {
    let mark = Mark { promised: ballot, vote: None };
    play.now += 10;
    for (node, position) in nodes {
        play.tell(FailoverEvent::Pledged {
            node: *node,
            ballot,
            outcome: PledgeReply::Given { facts: cut_off(*position, mark) },
        });
    }
    play.now += 10;
    play.probed(0, gone(LookFailure::Refused));
}

/// The order to node 2 is lost, and it says nothing any more. Node 1 replaces node 0.
fn lost(change: impl FnOnce(&mut FailoverRules)) -> Play {
    let mut play = ordered(change);
    play.tell(FailoverEvent::Promoted { node: 2, ballot: BALLOT, done: Done::No });
    play.tell(FailoverEvent::Writable { node: 2, ballot: BALLOT, outcome: Err(LookFailure::TimedOut) });
    for _ in 0..3 {
        play.after(2_000, [gone(LookFailure::Refused), seen(cut_off(90, promise(BALLOT))), gone(LookFailure::Refused)]);
    }
    let ballot = play.state.attempt.as_ref().expect("another attempt is under way").ballot;
    play.tell(FailoverEvent::Pledged { node: 2, ballot, outcome: PledgeReply::Failed(LookFailure::Refused) });
    pledge(&mut play, ballot, &[(1, 90)]);
    win(&mut play, ballot);
    play.said.clear();
    play
}

fn win(play: &mut Play, ballot: Ballot) {
    play.tell(FailoverEvent::Promoted { node: 1, ballot, done: Done::Yes });
    play.tell(FailoverEvent::Writable { node: 1, ballot, outcome: Ok(ServerFacts { mark: promise(ballot), ..promoted(90) }) });
    let vote = Vote { ballot, epoch: Epoch { ballot, node: 1, replaced: Some(0) }, parent: Epoch::found(0) };
    play.tell(FailoverEvent::Repointed { node: 1, vote, outcome: VoteAnswer::Yes });
    assert_eq!(play.state.primary(), Some(1), "{:?}", play.said);
}

fn promise(promised: Ballot) -> Mark {
    Mark { promised, vote: None }
}

/// The server of node 1, as the primary that was decided.
fn winner(play: &Play) -> ServerFacts {
    let vote = play.state.durable.vote;
    ServerFacts { mark: Mark { promised: vote.map(|vote| vote.ballot).unwrap_or_default(), vote }, ..promoted(90) }
}

/// Node 2 has followed its late order at the very position at which node 1 was promoted.
fn twin() -> ServerFacts {
    ServerFacts { mark: promise(BALLOT), started_at: 3, ..promoted(90) }
}

/// Made a standby of node 1 by a pg_rewind that found nothing to do.
fn rewound() -> ServerFacts {
    let recovery = RecoveryState::Standby { upstream: Some(1), stream: WalReceiverState::On { silent_ms: 5 } };
    ServerFacts { recovery, sync_names: None, position: 99, ..twin() }
}

fn is_out(play: &Play, id: NodeId) -> bool {
    play.state.is_out(&play.rules, id)
}

#[test]
fn an_order_to_promote_leaves_once_it_is_stored() {
    let mut play = Play::new(|rules| rules.nodes[0].agent = AgentPresence::None);
    for passed in [1000, 500] {
        play.after(passed, [gone(LookFailure::Refused), seen(standby(90, 510)), seen(standby(95, 510))]);
    }
    play.disk = Done::No;
    pledge(&mut play, BALLOT, &[(1, 90), (2, 95)]);
    assert!(!play.said.iter().any(|line| line.starts_with("promote")), "{:?}", play.said);
    play.disk = Done::Yes;
    play.now += 1_000;
    play.tell(FailoverEvent::Timer);
    assert!(play.said.contains(&"promote 2".to_owned()), "{:?}", play.said);
    let restarted = DurableState::parse(&play.state.durable.show()).unwrap();
    assert_eq!(restarted.told, [2].into(), "a Weir that is started now knows of it");
}

#[test]
fn a_disk_that_stores_nothing_ends_the_attempt_before_the_proof_is_old() {
    let mut play = Play::new(|rules| rules.nodes[0].agent = AgentPresence::None);
    for passed in [1000, 500] {
        play.after(passed, [gone(LookFailure::Refused), seen(standby(90, 510)), seen(standby(95, 510))]);
    }
    play.disk = Done::No;
    pledge(&mut play, BALLOT, &[(1, 90), (2, 95)]);
    play.now += 6_000;
    play.tell(FailoverEvent::Timer);
    assert!(play.said.contains(&"stuck NotPromoted { node: 2 }".to_owned()), "{:?}", play.said);
    assert!(!play.said.iter().any(|line| line.starts_with("promote")), "{:?}", play.said);
}

#[test]
fn of_a_server_that_was_told_and_won_nothing_is_kept() {
    let mut play = ordered(|_| {});
    play.tell(FailoverEvent::Promoted { node: 2, ballot: BALLOT, done: Done::Yes });
    play.tell(FailoverEvent::Writable {
        node: 2,
        ballot: BALLOT,
        outcome: Ok(ServerFacts { mark: promise(BALLOT), ..promoted(95) }),
    });
    let vote = Vote { ballot: BALLOT, epoch: Epoch { ballot: BALLOT, node: 2, replaced: Some(0) }, parent: Epoch::found(0) };
    play.tell(FailoverEvent::Repointed { node: 2, vote, outcome: VoteAnswer::Yes });
    assert_eq!(play.state.primary(), Some(2));
    assert!(play.state.durable.told.is_empty() && play.state.durable.apart.is_empty());
}

#[test]
fn a_server_that_was_told_while_another_one_won_is_out_of_use_whatever_its_history_says() {
    let mut play = lost(|_| {});
    assert_eq!(play.state.durable.apart, [2].into());
    for found in [twin(), rewound()] {
        let winner = winner(&play);
        play.after(1000, [gone(LookFailure::Refused), seen(winner), seen(found.clone())]);
        assert_eq!(found.history, play.state.history().cloned().unwrap(), "nothing but the mark tells them apart");
        assert!(is_out(&play, 2), "{found:?}");
        assert!(!play.said.iter().any(|line| line.starts_with("repoint 2") || line.starts_with("point 2")), "{:?}", play.said);
    }
    let mut again = FailoverState::new(&play.rules, DurableState::parse(&play.state.durable.show()), 9, &BTreeSet::new());
    for _ in 0..2 {
        step(&mut again, &play.rules, &FailoverEvent::Timer, play.now);
    }
    assert!(again.is_out(&play.rules, 2), "also for a Weir that is started anew");
}

#[test]
fn it_is_brought_back_by_a_copy_which_takes_the_mark_away() {
    let mut play = lost(|rules| rules.nodes.iter_mut().for_each(|node| node.returns = RejoinInitiator::ByAgent));
    play.state.durable.given_up.remove(&0);
    let winner = winner(&play);
    for found in [seen(twin()), seen(rewound()), gone(LookFailure::Refused)] {
        let mut play =
            Play { state: play.state.clone(), rules: play.rules.clone(), now: play.now, said: Vec::new(), disk: Done::Yes };
        let mut ways = Vec::new();
        for (node, found) in [(1, seen(winner.clone())), (2, found.clone()), (2, found)] {
            play.now += 1000;
            let event = FailoverEvent::Probed { node, begun_at: play.now, found };
            for action in step(&mut play.state, &play.rules, &event, play.now) {
                match action {
                    FailoverAction::Store { number, .. } => play.tell(FailoverEvent::Stored { number, done: Done::Yes }),
                    FailoverAction::Rejoin { node, way, .. } => ways.push((node, way)),
                    _ => {}
                }
            }
        }
        assert_eq!(ways, [(2, RejoinWay::Copy)]);
        play.tell(FailoverEvent::Rejoined { node: 2, done: Done::Yes });
        assert!(play.state.durable.apart.is_empty());
        play.after(1000, [gone(LookFailure::Refused), seen(winner.clone()), seen(ServerFacts { position: 90, ..rewound() })]);
        assert!(!is_out(&play, 2), "it streams from the primary");
    }
}

#[test]
fn an_operator_vouches_for_a_copy_of_his_own() {
    let mut play = lost(|_| {});
    let winner = winner(&play);
    let look = |play: &mut Play| play.after(1000, [gone(LookFailure::Refused), seen(winner.clone()), seen(rewound())]);
    let ask = |play: &mut Play, request| {
        play.said.clear();
        play.tell(FailoverEvent::Operator { ticket: 7, request });
        play.said.iter().find(|line| line.starts_with("reply")).cloned().unwrap_or_default()
    };
    look(&mut play);
    let refused = ask(&mut play, OperatorRequest::Attach(2));
    assert!(refused.contains("promoted beside the primary") && refused.contains("pcp_recovery_node"), "{refused}");
    assert_eq!(ask(&mut play, OperatorRequest::Detach(2)), "reply Ok(())");
    assert_eq!(ask(&mut play, OperatorRequest::Attach(2)), "reply Ok(())");
    assert!(!is_out(&play, 2));
}

#[test]
fn a_recovery_that_fails_vouches_for_nothing_and_one_that_ends_does() {
    for (ends, is_apart) in [(OperatorRequest::Detach(2), true), (OperatorRequest::Recover(2, NodeCopyStage::Ends), false)] {
        let mut play = lost(|_| {});
        let winner = winner(&play);
        play.after(1000, [gone(LookFailure::Refused), seen(winner), seen(rewound())]);
        play.tell(FailoverEvent::Operator { ticket: 7, request: OperatorRequest::Recover(2, NodeCopyStage::Begins) });
        play.tell(FailoverEvent::Operator { ticket: 8, request: ends });
        assert_eq!(play.state.durable.apart.contains(&2), is_apart, "{ends:?}");
        assert_eq!(is_out(&play, 2), is_apart, "{ends:?}");
    }
}

#[test]
fn it_is_never_chosen_again_and_an_operator_who_forces_it_makes_the_others_apart() {
    let mut play = lost(|_| {});
    for _ in 0..3 {
        play.after(1000, [gone(LookFailure::Refused), gone(LookFailure::Refused), seen(rewound())]);
    }
    assert!(!play.said.iter().any(|line| line.starts_with("promote 2")), "{:?}", play.said);
    play.said.clear();
    play.tell(FailoverEvent::Operator { ticket: 7, request: OperatorRequest::Promote(2) });
    let ballot = play.state.attempt.as_ref().expect("it is forced").ballot;
    let facts = ServerFacts { mark: promise(ballot), ..rewound() };
    play.tell(FailoverEvent::Pledged { node: 2, ballot, outcome: PledgeReply::Given { facts } });
    for node in [0, 1] {
        play.tell(FailoverEvent::Pledged { node, ballot, outcome: PledgeReply::Failed(LookFailure::Refused) });
    }
    play.tell(FailoverEvent::Promoted { node: 2, ballot, done: Done::Yes });
    play.tell(FailoverEvent::Writable { node: 2, ballot, outcome: Ok(ServerFacts { mark: promise(ballot), ..twin() }) });
    let parent = play.state.epoch().unwrap();
    let vote = Vote { ballot, epoch: Epoch { ballot, node: 2, replaced: Some(1) }, parent };
    play.tell(FailoverEvent::Repointed { node: 2, vote, outcome: VoteAnswer::Yes });
    assert_eq!((play.state.primary(), play.state.durable.apart.clone()), (Some(2), [1].into()), "{:?}", play.said);
}

#[test]
fn a_second_primary_of_the_same_timeline_is_found_and_so_are_those_that_followed_it() {
    for mode in [FailoverMode::Builtin, FailoverMode::Command, FailoverMode::Follow] {
        let mut play = Play::new(|rules| rules.mode = mode);
        let of_1 = RecoveryState::Standby { upstream: Some(1), stream: WalReceiverState::On { silent_ms: 5 } };
        for _ in 0..2 {
            play.after(1000, [seen(primary(120)), seen(primary(110)), seen(server(105, of_1))]);
        }
        let expected: BTreeSet<NodeId> = if mode == FailoverMode::Follow { [].into() } else { [1, 2].into() };
        assert_eq!(play.state.durable.apart, expected, "{mode:?}");
        assert_eq!((is_out(&play, 1), is_out(&play, 2)), (!expected.is_empty(), !expected.is_empty()), "{mode:?}");
    }
}

/// Node 1 has followed node 0, which was promoted.
fn on_new(mark: Mark) -> ServerFacts {
    ServerFacts { history: promoted(95).history, mark, ..standby(99, 510) }
}

/// Node 2 has never heard of the new timeline, and is the only one that may be promoted. It is told to.
fn behind() -> Play {
    let mut play = Play::new(|rules| {
        rules.nodes.iter_mut().for_each(|node| node.agent = AgentPresence::None);
        rules.nodes[1].priority = 0;
    });
    play.state = FailoverState::new(&play.rules, None, 9, &BTreeSet::new());
    let followed = ServerFacts { position: 99, ..promoted(95) };
    play.after(1000, [seen(followed), seen(on_new(Mark::default())), seen(standby(95, 5))]);
    for passed in [1000, 500] {
        play.after(passed, [gone(LookFailure::Refused), seen(on_new(Mark::default())), seen(standby(95, 510))]);
    }
    pledge_behind(&mut play, BALLOT, cut_off(95, promise(BALLOT)));
    assert!(play.said.contains(&"promote 2".to_owned()), "{:?}", play.said);
    play
}

/// Nodes 1 and 2 pledge, and node 0 is gone.
fn pledge_behind(play: &mut Play, ballot: Ballot, of_2: ServerFacts) {
    let mark = Mark { promised: ballot, ..of_2.mark };
    play.now += 10;
    for (node, facts) in [(1, on_new(promise(ballot))), (2, ServerFacts { mark, ..of_2 })] {
        play.tell(FailoverEvent::Pledged { node, ballot, outcome: PledgeReply::Given { facts } });
    }
    play.now += 10;
    play.probed(0, gone(LookFailure::Refused));
}

/// Node 2 takes writes, on a timeline of the number that nodes 0 and 1 have.
fn win_behind(play: &mut Play, ballot: Ballot) {
    play.tell(FailoverEvent::Promoted { node: 2, ballot, done: Done::Yes });
    play.tell(FailoverEvent::Writable { node: 2, ballot, outcome: Ok(ServerFacts { mark: promise(ballot), ..promoted(95) }) });
    let vote = Vote { ballot, epoch: Epoch { ballot, node: 2, replaced: Some(0) }, parent: Epoch::found(0) };
    for node in [2, 1] {
        play.tell(FailoverEvent::Repointed { node, vote, outcome: VoteAnswer::Yes });
    }
}

/// A Weir that was started anew looks at the servers, and nodes 1 and 2 pledge to its attempt, if it makes one.
fn goes_on(play: &mut Play, of_2: &ServerFacts) -> Option<Ballot> {
    for _ in 0..8 {
        if play.state.attempt.is_none() {
            play.after(500, [gone(LookFailure::Refused), seen(on_new(promise(BALLOT))), seen(of_2.clone())]);
        }
    }
    let ballot = play.state.attempt.as_ref()?.ballot;
    pledge_behind(play, ballot, of_2.clone());
    Some(ballot)
}

fn check_others_are_apart(play: &Play) {
    assert_eq!((play.state.primary(), play.state.durable.apart.clone()), (Some(2), [0, 1].into()), "{:?}", play.said);
    assert!(is_out(play, 1), "it would go on in another log than its own");
    assert!(play.state.durable.ahead.is_empty() && play.state.durable.told.is_empty());
}

#[test]
fn a_standby_that_never_received_the_newest_timeline_begins_another_one_of_its_number() {
    let mut play = behind();
    win_behind(&mut play, BALLOT);
    check_others_are_apart(&play);
}

/// Nothing on the servers tells who had the timeline before.
#[test]
fn a_weir_that_goes_on_with_such_a_promotion_knows_who_had_the_timeline_before() {
    let of_another = Ballot { term: 1, weir: 11 };
    let epoch = Epoch { ballot: of_another, node: 2, replaced: Some(0) };
    for voted in [None, Some(Vote { ballot: of_another, epoch, parent: Epoch::found(0) })] {
        let mut play = behind();
        play.state = FailoverState::new(&play.rules, DurableState::parse(&play.state.durable.show()), 9, &BTreeSet::new());
        let mark = Mark { promised: voted.map_or(BALLOT, |vote| vote.ballot), vote: voted };
        let of_2 = ServerFacts { mark, started_at: 2, ..promoted(95) };
        goes_on(&mut play, &of_2);
        if voted.is_none() {
            assert!(play.said.contains(&"stuck NoStandby".to_owned()), "{:?}", play.said);
            play.tell(FailoverEvent::Operator { ticket: 7, request: OperatorRequest::Promote(2) });
            let ballot = goes_on(&mut play, &of_2).expect("it is forced");
            win_behind(&mut play, ballot);
        }
        check_others_are_apart(&play);
    }
}

#[test]
fn a_primary_of_another_timeline_can_be_rewound() {
    let mut play = Play::new(|_| {});
    play.after(1000, [seen(primary(120)), seen(promoted(110)), seen(standby(120, 5))]);
    assert!(play.said.contains(&"false primary 1".to_owned()), "{:?}", play.said);
    assert!(play.state.durable.apart.is_empty());
}
