//! One server connection's part of a session: the replies that the server owes, the messages sent, and the state that these may have left there.
//!
//! It is plain data. A session has it as long as it has the connection (`session::Server`). A session that loses the connection drops
//! it, and all that hung on the connection is gone with it. One that was used comes to rest and is used again, so that nothing is allocated.

pub mod left;
pub mod numbered;
pub mod prepared_changes;
pub mod reused;

use crate::fault::ErrorReport;
use crate::loss::{ExpectedTransaction, PossibleCommit, TransactionCommands};
use crate::replies::ReplyQueue;
use crate::statements::Statement;
use crate::table_changes::RaisedSlots;
use crate::upstream::prepared_changes::{AddedMessages, JournalEntry};
use left::{LeftoverState, PendingReset};
use numbered::CommitTracking;
use reused::ReusedParse;
use std::collections::VecDeque;
use std::rc::Rc;
use weir_cache::Slot;

/// Transaction status of a server connection at rest. Source: PostgreSQL manual, `ReadyForQuery`.
pub const IDLE: u8 = b'I';
/// Status inside a failed transaction.
pub const FAILED: u8 = b'E';
/// Status inside a transaction.
pub const WITHIN: u8 = b'T';

/// See the module.
#[derive(Default)]
pub struct UpstreamState {
    /// Replies that the server owes.
    pub(crate) replies: ReplyQueue,
    pub(crate) txn: ServerTxn,
    /// The role of the server when the session took the connection.
    pub(crate) role: TakenFor,
    gate: IntakeState,
    /// Parses and Closes of the client's whose answer is due, in order, to be undone if they do not happen.
    pub(crate) journal: VecDeque<JournalEntry>,
    /// Statements brought along, and questions about them.
    pub(crate) brought: AddedMessages,
    /// Messages behind a Parse that was not sent.
    pub(crate) reused: ReusedParse,
    /// Session state that statements may have left.
    pub(crate) left: LeftoverState,
    /// A SET, RESET or DISCARD under way.
    pub(crate) resetting: PendingReset,
    /// Cache entries that the open transaction makes invalid.
    pub(crate) writes: PendingInvalidations,
    /// FATAL of the server, until its end of file follows.
    pub(crate) final_error: Option<ErrorReport>,
    pub(crate) flushed: FlushOrigin,
    /// CopyData was sent on before the server said that it reads any.
    pub(crate) is_copied_ahead: bool,
    /// A command on the whole session was bound and not executed yet.
    pub(crate) is_command_bound: bool,
}

/// The transaction on a server connection.
#[derive(Debug)]
pub struct ServerTxn {
    /// Status after the last ReadyForQuery.
    pub(crate) status: u8,
    /// The commands under way that begin or end a transaction: if the connection is lost, only the server may know their outcome.
    pub(crate) control: TransactionCommands,
    /// A portal may be left in the transaction that commits it when it is executed.
    pub(crate) portal: PossibleCommit,
    pub(crate) heard: ClientKnowledge,
    /// A deferred BEGIN went in front of the first group of messages; the transaction as it was before.
    pub(crate) began: Option<LazyBegin>,
    pub numbered: CommitTracking,
    /// The server's refusal of the question for the transaction's number, which has ended the transaction: its client hears that at its next statement.
    pub(crate) refused: Option<ErrorReport>,
}

impl Default for ServerTxn {
    fn default() -> ServerTxn {
        ServerTxn {
            status: IDLE,
            control: TransactionCommands::default(),
            portal: PossibleCommit::No,
            heard: ClientKnowledge::Nothing,
            began: None,
            numbered: CommitTracking::default(),
            refused: None,
        }
    }
}

impl ServerTxn {
    /// All that was sent is answered, and this is the status: the commands that begin or end a transaction have happened. A COMMIT that was
    /// bound in a transaction that is still open may be executed yet.
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

/// The client's news over the connection since the session took it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientKnowledge {
    /// All that may have been left there is of statements without an answer.
    #[default]
    Nothing,
    Something,
}

