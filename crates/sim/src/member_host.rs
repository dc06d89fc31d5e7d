//! A Weir as a member of a group: the real decisions of `weir_group`, its file, its clock and its messages. `member_link` ties failover to it.

use std::collections::BTreeMap;

use weir_failover::{FailoverEvent, GroupRole, Ms, NodeId};
use weir_group::{
    GroupAction, GroupEvent, GroupMember, GroupMessage, GroupMs, GroupSettings, MemberHandover, MemberId, MemberRights,
    PassedRights, RegisterEvent, RightsTaken, StateVersion, StoredVote, VersionNumber, group_step,
};
use weir_group_failover::{FailoverTie, MemberSight, ObedienceProgress, TakenWrites, WritesChange, WritingParty};

use crate::address_keeper::AddressKeeper;
use crate::dice::Dice;
use crate::engine_talk::{EngineQuestion, EngineTalk};
use crate::host_kernel::{KernelAnswer, KernelCall};
use crate::kinds::GroupPart;
use crate::member_link::{AskedChange, DrainProgress, OpeningNode, OrderToEnd};
use crate::member_processes::{FormerProcesses, LeavingProcess, ProcessStage};
use crate::world::{Due, World};

/// As `GroupDriver` ticks, with a process that is not always in time.
const TICK_MS: (Ms, Ms) = (45, 60);
/// A stopped process finds so many messages in its sockets.
const BACKLOG_MAX: usize = 400;
/// Clients of a stopped process come again.
const CLIENT_MS: Ms = 60;
/// Clocks are fast or slow by so many thousandths at most; the rule allows 5 % between two.
const PACE_MAX: u64 = 23;

pub struct MemberHost {
    pub member: Option<GroupMember>,
    pub id: MemberId,
    pub process: ProcessStage,
    /// Processes before this one, which it passes rights on to.
    pub formers: FormerProcesses,
    /// Empty: no file.
    pub file: String,
    pub writing: Option<(u64, String)>,
    pace: u64,
    offset_ms: GroupMs,
    pub version: Option<StateVersion>,
    pub rights: MemberRights,
    pub stopped_epoch: Option<u64>,
    pub obeying: Option<ObedienceProgress>,
    /// Lease of the workers.
    pub granted: (GroupMs, Option<(u64, NodeId)>),
    /// End of all leases that they were given.
    pub granted_until: GroupMs,
    /// Of a process that plays its member.
    pub address: Option<AddressKeeper>,
    pub engine: EngineTalk,
    pub tie: FailoverTie,
    /// Role by which failover runs, as of its rules.
    pub role: GroupRole,
    /// Node that takes writes, and may have open ones.
    pub served: Option<NodeId>,
    pub is_meeting: bool,
    /// The control thread has been rung.
    pub is_rung: bool,
    tickets: u64,
    pub asked: BTreeMap<u64, AskedChange>,
    /// Closings that are decided, and wait until nobody writes; with the epochs in which they were asked for.
    pub closings: Vec<(OrderToEnd, u64)>,
    pub opening: Option<OpeningNode>,
    /// As this leader had it stored last, and if it knows a version that says so.
    pub last_text: Option<(String, bool)>,
    pub draining: Option<DrainProgress>,
    /// It is being stopped in good order: its workers have ended.
    pub leaving: Option<LeavingProcess>,
    /// Of a former process: its mark was lost with the disk.
    pub is_unmarked: bool,
    pub is_stopped: bool,
    stops: u32,
    /// When it last went on after a stop.
    pub continued_at: Option<Ms>,
    backlog: Vec<Due>,
}

