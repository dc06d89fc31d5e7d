//! Hosts with clocks, disks and a bad network around `group_step`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weir_group::{
    ActAnswer, ActDoer, EngineKind, FormingOrder, GroupAction, GroupAnswer, GroupEvent, GroupMember, GroupMessage, GroupRequest,
    GroupRule, GroupSettings, HalfVotes, MemberDuty, MemberId, MemberIntent, MemberRights, MemberRow, MemberSet, MessagePart,
    RegisterMessage, RightsTaken, ServerMark, ShutdownFate, StateVersion, StoredVote, VersionNumber, group_step,
};

use super::act_book::ActBook;
use super::dice::Dice;
use super::oracle::Oracle;

const SECOND: u64 = 1_000_000;
/// True time in microseconds.
const HEAL_AT: u64 = 30 * SECOND;
const END_AT: u64 = 60 * SECOND;
const HOSTS_MAX: usize = 5;
/// Messages that a stopped process finds in its sockets.
const BACKLOG_MAX: usize = 300;
/// Longest time from a request for other members until it is certainly over.
const REQUEST_US: u64 = 15 * SECOND;

/// Longest time between two ticks; a member may ask for longer pauses, which are only watched here.
const BUSY_MS: u64 = 60;

/// Longest time from the end of a silence until nobody removes the host for it.
const UNHEARD_US: u64 = 6 * SECOND;

/// Something left out: a rule of the crate, or one that the world keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOut {
    Nothing,
    Rule(GroupRule),
    /// A host that lost its disk keeps its incarnation.
    NewIncarnation,
    /// Clocks are within 5 %.
    ClockPace,
}

#[derive(Clone)]
enum WorldEvent {
    Tick { host: usize, life: u32 },
    Message { host: usize, message: Box<GroupMessage> },
    Ask,
    ActDone { host: usize, life: u32, from: MemberId, number: u64 },
    Written { host: usize, life: u32, number: u64 },
    Obeyed { host: usize, life: u32, number: VersionNumber },
    Promoted { host: usize, life: u32, epoch: u64 },
    Fault,
    Heal,
    Resume { host: usize, stops: u32 },
    Restart { host: usize },
    Crash { host: usize, down: u64 },
}

struct Host {
    row: MemberRow,
    member: Option<GroupMember>,
    /// Empty: no file.
    file: String,
    writing: Option<(u64, String, Vec<StateVersion>)>,
    /// Versions that were accepted since the last write began.
    accepted: Vec<StateVersion>,
    held: Option<VersionNumber>,
    /// Last time when others may not have heard it, or heard that it shuts down: a leader believes it for some time.
    unheard_at: Option<u64>,
    life: u32,
    is_stopped: bool,
    stops: u32,
    backlog: Vec<WorldEvent>,
    rate: f64,
    offset_ms: u64,
    /// Nothing is due before, on the host's clock.
    pause_until: u64,
    /// The version that the host acts on, and the last one that it was told.
    acting: MemberRights,
    ordered: MemberRights,
    is_started: bool,
}

