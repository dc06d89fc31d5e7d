//! The cluster as workers see it. The only writer of `SharedState::cluster.view`.
//!
//! `node_monitor` notes roles and lags; `failover` says which node takes writes and which are out of use.

use crate::control::control_context::{ControlContext, WakeSubject};
use crate::log::Level;
use crate::runtime::pool::ConnPool;
use crate::runtime::pool::server_conn::ConnStatus;
use crate::runtime::shared::{WorkerMessage, seconds};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::SystemTime;
use weir_failover::cluster::{ClusterView, NodeHealth, NodeView, ReplicationRole, WriteGate};

/// Publishes `ControlContext::view`. `changed`: another generation.
pub fn publish(c: &ControlContext, changed: bool) {
    c.ring(&WakeSubject::Positions);
    let (known, view) = (c.shared.cluster.view.load_full(), c.view.borrow().clone());
    if !changed && *known == view {
        return;
    }
    let primary = |view: &ClusterView| view.primary.map(|at| address(&view.nodes[at]));
    let is_another = primary(&known) != primary(&view);
    let moved = moved(&known, &view);
    let was_primary = |node: &NodeView| known.nodes.iter().any(|other| other.id == node.id && other.health == node.health);
    for node in view.nodes.iter().filter(|node| node.health == NodeHealth::Up(ReplicationRole::Primary) && !was_primary(node)) {
        c.shared.positions.note_promoted(node.id);
    }
    if let Some(node) = view.primary_id() {
        c.shared.positions.note_primary(node, view.primary_since);
    }
    c.shared.cluster.view.store(Arc::new(view));
    // Writes that the old primary confirmed may be lost.
    if is_another {
        c.shared.changes.doubt_all(c.shared.positions.next_round());
    }
    c.shared.tell_all(|| WorkerMessage::Refresh);
    if !moved.is_empty() {
        let pools: Vec<Arc<ConnPool>> = c.shared.pools.all();
        let theirs: Vec<Arc<ConnPool>> = pools.into_iter().filter(|pool| moved.contains(&pool.key.node)).collect();
        c.renew(&theirs);
    }
}

/// `held`: why no node takes writes.
pub fn govern(c: &ControlContext, gate: WriteGate, held: Option<&'static str>, is_out: impl Fn(u16) -> bool) {
    c.view.borrow_mut().held = held;
    let changed = c.view.borrow_mut().govern(gate, is_out, seconds(SystemTime::now()));
    publish(c, changed);
}

fn address(node: &NodeView) -> (u16, String, u16) {
    (node.id, node.hostname.clone(), node.port)
}

fn moved(before: &ClusterView, now: &ClusterView) -> Vec<u16> {
    let is_new_place = |node: &&NodeView| before.nodes.iter().any(|known| known.id == node.id && address(known) != address(node));
    now.nodes.iter().filter(is_new_place).map(|node| node.id).collect()
}

/// Voids and breaks the connections to a node, also those being opened. Returns those that sessions use.
pub fn end(c: &ControlContext, node: u16) -> Vec<Arc<ConnStatus>> {
    // The view first: a connection opened meanwhile is in the list below, or its opener sees that it is void.
    c.view.borrow_mut().void(node);
    publish(c, true);
    give_up(c, node)
}

/// Breaks the connections to a node. Returns those that sessions use.
pub fn give_up(c: &ControlContext, node: u16) -> Vec<Arc<ConnStatus>> {
    let pools = c.shared.pools.all();
    let statuses: Vec<Arc<ConnStatus>> =
        pools.iter().filter(|pool| pool.key.node == node).flat_map(|pool| pool.statuses()).collect();
    statuses.iter().for_each(|status| status.give_up());
    if !statuses.is_empty() {
        let broken = statuses.len();
        c.shared.log.say(Level::Log, format_args!("node {node} is given up: {broken} connections to it are broken"));
    }
    statuses.into_iter().filter(|status| status.session.load(Ordering::Relaxed) != 0).collect()
}
