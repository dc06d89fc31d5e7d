//! Transactions whose BEGIN is deferred to the first statement, which decides where they run.
//!
//! The BEGIN goes in front of that statement in the same write, and its answer is eaten. A transaction that ends or fails before
//! costs no server. If a statement follows the failure, the server is made to fail too, for its error. Reads that need no
//! transaction run on standbys as outside of one (`TransactionPlacement::Outside`). Decisions are in `transaction_place`.

pub mod transaction_place;

use crate::catalogs::UNKNOWN;
use crate::context::Context;
use crate::doubt::transaction_number;
use crate::fault::{ErrorReport, sqlstate};
use crate::handle::OverdueStatement;
use crate::lazy_begin::transaction_place::{FirstStatementFacts, HeldLimits, TransactionPlacement, TransactionTie};
use crate::local::LocalStatement;
use crate::loss::{PossibleCommit, PriorWork};
use crate::metrics::WorkerCounter;
use crate::replies::ExpectedReply;
use crate::routing::{RouteClass, RouteSide, classify, read_preference};
use crate::session::{FAILED, IDLE, LazyBegin, Session, WITHIN};
use crate::sharding::savepoints;
use crate::statements::{Statement, StatementTrait};
use crate::stats::StatCounter;
use crate::status::SessionActivity;
use crate::unit::{ReadyStatus, SessionConcern, StatementMessage};
use crate::{participants, read_retry, session_state};
use std::rc::Rc;
use weir_catalog::rule::RoutingRule;
use weir_config::PoolMode;
use weir_config::redirect::ReadTarget;
use weir_sql::facts::{
    BeginOptions, IsolationLevel, RoutingHint, StateKind, StateKinds, StatementVerb, TransactionEnd, TransactionVerb,
};
use weir_wire::frame::{HEADER_BYTES, MessageHeader, front, read_header};

const PLAIN: &str = "BEGIN";

const FAILING: &str = "the transaction has failed";

pub const READS: &str = "SELECT 1";

/// Moves with its session: may be left on any server.
pub const MOVES: StateKinds = StateKinds::of(StateKind::Setting).with(StateKind::Prepare);

/// True if a BEGIN may be deferred. In a session that listens it brings the channels along; with statement pooling it is refused.
#[inline]
pub fn may_hold(s: &Session) -> bool {
    !s.has_server()
        && s.transaction() == IDLE
        && !s.lazy_begin.is_open()
        && s.state.listening.is_none()
        && s.account.limits.get().mode != PoolMode::Statement
}

/// Returns the command tag.
pub fn hold(s: &mut Session, w: &Context, statement: &Rc<Statement>) -> &'static str {
    w.count(WorkerCounter::BeginsDeferred);
    s.account.stats.add(StatCounter::Statements, 1);
    s.lazy_begin.defer(statement.clone());
    s.sharding.begin();
    let now = w.now_us();
    s.handle.clock.transaction_since.set(Some(now));
    s.handle.clock.ready_at.set(now);
    classify::watch(s, w);
    s.handle.status.set_doing(SessionActivity::IdleInTransaction);
    if options_of(statement).starts { "START TRANSACTION" } else { "BEGIN" }
}

/// Returns the command tag.
pub fn end(s: &mut Session, w: &Context, ending: TransactionEnd) -> &'static str {
    let begun = std::mem::take(&mut s.lazy_begin);
    s.sharding.savepoints = None;
    if s.participants.is_some() {
        participants::roll_back(s);
    }
    let clock = &s.handle.clock;
    if let Some(began) = clock.transaction_since.take() {
        let us = w.now_us().saturating_sub(began);
        s.account.stats.add(StatCounter::Statements, 1);
        s.account.stats.add(StatCounter::Transactions, 1);
        s.account.stats.add(StatCounter::TransactionUs, us);
    }
    clock.ready_at.set(w.now_us());
    clock.held.set(HeldLimits::default());
    s.handle.status.set_doing(SessionActivity::Idle);
    match (ending, begun) {
        (TransactionEnd::Commit, LazyBegin::No | LazyBegin::Deferred(_) | LazyBegin::Reading(_) | LazyBegin::Sent(_)) => "COMMIT",
        (TransactionEnd::Commit, LazyBegin::Failed(_)) | (TransactionEnd::Rollback | TransactionEnd::Prepare, _) => "ROLLBACK",
    }
}

#[inline]
pub fn way_of(s: &mut Session, w: &Context, statement: &Statement) -> Option<TransactionPlacement> {
    match first_way(s, w, statement) {
        Some(TransactionPlacement::Begins(class)) if s.sharding.is_outside() => {
            Some(TransactionPlacement::Outside(outside(class)))
        }
        way => way,
    }
}

