//! The only things two threads see. Passed as an argument; nothing here is a `static`.

use crate::client::access::{Access, AccessFiles};
use crate::client::client_limits::Seats;
use crate::client::session_status::Cards;
use crate::control::mail::{ControlMail, Nudge, Order};
use crate::monitor::log::{Level, Log};
use crate::monitor::metrics::Counters;
use crate::monitor::pause_state::PauseState;
use crate::monitor::probes::Probes;
use crate::monitor::stats::Table;
use crate::process::tls_files::TlsFiles;
use crate::server::cached_results::CachedResults;
use crate::server::catalogs::{Catalogs, Database};
use crate::server::pool::Pools;
use crate::server::pool::server_conn::ServerConn;
use crate::server::positions::Positions;
use crate::server::suspects::Suspects;
use arc_swap::ArcSwap;
use foldhash::HashMap;
use parking_lot::Mutex;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};
use weir_config::Config;
use weir_config::passwd::Secret;
use weir_io::reactor::TaskId;
use weir_io::socket::Ticket;
use weir_policy::by_sql::BySql;
use weir_policy::cluster::ClusterView;
use weir_policy::roles::Roles;
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

/// Message of one thread to a worker.
pub enum Message {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
    Wake(TaskId),
    /// Let go of a server connection's socket, which goes to another worker's event loop; wake the task there that waits for it.
    Release {
        ticket: Ticket,
        worker: WorkerId,
        task: TaskId,
    },
    Cancel {
        pid: u32,
        key: Vec<u8>,
    },
    /// Cancel this session's statement; the asker has the right to.
    Interrupt(u32),
    /// Configuration or cluster view changed.
    Refresh,
    Stop,
    Kill(Victim),
    /// All databases are to be paused, or to go on.
    Pause,
    Resume,
    /// Another process accepts clients from now on.
    CloseDoors,
    /// A server connection in that worker's event loop that is to be closed.
    Close(Box<ServerConn>),
}

/// Whom an administrator wants gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Victim {
    Client(u32),
    Database(Arc<str>),
    /// The sessions that a user began by then.
    User {
        user: Arc<str>,
        until_ms: u64,
    },
    All,
}

/// The way to a worker from other threads.
pub struct Mailbox {
    waker: mio::Waker,
    messages: Mutex<Vec<Message>>,
    /// Sessions of that worker, to place new ones evenly.
    pub sessions: AtomicU32,
    /// When that worker last kept house, in milliseconds since the start of the proxy: one that is stuck does not.
    pub beat_ms: AtomicU64,
}

impl Mailbox {
    pub fn new(waker: mio::Waker) -> Mailbox {
        Mailbox { waker, messages: Mutex::default(), sessions: AtomicU32::new(0), beat_ms: AtomicU64::new(0) }
    }

    pub fn send(&self, message: Message) {
        self.messages.lock().push(message);
        // A worker that cannot be woken has ended; its messages no longer matter.
        let _ = self.waker.wake();
    }

    pub fn take(&self) -> Vec<Message> {
        std::mem::take(&mut *self.messages.lock())
    }
}

/// Reads the configuration and the passwords again, and takes them. Says which parameters need a restart. Error: why nothing changed.
pub type Reader = Box<dyn Fn(&Shared) -> Result<Vec<String>, String> + Send + Sync>;

/// Everything shared by the threads of one proxy.
pub struct Shared {
    pub config: ArcSwap<Config>,
    pub config_path: Option<PathBuf>,
    pub access: Access,
    /// Keys and certificates.
    pub tls: ArcSwap<TlsFiles>,
    pub view: ArcSwap<ClusterView>,
    pub positions: Positions,
    /// Nodes that reads keep away from.
    pub suspects: Suspects,
    /// Answers kept, if there is a cache.
    pub answers: Option<Arc<CachedResults>>,
    pub mailboxes: Vec<Mailbox>,
    pub pools: Pools,
    /// The roles that the names of users stand for.
    pub roles: Mutex<Roles>,
    /// Knowledge of the databases.
    pub catalogs: Catalogs,
    pub cards: Cards,
    /// Clients by user, database and address.
    pub seats: Seats,
    /// Databases an administrator closed.
    pub pause_state: PauseState,
    /// One set for each worker, and the last one for the control thread.
    pub counters: Vec<Counters>,
    /// Nodes' answers to questions for their roles.
    pub probes: Probes,
    /// Numbers by user and database.
    pub stats: Table,
    pub log: Log,
    /// Clients connected, over all workers.
    pub clients: AtomicU32,
    /// Administrators among them.
    pub consoles: AtomicU32,
    /// Another process has taken over, or is about to: no more clients are accepted, and the accepted ones are served.
    pub handed_over: AtomicBool,
    /// Copies of the listening sockets, for a process that takes over. As long as there is one, the kernel lets clients in.
    pub door_copies: Mutex<Vec<OwnedFd>>,
    /// Listening sockets that accept clients.
    pub doors: AtomicU32,
    pub stop: AtomicU8,
    pub started_at: SystemTime,
    /// Start of the proxy, on the clock that never jumps.
    pub begun: Instant,
    /// The set of statements prepared by SQL that has none.
    pub no_statements: Arc<BySql>,
    /// Moves when a statement passed that may define functions.
    pub definitions: AtomicU64,
    /// Kinds of state, as `Kept::code`, of which the log has said that they keep server connections.
    pub pins_told: AtomicU32,
    settings: Mutex<HashMap<Arc<Settings>, u64>>,
    /// Interned settings at which those nobody uses are dropped.
    settings_sweep_at: AtomicUsize,
    settings_made: AtomicU64,
    /// The way to the control thread.
    pub control: ControlMail,
    /// Reads the files again; set by the code that knows their paths.
    pub reader: OnceLock<Reader>,
}

