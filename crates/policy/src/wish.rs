//! Where somebody wants reads to go: a text's hint, a session's setting, the operator's lists by application, database and user.
//!
//! In: texts. Out: a wish, or none. `route` obeys it where it can.

use weir_catalog::rule::Rule;
use weir_config::RoutingConfig;
use weir_config::redirect::{Goal, Redirect};
use weir_sql::facts::Hint;

/// The parameter by which a session chooses for itself.
pub const SETTING: &str = "weir.route";

/// The node that reads shall go to, and the origin of the wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPreference {
    pub goal: Goal,
    /// How many of the reads, of 2^32 less 1.
    pub share: u32,
    pub rule: Rule,
}

impl ReadPreference {
    /// For all reads.
    pub const fn always(goal: Goal, rule: Rule) -> ReadPreference {
        ReadPreference { goal, share: u32::MAX, rule }
    }

    /// True if the session or its statement asked for it; false if the operator did, for many sessions.
    #[inline]
    pub const fn is_own(&self) -> bool {
        matches!(self.rule, Rule::ReadHinted | Rule::ReadBySetting)
    }
}

/// The session that asks.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    pub user: &'a str,
    pub database: &'a str,
    /// Its `application_name` now; may be empty.
    pub application: &'a str,
    /// Its value of `weir.route`, if it has set it.
    pub setting: Option<&'a str>,
}

/// The read preference of this session. Its own setting goes before the operator's lists; of those the first with an entry for
/// it counts: by application, by database, by user. Source: Pgpool-II `select_load_balancing_node`.
pub fn of_session(routing: &RoutingConfig, asker: &Asker<'_>) -> Option<ReadPreference> {
    if let Some(goal) = asker.setting.and_then(|word| Goal::of_hint(Hint::of_word(word))) {
        return Some(ReadPreference::always(goal, Rule::ReadBySetting));
    }
    let application = if asker.application.is_empty() { None } else { find(&routing.by_application, asker.application) };
    let found = application.or_else(|| find(&routing.by_database, asker.database)).or_else(|| find(&routing.by_user, asker.user));
    found.map(|entry| ReadPreference { goal: entry.goal, share: entry.share, rule: Rule::ReadRedirected })
}

fn find<'a>(list: &'a [Redirect], name: &str) -> Option<&'a Redirect> {
    list.iter().find(|entry| entry.pattern.is_match(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_config::Config;
    use weir_config::redirect::read_redirects;

    fn goal(list: &str, name: &str) -> Option<(Goal, u32)> {
        find(&read_redirects(list).unwrap(), name).map(|entry| (entry.goal, entry.share))
    }

    #[test]
    fn the_first_pattern_that_matches_the_whole_name_counts() {
        const ALL: u32 = u32::MAX;
        assert_eq!(goal("postgres:primary,mydb[0-4]:1,mydb5:standby", "mydb3"), Some((Goal::Node(1), ALL)));
        assert_eq!(goal("postgres:Primary,mydb[0-4]:1,mydb5:STANDBY", "MyDB5"), Some((Goal::Standby, ALL)));
        assert_eq!(goal("mydb:1", "mydb5"), None);
        assert_eq!(goal("a|b:0, c.* : primary ( 0.5 ) ,", "cde"), Some((Goal::Primary, ALL / 2)));
        assert_eq!(goal("a|b:0", "xb"), None, "the pattern as a whole is meant");
        assert_eq!(goal(r"x{1\,2}:2", "xx"), Some((Goal::Node(2), ALL)));
        assert_eq!(goal("a:b:3", "a:b"), Some((Goal::Node(3), ALL)));
        assert_eq!(goal("x:1(0)", "x"), Some((Goal::Node(1), 0)));
        assert_eq!(goal("", "x"), None);
    }

    #[test]
    fn a_sessions_own_wish_goes_before_the_lists_and_those_have_an_order() {
        let mut config = Config::default();
        let mut wish = |lists: [&str; 3], setting: Option<&str>| {
            let [application, database, user] = lists.map(|list| read_redirects(list).unwrap());
            config.routing.by_application = application;
            config.routing.by_database = database;
            config.routing.by_user = user;
            let asker = Asker { user: "joe", database: "shop", application: "psql", setting };
            of_session(&config.routing, &asker).map(|wish| (wish.goal, wish.rule.name()))
        };
        let all = ["psql:1", "shop:2", "joe:3"];
        assert_eq!(wish(all, None), Some((Goal::Node(1), "read_redirected")));
        assert_eq!(wish(["other:1", "shop:2", "joe:3"], None), Some((Goal::Node(2), "read_redirected")));
        assert_eq!(wish(["", "", "joe:3"], None), Some((Goal::Node(3), "read_redirected")));
        assert_eq!(wish(all, Some("primary")), Some((Goal::Primary, "read_by_setting")));
        assert_eq!(wish(all, Some(" Node=7")), Some((Goal::Node(7), "read_by_setting")));
        assert_eq!(wish(all, Some("")), Some((Goal::Node(1), "read_redirected")), "a value that means nothing is none");
        assert_eq!(wish(["", "", ""], None), None);
    }

    #[test]
    fn who_has_no_application_name_has_no_entry_in_its_list() {
        let mut config = Config::default();
        config.routing.by_application = read_redirects(".*:1").unwrap();
        let asker = Asker { user: "joe", database: "shop", application: "", setting: None };
        assert_eq!(of_session(&config.routing, &asker), None);
    }
}
