//! Failover in a group: how the decisions of `weir_failover` and those of `weir_group` rely on each other. Pure; the program and the simulator
//! obey the same.
//!
//! The group is one Weir whose disk is the group's state. [`MemberSight`] is what a member knows of its group, [`FailoverTie`] what it passes on between
//! the two and in which order, [`group_duty`] what the group does before an order of its leader. [`writes_closing`] and [`writes_opening`] lead to a closed
//! and to an open epoch, [`ObedienceProgress`] to the end of what was taken. Design: `docs/design/group.md`.

mod failover_tie;
mod leader_duty;
mod member_sight;
mod obedience;
mod write_epoch;

pub use failover_tie::{FailoverTie, GroupNews, MemberWord};
pub use leader_duty::{GroupDuty, group_duty};
pub use member_sight::{MemberSight, is_number_of_group, number_of_single, rules_in_group, server_mark};
pub use obedience::{ObedienceProgress, TakenWrites, WritesChange, WritingParty};
pub use write_epoch::{asked_closing, writes_closing, writes_opening};
