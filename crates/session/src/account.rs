//! A user and a database, as the sessions of one worker share them.

use crate::catalogs::Database;
use crate::stats::Stats;
use std::cell::Cell;
use std::sync::Arc;
use weir_config::limits::Limits;

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
    pub stats: Arc<Stats>,
    pub limits: Cell<Limits>,
    /// The catalog of the database, as far as it is known.
    pub known: Arc<Database>,
}
