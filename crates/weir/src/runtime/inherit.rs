//! Listening sockets from systemd, or from the proxy being relieved.

use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::Path;

/// Source: sd_listen_fds(3).
const FIRST: i32 = 3;
const SOCKETS_MAX: i32 = 64;

#[derive(Debug, Default)]
pub struct InheritedSockets {
    tcp: Vec<TcpListener>,
    unix: Vec<UnixListener>,
    /// From systemd: a TCP socket is found by its port, with any address.
    by_port: bool,
}

impl InheritedSockets {
    /// Takes the sockets opened by systemd's socket units.
    ///
    /// Descriptors are duplicated, since safe code cannot own a foreign number; the originals stay open. Child processes get
    /// neither: a PAM module must not hold the port open, or accept clients.
    pub fn from_systemd() -> anyhow::Result<InheritedSockets> {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<i32>().ok());
        let is_ours = number("LISTEN_PID") == i32::try_from(std::process::id()).ok();
        let count = number("LISTEN_FDS").filter(|_| is_ours).unwrap_or(0).clamp(0, SOCKETS_MAX);
        let mut inherited = InheritedSockets { by_port: true, ..InheritedSockets::default() };
        if count == 0 {
            return Ok(inherited);
        }
        let own = pidfd_open(getpid(), PidfdFlags::empty())?;
        for descriptor in FIRST..FIRST + count {
            let socket = pidfd_getfd(&own, descriptor, PidfdGetfdFlags::empty());
            let socket = socket.map_err(|cause| anyhow::anyhow!("socket {descriptor} of LISTEN_FDS: {cause}"))?;
            inherited.add(socket).map_err(|text| anyhow::anyhow!("socket {descriptor} of LISTEN_FDS {text}"))?;
            weir_ring::keep_from_children(&descriptor)
                .map_err(|cause| anyhow::anyhow!("socket {descriptor} of LISTEN_FDS: {cause}"))?;
        }
        Ok(inherited)
    }

    /// Closes descriptors that are no listening sockets.
    pub fn of(descriptors: Vec<OwnedFd>) -> InheritedSockets {
        let mut inherited = InheritedSockets::default();
        for descriptor in descriptors {
            let _ = inherited.add(descriptor);
        }
        inherited
    }

    fn add(&mut self, socket: OwnedFd) -> Result<(), &'static str> {
        let is_stream = socket_type(&socket).is_ok_and(|kind| kind == SocketType::STREAM);
        if !is_stream || !socket_acceptconn(&socket).unwrap_or(false) {
            return Err("is no listening stream socket");
        }
        match socket_domain(&socket) {
            Ok(AddressFamily::UNIX) => self.unix.push(socket.into()),
            Ok(AddressFamily::INET | AddressFamily::INET6) => self.tcp.push(socket.into()),
            Ok(_) | Err(_) => return Err("is neither TCP nor unix"),
        }
        Ok(())
    }

    /// Takes the TCP sockets of this port with any address, in place of the configured addresses.
    pub fn take_port(&mut self, port: u16) -> Vec<TcpListener> {
        if !self.by_port {
            return Vec::new();
        }
        let is_meant = |socket: &mut TcpListener| socket.local_addr().is_ok_and(|address| address.port() == port);
        self.tcp.extract_if(.., is_meant).collect()
    }

    pub fn take_tcp(&mut self, address: SocketAddr) -> Option<TcpListener> {
        let at = self.tcp.iter().position(|socket| socket.local_addr().is_ok_and(|found| found == address))?;
        Some(self.tcp.swap_remove(at))
    }

    pub fn take_unix(&mut self, path: &Path) -> Option<UnixListener> {
        let is_there = |socket: &UnixListener| {
            socket.local_addr().is_ok_and(|address| address.as_pathname().is_some_and(|found| found == path))
        };
        let at = self.unix.iter().position(is_there)?;
        Some(self.unix.swap_remove(at))
    }

    pub fn left(&self) -> usize {
        self.tcp.len() + self.unix.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_found_by_address_port_and_path() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap();
        let path = std::env::temp_dir().join(format!("weir-inherit-{}", std::process::id()));
        let unix = UnixListener::bind(&path).unwrap();
        let plain = std::fs::File::open("/dev/null").unwrap();
        let mut inherited = InheritedSockets::of(vec![tcp.try_clone().unwrap().into(), unix.into(), plain.into()]);
        assert_eq!(inherited.left(), 2, "a file is no socket");
        assert!(inherited.take_port(address.port()).is_empty(), "from another proxy only the very address counts");
        assert!(inherited.take_unix(Path::new("/nowhere")).is_none());
        assert!(inherited.take_unix(&path).is_some());
        assert!(inherited.take_tcp(SocketAddr::from(([127, 0, 0, 1], 1))).is_none());
        assert_eq!(inherited.take_tcp(address).unwrap().local_addr().unwrap(), address);
        let mut systemd = InheritedSockets { by_port: true, ..InheritedSockets::of(vec![tcp.into()]) };
        assert_eq!((systemd.take_port(address.port()).len(), systemd.left()), (1, 0));
        std::fs::remove_file(&path).unwrap();
    }
}
