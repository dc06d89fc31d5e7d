//! Asks whether a silent primary's agent answers before an attempt: an unfinished one leaves promises and standbys without a primary. The
//! attempt itself asks for proof of the end (`Phase::Ending`).

use super::action::FailoverAction;
use super::ballot::NodeId;
use super::event::{Done, Ms};
use super::operations::AgentInquiry;
use super::record::FailoverCause;
use super::rules::FailoverRules;
use crate::failover_state::FailoverState;

const LIMIT_MS: Ms = 2_000;
/// Time for which an answer is valid.
const FRESH_MS: Ms = 5_000;
/// Time between two questions to a silent agent.
const AGAIN_MS: Ms = 2_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AgentReachability {
    Answers,
    NotYet,
    /// No agent, or no answer.
    Silent,
}

/// Asks the agent of a silent primary if the last answer is too old. Not while a server starts or recovers.
pub(super) fn about(
    state: &mut FailoverState,
    rules: &FailoverRules,
    why: FailoverCause,
    now: Ms,
    out: &mut Vec<FailoverAction>,
) -> AgentReachability {
    let is_silence = matches!(why, FailoverCause::Died(failure) if failure.is_silence());
    let Some(id) = state.primary().filter(|id| is_silence && rules.has_agent(*id)) else { return AgentReachability::Silent };
    match state.inquiry {
        AgentInquiry::Asked { node } if node == id => AgentReachability::NotYet,
        AgentInquiry::Heard { node, done: Done::Yes, at } if node == id && now < at + FRESH_MS => AgentReachability::Answers,
        AgentInquiry::Heard { node, done: Done::No, at } if node == id && now < at + AGAIN_MS => AgentReachability::Silent,
        AgentInquiry::None | AgentInquiry::Asked { .. } | AgentInquiry::Heard { .. } => {
            state.inquiry = AgentInquiry::Asked { node: id };
            out.push(FailoverAction::AskAgent { node: id, limit_ms: LIMIT_MS });
            AgentReachability::NotYet
        }
    }
}

pub(super) fn failed(state: &mut FailoverState, id: NodeId, now: Ms) {
    state.inquiry = AgentInquiry::Heard { node: id, done: Done::No, at: now };
}

pub(super) fn heard(state: &mut FailoverState, id: NodeId, done: Done, now: Ms) {
    if state.inquiry == (AgentInquiry::Asked { node: id }) {
        state.inquiry = AgentInquiry::Heard { node: id, done, at: now };
    }
}