impl Host {
    fn local(&self, now: u64) -> u64 {
        self.offset_ms + (now as f64 * self.rate / 1_000.0) as u64
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct RunCounts {
    pub events: u64,
    pub terms: u64,
    pub epochs: u64,
    pub decided: u64,
    pub member_changes: u64,
    pub wipes: u64,
    /// Hosts whose files the operator deleted since their group came to nothing.
    pub cleaned: u64,
    /// Acts of operators that were done, and that ended without it or without certainty.
    pub acts_done: u64,
    pub acts_else: u64,
}

pub struct SeedRun {
    pub found: Option<String>,
    pub counts: RunCounts,
    /// True time from the end of the faults until all is well.
    pub well_after_ms: u64,
}

struct World {
    hosts: Vec<Host>,
    settings: GroupSettings,
    queue: BinaryHeap<Reverse<(u64, u64, usize)>>,
    slots: Vec<Option<WorldEvent>>,
    free: Vec<usize>,
    sequence: u64,
    now: u64,
    dice: Dice,
    /// Of acts alone, so that they change nothing else in a run.
    act_dice: Dice,
    acts: ActBook,
    cut: [[bool; HOSTS_MAX]; HOSTS_MAX],
    loss_percent: u64,
    delay_us: u64,
    disk_us: u64,
    is_faulty: bool,
    /// Hosts that casts reach; all if `None`.
    casts_to: Option<usize>,
    promotions: Promotions,
    left_out: LeftOut,
    oracle: Oracle,
    requested: Vec<(u64, MemberSet)>,
    tickets: u64,
    cleaned_at: u64,
    formed_at: Option<u64>,
    counts: RunCounts,
}

/// The act of the world when writes stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promotions {
    Made,
    MadeAtOnce,
    Kept,
}

/// One run; the same seed gives the same run.
pub fn run(seed: u64, left_out: LeftOut) -> SeedRun {
    let mut world = World::new(seed, left_out);
    let mut well_at = None;
    while let Some(Reverse((at, _, slot))) = world.queue.pop() {
        let Some(event) = world.slots[slot].take() else { continue };
        world.free.push(slot);
        if at > END_AT {
            break;
        }
        world.now = at;
        world.counts.events += 1;
        world.happen(event);
        world.look();
        if world.oracle.found.is_some() {
            break;
        }
        if !world.is_faulty && world.counts.events.is_multiple_of(32) && world.is_well() {
            well_at = Some(world.now - HEAL_AT);
            break;
        }
    }
    if well_at.is_none() && world.oracle.found.is_none() {
        let text = world.describe();
        world.oracle.fail(format!("not well at the end: {text}"));
    }
    world.counts.decided = world.oracle.decided.len() as u64;
    let at = world.now / 1_000;
    let found = world.oracle.found.map(|found| format!("{found} (at {at} ms)"));
    SeedRun { found, counts: world.counts, well_after_ms: well_at.unwrap_or(END_AT) / 1_000 }
}

/// Five members. An opening is cast to one of them only, which is then cut off; the leader obeys a claim, and another opening is decided: before
/// the lease of the one that was cut off ends. `None`: the script did not come to its end in time.
pub fn run_lone_opening(seed: u64, left_out: LeftOut) -> Option<SeedRun> {
    let mut world = World::new(seed, left_out);
    if world.hosts.len() != HOSTS_MAX || world.hosts.iter().any(|of| !of.row.may_lead()) || world.settings.no_show_ms.is_some() {
        return None;
    }
    world.queue.retain(|Reverse((_, _, slot))| !matches!(world.slots[*slot], Some(WorldEvent::Fault | WorldEvent::Heal)));
    (world.is_faulty, world.delay_us, world.disk_us) = (false, 3_000, 3_000);
    world.go_on(8 * SECOND);
    world.promotions = Promotions::Kept;
    world.request_leader(GroupRequest::CloseWrites { text: Some(String::new()) });
    world.go_on(SECOND);
    let leader = world.leader()?;
    let epoch = world.hosts[leader].member.as_ref()?.known()?.state.writes.closed()?;
    let lone = (leader + 1) % HOSTS_MAX;
    world.casts_to = Some(lone);
    world.request(leader, GroupRequest::OpenWrites { epoch: epoch + 1, node: 7, decision: None });
    world.go_on(60_000);
    world.casts_to = None;
    for host in 0..HOSTS_MAX {
        (world.cut[host][lone], world.cut[lone][host]) = (host != lone, host != lone);
        (world.cut[host][leader], world.cut[leader][host]) = (true, true);
    }
    world.close_links_of(leader, lone);
    world.go_on(750_000);
    world.promotions = Promotions::MadeAtOnce;
    for host in (0..HOSTS_MAX).filter(|host| *host != lone) {
        (world.cut[host][leader], world.cut[leader][host]) = (false, false);
    }
    world.go_on(2 * SECOND);
    let open = world.oracle.newest()?.writes.open();
    let is_other = open.is_some_and(|(opened, node)| opened == epoch + 1 && node != 7);
    is_other.then_some(SeedRun { found: world.oracle.found, counts: world.counts, well_after_ms: 0 })
}

/// Time from the death of a member until its writes count as stopped, of which some had passed before they were closed: in thousandths of the lease.
pub fn run_dead_member(seed: u64, left_out: LeftOut) -> Option<u64> {
    const CLOSED_AFTER: u64 = SECOND / 5;
    let mut world = World::new(seed, left_out);
    if world.hosts.len() < 3 || world.hosts.iter().any(|of| !of.row.may_lead()) || world.settings.no_show_ms.is_some() {
        return None;
    }
    world.queue.retain(|Reverse((_, _, slot))| !matches!(world.slots[*slot], Some(WorldEvent::Fault | WorldEvent::Heal)));
    (world.is_faulty, world.delay_us, world.disk_us) = (false, 3_000, 3_000);
    world.go_on(8 * SECOND);
    let leader = world.leader()?;
    let (epoch, _) = world.oracle.newest()?.writes.open()?;
    let dead = (leader + 1) % world.hosts.len();
    for host in (0..world.hosts.len()).filter(|host| *host != dead) {
        (world.cut[host][dead], world.cut[dead][host]) = (true, true);
    }
    let died_at = world.now;
    world.go_on(CLOSED_AFTER);
    world.promotions = Promotions::Kept;
    world.request_leader(GroupRequest::CloseWrites { text: Some(String::new()) });
    while !world.oracle.has_stopped(epoch) && world.now < died_at + 4 * SECOND {
        world.go_on(SECOND / 100);
    }
    Some((world.now - died_at) / world.settings.lease_ms)
}

/// Writes are closed while a member hears nobody any more, which the leader had not heard before: its lease goes by what another one answered.
pub fn run_far_member(seed: u64, left_out: LeftOut) -> Option<SeedRun> {
    let mut world = World::new(seed, left_out);
    if world.hosts.len() < 3 || world.hosts.iter().any(|of| !of.row.may_lead()) || world.settings.no_show_ms.is_some() {
        return None;
    }
    world.queue.retain(|Reverse((_, _, slot))| !matches!(world.slots[*slot], Some(WorldEvent::Fault | WorldEvent::Heal)));
    (world.is_faulty, world.delay_us, world.disk_us) = (false, 3_000, 3_000);
    world.go_on(8 * SECOND);
    let leader = world.leader()?;
    world.oracle.newest()?.writes.open()?;
    let far = (leader + 1) % world.hosts.len();
    (world.cut[far][leader], world.cut[leader][far]) = (true, true);
    let lease_us = 1_000 * world.settings.lease_ms;
    world.go_on(lease_us * 2 / 5);
    world.promotions = Promotions::Kept;
    for host in (0..world.hosts.len()).filter(|host| *host != far) {
        (world.cut[host][far], world.cut[far][host]) = (true, true);
    }
    world.request_leader(GroupRequest::CloseWrites { text: Some(String::new()) });
    world.go_on(2 * lease_us);
    let is_closed = world.oracle.newest()?.writes.closed().is_some();
    is_closed.then_some(SeedRun { found: world.oracle.found, counts: world.counts, well_after_ms: 0 })
}

impl World {
    fn go_on(&mut self, lasts: u64) {
        let end = self.now + lasts;
        while let Some(Reverse((at, _, slot))) = self.queue.pop() {
            if at > end {
                self.queue.push(Reverse((at, 0, slot)));
                break;
            }
            let Some(event) = self.slots[slot].take() else { continue };
            self.free.push(slot);
            self.now = at;
            self.happen(event);
            self.look();
        }
        self.now = end;
    }

