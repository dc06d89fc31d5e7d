//! Events that a member is told, and actions that it orders.

use crate::forming_order::{FormingOrder, FormingRefusal};
use crate::group_rule::GroupRule;
use crate::group_state::{GroupDecision, GroupId, GroupState, StateVersion, VersionNumber};
use crate::membership::{GroupMs, HalfVotes, HostNumber, MemberDuty, MemberId, MemberRow};
use crate::operator_acts::{ActAnswer, OperatorAct};
use crate::register::{RegisterEvent, RegisterMessage};

/// Where versions are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EngineKind {
    /// On the members' disks.
    Builtin,
    /// Outside, as in etcd: `GroupAction::ReadEngine`, `ChangeEngine` and `CreateEngine`, answered by `GroupEvent::Engine`.
    Outside,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    pub host: HostNumber,
    /// All configured hosts, this one included.
    pub hosts: Vec<HostNumber>,
    pub priority: u8,
    pub duty: MemberDuty,
    pub half_votes: HalfVotes,
    pub lease_ms: GroupMs,
    /// `wd_no_show_node_removal_timeout`; `None` for 0.
    pub no_show_ms: Option<GroupMs>,
    /// `wd_lost_node_removal_timeout`; `None` for 0.
    pub lost_removal_ms: Option<GroupMs>,
    pub shutdowns: ShutdownFate,
    pub engine: EngineKind,
    /// A test leaves this rule out.
    pub without: Option<GroupRule>,
}

/// Settings that a reload changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemovalSettings {
    pub no_show_ms: Option<GroupMs>,
    pub lost_removal_ms: Option<GroupMs>,
    pub shutdowns: ShutdownFate,
}

/// `wd_remove_shutdown_nodes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ShutdownFate {
    Stays,
    Removed,
}

/// Intent of a member for its own future.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemberIntent {
    Serves,
    /// Must not lead: workers stand still, the primary, trusted servers or interfaces are out of reach for it. The caller judges.
    Unfit,
    ShutsDown,
}

/// Right of a member to speak in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemberVoice {
    Speaks,
    /// Its disk failed: it says nothing until a restart.
    Mute,
    /// Another group was formed by force in place of its own: it does nothing until its file is deleted and it is started anew.
    Replaced,
}

/// Servers as a member sees them, a bit for each node; in neither: unknown. The group passes them on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeSights {
    pub alive: u128,
    pub dead: u128,
}

/// Sight of a group's mark on the servers, for forming.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerMark {
    Unseen,
    Unmarked,
    Marked,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MessagePart {
    Register(RegisterMessage),
    /// From a host without a group, or to one.
    Hello {
        row: MemberRow,
    },
    /// First version of a group, to the hosts that it names.
    Propose(StateVersion),
    /// Says only what stands beside.
    News,
    /// To a member of a group that the sender's was formed in place of, by force.
    Replaced {
        group: GroupId,
    },
    Act(OperatorAct),
    /// Life of the receiver of an act, which it must name.
    ActLife {
        number: u64,
        life: u64,
    },
    Acted {
        number: u64,
        answer: ActAnswer,
    },
}

/// Bounded by the limits of the states in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupMessage {
    pub group: Option<GroupId>,
    pub from: MemberId,
    /// `None` in a greeting to a host that was not heard.
    pub to: Option<MemberId>,
    /// Newest term known, and the time since its leader confirmed a read.
    pub led: (u64, GroupMs),
    /// Newest version that the sender obeys.
    pub obeyed: VersionNumber,
    pub intent: MemberIntent,
    pub sights: NodeSights,
    pub part: MessagePart,
    /// Digest of the parameters that all members must have alike, for those that compare them. `None` where they mean nothing.
    pub parameters: Option<u64>,
    /// Beside an acceptance: the time since the sender answered the last question of each member. `None` beside all else.
    pub answered: Option<Vec<(MemberId, GroupMs)>>,
}

