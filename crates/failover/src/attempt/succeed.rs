//! The switchover's part of an attempt: one node must hold all log of the stopped primary.

use super::{AttemptTransition, INSPECT_MS, RECHECK_MS, STOP_MS, ask, promote};
use crate::action::{FailoverAction, PrimaryStopMode};
use crate::ballot::{Ballot, NodeId};
use crate::choose::{self, AttemptRefusal, SyncStandbyKnowledge};
use crate::event::{LookFailure, Ms, ServerFacts, ServerStopResult};
use crate::failover_state::FailoverState;
use crate::history::{Lsn, WalRelation};
use crate::operations::{AttemptAim, AttemptPhase, FailoverAttempt, PledgeState};
use crate::record::CommitLoss;
use crate::rules::{FailoverRules, QuorumSize, SafetyRule};
use crate::switchover;

/// Time for a receiver to restart: `wal_retrieve_retry_interval` is 5 s.
const STREAM_MS: Ms = 7_000;
/// For log after the stop, and looks on a busy machine.
const REPLAY_MS: Ms = 5_000;
const LOOK_MS: Ms = 20;
/// Extra time for the driver's report.
const SLACK_MS: Ms = 2_000;
/// Minimum if other Weirs took all of the limit.
const LEAST_MS: Ms = 1_000;

/// Goes on after the first or second majority of pledges.
pub(super) fn pledged(
    state: &FailoverState,
    attempt: &mut FailoverAttempt,
    rules: &FailoverRules,
    node: NodeId,
    now: Ms,
    out: &mut Vec<FailoverAction>,
) -> AttemptTransition {
    if !attempt.given().contains(&node) {
        return AttemptTransition::End(AttemptRefusal::NoPledge { node });
    }
    if rules.keeps(SafetyRule::ReadQuorum) {
        // A standby not cut off would acknowledge writes past Weir to a restarted old primary.
        match state.sync(rules) {
            SyncStandbyKnowledge::Unknown => return AttemptTransition::End(AttemptRefusal::SyncUnknown),
            SyncStandbyKnowledge::Asynchronous => {}
            SyncStandbyKnowledge::Synchronous(all) => {
                if let Some(refusal) = choose::too_few_asked(&all, &attempt.given()) {
                    return AttemptTransition::End(refusal);
                }
            }
        }
    }
    let (old, ballot) = (attempt.parent.node, attempt.ballot);
    if !rules.keeps(SafetyRule::StopFirst) {
        attempt.loss = CommitLoss::Nothing;
        return promote(node, now);
    }
    if matches!(attempt.phase, AttemptPhase::Parting { .. }) {
        out.push(FailoverAction::Inspect { node: old, ballot, limit_ms: INSPECT_MS });
        return AttemptTransition::Phase(AttemptPhase::Inspecting { until: now + INSPECT_MS + RECHECK_MS });
    }
    AttemptTransition::Phase(AttemptPhase::Streaming { from: now, until: now + STREAM_MS })
}

/// Waits until the chosen standby streams again and has replayed. A stopping server sends nothing to a standby that does not stream;
/// without replay it would not become a primary.
pub(super) fn streaming(
    state: &mut FailoverState,
    attempt: &FailoverAttempt,
    rules: &FailoverRules,
    (from, until): (Ms, Ms),
    now: Ms,
    out: &mut Vec<FailoverAction>,
) -> AttemptTransition {
    let AttemptAim::Succeed { node, .. } = attempt.aim else { return AttemptTransition::Stay };
    let old = attempt.parent.node;
    let Some(known) = state.nodes.get_mut(&node) else { return AttemptTransition::End(AttemptRefusal::NoPledge { node }) };
    let is_new = known.seen.as_ref().is_some_and(|seen| seen.begun_at > from);
    let streams = known.facts().is_some_and(|facts| facts.upstream() == Some(old) && facts.silent_ms().is_some());
    let had = attempt.facts().find(|(id, _)| *id == node).map_or(0, |(_, facts)| facts.position);
    let replays = known.facts().is_some_and(|facts| facts.replayed >= had);
    if !(is_new && streams && replays) {
        known.look_soon(now, LOOK_MS);
        let bytes = known.facts().map_or(0, ServerFacts::unreplayed);
        return match is_new && streams {
            _ if now < until => AttemptTransition::Stay,
            true => AttemptTransition::End(AttemptRefusal::NotReplayed { node, bytes }),
            false => AttemptTransition::End(AttemptRefusal::NotStreaming { node }),
        };
    }
    if !rules.keeps(SafetyRule::Drain) {
        return AttemptTransition::Phase(AttemptPhase::Draining { until: now });
    }
    let limit_ms = rules.transaction_limit_ms;
    let drained_by = now + limit_ms;
    if attempt.quorum == QuorumSize::Majority {
        out.push(FailoverAction::WaitYielded { node: old, weir: attempt.ballot.weir, limit_ms });
        return AttemptTransition::Phase(AttemptPhase::Yielding { until: drained_by + SLACK_MS, drained_by });
    }
    drain(attempt, drained_by, now, out)
}