    fn new(seed: u64, left_out: LeftOut) -> World {
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 77);
        let count = if dice.percent(5) { 1 } else { dice.within(2, 6) as usize };
        let half_votes = if dice.percent(30) { HalfVotes::LowestCasts } else { HalfVotes::TooFew };
        let settings = GroupSettings {
            host: 0,
            hosts: (0..count as u8).collect(),
            priority: 1,
            duty: MemberDuty::Serves,
            half_votes,
            lease_ms: 2_000,
            no_show_ms: dice.percent(30).then_some(1_500),
            lost_removal_ms: dice.percent(20).then_some(4_000),
            shutdowns: if dice.percent(30) { ShutdownFate::Removed } else { ShutdownFate::Stays },
            engine: EngineKind::Builtin,
            without: if let LeftOut::Rule(rule) = left_out { Some(rule) } else { None },
        };
        let spread = if left_out == LeftOut::ClockPace { 0.4 } else { 0.023 };
        let mut hosts = Vec::new();
        for host in 0..count {
            let is_plain = host == 0 || dice.percent(85);
            let duty = if is_plain { MemberDuty::Serves } else { MemberDuty::Witness };
            let priority = if host == 0 || dice.percent(90) { dice.within(1, 4) as u8 } else { 0 };
            let id = MemberId { host: host as u8, incarnation: 1 };
            hosts.push(Host {
                row: MemberRow { id, priority, duty },
                member: None,
                file: String::new(),
                writing: None,
                accepted: Vec::new(),
                held: None,
                unheard_at: None,
                life: 0,
                is_stopped: false,
                stops: 0,
                backlog: Vec::new(),
                rate: 1.0 + spread * (dice.within(0, 2_001) as f64 / 1_000.0 - 1.0),
                offset_ms: dice.within(1_000_000, 9_000_000),
                pause_until: 0,
                acting: MemberRights::default(),
                ordered: MemberRights::default(),
                is_started: false,
            });
        }
        let mut world = World {
            hosts,
            settings,
            queue: BinaryHeap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            sequence: 0,
            now: 0,
            dice,
            act_dice: Dice(seed ^ 0xAC7),
            acts: ActBook::default(),
            cut: [[false; HOSTS_MAX]; HOSTS_MAX],
            loss_percent: 0,
            delay_us: 20_000,
            disk_us: 10_000,
            is_faulty: true,
            casts_to: None,
            promotions: Promotions::Made,
            left_out,
            oracle: Oracle::default(),
            requested: Vec::new(),
            tickets: 0,
            cleaned_at: HEAL_AT,
            formed_at: None,
            counts: RunCounts::default(),
        };
        for host in 0..count {
            let is_late = world.settings.no_show_ms.is_some() && world.dice.percent(20);
            // Some come in the moment when the others propose.
            let after = world.dice.within(0, if is_late { 4 * SECOND } else { 200_000 });
            world.at(after, WorldEvent::Restart { host });
        }
        // Faults meet some groups while they form.
        let first = if world.dice.percent(30) { world.dice.within(0, SECOND) } else { 2 * SECOND };
        world.at(first, WorldEvent::Fault);
        world.at(HEAL_AT, WorldEvent::Heal);
        world.at(SECOND, WorldEvent::Ask);
        world
    }

    fn at(&mut self, at: u64, event: WorldEvent) {
        self.sequence += 1;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(event);
        self.queue.push(Reverse((at, self.sequence, slot)));
    }

