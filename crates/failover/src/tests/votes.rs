//! Votes for a primary that was promoted.

use super::*;

#[test]
fn a_promoted_standby_that_does_not_vote_in_time_ends_the_attempt() {
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
