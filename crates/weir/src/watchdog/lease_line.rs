//! A line between two processes of one member: the newer one passes rights on, the former one tells what it obeyed.
//!
//! A socket of whole messages, so that a line may go to the next process in the middle of anything. Its end is the end of the process on the other
//! side: the kernel closes it, and nobody else has it.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use socket2::SockRef;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use tokio::net::UnixDatagram;
use weir_group::HANDOVER_BYTES_MAX;

/// Room for one largest message: a former process that stands still must find the newest rights, not old ones.
const BUFFER_BYTES: usize = HANDOVER_BYTES_MAX + 4_096;

#[derive(Debug)]
pub struct LeaseLine {
    /// Of SOCK_SEQPACKET: unlike one of datagrams it tells the end of the other side, and is read and written alike.
    socket: UnixDatagram,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineSending {
    Sent,
    /// The other side has not read what was sent before. Nothing was sent.
    Full,
    /// The other side is gone.
    Ended,
}

/// Both ends of a new line.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    for end in [&one, &other] {
        SockRef::from(end).set_send_buffer_size(BUFFER_BYTES)?;
    }
    Ok((one, other))
}

impl LeaseLine {
    /// Within a runtime.
    pub fn new(end: OwnedFd) -> io::Result<LeaseLine> {
        Ok(LeaseLine { socket: UnixDatagram::from_std(end.into())? })
    }

    /// Never waits.
    pub fn send(&self, text: &str) -> LineSending {
        match send(&self.socket, text.as_bytes(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(_) => LineSending::Sent,
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => LineSending::Full,
            Err(_) => LineSending::Ended,
        }
    }

    /// The next message. `None`: the other process has ended. Cancel safe.
    pub async fn next(&self) -> Option<String> {
        let mut bytes = vec![0; HANDOVER_BYTES_MAX];
        let count = self.socket.recv(&mut bytes).await.ok().filter(|count| *count > 0)?;
        Some(String::from_utf8_lossy(bytes.get(..count)?).into_owned())
    }

    /// This end, for the next process.
    pub fn copy(&self) -> io::Result<OwnedFd> {
        self.socket.as_fd().try_clone_to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn messages_arrive_whole_and_the_end_of_the_other_side_is_told() {
        let (one, other) = pair().unwrap();
        let (one, other) = (LeaseLine::new(one).unwrap(), LeaseLine::new(other).unwrap());
        let large = "x".repeat(HANDOVER_BYTES_MAX);
        for text in ["first", &large, "last"] {
            assert_eq!(one.send(text), LineSending::Sent, "{} bytes", text.len());
            assert_eq!(other.next().await.as_deref(), Some(text));
        }
        let next = LeaseLine::new(other.copy().unwrap()).unwrap();
        drop(other);
        assert_eq!(one.send("to the next process"), LineSending::Sent);
        assert_eq!(next.next().await.as_deref(), Some("to the next process"));
        drop(one);
        assert_eq!((next.next().await, next.send("x")), (None, LineSending::Ended));
    }

    #[tokio::test]
    async fn a_side_that_does_not_read_never_holds_up_the_other() {
        let (one, other) = pair().unwrap();
        let (one, _other) = (LeaseLine::new(one).unwrap(), LeaseLine::new(other).unwrap());
        let sent = (0..10_000).take_while(|_| one.send("rights") == LineSending::Sent).count();
        assert!((1..10_000).contains(&sent), "{sent}");
        assert_eq!(one.send("rights"), LineSending::Full);
    }
}
