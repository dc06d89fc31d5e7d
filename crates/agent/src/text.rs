//! Texts that the agent takes from the network: each with a limit of length and a set of characters.
//!
//! They end up in files that libpq and PostgreSQL read, never on a command line. The sets are such that no text can be an option, a second line or
//! the end of a quoted value, however carelessly it were written there.

use std::fmt;

/// Why a text is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    #[error("the {what} is empty")]
    Empty { what: &'static str },
    #[error("the {what} has {bytes} bytes, the limit is {limit}")]
    TooLong { what: &'static str, bytes: usize, limit: usize },
    #[error("the {what} has a character that is not allowed there")]
    Character { what: &'static str },
}

/// Longest name of PostgreSQL: NAMEDATALEN - 1.
const NAME_BYTES_MAX: usize = 63;
/// Longest host name (RFC 1035), and a path of a unix socket is shorter.
const HOST_BYTES_MAX: usize = 253;
const VALUE_BYTES_MAX: usize = 256;

fn check(what: &'static str, text: &str, limit: usize, is_allowed: impl Fn(char) -> bool) -> Result<(), TextError> {
    if text.is_empty() {
        return Err(TextError::Empty { what });
    }
    if text.len() > limit {
        return Err(TextError::TooLong { what, bytes: text.len(), limit });
    }
    if !text.chars().all(is_allowed) {
        return Err(TextError::Character { what });
    }
    Ok(())
}

/// Printable; blanks only inside.
fn is_name(what: &'static str, text: &str, limit: usize) -> Result<(), TextError> {
    check(what, text, limit, |c| !c.is_control() && (c == ' ' || !c.is_whitespace()))?;
    if text.starts_with([' ', '-']) || text.ends_with(' ') {
        return Err(TextError::Character { what });
    }
    Ok(())
}

macro_rules! text {
    ($(#[$doc:meta])* $name:ident, $check:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            /// Takes a text that is allowed.
            pub fn new(text: &str) -> Result<$name, TextError> {
                let check: fn(&str) -> Result<(), TextError> = $check;
                check(text).map(|()| $name(text.to_string()))
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text!(
    /// Name or address of a machine, or the folder of a unix socket.
    Host,
    |text| {
        check("host", text, HOST_BYTES_MAX, |c| c.is_ascii_alphanumeric() || "._:%/-".contains(c))?;
        if text.starts_with('-') { Err(TextError::Character { what: "host" }) } else { Ok(()) }
    }
);
text!(
    /// Name of a user of PostgreSQL.
    UserName,
    |text| is_name("user", text, NAME_BYTES_MAX)
);
text!(
    /// Name of a database.
    DatabaseName,
    |text| is_name("database", text, NAME_BYTES_MAX)
);
text!(
    /// Name of a replication slot. Source: `ReplicationSlotValidateName` in slot.c.
    SlotName,
    |text| check("slot", text, NAME_BYTES_MAX, |c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
);
text!(
    /// The value of a word in `primary_conninfo`.
    WordValue,
    |text| is_name("value", text, VALUE_BYTES_MAX)
);

/// Words of `primary_conninfo` that may be sent. None names a file, weakens encryption or gives options to the server.
pub(crate) const WORDS: [&str; 8] = [
    "application_name",
    "connect_timeout",
    "fallback_application_name",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "tcp_user_timeout",
];

/// A word of `primary_conninfo` that may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConninfoKeyword(&'static str);

impl ConninfoKeyword {
    /// The name by which a standby is known (`synchronous_standby_names`).
    pub const APPLICATION_NAME: ConninfoKeyword = ConninfoKeyword(WORDS[0]);
    /// Where Weir keeps its mark.
    pub const MARK: ConninfoKeyword = ConninfoKeyword(WORDS[2]);

    pub fn new(name: &str) -> Result<ConninfoKeyword, TextError> {
        let known = WORDS.iter().find(|word| **word == name);
        known.map(|word| ConninfoKeyword(word)).ok_or(TextError::Character { what: "word of primary_conninfo" })
    }

    pub fn as_str(self) -> &'static str {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_could_be_something_else_are_refused() {
        for good in ["10.0.0.1", "fe80::1%eth0", "/var/run/postgresql", "db-1.example.org"] {
            assert!(Host::new(good).is_ok(), "{good}");
        }
        for wrong in ["", "-h", "a b", "a'b", "a\nb", "a\0", "a;b", "$(id)", "ä", &"a".repeat(254)] {
            assert!(Host::new(wrong).is_err(), "{wrong}");
        }
        for good in ["weir", "o'neil", "a b", "a\\b", "=x", "ä", "[x]", "#x"] {
            assert!(UserName::new(good).is_ok(), "{good}");
        }
        for wrong in ["", "-D", " a", "a ", "a\nb", "a\rb", "a\0b", "a\u{a0}b", "\u{2028}", "\u{7f}", &"a".repeat(64)] {
            assert!(UserName::new(wrong).is_err(), "{wrong:?}");
        }
        for wrong in ["", "A", "a-b", "a b", "ä", "'"] {
            assert!(SlotName::new(wrong).is_err(), "{wrong}");
        }
        for wrong in ["sslmode", "passfile", "options", "service", "host", "", "sslkey"] {
            assert!(ConninfoKeyword::new(wrong).is_err(), "{wrong}");
        }
        assert_eq!(ConninfoKeyword::new("fallback_application_name"), Ok(ConninfoKeyword::MARK));
        assert_eq!(ConninfoKeyword::new("application_name"), Ok(ConninfoKeyword::APPLICATION_NAME));
    }
}
