//! Members of a group that lose their disks, and such as an operator removes or stops.

use weir_failover::Ms;
use weir_group::{GroupEvent, GroupLead, GroupMs, GroupRequest, MemberIntent, MemberRow};

use crate::fault::Repair;
use crate::host_kernel::KernelCall;
use crate::kinds::GroupPart;
use crate::member_host::{MemberDue, MemberHost};
use crate::member_processes::{LeavingProcess, ProcessStage};
use crate::world::{Due, World};

/// Disks in a hundred that are lost during or after a takeover.
const TAKEN_OVER_FIRST: u64 = 40;

impl World {
    /// A host without its file is another member. Nothing is lost before the group has decided something: until then all members are needed.
    pub(crate) fn lose_disk(&mut self, lasts: Ms) {
        let seat = self.dice.below(self.plan.weirs as u64) as usize;
        let at = self.serving[seat];
        if self.dice.percent(TAKEN_OVER_FIRST) {
            self.begin_takeover(at);
            let after = self.dice.within(1, 800);
            return self.later(after, Due::Member { weir: at, due: MemberDue::DiskLost { lasts } });
        }
        self.lose_disk_of(at, lasts);
    }

    /// The disk of a process's host is lost.
    pub(crate) fn lose_disk_of(&mut self, at: usize, lasts: Ms) {
        let at = self.serving[self.weirs[at].seat];
        let is_left = self.counts.disks_lost < self.plan.disks_to_lose();
        if is_left && self.has_decided() {
            self.empty_disk(at, lasts);
        }
    }

    /// Ends a host's process, which comes back without its files.
    pub(crate) fn empty_disk(&mut self, at: usize, lasts: Ms) {
        self.counts.disks_lost += 1;
        self.counts.disks_lost_beside += usize::from(!self.is_alone_on_host(at));
        self.kill_weir(at);
        self.weirs[at].disk.clear();
        let (incarnation, keeps_it) = (self.dice.roll() as u32, self.leaves_out(GroupPart::NewIncarnation));
        let Some(host) = self.member_host(at) else { return };
        host.file.clear();
        host.id.incarnation = if keeps_it { host.id.incarnation } else { incarnation };
        self.note(|| format!("weir {at} has lost its disk"));
        self.lose_marks(at);
        self.repair_in(lasts, Repair::Weir(at));
    }

    /// The marks of former processes are in the folder of the file. Sometimes the file alone is lost.
    fn lose_marks(&mut self, at: usize) {
        let (seat, are_lost) = (self.weirs[at].seat, self.dice.percent(50));
        for of in self.weirs.iter_mut().filter(|of| of.seat == seat && are_lost) {
            let is_former = |host: &MemberHost| matches!(host.process, ProcessStage::Former { .. });
            if let Some(host) = of.host.as_mut().filter(|host| is_former(host)) {
                host.is_unmarked = true;
            }
        }
    }

    /// True if no other process of its host may run.
    fn is_alone_on_host(&self, at: usize) -> bool {
        let is_over = |of: &ProcessStage| matches!(of, ProcessStage::Over);
        let is_member = self.weirs[at].host.as_ref().is_some_and(|host| host.process == ProcessStage::Member);
        let mut others = self.weirs.iter().enumerate().filter(|(other, of)| *other != at && of.seat == self.weirs[at].seat);
        is_member && others.all(|(_, of)| of.host.as_ref().is_none_or(|host| is_over(&host.process)))
    }

    /// The leader is asked for a change of members, sometimes for a host that has just died.
    pub(crate) fn remove_member(&mut self, lasts: Ms) {
        let seat = self.dice.below(self.plan.weirs as u64) as usize;
        let Some(leader) = self.leader().filter(|leader| self.weirs[*leader].seat != seat) else { return };
        if self.dice.percent(30) {
            let at = self.serving[seat];
            self.kill_weir(at);
            self.repair_in(lasts, Repair::Weir(at));
        }
        self.ask_to_remove(seat, leader);
    }

    /// An operator asks the leader to remove a host.
    pub(crate) fn ask_to_remove(&mut self, seat: usize, leader: usize) {
        let Some(host) = self.member_host(leader) else { return };
        let Some(members) = host.version.as_ref().map(|version| &version.state.members) else { return };
        let rows: Vec<MemberRow> = members.rows.iter().filter(|row| usize::from(row.id.host) != seat).copied().collect();
        let ticket = host.next_ticket();
        self.counts.removals += 1;
        self.note(|| format!("operator removes the host of weir {seat}"));
        self.step_member(leader, GroupEvent::Request { ticket, request: GroupRequest::ChangeMembers { rows } });
    }

    /// An operator stops a Weir in good order: its workers end, and others hear that it leaves.
    pub(crate) fn shut_down(&mut self, back_ms: Ms) {
        let seat = self.dice.below(self.plan.weirs as u64) as usize;
        let at = self.leader().filter(|_| self.dice.percent(40)).unwrap_or(self.serving[seat]);
        let (now, lease_ms) = (self.now, self.plan.lease_ms);
        let Some(host) = self.member_host(at) else { return };
        let is_free = host.member.is_some() && !host.is_stopped && host.process == ProcessStage::Member && host.leaving.is_none();
        if !is_free {
            return;
        }
        let clock = host.clock(now);
        host.leaving = Some(LeavingProcess { told_at: clock + lease_ms / 4, until: clock + lease_ms, back_ms });
        host.granted = (0, None);
        if let Some(obeying) = &mut host.obeying {
            obeying.writes = true;
        }
        self.counts.shutdowns += 1;
        self.note(|| format!("weir {at} is being stopped"));
        self.end_workers(at);
        self.member_obeyed(at);
        self.step_member(at, GroupEvent::Intent(MemberIntent::ShutsDown));
        self.ring(at);
    }

    fn end_workers(&mut self, at: usize) {
        let weir = &mut self.weirs[at];
        weir.shown = None;
        weir.connections.clear();
        let writes = std::mem::take(&mut weir.writes);
        writes.into_iter().for_each(|write| self.close(write));
    }

    /// Ends a process that is being stopped, once nothing is left for it to do in its group.
    pub(crate) fn leave_when_free(&mut self, at: usize) {
        let (now, seat) = (self.now, self.weirs[at].seat);
        let Some(host) = &self.weirs[at].host else { return };
        let (Some(leaving), clock) = (host.leaving, host.clock(now)) else { return };
        if clock < leaving.until && (clock < leaving.told_at || !host.has_given_all(clock)) {
            return;
        }
        self.note(|| format!("weir {at} has stopped"));
        self.kill_weir(at);
        self.kernels[seat].obey(KernelCall::Remove, clock, 0);
        self.repair_in(leaving.back_ms, Repair::Weir(at));
    }
}

impl MemberHost {
    /// True if another member leads, the others can decide without this one, and what was taken is obeyed. As of the program's `GroupDriver`.
    fn has_given_all(&self, clock: GroupMs) -> bool {
        let Some(version) = &self.version else { return true };
        let (state, own) = (&version.state, self.id);
        let is_ours = match state.lead {
            GroupLead::Held(id) => id == own,
            GroupLead::Taken { from, .. } => from == Some(own),
        };
        let (members, holds) = (&state.members, self.address.as_ref().is_some_and(|keeper| keeper.holds()));
        let stays = members.lasting().len() > 1 || !members.lasting().contains(&own);
        let casts = members.casting() == Some(own) && stays;
        let leads = is_ours && clock < self.rights.until;
        let keeps = leads || casts || holds || self.obeying.is_some();
        !keeps
    }
}
