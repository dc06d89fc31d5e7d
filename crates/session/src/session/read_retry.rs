//! Messages that a session keeps, so that they may be sent again elsewhere. `crate::read_retry` works with them.

use crate::session::IDLE;
use std::collections::VecDeque;
use weir_policy::read_retry::{Verdict, judge};

/// Room that a session keeps between statements.
const ROOM_BYTES_MAX: usize = 1 << 10;

/// Times one group of messages is sent again.
pub const AGAIN_MAX: u8 = 3;

/// Messages up to a Query or Sync.
#[derive(Clone, Copy, Debug, Default)]
pub struct Group {
    pub(crate) bytes: usize,
    pub(crate) is_whole: bool,
    /// The client wants to see what there is so far: the answer comes in pieces.
    pub(crate) is_flushed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
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
pub enum Refused {
    /// For its moment's sake.
    Passing,
    /// For what it is: its text is remembered.
    Always,
    /// The same: it writes.
    Write,
}

impl Refused {
    pub fn of(verdict: Verdict, sqlstate: &[u8]) -> Refused {
        match verdict {
            Verdict::Remembered if sqlstate == b"25006" => Refused::Write,
            Verdict::Remembered => Refused::Always,
            Verdict::Stands | Verdict::Passing | Verdict::Lost => Refused::Passing,
        }
    }
}

/// The statements among the kept messages, as far as it matters when the primary refuses to write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Statements {
    #[default]
    None,
    /// One that a server refuses before it begins, if it may not write.
    OneWrite,
    Others,
}

impl Statements {
    /// The same with one more.
    pub fn and(self, is_write: bool) -> Statements {
        match self {
            Statements::None if is_write => Statements::OneWrite,
            Statements::None | Statements::OneWrite | Statements::Others => Statements::Others,
        }
    }
}

/// Messages kept, and how far their answers are.
#[derive(Default)]
pub struct Net {
    pub(crate) kept: Vec<u8>,
    pub(crate) groups: VecDeque<Group>,
    pub(crate) state: State,
    /// The client has seen something of the first group's answer.
    pub(crate) is_told: bool,
    /// The next statement is one that a standby refused.
    pub(crate) again: Option<Refused>,
    pub(crate) times: u8,
    /// Bytes that had been given to the socket when the first of the kept messages was to follow, if that one may write: as long as no more of
    /// them left, no server has seen the messages.
    pub(crate) unsent_from: Option<u64>,
    pub(crate) statements: Statements,
    /// The generation of the view under which the primary refused to write: the statement waits for another one.
    pub(crate) refused_under: Option<u64>,
}

impl Net {
    pub fn clear(&mut self) {
        self.kept.clear();
        if self.kept.capacity() > ROOM_BYTES_MAX {
            self.kept = Vec::new();
        }
        self.groups.clear();
        self.state = State::Idle;
        self.is_told = false;
        self.unsent_from = None;
        self.statements = Statements::None;
    }

    /// A standby refused what was sent ahead of a statement, by itself. True: the statement takes its way again, to the primary.
    pub fn on_refused_ahead(&mut self, is_on_standby: bool, severity: &[u8], sqlstate: &[u8]) -> bool {
        let verdict = judge(severity, sqlstate);
        let may_again = is_on_standby && self.times < AGAIN_MAX;
        if !may_again || matches!(verdict, Verdict::Stands | Verdict::Lost) {
            return false;
        }
        self.times += 1;
        self.again = Some(Refused::of(verdict, sqlstate));
        true
    }

    /// The standby's server connection shows the next statement something else than its client was told of. True: the statement goes to the primary, and
    /// the client has heard all that was read before it.
    pub fn on_changed(&mut self, is_on_standby: bool, transaction: u8) -> bool {
        if !is_on_standby || transaction != IDLE || self.times >= AGAIN_MAX {
            return false;
        }
        self.times += 1;
        self.again = Some(Refused::Passing);
        true
    }

    /// All that is under way is kept, and the client has seen nothing of the answer.
    #[inline]
    pub fn is_unseen(&self) -> bool {
        self.state == State::Keeping && !self.is_told
    }
}
