//! The world of a run: time, messages under way, servers, Weirs.

use weir_failover::{Done, FailoverAction, FailoverEvent, LookFailure, Ms, NodeId, OperatorRequest, ProbeResult, ServerConnEnd};
use weir_group::EngineKind;

use crate::again::{Again, Version};
use crate::agenda::Agenda;
use crate::agent::{self, Agent, Job};
use crate::dice::Dice;
use crate::doubt::{Question, Reply, Told};
use crate::etcd::Etcd;
use crate::fault::Repair;
use crate::group_oracle::GroupDecisions;
use crate::host_kernel::HostKernel;
use crate::kinds::GroupPart;
use crate::member_host::{MemberDue, MemberHost};
use crate::oracle::{Broken, Write};
use crate::plan::{self, Options, Plan, WeirCompany};
use crate::returning::{Return, Step};
use crate::script_scene::ScriptScene;
use crate::server::{Power, Role, Server, WriteId};
use crate::traffic::Packet;
use crate::weir::Weir;

/// Something that is due.
#[derive(Debug)]
pub enum Due {
    Timer {
        weir: usize,
        life: u32,
    },
    Stored {
        weir: usize,
        life: u32,
        number: u64,
        done: Done,
    },
    /// An order of a Weir arrives at its server.
    Order {
        weir: usize,
        life: u32,
        id: u64,
        node: NodeId,
        order: Box<FailoverAction>,
    },
    /// Its answer arrives.
    Answer {
        weir: usize,
        life: u32,
        id: u64,
        node: NodeId,
        event: Box<FailoverEvent>,
    },
    Limit {
        weir: usize,
        life: u32,
        id: u64,
    },
    /// A Weir hears that a connection ended.
    Broken {
        weir: usize,
        life: u32,
        node: NodeId,
        how: ServerConnEnd,
    },
    /// A promotion is finished by the server.
    Promote {
        node: NodeId,
        incarnation: u64,
    },
    /// One past all Weirs wants to write.
    Direct,
    /// A client wants to write.
    Client {
        weir: usize,
    },
    /// A write arrives at its server, over a connection to one of its incarnations, or a new one.
    Write {
        write: WriteId,
        connection: Option<u64>,
    },
    /// Its answer arrives at the Weir.
    Acknowledged {
        write: WriteId,
        incarnation: u64,
    },
    Failed {
        write: WriteId,
        how: ServerConnEnd,
    },
    /// The first answer of a transaction arrives at the Weir.
    Shown {
        write: WriteId,
        version: Version,
    },
    /// Its client sends the COMMIT.
    Commit {
        write: WriteId,
    },
    /// The answer to the question ahead of it arrives at the Weir.
    Confirmed {
        write: WriteId,
        said_ms: u64,
    },
    /// A server hears that a transaction's connection has ended.
    Closed {
        write: WriteId,
    },
    Again(Again),
    /// A client waits no longer.
    GivenUp {
        write: WriteId,
    },
    /// A Weir asks what became of a COMMIT.
    Ask {
        weir: usize,
        life: u32,
        write: WriteId,
    },
    Question(Question),
    Reply(Box<Reply>),
    /// A standby asks for more.
    Pull {
        node: NodeId,
    },
    Packet(Packet),
    /// An agent comes to the end of an order.
    Job(Box<Job>),
    Return(Return, Step),
    /// A Weir waits until no other one writes to a node.
    WaitYielded {
        weir: usize,
        life: u32,
        node: NodeId,
        until: Ms,
    },
    /// A Weir waits for its writes to be answered.
    Drain {
        weir: usize,
        life: u32,
        node: NodeId,
        until: Ms,
    },
    Strike,
    /// The first fault of a script.
    Killed,
    /// A Weir dies at a bad moment.
    Spite {
        weir: usize,
    },
    /// A moment of a script of members.
    Scene(ScriptScene),
    Repair(Repair),
    Operator,
    Heal,
    /// Something at a member of a group.
    Member {
        weir: usize,
        due: MemberDue,
    },
}

