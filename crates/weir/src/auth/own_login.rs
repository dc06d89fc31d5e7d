//! The settings of connections that Weir opens for itself: what a role's owner, a database's owner or a login trigger chose counts nothing there.
//!
//! Values in the startup packet win over `ALTER ROLE ... SET` and `ALTER DATABASE ... SET`, and hold before the first statement runs. A login event
//! trigger (version 17) runs behind them and may change all, so that there they are set again, by commands that look no name up.
//!
//! Source: PostgreSQL manual, "How Parameter Settings Are Determined"; `process_startup_options` and `process_settings` in postinit.c.

use std::fmt::Write;

/// One parameter that Weir's own texts hang on.
struct PinnedParameter {
    name: &'static str,
    value: &'static str,
    /// The first version that has it. Only what all versions know can stand in a startup packet.
    since: u32,
}

/// Every version that Weir works with has it.
const ALWAYS: u32 = 0;
/// The first version with login event triggers.
const LOGIN_TRIGGERS: u32 = 170_000;

const fn pin(name: &'static str, value: &'static str) -> PinnedParameter {
    PinnedParameter { name, value, since: ALWAYS }
}

/// A `search_path` in which PostgreSQL's own names come first and nobody else's follow; temporary objects would be found before all others if they
/// were not named.
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
    // A user's own limits are for his statements. Weir's questions have limits of their own.
    pin("statement_timeout", "0"),
    pin("lock_timeout", "0"),
    pin("idle_in_transaction_session_timeout", "0"),
    PinnedParameter { name: "idle_session_timeout", value: "0", since: 140_000 },
    PinnedParameter { name: "transaction_timeout", value: "0", since: 170_000 },
    // Not `default_transaction_read_only`: a failover sets it for the server, and looks at it as its own sessions have it. Nothing that Weir asks
    // writes a row, so that no text hangs on it.
    pin("default_transaction_isolation", "read committed"),
    pin("default_transaction_deferrable", "off"),
    pin("row_security", "on"),
    // A server takes twenty times as long to compile the large questions as to answer them.
    pin("jit", "off"),
    pin("client_min_messages", "warning"),
];

/// Parameters of which the reader of a catalog asks the default that others begin with. A startup packet would become that default.
const ASKED: [&str; 4] =
    ["search_path", "default_transaction_isolation", "idle_in_transaction_session_timeout", "transaction_timeout"];

/// The use of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnUse {
    /// Questions and orders to a server.
    Questions,
    /// Reading the catalog of a database, with the defaults of sessions in it.
    Catalog,
    /// Asking for the settings that a session begins with.
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

/// The parameters of the startup packet.
pub fn in_packet<'a>(of: OwnUse) -> impl Iterator<Item = (&'a str, &'a str)> {
    PINS.iter().filter(move |pin| of.stands_in_packet(pin)).map(|pin| (pin.name, pin.value))
}

/// Commands that go before anything else, once the server's version is known; `None`: nothing. `server_version` and `server_encoding` as the
/// server reports them.
///
/// Commands and not `set_config`, since a function's name would be looked up.
pub fn after_login(of: OwnUse, server_version: Option<&str>, server_encoding: Option<&str>) -> Option<String> {
    if of == OwnUse::Defaults {
        return None;
    }
    // A server that does not say its version is asked as the oldest one: a newer parameter would be an error.
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

/// Values of the table only, which have no quote in them. A list of schemas is a list, and not the name of one.
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

/// `150004` of `15.4 (Debian 15.4-1)`, `170000` of `17beta1`; 0 of something else. Source: PostgreSQL manual, `server_version_num`.
pub fn version_number(text: &str) -> u32 {
    let (major, rest) = leading_number(text);
    let minor = rest.strip_prefix('.').map_or(0, |rest| leading_number(rest).0);
    major.saturating_mul(10_000).saturating_add(minor)
}

fn leading_number(text: &str) -> (u32, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    (text[..end].parse().unwrap_or(0), &text[end..])
}

/// The same as `PGOPTIONS` has it, for a program that asks in our place.
pub fn as_options(of: OwnUse) -> String {
    in_packet(of).map(|(name, value)| format!("-c {name}={}", value.replace(' ', "\\ "))).collect::<Vec<_>>().join(" ")
}

/// For the list of Weir's own texts.
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
