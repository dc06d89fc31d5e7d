//! The only caller of `weir_group::group_step` in the program: brings it events, and obeys its actions in order.
//!
//! Nothing here waits for a disk, a peer, a command or the control thread: each of them answers by an event.

use crate::log::Level;
use crate::runtime::group_seat::{
    AfterHandOver, FormerLine, GroupOrder, GroupSeat, GroupView, HandedMember, HeardAct, PeerView, WritesObedience,
};
use crate::watchdog::etcd_engine::{EtcdChange, EtcdEngine, EtcdSight};
use crate::watchdog::former_process::{FORMERS_MAX, FormerNews, FormerProcesses};
use crate::watchdog::group_words;
use crate::watchdog::host_fitness::{FitnessWatch, HostFitness};
use crate::watchdog::lease_line::{self, LeaseLine};
use crate::watchdog::parameter_likeness::{LIKENESS_ACT, LIKENESS_LIMIT_MS, OwnParameters, ParameterLikeness};
use crate::watchdog::peer_links::{PeerEvent, PeerLinkView, PeerLinks};
use crate::watchdog::state_store::{StateOutcome, StateStore};
use crate::watchdog::successor_line::FollowingProcess;
use crate::watchdog::virtual_address::{AddressKeeper, EscalationCommands, WatchdogLog};
use crate::watchdog::vote_file::FormerMark;
use std::collections::HashMap;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_local;
use tokio::time::Instant;
use weir_config::Config;
use weir_config::watchdog_settings::WatchdogSettings;
use weir_group::{
    ActAnswer, FormerMember, FormingRefusal, GroupAction, GroupAnswer, GroupEvent, GroupLead, GroupMember, GroupMs, GroupRequest,
    GroupState, HostNumber, MemberHandover, MemberId, MemberIntent, MemberRights, RegisterEvent, RemovalSettings, RightsTaken,
    ShutdownFate, StateVersion, VersionNumber, group_step,
};
use weir_group_failover::{ObedienceProgress, WritesChange, WritingParty};
use weir_io::clock::boot_now_ms;

/// Longest time that a stop waits for another member to take the lead. A change of the lead takes a few writes to disks.
const STEP_DOWN_MS: GroupMs = 500;
/// Stops that wait for it, each of another strength; more do not wait.
const STEP_DOWNS_MAX: usize = 8;

/// Times in the view are shown anew so often.
const SHOW_MS: GroupMs = 250;

/// Time for orders to servers to end before another process of this member leads.
const LEAD_LIMIT_MS: GroupMs = 250;

/// Rights for the workers of this process; `writes` are an epoch and a node.
pub type LeaseGrant = Box<dyn Fn(GroupMs, Option<(u64, u16)>)>;

/// Configuration that is in force; `None` of a witness, which decides nothing about servers.
pub type ParametersInForce = Box<dyn Fn() -> Option<Arc<Config>>>;

/// Ways of the group's thread to the rest of the process.
pub struct GroupPorts {
    pub seat: Arc<GroupSeat>,
    pub party: WritingParty,
    pub grant: LeaseGrant,
    pub parameters: ParametersInForce,
    /// Rings the control thread.
    pub news: Box<dyn Fn()>,
    pub say: WatchdogLog,
}

/// How a process ends to play its member.
pub enum DriveEnd {
    Left,
    /// Another process plays it, and this one keeps sessions.
    HandedOver(FollowingProcess),
    /// Nobody took it. The state file is closed, or is as soon as the disk lets go of it.
    NotTaken(MemberHandover),
}

pub struct DriverParts {
    pub member: GroupMember,
    pub links: PeerLinks,
    pub peer_events: mpsc::Receiver<PeerEvent>,
    pub store: StateStore,
    pub outcomes: mpsc::UnboundedReceiver<StateOutcome>,
    pub engine: Option<EtcdEngine>,
    pub address: AddressKeeper,
    pub fitness: FitnessWatch,
    /// The member as the process before this one left it, and that one's lines.
    pub handed: Option<HandedMember>,
    pub beside: ProcessesBeside,
    pub lease_ms: GroupMs,
}

