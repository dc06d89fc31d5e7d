//! A connection's socket, TCP or unix, watched by a worker's event loop.

use crate::reactor::{CLOSED, EventLoopPlace, Interest, NO_TASK, READ, Reactor, SocketSlot, TaskId, WRITE, parked};
use crate::tls::{PlaintextRead, TlsSession};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use weir_ring::{ReceivedChunk, SendBuffer, SendPiece, SendProgress, SocketToken};
use zeroize::Zeroize;

const BOTH: Interest = Interest::READABLE.add(Interest::WRITABLE);

enum SocketStream {
    Tcp(mio::net::TcpStream),
    Unix(mio::net::UnixStream),
}

impl SocketStream {
    /// Through `rustix`, without libc, whose `send` and `recv` are cancellation points in a process with threads: 3 % of a
    /// statement.
    #[inline]
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            SocketStream::Tcp(stream) => stream.as_fd(),
            SocketStream::Unix(stream) => stream.as_fd(),
        }
    }

    /// Events that epoll always reports.
    ///
    /// A unix socket reports room whenever the peer reads: a useless wake-up per message. TCP reports it only after there was
    /// none.
    fn interest(&self) -> Interest {
        match self {
            SocketStream::Tcp(_) => BOTH,
            SocketStream::Unix(_) => Interest::READABLE,
        }
    }
}

impl AsFd for SocketStream {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}

/// An open socket in an event loop.
///
/// In a ring (`token`), the kernel receives by itself and sends in the loop's system call. Otherwise a task waits for readiness
/// and makes its own system calls.
pub struct Socket {
    stream: Arc<SocketStream>,
    slot: Arc<SocketSlot>,
    home: EventLoopPlace,
    tls: Option<Box<RefCell<TlsSession>>>,
    /// Bytes the kernel took directly; none follow a failure.
    written: Cell<u64>,
    has_failed: Cell<bool>,
    /// True while epoll reports room temporarily.
    awaits_room: Cell<bool>,
}

/// Detection of a dead peer. 0: the system's default.
#[derive(Debug, Clone, Default)]
pub struct TcpOptions {
    pub keepalive: bool,
    pub keepidle_ms: u64,
    pub keepintvl_ms: u64,
    pub keepcnt: u32,
    /// Time limit for the acknowledgement of sent bytes.
    pub user_timeout_ms: u64,
}

pub fn set_tcp(socket: &socket2::Socket, tcp: &TcpOptions) -> io::Result<()> {
    if tcp.user_timeout_ms > 0 {
        socket.set_tcp_user_timeout(Some(Duration::from_millis(tcp.user_timeout_ms)))?;
    }
    if !tcp.keepalive {
        return Ok(());
    }
    socket.set_keepalive(true)?;
    let mut keepalive = socket2::TcpKeepalive::new();
    if tcp.keepidle_ms > 0 {
        keepalive = keepalive.with_time(Duration::from_millis(tcp.keepidle_ms));
    }
    if tcp.keepintvl_ms > 0 {
        keepalive = keepalive.with_interval(Duration::from_millis(tcp.keepintvl_ms));
    }
    if tcp.keepcnt > 0 {
        keepalive = keepalive.with_retries(tcp.keepcnt);
    }
    socket.set_tcp_keepalive(&keepalive)
}

/// Breaks a connection from any thread, without keeping it open.
#[derive(Clone)]
pub struct StreamBreaker(Weak<SocketStream>);

impl StreamBreaker {
    /// Shuts the connection down for both sides, which wakes its task. No effect if closed.
    #[inline]
    pub fn shut(&self) {
        if let Some(stream) = self.0.upgrade() {
            // Fails only if the peer was faster.
            let _ = rustix::net::shutdown(stream.fd(), rustix::net::Shutdown::Both);
        }
    }
}

impl std::fmt::Debug for StreamBreaker {
    #[inline]
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Breaker")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    Bytes(usize),
    Nothing,
    End,
}

/// Limits reads before a close, against endless senders.
const UNREAD_READS_MAX: usize = 64;

/// Non-blocking, whatever the socket's mode.
const RECEIVE: RecvFlags = RecvFlags::DONTWAIT;
const SEND: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);

