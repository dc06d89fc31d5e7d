//! One client's session: its socket, its two lanes, its server connection, its prepared statements.

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
use crate::participants::shard_parts::Participants;
use crate::prepared::StatementId;
use crate::query_cache::cache_side::SessionCacheState;
use crate::read_retry::kept_messages::KeptMessages;
use crate::replies::{DroppedReplies, ExpectedReply, FailedMessage, OwedReplies, ReplyQueue};
use crate::rerun::kept_transaction::KeptTransaction;
use crate::routing::own_parameters::ReadPreferences;
use crate::session_state::client_settings::EncodingEffect;
use crate::session_state::held_state::{DefinedReaders, HeldState};
use crate::session_state::name_scopes::NameScope;
use crate::sharding::shard_target::SessionSharding;
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

pub struct Session {
    pub(crate) host: Rc<dyn WorkerServices>,
    pub up: RelayBuffer,
    pub down: RelayBuffer,
    pub(crate) server: Option<SessionServer>,
    pub lazy_begin: LazyBegin,
    pub(crate) wrote: PrimaryReasons,
    pub account: Rc<Account>,
    pub state: HeldState,
    pub handle: Rc<SessionHandle>,
    pub(crate) statements: OwnStatements,
    pub reads: ReadRouting,
    pub(crate) sharding: SessionSharding,
    /// Other shards of the open transaction.
    pub(crate) participants: Option<Box<Participants>>,
    /// Messages under way on a standby, sent elsewhere if it refuses.
    pub(crate) retry: KeptMessages,
    pub(crate) cache: SessionCacheState,
    pub intake: ClientIntake,
    _visit: DatabaseSessionGuard,
}

pub struct SessionServer {
    pub(crate) conn: Box<Conn>,
    pub(crate) upstream: Box<UpstreamState>,
}

#[derive(Default)]
pub struct PrimaryReasons {
    pub(crate) written: SessionWrites,
    /// Set once a transaction wanted on a standby what only the primary does: later ones of one snapshot begin on the primary.
    pub(crate) shuns_standbys: bool,
}

pub struct ReadRouting {
    pub(crate) favourite: Option<NodeIndex>,
    pub(crate) preferences: ReadPreferences,
    pub causal: CausalReadState,
    pub(crate) place: NameScope,
    /// True if all up to the next Sync was looked at, and only reads.
    only_reads: bool,
    /// True if the next statement is all up to the next Sync.
    pub(crate) is_alone: bool,
}

impl ReadRouting {
    #[inline]
    pub fn is_series_of_reads(&self) -> bool {
        self.only_reads
    }

    /// Notes that all up to the next Sync was looked at.
    pub fn note_series(&mut self, only_reads: bool) {
        self.only_reads = only_reads;
    }

    pub fn forget_series(&mut self) {
        self.only_reads = false;
    }
}

#[derive(Default)]
pub struct ClientIntake {
    skip: MessageSkip,
    presence: ClientPresence,
    pub(crate) is_message_logged: bool,
    /// CopyData messages of the present copy, as far as messages are logged.
    pub(crate) copied: std::cell::Cell<u32>,
    pub in_copy_message: bool,
    /// The error for the client's next statement (`MessageSkip::Owes`).
    pub(crate) owed: Option<Box<ErrorReport>>,
    /// A COMMIT whose answer was lost: messages wait for its outcome.
    pub doubt: Option<Box<CommitInDoubt>>,
    pub replay: Option<Box<KeptTransaction>>,
    /// The last server connection ended at the question for the server's line. The next one is not asked, or the session might
    /// lose one after another.
    pub(crate) lost_at_line: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MessageSkip {
    #[default]
    No,
    /// The server does not know of the error: all up to the client's Sync is dropped.
    ToSync,
    Owes,
}

impl ClientIntake {
    pub fn owe(&mut self, fault: ErrorReport) {
        self.skip = MessageSkip::Owes;
        self.owed = Some(Box::new(fault));
    }

    #[inline]
    pub fn skip(&self) -> MessageSkip {
        self.skip
    }

    pub fn skip_to_sync(&mut self) {
        self.skip = MessageSkip::ToSync;
    }

    pub fn skip_to_sync_if(&mut self, skips: bool) {
        if skips {
            self.skip = MessageSkip::ToSync;
        }
    }

    pub fn stop_skipping(&mut self) {
        self.skip = MessageSkip::No;
    }

    pub fn restore_skip(&mut self, before: MessageSkip) {
        self.skip = before;
    }

    #[inline]
    pub fn presence(&self) -> ClientPresence {
        self.presence
    }

    /// The client sent Terminate or closed its side.
    pub fn leave(&mut self) {
        self.presence = ClientPresence::Left;
    }

