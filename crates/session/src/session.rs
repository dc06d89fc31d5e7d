//! One client's session: its socket, its two lanes, its server connection while it has one, and its prepared statements.

use crate::account::Account;
use crate::catalogs::DatabaseSessionGuard;
use crate::causal::seen_positions::CausalReadState;
use crate::conn::{Conn, ServerLine};
use crate::context::Context;
use crate::doubt::commit_in_doubt::CommitInDoubt;
use crate::fault::ErrorReport;
use crate::flow::HoldReason;
use crate::handle::SessionHandle;
use crate::host::WorkerServices;
use crate::lazy_begin::transaction_place::SessionWrites;
use crate::prepared::StatementId;
use crate::query_cache::cache_side::SessionCacheState;
use crate::read_retry::kept_messages::KeptMessages;
use crate::replies::{DroppedReplies, ExpectedReply, FailedMessage, OwedReplies, ReplyQueue};
use crate::rerun::kept_transaction::KeptTransaction;
use crate::routing::own_parameters::ReadPreferences;
use crate::session_state::client_settings::EncodingEffect;
use crate::session_state::held_state::HeldState;
use crate::session_state::name_scopes::NameScope;
use crate::statements::{Statement, StatementTrait};
use crate::status::SessionActivity;
use crate::task::Waiter;
use crate::time_limits::UnfinishedInput;
pub use crate::upstream::prepared_changes::{
    ClientStatement, JournalEntry, LocalPortal, PendingDescription, PreparedChange, SubstituteFault,
};
use crate::upstream::prepared_changes::{OwnStatements, last_of};
pub use crate::upstream::{FAILED, IDLE, LazyBegin, WITHIN};
use crate::upstream::{FlushOrigin, TakenFor, UpstreamState};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use weir_cache::WriterOutcome;
use weir_failover::cluster::NodeIndex;
use weir_io::lane::RelayBuffer;
use weir_sql::facts::{StateKind, StateKinds};
use weir_wire::write;

/// One client's session, owned by its task.
pub struct Session {
    /// Its task, and its way to server connections.
    pub(crate) host: Rc<dyn WorkerServices>,
    /// From the client to the server.
    pub up: RelayBuffer,
    /// From the server to the client.
    pub down: RelayBuffer,
    pub(crate) server: Option<SessionServer>,
    /// A transaction that no server knows of yet.
    pub lazy_begin: LazyBegin,
    pub(crate) wrote: PrimaryReasons,
    pub account: Rc<Account>,
    /// Its settings, and its statements prepared by SQL.
    pub state: HeldState,
    pub handle: Rc<SessionHandle>,
    pub(crate) statements: OwnStatements,
    pub reads: ReadRouting,
    /// Messages under way on a standby, to be sent again should it refuse.
    pub(crate) retry: KeptMessages,
    /// Its answers from memory, and the answers that its writes make untrue.
    pub(crate) cache: SessionCacheState,
    pub intake: ClientIntake,
    /// Counts it among the sessions of its database.
    _visit: DatabaseSessionGuard,
}

/// A server connection in use, and its part of the session.
pub struct SessionServer {
    pub(crate) conn: Box<Conn>,
    pub(crate) upstream: Box<UpstreamState>,
}

/// The reasons that keep a session's statements on the primary.
#[derive(Default)]
pub struct PrimaryReasons {
    /// Its writes so far, if these keep its reads on the primary.
    pub(crate) written: SessionWrites,
    /// A transaction of its wanted on a standby what only the primary does: those of one snapshot begin on the primary.
    pub(crate) shuns_standbys: bool,
}

/// Where a session's reads go.
pub struct ReadRouting {
    /// The node its reads go to.
    pub(crate) favourite: Option<NodeIndex>,
    /// The targets of its reads, and the parameters that it has set for itself.
    pub(crate) preferences: ReadPreferences,
    /// The state it has seen, which it must go on seeing.
    pub causal: CausalReadState,
    /// Where its names are looked up.
    pub(crate) place: NameScope,
    /// All that comes up to the next Sync was seen, and only reads.
    only_reads: bool,
    /// The statement that comes next is all up to the next Sync.
    pub(crate) is_alone: bool,
}

impl ReadRouting {
    /// True if all that comes up to the next Sync was seen, and only reads.
    #[inline]
    pub fn is_series_of_reads(&self) -> bool {
        self.only_reads
    }

