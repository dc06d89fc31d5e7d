//! Defaults of a server connection: from the server's configuration, `ALTER ROLE`, `ALTER DATABASE` and login event triggers.
//!
//! A session goes by those of its login, except that a reload of the configuration reaches all sessions, as in PostgreSQL. On a
//! connection with other defaults the session brings its own values (`DefaultsMerge::held`), or takes over what a reload changed
//! (`DefaultsMerge::news`).
//!
//! Source: PostgreSQL manual, "How Parameter Settings Are Determined", `pg_settings`; `set_config_option` in guc.c.

use crate::session_state::client_settings::{ROLE, SettingValues, makes_costly};
use weir_wire::gather::{BoundExceeded, GatherBound, GatherBudget};

/// Rows: `c`: time of the configuration, `d`: a default, `p`: a parameter with a dot, which the server does not list, `l`: left
/// by a login trigger, `r`: the default of a parameter that is set.
///
/// Left out are parameters that a user may not set, that belong to a transaction, that cannot be set to the value they show, or
/// whose value names an object.
pub const QUESTION: &str = "SELECT 'c', '', (EXTRACT(epoch FROM pg_catalog.pg_conf_load_time()) OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8::pg_catalog.text, '', '' \
     UNION ALL SELECT CASE WHEN source OPERATOR(pg_catalog.=) 'session' THEN 'l' ELSE 'd' END, pg_catalog.lower(name), \
     CASE WHEN source OPERATOR(pg_catalog.=) 'session' THEN setting ELSE reset_val END, COALESCE(boot_val, ''), source \
     FROM pg_catalog.pg_settings WHERE context OPERATOR(pg_catalog.=) 'user' \
     AND (source OPERATOR(pg_catalog.=) 'session' OR COALESCE(reset_val OPERATOR(pg_catalog.<>) boot_val, true)) \
     AND name OPERATOR(pg_catalog.<>) ALL ('{seed,transaction_isolation,transaction_read_only,transaction_deferrable,local_preload_libraries,\
     default_tablespace,temp_tablespaces,default_table_access_method}'::pg_catalog.text[]) \
     UNION ALL SELECT 'r', pg_catalog.lower(name), reset_val, COALESCE(boot_val, ''), source FROM pg_catalog.pg_settings \
     WHERE context OPERATOR(pg_catalog.=) 'user' AND source OPERATOR(pg_catalog.=) 'session' AND reset_val IS NOT NULL \
     UNION ALL SELECT 'l', 'role', pg_catalog.current_setting('role'), 'none', 'user' \
     WHERE pg_catalog.current_setting('role') OPERATOR(pg_catalog.<>) 'none' \
     UNION ALL SELECT 'p', pg_catalog.lower(n), pg_catalog.current_setting(n, true), '', 'user' \
     FROM (SELECT pg_catalog.split_part(c, '=', 1) FROM pg_catalog.pg_db_role_setting AS s, pg_catalog.unnest(s.setconfig) AS c \
     WHERE s.setdatabase OPERATOR(pg_catalog.=) ANY (ARRAY[0::pg_catalog.oid, \
     (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())]) \
     AND s.setrole OPERATOR(pg_catalog.=) ANY (ARRAY[0::pg_catalog.oid, \
     (SELECT r.oid FROM pg_catalog.pg_roles AS r WHERE r.rolname OPERATOR(pg_catalog.=) SESSION_USER)])) AS x (n) \
     WHERE pg_catalog.strpos(n, '.') OPERATOR(pg_catalog.>) 0 AND pg_catalog.current_setting(n, true) IS NOT NULL \
     AND NOT EXISTS (SELECT FROM pg_catalog.pg_settings AS g WHERE pg_catalog.lower(g.name) OPERATOR(pg_catalog.=) pg_catalog.lower(n)) \
     UNION ALL SELECT 'l', pg_catalog.lower(m[1]), pg_catalog.current_setting(m[1], true), '', 'session' \
     FROM pg_catalog.pg_event_trigger AS e, pg_catalog.pg_proc AS p, pg_catalog.regexp_matches(p.prosrc, \
     '([a-zA-Z_][a-zA-Z_0-9$]*(?:[.][a-zA-Z_][a-zA-Z_0-9$]*)+)', 'g') AS m \
     WHERE e.evtevent OPERATOR(pg_catalog.=) 'login' AND p.oid OPERATOR(pg_catalog.=) e.evtfoid \
     AND COALESCE(pg_catalog.current_setting(m[1], true), '') OPERATOR(pg_catalog.<>) '' \
     AND NOT EXISTS (SELECT FROM pg_catalog.pg_settings AS g WHERE pg_catalog.lower(g.name) OPERATOR(pg_catalog.=) pg_catalog.lower(m[1]))";

