//! Accepts clients: the first worker watches the listening sockets, and hands clients to the worker with the fewest.

use crate::client::startup;
use crate::log::Level;
use crate::runtime::inherit::InheritedSockets;
use crate::runtime::listeners::{
    AcceptFailure, AcceptedClient, CreatedUnixSockets, ListeningSocket, PortSharing, SocketRights, WatchedListener, open_all,
    open_socket,
};
use crate::runtime::places::ListenPort;
use crate::runtime::shared::{ProxyShutdown, SharedState, WorkerMessage};
use crate::runtime::worker::Worker;
use anyhow::{Context, bail};
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use weir_config::Config;
use weir_io::reactor::parked;
use weir_io::socket::Socket;

/// The kernel cuts it at `net.core.somaxconn`.
const BACKLOG_MAX: u32 = 65_535;

const ACCEPTS_MAX: u32 = 64;

fn backlog(config: &Config) -> u32 {
    config.pool.num_init_children.saturating_mul(config.listen_backlog_multiplier).clamp(128, BACKLOG_MAX)
}

/// Opens all configured sockets. Fails with address and cause.
pub fn open(
    config: &Config,
    inherited: &mut InheritedSockets,
    made: &mut CreatedUnixSockets,
) -> anyhow::Result<Vec<ListeningSocket>> {
    let backlog = backlog(config) as i32;
    let mut doors = Vec::new();
    let share = if config.reuse_port { PortSharing::WithOthers } else { PortSharing::Nobody };
    for listener in open_all(ListenPort::of_clients(config), backlog, share, inherited)? {
        doors.push(ListeningSocket::Tcp(listener));
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

/// Behaviour of unix sockets while a smart stop waits for clients to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmartStopAdmission {
    /// Console clients are admitted; others are told that the proxy stops.
    Console,
    /// No client is admitted: systemd keeps the sockets, and new clients wait for the next process.
    Nobody,
}

/// Accepts clients at one socket until the proxy stops, as a task of the first worker.
pub async fn accept(w: Rc<Worker>, door: ListeningSocket, drain: SmartStopAdmission) {
    let last_mode = match (&door, drain) {
        (ListeningSocket::Unix(..), SmartStopAdmission::Console) => ProxyShutdown::Smart,
        (ListeningSocket::Unix(..), SmartStopAdmission::Nobody) | (ListeningSocket::Tcp(_), _) => ProxyShutdown::No,
    };
    let watched = match WatchedListener::new(&w.reactor, door) {
        Ok(watched) => watched,
        Err(cause) => return w.shared.log.say(Level::Error, format_args!("cannot watch a listening socket: {cause}")),
    };
    let mut accepted = 0;
    let mut shortage = AcceptFailure::default();
    w.acceptors.borrow_mut().push(w.reactor.current_task());
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
            Err(cause) if matches!(cause.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted) => {}
            Err(cause) => {
                // Mostly out of file descriptors: clients wait in the backlog.
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
    // Clients that the kernel has accepted are served.
    watched.shut(&w.reactor);
    while !watched.is_shut(&w.reactor) {
        match watched.accept(&w.reactor) {
            Ok(Some(caller)) => hand_over(&w, caller),
            Ok(None) => parked().await,
            Err(_) => {}
        }
    }
    w.shared.listeners.open.fetch_sub(1, Ordering::AcqRel);
}

fn hand_over(w: &Rc<Worker>, caller: AcceptedClient) {
    let mut target = least_loaded(&w.shared);
    let counted = |at: usize| &w.shared.mailboxes[at].sessions;
    w.shared.clients.connected.fetch_add(1, Ordering::Relaxed);
    counted(target).fetch_add(1, Ordering::SeqCst);
    // A worker ends after seeing the stop and then no counted client: either it has seen this client, or the stop is visible
    // here.
    if w.shared.stop_mode() != ProxyShutdown::No {
        let own = usize::from(w.id);
        counted(own).fetch_add(1, Ordering::SeqCst);
        counted(target).fetch_sub(1, Ordering::SeqCst);
        target = own;
    }
    if target != usize::from(w.id) {
        let message = match caller {
            AcceptedClient::Tcp(stream, peer) => WorkerMessage::Tcp(stream, peer),
            AcceptedClient::Unix(stream) => WorkerMessage::Unix(stream),
        };
        return w.shared.mailboxes[target].send(message);
    }
    receive(w, caller);
}

/// Starts a client's login. Not async: its task would store the socket twice.
fn receive(w: &Rc<Worker>, caller: AcceptedClient) {
    let (socket, peer) = match caller {
        AcceptedClient::Tcp(stream, peer) => (Socket::accepted_tcp(&w.reactor, stream), Some(peer)),
        AcceptedClient::Unix(stream) => (Socket::accepted_unix(&w.reactor, stream), None),
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

pub fn receive_mail(w: &Rc<Worker>, message: WorkerMessage) {
    let caller = match message {
        WorkerMessage::Tcp(stream, peer) => AcceptedClient::Tcp(stream, peer),
        WorkerMessage::Unix(stream) => AcceptedClient::Unix(stream),
        WorkerMessage::Wake(_)
        | WorkerMessage::Release { .. }
        | WorkerMessage::Cancel { .. }
        | WorkerMessage::Interrupt(_)
        | WorkerMessage::Deadlocked(_)
        | WorkerMessage::Refresh
        | WorkerMessage::Stop
        | WorkerMessage::Kill(_)
        | WorkerMessage::Close(_)
        | WorkerMessage::Pause(_)
        | WorkerMessage::Resume(_)
        | WorkerMessage::Renew(_)
        | WorkerMessage::Suspended(_)
        | WorkerMessage::ResetStatements
        | WorkerMessage::CloseListeners => return,
    };
    receive(w, caller);
}

fn least_loaded(shared: &SharedState) -> usize {
    let sessions = |at: &usize| shared.mailboxes[*at].sessions.load(Ordering::Relaxed);
    (0..shared.mailboxes.len()).min_by_key(sessions).unwrap_or(0)
}
