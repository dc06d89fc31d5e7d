//! Sessions of a database that has just come into use, or again after a while, wait until its catalog is known.

use crate::runtime::worker::Worker;
use std::sync::atomic::Ordering;
use std::time::Duration;
use weir_io::reactor::parked;
use weir_io::socket::Socket;
use weir_session::catalogs::KnownDatabase;
use weir_session::handle::SessionHandle;
use weir_session::status::SessionActivity;

/// Sessions wait for so long from when the watch of their database began until it is known.
const LIMIT: Duration = Duration::from_secs(1);

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CatalogWaitEnd {
    /// The session goes on.
    Goes,
    /// The client has sent a statement, and a cancel request behind it.
    Cancelled,
}

/// True if no session waits for the database any more.
pub fn is_over(w: &Worker, database: &KnownDatabase) -> bool {
    !database.is_watched() || w.now() >= database.watched_since() + LIMIT
}

/// Waits until a database is known, so that its first statements need not ask what they leave behind; not for long: they can. Ends at once for a
/// session that is to end, or whose client has left, and for a cancel request. Cancel safe.
pub async fn wait(w: &Worker, database: &KnownDatabase, entry: &SessionHandle, client: &Socket) -> CatalogWaitEnd {
    let until = database.watched_since() + LIMIT;
    let goes_on = || w.now() < until && entry.final_error.borrow().is_none() && !client.is_closed();
    let is_cancelled = || entry.wait_cancelled.get();
    while goes_on() && !is_cancelled() && database.is_untried((w.id, w.reactor.current_task())) {
        // A statement that is there waits, and can be cancelled. A cancel request without one is of nothing.
        if client.is_readable() && entry.status.doing() != SessionActivity::WaitingForConnection {
            entry.status.set_doing(SessionActivity::WaitingForConnection);
            entry.status.waiting_ms.store(w.now_ms(), Ordering::Relaxed);
        }
        w.reactor.wake_at(until);
        parked().await;
    }
    entry.status.set_doing(SessionActivity::Idle);
    if entry.wait_cancelled.take() { CatalogWaitEnd::Cancelled } else { CatalogWaitEnd::Goes }
}
