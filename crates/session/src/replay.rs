//! `transaction_replay`: a transaction that is lost with its server runs again on the next primary, unseen by its client.
//!
//! The client's messages are kept from the BEGIN on, and a checksum of all bytes that the client was shown since. If the server is lost and
//! nothing can have been committed, the messages are put back as if they had just come, and take their way again. As many bytes of the answers
//! as were shown are swallowed; if they are the same, the rest is shown, and the transaction goes on. Else it fails with 40001, as without this.
//! `sent` says of each statement whether it may run again. The owner of the sockets calls `tap` before it sends to the client, and `drained` after.

use crate::context::Context;
use crate::fault::Fault;
use crate::flow::Flow;
use crate::from_client;
use crate::metrics::Metric;
use crate::session::{Fate, IDLE, LazyBegin, Own, Session, Skip};
use crate::session_state;
use crate::statements::{Statement, Trait};
use crate::teardown;
use crate::unit::{Concern, Ended, Unit};
use sha2::{Digest, Sha256};
use std::time::{Duration, Instant};
use weir_policy::loss::Then;
use weir_policy::replay::is_harmless;
use weir_policy::replies::Owed;
use weir_sql::facts::{Ending, Transaction, Verb};
use weir_wire::frame::{HEADER_BYTES, Header, front, read_header, split_cstr};

/// Times one transaction is begun again.
const AGAIN_MAX: u32 = 20;

/// Room that a session keeps between transactions.
const ROOM_BYTES_MAX: usize = 4 << 10;

/// The client's share of a transaction, and what it was shown.
#[derive(Default)]
pub struct Record {
    messages: Vec<u8>,
    shown: Shown,
    state: State,
    /// The bytes at the front of those to be sent that are counted already.
    counted: usize,
    /// The client has yet to hear that the new primary may lack what it was shown.
    warning: Option<Vec<u8>>,
}

/// Bytes in order.
#[derive(Clone, Default)]
struct Shown {
    bytes: u64,
    hash: Sha256,
}

#[derive(Default)]
enum State {
    /// All messages since a BEGIN are kept.
    #[default]
    Whole,
    /// The same, and the transaction may be over.
    Ending,
    /// It does not run again: it is too long, or does something that cannot be repeated.
    Spoiled,
    Again(Box<Run>),
}

/// A transaction that runs again.
struct Run {
    /// Bytes of its messages that were not looked at yet.
    left: usize,
    /// The answers so far, up to as many bytes as were shown.
    answers: Shown,
    since: Instant,
    times: u32,
    told: Told,
    /// Statements that the transaction has prepared, as its client knows them.
    prepared: Vec<(Box<[u8]>, Own)>,
    /// The answers were the same as far as they were shown: the rest goes to the client.
    is_same: bool,
    /// The transaction may be over behind its messages.
    is_ending: bool,
}

/// The words that a client hears if its transaction does not run again.
pub struct Told {
    pub then: Then,
    pub owed: Owed,
    pub fault: Fault,
}

impl Shown {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.hash.update(bytes);
    }

    fn is(&self, other: &Shown) -> bool {
        self.bytes == other.bytes && self.hash.clone().finalize() == other.hash.clone().finalize()
    }
}

impl Record {
    fn is_kept(&self) -> bool {
        matches!(self.state, State::Whole | State::Ending)
    }

    /// Another transaction.
    fn begin(&mut self) {
        self.messages.clear();
        if self.messages.capacity() > ROOM_BYTES_MAX {
            self.messages = Vec::new();
        }
        (self.shown, self.state) = (Shown::default(), State::Whole);
    }
}

/// True if transactions of the session are kept.
#[inline]
pub fn is_on(s: &Session) -> bool {
    s.state.choice.replay.unwrap_or(s.account.limits.get().on_loss.replay)
}

/// True if a transaction runs again just now.
#[inline]
pub fn is_under_way(s: &Session) -> bool {
    s.intake.replay.as_ref().is_some_and(|record| matches!(record.state, State::Again(_)))
}

