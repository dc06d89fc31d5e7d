//! The question if the agent of a silent primary answers, before an attempt begins: one that comes to no end leaves promises and standbys without a
//! primary behind. The proof that the primary runs no more is asked for in the attempt (`attempt`, `Phase::Ending`).

use super::action::FailoverAction;
use super::ballot::NodeId;
use super::event::{Done, Ms};
use super::operations::AgentInquiry;
use super::record::FailoverCause;
use super::rules::FailoverRules;
use crate::failover_state::FailoverState;

/// Time for the answer.
const LIMIT_MS: Ms = 2_000;
/// An answer counts so long.
const FRESH_MS: Ms = 5_000;
/// Time between two questions to one that does not answer.
const AGAIN_MS: Ms = 2_000;

/// What is known of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AgentReachability {
    Answers,
    /// It was asked.
    NotYet,
    /// There is none, or it does not answer.
    Silent,
}

/// Asks the agent of a primary that is gone for this reason, if its last word is too old. A server that starts or recovers is left to do so.
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

/// It did not do as it was told: it is asked again before the next attempt.
pub(super) fn failed(state: &mut FailoverState, id: NodeId, now: Ms) {
    state.inquiry = AgentInquiry::Heard { node: id, done: Done::No, at: now };
}

/// Takes its answer in.
pub(super) fn heard(state: &mut FailoverState, id: NodeId, done: Done, now: Ms) {
    if state.inquiry == (AgentInquiry::Asked { node: id }) {
        state.inquiry = AgentInquiry::Heard { node: id, done, at: now };
    }
}
