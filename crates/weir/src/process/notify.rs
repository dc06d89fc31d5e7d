//! Messages to a service manager, one datagram each. Source: sd_notify(3). Without `NOTIFY_SOCKET` none are sent.

use crate::admin::exposition;
use crate::log::Level;
use crate::runtime::shared::SharedState;
use rustix::process::Pid;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

#[derive(Clone, Debug, Default)]
pub struct SystemdNotifier {
    socket: Option<PathBuf>,
    watchdog: Option<Duration>,
    /// The unit has another main process, and what this one says would be refused.
    is_former: Arc<AtomicBool>,
}

impl SystemdNotifier {
    /// Reads the environment. A watchdog for another process is ignored.
    pub fn from_env() -> SystemdNotifier {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let is_ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|us| is_ours && *us > 0).map(Duration::from_micros);
        SystemdNotifier { socket: std::env::var_os("NOTIFY_SOCKET").map(PathBuf::from), watchdog, is_former: Arc::default() }
    }

    pub fn ready(&self) {
        self.send(&format!("READY=1\nMAINPID={}", std::process::id()));
    }

    /// Makes a process of the same unit its main one. This one is silent from then on: its end is not the unit's.
    pub fn hand_over_to(&self, process: Pid) {
        self.send(&format!("MAINPID={}", process.as_raw_nonzero()));
        self.is_former.store(true, Ordering::Release);
    }

    /// Starts a reload; `ready` ends it.
    pub fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let us = now.tv_sec.unsigned_abs() * 1_000_000 + now.tv_nsec.unsigned_abs() / 1000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={us}"));
    }

    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    pub fn status(&self, text: &str) {
        self.send(&format!("STATUS={text}"));
    }

    fn send(&self, text: &str) {
        let Some(path) = self.socket.as_ref().filter(|_| !self.is_former.load(Ordering::Acquire)) else { return };
        // `@` marks an abstract name.
        let address = match path.as_os_str().as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
            _ => SocketAddr::from_pathname(path),
        };
        let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) else { return };
        let _ = socket.send_to_addr(text.as_bytes(), &address);
    }

    pub fn feed_watchdog(&self, shared: &Arc<SharedState>) {
        let Some(limit) = self.watchdog else { return };
        let (notify, shared) = (self.clone(), Arc::downgrade(shared));
        let thread = std::thread::Builder::new().name("watchdog".into());
        let started = thread.spawn(move || {
            while let Some(is_well) = look(&shared) {
                if is_well {
                    notify.send("WATCHDOG=1");
                }
                std::thread::sleep(limit / 2);
            }
        });
        if let Err(cause) = started {
            self.status(&format!("cannot start the watchdog's thread: {cause}"));
        }
    }
}

/// `None`: the proxy has ended.
fn look(shared: &Weak<SharedState>) -> Option<bool> {
    let shared = shared.upgrade()?;
    match exposition::health(&shared) {
        Ok(()) => Some(true),
        Err(why) => {
            shared.log.say(Level::Error, format_args!("the watchdog is not told that all is well: {why}"));
            Some(false)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_sent(path: PathBuf, listener: &UnixDatagram) {
        let notify = SystemdNotifier { socket: Some(path), ..SystemdNotifier::default() };
        notify.stopping();
        let mut buffer = [0; 200];
        let bytes = listener.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..bytes], b"STOPPING=1");
        notify.reloading();
        let bytes = listener.recv(&mut buffer).unwrap();
        assert!(buffer[..bytes].starts_with(b"RELOADING=1\nMONOTONIC_USEC="));
        notify.hand_over_to(Pid::INIT);
        notify.clone().stopping();
        let bytes = listener.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..bytes], b"MAINPID=1");
        listener.set_nonblocking(true).unwrap();
        assert!(listener.recv(&mut buffer).is_err(), "a former main process says nothing");
    }

    #[test]
    fn messages_reach_sockets_with_and_without_a_folder() {
        let path = std::env::temp_dir().join(format!("weir-notify-{}", std::process::id()));
        let listener = UnixDatagram::bind(&path).unwrap();
        check_sent(path.clone(), &listener);
        std::fs::remove_file(&path).unwrap();
        let name = format!("weir-notify-{}", std::process::id());
        let listener = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        check_sent(PathBuf::from(format!("@{name}")), &listener);
        SystemdNotifier::default().ready();
    }
}