/// Wishes of failover and operators. Only a leader's are followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupRequest {
    /// Stops writes everywhere; `GroupAction::WritesStopped` says when it is in force. `None`: the text of failover stays.
    CloseWrites {
        text: Option<String>,
    },
    /// The text of failover stays: it may have been stored anew since this was wished.
    OpenWrites {
        epoch: u64,
        node: u16,
        decision: Option<GroupDecision>,
    },
    StoreText {
        text: String,
    },
    ChangeMembers {
        rows: Vec<MemberRow>,
    },
    /// To the best other member if `None`.
    HandOver {
        to: Option<MemberId>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupAnswer {
    /// Decided, or so already.
    Done,
    NotLeader,
    /// Against the state, or too large, or most of the new members are silent.
    Refused,
    Busy,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupEvent {
    /// At `GroupMember::next_tick` at the latest. `dice` keeps claims and attempts of members apart.
    Tick {
        dice: u32,
    },
    Message(Box<GroupMessage>),
    Written {
        number: u64,
    },
    /// The file could not be written: no vote until a restart.
    WriteFailed,
    /// Rights of this version are obeyed: what they leave out is done with.
    Obeyed {
        number: VersionNumber,
    },
    LinkClosed {
        member: MemberId,
    },
    Intent(MemberIntent),
    Sights(NodeSights),
    /// In place of the settings that the member began with. The leader's settings count.
    Removals(RemovalSettings),
    /// Digest of the own parameters that all members must have alike.
    Parameters(u64),
    /// For a founder: what the failover file and the servers' marks know. Looked at anew twice a second while there is no group.
    Founding {
        text: String,
        mark: ServerMark,
    },
    Request {
        ticket: u64,
        request: GroupRequest,
    },
    /// An operator wishes a group. Answered by `GroupAction::Formed`.
    Form {
        ticket: u64,
        order: FormingOrder,
    },
    Engine(RegisterEvent),
    /// An operator's wish, for the leader (`None`) or another member. Answered by `GroupAction::Acted`, after `limit_ms` at the latest.
    Act {
        ticket: u64,
        to: Option<MemberId>,
        text: String,
        limit_ms: GroupMs,
    },
    /// Nobody waits for the answer.
    ActDropped {
        ticket: u64,
    },
    /// The end of a `GroupAction::Act`.
    Acted {
        from: MemberId,
        number: u64,
        answer: ActAnswer,
    },
}

/// Rights of a member until a time of its own clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MemberRights {
    pub until: GroupMs,
    /// Term in which it leads: it holds the address and gives orders to servers.
    pub leads: Option<u64>,
    /// Epoch and node.
    pub writes: Option<(u64, u16)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupAction {
    Send {
        host: HostNumber,
        message: Box<GroupMessage>,
    },
    /// Written beside, synced, renamed; then `Written`.
    Write {
        number: u64,
        text: String,
    },
    /// In place of all rights before. `obey`: something was taken; `Obeyed` is awaited.
    Rights {
        number: VersionNumber,
        rights: MemberRights,
        obey: RightsTaken,
    },
    /// A new decided version.
    State(StateVersion),
    /// Nobody writes in this epoch any more, as long as this leader leads.
    WritesStopped {
        epoch: u64,
    },
    Answer {
        ticket: u64,
        answer: GroupAnswer,
    },
    /// The order is followed, and a leader comes if all goes well.
    Formed {
        ticket: u64,
        answer: Result<(), FormingRefusal>,
    },
    /// Another group was formed by force in place of this one: this member does nothing any more.
    Replaced {
        by: HostNumber,
    },
    /// A member's operator wishes this. Answered by `GroupEvent::Acted`.
    Act {
        from: MemberId,
        act: OperatorAct,
    },
    Acted {
        ticket: u64,
        answer: ActAnswer,
    },
    /// Answered by `RegisterEvent::Shown` or `Empty`, or not at all.
    ReadEngine,
    /// Answered by `RegisterEvent::Changed` or `Refused`, always: until then no other change is ordered.
    ChangeEngine {
        expect: VersionNumber,
        new: Box<GroupState>,
    },
    /// First state of a group, only if the engine has none. Answered as `ChangeEngine`.
    CreateEngine {
        new: Box<GroupState>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RightsTaken {
    Nothing,
    Something,
}
