//! Settings of Weir's own server connections: choices of role owners, database owners and login triggers have no effect.
//!
//! Values in the startup packet win over `ALTER ROLE ... SET` and `ALTER DATABASE ... SET`. A login event trigger (version 17)
//! runs later and may change all, so there they are set again, by commands that look no name up.
//!
//! Source: PostgreSQL manual, "How Parameter Settings Are Determined"; `process_startup_options` and `process_settings` in
//! postinit.c.

use std::fmt::Write;

struct PinnedParameter {
    name: &'static str,
    value: &'static str,
    /// First version with the parameter. A startup packet can hold only what all versions know.
    since: u32,
}

const ALWAYS: u32 = 0;
/// First version with login event triggers.
const LOGIN_TRIGGERS: u32 = 170_000;

const fn pin(name: &'static str, value: &'static str) -> PinnedParameter {
    PinnedParameter { name, value, since: ALWAYS }
}

/// PostgreSQL's own names first. `pg_temp` must be named, or temporary objects would come first.
pub const SEARCH_PATH: &str = "pg_catalog, pg_temp";

const PINS: &[PinnedParameter] = &[
    pin("search_path", SEARCH_PATH),
    pin("role", "none"),
    pin("client_encoding", "UTF8"),
    // How texts are read.
    pin("standard_conforming_strings", "on"),
    pin("transform_null_equals", "off"),
    pin("array_nulls", "on"),
    // How values are shown.
    pin("DateStyle", "ISO, MDY"),
    pin("IntervalStyle", "postgres"),
    pin("TimeZone", "UTC"),
    pin("bytea_output", "hex"),
    pin("extra_float_digits", "1"),
    pin("quote_all_identifiers", "off"),
    // The user's limits are for his own statements.
    pin("statement_timeout", "0"),
    pin("lock_timeout", "0"),
    pin("idle_in_transaction_session_timeout", "0"),
    PinnedParameter { name: "idle_session_timeout", value: "0", since: 140_000 },
    PinnedParameter { name: "transaction_timeout", value: "0", since: 170_000 },
    // Not `default_transaction_read_only`, which a failover sets and checks. Weir writes no rows, so nothing depends on it.
    pin("default_transaction_isolation", "read committed"),
    pin("default_transaction_deferrable", "off"),
    pin("row_security", "on"),
    // Compiling large queries takes twenty times as long as answering them.
    pin("jit", "off"),
    pin("client_min_messages", "warning"),
];

/// Server defaults that the catalog reader asks for; a startup packet would replace them.
const ASKED: [&str; 4] =
    ["search_path", "default_transaction_isolation", "idle_in_transaction_session_timeout", "transaction_timeout"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnUse {
    /// Queries and orders to a server.
    Questions,
    /// Reading a catalog, with the defaults of sessions.
    Catalog,
    /// Asking for the settings of new sessions.
    Defaults,
}

impl OwnUse {
    fn stands_in_packet(self, pin: &PinnedParameter) -> bool {
        match self {
            OwnUse::Questions => pin.since == ALWAYS,
            OwnUse::Catalog => pin.since == ALWAYS && !ASKED.contains(&pin.name),
            OwnUse::Defaults => false,
        }
    }
}

pub fn in_packet<'a>(of: OwnUse) -> impl Iterator<Item = (&'a str, &'a str)> {
    PINS.iter().filter(move |pin| of.stands_in_packet(pin)).map(|pin| (pin.name, pin.value))
}

/// Returns the commands to run first.
///
/// Not `set_config`: the function's name would be looked up.
pub fn after_login(of: OwnUse, server_version: Option<&str>, server_encoding: Option<&str>) -> Option<String> {
    if of == OwnUse::Defaults {
        return None;
    }
    // Without a version the oldest is assumed: a newer parameter would be an error.
    let version = server_version.map_or(0, version_number);
    let mut sql = String::new();
    for pin in PINS.iter().filter(|pin| pin.since <= version) {
        if version >= LOGIN_TRIGGERS || !of.stands_in_packet(pin) {
            push_set(&mut sql, pin.name, pin.value);
        }
    }
    // Text without an encoding cannot be converted to one.
    if server_encoding == Some(SQL_ASCII) {
        push_set(&mut sql, "client_encoding", SQL_ASCII);
    }
    (!sql.is_empty()).then_some(sql)
}

