//! A standby's server is started anew.

use super::*;

fn play(change: impl FnOnce(&mut FailoverRules)) -> Play {
    let mut play = Play::new(change);
    play.after(1000, [seen(primary(100)), seen(standby(100, 5)), seen(standby(100, 5))]);
    play.said.clear();
    play.tell(FailoverEvent::Operator { ticket: 1, request: OperatorRequest::Restart(1) });
    play.check("nothing new begins there", &["drain 1"]);
    assert!(!play.state.nodes[&1].is_in_use());
    play
}

fn again(play: &mut Play) {
    play.probed(1, seen(standby(100, 5)));
    play.check("that is the server of before", &[]);
    play.now += 100;
    play.probed(1, seen(ServerFacts { started_at: 2, ..standby(100, 5) }));
    play.check("it streams", &["reply Ok(())"]);
    assert!(play.state.nodes[&1].is_in_use());
}

#[test]
fn its_agent_starts_it_anew() {
    let mut play = play(|_| ());
    play.tell(FailoverEvent::Drained { node: 1 });
    play.check("drained", &["restart 1"]);
    play.tell(FailoverEvent::ServerStarted { node: 1, done: Done::Yes });
    again(&mut play);
}

#[test]
fn without_an_agent_the_time_of_its_start_tells() {
    let mut play = play(|rules| rules.nodes[1].agent = AgentPresence::None);
    play.tell(FailoverEvent::Drained { node: 1 });
    play.check("somebody is asked in the log", &[]);
    again(&mut play);
}

#[test]
fn one_that_is_not_started_anew_is_used_again_if_it_answers() {
    let mut play = play(|_| ());
    play.tell(FailoverEvent::Drained { node: 1 });
    play.tell(FailoverEvent::ServerStarted { node: 1, done: Done::No });
    let text = "the agent of node 1 could not start its server anew; the log tells more";
    play.check("the agent failed", &["restart 1", &format!("reply Err(\"{text}\")")]);
    assert!(play.state.nodes[&1].is_in_use());
}

#[test]
fn an_agent_that_says_nothing_is_waited_for_two_minutes() {
    let mut play = play(|_| ());
    play.tell(FailoverEvent::Drained { node: 1 });
    play.check("drained", &["restart 1"]);
    for (passed, is_over) in [(119_000, false), (4_000, true)] {
        play.now += passed;
        play.tell(FailoverEvent::Timer);
        assert_eq!(play.said.iter().any(|said| said.starts_with("reply Err")), is_over, "{:?}", play.said);
    }
}

#[test]
fn one_that_was_silent_for_a_moment_is_waited_for() {
    let silent = || {
        let mut play = Play::new(|_| ());
        play.after(1000, [seen(primary(100)), seen(standby(100, 5)), seen(standby(100, 5))]);
        play.probed(1, ProbeResult::Failed(LookFailure::TimedOut));
        play.said.clear();
        play.tell(FailoverEvent::Operator { ticket: 1, request: OperatorRequest::Restart(1) });
        play.check("nothing is heard of it", &[]);
        assert!(play.state.nodes[&1].is_in_use());
        play
    };
    let mut play = silent();
    play.probed(1, seen(standby(100, 5)));
    play.check("it streams", &["drain 1"]);
    let mut play = silent();
    play.now += 30_000;
    play.tell(FailoverEvent::Timer);
    assert!(play.said.contains(&"reply Err(\"node 1 does not stream from the primary\")".to_string()), "{:?}", play.said);
}

#[test]
fn a_restart_that_cannot_be_is_refused() {
    let mut play = play(|_| ());
    for (node, text) in [(2, "a restart or a switchover is under way"), (0, "a restart or a switchover is under way")] {
        play.tell(FailoverEvent::Operator { ticket: 2, request: OperatorRequest::Restart(node) });
        play.check(text, &[&format!("reply Err(\"{text}\")")]);
    }
    let mut play = Play::new(|_| ());
    play.tell(FailoverEvent::Operator { ticket: 2, request: OperatorRequest::Restart(0) });
    play.check("the primary", &["reply Err(\"node 0 is the primary: switch over first\")"]);
}

#[test]
fn transactions_that_do_not_end_hold_it_up_for_their_limit_and_no_longer() {
    let mut play = play(|_| ());
    let limit_ms = play.rules.transaction_limit_ms + 2_000;
    play.now += limit_ms - 1;
    play.tell(FailoverEvent::Timer);
    assert!(!play.said.contains(&"restart 1".to_string()), "{:?}", play.said);
    play.now += 1;
    play.tell(FailoverEvent::Timer);
    assert!(play.said.contains(&"restart 1".to_string()), "{:?}", play.said);
}
