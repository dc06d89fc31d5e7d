//! Waits until sessions have nothing open on a node: new work does not begin there, and that which runs ends by itself.

use crate::control::context::Control;
use crate::monitor::log::Level;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;
use weir_policy::failover::NodeId;
use weir_session::status::Doing;

const PERIOD: Duration = Duration::from_millis(1);
/// Looks in a row that find nothing open: a worker may have taken a connection in the moment in which writes were to wait.
const LOOKS: u32 = 3;

/// Done when nothing is open, or the limit is over. Cancel safe.
pub async fn drain(c: &Control, node: NodeId, limit: Duration) {
    let until = Instant::now() + limit;
    let mut quiet = 0;
    while quiet < LOOKS {
        let open = open(c, node);
        if open > 0 && Instant::now() >= until {
            let text = format_args!("node {node}: {open} transactions did not end in {} ms, and are ended", limit.as_millis());
            return c.shared.log.say(Level::Warning, text);
        }
        quiet = if open == 0 { quiet + 1 } else { 0 };
        tokio::time::sleep(PERIOD).await;
    }
}

/// Sessions with a transaction or a statement on a node. One that keeps its connection and does nothing has nothing to end.
fn open(c: &Control, node: NodeId) -> usize {
    let pools = c.shared.pools.all();
    let statuses = pools.iter().filter(|pool| pool.key.node == node && pool.is_shared()).flat_map(|pool| pool.statuses());
    let is_open = |pid: u32, is_kept: bool| {
        let rests = || c.shared.session_statuses.get(pid).is_some_and(|session| session.doing() == Doing::Idle);
        pid != 0 && !(is_kept && rests())
    };
    statuses.filter(|status| is_open(status.session.load(Ordering::Relaxed), status.kept.load(Ordering::Relaxed) != 0)).count()
}
