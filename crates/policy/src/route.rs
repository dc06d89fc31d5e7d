//! Which server a statement goes to, and why.
//!
//! A text is classed once (`class_of`), what it names once for each catalog and search_path (`Catalog::judge`); the class meets the
//! session's state at every use (`choose`). Tables of rules are walked, first answer wins; the rule is what logs and counters show.

use crate::cluster::{ClusterView, NodeIndex, pick_reader};
use crate::config::Config;
use crate::rule::Rule;
use weir_sql::facts::{Begin, Effect, Facts, Isolation, Name, Transaction};

/// Where a text may run, whatever the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    pub side: Side,
    pub rule: Rule,
}

impl Class {
    /// For the primary, by this rule.
    pub const fn primary(rule: Rule) -> Class {
        Class { side: Side::Primary, rule }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Any node with weight gives the answer.
    Reader,
    Primary,
}

struct TextRule {
    rule: Rule,
    decide: fn(&TextAsk<'_>) -> Option<Side>,
}

struct TextAsk<'a> {
    facts: &'a Facts,
    text: &'a str,
    config: &'a Config,
}

/// Rules about the text alone, in order. What it names is the catalog's to judge, if it is a read so far.
const TEXT_RULES: &[TextRule] = &[
    TextRule { rule: Rule::LoadBalanceOff, decide: |ask| primary_if(!ask.config.routing.load_balance) },
    TextRule { rule: Rule::NotParsed, decide: |ask| primary_if(ask.facts.effect == Effect::Refused) },
    TextRule { rule: Rule::BeginReadOnly, decide: begin_read_only },
    TextRule { rule: Rule::TransactionControl, decide: |ask| primary_if(ask.facts.transaction != Transaction::None) },
    TextRule { rule: Rule::Write, decide: |ask| primary_if(ask.facts.effect == Effect::Writes) },
    TextRule { rule: Rule::NotKnownToRead, decide: |ask| primary_if(ask.facts.effect != Effect::Reads) },
    TextRule { rule: Rule::LocksRows, decide: |ask| primary_if(ask.facts.locks_rows) },
    TextRule { rule: Rule::SessionState, decide: |ask| primary_if(!ask.facts.keeps.is_empty()) },
    TextRule { rule: Rule::PrimaryRoutingPattern, decide: |ask| primary_if(matches_pattern(ask)) },
    TextRule { rule: Rule::Catalog, decide: |ask| primary_if(ask.facts.relations.iter().any(is_catalog)) },
    TextRule { rule: Rule::Read, decide: |_| Some(Side::Reader) },
];

/// Rule of a text no rule answers; never seen, since the last one answers all.
const NO_RULE: Class = Class::primary(Rule::NotKnownToRead);

/// Classes a text by its facts and the configuration.
pub fn class_of(facts: &Facts, text: &str, config: &Config) -> Class {
    let ask = TextAsk { facts, text, config };
    for rule in TEXT_RULES {
        if let Some(side) = (rule.decide)(&ask) {
            return Class { side, rule: rule.rule };
        }
    }
    NO_RULE
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
    pub rule: Rule,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Node(NodeIndex),
    /// A primary is needed and none is known now: wait for one.
    NoPrimary,
}

struct SessionRule {
    rule: Rule,
    decide: fn(&Ask<'_>) -> Option<Target>,
}

/// Rules for a statement any reader may answer, in order. The others go to the primary under their own rule's name.
const SESSION_RULES: &[SessionRule] = &[
    SessionRule { rule: Rule::ReadFavourite, decide: favourite },
    SessionRule { rule: Rule::ReadByWeight, decide: by_weight },
    SessionRule { rule: Rule::ReadNoStandby, decide: |ask| Some(primary(ask.view)) },
];

/// Chooses the node for a statement of a session that holds no link.
pub fn choose(ask: &Ask<'_>) -> Route {
    if ask.class.side == Side::Reader {
        for rule in SESSION_RULES {
            if let Some(target) = (rule.decide)(ask) {
                return Route { target, rule: rule.rule };
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
