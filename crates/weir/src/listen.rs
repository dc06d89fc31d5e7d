//! The doors: TCP and unix sockets, watched by the first worker, which hands new clients to the worker with the fewest.

use crate::log::Level;
use crate::reactor::{READ, parked};
use crate::shared::{Message, Shared, Stop};
use crate::socket::Socket;
use crate::startup;
use crate::worker::Worker;
use anyhow::{Context, bail};
use socket2::{Domain, Protocol, SockAddr, Type};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use weir_policy::config::Config;

/// Largest backlog asked of the kernel, which cuts it at `net.core.somaxconn` anyway.
const BACKLOG_MAX: u32 = 65_535;

/// Accepted before other tasks get their turn.
const ACCEPTS_MAX: u32 = 64;

/// A listening socket, not yet watched.
pub enum Door {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener, PathBuf),
}

/// Opens all sockets the configuration names. Error: any of them cannot be opened, with address and cause.
pub fn open(config: &Config) -> anyhow::Result<Vec<Door>> {
    let backlog = (config.pool.num_init_children * config.listen_backlog_multiplier).clamp(128, BACKLOG_MAX) as i32;
    let mut doors = Vec::new();
    for listener in open_all(&config.listen_addresses, config.port, backlog, "listen_addresses")? {
        doors.push(Door::Tcp(listener));
    }
    for directory in &config.unix_socket_directories {
        let path = directory.join(format!(".s.PGSQL.{}", config.port));
        doors.push(open_unix(&path, config).with_context(|| format!("cannot listen on {}", path.display()))?);
    }
    if doors.is_empty() {
        bail!("neither listen_addresses nor unix_socket_directories names a place to listen");
    }
    Ok(doors)
}

/// Opens a port on all addresses that `names` stand for; `parameter` is what they are called.
pub fn open_all(names: &[String], port: u16, backlog: i32, parameter: &str) -> anyhow::Result<Vec<std::net::TcpListener>> {
    let mut listeners = Vec::new();
    for name in names {
        for address in addresses(name, port).with_context(|| format!("{parameter}: cannot resolve \"{name}\""))? {
            listeners.push(open_tcp(address, backlog).with_context(|| format!("cannot listen on {address}"))?);
        }
    }
    Ok(listeners)
}

fn addresses(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if name == "*" {
        let v6 = SocketAddr::from(([0u16; 8], port));
        // A machine without IPv6 cannot make such a socket.
        let has_v6 = socket2::Socket::new(Domain::IPV6, Type::STREAM, Some(Protocol::TCP)).is_ok();
        let v4 = SocketAddr::from(([0, 0, 0, 0], port));
        return Ok(if has_v6 { vec![v4, v6] } else { vec![v4] });
    }
    let mut found: Vec<SocketAddr> = (name, port).to_socket_addrs()?.collect();
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

fn open_tcp(address: SocketAddr, backlog: i32) -> io::Result<std::net::TcpListener> {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn open_unix(path: &Path, config: &Config) -> anyhow::Result<Door> {
    let backlog = (config.pool.num_init_children * config.listen_backlog_multiplier).clamp(128, BACKLOG_MAX) as i32;
    if path.exists() {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            bail!("another process listens there already");
        }
        // Left behind by a process that was killed.
        std::fs::remove_file(path)?;
    }
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    socket.listen(backlog)?;
    socket.set_nonblocking(true)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(config.unix_socket_permissions))?;
    if !config.unix_socket_group.is_empty() {
        let gid = group_id(&config.unix_socket_group)?;
        std::os::unix::fs::chown(path, None, Some(gid))?;
    }
    Ok(Door::Unix(socket.into(), path.to_path_buf()))
}

/// Number of a group, given by number or by name.
fn group_id(group: &str) -> anyhow::Result<u32> {
    if let Ok(number) = group.parse() {
        return Ok(number);
    }
    let groups = std::fs::read_to_string("/etc/group")?;
    let line = groups.lines().find(|line| line.split(':').next() == Some(group));
    let number = line.and_then(|line| line.split(':').nth(2)).and_then(|number| number.parse().ok());
    number.with_context(|| format!("unix_socket_group: there is no group \"{group}\""))
}

