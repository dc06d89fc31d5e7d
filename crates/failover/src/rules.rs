//! The part of the configuration that decides about failover.

use std::collections::BTreeSet;
pub use weir_config::failover_settings::{ConnEndPolicy, FailoverMode, FalsePrimary, OtherPromoters};

use super::ballot::{self, Epoch, NodeId};
use super::event::Ms;

/// Settings of all nodes, and of each.
#[derive(Clone, Debug, PartialEq)]
pub struct FailoverRules {
    pub mode: FailoverMode,
    pub servers: ServerRelation,
    pub nodes: Vec<NodeRules>,
    /// The others that promote beside this Weir.
    pub company: OtherPromoters,
    /// Largest known lack of an asynchronous standby that is promoted, in bytes; `None`: any.
    pub lag_bytes_max: Option<u64>,
    /// Longest time since the primary was seen to have what such a standby lacks; `None`: any.
    pub lag_ms_max: Option<Ms>,
    /// Time between two looks at a node's role.
    pub role_period_ms: Ms,
    /// Time in which a primary must appear after one was lost, in other modes than builtin; `None`: no limit.
    pub search_ms: Option<Ms>,
    pub on_error: ConnEndPolicy,
    pub on_shutdown: ConnEndPolicy,
    pub false_primary: FalsePrimary,
    pub failback: FailbackMode,
    /// Time that transactions get to end before a switchover.
    pub transaction_limit_ms: Ms,
    pub commands: FailoverCommands,
    /// A safety rule left out, to see that tests would find it. Nothing else sets it.
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

/// How the servers belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerRelation {
    /// Standbys copy the primary.
    Copies,
    /// They know nothing of each other (`raw`): the first one in use has everything.
    Unrelated,
}

/// One node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeRules {
    pub id: NodeId,
    pub address: NodeLocation,
    /// Its name in `synchronous_standby_names` and `pg_stat_replication`.
    pub application_name: String,
    pub flag: BackendFlag,
    /// Among equal standbys the highest is promoted; 0: never.
    pub priority: u32,
    pub agent: AgentPresence,
    pub health: HealthRules,
    pub returns: RejoinInitiator,
}

/// The one that brings a node back that was replaced as the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejoinInitiator {
    ByOperator,
    /// The agent beside it.
    ByAgent,
}

/// If a program beside the server can stop, start and change it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AgentPresence {
    #[default]
    None,
    There,
}

/// Where a node is, for commands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeLocation {
    pub hostname: String,
    pub port: u16,
    pub data_directory: String,
}

/// How a node is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HealthRules {
    /// 0: only live traffic and looks at roles.
    pub period_ms: Ms,
    pub timeout_ms: Ms,
    pub retries: u32,
    pub retry_delay_ms: Ms,
}

/// How many of the other nodes must agree to a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuorumSize {
    Majority,
    One,
}

/// The value of `backend_flag`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendFlag {
    None,
    /// Is never taken out of use, not even by hand.
    DisallowToFailover,
    /// Is the primary, whatever it says.
    AlwaysPrimary,
}

/// How a standby that failed comes back into use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailbackMode {
    ByOperator,
    /// Once it streams; so long after the last time at the earliest.
    Auto {
        interval_ms: Ms,
    },
}

/// The operator's commands, with their escapes; empty: none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FailoverCommands {
    pub failover: String,
    pub failback: String,
    pub follow_primary: String,
}

/// Safety rules, each of which is needed: see `docs/design/failover.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SafetyRule {
    /// The standby with most WAL is promoted, not the lowest number.
    MostWal,
    /// Standbys are cut off before their positions count.
    CutOff,
    /// R + W > N.
    ReadQuorum,
    /// A second primary is false, even on a higher timeline.
    OnePrimary,
    /// A majority pledges.
    Majority,
    /// A vote found among the pledges is followed.
    Evidence,
    /// A majority has the vote before writes go on.
    CarryFirst,
    /// A decision is on disk before writes go on.
    StoreFirst,
    /// Transactions on a primary that is given up end.
    EndTransactions,
    /// With company and without synchronous standbys, a silent primary is not taken for dead.
    ProvenDead,
    /// With company, a primary that was started anew is believed only after enough standbys were heard.
    Confirm,
    /// A newer promise on any standby stops writes.
    SeenPromise,
    /// A primary that its standbys hear is not replaced.
    Quarantine,
    /// A fence goes when the server follows again.
    Unfence,
    /// The old primary is looked at once more before the standby is promoted.
    SecondLook,
    /// Losses are told from what the new primary lacks.
    TellLoss,
    /// A switchover waits for transactions to end.
    Drain,
    /// The old primary of a switchover is stopped before another one is promoted.
    StopFirst,
    /// The new one holds the last record of the old one.
    WholeLog,
    /// A replaced primary is brought back only by a decision that counts: writes go to the new one, and nobody is about to replace it.
    DecidedReturn,
}

impl SafetyRule {
    pub const ALL: [SafetyRule; 20] = [
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
    ];
}

impl FailoverRules {
    /// Nodes that had another address before.
    pub fn readdressed(&self, before: &FailoverRules) -> Vec<NodeId> {
        let is_elsewhere = |node: &&NodeRules| {
            let place = |of: &NodeLocation| (of.hostname.clone(), of.port);
            before.node(node.id).is_some_and(|known| place(&known.address) != place(&node.address))
        };
        self.nodes.iter().filter(is_elsewhere).map(|node| node.id).collect()
    }

    /// True if this safety rule counts.
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

    /// True if a program beside the server can stop and start it.
    pub fn has_agent(&self, id: NodeId) -> bool {
        self.node(id).is_some_and(|node| node.agent == AgentPresence::There)
    }

    /// True if the node of this epoch is the primary without being asked.
    pub fn always_primary(&self) -> Option<NodeId> {
        self.nodes.iter().find(|node| node.flag == BackendFlag::AlwaysPrimary).map(|node| node.id)
    }

    /// Those who decide who comes after `epoch`.
    pub fn electors(&self, epoch: &Epoch, quorum: QuorumSize) -> BTreeSet<NodeId> {
        match quorum {
            QuorumSize::Majority => epoch.voters(self.ids()),
            // The file of this Weir decides; one other node is enough, and it may be the one that was replaced.
            QuorumSize::One => Epoch { replaced: None, ..*epoch }.voters(self.ids()),
        }
    }

    /// How many of so many decide.
    pub fn needed(&self, electors: usize, quorum: QuorumSize) -> usize {
        match quorum {
            QuorumSize::Majority if self.keeps(SafetyRule::Majority) => ballot::majority(electors),
            QuorumSize::Majority | QuorumSize::One => 1,
        }
    }

    /// The node that servers reach by this host and port. Hosts of this machine go by several names, and where all nodes have ports of their
    /// own the port tells.
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

    /// Names of nodes as PostgreSQL sees them.
    pub fn names(&self) -> Vec<(NodeId, &str)> {
        self.nodes.iter().map(|node| (node.id, node.application_name.as_str())).collect()
    }
}

/// True for names of this machine, and for folders of sockets.
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
