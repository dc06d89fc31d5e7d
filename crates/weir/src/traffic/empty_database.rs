//! Makes room for statements that want a database nobody is connected to: `DROP DATABASE` and its kin.
//!
//! A server connection at rest counts as somebody for the server, where a client's own connection would have ended with the client.
//! So server connections at rest go before such a statement is sent. If clients of ours are connected to the database, these stay at rest: the server is
//! to refuse, as it would without us. The server itself waits five seconds for others to leave (`CountOtherDBBackends` in procarray.c), and so
//! do we: a client that left just now may not be noticed yet.

use crate::runtime::shared::WorkerMessage;
use crate::runtime::worker::Worker;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// As long as the server waits.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time between two looks.
const PERIOD: Duration = Duration::from_millis(20);

/// A statement that wants these databases for itself is about to be sent.
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

/// Closes the server connections to a database, those at rest now and the others when they come back. False: clients are connected to it.
fn try_vacate(w: &Worker, database: &str) -> bool {
    if w.shared.clients.counts.has_clients_of(database) {
        return false;
    }
    w.shared.pools.of_database(Some(database)).iter().for_each(|pool| pool.renew(w));
    // So does what reads the catalog.
    for known in w.shared.catalogs.all().iter().filter(|known| *known.name == *database) {
        known.want_empty();
        w.shared.note_change(known);
    }
    // Another database may have the name soon: neither its greeting nor its functions are those we know.
    w.shared.tell_all(|| WorkerMessage::Refresh);
    w.shared.catalogs.definitions.fetch_add(1, Ordering::Relaxed);
    true
}
