//! The only things two threads see. Passed as an argument; nothing here is a `static`.

use crate::auth::access::{AccessFiles, LooksUp, ProofFilter, SharedAccess};
use crate::auth::client_limits::ClientCounts;
use crate::log::ProxyLog;
use crate::runtime::agents_seen::AgentsSeen;
use crate::runtime::mail::{ControlMail, ControlOrder};
use crate::runtime::node_defaults::OfNodes;
use crate::runtime::pause_state::PauseState;
use crate::runtime::pool::PoolRegistry;
use crate::runtime::pool::server_conn::ServerConn;
use crate::runtime::probes::ProbeStats;
use crate::runtime::server_names::{NameResolver, PendingLookup, ResolverEvent, Wake};
use crate::runtime::stores::StoreKnowledge;
use crate::runtime::tls_files::TlsFiles;
use crate::runtime::user_roles::RoleKnowledge;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::fmt::Arguments;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};
use weir_config::passwd::UserSecret;
use weir_config::{Config, SetError, names_files, shapes_rules};
use weir_failover::cluster::ClusterView;
use weir_failover::{FailoverView, ServerConnEnd};
use weir_io::reactor::TaskId;
use weir_io::socket::SocketRelease;
use weir_session::catalogs::KnownDatabase;
use weir_session::context::SharedContext;
use weir_session::host::{Level, LogField, LogOrigin, ProgramServices, RoleCheckReason, SessionSignal};
pub use weir_session::host::{ProxyShutdown, WorkerId};
use weir_session::stats::StatTable;
use weir_wire::startup_packet::CancelSender;

/// Message of one thread to a worker.
pub enum WorkerMessage {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
    Wake(TaskId),
    /// Let go of a server connection's socket, which goes to another worker's event loop; wake the task there that waits for it.
    Release {
        ticket: SocketRelease,
        worker: WorkerId,
        task: TaskId,
    },
    Cancel {
        pid: u32,
        key: Vec<u8>,
        bearer: CancelSender,
    },
    /// Cancel this session's statement; the asker has the right to.
    Interrupt(u32),
    /// Configuration or cluster view changed.
    Refresh,
    Stop,
    Kill(TerminationTarget),
    /// All databases are to be paused, or to go on.
    Pause,
    Resume,
    /// A suspension has begun or ended. Whoever sends it may count the workers that know.
    Suspended(Arc<AtomicU32>),
    /// Another process accepts clients from now on.
    CloseListeners,
    /// A server connection in that worker's event loop that is to be closed.
    Close(ServerConn),
}

/// Whom an administrator wants gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TerminationTarget {
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
pub struct WorkerMailbox {
    waker: mio::Waker,
    messages: Mutex<Vec<WorkerMessage>>,
    /// Sessions of that worker, to place new ones evenly.
    pub(crate) sessions: AtomicU32,
    /// When that worker last kept house, in milliseconds since the start of the proxy: one that is stuck does not.
    pub(crate) beat_ms: AtomicU64,
    /// The generation of the view that the worker goes by.
    pub(crate) view_known: AtomicU64,
}

impl WorkerMailbox {
    pub fn new(waker: mio::Waker) -> WorkerMailbox {
        let (beat_ms, view_known) = (AtomicU64::new(0), AtomicU64::new(0));
        WorkerMailbox { waker, messages: Mutex::default(), sessions: AtomicU32::new(0), beat_ms, view_known }
    }

    pub fn send(&self, message: WorkerMessage) {
        self.messages.lock().push(message);
        // A worker that cannot be woken has ended; its messages no longer matter.
        let _ = self.waker.wake();
    }

    pub fn take(&self) -> Vec<WorkerMessage> {
        std::mem::take(&mut *self.messages.lock())
    }
}

/// Reads the configuration and the passwords again, and takes them. Says which parameters need a restart. Error: why nothing changed.
type ReadAll = dyn Fn(&SharedState) -> Result<Vec<String>, String> + Send + Sync;

/// Reads the keys and certificates of a configuration.
type ReadAccess = dyn Fn(&Config, &AccessFiles) -> Result<AccessFiles, String> + Send + Sync;
type ReadTls = dyn Fn(&Config) -> Result<TlsFiles, String> + Send + Sync;

/// How files are read again, by the code that knows their paths.
pub struct FileReaders {
    pub(crate) all: Box<ReadAll>,
    pub(crate) tls: Box<ReadTls>,
    pub(crate) access: Box<ReadAccess>,
}

