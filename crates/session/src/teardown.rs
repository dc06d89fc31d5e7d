//! The end of a session: what becomes of its server connection, and what its client is still told; and what becomes of a session whose server connection ends.

use crate::concern;
use crate::context::Context;
use crate::fault::{Fault, sqlstate};
use crate::host::Nudge;
use crate::host::Stop;
use crate::metrics::Metric;
use crate::query_cache;
use crate::read_retry;
use crate::session::{Fate, IDLE, LazyBegin, Presence, Server, Session};
use crate::session_state;
use crate::upstream::left::Telling;
use std::sync::atomic::Ordering;
use std::time::Duration;
use weir_policy::failover::LinkEnd;
use weir_policy::replies::Owed;
use weir_wire::frame::Header;

/// Time a server may say nothing when its client has left; then the server connection is closed. A client that only ended its sending hears an answer that begins by then.
/// Of one that is gone a firewall may keep the word, and a statement may take hours: others wait for its server connection no longer than this.
const SILENCE_LIMIT: Duration = Duration::from_secs(10);

/// True if a client that has left has waited long enough for a server that says nothing. The server carries out what it was sent.
pub fn is_in_vain(s: &mut Session, w: &Context, is_gone: impl FnOnce() -> bool) -> bool {
    if s.replies().is_empty() {
        return false;
    }
    let deadline = match s.intake.presence {
        Presence::LeftUntil(deadline) => deadline,
        Presence::Here | Presence::Left => w.now() + SILENCE_LIMIT,
    };
    s.intake.presence = Presence::LeftUntil(deadline);
    s.host.wake_at(deadline);
    // What we ask for ourselves is worth the wait: the server connection may be another's then.
    w.now() >= deadline || (!s.replies().is_only_ours() && is_gone())
}

/// What the session left on its server connection is cleaned, or the connection is closed.
pub fn let_go(s: &mut Session, w: &Context) {
    let leaves_something = session_state::leaves_something(s);
    let is_clean = s.is_at_rest() && s.entry.cancels.get() == 0;
    if is_clean && !leaves_something {
        if let Some(conn) = s.release(w) {
            s.host.give_back(conn);
        }
    } else if let Some((conn, _)) = s.lose(w, Fate::Unknown) {
        if is_clean {
            s.host.reset(conn);
        } else {
            s.host.close(conn);
        }
    }
}

/// The session ends, and has no server connection any more.
pub fn end(s: &mut Session, w: &Context) {
    if s.state.effects.redefines {
        s.tell_change(w);
    }
}

/// What must come before the client's statement cannot. If the server goes down, or is a standby, another one may do it; else the session
/// ends, and says what the server said. False: the server connection is gone.
#[cold]
pub fn refused_ahead(s: &mut Session, w: &Context, header: Header, looks: bool, what: &str) -> Result<bool, Fault> {
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
            upstream.final_error = Some(Fault::error(&code, text));
        }
        return Ok(true);
    }
    Err(Fault::fatal(&code, format!("{what}: {text}")))
}

/// The server connection is gone. A session that had nothing on it goes on: each statement under way gets its error. Else it ends.
pub fn conn_lost(s: &mut Session, w: &Context, cause: &str) -> Result<(), Fault> {
    let Some(conn) = s.conn() else { return Ok(()) };
    w.count(Metric::ConnsLost);
    let address = conn.card.address.clone();
    let is_given_up = conn.card.given_up.load(Ordering::Relaxed);
    let cause = if is_given_up { "the server does not answer any more" } else { cause };
    w.log_conn(&address, format_args!("lost: {cause}"));
    if !is_given_up {
        let last_word = s.upstream().and_then(|upstream| upstream.final_error.as_ref()).map(|fault| fault.sqlstate.as_str());
        w.program.link_died(address.node, LinkEnd::of_sqlstate(last_word));
    }
    w.program.look(Nudge::ConnectionLost);
    let was_on_standby = s.is_on_standby();
    if w.program.stop_mode() < Stop::Fast && read_retry::on_loss(s, w) {
        if !was_on_standby {
            // A primary that went down may have lost what it had not flushed.
            query_cache::lost(s, w);
        }
        return Ok(());
    }
    let lost_state = loses_something(s);
    let said = s.upstream_mut().and_then(|upstream| upstream.final_error.take());
    let fault = said.unwrap_or_else(|| {
        Fault::error(sqlstate::CONNECTION_FAILURE, format!("connection to {address} was lost: {cause}"))
            .hint("The statement may or may not have taken effect.")
    });
    let owes_ready = s.upstream().is_some_and(|upstream| upstream.resetting.telling == Telling::OwesReady);
    let Some((conn, owed)) = s.lose(w, Fate::Unknown) else { return Ok(()) };
    s.host.close(conn);
    concern::lost(s, w);
    if lost_state || s.up.is_mid_message() {
        return Err(fault.as_fatal());
    }
    if owes_ready {
        s.say_ready(w);
    }
    tell_owed(s, w, owed, &fault);
    if w.program.stop_mode() == Stop::Fast { Err(fault.as_fatal()) } else { Ok(()) }
}

/// True if the session cannot go on without its server connection. Whether a transaction that may have ended was committed only the server
/// knows; what the client sends next may count on it.
fn loses_something(s: &Session) -> bool {
    let Some(Server { upstream, .. }) = &s.server else { return false };
    // Of a transaction whose BEGIN is not answered yet nothing else was sent.
    let is_within = upstream.txn.status != IDLE && !matches!(s.lazy_begin, LazyBegin::Sent(_));
    is_within || upstream.txn.is_unsure || session_state::leaves_something(s) || s.down.is_mid_message()
}

/// Each statement that was under way gets its error.
fn tell_owed(s: &mut Session, w: &Context, owed: Owed, fault: &Fault) {
    for _ in 0..owed.readies {
        s.say_error(w, fault);
        s.say_ready(w);
    }
    if owed.unsynced {
        s.say_error(w, fault);
    }
    s.intake.skip = s.intake.skip.or_if(owed.unsynced || owed.skipping);
}
