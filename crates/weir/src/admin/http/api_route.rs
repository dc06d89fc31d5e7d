//! Where a statement would go, and why, without a session: as for a client that has just logged in.
//!
//! A session's own settings, transaction and node of reads are left out, and so are lists about applications.

use super::api_error::ApiError;
use super::dashboard::{ApiQuery, Dashboard, answer};
use crate::admin::views::view_of;
use crate::runtime::shared::SharedState;
use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};
use std::sync::Arc;
use weir_catalog::rule::RoutingRule;
use weir_catalog::{LookupUser, StatementNames};
use weir_config::redirect::ReadTarget;
use weir_config::{Config, PoolMode, limits};
use weir_failover::cluster::ClusterView;
use weir_session::catalogs::{KnownDatabase, UNKNOWN};
use weir_session::routing::read_targets::{self, ReadPreference, ReadingSession};
use weir_session::routing::{self, RouteClass, RouteSide};
use weir_session::session_state::by_sql::BySql;
use weir_session::sharding::shown_shard::{ShownShard, shown_shard};
use weir_session::shown;
use weir_session::statements::StatementCache;
use weir_sql::facts::{QualifiedName, QueryFacts, StateKind, TransactionVerb};

/// Names in a reason; more are left out.
const NAMES_SHOWN: usize = 5;

/// The client that would send the statement.
struct RouteAsker<'a> {
    database: &'a str,
    user: &'a str,
}

/// A class, with the words for the object that decides, if one does.
struct RouteVerdict {
    class: RouteClass,
    object: Option<String>,
}

pub async fn route(State(dashboard): State<Arc<Dashboard>>, query: ApiQuery) -> Result<Response, ApiError> {
    let own = |name: &str| query.must(name).map(str::to_owned);
    let (database, statement) = (own("database")?, own("statement")?);
    let user = query.get("user").unwrap_or_default().to_owned();
    dashboard.job(move |own| answer(&routed(&own.shared, &RouteAsker { database: &database, user: &user }, &statement))).await
}

fn routed(shared: &SharedState, asker: &RouteAsker<'_>, statement: &str) -> Value {
    let (config, view) = (shared.config.load_full(), shared.cluster.view.load());
    if let Some(told) = of_shard(shared, &config, asker, statement) {
        return told;
    }
    let facts = weir_sql::facts(statement.as_bytes());
    let of_text = of_text(&facts, statement, &config);
    let is_judged = of_text.class.side == RouteSide::Reader && facts.transaction == TransactionVerb::None && config.may_spread();
    let verdict = if is_judged { judged(shared, &config, asker, &facts).unwrap_or(of_text) } else { of_text };
    let RouteVerdict { class, object } = of_session(verdict, &facts, asker, &config);
    let wish = wish(&facts, asker, &config);
    let (nodes, rule) = match class.side {
        RouteSide::Primary => (view.primary.into_iter().collect(), class.rule),
        RouteSide::Reader => shown::readers(&view, wish, None, class.rule),
    };
    let object = object.or_else(|| wish.filter(|wish| wish.rule == rule).map(|wish| words_of_wish(wish, asker, &config)));
    let kind = if class.side == RouteSide::Primary { "primary" } else { "reader" };
    let numbers = numbers(&view, &nodes);
    let is_primary = class.side == RouteSide::Primary || rule == RoutingRule::ReadNoStandby;
    let reason = format!("{} because {}", destination(&numbers, is_primary), rule.because(object.as_deref()));
    json!({ "node": numbers, "rule": rule.name(), "reason": reason, "kind": kind })
}

