//! The outcome of an unanswered COMMIT, judged by its xid. `weir::traffic::ask_outcome` asks.
//!
//! Xids can be assigned twice: a promoted standby continues from those that reached it, a crashed server from those on disk. So
//! `committed` is a proof only if the xid cannot be another transaction's. `aborted` always is: a committed xid is never reassigned.

use crate::{Lsn, PromotionNumbers, ServerFacts};
use std::num::NonZeroU64;

/// One cluster's log on one timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLineage {
    pub system: u64,
    pub timeline: u32,
}

/// From a crash to the next commit it takes longer: 20 ms with an empty log and cached files.
pub const RESTART_MS: u64 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionNumber {
    /// All 64 bits.
    pub xid: NonZeroU64,
    pub node: u16,
    pub line: LogLineage,
    /// The server's clock when it reported the number: milliseconds since 1970.
    pub said_ms: u64,
}

/// A time in which one server has run without a crash: connections to it were open, and answered. Both ends are by Weir's clock.
///
/// The time at which a loss is noticed proves nothing: behind a cut network, or if Weir stood still, the server may have crashed, started
/// and given the number to another client long before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLife {
    pub line: LogLineage,
    /// A connection had been opened.
    pub from_us: u64,
    /// The newest question was sent that the server answered.
    pub to_us: u64,
    /// The server's clock in that answer: milliseconds since 1970.
    pub said_ms: u64,
}

impl ServerLife {
    /// Takes in another proof. Two that overlap are of one life, since a crash ends all connections before a new one is accepted; else
    /// the later one counts.
    #[must_use]
    pub fn with(self, other: ServerLife) -> ServerLife {
        let overlap = self.line == other.line && self.from_us <= other.to_us && other.from_us <= self.to_us;
        if overlap {
            ServerLife {
                line: self.line,
                from_us: self.from_us.min(other.from_us),
                to_us: self.to_us.max(other.to_us),
                said_ms: self.said_ms.max(other.said_ms),
            }
        } else if other.to_us > self.to_us {
            other
        } else {
            self
        }
    }

    /// Returns the latest known time, by the server's clock, at which the life went on in which it assigned a number. `asked_us`: when
    /// the number was queried.
    pub fn alive_ms(&self, number: &TransactionNumber, asked_us: u64) -> u64 {
        let is_its = self.line == number.line && (self.from_us..=self.to_us).contains(&asked_us);
        if is_its { number.said_ms.max(self.said_ms) } else { number.said_ms }
    }
}

/// The numbers of the current primary's promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromotionHorizon {
    pub node: u16,
    pub system: u64,
    /// The previous timeline.
    pub before: u32,
    pub numbers: PromotionNumbers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromotedStandby {
    Ordered {
        node: u16,
        started_at: u64,
        /// As in `PromotionNumbers`.
        reached: u64,
        last_ms: Option<u64>,
    },
    Done {
        node: u16,
        numbers: PromotionNumbers,
        /// Where the promotion left the timeline before: one that was undone by a copy, and made again, begins a timeline of the same number.
        left_at: Lsn,
    },
}

impl PromotedStandby {
    /// Returns `Done` once `at` has left recovery. After a restart someone else may have promoted the server: unchanged. `fresh`: as in
    /// `Numbers`.
    #[must_use]
    pub fn done(self, at: u16, facts: &ServerFacts, fresh: u64) -> PromotedStandby {
        match self {
            PromotedStandby::Ordered { node, started_at, reached, last_ms } if (node, started_at) == (at, facts.started_at) => {
                PromotedStandby::Done {
                    node,
                    numbers: PromotionNumbers { timeline: facts.history.timeline, reached, fresh, last_ms },
                    left_at: facts.history.switches.last().map_or(0, |(_, end)| *end),
                }
            }
            PromotedStandby::Ordered { .. } | PromotedStandby::Done { .. } => self,
        }
    }

    /// Numbers for a node that is ordered to promote itself.
    pub fn ordered(&self) -> Option<PromotionNumbers> {
        match *self {
            PromotedStandby::Ordered { reached, last_ms, .. } => {
                Some(PromotionNumbers { timeline: 0, reached, fresh: 0, last_ms })
            }
            PromotedStandby::Done { .. } => None,
        }
    }

