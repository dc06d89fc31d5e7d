//! One Weir: the real decisions, a driver that obeys them with the world's delays, and its file.

use std::collections::{BTreeMap, BTreeSet};

use weir_failover::rejoin::SoFar;
use weir_failover::{
    Done, DurableState, FailoverAction, FailoverEvent, FailoverRecord, FailoverReport, FailoverRules, FailoverState, GroupRole,
    LookFailure, Ms, NodeDownReason, NodeId, OpenTransactionFate, OperatorRequest, step,
};
use weir_group_failover::{GroupDuty, rules_in_group};

use crate::doubt::Doubts;
use crate::member_host::MemberHost;
use crate::member_link::OrderToEnd;
use crate::returning::Return;
use crate::server::WriteId;
use crate::trace;
use crate::world::{Due, World};

pub struct Weir {
    pub number: u32,
    /// Its host's place among the Weirs, which it shares with former processes.
    pub seat: usize,
    pub rules: FailoverRules,
    /// In a group.
    pub host: Option<Box<MemberHost>>,
    /// `None`: it does not run.
    pub state: Option<FailoverState>,
    /// Moves with every start, so that answers to an earlier life are dropped.
    pub life: u32,
    pub disk: String,
    /// The text that is being written to disk.
    pub writing: Option<String>,
    /// Where writes go, and to which start of the server.
    pub target: Option<(NodeId, Option<u64>)>,
    /// In a group: the same as far as its epoch lets writes go there.
    pub shown: Option<(NodeId, Option<u64>)>,
    /// Connections to servers, by their incarnation.
    pub connections: BTreeMap<NodeId, u64>,
    /// Incarnations that have answered, and since when a connection to them is known to be open.
    pub opened_at: BTreeMap<NodeId, (u64, Ms)>,
    /// Orders that are not answered yet, with their times.
    pub open: BTreeMap<u64, (FailoverAction, Ms)>,
    /// Writes sent and not answered.
    pub writes: BTreeSet<WriteId>,
    pub timer_at: Ms,
    pub records: Vec<FailoverRecord>,
    pub last_ack_at: Ms,
    /// Writes that it had sent and gave up.
    pub given_up: usize,
    pub doubts: Doubts,
}

impl Weir {
    pub fn new(number: u32, seat: usize, rules: FailoverRules, host: Option<Box<MemberHost>>) -> Weir {
        Weir {
            number,
            seat,
            rules,
            host,
            state: None,
            life: 0,
            disk: String::new(),
            writing: None,
            target: None,
            shown: None,
            connections: BTreeMap::new(),
            opened_at: BTreeMap::new(),
            open: BTreeMap::new(),
            writes: BTreeSet::new(),
            timer_at: Ms::MAX,
            records: Vec::new(),
            last_ack_at: 0,
            given_up: 0,
            doubts: Doubts::default(),
        }
    }

    /// Where writes of its clients go.
    pub fn gate(&self) -> Option<(NodeId, Option<u64>)> {
        if self.host.is_some() { self.shown } else { self.target }
    }
}

impl World {
    pub(crate) fn start_weir(&mut self, at: usize) {
        if self.weirs[at].state.is_some() || !self.may_start(at) {
            return;
        }
        let weir = &mut self.weirs[at];
        let stored = DurableState::parse(&weir.disk);
        weir.life += 1;
        if weir.host.is_some() {
            weir.rules = rules_in_group(self.plan.rules.clone(), GroupRole::Follows, self.plan.rules.consensus);
        }
        weir.state = Some(FailoverState::new(&weir.rules, stored, weir.number, &BTreeSet::new()));
        weir.timer_at = Ms::MAX;
        self.note(|| format!("weir {at} starts"));
        self.start_member(at);
        self.tell(at, &FailoverEvent::Timer);
    }

