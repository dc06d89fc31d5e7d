//! Sessions of a database that has just come into use, or again after a while, wait until its catalog is known.

use crate::process::worker::Worker;
use std::time::Duration;
use weir_io::reactor::parked;
use weir_session::catalogs::Database;
use weir_session::handle::SessionHandle;

/// Sessions wait for so long from when the watch of their database began until it is known.
const LIMIT: Duration = Duration::from_secs(1);

/// Waits until a database is known, so that its first statements need not ask what they leave behind; not for long: they can. Ends at once for a
/// session that is to end. Cancel safe.
pub async fn wait(w: &Worker, database: &Database, entry: &SessionHandle) {
    let until = database.watched_since() + LIMIT;
    let goes_on = || w.now() < until && entry.final_error.borrow().is_none();
    while goes_on() && database.is_untried((w.id, w.reactor.current_task())) {
        w.reactor.wake_at(until);
        parked().await;
    }
}
