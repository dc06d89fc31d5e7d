//! Answers to SHOW and `PGPOOL SHOW`: lists of `views`, parameters of this session, and `SHOW route`.

use crate::checkout;
use crate::context::Context;
use crate::fault::{ErrorReport, sqlstate};
use crate::host::AnswerTable;
use crate::local::LocalStatement;
use crate::routing::read_targets::ReadPreference;
use crate::routing::{self, RouteSide, classify, read_preference};
use crate::session::Session;
use crate::sharding::shown_shard::{ShownShard, shown_shard};
use crate::statements::Statement;
use std::borrow::Cow;
use weir_catalog::rule::RoutingRule;
use weir_config::redirect::ReadTarget;
use weir_config::visibility::Viewer;
use weir_config::{self as config, ParamShowError};
use weir_failover::cluster::{ClusterView, NodeIndex};
use weir_sql::facts::{RoutingHint, TextProperty};

pub const SETTING: &[&str] = &["item", "value", "description"];

const ROUTE: &[&str] = &["goes_to", "node_id", "rule", "facts"];

pub fn columns_of(session: &Session, w: &Context, local: &LocalStatement) -> Result<Vec<Cow<'static, str>>, ErrorReport> {
    match local {
        LocalStatement::View(at) => Ok(session.host.columns(*at)),
        // Names of parameters are not secret: rights are checked for the rows.
        LocalStatement::Parameter(name) => parameter(session, w, name, &Viewer::operator()).map(|table| table.columns),
        LocalStatement::Route(_) => Ok(ROUTE.iter().map(|c| Cow::Borrowed(*c)).collect()),
        LocalStatement::Unknown(text)
        | LocalStatement::Deallocate(text)
        | LocalStatement::Set(text, _)
        | LocalStatement::Begin(text) => Err(unknown(text)),
        LocalStatement::DeallocateAll => Err(unknown("DEALLOCATE ALL")),
        LocalStatement::End(_) => Err(unknown("COMMIT")),
        LocalStatement::Savepoint(_) => Err(unknown("SAVEPOINT")),
        LocalStatement::DeleteCache(_) => Err(unknown("PGPOOL SET CACHE DELETE")),
    }
}

pub fn table_of(session: &Session, w: &Context, local: &LocalStatement) -> Result<AnswerTable, ErrorReport> {
    match local {
        LocalStatement::View(at) => Ok(session.host.table(*at, session.reads.favourite)),
        LocalStatement::Parameter(name) => parameter(session, w, name, &session.host.viewer()),
        LocalStatement::Route(text) => {
            let columns = ROUTE.iter().map(|c| Cow::Borrowed(*c)).collect();
            Ok(AnswerTable { columns, rows: vec![route_of(session, w, text)] })
        }
        LocalStatement::Unknown(text)
        | LocalStatement::Deallocate(text)
        | LocalStatement::Set(text, _)
        | LocalStatement::Begin(text) => Err(unknown(text)),
        LocalStatement::DeallocateAll => Err(unknown("DEALLOCATE ALL")),
        LocalStatement::End(_) => Err(unknown("COMMIT")),
        LocalStatement::Savepoint(_) => Err(unknown("SAVEPOINT")),
        LocalStatement::DeleteCache(_) => Err(unknown("PGPOOL SET CACHE DELETE")),
    }
}

fn unknown(text: &str) -> ErrorReport {
    ErrorReport::error(sqlstate::FEATURE_NOT_SUPPORTED, format!("not supported: {text}"))
        .hint("PGPOOL SHOW, SET and RESET of a parameter are.")
}

/// A group or ALL is a list, as in Pgpool-II's `report_config_variable`.
fn parameter(session: &Session, w: &Context, name: &str, viewer: &Viewer) -> Result<AnswerTable, ErrorReport> {
    if let Some(setting) = read_preference::SETTINGS.iter().find(|setting| setting.name == name) {
        let value = session.state.settings.get(name).unwrap_or_default().to_string();
        return Ok(AnswerTable { columns: vec![Cow::Borrowed(setting.name)], rows: vec![vec![value]] });
    }
    let config = w.config();
    let shown = config::show_one(&config, name, viewer).map_err(nothing_shown)?;
    if let [only] = shown.as_slice()
        && only.name == name
    {
        let value = session.reads.preferences.own.shown(name).unwrap_or(&only.value).to_string();
        return Ok(AnswerTable { columns: vec![Cow::Owned(only.name.clone())], rows: vec![vec![value]] });
    }
    let own = |name: &str| session.reads.preferences.own.shown(name).map(str::to_string);
    let rows = shown.into_iter().map(|s| {
        let value = own(&s.name).unwrap_or(s.value);
        vec![s.name, value, s.description.to_string()]
    });
    let rows = rows.collect();
    Ok(AnswerTable { columns: SETTING.iter().map(|c| Cow::Borrowed(*c)).collect(), rows })
}

fn nothing_shown(error: ParamShowError) -> ErrorReport {
    let text = error.to_string();
    match error {
        ParamShowError::Hidden(_) => ErrorReport {
            detail: "Only roles with privileges of the \"pg_read_all_settings\" role may examine this parameter.".into(),
            ..ErrorReport::error(sqlstate::INSUFFICIENT_PRIVILEGE, text)
        },
        ParamShowError::Unknown { .. } | ParamShowError::NoSuchNumber(_) => ErrorReport::error(sqlstate::UNDEFINED_OBJECT, text),
    }
}