/// Everything shared by the threads of one proxy.
pub struct SharedState {
    pub config: ArcSwap<Config>,
    pub(crate) files: FileReadState,
    pub(crate) access: SharedAccess,
    pub(crate) cluster: ClusterKnowledge,
    /// Facts that sessions of all threads share.
    pub(crate) common: Arc<SharedContext>,
    /// All that workers share of the stores of the network in which results are kept.
    pub(crate) store_common: Option<Arc<StoreKnowledge>>,
    pub(crate) mailboxes: Vec<WorkerMailbox>,
    pub(crate) pools: PoolRegistry,
    pub(crate) clients: ConnectedClients,
    /// Databases an administrator closed.
    pub(crate) pause_state: PauseState,
    /// Numbers by user and database.
    pub(crate) stats: StatTable,
    pub(crate) log: ProxyLog,
    pub(crate) listeners: ListeningSockets,
    pub(crate) life: ProcessLifetime,
    /// The way to the control thread.
    pub(crate) control: ControlMail,
}

/// The operator's files.
pub struct FileReadState {
    pub(crate) config_path: Option<PathBuf>,
    /// Keys and certificates.
    pub(crate) tls: ArcSwap<TlsFiles>,
    pub(crate) readers: OnceLock<FileReaders>,
    /// Held by whoever reads files again, so that the later one's stand.
    pub(crate) reading: Mutex<()>,
}

/// The servers, as the control thread sees them.
pub struct ClusterKnowledge {
    pub(crate) view: ArcSwap<ClusterView>,
    /// Health of nodes, what a failover would do, and the history of failovers. Its times are milliseconds since `begun`.
    pub(crate) failover: ArcSwap<FailoverView>,
    /// How nodes answered who asked for their roles.
    pub(crate) probes: ProbeStats,
    /// The defaults that connections to each node begin with.
    pub(crate) defaults: OfNodes,
    /// The last answers of agents beside servers.
    pub(crate) agents: AgentsSeen,
    /// The last addresses of hosts.
    names: Arc<NameResolver>,
}

/// The clients of all workers.
#[derive(Default)]
pub struct ConnectedClients {
    pub(crate) connected: AtomicU32,
    /// Administrators among them.
    pub(crate) consoles: AtomicU32,
    /// By user, database and address.
    pub(crate) counts: ClientCounts,
    /// The roles that the names of users stand for.
    pub(crate) roles: Mutex<RoleKnowledge>,
}

/// The listening sockets.
#[derive(Default)]
pub struct ListeningSockets {
    /// Those that accept clients.
    pub(crate) open: AtomicU32,
    /// Copies, for a process that takes over. As long as there is one, the kernel lets clients in.
    pub(crate) copies: Mutex<Vec<OwnedFd>>,
    /// Another process has taken over, or is about to: no more clients are accepted, and the accepted ones are served.
    pub(crate) handed_over: AtomicBool,
    /// Connections that pass cancel requests to other Weirs.
    pub(crate) passing: AtomicU32,
}

/// Begin and end of the process.
pub struct ProcessLifetime {
    pub(crate) started_at: SystemTime,
    stop: AtomicU8,
}

impl SharedState {
    pub fn new(
        config: Config,
        config_path: Option<PathBuf>,
        access: AccessFiles,
        tls: TlsFiles,
        mailboxes: Vec<WorkerMailbox>,
        salt_secret: [u8; 32],
        log: ProxyLog,
    ) -> SharedState {
        let now = SystemTime::now();
        let view = ClusterView::new(&config, None, seconds(now));
        let seed = u32::from_le_bytes(crate::random());
        let common = Arc::new(SharedContext::new(&config, mailboxes.len() + 1, Instant::now(), seed));
        SharedState {
            cluster: ClusterKnowledge {
                view: ArcSwap::from_pointee(view),
                failover: ArcSwap::from_pointee(FailoverView::default()),
                probes: ProbeStats::default(),
                agents: AgentsSeen::default(),
                defaults: OfNodes::default(),
                names: Arc::default(),
            },
            common,
            store_common: config.cache.store().map(|_| StoreKnowledge::new()),
            config: ArcSwap::from_pointee(config),
            files: FileReadState {
                config_path,
                tls: ArcSwap::from_pointee(tls),
                readers: OnceLock::new(),
                reading: Mutex::new(()),
            },
            access: SharedAccess::new(access, salt_secret),
            mailboxes,
            pools: PoolRegistry::default(),
            clients: ConnectedClients::default(),
            pause_state: PauseState::default(),
            stats: StatTable::default(),
            log,
            listeners: ListeningSockets::default(),
            life: ProcessLifetime { started_at: now, stop: AtomicU8::new(ProxyShutdown::No as u8) },
            control: ControlMail::default(),
        }
    }

