//! How a Weir shows others that it writes to a primary: by a connection there with a name, for as long as its sessions may have something open. A
//! switchover of another one waits until there is none (`hands::wait_yielded`). Its end with the process, or the network, says the same.

use super::drain;
use crate::control::control_context::ControlContext;
use crate::control::failover::node_logins::NodeAccess;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use weir_failover::NodeId;

/// Time for a login.
const OPEN_LIMIT: Duration = Duration::from_secs(5);
/// Until the next try, also if the server ended the connection.
const AGAIN: Duration = Duration::from_secs(1);

/// The name of such connections of one Weir.
pub fn name(weir: u32) -> String {
    format!("{PREFIX}{weir}")
}

/// The names of such connections begin with it.
pub const PREFIX: &str = "weir_writes_";

/// See the module. Its tasks end with it.
#[derive(Default)]
pub struct WriterPresence {
    /// The node, and the task that keeps the connection there.
    shown: Option<(NodeId, JoinSet<()>)>,
    /// Ends the connection once nothing is open any more.
    leaver: JoinSet<()>,
}

impl WriterPresence {
    /// Sessions of this Weir write to a node from now on.
    pub fn begin(&mut self, reach: &Rc<NodeAccess>, node: NodeId, weir: u32) {
        self.leaver = JoinSet::new();
        if self.shown.as_ref().is_some_and(|(shown, _)| *shown == node) {
            return;
        }
        let mut keeper = JoinSet::new();
        keeper.spawn_local(keep(reach.clone(), node, name(weir)));
        self.shown = Some((node, keeper));
    }

    /// They begin nothing there any more. The connection stays until what they have open has ended.
    pub fn leave(&mut self, c: &Rc<ControlContext>) {
        let Some((node, keeper)) = self.shown.take() else { return };
        let c = c.clone();
        self.leaver.spawn_local(async move {
            drain::drained(&c, node).await;
            drop(keeper);
        });
    }

    /// They have nothing open there any more.
    pub fn end(&mut self) {
        *self = WriterPresence::default();
    }
}

/// Cancel safe: the connection is closed.
async fn keep(reach: Rc<NodeAccess>, node: NodeId, name: String) {
    loop {
        // Without it a switchover waits for nobody here: statements under way may be lost then, as in a failover.
        if let Ok(mut conn) = reach.show_presence(node, &name, Instant::now() + OPEN_LIMIT).await {
            conn.ended().await;
        }
        tokio::time::sleep(AGAIN).await;
    }
}