    /// Ends the session of a client that has left by `deadline`, unless its server says something.
    pub fn leave_until(&mut self, deadline: Instant) {
        self.presence = ClientPresence::LeftUntil(deadline);
    }
}

/// How far a server may read another statement than Weir's parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MisreadExtent {
    No,
    /// Names, or a value that it sets.
    Names,
    Whole,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientPresence {
    #[default]
    Here,
    /// The client's earlier messages are still carried out.
    Left,
    LeftUntil(Instant),
}

impl ClientPresence {
    #[inline]
    pub fn has_left(self) -> bool {
        self != ClientPresence::Here
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageFate {
    /// Changed nothing, and are sent again.
    Undone,
    /// May still be carried out.
    Unknown,
}

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
            sharding: SessionSharding::default(),
            participants: None,
            retry: KeptMessages::default(),
            cache: SessionCacheState::default(),
            intake: ClientIntake::default(),
            _visit: visit,
        }
    }

    /// Runs the session's task once more before it waits.
    pub fn wake(&self) {
        self.host.run_again();
    }

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

    #[inline]
    pub fn replies(&self) -> &ReplyQueue {
        self.upstream().map_or(&NOTHING_OWED, |upstream| &upstream.replies)
    }

    #[inline]
    pub fn expect(&mut self, expect: ExpectedReply) {
        if let Some(upstream) = self.upstream_mut() {
            upstream.replies.push(expect);
        }
    }

    /// Expects a reply to a client's message: the replies that an earlier Flush asked for are no longer all.
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

    #[inline]
    pub fn transaction(&self) -> u8 {
        self.upstream().map_or(IDLE, |upstream| upstream.txn.status)
    }

    /// True on a standby, whose reads under way may run again elsewhere.
    #[inline]
    pub fn is_on_standby(&self) -> bool {
        self.upstream().is_some_and(UpstreamState::is_on_standby)
    }

    /// True if all that is under way may run again after a loss of the server connection.
    #[inline]
    pub fn only_reads(&self) -> bool {
        self.upstream().is_some_and(UpstreamState::only_reads)
    }

    /// True if a deferred BEGIN went before what is under way.
    #[inline]
    pub fn has_begun_ahead(&self) -> bool {
        self.upstream().is_some_and(|upstream| upstream.txn.began.is_some())
    }

    /// Returns why the session is pinned, as far as is known.
    #[inline]
    pub fn pin(&self) -> Option<HoldReason> {
        if self.state.by_mode {
            return Some(HoldReason::Mode);
        }
        let kinds = self.upstream()?.left.pinning();
        let is_read_otherwise = !self.is_on_standby() && self.reads_otherwise();
        kinds.first().or(is_read_otherwise.then_some(StateKind::Reading)).map(HoldReason::State)
    }

    /// Returns what the client has left unfinished: nothing happens on the server connection until the client goes on.
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

    /// True if the server may have state that is not known.
    #[inline]
    pub fn is_unsure(&self) -> bool {
        self.upstream().is_some_and(|upstream| upstream.left.is_unsure())
    }

    #[inline]
    pub fn may_have(&self) -> StateKinds {
        self.upstream().map_or(StateKinds::NONE, |upstream| upstream.left.may_have())
    }

    #[inline]
    pub fn has_found(&self, kind: StateKind) -> bool {
        self.upstream().is_some_and(|upstream| upstream.left.found.has(kind))
    }

    /// Returns state of which no server can tell whether it still exists.
    #[inline]
    pub fn stuck(&self) -> StateKinds {
        self.upstream().map_or(StateKinds::NONE, |upstream| upstream.left.stuck)
    }

    /// True if a relation made without a schema may be temporary. The server may still be asked for its `search_path`.
    pub fn may_make_temporary(&self) -> bool {
        self.state.makes_temporary || self.upstream().is_some_and(|upstream| upstream.left.may_make_temporary())
    }

