//! Chooses the server of a statement, and the reason.
//!
//! A text is classed once (`class_of`). Its names are judged once for each catalog and search_path (`Catalog::judge`). The
//! class meets the session's state at every use (`choose`). Tables of rules are walked, first answer wins; logs and counters
//! show the rule.

pub mod classify;
pub mod loads;
pub mod own_parameters;
pub mod pick;
pub mod read_preference;
pub mod read_targets;
pub mod suspects;

use crate::causal::standbys::Nodes;
use crate::routing::pick::pick_reader;
use crate::routing::read_targets::ReadPreference;
use weir_catalog::rule::Rule;
use weir_config::Config;
use weir_config::redirect::ReadTarget;
use weir_failover::cluster::{ClusterView, NodeIndex};
use weir_sql::facts::{AccessMode, Begin, Effect, Facts, Hint, Isolation, Mark, Name, Transaction};

/// Node on which a text may run, in any session.
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

/// Rules about the text alone, in order. The catalog judges the names in it, if it is a read so far.
const TEXT_RULES: &[TextRule] = &[
    TextRule { rule: Rule::LoadBalanceOff, decide: |ask| primary_if(!ask.config.routing.load_balance) },
    TextRule { rule: Rule::NotParsed, decide: |ask| primary_if(ask.facts.effect == Effect::Refused) },
    TextRule { rule: Rule::BeginReadOnly, decide: begin_read_only },
    TextRule { rule: Rule::Hint, decide: |ask| primary_if(begins(ask) && ask.facts.hint == Hint::Primary) },
    TextRule { rule: Rule::TransactionControl, decide: |ask| primary_if(ask.facts.transaction != Transaction::None) },
    TextRule { rule: Rule::Write, decide: |ask| primary_if(ask.facts.effect == Effect::Writes) },
    TextRule { rule: Rule::NotKnownToRead, decide: |ask| primary_if(ask.facts.effect != Effect::Reads) },
    TextRule { rule: Rule::LocksRows, decide: |ask| primary_if(ask.facts.has(Mark::LocksRows)) },
    TextRule { rule: Rule::SessionState, decide: |ask| primary_if(!ask.facts.state.keeps.is_empty()) },
    TextRule { rule: Rule::Hint, decide: |ask| primary_if(ask.facts.hint == Hint::Primary) },
    TextRule { rule: Rule::PrimaryRoutingPattern, decide: |ask| primary_if(matches_pattern(ask)) },
    TextRule { rule: Rule::Catalog, decide: |ask| primary_if(ask.facts.named.relations.iter().any(is_catalog)) },
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

/// True if it begins a transaction, which goes where its BEGIN wants to go.
fn begins(ask: &TextAsk<'_>) -> bool {
    matches!(ask.facts.transaction, Transaction::Begin(_)) && ask.facts.statements == 1
}

/// A transaction that says it only reads runs on a standby as a whole. Not a SERIALIZABLE one: hot standby has none.
fn begin_read_only(ask: &TextAsk<'_>) -> Option<Side> {
    match ask.facts.transaction {
        Transaction::Begin(Begin { access: AccessMode::ReadOnly, isolation, .. })
            if ask.facts.statements == 1 && isolation != Isolation::Serializable && ask.facts.hint != Hint::Primary =>
        {
            Some(Side::Reader)
        }
        _ => None,
    }
}

fn matches_pattern(ask: &TextAsk<'_>) -> bool {
    ask.config.routing.primary_patterns.is_match(ask.text)
}

/// System catalogs tell of the server asked (`pg_stat_activity`) and are read by tools that compare: the primary's are meant.
fn is_catalog(relation: &Name) -> bool {
    match relation.schema.as_str() {
        "" => relation.name.starts_with("pg_"),
        schema => schema.starts_with("pg_") || schema == "information_schema",
    }
}

/// True if a comment keeps a text from being spread where `allow_sql_comments` is off. A hint that names a node is no such
/// comment.
pub fn is_held_by_comment(facts: &Facts) -> bool {
    facts.has(Mark::Commented) && matches!(facts.hint, Hint::None | Hint::Unknown)
}

/// Facts about a statement that must be given a node, in a session that holds none.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    pub class: Class,
    pub view: &'a ClusterView,
    /// The node this session's reads go to, if it has one already (`statement_level_load_balance = off`).
    pub favourite: Option<NodeIndex>,
    pub statement_level: bool,
    /// Where somebody wants the read to go.
    pub wish: Option<ReadPreference>,
    /// The nodes' shares of the reads (`pick::shares`); none: their weights.
    pub shares: &'a [f64],
    /// A standby that lags too much leaves its reads to the one that lags least, not to the primary.
    pub prefers_lower_delay: bool,
    pub dice: u32,
    /// Nodes that show all the session must see.
    pub fit: Nodes,
    /// Nodes that will soon, so that a wait for them is worth it.
    pub hopeful: Nodes,
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
    /// A standby will soon have replayed all that the session must see: wait for it.
    Replay,
}

