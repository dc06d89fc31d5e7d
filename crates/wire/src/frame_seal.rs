//! Mutual authentication by a shared secret; every message is bound to its connection, direction and number.
//!
//! ```text
//! server  magic, hello S
//! client  hello C, HMAC(secret, "client proves", S, C)
//! server  HMAC(secret, "server proves", S, C)
//! then    body, HMAC(key of the direction, number of the message, body); key = HMAC(secret, name of the direction, S, C)
//! ```
//!
//! A hello is a nonce and what its side claims. The client proves first, so that a server computes nothing with the secret for a stranger. A repeated,
//! omitted, moved or reflected message has another number or key. A frame begins with its length in four bytes. Each protocol has words of its own
//! ([`SealWords`]), so that two of them with one secret accept nothing from each other. Without a secret all tags are empty: nothing is proved.

use hmac::{Hmac, Mac};
use sha2::Sha256;
use std::ops::RangeInclusive;
use subtle::ConstantTimeEq;

pub const NONCE_BYTES: usize = 32;
pub const TAG_BYTES: usize = 32;

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
pub type Tag = [u8; TAG_BYTES];

/// Words of one protocol.
#[derive(Debug)]
pub struct SealWords {
    pub magic: &'static [u8],
    pub client_proves: &'static [u8],
    pub server_proves: &'static [u8],
    pub client_to_server: &'static [u8],
    pub server_to_client: &'static [u8],
    /// More than is known today lets a later program add claims.
    pub hello_bytes: RangeInclusive<usize>,
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

pub(crate) fn mac(key: &[u8], parts: &[&[u8]]) -> Tag {
    // Unreachable: HMAC takes keys of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return [0; TAG_BYTES] };
    for part in parts {
        // A length before each part keeps parts apart.
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

pub(crate) fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.ct_eq(other).into()
}

/// Splits a tag off, which is empty without a secret.
pub(crate) fn split_tag(bytes: &[u8], has_secret: bool) -> Option<(&[u8], &[u8])> {
    let tag_bytes = if has_secret { TAG_BYTES } else { 0 };
    bytes.split_at_checked(bytes.len().checked_sub(tag_bytes)?)
}

/// Both hellos, and the secret if there is one.
pub struct SealHandshake<'a> {
    words: &'a SealWords,
    secret: Option<&'a [u8]>,
    pub server: Vec<u8>,
    pub client: Vec<u8>,
}

impl<'a> SealHandshake<'a> {
    /// The server's first frame.
    pub fn greeting(words: &SealWords, server: &[u8]) -> Vec<u8> {
        [words.magic, server].concat()
    }

    /// The hello in a greeting.
    pub fn greeted<'g>(words: &SealWords, greeting: &'g [u8]) -> Result<&'g [u8], SealError> {
        let hello = greeting.strip_prefix(words.magic).filter(|hello| words.hello_bytes.contains(&hello.len()));
        hello.ok_or(SealError::Protocol)
    }

    /// The client's answer to a greeting. Nothing is proved to the client before [`finish`](Self::finish).
    pub fn answer(
        words: &'a SealWords,
        secret: Option<&'a [u8]>,
        greeting: &[u8],
        client: &[u8],
    ) -> Result<(SealHandshake<'a>, Vec<u8>), SealError> {
        let server = SealHandshake::greeted(words, greeting)?.to_vec();
        let handshake = SealHandshake { words, secret, server, client: client.to_vec() };
        let proof = [client, &handshake.tag(words.client_proves)].concat();
        Ok((handshake, proof))
    }

    /// The server's look at a client's answer; returns the proof to send.
    pub fn admit(
        words: &'a SealWords,
        secret: Option<&'a [u8]>,
        server: &[u8],
        proof: &[u8],
    ) -> Result<(SealHandshake<'a>, Vec<u8>), SealError> {
        let (client, tag) = split_tag(proof, secret.is_some()).ok_or(SealError::Protocol)?;
        let handshake = SealHandshake { words, secret, server: server.to_vec(), client: client.to_vec() };
        if !is_same(tag, &handshake.tag(words.client_proves)) {
            return Err(SealError::Secret);
        }
        if !words.hello_bytes.contains(&client.len()) {
            return Err(SealError::Protocol);
        }
        let proof = handshake.tag(words.server_proves);
        Ok((handshake, proof))
    }

    pub fn finish(&self, proof: &[u8]) -> Result<(), SealError> {
        if is_same(proof, &self.tag(self.words.server_proves)) { Ok(()) } else { Err(SealError::Secret) }
    }

    /// Of a client after [`finish`](Self::finish).
    pub fn client_seal(&self) -> FrameSeal {
        FrameSeal::new(self.key(self.words.client_to_server), self.key(self.words.server_to_client))
    }

    /// Of a server after [`admit`](Self::admit).
    pub fn server_seal(&self) -> FrameSeal {
        FrameSeal::new(self.key(self.words.server_to_client), self.key(self.words.client_to_server))
    }

    /// A key for another purpose; `None` without a secret.
    pub fn key(&self, purpose: &[u8]) -> Option<Tag> {
        self.secret.map(|secret| mac(secret, &[purpose, &self.server, &self.client]))
    }

    /// A number that both sides know and that no other handshake has.
    pub fn number(&self, purpose: &[u8]) -> u64 {
        let tag = mac(self.secret.unwrap_or_default(), &[purpose, &self.server, &self.client]);
        tag.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
    }

    fn tag(&self, purpose: &[u8]) -> Vec<u8> {
        self.key(purpose).map_or_else(Vec::new, |tag| tag.to_vec())
    }
}

