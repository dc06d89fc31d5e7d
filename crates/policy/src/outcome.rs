//! The outcome of a transaction whose COMMIT was sent and not answered, by its number.
//!
//! In: the number that the transaction had, and the answer of the server that takes writes now. Out: the outcome, as far as it is proved. No IO:
//! `weir::traffic::outcome` asks.
//!
//! Numbers are given out again. A standby that becomes the primary goes on from the numbers that reached it, and so does a server that has
//! crashed: where nothing of a transaction reached the disk, the next one gets its number. So `committed` proves nothing unless the number
//! cannot have been another's. `aborted` is a proof always: a number that was committed is never given out again.

use crate::failover::Facts;
use std::num::NonZeroU64;

/// A server's log: one cluster's, on one timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    pub system: u64,
    pub timeline: u32,
}

/// A transaction's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// All 64 bits of it.
    pub xid: NonZeroU64,
    pub node: u16,
    pub line: Line,
    /// When its server said it, by the server's clock: milliseconds since 1970.
    pub said_ms: u64,
}

impl Number {
    /// The latest time, by the same clock, at which its connection was lost. `after_ms`: so long after the number was asked for.
    pub fn lost_ms(&self, after_ms: u64) -> u64 {
        self.said_ms + 1 + after_ms
    }
}

/// The numbers that a standby gives out, and those that it does not, from when it became the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Horizon {
    pub node: u16,
    /// Those below this one had reached it before: they are not given out again.
    pub reached: u64,
    /// Of those from this one on nothing had ended when it took writes: what ends later is another's.
    pub fresh: u64,
    /// The line that began then.
    pub line: Line,
    /// The timeline before.
    pub before: u32,
    /// See `Promoted`.
    pub last_ms: Option<u64>,
}

/// A standby as it was when Weir promoted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promoted {
    pub node: u16,
    /// The number above all transactions whose end it had heard of before.
    pub reached: u64,
    /// The same when it was out of recovery; `None`: that was not seen.
    pub fresh: Option<u64>,
    /// As in `failover::Facts`.
    pub started_at: u64,
    /// When the last transaction ended of which it had heard, by the clock of the primary of then: since 1970.
    pub last_ms: Option<u64>,
}

impl Horizon {
    /// The numbers that reached the new primary before Weir promoted it, or those of the promotion before, if that made the same primary.
    pub fn of(promoted: Option<Promoted>, known: Option<Horizon>, node: u16, facts: &Facts) -> Option<Horizon> {
        let line = Line { system: facts.history.system, timeline: facts.history.timeline };
        if let Some(known) = known.filter(|known| known.node == node && known.line == line) {
            return Some(known);
        }
        let promoted = promoted.filter(|promoted| promoted.node == node && promoted.started_at == facts.started_at)?;
        let (before, _) = facts.history.switches.last()?;
        let Promoted { reached, fresh, last_ms, .. } = promoted;
        Some(Horizon { node, reached, fresh: fresh.unwrap_or(u64::MAX), line, before: *before, last_ms })
    }
}

/// The fate of a number, in a server's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Committed,
    Aborted,
    InProgress,
    /// It is too old to be known.
    Forgotten,
    /// It was not given out yet.
    Future,
}

/// The answer of the server that takes writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    pub node: u16,
    pub line: Line,
    pub in_recovery: bool,
    pub status: Status,
    /// When the server was started, by its clock.
    pub started_s: u64,
    /// When its last checkpoint began. A server that has crashed makes one before it lets anybody in.
    pub checkpoint_s: u64,
    /// The question came over a connection that was there before the number: it would not have survived a crash.
    pub is_of_old: bool,
}

/// A judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Committed,
    /// Nothing was committed.
    RolledBack,
    Unknown,
    /// The server will know more.
    NotYet,
}

