//! Obeys decisions about failover: the only caller of `weir_failover::step`.
//!
//! One task obeys the actions in order. A long action is a task of its own with a limit, whose outcome is the next fact: no node
//! delays another. Requirements: `docs/design/failover.md`.

mod agent_orders;
mod command;
mod drain;
mod group_link;
pub mod hands;
pub mod marks;
pub mod node_facts;
mod node_logins;
mod obey;
mod presence;
mod say;
mod state_files;
mod write_gate;

use crate::control::control_context::{ControlContext, WakeSubject};
pub use crate::control::failover::drain::open;
use crate::control::failover::group_link::GroupLink;
use crate::control::failover::node_logins::NodeAccess;
use crate::control::failover::presence::WriterPresence;
use crate::control::failover::state_files::FailoverFiles;
pub use crate::control::failover::state_files::{discard_status, obstacle};
use crate::control::failover::write_gate::WriteSwitch;
use crate::control::group_acts::{self, GroupAct};
use crate::log::Level;
use crate::runtime::group_seat::GroupOrder;
use crate::runtime::mail::{PendingOperatorRequest, RequestOrigin};
use crate::runtime::shared::ProxyShutdown;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use weir_config::Config;
use weir_config::watchdog_settings::FailoverVotes;
use weir_failover::pace::{PAUSE_MS, StepCause, StepPace, StepPause};
use weir_failover::{
    self, AtAddress, DeathConsensus, DurableState, FailoverEvent, FailoverMode, FailoverRules, FailoverState, FailoverView,
    GroupRole, Ms, NodeStanding, ProbeResult,
};
use weir_group::MemberIntent;
use weir_group_failover::{GroupNews, number_of_single, rules_in_group, server_mark};
use weir_session::metrics::WorkerCounter;
use weir_session::reports::ReportedRole;

/// A worker beats once a second. Without a beat for so long it stands still, and its host must not lead.
const WORKER_SILENCE_MS: Ms = 5_000;

/// Longest time between checks of what is due: the state ages without events.
const TICK_MS: Ms = 1_000;

struct FailoverDriver {
    c: Rc<ControlContext>,
    config: Arc<Config>,
    rules: Rc<FailoverRules>,
    state: FailoverState,
    reach: Rc<NodeAccess>,
    write_switch: WriteSwitch,
    presence: WriterPresence,
    files: Rc<FailoverFiles>,
    group: Option<GroupLink>,
    /// Looks are no orders: they go on when the lead is lost.
    looks: JoinSet<()>,
    orders: JoinSet<()>,
    tickets: HashMap<u64, oneshot::Sender<Result<(), String>>>,
    next_ticket: u64,
    clients: u64,
    around_at: Instant,
    pace: StepPace,
}

/// Cancel safe: orders under way end, and the next driver finds what they did.
pub async fn watch(c: Rc<ControlContext>) {
    let bell = c.bell(WakeSubject::Failover);
    let mut driver = FailoverDriver::new(c.clone());
    driver.step(&FailoverEvent::Timer).await;
    while c.shared.stop_mode() < ProxyShutdown::Fast {
        driver.reconfigure();
        driver.meet_group().await;
        driver.take_wishes().await;
        driver.take_facts().await;
        driver.look_around().await;
        let now = driver.now();
        if driver.state.next_due() <= now {
            driver.step(&FailoverEvent::Timer).await;
        }
        driver.publish();
        let due = driver.state.next_due().clamp(now + 1, now + TICK_MS);
        let until = c.shared.begun + Duration::from_millis(due);
        let _ = tokio::time::timeout_at(until.into(), bell.rung()).await;
    }
}

