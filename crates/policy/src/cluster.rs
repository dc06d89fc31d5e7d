//! Nodes and their roles, as last asked.
//!
//! In: findings of a probe. Out: the next view. No IO: `weir::control::node_monitor` asks the servers.

use weir_config::Config;

/// Index of a node in the view and in the configuration's list; `backend_hostname` numbers are `NodeView::id`.
pub type NodeIndex = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Primary,
    Standby,
}

/// Result of the last probe of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// Not asked yet, or not to be reached.
    Down,
    Up(Role),
}

/// One node as all sessions see it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeView {
    pub id: u16,
    pub hostname: String,
    pub port: u16,
    /// Share of reads, of all nodes' sum; 0 takes none.
    pub weight: f64,
    pub health: Health,
    /// Why it is down, in the words of the last attempt.
    pub cause: Option<String>,
    /// It is in another zone than we are.
    pub is_far: bool,
    /// WAL bytes a standby has not replayed, when known.
    pub lag_bytes: Option<u64>,
    /// Lag as time: since when the primary had WAL that the standby has not replayed, when known.
    pub lag_us: Option<u64>,
    /// The lag is above the operator's threshold.
    pub lags: bool,
    /// `pg_stat_replication` of the primary, when known: state, sync state.
    pub replication: Option<(String, String)>,
    /// The timeline it writes, or streams, when known.
    pub timeline: Option<u32>,
    /// Seconds since 1970 of the last change of `health`.
    pub changed_at_s: u64,
}

/// A snapshot of the cluster. `generation` moves with every change of health or role.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterView {
    pub generation: u64,
    pub nodes: Vec<NodeView>,
    pub primary: Option<NodeIndex>,
    /// The generation since which the primary is the one it is, or there is none.
    pub primary_since: u64,
}

/// Findings of a probe of one node.
#[derive(Clone, Debug, PartialEq)]
pub enum Probe {
    Unreachable,
    Answered { in_recovery: bool, lag_bytes: Option<u64> },
}

impl ClusterView {
    /// All nodes of the configuration, down until they are asked. Health known from `before` is kept by address.
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
                    health: known.map_or(Health::Down, |n| n.health),
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
        let primary = find_primary(&nodes, None);
        let generation = before.map_or(1, |view| view.generation + 1);
        let mut view = ClusterView { generation, nodes, primary, primary_since: generation };
        if let Some(before) = before.filter(|before| before.primary_place() == view.primary_place()) {
            view.primary_since = before.primary_since;
        }
        view
    }

    /// The view after one probe; `None` when nothing that routing looks at changed. Lag is updated either way.
    pub fn step(&mut self, node: NodeIndex, probe: &Probe, now_s: u64) -> bool {
        let Some(view) = self.nodes.get_mut(node) else { return false };
        let health = match probe {
            Probe::Unreachable => Health::Down,
            Probe::Answered { in_recovery: true, .. } => Health::Up(Role::Standby),
            Probe::Answered { in_recovery: false, .. } => Health::Up(Role::Primary),
        };
        view.lag_bytes = match probe {
            Probe::Answered { lag_bytes, .. } => *lag_bytes,
            Probe::Unreachable => None,
        };
        if view.health == health {
            return false;
        }
        view.health = health;
        view.changed_at_s = now_s;
        let before = self.primary;
        self.primary = find_primary(&self.nodes, before);
        self.generation += 1;
        if self.primary != before {
            self.primary_since = self.generation;
        }
        true
    }

    /// Notes why a node could not be asked. True when it is down for another reason than the one known.
    pub fn note_cause(&mut self, node: NodeIndex, cause: Option<String>) -> bool {
        let Some(view) = self.nodes.get_mut(node) else { return false };
        let cause = cause.filter(|_| view.health == Health::Down);
        let is_another = cause.is_some() && cause != view.cause;
        view.cause = cause;
        is_another
    }

    /// The reasons why nodes are down, for sessions that wait for one.
    pub fn causes(&self) -> String {
        let causes = self.nodes.iter().filter_map(|node| Some(format!("node {}: {}", node.id, node.cause.as_ref()?)));
        causes.collect::<Vec<_>>().join("; ")
    }

    /// The number of the node that is the primary.
    #[inline]
    pub fn primary_id(&self) -> Option<u16> {
        self.primary.and_then(|at| self.nodes.get(at)).map(|node| node.id)
    }

    /// Where the primary is.
    fn primary_place(&self) -> Option<(u16, &str, u16)> {
        let node = self.nodes.get(self.primary?)?;
        Some((node.id, &node.hostname, node.port))
    }

    /// True if the node with this number is the primary. The one place where that is asked.
    #[inline]
    pub fn is_primary(&self, id: u16) -> bool {
        self.primary_id() == Some(id)
    }

    /// True if the primary has this number and is at this place.
    pub fn is_primary_at(&self, id: u16, hostname: &str, port: u16) -> bool {
        self.primary_place() == Some((id, hostname, port))
    }

    pub fn is_standby(&self, node: NodeIndex) -> bool {
        self.nodes.get(node).is_some_and(|n| n.health == Health::Up(Role::Standby))
    }

    /// True if a node is up and has a share of the reads.
    #[inline]
    pub fn takes_reads(&self, node: NodeIndex) -> bool {
        self.nodes
            .get(node)
            .is_some_and(|n| n.weight > 0.0 && (n.health == Health::Up(Role::Standby) || self.primary == Some(node)))
    }

    /// The place of the node with this number, if it may answer a read, with any weight.
    pub fn serves(&self, id: u16) -> Option<NodeIndex> {
        let at = self.nodes.iter().position(|node| node.id == id)?;
        (self.is_standby(at) || self.primary == Some(at)).then_some(at)
    }

    pub fn is_up(&self, node: NodeIndex) -> bool {
        self.nodes.get(node).is_some_and(|n| n.health != Health::Down)
    }
}