/// Judges an answer. `lost_ms`: see `Number`.
pub fn judge(number: &Number, lost_ms: u64, answer: &Answer, horizon: Option<&Horizon>) -> Verdict {
    if answer.in_recovery {
        // It is not the primary any more, or not yet.
        return Verdict::NotYet;
    }
    if (answer.node, answer.line) == (number.node, number.line) {
        return judge_own(number, answer);
    }
    let horizon = horizon.filter(|horizon| {
        let is_next = horizon.before == number.line.timeline && horizon.line.system == number.line.system;
        is_next && horizon.node == answer.node && horizon.line == answer.line
    });
    match (horizon, answer.status) {
        (None, _) | (Some(_), Status::Forgotten) => Verdict::Unknown,
        (Some(horizon), Status::Committed) if number.xid.get() < horizon.reached => {
            // The old primary may have crashed after the loss, and given the number to another whose commit reached the standby.
            let is_all_before = horizon.last_ms.is_some_and(|last_ms| last_ms <= lost_ms);
            if is_all_before { Verdict::Committed } else { Verdict::Unknown }
        }
        // Somebody else's.
        (Some(horizon), Status::Committed) if number.xid.get() >= horizon.fresh => Verdict::RolledBack,
        (Some(_), Status::Committed) => Verdict::Unknown,
        // Transactions that were open on the old primary are aborted here, so that one in progress is another.
        (Some(_), Status::Aborted | Status::InProgress | Status::Future) => Verdict::RolledBack,
    }
}

