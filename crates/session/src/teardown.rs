//! The end of a session or of its server connection.

use crate::conn::ServerAddress;
use crate::context::Context;
use crate::doubt::commit_in_doubt::CommitInDoubt;
use crate::fault::{ErrorReport, sqlstate};
use crate::flow::HoldReason;
use crate::host::{ProxyShutdown, RoleCheckReason};
use crate::loss::loss_words::{take_outcome, tell};
use crate::loss::{LossOutcome, LostConn, TransactionAfterLoss, UnderWay, judge};
use crate::metrics::WorkerCounter;
use crate::replies::OwedReplies;
use crate::rerun::kept_transaction::RerunFailure;
use crate::session::{ClientPresence, IDLE, LazyBegin, MessageFate, Session, SessionServer};
use crate::sharding::spread_write::TransactionOwner;
use crate::sharding::{batch_steps, write_steps};
use crate::upstream::ClientKnowledge;
use crate::upstream::left::{ConnCleanup, StartupRestore};
use crate::{concern, doubt, participants, query_cache, read_retry, rerun, session_state};
use std::sync::atomic::Ordering;
use std::time::Duration;
use weir_failover::ServerConnEnd;
use weir_wire::frame::MessageHeader;

/// Longest silence of a server after its client has left; then the server connection is closed. A client that only ended its sending
/// still gets an answer begun by then. A firewall may hide a client's disconnection, and a statement may take hours.
const SILENCE_LIMIT: Duration = Duration::from_secs(10);

/// True if a client has left and the server was silent too long. The server still executes its messages.
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
    // The answer to Weir's own question makes the server connection reusable.
    w.now() >= deadline || (!s.replies().is_only_ours() && is_gone())
}

/// Cleans the server connection or closes it.
pub fn let_go(s: &mut Session, w: &Context) {
    participants::abandon(s);
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

pub fn end(s: &mut Session, w: &Context) {
    if s.state.effects.redefines {
        s.tell_change(w);
    }
}

/// Handles the failure of a message ahead of the client's statement. If the server goes down or is a standby, another may run the
/// statement; else the session ends with the error. False: the server connection is gone.
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

/// Handles the loss of the server connection. The session continues unless it had state there that cannot be restored.
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
    let is_batch = s.sharding.has_batch();
    let (batch, spread) = (batch_steps::lost(s), write_steps::lost(s));
    let spread = batch.or(spread);
    let outcome = write_steps::outcome_for(spread, outcome_of(s));
    let is_on_several = s.participants.is_some() || spread.is_some() || is_batch;
    participants::abandon(s);
    let left = lost_for_good(s);
    let fault = match &said {
        Some(said) if ends_a_session(&said.sqlstate) => said.clone(),
        _ => fault_of(outcome, &address, said.as_ref().map_or(cause, |said| &said.message)),
    };
    let is_dismissed = said.is_some_and(|said| ends_a_session(&said.sqlstate)) && (s.status() != IDLE || left.is_some());
    // A prepared part may still be without its end, whatever the server says that decides.
    let may_wait = left.is_none() && !is_dismissed && !is_on_several && w.program.stop_mode() < ProxyShutdown::Fast;
    let remedy = if may_wait { remedy(s, w, outcome, &fault) } else { LossRemedy::None };
    match (outcome, &remedy) {
        (LossOutcome::RolledBack(_), LossRemedy::None) => w.count(WorkerCounter::TransactionsLost),
        (LossOutcome::Unknown(_), LossRemedy::None) => w.count(WorkerCounter::OutcomesUnknown),
        (LossOutcome::Unharmed | LossOutcome::Ended | LossOutcome::RolledBack(_) | LossOutcome::Unknown(_), _) => {}
    }
    // The reset or commit was carried out; only its ReadyForQuery is missing.
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
    if spread == Some(TransactionOwner::Weir) && owed == OwedReplies::default() {
        // The client's message still waits.
        s.intake.owe(fault.clone());
    }
    if w.program.stop_mode() == ProxyShutdown::Fast { Err(fault.as_fatal()) } else { Ok(()) }
}

enum LossRemedy {
    None,
    Replay(TransactionAfterLoss),
    Ask(Box<CommitInDoubt>),
}

fn remedy(s: &mut Session, w: &Context, outcome: LossOutcome, fault: &ErrorReport) -> LossRemedy {
    match outcome {
        LossOutcome::RolledBack(then) if rerun::may_begin(s, w) || rerun::is_under_way(s) => LossRemedy::Replay(then),
        // The replies due include answers that the client already has.
        LossOutcome::Unknown(_) if rerun::is_under_way(s) => LossRemedy::None,
        LossOutcome::Unknown(_) => doubt::doubt(s, outcome, fault).map_or(LossRemedy::None, LossRemedy::Ask),
        LossOutcome::RolledBack(_) | LossOutcome::Unharmed | LossOutcome::Ended => LossRemedy::None,
    }
}

fn heard(s: &Session) -> ClientKnowledge {
    let Some(upstream) = s.upstream() else { return ClientKnowledge::Nothing };
    let has_begun = upstream.txn.status != IDLE && !matches!(s.lazy_begin, LazyBegin::Sent(_));
    if has_begun { ClientKnowledge::Something } else { upstream.txn.heard }
}

fn outcome_of(s: &Session) -> LossOutcome {
    let Some(SessionServer { upstream, .. }) = &s.server else { return LossOutcome::Unharmed };
    let owed = upstream.replies.owed();
    let is_asked = owed.readies > 0 || owed.unsynced || owed.skipping;
    let under_way = match is_asked {
        true if upstream.replies.is_one_query() => UnderWay::OneQuery,
        true => UnderWay::Something,
        false => UnderWay::Nothing,
    };
    // A read before a deferred BEGIN runs outside of the transaction, but its loss is the transaction's.
    let is_within = upstream.txn.status != IDLE || (is_asked && s.lazy_begin.is_open());
    judge(&LostConn { is_within, control: upstream.txn.control, under_way, only_reads: upstream.only_reads() })
}

/// True if the server ended the session on purpose.
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

/// Returns the error that ends the session. An unknown outcome takes precedence.
fn ended_by(fault: ErrorReport, outcome: LossOutcome, left: &str) -> ErrorReport {
    let code = match outcome {
        LossOutcome::Unknown(_) => sqlstate::TRANSACTION_RESOLUTION_UNKNOWN,
        LossOutcome::Unharmed | LossOutcome::Ended | LossOutcome::RolledBack(_) => sqlstate::ADMIN_SHUTDOWN,
    };
    let text = format!("terminating connection: the session had state that was lost with its server ({left})");
    let detail = format!("{}: {}", fault.message, fault.detail);
    ErrorReport { hint: fault.hint, ..ErrorReport::fatal(code, text).detail(detail) }
}
