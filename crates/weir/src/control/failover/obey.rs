//! Obeys one action. A question to a server is a task of its own, whose outcome is the next fact.

use super::hands::{self, Cuts, DeedError};
use super::{Driver, command, drain, say};
use crate::control::cluster_view;
use crate::control::control_context::Control;
use crate::control::failover::node_logins::{Reach, failure};
use crate::control::failover::{agent_orders, node_facts};
use crate::control::return_node::{self, Return};
use crate::log::Level;
use crate::runtime::mail::RoleCheckReason;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;
use weir_config::Config;
use weir_failover::{
    Action, CommitLoss, Done, Event, FailoverCause, FailoverMode, Found, LookFailure, Lost, Ms, NodeId, Report, Transactions,
};

/// The part of a look's limit after which its login takes long.
const LATE_PART: u32 = 4;

/// Tells what became of an order, also if its task ends by a fault.
struct Promise {
    c: Rc<Control>,
    otherwise: Option<Event>,
}

impl Promise {
    fn keep(mut self, event: Event) {
        self.otherwise = None;
        self.c.tell(event);
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if let Some(event) = self.otherwise.take() {
            self.c.tell(event);
        }
    }
}

impl Driver {
    /// Not cancel safe.
    pub(super) async fn obey(&mut self, action: Action) {
        match action {
            Action::Hold { why, transactions } => {
                self.write_switch.hold(&self.c, (&self.rules, &self.state), why, transactions).await;
                self.yield_presence(transactions);
            }
            Action::Release { node, started_at } => {
                self.write_switch.release(&self.c, (&self.rules, &self.state), node, started_at).await;
                if self.rules.mode == FailoverMode::Builtin && !self.rules.is_alone() {
                    self.presence.begin(&self.reach, node, self.state.durable.weir);
                }
            }
            Action::Reply { ticket, answer } => {
                if let Some(operator) = self.tickets.remove(&ticket) {
                    // An operator who does not wait any more needs no answer.
                    let _ = operator.send(answer);
                }
            }
            // One that roles alone keep out of use is not.
            Action::Report(Report::Degenerated { node, .. }) if !self.state.is_out(&self.rules, node) => {}
            Action::Report(report) => self.report(&report),
            Action::WriteStatus { text } => self.files.write_status(&self.c, text),
            Action::Store { number, text } => {
                let (c, files) = (self.c.clone(), self.files.clone());
                let promise = Promise { c, otherwise: Some(Event::Stored { number, done: Done::No }) };
                let is_kept = files.keeps_state(&self.rules);
                self.orders.spawn_local(async move {
                    let done = if is_kept { files.store(&promise.c, text).await } else { Done::Yes };
                    promise.keep(Event::Stored { number, done });
                });
            }
            Action::Drain { node, limit_ms } => self.drain(node, Duration::from_millis(limit_ms)),
            Action::RunCommand { number, kind, line, limit_ms } => {
                let promise = Promise { c: self.c.clone(), otherwise: Some(Event::CommandEnded { number, done: Done::No }) };
                self.orders.spawn_local(async move {
                    let done = command::run(&promise.c, kind, &line, Duration::from_millis(limit_ms)).await;
                    promise.keep(Event::CommandEnded { number, done });
                });
            }
            Action::Rejoin { node, primary, ballot, way, limit_ms } => {
                let promise = Promise { c: self.c.clone(), otherwise: Some(Event::Rejoined { node, done: Done::No }) };
                let config = self.config.clone();
                self.orders.spawn_local(async move {
                    let order = Return { node, primary, way, ballot: Some(ballot) };
                    let done = rejoin(&promise.c, &config, order, Duration::from_millis(limit_ms)).await;
                    promise.keep(Event::Rejoined { node, done });
                });
            }
            order @ (Action::Probe { .. }
            | Action::CutOff { .. }
            | Action::Pledge { .. }
            | Action::Promote { .. }
            | Action::WaitWritable { .. }
            | Action::Repoint { .. }
            | Action::Fence { .. }
            | Action::Unfence { .. }
            | Action::Wake { .. }
            | Action::Point { .. }
            | Action::Prepare { .. }
            | Action::WaitYielded { .. }
            | Action::StopServer { .. }
            | Action::AskAgent { .. }
            | Action::Inspect { .. }
            | Action::StartServer { .. }
            | Action::RestartServer { .. }
            | Action::FollowServer { .. }) => self.send(order),
        }
    }

