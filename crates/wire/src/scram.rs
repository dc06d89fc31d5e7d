//! SCRAM-SHA-256 as PostgreSQL speaks it: both sides as state machines, nothing else.
//!
//! In: the peer's message, and nonces and salts made elsewhere. Out: our message, or the reason to stop. No randomness, no
//! clock, no IO: `ScramClient` logs in to a server, `ScramServer` lets a client log in to us.
//! Source: RFC 5802, RFC 7677; PostgreSQL's auth-scram.c, fe-auth-scram.c, scram-common.c.
//! PostgreSQL departs from the RFC twice. The user name in the messages is ignored, because the startup message has it already.
//! A password that SASLprep refuses is used as it is.

mod keys;
mod scram_client;
mod scram_server;

pub use crate::scram::scram_client::{ClientSecret, ScramChallenge, ScramClient};
pub use crate::scram::scram_server::{ScramAcceptance, ScramServer, ServerSecret};
pub use keys::{SaltedKeys, ScramKey, ScramVerifier, fingerprint, steady_salt};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Name of the mechanism in `AuthenticationSASL`.
pub const MECHANISM: &str = "SCRAM-SHA-256";
/// Name of the mechanism when both sides bind the exchange to their TLS channel.
pub const MECHANISM_PLUS: &str = "SCRAM-SHA-256-PLUS";
/// Iterations of a verifier made here; PostgreSQL's own default.
pub const ITERATIONS_DEFAULT: u32 = 4096;
/// Most iterations a peer may ask for: about half a second of one core. More is an attack or a mistake.
pub const ITERATIONS_MAX: u32 = 1_000_000;
/// Bytes of a salt made here, as in PostgreSQL.
pub const SALT_BYTES: usize = 16;
/// Longest salt a peer or a stored verifier may have. PostgreSQL makes 16 bytes.
pub const SALT_BYTES_MAX: usize = 1024;
/// Random bytes in a nonce, as in PostgreSQL.
pub const NONCE_RANDOM_BYTES: usize = 18;
/// Longest message read. A real one has some 200 bytes; this has room for a long salt and a long nonce.
pub const MESSAGE_BYTES_MAX: usize = 4096;

/// Why an exchange failed. After any of them the state machine answers `OutOfOrder` for ever.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScramError {
    /// Peer's fault, 08P01.
    #[error("malformed scram message: {what}")]
    Malformed {
        /// The part that could not be read.
        what: &'static str,
    },
    /// Peer's fault, 08P01.
    #[error("scram message of {bytes} bytes, limit is {limit}")]
    TooLong {
        /// Length received.
        bytes: usize,
        /// `MESSAGE_BYTES_MAX`.
        limit: usize,
    },
    /// Peer's fault, 08P01. A count that does not fit in 32 bits reads as `u32::MAX`.
    #[error("scram iteration count {count} is outside 1 to {limit}")]
    Iterations {
        /// Count asked for.
        count: u32,
        /// `ITERATIONS_MAX`.
        limit: u32,
    },
    /// Peer's fault, 08P01. Also the sign of a replayed message.
    #[error("scram nonce does not continue ours")]
    Nonce,
    /// Client's fault, 0A000.
    #[error("{what}")]
    Unsupported {
        /// The feature that the client wants.
        what: &'static str,
    },
    /// Client's fault, 08P01. Also the sign of someone between the two ends.
    #[error("scram channel binding: {what}")]
    Binding {
        /// The part that does not fit.
        what: &'static str,
    },
    /// Client's fault, 28P01: wrong password, or no such user. The two must look alike.
    #[error("scram proof does not match")]
    Proof,
    /// Server's fault: it took our proof but does not know the password's keys. Close, do not use the server.
    #[error("scram signature of the server does not match")]
    ServerSignature,
    /// The server's own word for a failure, cleaned of everything that does not print.
    #[error("server ended the scram exchange: {reason}")]
    ServerRefused {
        /// Value of the `e` attribute.
        reason: String,
    },
    /// Peer's fault, 08P01: a message after the end, or after a failure.
    #[error("scram message out of order")]
    OutOfOrder,
}

/// How an exchange is tied to the TLS channel it runs in.
///
/// One type for both sides, which have the same three cases: a TLS library only fills in the hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScramBinding {
    /// Client: cannot bind (`n`). Server: did not offer it; takes `n` and `y`.
    None,
    /// Client: could bind, the server did not offer (`y`). Server: offered, the client chose the plain mechanism; a
    /// `y` is then a lie told by someone in between, and refused.
    Unused,
    /// Mechanism `SCRAM-SHA-256-PLUS`: hash of the server's certificate (RFC 5929, tls-server-end-point).
    EndPoint(Vec<u8>),
}

impl ScramBinding {
    /// The GS2 header a client sends, which its final message repeats.
    fn header(&self) -> &'static str {
        match self {
            ScramBinding::None => "n,,",
            ScramBinding::Unused => "y,,",
            ScramBinding::EndPoint(_) => "p=tls-server-end-point,,",
        }
    }
}