    fn after(&mut self, low: u64, high: u64, event: WorldEvent) {
        let at = self.now + self.dice.within(low, high);
        self.at(at, event);
    }

    fn is_alive(&self, host: usize, life: u32) -> bool {
        self.hosts[host].life == life && self.hosts[host].member.is_some()
    }

    fn happen(&mut self, event: WorldEvent) {
        match event {
            WorldEvent::Tick { host, life } => {
                if self.is_alive(host, life) {
                    self.after(30_000, 1_000 * BUSY_MS, WorldEvent::Tick { host, life });
                    if !self.hosts[host].is_stopped {
                        let dice = self.dice.roll() as u32;
                        self.look_at_servers(host);
                        self.tick(host, dice);
                    }
                }
            }
            WorldEvent::Message { host, ref message } => {
                if self.hosts[host].member.is_some() && !self.is_held_up(host, &event) {
                    self.step(host, GroupEvent::Message(message.clone()));
                }
            }
            WorldEvent::Written { host, life, number } => {
                if self.is_alive(host, life) {
                    self.reach_disk(host, number);
                    if !self.is_held_up(host, &event) {
                        self.step(host, GroupEvent::Written { number });
                    }
                }
            }
            WorldEvent::Obeyed { host, life, number } => {
                if self.is_alive(host, life) && !self.is_held_up(host, &event) {
                    self.hosts[host].acting = self.hosts[host].ordered;
                    self.step(host, GroupEvent::Obeyed { number });
                }
            }
            WorldEvent::Promoted { host, life, epoch } => {
                if self.is_alive(host, life) && !self.is_held_up(host, &event) {
                    let node = self.dice.within(0, 3) as u16;
                    self.request(host, GroupRequest::OpenWrites { epoch: epoch + 1, node, decision: None });
                }
            }
            WorldEvent::Ask => self.ask_act(),
            WorldEvent::ActDone { host, life, from, number } => {
                if self.is_alive(host, life) && !self.is_held_up(host, &event) {
                    self.step(host, GroupEvent::Acted { from, number, answer: ActAnswer::Done(String::new()) });
                }
            }
            WorldEvent::Fault => self.fault(),
            WorldEvent::Heal => self.heal(),
            WorldEvent::Resume { host, stops } => {
                if self.hosts[host].stops == stops && self.hosts[host].is_stopped {
                    self.hosts[host].is_stopped = false;
                    for event in std::mem::take(&mut self.hosts[host].backlog) {
                        self.happen(event);
                        self.look();
                    }
                }
            }
            WorldEvent::Restart { host } => self.start(host),
            WorldEvent::Crash { host, down } => {
                self.crash(host);
                self.after(down / 2, down, WorldEvent::Restart { host });
                self.close_links(host);
            }
        }
    }

    /// A tick in a pause does nothing.
    fn tick(&mut self, host: usize, dice: u32) {
        let local = self.hosts[host].local(self.now);
        let Some(member) = &self.hosts[host].member else { return };
        if local < self.hosts[host].pause_until && self.left_out == LeftOut::Nothing {
            let actions = group_step(&mut member.clone(), GroupEvent::Tick { dice }, local);
            if !actions.is_empty() {
                self.oracle.fail(format!("a tick of host {host} in a pause did something: {actions:?}"));
            }
        }
        self.step(host, GroupEvent::Tick { dice });
    }

    /// Events for a stopped process wait for it.
    fn is_held_up(&mut self, host: usize, event: &WorldEvent) -> bool {
        let of = &mut self.hosts[host];
        let has_room = of.backlog.len() < BACKLOG_MAX || !matches!(event, WorldEvent::Message { .. });
        if of.is_stopped && has_room {
            of.backlog.push(event.clone());
        }
        of.is_stopped
    }

    /// Servers bear a mark from the first decision on.
    fn look_at_servers(&mut self, host: usize) {
        let is_formed = self.oracle.newest().is_some();
        if is_formed {
            self.formed_at.get_or_insert(self.now);
        }
        let mark = if is_formed { ServerMark::Marked } else { ServerMark::Unmarked };
        let is_alone = self.hosts[host].member.as_ref().is_some_and(|member| member.known().is_none());
        if is_alone {
            self.step(host, GroupEvent::Founding { text: format!("founded by {host}"), mark });
        }
    }

    fn start(&mut self, host: usize) {
        if self.hosts[host].member.is_some() {
            return;
        }
        let of = &mut self.hosts[host];
        of.life += 1;
        let stored = if of.file.is_empty() {
            StoredVote::new(of.row.id)
        } else {
            StoredVote::parse(of.file.as_bytes()).expect("a file that was renamed is whole")
        };
        let settings = GroupSettings { host: host as u8, priority: of.row.priority, duty: of.row.duty, ..self.settings.clone() };
        of.member = Some(GroupMember::new(settings, stored, u64::from(of.life) << 32, of.local(self.now)));
        (of.acting, of.ordered, of.is_stopped, of.writing) = Default::default();
        (of.is_started, of.backlog, of.accepted, of.held) = (true, Vec::new(), Vec::new(), None);
        // A pause ends with the process that made it.
        of.pause_until = 0;
        let life = of.life;
        self.after(0, 30_000, WorldEvent::Tick { host, life });
    }

