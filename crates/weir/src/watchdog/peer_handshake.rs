//! Handshake of a link: both sides prove that they know `wd_authkey`, and say which hosts they are.
//!
//! Frames and seals are `weir_wire::frame_seal`'s. A hello is a nonce, a mark of a key, the host that speaks, and the host that is spoken to. The
//! last frame is the server's proof, or one byte with the reason of a refusal.

use crate::runtime::agent_line::{ByteStream, SealedStreamError, read_frame, write_frame};
use crate::watchdog::peer_settings::PeerKey;
use std::io;
use std::time::Duration;
use weir_group::{HostNumber, MessageBytesError};
use weir_wire::datagram_seal::{DatagramReceiver, DatagramSender, DatagramWords};
use weir_wire::frame_seal::{FrameSeal, NONCE_BYTES, SealError, SealHandshake, SealWords, TAG_BYTES};

/// A handshake takes two round trips.
pub const HANDSHAKE_LIMIT: Duration = Duration::from_secs(2);
const HELLO_BYTES: usize = NONCE_BYTES + 3;
/// Room for claims of later programs.
const HELLO_BYTES_MAX: usize = 64;
/// Any frame of a handshake.
const GREETING_BYTES_MAX: usize = HELLO_BYTES_MAX + TAG_BYTES;

const PROTOCOL: &[u8] = b"weir peer ";
const WORDS: SealWords = SealWords {
    magic: b"weir peer 1\n",
    client_proves: b"peer client proves",
    server_proves: b"peer server proves",
    client_to_server: b"peer client to server",
    server_to_client: b"peer server to client",
    hello_bytes: HELLO_BYTES..=HELLO_BYTES_MAX,
};
pub const DATAGRAMS: DatagramWords =
    DatagramWords { magic: b"WPD1", key: b"peer datagrams to server", number: b"number of a peer link" };

/// Why there is no link, in the operator's words.
#[derive(Debug, thiserror::Error)]
pub enum PeerLinkFault {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the other side closed the link")]
    Closed,
    #[error("it does not answer within {} ms", .0.as_millis())]
    Late(Duration),
    #[error("it takes no messages for {} ms", .0.as_millis())]
    Full(Duration),
    #[error("it is no watchdog of this protocol: check wd_port")]
    Protocol,
    #[error("it speaks a newer protocol: upgrade this host")]
    NewerProtocol,
    #[error("it has another wd_authkey")]
    OtherKey,
    #[error("it has no wd_authkey, and this host has one")]
    NoKey,
    #[error("it has a wd_authkey, and this host has none")]
    NeedsKey,
    #[error("without wd_authkey only loopback addresses are used: set it on all hosts")]
    NotLoopback,
    #[error("host {0} answers there: check the hostnames, the wd_ports and the file pgpool_node_id of each host")]
    WrongHost(HostNumber),
    #[error("it took this host for host {0}: check the hostnames, the wd_ports and the file pgpool_node_id of each host")]
    TakenForOther(HostNumber),
    #[error("it is host {0} too: two hosts have one number in their file pgpool_node_id")]
    OwnNumber(HostNumber),
    #[error("it is host {0}, which is not configured here")]
    Unknown(HostNumber),
    #[error("it refused this host: {0}")]
    Refused(PeerRefusal),
    #[error("the name is not resolved: {0}")]
    Name(String),
    #[error("it sent a message of host {0}")]
    OfOther(HostNumber),
    #[error("it sent a frame that is not authentic")]
    Frame,
    #[error("it sent a frame of {0} bytes")]
    Long(usize),
    #[error("it sent {0}")]
    Message(#[from] MessageBytesError),
}

impl From<SealedStreamError> for PeerLinkFault {
    fn from(error: SealedStreamError) -> PeerLinkFault {
        let is_end = error.is_end();
        match error {
            _ if is_end => PeerLinkFault::Closed,
            SealedStreamError::Io(cause) => PeerLinkFault::Io(cause),
            SealedStreamError::Seal(SealError::Secret) => PeerLinkFault::OtherKey,
            SealedStreamError::Seal(SealError::Message) => PeerLinkFault::Frame,
            SealedStreamError::Seal(SealError::TooLong { bytes, .. }) => PeerLinkFault::Long(bytes),
            SealedStreamError::Seal(SealError::Protocol) | SealedStreamError::Malformed(_) => PeerLinkFault::Protocol,
        }
    }
}

impl From<SealError> for PeerLinkFault {
    fn from(error: SealError) -> PeerLinkFault {
        SealedStreamError::Seal(error).into()
    }
}

/// Reason that a refused client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerRefusal {
    OtherKey,
    OwnNumber,
    Unknown,
    WrongHost,
    /// Of a later program.
    Other(u8),
}

