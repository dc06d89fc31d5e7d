//! The end of a session: its client hears the rest, and its place is free again.

use crate::traffic::served::{ServedSession, SessionSockets};
use std::time::Duration;
use weir_io::reactor::parked;
use weir_session::teardown;

/// Time a client has to take the rest of what it is told when it is sent away.
const FAREWELL_LIMIT: Duration = Duration::from_secs(1);

/// Sends what the client is still to be told. The server connection is not held meanwhile, and neither is a proxy that stops.
pub async fn tell_all(served: &mut ServedSession) {
    let ServedSession { s, sockets: SessionSockets { client, .. }, w } = served;
    let deadline = w.now() + FAREWELL_LIMIT;
    while matches!(s.down.drain(client, &w.reactor), Ok(false)) && w.now() < deadline {
        w.reactor.wake_at(deadline);
        parked().await;
    }
}

/// Ends a session that has no server connection any more. The socket is closed last: a client that sees the end finds its place free
/// and its process id unknown.
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
