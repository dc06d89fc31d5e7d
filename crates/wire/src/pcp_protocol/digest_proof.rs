//! Proof of a password by its md5 digest and a salt.
//!
//! The stored digest suffices to log in, so it is wiped and never printed.

use crate::md5::{MD5_SALT_BYTES, hex};
use std::fmt;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

pub const SALT_BYTES: usize = MD5_SALT_BYTES;
/// Hex digits of a digest.
pub const DIGEST_BYTES: usize = 32;

/// A password digest of `pcp.conf`, in lower case hex as `pg_md5` prints it.
#[derive(Clone)]
pub struct StoredDigest(Zeroizing<[u8; DIGEST_BYTES]>);

impl StoredDigest {
    pub fn of_password(password: &[u8]) -> StoredDigest {
        StoredDigest(Zeroizing::new(hex(&[password])))
    }

    /// Reads the digits, in either case; `None` if malformed.
    pub fn parse(text: &[u8]) -> Option<StoredDigest> {
        let mut digits = Zeroizing::new(<[u8; DIGEST_BYTES]>::try_from(text).ok()?);
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        digits.make_ascii_lowercase();
        Some(StoredDigest(digits))
    }

    pub fn text(&self) -> &[u8; DIGEST_BYTES] {
        &self.0
    }

    /// Returns the answer to a salt.
    pub fn answer(&self, user: &[u8], salt: [u8; SALT_BYTES]) -> [u8; DIGEST_BYTES] {
        let with_user = Zeroizing::new(hex(&[self.0.as_slice(), user]));
        hex(&[with_user.as_slice(), &salt])
    }

    /// True if an answer is right. Takes constant time.
    pub fn verify(&self, user: &[u8], salt: [u8; SALT_BYTES], answer: &[u8]) -> bool {
        self.answer(user, salt).as_slice().ct_eq(answer).into()
    }
}

impl fmt::Debug for StoredDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("*****")
    }
}

/// Returns a client's answer to a salt.
pub fn proof(password: &[u8], user: &[u8], salt: [u8; SALT_BYTES]) -> [u8; DIGEST_BYTES] {
    StoredDigest::of_password(password).answer(user, salt)
}
