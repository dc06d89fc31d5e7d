//! SCRAM server: a client logs in to Weir.

use super::{
    AttributeReader, MESSAGE_BYTES_MAX, SaltedKeys, ScramBinding, ScramChallenge, ScramError, ScramKey, ScramNonce,
    ScramVerifier, channel_attribute, decode_key, nonce_text, signed_text,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

#[derive(Debug, Clone)]
pub enum ServerSecret {
    Known(ScramVerifier),
    /// Unknown user or no usable password: fails at the end.
    Unknown(ScramVerifier),
}

impl ServerSecret {
    /// The salt should be that of `steady_salt`.
    pub fn unknown(challenge: ScramChallenge) -> ServerSecret {
        let nothing = ScramKey::new([0; super::keys::KEY_BYTES]);
        ServerSecret::Unknown(ScramVerifier {
            iterations: challenge.iterations,
            salt: challenge.salt,
            stored_key: nothing.clone(),
            server_key: nothing,
        })
    }

    fn verifier(&self) -> &ScramVerifier {
        match self {
            ServerSecret::Known(verifier) | ServerSecret::Unknown(verifier) => verifier,
        }
    }
}

#[derive(Debug)]
pub struct ScramAcceptance {
    /// For `AuthenticationSASLFinal`.
    pub message: Vec<u8>,
    /// Usable on servers with the same verifier.
    pub keys: SaltedKeys,
}

#[derive(Debug)]
pub struct ScramServer {
    state: ScramServerState,
    binding: ScramBinding,
}

#[derive(Debug)]
enum ScramServerState {
    First { secret: ServerSecret, nonce: ScramNonce },
    Final { secret: ServerSecret, nonce: String, channel: String, bare: Vec<u8>, server_first: Vec<u8> },
    Over,
}

impl ScramServer {
    /// `binding` is `None` if `SCRAM-SHA-256-PLUS` was not offered.
    pub fn new(secret: ServerSecret, nonce: ScramNonce, binding: ScramBinding) -> ScramServer {
        ScramServer { state: ScramServerState::First { secret, nonce }, binding }
    }

    /// Returns the `AuthenticationSASLContinue`.
    pub fn on_client_first(&mut self, message: &[u8]) -> Result<Vec<u8>, ScramError> {
        let ScramServerState::First { secret, nonce } = std::mem::replace(&mut self.state, ScramServerState::Over) else {
            return Err(ScramError::OutOfOrder);
        };
        let ClientFirst { header, bare, nonce: theirs } = read_client_first(message, &self.binding)?;
        let nonce = [theirs, &nonce.0].concat();
        let verifier = secret.verifier();
        let (salt, iterations) = (STANDARD.encode(&verifier.salt), verifier.iterations.to_string());
        let reply = ["r=", &nonce, ",s=", &salt, ",i=", &iterations].concat().into_bytes();
        let channel = channel_attribute(header, &self.binding);
        self.state = ScramServerState::Final { secret, nonce, channel, bare: bare.to_vec(), server_first: reply.clone() };
        Ok(reply)
    }

    /// `Proof`: wrong password or unknown user.
    pub fn on_client_final(&mut self, message: &[u8]) -> Result<ScramAcceptance, ScramError> {
        let ScramServerState::Final { secret, nonce, channel, bare, server_first } =
            std::mem::replace(&mut self.state, ScramServerState::Over)
        else {
            return Err(ScramError::OutOfOrder);
        };
        let answer = read_client_final(message)?;
        if answer.channel != channel.as_bytes() {
            return Err(ScramError::Binding { what: "final message does not repeat the first one's header" });
        }
        if answer.nonce != nonce.as_bytes() {
            return Err(ScramError::Nonce);
        }
        let signed = signed_text(&bare, &server_first, answer.without_proof);
        let verifier = secret.verifier();
        let client_key = answer.proof.xor(&verifier.stored_key.sign(&signed));
        let proved = client_key.hash() == verifier.stored_key;
        match (&secret, proved) {
            (ServerSecret::Known(verifier), true) => {
                let signature = verifier.server_key.sign(&signed).base64();
                let (stored_key, server_key) = (verifier.stored_key.clone(), verifier.server_key.clone());
                let keys = SaltedKeys { client_key, stored_key, server_key };
                Ok(ScramAcceptance { message: ["v=", &signature].concat().into_bytes(), keys })
            }
            (ServerSecret::Known(_), false) | (ServerSecret::Unknown(_), _) => Err(ScramError::Proof),
        }
    }
}

struct ClientFirst<'a> {
    header: &'static str,
    bare: &'a [u8],
    nonce: &'a str,
}

