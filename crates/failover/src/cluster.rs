//! Nodes and their roles as last found. `weir::control::node_monitor` asks the servers.

use crate::commit_outcome::PromotionHorizon;
use weir_config::Config;

/// Index in the view and the configuration; `backend_hostname` numbers are `NodeView::id`.
pub type NodeIndex = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicationRole {
    Primary,
    Standby,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeHealth {
    /// Not asked, or not reachable.
    Down,
    Up(ReplicationRole),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeUsage {
    In,
    /// Failed, detached, being copied, or not of the primary's log.
    Out,
}

/// The node that takes writes, by failover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteGate {
    /// The node that calls itself primary.
    #[default]
    ByRoles,
    /// No node for now.
    Shut,
    /// Servers that are not copies of each other have no roles.
    First(u16),
    /// `started_at`: only over connections to this start of the server.
    Open { node: u16, started_at: Option<u64> },
}

#[derive(Clone, Debug, PartialEq)]
pub struct NodeView {
    pub id: u16,
    pub hostname: String,
    pub port: u16,
    /// Share of all reads; 0 takes none.
    pub weight: f64,
    pub health: NodeHealth,
    pub usage: NodeUsage,
    /// Older generations' connections are void.
    pub valid_from: u64,
    pub cause: Option<String>,
    /// In another zone than Weir.
    pub is_far: bool,
    /// WAL bytes not replayed.
    pub lag_bytes: Option<u64>,
    /// Time since the primary had WAL that the standby has not replayed.
    pub lag_us: Option<u64>,
    /// The lag exceeds the operator's threshold.
    pub lags: bool,
    pub replication: Option<(String, String)>,
    /// Written or streamed.
    pub timeline: Option<u32>,
    /// Seconds since 1970 of the last change of `health`.
    pub changed_at_s: u64,
}

/// `generation` grows with every change that routing depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterView {
    pub generation: u64,
    pub nodes: Vec<NodeView>,
    pub primary: Option<NodeIndex>,
    /// The generation since which `primary` is unchanged.
    pub primary_since: u64,
    pub gate: WriteGate,
    /// If Weir promoted the primary.
    pub horizon: Option<PromotionHorizon>,
    /// Why writes wait.
    pub held: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum RoleProbeResult {
    Unreachable,
    Answered { in_recovery: bool, lag_bytes: Option<u64> },
}

impl ClusterView {
    /// Nodes are down until asked; state from `before` is kept for the same id and address.
    pub fn new(config: &Config, before: Option<&ClusterView>, now_s: u64) -> ClusterView {
        let total: f64 = config.nodes.iter().map(|node| node.weight).sum();
        let nodes: Vec<NodeView> = config
            .nodes
            .iter()
            .map(|node| {
                let known = before.and_then(|view| {
                    view.nodes.iter().find(|n| n.id == node.id && n.hostname == node.hostname && n.port == node.port)
                });
                NodeView {
                    id: node.id,
                    hostname: node.hostname.clone(),
                    port: node.port,
                    weight: if total > 0.0 { node.weight / total } else { 0.0 },
                    health: known.map_or(NodeHealth::Down, |n| n.health),
                    usage: known.map_or(NodeUsage::In, |n| n.usage),
                    valid_from: known.map_or(0, |n| n.valid_from),
                    cause: known.and_then(|n| n.cause.clone()),
                    is_far: !config.routing.zone.is_empty() && node.zone != config.routing.zone,
                    lag_bytes: known.and_then(|n| n.lag_bytes),
                    lag_us: known.and_then(|n| n.lag_us),
                    lags: known.is_some_and(|n| n.lags),
                    replication: known.and_then(|n| n.replication.clone()),
                    timeline: known.and_then(|n| n.timeline),
                    changed_at_s: known.map_or(now_s, |n| n.changed_at_s),
                }
            })
            .collect();
        let gate = before.map_or(WriteGate::ByRoles, |view| view.gate);
        let primary = find_primary(&nodes, gate, None);
        let generation = before.map_or(1, |view| view.generation + 1);
        let horizon = before.and_then(|view| view.horizon);
        let mut view = ClusterView {
            generation,
            nodes,
            primary,
            primary_since: generation,
            gate,
            horizon,
            held: before.and_then(|view| view.held),
        };
        if let Some(before) = before.filter(|before| before.primary_place() == view.primary_place()) {
            view.primary_since = before.primary_since;
        }
        view
    }

    /// Returns true if the health or role changed. Lag is updated either way.
    pub fn step(&mut self, node: NodeIndex, probe: &RoleProbeResult, now_s: u64) -> bool {
        let Some(view) = self.nodes.get_mut(node) else { return false };
        let health = match probe {
            RoleProbeResult::Unreachable => NodeHealth::Down,
            RoleProbeResult::Answered { in_recovery: true, .. } => NodeHealth::Up(ReplicationRole::Standby),
            RoleProbeResult::Answered { in_recovery: false, .. } => NodeHealth::Up(ReplicationRole::Primary),
        };
        view.lag_bytes = match probe {
            RoleProbeResult::Answered { lag_bytes, .. } => *lag_bytes,
            RoleProbeResult::Unreachable => None,
        };
        if view.health == health {
            return false;
        }
        view.health = health;
        view.changed_at_s = now_s;
        self.move_on();
        true
    }

    fn move_on(&mut self) {
        let before = self.primary;
        self.primary = find_primary(&self.nodes, self.gate, before);
        self.generation += 1;
        if self.primary != before {
            self.primary_since = self.generation;
        }
    }

    /// False: nothing changed. A node that gets writes is a primary whatever its last look found.
    pub fn govern(&mut self, gate: WriteGate, is_out: impl Fn(u16) -> bool, now_s: u64) -> bool {
        let mut changed = gate != self.gate;
        self.gate = gate;
        for node in &mut self.nodes {
            let usage = if is_out(node.id) { NodeUsage::Out } else { NodeUsage::In };
            let is_promoted = matches!(gate, WriteGate::Open { node: id, .. } if id == node.id);
            let health = if is_promoted { NodeHealth::Up(ReplicationRole::Primary) } else { node.health };
            if (usage, health) != (node.usage, node.health) {
                (node.usage, node.health, node.changed_at_s) = (usage, health, now_s);
                changed = true;
            }
        }
        if changed {
            self.move_on();
        }
        changed
    }

    pub fn void(&mut self, id: u16) {
        self.move_on();
        let generation = self.generation;
        self.nodes.iter_mut().filter(|node| node.id == id).for_each(|node| node.valid_from = generation);
    }

    pub fn is_valid(&self, id: u16, generation: u64) -> bool {
        self.nodes.iter().find(|node| node.id == id).is_none_or(|node| generation >= node.valid_from)
    }

    /// True if the reason is new.
    pub fn note_cause(&mut self, node: NodeIndex, cause: Option<String>) -> bool {
        let Some(view) = self.nodes.get_mut(node) else { return false };
        let is_another = cause.is_some() && cause != view.cause;
        view.cause = cause;
        is_another
    }

    pub fn causes(&self) -> String {
        let down = self.nodes.iter().filter(|node| node.health == NodeHealth::Down);
        let causes =
            down.filter_map(|node| Some(format!("node {} ({}:{}): {}", node.id, node.hostname, node.port, node.cause.as_ref()?)));
        causes.chain(self.held.map(|why| format!("writes wait: {why}"))).collect::<Vec<_>>().join("; ")
    }

    #[inline]
    pub fn primary_id(&self) -> Option<u16> {
        self.primary.and_then(|at| self.nodes.get(at)).map(|node| node.id)
    }

    fn primary_place(&self) -> Option<(u16, &str, u16)> {
        let node = self.nodes.get(self.primary?)?;
        Some((node.id, &node.hostname, node.port))
    }

    #[inline]
    pub fn is_primary(&self, id: u16) -> bool {
        self.primary_id() == Some(id)
    }

    pub fn is_primary_at(&self, id: u16, hostname: &str, port: u16) -> bool {
        self.primary_place() == Some((id, hostname, port))
    }

    pub fn is_standby(&self, node: NodeIndex) -> bool {
        self.nodes.get(node).is_some_and(NodeView::is_standby)
    }

    #[inline]
    pub fn takes_reads(&self, node: NodeIndex) -> bool {
        self.nodes.get(node).is_some_and(|n| n.weight > 0.0 && (n.is_standby() || self.primary == Some(node)))
    }

    /// Returns the index of a node that may answer a read, with any weight.
    pub fn serves(&self, id: u16) -> Option<NodeIndex> {
        let at = self.nodes.iter().position(|node| node.id == id)?;
        (self.is_standby(at) || self.primary == Some(at)).then_some(at)
    }

    pub fn is_up(&self, node: NodeIndex) -> bool {
        self.nodes.get(node).is_some_and(|n| n.health != NodeHealth::Down && n.usage == NodeUsage::In)
    }
}

impl NodeView {
    #[inline]
    pub fn is_standby(&self) -> bool {
        self.health == NodeHealth::Up(ReplicationRole::Standby) && self.usage == NodeUsage::In
    }
}

/// By roles, the known primary stays while it says so; else none of several gets writes until one is left, or failover names it.
fn find_primary(nodes: &[NodeView], gate: WriteGate, before: Option<NodeIndex>) -> Option<NodeIndex> {
    let is_primary = |n: &NodeView| n.health == NodeHealth::Up(ReplicationRole::Primary) && n.usage == NodeUsage::In;
    match gate {
        WriteGate::Shut => return None,
        WriteGate::Open { node, .. } => return nodes.iter().position(|n| n.id == node),
        WriteGate::First(node) => return nodes.iter().position(|n| n.id == node && is_primary(n)),
        WriteGate::ByRoles => {}
    }
    let only = || {
        let mut primaries = nodes.iter().enumerate().filter(|(_, node)| is_primary(node)).map(|(at, _)| at);
        primaries.next().filter(|_| primaries.next().is_none())
    };
    before.filter(|&at| nodes.get(at).is_some_and(is_primary)).or_else(only)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Nodes with these weights.
    pub(crate) fn view(nodes: &[(f64, NodeHealth)]) -> ClusterView {
        let nodes: Vec<NodeView> = nodes
            .iter()
            .enumerate()
            .map(|(at, &(weight, health))| NodeView {
                id: at as u16,
                hostname: "h".into(),
                port: 1,
                weight,
                health,
                usage: NodeUsage::In,
                valid_from: 0,
                cause: None,
                is_far: false,
                lag_bytes: None,
                lag_us: None,
                lags: false,
                replication: None,
                timeline: None,
                changed_at_s: 0,
            })
            .collect();
        let primary = find_primary(&nodes, WriteGate::ByRoles, None);
        ClusterView { generation: 1, nodes, primary, primary_since: 1, gate: WriteGate::ByRoles, horizon: None, held: None }
    }

    #[test]
    fn a_node_that_is_down_has_the_cause_last_seen_and_another_one_is_news() {
        let mut view = view(&[(1.0, NodeHealth::Down), (1.0, STANDBY)]);
        assert!(view.note_cause(0, Some("refused".into())), "down from the start: nobody has heard of it");
        assert!(!view.note_cause(0, Some("refused".into())));
        assert!(view.note_cause(0, Some("wrong password".into())));
        assert!(view.note_cause(1, Some("may not be asked".into())), "it is used as before");
        assert_eq!(view.causes(), "node 0 (h:1): wrong password", "it is up");
        view.step(0, &RoleProbeResult::Answered { in_recovery: false, lag_bytes: None }, 1);
        assert!(!view.note_cause(0, None));
        assert_eq!(view.causes(), "");
    }

    pub(crate) const PRIMARY: NodeHealth = NodeHealth::Up(ReplicationRole::Primary);
    pub(crate) const STANDBY: NodeHealth = NodeHealth::Up(ReplicationRole::Standby);

    #[test]
    fn a_second_primary_does_not_take_over_while_the_first_stays() {
        let mut v = view(&[(0.0, STANDBY), (1.0, PRIMARY)]);
        let answered = |in_recovery| RoleProbeResult::Answered { in_recovery, lag_bytes: None };
        assert_eq!(v.primary, Some(1));
        assert!(v.step(0, &answered(false), 5));
        assert_eq!((v.primary, v.generation, v.primary_since), (Some(1), 2, 1));
        assert!(v.step(1, &RoleProbeResult::Unreachable, 6));
        assert_eq!((v.primary, v.generation, v.primary_since), (Some(0), 3, 3));
        assert!(v.is_primary(0) && !v.is_primary(1));
        assert!(!v.step(1, &RoleProbeResult::Unreachable, 7));
        let two = view(&[(1.0, PRIMARY), (1.0, PRIMARY), (1.0, STANDBY)]);
        assert_eq!(two.primary, None, "nothing tells which of them is meant");
    }

    #[test]
    fn the_gate_names_the_primary_and_nodes_out_of_use_serve_nobody() {
        let mut v = view(&[(1.0, PRIMARY), (1.0, STANDBY), (1.0, STANDBY)]);
        assert!(v.govern(WriteGate::Shut, |_| false, 9));
        assert_eq!((v.primary, v.generation, v.takes_reads(1)), (None, 2, true));
        assert!(v.govern(WriteGate::Open { node: 1, started_at: None }, |id| id == 0, 9));
        assert_eq!((v.primary, v.nodes[1].health, v.is_up(0)), (Some(1), PRIMARY, false));
        assert!(!v.govern(WriteGate::Open { node: 1, started_at: None }, |id| id == 0, 9), "nothing new");
        assert!(v.step(0, &RoleProbeResult::Answered { in_recovery: true, lag_bytes: None }, 9));
        assert!(!v.is_standby(0) && v.serves(0).is_none(), "it is out of use");
        assert_eq!(v.primary, Some(1));
    }

    #[test]
    fn the_first_node_in_use_is_waited_for_whoever_else_answers() {
        let mut v = view(&[(1.0, NodeHealth::Down), (1.0, PRIMARY)]);
        assert!(v.govern(WriteGate::First(0), |_| false, 9));
        assert_eq!((v.primary, v.takes_reads(1)), (None, false));
        assert!(v.step(0, &RoleProbeResult::Answered { in_recovery: false, lag_bytes: None }, 9));
        assert_eq!((v.primary, v.takes_reads(1)), (Some(0), false));
        assert!(v.govern(WriteGate::First(1), |id| id == 0, 9));
        assert_eq!(v.primary, Some(1));
    }

    #[test]
    fn connections_begun_before_a_node_was_given_up_are_void() {
        let mut v = view(&[(1.0, PRIMARY), (1.0, STANDBY)]);
        let begun = v.generation;
        v.void(0);
        assert!(!v.is_valid(0, begun) && v.is_valid(0, v.generation) && v.is_valid(1, begun));
    }
}