impl Socket {
    #[inline]
    pub fn accepted_tcp(reactor: &Reactor, stream: std::net::TcpStream) -> io::Result<Socket> {
        let socket = Socket::adopt(reactor, SocketStream::Tcp(mio::net::TcpStream::from_std(stream)))?;
        if socket.token().is_none() {
            // Listening sockets defer, so the first bytes are mostly here: read without a round of epoll.
            socket.slot.raise(READ);
        }
        Ok(socket)
    }

    #[inline]
    pub fn accepted_unix(reactor: &Reactor, stream: std::os::unix::net::UnixStream) -> io::Result<Socket> {
        Socket::adopt(reactor, SocketStream::Unix(mio::net::UnixStream::from_std(stream)))
    }

    /// Stays in blocking mode like accepted sockets, as the ring needs; Weir's own calls are non-blocking by flags.
    #[inline]
    fn adopt(reactor: &Reactor, stream: SocketStream) -> io::Result<Socket> {
        let interest = stream.interest();
        let stream = Arc::new(stream);
        let (slot, home) = reactor.receive(stream.clone(), interest)?;
        Ok(Socket::at(stream, slot, home))
    }

    fn at(stream: Arc<SocketStream>, slot: Arc<SocketSlot>, home: EventLoopPlace) -> Socket {
        Socket {
            stream,
            slot,
            home,
            tls: None,
            written: Cell::new(0),
            has_failed: Cell::new(false),
            awaits_room: Cell::new(false),
        }
    }

    #[inline]
    pub fn peer_uid(&self) -> Option<u32> {
        match &*self.stream {
            SocketStream::Tcp(_) => None,
            SocketStream::Unix(stream) => rustix::net::sockopt::socket_peercred(stream).ok().map(|peer| peer.uid.as_raw()),
        }
    }

    #[inline]
    pub fn local_ip(&self) -> Option<std::net::IpAddr> {
        match &*self.stream {
            SocketStream::Tcp(stream) => stream.local_addr().ok().map(|address| address.ip()),
            SocketStream::Unix(_) => None,
        }
    }

    /// Cancel safe: a dropped attempt closes its socket.
    pub async fn connect_tcp(
        reactor: &Reactor,
        address: std::net::SocketAddr,
        tcp: &TcpOptions,
        deadline: Instant,
    ) -> io::Result<Socket> {
        let mut stream = mio::net::TcpStream::connect(address)?;
        let (slot, home) = reactor.register(&mut stream, BOTH)?;
        slot.clear(WRITE);
        loop {
            reactor.wake_at(deadline);
            if reactor.now() >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if slot.ready() & (WRITE | CLOSED) != 0 {
                if let Some(cause) = stream.take_error()? {
                    return Err(cause);
                }
                if stream.peer_addr().is_ok() {
                    break;
                }
            }
            parked().await;
        }
        stream.set_nodelay(true)?;
        set_tcp(&socket2::SockRef::from(&stream), tcp)?;
        if reactor.has_ring() {
            reactor.registry().deregister(&mut stream)?;
            rustix::io::ioctl_fionbio(&stream, false)?;
            return Socket::adopt(reactor, SocketStream::Tcp(stream));
        }
        Ok(Socket::at(Arc::new(SocketStream::Tcp(stream)), slot, home))
    }

    #[inline]
    pub fn connect_unix(reactor: &Reactor, path: &Path) -> io::Result<Socket> {
        let stream = mio::net::UnixStream::connect(path)?;
        rustix::io::ioctl_fionbio(&stream, false)?;
        Socket::adopt(reactor, SocketStream::Unix(stream))
    }

    #[inline]
    fn token(&self) -> Option<SocketToken> {
        match self.home {
            EventLoopPlace::Ring(token) => Some(token),
            EventLoopPlace::Epoll(_) | EventLoopPlace::Nowhere => None,
        }
    }

    /// True if a ring moves the lanes' bytes. Not with TLS, where the ring would move ciphertext.
    #[inline]
    pub fn is_ringed(&self) -> bool {
        self.token().is_some() && self.tls.is_none()
    }