impl Due {
    /// The Weir whose process does this.
    pub fn weir(&self) -> Option<usize> {
        match self {
            Due::Timer { weir, .. }
            | Due::Stored { weir, .. }
            | Due::Answer { weir, .. }
            | Due::Limit { weir, .. }
            | Due::Broken { weir, .. }
            | Due::Client { weir }
            | Due::Ask { weir, .. }
            | Due::WaitYielded { weir, .. }
            | Due::Drain { weir, .. } => Some(*weir),
            Due::Reply(reply) => Some(reply.weir()),
            Due::Again(again) => Some(again.weir()),
            // The kernel, etcd and others do this.
            Due::Member {
                due:
                    MemberDue::Continue { .. }
                    | MemberDue::KernelObeys { .. }
                    | MemberDue::EngineAsked { .. }
                    | MemberDue::DiskLost { .. },
                ..
            } => None,
            Due::Member { weir, .. } => Some(*weir),
            Due::Return(..)
            | Due::Acknowledged { .. }
            | Due::Failed { .. }
            | Due::Shown { .. }
            | Due::Commit { .. }
            | Due::Confirmed { .. }
            | Due::Order { .. }
            | Due::Promote { .. }
            | Due::Direct
            | Due::Write { .. }
            | Due::Closed { .. }
            | Due::GivenUp { .. }
            | Due::Question(_)
            | Due::Pull { .. }
            | Due::Packet(_)
            | Due::Job(_)
            | Due::Strike
            | Due::Killed
            | Due::Scene(_)
            | Due::Spite { .. }
            | Due::Repair(_)
            | Due::Operator
            | Due::Heal => None,
        }
    }

    /// The write that comes to its Weir by this.
    pub fn write(&self) -> Option<WriteId> {
        match self {
            Due::Acknowledged { write, .. }
            | Due::Failed { write, .. }
            | Due::Shown { write, .. }
            | Due::Commit { write }
            | Due::Confirmed { write, .. } => Some(*write),
            _ => None,
        }
    }
}

pub struct World {
    pub now: Ms,
    pub dice: Dice,
    pub plan: Plan,
    pub servers: Vec<Server>,
    pub agents: Vec<Agent>,
    /// Processes. Those that took over stand behind the first ones of the hosts.
    pub weirs: Vec<Weir>,
    /// The process of each host that serves new clients, or did last.
    pub serving: Vec<usize>,
    pub writes: Vec<Write>,
    pub needless: Vec<Broken>,
    pub decisions: GroupDecisions,
    /// Of the hosts of a group.
    pub kernels: Vec<HostKernel>,
    pub dice_of_addresses: Dice,
    pub etcd: Etcd,
    /// Until when nothing gets from one end to another: servers first, then Weirs, then etcd where it is the engine.
    pub cuts: Vec<Vec<Ms>>,
    /// Orders that wait in hung servers.
    pub queues: Vec<Vec<Due>>,
    /// Until when orders that were given are on their way to a server.
    pub orders_until: Vec<Ms>,
    agenda: Agenda<Due>,
    pub counts: Counts,
    pub events: u64,
    pub orders: u64,
    /// The lines of the run, if they are wanted.
    pub trace: Option<Vec<String>>,
}

/// Things that have a number each.
#[derive(Debug, Default)]
pub struct Counts {
    pub numbers: u64,
    /// Times of servers as primaries.
    pub reigns: u64,
    /// Last records of servers that were stopped.
    pub last_records: u64,
    pub brought_back: usize,
    pub ended: usize,
    pub told: Told,
    /// Answers that came after the lease.
    pub too_late: usize,
    /// Promotions by orders of former leaders.
    pub late_promotions: usize,
    /// Terms of a group.
    pub terms: u64,
    /// Lives of members.
    pub lives: u64,
    /// Processes that took over.
    pub takeovers: usize,
    pub disks_lost: usize,
    /// Beside another process of their host.
    pub disks_lost_beside: usize,
    /// Weirs that were stopped in good order, and hosts that left a group.
    pub shutdowns: usize,
    pub members_left: usize,
    /// Hosts that an operator wanted removed.
    pub removals: usize,
}

fn weirs(seed: u64, plan: &Plan) -> Vec<Weir> {
    let mut dice = Dice::new(seed ^ 0x40575);
    let host = |at: usize, dice: &mut Dice| match plan.company {
        WeirCompany::Single => None,
        WeirCompany::Group => Some(Box::new(MemberHost::new(at as u8, dice))),
    };
    (0..plan.weirs).map(|at| Weir::new(at as u32 + 11, at, plan.rules.clone(), host(at, &mut dice))).collect()
}

/// Time a WaitWritable asks again.
const ASK_AGAIN_MS: Ms = 40;
/// Time between two looks of the operator.
const OPERATOR_MS: Ms = 1_500;
/// Time in which agents bring servers back before the operator helps.
const OPERATOR_LATE_MS: Ms = 15_000;