/// A read of sharded tables does not begin its transaction, wherever it runs.
#[cold]
fn outside(class: RouteClass) -> RouteClass {
    match class {
        RouteClass { rule: RoutingRule::TransactionControl, side } => RouteClass { side, rule: RoutingRule::OneShard },
        class => class,
    }
}

/// The way without regard to what may run outside of a transaction on a primary.
#[inline]
fn first_way(s: &mut Session, w: &Context, statement: &Statement) -> Option<TransactionPlacement> {
    let begin = match &s.lazy_begin {
        LazyBegin::No | LazyBegin::Sent(_) => return None,
        // Any server gives the error of a failed transaction; only a statement that may begin another waits for a primary.
        LazyBegin::Failed(_)
            if w.view().primary.is_none()
                && !matches!(
                    statement.transaction,
                    TransactionVerb::Within | TransactionVerb::Chain(_) | TransactionVerb::Many
                ) =>
        {
            return Some(TransactionPlacement::Begins(RouteClass {
                side: RouteSide::Reader,
                rule: RoutingRule::TransactionControl,
            }));
        }
        LazyBegin::Failed(_) => return Some(TransactionPlacement::Begins(RouteClass::primary(RoutingRule::TransactionControl))),
        LazyBegin::Deferred(begin) | LazyBegin::Reading(begin) => begin.clone(),
    };
    if s.sharding.target().number() != 0 || s.participants.is_some() {
        return Some(TransactionPlacement::Begins(RouteClass::primary(s.sharding.rule())));
    }
    let asked = match begin.hint {
        RoutingHint::Primary => RouteClass::primary(RoutingRule::Hint),
        _ => read_preference::class_of(s, w, &begin, RouteClass { side: RouteSide::Reader, rule: RoutingRule::Read }),
    };
    let asked = (asked.side == RouteSide::Primary).then_some(asked.rule);
    let class = classify::class_of(s, w, statement);
    let class = read_preference::class_of(s, w, statement, class);
    let mut class = read_retry::class_of(s, statement, class);
    if statement.transaction != TransactionVerb::None && class.side == RouteSide::Reader {
        // A second BEGIN is no read.
        class = RouteClass::primary(RoutingRule::TransactionControl);
    }
    if !w.has_readers() {
        return Some(TransactionPlacement::Begins(RouteClass::primary(if class.side == RouteSide::Reader {
            RoutingRule::TransactionControl
        } else {
            class.rule
        })));
    }
    let way = transaction_place::way(&FirstStatementFacts {
        begin: options_of(&begin),
        defaults: classify::defaults(s, w),
        class,
        stays: statement.has(StatementTrait::Locks) || !statement.state.leaves.without(MOVES).is_empty(),
        is_of_primary: statement.has(StatementTrait::OfPrimary),
        stay: s.wrote.written.stay_within(w.peek_config().routing.on_write).or(asked),
        tie: tie_of(s, statement.has(StatementTrait::AsksTime)),
        sees_on: s.reads.causal.sees_on(w),
    });
    match way {
        TransactionPlacement::Begins(RouteClass { side: RouteSide::Reader, .. }) if s.wrote.shuns_standbys => {
            Some(TransactionPlacement::Begins(RouteClass::primary(RoutingRule::StandbyRefused)))
        }
        way => Some(way),
    }
}

/// Why a read under snapshots of its own cannot run outside of the transaction that has not begun yet, or is to be serializable: the rule. `None`: it
/// can.
#[cold]
pub fn tie_of_read(s: &Session, asks_time: bool) -> Option<RoutingRule> {
    let defaults = classify::defaults_now(s);
    let (LazyBegin::Deferred(begin) | LazyBegin::Reading(begin)) = &s.lazy_begin else {
        return defaults.is_serializable(BeginOptions::default()).then_some(RoutingRule::SerializableByDefault);
    };
    let placement = transaction_place::way(&FirstStatementFacts {
        begin: options_of(begin),
        defaults,
        class: RouteClass { side: RouteSide::Reader, rule: RoutingRule::Read },
        stays: false,
        is_of_primary: false,
        stay: None,
        tie: tie_of(s, asks_time),
        sees_on: true,
    });
    match placement {
        TransactionPlacement::Outside(_) => None,
        TransactionPlacement::Begins(class) => Some(class.rule),
    }
}

/// True if the transaction that has not begun yet reads by one snapshot, and is not serializable.
#[cold]
pub fn is_of_one_snapshot(s: &Session) -> bool {
    let LazyBegin::Deferred(begin) = &s.lazy_begin else { return false };
    transaction_place::is_of_one_snapshot(options_of(begin), classify::defaults_now(s))
}

