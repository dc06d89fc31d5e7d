//! `SHOW pool_failover`: the forecast, the history, and the last decisions of the group.

use super::pgpool::at_s;
use crate::admin::listing::{ListSnapshot, Listing, listing, open, time};
use crate::runtime::shared::{SharedState, seconds};
use std::time::SystemTime;
use weir_failover::{APART_WORDS, FailoverCause, FailoverDurations, FailoverRecord, LookFailure};
use weir_group::GroupDecision;

/// A forecast, a node as it was seen, a change of the primary, or a decision of the group.
#[derive(Default)]
pub struct FailoverRow {
    event: &'static str,
    /// A group tells no times.
    at_s: Option<u64>,
    old_primary: Option<u16>,
    new_primary: Option<u16>,
    reason: String,
    /// Of a change.
    parts: Option<FailoverDurations>,
    lost: Option<String>,
}

pub const POOL_FAILOVER: Listing<FailoverRow> = listing(failover_rows).columns(&[&[
    open("event", |row| row.event.into()),
    open("time", |row| time(row.at_s)),
    open("old_primary", |row| row.old_primary.into()),
    open("new_primary", |row| row.new_primary.into()),
    open("reason", |row| (&row.reason).into()),
    open("verdict_ms", |row| row.parts.map(|parts| parts.verdict_ms).into()),
    open("pledge_ms", |row| row.parts.map(|parts| parts.pledge_ms).into()),
    open("promote_ms", |row| row.parts.map(|parts| parts.promote_ms).into()),
    open("vote_ms", |row| row.parts.map(|parts| parts.vote_ms).into()),
    open("total_ms", |row| row.parts.map(|parts| parts.total_ms()).into()),
    open("lost", |row| row.lost.as_ref().into()),
]]);

/// The forecast, the failed looks, servers promoted beside the primary, then the changes of the primary and the decisions of the group, both newest first.
fn failover_rows(of: &ListSnapshot<'_>) -> Vec<FailoverRow> {
    let (view, at_s) = (of.shared.cluster.failover.load(), Some(seconds(SystemTime::now())));
    // Where others promote, roles tell where writes go until a primary is accepted.
    let reason = match view.held.filter(|_| of.shared.cluster.view.load().primary.is_none()) {
        Some(why) => format!("writes wait: {why}; {}", view.forecast),
        None => view.forecast.clone(),
    };
    let forecast = FailoverRow { event: "forecast", at_s, old_primary: view.primary, reason, ..FailoverRow::default() };
    let looks = view.nodes.iter().filter_map(|node| Some(look(at_s, node.id, node.failure?)));
    let apart = view.nodes.iter().filter(|node| node.is_apart).map(|node| promoted_apart(at_s, node.id));
    let changes = view.records.iter().rev().map(|record| change(of.shared, record));
    std::iter::once(forecast).chain(looks).chain(apart).chain(changes).chain(group_rows(of.shared)).collect()
}

fn group_rows(shared: &SharedState) -> Vec<FailoverRow> {
    let Some(version) = shared.group.get().and_then(|seat| seat.view().version.clone()) else { return Vec::new() };
    let row = |decision: &GroupDecision| {
        let reason = format!("term {}: {}", decision.term, decision.text);
        FailoverRow { event: "group", reason, ..FailoverRow::default() }
    };
    version.state.decisions.iter().rev().map(row).collect()
}

fn look(at_s: Option<u64>, node: u16, failure: LookFailure) -> FailoverRow {
    FailoverRow { event: "look", at_s, reason: format!("node {node} {}", failure.describe()), ..FailoverRow::default() }
}

fn promoted_apart(at_s: Option<u64>, node: u16) -> FailoverRow {
    FailoverRow { event: "apart", at_s, reason: format!("node {node} is out of use: {APART_WORDS}"), ..FailoverRow::default() }
}

fn change(shared: &SharedState, record: &FailoverRecord) -> FailoverRow {
    let reason = match record.why {
        FailoverCause::Found => "found at the start".to_string(),
        FailoverCause::Died(failure) => format!("the old one {}", failure.describe()),
        FailoverCause::Demoted => "the old one is no primary any more".into(),
        FailoverCause::SwitchedOver => "switchover by an operator".into(),
        FailoverCause::Named => "named by an operator".into(),
        FailoverCause::Adopted => "decided by another proxy, or before a restart".into(),
    };
    FailoverRow {
        event: if record.old.is_some() { "failover" } else { "start" },
        at_s: Some(at_s(shared, record.at)),
        old_primary: record.old,
        new_primary: Some(record.new),
        reason,
        parts: Some(record.parts),
        // At a start nothing is replaced.
        lost: record.old.map(|_| record.loss.describe(record.at)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::group_sight::tests as group_tests;

    #[test]
    fn decisions_of_the_group_are_told_newest_first() {
        let shared = group_tests::shared(group_tests::view(2));
        let rows: Vec<Vec<String>> = group_rows(&shared).iter().map(|row| POOL_FAILOVER.texts(row)).collect();
        let told: Vec<[&str; 3]> = rows.iter().map(|row| [&*row[0], &*row[1], &*row[4]]).collect();
        assert_eq!(told, [["group", "", "term 4: newer"], ["group", "", "term 3: older"]]);
        assert!(group_rows(&crate::admin::listing::tests::shared()).is_empty());
    }
}
