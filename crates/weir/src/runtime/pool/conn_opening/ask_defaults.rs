//! Asks servers for the defaults of connections, and logs once which nodes differ from the primary.

use super::ask;
use crate::log::Level;
use crate::runtime::pool::server_conn::{MessageConn, OpenError, ServerAddress, ServerConn, flooded, note};
use crate::runtime::worker::Worker;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_session::reports::ReportedParameters;
use weir_session::session_state::server_defaults::{DefaultDifference, QUESTION, ServerDefaults};

const ASK_LIMIT: Duration = Duration::from_secs(10);

const NAMES_MAX: usize = 8;

/// Asks over an unused connection. A server that refuses to answer is used all the same. Not cancel safe.
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

/// Asks after the server has reloaded its configuration. `None`: the connection is closed. Not cancel safe.
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