/// Something due at a member.
#[derive(Debug)]
pub enum MemberDue {
    Tick {
        life: u32,
    },
    Message(Box<GroupMessage>),
    Written {
        life: u32,
        number: u64,
    },
    /// The control thread looks at the group.
    Meet {
        life: u32,
    },
    /// It looks if writes that were taken have ended.
    End {
        life: u32,
        taken: TakenWrites,
        until: Ms,
    },
    /// It asks once more.
    OpenAgain {
        life: u32,
    },
    /// A task of its has ended.
    Fact {
        life: u32,
        event: Box<FailoverEvent>,
    },
    /// A wish of an operator that another member passed on.
    Passed {
        life: u32,
        event: Box<FailoverEvent>,
    },
    LinkClosed {
        of: MemberId,
    },
    /// Its orders to servers have ended, and another process takes over.
    HandOver {
        life: u32,
    },
    /// A process that takes over begins.
    Begin {
        before: Box<MemberHandover>,
    },
    /// It serves clients.
    Ready {
        life: u32,
    },
    /// The newer process serves all new clients.
    Relieved,
    /// The newer process passes rights on.
    RightsPassed(Box<PassedRights>),
    /// A former process is done with what this version takes.
    FormerObeyed {
        former: usize,
        number: VersionNumber,
    },
    /// The newer process is gone.
    LineEnded,
    FormerEnded {
        former: usize,
    },
    /// The last client of a former process is gone.
    SessionsEnd,
    /// A question is at etcd.
    EngineAsked {
        life: u32,
        number: u64,
        /// The end of the time for its answer.
        until: Ms,
        question: EngineQuestion,
    },
    EngineAnswers {
        life: u32,
        number: u64,
        event: Box<RegisterEvent>,
    },
    /// The time for the answer to a change is over.
    EngineLimit {
        life: u32,
        number: u64,
    },
    /// The keeper of the address looks again.
    AddressDue {
        life: u32,
    },
    /// The kernel does what a process called it for, whatever has become of that one.
    KernelObeys {
        life: u32,
        call: KernelCall,
    },
    KernelAnswers {
        life: u32,
        call: KernelCall,
        answer: KernelAnswer,
    },
    /// The disk of its host is lost.
    DiskLost {
        lasts: Ms,
    },
    /// SIGCONT.
    Continue {
        stops: u32,
    },
}

impl MemberHost {
    pub fn new(host: u8, dice: &mut Dice) -> MemberHost {
        MemberHost {
            member: None,
            id: MemberId { host, incarnation: dice.roll() as u32 },
            process: ProcessStage::Member,
            formers: FormerProcesses::default(),
            file: String::new(),
            writing: None,
            pace: 1_000 - PACE_MAX + dice.below(2 * PACE_MAX + 1),
            offset_ms: dice.below(1_000_000),
            version: None,
            rights: MemberRights::default(),
            stopped_epoch: None,
            obeying: None,
            granted: (0, None),
            granted_until: 0,
            address: None,
            engine: EngineTalk::default(),
            tie: FailoverTie::default(),
            role: GroupRole::Follows,
            served: None,
            is_meeting: false,
            is_rung: false,
            tickets: 0,
            asked: BTreeMap::new(),
            closings: Vec::new(),
            opening: None,
            last_text: None,
            draining: None,
            leaving: None,
            is_unmarked: false,
            is_stopped: false,
            stops: 0,
            continued_at: None,
            backlog: Vec::new(),
        }
    }

    /// Of another process of this host.
    pub fn successor(&self) -> MemberHost {
        let mut host = MemberHost::new(self.id.host, &mut Dice::new(0));
        (host.id, host.pace, host.offset_ms) = (self.id, self.pace, self.offset_ms);
        host
    }

    /// Time of its own clock.
    pub fn clock(&self, now: Ms) -> GroupMs {
        self.offset_ms + now * self.pace / 1_000
    }

    /// The first time at which its clock is there.
    pub fn world_time(&self, clock: GroupMs) -> Ms {
        (clock.saturating_sub(self.offset_ms) * 1_000).div_ceil(self.pace)
    }