    /// True if a stop waits until no server connection is in use: no client gets one any more.
    pub fn drains_servers(&self) -> bool {
        self.stop_mode() == ProxyShutdown::Smart && self.pause_state.is_all_paused()
    }

    pub fn stop_mode(&self) -> ProxyShutdown {
        match self.life.stop.load(Ordering::SeqCst) {
            0 => ProxyShutdown::No,
            1 => ProxyShutdown::Smart,
            2 => ProxyShutdown::Fast,
            _ => ProxyShutdown::Immediate,
        }
    }

    pub fn is_handed_over(&self) -> bool {
        self.listeners.handed_over.load(Ordering::Acquire)
    }

    /// Asks for the roles of all servers to be looked at now.
    pub fn request_role_check(&self, why: RoleCheckReason) {
        self.control.send(ControlOrder::Look(why));
    }

    /// A connection of a session to a server ended without being asked to.
    pub fn note_conn_died(&self, node: u16, how: ServerConnEnd) {
        self.control.send(ControlOrder::LinkDied(node, how));
    }

    /// Something of a database may have changed: what is known of it is not relied upon until it has been looked at.
    pub fn note_change(&self, database: &Arc<KnownDatabase>) {
        database.note_change();
        self.control.send(ControlOrder::Changed(database.clone()));
    }

    /// Has a database looked after while it has sessions.
    pub fn watch_catalog(&self, database: &Arc<KnownDatabase>) {
        if database.open(Instant::now()) {
            self.control.send(ControlOrder::Watch(database.clone()));
        }
    }

    /// Takes a configuration into use.
    pub fn adopt(&self, config: Arc<Config>) {
        self.log.set(&config.log);
        self.pools.reconfigure(&config);
        self.positions.obey(config.routing.causal_reads());
        let judges_alike = config.routing.judges_as(&self.config.load().routing);
        self.config.store(config);
        if !judges_alike {
            self.catalogs.all().iter().for_each(|database| self.note_change(database));
        }
        self.tell_all(|| WorkerMessage::Refresh);
        self.request_role_check(RoleCheckReason::Reconfigured);
    }

    /// Reads the files again. Blocks: not for a worker's thread.
    pub fn reload(&self) -> Result<Vec<String>, String> {
        let readers = self.files.readers.get().ok_or("there is no configuration file")?;
        let _one = self.files.reading.lock();
        (readers.all)(self)
    }

    /// Changes parameters until files are read again: all of them, or none. Blocks where `names_files` or `shapes_rules` says so: not for a worker's thread then.
    pub fn set(&self, parameters: &[(String, String)]) -> Result<(), SetError> {
        let changed = |config: Arc<Config>| {
            let set = |config: Arc<Config>, (name, value): &(String, String)| config.set_while_running(name, value).map(Arc::new);
            parameters.iter().try_fold(config, set)
        };
        let any = |is_meant: fn(&str) -> bool| parameters.iter().any(|(name, _)| is_meant(name));
        let (has_keys, has_rules) = (any(names_files), any(shapes_rules));
        if !has_keys && !has_rules {
            self.adopt(changed(self.config.load_full())?);
            return Ok(());
        }
        let readers = self.files.readers.get().ok_or_else(|| SetError::Refused("there is no configuration file".into()))?;
        let _one = self.files.reading.lock();
        let config = changed(self.config.load_full())?;
        let tls = has_keys.then(|| (readers.tls)(&config)).transpose().map_err(SetError::Refused)?;
        let access = has_rules.then(|| (readers.access)(&config, &self.access.files())).transpose().map_err(SetError::Refused)?;
        if let Some(tls) = tls {
            self.files.tls.store(Arc::new(tls));
        }
        if let Some(access) = access {
            self.access.replace(access);
        }
        self.adopt(config);
        Ok(())
    }

    /// Begins to stop; a stronger mode overrides a weaker one that is under way.
    pub fn begin_stop(&self, mode: ProxyShutdown) {
        self.log.say(Level::Log, format_args!("{}", mode.words()));
        self.life.stop.fetch_max(mode as u8, Ordering::SeqCst);
        // Sessions that stand still would never leave.
        self.flow_on();
        // A client that comes now is refused, and does not wait for nobody.
        self.listeners.copies.lock().clear();
        self.tell_all(|| WorkerMessage::Stop);
        self.request_role_check(RoleCheckReason::Stopping);
    }

    /// Has all sessions stop between two statements; the number of workers that know so far. `None`: they do already.
    pub fn suspend(&self) -> Option<Arc<AtomicU32>> {
        self.session_statuses.suspension.begin().then(|| self.tell_suspension())
    }