/// The node that takes writes. If two call themselves primary, the choice is never random. The known one stays as long as it
/// says so, else the lowest number counts, as in Pgpool-II.
fn find_primary(nodes: &[NodeView], before: Option<NodeIndex>) -> Option<NodeIndex> {
    let is_primary = |n: &NodeView| n.health == Health::Up(Role::Primary);
    before.filter(|&at| nodes.get(at).is_some_and(is_primary)).or_else(|| nodes.iter().position(is_primary))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Nodes with these weights.
    pub(crate) fn view(nodes: &[(f64, Health)]) -> ClusterView {
        let nodes: Vec<NodeView> = nodes
            .iter()
            .enumerate()
            .map(|(at, &(weight, health))| NodeView {
                id: at as u16,
                hostname: "h".into(),
                port: 1,
                weight,
                health,
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
        let primary = find_primary(&nodes, None);
        ClusterView { generation: 1, nodes, primary, primary_since: 1 }
    }

    #[test]
    fn a_node_that_is_down_has_the_cause_last_seen_and_another_one_is_news() {
        let mut view = view(&[(1.0, Health::Down), (1.0, STANDBY)]);
        assert!(view.note_cause(0, Some("refused".into())), "down from the start: nobody has heard of it");
        assert!(!view.note_cause(0, Some("refused".into())));
        assert!(view.note_cause(0, Some("wrong password".into())));
        assert!(!view.note_cause(1, Some("may not be asked".into())), "it is up");
        assert_eq!(view.causes(), "node 0: wrong password");
        view.step(0, &Probe::Answered { in_recovery: false, lag_bytes: None }, 1);
        assert!(!view.note_cause(0, None));
        assert_eq!(view.causes(), "");
    }

    pub(crate) const PRIMARY: Health = Health::Up(Role::Primary);
    pub(crate) const STANDBY: Health = Health::Up(Role::Standby);

    #[test]
    fn a_second_primary_does_not_take_over_while_the_first_stays() {
        let mut v = view(&[(0.0, STANDBY), (1.0, PRIMARY)]);
        let answered = |in_recovery| Probe::Answered { in_recovery, lag_bytes: None };
        assert_eq!(v.primary, Some(1));
        assert!(v.step(0, &answered(false), 5));
        assert_eq!((v.primary, v.generation, v.primary_since), (Some(1), 2, 1));
        assert!(v.step(1, &Probe::Unreachable, 6));
        assert_eq!((v.primary, v.generation, v.primary_since), (Some(0), 3, 3));
        assert!(v.is_primary(0) && !v.is_primary(1));
        assert!(!v.step(1, &Probe::Unreachable, 7));
    }
}
