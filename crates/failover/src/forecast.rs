//! `SHOW pool_failover`: the effect of the primary's death now, and the reason.

use std::collections::BTreeSet;

use super::ballot::NodeId;
use super::choose::{self, AttemptRefusal};
use super::eligible;
use super::event::ServerFacts;
use super::record::CommitLoss;
use super::rules::{BackendFlag, FailoverMode, FailoverRules, GroupRole};
use crate::failover_state::FailoverState;
use crate::node_state::NodeState;

#[derive(Clone, Debug, PartialEq)]
pub struct FailoverForecast {
    pub primary: Option<NodeId>,
    pub outlook: FailoverOutlook,
}

#[derive(Clone, Debug, PartialEq)]
pub enum FailoverOutlook {
    NoPrimary(NoPrimaryReason),
    Promotes {
        node: NodeId,
        loss: CommitLoss,
        proof: DeathProof,
    },
    Runs {
        node: Option<NodeId>,
    },
    Waits {
        why: AttemptRefusal,
    },
    /// This Weir follows the leader of its group.
    LeaderDecides,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPrimaryReason {
    Looks,
    /// No answering node is a primary.
    Answers,
    /// Several primaries, and not exactly one has followers.
    OnlyOne,
    /// Another Weir may know a newer primary: over half of the standbys must follow this one.
    Followers,
}

/// Required proof of the primary's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeathProof {
    None,
    Refused,
    /// Refused, or ended by the agent.
    RefusedOrEnded,
}

/// The forecast in one word, for whoever must tell good from bad.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailoverProspect {
    /// Nothing is known yet.
    #[default]
    Unknown,
    NoPrimary,
    Replaced,
    /// The operator wants it so, or somebody else decides.
    NotByWeir,
    WritesWait,
}

/// Assumes that all standbys answer which answered their last look.
pub fn forecast(state: &FailoverState, rules: &FailoverRules) -> FailoverForecast {
    let primary = state.primary();
    FailoverForecast {
        primary,
        outlook: primary.map_or_else(|| FailoverOutlook::NoPrimary(missing(state)), |id| outlook(state, rules, id)),
    }
}

fn missing(state: &FailoverState) -> NoPrimaryReason {
    let is_primary = |node: &&NodeState| node.facts().is_some_and(ServerFacts::is_primary);
    match state.nodes.values().filter(is_primary).count() {
        _ if state.nodes.values().any(|node| node.looked_at.is_none()) => NoPrimaryReason::Looks,
        0 => NoPrimaryReason::Answers,
        1 => NoPrimaryReason::Followers,
        _ => NoPrimaryReason::OnlyOne,
    }
}

