//! `commit_outcome`: queries the xid of a transaction, by which `doubt` finds its outcome if the answer to its COMMIT is lost.
//!
//! The query goes in front of the first statement that writes, in the same write: a client that has the statement's answer has a
//! transaction with a known xid. A statement that only may write leaves the query to a later one, at the latest the COMMIT.
//! Decisions are in `failover::commit_outcome`.
//!
//! The COMMIT repeats it where no answer of the last moment proves that the server lives (`server_lives`).
//!
//! A failing query would fail the client's transaction: permission is checked before it begins, and the query prepared again if
//! code may have deallocated it.

use crate::conn::{ServerLine, XidPermission};
use crate::context::Context;
use crate::fault::ErrorReport;
use crate::host::{Level, LogOrigin};
use crate::lazy_begin::transaction_place::may_write;
use crate::prepared::{PrepareStep, StatementId, push_name};
use crate::replies::ExpectedReply;
use crate::routing::classify;
use crate::session::{FAILED, IDLE, LazyBegin, Session, SessionServer};
use crate::statements::{Statement, StatementTrait};
use crate::upstream::left::LeftoverState;
use crate::upstream::numbered::{EffectiveUser, TransactionContent, XidState};
use std::num::NonZeroU64;
use weir_failover::commit_outcome::{LogLineage, ServerLife, TransactionNumber};
use weir_sql::facts::{StateKind, StateKinds, StatementVerb, TransactionEnd, TransactionVerb};
use weir_sql::own;
use weir_wire::back::{ReceivedReport, read_row};
use weir_wire::frame::{HEADER_BYTES, MessageHeader, front};
use weir_wire::write;

/// Numbers that no client statement has.
const LINE: XidQuestion = XidQuestion {
    id: StatementId::MAX,
    text: "SELECT (pg_catalog.pg_control_system()).system_identifier, \
           pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8), \
           CASE WHEN pg_catalog.has_function_privilege('public', 'pg_catalog.txid_current()', 'EXECUTE') \
           AND pg_catalog.has_function_privilege('public', 'pg_catalog.txid_current_if_assigned()', 'EXECUTE') THEN 'all' \
           WHEN pg_catalog.has_function_privilege(SESSION_USER, 'pg_catalog.txid_current()', 'EXECUTE') \
           AND pg_catalog.has_function_privilege(SESSION_USER, 'pg_catalog.txid_current_if_assigned()', 'EXECUTE') THEN 'user' \
           ELSE 'none' END",
};
const NUMBER: XidQuestion = XidQuestion {
    id: StatementId::MAX - 1,
    text: "SELECT pg_catalog.txid_current(), pg_catalog.floor(1000 OPERATOR(pg_catalog.*) pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()))::pg_catalog.int8",
};
/// Assigns no xid.
const NUMBER_IF_ANY: XidQuestion = XidQuestion {
    id: StatementId::MAX - 2,
    text: "SELECT pg_catalog.txid_current_if_assigned(), \
           pg_catalog.floor(1000 OPERATOR(pg_catalog.*) pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()))::pg_catalog.int8",
};

const PORTAL: &[u8] = b"weir_number";

struct XidQuestion {
    id: StatementId,
    text: &'static str,
}

#[inline]
fn is_on(s: &Session) -> bool {
    s.state.choice.outcome.unwrap_or(s.account.limits.get().on_loss.outcome)
}

/// Queries the server's WAL line ahead of a deferred BEGIN, where a refusal does no harm. True if the transaction must wait for the
/// answer.
#[inline]
pub fn waits_for_line(s: &mut Session, w: &Context) -> bool {
    s.lazy_begin.is_open() && is_on(s) && ask_line_if_due(s, w)
}

#[inline(never)]
fn ask_line_if_due(s: &mut Session, w: &Context) -> bool {
    let is_mid_message = s.up.is_mid_message();
    let Some(SessionServer { conn, upstream }) = &mut s.server else { return false };
    let is_before = upstream.txn.status == IDLE && upstream.replies.is_only_ours() && !is_mid_message;
    let is_due = match conn.line {
        ServerLine::Unasked => true,
        ServerLine::Known { edition, .. } => edition != w.shared.told.refusals.edition(),
        ServerLine::Asked { .. } | ServerLine::Hidden => false,
    };
    if !is_before || !is_due || !conn.is_to_primary(&w.view()) {
        return false;
    }
    if std::mem::take(&mut s.intake.lost_at_line) {
        conn.line = ServerLine::Hidden;
        return false;
    }
    conn.line = ServerLine::Asked { edition: w.shared.told.refusals.edition() };
    send(s, w, &LINE);
    s.raise_barrier();
    true
}

