//! Datagrams of two sides that met over a connection: lost ones and other orders are fine, repeated, reflected and changed ones are refused.
//!
//! ```text
//! magic, number of the link, counter, body, HMAC(key, number of the link, counter, body)
//! ```
//!
//! Key and number come from a handshake ([`SealHandshake`]), one for each direction. Without a secret there is no tag.

use crate::frame_seal::{SealHandshake, Tag, is_same, mac, split_tag};

/// Counters that are remembered below the newest one; older datagrams are refused.
const WINDOW: u64 = u128::BITS as u64;

/// Words of one protocol and direction.
#[derive(Debug)]
pub struct DatagramWords {
    pub magic: &'static [u8],
    pub key: &'static [u8],
    pub number: &'static [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DatagramError {
    #[error("a datagram of another protocol")]
    Protocol,
    #[error("a datagram is not authentic")]
    Message,
    /// Also a copy that came over another path.
    #[error("a datagram that was received before, or long ago")]
    Repeated,
}

pub struct DatagramSender {
    magic: &'static [u8],
    number: u64,
    key: Option<Tag>,
    sent: u64,
}

impl DatagramSender {
    pub fn new(words: &DatagramWords, handshake: &SealHandshake<'_>) -> DatagramSender {
        let (number, key) = (handshake.number(words.number), handshake.key(words.key));
        DatagramSender { magic: words.magic, number, key, sent: 0 }
    }

    /// The next datagram. Copies of it may be sent over several paths: one counts.
    pub fn close(&mut self, body: &[u8]) -> Vec<u8> {
        let (number, counter) = (self.number.to_be_bytes(), self.sent.to_be_bytes());
        self.sent += 1;
        let mut out = [self.magic, &number, &counter, body].concat();
        if let Some(key) = &self.key {
            out.extend(mac(key, &[&number, &counter, body]));
        }
        out
    }
}

/// Receiver of the datagrams of one link.
pub struct DatagramReceiver {
    number: u64,
    key: Option<Tag>,
    /// Counter above all that were received.
    next: u64,
    /// Bit n: `next` - 1 - n was received.
    received: u128,
}

/// The number of the link in a datagram, of which nothing is verified yet, and the rest.
pub fn datagram_link<'a>(words: &DatagramWords, datagram: &'a [u8]) -> Result<(u64, &'a [u8]), DatagramError> {
    let rest = datagram.strip_prefix(words.magic).ok_or(DatagramError::Protocol)?;
    let (number, rest) = rest.split_first_chunk().ok_or(DatagramError::Protocol)?;
    Ok((u64::from_be_bytes(*number), rest))
}

