//! Kinds of faults, and the parts of proofs that a run may leave out.

use weir_group::GroupRule;

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The process is killed, and started again some time later.
    Kill,
    /// A backend crashes, and all of them are started anew.
    CrashInPlace,
    /// The host loses its power.
    Dark,
    /// SIGSTOP.
    Hang,
    /// One direction between two hosts.
    Cut,
    /// A Weir hears and reaches one server no more.
    Blind,
    /// A Weir reaches one server only.
    Narrow,
    /// A server reaches no other server.
    Island,
    /// The network falls into two parts.
    Split,
    WeirDies,
    /// Somebody promotes a standby by hand.
    Promoted,
    /// The operator takes a node out, and back.
    Detached,
    /// The operator moves the primary.
    SwitchOver,
    /// The agent of a server dies, and is started again some time later.
    AgentDies,
    /// The operator has a standby started anew.
    Restart,
    /// A report holds up the replay of a standby.
    ReplayStands,
    /// SIGSTOP of a Weir.
    WeirHangs,
    /// A Weir reaches no other Weir.
    WeirIsland,
    /// The leader of a group dies.
    LeaderDies,
    /// Another process takes a Weir's place in its group.
    TakenOver,
    /// etcd is away, or has no leader of its own.
    EtcdSilent,
    /// A host of a group loses its disk, and is started again some time later.
    DiskLost,
    /// The operator removes a host from its group. It is admitted again when it greets.
    MemberRemoved,
    /// A Weir is stopped in good order, and started again some time later.
    ShutDown,
}

impl Fault {
    pub const ALL: [Fault; 12] = [
        Fault::Kill,
        Fault::CrashInPlace,
        Fault::Dark,
        Fault::Hang,
        Fault::Cut,
        Fault::Blind,
        Fault::Narrow,
        Fault::Island,
        Fault::Split,
        Fault::WeirDies,
        Fault::Promoted,
        Fault::Detached,
    ];

    /// Faults of runs in which primaries are moved.
    pub const PLANNED: [Fault; 4] = [Fault::SwitchOver, Fault::AgentDies, Fault::Restart, Fault::ReplayStands];

    /// Faults of groups.
    pub const GROUPED: [Fault; 3] = [Fault::WeirHangs, Fault::WeirIsland, Fault::LeaderDies];

    /// Largest share.
    pub fn weight(self) -> u64 {
        match self {
            Fault::Kill => 12,
            Fault::Dark | Fault::Hang | Fault::WeirDies | Fault::Blind | Fault::Narrow | Fault::Split => 6,
            Fault::Cut | Fault::Island | Fault::CrashInPlace => 4,
            Fault::Promoted | Fault::Detached => 2,
            Fault::Restart | Fault::ReplayStands => 6,
            Fault::WeirHangs | Fault::WeirIsland | Fault::LeaderDies | Fault::TakenOver | Fault::EtcdSilent => 10,
            Fault::DiskLost | Fault::MemberRemoved | Fault::ShutDown => 10,
            Fault::SwitchOver => 40,
            Fault::AgentDies => 8,
        }
    }
}

/// Faults of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scripted {
    /// The first Weir dies at once and is back soon.
    WeirDies,
    /// The first Weir dies after a while: clients have written meanwhile, and a slow disk has not.
    WeirDiesLater,
    /// The old primary starts.
    OldStarts,
    /// A standby is killed.
    OtherDies,
    /// The first Weir reaches the old primary only, which starts.
    OldAlone,
    /// The last Weir reaches the old primary only, which starts.
    OldAloneForLast,
}

impl Scripted {
    pub const ALL: [Scripted; 6] = [
        Scripted::WeirDies,
        Scripted::WeirDiesLater,
        Scripted::OldStarts,
        Scripted::OtherDies,
        Scripted::OldAlone,
        Scripted::OldAloneForLast,
    ];
}

/// A part of a proof that is left out, to see that a run finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// A number counts only if it had reached the standby before the promotion.
    Reached,
    /// A number that had not reached it is another's only if nothing of it had ended when the standby took writes.
    Fresh,
    /// Only a Weir that has promoted the server knows these numbers.
    SeenPromotion,
    /// A server counts only if it has run on since it gave the number out.
    RunOn,
    /// A checkpoint tells of numbers that were given out before it.
    LaterCheckpoint,
    /// Of the promotions only the one after which the number was given out.
    NextLine,
    /// Enough standbys have the commit.
    Replicated,
    /// A transaction that may still end is waited for.
    InProgress,
    /// Nothing that the standby had before the promotion was committed after the last sign of life of its primary.
    AllBefore,
    /// A sign of life is an answer, and not the time at which a Weir notices the loss.
    Answered,
    /// A transaction that runs again goes on only if its client was shown the same.
    SameAnswers,
}

impl Proof {
    pub const ALL: [Proof; 11] = [
        Proof::Reached,
        Proof::Fresh,
        Proof::SeenPromotion,
        Proof::RunOn,
        Proof::LaterCheckpoint,
        Proof::NextLine,
        Proof::Replicated,
        Proof::InProgress,
        Proof::AllBefore,
        Proof::Answered,
        Proof::SameAnswers,
    ];
}

/// A part of failover in a group that is left out, to see that a run finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupPart {
    Rule(GroupRule),
    /// Writes are closed for all before a primary is replaced or stopped.
    CloseFirst,
    /// Closed writes count once nobody writes any more.
    WaitStopped,
    /// No success passes after the lease.
    LeaseAtSuccess,
    /// The leader looks at its lease before each order, and before it stores.
    LeaseAtOrder,
    /// Orders end with the lead.
    OrdersEnd,
    /// A server refuses orders that are older than its mark.
    ServerMarks,
    /// A process that took over obeys once those before it have.
    FormersObeyFirst,
    /// A member that is started beside a former process waits until that one's rights are over.
    FormersOutlived,
    /// The address ends in the kernel within the lease.
    AddressWithinLease,
    /// A lead that was taken counts as obeyed once the address is gone.
    AddressGoneFirst,
    /// A change in etcd is made only in the place of the version that it was made from.
    EtcdCompares,
    /// A read of etcd is linearizable.
    EtcdFreshReads,
    /// A host that lost its disk is another member.
    NewIncarnation,
}

impl GroupPart {
    pub const BINDING: [GroupPart; 13] = [
        GroupPart::CloseFirst,
        GroupPart::WaitStopped,
        GroupPart::LeaseAtSuccess,
        GroupPart::LeaseAtOrder,
        GroupPart::OrdersEnd,
        GroupPart::ServerMarks,
        GroupPart::FormersObeyFirst,
        GroupPart::FormersOutlived,
        GroupPart::AddressWithinLease,
        GroupPart::AddressGoneFirst,
        GroupPart::EtcdCompares,
        GroupPart::EtcdFreshReads,
        GroupPart::NewIncarnation,
    ];
}