    /// All up to the next Sync was looked at: `only_reads` tells what it does.
    pub fn note_series(&mut self, only_reads: bool) {
        self.only_reads = only_reads;
    }

    /// The statements up to the next Sync are to be looked at.
    pub fn forget_series(&mut self) {
        self.only_reads = false;
    }
}

/// The next bytes to take from the client, and the way to treat them.
#[derive(Default)]
pub struct ClientIntake {
    skip: MessageSkip,
    presence: ClientPresence,
    /// The message that is next has been logged.
    pub(crate) is_message_logged: bool,
    /// CopyData messages of the copy that goes on, as far as messages are logged.
    pub(crate) copied: std::cell::Cell<u32>,
    /// The last message is one of a copy, for which no reply is counted.
    pub in_copy_message: bool,
    /// The fault that its client has yet to hear, if `skip` says so.
    pub(crate) owed: Option<Box<ErrorReport>>,
    /// A COMMIT whose answer was lost: nothing more is looked at before its outcome is known, or cannot be.
    pub doubt: Option<Box<CommitInDoubt>>,
    /// Its transaction, in case that must run again.
    pub replay: Option<Box<KeptTransaction>>,
    /// Its last server connection ended at the question for the server's line: the next one is not asked. A server that ends its connections at
    /// this question would have the session try one after the other.
    pub(crate) lost_at_line: bool,
}

/// Messages that are thrown away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MessageSkip {
    #[default]
    No,
    /// An error was told that the server does not know of: all is dropped until the client's Sync.
    ToSync,
    /// An error is owed to the client, which its next statement gets (`ClientIntake::owed`).
    Owes,
}

impl ClientIntake {
    /// The client's next statement fails with this.
    pub fn owe(&mut self, fault: ErrorReport) {
        self.skip = MessageSkip::Owes;
        self.owed = Some(Box::new(fault));
    }

    /// The client's messages that are thrown away.
    #[inline]
    pub fn skip(&self) -> MessageSkip {
        self.skip
    }

    /// All up to the client's Sync is thrown away.
    pub fn skip_to_sync(&mut self) {
        self.skip = MessageSkip::ToSync;
    }

    /// All up to the client's Sync is thrown away if `skips`; else what was thrown away before still is.
    pub fn skip_to_sync_if(&mut self, skips: bool) {
        if skips {
            self.skip = MessageSkip::ToSync;
        }
    }

    /// Nothing is thrown away from here on.
    pub fn stop_skipping(&mut self) {
        self.skip = MessageSkip::No;
    }

    /// Throws away what was thrown away `before`.
    pub fn restore_skip(&mut self, before: MessageSkip) {
        self.skip = before;
    }

    /// The client's presence at its side of the connection.
    #[inline]
    pub fn presence(&self) -> ClientPresence {
        self.presence
    }

    /// The client said goodbye or closed its side.
    pub fn leave(&mut self) {
        self.presence = ClientPresence::Left;
    }

    /// The session of a client that has left ends by `deadline`, unless its server says something.
    pub fn leave_until(&mut self, deadline: Instant) {
        self.presence = ClientPresence::LeftUntil(deadline);
    }
}

/// How far a server may read another statement than Weir's parser does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MisreadExtent {
    No,
    /// Its names, or a value that it sets, may be others.
    Names,
    /// It may be any statement.
    Whole,
}

/// A client at its side of the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientPresence {
    #[default]
    Here,
    /// It said goodbye or closed its side: its earlier messages are still carried out.
    Left,
    /// The same; the session ends by then, unless the server says something.
    LeftUntil(Instant),
}

impl ClientPresence {
    #[inline]
    pub fn has_left(self) -> bool {
        self != ClientPresence::Here
    }
}

/// The fate of messages whose answers nobody will look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageFate {
    /// They have changed nothing, and are sent again.
    Undone,
    /// They may still be carried out.
    Unknown,
}

/// No connection, nothing owed.
static NOTHING_OWED: ReplyQueue = ReplyQueue::new();

