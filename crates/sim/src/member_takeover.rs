//! `--takeover` of a member: another process of its host plays it, and the former one keeps its clients on rights that are passed on, by the real decisions
//! of `weir_group::FormerMember` and `FormerStanding`.

use std::collections::BTreeSet;

use weir_failover::{DurableState, FailoverEvent, FailoverState, GroupRole};
use weir_group::{FormerMember, FormerStanding, GroupMember, MemberHandover, MemberRights, PassedRights, VersionNumber};
use weir_group_failover::{ObedienceProgress, rules_in_group};

use crate::address_keeper::AddressKeeper;
use crate::fault::Repair;
use crate::kinds::GroupPart;
use crate::member_host::MemberDue;
use crate::member_processes::{FormerSight, ProcessStage, SuccessorStage};
use crate::weir::Weir;
use crate::world::{Due, World};

/// Former processes beside one that serves.
const FORMERS_MAX: usize = 3;
/// Messages between two processes of a host arrive in their order.
const LINE_MS: u64 = 1;
/// Time for orders to servers to end before another process leads.
const LEAD_LIMIT_MS: u64 = 250;

impl World {
    fn stage(&self, at: usize) -> Option<&ProcessStage> {
        self.weirs[at].host.as_ref().map(|host| &host.process)
    }

    /// True if a process may be started, or is a Weir without a group.
    pub(crate) fn may_start(&self, at: usize) -> bool {
        match self.stage(at) {
            None | Some(ProcessStage::Member) => true,
            // The one before may still be the member again.
            Some(ProcessStage::Begins { after }) => self.weirs[*after].state.is_none(),
            Some(ProcessStage::HandsOver | ProcessStage::Former { .. } | ProcessStage::Over) => false,
        }
    }

    pub(crate) fn is_over(&self, at: usize) -> bool {
        self.stage(at) == Some(&ProcessStage::Over)
    }

    /// Some process: of a host that has several sometimes a former one.
    pub(crate) fn some_process(&mut self) -> usize {
        let seat = self.dice.below(self.plan.weirs as u64) as usize;
        let is_former = |at: &usize| self.weirs[*at].seat == seat && matches!(self.stage(*at), Some(ProcessStage::Former { .. }));
        let former = (0..self.weirs.len()).rfind(is_former);
        former.filter(|_| self.dice.percent(30)).unwrap_or(self.serving[seat])
    }

    /// True if a former process of this host may have rights, and has no line to this one.
    pub(crate) fn has_unheard_former(&self, at: usize) -> bool {
        let seat = self.weirs[at].seat;
        let heard = self.weirs[at].host.as_ref().map(|host| host.formers.living().map(|sight| sight.at).collect::<BTreeSet<_>>());
        let is_unheard = |other: &usize| {
            let is_former = matches!(self.stage(*other), Some(ProcessStage::Former { .. }));
            let is_marked = self.weirs[*other].host.as_ref().is_some_and(|host| !host.is_unmarked);
            is_former && is_marked && self.weirs[*other].seat == seat && heard.as_ref().is_none_or(|heard| !heard.contains(other))
        };
        !self.leaves_out(GroupPart::FormersOutlived) && (0..self.weirs.len()).any(|other| other != at && is_unheard(&other))
    }

    /// An operator starts another process, which asks this one for its place.
    pub(crate) fn begin_takeover(&mut self, at: usize) {
        let (now, life) = (self.now, self.weirs[at].life);
        let Some(host) = self.member_host(at) else { return };
        let is_free = host.member.is_some() && !host.is_stopped && host.process == ProcessStage::Member && host.leaving.is_none();
        if !is_free || host.formers.living().count() >= FORMERS_MAX || !host.formers.is_unheard_over(host.clock(now)) {
            return;
        }
        let leads = host.sight(now).leads();
        host.process = ProcessStage::HandsOver;
        self.ring(at);
        let pause = if leads { self.dice.within(1, LEAD_LIMIT_MS) } else { 1 };
        self.later(pause, Due::Member { weir: at, due: MemberDue::HandOver { life } });
    }

