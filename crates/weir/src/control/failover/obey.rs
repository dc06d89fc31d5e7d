//! Carries out actions of the failover core. A server order is a task, whose outcome comes back as an event.

use super::hands::{self, DeedError, StreamCutPolicy};
use super::{FailoverDriver, command, drain, group_link, say};
use crate::control::cluster_view;
use crate::control::control_context::ControlContext;
use crate::control::failover::node_logins::{NodeAccess, failure};
use crate::control::failover::{agent_orders, node_facts};
use crate::control::return_node::{self, NodeReturn};
use crate::log::Level;
use crate::runtime::group_seat::GroupSeat;
use crate::runtime::mail::RoleCheckReason;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use weir_config::Config;
use weir_failover::{
    CommitLoss, Done, FailoverAction, FailoverCause, FailoverEvent, FailoverMode, FailoverReport, GroupRole, LookFailure, Ms,
    NodeDownReason, NodeId, OpenTransactionFate, ProbeResult,
};
use weir_group::GroupRequest;
use weir_group_failover::{GroupDuty, group_duty};
use weir_io::clock::boot_now_ms;

/// The fraction of a look's limit after which its login is late.
const LATE_PART: u32 = 4;

/// Reports the outcome of an order, also if its task panics.
struct OrderResultGuard {
    c: Rc<ControlContext>,
    otherwise: Option<FailoverEvent>,
}

impl OrderResultGuard {
    fn keep(mut self, event: FailoverEvent) {
        self.otherwise = None;
        self.c.tell(event);
    }
}

impl Drop for OrderResultGuard {
    fn drop(&mut self) {
        if let Some(event) = self.otherwise.take() {
            self.c.tell(event);
        }
    }
}

/// The group's part in an action, with the way to it.
enum LeaderPart {
    None,
    First {
        seat: Arc<GroupSeat>,
        request: GroupRequest,
    },
    /// The lead is over: no order is given.
    Over,
}

impl LeaderPart {
    /// Cancel safe: the change may be made.
    async fn carry_out(self) -> Done {
        match self {
            LeaderPart::None => Done::Yes,
            LeaderPart::First { seat, request } => group_link::decide(&seat, request).await,
            LeaderPart::Over => Done::No,
        }
    }
}

impl FailoverDriver {
    /// Not cancel safe.
    pub(super) async fn obey(&mut self, action: FailoverAction) {
        let part = self.leader_part(&action);
        match action {
            FailoverAction::Hold { why, transactions } => {
                self.write_switch.hold(&self.c, (&self.rules, &self.state), why, transactions).await;
                self.yield_presence(transactions);
                if let Some(group) = &mut self.group {
                    group.keep_shut();
                }
            }
            FailoverAction::Release { node, started_at } => {
                self.write_switch.release(&self.c, (&self.rules, &self.state), node, started_at).await;
                if let Some(group) = self.group.as_mut().filter(|_| self.rules.group == GroupRole::Leads) {
                    group.open(node);
                }
                if self.rules.mode == FailoverMode::Builtin && !self.rules.is_alone() {
                    self.presence.begin(&self.reach, node, self.state.durable.weir);
                }
            }
            FailoverAction::Reply { ticket, answer } => {
                if let Some(operator) = self.tickets.remove(&ticket) {
                    let _ = operator.send(answer);
                }
            }
            // A node out of use by its role alone is not reported as degenerated.
            FailoverAction::Report(FailoverReport::Degenerated { node, .. }) if !self.state.is_out(&self.rules, node) => {}
            FailoverAction::Report(report) => self.report(&report),
            FailoverAction::WriteStatus { text } => self.files.write_status(&self.c, text),
            FailoverAction::Store { number, text } => {
                let (c, files) = (self.c.clone(), self.files.clone());
                let promise = OrderResultGuard { c, otherwise: Some(FailoverEvent::Stored { number, done: Done::No }) };
                let is_kept = files.keeps_state(&self.rules);
                self.orders.spawn_local(async move {
                    let done = match part {
                        LeaderPart::First { seat, request } => group_link::decide(&seat, request).await,
                        LeaderPart::Over => Done::No,
                        LeaderPart::None if is_kept => files.store(&promise.c, text).await,
                        LeaderPart::None => Done::Yes,
                    };
                    promise.keep(FailoverEvent::Stored { number, done });
                });
            }
            FailoverAction::Drain { node, limit_ms } => self.drain(node, part, Duration::from_millis(limit_ms)),
            FailoverAction::RunCommand { number, kind, line, limit_ms } => {
                let promise = OrderResultGuard {
                    c: self.c.clone(),
                    otherwise: Some(FailoverEvent::CommandEnded { number, done: Done::No }),
                };
                self.orders.spawn_local(async move {
                    // The command promotes another server: nobody writes to the old one any more.
                    if part.carry_out().await == Done::No {
                        return;
                    }
                    let done = command::run(&promise.c, kind, &line, Duration::from_millis(limit_ms)).await;
                    promise.keep(FailoverEvent::CommandEnded { number, done });
                });
            }
            FailoverAction::Rejoin { node, primary, ballot, way, limit_ms } => {
                let promise =
                    OrderResultGuard { c: self.c.clone(), otherwise: Some(FailoverEvent::Rejoined { node, done: Done::No }) };
                let config = self.config.clone();
                self.orders.spawn_local(async move {
                    if part.carry_out().await == Done::No {
                        return;
                    }
                    let order = NodeReturn { node, primary, way, ballot: Some(ballot) };
                    let done = rejoin(&promise.c, &config, order, Duration::from_millis(limit_ms)).await;
                    promise.keep(FailoverEvent::Rejoined { node, done });
                });
            }
            order @ (FailoverAction::Probe { .. }
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
            | FailoverAction::WaitYielded { .. }
            | FailoverAction::StopServer { .. }
            | FailoverAction::AskAgent { .. }
            | FailoverAction::Inspect { .. }
            | FailoverAction::StartServer { .. }
            | FailoverAction::RestartServer { .. }
            | FailoverAction::FollowServer { .. }) => self.send(order, part),
        }
    }