impl Session {
    pub fn new(host: Rc<dyn WorkerServices>, account: Rc<Account>, state: HeldState, handle: Rc<SessionHandle>) -> Session {
        let place = NameScope::none(state.settings.clone());
        let visit = DatabaseSessionGuard::begin(&account.known, &account.user);
        let (preferences, causal) = (ReadPreferences::default(), CausalReadState::default());
        Session {
            host,
            up: RelayBuffer::default(),
            down: RelayBuffer::default(),
            server: None,
            lazy_begin: LazyBegin::No,
            wrote: PrimaryReasons::default(),
            account,
            state,
            handle,
            statements: OwnStatements::default(),
            reads: ReadRouting { favourite: None, preferences, causal, place, only_reads: false, is_alone: false },
            retry: KeptMessages::default(),
            cache: SessionCacheState::default(),
            intake: ClientIntake::default(),
            _visit: visit,
        }
    }

    /// The session's task runs once more before it waits.
    pub fn wake(&self) {
        self.host.run_again();
    }

    /// The session's task, to be woken.
    #[inline]
    pub fn waiter(&self, w: &Context) -> Waiter {
        (w.id, self.handle.task.get())
    }

    #[inline]
    pub fn has_server(&self) -> bool {
        self.server.is_some()
    }

    #[inline]
    pub fn conn(&self) -> Option<&Conn> {
        self.server.as_ref().map(|server| &*server.conn)
    }

    #[inline]
    pub fn conn_mut(&mut self) -> Option<&mut Conn> {
        self.server.as_mut().map(|server| &mut *server.conn)
    }

    #[inline]
    pub fn upstream(&self) -> Option<&UpstreamState> {
        self.server.as_ref().map(|server| &*server.upstream)
    }

    #[inline]
    pub fn upstream_mut(&mut self) -> Option<&mut UpstreamState> {
        self.server.as_mut().map(|server| &mut *server.upstream)
    }

    /// Replies that the server owes.
    #[inline]
    pub fn replies(&self) -> &ReplyQueue {
        self.upstream().map_or(&NOTHING_OWED, |upstream| &upstream.replies)
    }

    /// A message is sent that is answered.
    #[inline]
    pub fn expect(&mut self, expect: ExpectedReply) {
        if let Some(upstream) = self.upstream_mut() {
            upstream.replies.push(expect);
        }
    }

    /// The same, of the client's: the replies that a Flush before it brought in are not all any more.
    #[inline]
    pub fn expect_more(&mut self, expect: ExpectedReply) {
        if let Some(upstream) = self.upstream_mut() {
            upstream.replies.push(expect);
            upstream.flushed = FlushOrigin::No;
        }
    }

    /// Makes later messages wait until all that was sent is answered.
    #[inline]
    pub fn raise_barrier(&mut self) {
        if let Some(upstream) = self.upstream_mut() {
            upstream.raise_barrier();
        }
    }

    #[inline]
    pub fn has_barrier(&self) -> bool {
        self.upstream().is_some_and(|upstream| upstream.has_barrier())
    }

    /// Transaction status of the server connection.
    #[inline]
    pub fn transaction(&self) -> u8 {
        self.upstream().map_or(IDLE, |upstream| upstream.txn.status)
    }

    /// True if the connection is a standby's, so that reads under way may run again elsewhere.
    #[inline]
    pub fn is_on_standby(&self) -> bool {
        self.upstream().is_some_and(UpstreamState::is_on_standby)
    }

    /// True if what is under way only reads, and may run again if the connection is lost.
    #[inline]
    pub fn only_reads(&self) -> bool {
        self.upstream().is_some_and(UpstreamState::only_reads)
    }

    /// A deferred BEGIN went in front of what is under way.
    #[inline]
    pub fn has_begun_ahead(&self) -> bool {
        self.upstream().is_some_and(|upstream| upstream.txn.began.is_some())
    }

    /// Why the session is pinned to its server connection, as far as is known.
    #[inline]
    pub fn pin(&self) -> Option<HoldReason> {
        if self.state.by_mode {
            return Some(HoldReason::Mode);
        }
        let kinds = self.upstream()?.left.pinning();
        let is_read_otherwise = !self.is_on_standby() && self.reads_otherwise();
        kinds.first().or(is_read_otherwise.then_some(StateKind::Reading)).map(HoldReason::State)
    }

    /// The message or series that the client has left unfinished on the server connection. Nothing happens there until it says more.
    #[inline]
    pub fn unfinished(&self) -> UnfinishedInput {
        match &self.server {
            Some(SessionServer { upstream, .. }) if !upstream.replies.is_settled() => self.left_unfinished(upstream),
            _ => UnfinishedInput::Nothing,
        }
    }

