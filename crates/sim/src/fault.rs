//! Faults of servers, networks and Weirs, and how long they last.

use weir_failover::{Ms, NodeId, OperatorRequest};

use crate::kinds::{Fault, Scripted};
use crate::plan;
use crate::server::{Power, Role};
use crate::world::{Due, World};

/// The end of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// It begins to start.
    Start(NodeId),
    /// It is there.
    Ready(NodeId, Restarted),
    /// SIGCONT.
    Continue(NodeId),
    Weir(usize),
    Attach(NodeId),
    /// Its replay goes on.
    Replays(NodeId),
}

/// If the postmaster itself was started anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restarted {
    Yes,
    No,
}

impl World {
    /// One fault, as the plan's shares and the dice want it.
    pub(crate) fn strike(&mut self) {
        let total: u64 = self.plan.shares.iter().map(|(_, share)| share).sum();
        let mut at = self.dice.below(total);
        let Some(fault) = self.plan.shares.iter().find_map(|(fault, share)| {
            let is_it = at < *share;
            at = at.saturating_sub(*share);
            is_it.then_some(*fault)
        }) else {
            return;
        };
        // The primary is worth more trouble than the others.
        let primary = self.servers.iter().find(|server| server.is_primary()).map(|server| server.id);
        let any = self.dice.below(u64::from(self.plan.nodes)) as NodeId;
        let node = primary.filter(|_| self.dice.percent(60)).unwrap_or(any);
        let lasts = if self.dice.percent(50) { self.dice.within(100, 2_500) } else { self.dice.within(2_500, 12_000) };
        self.note(|| format!("fault {fault:?} of node {node} for {lasts} ms"));
        self.apply(fault, node, lasts);
    }

    fn apply(&mut self, fault: Fault, node: NodeId, lasts: Ms) {
        let at = usize::from(node);
        match fault {
            Fault::Kill => {
                self.power_off(node, Power::Stopped);
                self.repair_in(lasts, Repair::Start(node));
            }
            Fault::Dark => {
                self.power_off(node, Power::Dark);
                self.repair_in(lasts, Repair::Start(node));
            }
            Fault::CrashInPlace if self.servers[at].power == Power::Up => {
                self.power_off(node, Power::Starting);
                let lasts = self.dice.within(50, 2_000);
                self.repair_in(lasts, Repair::Ready(node, Restarted::No));
            }
            Fault::Hang if self.servers[at].power == Power::Up => {
                self.servers[at].power = Power::Hung;
                self.repair_in(lasts, Repair::Continue(node));
            }
            Fault::CrashInPlace | Fault::Hang => {}
            Fault::Cut => {
                let other = self.dice.below(self.ends() as u64) as usize;
                let (from, to) = if self.dice.percent(50) { (at, other) } else { (other, at) };
                self.cut(from, to, lasts);
            }
            Fault::Blind => {
                let weir = self.plan.nodes as usize + self.dice.below(self.plan.weirs as u64) as usize;
                self.cut(at, weir, lasts);
                self.cut(weir, at, lasts);
            }
            Fault::Narrow => {
                let weir = self.plan.nodes as usize + self.dice.below(self.plan.weirs as u64) as usize;
                for other in (0..usize::from(self.plan.nodes)).filter(|other| *other != at) {
                    self.cut(other, weir, lasts);
                    self.cut(weir, other, lasts);
                }
            }
            Fault::Island => {
                for other in 0..usize::from(self.plan.nodes) {
                    self.cut(at, other, lasts);
                    self.cut(other, at, lasts);
                }
            }
            Fault::Split => self.split(lasts),
            Fault::WeirDies => {
                let weir = self.some_process();
                self.kill_weir(weir);
                let lasts = self.dice.within(50, 4_000);
                self.repair_in(lasts, Repair::Weir(weir));
            }
            Fault::Promoted => self.promote_by_hand(node),
            Fault::SwitchOver => self.switch_over(),
            Fault::Restart => {
                let weir = self.dice.below(self.plan.weirs as u64) as usize;
                self.ask(weir, OperatorRequest::Restart(node));
            }
            Fault::ReplayStands => self.hold_replay(node, lasts),
            Fault::WeirHangs => {
                let weir = self.some_process();
                let weir = self.leader().filter(|_| self.dice.percent(50)).unwrap_or(weir);
                self.stop_member(weir, lasts);
            }
            Fault::WeirIsland => {
                let weir = self.some_process();
                let weir = self.leader().filter(|_| self.dice.percent(50)).unwrap_or(weir);
                let (end, both) = (self.end_of(weir), self.dice.percent(60));
                for other in usize::from(self.plan.nodes)..self.ends() {
                    self.cut(end, other, lasts);
                    if both {
                        self.cut(other, end, lasts);
                    }
                }
            }
            Fault::LeaderDies => {
                let Some(leader) = self.leader() else { return };
                self.kill_weir(leader);
                self.repair_in(lasts, Repair::Weir(leader));
            }
            Fault::TakenOver => {
                let seat = self.dice.below(self.plan.weirs as u64) as usize;
                let weir = self.leader().filter(|_| self.dice.percent(50)).unwrap_or(self.serving[seat]);
                self.begin_takeover(weir);
            }
            Fault::DiskLost => self.lose_disk(lasts),
            Fault::MemberRemoved => self.remove_member(lasts),
            Fault::ShutDown => self.shut_down(lasts),
            Fault::EtcdSilent => self.etcd.silent_until = self.etcd.silent_until.max(self.now + lasts),
            Fault::AgentDies => {
                let until = self.now + lasts;
                self.agents[at].down_until = self.agents[at].down_until.max(until);
            }
            Fault::Detached => {
                let weir = self.dice.below(self.plan.weirs as u64) as usize;
                self.ask(weir, OperatorRequest::Detach(node));
                self.repair_in(lasts, Repair::Attach(node));
            }
        }
    }