    /// Takes over the numbers of another Weir's order.
    #[must_use]
    pub fn after(self, kept: PromotionNumbers) -> PromotedStandby {
        match self {
            PromotedStandby::Ordered { node, started_at, .. } => {
                PromotedStandby::Ordered { node, started_at, reached: kept.reached, last_ms: kept.last_ms }
            }
            PromotedStandby::Done { .. } => self,
        }
    }

    pub fn numbers(&self, of: u16) -> Option<PromotionNumbers> {
        match self {
            PromotedStandby::Done { node, numbers, .. } if *node == of => Some(*numbers),
            PromotedStandby::Ordered { .. } | PromotedStandby::Done { .. } => None,
        }
    }
}

impl PromotionHorizon {
    /// `promoted` counts before the server reports its numbers.
    pub fn of(promoted: Option<PromotedStandby>, node: u16, facts: &ServerFacts) -> Option<PromotionHorizon> {
        let (before, left) = facts.history.switches.last()?;
        let is_other = |promoted: &PromotedStandby| matches!(promoted, PromotedStandby::Done { left_at, .. } if left_at != left);
        let own = promoted.filter(|promoted| !is_other(promoted)).and_then(|promoted| promoted.numbers(node));
        let is_of_it = |numbers: &PromotionNumbers| numbers.timeline == facts.history.timeline;
        let numbers = [own, facts.numbers].into_iter().flatten().find(is_of_it)?;
        Some(PromotionHorizon { node, system: facts.history.system, before: *before, numbers })
    }