    fn step(&mut self, host: usize, event: GroupEvent) {
        let local = self.hosts[host].local(self.now);
        let Some(member) = &mut self.hosts[host].member else { return };
        let actions = group_step(member, event, local);
        let (held, tick_at) = (member.register().held().accepted.clone(), member.next_tick(local));
        self.hosts[host].pause_until = if tick_at > local + BUSY_MS { tick_at } else { 0 };
        if held.as_ref().map(|version| version.number) != self.hosts[host].held {
            self.hosts[host].held = held.as_ref().map(|version| version.number);
            self.hosts[host].accepted.extend(held);
        }
        for action in actions {
            self.obey(host, action);
        }
    }

    fn obey(&mut self, host: usize, action: GroupAction) {
        let life = self.hosts[host].life;
        match action {
            GroupAction::Send { host: to, message } => self.send(host, usize::from(to), message),
            GroupAction::Write { number, text } => {
                let accepted = std::mem::take(&mut self.hosts[host].accepted);
                self.hosts[host].writing = Some((number, text, accepted));
                self.after(1_000, self.disk_us, WorldEvent::Written { host, life, number });
            }
            GroupAction::Rights { number, rights, obey } => {
                self.hosts[host].ordered = rights;
                match obey {
                    RightsTaken::Nothing => self.hosts[host].acting = rights,
                    RightsTaken::Something => self.after(1_000, 150_000, WorldEvent::Obeyed { host, life, number }),
                }
            }
            GroupAction::State(version) => {
                let id = self.hosts[host].row.id;
                self.counts.terms = self.counts.terms.max(version.state.term);
                self.oracle.believed(id, &version);
            }
            GroupAction::WritesStopped { epoch } => {
                self.counts.epochs = self.counts.epochs.max(epoch);
                self.oracle.writes_stopped(epoch);
                match self.promotions {
                    Promotions::Made => self.after(20_000, 800_000, WorldEvent::Promoted { host, life, epoch }),
                    Promotions::MadeAtOnce => self.after(1_000, 2_000, WorldEvent::Promoted { host, life, epoch }),
                    Promotions::Kept => {}
                }
            }
            GroupAction::Answer { answer, .. } => match answer {
                GroupAnswer::Done | GroupAnswer::NotLeader | GroupAnswer::Refused | GroupAnswer::Busy => {}
            },
            GroupAction::Act { from, act } => {
                let now = self.hosts[host].local(self.now);
                let leads = self.hosts[host].member.as_ref().is_some_and(|member| member.leads(now));
                if act.doer == ActDoer::Leader && !leads {
                    self.oracle.fail(format!("host {host} does an act of the leader"));
                }
                let number = act.number;
                if self.act_dice.percent(10) {
                    self.step(host, GroupEvent::Acted { from, number, answer: ActAnswer::NotLeader });
                    return;
                }
                if let Some(wrong) = self.acts.begin(&act.text) {
                    self.oracle.fail(wrong);
                }
                let after = self.act_dice.within(1_000, 2 * SECOND);
                self.at(self.now + after, WorldEvent::ActDone { host, life, from, number });
            }
            GroupAction::Acted { ticket, answer } => {
                match answer {
                    ActAnswer::Done(_) => self.counts.acts_done += 1,
                    ActAnswer::Refused(_) | ActAnswer::NotLeader | ActAnswer::Unknown => self.counts.acts_else += 1,
                }
                if let Some(wrong) = self.acts.end(ticket, &answer) {
                    self.oracle.fail(wrong);
                }
            }
            GroupAction::Formed { .. } => {}
            GroupAction::Replaced { .. } => self.oracle.fail(format!("host {host} hears of a group formed by force")),
            GroupAction::ReadEngine | GroupAction::ChangeEngine { .. } | GroupAction::CreateEngine { .. } => {
                self.oracle.fail("an engine outside was asked".into());
            }
        }
    }

    fn send(&mut self, from: usize, to: usize, message: Box<GroupMessage>) {
        if to >= self.hosts.len() || self.cut[from][to] {
            return;
        }
        if is_act(&message) {
            self.send_act(WorldEvent::Message { host: to, message });
            return;
        }
        if self.dice.percent(self.loss_percent) {
            return;
        }
        let is_cast = matches!(message.part, MessagePart::Register(RegisterMessage::Cast { .. }));
        if is_cast && self.casts_to.is_some_and(|only| only != to) {
            return;
        }
        let copies = if self.is_faulty && self.dice.percent(2) { 2 } else { 1 };
        for copy in 0..copies {
            let high = self.delay_us * (1 + 2 * copy);
            self.after(200, high, WorldEvent::Message { host: to, message: message.clone() });
        }
    }

