//! The end of a session: the fate of its server connection, and the last words to its client. Also the fate of a session whose server connection ends.

use crate::conn::ServerAddress;
use crate::context::Context;
use crate::doubt::commit_in_doubt::CommitInDoubt;
use crate::fault::{ErrorReport, sqlstate};
use crate::flow::HoldReason;
use crate::host::{ProxyShutdown, RoleCheckReason};
use crate::loss::loss_words::{take_outcome, tell};
use crate::loss::{LossOutcome, LostConn, TransactionAfterLoss, UnderWay, judge};
use crate::metrics::WorkerCounter;
use crate::rerun::kept_transaction::RerunFailure;
use crate::session::{ClientPresence, IDLE, LazyBegin, MessageFate, Session, SessionServer};
use crate::upstream::ClientKnowledge;
use crate::upstream::left::{ConnCleanup, StartupRestore};
use crate::{concern, doubt, query_cache, read_retry, rerun, session_state};
use std::sync::atomic::Ordering;
use std::time::Duration;
use weir_failover::ServerConnEnd;
use weir_wire::frame::MessageHeader;

/// Time a server may say nothing when its client has left; then the server connection is closed. A client that only ended its sending
/// hears an answer that begins by then. Of one that is gone a firewall may keep the word, and a statement may take hours.
/// Others wait for its server connection no longer than this.
const SILENCE_LIMIT: Duration = Duration::from_secs(10);

/// True if a client that has left has waited long enough for a server that says nothing. The server carries out what it was sent.
pub fn is_in_vain(s: &mut Session, w: &Context, is_gone: impl FnOnce() -> bool) -> bool {
    if s.replies().is_empty() {
        return false;
    }
    let deadline = match s.intake.presence() {
        ClientPresence::LeftUntil(deadline) => deadline,
        ClientPresence::Here | ClientPresence::Left => w.now() + SILENCE_LIMIT,
    };
    s.intake.leave_until(deadline);
    s.host.wake_at(deadline);
    // A question of ours is worth the wait: the server connection may be another's then.
    w.now() >= deadline || (!s.replies().is_only_ours() && is_gone())
}

/// Cleans the state that the session left on its server connection, or closes the connection.
pub fn let_go(s: &mut Session, w: &Context) {
    let is_at_rest = s.is_at_rest() && s.handle.cancels.get() == 0;
    let parting = if is_at_rest { session_state::parting_for_good(s, w) } else { ConnCleanup::Closed };
    let conn = match parting {
        ConnCleanup::AsItIs => s.release(w),
        ConnCleanup::Cleaned | ConnCleanup::Closed => s.lose(w, MessageFate::Unknown).map(|(conn, _)| conn),
    };
    if let Some(conn) = conn {
        session_state::part(s, conn, parting);
    }
}

/// The session ends, and has no server connection any more.
pub fn end(s: &mut Session, w: &Context) {
    if s.state.effects.redefines {
        s.tell_change(w);
    }
}

/// A message that must come before the client's statement failed. If the server goes down, or is a standby, another one may do it. Else the
/// session ends with the server's words. False: the server connection is gone.
#[cold]
pub fn refused_ahead(s: &mut Session, w: &Context, header: MessageHeader, looks: bool, what: &str) -> Result<bool, ErrorReport> {
    let body = if looks { s.down.whole(header).unwrap_or_default() } else { &[] };
    let report = weir_wire::back::read_report(body);
    let is_lost = matches!(report.severity, b"FATAL" | b"PANIC");
    let text = String::from_utf8_lossy(report.message).into_owned();
    let code = String::from_utf8_lossy(report.sqlstate).into_owned();
    if looks && !is_lost && s.replies().is_setting() && session_state::cleans(s, w, &text) {
        s.down.eat(header);
        return Ok(true);
    }
    if looks && read_retry::on_refused_ahead(s, w, header, is_lost) {
        query_cache::lost(s, w);
        return Ok(false);
    }
    s.down.eat(header);
    if is_lost {
        if let Some(upstream) = s.upstream_mut() {
            upstream.final_error = Some(ErrorReport::error(&code, text));
        }
        return Ok(true);
    }
    Err(ErrorReport::fatal(&code, format!("{what}: {text}")))
}

