//! Votes for a primary that was promoted.

use super::*;

/// Node 2 is told to promote itself, since node 0 is gone.
fn told() -> Play {
    let mut play = Play::new(|rules| rules.nodes[0].agent = AgentPresence::None);
    for passed in [1000, 500] {
        play.after(passed, [gone(LookFailure::Refused), seen(standby(90, 510)), seen(standby(95, 510))]);
    }
    let ballot = Ballot { term: 1, weir: 9 };
    let mark = Mark { promised: ballot, vote: None };
    play.now += 10;
    for (node, position) in [(1, 90), (2, 95)] {
        play.tell(FailoverEvent::Pledged { node, ballot, outcome: PledgeReply::Given { facts: cut_off(position, mark) } });
    }
    play.now += 10;
    play.probed(0, gone(LookFailure::Refused));
    assert!(play.said.contains(&"promote 2".to_owned()), "{:?}", play.said);
    play
}

#[test]
fn a_promoted_standby_that_does_not_vote_in_time_ends_the_attempt() {
    let mut play = told();
    let ballot = Ballot { term: 1, weir: 9 };
    let mark = Mark { promised: ballot, vote: None };
    play.tell(FailoverEvent::Promoted { node: 2, ballot, done: Done::Yes });
    play.tell(FailoverEvent::Writable { node: 2, ballot, outcome: Ok(ServerFacts { mark, ..promoted(95) }) });
    let said = std::mem::take(&mut play.said);
    assert_eq!(said.last().map(String::as_str), Some("repoint 2 to 2"), "{said:?}");
    for (passed, is_over) in [(4_900, false), (200, true)] {
        play.now += passed;
        play.tell(FailoverEvent::Timer);
        let is_stuck = play.said.iter().any(|said| said.starts_with("stuck TooFewPledged"));
        assert_eq!(is_stuck, is_over, "{passed} ms later: {:?}", play.said);
    }
}

#[test]
fn an_own_decision_that_a_look_shows_before_the_answers_is_told_as_this_weirs() {
    let mut play = Play::new(|rules| {
        rules.nodes[0].agent = AgentPresence::None;
        rules.company = OtherPromoters::Possible;
    });
    for passed in [1000, 500] {
        play.after(passed, [gone(LookFailure::Refused), seen(standby(90, 510)), seen(standby(95, 510))]);
    }
    let ballot = Ballot { term: 1, weir: 9 };
    let mark = Mark { promised: ballot, vote: None };
    play.now += 10;
    for (node, position) in [(1, 90), (2, 95)] {
        play.tell(FailoverEvent::Pledged { node, ballot, outcome: PledgeReply::Given { facts: cut_off(position, mark) } });
    }
    play.now += 10;
    play.probed(0, gone(LookFailure::Refused));
    play.tell(FailoverEvent::Promoted { node: 2, ballot, done: Done::Yes });
    play.tell(FailoverEvent::Writable { node: 2, ballot, outcome: Ok(ServerFacts { mark, ..promoted(95) }) });
    let vote = Vote { ballot, epoch: Epoch { ballot, node: 2, replaced: Some(0) }, parent: Epoch::found(0) };
    play.tell(FailoverEvent::Repointed { node: 2, vote, outcome: VoteAnswer::Yes });
    let voted = Mark { promised: ballot, vote: Some(vote) };
    play.now += 10;
    play.probed(2, seen(ServerFacts { mark: voted, ..promoted(95) }));
    play.probed(1, seen(ServerFacts { mark: voted, ..standby(95, 5) }));
    let record = play.state.records.last().expect("the failover is over");
    assert_eq!((record.new, record.why), (2, FailoverCause::Died(LookFailure::Refused)), "{:?}", play.said);
    assert!(record.parts.promote_ms > 0 || record.parts.pledge_ms > 0, "its parts are known");
}

#[test]
fn a_void_promise_hides_no_vote_for_another_primary() {
    let mut play = Play::new(|rules| rules.company = OtherPromoters::Possible);
    let of = |term| Ballot { term, weir: 9 };
    let epoch = Epoch { ballot: of(1), node: 1, replaced: Some(0) };
    let mark = |promised, by| {
        let vote = Vote { ballot: of(by), epoch, parent: Epoch::found(0) };
        Mark { promised: of(promised), vote: Some(vote) }
    };
    let one = |promised| ServerFacts { mark: mark(promised, 1), ..promoted(95) };
    let two = |promised| {
        let recovery = RecoveryState::Standby { upstream: Some(1), stream: WalReceiverState::On { silent_ms: 5 } };
        ServerFacts { mark: mark(promised, 3), recovery, ..promoted(95) }
    };
    // Both voted under ballot 1, and node 2 once more since: node 1 was decided, which no two votes show any more.
    play.now += 1000;
    play.probed(2, seen(two(3)));
    play.probed(1, seen(one(1)));
    assert!(play.said.ends_with(&["pledge 1 (5)".to_owned(), "pledge 2 (5)".to_owned()]), "{:?}", play.said);
    play.tell(FailoverEvent::Pledged { node: 1, ballot: of(5), outcome: PledgeReply::Given { facts: one(5) } });
    play.tell(FailoverEvent::Pledged { node: 2, ballot: of(5), outcome: PledgeReply::Failed(LookFailure::TimedOut) });
    assert!(play.said.iter().any(|line| line.starts_with("stuck TooFewPledged")), "{:?}", play.said);
    // The order has arrived all the same.
    play.after(500, [seen(primary(110)), seen(one(5)), seen(two(5))]);
    let is_released = |play: &Play| play.said.contains(&"release 0".to_owned());
    assert!(!is_released(&play) && play.state.gate != WriteTarget::Open { node: 0, started_at: Some(1) }, "{:?}", play.said);
    play.said.clear();
    play.after(2_000, [seen(primary(120)), seen(one(5)), seen(two(5))]);
    let ballot = play.state.attempt.as_ref().expect("it is settled by another attempt").ballot;
    for (node, facts) in [(1, one(ballot.term)), (2, two(ballot.term))] {
        play.tell(FailoverEvent::Pledged { node, ballot, outcome: PledgeReply::Given { facts } });
    }
    assert!(play.said.contains(&"repoint 2 to 1".to_owned()) && !is_released(&play), "{:?}", play.said);
}

#[test]
fn a_server_that_was_promoted_in_vain_may_be_attached_while_the_primary_is_gone() {
    let mut play = told();
    // A Weir that is started now knows nothing of the end of the promotion.
    play.state = FailoverState::new(&play.rules, DurableState::parse(&play.state.durable.show()), 9, &BTreeSet::new());
    let look = |play: &mut Play, zero| play.after(1000, [zero, seen(standby(90, 510)), seen(promoted(95))]);
    let attach = |play: &mut Play| {
        for request in [OperatorRequest::Detach(2), OperatorRequest::Attach(2)] {
            play.said.clear();
            play.tell(FailoverEvent::Operator { ticket: 7, request });
        }
        play.said.iter().find(|line| line.starts_with("reply")).cloned().unwrap_or_default()
    };
    look(&mut play, seen(primary(100)));
    assert_eq!(attach(&mut play), "reply Err(\"node 2 is not on the timeline of the primary\")", "the primary is there");
    play.said.clear();
    for _ in 0..2 {
        look(&mut play, gone(LookFailure::Refused));
    }
    assert_eq!(attach(&mut play), "reply Ok(())", "it is all there is");
    assert!(!play.state.is_out(&play.rules, 2));
}