/// Former processes of this host that this one has no lines to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessesBeside {
    None,
    /// There may be some since this time, and nobody passes rights on to them.
    Since(GroupMs),
}

/// Answers of what this thread began itself.
enum OwnEvent {
    AddressFree(VersionNumber),
    Engine(RegisterEvent),
    Former(FormerNews),
}

struct LeavingMember {
    left: oneshot::Sender<()>,
    /// Peers have heard the intent by then, which goes beside the next read: two periods of reads.
    told_at: GroupMs,
    until: GroupMs,
}

/// Another process waits for the place of this one.
struct PlaceHandover {
    answer: oneshot::Sender<Result<HandedMember, String>>,
    /// Once orders to servers have ended, or by then.
    at: GroupMs,
}

struct GroupDriver {
    member: GroupMember,
    links: PeerLinks,
    store: StateStore,
    engine: Option<Rc<EtcdEngine>>,
    address: Rc<AddressKeeper>,
    ports: Rc<GroupPorts>,
    party: WritingParty,
    formers: FormerProcesses,
    /// End of all rights that the workers were given.
    granted_until: GroupMs,
    /// Compared with those of the other hosts.
    compared: Option<Arc<Config>>,
    likeness: ParameterLikeness,
    /// Hosts that are asked for their parameters, by ticket.
    likeness_asked: HashMap<u64, HostNumber>,
    own: mpsc::UnboundedSender<OwnEvent>,
    lease_ms: GroupMs,
    obeying: Option<ObedienceProgress>,
    answers: HashMap<u64, oneshot::Sender<GroupAnswer>>,
    act_askers: HashMap<u64, oneshot::Sender<ActAnswer>>,
    forming_askers: HashMap<u64, oneshot::Sender<Result<(), FormingRefusal>>>,
    tickets: u64,
    version: Option<StateVersion>,
    rights: MemberRights,
    /// End of the last rights for which the address was given up.
    ended: GroupMs,
    stopped_epoch: Option<u64>,
    fault: Option<String>,
    leaving: Option<LeavingMember>,
    handover: Option<PlaceHandover>,
    /// Judgements of the control thread and of this host: the worse one counts.
    intent: MemberIntent,
    is_host_fit: bool,
    is_stepping_down: bool,
    /// Ends of the waits, and the acts that follow.
    stopping: Vec<(GroupMs, AfterHandOver)>,
    /// As peers last said.
    intents: HashMap<HostNumber, MemberIntent>,
    shown: GroupView,
    shown_at: GroupMs,
}

/// Settings that a reload changes.
pub fn removals_of(watchdog: &WatchdogSettings) -> RemovalSettings {
    RemovalSettings {
        no_show_ms: watchdog.no_show_removal_ms,
        lost_removal_ms: watchdog.lost_removal_ms,
        shutdowns: if watchdog.removes_shut_down { ShutdownFate::Removed } else { ShutdownFate::Stays },
    }
}

