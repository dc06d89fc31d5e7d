//! Statements that a session prepared by SQL (`PREPARE name AS ...`): they live with the session and are brought to each server
//! connection.
//!
//! A server connection holds one session's set, shared: "already there" is a comparison of pointers.

use crate::session_state::client_settings::SettingValues;
use std::sync::Arc;
use weir_sql::facts::StateKinds;
use weir_wire::write::identifier;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlPreparedStatement {
    pub name: String,
    /// The whole `PREPARE`.
    pub text: String,
    /// Settings under which literals were read.
    pub settings: Arc<SettingValues>,
    /// The prepared query; none: not known well enough for an `EXECUTE` to go by it.
    pub query: Option<Box<str>>,
    pub later: StateKinds,
    pub bound: ConnDependency,
}

/// Why a statement cannot leave its server connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnDependency {
    Free,
    /// Prepared under a role, which may be dropped before the session ends.
    ToRole,
    /// May name a temporary object, which may be made again under its name.
    ToTemporary,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BySql {
    entries: Vec<Arc<SqlPreparedStatement>>,
}

impl BySql {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn has(&self, name: &[u8]) -> bool {
        self.entries.iter().any(|entry| entry.name.as_bytes() == name)
    }

    pub fn query_of(&self, name: &str) -> Option<&str> {
        self.entries.iter().find(|entry| entry.name == name)?.query.as_deref()
    }

    /// Returns the state that any statement may leave when it is executed.
    pub fn later(&self) -> StateKinds {
        self.entries.iter().fold(StateKinds::NONE, |all, entry| all.and(entry.later))
    }

    pub fn without(&self, name: &[u8]) -> BySql {
        BySql { entries: self.entries.iter().filter(|entry| entry.name.as_bytes() != name).cloned().collect() }
    }

    /// True if a statement cannot move.
    pub fn is_bound(&self) -> bool {
        self.entries.iter().any(|entry| entry.bound != ConnDependency::Free)
    }

    /// Frees statements from an ended role: a server analyses a statement for the user who executes it.
    #[must_use]
    pub fn without_role(&self) -> BySql {
        let free = |entry: &Arc<SqlPreparedStatement>| match entry.bound {
            ConnDependency::Free | ConnDependency::ToTemporary => entry.clone(),
            ConnDependency::ToRole => {
                let settings = Arc::new(entry.settings.without_who());
                Arc::new(SqlPreparedStatement { settings, bound: ConnDependency::Free, ..SqlPreparedStatement::clone(entry) })
            }
        };
        BySql { entries: self.entries.iter().map(free).collect() }
    }

