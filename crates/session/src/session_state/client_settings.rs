//! A session's settings, and the SQL that changes a server connection from one session's to another's.
//!
//! Equal settings share one `SettingValues`, so that "already set" is a comparison of pointers.

use weir_sql::facts::ResetTarget;
use weir_wire::startup_packet::{OptionsError, StartupMessage, split_options};
use weir_wire::write::literal;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SettingValues {
    pairs: Vec<(String, String)>,
}

/// While on, a backslash in a string is not an escape.
pub const ESCAPES_UNLESS: &str = "standard_conforming_strings";

pub const ENCODING: &str = "client_encoding";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextReading {
    pub escapes: Option<bool>,
    pub recoding: Option<EncodingEffect>,
}

/// Effect of an encoding on a text read as UTF-8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum EncodingEffect {
    #[default]
    None,
    /// Names beyond ASCII differ; every byte of such a character is above 127.
    Names,
    /// A later byte of a character may be ASCII.
    Characters,
}

impl EncodingEffect {
    /// By a value of `ENCODING` or `server_encoding`. An unknown encoding may be anything. Source: `pg_encname_tbl` in
    /// encnames.c; `PG_ENCODING_BE_LAST` in pg_wchar.h: in a database's encoding, characters beyond ASCII hold no ASCII byte.
    pub fn of(value: &str) -> EncodingEffect {
        let letters: String = value.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
        const OF_CLIENTS: [&str; 18] = [
            "big5",
            "gb18030",
            "gbk",
            "johab",
            "mskanji",
            "shiftjis",
            "shiftjis2004",
            "sjis",
            "uhc",
            "win932",
            "win936",
            "win949",
            "win950",
            "windows932",
            "windows936",
            "windows949",
            "windows950",
            "cp932",
        ];
        const OF_SERVERS: [&str; 9] = ["abc", "alt", "euc", "iso8859", "koi8", "latin", "mule", "sqlascii", "win"];
        const MORE_OF_SERVERS: [&str; 3] = ["tcvn", "vscii", "windows"];
        match letters.as_str() {
            "utf8" | "unicode" => EncodingEffect::None,
            known if OF_CLIENTS.contains(&known) => EncodingEffect::Characters,
            known if OF_SERVERS.iter().chain(&MORE_OF_SERVERS).any(|begin| known.starts_with(begin)) => EncodingEffect::Names,
            _ => EncodingEffect::Characters,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("{0}")]
    Switch(OptionsError),
    #[error("invalid configuration parameter name \"{0}\"")]
    Name(String),
}

impl SettingValues {
    /// Returns a startup packet's settings but those in `ignored`. Named parameters win over `options`, as in PostgreSQL.
    pub fn of_startup(startup: &StartupMessage, ignored: &[String]) -> Result<SettingValues, SettingsError> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        let mut set = |name: &str, value: &str| -> Result<(), SettingsError> {
            if ignored.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                return Ok(());
            }
            let name = canonical(name)?;
            pairs.retain(|(n, _)| *n != name);
            pairs.push((name, value.to_string()));
            Ok(())
        };
        for (_, value) in startup.parameters.iter().filter(|(name, _)| *name == "options") {
            for (name, value) in split_options(value).map_err(SettingsError::Switch)? {
                set(&name, &value)?;
            }
        }
        for (name, value) in startup.parameters.iter() {
            if !matches!(name, "user" | "database" | "replication" | "options") {
                set(name, value)?;
            }
        }
        pairs.sort();
        Ok(SettingValues { pairs })
    }

    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Memory in bytes, nearly.
    pub fn bytes(&self) -> usize {
        let of_pair = |(name, value): &(String, String)| size_of::<(String, String)>() + name.len() + value.len();
        self.pairs.iter().map(of_pair).sum()
    }

    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.stored(name).map(|value| if value == RESET { "" } else { value })
    }

    fn stored(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    pub fn reading(&self) -> TextReading {
        let is_on = |value: &str| matches!(value.to_ascii_lowercase().as_str(), "on" | "true" | "yes" | "1");
        TextReading {
            escapes: self.get(ESCAPES_UNLESS).map(|value| !is_on(value)),
            recoding: self.get(ENCODING).map(EncodingEffect::of),
        }
    }

    pub fn without(&self, name: &str) -> SettingValues {
        SettingValues { pairs: self.pairs.iter().filter(|(n, _)| n != name).cloned().collect() }
    }

    /// `name` is lower case.
    pub fn with(&self, name: &str, value: &str) -> SettingValues {
        let mut pairs = self.pairs.clone();
        match pairs.binary_search_by(|(known, _)| known.as_str().cmp(name)) {
            Ok(at) => pairs[at].1 = value.to_owned(),
            Err(at) => pairs.insert(at, (name.to_owned(), value.to_owned())),
        }
        SettingValues { pairs }
    }

    /// Returns the settings with `others` over them.
    pub fn overlaid(&self, others: &SettingValues) -> SettingValues {
        others.pairs.iter().fold(self.clone(), |settings, (name, value)| settings.with(name, value))
    }

    /// Returns the settings that a statement's analysis depends on. Parameters with a dot are read only at execution.
    pub fn meaning(&self) -> SettingValues {
        let shapes = |name: &str| !name.contains('.') && !SHAPELESS.contains(&name);
        SettingValues { pairs: self.pairs.iter().filter(|(name, _)| shapes(name)).cloned().collect() }
    }

    /// Returns the settings that a result may depend on, also those of extensions.
    pub fn shaping_answers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs().filter(|(name, _)| shapes_answers(name))
    }

    /// True if statements run as another user than the login's.
    pub fn has_role(&self) -> bool {
        WHO.iter().any(|name| self.get(name).is_some())
    }

    /// True if a server may take a small query for a costly one, and compile it.
    pub fn may_compile(&self) -> bool {
        self.pairs().any(|(name, _)| makes_costly(name))
    }

    /// True if objects made without a schema are temporary.
    pub fn makes_temporary(&self) -> bool {
        self.get("search_path").is_some_and(|path| path.to_ascii_lowercase().contains("pg_temp"))
    }

    /// A hot standby refuses all statements of such a session.
    pub fn needs_primary(&self) -> bool {
        self.get("default_transaction_isolation").is_some_and(|level| level.eq_ignore_ascii_case("serializable"))
    }

    /// Returns the settings after a reset: a made-up parameter is then empty, an extension's has its default.
    pub fn after(&self, reset: &ResetTarget, startup: &SettingValues) -> SettingValues {
        match reset {
            ResetTarget::All | ResetTarget::Many => {
                let kept = self.pairs().filter_map(|(name, value)| match name {
                    // RESET ALL leaves these two alone. Source: GUC_NO_RESET_ALL.
                    name if WHO.contains(&name) => Some((name, value)),
                    name if is_made_up(name) && startup.get(name).is_none() => Some((name, RESET)),
                    _ => None,
                });
                kept.fold(startup.without_who(), |settings, (name, value)| settings.with(name, value))
            }
            ResetTarget::Name(name) => match startup.get(name) {
                Some(value) => self.with(name, value),
                None if is_made_up(name) => self.with(name, RESET),
                None => self.without(name),
            },
        }
    }

    pub fn without_who(&self) -> SettingValues {
        SettingValues { pairs: self.pairs.iter().filter(|(name, _)| !WHO.contains(&name.as_str())).cloned().collect() }
    }

    pub fn is_hit_by(&self, reset: &ResetTarget) -> bool {
        match reset {
            ResetTarget::All | ResetTarget::Many => !self.is_empty(),
            ResetTarget::Name(name) => self.get(name).is_some(),
        }
    }

    /// Returns the settings that no server lists: made-up parameters, and the user who runs statements.
    pub fn unlisted(&self) -> SettingValues {
        let is_unlisted = |name: &str| is_made_up(name) || WHO.contains(&name);
        SettingValues { pairs: self.pairs.iter().filter(|(name, _)| is_unlisted(name)).cloned().collect() }
    }

    /// Returns one statement, to follow a server's reset.
    pub fn again(&self, reset: &ResetTarget) -> String {
        match reset {
            ResetTarget::All => SettingValues::default().change_to(&self.without_who()),
            ResetTarget::Many => self.without_who().again_unless_set(),
            ResetTarget::Name(name) => {
                let mut sql = String::new();
                if let Some(value) = self.get(name) {
                    push_call(&mut sql, name, Some(value));
                }
                sql
            }
        }
    }

    /// Sets only parameters that the session has not set; a made-up one counts as reset when empty.
    fn again_unless_set(&self) -> String {
        let mut sql = String::new();
        for (name, value) in &self.pairs {
            sql.push_str(if sql.is_empty() { AGAIN_UNLESS_SET.0 } else { "),(" });
            literal(&mut sql, name);
            sql.push(',');
            value_literal(&mut sql, value);
        }
        if !sql.is_empty() {
            sql.push_str(AGAIN_UNLESS_SET.1);
        }
        sql
    }

    #[must_use]
    pub fn without_made_up(self, startup: &SettingValues) -> SettingValues {
        let made_up: Vec<String> = self.pairs.iter().map(|(name, _)| name.clone()).filter(|name| is_made_up(name)).collect();
        made_up.iter().filter(|name| startup.get(name).is_none()).fold(self, |settings, name| settings.without(name))
    }

    /// True if a server may refuse the change: rights, or the object that a value names, may have changed.
    pub fn may_be_refused(&self, wanted: &SettingValues) -> bool {
        let differs = |name: &str| self.stored(name) != wanted.stored(name);
        let may_be = |name: &str| !is_anybodys(name);
        let all = || self.pairs().chain(wanted.pairs()).map(|(name, _)| name);
        self.has_role() || wanted.has_role() || all().any(|name| may_be(name) && differs(name))
    }

    /// Returns one statement that changes `self` to `wanted`; empty: nothing to do.
    ///
    /// `set_config` takes lists (`search_path`) in the form of the startup packet, unlike `SET`; NULL resets. Other settings are
    /// changed as the login user: a role may lack the right.
    pub fn change_to(&self, wanted: &SettingValues) -> String {
        let mut sql = String::new();
        let is_plain = |(name, _): &&(String, String)| !WHO.contains(&name.as_str());
        // A server never forgets a made-up name.
        let is_worth_it = |(name, value): &&(String, String)| !((value.is_empty() || value == RESET) && is_made_up(name));
        let lacks = |(name, _): &&(String, String)| wanted.get(name).is_none();
        for (name, _) in self.pairs.iter().filter(is_plain).filter(lacks).filter(is_worth_it) {
            push_call(&mut sql, name, None);
        }
        for (name, value) in wanted.pairs.iter().filter(is_plain).filter(|(name, value)| self.stored(name) != Some(value)) {
            // 'ISO' alone keeps the field order of the value before: reset first.
            if name == "datestyle" && self.get(name).is_some() {
                push_call(&mut sql, name, None);
            }
            push_call(&mut sql, name, Some(value.as_str()).filter(|value| *value != RESET));
        }
        let is_same_user = WHO.iter().all(|name| self.get(name) == wanted.get(name));
        if is_same_user && (sql.is_empty() || !self.has_role()) {
            return sql;
        }
        let mut whole = String::new();
        if self.has_role() {
            push_call(&mut whole, SESSION_AUTHORIZATION, None);
            push_call(&mut whole, ROLE, Some("none"));
        }
        if !sql.is_empty() {
            whole = if whole.is_empty() { sql } else { whole + &sql.replacen("SELECT ", ", ", 1) };
        }
        for name in WHO {
            if let Some(value) = wanted.get(name) {
                push_call(&mut whole, name, Some(value));
            }
        }
        whole
    }
}