impl DatagramReceiver {
    pub fn new(words: &DatagramWords, handshake: &SealHandshake<'_>) -> DatagramReceiver {
        let (number, key) = (handshake.number(words.number), handshake.key(words.key));
        DatagramReceiver { number, key, next: 0, received: 0 }
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// `rest`: as [`datagram_link`] returned it for this link. Returns the body.
    pub fn open<'a>(&mut self, rest: &'a [u8]) -> Result<&'a [u8], DatagramError> {
        let (counter_bytes, sealed) = rest.split_first_chunk().ok_or(DatagramError::Protocol)?;
        let (body, tag) = split_tag(sealed, self.key.is_some()).ok_or(DatagramError::Message)?;
        if let Some(key) = &self.key
            && !is_same(tag, &mac(key, &[&self.number.to_be_bytes(), counter_bytes, body]))
        {
            return Err(DatagramError::Message);
        }
        // Only an authentic counter moves the window.
        if self.note(u64::from_be_bytes(*counter_bytes)) { Ok(body) } else { Err(DatagramError::Repeated) }
    }

    /// False if the counter was met before, or is too old to tell.
    fn note(&mut self, counter: u64) -> bool {
        // The last counter has none above it; no sender comes so far.
        let Some(above) = counter.checked_add(1) else { return false };
        if above > self.next {
            let step = above - self.next;
            self.received = if step >= WINDOW { 0 } else { self.received << step } | 1;
            self.next = above;
            return true;
        }
        let age = self.next - above;
        if age >= WINDOW || self.received >> age & 1 == 1 {
            return false;
        }
        self.received |= 1 << age;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame_seal::SealWords;

    const WORDS: SealWords = SealWords {
        magic: b"test 1\n",
        client_proves: b"client proves",
        server_proves: b"server proves",
        client_to_server: b"to server",
        server_to_client: b"to client",
        hello_bytes: 1..=6,
    };
    const DATAGRAMS: DatagramWords = DatagramWords { magic: b"TD", key: b"datagrams", number: b"number" };

    fn pair(secret: Option<&[u8]>, client: &[u8]) -> (DatagramSender, DatagramReceiver) {
        let (handshake, _) = SealHandshake::answer(&WORDS, secret, b"test 1\nA", client).unwrap();
        (DatagramSender::new(&DATAGRAMS, &handshake), DatagramReceiver::new(&DATAGRAMS, &handshake))
    }

    fn open<'a>(receiver: &mut DatagramReceiver, datagram: &'a [u8]) -> Result<&'a [u8], DatagramError> {
        let (number, rest) = datagram_link(&DATAGRAMS, datagram)?;
        assert_eq!(number, receiver.number());
        receiver.open(rest)
    }

    #[test]
    fn datagrams_come_in_any_order_and_count_once() {
        for secret in [Some(&b"0123456789abcdef"[..]), None] {
            let (mut sender, mut receiver) = pair(secret, b"C");
            let sent: Vec<Vec<u8>> = (0..400_u16).map(|at| sender.close(&at.to_be_bytes())).collect();
            for at in [3, 1, 2, 130, 7, 131, 4] {
                assert_eq!(open(&mut receiver, &sent[at]), Ok(&(at as u16).to_be_bytes()[..]), "{at}");
            }
            for at in [1, 2, 3, 4, 7, 130, 131] {
                assert_eq!(open(&mut receiver, &sent[at]), Err(DatagramError::Repeated), "{at}");
            }
            assert!(open(&mut receiver, &sent[5]).is_ok(), "the oldest within the window is {}", 132 - WINDOW);
            assert_eq!(open(&mut receiver, &sent[0]), Err(DatagramError::Repeated), "too old to tell");
            assert!(open(&mut receiver, &sent[399]).is_ok());
            assert_eq!(open(&mut receiver, &sent[131]), Err(DatagramError::Repeated), "from before a jump");
            assert!(open(&mut receiver, &sent[398]).is_ok());
        }
    }

    #[test]
    fn a_datagram_that_is_changed_cut_or_of_another_link_is_refused() {
        let secret = Some(&b"0123456789abcdef"[..]);
        let (mut sender, mut receiver) = pair(secret, b"C");
        let sent = sender.close(b"body");
        for at in 10..sent.len() {
            let mut changed = sent.clone();
            changed[at] ^= 1;
            assert_eq!(open(&mut receiver, &changed), Err(DatagramError::Message), "byte {at}");
            assert!(open(&mut receiver, &sent[..at]).is_err(), "cut at {at}");
        }
        let (mut other, _) = pair(secret, b"D");
        let (_, rest) = datagram_link(&DATAGRAMS, &sent).unwrap();
        let moved = other.close(b"body");
        let (number, foreign) = datagram_link(&DATAGRAMS, &moved).unwrap();
        assert_ne!(number, receiver.number());
        assert_eq!(receiver.open(foreign), Err(DatagramError::Message));
        assert_eq!(receiver.open(rest), Ok(&b"body"[..]), "none of them moved the window");
        assert_eq!(datagram_link(&DATAGRAMS, b"XX").err(), Some(DatagramError::Protocol));
        assert_eq!(datagram_link(&DATAGRAMS, b"TD1234567").err(), Some(DatagramError::Protocol));
    }

    #[test]
    fn the_last_counter_of_all_is_refused() {
        let (mut sender, mut receiver) = pair(None, b"C");
        sender.sent = u64::MAX - 1;
        assert!(open(&mut receiver, &sender.close(b"")).is_ok());
        let last = [&b"TD"[..], &receiver.number().to_be_bytes(), &u64::MAX.to_be_bytes()].concat();
        assert_eq!(open(&mut receiver, &last), Err(DatagramError::Repeated));
    }
}
