//! The wanted target of reads: by a text's hint, a session's setting, or the operator's lists.
//!
//! In: texts. Out: a wish, or none, which `routing` obeys where it can.

use weir_catalog::rule::RoutingRule;
use weir_config::RoutingConfig;
use weir_config::redirect::{ReadTarget, RedirectPreference};
use weir_sql::facts::RoutingHint;

pub const SETTING: &str = "weir.route";

/// A wish, with its origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPreference {
    pub read_target: ReadTarget,
    /// Part of the reads, of `u32::MAX`.
    pub share: u32,
    pub rule: RoutingRule,
}

impl ReadPreference {
    pub const fn always(read_target: ReadTarget, rule: RoutingRule) -> ReadPreference {
        ReadPreference { read_target, share: u32::MAX, rule }
    }

    /// True if the session or its statement asked, and not the operator's lists.
    #[inline]
    pub const fn is_own(&self) -> bool {
        matches!(self.rule, RoutingRule::ReadHinted | RoutingRule::ReadBySetting)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct ReadingSession<'a> {
    pub user: &'a str,
    pub database: &'a str,
    pub application: &'a str,
    /// Value of `weir.route`.
    pub setting: Option<&'a str>,
}

/// Returns a session's read preference: its setting, else the first match by application, by database, by user. Source: Pgpool-II
/// `select_load_balancing_node`.
pub fn of_session(routing: &RoutingConfig, asker: &ReadingSession<'_>) -> Option<ReadPreference> {
    if let Some(read_target) = asker.setting.and_then(|word| ReadTarget::of_hint(RoutingHint::of_word(word))) {
        return Some(ReadPreference::always(read_target, RoutingRule::ReadBySetting));
    }
    let application = if asker.application.is_empty() { None } else { find(&routing.by_application, asker.application) };
    let found = application.or_else(|| find(&routing.by_database, asker.database)).or_else(|| find(&routing.by_user, asker.user));
    found.map(|entry| ReadPreference { read_target: entry.read_target, share: entry.share, rule: RoutingRule::ReadRedirected })
}

fn find<'a>(list: &'a [RedirectPreference], name: &str) -> Option<&'a RedirectPreference> {
    list.iter().find(|entry| entry.pattern.is_match(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_config::Config;
    use weir_config::redirect::read_redirects;

    fn read_target(list: &str, name: &str) -> Option<(ReadTarget, u32)> {
        find(&read_redirects(list).unwrap(), name).map(|entry| (entry.read_target, entry.share))
    }

    #[test]
    fn the_first_pattern_that_matches_the_whole_name_counts() {
        const ALL: u32 = u32::MAX;
        assert_eq!(read_target("postgres:primary,mydb[0-4]:1,mydb5:standby", "mydb3"), Some((ReadTarget::Node(1), ALL)));
        assert_eq!(read_target("postgres:Primary,mydb[0-4]:1,mydb5:STANDBY", "MyDB5"), Some((ReadTarget::Standby, ALL)));
        assert_eq!(read_target("mydb:1", "mydb5"), None);
        assert_eq!(read_target("a|b:0, c.* : primary ( 0.5 ) ,", "cde"), Some((ReadTarget::Primary, ALL / 2)));
        assert_eq!(read_target("a|b:0", "xb"), None, "the pattern as a whole is meant");
        assert_eq!(read_target(r"x{1\,2}:2", "xx"), Some((ReadTarget::Node(2), ALL)));
        assert_eq!(read_target("a:b:3", "a:b"), Some((ReadTarget::Node(3), ALL)));
        assert_eq!(read_target("x:1(0)", "x"), Some((ReadTarget::Node(1), 0)));
        assert_eq!(read_target("", "x"), None);
    }

    #[test]
    fn a_sessions_own_wish_goes_before_the_lists_and_those_have_an_order() {
        let mut config = Config::default();
        let mut wish = |lists: [&str; 3], setting: Option<&str>| {
            let [application, database, user] = lists.map(|list| read_redirects(list).unwrap());
            config.routing.by_application = application;
            config.routing.by_database = database;
            config.routing.by_user = user;
            let asker = ReadingSession { user: "joe", database: "shop", application: "psql", setting };
            of_session(&config.routing, &asker).map(|wish| (wish.read_target, wish.rule.name()))
        };
        let all = ["psql:1", "shop:2", "joe:3"];
        assert_eq!(wish(all, None), Some((ReadTarget::Node(1), "read_redirected")));
        assert_eq!(wish(["other:1", "shop:2", "joe:3"], None), Some((ReadTarget::Node(2), "read_redirected")));
        assert_eq!(wish(["", "", "joe:3"], None), Some((ReadTarget::Node(3), "read_redirected")));
        assert_eq!(wish(all, Some("primary")), Some((ReadTarget::Primary, "read_by_setting")));
        assert_eq!(wish(all, Some(" Node=7")), Some((ReadTarget::Node(7), "read_by_setting")));
        assert_eq!(wish(all, Some("")), Some((ReadTarget::Node(1), "read_redirected")), "a value that means nothing is none");
        assert_eq!(wish(["", "", ""], None), None);
    }

    #[test]
    fn who_has_no_application_name_has_no_entry_in_its_list() {
        let mut config = Config::default();
        config.routing.by_application = read_redirects(".*:1").unwrap();
        let asker = ReadingSession { user: "joe", database: "shop", application: "", setting: None };
        assert_eq!(of_session(&config.routing, &asker), None);
    }
}
