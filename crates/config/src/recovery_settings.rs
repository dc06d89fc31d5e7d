//! Online recovery: a node is made anew out of the primary by the operator's scripts.

use crate::agents::AgentConfig;
use std::fmt;

/// How a node is made anew. The password is masked in `Debug`.
#[derive(Clone, Default)]
pub struct RecoveryConfig {
    /// The user that calls the functions of `pgpool_recovery`; empty: there is no recovery.
    pub user: String,
    /// Empty: that of the password file.
    pub password: String,
    /// Where these functions are.
    pub database: String,
    /// Script in the primary's data directory.
    pub command: String,
    /// Time that the node has to accept connections.
    pub timeout_ms: u64,
    /// Programs beside the servers, which need no scripts.
    pub agents: AgentConfig,
}

impl fmt::Debug for RecoveryConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RecoveryConfig { user, password: _, database, command, timeout_ms, agents } = self;
        write!(f, "RecoveryConfig {{ {user}, database {database}, {command}, {timeout_ms} ms, {agents:?} }}")
    }
}
