//! What others may know of a session: read by SHOW commands, never by the session's own path.

use parking_lot::Mutex;
use std::collections::HashMap;
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
    /// Host and port, or `[local]` and nothing.
    pub client_host: Box<str>,
    pub client_port: u16,
    /// The address it reached us by; empty if not known.
    pub local_host: Box<str>,
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
#[derive(Clone, Debug)]
pub struct Ends {
    /// `[local]` for a unix socket.
    pub client_host: Box<str>,
    /// 0 for a unix socket.
    pub client_port: u16,
    /// Empty if not known.
    pub local_host: Box<str>,
}

impl Card {
    pub fn new(pid: u32, user: Arc<str>, database: Arc<str>, application: &str, ends: Ends, connected_at_s: u64) -> Card {
        Card {
            pid,
            user,
            database,
            application: application.into(),
            client_host: ends.client_host,
            client_port: ends.client_port,
            local_host: ends.local_host,
            connected_at_s,
            doing: AtomicU8::new(Doing::Idle as u8),
            favourite: AtomicU32::new(u32::MAX),
            statements: AtomicU64::new(0),
            active_ms: AtomicU64::new(0),
            waiting_ms: AtomicU64::new(0),
            prepared: AtomicU32::new(0),
        }
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