struct SessionRule {
    rule: Rule,
    decide: fn(&Ask<'_>) -> Option<Target>,
}

/// Rules for a statement any reader may answer, in order. The others go to the primary under their own rule's name.
const SESSION_RULES: &[SessionRule] = &[
    SessionRule { rule: Rule::ReadHinted, decide: |ask| wished(ask, Rule::ReadHinted) },
    SessionRule { rule: Rule::ReadBySetting, decide: |ask| wished(ask, Rule::ReadBySetting) },
    SessionRule { rule: Rule::ReadFavourite, decide: favourite },
    SessionRule { rule: Rule::ReadRedirected, decide: |ask| wished(ask, Rule::ReadRedirected) },
    SessionRule { rule: Rule::ReadByWeight, decide: |ask| spread(ask, |_| true) },
    SessionRule { rule: Rule::ReadNotReplayed, decide: not_replayed },
    SessionRule { rule: Rule::ReadNoStandby, decide: |ask| Some(primary(ask.view)) },
];

/// Chooses the node for a statement of a session that holds no server connection.
pub fn choose(ask: &Ask<'_>) -> Route {
    if ask.class.side == Side::Reader {
        for rule in SESSION_RULES {
            if let Some(target) = (rule.decide)(ask) {
                let route = Route { target, rule: rule.rule };
                return relieve(ask, route).unwrap_or(route);
            }
        }
    }
    Route { target: primary(ask.view), rule: ask.class.rule }
}

/// The route of a read whose node lags above the operator's threshold; `None` if it does not, or if the hint or the session
/// named it.
fn relieve(ask: &Ask<'_>, route: Route) -> Option<Route> {
    let Target::Node(node) = route.target else { return None };
    if !ask.view.nodes[node].lags || matches!(route.rule, Rule::ReadHinted | Rule::ReadBySetting) {
        return None;
    }
    let may = |at: &usize| ask.view.is_standby(*at) && ask.view.takes_reads(*at) && !ask.view.nodes[*at].lags && ask.fit.has(*at);
    let lag = |at: &usize| (ask.view.nodes[*at].lag_us, ask.view.nodes[*at].lag_bytes);
    let least = || (0..ask.view.nodes.len()).filter(may).min_by_key(lag);
    let another = if ask.prefers_lower_delay { least() } else { None };
    Some(Route { target: another.map_or_else(|| primary(ask.view), Target::Node), rule: Rule::ReadDelayed })
}

/// A wish by this rule, where it can be had.
#[inline]
fn wished(ask: &Ask<'_>, rule: Rule) -> Option<Target> {
    let wish = ask.wish.filter(|wish| wish.rule == rule)?;
    // Other bits of this throw: the node of the read must not hang on the share of the wish.
    let counts = wish.share == u32::MAX || ask.dice.wrapping_mul(OTHER_BITS).swap_bytes() < wish.share;
    match (wish.read_target, counts) {
        (ReadTarget::Primary, true) if wish.is_own() => Some(primary(ask.view)),
        (ReadTarget::Primary, true) => ask.view.primary.and_then(|at| reach(ask, at)),
        (ReadTarget::Standby, true) => spread(ask, |at| ask.view.is_standby(at)),
        (ReadTarget::Node(node), true) => {
            let at = ask.view.serves(node)?;
            // Also one that does not show enough: `relieve` gives the read to who is meant to have those of a node that lags. By weights it would go to
            // any other one.
            let is_relieved = rule == Rule::ReadRedirected && ask.view.nodes[at].lags;
            if is_relieved { Some(Target::Node(at)) } else { reach(ask, at) }
        }
        // The others have the rest. Source: Pgpool-II `select_load_balancing_node`.
        (ReadTarget::Standby, false) => ask.view.primary.and_then(|at| reach(ask, at)),
        (ReadTarget::Primary, false) => spread(ask, |at| ask.view.primary != Some(at)),
        (ReadTarget::Node(node), false) => spread(ask, |at| ask.view.nodes[at].id != node),
    }
}

/// An odd number whose multiplication mixes the high bits. Source: the golden ratio, as in Knuth's multiplicative hashing.
const OTHER_BITS: u32 = 0x9E37_79B1;

fn favourite(ask: &Ask<'_>) -> Option<Target> {
    let node = ask.favourite.filter(|_| !ask.statement_level)?;
    if !may_stay(ask.view, node, ask.wish) {
        return None;
    }
    reach(ask, node)
}

/// True if reads of a session may go on going to a node: it takes reads, or is the one that somebody wants.
pub fn may_stay(view: &ClusterView, node: NodeIndex, wish: Option<ReadPreference>) -> bool {
    let is_wanted = || match wish?.read_target {
        ReadTarget::Primary => view.primary,
        ReadTarget::Node(wanted) => view.serves(wanted),
        ReadTarget::Standby => None,
    };
    view.takes_reads(node) || is_wanted() == Some(node)
}

/// True if the reads of the session go on going to the node that this read was given (`statement_level_load_balance = off`). A node that answers
/// because another one could not be judged in this moment, or has not replayed enough yet, is none to stay with: late is not gone.
pub fn becomes_favourite(ask: &Ask<'_>, rule: Rule) -> bool {
    let is_late = |at: NodeIndex| !ask.fit.has(at);
    let redirected = ask.wish.filter(|wish| wish.rule == Rule::ReadRedirected);
    match rule {
        Rule::ReadHinted | Rule::ReadBySetting | Rule::ReadDelayed | Rule::ReadNotReplayed => false,
        Rule::ReadByWeight => !redirected.is_some_and(|wish| match wish.read_target {
            ReadTarget::Node(node) => ask.view.serves(node).is_some_and(is_late),
            ReadTarget::Primary => ask.view.primary.is_some_and(is_late),
            ReadTarget::Standby => (0..ask.view.nodes.len()).any(|at| ask.view.is_standby(at) && is_late(at)),
        }),
        _ => true,
    }
}

/// The node if it shows all that the session must see, or a wait for it.
fn reach(ask: &Ask<'_>, node: NodeIndex) -> Option<Target> {
    if ask.fit.has(node) {
        return Some(Target::Node(node));
    }
    ask.hopeful.has(node).then_some(Target::Replay)
}

/// One of the nodes that `may`, by their shares.
fn spread(ask: &Ask<'_>, may: impl Fn(NodeIndex) -> bool) -> Option<Target> {
    // A node that must be waited for keeps its share. If reads took the nearest fit node instead, all would end on the primary,
    // which is fit nearly always.
    let pick = |waits: bool| {
        pick_reader(ask.view, ask.shares, ask.dice, |at| (ask.fit.has(at) || waits && ask.hopeful.has(at)) && may(at))
    };
    // Without a primary nobody learns of a later position: the standby that answered last goes on, rather than that all wait.
    let node = if ask.view.primary.is_none() { pick(false).or_else(|| pick(true)) } else { pick(true) }?;
    reach(ask, node)
}

/// No standby that takes reads shows all that the session must see.
fn not_replayed(ask: &Ask<'_>) -> Option<Target> {
    let is_behind = |at: usize| ask.view.takes_reads(at) && !ask.fit.has(at);
    (0..ask.view.nodes.len()).any(is_behind).then(|| primary(ask.view))
}

fn primary(view: &ClusterView) -> Target {
    view.primary.map_or(Target::NoPrimary, Target::Node)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use weir_failover::cluster::{Health, NodeView, Role};

    #[test]
    fn reads_stay_at_a_node_that_takes_reads_or_is_the_one_that_is_wanted() {
        use Rule::ReadBySetting as Own;
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

    pub(crate) const PRIMARY: Health = Health::Up(Role::Primary);
    pub(crate) const STANDBY: Health = Health::Up(Role::Standby);

    /// A primary and two standbys with these weights.
    fn view(weights: [f64; 3]) -> ClusterView {
        view_of(&[(weights[0], PRIMARY), (weights[1], STANDBY), (weights[2], STANDBY)])
    }

    /// Nodes with these weights, where those without a role are down.
    pub(crate) fn view_of(nodes: &[(f64, Health)]) -> ClusterView {
        let node = |(at, &(weight, health)): (usize, &(f64, Health))| NodeView {
            id: at as u16,
            hostname: "h".into(),
            port: 1,
            weight,
            health,
            usage: weir_failover::cluster::Usage::In,
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
            gate: weir_failover::cluster::Gate::ByRoles,
            horizon: None,
            held: None,
        }
    }

    fn nodes(list: &[usize]) -> Nodes {
        let mut nodes = Nodes::NONE;
        list.iter().for_each(|at| nodes.add(*at));
        nodes
    }

    const READ: Class = Class { side: Side::Reader, rule: Rule::Read };
    /// Dice that say the second standby.
    const SECOND: u32 = u32::MAX;

    /// A read that any node may answer.
    fn asked(view: &ClusterView) -> Ask<'_> {
        Ask {
            class: READ,
            view,
            favourite: None,
            statement_level: true,
            wish: None,
            shares: &[],
            prefers_lower_delay: false,
            dice: SECOND,
            fit: Nodes::ALL,
            hopeful: Nodes::NONE,
        }
    }

    #[test]
    fn without_a_primary_the_standby_that_shows_all_answers_though_another_one_is_chosen() {
        let mut view = view([0.0, 1.0, 1.0]);
        let (fit, hopeful) = (nodes(&[1]), nodes(&[2]));
        let target = |view: &ClusterView, fit| choose(&Ask { fit, hopeful, ..asked(view) }).target;
        assert_eq!(target(&view, fit), Target::Replay);
        (view.nodes[0].health, view.primary) = (Health::Down, None);
        assert_eq!(target(&view, fit), Target::Node(1));
        assert_eq!(target(&view, Nodes::NONE), Target::Replay);
    }

    /// The target of a read: by the weights, the fit nodes, the hopeful nodes.
    fn goes(weights: [f64; 3], fit: &[usize], hopeful: &[usize]) -> (Target, &'static str) {
        let view = view(weights);
        let (fit, hopeful) = (nodes(fit), nodes(hopeful));
        let route = choose(&Ask { fit, hopeful, ..asked(&view) });
        (route.target, route.rule.name())
    }

    #[test]
    fn a_read_goes_to_a_standby_that_shows_what_its_session_must_see() {
        const BOTH: [f64; 3] = [0.0, 0.5, 0.5];
        assert_eq!(goes(BOTH, &[0, 1, 2], &[]), (Target::Node(2), "read_by_weight"));
        assert_eq!(goes(BOTH, &[0, 1], &[]), (Target::Node(1), "read_by_weight"));
        assert_eq!(goes(BOTH, &[0], &[]), (Target::Node(0), "read_not_replayed"));
        assert_eq!(goes([1.0, 0.0, 0.0], &[0], &[]), (Target::Node(0), "read_by_weight"));
        assert_eq!(goes([0.0, 0.0, 0.0], &[0], &[]), (Target::Node(0), "read_no_standby"));
    }

    #[test]
    fn a_read_waits_for_the_node_of_its_dice_so_that_weights_are_kept() {
        const BOTH: [f64; 3] = [0.0, 0.5, 0.5];
        const ALL: [f64; 3] = [0.2, 0.4, 0.4];
        assert_eq!(goes(BOTH, &[0], &[1, 2]).0, Target::Replay);
        assert_eq!(goes(BOTH, &[0, 1], &[2]).0, Target::Replay);
        assert_eq!(goes(BOTH, &[0, 2], &[1]).0, Target::Node(2));
        assert_eq!(goes(ALL, &[0], &[1, 2]).0, Target::Replay, "the primary does not take the standbys' share");
        assert_eq!(goes(ALL, &[0], &[]), (Target::Node(0), "read_by_weight"));
    }

    #[test]
    fn a_primary_that_does_not_show_what_a_standby_showed_gets_no_read_that_another_node_can_answer() {
        const ALL: [f64; 3] = [0.8, 0.1, 0.1];
        let view = view(ALL);
        let ask = Ask { dice: 0, fit: nodes(&[2]), ..asked(&view) };
        assert_eq!(choose(&ask), Route { target: Target::Node(2), rule: Rule::ReadByWeight });
        assert_eq!(choose(&Ask { hopeful: nodes(&[0]), ..ask }).target, Target::Replay);
        let wish = |rule| Some(ReadPreference::always(ReadTarget::Primary, rule));
        assert_eq!(choose(&Ask { wish: wish(Rule::ReadRedirected), ..ask }).target, Target::Node(2), "a list only prefers");
        assert_eq!(choose(&Ask { wish: wish(Rule::ReadHinted), ..ask }).target, Target::Node(0), "a hint is obeyed");
        assert_eq!(choose(&Ask { fit: Nodes::NONE, ..ask }), Route { target: Target::Node(0), rule: Rule::ReadNotReplayed });
    }

    #[test]
    fn a_favourite_is_waited_for() {
        let view = view([0.0, 0.5, 0.5]);
        let (fit, hopeful) = (nodes(&[0, 2]), nodes(&[1]));
        let ask = Ask { favourite: Some(1), statement_level: false, fit, hopeful, ..asked(&view) };
        assert_eq!(choose(&ask), Route { target: Target::Replay, rule: Rule::ReadFavourite });
        let ask = Ask { hopeful: Nodes::NONE, ..ask };
        assert_eq!(choose(&ask), Route { target: Target::Node(2), rule: Rule::ReadByWeight });
    }
    #[test]
    fn a_session_stays_with_no_node_that_answers_for_one_that_is_late() {
        let view = view([0.0, 0.5, 0.5]);
        let redirected = |read_target| Some(ReadPreference::always(read_target, Rule::ReadRedirected));
        let to_second = redirected(ReadTarget::Node(2));
        for (fit, wish, goes, stays, why) in [
            (nodes(&[0, 1, 2]), None, 2, true, "any may answer"),
            (nodes(&[0, 1, 2]), to_second, 2, true, "it is the wanted one"),
            (nodes(&[0, 1]), to_second, 1, false, "the wanted one has not replayed enough"),
            (nodes(&[0, 1]), redirected(ReadTarget::Node(7)), 1, true, "there is no such node"),
            (nodes(&[0]), redirected(ReadTarget::Standby), 0, false, "no standby has replayed enough"),
            (nodes(&[0]), None, 0, false, "the primary answers for them"),
            (nodes(&[0, 1]), Some(ReadPreference::always(ReadTarget::Node(1), Rule::ReadHinted)), 1, false, "for one read"),
        ] {
            let ask = Ask { fit, wish, statement_level: false, ..asked(&view) };
            let Route { target, rule } = choose(&ask);
            assert_eq!((target, becomes_favourite(&ask, rule)), (Target::Node(goes), stays), "{why}");
        }
    }

    /// Where a read goes with a wish, on nodes of these weights.
    fn wish_goes(weights: [f64; 3], read_target: ReadTarget, rule: Rule) -> (Target, &'static str) {
        let view = view(weights);
        let route = choose(&Ask { wish: Some(ReadPreference::always(read_target, rule)), ..asked(&view) });
        (route.target, route.rule.name())
    }

    #[test]
    fn a_read_goes_where_it_is_wanted() {
        use Rule::{ReadBySetting, ReadHinted, ReadRedirected};
        const BOTH: [f64; 3] = [0.0, 0.5, 0.5];
        assert_eq!(wish_goes(BOTH, ReadTarget::Node(1), ReadHinted), (Target::Node(1), "read_hinted"));
        assert_eq!(wish_goes(BOTH, ReadTarget::Node(0), ReadHinted), (Target::Node(0), "read_hinted"), "without weight");
        assert_eq!(wish_goes([1.0, 0.0, 0.0], ReadTarget::Node(1), ReadRedirected), (Target::Node(1), "read_redirected"));
        assert_eq!(wish_goes([0.8, 0.1, 0.1], ReadTarget::Standby, ReadBySetting), (Target::Node(2), "read_by_setting"));
        assert_eq!(wish_goes(BOTH, ReadTarget::Primary, ReadBySetting), (Target::Node(0), "read_by_setting"));
        assert_eq!(
            wish_goes(BOTH, ReadTarget::Node(7), ReadHinted),
            (Target::Node(2), "read_by_weight"),
            "there is no such node"
        );
        assert_eq!(
            wish_goes([1.0, 0.0, 0.0], ReadTarget::Standby, ReadHinted),
            (Target::Node(0), "read_by_weight"),
            "none takes reads"
        );
    }

    #[test]
    fn a_wish_does_not_reach_a_node_that_is_down_or_shows_too_little() {
        let mut view = view([0.0, 0.5, 0.5]);
        let wish = Some(ReadPreference::always(ReadTarget::Node(1), Rule::ReadHinted));
        let ask = Ask { wish, fit: nodes(&[0, 2]), ..asked(&view) };
        assert_eq!(choose(&ask), Route { target: Target::Node(2), rule: Rule::ReadByWeight });
        let ask = Ask { hopeful: nodes(&[1]), ..ask };
        assert_eq!(choose(&ask), Route { target: Target::Replay, rule: Rule::ReadHinted });
        view.nodes[1].health = Health::Down;
        let ask = Ask { wish, ..asked(&view) };
        assert_eq!(choose(&ask), Route { target: Target::Node(2), rule: Rule::ReadByWeight });
        view.primary = None;
        let wish = |rule| Some(ReadPreference::always(ReadTarget::Primary, rule));
        let ask = Ask { wish: wish(Rule::ReadRedirected), ..asked(&view) };
        assert_eq!(choose(&ask).target, Target::Node(2), "a list only prefers");
        let ask = Ask { wish: wish(Rule::ReadBySetting), ..asked(&view) };
        assert_eq!(choose(&ask), Route { target: Target::NoPrimary, rule: Rule::ReadBySetting });
    }

    #[test]
    fn what_a_list_does_not_take_goes_to_the_others() {
        let view = view([0.2, 0.4, 0.4]);
        let counts = |read_target, share: f64| {
            let wish =
                Some(ReadPreference { read_target, share: (share * f64::from(u32::MAX)) as u32, rule: Rule::ReadRedirected });
            let mut counts = [0u32; 3];
            for dice in (0..u32::MAX).step_by((1 << 20) + 12_345) {
                match choose(&Ask { wish, dice, ..asked(&view) }).target {
                    Target::Node(at) => counts[at] += 1,
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
            let route = choose(&Ask { wish, favourite: Some(1), statement_level: false, ..asked(&view) });
            (route.target, route.rule.name())
        };
        assert_eq!(goes(Rule::ReadHinted), (Target::Node(2), "read_hinted"));
        assert_eq!(goes(Rule::ReadRedirected), (Target::Node(1), "read_favourite"), "it was thrown before");
    }

    #[test]
    fn reads_of_a_standby_that_lags_go_to_the_primary_or_to_who_lags_least() {
        let mut view = view([0.0, 0.5, 0.5]);
        (view.nodes[1].lag_bytes, view.nodes[2].lag_bytes, view.nodes[2].lags) = (Some(10), Some(900), true);
        assert_eq!(choose(&asked(&view)), Route { target: Target::Node(0), rule: Rule::ReadDelayed });
        let ask = Ask { prefers_lower_delay: true, ..asked(&view) };
        assert_eq!(choose(&ask), Route { target: Target::Node(1), rule: Rule::ReadDelayed });
        assert_eq!(choose(&Ask { fit: nodes(&[0, 2]), ..ask }).target, Target::Node(0), "the other does not show enough");
        assert_eq!(choose(&Ask { dice: 0, ..ask }), Route { target: Target::Node(1), rule: Rule::ReadByWeight });
        let wish = Some(ReadPreference::always(ReadTarget::Node(2), Rule::ReadHinted));
        assert_eq!(choose(&Ask { wish, ..ask }).target, Target::Node(2), "who names it knows");
        let wish = Some(ReadPreference::always(ReadTarget::Node(2), Rule::ReadRedirected));
        assert_eq!(choose(&Ask { wish, ..ask }), Route { target: Target::Node(1), rule: Rule::ReadDelayed });
        // With causal reads a node that lags shows too little as well.
        view.nodes[0].weight = 0.5;
        let behind = Ask { wish, fit: nodes(&[0, 1]), ..asked(&view) };
        for dice in [0, SECOND] {
            let prefers = Ask { prefers_lower_delay: true, dice, ..behind };
            assert_eq!(choose(&prefers), Route { target: Target::Node(1), rule: Rule::ReadDelayed });
            assert_eq!(choose(&Ask { dice, ..behind }), Route { target: Target::Node(0), rule: Rule::ReadDelayed });
        }
        view.nodes[1].lags = true;
        let ask = Ask { prefers_lower_delay: true, ..asked(&view) };
        assert_eq!(choose(&ask), Route { target: Target::Node(0), rule: Rule::ReadDelayed }, "all lag");
    }

    #[test]
    fn a_transaction_that_only_reads_goes_where_it_may() {
        let side = |text: &str| class_of(&weir_sql::facts(text.as_bytes()), text, &Config::default()).side;
        for text in ["begin read only", "start transaction isolation level repeatable read read only"] {
            assert_eq!(side(text), Side::Reader, "{text}");
        }
        for text in [
            "begin",
            "begin read write",
            "begin isolation level serializable read only",
            "/* weir: primary */ begin read only",
            "begin read only; select 1",
        ] {
            assert_ne!(side(text), Side::Reader, "{text}");
        }
    }

    #[test]
    fn only_a_begin_of_its_own_goes_where_its_hint_says() {
        let rule = |text: &str| class_of(&weir_sql::facts(text.as_bytes()), text, &Config::default()).rule;
        assert_eq!(rule("/* weir: primary */ begin"), Rule::Hint);
        assert_eq!(rule("begin"), Rule::TransactionControl);
        assert_eq!(rule("/* weir: primary */ begin; select 1"), Rule::TransactionControl);
        assert_eq!(rule("/* weir: primary */ commit"), Rule::TransactionControl);
    }
}
