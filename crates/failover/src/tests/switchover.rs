//! Planned moves of the primary, from node 0 to node 2 of three.

use super::*;

const BALLOT: Ballot = Ballot { term: 2, weir: 9 };

fn mark() -> Mark {
    Mark { promised: BALLOT, vote: None }
}

/// A primary of 100 bytes that two standbys follow, both having all of it.
fn play() -> Play {
    let mut play = Play::new(|_| ());
    play.after(1000, [seen(primary(100)), seen(standby(100, 5)), seen(standby(100, 5))]);
    play.said.clear();
    play
}

fn ask(play: &mut Play, node: NodeId) {
    play.tell(FailoverEvent::Operator { ticket: 1, request: OperatorRequest::SwitchOver(node) });
}

fn pledge(play: &mut Play, node: NodeId, facts: ServerFacts) {
    play.tell(FailoverEvent::Pledged { node, ballot: BALLOT, outcome: PledgeReply::Given { facts } });
}

/// The standbys promise to support it.
fn announce(play: &mut Play) {
    pledge(play, 1, ServerFacts { mark: mark(), ..standby(100, 5) });
    pledge(
        play,
        2,
        ServerFacts { mark: mark(), ..server(100, RecoveryState::Standby { upstream: Some(0), stream: WalReceiverState::Off }) },
    );
}

fn stopped(play: &mut Play, end: ServerStopResult) {
    play.tell(FailoverEvent::ServerStopped { node: 0, ballot: BALLOT, end });
}

/// To the moment at which the old primary is being stopped.
fn to_stop() -> Play {
    let mut play = play();
    ask(&mut play, 2);
    play.check("a checkpoint while writes go on", &["prepare 0"]);
    play.tell(FailoverEvent::Prepared { node: 0 });
    play.check("others are told while writes go on", &["pledge 1 (2)", "pledge 2 (2)"]);
    announce(&mut play);
    play.check("its receiver starts anew", &[]);
    play.now += 1;
    play.probed(2, seen(ServerFacts { mark: mark(), ..standby(100, 5) }));
    play.check("nothing new begins, transactions end by themselves", &["hold SwitchedOver Go", "drain 0"]);
    play.tell(FailoverEvent::Drained { node: 0 });
    play.check("no connection is left", &["hold SwitchedOver End", "stop 0"]);
    play
}

/// To the moment at which it is stopped and looked at.
fn to_inspect(position: Lsn) -> Play {
    let mut play = to_stop();
    play.probed(0, gone(LookFailure::ShuttingDown));
    play.probed(0, gone(LookFailure::Refused));
    play.probed(0, gone(LookFailure::Refused));
    play.check("its silence is no failure", &[]);
    stopped(&mut play, ServerStopResult::Now);
    play.check("standbys are cut off once it has sent all", &["cut off 1 (2)", "cut off 2 (2)"]);
    pledge(&mut play, 1, cut_off(106, mark()));
    pledge(&mut play, 2, cut_off(position, mark()));
    play.check("where does its log end?", &["inspect 0"]);
    play
}

fn inspected(play: &mut Play, outcome: Result<Lsn, LookFailure>) {
    play.tell(FailoverEvent::Inspected { node: 0, ballot: BALLOT, outcome });
}

/// To the order to promote.
fn to_promote() -> Play {
    let mut play = to_inspect(106);
    inspected(&mut play, Ok(105));
    play.check("it has the last record", &["promote 2"]);
    play
}

#[test]
fn only_the_agent_of_the_old_primary_tells_of_its_stop_and_only_of_this_attempt() {
    let mut play = to_stop();
    let earlier = Ballot { term: 1, ..BALLOT };
    for (node, ballot) in [(0, earlier), (1, BALLOT), (1, earlier)] {
        play.tell(FailoverEvent::ServerStopped { node, ballot, end: ServerStopResult::Now });
        play.check(&format!("a word about node {node} in attempt {}", ballot.term), &[]);
    }
    stopped(&mut play, ServerStopResult::Now);
    play.check("its own", &["cut off 1 (2)", "cut off 2 (2)"]);
}

