//! Restart of one standby without a failed statement: the node is out of use meanwhile.
//!
//! Its agent needs one order, and goes on if this Weir dies. Without an agent `started_at` shows the operator's restart. Nothing is on
//! disk: a Weir that dies leaves no node out of use.

use super::action::{FailoverAction, FailoverReport};
use super::ballot::NodeId;
use super::duty;
use super::event::{Done, Ms};
use super::health::RECHECK_MS;
use super::history::WalRelation;
use super::operations::{RestartStep, StandbyRestart};
use super::rules::{AgentPresence, FailoverRules};
use crate::failover_state::FailoverState;
use crate::node_state::{NodeStanding, NodeState};

const AWAIT_MS: Ms = 30_000;
const SLACK_MS: Ms = 2_000;
/// Half of it is for an orderly stop.
const RESTART_MS: Ms = 120_000;
const OPERATOR_MS: Ms = 1_800_000;
const RETURN_MS: Ms = 300_000;

/// On error nothing is begun.
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
    state.planned.restart =
        Some(StandbyRestart { node, ticket, started_at: 0, step: RestartStep::Awaiting { until: now + AWAIT_MS } });
    Ok(())
}

/// Takes the standby out of use once it streams. `Err`: it never did.
fn begin(
    state: &mut FailoverState,
    rules: &FailoverRules,
    (node, until): (NodeId, Ms),
    now: Ms,
    out: &mut Vec<FailoverAction>,
) -> Result<Option<(u64, RestartStep)>, String> {
    let started_at = state.facts(node).filter(|facts| facts.silent_ms().is_some()).map(|facts| facts.started_at);
    let known = state.nodes.get_mut(&node);
    if let (Some(started_at), Some(known)) = (started_at, known.filter(|known| known.is_in_use())) {
        known.standing = NodeStanding::Recovering;
        let limit_ms = rules.transaction_limit_ms;
        out.push(FailoverAction::Drain { node, limit_ms });
        return Ok(Some((started_at, RestartStep::Draining { until: now + limit_ms + SLACK_MS })));
    }
    if now >= until || state.primary() == Some(node) {
        return Err(format!("node {node} does not stream from the primary"));
    }
    if let Some(node) = state.nodes.get_mut(&node) {
        node.look_soon(now, RECHECK_MS);
    }
    Ok(None)
}

pub(super) fn drive(state: &mut FailoverState, rules: &FailoverRules, now: Ms, out: &mut Vec<FailoverAction>) {
    let Some(mut of) = state.planned.restart.take() else { return };
    let id = of.node;
    let is_back = state.facts(id).is_some_and(|facts| {
        let holds = matches!(state.relation(id, facts), Some(WalRelation::Holds(_)));
        facts.started_at != of.started_at && !facts.is_primary() && facts.silent_ms().is_some() && holds
    });
    let answer = match of.step {
        RestartStep::Awaiting { until } => match begin(state, rules, (id, until), now, out) {
            Ok(Some((started_at, step))) => {
                (of.started_at, of.step) = (started_at, step);
                None
            }
            Ok(None) => None,
            Err(why) => Some(Err(why)),
        },
        RestartStep::Draining { until } if now >= until => {
            of.step = if rules.node(id).is_some_and(|node| node.agent == AgentPresence::There) {
                out.push(FailoverAction::RestartServer { node: id, started_at: of.started_at, limit_ms: RESTART_MS });
                RestartStep::Restarting { until: now + RESTART_MS + SLACK_MS }
            } else {
                out.push(FailoverAction::Report(FailoverReport::AwaitsRestart { node: id }));
                RestartStep::Returning { until: now + OPERATOR_MS }
            };
            None
        }
        RestartStep::Returning { .. } if is_back => Some(Ok(())),
        RestartStep::Returning { until } if now >= until => {
            Some(Err(format!("node {id} was not started anew, or does not stream")))
        }
        RestartStep::Restarting { until } if now >= until => {
            Some(Err(format!("the agent of node {id} could not start its server anew; the log tells more")))
        }
        RestartStep::Returning { .. } => {
            if let Some(node) = state.nodes.get_mut(&id) {
                node.look_soon(now, RECHECK_MS);
            }
            None
        }
        RestartStep::Draining { .. } | RestartStep::Restarting { .. } => None,
    };
    match answer {
        None => state.planned.restart = Some(of),
        Some(answer) => {
            // Even after a failure the node is used as far as its health allows.
            if state.nodes.get(&id).is_some_and(|node| node.standing == NodeStanding::Recovering) {
                duty::attach(state, rules, id, out);
            }
            out.push(FailoverAction::Reply { ticket: of.ticket, answer });
        }
    }
}

/// Statements have ended, or the limit is over.
pub(super) fn drained(state: &mut FailoverState, id: NodeId, now: Ms) {
    if let Some(StandbyRestart { node, step: RestartStep::Draining { until }, .. }) = &mut state.planned.restart
        && *node == id
    {
        *until = now;
    }
}

/// A standby with much WAL to apply may still be starting.
pub(super) fn started(state: &mut FailoverState, id: NodeId, done: Done, now: Ms) {
    let Some(of) = state.planned.restart.as_mut().filter(|of| of.node == id) else { return };
    if let RestartStep::Restarting { until } = &mut of.step {
        match done {
            Done::Yes => of.step = RestartStep::Returning { until: now + RETURN_MS },
            Done::No => *until = now,
        }
    }
}
