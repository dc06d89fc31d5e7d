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

/// Looks at a server that answers are closer to each other.
const ROUGH_MS_MIN: Ms = 2_000;
const ROUGH_STEP_MS: Ms = 5_000;

impl CommitLoss {
    pub fn describe(&self, now: Ms) -> String {
        self.with_age(now, |age_ms| format!("{age_ms} ms"))
    }

    /// For who looks again and again: the time since the last look, which grows and falls with each, is rounded up.
    pub fn describe_roughly(&self, now: Ms) -> String {
        self.with_age(now, |age_ms| match age_ms {
            ..=ROUGH_MS_MIN => format!("{} s", ROUGH_MS_MIN / 1000),
            _ => format!("{} s", age_ms.div_ceil(ROUGH_STEP_MS) * ROUGH_STEP_MS / 1000),
        })
    }

    fn with_age(&self, now: Ms, shown: impl Fn(Ms) -> String) -> String {
        match self {
            CommitLoss::Nothing => "nothing that was acknowledged".into(),
            CommitLoss::After { at, bytes } => {
                let age = shown(now.saturating_sub(*at));
                format!("at most what was acknowledged in the {age} before; at least {bytes} bytes of log")
            }
            CommitLoss::Unknown => "unknown: too little was seen of the old primary's log".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_of_a_moment_is_told_exactly_or_so_that_it_stays_the_same_between_looks() {
        let loss = CommitLoss::After { at: 1_000, bytes: 7 };
        assert_eq!(loss.describe(1_087), "at most what was acknowledged in the 87 ms before; at least 7 bytes of log");
        for (age_ms, expected) in [(0, "2 s"), (87, "2 s"), (2_000, "2 s"), (2_001, "5 s"), (5_000, "5 s"), (61_000, "65 s")] {
            let text = loss.describe_roughly(1_000 + age_ms);
            assert!(text.contains(&format!("in the {expected} before")), "{age_ms}: {text}");
        }
        assert_eq!(CommitLoss::Nothing.describe_roughly(9), CommitLoss::Nothing.describe(9));
    }

    #[test]
    fn the_time_of_a_failover_is_that_of_its_parts() {
        let parts = FailoverDurations { verdict_ms: 1000, pledge_ms: 200, promote_ms: 30, vote_ms: 4 };
        assert_eq!(parts.total_ms(), 1234);
    }
}
