//! What others may know of a session: read by SHOW commands, never by the session's own path.

use foldhash::HashMap;
use parking_lot::Mutex;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// What a session is doing. Names as in Pgpool's `SHOW pool_processes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Doing {
    Idle,
    IdleInTransaction,
    Executing,
    WaitingForConnection,
}

impl Doing {
    pub fn name(self) -> &'static str {
        match self {
            Doing::Idle => "Idle",
            Doing::IdleInTransaction => "Idle in transaction",
            Doing::Executing => "Execute command",
            Doing::WaitingForConnection => "Wait for connection",
        }
    }
}

/// One session as others see it.
#[derive(Debug)]
pub struct Card {
    /// The process id the client was told.
    pub pid: u32,
    pub user: Arc<str>,
    pub database: Arc<str>,
    pub application: Box<str>,
    ends: Ends,
    /// Seconds since 1970.
    pub connected_at_s: u64,
    doing: AtomicU8,
    /// Id of the node its reads prefer; `u32::MAX`: none yet.
    pub favourite: AtomicU32,
    /// Messages a statement began with (Query, Execute).
    pub statements: AtomicU64,
    /// Begin of its last statement, in milliseconds since the start of the proxy.
    pub active_ms: AtomicU64,
    /// Begin of its wait for a server connection, in milliseconds since the start of the proxy.
    pub waiting_ms: AtomicU64,
    /// Statements it has prepared by the protocol.
    pub prepared: AtomicU32,
}

/// The two ends of a client's connection.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// None for a unix socket.
    pub client: Option<SocketAddr>,
    /// The address it reached us by, if known.
    pub local: Option<IpAddr>,
}

impl Card {
    pub fn new(pid: u32, user: Arc<str>, database: Arc<str>, application: &str, ends: Ends, connected_at_s: u64) -> Card {
        Card {
            pid,
            user,
            database,
            application: application.into(),
            ends,
            connected_at_s,
            doing: AtomicU8::new(Doing::Idle as u8),
            favourite: AtomicU32::new(u32::MAX),
            statements: AtomicU64::new(0),
            active_ms: AtomicU64::new(0),
            waiting_ms: AtomicU64::new(0),
            prepared: AtomicU32::new(0),
        }
    }

    /// `[local]` for a unix socket.
    pub fn client_host(&self) -> String {
        self.ends.client.map_or_else(|| "[local]".to_string(), |client| client.ip().to_string())
    }

    /// 0 for a unix socket.
    pub fn client_port(&self) -> u16 {
        self.ends.client.map_or(0, |client| client.port())
    }

    /// The address it reached us by; empty if not known.
    pub fn local_host(&self) -> String {
        self.ends.local.map(|ip| ip.to_string()).unwrap_or_default()
    }

    #[inline]
    pub fn set_doing(&self, doing: Doing) {
        self.doing.store(doing as u8, Ordering::Relaxed);
    }

    pub fn doing(&self) -> Doing {
        match self.doing.load(Ordering::Relaxed) {
            0 => Doing::Idle,
            1 => Doing::IdleInTransaction,
            2 => Doing::Executing,
            _ => Doing::WaitingForConnection,
        }
    }
}

/// The cards of all sessions.
#[derive(Debug, Default)]
pub struct Cards {
    cards: Mutex<HashMap<u32, Arc<Card>>>,
}

impl Cards {
    pub fn add(&self, card: Arc<Card>) {
        self.cards.lock().insert(card.pid, card);
    }

    pub fn remove(&self, pid: u32) {
        self.cards.lock().remove(&pid);
    }

    pub fn get(&self, pid: u32) -> Option<Arc<Card>> {
        self.cards.lock().get(&pid).cloned()
    }

    /// All, by number.
    pub fn all(&self) -> Vec<Arc<Card>> {
        let mut all: Vec<_> = self.cards.lock().values().cloned().collect();
        all.sort_by_key(|card| card.pid);
        all
    }
}