/// Value of the `c` attribute: the header, and the certificate's hash if there is one.
fn channel_attribute(header: &str, binding: &ScramBinding) -> String {
    match binding {
        ScramBinding::EndPoint(hash) => STANDARD.encode([header.as_bytes(), hash].concat()),
        ScramBinding::None | ScramBinding::Unused => STANDARD.encode(header),
    }
}

/// One side's part of the nonce: printable ASCII without a comma, never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScramNonce(String);

impl ScramNonce {
    /// From fresh random bytes; the only way production code makes one.
    pub fn from_random(bytes: &[u8; NONCE_RANDOM_BYTES]) -> ScramNonce {
        ScramNonce(STANDARD.encode(bytes))
    }

    /// From text, for test vectors. `None` if it is empty or has a byte that a nonce must not have.
    pub fn from_text(text: &str) -> Option<ScramNonce> {
        is_nonce(text.as_bytes()).then(|| ScramNonce(text.to_owned()))
    }
}

fn is_nonce(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|byte| matches!(byte, 0x21..=0x7e) && *byte != b',')
}

/// A nonce as text; `is_nonce` makes sure that it is ASCII.
fn nonce_text(bytes: &[u8]) -> Result<&str, ScramError> {
    match std::str::from_utf8(bytes) {
        Ok(text) if is_nonce(bytes) => Ok(text),
        _ => Err(ScramError::Malformed { what: "nonce has bytes that do not print" }),
    }
}

/// Reads `name=value` pairs separated by commas. PostgreSQL tolerates one comma at the very end; so do we.
struct AttributeReader<'a> {
    message: &'a [u8],
    at: usize,
}

impl<'a> AttributeReader<'a> {
    /// Starts at the first byte. Error: too long, or a zero byte, with which PostgreSQL would see a shorter message.
    fn new(message: &'a [u8]) -> Result<AttributeReader<'a>, ScramError> {
        if message.len() > MESSAGE_BYTES_MAX {
            return Err(ScramError::TooLong { bytes: message.len(), limit: MESSAGE_BYTES_MAX });
        }
        if message.contains(&0) {
            return Err(ScramError::Malformed { what: "zero byte" });
        }
        Ok(AttributeReader { message, at: 0 })
    }

    fn rest(&self) -> &'a [u8] {
        &self.message[self.at..]
    }

    /// The next attribute, whatever its name; names are letters.
    fn any(&mut self) -> Result<(u8, &'a [u8]), ScramError> {
        let [name, b'=', tail @ ..] = self.rest() else {
            return Err(ScramError::Malformed { what: "attribute expected" });
        };
        if !name.is_ascii_alphabetic() {
            return Err(ScramError::Malformed { what: "name of an attribute is not a letter" });
        }
        let length = tail.iter().position(|byte| *byte == b',').unwrap_or(tail.len());
        self.at = (self.at + 2 + length + 1).min(self.message.len());
        Ok((*name, &tail[..length]))
    }

    /// The next attribute, which must have this name.
    fn named(&mut self, expected: u8, what: &'static str) -> Result<&'a [u8], ScramError> {
        match self.any() {
            Ok((name, value)) if name == expected => Ok(value),
            _ => Err(ScramError::Malformed { what }),
        }
    }

    /// Skips the optional extensions that end a message; anything else there is garbage.
    fn skip_extensions(&mut self) -> Result<(), ScramError> {
        while !self.rest().is_empty() {
            self.any()?;
        }
        Ok(())
    }
}

/// Decodes base64 that may have at most `limit_bytes` when decoded, and not none.
fn decode(text: &[u8], limit_bytes: usize, what: &'static str) -> Result<Vec<u8>, ScramError> {
    match STANDARD.decode(text) {
        Ok(bytes) if (1..=limit_bytes).contains(&bytes.len()) => Ok(bytes),
        _ => Err(ScramError::Malformed { what }),
    }
}

/// Decodes one key, proof or signature.
fn decode_key(text: &[u8], what: &'static str) -> Result<ScramKey, ScramError> {
    let bytes = zeroize::Zeroizing::new(decode(text, keys::KEY_BYTES, what)?);
    match <[u8; keys::KEY_BYTES]>::try_from(bytes.as_slice()) {
        Ok(bytes) => Ok(ScramKey::new(bytes)),
        Err(_) => Err(ScramError::Malformed { what }),
    }
}

/// Reads an iteration count: digits only, within the limit.
fn decode_iterations(text: &[u8]) -> Result<u32, ScramError> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return Err(ScramError::Malformed { what: "iteration count is not a number" });
    }
    let count = text.iter().fold(0u32, |sum, digit| sum.saturating_mul(10).saturating_add(u32::from(digit - b'0')));
    if !(1..=ITERATIONS_MAX).contains(&count) {
        return Err(ScramError::Iterations { count, limit: ITERATIONS_MAX });
    }
    Ok(count)
}

/// The text that both sides sign: the three messages without the proof.
fn signed_text(first_bare: &[u8], server_first: &[u8], without_proof: &[u8]) -> Vec<u8> {
    [first_bare, server_first, without_proof].join(&b',')
}