#[test]
fn a_working_primary_makes_room_and_follows() {
    let mut play = to_promote();
    play.tell(FailoverEvent::Promoted { node: 2, ballot: BALLOT, done: Done::Yes });
    play.tell(FailoverEvent::Writable { node: 2, ballot: BALLOT, outcome: Ok(ServerFacts { mark: mark(), ..promoted(106) }) });
    play.check("it votes first", &["wait for 2", "repoint 2 to 2"]);
    let epoch = Epoch { ballot: BALLOT, node: 2, replaced: Some(0) };
    let vote = Vote { ballot: BALLOT, epoch, parent: Epoch::found(0) };
    play.tell(FailoverEvent::Repointed { node: 2, vote, outcome: VoteAnswer::Yes });
    let said = std::mem::take(&mut play.said);
    let order = ["done 2 Nothing", "follow 0 to 2", "release 2"].map(|text| said.iter().position(|line| line == text));
    assert!(order.is_sorted() && order[0].is_some(), "{said:?}");
    play.tell(FailoverEvent::ServerFollows { node: 0, done: Done::No });
    play.check("the agent was busy", &[]);
    play.now += 500;
    play.tell(FailoverEvent::Timer);
    play.check("it is asked again", &["follow 0 to 2"]);
    play.tell(FailoverEvent::ServerFollows { node: 0, done: Done::Yes });
    play.check("its files are those of a standby", &["start 0"]);
    play.tell(FailoverEvent::ServerStarted { node: 0, done: Done::Yes });
    play.check("it must stream", &[]);
    let follows = ServerFacts {
        recovery: RecoveryState::Standby { upstream: Some(2), stream: WalReceiverState::On { silent_ms: 1 } },
        ..promoted(106)
    };
    play.probed(0, seen(ServerFacts { started_at: 2, mark: mark(), ..follows.clone() }));
    let said = std::mem::take(&mut play.said);
    assert_eq!(said, ["repoint 0 to 2"], "it gets its vote");
    play.now += 1;
    play.probed(0, seen(ServerFacts { started_at: 2, mark: Mark { promised: BALLOT, vote: Some(vote) }, ..follows }));
    let said = std::mem::take(&mut play.said);
    assert!(said.contains(&"reply Ok(())".to_string()), "{said:?}");
    assert!(play.state.planned.switchover.is_none() && play.state.nodes[&0].is_in_use());
}

/// Events that a switchover does not survive, and the answer. In all of them the old primary goes on.
#[test]
fn one_that_cannot_be_finished_is_undone() {
    type Deed = fn(&mut Play);
    let after_stop = |position| move |_: ()| to_inspect(position);
    let cases: &[(&str, Play, Deed, &str)] = &[
        ("the stop failed", to_stop(), |play| stopped(play, ServerStopResult::Unknown), "node 0 could not be stopped cleanly"),
        (
            "it hangs",
            to_stop(),
            |play| (0..2).for_each(|_| play.probed(0, gone(LookFailure::TimedOut))),
            "node 0 could not be stopped cleanly",
        ),
        ("no answer", to_stop(), |play| play.now += 30_000, "node 0 could not be stopped cleanly"),
        (
            "it runs again",
            to_inspect(106),
            |play| inspected(play, Err(LookFailure::Refuses)),
            "node 0 could not be stopped cleanly",
        ),
        (
            "the standby lacks the last record",
            after_stop(105)(()),
            |play| inspected(play, Ok(105)),
            "node 2 did not receive all of the log of the stopped primary",
        ),
        (
            "the standby died",
            {
                let mut play = to_stop();
                stopped(&mut play, ServerStopResult::Now);
                play.said.clear();
                play
            },
            |play| {
                pledge(play, 1, cut_off(106, mark()));
                play.tell(FailoverEvent::Pledged { node: 2, ballot: BALLOT, outcome: PledgeReply::Failed(LookFailure::Refused) });
            },
            "node 2 does not answer",
        ),
    ];
    for (name, play, deed, why) in cases {
        let (mut play, name) = (
            Play { state: play.state.clone(), rules: play.rules.clone(), now: play.now, said: Vec::new(), disk: Done::Yes },
            *name,
        );
        deed(&mut play);
        play.tell(FailoverEvent::Timer);
        if play.said.last().map(String::as_str) == Some("end 0") {
            stopped(&mut play, ServerStopResult::Now);
        }
        assert_eq!(play.said.last().map(String::as_str), Some("start 0"), "{name}: {:?}", play.said);
        play.said.clear();
        play.now += 100;
        play.tell(FailoverEvent::ServerStarted { node: 0, done: Done::Yes });
        play.now += 1;
        play.probed(0, seen(ServerFacts { started_at: 2, ..primary(107) }));
        let said = std::mem::take(&mut play.said);
        let answer = format!("reply Err(\"{why}; node 0 is the primary as before\")");
        assert!(said.contains(&answer) && !said.iter().any(|line| line.starts_with("promote")), "{name}: {said:?}");
        assert_eq!(play.state.primary(), Some(0), "{name}");
    }
}

