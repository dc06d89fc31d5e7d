//! `SHOW pool_failover`: the forecast, and the history. `SHOW pool_agents`.

use super::{Rows, ViewColumn, ViewContext, open};
use crate::log::utc;
use crate::runtime::shared::{SharedState, seconds};
use std::time::Duration;
use weir_failover::{FailoverCause, FailoverRecord, LookFailure, Ms};

pub const POOL_FAILOVER: &[ViewColumn] = &[
    open("event"),
    open("time"),
    open("old_primary"),
    open("new_primary"),
    open("reason"),
    open("verdict_ms"),
    open("pledge_ms"),
    open("promote_ms"),
    open("vote_ms"),
    open("total_ms"),
    open("lost"),
];

/// The forecast, failed looks, then changes of the primary, newest first.
pub fn pool_failover(ask: &ViewContext<'_>) -> Rows {
    let shared = &ask.w.shared;
    let view = shared.cluster.failover.load();
    let mut forecast = vec![String::new(); POOL_FAILOVER.len()];
    forecast[0] = "forecast".into();
    forecast[1] = utc(seconds(std::time::SystemTime::now()));
    forecast[2] = view.primary.map(|id| id.to_string()).unwrap_or_default();
    // Where others promote, roles tell where writes go until a primary is accepted.
    forecast[4] = match view.held.filter(|_| shared.cluster.view.load().primary.is_none()) {
        Some(why) => format!("writes wait: {why}; {}", view.forecast),
        None => view.forecast.clone(),
    };
    let looks = view.nodes.iter().filter_map(|node| Some(look(node.id, node.failure?)));
    std::iter::once(forecast).chain(looks).chain(view.records.iter().rev().map(|record| row(shared, record))).collect()
}

fn look(node: u16, failure: LookFailure) -> Vec<String> {
    let mut row = vec![String::new(); POOL_FAILOVER.len()];
    row[0] = "look".into();
    row[1] = utc(seconds(std::time::SystemTime::now()));
    row[4] = format!("node {node} {}", failure.describe());
    row
}

/// Nodes with or without an agent, as the control thread last saw them.
pub fn pool_agents(shared: &SharedState) -> Rows {
    let config = shared.config.load();
    config.nodes.iter().map(|node| shared.cluster.agents.row(node.id, node.agent())).collect()
}

fn row(shared: &SharedState, record: &FailoverRecord) -> Vec<String> {
    let parts = record.parts;
    let reason = match record.why {
        FailoverCause::Found => "found at the start".to_string(),
        FailoverCause::Died(failure) => format!("the old one {}", failure.describe()),
        FailoverCause::Demoted => "the old one is no primary any more".into(),
        FailoverCause::SwitchedOver => "switchover by an operator".into(),
        FailoverCause::Named => "named by an operator".into(),
        FailoverCause::Adopted => "decided by another proxy, or before a restart".into(),
    };
    vec![
        if record.old.is_some() { "failover" } else { "start" }.into(),
        utc(seconds(wall_clock(shared, record.at))),
        record.old.map(|id| id.to_string()).unwrap_or_default(),
        record.new.to_string(),
        reason,
        parts.verdict_ms.to_string(),
        parts.pledge_ms.to_string(),
        parts.promote_ms.to_string(),
        parts.vote_ms.to_string(),
        parts.total_ms().to_string(),
        // At a start nothing is replaced.
        record.old.map(|_| record.loss.describe(record.at)).unwrap_or_default(),
    ]
}

fn wall_clock(shared: &SharedState, at: Ms) -> std::time::SystemTime {
    shared.life.started_at + Duration::from_millis(at)
}
