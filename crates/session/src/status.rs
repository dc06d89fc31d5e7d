//! Facts of a session for SHOW commands; the session itself never reads them.

use foldhash::HashMap;
use parking_lot::Mutex;
use std::net::{IpAddr, SocketAddr};
use std::ops::{Deref, RangeInclusive};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Names as in Pgpool's `SHOW pool_processes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SessionActivity {
    Idle,
    IdleInTransaction,
    Executing,
    WaitingForConnection,
}

impl SessionActivity {
    pub fn name(self) -> &'static str {
        match self {
            SessionActivity::Idle => "Idle",
            SessionActivity::IdleInTransaction => "Idle in transaction",
            SessionActivity::Executing => "Execute command",
            SessionActivity::WaitingForConnection => "Wait for connection",
        }
    }
}

#[derive(Debug)]
pub struct SessionStatus {
    pub pid: u32,
    pub worker: u8,
    whose: Arc<ClientIdentity>,
    pub application: Arc<str>,
    ends: ClientEndpoints,
    /// Seconds since 1970; `u32` lasts until 2106.
    connected_at_s: u32,
    doing: AtomicU8,
    /// `u32::MAX`: no node yet.
    pub favourite: AtomicU32,
    pub statements: AtomicU64,
    /// Begin of the last statement, in milliseconds since the proxy's start.
    pub active_ms: AtomicU64,
    /// Begin of the wait for a server connection; unit as above.
    pub waiting_ms: AtomicU64,
    pub prepared: AtomicU32,
}

#[derive(Clone, Copy, Debug)]
pub struct ClientEndpoints {
    /// None for a unix socket.
    pub client: Option<SocketAddr>,
    pub local: Option<IpAddr>,
}

#[derive(Clone, Copy, Debug)]
pub struct SessionPid {
    pub pid: u32,
    pub worker: u8,
}

/// Above the process ids of Linux (at most 4194304), and positive as an `int4`.
const PIDS: RangeInclusive<u32> = (1 << 22) + 1..=i32::MAX as u32;

fn next_pid(last: u32) -> u32 {
    last.checked_add(1).filter(|pid| PIDS.contains(pid)).unwrap_or(*PIDS.start())
}

/// Names of a client and its server connections, shared by user and database on a worker.
#[derive(Debug)]
pub struct ClientIdentity {
    pub user: Arc<str>,
    /// The database as the client named it: see `config::databases`.
    pub database: Arc<str>,
    pub server_user: Arc<str>,
    pub server_database: Arc<str>,
}

impl Deref for SessionStatus {
    type Target = ClientIdentity;

    fn deref(&self) -> &ClientIdentity {
        &self.whose
    }
}

impl SessionStatus {
    pub fn new(
        number: SessionPid,
        whose: Arc<ClientIdentity>,
        application: Arc<str>,
        ends: ClientEndpoints,
        connected_at_s: u64,
    ) -> SessionStatus {
        SessionStatus {
            pid: number.pid,
            worker: number.worker,
            whose,
            application,
            ends,
            connected_at_s: u32::try_from(connected_at_s).unwrap_or(u32::MAX),
            doing: AtomicU8::new(SessionActivity::Idle as u8),
            favourite: AtomicU32::new(u32::MAX),
            statements: AtomicU64::new(0),
            active_ms: AtomicU64::new(0),
            waiting_ms: AtomicU64::new(0),
            prepared: AtomicU32::new(0),
        }
    }

    pub fn connected_at_s(&self) -> u64 {
        self.connected_at_s.into()
    }

    /// `[local]` for a unix socket.
    pub fn client_host(&self) -> String {
        self.ends.client.map_or_else(|| "[local]".to_string(), |client| client.ip().to_string())
    }

    /// 0 for a unix socket.
    pub fn client_port(&self) -> u16 {
        self.ends.client.map_or(0, |client| client.port())
    }

    /// Empty if unknown.
    pub fn local_host(&self) -> String {
        self.ends.local.map(|ip| ip.to_string()).unwrap_or_default()
    }

    #[inline]
    pub fn set_doing(&self, doing: SessionActivity) {
        self.doing.store(doing as u8, Ordering::Relaxed);
    }