fn drain(attempt: &FailoverAttempt, drained_by: Ms, now: Ms, out: &mut Vec<FailoverAction>) -> AttemptTransition {
    let limit_ms = drained_by.saturating_sub(now).max(LEAST_MS);
    out.push(FailoverAction::Drain { node: attempt.parent.node, limit_ms });
    AttemptTransition::Phase(AttemptPhase::Draining { until: now + limit_ms + SLACK_MS })
}

pub(super) fn yielding(
    attempt: &FailoverAttempt,
    (until, drained_by): (Ms, Ms),
    now: Ms,
    out: &mut Vec<FailoverAction>,
) -> AttemptTransition {
    if now >= until { drain(attempt, drained_by, now, out) } else { AttemptTransition::Stay }
}

pub(in super::super) fn yielded(state: &mut FailoverState, node: NodeId, now: Ms) {
    if let Some(attempt) = &mut state.attempt
        && attempt.parent.node == node
        && let AttemptPhase::Yielding { until, .. } = &mut attempt.phase
    {
        *until = now;
    }
}

pub(super) fn draining(attempt: &FailoverAttempt, until: Ms, now: Ms, out: &mut Vec<FailoverAction>) -> AttemptTransition {
    let (AttemptAim::Succeed { started_at, .. }, true) = (attempt.aim, now >= until) else { return AttemptTransition::Stay };
    let (node, ballot) = (attempt.parent.node, attempt.ballot);
    out.push(FailoverAction::StopServer { node, ballot, started_at, mode: PrimaryStopMode::Clean, limit_ms: STOP_MS });
    AttemptTransition::Phase(AttemptPhase::Stopping { until: now + STOP_MS + RECHECK_MS })
}

pub(in super::super) fn drained(state: &mut FailoverState, node: NodeId, now: Ms) {
    if let Some(attempt) = &mut state.attempt
        && attempt.parent.node == node
        && let AttemptPhase::Draining { until } = &mut attempt.phase
    {
        *until = now;
    }
}

pub(super) fn stopping(state: &FailoverState, attempt: &FailoverAttempt, until: Ms, now: Ms) -> AttemptTransition {
    let node = attempt.parent.node;
    if now >= until || switchover::hangs(state, node, now) {
        AttemptTransition::End(AttemptRefusal::NotStopped { node })
    } else {
        AttemptTransition::Stay
    }
}

/// Takes in the agent's answer to a stop, for a switchover or a silent primary.
pub(in super::super) fn stopped(
    state: &mut FailoverState,
    rules: &FailoverRules,
    (node, ballot): (NodeId, Ballot),
    end: ServerStopResult,
    now: Ms,
    out: &mut Vec<FailoverAction>,
) {
    let Some(mut attempt) = state.attempt.take_if(|attempt| is_of(attempt, node, ballot)) else { return };
    let next = match (attempt.phase.clone(), end) {
        (AttemptPhase::Stopping { .. }, ServerStopResult::Before | ServerStopResult::Now) => {
            attempt.pledges.clear();
            AttemptTransition::Phase(AttemptPhase::Parting { until: ask(state, &mut attempt, rules, now, out) })
        }
        (AttemptPhase::Stopping { .. }, ServerStopResult::Unknown) => AttemptTransition::End(AttemptRefusal::NotStopped { node }),
        (AttemptPhase::Ending { failure, .. }, _) => super::ended(state, &mut attempt, rules, (failure, end), now, out),
        _ => AttemptTransition::Stay,
    };
    go_on(state, attempt, next, now, out);
}