    fn leader_part(&mut self, action: &FailoverAction) -> LeaderPart {
        let Some(group) = &mut self.group else { return LeaderPart::None };
        let view = group.seat.view();
        match group_duty(action, &self.state, self.rules.group, Some(view.sight(boot_now_ms()))) {
            GroupDuty::None => LeaderPart::None,
            GroupDuty::First(request) => {
                group.note_asked(&request);
                LeaderPart::First { seat: group.seat.clone(), request }
            }
            GroupDuty::LeadOver => LeaderPart::Over,
        }
    }

    fn yield_presence(&mut self, transactions: OpenTransactionFate) {
        match transactions {
            OpenTransactionFate::Go => self.presence.leave(&self.c),
            OpenTransactionFate::End => self.presence.end(),
        }
    }

    fn report(&self, report: &FailoverReport) {
        if let FailoverReport::Begun { .. } = report {
            // Servers of the previous cluster may run on.
            self.state.nodes.keys().for_each(|node| drop(cluster_view::end(&self.c, *node)));
        }
        if let FailoverReport::Done(record) = report
            && record.why == FailoverCause::SwitchedOver
            && record.loss == CommitLoss::Nothing
        {
            self.c.shared.positions.note_whole(record.new);
        }
        say::report(&self.c, (&self.rules, &self.state), report, self.now());
        self.part(report);
    }

    /// Breaks connections to a failed standby, so that waiting reads run elsewhere. Connections to a primary end with `Hold`.
    fn part(&self, report: &FailoverReport) {
        let (FailoverReport::Degenerated { node, why: NodeDownReason::Failed(_) } | FailoverReport::SeenByOthers { node, .. }) =
            *report
        else {
            return;
        };
        if self.state.primary() != Some(node) {
            self.write_switch.show(&self.c, &self.rules, &self.state);
            cluster_view::give_up(&self.c, node);
        }
    }

    fn drain(&mut self, node: NodeId, part: LeaderPart, limit: Duration) {
        let promise = OrderResultGuard { c: self.c.clone(), otherwise: Some(FailoverEvent::Drained { node }) };
        self.orders.spawn_local(async move {
            // If writes are not closed the stop of the primary asks for it again.
            let _ = tokio::join!(drain::drain(&promise.c, node, limit), part.carry_out());
            promise.keep(FailoverEvent::Drained { node });
        });
    }

