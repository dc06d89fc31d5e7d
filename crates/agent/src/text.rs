//! Texts from the network, with limits of length and characters.
//!
//! They go into files of libpq and PostgreSQL, not onto command lines. None can be an option, a second line or the end of a
//! quoted value.

use std::fmt;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    #[error("the {what} is empty")]
    Empty { what: &'static str },
    #[error("the {what} has {bytes} bytes, the limit is {limit}")]
    TooLong { what: &'static str, bytes: usize, limit: usize },
    #[error("the {what} has a character that is not allowed there")]
    Character { what: &'static str },
}

/// PostgreSQL's NAMEDATALEN - 1.
const NAME_BYTES_MAX: usize = 63;
/// Limit of a host name (RFC 1035); unix socket paths are shorter.
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

/// Printable, with blanks only inside.
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
    /// A host name, an address, or the folder of a unix socket.
    Host,
    |text| {
        check("host", text, HOST_BYTES_MAX, |c| c.is_ascii_alphanumeric() || "._:%/-".contains(c))?;
        if text.starts_with('-') { Err(TextError::Character { what: "host" }) } else { Ok(()) }
    }
);
text!(UserName, |text| is_name("user", text, NAME_BYTES_MAX));
text!(DatabaseName, |text| is_name("database", text, NAME_BYTES_MAX));
text!(
    /// Source: `ReplicationSlotValidateName` in slot.c.
    SlotName,
    |text| check("slot", text, NAME_BYTES_MAX, |c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
);
text!(WordValue, |text| is_name("value", text, VALUE_BYTES_MAX));

/// Keywords that name no file, weaken no encryption and pass no server options.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConninfoKeyword(&'static str);

impl ConninfoKeyword {
    pub const APPLICATION_NAME: ConninfoKeyword = ConninfoKeyword(WORDS[0]);
    /// Keeps Weir's mark.
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
