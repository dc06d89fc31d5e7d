//! Links from other hosts to this one: each is accepted, has to prove itself within a limit, and is read from then on.

use crate::log::Level;
use crate::runtime::agent_line::{SealedStreamError, read_frame};
use crate::watchdog::peer_context::{PeerContext, PeerEvent, StrangerPlace};
use crate::watchdog::peer_handshake::{HANDSHAKE_LIMIT, IncomingSeals, PeerLinkFault, admit};
use crate::watchdog::peer_host::PeerHost;
use crate::watchdog::peer_sockets::prepare;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};
use weir_group::{GroupMessage, MESSAGE_BYTES_MAX, MemberId, MessageBytesError};
use weir_wire::frame_seal::{FrameSeal, TAG_BYTES};

/// Most bytes of a frame; a length beyond it closes the link before anything is kept.
const FRAME_BYTES_MAX: usize = MESSAGE_BYTES_MAX + TAG_BYTES;
/// Time for the rest of a frame that began.
const FRAME_LIMIT: Duration = Duration::from_secs(5);
/// After a failure to accept, as when there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
const BUFFER_BYTES: usize = 16 << 10;

/// Never ends. Cancel safe.
pub async fn accept_links(context: Rc<PeerContext>, listener: TcpListener) {
    let mut is_told = false;
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                is_told = false;
                begin(&context, stream, from.ip().to_canonical());
            }
            Err(cause) => {
                if !is_told {
                    context.log.say(Level::Warning, format_args!("watchdog: cannot accept a link: {cause}"));
                    is_told = true;
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn begin(context: &Rc<PeerContext>, stream: TcpStream, from: IpAddr) {
    if !context.settings().may_talk_to(from) {
        context.refuse(from, &PeerLinkFault::NotLoopback);
        return;
    }
    context.add_stranger(|place| context.spawn(receive(context.clone(), stream, from, place)));
}

/// Not cancel safe: the connection is closed.
async fn receive(context: Rc<PeerContext>, mut stream: TcpStream, from: IpAddr, place: StrangerPlace) {
    let settings = context.settings();
    let is_known = |host| context.host(host).is_some();
    let admitted = async {
        prepare(&stream)?;
        admit(&mut stream, settings.key.as_ref(), settings.host, is_known).await
    };
    let admitted = timeout(HANDSHAKE_LIMIT, admitted).await.unwrap_or(Err(PeerLinkFault::Late(HANDSHAKE_LIMIT)));
    drop(place);
    match admitted {
        Ok(seals) => begin_reading(&context, stream, from, seals),
        // Scanners, and hosts that end; those who refuse this host say so themselves.
        Err(PeerLinkFault::Closed | PeerLinkFault::Io(_)) => {}
        Err(fault) => context.refuse(from, &fault),
    }
}

fn begin_reading(context: &Rc<PeerContext>, stream: TcpStream, from: IpAddr, seals: IncomingSeals) {
    let Some(host) = context.host(seals.host) else { return };
    context.forget_refusals(from);
    let link = IncomingLink { host: host.clone(), number: seals.datagrams.number() };
    let task = context.spawn(read_all(context.clone(), stream, seals.frames, link));
    host.add_incoming(seals.datagrams, task);
}

/// A link in its host's list, taken out on drop.
struct IncomingLink {
    host: Rc<PeerHost>,
    number: u64,
}

impl Drop for IncomingLink {
    fn drop(&mut self) {
        self.host.remove_incoming(self.number);
    }
}

/// Cancel safe: the link is closed.
async fn read_all(context: Rc<PeerContext>, stream: TcpStream, mut seal: FrameSeal, link: IncomingLink) {
    let mut stream = BufReader::with_capacity(BUFFER_BYTES, stream);
    let mut last = None;
    let fault = loop {
        match read_message(&mut stream, &mut seal, &link.host).await {
            Ok((message, copy)) => {
                last = Some(message.from);
                if copy == MessageCopy::Later {
                    continue;
                }
                if context.events.send(PeerEvent::Heard(Box::new(message))).await.is_err() {
                    return;
                }
            }
            Err(PeerLinkFault::Message(MessageBytesError::Newer(form))) => {
                link.host.note_refused();
                tell(&context, &link.host, &PeerLinkFault::Message(MessageBytesError::Newer(form)));
            }
            Err(fault) => break fault,
        }
    };
    let host = link.host.clone();
    drop(link);
    match fault {
        PeerLinkFault::Closed => report_end(&context, &host, last).await,
        fault => tell(&context, &host, &fault),
    }
}

fn tell(context: &PeerContext, host: &PeerHost, fault: &PeerLinkFault) {
    let text = fault.to_string();
    if host.is_news(&text, Instant::now()) {
        context.log.say(Level::Warning, format_args!("watchdog: a link from host {}: {text}", host.settings.number));
    }
    host.note_error(text);
}

/// Cancel safe.
async fn report_end(context: &PeerContext, host: &PeerHost, last: Option<MemberId>) {
    if let (Some(member), false) = (last, host.has_incoming()) {
        // An error: nobody listens any more.
        let _ = context.events.send(PeerEvent::LinkClosed { member }).await;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageCopy {
    First,
    /// It came over another path already.
    Later,
}

/// Not cancel safe: a part may be lost.
async fn read_message(
    stream: &mut BufReader<TcpStream>,
    seal: &mut FrameSeal,
    host: &PeerHost,
) -> Result<(GroupMessage, MessageCopy), PeerLinkFault> {
    // Between frames a link may be silent for as long as it likes.
    stream.fill_buf().await.map_err(SealedStreamError::from)?;
    let frame = timeout(FRAME_LIMIT, read_frame(stream, FRAME_BYTES_MAX)).await;
    let payload = frame.map_err(|_| PeerLinkFault::Late(FRAME_LIMIT))??;
    let bytes = seal.open(&payload)?;
    let message = GroupMessage::from_bytes(bytes)?;
    if message.from.host != host.settings.number {
        return Err(PeerLinkFault::OfOther(message.from.host));
    }
    let now = Instant::now();
    host.note_heard(&message, now);
    let copy = if host.is_first(bytes, now) { MessageCopy::First } else { MessageCopy::Later };
    Ok((message, copy))
}
