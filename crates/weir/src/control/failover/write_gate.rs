//! The gate for writes that workers see.

use crate::control::cluster_view;
use crate::control::control_context::{ControlContext, WakeSubject};
use crate::log::Level;
use crate::runtime::group_seat::GroupSeat;
use crate::runtime::mail::RoleCheckReason;
use crate::runtime::pool::server_conn::ConnStatus;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use weir_config::watchdog_settings::QuorumLossPolicy;
use weir_config::{ClusteringMode, Config};
use weir_failover::cluster::WriteGate;
use weir_failover::commit_outcome::PromotionHorizon;
use weir_failover::{
    self, FailoverMode, FailoverRules, FailoverState, NodeId, OpenTransactionFate, WriteDecider, WriteHoldReason,
};
use weir_io::clock::boot_now_ms;

/// Time for workers to release broken connections. A worker looks at its sockets within microseconds.
const PART_LIMIT: Duration = Duration::from_secs(1);

const NO_EPOCH: &str = "the group has no epoch open for this proxy";

pub struct WriteSwitch {
    gate: WriteGate,
    promoter: PromoterKind,
    /// The node that took writes last, and may still have transactions.
    served: Option<NodeId>,
    /// A group whose epoch must be open for the node, too.
    group: Option<Arc<GroupSeat>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PromoterKind {
    /// Weir, or its command.
    Weir,
    Others,
    /// The servers are no copies of each other: the lowest number in use decides.
    Nobody,
}

impl PromoterKind {
    fn of(config: &Config, mode: FailoverMode) -> PromoterKind {
        match mode {
            _ if config.clustering_mode != ClusteringMode::StreamingReplication => PromoterKind::Nobody,
            FailoverMode::Builtin | FailoverMode::Command => PromoterKind::Weir,
            FailoverMode::Follow | FailoverMode::Off => PromoterKind::Others,
        }
    }
}

impl WriteSwitch {
    pub fn new(config: &Config, mode: FailoverMode, group: Option<Arc<GroupSeat>>) -> WriteSwitch {
        WriteSwitch { gate: WriteGate::Shut, promoter: PromoterKind::of(config, mode), served: None, group }
    }

    pub fn served(&self) -> Option<NodeId> {
        self.served
    }

    /// `wd_without_quorum = refuse`, and this member has no lease.
    fn refuses_reads(&self, c: &ControlContext) -> bool {
        let config = c.shared.config.load();
        let refuses = config.watchdog.as_ref().is_some_and(|watchdog| watchdog.without_quorum == QuorumLossPolicy::Refuse);
        refuses && c.shared.group.get().is_some_and(|group| !group.view().has_lease(boot_now_ms()))
    }

    /// Of a group whose Weirs promote, each node takes writes while the epoch is open for it.
    fn in_group(&self, gate: WriteGate) -> WriteGate {
        let Some(group) = &self.group else { return gate };
        let view = group.view();
        match gate {
            WriteGate::Open { node, .. } if view.sight(boot_now_ms()).may_write_to(node) => gate,
            WriteGate::Open { .. } | WriteGate::ByRoles | WriteGate::First(_) | WriteGate::Shut => WriteGate::Shut,
        }
    }

    pub fn obey(&mut self, config: &Config, mode: FailoverMode) {
        self.promoter = PromoterKind::of(config, mode);
    }

    /// True if roles decide, at least until others have made a primary known.
    fn is_by_roles(&self) -> bool {
        match self.promoter {
            PromoterKind::Weir => false,
            PromoterKind::Others => self.served.is_none(),
            PromoterKind::Nobody => true,
        }
    }

    fn shown(&self, rules: &FailoverRules, state: &FailoverState) -> WriteGate {
        if self.promoter == PromoterKind::Nobody {
            return state.first_in_use(rules).map_or(WriteGate::Shut, WriteGate::First);
        }
        match state.decider(rules) {
            // Until the first release workers do not see the gate change.
            WriteDecider::Gate if self.is_by_roles() => WriteGate::ByRoles,
            WriteDecider::Gate => self.gate,
            WriteDecider::Roles => WriteGate::ByRoles,
            WriteDecider::Nothing => WriteGate::Shut,
        }
    }