#[test]
fn a_primary_that_does_not_come_to_an_end_is_ended_and_started_again() {
    let mut play = to_stop();
    for _ in 0..3 {
        play.after(1000, [gone(LookFailure::ShuttingDown), seen(standby(100, 5)), seen(standby(100, 5))]);
    }
    play.check("it archives, perhaps", &[]);
    stopped(&mut play, ServerStopResult::Unknown);
    play.check("it cannot be told to go on", &["end 0"]);
    stopped(&mut play, ServerStopResult::Unknown);
    play.check("the agent was busy", &[]);
    play.after(500, [gone(LookFailure::ShuttingDown), seen(standby(100, 5)), seen(standby(100, 5))]);
    play.check("once more", &["end 0"]);
    stopped(&mut play, ServerStopResult::Now);
    play.check("it has ended", &["start 0"]);
    play.after(5000, [gone(LookFailure::Starting), seen(standby(100, 5)), seen(standby(100, 5))]);
    play.tell(FailoverEvent::ServerStarted { node: 0, done: Done::No });
    play.after(5000, [gone(LookFailure::Starting), seen(standby(100, 5)), seen(standby(100, 5))]);
    play.check("one that recovers is not ended again", &["start 0"]);
    play.tell(FailoverEvent::ServerStarted { node: 0, done: Done::Yes });
    play.now += 1;
    play.probed(0, seen(ServerFacts { started_at: 2, ..primary(107) }));
    let said = std::mem::take(&mut play.said);
    let answer = "reply Err(\"node 0 could not be stopped cleanly; node 0 is the primary as before\")";
    assert!(said.contains(&answer.to_string()), "{said:?}");
    // The agent is dead: for ever is too long.
    let mut play = to_stop();
    play.probed(0, gone(LookFailure::ShuttingDown));
    stopped(&mut play, ServerStopResult::Unknown);
    for _ in 0..25 {
        stopped(&mut play, ServerStopResult::Unknown);
        play.after(1000, [gone(LookFailure::ShuttingDown), seen(standby(100, 5)), seen(standby(100, 5))]);
    }
    let text = "node 0 does not answer, and a standby is to replace it";
    assert!(play.said.iter().any(|line| line.contains(text)), "{:?}", play.said);
}

#[test]
fn a_primary_that_is_stopped_is_started_again_if_its_agent_says_nothing_for_three_seconds() {
    let standbys = || seen(standby(100, 5));
    // A primary that archives for long is not stopped yet.
    let mut play = to_stop();
    for _ in 0..6 {
        play.after(1000, [gone(LookFailure::ShuttingDown), standbys(), standbys()]);
    }
    play.check("it archives", &[]);
    let mut play = to_stop();
    for _ in 0..3 {
        play.after(1000, [gone(LookFailure::Refused), standbys(), standbys()]);
    }
    play.check("its agent may say so yet", &[]);
    play.after(2000, [gone(LookFailure::Refused), standbys(), standbys()]);
    play.tell(FailoverEvent::Timer);
    play.check("it does not", &["start 0"]);
}

#[test]
fn a_primary_that_has_not_begun_to_stop_is_not_ended() {
    let mut play = to_stop();
    play.probed(0, seen(primary(100)));
    stopped(&mut play, ServerStopResult::Unknown);
    play.check("its agent has died, perhaps before it heard of it", &["start 0"]);
}

#[test]
fn promises_to_a_move_that_was_undone_hold_nothing_up() {
    let mut play = to_stop();
    play.rules.company = OtherPromoters::Possible;
    stopped(&mut play, ServerStopResult::Now);
    pledge(&mut play, 1, cut_off(106, mark()));
    play.tell(FailoverEvent::Pledged { node: 2, ballot: BALLOT, outcome: PledgeReply::Failed(LookFailure::Refused) });
    play.after(100, [gone(LookFailure::Refused), seen(cut_off(106, mark())), gone(LookFailure::Refused)]);
    play.tell(FailoverEvent::ServerStarted { node: 0, done: Done::Yes });
    play.said.clear();
    play.after(1, [seen(ServerFacts { started_at: 2, ..primary(107) }), seen(cut_off(106, mark())), gone(LookFailure::Refused)]);
    assert!(
        play.said.contains(&"release 0".into()),
        "one of two standbys is dead, and no majority can settle it: {:?}",
        play.said
    );
    let others = |term| Mark { promised: Ballot { term, weir: 8 }, vote: None };
    play.said.clear();
    play.after(
        1000,
        [seen(ServerFacts { started_at: 2, ..primary(107) }), seen(cut_off(106, others(4))), gone(LookFailure::Refused)],
    );
    play.check("nor does one to another Weir by which the primary stays", &[]);
    play.after(
        1000,
        [seen(ServerFacts { started_at: 2, ..primary(107) }), seen(cut_off(106, others(6))), gone(LookFailure::Refused)],
    );
    play.check("one to a switchover of its does", &["hold Replaced Go"]);
}