const SQL_ASCII: &str = "SQL_ASCII";

/// Values contain no quotes. A list of schemas must not be quoted as one name.
fn push_set(sql: &mut String, name: &str, value: &str) {
    if !sql.is_empty() {
        sql.push_str("; ");
    }
    // Writing to a String cannot fail.
    let _ = match name {
        "search_path" => write!(sql, "SET search_path TO {value}"),
        "role" => write!(sql, "SET ROLE NONE"),
        _ => write!(sql, "SET {name} TO '{value}'"),
    };
}

/// Converts `15.4 (Debian 15.4-1)` to `150004`, `17beta1` to `170000`. Source: PostgreSQL manual, `server_version_num`.
pub fn version_number(text: &str) -> u32 {
    let (major, rest) = leading_number(text);
    let minor = rest.strip_prefix('.').map_or(0, |rest| leading_number(rest).0);
    major.saturating_mul(10_000).saturating_add(minor)
}

fn leading_number(text: &str) -> (u32, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    (text[..end].parse().unwrap_or(0), &text[end..])
}

/// Returns the packet's parameters as `PGOPTIONS`.
pub fn as_options(of: OwnUse) -> String {
    in_packet(of).map(|(name, value)| format!("-c {name}={}", value.replace(' ', "\\ "))).collect::<Vec<_>>().join(" ")
}

pub fn own_texts() -> Vec<String> {
    let said = |of, version| after_login(of, Some(version), Some(SQL_ASCII));
    [said(OwnUse::Questions, "17.1"), said(OwnUse::Catalog, "13.1")].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        let cases =
            [("15.4 (Debian 15.4-1.pgdg)", 150_004), ("17beta1", 170_000), ("18devel", 180_000), ("13.22", 130_022), ("x", 0)];
        for (text, number) in cases {
            assert_eq!(version_number(text), number, "{text}");
        }
    }

    #[test]
    fn a_server_with_login_triggers_is_told_everything_again() {
        let said = after_login(OwnUse::Questions, Some("17.2"), Some("UTF8")).unwrap();
        assert!(
            said.starts_with("SET search_path TO pg_catalog, pg_temp; SET ROLE NONE; SET client_encoding TO 'UTF8'; "),
            "{said}"
        );
        assert_eq!(said.matches("SET ").count(), PINS.len());
        assert!(weir_sql::own::unqualified(&said).is_empty());
    }

    #[test]
    fn an_older_server_is_told_what_the_packet_could_not_hold() {
        assert_eq!(after_login(OwnUse::Questions, Some("13.22"), Some("UTF8")), None);
        assert_eq!(after_login(OwnUse::Questions, None, None), None);
        let said = |version, encoding| after_login(OwnUse::Questions, Some(version), Some(encoding)).unwrap();
        assert_eq!(said("16.1", "UTF8"), "SET idle_session_timeout TO '0'");
        assert_eq!(said("13.1", "SQL_ASCII"), "SET client_encoding TO 'SQL_ASCII'");
    }

    #[test]
    fn defaults_that_are_asked_for_are_not_those_of_the_packet() {
        assert!(in_packet(OwnUse::Questions).any(|pin| pin == ("search_path", SEARCH_PATH)));
        assert!(in_packet(OwnUse::Catalog).all(|(name, _)| !ASKED.contains(&name)));
        let said = after_login(OwnUse::Catalog, Some("15.1"), Some("UTF8")).unwrap();
        assert!(
            said.starts_with("SET search_path TO pg_catalog, pg_temp; SET idle_in_transaction_session_timeout TO '0'; "),
            "{said}"
        );
    }
}
