//! Failover of a Weir in a group, tied to it as `weir_group_failover` says; `control::failover` of Weir does the same.

use weir_failover::{Done, FailoverAction, FailoverEvent, GroupRole, LookFailure, Ms, NodeId, alone_misses_primary};
use weir_group::{GroupAnswer, GroupEvent, GroupRequest, MemberIntent};
use weir_group_failover::{
    GroupDuty, GroupNews, MemberWord, TakenWrites, asked_closing, group_duty, rules_in_group, server_mark, writes_opening,
};

use crate::kinds::GroupPart;
use crate::member_host::MemberDue;
use crate::member_processes::ProcessStage;
use crate::world::{Due, World};

/// Between two tries of a change that was not made.
const AGAIN_MS: Ms = 100;
/// Between two looks if writes have ended.
const PERIOD_MS: Ms = 5;

/// An order of failover that the group has a part in, by what its end tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderToEnd {
    Stored(u64),
    Drained(NodeId),
    /// It goes to its server now.
    Given(u64),
}

/// The way on after a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskedChange {
    /// `closes`: writes, asked for in this epoch.
    Decided {
        order: OrderToEnd,
        closes: Option<u64>,
    },
    Opening,
}

#[derive(Clone, Copy, Debug)]
pub struct OpeningNode {
    node: NodeId,
    is_asked: bool,
}

/// A drain that is over when this Weir's writes have ended, and all are closed.
#[derive(Clone, Copy, Debug)]
pub struct DrainProgress {
    node: NodeId,
    is_own_over: bool,
    is_closed: bool,
}

impl World {
    /// Takes up or gives up the lead of the group, learns what it decided, and obeys what it took.
    pub(crate) fn meet_group(&mut self, at: usize) {
        let Some(host) = self.member_host(at).filter(|host| !host.is_meeting) else { return };
        (host.is_meeting, host.is_rung) = (true, false);
        while let Some(news) = self.next_news(at) {
            match news {
                GroupNews::Role { role, durable } => {
                    self.note(|| format!("weir {at}: {role:?}"));
                    self.end_orders(at);
                    self.weirs[at].doubts.forget_promotion();
                    let now = self.now;
                    let weir = &mut self.weirs[at];
                    weir.rules = rules_in_group(self.plan.rules.clone(), role, self.plan.rules.consensus);
                    if let Some(state) = &mut weir.state {
                        let durable = durable.map_or_else(|| state.durable.clone(), |durable| *durable);
                        *state = state.begun_anew(&weir.rules, durable, now);
                    }
                    if let Some(host) = &mut weir.host {
                        host.role = role;
                    }
                    self.tell(at, &FailoverEvent::Timer);
                }
                GroupNews::Stored { durable } => {
                    self.weirs[at].disk = durable.show();
                    if self.weirs[at].rules.group == GroupRole::Follows {
                        self.tell(at, &FailoverEvent::Told { durable });
                    }
                }
                GroupNews::Sights { of_others } => self.tell(at, &FailoverEvent::Sights { of_others }),
            }
        }
        self.show(at);
        for word in self.words(at) {
            match word {
                MemberWord::Intent(intent) => self.step_member(at, GroupEvent::Intent(intent)),
                MemberWord::Sights(sights) => self.step_member(at, GroupEvent::Sights(sights)),
                MemberWord::End(taken) => self.end_taken(at, taken, self.now + taken.limit_ms),
            }
        }
        self.go_on_closing(at);
        self.go_on_opening(at);
        self.judge_text(at);
        if let Some(host) = self.member_host(at) {
            host.is_meeting = false;
        }
    }

    fn next_news(&mut self, at: usize) -> Option<GroupNews> {
        let now = self.now;
        let role = self.weirs[at].rules.group;
        let host = self.member_host(at)?;
        let others: Vec<_> = match (&host.member, &host.process) {
            (Some(member), _) => member.sights_of_others(host.clock(now)).collect(),
            (None, ProcessStage::Former { .. }) => Vec::new(),
            (None, _) => return None,
        };
        let mut tie = std::mem::take(&mut host.tie);
        let news = tie.news(host.sight(now), &others, role);
        host.tie = tie;
        news
    }

    fn words(&mut self, at: usize) -> Vec<MemberWord> {
        let now = self.now;
        let weir = &mut self.weirs[at];
        let (Some(host), Some(state)) = (&mut weir.host, &weir.state) else { return Vec::new() };
        let intent = match host.leaving {
            Some(_) => MemberIntent::ShutsDown,
            None if alone_misses_primary(state, now) => MemberIntent::Unfit,
            None => MemberIntent::Serves,
        };
        let awaited = host.obeying.filter(|obeying| !obeying.writes).map(|obeying| obeying.number);
        let mut tie = std::mem::take(&mut host.tie);
        let words = tie.words(host.sight(now), state, intent, (host.served, awaited));
        host.tie = tie;
        words
    }

