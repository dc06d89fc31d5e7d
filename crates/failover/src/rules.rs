//! The configuration of failover.

use std::collections::BTreeSet;
pub use weir_config::failover_settings::{ConnEndPolicy, FailoverMode, FalsePrimary, OtherPromoters};

use super::ballot::{self, Epoch, NodeId};
use super::event::Ms;

#[derive(Clone, Debug, PartialEq)]
pub struct FailoverRules {
    pub mode: FailoverMode,
    pub servers: ServerRelation,
    pub nodes: Vec<NodeRules>,
    pub company: OtherPromoters,
    pub group: GroupRole,
    pub successors: SuccessorFinder,
    pub consensus: DeathConsensus,
    /// Largest known lag of a promoted asynchronous standby; `None`: any.
    pub lag_bytes_max: Option<u64>,
    /// Longest such lag in time; `None`: any.
    pub lag_ms_max: Option<Ms>,
    pub role_period_ms: Ms,
    /// Limit for a primary to appear after a loss, in modes other than builtin; `None`: none.
    pub search_ms: Option<Ms>,
    pub on_error: ConnEndPolicy,
    pub on_shutdown: ConnEndPolicy,
    pub false_primary: FalsePrimary,
    pub failback: FailbackMode,
    /// Time for transactions to end before a switchover.
    pub transaction_limit_ms: Ms,
    pub commands: FailoverCommands,
    /// A rule that a test leaves out.
    pub without: Option<SafetyRule>,
}

impl FailoverRules {
    /// Rules of a Weir alone, in builtin mode, with looks every second and without a limit of lag: the base of tests and simulations.
    pub fn plain(nodes: Vec<NodeRules>) -> FailoverRules {
        FailoverRules {
            mode: FailoverMode::Builtin,
            servers: ServerRelation::Copies,
            nodes,
            company: OtherPromoters::Alone,
            group: GroupRole::None,
            successors: SuccessorFinder::Sight,
            consensus: DeathConsensus::Own,
            lag_bytes_max: None,
            lag_ms_max: None,
            role_period_ms: 1000,
            search_ms: Some(300_000),
            on_error: ConnEndPolicy::Counts,
            on_shutdown: ConnEndPolicy::Looks,
            false_primary: FalsePrimary::Ignored,
            failback: FailbackMode::ByOperator,
            transaction_limit_ms: 1000,
            commands: FailoverCommands::default(),
            without: None,
        }
    }
}

impl NodeRules {
    /// A node called by its number, with an agent, looked at every second: the base of tests and simulations.
    pub fn plain(id: NodeId) -> NodeRules {
        NodeRules {
            id,
            address: NodeLocation { hostname: format!("host{id}"), port: 5432 + id, data_directory: format!("/data{id}") },
            application_name: format!("n{id}"),
            flag: BackendFlag::None,
            priority: 100,
            agent: AgentPresence::There,
            health: HealthRules { period_ms: 1000, timeout_ms: 1000, retries: 1, retry_delay_ms: 500 },
            returns: RejoinInitiator::ByOperator,
        }
    }
}

/// Sights by which a node counts as dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeathConsensus {
    Own,
    /// `failover_require_consensus`: most members of the group that look at the node.
    Majority,
}

/// The one who finds that a primary was replaced by others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuccessorFinder {
    /// This Weir, by the servers' roles.
    Sight,
    /// The leader of the group, where its Weirs promote: a standby that somebody promoted by hand is no successor for a member alone.
    Leader,
}

/// The part of this Weir in a group. All of its members are one Weir, whose leader decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupRole {
    None,
    Leads,
    /// Sees, and is told.
    Follows,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerRelation {
    Copies,
    /// Servers without replication (`raw`): the first one in use has everything.
    Unrelated,
}