    /// Often over two paths.
    fn send_act(&mut self, event: WorldEvent) {
        for _ in 0..self.act_dice.within(1, 3) {
            if !self.act_dice.percent(self.loss_percent) {
                let after = self.act_dice.within(200, self.delay_us);
                self.at(self.now + after, event.clone());
            }
        }
    }

    /// An operator wishes something of the leader or of a member, at any host.
    fn ask_act(&mut self) {
        let host = self.act_dice.host(self.hosts.len());
        let to = self.act_dice.percent(20).then(|| self.hosts[self.act_dice.host(self.hosts.len())].row.id);
        if self.hosts[host].member.is_some() && !self.hosts[host].is_stopped {
            // An operator vouches that there is no group: a host without its file cannot know.
            if self.act_dice.percent(20) && self.oracle.newest().is_none() {
                self.step(host, GroupEvent::Form { ticket: 0, order: FormingOrder::Majority });
            }
            let (ticket, text) = self.acts.ask();
            self.step(host, GroupEvent::Act { ticket, to, text, limit_ms: 20_000 });
        }
        let after = self.act_dice.within(50_000, SECOND);
        self.at(self.now + after, WorldEvent::Ask);
    }

    fn reach_disk(&mut self, host: usize, number: u64) {
        let Some((_, text, accepted)) = self.hosts[host].writing.take_if(|(of, _, _)| *of == number) else { return };
        let vote = StoredVote::parse(text.as_bytes()).expect("a member writes what it reads");
        self.hosts[host].file = text;
        for version in accepted.iter().chain(&vote.accepted) {
            self.oracle.on_disk(vote.member, version);
        }
    }

    /// A write under way at a crash happened or did not.
    fn crash(&mut self, host: usize) {
        if let Some((number, _, _)) = self.hosts[host].writing.clone()
            && self.dice.percent(50)
        {
            self.reach_disk(host, number);
        }
        let of = &mut self.hosts[host];
        // The kernel keeps the address of a process that died until the lease ends; its workers are gone.
        (of.member, of.writing) = (None, None);
        of.acting.writes = None;
    }

    fn look(&mut self) {
        let now = self.now;
        let acting =
            self.hosts.iter().enumerate().filter(|(_, of)| of.local(now) < of.acting.until).map(|(at, of)| (at, of.acting));
        self.oracle.look(acting);
    }

    fn leader(&self) -> Option<usize> {
        let leads = |of: &Host| {
            let acts = of.local(self.now) < of.acting.until && of.acting.leads.is_some();
            acts && of.member.is_some() && !of.is_stopped
        };
        self.hosts.iter().position(leads)
    }

    fn request(&mut self, host: usize, request: GroupRequest) {
        self.tickets += 1;
        let ticket = self.tickets;
        if let GroupRequest::ChangeMembers { rows } = &request {
            self.requested.push((self.now, rows.iter().map(|row| row.id).collect()));
            self.counts.member_changes += 1;
        }
        self.step(host, GroupEvent::Request { ticket, request });
    }

    fn request_leader(&mut self, request: GroupRequest) {
        if let Some(leader) = self.leader() {
            self.request(leader, request);
        }
    }

    fn rows(&self, bits: u64) -> Vec<MemberRow> {
        let chosen = self.hosts.iter().enumerate().filter(|(at, of)| bits >> at & 1 == 1 && of.is_started);
        chosen.map(|(_, of)| of.row).collect()
    }

    /// True if the others can go on without this host's disk by every set of members that is or may become decided.
    fn may_lose(&mut self, host: usize) -> bool {
        let keeps_name = self.left_out == LeftOut::NewIncarnation;
        let Some(newest) = self.oracle.newest_members().cloned() else { return false };
        let of_group = self.oracle.newest().map(|state| state.group);
        // A host that promised to a rival proposal has no vote in this group.
        let is_rival = |of: &Host| {
            let bound = of.member.as_ref().and_then(|member| member.register().group());
            let on_disk = StoredVote::parse(of.file.as_bytes()).ok().and_then(|vote| vote.group);
            bound.or(on_disk).is_some_and(|bound| Some(bound) != of_group)
        };
        let stays = |of: &&Host| !is_rival(of) && (keeps_name || of.row.id.host != host as u8);
        let left: MemberSet = self.hosts.iter().filter(stays).map(|of| of.row.id).collect();
        let mut sets = vec![newest.voters.clone()];
        sets.extend(newest.next.clone());
        let group = self.oracle.newest().map(|state| state.group);
        for of in &self.hosts {
            let on_disk = StoredVote::parse(of.file.as_bytes()).ok().and_then(|vote| vote.accepted);
            let in_memory = of.member.as_ref().and_then(|member| member.known().cloned());
            for version in on_disk.into_iter().chain(in_memory).filter(|version| Some(version.state.group) == group) {
                sets.push(version.state.members.voters.clone());
                sets.extend(version.state.members.next.clone());
            }
        }
        let now = self.now;
        self.requested.retain(|(at, _)| now < at + REQUEST_US);
        sets.extend(self.requested.iter().map(|(_, set)| set.clone()));
        sets.extend(sets.iter().flat_map(|set| self.shrunk(set)).collect::<Vec<_>>());
        sets.extend(sets.iter().flat_map(|set| self.grown(set)).collect::<Vec<_>>());
        sets.iter().all(|set| newest.is_enough(set, &left) && self.can_lead(set, host))
    }

