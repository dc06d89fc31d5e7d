//! Connections of the control thread to the servers of all shards, as the health check's user.

use crate::auth::own_login::OwnUse;
use crate::control::control_conn::ControlConn;
use crate::control::control_context::ControlContext;
use crate::runtime::pool::server_conn::{OpenError, Rows, ServerAddress, ServerLogin};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;
use weir_config::NodeConfig;

const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A server that lets nobody in is left alone for so long.
const PAUSE: Duration = Duration::from_secs(10);

/// One kept connection to each node.
pub struct ShardLines {
    c: Rc<ControlContext>,
    name: &'static str,
    lines: BTreeMap<u16, ControlConn>,
    again_at: BTreeMap<u16, Instant>,
}

impl ShardLines {
    /// `name`: the connections' `application_name`.
    pub fn new(c: Rc<ControlContext>, name: &'static str) -> ShardLines {
        ShardLines { c, name, lines: BTreeMap::new(), again_at: BTreeMap::new() }
    }

    /// Asks over the kept connection to a node. Cancel safe: the connection is closed.
    pub async fn ask(&mut self, node: &NodeConfig, text: &str) -> Result<Rows, OpenError> {
        let mut line = match self.lines.remove(&node.id) {
            Some(line) if !line.is_left(&self.c.shared) => line,
            _ => self.open_again(node).await?,
        };
        line.renew(Instant::now() + ANSWER_TIMEOUT);
        let said = line.query(text).await;
        if matches!(said, Ok(_) | Err(OpenError::Refused { .. })) {
            self.lines.insert(node.id, line);
        }
        said
    }

    async fn open_again(&mut self, node: &NodeConfig) -> Result<ControlConn, OpenError> {
        if self.again_at.get(&node.id).is_some_and(|at| Instant::now() < *at) {
            return Err(OpenError::Gone { node: node.id });
        }
        let opened = self.open(node, None).await;
        match &opened {
            Ok(_) => self.again_at.remove(&node.id),
            Err(_) => self.again_at.insert(node.id, Instant::now() + PAUSE),
        };
        opened
    }

    pub fn close_all(&mut self) {
        self.lines.clear();
    }

    /// Opens a connection of its own. `None`: to the health check's database. Cancel safe.
    pub async fn open(&self, node: &NodeConfig, database: Option<&str>) -> Result<ControlConn, OpenError> {
        let mut check = self.c.shared.config.load().check.clone();
        if !node.health.user.is_empty() {
            (check.user, check.password) = (node.health.user.clone(), node.health.password.clone());
            check.database = node.health.database.clone();
        }
        let files = self.c.shared.access.files();
        let (user, secret) = files.checker(&check);
        let database = database.unwrap_or(&check.database);
        let parameters = [("application_name", self.name)];
        let login = ServerLogin { user, database, secret: secret.as_deref(), generation: 0, parameters: &parameters };
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        let address = ServerAddress::of_shard(node);
        ControlConn::log_in(&self.c.shared, &address, &login, OwnUse::Questions, deadline).await.map(|(line, _)| line)
    }
}
