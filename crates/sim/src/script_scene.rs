//! Scripts of a group of three members, and their moments. `member_scripts` plays them.

/// Order of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberScript {
    /// A member loses its disk right after it accepted what another one, which is cut off, has not heard. The two meet, without the leader.
    DiskAfterAcceptance,
    /// The leader is cut off while it ends a change of members, alone with the version that ends it.
    ChangeEndsAlone,
    /// A member that may write is cut off, and removed at once. The others lose the primary.
    WriterRemoved,
    /// The leader is cut off, and removed as soon as another one leads. The others lose the primary.
    LeaderRemoved,
    /// A host loses its disk while a former process of it has clients. It is admitted as another member, and the group loses the primary.
    DiskBesideFormer,
}

impl MemberScript {
    pub const ALL: [MemberScript; 5] = [
        MemberScript::DiskAfterAcceptance,
        MemberScript::ChangeEndsAlone,
        MemberScript::WriterRemoved,
        MemberScript::LeaderRemoved,
        MemberScript::DiskBesideFormer,
    ];
}

/// A moment of a script.
#[derive(Clone, Copy, Debug)]
pub enum ScriptScene {
    Begins,
    DiskIsLost(ScriptRoles),
    /// Looked for again and again.
    ChangeEnds(ScriptRoles),
    /// Looked for again and again.
    LeadIsTaken(ScriptRoles),
    PrimaryIsLost(ScriptRoles),
    WriterIsGone(ScriptRoles),
    HostIsEmpty(ScriptRoles),
}

/// The leader and the others.
#[derive(Clone, Copy, Debug)]
pub struct ScriptRoles {
    pub leader: usize,
    pub second: usize,
    pub third: usize,
}