    fn promote_by_hand(&mut self, node: NodeId) {
        let server = &self.servers[usize::from(node)];
        if server.power == Power::Up && matches!(server.role, Role::Standby { .. }) {
            let reign = self.next_reign();
            self.servers[usize::from(node)].promote(reign);
        }
    }

    fn hold_replay(&mut self, node: NodeId, lasts: Ms) {
        let server = &mut self.servers[usize::from(node)];
        if server.power == Power::Up && !server.is_primary() {
            server.heard.stands_at = Some(server.position());
            self.repair_in(lasts, Repair::Replays(node));
        }
    }

    /// The operator asks some Weir to move the primary to some node.
    fn switch_over(&mut self) {
        let weir = self.dice.below(self.plan.weirs as u64) as usize;
        let to = self.dice.below(u64::from(self.plan.nodes)) as NodeId;
        self.ask(weir, OperatorRequest::SwitchOver(to));
    }

    /// The network falls into two parts.
    fn split(&mut self, lasts: Ms) {
        let sides: Vec<bool> = (0..self.ends()).map(|_| self.dice.percent(50)).collect();
        for from in 0..self.ends() {
            for to in (0..self.ends()).filter(|to| sides[from] != sides[*to]) {
                self.cut(from, to, lasts);
            }
        }
    }

    pub(crate) fn repair(&mut self, repair: Repair) {
        self.note(|| format!("repair {repair:?}"));
        match repair {
            Repair::Start(node) => {
                let server = &mut self.servers[usize::from(node)];
                if matches!(server.power, Power::Stopped | Power::Dark) {
                    server.power = Power::Starting;
                    self.agents[usize::from(node)].clean_end = None;
                    let lasts = self.dice.within(50, 1_000);
                    self.repair_in(lasts, Repair::Ready(node, Restarted::Yes));
                }
            }
            Repair::Ready(node, restarted) => {
                let server = &mut self.servers[usize::from(node)];
                if server.power == Power::Starting {
                    (server.power, server.numbers.clock.steady_from) = (Power::Up, self.now);
                    server.checkpoint(self.now);
                    if restarted == Restarted::Yes {
                        server.started_at += 1;
                        server.numbers.clock.started_at = self.now;
                    }
                }
            }
            Repair::Continue(node) => {
                if self.servers[usize::from(node)].power == Power::Hung {
                    let server = &mut self.servers[usize::from(node)];
                    (server.power, server.numbers.clock.steady_from) = (Power::Up, self.now);
                    self.run_queue(node);
                }
            }
            Repair::Weir(weir) => self.start_weir(weir),
            Repair::Replays(node) => self.servers[usize::from(node)].heard.stands_at = None,
            Repair::Attach(node) => {
                let asked = if self.weirs[0].host.is_some() { 1 } else { self.plan.weirs };
                for weir in 0..asked {
                    self.ask(weir, OperatorRequest::Attach(node));
                }
            }
        }
    }

