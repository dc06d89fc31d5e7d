//! Bytes from a client that nobody has read. They may be a password: nothing of them stays behind.

use std::io;
use std::ops::Deref;
use weir_io::reactor::Reactor;
use weir_io::socket::{ReadOutcome, Socket};
use zeroize::Zeroize;

/// Few logins need two reads.
const READ_BYTES: usize = 512;

/// Invariant: memory behind the bytes holds nothing of earlier ones, so that wiping the bytes suffices.
#[derive(Default)]
pub(super) struct UnreadBytes(Vec<u8>);

impl Deref for UnreadBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for UnreadBytes {
    fn drop(&mut self) {
        self.0.as_mut_slice().zeroize();
    }
}

impl UnreadBytes {
    pub(super) fn read(&mut self, socket: &Socket, reactor: &Reactor) -> io::Result<ReadOutcome> {
        let held = self.0.len();
        if self.0.capacity() - held < READ_BYTES {
            // A vector that grows by itself leaves a copy behind.
            let mut larger = UnreadBytes(Vec::with_capacity(held + READ_BYTES));
            larger.0.extend_from_slice(&self.0);
            *self = larger;
        }
        self.0.resize(held + READ_BYTES, 0);
        let got = socket.try_read_secret(reactor, &mut self.0[held..]);
        let came = if let Ok(ReadOutcome::Bytes(bytes)) = got { bytes } else { 0 };
        self.0.truncate(held + came);
        got
    }

    /// Removes and wipes the first bytes.
    pub(super) fn forget(&mut self, bytes: usize) {
        let rest = self.0.len() - bytes;
        self.0.copy_within(bytes.., 0);
        self.0[rest..].zeroize();
        self.0.truncate(rest);
    }

    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::time::Instant;
    use weir_io::buffers::BufferPool;

    #[test]
    fn bytes_come_out_in_order_however_many_reads_they_take() {
        let (poll, _waker) = Reactor::parts().unwrap();
        let reactor = Reactor::new(poll, BufferPool::new(4096), false, Instant::now()).unwrap();
        let (ours, mut peer) = UnixStream::pair().unwrap();
        let socket = Socket::accepted_unix(&reactor, ours).unwrap();
        let sent: Vec<u8> = (0..3 * READ_BYTES + 7).map(|at| (at % 251) as u8 + 1).collect();
        peer.write_all(&sent).unwrap();
        let mut unread = UnreadBytes::default();
        reactor.turn().unwrap();
        while unread.len() < sent.len() {
            assert!(matches!(unread.read(&socket, &reactor), Ok(ReadOutcome::Bytes(1..))));
        }
        assert_eq!(*unread, *sent);
        unread.forget(10);
        assert_eq!(*unread, sent[10..]);
        let left = unread.len();
        unread.forget(left);
        assert!(unread.is_empty() && matches!(unread.read(&socket, &reactor), Ok(ReadOutcome::Nothing)));
        drop(peer);
        reactor.turn().unwrap();
        assert_eq!(unread.read(&socket, &reactor).unwrap(), ReadOutcome::End);
        assert_eq!(unread.into_bytes(), b"");
    }
}
