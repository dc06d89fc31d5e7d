//! Frees databases for statements like `DROP DATABASE`.
//!
//! Idle server connections count as users of the database. So they are closed before such a statement is sent, unless clients are
//! connected: then the server is to refuse. The server waits five seconds for others to leave (`CountOtherDBBackends` in procarray.c),
//! and so does Weir: a client's end may not be noticed yet.

use crate::runtime::shared::WorkerMessage;
use crate::runtime::worker::Worker;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// As long as the server waits.
const PATIENCE: Duration = Duration::from_secs(5);
const PERIOD: Duration = Duration::from_millis(20);

#[cold]
pub fn begin(w: &Rc<Worker>, databases: &[String]) {
    for database in databases {
        if try_vacate(w, database) {
            continue;
        }
        let (w, database) = (w.clone(), database.clone());
        let worker = w.clone();
        worker.reactor.spawn(async move {
            let deadline = w.now() + PATIENCE;
            while !try_vacate(&w, &database) && w.now() < deadline {
                w.reactor.sleep(PERIOD).await;
            }
        });
    }
}

/// Closes the server connections to a database, busy ones when they come back. False: clients are connected to it.
fn try_vacate(w: &Worker, database: &str) -> bool {
    if w.shared.clients.counts.has_clients_of(database) {
        return false;
    }
    w.shared.pools.of_database(Some(database)).iter().for_each(|pool| pool.renew(w));
    // Connections of catalog looks are closed, too.
    for known in w.shared.catalogs.all().iter().filter(|known| *known.name == *database) {
        known.want_empty();
        w.shared.note_change(known);
    }
    // A new database may get the name, with another greeting and other functions.
    w.shared.tell_all(|| WorkerMessage::Refresh);
    w.shared.catalogs.definitions.fetch_add(1, Ordering::Relaxed);
    true
}
