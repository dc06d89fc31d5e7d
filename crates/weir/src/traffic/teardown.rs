//! The end of a session: what becomes of its server connection, and what its client is still told; and what becomes of a session whose server connection ends.

use crate::client::session::{Fate, IDLE, LazyBegin, Presence, Server, Session};
use crate::client::session_state;
use crate::client::upstream::left::Telling;
use crate::control::mail::Nudge;
use crate::monitor::fault::{Fault, sqlstate};
use crate::monitor::metrics::Metric;
use crate::process::shared::Stop;
use crate::process::worker::Worker;
use crate::server::pool::server_conn;
use crate::traffic::concern;
use crate::traffic::query_cache;
use crate::traffic::read_retry;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use weir_io::reactor::parked;
use weir_policy::failover::LinkEnd;
use weir_policy::replies::Owed;
use weir_wire::frame::Header;

/// Time a client has to take the rest of what it is told when it is sent away.
const FAREWELL_LIMIT: Duration = Duration::from_secs(1);

/// Time a server may say nothing when its client has left; then the server connection is closed. A client that only ended its sending hears an answer that begins by then.
/// Of one that is gone a firewall may keep the word, and a statement may take hours: others wait for its server connection no longer than this.
const SILENCE_LIMIT: Duration = Duration::from_secs(10);

/// True if a client that has left has waited long enough for a server that says nothing. The server carries out what it was sent.
pub fn is_in_vain(s: &mut Session, w: &Worker) -> bool {
    if s.replies().is_empty() {
        return false;
    }
    let deadline = match s.intake.presence {
        Presence::LeftUntil(deadline) => deadline,
        Presence::Here | Presence::Left => w.reactor.now() + SILENCE_LIMIT,
    };
    s.intake.presence = Presence::LeftUntil(deadline);
    w.reactor.wake_at(deadline);
    // What we ask for ourselves is worth the wait: the server connection may be another's then.
    w.reactor.now() >= deadline || (!s.replies().is_only_ours() && s.client.is_gone())
}

/// Sends what the client is still to be told. The server connection is not held meanwhile, and neither is a proxy that stops.
pub async fn tell_all(s: &mut Session, w: &Rc<Worker>) {
    let deadline = w.reactor.now() + FAREWELL_LIMIT;
    while matches!(s.down.drain(&s.client, &w.reactor), Ok(false)) && w.reactor.now() < deadline {
        w.reactor.wake_at(deadline);
        parked().await;
    }
}

/// What the session left on its server connection is cleaned, or the connection is closed.
pub fn let_go(s: &mut Session, w: &Rc<Worker>) {
    let leaves_something = session_state::leaves_something(s);
    let is_clean = s.is_at_rest() && s.entry.cancels.get() == 0;
    if is_clean && !leaves_something {
        if let Some(conn) = s.release(w) {
            let pool = conn.pool.clone();
            pool.give_back(w, conn);
        }
    } else if let Some((conn, _)) = s.lose(w, Fate::Unknown) {
        if is_clean {
            w.reactor.spawn(server_conn::reset(w.clone(), conn));
        } else {
            w.close_conn(conn);
        }
    }
}

/// Ends a session that has no server connection any more.
pub fn dismiss(mut s: Session, w: &Worker) {
    if s.state.effects.redefines {
        s.tell_change(w);
    }
    s.client.close(&w.reactor);
    w.leave(&s.entry);
    let card = &s.entry.card;
    w.shared.cards.remove(card.pid);
    if w.peek_config().log.disconnections {
        w.log_client(card, "disconnection");
    }
    w.client_gone();
}

/// What must come before the client's statement cannot. If the server goes down, or is a standby, another one may do it; else the session
/// ends, and says what the server said. False: the server connection is gone.
#[cold]
pub fn refused_ahead(s: &mut Session, w: &Worker, header: Header, looks: bool, what: &str) -> Result<bool, Fault> {
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
pub fn conn_lost(s: &mut Session, w: &Rc<Worker>, cause: &str) -> Result<(), Fault> {
    let Some(conn) = s.conn() else { return Ok(()) };
    w.count(Metric::ConnsLost);
    let address = conn.card.address.clone();
    let is_given_up = conn.card.given_up.load(Ordering::Relaxed);
    let cause = if is_given_up { "the server does not answer any more" } else { cause };
    w.log_conn(&address, format_args!("lost: {cause}"));
    if !is_given_up {
        let last_word = s.upstream().and_then(|upstream| upstream.final_error.as_ref()).map(|fault| fault.sqlstate.as_str());
        w.shared.link_died(address.node, LinkEnd::of_sqlstate(last_word));
    }
    w.shared.nudge_prober(Nudge::ConnectionLost);
    let was_on_standby = s.is_on_standby();
    if w.shared.stop_mode() < Stop::Fast && read_retry::on_loss(s, w) {
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
    w.close_conn(conn);
    concern::lost(s, w);
    if lost_state || s.up.is_mid_message() {
        return Err(fault.as_fatal());
    }
    if owes_ready {
        s.say_ready(w);
    }
    tell_owed(s, w, owed, &fault);
    if w.shared.stop_mode() == Stop::Fast { Err(fault.as_fatal()) } else { Ok(()) }
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
fn tell_owed(s: &mut Session, w: &Worker, owed: Owed, fault: &Fault) {
    for _ in 0..owed.readies {
        s.say_error(w, fault);
        s.say_ready(w);
    }
    if owed.unsynced {
        s.say_error(w, fault);
    }
    s.intake.skip = s.intake.skip.or_if(owed.unsynced || owed.skipping);
}
