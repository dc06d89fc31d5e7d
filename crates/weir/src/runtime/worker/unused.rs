//! Unused users and databases: a worker keeps some and forgets the rest.
//!
//! Roles and databases come and go (a database per test), and Weir is not told of their last client. So their number is bounded, not
//! their age.

use super::{PoolSet, Worker};
use std::rc::Rc;
use weir_session::task::Us;

const UNUSED_MAX: usize = 100;

impl PoolSet {
    fn is_unused(this: &Rc<PoolSet>) -> bool {
        // Reference of the table.
        Rc::strong_count(this) == 1
            && Rc::strong_count(&this.account) == 1
            && this.pools.borrow().iter().flatten().all(|pool| pool.is_empty())
    }
}

impl Worker {
    /// Forgets the pairs unused longest, beyond `UNUSED_MAX`.
    pub fn forget_unused(&self) {
        let now = self.now_us();
        let mut unused: Vec<(Us, Rc<PoolSet>)> = Vec::new();
        for set in self.pool_sets.borrow().values() {
            let since = PoolSet::is_unused(set).then(|| set.unused_since.get().unwrap_or(now));
            set.unused_since.set(since);
            unused.extend(since.map(|since| (since, set.clone())));
        }
        if unused.len() <= UNUSED_MAX {
            return;
        }
        unused.sort_by_key(|(since, _)| *since);
        unused.truncate(unused.len() - UNUSED_MAX);
        for (_, set) in unused {
            self.forget_account(&set);
        }
        self.shared.pools.forget_unheld();
        for database in self.shared.catalogs.forget_unheld() {
            // Definitions there go unnoticed until the database is used again.
            self.shared.changes.doubt_database(&database.name, self.shared.positions.next_round());
        }
        let mut roles = self.shared.clients.roles.lock();
        // A login is counted and has a pool before it notes a role.
        let users = self.shared.pools.users();
        roles.retain(|user| users.contains(user) || self.shared.clients.counts.has_role(user));
    }

    fn forget_account(&self, set: &Rc<PoolSet>) {
        let mut sets = self.pool_sets.borrow_mut();
        sets.remove(&(set.client_user.clone(), set.client_database.clone()));
        self.shared.stats.retire(&set.stats);
        if !sets.values().any(|other| other.database == set.database) {
            self.forget_functions(&set.database);
        }
    }
}
