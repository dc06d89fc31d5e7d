//! Asks servers for the defaults that connections begin with, and says once which nodes have others than the primary.

use super::ask;
use crate::log::Level;
use crate::runtime::pool::server_conn::{MessageConn, OpenError, ServerAddress, ServerConn, flooded, note};
use crate::runtime::worker::Worker;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_session::reports::ReportedParameters;
use weir_session::session_state::server_defaults::{DefaultDifference, QUESTION, ServerDefaults};

/// Time for the answer over a connection that was at rest.
const ASK_LIMIT: Duration = Duration::from_secs(10);

/// Parameters that a line of the log names.
const NAMES_MAX: usize = 8;

/// Asks over a connection that nobody has used. A server that refuses to answer says nothing of its defaults, which is no reason not to use it. Not
/// cancel safe.
pub async fn ask_first(
    w: &Worker,
    talk: &mut MessageConn,
    address: &ServerAddress,
    reported: &mut ReportedParameters,
) -> Result<Arc<ServerDefaults>, OpenError> {
    let rows = match talk.query(w, address, QUESTION).await {
        Ok(rows) => rows,
        Err(OpenError::Refused { .. }) => return Ok(w.shared.unknown_defaults()),
        Err(error) => return Err(error),
    };
    talk.reports.iter().try_for_each(|body| note(reported, address, body))?;
    let defaults = ServerDefaults::of(address.node, &rows, reported.iter()).map_err(|cause| flooded(address, cause))?;
    let defaults = w.shared.intern_defaults(defaults);
    compare(w, address.node, &defaults);
    Ok(defaults)
}

/// Asks over a connection that was at rest when its server read its configuration anew. `None`: it is closed. Not cancel safe.
pub async fn ask_again(w: &Worker, mut conn: ServerConn) -> Option<ServerConn> {
    let node = conn.status.address.node;
    let reloads = w.shared.stale.reloads.of(node);
    if conn.defaults.are_unknown() {
        conn.reloads = reloads;
        return Some(conn);
    }
    let (mut conn, answer) = ask(w, conn, QUESTION, Instant::now() + ASK_LIMIT).await;
    let reread = match answer {
        Ok(rows) => conn.defaults.reread(node, &rows, &conn.settings, conn.reported.iter()).map_err(|cause| cause.to_string()),
        Err(OpenError::Refused { .. }) => Ok((*conn.defaults).clone()),
        Err(error) => Err(error.to_string()),
    };
    match reread {
        Ok(defaults) => {
            conn.defaults = w.shared.intern_defaults(defaults);
            conn.reloads = reloads;
            compare(w, node, &conn.defaults);
            Some(conn)
        }
        Err(cause) => {
            w.log_conn(&conn.status.address, format_args!("closed, since its defaults could not be asked for: {cause}"));
            w.close_conn(conn);
            None
        }
    }
}

fn compare(w: &Worker, node: u16, defaults: &Arc<ServerDefaults>) {
    let Some(primary) = w.primary_node() else { return };
    for (node, differences) in w.shared.cluster.defaults.take_in(node, defaults, primary) {
        let text = format_args!(
            "node {node}: its configuration has other settings for sessions than that of node {primary}, the primary: {}; sessions keep those of \
             their login on both. Make the configurations alike",
            words(&differences)
        );
        w.shared.log.say(Level::Warning, text);
    }
}

fn words(differences: &[DefaultDifference]) -> String {
    let one = |DefaultDifference { name, here, there }: &DefaultDifference| format!("{name} = '{here}' and not '{there}'");
    let mut all: Vec<String> = differences.iter().take(NAMES_MAX).map(one).collect();
    if differences.len() > NAMES_MAX {
        all.push(format!("and {} more", differences.len() - NAMES_MAX));
    }
    all.join(", ")
}