/// Serves the group until this member has left it, or goes on in another process. Not cancel safe: what the kernel and the disk hold stays.
pub async fn drive(parts: DriverParts, ports: &Rc<GroupPorts>, orders: &mut mpsc::Receiver<GroupOrder>) -> DriveEnd {
    let DriverParts { mut peer_events, mut outcomes, mut fitness, .. } = parts;
    let (own, mut own_events) = mpsc::unbounded_channel();
    let (before, lines) = parts.handed.map_or((None, Vec::new()), |handed| (Some(handed.before), handed.lines));
    let formers = match parts.beside {
        ProcessesBeside::None => begin_formers(lines, own.clone(), ports),
        ProcessesBeside::Since(since) => FormerProcesses::unheard(since),
    };
    let mut driver = GroupDriver {
        member: parts.member,
        links: parts.links,
        store: parts.store,
        engine: parts.engine.map(Rc::new),
        address: Rc::new(parts.address),
        shown: (*ports.seat.view()).clone(),
        ports: ports.clone(),
        party: ports.party,
        formers,
        granted_until: 0,
        compared: None,
        likeness: ParameterLikeness::default(),
        likeness_asked: HashMap::new(),
        own,
        lease_ms: parts.lease_ms,
        obeying: None,
        answers: HashMap::new(),
        act_askers: HashMap::new(),
        forming_askers: HashMap::new(),
        tickets: 0,
        version: None,
        rights: MemberRights::default(),
        ended: 0,
        stopped_epoch: None,
        fault: None,
        leaving: None,
        handover: None,
        intent: MemberIntent::Serves,
        is_host_fit: true,
        is_stepping_down: false,
        stopping: Vec::new(),
        intents: HashMap::new(),
        shown_at: 0,
    };
    if let Some(before) = before {
        driver.resume(before);
    }
    let mut tick_at = boot_now_ms();
    let mut tick = pin!(tokio::time::sleep(Duration::ZERO));
    loop {
        tokio::select! {
            biased;
            Some(event) = own_events.recv() => driver.take_own(event),
            Some(outcome) = outcomes.recv() => driver.take_outcome(outcome),
            Some(event) = peer_events.recv() => driver.take_peer(event),
            Some(order) = orders.recv() => {
                if let GroupOrder::Reload(watchdog) = &order {
                    fitness.set_command(watchdog.trusted_command.clone());
                }
                driver.take_order(order);
            }
            () = fitness.changed() => driver.take_fitness(fitness.fitness()),
            () = &mut tick => {
                driver.drop_acts();
                let dice = u32::from_le_bytes(crate::random());
                driver.step(GroupEvent::Tick { dice });
                tick_at = GroupMs::MAX;
            }
        }
        driver.pass_on();
        driver.obeyed();
        driver.note_end();
        driver.show();
        driver.end_step_downs();
        if driver.has_left() {
            driver.end().await;
            return DriveEnd::Left;
        }
        if let Some(handover) = driver.handover.take_if(|handover| boot_now_ms() >= handover.at) {
            return driver.hand_over(handover.answer).await;
        }
        // Other events never put a tick off: those that come all the time would do so for ever.
        let now = boot_now_ms();
        let due = driver.member.next_tick(now);
        if due < tick_at {
            tick_at = due;
            tick.as_mut().reset(Instant::now() + Duration::from_millis(due.saturating_sub(now)));
        }
    }
}

fn begin_formers(lines: Vec<FormerLine>, own: mpsc::UnboundedSender<OwnEvent>, ports: &GroupPorts) -> FormerProcesses {
    let tell = move |news| drop(own.send(OwnEvent::Former(news)));
    FormerProcesses::begin(lines, tell, |cause| {
        let text = format_args!("watchdog: a former process hears nothing of this one, and its rights end: {cause}");
        (ports.say)(Level::Warning, text);
    })
}

impl GroupDriver {
    fn step(&mut self, event: GroupEvent) {
        let now = boot_now_ms();
        for action in group_step(&mut self.member, event, now) {
            self.obey(action, now);
        }
    }

    fn obey(&mut self, action: GroupAction, now: GroupMs) {
        match action {
            GroupAction::Send { host, message } => self.links.send(host, &message),
            GroupAction::Write { number, text } => {
                if let Err(refusal) = self.store.write(number, text) {
                    self.lose_vote(refusal.to_string());
                }
            }
            GroupAction::Rights { number, rights, obey } => self.take_rights(number, rights, obey, now),
            GroupAction::State(version) => {
                let before = self.version.as_ref().map(|version| version.state.clone());
                group_words::say_changes(&self.ports.say, self.member.id(), before.as_deref(), &version.state);
                self.version = Some(version);
            }
            GroupAction::WritesStopped { epoch } => self.stopped_epoch = Some(epoch),
            GroupAction::Answer { ticket, answer } => {
                if let Some(asker) = self.answers.remove(&ticket) {
                    let _ = asker.send(answer);
                }
            }
            GroupAction::Act { from, act } if act.text == LIKENESS_ACT => {
                let refusal = || ActAnswer::Refused("this host is a witness, and compares no parameters".into());
                let answer = self.likeness.answer().map_or_else(refusal, ActAnswer::Done);
                self.step(GroupEvent::Acted { from, number: act.number, answer });
            }
            GroupAction::Act { from, act } if self.party == WritingParty::Workers => {
                self.ports.seat.hear_act(HeardAct { from, number: act.number, doer: act.doer, text: act.text });
            }
            GroupAction::Act { from, act } => {
                let answer = ActAnswer::Refused("this host is a witness, and does nothing of the kind".into());
                self.step(GroupEvent::Acted { from, number: act.number, answer });
            }
            GroupAction::Acted { ticket, answer } => {
                if let Some(host) = self.likeness_asked.remove(&ticket) {
                    self.compare_parameters(host, answer);
                    return;
                }
                if let Some(asker) = self.act_askers.remove(&ticket) {
                    let _ = asker.send(answer);
                }
            }
            // Answered within the step that orders it.
            GroupAction::Formed { ticket, answer } => {
                if let Some(asker) = self.forming_askers.remove(&ticket) {
                    let _ = asker.send(answer);
                }
            }
            GroupAction::Replaced { by } => self.note_replaced(by),
            GroupAction::ReadEngine => self.ask_engine(),
            GroupAction::CreateEngine { new } => self.change_engine(None, *new),
            GroupAction::ChangeEngine { expect, new } => self.change_engine(Some(expect), *new),
        }
    }

