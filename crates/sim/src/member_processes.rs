//! Processes of one member after takeovers, as each of them knows of the others.

use weir_failover::Ms;
use weir_group::{FormerMember, FormerStanding, GroupMs, PASS_ON_MS, PassedRights, VersionNumber};

/// Part of a process in its member.
#[derive(Clone, Debug, PartialEq)]
pub enum ProcessStage {
    /// Plays it, or does once it is started.
    Member,
    /// Plays it, and serves no clients yet; the process before may have it back.
    Begins {
        after: usize,
    },
    /// Plays it, and gives no orders any more.
    HandsOver,
    Former {
        member: Box<FormerMember>,
        by: usize,
        stage: SuccessorStage,
    },
    /// Is never started again.
    Over,
}

/// Clients of the process that took over, as the former one knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuccessorStage {
    Begins,
    Serves,
    Ended,
}

impl ProcessStage {
    pub fn gives_orders(&self) -> bool {
        matches!(self, ProcessStage::Member | ProcessStage::Begins { .. })
    }
}

/// A process that is being stopped in good order, by times of its clock.
#[derive(Clone, Copy, Debug)]
pub struct LeavingProcess {
    /// All others have been told by then.
    pub told_at: GroupMs,
    /// It ends then in any case.
    pub until: GroupMs,
    /// Time from its end until it is started again.
    pub back_ms: Ms,
}

#[derive(Clone, Debug)]
pub struct FormerSight {
    pub at: usize,
    pub standing: FormerStanding,
    /// As it was passed last, without the version.
    pub passed: Option<PassedRights>,
    pub version: Option<VersionNumber>,
}

#[derive(Clone, Debug, Default)]
pub struct FormerProcesses {
    pub sights: Vec<FormerSight>,
    /// End of the rights of those that cannot be spoken to.
    pub unheard_until: Option<GroupMs>,
}

impl FormerProcesses {
    pub fn have_obeyed(&self, number: VersionNumber, clock: GroupMs) -> bool {
        self.is_unheard_over(clock) && self.sights.iter().all(|sight| sight.standing.has_obeyed(number, clock))
    }

    pub fn is_unheard_over(&self, clock: GroupMs) -> bool {
        self.unheard_until.is_none_or(|until| clock >= until + PASS_ON_MS)
    }

    pub fn living(&self) -> impl Iterator<Item = &FormerSight> {
        self.sights.iter().filter(|sight| sight.standing != FormerStanding::Ended)
    }
}
