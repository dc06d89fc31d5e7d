//! The end of a session: what becomes of its link, and what its client is still told.

use crate::client::inventory;
use crate::client::session::Session;
use crate::io::reactor::parked;
use crate::monitor::fault::Fault;
use crate::process::worker::Worker;
use crate::server::link;
use crate::traffic::cached;
use crate::traffic::net;
use std::rc::Rc;
use std::time::Duration;
use weir_wire::frame::Header;

/// Time a client has to take the rest of what it is told when it is sent away.
const FAREWELL_LIMIT: Duration = Duration::from_secs(1);

/// Time a server gets to answer what we ask it when its client has left; then the link is closed.
const GOODBYE_LIMIT: Duration = Duration::from_secs(10);

/// Whether a client that has left has waited long enough for the answer to a question of ours, of a server that says nothing.
pub fn is_in_vain(s: &mut Session, w: &Worker) -> bool {
    if s.replies.is_empty() || !s.replies.is_only_ours() {
        return false;
    }
    let deadline = *s.leaves_by.get_or_insert(w.reactor.now() + GOODBYE_LIMIT);
    w.reactor.wake_at(deadline);
    w.reactor.now() >= deadline
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
    if looks && net::on_refused_ahead(s, w, header, is_lost) {
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
