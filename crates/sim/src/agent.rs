//! Agents beside servers: they stop, start and change them, die, and do an order although its answer is lost.

use weir_failover::{Done, FailoverAction, FailoverEvent, LookFailure, Lsn, Ms, NodeId, PrimaryStopMode, ServerStopResult};

use crate::fault::{Repair, Restarted};
use crate::server::{Logged, Power, Role, WriteId};
use crate::weir::Weir;
use crate::world::{Due, World};

#[derive(Clone, Debug, Default)]
pub struct Agent {
    /// It does not run before this.
    pub down_until: Ms,
    /// The control file of its server: where the last record begins, if it was stopped cleanly.
    pub clean_end: Option<Lsn>,
}

/// Longest stop: of a server whose archive is slow, beyond the limit of Weir.
const SLOW_STOP_MS: Ms = 28_000;

/// An order that an agent works on, and the way for its answer.
#[derive(Debug)]
pub struct Job {
    pub weir: usize,
    pub life: u32,
    pub id: u64,
    pub node: NodeId,
    pub order: Box<FailoverAction>,
    /// Of its server when the order came.
    pub incarnation: u64,
}

/// True if an order goes to the agent and not to the server.
pub fn is_for_agent(order: &FailoverAction) -> bool {
    match order {
        FailoverAction::StopServer { .. }
        | FailoverAction::AskAgent { .. }
        | FailoverAction::Inspect { .. }
        | FailoverAction::StartServer { .. }
        | FailoverAction::RestartServer { .. }
        | FailoverAction::FollowServer { .. } => true,
        FailoverAction::Probe { .. }
        | FailoverAction::Hold { .. }
        | FailoverAction::Release { .. }
        | FailoverAction::Store { .. }
        | FailoverAction::CutOff { .. }
        | FailoverAction::Pledge { .. }
        | FailoverAction::Promote { .. }
        | FailoverAction::WaitWritable { .. }
        | FailoverAction::Repoint { .. }
        | FailoverAction::Fence { .. }
        | FailoverAction::Unfence { .. }
        | FailoverAction::Wake { .. }
        | FailoverAction::Point { .. }
        | FailoverAction::Prepare { .. }
        | FailoverAction::Rejoin { .. }
        | FailoverAction::WaitYielded { .. }
        | FailoverAction::Drain { .. }
        | FailoverAction::RunCommand { .. }
        | FailoverAction::Reply { .. }
        | FailoverAction::WriteStatus { .. }
        | FailoverAction::Report(_) => false,
    }
}

impl World {
    /// An order arrives at an agent.
    pub fn order_agent(&mut self, weir: usize, life: u32, id: u64, node: NodeId, order: Box<FailoverAction>) {
        let at = usize::from(node);
        if self.servers[at].power == Power::Dark {
            return;
        }
        let incarnation = self.servers[at].incarnation;
        let mut job = Job { weir, life, id, node, order, incarnation };
        if self.now < self.agents[at].down_until {
            return self.answer_agent(&job, job.order.failed(self.now, LookFailure::Refused));
        }
        let takes = match *job.order {
            FailoverAction::Inspect { .. } | FailoverAction::AskAgent { .. } => 1,
            FailoverAction::StopServer { mode: PrimaryStopMode::Clean, started_at, .. }
                if self.dice.percent(self.plan.slow_stops) =>
            {
                if self.servers[at].power == Power::Up && self.is_meant(node, started_at) {
                    self.power_off(node, Power::Stopping);
                    job.incarnation = self.servers[at].incarnation;
                }
                self.dice.within(1_000, SLOW_STOP_MS)
            }
            _ => self.dice.within(5, 300),
        };
        self.later(takes, Due::Job(Box::new(job)));
    }

    fn is_meant(&self, node: NodeId, started_at: Option<u64>) -> bool {
        started_at.is_none_or(|started_at| started_at == self.servers[usize::from(node)].started_at)
    }

    /// An agent comes to the end of an order, or has died over it.
    pub fn finish_job(&mut self, job: Box<Job>) {
        let at = usize::from(job.node);
        let is_dead = self.now < self.agents[at].down_until;
        // A server that was told to stop does so without its agent.
        if is_dead && self.servers[at].power != Power::Stopping && self.dice.percent(50) {
            return;
        }
        let event = match (&*job.order, self.servers[at].power) {
            // A server that hangs does as it is told when it goes on.
            (
                FailoverAction::StopServer { mode: PrimaryStopMode::Clean, .. }
                | FailoverAction::StartServer { .. }
                | FailoverAction::RestartServer { .. },
                Power::Hung,
            ) => {
                return self.queues[at].push(Due::Job(job));
            }
            (_, Power::Dark) => return,
            (FailoverAction::StopServer { ballot, started_at, mode, .. }, _) => {
                let (ballot, end) = (*ballot, self.end_server(&job, *started_at, *mode));
                FailoverEvent::ServerStopped { node: job.node, ballot, end }
            }
            (FailoverAction::AskAgent { .. }, _) => FailoverEvent::AgentHeard { node: job.node, done: Done::Yes },
            (FailoverAction::RestartServer { started_at, .. }, _) => {
                self.restart(job.node, *started_at);
                FailoverEvent::ServerStarted { node: job.node, done: Done::Yes }
            }
            (FailoverAction::Inspect { ballot, .. }, power) => {
                let end = self.agents[at].clean_end.filter(|_| power == Power::Stopped);
                FailoverEvent::Inspected { node: job.node, ballot: *ballot, outcome: end.ok_or(LookFailure::Refuses) }
            }
            (FailoverAction::StartServer { .. }, Power::Stopped) => {
                self.servers[at].power = Power::Starting;
                self.agents[at].clean_end = None;
                self.repair(Repair::Ready(job.node, Restarted::Yes));
                FailoverEvent::ServerStarted { node: job.node, done: Done::Yes }
            }
            (FailoverAction::StartServer { .. }, power) => {
                FailoverEvent::ServerStarted { node: job.node, done: if power == Power::Up { Done::Yes } else { Done::No } }
            }
            (FailoverAction::FollowServer { primary, .. }, power) => {
                let done = if power == Power::Stopped { Done::Yes } else { Done::No };
                if done == Done::Yes {
                    let server = &mut self.servers[at];
                    server.role = Role::Standby { upstream: Some(*primary) };
                    (server.heard.at, server.is_read_only) = (None, false);
                }
                FailoverEvent::ServerFollows { node: job.node, done }
            }
            _ => return,
        };
        if !is_dead {
            self.answer_agent(&job, Some(event));
        }
    }

