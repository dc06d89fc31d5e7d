//! Rules that safety depends on, by name, so that a test can leave each out and see what it prevents.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupRule {
    /// A member casts nothing below its promise.
    PromiseBinds,
    /// A change proposes the newest version found, unless that is the one it was made from.
    FoundVersionStands,
    /// A read is confirmed by members that have the version, not by any answer.
    QuorumShowsVersion,
    /// During a change of members, majorities of old and new decide.
    BothMajorities,
    /// A change of members ends only from a joint version that is known to be decided.
    JointKnownDecided,
    /// Promise and version are on disk before an answer leaves.
    WriteBeforeAnswer,
    /// A lease runs from the time its question was sent.
    LeaseFromQuestion,
    /// A lead that was taken is given after its holder obeyed or its lease is over.
    WaitForLead,
    /// Writes that were closed count as stopped after all obeyed or their leases are over.
    WaitForWrites,
    /// A change of members ends after those that leave obeyed or their leases are over.
    WaitForLeaving,
    /// A lost member is passed over only when its lease is over.
    WaitForLost,
    /// A member's lease counts as over early only by what all told who accepted the change.
    AcceptorsTell,
    /// A member reports a version as obeyed only when it is done with what that takes.
    ObeyFirst,
    /// Anything that a version opens counts once a read confirmed it.
    ConfirmedOpening,
    /// A giver that was restarted waits from its own first confirmed read.
    RestartedGiverWaits,
}

impl GroupRule {
    pub const ALL: [GroupRule; 15] = [
        GroupRule::PromiseBinds,
        GroupRule::FoundVersionStands,
        GroupRule::QuorumShowsVersion,
        GroupRule::BothMajorities,
        GroupRule::JointKnownDecided,
        GroupRule::WriteBeforeAnswer,
        GroupRule::LeaseFromQuestion,
        GroupRule::WaitForLead,
        GroupRule::WaitForWrites,
        GroupRule::WaitForLeaving,
        GroupRule::WaitForLost,
        GroupRule::AcceptorsTell,
        GroupRule::ObeyFirst,
        GroupRule::ConfirmedOpening,
        GroupRule::RestartedGiverWaits,
    ];
}
