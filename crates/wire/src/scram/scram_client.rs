//! Weir logs in to a server.

use super::{
    AttributeReader, SALT_BYTES_MAX, SaltedKeys, ScramBinding, ScramError, ScramKey, ScramNonce, channel_attribute, decode,
    decode_iterations, decode_key, nonce_text, signed_text,
};
use std::fmt;
use zeroize::Zeroizing;

/// Longest part of a server's own error text that is kept.
const REASON_CHARS_MAX: usize = 200;

/// Secret by which a client logs in.
#[derive(Clone)]
pub enum ClientSecret {
    /// The password; its keys are derived when the server has named salt and iterations.
    Password(Zeroizing<Vec<u8>>),
    /// Keys known already: from a cache, or passed through from a client's own login. They fit one salt only.
    Keys(SaltedKeys),
}

impl fmt::Debug for ClientSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ClientSecret::Password(_) => "Password(*****)",
            ClientSecret::Keys(_) => "Keys(*****)",
        })
    }
}

/// Salt and iteration count that a server asks for. Together with the user they name a set of cached keys.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ScramChallenge {
    /// Salt, not encoded.
    pub salt: Vec<u8>,
    /// Rounds of PBKDF2.
    pub iterations: u32,
}

/// The client's side of one exchange.
#[derive(Debug)]
pub struct ScramClient {
    state: ScramClientState,
    binding: ScramBinding,
}

#[derive(Debug)]
enum ScramClientState {
    /// First message is on its way.
    First {
        secret: ClientSecret,
        nonce: ScramNonce,
        bare: String,
    },
    /// Proof is on its way.
    Final {
        expected: ScramKey,
        keys: SaltedKeys,
    },
    /// The server has proved itself.
    Done {
        keys: SaltedKeys,
    },
    Failed,
}

impl ScramClient {
    /// Begins an exchange; the bytes go into `SASLInitialResponse`.
    pub fn new(secret: ClientSecret, nonce: &ScramNonce, binding: ScramBinding) -> (ScramClient, Vec<u8>) {
        // The user's name stays empty as in libpq; the server takes it from the startup message.
        let bare = format!("n=,r={}", nonce.0);
        let message = format!("{}{bare}", binding.header()).into_bytes();
        (ScramClient { state: ScramClientState::First { secret, nonce: nonce.clone(), bare }, binding }, message)
    }

    /// Reads salt and iterations out of the server's first message and leaves the state alone.
    ///
    /// For callers with a cache, or with another thread that derives keys: they follow with `use_keys`.
    pub fn challenge(&self, server_first: &[u8]) -> Result<ScramChallenge, ScramError> {
        match &self.state {
            ScramClientState::First { nonce, .. } => Ok(read_server_first(server_first, nonce)?.challenge),
            ScramClientState::Final { .. } | ScramClientState::Done { .. } | ScramClientState::Failed => {
                Err(ScramError::OutOfOrder)
            }
        }
    }

    /// Replaces the secret by keys that fit the server's challenge. No effect once the proof is sent.
    pub fn use_keys(&mut self, keys: SaltedKeys) {
        match &mut self.state {
            ScramClientState::First { secret, .. } => *secret = ClientSecret::Keys(keys),
            ScramClientState::Final { .. } | ScramClientState::Done { .. } | ScramClientState::Failed => {}
        }
    }

    /// Answers the server's first message; the bytes go into `SASLResponse`.
    ///
    /// With a password this blocks for as many hashes as the server asks, at most `ITERATIONS_MAX`.
    pub fn on_server_first(&mut self, message: &[u8]) -> Result<Vec<u8>, ScramError> {
        let ScramClientState::First { secret, nonce, bare } = std::mem::replace(&mut self.state, ScramClientState::Failed) else {
            return Err(ScramError::OutOfOrder);
        };
        let ServerFirst { nonce, challenge } = read_server_first(message, &nonce)?;
        let keys = match secret {
            ClientSecret::Password(password) => SaltedKeys::derive(&password, &challenge.salt, challenge.iterations),
            ClientSecret::Keys(keys) => keys,
        };
        let channel = channel_attribute(self.binding.header(), &self.binding);
        let without_proof = format!("c={channel},r={nonce}");
        let signed = signed_text(bare.as_bytes(), message, without_proof.as_bytes());
        let proof = keys.client_key.xor(&keys.stored_key.sign(&signed));
        self.state = ScramClientState::Final { expected: keys.server_key.sign(&signed), keys };
        Ok(format!("{without_proof},p={}", proof.base64()).into_bytes())
    }

    /// Checks that the server knows the keys too. Without this check anyone could play the server.
    pub fn on_server_final(&mut self, message: &[u8]) -> Result<(), ScramError> {
        let ScramClientState::Final { expected, keys } = std::mem::replace(&mut self.state, ScramClientState::Failed) else {
            return Err(ScramError::OutOfOrder);
        };
        if read_server_final(message)? != expected {
            return Err(ScramError::ServerSignature);
        }
        self.state = ScramClientState::Done { keys };
        Ok(())
    }

    /// The keys of a finished exchange, worth keeping for the next one; `None` before the server has proved itself.
    pub fn keys(&self) -> Option<&SaltedKeys> {
        match &self.state {
            ScramClientState::Done { keys } => Some(keys),
            ScramClientState::First { .. } | ScramClientState::Final { .. } | ScramClientState::Failed => None,
        }
    }
}

struct ServerFirst<'a> {
    nonce: &'a str,
    challenge: ScramChallenge,
}

/// `r=nonce,s=salt,i=iterations`. A mandatory extension (`m=`) stands before `r` and is refused by that.
fn read_server_first<'a>(message: &'a [u8], ours: &ScramNonce) -> Result<ServerFirst<'a>, ScramError> {
    let mut fields = AttributeReader::new(message)?;
    let nonce = nonce_text(fields.named(b'r', "nonce expected in the server's first message")?)?;
    // A server that adds nothing would let a recorded exchange be played again.
    if nonce.len() <= ours.0.len() || !nonce.starts_with(&ours.0) {
        return Err(ScramError::Nonce);
    }
    let salt = fields.named(b's', "salt expected in the server's first message")?;
    let salt = decode(salt, SALT_BYTES_MAX, "salt in the server's first message")?;
    let count = fields.named(b'i', "iteration count expected in the server's first message")?;
    let iterations = decode_iterations(count)?;
    fields.skip_extensions()?;
    Ok(ServerFirst { nonce, challenge: ScramChallenge { salt, iterations } })
}

/// `v=signature`, or `e=reason`.
fn read_server_final(message: &[u8]) -> Result<ScramKey, ScramError> {
    let mut fields = AttributeReader::new(message)?;
    match fields.any()? {
        (b'e', reason) => Err(ScramError::ServerRefused { reason: printable(reason) }),
        (b'v', signature) => {
            let signature = decode_key(signature, "signature in the server's final message")?;
            fields.skip_extensions()?;
            Ok(signature)
        }
        _ => Err(ScramError::Malformed { what: "signature expected in the server's final message" }),
    }
}

/// A peer's text made safe for a log line.
fn printable(bytes: &[u8]) -> String {
    let show = |byte: &u8| if matches!(byte, 0x20..=0x7e) { char::from(*byte) } else { '?' };
    bytes.iter().take(REASON_CHARS_MAX).map(show).collect()
}
