//! One connection of PCP: packets in and out, within limits of time and size.

use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout, timeout_at};
use weir_wire::pcp_protocol::{PcpError, PcpPacket, PcpReply, PcpRequest, REQUEST_LENGTH_MAX, read};

/// Time for an answer to be taken.
const WRITE_LIMIT: Duration = Duration::from_secs(30);

/// A connection's bytes.
pub trait AsyncByteStream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncByteStream for S {}

/// See the module.
pub struct PcpConnection<S> {
    stream: S,
    /// Bytes that have come and were not read: less than a packet and a piece.
    inbox: Vec<u8>,
}

/// The end of a connection, or of what can be understood of it.
#[derive(Debug)]
pub enum PcpConnectionEnd {
    Gone,
    Late,
    Malformed(PcpError),
}

impl<S: AsyncByteStream> PcpConnection<S> {
    pub fn new(stream: S) -> PcpConnection<S> {
        PcpConnection { stream, inbox: Vec::new() }
    }

    /// The next request. Cancel safe: bytes that have come stay in the inbox.
    pub async fn next(&mut self, limit: Instant) -> Result<Result<PcpRequest, PcpError>, PcpConnectionEnd> {
        loop {
            match read(&self.inbox, REQUEST_LENGTH_MAX) {
                Ok(Some(PcpPacket { tag, body, used })) => {
                    let request = PcpRequest::read(tag, body);
                    self.inbox.drain(..used);
                    return Ok(request);
                }
                Ok(None) => {}
                Err(error) => return Err(PcpConnectionEnd::Malformed(error)),
            }
            match timeout_at(limit, self.more()).await {
                Ok(Some(())) => {}
                Ok(None) => return Err(PcpConnectionEnd::Gone),
                Err(_) => return Err(PcpConnectionEnd::Late),
            }
        }
    }

    /// Waits until the other side is gone. One that sends its next requests early is heard until the inbox is full, and not watched any more then.
    /// Cancel safe: bytes that have come stay in the inbox.
    pub async fn gone(&mut self) {
        while self.inbox.len() < REQUEST_LENGTH_MAX as usize {
            if self.more().await.is_none() {
                return;
            }
        }
        std::future::pending().await
    }

    /// Waits for bytes; `None`: the other side is gone. Cancel safe.
    async fn more(&mut self) -> Option<()> {
        let mut piece = [0; REQUEST_LENGTH_MAX as usize];
        let bytes = self.stream.read(&mut piece).await.ok().filter(|bytes| *bytes > 0)?;
        self.inbox.extend_from_slice(&piece[..bytes]);
        Some(())
    }

    /// Sends packets. Not cancel safe: a part may be on its way.
    pub async fn say(&mut self, replies: &[PcpReply]) -> Result<(), PcpConnectionEnd> {
        let mut out = Vec::new();
        replies.iter().for_each(|reply| reply.write(&mut out));
        match timeout(WRITE_LIMIT, self.stream.write_all(&out)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(PcpConnectionEnd::Gone),
            Err(_) => Err(PcpConnectionEnd::Late),
        }
    }

    /// Ends it so that what was said last arrives. Cancel safe.
    pub async fn close(mut self) {
        let _ = self.stream.shutdown().await;
    }
}
