//! Keys of a password: derivation, storage, comparison, wiping.

use super::{ITERATIONS_DEFAULT, SALT_BYTES, SALT_BYTES_MAX, ScramError, decode, decode_iterations, decode_key};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::fmt;
use stringprep::tables;
use subtle::ConstantTimeEq;
use unicode_normalization::UnicodeNormalization;
use zeroize::{Zeroize, Zeroizing};

pub(super) const KEY_BYTES: usize = 32;

/// A key, proof or signature. Wiped on drop, never printed, compared in constant time.
#[derive(Clone)]
pub struct ScramKey([u8; KEY_BYTES]);

impl Drop for ScramKey {
    fn drop(&mut self) {
        // As a slice: an array is wiped by a call for each byte, and a login has a dozen keys.
        self.0.as_mut_slice().zeroize();
    }
}

impl ScramKey {
    pub fn new(bytes: [u8; KEY_BYTES]) -> ScramKey {
        ScramKey(bytes)
    }

    pub fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    pub(super) fn hash(&self) -> ScramKey {
        ScramKey::new(Sha256::digest(self.0.as_slice()).into())
    }

    pub(super) fn sign(&self, text: &[u8]) -> ScramKey {
        hmac_sha256(self.0.as_slice(), &[text])
    }

    pub(super) fn xor(&self, other: &ScramKey) -> ScramKey {
        let mut key = self.clone();
        for (byte, mask) in key.0.iter_mut().zip(&other.0) {
            *byte ^= mask;
        }
        key
    }

    pub(super) fn base64(&self) -> String {
        STANDARD.encode(self.0.as_slice())
    }
}

impl PartialEq for ScramKey {
    fn eq(&self, other: &ScramKey) -> bool {
        self.0.as_slice().ct_eq(other.0.as_slice()).into()
    }
}

impl Eq for ScramKey {}

impl fmt::Debug for ScramKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("*****")
    }
}

/// Keys of a password for one salt and iteration count.
///
/// Costly to derive: callers cache them. They suffice to log in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaltedKeys {
    pub client_key: ScramKey,
    /// Hash of the client key, to check proofs.
    pub stored_key: ScramKey,
    pub server_key: ScramKey,
}

impl SaltedKeys {
    /// Derives the keys. Blocks for `iterations` hashes (4096 take about a millisecond).
    ///
    /// `password` need not be UTF-8, as in PostgreSQL.
    pub fn derive(password: &[u8], salt: &[u8], iterations: u32) -> SaltedKeys {
        let mut salted = Zeroizing::new([0; KEY_BYTES]);
        let prepared = Zeroizing::new(prepare(password).into_owned());
        pbkdf2::pbkdf2_hmac::<Sha256>(&prepared, salt, iterations, salted.as_mut_slice());
        let salted = ScramKey(*salted);
        SaltedKeys::from_keys(salted.sign(b"Client Key"), salted.sign(b"Server Key"))
    }

