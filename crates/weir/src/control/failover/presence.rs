//! Shows other Weirs that this one writes to a primary: a named connection there, while sessions may have something open. A
//! switchover waits for its end (`hands::wait_yielded`), which also comes with the process or the network.

use super::drain;
use crate::control::control_context::ControlContext;
use crate::control::failover::node_logins::NodeAccess;
use std::rc::Rc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use weir_failover::NodeId;

const OPEN_LIMIT: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_secs(1);

pub fn name(weir: u32) -> String {
    format!("{PREFIX}{weir}")
}

pub const PREFIX: &str = "weir_writes_";

#[derive(Default)]
pub struct WriterPresence {
    shown: Option<(NodeId, JoinSet<()>)>,
    leaver: JoinSet<()>,
}

impl WriterPresence {
    pub fn begin(&mut self, reach: &Rc<NodeAccess>, node: NodeId, weir: u32) {
        self.leaver = JoinSet::new();
        if self.shown.as_ref().is_some_and(|(shown, _)| *shown == node) {
            return;
        }
        let mut keeper = JoinSet::new();
        keeper.spawn_local(keep(reach.clone(), node, name(weir)));
        self.shown = Some((node, keeper));
    }

    /// Closes the connection once open transactions have ended.
    pub fn leave(&mut self, c: &Rc<ControlContext>) {
        let Some((node, keeper)) = self.shown.take() else { return };
        let c = c.clone();
        self.leaver.spawn_local(async move {
            drain::drained(&c, node).await;
            drop(keeper);
        });
    }

    pub fn end(&mut self) {
        *self = WriterPresence::default();
    }
}

async fn keep(reach: Rc<NodeAccess>, node: NodeId, name: String) {
    loop {
        // Without the connection a switchover does not wait, and statements under way may be lost, as in a failover.
        if let Ok(mut conn) = reach.show_presence(node, &name, Instant::now() + OPEN_LIMIT).await {
            conn.ended().await;
        }
        tokio::time::sleep(AGAIN).await;
    }
}