    pub fn show(&self, c: &ControlContext, rules: &FailoverRules, state: &FailoverState) {
        let refuses = self.refuses_reads(c);
        let is_out = |id| refuses || state.is_avoided(rules, id);
        if let WriteGate::Open { node, .. } = self.gate
            && c.view.borrow().horizon.is_none()
        {
            // A look may find another Weir's numbers after this one has opened the gate.
            let horizon = horizon_of(c, state, node);
            c.view.borrow_mut().horizon = horizon;
        }
        let (before, gate) = (c.view.borrow().generation, self.in_group(self.shown(rules, state)));
        if let WriteGate::First(node) = gate
            && c.view.borrow().gate != gate
        {
            c.shared.log.say(Level::Log, format_args!("everything goes to node {node} (backend_clustering_mode = raw)"));
        }
        let held = match state.gate {
            weir_failover::WriteTarget::Held(why, _) if gate == WriteGate::Shut => Some(why.describe()),
            weir_failover::WriteTarget::Open { .. } if gate == WriteGate::Shut && self.group.is_some() => Some(NO_EPOCH),
            weir_failover::WriteTarget::Held(..) | weir_failover::WriteTarget::Open { .. } => None,
        };
        cluster_view::govern(c, gate, held, is_out);
        if c.view.borrow().generation != before {
            c.request_role_check(RoleCheckReason::Governed);
        }
    }

    /// Stops writes; returns when no write can leave and no late answer is passed on. Cancel safe.
    pub async fn hold(
        &mut self,
        c: &ControlContext,
        (rules, state): (&FailoverRules, &FailoverState),
        why: WriteHoldReason,
        transactions: OpenTransactionFate,
    ) {
        self.gate = WriteGate::Shut;
        self.show(c, rules, state);
        if self.is_by_roles() {
            return;
        }
        c.shared.log.say(Level::Log, format_args!("writes wait: {}", why.describe()));
        // Where others decide, a primary silent for a moment keeps its transactions.
        if transactions == OpenTransactionFate::End && self.promoter == PromoterKind::Weir {
            self.end_served(c).await;
        }
    }

    /// Cancel safe.
    pub async fn release(
        &mut self,
        c: &ControlContext,
        (rules, state): (&FailoverRules, &FailoverState),
        node: NodeId,
        started_at: Option<u64>,
    ) {
        if self.served.is_some_and(|served| served != node) && self.promoter != PromoterKind::Nobody {
            self.end_served(c).await;
        }
        c.view.borrow_mut().horizon = horizon_of(c, state, node);
        self.served = Some(node);
        self.gate = WriteGate::Open { node, started_at };
        // In a group its epoch tells.
        if self.promoter != PromoterKind::Nobody && self.group.is_none() {
            c.shared.log.say(Level::Log, format_args!("writes go to node {node}"));
        }
        self.show(c, rules, state);
    }

    async fn end_served(&mut self, c: &ControlContext) {
        let Some(node) = self.served.take() else { return };
        let used = cluster_view::end(c, node);
        wait_parted(c, node, &used).await;
    }
}

fn horizon_of(c: &ControlContext, state: &FailoverState, node: NodeId) -> Option<PromotionHorizon> {
    let facts = state.nodes.get(&node)?.facts()?;
    PromotionHorizon::of(c.promoted.get(), node, facts)
}

/// Waits until sessions have let go of these connections. Cancel safe.
pub async fn wait_parted(c: &ControlContext, node: NodeId, conns: &[Arc<ConnStatus>]) {
    let serials: HashSet<u64> = conns.iter().map(|conn| conn.serial).collect();
    let until = Instant::now() + PART_LIMIT;
    // Before the look: a connection closed in between rings it.
    let bell = c.bell(WakeSubject::Parted);
    loop {
        let pools = c.shared.pools.all();
        let mut statuses = pools.iter().filter(|pool| pool.key.node == node).flat_map(|pool| pool.statuses());
        if !statuses.any(|status| serials.contains(&status.serial)) {
            return;
        }
        if Instant::now() >= until {
            let text = format_args!("node {node}: sessions have not let go of all connections in {} ms", PART_LIMIT.as_millis());
            return c.shared.log.say(Level::Warning, text);
        }
        let _ = tokio::time::timeout_at(until, bell.rung()).await;
    }
}
