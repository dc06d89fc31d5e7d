//! The only caller of `weir_group::group_step` in the program: brings it events, and obeys its actions in order.
//!
//! Nothing here waits for a disk, a peer, a command or the control thread: each of them answers by an event.

use crate::log::Level;
use crate::runtime::group_seat::{GroupOrder, GroupSeat, GroupView, HeardAct, PeerView, WritesObedience};
use crate::watchdog::etcd_engine::{EtcdChange, EtcdEngine, EtcdSight};
use crate::watchdog::group_words;
use crate::watchdog::host_fitness::{FitnessWatch, HostFitness};
use crate::watchdog::parameter_likeness::{LIKENESS_ACT, LIKENESS_LIMIT_MS, OwnParameters, ParameterLikeness};
use crate::watchdog::peer_links::{PeerEvent, PeerLinkView, PeerLinks};
use crate::watchdog::state_store::{StateOutcome, StateStore};
use crate::watchdog::virtual_address::{AddressKeeper, WatchdogLog};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_local;
use tokio::time::MissedTickBehavior;
use weir_config::Config;
use weir_group::{
    ActAnswer, GroupAction, GroupAnswer, GroupEvent, GroupLead, GroupMember, GroupMs, GroupRequest, GroupState, HostNumber,
    MemberId, MemberIntent, MemberRights, RegisterEvent, RightsTaken, StateVersion, VersionNumber, group_step,
};
use weir_io::clock::boot_now_ms;

/// Of the group's decisions: reads, claims and retries are a multiple of it.
const TICK: Duration = Duration::from_millis(50);

/// Times in the view are shown anew so often.
const SHOW_MS: GroupMs = 250;

/// Rights for the workers of this process; `writes` are an epoch and a node.
pub type LeaseGrant = Box<dyn Fn(GroupMs, Option<(u64, u16)>)>;

/// Configuration that is in force; `None` of a witness, which decides nothing about servers.
pub type ParametersInForce = Box<dyn Fn() -> Option<Arc<Config>>>;

/// The party that must stop writing when the group takes the right to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritingParty {
    /// The control thread says when its workers are done.
    Workers,
    /// A witness.
    Nobody,
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
    pub seat: Arc<GroupSeat>,
    pub orders: mpsc::Receiver<GroupOrder>,
    pub party: WritingParty,
    pub grant: LeaseGrant,
    pub parameters: ParametersInForce,
    /// Rings the control thread.
    pub news: Box<dyn Fn()>,
    pub say: WatchdogLog,
    pub lease_ms: GroupMs,
}

/// Answers of what this thread began itself.
enum OwnEvent {
    AddressFree(VersionNumber),
    Engine(RegisterEvent),
}

/// A version is obeyed when both are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ObedienceProgress {
    number: VersionNumber,
    address: bool,
    writes: bool,
    /// The address is being given up for this version.
    is_freeing: bool,
}

impl ObedienceProgress {
    /// A version is told again at each renewal of the lease: what is done stays done, since nobody says so twice.
    fn of(before: Option<ObedienceProgress>, number: VersionNumber, leads: bool, party: WritingParty) -> ObedienceProgress {
        let new = ObedienceProgress { number, address: leads, writes: party == WritingParty::Nobody, is_freeing: false };
        before.filter(|before| before.number == number).unwrap_or(new)
    }
}

struct LeavingMember {
    left: oneshot::Sender<()>,
    /// Peers have heard the intent by then, which goes beside the next read: two periods of reads.
    told_at: GroupMs,
    until: GroupMs,
}

struct GroupDriver {
    member: GroupMember,
    links: PeerLinks,
    store: StateStore,
    engine: Option<Rc<EtcdEngine>>,
    address: Rc<AddressKeeper>,
    seat: Arc<GroupSeat>,
    party: WritingParty,
    grant: LeaseGrant,
    parameters: ParametersInForce,
    /// Compared with those of the other hosts.
    compared: Option<Arc<Config>>,
    likeness: ParameterLikeness,
    /// Hosts that are asked for their parameters, by ticket.
    likeness_asked: HashMap<u64, HostNumber>,
    news: Box<dyn Fn()>,
    say: WatchdogLog,
    own: mpsc::UnboundedSender<OwnEvent>,
    lease_ms: GroupMs,
    obeying: Option<ObedienceProgress>,
    answers: HashMap<u64, oneshot::Sender<GroupAnswer>>,
    act_askers: HashMap<u64, oneshot::Sender<ActAnswer>>,
    tickets: u64,
    version: Option<StateVersion>,
    rights: MemberRights,
    stopped_epoch: Option<u64>,
    fault: Option<String>,
    leaving: Option<LeavingMember>,
    /// Judgements of the control thread and of this host: the worse one counts.
    intent: MemberIntent,
    is_host_fit: bool,
    /// As peers last said.
    intents: HashMap<HostNumber, MemberIntent>,
    shown: GroupView,
    shown_at: GroupMs,
}

