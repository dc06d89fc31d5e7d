//! A connection between Weir and an agent: bounded, authenticated frames (`weir_agent::seal`). Callers set time limits.

use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use weir_agent::seal::{
    ClientHello, FRAME_BYTES_MAX, FrameSeal, GREETING_BYTES_MAX, SealError, admit, frame, frame_bytes, greeting,
};
use weir_agent::{AgentMessageError, AgentSecret};

pub trait ByteStream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> ByteStream for S {}

#[derive(Debug, thiserror::Error)]
pub enum SealedStreamError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Seal(#[from] SealError),
    #[error("a message makes no sense: {0}")]
    Malformed(#[from] AgentMessageError),
}

impl SealedStreamError {
    pub fn is_end(&self) -> bool {
        match self {
            SealedStreamError::Io(cause) => {
                matches!(cause.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
            }
            SealedStreamError::Seal(_) | SealedStreamError::Malformed(_) => false,
        }
    }
}

/// A sealed stream, closed on drop.
pub struct SealedStream<S> {
    stream: S,
    seal: FrameSeal,
}

impl<S: ByteStream> SealedStream<S> {
    /// Weir's side of the handshake. Not cancel safe: the connection is useless then.
    pub async fn to_agent(mut stream: S, secret: &AgentSecret) -> Result<SealedStream<S>, SealedStreamError> {
        let theirs = read_frame(&mut stream, GREETING_BYTES_MAX).await?;
        let (hello, proof) = ClientHello::answer(secret, &theirs, crate::random())?;
        write_frame(&mut stream, &proof).await?;
        let proof = match read_frame(&mut stream, GREETING_BYTES_MAX).await {
            // An agent closes without an answer if the secret is wrong.
            Err(SealedStreamError::Io(cause)) if cause.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(SealError::Secret.into());
            }
            other => other?,
        };
        let seal = hello.finish(&proof)?;
        Ok(SealedStream { stream, seal })
    }

    /// The agent's side of the handshake. Not cancel safe: the connection is useless then.
    pub async fn to_weir(mut stream: S, secret: &AgentSecret) -> Result<SealedStream<S>, SealedStreamError> {
        let nonce = crate::random();
        write_frame(&mut stream, &greeting(&nonce)).await?;
        let theirs = read_frame(&mut stream, GREETING_BYTES_MAX).await?;
        let (seal, proof) = admit(secret, nonce, &theirs)?;
        write_frame(&mut stream, &proof).await?;
        Ok(SealedStream { stream, seal })
    }

    /// Not cancel safe: a part may be sent.
    pub async fn send(&mut self, body: &[u8]) -> Result<(), SealedStreamError> {
        let payload = self.seal.close(body);
        write_frame(&mut self.stream, &payload).await
    }

    /// Not cancel safe: a part may be lost.
    pub async fn next(&mut self) -> Result<Vec<u8>, SealedStreamError> {
        let payload = read_frame(&mut self.stream, FRAME_BYTES_MAX).await?;
        Ok(self.seal.open(&payload)?.to_vec())
    }
}

/// Error: the frame is longer than `limit` bytes, which is known before it is read. Not cancel safe: a part may be lost.
pub async fn read_frame<S: ByteStream>(stream: &mut S, limit: usize) -> Result<Vec<u8>, SealedStreamError> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).await?;
    let mut payload = vec![0; frame_bytes(head, limit)?];
    stream.read_exact(&mut payload).await?;
    Ok(payload)
}

/// Not cancel safe: a part may be sent.
pub async fn write_frame<S: ByteStream>(stream: &mut S, payload: &[u8]) -> Result<(), SealedStreamError> {
    stream.write_all(&frame(payload)).await?;
    stream.flush().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> AgentSecret {
        AgentSecret::read(text, None).unwrap()
    }

    #[tokio::test]
    async fn messages_go_both_ways_between_those_who_know_the_secret() {
        let (weir, agent) = tokio::io::duplex(64);
        let known = secret("0123456789abcdef");
        let (ours, theirs) = tokio::join!(SealedStream::to_agent(weir, &known), SealedStream::to_weir(agent, &known));
        let (mut ours, mut theirs) = (ours.unwrap(), theirs.unwrap());
        let long = vec![7; 8 << 10];
        let (sent, read) = tokio::join!(ours.send(&long), theirs.next());
        sent.unwrap();
        assert_eq!(read.unwrap(), long);
        let (sent, read) = tokio::join!(theirs.send(b"yes"), ours.next());
        sent.unwrap();
        assert_eq!(read.unwrap(), b"yes");
        drop(ours);
        assert!(theirs.next().await.unwrap_err().is_end());
    }

    #[tokio::test]
    async fn nobody_talks_to_one_without_the_secret() {
        let (weir, agent) = tokio::io::duplex(64);
        let (right, wrong) = (secret("0123456789abcdef"), secret("0123456789abcdeX"));
        let agent = async {
            let line = SealedStream::to_weir(agent, &right).await;
            line.err().map(|error| error.to_string())
        };
        let (ours, theirs) = tokio::join!(SealedStream::to_agent(weir, &wrong), agent);
        assert!(matches!(ours.err(), Some(SealedStreamError::Seal(SealError::Secret))));
        assert_eq!(theirs.as_deref(), Some("the other side does not know the secret"));
    }

    #[tokio::test]
    async fn a_long_frame_is_refused_before_it_is_read() {
        let (mut stranger, agent) = tokio::io::duplex(64);
        let known = secret("0123456789abcdef");
        let stranger = async {
            stranger.write_all(&[0xff; 8]).await.unwrap();
            stranger
        };
        let (_stranger, line) = tokio::join!(stranger, SealedStream::to_weir(agent, &known));
        assert!(matches!(line.err(), Some(SealedStreamError::Seal(SealError::TooLong { .. }))));
    }
}
