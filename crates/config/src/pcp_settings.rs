//! Pgpool-II's administration protocol PCP: its sockets, and `pcp.conf`, the file with its users.
//!
//! A line is `user:digest`, as `pg_md5` prints it. Empty lines and `#` lines are skipped. All lines of a user are valid.
//! Source: Pgpool-II's manual, "Configuring pcp.conf".

use std::path::PathBuf;
use weir_wire::pcp_protocol::{PcpLayout, SALT_BYTES, StoredDigest};

/// Longest line read. Source: Pgpool-II, `MAX_FILE_LINE_LEN`.
const LINE_BYTES_MAX: usize = 512;
/// Longest user name. Source: Pgpool-II, `MAX_USER_PASSWD_LEN`.
const USER_BYTES_MAX: usize = 128;
/// Limit on lines with users.
const USERS_MAX: usize = 10_000;

#[derive(Debug, Clone, Default)]
pub struct PcpConfig {
    /// Addresses; `*`: all.
    pub addresses: Vec<String>,
    pub port: u16,
    pub socket_directories: Vec<PathBuf>,
    /// Format of the answers.
    pub layout: PcpLayout,
    pub logs_connections: bool,
}

/// Users of `pcp.conf`. `Debug` prints only their number.
#[derive(Clone, Default)]
pub struct PcpUsers(Vec<(Vec<u8>, StoredDigest)>);

/// A skipped line. Never shows its text, which may be a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadUser {
    /// From 1.
    pub line: u32,
    pub why: &'static str,
}

impl PcpUsers {
    /// Reads the file. Unusable lines are skipped.
    pub fn read(bytes: &[u8]) -> (PcpUsers, Vec<BadUser>) {
        let (mut users, mut bad) = (Vec::new(), Vec::new());
        for (line, number) in bytes.split(|byte| *byte == b'\n').zip(1..) {
            match read_line(line) {
                Ok(None) => {}
                Ok(Some(_)) if users.len() >= USERS_MAX => bad.push(BadUser { line: number, why: "too many users" }),
                Ok(Some(user)) => users.push(user),
                Err(why) => bad.push(BadUser { line: number, why }),
            }
        }
        (PcpUsers(users), bad)
    }

    /// True if the answer to the salt proves a password of the user.
    pub fn verify(&self, user: &[u8], salt: [u8; SALT_BYTES], answer: &[u8]) -> bool {
        let mut is_right = false;
        for (name, stored) in &self.0 {
            // Compares all lines, so that timing does not reveal which users exist.
            is_right |= stored.verify(user, salt, answer) && name == user;
        }
        is_right
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::fmt::Debug for PcpUsers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PcpUsers({})", self.0.len())
    }
}

fn read_line(line: &[u8]) -> Result<Option<(Vec<u8>, StoredDigest)>, &'static str> {
    if line.starts_with(b"#") || line.trim_ascii().is_empty() {
        return Ok(None);
    }
    if line.len() > LINE_BYTES_MAX {
        return Err("longer than 512 bytes");
    }
    let at = line.iter().position(|byte| *byte == b':').ok_or("no colon between user and digest")?;
    let (user, digest) = (&line[..at], &line[at + 1..]);
    if user.is_empty() {
        return Err("no user name before the colon");
    }
    if user.len() > USER_BYTES_MAX {
        return Err("user name longer than 128 bytes");
    }
    let stored =
        StoredDigest::parse(digest.trim_ascii_end()).ok_or("no md5 digest behind the colon: write what pg_md5 prints")?;
    Ok(Some((user.to_vec(), stored)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::pcp_protocol::proof;

    const SALT: [u8; 4] = *b"abcd";
    const SECRET: &str = "5ebe2294ecd0e0f08eab7690d2a6ee69";

    fn is_let_in(file: &str, user: &str, password: &str) -> bool {
        let answer = proof(password.as_bytes(), user.as_bytes(), SALT);
        PcpUsers::read(file.as_bytes()).0.verify(user.as_bytes(), SALT, &answer)
    }

    #[test]
    fn a_user_of_the_file_is_let_in_with_its_password_only() {
        let file = format!("# users\n\nadmin:{SECRET}\r\nother:{}\nadmin:{}\n", md5("x"), md5("second"));
        for (user, password, expected) in [
            ("admin", "secret", true),
            ("admin", "second", true),
            ("admin", "x", false),
            ("admin", "", false),
            ("Admin", "secret", false),
            ("other", "x", true),
            ("other", "secret", false),
            ("nobody", "secret", false),
            ("", "secret", false),
            ("# users", "secret", false),
        ] {
            assert_eq!(is_let_in(&file, user, password), expected, "{user} {password}");
        }
        assert!(!is_let_in("", "admin", "secret"));
        assert!(is_let_in(&format!("admin:{}", SECRET.to_uppercase()), "admin", "secret"));
    }

    fn md5(password: &str) -> String {
        String::from_utf8(StoredDigest::of_password(password.as_bytes()).text().to_vec()).unwrap()
    }

    #[test]
    fn a_bad_line_is_named_by_its_number_and_leaves_the_others_alone() {
        let file = format!("hunter2\n:{SECRET}\nadmin:hunter2\n{}:{SECRET}\n{}\nlast:{SECRET}", "u".repeat(129), "x".repeat(513));
        let (users, bad) = PcpUsers::read(file.as_bytes());
        assert_eq!(users.len(), 1);
        let shown: Vec<String> = bad.iter().map(|bad| format!("{}: {}", bad.line, bad.why)).collect();
        assert_eq!(
            shown,
            [
                "1: no colon between user and digest",
                "2: no user name before the colon",
                "3: no md5 digest behind the colon: write what pg_md5 prints",
                "4: user name longer than 128 bytes",
                "5: longer than 512 bytes",
            ]
        );
        assert!(!format!("{users:?}{bad:?}").contains("hunter2"));
    }

    #[test]
    fn no_bytes_upset_the_reader() {
        let mut bytes = format!("admin:{SECRET}\n\0:\u{fffd}\n").into_bytes();
        for at in 0..bytes.len() {
            for value in [0, b':', b'\n', b'#', 0xff] {
                let kept = std::mem::replace(&mut bytes[at], value);
                let (users, bad) = PcpUsers::read(&bytes);
                assert!(users.len() + bad.len() <= 4);
                bytes[at] = kept;
            }
        }
    }
}
