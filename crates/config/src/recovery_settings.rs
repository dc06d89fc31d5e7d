//! Online recovery: scripts of the operator copy the primary to a node.

use crate::agents::AgentConfig;
use std::fmt;

/// Settings of online recovery. `Debug` masks the password.
#[derive(Clone, Default)]
pub struct RecoveryConfig {
    /// User of the functions of `pgpool_recovery`; empty: no recovery.
    pub user: String,
    /// Empty: from the password file.
    pub password: String,
    /// Database of these functions.
    pub database: String,
    /// Script in the primary's data directory.
    pub command: String,
    /// Time until the node must accept connections.
    pub timeout_ms: u64,
    /// Agents beside the servers, which need no scripts.
    pub agents: AgentConfig,
}

impl fmt::Debug for RecoveryConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RecoveryConfig { user, password: _, database, command, timeout_ms, agents } = self;
        write!(f, "RecoveryConfig {{ {user}, database {database}, {command}, {timeout_ms} ms, {agents:?} }}")
    }
}