    #[inline]
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns received bytes: an empty chunk is the end.
    #[inline]
    pub fn take(&self, reactor: &Reactor) -> io::Result<Option<ReceivedChunk>> {
        match self.token() {
            Some(token) => reactor.take(token, &self.slot),
            None => Ok(None),
        }
    }

    #[inline]
    pub fn put_back(&self, reactor: &Reactor, chunk: ReceivedChunk) {
        match self.token() {
            Some(token) if chunk.start < chunk.end => reactor.put_back(token, &self.slot, chunk),
            _ => reactor.buffers.put_bulk(chunk.buffer),
        }
    }

    /// True if the ring accepts bytes; else the task is woken when it does.
    #[inline]
    pub fn can_send(&self, reactor: &Reactor) -> io::Result<bool> {
        self.token().map_or(Ok(false), |token| reactor.with_ring(Ok(false), |ring| ring.can_send(token)))
    }

    /// Sends in the loop's next turn. Call after `can_send`.
    #[inline]
    pub fn send(&self, reactor: &Reactor, piece: SendPiece) {
        if let Some(token) = self.token() {
            reactor.with_ring((), |ring| ring.send(token, piece));
        }
    }

    /// Returns the wire bytes handed over. `None`: unknown, TLS keeps some.
    pub fn given(&self, reactor: &Reactor) -> Option<u64> {
        (!self.keeps_ciphertext()).then(|| self.written.get() + self.flow(reactor).given)
    }

    /// Returns how many of the given bytes the kernel took, once final. `None`: it may take more.
    pub fn taken(&self, reactor: &Reactor) -> Option<u64> {
        let flow = self.flow(reactor);
        let has_failed = self.has_failed.get() || flow.has_failed;
        let is_over = !flow.is_open && (has_failed || !self.keeps_ciphertext());
        is_over.then(|| self.written.get() + flow.taken)
    }

    fn flow(&self, reactor: &Reactor) -> SendProgress {
        self.token()
            .map_or_else(SendProgress::default, |token| reactor.with_ring(SendProgress::default(), |ring| ring.flow(token)))
    }