    pub(crate) fn kill_weir(&mut self, at: usize) {
        let reaches_disk = self.dice.percent(50) && self.plan.script.is_empty();
        let weir = &mut self.weirs[at];
        if let Some(text) = weir.writing.take().filter(|_| reaches_disk) {
            weir.disk = text;
        }
        (weir.state, weir.target, weir.shown) = (None, None, None);
        weir.open.clear();
        weir.connections.clear();
        weir.opened_at.clear();
        let writes = std::mem::take(&mut weir.writes);
        weir.doubts = Doubts::default();
        writes.into_iter().for_each(|write| self.close(write));
        self.note(|| format!("weir {at} dies"));
        self.end_lines(at);
        self.kill_member(at);
    }

    pub(crate) fn ask(&mut self, at: usize, request: OperatorRequest) {
        let event = FailoverEvent::Operator { ticket: 0, request };
        match self.weirs[at].host {
            Some(_) => self.pass_on(event),
            None => self.tell(at, &event),
        }
    }

    /// One event for a Weir that runs.
    pub(crate) fn tell(&mut self, at: usize, event: &FailoverEvent) {
        let now = self.now;
        // In between, events of one turn of the control thread come without a look at the group.
        if self.weirs[at].host.is_some() && self.dice.percent(70) {
            self.meet_group(at);
        }
        let weir = &mut self.weirs[at];
        let Some(state) = &mut weir.state else { return };
        let actions = step(state, &weir.rules, event, now);
        let due = state.next_due().max(now + 1);
        self.note_weir(at, || trace::event(event));
        for action in actions {
            self.note_weir(at, || trace::action(&action));
            self.obey(at, action);
        }
        self.show(at);
        let weir = &mut self.weirs[at];
        if due < weir.timer_at || weir.timer_at <= now {
            weir.timer_at = due;
            let life = weir.life;
            self.later(due.saturating_sub(now).max(1), Due::Timer { weir: at, life });
        }
    }

    fn obey(&mut self, at: usize, action: FailoverAction) {
        let life = self.weirs[at].life;
        if !matches!(
            action,
            FailoverAction::Probe { .. }
                | FailoverAction::Report(_)
                | FailoverAction::Reply { .. }
                | FailoverAction::WriteStatus { .. }
        ) {
            self.follow_script();
            self.spite(at);
        }
        let duty = self.pass_duty(at, &action);
        match action {
            FailoverAction::Hold { transactions, .. } => {
                self.weirs[at].target = None;
                if let Some(host) = self.member_host(at) {
                    host.opening = None;
                    host.served = host.served.filter(|_| transactions == OpenTransactionFate::Go);
                }
                if transactions == OpenTransactionFate::End {
                    self.weirs[at].given_up += self.weirs[at].writes.len();
                    let ended = std::mem::take(&mut self.weirs[at].writes);
                    ended.into_iter().for_each(|write| self.doubt(write));
                    self.weirs[at].connections.clear();
                }
            }
            FailoverAction::Release { node, started_at } => {
                self.see_horizon(at, node);
                self.weirs[at].target = Some((node, started_at));
                if self.weirs[at].host.is_some() {
                    self.release_in_group(at, node);
                }
            }
            FailoverAction::Store { number, .. } if self.weirs[at].rules.group != GroupRole::None => {
                self.decide(at, duty, OrderToEnd::Stored(number));
            }
            FailoverAction::Store { number, text } => {
                self.weirs[at].writing = Some(text);
                // A disk that is busy takes its time.
                let is_slow = !self.plan.script.is_empty() && self.orders > 0;
                let takes = if is_slow {
                    200
                } else if self.dice.percent(4) && !self.plan.is_calm() {
                    self.dice.within(100, 1_500)
                } else {
                    self.dice.within(1, 15)
                };
                let done = if self.dice.percent(2) { Done::No } else { Done::Yes };
                self.later(takes, Due::Stored { weir: at, life, number, done });
            }
            FailoverAction::Report(FailoverReport::Degenerated { node, why: NodeDownReason::Failed(failure) })
                if failure != LookFailure::Refused
                    && self.weirs[at].rules.group != GroupRole::Follows
                    && self.weirs[at].state.as_ref().is_some_and(|state| state.primary() == Some(node)) =>
            {
                self.given_up(at, node);
            }
            FailoverAction::WaitYielded { node, limit_ms, .. } => self.wait_yielded(at, life, node, self.now + limit_ms),
            FailoverAction::Drain { node, limit_ms } if self.weirs[at].host.is_some() => {
                self.begin_drain(at, node, limit_ms, duty);
            }
            FailoverAction::Drain { node, limit_ms } => self.drain(at, life, node, self.now + limit_ms),
            FailoverAction::Report(FailoverReport::Done(record)) => self.weirs[at].records.push(*record),
            FailoverAction::Rejoin { node, primary, ballot, way, .. } => {
                self.bring_back(Return { weir: at, life, node, primary, ballot, way, so_far: SoFar::Nothing, started_at: 0 });
            }
            FailoverAction::RunCommand { .. }
            | FailoverAction::Reply { .. }
            | FailoverAction::WriteStatus { .. }
            | FailoverAction::Report(_) => {}
            order if duty == GroupDuty::LeadOver => {
                order.failed(self.now, LookFailure::Refuses).into_iter().for_each(|event| self.fact(at, event));
            }
            order => self.send(at, order, duty),
        }
    }