/// Decides on one message of the client, and keeps it.
#[cold]
pub fn on_client(s: &mut Session, w: &Context, header: Header) -> Result<Flow, Fault> {
    warn(s, w);
    let bytes = header.frame_bytes();
    let is_rest = s.status() == IDLE && s.replies().is_settled() && s.intake.skip == Skip::No;
    let max = usize::try_from(w.peek_config().failover.replay_bytes_max).unwrap_or(usize::MAX);
    let record = s.intake.replay.get_or_insert_default();
    record.finish();
    if is_rest && !matches!(record.state, State::Again(_)) {
        record.begin();
    }
    let before = record.messages.len();
    match &record.state {
        // It is not known yet if the transaction goes on.
        State::Again(run) if run.left == 0 => return Ok(Flow::Hold),
        State::Again(_) | State::Spoiled => {}
        State::Whole | State::Ending => {
            if !is_kind(header.tag) || before + bytes > max {
                record.spoil();
            } else if !s.up.has_whole(bytes) {
                return Ok(Flow::More);
            } else if let Some(message) = s.up.unseen().get(..bytes) {
                record.messages.extend_from_slice(message);
            }
        }
    }
    let flow = from_client::decide_on(s, w, header);
    let Some(record) = &mut s.intake.replay else { return flow };
    match (&mut record.state, &flow) {
        (State::Again(run), Ok(Flow::Next)) => run.left = run.left.saturating_sub(bytes),
        (State::Again(_) | State::Spoiled, _) | (_, Ok(Flow::Next)) => {}
        (State::Whole | State::Ending, _) => record.messages.truncate(before),
    }
    record.finish();
    flow
}

/// True if a message may be one of a transaction that runs again.
fn is_kind(tag: u8) -> bool {
    matches!(
        tag,
        front::QUERY | front::PARSE | front::BIND | front::DESCRIBE | front::EXECUTE | front::CLOSE | front::FLUSH | front::SYNC
    )
}

/// The concern of this module.
pub struct Replay;

impl Concern for Replay {
    /// To be called before the others take the statement in.
    #[inline]
    fn sent(s: &mut Session, _: &Context, header: Header, unit: Unit<'_>) {
        if s.intake.replay.is_some() {
            note(s, header, unit);
        }
    }

    #[inline]
    fn ready(_: &mut Session, _: &Context, _: Ended) {}

    /// `teardown` has it run again, or not.
    fn lost(_: &mut Session, _: &Context) {}
}

/// Notes if a statement that is about to be sent may run again.
fn note(s: &mut Session, header: Header, unit: Unit<'_>) {
    let (statement, text) = match unit {
        Unit::Query(statement) => (statement, s.up.whole_if_here(header).unwrap_or_default()),
        Unit::Bind { prepared, statement } => (statement, &*prepared.tail),
        Unit::Parse(_) | Unit::Execute => return,
        Unit::BindUnknown(_) | Unit::Call(_) | Unit::Garbled => {
            return s.intake.replay.iter_mut().filter(|record| record.is_kept()).for_each(|record| record.spoil());
        }
    };
    let is_open =
        s.lazy_begin.is_open() || s.upstream().is_some_and(|upstream| upstream.txn.control.is_open(upstream.txn.status != IDLE));
    let is_harmless = may_repeat(s, statement, split_cstr(text).map_or(&[][..], |(text, _)| text));
    let Some(record) = &mut s.intake.replay else { return };
    let next = match (&record.state, statement.transaction) {
        (State::Again(_) | State::Spoiled, _) => return,
        (State::Whole, Transaction::Begin(_)) => State::Whole,
        (State::Whole, Transaction::End(Ending::Commit | Ending::Rollback)) if is_open => State::Ending,
        (State::Whole, Transaction::None | Transaction::Within) if is_open && is_harmless => State::Whole,
        (State::Whole | State::Ending, _) => return record.spoil(),
    };
    record.state = next;
}