impl World {
    pub fn new(seed: u64, plan: Plan, options: Options) -> World {
        let role = |id| if id == 0 { Role::Primary } else { Role::Standby { upstream: Some(0) } };
        let servers: Vec<Server> = (0..plan.nodes).map(|id| Server::new(id, role(id), &plan.sync_names, plan.nodes)).collect();
        let ends = servers.len() + plan.weirs + usize::from(plan.engine == EngineKind::Outside);
        World {
            now: 0,
            dice: Dice::new(seed ^ 0xABCD),
            weirs: weirs(seed, &plan),
            serving: (0..plan.weirs).collect(),
            decisions: GroupDecisions::default(),
            kernels: vec![HostKernel::default(); plan.weirs],
            dice_of_addresses: Dice::new(seed ^ 0xADD2),
            etcd: Etcd::default(),
            writes: Vec::new(),
            needless: Vec::new(),
            cuts: vec![vec![0; ends]; ends],
            orders_until: vec![0; servers.len()],
            queues: servers.iter().map(|_| Vec::new()).collect(),
            agents: servers.iter().map(|_| Agent::default()).collect(),
            servers,
            plan: Plan { unproved: options.unproved, ..plan },
            agenda: Agenda::new(),
            counts: Counts { reigns: 1, ..Counts::default() },
            events: 0,
            orders: 0,
            trace: options.traces.then(Vec::new),
        }
    }

