//! Which server a statement goes to, and why.
//!
//! A text is classed once (`class_of`), what it names once for each catalog and search_path (`Catalog::judge`); the class meets the
//! session's state at every use (`choose`). Tables of rules are walked, first answer wins; the rule is what logs and counters show.

use crate::causal::Nodes;
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
    /// Nodes that show all the session must see.
    pub fit: Nodes,
    /// Nodes that will soon, so that a wait for them is worth it.
    pub hopeful: Nodes,
    /// The node that answered its last read.
    pub here: Option<NodeIndex>,
    /// The session rather takes any node that is fit than wait for the one the dice say: it has moved not long ago.
    pub stays: bool,
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
    /// A standby will soon have replayed what the session must see: wait for it.
    Replay,
}

struct SessionRule {
    rule: Rule,
    decide: fn(&Ask<'_>) -> Option<Target>,
}

/// Rules for a statement any reader may answer, in order. The others go to the primary under their own rule's name.
const SESSION_RULES: &[SessionRule] = &[
    SessionRule { rule: Rule::ReadFavourite, decide: favourite },
    SessionRule { rule: Rule::ReadByWeight, decide: by_weight },
    SessionRule { rule: Rule::ReadNotReplayed, decide: not_replayed },
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
    if !ask.view.takes_reads(node) {
        return None;
    }
    reach(ask, node)
}

/// The node if it shows what the session must see, or a wait for it.
fn reach(ask: &Ask<'_>, node: NodeIndex) -> Option<Target> {
    if ask.fit.has(node) {
        return Some(Target::Node(node));
    }
    ask.hopeful.has(node).then_some(Target::Replay)
}

fn by_weight(ask: &Ask<'_>) -> Option<Target> {
    let node = pick_reader(ask.view, ask.dice, |at| ask.fit.has(at) || ask.hopeful.has(at))?;
    if ask.fit.has(node) || !ask.stays {
        return reach(ask, node);
    }
    let here = ask.here.filter(|&here| ask.fit.has(here) && ask.view.takes_reads(here));
    // Who goes to the primary for want of a standby sees news there, which no standby shows yet: he would never come back.
    let another = || pick_reader(ask.view, ask.dice, |at| ask.fit.has(at) && ask.view.primary != Some(at));
    here.or_else(another).map_or_else(|| reach(ask, node), |node| Some(Target::Node(node)))
}

/// No standby that takes reads shows what the session must see.
fn not_replayed(ask: &Ask<'_>) -> Option<Target> {
    let is_behind = |at: usize| ask.view.takes_reads(at) && !ask.fit.has(at);
    (0..ask.view.nodes.len()).any(is_behind).then(|| primary(ask.view))
}

fn primary(view: &ClusterView) -> Target {
    view.primary.map_or(Target::NoPrimary, Target::Node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Health, NodeView, Role};

    /// A primary and two standbys with these weights.
    fn view(weights: [f64; 3]) -> ClusterView {
        let node = |at: usize| NodeView {
            id: at as u16,
            hostname: "h".into(),
            port: 1,
            weight: weights[at],
            health: Health::Up(if at == 0 { Role::Primary } else { Role::Standby }),
            lag_bytes: None,
            replication: None,
            changed_at_s: 0,
        };
        ClusterView { generation: 1, nodes: (0..3).map(node).collect(), primary: Some(0) }
    }

    fn nodes(list: &[usize]) -> Nodes {
        let mut nodes = Nodes::NONE;
        list.iter().for_each(|at| nodes.add(*at));
        nodes
    }

    const READ: Class = Class { side: Side::Reader, rule: Rule::Read };
    /// Dice that say the second standby.
    const SECOND: u32 = u32::MAX;

    /// Where a read goes: the weights, what is fit, what is hopeful, where the session is, whether it stays.
    fn goes(weights: [f64; 3], fit: &[usize], hopeful: &[usize], here: Option<usize>, stays: bool) -> (Target, &'static str) {
        let view = view(weights);
        let (fit, hopeful) = (nodes(fit), nodes(hopeful));
        let ask =
            Ask { class: READ, view: &view, favourite: None, statement_level: true, dice: SECOND, fit, hopeful, here, stays };
        let route = choose(&ask);
        (route.target, route.rule.name())
    }

    #[test]
    fn a_read_goes_to_a_standby_that_shows_what_its_session_must_see() {
        const BOTH: [f64; 3] = [0.0, 0.5, 0.5];
        assert_eq!(goes(BOTH, &[0, 1, 2], &[], None, true), (Target::Node(2), "read_by_weight"));
        assert_eq!(goes(BOTH, &[0, 1], &[], None, true), (Target::Node(1), "read_by_weight"));
        assert_eq!(goes(BOTH, &[0], &[], Some(1), true), (Target::Node(0), "read_not_replayed"));
        assert_eq!(goes([1.0, 0.0, 0.0], &[0], &[], None, true), (Target::Node(0), "read_by_weight"));
        assert_eq!(goes([0.0, 0.0, 0.0], &[0], &[], None, true), (Target::Node(0), "read_no_standby"));
    }

    #[test]
    fn a_read_waits_only_if_no_other_standby_is_fit_or_its_session_stayed_long() {
        const BOTH: [f64; 3] = [0.0, 0.5, 0.5];
        assert_eq!(goes(BOTH, &[0], &[1, 2], None, true).0, Target::Replay);
        assert_eq!(goes(BOTH, &[0, 1], &[2], Some(1), true).0, Target::Node(1));
        assert_eq!(goes(BOTH, &[0, 1], &[2], None, true).0, Target::Node(1));
        assert_eq!(goes(BOTH, &[0, 1], &[2], Some(1), false).0, Target::Replay);
    }

    #[test]
    fn a_primary_with_weight_does_not_keep_who_came_for_want_of_a_standby() {
        const ALL: [f64; 3] = [0.2, 0.4, 0.4];
        assert_eq!(goes(ALL, &[0], &[1, 2], Some(1), true).0, Target::Replay);
        assert_eq!(goes(ALL, &[0], &[1, 2], Some(0), true).0, Target::Node(0), "but whom the dice have sent");
        assert_eq!(goes(ALL, &[0], &[], Some(1), true), (Target::Node(0), "read_by_weight"));
    }

    #[test]
    fn a_favourite_is_waited_for() {
        let view = view([0.0, 0.5, 0.5]);
        let ask = Ask {
            class: READ,
            view: &view,
            favourite: Some(1),
            statement_level: false,
            dice: SECOND,
            fit: nodes(&[0, 2]),
            hopeful: nodes(&[1]),
            here: Some(1),
            stays: true,
        };
        assert_eq!(choose(&ask), Route { target: Target::Replay, rule: Rule::ReadFavourite });
        let ask = Ask { hopeful: Nodes::NONE, ..ask };
        assert_eq!(choose(&ask), Route { target: Target::Node(2), rule: Rule::ReadByWeight });
    }
}
