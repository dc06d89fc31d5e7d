//! A connection's socket: TCP or unix, never blocking, watched by a worker's event loop.

use crate::reactor::{CLOSED, NO_TASK, READ, Reactor, Slot, TaskId, WRITE, parked};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

enum Stream {
    Tcp(mio::net::TcpStream),
    Unix(mio::net::UnixStream),
}

impl Stream {
    /// System calls are made through `rustix`, which has no libc between: in a process with threads, libc's `send` and `recv` are
    /// cancellation points and cost 3 % of a statement.
    #[inline]
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }

    fn source(&mut self) -> &mut dyn mio::event::Source {
        match self {
            Stream::Tcp(stream) => stream,
            Stream::Unix(stream) => stream,
        }
    }
}

/// An open socket and what the event loop knows of it.
pub struct Socket {
    stream: Stream,
    slot: Arc<Slot>,
}

/// What a read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got {
    Bytes(usize),
    /// Nothing is here yet.
    Nothing,
    /// The peer sends no more.
    End,
}

impl Socket {
    /// Watches an accepted TCP connection.
    pub fn accepted_tcp(reactor: &Reactor, stream: std::net::TcpStream) -> io::Result<Socket> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        socket2::SockRef::from(&stream).set_keepalive(true)?;
        Socket::watch(reactor, Stream::Tcp(mio::net::TcpStream::from_std(stream)))
    }

    /// Watches an accepted unix connection.
    pub fn accepted_unix(reactor: &Reactor, stream: std::os::unix::net::UnixStream) -> io::Result<Socket> {
        stream.set_nonblocking(true)?;
        Socket::watch(reactor, Stream::Unix(mio::net::UnixStream::from_std(stream)))
    }

    fn watch(reactor: &Reactor, mut stream: Stream) -> io::Result<Socket> {
        let slot = reactor.register(stream.source())?;
        Ok(Socket { stream, slot })
    }

    /// Connects over TCP. Cancel safe: a dropped attempt closes its socket.
    pub async fn connect_tcp(reactor: &Reactor, address: std::net::SocketAddr, deadline: Instant) -> io::Result<Socket> {
        let stream = mio::net::TcpStream::connect(address)?;
        let socket = Socket::watch(reactor, Stream::Tcp(stream))?;
        socket.slot.clear(WRITE);
        loop {
            reactor.wake_at(deadline);
            if reactor.now() >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if socket.slot.ready() & (WRITE | CLOSED) != 0
                && let Stream::Tcp(stream) = &socket.stream
            {
                if let Some(cause) = stream.take_error()? {
                    return Err(cause);
                }
                if stream.peer_addr().is_ok() {
                    stream.set_nodelay(true)?;
                    socket2::SockRef::from(stream).set_keepalive(true)?;
                    return Ok(socket);
                }
            }
            parked().await;
        }
    }

    /// Connects over a unix socket: done or failed at once.
    pub fn connect_unix(reactor: &Reactor, path: &Path) -> io::Result<Socket> {
        Socket::watch(reactor, Stream::Unix(mio::net::UnixStream::connect(path)?))
    }

    /// Reads what is here. Asks the kernel only when the event loop saw something; after a short read it asks no more.
    #[inline]
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<Got> {
        let ready = self.slot.ready();
        if ready & READ == 0 {
            return Ok(Got::Nothing);
        }
        loop {
            return match rustix::net::recv(self.stream.fd(), &mut *buffer, RecvFlags::empty()) {
                Ok((0, _)) => Ok(Got::End),
                Ok((bytes, _)) => {
                    // Edge triggered: less than asked for means drained, and the next arrival is a new event. An end of file
                    // already announced has no further event, so then reading goes on.
                    if bytes < buffer.len() && ready & CLOSED == 0 {
                        self.slot.clear(READ);
                    }
                    Ok(Got::Bytes(bytes))
                }
                Err(Errno::AGAIN) => {
                    self.slot.clear(READ);
                    Ok(Got::Nothing)
                }
                Err(Errno::INTR) => continue,
                Err(errno) => Err(errno.into()),
            };
        }
    }

    /// Writes what fits of two pieces, in one call; 0 when the socket is full.
    #[inline]
    pub fn try_write(&self, first: &[u8], second: &[u8]) -> io::Result<usize> {
        if self.slot.ready() & WRITE == 0 {
            return Ok(0);
        }
        let fd = self.stream.fd();
        loop {
            let written = match (first.is_empty(), second.is_empty()) {
                (_, true) => rustix::net::send(fd, first, SendFlags::NOSIGNAL),
                (true, _) => rustix::net::send(fd, second, SendFlags::NOSIGNAL),
                (false, false) => {
                    let pieces = [IoSlice::new(first), IoSlice::new(second)];
                    rustix::net::sendmsg(fd, &pieces, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)
                }
            };
            return match written {
                Ok(bytes) => Ok(bytes),
                Err(Errno::AGAIN) => {
                    self.slot.clear(WRITE);
                    Ok(0)
                }
                Err(Errno::INTR) => continue,
                Err(errno) => Err(errno.into()),
            };
        }
    }

    /// Names the task that is woken by this socket.
    pub fn set_task(&self, task: TaskId) {
        self.slot.set_task(task);
    }

    /// Wakes nobody: a link at rest.
    pub fn set_idle(&self) {
        self.slot.set_task(NO_TASK);
    }

    /// Something arrived or the peer is gone, as far as the event loop saw.
    pub fn is_readable(&self) -> bool {
        self.slot.ready() & READ != 0
    }

    pub fn is_closed(&self) -> bool {
        self.slot.ready() & CLOSED != 0
    }

    /// Asks the kernel whether anything arrived or the peer is gone, whatever the event loop saw so far.
    pub fn peek(&self) -> bool {
        let mut byte = [std::mem::MaybeUninit::uninit(); 1];
        let peeked = match &self.stream {
            Stream::Tcp(stream) => socket2::SockRef::from(stream).peek(&mut byte),
            Stream::Unix(stream) => socket2::SockRef::from(stream).peek(&mut byte),
        };
        !matches!(peeked, Err(cause) if cause.kind() == io::ErrorKind::WouldBlock)
    }

    /// Moves the socket to another worker's event loop. Registering anew reports what is already here, so nothing is lost.
    pub fn rehome(&mut self, from: &mio::Registry, to: &Reactor) -> io::Result<()> {
        from.deregister(self.stream.source())?;
        self.slot = to.register(self.stream.source())?;
        Ok(())
    }

    /// Waits for bytes. Cancel safe. `TimedOut` at the deadline.
    pub async fn read(&self, reactor: &Reactor, buffer: &mut [u8], deadline: Option<Instant>) -> io::Result<usize> {
        loop {
            match self.try_read(buffer)? {
                Got::Bytes(bytes) => return Ok(bytes),
                Got::End => return Err(io::ErrorKind::UnexpectedEof.into()),
                Got::Nothing => {}
            }
            if deadline.is_some_and(|at| reactor.now() >= at) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if let Some(at) = deadline {
                reactor.wake_at(at);
            }
            parked().await;
        }
    }

    /// Writes all of it. Not cancel safe: a part may be on its way.
    pub async fn write_all(&self, reactor: &Reactor, mut bytes: &[u8], deadline: Option<Instant>) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = self.try_write(bytes, &[])?;
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