    pub fn sight(&self, now: Ms) -> MemberSight<'_> {
        MemberSight {
            now: self.clock(now),
            version: self.version.as_ref(),
            rights: MemberRights { leads: self.rights.leads.filter(|_| self.gives_orders()), ..self.rights },
            stopped_epoch: self.stopped_epoch,
        }
    }

    fn gives_orders(&self) -> bool {
        self.process.gives_orders() && self.leaving.is_none()
    }

    pub fn party(&self) -> WritingParty {
        if self.leaving.is_some() { WritingParty::Nobody } else { WritingParty::Workers }
    }

    /// True if it leads, as its `sight` says.
    pub fn leads(&self, now: Ms) -> bool {
        self.rights.leads.is_some() && self.gives_orders() && self.clock(now) < self.rights.until
    }

    /// Epoch and node in which its workers may pass on a success in this moment.
    pub fn may_acknowledge(&self, now: Ms) -> Option<(u64, NodeId)> {
        self.granted.1.filter(|_| self.clock(now) < self.granted.0)
    }

    pub fn next_ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    /// Forgets all that ends with a process.
    pub fn begin_life(&mut self) {
        (self.version, self.rights, self.stopped_epoch, self.obeying) = Default::default();
        (self.granted, self.granted_until, self.tie, self.served) = Default::default();
        self.formers = FormerProcesses::default();
        self.address = None;
        self.role = GroupRole::Follows;
        (self.is_meeting, self.is_rung, self.is_stopped) = (false, false, false);
        (self.opening, self.draining, self.writing, self.last_text, self.leaving) = Default::default();
        self.asked.clear();
        self.closings.clear();
        self.backlog.clear();
    }
}

impl World {
    pub(crate) fn member_host(&mut self, at: usize) -> Option<&mut MemberHost> {
        self.weirs[at].host.as_deref_mut()
    }

    /// The thread of the group begins.
    pub(crate) fn start_member(&mut self, at: usize) {
        let life = self.weirs[at].life;
        let Some(host) = self.member_host(at) else { return };
        host.begin_life();
        let is_first = host.process != ProcessStage::Member;
        host.process = ProcessStage::Member;
        if is_first {
            self.begin_clients(at);
        }
        self.play_member(at, None);
        self.later(1, Due::Member { weir: at, due: MemberDue::Tick { life } });
    }

    /// Plays the member of its file; `before`: as another process of its host left it.
    pub(crate) fn play_member(&mut self, at: usize, before: Option<&MemberHandover>) {
        self.counts.lives += 1;
        let (lives, seat) = (self.counts.lives, self.weirs[at].seat);
        let (now, own) = (self.now, self.plan.group_settings());
        let is_beside = self.has_unheard_former(at);
        let Some(host) = self.member_host(at) else { return };
        let stored = StoredVote::parse(host.file.as_bytes()).unwrap_or_else(|_| StoredVote::new(host.id));
        let settings = GroupSettings { host: seat as u8, ..own };
        let clock = host.clock(now);
        let lease_ms = settings.lease_ms;
        let mut member = GroupMember::new(settings, stored, lives << 32, clock);
        if let Some(before) = before {
            member.take_over(before, clock);
        }
        if is_beside {
            member.begin_beside_former();
            host.formers.unheard_until = Some(clock + lease_ms);
        }
        host.member = Some(member);
        host.engine.begin();
        host.address = Some(AddressKeeper::of(before, clock));
        if before.is_none_or(|before| !before.holds_address) {
            // A process before left it.
            self.kernels[seat].obey(KernelCall::Remove, clock, 0);
        }
        self.keep_address(at);
    }

    /// The process is gone. A write of its file that was under way happened or did not.
    pub(crate) fn kill_member(&mut self, at: usize) {
        if self.weirs[at].host.as_ref().is_none_or(|host| host.member.is_none()) {
            return;
        }
        let reaches_disk = self.dice.percent(50);
        let Some(host) = self.member_host(at) else { return };
        let id = host.id;
        if let Some((_, text)) = host.writing.take().filter(|_| reaches_disk) {
            host.file = text;
        }
        host.member = None;
        host.begin_life();
        self.close_links(at, id);
    }

    /// Others hear that its links are closed.
    pub(crate) fn close_links(&mut self, at: usize, of: MemberId) {
        let seat = self.weirs[at].seat;
        for other in self.serving.clone() {
            if self.weirs[other].seat != seat && self.passes(self.end_of(at), self.end_of(other)) {
                let delay = self.delay();
                self.later(delay, Due::Member { weir: other, due: MemberDue::LinkClosed { of } });
            }
        }
    }