#[test]
fn other_weirs_let_go_of_the_primary_before_writes_wait_here() {
    for (spent, others_yield, left) in [(300, true, 4_700), (5_200, false, 1_000)] {
        let mut play = play();
        play.rules.company = OtherPromoters::Possible;
        play.rules.transaction_limit_ms = 5_000;
        ask(&mut play, 2);
        play.tell(FailoverEvent::Prepared { node: 0 });
        announce(&mut play);
        play.said.clear();
        play.now += 1;
        play.probed(2, seen(ServerFacts { mark: mark(), ..standby(100, 5) }));
        play.check("writes go on here", &["others yield 0"]);
        play.now += spent;
        if others_yield {
            play.tell(FailoverEvent::Yielded { node: 0 });
        } else {
            play.now += 2_000;
            play.tell(FailoverEvent::Timer);
        }
        play.check("then transactions end here", &["hold SwitchedOver Go", "drain 0"]);
        let Some(FailoverAttempt { phase: AttemptPhase::Draining { until }, .. }) = &play.state.attempt else {
            panic!("it drains")
        };
        assert_eq!(*until, play.now + left + 2_000, "one limit is for all");
    }
}

/// A standby that holds all it was sent, and has replayed so much.
fn replaying(position: Lsn, replayed: Lsn) -> ServerFacts {
    ServerFacts { replayed, ..standby(position, 5) }
}

#[test]
fn a_standby_that_does_not_replay_is_refused_before_anything_happens() {
    let mut play = play();
    play.probed(2, seen(replaying(100, 60)));
    ask(&mut play, 2);
    for _ in 0..5 {
        play.check("it has a while", &[]);
        play.after(1000, [seen(primary(100)), seen(standby(100, 5)), seen(replaying(100, 60))]);
    }
    let expected = "reply Err(\"node 2 has not replayed 40 bytes of log that it has received\")";
    play.check("nothing is stopped", &[expected]);
    play.after(10, [seen(primary(200)), seen(standby(200, 5)), seen(replaying(200, 150))]);
    ask(&mut play, 2);
    play.after(100, [seen(primary(300)), seen(standby(300, 5)), seen(replaying(300, 200))]);
    play.check("one that lags and goes on is none", &["prepare 0"]);
}

#[test]
fn a_standby_that_ceases_to_replay_while_others_promise_is_refused() {
    let mut play = play();
    ask(&mut play, 2);
    play.tell(FailoverEvent::Prepared { node: 0 });
    pledge(&mut play, 1, ServerFacts { mark: mark(), ..standby(100, 5) });
    pledge(&mut play, 2, ServerFacts { mark: mark(), ..replaying(100, 90) });
    play.said.clear();
    play.now += 7_000;
    play.probed(2, seen(ServerFacts { mark: mark(), ..replaying(120, 90) }));
    let said = std::mem::take(&mut play.said);
    assert!(said.iter().any(|line| line.contains("node 2 has not replayed 30 bytes")), "{said:?}");
    let expected = ["pledge 1 (4)", "pledge 2 (4)"];
    assert_eq!(said[1..], expected, "promises are settled while writes go on");
    let ballot = Ballot { term: 4, weir: 9 };
    for node in [1, 2] {
        let facts = ServerFacts { mark: Mark { promised: ballot, vote: None }, ..standby(120, 5) };
        play.tell(FailoverEvent::Pledged { node, ballot, outcome: PledgeReply::Given { facts } });
    }
    play.now += 1;
    play.probed(0, seen(primary(130)));
    play.check("the primary stays", &["repoint 0 to 0", "repoint 1 to 0", "repoint 2 to 0"]);
}

