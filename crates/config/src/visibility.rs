//! Visibility of values: parameters and columns of SHOW state a [`ValueVisibility`], every request has a [`Viewer`].
//!
//! PostgreSQL's rules: parameters as `GUC_SUPERUSER_ONLY` (guc.c, `ConfigOptionIsVisible`), sessions as `pg_stat_activity`
//! (pgstatfuncs.c, `HAS_PGSTAT_PERMISSIONS`).
use std::collections::BTreeSet;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueVisibility {
    Everyone,
    /// The role of the row's session or connection, roles with its privileges, and readers of all statistics.
    Owner,
    /// Readers of all settings.
    Operators,
    /// A secret: shown as `*****`.
    Nobody,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ViewExtent {
    All,
    Own,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Viewer {
    settings: ViewExtent,
    statistics: ViewExtent,
    /// Roles at the servers whose privileges the viewer has, its own included.
    roles: BTreeSet<String>,
}

/// Members see operators' parameters.
const READ_SETTINGS: &str = "pg_read_all_settings";
/// Members see all sessions.
const READ_STATISTICS: &str = "pg_read_all_stats";

impl Viewer {
    /// Sees all but secrets: the administrator in the console, PCP, the command line.
    pub fn operator() -> Viewer {
        Viewer { settings: ViewExtent::All, statistics: ViewExtent::All, roles: BTreeSet::new() }
    }

    /// Sees all sessions: a user of `stats_users`.
    pub fn monitor() -> Viewer {
        Viewer { settings: ViewExtent::Own, statistics: ViewExtent::All, roles: BTreeSet::new() }
    }

    /// A user without known roles.
    pub fn user(name: &str) -> Viewer {
        Viewer { settings: ViewExtent::Own, statistics: ViewExtent::Own, roles: BTreeSet::from([name.to_owned()]) }
    }

    /// A user with the roles that a server reported.
    pub fn with_roles(name: &str, roles: BTreeSet<String>) -> Viewer {
        let extent = |role: &str| if roles.contains(role) { ViewExtent::All } else { ViewExtent::Own };
        let (settings, statistics) = (extent(READ_SETTINGS), extent(READ_STATISTICS));
        let roles = roles.into_iter().chain([name.to_owned()]).collect();
        Viewer { settings, statistics, roles }
    }

    /// Adds the right to see all sessions.
    pub fn and_statistics(self) -> Viewer {
        Viewer { statistics: ViewExtent::All, ..self }
    }

    /// Decides if a value is shown. `owner`: the server role it belongs to.
    pub fn sees(&self, visibility: ValueVisibility, owner: Option<&str>) -> bool {
        match visibility {
            ValueVisibility::Everyone => true,
            ValueVisibility::Owner => self.statistics == ViewExtent::All || owner.is_some_and(|owner| self.roles.contains(owner)),
            ValueVisibility::Operators => self.settings == ViewExtent::All,
            ValueVisibility::Nobody => false,
        }
    }
}

impl ValueVisibility {
    pub fn describe(self) -> &'static str {
        match self {
            ValueVisibility::Everyone => "everyone",
            ValueVisibility::Owner => "the role itself, roles that have its privileges, readers of all statistics",
            ValueVisibility::Operators => "operators",
            ValueVisibility::Nobody => "nobody",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| name.to_string()).collect()
    }

    #[test]
    fn what_is_shown_is_what_postgresql_would_show() {
        use ValueVisibility::{Everyone, Nobody, Operators, Owner};
        let asked = [
            (Everyone, None),
            (Owner, Some("joe")),
            (Owner, Some("team")),
            (Owner, Some("ann")),
            (Owner, None),
            (Operators, None),
            (Nobody, None),
        ];
        for (who, viewer, expected) in [
            ("a user", Viewer::user("joe"), "yes yes no no no no no"),
            ("a member of a role", Viewer::with_roles("joe", roles(&["joe", "team"])), "yes yes yes no no no no"),
            ("pg_read_all_stats", Viewer::with_roles("joe", roles(&["pg_read_all_stats"])), "yes yes yes yes yes no no"),
            ("pg_read_all_settings", Viewer::with_roles("joe", roles(&["pg_read_all_settings"])), "yes yes no no no yes no"),
            ("a user of stats_users", Viewer::monitor(), "yes yes yes yes yes no no"),
            ("an operator", Viewer::operator(), "yes yes yes yes yes yes no"),
            ("a user who goes by the name of a role", Viewer::user("pg_read_all_settings"), "yes no no no no no no"),
        ] {
            let seen = asked.map(|(visibility, owner)| if viewer.sees(visibility, owner) { "yes" } else { "no" }).join(" ");
            assert_eq!(seen, expected, "{who}");
        }
    }
}