pub struct FrameSeal {
    sending: Option<Tag>,
    receiving: Option<Tag>,
    sent: u64,
    received: u64,
}

impl FrameSeal {
    fn new(sending: Option<Tag>, receiving: Option<Tag>) -> FrameSeal {
        FrameSeal { sending, receiving, sent: 0, received: 0 }
    }

    /// Returns the payload of the next frame to send.
    pub fn close(&mut self, body: &[u8]) -> Vec<u8> {
        let tag = self.sending.as_ref().map(|key| mac(key, &[&self.sent.to_be_bytes(), body]));
        self.sent += 1;
        [body, tag.as_ref().map_or(&[][..], |tag| tag)].concat()
    }

    /// Verifies the next received payload; returns its body.
    pub fn open<'a>(&mut self, payload: &'a [u8]) -> Result<&'a [u8], SealError> {
        let (body, tag) = split_tag(payload, self.receiving.is_some()).ok_or(SealError::Message)?;
        if let Some(key) = &self.receiving
            && !is_same(tag, &mac(key, &[&self.received.to_be_bytes(), body]))
        {
            return Err(SealError::Message);
        }
        self.received += 1;
        Ok(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: SealWords = SealWords {
        magic: b"test 1\n",
        client_proves: b"client proves",
        server_proves: b"server proves",
        client_to_server: b"to server",
        server_to_client: b"to client",
        hello_bytes: 4..=6,
    };
    const OTHERS: SealWords = SealWords { client_proves: b"other client proves", ..WORDS };

    #[test]
    fn another_protocol_with_the_same_secret_lets_nobody_in() {
        let secret = Some(&b"0123456789abcdef"[..]);
        let (_, proof) = SealHandshake::answer(&OTHERS, secret, b"test 1\nAAAA", b"CCCC").unwrap();
        assert_eq!(SealHandshake::admit(&WORDS, secret, b"AAAA", &proof).err(), Some(SealError::Secret));
        assert_eq!(SealHandshake::admit(&WORDS, None, b"AAAA", &proof).err(), Some(SealError::Protocol));
        let (_, bare) = SealHandshake::answer(&WORDS, None, b"test 1\nAAAA", b"CCCC").unwrap();
        assert_eq!(SealHandshake::admit(&WORDS, secret, b"AAAA", &bare).err(), Some(SealError::Protocol), "no proof at all");
    }

    #[test]
    fn a_hello_has_its_bounds_and_claims_are_proved() {
        let secret = Some(&b"0123456789abcdef"[..]);
        for greeting in [&b"test 1\nAAA"[..], b"test 1\nAAAAAAA", b"test 2\nAAAA", b""] {
            assert_eq!(SealHandshake::answer(&WORDS, secret, greeting, b"CCCC").err(), Some(SealError::Protocol));
        }
        let (ours, mut proof) = SealHandshake::answer(&WORDS, secret, b"test 1\nAAAA1", b"CCCC2").unwrap();
        let (theirs, answer) = SealHandshake::admit(&WORDS, secret, b"AAAA1", &proof).unwrap();
        assert_eq!((&theirs.client[..], ours.finish(&answer)), (&b"CCCC2"[..], Ok(())));
        assert_eq!((ours.number(b"n"), ours.key(b"k")), (theirs.number(b"n"), theirs.key(b"k")));
        assert_ne!(ours.number(b"n"), ours.number(b"m"));
        proof[4] = b'3';
        assert_eq!(SealHandshake::admit(&WORDS, secret, b"AAAA1", &proof).err(), Some(SealError::Secret), "another claim");
        assert_eq!(SealHandshake::admit(&WORDS, secret, b"AAAA2", &proof).err(), Some(SealError::Secret));
        let (_, long) = SealHandshake::answer(&WORDS, secret, b"test 1\nAAAA1", b"CCCCCCC").unwrap();
        assert_eq!(SealHandshake::admit(&WORDS, secret, b"AAAA1", &long).err(), Some(SealError::Protocol));
    }

    #[test]
    fn without_a_secret_frames_are_the_same_but_for_their_tags() {
        let (ours, proof) = SealHandshake::answer(&WORDS, None, b"test 1\nAAAA", b"CCCC").unwrap();
        let (theirs, answer) = SealHandshake::admit(&WORDS, None, b"AAAA", &proof).unwrap();
        assert_eq!((&proof[..], &answer[..], ours.finish(&answer)), (&b"CCCC"[..], &b""[..], Ok(())));
        assert_eq!(ours.finish(b"x"), Err(SealError::Secret));
        let (mut sender, mut receiver) = (ours.client_seal(), theirs.server_seal());
        let sent = sender.close(b"one");
        assert_eq!((&sent[..], receiver.open(&sent)), (&b"one"[..], Ok(&b"one"[..])));
    }
}
