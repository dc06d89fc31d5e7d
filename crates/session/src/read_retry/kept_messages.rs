//! Messages kept by a session for `read_retry`.

use crate::read_retry::standby_errors::{StandbyErrorMeaning, judge};
use crate::upstream::IDLE;
use std::collections::VecDeque;
use std::num::NonZero;

/// Capacity kept between statements.
const ROOM_BYTES_MAX: usize = 1 << 10;

pub const AGAIN_MAX: u8 = 3;

#[derive(Clone, Copy, Debug, Default)]
pub struct MessageGroup {
    pub(crate) bytes: usize,
    pub(crate) is_whole: bool,
    /// A Flush asks for partial answers.
    pub(crate) is_flushed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RetryState {
    #[default]
    Idle,
    Keeping,
    /// Something under way is too long or of another kind.
    Spoiled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandbyRefusal {
    /// At this moment only.
    Passing,
    /// Always: the text is remembered.
    Always,
    /// Always, since it writes.
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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeptStatements {
    #[default]
    None,
    /// Refused by a read-only server before it runs.
    OneWrite,
    Others,
}

impl KeptStatements {
    pub fn and(self, is_write: bool) -> KeptStatements {
        match self {
            KeptStatements::None if is_write => KeptStatements::OneWrite,
            KeptStatements::None | KeptStatements::OneWrite | KeptStatements::Others => KeptStatements::Others,
        }
    }
}

#[derive(Default)]
pub struct KeptMessages {
    pub(crate) kept: Vec<u8>,
    pub(crate) groups: VecDeque<MessageGroup>,
    pub(crate) state: RetryState,
    pub(crate) is_told: bool,
    pub(crate) again: Option<StandbyRefusal>,
    pub(crate) times: u8,
    /// First loss of a connection under the first group, in microseconds.
    lost_us: Option<NonZero<u64>>,
    /// One more than the bytes given to the socket before the first kept message, if that one may write. While fewer have left, no server
    /// has seen the messages.
    pub(crate) unsent_from: Option<NonZero<u64>>,
    pub(crate) statements: KeptStatements,
    /// View in which the primary refused to write.
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

    /// Notes that a standby refused what Weir sent ahead. True: the statement goes to the primary.
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

    /// True: the statement goes to the primary, as the standby's description differs from the client's. All earlier reads are answered.
    pub fn on_changed(&mut self, is_on_standby: bool, transaction: u8) -> bool {
        if !is_on_standby || transaction != IDLE || self.times >= AGAIN_MAX {
            return false;
        }
        self.times += 1;
        self.again = Some(StandbyRefusal::Passing);
        true
    }

    /// Counts a retry. `lost`: when the lost connection was opened; `None`: a refusal.
    ///
    /// A falling server ends connections one by one: those opened before the first loss count once. A read that crashes servers loses
    /// later ones.
    pub(crate) fn count(&mut self, lost: Option<u64>, now_us: u64) {
        let first_us = self.lost_us.map(NonZero::get);
        if lost.is_some() && first_us.is_none() {
            self.lost_us = NonZero::new(now_us.max(1));
        }
        if lost.zip(first_us).is_none_or(|(opened_us, first_us)| opened_us >= first_us) {
            self.times += 1;
        }
    }

    pub(crate) fn forget_times(&mut self) {
        (self.times, self.lost_us) = (0, None);
    }

    /// True if all under way is kept and its answer unseen.
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