/// Where a statement of this session would go outside of a transaction, and why.
fn route_of(session: &Session, w: &Context, text: &str) -> Vec<String> {
    let statement = w.statements.borrow_mut().of_text(text.as_bytes());
    if let Some(row) = shard_row(session, w, &statement, text) {
        return row;
    }
    let statement = classify::stands_for(session, w, statement);
    let class = checkout::class_now(session, w, &statement);
    let (nodes, rule) = match class.side {
        RouteSide::Primary => (w.view().primary.into_iter().collect(), class.rule),
        RouteSide::Reader => {
            let wish = read_preference::for_show(session, w, &statement);
            readers(&w.view(), wish, session.reads.favourite, class.rule)
        }
    };
    let nodes: Vec<String> = nodes.iter().map(|at| w.view().nodes[*at].id.to_string()).collect();
    let side = if class.side == RouteSide::Primary { "primary" } else { "reader" };
    vec![side.to_string(), nodes.join(","), rule.name().to_string(), facts_of(text)]
}

/// The row of a statement about sharded tables.
fn shard_row(session: &Session, w: &Context, statement: &Statement, text: &str) -> Option<Vec<String>> {
    let known = &session.account.known;
    let catalog = known.catalog().filter(|_| w.is_sharded())?;
    let path = classify::path_in(session, &catalog);
    let shown = shown_shard(&w.peek_config(), known, (&catalog, &path), &session.state.by_sql, (statement, text))?;
    let node = |shard: u16| w.peek_config().sharding.node_of(shard).map(|node| node.id.to_string()).unwrap_or_default();
    let rule = RoutingRule::OneShard.name().to_owned();
    Some(match shown {
        ShownShard::Shard(shard) => vec![format!("shard {shard}"), node(shard), rule, facts_of(text)],
        ShownShard::ByParameters => vec!["the shard of its parameters".to_owned(), String::new(), rule, facts_of(text)],
        ShownShard::Drawn => vec!["any shard, which draws the keys".to_owned(), String::new(), rule, facts_of(text)],
        ShownShard::Engine => {
            let primary = w.view().primary.map(|at| w.view().nodes[at].id.to_string()).unwrap_or_default();
            vec!["engine".to_owned(), primary, RoutingRule::Engine.name().to_owned(), facts_of(text)]
        }
        ShownShard::All(mut shards) => {
            shards.sort_unstable();
            let primary = || w.view().primary.map(|at| w.view().nodes[at].id.to_string()).unwrap_or_default();
            let nodes = shards.iter().map(|shard| if *shard == 0 { primary() } else { node(*shard) });
            let nodes = nodes.collect::<Vec<_>>().join(",");
            let shards = shards.iter().map(u16::to_string).collect::<Vec<_>>().join(",");
            vec![format!("shards {shards}"), nodes, RoutingRule::AllShards.name().to_owned(), facts_of(text)]
        }
        ShownShard::Refused(why) => vec!["refused".to_owned(), String::new(), String::new(), why],
    })
}

/// Returns the nodes that a read may go to, and the rule, if not its text's.
pub fn readers(
    view: &ClusterView,
    wish: Option<ReadPreference>,
    favourite: Option<NodeIndex>,
    of_text: RoutingRule,
) -> (Vec<NodeIndex>, RoutingRule) {
    let takes_reads: Vec<usize> = (0..view.nodes.len()).filter(|at| view.takes_reads(*at)).collect();
    let stays = favourite.filter(|favourite| routing::may_stay(view, *favourite, wish));
    let (nodes, rule) = match (wish, stays) {
        (Some(wish), None) => (wanted(view, wish, &takes_reads), wish.rule),
        (Some(wish), Some(_)) if wish.is_own() => (wanted(view, wish, &takes_reads), wish.rule),
        (_, Some(favourite)) => (vec![favourite], of_text),
        (None, None) => (Vec::new(), of_text),
    };
    match (nodes.is_empty(), takes_reads.is_empty()) {
        (false, _) => (nodes, rule),
        // No wanted node can answer now.
        (true, false) => (takes_reads, of_text),
        (true, true) => (view.primary.into_iter().collect(), RoutingRule::ReadNoStandby),
    }
}

fn wanted(view: &ClusterView, wish: ReadPreference, takes_reads: &[usize]) -> Vec<usize> {
    match wish.read_target {
        ReadTarget::Primary => view.primary.into_iter().collect(),
        ReadTarget::Standby => takes_reads.iter().copied().filter(|at| view.is_standby(*at)).collect(),
        ReadTarget::Node(node) => view.serves(node).into_iter().collect(),
    }
}

fn facts_of(text: &str) -> String {
    let facts = weir_sql::facts(text.as_bytes());
    let mut words = vec![format!("{:?}", facts.effect).to_ascii_lowercase()];
    words.extend(facts.has(TextProperty::LocksRows).then(|| "locks rows".to_string()));
    words.extend((!facts.state.keeps.is_empty()).then(|| format!("leaves {:?}", facts.state.keeps).to_ascii_lowercase()));
    words.extend((facts.hint != RoutingHint::None).then(|| format!("hint {:?}", facts.hint).to_ascii_lowercase()));
    let kinds = [
        ("relations", &facts.named.relations),
        ("functions", &facts.named.functions),
        ("operators", &facts.named.operators),
        ("casts", &facts.named.casts),
    ];
    for (kind, names) in kinds.iter().filter(|(_, names)| !names.is_empty()) {
        words.push(format!("{kind} {}", names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")));
    }
    words.join("; ")
}