    /// Sets that a leader may make of this one by removing hosts that it does not hear, or that shut down.
    fn shrunk(&self, set: &MemberSet) -> Vec<MemberSet> {
        let removes = self.settings.lost_removal_ms.is_some() || self.settings.shutdowns == ShutdownFate::Removed;
        let is_unheard = |of: &Host| removes && of.unheard_at.is_some_and(|at| self.now < at + UNHEARD_US);
        let gone: Vec<MemberId> =
            self.hosts.iter().filter(|of| set.contains(&of.row.id) && is_unheard(of)).map(|of| of.row.id).collect();
        let subsets = (1..1_u32 << gone.len()).map(|bits| {
            let is_left = |id: &&MemberId| gone.iter().position(|one| one == *id).is_none_or(|at| bits >> at & 1 == 0);
            set.iter().filter(is_left).copied().collect::<MemberSet>()
        });
        subsets.filter(|subset| !subset.is_empty()).collect()
    }

    /// Sets that a leader may make of this one by admitting hosts that greet.
    fn grown(&self, set: &MemberSet) -> Vec<MemberSet> {
        let new: Vec<MemberId> =
            self.hosts.iter().filter(|of| of.is_started && !set.contains(&of.row.id)).map(|of| of.row.id).collect();
        let subsets = (1..1_u32 << new.len()).map(|bits| {
            let joins = new.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1).map(|(_, id)| *id);
            let joins: Vec<MemberId> = joins.collect();
            let stays = set.iter().filter(|id| !joins.iter().any(|join| join.host == id.host)).copied();
            stays.chain(joins.iter().copied()).collect::<MemberSet>()
        });
        subsets.collect()
    }

    fn note_unheard(&mut self) {
        let is_rough = self.loss_percent > 5 || self.delay_us > SECOND;
        for at in 0..self.hosts.len() {
            let is_cut = (0..self.hosts.len()).any(|other| self.cut[at][other]);
            let of = &mut self.hosts[at];
            let shuts_down = of.member.as_ref().is_none_or(|member| member.intent() == MemberIntent::ShutsDown);
            if is_rough || is_cut || of.is_stopped || shuts_down {
                of.unheard_at = Some(self.now);
            }
        }
    }

    fn wipe(&mut self, host: usize) {
        // A look at the servers counts for a second: a disk that is lost in the moment when the group forms is not survived.
        let is_young = self.formed_at.is_none_or(|at| self.now < at + SECOND * 11 / 10);
        if is_young || !self.may_lose(host) {
            return;
        }
        self.counts.wipes += 1;
        self.crash(host);
        let renews = self.left_out != LeftOut::NewIncarnation;
        let of = &mut self.hosts[host];
        of.file.clear();
        if renews {
            of.row.id.incarnation += 1;
        }
        self.after(50_000, 3 * SECOND, WorldEvent::Restart { host });
    }

    /// The leader closes writes and dies while a host is cut off, and is back soon.
    fn close_and_crash(&mut self, host: usize) {
        let Some(leader) = self.leader().filter(|leader| *leader != host) else { return };
        self.request(leader, GroupRequest::CloseWrites { text: Some(format!("closed at {}", self.now)) });
        self.cut.iter_mut().for_each(|row| row[host] = true);
        self.after(50_000, 400_000, WorldEvent::Crash { host: leader, down: 600_000 });
    }

    fn can_lead(&self, set: &MemberSet, without: usize) -> bool {
        self.hosts.iter().enumerate().any(|(at, of)| at != without && of.row.may_lead() && set.contains(&of.row.id))
    }

    /// Hosts that promised to a proposal which came to nothing are for the operator: the files go, the hosts are new members.
    fn clean_up(&mut self) {
        let group = self.oracle.newest().filter(|state| state.change > 0).map(|state| state.group);
        let mut cleaned = false;
        for host in 0..self.hosts.len() {
            let vote = StoredVote::parse(self.hosts[host].file.as_bytes()).ok();
            let bound = vote.and_then(|vote| vote.group);
            let is_stuck = group.is_none() && self.now > self.cleaned_at + 8 * SECOND;
            let is_foreign = group.is_some_and(|group| bound != Some(group)) && self.may_lose(host);
            if bound.is_some() && (is_stuck || is_foreign) {
                self.counts.cleaned += 1;
                cleaned = true;
                self.crash(host);
                self.hosts[host].file.clear();
                self.hosts[host].row.id.incarnation += 1;
                self.start(host);
            }
        }
        if cleaned {
            self.cleaned_at = self.now;
        }
    }

    fn fault(&mut self) {
        if !self.is_faulty {
            self.clean_up();
            self.readmit();
            self.after(300_000, 300_001, WorldEvent::Fault);
            return;
        }
        self.note_unheard();
        let host = self.dice.host(self.hosts.len());
        match self.dice.within(0, 19) {
            0 => self.happen(WorldEvent::Crash { host, down: 5 * SECOND }),
            1 => self.wipe(host),
            2 | 3 => {
                let of = &mut self.hosts[host];
                (of.is_stopped, of.stops) = (of.member.is_some(), of.stops + 1);
                let stops = of.stops;
                self.after(100_000, 5 * SECOND, WorldEvent::Resume { host, stops });
            }
            4 => {
                let part = self.dice.roll();
                for (from, row) in self.cut.iter_mut().enumerate() {
                    for (to, cut) in row.iter_mut().enumerate() {
                        *cut = part >> from & 1 != part >> to & 1;
                    }
                }
            }
            5 => {
                let other = self.dice.host(self.hosts.len());
                self.cut[host][other] = true;
            }
            6 => self.cut.iter_mut().for_each(|row| row[host] = true),
            7 | 8 => {
                self.cut = Default::default();
                (self.loss_percent, self.delay_us, self.disk_us) = (1, 20_000, 10_000);
            }
            9 => self.loss_percent = 30,
            10 => self.delay_us = 1_500_000,
            11 => self.request_leader(GroupRequest::CloseWrites { text: Some(format!("closed at {}", self.now)) }),
            12 => {
                let to = self.hosts[host].row.id;
                self.request_leader(GroupRequest::HandOver { to: Some(to) });
            }
            13 => self.disk_us = 400_000,
            14 => self.close_and_crash(host),
            15 => {
                let intent = match self.dice.within(0, 4) {
                    0 => MemberIntent::Unfit,
                    1 => {
                        self.hosts[host].unheard_at = Some(self.now);
                        MemberIntent::ShutsDown
                    }
                    _ => MemberIntent::Serves,
                };
                self.step(host, GroupEvent::Intent(intent));
            }
            _ => {
                let bits = self.dice.roll();
                let rows = self.rows(bits);
                self.request_leader(GroupRequest::ChangeMembers { rows });
            }
        }
        if self.dice.percent(30) {
            self.readmit();
        }
        self.after(50_000, 1_500_000, WorldEvent::Fault);
    }

    /// Peers see the closed links of a process that died.
    fn close_links(&mut self, host: usize) {
        self.close_links_of(host, host);
    }

    fn close_links_of(&mut self, host: usize, unseen_by: usize) {
        let member = self.hosts[host].row.id;
        for other in 0..self.hosts.len() {
            let is_told = other != host && other != unseen_by && !self.hosts[other].is_stopped;
            if is_told && (host != unseen_by || !self.cut[host][other]) {
                self.step(other, GroupEvent::LinkClosed { member });
            }
        }
    }

    /// The operator admits hosts that became new members.
    fn readmit(&mut self) {
        let rows = self.rows(u64::MAX);
        let wanted: MemberSet = rows.iter().map(|row| row.id).collect();
        if self.oracle.newest_members().is_some_and(|members| members.next.is_none() && members.voters != wanted) {
            self.request_leader(GroupRequest::ChangeMembers { rows });
        }
    }

    fn heal(&mut self) {
        self.is_faulty = false;
        self.cut = Default::default();
        (self.loss_percent, self.delay_us, self.disk_us) = (0, 20_000, 10_000);
        for host in 0..self.hosts.len() {
            self.start(host);
            self.step(host, GroupEvent::Intent(MemberIntent::Serves));
        }
    }

    fn is_well(&self) -> bool {
        let Some(state) = self.oracle.newest() else { return false };
        let acting = |of: &Host| of.local(self.now) < of.acting.until;
        let leaders = self.hosts.iter().filter(|of| acting(of) && of.acting.leads.is_some()).count();
        let all: MemberSet = self.hosts.iter().map(|of| of.row.id).collect();
        let may = |of: &Host| of.row.duty == MemberDuty::Witness || of.acting.writes == state.writes.open();
        let is_open = state.writes.open().is_some();
        leaders == 1
            && is_open
            && state.members.next.is_none()
            && state.members.voters == all
            && self.hosts.iter().all(|of| acting(of) && may(of))
    }

    fn describe(&self) -> String {
        let mut text = format!("newest {:?}\n", self.oracle.newest());
        for of in &self.hosts {
            let known = of.member.as_ref().and_then(|member| member.known()).map(|known| (known.number, known.state.change));
            let writing = of.writing.as_ref().map(|(number, _, _)| *number);
            let left = of.acting.until as i64 - of.local(self.now) as i64;
            let bound = StoredVote::parse(of.file.as_bytes()).ok().map(|vote| (vote.group, vote.promised));
            text += &format!(
                "{:?} alive {} stopped {} writing {writing:?} bound {bound:?} acting {:?} left {left} known {known:?}\n",
                of.row,
                of.member.is_some(),
                of.is_stopped,
                of.acting
            );
        }
        text
    }
}

fn is_act(message: &GroupMessage) -> bool {
    matches!(message.part, MessagePart::Act(_) | MessagePart::ActLife { .. } | MessagePart::Acted { .. })
}
