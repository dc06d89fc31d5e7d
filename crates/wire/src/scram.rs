//! SCRAM-SHA-256 as PostgreSQL speaks it: state machines of both sides.
//!
//! `ScramClient` logs in to a server, `ScramServer` lets a client log in. Nonces and salts come from the caller: no randomness,
//! clock or IO here. Source: RFC 5802, RFC 7677; PostgreSQL's auth-scram.c, fe-auth-scram.c, scram-common.c. PostgreSQL departs
//! from the RFC twice: it ignores the user name in the messages (the startup message has it), and uses a password that SASLprep
//! refuses as it is.

mod keys;
mod scram_client;
mod scram_server;

pub use crate::scram::scram_client::{ClientSecret, ScramChallenge, ScramClient};
pub use crate::scram::scram_server::{ScramAcceptance, ScramServer, ServerSecret};
pub use keys::{SaltedKeys, ScramKey, ScramVerifier, fingerprint, steady_salt};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

pub const MECHANISM: &str = "SCRAM-SHA-256";
/// Mechanism with channel binding to TLS.
pub const MECHANISM_PLUS: &str = "SCRAM-SHA-256-PLUS";
/// Iterations of verifiers made here; PostgreSQL's default.
pub const ITERATIONS_DEFAULT: u32 = 4096;
/// Limit of iterations: about half a second of one core.
pub const ITERATIONS_MAX: u32 = 1_000_000;
/// PostgreSQL's salt size.
pub const SALT_BYTES: usize = 16;
/// Limit of a received or stored salt.
pub const SALT_BYTES_MAX: usize = 1024;
/// PostgreSQL's nonce size.
pub const NONCE_RANDOM_BYTES: usize = 18;
/// Limit of a message. Usual ones have some 200 bytes; the rest is room for a long salt and nonce.
pub const MESSAGE_BYTES_MAX: usize = 4096;

/// A failure of an exchange. The state machine then only returns `OutOfOrder`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScramError {
    /// Peer's fault, 08P01.
    #[error("malformed scram message: {what}")]
    Malformed { what: &'static str },
    /// Peer's fault, 08P01.
    #[error("scram message of {bytes} bytes, limit is {limit}")]
    TooLong { bytes: usize, limit: usize },
    /// Peer's fault, 08P01. A count beyond 32 bits reads as `u32::MAX`.
    #[error("scram iteration count {count} is outside 1 to {limit}")]
    Iterations { count: u32, limit: u32 },
    /// Peer's fault, 08P01. May be a replayed message.
    #[error("scram nonce does not continue ours")]
    Nonce,
    /// Client's fault, 0A000.
    #[error("{what}")]
    Unsupported { what: &'static str },
    /// Client's fault, 08P01. May be a man in the middle.
    #[error("scram channel binding: {what}")]
    Binding { what: &'static str },
    /// Client's fault, 28P01: wrong password or unknown user, which must look alike.
    #[error("scram proof does not match")]
    Proof,
    /// Server's fault: it accepted our proof without knowing the keys. Close the connection.
    #[error("scram signature of the server does not match")]
    ServerSignature,
    /// The server's reason, printable characters only.
    #[error("server ended the scram exchange: {reason}")]
    ServerRefused { reason: String },
    /// Peer's fault, 08P01: a message after the end or a failure.
    #[error("scram message out of order")]
    OutOfOrder,
}

/// Channel binding of an exchange to TLS, for both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScramBinding {
    /// Client: cannot bind (`n`). Server: not offered; accepts `n` and `y`.
    None,
    /// Client: able, but not offered (`y`). Server: offered, the client chose the plain mechanism; `y` then means a man in the
    /// middle and is refused.
    Unused,
    /// `SCRAM-SHA-256-PLUS`: hash of the server's certificate (RFC 5929, tls-server-end-point).
    EndPoint(Vec<u8>),
}

impl ScramBinding {
    /// Returns the client's GS2 header, repeated in its final message.
    fn header(&self) -> &'static str {
        match self {
            ScramBinding::None => "n,,",
            ScramBinding::Unused => "y,,",
            ScramBinding::EndPoint(_) => "p=tls-server-end-point,,",
        }
    }
}

/// Returns the `c` attribute: the header and the certificate's hash, if any.
fn channel_attribute(header: &str, binding: &ScramBinding) -> String {
    match binding {
        ScramBinding::EndPoint(hash) => STANDARD.encode([header.as_bytes(), hash].concat()),
        ScramBinding::None | ScramBinding::Unused => STANDARD.encode(header),
    }
}

/// One side's nonce: printable ASCII without a comma, not empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScramNonce(String);

impl ScramNonce {
    /// Encodes fresh random bytes; the only constructor for production code.
    pub fn from_random(bytes: &[u8; NONCE_RANDOM_BYTES]) -> ScramNonce {
        ScramNonce(STANDARD.encode(bytes))
    }

    /// Takes a test vector; `None` if invalid.
    pub fn from_text(text: &str) -> Option<ScramNonce> {
        is_nonce(text.as_bytes()).then(|| ScramNonce(text.to_owned()))
    }
}

fn is_nonce(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|byte| matches!(byte, 0x21..=0x7e) && *byte != b',')
}

fn nonce_text(bytes: &[u8]) -> Result<&str, ScramError> {
    match std::str::from_utf8(bytes) {
        Ok(text) if is_nonce(bytes) => Ok(text),
        _ => Err(ScramError::Malformed { what: "nonce has bytes that do not print" }),
    }
}

/// Reads `name=value` pairs separated by commas. Like PostgreSQL it tolerates a comma at the end.
struct AttributeReader<'a> {
    message: &'a [u8],
    at: usize,
}

impl<'a> AttributeReader<'a> {
    /// Error: too long, or a zero byte, where PostgreSQL would end the message.
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

    /// Returns the next attribute of any name (a letter).
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

    /// Returns the next attribute, which must have this name.
    fn named(&mut self, expected: u8, what: &'static str) -> Result<&'a [u8], ScramError> {
        match self.any() {
            Ok((name, value)) if name == expected => Ok(value),
            _ => Err(ScramError::Malformed { what }),
        }
    }

    /// Skips optional extensions up to the end.
    fn skip_extensions(&mut self) -> Result<(), ScramError> {
        while !self.rest().is_empty() {
            self.any()?;
        }
        Ok(())
    }
}

/// Decodes base64 of 1 to `limit_bytes` bytes.
fn decode(text: &[u8], limit_bytes: usize, what: &'static str) -> Result<Vec<u8>, ScramError> {
    match STANDARD.decode(text) {
        Ok(bytes) if (1..=limit_bytes).contains(&bytes.len()) => Ok(bytes),
        _ => Err(ScramError::Malformed { what }),
    }
}

fn decode_key(text: &[u8], what: &'static str) -> Result<ScramKey, ScramError> {
    let bytes = zeroize::Zeroizing::new(decode(text, keys::KEY_BYTES, what)?);
    match <[u8; keys::KEY_BYTES]>::try_from(bytes.as_slice()) {
        Ok(bytes) => Ok(ScramKey::new(bytes)),
        Err(_) => Err(ScramError::Malformed { what }),
    }
}

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

/// Returns the text that both sides sign.
fn signed_text(first_bare: &[u8], server_first: &[u8], without_proof: &[u8]) -> Vec<u8> {
    [first_bare, server_first, without_proof].join(&b',')
}
