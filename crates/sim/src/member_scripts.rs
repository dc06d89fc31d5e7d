//! Scripts of a group of three: faults of its members in one order, for what dice meet rarely.

use weir_failover::Ms;
use weir_group::GroupMember;

use crate::script_scene::{MemberScript, ScriptRoles, ScriptScene};
use crate::world::{Due, World};

/// Beyond the end of the faults.
const TO_THE_END_MS: Ms = 60_000;
const LOOKS_AGAIN_MS: Ms = 1;
/// Messages in a hundred that are lost while members change.
const LOSS: u64 = 40;

impl World {
    pub(crate) fn play_scene(&mut self, scene: ScriptScene) {
        self.note(|| format!("scene {scene:?}"));
        match scene {
            ScriptScene::Begins => self.begin_script(),
            ScriptScene::DiskIsLost(roles) => self.lose_accepted(roles),
            ScriptScene::ChangeEnds(roles) => self.leave_end_alone(roles),
            ScriptScene::LeadIsTaken(roles) => self.remove_former_leader(roles),
            ScriptScene::PrimaryIsLost(roles) => self.lose_primary(roles.second),
            ScriptScene::HostIsEmpty(roles) => {
                let back = self.dice.within(20, 300);
                self.lose_disk_of(roles.second, back);
            }
            ScriptScene::WriterIsGone(roles) => {
                self.part(roles.second, &[roles.leader, roles.third]);
                self.ask_to_remove(roles.second, roles.leader);
            }
        }
    }

    fn begin_script(&mut self) {
        let (Some(script), Some(leader)) = (self.plan.member_script, self.leader()) else {
            return self.later(LOOKS_AGAIN_MS, Due::Scene(ScriptScene::Begins));
        };
        let turn = 1 + self.dice.below(2) as usize;
        let roles = ScriptRoles { leader, second: (leader + turn) % 3, third: (leader + 3 - turn) % 3 };
        match script {
            MemberScript::DiskAfterAcceptance => {
                self.part(roles.third, &[leader, roles.second]);
                self.kill_first();
                let accepted = self.dice.within(1, 1_500);
                self.later(accepted, Due::Scene(ScriptScene::DiskIsLost(roles)));
            }
            MemberScript::ChangeEndsAlone => {
                self.plan.loss = LOSS;
                self.ask_to_remove(roles.third, leader);
                self.later(LOOKS_AGAIN_MS, Due::Scene(ScriptScene::ChangeEnds(roles)));
            }
            MemberScript::WriterRemoved => {
                let (lost, gone) = (self.dice.within(0, 500), self.dice.within(0, 4_000));
                self.later(lost, Due::Scene(ScriptScene::PrimaryIsLost(roles)));
                self.later(gone, Due::Scene(ScriptScene::WriterIsGone(roles)));
            }
            MemberScript::DiskBesideFormer => {
                self.begin_takeover(self.serving[roles.second]);
                let (empty, lost) = (self.dice.within(20, 1_500), self.dice.within(0, 3_000));
                self.later(empty, Due::Scene(ScriptScene::HostIsEmpty(roles)));
                self.later(lost, Due::Scene(ScriptScene::PrimaryIsLost(roles)));
            }
            MemberScript::LeaderRemoved => {
                self.part(leader, &[roles.second, roles.third]);
                self.later(LOOKS_AGAIN_MS, Due::Scene(ScriptScene::LeadIsTaken(roles)));
            }
        }
    }

    fn lose_accepted(&mut self, roles: ScriptRoles) {
        self.part(roles.leader, &[roles.second, roles.third]);
        self.meet_again(roles.second, roles.third);
        let back = self.dice.within(20, 300);
        self.empty_disk(roles.second, back);
    }

    fn leave_end_alone(&mut self, roles: ScriptRoles) {
        let ends = |member: &GroupMember| {
            let accepted = member.register().held().accepted.as_ref();
            accepted.is_some_and(|version| version.state.members.next.is_none() && version.state.members.voters.len() == 2)
        };
        let has_ended = self.weirs[roles.leader].host.as_ref().and_then(|host| host.member.as_ref()).is_some_and(ends);
        if has_ended {
            self.plan.loss = 0;
            return self.part(roles.leader, &[roles.second, roles.third]);
        }
        self.later(LOOKS_AGAIN_MS, Due::Scene(ScriptScene::ChangeEnds(roles)));
    }

    fn remove_former_leader(&mut self, roles: ScriptRoles) {
        let Some(leader) = self.leader().filter(|leader| *leader != roles.leader) else {
            return self.later(LOOKS_AGAIN_MS, Due::Scene(ScriptScene::LeadIsTaken(roles)));
        };
        self.ask_to_remove(roles.leader, leader);
        self.lose_primary(roles.leader);
    }

    /// The primary dies, or only this Weir reaches it.
    fn lose_primary(&mut self, reaches: usize) {
        if self.dice.percent(50) {
            return self.kill_first();
        }
        let spared = self.end_of(reaches);
        for other in (1..self.ends()).filter(|other| *other != spared) {
            self.cut(0, other, TO_THE_END_MS);
            self.cut(other, 0, TO_THE_END_MS);
        }
    }

    fn part(&mut self, one: usize, others: &[usize]) {
        for other in others {
            let (one, other) = (self.end_of(one), self.end_of(*other));
            self.cut(one, other, TO_THE_END_MS);
            self.cut(other, one, TO_THE_END_MS);
        }
    }

    fn meet_again(&mut self, one: usize, other: usize) {
        let (one, other) = (self.end_of(one), self.end_of(other));
        (self.cuts[one][other], self.cuts[other][one]) = (0, 0);
    }
}