/// Queries the xid ahead of a statement, if due.
#[inline]
pub fn ask_ahead(s: &mut Session, w: &Context, statement: &Statement) {
    if is_on(s) {
        ask_if_due(s, w, statement);
    }
}

#[inline(never)]
fn ask_if_due(s: &mut Session, w: &Context, statement: &Statement) {
    let is_commit = statement.transaction == TransactionVerb::End(TransactionEnd::Commit);
    let writes = statement.has(StatementTrait::Writes);
    let may_write = writes || may_write(classify::class_of(s, w, statement), statement.has(StatementTrait::Calls));
    let (is_mid_message, at) = (s.up.is_mid_message(), w.now_us());
    let is_itself = !s.state.settings.has_role() && !s.state.by_mode;
    let Some(SessionServer { conn, upstream }) = &mut s.server else { return };
    let is_primary = conn.is_to_primary(&w.view()) && !upstream.only_reads();
    let user = upstream.txn.numbered.user;
    let may_ask = match conn.line {
        ServerLine::Known { edition, .. } if edition != w.shared.told.refusals.edition() => false,
        ServerLine::Known { askers: XidPermission::All, .. } => true,
        ServerLine::Known { askers: XidPermission::User, .. } => {
            is_itself && user == EffectiveUser::AsBegun && !may_have_role(&upstream.left)
        }
        ServerLine::Unasked | ServerLine::Asked { .. } | ServerLine::Hidden => false,
    };
    let txn = &mut upstream.txn;
    txn.numbered.is_committing = false;
    if matches!(statement.transaction, TransactionVerb::Begin(_)) {
        ask_line_if_due(s, w);
        return;
    }
    txn.numbered.user = user.after(statement.verb, !statement.state.may_change.is_empty());
    let is_within = txn.control.is_open(txn.status != IDLE) && txn.status != FAILED;
    if !is_within || !is_primary || matches!(conn.line, ServerLine::Unasked | ServerLine::Hidden) {
        return;
    }
    let question = match (txn.numbered.asked, statement.verb) {
        // The statement assigns an xid anyway.
        (XidState::No | XidState::Due, StatementVerb::Insert | StatementVerb::Update | StatementVerb::Delete) if writes => {
            &NUMBER
        }
        // The query takes a snapshot: only ahead of a statement that takes one, or at the last moment.
        (XidState::Due, StatementVerb::Select) => &NUMBER_IF_ANY,
        (XidState::Due, _) if is_commit => &NUMBER_IF_ANY,
        (XidState::Known { .. }, _) if is_commit && !w.shared.lives.is_fresh(conn.status.address.node, at) => &NUMBER_IF_ANY,
        (XidState::No, _) if may_write && statement.transaction == TransactionVerb::None => {
            txn.numbered.asked = XidState::Due;
            return;
        }
        (XidState::No | XidState::Due | XidState::Waits { .. } | XidState::Known { .. } | XidState::Spoiled, _) => return,
    };
    let replies = &upstream.replies;
    let may_speak = may_ask && !replies.is_unsynced() && !replies.is_skipping() && !replies.is_copying_in() && !is_mid_message;
    txn.numbered.asked = match txn.numbered.asked {
        XidState::Known { number, at: first, .. } if may_speak => XidState::Known { number, at: first, asked_us: at },
        XidState::Known { .. } => return,
        XidState::No | XidState::Due | XidState::Waits { .. } | XidState::Spoiled if may_speak => XidState::Waits { at },
        XidState::No | XidState::Due | XidState::Waits { .. } | XidState::Spoiled => XidState::Due,
    };
    if may_speak {
        send(s, w, question);
    }
}

fn may_have_role(left: &LeftoverState) -> bool {
    const ROLES: StateKinds =
        StateKinds::of(StateKind::Setting).with(StateKind::ForeignSetting).with(StateKind::Unknown).with(StateKind::Unread);
    !left.may_have().common(ROLES).is_empty()
}

/// Tracks if a transaction has only read.
#[inline]
pub fn note(s: &mut Session, w: &Context, statement: &Statement) {
    if is_on(s) && s.upstream().is_some_and(|upstream| upstream.txn.numbered.deeds != TransactionContent::More) {
        note_deed(s, w, statement);
    }
}

