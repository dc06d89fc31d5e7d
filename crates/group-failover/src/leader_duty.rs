//! The part of the group in an order of failover.

use weir_failover::{Done, FailoverAction, FailoverCommandKind, FailoverState, GroupRole};
use weir_group::GroupRequest;

use crate::member_sight::MemberSight;
use crate::write_epoch::writes_closing;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupDuty {
    /// The group has no part in it.
    None,
    /// Decided first, within the order's limit, and closed writes have stopped: see `writes_closing`. The end of a `Store` is the end of this.
    First(GroupRequest),
    /// The lead is over: the order is not given, and has failed.
    LeadOver,
}

/// Duty of the group before a member obeys this action. Writes are closed before anything that relies on it: a replacement, the stop of a primary, a
/// command that promotes. An attempt closes them when it stores its term, or drains the primary; its later orders do not rely on that, since a drain has
/// a limit, and a lease may end and be there again in between.
pub fn group_duty(action: &FailoverAction, state: &FailoverState, role: GroupRole, sight: Option<MemberSight>) -> GroupDuty {
    let Some(sight) = sight.filter(|_| role == GroupRole::Leads) else { return GroupDuty::None };
    let duty = match action {
        // Not an order: who does not lead does that, too.
        FailoverAction::Probe { .. }
        | FailoverAction::Hold { .. }
        | FailoverAction::Release { .. }
        | FailoverAction::Reply { .. }
        | FailoverAction::WriteStatus { .. }
        | FailoverAction::Report(_) => return GroupDuty::None,
        FailoverAction::Store { text, .. } if state.stops_writes() => {
            GroupDuty::First(GroupRequest::CloseWrites { text: Some(text.clone()) })
        }
        FailoverAction::Store { text, .. } => GroupDuty::First(GroupRequest::StoreText { text: text.clone() }),
        FailoverAction::Drain { node, .. } | FailoverAction::StopServer { node, .. } if state.primary() != Some(*node) => {
            GroupDuty::None
        }
        FailoverAction::Drain { .. }
        | FailoverAction::StopServer { .. }
        | FailoverAction::Promote { .. }
        | FailoverAction::RunCommand { kind: FailoverCommandKind::Failover, .. } => match writes_closing(sight) {
            Some(Done::Yes) => GroupDuty::None,
            Some(Done::No) | None => GroupDuty::First(GroupRequest::CloseWrites { text: None }),
        },
        FailoverAction::CutOff { .. }
        | FailoverAction::Pledge { .. }
        | FailoverAction::WaitWritable { .. }
        | FailoverAction::Repoint { .. }
        | FailoverAction::Fence { .. }
        | FailoverAction::Unfence { .. }
        | FailoverAction::Wake { .. }
        | FailoverAction::Point { .. }
        | FailoverAction::Prepare { .. }
        | FailoverAction::WaitYielded { .. }
        | FailoverAction::AskAgent { .. }
        | FailoverAction::Inspect { .. }
        | FailoverAction::StartServer { .. }
        | FailoverAction::RestartServer { .. }
        | FailoverAction::FollowServer { .. }
        | FailoverAction::Rejoin { .. }
        | FailoverAction::RunCommand { .. } => GroupDuty::None,
    };
    if sight.leads() { duty } else { GroupDuty::LeadOver }
}
