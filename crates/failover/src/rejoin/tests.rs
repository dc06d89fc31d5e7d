use super::super::ballot::Epoch;
use super::super::event::{LookFailure, ServerFacts};
use super::super::history::TimelineHistory;
use super::super::rules::tests::rules;
use super::*;
use crate::node_state::TimedFacts as Look;
use std::collections::BTreeSet;

const BALLOT: Ballot = Ballot { term: 3, weir: 7 };
const NEWER: Ballot = Ballot { term: 4, weir: 8 };

fn mark(promised: Ballot) -> Mark {
    Mark { promised, vote: None }
}

#[test]
fn each_deed_follows_from_what_the_agent_tells() {
    use RewindFitness::{CanBeRewound, MustBeCopied};
    use ServerRunState::{Primary, Standby, Stopped};
    let cases = [
        (SoFar::Nothing, Primary, CanBeRewound, RejoinWay::Rewind, RejoinStep::Stop),
        (SoFar::Nothing, Stopped, CanBeRewound, RejoinWay::Rewind, RejoinStep::Rewind),
        (SoFar::Nothing, Stopped, MustBeCopied, RejoinWay::Rewind, RejoinStep::Copy),
        (SoFar::Nothing, Stopped, CanBeRewound, RejoinWay::Copy, RejoinStep::Copy),
        (SoFar::Nothing, Standby, CanBeRewound, RejoinWay::Rewind, RejoinStep::Leave("it is a standby already")),
        (SoFar::Nothing, Standby, CanBeRewound, RejoinWay::Copy, RejoinStep::Stop),
        (SoFar::Restored, Stopped, CanBeRewound, RejoinWay::Rewind, RejoinStep::Follow),
        (SoFar::Restored, Primary, CanBeRewound, RejoinWay::Rewind, RejoinStep::Leave("somebody else has started it")),
        (SoFar::Pointed, Stopped, CanBeRewound, RejoinWay::Copy, RejoinStep::Start),
        (SoFar::Started, Standby, CanBeRewound, RejoinWay::Copy, RejoinStep::Rest),
    ];
    for (so_far, server, files, way, expected) in cases {
        let seen = RejoinFacts { server, files, mark: mark(BALLOT) };
        assert_eq!(deed(&seen, so_far, way, Some(BALLOT)), expected, "{so_far:?} {server:?} {files:?} {way:?}");
        let seen = RejoinFacts { mark: mark(NEWER), ..seen };
        assert_eq!(deed(&seen, so_far, way, Some(BALLOT)), RejoinStep::Leave("it has promised a newer attempt"));
        assert_eq!(deed(&seen, so_far, way, None), expected, "no Weir decides");
    }
}

/// Node 1 was promoted in place of node 0.
fn replaced() -> (FailoverState, FailoverRules) {
    let mut rules = rules(3);
    rules.nodes.iter_mut().for_each(|node| node.returns = RejoinInitiator::ByAgent);
    let mut state = FailoverState::new(&rules, None, 7, &BTreeSet::new());
    let epoch = Epoch { ballot: BALLOT, node: 1, replaced: Some(0) };
    state.durable.epoch = Some(epoch);
    state.durable.vote = Some(Vote { ballot: BALLOT, epoch, parent: Epoch::found(0) });
    state.durable.history = Some(TimelineHistory { timeline: 2, ..TimelineHistory::default() });
    state.durable.given_up.insert(0);
    state.store.stored = state.store.version;
    state.gate = WriteTarget::Open { node: 1, started_at: None };
    see(&mut state, 1, facts(RecoveryState::Primary));
    lose(&mut state, 0);
    (state, rules)
}

fn facts(recovery: RecoveryState) -> ServerFacts {
    ServerFacts {
        history: TimelineHistory { timeline: 2, ..TimelineHistory::default() },
        recovery,
        mark: mark(BALLOT),
        ..ServerFacts::default()
    }
}

fn see(state: &mut FailoverState, id: NodeId, facts: ServerFacts) {
    let node = state.nodes.get_mut(&id).unwrap();
    (node.failure, node.seen) = (None, Some(Look { begun_at: 0, answered_at: 0, facts }));
}

