//! The doors: TCP and unix sockets, watched by the first worker, which hands new clients to the worker with the fewest.

use crate::client::startup;
use crate::monitor::log::Level;
use crate::process::inherit::Inherited;
use crate::process::places::{self, Port, group_id, socket_path};
use crate::process::shared::{Message, Shared, Stop};
use crate::process::worker::Worker;
use anyhow::{Context, anyhow, bail};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use socket2::{Domain, Protocol, SockAddr, Type};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use weir_config::Config;
use weir_io::reactor::{READ, Reactor, Slot, parked};
use weir_io::socket::Socket;
use weir_ring::Token;

/// Largest backlog asked of the kernel, which cuts it at `net.core.somaxconn` anyway.
const BACKLOG_MAX: u32 = 65_535;

/// Accepted before other tasks get their turn.
const ACCEPTS_MAX: u32 = 64;

/// Seconds after which a client comes in though it has said nothing, so that `authentication_timeout` finds it.
const SILENCE_S: u32 = 1;

/// Longest wait for an address that is in use. The kernel closes what a killed process had in io_uring some milliseconds after that process is gone, and
/// whoever starts the next one knows of the end only.
const IN_USE_LIMIT: Duration = Duration::from_secs(2);
/// Time between two looks: the kernel tells nobody.
const IN_USE_LOOK: Duration = Duration::from_millis(5);

/// A listening socket, not yet watched.
pub enum Door {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener, PathBuf),
}

/// The unix sockets made by us, while the start may still fail: dropped, it removes them.
#[derive(Debug, Default)]
pub struct Made(Vec<PathBuf>);

impl Made {
    /// The start has not failed.
    pub fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        self.0.iter().for_each(|path| drop(std::fs::remove_file(path)));
    }
}

fn backlog(config: &Config) -> u32 {
    config.pool.num_init_children.saturating_mul(config.listen_backlog_multiplier).clamp(128, BACKLOG_MAX)
}

/// Opens all sockets the configuration names. Error: any of them cannot be opened, with address and cause.
pub fn open(config: &Config, inherited: &mut Inherited, made: &mut Made) -> anyhow::Result<Vec<Door>> {
    let backlog = backlog(config) as i32;
    let mut doors = Vec::new();
    let share = if config.reuse_port { Share::WithOthers } else { Share::Nobody };
    for listener in open_all(Port::of_clients(config), backlog, share, inherited)? {
        doors.push(Door::Tcp(listener));
    }
    let rights = SocketRights { mode: config.unix_socket_permissions, group: &config.unix_socket_group };
    let directories = &config.unix_socket_directories;
    let is_first = |(at, directory): &(usize, &PathBuf)| !directories[..*at].contains(directory);
    for (_, directory) in directories.iter().enumerate().filter(is_first) {
        let door = open_socket(directory, config.port, backlog, rights, inherited, made);
        doors.push(door.context("unix_socket_directories, port")?);
    }
    if doors.is_empty() {
        bail!("neither listen_addresses nor unix_socket_directories names a place to listen");
    }
    Ok(doors)
}

/// Opens a port on all of its addresses, or takes sockets that are open already. Errors name the parameter to change.
pub fn open_all(
    port: Port<'_>,
    backlog: i32,
    share: Share,
    inherited: &mut Inherited,
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

/// Opens a socket, as soon as nobody else has its address.
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

/// Other processes on the same port (`reuse_port`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    Nobody,
    WithOthers,
}

fn open_tcp(address: SocketAddr, backlog: i32, share: Share) -> io::Result<std::net::TcpListener> {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if share == Share::WithOthers {
        rustix::net::sockopt::set_socket_reuseport(&socket, true)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    // Accepted sockets inherit these.
    socket.set_tcp_nodelay(true)?;
    socket.set_keepalive(true)?;
    // A client speaks first: until it has, there is nothing to wake up for. A system that cannot do so wakes us earlier.
    let _ = weir_ring::defer_accept(&socket, SILENCE_S);
    socket.listen(backlog)?;
    Ok(socket.into())
}

/// Owner, group and permissions of a unix socket.
#[derive(Clone, Copy)]
pub struct SocketRights<'a> {
    pub(crate) mode: u32,
    /// Empty: that of the process.
    pub(crate) group: &'a str,
}

