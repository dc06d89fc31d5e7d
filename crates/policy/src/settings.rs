//! The settings a session asked for in its startup packet, and the SQL that brings a link from one session's to another's.
//!
//! A link starts with none. Two sessions that asked for the same share one `Settings`, so that "the link already has them" is a
//! comparison of pointers.

use weir_wire::startup::{Startup, split_options};
use weir_wire::write::literal;

/// Names and values, sorted by name, each name once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Settings {
    pairs: Vec<(String, String)>,
}

/// A startup parameter Weir does not take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("unsupported command-line switch in startup options: \"{0}\"")]
    Switch(String),
    #[error("invalid configuration parameter name \"{0}\"")]
    Name(String),
}

impl Settings {
    /// What a startup packet asks for: its parameters, those in `options` first, so that the named ones win as in PostgreSQL.
    pub fn of_startup(startup: &Startup) -> Result<Settings, SettingsError> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        let mut set = |name: &str, value: &str| -> Result<(), SettingsError> {
            let name = canonical(name)?;
            pairs.retain(|(n, _)| *n != name);
            pairs.push((name, value.to_string()));
            Ok(())
        };
        for (name, value) in startup.parameters.iter().filter(|(name, _)| name == "options") {
            let _ = name;
            for (name, value) in split_options(value).map_err(SettingsError::Switch)? {
                set(&name, &value)?;
            }
        }
        for (name, value) in &startup.parameters {
            if !matches!(name.as_str(), "user" | "database" | "replication" | "options") {
                set(name, value)?;
            }
        }
        pairs.sort();
        Ok(Settings { pairs })
    }

    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The same without one name.
    pub fn without(&self, name: &str) -> Settings {
        Settings { pairs: self.pairs.iter().filter(|(n, _)| n != name).cloned().collect() }
    }

    /// One statement that sets a name again to what the session asked for, after the session reset it.
    pub fn again(&self, name: &str) -> String {
        let mut sql = String::new();
        if let Some(value) = self.get(name) {
            push_call(&mut sql, name, Some(value));
        }
        sql
    }

    /// One statement that brings a link that has `self` to `wanted`; empty when there is nothing to do.
    ///
    /// `set_config` and not `SET`: it takes a list (`search_path`) in the form the startup packet has it, and NULL resets.
    pub fn change_to(&self, wanted: &Settings) -> String {
        let mut sql = String::new();
        for (name, _) in self.pairs.iter().filter(|(name, _)| wanted.get(name).is_none()) {
            push_call(&mut sql, name, None);
        }
        for (name, value) in wanted.pairs.iter().filter(|(name, value)| self.get(name) != Some(value)) {
            // 'ISO' alone keeps the field order of the value before it, so that one must be the default.
            if name == "datestyle" && self.get(name).is_some() {
                push_call(&mut sql, name, None);
            }
            push_call(&mut sql, name, Some(value));
        }
        sql
    }
}

fn push_call(sql: &mut String, name: &str, value: Option<&str>) {
    sql.push_str(if sql.is_empty() { "SELECT pg_catalog.set_config(" } else { ", pg_catalog.set_config(" });
    literal(sql, name);
    sql.push(',');
    match value {
        Some(value) => literal(sql, value),
        None => sql.push_str("NULL"),
    }
    sql.push_str(",false)");
}

/// Parameter names fold their ASCII case. Source: `guc_name_compare` in guc.c.
fn canonical(name: &str) -> Result<String, SettingsError> {
    let valid =
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$') || !c.is_ascii());
    if valid { Ok(name.to_ascii_lowercase()) } else { Err(SettingsError::Name(name.to_string())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::startup::Version;

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        let parameters = pairs.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
        Settings::of_startup(&Startup { version: Version::V3_0, parameters, protocol_options: vec![] }).unwrap()
    }

    #[test]
    fn the_startup_packet_says_what_is_set() {
        let s =
            settings(&[("user", "joe"), ("TimeZone", "UTC"), ("options", "-c timezone=GMT -c work_mem=4MB"), ("database", "d")]);
        assert_eq!((s.get("timezone"), s.get("work_mem"), s.get("user")), (Some("UTC"), Some("4MB"), None));
    }

    #[test]
    fn a_link_is_brought_from_one_session_to_another() {
        let (none, a, b) = (Settings::default(), settings(&[("a", "1"), ("b", "2")]), settings(&[("b", "3'"), ("c", "4")]));
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
    fn odd_names_are_refused() {
        let parameters = vec![("a b".to_string(), "1".to_string())];
        let startup = Startup { version: Version::V3_0, parameters, protocol_options: vec![] };
        assert_eq!(Settings::of_startup(&startup), Err(SettingsError::Name("a b".into())));
    }
}