/// The answer for a statement about sharded tables.
fn of_shard(shared: &SharedState, config: &Arc<Config>, asker: &RouteAsker<'_>, statement: &str) -> Option<Value> {
    if !config.sharding.is_on {
        return None;
    }
    let (known, user) = database_of(shared, config, asker);
    let known = known?;
    let catalog = known.catalog()?;
    let path = catalog.path(&LookupUser { user, has_role: false }, None);
    let text = StatementCache::new(config.clone(), 0, view_of).of_text(statement.as_bytes());
    let shown = shown_shard(config, &known, (&catalog, &path), &BySql::default(), (&text, statement))?;
    let rule = match shown {
        ShownShard::Engine => RoutingRule::Engine,
        ShownShard::All(_) => RoutingRule::AllShards,
        ShownShard::Shard(_) | ShownShard::ByParameters | ShownShard::Drawn | ShownShard::Refused(_) => RoutingRule::OneShard,
    };
    let because = rule.because(None);
    let (nodes, reason) = match shown {
        ShownShard::Shard(shard) => {
            let node = config.sharding.node_of(shard).map(|node| node.id);
            (node.into_iter().collect(), format!("goes to shard {shard} because {because}"))
        }
        ShownShard::ByParameters => (Vec::new(), format!("goes to the shard of its parameters because {because}")),
        ShownShard::Drawn => (Vec::new(), format!("goes to any shard, which draws the keys, because {because}")),
        ShownShard::Engine => {
            let view = shared.cluster.view.load();
            let primary = view.primary.and_then(|at| Some(view.nodes.get(at)?.id));
            (primary.into_iter().collect(), format!("goes to the engine because {because}"))
        }
        ShownShard::All(shards) => {
            let view = shared.cluster.view.load();
            let primary = view.primary.and_then(|at| Some(view.nodes.get(at)?.id));
            let node = |shard: &u16| match shard {
                0 => primary,
                shard => config.sharding.node_of(*shard).map(|node| node.id),
            };
            (shards.iter().filter_map(node).collect(), format!("goes to each shard of its table because {because}"))
        }
        ShownShard::Refused(why) => (Vec::new(), format!("is refused because {why}")),
    };
    Some(json!({ "node": nodes, "rule": rule.name(), "reason": reason, "kind": "shard" }))
}

fn numbers(view: &ClusterView, nodes: &[usize]) -> Vec<u16> {
    nodes.iter().filter_map(|at| view.nodes.get(*at)).map(|node| node.id).collect()
}

fn destination(nodes: &[u16], is_primary: bool) -> String {
    match (is_primary, nodes) {
        (true, []) => "waits for a primary, which must answer it".into(),
        (true, _) => "goes to the primary".into(),
        (false, []) => "waits for a node that takes reads".into(),
        (false, [one]) => format!("goes to node {one}"),
        (false, several) => {
            let words: Vec<String> = several.iter().map(ToString::to_string).collect();
            format!("goes to one of the nodes {}", words.join(", "))
        }
    }
}

/// The verdict on the text alone.
fn of_text(facts: &QueryFacts, statement: &str, config: &Config) -> RouteVerdict {
    if statement.len() > config.routing.statement_analysis_bytes_max {
        return RouteVerdict { class: RouteClass::primary(RoutingRule::TooLong), object: None };
    }
    let class = routing::class_of(facts, statement, config);
    RouteVerdict { class, object: object_of_text(class.rule, facts, statement, config) }
}

/// The object in a text that makes its rule apply.
fn object_of_text(rule: RoutingRule, facts: &QueryFacts, statement: &str, config: &Config) -> Option<String> {
    match rule {
        RoutingRule::Write => listed(&facts.named.written),
        RoutingRule::LocksRows => listed(&facts.named.relations).map(|names| format!("rows of {names}")),
        RoutingRule::SessionState => {
            let kinds: Vec<&str> =
                StateKind::ALL.into_iter().filter(|kind| facts.state.keeps.has(*kind)).map(StateKind::name).collect();
            (!kinds.is_empty()).then(|| format!("state ({})", kinds.join(", ")))
        }
        RoutingRule::PrimaryRoutingPattern => {
            config.routing.primary_patterns.first_match(statement).map(|pattern| format!("\"{pattern}\""))
        }
        RoutingRule::Catalog => facts.named.relations.iter().find(|name| routing::is_catalog(name)).map(ToString::to_string),
        _ => None,
    }
}

/// Names with commas between them; `None` if there is none.
fn listed(names: &[QualifiedName]) -> Option<String> {
    let shown: Vec<String> = names.iter().take(NAMES_SHOWN).map(ToString::to_string).collect();
    let more = if names.len() > NAMES_SHOWN { ", …" } else { "" };
    (!shown.is_empty()).then(|| format!("{}{more}", shown.join(", ")))
}

/// The catalog's word on a read, if it has one: any name may stand for something that writes.
fn judged(shared: &SharedState, config: &Config, asker: &RouteAsker<'_>, facts: &QueryFacts) -> Option<RouteVerdict> {
    let (known, user) = database_of(shared, config, asker);
    let catalog = known.and_then(|known| known.catalog().filter(|_| known.edition() != UNKNOWN));
    let Some(catalog) = catalog else {
        let database = config.databases.get(asker.database).map_or(asker.database, |entry| entry.database(asker.database));
        let object = format!("database \"{database}\"");
        return Some(RouteVerdict { class: RouteClass::primary(RoutingRule::CatalogUnknown), object: Some(object) });
    };
    let names = StatementNames::of(facts).unwrap_or_default();
    let path = catalog.path(&LookupUser { user, has_role: false }, None);
    let (rule, name) = catalog.accuse(&names, &path)?;
    Some(RouteVerdict { class: RouteClass::primary(rule), object: name.map(|name| name.to_string()) })
}