    fn keeps_ciphertext(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.borrow().wants_write())
    }

    /// True if all given to `send` is in the kernel's buffers; else the task is woken then.
    #[inline]
    pub fn is_sent(&self, reactor: &Reactor) -> bool {
        let Some(token) = self.token() else { return true };
        reactor.with_ring(true, |ring| {
            let sent = ring.is_sent(token);
            if !sent {
                ring.tell_when_sent(token);
            }
            sent
        })
    }

    /// Asks the kernel only after an event, until a short read.
    #[inline]
    pub fn try_read(&self, reactor: &Reactor, buffer: &mut [u8]) -> io::Result<ReadOutcome> {
        match &self.tls {
            None => self.receive(reactor, buffer),
            Some(tls) => self.decrypt(&mut tls.borrow_mut(), reactor, buffer),
        }
    }

    /// Reads a possible password and wipes it from the ring's buffer, which other sockets get next.
    pub fn try_read_secret(&self, reactor: &Reactor, buffer: &mut [u8]) -> io::Result<ReadOutcome> {
        if !self.is_ringed() {
            return self.try_read(reactor, buffer);
        }
        let Some(mut chunk) = self.take(reactor)? else { return Ok(ReadOutcome::Nothing) };
        let taken = buffer.len().min(chunk.end - chunk.start);
        if taken == 0 {
            return Ok(ReadOutcome::End);
        }
        let secret = &mut chunk.buffer[chunk.start..chunk.start + taken];
        buffer[..taken].copy_from_slice(secret);
        secret.zeroize();
        chunk.start += taken;
        self.put_back(reactor, chunk);
        Ok(ReadOutcome::Bytes(taken))
    }

    fn receive(&self, reactor: &Reactor, buffer: &mut [u8]) -> io::Result<ReadOutcome> {
        let ready = self.slot.ready();
        if ready & READ == 0 {
            return Ok(ReadOutcome::Nothing);
        }
        if self.token().is_some() {
            let Some(mut chunk) = self.take(reactor)? else { return Ok(ReadOutcome::Nothing) };
            let taken = buffer.len().min(chunk.end - chunk.start);
            if taken == 0 {
                return Ok(ReadOutcome::End);
            }
            buffer[..taken].copy_from_slice(&chunk.buffer[chunk.start..chunk.start + taken]);
            chunk.start += taken;
            self.put_back(reactor, chunk);
            return Ok(ReadOutcome::Bytes(taken));
        }
        loop {
            return match rustix::net::recv(self.stream.fd(), &mut *buffer, RECEIVE) {
                Ok((0, _)) => Ok(ReadOutcome::End),
                Ok((bytes, _)) => {
                    reactor.note_read();
                    // Edge triggered: a short read means drained. A reported end of file has no further event, so reads go on.
                    if bytes < buffer.len() && ready & CLOSED == 0 {
                        self.slot.clear(READ);
                    }
                    Ok(ReadOutcome::Bytes(bytes))
                }
                Err(Errno::AGAIN) => {
                    self.slot.clear(READ);
                    Ok(ReadOutcome::Nothing)
                }
                Err(Errno::INTR) => continue,
                Err(errno) => Err(errno.into()),
            };
        }
    }

    /// Writes directly what fits; 0 if the socket is full or the ring still sends.
    #[inline]
    pub fn try_write(&self, reactor: &Reactor, first: &[u8], second: &[u8]) -> io::Result<usize> {
        match &self.tls {
            None => self.transmit(reactor, first, second),
            Some(tls) => self.encrypt(&mut tls.borrow_mut(), reactor, first, second),
        }
    }

    fn transmit(&self, reactor: &Reactor, first: &[u8], second: &[u8]) -> io::Result<usize> {
        if self.slot.ready() & WRITE == 0 || !self.is_sent(reactor) {
            return Ok(0);
        }
        let fd = self.stream.fd();
        loop {
            let written = match (first.is_empty(), second.is_empty()) {
                (_, true) => rustix::net::send(fd, first, SEND),
                (true, _) => rustix::net::send(fd, second, SEND),
                (false, false) => {
                    let pieces = [IoSlice::new(first), IoSlice::new(second)];
                    rustix::net::sendmsg(fd, &pieces, &mut SendAncillaryBuffer::default(), SEND)
                }
            };
            return match written {
                Ok(bytes) => {
                    self.written.set(self.written.get() + bytes as u64);
                    let is_full = bytes < first.len() + second.len();
                    if is_full != self.awaits_room.get() {
                        self.await_room(reactor, is_full)?;
                    }
                    Ok(bytes)
                }
                Err(Errno::AGAIN) => {
                    self.slot.clear(WRITE);
                    self.await_room(reactor, true)?;
                    if let Some(token) = self.token() {
                        reactor.with_ring((), |ring| ring.poll_writable(token));
                    }
                    Ok(0)
                }
                Err(Errno::INTR) => continue,
                Err(errno) => {
                    self.has_failed.set(true);
                    Err(errno.into())
                }
            };
        }
    }

    #[cold]
    fn await_room(&self, reactor: &Reactor, awaits: bool) -> io::Result<()> {
        let always = self.stream.interest();
        let EventLoopPlace::Epoll(place) = self.home else { return Ok(()) };
        if always == BOTH {
            return Ok(());
        }
        self.awaits_room.set(awaits);
        reactor.watch_for(&self.stream.fd(), place, if awaits { BOTH } else { always })
    }

    #[inline]
    pub fn set_task(&self, task: TaskId) {
        self.slot.set_task(task);
    }

    /// Wakes no task: a connection at rest.
    #[inline]
    pub fn set_idle(&self) {
        self.slot.set_task(NO_TASK);
    }

    #[inline]
    pub fn is_readable(&self) -> bool {
        self.slot.ready() & READ != 0
    }

    #[inline]
    pub fn is_closed(&self) -> bool {
        self.slot.ready() & CLOSED != 0
    }

    /// True if the peer cannot receive: reset, or a closed unix socket. A TCP peer that ended its sending may listen, so Weir
    /// answers, as PostgreSQL does.
    #[inline]
    pub fn is_hung_up(&self) -> bool {
        self.is_closed() && self.is_gone()
    }

    /// True if the peer is gone, also where no reader made the event loop notice.
    #[inline]
    pub fn is_gone(&self) -> bool {
        let mut polled = [PollFd::from_borrowed_fd(self.stream.fd(), PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let hung_up = PollFlags::HUP | PollFlags::ERR;
        rustix::event::poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().intersects(hung_up)
    }

    /// Asks the kernel for bytes or the end, whatever the event loop saw.
    #[inline]
    pub fn peek(&self) -> bool {
        let mut byte = [0u8; 1];
        !matches!(rustix::net::recv(self.stream.fd(), &mut byte, RECEIVE | RecvFlags::PEEK), Err(Errno::AGAIN))
    }

    #[inline]
    pub fn ticket(&self) -> SocketRelease {
        SocketRelease { stream: self.stream.clone(), slot: self.slot.clone(), token: self.token() }
    }

    #[inline]
    pub fn breaker(&self) -> StreamBreaker {
        StreamBreaker(Arc::downgrade(&self.stream))
    }

    /// The socket was released: its place in the ring may be another's by now.
    #[inline]
    pub fn leave(&mut self) {
        self.home = EventLoopPlace::Nowhere;
    }

    /// Requires `leave`. Earlier arrivals are reported in this event loop.
    #[inline]
    pub fn join(&mut self, reactor: &Reactor) -> io::Result<()> {
        self.awaits_room.set(false);
        (self.slot, self.home) = reactor.receive(self.stream.clone(), self.stream.interest())?;
        Ok(())
    }

    /// Closes at once. A drop delays the close in a ring to its next sweep and sends no TLS alert.
    #[inline]
    pub fn close(mut self, reactor: &Reactor) {
        self.say_close(reactor);
        if let EventLoopPlace::Ring(token) = std::mem::replace(&mut self.home, EventLoopPlace::Nowhere) {
            reactor.close(token);
        }
    }

    /// Sends a last message and closes. Reads first: a close with unread bytes is a reset, which may lose the message. Bytes that
    /// arrive after the last read cause one, too, but the peer sees the end first.
    pub fn part(mut self, reactor: &Reactor, words: &[u8]) {
        let _ = self.try_write(reactor, words, &[]);
        if self.tls.is_none() && self.is_sent(reactor) {
            let _ = rustix::net::shutdown(self.stream.fd(), rustix::net::Shutdown::Write);
        }
        let mut unread = [0; 4096];
        for _ in 0..UNREAD_READS_MAX {
            match self.try_read(reactor, &mut unread) {
                Ok(ReadOutcome::Bytes(_)) => {}
                Ok(ReadOutcome::Nothing | ReadOutcome::End) | Err(_) => break,
            }
        }
        self.say_close(reactor);
        match std::mem::replace(&mut self.home, EventLoopPlace::Nowhere) {
            EventLoopPlace::Ring(token) => reactor.end(token),
            home => {
                // An error means that the connection is over.
                let _ = rustix::net::shutdown(self.stream.fd(), rustix::net::Shutdown::Write);
                self.home = home;
            }
        }
    }

    /// Sends the alert that closes a connection of TLS.
    fn say_close(&self, reactor: &Reactor) {
        if let Some(tls) = &self.tls {
            let mut tls = tls.borrow_mut();
            tls.close();
            let _ = self.send_out(&mut tls, reactor);
        }
    }

    /// Cancel safe. `TimedOut` at the deadline.
    pub async fn readable(&self, reactor: &Reactor, deadline: Option<Instant>) -> io::Result<()> {
        while !self.is_readable() {
            wait(reactor, deadline).await?;
        }
        Ok(())
    }

    /// Cancel safe. `TimedOut` at the deadline.
    pub async fn read(&self, reactor: &Reactor, buffer: &mut [u8], deadline: Option<Instant>) -> io::Result<usize> {
        loop {
            self.readable(reactor, deadline).await?;
            match self.try_read(reactor, buffer)? {
                ReadOutcome::Bytes(bytes) => return Ok(bytes),
                ReadOutcome::End => return Err(io::ErrorKind::UnexpectedEof.into()),
                ReadOutcome::Nothing => {}
            }
        }
    }

    /// Not cancel safe: a part may be sent.
    pub async fn write_all(&self, reactor: &Reactor, bytes: &[u8], deadline: Option<Instant>) -> io::Result<()> {
        self.write_on(reactor, bytes, deadline).await?;
        // The ring has yet to send the ciphertext.
        while self.tls.is_some() && !self.is_sent(reactor) {
            wait(reactor, deadline).await?;
        }
        Ok(())
    }

    async fn write_on(&self, reactor: &Reactor, mut bytes: &[u8], deadline: Option<Instant>) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = self.try_write(reactor, bytes, &[])?;
            bytes = &bytes[written..];
            if bytes.is_empty() {
                break;
            }
            if deadline.is_some_and(|at| reactor.now() >= at) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if written == 0 {
                if let Some(at) = deadline {
                    reactor.wake_at(at);
                }
                parked().await;
            }
        }
        Ok(())
    }
}