    /// Goes on with what the process before this one had.
    fn resume(&mut self, before: MemberHandover) {
        self.rights = before.rights;
        // Without a decided version there is nothing to lead by yet.
        self.version = before.known.filter(|_| before.is_decided);
        self.grant();
        self.show();
    }

    fn take_rights(&mut self, number: VersionNumber, rights: MemberRights, obey: RightsTaken, now: GroupMs) {
        let led = self.rights.leads.is_some();
        let writes = WritesChange::of(&self.rights, &rights, self.party);
        self.rights = rights;
        let leads = rights.leads.is_some() && now < rights.until;
        if leads {
            self.address.hold(rights.until);
        }
        if leads != led {
            self.stopped_epoch = None;
            group_words::say_lead(&self.ports.say, rights.leads.filter(|_| leads));
        }
        if obey == RightsTaken::Something {
            let before = self.obeying.take();
            let progress = ObedienceProgress::of(before, number, leads, writes);
            let is_begun = progress.is_freeing;
            self.obeying = Some(ObedienceProgress { is_freeing: !progress.address, ..progress });
            if !leads && !is_begun {
                let (address, own) = (self.address.clone(), self.own.clone());
                spawn_local(async move {
                    address.release().await;
                    let _ = own.send(OwnEvent::AddressFree(number));
                });
            }
            self.obeyed();
        } else if !leads && led {
            let address = self.address.clone();
            spawn_local(async move {
                address.release().await;
            });
        }
        self.grant();
    }

    /// Gives the workers what the group gives.
    fn grant(&mut self) {
        if self.obeying.as_ref().is_none_or(ObedienceProgress::lets_renew) {
            self.granted_until = self.granted_until.max(self.rights.until);
            (self.ports.grant)(self.rights.until, self.rights.writes);
        }
    }

    /// Passes rights on to former processes, with what they are to obey.
    fn pass_on(&mut self) {
        let obey = self.obeying.as_ref().map(|obeying| obeying.number);
        self.formers.pass(self.rights, obey, self.version.as_ref());
    }

    fn obeyed(&mut self) {
        let (formers, now, lease_ms) = (&self.formers, boot_now_ms(), self.member.lease_ms());
        let is_done = |obeying: &ObedienceProgress| obeying.is_done() && formers.have_obeyed(obeying.number, now, lease_ms);
        if let Some(done) = self.obeying.take_if(|obeying| is_done(obeying)) {
            self.step(GroupEvent::Obeyed { number: done.number });
        }
    }

    /// Rights that ended by themselves. Looked at after each event: a machine may have slept.
    fn note_end(&mut self) {
        let until = self.rights.until;
        let is_over = boot_now_ms() >= until && self.ended != until;
        if is_over && self.rights.leads.is_some() && self.address.holds() {
            self.ended = until;
            let address = self.address.clone();
            spawn_local(async move {
                address.release().await;
            });
        }
    }