fn lose(state: &mut FailoverState, id: NodeId) {
    let node = state.nodes.get_mut(&id).unwrap();
    (node.failure, node.standing) = (
        Some(LookFailure::Refused),
        NodeStanding::Down { why: super::super::action::NodeDownReason::Failed(LookFailure::Refused), since: 0 },
    );
}

/// Nodes and ways that are ordered.
fn ordered(state: &mut FailoverState, rules: &FailoverRules, now: Ms) -> Vec<(NodeId, RejoinWay)> {
    let mut out = Vec::new();
    work(state, rules, now, &mut out);
    let order = |action: &FailoverAction| match action {
        FailoverAction::Rejoin { node, primary: 1, ballot: BALLOT, way, .. } => Some((*node, *way)),
        _ => None,
    };
    let is_told = |action: &&FailoverAction| matches!(action, FailoverAction::Report(FailoverReport::DoesNotStream { .. }));
    assert_eq!(out.iter().filter_map(order).count(), out.len() - out.iter().filter(is_told).count());
    out.iter().filter_map(order).collect()
}

#[test]
fn a_replaced_primary_is_brought_back_once_and_tried_again_after_a_pause() {
    let (mut state, rules) = replaced();
    assert_eq!(ordered(&mut state, &rules, 0), [(0, RejoinWay::Rewind)]);
    assert_eq!(ordered(&mut state, &rules, 1), [], "it is under way");
    rejoined(&mut state, 0, Done::No, 10);
    assert_eq!(ordered(&mut state, &rules, PAUSE_MS), []);
    assert_eq!(ordered(&mut state, &rules, PAUSE_MS + 10), [(0, RejoinWay::Rewind)]);
    rejoined(&mut state, 0, Done::No, 10);
    assert_eq!(ordered(&mut state, &rules, PAUSE_MS + 10), [], "the pause grows");
    assert_eq!(ordered(&mut state, &rules, 2 * PAUSE_MS + 10), [(0, RejoinWay::Rewind)]);
    rejoined(&mut state, 0, Done::Yes, 10);
    assert_eq!(ordered(&mut state, &rules, STREAM_MS), [], "it has time to stream");
    assert_eq!(ordered(&mut state, &rules, STREAM_MS + 10), [(0, RejoinWay::Copy)], "it does not");
    rejoined(&mut state, 0, Done::Yes, 10);
    let stream = WalReceiverState::On { silent_ms: 1 };
    see(&mut state, 0, facts(RecoveryState::Standby { upstream: Some(1), stream }));
    assert!(is_back(&state, &rules, 0));
    state.nodes.get_mut(&0).unwrap().standing = NodeStanding::Waiting;
    assert_eq!(ordered(&mut state, &rules, 10 * STREAM_MS), []);
    assert_eq!(state.nodes[&0].rejoin, RejoinProgress::No);
}

#[test]
fn a_server_that_was_brought_back_and_is_dead_after_its_time_is_copied() {
    let (mut state, rules) = replaced();
    assert_eq!(ordered(&mut state, &rules, 0), [(0, RejoinWay::Rewind)]);
    rejoined(&mut state, 0, Done::Yes, 10);
    state.durable.given_up.remove(&0);
    assert_eq!(ordered(&mut state, &rules, STREAM_MS), []);
    assert_eq!(ordered(&mut state, &rules, STREAM_MS + 10), [(0, RejoinWay::Copy)]);
}

#[test]
fn a_node_that_streams_is_back_if_it_was_brought_or_is_the_replaced_primary() {
    let (mut state, rules) = replaced();
    let stream = WalReceiverState::On { silent_ms: 1 };
    for id in [0, 2] {
        see(&mut state, id, facts(RecoveryState::Standby { upstream: Some(1), stream }));
    }
    assert!(is_back(&state, &rules, 0), "a Weir that was started since knows it by the decision");
    assert!(!is_back(&state, &rules, 2), "nobody brought it");
    for (rejoin, expected) in
        [(RejoinProgress::Brought { at: 0, copies: 0 }, true), (RejoinProgress::Vain { ballot: BALLOT }, true)]
    {
        state.nodes.get_mut(&2).unwrap().rejoin = rejoin;
        assert_eq!(is_back(&state, &rules, 2), expected);
    }
    see(&mut state, 2, facts(RecoveryState::Standby { upstream: Some(1), stream: WalReceiverState::Off }));
    assert!(!is_back(&state, &rules, 2), "it does not stream");
}