#[derive(Clone, Debug, PartialEq)]
pub struct NodeRules {
    pub id: NodeId,
    pub address: NodeLocation,
    /// As in `synchronous_standby_names` and `pg_stat_replication`.
    pub application_name: String,
    pub flag: BackendFlag,
    /// Among equal standbys the highest is promoted; 0: never.
    pub priority: u32,
    pub agent: AgentPresence,
    pub health: HealthRules,
    pub returns: RejoinInitiator,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejoinInitiator {
    ByOperator,
    ByAgent,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AgentPresence {
    #[default]
    None,
    There,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeLocation {
    pub hostname: String,
    pub port: u16,
    pub data_directory: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HealthRules {
    /// 0: only live traffic and looks at roles.
    pub period_ms: Ms,
    pub timeout_ms: Ms,
    pub retries: u32,
    pub retry_delay_ms: Ms,
}

/// Other nodes that must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuorumSize {
    Majority,
    One,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendFlag {
    None,
    /// Never out of use, not even by hand.
    DisallowToFailover,
    /// The primary, whatever it reports.
    AlwaysPrimary,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailbackMode {
    ByOperator,
    /// Once it streams, `interval_ms` after the last return.
    Auto {
        interval_ms: Ms,
    },
}

/// With escapes; empty: none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FailoverCommands {
    pub failover: String,
    pub failback: String,
    pub follow_primary: String,
}

/// Safety rules, each of which is needed: `docs/design/failover.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SafetyRule {
    MostWal,
    /// Before positions of standbys count.
    CutOff,
    /// R + W > N.
    ReadQuorum,
    /// A second primary is false, even on a higher timeline.
    OnePrimary,
    Majority,
    /// A vote found among the pledges is followed.
    Evidence,
    /// A majority votes before writes go on.
    CarryFirst,
    StoreFirst,
    EndTransactions,
    /// With other promoters and no synchronous standbys, silence does not prove death.
    ProvenDead,
    /// With other promoters, a restarted primary needs enough standbys to confirm.
    Confirm,
    /// A newer promise on any standby stops writes.
    SeenPromise,
    /// No replacement while standbys hear the primary.
    Quarantine,
    /// A fence goes when the server follows again.
    Unfence,
    /// The old primary is looked at once more before a promotion.
    SecondLook,
    /// Losses follow from what the new primary lacks.
    TellLoss,
    Drain,
    /// A switchover stops the old primary before the promotion.
    StopFirst,
    /// The new primary holds the old one's last record.
    WholeLog,
    /// A return needs a decision that counts: writes go to the new primary, and no attempt is about to replace it.
    DecidedReturn,
    /// A server promoted beside the primary is not used until it was copied anew.
    CopyApart,
}

impl SafetyRule {
    pub const ALL: [SafetyRule; 21] = [
        SafetyRule::MostWal,
        SafetyRule::CutOff,
        SafetyRule::ReadQuorum,
        SafetyRule::OnePrimary,
        SafetyRule::Majority,
        SafetyRule::Evidence,
        SafetyRule::CarryFirst,
        SafetyRule::StoreFirst,
        SafetyRule::EndTransactions,
        SafetyRule::ProvenDead,
        SafetyRule::Confirm,
        SafetyRule::SeenPromise,
        SafetyRule::Quarantine,
        SafetyRule::Unfence,
        SafetyRule::SecondLook,
        SafetyRule::TellLoss,
        SafetyRule::Drain,
        SafetyRule::StopFirst,
        SafetyRule::WholeLog,
        SafetyRule::DecidedReturn,
        SafetyRule::CopyApart,
    ];
}

impl FailoverRules {
    /// Returns nodes whose address changed.
    pub fn readdressed(&self, before: &FailoverRules) -> Vec<NodeId> {
        let is_elsewhere = |node: &&NodeRules| {
            let place = |of: &NodeLocation| (of.hostname.clone(), of.port);
            before.node(node.id).is_some_and(|known| place(&known.address) != place(&node.address))
        };
        self.nodes.iter().filter(is_elsewhere).map(|node| node.id).collect()
    }

    pub fn keeps(&self, rule: SafetyRule) -> bool {
        self.without != Some(rule)
    }

    pub fn node(&self, id: NodeId) -> Option<&NodeRules> {
        self.nodes.iter().find(|node| node.id == id)
    }

    pub fn ids(&self) -> impl Iterator<Item = NodeId> {
        self.nodes.iter().map(|node| node.id)
    }

    pub fn is_alone(&self) -> bool {
        self.company == OtherPromoters::Alone
    }

    pub fn has_agent(&self, id: NodeId) -> bool {
        self.node(id).is_some_and(|node| node.agent == AgentPresence::There)
    }

    /// Returns the node with `ALWAYS_PRIMARY`.
    pub fn always_primary(&self) -> Option<NodeId> {
        self.nodes.iter().find(|node| node.flag == BackendFlag::AlwaysPrimary).map(|node| node.id)
    }

    pub fn electors(&self, epoch: &Epoch, quorum: QuorumSize) -> BTreeSet<NodeId> {
        match quorum {
            QuorumSize::Majority => epoch.voters(self.ids()),
            // Weir's own file decides; any one node suffices, even the replaced one.
            QuorumSize::One => Epoch { replaced: None, ..*epoch }.voters(self.ids()),
        }
    }

    pub fn needed(&self, electors: usize, quorum: QuorumSize) -> usize {
        match quorum {
            QuorumSize::Majority if self.keeps(SafetyRule::Majority) => ballot::majority(electors),
            QuorumSize::Majority | QuorumSize::One => 1,
        }
    }

    /// Returns the node at this host and port. Local hosts have several names; if all ports differ, the port tells.
    pub fn node_at(&self, host: &str, port: u16) -> Option<NodeId> {
        let at_port = || self.nodes.iter().filter(|node| node.address.port == port);
        let is_alike = |node: &&NodeRules| {
            let own = &node.address.hostname;
            own.eq_ignore_ascii_case(host) || (is_local(own) && is_local(host))
        };
        let ports: BTreeSet<u16> = self.nodes.iter().map(|node| node.address.port).collect();
        let by_port = || at_port().next().filter(|_| ports.len() == self.nodes.len() && ports.len() > 1);
        at_port().find(is_alike).or_else(by_port).map(|node| node.id)
    }

    pub fn names(&self) -> Vec<(NodeId, &str)> {
        self.nodes.iter().map(|node| (node.id, node.application_name.as_str())).collect()
    }
}

/// True for names of this machine, and for socket directories.
fn is_local(host: &str) -> bool {
    host.is_empty()
        || host.starts_with('/')
        || host.eq_ignore_ascii_case("localhost")
        || host.starts_with("127.")
        || host == "::1"
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Nodes called n0, n1 …, watched every second, in builtin mode, with no other Weir.
    pub(crate) fn rules(nodes: NodeId) -> FailoverRules {
        FailoverRules::plain((0..nodes).map(NodeRules::plain).collect())
    }

    #[test]
    fn a_node_is_known_by_where_servers_reach_it() {
        let mut rules = rules(3);
        assert_eq!((rules.node_at("HOST1", 5433), rules.node_at("host1", 5434)), (Some(1), Some(2)), "ports of their own");
        assert_eq!(rules.node_at("host1", 9), None);
        rules.nodes.iter_mut().for_each(|node| node.address.port = 5432);
        assert_eq!((rules.node_at("host2", 5432), rules.node_at("other", 5432)), (Some(2), None));
        rules.nodes[1].address.hostname = "/tmp".into();
        assert_eq!(rules.node_at("localhost", 5432), Some(1));
    }

    #[test]
    fn a_node_with_another_host_or_port_is_elsewhere() {
        let before = rules(3);
        let after = |change: fn(&mut NodeRules)| {
            let mut after = rules(4);
            change(&mut after.nodes[1]);
            after.readdressed(&before)
        };
        assert_eq!(after(|node| node.priority = 1), [0; 0]);
        assert_eq!(after(|node| node.address.data_directory = "/new".into()), [0; 0]);
        assert_eq!(after(|node| node.address.port = 1), [1]);
        assert_eq!(after(|node| node.address.hostname = "other".into()), [1]);
    }
}
