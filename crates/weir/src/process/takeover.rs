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
//!    | -- "group" ---------------------------->  |  with use_watchdog only: leaves its place in the group
//!    | <-- "member" + state, lines for leases -- |
//!    |  is the member                            |  keeps sessions on leases that are passed on
//!    | -- "ready" ---------------------------->  |  serves those it has accepted, accepts no more
//!    | <---------------------------- "closed" -- |
//!    |  accepts clients                          |  drains, ends
//! ```
//!
//! After a failure before "ready" the old proxy goes on unchanged, in a group as a member that was restarted (`watchdog::successor_line`).

use crate::log::{Level, ProxyLog};
use crate::process::notify::SystemdNotifier;
use crate::process::renewal::SuccessorStarter;
use crate::runtime::group_seat::{FormerLine, GroupOrder, GroupSeat, HandedMember};
use crate::runtime::inherit::InheritedSockets;
use crate::runtime::mail::ControlOrder;
use crate::runtime::shared::{ProxyShutdown, SharedState, WorkerMessage};
use anyhow::{Context, anyhow, bail, ensure};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::process::Pid;
use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use weir_config::Config;
use weir_group::{HANDOVER_BYTES_MAX, MemberHandover};

const HELLO: &str = "weir takeover 1";
/// Of a member of a group.
const HELLO_OF_MEMBER: &str = "weir takeover 1 group";
const SOCKETS: &str = "sockets";
const GROUP: &str = "group";
/// Both are followed by the length of a text. A refusal has the reason as its text.
const MEMBER: &str = "member";
const DENIED: &str = "denied";
/// Asks for a process that takes over, which is answered with its number or with a refusal.
pub const RENEW: &str = "weir renew 1";
pub const STARTED: &str = "started ";
const READY: &str = "ready";
const CLOSED: &str = "closed";

pub const WORD_LIMIT: Duration = Duration::from_secs(5);
/// Time for the new proxy to become ready.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// Time for the old proxy to serve the clients it has accepted.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);
/// Time for the old proxy to leave its place in the group: orders to servers end, and a write of its state under way.
const LEAVE_PLACE_LIMIT: Duration = Duration::from_secs(10);
const SOCKETS_MAX: usize = 64;
const WORD_BYTES_MAX: u64 = 100;
/// Of the length of a text on the line.
const LENGTH_DIGITS: usize = 8;

pub struct OldProxy {
    line: BufReader<UnixStream>,
}

/// Both processes must be in a group, or neither.
fn hello_of(config: &Config) -> &'static str {
    if config.watchdog.is_some() { HELLO_OF_MEMBER } else { HELLO }
}

/// `None`: none runs.
pub fn ask(path: &Path, config: &Config) -> anyhow::Result<Option<(InheritedSockets, OldProxy)>> {
    let stream = match UnixStream::connect(path) {
        Ok(stream) => stream,
        Err(cause) if matches!(cause.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => return Ok(None),
        Err(cause) => return Err(cause).with_context(|| format!("the running proxy cannot be asked at {}", path.display())),
    };
    check_peer(&stream)?;
    stream.set_read_timeout(Some(WORD_LIMIT))?;
    let mut old = OldProxy { line: BufReader::new(stream) };
    old.say(hello_of(config))?;
    let descriptors = receive(old.line.get_ref()).map_err(|cause| match cause.downcast_ref::<Errno>() {
        Some(&Errno::AGAIN) => anyhow!("the running proxy did not answer in {} s: is it stopped?", WORD_LIMIT.as_secs()),
        Some(_) | None => cause.context("the running proxy gave no sockets, and its log says why"),
    })?;
    Ok(Some((InheritedSockets::of(descriptors), old)))
}

impl OldProxy {
    fn say(&mut self, word: &str) -> std::io::Result<()> {
        self.line.get_mut().write_all(format!("{word}\n").as_bytes())
    }

    /// Takes its place in the group. The old proxy takes it back if this process ends before `relieve`, or drops what it gets here.
    pub fn take_member(&mut self) -> anyhow::Result<HandedMember> {
        self.line.get_ref().set_read_timeout(Some(LEAVE_PLACE_LIMIT + WORD_LIMIT))?;
        self.say(GROUP)?;
        let (word, ends) = receive_some(self.line.get_ref(), MEMBER.len() + LENGTH_DIGITS + 2)
            .context("the running proxy did not leave its place in the group")?;
        ensure!(!word.is_empty(), "the running proxy did not leave its place in the group: its log says why");
        let (name, length) = word.trim_end().split_once(' ').unwrap_or((word.as_str(), ""));
        let length = length.parse().ok().filter(|length| *length <= HANDOVER_BYTES_MAX);
        let length = length.with_context(|| format!("the running proxy said \"{}\"", word.escape_debug()))?;
        let mut text = vec![0; length];
        self.line.read_exact(&mut text).context("the running proxy told a part only of its place in the group")?;
        let text = String::from_utf8_lossy(&text);
        ensure!(name == MEMBER, "the running proxy keeps its place in the group: {text}");
        let before = MemberHandover::parse(&text)?;
        ensure!(ends.len() == before.former_until.len(), "the running proxy gave {} lines for leases", ends.len());
        let lines = ends.into_iter().zip(&before.former_until).map(|(end, until)| FormerLine { end, until: *until }).collect();
        Ok(HandedMember { before, lines })
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
pub fn offer(path: &Path, sockets: Vec<OwnedFd>, shared: &Arc<SharedState>, mut unit: UnitSide) -> anyhow::Result<()> {
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
            match serve(&stream, &shared, &mut unit) {
                Ok(OfferState::HandedOver) => return,
                Ok(OfferState::Open) => {}
                Err(cause) => shared.log.say(Level::Warning, format_args!("nobody took over: {cause:#}")),
            }
        }
    })?;
    Ok(())
}

