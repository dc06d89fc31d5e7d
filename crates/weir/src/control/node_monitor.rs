//! Watches the nodes: roles, lag and WAL positions. The only writer of `Shared::positions`.
//!
//! Each node has a task with one connection (`node_task`). This task asks all for their role in rounds, every `sr_check_period`
//! and for each `RoleCheckReason`. Decisions: `failover::looks`.

mod monitor_desk;
mod node_task;
pub mod question;

use crate::control::cluster_view;
use crate::control::control_context::{ControlContext, WakeSubject};
use crate::control::node_monitor::monitor_desk::MonitorBoard;
use crate::control::supervised::{TaskGuard, keep};
use crate::log::Level;
use crate::runtime::mail::RoleCheckReason;
use crate::runtime::shared::{ProxyShutdown, seconds};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};
use weir_config::Config;
use weir_failover::FailoverEvent;
use weir_failover::cluster::ClusterView;
use weir_failover::lag::LagHistory;
use weir_failover::looks::{self, Answer, MonitorLogLevel, MonitorLogLine, RoundStep};
use weir_failover::streams::FaultyStreams;

struct MonitoredNodes {
    config: Arc<Config>,
    desk: Rc<MonitorBoard>,
    _tasks: Vec<TaskGuard>,
}

/// A round asks all nodes except those that still owe an answer.
struct RoleRound {
    started: Instant,
    asked: Vec<bool>,
    answers: Vec<Answer>,
    has_news: bool,
}

/// Runs until the proxy stops. Cancel safe.
pub async fn watch(c: Rc<ControlContext>) {
    let bell = c.bell(WakeSubject::Roles);
    let (mut history, mut streams) = (LagHistory::default(), FaultyStreams::default());
    let mut nodes = MonitoredNodes::begin(&c, c.shared.config.load_full());
    while c.shared.stop_mode() < ProxyShutdown::Fast {
        if let Some(why) = c.nudged.take() {
            c.shared.log.say(Level::Debug1, format_args!("nodes are asked for their roles: {}", reason(why)));
        }
        let newest = c.shared.config.load_full();
        if !Arc::ptr_eq(&newest, &nodes.config) {
            nodes = MonitoredNodes::begin(&c, newest);
        }
        let mut round = nodes.begin_round();
        while c.shared.stop_mode() < ProxyShutdown::Fast {
            round.has_news |= nodes.desk.collect(&mut round.answers);
            let state = looks::RoundProgress {
                passed_ms: round.started.elapsed().as_millis() as u64,
                has_news: round.has_news,
                is_whole: nodes.desk.owes_nothing(&round.asked),
                is_nudged: c.nudged.get().is_some() || c.shared.awaiting_primary.load(Ordering::Relaxed) > 0,
            };
            let next = state.next(&c.view.borrow(), nodes.config.check.period_ms);
            match next {
                RoundStep::TakeIn => {
                    round.has_news = false;
                    nodes.take_in(&c, &round.answers, &mut history, &mut streams);
                }
                RoundStep::Begin => break,
                RoundStep::Wait(None) => bell.rung().await,
                RoundStep::Wait(Some(ms)) => {
                    let until = round.started + Duration::from_millis(ms);
                    let _ = tokio::time::timeout_at(until.into(), bell.rung()).await;
                }
            }
        }
    }
}

fn reason(why: RoleCheckReason) -> &'static str {
    match why {
        RoleCheckReason::ConnectionLost => "a server connection broke",
        RoleCheckReason::LoginFailed => "a login at a server failed",
        RoleCheckReason::StatementRefused => "a server refused a statement",
        RoleCheckReason::NodeAwaited => "somebody waits for a node",
        RoleCheckReason::RoleContradicted => "a node says that it is not what it counts as",
        RoleCheckReason::Reconfigured => "the configuration is another one",
        RoleCheckReason::Stopping => "the proxy stops",
        RoleCheckReason::Governed => "another node takes writes, or one is out of use",
        RoleCheckReason::LoginLate => "a login at a server takes long",
    }
}

impl MonitoredNodes {
    /// The view changes nodes and addresses with the first answers.
    fn begin(c: &Rc<ControlContext>, config: Arc<Config>) -> MonitoredNodes {
        let known = c.shared.cluster.view.load_full();
        let view = ClusterView::new(&config, Some(&known), seconds(SystemTime::now()));
        let desk = Rc::new(MonitorBoard::new(c.clone(), config.clone(), view));
        desk.forget_all(&known);
        let tasks = (0..config.nodes.len()).map(|at| {
            let (own, theirs) = (desk.clone(), desk.clone());
            let name = format!("node {}", config.nodes[at].id);
            keep(c, name, move || node_task::attend(own.clone(), at), move || theirs.mend(at))
        });
        let tasks = tasks.collect();
        MonitoredNodes { config, desk, _tasks: tasks }
    }

    fn begin_round(&self) -> RoleRound {
        let started = Instant::now();
        let asked = self.desk.ask_all(started);
        let answers = asked.iter().map(|_| None).collect();
        RoleRound { started, asked, answers, has_news: false }
    }

    fn take_in(&self, c: &ControlContext, answers: &[Answer], history: &mut LagHistory, streams: &mut FaultyStreams) {
        let mut view = c.view.borrow().clone();
        let (changed, mut news) = looks::take_in(&self.config, &mut view, answers, seconds(SystemTime::now()));
        let now_ms = c.millis(Instant::now());
        news.extend(looks::note_lags(&self.config, &mut view, answers, history, now_ms));
        news.extend(streams.take_in(&self.config, &view, answers, now_ms));
        news.iter().for_each(|news| say(c, news));
        c.view.replace(view.clone());
        cluster_view::publish(c, changed);
        if changed {
            // Where others promote, a new role is the first sign of a new primary.
            c.tell(FailoverEvent::Doubted);
        }
        for node in looks::to_give_up(&view, answers) {
            cluster_view::give_up(c, node);
        }
    }
}

fn say(c: &ControlContext, news: &MonitorLogLine) {
    let level = match news.weight {
        MonitorLogLevel::Warning => Level::Warning,
        MonitorLogLevel::Log => Level::Log,
        MonitorLogLevel::Detail => Level::Debug1,
    };
    c.shared.log.say(level, format_args!("{}", news.text));
}
