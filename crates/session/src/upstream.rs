//! A server connection's part of a session: replies due, messages sent, state they may have left.
//!
//! Dropped when the session loses the connection; otherwise reset and reused, so that nothing is allocated.

pub mod left;
pub mod numbered;
pub mod prepared_changes;
pub mod reused;

use crate::fault::ErrorReport;
use crate::loss::{ExpectedTransaction, PossibleCommit, TransactionCommands};
use crate::replies::ReplyQueue;
use crate::statement_statistics::answer_tally::AnswerTally;
use crate::statements::Statement;
use crate::table_changes::RaisedSlots;
use crate::upstream::prepared_changes::{AddedMessages, JournalEntry};
use left::{LeftoverState, PendingReset};
use numbered::CommitTracking;
use reused::ReusedParse;
use std::collections::VecDeque;
use std::rc::Rc;
use weir_cache::Slot;

pub const IDLE: u8 = b'I';
pub const FAILED: u8 = b'E';
pub const WITHIN: u8 = b'T';

#[derive(Default)]
pub struct UpstreamState {
    pub(crate) replies: ReplyQueue,
    pub(crate) tally: AnswerTally,
    pub(crate) txn: ServerTxn,
    pub(crate) role: TakenFor,
    gate: IntakeState,
    pub(crate) journal: VecDeque<JournalEntry>,
    pub(crate) brought: AddedMessages,
    pub(crate) reused: ReusedParse,
    pub(crate) left: LeftoverState,
    pub(crate) resetting: PendingReset,
    pub(crate) writes: PendingInvalidations,
    /// The server's FATAL, until its end of file.
    pub(crate) final_error: Option<ErrorReport>,
    pub(crate) flushed: FlushOrigin,
    /// True if CopyData was sent on before the server asked for any.
    pub(crate) is_copied_ahead: bool,
    /// True if a command on the whole session is bound, not executed.
    pub(crate) is_command_bound: bool,
}

#[derive(Debug)]
pub struct ServerTxn {
    pub(crate) status: u8,
    /// Unanswered commands that begin or end a transaction; after a loss only the server may know their outcome.
    pub(crate) control: TransactionCommands,
    /// A portal left in the transaction that may commit it when executed.
    pub(crate) portal: PossibleCommit,
    pub(crate) heard: ClientKnowledge,
    /// The BEGIN, if it was deferred and tables may lie on several servers.
    pub(crate) begin: Option<Rc<Statement>>,
    /// The state before a deferred BEGIN was sent.
    pub(crate) began: Option<LazyBegin>,
    pub numbered: CommitTracking,
    /// The refused question for the transaction's number, which ended the transaction; reported at the client's next statement.
    pub(crate) refused: Option<ErrorReport>,
}

impl Default for ServerTxn {
    fn default() -> ServerTxn {
        ServerTxn {
            status: IDLE,
            control: TransactionCommands::default(),
            portal: PossibleCommit::No,
            heard: ClientKnowledge::Nothing,
            begin: None,
            began: None,
            numbered: CommitTracking::default(),
            refused: None,
        }
    }
}

impl ServerTxn {
    /// Notes that all commands are answered. A COMMIT bound in a still open transaction may yet be executed.
    #[cold]
    pub fn all_answered(&mut self) {
        if self.status != WITHIN {
            self.portal = PossibleCommit::No;
        }
        self.control = TransactionCommands { commits: self.portal, behind: ExpectedTransaction::AsBefore };
        self.numbered.answered(self.status);
        if self.status == IDLE {
            self.refused = None;
        }
    }
}

/// The knowledge that the client has of the connection, by its answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientKnowledge {
    /// All state that may be left is of unanswered statements.
    #[default]
    Nothing,
    Something,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TakenFor {
    #[default]
    Primary,
    /// For statements that only read by the catalog, which run again if the connection is lost.
    PrimaryToRead,
    /// Reads may run again elsewhere.
    Standby,
}

/// The origin of a Flush for the replies due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlushOrigin {
    #[default]
    No,
    ByUs,
    ByClient,
}

/// The state of the client's messages: they are looked at, or wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IntakeState {
    #[default]
    Open,
    /// Too many replies were due; at least half of the limit still are.
    Full,
    /// A command on the whole session is under way: later messages wait for all replies.
    Barrier,
}

impl IntakeState {
    /// A barrier ends when no reply is due.
    pub fn after(self, replies: &ReplyQueue) -> IntakeState {
        match self {
            IntakeState::Barrier if !replies.is_empty() => IntakeState::Barrier,
            IntakeState::Barrier => IntakeState::Open,
            IntakeState::Open | IntakeState::Full if replies.is_full(self == IntakeState::Full) => IntakeState::Full,
            IntakeState::Open | IntakeState::Full => IntakeState::Open,
        }
    }

    /// True if messages wait. COPY data must not: the server replies only after all of it.
    pub fn is_shut(self, replies: &ReplyQueue) -> bool {
        match self {
            IntakeState::Open => false,
            IntakeState::Full => true,
            IntakeState::Barrier => !replies.is_copying_in(),
        }
    }
}