/// Opens the unix socket of a port in a folder, or takes what is open already.
pub fn open_socket(
    folder: &Path,
    port: u16,
    backlog: i32,
    rights: SocketRights<'_>,
    inherited: &mut Inherited,
    made: &mut Made,
) -> anyhow::Result<Door> {
    let path = socket_path(folder, port);
    let door = match inherited.take_unix(&path) {
        Some(socket) => Ok(Door::Unix(socket, path.clone())),
        None => open_unix(&path, backlog, rights, made),
    };
    door.with_context(|| format!("cannot listen on {}", path.display()))
}

fn open_unix(path: &Path, backlog: i32, rights: SocketRights<'_>, made: &mut Made) -> anyhow::Result<Door> {
    if path.exists() {
        let answers = || match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there already")),
            Err(_) => Ok(()),
        };
        once_free(answers)?;
        // Left behind by a process that was killed.
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
    Ok(Door::Unix(socket.into(), path.to_path_buf()))
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Door::Tcp(listener) => listener.as_fd(),
            Door::Unix(listener, _) => listener.as_fd(),
        }
    }
}

impl Door {
    /// The file that a closed door leaves, to be removed.
    pub fn path(&self) -> Option<PathBuf> {
        match self {
            Door::Tcp(_) => None,
            Door::Unix(_, path) => Some(path.clone()),
        }
    }
}

/// A client that came in.
pub enum Caller {
    Tcp(std::net::TcpStream, SocketAddr),
    Unix(std::os::unix::net::UnixStream),
}

/// An open door in the event loop of the first worker.
pub struct Watched {
    door: Arc<Listener>,
    slot: Arc<Slot>,
    token: Option<Token>,
}

enum Listener {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener),
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener) => listener.as_fd(),
        }
    }
}

impl Watched {
    pub fn new(reactor: &Reactor, door: Door) -> io::Result<Watched> {
        let door = Arc::new(match door {
            Door::Tcp(listener) => Listener::Tcp(listener),
            Door::Unix(listener, _) => Listener::Unix(listener),
        });
        let (slot, token) = reactor.listen(door.clone())?;
        Ok(Watched { door, slot, token })
    }

    /// The next client, if one is there.
    pub fn accept(&self, reactor: &Reactor) -> io::Result<Option<Caller>> {
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
            Listener::Tcp(_) => {
                let stream = std::net::TcpStream::from(came);
                // Error: gone before we came to the door.
                let peer = stream.peer_addr().map_err(|_| io::ErrorKind::ConnectionAborted)?;
                Caller::Tcp(stream, peer)
            }
            Listener::Unix(_) => Caller::Unix(came.into()),
        }))
    }
}

impl Watched {
    /// After a failure: looks again though nothing new was told.
    pub fn retry(&self, reactor: &Reactor) {
        reactor.retry(&self.slot);
    }
}

impl Watched {
    /// Accepts nobody any more. `accept` still gives the clients that came in before.
    pub fn shut(&self, reactor: &Reactor) {
        if let Some(token) = self.token {
            reactor.with_ring((), |ring| ring.shut(token));
        }
    }

    /// True if nobody comes any more.
    pub fn is_shut(&self, reactor: &Reactor) -> bool {
        self.token.is_none_or(|token| reactor.with_ring(true, |ring| ring.is_shut(token)))
    }
}

/// Behaviour of unix sockets while a smart stop waits for clients to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// They let in clients of the console; others are told that the proxy stops.
    Console,
    /// They let in nobody: systemd keeps them, and new clients wait for the next process.
    Nobody,
}

/// The cause why nobody can be accepted at a door, told when it begins and when it ends.
#[derive(Debug, Default)]
pub struct Shortage(Option<io::ErrorKind>);

impl Shortage {
    /// An attempt failed; the next one is made a moment later.
    pub fn note(&mut self, shared: &Shared, whom: &str, cause: &io::Error) {
        if self.0.replace(cause.kind()) != Some(cause.kind()) {
            shared.log.say(Level::Error, format_args!("cannot accept {whom}, tried again until it succeeds: {cause}"));
        }
    }

    /// Somebody was accepted.
    pub fn end(&mut self, shared: &Shared, whom: &str) {
        if self.0.take().is_some() {
            shared.log.say(Level::Log, format_args!("{whom} are accepted again"));
        }
    }
}