#[inline(never)]
fn note_deed(s: &mut Session, w: &Context, statement: &Statement) {
    // The BEGIN has just gone ahead, or is this statement.
    let begin = match &s.lazy_begin {
        LazyBegin::Sent(begin) => begin.transaction,
        LazyBegin::No | LazyBegin::Deferred(_) | LazyBegin::Reading(_) | LazyBegin::Failed(_) => statement.transaction,
    };
    let before = match (s.upstream().map(|upstream| upstream.txn.numbered.deeds), begin) {
        (Some(TransactionContent::OnlyReads), _) => TransactionContent::OnlyReads,
        // A serializable transaction may be refused at COMMIT for its reads.
        (Some(TransactionContent::None), TransactionVerb::Begin(begin)) if !classify::defaults(s, w).is_serializable(begin) => {
            TransactionContent::OnlyReads
        }
        _ => TransactionContent::More,
    };
    let is_harmless = match statement.transaction {
        TransactionVerb::Begin(_) | TransactionVerb::End(TransactionEnd::Commit) => true,
        // SET TRANSACTION may make it serializable.
        TransactionVerb::Within => !statement.has(StatementTrait::OfPrimary),
        TransactionVerb::None => is_plain_read(s, statement),
        TransactionVerb::End(_) | TransactionVerb::Chain(_) | TransactionVerb::Prepared | TransactionVerb::Many => false,
    };
    let after = if is_harmless { before } else { TransactionContent::More };
    s.upstream_mut().into_iter().for_each(|upstream| upstream.txn.numbered.deeds = after);
}

fn is_plain_read(s: &Session, statement: &Statement) -> bool {
    let does_more = [
        StatementTrait::Calls,
        StatementTrait::Many,
        StatementTrait::Executes,
        StatementTrait::Signals,
        StatementTrait::Notifies,
    ];
    statement.verb == StatementVerb::Select
        && statement.state.may_change.is_empty()
        && !does_more.into_iter().any(|one| statement.has(one))
        && classify::only_reads(s, statement)
}

fn send(s: &mut Session, w: &Context, question: &XidQuestion) {
    own::check(question.text);
    let max = w.peek_config().pool.prepared_max as usize;
    let keeps = s.state.by_mode;
    let Some(SessionServer { conn, upstream }) = &mut s.server else { return };
    let out = s.up.extra(&w.buffers);
    // Deallocations by code are not tracked in a session that keeps its connection.
    let may_lack = keeps || upstream.left.may_lack_statements();
    let need = conn.known.touch(question.id, max);
    if may_lack || need != PrepareStep::Nothing {
        let evict = if let PrepareStep::Parse { evict } = need { evict } else { None };
        // The query's own name may exist.
        let others = evict.filter(|id| *id != question.id);
        others.into_iter().chain([question.id]).for_each(|id| close(out, id));
        write::message(out, front::PARSE, |out| {
            push_name(out, question.id);
            out.push(0);
            write::cstr(out, question.text.as_bytes());
            out.extend([0; 2]);
        });
    }
    write::message(out, front::BIND, |out| {
        write::cstr(out, PORTAL);
        push_name(out, question.id);
        out.extend([0; 7]);
    });
    write::message(out, front::EXECUTE, |out| {
        write::cstr(out, PORTAL);
        out.extend([0; 4]);
    });
    write::named(out, front::CLOSE, b'P', PORTAL);
    write::bare(out, front::SYNC);
    upstream.replies.push(ExpectedReply::NumberOurs);
    s.handle.is_ours.set(true);
}

fn close(out: &mut Vec<u8>, id: StatementId) {
    write::message(out, front::CLOSE, |out| {
        out.push(b'S');
        push_name(out, id);
        out.push(0);
    });
}

/// Takes a whole row: the server's line or the xid.
pub fn on_row(s: &mut Session, w: &Context, header: MessageHeader) {
    let body = s.down.unseen().get(HEADER_BYTES..header.frame_bytes()).unwrap_or_default();
    let cells = read_row(body).unwrap_or_default();
    let text = |at: usize| cells.get(at).copied().flatten().and_then(|cell| std::str::from_utf8(cell).ok());
    let read = text(0).zip(text(1));
    let Some(SessionServer { conn, upstream }) = &mut s.server else { return };
    let line = match conn.line {
        ServerLine::Known { line, .. } => line,
        ServerLine::Asked { edition } => {
            let known = read.zip(text(2)).and_then(|((system, timeline), askers)| {
                let line = LogLineage { system: system.parse().ok()?, timeline: u32::from_str_radix(timeline, 16).ok()? };
                Some(ServerLine::Known { line, askers: XidPermission::of(askers)?, edition })
            });
            conn.line = known.unwrap_or(ServerLine::Hidden);
            return;
        }
        ServerLine::Unasked | ServerLine::Hidden => return,
    };
    let numbered = &mut upstream.txn.numbered;
    let (XidState::Waits { at: asked_us } | XidState::Known { asked_us, .. }) = numbered.asked else { return };
    let number = read.and_then(|(xid, said)| {
        let xid: NonZeroU64 = xid.parse().ok()?;
        Some(TransactionNumber { xid, node: conn.status.address.node, line, said_ms: said.parse().ok()? })
    });
    if let Some(TransactionNumber { node, said_ms, .. }) = number {
        w.shared.lives.note(node, ServerLife { line, from_us: conn.opened_us, to_us: asked_us, said_ms });
    }
    if matches!(numbered.asked, XidState::Waits { .. }) {
        numbered.asked = number.map_or(XidState::Due, |number| XidState::Known { number, at: asked_us, asked_us });
    }
}