    /// Ends all that this process does as a member. The other one begins once the state file is closed, or does not begin at all.
    pub(crate) fn hand_over(&mut self, at: usize) {
        if self.stage(at) != Some(&ProcessStage::HandsOver) {
            return;
        }
        if self.member_host(at).is_some_and(|host| host.address.as_ref().is_some_and(|keeper| keeper.is_calling)) {
            let life = self.weirs[at].life;
            return self.later(1, Due::Member { weir: at, due: MemberDue::HandOver { life } });
        }
        let is_taken = self.dice.percent(90);
        let Some(host) = self.member_host(at) else { return };
        if let Some((_, text)) = host.writing.take() {
            host.file = text;
        }
        if is_taken {
            self.begin_next(at);
            self.close_place(at);
        } else {
            self.keep_place(at);
        }
    }

    /// The other process is gone already: lines to former ones are closed, and this one is the member, restarted.
    fn keep_place(&mut self, at: usize) {
        let Some(host) = self.member_host(at) else { return };
        let Some(member) = host.member.take() else { return };
        let (id, before) = (host.id, member.handover());
        let rights = MemberRights { leads: None, ..before.rights };
        let before = MemberHandover { rights, is_decided: false, ..before };
        self.note(|| format!("weir {at} keeps its place"));
        self.close_lines(at);
        self.close_links(at, id);
        self.play_again(at, &before);
    }

    /// Makes the other process, which begins some time later.
    fn begin_next(&mut self, at: usize) {
        let next = self.weirs.len();
        let (seat, number, disk) = (self.weirs[at].seat, 1_000 + next as u32, self.weirs[at].disk.clone());
        let takes = if self.dice.percent(5) { self.dice.within(100, 600) } else { self.dice.within(1, 30) };
        let Some(old) = self.member_host(at) else { return };
        let holds_address = old.address.as_ref().is_some_and(AddressKeeper::holds);
        let Some(before) = old.member.as_ref().map(GroupMember::handover) else { return };
        let before = Box::new(MemberHandover { holds_address, ..before });
        let mut host = old.successor();
        host.process = ProcessStage::Begins { after: at };
        host.file = old.file.clone();
        let own = FormerSight { at, standing: FormerStanding::Holds { until: old.granted_until }, passed: None, version: None };
        let others = std::mem::take(&mut old.formers).sights.into_iter().filter(|sight| sight.standing != FormerStanding::Ended);
        let others = others.map(|sight| FormerSight {
            standing: FormerStanding::Holds { until: sight.standing.until() },
            passed: None,
            version: None,
            ..sight
        });
        host.formers.sights = [own].into_iter().chain(others).collect();
        let formers: Vec<usize> = host.formers.sights.iter().map(|sight| sight.at).collect();
        let mut weir = Weir::new(number, seat, self.plan.rules.clone(), Some(Box::new(host)));
        weir.disk = disk;
        self.weirs.push(weir);
        self.serving[seat] = next;
        for former in formers {
            if let Some(ProcessStage::Former { by, .. }) = self.member_host(former).map(|host| &mut host.process) {
                *by = next;
            }
        }
        self.later(takes, Due::Member { weir: next, due: MemberDue::Begin { before } });
    }

    /// This process plays its member no more.
    fn close_place(&mut self, at: usize) {
        let by = self.serving[self.weirs[at].seat];
        let Some(host) = self.member_host(at).filter(|host| host.process == ProcessStage::HandsOver) else { return };
        let Some(member) = host.member.take() else { return };
        host.address = None;
        let (id, obeying) = (host.id, host.obeying);
        let former = FormerMember {
            version: host.version.clone(),
            rights: host.rights,
            obeying: obeying.filter(|obeying| !obeying.writes).map(|obeying| obeying.number),
            obeyed: obeying.filter(|obeying| obeying.writes).map(|obeying| obeying.number),
            before: member.handover(),
        };
        host.process = ProcessStage::Former { member: Box::new(former), by, stage: SuccessorStage::Begins };
        self.note(|| format!("weir {at} leaves its place to weir {by}"));
        self.show_former(at);
        self.close_links(at, id);
    }

    /// The other process plays the member.
    pub(crate) fn begin_successor(&mut self, at: usize, before: &MemberHandover) {
        self.counts.takeovers += 1;
        let rules = rules_in_group(self.plan.rules.clone(), GroupRole::Follows, self.plan.rules.consensus);
        let weir = &mut self.weirs[at];
        let stored = DurableState::parse(&weir.disk);
        weir.state = Some(FailoverState::new(&rules, stored, weir.number, &BTreeSet::new()));
        (weir.rules, weir.life) = (rules, weir.life + 1);
        let life = weir.life;
        self.note(|| format!("weir {at} takes over"));
        if let Some(host) = self.member_host(at) {
            host.version = before.known.clone().filter(|_| before.is_decided);
            host.rights = before.rights;
            host.grant();
        }
        self.play_member(at, Some(before));
        self.later(1, Due::Member { weir: at, due: MemberDue::Tick { life } });
        self.tell(at, &FailoverEvent::Timer);
        // Its start may fail after that.
        if self.dice.percent(15) {
            let after = self.dice.within(1, 300);
            self.later(after, Due::Spite { weir: at });
        }
        let ready = self.dice.within(20, 400);
        self.later(ready, Due::Member { weir: at, due: MemberDue::Ready { life } });
    }