    fn take_own(&mut self, event: OwnEvent) {
        match event {
            OwnEvent::AddressFree(number) => {
                if let Some(obeying) = self.obeying.as_mut().filter(|obeying| obeying.number == number) {
                    obeying.address = true;
                    self.obeyed();
                }
            }
            OwnEvent::Engine(event) => self.step(GroupEvent::Engine(event)),
            OwnEvent::Former(news) => self.formers.take(news),
        }
    }

    fn take_outcome(&mut self, outcome: StateOutcome) {
        match outcome {
            StateOutcome::Written { number } => self.step(GroupEvent::Written { number }),
            StateOutcome::Failed { error, .. } => self.lose_vote(error.to_string()),
        }
    }

    fn lose_vote(&mut self, why: String) {
        if self.fault.is_none() {
            (self.ports.say)(Level::Error, format_args!("watchdog: {why}"));
        }
        self.fault.get_or_insert(why);
        self.step(GroupEvent::WriteFailed);
    }

    fn note_replaced(&mut self, by: HostNumber) {
        let why = format!(
            "another group was formed by force on host {by}, in place of the one that this host's file is of: this host does nothing any more. \
             Stop it, delete weir_group.PORT in its wd_state_dir, and start it: then it becomes a member of that group"
        );
        (self.ports.say)(Level::Error, format_args!("watchdog: {why}"));
        self.fault = Some(why);
    }

    fn take_peer(&mut self, event: PeerEvent) {
        match event {
            PeerEvent::Heard(message) => {
                let before = self.intents.insert(message.from.host, message.intent);
                if message.intent == MemberIntent::ShutsDown && before != Some(message.intent) {
                    group_words::say_shutdown(&self.ports.say, message.from.host);
                }
                let (from, parameters) = (message.from, message.parameters);
                self.step(GroupEvent::Message(message));
                self.hear_parameters(from, parameters);
            }
            PeerEvent::LinkClosed { member } => self.step(GroupEvent::LinkClosed { member }),
        }
    }

    fn take_order(&mut self, order: GroupOrder) {
        match order {
            GroupOrder::Request { request, answer } => self.request(request, answer),
            GroupOrder::WritesObeyed(number) => {
                if let Some(obeying) = self.obeying.as_mut().filter(|obeying| obeying.number == number) {
                    obeying.writes = true;
                    self.grant();
                    self.obeyed();
                }
            }
            GroupOrder::Intent(intent) => {
                self.intent = intent;
                self.tell_intent();
            }
            GroupOrder::Reload(watchdog) => self.reload(&watchdog),
            GroupOrder::StepDown(act) => {
                self.is_stepping_down = true;
                self.tell_intent();
                if self.stopping.len() < STEP_DOWNS_MAX {
                    self.stopping.push((boot_now_ms() + STEP_DOWN_MS, act));
                }
            }
            GroupOrder::Sights(sights) => self.step(GroupEvent::Sights(sights)),
            GroupOrder::Founding { text, mark } => self.step(GroupEvent::Founding { text, mark }),
            GroupOrder::Form { order, answer } => {
                self.tickets += 1;
                self.forming_askers.insert(self.tickets, answer);
                self.step(GroupEvent::Form { ticket: self.tickets, order });
            }
            GroupOrder::Act { to, text, limit_ms, answer } => {
                self.tickets += 1;
                self.act_askers.insert(self.tickets, answer);
                self.step(GroupEvent::Act { ticket: self.tickets, to, text, limit_ms });
            }
            GroupOrder::Acted { from, number, answer } => self.step(GroupEvent::Acted { from, number, answer }),
            GroupOrder::HandOver { answer } => self.prepare_handover(answer),
            GroupOrder::LeadGivenUp => {
                if let Some(handover) = &mut self.handover {
                    handover.at = 0;
                }
            }
            GroupOrder::Relieved => {}
            GroupOrder::Leave { left } => {
                self.intent = MemberIntent::ShutsDown;
                // Workers have ended, and the control thread may not say so any more.
                self.party = WritingParty::Nobody;
                if let Some(obeying) = &mut self.obeying {
                    obeying.writes = true;
                }
                self.obeyed();
                self.tell_intent();
                let now = boot_now_ms();
                self.leaving = Some(LeavingMember { left, told_at: now + self.lease_ms / 4, until: now + self.lease_ms });
            }
        }
    }

