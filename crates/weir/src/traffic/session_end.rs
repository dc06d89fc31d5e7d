//! The end of a session: its client gets the rest, and its place is freed.

use crate::traffic::served::{ServedSession, SessionSockets};
use std::time::Duration;
use weir_io::reactor::parked;
use weir_session::teardown;

const FAREWELL_LIMIT: Duration = Duration::from_secs(1);

/// Sends the client the rest. Neither a server connection nor a stop of the proxy waits for it.
pub async fn tell_all(served: &mut ServedSession) {
    let ServedSession { s, sockets: SessionSockets { client, .. }, w } = served;
    let deadline = w.now() + FAREWELL_LIMIT;
    while matches!(s.down.drain(client, &w.reactor), Ok(false)) && w.now() < deadline {
        w.reactor.wake_at(deadline);
        parked().await;
    }
}

/// Closes the socket last: a client that sees the end finds its place free and its process id unknown.
pub fn dismiss(served: ServedSession) {
    let ServedSession { mut s, sockets: SessionSockets { client, .. }, w } = served;
    teardown::end(&mut s, &w);
    let status = s.handle.status.clone();
    w.leave(&s.handle);
    w.shared.session_statuses.remove(status.pid);
    if w.peek_config().log.disconnections {
        w.log_client(&status, "disconnection");
    }
    w.client_gone();
    client.close(&w.reactor);
}