/// The service manager's side of a takeover.
pub struct UnitSide {
    pub starter: SuccessorStarter,
    pub notify: SystemdNotifier,
}

enum OfferState {
    Open,
    HandedOver,
}

/// The process that offers its sockets there. `None`: none does.
pub fn process_at(path: &Path) -> Option<Pid> {
    let stream = UnixStream::connect(path).ok()?;
    Some(socket_peercred(&stream).ok()?.pid)
}

fn serve(stream: &UnixStream, shared: &Arc<SharedState>, unit: &mut UnitSide) -> anyhow::Result<OfferState> {
    check_peer(stream)?;
    stream.set_read_timeout(Some(WORD_LIMIT))?;
    stream.set_write_timeout(Some(WORD_LIMIT))?;
    let mut line = BufReader::new(stream);
    let said = word_of(&mut line)?;
    match said.as_str() {
        // A look at who offers the sockets.
        "" => return Ok(OfferState::Open),
        RENEW => return start_successor(stream, shared, unit).map(|()| OfferState::Open),
        _ => check_word(&said, hello_of(&shared.config.load())).context("use_watchdog cannot be changed by --takeover")?,
    }
    ensure!(shared.stop_mode() == ProxyShutdown::No, "the proxy is stopping already");
    let count = {
        let sockets = shared.listeners.copies.lock();
        send(stream, &sockets).context("cannot pass the sockets on")?;
        sockets.len()
    };
    shared.log.say(Level::Log, format_args!("another process takes over: it has {count} listening sockets"));
    stream.set_read_timeout(Some(READY_LIMIT))?;
    let seat = shared.group.get();
    if let Some(seat) = seat {
        expect(&mut line, GROUP)?;
        leave_place(stream, seat, &shared.log)?;
    }
    expect(&mut line, READY)?;
    close_listeners(shared)?;
    if let Some(seat) = seat {
        seat.order(GroupOrder::Relieved);
    }
    // Before the new process tells that it is ready, which the service manager takes from its main process only.
    let successor = socket_peercred(stream)?.pid;
    if unit.starter.is_own(successor) {
        unit.notify.hand_over_to(successor);
    }
    let said = (&*stream).write_all(format!("{CLOSED}\n").as_bytes());
    shared.log.say(Level::Log, format_args!("another process has taken over; ending when the last client has left"));
    shared.begin_stop(ProxyShutdown::Smart);
    end_later(shared);
    // Without this message the new proxy goes on later.
    let _ = said;
    Ok(OfferState::HandedOver)
}