impl FailoverDriver {
    fn new(c: Rc<ControlContext>) -> FailoverDriver {
        let config = c.shared.config.load_full();
        let group = c.shared.group.get().cloned().map(GroupLink::new);
        let own = FailoverRules::of(&config);
        let files = Rc::new(FailoverFiles::new(&config));
        let number = number_of_single(u32::from_le_bytes(crate::random()));
        let (stored, down) = files.read(&c, &own);
        let stored = group.as_ref().and_then(GroupLink::durable).or(stored);
        let stored = stored.map(|stored| DurableState { weir: if stored.weir == 0 { number } else { stored.weir }, ..stored });
        let rules = Rc::new(rules_of(&c, &config, if group.is_some() { GroupRole::Follows } else { GroupRole::None }));
        let state = FailoverState::new(&rules, stored, number, &down);
        let reach = Rc::new(NodeAccess::new(c.clone(), config.clone(), rules.clone()));
        // Where others promote, or servers are unrelated, the group has no epoch.
        let has_epoch = matches!(own.mode, FailoverMode::Builtin | FailoverMode::Command);
        let seat = group.as_ref().filter(|_| has_epoch).map(|group| group.seat.clone());
        let driver = FailoverDriver {
            write_switch: WriteSwitch::new(&config, own.mode, seat),
            presence: WriterPresence::default(),
            c,
            config,
            rules,
            state,
            reach,
            files,
            group,
            looks: JoinSet::new(),
            orders: JoinSet::new(),
            tickets: HashMap::new(),
            next_ticket: 0,
            clients: 0,
            around_at: Instant::now(),
            pace: StepPace::default(),
        };
        driver.write_switch.show(&driver.c, &driver.rules, &driver.state);
        driver
    }

    /// Takes up or gives up the lead of the group, learns what it decided, and obeys what it took.
    async fn meet_group(&mut self) {
        while let Some(news) = self.group.as_mut().and_then(|group| group.news(self.rules.group)) {
            match news {
                GroupNews::Role { role, durable } => self.change_role(role, durable).await,
                GroupNews::Stored { durable } => {
                    self.keep_copy(&durable);
                    if self.rules.group == GroupRole::Follows {
                        self.step(&FailoverEvent::Told { durable }).await;
                    }
                }
                GroupNews::Sights { of_others } => {
                    if self.rules.group == GroupRole::Leads {
                        say::sights(&self.c, &self.state, &of_others);
                    }
                    self.step(&FailoverEvent::Sights { of_others }).await;
                }
            }
        }
        if self.group.is_none() {
            return;
        }
        let served = self.write_switch.served();
        self.write_switch.show(&self.c, &self.rules, &self.state);
        let intent = self.intent();
        if let Some(group) = &mut self.group {
            group.tell(&self.c, &self.state, intent, served);
        }
    }

    /// For a start without the group, and for a group that is formed anew.
    fn keep_copy(&mut self, durable: &DurableState) {
        if matches!(self.own_mode(), FailoverMode::Builtin | FailoverMode::Command) {
            let (c, files, text) = (self.c.clone(), self.files.clone(), durable.show());
            self.looks.spawn_local(async move {
                files.copy(&c, text).await;
            });
        }
    }

    /// The fitness of this member to lead, as far as workers and servers tell.
    fn intent(&mut self) -> MemberIntent {
        let is_alive = |beat_ms: u64| self.now() < beat_ms + WORKER_SILENCE_MS;
        let mut beats = self.c.shared.mailboxes.iter().map(|mailbox| mailbox.beat_ms.load(Ordering::Relaxed));
        let stand_still = self.now() > WORKER_SILENCE_MS && !beats.all(is_alive);
        let is_unfit = stand_still || weir_failover::alone_misses_primary(&self.state, self.now());
        if is_unfit { MemberIntent::Unfit } else { MemberIntent::Serves }
    }

