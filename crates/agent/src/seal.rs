//! Mutual authentication by a shared secret; every message is bound to its connection, direction and number.
//!
//! ```text
//! agent   magic, nonce A
//! client  nonce C, HMAC(secret, "client proves", A, C)
//! agent   HMAC(secret, "agent proves", A, C)
//! then    body, HMAC(key of the direction, number of the message, body); key = HMAC(secret, name of the direction, A, C)
//! ```
//!
//! The client proves first, so that an agent computes nothing with the secret for a stranger. A repeated, omitted, moved or
//! reflected message has another number or key. A frame begins with its length in four bytes.

use crate::secret::AgentSecret;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

pub const NONCE_BYTES: usize = 32;
const TAG_BYTES: usize = 32;
const MAGIC: &[u8] = b"weir agent 2\n";

pub const BODY_BYTES_MAX: usize = 8 << 10;
pub const GREETING_BYTES_MAX: usize = NONCE_BYTES + TAG_BYTES;
pub const FRAME_BYTES_MAX: usize = BODY_BYTES_MAX + TAG_BYTES;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    #[error("a frame of {bytes} bytes, the limit is {limit}")]
    TooLong { bytes: usize, limit: usize },
    #[error("the other side speaks another protocol")]
    Protocol,
    #[error("the other side does not know the secret")]
    Secret,
    #[error("a message is not authentic")]
    Message,
}

pub type Nonce = [u8; NONCE_BYTES];
type Tag = [u8; TAG_BYTES];

#[derive(Clone, Copy)]
struct NoncePair {
    agent: Nonce,
    client: Nonce,
}

pub fn frame(payload: &[u8]) -> Vec<u8> {
    let mut out = (payload.len() as u32).to_be_bytes().to_vec();
    out.extend(payload);
    out
}

pub fn frame_bytes(head: [u8; 4], limit: usize) -> Result<usize, SealError> {
    let bytes = u32::from_be_bytes(head) as usize;
    if bytes > limit { Err(SealError::TooLong { bytes, limit }) } else { Ok(bytes) }
}