/// True if each statement of the transaction that has not begun yet has a snapshot of its own.
#[cold]
pub fn takes_snapshots(s: &Session) -> bool {
    let (LazyBegin::Deferred(begin) | LazyBegin::Reading(begin)) = &s.lazy_begin else { return false };
    transaction_place::takes_snapshots(options_of(begin), classify::defaults_now(s))
}

/// True if the transaction that is open on a server reads by one snapshot, and is not serializable.
#[cold]
pub fn has_one_snapshot(s: &Session) -> bool {
    transaction_place::is_of_one_snapshot(participants::begin_options(s), classify::defaults_now(s))
}

/// True if nobody knows for now the isolation of the session's transaction, or of the one that its next statement begins: the catalog is being read
/// anew.
#[cold]
pub fn awaits_defaults(s: &Session) -> bool {
    let begin = match &s.lazy_begin {
        LazyBegin::Deferred(begin) | LazyBegin::Reading(begin) => options_of(begin),
        LazyBegin::No | LazyBegin::Sent(_) | LazyBegin::Failed(_) => participants::begin_options(s),
    };
    let is_unset = |isolation: IsolationLevel| isolation == IsolationLevel::Unset;
    is_catalog_being_read(s) && is_unset(begin.isolation) && is_unset(classify::defaults_now(s).isolation)
}

/// True if the catalog will be known soon. One that cannot be read does not become known by a wait.
#[inline]
pub fn is_catalog_being_read(s: &Session) -> bool {
    let known = &s.account.known;
    known.edition() == UNKNOWN && known.report.lock().error.is_none()
}

fn tie_of(s: &Session, asks_time: bool) -> TransactionTie {
    match asks_time {
        true => TransactionTie::Time,
        false if is_in_pieces(s.up.unseen()) => TransactionTie::Portal,
        false => TransactionTie::None,
    }
}

/// Returns the error for a transaction that cannot leave its standby. A retry begins on the primary.
#[cold]
pub fn cannot_stay(shuns_standbys: &mut bool, why: &str) -> ErrorReport {
    *shuns_standbys = true;
    ErrorReport::error(
        sqlstate::SERIALIZATION_FAILURE,
        format!("the transaction runs on a standby, where it cannot go on: {why}"),
    )
    .hint("Run the transaction again: those of this session begin on the primary from now on.")
}

pub fn read_target(s: &Session) -> Option<ReadTarget> {
    s.lazy_begin.statement().and_then(|begin| begin.read_target)
}

/// Messages scanned ahead.
const AHEAD_MAX: usize = 64;

/// Portals that the messages up to a Sync leave behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortalsAhead {
    None,
    /// A portal for later, perhaps: outside of a transaction it would be gone.
    Some,
    /// As many bytes are needed to know.
    Unknown(usize),
}

/// Portals that the client's messages from the next one up to their Sync leave behind.
#[cold]
pub fn portals_ahead(s: &Session) -> PortalsAhead {
    portals_left(s.up.unseen())
}

/// True if the messages up to Sync are incomplete, or leave a portal for later.
fn is_in_pieces(here: &[u8]) -> bool {
    portals_left(here) != PortalsAhead::None
}

fn portals_left(here: &[u8]) -> PortalsAhead {
    let (mut at, mut is_bound) = (0, false);
    for _ in 0..AHEAD_MAX {
        let rest = here.get(at..).unwrap_or_default();
        let Ok(Some(header)) = read_header(rest) else { return PortalsAhead::Unknown(at + HEADER_BYTES) };
        let end = at + header.frame_bytes();
        let Some(body) = here.get(at + HEADER_BYTES..end) else { return PortalsAhead::Unknown(end) };
        match (header.tag, body) {
            (front::QUERY, _) if at == 0 => return PortalsAhead::None,
            (front::SYNC, _) if is_bound => return PortalsAhead::Some,
            (front::SYNC, _) => return PortalsAhead::None,
            (front::BIND, [0, ..]) if !is_bound => is_bound = true,
            (front::EXECUTE, b"\0\0\0\0\0") => is_bound = false,
            (front::PARSE, _) | (front::DESCRIBE, [b'S', ..] | b"P\0") => {}
            _ => return PortalsAhead::Some,
        }
        at = end;
    }
    PortalsAhead::Some
}

pub struct DeferredBegin;