    fn yield_presence(&mut self, transactions: Transactions) {
        match transactions {
            Transactions::Go => self.presence.leave(&self.c),
            Transactions::End => self.presence.end(),
        }
    }

    fn report(&self, report: &Report) {
        if let Report::Begun { .. } = report {
            // Servers of the cluster of before may go on elsewhere, with connections to them in the pools.
            self.state.nodes.keys().for_each(|node| drop(cluster_view::end(&self.c, *node)));
        }
        if let Report::Done(record) = report
            && record.why == FailoverCause::SwitchedOver
            && record.loss == CommitLoss::Nothing
        {
            self.c.shared.positions.note_whole(record.new);
        }
        say::report(&self.c, (&self.rules, &self.state), report, self.now());
        self.part(report);
    }

    /// Breaks the connections to a standby that has failed: what reads wait for there runs elsewhere. A primary's end with `Hold`.
    fn part(&self, report: &Report) {
        let Report::Degenerated { node, why: Lost::Failed(_) } = *report else { return };
        if self.state.primary() != Some(node) {
            self.write_switch.show(&self.c, &self.rules, &self.state);
            cluster_view::give_up(&self.c, node);
        }
    }

    /// Begins to wait for what sessions have open on a node.
    fn drain(&mut self, node: NodeId, limit: Duration) {
        let promise = Promise { c: self.c.clone(), otherwise: Some(Event::Drained { node }) };
        self.orders.spawn_local(async move {
            drain::drain(&promise.c, node, limit).await;
            promise.keep(Event::Drained { node });
        });
    }

