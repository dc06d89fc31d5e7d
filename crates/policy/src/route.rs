//! Which server a statement goes to, and why.
//!
//! A text is classed once (`class_of`); the class meets the session's state at every use (`choose`). Both walk a table of rules,
//! first answer wins; the rule's name is what logs and counters show.

use crate::builtin;
use crate::cluster::{ClusterView, NodeIndex, pick_reader};
use crate::config::Config;
use weir_sql::facts::{Begin, Effect, Facts, Isolation, Name, Transaction};

/// Where a text may run, whatever the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    pub side: Side,
    pub rule: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Any node with weight gives the answer.
    Reader,
    Primary,
}

struct TextRule {
    name: &'static str,
    decide: fn(&TextAsk<'_>) -> Option<Side>,
}

struct TextAsk<'a> {
    facts: &'a Facts,
    text: &'a str,
    config: &'a Config,
}

/// Rules about the text alone, in order.
const TEXT_RULES: &[TextRule] = &[
    TextRule { name: "load_balance_off", decide: |ask| primary_if(!ask.config.routing.load_balance) },
    TextRule { name: "not_parsed", decide: |ask| primary_if(ask.facts.effect == Effect::Refused) },
    TextRule { name: "begin_read_only", decide: begin_read_only },
    TextRule { name: "transaction_control", decide: |ask| primary_if(ask.facts.transaction != Transaction::None) },
    TextRule { name: "write", decide: |ask| primary_if(ask.facts.effect == Effect::Writes) },
    TextRule { name: "not_known_to_read", decide: |ask| primary_if(ask.facts.effect != Effect::Reads) },
    TextRule { name: "locks_rows", decide: |ask| primary_if(ask.facts.locks_rows) },
    TextRule { name: "session_state", decide: |ask| primary_if(!ask.facts.keeps.is_empty()) },
    TextRule { name: "primary_routing_pattern", decide: |ask| primary_if(matches_pattern(ask)) },
    TextRule { name: "catalog", decide: |ask| primary_if(ask.facts.relations.iter().any(is_catalog)) },
    TextRule { name: "function", decide: |ask| primary_if(ask.facts.functions.iter().any(|f| !only_reads(f, ask.config))) },
    TextRule { name: "operator", decide: |ask| primary_if(ask.facts.operators.iter().any(|op| !is_known_operator(op))) },
    TextRule { name: "read", decide: |_| Some(Side::Reader) },
];

/// Rule of a text no rule answers; never seen, since the last one answers all.
const NO_RULE: Class = Class { side: Side::Primary, rule: "none" };

/// Classes a text by its facts and the configuration.
pub fn class_of(facts: &Facts, text: &str, config: &Config) -> Class {
    let ask = TextAsk { facts, text, config };
    for rule in TEXT_RULES {
        if let Some(side) = (rule.decide)(&ask) {
            return Class { side, rule: rule.name };
        }
    }
    NO_RULE
}

/// Names of all rules, for counters and documentation.
pub fn rule_names() -> impl Iterator<Item = &'static str> {
    TEXT_RULES.iter().map(|rule| rule.name).chain(SESSION_RULES.iter().map(|rule| rule.name))
}

fn primary_if(condition: bool) -> Option<Side> {
    condition.then_some(Side::Primary)
}

/// A transaction that says it only reads runs on a standby as a whole. Not a SERIALIZABLE one: hot standby has none.
fn begin_read_only(ask: &TextAsk<'_>) -> Option<Side> {
    match ask.facts.transaction {
        Transaction::Begin(Begin { read_only: true, read_write: false, isolation, .. })
            if ask.facts.statements == 1 && isolation != Isolation::Serializable =>
        {
            Some(Side::Reader)
        }
        _ => None,
    }
}

fn matches_pattern(ask: &TextAsk<'_>) -> bool {
    ask.config.routing.primary_patterns.iter().any(|pattern| pattern.is_match(ask.text))
}

/// System catalogs tell of the server asked (`pg_stat_activity`) and are read by tools that compare: the primary's are meant.
fn is_catalog(relation: &Name) -> bool {
    match relation.schema.as_str() {
        "" => relation.name.starts_with("pg_"),
        schema => schema.starts_with("pg_") || schema == "information_schema",
    }
}

/// Without a list, only PostgreSQL's own functions that are known to read are trusted.
fn only_reads(function: &Name, config: &Config) -> bool {
    let routing = &config.routing;
    let is_listed = |list: &[regex::Regex]| list.iter().any(|pattern| pattern.is_match(&function.name));
    if !routing.read_only_functions.is_empty() {
        return is_listed(&routing.read_only_functions) || is_builtin(function);
    }
    if !routing.write_functions.is_empty() {
        return !is_listed(&routing.write_functions) && is_builtin(function);
    }
    is_builtin(function)
}

fn is_builtin(function: &Name) -> bool {
    matches!(function.schema.as_str(), "" | "pg_catalog") && builtin::may_run_on_standby(&function.name)
}

fn is_known_operator(operator: &Name) -> bool {
    matches!(operator.schema.as_str(), "" | "pg_catalog") && builtin::is_standard_operator(&operator.name)
}

/// What is known when a statement must be given a node and the session holds none.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    pub class: Class,
    pub view: &'a ClusterView,
    /// The node this session's reads go to, if it has one already (`statement_level_load_balance = off`).
    pub favourite: Option<NodeIndex>,
    pub statement_level: bool,
    pub dice: u32,
}

/// A node, and the rule that chose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    pub target: Target,
    pub rule: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Node(NodeIndex),
    /// A primary is needed and none is known now: wait for one.
    NoPrimary,
}

struct SessionRule {
    name: &'static str,
    decide: fn(&Ask<'_>) -> Option<Target>,
}

/// Rules for a statement any reader may answer, in order. The others go to the primary under their own rule's name.
const SESSION_RULES: &[SessionRule] = &[
    SessionRule { name: "read_favourite", decide: favourite },
    SessionRule { name: "read_by_weight", decide: by_weight },
    SessionRule { name: "read_no_standby", decide: |ask| Some(primary(ask.view)) },
];

/// Chooses the node for a statement of a session that holds no link.
pub fn choose(ask: &Ask<'_>) -> Route {
    if ask.class.side == Side::Reader {
        for rule in SESSION_RULES {
            if let Some(target) = (rule.decide)(ask) {
                return Route { target, rule: rule.name };
            }
        }
    }
    Route { target: primary(ask.view), rule: ask.class.rule }
}

fn favourite(ask: &Ask<'_>) -> Option<Target> {
    let node = ask.favourite.filter(|_| !ask.statement_level)?;
    let takes_reads = ask.view.nodes.get(node).is_some_and(|n| n.weight > 0.0);
    (takes_reads && (ask.view.is_standby(node) || ask.view.primary == Some(node))).then_some(Target::Node(node))
}

fn by_weight(ask: &Ask<'_>) -> Option<Target> {
    pick_reader(ask.view, ask.dice).map(Target::Node)
}

fn primary(view: &ClusterView) -> Target {
    view.primary.map_or(Target::NoPrimary, Target::Node)
}
