//! A user and a database, as the sessions of one worker share them.

use crate::catalogs::KnownDatabase;
use crate::stats::TrafficStats;
use std::cell::Cell;
use std::sync::Arc;
use weir_config::limits::UserLimits;

pub struct Account {
    /// Clients' names.
    pub client_user: Arc<str>,
    pub client_database: Arc<str>,
    /// Servers' names, different only by `database_file`.
    pub user: Arc<str>,
    pub database: Arc<str>,
    /// First query of each new server connection; empty for none.
    pub connect_query: Arc<str>,
    pub stats: Arc<TrafficStats>,
    pub limits: Cell<UserLimits>,
    pub known: Arc<KnownDatabase>,
    /// Number in statistics of statements; 0: none yet.
    pub number: Cell<u64>,
}