fn go_on(
    state: &mut FailoverState,
    mut attempt: FailoverAttempt,
    next: AttemptTransition,
    now: Ms,
    out: &mut Vec<FailoverAction>,
) {
    let refusal = match next {
        AttemptTransition::Phase(phase) => {
            attempt.phase = phase;
            None
        }
        AttemptTransition::End(refusal) => Some(refusal),
        AttemptTransition::Stay | AttemptTransition::Decided => None,
    };
    state.attempt = Some(attempt);
    if let Some(refusal) = refusal {
        super::end(state, refusal, now, out);
    }
}

/// The log's end is final: the server was not started since the standbys were cut off.
pub(in super::super) fn inspected(
    state: &mut FailoverState,
    rules: &FailoverRules,
    (node, ballot): (NodeId, Ballot),
    outcome: Result<Lsn, LookFailure>,
    now: Ms,
    out: &mut Vec<FailoverAction>,
) {
    let Some(mut attempt) = state.attempt.take_if(|attempt| is_of(attempt, node, ballot)) else { return };
    let next = match (&attempt.phase, attempt.aim) {
        (AttemptPhase::Inspecting { .. }, AttemptAim::Succeed { node: chosen, .. }) => match outcome {
            Err(_) => AttemptTransition::End(AttemptRefusal::NotStopped { node }),
            Ok(last) if holds(state, &attempt, chosen, last) || !rules.keeps(SafetyRule::WholeLog) => {
                attempt.loss = CommitLoss::Nothing;
                if replayed(&attempt, chosen) > last || !rules.keeps(SafetyRule::WholeLog) {
                    promote(chosen, now)
                } else {
                    AttemptTransition::Phase(AttemptPhase::Replaying { last, until: now + REPLAY_MS })
                }
            }
            Ok(_) => AttemptTransition::End(AttemptRefusal::LacksLog { node: chosen }),
        },
        _ => AttemptTransition::Stay,
    };
    go_on(state, attempt, next, now, out);
}

/// A standby ordered to promote that does not replay is no primary, and the old one can no longer be started.
pub(super) fn replaying(
    state: &mut FailoverState,
    attempt: &FailoverAttempt,
    (last, until): (Lsn, Ms),
    now: Ms,
) -> AttemptTransition {
    let AttemptAim::Succeed { node, .. } = attempt.aim else { return AttemptTransition::Stay };
    if has_lost(state, attempt, node) {
        return AttemptTransition::End(AttemptRefusal::NoPledge { node });
    }
    let Some(known) = state.nodes.get_mut(&node) else { return AttemptTransition::End(AttemptRefusal::NoPledge { node }) };
    if known.facts().is_some_and(|facts| facts.replayed > last) {
        return promote(node, now);
    }
    known.look_soon(now, LOOK_MS);
    let bytes = known.facts().map_or(0, ServerFacts::unreplayed);
    if now >= until { AttemptTransition::End(AttemptRefusal::NotReplayed { node, bytes }) } else { AttemptTransition::Stay }
}

/// The position replayed at the pledge.
fn replayed(attempt: &FailoverAttempt, node: NodeId) -> Lsn {
    attempt.facts().find(|(id, _)| *id == node).map_or(0, |(_, facts)| facts.replayed)
}

fn is_of(attempt: &FailoverAttempt, node: NodeId, ballot: Ballot) -> bool {
    attempt.ballot == ballot && attempt.parent.node == node
}

/// True if a node holds log beyond `last`, the begin of the shutdown record.
fn holds(state: &FailoverState, attempt: &FailoverAttempt, node: NodeId, last: Lsn) -> bool {
    let Some(PledgeState::Given(facts)) = attempt.pledges.get(&node) else { return false };
    matches!(state.relation(node, facts), Some(WalRelation::Holds(position)) if position > last)
}

pub(super) fn has_lost(state: &FailoverState, attempt: &FailoverAttempt, node: NodeId) -> bool {
    matches!(attempt.aim, AttemptAim::Succeed { .. }) && state.nodes.get(&node).is_some_and(|node| node.dead.is_some())
}
