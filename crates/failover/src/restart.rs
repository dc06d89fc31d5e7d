//! One standby is started anew, with a newer minor release of PostgreSQL for instance, without a failed statement: it is out of use meanwhile.
//!
//! Its agent stops and starts it, by one order: it goes on if this Weir dies. Without an agent somebody else does, and the time of its start tells.
//! Nothing of this is on disk: a Weir that dies leaves no node out of use.

use super::action::{Action, Report};
use super::ballot::NodeId;
use super::duty;
use super::event::{Done, Ms};
use super::health::RECHECK_MS;
use super::history::Relation;
use super::operations::{Restart, Step};
use super::rules::{AgentPresence, FailoverRules};
use crate::failover_state::FailoverState;
use crate::node_state::{NodeState, Standing};

/// Time for a standby of which nothing was heard for a moment to be seen streaming.
const AWAIT_MS: Ms = 30_000;
/// More time for the driver to say that all statements have ended, or were ended.
const SLACK_MS: Ms = 2_000;
/// Time for the agent: half of it to stop the server in order.
const RESTART_MS: Ms = 120_000;
/// Time for an operator to start a server anew, and for it to catch up.
const OPERATOR_MS: Ms = 1_800_000;
const RETURN_MS: Ms = 300_000;

/// An operator asks for it. Error: nothing is begun.
pub(super) fn request(state: &mut FailoverState, node: NodeId, ticket: u64, now: Ms) -> Result<(), String> {
    if state.planned.restart.is_some() || state.planned.switchover.is_some() {
        return Err("a restart or a switchover is under way".into());
    }
    if state.primary() == Some(node) {
        return Err(format!("node {node} is the primary: switch over first"));
    }
    if !state.nodes.get(&node).is_some_and(NodeState::is_in_use) {
        return Err(format!("node {node} is out of use"));
    }
    state.planned.restart = Some(Restart { node, ticket, started_at: 0, step: Step::Awaiting { until: now + AWAIT_MS } });
    Ok(())
}

/// Takes the standby out of use once it is seen streaming. `Err`: it never was.
fn begin(
    state: &mut FailoverState,
    rules: &FailoverRules,
    (node, until): (NodeId, Ms),
    now: Ms,
    out: &mut Vec<Action>,
) -> Result<Option<(u64, Step)>, String> {
    let started_at = state.facts(node).filter(|facts| facts.silent_ms().is_some()).map(|facts| facts.started_at);
    let known = state.nodes.get_mut(&node);
    if let (Some(started_at), Some(known)) = (started_at, known.filter(|known| known.is_in_use())) {
        known.standing = Standing::Recovering;
        let limit_ms = rules.transaction_limit_ms;
        out.push(Action::Drain { node, limit_ms });
        return Ok(Some((started_at, Step::Draining { until: now + limit_ms + SLACK_MS })));
    }
    if now >= until || state.primary() == Some(node) {
        return Err(format!("node {node} does not stream from the primary"));
    }
    if let Some(node) = state.nodes.get_mut(&node) {
        node.look_soon(now, RECHECK_MS);
    }
    Ok(None)
}

/// Goes on as far as the facts allow.
pub(super) fn drive(state: &mut FailoverState, rules: &FailoverRules, now: Ms, out: &mut Vec<Action>) {
    let Some(mut of) = state.planned.restart.take() else { return };
    let id = of.node;
    let is_back = state.facts(id).is_some_and(|facts| {
        let holds = matches!(state.relation(facts), Some(Relation::Holds(_)));
        facts.started_at != of.started_at && !facts.is_primary() && facts.silent_ms().is_some() && holds
    });
    let answer = match of.step {
        Step::Awaiting { until } => match begin(state, rules, (id, until), now, out) {
            Ok(Some((started_at, step))) => {
                (of.started_at, of.step) = (started_at, step);
                None
            }
            Ok(None) => None,
            Err(why) => Some(Err(why)),
        },
        Step::Draining { until } if now >= until => {
            of.step = if rules.node(id).is_some_and(|node| node.agent == AgentPresence::There) {
                out.push(Action::RestartServer { node: id, started_at: of.started_at, limit_ms: RESTART_MS });
                Step::Restarting { until: now + RESTART_MS + SLACK_MS }
            } else {
                out.push(Action::Report(Report::AwaitsRestart { node: id }));
                Step::Returning { until: now + OPERATOR_MS }
            };
            None
        }
        Step::Returning { .. } if is_back => Some(Ok(())),
        Step::Returning { until } if now >= until => Some(Err(format!("node {id} was not started anew, or does not stream"))),
        Step::Restarting { until } if now >= until => {
            Some(Err(format!("the agent of node {id} could not start its server anew; the log tells more")))
        }
        Step::Returning { .. } => {
            if let Some(node) = state.nodes.get_mut(&id) {
                node.look_soon(now, RECHECK_MS);
            }
            None
        }
        Step::Draining { .. } | Step::Restarting { .. } => None,
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
pub(super) fn drained(state: &mut FailoverState, id: NodeId, now: Ms) {
    if let Some(Restart { node, step: Step::Draining { until }, .. }) = &mut state.planned.restart
        && *node == id
    {
        *until = now;
    }
}

/// Takes in that the agent started the server anew, or did not. A standby that has much to apply may still be starting.
pub(super) fn started(state: &mut FailoverState, id: NodeId, done: Done, now: Ms) {
    let Some(of) = state.planned.restart.as_mut().filter(|of| of.node == id) else { return };
    if let Step::Restarting { until } = &mut of.step {
        match done {
            Done::Yes => of.step = Step::Returning { until: now + RETURN_MS },
            Done::No => *until = now,
        }
    }
}