/// The server connection is gone. The session goes on, unless what it had there cannot be made again: each statement under way gets its
/// error, and a transaction that was open has failed.
pub fn conn_lost(s: &mut Session, w: &Context, cause: &str) -> Result<(), ErrorReport> {
    let Some(conn) = s.conn() else { return Ok(()) };
    w.count(WorkerCounter::ConnsLost);
    let address = conn.status.address.clone();
    let is_given_up = conn.status.given_up.load(Ordering::Relaxed);
    let cause = if is_given_up { "the server does not answer any more" } else { cause };
    w.log_conn(&address, format_args!("lost: {cause}"));
    if !is_given_up {
        let last_word = s.upstream().and_then(|upstream| upstream.final_error.as_ref()).map(|fault| fault.sqlstate.as_str());
        w.program.conn_died(address.node, ServerConnEnd::of_sqlstate(last_word));
    }
    w.program.look(RoleCheckReason::ConnectionLost);
    let was_on_standby = s.is_on_standby();
    if w.program.stop_mode() < ProxyShutdown::Fast && read_retry::on_loss(s, w) {
        if !was_on_standby {
            // A primary that went down may have lost what it had not flushed.
            query_cache::lost(s, w);
        }
        return Ok(());
    }
    let said = s.upstream_mut().and_then(|upstream| upstream.final_error.take());
    let outcome = outcome_of(s);
    let left = lost_for_good(s);
    let fault = match &said {
        Some(said) if ends_a_session(&said.sqlstate) => said.clone(),
        _ => fault_of(outcome, &address, said.as_ref().map_or(cause, |said| &said.message)),
    };
    let is_dismissed = said.is_some_and(|said| ends_a_session(&said.sqlstate)) && (s.status() != IDLE || left.is_some());
    let may_wait = left.is_none() && !is_dismissed && w.program.stop_mode() < ProxyShutdown::Fast;
    let remedy = if may_wait { remedy(s, w, outcome, &fault) } else { LossRemedy::None };
    match (outcome, &remedy) {
        (LossOutcome::RolledBack(_), LossRemedy::None) => w.count(WorkerCounter::TransactionsLost),
        (LossOutcome::Unknown(_), LossRemedy::None) => w.count(WorkerCounter::OutcomesUnknown),
        (LossOutcome::Unharmed | LossOutcome::Ended | LossOutcome::RolledBack(_) | LossOutcome::Unknown(_), _) => {}
    }
    // A reset or a commit was carried out, and only its ReadyForQuery waits for something of ours.
    let owes_ready = session_state::is_holding(s)
        || s.upstream().is_some_and(|upstream| upstream.resetting.telling == StartupRestore::OwesReady);
    let heard = heard(s);
    let Some((conn, owed)) = s.lose(w, MessageFate::Unknown) else { return Ok(()) };
    s.host.close(conn);
    s.up.drop_rest();
    let owed = match remedy {
        LossRemedy::None => rerun::give_up(s, w, owed),
        LossRemedy::Replay(then) => {
            concern::lost(s, w);
            rerun::begin_or_tell(s, w, RerunFailure { then, owed, fault, heard });
            return Ok(());
        }
        LossRemedy::Ask(doubt) => {
            take_outcome(s, w, outcome);
            concern::lost(s, w);
            doubt::wait(s, w, doubt);
            return Ok(());
        }
    };
    take_outcome(s, w, outcome);
    concern::lost(s, w);
    if s.down.is_mid_message() || is_dismissed {
        return Err(fault.as_fatal());
    }
    if let Some(left) = left {
        return Err(ended_by(fault, outcome, &left));
    }
    if owes_ready {
        s.say_ready(w);
    }
    tell(s, w, outcome, owed, &fault);
    if w.program.stop_mode() == ProxyShutdown::Fast { Err(fault.as_fatal()) } else { Ok(()) }
}

/// A way out that spares the client an error.
enum LossRemedy {
    None,
    /// The transaction runs again.
    Replay(TransactionAfterLoss),
    /// The primary is asked for the outcome.
    Ask(Box<CommitInDoubt>),
}

