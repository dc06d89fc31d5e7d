//! Where a statement would go, and why, without a session: as for a client that has just logged in.
//!
//! A session's own settings, transaction and node of reads are left out.

use super::api_error::ApiError;
use super::dashboard::{ApiQuery, Dashboard, answer};
use crate::runtime::shared::SharedState;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use serde_json::{Value, json};
use std::sync::Arc;
use weir_catalog::rule::RoutingRule;
use weir_catalog::{LookupUser, StatementNames};
use weir_failover::cluster::ClusterView;
use weir_session::catalogs::UNKNOWN;
use weir_session::routing::{self, RouteClass, RouteSide};
use weir_sql::facts::{QueryFacts, TransactionVerb};

pub async fn route(State(dashboard): State<Arc<Dashboard>>, query: RawQuery) -> Result<Response, ApiError> {
    let query = ApiQuery::of(query);
    let own = |name: &str| query.must(name).map(str::to_owned);
    let (database, statement) = (own("database")?, own("statement")?);
    let user = query.get("user").unwrap_or_default().to_owned();
    dashboard.job(move |own| answer(&routed(&own.shared, &database, &user, &statement))).await
}

fn routed(shared: &SharedState, database: &str, user: &str, statement: &str) -> Value {
    let view = shared.cluster.view.load();
    let facts = weir_sql::facts(statement.as_bytes());
    let of_text = routing::class_of(&facts, statement, &shared.config.load());
    let readers: Vec<usize> = (0..view.nodes.len()).filter(|at| view.takes_reads(*at)).collect();
    let is_judged = of_text.side == RouteSide::Reader && facts.transaction == TransactionVerb::None && !readers.is_empty();
    let class = if is_judged { judged(shared, (database, user), &facts, of_text) } else { of_text };
    let (nodes, rule) = match class.side {
        RouteSide::Primary => (view.primary.into_iter().collect(), class.rule),
        RouteSide::Reader if readers.is_empty() => (view.primary.into_iter().collect(), RoutingRule::ReadNoStandby),
        RouteSide::Reader => (readers, class.rule),
    };
    let kind = if class.side == RouteSide::Primary { "primary" } else { "reader" };
    json!({ "node": numbers(&view, &nodes), "rule": rule.name(), "reason": reason(rule, &facts), "kind": kind })
}

fn numbers(view: &ClusterView, nodes: &[usize]) -> Vec<u16> {
    nodes.iter().filter_map(|at| view.nodes.get(*at)).map(|node| node.id).collect()
}

/// The catalog's word on a read: any name in it may stand for something that writes.
fn judged(shared: &SharedState, (database, user): (&str, &str), facts: &QueryFacts, of_text: RouteClass) -> RouteClass {
    let unknown = RouteClass::primary(RoutingRule::CatalogUnknown);
    let Some(known) = shared.catalogs.all().into_iter().find(|known| *known.name == *database) else { return unknown };
    let Some(catalog) = known.catalog().filter(|_| known.edition() != UNKNOWN) else { return unknown };
    let names = StatementNames::of(facts).unwrap_or_default();
    let path = catalog.path(&LookupUser { user, has_role: false }, None);
    catalog.judge(&names, &path).map_or(of_text, RouteClass::primary)
}

fn reason(rule: RoutingRule, facts: &QueryFacts) -> String {
    let effect = format!("{:?}", facts.effect).to_ascii_lowercase();
    format!("the statement {effect}; rule {}", rule.name().replace('_', " "))
}