    pub fn play(&mut self) {
        for at in 0..self.weirs.len() {
            self.start_weir(at);
            self.begin_clients(at);
        }
        for node in 0..self.plan.nodes {
            self.later(u64::from(node) + 1, Due::Pull { node });
        }
        for _ in 0..self.plan.faults {
            let at = self.dice.within(plan::FAULTS_FROM, plan::HEALED_AT - 1_000);
            self.later(at, Due::Strike);
        }
        if !self.plan.sync_names.is_empty() {
            self.later(50, Due::Direct);
        }
        if !self.plan.script.is_empty() {
            self.later(plan::FAULTS_FROM, Due::Killed);
        }
        if self.plan.member_script.is_some() {
            self.later(plan::FAULTS_FROM, Due::Scene(ScriptScene::Begins));
        }
        self.later(OPERATOR_MS, Due::Operator);
        self.later(plan::HEALED_AT, Due::Heal);
        while let Some((at, due)) = self.agenda.take() {
            self.now = at;
            self.events += 1;
            if self.now >= plan::WELL_AT
                || (self.now > plan::HEALED_AT + 4_000 && self.events.is_multiple_of(64) && self.is_well())
            {
                break;
            }
            if let Some(due) = self.hold_up(due) {
                self.happen(due);
                self.look_at_group();
                self.look_at_addresses();
            }
        }
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Timer { weir, life } => {
                if self.weirs[weir].life == life && self.weirs[weir].timer_at <= self.now {
                    self.weirs[weir].timer_at = Ms::MAX;
                    self.tell(weir, &FailoverEvent::Timer);
                }
            }
            Due::Stored { weir, life, number, done } => self.stored(weir, life, number, done),
            Due::Order { weir, life, id, node, order } => self.order(weir, life, id, node, order),
            Due::Answer { weir, life, id, node, event } => {
                if self.passes(usize::from(node), self.end_of(weir)) {
                    self.answer(weir, life, id, &event);
                }
            }
            Due::Limit { weir, life, id } => self.limit(weir, life, id),
            Due::Broken { weir, life, node, how } => {
                if self.weirs[weir].life == life {
                    self.weirs[weir].connections.remove(&node);
                    self.break_transactions(weir, node);
                    self.tell(weir, &FailoverEvent::ConnDied { node, how });
                }
            }
            Due::Promote { node, incarnation } => {
                let server = &self.servers[usize::from(node)];
                let is_it = server.power == Power::Up && server.incarnation == incarnation && !server.is_primary();
                if is_it && server.heard.stands_at.is_some() {
                    self.later(ASK_AGAIN_MS, Due::Promote { node, incarnation });
                } else if is_it {
                    let reign = self.next_reign();
                    self.servers[usize::from(node)].promote(reign);
                    self.note(|| format!("node {node} is promoted, reign {reign}"));
                }
            }
            Due::Client { weir } => self.client(weir),
            Due::Direct => self.direct(),
            Due::Write { write, connection } => self.write(write, connection),
            Due::Acknowledged { write, incarnation } => self.acknowledged(write, incarnation),
            Due::Failed { write, how } => self.write_failed(write, how),
            Due::Shown { write, version } => self.shown(write, version),
            Due::Commit { write } => self.commit(write),
            Due::Confirmed { write, said_ms } => self.confirmed(write, said_ms),
            Due::Closed { write } => self.closed(write),
            Due::Again(again) => self.run_again(again),
            Due::GivenUp { write } => self.give_up(write),
            Due::Ask { weir, life, write } => self.ask_outcome(weir, life, write),
            Due::Question(question) => self.question(question),
            Due::Reply(reply) => self.reply(*reply),
            Due::Pull { node } => self.pull(node),
            Due::Packet(packet) => self.packet(packet),
            Due::Job(job) => self.finish_job(job),
            Due::Return(of, step) => self.return_step(of, step),
            Due::WaitYielded { weir, life, node, until } => self.wait_yielded(weir, life, node, until),
            Due::Drain { weir, life, node, until } => self.drain(weir, life, node, until),
            Due::Strike => self.strike(),
            Due::Killed => self.kill_first(),
            Due::Scene(scene) => self.play_scene(scene),
            Due::Spite { weir } => {
                self.kill_weir(weir);
                let lasts = self.dice.within(20, 2_000);
                self.repair_in(lasts, Repair::Weir(weir));
            }
            Due::Repair(repair) => self.repair(repair),
            Due::Operator => self.operate(),
            Due::Heal => self.heal(),
            Due::Member { weir, due } => self.member_due(weir, due),
        }
    }

    /// An order of a Weir at its server.
    fn order(&mut self, weir: usize, life: u32, id: u64, node: NodeId, order: Box<FailoverAction>) {
        let at = usize::from(node);
        if !self.passes(self.end_of(weir), at) {
            return;
        }
        if agent::is_for_agent(&order) {
            return self.order_agent(weir, life, id, node, order);
        }
        let begun_at = self.weirs[weir].open.get(&id).map_or(self.now, |(_, begun_at)| *begun_at);
        let failure = match self.servers[at].power {
            Power::Dark => return,
            Power::Hung => {
                // It is answered when it goes on, however late.
                return self.queues[at].push(Due::Order { weir, life, id, node, order });
            }
            Power::Stopped => Some(LookFailure::Refused),
            Power::Starting => Some(LookFailure::Starting),
            Power::Stopping => Some(LookFailure::ShuttingDown),
            Power::Up => None,
        };
        let event = match failure {
            Some(failure) => order.failed(begun_at, failure),
            None => self.execute(weir, life, id, node, order, begun_at),
        };
        if let Some(event) = event {
            let delay = self.delay();
            self.later(delay, Due::Answer { weir, life, id, node, event: Box::new(event) });
        }
    }

    fn execute(
        &mut self,
        weir: usize,
        life: u32,
        id: u64,
        node: NodeId,
        order: Box<FailoverAction>,
        begun_at: Ms,
    ) -> Option<FailoverEvent> {
        let now = self.now;
        let server = &mut self.servers[usize::from(node)];
        Some(match &*order {
            FailoverAction::Probe { .. } => {
                FailoverEvent::Probed { node, begun_at, found: ProbeResult::Answered(Box::new(server.facts(now))) }
            }
            FailoverAction::CutOff { ballot, .. } => {
                FailoverEvent::Pledged { node, ballot: *ballot, outcome: server.pledge(*ballot, true, now) }
            }
            FailoverAction::Pledge { ballot, .. } => {
                FailoverEvent::Pledged { node, ballot: *ballot, outcome: server.pledge(*ballot, false, now) }
            }
            FailoverAction::Promote { ballot, .. } => {
                let obeys = server.mark.promised == *ballot || self.plan.group_without == Some(GroupPart::ServerMarks);
                let done = if obeys { Done::Yes } else { Done::No };
                let incarnation = server.incarnation;
                if done == Done::Yes {
                    let is_refusable = server.mark.promised != *ballot;
                    self.judge_promotion((weir, id), node, is_refusable);
                    self.see_promotion(weir, life, node);
                    let takes = self.dice.within(10, 300);
                    self.later(takes, Due::Promote { node, incarnation });
                }
                FailoverEvent::Promoted { node, ballot: *ballot, done }
            }
            FailoverAction::WaitWritable { ballot, .. } if server.is_primary() => {
                let facts = server.facts(now);
                self.see_writable(weir, life, node);
                FailoverEvent::Writable { node, ballot: *ballot, outcome: Ok(facts) }
            }
            FailoverAction::WaitWritable { .. } => {
                if self.weirs[weir].open.contains_key(&id) {
                    self.later(ASK_AGAIN_MS, Due::Order { weir, life, id, node, order });
                }
                return None;
            }
            FailoverAction::Repoint { vote, .. } => {
                let sender = &self.weirs[weir];
                let numbers = sender.doubts.numbers(node).filter(|_| sender.life == life);
                FailoverEvent::Repointed { node, vote: *vote, outcome: server.repoint(*vote, numbers) }
            }
            FailoverAction::Fence { ballot, .. } => {
                let done = if server.mark.promised <= *ballot { Done::Yes } else { Done::No };
                if done == Done::Yes {
                    server.is_read_only = true;
                    server.end_open();
                }
                FailoverEvent::Fenced { node, done }
            }
            FailoverAction::Prepare { .. } => FailoverEvent::Prepared { node },
            FailoverAction::Wake { .. } => FailoverEvent::Pointed { node, done: Done::Yes },
            FailoverAction::Point { primary, ballot, .. } => {
                FailoverEvent::Pointed { node, done: server.point(*primary, *ballot) }
            }
            FailoverAction::Unfence { .. } => {
                server.is_read_only = false;
                FailoverEvent::Unfenced { node, done: Done::Yes }
            }
            // Orders for the agent are `order_agent`'s, all others the Weir's own.
            FailoverAction::StopServer { .. }
            | FailoverAction::AskAgent { .. }
            | FailoverAction::Inspect { .. }
            | FailoverAction::StartServer { .. }
            | FailoverAction::RestartServer { .. }
            | FailoverAction::FollowServer { .. }
            | FailoverAction::WaitYielded { .. }
            | FailoverAction::Hold { .. }
            | FailoverAction::Release { .. }
            | FailoverAction::Store { .. }
            | FailoverAction::Drain { .. }
            | FailoverAction::Rejoin { .. }
            | FailoverAction::RunCommand { .. }
            | FailoverAction::Reply { .. }
            | FailoverAction::WriteStatus { .. }
            | FailoverAction::Report(_) => return None,
        })
    }

    /// Runs the messages that a hung server finds when it goes on.
    pub fn run_queue(&mut self, node: NodeId) {
        for due in std::mem::take(&mut self.queues[usize::from(node)]) {
            self.later(1, due);
        }
    }

    /// Ends a server, and its connections with it. A host without power tells nobody.
    pub fn power_off(&mut self, node: NodeId, power: Power) {
        let server = &mut self.servers[usize::from(node)];
        if !matches!(server.power, Power::Up | Power::Hung | Power::Starting | Power::Stopping) {
            return;
        }
        server.power = power;
        // With its sessions the report ends.
        server.heard.stands_at = None;
        server.drop_connections();
        self.queues[usize::from(node)].clear();
        for weir in 0..self.weirs.len() {
            let life = self.weirs[weir].life;
            let is_told = power != Power::Dark && self.passes(usize::from(node), self.end_of(weir));
            if is_told && self.weirs[weir].connections.contains_key(&node) {
                let delay = self.delay();
                self.later(delay, Due::Broken { weir, life, node, how: ServerConnEnd::Terminated });
            }
        }
    }

    /// The operator makes servers anew that cannot follow, once all Weirs agree on a primary.
    fn operate(&mut self) {
        self.later(OPERATOR_MS, Due::Operator);
        if !self.plan.is_returning && self.now > plan::HEALED_AT {
            // A switchover or an agent may have stopped one since.
            (0..self.plan.nodes).for_each(|node| self.repair(Repair::Start(node)));
        }
        if self.plan.is_returning && self.now < plan::HEALED_AT + OPERATOR_LATE_MS {
            // Agents do it.
            return;
        }
        let Some(primary) = self.agreed() else { return };
        let source = self.servers[usize::from(primary)].clone();
        if !source.takes_writes() {
            return;
        }
        let lost = self.servers.iter().find(|server| {
            let is_stray = server.is_primary() || !server.is_begin_of(&source) && server.log.len() <= source.log.len();
            let is_beyond = !server.is_begin_of(&source) && server.log.len() > source.log.len();
            let is_left_alone = self.plan.company == WeirCompany::Single || self.is_left_alone(server.id);
            server.id != primary && server.power == Power::Up && (is_stray || is_beyond) && is_left_alone
        });
        let lost = lost.map(|server| server.id);
        if let Some(id) = lost.filter(|id| self.seems_rewindable(*id, &source)) {
            self.note(|| format!("operator rewinds {id} to {primary}, for which pg_rewind finds nothing to do"));
            self.servers[usize::from(id)].follow_as_it_is(primary);
        } else if let Some(id) = lost {
            self.note(|| format!("operator copies {primary} to {id}"));
            for server in &mut self.servers {
                server.flushed.remove(&id);
            }
            let server = &mut self.servers[usize::from(id)];
            server.copy(&source);
            server.started_at += 1;
            if self.plan.company == WeirCompany::Group {
                // The mark is one of the files that are copied.
                server.mark = source.mark;
            }
            self.vouch_for(id);
        }
    }

    /// True if the operator knows no better than pg_rewind, which compares numbers of timelines only. Weirs that looked at it lately know.
    fn seems_rewindable(&self, id: NodeId, source: &Server) -> bool {
        let server = &self.servers[usize::from(id)];
        let is_told = self.serving().any(|weir| weir.state.as_ref().is_none_or(|state| state.is_apart(id)));
        server.is_primary() && server.history.timeline == source.history.timeline && !is_told
    }

    /// The operator tells Weirs that keep a server out of use of the copy.
    fn vouch_for(&mut self, id: NodeId) {
        for weir in 0..self.weirs.len() {
            if self.weirs[weir].state.as_ref().is_some_and(|state| state.is_apart(id)) {
                self.ask(weir, OperatorRequest::Detach(id));
                self.ask(weir, OperatorRequest::Attach(id));
            }
        }
    }

    /// A copy forgets what its server has promised: the operator comes when no failover is under way, and no order for the server.
    fn is_left_alone(&self, node: NodeId) -> bool {
        let tries = |of: &Weir| of.state.as_ref().is_some_and(|state| state.attempt.is_some());
        self.now > self.orders_until[usize::from(node)] && !self.weirs.iter().any(tries)
    }

    /// The node that all Weirs hold for the primary, none of them being in doubt.
    pub fn agreed(&self) -> Option<NodeId> {
        let mut agreed = None;
        for weir in self.serving() {
            let (node, _) = weir.gate()?;
            if agreed.is_some_and(|other| other != node) {
                return None;
            }
            agreed = Some(node);
        }
        agreed
    }

    pub fn later(&mut self, delay: Ms, due: Due) {
        self.agenda.add(self.now + delay, due);
    }

    pub fn repair_in(&mut self, delay: Ms, repair: Repair) {
        self.later(delay, Due::Repair(repair));
    }

    pub fn next_id(&mut self) -> u64 {
        self.counts.numbers += 1;
        self.counts.numbers
    }

    pub fn next_reign(&mut self) -> u64 {
        self.counts.reigns += 1;
        self.counts.reigns
    }

    /// How long a message takes.
    pub fn delay(&mut self) -> Ms {
        if self.dice.below(1000) < self.plan.late {
            self.dice.within(500, 4_000)
        } else {
            self.dice.within(1, self.plan.delay_ms)
        }
    }

    pub fn ends(&self) -> usize {
        self.cuts.len()
    }

    pub fn end_of(&self, weir: usize) -> usize {
        self.servers.len() + self.weirs[weir].seat
    }

    pub fn end_of_etcd(&self) -> usize {
        self.servers.len() + self.plan.weirs
    }

    /// Processes that serve new clients, or did last.
    pub fn serving(&self) -> impl Iterator<Item = &Weir> {
        self.serving.iter().map(|at| &self.weirs[*at])
    }

    pub fn passes(&self, from: usize, to: usize) -> bool {
        self.now >= self.cuts[from][to]
    }

    pub fn cut(&mut self, from: usize, to: usize, lasts: Ms) {
        if from != to {
            self.cuts[from][to] = self.cuts[from][to].max(self.now + lasts);
        }
    }

    pub fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>6} {}", self.now, line()));
        }
    }

    /// A line of a Weir; made only in a run with lines.
    pub fn note_weir(&mut self, at: usize, line: impl FnOnce() -> Option<String>) {
        if let Some(trace) = &mut self.trace
            && let Some(line) = line()
        {
            trace.push(format!("{:>6} weir {at}: {line}", self.now));
        }
    }
}