    /// Writes may go to this node once the group lets them; those to another one end.
    fn release_in_group(&mut self, at: usize, node: NodeId) {
        let weir = &mut self.weirs[at];
        let Some(host) = &mut weir.host else { return };
        let former = host.served.replace(node).filter(|served| *served != node);
        if let Some(former) = former {
            self.end_writes(at, former);
        }
        if self.weirs[at].rules.group == GroupRole::Leads {
            self.open_writes(at, node);
        }
    }

    /// Sends an order to its server; sometimes twice, sometimes late.
    fn send(&mut self, at: usize, order: FailoverAction, duty: GroupDuty) {
        let Some((_, limit_ms)) = order.target() else { return };
        let id = self.next_id();
        let life = self.weirs[at].life;
        self.weirs[at].open.insert(id, (order.clone(), self.now));
        self.later(limit_ms, Due::Limit { weir: at, life, id });
        if self.weirs[at].host.is_some() && matches!(duty, GroupDuty::First(_)) {
            return self.decide(at, duty, OrderToEnd::Given(id));
        }
        self.dispatch(at, id);
    }

    pub(crate) fn dispatch(&mut self, at: usize, id: u64) {
        let life = self.weirs[at].life;
        let Some(order) = self.weirs[at].open.get(&id).map(|(order, _)| Box::new(order.clone())) else { return };
        let Some((node, _)) = order.target() else { return };
        self.judge_order(at, &order);
        let is_copied = self.dice.percent(2);
        let is_look = matches!(*order, FailoverAction::Probe { .. });
        for order in is_copied.then(|| order.clone()).into_iter().chain([order]) {
            let is_late = !is_look && self.plan.late_orders > 0 && self.dice.percent(self.plan.late_orders);
            let delay = if is_late { self.dice.within(1_000, 7_000) } else { self.delay() };
            if !is_look {
                let until = &mut self.orders_until[usize::from(node)];
                *until = (*until).max(self.now + delay);
            }
            self.later(delay, Due::Order { weir: at, life, id, node, order });
        }
    }

    /// The answer to an order, or its limit.
    pub(crate) fn answer(&mut self, at: usize, life: u32, id: u64, event: &FailoverEvent) {
        let weir = &mut self.weirs[at];
        if weir.life != life || weir.open.remove(&id).is_none() {
            return;
        }
        self.tell(at, event);
    }

    pub(crate) fn limit(&mut self, at: usize, life: u32, id: u64) {
        let weir = &self.weirs[at];
        if weir.life != life {
            return;
        }
        let Some((order, begun_at)) = weir.open.get(&id) else { return };
        if let Some(event) = order.failed(*begun_at, LookFailure::TimedOut) {
            self.answer(at, life, id, &event);
        }
    }

    pub(crate) fn stored(&mut self, at: usize, life: u32, number: u64, done: Done) {
        let weir = &mut self.weirs[at];
        if weir.life != life || weir.state.is_none() {
            return;
        }
        if let Some(text) = weir.writing.take().filter(|_| done == Done::Yes) {
            weir.disk = text;
        }
        self.tell(at, &FailoverEvent::Stored { number, done });
    }
}