impl SessionConcern for DeferredBegin {
    #[inline]
    fn sent(s: &mut Session, w: &Context, _: MessageHeader, unit: StatementMessage<'_>) {
        match unit {
            StatementMessage::Query(statement) | StatementMessage::Call(statement) => note_write(s, w, statement),
            StatementMessage::Bind { statement, .. } | StatementMessage::BindUnknown(statement) => {
                note_write(s, w, statement);
                if statement.transaction != TransactionVerb::None && txn_commits(s) {
                    s.upstream_mut().into_iter().for_each(|upstream| upstream.txn.portal = PossibleCommit::May);
                }
            }
            StatementMessage::Parse(_) | StatementMessage::Execute | StatementMessage::Garbled => {}
        }
    }

    #[inline]
    fn ready(_: &mut Session, _: &Context, _: ReadyStatus) {}

    /// Handled by `teardown`.
    fn lost(_: &mut Session, _: &Context) {}
}

/// Turns a lost transaction into a failed one that no server knows of.
#[cold]
pub fn fail_lost(s: &mut Session, w: &Context) {
    let begin = match std::mem::take(&mut s.lazy_begin) {
        LazyBegin::Sent(begin) | LazyBegin::Deferred(begin) | LazyBegin::Reading(begin) | LazyBegin::Failed(begin) => begin,
        LazyBegin::No => w.statements.borrow_mut().of_text(PLAIN.as_bytes()),
    };
    s.lazy_begin.fail_with(begin);
    // Statements behind them are lost, and cannot be undone alone.
    s.sharding.savepoints = None;
    s.handle.status.set_doing(SessionActivity::IdleInTransaction);
    if s.handle.clock.transaction_since.get().is_none() {
        s.handle.clock.transaction_since.set(Some(w.now_us()));
    }
    classify::watch(s, w);
}

#[inline]
fn note_write(s: &mut Session, w: &Context, statement: &Statement) {
    savepoints::note_statement(s, statement);
    transaction_number::note(s, w, statement);
    let transacts = statement.transaction != TransactionVerb::None;
    if !transacts {
        s.sharding.note_sent();
    }
    if transacts || statement.class.rule == RoutingRule::TooLong {
        note_control(s, statement.transaction);
    }
    let mode = w.peek_config().routing.on_write;
    if mode.remembers() {
        let writes = statement.has(StatementTrait::Writes)
            || transaction_place::may_write(classify::class_of(s, w, statement), statement.has(StatementTrait::Calls));
        s.wrote.written.at_all |= writes;
        s.wrote.written.in_transaction |= writes && (s.transaction() != IDLE || statement.transaction == TransactionVerb::Many);
    }
}

fn note_control(s: &mut Session, transaction: TransactionVerb) {
    let Some(upstream) = s.upstream_mut() else { return };
    let txn = &mut upstream.txn;
    if matches!(transaction, TransactionVerb::Begin(_)) {
        txn.begin = None;
    }
    txn.numbered.control(transaction, txn.control);
    txn.control = if transaction == TransactionVerb::None {
        txn.control.sent_unknown()
    } else {
        let before = if upstream.replies.is_only_ours() { PriorWork::Nothing } else { PriorWork::Something };
        txn.control.sent(transaction, before, txn.status != IDLE)
    };
    if txn.portal == PossibleCommit::May {
        txn.control = txn.control.sent_unknown();
    }
    if matches!(transaction, TransactionVerb::End(TransactionEnd::Rollback) | TransactionVerb::Chain(_) | TransactionVerb::Within)
    {
        upstream.left.due.add_rollback();
    }
    if transaction != TransactionVerb::None && txn_commits(s) {
        *s.handle.overdue.borrow_mut() = OverdueStatement::Commits;
    }
}

fn txn_commits(s: &Session) -> bool {
    s.upstream().is_some_and(|upstream| upstream.txn.control.commits == PossibleCommit::May)
}

#[inline]
pub fn class_after_writes(s: &Session, w: &Context, class: RouteClass) -> RouteClass {
    match s.wrote.written.stay(w.peek_config().routing.on_write) {
        Some(rule) if class.side == RouteSide::Reader => RouteClass::primary(rule),
        Some(_) | None => class,
    }
}

pub fn options_of(statement: &Statement) -> BeginOptions {
    match statement.transaction {
        TransactionVerb::Begin(begin) => begin,
        TransactionVerb::None
        | TransactionVerb::End(_)
        | TransactionVerb::Chain(_)
        | TransactionVerb::Within
        | TransactionVerb::Prepared
        | TransactionVerb::Many => BeginOptions::default(),
    }
}

