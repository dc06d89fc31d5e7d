//! One standby is started anew, with a newer minor release of PostgreSQL for instance, without a failed statement: it is out of use meanwhile.
//!
//! Its agent stops and starts it. Without an agent somebody else does, and the time of its start tells. Nothing of this is on disk: a Weir that dies
//! leaves no node out of use.

use super::action::{Action, Report};
use super::ballot::{Ballot, NodeId};
use super::duty;
use super::event::{Done, Ms};
use super::health::RECHECK_MS;
use super::history::Relation;
use super::node::Standing;
use super::rules::{Agent, Rules};
use super::state::State;

/// More time for the driver to say that all statements have ended, or were ended.
const SLACK_MS: Ms = 2_000;
const STOP_MS: Ms = 60_000;
const START_MS: Ms = 60_000;
/// Time for an operator to start a server anew, and for it to catch up.
const OPERATOR_MS: Ms = 1_800_000;
const RETURN_MS: Ms = 300_000;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Restart {
    pub node: NodeId,
    ticket: u64,
    /// The start of the server before.
    started_at: u64,
    pub step: Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Statements that run on it end.
    Draining {
        until: Ms,
    },
    Stopping {
        until: Ms,
    },
    Starting {
        until: Ms,
    },
    /// It runs again, or somebody is to start it anew.
    Returning {
        until: Ms,
    },
}

/// An operator asks for it. Error: nothing is begun.
pub(super) fn request(
    state: &mut State,
    rules: &Rules,
    node: NodeId,
    ticket: u64,
    now: Ms,
    out: &mut Vec<Action>,
) -> Result<(), String> {
    if state.planned.restart.is_some() || state.planned.switchover.is_some() {
        return Err("a restart or a switchover is under way".into());
    }
    if state.primary() == Some(node) {
        return Err(format!("node {node} is the primary: switch over first"));
    }
    let Some(facts) = state.facts(node).filter(|facts| facts.silent_ms().is_some()) else {
        return Err(format!("node {node} does not stream from the primary"));
    };
    let started_at = facts.started_at;
    let Some(known) = state.nodes.get_mut(&node).filter(|known| known.is_in_use()) else {
        return Err(format!("node {node} is out of use"));
    };
    known.standing = Standing::Recovering;
    let limit_ms = rules.transaction_limit_ms;
    out.push(Action::Drain { node, limit_ms });
    state.planned.restart = Some(Restart { node, ticket, started_at, step: Step::Draining { until: now + limit_ms + SLACK_MS } });
    Ok(())
}

/// Goes on as far as the facts allow.
pub(super) fn drive(state: &mut State, rules: &Rules, now: Ms, out: &mut Vec<Action>) {
    let Some(mut of) = state.planned.restart.take() else { return };
    let id = of.node;
    let is_back = state.facts(id).is_some_and(|facts| {
        let holds = matches!(state.relation(facts), Some(Relation::Holds(_)));
        facts.started_at != of.started_at && !facts.is_primary() && facts.silent_ms().is_some() && holds
    });
    let answer = match of.step {
        Step::Draining { until } if now >= until => {
            of.step = if rules.node(id).is_some_and(|node| node.agent == Agent::There) {
                out.push(Action::StopServer {
                    node: id,
                    ballot: Ballot::default(),
                    started_at: Some(of.started_at),
                    limit_ms: STOP_MS,
                });
                Step::Stopping { until: now + STOP_MS + SLACK_MS }
            } else {
                out.push(Action::Report(Report::AwaitsRestart { node: id }));
                Step::Returning { until: now + OPERATOR_MS }
            };
            None
        }
        Step::Returning { .. } if is_back => Some(Ok(())),
        Step::Returning { until } if now >= until => Some(Err(format!("node {id} was not started anew, or does not stream"))),
        Step::Stopping { until } if now >= until => Some(Err(format!("node {id} was not stopped"))),
        Step::Starting { until } if now >= until => Some(Err(format!("node {id} was not started"))),
        Step::Returning { .. } => {
            if let Some(node) = state.nodes.get_mut(&id) {
                node.look_soon(now, RECHECK_MS);
            }
            None
        }
        Step::Draining { .. } | Step::Stopping { .. } | Step::Starting { .. } => None,
    };
    match answer {
        None => state.planned.restart = Some(of),
        Some(answer) => {
            // Also one that failed is used again as far as it answers: its health tells.
            if state.nodes.get(&id).is_some_and(|node| node.standing == Standing::Recovering) {
                duty::attach(state, rules, id, out);
            }
            out.push(Action::Reply { ticket: of.ticket, answer });
        }
    }
}

/// Takes in that nothing runs on the node any more, or the limit is over.
pub(super) fn drained(state: &mut State, id: NodeId, now: Ms) {
    if let Some(Restart { node, step: Step::Draining { until }, .. }) = &mut state.planned.restart
        && *node == id
    {
        *until = now;
    }
}

/// Takes in that the agent stopped the server, or did not. One that was not stopped runs on.
pub(super) fn stopped(state: &mut State, id: NodeId, done: Done, now: Ms, out: &mut Vec<Action>) {
    let Some(of) = state.planned.restart.as_mut().filter(|of| of.node == id) else { return };
    if let Step::Stopping { until } = &mut of.step {
        match done {
            Done::Yes => {
                out.push(Action::StartServer { node: id, limit_ms: START_MS });
                of.step = Step::Starting { until: now + START_MS + SLACK_MS };
            }
            Done::No => *until = now,
        }
    }
}

/// Takes in that the agent started the server, or did not. A standby that has much to apply goes on starting.
pub(super) fn started(state: &mut State, id: NodeId, now: Ms) {
    if let Some(of) = state.planned.restart.as_mut().filter(|of| of.node == id)
        && matches!(of.step, Step::Starting { .. })
    {
        of.step = Step::Returning { until: now + RETURN_MS };
    }
}

/// When something is due.
pub(super) fn due(of: &Restart) -> Ms {
    match of.step {
        Step::Draining { until } | Step::Stopping { until } | Step::Starting { until } | Step::Returning { until } => until,
    }
}
