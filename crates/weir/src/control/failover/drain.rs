//! Waits until sessions have nothing open on a node.

use crate::control::control_context::ControlContext;
use crate::log::Level;
use crate::runtime::shared::SharedState;
use std::sync::atomic::Ordering;
use std::time::Duration;
use weir_failover::NodeId;
use weir_session::status::SessionActivity;

const PERIOD: Duration = Duration::from_millis(1);

/// Waits until all workers know the view and nothing is open. Cancel safe.
pub async fn drain(c: &ControlContext, node: NodeId, limit: Duration) {
    if tokio::time::timeout(limit, drained(c, node)).await.is_err() {
        let open = open(&c.shared, |of| of == node);
        let text = format_args!("node {node}: {open} transactions did not end in {} ms, and are ended", limit.as_millis());
        c.shared.log.say(Level::Warning, text);
    }
}

/// `drain` without a limit. Cancel safe.
pub async fn drained(c: &ControlContext, node: NodeId) {
    let generation = c.view.borrow().generation;
    // A worker with an older view may still begin something.
    let all_know = || c.shared.mailboxes.iter().all(|mailbox| mailbox.view_known.load(Ordering::Acquire) >= generation);
    while !all_know() || open(&c.shared, |of| of == node) > 0 {
        tokio::time::sleep(PERIOD).await;
    }
}

/// Counts sessions with a transaction or a statement; an idle one that keeps its connection does not count.
pub fn open(shared: &SharedState, is_meant: impl Fn(NodeId) -> bool) -> usize {
    let pools = shared.pools.all();
    let statuses = pools.iter().filter(|pool| is_meant(pool.key.node) && pool.is_shared()).flat_map(|pool| pool.statuses());
    let is_open = |pid: u32, is_kept: bool| {
        let rests = || shared.session_statuses.get(pid).is_some_and(|session| session.doing() == SessionActivity::Idle);
        pid != 0 && !(is_kept && rests())
    };
    statuses
        .filter(|status| is_open(status.session.load(Ordering::Relaxed), status.keeping.code.load(Ordering::Relaxed) != 0))
        .count()
}