    /// Writes go where failover and the group's epoch let them.
    pub(crate) fn show(&mut self, at: usize) {
        let now = self.now;
        let weir = &mut self.weirs[at];
        let gate = weir.target;
        let Some(host) = &weir.host else { return };
        weir.shown = gate.filter(|(node, _)| host.leaving.is_none() && host.sight(now).may_write_to(*node));
    }

    /// For a founder.
    pub(crate) fn found_group(&mut self, at: usize) {
        let weir = &self.weirs[at];
        let (Some(host), Some(state)) = (&weir.host, &weir.state) else { return };
        if host.version.is_none() {
            let event = GroupEvent::Founding { text: state.durable.show(), mark: server_mark(state) };
            self.step_member(at, event);
        }
    }

    /// Ends what the group has taken: new writes wait already.
    pub(crate) fn end_taken(&mut self, at: usize, taken: TakenWrites, until: Ms) {
        let life = self.weirs[at].life;
        if let Some(node) = taken.node {
            let is_open = self.weirs[at].writes.iter().any(|write| self.writes[*write as usize].node == node);
            if is_open && self.now < until {
                return self.later(PERIOD_MS, Due::Member { weir: at, due: MemberDue::End { life, taken, until } });
            }
            self.end_writes(at, node);
        }
        self.writes_obeyed(at, taken.number);
    }

    /// Ends connections to a node, and what is open there.
    pub(crate) fn end_writes(&mut self, at: usize, node: NodeId) {
        let of_node: Vec<_> =
            self.weirs[at].writes.iter().copied().filter(|write| self.writes[*write as usize].node == node).collect();
        self.weirs[at].given_up += of_node.len();
        for write in of_node {
            self.weirs[at].writes.remove(&write);
            self.doubt(write);
        }
        self.weirs[at].connections.remove(&node);
    }

    /// The part of the group in an action. `None`: it has none, or does it alone.
    pub(crate) fn pass_duty(&mut self, at: usize, action: &FailoverAction) -> GroupDuty {
        let now = self.now;
        let weir = &self.weirs[at];
        let (Some(host), Some(state)) = (&weir.host, &weir.state) else { return GroupDuty::None };
        match group_duty(action, state, weir.rules.group, Some(host.sight(now))) {
            GroupDuty::First(GroupRequest::CloseWrites { text }) if self.leaves_out(GroupPart::CloseFirst) => {
                text.map_or(GroupDuty::None, |text| GroupDuty::First(GroupRequest::StoreText { text }))
            }
            GroupDuty::LeadOver if self.leaves_out(GroupPart::LeaseAtOrder) => GroupDuty::None,
            duty => duty,
        }
    }

    /// Has the group decide before an order counts as done.
    pub(crate) fn decide(&mut self, at: usize, duty: GroupDuty, order: OrderToEnd) {
        match duty {
            GroupDuty::None => self.end_order(at, order, Done::Yes),
            GroupDuty::LeadOver => self.end_order(at, order, Done::No),
            GroupDuty::First(request) => {
                let waits = matches!(request, GroupRequest::CloseWrites { .. }) && !self.leaves_out(GroupPart::WaitStopped);
                let epoch = self.weirs[at].host.as_ref().map(|host| host.sight(self.now).writes_epoch());
                let closes = epoch.filter(|_| waits);
                self.request_change(at, request, AskedChange::Decided { order, closes });
            }
        }
    }

    fn request_change(&mut self, at: usize, request: GroupRequest, asked: AskedChange) {
        let Some(host) = self.member_host(at) else { return };
        let ticket = host.next_ticket();
        if let GroupRequest::StoreText { text } | GroupRequest::CloseWrites { text: Some(text) } = &request {
            host.last_text = Some((text.clone(), false));
        }
        host.tie.note_asked(&request);
        host.asked.insert(ticket, asked);
        self.step_member(at, GroupEvent::Request { ticket, request });
    }

    pub(crate) fn change_answered(&mut self, at: usize, ticket: u64, answer: GroupAnswer) {
        let life = self.weirs[at].life;
        let Some(host) = self.member_host(at) else { return };
        if answer != GroupAnswer::Done {
            host.last_text = None;
        }
        match (host.asked.remove(&ticket), answer) {
            (None, _) => {}
            (Some(AskedChange::Decided { order, closes: Some(epoch) }), GroupAnswer::Done) => {
                host.closings.push((order, epoch));
                self.ring(at);
            }
            (Some(AskedChange::Decided { order, closes: None }), GroupAnswer::Done) => self.end_order(at, order, Done::Yes),
            (Some(AskedChange::Decided { order, .. }), _) => self.end_order(at, order, Done::No),
            (Some(AskedChange::Opening), answer) => {
                if let Some(opening) = &mut host.opening {
                    opening.is_asked = false;
                }
                let pause = if answer == GroupAnswer::Done { 1 } else { AGAIN_MS };
                self.later(pause, Due::Member { weir: at, due: MemberDue::OpenAgain { life } });
            }
        }
    }

    fn go_on_closing(&mut self, at: usize) {
        let now = self.now;
        let Some(host) = self.member_host(at) else { return };
        for (order, epoch) in std::mem::take(&mut host.closings) {
            let Some(host) = self.member_host(at) else { return };
            match asked_closing(host.sight(now), epoch) {
                Some(done) => self.end_order(at, order, done),
                None => host.closings.push((order, epoch)),
            }
        }
    }