    /// It serves clients, and has the process before close its doors.
    pub(crate) fn serve_for_former(&mut self, at: usize) {
        let Some(host) = self.member_host(at) else { return };
        let ProcessStage::Begins { after } = host.process else { return };
        host.process = ProcessStage::Member;
        self.later(LINE_MS, Due::Member { weir: after, due: MemberDue::Relieved });
        self.begin_clients(at);
    }

    pub(crate) fn begin_clients(&mut self, at: usize) {
        for _ in 0..2 {
            let first = self.dice.within(1, 100);
            self.later(first, Due::Client { weir: at });
        }
    }

    pub(crate) fn relieve_former(&mut self, at: usize) {
        let lasts = self.dice.within(500, 15_000);
        if let Some(ProcessStage::Former { stage, .. }) = self.member_host(at).map(|host| &mut host.process) {
            *stage = SuccessorStage::Serves;
            self.later(lasts, Due::Member { weir: at, due: MemberDue::SessionsEnd });
        }
    }

    pub(crate) fn end_former(&mut self, at: usize) {
        let Some(ProcessStage::Former { by, .. }) = self.stage(at) else { return };
        let by = *by;
        self.kill_weir(at);
        if matches!(self.stage(by), Some(ProcessStage::Begins { .. })) {
            // It could not begin before.
            self.repair_in(LINE_MS, Repair::Weir(by));
        }
    }

    /// A process is gone: its lines are closed.
    pub(crate) fn end_lines(&mut self, at: usize) {
        self.close_lines(at);
        let Some(host) = self.member_host(at) else { return };
        match host.process {
            ProcessStage::Former { by, .. } => {
                host.begin_life();
                host.process = ProcessStage::Over;
                self.later(LINE_MS, Due::Member { weir: by, due: MemberDue::FormerEnded { former: at } });
            }
            ProcessStage::HandsOver => host.process = ProcessStage::Member,
            ProcessStage::Member | ProcessStage::Begins { .. } | ProcessStage::Over => {}
        }
    }

    fn close_lines(&mut self, at: usize) {
        let Some(host) = self.member_host(at) else { return };
        for sight in std::mem::take(&mut host.formers).sights {
            self.later(LINE_MS, Due::Member { weir: sight.at, due: MemberDue::LineEnded });
        }
    }

    /// The newer process is gone: before it served, this one is the member again.
    pub(crate) fn lose_successor(&mut self, at: usize) {
        let Some(host) = self.member_host(at) else { return };
        let ProcessStage::Former { member, by, stage } = &mut host.process else { return };
        if *stage != SuccessorStage::Begins {
            *stage = SuccessorStage::Ended;
            return;
        }
        let (before, by) = (member.clone().back(), *by);
        if self.has_other_file(at, by) {
            return self.end_without_place(at);
        }
        self.note(|| format!("weir {at} takes its place back"));
        let seat = self.weirs[at].seat;
        self.serving[seat] = at;
        let disk = std::mem::take(&mut self.weirs[by].disk);
        self.weirs[at].disk = disk;
        let file = self.member_host(by).map(|next| {
            next.process = ProcessStage::Over;
            std::mem::take(&mut next.file)
        });
        if let Some(host) = self.member_host(at) {
            host.file = file.unwrap_or_default();
        }
        self.play_again(at, &before);
    }

    /// True if the disk was lost, so that the file is another member's.
    fn has_other_file(&self, at: usize, by: usize) -> bool {
        let id = |of: usize| self.weirs[of].host.as_ref().map(|host| host.id);
        id(at) != id(by)
    }

    /// Is no member any more. The operator stops it, some time later.
    fn end_without_place(&mut self, at: usize) {
        let lasts = self.dice.within(200, 3_000);
        self.note(|| format!("weir {at} is no member any more"));
        if let Some(ProcessStage::Former { stage, .. }) = self.member_host(at).map(|host| &mut host.process) {
            *stage = SuccessorStage::Ended;
        }
        self.later(lasts, Due::Member { weir: at, due: MemberDue::SessionsEnd });
    }

