//! The only things two threads see. Passed as an argument; nothing here is a `static`.

use crate::log::Log;
use crate::metrics::Counters;
use crate::pool::Pools;
use crate::reactor::TaskId;
use crate::session_card::Cards;
use crate::socket::Ticket;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::SystemTime;
use weir_policy::by_sql::BySql;
use weir_policy::cluster::ClusterView;
use weir_policy::config::Config;
use weir_policy::passwd::Passwords;
use weir_policy::settings::Settings;

/// Number of a worker thread.
pub type WorkerId = u8;

/// Fewer interned settings than this are never swept.
const SETTINGS_SWEEP_MIN: usize = 1024;

/// How the proxy ends. Source: Pgpool-II `-m` modes, PostgreSQL's signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Stop {
    No,
    /// No new clients; those connected may finish.
    Smart,
    /// Clients are told and disconnected.
    Fast,
    /// At once.
    Immediate,
}

/// What one thread tells a worker.
pub enum Message {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
    Wake(TaskId),
    /// Let go of a link's socket, which goes to another worker's event loop; wake the task there that waits for it.
    Release {
        ticket: Ticket,
        worker: WorkerId,
        task: TaskId,
    },
    Cancel {
        pid: u32,
        key: Vec<u8>,
    },
    /// Configuration or cluster view changed.
    Refresh,
    Stop,
}

/// The way to a worker from other threads.
pub struct Mailbox {
    waker: mio::Waker,
    messages: Mutex<Vec<Message>>,
    /// Sessions of that worker, to place new ones evenly.
    pub sessions: AtomicU32,
}

impl Mailbox {
    pub fn new(waker: mio::Waker) -> Mailbox {
        Mailbox { waker, messages: Mutex::default(), sessions: AtomicU32::new(0) }
    }

    pub fn send(&self, message: Message) {
        self.messages.lock().push(message);
        // A worker that cannot be woken has ended; what it was told no longer matters.
        let _ = self.waker.wake();
    }

    pub fn take(&self) -> Vec<Message> {
        std::mem::take(&mut *self.messages.lock())
    }
}

/// Everything shared by the threads of one proxy.
pub struct Shared {
    pub config: ArcSwap<Config>,
    pub config_path: Option<PathBuf>,
    /// Given on the command line, to be used again at reload.
    pub passwords: ArcSwap<Passwords>,
    /// Moves when the passwords were read again: links opened with older ones are closed instead of used, since they prove nothing
    /// about who may log in now.
    pub passwords_generation: AtomicU64,
    pub view: ArcSwap<ClusterView>,
    pub mailboxes: Vec<Mailbox>,
    pub pools: Pools,
    pub cards: Cards,
    pub counters: Vec<Counters>,
    pub log: Log,
    /// Clients connected, over all workers.
    pub clients: AtomicU32,
    pub stop: AtomicU8,
    pub started_at: SystemTime,
    /// Wipes the difference between users that exist and those that do not; new at each start.
    pub salt_secret: [u8; 32],
    /// The set of statements prepared by SQL that has none.
    pub no_statements: Arc<BySql>,
    /// Kinds of state, as `Kept::code`, of which the log has said that they keep server connections.
    pub kept_told: AtomicU32,
    settings: Mutex<HashMap<Arc<Settings>, u64>>,
    /// Interned settings at which those nobody uses are dropped.
    settings_sweep_at: AtomicUsize,
    settings_made: AtomicU64,
    /// Someone saw a reason to ask the servers for their roles before the time.
    pub nudged: AtomicBool,
    /// Task of worker 0 that asks the servers for their roles.
    pub prober: AtomicU32,
}

impl Shared {
    pub fn new(
        config: Config,
        config_path: Option<PathBuf>,
        passwords: Passwords,
        mailboxes: Vec<Mailbox>,
        salt_secret: [u8; 32],
    ) -> Shared {
        let now = SystemTime::now();
        let view = ClusterView::new(&config, None, seconds(now));
        let log = Log::new(config.log.min_messages, &config.log.line_prefix);
        let counters = mailboxes.iter().map(|_| Counters::default()).collect();
        Shared {
            view: ArcSwap::from_pointee(view),
            config: ArcSwap::from_pointee(config),
            config_path,
            passwords: ArcSwap::from_pointee(passwords),
            passwords_generation: AtomicU64::new(0),
            mailboxes,
            pools: Pools::default(),
            cards: Cards::default(),
            counters,
            log,
            clients: AtomicU32::new(0),
            stop: AtomicU8::new(Stop::No as u8),
            started_at: now,
            salt_secret,
            no_statements: Arc::default(),
            kept_told: AtomicU32::new(0),
            settings: Mutex::default(),
            settings_sweep_at: AtomicUsize::new(SETTINGS_SWEEP_MIN),
            settings_made: AtomicU64::new(0),
            nudged: AtomicBool::new(false),
            prober: AtomicU32::new(crate::reactor::NO_TASK),
        }
    }

    /// One `Settings` for all sessions that asked for the same, and its number, never given twice. Those nobody uses are dropped as
    /// new ones come.
    pub fn intern_settings(&self, settings: Settings) -> (Arc<Settings>, u64) {
        let mut known = self.settings.lock();
        if let Some((found, number)) = known.get_key_value(&settings) {
            return (found.clone(), *number);
        }
        if known.len() >= self.settings_sweep_at.load(Ordering::Relaxed) {
            known.retain(|settings, _| Arc::strong_count(settings) > 1);
            self.settings_sweep_at.store((known.len() * 2).max(SETTINGS_SWEEP_MIN), Ordering::Relaxed);
        }
        let settings = Arc::new(settings);
        let number = self.settings_made.fetch_add(1, Ordering::Relaxed);
        known.insert(settings.clone(), number);
        (settings, number)
    }

    pub fn stop_mode(&self) -> Stop {
        match self.stop.load(Ordering::Relaxed) {
            0 => Stop::No,
            1 => Stop::Smart,
            2 => Stop::Fast,
            _ => Stop::Immediate,
        }
    }

    /// Asks for the roles of all servers to be looked at now.
    pub fn nudge_prober(&self) {
        self.nudged.store(true, Ordering::Relaxed);
        let task = self.prober.load(Ordering::Relaxed);
        if let Some(mailbox) = self.mailboxes.first() {
            mailbox.send(Message::Wake(task));
        }
    }

    /// Tells all workers.
    pub fn tell_all(&self, message: fn() -> Message) {
        for mailbox in &self.mailboxes {
            mailbox.send(message());
        }
    }
}

/// Seconds since 1970.
pub fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