/// Serves the group until this member has left it. Not cancel safe: what the kernel and the disk hold stays.
pub async fn drive(parts: DriverParts) {
    let DriverParts { mut peer_events, mut outcomes, mut fitness, mut orders, .. } = parts;
    let (own, mut own_events) = mpsc::unbounded_channel();
    let mut driver = GroupDriver {
        member: parts.member,
        links: parts.links,
        store: parts.store,
        engine: parts.engine.map(Rc::new),
        address: Rc::new(parts.address),
        shown: (*parts.seat.view()).clone(),
        seat: parts.seat,
        party: parts.party,
        grant: parts.grant,
        parameters: parts.parameters,
        compared: None,
        likeness: ParameterLikeness::default(),
        likeness_asked: HashMap::new(),
        news: parts.news,
        say: parts.say,
        own,
        lease_ms: parts.lease_ms,
        obeying: None,
        answers: HashMap::new(),
        act_askers: HashMap::new(),
        tickets: 0,
        version: None,
        rights: MemberRights::default(),
        stopped_epoch: None,
        fault: None,
        leaving: None,
        intent: MemberIntent::Serves,
        is_host_fit: true,
        intents: HashMap::new(),
        shown_at: 0,
    };
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            Some(event) = own_events.recv() => driver.take_own(event),
            Some(outcome) = outcomes.recv() => driver.take_outcome(outcome),
            Some(event) = peer_events.recv() => driver.take_peer(event),
            Some(order) = orders.recv() => driver.take_order(order),
            () = fitness.changed() => driver.take_fitness(fitness.fitness()),
            _ = ticks.tick() => {
                driver.drop_acts();
                let dice = u32::from_le_bytes(crate::random());
                driver.step(GroupEvent::Tick { dice });
                driver.note_end();
            }
        }
        driver.show();
        if driver.has_left() {
            break;
        }
    }
    driver.end().await;
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
                group_words::say_changes(&self.say, self.member.id(), before.as_deref(), &version.state);
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
                self.seat.hear_act(HeardAct { from, number: act.number, doer: act.doer, text: act.text });
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
            GroupAction::ReadEngine => self.ask_engine(),
            GroupAction::CreateEngine { new } => self.change_engine(None, *new),
            GroupAction::ChangeEngine { expect, new } => self.change_engine(Some(expect), *new),
        }
    }

    fn take_rights(&mut self, number: VersionNumber, rights: MemberRights, obey: RightsTaken, now: GroupMs) {
        let led = self.rights.leads.is_some();
        self.rights = rights;
        let leads = rights.leads.is_some() && now < rights.until;
        if leads {
            self.address.hold(rights.until);
        }
        if leads != led {
            self.stopped_epoch = None;
            group_words::say_lead(&self.say, rights.leads.filter(|_| leads));
        }
        if obey == RightsTaken::Something {
            let before = self.obeying.take();
            let progress = ObedienceProgress::of(before, number, leads, self.party);
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

    /// Gives the workers what the group gives. Until they are done with writes that were taken, the former lease runs on for open
    /// transactions, without being renewed: nobody gets the writes before.
    fn grant(&self) {
        if self.obeying.as_ref().is_none_or(|obeying| obeying.writes) {
            (self.grant)(self.rights.until, self.rights.writes);
        }
    }

    fn obeyed(&mut self) {
        if let Some(done) = self.obeying.take_if(|obeying| obeying.address && obeying.writes) {
            self.step(GroupEvent::Obeyed { number: done.number });
        }
    }

    /// Rights that ended by themselves.
    fn note_end(&mut self) {
        let is_over = boot_now_ms() >= self.rights.until;
        if is_over && self.rights.leads.is_some() && self.address.holds() {
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
            (self.say)(Level::Error, format_args!("watchdog: {why}"));
        }
        self.fault.get_or_insert(why);
        self.step(GroupEvent::WriteFailed);
    }

    fn take_peer(&mut self, event: PeerEvent) {
        match event {
            PeerEvent::Heard(message) => {
                let before = self.intents.insert(message.from.host, message.intent);
                if message.intent == MemberIntent::ShutsDown && before != Some(message.intent) {
                    group_words::say_shutdown(&self.say, message.from.host);
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
            GroupOrder::Sights(sights) => self.step(GroupEvent::Sights(sights)),
            GroupOrder::Founding { text, mark } => self.step(GroupEvent::Founding { text, mark }),
            GroupOrder::Act { to, text, limit_ms, answer } => {
                self.tickets += 1;
                self.act_askers.insert(self.tickets, answer);
                self.step(GroupEvent::Act { ticket: self.tickets, to, text, limit_ms });
            }
            GroupOrder::Acted { from, number, answer } => self.step(GroupEvent::Acted { from, number, answer }),
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

    fn request(&mut self, request: GroupRequest, answer: oneshot::Sender<GroupAnswer>) {
        self.tickets += 1;
        self.answers.retain(|_, asker| !asker.is_closed());
        self.answers.insert(self.tickets, answer);
        self.step(GroupEvent::Request { ticket: self.tickets, request });
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
        let Some(config) = (self.parameters)() else { return };
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
                    (self.say)(Level::Warning, format_args!("watchdog: host {host}: {error}"));
                }
                self.say_likeness(host);
            }
            // It is asked again later.
            ActAnswer::Refused(_) | ActAnswer::NotLeader | ActAnswer::Unknown => {}
        }
    }

    fn say_likeness(&mut self, host: HostNumber) {
        if let Some(news) = self.likeness.news(host) {
            group_words::say_likeness(&self.say, host, &news);
        }
    }

    fn take_fitness(&mut self, fitness: HostFitness) {
        self.is_host_fit = fitness == HostFitness::Fit;
        self.tell_intent();
    }

    fn tell_intent(&mut self) {
        let intent = match self.intent {
            MemberIntent::Serves if !self.is_host_fit => MemberIntent::Unfit,
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

    /// Publishes what changed. The end of rights is news, too.
    fn show(&mut self) {
        let now = boot_now_ms();
        // Not for each message: links are shown as often as times.
        let is_due = now >= self.shown_at + SHOW_MS;
        let peers = if is_due { self.peers(now) } else { self.shown.peers.clone() };
        let has_lease = now < self.rights.until;
        let rights = if has_lease { self.rights } else { MemberRights { leads: None, writes: None, ..self.rights } };
        let view = GroupView {
            own: self.member.id(),
            version: self.version.clone(),
            rights,
            obedience: match &self.obeying {
                Some(obeying) if !obeying.writes => WritesObedience::Awaited(obeying.number),
                Some(_) | None => WritesObedience::Done,
            },
            stopped_epoch: self.stopped_epoch.filter(|_| rights.leads.is_some()),
            peers,
            sights_of_others: self.member.sights_of_others(now),
            fault: self.fault.clone(),
        };
        let is_news = !view.is_as_before(&self.shown);
        if !is_news && !is_due {
            return;
        }
        if is_due {
            self.shown_at = now;
            self.look_at_parameters();
        }
        self.shown = view.clone();
        self.seat.show(view);
        if is_news {
            (self.news)();
        }
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

    /// Not cancel safe.
    async fn end(self) {
        (self.grant)(0, None);
        self.address.release().await;
        self.links.end().await;
        if let Err(error) = self.store.close(Duration::from_millis(self.lease_ms)).await {
            (self.say)(Level::Warning, format_args!("watchdog: {error}"));
        }
        if let Some(leaving) = self.leaving {
            let _ = leaving.left.send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renewals_of_a_lease_leave_obedience_as_far_as_it_is() {
        let number = |counter| VersionNumber { counter, ..VersionNumber::default() };
        let begun = ObedienceProgress::of(None, number(7), false, WritingParty::Workers);
        assert_eq!((begun.address, begun.writes, begun.is_freeing), (false, false, false));
        let written = ObedienceProgress { writes: true, is_freeing: true, ..begun };
        assert_eq!(ObedienceProgress::of(Some(written), number(7), false, WritingParty::Workers), written);
        let next = ObedienceProgress::of(Some(written), number(8), false, WritingParty::Workers);
        assert_eq!(next, ObedienceProgress { number: number(8), ..begun });
        assert!(ObedienceProgress::of(None, number(7), true, WritingParty::Nobody).writes);
    }
}