    /// Trouble at the worst moment: while a Weir obeys an order that matters.
    pub(crate) fn spite(&mut self, weir: usize) {
        if self.now < plan::FAULTS_FROM || self.now > plan::HEALED_AT || !self.dice.percent(self.plan.spite) {
            return;
        }
        let node = self.dice.below(u64::from(self.plan.nodes)) as NodeId;
        let lasts = self.dice.within(20, 3_000);
        match self.dice.below(5) {
            0 => {
                // It dies after what it does now, not in the middle of this call.
                let after = self.dice.within(1, 30);
                self.later(after, Due::Spite { weir });
            }
            1 => self.apply(Fault::Kill, node, lasts),
            2 => self.apply(Fault::Blind, node, lasts),
            3 => {
                let stopped: Vec<NodeId> =
                    self.servers.iter().filter(|server| server.power == Power::Stopped).map(|server| server.id).collect();
                for node in stopped {
                    self.servers[usize::from(node)].power = Power::Starting;
                    self.agents[usize::from(node)].clean_end = None;
                    // No server is faster.
                    let lasts = self.dice.within(20, 60);
                    self.repair_in(lasts, Repair::Ready(node, Restarted::Yes));
                }
            }
            _ if self.plan.is_planned && self.dice.percent(50) => self.apply(Fault::AgentDies, node, lasts),
            _ => self.apply(Fault::Narrow, node, lasts),
        }
    }

    /// The fault that the script has for this order, if it has one.
    pub(crate) fn follow_script(&mut self) {
        if self.now < plan::FAULTS_FROM || self.plan.script.is_empty() {
            return;
        }
        self.orders += 1;
        let due: Vec<Scripted> = self.plan.script.iter().filter(|(at, _)| *at == self.orders).map(|(_, fault)| *fault).collect();
        for fault in due {
            self.note(|| format!("script {fault:?}"));
            match fault {
                Scripted::WeirDies => self.later(0, Due::Spite { weir: 0 }),
                Scripted::WeirDiesLater => self.later(180, Due::Spite { weir: 0 }),
                Scripted::OldStarts => self.start_old(),
                Scripted::OtherDies => self.apply(Fault::Kill, 1, 3_000),
                Scripted::OldAlone => self.leave_old(0),
                Scripted::OldAloneForLast => self.leave_old(self.plan.weirs - 1),
            }
        }
    }

    fn start_old(&mut self) {
        if self.servers[0].power == Power::Stopped {
            self.servers[0].power = Power::Starting;
            self.repair_in(20, Repair::Ready(0, Restarted::Yes));
        }
    }

    fn leave_old(&mut self, weir: usize) {
        self.start_old();
        let end = self.end_of(weir);
        for other in 1..self.servers.len() {
            self.cut(other, end, 6_000);
            self.cut(end, other, 6_000);
        }
    }

    /// The first fault of a script.
    pub(crate) fn kill_first(&mut self) {
        self.apply(Fault::Kill, 0, 8_000);
    }

    /// All faults end.
    pub(crate) fn heal(&mut self) {
        self.note(|| "healed".into());
        self.cuts.iter_mut().flatten().for_each(|until| *until = 0);
        for node in 0..self.plan.nodes {
            self.repair(Repair::Start(node));
            self.repair(Repair::Continue(node));
            self.repair(Repair::Replays(node));
            // A server that is still starting is refused, or one that stops.
            [500, 4_000, 12_000, 26_000].into_iter().for_each(|at| self.repair_in(at, Repair::Attach(node)));
        }
        self.agents.iter_mut().for_each(|agent| agent.down_until = 0);
        self.etcd.silent_until = 0;
        (0..self.weirs.len()).for_each(|weir| self.continue_member(weir));
        (0..self.weirs.len()).for_each(|weir| self.start_weir(weir));
        self.plan.loss = 0;
    }
}