/// PostgreSQL has about 170 parameters for users.
const ANSWER: GatherBound = GatherBound {
    thing: "the answer to the question for the defaults of a connection",
    count_max: 1024,
    bytes_max: 256 << 10,
    parameter: "",
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DefaultLayer {
    /// Changed for all by a reload.
    Server,
    /// `ALTER ROLE` or `ALTER DATABASE`: fixed at the login.
    Login,
}

/// A default other than the built-in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ParameterDefault {
    name: String,
    value: String,
    built_in: String,
    layer: DefaultLayer,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServerDefaults {
    node: u16,
    /// When the server read its configuration, in microseconds since 1970; 0: unknown.
    read_at_us: u64,
    /// Sorted by name, each once.
    entries: Vec<ParameterDefault>,
    /// Reported parameters in the server's spelling, with their values where nothing is set.
    reported: Vec<(String, String)>,
    /// Settings left by a login event trigger, and the login's role.
    left: SettingValues,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReloadedParameter {
    pub name: String,
    pub before: String,
    pub now: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultsChoice {
    Own,
    Theirs,
}

/// For a session on a connection with other defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultsMerge {
    /// Values that the session brings, unless it has set the parameter.
    pub held: Vec<(String, String)>,
    /// Values that it takes over.
    pub news: Vec<ReloadedParameter>,
    pub base: DefaultsChoice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnNodeRole {
    Primary,
    Elsewhere,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefaultDifference {
    pub name: String,
    pub here: String,
    pub there: String,
}

const NO_DEFAULTS: [&str; 7] = [
    "in_hot_standby",
    "integer_datetimes",
    "is_superuser",
    "scram_iterations",
    "server_encoding",
    "server_version",
    "session_authorization",
];

impl ServerDefaults {
    pub fn may_compile(&self) -> bool {
        self.left.may_compile() || self.entries.iter().any(|entry| makes_costly(&entry.name))
    }

    /// Reads the answer to `QUESTION`. `reported`: by the login. Error: too long.
    pub fn of<'a>(
        node: u16,
        rows: &[Vec<Option<String>>],
        reported: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<ServerDefaults, BoundExceeded> {
        let mut defaults = ServerDefaults { node, ..ServerDefaults::default() };
        let mut budget = GatherBudget::new(ANSWER);
        for row in rows {
            let [Some(kind), Some(name), Some(value), Some(built_in), Some(source)] = row.as_slice() else { continue };
            budget.take(name.len() + value.len() + built_in.len())?;
            if value.contains(char::REPLACEMENT_CHARACTER) {
                // From another encoding; cannot be told to another server.
                continue;
            }
            match kind.as_str() {
                "c" => defaults.read_at_us = value.parse().unwrap_or(0),
                "l" => defaults.left = defaults.left.with(name, value),
                "r" => {}
                _ => {
                    let (name, value, built_in) = (name.clone(), value.clone(), built_in.clone());
                    defaults.entries.push(ParameterDefault { name, value, built_in, layer: layer_of(source) });
                }
            }
        }
        defaults.entries.sort_by(|one, other| one.name.cmp(&other.name));
        defaults.entries.dedup_by(|one, other| one.name == other.name);
        defaults.reported = reported
            .filter(|(name, _)| !NO_DEFAULTS.contains(name) && defaults.left.get(&name.to_ascii_lowercase()).is_none())
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        Ok(defaults)
    }

    /// Returns the defaults after a reload. `set`: settings made since the login. Defaults that the server does not list stay.
    pub fn reread<'a>(
        &self,
        node: u16,
        rows: &[Vec<Option<String>>],
        set: &SettingValues,
        reported: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<ServerDefaults, BoundExceeded> {
        let is_listed = |row: &&Vec<Option<String>>| matches!(row.first(), Some(Some(kind)) if kind == "c" || kind == "d");
        let listed: Vec<_> = rows.iter().filter(is_listed).cloned().collect();
        let mut now = ServerDefaults::of(node, &listed, reported)?;
        now.left = self.left.clone();
        let mut beneath = self.beneath_settings(rows);
        for entry in &self.entries {
            let is_unlisted = entry.name.contains('.') || set.get(&entry.name).is_some();
            if is_unlisted && !beneath.iter().any(|one| one.name == entry.name) {
                beneath.push(entry.clone());
            }
        }
        beneath.retain(|entry| now.entry(&entry.name).is_none());
        now.entries.extend(beneath);
        now.entries.sort_by(|one, other| one.name.cmp(&other.name));
        for at in 0..now.reported.len() {
            let name = now.reported[at].0.to_ascii_lowercase();
            if set.get(&name).is_some() {
                let default = now.entry(&name).map(|entry| &*entry.value).or(self.reported(&name)).unwrap_or_default().to_owned();
                now.reported[at].1 = default;
            }
        }
        now.entries.retain(|entry| entry.value != entry.built_in);
        Ok(now)
    }

    /// Returns the defaults of parameters that are set. A setting hides the layer, which stays. A login trigger's value is the
    /// default above all.
    fn beneath_settings(&self, rows: &[Vec<Option<String>>]) -> Vec<ParameterDefault> {
        let of_row = |row: &Vec<Option<String>>| {
            let [Some(kind), Some(name), Some(value), Some(built_in), Some(_)] = row.as_slice() else { return None };
            let layer = self.entry(name).map_or(DefaultLayer::Server, |entry| entry.layer);
            (kind == "r" && self.left.get(name).is_none()).then(|| ParameterDefault {
                name: name.clone(),
                value: value.clone(),
                built_in: built_in.clone(),
                layer,
            })
        };
        rows.iter().filter_map(of_row).collect()
    }

    /// True if the server was not asked, or did not answer.
    pub fn are_unknown(&self) -> bool {
        self.read_at_us == 0
    }

    pub fn left(&self) -> &SettingValues {
        &self.left
    }

    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().map(|entry| (entry.name.as_str(), entry.value.as_str()))
    }

    pub fn reported(&self, name: &str) -> Option<&str> {
        self.reported.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// True if a report shows a reload: no setting explains it.
    pub fn contradicts(&self, name: &str, value: &str, set: &SettingValues) -> bool {
        self.reported(name).is_some_and(|known| known != value) && set.get(&name.to_ascii_lowercase()).is_none()
    }

    pub fn report_of(&self, name: &str) -> Option<(&str, &str)> {
        self.reported.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(name, value)| (&**name, &**value))
    }

    fn entry(&self, name: &str) -> Option<&ParameterDefault> {
        self.entries.binary_search_by(|entry| entry.name.as_str().cmp(name)).ok().map(|at| &self.entries[at])
    }

    /// Returns differing parameters, with the entry of either side.
    fn differing<'a>(
        &'a self,
        theirs: &'a ServerDefaults,
    ) -> impl Iterator<Item = (Option<&'a ParameterDefault>, Option<&'a ParameterDefault>)> {
        let mine = self.entries.iter().map(|entry| (Some(entry), theirs.entry(&entry.name)));
        let others = theirs.entries.iter().filter(|entry| self.entry(&entry.name).is_none()).map(|entry| (None, Some(entry)));
        mine.chain(others).filter(|(one, other)| one.map(|entry| &entry.value) != other.map(|entry| &entry.value))
    }

    pub fn meet(&self, theirs: &ServerDefaults, place: ConnNodeRole) -> DefaultsMerge {
        let mut meeting = DefaultsMerge { held: Vec::new(), news: Vec::new(), base: DefaultsChoice::Own };
        if theirs.are_unknown() {
            return meeting;
        }
        if self.are_unknown() {
            meeting.base = DefaultsChoice::Theirs;
            return meeting;
        }
        let is_same = self.node == theirs.node;
        let was_reread = is_same && theirs.read_at_us > self.read_at_us;
        for (own, other) in self.differing(theirs) {
            let is_servers = [own, other].into_iter().flatten().all(|entry| entry.layer == DefaultLayer::Server);
            let Some(entry) = own.or(other) else { continue };
            let name = entry.name.clone();
            let value_in = |one: Option<&ParameterDefault>| one.map_or(&entry.built_in, |entry| &entry.value).clone();
            if was_reread && is_servers {
                meeting.news.push(ReloadedParameter { name, before: value_in(own), now: value_in(other) });
            } else {
                meeting.held.push((name, value_in(own)));
            }
        }
        if theirs.left.get(ROLE).is_some() && self.left.get(ROLE).is_none() {
            meeting.held.push((ROLE.to_owned(), "none".to_owned()));
        }
        // A session follows the reloads of the server that it writes to.
        if (is_same && theirs.read_at_us >= self.read_at_us) || (!is_same && place == ConnNodeRole::Primary) {
            meeting.base = DefaultsChoice::Theirs;
        }
        meeting
    }

    pub fn differences(&self, theirs: &ServerDefaults) -> Vec<DefaultDifference> {
        if self.are_unknown() || theirs.are_unknown() {
            return Vec::new();
        }
        let is_servers = |one: Option<&ParameterDefault>| one.is_none_or(|entry| entry.layer == DefaultLayer::Server);
        let differing = self.differing(theirs).filter(|(one, other)| is_servers(*one) && is_servers(*other));
        let found = differing.filter_map(|(one, other)| {
            let entry = one.or(other)?;
            let value_in = |one: Option<&ParameterDefault>| one.map_or(&entry.built_in, |entry| &entry.value).clone();
            Some(DefaultDifference { name: entry.name.clone(), here: value_in(one), there: value_in(other) })
        });
        found.collect()
    }
}

fn layer_of(source: &str) -> DefaultLayer {
    match source {
        "global" | "database" | "user" | "database user" | "client" => DefaultLayer::Login,
        _ => DefaultLayer::Server,
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionSettings {
    pub startup: SettingValues,
    pub now: SettingValues,
    pub held: SettingValues,
}

impl SessionSettings {
    /// Takes in a merge. Returns the names whose value for the client has changed.
    pub fn take_in(&mut self, meeting: &DefaultsMerge) -> Vec<String> {
        let mut changed = Vec::new();
        for ReloadedParameter { name, before, now } in &meeting.news {
            if self.held.get(name) == Some(before) {
                // Held against a server with yet another value.
                self.held = self.held.with(name, now);
                self.startup = self.startup.with(name, now);
                if self.now.get(name) == Some(before) {
                    self.now = self.now.with(name, now);
                    changed.push(name.clone());
                }
            } else if self.startup.get(name).is_none() && self.now.get(name).is_none() {
                changed.push(name.clone());
            }
        }
        for (name, value) in &meeting.held {
            if self.startup.get(name).is_some() {
                continue;
            }
            self.held = self.held.with(name, value);
            self.startup = self.startup.with(name, value);
            // Only a reset would return to a login's role.
            if self.now.get(name).is_none() && name != ROLE {
                self.now = self.now.with(name, value);
            }
        }
        changed
    }
}

pub fn own_texts() -> Vec<String> {
    vec![QUESTION.to_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows as `kind name value built_in source`; the configuration was read at this time.
    fn defaults(node: u16, read_at_us: u64, lines: &[&str]) -> ServerDefaults {
        let cells = |line: &str| line.split(' ').map(|cell| Some(cell.to_owned())).collect::<Vec<_>>();
        let mut rows = vec![cells(&format!("c  {read_at_us}  "))];
        rows.extend(lines.iter().map(|line| cells(line)));
        let reported = [("TimeZone", "UTC"), ("is_superuser", "on")];
        ServerDefaults::of(node, &rows, reported.into_iter()).unwrap()
    }

    fn held(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }

    fn settings(pairs: &[(&str, &str)]) -> SettingValues {
        pairs.iter().fold(SettingValues::default(), |settings, (name, value)| settings.with(name, value))
    }

    #[test]
    fn an_answer_that_is_too_long_is_none_whichever_of_its_cells_is() {
        let long = |at: usize| {
            let cells = ["d", "a.b", "x", "x", "configuration_file"];
            let text = "x".repeat(ANSWER.bytes_max / 2);
            (0..5).map(|cell| Some(if cell == at { text.clone() } else { cells[cell].to_owned() })).collect::<Vec<_>>()
        };
        let is_taken = |rows: &[Vec<Option<String>>]| ServerDefaults::of(0, rows, std::iter::empty()).is_ok();
        for at in 1..4 {
            assert!(is_taken(&[long(at)]), "{at}");
            assert!(!is_taken(&[long(at), long(at), long(at)]), "{at}");
        }
    }

    const FILE: &str = "d timezone UTC GMT configuration_file";
    const ROLE: &str = "d timezone Asia/Tokyo GMT user";

    #[test]
    fn what_a_role_is_given_touches_later_logins_only() {
        let (before, after) =
            (defaults(0, 5, &[FILE]), defaults(0, 5, &[ROLE, "d work_mem 5MB 4MB database", "p app.tenant b  user"]));
        let old = before.meet(&after, ConnNodeRole::Primary);
        assert_eq!(old.held, held(&[("timezone", "UTC"), ("app.tenant", ""), ("work_mem", "4MB")]));
        assert_eq!((old.news.as_slice(), old.base), (&[][..], DefaultsChoice::Theirs));
        let new = after.meet(&before, ConnNodeRole::Primary);
        assert_eq!(new.held, held(&[("app.tenant", "b"), ("timezone", "Asia/Tokyo"), ("work_mem", "5MB")]));
    }

    #[test]
    fn a_reload_reaches_all_but_what_a_login_fixed() {
        let changed = ["d timezone Europe/Rome GMT configuration_file", "d work_mem 8MB 4MB configuration_file"];
        let (before, after) = (defaults(0, 5, &[FILE]), defaults(0, 6, &changed));
        let news =
            |name: &str, before: &str, now: &str| ReloadedParameter { name: name.into(), before: before.into(), now: now.into() };
        let met = before.meet(&after, ConnNodeRole::Elsewhere);
        assert_eq!(met.news, [news("timezone", "UTC", "Europe/Rome"), news("work_mem", "4MB", "8MB")]);
        assert_eq!((met.held.as_slice(), met.base), (&[][..], DefaultsChoice::Theirs));
        // A connection of before the reload that a session of after it gets.
        let met = after.meet(&before, ConnNodeRole::Primary);
        assert_eq!(met.held, held(&[("timezone", "Europe/Rome"), ("work_mem", "8MB")]));
        assert_eq!((met.news.as_slice(), met.base), (&[][..], DefaultsChoice::Own));
        let met = defaults(0, 5, &[ROLE]).meet(&after, ConnNodeRole::Primary);
        assert_eq!((met.held, met.news), (held(&[("timezone", "Asia/Tokyo")]), vec![news("work_mem", "4MB", "8MB")]));
    }

    #[test]
    fn another_server_s_configuration_is_no_reload_and_a_session_follows_those_of_the_primary() {
        let (own, theirs) = (defaults(0, 5, &[FILE]), defaults(1, 9, &["d timezone Asia/Tokyo GMT configuration_file"]));
        for (place, base) in [(ConnNodeRole::Elsewhere, DefaultsChoice::Own), (ConnNodeRole::Primary, DefaultsChoice::Theirs)] {
            assert_eq!(own.meet(&theirs, place), DefaultsMerge { held: held(&[("timezone", "UTC")]), news: vec![], base });
        }
        let nothing = DefaultsMerge { held: vec![], news: vec![], base: DefaultsChoice::Own };
        assert_eq!(own.meet(&ServerDefaults::default(), ConnNodeRole::Primary), nothing);
        assert_eq!(
            ServerDefaults::default().meet(&own, ConnNodeRole::Primary),
            DefaultsMerge { base: DefaultsChoice::Theirs, ..nothing }
        );
    }

    #[test]
    fn a_session_holds_what_it_has_not_chosen_itself() {
        let startup = settings(&[("timezone", "GMT")]);
        let mut own = SessionSettings { now: startup.with("work_mem", "1MB"), startup, held: SettingValues::default() };
        let meeting = |pairs: &[(&str, &str)], news: Vec<ReloadedParameter>| DefaultsMerge {
            held: held(pairs),
            news,
            base: DefaultsChoice::Theirs,
        };
        assert!(own.take_in(&meeting(&[("timezone", "UTC"), ("work_mem", "4MB"), ("datestyle", "ISO")], vec![])).is_empty());
        assert_eq!(own.now, settings(&[("timezone", "GMT"), ("work_mem", "1MB"), ("datestyle", "ISO")]));
        assert_eq!(
            own.startup,
            settings(&[("timezone", "GMT"), ("work_mem", "4MB"), ("datestyle", "ISO")]),
            "a reset goes there"
        );
        // A value that is held against a standby follows a reload of the primary, and the client's own choice does not.
        let news =
            |name: &str, before: &str, now: &str| ReloadedParameter { name: name.into(), before: before.into(), now: now.into() };
        let all = vec![
            news("datestyle", "ISO", "SQL"),
            news("work_mem", "4MB", "8MB"),
            news("timezone", "UTC", "Rome"),
            news("jit", "on", "off"),
        ];
        assert_eq!(own.take_in(&meeting(&[], all)), ["datestyle", "jit"]);
        assert_eq!(own.now, settings(&[("timezone", "GMT"), ("work_mem", "1MB"), ("datestyle", "SQL")]));
        assert_eq!(own.startup, settings(&[("timezone", "GMT"), ("work_mem", "8MB"), ("datestyle", "SQL")]));
        assert!(own.take_in(&meeting(&[], vec![news("datestyle", "German", "ISO")])).is_empty(), "held for its login's sake");
    }

    #[test]
    fn the_values_of_a_login_trigger_are_no_defaults_of_the_server() {
        let left = defaults(0, 5, &[FILE, "l timezone Asia/Tokyo GMT session", "l app.user joe  session"]);
        assert_eq!(left.left(), &settings(&[("timezone", "Asia/Tokyo"), ("app.user", "joe")]));
        assert!(!left.contradicts("TimeZone", "Asia/Tokyo", &SettingValues::default()));
    }

    #[test]
    fn a_role_by_default_comes_back_by_a_reset_only_where_the_login_had_it() {
        let (none, some) = (defaults(0, 5, &[]), defaults(0, 5, &["l role joe none user"]));
        let meeting = none.meet(&some, ConnNodeRole::Primary);
        let mut own = SessionSettings::default();
        own.take_in(&meeting);
        assert_eq!((own.startup, own.now), (settings(&[("role", "none")]), SettingValues::default()));
        assert!(some.meet(&none, ConnNodeRole::Primary).held.is_empty());
    }

    #[test]
    fn a_report_of_what_nobody_set_shows_a_reload() {
        let known = defaults(0, 5, &[FILE]);
        let none = SettingValues::default();
        assert!(known.contradicts("TimeZone", "Asia/Tokyo", &none) && !known.contradicts("TimeZone", "UTC", &none));
        assert!(!known.contradicts("TimeZone", "Asia/Tokyo", &settings(&[("timezone", "Asia/Tokyo")])));
        assert!(!known.contradicts("is_superuser", "off", &none) && !known.contradicts("other", "1", &none));
    }

    #[test]
    fn a_connection_is_asked_again_whatever_was_set_on_it() {
        let before = defaults(0, 5, &[FILE, "p app.tenant b  user", "d work_mem 5MB 4MB user", "l jit off on session"]);
        let cells = |line: &str| line.split(' ').map(|cell| Some(cell.to_owned())).collect::<Vec<_>>();
        let rows =
            ["c  9  ", "d timezone Rome GMT configuration_file", "l work_mem 1MB 4MB session", "p app.tenant c  user"].map(cells);
        let set = settings(&[("work_mem", "1MB"), ("timezone", "GMT")]);
        let now = before.reread(0, &rows, &set, [("TimeZone", "GMT")].into_iter()).unwrap();
        assert_eq!(now.pairs().collect::<Vec<_>>(), [("app.tenant", "b"), ("timezone", "Rome"), ("work_mem", "5MB")]);
        assert_eq!((now.report_of("timezone"), now.left()), (Some(("TimeZone", "Rome")), &settings(&[("jit", "off")])));
    }

    #[test]
    fn only_configurations_are_compared() {
        let one = defaults(0, 5, &[FILE, "d work_mem 5MB 4MB user"]);
        let other = defaults(1, 5, &["d timezone Rome GMT command_line", "d jit off on configuration_file"]);
        let difference =
            |name: &str, here: &str, there: &str| DefaultDifference { name: name.into(), here: here.into(), there: there.into() };
        assert_eq!(one.differences(&other), [difference("timezone", "UTC", "Rome"), difference("jit", "on", "off")]);
        assert!(one.differences(&ServerDefaults::default()).is_empty() && one.differences(&one).is_empty());
    }

    /// The question came while another session's setting stood on the connection: the default beneath it counted as the one of before the reload.
    #[test]
    fn a_setting_hides_no_default_that_a_reload_has_changed() {
        let before = defaults(0, 5, &[FILE, "d work_mem 5MB 4MB user", "l jit off on session"]);
        let cells = |line: &str| line.split(' ').map(|cell| Some(cell.to_owned())).collect::<Vec<_>>();
        let rows = [
            "c  9  ",
            "l timezone Paris GMT session",
            "r timezone Rome GMT session",
            "r work_mem 5MB 4MB session",
            "r jit on on session",
        ];
        let rows = rows.map(cells);
        let set = settings(&[("timezone", "Paris"), ("work_mem", "1MB")]);
        let now = before.reread(0, &rows, &set, [("TimeZone", "Paris")].into_iter()).unwrap();
        assert_eq!(now.pairs().collect::<Vec<_>>(), [("timezone", "Rome"), ("work_mem", "5MB")]);
        assert_eq!((now.reported("timezone"), now.left()), (Some("Rome"), &settings(&[("jit", "off")])));
        let met = before.meet(&now, ConnNodeRole::Primary);
        assert_eq!(met.news, [ReloadedParameter { name: "timezone".into(), before: "UTC".into(), now: "Rome".into() }]);
        assert!(met.held.is_empty());
        // A parameter that left the configuration has the value that the server is built with.
        let rows = ["c  10  ", "l timezone Paris GMT session", "r timezone GMT GMT session"].map(cells);
        let bare = now.reread(0, &rows, &set, [("TimeZone", "Paris")].into_iter()).unwrap();
        assert_eq!((bare.pairs().count(), bare.reported("timezone")), (1, Some("GMT")));
    }
}