    fn left_unfinished(&self, upstream: &UpstreamState) -> UnfinishedInput {
        let replies = &upstream.replies;
        let is_half = self.up.is_mid_message() && !self.intake.in_copy_message;
        let is_asked = upstream.flushed != FlushOrigin::No && !is_half && !replies.is_empty();
        if is_asked || replies.is_copying_in() || replies.will_answer(usize::from(is_half)) {
            return UnfinishedInput::Nothing;
        }
        match (is_half, replies.is_empty()) {
            (true, _) => UnfinishedInput::Message,
            (false, true) => UnfinishedInput::Series,
            (false, false) => UnfinishedInput::Unasked,
        }
    }

    /// The server may have more of the session's than is known.
    #[inline]
    pub fn is_unsure(&self) -> bool {
        self.upstream().is_some_and(|upstream| upstream.left.is_unsure())
    }

    /// State that was found, or is still asked for.
    #[inline]
    pub fn may_have(&self) -> StateKinds {
        self.upstream().map_or(StateKinds::NONE, |upstream| upstream.left.may_have())
    }

    /// State that was found when the server was last asked.
    #[inline]
    pub fn has_found(&self, kind: StateKind) -> bool {
        self.upstream().is_some_and(|upstream| upstream.left.found.has(kind))
    }

    /// State of which no server can tell whether it is still there.
    #[inline]
    pub fn stuck(&self) -> StateKinds {
        self.upstream().map_or(StateKinds::NONE, |upstream| upstream.left.stuck)
    }

    /// True if a relation that it makes without naming a schema may be temporary. Perhaps the server is still asked where its `search_path` leads.
    pub fn may_make_temporary(&self) -> bool {
        self.state.makes_temporary || self.upstream().is_some_and(|upstream| upstream.left.may_make_temporary())
    }

    /// Statements analysed now may mean something else than for other sessions of the same settings.
    pub fn is_own(&self) -> bool {
        !self.state.by_mode && self.upstream().is_some_and(|upstream| upstream.left.shapes_meaning())
    }

    /// Takes back what an error kept from happening.
    pub fn undo(&mut self, dropped: DroppedReplies) {
        let Some(SessionServer { conn, upstream }) = &mut self.server else { return };
        let UpstreamState { journal, brought, .. } = &mut **upstream;
        let count = (dropped.changes as usize).min(journal.len());
        for at in (0..count).rev() {
            let Some(entered) = journal.remove(at) else { continue };
            // A Parse that the server refused has dropped the unnamed statement all the same.
            let refused = dropped.failed == FailedMessage::Parse && at == 0;
            entered.change.made().into_iter().for_each(|id| conn.forget(id));
            self.statements.take_back(journal, at, entered.change, refused);
        }
        for _ in 0..dropped.ours {
            if let Some((_, id)) = brought.parses.pop_front() {
                conn.forget(id);
            }
        }
        brought.described.drain(..(dropped.described as usize).min(brought.described.len()));
        brought.asked = None;
        // The server connection's unnamed statement came before or after the failed message, nobody knows which: it is sent again when used.
        conn.unnamed = None;
    }

    /// Notes a change that is on its way.
    pub fn enter(&mut self, change: PreparedChange) {
        let segment = self.statements.segment;
        if let Some(upstream) = self.upstream_mut() {
            upstream.journal.push_back(JournalEntry { segment, change });
        }
    }

    /// True if it is not known yet what a name stands for: a change of an earlier segment may still turn out not to have happened.
    #[inline]
    pub fn is_in_doubt(&self, statement: &[u8]) -> bool {
        let last = self.upstream().and_then(|upstream| last_of(&upstream.journal, statement));
        last.is_some_and(|entered| entered.segment != self.statements.segment)
    }

    /// True if the server connection may turn out not to have a statement after all: its Parse is on its way behind something that may fail.
    pub fn is_parse_in_doubt(&self, id: StatementId) -> bool {
        let Some(UpstreamState { journal, brought, .. }) = self.upstream() else { return false };
        let now = self.statements.segment;
        brought.parses.iter().any(|(segment, brought)| *brought == id && *segment != now)
            || journal.iter().any(|entered| entered.segment != now && entered.change.made() == Some(id))
    }

