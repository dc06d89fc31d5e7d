//! PostgreSQL's md5 authentication.
//!
//! Stored: `md5` and the digest of password and user. Sent: `md5` and the digest of that and a 4-byte salt. The stored form
//! suffices to log in, so it is wiped and never printed. Source: PostgreSQL's md5_common.c (`pg_md5_encrypt`), crypt.c
//! (`md5_crypt_verify`).

use md5::{Digest, Md5};
use std::fmt;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// `md5` and 32 hex digits.
pub const MD5_TEXT_BYTES: usize = 35;
pub const MD5_SALT_BYTES: usize = 4;

/// A stored md5 password in lower case. Compared in constant time.
#[derive(Clone)]
pub struct Md5Secret(Zeroizing<[u8; MD5_TEXT_BYTES]>);

impl Md5Secret {
    /// Makes the stored form. The user name is the salt, so a renamed role loses its password.
    pub fn from_password(password: &[u8], user: &[u8]) -> Md5Secret {
        Md5Secret(Zeroizing::new(md5_text(&[password, user])))
    }

    /// Reads the stored form, in either case; `None` if malformed.
    pub fn parse(text: &[u8]) -> Option<Md5Secret> {
        let mut stored = Zeroizing::new(<[u8; MD5_TEXT_BYTES]>::try_from(text).ok()?);
        let digits = stored.strip_prefix(b"md5")?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        stored.make_ascii_lowercase();
        Some(Md5Secret(stored))
    }

    pub fn text(&self) -> &[u8; MD5_TEXT_BYTES] {
        &self.0
    }

    /// Returns the answer to a server's salt, for `PasswordMessage`.
    pub fn response(&self, salt: [u8; MD5_SALT_BYTES]) -> [u8; MD5_TEXT_BYTES] {
        md5_text(&[&self.0[3..], &salt])
    }

    /// True if `response`, without its NUL, answers our salt.
    pub fn verify(&self, salt: [u8; MD5_SALT_BYTES], response: &[u8]) -> bool {
        self.response(salt).as_slice().ct_eq(response).into()
    }

    /// True if this password made the stored form; for clear text logins.
    pub fn matches(&self, password: &[u8], user: &[u8]) -> bool {
        *self == Md5Secret::from_password(password, user)
    }
}

impl PartialEq for Md5Secret {
    fn eq(&self, other: &Md5Secret) -> bool {
        self.0.as_slice().ct_eq(other.0.as_slice()).into()
    }
}

impl Eq for Md5Secret {}

impl fmt::Debug for Md5Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("*****")
    }
}

fn md5_text(parts: &[&[u8]]) -> [u8; MD5_TEXT_BYTES] {
    let mut text = [0; MD5_TEXT_BYTES];
    text[..3].copy_from_slice(b"md5");
    text[3..].copy_from_slice(&hex(parts));
    text
}

pub(crate) fn hex(parts: &[&[u8]]) -> [u8; MD5_TEXT_BYTES - 3] {
    let mut digest = Md5::new();
    for part in parts {
        digest.update(part);
    }
    let mut text = [0; MD5_TEXT_BYTES - 3];
    for (byte, pair) in digest.finalize().iter().zip(text.chunks_exact_mut(2)) {
        pair.copy_from_slice(&[hex_digit(byte >> 4), hex_digit(byte & 15)]);
    }
    text
}

fn hex_digit(value: u8) -> u8 {
    match value {
        0..=9 => b'0' + value,
        _ => b'a' + value - 10,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by PostgreSQL 15: `SET password_encryption = md5; CREATE ROLE m PASSWORD 'secret word'`.
    const STORED: &[u8] = b"md5ff193827f67bab881badb54115e0da72";

    #[test]
    fn a_password_is_stored_as_postgresql_stores_it() {
        assert_eq!(Md5Secret::from_password(b"secret word", b"m").text(), STORED);
        assert!(Md5Secret::parse(STORED).unwrap().matches(b"secret word", b"m"));
        assert!(!Md5Secret::parse(STORED).unwrap().matches(b"secret word", b"renamed"));
    }

    #[test]
    fn the_answer_to_a_salt_is_the_digest_of_stored_digits_and_salt() {
        // SELECT 'md5' || md5('ff193827f67bab881badb54115e0da72'::bytea || '\x00ff0a7f')
        let stored = Md5Secret::parse(STORED).unwrap();
        let response = stored.response([0x00, 0xff, 0x0a, 0x7f]);
        assert_eq!(std::str::from_utf8(&response).unwrap(), "md593cdde0f8cc0be2e77ecf3eb26ba956a");
        assert!(stored.verify([0x00, 0xff, 0x0a, 0x7f], &response));
        assert!(!stored.verify([0x00, 0xff, 0x0a, 0x7e], &response));
    }

    #[test]
    fn an_answer_of_another_length_is_wrong_and_not_a_panic() {
        let stored = Md5Secret::parse(STORED).unwrap();
        for wrong in [b"".as_slice(), b"md5", &STORED[..34], &[b'x'; 300]] {
            assert!(!stored.verify([1, 2, 3, 4], wrong));
        }
    }

    #[test]
    fn what_is_not_md5_and_32_hex_digits_is_no_stored_password() {
        assert!(Md5Secret::parse(b"md5FF193827f67bab881badb54115e0da72") == Md5Secret::parse(STORED));
        for text in ["", "md5", "md5ff193827f67bab881badb54115e0da7", "md5ff193827f67bab881badb54115e0da7g"] {
            assert!(Md5Secret::parse(text.as_bytes()).is_none(), "{text}");
        }
    }

    #[test]
    fn a_stored_password_is_never_printed() {
        assert_eq!(format!("{:?}", Md5Secret::parse(STORED)), "Some(*****)");
    }
}
