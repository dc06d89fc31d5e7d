//! Orders of an operator to a worker: databases that are paused, and databases by another name.

use super::Worker;
use crate::runtime::pool::ConnPool;
use std::sync::Arc;
use weir_config::Config;
use weir_config::passwd::UserSecret;

impl Worker {
    /// Lets nobody have a server connection to a database, or to any. Closes the gate first, then the pools: a pool that is made in between
    /// sees the gate.
    pub fn pause(&self, database: Option<&str>) {
        match database {
            Some(name) => self.shared.pause_state.set_paused(name, true),
            None => self.shared.pause_state.set_all_paused(true),
        }
        self.shared.pools.of_client_database(database).iter().for_each(|pool| pool.pause(self));
    }

    /// Ends every pause, and a suspension. False: there was none.
    pub fn resume(&self) -> bool {
        let gates = &self.shared.pause_state;
        let closed: Vec<Arc<str>> = gates.closed().into_iter().filter(|name| gates.own(name).paused).collect();
        let was_paused = gates.is_all_paused() || !closed.is_empty();
        gates.set_all_paused(false);
        closed.iter().for_each(|name| gates.set_paused(name, false));
        self.shared.pools.all().iter().for_each(|pool| pool.resume(self));
        self.shared.flow_on() || was_paused
    }

    /// Databases whose entry has come, gone or changed: it serves all later logins. Sessions keep the one they have.
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

    /// See `Shared::secret_for_server`.
    pub fn secret_for_server(&self, user: &str, client_database: Option<&str>) -> Option<UserSecret> {
        self.shared.secret_for_server(user, client_database)
    }
}