const AGAIN_UNLESS_SET: (&str, &str) = (
    "SELECT pg_catalog.set_config(n, v, false) FROM (VALUES (",
    ")) AS startup (n, v) WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_settings \
     WHERE source OPERATOR(pg_catalog.=) 'session' AND pg_catalog.lower(name) OPERATOR(pg_catalog.=) n) \
     AND (pg_catalog.strpos(n, '.') OPERATOR(pg_catalog.=) 0 \
     OR COALESCE(pg_catalog.current_setting(n, true), '') OPERATOR(pg_catalog.=) '')",
);

const SESSION_AUTHORIZATION: &str = "session_authorization";
pub(crate) const ROLE: &str = "role";

/// In the order of setting: a new session user begins without a role.
pub const WHO: [&str; 2] = [SESSION_AUTHORIZATION, ROLE];

/// Value of a parameter with a dot after a reset: empty, or an extension's default; only the server knows. No real value holds
/// this character.
const RESET: &str = "\0";

fn is_made_up(name: &str) -> bool {
    name.contains('.')
}

/// Sorted. Parameters that any user may set and whose values stay valid; for others the answer is awaited before a statement.
/// Source: guc_tables.c, `PGC_USERSET` without a check hook on the catalog.
const NEVER_REFUSED: [&str; 68] = [
    "application_name",
    "array_nulls",
    "backslash_quote",
    "bytea_output",
    "check_function_bodies",
    "client_connection_check_interval",
    "client_encoding",
    "client_min_messages",
    "constraint_exclusion",
    "cpu_index_tuple_cost",
    "cpu_operator_cost",
    "cpu_tuple_cost",
    "cursor_tuple_fraction",
    "datestyle",
    "default_statistics_target",
    "default_transaction_deferrable",
    "default_transaction_isolation",
    "default_transaction_read_only",
    "effective_cache_size",
    "enable_bitmapscan",
    "enable_gathermerge",
    "enable_hashagg",
    "enable_hashjoin",
    "enable_indexonlyscan",
    "enable_indexscan",
    "enable_material",
    "enable_mergejoin",
    "enable_nestloop",
    "enable_parallel_append",
    "enable_parallel_hash",
    "enable_partition_pruning",
    "enable_partitionwise_aggregate",
    "enable_partitionwise_join",
    "enable_seqscan",
    "enable_sort",
    "enable_tidscan",
    "escape_string_warning",
    "extra_float_digits",
    "from_collapse_limit",
    "geqo",
    "geqo_threshold",
    "gin_fuzzy_search_limit",
    "hash_mem_multiplier",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "intervalstyle",
    "jit",
    "join_collapse_limit",
    "lc_monetary",
    "lc_numeric",
    "lc_time",
    "lock_timeout",
    "logical_decoding_work_mem",
    "maintenance_work_mem",
    "max_parallel_workers_per_gather",
    "plan_cache_mode",
    "quote_all_identifiers",
    "random_page_cost",
    "row_security",
    "search_path",
    "seq_page_cost",
    "standard_conforming_strings",
    "statement_timeout",
    "synchronous_commit",
    "timezone",
    "transaction_timeout",
    "work_mem",
    "xmloption",
];

