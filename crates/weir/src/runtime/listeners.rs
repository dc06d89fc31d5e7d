//! Listening sockets.

use crate::log::Level;
use crate::runtime::inherit::InheritedSockets;
use crate::runtime::places::{self, ListenPort, group_id, socket_path};
use crate::runtime::shared::SharedState;
use anyhow::{Context, anyhow};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use socket2::{Domain, Protocol, SockAddr, Type};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_io::reactor::{READ, Reactor, SocketSlot};
use weir_ring::SocketToken;

/// Seconds after which a silent client is accepted, and falls under `authentication_timeout`.
const SILENCE_S: u32 = 1;

/// Longest wait for an address in use: the kernel closes the io_uring sockets of a killed process some milliseconds after its
/// end.
const IN_USE_LIMIT: Duration = Duration::from_secs(2);
const IN_USE_LOOK: Duration = Duration::from_millis(5);

pub enum ListeningSocket {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener, PathBuf),
}

/// Unix sockets made by a start that may still fail: removed on drop.
#[derive(Debug, Default)]
pub struct CreatedUnixSockets(Vec<PathBuf>);

impl CreatedUnixSockets {
    pub fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for CreatedUnixSockets {
    fn drop(&mut self) {
        self.0.iter().for_each(|path| drop(std::fs::remove_file(path)));
    }
}

/// Opens a port on all its addresses, or takes inherited sockets. Errors name the parameter to change.
pub fn open_all(
    port: ListenPort<'_>,
    backlog: i32,
    share: PortSharing,
    inherited: &mut InheritedSockets,
) -> anyhow::Result<Vec<std::net::TcpListener>> {
    let mut listeners = inherited.take_port(port.number);
    if !listeners.is_empty() {
        for listener in &listeners {
            // Accepted sockets inherit these.
            let socket = socket2::SockRef::from(listener);
            socket.set_tcp_nodelay(true)?;
            socket.set_keepalive(true)?;
        }
        return Ok(listeners);
    }
    let resolved = places::resolve(port.names, port.number);
    let resolved = resolved.map_err(|(name, cause)| anyhow!("{}: cannot resolve \"{name}\": {cause}", port.parameter))?;
    for address in resolved.kept {
        let open = inherited.take_tcp(address).map_or_else(|| once_free(|| open_tcp(address, backlog, share)), Ok);
        let told = |cause: io::Error| {
            let text = format!("{}: cannot listen on {address}", port.to_blame(&cause));
            anyhow::Error::new(cause).context(text)
        };
        listeners.push(open.map_err(told)?);
    }
    Ok(listeners)
}

fn once_free<T>(open: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let until = Instant::now() + IN_USE_LIMIT;
    loop {
        match open() {
            Err(cause) if cause.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                std::thread::sleep(IN_USE_LOOK);
            }
            outcome => return outcome,
        }
    }
}

/// Use of the port by other processes (`reuse_port`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortSharing {
    Nobody,
    WithOthers,
}

fn open_tcp(address: SocketAddr, backlog: i32, share: PortSharing) -> io::Result<std::net::TcpListener> {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if share == PortSharing::WithOthers {
        rustix::net::sockopt::set_socket_reuseport(&socket, true)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    // Accepted sockets inherit these.
    socket.set_tcp_nodelay(true)?;
    socket.set_keepalive(true)?;
    // A client speaks first. Without support it is accepted earlier.
    let _ = weir_ring::defer_accept(&socket, SILENCE_S);
    socket.listen(backlog)?;
    Ok(socket.into())
}

#[derive(Clone, Copy)]
pub struct SocketRights<'a> {
    pub(crate) mode: u32,
    /// Empty: that of the process.
    pub(crate) group: &'a str,
}

pub fn open_socket(
    folder: &Path,
    port: u16,
    backlog: i32,
    rights: SocketRights<'_>,
    inherited: &mut InheritedSockets,
    made: &mut CreatedUnixSockets,
) -> anyhow::Result<ListeningSocket> {
    let path = socket_path(folder, port);
    let door = match inherited.take_unix(&path) {
        Some(socket) => Ok(ListeningSocket::Unix(socket, path.clone())),
        None => open_unix(&path, backlog, rights, made),
    };
    door.with_context(|| format!("cannot listen on {}", path.display()))
}

