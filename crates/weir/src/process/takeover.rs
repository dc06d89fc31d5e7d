//! A new proxy takes the listening sockets over, so that a restart refuses no client.
//!
//! The sockets are passed over a unix socket (`takeover_socket`), so that the clients in their queues are served. New sockets on
//! the same port (SO_REUSEPORT) would lose those. Only one process accepts at a time:
//!
//! ```text
//!   new                                         old
//!    | -- "weir takeover 1" ------------------>  |  accepts clients
//!    | <------------- "sockets" + descriptors -- |
//!    |  makes everything ready                   |
//!    | -- "ready" ---------------------------->  |  serves those it has accepted, accepts no more
//!    | <---------------------------- "closed" -- |
//!    |  accepts clients                          |  drains, ends
//! ```
//!
//! After a failure before "ready" the old proxy goes on unchanged.

use crate::log::Level;
use crate::runtime::inherit::InheritedSockets;
use crate::runtime::mail::ControlOrder;
use crate::runtime::shared::{ProxyShutdown, SharedState, WorkerMessage};
use anyhow::{Context, anyhow, bail, ensure};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const HELLO: &str = "weir takeover 1";
const SOCKETS: &str = "sockets";
const READY: &str = "ready";
const CLOSED: &str = "closed";

const WORD_LIMIT: Duration = Duration::from_secs(5);
/// Time for the new proxy to become ready.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// Time for the old proxy to serve the clients it has accepted.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);
const SOCKETS_MAX: usize = 64;

pub struct OldProxy {
    line: BufReader<UnixStream>,
}