fn mac(key: &[u8], parts: &[&[u8]]) -> Tag {
    // Unreachable: HMAC takes keys of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return [0; TAG_BYTES] };
    for part in parts {
        // A length before each part keeps parts apart.
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.ct_eq(other).into()
}

impl NoncePair {
    fn tag(&self, secret: &AgentSecret, purpose: &[u8]) -> Tag {
        mac(secret.bytes(), &[purpose, &self.agent, &self.client])
    }
}

pub fn greeting(agent: &Nonce) -> Vec<u8> {
    [MAGIC, agent].concat()
}

pub struct ClientHello(NoncePair);

impl ClientHello {
    pub fn answer(secret: &AgentSecret, greeting: &[u8], client: Nonce) -> Result<(ClientHello, Vec<u8>), SealError> {
        let agent = greeting.strip_prefix(MAGIC).and_then(|rest| rest.try_into().ok()).ok_or(SealError::Protocol)?;
        let nonces = NoncePair { agent, client };
        let proof = [&client[..], &nonces.tag(secret, b"client proves")].concat();
        Ok((ClientHello(nonces), proof))
    }

    pub fn finish(self, secret: &AgentSecret, proof: &[u8]) -> Result<FrameSeal, SealError> {
        if !is_same(proof, &self.0.tag(secret, b"agent proves")) {
            return Err(SealError::Secret);
        }
        Ok(FrameSeal::new(self.0.tag(secret, b"client to agent"), self.0.tag(secret, b"agent to client")))
    }
}

pub fn admit(secret: &AgentSecret, agent: Nonce, proof: &[u8]) -> Result<(FrameSeal, Vec<u8>), SealError> {
    let (client, tag) = proof.split_first_chunk().ok_or(SealError::Protocol)?;
    let nonces = NoncePair { agent, client: *client };
    if !is_same(tag, &nonces.tag(secret, b"client proves")) {
        return Err(SealError::Secret);
    }
    let seal = FrameSeal::new(nonces.tag(secret, b"agent to client"), nonces.tag(secret, b"client to agent"));
    Ok((seal, nonces.tag(secret, b"agent proves").to_vec()))
}

pub struct FrameSeal {
    sending: Tag,
    receiving: Tag,
    sent: u64,
    received: u64,
}

impl FrameSeal {
    fn new(sending: Tag, receiving: Tag) -> FrameSeal {
        FrameSeal { sending, receiving, sent: 0, received: 0 }
    }

    /// Returns the payload of the next frame to send.
    pub fn close(&mut self, body: &[u8]) -> Vec<u8> {
        let tag = mac(&self.sending, &[&self.sent.to_be_bytes(), body]);
        self.sent += 1;
        [body, &tag].concat()
    }

    /// Verifies the next received payload; returns its body.
    pub fn open<'a>(&mut self, payload: &'a [u8]) -> Result<&'a [u8], SealError> {
        let (body, tag) = payload.split_last_chunk::<TAG_BYTES>().ok_or(SealError::Message)?;
        if !is_same(tag, &mac(&self.receiving, &[&self.received.to_be_bytes(), body])) {
            return Err(SealError::Message);
        }
        self.received += 1;
        Ok(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> AgentSecret {
        AgentSecret::read(text, None).unwrap()
    }

    /// Both sides, after they have proved themselves.
    fn pair(agent: Nonce, client: Nonce) -> (FrameSeal, FrameSeal) {
        let secret = secret("0123456789abcdef");
        let (hello, proof) = ClientHello::answer(&secret, &greeting(&agent), client).unwrap();
        let (theirs, proof) = admit(&secret, agent, &proof).unwrap();
        (hello.finish(&secret, &proof).unwrap(), theirs)
    }

    #[test]
    fn both_sides_prove_that_they_know_the_secret() {
        let (right, wrong) = (secret("0123456789abcdef"), secret("0123456789abcdeg"));
        let (agent, client) = ([1; NONCE_BYTES], [2; NONCE_BYTES]);
        let (_, proof) = ClientHello::answer(&wrong, &greeting(&agent), client).unwrap();
        assert_eq!(admit(&right, agent, &proof).err(), Some(SealError::Secret));
        let (hello, proof) = ClientHello::answer(&right, &greeting(&agent), client).unwrap();
        assert_eq!(admit(&right, [3; NONCE_BYTES], &proof).err(), Some(SealError::Secret), "of another connection");
        assert_eq!(admit(&right, agent, &proof[..40]).err(), Some(SealError::Secret));
        assert_eq!(admit(&right, agent, &proof[..20]).err(), Some(SealError::Protocol));
        assert_eq!(hello.finish(&right, &proof[NONCE_BYTES..]).err(), Some(SealError::Secret), "its own words");
        let false_agent = ClientHello::answer(&right, &greeting(&agent), client).unwrap().0;
        assert_eq!(
            false_agent.finish(&right, &admit(&wrong, agent, &[]).map_or(vec![], |(_, proof)| proof)).err(),
            Some(SealError::Secret)
        );
        assert_eq!(ClientHello::answer(&right, b"SSH-2.0", client).err(), Some(SealError::Protocol));
    }

    #[test]
    fn messages_that_are_repeated_left_out_moved_changed_or_sent_back_are_refused() {
        let (mut client, mut agent) = pair([1; NONCE_BYTES], [2; NONCE_BYTES]);
        let (one, two) = (client.close(b"one"), client.close(b"two"));
        assert_eq!(agent.open(&two), Err(SealError::Message), "one was left out");
        assert_eq!(agent.open(&one), Ok(&b"one"[..]));
        assert_eq!(agent.open(&one), Err(SealError::Message), "a second time");
        let mut changed = two.clone();
        changed[0] ^= 1;
        assert_eq!(agent.open(&changed), Err(SealError::Message));
        assert_eq!(client.open(&two), Err(SealError::Message), "sent back");
        assert_eq!(agent.open(&two), Ok(&b"two"[..]));
        assert_eq!(agent.open(&[]), Err(SealError::Message));
        let (_, mut other) = pair([3; NONCE_BYTES], [2; NONCE_BYTES]);
        assert_eq!(other.open(&one), Err(SealError::Message), "of another connection");
    }

    #[test]
    fn a_frame_is_refused_by_its_length_alone() {
        assert_eq!(frame(b"abc"), [0, 0, 0, 3, b'a', b'b', b'c']);
        assert_eq!(frame_bytes([0, 0, 0, 3], 3), Ok(3));
        let refused = SealError::TooLong { bytes: u32::MAX as usize, limit: 3 };
        assert_eq!(frame_bytes([0xff; 4], 3), Err(refused));
    }
}