    /// The server dropped all prepared statements of the server connection, whoever's they were.
    pub fn deallocated(&mut self, w: &Context) {
        self.statements.named.clear();
        self.state.by_sql = w.shared.no_statements.clone();
        if let Some(SessionServer { conn, upstream }) = &mut self.server {
            upstream.left.found = upstream.left.found.without(StateKinds::of(StateKind::Prepare));
            upstream.left.long.drop_named();
            conn.known.clear();
            conn.by_sql = w.shared.no_statements.clone();
        }
    }

    /// Takes a server connection into use.
    pub fn take(&mut self, w: &Context, conn: Box<Conn>, role: TakenFor) {
        let status = &conn.status;
        status.session.store(self.handle.status.pid, Ordering::Relaxed);
        status.uses.store(status.uses.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        *self.handle.conn.borrow_mut() = Some(status.clone());
        self.handle.status.set_doing(SessionActivity::Executing);
        let mut upstream = w.upstreams.borrow_mut().pop().unwrap_or_default();
        upstream.role = role;
        upstream.writes.is_tracked = w.shared.changes.are_tracked();
        self.server = Some(SessionServer { conn, upstream });
    }

    /// Parts with a server connection at rest, on which nothing of the session's is.
    #[inline]
    pub fn release(&mut self, w: &Context) -> Option<Box<Conn>> {
        let SessionServer { conn, mut upstream } = self.server.take()?;
        upstream.come_to_rest();
        w.upstreams.borrow_mut().push(upstream);
        self.note_parted();
        Some(conn)
    }

    /// Parts with a server connection that is lost, or over which something is under way whose answers nobody will look at. Nothing of that has
    /// happened, as far as what the session has prepared goes. Also says what the client still waits for.
    #[cold]
    pub fn lose(&mut self, w: &Context, fate: MessageFate) -> Option<(Box<Conn>, OwedReplies)> {
        self.down.cut_off();
        self.up.forget_pending(&w.buffers);
        let SessionServer { mut conn, mut upstream } = self.server.take()?;
        let UpstreamState { journal, brought, writes, .. } = &mut *upstream;
        while let Some(entered) = journal.pop_back() {
            entered.change.made().into_iter().for_each(|id| conn.forget(id));
            self.statements.take_back(journal, journal.len(), entered.change, false);
        }
        brought.parses.drain(..).for_each(|(_, id)| conn.forget(id));
        conn.unnamed = None;
        if fate == MessageFate::Undone
            && let Some(raised) = writes.raised.take()
        {
            raised.settle(WriterOutcome::RolledBack);
        }
        self.state.conn_lost();
        self.intake.lost_at_line = matches!(conn.line, ServerLine::Asked { .. });
        self.note_parted();
        Some((conn, upstream.replies.owed()))
    }

    #[inline]
    fn note_parted(&mut self) {
        self.retry.clear();
        *self.handle.conn.borrow_mut() = None;
        self.handle.is_ours.set(false);
        self.handle.cancel_waits.set(false);
        self.handle.status.set_doing(if self.lazy_begin.is_open() {
            SessionActivity::IdleInTransaction
        } else {
            SessionActivity::Idle
        });
    }

    /// Transaction status as the client knows it.
    #[inline]
    pub fn status(&self) -> u8 {
        match self.lazy_begin {
            LazyBegin::No | LazyBegin::Sent(_) => self.transaction(),
            LazyBegin::Deferred(_) | LazyBegin::Reading(_) => WITHIN,
            LazyBegin::Failed(_) => FAILED,
        }
    }

    /// Shows others what the session does.
    pub fn show_doing(&self) {
        self.handle.status.set_doing(match self.status() {
            IDLE if self.replies().is_settled() => SessionActivity::Idle,
            IDLE => SessionActivity::Executing,
            _ => SessionActivity::IdleInTransaction,
        });
    }

    /// True if nothing is under way on the server connection.
    pub fn is_at_rest(&self) -> bool {
        self.upstream().is_none_or(|upstream| upstream.txn.status == IDLE && upstream.replies.is_settled())
            && !self.up.has_pending()
            && !self.up.is_mid_message()
            && !self.down.has_unseen()
            && !self.down.is_mid_message()
    }

    /// Nothing is there to be moved from the client or to it.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        !self.up.has_unseen() && !self.up.has_pending() && !self.down.has_pending() && !self.intake.presence().has_left()
    }