    fn line(&self) -> LogLineage {
        LogLineage { system: self.system, timeline: self.numbers.timeline }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XidStatus {
    Committed,
    Aborted,
    InProgress,
    /// Too old to be known.
    Forgotten,
    /// Not assigned yet.
    Future,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XidStatusAnswer {
    pub node: u16,
    pub line: LogLineage,
    pub in_recovery: bool,
    pub status: XidStatus,
    /// By the server's clock.
    pub started_s: u64,
    /// The last checkpoint, or the start of the checkpointer, whichever was earlier. A crashed server does both before it accepts logins.
    pub checkpoint_s: u64,
    /// The next xid at the last checkpoint: larger than all that were assigned before it.
    pub checkpoint_xid: u64,
    /// The connection is older than the number; a crash would have ended it.
    pub is_of_old: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitOutcome {
    Committed,
    RolledBack,
    Unknown,
    NotYet,
    /// Only the Weir that promoted the server can report its numbers.
    Untold,
}

/// `alive_ms`: see `ServerLife`.
pub fn judge(
    number: &TransactionNumber,
    alive_ms: u64,
    answer: &XidStatusAnswer,
    horizon: Option<&PromotionHorizon>,
) -> CommitOutcome {
    if answer.in_recovery {
        // No longer, or not yet, the primary.
        return CommitOutcome::NotYet;
    }
    if (answer.node, answer.line) == (number.node, number.line) {
        return judge_own(number, answer);
    }
    let is_later = answer.line.system == number.line.system && answer.line.timeline > number.line.timeline;
    if horizon.is_none() && is_later {
        return CommitOutcome::Untold;
    }
    let horizon = horizon.filter(|horizon| {
        let is_next = horizon.before == number.line.timeline && horizon.system == number.line.system;
        is_next && horizon.node == answer.node && horizon.line() == answer.line
    });
    match (horizon, answer.status) {
        (None, _) | (Some(_), XidStatus::Forgotten) => CommitOutcome::Unknown,
        (Some(horizon), XidStatus::Committed) if number.xid.get() < horizon.numbers.reached => {
            // After its last sign of life the old primary may have crashed and reused the number.
            let is_all_before = horizon.numbers.last_ms.is_some_and(|last_ms| last_ms <= alive_ms + RESTART_MS);
            if is_all_before { CommitOutcome::Committed } else { CommitOutcome::Unknown }
        }
        // The number is another transaction's.
        (Some(horizon), XidStatus::Committed) if number.xid.get() >= horizon.numbers.fresh => CommitOutcome::RolledBack,
        (Some(_), XidStatus::Committed) => CommitOutcome::Unknown,
        // Transactions of the old primary are aborted here: one in progress is another.
        (Some(_), XidStatus::Aborted | XidStatus::InProgress | XidStatus::Future) => CommitOutcome::RolledBack,
    }
}

/// Judges the answer of the server that assigned the number.
fn judge_own(number: &TransactionNumber, answer: &XidStatusAnswer) -> CommitOutcome {
    let said_s = number.said_ms / 1000;
    let has_run_on = answer.is_of_old || (answer.started_s <= said_s && answer.checkpoint_s < said_s);
    // The xid was lost in a crash and assigned again. A commit of its own would be on disk, and the xid would be known at the checkpoint.
    let is_anothers = answer.checkpoint_s > said_s && number.xid.get() >= answer.checkpoint_xid;
    match answer.status {
        XidStatus::Committed if has_run_on => CommitOutcome::Committed,
        XidStatus::Committed if is_anothers => CommitOutcome::RolledBack,
        XidStatus::Committed | XidStatus::Forgotten => CommitOutcome::Unknown,
        XidStatus::Aborted | XidStatus::Future => CommitOutcome::RolledBack,
        XidStatus::InProgress => CommitOutcome::NotYet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TimelineHistory;

    const LINE: LogLineage = LogLineage { system: 7, timeline: 3 };
    const NEXT: LogLineage = LogLineage { system: 7, timeline: 4 };
    const NUMBERS: PromotionNumbers = PromotionNumbers { timeline: 4, reached: 100, fresh: 103, last_ms: Some(ALIVE_MS) };
    const HORIZON: PromotionHorizon = PromotionHorizon { node: 1, system: 7, before: 3, numbers: NUMBERS };
    const ALIVE_MS: u64 = 1_001_500;

    fn number(xid: u64) -> TransactionNumber {
        TransactionNumber { xid: NonZeroU64::new(xid).unwrap(), node: 1, line: LINE, said_ms: 1_000_999 }
    }

    fn answer(line: LogLineage, status: XidStatus) -> XidStatusAnswer {
        XidStatusAnswer {
            node: 1,
            line,
            in_recovery: false,
            status,
            started_s: 1000,
            checkpoint_s: 999,
            checkpoint_xid: 40,
            is_of_old: false,
        }
    }

    #[test]
    fn a_server_that_has_run_on_tells_the_truth() {
        for (status, expected) in [
            (XidStatus::Committed, CommitOutcome::Committed),
            (XidStatus::Aborted, CommitOutcome::RolledBack),
            (XidStatus::InProgress, CommitOutcome::NotYet),
            (XidStatus::Forgotten, CommitOutcome::Unknown),
            (XidStatus::Future, CommitOutcome::RolledBack),
        ] {
            assert_eq!(judge(&number(50), ALIVE_MS, &answer(LINE, status), None), expected, "{status:?}");
        }
    }

    #[test]
    fn a_server_that_may_have_crashed_may_have_given_the_number_to_another() {
        let committed = answer(LINE, XidStatus::Committed);
        for (what, answer, expected) in [
            ("it was started since", XidStatusAnswer { started_s: 1001, ..committed }, CommitOutcome::Unknown),
            (
                "it may have made its checkpoint since",
                XidStatusAnswer { checkpoint_s: 1000, ..committed },
                CommitOutcome::Unknown,
            ),
            (
                "a connection is older",
                XidStatusAnswer { started_s: 1001, checkpoint_s: 1001, is_of_old: true, ..committed },
                CommitOutcome::Committed,
            ),
            (
                "a later checkpoint does not know the number",
                XidStatusAnswer { started_s: 1001, checkpoint_s: 1001, checkpoint_xid: 50, ..committed },
                CommitOutcome::RolledBack,
            ),
            (
                "a later checkpoint knows the number, of this life or of two before",
                XidStatusAnswer { started_s: 1001, checkpoint_s: 1001, checkpoint_xid: 51, ..committed },
                CommitOutcome::Unknown,
            ),
            ("it is no primary", XidStatusAnswer { in_recovery: true, ..committed }, CommitOutcome::NotYet),
            ("aborted", XidStatusAnswer { started_s: 1001, status: XidStatus::Aborted, ..committed }, CommitOutcome::RolledBack),
            (
                "not given out again",
                XidStatusAnswer { started_s: 1001, status: XidStatus::Future, ..committed },
                CommitOutcome::RolledBack,
            ),
            ("another node", XidStatusAnswer { node: 2, status: XidStatus::Aborted, ..committed }, CommitOutcome::Unknown),
            (
                "another cluster",
                XidStatusAnswer { line: LogLineage { system: 8, timeline: 3 }, ..committed },
                CommitOutcome::Unknown,
            ),
        ] {
            assert_eq!(judge(&number(50), ALIVE_MS, &answer, None), expected, "{what}");
        }
    }

    #[test]
    fn a_new_primary_tells_of_numbers_that_reached_it() {
        for (what, xid, status, expected) in [
            ("below", 99, XidStatus::Committed, CommitOutcome::Committed),
            ("replayed last, or given out again", 100, XidStatus::Committed, CommitOutcome::Unknown),
            ("given out again", 103, XidStatus::Committed, CommitOutcome::RolledBack),
            ("aborted below", 99, XidStatus::Aborted, CommitOutcome::RolledBack),
            ("aborted beyond", 100, XidStatus::Aborted, CommitOutcome::RolledBack),
            ("another one's", 100, XidStatus::InProgress, CommitOutcome::RolledBack),
            ("never seen", 100, XidStatus::Future, CommitOutcome::RolledBack),
            ("too old", 9, XidStatus::Forgotten, CommitOutcome::Unknown),
        ] {
            assert_eq!(judge(&number(xid), ALIVE_MS, &answer(NEXT, status), Some(&HORIZON)), expected, "{what}");
        }
    }

    #[test]
    fn an_old_primary_that_took_writes_after_its_last_answer_may_have_given_the_number_to_another() {
        for (last_ms, status, expected) in [
            (Some(ALIVE_MS), XidStatus::Committed, CommitOutcome::Committed),
            (Some(ALIVE_MS + RESTART_MS), XidStatus::Committed, CommitOutcome::Committed),
            (Some(ALIVE_MS + RESTART_MS + 1), XidStatus::Committed, CommitOutcome::Unknown),
            (None, XidStatus::Committed, CommitOutcome::Unknown),
            (Some(ALIVE_MS + RESTART_MS + 1), XidStatus::Aborted, CommitOutcome::RolledBack),
        ] {
            let horizon = PromotionHorizon { numbers: PromotionNumbers { last_ms, ..NUMBERS }, ..HORIZON };
            let verdict = judge(&number(50), ALIVE_MS, &answer(NEXT, status), Some(&horizon));
            assert_eq!(verdict, expected, "{last_ms:?} {status:?}");
        }
    }

    #[test]
    fn answers_over_connections_that_were_open_at_once_are_of_one_life() {
        let life = |from_us, to_us, said_ms| ServerLife { line: LINE, from_us, to_us, said_ms };
        let first = life(100, 300, 5);
        for (what, other, expected) in [
            ("opened before the last answer", life(300, 400, 7), life(100, 400, 7)),
            ("older, and answered before", life(50, 100, 4), life(50, 300, 5)),
            ("opened later", life(301, 400, 7), life(301, 400, 7)),
            ("ended before the other one was opened", life(50, 99, 4), first),
            ("another timeline", ServerLife { line: NEXT, ..life(200, 400, 7) }, ServerLife { line: NEXT, ..life(200, 400, 7) }),
        ] {
            assert_eq!(first.with(other), expected, "{what}");
        }
        let said_ms = number(50).said_ms;
        for (what, life, asked_us, expected) in [
            ("in it", life(100, 300, said_ms + 9), 100, said_ms + 9),
            ("its newest answer", life(100, 300, said_ms), 300, said_ms),
            ("before it", life(100, 300, said_ms + 9), 99, said_ms),
            ("after it", life(100, 300, said_ms + 9), 301, said_ms),
            ("another timeline", ServerLife { line: NEXT, ..life(100, 300, said_ms + 9) }, 200, said_ms),
        ] {
            assert_eq!(life.alive_ms(&number(50), asked_us), expected, "{what}");
        }
    }

    #[test]
    fn a_promotion_that_weir_did_not_see_proves_nothing() {
        let aborted = answer(NEXT, XidStatus::Aborted);
        assert_eq!(judge(&number(50), ALIVE_MS, &aborted, None), CommitOutcome::Untold);
        for (what, horizon) in [
            ("another node's", Some(PromotionHorizon { node: 2, ..HORIZON })),
            (
                "an earlier one",
                Some(PromotionHorizon { before: 2, numbers: PromotionNumbers { timeline: 3, ..NUMBERS }, ..HORIZON }),
            ),
            ("two in a row", Some(PromotionHorizon { before: 2, ..HORIZON })),
            ("another cluster's", Some(PromotionHorizon { system: 8, ..HORIZON })),
        ] {
            assert_eq!(judge(&number(50), ALIVE_MS, &aborted, horizon.as_ref()), CommitOutcome::Unknown, "{what}");
        }
    }

    #[test]
    fn a_horizon_is_that_of_the_promotion_that_made_the_primary() {
        let history = |timeline, switches: &[(u32, u64)]| TimelineHistory {
            system: 7,
            timeline,
            switches: switches.to_vec(),
            ..TimelineHistory::default()
        };
        let facts = |history, started_at| ServerFacts { history, started_at, ..ServerFacts::default() };
        let second = || facts(history(2, &[(1, 100)]), 9);
        let ordered = PromotedStandby::Ordered { node: 1, started_at: 9, reached: 50, last_ms: Some(8) };
        let numbers = PromotionNumbers { timeline: 2, reached: 50, fresh: 51, last_ms: Some(8) };
        let done = ordered.done(1, &second(), 51);
        assert_eq!(done, PromotedStandby::Done { node: 1, numbers, left_at: 100 });
        assert_eq!(ordered.done(1, &ServerFacts { started_at: 8, ..second() }, 51), ordered, "it was made anew since");
        assert_eq!(ordered.done(2, &second(), 51), ordered, "another one");
        assert_eq!((done.numbers(1), done.numbers(2), ordered.numbers(1)), (Some(numbers), None, None));

        let made = Some(PromotionHorizon { node: 1, system: 7, before: 1, numbers });
        assert_eq!(PromotionHorizon::of(Some(done), 1, &second()), made);
        assert_eq!(PromotionHorizon::of(Some(ordered), 1, &second()), None, "it is not seen out of recovery");
        assert_eq!(PromotionHorizon::of(Some(done), 2, &second()), None, "another node was promoted");
        assert_eq!(PromotionHorizon::of(None, 1, &second()), None, "somebody else promoted it");
        let again = facts(history(2, &[(1, 130)]), 9);
        assert_eq!(
            PromotionHorizon::of(Some(done), 1, &again),
            None,
            "that promotion was undone, and another Weir promoted it anew"
        );
        let keeps = |facts| ServerFacts { numbers: Some(numbers), ..facts };
        assert_eq!(PromotionHorizon::of(None, 1, &keeps(second())), made, "another Weir did, and it tells of that");
        assert_eq!(PromotionHorizon::of(None, 1, &keeps(facts(history(2, &[(1, 100)]), 8))), made, "it was started since");
        let third = facts(history(3, &[(1, 100), (2, 200)]), 9);
        assert_eq!(PromotionHorizon::of(Some(done), 1, &keeps(third)), None, "it was promoted once more");
        assert_eq!(
            PromotionHorizon::of(
                Some(PromotedStandby::Done { node: 1, numbers: PromotionNumbers { timeline: 1, ..numbers }, left_at: 100 }),
                1,
                &keeps(second())
            ),
            made
        );
    }
}