const SHAPELESS: [&str; 7] = [
    "application_name",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "lock_timeout",
    "statement_timeout",
    "transaction_timeout",
    "work_mem",
];

/// True if the parameter changes estimated costs, or the cost above which a query is compiled.
pub(crate) fn makes_costly(name: &str) -> bool {
    name.starts_with("enable_") || name.starts_with("jit") || name.ends_with("_cost")
}

/// True if any user may set a parameter. An extension's may still be a superuser's.
pub fn is_anybodys(name: &str) -> bool {
    is_made_up(name) || NEVER_REFUSED.binary_search(&name).is_ok()
}

/// True if a result, or its text, may depend on the parameter.
pub fn shapes_answers(name: &str) -> bool {
    !SHAPELESS.contains(&name) && !name.starts_with("weir.")
}

fn push_call(sql: &mut String, name: &str, value: Option<&str>) {
    sql.push_str(if sql.is_empty() { "SELECT pg_catalog.set_config(" } else { ", pg_catalog.set_config(" });
    literal(sql, name);
    sql.push(',');
    match value {
        Some(value) => value_literal(sql, value),
        None => sql.push_str("NULL"),
    }
    sql.push_str(",false)");
}

/// Writes a value that reads the same in the previous session's encoding, which the server connection may still have. Bytes are
/// taken as in a startup packet; values beyond ASCII are known only in UTF-8.
fn value_literal(sql: &mut String, value: &str) {
    if value.is_ascii() {
        return literal(sql, value);
    }
    sql.push_str(" E'");
    for c in value.chars() {
        match c {
            '\'' | '\\' => sql.extend([c, c]),
            c if c.is_ascii() => sql.push(c),
            c => c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| sql.push_str(&format!("\\x{byte:02x}"))),
        }
    }
    sql.push('\'');
}