/// Cache entries that a transaction invalidates: found at its statements, raised before its commit.
#[derive(Default)]
pub struct PendingInvalidations {
    /// Slots written by the open transaction, before its commit is sent.
    pub(crate) wrote: Vec<Slot>,
    pub(crate) raised: Option<RaisedSlots>,
    /// An emptied list of slots, kept for its memory.
    pub(crate) room: Vec<Slot>,
    /// The catalog's number at the first of `wrote` and `raised`.
    pub(crate) edition: u64,
    pub(crate) ending: EndingCommand,
    /// False: statements may have been sent before the tracking began.
    pub(crate) is_tracked: bool,
    /// Round of the last acknowledgement of all of `wrote`; 0: none.
    pub(crate) told: u64,
}

impl PendingInvalidations {
    /// True without writes or commands that may end a transaction.
    pub fn is_empty(&self) -> bool {
        self.ending == EndingCommand::No && self.is_unnoted()
    }

    /// True without writes.
    #[inline]
    pub fn is_unnoted(&self) -> bool {
        self.wrote.is_empty() && self.raised.is_none()
    }

    /// Notes the slots of the next statement. `ends`: it may end the transaction.
    pub fn note(&mut self, slots: &[Slot], ends: bool) {
        if ends {
            self.ending = EndingCommand::MayEnd;
        }
        self.note_more(slots);
    }

    /// As `note`, for one slot of a statement that ends nothing.
    #[inline]
    pub fn note_one(&mut self, slot: Slot) {
        if self.wrote.is_empty() && self.ending == EndingCommand::No {
            self.told = 0;
            self.wrote.push(slot);
        } else {
            self.note_more(&[slot]);
        }
    }

