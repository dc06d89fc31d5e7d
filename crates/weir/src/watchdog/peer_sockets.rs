//! Sockets of the links: where this host listens, and the options of connections.

use crate::watchdog::peer_settings::PeerSettings;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UdpSocket};

/// A dead path is noticed within three to four seconds, idle or not.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(1);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(1);
const KEEPALIVE_RETRIES: u32 = 3;
const USER_TIMEOUT: Duration = Duration::from_secs(3);
/// Room for one largest message: more would only grow old there while the other side does not read.
const BUFFER_BYTES: usize = 256 << 10;
/// Other hosts connect about once a second.
const BACKLOG: i32 = 64;

#[derive(Debug, thiserror::Error)]
pub enum PeerLinkError {
    #[error(
        "cannot listen for other hosts of the watchdog on {place}: {cause}; see wd_port, wd_listen_address and wd_listen_port"
    )]
    Listen { place: SocketAddr, cause: io::Error },
    #[error(
        "cannot listen for heartbeats on {place}: {cause}; see heartbeat_port, wd_heartbeat_listen_addresses and wd_heartbeat_listen_port"
    )]
    ListenDatagrams { place: SocketAddr, cause: io::Error },
    #[error("without wd_authkey the watchdog listens on loopback only, not on {place}: set wd_authkey")]
    NotLoopback { place: SocketAddr },
}

/// A socket that sends to all addresses of its family.
pub struct FamilySocket {
    pub socket: UdpSocket,
    pub is_ipv4: bool,
}

pub struct PeerSockets {
    pub listeners: Vec<TcpListener>,
    pub datagrams: Vec<UdpSocket>,
    /// One for each family: the system chooses the sender's address by the route.
    pub senders: Vec<FamilySocket>,
}

/// Opens all places. A machine without IPv6 (or IPv4) does without it where the configuration names no address.
pub fn open(settings: &PeerSettings) -> Result<PeerSockets, PeerLinkError> {
    let (places, datagram_places) = (settings.listen_places(), settings.datagram_places());
    let outside = places.iter().chain(&datagram_places).find(|place| !settings.may_talk_to(place.ip()));
    if let Some(place) = outside {
        return Err(PeerLinkError::NotLoopback { place: *place });
    }
    let listeners = open_each(&places, settings.listen_addresses.is_empty(), listen);
    let listeners = listeners.map_err(|(place, cause)| PeerLinkError::Listen { place, cause })?;
    let datagrams = open_each(&datagram_places, settings.datagram_addresses.is_empty(), bind_datagrams);
    let datagrams = datagrams.map_err(|(place, cause)| PeerLinkError::ListenDatagrams { place, cause })?;
    let senders = open_each(&settings.sender_places(), true, bind_sender);
    let senders = senders.map_err(|(place, cause)| PeerLinkError::ListenDatagrams { place, cause })?;
    Ok(PeerSockets { listeners, datagrams, senders })
}

fn open_each<T>(
    places: &[SocketAddr],
    is_default: bool,
    open: impl Fn(SocketAddr) -> io::Result<T>,
) -> Result<Vec<T>, (SocketAddr, io::Error)> {
    let (mut opened, mut lacking) = (Vec::new(), None);
    for place in places {
        match open(*place) {
            Ok(socket) => opened.push(socket),
            Err(cause) if is_default && is_lack_of_family(&cause) => lacking = Some((*place, cause)),
            Err(cause) => return Err((*place, cause)),
        }
    }
    match lacking {
        Some(lacking) if opened.is_empty() => Err(lacking),
        Some(_) | None => Ok(opened),
    }
}

fn is_lack_of_family(cause: &io::Error) -> bool {
    let no_family = rustix::io::Errno::AFNOSUPPORT.raw_os_error();
    cause.kind() == io::ErrorKind::AddrNotAvailable || cause.raw_os_error() == Some(no_family)
}

fn socket(place: SocketAddr, kind: Type, protocol: Protocol) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(place), kind.nonblocking().cloexec(), Some(protocol))?;
    if place.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    Ok(socket)
}

fn listen(place: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket(place, Type::STREAM, Protocol::TCP)?;
    socket.set_reuse_address(true)?;
    // Accepted connections inherit it.
    socket.set_recv_buffer_size(BUFFER_BYTES)?;
    socket.bind(&place.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

fn bind_datagrams(place: SocketAddr) -> io::Result<UdpSocket> {
    let socket = socket(place, Type::DGRAM, Protocol::UDP)?;
    socket.bind(&place.into())?;
    UdpSocket::from_std(socket.into())
}

fn bind_sender(place: SocketAddr) -> io::Result<FamilySocket> {
    Ok(FamilySocket { socket: bind_datagrams(place)?, is_ipv4: place.is_ipv4() })
}

/// Cancel safe.
pub async fn connect(place: SocketAddr) -> io::Result<TcpStream> {
    let socket = if place.is_ipv6() { tokio::net::TcpSocket::new_v6()? } else { tokio::net::TcpSocket::new_v4()? };
    socket.set_send_buffer_size(BUFFER_BYTES as u32)?;
    let stream = socket.connect(place).await?;
    prepare(&stream)?;
    Ok(stream)
}

/// Options of a connection, whoever began it.
pub fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let keepalive =
        TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL).with_retries(KEEPALIVE_RETRIES);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(USER_TIMEOUT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_notices_within_seconds_that_its_path_is_dead() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let (connected, accepted) = tokio::join!(connect(listener.local_addr().unwrap()), listener.accept());
        let accepted = accepted.unwrap().0;
        prepare(&accepted).unwrap();
        for stream in [connected.unwrap(), accepted] {
            let socket = SockRef::from(&stream);
            assert!(socket.keepalive().unwrap() && socket.tcp_nodelay().unwrap());
            let times = (socket.tcp_keepalive_time().unwrap(), socket.tcp_keepalive_interval().unwrap());
            assert_eq!(times, (KEEPALIVE_IDLE, KEEPALIVE_INTERVAL));
            assert_eq!(socket.tcp_user_timeout().unwrap(), Some(USER_TIMEOUT));
        }
    }
}