impl Socket {
    /// Not cancel safe. `TimedOut` at the deadline; other errors: the peer's fault, reported to it.
    pub async fn begin_tls(
        &mut self,
        reactor: &Reactor,
        tls: TlsSession,
        early: &[u8],
        deadline: Option<Instant>,
    ) -> io::Result<()> {
        let (mut tls, mut early) = (tls, early);
        let outcome = loop {
            match self.shake_hands(&mut tls, reactor, &mut early) {
                Ok(true) => break Ok(()),
                Ok(false) => {}
                Err(cause) => break Err(cause),
            }
            if let Err(cause) = wait(reactor, deadline).await {
                break Err(cause);
            }
        };
        // Bytes after the handshake are decrypted: no event reports them.
        self.slot.raise(READ);
        self.tls = Some(Box::new(RefCell::new(tls)));
        outcome
    }

    /// Continues a handshake. True at its end.
    fn shake_hands(&self, tls: &mut TlsSession, reactor: &Reactor, early: &mut &[u8]) -> io::Result<bool> {
        loop {
            let is_sent = self.send_out(tls, reactor)?;
            if !tls.is_handshaking() && early.is_empty() {
                return Ok(is_sent);
            }
            let taken =
                if early.is_empty() { tls.take_in(&mut CiphertextSocket { socket: self, reactor }) } else { tls.take_in(early) };
            match taken {
                Ok(true) => {}
                Ok(false) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(cause) => {
                    // Sends the alert.
                    let _ = self.send_out(tls, reactor);
                    return Err(cause);
                }
            }
        }
    }