/// Accepts clients at one door until the proxy stops. Runs as a task of the first worker.
pub async fn accept(w: Rc<Worker>, door: Door, drain: Drain) {
    let last_mode = match (&door, drain) {
        (Door::Unix(..), Drain::Console) => Stop::Smart,
        (Door::Unix(..), Drain::Nobody) | (Door::Tcp(_), _) => Stop::No,
    };
    let watched = match Watched::new(&w.reactor, door) {
        Ok(watched) => watched,
        Err(cause) => return w.shared.log.say(Level::Error, format_args!("cannot watch a listening socket: {cause}")),
    };
    let mut accepted = 0;
    let mut shortage = Shortage::default();
    w.doors.borrow_mut().push(w.reactor.current_task());
    while w.shared.stop_mode() <= last_mode && !w.shared.is_handed_over() {
        match watched.accept(&w.reactor) {
            Ok(Some(caller)) => {
                shortage.end(&w.shared, "clients");
                hand_over(&w, caller);
            }
            Ok(None) => {
                accepted = 0;
                parked().await;
                continue;
            }
            // Gone before we came to the door.
            Err(cause) if matches!(cause.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => {}
            Err(cause) => {
                // Out of file descriptors, most likely: those waiting stay in the backlog until some are free.
                shortage.note(&w.shared, "clients", &cause);
                w.reactor.sleep(std::time::Duration::from_millis(100)).await;
                watched.retry(&w.reactor);
            }
        }
        accepted += 1;
        if accepted % ACCEPTS_MAX == 0 {
            w.reactor.wake(w.reactor.current_task());
            parked().await;
        }
    }
    // The kernel may have let some in already: they are clients like the others.
    watched.shut(&w.reactor);
    while !watched.is_shut(&w.reactor) {
        match watched.accept(&w.reactor) {
            Ok(Some(caller)) => hand_over(&w, caller),
            Ok(None) => parked().await,
            Err(_) => {}
        }
    }
    w.shared.doors.open.fetch_sub(1, Ordering::AcqRel);
}

/// Gives a client to the worker with the fewest.
fn hand_over(w: &Rc<Worker>, caller: Caller) {
    let mut target = least_loaded(&w.shared);
    let counted = |at: usize| &w.shared.mailboxes[at].sessions;
    w.shared.clients.connected.fetch_add(1, Ordering::Relaxed);
    counted(target).fetch_add(1, Ordering::SeqCst);
    // A worker ends when it sees the stop and then no counted client: now it has seen this one, or we see the stop.
    if w.shared.stop_mode() != Stop::No {
        let own = usize::from(w.id);
        counted(own).fetch_add(1, Ordering::SeqCst);
        counted(target).fetch_sub(1, Ordering::SeqCst);
        target = own;
    }
    if target != usize::from(w.id) {
        let message = match caller {
            Caller::Tcp(stream, peer) => Message::Tcp(stream, peer),
            Caller::Unix(stream) => Message::Unix(stream),
        };
        return w.shared.mailboxes[target].send(message);
    }
    receive(w, caller);
}

/// Begins the login of a client. Not a part of its task: that would have the socket twice.
fn receive(w: &Rc<Worker>, caller: Caller) {
    let (socket, peer) = match caller {
        Caller::Tcp(stream, peer) => (Socket::accepted_tcp(&w.reactor, stream), Some(peer)),
        Caller::Unix(stream) => (Socket::accepted_unix(&w.reactor, stream), None),
    };
    match socket {
        Ok(socket) => {
            w.reactor.spawn(startup::welcome(w.clone(), socket, peer));
        }
        Err(cause) => {
            w.shared.log.say(Level::Log, format_args!("a client was lost as it came: {cause}"));
            w.client_gone();
        }
    }
}

/// Serves a client that the first worker accepted.
pub fn receive_mail(w: &Rc<Worker>, message: Message) {
    let caller = match message {
        Message::Tcp(stream, peer) => Caller::Tcp(stream, peer),
        Message::Unix(stream) => Caller::Unix(stream),
        Message::Wake(_)
        | Message::Release { .. }
        | Message::Cancel { .. }
        | Message::Interrupt(_)
        | Message::Refresh
        | Message::Stop
        | Message::Kill(_)
        | Message::Close(_)
        | Message::Pause
        | Message::Resume
        | Message::CloseDoors => return,
    };
    receive(w, caller);
}

fn least_loaded(shared: &Shared) -> usize {
    let sessions = |at: &usize| shared.mailboxes[*at].sessions.load(Ordering::Relaxed);
    (0..shared.mailboxes.len()).min_by_key(sessions).unwrap_or(0)
}