    /// A new leader is the group's one Weir restarted, which knows what it saw.
    async fn change_role(&mut self, role: GroupRole, durable: Option<Box<DurableState>>) {
        self.orders.abort_all();
        // Another leader may promote the same server anew.
        self.c.promoted.set(None);
        for (_, operator) in self.tickets.drain() {
            let _ = operator.send(Err("the lead of the group moves to another Weir meanwhile: ask again".into()));
        }
        if let Some(group) = &mut self.group {
            group.keep_shut();
        }
        let durable = durable.map_or_else(|| self.state.durable.clone(), |durable| *durable);
        self.rules = Rc::new(rules_of(&self.c, &self.config, role));
        self.state = self.state.begun_anew(&self.rules, durable, self.now());
        self.reach = Rc::new(NodeAccess::new(self.c.clone(), self.config.clone(), self.rules.clone()));
        if let Some(group) = &self.group
            && role == GroupRole::Follows
        {
            group.seat.order(GroupOrder::LeadGivenUp);
        }
        let words =
            if role == GroupRole::Leads { "this proxy decides for its group" } else { "another proxy decides for the group" };
        self.c.shared.log.say(Level::Log, format_args!("failover: {words} from here on"));
        self.step(&FailoverEvent::Timer).await;
    }

    fn now(&self) -> Ms {
        self.c.millis(Instant::now())
    }

    fn reconfigure(&mut self) {
        let newest = self.c.shared.config.load_full();
        let rules = rules_of(&self.c, &newest, self.rules.group);
        if Arc::ptr_eq(&newest, &self.config) && rules.mode == self.rules.mode {
            return;
        }
        self.config = newest.clone();
        let before = std::mem::replace(&mut self.rules, Rc::new(rules));
        self.state.reload(&self.rules);
        for id in self.rules.readdressed(&before) {
            self.state.readdress(id);
        }
        self.reach = Rc::new(NodeAccess::new(self.c.clone(), newest, self.rules.clone()));
        self.write_switch.obey(&self.config, self.own_mode());
        if self.rules.mode != FailoverMode::Builtin {
            self.presence.end();
        }
        self.write_switch.show(&self.c, &self.rules, &self.state);
    }

    /// The mode of the configuration, also while another member of the group decides.
    fn own_mode(&self) -> FailoverMode {
        if self.rules.group == GroupRole::Follows { FailoverRules::of(&self.config).mode } else { self.rules.mode }
    }

    async fn take_wishes(&mut self) {
        let wishes = self.c.shared.control.take_wishes();
        if !wishes.is_empty() {
            // A wish that was passed on may be quicker than the news that this member leads.
            self.meet_group().await;
        }
        for wish in wishes {
            if self.rules.group == GroupRole::Follows {
                self.pass_on(wish);
                continue;
            }
            self.next_ticket += 1;
            self.tickets.insert(self.next_ticket, wish.answer);
            self.step(&FailoverEvent::Operator { ticket: self.next_ticket, request: wish.request }).await;
        }
    }

    /// The leader decides, whoever was asked.
    fn pass_on(&self, wish: PendingOperatorRequest) {
        let PendingOperatorRequest { request, origin, mut answer } = wish;
        let Some(group) = self.group.as_ref().filter(|_| origin == RequestOrigin::Here) else {
            let _ = answer.send(Err("this host leads the group no more: ask again".into()));
            return;
        };
        let (seat, act) = (group.seat.clone(), GroupAct::Node(request));
        tokio::task::spawn_local(async move {
            tokio::select! {
                answered = group_acts::ask_leader(&seat, &act) => drop(answer.send(answered.map(drop))),
                () = answer.closed() => {}
            }
        });
    }

    async fn take_facts(&mut self) {
        loop {
            let event = self.c.facts.borrow_mut().pop_front();
            let Some(event) = event else { return };
            self.step(&event).await;
        }
    }