/// `None`: none runs.
pub fn ask(path: &Path) -> anyhow::Result<Option<(InheritedSockets, OldProxy)>> {
    let stream = match UnixStream::connect(path) {
        Ok(stream) => stream,
        Err(cause) if matches!(cause.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => return Ok(None),
        Err(cause) => return Err(cause).with_context(|| format!("the running proxy cannot be asked at {}", path.display())),
    };
    check_peer(&stream)?;
    stream.set_read_timeout(Some(WORD_LIMIT))?;
    let mut old = OldProxy { line: BufReader::new(stream) };
    old.say(HELLO)?;
    let descriptors = receive(old.line.get_ref()).map_err(|cause| match cause.downcast_ref::<Errno>() {
        Some(&Errno::AGAIN) => anyhow!("the running proxy did not answer in {} s: is it stopped?", WORD_LIMIT.as_secs()),
        Some(_) | None => cause.context("the running proxy gave no sockets"),
    })?;
    Ok(Some((InheritedSockets::of(descriptors), old)))
}

impl OldProxy {
    fn say(&mut self, word: &str) -> std::io::Result<()> {
        self.line.get_mut().write_all(format!("{word}\n").as_bytes())
    }

    /// Has the old proxy stop accepting. After an error it may still accept.
    pub fn relieve(mut self) -> anyhow::Result<()> {
        self.line.get_ref().set_read_timeout(Some(CLOSE_LIMIT))?;
        self.say(READY)?;
        let mut word = String::new();
        self.line.read_line(&mut word).context("the old proxy did not close its doors")?;
        ensure!(
            word.trim_end() == CLOSED,
            "the old proxy said \"{}\" instead of closing its doors",
            word.trim_end().escape_debug()
        );
        Ok(())
    }
}

/// Only a process that could also kill this one may take over.
fn check_peer(stream: &UnixStream) -> anyhow::Result<()> {
    let peer = socket_peercred(stream)?.uid;
    let own = rustix::process::geteuid();
    ensure!(peer == own || peer.is_root(), "takeover_socket: the other side runs as user {}", peer.as_raw());
    Ok(())
}

/// Waits on a thread for a process that takes over. `sockets` are copies of the listening sockets.
pub fn offer(path: &Path, sockets: Vec<OwnedFd>, shared: &Arc<SharedState>) -> anyhow::Result<()> {
    ensure!(
        sockets.len() <= SOCKETS_MAX,
        "takeover_socket: {} listening sockets, at most {SOCKETS_MAX} can be passed",
        sockets.len()
    );
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path).with_context(|| format!("takeover_socket: cannot listen on {}", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    *shared.listeners.copies.lock() = sockets;
    let shared = shared.clone();
    let thread = std::thread::Builder::new().name("takeover".into());
    thread.spawn(move || {
        for stream in listener.incoming().flatten() {
            match serve(&stream, &shared) {
                Ok(()) => return,
                Err(cause) => shared.log.say(Level::Warning, format_args!("nobody took over: {cause:#}")),
            }
        }
    })?;
    Ok(())
}

fn serve(stream: &UnixStream, shared: &Arc<SharedState>) -> anyhow::Result<()> {
    check_peer(stream)?;
    stream.set_read_timeout(Some(WORD_LIMIT))?;
    stream.set_write_timeout(Some(WORD_LIMIT))?;
    let mut line = BufReader::new(stream);
    expect(&mut line, HELLO)?;
    ensure!(shared.stop_mode() == ProxyShutdown::No, "the proxy is stopping already");
    let count = {
        let sockets = shared.listeners.copies.lock();
        send(stream, &sockets).context("cannot pass the sockets on")?;
        sockets.len()
    };
    shared.log.say(Level::Log, format_args!("another process takes over: it has {count} listening sockets"));
    stream.set_read_timeout(Some(READY_LIMIT))?;
    expect(&mut line, READY)?;
    close_listeners(shared)?;
    let said = (&*stream).write_all(format!("{CLOSED}\n").as_bytes());
    shared.log.say(Level::Log, format_args!("another process has taken over; ending when the last client has left"));
    shared.begin_stop(ProxyShutdown::Smart);
    end_later(shared);
    // Without this message the new proxy goes on later.
    let _ = said;
    Ok(())
}

fn expect(line: &mut impl BufRead, word: &str) -> anyhow::Result<()> {
    let mut said = String::new();
    line.read_line(&mut said)?;
    if said.trim_end() != word {
        bail!("the other side said \"{}\" instead of \"{word}\"", said.trim_end().escape_debug());
    }
    Ok(())
}

/// Closes the listening sockets, and waits until all accepted connections are clients.
fn close_listeners(shared: &SharedState) -> anyhow::Result<()> {
    shared.listeners.handed_over.store(true, Ordering::Release);
    shared.tell_all(|| WorkerMessage::CloseListeners);
    shared.control.send(ControlOrder::CloseListeners);
    let began = Instant::now();
    while shared.listeners.open.load(Ordering::Acquire) > 0 {
        ensure!(began.elapsed() < CLOSE_LIMIT, "the doors were not closed in {} s", CLOSE_LIMIT.as_secs());
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn end_later(shared: &Arc<SharedState>) {
    let limit_ms = shared.config.load().admin.takeover_drain_ms;
    if limit_ms == 0 {
        return;
    }
    let shared = Arc::downgrade(shared);
    let _ = std::thread::Builder::new().name("drain".into()).spawn(move || {
        std::thread::sleep(Duration::from_millis(limit_ms));
        if let Some(shared) = shared.upgrade() {
            shared.log.say(Level::Log, format_args!("clients are still there after takeover_drain_timeout"));
            shared.begin_stop(ProxyShutdown::Fast);
        }
    });
}

fn ensure_some(sockets: &[OwnedFd]) -> std::io::Result<()> {
    if sockets.is_empty() { Err(std::io::Error::other("the proxy is stopping already")) } else { Ok(()) }
}

fn send(stream: &UnixStream, sockets: &[OwnedFd]) -> std::io::Result<()> {
    ensure_some(sockets)?;
    let descriptors: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let word = format!("{SOCKETS}\n");
    rustix::net::sendmsg(stream, &[IoSlice::new(word.as_bytes())], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive(stream: &UnixStream) -> anyhow::Result<Vec<OwnedFd>> {
    let mut word = [0; SOCKETS.len() + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = rustix::net::recvmsg(stream, &mut [IoSliceMut::new(&mut word)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    ensure!(word[..got.bytes] == format!("{SOCKETS}\n").into_bytes()[..], "it said something else");
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    ensure!(!descriptors.is_empty(), "there were none");
    Ok(descriptors)
}