    /// Begins what is done at a server.
    fn send(&mut self, order: Action) {
        let begun_at = self.now();
        let Some((node, limit_ms)) = order.target() else { return };
        let promise = Promise { c: self.c.clone(), otherwise: order.failed(begun_at, LookFailure::Refuses) };
        let reach = self.reach.clone();
        self.orders.spawn_local(async move {
            let limit = Duration::from_millis(limit_ms);
            let deadline = Instant::now() + limit;
            if let Action::Probe { .. } = order {
                return promise.keep(probe(&reach, (&order, node), begun_at, limit).await);
            }
            let done = tokio::time::timeout(limit, execute(&reach, &order, deadline)).await;
            let event = match done {
                Ok(Ok(event)) => Some(event),
                Ok(Err(error)) => {
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

/// Looks at a node. A look whose login takes long has the node asked over the connection that is open, since an answer there tells that it lives.
/// Cancel safe: the connection is closed.
async fn probe(reach: &Reach, (order, node): (&Action, NodeId), begun_at: Ms, limit: Duration) -> Event {
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
        Ok(Ok(facts)) => Found::Answered(Box::new(facts)),
        Ok(Err(error)) => {
            let failure = failure(&error);
            complain(reach, node, order, &error.into());
            Found::Failed(failure)
        }
        Err(_) => Found::Failed(LookFailure::TimedOut),
    };
    let beside = reach.heard(&listened, &found);
    Event::Probed { node, begun_at, found }.beside(beside)
}

/// Brings a replaced primary back by its agent.
async fn rejoin(c: &Control, config: &Config, order: Return, limit: Duration) -> Done {
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

/// Looks that fail are the business of who judges them; all else is worth a line.
fn complain(reach: &Reach, node: NodeId, order: &Action, error: &DeedError) {
    let (level, what) = match order {
        Action::Probe { .. } => (Level::Debug2, "look"),
        Action::CutOff { .. } => (Level::Warning, "cut-off from the old primary"),
        Action::Pledge { .. } => (Level::Warning, "pledge"),
        Action::Promote { .. } => (Level::Warning, "promotion"),
        Action::WaitWritable { .. } => (Level::Warning, "wait for writes"),
        Action::Repoint { .. } => (Level::Warning, "vote"),
        Action::Fence { .. } | Action::Unfence { .. } => (Level::Warning, "fence"),
        Action::Wake { .. } => (Level::Log, "reload, to have it look for its primary,"),
        Action::Point { .. } => (Level::Warning, "change to the primary"),
        Action::Prepare { .. } => (Level::Log, "checkpoint before a switchover"),
        Action::WaitYielded { .. } => (Level::Log, "wait for other proxies"),
        Action::StopServer { .. } => (Level::Warning, "stop"),
        Action::AskAgent { .. } => (Level::Log, "question to its agent"),
        Action::Inspect { .. } => (Level::Warning, "look at the end of the log"),
        Action::StartServer { .. } => (Level::Warning, "start"),
        Action::RestartServer { .. } => (Level::Warning, "restart"),
        Action::FollowServer { .. } => (Level::Warning, "change into a standby"),
        Action::Hold { .. }
        | Action::Release { .. }
        | Action::Store { .. }
        | Action::Drain { .. }
        | Action::Rejoin { .. }
        | Action::RunCommand { .. }
        | Action::Reply { .. }
        | Action::WriteStatus { .. }
        | Action::Report(_) => return,
    };
    reach.c.shared.log.say(level, format_args!("node {node}: {what} failed: {error}"));
}

/// Does it. A look is `probe`'s. Not cancel safe.
async fn execute(reach: &Reach, order: &Action, deadline: Instant) -> Result<Event, DeedError> {
    Ok(match *order {
        Action::CutOff { node, ballot, .. } => {
            Event::Pledged { node, ballot, outcome: hands::pledge(reach, node, ballot, Cuts::Yes, deadline).await? }
        }
        Action::Pledge { node, ballot, .. } => {
            Event::Pledged { node, ballot, outcome: hands::pledge(reach, node, ballot, Cuts::No, deadline).await? }
        }
        Action::Promote { node, ballot, .. } => {
            Event::Promoted { node, ballot, done: hands::promote(reach, node, ballot, deadline).await? }
        }
        Action::WaitWritable { node, ballot, .. } => {
            Event::Writable { node, ballot, outcome: Ok(hands::wait_writable(reach, node, deadline).await?) }
        }
        Action::Repoint { node, vote, .. } => {
            Event::Repointed { node, vote, outcome: hands::repoint(reach, node, vote, deadline).await? }
        }
        Action::Fence { node, ballot, .. } => Event::Fenced { node, done: hands::fence(reach, node, ballot, deadline).await? },
        Action::Unfence { node, .. } => Event::Unfenced { node, done: hands::unfence(reach, node, deadline).await? },
        Action::Wake { node, .. } => Event::Pointed { node, done: hands::wake(reach, node, deadline).await? },
        Action::Point { node, primary, ballot, .. } => {
            Event::Pointed { node, done: hands::point(reach, node, (primary, ballot), deadline).await? }
        }
        Action::Prepare { node, .. } => {
            hands::checkpoint(reach, node, deadline).await?;
            Event::Prepared { node }
        }
        Action::WaitYielded { node, weir, .. } => {
            hands::wait_yielded(reach, node, weir, deadline).await?;
            Event::Yielded { node }
        }
        Action::StopServer { node, ballot, started_at, mode, .. } => {
            let end = agent_orders::stop(reach, node, started_at, mode, deadline).await?;
            Event::ServerStopped { node, ballot, end }
        }
        Action::AskAgent { node, .. } => {
            agent_orders::ask(reach, node, deadline).await?;
            Event::AgentHeard { node, done: Done::Yes }
        }
        Action::Inspect { node, ballot, .. } => {
            Event::Inspected { node, ballot, outcome: Ok(agent_orders::inspect(reach, node, deadline).await?) }
        }
        Action::StartServer { node, .. } => {
            agent_orders::start(reach, node, deadline).await?;
            Event::ServerStarted { node, done: Done::Yes }
        }
        Action::RestartServer { node, started_at, .. } => {
            agent_orders::restart(reach, node, started_at, deadline).await?;
            Event::ServerStarted { node, done: Done::Yes }
        }
        Action::FollowServer { node, primary, ballot, .. } => {
            agent_orders::follow(reach, node, (primary, ballot), deadline).await?;
            Event::ServerFollows { node, done: Done::Yes }
        }
        Action::Probe { .. }
        | Action::Hold { .. }
        | Action::Release { .. }
        | Action::Store { .. }
        | Action::Drain { .. }
        | Action::Rejoin { .. }
        | Action::RunCommand { .. }
        | Action::Reply { .. }
        | Action::WriteStatus { .. }
        | Action::Report(_) => Event::Timer,
    })
}
