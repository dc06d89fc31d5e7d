//! A worker's work of each second: closes due idle server connections, sets its scheduling, and reports that it runs.

use crate::log::Level;
use crate::process::turns::{ThreadSchedStats, YieldPolicy};
use crate::runtime::pool::server_conn::ServerAddress;
use crate::runtime::worker::Worker;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use weir_failover::cluster::ClusterView;
use weir_session::checkout::pool_grant::{RetireReason, retire};

const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// Run time and wait time of this thread.
const OWN_SCHEDSTAT: &str = "/proc/thread-self/schedstat";

/// Never ends. Cancel safe.
pub async fn housekeep(w: Rc<Worker>) {
    let mut turns = YieldPolicy::default();
    loop {
        take_turns(&w, &mut turns);
        w.reactor.sleep(HOUSEKEEPING).await;
        retire_conns(&w);
        w.forget_unused();
        w.mailbox().beat_ms.store(w.millis(Instant::now()), Ordering::Relaxed);
        w.reactor.sweep();
        w.reactor.align_clock();
    }
}

/// Sets how this thread is scheduled, where permitted.
fn take_turns(w: &Worker, turns: &mut YieldPolicy) {
    let wished = w.peek_config().worker_yields;
    let counted = if wished { std::fs::read_to_string(OWN_SCHEDSTAT).ok() } else { None };
    let yields = turns.yields(wished, counted.as_deref().and_then(ThreadSchedStats::parse));
    if let Err(cause) = weir_ring::yield_when_woken(yields) {
        w.shared.log.say(Level::Debug1, format_args!("worker_scheduling has no effect: {cause}"));
    }
}

/// Closes idle server connections that are too old, unused for too long, or dead.
fn retire_conns(w: &Worker) {
    let config = w.config();
    let now = w.now_us();
    let places = w.view().clone();
    for pool in w.shared.pools.all() {
        let own = pool.limits();
        let mut above = pool.counts().1.saturating_sub(own.pool_size);
        let gone = pool.retire(|conn, surplus| {
            if conn.transport.home != w.id {
                return false;
            }
            if above > 0 || is_elsewhere(&places, &conn.status.address) {
                above = above.saturating_sub(1);
                return true;
            }
            let (age_ms, idle_ms) = conn.ages_ms(now);
            let limits = (own.on_release.conn_life_ms, config.pool.server_idle_timeout_ms);
            let why = retire(age_ms, idle_ms, conn.jitter(), limits.0, limits.1);
            let goes = match why {
                Some(RetireReason::Lifetime) => true,
                // Connections kept by `min_pool_size` are idle by nature.
                Some(RetireReason::Idle) => surplus > 0,
                None => false,
            };
            goes || !conn.is_fresh(now)
        });
        for conn in gone {
            w.close_conn(conn);
        }
    }
}

fn is_elsewhere(view: &ClusterView, address: &ServerAddress) -> bool {
    let now = view.nodes.iter().find(|node| node.id == address.node);
    now.is_some_and(|node| (&node.hostname, node.port) != (&address.hostname, address.port))
}
