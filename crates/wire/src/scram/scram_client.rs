//! SCRAM client: Weir logs in to a server.

use super::{
    AttributeReader, SALT_BYTES_MAX, SaltedKeys, ScramBinding, ScramError, ScramKey, ScramNonce, channel_attribute, decode,
    decode_iterations, decode_key, nonce_text, signed_text,
};
use std::fmt;
use zeroize::Zeroizing;

const REASON_CHARS_MAX: usize = 200;

#[derive(Clone)]
pub enum ClientSecret {
    /// A password, whose keys are derived for the server's challenge.
    Password(Zeroizing<Vec<u8>>),
    /// Cached or passed-through keys, valid for one salt.
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

/// A server's salt and iterations, with the user a cache key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ScramChallenge {
    pub salt: Vec<u8>,
    pub iterations: u32,
}

#[derive(Debug)]
pub struct ScramClient {
    state: ScramClientState,
    binding: ScramBinding,
}

#[derive(Debug)]
enum ScramClientState {
    First { secret: ClientSecret, nonce: ScramNonce, bare: String },
    Final { expected: ScramKey, keys: SaltedKeys },
    Done { keys: SaltedKeys },
    Failed,
}

impl ScramClient {
    /// Begins an exchange; returns a `SASLInitialResponse`.
    pub fn new(secret: ClientSecret, nonce: &ScramNonce, binding: ScramBinding) -> (ScramClient, Vec<u8>) {
        // The user name is empty as in libpq; the startup message has it.
        let bare = format!("n=,r={}", nonce.0);
        let message = format!("{}{bare}", binding.header()).into_bytes();
        (ScramClient { state: ScramClientState::First { secret, nonce: nonce.clone(), bare }, binding }, message)
    }

    /// Reads salt and iterations, for a later `use_keys`.
    pub fn challenge(&self, server_first: &[u8]) -> Result<ScramChallenge, ScramError> {
        match &self.state {
            ScramClientState::First { nonce, .. } => Ok(read_server_first(server_first, nonce)?.challenge),
            ScramClientState::Final { .. } | ScramClientState::Done { .. } | ScramClientState::Failed => {
                Err(ScramError::OutOfOrder)
            }
        }
    }

    /// Sets keys for the challenge. No effect once the proof is sent.
    pub fn use_keys(&mut self, keys: SaltedKeys) {
        match &mut self.state {
            ScramClientState::First { secret, .. } => *secret = ClientSecret::Keys(keys),
            ScramClientState::Final { .. } | ScramClientState::Done { .. } | ScramClientState::Failed => {}
        }
    }

    /// Returns the `SASLResponse`.
    ///
    /// With a password it blocks for the iterations, at most `ITERATIONS_MAX`.
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

    /// Verifies the server's signature, against impersonation.
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

    /// Returns the keys once the server is verified.
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

/// Reads `r=nonce,s=salt,i=iterations`. A mandatory extension (`m=`) comes before `r` and is thereby refused.
fn read_server_first<'a>(message: &'a [u8], ours: &ScramNonce) -> Result<ServerFirst<'a>, ScramError> {
    let mut fields = AttributeReader::new(message)?;
    let nonce = nonce_text(fields.named(b'r', "nonce expected in the server's first message")?)?;
    // Otherwise a recorded exchange could be replayed.
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

/// Reads `v=signature` or `e=reason`.
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

fn printable(bytes: &[u8]) -> String {
    let show = |byte: &u8| if matches!(byte, 0x20..=0x7e) { char::from(*byte) } else { '?' };
    bytes.iter().take(REASON_CHARS_MAX).map(show).collect()
}