    /// The meaning of names may have changed: nobody who hears of it may rely on earlier knowledge.
    #[cold]
    pub fn tell_change(&mut self, w: &Context) {
        (self.state.effects.redefines, self.state.effects.by_long_text) = (false, false);
        w.note_change(&self.account.known);
        std::mem::take(&mut self.state.effects.unseats).iter().for_each(|user| self.host.role_renamed(user));
    }

    /// Appends an error for the client. Must not be called in the middle of a server's message.
    pub fn say_error(&mut self, w: &Context, fault: &ErrorReport) {
        self.lazy_begin.fail();
        fault.write(self.down.extra(&w.buffers));
    }

    pub fn say_ready(&mut self, w: &Context) {
        if self.replies().is_empty() {
            self.handle.clock.asked_since.set(None);
        }
        let status = self.status();
        write::ready(self.down.extra(&w.buffers), status);
    }

    /// Appends a message without a body for the client.
    pub fn say_bare(&mut self, w: &Context, tag: u8) {
        write::bare(self.down.extra(&w.buffers), tag);
    }

    /// How far the server may read another statement than Weir's parser does. Statements under way may change how it reads.
    #[inline]
    pub fn misread(&self, statement: &Statement) -> MisreadExtent {
        let (is_delicate, has_names) = (statement.has(StatementTrait::Delicate), statement.has(StatementTrait::BeyondAscii));
        if (is_delicate || has_names) && (self.may_move_ahead() || self.reads_otherwise()) {
            MisreadExtent::Whole
        } else if has_names && self.recoding() != EncodingEffect::None {
            MisreadExtent::Names
        } else {
            MisreadExtent::No
        }
    }

    /// True if the server may read another statement than Weir's parser does.
    #[inline]
    pub fn is_misread(&self, statement: &Statement) -> bool {
        self.misread(statement) != MisreadExtent::No
    }

    /// True if the server reads texts otherwise than Weir does, or may do so when it gets to the next one.
    #[inline]
    pub fn may_be_misread(&self) -> bool {
        self.may_move_ahead() || self.reads_otherwise()
    }

    #[inline]
    fn may_move_ahead(&self) -> bool {
        self.upstream().is_some_and(|upstream| upstream.left.moves_ahead && !upstream.replies.is_only_ours())
    }

    /// True if servers read the session's texts otherwise than Weir's parser does: with backslashes as escapes, or in an encoding in which a byte of
    /// a character may be an ASCII character. Such a session is on the primary and keeps its server connection; nothing is kept of what it hears.
    #[inline]
    pub fn reads_otherwise(&self) -> bool {
        self.escapes() || self.recoding() == EncodingEffect::Characters
    }

    /// True if a backslash in a string is an escape: only with `standard_conforming_strings` off.
    #[inline]
    pub fn escapes(&self) -> bool {
        let set = self.state.reading.escapes;
        let own = set.unwrap_or(self.state.begins.escapes);
        let Some(SessionServer { conn, upstream }) = &self.server else { return own };
        // The server's last report holds, unless it is told otherwise right now.
        let is_off = conn.reads.escapes && !upstream.replies.is_setting();
        own || is_off || (set.is_none() && conn.begins.escapes)
    }

    /// How servers read its names.
    #[inline]
    pub fn recoding(&self) -> EncodingEffect {
        let set = self.state.reading.recoding;
        let own = set.unwrap_or(self.state.begins.recoding).max(self.state.begins_recoded);
        let Some(SessionServer { conn, upstream }) = &self.server else { return own };
        let now = if upstream.replies.is_setting() { EncodingEffect::None } else { conn.reads.recoding };
        let begins = if set.is_none() { conn.begins.recoding } else { EncodingEffect::None };
        own.max(now).max(begins)
    }

    /// True if something of our own may be said now: all that was asked before is answered, to its last byte.
    pub fn may_speak(&self) -> bool {
        self.replies().is_empty() && !self.down.is_mid_message()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::SessionStatus;

    /// Sessions that rest are many: what only some of them need is behind a pointer.
    #[test]
    fn a_session_that_rests_takes_little_room() {
        assert!(size_of::<Session>() <= 952, "{} bytes", size_of::<Session>());
        assert!(size_of::<SessionHandle>() <= 240, "{} bytes", size_of::<SessionHandle>());
        assert!(size_of::<SessionStatus>() <= 120, "{} bytes", size_of::<SessionStatus>());
    }
}