#[test]
fn a_standby_is_told_to_promote_itself_when_it_has_replayed_all() {
    let mut play = to_stop();
    stopped(&mut play, ServerStopResult::Now);
    pledge(&mut play, 1, cut_off(106, mark()));
    pledge(&mut play, 2, ServerFacts { replayed: 100, ..cut_off(106, mark()) });
    play.said.clear();
    inspected(&mut play, Ok(105));
    play.check("it has the last record, and has not replayed it", &[]);
    let mut slow =
        Play { state: play.state.clone(), rules: play.rules.clone(), now: play.now, said: Vec::new(), disk: Done::Yes };
    slow.now += 20;
    slow.probed(2, seen(cut_off(106, mark())));
    slow.check("now it has", &["promote 2"]);
    play.now += 5_000;
    play.probed(2, seen(ServerFacts { replayed: 100, ..cut_off(106, mark()) }));
    play.check("it never does: undone", &["start 0"]);
}

#[test]
fn nothing_is_stopped_without_a_majority() {
    let mut play = play();
    play.rules.company = OtherPromoters::Possible;
    ask(&mut play, 2);
    play.tell(FailoverEvent::Prepared { node: 0 });
    play.said.clear();
    pledge(&mut play, 2, ServerFacts { mark: mark(), ..standby(100, 5) });
    play.tell(FailoverEvent::Pledged { node: 1, ballot: BALLOT, outcome: PledgeReply::Failed(LookFailure::Refused) });
    let said = std::mem::take(&mut play.said);
    assert!(!said.iter().any(|line| line.starts_with("stop") || line.starts_with("start")), "{said:?}");
    assert!(said.iter().any(|line| line.contains("1 of 2 other nodes answer")), "{said:?}");
}

#[test]
fn a_weir_that_sees_the_stop_before_the_promises_does_not_outbid_the_move() {
    // The Weir of the play is the other one.
    let (own, moved) = (Ballot { term: 1, weir: 9 }, Mark { promised: Ballot { weir: 0, ..BALLOT }, vote: None });
    let mut other = play();
    other.rules.company = OtherPromoters::Possible;
    other.after(1000, [gone(LookFailure::Refused), seen(standby(100, 5)), seen(standby(100, 5))]);
    other.said.clear();
    other.after(500, [gone(LookFailure::Refused), seen(standby(100, 505)), seen(standby(100, 505))]);
    other.check("a failover", &["hold Gone End", "cut off 1 (1)", "cut off 2 (1)"]);
    assert_eq!(moved.pledge(own), None);
    for node in [1, 2] {
        other.tell(FailoverEvent::Pledged { node, ballot: own, outcome: PledgeReply::Refused { mark: moved } });
    }
    other.said.clear();
    for _ in 0..3 {
        other.after(1000, [gone(LookFailure::Refused), seen(cut_off(106, moved)), seen(cut_off(106, moved))]);
    }
    other.check("it waits for what it sees now", &[]);
    other.after(1000, [gone(LookFailure::Refused), seen(cut_off(106, moved)), seen(cut_off(106, moved))]);
    other.check("not for ever", &["cut off 1 (3)", "cut off 2 (3)"]);
}

#[test]
fn another_weir_waits_while_transactions_end_and_the_primary_stops() {
    let announced = Mark { promised: Ballot { weir: 0, ..BALLOT }, vote: None };
    let sees = |found: ProbeResult| [found, seen(ServerFacts { mark: announced, ..standby(100, 5) }), seen(standby(100, 5))];
    let mut other = play();
    other.rules.company = OtherPromoters::Possible;
    other.after(1000, sees(seen(primary(100))));
    assert_eq!(other.said.pop().as_deref(), Some("hold Replaced Go"), "what runs may end");
    other.said.clear();
    let mut passed = 0;
    while passed < other.rules.transaction_limit_ms + 10_000 {
        passed += 1000;
        other.after(1000, sees(seen(primary(100))));
    }
    for _ in 0..10 {
        other.after(1000, sees(gone(LookFailure::ShuttingDown)));
    }
    let said = std::mem::take(&mut other.said);
    assert!(!said.iter().any(|line| line.starts_with("cut off") || line.starts_with("pledge")), "{said:?}");
    for _ in 0..5 {
        other.after(1000, sees(gone(LookFailure::Refused)));
    }
    let said = std::mem::take(&mut other.said);
    assert!(said.contains(&"cut off 1 (3)".into()), "{said:?}");
}

