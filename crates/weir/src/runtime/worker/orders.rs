//! Orders of an operator to a worker: pausing and redirecting databases.

use super::Worker;
use crate::runtime::pool::ConnPool;
use std::sync::Arc;
use weir_config::Config;
use weir_config::passwd::UserSecret;

impl Worker {
    /// Pauses a database, or all. Closes the gate before the pools: a pool made in between sees the gate.
    pub fn pause(&self, database: Option<&str>) {
        match database {
            Some(name) => self.shared.pause_state.set_paused(name, true),
            None => self.shared.pause_state.set_all_paused(true),
        }
        self.shared.pools.of_client_database(database).iter().for_each(|pool| pool.pause(self));
    }

    /// Ends the pause of a database; without a name every pause, and a suspension.
    pub fn resume(&self, database: Option<&str>) {
        let gates = &self.shared.pause_state;
        match database {
            Some(name) => gates.set_paused(name, false),
            None => gates.end_all_pauses(),
        }
        for pool in self.shared.pools.of_client_database(database) {
            if !gates.is_paused(&pool.key.client_database) {
                pool.resume(self);
            }
        }
        if database.is_none() {
            self.shared.flow_on();
        }
    }

    /// Has the server connections of a database of clients closed, or all, each when it comes back.
    pub fn renew_pools(&self, database: Option<&str>) {
        self.shared.pools.of_client_database(database).iter().for_each(|pool| pool.renew(self));
    }

    /// Applies changed database entries to later logins. Sessions keep theirs.
    pub(super) fn redirect(&self, config: &Config) {
        let before = &self.peek_config().databases;
        if *before == config.databases {
            return;
        }
        self.pool_sets.borrow_mut().retain(|(_, database), _| !config.databases.is_changed(before, database));
        if self.id == 0 {
            let is_meant = |pool: &&Arc<ConnPool>| config.databases.is_changed(before, &pool.key.client_database);
            self.shared.pools.all().iter().filter(is_meant).for_each(|pool| pool.renew(self));
        }
    }

    pub fn secret_for_server(&self, user: &str, client_database: Option<&str>) -> Option<UserSecret> {
        self.shared.secret_for_server(user, client_database)
    }
}