/// True if a statement has no effect outside of its transaction, for certain: it runs no code of users.
fn may_repeat(s: &Session, statement: &Statement, text: &[u8]) -> bool {
    let is_known = match statement.verb {
        Verb::Select | Verb::Insert | Verb::Update | Verb::Delete => true,
        Verb::Other => is_harmless(text),
        Verb::Definition => false,
    };
    let does_more = statement.has(Trait::Many) || statement.has(Trait::Signals) || statement.has(Trait::Executes);
    is_known && !does_more && statement.state.functions.is_empty() && session_state::left_unseen(s, statement).is_empty()
}

/// Messages of a read were put back, and come again.
pub fn put_back(s: &mut Session, messages: &[u8]) {
    let Some(record) = &mut s.intake.replay else { return };
    match &mut record.state {
        State::Again(run) => run.left += messages.len(),
        State::Whole | State::Ending if record.messages.ends_with(messages) => {
            let rest = record.messages.len() - messages.len();
            record.messages.truncate(rest);
        }
        State::Whole | State::Ending => record.spoil(),
        State::Spoiled => {}
    }
}

impl Record {
    fn spoil(&mut self) {
        self.state = State::Spoiled;
        self.messages = Vec::new();
    }

    /// All messages were looked at and the answers were the same: the transaction goes on.
    fn finish(&mut self) {
        if let State::Again(run) = &self.state
            && run.is_same
            && run.left == 0
        {
            self.state = if run.is_ending { State::Ending } else { State::Whole };
        }
    }
}

/// Bytes are about to be sent to the client: counts them, or swallows those that it has.
#[inline]
pub fn tap(s: &mut Session, w: &Context) {
    if s.intake.replay.is_some() && take(s, w) == Took::Other {
        refuse(s, w);
    }
}

/// The answers of a transaction that runs again.
#[derive(PartialEq, Eq)]
enum Took {
    Same,
    Other,
}

fn take(s: &mut Session, w: &Context) -> Took {
    let is_over = s.replies().is_settled() && !s.down.has_unseen() && !s.down.is_mid_message() && !session_state::is_holding(s);
    let Some(record) = &mut s.intake.replay else { return Took::Same };
    let Record { shown, state, counted, .. } = &mut **record;
    if let State::Again(run) = state
        && !run.is_same
    {
        let wanted = usize::try_from(shown.bytes - run.answers.bytes).unwrap_or(usize::MAX);
        let [first, second] = s.down.pending();
        let first = &first[..first.len().min(wanted)];
        let second = &second[..second.len().min(wanted - first.len())];
        run.answers.add(first);
        run.answers.add(second);
        let taken = first.len() + second.len();
        s.down.skip_pending(taken, &w.buffers);
        if run.answers.bytes < shown.bytes {
            let has_ended = run.left == 0 && is_over && !s.down.has_pending();
            return if has_ended { Took::Other } else { Took::Same };
        }
        if !run.answers.is(shown) {
            return Took::Other;
        }
        run.is_same = true;
        *counted = 0;
        w.count(Metric::TransactionsReplayed);
        s.host.run_again();
    }
    if !matches!(state, State::Spoiled) {
        let [first, second] = s.down.pending();
        let rest = counted.saturating_sub(first.len());
        shown.add(&first[(*counted).min(first.len())..]);
        shown.add(&second[rest.min(second.len())..]);
    }
    record.finish();
    Took::Same
}

/// They were sent, or some of them.
#[inline]
pub fn drained(s: &mut Session) {
    let left = s.down.pending().iter().map(|piece| piece.len()).sum();
    if let Some(record) = &mut s.intake.replay {
        record.counted = left;
    }
}

/// True if the session's transaction, which is lost, may run again.
pub fn may_begin(s: &Session, w: &Context) -> bool {
    let Some(record) = &s.intake.replay else { return false };
    let is_here = match &record.state {
        State::Whole | State::Ending => !record.messages.is_empty(),
        State::Again(run) => {
            let limit_ms = s.account.limits.get().waits.primary_ms;
            let is_late = limit_ms > 0 && w.now().saturating_duration_since(run.since) > Duration::from_millis(limit_ms);
            run.times < AGAIN_MAX && !is_late
        }
        State::Spoiled => false,
    };
    is_here && !s.down.is_mid_message() && !s.down.has_pending() && s.handle.final_error.borrow().is_none()
}

