//! Cancel requests for sessions of other Weirs, led here by a load balancer or a shared port.
//!
//! Each peer gets the request once, under Weir's own code, and passes it no further: a wrong list makes no loop.

use crate::log::Level;
use crate::runtime::places::socket_path;
use crate::runtime::pool::conn_opening::connect_any;
use crate::runtime::shared::WorkerMessage;
use crate::runtime::worker::Worker;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use weir_config::peers::WeirAddress;
use weir_io::socket::Socket;
use weir_wire::startup_packet::CancelSender;
use weir_wire::write;

const LIMIT: Duration = Duration::from_secs(5);

/// Limits connections to peers: anybody can send requests for unknown sessions.
const PASSING_MAX: u32 = 64;

pub fn route_cancel(w: &Rc<Worker>, pid: u32, key: Vec<u8>, bearer: CancelSender) {
    match w.shared.session_statuses.get(pid) {
        Some(status) => w.shared.mailboxes[usize::from(status.worker)].send(WorkerMessage::Cancel { pid, key, bearer }),
        None if bearer == CancelSender::Client && pass_cancel(w, pid, &key) => {}
        None => w.shared.log.say(Level::Log, format_args!("process id {pid} in a cancel request is of no session")),
    }
}

/// False if there are no peers.
pub fn pass_cancel(w: &Rc<Worker>, pid: u32, key: &[u8]) -> bool {
    let peers = w.peek_config().peers.clone();
    if peers.is_empty() {
        return false;
    }
    let passing = &w.shared.listeners.passing;
    let under_way = passing.load(Ordering::Relaxed);
    if under_way >= PASSING_MAX {
        let text = format_args!("cancel request for process {pid} is not passed to peers: {under_way} are on their way");
        w.shared.log.say(Level::Log, text);
        return true;
    }
    let mut request = Vec::new();
    write::passed_cancel_request(&mut request, pid, key);
    let request: Rc<[u8]> = request.into();
    for peer in peers {
        passing.fetch_add(1, Ordering::Relaxed);
        let (w, request) = (w.clone(), request.clone());
        let worker = w.clone();
        worker.reactor.spawn(async move {
            if let Err(cause) = pass(&w, &peer, &request).await {
                let text = format_args!("cancel request for process {pid} is not passed to {}:{}: {cause}", peer.host, peer.port);
                w.shared.log.say(Level::Log, text);
            }
            w.shared.listeners.passing.fetch_sub(1, Ordering::Relaxed);
        });
    }
    true
}

/// Not cancel safe: a part may be sent.
async fn pass(w: &Worker, peer: &WeirAddress, request: &[u8]) -> io::Result<()> {
    let deadline = Instant::now() + LIMIT;
    let socket = if peer.host.starts_with('/') {
        Socket::connect_unix(&w.reactor, &socket_path(Path::new(&peer.host), peer.port))?
    } else {
        connect_any(w, &peer.host, peer.port, deadline).await?
    };
    let sent = socket.write_all(&w.reactor, request, Some(deadline)).await;
    let _ = socket.read(&w.reactor, &mut [0], Some(deadline)).await;
    socket.part(&w.reactor, &[]);
    sent
}