fn canonical(name: &str) -> Result<String, SettingsError> {
    let valid =
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$') || !c.is_ascii());
    if valid { Ok(name.to_ascii_lowercase()) } else { Err(SettingsError::Name(name.to_string())) }
}

pub fn own_texts() -> Vec<String> {
    let none = SettingValues::default();
    let some = none.with("work_mem", "1MB").with("app.tenant", "\u{fc}'\\");
    let other = some.with(ROLE, "joe").with(SESSION_AUTHORIZATION, "ann");
    let startup = none.with("a", "1").with("b", "2");
    vec![
        none.change_to(&some),
        some.change_to(&other),
        other.change_to(&none),
        startup.again(&ResetTarget::All),
        startup.again(&ResetTarget::Name("a".into())),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::startup_packet::ProtocolVersion;

    fn settings(pairs: &[(&str, &str)]) -> SettingValues {
        let parameters = pairs.iter().copied().collect();
        SettingValues::of_startup(&StartupMessage { version: ProtocolVersion::V3_0, parameters, protocol_options: vec![] }, &[])
            .unwrap()
    }

    #[test]
    fn the_startup_packet_says_what_is_set() {
        let s =
            settings(&[("user", "joe"), ("TimeZone", "UTC"), ("options", "-c timezone=GMT -c work_mem=4MB"), ("database", "d")]);
        assert_eq!((s.get("timezone"), s.get("work_mem"), s.get("user")), (Some("UTC"), Some("4MB"), None));
    }

    #[test]
    fn a_link_is_brought_from_one_session_to_another() {
        let (none, a, b) = (SettingValues::default(), settings(&[("a", "1"), ("b", "2")]), settings(&[("b", "3'"), ("c", "4")]));
        for (from, to, expected) in [
            (&none, &none, ""),
            (&a, &a, ""),
            (&none, &a, "SELECT pg_catalog.set_config('a','1',false), pg_catalog.set_config('b','2',false)"),
            (
                &a,
                &b,
                "SELECT pg_catalog.set_config('a',NULL,false), pg_catalog.set_config('b','3''',false), pg_catalog.set_config('c','4',false)",
            ),
        ] {
            assert_eq!(from.change_to(to), expected);
        }
    }

    #[test]
    fn what_a_server_may_refuse_is_told_apart() {
        let none = SettingValues::default();
        assert!(NEVER_REFUSED.is_sorted());
        for (name, may_be) in [("work_mem", false), ("app.user", false), ("role", true), ("log_duration", true)] {
            let with = settings(&[(name, "1"), ("timezone", "UTC")]);
            assert_eq!((none.may_be_refused(&with), with.may_be_refused(&none)), (may_be, may_be), "{name}");
            assert_eq!(with.may_be_refused(&with.with("timezone", "GMT")), name == "role", "{name}");
        }
    }

    #[test]
    fn a_value_reads_alike_in_all_encodings() {
        let sql = SettingValues::default().change_to(&settings(&[("a.b", r"ü'\")]));
        assert_eq!(sql, r"SELECT pg_catalog.set_config('a.b', E'\xc3\xbc''\\',false)");
    }

    #[test]
    fn roles_change_around_the_others() {
        let (none, joe) = (SettingValues::default(), settings(&[("role", "joe"), ("b", "2")]));
        let su = settings(&[("session_authorization", "sue"), ("role", "joe"), ("b", "3")]);
        let call = |name: &str, value: &str| format!("pg_catalog.set_config('{name}',{value},false)");
        let (b2, b3) = (call("b", "'2'"), call("b", "'3'"));
        let (who, no_role) = (call("session_authorization", "NULL"), call("role", "'none'"));
        let (is_joe, is_sue) = (call("role", "'joe'"), call("session_authorization", "'sue'"));
        assert_eq!(none.change_to(&joe), format!("SELECT {b2}, {is_joe}"));
        assert_eq!(joe.change_to(&none), format!("SELECT {who}, {no_role}, {}", call("b", "NULL")));
        assert_eq!(joe.change_to(&su), format!("SELECT {who}, {no_role}, {b3}, {is_sue}, {is_joe}"));
        assert_eq!(joe.change_to(&joe), "");
        assert_eq!(none.change_to(&settings(&[("role", "joe")])), format!("SELECT {is_joe}"));
    }

    #[test]
    fn a_reset_takes_back_to_the_start() {
        let startup = settings(&[("a", "1"), ("b", "2")]);
        let now = startup.with("b", "3").with("c", "4").with("role", "joe");
        assert_eq!(now.after(&ResetTarget::All, &startup), startup.with("role", "joe"));
        assert_eq!(now.after(&ResetTarget::Name("b".into()), &startup), now.with("b", "2"));
        assert_eq!(now.after(&ResetTarget::Name("c".into()), &startup), now.without("c"));
        let made_up = startup.with("my.name", "7");
        let was_reset = startup.with("my.name", RESET);
        assert_eq!(made_up.after(&ResetTarget::Name("my.name".into()), &startup), was_reset);
        assert_eq!(made_up.after(&ResetTarget::All, &startup), was_reset);
        assert_eq!(startup.change_to(&was_reset), "SELECT pg_catalog.set_config('my.name',NULL,false)");
        assert_eq!(was_reset.change_to(&made_up), "SELECT pg_catalog.set_config('my.name','7',false)");
        assert_eq!(was_reset.change_to(&startup), "");
        assert_eq!(startup.with("my.name", "").change_to(&startup), "");
        assert!(startup.is_hit_by(&ResetTarget::Name("a".into())) && !startup.is_hit_by(&ResetTarget::Name("c".into())));
        assert_eq!(startup.again(&ResetTarget::Name("a".into())), "SELECT pg_catalog.set_config('a','1',false)");
        assert_eq!(startup.again(&ResetTarget::Name("c".into())), "");
        let many = startup.again(&ResetTarget::Many);
        assert!(many.contains("(VALUES ('a','1'),('b','2')) AS startup (n, v) WHERE NOT EXISTS"), "{many}");
        assert_eq!(SettingValues::default().again(&ResetTarget::Many), "");
    }

    #[test]
    fn what_shapes_a_statement_is_told_apart() {
        let all = settings(&[("application_name", "a"), ("app.user", "7"), ("datestyle", "German"), ("work_mem", "1MB")]);
        assert_eq!(all.meaning(), settings(&[("datestyle", "German")]));
        assert_eq!(all.with("role", "joe").unlisted(), settings(&[("app.user", "7"), ("role", "joe")]));
    }

    #[test]
    fn what_is_known_of_a_parameter_by_its_name_decides() {
        let of = |name: &str, value: &str| settings(&[(name, value)]);
        for (name, may_compile) in [("jit", true), ("enable_sort", true), ("jit_above_cost", true), ("work_mem", false)] {
            assert_eq!(of(name, "1").may_compile(), may_compile, "{name}");
        }
        assert!(!SettingValues::default().may_compile());
        for (level, needs) in [("serializable", true), ("SERIALIZABLE", true), ("repeatable read", false)] {
            assert_eq!(of("default_transaction_isolation", level).needs_primary(), needs, "{level}");
        }
        assert!(!of("application_name", "serializable").needs_primary());
        for (name, shapes) in [("datestyle", true), ("app.user", true), ("application_name", false), ("weir.reads", false)] {
            assert_eq!(shapes_answers(name), shapes, "{name}");
        }
    }

    #[test]
    fn memory_grows_with_what_is_set() {
        let (short, long) = (settings(&[("a", "1")]), settings(&[("a", &"1".repeat(1000))]));
        assert_eq!(SettingValues::default().bytes(), 0);
        assert_eq!(long.bytes() - short.bytes(), 999);
        assert!(short.with("b", "").bytes() > short.bytes() + 1, "a pair takes more than its letters");
    }

    #[test]
    fn encodings_are_told_apart_by_what_a_byte_may_be() {
        for (expected, names) in [
            (EncodingEffect::None, &["UTF8", "utf-8", "Unicode"][..]),
            (
                EncodingEffect::Names,
                &["LATIN1", "latin-9", "ISO_8859_5", "WIN1252", "windows-1251", "SQL_ASCII", "KOI8R", "EUC_JIS_2004", "EUC_TW"],
            ),
            (
                EncodingEffect::Characters,
                &["SJIS", "BIG5", "GBK", "UHC", "JOHAB", "GB18030", "SHIFT_JIS_2004", "win936", "", "klingon"],
            ),
        ] {
            names.iter().for_each(|name| assert_eq!(EncodingEffect::of(name), expected, "{name}"));
        }
    }

    #[test]
    fn odd_names_are_refused() {
        let parameters = [("a b", "1")].into_iter().collect();
        let startup = StartupMessage { version: ProtocolVersion::V3_0, parameters, protocol_options: vec![] };
        assert_eq!(SettingValues::of_startup(&startup, &[]), Err(SettingsError::Name("a b".into())));
        let left = SettingValues::of_startup(&startup, &["A B".to_owned()]).map(|settings| settings.is_empty());
        assert_eq!(left, Ok(true), "it is ignored");
    }
}
