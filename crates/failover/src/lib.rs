//! Health, failover and failback of nodes, as one pure function.
//!
//! [`step`] takes the [`FailoverState`], a [`FailoverEvent`] and the time, and returns [`FailoverAction`]s to obey in order. Data is below (`ballot`, `event`,
//! `action`, `operations`, `node_state`, `failover_state`), behaviour above (`promises`, `eligible`, `agent_inquiry`, `rejoin`, `duty`,
//! `accept`, `switchover`, `restart`, `attempt`), then `step`; no file uses a higher one. Protocol: `docs/design/failover.md`.

mod accept;
mod action;
mod agent_inquiry;
mod another;
mod attempt;
mod ballot;
mod choose;
pub mod cluster;
pub mod commit_outcome;
mod configured;
pub mod conninfo;
mod durable;
mod duty;
mod eligible;
pub mod escapes;
mod event;
mod failover_state;
mod forecast;
mod group_part;
mod health;
mod history;
mod holders;
pub mod lag;
pub mod looks;
mod node_state;
mod numbers;
pub mod operations;
pub mod pace;
pub mod prepared_name;
mod promises;
mod promoted_apart;
mod record;
pub mod rejoin;
pub mod rerun_rules;
mod restart;
pub mod rolling_restart;
mod rules;
pub mod status_file;
mod step;
pub mod streams;
mod switchover;
mod sync;
#[cfg(test)]
mod tests;
mod unrelated;
mod view;

pub use crate::failover_state::{FailoverState, WriteDecider, WriteTarget};
pub use crate::node_state::{AtAddress, LookSchedule, NodeStanding, NodeState, TimedFacts};
pub use action::{
    FailoverAction, FailoverCommandKind, FailoverReport, NodeDownReason, OpenTransactionFate, PrimaryStopMode, WriteHoldReason,
};
pub use ballot::{Ballot, BallotPurpose, Epoch, Mark, NodeId, Vote, hearing, majority};
pub use choose::AttemptRefusal;
pub use durable::DurableState;
pub use event::{
    Done, FailoverEvent, LookFailure, Ms, NodeCopyStage, OperatorRequest, PledgeReply, ProbeResult, ReceivedWal, RecoveryState,
    ServerConnEnd, ServerFacts, ServerStopResult, SightCount, SignOfLife, StreamingFollower, VoteAnswer, WalReceiverState,
};
pub use forecast::{DeathProof, FailoverForecast, FailoverOutlook, FailoverProspect, forecast};
pub use group_part::alone_misses_primary;
pub use health::{HealthCheckStats, HealthVerdict, LookHistory, NodeSuspicion};
pub use history::{HistorySource, Lsn, TimelineHistory, WalRelation, parse_lsn, show_lsn};
pub use holders::{HolderRank, MarkHolder, MarkHolders, MarkOwnership};
pub use numbers::PromotionNumbers;
pub use operations::{
    AskedVoters, AttemptAim, AttemptPhase, FailoverAttempt, OldPrimaryStart, OperatorPlans, RestartStep, StandbyRestart,
    StopOrder, Switchover, SwitchoverStage,
};
pub use promoted_apart::APART_WORDS;
pub use record::{CommitLoss, FailoverCause, FailoverDurations, FailoverRecord, RECORDS_MAX};
pub use rules::{
    AgentPresence, BackendFlag, ConnEndPolicy, DeathConsensus, FailbackMode, FailoverCommands, FailoverMode, FailoverRules,
    FalsePrimary, GroupRole, HealthRules, NodeLocation, NodeRules, OtherPromoters, QuorumSize, RejoinInitiator, SafetyRule,
    ServerRelation, SuccessorFinder,
};
pub use step::step;
pub use sync::{CommitAcknowledgers, SyncRule, may_acknowledge, parse as parse_sync_names};
pub use view::{FailoverView, NodeFailover};
