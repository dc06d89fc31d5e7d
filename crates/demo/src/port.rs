//! Ports nobody else takes while we hold them.
//!
//! Asking the system for "any free port" and closing it again hands the same port to two test processes now and then.
//! So a port is reserved twice: it must be free on 127.0.0.1 now, and an abstract unix socket with its number in the
//! name is held as long as we want the port. Such a name leaves no file and vanishes with its process.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// First port we hand out; the ones below are where people run things by hand.
const FIRST: u16 = 20_000;
/// How many ports we look at. The range ends below 32768, where Linux takes the ports of outgoing connections from.
const COUNT: u16 = 12_000;
/// Ports set apart for one process before it meets those of the next; only saves tries, the lock decides.
const STEP: u32 = 37;

/// A process that another thread has forked may still hold a port just given back. At its exec it loses our sockets. That takes
/// milliseconds, so a port in use is looked at again for this long.
const FORK_LIMIT: Duration = Duration::from_millis(500);
const FORK_PAUSE: Duration = Duration::from_millis(5);

/// A port on 127.0.0.1 that no other user of this crate is given until this value is dropped.
#[derive(Debug)]
pub struct ReservedPort {
    port: u16,
    _name: UnixListener,
}

impl ReservedPort {
    /// Any free port.
    pub fn any() -> Result<ReservedPort> {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        let start = process::id().wrapping_mul(STEP) % u32::from(COUNT);
        for _ in 0..COUNT {
            let offset = (start + u32::from(NEXT.fetch_add(1, Ordering::Relaxed))) % u32::from(COUNT);
            let offset = u16::try_from(offset).context("the range of ports is longer than 65535")?;
            if let Ok(port) = ReservedPort::take(FIRST + offset) {
                return Ok(port);
            }
        }
        bail!("none of the {COUNT} ports from {FIRST} on is free")
    }

    /// This very port. Error: something listens there, or another process has reserved it.
    pub fn exactly(port: u16) -> Result<ReservedPort> {
        let start = Instant::now();
        loop {
            match ReservedPort::take(port) {
                Err(_) if start.elapsed() < FORK_LIMIT => thread::sleep(FORK_PAUSE),
                result => return result,
            }
        }
    }

    fn take(port: u16) -> Result<ReservedPort> {
        let name = SocketAddr::from_abstract_name(format!("weir-port-{port}"))?;
        let name = UnixListener::bind_addr(&name).with_context(|| format!("port {port} is reserved already"))?;
        TcpListener::bind(("127.0.0.1", port)).with_context(|| format!("port {port} is in use"))?;
        Ok(ReservedPort { port, _name: name })
    }

    /// The number.
    pub fn number(&self) -> u16 {
        self.port
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once_and_is_free_again_after_use() {
        let first = ReservedPort::any().unwrap();
        let second = ReservedPort::any().unwrap();
        assert_ne!(first.number(), second.number());
        assert!(ReservedPort::exactly(first.number()).is_err());
        let number = first.number();
        drop(first);
        assert_eq!(ReservedPort::exactly(number).unwrap().number(), number);
    }

    #[test]
    fn a_port_where_something_listens_is_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let error = ReservedPort::exactly(port).unwrap_err();
        assert_eq!(error.to_string(), format!("port {port} is in use"));
    }
}