fn remedy(s: &mut Session, w: &Context, outcome: LossOutcome, fault: &ErrorReport) -> LossRemedy {
    match outcome {
        LossOutcome::RolledBack(then) if rerun::may_begin(s, w) || rerun::is_under_way(s) => LossRemedy::Replay(then),
        // Answers that the client has are among those that are owed.
        LossOutcome::Unknown(_) if rerun::is_under_way(s) => LossRemedy::None,
        LossOutcome::Unknown(_) => doubt::doubt(s, outcome, fault).map_or(LossRemedy::None, LossRemedy::Ask),
        LossOutcome::RolledBack(_) | LossOutcome::Unharmed | LossOutcome::Ended => LossRemedy::None,
    }
}

/// The server has said something since it was sent the transaction: it had it.
fn heard(s: &Session) -> ClientKnowledge {
    let Some(upstream) = s.upstream() else { return ClientKnowledge::Nothing };
    let has_begun = upstream.txn.status != IDLE && !matches!(s.lazy_begin, LazyBegin::Sent(_));
    if has_begun { ClientKnowledge::Something } else { upstream.txn.heard }
}

/// The outcome of the statements under way, as far as can be known.
fn outcome_of(s: &Session) -> LossOutcome {
    let Some(SessionServer { upstream, .. }) = &s.server else { return LossOutcome::Unharmed };
    let owed = upstream.replies.owed();
    let is_asked = owed.readies > 0 || owed.unsynced || owed.skipping;
    let under_way = match is_asked {
        true if upstream.replies.is_one_query() => UnderWay::OneQuery,
        true => UnderWay::Something,
        false => UnderWay::Nothing,
    };
    // A read of a transaction that waits ran outside of it, and its loss is the transaction's.
    let is_within = upstream.txn.status != IDLE || (is_asked && s.lazy_begin.is_open());
    judge(&LostConn { is_within, control: upstream.txn.control, under_way, only_reads: upstream.only_reads() })
}

/// True if a server ends a session on purpose: for a message that it does not understand, for its idleness, for the length of its transaction, or with its database.
fn ends_a_session(code: &str) -> bool {
    matches!(
        code,
        sqlstate::PROTOCOL_VIOLATION
            | sqlstate::IDLE_IN_TRANSACTION_TIMEOUT
            | sqlstate::TRANSACTION_TIMEOUT
            | sqlstate::IDLE_TIMEOUT
            | sqlstate::DATABASE_DROPPED
    )
}

fn fault_of(outcome: LossOutcome, address: &ServerAddress, cause: &str) -> ErrorReport {
    match outcome {
        LossOutcome::Unknown(_) => {
            let text = format!("connection to {address} was lost before the server said whether the statement took effect");
            ErrorReport::error(sqlstate::TRANSACTION_RESOLUTION_UNKNOWN, text)
                .hint("The statement may or may not have taken effect: look before it runs again.")
        }
        LossOutcome::Unharmed | LossOutcome::Ended => {
            ErrorReport::error(sqlstate::CONNECTION_FAILURE, format!("connection to {address} was lost"))
        }
        LossOutcome::RolledBack(_) => {
            let text = format!("connection to {address} was lost, and with it what ran there: nothing of that was committed");
            ErrorReport::error(sqlstate::SERIALIZATION_FAILURE, text).hint("Run the transaction again.")
        }
    }
    .detail(cause)
}

/// State of the session that was on its server connection and cannot be made again, in words.
fn lost_for_good(s: &Session) -> Option<String> {
    if s.state.by_mode {
        return Some(HoldReason::reason(HoldReason::Mode.code()).to_owned());
    }
    let upstream = s.upstream()?;
    let is_within = upstream.txn.status != IDLE;
    let left = upstream
        .left
        .lost(is_within, upstream.txn.heard, session_state::knows(s), |touched| session_state::may_have_left(s, touched));
    let names: Vec<&str> = left.kinds().map(|kind| kind.name()).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// The end of a session that cannot go on. If it is not known what a statement did, that is said first.
fn ended_by(fault: ErrorReport, outcome: LossOutcome, left: &str) -> ErrorReport {
    let code = match outcome {
        LossOutcome::Unknown(_) => sqlstate::TRANSACTION_RESOLUTION_UNKNOWN,
        LossOutcome::Unharmed | LossOutcome::Ended | LossOutcome::RolledBack(_) => sqlstate::ADMIN_SHUTDOWN,
    };
    let text = format!("terminating connection: the session had state that was lost with its server ({left})");
    let detail = format!("{}: {}", fault.message, fault.detail);
    ErrorReport { hint: fault.hint, ..ErrorReport::fatal(code, text).detail(detail) }
}
