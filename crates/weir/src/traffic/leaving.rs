//! The end of a session: what becomes of its link, and what its client is still told; and what becomes of a session whose link ends.

use crate::client::inventory;
use crate::client::session::{IDLE, Session};
use crate::control::mail::Nudge;
use crate::io::reactor::parked;
use crate::monitor::fault::{Fault, sqlstate};
use crate::monitor::metrics::Metric;
use crate::process::shared::Stop;
use crate::process::worker::Worker;
use crate::server::pool::link;
use crate::traffic::begun;
use crate::traffic::cached;
use crate::traffic::net;
use crate::traffic::timing;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use weir_wire::frame::Header;

/// Time a client has to take the rest of what it is told when it is sent away.
const FAREWELL_LIMIT: Duration = Duration::from_secs(1);

/// Time a server may say nothing when its client has left; then the link is closed. A client that only ended its sending hears an answer that begins by then.
/// Of one that is gone a firewall may keep the word, and a statement may take hours: others wait for its link no longer than this.
const SILENCE_LIMIT: Duration = Duration::from_secs(10);

/// True if a client that has left has waited long enough for a server that says nothing. The server carries out what it was sent.
pub fn is_in_vain(s: &mut Session, w: &Worker) -> bool {
    if s.replies.is_empty() {
        return false;
    }
    let deadline = *s.leaves_by.get_or_insert(w.reactor.now() + SILENCE_LIMIT);
    w.reactor.wake_at(deadline);
    // What we ask for ourselves is worth the wait: the link may be another's then.
    w.reactor.now() >= deadline || (!s.replies.is_only_ours() && s.client.is_gone())
}

/// Sends what the client is still to be told. The link is not held meanwhile, and neither is a proxy that stops.
pub async fn tell_all(s: &mut Session, w: &Rc<Worker>) {
    let deadline = w.reactor.now() + FAREWELL_LIMIT;
    while matches!(s.down.drain(&s.client, &w.reactor), Ok(false)) && w.reactor.now() < deadline {
        w.reactor.wake_at(deadline);
        parked().await;
    }
}

/// What the session left on its link is cleaned, or the link is closed.
pub fn let_go(s: &mut Session, w: &Rc<Worker>) {
    let must_reset = inventory::leaves_something(s);
    if let Some(link) = s.link.take() {
        let cancelled = s.entry.cancels.get() > 0;
        let clean = s.is_at_rest() && !cancelled;
        s.detach();
        if !clean {
            w.close_link(link);
        } else if must_reset {
            w.reactor.spawn(link::reset(w.clone(), link));
        } else {
            let pool = link.pool.clone();
            pool.give_back(w, link);
        }
    }
}

/// Ends a session that has no link any more.
pub fn dismiss(mut s: Session, w: &Worker) {
    if s.state.redefines {
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
/// ends, and says what the server said. False: the link is gone.
#[cold]
pub fn refused_ahead(s: &mut Session, w: &Worker, header: Header, looks: bool, what: &str) -> Result<bool, Fault> {
    let body = if looks { s.down.whole(header).unwrap_or_default() } else { &[] };
    let report = weir_wire::back::read_report(body);
    let is_lost = matches!(report.severity, b"FATAL" | b"PANIC");
    let text = String::from_utf8_lossy(report.message).into_owned();
    let code = String::from_utf8_lossy(report.sqlstate).into_owned();
    if looks && !is_lost && s.replies.is_setting() && inventory::cleans(s, w, &text) {
        s.down.eat(header);
        return Ok(true);
    }
    if looks && net::on_refused_ahead(s, w, header, is_lost) {
        cached::undone(s);
        cached::lost(s, w);
        return Ok(false);
    }
    s.down.eat(header);
    if is_lost {
        s.farewell = Some(Fault::error(&code, text));
        return Ok(true);
    }
    Err(Fault::fatal(&code, format!("{what}: {text}")))
}

/// The link is gone. A session that had nothing on it goes on: each statement under way gets its error. Else it ends.
pub fn link_lost(s: &mut Session, w: &Rc<Worker>, cause: &str) -> Result<(), Fault> {
    let Some(link) = s.link.take() else { return Ok(()) };
    w.count(Metric::LinksLost);
    let address = link.card.address.clone();
    let cause = if link.card.given_up.load(Ordering::Relaxed) { "the server does not answer any more" } else { cause };
    w.log_link(&address, format_args!("lost: {cause}"));
    w.shared.nudge_prober(Nudge::ConnectionLost);
    w.close_link(link);
    let was_on_reader = s.net.is_on_reader;
    if w.shared.stop_mode() < Stop::Fast && net::on_loss(s, w) {
        cached::undone(s);
        if !was_on_reader {
            // A primary that went down may have lost what it had not flushed.
            cached::lost(s, w);
        }
        return Ok(());
    }
    // Whether a transaction that may have ended was committed only the server knows; what the client sends next may count on it.
    let lost_transaction = (!begun::lost(s, w) && s.transaction != IDLE) || s.transacts;
    let lost_state = lost_transaction || inventory::leaves_something(s) || s.down.is_mid_message();
    s.down.drop_unseen();
    s.up.forget_pending(&w.buffers);
    let fault = s.farewell.take().unwrap_or_else(|| {
        Fault::error(sqlstate::CONNECTION_FAILURE, format!("connection to {address} was lost: {cause}"))
            .hint("The statement may or may not have taken effect.")
    });
    s.detach();
    if s.state.redefines {
        // It may have been carried out.
        s.tell_change(w);
    }
    timing::lost(s, w);
    cached::lost(s, w);
    (s.barrier, s.verb_bound) = (false, false);
    let was_telling = s.state.owes_ready;
    s.state.link_lost();
    let replies = std::mem::take(&mut s.replies);
    if lost_state || s.up.is_mid_message() {
        return Err(fault.as_fatal());
    }
    s.undo_all();
    if was_telling {
        s.say_ready(w);
    }
    let owed = replies.owed();
    for _ in 0..owed.readies {
        s.say_error(w, &fault);
        s.say_ready(w);
    }
    if owed.unsynced {
        s.say_error(w, &fault);
        s.discarding = true;
    }
    s.discarding |= owed.skipping;
    if w.shared.stop_mode() == Stop::Fast {
        return Err(fault.as_fatal());
    }
    Ok(())
}