#[test]
fn after_the_order_to_promote_the_old_primary_is_not_started() {
    let mut play = to_promote();
    (0..2).for_each(|_| play.probed(2, gone(LookFailure::Refused)));
    play.tell(FailoverEvent::Timer);
    let said = std::mem::take(&mut play.said);
    assert!(said.iter().any(|line| line.contains("a standby is to replace node 0")), "{said:?}");
    for _ in 0..4 {
        play.after(1000, [gone(LookFailure::Refused), seen(cut_off(106, mark())), gone(LookFailure::Refused)]);
    }
    let said = std::mem::take(&mut play.said);
    assert!(said.contains(&"cut off 1 (3)".into()) && !said.contains(&"start 0".into()), "{said:?}");
}

#[test]
fn an_old_primary_that_cannot_be_started_is_replaced() {
    let mut play = to_stop();
    stopped(&mut play, ServerStopResult::Unknown);
    play.check("undone", &["start 0"]);
    for _ in 0..30 {
        play.tell(FailoverEvent::ServerStarted { node: 0, done: Done::No });
        play.after(500, [gone(LookFailure::Refused), seen(standby(100, 5)), seen(standby(100, 5))]);
    }
    let said = std::mem::take(&mut play.said);
    let at = |text: &str| said.iter().position(|line| line.contains(text));
    assert!(at("a standby is to replace it").is_some() && at("a standby is to replace it") < at("cut off"), "{said:?}");
}

/// To the moment at which transactions are to end.
fn to_drain() -> Play {
    let mut play = play();
    ask(&mut play, 2);
    play.tell(FailoverEvent::Prepared { node: 0 });
    announce(&mut play);
    play.now += 1;
    play.probed(2, seen(ServerFacts { mark: mark(), ..standby(100, 5) }));
    play.said.clear();
    play
}

#[test]
fn a_primary_that_fails_while_transactions_end_is_a_failover() {
    let mut play = to_drain();
    for _ in 0..4 {
        play.after(500, [gone(LookFailure::Refused), seen(standby(100, 5)), seen(standby(100, 5))]);
    }
    let said = std::mem::take(&mut play.said);
    assert!(said.contains(&"reply Err(\"node 0 failed meanwhile\")".into()), "{said:?}");
    assert!(said.contains(&"cut off 1 (3)".into()), "{said:?}");
}

#[test]
fn transactions_that_do_not_end_are_ended() {
    let mut play = to_drain();
    play.now += play.rules.transaction_limit_ms + 2_000;
    play.tell(FailoverEvent::Timer);
    let said = std::mem::take(&mut play.said);
    assert!(said.contains(&"hold SwitchedOver End".into()), "{said:?}");
}

#[test]
fn a_standby_that_does_not_stream_after_its_pledge_is_sent_nothing() {
    let mut play = play();
    ask(&mut play, 2);
    play.tell(FailoverEvent::Prepared { node: 0 });
    announce(&mut play);
    play.said.clear();
    play.now += 7_000;
    play.tell(FailoverEvent::Timer);
    let said = std::mem::take(&mut play.said);
    assert!(said.iter().any(|line| line.contains("node 2 does not stream from the primary")), "{said:?}");
    assert!(!said.iter().any(|line| line.starts_with("stop ")), "{said:?}");
}

#[test]
fn a_switchover_that_cannot_work_is_refused_before_anything_happens() {
    type Change = fn(&mut Play);
    let cases: &[(&str, NodeId, Change)] = &[
        ("node 0 is the primary already", 0, |_| ()),
        ("node 7 does not exist", 7, |_| ()),
        ("node 0 has no agent that could stop it", 2, |play| play.rules.nodes[0].agent = AgentPresence::None),
        ("node 2 may not be promoted: its backend_promote_priority is 0", 2, |play| play.rules.nodes[2].priority = 0),
        ("node 2 does not answer", 2, |play| play.probed(2, gone(LookFailure::Refused))),
        ("node 2 does not stream from the primary", 2, |play| play.probed(2, seen(cut_off(100, Mark::default())))),
        ("node 2 is not on the timeline of the primary", 2, |play| play.probed(2, seen(promoted(50)))),
        ("node 0 may not be detached: its backend_flag is DISALLOW_TO_FAILOVER", 2, |play| {
            play.rules.nodes[0].flag = BackendFlag::DisallowToFailover;
        }),
        ("a restart or a switchover is under way", 2, |play| ask(play, 1)),
    ];
    for (expected, node, change) in cases {
        let mut play = play();
        change(&mut play);
        play.said.clear();
        ask(&mut play, *node);
        play.now += 5_000;
        play.tell(FailoverEvent::Timer);
        play.check(expected, &[&format!("reply Err(\"{expected}\")")]);
    }
}