/// The same of the server that gave the number out.
fn judge_own(number: &Number, answer: &Answer) -> Verdict {
    let said_s = number.said_ms / 1000;
    let has_run_on = answer.is_of_old || (answer.started_s <= said_s && answer.checkpoint_s < said_s);
    match answer.status {
        Status::Committed if has_run_on => Verdict::Committed,
        Status::Committed | Status::Forgotten => Verdict::Unknown,
        Status::Aborted | Status::Future => Verdict::RolledBack,
        Status::InProgress => Verdict::NotYet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failover::History;

    const LINE: Line = Line { system: 7, timeline: 3 };
    const NEXT: Line = Line { system: 7, timeline: 4 };
    const HORIZON: Horizon = Horizon { node: 1, reached: 100, fresh: 103, line: NEXT, before: 3, last_ms: Some(LOST_MS) };
    const LOST_MS: u64 = 1_001_500;

    fn number(xid: u64) -> Number {
        Number { xid: NonZeroU64::new(xid).unwrap(), node: 1, line: LINE, said_ms: 1_000_999 }
    }

    fn answer(line: Line, status: Status) -> Answer {
        Answer { node: 1, line, in_recovery: false, status, started_s: 1000, checkpoint_s: 999, is_of_old: false }
    }

    #[test]
    fn a_server_that_has_run_on_tells_the_truth() {
        for (status, expected) in [
            (Status::Committed, Verdict::Committed),
            (Status::Aborted, Verdict::RolledBack),
            (Status::InProgress, Verdict::NotYet),
            (Status::Forgotten, Verdict::Unknown),
            (Status::Future, Verdict::RolledBack),
        ] {
            assert_eq!(judge(&number(50), LOST_MS, &answer(LINE, status), None), expected, "{status:?}");
        }
    }

    #[test]
    fn a_server_that_may_have_crashed_may_have_given_the_number_to_another() {
        let committed = answer(LINE, Status::Committed);
        for (what, answer, expected) in [
            ("it was started since", Answer { started_s: 1001, ..committed }, Verdict::Unknown),
            ("it may have made its checkpoint since", Answer { checkpoint_s: 1000, ..committed }, Verdict::Unknown),
            (
                "a connection is older",
                Answer { started_s: 1001, checkpoint_s: 1001, is_of_old: true, ..committed },
                Verdict::Committed,
            ),
            ("it is no primary", Answer { in_recovery: true, ..committed }, Verdict::NotYet),
            ("aborted", Answer { started_s: 1001, status: Status::Aborted, ..committed }, Verdict::RolledBack),
            ("not given out again", Answer { started_s: 1001, status: Status::Future, ..committed }, Verdict::RolledBack),
            ("another node", Answer { node: 2, status: Status::Aborted, ..committed }, Verdict::Unknown),
            ("another cluster", Answer { line: Line { system: 8, timeline: 3 }, ..committed }, Verdict::Unknown),
        ] {
            assert_eq!(judge(&number(50), LOST_MS, &answer, None), expected, "{what}");
        }
    }

    #[test]
    fn a_new_primary_tells_of_numbers_that_reached_it() {
        for (what, xid, status, expected) in [
            ("below", 99, Status::Committed, Verdict::Committed),
            ("replayed last, or given out again", 100, Status::Committed, Verdict::Unknown),
            ("given out again", 103, Status::Committed, Verdict::RolledBack),
            ("aborted below", 99, Status::Aborted, Verdict::RolledBack),
            ("aborted beyond", 100, Status::Aborted, Verdict::RolledBack),
            ("another one's", 100, Status::InProgress, Verdict::RolledBack),
            ("never seen", 100, Status::Future, Verdict::RolledBack),
            ("too old", 9, Status::Forgotten, Verdict::Unknown),
        ] {
            assert_eq!(judge(&number(xid), LOST_MS, &answer(NEXT, status), Some(&HORIZON)), expected, "{what}");
        }
    }

    #[test]
    fn an_old_primary_that_took_writes_after_the_loss_may_have_given_the_number_to_another() {
        assert_eq!(number(50).lost_ms(500), LOST_MS);
        for (last_ms, status, expected) in [
            (Some(LOST_MS), Status::Committed, Verdict::Committed),
            (Some(LOST_MS + 1), Status::Committed, Verdict::Unknown),
            (None, Status::Committed, Verdict::Unknown),
            (Some(LOST_MS + 1), Status::Aborted, Verdict::RolledBack),
        ] {
            let horizon = Horizon { last_ms, ..HORIZON };
            let verdict = judge(&number(50), LOST_MS, &answer(NEXT, status), Some(&horizon));
            assert_eq!(verdict, expected, "{last_ms:?} {status:?}");
        }
    }

    #[test]
    fn a_promotion_that_weir_did_not_see_proves_nothing() {
        let aborted = answer(NEXT, Status::Aborted);
        for (what, horizon) in [
            ("none was seen", None),
            ("another node's", Some(Horizon { node: 2, ..HORIZON })),
            ("an earlier one", Some(Horizon { line: LINE, before: 2, ..HORIZON })),
            ("two in a row", Some(Horizon { before: 2, ..HORIZON })),
            ("another cluster's", Some(Horizon { line: Line { system: 8, timeline: 4 }, ..HORIZON })),
        ] {
            assert_eq!(judge(&number(50), LOST_MS, &aborted, horizon.as_ref()), Verdict::Unknown, "{what}");
        }
    }

    #[test]
    fn a_horizon_is_that_of_the_promotion_that_made_the_primary() {
        let history = |timeline, switches: &[(u32, u64)]| History { system: 7, timeline, switches: switches.to_vec() };
        let facts = |history, started_at| Facts { history, started_at, ..Facts::default() };
        let promoted = Promoted { node: 1, reached: 50, fresh: Some(51), started_at: 9, last_ms: Some(8) };
        let made =
            Horizon { node: 1, reached: 50, fresh: 51, line: Line { system: 7, timeline: 2 }, before: 1, last_ms: Some(8) };
        let second = || facts(history(2, &[(1, 100)]), 9);
        assert_eq!(Horizon::of(Some(promoted), None, 1, &second()), Some(made));
        assert_eq!(Horizon::of(Some(promoted), None, 2, &second()), None, "another node was promoted");
        assert_eq!(Horizon::of(Some(promoted), None, 1, &facts(history(2, &[(1, 100)]), 8)), None, "it was made anew since");
        assert_eq!(Horizon::of(None, None, 1, &second()), None, "somebody else promoted it");
        // The primary takes writes again after a moment, perhaps after a start.
        assert_eq!(Horizon::of(None, Some(made), 1, &facts(history(2, &[(1, 100)]), 8)), Some(made));
        assert_eq!(Horizon::of(None, Some(made), 1, &facts(history(3, &[(1, 100), (2, 200)]), 9)), None);
    }
}