    #[inline]
    pub fn look_at_tls<T>(&self, look: impl FnOnce(&TlsSession) -> T) -> Option<T> {
        self.tls.as_ref().map(|tls| look(&tls.borrow()))
    }

    fn decrypt(&self, tls: &mut TlsSession, reactor: &Reactor, buffer: &mut [u8]) -> io::Result<ReadOutcome> {
        if self.slot.ready() & READ == 0 {
            return Ok(ReadOutcome::Nothing);
        }
        let read = tls.read(&mut CiphertextSocket { socket: self, reactor }, buffer);
        if tls.wants_write() {
            // An alert or key update; unsent, it precedes the next bytes.
            let _ = self.send_out(tls, reactor);
        }
        Ok(match read? {
            PlaintextRead::Bytes { bytes, more } => {
                if more {
                    self.slot.raise(READ);
                }
                ReadOutcome::Bytes(bytes)
            }
            PlaintextRead::Nothing => ReadOutcome::Nothing,
            PlaintextRead::End => {
                self.slot.raise(READ);
                ReadOutcome::End
            }
        })
    }

    /// Takes plaintext only with room for ciphertext: bounds memory if the peer does not read.
    #[inline]
    fn encrypt(&self, tls: &mut TlsSession, reactor: &Reactor, first: &[u8], second: &[u8]) -> io::Result<usize> {
        if self.token().is_none() {
            let written = tls.write_through(&mut CiphertextSocket { socket: self, reactor }, first, second);
            return written.or_else(|cause| if cause.kind() == io::ErrorKind::WouldBlock { Ok(0) } else { Err(cause) });
        }
        if !self.send_out(tls, reactor)? || !self.can_send(reactor)? {
            return Ok(0);
        }
        let taken = tls.encrypt(first, second)?;
        self.send_out(tls, reactor)?;
        Ok(taken)
    }