    /// SIGSTOP.
    pub(crate) fn stop_member(&mut self, at: usize, lasts: Ms) {
        let Some(host) = self.member_host(at).filter(|host| host.member.is_some()) else { return };
        (host.is_stopped, host.stops) = (true, host.stops + 1);
        let stops = host.stops;
        self.note(|| format!("weir {at} is stopped for {lasts} ms"));
        self.later(lasts, Due::Member { weir: at, due: MemberDue::Continue { stops } });
    }

    /// SIGCONT.
    pub(crate) fn continue_member(&mut self, at: usize) {
        let now = self.now;
        let Some(host) = self.member_host(at).filter(|host| host.is_stopped) else { return };
        (host.is_stopped, host.continued_at) = (false, Some(now));
        let waiting = std::mem::take(&mut host.backlog);
        self.note(|| format!("weir {at} goes on"));
        waiting.into_iter().for_each(|due| self.later(0, due));
    }

    /// Work of a stopped process waits for it. Gives back the rest.
    pub(crate) fn hold_up(&mut self, due: Due) -> Option<Due> {
        let Some(at) = due.weir().or_else(|| Some(self.writes[due.write()? as usize].weir)) else { return Some(due) };
        let Some(host) = self.member_host(at).filter(|host| host.is_stopped) else { return Some(due) };
        if matches!(due, Due::Client { .. }) {
            self.later(CLIENT_MS, due);
            return None;
        }
        let is_message = matches!(due, Due::Member { due: MemberDue::Message(_), .. });
        if !is_message || host.backlog.len() < BACKLOG_MAX {
            host.backlog.push(due);
        }
        None
    }

    pub(crate) fn member_due(&mut self, at: usize, due: MemberDue) {
        let is_same = |life: u32| self.weirs[at].life == life && self.weirs[at].state.is_some();
        match due {
            MemberDue::Tick { life } if is_same(life) => {
                let pause = self.dice.within(TICK_MS.0, TICK_MS.1);
                self.later(pause, Due::Member { weir: at, due: MemberDue::Tick { life } });
                let dice = self.dice.roll() as u32;
                self.found_group(at);
                if self.is_tick_due(at) {
                    self.step_member(at, GroupEvent::Tick { dice });
                }
                self.member_obeyed(at);
                self.note_end(at);
                self.leave_when_free(at);
            }
            MemberDue::Message(message) => self.step_member(at, GroupEvent::Message(message)),
            MemberDue::Written { life, number } if is_same(life) => {
                let Some(host) = self.member_host(at) else { return };
                if let Some((_, text)) = host.writing.take_if(|(of, _)| *of == number) {
                    host.file = text;
                }
                self.step_member(at, GroupEvent::Written { number });
            }
            MemberDue::Meet { life } if is_same(life) => self.meet_group(at),
            MemberDue::End { life, taken, until } if is_same(life) => self.end_taken(at, taken, until),
            MemberDue::OpenAgain { life } if is_same(life) => self.go_on_opening(at),
            MemberDue::Fact { life, event } if is_same(life) => self.tell(at, &event),
            MemberDue::Passed { life, event } if is_same(life) => {
                self.meet_group(at);
                if self.weirs[at].rules.group == GroupRole::Leads {
                    self.tell(at, &event);
                }
            }
            MemberDue::LinkClosed { of } => self.step_member(at, GroupEvent::LinkClosed { member: of }),
            MemberDue::HandOver { life } if is_same(life) => self.hand_over(at),
            MemberDue::Begin { before } => self.begin_successor(at, &before),
            MemberDue::Ready { life } if is_same(life) => self.serve_for_former(at),
            MemberDue::Relieved => self.relieve_former(at),
            MemberDue::RightsPassed(passed) => self.take_passed(at, *passed),
            MemberDue::FormerObeyed { former, number } => self.hear_former(at, former, number),
            MemberDue::LineEnded => self.lose_successor(at),
            MemberDue::FormerEnded { former } => self.lose_former(at, former),
            MemberDue::SessionsEnd => self.end_former(at),
            MemberDue::EngineAsked { life, number, until, question } => self.engine_asked(at, life, (number, until), question),
            MemberDue::EngineAnswers { life, number, event } if is_same(life) => self.hear_engine(at, number, *event),
            MemberDue::EngineLimit { life, number } if is_same(life) => self.engine_limit(at, number),
            MemberDue::AddressDue { life } if is_same(life) => self.keep_address(at),
            MemberDue::KernelObeys { life, call } => self.obey_call(at, life, call),
            MemberDue::KernelAnswers { life, call, answer } if is_same(life) => self.hear_kernel(at, call, answer),
            MemberDue::DiskLost { lasts } => self.lose_disk_of(at, lasts),
            MemberDue::Continue { stops } => {
                if self.member_host(at).is_some_and(|host| host.stops == stops) {
                    self.continue_member(at);
                }
            }
            MemberDue::Tick { .. }
            | MemberDue::Written { .. }
            | MemberDue::Meet { .. }
            | MemberDue::End { .. }
            | MemberDue::OpenAgain { .. }
            | MemberDue::Fact { .. }
            | MemberDue::HandOver { .. }
            | MemberDue::Ready { .. }
            | MemberDue::EngineAnswers { .. }
            | MemberDue::EngineLimit { .. }
            | MemberDue::AddressDue { .. }
            | MemberDue::KernelAnswers { .. }
            | MemberDue::Passed { .. } => {}
        }
    }

