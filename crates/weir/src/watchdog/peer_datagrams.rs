//! Small messages as datagrams over every path of a host: losing one of two networks, or TCP alone, changes nothing.

use crate::watchdog::peer_context::{PeerContext, PeerEvent};
use crate::watchdog::peer_host::{PeerHost, open_datagram};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep};
use weir_group::GroupMessage;

/// Longest datagram that is read: all small messages of today and to come fit below the smallest MTU of IPv6.
const DATAGRAM_BYTES_MAX: usize = 1232;
const RECEIVE_PAUSE: Duration = Duration::from_millis(200);

/// Sends copies of one datagram to all addresses of a host. Never waits: a socket that takes none loses it.
pub fn send_datagram(context: &PeerContext, host: &PeerHost, datagram: &[u8]) {
    let settings = context.settings();
    let senders = context.datagram_senders.borrow();
    for place in &host.datagram_places {
        // A name without addresses is told of by its lookup.
        let addresses = context.names.addresses(&place.name).unwrap_or_default();
        for address in addresses.into_iter().filter(|address| settings.may_talk_to(*address)) {
            let to = SocketAddr::new(address, place.port);
            let sender = senders.iter().find(|sender| sender.is_ipv4 == address.is_ipv4());
            if sender.is_none_or(|sender| sender.socket.try_send_to(datagram, to).is_err()) {
                host.drop_messages(1);
            }
        }
    }
}

/// Never ends. Cancel safe.
pub async fn receive_datagrams(context: Rc<PeerContext>, socket: UdpSocket) {
    // One byte more shows that a datagram was longer.
    let mut buffer = [0; DATAGRAM_BYTES_MAX + 1];
    loop {
        match socket.recv_from(&mut buffer).await {
            Ok((bytes, from)) if bytes <= DATAGRAM_BYTES_MAX => {
                take(&context, buffer.get(..bytes).unwrap_or_default(), from.ip())
            }
            Ok(_) => {}
            Err(_) => sleep(RECEIVE_PAUSE).await,
        }
    }
}

/// Nothing is told of a bad datagram but by a count: anybody can send them under any address.
fn take(context: &PeerContext, datagram: &[u8], from: IpAddr) {
    if !context.settings().may_talk_to(from) {
        return;
    }
    let hosts = context.hosts();
    let Ok((host, body)) = open_datagram(&hosts, datagram) else { return };
    let message = GroupMessage::from_bytes(body).ok().filter(|message| message.from.host == host.settings.number);
    drop(hosts);
    let Some(message) = message else {
        host.note_refused();
        return;
    };
    let now = Instant::now();
    host.note_heard(&message, now);
    // A receiver that is behind loses it, as the network might have; the copy of a link waits for room.
    if context.events.capacity() > 0 && !host.is_first(body, now) {
        return;
    }
    if context.events.try_send(PeerEvent::Heard(Box::new(message))).is_err() {
        context.overflow.set(context.overflow.get() + 1);
    }
}
