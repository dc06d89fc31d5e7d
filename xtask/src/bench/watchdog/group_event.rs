//! Events that a group meets.

/// An event, and its place in the table.
#[derive(Debug, Clone, Copy)]
pub struct GroupEvent {
    pub name: &'static str,
    pub title: &'static str,
    pub kind: GroupEventKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupEventKind {
    Leader(LeaderFault),
    /// Nothing happens: the processor time of all.
    Idle,
    /// The primary is killed. Weir only: Pgpool-II's part in it would be a script of ours.
    Primary(WriteCompany),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaderFault {
    Killed,
    /// SIGSTOP, and SIGCONT at the end.
    Stopped,
    /// No packet passes, in either direction.
    Isolated,
    /// It hears nothing.
    Deaf,
    /// SIGINT: clients are disconnected.
    Graceful,
}

/// The proxies before the primary that dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteCompany {
    /// One without a group.
    Single,
    Three,
    /// Three, of which one follower died before.
    TwoOfThree,
    /// Three; a follower dies in that moment.
    WithFollower,
    /// Three; the leader dies in that moment.
    WithLeader,
}

pub const EVENTS: [GroupEvent; 11] = [
    leader("kill", "leader killed (`kill -9`)", LeaderFault::Killed),
    leader("stop", "leader stopped (SIGSTOP)", LeaderFault::Stopped),
    leader("isolated", "leader cut off in both directions", LeaderFault::Isolated),
    leader("deaf", "leader hears nothing, and is heard", LeaderFault::Deaf),
    leader("graceful", "leader ended by SIGINT", LeaderFault::Graceful),
    GroupEvent { name: "idle", title: "nothing", kind: GroupEventKind::Idle },
    primary("primary-single", "primary killed, one Weir without a group", WriteCompany::Single),
    primary("primary", "primary killed, three Weirs", WriteCompany::Three),
    primary("primary-lost", "primary killed, one of three Weirs dead since before", WriteCompany::TwoOfThree),
    primary("primary-with-follower", "primary killed, and a Weir that does not lead", WriteCompany::WithFollower),
    primary("primary-with-leader", "primary killed, and the Weir that leads", WriteCompany::WithLeader),
];

const fn leader(name: &'static str, title: &'static str, fault: LeaderFault) -> GroupEvent {
    GroupEvent { name, title, kind: GroupEventKind::Leader(fault) }
}

const fn primary(name: &'static str, title: &'static str, company: WriteCompany) -> GroupEvent {
    GroupEvent { name, title, kind: GroupEventKind::Primary(company) }
}

impl GroupEvent {
    /// True if Pgpool-II takes part.
    pub fn has_peers(&self) -> bool {
        !matches!(self.kind, GroupEventKind::Primary(_))
    }
}