/// Sends the deferred BEGIN.
pub fn send(s: &mut Session, w: &Context, first: &Statement) {
    // A command that changes a transaction must precede its first snapshot, already taken.
    let takes_snapshot =
        (first.has(StatementTrait::Writes) || first.has(StatementTrait::Read)) && !first.has(StatementTrait::OfPrimary);
    let has_read = matches!(s.lazy_begin, LazyBegin::Reading(_)) && !takes_snapshot;
    let (statement, has_failed) = match &s.lazy_begin {
        LazyBegin::Deferred(statement) | LazyBegin::Reading(statement) => (statement.clone(), false),
        LazyBegin::Failed(statement) => (statement.clone(), true),
        LazyBegin::No | LazyBegin::Sent(_) => return,
    };
    s.reads.causal.renews = transaction_place::takes_snapshots(options_of(&statement), classify::defaults(s, w));
    let before = std::mem::take(&mut s.lazy_begin);
    let Some(upstream) = s.upstream_mut() else { return };
    upstream.txn.began = Some(before);
    upstream.txn.begin = w.is_sharded().then(|| statement.clone());
    s.handle.clock.held.set(HeldLimits::default());
    if let Some(LocalStatement::Begin(text)) = &statement.local {
        // A standby may refuse the options, which no longer matter.
        let is_plain = has_failed && s.is_on_standby();
        let text = if is_plain { PLAIN } else { text.as_str() };
        session_state::send_clients(s, w, text, ExpectedReply::BeginOurs);
        set_status(s, WITHIN);
        if let Some(conn) = s.conn() {
            w.counters().count_statement(conn.status.address.node, StatementVerb::Other);
        }
    }
    if has_read {
        session_state::send(s, w, READS, ExpectedReply::BeginOurs);
    }
    savepoints::bring(s, w);
    if has_failed {
        fail_on_server(s, w);
    }
    s.lazy_begin.note_sent(statement);
}

/// Has the server fail a transaction that the client knows to have failed.
pub fn fail_on_server(s: &mut Session, w: &Context) {
    session_state::send_clients(s, w, FAILING, ExpectedReply::FailOurs);
    set_status(s, FAILED);
}

fn set_status(s: &mut Session, status: u8) {
    if let Some(upstream) = s.upstream_mut() {
        upstream.txn.status = status;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::write::{bare, message};

    /// Messages by letters: Q P B E D(escribe a portal) d(escribe a statement) S(ync) C(lose); `b` binds a named portal, `e` executes one,
    /// `l` executes with a limit of rows.
    fn bytes_of(letters: &str) -> Vec<u8> {
        let mut out = Vec::new();
        for letter in letters.chars() {
            let (tag, body): (u8, &[u8]) = match letter {
                'Q' => (front::QUERY, b"select 1\0"),
                'P' => (front::PARSE, b"\0select 1\0\0\0"),
                'B' => (front::BIND, b"\0\0\0\0\0\0\0\0"),
                'b' => (front::BIND, b"p\0\0\0\0\0\0\0\0"),
                'E' => (front::EXECUTE, b"\0\0\0\0\0"),
                'l' => (front::EXECUTE, b"\0\0\0\0\x01"),
                'e' => (front::EXECUTE, b"p\0\0\0\0\0"),
                'D' => (front::DESCRIBE, b"P\0"),
                'd' => (front::DESCRIBE, b"Ss\0"),
                'C' => (front::CLOSE, b"Ss\0"),
                _ => {
                    bare(&mut out, front::SYNC);
                    continue;
                }
            };
            message(&mut out, tag, |out| out.extend(body));
        }
        out
    }

    #[test]
    fn a_read_leaves_its_transaction_only_with_all_of_its_messages_and_no_portal() {
        for letters in ["Q", "QQ", "PBES", "PBDES", "BES", "PdBES", "PBEBES", "PS", "PBESb"] {
            assert!(!is_in_pieces(&bytes_of(letters)), "{letters}");
        }
        for letters in ["", "P", "PBE", "PBS", "PBDS", "PbES", "PBlS", "PBeS", "PBBES", "PCBES", "PBEQ", "PBEBS"] {
            assert!(is_in_pieces(&bytes_of(letters)), "{letters}");
        }
        let whole = bytes_of("PBES");
        for cut in 0..whole.len() {
            assert!(
                matches!(portals_left(&whole[..cut]), PortalsAhead::Unknown(bytes) if bytes > cut && bytes <= whole.len()),
                "{cut}"
            );
        }
        let many = |count: usize| bytes_of(&format!("{}ES", "P".repeat(count)));
        assert!(!is_in_pieces(&many(AHEAD_MAX - 2)) && is_in_pieces(&many(AHEAD_MAX - 1)), "so many are looked at");
    }
}