fn outlook(state: &FailoverState, rules: &FailoverRules, primary: NodeId) -> FailoverOutlook {
    if rules.group == GroupRole::Follows {
        return FailoverOutlook::LeaderDecides;
    }
    let flag = rules.node(primary).map_or(BackendFlag::None, |node| node.flag);
    let standbys = || {
        let answers = |(id, node): (&NodeId, &'_ NodeState)| Some((*id, node.facts().cloned()?));
        state.nodes.iter().filter_map(answers).filter(|(id, _)| *id != primary).collect::<Vec<(NodeId, ServerFacts)>>()
    };
    let facts = standbys();
    let candidates = eligible::candidates(state, rules, facts.iter().map(|(id, facts)| (*id, facts)));
    let why = match (flag, rules.mode) {
        (BackendFlag::DisallowToFailover, _) => Some(AttemptRefusal::DisallowToFailover),
        (BackendFlag::AlwaysPrimary, _) => Some(AttemptRefusal::AlwaysPrimary),
        (BackendFlag::None, FailoverMode::Follow | FailoverMode::Off) => Some(AttemptRefusal::NotByWeir),
        (BackendFlag::None, FailoverMode::Builtin) => state.is_unstorable().then_some(AttemptRefusal::NotStored),
        (BackendFlag::None, FailoverMode::Command) => None,
    };
    let candidates = match (why, candidates) {
        (Some(why), _) | (None, Err(why)) => return FailoverOutlook::Waits { why },
        (None, Ok(candidates)) => candidates,
    };
    let sync = state.sync(rules);
    if rules.mode == FailoverMode::Command {
        let chosen = choose::choose(rules, &choose::SyncStandbyKnowledge::Asynchronous, &candidates, &[]);
        return FailoverOutlook::Runs { node: chosen.ok().map(|choice| choice.node) };
    }
    let Some(epoch) = state.epoch() else { return FailoverOutlook::NoPrimary(missing(state)) };
    let quorum = state.quorum(rules);
    let voters = rules.electors(&epoch, quorum);
    let (needed, asked) = (rules.needed(voters.len(), quorum), facts.iter().map(|(id, _)| *id).collect::<BTreeSet<NodeId>>());
    let pledged = voters.intersection(&asked).count();
    if pledged < needed {
        return FailoverOutlook::Waits { why: AttemptRefusal::TooFewPledged { pledged, needed, of: voters.len() } };
    }
    match choose::choose(rules, &sync, &candidates, state.samples()) {
        Err(why) => FailoverOutlook::Waits { why },
        Ok(choice) => {
            let loss = if sync.is_covered_by(&asked) { CommitLoss::Nothing } else { state.loss_at(choice.position) };
            let proof = match (eligible::could_be_silent(state, rules), rules.has_agent(primary)) {
                (true, _) => DeathProof::None,
                (false, true) => DeathProof::RefusedOrEnded,
                (false, false) => DeathProof::Refused,
            };
            FailoverOutlook::Promotes { node: choice.node, loss, proof }
        }
    }
}

impl FailoverForecast {
    pub fn prospect(&self) -> FailoverProspect {
        match &self.outlook {
            FailoverOutlook::NoPrimary(NoPrimaryReason::Looks) => FailoverProspect::Unknown,
            FailoverOutlook::NoPrimary(NoPrimaryReason::Answers | NoPrimaryReason::OnlyOne | NoPrimaryReason::Followers) => {
                FailoverProspect::NoPrimary
            }
            FailoverOutlook::Promotes { .. } | FailoverOutlook::Runs { node: Some(_) } => FailoverProspect::Replaced,
            FailoverOutlook::Waits { why: AttemptRefusal::NotByWeir } | FailoverOutlook::LeaderDecides => {
                FailoverProspect::NotByWeir
            }
            FailoverOutlook::Waits { .. } | FailoverOutlook::Runs { node: None } => FailoverProspect::WritesWait,
        }
    }

    pub fn describe(&self, now: super::event::Ms) -> String {
        match &self.outlook {
            FailoverOutlook::NoPrimary(missing) => format!("there is no primary: {}", missing.describe()),
            FailoverOutlook::Promotes { node, loss, proof } => {
                let condition = match proof {
                    DeathProof::None => "",
                    DeathProof::Refused => ", if the old one refuses connections",
                    DeathProof::RefusedOrEnded => ", if the old one refuses connections or its agent answers",
                };
                format!("node {node} would be promoted{condition}; lost: {}", loss.describe_roughly(now))
            }
            FailoverOutlook::Runs { node: Some(node) } => format!("failover_command would be run for node {node}"),
            FailoverOutlook::Runs { node: None } => "failover_command would be run without a node to promote".into(),
            FailoverOutlook::LeaderDecides => "the leader of the group decides: it shows what would be done".into(),
            FailoverOutlook::Waits { why } => format!("writes would wait: {}", why.describe()),
        }
    }
}

impl NoPrimaryReason {
    fn describe(self) -> &'static str {
        match self {
            NoPrimaryReason::Looks => "not all nodes were looked at yet",
            NoPrimaryReason::Answers => "no node that answers is one",
            NoPrimaryReason::OnlyOne => {
                "several nodes are primaries, and standbys do not tell which of them counts; pcp_promote_node names it"
            }
            NoPrimaryReason::Followers => {
                "a node is one, but more than half of the standbys must follow it, since another Weir may know of a newer one; \
                 if this is the only Weir set failover_alone = on, or name it by pcp_promote_node"
            }
        }
    }
}
