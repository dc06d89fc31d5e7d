//! Databases closed by an administrator: paused (no server connections) or disabled (no new clients).

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatabasePause {
    pub(crate) paused: bool,
    pub(crate) disabled: bool,
}

/// An open database has no entry, so that any names leave nothing behind.
#[derive(Debug, Default)]
pub struct PauseState {
    state: Mutex<PausedDatabases>,
}

#[derive(Debug, Default)]
struct PausedDatabases {
    all_paused: bool,
    databases: BTreeMap<Arc<str>, DatabasePause>,
}

impl PauseState {
    pub fn own(&self, database: &str) -> DatabasePause {
        self.state.lock().databases.get(database).copied().unwrap_or_default()
    }

    pub fn is_paused(&self, database: &str) -> bool {
        let state = self.state.lock();
        state.all_paused || state.databases.get(database).is_some_and(|gate| gate.paused)
    }

    pub fn is_all_paused(&self) -> bool {
        self.state.lock().all_paused
    }

    /// True if all databases are paused, or one by itself.
    pub fn is_any_paused(&self) -> bool {
        let state = self.state.lock();
        state.all_paused || state.databases.values().any(|gate| gate.paused)
    }

    /// Ends the pause of all, and that of each.
    pub fn end_all_pauses(&self) {
        let mut state = self.state.lock();
        state.all_paused = false;
        state.databases.values_mut().for_each(|gate| gate.paused = false);
        state.databases.retain(|_, gate| *gate != DatabasePause::default());
    }

    pub fn set_all_paused(&self, paused: bool) {
        self.state.lock().all_paused = paused;
    }

    pub fn set_paused(&self, database: &str, paused: bool) {
        self.set(database, |gate| gate.paused = paused);
    }

    pub fn set_disabled(&self, database: &str, disabled: bool) {
        self.set(database, |gate| gate.disabled = disabled);
    }

    fn set(&self, database: &str, change: impl FnOnce(&mut DatabasePause)) {
        let mut state = self.state.lock();
        let mut gate = state.databases.get(database).copied().unwrap_or_default();
        change(&mut gate);
        if gate == DatabasePause::default() {
            state.databases.remove(database);
        } else {
            state.databases.insert(database.into(), gate);
        }
    }

    pub fn closed(&self) -> Vec<Arc<str>> {
        self.state.lock().databases.keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_paused_by_itself_or_with_all() {
        let gates = PauseState::default();
        gates.set_paused("a", true);
        gates.set_disabled("b", true);
        assert_eq!((gates.is_paused("a"), gates.is_paused("b"), gates.own("b").disabled), (true, false, true));
        gates.set_all_paused(true);
        gates.set_paused("a", false);
        assert_eq!((gates.is_paused("a"), gates.own("a").paused), (true, false));
        gates.set_all_paused(false);
        assert!(!gates.is_paused("a"));
        assert_eq!(gates.closed(), ["b".into()]);
    }
}