/// The role of a server when a session took the connection to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TakenFor {
    #[default]
    Primary,
    /// The primary, for what the catalog says only reads: it runs again if the connection is lost.
    PrimaryToRead,
    /// Its reads may run again elsewhere.
    Standby,
}

/// A Flush was sent for the replies that are due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlushOrigin {
    #[default]
    No,
    /// Weir waits for them.
    ByUs,
    ByClient,
}

/// Messages of the client are looked at, or wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IntakeState {
    #[default]
    Open,
    /// Too many replies were due, and half of them still are.
    Full,
    /// A command on the whole session is on its way: later messages wait until all is answered.
    Barrier,
}

impl IntakeState {
    /// The gate by the replies that are due now. A barrier falls when nothing is.
    pub fn after(self, replies: &ReplyQueue) -> IntakeState {
        match self {
            IntakeState::Barrier if !replies.is_empty() => IntakeState::Barrier,
            IntakeState::Barrier => IntakeState::Open,
            IntakeState::Open | IntakeState::Full if replies.is_full(self == IntakeState::Full) => IntakeState::Full,
            IntakeState::Open | IntakeState::Full => IntakeState::Open,
        }
    }

    /// True if messages wait. A server that reads a copy's data ends nothing before it has it all: the messages in between must not wait.
    pub fn is_shut(self, replies: &ReplyQueue) -> bool {
        match self {
            IntakeState::Open => false,
            IntakeState::Full => true,
            IntakeState::Barrier => !replies.is_copying_in(),
        }
    }
}

/// Cache entries that a transaction makes invalid: found when its statements are sent, raised before its commit leaves.
#[derive(Default)]
pub struct PendingInvalidations {
    /// Slots of what the open transaction wrote; its commit was not sent yet.
    pub(crate) wrote: Vec<Slot>,
    pub(crate) raised: Option<RaisedSlots>,
    /// An empty list that had slots before: the slots raised next take its room.
    pub(crate) room: Vec<Slot>,
    /// The catalog's number when the first of `wrote` and `raised` was found.
    pub(crate) edition: u64,
    pub(crate) ending: EndingCommand,
    /// Whatever is under way was noted when it was sent. False: it may have been sent before anybody wanted to know.
    pub(crate) is_tracked: bool,
}

impl PendingInvalidations {
    /// Nothing was written, and nothing sent that may end a transaction.
    pub fn is_empty(&self) -> bool {
        self.ending == EndingCommand::No && self.wrote.is_empty() && self.raised.is_none()
    }
}

/// The command under way that ends the transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndingCommand {
    #[default]
    No,
    /// Something that may end it.
    MayEnd,
    /// A plain ROLLBACK.
    RollsBack,
}

impl EndingCommand {
    /// The same behind a statement; `ends`: one that may end the transaction.
    pub fn with(self, ends: bool) -> EndingCommand {
        match self {
            EndingCommand::No if ends => EndingCommand::MayEnd,
            other => other,
        }
    }
}

/// A transaction whose BEGIN was answered by Weir. It is sent in front of the first statement, which says where.
#[derive(Debug, Default)]
pub enum LazyBegin {
    /// There is none.
    #[default]
    No,
    /// No server knows of it.
    Deferred(Rc<Statement>),
    /// The same, and it has read outside of it.
    Reading(Rc<Statement>),
    /// It has failed, and no server knows of it.
    Failed(Rc<Statement>),
    /// It is on its way, and its answer due.
    Sent(Rc<Statement>),
}

impl LazyBegin {
    /// No server knows of it.
    #[inline]
    pub fn is_open(&self) -> bool {
        matches!(self, LazyBegin::Deferred(_) | LazyBegin::Reading(_) | LazyBegin::Failed(_))
    }

    /// The BEGIN of one that no server knows of.
    pub fn statement(&self) -> Option<&Rc<Statement>> {
        match self {
            LazyBegin::Deferred(statement) | LazyBegin::Reading(statement) | LazyBegin::Failed(statement) => Some(statement),
            LazyBegin::No | LazyBegin::Sent(_) => None,
        }
    }