    fn prepare_handover(&mut self, answer: oneshot::Sender<Result<HandedMember, String>>) {
        if self.leaving.is_some() {
            return drop(answer.send(Err("the running proxy is stopping already".into())));
        }
        if self.formers.count() >= FORMERS_MAX {
            let why = format!("{FORMERS_MAX} former processes still have clients: try again when one of them has ended");
            return drop(answer.send(Err(why)));
        }
        if !self.formers.are_unheard_over(boot_now_ms(), self.member.lease_ms()) {
            let why = "clients of a process that was not taken over from may still write: try again in a few seconds".into();
            return drop(answer.send(Err(why)));
        }
        let leads = self.shown.rights.leads.is_some();
        self.handover = Some(PlaceHandover { answer, at: if leads { boot_now_ms() + LEAD_LIMIT_MS } else { 0 } });
    }

    /// Takes what a reload changes; all else is as it was at the start.
    fn reload(&mut self, watchdog: &WatchdogSettings) {
        self.step(GroupEvent::Removals(removals_of(watchdog)));
        self.address.set_escalations(EscalationCommands::of(watchdog));
    }

    fn request(&mut self, request: GroupRequest, answer: oneshot::Sender<GroupAnswer>) {
        self.tickets += 1;
        self.answers.retain(|_, asker| !asker.is_closed());
        self.answers.insert(self.tickets, answer);
        self.step(GroupEvent::Request { ticket: self.tickets, request });
    }

    /// Lets those go on who wait until another member leads.
    fn end_step_downs(&mut self) {
        let now = boot_now_ms();
        let hands_over = now < self.rights.until && self.member.has_successor(now);
        self.stopping.retain(|(until, _)| hands_over && now < *until);
    }

    /// Forgets acts whose askers are gone.
    fn drop_acts(&mut self) {
        let gone: Vec<u64> = self.act_askers.extract_if(|_, asker| asker.is_closed()).map(|(ticket, _)| ticket).collect();
        for ticket in gone {
            self.step(GroupEvent::ActDropped { ticket });
        }
    }

    /// Looks at the own parameters, which may have been read again.
    fn look_at_parameters(&mut self) {
        let Some(config) = (self.ports.parameters)() else { return };
        if self.compared.as_ref().is_some_and(|compared| Arc::ptr_eq(compared, &config)) {
            return;
        }
        let key = config.watchdog.as_ref().map_or("", |watchdog| watchdog.authkey.expose());
        let own = OwnParameters::of(&config, key);
        self.step(GroupEvent::Parameters(own.digest));
        self.likeness.set_own(own);
        self.compared = Some(config);
    }

    fn hear_parameters(&mut self, from: MemberId, digest: Option<u64>) {
        // Before a member is admitted it cannot be asked.
        let is_member = self.version.as_ref().is_some_and(|version| version.state.members.has(from));
        if !is_member {
            return;
        }
        if self.likeness.hear(from, digest, boot_now_ms()) {
            self.tickets += 1;
            self.likeness_asked.insert(self.tickets, from.host);
            let (to, text) = (Some(from), LIKENESS_ACT.to_owned());
            self.step(GroupEvent::Act { ticket: self.tickets, to, text, limit_ms: LIKENESS_LIMIT_MS });
        }
        self.say_likeness(from.host);
    }

    fn compare_parameters(&mut self, host: HostNumber, answer: ActAnswer) {
        match answer {
            ActAnswer::Done(told) => {
                if let Err(error) = self.likeness.compare(host, &told) {
                    (self.ports.say)(Level::Warning, format_args!("watchdog: host {host}: {error}"));
                }
                self.say_likeness(host);
            }
            // It is asked again later.
            ActAnswer::Refused(_) | ActAnswer::NotLeader | ActAnswer::Unknown => {}
        }
    }

    fn say_likeness(&mut self, host: HostNumber) {
        if let Some(news) = self.likeness.news(host) {
            group_words::say_likeness(&self.ports.say, host, &news);
        }
    }

    fn take_fitness(&mut self, fitness: HostFitness) {
        self.is_host_fit = fitness == HostFitness::Fit;
        self.tell_intent();
    }