    #[inline(never)]
    fn note_more(&mut self, slots: &[Slot]) {
        // A sent rollback ends a transaction before this statement.
        if self.ending != EndingCommand::No {
            self.ending = EndingCommand::MayEnd;
        }
        self.told = 0;
        for slot in slots {
            if !self.wrote.contains(slot) {
                self.wrote.push(*slot);
            }
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndingCommand {
    #[default]
    No,
    MayEnd,
    /// A plain ROLLBACK.
    RollsBack,
}

impl EndingCommand {
    /// `ends`: the next statement may end the transaction.
    pub fn with(self, ends: bool) -> EndingCommand {
        match self {
            EndingCommand::No if ends => EndingCommand::MayEnd,
            other => other,
        }
    }
}

/// A transaction whose BEGIN Weir answered; the first statement decides on the server.
#[derive(Debug, Default)]
pub enum LazyBegin {
    #[default]
    No,
    Deferred(Rc<Statement>),
    /// Like `Deferred`, after reads outside of the transaction.
    Reading(Rc<Statement>),
    /// No server knows of the failed transaction.
    Failed(Rc<Statement>),
    /// The answer to the BEGIN is due.
    Sent(Rc<Statement>),
}

impl LazyBegin {
    #[inline]
    pub fn is_open(&self) -> bool {
        matches!(self, LazyBegin::Deferred(_) | LazyBegin::Reading(_) | LazyBegin::Failed(_))
    }

    pub fn statement(&self) -> Option<&Rc<Statement>> {
        match self {
            LazyBegin::Deferred(statement) | LazyBegin::Reading(statement) | LazyBegin::Failed(statement) => Some(statement),
            LazyBegin::No | LazyBegin::Sent(_) => None,
        }
    }

    pub fn end(&mut self) {
        *self = LazyBegin::No;
    }

    pub fn defer(&mut self, begin: Rc<Statement>) {
        *self = LazyBegin::Deferred(begin);
    }

    pub fn note_sent(&mut self, begin: Rc<Statement>) {
        *self = LazyBegin::Sent(begin);
    }

    pub fn fail_with(&mut self, begin: Rc<Statement>) {
        *self = LazyBegin::Failed(begin);
    }

    pub fn restore(&mut self, before: LazyBegin) {
        *self = before;
    }

    /// Fails a transaction that no server knows of; else the server tracks it.
    pub fn fail(&mut self) {
        *self = match std::mem::take(self) {
            LazyBegin::Deferred(statement) | LazyBegin::Reading(statement) => LazyBegin::Failed(statement),
            other @ (LazyBegin::No | LazyBegin::Failed(_) | LazyBegin::Sent(_)) => other,
        };
    }

    /// Undoes a failure that no server knows of.
    pub fn go_on(&mut self) {
        *self = match std::mem::take(self) {
            LazyBegin::Failed(statement) => LazyBegin::Reading(statement),
            other => other,
        };
    }

    #[inline]
    pub fn read(&mut self) {
        if matches!(self, LazyBegin::Deferred(_)) {
            *self = match std::mem::take(self) {
                LazyBegin::Deferred(statement) => LazyBegin::Reading(statement),
                other => other,
            };
        }
    }
}

impl UpstreamState {
    #[inline]
    pub fn raise_barrier(&mut self) {
        self.gate = IntakeState::Barrier;
    }

    #[inline]
    pub fn has_barrier(&self) -> bool {
        self.gate == IntakeState::Barrier
    }

    /// Updates the gate. True if a barrier has ended.
    #[inline]
    pub fn lets_barrier_fall(&mut self) -> bool {
        let before = self.gate;
        self.gate = before.after(&self.replies);
        before == IntakeState::Barrier && self.gate == IntakeState::Open
    }

    #[inline]
    pub fn holds_messages(&self) -> bool {
        self.gate.is_shut(&self.replies)
    }

    #[inline]
    pub fn is_on_standby(&self) -> bool {
        self.role == TakenFor::Standby
    }

    /// True if statements under way only read and may run again.
    #[inline]
    pub fn only_reads(&self) -> bool {
        self.role != TakenFor::Primary
    }

    /// Resets the state of a connection without replies due or session state. Fields that are blank at rest are only checked.
    #[inline]
    pub fn come_to_rest(&mut self) {
        let UpstreamState { replies, txn, role, gate, journal, brought, left, resetting, writes, final_error, .. } = self;
        debug_assert!(replies.is_settled() && journal.is_empty(), "the server owes something");
        debug_assert!(self.tally.is_idle() && !self.tally.is_queue(), "a statement is under way");
        debug_assert!(brought.is_answered() && !resetting.is_under_way(), "something of ours is under way");
        debug_assert!(writes.wrote.is_empty() && writes.raised.is_none(), "a write is not settled");
        (txn.status, txn.control, *role, *gate) = (IDLE, TransactionCommands::default(), TakenFor::Primary, IntakeState::Open);
        (txn.portal, txn.heard, txn.numbered) = (PossibleCommit::No, ClientKnowledge::Nothing, CommitTracking::default());
        if txn.began.is_some() {
            txn.began = None;
        }
        if txn.begin.is_some() {
            txn.begin = None;
        }
        writes.ending = EndingCommand::No;
        brought.come_to_rest();
        self.reused.forget();
        left.come_to_rest();
        if resetting.bound.is_some() {
            resetting.bound = None;
        }
        if final_error.is_some() {
            *final_error = None;
        }
        self.flushed = FlushOrigin::No;
        (self.is_copied_ahead, self.is_command_bound) = (false, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replies::{ExpectedReply, REPLIES_MAX};

    fn replies(count: usize) -> ReplyQueue {
        let mut replies = ReplyQueue::default();
        (0..count).for_each(|_| replies.push(ExpectedReply::Query));
        replies
    }

    #[test]
    fn the_gate_follows_the_replies() {
        let rows = [
            (IntakeState::Open, 0, IntakeState::Open),
            (IntakeState::Open, REPLIES_MAX - 1, IntakeState::Open),
            (IntakeState::Open, REPLIES_MAX, IntakeState::Full),
            (IntakeState::Full, REPLIES_MAX / 2, IntakeState::Full),
            (IntakeState::Full, REPLIES_MAX / 2 - 1, IntakeState::Open),
            (IntakeState::Barrier, 1, IntakeState::Barrier),
            (IntakeState::Barrier, 0, IntakeState::Open),
        ];
        for (before, count, after) in rows {
            assert_eq!(before.after(&replies(count)), after, "{before:?} with {count}");
        }
    }

    #[test]
    fn a_barrier_does_not_hold_what_a_copy_consists_of() {
        let mut replies = replies(1);
        assert!(
            IntakeState::Barrier.is_shut(&replies) && IntakeState::Full.is_shut(&replies) && !IntakeState::Open.is_shut(&replies)
        );
        replies.on_server(weir_wire::frame::back::COPY_IN, 0);
        assert!(!IntakeState::Barrier.is_shut(&replies) && IntakeState::Full.is_shut(&replies));
    }

    #[test]
    fn a_write_behind_an_acknowledgement_is_one_to_tell_of() {
        let mut writes = PendingInvalidations::default();
        writes.note_one(5);
        for more in [&[5][..], &[6, 7], &[]] {
            writes.told = 3;
            writes.note(more, false);
            assert_eq!((writes.told, writes.ending), (0, EndingCommand::No), "{more:?}");
        }
        writes.told = 3;
        writes.note_one(7);
        assert_eq!((writes.told, &writes.wrote[..]), (0, &[5, 6, 7][..]));
        writes.ending = EndingCommand::RollsBack;
        writes.note_one(8);
        assert_eq!(writes.ending, EndingCommand::MayEnd, "the rollback ends another transaction");
        let mut writes = PendingInvalidations { ending: EndingCommand::RollsBack, ..PendingInvalidations::default() };
        writes.note_one(8);
        assert_eq!((writes.ending, &writes.wrote[..]), (EndingCommand::MayEnd, &[8][..]));
    }

    #[test]
    fn a_plain_rollback_stays_one_whatever_follows() {
        assert_eq!(EndingCommand::No.with(true), EndingCommand::MayEnd);
        assert_eq!(EndingCommand::No.with(false), EndingCommand::No);
        assert_eq!(EndingCommand::RollsBack.with(true), EndingCommand::RollsBack);
    }
}