    /// Is the member again, restarted. The rest of the process goes on.
    fn play_again(&mut self, at: usize, before: &MemberHandover) {
        let before = &MemberHandover { holds_address: false, ..before.clone() };
        let Some(host) = self.member_host(at) else { return };
        host.process = ProcessStage::Member;
        (host.version, host.obeying, host.stopped_epoch) = (None, None, None);
        host.rights = before.rights;
        host.grant();
        self.play_member(at, Some(before));
        self.ring(at);
    }

    /// Passes on what changed. A process that stands still may have room for no more.
    pub(crate) fn pass_rights_on(&mut self, at: usize) {
        let Some(host) = self.weirs[at].host.as_mut().filter(|host| !host.formers.sights.is_empty()) else { return };
        let obey = host.obeying.map(|obeying| obeying.number);
        let passed = PassedRights { until: host.rights.until, writes: host.rights.writes, obey, version: None };
        let version = host.version.clone();
        let mut sights = std::mem::take(&mut host.formers.sights);
        for sight in sights.iter_mut().filter(|sight| sight.standing != FormerStanding::Ended) {
            let news = version.as_ref().filter(|version| sight.version != Some(version.number));
            let is_full = self.weirs[sight.at].host.as_ref().is_some_and(|host| host.is_stopped) && self.dice.percent(50);
            if is_full || sight.passed.as_ref() == Some(&passed) && news.is_none() {
                continue;
            }
            let text = Box::new(PassedRights { version: news.cloned(), ..passed.clone() });
            sight.standing = sight.standing.passed(passed.until, obey);
            sight.passed = Some(passed.clone());
            sight.version = news.map(|version| version.number).or(sight.version);
            self.later(LINE_MS, Due::Member { weir: sight.at, due: MemberDue::RightsPassed(text) });
        }
        if let Some(host) = self.member_host(at) {
            host.formers.sights = sights;
        }
    }

    pub(crate) fn take_passed(&mut self, at: usize, passed: PassedRights) {
        let Some(ProcessStage::Former { member, .. }) = self.member_host(at).map(|host| &mut host.process) else { return };
        let answer = member.take(passed);
        self.show_former(at);
        self.answer_successor(at, answer);
    }

    /// Writes that a version takes have ended in a former process.
    pub(crate) fn former_obeyed(&mut self, at: usize, number: VersionNumber) {
        let Some(ProcessStage::Former { member, .. }) = self.member_host(at).map(|host| &mut host.process) else { return };
        let answer = member.obey(number);
        self.show_former(at);
        self.answer_successor(at, answer);
    }

    fn answer_successor(&mut self, at: usize, answer: Option<VersionNumber>) {
        let (Some(ProcessStage::Former { by, .. }), Some(number)) = (self.stage(at), answer) else { return };
        let due = MemberDue::FormerObeyed { former: at, number };
        self.later(LINE_MS, Due::Member { weir: *by, due });
    }

    /// Its control thread and workers see what was passed on.
    fn show_former(&mut self, at: usize) {
        let Some(host) = self.member_host(at) else { return };
        let ProcessStage::Former { member, .. } = &host.process else { return };
        let of = |number| ObedienceProgress { number, address: true, writes: false, is_freeing: false };
        (host.version, host.obeying, host.stopped_epoch) = (member.version.clone(), member.obeying.map(of), None);
        host.rights = MemberRights { leads: None, ..member.rights };
        if let Some(rights) = member.granted() {
            host.granted = (rights.until, rights.writes);
        }
        self.ring(at);
    }

    pub(crate) fn hear_former(&mut self, at: usize, former: usize, number: VersionNumber) {
        self.see_former(at, former, |standing| standing.said(number));
    }

    pub(crate) fn lose_former(&mut self, at: usize, former: usize) {
        self.see_former(at, former, |_| FormerStanding::Ended);
    }

    fn see_former(&mut self, at: usize, former: usize, step: impl FnOnce(FormerStanding) -> FormerStanding) {
        let Some(host) = self.member_host(at) else { return };
        if let Some(sight) = host.formers.sights.iter_mut().find(|sight| sight.at == former) {
            sight.standing = step(sight.standing);
            self.member_obeyed(at);
        }
    }
}