    /// Makes keys of a client's login and the verifier, for pass-through.
    pub fn from_keys(client_key: ScramKey, server_key: ScramKey) -> SaltedKeys {
        SaltedKeys { stored_key: client_key.hash(), client_key, server_key }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScramVerifier {
    pub iterations: u32,
    pub salt: Vec<u8>,
    pub stored_key: ScramKey,
    pub server_key: ScramKey,
}

impl ScramVerifier {
    /// Derives a verifier. Blocks about a millisecond.
    pub fn from_password(password: &[u8], salt: &[u8]) -> ScramVerifier {
        let keys = SaltedKeys::derive(password, salt, ITERATIONS_DEFAULT);
        ScramVerifier {
            iterations: ITERATIONS_DEFAULT,
            salt: salt.to_vec(),
            stored_key: keys.stored_key,
            server_key: keys.server_key,
        }
    }

    /// Reads the form of `pg_authid.rolpassword`: `SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey`.
    ///
    /// The error never shows the bad part.
    pub fn parse(text: &[u8]) -> Result<ScramVerifier, ScramError> {
        let mut fields = text.splitn(3, |byte| *byte == b'$');
        let (Some(b"SCRAM-SHA-256"), Some(salting), Some(keys)) = (fields.next(), fields.next(), fields.next()) else {
            return Err(ScramError::Malformed { what: "verifier does not have three parts" });
        };
        let (iterations, salt) = halves(salting)?;
        let (stored_key, server_key) = halves(keys)?;
        Ok(ScramVerifier {
            iterations: decode_iterations(iterations)?,
            salt: decode(salt, SALT_BYTES_MAX, "salt of the verifier")?,
            stored_key: decode_key(stored_key, "stored key of the verifier")?,
            server_key: decode_key(server_key, "server key of the verifier")?,
        })
    }

    pub fn to_text(&self) -> Zeroizing<String> {
        let (salt, iterations) = (STANDARD.encode(&self.salt), self.iterations);
        Zeroizing::new(format!("SCRAM-SHA-256${iterations}:{salt}${}:{}", self.stored_key.base64(), self.server_key.base64()))
    }

    /// For clear text logins. Blocks like `SaltedKeys::derive`.
    pub fn matches(&self, password: &[u8]) -> bool {
        SaltedKeys::derive(password, &self.salt, self.iterations).stored_key == self.stored_key
    }
}

fn halves(text: &[u8]) -> Result<(&[u8], &[u8]), ScramError> {
    let mut fields = text.splitn(2, |byte| *byte == b':');
    match (fields.next(), fields.next()) {
        (Some(left), Some(right)) => Ok((left, right)),
        _ => Err(ScramError::Malformed { what: "verifier lacks a colon" }),
    }
}

/// Returns a salt constant for user and `secret`.
///
/// For users with a plain password and unknown users alike, who must not be distinguishable. PostgreSQL: `scram_MockSalt`.
pub fn steady_salt(secret: &[u8], user: &[u8]) -> [u8; SALT_BYTES] {
    let digest = hmac_sha256(secret, &[b"salt:", user]);
    let mut salt = [0; SALT_BYTES];
    salt.copy_from_slice(&digest.0[..SALT_BYTES]);
    salt
}

/// Returns a digest to look the password up by.
pub fn fingerprint(secret: &[u8], password: &[u8]) -> [u8; 32] {
    hmac_sha256(secret, &[b"password:", password]).0
}

fn hmac_sha256(key: &[u8], parts: &[&[u8]]) -> ScramKey {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    for part in parts {
        mac.update(part);
    }
    ScramKey::new(mac.finalize().into_bytes().into())
}

/// Applies SASLprep; returns a refused password unchanged.
///
/// Not `stringprep::saslprep`: PostgreSQL checks for prohibited characters before normalisation (`pg_saslprep`), not after.
/// Example: U+0340, normalised to the allowed U+0300.
fn prepare(password: &[u8]) -> Cow<'_, [u8]> {
    let raw = Cow::Borrowed(password);
    let Ok(text) = std::str::from_utf8(password) else { return raw };
    if text.is_ascii() {
        return raw;
    }
    let mut mapped = Zeroizing::new(String::with_capacity(text.len()));
    mapped.extend(text.chars().filter_map(map));
    if mapped.is_empty() || mapped.contains(is_prohibited) || is_mixed_direction(&mapped) {
        return raw;
    }
    Cow::Owned(mapped.nfkc().collect::<String>().into_bytes())
}

fn map(c: char) -> Option<char> {
    match c {
        c if tables::non_ascii_space_character(c) => Some(' '),
        c if tables::commonly_mapped_to_nothing(c) => None,
        c => Some(c),
    }
}

/// RFC 4013, sections 2.3 and 2.5.
fn is_prohibited(c: char) -> bool {
    tables::ascii_control_character(c)
        || tables::non_ascii_control_character(c)
        || tables::private_use(c)
        || tables::non_character_code_point(c)
        || tables::inappropriate_for_plain_text(c)
        || tables::inappropriate_for_canonical_representation(c)
        || tables::change_display_properties_or_deprecated(c)
        || tables::tagging_character(c)
        || tables::unassigned_code_point(c)
}

/// RFC 3454, section 6: text with a right-to-left letter must begin and end with one and have no left-to-right letter.
fn is_mixed_direction(text: &str) -> bool {
    let ends_fit = text.starts_with(tables::bidi_r_or_al) && text.ends_with(tables::bidi_r_or_al);
    text.contains(tables::bidi_r_or_al) && (text.contains(tables::bidi_l) || !ends_fit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_of_any_kind_are_one_and_what_is_not_seen_is_left_out() {
        for (password, expected) in
            [("a b", "a b"), ("a\u{1680}b", "a b"), ("a\u{a0}b", "a b"), ("a\u{ad}b", "ab"), ("\u{2168}", "IX")]
        {
            assert_eq!(&*prepare(password.as_bytes()), expected.as_bytes(), "{password:?}");
        }
    }
}