    /// True if statements analysed now may mean something else than for other sessions of the same settings.
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
            // A refused Parse has dropped the unnamed statement all the same.
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
        // The unnamed statement may have come before or after the failed message: it is sent again when used.
        conn.unnamed = None;
    }

    pub fn enter(&mut self, change: PreparedChange) {
        let segment = self.statements.segment;
        if let Some(upstream) = self.upstream_mut() {
            upstream.journal.push_back(JournalEntry { segment, change });
        }
    }

    /// True if a change of an earlier segment may still fail, so that the name's statement is unknown.
    #[inline]
    pub fn is_in_doubt(&self, statement: &[u8]) -> bool {
        let last = self.upstream().and_then(|upstream| last_of(&upstream.journal, statement));
        last.is_some_and(|entered| entered.segment != self.statements.segment)
    }

    /// True if a change of an earlier segment may still fail, of any statement.
    pub fn has_doubts(&self) -> bool {
        let now = self.statements.segment;
        self.upstream().is_some_and(|upstream| upstream.journal.iter().any(|entered| entered.segment != now))
    }

    /// True if the statement's Parse is under way behind something that may fail.
    pub fn is_parse_in_doubt(&self, id: StatementId) -> bool {
        let Some(UpstreamState { journal, brought, .. }) = self.upstream() else { return false };
        let now = self.statements.segment;
        brought.parses.iter().any(|(segment, brought)| *brought == id && *segment != now)
            || journal.iter().any(|entered| entered.segment != now && entered.change.made() == Some(id))
    }

    /// Notes that the server dropped all prepared statements of the server connection, also of other sessions.
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

    /// Gives up a server connection without any state of the session's.
    #[inline]
    pub fn release(&mut self, w: &Context) -> Option<Box<Conn>> {
        let SessionServer { conn, mut upstream } = self.server.take()?;
        upstream.come_to_rest();
        w.upstreams.borrow_mut().push(upstream);
        self.note_parted();
        Some(conn)
    }

    /// Gives up a server connection that is lost, or whose answers are not read; prepared statements under way count as not
    /// prepared. Also returns the replies owed to the client.
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
    pub(crate) fn note_parted(&mut self) {
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

    #[inline]
    pub fn status(&self) -> u8 {
        match self.lazy_begin {
            LazyBegin::No | LazyBegin::Sent(_) => self.transaction(),
            LazyBegin::Deferred(_) | LazyBegin::Reading(_) => WITHIN,
            LazyBegin::Failed(_) => FAILED,
        }
    }

    pub fn show_doing(&self) {
        self.handle.status.set_doing(match self.status() {
            IDLE if self.replies().is_settled() => SessionActivity::Idle,
            IDLE => SessionActivity::Executing,
            _ => SessionActivity::IdleInTransaction,
        });
    }

    pub fn is_at_rest(&self) -> bool {
        self.upstream().is_none_or(|upstream| upstream.txn.status == IDLE && upstream.replies.is_settled())
            && !self.up.has_pending()
            && !self.up.is_mid_message()
            && !self.down.has_unseen()
            && !self.down.is_mid_message()
    }

    #[inline]
    pub fn is_quiet(&self) -> bool {
        !self.up.has_unseen() && !self.up.has_pending() && !self.down.has_pending() && !self.intake.presence().has_left()
    }

    /// Announces that the meanings of names may have changed.
    #[cold]
    pub fn tell_change(&mut self, w: &Context) {
        let effects = &mut self.state.effects;
        (effects.redefines, effects.redefines_code, effects.by_long_text) = (false, false, false);
        w.note_change(&self.account.known);
        if std::mem::take(&mut self.state.effects.defined_readers) != DefinedReaders::None {
            self.account.known.sharding.readers_change();
        }
        std::mem::take(&mut self.state.effects.unseats).iter().for_each(|user| self.host.role_renamed(user));
    }

    /// Appends an error for the client. Not within a server's message.
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

    pub fn say_bare(&mut self, w: &Context, tag: u8) {
        write::bare(self.down.extra(&w.buffers), tag);
    }

    /// Returns how far the server may misread. Statements under way may change how it reads.
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

    #[inline]
    pub fn is_misread(&self, statement: &Statement) -> bool {
        self.misread(statement) != MisreadExtent::No
    }

    /// True if the server may read the next text otherwise than Weir.
    #[inline]
    pub fn may_be_misread(&self) -> bool {
        self.may_move_ahead() || self.reads_otherwise()
    }

    #[inline]
    fn may_move_ahead(&self) -> bool {
        self.upstream().is_some_and(|upstream| upstream.left.moves_ahead && !upstream.replies.is_only_ours())
    }

    /// True if servers read texts with backslashes as escapes, or in an encoding in which a byte of a character may be ASCII.
    /// Such a session stays on the primary and its server connection; its answers are not cached.
    #[inline]
    pub fn reads_otherwise(&self) -> bool {
        self.escapes() || self.recoding() == EncodingEffect::Characters
    }

    #[inline]
    pub fn escapes(&self) -> bool {
        let set = self.state.reading.escapes;
        let own = set.unwrap_or(self.state.begins.escapes);
        let Some(SessionServer { conn, upstream }) = &self.server else { return own };
        // The server's last report holds, unless a setting is under way.
        let is_off = conn.reads.escapes && !upstream.replies.is_setting();
        own || is_off || (set.is_none() && conn.begins.escapes)
    }

    #[inline]
    pub fn recoding(&self) -> EncodingEffect {
        let set = self.state.reading.recoding;
        let own = set.unwrap_or(self.state.begins.recoding).max(self.state.begins_recoded);
        let Some(SessionServer { conn, upstream }) = &self.server else { return own };
        let now = if upstream.replies.is_setting() { EncodingEffect::None } else { conn.reads.recoding };
        let begins = if set.is_none() { conn.begins.recoding } else { EncodingEffect::None };
        own.max(now).max(begins)
    }

    /// True if all earlier messages are answered, to the last byte.
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
        assert!(size_of::<Session>() <= 1000, "{} bytes", size_of::<Session>());
        assert!(size_of::<SessionHandle>() <= 240, "{} bytes", size_of::<SessionHandle>());
        assert!(size_of::<SessionStatus>() <= 120, "{} bytes", size_of::<SessionStatus>());
    }
}
