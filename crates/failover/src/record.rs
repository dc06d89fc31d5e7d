//! The history of failovers.

use super::ballot::{Ballot, NodeId};
use super::event::{LookFailure, Ms};

pub const RECORDS_MAX: usize = 20;

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
    Found,
    Died(LookFailure),
    /// Answered, but as a standby.
    Demoted,
    /// By an operator, or another promoter.
    Named,
    /// By an operator, while the old primary worked.
    SwitchedOver,
    /// By another Weir.
    Adopted,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FailoverDurations {
    /// From the first failed look to the verdict.
    pub verdict_ms: Ms,
    pub pledge_ms: Ms,
    /// To the new primary's first sign of being one.
    pub promote_ms: Ms,
    /// To the votes of a majority.
    pub vote_ms: Ms,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CommitLoss {
    /// Commits without a wait for standbys do not count.
    Nothing,
    /// Commits acknowledged after `at`. `bytes`: the least lack of log.
    After { at: Ms, bytes: u64 },
    /// The old primary was not looked at in time, or the end of its log is unknown.
    Unknown,
}

impl FailoverDurations {
    pub fn total_ms(&self) -> Ms {
        self.verdict_ms + self.pledge_ms + self.promote_ms + self.vote_ms
    }
}

impl CommitLoss {
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
