//! Keeps as many server connections open as `min_pool_size` wants, for users and databases with clients.

use crate::process::shared::Stop;
use crate::process::worker::Worker;
use crate::server::lease;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use weir_policy::cluster::Health;
use weir_policy::pool::missing;

/// Time between two looks. A server connection that could not be opened is tried again then.
const PERIOD: Duration = Duration::from_millis(500);
/// Conns opened for one pool at once: a server that comes back is not to be stormed.
const OPENS_MAX: u32 = 8;

/// Runs on the first worker for the proxy's life.
pub async fn keep(w: Rc<Worker>) {
    while w.shared.stop_mode() == Stop::No {
        w.reactor.sleep(PERIOD).await;
        let wants = {
            let limits = &w.peek_config().limits;
            limits.pool_min > 0 || !limits.overrides.is_empty()
        };
        if wants {
            open_missing(&w);
        }
    }
}

fn open_missing(w: &Rc<Worker>) {
    let statuses = w.shared.session_statuses.all();
    let wanted: HashSet<(&Arc<str>, &Arc<str>)> = statuses.iter().map(|status| (&status.server_user, &status.database)).collect();
    for pool in w.shared.pools.all() {
        let key = &pool.key;
        let limits = pool.limits();
        let lacking = missing(pool.census().1, limits.pool_min, limits.pool_size);
        let is_up = w.view().nodes.iter().any(|node| node.id == key.node && node.health != Health::Down);
        if lacking == 0 || !is_up || !wanted.contains(&(&key.user, &key.client_database)) {
            continue;
        }
        for _ in 0..lacking.min(OPENS_MAX) {
            if !pool.permit_warm(w) {
                break;
            }
            let (w, pool) = (w.clone(), pool.clone());
            let worker = w.clone();
            worker.reactor.spawn(async move {
                // An error is in the log, and its permission given back.
                if let Ok(conn) = lease::open(&w, &pool, pool.key.node, &[]).await {
                    pool.give_back(&w, conn);
                }
            });
        }
    }
}
