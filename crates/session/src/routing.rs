//! Chooses the server of a statement, and the reason.
//!
//! A text is classed once (`class_of`), its names once per catalog and search_path (`Catalog::judge`); every use adds the session's state
//! (`choose`). The first matching rule wins; logs and counters show it.

pub mod classify;
pub mod loads;
pub mod own_parameters;
pub mod pick;
pub mod read_preference;
pub mod read_targets;
pub mod suspects;

use crate::causal::standbys::NodeSet;
use crate::routing::pick::pick_reader;
use crate::routing::read_targets::ReadPreference;
use weir_catalog::rule::RoutingRule;
use weir_config::Config;
use weir_config::redirect::ReadTarget;
use weir_failover::cluster::{ClusterView, NodeIndex};
use weir_sql::facts::{
    AccessMode, BeginOptions, IsolationLevel, QualifiedName, QueryEffect, QueryFacts, RoutingHint, TextProperty, TransactionVerb,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteClass {
    pub side: RouteSide,
    pub rule: RoutingRule,
}

impl RouteClass {
    pub const fn primary(rule: RoutingRule) -> RouteClass {
        RouteClass { side: RouteSide::Primary, rule }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteSide {
    /// Any node with weight.
    Reader,
    Primary,
}

struct TextRule {
    rule: RoutingRule,
    decide: fn(&TextAsk<'_>) -> Option<RouteSide>,
}

struct TextAsk<'a> {
    facts: &'a QueryFacts,
    text: &'a str,
    config: &'a Config,
}

/// In order. The catalog then judges the names of a read.
const TEXT_RULES: &[TextRule] = &[
    TextRule { rule: RoutingRule::LoadBalanceOff, decide: |ask| primary_if(!ask.config.routing.load_balance) },
    TextRule { rule: RoutingRule::NotParsed, decide: |ask| primary_if(ask.facts.effect == QueryEffect::Refused) },
    TextRule { rule: RoutingRule::BeginReadOnly, decide: begin_read_only },
    TextRule { rule: RoutingRule::Hint, decide: |ask| primary_if(begins(ask) && ask.facts.hint == RoutingHint::Primary) },
    TextRule { rule: RoutingRule::TransactionControl, decide: |ask| primary_if(ask.facts.transaction != TransactionVerb::None) },
    TextRule { rule: RoutingRule::Write, decide: |ask| primary_if(ask.facts.effect == QueryEffect::Writes) },
    TextRule { rule: RoutingRule::LocksRows, decide: |ask| primary_if(ask.facts.has(TextProperty::LocksRows)) },
    TextRule { rule: RoutingRule::NotKnownToRead, decide: |ask| primary_if(ask.facts.effect != QueryEffect::Reads) },
    TextRule { rule: RoutingRule::SessionState, decide: |ask| primary_if(!ask.facts.state.keeps.is_empty()) },
    TextRule { rule: RoutingRule::Hint, decide: |ask| primary_if(ask.facts.hint == RoutingHint::Primary) },
    TextRule { rule: RoutingRule::PrimaryRoutingPattern, decide: |ask| primary_if(matches_pattern(ask)) },
    TextRule { rule: RoutingRule::Catalog, decide: |ask| primary_if(ask.facts.named.relations.iter().any(is_catalog)) },
    TextRule { rule: RoutingRule::Read, decide: |_| Some(RouteSide::Reader) },
];

/// Unreachable, since the last rule answers all.
const NO_RULE: RouteClass = RouteClass::primary(RoutingRule::NotKnownToRead);

pub fn class_of(facts: &QueryFacts, text: &str, config: &Config) -> RouteClass {
    let ask = TextAsk { facts, text, config };
    for rule in TEXT_RULES {
        if let Some(side) = (rule.decide)(&ask) {
            return RouteClass { side, rule: rule.rule };
        }
    }
    NO_RULE
}

fn primary_if(condition: bool) -> Option<RouteSide> {
    condition.then_some(RouteSide::Primary)
}

fn begins(ask: &TextAsk<'_>) -> bool {
    matches!(ask.facts.transaction, TransactionVerb::Begin(_)) && ask.facts.statements == 1
}

/// SERIALIZABLE is not possible in hot standby.
fn begin_read_only(ask: &TextAsk<'_>) -> Option<RouteSide> {
    match ask.facts.transaction {
        TransactionVerb::Begin(BeginOptions { access: AccessMode::ReadOnly, isolation, .. })
            if ask.facts.statements == 1
                && isolation != IsolationLevel::Serializable
                && ask.facts.hint != RoutingHint::Primary =>
        {
            Some(RouteSide::Reader)
        }
        _ => None,
    }
}

fn matches_pattern(ask: &TextAsk<'_>) -> bool {
    ask.config.routing.primary_patterns.is_match(ask.text)
}

/// System catalogs describe the server asked (`pg_stat_activity`): the primary's are meant.
pub fn is_catalog(relation: &QualifiedName) -> bool {
    match relation.schema.as_str() {
        "" => relation.name.starts_with("pg_"),
        schema => schema.starts_with("pg_") || schema == "information_schema",
    }
}

/// True if `allow_sql_comments = off` keeps the text on the primary. A node hint does not count.
pub fn is_held_by_comment(facts: &QueryFacts) -> bool {
    facts.has(TextProperty::Commented) && matches!(facts.hint, RoutingHint::None | RoutingHint::Unknown)
}

/// Routing of a statement without a server connection.
#[derive(Clone, Copy, Debug)]
pub struct RouteRequest<'a> {
    pub class: RouteClass,
    pub view: &'a ClusterView,
    /// The node of the session's reads so far (`statement_level_load_balance = off`).
    pub favourite: Option<NodeIndex>,
    pub statement_level: bool,
    pub wish: Option<ReadPreference>,
    /// Shares by node (`pick::shares`); empty: weights.
    pub shares: &'a [f64],
    /// Reads leave a lagging standby for the least lagging one, not the primary.
    pub prefers_lower_delay: bool,
    pub dice: u32,
    /// Nodes that show all the session must see.
    pub fit: NodeSet,
    /// Nodes that soon will.
    pub hopeful: NodeSet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteDecision {
    pub target: RouteTarget,
    pub rule: RoutingRule,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteTarget {
    Node(NodeIndex),
    /// No primary is known: wait for one.
    NoPrimary,
    /// Wait for a standby to catch up.
    Replay,
}

struct SessionRule {
    rule: RoutingRule,
    decide: fn(&RouteRequest<'_>) -> Option<RouteTarget>,
}

/// Rules for reads, in order. Other statements keep their own rule.
const SESSION_RULES: &[SessionRule] = &[
    SessionRule { rule: RoutingRule::ReadHinted, decide: |ask| wished(ask, RoutingRule::ReadHinted) },
    SessionRule { rule: RoutingRule::ReadBySetting, decide: |ask| wished(ask, RoutingRule::ReadBySetting) },
    SessionRule { rule: RoutingRule::ReadFavourite, decide: favourite },
    SessionRule { rule: RoutingRule::ReadRedirected, decide: |ask| wished(ask, RoutingRule::ReadRedirected) },
    SessionRule { rule: RoutingRule::ReadByWeight, decide: |ask| spread(ask, |_| true) },
    SessionRule { rule: RoutingRule::ReadNotReplayed, decide: not_replayed },
    SessionRule { rule: RoutingRule::ReadNoStandby, decide: |ask| Some(primary(ask.view)) },
];

pub fn choose(ask: &RouteRequest<'_>) -> RouteDecision {
    if ask.class.side == RouteSide::Reader {
        for rule in SESSION_RULES {
            if let Some(target) = (rule.decide)(ask) {
                let route = RouteDecision { target, rule: rule.rule };
                return relieve(ask, route).unwrap_or(route);
            }
        }
    }
    RouteDecision { target: primary(ask.view), rule: ask.class.rule }
}

/// Another route for a read whose node lags too much, unless a hint or the session named it.
fn relieve(ask: &RouteRequest<'_>, route: RouteDecision) -> Option<RouteDecision> {
    let RouteTarget::Node(node) = route.target else { return None };
    if !ask.view.nodes[node].lags || matches!(route.rule, RoutingRule::ReadHinted | RoutingRule::ReadBySetting) {
        return None;
    }
    let may = |at: &usize| ask.view.is_standby(*at) && ask.view.takes_reads(*at) && !ask.view.nodes[*at].lags && ask.fit.has(*at);
    let lag = |at: &usize| (ask.view.nodes[*at].lag_us, ask.view.nodes[*at].lag_bytes);
    let least = || (0..ask.view.nodes.len()).filter(may).min_by_key(lag);
    let another = if ask.prefers_lower_delay { least() } else { None };
    Some(RouteDecision { target: another.map_or_else(|| primary(ask.view), RouteTarget::Node), rule: RoutingRule::ReadDelayed })
}

#[inline]
fn wished(ask: &RouteRequest<'_>, rule: RoutingRule) -> Option<RouteTarget> {
    let wish = ask.wish.filter(|wish| wish.rule == rule)?;
    // Other bits: the node must not depend on the share.
    let counts = wish.share == u32::MAX || ask.dice.wrapping_mul(OTHER_BITS).swap_bytes() < wish.share;
    match (wish.read_target, counts) {
        (ReadTarget::Primary, true) if wish.is_own() => Some(primary(ask.view)),
        (ReadTarget::Primary, true) => ask.view.primary.and_then(|at| reach(ask, at)),
        (ReadTarget::Standby, true) => spread(ask, |at| ask.view.is_standby(at)),
        (ReadTarget::Node(node), true) => {
            let at = ask.view.serves(node)?;
            // A lagging node is kept even if not fit: `relieve` passes its reads on as configured, weights would not.
            let is_relieved = rule == RoutingRule::ReadRedirected && ask.view.nodes[at].lags;
            if is_relieved { Some(RouteTarget::Node(at)) } else { reach(ask, at) }
        }
        // The others have the rest. Source: Pgpool-II `select_load_balancing_node`.
        (ReadTarget::Standby, false) => ask.view.primary.and_then(|at| reach(ask, at)),
        (ReadTarget::Primary, false) => spread(ask, |at| ask.view.primary != Some(at)),
        (ReadTarget::Node(node), false) => spread(ask, |at| ask.view.nodes[at].id != node),
    }
}

/// The golden ratio (Knuth's multiplicative hashing).
const OTHER_BITS: u32 = 0x9E37_79B1;

fn favourite(ask: &RouteRequest<'_>) -> Option<RouteTarget> {
    let node = ask.favourite.filter(|_| !ask.statement_level)?;
    if !may_stay(ask.view, node, ask.wish) {
        return None;
    }
    reach(ask, node)
}

/// True if a node takes reads or is wanted.
pub fn may_stay(view: &ClusterView, node: NodeIndex, wish: Option<ReadPreference>) -> bool {
    let is_wanted = || match wish?.read_target {
        ReadTarget::Primary => view.primary,
        ReadTarget::Node(wanted) => view.serves(wanted),
        ReadTarget::Standby => None,
    };
    view.takes_reads(node) || is_wanted() == Some(node)
}

/// True if the session's reads stay on the chosen node (`statement_level_load_balance = off`). A node that only replaces a lagging or not
/// yet fit one does not count: the other will catch up.
pub fn becomes_favourite(ask: &RouteRequest<'_>, rule: RoutingRule) -> bool {
    let is_late = |at: NodeIndex| !ask.fit.has(at);
    let redirected = ask.wish.filter(|wish| wish.rule == RoutingRule::ReadRedirected);
    match rule {
        RoutingRule::ReadHinted | RoutingRule::ReadBySetting | RoutingRule::ReadDelayed | RoutingRule::ReadNotReplayed => false,
        RoutingRule::ReadByWeight => !redirected.is_some_and(|wish| match wish.read_target {
            ReadTarget::Node(node) => ask.view.serves(node).is_some_and(is_late),
            ReadTarget::Primary => ask.view.primary.is_some_and(is_late),
            ReadTarget::Standby => (0..ask.view.nodes.len()).any(|at| ask.view.is_standby(at) && is_late(at)),
        }),
        _ => true,
    }
}

/// Returns the node if it is fit, or a wait for it.
fn reach(ask: &RouteRequest<'_>, node: NodeIndex) -> Option<RouteTarget> {
    if ask.fit.has(node) {
        return Some(RouteTarget::Node(node));
    }
    ask.hopeful.has(node).then_some(RouteTarget::Replay)
}

fn spread(ask: &RouteRequest<'_>, may: impl Fn(NodeIndex) -> bool) -> Option<RouteTarget> {
    // An awaited node keeps its share; else all reads would end on the primary, nearly always fit.
    let pick = |waits: bool| {
        pick_reader(ask.view, ask.shares, ask.dice, |at| (ask.fit.has(at) || waits && ask.hopeful.has(at)) && may(at))
    };
    // Without a primary no later position is learnt: a fit standby goes on.
    let node = if ask.view.primary.is_none() { pick(false).or_else(|| pick(true)) } else { pick(true) }?;
    reach(ask, node)
}

fn not_replayed(ask: &RouteRequest<'_>) -> Option<RouteTarget> {
    let is_behind = |at: usize| ask.view.takes_reads(at) && !ask.fit.has(at);
    (0..ask.view.nodes.len()).any(is_behind).then(|| primary(ask.view))
}

fn primary(view: &ClusterView) -> RouteTarget {
    view.primary.map_or(RouteTarget::NoPrimary, RouteTarget::Node)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use weir_failover::cluster::{NodeHealth, NodeView, ReplicationRole};

    #[test]
    fn reads_stay_at_a_node_that_takes_reads_or_is_the_one_that_is_wanted() {
        use RoutingRule::ReadBySetting as Own;
        let view = view([0.0, 1.0, 0.0]);
        let wish = |target| Some(ReadPreference::always(target, Own));
        for (wish, stays) in [
            (None, [false, true, false]),
            (wish(ReadTarget::Primary), [true, true, false]),
            (wish(ReadTarget::Standby), [false, true, false]),
            (wish(ReadTarget::Node(1)), [false, true, false]),
            (wish(ReadTarget::Node(2)), [false, true, true]),
            (wish(ReadTarget::Node(9)), [false, true, false]),
        ] {
            assert_eq!([0, 1, 2].map(|node| may_stay(&view, node, wish)), stays, "{wish:?}");
        }
    }

    pub(crate) const PRIMARY: NodeHealth = NodeHealth::Up(ReplicationRole::Primary);
    pub(crate) const STANDBY: NodeHealth = NodeHealth::Up(ReplicationRole::Standby);

    /// A primary and two standbys with these weights.
    fn view(weights: [f64; 3]) -> ClusterView {
        view_of(&[(weights[0], PRIMARY), (weights[1], STANDBY), (weights[2], STANDBY)])
    }

    /// Nodes with these weights, where those without a role are down.
    pub(crate) fn view_of(nodes: &[(f64, NodeHealth)]) -> ClusterView {
        let node = |(at, &(weight, health)): (usize, &(f64, NodeHealth))| NodeView {
            id: at as u16,
            hostname: "h".into(),
            port: 1,
            weight,
            health,
            usage: weir_failover::cluster::NodeUsage::In,
            valid_from: 0,
            cause: None,
            is_far: false,
            lag_bytes: None,
            lag_us: None,
            lags: false,
            replication: None,
            timeline: None,
            changed_at_s: 0,
        };
        ClusterView {
            generation: 1,
            nodes: nodes.iter().enumerate().map(node).collect(),
            primary: Some(0),
            primary_since: 1,
            gate: weir_failover::cluster::WriteGate::ByRoles,
            horizon: None,
            held: None,
        }
    }

    fn nodes(list: &[usize]) -> NodeSet {
        let mut nodes = NodeSet::NONE;
        list.iter().for_each(|at| nodes.add(*at));
        nodes
    }

    const READ: RouteClass = RouteClass { side: RouteSide::Reader, rule: RoutingRule::Read };
    /// Dice that say the second standby.
    const SECOND: u32 = u32::MAX;

    /// A read that any node may answer.
    fn asked(view: &ClusterView) -> RouteRequest<'_> {
        RouteRequest {
            class: READ,
            view,
            favourite: None,
            statement_level: true,
            wish: None,
            shares: &[],
            prefers_lower_delay: false,
            dice: SECOND,
            fit: NodeSet::ALL,
            hopeful: NodeSet::NONE,
        }
    }

    #[test]
    fn without_a_primary_the_standby_that_shows_all_answers_though_another_one_is_chosen() {
        let mut view = view([0.0, 1.0, 1.0]);
        let (fit, hopeful) = (nodes(&[1]), nodes(&[2]));
        let target = |view: &ClusterView, fit| choose(&RouteRequest { fit, hopeful, ..asked(view) }).target;
        assert_eq!(target(&view, fit), RouteTarget::Replay);
        (view.nodes[0].health, view.primary) = (NodeHealth::Down, None);
        assert_eq!(target(&view, fit), RouteTarget::Node(1));
        assert_eq!(target(&view, NodeSet::NONE), RouteTarget::Replay);
    }

    /// The target of a read: by the weights, the fit nodes, the hopeful nodes.
    fn goes(weights: [f64; 3], fit: &[usize], hopeful: &[usize]) -> (RouteTarget, &'static str) {
        let view = view(weights);
        let (fit, hopeful) = (nodes(fit), nodes(hopeful));
        let route = choose(&RouteRequest { fit, hopeful, ..asked(&view) });
        (route.target, route.rule.name())
    }

    #[test]
    fn a_read_goes_to_a_standby_that_shows_what_its_session_must_see() {
        const BOTH: [f64; 3] = [0.0, 0.5, 0.5];
        assert_eq!(goes(BOTH, &[0, 1, 2], &[]), (RouteTarget::Node(2), "read_by_weight"));
        assert_eq!(goes(BOTH, &[0, 1], &[]), (RouteTarget::Node(1), "read_by_weight"));
        assert_eq!(goes(BOTH, &[0], &[]), (RouteTarget::Node(0), "read_not_replayed"));
        assert_eq!(goes([1.0, 0.0, 0.0], &[0], &[]), (RouteTarget::Node(0), "read_by_weight"));
        assert_eq!(goes([0.0, 0.0, 0.0], &[0], &[]), (RouteTarget::Node(0), "read_no_standby"));
    }

    #[test]
    fn a_read_waits_for_the_node_of_its_dice_so_that_weights_are_kept() {
        const BOTH: [f64; 3] = [0.0, 0.5, 0.5];
        const ALL: [f64; 3] = [0.2, 0.4, 0.4];
        assert_eq!(goes(BOTH, &[0], &[1, 2]).0, RouteTarget::Replay);
        assert_eq!(goes(BOTH, &[0, 1], &[2]).0, RouteTarget::Replay);
        assert_eq!(goes(BOTH, &[0, 2], &[1]).0, RouteTarget::Node(2));
        assert_eq!(goes(ALL, &[0], &[1, 2]).0, RouteTarget::Replay, "the primary does not take the standbys' share");
        assert_eq!(goes(ALL, &[0], &[]), (RouteTarget::Node(0), "read_by_weight"));
    }

    #[test]
    fn a_primary_that_does_not_show_what_a_standby_showed_gets_no_read_that_another_node_can_answer() {
        const ALL: [f64; 3] = [0.8, 0.1, 0.1];
        let view = view(ALL);
        let ask = RouteRequest { dice: 0, fit: nodes(&[2]), ..asked(&view) };
        assert_eq!(choose(&ask), RouteDecision { target: RouteTarget::Node(2), rule: RoutingRule::ReadByWeight });
        assert_eq!(choose(&RouteRequest { hopeful: nodes(&[0]), ..ask }).target, RouteTarget::Replay);
        let wish = |rule| Some(ReadPreference::always(ReadTarget::Primary, rule));
        assert_eq!(
            choose(&RouteRequest { wish: wish(RoutingRule::ReadRedirected), ..ask }).target,
            RouteTarget::Node(2),
            "a list only prefers"
        );
        assert_eq!(
            choose(&RouteRequest { wish: wish(RoutingRule::ReadHinted), ..ask }).target,
            RouteTarget::Node(0),
            "a hint is obeyed"
        );
        assert_eq!(
            choose(&RouteRequest { fit: NodeSet::NONE, ..ask }),
            RouteDecision { target: RouteTarget::Node(0), rule: RoutingRule::ReadNotReplayed }
        );
    }

    #[test]
    fn a_favourite_is_waited_for() {
        let view = view([0.0, 0.5, 0.5]);
        let (fit, hopeful) = (nodes(&[0, 2]), nodes(&[1]));
        let ask = RouteRequest { favourite: Some(1), statement_level: false, fit, hopeful, ..asked(&view) };
        assert_eq!(choose(&ask), RouteDecision { target: RouteTarget::Replay, rule: RoutingRule::ReadFavourite });
        let ask = RouteRequest { hopeful: NodeSet::NONE, ..ask };
        assert_eq!(choose(&ask), RouteDecision { target: RouteTarget::Node(2), rule: RoutingRule::ReadByWeight });
    }
    #[test]
    fn a_session_stays_with_no_node_that_answers_for_one_that_is_late() {
        let view = view([0.0, 0.5, 0.5]);
        let redirected = |read_target| Some(ReadPreference::always(read_target, RoutingRule::ReadRedirected));
        let to_second = redirected(ReadTarget::Node(2));
        for (fit, wish, goes, stays, why) in [
            (nodes(&[0, 1, 2]), None, 2, true, "any may answer"),
            (nodes(&[0, 1, 2]), to_second, 2, true, "it is the wanted one"),
            (nodes(&[0, 1]), to_second, 1, false, "the wanted one has not replayed enough"),
            (nodes(&[0, 1]), redirected(ReadTarget::Node(7)), 1, true, "there is no such node"),
            (nodes(&[0]), redirected(ReadTarget::Standby), 0, false, "no standby has replayed enough"),
            (nodes(&[0]), None, 0, false, "the primary answers for them"),
            (
                nodes(&[0, 1]),
                Some(ReadPreference::always(ReadTarget::Node(1), RoutingRule::ReadHinted)),
                1,
                false,
                "for one read",
            ),
        ] {
            let ask = RouteRequest { fit, wish, statement_level: false, ..asked(&view) };
            let RouteDecision { target, rule } = choose(&ask);
            assert_eq!((target, becomes_favourite(&ask, rule)), (RouteTarget::Node(goes), stays), "{why}");
        }
    }

    /// Where a read goes with a wish, on nodes of these weights.
    fn wish_goes(weights: [f64; 3], read_target: ReadTarget, rule: RoutingRule) -> (RouteTarget, &'static str) {
        let view = view(weights);
        let route = choose(&RouteRequest { wish: Some(ReadPreference::always(read_target, rule)), ..asked(&view) });
        (route.target, route.rule.name())
    }

    #[test]
    fn a_read_goes_where_it_is_wanted() {
        use RoutingRule::{ReadBySetting, ReadHinted, ReadRedirected};
        const BOTH: [f64; 3] = [0.0, 0.5, 0.5];
        assert_eq!(wish_goes(BOTH, ReadTarget::Node(1), ReadHinted), (RouteTarget::Node(1), "read_hinted"));
        assert_eq!(wish_goes(BOTH, ReadTarget::Node(0), ReadHinted), (RouteTarget::Node(0), "read_hinted"), "without weight");
        assert_eq!(wish_goes([1.0, 0.0, 0.0], ReadTarget::Node(1), ReadRedirected), (RouteTarget::Node(1), "read_redirected"));
        assert_eq!(wish_goes([0.8, 0.1, 0.1], ReadTarget::Standby, ReadBySetting), (RouteTarget::Node(2), "read_by_setting"));
        assert_eq!(wish_goes(BOTH, ReadTarget::Primary, ReadBySetting), (RouteTarget::Node(0), "read_by_setting"));
        assert_eq!(
            wish_goes(BOTH, ReadTarget::Node(7), ReadHinted),
            (RouteTarget::Node(2), "read_by_weight"),
            "there is no such node"
        );
        assert_eq!(
            wish_goes([1.0, 0.0, 0.0], ReadTarget::Standby, ReadHinted),
            (RouteTarget::Node(0), "read_by_weight"),
            "none takes reads"
        );
    }

    #[test]
    fn a_wish_does_not_reach_a_node_that_is_down_or_shows_too_little() {
        let mut view = view([0.0, 0.5, 0.5]);
        let wish = Some(ReadPreference::always(ReadTarget::Node(1), RoutingRule::ReadHinted));
        let ask = RouteRequest { wish, fit: nodes(&[0, 2]), ..asked(&view) };
        assert_eq!(choose(&ask), RouteDecision { target: RouteTarget::Node(2), rule: RoutingRule::ReadByWeight });
        let ask = RouteRequest { hopeful: nodes(&[1]), ..ask };
        assert_eq!(choose(&ask), RouteDecision { target: RouteTarget::Replay, rule: RoutingRule::ReadHinted });
        view.nodes[1].health = NodeHealth::Down;
        let ask = RouteRequest { wish, ..asked(&view) };
        assert_eq!(choose(&ask), RouteDecision { target: RouteTarget::Node(2), rule: RoutingRule::ReadByWeight });
        view.primary = None;
        let wish = |rule| Some(ReadPreference::always(ReadTarget::Primary, rule));
        let ask = RouteRequest { wish: wish(RoutingRule::ReadRedirected), ..asked(&view) };
        assert_eq!(choose(&ask).target, RouteTarget::Node(2), "a list only prefers");
        let ask = RouteRequest { wish: wish(RoutingRule::ReadBySetting), ..asked(&view) };
        assert_eq!(choose(&ask), RouteDecision { target: RouteTarget::NoPrimary, rule: RoutingRule::ReadBySetting });
    }

    #[test]
    fn what_a_list_does_not_take_goes_to_the_others() {
        let view = view([0.2, 0.4, 0.4]);
        let counts = |read_target, share: f64| {
            let wish = Some(ReadPreference {
                read_target,
                share: (share * f64::from(u32::MAX)) as u32,
                rule: RoutingRule::ReadRedirected,
            });
            let mut counts = [0u32; 3];
            for dice in (0..u32::MAX).step_by((1 << 20) + 12_345) {
                match choose(&RouteRequest { wish, dice, ..asked(&view) }).target {
                    RouteTarget::Node(at) => counts[at] += 1,
                    other => panic!("{other:?}"),
                }
            }
            counts.map(|count| (f64::from(count) / 40.5).round() as u32)
        };
        let check = |read_target, share, expected: [u32; 3]| {
            let counted = counts(read_target, share);
            let is_near = counted.iter().zip(expected).all(|(one, other)| one.abs_diff(other) <= 3);
            assert!(is_near, "{read_target:?} {share}: {counted:?}, expected {expected:?}");
        };
        check(ReadTarget::Node(1), 0.3, [23, 30, 47]);
        check(ReadTarget::Primary, 0.6, [60, 20, 20]);
        check(ReadTarget::Standby, 0.3, [70, 15, 15]);
        check(ReadTarget::Standby, 1.0, [0, 50, 50]);
        check(ReadTarget::Node(2), 0.0, [33, 67, 0]);
    }

    #[test]
    fn a_favourite_gives_way_to_a_wish_of_the_session_only() {
        let view = view([0.0, 0.5, 0.5]);
        let goes = |rule| {
            let wish = Some(ReadPreference::always(ReadTarget::Node(2), rule));
            let route = choose(&RouteRequest { wish, favourite: Some(1), statement_level: false, ..asked(&view) });
            (route.target, route.rule.name())
        };
        assert_eq!(goes(RoutingRule::ReadHinted), (RouteTarget::Node(2), "read_hinted"));
        assert_eq!(goes(RoutingRule::ReadRedirected), (RouteTarget::Node(1), "read_favourite"), "it was thrown before");
    }

    #[test]
    fn reads_of_a_standby_that_lags_go_to_the_primary_or_to_who_lags_least() {
        let mut view = view([0.0, 0.5, 0.5]);
        (view.nodes[1].lag_bytes, view.nodes[2].lag_bytes, view.nodes[2].lags) = (Some(10), Some(900), true);
        assert_eq!(choose(&asked(&view)), RouteDecision { target: RouteTarget::Node(0), rule: RoutingRule::ReadDelayed });
        let ask = RouteRequest { prefers_lower_delay: true, ..asked(&view) };
        assert_eq!(choose(&ask), RouteDecision { target: RouteTarget::Node(1), rule: RoutingRule::ReadDelayed });
        assert_eq!(
            choose(&RouteRequest { fit: nodes(&[0, 2]), ..ask }).target,
            RouteTarget::Node(0),
            "the other does not show enough"
        );
        assert_eq!(
            choose(&RouteRequest { dice: 0, ..ask }),
            RouteDecision { target: RouteTarget::Node(1), rule: RoutingRule::ReadByWeight }
        );
        let wish = Some(ReadPreference::always(ReadTarget::Node(2), RoutingRule::ReadHinted));
        assert_eq!(choose(&RouteRequest { wish, ..ask }).target, RouteTarget::Node(2), "who names it knows");
        let wish = Some(ReadPreference::always(ReadTarget::Node(2), RoutingRule::ReadRedirected));
        assert_eq!(
            choose(&RouteRequest { wish, ..ask }),
            RouteDecision { target: RouteTarget::Node(1), rule: RoutingRule::ReadDelayed }
        );
        // With causal reads a node that lags shows too little as well.
        view.nodes[0].weight = 0.5;
        let behind = RouteRequest { wish, fit: nodes(&[0, 1]), ..asked(&view) };
        for dice in [0, SECOND] {
            let prefers = RouteRequest { prefers_lower_delay: true, dice, ..behind };
            assert_eq!(choose(&prefers), RouteDecision { target: RouteTarget::Node(1), rule: RoutingRule::ReadDelayed });
            assert_eq!(
                choose(&RouteRequest { dice, ..behind }),
                RouteDecision { target: RouteTarget::Node(0), rule: RoutingRule::ReadDelayed }
            );
        }
        view.nodes[1].lags = true;
        let ask = RouteRequest { prefers_lower_delay: true, ..asked(&view) };
        assert_eq!(choose(&ask), RouteDecision { target: RouteTarget::Node(0), rule: RoutingRule::ReadDelayed }, "all lag");
    }

    #[test]
    fn a_transaction_that_only_reads_goes_where_it_may() {
        let side = |text: &str| class_of(&weir_sql::facts(text.as_bytes()), text, &Config::default()).side;
        for text in ["begin read only", "start transaction isolation level repeatable read read only"] {
            assert_eq!(side(text), RouteSide::Reader, "{text}");
        }
        for text in [
            "begin",
            "begin read write",
            "begin isolation level serializable read only",
            "/* weir: primary */ begin read only",
            "begin read only; select 1",
        ] {
            assert_ne!(side(text), RouteSide::Reader, "{text}");
        }
    }

    #[test]
    fn only_a_begin_of_its_own_goes_where_its_hint_says() {
        let rule = |text: &str| class_of(&weir_sql::facts(text.as_bytes()), text, &Config::default()).rule;
        assert_eq!(rule("/* weir: primary */ begin"), RoutingRule::Hint);
        assert_eq!(rule("begin"), RoutingRule::TransactionControl);
        assert_eq!(rule("/* weir: primary */ begin; select 1"), RoutingRule::TransactionControl);
        assert_eq!(rule("/* weir: primary */ commit"), RoutingRule::TransactionControl);
    }
}