    fn answer_agent(&mut self, job: &Job, event: Option<FailoverEvent>) {
        let Some(event) = event else { return };
        let delay = self.delay();
        self.later(delay, Due::Answer { weir: job.weir, life: job.life, id: job.id, node: job.node, event: Box::new(event) });
    }

    /// A stop is over, of either kind.
    fn end_server(&mut self, job: &Job, started_at: Option<u64>, mode: PrimaryStopMode) -> ServerStopResult {
        let at = usize::from(job.node);
        let is_it = self.is_meant(job.node, started_at);
        let is_same = self.servers[at].incarnation == job.incarnation;
        match (mode, self.servers[at].power) {
            (_, Power::Stopped) => ServerStopResult::Before,
            (PrimaryStopMode::Clean, Power::Up | Power::Stopping) if is_it && is_same => self.stop(job.node),
            (PrimaryStopMode::Crash, Power::Up | Power::Stopping | Power::Starting | Power::Hung) if is_it => {
                self.agents[at].clean_end = None;
                self.counts.ended += 1;
                self.blame_end(job.weir, job.node);
                self.power_off(job.node, Power::Stopped);
                self.note(|| format!("node {} is ended", job.node));
                ServerStopResult::Now
            }
            _ => ServerStopResult::Unknown,
        }
    }

    fn restart(&mut self, node: NodeId, started_at: u64) {
        let power = self.servers[usize::from(node)].power;
        if power == Power::Stopped || power == Power::Up && self.is_meant(node, Some(started_at)) {
            self.power_off(node, Power::Stopped);
            self.servers[usize::from(node)].power = Power::Starting;
            self.agents[usize::from(node)].clean_end = None;
            let lasts = self.dice.within(50, 1_000);
            self.repair_in(lasts, Repair::Ready(node, Restarted::Yes));
        }
    }

    /// A server comes to the end of a stop. In some runs a few of them fail over it.
    fn stop(&mut self, node: NodeId) -> ServerStopResult {
        if self.dice.percent(self.plan.slow_stops / 4) {
            self.agents[usize::from(node)].clean_end = None;
            self.power_off(node, Power::Stopped);
            self.note(|| format!("node {node} fails as it is stopped"));
        } else {
            self.stop_cleanly(node);
        }
        ServerStopResult::Now
    }

    /// A server that stops writes a last record and sends all log to the standbys that are there.
    pub fn stop_cleanly(&mut self, node: NodeId) -> Done {
        let at = usize::from(node);
        let end = self.servers[at].position();
        if self.servers[at].is_primary() {
            self.counts.last_records += 1;
            let record = WriteId::MAX - self.counts.last_records;
            self.servers[at].log(Logged { write: record, number: 0, row: None });
        }
        let source = self.servers[at].clone();
        for to in 0..self.servers.len() {
            let is_linked = self.passes(at, to) && self.passes(to, at);
            let standby = &mut self.servers[to];
            let follows = standby.role == (Role::Standby { upstream: Some(node) }) && standby.heard.at.is_some();
            if to != at && is_linked && follows && standby.power == Power::Up && standby.can_follow(&source) {
                let log = source.log[standby.log.len()..].to_vec();
                standby.receive(&log, &source.history);
            }
        }
        self.agents[at].clean_end = Some(end);
        self.power_off(node, Power::Stopped);
        self.note(|| format!("node {node} is stopped cleanly at {end}"));
        Done::Yes
    }

    /// Looks if another Weir still writes to a node, as its connection there shows.
    pub fn wait_yielded(&mut self, weir: usize, life: u32, node: NodeId, until: Ms) {
        const PERIOD_MS: Ms = 10;
        if self.weirs[weir].life != life {
            return;
        }
        let writes = |of: &Weir| of.gate().is_some_and(|(target, _)| target == node) || !of.writes.is_empty();
        let is_used = self.weirs.iter().enumerate().any(|(at, of)| at != weir && of.state.is_some() && writes(of));
        let is_seen = self.servers[usize::from(node)].power == Power::Up && self.passes(usize::from(node), self.end_of(weir));
        if self.now >= until || is_seen && !is_used {
            return self.tell(weir, &FailoverEvent::Yielded { node });
        }
        self.later(PERIOD_MS, Due::WaitYielded { weir, life, node, until });
    }

    /// Looks if a Weir's writes are answered that it had sent before writes were to wait.
    pub fn drain(&mut self, weir: usize, life: u32, node: NodeId, until: Ms) {
        const PERIOD_MS: Ms = 5;
        if self.weirs[weir].life != life {
            return;
        }
        if self.weirs[weir].writes.is_empty() || self.now >= until {
            if self.weirs[weir].host.is_some() {
                return self.own_drained(weir, node);
            }
            return self.tell(weir, &FailoverEvent::Drained { node });
        }
        self.later(PERIOD_MS, Due::Drain { weir, life, node, until });
    }
}
