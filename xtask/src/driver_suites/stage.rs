//! Servers for a suite: one of its own, and Weir before it or not.

use std::path::{Path, PathBuf};

use anyhow::Result;
use weir_demo::{Cluster, Options};

use super::sources::Fetched;
use crate::proxy::Proxy;

/// Suites have tests with many connections.
const SETTINGS: [(&str, &str); 1] = [("max_connections", "200")];

/// How the tests reach the server.
pub enum Way {
    Direct,
    /// By this program, with its defaults: pooling by transaction.
    Weir(PathBuf),
}

/// A running server.
pub struct Stage {
    // Dropped in this order: Weir first.
    proxy: Option<Proxy>,
    cluster: Cluster,
}

impl Stage {
    /// A new server with the objects that the suite wants to find there.
    pub fn start(way: &Way, fetched: &Fetched) -> Result<Stage> {
        let extra_conf = SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let cluster = Cluster::start(Options { extra_conf, ..Options::default() })?;
        fetched.set_up(cluster.primary())?;
        let proxy = match way {
            Way::Direct => None,
            Way::Weir(program) => Some(Proxy::start(program, &cluster, "")?),
        };
        Ok(Stage { proxy, cluster })
    }

    /// Where the tests connect, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.proxy.as_ref().map_or_else(|| self.cluster.primary().port(), Proxy::port)
    }

    /// Where they connect by Unix socket.
    pub fn socket_dir(&self) -> &Path {
        self.proxy.as_ref().map_or_else(|| self.cluster.primary().socket_dir(), Proxy::socket_dir)
    }

    /// Ends it, keeps Weir's log in `folder`. Error: Weir had ended before, or panicked.
    pub fn end(self, folder: &Path) -> Result<()> {
        self.proxy.map_or(Ok(()), |proxy| proxy.end(folder))
    }
}