    /// True if a tick may do something before the next one comes: there are few such while all is well.
    fn is_tick_due(&self, at: usize) -> bool {
        let Some(host) = &self.weirs[at].host else { return false };
        let clock = host.clock(self.now);
        host.member.as_ref().is_some_and(|member| member.next_tick(clock) <= clock + 2 * TICK_MS.1)
    }

    pub(crate) fn step_member(&mut self, at: usize, event: GroupEvent) {
        let now = self.now;
        let Some(host) = self.member_host(at) else { return };
        let clock = host.clock(now);
        let Some(member) = &mut host.member else { return };
        let actions = group_step(member, event, clock);
        for action in actions {
            self.obey_group(at, action);
        }
        self.pass_rights_on(at);
    }

    fn obey_group(&mut self, at: usize, action: GroupAction) {
        let life = self.weirs[at].life;
        match action {
            GroupAction::Send { host, message } => self.send_message(at, usize::from(host), message),
            GroupAction::Write { number, text } => {
                let takes = if self.dice.percent(2) { self.dice.within(100, 600) } else { self.dice.within(1, 8) };
                if let Some(host) = self.member_host(at) {
                    host.writing = Some((number, text));
                }
                self.later(takes, Due::Member { weir: at, due: MemberDue::Written { life, number } });
            }
            GroupAction::Rights { number, rights, obey } => self.take_rights(at, number, rights, obey),
            GroupAction::State(version) => {
                self.note(|| {
                    format!("weir {at} knows: {:?} {:?} term {}", version.state.lead, version.state.writes, version.state.term)
                });
                self.see_decided(&version);
                let led = version.state.led_by(self.weirs[at].host.as_ref().map(|host| host.id).unwrap_or_default());
                if let Some(host) = self.member_host(at) {
                    host.version = Some(version);
                }
                if led {
                    self.spite(at);
                }
                self.ring(at);
            }
            GroupAction::WritesStopped { epoch } => {
                self.note(|| format!("weir {at} knows that writes of epoch {epoch} stopped"));
                self.see_stopped(epoch);
                if let Some(host) = self.member_host(at) {
                    host.stopped_epoch = Some(epoch);
                }
                self.ring(at);
            }
            GroupAction::Answer { ticket, answer } => self.change_answered(at, ticket, answer),
            GroupAction::ReadEngine => self.read_engine(at),
            GroupAction::ChangeEngine { expect, new } => self.change_engine(at, expect.counter, new),
            GroupAction::CreateEngine { new } => self.change_engine(at, 0, new),
            // No operator acts here.
            GroupAction::Act { .. } | GroupAction::Formed { .. } | GroupAction::Replaced { .. } | GroupAction::Acted { .. } => {}
        }
    }