    /// False if ciphertext is left; the task is woken when it can leave.
    fn send_out(&self, tls: &mut TlsSession, reactor: &Reactor) -> io::Result<bool> {
        if !tls.wants_write() {
            return Ok(true);
        }
        if self.token().is_none() {
            return match tls.send_out(&mut CiphertextSocket { socket: self, reactor }) {
                Ok(()) => Ok(true),
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => Ok(false),
                Err(cause) => Err(cause),
            };
        }
        if !self.can_send(reactor)? {
            return Ok(false);
        }
        let mut out = reactor.buffers.take_extra();
        tls.move_out(&mut out)?;
        self.send(reactor, SendPiece { start: 0, end: out.len(), bytes: SendBuffer::Vector(out) });
        Ok(true)
    }
}

/// The wire side for TLS: ciphertext, or `WouldBlock`.
struct CiphertextSocket<'a> {
    socket: &'a Socket,
    reactor: &'a Reactor,
}

impl Read for CiphertextSocket<'_> {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.socket.receive(self.reactor, buffer)? {
            ReadOutcome::Bytes(bytes) => Ok(bytes),
            ReadOutcome::Nothing => Err(io::ErrorKind::WouldBlock.into()),
            ReadOutcome::End => Ok(0),
        }
    }
}

impl Write for CiphertextSocket<'_> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.socket.transmit(self.reactor, bytes, &[])? {
            0 if !bytes.is_empty() => Err(io::ErrorKind::WouldBlock.into()),
            written => Ok(written),
        }
    }

    #[inline]
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits to be woken. `TimedOut` at the deadline.
async fn wait(reactor: &Reactor, deadline: Option<Instant>) -> io::Result<()> {
    if let Some(at) = deadline {
        if reactor.now() >= at {
            return Err(io::ErrorKind::TimedOut.into());
        }
        reactor.wake_at(at);
    }
    parked().await;
    Ok(())
}

/// Used on the event loop's thread while another thread owns the socket and waits.
pub struct SocketRelease {
    stream: Arc<SocketStream>,
    slot: Arc<SocketSlot>,
    token: Option<SocketToken>,
}

impl SocketRelease {
    #[inline]
    pub fn watch(&self) -> Arc<SocketSlot> {
        self.slot.clone()
    }

    /// Releases the socket; then `SocketSlot::is_released` holds. Not cancel safe.
    pub async fn release(self, reactor: &Reactor) {
        self.slot.set_task(reactor.current_task());
        match self.token {
            Some(token) => reactor.release(token),
            None => reactor.forget(&self.stream.fd(), &self.slot),
        }
        while !self.slot.is_released() {
            parked().await;
        }
    }
}

impl Drop for Socket {
    /// Shuts down at once: the ring still has the socket open.
    #[inline]
    fn drop(&mut self) {
        if self.token().is_some() {
            let _ = rustix::net::shutdown(self.stream.fd(), rustix::net::Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use socket2::{Domain, Socket, Type};

    #[test]
    fn a_connection_to_a_server_has_what_is_configured_and_else_what_the_system_has() {
        let socket = || Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let (system, plain, tuned) = (socket(), socket(), socket());
        set_tcp(&plain, &TcpOptions { keepalive: true, ..TcpOptions::default() }).unwrap();
        assert!(plain.keepalive().unwrap());
        assert_eq!(plain.tcp_keepalive_time().unwrap(), system.tcp_keepalive_time().unwrap());
        assert_eq!(plain.tcp_user_timeout().unwrap(), None);
        let tcp = TcpOptions { keepalive: true, keepidle_ms: 7_000, keepintvl_ms: 2_000, keepcnt: 3, user_timeout_ms: 1_500 };
        set_tcp(&tuned, &tcp).unwrap();
        assert_eq!(tuned.tcp_keepalive_time().unwrap(), Duration::from_secs(7));
        assert_eq!(tuned.tcp_keepalive_interval().unwrap(), Duration::from_secs(2));
        assert_eq!(tuned.tcp_keepalive_retries().unwrap(), 3);
        assert_eq!(tuned.tcp_user_timeout().unwrap(), Some(Duration::from_millis(1_500)));
        let off = socket();
        set_tcp(&off, &TcpOptions::default()).unwrap();
        assert!(!off.keepalive().unwrap());
    }
}
