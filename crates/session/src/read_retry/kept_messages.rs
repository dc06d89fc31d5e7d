//! Messages that a session keeps, so that they may be sent again elsewhere. `crate::read_retry` works with them.

use crate::read_retry::standby_errors::{StandbyErrorMeaning, judge};
use crate::upstream::IDLE;
use std::collections::VecDeque;
use std::num::NonZero;

/// Room that a session keeps between statements.
const ROOM_BYTES_MAX: usize = 1 << 10;

/// Times one group of messages is sent again.
pub const AGAIN_MAX: u8 = 3;

/// Messages up to a Query or Sync.
#[derive(Clone, Copy, Debug, Default)]
pub struct MessageGroup {
    pub(crate) bytes: usize,
    pub(crate) is_whole: bool,
    /// The client wants to see what there is so far: the answer comes in pieces.
    pub(crate) is_flushed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RetryState {
    /// Nothing is under way on a standby.
    #[default]
    Idle,
    /// All that is under way is kept.
    Keeping,
    /// Something is under way that was too long to be kept, or of another kind.
    Spoiled,
}

/// Why a standby refused a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandbyRefusal {
    /// For its moment's sake.
    Passing,
    /// For what it is: its text is remembered.
    Always,
    /// The same: it writes.
    Write,
}

impl StandbyRefusal {
    pub fn of(verdict: StandbyErrorMeaning, sqlstate: &[u8]) -> StandbyRefusal {
        match verdict {
            StandbyErrorMeaning::Remembered if sqlstate == b"25006" => StandbyRefusal::Write,
            StandbyErrorMeaning::Remembered => StandbyRefusal::Always,
            StandbyErrorMeaning::Stands | StandbyErrorMeaning::Passing | StandbyErrorMeaning::Lost => StandbyRefusal::Passing,
        }
    }
}

/// The statements among the kept messages, as far as it matters when the primary refuses to write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeptStatements {
    #[default]
    None,
    /// One that a server refuses before it begins, if it may not write.
    OneWrite,
    Others,
}

impl KeptStatements {
    /// The same with one more.
    pub fn and(self, is_write: bool) -> KeptStatements {
        match self {
            KeptStatements::None if is_write => KeptStatements::OneWrite,
            KeptStatements::None | KeptStatements::OneWrite | KeptStatements::Others => KeptStatements::Others,
        }
    }
}

/// Messages kept, and how far their answers are.
#[derive(Default)]
pub struct KeptMessages {
    pub(crate) kept: Vec<u8>,
    pub(crate) groups: VecDeque<MessageGroup>,
    pub(crate) state: RetryState,
    /// The client has seen something of the first group's answer.
    pub(crate) is_told: bool,
    /// The next statement is one that a standby refused.
    pub(crate) again: Option<StandbyRefusal>,
    /// See [`KeptMessages::count`].
    pub(crate) times: u8,
    /// When a server connection was first lost under the first group, in microseconds.
    lost_us: Option<NonZero<u64>>,
    /// One more than the bytes that had been given to the socket when the first of the kept messages was to follow, if that one may write: as long as
    /// fewer than that left, no server has seen the messages.
    pub(crate) unsent_from: Option<NonZero<u64>>,
    pub(crate) statements: KeptStatements,
    /// The generation of the view under which the primary refused to write: the statement waits for another one.
    pub(crate) refused_under: Option<NonZero<u64>>,
}

impl KeptMessages {
    pub fn clear(&mut self) {
        self.kept.clear();
        if self.kept.capacity() > ROOM_BYTES_MAX {
            self.kept = Vec::new();
        }
        self.groups.clear();
        self.state = RetryState::Idle;
        self.is_told = false;
        self.unsent_from = None;
        self.statements = KeptStatements::None;
    }

    /// A standby refused what was sent ahead of a statement, by itself. True: the statement takes its way again, to the primary.
    pub fn on_refused_ahead(&mut self, is_on_standby: bool, severity: &[u8], sqlstate: &[u8]) -> bool {
        let verdict = judge(severity, sqlstate);
        let may_again = is_on_standby && self.times < AGAIN_MAX;
        if !may_again || matches!(verdict, StandbyErrorMeaning::Stands | StandbyErrorMeaning::Lost) {
            return false;
        }
        self.times += 1;
        self.again = Some(StandbyRefusal::of(verdict, sqlstate));
        true
    }

    /// The standby's server connection shows the next statement something else than its client was told of. True: the statement goes to the primary, and
    /// the client has heard all that was read before it.
    pub fn on_changed(&mut self, is_on_standby: bool, transaction: u8) -> bool {
        if !is_on_standby || transaction != IDLE || self.times >= AGAIN_MAX {
            return false;
        }
        self.times += 1;
        self.again = Some(StandbyRefusal::Passing);
        true
    }

    /// Counts a time that the kept messages are sent again. `lost`: when the server connection that is lost was opened; `None`: a server refused them.
    ///
    /// Server connections of a server that falls end one after the other. Of those that were open at the first loss there are only so many, so that
    /// their losses count once. A read that brings its server down loses those that are opened later.
    pub(crate) fn count(&mut self, lost: Option<u64>, now_us: u64) {
        let first_us = self.lost_us.map(NonZero::get);
        if lost.is_some() && first_us.is_none() {
            self.lost_us = NonZero::new(now_us.max(1));
        }
        if lost.zip(first_us).is_none_or(|(opened_us, first_us)| opened_us >= first_us) {
            self.times += 1;
        }
    }

    /// The first group is done.
    pub(crate) fn forget_times(&mut self) {
        (self.times, self.lost_us) = (0, None);
    }

    /// All that is under way is kept, and the client has seen nothing of the answer.
    #[inline]
    pub fn is_unseen(&self) -> bool {
        self.state == RetryState::Keeping && !self.is_told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_before_the_first_loss_count_once() {
        let times = |losses: &[(Option<u64>, u64)]| {
            let mut net = KeptMessages::default();
            losses.iter().for_each(|(opened_us, now_us)| net.count(*opened_us, *now_us));
            net.times
        };
        assert_eq!(times(&[(Some(5), 10)]), 1);
        assert_eq!(times(&[(Some(5), 10), (Some(6), 11), (Some(7), 12), (Some(9), 13), (Some(9), 14)]), 1);
        assert_eq!(times(&[(Some(5), 10), (Some(11), 12), (Some(13), 14)]), 3, "opened after it");
        assert_eq!(times(&[(Some(5), 10), (Some(6), 11), (None, 12)]), 2, "refused");
    }

    #[test]
    fn a_refusal_ahead_of_a_statement_sends_it_elsewhere_a_few_times() {
        let mut net = KeptMessages::default();
        assert!(!net.on_refused_ahead(false, b"ERROR", b"25006"), "the primary has the last word");
        for _ in 0..AGAIN_MAX {
            assert!(net.on_refused_ahead(true, b"ERROR", b"25006"));
        }
        assert!(!net.on_refused_ahead(true, b"ERROR", b"25006"));
        assert!(!KeptMessages::default().on_refused_ahead(true, b"ERROR", b"22012"), "an error that stands anywhere");
    }
}
