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

    /// Ends every pause and suspension. False: none was in force.
    pub fn resume(&self) -> bool {
        let gates = &self.shared.pause_state;
        let closed: Vec<Arc<str>> = gates.closed().into_iter().filter(|name| gates.own(name).paused).collect();
        let was_paused = gates.is_all_paused() || !closed.is_empty();
        gates.set_all_paused(false);
        closed.iter().for_each(|name| gates.set_paused(name, false));
        self.shared.pools.all().iter().for_each(|pool| pool.resume(self));
        self.shared.flow_on() || was_paused
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