/// Reads the GS2 header and the signed part of `n,,n=user,r=nonce`.
fn read_client_first<'a>(message: &'a [u8], binding: &ScramBinding) -> Result<ClientFirst<'a>, ScramError> {
    AttributeReader::new(message)?;
    let (header, after_flag) = read_flag(message, binding)?;
    let bare = match after_flag {
        [b',', b',', bare @ ..] => bare,
        [b',', b'a', ..] => {
            return Err(ScramError::Unsupported { what: "client wants another authorization identity" });
        }
        _ => return Err(ScramError::Malformed { what: "header of the client's first message" }),
    };
    if bare.first() == Some(&b'm') {
        return Err(ScramError::Unsupported { what: "client requires a scram extension" });
    }
    let mut fields = AttributeReader::new(bare)?;
    fields.named(b'n', "user name expected in the client's first message")?;
    let nonce = nonce_text(fields.named(b'r', "nonce expected in the client's first message")?)?;
    // Leaves room for the combined nonce, which the client repeats.
    if nonce.len() > MESSAGE_BYTES_MAX / 2 {
        return Err(ScramError::Malformed { what: "nonce of the client is too long" });
    }
    fields.skip_extensions()?;
    Ok(ClientFirst { header, bare, nonce })
}

/// Reads the flag, which must fit offer and choice; returns its header.
fn read_flag<'a>(message: &'a [u8], binding: &ScramBinding) -> Result<(&'static str, &'a [u8]), ScramError> {
    match (message, binding) {
        ([b'n', rest @ ..], ScramBinding::None | ScramBinding::Unused) => Ok((ScramBinding::None.header(), rest)),
        ([b'y', rest @ ..], ScramBinding::None) => Ok((ScramBinding::Unused.header(), rest)),
        ([b'y', ..], ScramBinding::Unused) => {
            Err(ScramError::Binding { what: "client believes that it was not offered, but it was" })
        }
        ([b'n' | b'y', ..], ScramBinding::EndPoint(_)) => {
            Err(ScramError::Binding { what: "client chose SCRAM-SHA-256-PLUS but binds nothing" })
        }
        ([b'p', ..], ScramBinding::None | ScramBinding::Unused) => {
            Err(ScramError::Unsupported { what: "client requires channel binding, it is not available here" })
        }
        ([b'p', ..], ScramBinding::EndPoint(_)) => {
            let header = binding.header();
            let name = header.strip_suffix(",,").unwrap_or(header);
            match message.strip_prefix(name.as_bytes()) {
                Some(rest) => Ok((header, rest)),
                None => Err(ScramError::Unsupported { what: "client wants a channel binding of unknown type" }),
            }
        }
        _ => Err(ScramError::Malformed { what: "channel binding flag of the client's first message" }),
    }
}

struct ClientFinal<'a> {
    channel: &'a [u8],
    nonce: &'a [u8],
    proof: ScramKey,
    without_proof: &'a [u8],
}

/// Reads `c=channel,r=nonce,p=proof`, with extensions before the proof only.
fn read_client_final(message: &[u8]) -> Result<ClientFinal<'_>, ScramError> {
    let mut fields = AttributeReader::new(message)?;
    let channel = fields.named(b'c', "channel binding expected in the client's final message")?;
    let nonce = fields.named(b'r', "nonce expected in the client's final message")?;
    loop {
        let proof_at = fields.at;
        let (name, value) = fields.any()?;
        if name != b'p' {
            continue;
        }
        if !fields.rest().is_empty() {
            return Err(ScramError::Malformed { what: "text after the proof" });
        }
        let proof = decode_key(value, "proof in the client's final message")?;
        // Without the comma, which is not signed.
        return Ok(ClientFinal { channel, nonce, proof, without_proof: &message[..proof_at - 1] });
    }
}