#[test]
fn a_server_that_does_not_stream_is_copied_twice_and_no_more() {
    let (mut state, rules) = replaced();
    assert_eq!(ordered(&mut state, &rules, 0), [(0, RejoinWay::Rewind)]);
    // It answers, and receives nothing: its login is refused, perhaps.
    see(&mut state, 0, facts(RecoveryState::Standby { upstream: Some(1), stream: WalReceiverState::Off }));
    let mut now = 0;
    for copy in 1..=2 {
        rejoined(&mut state, 0, Done::Yes, now);
        now += STREAM_MS;
        assert_eq!(ordered(&mut state, &rules, now), [(0, RejoinWay::Copy)], "copy {copy}");
        rejoined(&mut state, 0, Done::No, now);
        now += PAUSE_MS;
        assert_eq!(ordered(&mut state, &rules, now), [(0, RejoinWay::Copy)], "copy {copy}, begun again");
    }
    rejoined(&mut state, 0, Done::Yes, now);
    let mut out = Vec::new();
    for _ in 0..3 {
        now += STREAM_MS;
        work(&mut state, &rules, now, &mut out);
    }
    assert_eq!(out, [FailoverAction::Report(FailoverReport::DoesNotStream { node: 0, then: RejoinFallback::Nothing })]);
    // Somebody has mended it.
    see(&mut state, 0, facts(RecoveryState::Standby { upstream: Some(1), stream: WalReceiverState::On { silent_ms: 1 } }));
    assert!(is_back(&state, &rules, 0));
    // After another decision it has another chance.
    lose(&mut state, 0);
    let newer = Ballot { term: 5, weir: 7 };
    state.durable.vote = state.durable.vote.map(|vote| Vote { ballot: newer, ..vote });
    work(&mut state, &rules, now, &mut out);
    assert!(matches!(out.last(), Some(FailoverAction::Rejoin { node: 0, way: RejoinWay::Rewind, .. })), "{out:?}");
}

#[test]
fn these_are_left_alone() {
    type Change = fn(&mut FailoverState, &mut FailoverRules);
    let cases: [(&str, Change); 9] = [
        ("no agent", |_, rules| rules.nodes[0].returns = RejoinInitiator::ByOperator),
        ("nobody here decides", |_, rules| rules.mode = FailoverMode::Follow),
        ("an operator took it out", |state, _| state.nodes.get_mut(&0).unwrap().standing = NodeStanding::Detached),
        ("a copy is being made", |state, _| state.nodes.get_mut(&0).unwrap().standing = NodeStanding::Recovering),
        ("it was not replaced", |state, _| assert!(state.durable.given_up.remove(&0))),
        ("the new primary does not answer", |state, _| lose(state, 1)),
        ("writes wait", |state, _| {
            state.gate =
                WriteTarget::Held(super::super::action::WriteHoldReason::Gone, super::super::action::OpenTransactionFate::End);
        }),
        ("the decision is not on disk", |state, _| state.store.stored = 0),
        ("it has promised a newer attempt", |state, _| {
            see(state, 0, ServerFacts { mark: mark(NEWER), ..facts(RecoveryState::Primary) });
        }),
    ];
    for (name, change) in cases {
        let (mut state, mut rules) = replaced();
        change(&mut state, &mut rules);
        assert_eq!(ordered(&mut state, &rules, 0), [], "{name}");
    }
    let (mut state, rules) = replaced();
    see(&mut state, 0, facts(RecoveryState::Primary));
    assert_eq!(ordered(&mut state, &rules, 0), [(0, RejoinWay::Rewind)], "it runs as a primary still");
}