    /// No transaction of this kind goes on.
    pub fn end(&mut self) {
        *self = LazyBegin::No;
    }

    /// A BEGIN waits for the first statement.
    pub fn defer(&mut self, begin: Rc<Statement>) {
        *self = LazyBegin::Deferred(begin);
    }

    /// The BEGIN was sent to a server.
    pub fn note_sent(&mut self, begin: Rc<Statement>) {
        *self = LazyBegin::Sent(begin);
    }

    /// The transaction has failed, and no server knows of it.
    pub fn fail_with(&mut self, begin: Rc<Statement>) {
        *self = LazyBegin::Failed(begin);
    }

    /// All that was done since `before` is to be done again.
    pub fn restore(&mut self, before: LazyBegin) {
        *self = before;
    }

    /// It fails, if no server knows of it; a server knows by itself.
    pub fn fail(&mut self) {
        *self = match std::mem::take(self) {
            LazyBegin::Deferred(statement) | LazyBegin::Reading(statement) => LazyBegin::Failed(statement),
            other @ (LazyBegin::No | LazyBegin::Failed(_) | LazyBegin::Sent(_)) => other,
        };
    }

    /// A statement of it reads outside of it.
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
    /// Makes later messages wait until all that was sent is answered.
    #[inline]
    pub fn raise_barrier(&mut self) {
        self.gate = IntakeState::Barrier;
    }

    #[inline]
    pub fn has_barrier(&self) -> bool {
        self.gate == IntakeState::Barrier
    }

    /// Takes in the replies that are due now. True if a barrier has fallen by that.
    #[inline]
    pub fn lets_barrier_fall(&mut self) -> bool {
        let before = self.gate;
        self.gate = before.after(&self.replies);
        before == IntakeState::Barrier && self.gate == IntakeState::Open
    }

    /// True if the client's messages wait for replies.
    #[inline]
    pub fn holds_messages(&self) -> bool {
        self.gate.is_shut(&self.replies)
    }

    /// True if reads under way may run again elsewhere.
    #[inline]
    pub fn is_on_standby(&self) -> bool {
        self.role == TakenFor::Standby
    }

    /// True if what is under way only reads, and may run again if the connection is lost.
    #[inline]
    pub fn only_reads(&self) -> bool {
        self.role != TakenFor::Primary
    }

    /// The session parts with the connection, which is at rest: nothing is owed, and nothing of the session's is left on it. Another session
    /// may have this next. Fields that are blank at rest by themselves are only checked.
    #[inline]
    pub fn come_to_rest(&mut self) {
        let UpstreamState { replies, txn, role, gate, journal, brought, left, resetting, writes, final_error, .. } = self;
        debug_assert!(replies.is_settled() && journal.is_empty(), "the server owes something");
        debug_assert!(brought.is_answered() && !resetting.is_under_way(), "something of ours is under way");
        debug_assert!(writes.wrote.is_empty() && writes.raised.is_none(), "a write is not settled");
        (txn.status, txn.control, *role, *gate) = (IDLE, TransactionCommands::default(), TakenFor::Primary, IntakeState::Open);
        (txn.portal, txn.heard, txn.numbered) = (PossibleCommit::No, ClientKnowledge::Nothing, CommitTracking::default());
        if txn.began.is_some() {
            txn.began = None;
        }
        writes.ending = EndingCommand::No;
        brought.come_to_rest();
        self.reused.forget();
        left.come_to_rest();
        if resetting.bound.is_some() {
            // It was never executed.
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
    fn a_plain_rollback_stays_one_whatever_follows() {
        assert_eq!(EndingCommand::No.with(true), EndingCommand::MayEnd);
        assert_eq!(EndingCommand::No.with(false), EndingCommand::No);
        assert_eq!(EndingCommand::RollsBack.with(true), EndingCommand::RollsBack);
    }
}
