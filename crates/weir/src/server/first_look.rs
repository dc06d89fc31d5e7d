//! Sessions of a database that has just come into use wait until its catalog is known.

use crate::process::worker::{Entry, Worker};
use crate::server::catalogs::Database;
use std::time::Duration;
use weir_io::reactor::parked;

/// Sessions wait for so long from when their database was first named until it is known.
const LIMIT: Duration = Duration::from_secs(1);

/// Waits until a database is known, so that its first statements need no question for the state they leave. Not for long, since
/// they can ask. Ends at once for a session that is to end. Cancel safe.
pub async fn wait(w: &Worker, database: &Database, entry: &Entry) {
    let until = database.named_at + LIMIT;
    let goes_on = || w.reactor.now() < until && entry.farewell.borrow().is_none();
    while goes_on() && database.is_untried((w.id, w.reactor.current_task())) {
        w.reactor.wake_at(until);
        parked().await;
    }
}
