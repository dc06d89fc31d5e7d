//! Links from this host to others: one task for each path, which connects, proves itself, and sends what is queued.

use crate::log::Level;
use crate::runtime::agent_line::write_frame;
use crate::watchdog::peer_context::PeerContext;
use crate::watchdog::peer_handshake::{HANDSHAKE_LIMIT, PeerLinkFault, introduce};
use crate::watchdog::peer_host::{PeerHost, PeerPath, PeerQueue};
use crate::watchdog::peer_sockets::connect;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};
use weir_wire::frame_seal::FrameSeal;

const CONNECT_LIMIT: Duration = Duration::from_secs(1);
/// Time in which a frame is taken by the system, else the link is closed.
const WRITE_LIMIT: Duration = Duration::from_secs(2);
/// Time from one attempt to the next, at first and later.
const FIRST_PACE: Duration = Duration::from_millis(250);
const LATER_PACE: Duration = Duration::from_secs(1);
const FIRST_ATTEMPTS: usize = 16;
/// A link that lasted so long begins with the quick pace anew when it is lost.
const LASTING: Duration = Duration::from_secs(5);
/// Different faults that are told before the link is up again.
const TOLD_MAX: usize = 8;

/// Keeps a link over one path. Never ends. Cancel safe: the link is closed.
pub async fn keep_link(context: Rc<PeerContext>, host: Rc<PeerHost>, path: Rc<PeerPath>) {
    let mut told: Vec<String> = Vec::new();
    let mut attempt = 0;
    loop {
        let begun = Instant::now();
        let fault = match meet(&context, &host, &path, attempt).await {
            Err(fault) => fault,
            Ok((stream, seal)) => {
                let queue = path.open();
                told.clear();
                context.log.say(Level::Log, format_args!("watchdog: link to {} is up", shown(&host, &path)));
                send_all(stream, seal, &queue).await
            }
        };
        path.shut(&fault);
        host.note_error(format!("{}: {fault}", path.place));
        context.names.look_again(&path.place.name);
        let text = fault.to_string();
        // A name that is not resolved is told of by its lookup.
        let is_own = !matches!(fault, PeerLinkFault::Name(_));
        if is_own && told.len() < TOLD_MAX && !told.contains(&text) {
            context.log.say(Level::Warning, format_args!("watchdog: no link to {}: {text}", shown(&host, &path)));
            told.push(text);
        }
        attempt = if begun.elapsed() >= LASTING + CONNECT_LIMIT + HANDSHAKE_LIMIT { 0 } else { attempt + 1 };
        sleep_until(begun + if attempt < FIRST_ATTEMPTS { FIRST_PACE } else { LATER_PACE }).await;
    }
}

fn shown(host: &PeerHost, path: &PeerPath) -> String {
    format!("host {} ({})", host.settings.number, path.place)
}

/// Connects to one of the path's addresses, in turn. Cancel safe.
async fn meet(
    context: &PeerContext,
    host: &PeerHost,
    path: &PeerPath,
    attempt: usize,
) -> Result<(TcpStream, FrameSeal), PeerLinkFault> {
    let settings = context.settings();
    let addresses = context.names.addresses(&path.place.name).map_err(PeerLinkFault::Name)?;
    let mut allowed = addresses.into_iter().filter(|address| settings.may_talk_to(*address)).collect::<Vec<_>>();
    let count = allowed.len();
    if count == 0 {
        return Err(PeerLinkFault::NotLoopback);
    }
    let place = SocketAddr::new(allowed.swap_remove(attempt % count), path.place.port);
    let connected = timeout(CONNECT_LIMIT, connect(place)).await;
    let mut stream = connected.map_err(|_| PeerLinkFault::Late(CONNECT_LIMIT))??;
    let introduced = introduce(&mut stream, settings.key.as_ref(), settings.host, host.settings.number);
    let seals = timeout(HANDSHAKE_LIMIT, introduced).await.map_err(|_| PeerLinkFault::Late(HANDSHAKE_LIMIT))??;
    host.send_datagrams_by(seals.datagrams);
    Ok((stream, seals.frames))
}

/// Sends messages as they come, until the link ends. Not cancel safe: a part of a frame may be sent.
async fn send_all(mut stream: TcpStream, mut seal: FrameSeal, queue: &PeerQueue) -> PeerLinkFault {
    let mut stray = [0; 1];
    loop {
        if let Some(message) = queue.pop() {
            let payload = seal.close(&message);
            match timeout(WRITE_LIMIT, write_frame(&mut stream, &payload)).await {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => return error.into(),
                Err(_) => return PeerLinkFault::Full(WRITE_LIMIT),
            }
        }
        tokio::select! {
            () = queue.news.notified() => {}
            // The other side says nothing after the handshake.
            read = stream.read(&mut stray) => return match read {
                Ok(0) => PeerLinkFault::Closed,
                Ok(_) => PeerLinkFault::Protocol,
                Err(cause) => cause.into(),
            },
        }
    }
}
