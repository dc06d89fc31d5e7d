//! The part of an attempt that is a switchover's own: the primary is stopped, and one node must hold all that it had.

use super::{Aim, Answer, Attempt, INSPECT_MS, Next, Phase, RECHECK_MS, STOP_MS, ask, promote};
use crate::failover::action::Action;
use crate::failover::ballot::{Ballot, NodeId};
use crate::failover::choose::{self, Refusal, Sync};
use crate::failover::event::{Done, Failure, Ms};
use crate::failover::history::{Lsn, Relation};
use crate::failover::record::Loss;
use crate::failover::rules::{Rule, Rules};
use crate::failover::state::State;
use crate::failover::switchover;

/// A majority has pledged: for the first time, or after the stop.
pub(super) fn pledged(
    state: &State,
    attempt: &mut Attempt,
    rules: &Rules,
    (node, started_at): (NodeId, Option<u64>),
    now: Ms,
    out: &mut Vec<Action>,
) -> Next {
    if !attempt.given().contains(&node) {
        return Next::End(Refusal::NoPledge { node });
    }
    if rules.keeps(Rule::ReadQuorum) {
        // One that was not cut off would acknowledge what is written past Weir, if somebody started the old primary again.
        match state.sync(rules) {
            Sync::Unknown => return Next::End(Refusal::SyncUnknown),
            Sync::Asynchronous => {}
            Sync::Synchronous(all) => {
                if let Some(refusal) = choose::too_few_asked(&all, &attempt.given()) {
                    return Next::End(refusal);
                }
            }
        }
    }
    let (old, ballot) = (attempt.parent.node, attempt.ballot);
    if !rules.keeps(Rule::StopFirst) {
        attempt.loss = Loss::Nothing;
        return promote(attempt, node, now, out);
    }
    if matches!(attempt.phase, Phase::Parting { .. }) {
        out.push(Action::Inspect { node: old, ballot, limit_ms: INSPECT_MS });
        return Next::Phase(Phase::Inspecting { until: now + INSPECT_MS + RECHECK_MS });
    }
    out.push(Action::StopServer { node: old, ballot, started_at, limit_ms: STOP_MS });
    Next::Phase(Phase::Stopping { until: now + STOP_MS + RECHECK_MS })
}

pub(super) fn stopping(state: &State, attempt: &Attempt, until: Ms, now: Ms) -> Next {
    let node = attempt.parent.node;
    if now >= until || switchover::hangs(state, node, now) { Next::End(Refusal::NotStopped { node }) } else { Next::Stay }
}

/// The agent stopped the old primary, or did not.
pub(in super::super) fn stopped(
    state: &mut State,
    rules: &Rules,
    (node, ballot): (NodeId, Ballot),
    done: Done,
    now: Ms,
    out: &mut Vec<Action>,
) {
    let Some(mut attempt) = state.attempt.take_if(|attempt| is_of(attempt, node, ballot)) else { return };
    if !matches!(attempt.phase, Phase::Stopping { .. }) {
        state.attempt = Some(attempt);
        return;
    }
    if done == Done::Yes {
        attempt.pledges.clear();
        let until = ask(state, &mut attempt, rules, now, out);
        attempt.phase = Phase::Parting { until };
        state.attempt = Some(attempt);
    } else {
        state.attempt = Some(attempt);
        super::end(state, Refusal::NotStopped { node }, now, out);
    }
}

/// The agent found where the old primary's log ends. Nobody has started it since the standbys were cut off from it, so that nothing is beyond.
pub(in super::super) fn inspected(
    state: &mut State,
    rules: &Rules,
    (node, ballot): (NodeId, Ballot),
    outcome: Result<Lsn, Failure>,
    now: Ms,
    out: &mut Vec<Action>,
) {
    let Some(mut attempt) = state.attempt.take_if(|attempt| is_of(attempt, node, ballot)) else { return };
    let next = match (&attempt.phase, attempt.aim) {
        (Phase::Inspecting { .. }, Aim::Succeed { node: chosen, .. }) => match outcome {
            Err(_) => Next::End(Refusal::NotStopped { node }),
            Ok(last) if holds(state, &attempt, chosen, last) || !rules.keeps(Rule::WholeLog) => {
                attempt.loss = Loss::Nothing;
                promote(&attempt, chosen, now, out)
            }
            Ok(_) => Next::End(Refusal::LacksLog { node: chosen }),
        },
        _ => Next::Stay,
    };
    let refusal = match next {
        Next::Phase(phase) => {
            attempt.phase = phase;
            None
        }
        Next::End(refusal) => Some(refusal),
        Next::Stay | Next::Decided => None,
    };
    state.attempt = Some(attempt);
    if let Some(refusal) = refusal {
        super::end(state, refusal, now, out);
    }
}

fn is_of(attempt: &Attempt, node: NodeId, ballot: Ballot) -> bool {
    attempt.ballot == ballot && attempt.parent.node == node
}

/// True if a node that pledged holds the log beyond this position: the last record of the old primary, that of its shutdown, begins there.
fn holds(state: &State, attempt: &Attempt, node: NodeId, last: Lsn) -> bool {
    let Some(Answer::Given(facts)) = attempt.pledges.get(&node) else { return false };
    matches!(state.relation(facts), Some(Relation::Holds(position)) if position > last)
}

/// True if the chosen node is dead while it is being promoted: nobody waits for it.
pub(super) fn has_lost(state: &State, attempt: &Attempt, node: NodeId) -> bool {
    matches!(attempt.aim, Aim::Succeed { .. }) && state.nodes.get(&node).is_some_and(|node| node.dead.is_some())
}
