//! Failovers with an agent beside the primary that is lost: it tells a server that has ended from one that hangs, and ends the latter.

use super::*;

const BALLOT: Ballot = Ballot { term: 1, weir: 9 };

fn mark() -> Mark {
    Mark { promised: BALLOT, vote: None }
}

/// A primary with agent that is lost in this way, before this Weir and perhaps others.
fn lost(company: OtherPromoters, failure: LookFailure) -> Play {
    let mut play = Play::new(|rules| rules.company = company);
    play.after(1000, [seen(primary(100)), seen(standby(100, 5)), seen(standby(100, 5))]);
    play.said.clear();
    play.after(1000, [gone(failure), seen(standby(100, 1_500)), seen(standby(100, 1_500))]);
    play.after(500, [gone(failure), seen(standby(100, 2_000)), seen(standby(100, 2_000))]);
    play
}

/// All standbys pledge, and one more look finds the primary like this.
fn looked(play: &mut Play, found: ProbeResult) {
    play.now += 1;
    for node in [1, 2] {
        play.tell(FailoverEvent::Pledged { node, ballot: BALLOT, outcome: PledgeReply::Given { facts: cut_off(100, mark()) } });
    }
    play.now += 1;
    play.probed(0, found);
}

fn ended(play: &mut Play, end: ServerStopResult) {
    play.tell(FailoverEvent::ServerStopped { node: 0, ballot: BALLOT, end });
}

const CUT_OFF: [&str; 3] = ["hold Gone End", "cut off 1 (1)", "cut off 2 (1)"];

#[test]
fn the_outcome_of_its_end_is_the_proof_also_for_other_weirs() {
    let cases: &[(&str, LookFailure, ServerStopResult, &[&str])] = &[
        ("killed, and the agent says so", LookFailure::Refused, ServerStopResult::Before, &["ended 0 Before", "promote 1"]),
        ("behind a firewall", LookFailure::Refused, ServerStopResult::Now, &["ended 0 Now", "promote 1"]),
        (
            "the machine is dead, and the network says so",
            LookFailure::Refused,
            ServerStopResult::Unknown,
            &["ended 0 Unknown", "promote 1"],
        ),
        ("it hangs", LookFailure::TimedOut, ServerStopResult::Now, &["ended 0 Now", "promote 1"]),
        ("its port is cut, and it has ended", LookFailure::TimedOut, ServerStopResult::Before, &["ended 0 Before", "promote 1"]),
        ("the agent fails", LookFailure::TimedOut, ServerStopResult::Unknown, &["ended 0 Unknown", "stuck NotProvenDead"]),
    ];
    for (name, failure, end, expected) in cases {
        let mut play = lost(OtherPromoters::Possible, *failure);
        if *failure == LookFailure::TimedOut {
            play.check("nothing is begun without a word of the agent", &["hold Gone End", "ask agent 0"]);
            play.tell(FailoverEvent::AgentHeard { node: 0, done: Done::Yes });
            play.check("it answers", &CUT_OFF[1..]);
        } else {
            play.check("a failover", &CUT_OFF);
        }
        looked(&mut play, gone(*failure));
        play.check("the agent is told", &["end 0"]);
        ended(&mut play, *end);
        play.check(name, expected);
    }
}

#[test]
fn an_agent_that_does_not_answer_changes_nothing() {
    let mut play = lost(OtherPromoters::Possible, LookFailure::TimedOut);
    play.tell(FailoverEvent::AgentHeard { node: 0, done: Done::No });
    play.check("no attempt, which would leave promises", &["hold Gone End", "ask agent 0", "stuck NotProvenDead"]);
    play.after(1000, [gone(LookFailure::TimedOut), seen(standby(100, 3_000)), seen(standby(100, 3_000))]);
    play.check("not all the time", &[]);
    play.after(1000, [gone(LookFailure::TimedOut), seen(standby(100, 4_000)), seen(standby(100, 4_000))]);
    play.check("it is asked again", &["ask agent 0"]);
    let mut play = lost(OtherPromoters::Alone, LookFailure::TimedOut);
    play.check("silence is enough", &CUT_OFF);
    looked(&mut play, gone(LookFailure::TimedOut));
    play.check("the agent is told", &["end 0"]);
    play.now += 1_999;
    play.tell(FailoverEvent::Timer);
    play.check("it has its time", &[]);
    play.now += 1_000;
    play.tell(FailoverEvent::Timer);
    play.check("as without an agent", &["ended 0 Unknown", "promote 1"]);
}

#[test]
fn a_primary_that_answers_is_not_ended() {
    let cases: &[(&str, ProbeResult, &[&str])] = &[
        ("it stays", seen(primary(100)), &["hold Replaced End", "repoint 0 to 0", "repoint 1 to 0", "repoint 2 to 0"]),
        ("it recovers", gone(LookFailure::Starting), &["promote 1"]),
        ("it has too many connections", gone(LookFailure::TooManyConnections), &["stuck NotProvenDead"]),
    ];
    for (name, found, expected) in cases {
        let mut play = lost(OtherPromoters::Alone, LookFailure::TimedOut);
        play.said.clear();
        looked(&mut play, found.clone());
        play.check(name, expected);
    }
    let mut play = lost(OtherPromoters::Possible, LookFailure::TimedOut);
    play.tell(FailoverEvent::AgentHeard { node: 0, done: Done::Yes });
    looked(&mut play, gone(LookFailure::TimedOut));
    play.said.clear();
    play.now += 1;
    play.probed(0, seen(primary(100)));
    ended(&mut play, ServerStopResult::Unknown);
    let expected = ["hold Replaced End", "ended 0 Unknown", "repoint 0 to 0", "repoint 1 to 0", "repoint 2 to 0"];
    play.check("it answers while its agent fails, and stays", &expected);
}

#[test]
fn nothing_is_ended_in_favour_of_nobody() {
    let mut play = lost(OtherPromoters::Alone, LookFailure::TimedOut);
    play.rules.nodes.iter_mut().for_each(|node| node.priority = 0);
    play.said.clear();
    looked(&mut play, gone(LookFailure::TimedOut));
    play.check("no standby may be promoted", &["stuck NoStandby"]);
}