    /// Looks for what no event tells.
    async fn look_around(&mut self) {
        let now = Instant::now();
        if now < self.around_at {
            return;
        }
        self.around_at = now + Duration::from_millis(TICK_MS);
        let clients = self.c.shared.counters.iter().map(|counters| counters.get(WorkerCounter::ClientsAccepted as usize)).sum();
        if std::mem::replace(&mut self.clients, clients) != clients {
            let is_waiting = |node: &&u16| self.state.nodes.get(node).is_some_and(|node| node.standing == NodeStanding::Waiting);
            // In Pgpool-II a client connects to all nodes.
            let used: Vec<u16> = self.state.nodes.keys().filter(is_waiting).copied().collect();
            for node in used {
                self.step(&FailoverEvent::Used { node }).await;
            }
        }
        if self.rules.group == GroupRole::Follows {
            self.tell_founding();
        }
        if self.config.failover.test_file {
            self.step(&FailoverEvent::TestFile { down: self.files.read_test() }).await;
        }
    }

    /// Of use while there is no group: the founder's first version takes over what its file and the servers' marks know.
    fn tell_founding(&self) {
        let Some(group) = self.group.as_ref().filter(|group| group.seat.view().version.is_none()) else { return };
        let mark = server_mark(&self.state);
        group.seat.order(GroupOrder::Founding { text: self.state.durable.show(), mark });
    }

    /// Not cancel safe: actions that were not obeyed are lost, and found again by the looks of the next driver.
    async fn step(&mut self, event: &FailoverEvent) {
        self.keep_pace(event).await;
        while self.orders.try_join_next().is_some() {}
        while self.looks.try_join_next().is_some() {}
        let now = self.now();
        // First, so that no connection to the old server counts as one to a new primary.
        self.note_move(event);
        let actions = weir_failover::step(&mut self.state, &self.rules, event, now);
        say::event(&self.c, event);
        self.reach.learn(&self.state);
        for action in actions {
            self.obey(action).await;
        }
        self.write_switch.show(&self.c, &self.rules, &self.state);
    }

    fn note_move(&self, event: &FailoverEvent) {
        let FailoverEvent::Probed { node, begun_at, found: ProbeResult::Answered(facts) } = event else { return };
        let Some(known) = self.state.nodes.get(node) else { return };
        let told: &[ReportedRole] = match known.compare(facts) {
            AtAddress::Same => &[],
            AtAddress::AnotherStart if facts.is_primary() => &[ReportedRole::Primary],
            AtAddress::AnotherStart => &[ReportedRole::Standby],
            // No earlier connection is right, whatever its server's role.
            AtAddress::AnotherCluster => &[ReportedRole::Primary, ReportedRole::Standby],
        };
        told.iter().for_each(|told| self.c.shared.stale.moves.moved(*node, begun_at * 1000, *told));
    }

    /// Cancel safe.
    async fn keep_pace(&mut self, event: &FailoverEvent) {
        let cause = if matches!(event, FailoverEvent::Timer) { StepCause::Due } else { StepCause::Event };
        let pause = self.pace.step(cause, self.now());
        if let StepPause::Named { steps_max } = pause {
            let text = format_args!(
                "failover: more than {steps_max} steps in a second, which are slowed down from here on; this is a fault of Weir's: please report \
                 it with the log and SHOW pool_failover"
            );
            self.c.shared.log.say(Level::Warning, text);
        }
        if pause != StepPause::None {
            tokio::time::sleep(Duration::from_millis(PAUSE_MS)).await;
        }
    }

    fn publish(&self) {
        let view = FailoverView::of(&self.state, &self.rules, self.now());
        self.c.shared.cluster.failover.store(Arc::new(view));
    }
}

/// A process that has handed its clients over promotes nothing: its successor does.
fn rules_of(c: &ControlContext, config: &Config, group: GroupRole) -> FailoverRules {
    let mut rules = FailoverRules::of(config);
    if let (true, Some(watchdog)) = (group != GroupRole::None, &config.watchdog) {
        let consensus = match watchdog.failover_votes {
            FailoverVotes::Needless => DeathConsensus::Own,
            FailoverVotes::OneEach | FailoverVotes::Repeated => DeathConsensus::Majority,
        };
        rules = rules_in_group(rules, group, consensus);
    }
    if c.shared.is_handed_over() && rules.mode != FailoverMode::Off {
        rules.mode = FailoverMode::Follow;
    }
    rules
}