    fn send(&mut self, order: FailoverAction, part: LeaderPart) {
        let begun_at = self.now();
        let Some((node, limit_ms)) = order.target() else { return };
        let promise = OrderResultGuard { c: self.c.clone(), otherwise: order.failed(begun_at, LookFailure::Refuses) };
        let reach = self.reach.clone();
        let limit = Duration::from_millis(limit_ms);
        if let FailoverAction::Probe { .. } = order {
            self.looks.spawn_local(async move {
                promise.keep(probe(&reach, (&order, node), begun_at, limit).await);
            });
            return;
        }
        if matches!(part, LeaderPart::Over) {
            self.c
                .shared
                .log
                .say(Level::Warning, format_args!("node {node}: an order is not given: the lead of the group is over"));
            return;
        }
        self.orders.spawn_local(async move {
            let deadline = Instant::now() + limit;
            let given = async {
                match part.carry_out().await {
                    Done::Yes => Some(execute(&reach, &order, deadline).await),
                    Done::No => None,
                }
            };
            let event = match tokio::time::timeout(limit, given).await {
                // The group did not do its part.
                Ok(None) => return,
                Ok(Some(Ok(event))) => Some(event),
                Ok(Some(Err(error))) => {
                    complain(&reach, node, &order, &error);
                    order.failed(begun_at, error.failure())
                }
                Err(_) => order.failed(begun_at, LookFailure::TimedOut),
            };
            if let Some(event) = event {
                promise.keep(event);
            }
        });
    }
}

/// Looks at a node. If the login is late, asks for the role over the open connection, where an answer proves life. Cancel safe.
async fn probe(reach: &NodeAccess, (order, node): (&FailoverAction, NodeId), begun_at: Ms, limit: Duration) -> FailoverEvent {
    let listened = reach.listen(node);
    let look = tokio::time::timeout(limit, node_facts::look(reach, node, Instant::now() + limit));
    tokio::pin!(look);
    let done = match tokio::time::timeout(limit / LATE_PART, &mut look).await {
        Ok(done) => done,
        Err(_) => {
            reach.c.request_role_check(RoleCheckReason::LoginLate);
            look.await
        }
    };
    let found = match done {
        Ok(Ok(facts)) => ProbeResult::Answered(Box::new(facts)),
        Ok(Err(error)) => {
            let failure = failure(&error);
            complain(reach, node, order, &error.into());
            ProbeResult::Failed(failure)
        }
        Err(_) => ProbeResult::Failed(LookFailure::TimedOut),
    };
    let beside = reach.heard(&listened, &found);
    FailoverEvent::Probed { node, begun_at, found }.beside(beside)
}

async fn rejoin(c: &ControlContext, config: &Config, order: NodeReturn, limit: Duration) -> Done {
    let node = order.node;
    match return_node::bring_back(c, config, order, Instant::now() + limit).await {
        Ok(()) => {
            c.shared
                .log
                .say(Level::Log, format_args!("node {node} was started as a standby of node {} by its agent", order.primary));
            Done::Yes
        }
        Err(error) => {
            c.shared.log.say(Level::Warning, format_args!("node {node} is not brought back, and is tried again: {error}"));
            Done::No
        }
    }
}

/// Failed looks are judged elsewhere: debug level.
fn complain(reach: &NodeAccess, node: NodeId, order: &FailoverAction, error: &DeedError) {
    let (level, what) = match order {
        FailoverAction::Probe { .. } => (Level::Debug2, "look"),
        FailoverAction::CutOff { .. } => (Level::Warning, "cut-off from the old primary"),
        FailoverAction::Pledge { .. } => (Level::Warning, "pledge"),
        FailoverAction::Promote { .. } => (Level::Warning, "promotion"),
        FailoverAction::WaitWritable { .. } => (Level::Warning, "wait for writes"),
        FailoverAction::Repoint { .. } => (Level::Warning, "vote"),
        FailoverAction::Fence { .. } | FailoverAction::Unfence { .. } => (Level::Warning, "fence"),
        FailoverAction::Wake { .. } => (Level::Log, "reload, to have it look for its primary,"),
        FailoverAction::Point { .. } => (Level::Warning, "change to the primary"),
        FailoverAction::Prepare { .. } => (Level::Log, "checkpoint before a switchover"),
        FailoverAction::WaitYielded { .. } => (Level::Log, "wait for other proxies"),
        FailoverAction::StopServer { .. } => (Level::Warning, "stop"),
        FailoverAction::AskAgent { .. } => (Level::Log, "question to its agent"),
        FailoverAction::Inspect { .. } => (Level::Warning, "look at the end of the log"),
        FailoverAction::StartServer { .. } => (Level::Warning, "start"),
        FailoverAction::RestartServer { .. } => (Level::Warning, "restart"),
        FailoverAction::FollowServer { .. } => (Level::Warning, "change into a standby"),
        FailoverAction::Hold { .. }
        | FailoverAction::Release { .. }
        | FailoverAction::Store { .. }
        | FailoverAction::Drain { .. }
        | FailoverAction::Rejoin { .. }
        | FailoverAction::RunCommand { .. }
        | FailoverAction::Reply { .. }
        | FailoverAction::WriteStatus { .. }
        | FailoverAction::Report(_) => return,
    };
    reach.c.shared.log.say(level, format_args!("node {node}: {what} failed: {error}"));
}

