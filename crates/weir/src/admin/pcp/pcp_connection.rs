//! A PCP connection: packets in and out, within limits of time and size.

use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout, timeout_at};
use weir_wire::pcp_protocol::{PcpError, PcpPacket, PcpReply, PcpRequest, REQUEST_LENGTH_MAX, read};

const WRITE_LIMIT: Duration = Duration::from_secs(30);

pub trait AsyncByteStream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncByteStream for S {}

pub struct PcpConnection<S> {
    stream: S,
    /// Received bytes not read yet: less than a packet and a piece.
    inbox: Vec<u8>,
}

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

    /// Cancel safe: received bytes stay in the inbox.
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

    /// Waits until the client is gone. Early requests may fill the inbox, which ends the watch. Cancel safe: received bytes stay in the
    /// inbox.
    pub async fn gone(&mut self) {
        while self.inbox.len() < REQUEST_LENGTH_MAX as usize {
            if self.more().await.is_none() {
                return;
            }
        }
        std::future::pending().await
    }

    /// `None`: the client is gone. Cancel safe.
    async fn more(&mut self) -> Option<()> {
        let mut piece = [0; REQUEST_LENGTH_MAX as usize];
        let bytes = self.stream.read(&mut piece).await.ok().filter(|bytes| *bytes > 0)?;
        self.inbox.extend_from_slice(&piece[..bytes]);
        Some(())
    }

    /// Not cancel safe: a part may be sent.
    pub async fn say(&mut self, replies: &[PcpReply]) -> Result<(), PcpConnectionEnd> {
        let mut out = Vec::new();
        replies.iter().for_each(|reply| reply.write(&mut out));
        match timeout(WRITE_LIMIT, self.stream.write_all(&out)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(PcpConnectionEnd::Gone),
            Err(_) => Err(PcpConnectionEnd::Late),
        }
    }

    /// Closes so that the last reply arrives. Cancel safe.
    pub async fn close(mut self) {
        let _ = self.stream.shutdown().await;
    }
}
