//! Agents beside the servers (`weir agent`): how they are reached, and if they bring nodes back.

use crate::encryption::{PeerFiles, SslMode};
use crate::hosts::StoreHost;
use std::path::PathBuf;

const PORT: u16 = 9797;

#[derive(Debug, Clone, Default)]
pub struct AgentConfig {
    pub secret_file: Option<PathBuf>,
    /// User of agents and standbys on the primary; empty: that of the health check.
    pub user: String,
    pub rejoin: RejoinAuthority,
    /// Time for transactions to end before a switchover.
    pub transaction_limit_ms: u64,
    /// Encryption of connections; no mode may fall back to plain text.
    pub ssl_mode: AgentSsl,
    pub tls: PeerFiles,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RejoinAuthority {
    ByAgent,
    #[default]
    ByOperator,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentSsl(pub SslMode);

impl AgentSsl {
    pub(crate) fn from_word(word: &str) -> AgentSsl {
        AgentSsl(SslMode::from_word(word))
    }
}

impl Default for AgentSsl {
    fn default() -> AgentSsl {
        AgentSsl(SslMode::Disable)
    }
}

/// `None`: no agent.
pub(crate) fn place(text: &str) -> Result<Option<(String, u16)>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    match crate::hosts::hosts(text, PORT)?.as_slice() {
        [StoreHost::Tcp { name, port }] => Ok(Some((name.clone(), *port))),
        _ => Err(format!("\"{text}\" is not one host and port")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_named_by_host_and_port() {
        assert_eq!(place("db1:5"), Ok(Some(("db1".into(), 5))));
        assert_eq!(place("[::1]:5"), Ok(Some(("::1".into(), 5))));
        assert_eq!(place("db1"), Ok(Some(("db1".into(), 9797))));
        assert_eq!(place(""), Ok(None));
        for wrong in ["/tmp/x", "a,b", "a:x", ":5"] {
            assert!(place(wrong).is_err(), "{wrong}");
        }
    }
}