fn open_unix(
    path: &Path,
    backlog: i32,
    rights: SocketRights<'_>,
    made: &mut CreatedUnixSockets,
) -> anyhow::Result<ListeningSocket> {
    if path.exists() {
        let answers = || match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there already")),
            Err(_) => Ok(()),
        };
        once_free(answers)?;
        // Left by a killed process.
        std::fs::remove_file(path)?;
    }
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    made.0.push(path.to_path_buf());
    socket.listen(backlog)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(rights.mode))?;
    if !rights.group.is_empty() {
        let gid = group_id(rights.group).context("unix_socket_group")?;
        std::os::unix::fs::chown(path, None, Some(gid))?;
    }
    Ok(ListeningSocket::Unix(socket.into(), path.to_path_buf()))
}

impl AsFd for ListeningSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            ListeningSocket::Tcp(listener) => listener.as_fd(),
            ListeningSocket::Unix(listener, _) => listener.as_fd(),
        }
    }
}

impl ListeningSocket {
    pub fn path(&self) -> Option<PathBuf> {
        match self {
            ListeningSocket::Tcp(_) => None,
            ListeningSocket::Unix(_, path) => Some(path.clone()),
        }
    }
}

pub enum AcceptedClient {
    Tcp(std::net::TcpStream, SocketAddr),
    Unix(std::os::unix::net::UnixStream),
}

pub struct WatchedListener {
    door: Arc<RawListener>,
    slot: Arc<SocketSlot>,
    token: Option<SocketToken>,
}

enum RawListener {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

impl AsFd for RawListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            RawListener::Tcp(listener) => listener.as_fd(),
            RawListener::Unix(listener) => listener.as_fd(),
        }
    }
}

impl WatchedListener {
    pub fn new(reactor: &Reactor, door: ListeningSocket) -> io::Result<WatchedListener> {
        let door = Arc::new(match door {
            ListeningSocket::Tcp(listener) => RawListener::Tcp(listener),
            ListeningSocket::Unix(listener, _) => RawListener::Unix(listener),
        });
        let (slot, token) = reactor.listen(door.clone())?;
        Ok(WatchedListener { door, slot, token })
    }

    pub fn accept(&self, reactor: &Reactor) -> io::Result<Option<AcceptedClient>> {
        if self.slot.ready() & READ == 0 {
            return Ok(None);
        }
        let came = match self.token {
            Some(token) => reactor.accepted(token, &self.slot)?,
            None => match rustix::net::accept_with(self.door.as_fd(), SocketFlags::CLOEXEC) {
                Ok(came) => Some(came),
                Err(Errno::AGAIN) => {
                    self.slot.clear(READ);
                    None
                }
                Err(errno) => return Err(errno.into()),
            },
        };
        let Some(came) = came else { return Ok(None) };
        Ok(Some(match &*self.door {
            RawListener::Tcp(_) => {
                let stream = std::net::TcpStream::from(came);
                let peer = stream.peer_addr().map_err(|_| io::ErrorKind::ConnectionAborted)?;
                AcceptedClient::Tcp(stream, peer)
            }
            RawListener::Unix(_) => AcceptedClient::Unix(came.into()),
        }))
    }
}

impl WatchedListener {
    /// Looks again without a new event, after a failure.
    pub fn retry(&self, reactor: &Reactor) {
        reactor.retry(&self.slot);
    }
}

impl WatchedListener {
    /// Stops accepting. `accept` still returns clients that came before.
    pub fn shut(&self, reactor: &Reactor) {
        if let Some(token) = self.token {
            reactor.with_ring((), |ring| ring.shut(token));
        }
    }

    pub fn is_shut(&self, reactor: &Reactor) -> bool {
        self.token.is_none_or(|token| reactor.with_ring(true, |ring| ring.is_shut(token)))
    }
}

/// Why accepting fails, logged at its beginning and end.
#[derive(Debug, Default)]
pub struct AcceptFailure(Option<io::ErrorKind>);

impl AcceptFailure {
    pub fn note(&mut self, shared: &SharedState, whom: &str, cause: &io::Error) {
        if self.0.replace(cause.kind()) != Some(cause.kind()) {
            shared.log.say(Level::Error, format_args!("cannot accept {whom}, tried again until it succeeds: {cause}"));
        }
    }

    pub fn end(&mut self, shared: &SharedState, whom: &str) {
        if self.0.take().is_some() {
            shared.log.say(Level::Log, format_args!("{whom} are accepted again"));
        }
    }
}