    /// True if a statement can move once the role ends.
    pub fn is_bound_to_role(&self) -> bool {
        self.entries.iter().any(|entry| entry.bound == ConnDependency::ToRole)
    }

    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| entry.text.as_str())
    }

    /// Takes over the server's list. Known entries stay as they were made.
    pub fn of_list(
        &self,
        listed: impl Iterator<Item = (String, String)>,
        mut make: impl FnMut(String, String) -> SqlPreparedStatement,
    ) -> BySql {
        let entries = listed.map(|(name, text)| {
            let known = self.entries.iter().find(|entry| entry.name == name && entry.text == text);
            known.cloned().unwrap_or_else(|| Arc::new(make(name, text)))
        });
        let mut entries: Vec<_> = entries.collect();
        entries.sort_by_key(|entry| self.age(entry));
        BySql { entries }
    }

    /// Adds those of the session that its server connection never had. `had`: the session's, in order.
    #[must_use]
    pub fn and_absent(mut self, had: &BySql, on_conn: &BySql) -> BySql {
        for entry in &had.entries {
            if !on_conn.has_entry(entry) && !self.has(entry.name.as_bytes()) {
                self.entries.push(entry.clone());
            }
        }
        self.entries.sort_by_key(|entry| had.age(entry));
        self
    }

    /// The statements that the other set has, too.
    #[must_use]
    pub fn shared_with(&self, other: &BySql) -> BySql {
        BySql { entries: self.entries.iter().filter(|entry| other.has_entry(entry)).cloned().collect() }
    }

    fn has_entry(&self, entry: &Arc<SqlPreparedStatement>) -> bool {
        self.entries.iter().any(|own| Arc::ptr_eq(own, entry))
    }

    /// Its place in the order; new ones are the last.
    fn age(&self, entry: &Arc<SqlPreparedStatement>) -> usize {
        self.entries.iter().position(|known| Arc::ptr_eq(known, entry)).unwrap_or(usize::MAX)
    }

    /// Each query is sent by itself. `now`: the settings on the server connection.
    pub fn change_to(&self, wanted: &BySql, now: &Arc<SettingValues>) -> Vec<RestoreQuery> {
        let mut changes = Vec::new();
        for gone in self.entries.iter().filter(|entry| !wanted.has_entry(entry)) {
            let mut sql = String::from("DEALLOCATE ");
            identifier(&mut sql, &gone.name);
            changes.push(RestoreQuery::Deallocate(sql));
        }
        let mut settings = now.clone();
        for new in wanted.entries.iter().filter(|entry| !self.has_entry(entry)) {
            if !Arc::ptr_eq(&settings, &new.settings) && settings.meaning() != new.settings.meaning() {
                changes.push(RestoreQuery::Settings(settings.change_to(&new.settings)));
                settings = new.settings.clone();
            }
            changes.push(RestoreQuery::Prepare(new.clone()));
        }
        if !Arc::ptr_eq(&settings, now) {
            changes.push(RestoreQuery::Settings(settings.change_to(now)));
        }
        changes
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestoreQuery {
    Settings(String),
    Deallocate(String),
    Prepare(Arc<SqlPreparedStatement>),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(had: &BySql, names: &[&str], settings: &Arc<SettingValues>) -> BySql {
        let listed = names.iter().map(|name| (name.to_string(), format!("prepare {name}")));
        had.of_list(listed, |name, text| {
            let bound = match name.as_str() {
                "bound" => ConnDependency::ToTemporary,
                "role" => ConnDependency::ToRole,
                _ => ConnDependency::Free,
            };
            let query = text.strip_prefix("prepare ").map(Box::from);
            SqlPreparedStatement { name, text, settings: settings.clone(), query, later: StateKinds::NONE, bound }
        })
    }

    #[test]
    fn a_link_is_brought_from_one_sessions_statements_to_anothers() {
        let none = BySql::default();
        let (plain, german) =
            (Arc::new(SettingValues::default()), Arc::new(SettingValues::default().with("datestyle", "German")));
        let first = set(&none, &["a"], &german);
        let both = set(&first, &["B", "a"], &plain);
        let say = |changes: Vec<RestoreQuery>| {
            let words = changes.into_iter().map(|change| match change {
                RestoreQuery::Settings(sql) => sql.replace("pg_catalog.set_config", "set"),
                RestoreQuery::Deallocate(sql) => sql,
                RestoreQuery::Prepare(entry) => entry.text.clone(),
            });
            words.collect::<Vec<_>>().join("; ")
        };
        assert_eq!(say(first.change_to(&both, &plain)), "prepare B");
        assert_eq!(say(both.change_to(&first, &plain)), "DEALLOCATE \"B\"");
        assert_eq!(
            say(none.change_to(&both, &plain)),
            "SELECT set('datestyle','German',false); prepare a; SELECT set('datestyle',NULL,false); prepare B"
        );
        assert_eq!(say(none.change_to(&first, &german)), "prepare a");
        let other = set(&none, &["a"], &plain);
        assert_eq!(say(first.change_to(&other, &plain)), "DEALLOCATE \"a\"; prepare a", "of the same name, and another one");
        assert!(both.has(b"B") && !both.has(b"b"));
        assert_eq!((both.query_of("B"), both.query_of("b")), (Some("B"), None));
        assert_eq!(both.without(b"B"), first);
        assert!(!both.is_bound() && set(&both, &["a", "bound"], &plain).is_bound());
    }

    #[test]
    fn a_statement_that_a_connection_never_had_stays_the_sessions() {
        let plain = Arc::new(SettingValues::default());
        let had = set(&BySql::default(), &["a", "b"], &plain);
        let on_conn = had.without(b"a");
        let made = set(&had, &["b", "c"], &plain).and_absent(&had, &on_conn);
        assert_eq!(made.entries.iter().map(|entry| &*entry.name).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(had.shared_with(&on_conn), on_conn);
        let dropped = BySql::default().and_absent(&had, &had);
        assert!(dropped.is_empty(), "the connection had them, and has dropped them");
    }

    #[test]
    fn a_statement_made_under_a_role_moves_when_the_session_has_none() {
        let joe = Arc::new(SettingValues::default().with("role", "joe").with("work_mem", "1MB"));
        let made = set(&BySql::default(), &["role", "a"], &joe);
        assert!(made.is_bound_to_role());
        let free = made.without_role();
        assert!(!free.is_bound() && free.has(b"role") && free.has(b"a"));
        let settings = free.entries.iter().map(|entry| entry.settings.get("role").unwrap_or("none"));
        assert_eq!(settings.collect::<Vec<_>>(), ["none", "joe"]);
        let bound = set(&BySql::default(), &["bound"], &joe);
        assert!(!bound.is_bound_to_role() && bound.without_role().is_bound());
    }
}
