//! Passwords encrypted by Pgpool-II's `pg_enc`: AES-256 in CBC mode, in base64 behind `AES`.
//!
//! Key and IV come from the key file's text by SHA-1, without salt, one round (OpenSSL's `EVP_BytesToKey`, as called by Pgpool-II). Equal
//! passwords have equal cipher texts, and only the result reveals a wrong key. Weak: kept for old files; verifiers are better.

use aes::Aes256;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cbc::cipher::{BlockDecryptMut, BlockEncryptMut, KeyIvInit, block_padding::Pkcs7};
use sha1::{Digest, Sha1};
use std::fmt;
use zeroize::Zeroizing;

/// Longest key text. Source: Pgpool-II, `MAX_POOL_KEY_LEN`.
const KEY_TEXT_BYTES_MAX: usize = 256;
const KEY_BYTES: usize = 32;
const BLOCK_BYTES: usize = 16;

/// The key of `AES...` credentials. Wiped when dropped, never printed.
#[derive(Clone)]
pub struct PasswdKey(Zeroizing<[u8; KEY_BYTES + BLOCK_BYTES]>);

/// Error of a decryption. The text never shows the credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DecryptError {
    #[error("encrypted password (AES) is not valid base64")]
    Encoding,
    /// Encrypted with another key, or changed.
    #[error("encrypted password (AES) does not fit the key in the key file")]
    Key,
}

impl PasswdKey {
    /// Reads the first line of a key file. `None` if empty or too long.
    pub fn new(file: &[u8]) -> Option<PasswdKey> {
        let line = file.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let text = line.strip_suffix(b"\r").unwrap_or(line);
        if text.is_empty() || text.len() >= KEY_TEXT_BYTES_MAX {
            return None;
        }
        let mut key = Zeroizing::new([0; KEY_BYTES + BLOCK_BYTES]);
        let mut digest = Zeroizing::new([0u8; 20]);
        let mut has_digest = false;
        for piece in key.chunks_mut(20) {
            let mut sha = Sha1::new();
            if has_digest {
                sha.update(digest.as_slice());
            }
            sha.update(text);
            sha.finalize_into(digest.as_mut_slice().into());
            has_digest = true;
            piece.copy_from_slice(&digest[..piece.len()]);
        }
        Some(PasswdKey(key))
    }

    /// Encrypts a password for the text behind `AES`; `None` if empty or with a zero byte, which no server accepts.
    pub fn encrypt(&self, password: &[u8]) -> Option<String> {
        if password.is_empty() || password.contains(&0) {
            return None;
        }
        let (key, first_block) = self.0.split_at(KEY_BYTES);
        let encryptor = cbc::Encryptor::<Aes256>::new_from_slices(key, first_block).ok()?;
        Some(STANDARD.encode(encryptor.encrypt_padded_vec_mut::<Pkcs7>(password)))
    }

    /// Decrypts the text behind `AES`.
    pub fn decrypt(&self, cipher: &[u8]) -> Result<Zeroizing<Vec<u8>>, DecryptError> {
        let mut bytes = Zeroizing::new(STANDARD.decode(cipher.trim_ascii()).map_err(|_| DecryptError::Encoding)?);
        let (key, first_block) = self.0.split_at(KEY_BYTES);
        let decryptor = cbc::Decryptor::<Aes256>::new_from_slices(key, first_block).map_err(|_| DecryptError::Key)?;
        let length = decryptor.decrypt_padded_mut::<Pkcs7>(&mut bytes).map_err(|_| DecryptError::Key)?.len();
        bytes.truncate(length);
        // A wrong key passes the padding check once in 256 times, and leaves garbage: PostgreSQL accepts no zero byte.
        if bytes.is_empty() || bytes.contains(&0) { Err(DecryptError::Key) } else { Ok(bytes) }
    }
}

impl fmt::Debug for PasswdKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("*****")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decrypt(key: &[u8], cipher: &str) -> Result<String, DecryptError> {
        let key = PasswdKey::new(key).unwrap();
        key.decrypt(cipher.as_bytes()).map(|password| String::from_utf8_lossy(&password).into_owned())
    }

    #[test]
    fn what_pg_enc_wrote_is_read() {
        // pg_enc of Pgpool-II 4.3.5, with -K mykey.
        let cases = [
            ("mykey", "x", "lPSzifBmRWM9tqzBMtuqmw=="),
            ("mykey", "123456789012345", "o5nZjlsI8F1BRAKrO5cIbw=="),
            ("mykey", "1234567890123456", "FiCifnZISts5XH5yzTKxoKtGNjNBdWTwpxHHRIM5Px4="),
            ("mykey", "12345678901234567", "FiCifnZISts5XH5yzTKxoCnlP1oDzASAEu2lLxY330Y="),
            ("mykey", "pässwörd 密", "Vpk1rVBuGXJWqhT5FZwNIg=="),
            ("another key, longer", "secret", "pOUkFfzPsYCWh96zm8Yj4w=="),
        ];
        for (key, password, cipher) in cases {
            assert_eq!(decrypt(key.as_bytes(), cipher), Ok(password.to_string()), "{password}");
            assert_eq!(
                PasswdKey::new(key.as_bytes()).unwrap().encrypt(password.as_bytes()).as_deref(),
                Some(cipher),
                "{password}"
            );
        }
        assert_eq!(decrypt(b"mykey\n", "lk1/GsZX1rit4U3t5At8EQ=="), Ok("secret word".to_string()));
        assert_eq!(decrypt(b"mykey\r\nmore\n", "lk1/GsZX1rit4U3t5At8EQ=="), Ok("secret word".to_string()));
    }

    #[test]
    fn another_key_or_a_damaged_text_is_refused() {
        assert_eq!(decrypt(b"mykex", "lk1/GsZX1rit4U3t5At8EQ=="), Err(DecryptError::Key));
        assert_eq!(decrypt(b"mykey", "lk1/GsZX1rit4U3t5At8EA=="), Err(DecryptError::Key));
        assert_eq!(decrypt(b"mykey", "lk1/GsZX1rit4U3t5At8"), Err(DecryptError::Key));
        assert_eq!(decrypt(b"mykey", ""), Err(DecryptError::Key));
        assert_eq!(decrypt(b"mykey", "a b"), Err(DecryptError::Encoding));
    }

    #[test]
    fn a_key_is_one_line_that_is_neither_empty_nor_endless_and_never_printed() {
        assert!(PasswdKey::new(b"").is_none() && PasswdKey::new(b"\nkey").is_none() && PasswdKey::new(&[b'x'; 256]).is_none());
        assert_eq!(format!("{:?}", PasswdKey::new(b"hunter2")), "Some(*****)");
    }
}