/// Has the transaction run again. The server connection is gone. False: it cannot.
#[cold]
pub fn begin(s: &mut Session, w: &Context, told: Told) -> Result<(), Told> {
    if !may_begin(s, w) {
        return Err(told);
    }
    let Some(record) = &mut s.intake.replay else { return Err(told) };
    let all = record.messages.len();
    let (fed, run) = match std::mem::take(&mut record.state) {
        // The client still hears of the first loss.
        State::Again(run) => (all - run.left.min(all), Run { times: run.times + 1, is_same: false, ..*run }),
        state => {
            let is_ending = matches!(state, State::Ending);
            let run = Run {
                left: 0,
                answers: Shown::default(),
                since: w.now(),
                times: 1,
                told,
                prepared: Vec::new(),
                is_same: false,
                is_ending,
            };
            (all, run)
        }
    };
    let mut run = Run { left: all, answers: Shown::default(), ..run };
    record.counted = 0;
    for name in parsed(&record.messages[..fed]) {
        if let Some((name, own)) = s.statements.named.remove_entry(name)
            && !run.prepared.iter().any(|(known, _)| *known == name)
        {
            run.prepared.push((name, own));
        }
    }
    s.lazy_begin = LazyBegin::No;
    s.intake.skip = Skip::No;
    s.statements.portal = None;
    s.up.unread(&record.messages[..fed], &w.buffers);
    record.state = State::Again(Box::new(run));
    s.host.run_again();
    Ok(())
}

/// The client hears that its transaction is lost.
pub fn forget(s: &mut Session) {
    s.intake.replay.iter_mut().filter(|record| record.is_kept()).for_each(|record| record.spoil());
}

/// The names that messages prepare statements under.
fn parsed(messages: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = messages;
    std::iter::from_fn(move || {
        loop {
            let header = read_header(rest).ok()??;
            let body = rest.get(HEADER_BYTES..header.frame_bytes())?;
            rest = &rest[header.frame_bytes()..];
            match split_cstr(body) {
                Some((name, _)) if header.tag == front::PARSE && !name.is_empty() => return Some(name),
                Some(_) | None => {}
            }
        }
    })
}

/// The transaction did not come out the same, or cannot be run to its end: it has failed.
#[cold]
pub fn refuse(s: &mut Session, w: &Context) {
    let Some(record) = &mut s.intake.replay else { return };
    let State::Again(run) = std::mem::replace(&mut record.state, State::Spoiled) else { return };
    record.messages = Vec::new();
    w.count(Metric::ReplaysRefused);
    w.count(Metric::TransactionsLost);
    if let Some((conn, _)) = s.lose(w, Fate::Unknown) {
        s.host.close(conn);
    }
    // Of these answers the client has seen nothing.
    s.down.drop_unseen();
    s.down.forget_pending(&w.buffers);
    s.up.drop_rest();
    let mut left = run.left;
    while left > 0 {
        let Ok(Some(header)) = s.up.peek(&w.buffers) else { break };
        s.up.eat(header);
        left = left.saturating_sub(header.frame_bytes());
    }
    for (name, own) in run.prepared {
        s.statements.named.entry(name).or_insert(own);
    }
    teardown::tell_lost(s, w, run.told);
    s.show_doing();
    s.host.run_again();
}

/// The new primary may lack what the client was shown, which it hears when its transaction has run again. False: it does not run again just now.
pub fn owe_warning(s: &mut Session, warning: impl FnOnce(&mut Vec<u8>)) -> bool {
    let Some(record) = s.intake.replay.as_mut().filter(|record| matches!(record.state, State::Again(_))) else { return false };
    warning(record.warning.get_or_insert_default());
    true
}

fn warn(s: &mut Session, w: &Context) {
    if is_under_way(s) || !s.may_speak() {
        return;
    }
    let warning = s.intake.replay.as_mut().and_then(|record| record.warning.take());
    if let Some(warning) = warning {
        s.down.extra(&w.buffers).extend_from_slice(&warning);
    }
}