impl PeerRefusal {
    fn code(self) -> u8 {
        match self {
            PeerRefusal::OtherKey => 1,
            PeerRefusal::OwnNumber => 2,
            PeerRefusal::Unknown => 3,
            PeerRefusal::WrongHost => 4,
            PeerRefusal::Other(code) => code,
        }
    }

    fn of(code: u8) -> PeerRefusal {
        match code {
            1 => PeerRefusal::OtherKey,
            2 => PeerRefusal::OwnNumber,
            3 => PeerRefusal::Unknown,
            4 => PeerRefusal::WrongHost,
            code => PeerRefusal::Other(code),
        }
    }
}

impl std::fmt::Display for PeerRefusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PeerRefusal::OtherKey => f.write_str("it has another wd_authkey"),
            PeerRefusal::OwnNumber => f.write_str("both have one number in their file pgpool_node_id"),
            PeerRefusal::Unknown => f.write_str("this host is not configured there"),
            PeerRefusal::WrongHost => f.write_str("another host answers there: check the hostnames and wd_ports"),
            PeerRefusal::Other(code) => write!(f, "for reason {code}, which this program does not know"),
        }
    }
}

#[derive(Clone, Copy)]
struct PeerHello {
    nonce: [u8; NONCE_BYTES],
    has_key: bool,
    from: HostNumber,
    /// Of a server its own number: it does not know yet who comes.
    to: HostNumber,
}

impl PeerHello {
    fn new(key: Option<&PeerKey>, from: HostNumber, to: HostNumber) -> PeerHello {
        PeerHello { nonce: crate::random(), has_key: key.is_some(), from, to }
    }

    fn show(&self) -> Vec<u8> {
        [&self.nonce[..], &[self.has_key.into(), self.from, self.to]].concat()
    }

    /// Passes over claims of later programs.
    fn parse(bytes: &[u8]) -> Result<PeerHello, PeerLinkFault> {
        let (nonce, claims) = bytes.split_first_chunk().ok_or(PeerLinkFault::Protocol)?;
        let [has_key, from, to, ..] = *claims else { return Err(PeerLinkFault::Protocol) };
        Ok(PeerHello { nonce: *nonce, has_key: has_key != 0, from, to })
    }
}

/// Sending side of a link, after the handshake.
pub struct OutgoingSeals {
    pub frames: FrameSeal,
    pub datagrams: DatagramSender,
}

/// Receiving side.
pub struct IncomingSeals {
    pub host: HostNumber,
    pub frames: FrameSeal,
    pub datagrams: DatagramReceiver,
}

/// Client's side. Not cancel safe: the connection is useless then.
pub async fn introduce<S: ByteStream>(
    stream: &mut S,
    key: Option<&PeerKey>,
    own: HostNumber,
    expected: HostNumber,
) -> Result<OutgoingSeals, PeerLinkFault> {
    let greeting = read_frame(stream, GREETING_BYTES_MAX).await?;
    if greeting.starts_with(PROTOCOL) && !greeting.starts_with(WORDS.magic) {
        return Err(PeerLinkFault::NewerProtocol);
    }
    let server = PeerHello::parse(SealHandshake::greeted(&WORDS, &greeting)?)?;
    match (server.has_key, key) {
        (true, None) => return Err(PeerLinkFault::NeedsKey),
        (false, Some(_)) => return Err(PeerLinkFault::NoKey),
        (true, Some(_)) | (false, None) => {}
    }
    let hello = PeerHello::new(key, own, expected).show();
    let (handshake, proof) = SealHandshake::answer(&WORDS, key.map(PeerKey::bytes), &greeting, &hello)?;
    write_frame(stream, &proof).await?;
    let answer = read_frame(stream, GREETING_BYTES_MAX).await?;
    if let [code] = *answer {
        return Err(PeerLinkFault::Refused(PeerRefusal::of(code)));
    }
    handshake.finish(&answer)?;
    if server.from != expected {
        return Err(PeerLinkFault::WrongHost(server.from));
    }
    Ok(OutgoingSeals { frames: handshake.client_seal(), datagrams: DatagramSender::new(&DATAGRAMS, &handshake) })
}

