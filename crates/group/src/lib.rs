//! Several Weirs as one group: its register, leases, members and forming, as one pure function.
//!
//! [`group_step`] takes a [`GroupMember`], a [`GroupEvent`] and the time, and returns [`GroupAction`]s to obey in order. Below is the register
//! (`membership`, `group_state`, `stored_vote`, `register`), above it what the group decides (`group_member` leases and waits, `next_state` claims,
//! requests and changes of members, `forming`, `forming_by_operator`; `given_rights`, `hosts_met`, `leader_sight`, `taken_waits` and `request_queue` are parts of a member, `act_passing` of operators' wishes, `tick_times`), then `group_step`; no file uses a higher one. `message_bytes` has messages
//! as bytes, `member_handover` a member that moves to another process; `address_plan` is the virtual address step by step, `address_lifetime` its time in the kernel. Rules and proof: `docs/design/group.md`.
//!
//! Border to an engine: decisions need two operations only, *read* and *change, if the newest is still version v*, and hear [`RegisterEvent`]s of
//! them. [`GroupRegister`] is one engine. With [`EngineKind::Outside`] another one stands in its place (etcd), and nothing above changes.

mod act_passing;
mod address_lifetime;
mod address_plan;
mod former_member;
mod forming;
mod forming_by_operator;
mod forming_order;
mod given_rights;
mod group_event;
mod group_member;
mod group_rule;
mod group_state;
mod group_step;
mod hosts_met;
mod last_questions;
mod leader_sight;
mod member_handover;
mod membership;
mod message_bytes;
mod next_state;
mod operator_acts;
mod register;
mod request_queue;
mod stored_vote;
mod taken_waits;
mod tick_times;

pub use address_lifetime::{ADDRESS_LEFT_MS_MIN, address_lifetime_s, may_outlive_lease};
pub use address_plan::{AddressCommand, AddressPlan, AddressRules, AddressSetting, AddressStep, AddressWish};
pub use former_member::{FormerMember, FormerStanding, PASS_ON_MS};
pub use forming_order::{FormingOrder, FormingRefusal};
pub use group_event::{
    EngineKind, GroupAction, GroupAnswer, GroupEvent, GroupMessage, GroupRequest, GroupSettings, MemberIntent, MemberRights,
    MemberVoice, MessagePart, NodeSights, RemovalSettings, RightsTaken, ServerMark, ShutdownFate,
};
pub use group_member::GroupMember;
pub use group_rule::GroupRule;
pub use group_state::{
    DECISION_BYTES_MAX, DECISIONS_MAX, FAILOVER_TEXT_BYTES_MAX, FORMER_GROUPS_MAX, GroupDecision, GroupId, GroupLead, GroupState,
    GroupWrites, LEASE_MS_MAX, LEASE_MS_MIN, StateFault, StateVersion, VersionNumber,
};
pub use group_step::group_step;
pub use member_handover::{HANDOVER_BYTES_MAX, HandoverTextError, MemberHandover, PassedRights};
pub use membership::{GroupMembers, GroupMs, HalfVotes, HostNumber, MEMBERS_MAX, MemberDuty, MemberId, MemberRow, MemberSet};
pub use message_bytes::{MESSAGE_BYTES_MAX, MESSAGE_FORM, MessageBytesError};
pub use operator_acts::{ACT_BYTES_MAX, ActAnswer, ActDoer, OperatorAct};
pub use register::{GroupRegister, RegisterEvent, RegisterMessage, RegisterOutput};
pub use stored_vote::{StoredVote, VOTE_BYTES_MAX, VoteTextError};