    fn tell_intent(&mut self) {
        let intent = match self.intent {
            MemberIntent::Serves if !self.is_host_fit || self.is_stepping_down => MemberIntent::Unfit,
            intent => intent,
        };
        self.step(GroupEvent::Intent(intent));
    }

    fn ask_engine(&self) {
        let (Some(engine), own) = (self.engine.clone(), self.own.clone()) else { return };
        spawn_local(async move {
            // Errors are in the log, by the engine, once per change.
            let Ok(EtcdSight { asked_at, version }) = engine.read().await else { return };
            let event = version.map_or(RegisterEvent::Empty, |version| RegisterEvent::Shown { version, asked_at });
            let _ = own.send(OwnEvent::Engine(event));
        });
    }

    fn change_engine(&self, expect: Option<VersionNumber>, new: GroupState) {
        let (Some(engine), own) = (self.engine.clone(), self.own.clone()) else { return };
        spawn_local(async move {
            let changed = match expect {
                Some(expect) => engine.change(expect, new).await,
                None => engine.create(new).await,
            };
            let event = match changed {
                Ok(EtcdChange::Made(version)) => RegisterEvent::Changed(version),
                Ok(EtcdChange::Refused(decided)) => RegisterEvent::Refused { decided },
                // It may have been made: the next read tells.
                Ok(EtcdChange::Unknown(_)) | Err(_) => RegisterEvent::Refused { decided: None },
            };
            let _ = own.send(OwnEvent::Engine(event));
        });
    }

    /// Publishes what changed. The end of rights is news, too. Times and links are shown now and then only, and wake nobody.
    fn show(&mut self) {
        let now = boot_now_ms();
        let is_due = now >= self.shown_at + SHOW_MS;
        let is_news = self.is_news(now);
        if !is_news && !is_due {
            return;
        }
        let mut peers = std::mem::take(&mut self.shown.peers);
        let mut are_links_news = false;
        if is_due {
            self.shown_at = now;
            self.look_at_parameters();
            let before = std::mem::replace(&mut peers, self.peers(now));
            are_links_news = !GroupView::has_links_of(&before, &peers);
        }
        self.shown = GroupView {
            own: self.member.id(),
            version: self.version.clone(),
            rights: self.rights_at(now),
            obedience: self.obedience(),
            stopped_epoch: self.stopped_epoch_at(now),
            peers,
            sights_of_others: self.member.sights_of_others(now).collect(),
            fault: self.fault.clone(),
        };
        let view = self.shown.clone();
        if is_news || are_links_news {
            self.ports.seat.show(view);
            (self.ports.news)();
        } else {
            self.ports.seat.show_times(view);
        }
    }

    /// Without an allocation: looked at after each event.
    fn is_news(&self, now: GroupMs) -> bool {
        let (shown, rights) = (&self.shown, self.rights_at(now));
        shown.version != self.version
            || (shown.rights.leads, shown.rights.writes) != (rights.leads, rights.writes)
            || shown.obedience != self.obedience()
            || shown.stopped_epoch != self.stopped_epoch_at(now)
            || !shown.sights_of_others.iter().copied().eq(self.member.sights_of_others(now))
            || shown.fault != self.fault
    }

    fn rights_at(&self, now: GroupMs) -> MemberRights {
        let rights =
            if now < self.rights.until { self.rights } else { MemberRights { leads: None, writes: None, ..self.rights } };
        // During a handover the next process gives the orders.
        let gives_orders = self.handover.is_none() && self.version.is_some();
        MemberRights { leads: rights.leads.filter(|_| gives_orders), ..rights }
    }

    fn obedience(&self) -> WritesObedience {
        match &self.obeying {
            Some(obeying) if !obeying.writes => WritesObedience::Awaited(obeying.number),
            Some(_) | None => WritesObedience::Done,
        }
    }

    fn stopped_epoch_at(&self, now: GroupMs) -> Option<u64> {
        self.stopped_epoch.filter(|_| self.rights_at(now).leads.is_some())
    }