/// The database behind the name that clients use, and the user who would ask there.
fn database_of<'a>(shared: &SharedState, config: &'a Config, asker: &RouteAsker<'a>) -> (Option<Arc<KnownDatabase>>, &'a str) {
    let entry = config.databases.get(asker.database);
    let database = entry.map_or(asker.database, |entry| entry.database(asker.database));
    let user = entry.and_then(|entry| entry.user.as_deref()).unwrap_or(asker.user);
    (shared.catalogs.all().into_iter().find(|known| *known.name == *database), user)
}

/// Rules about a session, as far as a new one has them.
fn of_session(verdict: RouteVerdict, facts: &QueryFacts, asker: &RouteAsker<'_>, config: &Config) -> RouteVerdict {
    let primary = |rule: RoutingRule| RouteVerdict { class: RouteClass::primary(rule), object: None };
    match verdict.class.side {
        RouteSide::Primary => verdict,
        RouteSide::Reader if routing::is_held_by_comment(facts) && config.may_spread() && !config.routing.allow_comments => {
            primary(RoutingRule::Comment)
        }
        RouteSide::Reader if limits::of(config, asker.user, asker.database).mode == PoolMode::Session => {
            primary(RoutingRule::SessionPooling)
        }
        RouteSide::Reader => verdict,
    }
}

/// The node that the statement's comment wants, or the operator's lists.
fn wish(facts: &QueryFacts, asker: &RouteAsker<'_>, config: &Config) -> Option<ReadPreference> {
    let hinted = ReadTarget::of_hint(facts.hint).map(|target| ReadPreference::always(target, RoutingRule::ReadHinted));
    let session = ReadingSession { user: asker.user, database: asker.database, application: "", setting: None };
    hinted.or_else(|| read_targets::of_session(&config.routing, &session))
}

fn words_of_wish(wish: ReadPreference, asker: &RouteAsker<'_>, config: &Config) -> String {
    if wish.rule == RoutingRule::ReadRedirected {
        let is_listed = config.routing.by_database.iter().any(|entry| entry.pattern.is_match(asker.database));
        return if is_listed { "database_redirect_preference_list" } else { "user_redirect_preference_list" }.into();
    }
    match wish.read_target {
        ReadTarget::Primary => "the primary".into(),
        ReadTarget::Standby => "a standby".into(),
        ReadTarget::Node(node) => format!("node {node}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(statement: &str, config: &Config) -> (&'static str, Option<String>) {
        let RouteVerdict { class, object } = of_text(&weir_sql::facts(statement.as_bytes()), statement, config);
        (class.rule.name(), object)
    }

    #[test]
    fn what_in_a_text_decides_is_named() {
        let mut config = Config::default();
        config.routing.load_balance = true;
        config.routing.primary_patterns = weir_config::PatternSet::new(&["select 7.*".to_owned()]).unwrap();
        for (statement, rule, expected) in [
            ("insert into shop.items values (1)", "write", Some("shop.items")),
            ("select * from items, orders for update", "locks_rows", Some("rows of items, orders")),
            ("select 7 as seven", "primary_routing_pattern", Some("\"select 7.*\"")),
            ("select * from items, pg_stat_activity", "catalog", Some("pg_stat_activity")),
            ("select pg_advisory_lock(1)", "session_state", Some("state (advisory lock)")),
            ("begin", "transaction_control", None),
            ("select 1", "read", None),
        ] {
            assert_eq!(object(statement, &config), (rule, expected.map(str::to_owned)), "{statement}");
        }
        let many = format!("select * from {} for share", (0..9).map(|at| format!("t{at}")).collect::<Vec<_>>().join(", "));
        assert_eq!(object(&many, &config).1.as_deref(), Some("rows of t0, t1, t2, t3, t4, …"));
        config.routing.statement_analysis_bytes_max = 3;
        assert_eq!(object("select 1", &config), ("too_long", None));
    }

    #[test]
    fn the_place_is_told_in_words() {
        assert_eq!(destination(&[0], true), "goes to the primary");
        assert_eq!(destination(&[], true), "waits for a primary, which must answer it");
        assert_eq!(destination(&[2], false), "goes to node 2");
        assert_eq!(destination(&[1, 2], false), "goes to one of the nodes 1, 2");
    }
}
