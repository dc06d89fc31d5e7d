//! Sessions of a database that comes into use wait until its catalog is known.

use crate::runtime::worker::Worker;
use std::sync::atomic::Ordering;
use std::time::Duration;
use weir_io::reactor::parked;
use weir_io::socket::Socket;
use weir_session::catalogs::KnownDatabase;
use weir_session::handle::SessionHandle;
use weir_session::status::SessionActivity;

/// Longest wait, from the start of the database's watch.
const LIMIT: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CatalogWaitEnd {
    Goes,
    /// A cancel request came after a statement, and `SessionHandle::wait_cancelled` says so.
    Cancelled,
}

pub fn is_over(w: &Worker, database: &KnownDatabase) -> bool {
    !database.is_watched() || w.now() >= database.watched_since() + LIMIT
}

/// Waits briefly until a database is known, so that its first statements need not ask for their effects. Ends at once on a cancel request
/// or the end of the session. Cancel safe.
pub async fn wait(w: &Worker, database: &KnownDatabase, entry: &SessionHandle, client: &Socket) -> CatalogWaitEnd {
    let until = database.watched_since() + LIMIT;
    let goes_on = || w.now() < until && entry.final_error.borrow().is_none() && !client.is_closed();
    let is_cancelled = || entry.wait_cancelled.get();
    while goes_on() && !is_cancelled() && database.is_untried((w.id, w.reactor.current_task())) {
        // A waiting statement can be cancelled. Without one a cancel request has no object.
        if client.is_readable() && entry.status.doing() != SessionActivity::WaitingForConnection {
            entry.status.set_doing(SessionActivity::WaitingForConnection);
            entry.status.waiting_ms.store(w.now_ms(), Ordering::Relaxed);
        }
        w.reactor.wake_at(until);
        parked().await;
    }
    entry.status.set_doing(SessionActivity::Idle);
    if is_cancelled() { CatalogWaitEnd::Cancelled } else { CatalogWaitEnd::Goes }
}