    /// Ends a suspension. False: there was none.
    pub fn flow_on(&self) -> bool {
        let was_on = self.session_statuses.suspension.end();
        if was_on {
            self.tell_suspension();
        }
        was_on
    }

    fn tell_suspension(&self) -> Arc<AtomicU32> {
        let told: Arc<AtomicU32> = Arc::default();
        self.mailboxes.iter().for_each(|mailbox| mailbox.send(WorkerMessage::Suspended(told.clone())));
        told
    }

    /// Has the system asked for the addresses of a host. `wake`: see `NameResolver::ask`.
    pub(crate) fn ask_name(self: &Arc<SharedState>, hostname: &str, deadline: Instant, wake: Wake) -> PendingLookup {
        let config = self.config.load();
        let is_named = |name: &str| config.nodes.iter().any(|node| node.hostname == name);
        let (shared, host) = (self.clone(), hostname.to_owned());
        let tell = move |news| match news {
            ResolverEvent::Fails { cause } => {
                let text = "cannot be resolved, which says nothing of its server; its last addresses are used meanwhile";
                shared.log.say(Level::Warning, format_args!("host name \"{host}\" {text}: {cause}"));
            }
            ResolverEvent::ResolvesAgain => {
                shared.log.say(Level::Log, format_args!("host name \"{host}\" can be resolved again"))
            }
        };
        self.cluster.names.ask(hostname, deadline, is_named, wake, tell)
    }

    /// The addresses of a host by an answer, or by the last one.
    pub(crate) fn addresses(&self, hostname: &str, question: &PendingLookup) -> io::Result<Vec<IpAddr>> {
        self.cluster.names.outcome(hostname, question)
    }

    /// The secret for logins to servers as a user: for a database by another name its entry comes first.
    ///
    /// Without a database of clients, for questions of our own, any entry's password of the user serves. For a client it must be the entry's
    /// through which it came: elsewhere it may have proved nothing, since the servers are to judge it.
    pub fn secret_for_server(&self, user: &str, client_database: Option<&str>) -> Option<UserSecret> {
        // Not this worker's own configuration, which may be of before a reload that others know of.
        let config = self.config.load();
        let of_entry = client_database.and_then(|name| config.databases.get(name)).and_then(|entry| entry.password_of(user));
        let proofs = client_database.map_or(ProofFilter::Any, |name| {
            let looks_up = if config.look_up(Some(name)).user.is_empty() { LooksUp::No } else { LooksUp::Yes };
            ProofFilter::Of { realm: config.realm(name), looks_up }
        });
        let known = || self.access.secret_for_server(user, proofs);
        let of_any = || config.databases.password_of(user).filter(|_| client_database.is_none());
        of_entry.cloned().or_else(known).or_else(|| of_any().cloned())
    }

    /// Tells all workers.
    pub fn tell_all(&self, message: fn() -> WorkerMessage) {
        for mailbox in &self.mailboxes {
            mailbox.send(message());
        }
    }
}

impl Deref for SharedState {
    type Target = SharedContext;

    fn deref(&self) -> &SharedContext {
        &self.common
    }
}

impl ProgramServices for SharedState {
    fn log(&self, level: Level, who: &LogOrigin<'_>, text: Arguments<'_>, fields: &[(&str, LogField<'_>)]) {
        self.log.event(level, who, text, fields);
    }

    fn look(&self, why: RoleCheckReason) {
        self.request_role_check(why);
    }

    fn conn_died(&self, node: u16, how: ServerConnEnd) {
        SharedState::note_conn_died(self, node, how);
    }

    fn sample(&self) {
        self.control.send(ControlOrder::Sample);
    }

    fn look_at(&self, database: &Arc<KnownDatabase>) {
        self.control.send(ControlOrder::Changed(database.clone()));
    }

    fn follow(&self, database: &Arc<KnownDatabase>) {
        self.control.send(ControlOrder::Follow(database.clone()));
    }

    fn stop_mode(&self) -> ProxyShutdown {
        SharedState::stop_mode(self)
    }

    fn has_clients_of(&self, database: &str) -> bool {
        self.clients.counts.has_clients_of(database)
    }

    fn signal(&self, worker: WorkerId, pid: u32, signal: SessionSignal) {
        let message = match signal {
            SessionSignal::Terminate => WorkerMessage::Kill(TerminationTarget::Client(pid)),
            SessionSignal::Cancel => WorkerMessage::Interrupt(pid),
        };
        self.mailboxes[usize::from(worker)].send(message);
    }
}

/// Seconds since 1970.
pub fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