/// Not cancel safe.
async fn execute(reach: &NodeAccess, order: &FailoverAction, deadline: Instant) -> Result<FailoverEvent, DeedError> {
    Ok(match *order {
        FailoverAction::CutOff { node, ballot, .. } => FailoverEvent::Pledged {
            node,
            ballot,
            outcome: hands::pledge(reach, node, ballot, StreamCutPolicy::Yes, deadline).await?,
        },
        FailoverAction::Pledge { node, ballot, .. } => FailoverEvent::Pledged {
            node,
            ballot,
            outcome: hands::pledge(reach, node, ballot, StreamCutPolicy::No, deadline).await?,
        },
        FailoverAction::Promote { node, ballot, .. } => {
            FailoverEvent::Promoted { node, ballot, done: hands::promote(reach, node, ballot, deadline).await? }
        }
        FailoverAction::WaitWritable { node, ballot, .. } => {
            FailoverEvent::Writable { node, ballot, outcome: Ok(hands::wait_writable(reach, node, deadline).await?) }
        }
        FailoverAction::Repoint { node, vote, .. } => {
            FailoverEvent::Repointed { node, vote, outcome: hands::repoint(reach, node, vote, deadline).await? }
        }
        FailoverAction::Fence { node, ballot, .. } => {
            FailoverEvent::Fenced { node, done: hands::fence(reach, node, ballot, deadline).await? }
        }
        FailoverAction::Unfence { node, .. } => {
            FailoverEvent::Unfenced { node, done: hands::unfence(reach, node, deadline).await? }
        }
        FailoverAction::Wake { node, .. } => FailoverEvent::Pointed { node, done: hands::wake(reach, node, deadline).await? },
        FailoverAction::Point { node, primary, ballot, .. } => {
            FailoverEvent::Pointed { node, done: hands::point(reach, node, (primary, ballot), deadline).await? }
        }
        FailoverAction::Prepare { node, .. } => {
            hands::checkpoint(reach, node, deadline).await?;
            FailoverEvent::Prepared { node }
        }
        FailoverAction::WaitYielded { node, weir, .. } => {
            hands::wait_yielded(reach, node, weir, deadline).await?;
            FailoverEvent::Yielded { node }
        }
        FailoverAction::StopServer { node, ballot, started_at, mode, .. } => {
            let end = agent_orders::stop(reach, node, started_at, mode, deadline).await?;
            FailoverEvent::ServerStopped { node, ballot, end }
        }
        FailoverAction::AskAgent { node, .. } => {
            agent_orders::ask(reach, node, deadline).await?;
            FailoverEvent::AgentHeard { node, done: Done::Yes }
        }
        FailoverAction::Inspect { node, ballot, .. } => {
            FailoverEvent::Inspected { node, ballot, outcome: Ok(agent_orders::inspect(reach, node, deadline).await?) }
        }
        FailoverAction::StartServer { node, .. } => {
            agent_orders::start(reach, node, deadline).await?;
            FailoverEvent::ServerStarted { node, done: Done::Yes }
        }
        FailoverAction::RestartServer { node, started_at, .. } => {
            agent_orders::restart(reach, node, started_at, deadline).await?;
            FailoverEvent::ServerStarted { node, done: Done::Yes }
        }
        FailoverAction::FollowServer { node, primary, ballot, .. } => {
            agent_orders::follow(reach, node, (primary, ballot), deadline).await?;
            FailoverEvent::ServerFollows { node, done: Done::Yes }
        }
        FailoverAction::Probe { .. }
        | FailoverAction::Hold { .. }
        | FailoverAction::Release { .. }
        | FailoverAction::Store { .. }
        | FailoverAction::Drain { .. }
        | FailoverAction::Rejoin { .. }
        | FailoverAction::RunCommand { .. }
        | FailoverAction::Reply { .. }
        | FailoverAction::WriteStatus { .. }
        | FailoverAction::Report(_) => FailoverEvent::Timer,
    })
}