/// Answers a `weir renew`. The process that is started asks for the sockets next.
fn start_successor(mut stream: &UnixStream, shared: &SharedState, unit: &mut UnitSide) -> anyhow::Result<()> {
    let started = match shared.stop_mode() {
        ProxyShutdown::No => unit.starter.start(),
        ProxyShutdown::Smart | ProxyShutdown::Fast | ProxyShutdown::Immediate => Err("the proxy is stopping already".to_owned()),
    };
    let answer = match &started {
        Ok(pid) => {
            let pid = pid.as_raw_nonzero();
            shared.log.say(Level::Log, format_args!("process {pid} is started to take over (weir renew)"));
            format!("{STARTED}{pid}\n")
        }
        Err(why) => {
            shared.log.say(Level::Warning, format_args!("weir renew starts no process: {why}"));
            format!("{why}\n")
        }
    };
    Ok(stream.write_all(answer.as_bytes())?)
}

fn expect(line: &mut impl BufRead, word: &str) -> anyhow::Result<()> {
    check_word(&word_of(line)?, word)
}

fn word_of(line: &mut impl BufRead) -> anyhow::Result<String> {
    let mut said = String::new();
    line.take(WORD_BYTES_MAX).read_line(&mut said)?;
    Ok(said.trim_end().to_owned())
}

fn check_word(said: &str, word: &str) -> anyhow::Result<()> {
    if said != word {
        bail!("the other side said \"{}\" instead of \"{word}\"", said.escape_debug());
    }
    Ok(())
}

/// Leaves the place in the group to the other side.
fn leave_place(stream: &UnixStream, seat: &GroupSeat, log: &ProxyLog) -> anyhow::Result<()> {
    let say = |word: &str, text: &str, ends: &[OwnedFd]| -> anyhow::Result<()> {
        send_some(stream, &format!("{word} {:0LENGTH_DIGITS$}\n", text.len()), ends)?;
        let mut stream = stream;
        Ok(stream.write_all(text.as_bytes())?)
    };
    match ask_for_place(seat) {
        Ok(HandedMember { before, lines }) => {
            log.say(Level::Log, format_args!("watchdog: another process of this host takes this one's place in the group"));
            let ends: Vec<OwnedFd> = lines.into_iter().map(|line| line.end).collect();
            say(MEMBER, &before.show(), &ends)
        }
        Err(why) => {
            let _ = say(DENIED, &why, &[]);
            bail!("{why}")
        }
    }
}

fn ask_for_place(seat: &GroupSeat) -> Result<HandedMember, String> {
    let (answer, answered) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(|cause| cause.to_string())?;
    if !seat.order(GroupOrder::HandOver { answer }) {
        return Err("the watchdog is behind, or has ended: try again".into());
    }
    // A late answer finds nobody, and the member stays.
    let within = runtime.block_on(async { tokio::time::timeout(LEAVE_PLACE_LIMIT, answered).await });
    within
        .map_err(|_| format!("the watchdog did not answer in {} s", LEAVE_PLACE_LIMIT.as_secs()))?
        .unwrap_or_else(|_| Err("the watchdog has ended".into()))
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
    send_some(stream, &format!("{SOCKETS}\n"), sockets)
}

fn send_some(stream: &UnixStream, word: &str, sockets: &[OwnedFd]) -> std::io::Result<()> {
    let descriptors: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    rustix::net::sendmsg(stream, &[IoSlice::new(word.as_bytes())], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn receive(stream: &UnixStream) -> anyhow::Result<Vec<OwnedFd>> {
    let (word, descriptors) = receive_some(stream, SOCKETS.len() + 1)?;
    ensure!(word == format!("{SOCKETS}\n"), "it said something else");
    ensure!(!descriptors.is_empty(), "there were none");
    Ok(descriptors)
}

/// A word of so many bytes, and what came with it.
fn receive_some(stream: &UnixStream, word_bytes: usize) -> anyhow::Result<(String, Vec<OwnedFd>)> {
    let mut word = vec![0; word_bytes];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    // With a time limit the system does not begin it anew by itself.
    let got =
        retry_on_intr(|| rustix::net::recvmsg(stream, &mut [IoSliceMut::new(&mut word)], &mut control, RecvFlags::CMSG_CLOEXEC))?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    word.truncate(got.bytes);
    Ok((String::from_utf8_lossy(&word).into_owned(), descriptors))
}