impl Shared {
    pub fn new(
        config: Config,
        config_path: Option<PathBuf>,
        access: AccessFiles,
        tls: TlsFiles,
        mailboxes: Vec<Mailbox>,
        salt_secret: [u8; 32],
        log: Log,
    ) -> Shared {
        let now = SystemTime::now();
        let view = ClusterView::new(&config, None, seconds(now));
        let positions = Positions::default();
        positions.obey(config.routing.causal_reads());
        let counters = (0..=mailboxes.len()).map(|_| Counters::default()).collect();
        Shared {
            view: ArcSwap::from_pointee(view),
            positions,
            suspects: Suspects::default(),
            answers: CachedResults::new(&config.cache),
            config: ArcSwap::from_pointee(config),
            config_path,
            access: Access::new(access, salt_secret),
            tls: ArcSwap::from_pointee(tls),
            mailboxes,
            pools: Pools::default(),
            roles: Mutex::default(),
            catalogs: Catalogs::default(),
            cards: Cards::new(u32::from_le_bytes(crate::random())),
            seats: Seats::default(),
            probes: Probes::default(),
            pause_state: PauseState::default(),
            counters,
            stats: Table::default(),
            log,
            clients: AtomicU32::new(0),
            consoles: AtomicU32::new(0),
            handed_over: AtomicBool::new(false),
            door_copies: Mutex::default(),
            doors: AtomicU32::new(0),
            stop: AtomicU8::new(Stop::No as u8),
            started_at: now,
            begun: Instant::now(),
            no_statements: Arc::default(),
            definitions: AtomicU64::new(0),
            pins_told: AtomicU32::new(0),
            settings: Mutex::default(),
            settings_sweep_at: AtomicUsize::new(SETTINGS_SWEEP_MIN),
            settings_made: AtomicU64::new(0),
            control: ControlMail::default(),
            reader: OnceLock::new(),
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
        match self.stop.load(Ordering::SeqCst) {
            0 => Stop::No,
            1 => Stop::Smart,
            2 => Stop::Fast,
            _ => Stop::Immediate,
        }
    }

    pub fn is_handed_over(&self) -> bool {
        self.handed_over.load(Ordering::Acquire)
    }

    /// Asks for the roles of all servers to be looked at now.
    pub fn nudge_prober(&self, why: Nudge) {
        self.control.send(Order::Look(why));
    }

    /// Something of a database may have changed: its catalog is not relied upon until it has been looked at.
    pub fn note_change(&self, database: &Arc<Database>) {
        database.note_change();
        self.control.send(Order::Changed(database.clone()));
    }

    /// Has a database looked after while it has sessions.
    pub fn watch_catalog(&self, database: &Arc<Database>) {
        if database.open() {
            self.control.send(Order::Watch(database.clone()));
        }
    }

    /// Has the log of a database taken in.
    pub fn follow_log(&self, database: &Arc<Database>, answers: &CachedResults) {
        if database.follow.want(answers.versions.of_database(&database.name), &answers.versions) {
            self.positions.follow();
            // The node monitor may sleep with a round wanted that nobody had a use for.
            self.control.send(Order::Sample);
            self.control.send(Order::Follow(database.clone()));
        }
    }

    /// Takes a configuration into use.
    pub fn adopt(&self, config: Config) {
        self.log.set(&config.log);
        self.pools.reconfigure(&config);
        self.positions.obey(config.routing.causal_reads());
        let judges_alike = config.routing.judges_as(&self.config.load().routing);
        self.config.store(Arc::new(config));
        if !judges_alike {
            self.catalogs.all().iter().for_each(|database| self.note_change(database));
        }
        self.tell_all(|| Message::Refresh);
        self.nudge_prober(Nudge::Reconfigured);
    }

    /// Reads the files again. Blocks: not for a worker's thread.
    pub fn reload(&self) -> Result<Vec<String>, String> {
        self.reader.get().map_or_else(|| Err("there is no configuration file".to_string()), |read| read(self))
    }

    /// Begins to stop; a stronger mode overrides a weaker one that is under way.
    pub fn begin_stop(&self, mode: Stop) {
        self.log.say(Level::Log, format_args!("stopping: {mode:?}"));
        self.stop.fetch_max(mode as u8, Ordering::SeqCst);
        // A client that comes now is refused, and does not wait for nobody.
        self.door_copies.lock().clear();
        self.tell_all(|| Message::Stop);
        self.nudge_prober(Nudge::Stopping);
    }

    /// The secret for logins to servers as a user: for a database by another name its entry comes first.
    ///
    /// Without a database of clients, for questions of our own, any entry's password of the user serves. For a client it must be the entry's
    /// through which it came: elsewhere it may have proved nothing, since the servers are to judge it.
    pub fn secret_for_server(&self, user: &str, client_database: Option<&str>) -> Option<Secret> {
        // Not this worker's own configuration, which may be of before a reload that others know of.
        let config = self.config.load();
        let of_entry = client_database.and_then(|name| config.databases.get(name)).and_then(|entry| entry.password_of(user));
        let known = || self.access.secret_for_server(user);
        let of_any = || config.databases.password_of(user).filter(|_| client_database.is_none());
        of_entry.cloned().or_else(known).or_else(|| of_any().cloned())
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