/// Server's side. Not cancel safe: the connection is useless then.
pub async fn admit<S: ByteStream>(
    stream: &mut S,
    key: Option<&PeerKey>,
    own: HostNumber,
    is_known: impl Fn(HostNumber) -> bool,
) -> Result<IncomingSeals, PeerLinkFault> {
    let hello = PeerHello::new(key, own, own).show();
    write_frame(stream, &SealHandshake::greeting(&WORDS, &hello)).await?;
    let proof = read_frame(stream, GREETING_BYTES_MAX).await?;
    let (handshake, proof) = match SealHandshake::admit(&WORDS, key.map(PeerKey::bytes), &hello, &proof) {
        Ok(admitted) => admitted,
        Err(SealError::Secret) => return refuse(stream, PeerRefusal::OtherKey, PeerLinkFault::OtherKey).await,
        Err(other) => return Err(other.into()),
    };
    let client = PeerHello::parse(&handshake.client)?;
    if client.from == own {
        return refuse(stream, PeerRefusal::OwnNumber, PeerLinkFault::OwnNumber(own)).await;
    }
    if client.to != own {
        return refuse(stream, PeerRefusal::WrongHost, PeerLinkFault::TakenForOther(client.to)).await;
    }
    if !is_known(client.from) {
        return refuse(stream, PeerRefusal::Unknown, PeerLinkFault::Unknown(client.from)).await;
    }
    write_frame(stream, &proof).await?;
    let (frames, datagrams) = (handshake.server_seal(), DatagramReceiver::new(&DATAGRAMS, &handshake));
    Ok(IncomingSeals { host: client.from, frames, datagrams })
}

async fn refuse<S: ByteStream, T>(stream: &mut S, told: PeerRefusal, fault: PeerLinkFault) -> Result<T, PeerLinkFault> {
    write_frame(stream, &[told.code()]).await?;
    Err(fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn meet(keys: [Option<&str>; 2], own: [u8; 2], expected: u8) -> [String; 2] {
        let (mut client, mut server) = tokio::io::duplex(256);
        let [client_key, server_key] = keys.map(|key| key.and_then(PeerKey::new));
        let outgoing = async {
            let seals = introduce(&mut client, client_key.as_ref(), own[0], expected).await;
            drop(client);
            seals
        };
        let incoming = admit(&mut server, server_key.as_ref(), own[1], |host| host < 3);
        let (outgoing, incoming) = tokio::join!(outgoing, incoming);
        [told(outgoing.map(drop)), told(incoming.map(drop))]
    }

    fn told(outcome: Result<(), PeerLinkFault>) -> String {
        outcome.map_or_else(|fault| fault.to_string(), |()| "up".into())
    }

    #[tokio::test]
    async fn both_sides_say_why_there_is_no_link() {
        let key = Some("key");
        assert_eq!(meet([key, key], [1, 2], 2).await, ["up", "up"]);
        assert_eq!(meet([None, None], [1, 2], 2).await, ["up", "up"]);
        let other_key = "it has another wd_authkey";
        assert_eq!(meet([key, Some("other")], [1, 2], 2).await, [&format!("it refused this host: {other_key}"), other_key]);
        let closed = "the other side closed the link";
        assert_eq!(meet([key, None], [1, 2], 2).await, ["it has no wd_authkey, and this host has one", closed]);
        assert_eq!(meet([None, key], [1, 2], 2).await, ["it has a wd_authkey, and this host has none", closed]);
        let refused = |text: &str| format!("it refused this host: {text}");
        let numbers = refused("both have one number in their file pgpool_node_id");
        assert_eq!(
            meet([key, key], [2, 2], 2).await,
            [numbers, "it is host 2 too: two hosts have one number in their file pgpool_node_id".into()]
        );
        let check = "check the hostnames, the wd_ports and the file pgpool_node_id of each host";
        assert_eq!(
            meet([key, key], [1, 2], 0).await,
            [
                refused("another host answers there: check the hostnames and wd_ports"),
                format!("it took this host for host 0: {check}")
            ]
        );
        assert_eq!(
            meet([key, key], [7, 2], 2).await,
            [refused("this host is not configured there"), "it is host 7, which is not configured here".into()]
        );
    }

    #[tokio::test]
    async fn another_protocol_is_told_from_a_newer_one() {
        for (greeting, expected) in [
            (&b"weir peer 2\n and more"[..], "it speaks a newer protocol: upgrade this host"),
            (b"SSH-2.0-x", "it is no watchdog of this protocol: check wd_port"),
            (b"weir peer 1\nshort", "it is no watchdog of this protocol: check wd_port"),
        ] {
            let (mut client, mut server) = tokio::io::duplex(256);
            write_frame(&mut server, greeting).await.unwrap();
            assert_eq!(told(introduce(&mut client, None, 1, 2).await.map(drop)), expected);
        }
        let (mut client, mut server) = tokio::io::duplex(256);
        tokio::io::AsyncWriteExt::write_all(&mut client, b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        let long = admit(&mut server, None, 1, |_| true).await;
        assert_eq!(told(long.map(drop)), "it sent a frame of 1195725856 bytes");
    }
}