    fn take_rights(&mut self, at: usize, number: VersionNumber, rights: MemberRights, obey: RightsTaken) {
        let (now, is_left_out) = (self.now, self.leaves_out(GroupPart::AddressGoneFirst));
        let Some(host) = self.member_host(at) else { return };
        let had = host.rights;
        host.rights = rights;
        let leads = rights.leads.is_some() && host.clock(now) < rights.until;
        if let Some(keeper) = host.address.as_mut().filter(|_| leads) {
            keeper.hold(rights.until);
        }
        if rights.leads.is_some() != had.leads.is_some() {
            host.stopped_epoch = None;
        }
        if obey == RightsTaken::Something {
            let writes = WritesChange::of(&had, &rights, host.party());
            let progress = ObedienceProgress::of(host.obeying.take(), number, leads, writes);
            let progress = ObedienceProgress { address: progress.address || is_left_out, ..progress };
            host.obeying = Some(ObedienceProgress { is_freeing: !progress.address, ..progress });
            if let Some(keeper) = host.address.as_mut().filter(|_| !leads) {
                keeper.release();
                // Once for each version.
                keeper.freeing.extend((!progress.is_freeing).then_some(number));
            }
        } else if let Some(keeper) = host.address.as_mut().filter(|_| !leads && had.leads.is_some()) {
            keeper.release();
        }
        host.grant();
        if (had.leads, had.writes) != (rights.leads, rights.writes) || obey == RightsTaken::Something {
            self.ring(at);
        }
        self.keep_address(at);
        self.member_obeyed(at);
    }

    /// Writes of a version are done with here.
    pub(crate) fn writes_obeyed(&mut self, at: usize, number: VersionNumber) {
        self.former_obeyed(at, number);
        let Some(host) = self.member_host(at) else { return };
        if let Some(obeying) = host.obeying.as_mut().filter(|obeying| obeying.number == number) {
            obeying.writes = true;
            host.grant();
            self.member_obeyed(at);
        }
    }

    pub(crate) fn member_obeyed(&mut self, at: usize) {
        let (now, is_left_out) = (self.now, self.leaves_out(GroupPart::FormersObeyFirst));
        let Some(host) = self.member_host(at).filter(|host| host.member.is_some()) else { return };
        let (clock, formers) = (host.clock(now), &host.formers);
        let is_done = |obeying: &ObedienceProgress| obeying.is_done() && formers.have_obeyed(obeying.number, clock);
        if let Some(done) = host.obeying.take_if(|obeying| is_done(obeying) || is_left_out && obeying.is_done()) {
            self.step_member(at, GroupEvent::Obeyed { number: done.number });
        }
    }

    /// Rights that ended by themselves, and sights of others, are news.
    fn note_end(&mut self, at: usize) {
        let now = self.now;
        let Some(host) = self.member_host(at) else { return };
        let ended = host.sight(now).role() != host.role;
        if ended || self.dice.percent(10) {
            self.ring(at);
        }
    }

    /// The control thread is told, which may be busy.
    pub(crate) fn ring(&mut self, at: usize) {
        let life = self.weirs[at].life;
        let Some(host) = self.member_host(at).filter(|host| !host.is_rung) else { return };
        host.is_rung = true;
        let takes = if self.dice.percent(3) { self.dice.within(20, 500) } else { self.dice.within(0, 2) };
        self.later(takes, Due::Member { weir: at, due: MemberDue::Meet { life } });
    }

    fn send_message(&mut self, from: usize, to: usize, message: Box<GroupMessage>) {
        let Some(to) = self.serving.get(to).copied() else { return };
        if !self.passes(self.end_of(from), self.end_of(to)) || self.dice.percent(self.plan.loss) {
            return;
        }
        let is_copied = self.dice.percent(1);
        for message in is_copied.then(|| message.clone()).into_iter().chain([message]) {
            let delay = self.delay();
            self.later(delay, Due::Member { weir: to, due: MemberDue::Message(message) });
        }
    }
}

impl MemberHost {
    pub fn grant(&mut self) {
        let may_renew = self.obeying.as_ref().is_none_or(ObedienceProgress::lets_renew);
        if may_renew && self.leaving.is_none() {
            self.granted_until = self.granted_until.max(self.rights.until);
            self.granted = (self.rights.until, self.rights.writes);
        }
    }
}

impl World {
    /// True if this part is left out of the run.
    pub(crate) fn leaves_out(&self, part: GroupPart) -> bool {
        self.plan.group_without == Some(part)
    }
}