    pub fn doing(&self) -> SessionActivity {
        match self.doing.load(Ordering::Relaxed) {
            0 => SessionActivity::Idle,
            1 => SessionActivity::IdleInTransaction,
            2 => SessionActivity::Executing,
            _ => SessionActivity::WaitingForConnection,
        }
    }
}

/// The console's SUSPEND: no session begins a statement.
#[derive(Debug, Default)]
pub struct Suspension(AtomicBool);

impl Suspension {
    /// The console wakes all workers after a change.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub fn begin(&self) -> bool {
        !self.0.swap(true, Ordering::SeqCst)
    }

    pub fn end(&self) -> bool {
        self.0.swap(false, Ordering::SeqCst)
    }
}

#[derive(Debug)]
pub struct SessionStatuses {
    pub suspension: Suspension,
    statuses: Mutex<HashMap<u32, Arc<SessionStatus>>>,
    last: Mutex<u32>,
}

impl SessionStatuses {
    /// `seed`: the first process id, so that ids rarely repeat those before a restart or of another proxy.
    pub fn new(seed: u32) -> SessionStatuses {
        let last = PIDS.start() + seed % (PIDS.end() - PIDS.start());
        SessionStatuses { statuses: Mutex::default(), last: Mutex::new(last), suspension: Suspension::default() }
    }

    /// Returns an unused process id, reused after two billion others.
    pub fn next_pid(&self) -> u32 {
        let mut last = self.last.lock();
        loop {
            *last = next_pid(*last);
            if !self.statuses.lock().contains_key(&last) {
                return *last;
            }
        }
    }

    pub fn add(&self, status: Arc<SessionStatus>) {
        self.statuses.lock().insert(status.pid, status);
    }

    pub fn remove(&self, pid: u32) {
        self.statuses.lock().remove(&pid);
    }

    pub fn get(&self, pid: u32) -> Option<Arc<SessionStatus>> {
        self.statuses.lock().get(&pid).cloned()
    }

    pub fn all(&self) -> Vec<Arc<SessionStatus>> {
        let mut all: Vec<_> = self.statuses.lock().values().cloned().collect();
        all.sort_by_key(|status| status.pid);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(client: Option<&str>) -> SessionStatus {
        let whose = Arc::new(ClientIdentity {
            user: "a".into(),
            database: "a".into(),
            server_user: "a".into(),
            server_database: "a".into(),
        });
        let ends = ClientEndpoints { client: client.map(|client| client.parse().unwrap()), local: None };
        SessionStatus::new(SessionPid { pid: 1, worker: 0 }, whose, "".into(), ends, 0)
    }

    #[test]
    fn a_client_is_shown_by_its_address_and_one_of_a_socket_file_as_local() {
        let shown = |client| (status(client).client_host(), status(client).client_port());
        assert_eq!(shown(Some("192.0.2.7:40000")), ("192.0.2.7".into(), 40_000));
        assert_eq!(shown(None), ("[local]".into(), 0));
    }

    #[test]
    fn a_process_id_is_above_those_of_processes_and_positive_as_an_int4() {
        assert_eq!(next_pid(5_000_000), 5_000_001);
        assert_eq!([0, i32::MAX as u32, u32::MAX].map(next_pid), [4_194_305; 3]);
        for seed in [0, 1, u32::MAX] {
            let statuses = SessionStatuses::new(seed);
            let (one, two) = (statuses.next_pid(), statuses.next_pid());
            assert!(PIDS.contains(&one) && PIDS.contains(&two) && one != two, "{seed}");
        }
    }

    #[test]
    fn a_process_id_that_a_session_has_is_not_given_again() {
        let statuses = SessionStatuses::new(0);
        let ends = ClientEndpoints { client: None, local: None };
        let taken = next_pid(*statuses.last.lock());
        let whose = Arc::new(ClientIdentity {
            user: "a".into(),
            database: "a".into(),
            server_user: "a".into(),
            server_database: "a".into(),
        });
        statuses.add(Arc::new(SessionStatus::new(SessionPid { pid: taken, worker: 0 }, whose, "".into(), ends, 0)));
        assert_eq!(statuses.next_pid(), taken + 1);
    }
}