    fn peers(&self, now: GroupMs) -> Vec<PeerView> {
        let view = |peer: PeerLinkView| PeerView {
            host: peer.host,
            heard_at: peer.heard_at.map(|at| now.saturating_sub(at.elapsed().as_millis() as u64)),
            is_linked: peer.incoming > 0 && peer.paths.iter().any(|path| path.is_up),
            intent: self.intents.get(&peer.host).copied().unwrap_or(MemberIntent::Serves),
            differing: self.likeness.differing(peer.host).to_vec(),
        };
        self.links.views().into_iter().map(view).collect()
    }

    fn has_left(&self) -> bool {
        let Some(leaving) = &self.leaving else { return false };
        let now = boot_now_ms();
        let is_free = !self.is_handing_over(now) && !self.has_casting_vote() && self.obeying.is_none() && !self.address.holds();
        now >= leaving.until || (now >= leaving.told_at && is_free)
    }

    /// True until the group is known to have another leader, which took the lead over. Before, those who stay may not know yet that it was given
    /// up, and would wait for the end of a lease.
    fn is_handing_over(&self, now: GroupMs) -> bool {
        let own = self.member.id();
        let is_ours = self.version.as_ref().is_some_and(|version| match version.state.lead {
            GroupLead::Held(id) => id == own,
            GroupLead::Taken { from, .. } => from == Some(own),
        });
        is_ours && now < self.rights.until
    }

    /// True until the others can decide without this member: with `enable_consensus_with_half_votes` the lowest one is removed when it stops.
    fn has_casting_vote(&self) -> bool {
        let own = self.member.id();
        self.version.as_ref().is_some_and(|version| {
            let members = &version.state.members;
            members.casting() == Some(own) && (members.lasting().len() > 1 || !members.lasting().contains(&own))
        })
    }

    /// Ends all that this process does as a member: nothing touches the address, nobody is answered, and the state file is free. Not cancel safe.
    async fn hand_over(mut self, answer: oneshot::Sender<Result<HandedMember, String>>) -> DriveEnd {
        self.address.leave().await;
        self.links.end().await;
        let before = MemberHandover { holds_address: self.address.holds(), ..self.member.handover() };
        // Before the next process can find the file without a lock.
        let mark = FormerMark::set(self.store.path()).map_err(|cause| format!("the mark of a former process: {cause}"));
        let closed = self.store.close(Duration::from_millis(self.lease_ms)).await;
        let ends = match closed {
            Ok(()) => {
                lease_line::pair().and_then(|(end, theirs)| Ok((LeaseLine::new(end)?, theirs))).map_err(|cause| cause.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        let lines = std::mem::take(&mut self.formers).hand_over().map_err(|cause| cause.to_string());
        let (line, lines, mark) = match ends.and_then(|(line, theirs)| Ok((line, theirs, lines?, mark?))) {
            Ok((line, theirs, mut lines, mark)) => {
                lines.insert(0, FormerLine { end: theirs, until: self.granted_until });
                (line, lines, mark)
            }
            Err(why) => {
                let _ = answer.send(Err(why));
                return DriveEnd::NotTaken(before);
            }
        };
        let before = MemberHandover { former_until: lines.iter().map(|line| line.until).collect(), ..before };
        let obeying = self.obeying;
        let member = FormerMember {
            version: self.version,
            rights: self.rights,
            obeying: obeying.filter(|obeying| !obeying.writes).map(|obeying| obeying.number),
            obeyed: obeying.filter(|obeying| obeying.writes).map(|obeying| obeying.number),
            before: before.clone(),
        };
        match answer.send(Ok(HandedMember { before, lines })) {
            Ok(()) => DriveEnd::HandedOver(FollowingProcess { line, member, _mark: mark }),
            Err(_) => DriveEnd::NotTaken(member.before),
        }
    }

    /// Not cancel safe.
    async fn end(self) {
        (self.ports.grant)(0, None);
        self.address.release().await;
        self.links.end().await;
        if let Err(error) = self.store.close(Duration::from_millis(self.lease_ms)).await {
            (self.ports.say)(Level::Warning, format_args!("watchdog: {error}"));
        }
        if let Some(leaving) = self.leaving {
            let _ = leaving.left.send(());
        }
    }
}
