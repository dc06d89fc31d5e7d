//! A user and a database, as the sessions of one worker share them.

use crate::catalogs::KnownDatabase;
use crate::stats::TrafficStats;
use std::cell::Cell;
use std::sync::Arc;
use weir_config::limits::UserLimits;

/// See the module.
pub struct Account {
    /// The clients' names for user and database.
    pub client_user: Arc<str>,
    pub client_database: Arc<str>,
    /// The servers' names; they differ only by `database_file`.
    pub user: Arc<str>,
    pub database: Arc<str>,
    /// New server connections run this first; empty: nothing. Answers may show it.
    pub connect_query: Arc<str>,
    pub stats: Arc<TrafficStats>,
    pub limits: Cell<UserLimits>,
    /// The catalog of the database, as far as it is known.
    pub known: Arc<KnownDatabase>,
}
