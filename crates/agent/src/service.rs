//! The service file for `pg_rewind`, `pg_basebackup` and `psql`: keeps the source off command lines and variables.
//!
//! Source: `parseServiceFile` in fe-connect.c.

use crate::request::SourceServer;

pub const SERVICE: &str = "weir_source";
const CONNECT_SECONDS: u32 = 10;

/// Limit of a line in all versions.
const LINE_BYTES_MAX: usize = 1000;

/// Returns the file for connection words. `None`: it cannot hold them.
pub fn show_words<'a>(words: impl IntoIterator<Item = (&'a str, &'a str)>) -> Option<String> {
    let mut text = format!("[{SERVICE}]\n");
    for (name, value) in words {
        if value.contains(['\n', '\r']) || value.trim() != value || name.len() + value.len() >= LINE_BYTES_MAX {
            return None;
        }
        text += &format!("{name}={value}\n");
    }
    text += &format!("connect_timeout={CONNECT_SECONDS}\n");
    Some(text)
}

/// The types exclude line ends and outer blanks.
pub fn show(source: &SourceServer) -> String {
    let SourceServer { host, port, user, dbname } = source;
    format!(
        "[{SERVICE}]\nhost={host}\nport={port}\nuser={user}\ndbname={dbname}\napplication_name=weir_agent\nconnect_timeout={CONNECT_SECONDS}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{DatabaseName, Host, UserName};

    #[test]
    fn each_value_is_a_line_of_its_own() {
        let source = SourceServer {
            host: Host::new("10.0.0.1").unwrap(),
            port: 5433,
            user: UserName::new("o'neil = x").unwrap(),
            dbname: DatabaseName::new("[a]").unwrap(),
        };
        let text = show(&source);
        assert!(text.starts_with("[weir_source]\nhost=10.0.0.1\nport=5433\nuser=o'neil = x\ndbname=[a]\n"));
        assert_eq!(text.lines().count(), 7);
        let words = show_words([("host", "10.0.0.1"), ("password", "a b")]);
        assert_eq!(words.as_deref(), Some("[weir_source]\nhost=10.0.0.1\npassword=a b\nconnect_timeout=10\n"));
        for value in ["two\nlines", "blank at the end ", &"x".repeat(2000)] {
            assert_eq!(show_words([("password", value)]), None);
        }
    }
}
