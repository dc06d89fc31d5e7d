//! The history of failovers: time, reason, length of each part, and loss.

use super::ballot::{Ballot, NodeId};
use super::event::{LookFailure, Ms};

/// Records that are kept.
pub const RECORDS_MAX: usize = 20;

/// One change of the primary.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FailoverRecord {
    pub at: Ms,
    pub old: Option<NodeId>,
    pub new: NodeId,
    pub ballot: Ballot,
    pub why: FailoverCause,
    pub parts: FailoverDurations,
    pub loss: CommitLoss,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailoverCause {
    /// It was found at the start.
    Found,
    Died(LookFailure),
    /// It answers, but as a standby.
    Demoted,
    /// An operator, or somebody who decides outside.
    Named,
    /// An operator, while the old one worked.
    SwitchedOver,
    /// Another Weir decided it.
    Adopted,
}

/// How long the parts took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FailoverDurations {
    /// From the first failed look to the verdict.
    pub verdict_ms: Ms,
    /// To the pledges of the standbys.
    pub pledge_ms: Ms,
    /// To the new primary's first sign of being one.
    pub promote_ms: Ms,
    /// To the votes of a majority.
    pub vote_ms: Ms,
}

/// Acknowledged commits that the new primary may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CommitLoss {
    /// None. Commits for which a client waived the acknowledgement of standbys do not count.
    Nothing,
    /// Those acknowledged after this time. `bytes`: its certain lack of the log as last seen.
    After { at: Ms, bytes: u64 },
    /// The old primary was not looked at in time, or the place where its log was left is not known.
    Unknown,
}

impl FailoverDurations {
    pub fn total_ms(&self) -> Ms {
        self.verdict_ms + self.pledge_ms + self.promote_ms + self.vote_ms
    }
}

impl CommitLoss {
    /// For SHOW and the log, read at `now`.
    pub fn describe(&self, now: Ms) -> String {
        match self {
            CommitLoss::Nothing => "nothing that was acknowledged".into(),
            CommitLoss::After { at, bytes } => {
                format!(
                    "at most what was acknowledged in the {} ms before; at least {bytes} bytes of log",
                    now.saturating_sub(*at)
                )
            }
            CommitLoss::Unknown => "unknown: too little was seen of the old primary's log".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_failover_is_that_of_its_parts() {
        let parts = FailoverDurations { verdict_ms: 1000, pledge_ms: 200, promote_ms: 30, vote_ms: 4 };
        assert_eq!(parts.total_ms(), 1234);
    }
}