impl Door {
    /// Removes what a closed door leaves in the file system.
    pub fn path(&self) -> Option<PathBuf> {
        match self {
            Door::Tcp(_) => None,
            Door::Unix(_, path) => Some(path.clone()),
        }
    }
}

/// A client that came in.
enum Caller {
    Tcp(std::net::TcpStream, SocketAddr),
    Unix(std::os::unix::net::UnixStream),
}

enum Watched {
    Tcp(mio::net::TcpListener),
    Unix(mio::net::UnixListener),
}

/// Accepts clients at one door until the proxy stops. Runs as a task of the first worker.
pub async fn accept(w: Rc<Worker>, door: Door) {
    let mut watched = match door {
        Door::Tcp(listener) => Watched::Tcp(mio::net::TcpListener::from_std(listener)),
        Door::Unix(listener, _) => Watched::Unix(mio::net::UnixListener::from_std(listener)),
    };
    let registered = match &mut watched {
        Watched::Tcp(listener) => w.reactor.register(listener),
        Watched::Unix(listener) => w.reactor.register(listener),
    };
    let slot = match registered {
        Ok(slot) => slot,
        Err(cause) => return w.shared.log.say(Level::Error, format_args!("cannot watch a listening socket: {cause}")),
    };
    let mut accepted = 0;
    while w.shared.stop_mode() == Stop::No {
        if slot.ready() & READ == 0 {
            accepted = 0;
            parked().await;
            continue;
        }
        let caller = match &watched {
            Watched::Tcp(listener) => listener.accept().map(|(stream, peer)| Caller::Tcp(stream.into(), peer)),
            Watched::Unix(listener) => listener.accept().map(|(stream, _)| Caller::Unix(stream.into())),
        };
        match caller {
            Ok(caller) => hand_over(&w, caller),
            Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => slot.clear(READ),
            // Gone before we came to the door.
            Err(cause) if matches!(cause.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => {}
            Err(cause) => {
                // Out of file descriptors, most likely: those waiting stay in the backlog until some are free.
                w.shared.log.say(Level::Error, format_args!("cannot accept a client: {cause}"));
                w.reactor.sleep(std::time::Duration::from_millis(100)).await;
            }
        }
        accepted += 1;
        if accepted % ACCEPTS_MAX == 0 {
            w.reactor.wake(w.reactor.current_task());
            parked().await;
        }
    }
}

/// Gives a client to the worker with the fewest.
fn hand_over(w: &Rc<Worker>, caller: Caller) {
    let target = least_loaded(&w.shared);
    w.shared.clients.fetch_add(1, Ordering::Relaxed);
    w.shared.mailboxes[target].sessions.fetch_add(1, Ordering::Relaxed);
    if target != usize::from(w.id) {
        let message = match caller {
            Caller::Tcp(stream, peer) => Message::Tcp(stream, peer),
            Caller::Unix(stream) => Message::Unix(stream),
        };
        return w.shared.mailboxes[target].send(message);
    }
    let worker = w.clone();
    w.reactor.spawn(async move { receive(worker, caller).await });
}

async fn receive(w: Rc<Worker>, caller: Caller) {
    let (socket, peer) = match caller {
        Caller::Tcp(stream, peer) => (Socket::accepted_tcp(&w.reactor, stream), Some(peer)),
        Caller::Unix(stream) => (Socket::accepted_unix(&w.reactor, stream), None),
    };
    match socket {
        Ok(socket) => startup::welcome(w, socket, peer).await,
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
        | Message::Refresh
        | Message::Stop
        | Message::Kill(_)
        | Message::Close(_) => return,
    };
    let worker = w.clone();
    w.reactor.spawn(async move { receive(worker, caller).await });
}

fn least_loaded(shared: &Shared) -> usize {
    let sessions = |at: &usize| shared.mailboxes[*at].sessions.load(Ordering::Relaxed);
    (0..shared.mailboxes.len()).min_by_key(sessions).unwrap_or(0)
}