    pub(crate) fn open_writes(&mut self, at: usize, node: NodeId) {
        if let Some(host) = self.member_host(at) {
            host.opening = Some(OpeningNode { node, is_asked: false });
        }
        self.go_on_opening(at);
    }

    pub(crate) fn go_on_opening(&mut self, at: usize) {
        let now = self.now;
        let Some(host) = self.member_host(at) else { return };
        let Some(opening) = host.opening.filter(|opening| !opening.is_asked) else { return };
        if let Some(request) = writes_opening(host.sight(now), opening.node) {
            host.opening = Some(OpeningNode { is_asked: true, ..opening });
            self.request_change(at, request, AskedChange::Opening);
        }
    }

    pub(crate) fn begin_drain(&mut self, at: usize, node: NodeId, limit_ms: Ms, duty: GroupDuty) {
        let life = self.weirs[at].life;
        if let Some(host) = self.member_host(at) {
            host.draining = Some(DrainProgress { node, is_own_over: false, is_closed: false });
        }
        self.decide(at, duty, OrderToEnd::Drained(node));
        self.drain(at, life, node, self.now + limit_ms);
    }

    /// Its own writes have ended.
    pub(crate) fn own_drained(&mut self, at: usize, node: NodeId) {
        if let Some(draining) = self.member_host(at).and_then(|host| host.draining.as_mut()).filter(|of| of.node == node) {
            draining.is_own_over = true;
        }
        self.end_drain(at);
    }

    fn end_drain(&mut self, at: usize) {
        let Some(host) = self.member_host(at) else { return };
        if let Some(done) = host.draining.take_if(|draining| draining.is_own_over && draining.is_closed) {
            self.fact(at, FailoverEvent::Drained { node: done.node });
        }
    }

    fn end_order(&mut self, at: usize, order: OrderToEnd, done: Done) {
        match order {
            OrderToEnd::Stored(number) => {
                if done == Done::Yes {
                    self.see_stored(at);
                }
                self.fact(at, FailoverEvent::Stored { number, done });
            }
            // If writes are not closed the stop of the primary asks for it again.
            OrderToEnd::Drained(node) => {
                let host = self.member_host(at);
                if let Some(draining) = host.and_then(|host| host.draining.as_mut()).filter(|of| of.node == node) {
                    draining.is_closed = true;
                }
                self.end_drain(at);
            }
            OrderToEnd::Given(id) => match done {
                Done::Yes => self.dispatch(at, id),
                Done::No => {
                    let failed = self.weirs[at].open.remove(&id);
                    let event = failed.and_then(|(order, begun_at)| order.failed(begun_at, LookFailure::Refuses));
                    event.into_iter().for_each(|event| self.fact(at, event));
                }
            },
        }
    }

    pub(crate) fn fact(&mut self, at: usize, event: FailoverEvent) {
        let life = self.weirs[at].life;
        self.later(0, Due::Member { weir: at, due: MemberDue::Fact { life, event: Box::new(event) } });
    }

    /// Orders end with the lead, and count as failed. They may be on their way.
    fn end_orders(&mut self, at: usize) {
        if self.leaves_out(GroupPart::OrdersEnd) {
            return;
        }
        let mut failed = Vec::new();
        self.weirs[at].open.retain(|_, (order, begun_at)| {
            let is_look = matches!(order, FailoverAction::Probe { .. });
            if !is_look {
                failed.extend(order.failed(*begun_at, LookFailure::Refuses));
            }
            is_look
        });
        let Some(host) = self.member_host(at) else { return };
        let orders = std::mem::take(&mut host.asked).into_values().filter_map(|asked| match asked {
            AskedChange::Decided { order, .. } => Some(order),
            AskedChange::Opening => None,
        });
        let orders: Vec<OrderToEnd> =
            orders.chain(std::mem::take(&mut host.closings).into_iter().map(|(order, _)| order)).collect();
        (host.opening, host.draining, host.last_text) = (None, None, None);
        failed.extend(orders.into_iter().filter_map(|order| match order {
            OrderToEnd::Stored(number) => Some(FailoverEvent::Stored { number, done: Done::No }),
            OrderToEnd::Drained(node) => Some(FailoverEvent::Drained { node }),
            // It has failed above.
            OrderToEnd::Given(_) => None,
        }));
        failed.into_iter().for_each(|event| self.fact(at, event));
    }

    /// An operator's wish at some Weir: the leader decides, whoever was asked.
    pub(crate) fn pass_on(&mut self, event: FailoverEvent) {
        let leads = |at: &usize| self.weirs[*at].state.is_some() && self.weirs[*at].rules.group == GroupRole::Leads;
        let Some(leader) = (0..self.weirs.len()).find(leads) else { return };
        let (life, delay) = (self.weirs[leader].life, self.delay());
        self.later(delay, Due::Member { weir: leader, due: MemberDue::Passed { life, event: Box::new(event) } });
    }
}