/// Handles a refusal: the client's transaction may have failed.
#[cold]
pub fn on_refused(s: &mut Session, w: &Context, report: &ReceivedReport<'_>) {
    let Some(SessionServer { conn, upstream }) = &mut s.server else { return };
    [LINE, NUMBER, NUMBER_IF_ANY].iter().for_each(|question| conn.known.forget(question.id));
    let fault = ErrorReport::of_report(report);
    match conn.line {
        // The client's `statement_timeout` was too short; queried again later.
        ServerLine::Asked { .. } if report.sqlstate == b"57014" => return conn.line = ServerLine::Unasked,
        ServerLine::Asked { .. } => {}
        ServerLine::Unasked | ServerLine::Known { .. } | ServerLine::Hidden => {
            let asked = &mut upstream.txn.numbered.asked;
            *asked = match *asked {
                // A server that goes down refuses the question in front of a COMMIT, and its number tells the outcome.
                known @ XidState::Known { .. } => known,
                XidState::No | XidState::Due | XidState::Waits { .. } | XidState::Spoiled => XidState::Spoiled,
            };
            upstream.txn.refused = Some(fault.clone());
            if report.sqlstate != b"42501" {
                return;
            }
            // The permission was revoked: other connections check theirs again.
            w.shared.told.refusals.renew();
        }
    }
    conn.line = ServerLine::Hidden;
    if report.severity == b"ERROR" {
        say_hidden(s, w, &fault.message);
    }
}

/// Ends an answer. An xid counts only in its open transaction.
pub fn on_answer(s: &mut Session, w: &Context, status: u8) {
    let Some(SessionServer { conn, upstream }) = &mut s.server else { return };
    let asked = &mut upstream.txn.numbered.asked;
    if status == IDLE && matches!(asked, XidState::Known { .. }) {
        *asked = XidState::Spoiled;
    }
    match conn.line {
        ServerLine::Asked { .. } => conn.line = ServerLine::Hidden,
        ServerLine::Hidden => {}
        ServerLine::Unasked | ServerLine::Known { .. } => return,
    }
    say_hidden(s, w, "it may not call all functions that this takes, or the server keeps no log");
}

/// Logs once per user. A role set by the session may lack rights of the user.
#[cold]
fn say_hidden(s: &Session, w: &Context, why: &str) {
    let user = &s.account.user;
    if s.state.settings.has_role() || !w.shared.told.refusals.is_news(user) {
        return;
    }
    let who = LogOrigin { user, database: &s.account.database, session: s.handle.status.pid, ..LogOrigin::default() };
    let text = format_args!("commit_outcome has no effect for user \"{user}\": {why}. This is said once for each user");
    w.log(Level::Warning, &who, text);
}

/// The tag of a COMMIT must not be said twice.
#[inline]
pub fn on_tag(s: &mut Session) {
    s.upstream_mut().into_iter().for_each(|upstream| upstream.txn.numbered.is_committing &= !upstream.replies.is_last());
}

pub fn own_texts() -> Vec<String> {
    [LINE, NUMBER, NUMBER_IF_ANY].into_iter().map(|question| question.text.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_set_a_role_keeps_a_user_from_asking() {
        let with = |kind: StateKind| {
            let mut left = LeftoverState::default();
            left.due.kinds.add(kind);
            may_have_role(&left)
        };
        for kind in [StateKind::Setting, StateKind::ForeignSetting, StateKind::Unknown, StateKind::Unread] {
            assert!(with(kind), "{kind:?}");
        }
        for kind in [StateKind::Temporary, StateKind::Prepare, StateKind::Listen] {
            assert!(!with(kind), "{kind:?}");
        }
        assert!(!may_have_role(&LeftoverState::default()));
    }
}
