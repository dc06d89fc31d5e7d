//! Health, failover and failback of nodes, as one pure function.
//!
//! [`step`] takes the [`State`], one [`Event`] (a fact, and nothing else) and the time, and gives [`Action`]s. A driver obeys them in their
//! order. Data stands below (`ballot`, `event`, `action`, `operations`, `node`, `state`), behaviour above it (`promises`, `eligible`, `inquiry`, `rejoin`,
//! `duty`, `accept`, `switchover`, `restart`, `attempt`), and `step` above all: no file uses one above it. How several Weirs agree, what is promised and what is not: `docs/design/failover.md`.

mod accept;
mod action;
mod another;
mod attempt;
mod ballot;
mod choose;
mod configured;
pub mod conninfo;
mod durable;
mod duty;
mod eligible;
pub mod escapes;
mod event;
mod forecast;
mod health;
mod history;
mod holders;
mod inquiry;
mod node;
mod numbers;
pub mod operations;
pub mod pace;
mod promises;
mod record;
pub mod rejoin;
mod restart;
mod rules;
mod state;
pub mod status_file;
mod step;
mod switchover;
mod sync;
#[cfg(test)]
mod tests;
mod unrelated;
mod view;
pub mod walk;

pub use action::{Action, Command, Held, Lost, Report, StopMode, Transactions};
pub use ballot::{Ballot, Epoch, Mark, NodeId, Purpose, Vote, hearing, majority};
pub use choose::Refusal;
pub use durable::Durable;
pub use event::{
    Beside, Done, End, Event, Facts, Failure, Follower, Found, LinkEnd, Ms, Pledge, Received, Recovering, Recovery, Repointed,
    Request, Stream,
};
pub use forecast::{Forecast, Outlook, Proof, forecast};
pub use health::{Health, Stats, Suspicion, Verdict};
pub use history::{History, Lsn, Relation, Source, parse_lsn, show_lsn};
pub use holders::{Grip, Holder, Holders, Rank};
pub use node::{AtAddress, Look, Node, Seen, Standing};
pub use numbers::Numbers;
pub use operations::{Aim, Asked, Attempt, Phase, Planned, Restart, Stage, Start, Step, StopOrder, Switchover};
pub use record::{Loss, Parts, RECORDS_MAX, Record, Why};
#[cfg(test)]
pub(crate) use rules::tests::rules as tests_rules;
pub use rules::{
    Address, Agent, Commands, Company, Failback, FalsePrimary, Flag, HealthRules, Mode, NodeRules, OnLinkEnd, Quorum, Returns,
    Rule, Rules, Servers,
};
pub use state::{Decider, Gate, State};
pub use step::step;
pub use sync::{Acknowledgers, SyncRule, may_acknowledge, parse as parse_sync_names};
pub use view::{FailoverView, NodeFailover};
