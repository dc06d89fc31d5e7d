//! Members of a group that lose their disks, and such as an operator removes.

use weir_failover::Ms;
use weir_group::{GroupEvent, GroupRequest, MemberRow};

use crate::fault::Repair;
use crate::kinds::GroupPart;
use crate::member_processes::ProcessStage;
use crate::world::World;

impl World {
    /// A host without its file is another member. Nothing is lost before the group has decided something: until then all members are needed.
    pub(crate) fn lose_disk(&mut self, lasts: Ms) {
        let seat = self.dice.below(self.plan.weirs as u64) as usize;
        let at = self.serving[seat];
        let is_left = self.counts.disks_lost < self.plan.disks_to_lose();
        if !is_left || !self.has_decided() || !self.is_alone_on_host(at) {
            return;
        }
        self.empty_disk(at, lasts);
    }

    /// Ends a host's process, which comes back without its files.
    pub(crate) fn empty_disk(&mut self, at: usize, lasts: Ms) {
        self.counts.disks_lost += 1;
        self.kill_weir(at);
        self.weirs[at].disk.clear();
        let (incarnation, keeps_it) = (self.dice.roll() as u32, self.leaves_out(GroupPart::NewIncarnation));
        let Some(host) = self.member_host(at) else { return };
        host.file.clear();
        host.id.incarnation = if keeps_it { host.id.incarnation } else { incarnation };
        self.note(|| format!("weir {at} has lost its disk"));
        self.repair_in(lasts, Repair::Weir(at));
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
}
